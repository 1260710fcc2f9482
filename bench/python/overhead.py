"""What a call costs from Python, besides its arithmetic.

    PYTHONPATH=python /usr/bin/python3 bench/python/overhead.py [--json]

One token through small layers (B = H = 1, K = V = 4), the least of many rounds: a prepared call, a prepared call with a new
array, `Plan.step`, `ttr.forward` that looks up its plan, and where torch is installed an operation of `ttr.torch`.
"""

import json
import sys
import time

import numpy as np

import ttr


def least(function, calls=2000, rounds=15):
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(calls):
            function()
        best = min(best, (time.perf_counter() - begin) / calls)
    return 1e6 * best


def measure(layer):
    plan = ttr.plan(layer, key_dim=4, value_dim=4)
    inputs, state = ttr.random_inputs(plan, 1), plan.state()
    call = plan.prepare(state=state, form="step", **inputs)
    first = next(iter(inputs))
    other = inputs[first].copy()
    names = plan.outputs[0].name
    out = np.empty(plan.extents(plan.outputs[0].shape, 1), np.float32)
    row = {"layer": layer, "prepared": least(call), "rebound": least(lambda: call(**{first: other}), 500)}
    row["step"] = least(lambda: plan.step(state=state, out={names: out}, **inputs), 200)
    row["forward"] = least(lambda: ttr.forward(layer, state=state, **inputs), 200)
    return row


def with_torch():
    try:
        import torch
    except ImportError:
        return None
    from ttr.torch import ops

    torch.set_num_threads(1)
    q, k, v = (torch.randn(1, 1, 1, 4) for _ in range(3))
    g, beta = -torch.rand(1, 1, 1), torch.rand(1, 1, 1)
    with torch.no_grad():
        return least(lambda: ops.chunk_gated_delta_rule(q, k, v, g, beta), 200)


rows = [measure(layer) for layer in ("linear-attention", "gated-deltanet", "gla", "nlms", "mamba-2", "rls")]
operation = with_torch()
if "--json" in sys.argv:
    print(json.dumps({"microseconds": rows, "chunk_gated_delta_rule": operation}))
else:
    print(f"{'microseconds per call':<24}{'prepared':>10}{'new array':>11}{'Plan.step':>11}{'ttr.forward':>13}")
    for r in rows:
        print(f"{r['layer']:<24}{r['prepared']:10.2f}{r['rebound']:11.2f}{r['step']:11.1f}{r['forward']:13.1f}")
    if operation is not None:
        print(f"ttr.torch.ops.chunk_gated_delta_rule: {operation:.1f}")
