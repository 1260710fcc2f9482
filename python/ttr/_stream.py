"""Layers on a stream of rows: every value is predicted from the memory of all earlier rows, then the row is learned."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import _library as l
from ._interval import ErrorVariance
from ._library import Error, lib
from ._plan import Plan, State
from ._ridge import RenewedRidge, older_ridge_rule, ridge_rule, with_ridge_rule


def _split_mix(count: int) -> np.ndarray:
    """The normal numbers that ``ttr regress`` draws: the same matrices in every run, on every machine."""
    mask, state, numbers = (1 << 64) - 1, (2025 * 0x9E3779B97F4A7C15 + 1) & ((1 << 64) - 1), []

    def uniform() -> float:
        nonlocal state
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return (((z ^ (z >> 31)) >> 11) + 0.5) * 2.0**-53

    for _ in range(count):
        first, second = uniform(), uniform()
        numbers.append(math.sqrt(-2 * math.log(first)) * math.cos(6.283185307179586 * second))
    return np.array(numbers)


class Stream:
    """One layer with its memory, fed with rows; double precision. What a model would learn is a constant here.

    Parameters
    ----------
    layer : str
        A name (``"nlms"``), a name with settings (``"rls:decay=0.99,ridge=1e-3"``) or a recipe.
    keys, values : int
        Numbers per row that are known, and that are predicted.

    Attributes
    ----------
    recipe : str
        What runs, with every quantity a constant.
    changes : list of str
        What is not as it was written.

    Examples
    --------
    >>> import numpy as np, ttr
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 3))
    >>> Y = X @ [[1.0], [-2.0], [0.5]]
    >>> stream = ttr.Stream("rls", keys=3)
    >>> before = stream.learn(X, Y)          # each row predicted before it was learned
    >>> bool(abs(before[100:] - Y[100:]).max() < 1e-2)
    True
    >>> stream.predict([[1.0, 0.0, 0.0]]).round(2).tolist()
    [[1.0]]
    """

    def __init__(self, layer: str, keys: int, values: int = 1) -> None:
        self._make(layer, int(keys), int(values), None)

    def _make(self, layer: str, keys: int, values: int, rule: str | None) -> None:
        self.layer, self.keys, self.values = layer, keys, values
        about = l.ask(lib.ttr_stream_describe, layer.encode())
        self._rule = rule or ridge_rule(layer, about, self.keys)
        about = with_ridge_rule(about, self._rule, self.keys)
        self.recipe: str = about["recipe"]
        self.changes: list[str] = about["changes"]
        self._about = about
        memory = self.recipe.split(" / ")[1] if " / " in self.recipe else ""
        if self.values == 1 and "layernorm" in memory:
            raise Error(
                f"the layer '{layer}' has a layer norm over the values of its answer, and there is one value, whose "
                "norm is always zero; leave the layer norm out or predict several values"
            )
        scale = 1.0 if about["as_layer"] else None
        self.plan = Plan(about["text"], key_dim=self.keys, value_dim=self.values, dtype="float64", scale=scale)
        self._sources = {row["name"]: row for row in about["inputs"]}
        for info in self.plan.inputs:
            if info.name not in self._sources and not info.optional:
                raise Error(
                    f"the layer '{layer}' needs the input '{info.name}' ({info.meaning}) for every token, which a stream "
                    f"does not have; write it as a constant: {info.name}=0.5"
                )
        self._maps: dict[str, np.ndarray] = {}
        self._form = "recurrent" if "recurrent" in self.plan.forms else "best"
        self._renewed = RenewedRidge(self.recipe, self.plan) if self._rule == "renewed" else None
        self.reset()

    def reset(self) -> "Stream":
        """Forgets everything."""
        self.state = self.plan.state()
        self._before: State | None = None
        self._pair: tuple[np.ndarray, np.ndarray] | None = None
        return self

    @property
    def rows(self) -> int:
        """Rows learned."""
        return self.state.tokens_seen() if self._renewed is None else self._renewed.rows(self.state)

    @property
    def forgetting(self) -> tuple[float, int] | None:
        """How it forgets: a pair of age n has the weight factor^n, and none after `window` pairs (0: no window)."""
        return self.plan.forgetting if self._renewed is None else (self._renewed.decay, 0)

    def _begin_row(self, state: State) -> None:
        if self._renewed is not None:
            self._renewed.begin_row(state)

    @property
    def solves(self) -> bool:
        """Whether the answer solves a linear least-squares problem, which does not care how large a key is but for the ridge."""
        if self._about["as_layer"]:
            return False
        parts = self.recipe.split(" / ")
        solver, _, extras = parts[2].partition(" | ")
        return parts[1] == "linear" and solver.split("(")[0] == "exact" and "keys" not in extras

    def __repr__(self) -> str:
        return f"<ttr.Stream {self.layer}: {self.recipe}; {self.rows} rows>"

    def _inputs(self, queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> dict[str, Any]:
        time = len(queries)
        rows = {"query": queries, "key": keys, "value": values}
        made = {}
        for info in self.plan.inputs:
            if info.name not in self._sources:
                continue
            source = self._sources[info.name]
            made[info.name] = self._input(info.name, source, self.plan.extents(info.shape, time), time, rows, keys)
        return made

    def _input(
        self,
        name: str,
        source: dict[str, Any],
        extents: tuple[int, ...],
        time: int,
        rows: dict[str, np.ndarray],
        keys: np.ndarray,
    ) -> np.ndarray:
        kind, count = source["source"], math.prod(extents)
        if kind in rows:
            x = rows[kind]
            factor: Any = source["number"]
            if source["unit"]:
                square = (x * x).sum(1, keepdims=True)
                factor = factor / np.sqrt(np.where(square > 0, square, 1.0))
            if source["unit"] or factor != 1 or source["shift"] != 0:
                x = factor * x + source["shift"]
            # Several pairs of a token are the row's own, several times.
            return np.ascontiguousarray(np.tile(x, (1, count // max(x.size, 1))).reshape(extents))
        if kind == "number":
            return np.full(extents, float(source["number"]))
        K = self.keys
        if kind == "identity":
            i = np.arange(count)
            return np.where(i // K % K == i % K, 1.0, 0.0).reshape(extents)
        if kind == "cosine":
            M = count // K
            k, m = np.arange(K)[:, None] + 0.5, np.arange(M)[None, :]
            return (np.sqrt(np.where(m == 0, 1.0, 2.0) / K) * np.cos(np.pi / K * k * m)).reshape(extents)
        if name not in self._maps:
            self._maps[name] = _split_mix(count if kind == "random" else count // time * K)
        if kind == "random":
            return self._maps[name].reshape(extents)
        square = (keys * keys).sum(1, keepdims=True)
        unit = keys / np.sqrt(np.where(square > 0, square, 1.0))
        # Row by row, not as a product of matrices, whose rounding depends on the number of rows.
        scores = (unit[:, None, :] * self._maps[name].reshape(-1, K)).sum(-1)
        if kind == "shares":
            scores = np.exp(scores - scores.max(1, keepdims=True))
            scores /= scores.sum(1, keepdims=True)
        return np.ascontiguousarray(scores.reshape(extents))

    def _rows(self, X: Any, width: int, what: str) -> np.ndarray:
        rows = np.ascontiguousarray(X, dtype=np.float64)
        if rows.ndim == 1:
            rows = rows.reshape(1, -1) if rows.size == width else rows.reshape(-1, 1)
        if rows.ndim != 2 or rows.shape[1] != width:
            raise Error(f"{what} has the shape {np.shape(X)}; the stream has {width} per row")
        return rows

    def learn(self, X: Any, Y: Any) -> np.ndarray:
        """Predicts each row from those before it, then learns it. Returns the predictions [rows, values]."""
        return self._learn(X, Y, None)[0]

    def _learn(self, X: Any, Y: Any, variance: ErrorVariance | None) -> tuple[np.ndarray, np.ndarray]:
        """Also how uncertain they are (`_interval.py`), [rows, 2]."""
        keys, values = self._rows(X, self.keys, "X"), self._rows(Y, self.values, "Y")
        if len(keys) != len(values):
            raise Error(f"X has {len(keys)} rows and Y has {len(values)}")
        answers, uncertain = np.empty_like(values), np.tile([np.inf, 0.0], (len(keys), 1))
        if len(keys) == 0:
            return answers, uncertain
        answers[:1], uncertain[:1] = self._ask(keys[:1], variance)
        if len(keys) > 1 and (self._renewed is not None or (variance is not None and not variance.at_once)):
            self._learn_one_by_one(keys, values, variance, answers, uncertain)
        elif len(keys) > 1:
            inputs = self._inputs(keys[1:], keys[:-1], values[:-1])
            names = (self.plan.outputs[0].name, *(variance.outputs if variance is not None else ()))
            o, *more = self.plan.forward(state=self.state, form=self._form, outputs=names, **inputs)
            answers[1:] = o.reshape(len(keys) - 1, self.values)
            if more:
                uncertain[1:] = [ErrorVariance.judged(*pair) for pair in zip(*(m.ravel().tolist() for m in more))]
        self._before = self.state.clone() if self._before is None else self._before.assign(self.state)
        self._pair = keys[-1:].copy(), values[-1:].copy()
        self._begin_row(self.state)
        self.plan.forward(state=self.state, form="step", **self._inputs(keys[-1:], *self._pair))
        if variance is not None:
            variance.learn(keys[-1:])
        return answers, uncertain

    def _learn_one_by_one(
        self,
        keys: np.ndarray,
        values: np.ndarray,
        variance: ErrorVariance | None,
        answers: np.ndarray,
        uncertain: np.ndarray,
    ) -> None:
        inputs = self._inputs(keys[1:2], keys[:1], values[:1])
        call = self.plan.prepare(state=self.state, form="step", **inputs)
        (o,) = call.outputs.values()
        for r in range(1, len(keys)):
            if r > 1:
                for name, array in self._inputs(keys[r : r + 1], keys[r - 1 : r], values[r - 1 : r]).items():
                    inputs[name][...] = array
            self._begin_row(self.state)
            call()
            answers[r] = o.reshape(self.values)
            if variance is not None:
                variance.learn(keys[r - 1 : r])
                uncertain[r] = variance.ask(keys[r])

    def predict(self, X: Any) -> np.ndarray:
        """Answers [rows, values] from the memory as it is; nothing is learned. Zeros before the first pair."""
        return self._ask(self._rows(X, self.keys, "X"), None)[0]

    def _ask(self, keys: np.ndarray, variance: ErrorVariance | None) -> tuple[np.ndarray, np.ndarray]:
        answers, uncertain = np.zeros((len(keys), self.values)), np.tile([np.inf, 0.0], (len(keys), 1))
        if self._pair is None or self._before is None or len(keys) == 0:
            return answers, uncertain
        # A query leaves no trace in a state: the newest pair is learned once more, on a copy of what was before it.
        again = self._before.clone()
        inputs = self._inputs(keys[:1], *self._pair)
        own = variance is not None and variance.at_once
        names = (self.plan.outputs[0].name, *(variance.outputs if variance is not None and own else ()))
        call = self.plan.prepare(state=again, form="step", outputs=names, **inputs)
        o, *more = call.outputs.values()
        for r in range(len(keys)):
            if r > 0:
                again.assign(self._before)
                for name, array in self._inputs(keys[r : r + 1], *self._pair).items():
                    inputs[name][...] = array
            self._begin_row(again)
            call()
            answers[r] = o.reshape(self.values)
            if more:
                uncertain[r] = ErrorVariance.judged(*(float(m.ravel()[0]) for m in more))
            elif variance is not None:
                uncertain[r] = variance.ask(keys[r])
        return answers, uncertain

    def __getstate__(self) -> dict[str, Any]:
        kept = {"layer": self.layer, "keys": self.keys, "values": self.values, "pair": self._pair, "ridge": self._rule}
        kept["state"] = self.state.to_bytes()
        kept["before"] = self._before.to_bytes() if self._before is not None else None
        kept["room"] = self.state.capacity()
        return kept

    def __setstate__(self, kept: dict[str, Any]) -> None:
        about = l.ask(lib.ttr_stream_describe, kept["layer"].encode())
        rule = kept.get("ridge") or older_ridge_rule(about, kept["keys"])
        Stream._make(self, kept["layer"], kept["keys"], kept["values"], rule)
        room = max(int(kept["room"]), 256)
        self.state = self.plan.state(room).load_bytes(kept["state"])
        self._before = self.plan.state(room).load_bytes(kept["before"]) if kept["before"] is not None else None
        self._pair = kept["pair"]
