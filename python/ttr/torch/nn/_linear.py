"""Linear memories as modules, with flash-linear-attention's constructors and parameter names."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..._library import Error
from .._gates import gate, l2norm, wide
from ._parts import (
    FusedRMSNormGated,
    Memory,
    Mixer,
    RMSNorm,
    ShortConvolution,
    inverse_softplus_of_dt,
    parameter,
    rotary,
    run,
    split,
)


def _linear(inputs: int, outputs: int, bias: bool = False) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=bias)


class _Projected(Mixer):
    """q, k and v by projections, each with a short convolution or silu."""

    def _project(self, x: Tensor, memory: Memory | None, cu_seqlens: Any, names: str = "qkv") -> list[Tensor]:
        made = []
        for name in names:
            t = getattr(self, f"{name}_proj")(x)
            conv = getattr(self, f"{name}_conv1d", None)
            made.append(conv.remember(t, memory, name, cu_seqlens) if conv is not None else self._activate(t, name))
        return made

    def _activate(self, t: Tensor, name: str) -> Tensor:
        return F.silu(t)

    def _convolutions(self, conv_size: int, conv_bias: bool, **widths: int) -> None:
        for name, width in widths.items():
            setattr(self, f"{name}_conv1d", ShortConvolution(width, conv_size, bias=conv_bias, activation="silu"))


class GatedDeltaNet(_Projected):
    """Gated DeltaNet (Yang et al. 2024): S <- exp(g) S, then a step of the delta rule."""

    def __init__(
        self,
        hidden_size: int = 2048,
        expand_v: float = 2,
        head_dim: int = 256,
        num_heads: int = 6,
        num_v_heads: int | None = None,
        mode: str = "chunk",
        use_gate: bool = True,
        use_short_conv: bool = True,
        allow_neg_eigval: bool = False,
        conv_size: int = 4,
        conv_bias: bool = False,
        layer_idx: int | None = None,
        norm_eps: float = 1e-5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_size, self.layer_idx, self.use_gate = hidden_size, layer_idx, use_gate
        self.num_heads, self.num_v_heads = num_heads, num_v_heads or num_heads
        self.head_k_dim, self.head_v_dim = head_dim, _whole(head_dim * expand_v, "head_dim * expand_v")
        self.allow_neg_eigval = allow_neg_eigval
        if self.num_v_heads % num_heads:
            raise Error(f"num_v_heads = {self.num_v_heads} is no multiple of num_heads = {num_heads}")
        key, value = num_heads * head_dim, self.num_v_heads * self.head_v_dim
        self.q_proj, self.k_proj, self.v_proj = (_linear(hidden_size, n) for n in (key, key, value))
        self.a_proj, self.b_proj = _linear(hidden_size, self.num_v_heads), _linear(hidden_size, self.num_v_heads)
        self.A_log = parameter(torch.log(torch.empty(self.num_v_heads).uniform_(0, 16)))
        self.dt_bias = parameter(inverse_softplus_of_dt(self.num_v_heads))
        if use_short_conv:
            self._convolutions(conv_size, conv_bias, q=key, k=key, v=value)
        _output(self, hidden_size, value, self.head_v_dim, use_gate, norm_eps)

    def mixed(self, x: Tensor, memory: Memory | None, cu_seqlens: Any, **kwargs: Any) -> Tensor:
        q, k, v = self._project(x, memory, cu_seqlens)
        q, k, v = l2norm(split(q, self.head_k_dim)), l2norm(split(k, self.head_k_dim)), split(v, self.head_v_dim)
        beta = wide(self.b_proj(x)).sigmoid() * (2 if self.allow_neg_eigval else 1)
        g = gate(self.a_proj(x), self.A_log, self.dt_bias)
        inputs = {"q": q, "k": k, "v": v, "g": g, "beta": beta}
        return _finish(self, x, run("gated-deltanet", inputs, memory, cu_seqlens=cu_seqlens))


def _whole(number: float, what: str) -> int:
    if not math.isclose(number, round(number), rel_tol=1e-5):
        raise Error(f"{what} = {number} is no whole number")
    return round(number)


def _output(module: Any, hidden_size: int, value: int, head: int, gated: bool, eps: float, activation: str = "swish") -> None:
    """The gate of the output, its norm and its projection."""
    if gated:
        module.g_proj = _linear(hidden_size, value)
        module.o_norm = FusedRMSNormGated(head, eps=eps, activation=activation)
    else:
        module.o_norm = RMSNorm(head, eps=eps)
    module.o_proj = _linear(value, hidden_size)


def _finish(module: Any, x: Tensor, o: Tensor) -> Tensor:
    if hasattr(module, "g_proj"):
        o = module.o_norm(o, split(module.g_proj(x), o.shape[-1]))
    else:
        o = module.o_norm(o)
    return module.o_proj(o.flatten(2))


class DeltaNet(_Projected):
    """DeltaNet (Schlag et al. 2021, Yang et al. 2024): S <- S + beta k (v - S'k)'."""

    def __init__(
        self,
        mode: str = "chunk",
        d_model: int | None = None,
        hidden_size: int = 1024,
        expand_k: float = 1.0,
        expand_v: float = 1.0,
        num_heads: int = 4,
        use_beta: bool = True,
        use_gate: bool = False,
        use_short_conv: bool = True,
        conv_size: int = 4,
        conv_bias: bool = False,
        allow_neg_eigval: bool = False,
        layer_idx: int | None = None,
        qk_activation: str = "silu",
        qk_norm: str = "l2",
        norm_eps: float = 1e-5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_size = hidden_size = d_model or hidden_size
        self.layer_idx, self.num_heads, self.use_beta = layer_idx, num_heads, use_beta
        self.allow_neg_eigval, self.qk_activation, self.qk_norm = allow_neg_eigval, qk_activation, qk_norm
        if qk_activation not in ("silu", "relu", "elu", "identity") or qk_norm not in ("l2", "sum"):
            raise Error(f"qk_activation is '{qk_activation}' and qk_norm '{qk_norm}'; there are silu, relu, elu, identity; l2, sum")
        key, value = int(hidden_size * expand_k), int(hidden_size * expand_v)
        self.head_k_dim, self.head_v_dim = key // num_heads, value // num_heads
        self.q_proj, self.k_proj, self.v_proj = (_linear(hidden_size, n) for n in (key, key, value))
        if use_beta:
            self.b_proj = _linear(hidden_size, num_heads)
        if use_short_conv:
            self._convolutions(conv_size, conv_bias, q=key, k=key, v=value)
            if qk_activation != "silu":
                self.q_conv1d.activation = self.k_conv1d.activation = None
        _output(self, hidden_size, value, self.head_v_dim, use_gate, norm_eps)

    def _activate(self, t: Tensor, name: str) -> Tensor:
        return F.silu(t) if name == "v" or self.qk_activation == "silu" else t

    def _map(self, t: Tensor) -> Tensor:
        t = split(t, self.head_k_dim)
        if self.qk_activation == "relu":
            t = t.relu()
        elif self.qk_activation == "elu":
            t = F.elu(t) + 1
        return l2norm(t) if self.qk_norm == "l2" else t / t.sum(-1, keepdim=True)

    def mixed(self, x: Tensor, memory: Memory | None, cu_seqlens: Any, **kwargs: Any) -> Tensor:
        q, k, v = self._project(x, memory, cu_seqlens)
        beta = torch.ones(*x.shape[:2], self.num_heads, dtype=x.dtype)
        if self.use_beta:
            beta = wide(self.b_proj(x)).sigmoid()
        if self.allow_neg_eigval:
            beta = beta * 2
        inputs = {"q": self._map(q), "k": self._map(k), "v": split(v, self.head_v_dim), "beta": beta}
        return _finish(self, x, run("deltanet", inputs, memory, cu_seqlens=cu_seqlens))


class GatedDeltaProduct(_Projected):
    """Gated DeltaProduct (Siems et al. 2025): several steps of the delta rule per token."""

    def __init__(
        self,
        hidden_size: int = 2048,
        expand_v: float = 2,
        head_dim: int = 256,
        num_heads: int = 6,
        num_v_heads: int | None = None,
        mode: str = "chunk",
        use_output_gate: bool = True,
        use_short_conv: bool = True,
        conv_size: int = 4,
        conv_bias: bool = False,
        layer_idx: int | None = None,
        norm_eps: float = 1e-5,
        use_forget_gate: bool = True,
        allow_neg_eigval: bool = True,
        num_householder: int = 2,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_size, self.layer_idx, self.n = hidden_size, layer_idx, num_householder
        self.num_heads, self.num_v_heads = num_heads, num_v_heads or num_heads
        self.head_k_dim, self.head_v_dim = head_dim, _whole(head_dim * expand_v, "head_dim * expand_v")
        self.use_forget_gate, self.allow_neg_eigval = use_forget_gate, allow_neg_eigval
        key, value = num_heads * head_dim, self.num_v_heads * self.head_v_dim
        self.q_proj, self.k_proj = _linear(hidden_size, key), _linear(hidden_size, key * self.n)
        self.v_proj, self.b_proj = _linear(hidden_size, value * self.n), _linear(hidden_size, self.num_v_heads * self.n)
        if use_forget_gate:
            self.a_proj = _linear(hidden_size, self.num_v_heads)
            self.A_log = parameter(torch.log(torch.empty(self.num_v_heads).uniform_(0, 16)))
            self.dt_bias = parameter(inverse_softplus_of_dt(self.num_v_heads))
        if use_short_conv:
            self._convolutions(conv_size, conv_bias, q=key, k=key * self.n, v=value * self.n)
        _output(self, hidden_size, value, self.head_v_dim, use_output_gate, norm_eps)

    def _pairs(self, t: Tensor, width: int) -> Tensor:
        """[B, T, n H width] -> [B, T n, H, width]."""
        return t.reshape(t.shape[0], t.shape[1] * self.n, -1, width)

    def mixed(self, x: Tensor, memory: Memory | None, cu_seqlens: Any, **kwargs: Any) -> Tensor:
        q, k, v = self._project(x, memory, cu_seqlens)
        beta = wide(self.b_proj(x)).sigmoid() * (2 if self.allow_neg_eigval else 1)
        inputs = {"q": l2norm(split(q, self.head_k_dim)), "k": l2norm(self._pairs(k, self.head_k_dim))}
        inputs["v"] = self._pairs(v, self.head_v_dim)
        inputs["beta"] = beta.reshape(x.shape[0], x.shape[1] * self.n, -1)
        if self.use_forget_gate:
            inputs["g"] = gate(self.a_proj(x), self.A_log, self.dt_bias)
        layer = "gated-deltaproduct" if self.use_forget_gate else "deltaproduct"
        return _finish(self, x, run(layer, inputs, memory, settings={"n": self.n}, cu_seqlens=cu_seqlens))


def _same(t: Tensor) -> Tensor:
    return t


# Functions with names: what a module keeps is pickled with it.
_MAPS: dict[Any, Any] = {None: _same, "relu": F.relu, "elu": F.elu, "silu": F.silu, "swish": F.silu}


class _Grouped(_Projected):
    """q with all heads, k and v with fewer; an output norm of the name that flash-linear-attention gives it."""

    def _shapes(
        self, hidden_size: int, expand_k: float, expand_v: float, num_heads: int, num_kv_heads: int | None,
        feature_map: str | None, use_short_conv: bool, conv_size: int, conv_bias: bool, use_output_gate: bool,
        gate_fn: str, elementwise_affine: bool, norm_eps: float, fuse_norm: bool,
    ) -> None:  # fmt: skip
        self.hidden_size, self.num_heads = hidden_size, num_heads
        self.num_kv_heads = num_kv_heads or num_heads
        self.key_dim, self.value_dim = int(hidden_size * expand_k), int(hidden_size * expand_v)
        self.head_k_dim, self.head_v_dim = self.key_dim // num_heads, self.value_dim // num_heads
        self.groups = num_heads // self.num_kv_heads
        if feature_map not in _MAPS or gate_fn not in ("swish", "silu", "sigmoid"):
            raise Error(f"feature_map is '{feature_map}' and gate_fn '{gate_fn}'; there are relu, elu, silu; swish, sigmoid")
        self.feature_map_fn, self.use_output_gate = _MAPS[feature_map], use_output_gate
        self.q_proj = _linear(hidden_size, self.key_dim)
        self.k_proj = _linear(hidden_size, self.key_dim // self.groups)
        self.v_proj = _linear(hidden_size, self.value_dim // self.groups)
        if use_output_gate:
            self.g_proj = _linear(hidden_size, self.value_dim)
        if use_short_conv:
            widths = {"q": self.key_dim, "k": self.key_dim // self.groups, "v": self.value_dim // self.groups}
            self._convolutions(conv_size, conv_bias, **widths)
        self.o_proj = _linear(self.value_dim, hidden_size)
        if gate_fn == "swish" and fuse_norm and use_output_gate:
            self.g_norm_swish_gate = FusedRMSNormGated(self.head_v_dim, elementwise_affine, norm_eps)
        else:
            self.g_norm = RMSNorm(self.head_v_dim, elementwise_affine, norm_eps)
            self.gate_fn = torch.sigmoid if gate_fn == "sigmoid" else F.silu

    def _activate(self, t: Tensor, name: str) -> Tensor:
        return t

    def _spread(self, t: Tensor) -> Tensor:
        """Heads of k and v for every head of q."""
        return t.repeat_interleave(self.groups, 2) if self.groups > 1 else t

    def _read(self, x: Tensor, o: Tensor) -> Tensor:
        if hasattr(self, "g_norm_swish_gate"):
            return self.o_proj(self.g_norm_swish_gate(o, split(self.g_proj(x), self.head_v_dim)).flatten(2))
        o = self.g_norm(o).flatten(2)
        return self.o_proj((o * self.gate_fn(wide(self.g_proj(x)))).to(o.dtype) if self.use_output_gate else o)


class GatedLinearAttention(_Grouped):
    """Gated linear attention (Yang et al. 2023): a gate per key channel."""

    def __init__(
        self,
        mode: str = "chunk",
        hidden_size: int = 1024,
        expand_k: float = 0.5,
        expand_v: float = 1.0,
        num_heads: int = 4,
        num_kv_heads: int | None = None,
        feature_map: str | None = None,
        use_short_conv: bool = False,
        conv_size: int = 4,
        conv_bias: bool = False,
        use_output_gate: bool = True,
        gate_fn: str = "swish",
        elementwise_affine: bool = True,
        norm_eps: float = 1e-5,
        gate_logit_normalizer: int = 16,
        gate_low_rank_dim: int = 16,
        clamp_min: float | None = None,
        fuse_norm: bool = True,
        layer_idx: int | None = None,
    ) -> None:
        super().__init__()
        self._shapes(
            hidden_size, expand_k, expand_v, num_heads, num_kv_heads, feature_map, use_short_conv, conv_size, conv_bias,
            use_output_gate, gate_fn, elementwise_affine, norm_eps, fuse_norm,
        )  # fmt: skip
        self.layer_idx, self.normalizer, self.clamp_min = layer_idx, gate_logit_normalizer, clamp_min
        thin, wide = _linear(hidden_size, gate_low_rank_dim), nn.Linear(gate_low_rank_dim, self.key_dim // self.groups)
        self.gk_proj = nn.Sequential(thin, wide)

    def mixed(self, x: Tensor, memory: Memory | None, cu_seqlens: Any, **kwargs: Any) -> Tensor:
        q, k, v = self._project(x, memory, cu_seqlens)
        gk = F.logsigmoid(wide(self.gk_proj(x))) / self.normalizer
        if self.clamp_min is not None:
            gk = gk.clamp(min=self.clamp_min)
        q, k = (self.feature_map_fn(split(t, self.head_k_dim)) for t in (q, k))
        inputs = {"q": q, "k": self._spread(k), "v": self._spread(split(v, self.head_v_dim))}
        inputs["gk"] = self._spread(split(gk, self.head_k_dim))
        return self._read(x, run("gla", inputs, memory, cu_seqlens=cu_seqlens))


class MultiScaleRetention(_Grouped):
    """RetNet (Sun et al. 2023): a fixed factor per head, rotary positions."""

    def __init__(
        self,
        mode: str = "chunk",
        hidden_size: int = 1024,
        expand_k: float = 1.0,
        expand_v: float = 2.0,
        num_heads: int = 8,
        num_kv_heads: int | None = None,
        feature_map: str | None = None,
        use_short_conv: bool = False,
        conv_size: int = 4,
        conv_bias: bool = False,
        use_output_gate: bool = True,
        gate_fn: str = "swish",
        elementwise_affine: bool = True,
        norm_eps: float = 1e-5,
        fuse_norm: bool = True,
        layer_idx: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._shapes(
            hidden_size, expand_k, expand_v, num_heads, num_kv_heads, feature_map, use_short_conv, conv_size, conv_bias,
            use_output_gate, gate_fn, elementwise_affine, norm_eps, fuse_norm,
        )  # fmt: skip
        self.layer_idx = layer_idx

    def mixed(self, x: Tensor, memory: Memory | None, cu_seqlens: Any, **kwargs: Any) -> Tensor:
        q, k, v = self._project(x, memory, cu_seqlens)
        seen = memory.seen if memory is not None else 0
        q, k = (rotary(self.feature_map_fn(split(t, self.head_k_dim)), seen, cu_seqlens) for t in (q, k))
        inputs = {"q": q, "k": self._spread(k), "v": self._spread(split(v, self.head_v_dim))}
        return self._read(x, run("retnet", inputs, memory, cu_seqlens=cu_seqlens))


class KimiDeltaAttention(_Projected):
    """Kimi delta attention: the gated delta rule with a gate per key channel."""

    def __init__(
        self,
        hidden_size: int = 2048,
        expand_v: float = 1,
        head_dim: int = 128,
        num_heads: int = 16,
        num_v_heads: int | None = None,
        mode: str = "chunk",
        use_short_conv: bool = True,
        allow_neg_eigval: bool = False,
        safe_gate: bool = False,
        lower_bound: float | None = None,
        conv_size: int = 4,
        conv_bias: bool = False,
        layer_idx: int | None = None,
        norm_eps: float = 1e-5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_size, self.layer_idx, self.allow_neg_eigval = hidden_size, layer_idx, allow_neg_eigval
        self.num_heads, self.num_v_heads = num_heads, num_v_heads or num_heads
        self.head_k_dim, self.head_v_dim = head_dim, _whole(head_dim * expand_v, "head_dim * expand_v")
        self.lower_bound = lower_bound if lower_bound is not None else (-5.0 if safe_gate else None)
        key, value, gates = num_heads * head_dim, self.num_v_heads * self.head_v_dim, self.num_v_heads * head_dim
        self.q_proj, self.k_proj, self.v_proj = (_linear(hidden_size, n) for n in (key, key, value))
        if use_short_conv:
            self._convolutions(conv_size, conv_bias, q=key, k=key, v=value)
        self.f_proj = nn.Sequential(_linear(hidden_size, self.head_v_dim), _linear(self.head_v_dim, gates))
        self.b_proj = _linear(hidden_size, self.num_v_heads)
        start = torch.zeros(self.num_v_heads) if safe_gate else torch.log(torch.empty(self.num_v_heads).uniform_(1, 16))
        self.A_log, self.dt_bias = parameter(start), parameter(inverse_softplus_of_dt(gates))
        self.g_proj = nn.Sequential(_linear(hidden_size, self.head_v_dim), nn.Linear(self.head_v_dim, value))
        self.o_norm = FusedRMSNormGated(self.head_v_dim, eps=norm_eps, activation="sigmoid")
        self.o_proj = _linear(value, hidden_size)

    def mixed(self, x: Tensor, memory: Memory | None, cu_seqlens: Any, **kwargs: Any) -> Tensor:
        q, k, v = self._project(x, memory, cu_seqlens)
        beta = wide(self.b_proj(x)).sigmoid() * (2 if self.allow_neg_eigval else 1)
        g = gate(split(self.f_proj(x), self.head_k_dim), self.A_log, self.dt_bias, self.lower_bound)
        inputs = {"q": l2norm(split(q, self.head_k_dim)), "k": l2norm(split(k, self.head_k_dim))}
        inputs.update(v=split(v, self.head_v_dim), g=g, beta=beta)
        return _finish(self, x, run("kda", inputs, memory, cu_seqlens=cu_seqlens))


class MesaNet(_Projected):
    """MesaNet (von Oswald et al. 2025): the least-squares answer at every token, solved exactly here."""

    def __init__(
        self,
        hidden_size: int = 2048,
        num_heads: int = 16,
        head_dim: int = 128,
        mode: str = "chunk",
        use_output_gate: bool = False,
        use_short_conv: bool = True,
        conv_size: int = 4,
        conv_bias: bool = False,
        layer_idx: int | None = None,
        norm_eps: float = 1e-5,
        lambda_lower_bound: float = 0.25,
        max_cg_step_training: int = 30,
        max_cg_step_decoding: int = 30,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_size, self.layer_idx, self.num_heads, self.head_dim = hidden_size, layer_idx, num_heads, head_dim
        self.lambda_lower_bound = lambda_lower_bound
        width = num_heads * head_dim
        self.q_proj, self.k_proj, self.v_proj = (_linear(hidden_size, width) for _ in range(3))
        self.a_proj, self.b_proj = nn.Linear(hidden_size, num_heads), nn.Linear(hidden_size, num_heads)
        start = math.log(math.expm1(1.0 - lambda_lower_bound))
        self.lambda_params = parameter(torch.full((width,), start))
        self._convolutions(conv_size, conv_bias, q=width, k=width)
        _output(self, hidden_size, width, head_dim, use_output_gate, norm_eps)

    def _activate(self, t: Tensor, name: str) -> Tensor:
        return t  # of the values, which have no convolution

    def mixed(self, x: Tensor, memory: Memory | None, cu_seqlens: Any, **kwargs: Any) -> Tensor:
        q, k, v = (split(t, self.head_dim) for t in self._project(x, memory, cu_seqlens))
        lamb = F.softplus(wide(self.lambda_params)).reshape(self.num_heads, -1) + self.lambda_lower_bound
        inputs = {"q": l2norm(q), "k": l2norm(k), "v": v, "g": F.logsigmoid(wide(self.a_proj(x))), "lamb": lamb}
        inputs["beta"] = wide(self.b_proj(x)).sigmoid()
        return _finish(self, x, run("mesanet", inputs, memory, cu_seqlens=cu_seqlens))
