"""What the modules share: norms, the short convolution, caches, padding, and how a layer of ttr is called."""

from __future__ import annotations

import inspect
import math
from typing import Any, Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..._library import Error
from ..._plan import State, unknown
from .. import _call, _mamba
from .._gates import wide


class Memory:
    """What one module keeps between calls while it decodes."""

    def __init__(self) -> None:
        self.seen = 0  # tokens
        self.states: dict[str, State] = {}
        self.tensors: dict[str, Tensor] = {}


class Cache:
    """The memories of the modules of a model, by `layer_idx`; begin with an empty one and pass it to every call.

    >>> import torch, ttr.torch.nn as nn
    >>> layer, cache = nn.DeltaNet(hidden_size=8, num_heads=2, layer_idx=0), nn.Cache()
    >>> x = torch.randn(1, 6, 8)
    >>> with torch.no_grad():
    ...     whole = layer(x)[0]
    ...     parts = [layer(x[:, t : t + 1], past_key_values=cache, use_cache=True)[0] for t in range(6)]
    >>> torch.allclose(torch.cat(parts, 1), whole, atol=1e-5), cache.get_seq_length()
    (True, 6)
    """

    def __init__(self) -> None:
        self.memories: dict[Any, Memory] = {}

    def of(self, key: Any) -> Memory:
        return self.memories.setdefault(key, Memory())

    def get_seq_length(self, layer_idx: Any = None) -> int:
        if layer_idx is not None:
            return self.memories[layer_idx].seen if layer_idx in self.memories else 0
        return max((m.seen for m in self.memories.values()), default=0)

    def __len__(self) -> int:
        return len(self.memories)


def run(
    layer: str,
    inputs: Mapping[str, Tensor],
    memory: Memory | None,
    *,
    key: str = "state",
    output: str = "o",
    settings: Mapping[str, Any] | None = None,
    scale: float | None = None,
    cu_seqlens: Any = None,
) -> Tensor:
    """A layer of ttr: with gradients, or going on from a memory."""
    if memory is None:
        return _call.apply(layer, inputs, outputs=(output,), settings=settings, scale=scale, cu_seqlens=cu_seqlens)[0]
    o, memory.states[key] = _call.run_state(
        layer, inputs, memory.states.get(key), output=output, settings=settings, scale=scale
    )
    return o


def split(x: Tensor, width: int) -> Tensor:
    """[..., H * width] -> [..., H, width]."""
    return x.reshape(*x.shape[:-1], -1, width)


def refuse(given: Mapping[str, Any], function: Callable[..., Any], of: str, known: Sequence[str] = ()) -> None:
    """Names that came as **kwargs and are none of the known ones."""
    for name in given:
        if name not in known:
            kinds = inspect.signature(function).parameters.values()
            named = [p.name for p in kinds if p.kind is not p.VAR_KEYWORD and p.name != "self"]
            raise unknown("argument", name, [*named, *known], of)


class RMSNorm(nn.Module):
    """x / sqrt(mean x^2 + eps) * weight, over the last axis."""

    def __init__(
        self,
        hidden_size: int,
        elementwise_affine: bool = True,
        eps: float = 1e-5,
        bias: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **kwargs: Any,
    ) -> None:
        refuse(kwargs, type(self).__init__, type(self).__name__)
        super().__init__()
        if bias:
            raise Error(f"{type(self).__name__}: bias=True; the norms of ttr have a weight alone")
        self.hidden_size, self.eps = hidden_size, eps
        if elementwise_affine:
            self.weight = nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))
        else:
            self.register_parameter("weight", None)

    def extra_repr(self) -> str:
        return f"{self.hidden_size}, eps={self.eps}"

    def _norm(self, x: Tensor) -> Tensor:
        y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return y if self.weight is None else y * self.weight

    def forward(self, x: Tensor) -> Tensor:
        return self._norm(wide(x)).to(x.dtype)


_ACTIVATIONS = {"swish": F.silu, "silu": F.silu, "sigmoid": torch.sigmoid}


class FusedRMSNormGated(RMSNorm):
    """RMSNorm(x) * act(g): the norm first, then the gate; flash-linear-attention's."""

    def __init__(
        self,
        hidden_size: int,
        elementwise_affine: bool = True,
        eps: float = 1e-5,
        activation: str = "swish",
        device: Any = None,
        dtype: torch.dtype | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(hidden_size, elementwise_affine, eps, device=device, dtype=dtype, **kwargs)
        if activation not in _ACTIVATIONS:
            raise Error(f"activation is '{activation}'; a gate has {', '.join(_ACTIVATIONS)}")
        self.activation = activation

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        g: Tensor,
        residual: Tensor | None = None,
        prenorm: bool = False,
        residual_in_fp32: bool = False,
    ) -> Tensor:
        if residual is not None or prenorm:
            raise Error("FusedRMSNormGated: residual and prenorm are not here; give x + residual as x")
        if self.weight is not None and x.dim() == 4 and x.dtype == g.dtype == self.weight.dtype:
            activation = "sigmoid" if self.activation == "sigmoid" else "silu"
            settings = {"eps": self.eps, "activation": activation}
            inputs = {"x": x, "z": g, "w": self.weight}
            return _call.apply("rms-norm-norm-first", inputs, outputs=("y",), settings=settings)[0]
        return (self._norm(wide(x)) * _ACTIVATIONS[self.activation](wide(g))).to(x.dtype)


class RMSNormGated(nn.Module):
    """Mamba-2's: by default the gate first, RMSNorm(x * silu(z)), over groups of `group_size` channels."""

    def __init__(self, hidden_size: int, eps: float = 1e-5, norm_before_gate: bool = False, group_size: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps, self.norm_before_gate, self.group_size = eps, norm_before_gate, group_size or hidden_size

    def forward(self, x: Tensor, z: Tensor | None = None) -> Tensor:
        kind, x = x.dtype, wide(x)
        if z is not None and not self.norm_before_gate:
            x = x * F.silu(wide(z))
        grouped = split(x, self.group_size)
        y = (grouped * torch.rsqrt(grouped.square().mean(-1, keepdim=True) + self.eps)).reshape(x.shape) * self.weight
        return (y * F.silu(wide(z)) if z is not None and self.norm_before_gate else y).to(kind)


class ShortConvolution(nn.Conv1d):
    """A causal convolution per channel, [B, T, D] -> ([B, T, D], cache [B, D, W]); weight [D, 1, W], the last tap is now."""

    def __init__(
        self,
        hidden_size: int,
        kernel_size: int,
        bias: bool = False,
        activation: str | None = "silu",
        device: Any = None,
        dtype: torch.dtype | None = None,
        **kwargs: Any,
    ) -> None:
        # Matters of speed there.
        refuse(kwargs, ShortConvolution.__init__, "ShortConvolution", ("backend", "use_fast_conv1d"))
        size = {"groups": hidden_size, "padding": kernel_size - 1}
        super().__init__(hidden_size, hidden_size, kernel_size, **size, bias=bias, device=device, dtype=dtype)
        self.hidden_size, self.activation = hidden_size, activation

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        residual: Tensor | None = None,
        mask: Tensor | None = None,
        cache: Tensor | None = None,
        output_final_state: bool = False,
        cu_seqlens: Any = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        refuse(kwargs, ShortConvolution.forward, "ShortConvolution", ("chunk_indices",))  # of cu_seqlens, made here
        if mask is not None:
            x = x * mask.unsqueeze(-1)
        width, bounds = self.weight.shape[-1], _call.bounds_of(cu_seqlens)
        initial = cache[..., -(width - 1) :].transpose(1, 2).to(x.dtype) if cache is not None and width > 1 else None
        y, _ = _mamba._convolve(x, self.weight.squeeze(1), self.bias, initial, self.activation, bounds=bounds)
        final = self._last(x, cache, width, bounds) if output_final_state else None
        return (y if residual is None else y + residual), final

    @staticmethod
    def _last(x: Tensor, cache: Tensor | None, width: int, bounds: Any) -> Tensor:
        """The last W inputs of every sequence [N, D, W], zeros where there were none; W - 1 of them are read again."""
        rows = [x] if bounds is None else [x[:, begin:end] for begin, end in zip(bounds[:-1], bounds[1:])]
        kept = []
        for n, row in enumerate(rows):
            before = row.new_zeros(row.shape[0], row.shape[2], width)
            if cache is not None:
                before = (cache if bounds is None else cache[n : n + 1]).to(x.dtype)
            kept.append(torch.cat([before, row.transpose(1, 2)], -1)[..., -width:])
        return torch.cat(kept)

    def remember(self, x: Tensor, memory: Memory | None, key: str, cu_seqlens: Any = None) -> Tensor:
        """As a part of a mixer: the last inputs stay in the memory."""
        if memory is None:
            return self(x, cu_seqlens=cu_seqlens)[0]
        y, memory.tensors[key] = self(x, cache=memory.tensors.get(key), output_final_state=True)
        return y


class LoRA(nn.Module):
    """A product of two thin matrices with an activation between them (RWKV)."""

    def __init__(self, input_dim: int, output_dim: int, low_rank_dim: int, bias: bool = True, activation: str | None = "tanh") -> None:
        super().__init__()
        between = {None: nn.Identity, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "relu": nn.ReLU}[activation]()
        self.lora = nn.Sequential(
            nn.Linear(input_dim, low_rank_dim, bias=False), between, nn.Linear(low_rank_dim, output_dim, bias=bias)
        )
        nn.init.zeros_(self.lora[0].weight)
        nn.init.orthogonal_(self.lora[2].weight, gain=0.1 * max(1.0, math.sqrt(low_rank_dim / output_dim)))
        if bias:
            nn.init.zeros_(self.lora[2].bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.lora(x)


def token_shift(x: Tensor, memory: Memory | None, key: str, cu_seqlens: Any = None) -> Tensor:
    """The token before, minus the token."""
    before = torch.zeros_like(x[:, :1])
    if memory is not None:
        before = memory.tensors.get(key, before)
        memory.tensors[key] = x[:, -1:].clone()
    shifted = torch.cat([before, x[:, :-1]], 1)
    bounds = _call.bounds_of(cu_seqlens)
    if bounds is not None:
        keep = torch.ones(x.shape[1], 1, dtype=x.dtype)
        keep[torch.as_tensor(bounds[:-1][bounds[:-1] < x.shape[1]])] = 0
        shifted = shifted * keep
    return shifted - x


def rotary(x: Tensor, offset: int, cu_seqlens: Any, base: float = 10000.0) -> Tensor:
    """Rotates halves of [B, T, H, D] by their position, which a half type could not hold."""
    half, kind = x.shape[-1] // 2, wide(x[:0]).dtype
    bounds = _call.bounds_of(cu_seqlens)
    places = torch.arange(offset, offset + x.shape[1], dtype=kind)
    if bounds is not None:
        begins = torch.as_tensor(bounds[:-1]).repeat_interleave(torch.as_tensor(bounds[1:] - bounds[:-1]))
        places = places - begins
    frequencies = base ** (-torch.arange(half, dtype=kind) / half)
    angle = (places[:, None] * frequencies)[None, :, None]
    a, b = wide(x[..., :half]), wide(x[..., half:])
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1).to(x.dtype)


def inverse_softplus_of_dt(count: int, dt_min: float = 0.001, dt_max: float = 0.1, floor: float = 1e-4) -> Tensor:
    """A bias b with softplus(b) log-uniform between dt_min and dt_max."""
    dt = torch.exp(torch.rand(count) * (math.log(dt_max) - math.log(dt_min)) + math.log(dt_min)).clamp(min=floor)
    return dt + torch.log(-torch.expm1(-dt))


def parameter(t: Tensor) -> nn.Parameter:
    """One that optimisers should not shrink."""
    made = nn.Parameter(t)
    made._no_weight_decay = True  # type: ignore[attr-defined]
    return made


class Mixer(nn.Module):
    """A layer around a memory: hidden states in, hidden states out; `mixed` is what a subclass computes.

    The call is flash-linear-attention's: ``layer(hidden_states, attention_mask, past_key_values, use_cache)`` returns
    ``(hidden_states, None, past_key_values)``. `attention_mask` [B, T] is 0 at padding; `cu_seqlens` packs sequences.
    """

    hidden_size: int
    layer_idx: int | None = None
    # What models hand to all their layers and no layer reads: positions are counted, the rest is in cu_seqlens.
    unread: tuple[str, ...] = ("cache_position", "chunk_indices", "cu_seqlens_cpu", "num_items_in_batch")
    unread += ("position_embeddings", "position_ids")
    read: tuple[str, ...] = ()  # what `mixed` takes besides

    def __init__(self, **kwargs: Any) -> None:
        refuse(kwargs, type(self).__init__, type(self).__name__)
        super().__init__()

    def mixed(self, x: Tensor, memory: Memory | None, cu_seqlens: Any, **kwargs: Any) -> Tensor:
        raise NotImplementedError

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool = False,
        output_attentions: bool = False,
        cu_seqlens: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        refuse(kwargs, Mixer.forward, type(self).__name__, (*self.read, *self.unread))
        if hidden_states.dim() != 3 or hidden_states.shape[-1] != self.hidden_size:
            raise Error(
                f"{type(self).__name__}: hidden_states has the shape {tuple(hidden_states.shape)}; it is [B, T, {self.hidden_size}]"
            )
        memory = None
        if use_cache or past_key_values is not None:
            if past_key_values is None:
                past_key_values = Cache()
            if cu_seqlens is not None:
                raise Error(f"{type(self).__name__}: a cache is for a batch of sequences, not for packed ones")
            memory = past_key_values.of(self.layer_idx if self.layer_idx is not None else id(self))
        padded = attention_mask is not None and not bool(attention_mask.bool().all())
        if padded and memory is not None:
            raise Error(f"{type(self).__name__}: padding and a cache at once; decode sequences of one length, or one by one")
        if padded:
            assert attention_mask is not None
            o = self._without_padding(hidden_states, attention_mask, **kwargs)
        else:
            o = self.mixed(hidden_states, memory, cu_seqlens, **kwargs)
        if memory is not None:
            memory.seen += hidden_states.shape[1]
        return o, None, past_key_values

    def _without_padding(self, x: Tensor, attention_mask: Tensor, **kwargs: Any) -> Tensor:
        keep = attention_mask[:, -x.shape[1] :].bool()
        lengths = keep.sum(1)
        bounds = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        o = self.mixed(x[keep].unsqueeze(0), None, bounds, **kwargs)
        return torch.zeros(x.shape[:2] + o.shape[2:], dtype=o.dtype).masked_scatter(keep.unsqueeze(-1), o)
