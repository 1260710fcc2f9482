"""Random arguments for every operation of ttr.torch.ops, from its table: shapes by the name of the argument."""

import inspect

import torch
import torch.nn.functional as F

from ttr.torch import _ops

B, T, H, K, V = 2, 5, 2, 3, 4
# Arguments that are no tensors, or tensors of an unusual shape, by operation.
OWN = {
    "chunk_lightning_attn": {"layer_idx": 1, "num_layers": 4},
    "fused_recurrent_lightning_attn": {"layer_idx": 1, "num_layers": 4},
    "chunk_gated_delta_product": {"num_householder": 2},
    "fused_recurrent_linear_attn": {"normalize": True},
}
SQUARE = {"chunk_ttt_linear", "fused_chunk_ttt_linear"}  # K = V
PER_KEY = {"chunk_kda", "fused_recurrent_kda", "chunk_gdn2", "fused_recurrent_gdn2", "chunk_gla", "fused_chunk_gla"}
PER_KEY |= {"chunk_precond_kda", "fused_recurrent_precond_kda"}
SLOTS, LEVELS = 3, 4


def flat(result):
    """The tensors of a result, in order."""
    if result is None:
        return []
    if isinstance(result, torch.Tensor):
        return [result]
    return [t for part in result for t in flat(part)]


def numbers(*shape, dtype=torch.float64, generator):
    return torch.randn(*shape, dtype=dtype, generator=generator)


def unit(t):
    return F.normalize(t, dim=-1)


def arguments(row, *, seed=0, batch=B, time=T, heads=H, groups=None, dtype=torch.float64, states=True, every=True):
    """Positional and keyword arguments of an operation; `every`: tensors that may be left out too."""
    made = torch.Generator().manual_seed(seed)
    groups = groups or heads
    value = K if row.name in SQUARE else V
    attention = row.module in ("attn", "forgetting_attn", "parallax", "path_attn", "deltaformer")
    query_heads, key_heads, value_heads = (heads, groups, groups) if attention else (groups, groups, heads)
    given = dict(OWN.get(row.name, {}))
    pairs = time * given.get("num_householder", 1)

    def draw(*shape):
        return numbers(*shape, dtype=dtype, generator=made)

    def log_gate(*shape):
        return -0.3 * F.softplus(draw(*shape))

    step = (batch, time, heads)
    options = {
        "q": lambda: unit(draw(batch, time, query_heads, K)),
        "r": lambda: unit(draw(batch, time, query_heads, K)),
        "k": lambda: unit(draw(batch, pairs, key_heads, K)),
        "v": lambda: draw(batch, pairs, value_heads, value),
        "p": lambda: unit(draw(batch, time, groups, K)),
        "kk": lambda: unit(draw(batch, time, heads, K)),
        "beta": lambda: torch.sigmoid(draw(batch, pairs, groups if row.module == "path_attn" else heads)),
        "a": lambda: unit(draw(batch, time, heads, K)) * (0.3 if row.name != "fused_mul_recurrent_rwkv7" else 0.5),
        "b": lambda: 0.3 * draw(batch, time, heads, K),
        "w": lambda: log_gate(*step, K),
        "gk": lambda: log_gate(*step, K),
        "gv": lambda: log_gate(*step, value),
        "g": lambda: log_gate(*step, K) if row.name in PER_KEY else log_gate(*step),
        "u": lambda: draw(heads, K),
        "s": lambda: torch.sigmoid(draw(*step, SLOTS)),
        "lamb": lambda: 0.5 + F.softplus(draw(heads, K)),
        "level_scales": lambda: torch.sigmoid(draw(*step, LEVELS)),
        "g_gamma": lambda: log_gate(heads),
        "g_atk": lambda: log_gate(*step),
        "beta_atk": lambda: torch.sigmoid(draw(*step)),
        "log_atk_scale": lambda: 0.1 * draw(heads),
        "initial_state": lambda: 0.5 * draw(batch, heads, K, value),
        "initial_A_state": lambda: F.softplus(draw(batch, heads, K)),
        "h_kk_init": lambda: torch.diag_embed(F.softplus(draw(batch, heads, K))),
        "h_kv_init": lambda: draw(batch, heads, K, value),
        "sink_bias": lambda: draw(heads),
        "eta": lambda: 0.1 * torch.sigmoid(draw(*step, 1)),
        "initial_state_bias": lambda: 0.5 * draw(batch, heads, 1, value),
    }
    if row.module == "gsa":
        options["g"] = lambda: log_gate(*step, SLOTS)
    if row.module in ("gsa", "abc"):
        options["initial_state"] = lambda: (draw(batch, heads, K, SLOTS), draw(batch, heads, SLOTS, value))
    if row.module == "gated_oja_rule":
        options["v"] = lambda: unit(draw(batch, time, heads, value))
    if row.module == "gdn2":
        options["b"] = lambda: torch.sigmoid(draw(*step, K))
        options["w"] = lambda: torch.sigmoid(draw(*step, value))
    if row.module == "path_attn":
        options["w"] = lambda: unit(draw(batch, time, groups, K))
    if row.module == "ttt":
        options["w"], options["b"] = (lambda: 1 + 0.3 * draw(heads, value)), (lambda: 0.3 * draw(heads, value))
    if row.module == "linear_attn":
        options["q"] = options["k"] = lambda: F.softplus(draw(batch, time, groups, K))
        options["initial_state"] = lambda: (draw(batch, heads, K, value), F.softplus(draw(batch, 1, groups, K)))
    if row.module == "hgrn":
        options["x"], options["g"] = (lambda: draw(batch, time, value)), (lambda: log_gate(batch, time, value))
        options["initial_state"] = lambda: draw(batch, value)
    if row.module == "rwkv4":
        options["w"], options["u"] = (lambda: draw(value)), (lambda: draw(value))
        options["k"], options["v"] = (lambda: draw(batch, time, value)), (lambda: draw(batch, time, value))
        options["state"] = lambda: torch.stack(
            [draw(batch, value), F.softplus(draw(batch, value)), torch.zeros(batch, value, dtype=dtype)], 1
        ).unsqueeze(2)
    if row.name == "mesa_net_decoding_one_step":
        options["q"], options["k"] = (lambda: unit(draw(batch, heads, K))), (lambda: unit(draw(batch, heads, K)))
        options["v"], options["g"] = (lambda: draw(batch, heads, value)), (lambda: log_gate(batch, heads))
        options["beta"] = lambda: torch.sigmoid(draw(batch, heads))
        options["prev_h_kk"], options["prev_h_kv"] = options["h_kk_init"], options["h_kv_init"]
    if row.name == "chunk_log_linear_attn":
        options.pop("initial_state")  # it belongs to a number of tokens: see test_ops
    skipped = set()
    if row.name == "fused_recurrent_gated_delta_rule":
        skipped = {"gv", "gk"}
    if row.module == "precond_gated_delta_rule":
        skipped = {"gv", "gk"}
    if row.name == "parallel_attn":
        skipped = {"g"}
    for name, parameter in inspect.signature(getattr(__import__("ttr.torch.ops", fromlist=["x"]), row.name)).parameters.items():
        if name in given or name in skipped or name not in options or name == "eps":
            continue
        is_state = name.startswith("initial") or name.startswith("h_k")
        if is_state and not states:
            continue
        if parameter.default is not inspect.Parameter.empty and not is_state and not every:
            continue
        given[name] = options[name]()
    if "output_final_state" in row.signature and states:
        given["output_final_state"] = True
    return given


def rows():
    return _ops.ROWS


def others(seed=0):
    """(name, function of tensors, tensors) of the operations that are not in the table."""
    from ttr.torch import ops

    made = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return numbers(*shape, dtype=torch.float64, generator=made)

    A, state = -torch.rand(4, 3, dtype=torch.float64, generator=made) - 0.1, draw(2, 4, 3)
    step = (draw(2, 4), draw(2, 4), A, draw(2, 3), draw(2, 3), draw(4), draw(2, 4), draw(4))
    scan = (draw(2, 4, 5), draw(2, 4, 5), A, draw(2, 3, 5), draw(2, 3, 5), draw(4), draw(2, 4, 5), draw(4))
    chunk = (draw(2, 5, 4, 3), draw(2, 5, 4), A[:, 0], draw(2, 5, 2, 3), draw(2, 5, 2, 3))
    rest = (draw(4), draw(2, 5, 4, 3), draw(4), draw(2, 4, 3, 3))
    conv = (draw(2, 3, 6), draw(3, 4), draw(3), draw(2, 3, 3))
    yield "l2norm", ops.l2norm, (draw(2, 3, 2, 4),)
    yield "selective_scan_fn", lambda *t: ops.selective_scan_fn(*t, delta_softplus=True, return_last_state=True), scan
    yield (
        "mamba_chunk_scan_combined",
        lambda *t: ops.mamba_chunk_scan_combined(*t[:5], 64, *t[5:], dt_softplus=True, return_final_states=True),
        chunk + rest,
    )
    yield "causal_conv1d_fn", lambda x, w, b, s: ops.causal_conv1d_fn(x, w, b, None, s, True, None, "silu"), conv
    yield "causal_conv1d_update", lambda x, w, b, s: ops.causal_conv1d_update(x, s.clone(), w, b, "silu"), conv
    update = lambda s, *t: ops.selective_state_update(s.clone(), *t, dt_softplus=True)  # noqa: E731
    yield "selective_state_update", update, (state, *step)
