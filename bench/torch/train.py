#!/usr/bin/env python3
"""The model of `ttr bench train` in plain PyTorch, with the same numbers in it, and how fast each of them trains.

    /usr/bin/python3 bench/torch/train.py build/ttr [--width 128 --heads 2 --time 256 --batch 32 ...] [--json]

Needs Debian's python3-torch, python3-numpy and libopenblas0-pthread; nothing else in this repository needs this script.
PyTorch calls whatever BLAS is the system's: with the reference BLAS it is nine times slower, and the script refuses.

Two blocks of Gated DeltaNet and SwiGLU, embedding, head, cross-entropy, AdamW with clipping. The memory is written in two
ways. `--memory chunks`: the chunked algorithm of the paper (arXiv 2412.06464, section 3.3) as one would write it with
batched products, a triangular solve for all chunks at once, then a loop over the chunks for the state. `--memory tokens`:
the paper's recurrence, token after token. Everything else is a module or a function of PyTorch, all threads, no compiler. Parameters, tokens and labels are drawn from the same random streams as those of the program, so
that the first loss must agree with the program's; the script says so and stops if it does not.
"""
import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time

if "--processor-time" in sys.argv:  # before the library is loaded: it has a pool of its own
    os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import torch
import torch.nn.functional as F

WORD = np.uint64


def mix(z):
    z = (z ^ (z >> WORD(30))) * WORD(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> WORD(27))) * WORD(0x94D049BB133111EB)
    return z ^ (z >> WORD(31))


class Stream:
    """Random numbers of training (include/ttr/random.h), many at a time."""

    def __init__(self, seed, name):
        with np.errstate(over="ignore"):
            state = mix(WORD(seed) + WORD(0x632BE59BD9B4E019))
            for letter in name.encode():
                state = mix(state ^ WORD(letter))
        self.state = state

    def bits(self, count):
        with np.errstate(over="ignore"):
            states = self.state + np.arange(1, count + 1, dtype=WORD) * WORD(0x9E3779B97F4A7C15)
            self.state = states[-1]
            return mix(states)

    def uniform(self, count):
        return ((self.bits(count) >> WORD(11)).astype(np.float64) + 0.5) * 2.0**-53

    def normal(self, count):
        u = self.uniform(2 * count).reshape(count, 2)
        return np.sqrt(-2 * np.log(u[:, 0])) * np.cos(6.283185307179586 * u[:, 1])

    def below(self, n, count):
        return (self.bits(count) % WORD(n)).astype(np.int64)  # a draw that would have to be repeated: one in 2^55


def parameter(seed, name, shape, kind, *range_):
    stream, count = Stream(seed, name), math.prod(shape)
    if kind == "normal":
        numbers = range_[0] * stream.normal(count)
    elif kind == "one":
        numbers = np.ones(count)
    elif kind == "log_spread":
        numbers = np.log(range_[0] + (range_[1] - range_[0]) * stream.uniform(count))
    else:  # the inverse softplus of a step
        low, high = math.log(range_[0]), math.log(range_[1])
        dt = np.exp(low + (high - low) * stream.uniform(count))
        numbers = dt + np.log(-np.expm1(-dt))
    return torch.nn.Parameter(torch.tensor(numbers.reshape(shape), dtype=torch.float32))


def rms_norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def unit(x):
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def gated_delta_rule(q, k, v, beta, g, chunk):
    """q, k [B, H, T, K], v [B, H, T, V], beta and g [B, H, T]; T is a multiple of the chunk."""
    B, H, T, K = q.shape
    V, N, C = v.shape[-1], T // chunk, chunk
    q, k, v = (x.reshape(B, H, N, C, -1) for x in (q * K**-0.5, k, v))
    beta, g = beta.reshape(B, H, N, C), g.reshape(B, H, N, C).cumsum(-1)
    lower = torch.ones(C, C, dtype=torch.bool).tril()
    decay = (g.unsqueeze(-1) - g.unsqueeze(-2)).masked_fill(~lower, -math.inf).exp()
    system = torch.eye(C) + (beta.unsqueeze(-1) * (k @ k.transpose(-1, -2)) * decay).tril(-1)
    right = beta.unsqueeze(-1) * torch.cat([v, k * g.exp().unsqueeze(-1)], -1)
    u, w = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True).split([V, K], -1)
    inside = (q @ k.transpose(-1, -2)) * decay
    q = q * g.exp().unsqueeze(-1)
    end = g[..., -1:]
    k = (k * (end - g).exp().unsqueeze(-1)).transpose(-1, -2)
    state, out = torch.zeros(B, H, K, V), []
    for n in range(N):
        new = u[:, :, n] - w[:, :, n] @ state
        out.append(q[:, :, n] @ state + inside[:, :, n] @ new)
        state = state * end[:, :, n].exp().unsqueeze(-1) + k[:, :, n] @ new
    return torch.stack(out, 2).reshape(B, H, T, V)


def gated_delta_rule_by_tokens(q, k, v, beta, g):
    """The same, as the recurrence S_t = e^g (I - beta k k') S_{t-1} + beta k v' is written."""
    state, out = torch.zeros(*q.shape[:2], q.shape[-1], v.shape[-1]), []
    q, decay, beta = q * q.shape[-1] ** -0.5, g.exp(), beta.unsqueeze(-1)
    for t in range(q.shape[2]):
        state = state * decay[:, :, t, None, None]
        error = v[:, :, t] - (k[:, :, t].unsqueeze(-2) @ state).squeeze(-2)
        state = state + k[:, :, t].unsqueeze(-1) * (beta[:, :, t] * error).unsqueeze(-2)
        out.append((q[:, :, t].unsqueeze(-2) @ state).squeeze(-2))
    return torch.stack(out, 2)


class Block(torch.nn.Module):
    def __init__(self, o, index):
        super().__init__()
        W, H, self.chunk, self.memory = o.width, o.heads, o.chunk, o.memory
        self.heads, self.dim, name = H, W // H, f"blocks.{index}.mixer."
        self.columns = [W, W, W, H, H, W]  # q, k, v, beta, g, the gate of the output
        hidden = (8 * W // 3 + 15) // 16 * 16
        deep, make = W**-0.5, lambda *a: parameter(1, *a)
        self.norm = make(name + "norm", (W,), "one")
        self.rate = make(name + "g_rate", (H,), "log_spread", 1, 16)
        self.bias = make(name + "g_bias", (H,), "step", 1e-3, 0.1)
        self.project = make(name + "in", (W, sum(self.columns)), "normal", deep)
        self.taps = make(name + "taps", (3 * W, 4), "normal", 0.5)
        self.out_norm = make(name + "out_norm", (self.dim,), "one")
        self.out = make(name + "out", (W, W), "normal", (2 * o.blocks * W) ** -0.5)
        name = f"blocks.{index}.mlp."
        self.mlp_norm = make(name + "norm", (W,), "one")
        self.mlp_in = make(name + "in", (W, 2 * hidden), "normal", deep)
        self.mlp_out = make(name + "out", (hidden, W), "normal", (2 * o.blocks * hidden) ** -0.5)

    def forward(self, r):
        B, T, W = r.shape
        H, d = self.heads, self.dim
        x, beta, g, z = (rms_norm(r, self.norm) @ self.project).split([3 * W, H, H, W], -1)
        x = F.silu(F.conv1d(F.pad(x.transpose(1, 2), (3, 0)), self.taps.unsqueeze(1), groups=3 * W))
        q, k, v = x.reshape(B, 3, H, d, T).transpose(-1, -2).unbind(1)
        beta, g = torch.sigmoid(beta), -self.rate.exp() * F.softplus(g + self.bias)
        inputs = unit(q), unit(k), v, beta.transpose(1, 2), g.transpose(1, 2)
        y = gated_delta_rule_by_tokens(*inputs) if self.memory == "tokens" else gated_delta_rule(*inputs, self.chunk)
        y = (rms_norm(y.transpose(1, 2), self.out_norm) * F.silu(z.reshape(B, T, H, d))).reshape(B, T, W)
        r = r + y @ self.out
        a, b = (rms_norm(r, self.mlp_norm) @ self.mlp_in).chunk(2, -1)
        return r + (F.silu(a) * b) @ self.mlp_out


class Model(torch.nn.Module):
    def __init__(self, o):
        super().__init__()
        self.embedding = parameter(1, "embedding", (o.vocabulary, o.width), "normal", o.width**-0.5)
        self.blocks = torch.nn.ModuleList(Block(o, i) for i in range(o.blocks))
        self.norm = parameter(1, "norm", (o.width,), "one")
        self.head = parameter(1, "head", (o.width, o.vocabulary), "normal", o.width**-0.5)

    def forward(self, tokens, labels):
        r = F.embedding(tokens, self.embedding)
        for block in self.blocks:
            r = block(r)
        return F.cross_entropy((rms_norm(r, self.norm) @ self.head).flatten(0, 1), labels.flatten())


def fast_blas():
    """The library that multiplies for PyTorch, by its name; None: the reference."""
    torch.ones(2, 2) @ torch.ones(2, 2)
    with open("/proc/self/maps") as maps:
        loaded = maps.read()
    return next((name for name in ("openblas", "blis", "mkl_rt") if name in loaded), None)


def program(o, sizes, runs):
    sizes = {name: getattr(o, name) for name in sizes} | {"runs": runs}
    command = [o.ttr, "bench", "train", "--json"] + [x for n, size in sizes.items() for x in ("--" + n, str(size))]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["cases"][0]


def children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ttr", help="the program, build/ttr")
    sizes = {"blocks": 2, "width": 128, "heads": 2, "time": 256, "batch": 32, "vocabulary": 256, "threads": 2, "runs": 9}
    for name, default in sizes.items():
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--chunk", type=int, default=64, help="of the PyTorch model; divides the time")
    parser.add_argument("--memory", choices=["chunks", "tokens"], default="chunks", help="of the PyTorch model")
    parser.add_argument("--processor-time", action="store_true",
                        help="one thread each, by processor time, where other programs run")
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    if o.time % o.chunk:
        sys.exit(f"--chunk is {o.chunk} and does not divide the time {o.time}")
    if o.processor_time:
        o.threads = 1
    ours, clock = program(o, sizes, o.runs), time.perf_counter
    if o.processor_time:  # of as many steps more
        spent = [children_seconds()]
        for runs in (1, 1 + o.runs):
            program(o, sizes, runs)
            spent.append(children_seconds())
        ours["tokens_per_s"] = o.runs * o.batch * o.time / (spent[2] - 2 * spent[1] + spent[0])
        clock = time.process_time

    torch.set_num_threads(o.threads)
    blas = fast_blas()
    if not blas:
        sys.exit("PyTorch found the reference BLAS alone; install libopenblas0-pthread for a fair comparison")
    data = Stream(1, "bench train")
    tokens, labels = (torch.tensor(data.below(o.vocabulary, o.batch * o.time).reshape(o.batch, o.time)) for _ in "12")
    model = Model(o)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
    seconds, losses = [], []
    for _ in range(o.runs + 2):  # two to warm up
        begin = clock()
        optimiser.zero_grad(set_to_none=True)
        loss = model(tokens, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
        seconds.append(clock() - begin)
    if abs(losses[0] - ours["first_loss"]) > 1e-5 * abs(losses[0]):
        sys.exit(f"the first loss is {losses[0]:.7f} here and {ours['first_loss']:.7f} in the program: another model")
    theirs = o.batch * o.time / statistics.median(seconds[2:])
    result = {"first_loss": [ours["first_loss"], losses[0]], "ttr_tokens_per_s": ours["tokens_per_s"],
              "torch_tokens_per_s": theirs, "times": ours["tokens_per_s"] / theirs, "torch": torch.__version__,
              "percent_peak": ours["percent_peak"], "memory": o.memory, "chunk": o.chunk, "threads": o.threads,
              "blas": blas, "clock": clock.__name__}
    if o.json:
        print(json.dumps(result))
    else:
        print(f"first loss: ttr {ours['first_loss']:.6f}, PyTorch {losses[0]:.6f}")
        print(f"tokens/s:   ttr {ours['tokens_per_s']:.0f}, PyTorch {torch.__version__} {theirs:.0f} ({o.memory}, "
              f"{o.threads} threads, {blas}): {result['times']:.1f} times")


if __name__ == "__main__":
    main()
