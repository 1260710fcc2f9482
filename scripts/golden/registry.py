"""The operations of the golden vectors: a decorator that registers an equation, and what carries it out.

An operation is a function from `Inputs` to its outputs, written with the tensors of tape.py. Its docstring is the
text of the metadata: the equation first, after a blank line `key: text` (scale, layout, gate, norm, note, reference,
source). The decorator takes what the docstring cannot say: the cases, how their inputs are drawn, which inputs get no
gradient and which outputs are no part of the loss.

    @operation(LINEAR, lambda r: dict(q=r.normal('B T H K'), ...))
    def gla(x: Inputs) -> Outputs:
        '''S=diag(exp gk)S+k v^T; o=S^T(scale q)

        scale: K^-0.5
        gate: gk [B,T,H,K] natural log
        '''

The loss is the sum over the outputs X of sum(out.X * grad_out.X).
"""
from __future__ import annotations

import inspect
import zlib
from dataclasses import dataclass, field
from typing import Callable, Mapping, Optional, Sequence, Union

import numpy as np

import tape
from draws import Draws, exact, symmetrised
from tape import Tensor
from tensors import Sizes

Arrays = dict[str, np.ndarray]
Outputs = dict[str, Tensor]
Options = dict[str, Union[int, float, str, None]]


class Inputs:
    """What an equation reads: `x.q` is a tensor, `x.option('eps')` an option, `x.get('h0', 'B H K V')` zeros if the
    case has no such input."""

    def __init__(self, tensors: Mapping[str, Tensor], options: Options) -> None:
        self._tensors = tensors
        self._options = options

    def __getattr__(self, name: str) -> Tensor:
        try:
            return self._tensors[name]
        except KeyError:
            raise AttributeError(f"This case has no input '{name}'; it has {', '.join(self._tensors)}.") from None

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def option(self, name: str) -> Union[int, float, str, None]:
        return self._options[name]

    def get(self, name: str, shape: Sequence[int]) -> Tensor:
        """The input, or zeros of that shape."""
        return self._tensors[name] if name in self._tensors else Tensor(np.zeros(tuple(shape)))

    def after(self, name: str) -> Tensor:
        """The input after what is left of earlier calls (`name0`, oldest first), along time."""
        now, past = getattr(self, name), name + '0'
        return tape.concatenate([self._tensors[past], now], 1) if past in self else now


@dataclass
class Operation:
    """One equation and its cases."""
    name: str
    compute: Callable[[Inputs], Outputs]
    cases: dict[str, Options]
    draw: Callable[[Draws], Mapping[str, Optional[np.ndarray]]]
    constant: tuple[str, ...] = ()     # inputs without a gradient
    no_loss: tuple[str, ...] = ()      # outputs that are no part of the loss
    symmetric: tuple[str, ...] = ()    # inputs and outputs: gradient symmetrised, upstream gradient symmetric
    forward_only: bool = False
    first_seed: Optional[int] = None   # of the files that share one seed per case letter
    fit: Callable[[Arrays], bool] = lambda _: True  # inputs of other seeds than 0 are drawn again until they are fit
    text: dict[str, str] = field(default_factory=dict)

    def inputs(self, case: str, seed: int) -> Arrays:
        """Inputs of a case. Seed 0 gives those of the stored files, any other number others."""
        sizes = Sizes(case)
        if self.first_seed is not None and seed == 0:
            number = self.first_seed + 'abc'.index(sizes.tag[0])
        else:
            number = self._seed(sizes.tag, seed)
        arrays, again = self._drawn(number, sizes), 0
        while seed != 0 and not self.fit(arrays):
            again += 1
            arrays = self._drawn(self._seed(f'{sizes.tag}/again{again}', seed), sizes)
        return arrays

    def _drawn(self, number: int, sizes: Sizes) -> Arrays:
        return {name: value for name, value in self.draw(Draws(number, sizes)).items() if value is not None}

    def upstream(self, case: str, outputs: Outputs, seed: int) -> Arrays:
        """The gradients that come in."""
        if self.first_seed is not None and seed == 0:
            number = 777 + 31 * len(case) + ord(case[0])
        else:
            number = self._seed(case + '/g', seed)
        draws = Draws(number, Sizes(case))
        arrays = {}
        for name, value in outputs.items():
            if value.wanted and name not in self.no_loss:
                drawn = exact(draws.standard(*value.shape))
                arrays[name] = exact(symmetrised(drawn)) if name in self.symmetric else drawn
        return arrays

    def _seed(self, what: str, seed: int) -> int:
        return zlib.crc32((f'{self.name}/{what}' + (f'/{seed}' if seed else '')).encode()) % 2 ** 31

    def outputs(self, case: str, arrays: Arrays, differentiate: bool) -> tuple[Outputs, dict[str, Tensor]]:
        """The outputs, and the inputs to differentiate with respect to."""
        fixed = set(self.constant) if differentiate and not self.forward_only else set(arrays)
        tensors = {name: Tensor(value) if name in fixed else tape.leaf(value) for name, value in arrays.items()}
        made = self.compute(Inputs(tensors, self.cases.get(case, {})))
        return made, {name: value for name, value in tensors.items() if name not in fixed}

    def gradients(self, outputs: Outputs, leaves: dict[str, Tensor], upstream: Arrays) -> Arrays:
        """The gradient of the loss for every leaf."""
        if not leaves:
            return {}
        loss = sum((tape.total(outputs[name] * g) for name, g in upstream.items()), Tensor(0.0))
        found = tape.gradients(loss, list(leaves.values()))
        return {name: symmetrised(g.value) if name in self.symmetric else g.value for name, g in zip(leaves, found)}


OPERATIONS: dict[str, Operation] = {}


def operation(cases: Union[Sequence[str], Mapping[str, Options]],
              draw: Callable[[Draws], Mapping[str, Optional[np.ndarray]]], **more: object) -> Callable:
    """Registers the decorated function under its own name."""
    def register(compute: Callable[[Inputs], Outputs]) -> Callable[[Inputs], Outputs]:
        named = dict(cases) if isinstance(cases, Mapping) else {case: {} for case in cases}
        OPERATIONS[compute.__name__] = Operation(compute.__name__, compute, named, draw,
                                                 text=_metadata(compute), **more)  # type: ignore[arg-type]
        return compute
    return register


def _metadata(compute: Callable) -> dict[str, str]:
    """The docstring as metadata: the equation under `eq`, then every `key: text`."""
    blocks = (inspect.getdoc(compute) or '').split('\n\n')
    text = {'eq': ' '.join(blocks[0].split())}
    key = ''
    for line in '\n'.join(blocks[1:]).splitlines():
        head, colon, rest = line.partition(': ')
        if colon and not line.startswith(' '):
            key = head
            text[key] = rest.strip()
        elif key:
            text[key] += ' ' + line.strip()
    return text
