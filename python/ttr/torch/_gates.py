"""What kernels compute inside: gates, and norms of keys and queries."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .._library import Error
from ._call import apply


def wide(t: Tensor) -> Tensor:
    """A half type as float32, in which gates are made: rounded to half, a factor near 1 loses what it forgets."""
    return t.float() if t.dtype in (torch.bfloat16, torch.float16) else t


def l2norm(x: Tensor, eps: float = 1e-6) -> Tensor:
    """x / sqrt(sum x^2 + eps), over the last axis."""
    if x.dim() != 4:
        y = wide(x)
        return (y * torch.rsqrt((y * y).sum(-1, keepdim=True) + eps)).to(x.dtype)
    return apply("l2-norm", {"x": x}, outputs=("y",), settings={"eps": eps})[0]


def gate(g: Tensor, A_log: Tensor, dt_bias: Tensor | None = None, lower_bound: float | None = None) -> Tensor:
    """-exp(A_log) softplus(g + dt_bias), or with a bound  lower_bound * sigmoid(exp(A_log) (g + dt_bias)).

    g is [B, T, H] or [B, T, H, K]; A_log has H numbers, dt_bias H or H K. The gate of a half type is float32.
    """
    heads = g.shape[2]
    if A_log.numel() != heads:
        raise Error(f"A_log has {A_log.numel()} numbers; g has {heads} heads")
    raw = wide(g)
    if dt_bias is not None:
        if dt_bias.numel() != math.prod(g.shape[2:]):
            raise Error(f"dt_bias has {dt_bias.numel()} numbers; g has {math.prod(g.shape[2:])} per token")
        raw = raw + wide(dt_bias).reshape(g.shape[2:])
    a = wide(A_log).reshape((heads,) + (1,) * (g.dim() - 3)).exp()
    if lower_bound is None:
        return -a * F.softplus(raw)
    return lower_bound * torch.sigmoid(a * raw)
