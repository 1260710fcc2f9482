"""Operations of ttr.torch: gradients, packed sequences, options, refusals; generated from their table."""

import inspect
import itertools
import unittest

import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import cases
import ttr
import ttr.torch
from cases import flat
from ttr.torch import _call, _registered, ops

torch.set_num_threads(2)


def tensors_of(given):
    """(path, tensor) of everything that a gradient may be asked of."""
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            yield (name,), value
        elif isinstance(value, tuple):
            for i, part in enumerate(value):
                yield (name, i), part


def with_tensors(given, paths, tensors):
    changed = dict(given)
    for path, t in zip(paths, tensors):
        if len(path) == 1:
            changed[path[0]] = t
        else:
            changed[path[0]] = tuple(t if i == path[1] else part for i, part in enumerate(changed[path[0]]))
    return changed


def function_of(row, given):
    function = getattr(ops, row.name)
    paths = [path for path, _ in tensors_of(given)]
    differentiable = [t for _, t in tensors_of(given)]

    def run(*tensors):
        return tuple(t for t in flat(function(**with_tensors(given, paths, tensors))) if t.is_floating_point())

    return run, [t.clone().requires_grad_() for t in differentiable]


def all_functions():
    """(name, function of tensors, tensors that ask for gradients) of everything that ttr.torch.ops computes."""
    for row in cases.rows():
        yield row.name, *function_of(row, cases.arguments(row, batch=1, time=2))
    for name, run, tensors in cases.others():
        yield name, run, [t.clone().requires_grad_() for t in tensors]


def one_argument(run, tensors, n):
    return lambda t: run(*tensors[:n], t, *tensors[n + 1 :])


class Gradients(unittest.TestCase):
    def test_gradcheck_of_every_operation(self):
        for row in cases.rows():
            with self.subTest(row.name):
                given = cases.arguments(row, batch=1 if row.name != "chunk_gated_delta_rule" else 2)
                run, tensors = function_of(row, given)
                if row.name == "fused_recurrent_rwkv4":  # how a sum is split between number and exponent has no gradient
                    whole, exponent = run, tensors[-1].detach()[:, 2:]
                    run = lambda *t: whole(*t[:-1], torch.cat([t[-1], exponent], 1))[:1]  # noqa: E731, B023
                    tensors[-1] = tensors[-1].detach()[:, :2].clone().requires_grad_()
                self.assertTrue(gradcheck(run, tensors, atol=1e-5), row.name)

    def test_second_derivatives_are_refused(self):
        for row in cases.rows():
            with self.subTest(row.name):
                given = cases.arguments(row, batch=1, time=2, states=False)
                run, tensors = function_of(row, given)
                loss = sum(t.sum() for t in run(*tensors) if t.requires_grad)
                first = torch.autograd.grad(loss, tensors, create_graph=True, allow_unused=True)
                with self.assertRaisesRegex(RuntimeError, "cannot differentiate it twice"):
                    torch.autograd.grad(sum(g.sum() for g in first if g is not None), tensors, allow_unused=True)
        row = next(r for r in cases.rows() if r.name == "chunk_delta_rule")
        run, tensors = function_of(row, cases.arguments(row, batch=1, time=2))
        with self.assertRaisesRegex(RuntimeError, "cannot differentiate it twice"):
            gradgradcheck(run, tensors)

    def test_forward_derivatives_are_refused(self):
        """By the gradient of a gradient (jvp), by dual numbers, by torch.func: each argument by itself."""
        try:
            from torch import func
        except ImportError:
            import functorch as func
        for name, run, tensors in all_functions():
            plain = [t.detach() for t in tensors]
            for n, t in enumerate(tensors):
                with self.subTest(name, argument=n):
                    of, point, direction = one_argument(run, plain, n), plain[n], torch.ones_like(t)
                    if (name, n) == ("mamba_chunk_scan_combined", 6):  # z, which plain torch multiplies with: it is right
                        slope = [(a - b) / 2e-6 for a, b in zip(of(point + 1e-6 * direction), of(point - 1e-6 * direction))]
                        found = torch.autograd.functional.jvp(of, point, direction)[1]
                        torch.testing.assert_close(list(found), slope, rtol=0, atol=1e-7)
                        continue
                    with self.assertRaisesRegex(RuntimeError, "cannot differentiate it twice"):
                        torch.autograd.functional.jvp(of, point, direction)
                    for start in (t, point):
                        with forward_ad.dual_level(), self.assertRaisesRegex(ttr.Error, "carries a forward derivative"):
                            of(forward_ad.make_dual(start, direction))
                    with self.assertRaisesRegex(ttr.Error, "carries a forward derivative|inside torch.func"):
                        func.jvp(of, (point,), (direction,))
                    with self.assertRaisesRegex(ttr.Error, "inside torch.func, functorch or vmap"):
                        func.vjp(of, point)
                    with self.assertRaisesRegex(ttr.Error, "inside torch.func, functorch or vmap"):
                        func.vmap(of)(torch.stack([point] * 2))
            with self.subTest(name), self.assertRaisesRegex(ttr.Error, "inside torch.func, functorch or vmap"):
                torch.autograd.functional.jacobian(run, tuple(plain), vectorize=True)

    def test_gradients_of_mamba_and_convolution(self):
        def draw(*shape):
            return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

        u, delta, z = draw(2, 4, 5), draw(2, 4, 5), draw(2, 4, 5)
        A = (-torch.rand(4, 3, dtype=torch.float64) - 0.1).requires_grad_()
        for groups in (0, 2):
            side = (2, 3, 5) if groups == 0 else (2, groups, 3, 5)
            run = lambda *t: ops.selective_scan_fn(*t, delta_softplus=True, return_last_state=True)  # noqa: E731
            self.assertTrue(gradcheck(run, (u, delta, A, draw(*side), draw(*side), draw(4), z, draw(4)), atol=1e-5))
        constant = lambda *t: ops.selective_scan_fn(*t, delta_softplus=True)  # noqa: E731
        self.assertTrue(gradcheck(constant, (u, delta, A, draw(4, 3), draw(2, 3, 5)), atol=1e-5))
        x, dt, a = draw(2, 5, 4, 3), draw(2, 5, 4), (-torch.rand(4, dtype=torch.float64)).requires_grad_()

        def combined(x, dt, a, B, C, D, z, bias, h):
            return ops.mamba_chunk_scan_combined(
                x, dt, a, B, C, 64, D=D, z=z, dt_bias=bias, initial_states=h, dt_softplus=True, return_final_states=True
            )

        for D in (draw(4), draw(4, 3)):
            self.assertTrue(
                gradcheck(
                    combined,
                    (x, dt, a, draw(2, 5, 2, 3), draw(2, 5, 2, 3), D, draw(2, 5, 4, 3), draw(4), draw(2, 4, 3, 3)),
                    atol=1e-5,
                )
            )
        conv = lambda x, w, b, s: ops.causal_conv1d_fn(x, w, b, None, s, True, None, "silu")  # noqa: E731
        self.assertTrue(gradcheck(conv, (draw(2, 3, 6), draw(3, 4), draw(3), draw(2, 3, 3))))
        norm = lambda x: ops.l2norm(x)  # noqa: E731
        self.assertTrue(gradcheck(norm, (draw(2, 3, 2, 4),)))


class Options(unittest.TestCase):
    def test_names_order_and_defaults_are_those_of_the_table(self):
        for row in cases.rows():
            signature = inspect.signature(getattr(ops, row.name))
            self.assertEqual(str(signature), f"({row.signature})".replace("1e-06", "1e-06"))
        self.assertIs(ops.chunk_gdn, ops.chunk_gated_delta_rule)
        with self.assertRaisesRegex(AttributeError, "selects blocks"):
            ops.parallel_nsa
        with self.assertRaisesRegex(AttributeError, "did you mean 'chunk_gla'"):
            ops.chunk_glaa
        with self.assertRaises(TypeError):
            ops.chunk_gla(1, 2)

    def test_packed_is_one_by_one(self):
        bounds = [0, 3, 4, 4, 9]
        for row in cases.rows():
            if "cu_seqlens" not in row.signature or row.name == "chunk_gated_delta_product":
                continue
            with self.subTest(row.name):
                given = cases.arguments(row, batch=1, time=9, states=False)
                function = getattr(ops, row.name)
                extra = {"output_final_state": True} if "output_final_state" in row.signature else {}
                whole = function(**given, **extra, cu_seqlens=torch.tensor(bounds, dtype=torch.int32))
                o, *states = flat(whole)
                for n, (begin, end) in enumerate(zip(bounds[:-1], bounds[1:])):
                    if begin == end:
                        continue
                    cut = {
                        name: t[:, begin:end] if isinstance(t, torch.Tensor) and t.dim() > 2 else t for name, t in given.items()
                    }
                    alone, *end_states = flat(function(**cut, **extra))
                    torch.testing.assert_close(o[:, begin:end], alone, rtol=0, atol=1e-11)
                    for a, b in zip(states, end_states):
                        torch.testing.assert_close(a[n : n + 1], b, rtol=0, atol=1e-11)

    def test_states_carry_on(self):
        for row in cases.rows():
            names = [n for n in row.initial if n in row.signature]
            if row.result in ("none", "attn") or not names or row.name == "chunk_abc":
                continue
            if row.module in ("ttt", "gated_delta_product"):
                continue  # mini-batches and several pairs per token: below
            with self.subTest(row.name):
                given = cases.arguments(row, time=6, states=False)
                if row.module == "gsa" and "g" not in given:
                    continue
                function = getattr(ops, row.name)
                whole, *final = flat(function(**given, output_final_state=True))
                first = {n: t[:, :4] if isinstance(t, torch.Tensor) and t.dim() > 2 else t for n, t in given.items()}
                rest = {n: t[:, 4:] if isinstance(t, torch.Tensor) and t.dim() > 2 else t for n, t in given.items()}
                a, *middle = flat(function(**first, output_final_state=True))
                start = dict(zip(names, middle)) if len(names) > 1 else {names[0]: middle[0] if len(middle) == 1 else tuple(middle)}
                b, *end = flat(function(**rest, **start, output_final_state=True))
                torch.testing.assert_close(torch.cat([a, b], 1), whole, rtol=0, atol=1e-10)
                for x, y in zip(end, final):
                    torch.testing.assert_close(x, y, rtol=0, atol=1e-10)

    def test_value_first_states(self):
        for row in cases.rows():
            flag = next((f for f in ("state_v_first", "transpose_state_layout") if f in row.signature), None)
            if flag is None:
                continue
            with self.subTest(row.name):
                given = cases.arguments(row)
                function = getattr(ops, row.name)
                o, state, *_ = flat(function(**given))
                turned = {**given, "initial_state": given["initial_state"].transpose(-1, -2).contiguous(), flag: True}
                o2, state2, *_ = flat(function(**turned))
                torch.testing.assert_close(o2, o, rtol=0, atol=1e-12)
                torch.testing.assert_close(state2, state.transpose(-1, -2), rtol=0, atol=1e-12)

    def test_reverse(self):
        for row in cases.rows():
            if "reverse" not in row.signature:
                continue
            for bounds in (None, torch.tensor([0, 2, 7])):
                with self.subTest(row.name, packed=bounds is not None):
                    given = cases.arguments(row, batch=1, time=7, states=False)
                    function = getattr(ops, row.name)
                    o, *states = flat(function(**given, reverse=True, output_final_state=True, cu_seqlens=bounds))
                    turned = {n: t.flip(1) if isinstance(t, torch.Tensor) and t.dim() > 2 else t for n, t in given.items()}
                    other = None if bounds is None else torch.tensor([0, 5, 7])
                    expected, *ends = flat(function(**turned, output_final_state=True, cu_seqlens=other))
                    torch.testing.assert_close(o, expected.flip(1), rtol=0, atol=1e-12)
                    for a, b in zip(states, ends):
                        torch.testing.assert_close(a, b if bounds is None else b.flip(0), rtol=0, atol=1e-12)

    def test_norms_sigmoids_and_gates_inside(self):
        for row in cases.rows():
            function = getattr(ops, row.name)
            given = cases.arguments(row)
            given.pop("use_qk_l2norm_in_kernel", None)
            with self.subTest(row.name):
                if "use_qk_l2norm_in_kernel=False" in row.signature and "precond" not in row.name:
                    long = {n: 3 * t if n in row.normed else t for n, t in given.items()}
                    short = {n: ops.l2norm(t) if n in row.normed else t for n, t in long.items()}
                    got, want = flat(function(**long, use_qk_l2norm_in_kernel=True)), flat(function(**short))
                    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
                if "use_q_l2norm" in row.signature:
                    long = {n: 3 * t if n in ("q", "k") else t for n, t in given.items()}
                    short = {n: ops.l2norm(t) if n in ("q", "k") else t for n, t in long.items()}
                    got, want = flat(function(**long, use_q_l2norm=True, use_k_l2norm=True)), flat(function(**short))
                    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
                if "use_beta_sigmoid_in_kernel" in row.signature:
                    raw = torch.randn_like(given["beta"])
                    for negative in (False, True):
                        got = function(**{**given, "beta": raw}, use_beta_sigmoid_in_kernel=True, allow_neg_eigval=negative)
                        want = function(**{**given, "beta": torch.sigmoid(raw) * (2 if negative else 1)})
                        torch.testing.assert_close(flat(got), flat(want), rtol=0, atol=1e-12)
                    with self.assertRaisesRegex(ttr.Error, "use_beta_sigmoid_in_kernel"):
                        function(**given, allow_neg_eigval=True)
                if "use_gate_in_kernel" in row.signature:
                    raw, heads = torch.randn_like(given["g"]), given["g"].shape[2]
                    A_log, bias = torch.randn(heads).double(), torch.randn(given["g"].shape[2:]).double().flatten()
                    for bound in (None, -5.0):
                        extra = {"lower_bound": bound} if "lower_bound" in row.signature else {}
                        if bound is not None and not extra:
                            continue
                        got = function(**{**given, "g": raw}, use_gate_in_kernel=True, A_log=A_log, dt_bias=bias, **extra)
                        a = A_log.exp().reshape((heads,) + (1,) * (raw.dim() - 3))
                        shifted = raw + bias.reshape(raw.shape[2:])
                        g = -a * torch.nn.functional.softplus(shifted) if bound is None else bound * torch.sigmoid(a * shifted)
                        torch.testing.assert_close(flat(got), flat(function(**{**given, "g": g})), rtol=0, atol=1e-12)
                    with self.assertRaisesRegex(ttr.Error, "A_log"):
                        function(**given, use_gate_in_kernel=True)

    def test_gates_inside_are_made_in_float(self):
        """Of half tensors: the call that makes its gates is, bit for bit, the call that is given them in float32."""
        seen, makes = set(), set()

        def compare(got, want, name):
            torch.testing.assert_close(flat(got), flat(want), rtol=0, atol=0)
            seen.add(name)

        for row, dtype in itertools.product(cases.rows(), (torch.bfloat16, torch.float16)):
            function, names = getattr(ops, row.name), list(inspect.signature(getattr(ops, row.name)).parameters)
            if {"use_beta_sigmoid_in_kernel", "use_gate_in_kernel", "g_gamma", "kk"} & {*names} or {"g", "gk", "gv"} <= {*names}:
                makes.add(row.name)
            given = cases.arguments(row, time=9)
            for n, t in given.items():
                if isinstance(t, torch.Tensor):
                    given[n] = t.float() if n.startswith("initial") else t.to(dtype)
            made = torch.Generator().manual_seed(3)
            with self.subTest(row.name, dtype=dtype):
                if "use_beta_sigmoid_in_kernel" in names:
                    raw = torch.randn(given["beta"].shape, generator=made).to(dtype)
                    for negative in (False, True):
                        options = {"use_beta_sigmoid_in_kernel": True, "allow_neg_eigval": negative}
                        beta = torch.sigmoid(raw.float()) * (2 if negative else 1)
                        compare(function(**{**given, "beta": raw}, **options), function(**{**given, "beta": beta}), row.name)
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
                wide = {n: given[n].float() if isinstance(given.get(n), torch.Tensor) else None for n in ("g", "gk", "gv", "g_gamma")}
                if "g_gamma" in names:
                    both = wide["g"] + wide["g_gamma"]
                    compare(function(**given), function(**{**given, "g": both, "g_gamma": None}), row.name)
                if "gk" in names and "g" in names and "gv" in names:
                    rate = torch.rand((*given["v"].shape[:3], given["k"].shape[-1]), generator=made)
                    gk = (-rate).to(dtype)
                    both = wide["g"].unsqueeze(-1) + gk.float()
                    compare(function(**{**given, "gk": gk}), function(**{**given, "g": None, "gk": both}), row.name)
                if "gv" in names and "A_log" in names:
                    gv = (-torch.rand(given["v"].shape, generator=made)).to(dtype)
                    both = wide["g"].unsqueeze(-1) + gv.float()
                    compare(function(**{**given, "gv": gv}), function(**{**given, "g": None, "gv": both}), row.name)
                if "kk" in names:
                    b = given["kk"].float() * given["a"].float()
                    rest = {n: t for n, t in given.items() if n not in ("kk", "a")}
                    compare(function(**given), ops.chunk_rwkv7(**rest, a=-given["kk"], b=b), row.name)
        self.assertEqual(seen, makes)
        x, dt, B, C, z = (torch.randn(2, 9, 4, 3).bfloat16() for _ in range(5))
        dt, bias = dt[..., 0], torch.randn(4).bfloat16()
        A, D = -torch.rand(4), torch.randn(4, 3).bfloat16()
        scan = ops.mamba_chunk_scan_combined
        for kind in (torch.bfloat16, torch.float16):
            t = [s.to(kind) for s in (x, dt, B, C, z, bias, D)]
            got = scan(t[0], t[1], A, t[2], t[3], 64, dt_bias=t[5], dt_softplus=True, return_final_states=True)
            made = torch.nn.functional.softplus(t[1].float() + t[5].float())
            torch.testing.assert_close(got, scan(t[0], made, A, t[2], t[3], 64, return_final_states=True), rtol=0, atol=0)
            whole = scan(t[0], t[1], A, t[2], t[3], 64, D=t[6], z=t[4], dt_bias=t[5], dt_softplus=True)
            exact = scan(t[0].double(), t[1].double(), A.double(), t[2].double(), t[3].double(), 64, t[6].double(), t[4].double(),
                         t[5].double(), dt_softplus=True)  # fmt: skip
            self.assertEqual(whole.dtype, kind)
            torch.testing.assert_close(whole.double(), exact, rtol=0.02, atol=0.02)

    def test_half_tensors_have_the_states_of_double(self):
        """Where nothing but gates is made inside, a final state of half tensors is that of double to the rounding of float."""
        for name in ("chunk_gated_delta_rule", "fused_recurrent_gated_delta_rule", "chunk_kda", "fused_recurrent_kda"):
            row = next(r for r in cases.rows() if r.name == name)
            given = cases.arguments(row, time=64, states=False)
            half = {n: t.bfloat16() for n, t in given.items()}
            exact = {n: t.double() for n, t in half.items()}
            options = {"output_final_state": True, "use_beta_sigmoid_in_kernel": True}
            if "use_gate_in_kernel" in row.signature:
                options.update(use_gate_in_kernel=True, A_log=torch.zeros(2))
            function = getattr(ops, name)
            S, want = function(**half, **options)[1], function(**exact, **options)[1]
            with self.subTest(name):
                self.assertLess(float((S - want).abs().max() / want.abs().max()), 1e-5)

    def test_steps_have_the_gradients_of_plain_torch(self):
        """Two steps on one state, so that gradients go through what the first has written in place."""

        def two(step):
            def run(state, weight, *xs):
                state = state.clone()
                return torch.cat([step(x, state, weight) for x in xs], -1), state

            return run

        def draw(*shape):
            return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

        for length in (1, 3):  # with one kept input the state has no layout of its own
            xs = [draw(2, 3, 1) for _ in range(2)]
            conv = two(lambda x, state, w: ops.causal_conv1d_update(x, state, w, None, "silu"))
            self.assertTrue(gradcheck(conv, (draw(2, 3, length), draw(3, length + 1), *xs)))
            seen = torch.tensor([1, 2], dtype=torch.int32)
            ring = two(lambda x, state, w: ops.causal_conv1d_update(x, state, w, cache_seqlens=seen))  # noqa: B023
            self.assertTrue(gradcheck(ring, (draw(2, 3, length), draw(3, length + 1), *xs)))
            taken = torch.tensor([2, 0])
            some = two(lambda x, state, w: ops.causal_conv1d_update(x, state, w, conv_state_indices=taken))  # noqa: B023
            self.assertTrue(gradcheck(some, (draw(3, 3, length), draw(3, length + 1), *xs)))
        B, C = torch.randn(2, 3).double(), torch.randn(2, 3).double()
        step = two(lambda x, state, A: ops.selective_state_update(state, x, x, -A.exp(), B, C, dt_softplus=True))
        self.assertTrue(gradcheck(step, (draw(2, 4, 3), draw(4, 3), draw(2, 4), draw(2, 4))))

    def test_groups_of_heads(self):
        for name in ("chunk_gated_delta_rule", "chunk_kda", "parallel_attn", "parallel_forgetting_attn", "chunk_gla"):
            row = next(r for r in cases.rows() if r.name == name)
            few = cases.arguments(row, heads=4, groups=2, states=False)
            many = {
                n: t.repeat_interleave(2, 2) if isinstance(t, torch.Tensor) and t.dim() == 4 and t.shape[2] == 2 else t
                for n, t in few.items()
            }
            a, b = flat(getattr(ops, name)(**few))[0], flat(getattr(ops, name)(**many))[0]
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)

    def test_gates_and_steps_per_channel_of_a_value(self):
        row = next(r for r in cases.rows() if r.name == "fused_recurrent_gated_delta_rule")
        given = cases.arguments(row, heads=4, groups=2)
        made = torch.Generator().manual_seed(5)
        shape, K = given["v"].shape, given["k"].shape[-1]
        gv = -torch.rand(shape, generator=made, dtype=torch.float64)
        gk = -torch.rand(*shape[:3], K, generator=made, dtype=torch.float64)
        steps = torch.rand(shape, generator=made, dtype=torch.float64)
        q, k = (given[n].repeat_interleave(2, 2) for n in ("q", "k"))
        for beta, rows in itertools.product((given["beta"], steps), (None, gk)):
            S, want = given["initial_state"], []
            for t in range(shape[1]):
                S = S * given["g"][:, t, :, None, None].exp() * gv[:, t, :, None, :].exp()
                if rows is not None:
                    S = S * rows[:, t].exp().unsqueeze(-1)
                b = beta[:, t].unsqueeze(-1) if beta.dim() == 3 else beta[:, t]
                u = b * (given["v"][:, t] - (S * k[:, t].unsqueeze(-1)).sum(-2))
                S = S + k[:, t].unsqueeze(-1) * u.unsqueeze(-2)
                want.append((S * q[:, t].unsqueeze(-1)).sum(-2) * K**-0.5)
            call = {**given, "gv": gv, "gk": rows, "beta": beta}
            o, final = ops.fused_recurrent_gated_delta_rule(**call)
            torch.testing.assert_close([o, final], [torch.stack(want, 1), S], rtol=0, atol=1e-12)
            call["initial_state"] = call["initial_state"].transpose(-1, -2)
            turned = ops.fused_recurrent_gated_delta_rule(**call, state_v_first=True)
            torch.testing.assert_close([turned[0], turned[1].transpose(-1, -2)], [o, final], rtol=0, atol=1e-12)
        leaves = [given[n].clone().requires_grad_() for n in ("q", "k", "v", "g")] + [gv.requires_grad_(), steps.requires_grad_()]
        rest = {"initial_state": given["initial_state"], "output_final_state": True}
        self.assertTrue(
            torch.autograd.gradcheck(
                lambda q, k, v, g, gv, b: ops.fused_recurrent_gated_delta_rule(q, k, v, g, None, gv, b, **rest), leaves
            )
        )

    def test_windows(self):
        """Every operation with a window: all keys, the last ones, none."""
        seen = set()
        for row in cases.rows():
            if "window_size" not in row.signature:
                continue
            function = getattr(ops, row.name)
            for every, bounds in itertools.product((False, True), (None, torch.tensor([0, 3, 3, 7]))):
                with self.subTest(row.name, every=every, packed=bounds is not None):
                    given = cases.arguments(row, batch=1, time=7, heads=4, groups=2, every=every)
                    call = lambda n, **more: function(**{**given, **more}, window_size=n, cu_seqlens=bounds)  # noqa: E731, B023
                    whole = call(None)
                    torch.testing.assert_close(call(7), whole, rtol=0, atol=1e-12)
                    self.assertFalse(torch.equal(call(2), whole))
                    torch.testing.assert_close(call(0), torch.zeros_like(whole), rtol=0, atol=0)
                    infinite = torch.full_like(given["v"], float("inf"))
                    torch.testing.assert_close(call(0, v=infinite), torch.zeros_like(whole), rtol=0, atol=0)
                    leaf = given["v"].clone().requires_grad_()
                    call(0, v=leaf).sum().backward()
                    self.assertEqual(float(leaf.grad.abs().max()), 0)
                    with self.assertRaisesRegex(ttr.Error, f"{row.name}: window_size = -1"):
                        call(-1)
                    with self.assertRaisesRegex(ttr.Error, "k has the shape"):
                        call(0, k=given["k"][..., :2])
            seen.add(row.name)
        self.assertEqual(len(seen), 3, seen)

    def test_sums_that_are_not_divided(self):
        row = next(r for r in cases.rows() if r.name == "parallel_based")
        given = cases.arguments(row)
        q, k, v = (given[n] for n in ("q", "k", "v"))
        for scale in (None, 0.3):
            s = torch.einsum("bthk,bshk->bhts", q, k) * (scale or q.shape[-1] ** -0.5)
            want = torch.einsum("bhts,bshv->bthv", (1 + s + s * s / 2).tril(), v)
            for name in ("parallel_based", "fused_chunk_based"):
                got = getattr(ops, name)(q, k, v, scale=scale, use_norm=False)
                torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
        for scaled in (True, False):
            w = (torch.einsum("bthk,bshk->bhts", q, k) ** 2 / (q.shape[-1] if scaled else 1)).tril()
            want = torch.einsum("bhts,bshv->bthv", w, v)
            got = ops.parallel_rebased(q, k, v, use_scale=scaled, use_normalize=False)
            torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
            got = ops.parallel_rebased(q, k, v, use_scale=scaled, return_both=True)
            torch.testing.assert_close(list(got), [want, w.sum(-1).transpose(1, 2)], rtol=0, atol=1e-12)
        leaves = [t.clone().requires_grad_() for t in (q, k, v)]
        self.assertTrue(torch.autograd.gradcheck(lambda *t: ops.parallel_rebased(*t, use_normalize=False), leaves))

    def test_final_states_are_the_callers(self):
        """They lie in the memory of a state, which no later call may write to while somebody has them."""
        row = next(r for r in cases.rows() if r.name == "fused_recurrent_gated_delta_rule")
        given = cases.arguments(row, time=1)
        kept = []
        for _ in range(12):
            S = ops.fused_recurrent_gated_delta_rule(**given)[1]
            kept.append((S[:, :1], S.clone()))  # a view of it is enough to keep it
            given["initial_state"] = S
        for view, copy in kept:
            torch.testing.assert_close(view, copy[:, :1], rtol=0, atol=0)
        S = given["initial_state"]
        del kept
        before = S.clone()
        o, after = ops.fused_recurrent_gated_delta_rule(**given)
        torch.testing.assert_close(S, before, rtol=0, atol=0)
        after.mul_(0)  # it is the caller's
        again = ops.fused_recurrent_gated_delta_rule(**given)
        torch.testing.assert_close(again[0], o, rtol=0, atol=0)

    def test_types(self):
        row = next(r for r in cases.rows() if r.name == "chunk_gated_delta_rule")
        given = cases.arguments(row, time=17)
        o, S = ops.chunk_gated_delta_rule(**given)
        for dtype, bound in ((torch.float32, 1e-5), (torch.bfloat16, 3e-2), (torch.float16, 3e-3)):
            typed = {n: t.to(dtype) if isinstance(t, torch.Tensor) else t for n, t in given.items()}
            typed["g"] = typed["g"].float()  # gates in float32 beside half tensors, as models have it
            out, state = ops.chunk_gated_delta_rule(**typed)
            self.assertEqual((out.dtype, state.dtype), (dtype, torch.float32))
            self.assertLess(float((out.double() - o).abs().max()), bound)
            leaves = {n: t.requires_grad_() for n, t in typed.items() if isinstance(t, torch.Tensor)}
            out, state = ops.chunk_gated_delta_rule(**{**typed, **leaves})
            out.float().sum().backward()
            for name, leaf in leaves.items():
                self.assertEqual(leaf.grad.dtype, leaf.dtype, name)

    def test_one_form_is_the_other(self):
        pairs = [("chunk_", "fused_recurrent_"), ("chunk_", "fused_chunk_")]
        for row, (a, b) in itertools.product(cases.rows(), pairs):
            other = row.name.replace(a, b)
            if not row.name.startswith(a) or other == row.name or not hasattr(ops, other):
                continue
            twin = next((r for r in cases.rows() if r.name == other), None)
            given = cases.arguments(twin)
            ours = {n: t for n, t in given.items() if n in row.signature.replace(",", " ").replace("=", " ").split()}
            if set(ours) != set(given) or "rwkv7" in other or "linear_attn" in other or "precond" in other:
                continue
            with self.subTest(other):
                torch.testing.assert_close(flat(getattr(ops, row.name)(**ours)), flat(getattr(ops, other)(**given)))


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
                        with self.assertRaisesRegex(ttr.Error, "state_v_first and transpose_state_layout are one option"):
                            function(**first, state_v_first=True, transpose_state_layout=layout)
                    turned += 1
        self.assertGreater(turned, 8)
        self.assertGreater(sized, 10)

    def test_a_gate_from_names_that_are_not_in_the_signature(self):
        A_log = torch.randn(2).double()
        for name in ("chunk_gated_delta_rule", "chunk_kda", "chunk_gdn2", "chunk_precond_kda"):
            given = cases.arguments(next(r for r in cases.rows() if r.name == name))
            function, g = getattr(ops, name), given["g"]
            bias = torch.randn(g.shape[2:]).double().flatten()
            with self.subTest(name):
                got = function(**given, use_gate_in_kernel=True, A_log=A_log, dt_bias=bias)
                torch.testing.assert_close(flat(got), flat(function(**{**given, "g": ops.gate(g, A_log, bias)})), rtol=0, atol=0)
        given = cases.arguments(next(r for r in cases.rows() if r.name == "chunk_gated_oja_rule"))
        long = {n: 3 * t if n in ("q", "k") else t for n, t in given.items()}
        got = ops.chunk_gated_oja_rule(**long, use_qk_l2norm_in_kernel=True)
        want = ops.chunk_gated_oja_rule(**long, use_q_l2norm=True, use_k_l2norm=True)
        torch.testing.assert_close(flat(got), flat(want), rtol=0, atol=0)
        given = cases.arguments(next(r for r in cases.rows() if r.name == "chunk_precond_kda"))
        torch.testing.assert_close(flat(ops.chunk_precond_kda(**given, use_qk_l2norm_in_kernel=True)), flat(ops.chunk_precond_kda(**given)))
        with self.assertRaisesRegex(ttr.Error, "always divided by their lengths"):
            ops.chunk_precond_kda(**given, use_qk_l2norm_in_kernel=False)

    def test_gates_per_channel_take_the_old_name_of_the_layout(self):
        given = cases.arguments(next(r for r in cases.rows() if r.name == "fused_recurrent_gated_delta_rule"))
        given["gv"], given["initial_state"] = -torch.rand_like(given["v"]), given["initial_state"].transpose(-1, -2)
        got, want = (ops.fused_recurrent_gated_delta_rule(**given, **{n: True}) for n in ("transpose_state_layout", "state_v_first"))
        torch.testing.assert_close(flat(got), flat(want), rtol=0, atol=0)


class Others(unittest.TestCase):
    """Against the equations of Mamba and causal-conv1d, written out here."""

    def test_selective_scan(self):
        torch.manual_seed(0)
        u, delta, z = (torch.randn(2, 4, 6).double() for _ in range(3))
        A, D, bias = -torch.rand(4, 3).double(), torch.randn(4).double(), torch.randn(4).double()
        B, C = torch.randn(2, 2, 3, 6).double(), torch.randn(2, 2, 3, 6).double()
        dt = torch.nn.functional.softplus(delta + bias[:, None])
        h, ys = torch.zeros(2, 4, 3).double(), []
        for t in range(6):
            b, c = (x[..., t].repeat_interleave(2, 1) for x in (B, C))
            h = torch.exp(dt[:, :, t, None] * A) * h + dt[:, :, t, None] * b * u[:, :, t, None]
            ys.append(((h * c).sum(-1) + D * u[:, :, t]) * torch.nn.functional.silu(z[:, :, t]))
        y, last = ops.selective_scan_fn(u, delta, A, B, C, D, z, bias, True, True)
        torch.testing.assert_close(y, torch.stack(ys, 2))
        torch.testing.assert_close(last, h)
        # The same, token by token, with the state updated in place.
        state = torch.zeros(2, 4, 3).double()
        for t in range(6):
            step = ops.selective_state_update(state, u[..., t], delta[..., t], A, B[..., t], C[..., t], D, z[..., t], bias, True)
            torch.testing.assert_close(step, ys[t])
        torch.testing.assert_close(state, h)

    def test_chunk_scan(self):
        torch.manual_seed(1)
        x, dt = torch.randn(2, 6, 4, 3).double(), torch.randn(2, 6, 4).double()
        A, D, bias = -torch.rand(4).double(), torch.randn(4).double(), torch.randn(4).double()
        B, C, z = torch.randn(2, 6, 2, 5).double(), torch.randn(2, 6, 2, 5).double(), torch.randn(2, 6, 4, 3).double()
        seq = torch.tensor([[0, 0, 1, 1, 1, 2], [0, 0, 0, 0, 0, 0]])

        def literal(reset):
            step = torch.nn.functional.softplus(dt + bias).clamp(0.1, 0.9)
            h, ys = torch.zeros(2, 4, 3, 5).double(), []
            for t in range(6):
                if reset and t > 0:
                    h = h * (seq[:, t] == seq[:, t - 1]).double()[:, None, None, None]
                b, c = (s[:, t].repeat_interleave(2, 1) for s in (B, C))
                decay = torch.exp(step[:, t] * A)[..., None, None]
                h = decay * h + (step[:, t, :, None] * x[:, t])[..., None] * b[:, :, None]
                ys.append(((h * c[:, :, None]).sum(-1) + D[:, None] * x[:, t]) * torch.nn.functional.silu(z[:, t]))
            return torch.stack(ys, 1), h

        for reset in (False, True):
            y, h = ops.mamba_chunk_scan_combined(
                x, dt, A, B, C, 64, D, z, bias, None, seq if reset else None, None, True, (0.1, 0.9), True
            )
            want_y, want_h = literal(reset)
            torch.testing.assert_close(y, want_y)
            torch.testing.assert_close(h, want_h)
        packed = [t.reshape(1, 12, *t.shape[2:]) for t in (x, dt, B, C)]
        bounds = torch.tensor([0, 6, 12])
        y, states = ops.mamba_chunk_scan_combined(
            packed[0], packed[1], A, packed[2], packed[3], 64, D, cu_seqlens=bounds, dt_softplus=True, return_varlen_states=True
        )
        self.assertEqual(tuple(states.shape), (2, 4, 3, 5))
        alone = ops.mamba_chunk_scan_combined(x, dt, A, B, C, 64, D, dt_softplus=True)
        torch.testing.assert_close(y.reshape(alone.shape), alone)

    def test_convolution(self):
        torch.manual_seed(2)
        x, w, b = torch.randn(2, 3, 8).double(), torch.randn(3, 4).double(), torch.randn(3).double()
        start = torch.randn(2, 3, 3).double()

        def literal(x, start):
            return torch.nn.functional.silu(torch.nn.functional.conv1d(torch.cat([start, x], 2), w[:, None], b, groups=3))

        y, final = ops.causal_conv1d_fn(x, w, b, None, start, True, None, "silu")
        torch.testing.assert_close(y, literal(x, start))
        self.assertTrue(ops.causal_conv1d_fn(x, w, b).is_contiguous())  # [B, D, T] as x is, and not as a layer has it
        for time, width in itertools.product((1, 2, 5, 17, 40), (1, 2, 4, 7)):
            long, taps = torch.randn(2, 3, time).double(), torch.randn(3, width).double()
            want = torch.nn.functional.conv1d(long, taps[:, None], padding=width - 1, groups=3)[..., :time]
            torch.testing.assert_close(ops.causal_conv1d_fn(long, taps), want)
        torch.testing.assert_close(final, x[:, :, -3:])
        seq = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 2, 2]])
        packed = ops.causal_conv1d_fn(x, w, b, seq, activation="silu")
        none = torch.zeros(1, 3, 3).double()
        for row, (begin, end) in ((0, (3, 8)), (1, (1, 6)), (1, (6, 8))):
            torch.testing.assert_close(packed[row, :, begin:end], literal(x[row : row + 1, :, begin:end], none)[0])
        for length in (3, 4, 6):  # steps, with states of several lengths and as a ring
            state = torch.zeros(2, 3, length).double()
            ring, seen = state.clone(), torch.zeros(2, dtype=torch.int32)
            want = literal(x, torch.zeros(2, 3, 3).double())
            for t in range(8):
                torch.testing.assert_close(ops.causal_conv1d_update(x[..., t], state, w, b, "silu"), want[..., t])
                torch.testing.assert_close(ops.causal_conv1d_update(x[..., t], ring, w, b, "silu", seen), want[..., t])
                seen += 1
            torch.testing.assert_close(state, x[..., -length:])
        pool = torch.randn(5, 3, 3).double()
        before = pool.clone()
        ops.causal_conv1d_update(x[..., 0], pool, w, b, None, None, torch.tensor([3, 1], dtype=torch.int32))
        torch.testing.assert_close(pool[[0, 2, 4]], before[[0, 2, 4]])
        torch.testing.assert_close(pool[3, :, -1], x[0, :, 0])

    def test_padded_rows_have_no_state(self):
        """Rows with a negative index: their output is 0, no state changes, and the other rows are as without them."""
        torch.manual_seed(3)

        def draw(*shape):
            return torch.randn(*shape, dtype=torch.float64)

        weight, A, D = draw(3, 4), -torch.rand(3, 5).double(), draw(3)
        seen = torch.tensor([4, 0, 1, 7], dtype=torch.int32)

        def conv(state, x, indices, seen):
            return ops.causal_conv1d_update(x, state, weight.to(x.dtype), None, "silu", seen, indices)

        def ssm(state, x, indices, seen):
            side = torch.stack([x[:, 0] + n for n in range(5)], 1)  # of the row alone
            return ops.selective_state_update(state, x, 0.1 * x, A, side, 2 * side, D, x, D, True, indices)

        steps = [
            ("conv", lambda *t: conv(*t[:3], None), draw(6, 3, 4), draw(4, 3)),
            ("several tokens", lambda *t: conv(*t[:3], None), draw(6, 3, 3), draw(4, 3, 5)),
            ("ring", conv, draw(6, 3, 5), draw(4, 3, 2)),
            ("ssm", ssm, draw(6, 3, 5), draw(4, 3)),
            ("bf16", lambda *t: conv(*t[:3], None), draw(6, 3, 4).bfloat16(), draw(4, 3).bfloat16()),
        ]
        for (name, step, state, x), kind in itertools.product(steps, (torch.int32, torch.int64)):
            for given in ([5, -1, 0, -1], [-1, -1, -1, 2], [-7, -1, -1, -1], [1, 5, 3, 0]):
                with self.subTest(name, given=given):
                    indices, pool = torch.tensor(given, dtype=kind), state.clone()
                    y = step(pool, x, indices, seen)
                    want_y, want_pool = torch.zeros_like(x), state.clone()
                    for row, place in enumerate(given):
                        if place >= 0:
                            alone = state[place : place + 1].clone()
                            want_y[row] = step(alone, x[row : row + 1], None, seen[row : row + 1])[0]
                            want_pool[place] = alone[0]
                    torch.testing.assert_close([y, pool], [want_y, want_pool], rtol=0, atol=0)
            for given, sentence in (
                ([5, -1, 0, 5], "is 5 for the rows 0 and 3 of x"),
                ([6, -1, 0, 1], "is 6 for row 0 of x; there are 6 states, 0 to 5"),
                ([0, 1, 2], r"is int(32|64) \[3\]; it is int32 or int64 \[4\]"),
                ([0.0, 1.0, 2.0, 3.0], r"is float32 \[4\]"),
            ):
                indices, pool = torch.tensor(given, dtype=None if isinstance(given[0], float) else kind), state.clone()
                with self.subTest(name, given=given), self.assertRaisesRegex(ttr.Error, sentence):
                    step(pool, x, indices, seen)
                torch.testing.assert_close(pool, state, rtol=0, atol=0)
        pool, x, taken = steps[0][2], steps[0][3], torch.tensor([2, -1, 4, -1])  # gradients leave padded rows out
        with forward_ad.dual_level(), self.assertRaisesRegex(ttr.Error, "carries a forward derivative"):
            conv(pool.clone(), forward_ad.make_dual(x, x), taken, None)
        run = lambda state, x: conv(state.clone(), x, taken, None)  # noqa: E731
        self.assertTrue(gradcheck(run, (pool.clone().requires_grad_(), x.clone().requires_grad_())))

    def test_padded_tokens_of_a_packed_convolution(self):
        torch.manual_seed(4)
        x, w, b = torch.randn(2, 3, 8).double(), torch.randn(3, 4).double(), torch.randn(3).double()
        seq = torch.tensor([[0, 0, 0, 1, 1, 1, -1, -1], [-1, 2, 2, -1, -1, 3, 3, 3]])
        y = ops.causal_conv1d_fn(x, w, b, seq, activation="silu")
        want = torch.zeros_like(x)
        for row, begin, end in ((0, 0, 3), (0, 3, 6), (1, 1, 3), (1, 5, 8)):
            want[row, :, begin:end] = ops.causal_conv1d_fn(x[row : row + 1, :, begin:end], w, b, activation="silu")[0]
        torch.testing.assert_close(y, want, rtol=0, atol=0)

    def test_log_linear_gradient_and_fake_shapes(self):
        for row in cases.rows():
            given = cases.arguments(row, batch=1, states=False)
            with self.subTest(row.name):
                seen = []
                real = _call.run_forward

                def spy(spec, tensors, bounds):
                    results = real(spec, tensors, bounds)
                    fake = _registered.fake_forward(spec, tensors, bounds)
                    again = _call.Spec.read(spec.text())
                    self.assertEqual(again, spec)
                    seen.append([(tuple(r.shape), r.dtype) for r in results] == [(tuple(f.shape), f.dtype) for f in fake])
                    return results

                _call.run_forward = spy
                try:
                    getattr(ops, row.name)(**given)
                finally:
                    _call.run_forward = real
                self.assertTrue(seen and all(seen))


class Operator:
    """As much of an operator of torch.library 2.4 as the registration uses, for a torch that has none."""

    made = {}

    def __init__(self, name, function, mutates_args, schema):
        self.function, self.schema = function, schema
        Operator.made[name] = self

    def __call__(self, *arguments):
        return self.function(*arguments)

    def register_fake(self, fake):
        self.fake = fake


class Registration(unittest.TestCase):
    """The code for torch 2.4 and above, on a stand-in for torch.library; torch.compile itself is not here to be run."""

    def test_forward_fake_and_gradient(self):
        import importlib
        import types

        kept = torch.library, getattr(torch, "compiler", None)
        autograd = {}
        library = types.SimpleNamespace(
            custom_op=Operator, register_autograd=lambda name, f, setup_context: autograd.update({name: (f, setup_context)})
        )
        try:
            torch.library, torch.compiler = library, types.SimpleNamespace(is_compiling=lambda: True)
            importlib.reload(_registered)
            self.assertTrue(_call.compiled.compiling())
            row = next(r for r in cases.rows() if r.name == "chunk_gated_delta_rule")
            given = cases.arguments(row)
            through = ops.chunk_gated_delta_rule(**given)
            names = list(given)
            spec = _call.Spec("gated-deltanet", (), ("q", "k", "v", "g", "beta"), ("S",), ("o",), ("S",), 3**-0.5)
            tensors = [given[n].clone().requires_grad_() for n in ("q", "k", "v", "g", "beta", "initial_state")]
            fake = Operator.made["ttr::forward"].fake(tensors, spec.text(), [])
            self.assertEqual([t.shape for t in fake], [t.shape for t in through])
            backward, setup = autograd["ttr::forward"]
            ctx = types.SimpleNamespace(save_for_backward=lambda *t: setattr(ctx, "saved_tensors", t))
            setup(ctx, (tensors, spec.text(), []), through)
            d_o = torch.randn_like(through[0])
            gradients, *rest = backward(ctx, [d_o, None])
            self.assertEqual(rest, [None, None])
            shapes = Operator.made["ttr::backward"].fake(tensors, [d_o], spec.text(), [], [True] * 6)
            self.assertEqual([t.shape for t in shapes], [t.shape for t in gradients])
        finally:
            torch.library = kept[0]
            if kept[1] is None:
                del torch.compiler
            else:
                torch.compiler = kept[1]
            _call.compiled.compiling, _call.compiled.forward = staticmethod(lambda: False), None
            importlib.reload(_registered)
        o, S = ops.chunk_gated_delta_rule(**{n: given[n] for n in names})
        torch.testing.assert_close(through[0], o, rtol=0, atol=0)
        leaves = {n: given[n].clone().requires_grad_() for n in ("q", "k", "v", "g", "beta", "initial_state")}
        ops.chunk_gated_delta_rule(**{**given, **leaves})[0].backward(d_o)
        for got, leaf in zip(gradients, leaves.values()):
            torch.testing.assert_close(got, leaf.grad, rtol=0, atol=1e-12)


class Refusals(unittest.TestCase):
    def setUp(self):
        row = next(r for r in cases.rows() if r.name == "chunk_gated_delta_rule")
        self.given = cases.arguments(row)

    def refused(self, sentence, kind=ttr.Error, **change):
        with self.assertRaisesRegex(kind, sentence):
            ops.chunk_gated_delta_rule(**{**self.given, **change})

    def test_shapes_types_devices(self):
        g = self.given
        self.refused("k has the shape", k=g["k"][..., :2])
        self.refused("beta has the shape", beta=g["beta"][..., None])
        self.refused("initial state S has the shape", initial_state=g["initial_state"][:, :1])
        self.refused("float32", q=g["q"].float())
        self.refused("torch.int64", q=g["q"].long())
        self.refused("is a list", TypeError, q=[1.0])
        self.refused("meta tensor", q=g["q"].to("meta"))
        self.refused("to_dense", q=g["q"].to_sparse())
        self.refused("in a batch of 1", cu_seqlens=torch.tensor([0, 5]))
        self.refused("starts at 0", cu_seqlens=torch.tensor([1, 5]))
        self.refused("int32 or int64", cu_seqlens=torch.tensor([0.0, 5.0]))
        self.refused("head_first is gone", head_first=True)
        self.refused("cp_context", cp_context=object())
        one = {n: t[:1] if isinstance(t, torch.Tensor) else t for n, t in g.items()}
        with self.assertRaisesRegex(ttr.Error, "as many initial states"):
            ops.chunk_gated_delta_rule(**one, cu_seqlens=torch.tensor([0, 2, 5]))
        with self.assertRaisesRegex(AttributeError, "solve no regression"):
            ops.chunk_titans_linear  # noqa: B018

    def test_no_gradient(self):
        with self.assertRaisesRegex(ttr.Error, "has no gradient"):
            ttr.torch.apply(
                "rwkv-4",
                {n: torch.randn(s) for n, s in (("w", (1, 2)), ("u", (1, 2)), ("k", (1, 3, 1, 2)), ("v", (1, 3, 1, 2)))},
                initial={"e": torch.zeros(1, 1, 2, requires_grad=True)},
            )

    def test_zero_copy(self):
        q = self.given["q"]
        self.assertEqual(_call.view_of(q).data, q.data_ptr())
        turned = q.transpose(1, 2)
        self.assertEqual(_call.view_of(turned).data, q.data_ptr())
        self.assertEqual(_call.view_of(turned).strides, tuple(turned.stride()))
        bfloat = ttr._arrays.view(q.bfloat16())
        self.assertEqual(bfloat.dtype, "bfloat16")  # by DLPack, which numpy cannot


if __name__ == "__main__":
    unittest.main()
