"""What equations share: the loop over time, matrix memories, norms.

Layout: [B,T,H,D] in time, a memory S is [B,H,K,V] (key rows, value columns) and answers o = S^T q.
"""
from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np

from draws import Draws
from registry import Inputs, Outputs
from tape import Tensor, einsum, maximum, mean, norm, repeat_heads, sqrt, stack, total


def over_time(length: int, state: Any, step: Callable[[Any, int], tuple[Any, Tensor]]) -> tuple[Any, Tensor]:
    """step(state, t) -> (state, output) for t = 0 .. length-1: the last state, and the outputs along time."""
    outputs = []
    for t in range(length):
        state, output = step(state, t)
        outputs.append(output)
    return state, stack(outputs, 1)


def ask(memory: Tensor, query: Tensor) -> Tensor:
    """S^T q: [B,H,K,V] and [B,H,K] give [B,H,V]."""
    return einsum('bhk,bhkv->bhv', query, memory)


def outer(key: Tensor, value: Tensor) -> Tensor:
    """k v^T: [B,H,K] and [B,H,V] give [B,H,K,V]."""
    return key[..., None] * value[..., None, :]


def per_head(x: Tensor) -> Tensor:
    """A number per head [B,H] as a factor of memories."""
    return x[..., None, None]


def per_row(x: Tensor) -> Tensor:
    """A number per key channel [B,H,K] as a factor of memories."""
    return x[..., None]


def memory_layer(x: Inputs, update: Callable[[Tensor, int], Tensor], query: Tensor, value_like: Tensor,
                 scale: float = 1.0) -> Outputs:
    """S_t = update(S_{t-1}, t); o_t = S_t^T (scale q_t). S_0 is in.h0 or 0; out.ht is the last S."""
    batch, length, heads, width = query.shape

    def step(memory: Tensor, t: int) -> tuple[Tensor, Tensor]:
        memory = update(memory, t)
        return memory, ask(memory, query[:, t]) * scale
    memory, answers = over_time(length, x.get('h0', (batch, heads, width, value_like.shape[-1])), step)
    return {'o': answers, 'ht': memory}


def grouped(x: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v where q head h uses k and v head h // (H / HKV)."""
    heads = x.q.shape[2]
    return x.q, repeat_heads(x.k, heads), repeat_heads(x.v, heads)


def squared_length(x: Tensor) -> Tensor:
    return total(x * x, -1)


def unit(x: Tensor, floor: float = 1e-12) -> Tensor:
    """x / max(|x|, floor)."""
    return x / maximum(norm(x), floor)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean x^2 + eps) * w."""
    return x / sqrt(mean(x * x, keep=True) + eps) * weight


def layer_norm(x: Tensor, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(var + eps), biased variance, over the last axis."""
    centred = x - mean(x, keep=True)
    return centred / sqrt(mean(centred * centred, keep=True) + eps)


def state(r: Draws, letters: str = 'B H K V', std: float = 1.0) -> Optional[np.ndarray]:
    """An initial state, which the cases with h0 in their name have."""
    return r.normal(letters, std) if 'h0' in r.sizes else None
