"""Layers of ttr for PyTorch: operations with the names people know, modules, gradients; on the CPU.

Works with torch 1.13 and above; nothing of torch is compiled. In torch 2.4 and above the calls are operators of
`torch.library` with fake kernels, so that `torch.compile` keeps one graph.
"""

from __future__ import annotations

from typing import Any

try:
    import torch as _torch
except ImportError as problem:
    raise ImportError("ttr.torch needs PyTorch, which is not installed (Debian: python3-torch)") from problem

from . import _registered, ops
from ._call import apply
from .fla import accelerate, as_fla

__all__ = ["accelerate", "apply", "as_fla", "nn", "ops"]


def __getattr__(name: str) -> Any:
    if name == "nn":
        import importlib

        return importlib.import_module(".nn", __name__)
    raise AttributeError(f"module 'ttr.torch' has no attribute '{name}'")
