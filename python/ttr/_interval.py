"""Intervals of predictions: exact ones for layers that know the variance of their answers, conformal ones for all others.

The numbers are those of ``ttr regress --interval``; the derivation is in ``cli/interval.h`` and docs/regress.md. Before a row
with the key x is learned its error has the variance s^2 c. The layer says c (its output ``variance``), s^2 is estimated from
the errors so far, each with the share u of c that does not come from the prior (its output ``known``):

    s^2 = sum w u e^2 / c / sum w u ,     y in S'x -+ t s sqrt(c) ,     t of Student with (sum w u)^2 / (sum w^2 u) degrees
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from ._plan import Plan, State

if TYPE_CHECKING:
    from ._stream import Stream


def _beta_fraction(a: float, b: float, x: float, rest: float) -> float:
    """The regularised incomplete beta function by its continued fraction; rest = 1 - x. For x < (a + 1) / (a + b + 2)."""
    tiny = 1e-300
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)) / a
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) >= tiny else tiny)
    value = d
    for m in range(1, 10000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 + term * d, 1 + term / c
            d, c = 1 / (d if abs(d) >= tiny else tiny), c if abs(c) >= tiny else tiny
            value *= d * c
        if abs(d * c - 1) < 1e-16:
            break
    return front * value


def student_tail(t: float, degrees: float) -> float:
    """P(|T| > t), t > 0."""
    a, b, x, rest = degrees / 2, 0.5, degrees / (degrees + t * t), t * t / (degrees + t * t)
    if x < (a + 1) / (a + b + 2):
        return _beta_fraction(a, b, x, rest)
    return 1 - _beta_fraction(b, a, rest, x)


def student_quantile(level: float, degrees: float) -> float:
    """The t with P(|T| <= t) = level; degrees > 0, not necessarily whole.

    >>> round(student_quantile(0.9, 5.0), 6), round(student_quantile(0.95, 1e9), 6)
    (2.015048, 1.959964)
    """
    wanted, few = 1 - level, degrees < 1000
    root = math.sqrt(degrees * math.pi) if few else 1.0
    log_factor = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) if few else 0.0
    # Newton on the logarithms of both: from above it comes down to the root and cannot pass it.
    log_t, above = 0.0, False
    for _ in range(2000):
        t = math.exp(log_t)
        if few:
            p = student_tail(t, degrees)
            density = 2 * math.exp(log_factor - (degrees + 1) / 2 * math.log1p(t * t / degrees)) / root
        else:
            p, density = math.erfc(t / math.sqrt(2)), math.sqrt(2 / math.pi) * math.exp(-t * t / 2)
        step = p * (math.log(p) - math.log(wanted)) / (t * density)
        if above and step > -1e-15:
            break
        above = step <= 0
        log_t += min(step, 0.5)
    z = math.exp(log_t)
    if few:
        return z
    z2, n = z * z, 1 / degrees  # around the normal: Abramowitz and Stegun 26.7.5
    first, second = (z2 + 1) / 4, ((5 * z2 + 16) * z2 + 3) / 96
    third = (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384
    fourth = ((((79 * z2 + 776) * z2 + 1482) * z2 - 1920) * z2 - 945) / 92160
    return z * (1 + n * (first + n * (second + n * (third + n * fourth))))


class Conformal:
    """Adaptive conformal inference (Gibbs and Candes 2021): a quantile of the last 500 errors, moved by every miss."""

    RATE, MOST = 0.02, 500

    def __init__(self, level: float, values: int) -> None:
        self.level, self.miss = level, np.full(values, 1 - level)
        self.errors: list[np.ndarray] = []
        self.next = 0

    def half_widths(self, variances: np.ndarray) -> np.ndarray:
        return np.tile(self._half(), (len(variances), 1))

    def _half(self) -> np.ndarray:
        n = len(self.errors)
        half = np.full(self.miss.shape, np.inf)
        if n * (1 - self.level) < 1 - 1e-9:
            return half
        ranked = np.sort(np.stack(self.errors), axis=0)
        for v, miss in enumerate(self.miss):
            place = math.ceil((n + 1) * (1 - miss))
            if place > n:
                half[v] = (1 if miss > 0 else 2) * ranked[-1, v]
            else:
                half[v] = 0 if place < 1 else ranked[place - 1, v]
        return half

    def add(self, answers: np.ndarray, variances: np.ndarray, shares: np.ndarray, actual: np.ndarray) -> None:
        for error in np.abs(actual - answers):
            half = self._half()
            if not np.isfinite(error).all():
                continue
            self.miss = np.where(
                np.isfinite(half), self.miss + self.RATE * ((1 - self.level) - (error > half)), self.miss
            )
            if len(self.errors) < self.MOST:
                self.errors.append(error)
            else:
                self.errors[self.next] = error
                self.next = (self.next + 1) % self.MOST


class Exact:
    """The noise of a layer that says its variances, with the forgetting or the window of its fit."""

    def __init__(self, level: float, values: int, forgetting: float, window: int) -> None:
        self.level, self.forgetting, self.window = level, forgetting, window
        self.sums = np.zeros(values + 2)  # of u, u, u e^2 / c .., which fade by a, a^2, a ..
        self.fade = np.full(values + 2, forgetting)
        self.fade[1] = forgetting * forgetting
        self.entries: deque[np.ndarray] = deque(maxlen=window or 1)

    def half_widths(self, variances: np.ndarray) -> np.ndarray:
        if self.window:  # summed anew: nothing is ever taken away from a sum, which would leave its rounding
            self.sums = np.zeros_like(self.sums)
            for entry in self.entries:
                self.sums = self.sums * self.fade + entry
        degrees = self.sums[0] ** 2 / self.sums[1] if self.sums[1] > 0 else 0.0
        if degrees < 1 - 1e-9:
            return np.full((len(variances), len(self.sums) - 2), np.inf)
        noise = np.sqrt(self.sums[2:] / self.sums[0])
        return np.where(
            np.isfinite(variances)[:, None],
            student_quantile(self.level, float(degrees)) * noise * np.sqrt(np.where(np.isfinite(variances), variances, 1.0))[:, None],
            np.inf,
        )

    def add(self, answers: np.ndarray, variances: np.ndarray, shares: np.ndarray, actual: np.ndarray) -> None:
        for answer, c, u, value in zip(answers, variances, shares, actual):
            squares = (value - answer) ** 2 / c
            if u <= 0 or np.isnan(squares).any():
                u, squares = 0.0, np.zeros_like(squares)
            entry = np.concatenate([[u, u], u * squares])
            if self.window:
                self.entries.append(entry)
            else:
                self.sums = self.sums * self.fade + entry


class ErrorVariance:
    """Asks the layer of a stream for c and u; `None` from :meth:`of` where it has none."""

    def __init__(self, stream: "Stream") -> None:
        plan = stream.plan
        forgetting = stream.forgetting
        assert forgetting is not None
        self.stream = stream
        self.forgetting, self.window = forgetting
        self.says_known = any(i.name == "known" for i in plan.outputs)
        # An empty pair leaves such a layer as it is: its own answers say what comes next, for many rows in one call.
        self.at_once = stream.recipe.split(" / ")[2].startswith("exact") and self.forgetting == 1
        self.filter: Plan | None = None
        if not self.says_known:  # what is left of the first guess, by a filter that starts with its root and sees zeros
            self.filter = Plan(stream.recipe, key_dim=plan.key_dim, value_dim=plan.key_dim, dtype="float64")
        self.reset()

    @staticmethod
    def of(stream: "Stream") -> "ErrorVariance | None":
        named = any(i.name == "variance" for i in stream.plan.outputs)
        return ErrorVariance(stream) if named and not stream._about["as_layer"] and stream.plan.forgetting else None

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("variance", "known") if self.says_known else ("variance",)

    def reset(self) -> None:
        self._forecast: Any = None
        self._prior: State | None = None
        if self.filter is None:
            return
        self._prior = self.filter.state()
        root = np.sqrt(np.diagonal(self._prior["P"][0, 0]))
        np.fill_diagonal(self._prior["S"][0, 0], root)

    def learn(self, keys: np.ndarray) -> None:
        """The rows of a block were learned."""
        if self.filter is None or self._prior is None or len(keys) == 0:
            return
        rows = np.ascontiguousarray(keys)[None, :, None, :]
        self.filter.forward(state=self._prior, form="recurrent", q=rows, k=rows, v=np.zeros_like(rows))

    def ask(self, query: np.ndarray) -> tuple[float, float]:
        """c and u of the answer that the layer would give now, on a copy of its state and after an empty pair."""
        stream = self.stream
        if self._forecast is None or self._forecast[0].nbytes != stream.state.nbytes:  # a list may have grown
            copy = stream.state.clone()
            K, V = stream.keys, stream.values
            q = np.zeros((1, 1, 1, K))
            nothing = {"k": np.zeros((1, 1, 1, K)), "v": np.zeros((1, 1, 1, V))}
            call = stream.plan.prepare(state=copy, outputs=self.outputs, form="step", q=q, **nothing)
            self._forecast = copy, q, call
        copy, q, call = self._forecast
        copy.assign(stream.state)
        q[...] = query.reshape(q.shape)
        stream._begin_row(copy)
        call()
        c = float(call.outputs["variance"].ravel()[0])
        if self.filter is None or self._prior is None:
            return self.judged(c, float(call.outputs["known"].ravel()[0]))
        left = query @ self._prior["S"][0, 0]
        return self.judged(c, 1 - float(left @ left) / c)

    @staticmethod
    def judged(c: float, known: float) -> tuple[float, float]:
        if known == 0 or not c < math.inf:
            return math.inf, 0.0
        return c, min(max(known, 0.0), 1.0)

    def __getstate__(self) -> dict[str, Any]:
        return {"stream": self.stream, "prior": self._prior.to_bytes() if self._prior is not None else None}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        ErrorVariance.__init__(self, kept["stream"])
        if kept["prior"] is not None and self._prior is not None:
            self._prior.load_bytes(kept["prior"])
