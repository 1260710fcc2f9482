#!/usr/bin/env python3
"""The cost model of docs/scaling.md: fits it to runs of `ttr bench mpi --json` and predicts larger machines.

    scripts/scaling-tables.sh build/ttr        makes the runs and calls this:
    scripts/scaling-model.py ranks1.json ranks2.json ranks3.json ranks4.json --unseen others.json .. --training weak-*.json

Runs after --unseen are predicted and not fitted to: other lengths, groups or ranks of the same layers and heads. Those after
--training are of `ttr train --json` on 1 and 2 ranks, weak-LAYER-RANKS-TURN.json.

Of a forward of T tokens on P ranks, with w = T / (P R) for a piece at R tokens per second (measured on one rank):

    relay   s b w (G + P - 1) / G  +  (G + P - 2) (L + S / (G N))       S bytes of state in G groups
    scan    b w (1 + m [P > 2])  +  (1 + r) (L + E / N)  +  r C  +  b w      E bytes of a map and a state, r = ceil(log2(P - 1))

L is the latency and N the bytes per second of the network; s, how much slower heads are that are taken out of their rows;
m, what a map costs in forwards; b, how much slower a core is while the others of its machine work; C, the time of one
composition of maps, as `ttr bench mpi` measures it. Where there are more ranks than cores, a phase takes at least its work
divided by the cores.

A step of training of M parameters that takes a rank t seconds, all ranks with as many sequences (weak scaling):

    b t  +  8 M (P - 1) / (P N)  +  2 (P - 1) L  +  3 L ceil(log2 P)

Gradients go to the ranks that own them and parameters come from there, a message to every other rank each.
"""
import argparse
import itertools
import json
import math
import os
import statistics


def map_numbers(layer, K):
    return K * K if layer == "gated-deltanet" else 1


def scan_steps(P):
    """Compositions of a rank at most; there is one round of messages more."""
    return math.ceil(math.log2(P - 1)) if P > 2 else 0


class Model:
    def __init__(self, rate, shape, s, m, b, L, N, C, cores=None):
        self.rate, self.shape, self.s, self.m, self.b, self.L, self.N, self.C, self.cores = rate, shape, s, m, b, L, N, C, cores

    def phase(self, works):
        """Seconds of ranks that do these at the same time."""
        works = [w for w in works if w > 0]
        if not works:
            return 0.0
        if self.cores is None or len(works) <= self.cores:
            return max(works) * (self.b if len(works) > 1 else 1)
        return self.b * max(max(works), sum(works) / self.cores)

    def bytes(self, layer, way):
        H, K, V, B = self.shape
        state = B * (8 + 4 * H * K * V)
        return state if way == "relay" else state + 4 * B * H * map_numbers(layer, K)

    def seconds(self, layer, way, T, P, G=1):
        w = T / (P * self.rate[layer])
        if P == 1:
            return w
        if way == "relay":
            turn = self.L + self.bytes(layer, way) / G / self.N
            full = self.s * w / G
            # Turns in which 1, 2, .. ranks are busy, then fewer again.
            busy = [min(i + 1, P, G, G + P - 1 - i) for i in range(G + P - 1)]
            return sum(self.phase([full] * n) for n in busy) + (G + P - 2) * turn
        first = [w] + [w * (1 + self.m[layer])] * (P - 2)
        r = scan_steps(P)
        return (self.phase(first) + (1 + r) * (self.L + self.bytes(layer, way) / self.N) + r * self.C[layer]
                + self.phase([w] * (P - 1)))

    def chain(self, layer, T, P):
        """A scan by MPI_Exscan where that is a chain."""
        return self.seconds(layer, "scan", T, P) + (P - 1 - scan_steps(P)) * (
            self.L + self.bytes(layer, "scan") / self.N + self.C[layer])

    def step(self, seconds, parameters, P):
        if P == 1:
            return seconds
        return (self.b * seconds + 8 * parameters * (P - 1) / P / self.N + 2 * (P - 1) * self.L
                + 3 * self.L * math.ceil(math.log2(P)))


def training_tables(o, b, L, N):
    runs = {}
    for name in o.training:
        layer, ranks, _ = os.path.basename(name).removeprefix("weak-").removesuffix(".json").rsplit("-", 2)
        runs.setdefault((layer, int(ranks)), []).append(json.load(open(name)))
    here = Model({}, (0, 0, 0, 0), 1, {}, b, L, N, {})
    found = {}
    print("\nWeak scaling of training, measured, and by the model:\n")
    print("| layer | tokens/s, 1 rank | 2 ranks | share of twice the speed | by the model | measured / model |\n|---|---|---|---|---|---|")
    for layer in sorted({layer for layer, _ in runs}):
        one, two = (statistics.median(run["tokens_per_second"] for run in runs[layer, ranks]) for ranks in (1, 2))
        t, parameters = o.tokens / one, runs[layer, 1][0]["parameters"]
        found[layer] = (t, parameters)
        share = t / here.step(t, parameters, 2)
        print(f"| {layer} | {one:.0f} | {two:.0f} | {two / one / 2:.0%} | {share:.0%} | {two / one / 2 / share:.2f} |")
    print("\nPredicted, one rank a node, latency 2 us: milliseconds of a step (share of P times the speed of one)\n")
    print("| model | network | " + " | ".join(f"P = {P}" for P in (1, 8, 64, 512, 4096)) + " |\n|---|---|" + "---|" * 5)
    rows = [(f"{layer}, {M / 1e6:.2g}M parameters", t, M) for layer, (t, M) in found.items()]
    rows.append(("100M parameters, 2 s a step", 2.0, 100e6))
    for name, t, M in rows:
        for gigabits in (25, 200):
            net = Model({}, (0, 0, 0, 0), 1, {}, 1, 2e-6, gigabits / 8 * 1e9, {})
            cells = [f"{1e3 * net.step(t, M, P):.4g} ({t / net.step(t, M, P):.0%})" for P in (1, 8, 64, 512, 4096)]
            print(f"| {name} | {gigabits} Gbit/s | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--unseen", nargs="*", default=[])
    parser.add_argument("--training", nargs="*", default=[])
    parser.add_argument("--tokens", type=int, default=8 * 512, help="of a rank and step of --training")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    o = parser.parse_args()
    runs = [json.load(open(name)) for name in o.files]
    rate = {}  # the best of all runs of one rank
    for case in itertools.chain.from_iterable(run["cases"] for run in runs if run["ranks"] == 1):
        rate[case["layer"]] = max(rate.get(case["layer"], 0), case["time"] / case["seconds"])
    others = [run for run in runs if run["ranks"] > 1]
    L = min(run["latency"] for run in others)
    N = max(run["bytes_per_second"] for run in others)
    shape = (o.heads, o.dim, o.dim, 1)
    C = {}
    for case in itertools.chain.from_iterable(run["cases"] for run in others):
        if case["compositions"] > 0:
            C[case["layer"]] = min(C.get(case["layer"], math.inf), case["seconds_of_a_composition"])

    def errors(s, b, dense, factors, others=others):
        model = Model(rate, shape, s, {layer: dense if layer == "gated-deltanet" else factors for layer in rate}, b, L, N, C,
                      o.cores)
        for run in others:
            for case in run["cases"]:
                yield case, run["ranks"], model.seconds(case["layer"], case["way"], case["time"], run["ranks"],
                                                        max(1, case["groups"]))

    grid = itertools.product([1, 1.1, 1.2, 1.3, 1.5, 1.75], [1, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2], [0.5, 0.75, 1, 1.25, 1.5, 2],
                             [0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5])
    best = min(grid, key=lambda x: sum(math.log(p / c["seconds"]) ** 2 for c, _, p in errors(*x)))
    s, b, dense, factors = best
    print(f"R = {', '.join(f'{layer} {r:.3g} tokens/s' for layer, r in rate.items())}; L = {L * 1e6:.2g} us, "
          f"N = {N / 1e9:.2g} GB/s; s = {s}, b = {b}, m = {dense} (dense), {factors} (factors); "
          f"C = {', '.join(f'{layer} {1e6 * c:.3g} us' for layer, c in C.items())}\n")
    for title, some in (("fitted to", others), ("not seen by the fit", [json.load(open(name)) for name in o.unseen])):
        if not some:
            continue
        print(f"Runs that the model was {title}:\n" if some is others else f"Runs that were {title}:\n")
        print("| layer | way | groups | tokens | ranks | measured ms | model ms | model / measured |\n|---|---|---|---|---|---|---|---|")
        for case, ranks, predicted in errors(*best, some):
            groups = case["groups"] if case["way"] == "relay" else "-"
            print(f"| {case['layer']} | {case['way']} | {groups} | {case['time']:.0f} | {ranks} | {1e3 * case['seconds']:.1f} | "
                  f"{1e3 * predicted:.1f} | {predicted / case['seconds']:.2f} |")
        print()
    m = {layer: dense if layer == "gated-deltanet" else factors for layer in rate}
    # A node: one rank with all cores of a machine like this one is left out; ranks are processes of one thread.
    for gigabits in (25, 200):
        print(f"\n{gigabits} Gbit/s, latency 2 us, one rank a node, B = 1, H = {o.heads}, K = V = {o.dim}; seconds (share of P "
              "times one rank)\n")
        print("| tokens | layer | " + " | ".join(f"P = {P}" for P in (8, 64, 512, 4096)) +
              " | scan as a chain, P = 4096 | bytes per rank: ttr, all-gather of k and v |")
        print("|---|---|" + "---|" * 4 + "---|---|")
        model = Model(rate, shape, s, m, 1, 2e-6, gigabits / 8 * 1e9, C)
        for T in (2 ** 20, 2 ** 30):
            for layer in rate:
                cells = []
                for P in (8, 64, 512, 4096):
                    ways = [(model.seconds(layer, "relay", T, P, G), "relay") for G in (1, 2, 4, o.heads)] + [
                        (model.seconds(layer, "scan", T, P), "scan")]
                    t, way = min(ways)
                    cells.append(f"{t:.3g} {way} ({model.seconds(layer, way, T, 1) / P / t:.0%})")
                cells.append(f"{model.chain(layer, T, 4096):.3g}")
                gathered = 4 * T * o.heads * 2 * o.dim
                cells.append(f"{model.bytes(layer, 'scan') * (1 + scan_steps(4096)) / 1e6:.3g} MB, {gathered / 1e6:.3g} MB")
                print(f"| {'1M' if T < 2 ** 29 else '1G'} | {layer} | " + " | ".join(cells) + " |")
    if o.training:
        training_tables(o, b, L, N)


if __name__ == "__main__":
    main()
