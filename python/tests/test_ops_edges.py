"""Operations of ttr.torch at their edges: forward derivatives, padded rows, empty windows, half types, names."""

import inspect
import itertools
import unittest

import torch
from torch.autograd import forward_ad, gradcheck

import cases
import ttr
import ttr.torch
from cases import flat
from test_ops import function_of
from ttr.torch import ops

torch.set_num_threads(2)


def row_of(name):
    return next(r for r in cases.rows() if r.name == name)


def all_functions():
    """(name, function of tensors, tensors that ask for gradients) of everything that ttr.torch.ops computes."""
    for row in cases.rows():
        yield row.name, *function_of(row, cases.arguments(row, batch=1, time=2))
    for name, run, tensors in cases.others():
        yield name, run, [t.clone().requires_grad_() for t in tensors]


def one_argument(run, tensors, n):
    return lambda t: run(*tensors[:n], t, *tensors[n + 1 :])


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def leaf(*shape):
    return draw(*shape).requires_grad_()


class Derivatives(unittest.TestCase):
    def test_forward_derivatives_are_refused(self):
        """By the gradient of a gradient (jvp), by dual numbers, by torch.func: each argument by itself."""
        try:
            from torch import func
        except ImportError:
            import functorch as func
        inside = "inside torch.func, functorch or vmap"
        for name, run, tensors in all_functions():
            plain = [t.detach() for t in tensors]
            for n, t in enumerate(tensors):
                with self.subTest(name, argument=n):
                    of, point, direction = one_argument(run, plain, n), plain[n], torch.ones_like(t)
                    if (name, n) == ("mamba_chunk_scan_combined", 6):  # z, with which plain torch multiplies
                        h = 1e-6
                        ends = zip(of(point + h * direction), of(point - h * direction))
                        slope = [(a - b) / (2 * h) for a, b in ends]
                        found = torch.autograd.functional.jvp(of, point, direction)[1]
                        torch.testing.assert_close(list(found), slope, rtol=0, atol=1e-7)
                        continue
                    with self.assertRaisesRegex(RuntimeError, "cannot differentiate it twice"):
                        torch.autograd.functional.jvp(of, point, direction)
                    for start in (t, point):
                        with forward_ad.dual_level(), self.assertRaisesRegex(ttr.Error, "a forward derivative"):
                            of(forward_ad.make_dual(start, direction))
                    with self.assertRaisesRegex(ttr.Error, f"carries a forward derivative|{inside}"):
                        func.jvp(of, (point,), (direction,))
                    with self.assertRaisesRegex(ttr.Error, inside):
                        func.vjp(of, point)
                    with self.assertRaisesRegex(ttr.Error, inside):
                        func.vmap(of)(torch.stack([point] * 2))
            with self.subTest(name), self.assertRaisesRegex(ttr.Error, inside):
                torch.autograd.functional.jacobian(run, tuple(plain), vectorize=True)

    def test_steps_have_the_gradients_of_plain_torch(self):
        """Two steps on one state, so that gradients go through what the first has written in place."""

        def two(step):
            def run(state, weight, *xs):
                state = state.clone()
                return torch.cat([step(x, state, weight) for x in xs], -1), state

            return run

        seen, taken = torch.tensor([1, 2], dtype=torch.int32), torch.tensor([2, 0])
        for length in (1, 3):  # with one kept input the state has no layout of its own
            xs = [leaf(2, 3, 1) for _ in range(2)]
            conv = two(lambda x, state, w: ops.causal_conv1d_update(x, state, w, None, "silu"))
            self.assertTrue(gradcheck(conv, (leaf(2, 3, length), leaf(3, length + 1), *xs)))
            ring = two(lambda x, state, w: ops.causal_conv1d_update(x, state, w, cache_seqlens=seen))
            self.assertTrue(gradcheck(ring, (leaf(2, 3, length), leaf(3, length + 1), *xs)))
            some = two(lambda x, state, w: ops.causal_conv1d_update(x, state, w, conv_state_indices=taken))
            self.assertTrue(gradcheck(some, (leaf(3, 3, length), leaf(3, length + 1), *xs)))
        B, C = draw(2, 3), draw(2, 3)
        step = two(lambda x, state, A: ops.selective_state_update(state, x, x, -A.exp(), B, C, dt_softplus=True))
        self.assertTrue(gradcheck(step, (leaf(2, 4, 3), leaf(4, 3), leaf(2, 4), leaf(2, 4))))


class Padding(unittest.TestCase):
    def test_padded_rows_have_no_state(self):
        """Rows with a negative index: their output is 0, no state changes, and the other rows are as without them."""
        torch.manual_seed(3)
        weight, A, D = draw(3, 4), -torch.rand(3, 5).double(), draw(3)
        seen = torch.tensor([4, 0, 1, 7], dtype=torch.int32)

        def ring(state, x, indices, seen):
            return ops.causal_conv1d_update(x, state, weight.to(x.dtype), None, "silu", seen, indices)

        def conv(state, x, indices, seen):
            return ring(state, x, indices, None)

        def ssm(state, x, indices, seen):
            side = torch.stack([x[:, 0] + n for n in range(5)], 1)  # of the row alone
            return ops.selective_state_update(state, x, 0.1 * x, A, side, 2 * side, D, x, D, True, indices)

        steps = [
            ("conv", conv, draw(6, 3, 4), draw(4, 3)),
            ("several tokens", conv, draw(6, 3, 3), draw(4, 3, 5)),
            ("bf16", conv, draw(6, 3, 4).bfloat16(), draw(4, 3).bfloat16()),
            ("ring", ring, draw(6, 3, 5), draw(4, 3, 2)),
            ("ssm", ssm, draw(6, 3, 5), draw(4, 3)),
        ]
        for (name, step, state, x), kind in itertools.product(steps, (torch.int32, torch.int64)):
            for given in ([5, -1, 0, -1], [-1, -1, -1, 2], [-7, -1, -1, -1], [1, 5, 3, 0]):
                with self.subTest(name, given=given):
                    pool = state.clone()
                    y = step(pool, x, torch.tensor(given, dtype=kind), seen)
                    want_y, want_pool = torch.zeros_like(x), state.clone()
                    for row, place in enumerate(given):
                        if place >= 0:
                            alone = state[place : place + 1].clone()
                            want_y[row] = step(alone, x[row : row + 1], None, seen[row : row + 1])[0]
                            want_pool[place] = alone[0]
                    torch.testing.assert_close([y, pool], [want_y, want_pool], rtol=0, atol=0)
            for indices, sentence in (
                (torch.tensor([5, -1, 0, 5], dtype=kind), "is 5 for the rows 0 and 3 of x"),
                (torch.tensor([6, -1, 0, 1], dtype=kind), "is 6 for row 0 of x; there are 6 states, 0 to 5"),
                (torch.tensor([0, 1, 2], dtype=kind), r"is int(32|64) \[3\]; it is int32 or int64 \[4\]"),
                (torch.tensor([0.0, 1.0, 2.0, 3.0]), r"is float32 \[4\]"),
            ):
                pool = state.clone()
                with self.subTest(name, sentence=sentence), self.assertRaisesRegex(ttr.Error, sentence):
                    step(pool, x, indices, seen)
                torch.testing.assert_close(pool, state, rtol=0, atol=0)
        taken = torch.tensor([2, -1, 4, -1])  # gradients leave padded rows out
        self.assertTrue(gradcheck(lambda s, x: conv(s.clone(), x, taken, None), (leaf(6, 3, 4), leaf(4, 3))))
        with forward_ad.dual_level(), self.assertRaisesRegex(ttr.Error, "carries a forward derivative"):
            conv(draw(6, 3, 4), forward_ad.make_dual(draw(4, 3, 5), draw(4, 3, 5)), taken, None)  # more than one

    def test_padded_tokens_of_a_packed_convolution(self):
        torch.manual_seed(4)
        x, w, b = draw(2, 3, 8), draw(3, 4), draw(3)
        seq = torch.tensor([[0, 0, 0, 1, 1, 1, -1, -1], [-1, 2, 2, -1, -1, 3, 3, 3]])
        y = ops.causal_conv1d_fn(x, w, b, seq, activation="silu")
        want = torch.zeros_like(x)
        for row, begin, end in ((0, 0, 3), (0, 3, 6), (1, 1, 3), (1, 5, 8)):
            want[row, :, begin:end] = ops.causal_conv1d_fn(x[row : row + 1, :, begin:end], w, b, activation="silu")[0]
        torch.testing.assert_close(y, want, rtol=0, atol=0)

    def test_windows(self):
        """Every operation with a window: all keys, the last ones, none."""
        seen = set()
        for row in cases.rows():
            if "window_size" not in row.signature:
                continue
            seen.add(row.name)
            for every, bounds in itertools.product((False, True), (None, torch.tensor([0, 3, 3, 7]))):
                given = cases.arguments(row, batch=1, time=7, heads=4, groups=2, every=every)

                def call(window, **more):
                    options = {**given, **more, "window_size": window, "cu_seqlens": bounds}  # noqa: B023
                    return getattr(ops, row.name)(**options)  # noqa: B023

                with self.subTest(row.name, every=every, packed=bounds is not None):
                    whole = call(None)
                    torch.testing.assert_close(call(7), whole, rtol=0, atol=1e-12)
                    self.assertFalse(torch.equal(call(2), whole))
                    torch.testing.assert_close(call(0), torch.zeros_like(whole), rtol=0, atol=0)
                    infinite = torch.full_like(given["v"], float("inf"))
                    torch.testing.assert_close(call(0, v=infinite), torch.zeros_like(whole), rtol=0, atol=0)
                    v = given["v"].clone().requires_grad_()
                    call(0, v=v).sum().backward()
                    self.assertEqual(float(v.grad.abs().max()), 0)
                    with self.assertRaisesRegex(ttr.Error, f"{row.name}: window_size = -1"):
                        call(-1)
                    with self.assertRaisesRegex(ttr.Error, "k has the shape"):
                        call(0, k=given["k"][..., :2])
        self.assertEqual(len(seen), 3, seen)


class HalfTypes(unittest.TestCase):
    """Gates that are made inside a call of half tensors."""

    def test_gates_inside_are_made_in_float(self):
        """The call that makes its gates is, bit for bit, the call that is given them in float32."""
        seen, makes = set(), set()

        def compare(got, want, name):
            torch.testing.assert_close(flat(got), flat(want), rtol=0, atol=0)
            seen.add(name)

        for row, dtype in itertools.product(cases.rows(), (torch.bfloat16, torch.float16)):
            function = getattr(ops, row.name)
            names = set(inspect.signature(function).parameters)
            alone = {"use_beta_sigmoid_in_kernel", "use_gate_in_kernel", "g_gamma", "kk"}
            if alone & names or {"g", "gk", "gv"} <= names:
                makes.add(row.name)
            given = cases.arguments(row, time=9)
            for n, t in given.items():
                if isinstance(t, torch.Tensor):
                    given[n] = t.float() if n.startswith("initial") else t.to(dtype)
            made = torch.Generator().manual_seed(3)
            wide = {n: given[n].float() for n in ("g", "g_gamma", "kk", "a") if n in given}
            with self.subTest(row.name, dtype=dtype):
                if "use_beta_sigmoid_in_kernel" in names:
                    raw = torch.randn(given["beta"].shape, generator=made).to(dtype)
                    for negative in (False, True):
                        options = {"use_beta_sigmoid_in_kernel": True, "allow_neg_eigval": negative}
                        beta = torch.sigmoid(raw.float()) * (2 if negative else 1)
                        got = function(**{**given, "beta": raw}, **options)
                        compare(got, function(**{**given, "beta": beta}), row.name)
                if "use_gate_in_kernel" in names:
                    shape, heads = given["g"].shape, given["g"].shape[2]
                    raw = torch.randn(shape, generator=made).to(dtype)
                    A_log, bias = torch.randn(heads, generator=made), torch.randn(shape[2:], generator=made).flatten()
                    bounds = (None, -5.0) if "lower_bound" in names else (None,)
                    for bound, biased, kind in itertools.product(bounds, (False, True), (dtype, torch.float32)):
                        extra = {} if bound is None else {"lower_bound": bound}
                        numbers = {"A_log": A_log.to(kind), "dt_bias": bias.to(kind) if biased else None}
                        a = numbers["A_log"].float().exp().reshape((heads,) + (1,) * (raw.dim() - 3))
                        g = raw.float() + (bias.to(kind).float().reshape(shape[2:]) if biased else 0)
                        g = -a * torch.nn.functional.softplus(g) if bound is None else bound * torch.sigmoid(a * g)
                        got = function(**{**given, "g": raw}, use_gate_in_kernel=True, **numbers, **extra)
                        compare(got, function(**{**given, "g": g}), row.name)
                if "g_gamma" in names:
                    both = wide["g"] + wide["g_gamma"]
                    compare(function(**given), function(**{**given, "g": both, "g_gamma": None}), row.name)
                if {"g", "gk", "gv"} <= names:
                    gk = -torch.rand((*given["v"].shape[:3], given["k"].shape[-1]), generator=made).to(dtype)
                    both = wide["g"].unsqueeze(-1) + gk.float()
                    compare(function(**{**given, "gk": gk}), function(**{**given, "g": None, "gk": both}), row.name)
                if {"gv", "A_log"} <= names:
                    gv = -torch.rand(given["v"].shape, generator=made).to(dtype)
                    both = wide["g"].unsqueeze(-1) + gv.float()
                    compare(function(**{**given, "gv": gv}), function(**{**given, "g": None, "gv": both}), row.name)
                if "kk" in names:
                    rest = {n: t for n, t in given.items() if n not in ("kk", "a")}
                    want = ops.chunk_rwkv7(**rest, a=-given["kk"], b=wide["kk"] * wide["a"])
                    compare(function(**given), want, row.name)
        self.assertEqual(seen, makes)

    def test_mamba_2(self):
        made = torch.Generator().manual_seed(4)
        x, B, C, z = (torch.randn(2, 9, 4, 3, generator=made) for _ in range(4))
        dt, bias, D = (torch.randn(*shape, generator=made) for shape in ((2, 9, 4), (4,), (4, 3)))
        A = -torch.rand(4, generator=made)
        scan = ops.mamba_chunk_scan_combined
        for kind in (torch.bfloat16, torch.float16):
            t = {n: s.to(kind) for n, s in (("x", x), ("dt", dt), ("B", B), ("C", C))}
            raw = {"dt_bias": bias.to(kind), "dt_softplus": True}
            own = torch.nn.functional.softplus(t["dt"].float() + raw["dt_bias"].float())
            got = scan(**t, A=A, chunk_size=64, **raw, return_final_states=True)
            want = scan(**{**t, "dt": own}, A=A, chunk_size=64, return_final_states=True)
            torch.testing.assert_close(got, want, rtol=0, atol=0)
            for rest in ({"D": D.to(kind), "z": z.to(kind)}, {"D": D, "z": z}):
                whole = scan(**t, A=A, chunk_size=64, **raw, **rest)
                exact = {n: s.double() for n, s in (*t.items(), *rest.items(), ("dt_bias", raw["dt_bias"]), ("A", A))}
                self.assertEqual(whole.dtype, kind)
                exact = scan(**exact, chunk_size=64, dt_softplus=True)
                torch.testing.assert_close(whole.double(), exact, rtol=0.02, atol=0.02)

    def test_half_tensors_have_the_states_of_double(self):
        """Where nothing but gates is made inside, a final state is that of double to the rounding of float."""
        for name in ("gated_delta_rule", "kda"):
            row = row_of(f"fused_recurrent_{name}")
            given = cases.arguments(row, time=64, states=False)
            half = {n: t.bfloat16() for n, t in given.items()}
            exact = {n: t.double() for n, t in half.items()}
            options = {"output_final_state": True, "use_beta_sigmoid_in_kernel": True, "use_gate_in_kernel": True}
            options["A_log"] = torch.zeros(2)
            for function in (getattr(ops, row.name), getattr(ops, f"chunk_{name}")):
                S, want = function(**half, **options)[1], function(**exact, **options)[1]
                self.assertLess(float((S - want).abs().max() / want.abs().max()), 1e-5)


class Names(unittest.TestCase):
    """What comes as **kwargs: names that flash-linear-attention reads there and old ones; all others are refused."""

    def test_misspelt_names_are_refused_with_the_nearest(self):
        for row in cases.rows():
            function, given = getattr(ops, row.name), cases.arguments(row)
            names = [n for n in inspect.signature(function).parameters if n != "kwargs"]
            for name in names:
                typos = {name[:-1], name + "s", name[:1] + name[2:]} if len(name) > 5 else {name + "_of_k"}
                for typo in typos - {*names}:
                    with self.subTest(row.name, typo=typo):
                        if "**kwargs" not in row.signature:
                            with self.assertRaises(TypeError):
                                function(**given, **{typo: None})
                            continue
                        nearest = f"; did you mean '{name}'[?]" if len(name) > 5 else ""
                        with self.assertRaisesRegex(ttr.UnknownName, f"no argument '{typo}' of {row.name}{nearest}"):
                            function(**given, **{typo: None})

    def test_old_names_and_those_that_are_read(self):
        turned, sized = 0, 0
        for row in cases.rows():
            if "**kwargs" not in row.signature:
                continue
            function, given = getattr(ops, row.name), cases.arguments(row)
            with self.subTest(row.name):
                want = flat(function(**given))
                torch.testing.assert_close(flat(function(**given, head_first=False)), want, rtol=0, atol=0)
                with self.assertRaisesRegex(ttr.Error, f"{row.name}: head_first is gone"):
                    function(**given, head_first=True)
                if "chunk_size" not in row.signature and row.name.startswith("chunk_"):
                    torch.testing.assert_close(flat(function(**given, chunk_size=32)), want, rtol=0, atol=0)
                    sized += 1
                if "state_v_first" in row.signature:
                    first = {**given, "initial_state": given["initial_state"].transpose(-1, -2)}
                    got, want = function(**first, transpose_state_layout=True), function(**first, state_v_first=True)
                    torch.testing.assert_close(flat(got), flat(want), rtol=0, atol=0)
                    for layout in (False, True):
                        with self.assertRaisesRegex(ttr.Error, "transpose_state_layout and state_v_first are one option"):
                            function(**first, state_v_first=True, transpose_state_layout=layout)
                    turned += 1
        self.assertGreater(turned, 8)
        self.assertGreater(sized, 10)

    def test_a_gate_from_names_that_are_not_in_the_signature(self):
        A_log = draw(2)
        for name in ("chunk_gated_delta_rule", "chunk_kda", "chunk_gdn2", "chunk_precond_kda"):
            given = cases.arguments(row_of(name))
            function, g = getattr(ops, name), given["g"]
            bias = draw(*g.shape[2:]).flatten()
            with self.subTest(name):
                got = function(**given, use_gate_in_kernel=True, A_log=A_log, dt_bias=bias)
                want = function(**{**given, "g": ops.gate(g, A_log, bias)})
                torch.testing.assert_close(flat(got), flat(want), rtol=0, atol=0)

    def test_norms_from_names_that_are_not_in_the_signature(self):
        given = cases.arguments(row_of("chunk_gated_oja_rule"))
        long = {n: 3 * t if n in ("q", "k") else t for n, t in given.items()}
        got = ops.chunk_gated_oja_rule(**long, use_qk_l2norm_in_kernel=True)
        want = ops.chunk_gated_oja_rule(**long, use_q_l2norm=True, use_k_l2norm=True)
        torch.testing.assert_close(flat(got), flat(want), rtol=0, atol=0)
        given = cases.arguments(row_of("chunk_precond_kda"))
        got = ops.chunk_precond_kda(**given, use_qk_l2norm_in_kernel=True)
        torch.testing.assert_close(flat(got), flat(ops.chunk_precond_kda(**given)), rtol=0, atol=0)
        with self.assertRaisesRegex(ttr.Error, "always divided by their lengths"):
            ops.chunk_precond_kda(**given, use_qk_l2norm_in_kernel=False)

    def test_gates_per_channel_take_the_old_name_of_the_layout(self):
        given = cases.arguments(row_of("fused_recurrent_gated_delta_rule"))
        given["gv"], given["initial_state"] = -torch.rand_like(given["v"]), given["initial_state"].transpose(-1, -2)
        got = ops.fused_recurrent_gated_delta_rule(**given, transpose_state_layout=True)
        want = ops.fused_recurrent_gated_delta_rule(**given, state_v_first=True)
        torch.testing.assert_close(flat(got), flat(want), rtol=0, atol=0)


if __name__ == "__main__":
    unittest.main()
