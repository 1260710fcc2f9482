"""Golden files: safetensors (8 bytes length, little-endian; a JSON header padded to 8; the arrays), and their names.

A file is named after its sizes: `b_B1_T48_H4_K8_V10_HKV2_win13_h0` is case b with B = 1, T = 48, H = 4, K = 8,
V = 10, HKV = 2, win = 13 and the word h0. `Sizes` reads such a name.
"""
from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import numpy as np

TYPES = {'F64': np.dtype('<f8'), 'F32': np.dtype('<f4'), 'I64': np.dtype('<i8')}


class BadFile(Exception):
    """A golden file that cannot be read; the message is a sentence."""


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and the metadata of a file, in the order of its header."""
    data = path.read_bytes()
    try:
        (length,) = struct.unpack('<Q', data[:8])
        header = json.loads(data[8:8 + length])
        metadata = header.pop('__metadata__', {})
        arrays = {}
        for name, entry in header.items():
            begin, end = (8 + length + offset for offset in entry['data_offsets'])
            arrays[name] = np.frombuffer(data[begin:end], TYPES[entry['dtype']]).reshape(entry['shape'])
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise BadFile(f"'{path}' is no safetensors file of F64, F32 and I64 arrays ({error}). "
                      f"Restore it from the repository.") from error
    return arrays, metadata


def write(path: Path, arrays: dict[str, np.ndarray], metadata: dict[str, object]) -> None:
    """Writes a file, and the folder it is in if there is none."""
    header: dict[str, object] = {'__metadata__': {key: str(value) for key, value in metadata.items()}}
    names = {dtype: name for name, dtype in TYPES.items()}
    offset, blocks = 0, []
    for name, array in arrays.items():
        array = np.ascontiguousarray(array)
        block = array.tobytes()
        header[name] = {'dtype': names[array.dtype], 'shape': list(array.shape),
                        'data_offsets': [offset, offset + len(block)]}
        offset += len(block)
        blocks.append(block)
    text = json.dumps(header, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack('<Q', len(text)) + text + b''.join(blocks))


class Sizes:
    """The sizes that the name of a case says: `sizes['K']`, `'h0' in sizes`, `sizes.shape('B T HKV K')`.

    Unless said, HV and HKV are H and S is T. In a shape `T*n` is a product, `T/C` a quotient, `win-1` one less, and a
    number stands for itself.
    """

    def __init__(self, case: str) -> None:
        self.case = case
        self.tag, *words = case.split('_')
        self.words = set(words)
        self.sizes: dict[str, int] = {}
        for word in words:
            if match := re.fullmatch(r'([A-Za-z]+)(\d+)', word):
                self.sizes[match[1]] = int(match[2])
        for name, default in (('HV', 'H'), ('HKV', 'H'), ('S', 'T')):
            if name not in self.sizes and default in self.sizes:
                self.sizes[name] = self.sizes[default]

    def __getitem__(self, name: str) -> int:
        return self.sizes[name]

    def __contains__(self, word: str) -> bool:
        return word in self.words

    def shape(self, letters: str) -> tuple[int, ...]:
        """The shape whose axes have these sizes."""
        return tuple(self._axis(word) for word in letters.split())

    def _axis(self, word: str) -> int:
        size = 1
        for sign, factor in re.findall(r'([*/]?)(\w+)', word.removesuffix('-1')):
            number = int(factor) if factor.isdigit() else self.sizes[factor]
            size = size // number if sign == '/' else size * number
        return size - 1 if word.endswith('-1') else size
