"""Random inputs that are exact in float32, from the stream of PyTorch's CPU generator.

The stored inputs were drawn with it. Those of 89 operations come out again bit for bit; the seeds of the other 21 are
not known, and what is drawn for them is alike. The generator is a Mersenne twister; a uniform number is the low 53
bits of two of its words, first word high; normal numbers are pairs of Box and Muller, 16 at a time, eight radii and
eight angles, and fewer than 16 two at a time, with the second of a pair kept for later.
"""
from __future__ import annotations

import math
from typing import Optional

import numpy as np

from tensors import Sizes


def exact(x: np.ndarray) -> np.ndarray:
    """x rounded to float32, as doubles: what a file can hold."""
    return np.asarray(x).astype(np.float32).astype(np.float64)


def symmetrised(x: np.ndarray) -> np.ndarray:
    """(x + x^T) / 2 of the last two axes."""
    return (x + np.swapaxes(x, -1, -2)) / 2


class Draws:
    """Draws arrays of shapes such as 'B T H K', whose letters are the sizes of a case."""

    def __init__(self, seed: int, sizes: Sizes) -> None:
        self.sizes = sizes
        self._twister = np.random.MT19937()
        self._twister._legacy_seeding(seed)
        self._kept: Optional[float] = None

    def _doubles(self, count: int) -> np.ndarray:
        """Uniform in [0, 1)."""
        words = self._twister.random_raw(2 * count).astype(np.uint64)
        both = (words[0::2] << np.uint64(32)) | words[1::2]
        return (both & np.uint64(2 ** 53 - 1)).astype(np.float64) * 2.0 ** -53

    def _one_normal(self) -> float:
        if self._kept is not None:
            value, self._kept = self._kept, None
            return value
        angle, height = (float(x) for x in self._doubles(2))
        radius = math.sqrt(-2 * math.log1p(-height))
        self._kept = radius * math.sin(2 * math.pi * angle)
        return radius * math.cos(2 * math.pi * angle)

    def standard(self, *shape: int) -> np.ndarray:
        """Normal numbers in double, not rounded."""
        count = math.prod(shape)
        if count < 16:
            return np.array([self._one_normal() for _ in range(count)]).reshape(shape)

        def pairs(uniform: np.ndarray) -> np.ndarray:
            first, second = uniform.reshape(-1, 2, 8)[:, 0], uniform.reshape(-1, 2, 8)[:, 1]
            radius, angle = np.sqrt(-2 * np.log(1 - first)), 2 * math.pi * second
            return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)
        uniform = self._doubles(count)
        whole = count // 16 * 16
        out = np.concatenate([pairs(uniform[:whole]), uniform[whole:]])
        if whole < count:  # the last 16 are drawn once more
            out[-16:] = pairs(self._doubles(16))
        return out.reshape(shape)

    def normal(self, letters: str, std: float = 1.0, mean: float = 0.0) -> np.ndarray:
        return exact(self.standard(*self.sizes.shape(letters)) * std + mean)

    def uniform(self, letters: str, low: float = 0.0, width: float = 1.0) -> np.ndarray:
        shape = self.sizes.shape(letters)
        return exact(low + width * exact(self._doubles(math.prod(shape)).reshape(shape)))

    def scaled_uniform(self, letters: str, low: float, times: float) -> np.ndarray:
        """times (low + uniform), rounded at the end alone."""
        return exact(times * (low + self.uniform(letters)))

    def raw_uniform(self, count: int) -> np.ndarray:
        """Uniform in [0, 1), not rounded."""
        return self._doubles(count)

    def unit(self, letters: str) -> np.ndarray:
        """Vectors of length 1."""
        x = self.standard(*self.sizes.shape(letters))
        return exact(x / np.maximum(np.sqrt((x * x).sum(-1, keepdims=True)), 1e-12))

    def log_gate(self, letters: str, mean: float = 2.0, divided_by: float = 1.0) -> np.ndarray:
        """Logs of sigmoids: gates."""
        return exact(-np.logaddexp(0, -(self.standard(*self.sizes.shape(letters)) + mean)) / divided_by)

    def sigmoid(self, letters: str, times: float = 1.0) -> np.ndarray:
        """In (0, times)."""
        return exact(times / (1 + np.exp(-self.standard(*self.sizes.shape(letters)))))

    def softplus(self, letters: str, times: float = 1.0, mean: float = 0.0) -> np.ndarray:
        return exact(times * np.logaddexp(0, self.normal(letters, mean=mean)))

    def log_normal(self, letters: str, times: float = 1.0) -> np.ndarray:
        return exact(times * np.exp(self.normal(letters)))

    def covariance(self, letters: str, std: float = 0.4, diagonal: float = 0.5) -> np.ndarray:
        """Symmetric and positive definite."""
        x = self.normal(letters, std)
        return exact(x @ np.swapaxes(x, -1, -2) + diagonal * np.eye(x.shape[-1]))

    def orthogonal_rows(self, rows: int, width: int) -> np.ndarray:
        """Rows in orthogonal blocks, each as long as a normal vector: random features of FAVOR+."""
        blocks = []
        while len(blocks) * width < rows:
            basis, _ = np.linalg.qr(self.standard(width, width))
            lengths = np.sqrt((self.standard(width, width) ** 2).sum(1))
            blocks.append(basis * lengths[:, None])
        return exact(np.concatenate(blocks)[:rows])
