"""Checks of a layer or recipe: kernel against the literal solver, forms, splits and gradients against each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._library import Error
from ._plan import Plan
from ._random import random_inputs


@dataclass
class Report:
    """What was compared: ``rows`` of (name, error, tolerance); ``ok`` if all are within theirs."""

    layer: str
    rows: list[tuple[str, float, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return bool(self.rows) and all(error <= tolerance for _, error, tolerance in self.rows)

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        lines = [f"{self.layer}: {'all passed' if self.ok else 'FAILED'}"]
        lines += [f"  {n:<28} {e:.1e}  (tolerance {t:.0e}){'' if e <= t else '  FAILED'}" for n, e, t in self.rows]
        return "\n".join(lines + [f"  {note}" for note in self.notes])


def _off(a: np.ndarray, b: np.ndarray) -> float:
    if a.size == 0:
        return 0.0
    return float(np.abs(a - b).max() / max(float(np.abs(b).max()), 1.0))


def check(
    layer: str,
    *,
    batch: int = 2,
    time: int = 7,
    heads: int = 2,
    key_dim: int = 3,
    value_dim: int = 3,
    seed: int = 1,
    gradients: bool = True,
    **options: Any,
) -> Report:
    """Runs a layer or recipe in double and compares it with itself in every other way.

    The kernel with the oracle (the literal solver) where it computes the same, every form with the recurrent one, tokens
    one by one and a sequence cut in two with the whole, and every gradient with a central difference. ``ttr check`` of
    the command line does more of the same.

    >>> import ttr
    >>> bool(ttr.check("equal / linear / sgd(beta, decay)"))
    True
    """
    shape = dict(batch=batch, heads=heads, key_dim=key_dim, value_dim=value_dim, dtype="float64", **options)
    plan = Plan(layer, **shape)
    report = Report(plan.name)
    inputs = random_inputs(plan, time, seed)
    whole = plan.forward(form="recurrent" if "recurrent" in plan.forms else "best", **inputs)
    try:
        literal = Plan(layer, kernel="oracle", **shape)
        report.rows.append(("oracle", _off(whole, literal.forward(**inputs)), 1e-9))
    except Error as refused:
        report.notes.append(f"no oracle: {refused}")
    for form in plan.forms:
        if form not in ("step", "recurrent"):
            report.rows.append((f"form {form}", _off(plan.forward(form=form, **inputs), whole), 1e-9))
    if plan.causal and "step" in plan.forms:
        _splits(report, plan, inputs, whole, time)
    if gradients:
        _gradients(report, plan, inputs, seed)
    return report


def _cut(plan: Plan, inputs: dict[str, Any], begin: int, end: int) -> dict[str, Any]:
    """Tokens begin .. end-1 of every input that has an axis of time (or of pairs, several per token)."""
    part = {}
    for info in plan.inputs:
        a, letters = inputs[info.name], info.shape.split()
        for letter in ("T", "P"):
            if letter in letters:
                axis = letters.index(letter)
                per = a.shape[axis] // _tokens(plan, inputs)
                a = a[(slice(None),) * axis + (slice(begin * per, end * per),)]
        part[info.name] = a
    return part


def _tokens(plan: Plan, inputs: dict[str, Any]) -> int:
    return next(inputs[i.name].shape[i.shape.split().index("T")] for i in plan.inputs if "T" in i.shape.split())


def _splits(report: Report, plan: Plan, inputs: dict[str, Any], whole: np.ndarray, time: int) -> None:
    if not any("T" in i.shape.split() for i in plan.inputs):
        return
    for name, bounds in (("token by token", range(time + 1)), ("cut in two", (0, time // 2, time))):
        state, parts = plan.state(time), []
        for begin, end in zip(list(bounds)[:-1], list(bounds)[1:]):
            form = "step" if end - begin == 1 else "best"
            parts.append(plan.forward(state=state, form=form, **_cut(plan, inputs, begin, end)))
        report.rows.append((name, _off(np.concatenate(parts, axis=1), whole), 1e-9))


def _gradients(report: Report, plan: Plan, inputs: dict[str, Any], seed: int) -> None:
    rng = np.random.default_rng(seed + 1)
    o = plan.forward(**inputs)
    d_o = rng.standard_normal(o.shape)
    try:
        analytic = plan.backward(d_outputs={plan.outputs[0].name: d_o}, **inputs)
    except Error as refused:
        report.notes.append(f"no gradient: {refused}")
        return
    for name, gradient in analytic.items():
        direction = rng.standard_normal(gradient.shape)
        step = 1e-5
        sides = []
        for sign in (1, -1):
            moved = dict(inputs)
            moved[name] = inputs[name] + sign * step * direction
            sides.append(float((plan.forward(**moved) * d_o).sum()))
        numeric = (sides[0] - sides[1]) / (2 * step)
        exact = float((gradient * direction).sum())
        scale = max(abs(numeric), float(np.abs(gradient).max()), 1.0)
        report.rows.append((f"gradient of {name}", abs(exact - numeric) / scale, 1e-4))
