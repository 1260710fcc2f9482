"""Operations of ttr.torch: gradients, packed sequences, options, refusals; generated from their table."""

import inspect
import itertools
import unittest
import unittest.mock

import torch
from torch.autograd import gradcheck, gradgradcheck

import cases
import ttr
import ttr.torch
from cases import flat
from ttr.torch import _call, _mamba, _registered, ops

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


def scan_literally(kind, softplus, u, delta, A, B, C, D=None, z=None, delta_bias=None):
    """A selective scan by its equations in `kind`; in float32 as selective_scan_ref: silu(z) is of the type of z."""
    batch, channels, time = u.shape

    def each(t):  # [B, D, N, T]
        t = t.to(kind)
        if t.dim() == 2:
            return t[None, :, :, None].expand(batch, -1, -1, time)
        t = t if t.dim() == 4 else t[:, None]
        return t.repeat_interleave(channels // t.shape[1], 1)

    x, dt, B, C = u.to(kind), delta.to(kind), each(B), each(C)
    dt = dt + delta_bias.to(kind)[:, None] if delta_bias is not None else dt
    dt = torch.nn.functional.softplus(dt) if softplus else dt
    gate, write = torch.exp(dt[:, :, None] * A.to(kind)[:, :, None]), (dt * x)[:, :, None] * B
    h, rows = torch.zeros_like(write[..., 0]), []
    for t in range(time):
        h = gate[..., t] * h + write[..., t]
        rows.append((h * C[..., t]).sum(-1))
    y = torch.stack(rows, 2)
    y = y + D.to(kind)[:, None] * x if D is not None else y
    return y * torch.nn.functional.silu(z if kind == torch.float32 else z.to(kind)) if z is not None else y


def scan_cases(time, kind):
    """What the authors' tests of selective_scan_fn go through: constant B and C, groups, D, z, the bias, softplus."""
    sides = [(b, c, 1) for b in (False, True) for c in (False, True)] + [(True, True, 2)]
    for (own_b, own_c, groups), D, z, bias, softplus in itertools.product(sides, *[(False, True)] * 4):
        torch.manual_seed(0)

        def side(own, groups=groups):
            shape = (2, 8, time) if groups == 1 else (2, groups, 8, time)
            return torch.randn(shape).to(kind) if own else torch.randn(4, 8)

        given = {"A": -0.5 * torch.rand(4, 8), "B": side(own_b), "C": side(own_c)}
        given.update(D=torch.randn(4) if D else None, z=torch.randn(2, 4, time).to(kind) if z else None)
        given.update(delta_bias=0.5 * torch.rand(4) if bias else None, u=torch.randn(2, 4, time).to(kind))
        given["delta"] = (0.5 * torch.rand(2, 4, time)).to(kind)
        yield {n: t for n, t in given.items() if t is not None}, softplus, torch.randn(2, 4, time).to(kind)


class Others(unittest.TestCase):
    """Against the equations of Mamba and causal-conv1d, written out here."""

    def test_gradients_of_a_selective_scan_in_half_are_those_of_double_rounded_once(self):
        half, outside = torch.bfloat16, {"ours": 0, "theirs": 0}
        for given, softplus, d in scan_cases(130, half):

            def gradients(function, kind=None, given=given, d=d):
                leaves = {n: (t.to(kind) if kind else t.clone()).requires_grad_() for n, t in given.items()}
                function(**leaves).backward(d.to(kind) if kind else d)
                return {n: t.grad for n, t in leaves.items()}

            exact = gradients(lambda **t: scan_literally(torch.float64, softplus, **t), torch.float64)  # noqa: B023
            ours = gradients(lambda **t: ops.selective_scan_fn(**t, delta_softplus=softplus))  # noqa: B023
            theirs = gradients(lambda **t: scan_literally(torch.float32, softplus, **t).to(half))  # noqa: B023
            gated, missed = "z" in given, set()
            for name, t in exact.items():
                if given[name].dtype == half:
                    self.assertLess(float((ours[name] != t.to(half)).float().mean()), 0.005, name)
                    differ = float((theirs[name] != t.to(half)).float().mean())
                    self.assertTrue(differ > 0.2 if gated else differ < 0.005, (name, differ))
                else:
                    self.assertLess(float((ours[name] - t).abs().max() / t.abs().max()), 1e-5, name)
                # The tolerance of the authors' tests.
                r, a = (3e-2, 5e-2) if gated or (name in "BC" and t.dim() > 2) else (1e-3, 1e-3)
                r, a = {"u": (6e-2, 0.1), "delta": (0.15, 0.5), "A": (r, 5 * a)}.get(name, (r, a))
                missed |= {who for who, found in (("ours", ours), ("theirs", theirs))
                           if not torch.allclose(found[name].double(), t, rtol=r, atol=a)}  # fmt: skip
            for who in missed:
                outside[who] += 1
        self.assertEqual(outside["ours"], 0)
        self.assertGreater(outside["theirs"], 0)  # it rounds silu(z), and what flows back to it, to a half type

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
        torch.testing.assert_close(y, scan_literally(torch.float64, True, u, delta, A, B, C, D, z, bias))
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

    def test_a_step_of_the_convolution_is_its_definition(self):
        """One token at a time, without a plan: states of all lengths, types and layouts, with gradients."""

        def literal(x, state, w, b):  # as modelling files of Hugging Face have it
            both = torch.cat([state, x], -1)
            y = torch.nn.functional.conv1d(both, w[:, None], b, groups=len(w))[..., -1:]
            return torch.nn.functional.silu(y), both[..., 1:]

        torch.manual_seed(3)
        for width, more, bias, whole in itertools.product((1, 2, 3, 4, 7), (-1, 0, 2), (False, True), (False, True)):
            x, w, b = torch.randn(4, 2, 5, 1), torch.randn(5, width), torch.randn(5) if bias else None
            start = torch.randn(2, 5, width + more) if whole else torch.randn(2, width + more, 5).transpose(1, 2)
            for kind, close in ((torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
                with self.subTest(width=width, length=width + more, bias=bias, whole=whole, kind=kind):
                    given = [t.to(kind) if t is not None else None for t in (x, start.clone(), w, b)]
                    exact = [t.double() if t is not None else None for t in given]
                    x_, state, *taps = given
                    tokens, kept, *exact_taps = exact
                    with unittest.mock.patch.object(_mamba, "apply", side_effect=AssertionError("a plan was made")):
                        for t in range(4):
                            want, kept = literal(tokens[t], kept, *exact_taps)
                            before = state.clone()
                            y = ops.causal_conv1d_update(x_[t], state, *taps, "silu")
                            self.assertEqual((y.dtype, y.shape), (kind, want.shape))
                            torch.testing.assert_close(y.double(), want, rtol=close, atol=close)
                            self.assertTrue(torch.equal(state.double(), kept))
                            # The same to the bit from states by index.
                            pool, taken = torch.cat([before, before[:1]]), torch.tensor([2, 1])
                            again = ops.causal_conv1d_update(x_[t], pool, *taps, "silu", None, taken)
                            self.assertTrue(torch.equal(again, y) and torch.equal(pool[[2, 1]], state))
            if more == 2:
                continue
            leaves = [t.double().requires_grad_() for t in (x, w, *([b] if bias else []))]
            sums = []
            for step in (literal, None):
                state, total = start.double().clone(), 0
                for t in range(4):
                    if step is None:
                        y = ops.causal_conv1d_update(leaves[0][t], state, *leaves[1:], activation="silu")
                    else:
                        y, state = step(leaves[0][t], state, leaves[1], leaves[2] if bias else None)
                    total = total + (y * y).sum()
                sums.append(torch.autograd.grad(total, leaves))
            torch.testing.assert_close(sums[1], sums[0])

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
