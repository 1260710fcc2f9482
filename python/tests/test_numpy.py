"""The numpy front: plans, states, prepared calls, descriptions, checks, errors."""

import gc
import os
import tempfile
import threading
import unittest

import numpy as np

import ttr
from ttr import _arrays, _library

# One layer of each kind: sums, steps, solves, pairs, networks, vectors, operations.
KINDS = ["linear-attention", "gated-deltanet", "kda", "rls", "mesanet", "kalman", "softmax-attention", "ttt-linear"]
KINDS += ["titans", "mamba-1", "mamba-2", "rwkv-4", "short-convolution", "log-linear-attention", "gated-oja", "mlstm"]


def plan_of(layer, **options):
    return ttr.plan(layer, **{"batch": 2, "heads": 2, "key_dim": 4, "value_dim": 4, "dtype": "float64", **options})


class Plans(unittest.TestCase):
    def test_every_layer_runs_and_repeats_its_bits_prepared(self):
        ran = 0
        for layer in ttr.layers():
            with self.subTest(layer.name):
                plan = plan_of(layer.name)
                inputs = ttr.random_inputs(plan, 5, seed=3)
                state = plan.state(5)
                o = plan.forward(state=state, **inputs)
                self.assertTrue(np.isfinite(o).all())
                again = plan.state(5)
                call = plan.prepare(state=again, **inputs)
                call()
                np.testing.assert_array_equal(call.outputs[plan.outputs[0].name], o)
                if again.names:
                    self.assertEqual(state.tokens_seen(), again.tokens_seen())
                ran += 1
        self.assertEqual(ran, len(ttr.layers()))
        self.assertGreater(ran, 80)

    def test_types(self):
        for dtype, tolerance in (("float32", 1e-5), ("float16", 5e-3)):
            exact = plan_of("gated-deltanet")
            inputs = ttr.random_inputs(exact, 9)
            expected = exact.forward(**inputs)
            plan = plan_of("gated-deltanet", dtype=dtype)
            o = plan.forward(**{n: a.astype(dtype) for n, a in inputs.items()})
            self.assertEqual(o.dtype, np.dtype(dtype))
            self.assertLess(np.abs(o - expected).max(), tolerance)

    def test_strides_are_respected_and_nothing_is_copied(self):
        plan = plan_of("gated-deltanet")
        inputs = ttr.random_inputs(plan, 6)
        expected = plan.forward(**inputs)
        packed = np.zeros((2, 6, 3, 2, 4))  # q, k and v of one projection
        for i, name in enumerate("qkv"):
            packed[:, :, i] = inputs[name]
            inputs[name] = packed[:, :, i]
        reversed_time = {n: a[:, ::-1] for n, a in inputs.items()}  # negative strides
        np.testing.assert_array_equal(plan.forward(**inputs), expected)
        there_and_back = {n: a[:, ::-1] for n, a in reversed_time.items()}
        np.testing.assert_array_equal(plan.forward(**there_and_back), expected)
        for array in inputs.values():
            self.assertEqual(_arrays.view(array).data, array.__array_interface__["data"][0])
        one = np.broadcast_to(np.float64(0.5), (2, 6, 2))  # every stride is zero
        inputs["beta"] = one
        np.testing.assert_array_equal(plan.forward(**inputs), plan.forward(**{**inputs, "beta": one.copy()}))

    def test_out_is_written(self):
        plan = plan_of("linear-attention")
        inputs = ttr.random_inputs(plan, 3)
        room = np.full((2, 3, 2, 8), np.nan)
        out = room[..., ::2]
        returned = plan.forward(out=out, **inputs)
        self.assertIs(returned, out)
        np.testing.assert_array_equal(out, plan.forward(**inputs))
        self.assertTrue(np.isnan(room[..., 1::2]).all())

    def test_several_outputs(self):
        plan = plan_of("mesanet")
        o, variance = plan.forward(outputs=("o", "variance"), **ttr.random_inputs(plan, 4))
        self.assertEqual((o.shape, variance.shape), ((2, 4, 2, 4), (2, 4, 2)))

    def test_packed_sequences(self):
        plan, one = plan_of("deltanet", batch=3), plan_of("deltanet", batch=1)
        inputs = ttr.random_inputs(one, 11)
        bounds = [0, 4, 4, 11]
        o = plan.forward(cu_seqlens=bounds, **inputs)
        for begin, end in ((0, 4), (4, 11)):
            alone = one.forward(**{n: a[:, begin:end] for n, a in inputs.items()})
            np.testing.assert_array_equal(o[:, begin:end], alone)
        with self.assertRaisesRegex(ttr.Error, "needs 4 bounds"):
            plan.forward(cu_seqlens=[0, 11], **inputs)

    def test_backward_by_differences(self):
        for layer in KINDS:
            with self.subTest(layer):
                report = ttr.check(layer, key_dim=4, value_dim=4)
                self.assertTrue(report.ok, report)
                self.assertTrue(any(row[0].startswith("gradient") for row in report.rows))

    def test_gradient_of_the_states(self):
        plan = plan_of("gated-deltanet")
        inputs, rng = ttr.random_inputs(plan, 5), np.random.default_rng(0)
        start = plan.state()
        start["S"] = rng.standard_normal(start["S"].shape)
        d_final = plan.state().zero()
        d_final["S"] = rng.standard_normal(start["S"].shape)
        d_o = rng.standard_normal((2, 5, 2, 4))
        got = plan.backward(d_outputs={"o": d_o}, state=start, d_final=d_final, want_initial=True, **inputs)

        def loss(S):
            state = plan.state()
            state["S"] = S
            o = plan.forward(state=state, **inputs)
            return (o * d_o).sum() + (state["S"] * d_final["S"]).sum()

        direction, h = rng.standard_normal(start["S"].shape), 1e-6
        numeric = (loss(start["S"] + h * direction) - loss(start["S"] - h * direction)) / (2 * h)
        self.assertAlmostEqual(float((got["initial"]["S"] * direction).sum()), numeric, places=6)

    def test_threads_have_the_same_bits_and_the_lock_is_free(self):
        inputs = ttr.random_inputs(plan_of("gated-deltanet", heads=4, key_dim=32, value_dim=32), 64)
        shape = dict(heads=4, key_dim=32, value_dim=32)
        expected = plan_of("gated-deltanet", **shape).forward(**inputs)
        np.testing.assert_array_equal(plan_of("gated-deltanet", threads=2, **shape).forward(**inputs), expected)
        plan, answers = plan_of("gated-deltanet", **shape), {}

        def work(n):
            answers[n] = plan.forward(**inputs)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for n in range(4):
            np.testing.assert_array_equal(answers[n], expected)

    def test_recipes_and_settings(self):
        a = plan_of("equal / linear / sgd(beta, decay)")
        b = plan_of("gated-deltanet", scale=1)
        inputs = ttr.random_inputs(b, 7)
        np.testing.assert_array_equal(a.forward(**inputs), b.forward(**inputs))
        self.assertIn("ridge=0.25", ttr.plan("rls", settings={"ridge": 0.25}).recipe)
        self.assertEqual(ttr.plan("rls:ridge=0.25").recipe, ttr.plan("rls", settings={"ridge": 0.25}).recipe)
        whole = plan_of("softmax-attention", causal=False)
        few = ttr.random_inputs(whole, 5)
        few["k"], few["v"] = np.concatenate([few["k"]] * 2, 1), np.concatenate([few["v"]] * 2, 1)
        self.assertEqual(whole.forward(**few).shape, (2, 5, 2, 4))

    def test_numbers_beyond_32_bits_are_refused(self):
        shape = {"batch": 1, "heads": 1, "key_heads": 1, "key_dim": 4, "value_dim": 4}
        for name in shape:
            with self.assertRaisesRegex(ttr.Error, f"^{name} = {2**33 + 4} is out of range"):
                ttr.plan("rls", **{**shape, name: 2**33 + 4})
        with self.assertRaisesRegex(ttr.Error, "out of range"):
            ttr.Stream("rls", 2**32 + 3, 1)

    def test_one_call(self):
        plan = plan_of("gated-deltanet", key_heads=1)
        inputs = ttr.random_inputs(plan, 7)
        np.testing.assert_array_equal(ttr.forward("gated-deltanet", **inputs), plan.forward(**inputs))
        with self.assertRaisesRegex(ttr.Error, "k has the shape"):
            ttr.forward("deltanet", q=inputs["q"], k=inputs["k"][..., :3], v=inputs["v"], beta=inputs["beta"])

    def test_dlpack(self):
        class Other:  # an array of a library that is not numpy
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, stream=None):
                return self.array.__dlpack__()

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        plan = plan_of("linear-attention")
        inputs = ttr.random_inputs(plan, 4)
        expected = plan.forward(**inputs)
        turned = {n: Other(np.ascontiguousarray(a.transpose(1, 0, 2, 3)).transpose(1, 0, 2, 3)) for n, a in inputs.items()}
        np.testing.assert_array_equal(plan.forward(**turned), expected)
        other = Other(inputs["q"])
        self.assertEqual(_arrays.view(other).data, inputs["q"].__array_interface__["data"][0])

        class Elsewhere(Other):
            def __dlpack_device__(self):
                return (2, 0)

        with self.assertRaisesRegex(ttr.Error, "q is not in the memory of the CPU"):
            plan.forward(**{**inputs, "q": Elsewhere(inputs["q"])})


class States(unittest.TestCase):
    def steps(self, plan, state, inputs, begin, end):
        cut = {n: a[:, begin:end] for n, a in inputs.items()}
        return plan.forward(state=state, form="recurrent", **cut)

    def test_clone_save_load_rewind(self):
        for layer in ("gated-deltanet", "softmax-attention"):
            with self.subTest(layer), tempfile.TemporaryDirectory() as folder:
                plan = plan_of(layer, rewind=2)
                inputs = ttr.random_inputs(plan, 8)
                state = plan.state()
                self.steps(plan, state, inputs, 0, 5)
                kept = state.clone()
                path = os.path.join(folder, "state.safetensors")
                state.save(path)
                after = self.steps(plan, state, inputs, 5, 7)
                state.rewind(2)
                self.assertEqual([state.tokens_seen(n) for n in (0, 1)], [5, 5])
                np.testing.assert_array_equal(self.steps(plan, state, inputs, 5, 7), after)
                np.testing.assert_array_equal(self.steps(plan, kept, inputs, 5, 7), after)
                loaded = plan.state().load(path)
                np.testing.assert_array_equal(self.steps(plan, loaded, inputs, 5, 7), after)
                with self.assertRaisesRegex(ttr.Error, "can take back"):
                    plan.state().rewind(1)
                with open(path, "r+b") as file:
                    file.seek(-3, 2)
                    file.write(b"\x7f")
                with self.assertRaises(ttr.Error):
                    plan.state().load(path)

    def test_slots(self):
        plan, three = plan_of("gated-deltanet"), plan_of("gated-deltanet", batch=3)
        inputs = ttr.random_inputs(plan, 4)
        state = plan.state()
        self.steps(plan, state, inputs, 0, 4)
        S = state["S"].copy()
        state.swap(0, 1)
        np.testing.assert_array_equal(state["S"], S[::-1])
        other = three.state()
        other.copy_slot(2, state, 0)
        np.testing.assert_array_equal(other["S"][2], S[1])
        self.assertEqual([other.tokens_seen(n) for n in range(3)], [0, 0, 4])
        state.reset(0)
        self.assertEqual([state.tokens_seen(n) for n in (0, 1)], [0, 4])
        one = plan.state().load_bytes(state.to_bytes(1), to=0)
        np.testing.assert_array_equal(one["S"][0], S[0])
        with self.assertRaisesRegex(ttr.Error, "no sequence 2"):
            state.reset(2)

    def test_lists_grow_by_themselves(self):
        plan = plan_of("softmax-attention")
        inputs = ttr.random_inputs(plan, 40)
        expected = plan.forward(form="recurrent", **inputs)
        state = plan.state(tokens=3)
        parts = [self.steps(plan, state, inputs, t, t + 1) for t in range(40)]
        np.testing.assert_allclose(np.concatenate(parts, 1), expected, rtol=0, atol=1e-13)
        self.assertGreaterEqual(state.capacity(), 40)
        call_state = plan.state(tokens=1)
        token = {n: a[:, :1].copy() for n, a in inputs.items()}
        call = plan.prepare(state=call_state, form="step", **token)
        for t in range(40):
            for name in token:
                token[name][...] = inputs[name][:, t : t + 1]
            call()
            np.testing.assert_allclose(call.outputs["o"], expected[:, t : t + 1], rtol=0, atol=1e-13)
        state.truncate(2, sequence=1)
        self.assertEqual([state.tokens_kept(n) for n in (0, 1)], [40, 2])

    def test_rebinding_a_call(self):
        plan = plan_of("linear-attention")
        inputs = ttr.random_inputs(plan, 1)
        call = plan.prepare(state=plan.state(), **inputs)
        other = inputs["v"] * 2
        call(v=other)
        np.testing.assert_array_equal(call.outputs["o"], plan.forward(**{**inputs, "v": other}))
        with self.assertRaisesRegex(ttr.Error, "prepare another one"):
            call(v=other[..., :2])
        with self.assertRaises(ttr.UnknownName):
            call(vv=other)

    def test_nothing_leaks_when_objects_go(self):
        plan = plan_of("linear-attention")
        call = plan.prepare(state=plan.state(), **ttr.random_inputs(plan, 1))
        del plan
        gc.collect()
        call()
        del call
        gc.collect()


class Descriptions(unittest.TestCase):
    def test_layers(self):
        names = ttr.layers().names
        self.assertIn("gated-deltanet", ttr.layers())
        self.assertNotIn("no such layer", ttr.layers())
        self.assertEqual(len(set(names)), len(names))
        layer = ttr.layers()["rls"]
        self.assertIn("ridge", [s["name"] for s in layer.settings])
        self.assertIn("<table>", ttr.layers()._repr_html_())
        self.assertIn("q_t", layer._repr_html_() + layer.equation)
        self.assertEqual(ttr.layers()[:2].names, names[:2])

    def test_derivations_in_three_notations(self):
        for layer in ttr.layers():
            if layer.recipe:
                with self.subTest(layer.name):
                    d = ttr.derive(layer.name)
                    self.assertTrue(d.objective and d.recurrence)
                    latex = d._repr_latex_()
                    self.assertTrue(latex.startswith("\\begin{description}"))
                    self.assertEqual(latex.count("\\begin"), latex.count("\\end"))
                    self.assertNotIn("<script", d._repr_html_())
                    self.assertIn("Recurrence", d._repr_html_())
        self.assertIn("recurrence", str(ttr.derive("equal / linear / gd(2)")))
        with self.assertRaisesRegex(ttr.Error, "solves no regression"):
            ttr.derive("rms-norm")

    def test_check_finds_a_fault(self):
        good = ttr.check("deltanet")
        self.assertTrue(good)
        good.rows.append(("made up", 1.0, 1e-9))
        self.assertFalse(good)
        self.assertIn("FAILED", repr(good))

    def test_long_texts_fit(self):
        size = _library.c.c_size_t(4)
        buffer = _library.c.create_string_buffer(4)
        status = _library.lib.ttr_derive(b"deltanet", 0, buffer, _library.c.byref(size))
        self.assertEqual(status, _library.BAD_ARGUMENT)
        self.assertGreater(size.value, 100)


class Errors(unittest.TestCase):
    def test_names(self):
        with self.assertRaises(KeyError) as unknown:
            ttr.plan("gated-deltanets")
        self.assertIn("did you mean 'gated-deltanet'?", str(unknown.exception))
        self.assertIsInstance(unknown.exception, ValueError)
        self.assertEqual(unknown.exception.where, "layer gated-deltanets")
        plan = plan_of("deltanet")
        inputs = ttr.random_inputs(plan, 3)
        for change, sentence in (
            ({"betta": inputs["beta"]}, "did you mean 'beta'"),
            ({"q": inputs["q"][:, :, :, :2]}, "q"),
            ({"q": inputs["q"].astype(np.float32)}, "q"),
            ({"q": inputs["q"].astype(np.complex128)}, "complex128"),
            ({"q": inputs["q"].astype(">f8")}, "byte order"),
        ):
            with self.assertRaisesRegex(ttr.Error, sentence):
                plan.forward(**{**inputs, **change})
        missing = dict(inputs)
        del missing["beta"]
        with self.assertRaisesRegex(ttr.Error, "beta"):
            plan.forward(**missing)
        with self.assertRaises(ttr.UnknownName):
            plan.forward(outputs=("oo",), **inputs)
        with self.assertRaises(ttr.UnknownName):
            plan.forward(form="chunky", **inputs)
        with self.assertRaises(ttr.UnknownName):
            plan.state()["T"]
        with self.assertRaises(ttr.UnknownName):
            plan.backward(d_outputs={"o": inputs["v"]}, wrt=["x"], **inputs)

    def test_sentences_are_those_of_the_library(self):
        for text, sentence in (
            ("equal / linear / sgd(betta)", "betta"),
            ("equal / linear", "weights / memory / solver"),
            ("rls:rigde=1", "rigde"),
        ):
            with self.assertRaises(ttr.Error) as error:
                ttr.plan(text)
            self.assertIn(sentence, str(error.exception))
        with self.assertRaisesRegex(ttr.Error, "float32 and float64"):
            ttr.plan("deltanet", dtype="int8")
        with self.assertRaises(AttributeError):
            ttr.nothing

    def test_domain(self):
        plan = plan_of("gated-deltanet")
        inputs = ttr.random_inputs(plan, 3)
        inputs["g"][:] = np.nan
        o = plan.forward(**inputs)  # not a number in, not a number out
        self.assertTrue(np.isnan(o).any())


if __name__ == "__main__":
    unittest.main()
