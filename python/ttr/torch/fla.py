"""Code written for flash-linear-attention, causal-conv1d and Mamba, on a machine without a GPU.

`as_fla` makes their names importable; `accelerate` replaces the slow functions that a modelling file of Hugging Face falls
back to.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import time
import types
from dataclasses import dataclass, field
from typing import Any, Callable

import torch

from . import _mamba, _ops, ops

_VERSION = "0.4.2"  # of the names, as programs compare it


def _tables() -> dict[str, dict[str, Any]]:
    """Module name -> names in it."""
    from . import nn

    made: dict[str, dict[str, Any]] = {"fla": {}, "fla.ops": {}, "fla.layers": {}}
    for row in _ops.ROWS:
        function = getattr(ops, row.name)
        made["fla.ops"][row.name] = function
        path = "fla.ops"
        for part in row.module.split("."):
            path += "." + part
            made.setdefault(path, {})[row.name] = function
    for alias in ("chunk_gdn", "fused_recurrent_gdn"):
        made["fla.ops"][alias] = made["fla.ops.gated_delta_rule"][alias] = getattr(ops, alias)
    modules = {name: getattr(nn, name) for name in ("FusedRMSNormGated", "RMSNorm", "ShortConvolution")}
    made["fla.modules"] = {**modules, "l2norm": ops.l2norm, "l2_norm": ops.l2norm}
    made["fla.layers"] = {name: getattr(nn, name) for name in nn.LAYERS}
    made["causal_conv1d"] = {
        "causal_conv1d_fn": _mamba.causal_conv1d_fn,
        "causal_conv1d_update": _mamba.causal_conv1d_update,
    }
    scan, update, combined = (
        {f.__name__: f}
        for f in (_mamba.selective_scan_fn, _mamba.selective_state_update, _mamba.mamba_chunk_scan_combined)
    )
    made["mamba_ssm"] = {**scan, "Mamba": nn.Mamba, "Mamba2": nn.Mamba2}
    made["mamba_ssm.ops"] = {}
    made["mamba_ssm.ops.selective_scan_interface"] = dict(scan)
    made["mamba_ssm.ops.triton"] = {}
    made["mamba_ssm.ops.triton.selective_state_update"] = dict(update)
    made["mamba_ssm.ops.triton.ssd_combined"] = dict(combined)
    return made


def _installed(name: str) -> bool:
    if name in sys.modules:
        return not getattr(sys.modules[name], "__ttr__", False)
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def as_fla(*, replace: bool = False) -> list[str]:
    """Makes ``fla``, ``causal_conv1d`` and ``mamba_ssm`` importable, where the originals are not installed.

    Parameters
    ----------
    replace : bool
        Put ours over installed ones too, in this process.

    Returns
    -------
    list of str
        The packages that are now ours.

    Examples
    --------
    >>> import ttr.torch
    >>> ours = ttr.torch.as_fla()
    >>> from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    """
    tables = _tables()
    taken = [name for name in ("fla", "causal_conv1d", "mamba_ssm") if replace or not _installed(name)]
    for path in sorted(tables):
        if path.split(".")[0] not in taken:
            continue
        module = types.ModuleType(path, f"The names of {path}, by ttr on the CPU.")
        spec = importlib.machinery.ModuleSpec(path, None, origin="ttr", is_package=True)
        module.__spec__, module.__path__, module.__version__ = spec, [], _VERSION  # type: ignore[attr-defined]
        module.__ttr__ = True  # type: ignore[attr-defined]
        module.__dict__.update(tables[path])
        module.__all__ = sorted(tables[path])  # type: ignore[attr-defined]
        if path.startswith("fla.ops"):
            module.__dict__["__getattr__"] = _missing(path)
        sys.modules[path] = module
        parent, _, child = path.rpartition(".")
        # A function of a module's own name stays what the module above it has (mamba_ssm.ops.triton...).
        if parent and child not in tables[parent]:
            setattr(sys.modules[parent], child, module)
    return taken


def _missing(path: str) -> Callable[[str], Any]:
    def look(name: str) -> Any:
        why = f": {_ops.ABSENT[name]}" if name in _ops.ABSENT else ""
        raise AttributeError(f"ttr has no {path}.{name}{why}")

    return look


# --- Hugging Face's fallbacks -----------------------------------------------------------------------------------------


def torch_chunk_gated_delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    chunk_size: int = 64,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **kwargs: Any,
) -> Any:
    """The chunked gated delta rule of a modelling file; `chunk_size` is a matter of speed, and of no importance here."""
    return ops.chunk_gated_delta_rule(
        query, key, value, g, beta,
        initial_state=initial_state,
        output_final_state=output_final_state,
        use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        **kwargs,
    )  # fmt: skip


def torch_recurrent_gated_delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **kwargs: Any,
) -> Any:
    """The same token by token."""
    return torch_chunk_gated_delta_rule(
        query, key, value, g, beta, 64, initial_state, output_final_state, use_qk_l2norm_in_kernel, **kwargs
    )


def torch_causal_conv1d_update(
    hidden_states: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
) -> torch.Tensor:
    """One step of the short convolution; the functions it stands for apply silu whatever `activation` says."""
    return _mamba.causal_conv1d_update(hidden_states, conv_state, weight, bias, "silu")


_REPLACEMENTS: dict[str, Callable[..., Any]] = {
    "torch_chunk_gated_delta_rule": torch_chunk_gated_delta_rule,
    "torch_recurrent_gated_delta_rule": torch_recurrent_gated_delta_rule,
    "torch_causal_conv1d_update": torch_causal_conv1d_update,
}


@dataclass
class Accelerated:
    """What `accelerate` did: for each function where it was, how far the answers are apart, and how much faster ours is."""

    replaced: dict[str, list[str]] = field(default_factory=dict)
    error: dict[str, float] = field(default_factory=dict)
    speedup: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        if not self.replaced and not self.refused:
            return "nothing to replace: none of " + ", ".join(_REPLACEMENTS) + " was found"
        lines = []
        for name, places in self.replaced.items():
            measured = ""
            if name in self.speedup:
                measured = f"; {self.speedup[name]:.1f} times as fast, answers within {self.error[name]:.1e}"
            lines.append(f"{name} replaced in {', '.join(places)}{measured}")
        return "\n".join(lines + [f"{name} left as it was: {why}" for name, why in self.refused.items()])


def _case(name: str) -> tuple[Any, ...]:
    """Arguments to compare a function with ours: what a small model would call it with."""
    made = torch.Generator().manual_seed(1)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=made)

    if name == "torch_causal_conv1d_update":
        return numbers(1, 2048, 1), numbers(1, 2048, 4), numbers(2048, 4)
    tokens = 256 if name == "torch_chunk_gated_delta_rule" else 16
    q, k, v = (numbers(1, tokens, 4, 64) for _ in range(3))
    q, k = (ops.l2norm(t) for t in (q, k))
    g, beta = -torch.rand(1, tokens, 4, generator=made), torch.rand(1, tokens, 4, generator=made)
    if name == "torch_chunk_gated_delta_rule":
        return q, k, v, g, beta, 64, None, True
    return q, k, v, g, beta, numbers(1, 4, 64, 64), True


def _compare(name: str, theirs: Callable[..., Any], ours: Callable[..., Any]) -> tuple[float, float]:
    """Largest difference of the answers, relative to the largest; how much faster ours is, the best of many turns."""
    best, answers = [float("inf")] * 2, [[torch.empty(0)]] * 2
    with torch.no_grad():
        for _ in range(5 if name == "torch_chunk_gated_delta_rule" else 25):
            for side, function in enumerate((theirs, ours)):
                arguments = [t.clone() if isinstance(t, torch.Tensor) else t for t in _case(name)]
                begin = time.perf_counter()
                result = function(*arguments)
                best[side] = min(best[side], time.perf_counter() - begin)
                answers[side] = list(result) if isinstance(result, tuple) else [result]
                if name == "torch_causal_conv1d_update":
                    answers[side].append(arguments[1])  # changed in place
    pairs = zip(*answers)
    return max(float((a - b).abs().max() / max(float(a.abs().max()), 1.0)) for a, b in pairs), best[0] / best[1]


def accelerate(target: Any, *, tolerance: float = 1e-5) -> Accelerated:
    """Replaces the three ``torch_*`` fallback functions of a Hugging Face modelling module, where ours are faster.

    Parameters
    ----------
    target : module of Python, or torch.nn.Module
        A modelling file, or a model: then the files of its parts, and the functions that the parts keep as attributes.
    tolerance : float
        A function whose answers differ from ours by more than this (relative to its largest answer, on a small case) is
        left as it was, and the report says so; so is a function that is faster than ours on this machine.

    Returns
    -------
    Accelerated
        What was replaced, how far the answers are apart, how much faster ours is. Print it.
    """
    report = Accelerated()
    parts = list(target.modules()) if isinstance(target, torch.nn.Module) else []
    files = [target] if isinstance(target, types.ModuleType) else []
    for part in parts:
        file = sys.modules.get(type(part).__module__)
        if file is not None and file not in files:
            files.append(file)
    if not files:
        raise TypeError(f"accelerate takes a module of Python or a torch.nn.Module, not a {type(target).__name__}")
    for name, ours in _REPLACEMENTS.items():
        holders = [f for f in files if getattr(f, name, ours) is not ours]
        for theirs in {id(getattr(f, name)): getattr(f, name) for f in holders}.values():
            report.error[name], report.speedup[name] = _compare(name, theirs, ours)
            if not report.error[name] <= tolerance:
                report.refused[name] = f"its answers differ from ours by {report.error[name]:.1e}"
                continue
            if report.speedup[name] < 1:
                report.refused[name] = f"ours takes {1 / report.speedup[name]:.1f} times as long"
                continue
            for file in holders:
                if getattr(file, name) is theirs:
                    setattr(file, name, ours)
                    report.replaced.setdefault(name, []).append(file.__name__)
            for part in parts:
                for attribute, value in list(vars(part).items()):
                    if value is theirs:
                        setattr(part, attribute, ours)
                        report.replaced.setdefault(name, []).append(f"{type(part).__name__}.{attribute}")
    return report
