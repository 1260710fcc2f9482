#!/usr/bin/env python3
"""Writes python/ttr/torch/ops.pyi, the types of the operations, from their table; with --check only compares.

    PYTHONPATH=python /usr/bin/python3 scripts/make-op-stubs.py [--check]
"""

import inspect
import sys
from pathlib import Path

from ttr.torch import _mamba, _ops, ops

PATH = Path(__file__).resolve().parents[1] / "python" / "ttr" / "torch" / "ops.pyi"
NUMBERS = {"num_householder": "int", "layer_idx": "int", "num_layers": "int"}
OPTIONAL = {"scale": "float | None", "chunk_size": "int | None", "window_size": "int | None", "lower_bound": "float | None"}
OTHER = {"cp_context", "chunk_indices", "solve_tril_precision"}


def kind(row, name, default):
    if name in NUMBERS:
        return NUMBERS[name]
    if name == "scale" and isinstance(default, float):
        return "float"
    if name in OPTIONAL:
        return "int" if isinstance(default, int) else OPTIONAL[name]
    if name in OTHER:
        return "Any"
    if isinstance(default, (bool, int, float)):
        return type(default).__name__
    if name == "initial_state" and len(row.states) > 1 and len(row.initial) == 1 or row.module == "linear_attn" and name == "initial_state":
        return "Any"
    return "Tensor" if default is inspect.Parameter.empty else "Tensor | None"


def result(row):
    if row.result == "none":
        return "Tensor"
    if row.result == "attn":
        return "tuple[Tensor, None]"
    if row.result == "states":
        return "tuple[" + ", ".join(["Tensor"] + ["Tensor | None"] * len(row.states)) + "]"
    if len(row.states) > 1 or row.module == "linear_attn":
        return "tuple[Tensor, Any]"
    return "tuple[Tensor, Tensor | None]"


def stub(row):
    parameters, starred = [], False
    for name, p in inspect.signature(getattr(ops, row.name)).parameters.items():
        if p.kind is p.VAR_KEYWORD:
            parameters.append(f"**{name}: Any")
            continue
        if p.kind is p.KEYWORD_ONLY and not starred:
            parameters.append("*")
            starred = True
        default = "" if p.default is p.empty else f" = {p.default!r}"
        parameters.append(f"{name}: {kind(row, name, p.default)}{default}")
    return f"def {row.name}(\n    " + ",\n    ".join(parameters) + f",\n) -> {result(row)}: ..."


def text():
    lines = ["# Made by scripts/make-op-stubs.py from python/ttr/torch/_ops.py.", "from typing import Any", "", "from torch import Tensor", ""]
    lines += ["from ._mamba import causal_conv1d_fn as causal_conv1d_fn"]
    names = ["causal_conv1d_update", "mamba_chunk_scan_combined", "selective_scan_fn", "selective_state_update"]
    assert all(hasattr(_mamba, name) for name in names)
    lines += [f"from ._mamba import {name} as {name}" for name in names]
    lines += [f"from ._gates import {name} as {name}" for name in ("gate", "l2norm")] + [""]
    lines += [stub(row) for row in _ops.ROWS]
    lines += ["", "chunk_gdn = chunk_gated_delta_rule", "fused_recurrent_gdn = fused_recurrent_gated_delta_rule"]
    return "\n".join(lines) + "\n"


if "--check" in sys.argv:
    if not PATH.exists() or PATH.read_text() != text():
        sys.exit(f"{PATH.name} is not what the table says; run scripts/make-op-stubs.py")
else:
    PATH.write_text(text())
