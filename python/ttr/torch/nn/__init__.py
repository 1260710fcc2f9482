"""Layers as modules: those of flash-linear-attention with its constructors and parameter names, others, and any recipe.

>>> import torch, ttr.torch.nn as nn
>>> layer = nn.GatedDeltaNet(hidden_size=32, head_dim=8, num_heads=2, expand_v=1)
>>> y, _, cache = layer(torch.randn(1, 10, 32))
>>> tuple(y.shape)
(1, 10, 32)
"""

from __future__ import annotations

from ._linear import (
    DeltaNet,
    GatedDeltaNet,
    GatedDeltaProduct,
    GatedLinearAttention,
    KimiDeltaAttention,
    MesaNet,
    MultiScaleRetention,
)
from ._memory import LocalLinearAttention, Titans, TTTLinear
from ._parts import Cache, FusedRMSNormGated, Mixer, RMSNorm, RMSNormGated, ShortConvolution
from ._recipe import Recipe
from ._rwkv import RWKV6Attention, RWKV7Attention
from ._state_space import LogLinearMamba2, Mamba, Mamba2

# Those that flash-linear-attention has too.
LAYERS = (
    "DeltaNet",
    "GatedDeltaNet",
    "GatedDeltaProduct",
    "GatedLinearAttention",
    "KimiDeltaAttention",
    "LogLinearMamba2",
    "Mamba",
    "Mamba2",
    "MesaNet",
    "MultiScaleRetention",
    "RWKV6Attention",
    "RWKV7Attention",
)

__all__ = [*LAYERS, "Cache", "FusedRMSNormGated", "LocalLinearAttention", "Mixer", "RMSNorm", "RMSNormGated"]
__all__ += ["Recipe", "ShortConvolution", "TTTLinear", "Titans"]
