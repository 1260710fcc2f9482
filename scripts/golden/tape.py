"""Reverse-mode differentiation of numpy arrays in double: as much of it as the equations of the golden vectors use.

A `Tensor` holds its value and, for every tensor it was made from, the function that carries a gradient back to that
one. `gradients(loss, leaves)` goes through them from the newest to the oldest. The functions are themselves written
with tensors, so with `keep=True` a gradient can be differentiated again: a layer that trains a network inside its
forward pass needs that.

Traps. Products of arrays of other shapes broadcast as in numpy, and the gradient is summed back. `einsum` refuses
an index that only one operand has and the result has not: its gradient would have to be repeated. `maximum` and
`where` give the whole gradient to the one that was chosen; `absolute` and `relu` have gradient 0 at 0. `choices()`
records what they chose: between two points that chose alike there is no kink. `solve` takes right-hand sides as columns.
"""
from __future__ import annotations

import contextlib
import math
from typing import Callable, Iterator, Optional, Sequence, Union

import numpy as np

Number = Union[int, float, np.ndarray, 'Tensor']
_recording = True
_choices: Optional[list[bytes]] = None
_made = 0
_erf = np.vectorize(math.erf, otypes=[float])


class Tensor:
    """A double array that knows what it was made from."""

    __slots__ = ('value', 'origins', 'number', 'wanted')
    __array_ufunc__ = None  # numpy leaves `array * tensor` to the tensor

    def __init__(self, value: object, origins: Sequence[tuple] = (), wanted: bool = False) -> None:
        global _made
        _made += 1
        self.value = np.asarray(value, dtype=np.float64)
        self.number = _made
        self.origins = tuple(o for o in origins if o[0].wanted) if _recording else ()
        self.wanted = wanted or bool(self.origins)

    @property
    def shape(self) -> tuple:
        return self.value.shape

    @property
    def T(self) -> Tensor:
        """The last two axes swapped."""
        return swap(self, -1, -2)

    def __add__(self, other: Number) -> Tensor:
        other = tensor(other)
        return Tensor(self.value + other.value, ((self, lambda g: _fold(g, self.shape)),
                                                 (other, lambda g: _fold(g, other.shape))))

    def __mul__(self, other: Number) -> Tensor:
        other = tensor(other)
        return Tensor(self.value * other.value, ((self, lambda g: _fold(g * other, self.shape)),
                                                 (other, lambda g: _fold(g * self, other.shape))))

    def __truediv__(self, other: Number) -> Tensor:
        other = tensor(other)
        return Tensor(self.value / other.value, ((self, lambda g: _fold(g / other, self.shape)),
                                                 (other, lambda g: _fold(-g * self / (other * other), other.shape))))

    def __pow__(self, power: float) -> Tensor:
        return Tensor(self.value ** power, ((self, lambda g: g * (power * self ** (power - 1))),))

    def __matmul__(self, other: Number) -> Tensor:
        other = tensor(other)
        return Tensor(self.value @ other.value, ((self, lambda g: _fold(g @ other.T, self.shape)),
                                                 (other, lambda g: _fold(self.T @ g, other.shape))))

    def __getitem__(self, index: object) -> Tensor:
        return Tensor(self.value[index], ((self, lambda g: _put(g, index, self.shape)),))

    def __neg__(self) -> Tensor:
        return self * -1.0

    def __sub__(self, other: Number) -> Tensor:
        return self + -tensor(other)

    def __rsub__(self, other: Number) -> Tensor:
        return tensor(other) - self

    def __rtruediv__(self, other: Number) -> Tensor:
        return tensor(other) / self

    def __rmatmul__(self, other: Number) -> Tensor:
        return tensor(other) @ self

    __radd__ = __add__
    __rmul__ = __mul__


def tensor(x: Number) -> Tensor:
    """x as a tensor; an array becomes a constant."""
    return x if isinstance(x, Tensor) else Tensor(x)


def leaf(x: np.ndarray) -> Tensor:
    """A tensor to differentiate with respect to."""
    return Tensor(x, wanted=True)


def watched(x: Number) -> Tensor:
    """x as something to differentiate with respect to inside an equation, and through which gradients go on."""
    x = tensor(x)
    return Tensor(x.value, ((x, lambda g: g),), wanted=True)


@contextlib.contextmanager
def _recorded(on: bool) -> Iterator[None]:
    global _recording
    before, _recording = _recording, on
    try:
        yield
    finally:
        _recording = before


@contextlib.contextmanager
def choices() -> Iterator[list[bytes]]:
    """The list of what `absolute`, `relu`, `maximum` and `where` choose meanwhile."""
    global _choices
    before, _choices = _choices, []
    try:
        yield _choices
    finally:
        _choices = before


def _note(choice: np.ndarray) -> None:
    if _choices is not None:
        _choices.append(np.asarray(choice).tobytes())


def gradients(loss: Tensor, leaves: Sequence[Tensor], keep: bool = False) -> list[Tensor]:
    """The gradient of the scalar `loss` for every leaf; zeros where it does not depend on one. `keep` records the
    gradients, so that they can be differentiated again. What a leaf was made from is not looked at."""
    ends = {x.number for x in leaves}
    reached, open_ends = {loss.number: loss}, [loss]
    while open_ends:
        for origin, _ in open_ends.pop().origins:
            if origin.number not in reached:
                reached[origin.number] = origin
                if origin.number not in ends:
                    open_ends.append(origin)
    found: dict[int, Tensor] = {loss.number: Tensor(np.ones(loss.shape))}
    with _recorded(keep):
        for number in sorted(reached, reverse=True):
            if number not in found or number in ends:
                continue
            for origin, back in reached[number].origins:
                part = back(found[number])
                found[origin.number] = found[origin.number] + part if origin.number in found else part
    return [found.get(x.number, Tensor(np.zeros(x.shape))) for x in leaves]


def _fold(g: Tensor, shape: tuple) -> Tensor:
    """The sum of g over the axes along which an operand of that shape was repeated."""
    if g.shape == shape:
        return g
    extra = len(g.shape) - len(shape)
    axes = tuple(i for i, n in enumerate(g.shape) if i < extra or (shape[i - extra] == 1 and n != 1))
    return reshape(total(g, axes), shape)


def _put(g: Tensor, index: object, shape: tuple) -> Tensor:
    """Zeros of that shape with g added at the index."""
    value = np.zeros(shape)
    np.add.at(value, index, g.value)
    return Tensor(value, ((g, lambda h: h[index]),))


def _pointwise(x: Number, value: Callable[[np.ndarray], np.ndarray],
               slope: Callable[[Tensor, Tensor], Number]) -> Tensor:
    """value(x), whose derivative is slope(x, result)."""
    x = tensor(x)
    result = Tensor(value(x.value), ((x, lambda g: g * slope(x, result)),))
    return result


def exp(x: Number) -> Tensor:
    return _pointwise(x, np.exp, lambda _, y: y)


def expm1(x: Number) -> Tensor:
    return _pointwise(x, np.expm1, lambda x, _: exp(x))


def log(x: Number) -> Tensor:
    return _pointwise(x, np.log, lambda x, _: 1.0 / x)


def log1p(x: Number) -> Tensor:
    return _pointwise(x, np.log1p, lambda x, _: 1.0 / (1.0 + x))


def sqrt(x: Number) -> Tensor:
    return _pointwise(x, np.sqrt, lambda _, y: 0.5 / y)


def sin(x: Number) -> Tensor:
    return _pointwise(x, np.sin, lambda x, _: cos(x))


def cos(x: Number) -> Tensor:
    return _pointwise(x, np.cos, lambda x, _: -sin(x))


def tanh(x: Number) -> Tensor:
    return _pointwise(x, np.tanh, lambda _, y: 1.0 - y * y)


def sigmoid(x: Number) -> Tensor:
    return _pointwise(x, lambda v: np.exp(-np.logaddexp(0, -v)), lambda _, y: y * (1.0 - y))


def softplus(x: Number) -> Tensor:
    return _pointwise(x, lambda v: np.logaddexp(0, v), lambda x, _: sigmoid(x))


def log_sigmoid(x: Number) -> Tensor:
    return -softplus(-tensor(x))


def silu(x: Number) -> Tensor:
    return tensor(x) * sigmoid(x)


def erf(x: Number) -> Tensor:
    return _pointwise(x, _erf, lambda x, _: exp(-x * x) * (2 / math.sqrt(math.pi)))


def gelu(x: Number) -> Tensor:
    """x times the normal distribution function of x."""
    return 0.5 * tensor(x) * (1.0 + erf(tensor(x) * math.sqrt(0.5)))


def absolute(x: Number) -> Tensor:
    x = tensor(x)
    _note(x.value > 0)
    return _pointwise(x, np.abs, lambda x, _: np.sign(x.value))


def relu(x: Number) -> Tensor:
    x = tensor(x)
    _note(x.value > 0)
    return _pointwise(x, lambda v: np.maximum(v, 0), lambda x, _: (x.value > 0).astype(float))


def where(choice: np.ndarray, x: Number, y: Number) -> Tensor:
    """x where `choice` holds, else y; the choice is not differentiated."""
    x, y = tensor(x), tensor(y)
    _note(choice)
    mask = np.asarray(choice, dtype=float)
    return Tensor(np.where(choice, x.value, y.value), ((x, lambda g: _fold(g * mask, x.shape)),
                                                       (y, lambda g: _fold(g * (1 - mask), y.shape))))


def maximum(x: Number, y: Number) -> Tensor:
    x, y = tensor(x), tensor(y)
    return where(x.value >= y.value, x, y)


def total(x: Number, axis: Union[int, tuple, None] = None, keep: bool = False) -> Tensor:
    """The sum over an axis, or over all; `keep` leaves an axis of length 1."""
    x = tensor(x)
    kept = x.value.sum(axis=axis, keepdims=True).shape
    return Tensor(x.value.sum(axis=axis, keepdims=keep), ((x, lambda g: reshape(g, kept) * np.ones(x.shape)),))


def mean(x: Number, axis: int = -1, keep: bool = False) -> Tensor:
    x = tensor(x)
    return total(x, axis, keep) / x.shape[axis]


def reshape(x: Number, shape: tuple) -> Tensor:
    x = tensor(x)
    return Tensor(x.value.reshape(shape), ((x, lambda g: reshape(g, x.shape)),))


def swap(x: Number, a: int, b: int) -> Tensor:
    x = tensor(x)
    return Tensor(np.swapaxes(x.value, a, b), ((x, lambda g: swap(g, a, b)),))


def concatenate(parts: Sequence[Number], axis: int) -> Tensor:
    parts = [tensor(p) for p in parts]
    ends = np.cumsum([p.shape[axis] for p in parts])

    def cut(i: int) -> Callable[[Tensor], Tensor]:
        def back(g: Tensor) -> Tensor:
            index = [slice(None)] * len(g.shape)
            index[axis] = slice(ends[i] - parts[i].shape[axis], ends[i])
            return g[tuple(index)]
        return back
    return Tensor(np.concatenate([p.value for p in parts], axis), [(p, cut(i)) for i, p in enumerate(parts)])


def stack(parts: Sequence[Number], axis: int) -> Tensor:
    """The parts side by side along a new axis (not a negative one)."""
    return concatenate([reshape(p, tensor(p).shape[:axis] + (1,) + tensor(p).shape[axis:]) for p in parts], axis)


def repeat_heads(x: Number, heads: int, axis: int = 2) -> Tensor:
    """Head h of the result is head h // (heads / n) of x, which has n heads."""
    x = tensor(x)
    index: list = [slice(None)] * len(x.shape)
    index[axis] = np.arange(heads) // (heads // x.shape[axis])
    return x if x.shape[axis] == heads else x[tuple(index)]


def cumulated(x: Number, axis: int = 1) -> Tensor:
    """Running sums."""
    x = tensor(x)
    return Tensor(np.cumsum(x.value, axis), ((x, lambda g: _summed_from(g, axis)),))


def _summed_from(x: Tensor, axis: int) -> Tensor:
    """Sums of what follows, itself included."""
    value = np.flip(np.cumsum(np.flip(x.value, axis), axis), axis)
    return Tensor(value, ((x, lambda g: cumulated(g, axis)),))


def einsum(indices: str, *operands: Number) -> Tensor:
    """numpy's einsum for letters without repetition inside an operand."""
    values = [tensor(x) for x in operands]
    before, after = indices.split('->')
    names = before.split(',')

    def back(i: int) -> Callable[[Tensor], Tensor]:
        others = [j for j in range(len(values)) if j != i]
        have = set(after).union(*(names[j] for j in others))
        if not set(names[i]) <= have:
            raise ValueError(f"einsum '{indices}': an index of operand {i + 1} is in nothing else; sum it first.")
        rule = ','.join([after] + [names[j] for j in others]) + '->' + names[i]
        return lambda g: einsum(rule, g, *(values[j] for j in others))
    return Tensor(np.einsum(indices, *(x.value for x in values), optimize=len(values) > 2),
                  [(x, back(i)) for i, x in enumerate(values) if x.wanted])


def solve(matrix: Number, right: Number) -> Tensor:
    """matrix^{-1} right, for columns `right` [..., n, m]."""
    matrix, right = tensor(matrix), tensor(right)

    def back_matrix(g: Tensor) -> Tensor:
        return _fold(-(solve(matrix.T, g) @ result.T), matrix.shape)
    result = Tensor(np.linalg.solve(matrix.value, right.value),
                    ((matrix, back_matrix), (right, lambda g: _fold(solve(matrix.T, g), right.shape))))
    return result


def softmax(x: Number, allowed: Optional[np.ndarray] = None) -> Tensor:
    """Softmax over the last axis, among what is allowed."""
    x = tensor(x)
    if allowed is not None:
        x = where(allowed, x, -np.inf)
    weights = exp(x - x.value.max(-1, keepdims=True))
    return weights / total(weights, -1, keep=True)


def log_sum_exp(x: Number) -> Tensor:
    """log of the sum of exp over the last axis."""
    x = tensor(x)
    top = x.value.max(-1)
    return log(total(exp(x - top[..., None]), -1)) + top


def log_add_exp(x: Number, y: Number) -> Tensor:
    """log(exp x + exp y)."""
    x, y = tensor(x), tensor(y)
    return x + softplus(y - x)


def norm(x: Number, axes: Union[int, tuple] = -1, keep: bool = True) -> Tensor:
    """The Euclidean norm over the axes."""
    x = tensor(x)
    return sqrt(total(x * x, axes, keep))
