"""Operations of ttr.torch against the golden vectors of tests/golden: outputs, final states and gradients."""

import glob
import inspect
import json
import os
import struct
import unittest

import numpy as np
import torch

import cases
from cases import flat
from ttr.torch import ops

GOLDEN = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "golden")
torch.set_num_threads(2)


def read_golden(path):
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        head = json.loads(file.read(length))
        body = file.read()
    about = head.pop("__metadata__", {})
    kinds = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32}
    found = {}
    for name, entry in head.items():
        begin, end = entry["data_offsets"]
        array = np.frombuffer(body[begin:end], kinds[entry["dtype"]]).reshape(entry["shape"])
        found[name] = torch.from_numpy(array.copy())
    return about, found


# Golden names of states, by operation of the golden folder.
STATES = {"initial_state": ["h0"], "initial_A_state": ["A0"], "h_kk_init": ["hkk0"], "h_kv_init": ["hkv0"]}
STATES.update({"initial_state_bias": ["hb0"], "initial_state/slots": ["hk0", "hv0"]})
FINAL = {"counted": "counted", "S": "ht", "A": "At", "H": "hkk", "F": "hkv", "Km": "hkt", "Vm": "hvt", "h": "ht", "W0": "ht", "b0": "hbt"}


class Golden(unittest.TestCase):
    def arguments(self, row, about, found):
        given = {}
        for name in inspect.signature(getattr(ops, row.name)).parameters:
            if f"in.{name}" in found:
                given[name] = found[f"in.{name}"].double()
            elif name in STATES or name == "initial_state":
                names = STATES["initial_state/slots"] if row.states == ("Km", "Vm") else STATES[name]
                if all(f"in.{n}" in found for n in names):
                    parts = [found[f"in.{n}"].double() for n in names]
                    given[name] = parts[0] if len(parts) == 1 else tuple(parts)
        if row.golden == "lightning_attn":
            given.update(layer_idx=int(about["layer_idx"]), num_layers=int(about["num_layers"]))
        if row.golden == "gated_delta_product":
            given["num_householder"] = int(about["num_householder"])
        if row.golden == "ttt_linear_fla":
            given["chunk_size"] = int(about["mini_batch_size"])
        if row.golden in ("gsa", "rwkv6"):
            given["scale"] = 1.0
        if row.golden in ("attn", "forgetting_attn", "parallax") and about.get("window", "none") not in ("none", "None", ""):
            given["window_size"] = int(about["window"])
        if row.golden == "attn" and "in.sink" in found:
            given["sink_bias"] = found["in.sink"].double()
        if row.golden == "precond_kda":
            given["use_qk_l2norm_in_kernel"] = False
        if row.golden == "rebased":
            given["eps"] = 1e-6  # of the naive form that made them
        if row.golden == "rwkv4":
            parts = [found.get(f"in.{n}") for n in ("alpha0", "beta0", "eps0")]
            given["state"] = torch.stack([p.double() for p in parts], 1).unsqueeze(2) if parts[0] is not None else None
        if "output_final_state" in row.signature:
            given["output_final_state"] = any(f"out.{FINAL.get(s)}" in found for s in row.states)
        return given

    def test_golden_vectors(self):
        compared = 0
        for row in cases.rows():
            if not row.golden:
                continue
            files = sorted(glob.glob(os.path.join(GOLDEN, row.golden, "*.safetensors")))
            self.assertTrue(files, row.golden)
            for path in files:
                about, found = read_golden(path)
                with self.subTest(row.name, case=os.path.basename(path)):
                    self.compare(row, about, found)
                    compared += 1
        self.assertGreater(compared, 80)

    def compare(self, row, about, found):
        given = self.arguments(row, about, found)
        named = {n: t.clone().requires_grad_() for n, t in given.items() if isinstance(t, torch.Tensor) and n != "state"}
        result = getattr(ops, row.name)(**{**given, **named})
        o, *states = flat(result)
        tolerance = 1e-9
        if row.golden == "precond_gated_delta_rule":
            tolerance = 1e-9
        want = found["out.o"].double()
        self.assertLess(float((o - want).abs().max() / max(1.0, float(want.abs().max()))), tolerance)
        loss = (o * found["grad_out.o"].double()).sum()
        if row.golden != "rwkv4":
            for part, t in zip(row.states, states):
                name = FINAL[part]
                if f"out.{name}" not in found:
                    continue
                want = found[f"out.{name}"].double()
                self.assertLess(float((t - want).abs().max() / max(1.0, float(want.abs().max()))), tolerance, part)
                if f"grad_out.{name}" in found:
                    loss = loss + (t * found[f"grad_out.{name}"].double()).sum()
        loss.backward()
        for name, t in named.items():
            if f"grad_in.{name}" not in found:
                continue
            want = found[f"grad_in.{name}"].double()
            off = float((t.grad - want).abs().max() / max(1.0, float(want.abs().max())))
            self.assertLess(off, 1e-8, f"gradient of {name}")


class OtherGolden(unittest.TestCase):
    """Golden vectors whose names are not the arguments of an operation."""

    def each(self, folder):
        files = sorted(glob.glob(os.path.join(GOLDEN, folder, "*.safetensors")))
        self.assertTrue(files, folder)
        for path in files:
            about, found = read_golden(path)
            with self.subTest(folder, case=os.path.basename(path)):
                leaves = {n[3:]: t.double().requires_grad_() for n, t in found.items() if n.startswith("in.")}
                yield about, found, leaves

    def judge(self, found, leaves, results):
        loss = 0
        for name, t in results.items():
            if f"out.{name}" not in found:
                continue
            want = found[f"out.{name}"].double()
            self.assertLess(float((t - want).abs().max() / max(1.0, float(want.abs().max()))), 1e-9, name)
            if f"grad_out.{name}" in found:
                loss = loss + (t * found[f"grad_out.{name}"].double()).sum()
        loss.backward()
        compared = 0
        for name, leaf in leaves.items():
            if f"grad_in.{name}" in found:
                want = found[f"grad_in.{name}"].double()
                self.assertLess(float((leaf.grad - want).abs().max() / max(1.0, float(want.abs().max()))), 1e-8, name)
                compared += 1
        self.assertGreater(compared, 1)

    def test_rwkv7(self):
        for _, found, x in self.each("rwkv7"):
            kk = torch.nn.functional.normalize(x["k_raw"] * x["k_k"], dim=-1)
            k = x["k_raw"] * (1 + (x["a"] - 1) * x["k_a"])
            bonus = (x["r"] * k * x["r_k"]).sum(-1, keepdim=True) * x["v"]
            for function, sides in ((ops.chunk_rwkv7, (-kk, kk * x["a"])), (ops.fused_mul_recurrent_rwkv7, (kk, x["a"]))):
                for leaf in x.values():
                    leaf.grad = None
                o, ht = function(x["r"], x["w"], k, x["v"], *sides, initial_state=x.get("h0"), output_final_state=True)
                results = {"o": o, "ht": ht, "o_bonus": bonus}
                if function is ops.chunk_rwkv7:
                    self.judge(found, x, results)
                else:
                    self.assertLess(float((o - found["out.o"].double()).abs().max()), 1e-9)
                    bonus = None

    def test_linear_attention(self):
        for _, found, x in self.each("linear_attn"):
            o, ht = ops.chunk_linear_attn(x["q"], x["k"], x["v"], None, x.get("h0"), True, normalize=False)
            self.judge(found, x, {"o": o, "ht": ht})
        for _, found, x in self.each("linear_attn_normalized"):
            start = None
            if "h0" in x:
                z = x["z0"]
                start = (x["h0"], z.reshape(z.shape[0], z.shape[1], -1).unsqueeze(1) if z.dim() == 3 else z.reshape(z.shape[0], 1, -1, x["q"].shape[-1]))
            o, (ht, zt) = ops.chunk_linear_attn(x["q"], x["k"], x["v"], None, start, True)
            results = {"o": o, "ht": ht}
            if "out.zt" in found:
                results["zt"] = zt.reshape(found["out.zt"].shape)
            self.judge(found, x, results)

    def test_chunk_gla(self):
        for _, found, x in self.each("gla"):
            if "gv" in x:
                continue
            o, ht = ops.chunk_gla(x["q"], x["k"], x["v"], x["gk"], None, x.get("h0"), True)
            self.judge(found, x, {"o": o, "ht": ht})

    def test_mamba_and_convolution(self):
        for _, found, x in self.each("mamba1_selective_scan"):
            if "h0" in x:
                continue  # selective_scan_fn has no initial state
            arguments = [x[n] for n in ("u", "delta", "A", "B", "C")] + [x.get(n) for n in ("D", "z", "delta_bias")]
            y, ht = ops.selective_scan_fn(*arguments, True, True)
            self.judge(found, x, {"y": y, "ht": ht})
        for _, found, x in self.each("mamba2_ssd"):
            y, ht = ops.mamba_chunk_scan_combined(
                *[x[n] for n in ("x", "dt", "A", "B", "C")], 64, x.get("D"), initial_states=x.get("h0"), return_final_states=True
            )
            self.judge(found, x, {"y": y, "ht": ht})
        for about, found, x in self.each("short_conv"):
            start = x["x0"].transpose(1, 2) if "x0" in x else None
            activation = None if about["activation"] == "none" else "silu"
            y, xt = ops.causal_conv1d_fn(x["x"].transpose(1, 2), x["w"], x.get("b"), None, start, True, None, activation)
            self.judge(found, x, {"y": y.transpose(1, 2), "xt": xt.transpose(1, 2)})


if __name__ == "__main__":
    unittest.main()
