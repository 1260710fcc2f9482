"""Modules: parameters, decoding, padding and packing, gradients, copies, literal formulas; as_fla, accelerate."""

import copy
import inspect
import io
import itertools
import os
import pickle
import subprocess
import sys
import time
import types
import unittest
from unittest import mock

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch.autograd import forward_ad

import ttr
import ttr.torch
from ttr.torch import fla, nn, ops
from ttr.torch.nn import _parts

torch.set_num_threads(2)

D = 16
MODULES = {
    "GatedDeltaNet": lambda: nn.GatedDeltaNet(D, expand_v=1, head_dim=4, num_heads=2, num_v_heads=4, layer_idx=0),
    "DeltaNet": lambda: nn.DeltaNet(hidden_size=D, num_heads=2, use_gate=True, layer_idx=0),
    "DeltaNet/sum": lambda: nn.DeltaNet(hidden_size=D, num_heads=2, qk_activation="elu", qk_norm="sum", use_beta=False),
    "GatedDeltaProduct": lambda: nn.GatedDeltaProduct(D, expand_v=1, head_dim=4, num_heads=2, layer_idx=0),
    "GatedDeltaProduct/plain": lambda: nn.GatedDeltaProduct(D, 1, 4, 2, use_forget_gate=False, use_output_gate=False),
    "GatedLinearAttention": lambda: nn.GatedLinearAttention(hidden_size=D, num_heads=2, num_kv_heads=1, layer_idx=0),
    "GatedLinearAttention/conv": lambda: nn.GatedLinearAttention(hidden_size=D, num_heads=2, use_short_conv=True, fuse_norm=False),
    "MultiScaleRetention": lambda: nn.MultiScaleRetention(hidden_size=D, num_heads=2, layer_idx=0),
    "MultiScaleRetention/maps": lambda: nn.MultiScaleRetention(
        hidden_size=D, num_heads=2, feature_map="elu", gate_fn="sigmoid"
    ),
    "KimiDeltaAttention": lambda: nn.KimiDeltaAttention(D, head_dim=4, num_heads=2, layer_idx=0),
    "KimiDeltaAttention/safe": lambda: nn.KimiDeltaAttention(D, head_dim=4, num_heads=2, safe_gate=True, lower_bound=-5.0),
    "MesaNet": lambda: nn.MesaNet(D, num_heads=2, head_dim=4, use_output_gate=True, layer_idx=0),
    "Mamba": lambda: nn.Mamba(D, state_size=4, intermediate_size=2 * D, layer_idx=0),
    "Mamba2": lambda: nn.Mamba2(hidden_size=D, head_dim=8, state_size=4, n_groups=2, layer_idx=0),
    "Mamba2/own": lambda: nn.Mamba2(hidden_size=D, head_dim=8, state_size=4, D_has_hdim=True, rmsnorm=False, use_bias=True),
    "LogLinearMamba2": lambda: nn.LogLinearMamba2(hidden_size=D, head_dim=8, state_size=4, layer_idx=0),
    "RWKV6Attention": lambda: nn.RWKV6Attention(hidden_size=D, num_heads=2, layer_idx=0),
    "RWKV7Attention": lambda: nn.RWKV7Attention(hidden_size=D, head_dim=8, layer_idx=0),
    "LocalLinearAttention": lambda: nn.LocalLinearAttention(D, num_heads=2, num_kv_heads=1, layer_idx=0),
    "TTTLinear": lambda: nn.TTTLinear(D, num_heads=2, mini_batch_size=4, layer_idx=0),
    "Titans": lambda: nn.Titans(D, num_heads=2, chunk_size=4, layer_idx=0),
    "Titans/linear": lambda: nn.Titans(D, num_heads=2, depth=1, chunk_size=2),
    "Recipe": lambda: nn.Recipe("equal / linear / sgd(beta, decay)", D, 2, layer_idx=0),
    "Recipe/solve": lambda: nn.Recipe("gate(beta) / linear / exact(ridge(key))", D, 2),
    "Recipe/attention": lambda: nn.Recipe("near(exp) * gate / constant / exact", D, 2, conv_size=0, normalize=False),
    "Recipe/layer": lambda: nn.Recipe("gated-deltaproduct", D, 2),
    "Recipe/mlp": lambda: nn.Recipe("equal / mlp(1, bias) / minibatch(4)", D, 2),
}
# Modules that are parts of others, and how many tensors [2, 3, 2, D] they take; a convolution takes [2, 6, D].
PARTS = {
    "FusedRMSNormGated": (lambda: nn.FusedRMSNormGated(D), 2),
    "RMSNorm": (lambda: nn.RMSNorm(D), 1),
    "RMSNormGated": (lambda: nn.RMSNormGated(D, group_size=4), 2),
    "ShortConvolution": (lambda: nn.ShortConvolution(D, 4, bias=True), 1),
}

# Names and shapes of flash-linear-attention's modules for these constructors (docs/python.md has the table of names).
KEYS = {
    "GatedDeltaNet": {
        "q_proj.weight": (8, 16), "k_proj.weight": (8, 16), "v_proj.weight": (16, 16), "a_proj.weight": (4, 16),
        "b_proj.weight": (4, 16), "A_log": (4,), "dt_bias": (4,), "q_conv1d.weight": (8, 1, 4),
        "k_conv1d.weight": (8, 1, 4), "v_conv1d.weight": (16, 1, 4), "g_proj.weight": (16, 16), "o_norm.weight": (4,),
        "o_proj.weight": (16, 16),
    },
    "DeltaNet": {
        "q_proj.weight": (16, 16), "k_proj.weight": (16, 16), "v_proj.weight": (16, 16), "b_proj.weight": (2, 16),
        "q_conv1d.weight": (16, 1, 4), "k_conv1d.weight": (16, 1, 4), "v_conv1d.weight": (16, 1, 4),
        "g_proj.weight": (16, 16), "o_norm.weight": (8,), "o_proj.weight": (16, 16),
    },
    "GatedDeltaProduct": {
        "q_proj.weight": (8, 16), "k_proj.weight": (16, 16), "v_proj.weight": (16, 16), "b_proj.weight": (4, 16),
        "a_proj.weight": (2, 16), "A_log": (2,), "dt_bias": (2,), "q_conv1d.weight": (8, 1, 4),
        "k_conv1d.weight": (16, 1, 4), "v_conv1d.weight": (16, 1, 4), "g_proj.weight": (8, 16), "o_norm.weight": (4,),
        "o_proj.weight": (16, 8),
    },
    "GatedLinearAttention": {
        "q_proj.weight": (8, 16), "k_proj.weight": (4, 16), "v_proj.weight": (8, 16), "g_proj.weight": (16, 16),
        "gk_proj.0.weight": (16, 16), "gk_proj.1.weight": (4, 16), "gk_proj.1.bias": (4,),
        "g_norm_swish_gate.weight": (8,), "o_proj.weight": (16, 16),
    },
    "MultiScaleRetention": {
        "q_proj.weight": (16, 16), "k_proj.weight": (16, 16), "v_proj.weight": (32, 16), "g_proj.weight": (32, 16),
        "g_norm_swish_gate.weight": (16,), "o_proj.weight": (16, 32),
    },
    "KimiDeltaAttention": {
        "q_proj.weight": (8, 16), "k_proj.weight": (8, 16), "v_proj.weight": (8, 16), "q_conv1d.weight": (8, 1, 4),
        "k_conv1d.weight": (8, 1, 4), "v_conv1d.weight": (8, 1, 4), "f_proj.0.weight": (4, 16), "f_proj.1.weight": (8, 4),
        "b_proj.weight": (2, 16), "A_log": (2,), "dt_bias": (8,), "g_proj.0.weight": (4, 16), "g_proj.1.weight": (8, 4),
        "g_proj.1.bias": (8,), "o_norm.weight": (4,), "o_proj.weight": (16, 8),
    },
    "MesaNet": {
        "q_proj.weight": (8, 16), "k_proj.weight": (8, 16), "v_proj.weight": (8, 16), "a_proj.weight": (2, 16),
        "a_proj.bias": (2,), "b_proj.weight": (2, 16), "b_proj.bias": (2,), "lambda_params": (8,),
        "q_conv1d.weight": (8, 1, 4), "k_conv1d.weight": (8, 1, 4), "g_proj.weight": (8, 16), "o_norm.weight": (4,),
        "o_proj.weight": (16, 8),
    },
    "Mamba": {
        "conv1d.weight": (32, 1, 4), "conv1d.bias": (32,), "in_proj.weight": (64, 16), "x_proj.weight": (9, 32),
        "dt_proj.weight": (32, 1), "dt_proj.bias": (32,), "A_log": (32, 4), "D": (32,), "out_proj.weight": (16, 32),
    },
    "Mamba2": {
        "conv1d.weight": (48, 1, 4), "conv1d.bias": (48,), "in_proj.weight": (84, 16), "dt_bias": (4,), "A_log": (4,),
        "norm.weight": (32,), "D": (4,), "out_proj.weight": (16, 32),
    },
    "LogLinearMamba2": {
        "conv1d.weight": (40, 1, 4), "in_proj.weight": (136, 16), "in_proj.bias": (136,), "dt_bias": (4,), "A_log": (4,),
        "L": (4, 15), "norm.weight": (32,), "D": (4,), "out_proj.weight": (16, 32), "out_proj.bias": (16,),
    },
    "RWKV6Attention": {
        "x_proj.0.linear.weight": (160, 16), "x_proj.0.mu": (16,), "x_proj.2.weight": (16, 160), "x_bias": (5, 16),
        "r_proj.linear.weight": (8, 16), "w_proj.linear.lora.0.weight": (64, 16), "w_proj.linear.lora.2.weight": (8, 64),
        "w_proj.linear.lora.2.bias": (8,), "k_proj.linear.weight": (8, 16), "v_proj.linear.weight": (16, 16),
        "g_proj.linear.weight": (16, 16), "bonus": (2, 4), "g_norm.weight": (16,), "g_norm.bias": (16,),
        "o_proj.weight": (16, 16),
    },
    "RWKV7Attention": {
        **{f"x_{n}": (1, 1, 16) for n in "rwkvag"}, "k_k": (16,), "k_a": (16,), "r_k": (2, 8),
        **{f"{n}_proj.weight": (16, 16) for n in "rkvo"}, "w_lora.lora.0.weight": (32, 16), "w_lora.lora.2.weight": (16, 32),
        "w_lora.lora.2.bias": (16,), "a_lora.lora.0.weight": (32, 16), "a_lora.lora.2.weight": (16, 32),
        "a_lora.lora.2.bias": (16,), "g_lora.lora.0.weight": (32, 16), "g_lora.lora.2.weight": (16, 32),
        "g_norm.weight": (16,), "g_norm.bias": (16,),
    },
}  # fmt: skip


def moved(make):
    """A module away from its initial zeros, so that every parameter matters."""
    torch.manual_seed(7)
    module = make()
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.05 * torch.randn_like(p))
    return module


def made(name):
    return moved(lambda: MODULES[name]().double())


def through_a_file(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, **({"weights_only": False} if torch.__version__ >= "2" else {}))


def answers(module, inputs):
    """The output and the gradients of all parameters that have one."""
    module.zero_grad(set_to_none=True)
    kind = next(module.parameters()).dtype
    result = module(*(t.to(kind) for t in inputs))
    y = result[0] if isinstance(result, tuple) else result
    y.float().square().sum().backward()
    return {"output": y.detach()} | {n: p.grad for n, p in module.named_parameters() if p.grad is not None}


class Copies(unittest.TestCase):
    """What programs do with any module: copies, files and types, to the bit, also after a backward pass."""

    def cases(self):
        torch.manual_seed(3)
        for name, make in MODULES.items():
            yield name, make, [torch.randn(2, 9, D)]
        for name, (make, count) in PARTS.items():
            shape = (2, 6, D) if name == "ShortConvolution" else (2, 3, 2, D)
            yield name, make, [torch.randn(shape) for _ in range(count)]

    def assert_same(self, module, inputs, wanted):
        found = answers(module, inputs)
        self.assertEqual(set(found), set(wanted))
        for n, t in wanted.items():
            torch.testing.assert_close(found[n], t, rtol=0, atol=0, msg=lambda text, n=n: f"{n}: {text}")

    def test_every_module_is_among_them(self):
        modules = {n for n in nn.__all__ if issubclass(getattr(nn, n), torch.nn.Module)}
        self.assertEqual({n.split("/")[0] for n in MODULES} | set(PARTS), modules - {"Mixer"})

    def test_copies_and_files(self):
        ways = {"deepcopy": copy.deepcopy, "torch.save": through_a_file}
        ways["pickle"] = lambda m: pickle.loads(pickle.dumps(m))
        kinds = (torch.float32, torch.float64, torch.bfloat16)
        for (name, make, inputs), kind in itertools.product(self.cases(), kinds):
            module = moved(make).to(kind)
            wanted = answers(module, inputs)  # a forward and a backward pass have run before the module is copied
            self.assertEqual({t.dtype for t in wanted.values()}, {kind}, name)
            self.assertTrue(all(torch.isfinite(t).all() for t in wanted.values()), name)
            for way, made in ways.items():
                with self.subTest(name, way=way, kind=kind):
                    other = made(module)
                    self.assert_same(other, inputs, wanted)
                    with torch.no_grad():  # a copy has its own numbers
                        for p in other.parameters():
                            p.zero_()
                    self.assert_same(module, inputs, wanted)
            with self.subTest(name, way="state_dict", kind=kind):
                other = make().to(kind)
                loaded = other.load_state_dict(through_a_file(module.state_dict()))
                self.assertFalse(loaded.missing_keys or loaded.unexpected_keys)
                self.assert_same(other, inputs, wanted)

    def test_types(self):
        for name, make, inputs in self.cases():
            module = moved(make)
            wanted = answers(module, inputs)
            for kind in (torch.float64, torch.bfloat16):
                with self.subTest(name, kind=kind):
                    fresh = make().to(kind)
                    fresh.load_state_dict(module.state_dict())
                    self.assert_same(copy.deepcopy(module).to(kind), inputs, answers(fresh, inputs))
            with self.subTest(name, kind="to double and back"):
                self.assert_same(copy.deepcopy(module).double().float(), inputs, wanted)


class Modules(unittest.TestCase):
    def test_names_of_parameters(self):
        self.assertEqual(set(KEYS), set(nn.LAYERS))
        for name, keys in KEYS.items():
            with self.subTest(name):
                state = {n: tuple(t.shape) for n, t in made(name).state_dict().items()}
                self.assertEqual(state, keys)
                loaded = made(name).load_state_dict({n: torch.zeros(s) for n, s in keys.items()})
                self.assertFalse(loaded.missing_keys or loaded.unexpected_keys)

    def test_decoding_padding_packing_and_gradients(self):
        for name in MODULES:
            with self.subTest(name):
                module = made(name)
                x = torch.randn(2, 9, D).double()
                whole = module(x)[0]
                self.assertEqual(whole.shape, x.shape)
                cache = nn.Cache()
                with torch.no_grad():  # a prompt, then token by token
                    parts = [module(x[:, :4], past_key_values=cache, use_cache=True)[0]]
                    parts += [module(x[:, t : t + 1], past_key_values=cache, use_cache=True)[0] for t in range(4, 9)]
                torch.testing.assert_close(torch.cat(parts, 1), whole.detach(), rtol=0, atol=1e-9)
                self.assertEqual(cache.get_seq_length(), 9)
                mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1], [1] * 9])
                padded = module(x, attention_mask=mask)[0]
                torch.testing.assert_close(padded[:1, 3:], module(x[:1, 3:])[0], rtol=0, atol=1e-9)
                torch.testing.assert_close(padded[1:], whole[1:], rtol=0, atol=1e-9)
                self.assertEqual(float(padded[0, :3].abs().max()), 0)
                packed = module(torch.cat([x[:1, :4], x[1:]], 1), cu_seqlens=torch.tensor([0, 4, 13]))[0]
                torch.testing.assert_close(packed[:, 4:], whole[1:], rtol=0, atol=1e-9)
                loss = whole.square().sum()
                loss.backward()
                for parameter, p in module.named_parameters():
                    if name == "RWKV7Attention" and parameter.startswith("v_lora"):
                        continue
                    self.assertIsNotNone(p.grad, parameter)
                    self.assertTrue(torch.isfinite(p.grad).all(), parameter)
                chosen = [(n, p) for n, p in module.named_parameters()][:3]
                for parameter, p in chosen:  # a derivative by a difference
                    direction, h = torch.randn_like(p), 1e-6
                    with torch.no_grad():
                        p.add_(h * direction)
                        above = module(x)[0].square().sum()
                        p.sub_(2 * h * direction)
                        below = module(x)[0].square().sum()
                        p.add_(h * direction)
                    numeric, exact = float((above - below) / (2 * h)), float((p.grad * direction).sum())
                    self.assertLess(abs(numeric - exact), 1e-4 * max(1.0, abs(exact)), parameter)

    def test_forward_derivatives_are_refused(self):
        for name in MODULES:
            with self.subTest(name):
                module, x = made(name), torch.randn(1, 3, D).double()
                with self.assertRaisesRegex(RuntimeError, "cannot differentiate it twice"):
                    torch.autograd.functional.jvp(lambda t: module(t)[0], x, torch.ones_like(x))
                with forward_ad.dual_level(), self.assertRaisesRegex(ttr.Error, "carries a forward derivative"):
                    module(forward_ad.make_dual(x, torch.ones_like(x)))
                for use_cache in (False, True):
                    with torch.no_grad(), forward_ad.dual_level():
                        with self.assertRaisesRegex(ttr.Error, "carries a forward derivative"):
                            module(forward_ad.make_dual(x, torch.ones_like(x)), use_cache=use_cache)

    def test_gates_are_made_in_float(self):
        """In modules of half type, as kernels make them; q, k and v are of half type."""
        seen = set()
        gates = {"g", "gk", "beta", "dt", "A", "w", "b", "lamb", "ridge", "lr", "token_eta", "theta", "eta", "alpha"}
        gates |= {"level_scales"}
        for name in MODULES:
            with self.subTest(name):
                module, given = made(name).bfloat16(), {}
                x = torch.randn(2, 9, D).bfloat16()
                exact = copy.deepcopy(module).double()(x.double())[0]

                def spy(layer, inputs, **options):
                    if layer not in ("short-convolution", "rms-norm-norm-first", "l2-norm"):
                        given.update(inputs)  # noqa: B023
                    return real(layer, inputs, **options)  # noqa: B023

                real = _parts._call.apply
                with mock.patch.object(_parts._call, "apply", spy):
                    y = module(x)[0]
                self.assertEqual(y.dtype, torch.bfloat16)
                self.assertLess(float((y - exact).abs().max() / exact.abs().max()), 0.05)
                found = gates & set(given)
                for n in found - ({"beta"} if name == "DeltaNet/sum" else set()):  # whose beta is 1
                    self.assertEqual(given[n].dtype, torch.float32, n)
                    self.assertFalse(torch.equal(given[n], given[n].bfloat16().float()), n)
                seen |= found
        self.assertEqual(seen, gates)

    def test_rotations_of_half_types_are_by_the_whole_position(self):
        torch.manual_seed(0)
        module = nn.MultiScaleRetention(hidden_size=32, num_heads=2).bfloat16()
        x = torch.randn(1, 1024, 32).bfloat16()
        exact = copy.deepcopy(module).double()(x.double())[0]
        self.assertLess(float((module(x)[0] - exact).norm() / exact.norm()), 0.02)

    def test_checkpointed_modules_have_the_same_gradients(self):
        # Long enough that forward leaves states for backward, which checkpointing drops and the second forward fills again.
        for name in ("GatedDeltaNet", "GatedLinearAttention", "KimiDeltaAttention", "Mamba2", "RWKV7Attention"):
            for reentrant in (True, False):
                with self.subTest(name, reentrant=reentrant):
                    module = made(name)
                    x = torch.randn(1, 300, D).double().requires_grad_()
                    module(x)[0].square().sum().backward()
                    wanted = {n: p.grad for n, p in module.named_parameters()} | {"x": x.grad}
                    module.zero_grad(set_to_none=True)
                    x.grad = None
                    answer = torch.utils.checkpoint.checkpoint(lambda y: module(y)[0], x, use_reentrant=reentrant)
                    answer.square().sum().backward()
                    found = {n: p.grad for n, p in module.named_parameters()} | {"x": x.grad}
                    for n, gradient in wanted.items():
                        if gradient is not None:
                            torch.testing.assert_close(found[n], gradient, rtol=0, atol=0, msg=n)

    def test_gated_deltanet_literally(self):
        module = made("GatedDeltaNet")
        x = torch.randn(1, 6, D).double()
        p = dict(module.named_parameters())

        def conv(t, w):
            return F.silu(F.conv1d(F.pad(t.transpose(1, 2), (3, 0)), w, groups=w.shape[0])).transpose(1, 2)

        q, k, v = (conv(x @ p[f"{n}_proj.weight"].T, p[f"{n}_conv1d.weight"]) for n in "qkv")
        q, k = (t.reshape(1, 6, 2, 4) for t in (q, k))
        q, k = (t / (t.square().sum(-1, keepdim=True) + 1e-6).sqrt() for t in (q, k))
        v, beta = v.reshape(1, 6, 4, 4), (x @ p["b_proj.weight"].T).sigmoid()
        g = -p["A_log"].exp() * F.softplus(x @ p["a_proj.weight"].T + p["dt_bias"])
        S, rows = torch.zeros(4, 4, 4).double(), []
        for t in range(6):
            kt, qt = k[0, t].repeat_interleave(2, 0), q[0, t].repeat_interleave(2, 0)
            S = S * g[0, t].exp()[:, None, None]
            u = beta[0, t, :, None] * (v[0, t] - torch.einsum("hkv,hk->hv", S, kt))
            S = S + kt[:, :, None] * u[:, None]
            rows.append(torch.einsum("hkv,hk->hv", S, qt) / 2)
        o = torch.stack(rows)[None]
        o = o / (o.square().mean(-1, keepdim=True) + 1e-5).sqrt() * p["o_norm.weight"]
        o = o * F.silu((x @ p["g_proj.weight"].T).reshape(1, 6, 4, 4))
        torch.testing.assert_close(module(x)[0], o.reshape(1, 6, 16) @ p["o_proj.weight"].T)

    def test_a_model_of_two_rwkv_layers_shares_its_first_values(self):
        first, second = made("RWKV7Attention"), nn.RWKV7Attention(hidden_size=D, head_dim=8, layer_idx=1).double()
        x = torch.randn(1, 5, D).double()
        y, _, _, v_first = first(x)
        z, _, _, again = second(y, v_first=v_first)
        self.assertIs(again, v_first)
        self.assertEqual(z.shape, x.shape)

    def test_every_named_layer_with_ordinary_inputs_is_a_recipe(self):
        made_of, refused = 0, []
        for layer in ttr.layers():
            if not layer.recipe:
                continue
            try:
                module = nn.Recipe(layer.name, 16, 2)
            except ttr.Error as error:
                refused.append(f"{layer.name}: {error}")
                continue
            if not module._main:
                continue
            y = module(torch.randn(1, 6, 16))[0]
            self.assertTrue(torch.isfinite(y).all(), layer.name)
            y.sum().backward()
            made_of += 1
        self.assertGreater(made_of, 60, refused)

    def test_misspelt_names_are_refused_with_the_nearest(self):
        kinds = {type(MODULES[name]()) for name in MODULES} | {nn.RMSNorm, nn.FusedRMSNormGated, nn.ShortConvolution}
        self.assertLessEqual({getattr(nn, name) for name in nn.LAYERS}, kinds)
        for kind in kinds:
            parameters = inspect.signature(kind).parameters
            for name in [n for n in parameters if n != "kwargs"]:
                typo = name + "_"
                with self.subTest(kind.__name__, typo=typo):
                    if "kwargs" in parameters:
                        needed = {"kernel_size": 4} if kind is nn.ShortConvolution else {}
                        sentence = f"no argument '{typo}' of {kind.__name__}; did you mean '{name}'"
                        with self.assertRaisesRegex(ttr.UnknownName, sentence):
                            kind(hidden_size=16, **needed, **{typo: 1})
                    else:
                        with self.assertRaises(TypeError):
                            kind(**{typo: 1})
        x = torch.randn(1, 3, D).double()
        for name in MODULES:
            with self.subTest(name):
                module = made(name)
                given = {n: None for n in nn.Mixer.unread}  # of models around it
                torch.testing.assert_close(module(x, **given)[0], module(x)[0], rtol=0, atol=0)
                for meant in ("cu_seqlens", "attention_mask", "use_cache"):
                    sentence = f"no argument '{meant}_' of .*; did you mean '{meant}'"
                    with self.assertRaisesRegex(ttr.UnknownName, sentence):
                        module(x, **{meant + "_": None})
                if not name.startswith("RWKV7"):
                    with self.assertRaisesRegex(ttr.UnknownName, "v_first"):
                        module(x, v_first=None)
        with self.assertRaisesRegex(ttr.UnknownName, "did you mean 'cu_seqlens'"):
            nn.ShortConvolution(4, 2)(torch.randn(1, 3, 4), cu_seqlen=None)
        norm = nn.FusedRMSNormGated(4, device="cpu", dtype=torch.bfloat16)
        self.assertEqual(norm.weight.dtype, torch.bfloat16)
        with self.assertRaisesRegex(ttr.Error, "give x [+] residual as x"):
            norm(torch.ones(1, 4), torch.ones(1, 4), torch.ones(1, 4))
        with self.assertRaisesRegex(ttr.Error, "bias=True"):
            nn.RMSNorm(4, bias=True)

    def test_errors(self):
        with self.assertRaisesRegex(ttr.Error, r"it is \[B, T, 16\]"):
            made("DeltaNet")(torch.randn(1, 5, 8).double())
        with self.assertRaisesRegex(ttr.Error, "no gradients"):
            made("DeltaNet")(torch.randn(1, 5, D).double(), use_cache=True)
        with self.assertRaisesRegex(ttr.Error, "no multiple"):
            nn.GatedDeltaNet(D, num_heads=2, num_v_heads=3, head_dim=4)
        with self.assertRaisesRegex(ttr.UnknownName, "did you mean"):
            nn.Recipe("gated-deltanett", D, 2)
        with self.assertRaisesRegex(ttr.Error, "window_size = 0; it is the number of keys"):
            nn.LocalLinearAttention(D, window_size=0)


# What a modelling file of Hugging Face has for machines without a GPU: functions of these names and arguments.
FALLBACK = '''
import time

import torch
import torch.nn.functional as F
from torch import nn


def l2norm(x, eps=1e-6):
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + eps)


def torch_recurrent_gated_delta_rule(
    query, key, value, g, beta, initial_state, output_final_state, use_qk_l2norm_in_kernel=False
):
    if use_qk_l2norm_in_kernel:
        query, key = l2norm(query), l2norm(key)
    S = initial_state
    if S is None:
        S = torch.zeros(query.shape[0], value.shape[2], key.shape[-1], value.shape[-1], dtype=value.dtype)
    rows = []
    for t in range(query.shape[1]):
        S = S * g[:, t].exp()[..., None, None]
        u = beta[:, t, :, None] * (value[:, t] - torch.einsum("bhkv,bhk->bhv", S, key[:, t]))
        S = S + key[:, t, :, :, None] * u[:, :, None]
        rows.append(torch.einsum("bhkv,bhk->bhv", S, query[:, t]) * key.shape[-1] ** -0.5)
    return torch.stack(rows, 1), S if output_final_state else None


def torch_chunk_gated_delta_rule(
    query, key, value, g, beta, chunk_size=64, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False
):
    return torch_recurrent_gated_delta_rule(
        query, key, value, g, beta, initial_state, output_final_state, use_qk_l2norm_in_kernel
    )


def torch_causal_conv1d_update(hidden_states, conv_state, weight, bias=None, activation=None):
    time.sleep(0.002)  # slower than ours, whatever else the machine does
    both = torch.cat([conv_state, hidden_states], -1).to(weight.dtype)
    conv_state.copy_(both[:, :, -conv_state.shape[-1]:])
    out = F.conv1d(both, weight.unsqueeze(1), bias, groups=hidden_states.shape[1])
    return F.silu(out[:, :, -hidden_states.shape[-1]:])


class GatedDeltaBlock(nn.Module):
    def __init__(self, size=32, heads=2):
        super().__init__()
        self.size, self.heads = size, heads
        self.qkv, self.gates, self.out = nn.Linear(size, 3 * size), nn.Linear(size, 2 * heads), nn.Linear(size, size)
        self.conv_weight = nn.Parameter(torch.randn(3 * size, 4) / 2)
        self.chunk_rule = torch_chunk_gated_delta_rule

    def forward(self, x, conv_state=None, state=None):
        qkv = self.qkv(x).transpose(1, 2)
        if conv_state is None:
            conv_state = torch.zeros(x.shape[0], qkv.shape[1], 4)
        qkv = torch_causal_conv1d_update(qkv, conv_state, self.conv_weight, None, "silu").transpose(1, 2)
        q, k, v = (t.reshape(*x.shape[:2], self.heads, -1) for t in qkv.chunk(3, -1))
        beta, a = self.gates(x).chunk(2, -1)
        rule = self.chunk_rule if state is None else torch_recurrent_gated_delta_rule
        extra = dict(initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True)
        o, state = rule(q, k, v, -F.softplus(a), beta.sigmoid(), **extra)
        return self.out(o.flatten(2)), conv_state, state
'''


class Accelerate(unittest.TestCase):
    def module(self, name):
        module = types.ModuleType(name)
        sys.modules[name] = module
        exec(compile(FALLBACK, name, "exec"), module.__dict__)
        self.addCleanup(sys.modules.pop, name)
        return module

    def test_a_model_is_made_fast_in_place(self):
        torch.manual_seed(0)
        file = self.module("modeling_small_a")
        model = torch.nn.Sequential(file.GatedDeltaBlock())
        x = torch.randn(2, 40, 32)
        before, conv, state = model[0](x)
        step, *_ = model[0](x[:, :1], conv.clone(), state)
        report = ttr.torch.accelerate(model)
        self.assertEqual(len(report.replaced), 3, str(report))
        self.assertIn("GatedDeltaBlock.chunk_rule", report.replaced["torch_chunk_gated_delta_rule"])
        self.assertIn("times as fast", str(report))
        self.assertTrue(all(e < 1e-5 for e in report.error.values()), report.error)
        self.assertGreater(report.speedup["torch_chunk_gated_delta_rule"], 0)
        after, conv2, state2 = model[0](x)
        for a, b in ((after, before), (conv2, conv), (state2, state), (model[0](x[:, :1], conv.clone(), state)[0], step)):
            self.assertLess(float((a - b).abs().max() / b.abs().max().clamp(min=1)), 1e-5)
        after.sum().backward()
        self.assertIsNotNone(model[0].qkv.weight.grad)
        self.assertIn("nothing to replace", str(ttr.torch.accelerate(model)))

    def test_a_file_and_a_function_that_differs(self):
        file = self.module("modeling_small_b")
        file.torch_causal_conv1d_update = lambda *arguments: arguments[0] * 0
        report = ttr.torch.accelerate(file)
        self.assertIn("torch_causal_conv1d_update", report.refused)
        self.assertEqual(set(report.replaced), {"torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"})
        with self.assertRaises(TypeError):
            ttr.torch.accelerate("modeling")

    def test_what_is_faster_than_ours_stays(self):
        file, name = self.module("modeling_small_c"), "torch_causal_conv1d_update"
        ours = fla._REPLACEMENTS[name]

        def slow(*arguments):
            time.sleep(0.02)
            return ours(*arguments)

        before = file.torch_causal_conv1d_update
        with mock.patch.dict(fla._REPLACEMENTS, {name: slow}):
            report = ttr.torch.accelerate(file)
        self.assertIs(file.torch_causal_conv1d_update, before)
        self.assertRegex(str(report), name + r" left as it was: ours takes [0-9.]+ times as long")
        self.assertEqual(set(report.replaced), {"torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"})
        self.assertIn(name, ttr.torch.accelerate(file).replaced)


AS_FLA = """
import importlib.util, sys
for name in ("fla", "causal_conv1d", "mamba_ssm"):
    assert importlib.util.find_spec(name) is None, name + " is installed here"
import torch, ttr.torch
assert sorted(ttr.torch.as_fla()) == ["causal_conv1d", "fla", "mamba_ssm"]
from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule
from fla.ops.generalized_delta_rule.dplr import chunk_dplr_delta_rule
from fla.ops import chunk_gla
from fla.modules import FusedRMSNormGated, ShortConvolution
from fla.modules import l2norm
from fla.layers import GatedDeltaNet
import fla, causal_conv1d, mamba_ssm
from causal_conv1d import causal_conv1d_fn, causal_conv1d_update
from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
from mamba_ssm.ops.triton.selective_state_update import selective_state_update
from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined
assert importlib.util.find_spec("fla") is not None and fla.__version__
q, k, v = (torch.randn(1, 70, 2, 8) for _ in range(3))
o, state = chunk_gated_delta_rule(q, k, v, g=-torch.rand(1, 70, 2), beta=torch.rand(1, 70, 2), use_qk_l2norm_in_kernel=True)
assert o.shape == v.shape and state is None
y, cache = ShortConvolution(6, 4)(torch.randn(2, 5, 6), output_final_state=True)
assert y.shape == (2, 5, 6) and cache.shape == (2, 6, 4)
assert FusedRMSNormGated(8)(o, v).shape == o.shape
try:
    from fla.ops.nsa import parallel_nsa
    raise SystemExit("nsa should not be there")
except ImportError:
    pass
# An installed package is left alone, unless asked.
import types
other = types.ModuleType("fla"); other.__spec__ = importlib.machinery.ModuleSpec("fla", None); other.mine = 1
for name in [n for n in sys.modules if n.split(".")[0] == "fla"]:
    del sys.modules[name]
sys.modules["fla"] = other
assert "fla" not in ttr.torch.as_fla() and sys.modules["fla"].mine == 1
assert "fla" in ttr.torch.as_fla(replace=True) and not hasattr(sys.modules["fla"], "mine")
print("as_fla works")
"""


class AsFla(unittest.TestCase):
    def test_in_a_process_without_fla(self):
        done = subprocess.run([sys.executable, "-c", AS_FLA], capture_output=True, text=True, env=os.environ)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("as_fla works", done.stdout)


class Training(unittest.TestCase):
    def test_a_recipe_learns_to_recall(self):
        """Keys and values follow one another; the layer must answer a key that comes again with its value."""
        torch.manual_seed(0)
        layer = nn.Recipe("equal / linear / sgd(beta, decay)", hidden_size=24, num_heads=2)
        embed, read = torch.nn.Embedding(16, 24), torch.nn.Linear(24, 16)
        optimiser = torch.optim.Adam([*layer.parameters(), *embed.parameters(), *read.parameters()], 1e-2)

        def batch():
            keys = torch.stack([torch.randperm(8)[:3] for _ in range(32)])
            values = torch.randint(8, 16, keys.shape)
            pairs = torch.stack([keys, values], -1).flatten(1)
            asked = torch.randint(0, 3, (32, 1))
            return torch.cat([pairs, keys.gather(1, asked)], 1), values.gather(1, asked)[:, 0]

        losses = []
        for _ in range(120):
            tokens, wanted = batch()
            loss = F.cross_entropy(read(layer(embed(tokens))[0][:, -1]), wanted)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        self.assertLess(sum(losses[-10:]) / 10, 0.5 * losses[0])


if __name__ == "__main__":
    unittest.main()
