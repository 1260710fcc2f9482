"""A ridge beside pairs that fade, without a factorisation per row: the rules and the numbers of ``cli/regress_ridge.h``.

A ridge that stays costs a factorisation per row, ``K^3 / 6``. One that is renewed fades with the pairs, and every row renews
the parts of the next keys, in turn, such that the mean of a part over the rows between two turns is the ridge.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from ._plan import Call, Plan, State

_MOST_KEYS_OF_A_NAME, _MOST_KEYS_TO_FACTORISE, _LEAST_DECAY = 16, 256, 0.9


def _numbers(recipe: str) -> tuple[float, float] | None:
    """Decay and ridge of least squares that has these and nothing else."""
    found = re.fullmatch(r"decay\(([^(),]+)\) / linear / exact\(ridge=([^(),]+)\)", recipe)
    return (float(found[1]), float(found[2])) if found and float(found[2]) > 0 else None


def older_ridge_rule(about: dict[str, Any], keys: int) -> str:
    """The rule before there was a ridge that is renewed."""
    if about["as_layer"] or keys <= _MOST_KEYS_TO_FACTORISE:
        return "stays"
    parts = about["recipe"].split(" / ")
    weights, memory, solver = parts[0], parts[1], parts[2].split(" | ")[0]
    words = {w.split("(")[0] for w in weights.split(" * ")}
    if memory != "linear" or not solver.startswith("exact(") or "ridge" not in solver:
        return "stays"
    if "decay" not in words or "window" in words or any(k in solver for k in ("relative", "frobenius", "fading")):
        return "stays"
    return "fades"


def ridge_rule(layer: str, about: dict[str, Any], keys: int) -> str:
    """A name follows the rule from 17 keys on, a recipe is what it says up to 256."""
    if about["as_layer"] or keys <= (_MOST_KEYS_TO_FACTORISE if "/" in layer else _MOST_KEYS_OF_A_NAME):
        return "stays"
    numbers = _numbers(about["recipe"])
    return "renewed" if numbers and _LEAST_DECAY <= numbers[0] < 1 else older_ridge_rule(about, keys)


def with_ridge_rule(about: dict[str, Any], rule: str, keys: int) -> dict[str, Any]:
    """What runs instead; "renewed": `text` is for the plan, which does not fade by itself."""
    if rule == "stays":
        return about
    how, recipe = "fades with the pairs,", about["recipe"]
    if rule == "fades":
        solver = recipe.split(" / ")[2].split(" | ")[0]
        text = recipe = recipe.replace(solver, solver[:-1] + ", fading)")
    else:
        how = "fades with the pairs and is renewed key by key, in turn,"
        text = "equal" + recipe[recipe.index(" / ") :]
    change = f"the ridge {how} because with {keys} keys one that stays would cost a factorisation per row"
    return {**about, "recipe": recipe, "text": text, "changes": about["changes"] + [change]}


class RenewedRidge:
    """Fades the state of a plan that does not fade, and renews its ridge."""

    def __init__(self, recipe: str, plan: Plan) -> None:
        numbers = _numbers(recipe)
        assert numbers is not None
        self.plan, (self.decay, self.ridge) = plan, numbers
        self.keys = plan.key_dim
        self.per_row = min(max(math.ceil(self.keys * (1 - self.decay)), 1), self.keys)
        rows = self.keys / self.per_row
        self._renewed = rows * (1 - self.decay) / (1 - self.decay**rows)
        self._rows = np.zeros((1, self.per_row, 1, self.keys))
        self._nothing = {"q": np.zeros_like(self._rows), "v": np.zeros((1, self.per_row, 1, plan.value_dim))}
        self._calls: list[tuple[State, Call]] = []  # prepared for the states of late

    def rows(self, state: State) -> int:
        return state.tokens_seen() // (self.per_row + 1)

    def _part(self, turn: int, row: int) -> float:
        if turn < self.keys:
            return self.decay ** float(row + 1)
        return self._renewed * self.decay ** float(row - (turn - self.keys) // self.per_row)

    def begin_row(self, state: State) -> None:
        """To be called before each pair; a state has seen nothing else."""
        row, root = self.rows(state), math.sqrt(self.decay)
        state["R"][...] *= root
        state["Z"][...] *= root
        self._rows[...] = 0
        for i in range(self.per_row):
            turn = row * self.per_row + i
            self._rows[0, i, 0, turn % self.keys] = math.sqrt(self.ridge * (self._renewed - self._part(turn, row)))
        self._call_of(state)()

    def _call_of(self, state: State) -> Call:
        for kept, call in self._calls:
            if kept is state:
                return call
        call = self.plan.prepare(state=state, form="recurrent", outputs=(), k=self._rows, **self._nothing)
        self._calls = [*self._calls[-2:], (state, call)]
        return call
