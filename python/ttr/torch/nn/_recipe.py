"""Any recipe as a trainable module: the projections and gates that its inputs ask for are made from their table."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..._library import Error
from ..._plan import Info
from ..._run import cached_plan
from .._gates import l2norm, wide
from ._parts import FusedRMSNormGated, Memory, Mixer, RMSNorm, ShortConvolution, run

# From any number to one in the range of an input, and the bias that a gate begins with.
_RANGES: dict[str, tuple[Any, float]] = {
    "normal": (lambda t: t, 0.0),
    "unit": (lambda t: l2norm(t) if t.dim() == 4 else F.normalize(t, dim=-1), 0.0),
    "sigmoid": (torch.sigmoid, 0.0),
    "log_gate": (F.logsigmoid, 4.0),
    "factor": (torch.tanh, 2.0),
    "positive": (F.softplus, 0.0),
    "negative": (lambda t: -F.softplus(t), 0.0),
    "small": (lambda t: t / 10, 0.0),
    "rate": (lambda t: 0.1 * torch.sigmoid(t), 0.0),
    "weights": (lambda t: t, 0.0),
}


class Recipe(Mixer):
    """A recipe or a layer of ttr with everything around it that a model learns.

    Parameters
    ----------
    recipe : str
        ``"equal / linear / sgd(beta, decay)"``, or the name of a layer.
    hidden_size, num_heads, head_dim, head_v_dim : int
        Shapes; a head has hidden_size / num_heads numbers if nothing else is said.
    conv_size : int
        Taps of the short convolutions of q, k and v; 0: none.
    use_gate : bool
        Whether the output has a gate.
    normalize : bool
        Whether q and k have length one (before a feature map).
    settings : dict
        Settings of the layer.

    What the recipe calls an input of every token (beta, a gate) is a projection of the hidden states, brought into the
    range of that input; what has no axis of time (a ridge per head, a matrix of features) is a parameter.

    Examples
    --------
    >>> import torch, ttr.torch.nn as nn
    >>> layer = nn.Recipe("equal / linear / sgd(beta, decay)", hidden_size=16, num_heads=2)
    >>> y, _, _ = layer(torch.randn(2, 5, 16))
    >>> tuple(y.shape), sorted(layer.token_inputs)
    ((2, 5, 16), ['beta', 'g'])
    """

    def __init__(
        self,
        recipe: str,
        hidden_size: int,
        num_heads: int = 4,
        head_dim: int | None = None,
        head_v_dim: int | None = None,
        conv_size: int = 4,
        use_gate: bool = True,
        normalize: bool = True,
        settings: dict[str, Any] | None = None,
        norm_eps: float = 1e-5,
        layer_idx: int | None = None,
    ) -> None:
        super().__init__()
        self.hidden_size, self.layer_idx, self.num_heads = hidden_size, layer_idx, num_heads
        self.head_dim = head_dim or hidden_size // num_heads
        self.head_v_dim = head_v_dim or self.head_dim
        self.settings, self.normalize = dict(settings or {}), normalize
        plan = cached_plan(recipe, self.settings, heads=num_heads, key_dim=self.head_dim, value_dim=self.head_v_dim)
        self.recipe, self.layer, self.output = plan.recipe, recipe, plan.outputs[0].name
        self.token_inputs: dict[str, Info] = {}
        self.extents: dict[str, tuple[int, ...]] = {}
        self.projections, self.convolutions = nn.ModuleDict(), nn.ModuleDict()
        self.parameters_of_inputs = nn.ParameterDict()
        self._main: dict[str, Info] = {}
        for info in plan.inputs:
            if info.optional:
                continue
            self._make(info, plan.extents(info.shape, 1), hidden_size, conv_size)
        value = num_heads * self.head_v_dim
        if use_gate:
            self.g_proj = nn.Linear(hidden_size, value, bias=False)
            self.o_norm: nn.Module = FusedRMSNormGated(self.head_v_dim, eps=norm_eps)
        else:
            self.o_norm = RMSNorm(self.head_v_dim, eps=norm_eps)
        self.o_proj = nn.Linear(value, hidden_size, bias=False)

    def _make(self, info: Info, extents: tuple[int, ...], hidden_size: int, conv_size: int) -> None:
        letters = info.shape.split()
        if info.range not in _RANGES or not info.differentiable:
            raise Error(f"the recipe '{self.recipe}' has the input '{info.name}' ({info.meaning}), which nothing can learn")
        if letters[0] != "B":
            start = torch.randn(extents)
            if info.range == "weights":
                start = start / math.sqrt(extents[-2] if len(extents) > 1 else 1)
            self.parameters_of_inputs[info.name] = nn.Parameter(start if info.range != "positive" else torch.zeros(extents))
            self.extents[info.name] = extents
            self._kinds = {**getattr(self, "_kinds", {}), info.name: info.range}
            return
        width = math.prod(extents[1:])
        self.extents[info.name] = extents
        main = info.name in ("q", "k", "v")
        if main:
            self._main[info.name] = info
            self.projections[info.name] = nn.Linear(hidden_size, width, bias=False)
            if conv_size:
                self.convolutions[info.name] = ShortConvolution(width, conv_size)
            return
        self.token_inputs[info.name] = info
        projection = nn.Linear(hidden_size, width)
        nn.init.constant_(projection.bias, _RANGES[info.range][1])
        self.projections[info.name] = projection

    def _shaped(self, name: str, t: Tensor) -> Tensor:
        """[B, T, numbers] as the input has them; several pairs per token go behind one another."""
        extents = self.extents[name]
        return t.reshape(t.shape[0], t.shape[1] * extents[1], *extents[2:])

    def mixed(self, x: Tensor, memory: Memory | None, cu_seqlens: Any, **kwargs: Any) -> Tensor:
        inputs: dict[str, Tensor] = {}
        for name in self._main:
            t = self.projections[name](x)
            if name in self.convolutions:
                t = self.convolutions[name].remember(t, memory, name, cu_seqlens)
            t = self._shaped(name, t)
            inputs[name] = l2norm(t) if self.normalize and name in ("q", "k") else t
        for name, info in self.token_inputs.items():
            inputs[name] = _RANGES[info.range][0](wide(self._shaped(name, self.projections[name](x))))
        for name, learned in self.parameters_of_inputs.items():
            inputs[name] = _RANGES[self._kinds[name]][0](wide(learned))
        o = run(self.layer, inputs, memory, output=self.output, settings=self.settings, cu_seqlens=cu_seqlens)
        if hasattr(self, "g_proj"):
            o = self.o_norm(o, self.g_proj(x).reshape(o.shape))
        else:
            o = self.o_norm(o)
        return self.o_proj(o.flatten(2))

    def extra_repr(self) -> str:
        return f"'{self.recipe}', heads={self.num_heads}"
