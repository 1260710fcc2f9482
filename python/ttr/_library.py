"""libttr_c through ctypes: structs, functions, and statuses as exceptions.

The structs are those of ``include/ttr/c.h``. ``ctypes.CDLL`` releases the lock of the interpreter during every call.
"""

from __future__ import annotations

import ctypes as c
import json
import os
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["Error", "UnknownName", "lib", "version"]

ABI_VERSION = 1
MAX_RANK = 6
F32, F64, BF16, F16, I64 = range(5)
FORMS = ("best", "step", "recurrent", "chunk", "parallel", "scan")
OK, STATE_FULL, UNKNOWN_NAME, ERROR, BAD_ARGUMENT = 0, 5, 10, 100, 101


class Error(ValueError):
    """What the library refuses, as a sentence: what, which value, what to do.

    Attributes
    ----------
    where : str
        The place: a column of the recipe, an option, a layer; may be empty.
    """

    def __init__(self, sentence: str, where: str = "") -> None:
        super().__init__(sentence)
        self.where = where

    def __str__(self) -> str:
        return str(self.args[0])


class UnknownName(Error, KeyError):
    """A layer, an input or a setting that there is not; the sentence has the nearest name."""


class Sized(c.Structure):
    """A struct that begins with its size."""

    def __init__(self, **fields: Any) -> None:
        for name, kind in self._fields_:
            if kind is c.c_int32 and not -(2**31) <= fields.get(name, 0) < 2**31:  # ctypes would cut it without a word
                raise Error(f"{name} = {fields[name]} is out of range; it is at most {2**31 - 1}")
        super().__init__(**fields)
        self.size = c.sizeof(self)


class Shape(Sized):
    _fields_ = [("size", c.c_size_t)] + [
        (n, c.c_int32) for n in ("batch", "heads", "key_heads", "key_dim", "value_dim")
    ]


class Options(Sized):
    _fields_ = (
        [("size", c.c_size_t)]
        + [(n, c.c_int32) for n in ("type", "half_tensors", "whole", "chunk", "threads", "rewind", "has_scale")]
        + [("scale", c.c_double), ("settings", c.c_char_p), ("kernel", c.c_char_p), ("target", c.c_char_p)]
        + [("run_jobs", c.c_void_p), ("executor", c.c_void_p)]
    )


class Tensor(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("name", c.c_char_p),
        ("data", c.c_void_p),
        ("type", c.c_int32),
        ("rank", c.c_int32),
        ("extent", c.c_int64 * MAX_RANK),
        ("stride", c.c_int64 * MAX_RANK),
    ]


class Arguments(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("inputs", c.c_void_p),
        ("input_count", c.c_size_t),
        ("outputs", c.c_void_p),
        ("output_count", c.c_size_t),
        ("state", c.c_void_p),
        ("state_bytes", c.c_size_t),
        ("workspace", c.c_void_p),
        ("workspace_bytes", c.c_size_t),
        ("form", c.c_int32),
        ("cu_seqlens", c.c_void_p),
        ("cu_seqlens_pairs", c.c_void_p),
        ("saved", c.c_void_p),
        ("saved_bytes", c.c_size_t),
    ]


class Gradients(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("d_outputs", c.c_void_p),
        ("d_output_count", c.c_size_t),
        ("d_inputs", c.c_void_p),
        ("d_input_count", c.c_size_t),
        ("d_final", c.c_void_p),
        ("d_final_bytes", c.c_size_t),
        ("d_initial", c.c_void_p),
        ("d_initial_bytes", c.c_size_t),
        ("gradients", c.c_int32),
    ]


class Footprint(Sized):
    _fields_ = [(n, c.c_size_t) for n in ("size", "state", "workspace", "backward", "saved")]


def _candidates() -> list[str]:
    here = Path(__file__).resolve().parent
    named = os.environ.get("TTR_LIBRARY")
    if named:
        return [named]
    beside = [str(here / "libttr_c.so")]
    source_tree = here.parent.parent
    if (source_tree / "include" / "ttr" / "c.h").exists():  # python/ttr of a checkout: its build tree
        beside.append(str(source_tree / "build" / "libttr_c.so"))
    return [path for path in beside if os.path.exists(path)] + [f"libttr_c.so.{ABI_VERSION}"]


def _load() -> c.CDLL:
    tried = []
    for companion in Path(__file__).resolve().parent.glob("libhwy*"):  # a wheel brings it along
        c.CDLL(str(companion), mode=c.RTLD_GLOBAL)
    for path in _candidates():
        try:
            return c.CDLL(path)
        except OSError as problem:
            tried.append(f"{path} ({problem})")
    raise ImportError(
        "ttr needs libttr_c.so and found none; build it with `cmake --build build --target ttr_c`, or name it in the "
        "environment as TTR_LIBRARY. Tried: " + "; ".join(tried)
    )


lib = _load()

_pointer, _size, _i64, _i32, _text = c.c_void_p, c.c_size_t, c.c_int64, c.c_int32, c.c_char_p
_state = [_pointer, _pointer, _size]  # plan, state, bytes
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "version": (_text, []),
    "abi_version": (_i32, []),
    "last_error": (_text, []),
    "last_error_where": (_text, []),
    "layer_count": (_size, []),
    "layer_name": (_text, [_size]),
    "layer_describe": (_i32, [_text, _pointer, _pointer]),
    "plan_describe": (_i32, [_pointer, _pointer, _pointer]),
    "derive": (_i32, [_text, _i32, _pointer, _pointer]),
    "stream_describe": (_i32, [_text, _pointer, _pointer]),
    "plan_create": (_i32, [_text, _pointer, _pointer, _pointer]),
    "plan_destroy": (None, [_pointer]),
    "plan_best_form": (_i32, [_pointer, _i64]),
    "plan_footprint": (_i32, [_pointer, _i64, _i32, _pointer]),
    "plan_extents": (_size, [_pointer, _text, _i64, _pointer]),
    "forward": (_i32, [_pointer, _pointer]),
    "step": (_i32, [_pointer, _pointer]),
    "backward": (_i32, [_pointer, _pointer, _pointer]),
    "diagnose": (_i32, [_pointer, _pointer, _pointer]),
    "call_create": (_i32, [_pointer, _pointer, _pointer]),
    "call_destroy": (None, [_pointer]),
    "call_run": (_i32, [_pointer, _pointer, _pointer, _pointer, _size, _pointer, _size]),
    "call_run_saving": (_i32, [_pointer, _pointer, _pointer, _pointer, _size, _pointer, _size, _pointer, _size]),
    "state_reset": (_i32, _state),
    "state_zero": (_i32, _state),
    "state_grow": (_i32, [_pointer, _pointer, _size, _pointer, _pointer, _size]),
    "state_tensor": (_i32, _state + [_text, _pointer]),
    "state_capacity": (_i64, _state),
    "state_tokens_seen": (_i64, _state + [_i32]),
    "state_tokens_kept": (_i64, _state + [_i32]),
    "state_rewindable": (_i64, _state + [_i32]),
    "slot_reset": (_i32, _state + [_i32]),
    "slot_copy": (_i32, [_pointer, _pointer, _size, _i32, _pointer, _pointer, _size, _i32]),
    "slot_swap": (_i32, _state + [_i32, _i32]),
    "slot_truncate": (_i32, _state + [_i32, _i64]),
    "slot_rewind": (_i32, _state + [_i32, _i64]),
    "state_save": (_i32, _state + [_i32, _text]),
    "state_load": (_i32, _state + [_i32, _i32, _text]),
    "state_pack": (_i32, _state + [_i32, _pointer, _pointer]),
    "state_unpack": (_i32, _state + [_i32, _i32, _pointer, _size]),
}
for _name, (_restype, _argtypes) in _SIGNATURES.items():
    _function = getattr(lib, "ttr_" + _name)
    _function.restype, _function.argtypes = _restype, _argtypes

if lib.ttr_abi_version() != ABI_VERSION:
    raise ImportError(f"libttr_c has ABI {lib.ttr_abi_version()}, this package needs {ABI_VERSION}; install both anew")

version: str = lib.ttr_version().decode()


def said() -> str:
    return lib.ttr_last_error().decode()


def fail(status: int) -> NoReturn:
    """Raises what the last call of this thread has said."""
    sentence, where = said(), lib.ttr_last_error_where().decode()
    if status == UNKNOWN_NAME or where.startswith("layer "):
        raise UnknownName(sentence, where)
    raise Error(sentence, where)


def check(status: int) -> None:
    if status != OK:
        fail(status)


def ask(function: Any, *arguments: Any) -> Any:
    """The JSON that a describing function writes."""
    size = _size(1 << 16)
    buffer = c.create_string_buffer(size.value)
    status = function(*arguments, buffer, c.byref(size))
    if status == BAD_ARGUMENT and size.value > len(buffer):
        buffer = c.create_string_buffer(size.value)
        status = function(*arguments, buffer, c.byref(size))
    check(status)
    return json.loads(buffer.value.decode())
