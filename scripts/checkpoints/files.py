"""Writers of the formats: .safetensors, GGUF version 3 with its blocks."""
import json
import struct

import numpy as np


def bfloat16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bfloat16(h):
    return (h.astype(np.uint32) << 16).view(np.float32)


def stored(x, dtype):
    """The bytes of an array in a type, and the numbers that they mean."""
    x = np.ascontiguousarray(x, np.float32)
    if dtype == "F32":
        return x.tobytes(), x
    if dtype == "F16":
        h = x.astype(np.float16)
        return h.tobytes(), h.astype(np.float32)
    if dtype == "BF16":
        h = bfloat16(x)
        return h.tobytes(), from_bfloat16(h).reshape(x.shape)
    raise ValueError(dtype)


def write_safetensors(path, tensors, dtypes=None, metadata=None):
    """`dtypes`: name -> type, F32 unless given."""
    header, data, at = {}, [], 0
    if metadata:
        header["__metadata__"] = metadata
    for name, x in tensors.items():
        dtype = (dtypes or {}).get(name, "F32")
        raw = stored(x, dtype)[0]
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))


# ---- blocks of GGUF: bytes, and the numbers that they mean

def q8_0(x):
    blocks = x.reshape(-1, 32).astype(np.float32)
    d = (np.abs(blocks).max(1) / np.float32(127)).astype(np.float32)
    inverse = np.where(d > 0, np.float32(1) / np.where(d > 0, d, 1), 0).astype(np.float32)
    q = np.clip(np.rint(blocks * inverse[:, None]), -127, 127).astype(np.int8)
    half = d.astype(np.float16)
    raw = b"".join(half[i].tobytes() + q[i].tobytes() for i in range(len(q)))
    return raw, (half.astype(np.float32)[:, None] * q.astype(np.float32)).reshape(x.shape)


def q4_0(x):
    blocks = x.reshape(-1, 32).astype(np.float32)
    largest = blocks[np.arange(len(blocks)), np.abs(blocks).argmax(1)]
    d = (largest / np.float32(-8)).astype(np.float32)
    inverse = np.where(d != 0, np.float32(1) / np.where(d != 0, d, 1), 0).astype(np.float32)
    q = np.clip(np.floor(blocks * inverse[:, None] + np.float32(8.5)), 0, 15).astype(np.uint8)
    half = d.astype(np.float16)
    packed = q[:, :16] | q[:, 16:] << 4
    raw = b"".join(half[i].tobytes() + packed[i].tobytes() for i in range(len(q)))
    return raw, (half.astype(np.float32)[:, None] * (q.astype(np.float32) - 8)).reshape(x.shape)


def _six_bits(scales, least):
    """Eight scales and eight least values of six bits in twelve bytes."""
    s = np.zeros(12, np.uint8)
    for j in range(8):
        if j < 4:
            s[j] |= scales[j] & 63
            s[j + 4] |= least[j] & 63
        else:
            s[j + 4] |= (scales[j] & 15) | (least[j] & 15) << 4
            s[j - 4] |= (scales[j] >> 4) << 6
            s[j] |= (least[j] >> 4) << 6
    return s


def random_k(kind, shape, rng):
    """Random blocks of Q4_K, Q5_K or Q6_K, and the numbers that they mean, number by number."""
    count = int(np.prod(shape)) // 256
    raw, numbers = b"", []
    for _ in range(count):
        d = np.float16(rng.uniform(0.0001, 0.0004))
        m = np.float16(d * (15.5 if kind == "Q5_K" else 7.5))  # numbers of both signs
        if kind in ("Q4_K", "Q5_K"):
            bits = 16 if kind == "Q4_K" else 32
            scales, least = rng.integers(0, 64, 8, dtype=np.uint8), rng.integers(0, 64, 8, dtype=np.uint8)
            q = rng.integers(0, bits, 256, dtype=np.uint8)
            low = np.zeros(128, np.uint8)
            high = np.zeros(32, np.uint8)
            for c in range(4):
                for l in range(32):
                    a, b = q[64 * c + l], q[64 * c + 32 + l]
                    low[32 * c + l] = (a & 15) | (b & 15) << 4
                    high[l] |= (a >> 4) << (2 * c) | (b >> 4) << (2 * c + 1)
            raw += d.tobytes() + m.tobytes() + _six_bits(scales, least).tobytes()
            raw += (high.tobytes() if kind == "Q5_K" else b"") + low.tobytes()
            for i in range(256):
                j = i // 32
                numbers.append(np.float32(d) * scales[j] * q[i] - np.float32(m) * least[j])
        else:
            scales = rng.integers(-60, 60, 16).astype(np.int8)
            q = rng.integers(0, 64, 256, dtype=np.uint8)
            low, high = np.zeros(128, np.uint8), np.zeros(64, np.uint8)
            for h in range(2):
                for l in range(32):
                    four = [q[128 * h + 32 * j + l] for j in range(4)]
                    low[64 * h + l] = (four[0] & 15) | (four[2] & 15) << 4
                    low[64 * h + 32 + l] = (four[1] & 15) | (four[3] & 15) << 4
                    high[32 * h + l] = sum((int(four[j]) >> 4) << 2 * j for j in range(4))
            raw += low.tobytes() + high.tobytes() + scales.tobytes() + d.tobytes()
            for i in range(256):
                numbers.append(np.float32(d) * scales[i // 16] * (int(q[i]) - 32))
    return raw, np.array(numbers, np.float32).reshape(shape)


TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "BF16": 30}


def _string(text):
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def _value(x):
    """Type number and bytes of a value of a key."""
    if isinstance(x, bool):
        return 7, struct.pack("<B", x)
    if isinstance(x, int):
        return 4, struct.pack("<I", x)
    if isinstance(x, float):
        return 6, struct.pack("<f", x)
    if isinstance(x, (str, bytes)):
        return 8, _string(x)
    if isinstance(x, list):
        kind = 8 if x and isinstance(x[0], (str, bytes)) else 5
        body = b"".join(_string(one) if kind == 8 else struct.pack("<i", one) for one in x)
        return 9, struct.pack("<iQ", kind, len(x)) + body
    raise TypeError(type(x))


def write_gguf(path, keys, tensors, types=None):
    """`types`: name -> type, F32 unless given; ready bytes stand for an array as (type, bytes, shape). Returns what the numbers mean."""
    head = b"GGUF" + struct.pack("<Iqq", 3, len(tensors), len(keys))
    for key, value in keys.items():
        kind, raw = _value(value)
        head += _string(key) + struct.pack("<i", kind) + raw
    data, means, at = [], {}, 0
    for name, x in tensors.items():
        if isinstance(x, tuple):
            kind, raw, shape = x
        else:
            kind, shape = (types or {}).get(name, "F32"), x.shape
            raw, means[name] = q8_0(x) if kind == "Q8_0" else q4_0(x) if kind == "Q4_0" else stored(x, kind)
        head += _string(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<q", n) for n in reversed(shape))
        head += struct.pack("<iQ", TYPES[kind], at)
        raw += b"\0" * (-len(raw) % 32)
        data.append(raw)
        at += len(raw)
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32) + b"".join(data))
    return means
