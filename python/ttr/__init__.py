"""Test-time regression: sequence layers as regression problems, on numpy arrays.

>>> import ttr
>>> ttr.derive("deltanet").recurrence.split(";")[0]
"S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}' k_t)'"

``ttr.plan`` runs layers, ``ttr.derive`` works them out, ``ttr.check`` compares them with the literal solver,
``ttr.Stream`` and ``ttr.OnlineRegressor`` run them on data, ``ttr.torch`` has them for PyTorch with gradients,
``ttr.load_model`` runs published language models.
"""

from __future__ import annotations

from typing import Any

from ._check import Report, check
from ._describe import Derivation, Layer, Layers, derive, layer, layers
from ._language import LanguageModel, Text, load_model
from ._library import Error, UnknownName
from ._library import version as __version__
from ._plan import Call, Info, Plan, State
from ._random import random_inputs
from ._regressor import OnlineRegressor
from ._run import forward, plan_for
from ._stream import Stream

plan = Plan

__all__ = [
    "Call",
    "Derivation",
    "Error",
    "Info",
    "LanguageModel",
    "Layer",
    "Layers",
    "OnlineRegressor",
    "Plan",
    "Report",
    "State",
    "Stream",
    "Text",
    "UnknownName",
    "__version__",
    "check",
    "derive",
    "forward",
    "layer",
    "layers",
    "load_model",
    "plan",
    "plan_for",
    "random_inputs",
]


def __getattr__(name: str) -> Any:
    if name == "torch":  # only who asks for it needs PyTorch
        import importlib

        return importlib.import_module(".torch", __name__)
    raise AttributeError(f"module 'ttr' has no attribute '{name}'")
