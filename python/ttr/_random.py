"""Random numbers for the inputs of a plan, drawn as their meaning asks for."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._plan import Plan


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, x)


def draw(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Numbers of one of the ranges of ``ttr.layer(name).inputs``."""
    x = rng.standard_normal(shape)
    if kind == "unit":
        return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-30)
    if kind == "sigmoid":
        return 1 / (1 + np.exp(-x))
    if kind == "log_gate":
        return -0.3 * _softplus(x)
    if kind == "factor":
        return np.tanh(x)
    if kind == "positive":
        return _softplus(x)
    if kind == "negative":
        return -_softplus(x)
    if kind == "small":
        return x / 10
    if kind == "rate":
        return 0.1 / (1 + np.exp(-x))
    if kind == "weights":
        return x / np.sqrt(shape[-2] if len(shape) > 1 else 1)
    return x


def random_inputs(plan: Plan, time: int, seed: int = 0) -> dict[str, Any]:
    """Inputs of a plan for `time` tokens, in its type, so that a call works.

    >>> import ttr
    >>> plan = ttr.plan("gla", key_dim=3, value_dim=2)
    >>> {name: a.shape for name, a in ttr.random_inputs(plan, 4).items()}
    {'q': (1, 4, 1, 3), 'k': (1, 4, 1, 3), 'v': (1, 4, 1, 2), 'gk': (1, 4, 1, 3)}
    """
    rng = np.random.default_rng(seed)
    made = {}
    for info in plan.inputs:
        numbers = draw(info.range, plan.extents(info.shape, time), rng)
        made[info.name] = numbers.astype(plan.dtype if plan.dtype != "bfloat16" else np.float32)
    return made
