"""Plans, states and prepared calls on arrays."""

from __future__ import annotations

import ctypes as c
import difflib
import os
import threading
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

import numpy as np

from . import _library as l
from ._arrays import View, address, aligned, put, view
from ._library import Error, UnknownName, check, lib

_DTYPES = {"float32": l.F32, "float64": l.F64, "float16": l.F16, "bfloat16": l.BF16}


class Info(NamedTuple):
    """An input, an output or a part of the state."""

    name: str
    shape: str
    meaning: str
    range: str
    differentiable: bool
    optional: bool = False


def _infos(rows: Iterable[Mapping[str, Any]]) -> tuple[Info, ...]:
    return tuple(Info(**row) for row in rows)


def unknown(what: str, name: str, known: Iterable[str], of: str) -> UnknownName:
    known = list(known)
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return UnknownName(f"there is no {what} '{name}' of {of}; {hint}it has {', '.join(known) or 'none'}", what)


def dtype_name(dtype: Any) -> str:
    """float32, float64, float16 or bfloat16 from a name, a numpy or a torch dtype."""
    name = str(dtype).rsplit(".", 1)[-1] if not isinstance(dtype, (type, np.dtype)) else np.dtype(dtype).name
    if name not in _DTYPES:
        raise Error(f"there is no type '{name}' here; ttr computes in float32 and float64 and takes float16 and bfloat16")
    return name


class _Scratch(threading.local):
    """Workspace of this thread: grows, is never cleared."""

    def __init__(self) -> None:
        self.bytes = aligned(0)

    def of(self, size: int) -> np.ndarray:
        if self.bytes.size < size:
            self.bytes = aligned(size)
        return self.bytes


_scratch = _Scratch()


def settings_text(settings: Mapping[str, Any]) -> str:
    def word(value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        return repr(float(value)) if isinstance(value, float) else str(value)

    return ",".join(f"{name}={word(value)}" for name, value in settings.items())


class Plan:
    """A layer or recipe for given shapes: plan once, run many times.

    Made by :func:`ttr.plan`. A plan may be used by several threads at once, each with states of its own; calls release
    the lock of the interpreter.

    Examples
    --------
    >>> import numpy as np, ttr
    >>> plan = ttr.plan("deltanet", heads=2, key_dim=4, value_dim=3, dtype="float64")
    >>> [i.name for i in plan.inputs]
    ['q', 'k', 'v', 'beta']
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = (rng.standard_normal((1, 5, 2, n)) for n in (4, 4, 3))
    >>> k /= np.linalg.norm(k, axis=-1, keepdims=True)
    >>> state = plan.state()
    >>> o = plan.forward(q=q, k=k, v=v, beta=np.ones((1, 5, 2)), state=state)
    >>> o.shape, state.tokens_seen()
    ((1, 5, 2, 3), 5)
    """

    def __init__(
        self,
        layer: str,
        *,
        batch: int = 1,
        heads: int = 1,
        key_heads: int = 0,
        key_dim: int = 1,
        value_dim: int = 1,
        dtype: Any = "float32",
        causal: bool = True,
        chunk: int = 0,
        scale: float | None = None,
        threads: int = 1,
        rewind: int = 0,
        settings: Mapping[str, Any] | None = None,
        kernel: str | None = None,
        target: str | None = None,
    ) -> None:
        self._handle = None
        self.dtype = dtype_name(dtype)
        kind = _DTYPES[self.dtype]
        half = kind in (l.F16, l.BF16)
        shape = l.Shape(batch=batch, heads=heads, key_heads=key_heads, key_dim=key_dim, value_dim=value_dim)
        options = l.Options(
            type=l.F32 if half else kind,
            half_tensors=kind if half else 0,
            whole=not causal,
            chunk=chunk,
            threads=-1 if threads == 0 else threads,
            rewind=rewind,
            has_scale=scale is not None,
            scale=scale or 0.0,
            settings=settings_text(settings).encode() if settings else None,
            kernel=kernel.encode() if kernel else None,
            target=target.encode() if target else None,
        )
        handle = c.c_void_p()
        check(lib.ttr_plan_create(layer.encode(), c.byref(shape), c.byref(options), c.byref(handle)))
        self._handle = handle
        about = l.ask(lib.ttr_plan_describe, handle)
        self.name: str = about["name"]
        self.recipe: str = about["recipe"]
        self.kernel: str = about["kernel"]
        self.scale: float = about["scale"]
        self.batch, self.heads = int(about["batch"]), int(about["heads"])
        self.key_heads, self.key_dim, self.value_dim = about["key_heads"], about["key_dim"], about["value_dim"]
        self.causal, self.threads = causal, threads
        self.inputs, self.outputs = _infos(about["inputs"]), _infos(about["outputs"])
        self.states = _infos(about["states"])
        # How it forgets: a pair of age n has the weight factor^n, and none after `window` pairs (0: no window). None where
        # gates or the query decide.
        forgetting = about["forgetting"]
        self.forgetting: tuple[float, int] | None = (forgetting[0], forgetting[1]) if forgetting else None
        self.forms: tuple[str, ...] = tuple(about["forms"])
        self.absent_forms: tuple[str, ...] = tuple(about["absent_forms"])
        self._names = {i.name: i.name.encode() for i in self.inputs + self.outputs}
        self._input_names = {i.name for i in self.inputs}
        self._output_names = {i.name for i in self.outputs}
        # Whether the state is a list of pairs, which grows.
        self.keeps_pairs = any(i.name == "kept" for i in self.states)
        # Parts that are numbers; "?" where there are counts besides the number of tokens, which only reset makes.
        counts = [i.name for i in self.states if i.shape == "B"]
        self.numbers = {i.name for i in self.states if i.shape != "B"} | ({"?"} if counts != ["tokens"] else set())
        self._room: dict[tuple[int, int], l.Footprint] = {}

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.ttr_plan_destroy(self._handle)

    def __repr__(self) -> str:
        return (
            f"<ttr.Plan {self.name}: batch {self.batch}, heads {self.heads}, K {self.key_dim}, V {self.value_dim}, "
            f"{self.dtype}, {self.kernel}>"
        )

    # --- what it needs -------------------------------------------------------------------------------------------

    @property
    def state_dtype(self) -> str:
        """The type of states and arithmetic."""
        return "float64" if self.dtype == "float64" else "float32"


    def footprint(self, time: int, form: str = "best") -> dict[str, int]:
        """Bytes of state, workspace and backward for calls of up to `time` tokens, and what a forward can leave for its
        backward."""
        f = self._footprint(time, _form(form))
        return {"state": f.state, "workspace": f.workspace, "backward": f.backward, "saved": f.saved}

    def room(self, time: int, form: str = "best") -> Any:
        """An array in which a forward of up to `time` tokens leaves what its backward would have to find again; None if it
        leaves nothing."""
        bytes_ = self._footprint(time, _form(form)).saved
        return aligned(bytes_) if bytes_ else None

    def _footprint(self, time: int, form: int) -> l.Footprint:
        found = self._room.get((time, form))
        if found is None:
            found = l.Footprint()
            check(lib.ttr_plan_footprint(self._handle, time, form, c.byref(found)))
            if len(self._room) < 1000:
                self._room[time, form] = found
        return found

    def extents(self, shape: str, time: int) -> tuple[int, ...]:
        """Extents of an input, output or part of the state, by its letters (``"B T H V"``)."""
        room = (c.c_int64 * l.MAX_RANK)()
        count = lib.ttr_plan_extents(self._handle, shape.encode(), time, room)
        return tuple(room[i] for i in range(count))

    def best_form(self, time: int) -> str:
        return l.FORMS[lib.ttr_plan_best_form(self._handle, time)]

    def state(self, tokens: int = 256) -> "State":
        """A fresh state, with room for `tokens` pairs where pairs are kept (it grows by itself)."""
        return State(self, tokens)

    # --- calls ---------------------------------------------------------------------------------------------------

    def _bind(self, arrays: Mapping[str, Any], known: set[str], what: str) -> tuple[Any, list[View]]:
        for name in arrays:
            if name not in known:
                raise unknown(what, name, sorted(known), self.name)
        views = [view(a, name) for name, a in arrays.items()]
        tensors = (l.Tensor * max(len(views), 1))()
        for t, name, v in zip(tensors, arrays, views):
            put(t, self._names[name], v)
        return tensors, views

    def _time(self, views: Mapping[str, View]) -> int:
        """Tokens of a call: the axis T of some input."""
        for info in self.inputs:
            letters = info.shape.split()
            if "T" in letters and info.name in views and len(views[info.name].shape) == len(letters):
                return views[info.name].shape[letters.index("T")]
        return 1

    def _pairs(self, views: Mapping[str, View]) -> int:
        most = self._time(views)
        if not self.causal:
            for info in self.inputs:
                letters = info.shape.split()
                if "P" in letters and info.name in views and len(views[info.name].shape) == len(letters):
                    most = max(most, views[info.name].shape[letters.index("P")])
        return most

    def _fresh_outputs(
        self, wanted: Sequence[str] | None, out: Any, time: int, packed: bool, views: Mapping[str, View]
    ) -> dict[str, np.ndarray]:
        names = [self.outputs[0].name] if wanted is None else list(wanted)
        if out is not None:
            given = {names[0]: out} if not isinstance(out, Mapping) else dict(out)
            return {**given, **self._fresh_outputs([n for n in names if n not in given], None, time, packed, views)}
        made = {}
        for name in names:
            info = next((i for i in self.outputs if i.name == name), None)
            if info is None:
                raise unknown("output", name, sorted(self._output_names), self.name)
            extents = list(self.extents(info.shape, time))
            if packed and info.shape.split()[0] == "B":
                extents[0] = 1
            made[name] = np.empty(extents, self._output_dtype(views))
        return made

    def _output_dtype(self, views: Mapping[str, View]) -> Any:
        if self.dtype == "bfloat16":  # numpy has none: where the caller's arrays have it, theirs
            for v in views.values():
                if isinstance(v.owner, np.ndarray) and v.owner.dtype.name == "bfloat16":
                    return v.owner.dtype
            return np.float32
        return np.dtype(self.dtype)

    def forward(
        self,
        *,
        state: "State | None" = None,
        outputs: Sequence[str] | None = None,
        out: Any = None,
        form: str = "best",
        cu_seqlens: Any = None,
        saved: Any = None,
        **inputs: Any,
    ) -> Any:
        """Runs tokens through the layer.

        Parameters
        ----------
        state : State, optional
            Where to go on from; it then holds the final state. Without one: a fresh one, which is thrown away.
        outputs : names, optional
            Which outputs to compute, as a tuple of arrays. Without it the first one, as an array.
        out : array, or dict of arrays, optional
            Where to write.
        form : {"best", "recurrent", "chunk", "parallel", "scan", "step"}
        cu_seqlens : int64 array, optional
            Bounds of packed sequences; the tensors then have B = 1.
        saved : uint8 array, optional
            ``plan.room(time)``: gets what :meth:`backward` of the same call, given it too, need not find again.
        **inputs : arrays
            By the names of ``plan.inputs``; strides are respected, nothing is copied.
        """
        tensors, views = self._bind(inputs, self._input_names, "input")
        named = dict(zip(inputs, views))
        time, bounds = self._time(named), _bounds(cu_seqlens, self.batch)
        results = self._fresh_outputs(outputs, out, time, bounds is not None, named)
        written, out_views = self._bind(results, self._output_names, "output")
        kept = state if state is not None else self.state(self._pairs(named))
        number = _form(form)
        arguments = arguments_of(tensors, views, written, out_views, number, bounds)
        if saved is not None:
            arguments.saved, arguments.saved_bytes = address(saved), saved.nbytes
        bytes_ = self._footprint(self._room_of(kept, self._pairs(named)), number).workspace
        self._call(lib.ttr_step if form == "step" else lib.ttr_forward, arguments, kept, bytes_, time)
        answers = tuple(results.values())
        return answers[0] if outputs is None else answers

    def step(self, *, state: "State", outputs: Sequence[str] | None = None, out: Any = None, **inputs: Any) -> Any:
        """One token: as :meth:`forward` with tensors of T = 1."""
        return self.forward(state=state, outputs=outputs, out=out, form="step", **inputs)

    def _room_of(self, state: "State", tokens: int) -> int:
        """Tokens that a call has to do with: its own, and those that the state keeps."""
        return tokens + max(state.capacity(), 0) if self.keeps_pairs else tokens

    def _call(self, function: Any, arguments: l.Arguments, state: "State", bytes_: int, time: int) -> None:
        work = _scratch.of(bytes_)
        arguments.workspace, arguments.workspace_bytes = address(work), work.size
        arguments.state, arguments.state_bytes = state._address, state._bytes.size
        status = function(self._handle, c.byref(arguments))
        if status == l.STATE_FULL:
            state.grow(2 * (state.capacity() + time))
            bytes_ = max(bytes_, self._footprint(self._room_of(state, time), arguments.form).workspace)
            work = _scratch.of(bytes_)
            arguments.workspace, arguments.workspace_bytes = address(work), work.size
            arguments.state, arguments.state_bytes = state._address, state._bytes.size
            status = function(self._handle, c.byref(arguments))
        if status != l.OK:
            self._explain(status, arguments, None)

    def _explain(self, status: int, arguments: l.Arguments, gradients: l.Gradients | None) -> None:
        if status not in (l.ERROR, l.BAD_ARGUMENT):
            lib.ttr_diagnose(self._handle, c.byref(arguments), c.byref(gradients) if gradients else None)
        l.fail(status)

    def backward(
        self,
        *,
        d_outputs: Mapping[str, Any],
        wrt: Sequence[str] | None = None,
        state: "State | None" = None,
        d_final: "State | None" = None,
        want_initial: bool = False,
        out: Mapping[str, Any] | None = None,
        form: str = "best",
        cu_seqlens: Any = None,
        saved: Any = None,
        **inputs: Any,
    ) -> dict[str, Any]:
        """Gradients of ``sum <d_output, output> + <d_final, final state>``.

        Parameters
        ----------
        d_outputs : dict of arrays
            The gradient of each output, by name.
        wrt : names, optional
            Inputs to differentiate by; without it all that have a gradient.
        state, d_final : State, optional
            The initial state (only read), and the gradient of the final one (``plan.state().zero()`` filled in).
        want_initial : bool
            Whether the gradient of the initial state is wanted, as ``result["initial"]``.
        saved : uint8 array, optional
            What :meth:`forward` of the same call has left; the same gradients, sooner.

        Returns
        -------
        dict
            One array per input, shaped as the input.
        """
        tensors, views = self._bind(inputs, self._input_names, "input")
        named = dict(zip(inputs, views))
        names = [i.name for i in self.inputs if i.differentiable and i.name in inputs] if wrt is None else list(wrt)
        results: dict[str, Any] = {}
        for name in names:
            if name not in named:
                raise unknown("input", name, inputs, "this call")
            given = out.get(name) if out else None
            results[name] = np.empty(named[name].shape, self._output_dtype(named)) if given is None else given
        written, out_views = self._bind(results, self._input_names, "input")
        read, d_views = self._bind(d_outputs, self._output_names, "output")
        time, bounds, number = self._time(named), _bounds(cu_seqlens, self.batch), _form(form)
        initial = state if state is not None else self.state(self._pairs(named))
        room = self._room_of(initial, self._pairs(named))
        d_initial = State(self, room).zero() if want_initial else None
        arguments = arguments_of(tensors, views, None, (), number, bounds)
        arguments.state, arguments.state_bytes = initial._address, initial._bytes.size
        if saved is not None:
            arguments.saved, arguments.saved_bytes = address(saved), saved.nbytes
        work = _scratch.of(self._footprint(room, number).backward)
        arguments.workspace, arguments.workspace_bytes = address(work), work.size
        gradients = l.Gradients(
            d_outputs=c.addressof(read),
            d_output_count=len(d_views),
            d_inputs=c.addressof(written),
            d_input_count=len(out_views),
            d_final=d_final._address if d_final is not None else None,
            d_final_bytes=d_final._bytes.size if d_final is not None else 0,
            d_initial=d_initial._address if d_initial is not None else None,
            d_initial_bytes=d_initial._bytes.size if d_initial is not None else 0,
        )
        status = lib.ttr_backward(self._handle, c.byref(arguments), c.byref(gradients))
        if status != l.OK:
            self._explain(status, arguments, gradients)
        if d_initial is not None:
            results["initial"] = d_initial
        return results

    def prepare(
        self,
        *,
        state: "State",
        outputs: Sequence[str] | None = None,
        out: Any = None,
        form: str = "best",
        **inputs: Any,
    ) -> "Call":
        """A forward (or step) on these arrays, to be made again and again: see :class:`Call`."""
        return Call(self, state, outputs, out, form, inputs)


def arguments_of(
    read: Any, reads: Sequence[Any], written: Any, writes: Sequence[Any], form: int, bounds: np.ndarray | None = None
) -> l.Arguments:
    """The arguments of a call; state and workspace are still missing."""
    return l.Arguments(
        inputs=c.addressof(read),
        input_count=len(reads),
        outputs=c.addressof(written) if written is not None else None,
        output_count=len(writes),
        form=form,
        cu_seqlens=address(bounds) if bounds is not None else None,
    )


def _form(form: str) -> int:
    try:
        return l.FORMS.index(form)
    except ValueError:
        raise unknown("form", form, l.FORMS, "a plan") from None


def _bounds(cu_seqlens: Any, batch: int) -> np.ndarray | None:
    if cu_seqlens is None:
        return None
    bounds = np.ascontiguousarray(np.asarray(cu_seqlens), dtype=np.int64)
    if bounds.shape != (batch + 1,):
        raise Error(
            f"cu_seqlens has the shape {bounds.shape}; a plan of {batch} sequences needs {batch + 1} bounds "
            f"(make the plan with batch={max(bounds.size - 1, 1)})"
        )
    return bounds


class Call:
    """A call on fixed arrays: what names, shapes and strides cost is paid once.

    ``call()`` reads the inputs as they are now, writes the outputs in place and advances the state; ``call(q=other)``
    puts another array of the same shape, strides and type in the place of `q` from then on.

    Attributes
    ----------
    outputs : dict
        The arrays that are written.

    Examples
    --------
    >>> import numpy as np, ttr
    >>> plan = ttr.plan("linear-attention", key_dim=2, value_dim=2, dtype="float64", scale=1)
    >>> x = np.ones((1, 1, 1, 2))
    >>> call = plan.prepare(q=x, k=x, v=x, state=plan.state(), form="step")
    >>> for _ in range(3): call()
    >>> call.outputs["o"].ravel().tolist()
    [6.0, 6.0]
    """

    def __init__(
        self, plan: Plan, state: "State", outputs: Sequence[str] | None, out: Any, form: str, inputs: Mapping[str, Any]
    ) -> None:
        self._handle = None
        tensors, views = plan._bind(inputs, plan._input_names, "input")
        named = dict(zip(inputs, views))
        self.plan, self.state = plan, state
        self.outputs = plan._fresh_outputs(outputs, out, plan._time(named), False, named)
        written, out_views = plan._bind(self.outputs, plan._output_names, "output")
        number = _form(form)
        arguments = arguments_of(tensors, views, written, out_views, number)
        handle = c.c_void_p()
        check(lib.ttr_call_create(plan._handle, c.byref(arguments), c.byref(handle)))
        self._handle = handle
        self._form, self._tokens = number, plan._pairs(named)
        self._views = named
        self._places = {i.name: at for at, i in enumerate(plan.inputs)}
        out_named = dict(zip(self.outputs, out_views))
        self._reads = (c.c_void_p * len(plan.inputs))(*[named[i.name].data if i.name in named else None for i in plan.inputs])
        self._writes = (c.c_void_p * len(plan.outputs))(
            *[out_named[i.name].data if i.name in out_named else None for i in plan.outputs]
        )
        self._room()

    def _room(self) -> None:
        room = self.plan._room_of(self.state, self._tokens)
        self._work = aligned(self.plan._footprint(room, self._form).workspace)
        self._arguments = (
            self._handle,
            self._reads,
            self._writes,
            c.c_void_p(self.state._address),
            c.c_size_t(self.state._bytes.size),
            c.c_void_p(address(self._work)),
            c.c_size_t(self._work.size),
        )

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.ttr_call_destroy(self._handle)

    def __call__(self, _run: Any = lib.ttr_call_run, **inputs: Any) -> None:
        if inputs:
            self._rebind(inputs)
        status = _run(*self._arguments)
        if status:
            self._again(status)

    def _rebind(self, inputs: Mapping[str, Any]) -> None:
        for name, array in inputs.items():
            if name not in self._views:
                raise unknown("input", name, self._views, "this call")
            new, old = view(array, name), self._views[name]
            if (new.type, new.shape, new.strides) != (old.type, old.shape, old.strides):
                raise Error(
                    f"{name} has shape {new.shape}, strides {new.strides} and type {new.dtype}; the call was prepared "
                    f"for {old.shape}, {old.strides} and {old.dtype}; prepare another one"
                )
            self._views[name] = new
            self._reads[self._places[name]] = new.data

    def _again(self, status: int) -> None:
        if status == l.STATE_FULL:
            self.state.grow(2 * (self.state.capacity() + self._tokens))
        if status == l.STATE_FULL or self._arguments[3].value != self.state._address:
            self._room()
            status = lib.ttr_call_run(*self._arguments)
        check(status)


class State:
    """What a plan has seen: one slot per sequence of the batch.

    ``state["S"]`` is a part of it as an array that may be read and written; ``state.names`` lists them.

    Examples
    --------
    >>> import numpy as np, ttr
    >>> plan = ttr.plan("linear-attention", batch=2, key_dim=2, value_dim=2, scale=1, rewind=1)
    >>> x = np.ones((2, 3, 1, 2), np.float32)
    >>> state = plan.state()
    >>> _ = plan.forward(q=x, k=x, v=x, state=state)
    >>> state["S"][0, 0].tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    >>> state.rewind(1, sequence=1)
    >>> state.tokens_seen(0), state.tokens_seen(1)
    (3, 2)
    >>> saved = state.to_bytes()
    >>> plan.state().load_bytes(saved).tokens_seen(1)
    2
    """

    def __init__(self, plan: Plan, tokens: int = 256) -> None:
        self.plan = plan
        self._tokens = max(int(tokens), 1)
        self._set(aligned(plan._footprint(self._tokens, 0).state))
        check(lib.ttr_state_reset(*self._at))

    def _set(self, bytes_: np.ndarray) -> None:
        self._bytes, self._address = bytes_, address(bytes_)
        self._views: dict[str, np.ndarray] = {}
        self._at = (self.plan._handle, self._address, bytes_.size)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(i.name for i in self.plan.states)

    @property
    def nbytes(self) -> int:
        return int(self._bytes.size)

    def __repr__(self) -> str:
        return f"<ttr.State of {self.plan.name}: {', '.join(self.names) or 'nothing'}; {self.nbytes} bytes>"

    def __getitem__(self, name: str) -> np.ndarray:
        kept = self._views.get(name)
        if kept is not None:
            return kept
        if name not in self.names:
            raise unknown("part", name, self.names, f"the state of {self.plan.name}")
        t = l.Tensor()
        check(lib.ttr_state_tensor(*self._at, name.encode(), c.byref(t)))
        kind = {l.F32: np.float32, l.F64: np.float64, l.I64: np.int64}[t.type]
        item = np.dtype(kind).itemsize
        begin = (t.data or self._address) - self._address
        shape = tuple(t.extent[i] for i in range(t.rank))
        strides = tuple(t.stride[i] * item for i in range(t.rank))
        part: np.ndarray = np.ndarray(shape, kind, self._bytes, begin, strides)
        if not self.plan.keeps_pairs:  # lists grow
            self._views[name] = part
        return part

    def __setitem__(self, name: str, value: Any) -> None:
        self[name][...] = value

    def _of(self, sequence: int | None) -> int:
        if sequence is None:
            return -1
        if not 0 <= sequence < self.plan.batch:
            raise Error(f"there is no sequence {sequence}; the plan has {self.plan.batch}, from 0")
        return sequence

    def reset(self, sequence: int | None = None) -> "State":
        """A fresh state, or one fresh slot."""
        n = self._of(sequence)
        check(lib.ttr_state_reset(*self._at) if n < 0 else lib.ttr_slot_reset(*self._at, n))
        return self

    def zero(self) -> "State":
        """All numbers zero: what the gradient of a final state starts as."""
        check(lib.ttr_state_zero(*self._at))
        return self

    def clone(self) -> "State":
        """An independent copy."""
        other = object.__new__(State)
        other.plan, other._tokens = self.plan, self._tokens
        copied = aligned(self._bytes.size)
        copied[:] = self._bytes
        other._set(copied)
        return other

    def assign(self, other: "State") -> "State":
        """Becomes what `other`, a state of the same plan, is."""
        if other.plan is not self.plan:
            raise Error("the other state is of another plan; copy_slot moves sequences between plans")
        if other._bytes.size != self._bytes.size:
            self._set(aligned(other._bytes.size))
        self._bytes[:] = other._bytes
        return self

    def grow(self, tokens: int) -> "State":
        """Makes room for `tokens` pairs per sequence, where pairs are kept."""
        larger = aligned(self.plan._footprint(tokens, 0).state)
        to = (self.plan._handle, address(larger), larger.size)
        check(lib.ttr_state_reset(*to))
        check(lib.ttr_state_grow(*to, *self._at))
        self._set(larger)
        self._tokens = tokens
        return self

    def capacity(self) -> int:
        """Pairs that there is room for; -1 for states of fixed size."""
        return int(lib.ttr_state_capacity(*self._at))

    def tokens_seen(self, sequence: int = 0) -> int:
        return int(lib.ttr_state_tokens_seen(*self._at, self._of(sequence)))

    def tokens_kept(self, sequence: int = 0) -> int:
        return int(lib.ttr_state_tokens_kept(*self._at, self._of(sequence)))

    def rewindable(self, sequence: int = 0) -> int:
        return int(lib.ttr_state_rewindable(*self._at, self._of(sequence)))

    def rewind(self, tokens: int, sequence: int | None = None) -> None:
        """Takes back the newest tokens, bit for bit (``ttr.plan(..., rewind=n)``)."""
        slots = range(self.plan.batch) if sequence is None else [self._of(sequence)]
        for n in slots:
            if self.rewindable(n) < tokens:
                raise Error(
                    f"sequence {n} can take back {self.rewindable(n)} tokens, not {tokens}; "
                    f"ttr.plan(..., rewind={tokens}) keeps what is needed"
                )
        for n in slots:
            check(lib.ttr_slot_rewind(*self._at, n, tokens))

    def truncate(self, tokens: int, sequence: int = 0) -> None:
        """Keeps the oldest `tokens` pairs of a list."""
        check(lib.ttr_slot_truncate(*self._at, self._of(sequence), tokens))

    def swap(self, one: int, other: int) -> None:
        """Exchanges two sequences."""
        check(lib.ttr_slot_swap(*self._at, self._of(one), self._of(other)))

    def copy_slot(self, to: int, source: "State", sequence: int) -> None:
        """Sequence `sequence` of `source`, which may be a state of a plan with another batch, becomes sequence `to`."""
        source._of(sequence)
        check(lib.ttr_slot_copy(*self._at, self._of(to), *source._at, sequence))

    def save(self, path: "str | os.PathLike[str]", sequence: int | None = None) -> None:
        """Writes a .safetensors file, whole or not at all (docs/embedding.md has its layout)."""
        check(lib.ttr_state_save(*self._at, self._of(sequence), os.fsencode(path)))

    def load(self, path: "str | os.PathLike[str]", to: int = 0, sequence: int | None = None) -> "State":
        """The sequences of a file (or one of them) become `to` and those behind it."""
        check(lib.ttr_state_load(*self._at, self._of(to), -1 if sequence is None else sequence, os.fsencode(path)))
        return self

    def to_bytes(self, sequence: int | None = None) -> bytes:
        """As :meth:`save`, in memory."""
        size = c.c_size_t(0)
        check(lib.ttr_state_pack(*self._at, self._of(sequence), None, c.byref(size)))
        buffer = c.create_string_buffer(size.value)
        check(lib.ttr_state_pack(*self._at, self._of(sequence), buffer, c.byref(size)))
        return buffer.raw[: size.value]

    def load_bytes(self, saved: bytes, to: int = 0, sequence: int | None = None) -> "State":
        """As :meth:`load`, from memory."""
        from_ = -1 if sequence is None else sequence
        check(lib.ttr_state_unpack(*self._at, self._of(to), from_, saved, len(saved)))
        return self
