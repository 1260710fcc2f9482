"""Mamba, Mamba-2 and log-linear Mamba-2 as modules, with flash-linear-attention's constructors and parameter names."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..._library import Error
from .. import _mamba
from .._gates import wide
from ._parts import Memory, Mixer, RMSNormGated, ShortConvolution, inverse_softplus_of_dt, parameter, run, split


def _convolution(channels: int, width: int, bias: bool) -> nn.Conv1d:
    return nn.Conv1d(channels, channels, width, groups=channels, padding=width - 1, bias=bias)


def _convolve(conv: nn.Conv1d, x: Tensor, memory: Memory | None, cu_seqlens: Any) -> Tensor:
    """[B, T, D] through a causal convolution and silu."""
    width = conv.weight.shape[-1]
    weight = conv.weight.squeeze(1)
    if memory is None:
        from .._call import bounds_of

        return _mamba._convolve(x, weight, conv.bias, None, "silu", bounds=bounds_of(cu_seqlens))[0]
    cache = memory.tensors.get("conv")
    initial = cache[..., -(width - 1) :].transpose(1, 2) if cache is not None and width > 1 else None
    memory.tensors["conv"] = ShortConvolution._last(x, cache, width, None)
    return _mamba._convolve(x, weight, conv.bias, initial, "silu")[0]


class Mamba(Mixer):
    """Mamba (Gu and Dao 2023)."""

    def __init__(
        self,
        hidden_size: int = 2048,
        state_size: int = 16,
        conv_kernel: int = 4,
        use_conv_bias: bool = True,
        intermediate_size: int = 2048,
        dt_rank: int | str = "auto",
        dt_min: float = 0.001,
        dt_max: float = 0.1,
        dt_init: str = "random",
        dt_scale: float = 1.0,
        dt_init_floor: float = 1e-4,
        use_bias: bool = False,
        hidden_act: str = "silu",
        layer_idx: int | None = None,
        backend: str = "cuda",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_size, self.layer_idx, self.state_size = hidden_size, layer_idx, state_size
        self.intermediate_size = intermediate_size
        self.rank = math.ceil(hidden_size / 16) if dt_rank == "auto" else int(dt_rank)
        if hidden_act not in ("silu", "swish"):
            raise Error(f"hidden_act is '{hidden_act}'; Mamba has silu")
        self.conv1d = _convolution(intermediate_size, conv_kernel, use_conv_bias)
        self.in_proj = nn.Linear(hidden_size, 2 * intermediate_size, bias=use_bias)
        self.x_proj = nn.Linear(intermediate_size, self.rank + 2 * state_size, bias=False)
        self.dt_proj = nn.Linear(self.rank, intermediate_size)
        deviation = self.rank**-0.5 * dt_scale
        if dt_init == "constant":
            nn.init.constant_(self.dt_proj.weight, deviation)
        else:
            nn.init.uniform_(self.dt_proj.weight, -deviation, deviation)
        with torch.no_grad():
            self.dt_proj.bias.copy_(inverse_softplus_of_dt(intermediate_size, dt_min, dt_max, dt_init_floor))
        self.A_log = parameter(torch.log(torch.arange(1.0, state_size + 1)).repeat(intermediate_size, 1))
        self.D = parameter(torch.ones(intermediate_size))
        self.out_proj = nn.Linear(intermediate_size, hidden_size, bias=use_bias)

    def mixed(self, x: Tensor, memory: Memory | None, cu_seqlens: Any, **kwargs: Any) -> Tensor:
        u, z = self.in_proj(x).chunk(2, -1)
        u = _convolve(self.conv1d, u, memory, cu_seqlens)
        dt, B, C = self.x_proj(u).split([self.rank, self.state_size, self.state_size], -1)
        inputs = {"u": u.unsqueeze(2), "delta": F.linear(dt, self.dt_proj.weight).unsqueeze(2)}
        A = -wide(self.A_log).exp()
        inputs.update(A=A.unsqueeze(0), B=B.unsqueeze(2), C=C.unsqueeze(2), D=self.D.unsqueeze(0))
        inputs.update(z=z.unsqueeze(2), delta_bias=self.dt_proj.bias.unsqueeze(0))
        y = run("mamba-1", inputs, memory, output="y", cu_seqlens=cu_seqlens)
        return self.out_proj(y.squeeze(2))


class _Grouped(Mixer):
    """What Mamba-2 and its log-linear form share: one projection, one convolution over x, B and C, a gated norm."""

    def _build(
        self, num_heads: int | None, head_dim: int, hidden_size: int, state_size: int, expand: int, n_groups: int,
        conv_kernel: int, conv_init: float | None, use_conv_bias: bool, D_has_hdim: bool, rmsnorm: bool,
        norm_before_gate: bool, dt_limit: tuple[float, float], dt: tuple[float, float, float], use_bias: bool,
        norm_eps: float, more: int,
    ) -> None:  # fmt: skip
        self.hidden_size, self.head_dim, self.state_size, self.n_groups = hidden_size, head_dim, state_size, n_groups
        self.inner = int(expand * hidden_size)
        if self.inner % head_dim:
            raise Error(f"expand * hidden_size = {self.inner} is no multiple of head_dim = {head_dim}")
        self.num_heads = self.inner // head_dim
        if num_heads and num_heads != self.num_heads:
            raise Error(f"num_heads = {num_heads}; expand * hidden_size / head_dim = {self.num_heads}")
        self.dt_limit, self.D_has_hdim = tuple(dt_limit), D_has_hdim
        self.conv_dim = self.inner + 2 * n_groups * state_size
        self.conv1d = _convolution(self.conv_dim, conv_kernel, use_conv_bias)
        if conv_init is not None:
            nn.init.uniform_(self.conv1d.weight, -conv_init, conv_init)
        self.in_proj = nn.Linear(hidden_size, self.inner + self.conv_dim + self.num_heads * (1 + more), bias=use_bias)
        self.dt_bias = parameter(inverse_softplus_of_dt(self.num_heads, *dt))
        group = self.inner // n_groups
        self.norm = RMSNormGated(self.inner, norm_eps, norm_before_gate, group) if rmsnorm else None
        self.D = parameter(torch.ones(self.inner if D_has_hdim else self.num_heads))
        self.out_proj = nn.Linear(self.inner, hidden_size, bias=use_bias)

    def _parts(self, x: Tensor, memory: Memory | None, cu_seqlens: Any, more: int) -> tuple[Tensor, ...]:
        z, xBC, dt, rest = self.in_proj(x).split([self.inner, self.conv_dim, self.num_heads, self.num_heads * more], -1)
        xBC = _convolve(self.conv1d, xBC, memory, cu_seqlens)
        side = self.n_groups * self.state_size
        u, B, C = xBC.split([self.inner, side, side], -1)
        dt = F.softplus(wide(dt) + wide(self.dt_bias))
        if self.dt_limit != (0.0, float("inf")):
            dt = dt.clamp(*self.dt_limit)
        return z, split(u, self.head_dim), split(B, self.state_size), split(C, self.state_size), dt, rest

    def _skip(self, y: Tensor, u: Tensor) -> Tensor:
        D = self.D.reshape(self.num_heads, self.head_dim) if self.D_has_hdim else self.D[:, None]
        return (wide(y) + wide(u) * wide(D)).to(y.dtype)

    def _read(self, y: Tensor, z: Tensor) -> Tensor:
        y = y.flatten(2)
        return self.out_proj(self.norm(y, z) if self.norm is not None else (y * F.silu(wide(z))).to(y.dtype))


class Mamba2(_Grouped):
    """Mamba-2 (Dao and Gu 2024)."""

    def __init__(
        self,
        num_heads: int | None = None,
        head_dim: int = 64,
        hidden_size: int = 2048,
        state_size: int = 128,
        expand: int = 2,
        n_groups: int = 1,
        conv_kernel: int = 4,
        conv_init: float | None = None,
        use_conv_bias: bool = True,
        hidden_act: str = "silu",
        A_init_range: tuple[float, float] = (1, 16),
        D_has_hdim: bool = False,
        rmsnorm: bool = True,
        norm_before_gate: bool = False,
        dt_min: float = 0.001,
        dt_max: float = 0.1,
        dt_init_floor: float = 1e-4,
        dt_limit: tuple[float, float] = (0.0, float("inf")),
        use_bias: bool = False,
        norm_eps: float = 1e-5,
        chunk_size: int = 256,
        layer_idx: int | None = None,
        backend: str = "cuda",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._build(
            num_heads, head_dim, hidden_size, state_size, expand, n_groups, conv_kernel, conv_init, use_conv_bias,
            D_has_hdim, rmsnorm, norm_before_gate, dt_limit, (dt_min, dt_max, dt_init_floor), use_bias, norm_eps, 0,
        )  # fmt: skip
        self.layer_idx = layer_idx
        self.A_log = parameter(torch.log(torch.empty(self.num_heads).uniform_(*A_init_range)))

    def mixed(self, x: Tensor, memory: Memory | None, cu_seqlens: Any, **kwargs: Any) -> Tensor:
        z, u, B, C, dt, _ = self._parts(x, memory, cu_seqlens, 0)
        inputs = {"x": u, "dt": dt, "A": -wide(self.A_log).exp(), "B": B, "C": C}
        y = run("mamba-2", inputs, memory, output="y", settings={"skip": "none"}, cu_seqlens=cu_seqlens)
        return self._read(self._skip(y, u), z)


LEVELS = 15  # of 2^14 tokens


class LogLinearMamba2(_Grouped):
    """Mamba-2 with a memory per power of two (Guo et al. 2025)."""

    def __init__(
        self,
        num_heads: int | None = None,
        head_dim: int = 64,
        hidden_size: int = 2048,
        state_size: int = 128,
        expand: int = 2,
        n_groups: int = 1,
        conv_kernel: int = 4,
        conv_init: float | None = None,
        use_conv_bias: bool = False,
        hidden_act: str = "silu",
        rmsnorm: bool = True,
        D_has_hdim: bool = False,
        norm_before_gate: bool = False,
        chunk_size: int = 64,
        dt_limit: tuple[float, float] = (0.0, float("inf")),
        dt_min: float = 0.001,
        dt_max: float = 0.1,
        dt_init_floor: float = 1e-4,
        use_bias: bool = True,
        norm_eps: float = 1e-5,
        layer_idx: int | None = None,
        backend: str = "cuda",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._build(
            num_heads, head_dim, hidden_size, state_size, expand, n_groups, conv_kernel, conv_init, use_conv_bias,
            D_has_hdim, rmsnorm, norm_before_gate, dt_limit, (dt_min, dt_max, dt_init_floor), use_bias, norm_eps, LEVELS,
        )  # fmt: skip
        self.layer_idx = layer_idx
        self.A_log = parameter(torch.log(torch.arange(1.0, self.num_heads + 1)))
        self.L = parameter(torch.ones(self.num_heads, LEVELS))

    def mixed(self, x: Tensor, memory: Memory | None, cu_seqlens: Any, **kwargs: Any) -> Tensor:
        z, u, B, C, dt, levels = self._parts(x, memory, cu_seqlens, LEVELS)
        scales = F.softplus(wide(self.L) * wide(split(levels, LEVELS)))
        inputs = {"q": C, "k": B, "v": u * dt.unsqueeze(-1), "g": -wide(self.A_log).exp() * dt}
        inputs["level_scales"] = scales
        y = run("log-linear-attention", inputs, memory, settings={"levels": LEVELS}, cu_seqlens=cu_seqlens)
        return self._read(self._skip(y, u), z)
