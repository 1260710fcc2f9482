"""One layer of ttr as a function of torch tensors, forwards and backwards.

Everything that runs goes through `apply`: it finds the plan for the shapes at hand, hands the tensors over without a copy
and returns outputs and final states. In torch 2.4 and above the same two functions are registered with `torch.library`,
with fake kernels that only make shapes, so that `torch.compile` keeps one graph (`_registered.py`).
"""

from __future__ import annotations

import ctypes as c
import sys
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np
import torch

from .. import _library as l
from .._arrays import View, address, put
from .._library import Error, lib
from .._plan import Info, Plan, State, _scratch, arguments_of, unknown
from .._run import cached_plan, read_shape
from ._tensors import TYPES, check_tensor, refuse_transforms

_NAMES = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bfloat16", torch.float16: "float16"}


class Spec(NamedTuple):
    """Which call: hashable, and as JSON an argument of an operator of torch."""

    layer: str
    settings: tuple[tuple[str, str], ...]
    inputs: tuple[str, ...]  # names of the tensors, in order
    initial: tuple[str, ...]  # parts of the initial state, tensors behind the inputs
    outputs: tuple[str, ...]
    final: tuple[str, ...]  # parts of the final state, results behind the outputs
    scale: float | None = None
    causal: bool = True
    form: str = "best"

    def text(self) -> str:
        """One string, by nothing but joining: `torch.compile` can trace that."""
        settings = ",".join([f"{name}={value}" for name, value in self.settings])
        lists = [",".join(names) for names in (self.inputs, self.initial, self.outputs, self.final)]
        scale = "" if self.scale is None else str(self.scale)
        return "\n".join([self.layer, settings, *lists, scale, "causal" if self.causal else "", self.form])

    @staticmethod
    def read(text: str) -> "Spec":
        layer, settings, inputs, initial, outputs, final, scale, causal, form = text.split("\n")
        pairs = [pair.partition("=") for pair in settings.split(",") if pair]
        names = [tuple(part.split(",")) if part else () for part in (inputs, initial, outputs, final)]
        return Spec(
            layer,
            tuple((a, b) for a, _, b in pairs),
            names[0],
            names[1],
            names[2],
            names[3],
            float(scale) if scale else None,
            causal == "causal",
            form,
        )


def plain(t: torch.Tensor) -> torch.Tensor:
    """The tensor itself, or a copy where its memory does not say what it is."""
    return t if t.is_contiguous() and not t.is_neg() else view_of(t).owner


def view_of(t: torch.Tensor) -> View:
    if t.numel() > 1 and not any(t.stride()):  # a number seen many times: strides of zero mean none given
        t = t.contiguous()
    if t.is_neg() or t.is_conj():
        t = t.resolve_neg().resolve_conj()
    return View(t.data_ptr(), TYPES[t.dtype], tuple(t.shape), tuple(t.stride()), t)


class _Shaped(NamedTuple):
    """Enough of a view to read shapes from."""

    shape: tuple[int, ...]


def _reference(spec: Spec) -> Plan:
    """A small plan of the layer, for its tables."""
    return cached_plan(spec.layer, dict(spec.settings), key_dim=4, value_dim=4, causal=spec.causal)


def compute_type(tensors: Mapping[str, torch.Tensor]) -> torch.dtype:
    """The type of the plan: that of the tensors, of which float32 may stand beside half ones (gates)."""
    found = {t.dtype: name for name, t in tensors.items()}
    half = [d for d in found if d in (torch.bfloat16, torch.float16)]
    if len(half) == 2 or (torch.float64 in found and len(found) > 1):
        kinds = ", ".join(f"{name} has {str(dtype).split('.')[-1]}" for dtype, name in found.items())
        raise Error(f"the tensors of a call have one type, float32 beside a half one: {kinds}; convert them with .to()")
    return half[0] if half else next(iter(found), torch.float32)


def plan_of(spec: Spec, tensors: Sequence[torch.Tensor], bounds: np.ndarray | None) -> Plan:
    named = dict(zip(spec.inputs, tensors))
    reference = _reference(spec)
    known = {i.name for i in reference.inputs}
    for name in named:
        if name not in known:
            raise unknown("input", name, sorted(known), reference.name)
    shapes: Any = {name: _Shaped(tuple(t.shape)) for name, t in named.items()}
    packed = len(bounds) - 1 if bounds is not None else None
    if packed is not None:
        for info in reference.inputs:
            if info.shape.startswith("B ") and info.name in named and named[info.name].shape[0] != 1:
                raise Error(
                    f"{info.name} has the batch {named[info.name].shape[0]}; with cu_seqlens the sequences lie one after "
                    "another in a batch of 1"
                )
    shape = read_shape(reference, shapes, packed)
    return cached_plan(
        spec.layer,
        dict(spec.settings),
        dtype=_NAMES[compute_type(named)],
        scale=spec.scale,
        causal=spec.causal,
        threads=torch.get_num_threads(),
        **shape,
    )


def result_shapes(spec: Spec, plan: Plan, time: int, packed: bool) -> list[tuple[int, ...]]:
    """Shapes of outputs and final states: what a fake kernel makes."""
    shapes = []
    for name in spec.outputs:
        info = next(i for i in plan.outputs if i.name == name)
        extents = list(plan.extents(info.shape, time))
        if packed and info.shape.split()[0] == "B":
            extents[0] = 1
        shapes.append(tuple(extents))
    shapes += [plan.extents(_part(plan, name).shape, time) for name in spec.final]
    return shapes


def _part(plan: Plan, name: str) -> Info:
    for info in plan.states:
        if info.name == name:
            return info
    raise unknown("part", name, [i.name for i in plan.states], f"the state of {plan.name}")


def time_of(spec: Spec, plan: Plan, tensors: Sequence[torch.Tensor]) -> int:
    views: Any = {name: _Shaped(tuple(t.shape)) for name, t in zip(spec.inputs, tensors)}
    return plan._time(views)


def room_of(spec: Spec, plan: Plan, tensors: Sequence[torch.Tensor]) -> int:
    views: Any = {name: _Shaped(tuple(t.shape)) for name, t in zip(spec.inputs, tensors)}
    return plan._pairs(views)


def _tensors(plan: Plan, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> tuple[Any, list[View]]:
    views = [view_of(t) for t in tensors]
    structs = (l.Tensor * max(len(views), 1))()
    for struct, name, v in zip(structs, names, views):
        put(struct, plan._names[name], v)
    return structs, views


def _references(parts: dict[str, np.ndarray]) -> int:
    """The most references to one of the arrays."""
    return max((sys.getrefcount(part) for part in parts.values()), default=0)


_ALONE = _references({"S": np.empty(1)})  # what it says of an array that nobody else has


class _Spare:
    """States of a plan that nobody uses now: a call takes one and gives it back, and allocates nothing.

    A final state is handed out where it lies, without a copy, as a tensor on the memory of the state; as long as somebody
    has that tensor, the state is not taken again.
    """

    def __init__(self, plan: Plan, tokens: int) -> None:
        pool = plan.__dict__.setdefault("_spare", [])
        self.pool, found, lent = pool, None, []
        while pool and found is None:
            state = pool.pop()  # one operation of the interpreter: threads do not meet in it
            if plan.keeps_pairs and state.capacity() < tokens:
                continue
            if _references(state._views) > _ALONE:
                lent.append(state)
            else:
                found = state
        pool.extend(lent)
        self.state: State = found or plan.state(tokens)

    def __enter__(self) -> State:
        return self.state

    def __exit__(self, *_: Any) -> None:
        if len(self.pool) < 4:
            self.pool.append(self.state)

    def lend(self, name: str) -> torch.Tensor:
        """A part as a tensor: on the memory of the state, or a copy where the state is a list that grows."""
        part = torch.from_numpy(self.state[name])
        return part.clone() if self.state.plan.keeps_pairs or not part.is_contiguous() else part


def _fill(state: State, spec: Spec, parts: Sequence[torch.Tensor]) -> None:
    """The initial state: fresh, with the parts that are given."""
    if parts and state.plan.numbers <= set(spec.initial):  # all of it is given: there is nothing to clear
        state["tokens"][...] = 0
    else:
        state.reset()
    for name, t in zip(spec.initial, parts):
        into = state[name]
        if tuple(t.shape) != into.shape:
            raise Error(
                f"the initial state {name} has the shape {tuple(t.shape)}; {state.plan.name} has {into.shape} "
                f"[{_part(state.plan, name).shape}]"
            )
        torch.from_numpy(into).copy_(t.detach() if t.requires_grad else t)


def empty(shape: tuple[int, ...], kind: torch.dtype, spec: Spec, first: torch.Tensor) -> torch.Tensor:
    """An output; that of an operation on one tensor x lies in memory as x does."""
    if spec.inputs[0] == "x" and tuple(first.shape) == shape and not first.is_contiguous():
        return torch.empty_like(first, dtype=kind)
    return first.new_empty(shape, dtype=kind)


class _Bound:
    """What a call needs that depends on shapes, strides and types alone, and a prepared call of the library."""

    def __init__(self, spec: Spec, inputs: Sequence[torch.Tensor]) -> None:
        self.plan = plan = plan_of(spec, inputs, None)
        self.room = room_of(spec, plan, inputs)
        self.kind = compute_type(dict(zip(spec.inputs, inputs)))
        self.shapes = result_shapes(spec, plan, time_of(spec, plan, inputs), False)[: len(spec.outputs)]
        self.input_places = [next(n for n, i in enumerate(plan.inputs) if i.name == name) for name in spec.inputs]
        self.output_places = [next(n for n, i in enumerate(plan.outputs) if i.name == name) for name in spec.outputs]
        self.form = l.FORMS.index(spec.form)
        self.work: dict[int, int] = {}
        self.spare: list[tuple[Any, Any, Any]] = []  # prepared calls that nobody uses now, each with room for pointers

    def prepared(self, spec: Spec, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> tuple[Any, Any, Any]:
        try:
            return self.spare.pop()
        except IndexError:
            pass
        read, _a = _tensors(self.plan, spec.inputs, inputs)
        written, _b = _tensors(self.plan, spec.outputs, results)
        arguments = arguments_of(read, inputs, written, results, self.form)
        handle = _Handle()
        l.check(lib.ttr_call_create(self.plan._handle, c.byref(arguments), c.byref(handle.pointer)))
        return handle, (c.c_void_p * len(self.plan.inputs))(), (c.c_void_p * len(self.plan.outputs))()

    def workspace(self, state: State) -> np.ndarray:
        room = self.plan._room_of(state, self.room)
        size = self.work.get(room)
        if size is None:
            size = self.work[room] = self.plan._footprint(room, self.form).workspace
        return _scratch.of(size)


class _Handle:
    def __init__(self) -> None:
        self.pointer = c.c_void_p()

    def __del__(self) -> None:
        if self.pointer:
            lib.ttr_call_destroy(self.pointer)


_MOST_BOUND = 512
_bound: dict[Any, _Bound] = {}


def _key(spec: Spec, tensors: Sequence[torch.Tensor]) -> Any:
    return (spec, torch.get_num_threads(), *[(t.shape, t.stride(), t.dtype) for t in tensors])


def _bound_of(spec: Spec, inputs: Sequence[torch.Tensor]) -> _Bound:
    key = _key(spec, inputs)
    bound = _bound.get(key)
    if bound is None:
        bound = _Bound(spec, inputs)
        if len(_bound) >= _MOST_BOUND:
            _bound.clear()
        _bound[key] = bound
    return bound


def _run_bound(
    bound: _Bound, spec: Spec, inputs: Sequence[torch.Tensor], state: State, saved: torch.Tensor | None = None
) -> list[torch.Tensor] | None:
    """The outputs of a prepared call, which goes on from the state; None if it fails."""
    results = [empty(s, bound.kind, spec, inputs[0]) for s in bound.shapes]
    call, reads, writes = prepared = bound.prepared(spec, inputs, results)
    for place, t in zip(bound.input_places, inputs):
        reads[place] = t.data_ptr()
    for place, t in zip(bound.output_places, results):
        writes[place] = t.data_ptr()
    work = bound.workspace(state)
    memory = (state._address, state._bytes.size, address(work), work.size)
    if saved is None:
        status = lib.ttr_call_run(call.pointer, reads, writes, *memory)
    else:
        status = lib.ttr_call_run_saving(call.pointer, reads, writes, *memory, saved.data_ptr(), saved.numel())
    if status != l.OK:
        return None
    bound.spare.append(prepared)
    return results


def room_for_backward(spec: Spec, tensors: Sequence[torch.Tensor], bounds: np.ndarray | None) -> torch.Tensor | None:
    """Where a forward leaves what its backward would have to find again; None: it leaves nothing."""
    inputs = [plain(t) for t in tensors[: len(spec.inputs)]]
    plan = plan_of(spec, inputs, bounds)
    size = plan._footprint(room_of(spec, plan, inputs), l.FORMS.index(spec.form)).saved
    return torch.empty(size, dtype=torch.uint8) if size else None


def run_forward(
    spec: Spec, tensors: Sequence[torch.Tensor], bounds: np.ndarray | None, saved: torch.Tensor | None = None
) -> list[torch.Tensor]:
    inputs, parts = tensors[: len(spec.inputs)], tensors[len(spec.inputs) :]
    if bounds is not None:
        return _run_packed(spec, inputs, parts, bounds, saved)
    inputs = [plain(t) for t in inputs]
    bound = _bound_of(spec, inputs)
    spare = _Spare(bound.plan, bound.room)
    with spare as state:
        _fill(state, spec, parts)
        results = _run_bound(bound, spec, inputs, state, saved)
        if results is None:  # again with names, for a sentence
            return _run_packed(spec, inputs, parts, None, saved)
        return results + [spare.lend(name) for name in spec.final]


def _run_packed(
    spec: Spec,
    inputs: Sequence[torch.Tensor],
    parts: Sequence[torch.Tensor],
    bounds: np.ndarray | None,
    saved: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    """By names, with bounds of packed sequences."""
    plan = plan_of(spec, inputs, bounds)
    time, room = time_of(spec, plan, inputs), room_of(spec, plan, inputs)
    shapes = result_shapes(spec, plan, time, bounds is not None)
    kind = compute_type(dict(zip(spec.inputs, inputs)))
    results = [empty(s, kind, spec, inputs[0]) for s in shapes[: len(spec.outputs)]]
    form = l.FORMS.index(spec.form)
    spare = _Spare(plan, room)
    with spare as state:
        _fill(state, spec, parts)
        read, _kept = _tensors(plan, spec.inputs, inputs)
        written, _kept_too = _tensors(plan, spec.outputs, results)
        arguments = arguments_of(read, inputs, written, results, form, bounds)
        _give_room(arguments, saved)
        bytes_ = plan._footprint(plan._room_of(state, room), form).workspace
        plan._call(lib.ttr_forward, arguments, state, bytes_, time)
        results += [spare.lend(name) for name in spec.final]
    return results


def _give_room(arguments: l.Arguments, saved: torch.Tensor | None) -> None:
    if saved is not None:
        arguments.saved, arguments.saved_bytes = saved.data_ptr(), saved.numel()


def run_backward(
    spec: Spec,
    tensors: Sequence[torch.Tensor],
    bounds: np.ndarray | None,
    gradients: Sequence[torch.Tensor | None],
    wanted: Sequence[bool],
    saved: torch.Tensor | None = None,
) -> list[torch.Tensor | None]:
    """Gradients of inputs and initial parts, None where not wanted."""
    inputs, parts = tensors[: len(spec.inputs)], tensors[len(spec.inputs) :]
    plan = plan_of(spec, inputs, bounds)
    room, form = room_of(spec, plan, inputs), l.FORMS.index(spec.form)
    count = len(spec.outputs)
    d_outputs = [(n, g) for n, g in zip(spec.outputs, gradients[:count]) if g is not None]
    d_final = [(n, g) for n, g in zip(spec.final, gradients[count:]) if g is not None]
    names = [n for n, w in zip(spec.inputs, wanted) if w]
    made = {n: torch.empty_like(t) for n, t, w in zip(spec.inputs, inputs, wanted) if w}  # in memory as they are
    want_initial = any(wanted[len(spec.inputs) :])
    with _Spare(plan, room) as state, _Spare(plan, room) as d_state, _Spare(plan, room) as d_start:
        _fill(state, spec, parts)
        if d_final:
            d_state.zero()
            for name, g in d_final:
                torch.from_numpy(d_state[name]).copy_(g)
        if want_initial:
            d_start.zero()
        read, _a = _tensors(plan, spec.inputs, inputs)
        written, _b = _tensors(plan, names, [made[n] for n in names])
        asked, _c = _tensors(plan, [n for n, _ in d_outputs], [g for _, g in d_outputs])
        work = _scratch.of(plan._footprint(plan._room_of(state, room), form).backward)
        arguments = arguments_of(read, inputs, None, (), form, bounds)
        _give_room(arguments, saved)
        arguments.state, arguments.state_bytes = state._address, state._bytes.size
        arguments.workspace, arguments.workspace_bytes = address(work), work.size
        struct = l.Gradients(
            d_outputs=c.addressof(asked),
            d_output_count=len(d_outputs),
            d_inputs=c.addressof(written),
            d_input_count=len(names),
            d_final=d_state._address if d_final else None,
            d_final_bytes=d_state._bytes.size if d_final else 0,
            d_initial=d_start._address if want_initial else None,
            d_initial_bytes=d_start._bytes.size if want_initial else 0,
        )
        status = lib.ttr_backward(plan._handle, c.byref(arguments), c.byref(struct))
        if status != l.OK:
            plan._explain(status, arguments, struct)
        answers: list[torch.Tensor | None] = [made.get(n) for n in spec.inputs]
        for name, t, w in zip(spec.initial, parts, wanted[len(spec.inputs) :]):
            answers.append(torch.from_numpy(d_start[name]).to(t.dtype, copy=True) if w else None)
    return answers


class _Once(torch.autograd.Function):
    """Gradients as they are; who differentiates them is told that there is no second derivative.

    By the inputs, or by the gradients that they were made of, as `torch.autograd.functional.jvp` does.
    """

    @staticmethod
    def forward(ctx: Any, name: str, count: int, *tensors: torch.Tensor) -> Any:
        ctx.name = name
        return tuple(t.view_as(t) for t in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(
            f"{ctx.name} has a gradient and no second one: ttr cannot differentiate it twice, as "
            "torch.autograd.functional.jvp and hvp would"
        )


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, spec: Spec, bounds: np.ndarray | None, *tensors: torch.Tensor) -> Any:
        ctx.spec, ctx.bounds = spec, bounds
        # A saved tensor like the inputs: checkpointing drops it with them, and fills it again with the second forward.
        room = room_for_backward(spec, tensors, bounds)
        ctx.save_for_backward(*tensors, *(() if room is None else (room,)))
        ctx.count = len(tensors)
        ctx.set_materialize_grads(False)
        return tuple(run_forward(spec, tensors, bounds, room))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        wanted, all_saved = ctx.needs_input_grad[2:], ctx.saved_tensors
        saved, room = all_saved[: ctx.count], all_saved[ctx.count] if len(all_saved) > ctx.count else None
        given = [(f"gradient {n} of the results", g) for n, g in enumerate(gradients) if g is not None]
        refuse_transforms(ctx.spec.layer, given)
        with torch.no_grad():
            made = run_backward(ctx.spec, saved, ctx.bounds, gradients, wanted, room)
        if torch.is_grad_enabled():  # create_graph=True
            real = [g for g in made if g is not None]
            read = [t for t in (*saved, *(g for _, g in given)) if t.requires_grad]
            marked = iter(_Once.apply(ctx.spec.layer, len(real), *real, *read))
            made = [next(marked) if g is not None else None for g in made]
        return (None, None, *made)


def bounds_of(cu_seqlens: Any) -> np.ndarray | None:
    if cu_seqlens is None:
        return None
    if isinstance(cu_seqlens, torch.Tensor):
        if cu_seqlens.device.type != "cpu":
            raise Error(f"cu_seqlens is on {cu_seqlens.device}; ttr runs on the CPU: move it there with .cpu()")
        if cu_seqlens.dtype not in (torch.int32, torch.int64):
            raise Error(f"cu_seqlens has the type {cu_seqlens.dtype}; it holds int32 or int64 bounds of sequences")
        cu_seqlens = cu_seqlens.numpy()
    bounds = np.ascontiguousarray(cu_seqlens, dtype=np.int64)
    if bounds.ndim != 1 or bounds.size < 2 or bounds[0] != 0 or (np.diff(bounds) < 0).any():
        raise Error(f"cu_seqlens is {bounds.tolist()}; it starts at 0, does not fall and has one more entry than sequences")
    return bounds


def apply(
    layer: str,
    inputs: Mapping[str, torch.Tensor],
    *,
    initial: Mapping[str, torch.Tensor] | None = None,
    outputs: Sequence[str] = ("o",),
    final: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    scale: float | None = None,
    causal: bool = True,
    form: str = "best",
    cu_seqlens: Any = None,
) -> tuple[torch.Tensor, ...]:
    """Runs a layer or recipe on tensors, with gradients: outputs, then the parts of the final state asked for.

    >>> import torch, ttr.torch
    >>> q, k, v = (torch.ones(1, 2, 1, 3, requires_grad=True) for _ in range(3))
    >>> o, S = ttr.torch.apply("linear-attention", {"q": q, "k": k, "v": v}, final=["S"], scale=1.0)
    >>> o[0, :, 0, 0].tolist(), tuple(S.shape)
    ([3.0, 6.0], (1, 1, 3, 3))
    """
    initial = initial or {}
    for name, t in inputs.items():
        check_tensor(name, t)
    for name, t in initial.items():
        if not (isinstance(t, torch.Tensor) and t.is_cpu and t.dtype == torch.int64):  # counts of tokens
            check_tensor(name, t)
    refuse_transforms(layer, [*inputs.items(), *initial.items()], compiled.compiling())
    spec = Spec(
        layer,
        tuple((name, str(value)) for name, value in (settings or {}).items()),
        tuple(inputs),
        tuple(initial),
        tuple(outputs),
        tuple(final),
        None if scale is None else float(scale),
        causal,
        form,
    )
    tensors = (*inputs.values(), *initial.values())
    if compiled.compiling():
        return tuple(compiled.forward(spec, bounds_of(cu_seqlens), tensors))
    bounds = bounds_of(cu_seqlens)
    if not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
        return tuple(run_forward(spec, tensors, bounds))
    reference = _reference(spec)
    _refuse_gradients(reference.inputs, inputs, reference.name)
    _refuse_gradients(reference.states, initial, f"the state of {reference.name}")
    results: tuple[torch.Tensor, ...] = _Apply.apply(spec, bounds, *tensors)
    return results


class compiled:
    """How a call is made while `torch.compile` traces it; `_registered.py` fills this in where torch can do that."""

    compiling: Any = staticmethod(lambda: False)
    forward: Any = None


def run_state(
    layer: str,
    inputs: Mapping[str, torch.Tensor],
    state: State | None,
    *,
    output: str = "o",
    settings: Mapping[str, Any] | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, State]:
    """Goes on from a state that stays between calls, for decoding: the output and the state, without gradients.

    Any layer, also one whose state is a list that grows.
    """
    if torch.is_grad_enabled() and any(t.requires_grad for t in inputs.values()):
        raise Error("a cache is for decoding and has no gradients; call it under torch.no_grad(), or without use_cache")
    for name, t in inputs.items():
        check_tensor(name, t)
    refuse_transforms(layer, [*inputs.items()])
    pairs = tuple((name, str(value)) for name, value in (settings or {}).items())
    spec = Spec(layer, pairs, tuple(inputs), (), (output,), (), None if scale is None else float(scale))
    tensors = [plain(t) for t in inputs.values()]
    bound = _bound_of(spec, tensors)
    plan = bound.plan
    if state is None:
        state = plan.state(bound.room)
    elif state.plan is not plan and (state.plan.batch, state.plan.name) != (plan.batch, plan.name):
        raise Error(f"the cache is of {state.plan!r}, the call of {plan!r}; begin with a new cache")
    if not plan.keeps_pairs:  # a list may have no room left, which the call by names makes
        results = _run_bound(bound, spec, tensors, state)
        if results is not None:
            return results[0], state
    result = torch.empty(bound.shapes[0], dtype=bound.kind)
    read, _kept = _tensors(plan, spec.inputs, tensors)
    written, _kept_too = _tensors(plan, spec.outputs, [result])
    arguments = arguments_of(read, tensors, written, [result], 0)
    bytes_ = plan._footprint(plan._room_of(state, bound.room), 0).workspace
    plan._call(lib.ttr_forward, arguments, state, bytes_, time_of(spec, plan, tensors))
    return result, state


def _refuse_gradients(infos: Sequence[Info], given: Mapping[str, torch.Tensor], of: str) -> None:
    for info in infos:
        if info.name in given and given[info.name].requires_grad and not info.differentiable:
            raise Error(f"{info.name} of {of} has no gradient, and the tensor given requires one; pass it detached")
