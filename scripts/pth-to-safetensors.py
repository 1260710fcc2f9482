#!/usr/bin/env python3
"""Converts a checkpoint of PyTorch (.pth, .pt, pytorch_model.bin) to .safetensors, without running what is in it.

    scripts/pth-to-safetensors.py RWKV-x070-World-0.1B.pth model.safetensors

A pickle may name any function to be called when it is read. This reader knows the five that a dictionary of tensors needs and
refuses the rest by name. It needs numpy and no PyTorch. Formats: the zip files that PyTorch has written since version 1.6.
"""
import argparse
import json
import math
import os
import pickle
import struct
import sys
import tempfile
import zipfile

import numpy as np

TYPES = {"FloatStorage": ("F32", 4), "HalfStorage": ("F16", 2), "BFloat16Storage": ("BF16", 2), "DoubleStorage": ("F64", 8),
         "LongStorage": ("I64", 8), "IntStorage": ("I32", 4), "ByteStorage": ("U8", 1), "BoolStorage": ("BOOL", 1)}

REPEATED = 2 ** 26  # bytes


class Refused(Exception):
    pass


class Storage:
    def __init__(self, kind):
        self.kind = kind


class Tensor:
    """A view of a storage."""

    def __init__(self, storage, offset, size, stride):
        whole = lambda *numbers: all(type(n) is int and 0 <= n < 2 ** 62 for n in numbers)
        if not (isinstance(size, tuple) and isinstance(stride, tuple) and len(size) == len(stride) <= 32
                and whole(offset, *size, *stride) and isinstance(storage, tuple) and len(storage) == 2):
            raise Refused("a tensor has a shape, strides or a place that are no whole numbers from 0 on")
        self.storage, self.offset, self.size, self.stride = storage, offset, size, stride


class Reader(pickle.Unpickler):
    def __init__(self, file, read_storage):
        super().__init__(file)
        self.read_storage = read_storage

    def find_class(self, module, name):
        if module == "torch" and name in TYPES:
            return Storage(name)
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, size, stride, *_: Tensor(storage, offset, size, stride)
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return lambda tensor, *_: tensor
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        raise Refused(f"the file wants to call {module}.{name}, which no dictionary of tensors needs")

    def persistent_load(self, saved):
        if not (isinstance(saved, tuple) and len(saved) >= 5 and saved[0] == "storage" and isinstance(saved[1], Storage)):
            raise Refused("the file refers to something that is no storage of numbers")
        return saved[1].kind, self.read_storage(str(saved[2]))


def contiguous(tensor, name, repeated):
    """The type and the bytes. A view may repeat numbers (a stride of 0): `repeated` is how many bytes more may come of that."""
    kind, raw = tensor.storage
    dtype, width = TYPES[kind]
    count = math.prod(tensor.size)
    if count == 0:
        return dtype, b""
    last = tensor.offset + sum((n - 1) * s for n, s in zip(tensor.size, tensor.stride))
    if (last + 1) * width > len(raw):
        raise Refused(f"the tensor '{name}' goes beyond its storage")
    if count * width - len(raw) > repeated[0]:
        raise Refused(f"the tensor '{name}' has {count} numbers of a storage of {len(raw) // width}, which it repeats; "
                      f"no more than {REPEATED} bytes are written so")
    repeated[0] -= max(0, count * width - len(raw))
    numbers = np.frombuffer(raw, np.dtype(f"V{width}") if width != 1 else np.uint8)
    view = np.lib.stride_tricks.as_strided(numbers[tensor.offset:], tensor.size, [s * width for s in tensor.stride])
    return dtype, np.ascontiguousarray(view).tobytes()


def convert(source, target):
    with zipfile.ZipFile(source) as archive:
        index = [n for n in archive.namelist() if n.endswith("/data.pkl") or n == "data.pkl"]
        if len(index) != 1:
            raise Refused("it is a zip file without data.pkl: not a checkpoint of PyTorch")
        folder = index[0][:-len("data.pkl")]
        seen = {}

        def storage(key):
            if key not in seen:
                seen[key] = archive.read(f"{folder}data/{key}")
            return seen[key]
        with archive.open(index[0]) as file:
            tree = Reader(file, storage).load()
    if isinstance(tree, dict) and isinstance(tree.get("state_dict"), dict):
        tree = tree["state_dict"]
    tensors = {name: x for name, x in tree.items() if isinstance(x, Tensor)} if isinstance(tree, dict) else {}
    if not tensors:
        raise Refused("it has no tensors")
    header, data, at, repeated = {"__metadata__": {"format": "pt"}}, [], 0, [REPEATED]
    for name, tensor in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise Refused(f"a tensor has the name {name!r}, which .safetensors cannot hold")
        dtype, raw = contiguous(tensor, name, repeated)
        header[name] = {"dtype": dtype, "shape": list(tensor.size), "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder = os.path.dirname(os.path.abspath(target))
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as out:  # whole or not at all
        try:
            out.write(struct.pack("<Q", len(text)) + text)
            for raw in data:
                out.write(raw)
        except BaseException:
            os.unlink(out.name)
            raise
    os.replace(out.name, target)
    return len(tensors), at


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("target")
    options = parser.parse_args()
    try:
        count, size = convert(options.source, options.target)
    except (Refused, pickle.UnpicklingError, zipfile.BadZipFile, OSError, KeyError, EOFError, ValueError, TypeError,
            AttributeError, IndexError, OverflowError, MemoryError, RecursionError) as error:
        print(f"pth-to-safetensors: {options.source}: {error}", file=sys.stderr)
        return 2
    print(f"{options.target}: {count} tensors, {size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
