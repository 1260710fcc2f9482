"""The two functions of `_call.py` as operators of torch, where torch can register them from Python (2.4 and above).

A fake kernel makes tensors of the right shapes and types without numbers, which is all that `torch.compile` asks for while
it traces: the graph is not broken. Debian's torch 1.13 has none of this, and calls go through the autograd function.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import torch

from . import _call

AVAILABLE = hasattr(torch, "library") and hasattr(torch.library, "custom_op")


def _bounds(cu_seqlens: Sequence[int]) -> "np.ndarray | None":
    return np.array(cu_seqlens, np.int64) if len(cu_seqlens) else None


def fake_forward(spec: "_call.Spec", tensors: Sequence[Any], bounds: "np.ndarray | None") -> list[Any]:
    """Results without numbers: shapes and types alone."""
    inputs = tensors[: len(spec.inputs)]
    plan = _call.plan_of(spec, inputs, bounds)
    shapes = _call.result_shapes(spec, plan, _call.time_of(spec, plan, inputs), bounds is not None)
    kind = _call.compute_type(dict(zip(spec.inputs, inputs)))
    results = [_call.empty(s, kind, spec, inputs[0]) for s in shapes[: len(spec.outputs)]]
    state = torch.float64 if kind is torch.float64 else torch.float32
    for name, shape in zip(spec.final, shapes[len(spec.outputs) :]):
        count = _call._part(plan, name).shape == "B"
        results.append(inputs[0].new_empty(shape, dtype=torch.int64 if count else state))
    return results


if AVAILABLE:

    def _forward(tensors: Sequence[torch.Tensor], spec: str, cu_seqlens: Sequence[int]) -> list[torch.Tensor]:
        return _call.run_forward(_call.Spec.read(spec), list(tensors), _bounds(cu_seqlens))

    def _backward(
        tensors: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor],
        spec: str,
        cu_seqlens: Sequence[int],
        wanted: Sequence[bool],
    ) -> list[torch.Tensor]:
        made = _call.run_backward(_call.Spec.read(spec), list(tensors), _bounds(cu_seqlens), list(gradients), wanted)
        return [g for g in made if g is not None]

    _forward_op = torch.library.custom_op(
        "ttr::forward", _forward, mutates_args=(), schema="(Tensor[] tensors, str spec, int[] cu_seqlens) -> Tensor[]"
    )
    _backward_op = torch.library.custom_op(
        "ttr::backward",
        _backward,
        mutates_args=(),
        schema="(Tensor[] tensors, Tensor[] gradients, str spec, int[] cu_seqlens, bool[] wanted) -> Tensor[]",
    )
    _forward_op.register_fake(lambda tensors, spec, cu: fake_forward(_call.Spec.read(spec), tensors, _bounds(cu)))
    _backward_op.register_fake(
        lambda tensors, gradients, spec, cu, wanted: [torch.empty_like(t) for t, w in zip(tensors, wanted) if w]
    )

    def _setup(ctx: Any, inputs: Any, output: Any) -> None:
        tensors, ctx.spec, ctx.cu_seqlens = inputs
        ctx.save_for_backward(*tensors)
        ctx.results = [(tuple(o.shape), o.dtype) for o in output]

    def _gradient(ctx: Any, gradients: Any) -> Any:
        tensors = list(ctx.saved_tensors)
        given = [tensors[0].new_zeros(s, dtype=d) if g is None else g for g, (s, d) in zip(gradients, ctx.results)]
        wanted = [t.requires_grad for t in tensors]
        made = iter(_backward_op(tensors, given, ctx.spec, ctx.cu_seqlens, wanted))
        return [next(made) if w else None for w in wanted], None, None

    torch.library.register_autograd("ttr::forward", _gradient, setup_context=_setup)

    def _call_forward(spec: "_call.Spec", bounds: "np.ndarray | None", tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        made: list[torch.Tensor] = _forward_op(list(tensors), spec.text(), bounds.tolist() if bounds is not None else [])
        return made

    _call.compiled.compiling = staticmethod(torch.compiler.is_compiling)
    _call.compiled.forward = staticmethod(_call_forward)
