"""Operations under the names of flash-linear-attention, Mamba and causal-conv1d, on the CPU and with gradients.

>>> import torch
>>> from ttr.torch.ops import chunk_gated_delta_rule
>>> q, k, v = (torch.randn(1, 8, 2, 4) for _ in range(3))
>>> o, state = chunk_gated_delta_rule(q, k, v, g=-torch.rand(1, 8, 2), beta=torch.rand(1, 8, 2),
...                                   output_final_state=True, use_qk_l2norm_in_kernel=True)
>>> tuple(o.shape), tuple(state.shape)
((1, 8, 2, 4), (1, 2, 4, 4))
"""

from __future__ import annotations

from typing import Any

from . import _ops
from ._gates import gate, l2norm
from ._mamba import (
    causal_conv1d_fn,
    causal_conv1d_update,
    mamba_chunk_scan_combined,
    selective_scan_fn,
    selective_state_update,
)

_made = _ops.make_all()
globals().update(_made)

__all__ = sorted(_made) + [
    "causal_conv1d_fn",
    "causal_conv1d_update",
    "gate",
    "l2norm",
    "mamba_chunk_scan_combined",
    "selective_scan_fn",
    "selective_state_update",
]


def __getattr__(name: str) -> Any:
    if name in _ops.ABSENT:
        raise AttributeError(f"ttr has no {name}: {_ops.ABSENT[name]}")
    import difflib

    near = difflib.get_close_matches(name, __all__, 1)
    raise AttributeError(f"ttr.torch.ops has no '{name}'" + (f"; did you mean '{near[0]}'?" if near else ""))
