"""A layer on arrays in one call: the shapes of the plan are read off the arrays, and plans are kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Mapping

from ._arrays import View, view
from ._library import Error
from ._plan import Plan, State, settings_text, unknown

_MOST_PLANS = 256
_plans: "OrderedDict[Any, Plan]" = OrderedDict()
_lock = threading.Lock()


def cached_plan(layer: str, settings: Mapping[str, Any] | None = None, **options: Any) -> Plan:
    """A plan that was made before with the same arguments, or a new one; the 256 used last are kept."""
    key = (layer, settings_text(settings) if settings else "", tuple(sorted(options.items())))
    with _lock:
        found = _plans.get(key)
        if found is not None:
            _plans.move_to_end(key)
            return found
    made = Plan(layer, settings=settings, **options)
    with _lock:
        _plans[key] = made
        while len(_plans) > _MOST_PLANS:
            _plans.popitem(last=False)
    return made


_FIELDS = {"B": "batch", "H": "heads", "G": "key_heads", "K": "key_dim", "V": "value_dim"}


def read_shape(plan: Plan, views: Mapping[str, View], packed: int | None) -> dict[str, int]:
    """Batch, heads and dimensions from the extents of named arrays."""
    shape: dict[str, int] = {}
    for info in plan.inputs:
        if info.name not in views:
            continue
        letters, extents = info.shape.split(), views[info.name].shape
        if len(letters) != len(extents):
            raise Error(f"{info.name} has the shape {extents}; {plan.name} takes [{', '.join(letters)}] ({info.meaning})")
        for letter, extent in zip(letters, extents):
            field = _FIELDS.get(letter)
            if field is None or (letter == "B" and packed is not None):
                continue
            if shape.setdefault(field, extent) != extent:
                raise Error(
                    f"{info.name} has the shape {extents}, whose {letter} = {extent} is not the {shape[field]} of the "
                    f"arrays before it; {plan.name} takes [{', '.join(letters)}]"
                )
    if packed is not None:
        shape["batch"] = packed
    if "heads" not in shape and "key_heads" in shape:
        shape["heads"] = shape.pop("key_heads")
    return shape


def plan_for(layer: str, *, cu_seqlens: Any = None, settings: Mapping[str, Any] | None = None, **options: Any) -> Plan:
    """The plan that takes these arrays; options of :func:`ttr.plan` and arrays by name."""
    arrays = {n: a for n, a in options.items() if n not in _OPTIONS}
    chosen = {n: a for n, a in options.items() if n in _OPTIONS}
    small = {name: chosen[name] for name in ("kernel", "causal") if name in chosen}
    known = cached_plan(layer, settings, key_dim=4, value_dim=4, **small)
    names = [i.name for i in known.inputs]
    for name in arrays:
        if name not in names:
            raise unknown("input", name, names, known.name)
    views = {name: view(a, name) for name, a in arrays.items()}
    if "dtype" not in chosen:
        chosen["dtype"] = next((v.dtype for v in views.values() if v.dtype != "int64"), "float32")
    packed = len(cu_seqlens) - 1 if cu_seqlens is not None else None
    return cached_plan(layer, settings, **read_shape(known, views, packed), **chosen)


_OPTIONS = {"dtype", "causal", "chunk", "scale", "threads", "rewind", "kernel", "target"}


def forward(
    layer: str,
    *,
    state: State | None = None,
    outputs: Any = None,
    form: str = "best",
    cu_seqlens: Any = None,
    settings: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> Any:
    """Runs a layer or recipe on arrays, in one call.

    Parameters
    ----------
    layer : str
        A name, a name with settings, or a recipe.
    settings : dict, optional
        As in ``rls:ridge=1e-3``.
    **inputs
        Arrays by name; and `scale`, `threads`, `causal`, `chunk`, `kernel` as in :func:`ttr.plan`.

    Examples
    --------
    >>> import numpy as np, ttr
    >>> x = np.eye(3)[None, :, None, :]                   # [B, T, H, K]: three keys
    >>> o = ttr.forward("equal / linear / gd(1)", q=x, k=x, v=x[..., :2])
    >>> o[0, :, 0].tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    made = plan_for(layer, cu_seqlens=cu_seqlens, settings=settings, **inputs)
    arrays = {n: a for n, a in inputs.items() if n not in _OPTIONS}
    return made.forward(state=state, outputs=outputs, form=form, cu_seqlens=cu_seqlens, **arrays)
