"""Operations of flash-linear-attention under their names, arguments, defaults and results: one row per operation.

A row names the layer of ttr that computes it, and what is particular; everything else (norms of q and k, gates computed
inside, value-first states, packed sequences, reversed time, initial and final states) is the same code for all, in `_run`.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence

import torch
from torch import Tensor

from .._library import Error
from .._plan import unknown
from ._call import apply, bounds_of
from ._gates import gate, l2norm, wide
from ._tensors import check_tensor

Arguments = dict[str, Any]


class Row(NamedTuple):
    """One operation."""

    name: str
    module: str  # below fla.ops
    signature: str
    layer: str
    states: tuple[str, ...] = ("S",)  # parts of the state, as initial and final state have them
    rename: dict[str, str] = {}  # argument -> input of the layer, where the names differ
    scale: str = "root"  # what scale=None means: "root" K^-0.5, "one", or "none": there is no such argument
    initial: tuple[str, ...] = ("initial_state",)  # one argument per part, or one for all
    result: str = "state"  # "state": (o, state or None); "states": (o, *states); "none": o; "attn": (o, None)
    prepare: Callable[[Arguments, Arguments, Arguments], Any] | None = None  # arguments, inputs, settings
    golden: str = ""  # folder of golden vectors, whose names are the arguments
    normed: tuple[str, ...] = ("q", "k")  # what use_qk_l2norm_in_kernel divides by its length
    more: tuple[str, ...] = ()  # what the operation reads from its **kwargs


def _flag(a: Arguments, name: str) -> bool:
    return bool(a.get(name, False))


def _options(row: Row, a: Arguments, inputs: Arguments) -> None:
    """What the kernels of flash-linear-attention compute inside, on the inputs of the layer."""
    if _flag(a, "use_qk_l2norm_in_kernel"):
        for name in row.normed:
            inputs[name] = l2norm(inputs[name])
    for flag, name in (("use_q_l2norm", "q"), ("use_k_l2norm", "k")):
        if _flag(a, flag):
            inputs[name] = l2norm(inputs[name])
    if _flag(a, "use_gate_in_kernel"):
        if a.get("A_log") is None:
            raise Error(f"{row.name}: use_gate_in_kernel=True computes the gate from A_log; give it")
        if _flag(a, "safe_gate") and a.get("lower_bound") is None:
            raise Error(f"{row.name}: safe_gate=True with use_gate_in_kernel=True needs lower_bound, such as -5.0")
        g = "gk" if "gk" in inputs else "g"
        inputs[g] = gate(inputs[g], a["A_log"], a.get("dt_bias"), a.get("lower_bound"))
    if _flag(a, "allow_neg_eigval") and not _flag(a, "use_beta_sigmoid_in_kernel"):
        raise Error(f"{row.name}: allow_neg_eigval=True doubles a beta computed inside; set use_beta_sigmoid_in_kernel=True")
    if _flag(a, "use_beta_sigmoid_in_kernel"):
        inputs["beta"] = torch.sigmoid(wide(inputs["beta"])) * (2 if _flag(a, "allow_neg_eigval") else 1)
    if _flag(a, "return_intermediate_states"):
        raise Error(f"{row.name}: return_intermediate_states=True is for kernels in chunks; ttr keeps the final state alone")
    if a.get("cp_context") is not None:
        raise Error(f"{row.name}: cp_context divides a sequence between GPUs; leave it out")
    if _flag(a, "output_attentions"):
        raise Error(f"{row.name}: output_attentions=True: the weights are never made; leave it out")


def _scale(row: Row, a: Arguments, inputs: Arguments) -> float | None:
    if row.scale == "none":
        return None
    given = a.get("scale")
    if given is not None:
        return float(given)
    if row.scale == "one":
        return 1.0
    key = inputs.get("k", inputs.get("q", inputs.get("r")))
    return float(key.shape[-1]) ** -0.5


def _initial(row: Row, a: Arguments, turn: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    if len(row.initial) == 1 and len(row.states) > 1:
        given = a.get(row.initial[0])
        if given is None:
            return {}
        if not isinstance(given, (tuple, list)) or len(given) != len(row.states):
            raise Error(f"{row.name}: {row.initial[0]} is a tuple of {len(row.states)} tensors ({', '.join(row.states)})")
        parts = dict(zip(row.states, given))
    else:
        parts = {part: a.get(name) for part, name in zip(row.states, row.initial)}
    return {part: turn(t) if part == "S" else t for part, t in parts.items() if t is not None}


def _run(row: Row, a: Arguments) -> Any:
    inputs: Arguments = {}
    settings: Arguments = {}
    for name, value in a.items():
        if isinstance(value, Tensor) and name in row.rename:
            inputs[row.rename[name]] = value
        elif isinstance(value, Tensor) and name in _INPUT_NAMES and name not in row.initial:
            inputs[name] = value
    layer = row.layer
    if row.prepare is not None:
        layer = row.prepare(a, inputs, settings) or layer
    _options(row, a, inputs)
    value_first = _flag(a, "state_v_first") or _flag(a, "transpose_state_layout")
    turn: Callable[[Tensor], Tensor] = (lambda t: t.transpose(-1, -2)) if value_first else (lambda t: t)
    bounds = bounds_of(a.get("cu_seqlens"))
    initial = _initial(row, a, turn)
    if bounds is not None:
        for name, t in inputs.items():
            if name in ("q", "k", "v", "r") and t.shape[0] != 1:
                raise Error(
                    f"{row.name}: {name} has the batch {t.shape[0]}; with cu_seqlens the sequences lie one after another in "
                    "a batch of 1"
                )
        for name, t in initial.items():
            if t.shape[0] != len(bounds) - 1:
                raise Error(f"{row.name}: {len(bounds) - 1} sequences in cu_seqlens need as many initial states, not {t.shape[0]}")
    reverse = _flag(a, "reverse")
    if reverse:
        inputs = {n: t.flip(1) if n in _OF_TIME and t.dim() > 2 else t for n, t in inputs.items()}
        if bounds is not None:
            bounds = (bounds[-1] - bounds[::-1]).copy()
            initial = {n: t.flip(0) for n, t in initial.items()}
    wants = _flag(a, "output_final_state") and row.result not in ("none", "attn")
    scale = _scale(row, a, inputs)
    results = apply(
        layer,
        inputs,
        initial=initial,
        final=row.states if wants else (),
        settings=settings,
        scale=scale,
        form="best",
        cu_seqlens=bounds,
    )
    o, states = results[0], list(results[1:])
    if reverse:
        o = o.flip(1)
        states = [s.flip(0) for s in states] if bounds is not None else states
    states = [turn(s).contiguous() if n == "S" and value_first else s for n, s in zip(row.states, states)]
    return _result(row, o, states)


def _result(row: Row, o: Tensor, states: list[Tensor]) -> Any:
    if row.result == "none":
        return o
    if row.result == "attn":
        return o, None
    if row.result == "states":
        return (o, *(states or [None] * len(row.states)))
    if not states:
        return o, None
    return o, states[0] if len(states) == 1 else tuple(states)


_INPUT_NAMES = {
    "q", "k", "v", "r", "p", "g", "gk", "gv", "beta", "a", "b", "w", "u", "s", "x", "lamb", "level_scales",
    "g_atk", "beta_atk", "log_atk_scale",
}  # fmt: skip
_OF_TIME = _INPUT_NAMES - {"u", "lamb", "log_atk_scale"}


# --- what is particular --------------------------------------------------------------------------------------------


def _ones_like_heads(v: Tensor) -> Tensor:
    return torch.ones(v.shape[:3], dtype=v.dtype)


def _beta_or_one(a: Arguments, inputs: Arguments, settings: Arguments) -> None:
    if a.get("beta") is None:
        inputs["beta"] = _ones_like_heads(inputs["v"])


def _gated_delta(a: Arguments, inputs: Arguments, settings: Arguments) -> str:
    _beta_or_one(a, inputs, settings)
    if "gk" in inputs:
        gk = inputs.pop("gk")
        inputs["g"] = gk if "g" not in inputs else wide(gk) + wide(inputs["g"]).unsqueeze(-1)
        return "kda"
    if "g" not in inputs:
        return "deltanet"
    return "gated-deltanet"


def _delta_product(a: Arguments, inputs: Arguments, settings: Arguments) -> str:
    settings["n"] = int(a["num_householder"])
    if inputs["k"].shape[1] != inputs["q"].shape[1] * settings["n"]:
        raise Error(
            f"chunk_gated_delta_product: k has {inputs['k'].shape[1]} pairs; {inputs['q'].shape[1]} tokens with "
            f"num_householder={settings['n']} have {inputs['q'].shape[1] * settings['n']}"
        )
    return "gated-deltaproduct" if a.get("g") is not None else "deltaproduct"


def _gla(a: Arguments, inputs: Arguments, settings: Arguments) -> None:
    if "g" in inputs:
        inputs["gk"] = inputs.pop("g")
    if "gk" not in inputs:
        q = inputs["k"]
        inputs["gk"] = torch.zeros((*inputs["v"].shape[:3], q.shape[-1]), dtype=q.dtype)
    if "gv" in inputs:
        settings["value_gate"] = "input"


def _simple_gla(a: Arguments, inputs: Arguments, settings: Arguments) -> str | None:
    gamma = a.get("g_gamma")
    if gamma is not None:
        check_tensor("g_gamma", gamma)
        spread = gamma.to(inputs["v"].dtype if inputs["v"].dtype == torch.float64 else gamma.dtype).expand(inputs["v"].shape[:3])
        inputs["g"] = spread if "g" not in inputs else wide(inputs["g"]) + wide(spread)
    return None if "g" in inputs else "linear-attention"


def _slots(a: Arguments, inputs: Arguments, settings: Arguments) -> str:
    settings["slots"] = inputs["s"].shape[-1]
    return "gated-slot-attention" if "g" in inputs else "abc"


def _lightning(a: Arguments, inputs: Arguments, settings: Arguments) -> None:
    settings["layer"], settings["layers"] = int(a["layer_idx"]), int(a["num_layers"])


def _log_linear(a: Arguments, inputs: Arguments, settings: Arguments) -> None:
    settings["levels"] = inputs["level_scales"].shape[-1]


def _mesa(a: Arguments, inputs: Arguments, settings: Arguments) -> None:
    if a.get("h_kk_init") is not None:  # a sum of k k'; the layer reads one half of it
        check_tensor("h_kk_init", a["h_kk_init"])
        a["h_kk_init"] = (a["h_kk_init"] + a["h_kk_init"].transpose(-1, -2)) / 2
    if a.get("max_CG_iteration", 30) != 30:  # 30 steps stand for the exact answer, which is solved directly
        settings["steps"] = int(a["max_CG_iteration"])


def _precond(a: Arguments, inputs: Arguments, settings: Arguments) -> str:
    if a.get("x", 1.5) != 1.5 or a.get("eps", 1e-6) != 1e-6:
        raise Error(f"x = {a.get('x')} and eps = {a.get('eps')}: the layer of ttr has 1.5 and 1e-6")
    if inputs.get("gv") is not None:
        raise Error("gv, a gate on the values, has no layer of ttr with the preconditioned rule; use g or gk")
    if "log_atk_scale" not in inputs:
        inputs["log_atk_scale"] = torch.full((inputs["v"].shape[2],), -0.2, dtype=inputs["v"].dtype)
    _beta_or_one(a, inputs, settings)
    if "beta_atk" not in inputs:
        inputs["beta_atk"] = _ones_like_heads(inputs["v"])
    for name in ("g_atk", "g"):
        if name not in inputs:
            inputs[name] = torch.zeros(inputs["v"].shape[:3], dtype=inputs["v"].dtype)
    if "gk" in inputs:
        inputs["g"] = wide(inputs.pop("gk")) + wide(inputs["g"]).unsqueeze(-1)
    if _flag(a, "use_qk_l2norm_in_kernel") and inputs["g"].dim() == 3:
        a["use_qk_l2norm_in_kernel"] = False  # the layer norms q and k itself
        return "preconditioned-deltanet"
    if inputs["g"].dim() == 3:  # the same with one gate for all rows
        inputs["g"] = inputs["g"].unsqueeze(-1).expand(*inputs["g"].shape, inputs["k"].shape[-1])
    return "preconditioned-kda"


def _precond_kda(a: Arguments, inputs: Arguments, settings: Arguments) -> str:
    if not a.setdefault("use_qk_l2norm_in_kernel", True):
        raise Error("chunk_precond_kda: q and k are always divided by their lengths; use_qk_l2norm_in_kernel is True")
    return _precond(a, inputs, settings)


def _rwkv7(a: Arguments, inputs: Arguments, settings: Arguments) -> None:
    for name, other in (("q", "r"), ("gk", "w")):
        if other in inputs:
            inputs[name] = inputs.pop(other)


def _rwkv7_mul(a: Arguments, inputs: Arguments, settings: Arguments) -> None:
    _rwkv7(a, inputs, settings)
    kk, rate = a["kk"], inputs["a"]
    check_tensor("kk", kk)
    inputs["a"], inputs["b"] = -kk, wide(kk) * wide(rate)


def _linear_attn(a: Arguments, inputs: Arguments, settings: Arguments) -> None:
    if a.get("normalize"):
        settings["normalise"], settings["normalise_eps"] = "keysum", "1e-10"


def _feature_scale(a: Arguments, inputs: Arguments, settings: Arguments) -> None:
    """Based and ReBased have K^-0.5 inside their map; another scale is a factor on q."""
    root = inputs["q"].shape[-1] ** -0.5
    scale = a.get("scale")
    if a.get("use_scale") is False:
        scale = 1.0
    if scale is not None and scale != root:
        inputs["q"] = inputs["q"] * (scale / root)
    settings["normalise_eps"] = a.get("eps", 1e-6)


def _attention(a: Arguments, inputs: Arguments, settings: Arguments) -> str:
    if a.get("window_size") is not None:
        settings["window"] = int(a["window_size"])
    if a.get("sink_bias") is not None:
        if "g" in inputs:
            raise Error("parallel_attn: g and sink_bias at once have no layer of ttr")
        check_tensor("sink_bias", a["sink_bias"])
        inputs["sink"], settings["sink"] = a["sink_bias"], "input"
    if "g" in inputs:
        return "forgetting-attention"
    return "softmax-attention"


def _forgetting(a: Arguments, inputs: Arguments, settings: Arguments) -> str:
    return _attention(a, inputs, settings)


def _parallax(a: Arguments, inputs: Arguments, settings: Arguments) -> None:
    if a.get("window_size") is not None:
        settings["window"] = int(a["window_size"])


def _path(a: Arguments, inputs: Arguments, settings: Arguments) -> None:
    if _flag(a, "use_cache"):
        raise Error("parallel_path_attn: use_cache=True returns keys for decoding; ttr.torch.nn has caches of its own")
    if "g" not in inputs:
        inputs["g"] = torch.zeros(inputs["q"].shape[:3], dtype=inputs["q"].dtype)


def _deltaformer(a: Arguments, inputs: Arguments, settings: Arguments) -> None:
    if a.get("attention_mask") is not None:
        raise Error("deltaformer_attn: attention_mask marks padding; pack the sequences and give cu_seqlens instead")
    if a.get("beta") is None:
        inputs["beta"] = torch.ones(inputs["q"].shape[:3], dtype=inputs["q"].dtype)


def _oja(a: Arguments, inputs: Arguments, settings: Arguments) -> None:
    _beta_or_one(a, inputs, settings)
    if "gv" not in inputs:
        inputs["gv"] = torch.zeros_like(inputs["v"])
    if _flag(a, "use_qk_l2norm_in_kernel") and not _flag(a, "use_q_l2norm") and not _flag(a, "use_k_l2norm"):
        return
    a.pop("use_qk_l2norm_in_kernel", None)


_STATE = "scale=None, initial_state=None, output_final_state=False"
_PACKED = "cu_seqlens=None, cu_seqlens_cpu=None"
_L2 = "use_qk_l2norm_in_kernel=False"
_SIGMOID = "use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False"
_GATE = ("A_log", "dt_bias")
_PRE = f"{_STATE.replace('output', 'initial_A_state=None, output')}"

ROWS: tuple[Row, ...] = (
    Row("chunk_abc", "abc", "q, k, v, s, initial_state=None, output_final_state=False, **kwargs", "abc", ("Km", "Vm"), prepare=_slots, golden="abc"),
    Row("chunk_comba", "comba", f"q, k, v, p, g, beta=None, {_STATE}, {_L2}, {_PACKED}", "comba", prepare=_beta_or_one, normed=("q", "k", "p"), golden="comba"),
    Row("fused_recurrent_comba", "comba", f"q, k, p, v, g, beta=None, {_STATE}, {_L2}, cu_seqlens=None", "comba", prepare=_beta_or_one, normed=("q", "k", "p"), golden="comba"),
    Row("chunk_delta_rule", "delta_rule", f"q, k, v, beta, {_STATE}, {_L2}, {_PACKED}, **kwargs", "deltanet", golden="delta_rule"),
    Row("fused_chunk_delta_rule", "delta_rule", f"q, k, v, beta, {_STATE}, {_L2}, {_PACKED}, **kwargs", "deltanet", golden="delta_rule"),
    Row("fused_recurrent_delta_rule", "delta_rule", f"q, k, v, beta=None, {_STATE}, {_L2}, cu_seqlens=None", "deltanet", prepare=_beta_or_one, golden="delta_rule"),
    Row("chunk_dplr_delta_rule", "generalized_delta_rule.dplr", f"q, k, v, a, b, gk, {_STATE}, {_PACKED}, safe_gate=False, chunk_size=None, disable_recompute=False, cp_context=None, lower_bound=None, **kwargs", "dplr", golden="dplr"),
    Row("fused_recurrent_dplr_delta_rule", "generalized_delta_rule.dplr", f"q, k, v, a, b, gk, {_STATE}, reverse=False, cu_seqlens=None", "dplr", golden="dplr"),
    Row("chunk_iplr_delta_rule", "generalized_delta_rule.iplr", f"q, k, v, a, b, {_STATE}, {_PACKED}, **kwargs", "iplr", golden="iplr"),
    Row("fused_recurrent_iplr_delta_rule", "generalized_delta_rule.iplr", f"q, k, v, a, b, {_STATE}, cu_seqlens=None", "iplr", golden="iplr"),
    Row("chunk_gated_delta_product", "gated_delta_product", f"q, k, v, g, beta, num_householder, {_STATE}, {_L2}, {_PACKED}", "gated-deltaproduct", prepare=_delta_product, golden="gated_delta_product"),
    Row("chunk_gated_delta_rule", "gated_delta_rule", f"q, k, v, g, beta, {_STATE}, {_L2}, {_SIGMOID}, state_v_first=False, {_PACKED}, chunk_indices=None, cp_context=None, **kwargs", "gated-deltanet", golden="gated_delta_rule", more=("use_gate_in_kernel", *_GATE)),
    Row("fused_recurrent_gated_delta_rule", "gated_delta_rule", f"q, k, v, g=None, gk=None, gv=None, beta=None, {_STATE}, {_L2}, use_gate_in_kernel=False, A_log=None, dt_bias=None, {_SIGMOID}, state_v_first=False, cu_seqlens=None, **kwargs", "gated-deltanet", prepare=_gated_delta, golden="gated_delta_rule"),
    Row("chunk_gated_oja_rule", "gated_oja_rule", f"q, k, v, gv, beta, {_STATE}, use_q_l2norm=False, use_k_l2norm=False, {_PACKED}, **kwargs", "gated-oja", prepare=_oja, golden="gated_oja_rule", more=("use_qk_l2norm_in_kernel",)),
    Row("fused_recurrent_gated_oja_rule", "gated_oja_rule", f"q, k, v, gv=None, beta=None, {_STATE}, use_q_l2norm=False, use_k_l2norm=False, cu_seqlens=None, **kwargs", "gated-oja", prepare=_oja, golden="gated_oja_rule", more=("use_qk_l2norm_in_kernel",)),
    Row("chunk_gdn2", "gdn2", f"q, k, v, g, b, w, {_STATE}, {_L2}, use_gate_in_kernel=False, {_PACKED}, safe_gate=False, lower_bound=None, disable_recompute=False, return_intermediate_states=False, state_v_first=False, **kwargs", "gdn-2", golden="gdn2", more=_GATE),
    Row("fused_recurrent_gdn2", "gdn2", f"q, k, v, g, b, w, A_log=None, dt_bias=None, {_STATE}, {_L2}, use_gate_in_kernel=False, lower_bound=None, state_v_first=False, cu_seqlens=None, **kwargs", "gdn-2", golden="gdn2"),
    Row("chunk_gla", "gla", f"q, k, v, g, {_STATE}, state_v_first=False, {_PACKED}", "gla", prepare=_gla),
    Row("fused_chunk_gla", "gla", f"q, k, v, g, {_STATE}, state_v_first=False, {_PACKED}, **kwargs", "gla", prepare=_gla),
    Row("fused_recurrent_gla", "gla", f"q, k, v, gk=None, gv=None, {_STATE}, reverse=False, state_v_first=False, cu_seqlens=None, **kwargs", "gla", prepare=_gla, golden="gla"),
    Row("chunk_gsa", "gsa", f"q, k, v, s, g=None, {_STATE}, checkpoint_level=2, {_PACKED}, **kwargs", "gated-slot-attention", ("Km", "Vm"), prepare=_slots, golden="gsa"),
    Row("fused_recurrent_gsa", "gsa", f"q, k, v, s, g=None, {_STATE}, reverse=False, cu_seqlens=None", "gated-slot-attention", ("Km", "Vm"), prepare=_slots, golden="gsa"),
    Row("chunk_kda", "kda", f"q, k, v, g, beta, {_STATE}, {_L2}, use_gate_in_kernel=False, {_SIGMOID}, safe_gate=False, lower_bound=None, disable_recompute=False, return_intermediate_states=False, state_v_first=False, {_PACKED}, cp_context=None, **kwargs", "kda", golden="kda", more=_GATE),
    Row("fused_recurrent_kda", "kda", f"q, k, v, g, beta, A_log=None, dt_bias=None, {_STATE}, {_L2}, use_gate_in_kernel=False, {_SIGMOID}, lower_bound=None, state_v_first=False, cu_seqlens=None, **kwargs", "kda", golden="kda"),
    Row("chunk_lightning_attn", "lightning_attn", f"q, k, v, layer_idx, num_layers, {_STATE}, cu_seqlens=None, **kwargs", "lightning-attention", prepare=_lightning, golden="lightning_attn"),
    Row("fused_recurrent_lightning_attn", "lightning_attn", f"q, k, v, layer_idx, num_layers, {_STATE}, reverse=False, cu_seqlens=None, **kwargs", "lightning-attention", prepare=_lightning, golden="lightning_attn"),
    Row("chunk_precond_gated_delta_rule", "precond_gated_delta_rule", f"q, k, v, g_atk, g, beta_atk, beta, {_PRE}, use_qk_l2norm_in_kernel=True, {_PACKED}, cp_context=None, transpose_state_layout=False, x=1.5, eps=1e-06, log_atk_scale=None, **kwargs", "preconditioned-deltanet", ("S", "A"), initial=("initial_state", "initial_A_state"), result="states", prepare=_precond, golden="precond_gated_delta_rule"),
    Row("fused_recurrent_precond_gated_delta_rule", "precond_gated_delta_rule", f"q, k, v, g=None, gk=None, gv=None, beta=None, g_atk=None, beta_atk=None, {_PRE}, use_qk_l2norm_in_kernel=True, cu_seqlens=None, transpose_state_layout=False, x=1.5, eps=1e-06, log_atk_scale=None", "preconditioned-deltanet", ("S", "A"), initial=("initial_state", "initial_A_state"), result="states", prepare=_precond, golden="precond_gated_delta_rule"),
    Row("chunk_precond_kda", "precond_kda", f"q, k, v, g, g_atk, beta_atk, beta, {_PRE}, use_gate_in_kernel=False, safe_gate=False, lower_bound=None, {_PACKED}, chunk_indices=None, cp_context=None, transpose_state_layout=False, x=1.5, eps=1e-06, log_atk_scale=None, solve_tril_precision=None, disable_recompute=False, return_intermediate_states=False, **kwargs", "preconditioned-kda", ("S", "A"), initial=("initial_state", "initial_A_state"), result="states", prepare=_precond_kda, more=("use_qk_l2norm_in_kernel", *_GATE)),
    Row("fused_recurrent_precond_kda", "precond_kda", f"q, k, v, g, g_atk, beta_atk, beta, A_log=None, dt_bias=None, {_PRE}, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=False, lower_bound=None, cu_seqlens=None, transpose_state_layout=False, x=1.5, eps=1e-06, log_atk_scale=None, **kwargs", "preconditioned-kda", ("S", "A"), initial=("initial_state", "initial_A_state"), result="states", prepare=_precond, golden="precond_kda"),
    Row("chunk_retention", "retention", f"q, k, v, {_STATE}, cu_seqlens=None, **kwargs", "retnet", golden="retention"),
    Row("fused_chunk_retention", "retention", f"q, k, v, {_STATE}, cu_seqlens=None, **kwargs", "retnet", golden="retention"),
    Row("fused_recurrent_retention", "retention", f"q, k, v, {_STATE}, reverse=False, state_v_first=False, cu_seqlens=None, **kwargs", "retnet", golden="retention"),
    Row("parallel_retention", "retention", "q, k, v, scale=None, output_attentions=False, cu_seqlens=None, **kwargs", "retnet", result="attn"),
    Row("chunk_rwkv6", "rwkv6", f"r, k, v, w, u, {_STATE}, {_PACKED}, **kwargs", "rwkv-6", golden="rwkv6"),
    Row("fused_recurrent_rwkv6", "rwkv6", f"r, k, v, w, u, {_STATE}, reverse=False, cu_seqlens=None, **kwargs", "rwkv-6", golden="rwkv6"),
    Row("chunk_rwkv7", "rwkv7", "r, w, k, v, a, b, scale=1.0, initial_state=None, output_final_state=False, cu_seqlens=None, cu_seqlens_cpu=None, safe_gate=False, chunk_size=None, disable_recompute=False, cp_context=None, lower_bound=None, **kwargs", "dplr", prepare=_rwkv7),
    Row("fused_recurrent_rwkv7", "rwkv7", "r, w, k, v, a, b, scale=None, initial_state=None, output_final_state=True, cu_seqlens=None, **kwargs", "dplr", prepare=_rwkv7),
    Row("fused_mul_recurrent_rwkv7", "rwkv7", "r, w, k, v, kk, a, scale=1.0, initial_state=None, output_final_state=False, reverse=False, cu_seqlens=None, **kwargs", "dplr", prepare=_rwkv7_mul),
    Row("chunk_simple_gla", "simple_gla", f"q, k, v, g=None, g_gamma=None, {_STATE}, state_v_first=False, {_PACKED}, **kwargs", "simple-gla", prepare=_simple_gla, golden="simple_gla"),
    Row("fused_chunk_simple_gla", "simple_gla", f"q, k, v, g=None, g_gamma=None, {_STATE}, cu_seqlens=None", "simple-gla", prepare=_simple_gla, golden="simple_gla"),
    Row("fused_recurrent_simple_gla", "simple_gla", f"q, k, v, g=None, g_gamma=None, {_STATE}, reverse=False, state_v_first=False, cu_seqlens=None, **kwargs", "simple-gla", prepare=_simple_gla, golden="simple_gla"),
    Row("parallel_simple_gla", "simple_gla", "q, k, v, g=None, scale=None, output_attentions=False, cu_seqlens=None, cu_seqlens_cpu=None, **kwargs", "simple-gla", result="attn", prepare=_simple_gla),
    Row("chunk_mesa_net", "mesa_net", "q, k, v, g, beta, lamb, h_kk_init=None, h_kv_init=None, output_final_state=False, max_CG_iteration=30, use_qk_l2norm_in_kernel=False, cu_seqlens=None, cu_seqlens_cpu=None", "mesanet", ("H", "F"), scale="none", initial=("h_kk_init", "h_kv_init"), result="states", prepare=_mesa, golden="mesa_exact"),
    Row("deltaformer_attn", "deltaformer", "q, k, v, beta=None, attention_mask=None, cu_seqlens=None, C=512", "deltaformer", (), result="none", prepare=_deltaformer, golden="deltaformer"),
    Row("fused_chunk_based", "based", "q, k, v, scale=None, use_norm=True, **kwargs", "based", (), scale="none", result="none", prepare=_feature_scale, golden="based"),
    Row("parallel_based", "based", "q, k, v, scale=None, use_norm=True, **kwargs", "based", (), scale="none", result="none", prepare=_feature_scale, golden="based"),
    Row("parallel_rebased", "rebased", "q, k, v, eps=1e-05, use_scale=True, use_normalize=True, return_both=False, **kwargs", "rebased", (), scale="none", result="none", prepare=_feature_scale, golden="rebased"),
    Row("parallel_attn", "attn", "q, k, v, g=None, scale=None, window_size=None, cu_seqlens=None, chunk_indices=None, *, sink_bias=None, **kwargs", "softmax-attention", (), result="none", prepare=_attention, golden="attn"),
    Row("parallel_forgetting_attn", "forgetting_attn", "q, k, v, g, scale=None, window_size=None, cu_seqlens=None, **kwargs", "forgetting-attention", (), result="none", prepare=_forgetting, golden="forgetting_attn"),
    Row("parallel_parallax", "parallax", "q, r, k, v, scale=None, window_size=None, cu_seqlens=None, **kwargs", "parallax", (), result="none", prepare=_parallax, golden="parallax"),
    Row("parallel_path_attn", "path_attn", "q, k, v, w, beta, g=None, scale=None, cu_seqlens=None, use_cache=False", "path-attention", (), result="attn", prepare=_path, golden="path_attn"),
    Row("chunk_linear_attn", "linear_attn", f"q, k, v, {_STATE}, normalize=True, cu_seqlens=None", "linear-attention"),
    Row("fused_chunk_linear_attn", "linear_attn", f"q, k, v, {_STATE}, normalize=True, cu_seqlens=None", "linear-attention"),
    Row("fused_recurrent_linear_attn", "linear_attn", f"q, k, v, {_STATE}, reverse=False, normalize=False, cu_seqlens=None", "linear-attention"),
    Row("chunk_log_linear_attn", "log_linear_attn", "q, k, v, g, level_scales, initial_state=None, output_final_state=False, cu_seqlens=None", "log-linear-attention", ("S", "counted"), scale="none", prepare=_log_linear, golden="log_linear_attn"),
    Row("chunk_hgrn", "hgrn", "x, g, initial_state=None, output_final_state=False", "hgrn", ("h",), scale="none", golden="hgrn"),
    Row("fused_recurrent_hgrn", "hgrn", "x, g, initial_state=None, output_final_state=False, cu_seqlens=None", "hgrn", ("h",), scale="none", golden="hgrn"),
    Row("chunk_ttt_linear", "ttt", "q, k, v, w, b, eta, scale=None, eps=1e-06, chunk_size=16, initial_state=None, initial_state_bias=None, output_final_state=False, cu_seqlens=None, cu_seqlens_cpu=None, **kwargs", "ttt-linear-fla", ("W0", "b0"), initial=("initial_state", "initial_state_bias"), result="states", golden="ttt_linear_fla"),
    Row("fused_chunk_ttt_linear", "ttt", "q, k, v, w, b, eta, scale=None, eps=1e-06, chunk_size=16, initial_state=None, initial_state_bias=None, output_final_state=False, cu_seqlens=None, **kwargs", "ttt-linear-fla", ("W0", "b0"), initial=("initial_state", "initial_state_bias"), result="states", golden="ttt_linear_fla"),
    Row("fused_recurrent_rwkv4", "rwkv4", "w, u, k, v, state", "rwkv-4", ("alpha", "beta", "e"), scale="none", golden="rwkv4"),
    Row("mesa_net_decoding_one_step", "mesa_net", "q, k, v, g, lamb, beta, prev_h_kk, prev_h_kv, max_CG_iteration=30", "mesanet", ("H", "F"), scale="none", result="states"),
)  # fmt: skip


# --- operations whose tensors are laid out in another way than the layer's --------------------------------------------


def _normalised(row: Row, a: Arguments) -> Any:
    """Linear attention; with normalize the state is (S, z), z the sum of keys [N, 1, H, K]."""
    if not a["normalize"]:
        return _run(row._replace(prepare=None), a)
    given = a.get("initial_state")
    pair = tuple(given) if isinstance(given, (tuple, list)) else (given, None)
    heads = a["v"].shape[2]
    extra = row._replace(prepare=_linear_attn, states=("S", "z"), initial=("initial_state", "z_state"), result="states")
    a = {**a, "initial_state": pair[0], "z_state": None}
    if pair[1] is not None:
        groups = pair[1].shape[2]
        a["z_state"] = pair[1].transpose(1, 2).transpose(2, 3).repeat_interleave(heads // groups, 1)
    o, S, z = _run(extra, a)
    if S is None:
        return o, None
    return o, (S, z.transpose(2, 3).transpose(1, 2)[:, :, :: heads // a["k"].shape[2]])


def _features(row: Row, a: Arguments) -> Any:
    """Based and ReBased; where the sums are not divided by those of the weights, as linear attention of their features."""
    if a.get("use_norm", True) and a.get("use_normalize", True) and not a.get("return_both"):
        return _run(row, a)
    inputs = {name: a[name] for name in ("q", "k", "v")}
    _feature_scale(a, inputs, {})
    phi = [apply("feature-taylor2", {"x": inputs[name]}, outputs=("phi",))[0] for name in ("q", "k")]
    scale = 1.0
    if row.module == "rebased":  # the squares alone, of which the map has half
        scale, first = 2.0, 1 + inputs["k"].shape[-1]
        phi = [t[..., first:] for t in phi]
    (o,) = apply("linear-attention", {"q": phi[0], "k": phi[1], "v": inputs["v"]}, scale=scale)
    if not a.get("return_both"):
        return o
    (z,) = apply("linear-attention", {"q": phi[0], "k": phi[1], "v": torch.ones_like(inputs["v"][..., :1])}, scale=scale)
    return o, z.squeeze(-1)


def _per_channel(row: Row, a: Arguments) -> Any:
    """With gv every channel of a value fades by itself: it is a head of its own with V = 1, which shares its key."""
    gv, beta, v = a.get("gv"), a.get("beta"), a["v"]
    if gv is None and (beta is None or beta.dim() != 4):
        return _run(row, a)
    batch, time, heads, values = v.shape

    def spread(t: Tensor) -> Tensor:
        return (t if t.dim() == 4 else t.unsqueeze(-1).expand(v.shape)).reshape(batch, time, heads * values)

    value_first = _flag(a, "state_v_first")
    a = {**a, "v": spread(v).unsqueeze(-1), "state_v_first": False, "gv": None}
    if beta is not None:
        a["beta"] = spread(beta)
    if _flag(a, "use_gate_in_kernel"):
        if a.get("A_log") is None or a.get("g") is None:
            raise Error(f"{row.name}: use_gate_in_kernel=True computes the gate from g and A_log; give them")
        a["g"], a["use_gate_in_kernel"] = gate(a["g"], a["A_log"], a.get("dt_bias"), a.get("lower_bound")), False
    gates = [spread(wide(t)) for t in (a.get("g"), gv) if t is not None]
    a["g"] = sum(gates[1:], gates[0]) if gates else None
    if a.get("gk") is not None:
        a["gk"] = a["gk"].repeat_interleave(values, 2)
    if a.get("initial_state") is not None:
        S = a["initial_state"] if value_first else a["initial_state"].transpose(-1, -2)
        a["initial_state"] = S.reshape(S.shape[0], heads * values, -1, 1)
    o, S = _run(row, a)
    if S is not None:
        S = S.reshape(S.shape[0], heads, values, -1)
        S = S if value_first else S.transpose(-1, -2).contiguous()
    return o.reshape(v.shape), S


def _windowed(row: Row, a: Arguments) -> Any:
    """Attention; a window of 0 holds no key, so that the answer is 0, beside a sink too, whose value is 0."""
    window = a.get("window_size")
    if window is None or window > 0:
        return _run(row, a)
    if window < 0:
        raise Error(f"{row.name}: window_size = {window}; it is the number of keys that a query sees, None for all")
    o = _run(row, {**a, "window_size": 1})  # for its shape and its refusals
    return o.masked_fill(torch.ones((), dtype=torch.bool), 0.0)


def _hgrn(row: Row, a: Arguments) -> Any:
    a = {**a, "x": a["x"].unsqueeze(2), "g": a["g"].unsqueeze(2)}
    if a.get("initial_state") is not None:
        a["initial_state"] = a["initial_state"].unsqueeze(1)
    o, h = _run(row, a)
    return o.squeeze(2), h if h is None else h.squeeze(1)


def _ttt(row: Row, a: Arguments) -> Any:
    if a["eps"] != 1e-6:
        raise Error(f"{row.name}: eps = {a['eps']}; the layer of ttr has 1e-6")
    if a["chunk_size"] <= 0:
        raise Error(f"{row.name}: chunk_size = {a['chunk_size']}; it is the mini-batch, a part of the model")
    inputs = {"q": a["q"], "k": a["k"], "v": a["v"], "gain": a["eta"].squeeze(-1) if a["eta"].dim() == 4 else a["eta"]}
    inputs["norm_w"], inputs["norm_b"] = a["w"], a["b"]
    initial = {}
    if a["initial_state"] is not None:
        initial["W0"] = a["initial_state"]
        initial["start_W0"] = a["initial_state"]
    if a["initial_state_bias"] is not None:
        initial["b0"] = a["initial_state_bias"].reshape(a["initial_state_bias"].shape[0], -1, a["v"].shape[-1])
        initial["start_b0"] = initial["b0"]
    final = row.states if a["output_final_state"] else ()
    scale = a["scale"] if a["scale"] is not None else a["k"].shape[-1] ** -0.5
    o, *states = apply(
        row.layer,
        inputs,
        initial=initial,
        final=final,
        scale=scale,
        settings={"batch": a["chunk_size"]},
        cu_seqlens=a["cu_seqlens"],
    )
    return (o, states[0], states[1].unsqueeze(2)) if states else (o, None, None)


def _rwkv4(row: Row, a: Arguments) -> Any:
    inputs = {"w": a["w"].unsqueeze(0), "u": a["u"].unsqueeze(0), "k": a["k"].unsqueeze(2), "v": a["v"].unsqueeze(2)}
    initial = {}
    if a["state"] is not None:  # [B, 3, 1, C]
        parts = a["state"].flatten(2).unbind(1)
        initial = {name: part.unsqueeze(1) for name, part in zip(row.states, parts)}
        initial["e"] = initial["e"].detach()
    o, *states = apply(row.layer, inputs, initial=initial, final=row.states)
    return o.squeeze(2), torch.stack([s.squeeze(1) for s in states], 1).unsqueeze(2)


def _mesa_step(row: Row, a: Arguments) -> Any:
    a = dict(a)
    for name in ("q", "k", "v", "g", "beta"):
        a[name] = a[name].unsqueeze(1)
    a["h_kk_init"], a["h_kv_init"], a["output_final_state"] = a.pop("prev_h_kk"), a.pop("prev_h_kv"), True
    o, H, G = _run(row._replace(initial=("h_kk_init", "h_kv_init"), prepare=_mesa), a)
    return o.squeeze(1), H, G


_OTHER: dict[str, Callable[[Row, Arguments], Any]] = {
    "fused_recurrent_gated_delta_rule": _per_channel,
    "fused_chunk_based": _features,
    "parallel_based": _features,
    "parallel_rebased": _features,
    "parallel_attn": _windowed,
    "parallel_forgetting_attn": _windowed,
    "parallel_parallax": _windowed,
    "chunk_linear_attn": _normalised,
    "fused_chunk_linear_attn": _normalised,
    "fused_recurrent_linear_attn": _normalised,
    "chunk_hgrn": _hgrn,
    "fused_recurrent_hgrn": _hgrn,
    "chunk_ttt_linear": _ttt,
    "fused_chunk_ttt_linear": _ttt,
    "fused_recurrent_rwkv4": _rwkv4,
    "mesa_net_decoding_one_step": _mesa_step,
}

# Operations of flash-linear-attention for which ttr has no layer, and why.
ABSENT = {
    "chunk_titans_linear": "its published gradient of the layer norm is not that of the norm, so its numbers solve no "
    "regression; the rule of the paper is the layer `titans` (ttr.torch.nn.Titans, ttr.torch.apply)",
    "parallel_nsa": "it selects blocks of keys by their scores, which is no weighting of all pairs",
    "parallel_moba": "it selects blocks of keys by their scores, which is no weighting of all pairs",
    "parallel_wall_attn": "its decay per channel stands inside the exponent of a softmax; the weights of ttr's attention "
    "have one gate per head (parallel_forgetting_attn)",
    "parallel_wall_attn_decode": "as parallel_wall_attn",
}


def _more(row: Row, a: Arguments, more: Arguments, named: Sequence[str]) -> None:
    """Takes what came as **kwargs: what the operation reads there, old names, and nothing else."""
    known = {*row.more, "head_first"}
    if row.name.startswith("chunk_"):
        known.add("chunk_size")  # a matter of speed there
    if "state_v_first" in named:
        known.add("transpose_state_layout")
    for name in more:
        if name not in known:
            raise unknown("argument", name, [*named, *sorted(known - {"head_first", *named})], row.name)
    if more.pop("head_first", False):
        raise Error(f"{row.name}: head_first is gone; tensors are [B, T, H, ...]")
    if "transpose_state_layout" in more:
        if a["state_v_first"]:
            raise Error(f"{row.name}: transpose_state_layout and state_v_first are one option; leave out the former")
        a["state_v_first"] = more.pop("transpose_state_layout")
    a.update(more)


def _make(row: Row) -> Callable[..., Any]:
    """A function of the row's signature; Python itself binds the arguments."""
    body = _OTHER.get(row.name, _run)

    def call(a: Arguments) -> Any:
        if "kwargs" in a:
            more = a.pop("kwargs")
            if more:
                _more(row, a, more, list(a))
        for name, value in a.items():
            if name in _OF_TIME and value is not None and name != "x":
                check_tensor(name, value)
        return body(row, a)

    scope: dict[str, Any] = {"_call": call}
    names = [part.split("=")[0].strip().lstrip("*") for part in row.signature.split(",")]
    given = ", ".join(f"{name!r}: {name}" for name in names if name)
    exec(f"def {row.name}({row.signature}):\n    return _call({{{given}}})", scope)  # the text of a row of this file
    operation: Callable[..., Any] = scope[row.name]
    operation.__module__ = "ttr.torch.ops"
    operation.__doc__ = (
        f"``{row.name}({row.signature})`` of ``fla.ops.{row.module}``, by the layer ``{row.layer}`` of ttr, on the CPU and "
        "with gradients. Shapes are [B, T, H, K] and [B, T, HV, V], states [N, HV, K, V], gates natural logarithms."
    )
    return operation


def make_all() -> dict[str, Callable[..., Any]]:
    made = {row.name: _make(row) for row in ROWS}
    made["chunk_gdn"] = made["chunk_gated_delta_rule"]
    made["fused_recurrent_gdn"] = made["fused_recurrent_gated_delta_rule"]
    return made


def rows() -> Sequence[Row]:
    return ROWS
