#!/usr/bin/env python3
"""The grid of recipes: every weight with every memory and every solver, through the program.

    scripts/design-space.py build/ttr              which are valid, which run on a kernel, why the others are refused
    scripts/design-space.py build/ttr --check      and each valid one through `ttr check --quiet`, all of its cases (hours)
    scripts/design-space.py build/ttr --check=small      the same with the small cases below (20 CPU minutes)
    scripts/design-space.py build/ttr --regress    and each valid one over a stream of 60 rows

A recipe is valid, or is refused with a sentence and exit code 2; anything else (a crash, a failed check, no sentence) is
printed and makes the exit code 1. `--part I/N` takes every N-th recipe from the I-th on, `--json` prints JSON.
"""
import argparse
import collections
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile

WEIGHTS = ["equal", "equal(beta)", "decay(0.9)", "decay", "gate", "gate(beta)", "gate(key)", "gate(value)", "window(8)",
           "window(8) * decay(0.9)", "window(8) * gate", "near(exp)", "near(gauss)", "near(gauss, bandwidth=2)",
           "near(exp) * window(8)", "near(exp) * decay(0.9)", "near(exp) * gate", "gate * levels(6)"]
MEMORIES = ["linear", "linear(elu1)", "linear(relu)", "linear(taylor2)", "linear(polynomial, degree=2)", "linear(dpfp)",
            "linear(bias)", "constant", "local(1)", "local(2)", "local(3)", "kernel(exp)", "kernel(gauss)",
            "kernel(polynomial, degree=2)", "mlp(2)", "mlp(2, width=8, tanh, bias)", "swiglu(width=8)",
            "layernorm(linear)", "slots(4)"]
SOLVERS = ["gd(1)", "gd(1, step)", "gd(3)", "gd(8, step=auto)", "descend(1, step=0.1)", "descend(3, step=0.1)",
           "sgd(beta)", "sgd(beta, decay)", "sgd(nlms)", "sgd(longhorn)", "sgd(beta, momentum)", "sgd(3, beta)",
           "sgd(beta, leak=0.01)", "minibatch(4, rate=0.1)", "minibatch(16, rate=0.1)", "exact", "exact(ridge=0.1)",
           "exact(ridge)", "cg(4, ridge=0.1)", "chebyshev(4, ridge=0.1)", "apa(3, mu=0.5, eps=0.1)",
           "kalman(process=0.01, noise=0.1)", "given"]

# As those of `ttr check` (cli/check_case.cc), with keys and times that are small enough for a solve of wide features.
SMALL_CASES = ["B2-T7-H1-K3-V5-f64-seed1", "B1-T12-H4-G2-K3-V3-C5-f64-seed2", "B1-T1-H2-K4-V4-f64-seed3",
               "B2-T33-H2-G1-K3-V4-C16-f64-seed4", "B1-T40-H1-K1-V1-f64-seed5", "B1-T66-H2-K2-V3-C32-f64-seed6",
               "B2-T7-H1-K3-V5-f32-seed7", "B2-T31-H4-G2-K3-V4-C8-f32-seed9", "B1-T60-H2-K3-V5-C64-f32-strong-seed10",
               "B1-T150-H2-K3-V3-C16-f64-alone-seed11", "B1-T21-H2-K3-V4-C8-f64-closed-seed15",
               "B2-T21-H2-K3-V4-C8-f32-closed-seed16"]


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


def refusal(done):
    """The sentence of an error, or nothing if the program did not refuse as it should."""
    if done.returncode != 2:
        return ""
    try:
        return json.loads(done.stderr or done.stdout)["error"]["message"]
    except (ValueError, KeyError):
        return ""


def stream(path):
    draw = random.Random(1)
    with open(path, "w", encoding="utf-8") as file:
        file.write("a,b,c,x,y\n")
        for _ in range(60):
            a, b, c = (draw.gauss(0, 1) for _ in range(3))
            file.write(f"{a:.6f},{b:.6f},{c:.6f},{a - b:.6f},{0.5 * c + 0.1 * a * b:.6f}\n")


def main():
    parser = argparse.ArgumentParser(description="The grid of recipes through the program.")
    parser.add_argument("program", help="the program, build/ttr")
    parser.add_argument("--check", nargs="?", const="all", choices=["all", "small"],
                        help="run `ttr check` on every valid recipe, all of its cases or the small ones of this script")
    parser.add_argument("--regress", action="store_true", help="run every valid recipe over a stream of 60 rows")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="every N-th recipe from the I-th on")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if not os.access(options.program, os.X_OK):
        sys.exit(f"design-space: '{options.program}' is no program; build it with `make build` and name build/ttr")
    first, every = (int(n) for n in options.part.split("/"))
    recipes = [" / ".join(r) for r in itertools.product(WEIGHTS, MEMORIES, SOLVERS)][first::every]

    families, faults, refused, stream_refused, shortened = collections.Counter(), [], 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "data.csv")
        stream(data)
        for n, recipe in enumerate(recipes):
            if sys.stderr.isatty() and n % 50 == 0:
                print(f"\r{n} of {len(recipes)}", end="", file=sys.stderr)
            done = run(options.program, "layers", recipe, "--json")
            if done.returncode != 0:
                refused += 1
                if not refusal(done):
                    faults.append((recipe, "layers", f"exit code {done.returncode}: {done.stderr.strip()[:200]}"))
                continue
            families[json.loads(done.stdout)["family"]] += 1
            if options.check:
                what = [recipe] if options.check == "all" else [f"{recipe}:{case}" for case in SMALL_CASES]
                done = run(options.program, "check", *what, "--quiet")
                if done.returncode != 0:
                    faults.append((recipe, "check", (done.stdout + done.stderr).strip()[-1500:]))
                shortened += "fewer tokens were compared" in done.stdout
            if options.regress:
                done = run(options.program, "regress", data, "--keys", "a,b,c", "--values", "x,y", "--layer", recipe,
                           "--json")
                if done.returncode != 0:
                    stream_refused += 1
                    if not refusal(done):
                        faults.append((recipe, "regress", f"exit code {done.returncode}: {done.stderr.strip()[:200]}"))
    if sys.stderr.isatty():
        print("\r" + " " * 30 + "\r", end="", file=sys.stderr)

    valid = sum(families.values())
    oracle = families["oracle"]
    if options.json:
        print(json.dumps({"recipes": len(recipes), "valid": valid, "refused": refused, "on_oracle": oracle,
                          "families": families, "refused_on_a_stream": stream_refused, "shortened": shortened,
                          "faults": [dict(zip(("recipe", "command", "message"), f)) for f in faults]}, indent=2))
    else:
        for family, count in families.most_common():
            print(f"{family:20} {count:6}")
        for recipe, command, message in faults:
            print(f"{command} {recipe!r}: {message}")
        print(f"{len(recipes)} recipes: {refused} refused with a reason, {valid} valid, {oracle} of them "
              f"({100 * oracle / max(valid, 1):.0f} %) on the oracle; {stream_refused} refused on a stream; "
              f"{shortened} diverge or magnify rounding within a case; {len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
