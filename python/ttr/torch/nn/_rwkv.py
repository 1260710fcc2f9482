"""RWKV-6 and RWKV-7 as modules, with flash-linear-attention's constructors and parameter names."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..._library import Error
from .._gates import l2norm, wide
from ._parts import LoRA, Memory, Mixer, run, split, token_shift


class _Lerp(nn.Module):
    """A projection of x + (token before - x) * mu; mu a parameter, or given with the call."""

    def __init__(self, inputs: int, outputs: int, low_rank_dim: int | None = None, own: bool = False) -> None:
        super().__init__()
        self.linear: nn.Module = nn.Linear(inputs, outputs, bias=False)
        if low_rank_dim is not None:
            self.linear = LoRA(inputs, outputs, low_rank_dim)
        if own:
            self.mu = nn.Parameter(torch.zeros(inputs))

    def forward(self, x: Tensor, delta: Tensor, mu: Tensor | None = None) -> Tensor:
        return self.linear(x + delta * (self.mu if mu is None else mu))


class RWKV6Attention(Mixer):
    """RWKV-6 (Peng et al. 2024)."""

    def __init__(
        self,
        mode: str = "chunk",
        hidden_size: int = 1024,
        expand_k: float = 0.5,
        expand_v: float = 1.0,
        num_heads: int = 4,
        gate_fn: str = "swish",
        proj_low_rank_dim: int = 32,
        gate_low_rank_dim: int = 64,
        fuse_norm: bool = True,
        elementwise_affine: bool = True,
        norm_eps: float = 1e-5,
        layer_idx: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_size, self.layer_idx, self.rank = hidden_size, layer_idx, proj_low_rank_dim
        key, value = int(hidden_size * expand_k), int(hidden_size * expand_v)
        self.head_k_dim, self.head_v_dim = key // num_heads, value // num_heads
        if gate_fn not in ("swish", "silu", "sigmoid"):
            raise Error(f"gate_fn is '{gate_fn}'; there are swish and sigmoid")
        self.gate_fn = torch.sigmoid if gate_fn == "sigmoid" else F.silu
        self.x_proj = nn.Sequential(
            _Lerp(hidden_size, 5 * proj_low_rank_dim, own=True),
            nn.Tanh(),
            nn.Linear(5 * proj_low_rank_dim, hidden_size, bias=False),
        )
        self.x_bias = nn.Parameter(torch.zeros(5, hidden_size))
        self.r_proj, self.w_proj = _Lerp(hidden_size, key), _Lerp(hidden_size, key, gate_low_rank_dim)
        self.k_proj, self.v_proj, self.g_proj = _Lerp(hidden_size, key), _Lerp(hidden_size, value), _Lerp(hidden_size, value)
        self.bonus = nn.Parameter(torch.zeros(num_heads, self.head_k_dim))
        self.g_norm = nn.GroupNorm(num_heads, value, eps=norm_eps, affine=elementwise_affine)
        self.o_proj = nn.Linear(value, hidden_size, bias=False)

    def mixed(self, x: Tensor, memory: Memory | None, cu_seqlens: Any, **kwargs: Any) -> Tensor:
        delta = token_shift(x, memory, "token", cu_seqlens)
        low = self.x_proj[1](split(self.x_proj[0](x, delta), self.rank))
        mixes = torch.einsum("btnr,hnr->btnh", low, self.x_proj[2].weight.view(self.hidden_size, 5, -1)) + self.x_bias
        projections = (self.r_proj, self.w_proj, self.k_proj, self.v_proj, self.g_proj)
        r, w, k, v, g = (project(x, delta, mu) for project, mu in zip(projections, mixes.unbind(-2)))
        inputs = {"r": split(r, self.head_k_dim), "k": split(k, self.head_k_dim), "v": split(v, self.head_v_dim)}
        inputs.update(w=-wide(split(w, self.head_k_dim)).exp(), u=self.bonus)
        o = run("rwkv-6", inputs, memory, scale=1.0, cu_seqlens=cu_seqlens).flatten(2)
        o = self.g_norm(o.flatten(0, 1)).view_as(o)
        return self.o_proj((o * self.gate_fn(wide(g))).to(o.dtype))


def _rank(hidden_size: int, factor: float) -> int:
    return max(32, int(round(factor * hidden_size**0.5 / 32) * 32))


class RWKV7Attention(Mixer):
    """RWKV-7 (Peng et al. 2025); returns the values of the first layer as a fourth result, which the others take."""

    read = ("v_first",)

    def __init__(
        self,
        mode: str = "chunk",
        hidden_size: int = 1024,
        head_dim: int | None = 64,
        num_heads: int | None = None,
        decay_low_rank_dim: int | None = None,
        gate_low_rank_dim: int | None = None,
        a_low_rank_dim: int | None = None,
        v_low_rank_dim: int | None = None,
        elementwise_affine: bool = True,
        norm_eps: float = 1e-5,
        layer_idx: int | None = None,
        fuse_norm: bool = False,
        value_dim: int | None = None,
        num_hidden_layers: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if head_dim is None and num_heads is None:
            raise Error("RWKV7Attention needs head_dim or num_heads")
        self.hidden_size, self.layer_idx, self.fuse_norm = hidden_size, layer_idx, fuse_norm
        self.head_dim = head_dim if head_dim is not None else hidden_size // int(num_heads or 1)
        self.num_heads = hidden_size // self.head_dim
        value = value_dim if value_dim is not None else hidden_size
        self.head_v_dim = value // self.num_heads
        part = self.head_dim / 64
        for name in "rwkvag":
            setattr(self, f"x_{name}", nn.Parameter(torch.zeros(1, 1, hidden_size)))
        self.k_k, self.k_a = nn.Parameter(torch.full((hidden_size,), 0.7)), nn.Parameter(torch.full((hidden_size,), 1.02))
        self.r_k = nn.Parameter(torch.full((self.num_heads, self.head_dim), -0.04))
        self.r_proj, self.k_proj = (nn.Linear(hidden_size, hidden_size, bias=False) for _ in range(2))
        self.v_proj, self.o_proj = nn.Linear(hidden_size, value, bias=False), nn.Linear(value, hidden_size, bias=False)
        self.w_lora = LoRA(hidden_size, hidden_size, decay_low_rank_dim or _rank(hidden_size, 2.5 * part))
        if layer_idx != 0:
            self.v_lora = LoRA(hidden_size, value, v_low_rank_dim or _rank(hidden_size, 1.7 * part), activation=None)
        self.a_lora = LoRA(hidden_size, hidden_size, a_low_rank_dim or _rank(hidden_size, 2.5 * part), activation=None)
        self.g_lora = LoRA(hidden_size, value, gate_low_rank_dim or _rank(hidden_size, 5), bias=False, activation="sigmoid")
        self.g_norm = nn.GroupNorm(self.num_heads, value, eps=self.head_dim * norm_eps, affine=elementwise_affine)

    def forward(self, hidden_states: Tensor, *args: Any, v_first: Tensor | None = None, **kwargs: Any) -> tuple[Any, ...]:  # type: ignore[override]
        first: list[Tensor | None] = [v_first]  # of this call: a module that keeps a graph cannot be copied
        results = super().forward(hidden_states, *args, v_first=first, **kwargs)
        return (*results, first[0])

    def mixed(  # type: ignore[override]
        self, x: Tensor, memory: Memory | None, cu_seqlens: Any, v_first: list[Tensor | None], **kwargs: Any
    ) -> Tensor:
        delta = token_shift(x, memory, "token", cu_seqlens)
        xr, xw, xk, xv, xa, xg = (x + delta * getattr(self, f"x_{name}") for name in "rwkvag")
        r, k, v = self.r_proj(xr), self.k_proj(xk), self.v_proj(xv)
        w = -0.6065306597126334 * wide(self.w_lora(xw)).sigmoid()
        if self.layer_idx == 0:
            v_first[0] = v
        elif v_first[0] is not None:
            v = torch.lerp(wide(v), wide(v_first[0]), wide(self.v_lora(xv)).sigmoid()).to(v.dtype)
        a, g = wide(self.a_lora(xa)).sigmoid(), self.g_lora(xg)
        kk = split(k * self.k_k, self.head_dim)
        kk = l2norm(kk) if self.fuse_norm else F.normalize(kk, dim=-1)
        k = (k * (1 + (a - 1) * self.k_a)).to(k.dtype)
        r, w, k, a = (split(t, self.head_dim) for t in (r, w, k, a))
        v = split(v, self.head_v_dim)
        inputs = {"q": r, "k": k, "v": v, "a": -kk, "b": kk * a, "gk": w}
        o = run("dplr", inputs, memory, scale=1.0, cu_seqlens=cu_seqlens).flatten(2)
        o = self.g_norm(o.flatten(0, 1)).view_as(o)
        bonus = (r * k * self.r_k).sum(-1, keepdim=True) * v
        return self.o_proj((o + bonus.flatten(2)) * g)
