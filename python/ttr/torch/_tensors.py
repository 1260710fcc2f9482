"""Which tensors a call takes: types, devices, and what it could not see because it reads memory."""

from __future__ import annotations

import sys
from typing import Any, Sequence

import torch
from torch.autograd import forward_ad

from .. import _library as l
from .._library import Error

TYPES = {torch.float32: l.F32, torch.float64: l.F64, torch.bfloat16: l.BF16, torch.float16: l.F16}


def check_tensor(name: str, t: Any) -> None:
    """What ttr cannot take, as a sentence."""
    if type(t) is torch.Tensor and t.is_cpu and t.dtype in TYPES and t.layout is torch.strided:
        return
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"{name} is a {type(t).__name__}; it must be a tensor")
    if t.device.type == "meta":
        raise Error(f"{name} is a meta tensor, which has a shape and no numbers; ttr needs them, on the CPU")
    if t.device.type != "cpu":
        raise Error(f"{name} is on {t.device}; ttr runs on the CPU: move it there with .cpu()")
    if t.layout is not torch.strided:
        raise Error(f"{name} has the layout {t.layout}; make it dense with .to_dense()")
    if t.dtype not in TYPES:
        raise Error(f"{name} has the type {t.dtype}; ttr takes {', '.join(str(d) for d in TYPES)}")


def refuse_transforms(layer: str, tensors: Sequence[tuple[str, torch.Tensor]], compiling: bool = False) -> None:
    """Forward derivatives and the transforms of torch.func, which a call that reads memory would not see."""
    if getattr(forward_ad, "_current_level", 0) >= 0:
        for name, t in tensors:
            if _is_dual(t):
                raise Error(
                    f"{name} carries a forward derivative; {layer} has gradients backwards and none forwards: "
                    "use torch.autograd.grad or backward()"
                )
    if compiling:
        return
    if "functorch" in sys.modules:  # of torch 1.13: between its transforms new tensors are wrapped as well
        tensors = [*tensors, ("a new tensor", torch.empty(0))]
    for name, t in tensors:
        try:
            t.data_ptr()
        except RuntimeError:
            raise Error(
                f"{layer} is called inside torch.func, functorch or vmap, where {name} has no memory to read; "
                "call it outside, and take gradients one by one with torch.autograd.grad or backward()"
            ) from None


def _is_dual(t: torch.Tensor) -> bool:
    try:
        return forward_ad.unpack_dual(t).tangent is not None
    except RuntimeError:  # a batch of derivatives, which cannot be unpacked
        return True
