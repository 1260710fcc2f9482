"""What ttr knows: its layers, and recipes worked out on paper."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Iterator, Sequence

from . import _library as l
from ._library import lib
from ._plan import Info, _infos


@dataclass(frozen=True)
class Layer:
    """A named layer: its recipe, inputs, settings, traps."""

    name: str
    title: str
    recipe: str
    paper: str
    equation: str
    scale: str
    departure: str
    traps: tuple[str, ...]
    inputs: tuple[Info, ...]
    outputs: tuple[Info, ...]
    states: tuple[Info, ...]
    settings: tuple[dict[str, str], ...]
    forms: tuple[str, ...]
    absent_forms: tuple[str, ...]
    grouped: bool
    square: bool
    literal: bool
    golden: tuple[dict[str, Any], ...]
    tolerance_f64: float
    tolerance_f32: float
    no_stream_because: str

    def __repr__(self) -> str:
        return f"<ttr.Layer {self.name}: {self.recipe or 'an operation'}>"

    def _repr_html_(self) -> str:
        rows = [("recipe", f"<code>{html.escape(self.recipe)}</code>"), ("equation", html.escape(self.equation))]
        rows += [("scale", html.escape(self.scale)), ("paper", html.escape(self.paper))]
        rows += [(f"input <code>{i.name}</code>", html.escape(f"[{i.shape}] {i.meaning}")) for i in self.inputs]
        rows += [(f"output <code>{i.name}</code>", html.escape(f"[{i.shape}] {i.meaning}")) for i in self.outputs]
        rows += [("trap", html.escape(t)) for t in self.traps]
        return _table(f"{self.name}: {self.title}", rows)


def _table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    lines = "".join(
        f"<tr><th style='text-align:left;vertical-align:top'>{a}</th><td style='text-align:left'>{b}</td></tr>"
        for a, b in rows
    )
    return f"<table><caption style='text-align:left;font-weight:bold'>{html.escape(title)}</caption>{lines}</table>"


class Layers(Sequence[Layer]):
    """All named layers: a sequence, with names as keys too."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return layer(key)
        if isinstance(key, slice):
            return Layers(self.names[key])
        return layer(self.names[key])

    def __iter__(self) -> Iterator[Layer]:
        return (layer(name) for name in self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names or any(name == of for of in self)

    def __repr__(self) -> str:
        return f"<{len(self)} layers of ttr: {', '.join(self.names)}>"

    def _repr_html_(self) -> str:
        return _table("layers of ttr", [(f"<code>{x.name}</code>", f"<code>{html.escape(x.recipe)}</code>") for x in self])


@lru_cache(None)
def layer(name: str) -> Layer:
    """One named layer.

    >>> import ttr
    >>> ttr.layer("gated-deltanet").recipe
    'equal / linear / sgd(beta, decay)'
    >>> ttr.layer("nlsm")
    Traceback (most recent call last):
    ...
    ttr._library.UnknownName: there is no layer 'nlsm'; did you mean 'nlms'? `ttr layers` lists them all
    """
    about = l.ask(lib.ttr_layer_describe, name.encode())
    for key in ("inputs", "outputs", "states"):
        about[key] = _infos(about[key])
    for key in ("traps", "settings", "forms", "absent_forms", "golden"):
        about[key] = tuple(about[key])
    return Layer(**about)


@lru_cache(None)
def layers() -> Layers:
    """All named layers, in the order of the documentation.

    >>> import ttr
    >>> "gated-deltanet" in ttr.layers(), len(ttr.layers()) > 80
    (True, True)
    """
    return Layers([lib.ttr_layer_name(i).decode() for i in range(lib.ttr_layer_count())])


_PARTS = (
    ("objective", "Objective"),
    ("gradient", "Gradient"),
    ("recurrence", "Recurrence"),
    ("readout", "Read-out"),
    ("departure", "Departure"),
    ("state_size", "State"),
    ("cost_per_token", "Cost"),
)
_LISTS = (
    ("forms", "Forms"),
    ("equals", "Equals"),
    ("equals_with", "Equals with"),
    ("because", "Because"),
    ("neighbours", "One choice away"),
    ("remarks", "Remarks"),
    ("sources", "Sources"),
)


@dataclass(frozen=True, repr=False)
class Derivation:
    """A recipe worked out on paper; in a notebook it is typeset."""

    recipe: str
    objective: str
    gradient: str
    recurrence: str
    readout: str
    state_size: str
    cost_per_token: str
    departure: str
    sources: tuple[str, ...]
    forms: tuple[str, ...]
    simplest: str
    equals: tuple[str, ...]
    equals_with: tuple[str, ...]
    because: tuple[str, ...]
    neighbours: tuple[str, ...]
    remarks: tuple[str, ...]
    asked: str = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        lines = [f"{'recipe':<17}{self.recipe}"]
        lines += [f"{label.lower():<17}{getattr(self, name)}" for name, label in _PARTS if getattr(self, name)]
        for name, label in _LISTS:
            for i, line in enumerate(getattr(self, name)):
                lines.append(f"{label.lower() if i == 0 else '':<17}{line}")
        return "\n".join(lines)

    __repr__ = __str__

    @property
    def latex(self) -> "Derivation":
        """The same with formulas in LaTeX."""
        return derive(self.asked or self.recipe, latex=True)

    def _repr_latex_(self) -> str:
        d = self.latex
        rows = [(label, [getattr(d, name)]) for name, label in _PARTS]
        rows += [(label, list(getattr(d, name))) for name, label in _LISTS]
        items = [f"\\item[{label}] " + " \\\\\n".join(lines) for label, lines in rows if any(lines)]
        return "\\begin{description}\n\\item[Recipe] " + d.recipe + "\n" + "\n".join(items) + "\n\\end{description}"

    def _repr_html_(self) -> str:
        d = self.latex
        rows = [("Recipe", f"<code>{html.escape(self.recipe)}</code>")]
        rows += [(label, _with_math(getattr(d, name))) for name, label in _PARTS if getattr(d, name)]
        for name, label in _LISTS:
            if getattr(d, name):
                rows.append((label, "<br>".join(_with_math(line) for line in getattr(d, name))))
        return _table("Derivation", rows)


def _with_math(text: str) -> str:
    """Formulas stand between dollars; what is between them is text."""
    pieces = re.split(r"(\$[^$]*\$)", text)
    return "".join(html.escape(p, quote=False) for p in pieces)


def derive(recipe: str, *, latex: bool = False) -> Derivation:
    """Works a layer or a recipe out: what is minimised, the recurrence, its cost, what it equals.

    >>> import ttr
    >>> d = ttr.derive("equal / linear / sgd(beta, decay)")
    >>> d.equals
    ('gated-deltanet',)
    >>> d.state_size, d.cost_per_token
    ('KV', '4KV')
    """
    about = l.ask(lib.ttr_derive, recipe.encode(), int(latex))
    return Derivation(**{k: tuple(v) if isinstance(v, list) else v for k, v in about.items()}, asked=recipe)
