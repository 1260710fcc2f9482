"""Online regression for people with data: a scikit-learn estimator, with river's two methods."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np

from ._interval import Conformal, ErrorVariance, Exact
from ._library import Error
from ._stream import Stream

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils.validation import check_array, check_is_fitted, check_X_y

    _SKLEARN = True
except ImportError:  # the same interface without it
    _SKLEARN = False

    class BaseEstimator:  # type: ignore[no-redef]
        def get_params(self, deep: bool = True) -> dict[str, Any]:
            return {name: getattr(self, name) for name in ("layer", "standardize", "intercept", "level", "interval")}

        def set_params(self, **params: Any) -> "BaseEstimator":
            for name, value in params.items():
                if name not in self.get_params():
                    raise ValueError(f"there is no parameter '{name}'; there are {', '.join(self.get_params())}")
                setattr(self, name, value)
            return self

    class RegressorMixin:  # type: ignore[no-redef]
        def score(self, X: Any, y: Any) -> float:
            actual = np.asarray(y, np.float64)
            answer = np.asarray(self.predict(X), np.float64)  # type: ignore[attr-defined]
            return 1 - float(((actual - answer) ** 2).sum() / ((actual - actual.mean(0)) ** 2).sum())


FREE_BIAS = 1000.0
_MOST_ROWS, _MOST_NUMBERS = 1024, 4_000_000


class _Moments:
    """Mean and deviation so far, column by column (Welford)."""

    def __init__(self, columns: int) -> None:
        self.mean, self.squares, self.count = np.zeros(columns), np.zeros(columns), 0

    def add(self, rows: np.ndarray) -> None:
        for row in rows:
            self.count += 1
            before = row - self.mean
            self.mean = self.mean + before / self.count
            self.squares = self.squares + before * (row - self.mean)

    def deviation(self) -> np.ndarray:
        variance = self.squares / max(self.count, 1)
        noise = 1e-14 * np.abs(self.mean)
        varied = (variance > noise * noise) & (variance > 1e-300)
        return np.where(varied, np.sqrt(np.where(varied, variance, 1.0)), 1.0)


class _Units:
    """Columns shifted by their mean and divided by their deviation, taken anew with a quarter more rows: 1, 2, .. 8, 10, 12, .. 1024."""

    def __init__(self, keys: int, values: int, standardize: bool) -> None:
        most = max(1, min(_MOST_NUMBERS // (keys + values + 1), _MOST_ROWS))
        self.last = 1 << (most.bit_length() - 1) if standardize else 0
        self.rows = self.updated = 0
        self.key_moments, self.value_moments = _Moments(keys), _Moments(values)
        self.key_shift, self.key_factor = np.zeros(keys), np.ones(keys)
        self.value_shift, self.value_scale = np.zeros(values), np.ones(values)

    def rows_until_due(self) -> int:
        """How many rows may be seen before new units are taken; 0: there will be no new ones."""
        if self.rows >= self.last:
            return 0
        return min(self.updated + max(1, self.updated // 4), self.last) - self.rows

    def is_due(self) -> bool:
        return self.updated < self.rows <= self.last and (
            self.rows == self.last or self.rows >= self.updated + max(1, self.updated // 4)
        )

    def see(self, X: np.ndarray, Y: np.ndarray) -> None:
        if self.rows < self.last:
            self.key_moments.add(X)
            self.value_moments.add(Y)
        self.rows += len(X)

    def update(self) -> None:
        self.updated = self.rows
        self.key_shift, self.key_factor = self.key_moments.mean, 1 / self.key_moments.deviation()
        self.value_shift, self.value_scale = self.value_moments.mean, self.value_moments.deviation()

    def keys(self, X: np.ndarray) -> np.ndarray:
        return (X - self.key_shift) * self.key_factor if self.last else X

    def values(self, Y: np.ndarray) -> np.ndarray:
        return (Y - self.value_shift) / self.value_scale if self.last else Y


class OnlineRegressor(RegressorMixin, BaseEstimator):
    """Any layer or recipe as an estimator that learns row by row: the numbers of ``ttr regress``.

    Parameters
    ----------
    layer : str, default="rls"
        A layer, a layer with settings or a recipe: ``"nlms"``, ``"rls:decay=0.98,ridge=1"``, ``"kalman"``,
        ``"softmax-attention"``, ``"decay(0.99) / linear / exact(ridge=0.1)"``.
    standardize : bool, default=True
        Show the layer every column shifted by its mean and divided by its deviation, of the rows so far, taken anew
        with a quarter more rows, up to 1024 (the layer then learns the rows so far again). False is ``--raw``.
    intercept : bool or None, default=None
        A key that is always 1; None: as `standardize`.
    level : float, default=0.9
        Of the intervals of :meth:`predict_interval`.
    interval : {"auto", "conformal"}, default="auto"
        "auto": exact intervals for layers that know the variance of their answers (``rls``, ``window-rls``, ``mesanet``,
        ``kalman`` and recipes with ``linear / exact`` or ``linear / kalman``), conformal ones for all others.

    Attributes
    ----------
    stream_ : ttr.Stream
        The layer with its memory.
    recipe_ : str
        What runs.
    interval_ : {"exact", "conformal"}
        Which intervals it has.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> import numpy as np, ttr
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 2))
    >>> y = 3 + X @ [1.0, -2.0] + 0.01 * rng.standard_normal(300)
    >>> model = ttr.OnlineRegressor("rls").fit(X, y)
    >>> model.predict([[0.0, 0.0]]).round(1).tolist()
    [3.0]
    >>> lower, upper = model.predict_interval([[0.0, 0.0]])
    >>> bool(lower[0] < 3 < upper[0])
    True
    """

    def __init__(
        self,
        layer: str = "rls",
        standardize: bool = True,
        intercept: bool | None = None,
        level: float = 0.9,
        interval: str = "auto",
    ) -> None:
        self.layer = layer
        self.standardize = standardize
        self.intercept = intercept
        self.level = level
        self.interval = interval

    def _more_tags(self) -> dict[str, Any]:
        return {"multioutput": True}

    def __sklearn_tags__(self) -> Any:  # scikit-learn 1.6 and above
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.target_tags.multi_output = True
        return tags

    # --- data in and out -----------------------------------------------------------------------------------------

    def _rows(self, X: Any, first: bool) -> np.ndarray:
        if _SKLEARN:
            self._check_names(X, first)
            rows = check_array(X, dtype=np.float64, estimator=self)
        else:
            rows = np.asarray(X, np.float64)
            if rows.ndim != 2 or not np.isfinite(rows).all():
                raise ValueError(f"X has the shape {rows.shape}; rows of finite numbers are needed")
        if first:
            self.n_features_in_ = rows.shape[1]
        elif rows.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features "
                "as input"
            )
        return rows

    def _check_names(self, X: Any, first: bool) -> None:
        check = getattr(self, "_check_feature_names", None)  # up to scikit-learn 1.5 a method
        if check is not None:
            check(X, reset=first)
            return
        from sklearn.utils import validation

        validation._check_feature_names(self, X, reset=first)

    def _values(self, y: Any, rows: int) -> np.ndarray:
        if y is None:
            raise ValueError("this estimator requires y to be passed, but the target y is None")
        values = np.asarray(y)
        if values.dtype.kind in "cSUO":
            values = values.astype(np.float64)
        values = values.astype(np.float64, copy=False)
        if len(values) != rows:
            raise ValueError(f"Found input variables with inconsistent numbers of samples: [{rows}, {len(values)}]")
        if not np.isfinite(values).all():
            raise ValueError("Input y contains NaN or infinity")
        return values

    def _wrap(self, answers: np.ndarray, X: Any) -> Any:
        shaped = answers[:, 0] if self._one_value else answers
        index = getattr(X, "index", None)
        if self._names is None or index is None:
            return shaped
        import pandas

        if self._one_value:
            return pandas.Series(shaped, index=index, name=self._names[0])
        return pandas.DataFrame(shaped, index=index, columns=self._names)

    @staticmethod
    def _names_of(y: Any) -> list[Any] | None:
        if hasattr(y, "index") and hasattr(y, "columns"):
            return list(y.columns)
        if hasattr(y, "index") and hasattr(y, "name") and hasattr(y, "dtype"):
            return [y.name]
        return None

    # --- the estimator -------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> "OnlineRegressor":
        """Forgets everything, then learns the rows in their order."""
        if _SKLEARN:
            self._check_names(X, True)
            check_X_y(X, y, dtype=np.float64, multi_output=True, y_numeric=True, estimator=self)
        for name in ("stream_", "recipe_", "_units"):
            self.__dict__.pop(name, None)
        return self.partial_fit(X, y)

    def partial_fit(self, X: Any, y: Any) -> "OnlineRegressor":
        """Learns further rows."""
        self._learn(X, y)
        return self

    def learn_predict(self, X: Any, y: Any) -> Any:
        """Predicts each row from those before it, then learns it; returns the predictions, as ``ttr regress`` does."""
        return self._wrap(self._learn(X, y), X)

    def _learn(self, X: Any, y: Any) -> np.ndarray:
        first = not hasattr(self, "stream_")
        if _SKLEARN and first:
            check_X_y(X, y, dtype=np.float64, multi_output=True, y_numeric=True, estimator=self)
        rows = self._rows(X, first)
        values = self._values(y, len(rows))
        if first:
            self._start(values, y)
        values = values.reshape(len(rows), -1)
        if values.shape[1] != self.stream_.values:
            raise ValueError(f"y has {values.shape[1]} values per row; this estimator has learned {self.stream_.values}")
        answers = np.empty_like(values)
        at = 0
        while at < len(rows):
            until = self._units.rows_until_due()
            end = min(at + until, len(rows)) if until else len(rows)
            answers[at:end] = self._learn_block(rows[at:end], values[at:end])
            at = end
        return answers

    def _start(self, values: np.ndarray, y: Any) -> None:
        if not 0 < self.level < 1:
            raise Error(f"level is {self.level}; it is a share of values, between 0 and 1")
        if self.interval not in ("auto", "conformal"):
            raise Error(f"interval is '{self.interval}'; it is 'auto', exact where the layer can be, or 'conformal'")
        self._one_value = values.ndim == 1
        self._names = self._names_of(y)
        count = 1 if values.ndim == 1 else values.shape[1]
        self._bias = self.standardize if self.intercept is None else bool(self.intercept)
        self.stream_ = Stream(self.layer, self.n_features_in_ + self._bias, count)
        self.recipe_ = self.stream_.recipe
        self._units = _Units(self.n_features_in_, count, self.standardize)
        self._variance = ErrorVariance.of(self.stream_) if self.interval == "auto" else None
        self.interval_ = "exact" if self._variance is not None else "conformal"
        self._bounds: Exact | Conformal = Conformal(self.level, count)
        if self._variance is not None:
            self._bounds = Exact(self.level, count, self._variance.forgetting, self._variance.window)
        self._past: list[tuple[np.ndarray, np.ndarray]] = []

    def _keys(self, X: np.ndarray) -> np.ndarray:
        keys = self._units.keys(X)
        if not self._bias:
            return keys
        return np.concatenate([keys, np.full((len(keys), 1), FREE_BIAS if self.stream_.solves else 1.0)], axis=1)

    def _learn_block(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        units = self._units
        answers, uncertain = self.stream_._learn(self._keys(X), units.values(Y), self._variance)
        answers = units.value_shift + units.value_scale * answers
        # The noise is that of the values as they come, so that other units leave it alone.
        self._bounds.add(answers, uncertain[:, 0], uncertain[:, 1], Y)
        if units.rows >= units.last:
            return answers
        units.see(X, Y)
        self._past.append((X.copy(), Y.copy()))
        if units.is_due():  # new units, in which the rows so far are learned again
            units.update()
            past_x, past_y = (np.concatenate(part) for part in zip(*self._past))
            self.stream_.reset()
            if self._variance is not None:
                self._variance.reset()
            self.stream_._learn(self._keys(past_x), units.values(past_y), self._variance)
            self._past = [(past_x, past_y)] if units.rows < units.last else []
        return answers

    def _answers(self, X: Any, variance: ErrorVariance | None = None) -> tuple[np.ndarray, np.ndarray]:
        if _SKLEARN:
            check_is_fitted(self, "stream_")
        elif not hasattr(self, "stream_"):
            raise ValueError("this estimator has learned nothing yet; call fit or partial_fit first")
        rows = self._rows(X, False)
        answers, uncertain = self.stream_._ask(self._keys(rows), variance)
        return self._units.value_shift + self._units.value_scale * answers, uncertain[:, 0]

    def predict(self, X: Any) -> Any:
        """Answers from the memory as it is; nothing is learned."""
        return self._wrap(self._answers(X)[0], X)

    def predict_interval(self, X: Any) -> tuple[Any, Any]:
        """Lower and upper bounds between which the share `level` of values should fall: those of ``ttr regress --interval``.

        Exact (``interval_``): Student's t, with the variance that the layer itself gives for each row and the noise of the
        rows so far; wider where little is known. Conformal: a quantile of the last 500 errors of predictions made before
        their row was learned, whatever the errors are. Infinite until enough is known.
        """
        answers, variances = self._answers(X, self._variance)
        half = self._bounds.half_widths(variances)
        return self._wrap(answers - half, X), self._wrap(answers + half, X)

    # --- river ---------------------------------------------------------------------------------------------------

    def learn_one(self, x: Mapping[Any, float], y: float) -> "OnlineRegressor":
        """One row as a mapping from names to numbers; names that were not in the first row are refused."""
        if not hasattr(self, "_order"):
            self._order = list(x)
        self._learn_row(self._row_of(x), y)
        return self

    def _learn_row(self, row: np.ndarray, y: float) -> None:
        if not hasattr(self, "stream_"):
            self.n_features_in_ = row.shape[1]
            self._start(np.zeros(1), None)
        self._learn_block(row, np.array([[float(y)]]))

    def predict_one(self, x: Mapping[Any, float]) -> float:
        """The answer for one row; 0 before the first was learned."""
        if not hasattr(self, "stream_"):
            return 0.0
        units = self._units
        keys = self._keys(self._row_of(x))
        return float(units.value_shift[0] + units.value_scale[0] * self.stream_.predict(keys)[0, 0])

    def _row_of(self, x: Mapping[Any, float]) -> np.ndarray:
        if set(x) != set(self._order):
            raise Error(f"the row has {sorted(map(str, x))}; the first one had {sorted(map(str, self._order))}")
        row = np.array([[float(x[name]) for name in self._order]])
        if not np.isfinite(row).all():
            raise Error(f"the row {dict(x)} has a number that is not finite")
        return row
