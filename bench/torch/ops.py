"""ttr.torch against plain PyTorch (bench/torch/plain.py): twelve operations, forwards and with gradients, and decoding steps.

    PYTHONPATH=python /usr/bin/python3 bench/torch/ops.py [--quick] [--json | --markdown] [--threads 2] [NAME ... | decode | step | memory]

--markdown prints the tables of docs/python.md.

Both run in one process, by turns, and each time is the best of its rounds; before that the answers and gradients are compared.
--cpu-time counts the seconds of all threads of the process instead of those of the clock: what it says about both sides stays
true on a machine that others use too (set OMP_WAIT_POLICY=passive, or threads of torch that wait count as well).
"""

import argparse
import json
import os
import resource
import sys
import time

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import plain  # noqa: E402
from ttr.torch import ops  # noqa: E402


def case(name, T, H, D):
    """Arguments, our function and theirs."""
    made = torch.Generator().manual_seed(1)

    def draw(*shape):
        return torch.randn(*shape, generator=made)

    q, k, v = F.normalize(draw(1, T, H, D), dim=-1), F.normalize(draw(1, T, H, D), dim=-1), draw(1, T, H, D)
    head, channel = 0.1 * F.logsigmoid(draw(1, T, H)), 0.1 * F.logsigmoid(draw(1, T, H, D))
    beta = draw(1, T, H).sigmoid()
    if name == "chunk_gated_delta_rule":
        return (q, k, v, head, beta), lambda *t: ops.chunk_gated_delta_rule(*t)[0], plain.gated_delta_rule
    if name == "chunk_gated_delta_rule/rows":  # the triangle as modelling files invert it
        return (q, k, v, head, beta), lambda *t: ops.chunk_gated_delta_rule(*t)[0], plain.gated_delta_rule_by_rows
    if name == "chunk_delta_rule":
        zero = torch.zeros(1, T, H)
        return (q, k, v, beta), lambda *t: ops.chunk_delta_rule(*t)[0], lambda q, k, v, b: plain.gated_delta_rule(q, k, v, zero, b)
    if name == "chunk_kda":
        return (q, k, v, channel, beta), lambda *t: ops.chunk_kda(*t)[0], plain.kda
    if name == "chunk_gla":
        return (q, k, v, channel), lambda *t: ops.chunk_gla(*t)[0], plain.gla
    if name == "chunk_simple_gla":
        return (q, k, v, head), lambda *t: ops.chunk_simple_gla(*t)[0], plain.simple_gla
    if name == "chunk_rwkv6":
        u = draw(H, D)
        theirs = lambda r, k, v, w, u: plain.gla(r, k, v, w, 1.0, bonus=u)  # noqa: E731
        return (q, k, v, channel, u), lambda *t: ops.chunk_rwkv6(*t, scale=1.0)[0], theirs
    if name == "chunk_rwkv7":
        a = F.normalize(draw(1, T, H, D), dim=-1)
        ours = lambda q, k, v, a, b, g: ops.chunk_rwkv7(q, g, k, v, a, b)[0]  # noqa: E731
        return (q, k, v, -a, 0.5 * a, channel), ours, plain.dplr
    if name == "mamba_chunk_scan_combined":  # one group of B and C for all heads
        dt, A = F.softplus(draw(1, T, H) - 2), -torch.rand(H, generator=made)
        B, C = draw(1, T, 1, D) / D**0.5, draw(1, T, 1, D) / D**0.5

        def theirs(x, dt, A, B, C):
            return plain.simple_gla(C.expand(-1, -1, H, -1), B.expand(-1, -1, H, -1), x * dt.unsqueeze(-1), dt * A, 1.0)

        return (v, dt, A, B, C), lambda *t: ops.mamba_chunk_scan_combined(*t, 64), theirs
    if name == "chunk_mesa_net":
        lamb = 0.5 + torch.rand(H, D, generator=made)
        return (q, k, v, head, beta, lamb), lambda *t: ops.chunk_mesa_net(*t)[0], plain.mesa
    if name == "parallel_attn":
        return (q * 8, k * 8, v), ops.parallel_attn, plain.attention
    if name == "parallel_attn/added":
        return (q * 8, k * 8, v), ops.parallel_attn, plain.attention_added
    if name == "parallel_forgetting_attn":
        return (q * 8, k * 8, v, head), ops.parallel_forgetting_attn, plain.attention
    if name == "selective_scan_fn":
        channels, states = H * D, 16
        u, delta, z = (draw(1, channels, T) for _ in range(3))
        A, B, C = -torch.rand(channels, states, generator=made), draw(1, states, T), draw(1, states, T)
        rest = (draw(channels), z, draw(channels))
        return (u, delta, A, B, C, *rest), lambda *t: ops.selective_scan_fn(*t, delta_softplus=True), plain.selective_scan
    if name == "causal_conv1d_fn":
        return (draw(1, H * D, T), draw(H * D, 4)), lambda x, w: ops.causal_conv1d_fn(x, w, activation="silu"), plain.convolution
    raise SystemExit(f"there is no case '{name}'; there are {', '.join(NAMES)}")


NAMES = ["chunk_gated_delta_rule", "chunk_gated_delta_rule/rows", "chunk_delta_rule", "chunk_kda", "chunk_gla", "chunk_simple_gla", "chunk_rwkv6", "chunk_rwkv7"]
NAMES += ["mamba_chunk_scan_combined", "chunk_mesa_net", "parallel_attn", "parallel_attn/added", "parallel_forgetting_attn", "selective_scan_fn"]
NAMES += ["causal_conv1d_fn"]
SLOW = {"chunk_rwkv7", "selective_scan_fn"}  # loops over tokens: with gradients a graph of thousands of nodes
TOLERANCE = {"chunk_mesa_net": 3e-2,  # thirty steps of conjugate gradients are not the answer
             "convolution_step": 2e-2}  # in bfloat16


CLOCK = [time.perf_counter]


def best(function, rounds, seconds=0.6):
    shortest, spent = float("inf"), 0.0
    for n in range(rounds):
        begin = CLOCK[0]()
        function()
        taken = CLOCK[0]() - begin
        shortest, spent = min(shortest, taken), spent + taken
        if n >= 1 and spent > seconds:
            break
    return shortest


def with_gradients(function, arguments, d):
    leaves = [t.detach().requires_grad_() for t in arguments]

    def run():
        for leaf in leaves:
            leaf.grad = None
        function(*leaves).backward(d)
        return leaves

    return run


def compare(name, ours, theirs):
    scale = max(float(t.abs().max()) for t in theirs)
    off = max(float((a - b).abs().max()) for a, b in zip(ours, theirs)) / max(scale, 1.0)
    if not off < TOLERANCE.get(name, 1e-3):
        raise SystemExit(f"{name}: ttr and plain PyTorch differ by {off:.1e}; nothing is measured")
    return off


def measure(name, T, H, D, rounds):
    arguments, ours, theirs = case(name, T, H, D)
    row = {"name": name, "time": T, "heads": H, "dim": D}
    with torch.no_grad():
        a, b = ours(*arguments), theirs(*arguments)
        row["off"] = compare(name, [a], [b])
        for _ in range(2):  # by turns
            for key, function in (("ours_ms", ours), ("theirs_ms", theirs)):
                row[key] = min(row.get(key, 1e9), 1e3 * best(lambda: function(*arguments), rounds))  # noqa: B023
    row["forward"] = row["theirs_ms"] / row["ours_ms"]
    d = torch.randn(a.shape, generator=torch.Generator().manual_seed(2))
    both = with_gradients(ours, arguments, d), with_gradients(theirs, arguments, d)
    row["gradient_off"] = compare(name, [t.grad for t in both[0]()], [t.grad for t in both[1]()])
    for _ in range(2):
        for key, function in (("ours_both_ms", both[0]), ("theirs_both_ms", both[1])):
            row[key] = min(row.get(key, 1e9), 1e3 * best(function, rounds))
    row["both"] = row["theirs_both_ms"] / row["ours_both_ms"]
    return row


def decode(H, D, tokens):
    """A step of the gated delta rule from a state, as a model decodes: the recurrent fallback, our operation, a cache, a prepared call."""
    import ttr

    made = torch.Generator().manual_seed(3)
    q, k, v = (F.normalize(torch.randn(1, 1, H, D, generator=made), dim=-1) for _ in range(3))
    g, beta = -torch.rand(1, 1, H, generator=made), torch.rand(1, 1, H, generator=made)
    S = torch.randn(1, H, D, D, generator=made)
    with torch.no_grad():
        a, b = ops.fused_recurrent_gated_delta_rule(q, k, v, g, beta=beta, initial_state=S, output_final_state=True), None
        b = plain.recurrent_gated_delta_rule(q, k, v, g, beta, S)
        off = compare("decode", a, b)

        def theirs(S=S):
            for _ in range(tokens):
                _, S = plain.recurrent_gated_delta_rule(q, k, v, g, beta, S)

        def operation(S=S):
            for _ in range(tokens):
                _, S = ops.fused_recurrent_gated_delta_rule(q, k, v, g, beta=beta, initial_state=S, output_final_state=True)

        from ttr.torch._call import run_state

        inputs, kept = {"q": q, "k": k, "v": v, "g": g, "beta": beta}, [None]

        def cached():  # what modules with a cache do: the state stays where it is
            for _ in range(tokens):
                kept[0] = run_state("gated-deltanet", inputs, kept[0])[1]

        plan = ttr.plan("gated-deltanet", heads=H, key_dim=D, value_dim=D, threads=torch.get_num_threads())
        state = plan.state()
        state["S"][...] = S.numpy()
        call = plan.prepare(q=q.numpy(), k=k.numpy(), v=v.numpy(), g=g.numpy(), beta=beta.numpy(), state=state, form="step")

        def prepared():
            for _ in range(tokens):
                call()

        times = {name: 1e6 * min(best(f, 5), best(f, 5)) / tokens for name, f in
                 (("fallback_us", theirs), ("operation_us", operation), ("cached_us", cached), ("prepared_us", prepared))}
    return {"heads": H, "dim": D, "off": off, **times, "operation": times["fallback_us"] / times["operation_us"],
            "cached": times["fallback_us"] / times["cached_us"], "prepared": times["fallback_us"] / times["prepared_us"]}


def step(channels, width, batch, kind):
    """One token of the short convolution, as models decode: the fallback of modelling files and what `accelerate` has."""
    from ttr.torch import fla

    made = torch.Generator().manual_seed(4)
    shapes = (batch, channels, 1), (batch, channels, width), (channels, width)
    x, state, w = (torch.randn(*shape, generator=made).to(kind) for shape in shapes)
    row = {"channels": channels, "width": width, "batch": batch, "type": str(kind).split(".")[-1]}
    with torch.no_grad():
        kept = state.clone(), state.clone()
        ours, theirs = (f(x, s, w) for f, s in zip((fla.torch_causal_conv1d_update, plain.convolution_step), kept))
        row["off"] = compare("convolution_step", (ours.float(), kept[0].float()), (theirs.float(), kept[1].float()))
        for _ in range(20):  # by turns, twenty steps at a time
            for key, function in (("ours_us", fla.torch_causal_conv1d_update), ("theirs_us", plain.convolution_step)):
                taken = best(lambda: [function(x, state, w) for _ in range(20)], 5) / 20  # noqa: B023
                row[key] = min(row.get(key, 1e9), 1e6 * taken)
    return {**row, "faster": row["theirs_us"] / row["ours_us"]}


def steps(quick):
    """Channels and taps of LFM2 and Qwen3-Next."""
    sizes = [(64, 3)] if quick else [(1024, 3), (2048, 3), (8192, 4)]
    return [step(D, W, B, kind) for D, W in sizes for B in (1, 4) for kind in (torch.float32, torch.bfloat16)]


def memory(T, H, D):
    """Bytes that a second call allocates besides its outputs, by the allocator of torch and the size of the process."""
    arguments, ours, _ = case("chunk_gated_delta_rule", T, H, D)
    with torch.no_grad():
        ours(*arguments)
        with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as trace:
            o = ours(*arguments)
        allocated = sum(e.cpu_memory_usage for e in trace.events() if e.cpu_memory_usage > 0 and not e.cpu_children)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(20):
            o = ours(*arguments)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"output_bytes": o.numel() * o.element_size(), "allocated_bytes": allocated, "grown_kilobytes": grown}


def markdown(result):
    """The tables of docs/python.md."""
    ways = {"": "", "rows": " (triangle inverted row by row, as modelling files do)", "added": " (the product adds the mask)"}
    lines = ["| operation | T, H, D | forward | | with gradients | |", "|---|---|---|---|---|---|"]
    for r in result["rows"]:
        name, _, way = r["name"].partition("/")
        lines.append(f"| `{name}`{ways[way]} | {r['time']}, {r['heads']}, {r['dim']} | {r['theirs_ms']:.4g} -> {r['ours_ms']:.3g} ms | "
                     f"{r['forward']:.1f}x | {r['theirs_both_ms']:.4g} -> {r['ours_both_ms']:.3g} ms | {r['both']:.1f}x |")
    if "decode" in result:
        lines += ["", "| H, D | recurrent fallback | operation, state in and out | module with a cache | prepared call |", "|---|---|---|---|---|"]
        for r in result["decode"]:
            cells = [f"{r[n + '_us']:.3g} us, {r[n]:.3g}x" for n in ("operation", "cached", "prepared")]
            lines.append(f"| {r['heads']}, {r['dim']} | {r['fallback_us']:.3g} us | {' | '.join(cells)} |")
    if "step" in result:
        lines += ["", "| channels, taps, batch | float32 | | bfloat16 | |", "|---|---|---|---|---|"]
        for pair in zip(result["step"][::2], result["step"][1::2]):
            cells = [f"{r['theirs_us']:.3g} -> {r['ours_us']:.3g} us | {r['faster']:.1f}x" for r in pair]
            lines.append(f"| {pair[0]['channels']}, {pair[0]['width']}, {pair[0]['batch']} | {' | '.join(cells)} |")
    if "memory" in result:
        m = result["memory"]
        lines += ["", f"A second call allocates {m['allocated_bytes']} bytes by torch, of which {m['output_bytes']} are the output; the "
                  f"process grew by {m['grown_kilobytes']} kB in 20 more."]
    lines += ["", f"torch {result['torch']}, {result['threads']} threads, {result['clock']} time."]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--quick", action="store_true", help="small shapes: does it run, do the answers agree")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="the tables of docs/python.md")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--shape", help="T,H,D; 2048,16,128 unless given, smaller for loops over tokens")
    parser.add_argument("--cpu-time", action="store_true", help="seconds of the processor, all threads together")
    options = parser.parse_args()
    if options.cpu_time:
        CLOCK[0] = time.process_time
    torch.set_num_threads(options.threads)
    shape = (128, 2, 16) if options.quick else (2048, 16, 128)
    if options.shape:
        shape = tuple(int(n) for n in options.shape.split(","))
    given = options.quick or options.shape
    rows = []
    extras = ("decode", "step", "memory")
    for name in [n for n in options.names or NAMES if n not in extras]:
        T, H, D = shape
        if name in SLOW and not given:
            T, H, D = 512, 4, 64
        if name == "chunk_mesa_net" and not given:
            T, H, D = 1024, 8, 64
        rows.append(measure(name, T, H, D, 2 if options.quick else 6))
        if options.markdown:
            print(f"measured {name}", file=sys.stderr, flush=True)
        elif not options.json:
            r = rows[-1]
            print(f"{r['name']:<28} T{T} H{H} D{D}  forward {r['theirs_ms']:9.2f} -> {r['ours_ms']:8.2f} ms  {r['forward']:6.1f}x   "
                  f"with gradients {r['theirs_both_ms']:9.2f} -> {r['ours_both_ms']:8.2f} ms  {r['both']:6.1f}x", flush=True)
    result = {"threads": options.threads, "clock": "processor" if options.cpu_time else "wall", "torch": torch.__version__, "rows": rows}
    wanted = [n for n in extras if not options.names or n in options.names]
    if "decode" in wanted:
        result["decode"] = [decode(H, D, 20) for H, D in ([(2, 16)] if options.quick else [(16, 128), (4, 64)])]
        for r in [] if options.json or options.markdown else result["decode"]:
            print(f"decoding step H{r['heads']} D{r['dim']}: fallback {r['fallback_us']:.0f} us, operation {r['operation_us']:.0f} us "
                  f"({r['operation']:.1f}x), with a cache {r['cached_us']:.0f} us ({r['cached']:.1f}x), "
                  f"prepared call {r['prepared_us']:.1f} us ({r['prepared']:.1f}x)")
    if "step" in wanted:
        result["step"] = steps(options.quick)
        for r in [] if options.json or options.markdown else result["step"]:
            print(f"convolution step, {r['channels']} channels, {r['width']} taps, batch {r['batch']}, {r['type']}: "
                  f"{r['theirs_us']:.1f} -> {r['ours_us']:.1f} us  {r['faster']:.1f}x")
    if "memory" in wanted:
        m = result["memory"] = memory(*shape)
        if not options.json and not options.markdown:
            print(f"a second call allocates {m['allocated_bytes']} bytes by torch, of which {m['output_bytes']} are the output; "
                  f"the process grew by {m['grown_kilobytes']} kB in 20 more")
    if options.json:
        print(json.dumps(result))
    if options.markdown:
        print(markdown(result))


if __name__ == "__main__":
    main()
