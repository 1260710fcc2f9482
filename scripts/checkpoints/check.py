#!/usr/bin/env python3
"""Small checkpoints with random weights in the published formats, and what `ttr logits` makes of them.

    scripts/checkpoints/check.py build/ttr            all of them: written, evaluated in numpy, compared
    scripts/checkpoints/check.py --write FOLDER       only written, each with expected.json beside it

A logit must agree with the plain evaluation (double: 1e-9, float: 1e-4 of the largest logit), token by token and in
one call.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

import fla
import mamba
import qwen
import rwkv
from files import TYPES, random_k, stored, write_gguf, write_safetensors

TOKENS = [5, 1, 30, 7, 7, 0, 22, 13, 36, 2, 5, 9, 17, 4, 28, 11, 3, 3, 19, 8, 1, 14, 33]


def with_rates(tensors, key, rates):
    """A_log in double of the -exp(A_log) that a GGUF file has in float."""
    return {**tensors, **{name: np.log(-rates[name].astype(np.float64)) for name in rates}} if rates else tensors


def rates_of(tensors):
    return {name: (-np.exp(x.astype(np.float64))).astype(np.float32) for name, x in tensors.items() if name.endswith("A_log")}


class Writer:
    def __init__(self, folder):
        self.folder, self.cases = folder, []

    def place(self, name):
        path = os.path.join(self.folder, name)
        os.makedirs(path, exist_ok=True)
        return path

    def case(self, name, model, expected, settings=(), twin=None, float_twin=None):
        """`twin`: a case with the same bits; `float_twin`: in floats, where the files hold what a float is rounded from once."""
        self.cases.append({"name": name, "model": model, "expected": expected, "settings": list(settings), "twin": twin,
                           "float_twin": float_twin})
        with open(os.path.join(self.place(name), "expected.json"), "w") as f:
            json.dump({"tokens": TOKENS, "logits": expected.tolist()}, f)

    def folder_case(self, name, config, tensors, expected, dtypes=None, shards=1, **more):
        at = self.place(name)
        if config is not None:
            with open(os.path.join(at, "config.json"), "w") as f:
                json.dump(config, f)
        if shards == 1:
            write_safetensors(os.path.join(at, "model.safetensors"), tensors, dtypes, {"format": "pt"})
        else:
            names, places = list(tensors), {}
            for s in range(shards):
                file = f"model-{s + 1:05}-of-{shards:05}.safetensors"
                part = {n: tensors[n] for n in names[s::shards]}
                write_safetensors(os.path.join(at, file), part, dtypes)
                places.update({n: file for n in part})
            with open(os.path.join(at, "model.safetensors.index.json"), "w") as f:
                json.dump({"metadata": {"total_size": 1}, "weight_map": places}, f)
        self.case(name, at, expected, **more)

    def gguf_case(self, name, keys, tensors, expected, types=None, **more):
        path = os.path.join(self.place(name), "model.gguf")
        write_gguf(path, keys, tensors, types)
        self.case(name, path, expected, **more)


def write_all(folder):
    w = Writer(folder)
    t, e = rwkv.rwkv_4()
    w.folder_case("rwkv-4", None, t, e(t, TOKENS))
    w.folder_case("rwkv-4-hf", {"model_type": "rwkv", "rescale_every": 6}, rwkv.hugging_face_4(t), e(t, TOKENS), twin="rwkv-4")
    t, e = rwkv.rwkv_5()
    w.folder_case("rwkv-5", None, t, e(t, TOKENS))
    t, e = rwkv.rwkv_5(divisor=1)
    w.folder_case("rwkv-5-eps", None, t, e(t, TOKENS), settings=["group_norm_eps=1e-5"])
    t, e = rwkv.rwkv_6()
    w.folder_case("rwkv-6", None, t, e(t, TOKENS))
    w.gguf_case("rwkv-6-gguf", *rwkv.gguf_6(t), e(t, TOKENS), twin="rwkv-6")
    t, e = rwkv.rwkv_7()
    w.folder_case("rwkv-7", None, t, e(t, TOKENS))
    w.folder_case("rwkv-7-fla", *rwkv.fla_7(t), e(t, TOKENS, eps=8e-5, inside=1e-6))
    w.gguf_case("rwkv-7-gguf", *rwkv.gguf_7(t), e(t, TOKENS), twin="rwkv-7")
    half = {n: "BF16" for n in t if n.endswith(".weight")}
    bt = {n: stored(x, half.get(n, "F32"))[1] for n, x in t.items()}
    w.folder_case("rwkv-7-bf16", None, t, e(bt, TOKENS), dtypes=half)
    half = {n: "F16" for n in t}
    ht = {n: stored(x, "F16")[1] for n, x in t.items()}
    w.folder_case("rwkv-7-f16-shards", None, t, e(ht, TOKENS), dtypes=half, shards=3)

    t, e = mamba.mamba_1()
    w.folder_case("mamba-1", None, t, e(t, TOKENS))
    w.folder_case("mamba-1-hf", {"model_type": "mamba", "layer_norm_epsilon": 1e-5, "time_step_rank": "auto"},
                  mamba.hugging_face(t), e(t, TOKENS), twin="mamba-1")
    w.gguf_case("mamba-1-gguf", *mamba.gguf_1(t), e(with_rates(t, "A_log", rates_of(t)), TOKENS), float_twin="mamba-1")
    t, e, c = mamba.mamba_2()
    w.folder_case("mamba-2", {**c, "ssm_cfg": {"layer": "Mamba2", "ngroups": 2}}, t, e(t, TOKENS))
    hf = {**{k: v for k, v in c.items() if k != "norm_eps"}, "layer_norm_epsilon": 1e-5,
          "time_step_limit": [0.0, float("inf")]}
    w.folder_case("mamba-2-hf", hf, mamba.hugging_face(t), e(t, TOKENS, norm_groups=1))
    w.gguf_case("mamba-2-gguf", *mamba.gguf_2(t, 2), e(with_rates(t, "A_log", rates_of(t)), TOKENS), float_twin="mamba-2")

    models = {"gla": fla.gla(), "retnet": fla.retnet(), "delta_net": fla.delta_net(),
              "delta_net-gate-elu": fla.delta_net(33, False, True, "elu"), "gated_deltanet": fla.gated_deltanet(),
              "gated_deltanet-hybrid": fla.gated_deltanet(34, True), "gated_deltaproduct": fla.gated_deltaproduct(),
              "gated_deltaproduct-3": fla.gated_deltaproduct(35, 3, False),
              "gated_deltaproduct-1": fla.gated_deltaproduct(36, 1, True), "hgrn2": fla.hgrn2(), "kda": fla.kda(),
              "kda-bound": fla.kda(37, -5.0), "mesa_net": fla.mesa_net(), "linear_attn": fla.linear_attn(),
              "linear_attn-hedgehog": fla.linear_attn(38, "hedgehog", True),
              "linear_attn-elu": fla.linear_attn(39, "elu", True), "transformer": fla.transformer()}
    for name, m in models.items():
        w.folder_case("fla-" + name, m.config, m.tensors, m.evaluate(m.tensors, TOKENS))

    t, e, c = qwen.model()
    w.folder_case("qwen3_5", c, t, e(t, TOKENS))
    w.folder_case("qwen3_5-nested", {"model_type": "qwen3_5", "text_config": c},
                  {(n.replace("model.", "model.language_model.", 1) if n.startswith("model.") else n): x
                   for n, x in t.items()} | {"mtp.layers.0.x": np.zeros((2, 2), np.float32)},
                  e(t, TOKENS), twin="qwen3_5")
    w.folder_case("qwen3_next", *qwen.next_names(t, c), e(t, TOKENS), twin="qwen3_5")
    for tiled in (False, True):
        keys, g = qwen.gguf(t, tiled)
        rates = rates_of(t)
        # Norms with the 1 added are rounded once more in the file: evaluate with what it holds.
        held = with_rates(t, "A_log", rates)
        for n, x in t.items():
            if n.endswith("norm.weight") and "linear_attn" not in n:
                held[n] = (1 + x).astype(np.float32).astype(np.float64) - 1
        w.gguf_case("qwen-gguf-" + ("tiled" if tiled else "grouped"), keys, g, e(held, TOKENS),
                    float_twin=None if tiled else "qwen3_5")  # tiled heads are summed in another order

    quantised(w)
    return w.cases


def quantised(w):
    """Blocks of every type, in a Mamba whose rows are long enough."""
    saved = mamba.D
    mamba.D = 256
    try:
        t, e = mamba.mamba_1(13)
        keys, g = mamba.gguf_1(t)
        keys.update({"mamba.embedding_length": 256, "mamba.ssm.inner_size": 512})
        names = {"ssm_in": "in_proj", "ssm_x": "x_proj", "ssm_out": "out_proj"}
        rng = np.random.default_rng(5)
        for kind in ("Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "F16", "BF16"):
            held, file, types = with_rates(t, "A_log", rates_of(t)), dict(g), {}
            for i in range(mamba.L):
                for short, long in names.items():
                    name, original = f"blk.{i}.{short}.weight", f"backbone.layers.{i}.mixer.{long}.weight"
                    if kind.endswith("_K"):
                        raw, means = random_k(kind, g[name].shape, rng)
                        file[name] = (kind, raw, g[name].shape)
                        held[original] = means
                    else:
                        types[name] = kind
            path = os.path.join(w.place("blocks-" + kind.lower()), "model.gguf")
            means = write_gguf(path, keys, file, types)
            for i in range(mamba.L):
                for short, long in names.items():
                    if f"blk.{i}.{short}.weight" in types:
                        held[f"backbone.layers.{i}.mixer.{long}.weight"] = means[f"blk.{i}.{short}.weight"]
            w.case("blocks-" + kind.lower(), path, e(held, TOKENS))
    finally:
        mamba.D = saved


def logits(program, case, tokens, *flags):
    command = [program, "logits", case["model"], "--tokens", ",".join(map(str, tokens)), "--all", "--json", *flags]
    for setting in case["settings"]:
        command += ["--set", setting]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        return run.stderr.strip()
    return np.array(json.loads(run.stdout)["logits"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?")
    parser.add_argument("--write", metavar="FOLDER")
    parser.add_argument("--only", help="cases whose name begins so")
    options = parser.parse_args()
    if options.write:
        print(len(write_all(options.write)), "checkpoints in", options.write)
        return 0
    failures, passed, bits = 0, 0, {}
    with tempfile.TemporaryDirectory() as folder:
        for case in write_all(folder):
            if options.only and not case["name"].startswith(options.only):
                continue
            worst = {}
            for kind, flags, limit in (("double", ["--double"], 1e-9), ("double fixed", ["--double", "--fixed"], 1e-9),
                                       ("float", [], 1e-4), ("float fixed", ["--fixed"], 1e-4)):
                got = logits(options.program, case, TOKENS, *flags)
                if isinstance(got, str):
                    worst[kind] = got
                    failures += 1
                    break
                error = np.abs(got - case["expected"]).max() / np.abs(case["expected"]).max()
                worst[kind] = f"{error:.1e}"
                bits[case["name"], kind] = got
                ok = error <= limit
                twin = case["twin"] or kind.startswith("float") and case["float_twin"]
                if ok and twin and not np.array_equal(got, bits.get((twin, kind), got)):
                    worst[kind] += f" (not the bits of {twin})"
                    ok = False
                passed, failures = passed + ok, failures + (not ok)
                if not ok:
                    worst[kind] += " FAILED"
            print(f"{case['name']:<24}", "  ".join(f"{k} {v}" for k, v in worst.items()))
    print(f"{passed} passed, {failures} failed")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
