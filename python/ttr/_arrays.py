"""Arrays of other libraries as tensors of ttr, without a copy: address, type, extents, strides.

numpy arrays, whatever has ``__dlpack__`` and lies in the memory of the CPU (PyTorch, JAX, CuPy's host arrays, Arrow),
and whatever numpy can convert. bfloat16 is taken where the caller's library has it (DLPack, or ``ml_dtypes``).
"""

from __future__ import annotations

import ctypes as c
from typing import Any, NamedTuple

import numpy as np

from ._library import BF16, F16, F32, F64, I64, MAX_RANK, Error, Tensor

_TYPES = {"float32": F32, "float64": F64, "bfloat16": BF16, "float16": F16, "int64": I64}
_NAMES = {number: name for name, number in _TYPES.items()}
_ITEM = {F32: 4, F64: 8, BF16: 2, F16: 2, I64: 8}


class View(NamedTuple):
    """An address with a type and a shape; ``owner`` keeps the memory."""

    data: int
    type: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    owner: Any

    @property
    def dtype(self) -> str:
        return _NAMES[self.type]


class _DLTensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("device_type", c.c_int32),
        ("device_id", c.c_int32),
        ("ndim", c.c_int32),
        ("code", c.c_uint8),
        ("bits", c.c_uint8),
        ("lanes", c.c_uint16),
        ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
        ("byte_offset", c.c_uint64),
    ]


_capsule_pointer = c.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c.c_void_p, [c.py_object, c.c_char_p]
_DL_TYPES = {(2, 32): F32, (2, 64): F64, (2, 16): F16, (4, 16): BF16, (0, 64): I64}


def _of_dlpack(array: Any, name: str) -> View:
    device = array.__dlpack_device__()
    if int(device[0]) != 1:
        raise Error(f"{name} is not in the memory of the CPU (DLPack device {tuple(device)}); move it there first")
    capsule = array.__dlpack__()
    t = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    kind = _DL_TYPES.get((t.code, t.bits)) if t.lanes == 1 else None
    if kind is None:
        raise Error(f"{name} has a type of {t.bits} bits that ttr does not take; it takes {', '.join(_TYPES)}")
    shape = tuple(t.shape[i] for i in range(t.ndim))
    if t.strides:
        strides = tuple(t.strides[i] for i in range(t.ndim))
    else:
        strides = contiguous(shape)
    return View((t.data or 0) + t.byte_offset, kind, shape, strides, (array, capsule))


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def of_numpy(array: np.ndarray, name: str = "the array") -> View:
    kind = _TYPES.get(array.dtype.name)
    if kind is None or not array.dtype.isnative:
        raise Error(f"{name} has the type {array.dtype}; ttr takes {', '.join(_TYPES)} in the machine's byte order")
    item = array.dtype.itemsize
    if any(s % item for s in array.strides):
        raise Error(f"{name} has strides {array.strides} that are no multiple of its {item} bytes; copy it first")
    if array.size > 1 and not any(array.strides):  # one number seen many times: ttr takes strides of zero as none given
        array = array.copy()
    return View(
        array.__array_interface__["data"][0], kind, array.shape, tuple(s // item for s in array.strides), array
    )


def view(array: Any, name: str = "the array") -> View:
    """The memory of an array, without a copy if there is a way."""
    if isinstance(array, np.ndarray):
        return of_numpy(array, name)
    if getattr(array, "requires_grad", False):
        array = array.detach()
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _of_dlpack(array, name)
    converted = np.asarray(array)
    if converted.dtype.kind in "iub":
        converted = converted.astype(np.float64)
    return of_numpy(converted, name)


def put(tensor: Tensor, name: bytes, v: View) -> None:
    """Fills in a struct of the library."""
    rank = len(v.shape)
    if rank > MAX_RANK:
        raise Error(f"{name.decode()} has {rank} axes; ttr has at most {MAX_RANK}")
    tensor.size, tensor.name, tensor.data, tensor.type, tensor.rank = c.sizeof(Tensor), name, v.data, v.type, rank
    for axis in range(rank):
        tensor.extent[axis] = v.shape[axis]
        # All zero would mean contiguous: an axis of one element has any stride.
        tensor.stride[axis] = v.strides[axis] if v.shape[axis] != 1 else v.strides[axis] or 1


def aligned(size: int) -> np.ndarray:
    """Bytes that begin at a multiple of 64."""
    try:
        room = np.empty(size + 64, np.uint8)
    except MemoryError:
        raise Error(f"there is no memory for {size / 1e9:.3g} GB; give smaller dimensions") from None
    begin = -room.__array_interface__["data"][0] % 64
    return room[begin : begin + size]


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def memory(v: View) -> tuple[int, int]:
    """First byte and the byte behind the last, for tests."""
    last = sum((n - 1) * s for n, s in zip(v.shape, v.strides))
    return v.data, v.data + (last + 1) * _ITEM[v.type]
