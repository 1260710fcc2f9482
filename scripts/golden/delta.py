"""Memories that correct themselves: the delta rule, its gates, preconditioners and momentum, and adaptive filters."""
from __future__ import annotations

import math
from typing import Callable

import numpy as np

from draws import Draws, exact
from pieces import ask, memory_layer, outer, over_time, per_head, per_row, squared_length, state, unit
from registry import Arrays, Inputs, Outputs, operation
from tape import Tensor, absolute, exp, expm1, log, repeat_heads, solve, swap, total

CASES = ('a_B2_T7_H1_K3_V5', 'b_B1_T72_H2_K16_V24_h0')
SMALLER = ('a_B2_T7_H1_K3_V5', 'b_B1_T72_H2_K12_V16_h0')
SHORTER = ('a_B2_T7_H1_K3_V5', 'b_B1_T64_H2_K8_V12_h0')
FILTERS = ('a_B2_T7_H1_K3_V5', 'b_B1_T64_H2_K8_V10_h0_HV4')


def draw_unit_keys(r: Draws) -> Arrays:
    """Unit q and k, normal v."""
    return dict(q=r.unit('B T H K'), k=r.unit('B T H K'), v=r.normal('B T H V'))


def corrected(S: Tensor, key: Tensor, value: Tensor, rate: Tensor) -> Tensor:
    """S + rate k (v - S^T k)^T, with a rate per head."""
    return S + outer(key, rate[..., None] * (value - ask(S, key)))


@operation(CASES, lambda r: dict(draw_unit_keys(r), beta=r.sigmoid('B T H'), h0=state(r, std=0.5)), first_seed=1000)
def delta_rule(x: Inputs) -> Outputs:
    """u=beta(v-S^T k); S=S+k u^T; o=S^T(scale q)

    scale: K^-0.5
    norm: q,k given unit-norm (layer l2-normalises)
    reference: flash-linear-attention bc3b101d
    note: case c: beta in (0,2) (allow_neg_eigval)
    """
    return memory_layer(x, lambda S, t: corrected(S, x.k[:, t], x.v[:, t], x.beta[:, t]), x.q, x.v,
                        x.q.shape[-1] ** -0.5)


@operation(CASES, lambda r: dict(draw_unit_keys(r), beta=r.sigmoid('B T H'), g=r.log_gate('B T H', mean=1.0),
                                 h0=state(r, std=0.5)), first_seed=1000)
def gated_delta_rule(x: Inputs) -> Outputs:
    """St=exp(g)S; u=beta(v-St^T k); S=St+k u^T; o=S^T(scale q)

    scale: K^-0.5
    gate: g [B,T,H] natural log
    norm: q,k given unit-norm
    reference: flash-linear-attention bc3b101d
    """
    def update(S: Tensor, t: int) -> Tensor:
        return corrected(per_head(exp(x.g[:, t])) * S, x.k[:, t], x.v[:, t], x.beta[:, t])
    return memory_layer(x, update, x.q, x.v, x.q.shape[-1] ** -0.5)


def householder_layer(x: Inputs, count: int) -> Outputs:
    """`count` corrections a token, after the decay if there is one."""
    def update(S: Tensor, t: int) -> Tensor:
        if 'g' in x:
            S = per_head(exp(x.g[:, t])) * S
        for j in range(t * count, (t + 1) * count):
            S = corrected(S, x.k[:, j], x.v[:, j], x.beta[:, j])
        return S
    return memory_layer(x, update, x.q, x.v, x.q.shape[-1] ** -0.5)


@operation({'a_B2_T7_H1_K3_V5_n2': {'num_householder': 2}, 'b_B1_T72_H2_K12_V16_h0_n2': {'num_householder': 2}},
           lambda r: dict(q=r.unit('B T H K'), k=r.unit('B T*n H K'), v=r.normal('B T*n H V'), g=r.log_gate('B T H'),
                          beta=r.sigmoid('B T*n H', 2.0), h0=state(r, std=0.5)), first_seed=1000)
def gated_delta_product(x: Inputs) -> Outputs:
    """S=exp(g_t)S; for j<n: S=S+beta_tj k_tj (v_tj-S^T k_tj)^T; o=S^T(scale q)

    scale: K^-0.5 (naive applies none; q was pre-scaled here so that the file follows the chunk kernel)
    norm: unit q,k; beta in (0,2)
    layout: k,v,beta have time length T*n, index t*n+j
    reference: flash-linear-attention bc3b101d
    """
    return householder_layer(x, x.option('num_householder'))


@operation({'a_B2_T7_H1_K3_V5_n2': {'n': 2}, 'b_B1_T48_H2_K8_V12_h0_n3': {'n': 3}},
           lambda r: dict(q=r.unit('B T H K'), k=r.unit('B T*n H K'), v=r.normal('B T*n H V'),
                          beta=r.sigmoid('B T*n H', 2.0), h0=state(r)))
def deltaproduct(x: Inputs) -> Outputs:
    """for j<n: S=S+beta_tj k_tj (v_tj-S^T k_tj)^T; o=S^T(scale q)

    scale: K^-0.5
    norm: unit q,k; beta in (0,2)
    layout: k,v,beta have time length T*n, index t*n+j
    reference: DeltaProduct (Siems et al. 2025), no gate
    """
    return householder_layer(x, x.option('n'))


@operation(('a_B2_T7_H1_K3_V5', 'b_B1_T72_H1_K16_V24_h0_HV2'),
           lambda r: dict(q=r.unit('B T H K'), k=r.unit('B T H K'), v=r.normal('B T HV V'),
                          g=-r.softplus('B T HV K', mean=-1.0), beta=r.sigmoid('B T HV'),
                          h0=state(r, 'B HV K V', 0.5)), first_seed=1000)
def kda(x: Inputs) -> Outputs:
    """St=diag(exp g)S; S=St+beta k (v-St^T k)^T; o=S^T(scale q)

    scale: K^-0.5
    gate: g [B,T,HV,K]; case c has strong gates (exp(A)=4)
    norm: unit q,k
    layout: value head hv uses q/k head hv//(HV/H)
    reference: flash-linear-attention bc3b101d
    """
    heads = x.v.shape[2]
    q, k = repeat_heads(x.q, heads), repeat_heads(x.k, heads)

    def update(S: Tensor, t: int) -> Tensor:
        return corrected(per_row(exp(x.g[:, t])) * S, k[:, t], x.v[:, t], x.beta[:, t])
    return memory_layer(x, update, q, x.v, q.shape[-1] ** -0.5)


@operation(SMALLER, lambda r: dict(draw_unit_keys(r), g=-r.softplus('B T H K', mean=-1.0), b=r.sigmoid('B T H K'),
                                   w=r.sigmoid('B T H V'), h0=state(r, std=0.5)), first_seed=1000)
def gdn2(x: Inputs) -> Outputs:
    """St=diag(exp g)S; S=St+k (w*v-St^T(b*k))^T; o=S^T(scale q)

    scale: K^-0.5
    gate: g [B,T,H,K], b [B,T,H,K] erase, w [B,T,H,V] write
    reference: flash-linear-attention bc3b101d
    """
    def update(S: Tensor, t: int) -> Tensor:
        S = per_row(exp(x.g[:, t])) * S
        return S + outer(x.k[:, t], x.w[:, t] * x.v[:, t] - ask(S, x.b[:, t] * x.k[:, t]))
    return memory_layer(x, update, x.q, x.v, x.q.shape[-1] ** -0.5)


def draw_comba(r: Draws) -> dict:
    drawn = draw_unit_keys(r)
    weight = r.sigmoid('H')[:, None]
    return dict(drawn, p=exact(drawn['k'] * weight), beta=r.sigmoid('B T H'), g=r.log_gate('B T H', mean=1.0),
                h0=state(r, std=0.5))


@operation(SMALLER, draw_comba)
def comba(x: Inputs) -> Outputs:
    """u=beta(v-S_{t-1}^T p)  (read BEFORE decay); S=exp(g)S_{t-1}+k u^T; o=S^T(scale q)

    scale: K^-0.5
    source: equation of the fused_recurrent kernel, equal to naive_chunk_comba; naive_recurrent_comba decays before
      the read and is inconsistent with both
    reference: flash-linear-attention bc3b101d
    """
    def update(S: Tensor, t: int) -> Tensor:
        u = x.beta[:, t][..., None] * (x.v[:, t] - ask(S, x.p[:, t]))
        return per_head(exp(x.g[:, t])) * S + outer(x.k[:, t], u)
    return memory_layer(x, update, x.q, x.v, x.q.shape[-1] ** -0.5)


@operation(SMALLER, lambda r: dict(q=r.unit('B T H K'), k=r.unit('B T H K'), v=r.unit('B T H V'),
                                   gv=-r.softplus('B T H V', mean=-1.0), beta=r.sigmoid('B T H'),
                                   h0=state(r, std=0.5)), first_seed=1000)
def gated_oja_rule(x: Inputs) -> Outputs:
    """St=S diag(exp gv); S=St+beta(k-St v)v^T; o=S^T(scale q)

    scale: K^-0.5
    gate: gv [B,T,H,V]
    source: equation of the fused_recurrent kernel (no naive file)
    reference: flash-linear-attention bc3b101d
    """
    def update(S: Tensor, t: int) -> Tensor:
        S = S * exp(x.gv[:, t])[..., None, :]
        error = x.k[:, t] - ask(S.T, x.v[:, t])
        return S + outer(x.beta[:, t][..., None] * error, x.v[:, t])
    return memory_layer(x, update, x.q, x.v, x.q.shape[-1] ** -0.5)


def low_rank_layer(x: Inputs, query: Tensor, key: Tensor, scale: float, read: Tensor, write: Tensor,
                   log_decay: Callable[[int], Tensor]) -> Outputs:
    """S = diag(exp g) S + b (a^T S_{t-1}) + k v^T: a reads the state before its decay."""
    def update(S: Tensor, t: int) -> Tensor:
        return (per_row(exp(log_decay(t))) * S + outer(write[:, t], ask(S, read[:, t]))
                + outer(key[:, t], x.v[:, t]))
    return memory_layer(x, update, query, x.v, scale)


def draw_low_rank(r: Draws) -> dict:
    a = r.unit('B T H K')
    b = exact(-a * r.sigmoid('B T H 1'))
    return dict(q=r.normal('B T H K'), k=r.normal('B T H K', 0.4), v=r.normal('B T H V'), a=a, b=b)


@operation(SMALLER, lambda r: dict(draw_low_rank(r), gk=r.log_gate('B T H K', mean=1.5), h0=state(r, std=0.5)))
def dplr(x: Inputs) -> Outputs:
    """S=diag(exp gk)S_{t-1}+b(a^T S_{t-1})+k v^T (a reads the UNDECAYED state); o=S^T(scale q)

    scale: K^-0.5
    reference: flash-linear-attention bc3b101d
    """
    return low_rank_layer(x, x.q, x.k, x.q.shape[-1] ** -0.5, x.a, x.b, lambda t: x.gk[:, t])


@operation(SMALLER, lambda r: dict(draw_low_rank(r), h0=state(r, std=0.5)))
def iplr(x: Inputs) -> Outputs:
    """S=(I+b a^T)S+k v^T; o=S^T(scale q)

    scale: K^-0.5
    reference: flash-linear-attention bc3b101d
    """
    none = Tensor(np.zeros(x.k.shape[-1]))
    return low_rank_layer(x, x.q, x.k, x.q.shape[-1] ** -0.5, x.a, x.b, lambda t: none)


def draw_rwkv7(r: Draws) -> dict:
    return dict(r=r.normal('B T H K'), w=exact(-r.sigmoid('B T H K', math.exp(-0.5))), k_raw=r.normal('B T H K'),
                v=r.normal('B T H V'), a=r.sigmoid('B T H K'), k_k=r.normal('H K', 0.05, 0.7),
                k_a=r.normal('H K', 0.05, 1.0), r_k=r.normal('H K', 0.2), h0=state(r, std=0.5))


@operation(SMALLER, draw_rwkv7)
def rwkv7(x: Inputs) -> Outputs:
    """kk=normalize(k_raw*k_k) (x/max(|x|,1e-12)); k=k_raw*(1+(a-1)*k_a); S=diag(exp w)S-(kk*a)(kk^T S_{t-1})+k v^T;
    o=S^T r; o_bonus=(sum_d r*k*r_k) v (added after GroupNorm in the layer)

    scale: 1.0
    gate: w=-exp(-0.5)*sigmoid(.)
    reference: flash-linear-attention bc3b101d
    """
    kk = unit(x.k_raw * x.k_k)
    k = x.k_raw * (1.0 + (x.a - 1.0) * x.k_a)
    made = low_rank_layer(x, x.r, k, 1.0, kk, -kk * x.a, lambda t: x.w[:, t])
    return dict(made, o_bonus=total(x.r * k * x.r_k, -1, keep=True) * x.v)


def preconditioned(x: Inputs, q: Tensor, k: Tensor, log_decay: Callable[[int], Tensor]) -> Outputs:
    """A = exp(g_atk) A + beta_atk k^2; r = log(A + 1e-6) - c; M = 1.5^(-r / (1 + |r|)); k M writes."""
    B, T, H, K = q.shape

    def step(both: tuple, t: int) -> tuple:
        S, A = both
        A = exp(x.g_atk[:, t])[..., None] * A + x.beta_atk[:, t][..., None] * k[:, t] * k[:, t]
        r = log(A + 1e-6) - x.log_atk_scale[:, None]
        M = exp(-math.log(1.5) * r / (1.0 + absolute(r)))
        S = exp(log_decay(t)) * S
        S = S + outer(k[:, t] * M, x.beta[:, t][..., None] * (x.v[:, t] - ask(S, k[:, t])))
        return (S, A), ask(S, q[:, t]) * K ** -0.5
    (S, A), o = over_time(T, (x.get('h0', (B, H, K, x.v.shape[-1])), x.get('A0', (B, H, K))), step)
    return {'o': o, 'ht': S, 'At': A}


@operation(SMALLER, lambda r: dict(q=r.normal('B T H K'), k=r.normal('B T H K'), v=r.normal('B T H V'),
                                   g_atk=r.log_gate('B T H', mean=1.0), g=r.log_gate('B T H', mean=1.0),
                                   beta_atk=r.sigmoid('B T H'), beta=r.sigmoid('B T H'),
                                   log_atk_scale=r.normal('H', 0.2, -0.2), h0=state(r, std=0.5),
                                   A0=r.uniform('B H K') if 'h0' in r.sizes else None), first_seed=1000)
def precond_gated_delta_rule(x: Inputs) -> Outputs:
    """q,k<-x/max(|x|,1e-12); A=exp(g_atk)A+beta_atk k^2; r=log(A+1e-6)-c; M=1.5^(-r/(1+|r|)); St=exp(g)S;
    S=St+(k*M)(beta(v-St^T k))^T; o=S^T(scale q)

    scale: K^-0.5 after normalisation
    norm: done inside (raw q,k given)
    reference: flash-linear-attention bc3b101d
    """
    return preconditioned(x, unit(x.q), unit(x.k), lambda t: per_head(x.g[:, t]))


@operation(SMALLER, lambda r: dict(draw_unit_keys(r), g=r.log_gate('B T H K', mean=1.0),
                                   g_atk=r.log_gate('B T H', mean=1.0), beta_atk=r.sigmoid('B T H'),
                                   beta=r.sigmoid('B T H'), log_atk_scale=r.normal('H', 0.2, -0.2),
                                   h0=state(r, std=0.5), A0=r.uniform('B H K') if 'h0' in r.sizes else None))
def precond_kda(x: Inputs) -> Outputs:
    """as precond_gated_delta_rule with St=diag(exp g)S; no normalisation inside

    scale: K^-0.5
    norm: unit q,k given
    reference: flash-linear-attention bc3b101d
    """
    return preconditioned(x, x.q, x.k, lambda t: per_row(x.g[:, t]))


def draw_momentum(r: Draws) -> dict:
    k = r.unit('B T H K')
    same = r.sizes.tag[0] == 'a'
    return dict(q=r.unit('B T H K'), k=k, v=r.normal('B T H V'),
                p=k if same else exact(k * (0.5 + 0.5 * r.uniform('B T H 1'))),
                g=r.log_gate('B T H', mean=3.0), g_mu=r.log_gate('B T H', mean=0.5), beta=r.sigmoid('B T H'),
                eta=r.sigmoid('B T H'), h0=state(r), m0=state(r, std=0.3))


@operation(SHORTER, draw_momentum)
def momentum_deltanet(x: Inputs) -> Outputs:
    """e=v-S_{t-1}^T p; M=exp(g_mu)M-eta k e^T; S=exp(g)S-beta M; o=S^T(scale q)

    scale: K^-0.5
    gate: g, g_mu [B,T,H] natural log of retention and momentum
    norm: unit q,k; p (read key) is an input, equal to k in case a
    reference: Momentum DeltaNet (arXiv 2605.05838), sign and names of flash-linear-attention momentum_delta_rule
    note: M accumulates the gradient, i.e. minus the update; residual at the undecayed state; the plain form S=mu
      S+beta(v-Mk)k^T has beta=1 here and M of the other sign
    """
    B, T, H, K = x.q.shape

    def step(both: tuple, t: int) -> tuple:
        S, M = both
        e = x.v[:, t] - ask(S, x.p[:, t])
        M = per_head(exp(x.g_mu[:, t])) * M - per_head(x.eta[:, t]) * outer(x.k[:, t], e)
        S = per_head(exp(x.g[:, t])) * S - per_head(x.beta[:, t]) * M
        return (S, M), ask(S, x.q[:, t]) * K ** -0.5
    zero = (B, H, K, x.v.shape[-1])
    (S, M), o = over_time(T, (x.get('h0', zero), x.get('m0', zero)), step)
    return {'o': o, 'ht': S, 'mt': M}


def filter_layer(x: Inputs, keep: Callable[[Tensor], Tensor], rate: Callable[[Tensor], Tensor]) -> Outputs:
    """S = keep S + rate k (v - S_{t-1}^T k)^T; o = S^T q. Both are [B,T,HV] and may depend on |k|^2."""
    heads = x.v.shape[2]
    q, k = repeat_heads(x.q, heads), repeat_heads(x.k, heads)
    length = squared_length(k)
    kept, step_size = keep(length), rate(length)

    def update(S: Tensor, t: int) -> Tensor:
        error = x.v[:, t] - ask(S, k[:, t])
        return per_head(kept[:, t]) * S + outer(k[:, t], step_size[:, t][..., None] * error)
    return memory_layer(x, update, q, x.v)


def everything(length: Tensor) -> Tensor:
    """No decay."""
    return Tensor(np.ones(length.shape))


def filter_inputs(more: Callable[[Draws], Arrays]) -> Callable[[Draws], dict]:
    """q, k, v, what `more` draws, and the state."""
    def draw(r: Draws) -> dict:
        return dict(q=r.normal('B T H K'), k=r.normal('B T H K', 0.7), v=r.normal('B T HV V'), **more(r),
                    h0=state(r, 'B HV K V'))
    return draw


@operation(FILTERS, filter_inputs(lambda r: dict(beta=r.sigmoid('B T HV', 0.5), lam=r.sigmoid('B T HV'))))
def leaky_lms(x: Inputs) -> Outputs:
    """S=(1-beta lam)S+beta k(v-S_{t-1}^T k)^T; o=S^T q

    scale: none
    layout: value head hv uses q/k head hv//(HV/H); per-token scalars [B,T,HV]
    reference: leaky LMS (test-time regression paper Eq. 37)
    note: the residual uses the undecayed state; equals the gated delta rule with alpha=1-beta lam, beta/alpha, alpha
      v
    """
    return filter_layer(x, lambda _: 1.0 - x.beta * x.lam, lambda _: x.beta)


@operation(FILTERS, filter_inputs(lambda r: dict(beta=r.sigmoid('B T HV', 0.5), lam=r.sigmoid('B T HV', 0.2))))
def lms_decoupled_decay(x: Inputs) -> Outputs:
    """S=(1-lam)S+beta k(v-S_{t-1}^T k)^T; o=S^T q

    scale: none
    layout: value head hv uses q/k head hv//(HV/H); per-token scalars [B,T,HV]
    note: decay independent of the step size; the residual uses the undecayed state
    """
    return filter_layer(x, lambda _: 1.0 - x.lam, lambda _: x.beta)


def draw_nlms_rate(r: Draws) -> Arrays:
    return dict(mu=np.ones(r.sizes.shape('B T HV')) if r.sizes.tag == 'a' else r.sigmoid('B T HV', 1.8))


@operation({'a_B2_T7_H1_K3_V5': {'eps': 0.0}, 'b_B1_T64_H2_K8_V10_h0_HV4': {'eps': 0.01}},
           filter_inputs(draw_nlms_rate))
def nlms(x: Inputs) -> Outputs:
    """beta=mu/(eps+|k|^2); S=S+beta k(v-S^T k)^T; o=S^T q

    scale: none
    layout: value head hv uses q/k head hv//(HV/H); per-token scalars [B,T,HV]
    reference: NLMS / Kaczmarz (test-time regression paper Eq. 33)
    note: case a is Eq. 33 exactly (mu=1, eps=0: S_t^T k_t=v_t)
    """
    return filter_layer(x, everything, lambda length: x.mu / (x.option('eps') + length))


@operation(FILTERS, filter_inputs(lambda r: dict(delta=r.log_normal('B T HV'))))
def longhorn_derived(x: Inputs) -> Outputs:
    """beta=delta/(1+delta|k|^2); S=S+beta k(v-S^T k)^T; o=S^T q

    scale: none
    layout: value head hv uses q/k head hv//(HV/H); per-token scalars [B,T,HV]
    reference: test-time regression paper Eq. 31
    note: the implicit (proximal) step as derived; the shipped Longhorn layer is a diagonal approximation (entry
      longhorn)
    """
    return filter_layer(x, everything, lambda length: x.delta / (1.0 + x.delta * length))


@operation(FILTERS, filter_inputs(lambda r: dict(beta=r.softplus('B T HV'))))
def efla(x: Inputs) -> Outputs:
    """beta'=(1-exp(-beta|k|^2))/|k|^2; S=S+beta' k(v-S^T k)^T; o=S^T q

    scale: none
    layout: value head hv uses q/k head hv//(HV/H); per-token scalars [B,T,HV]
    reference: EFLA (arXiv 2512.12602)
    note: exact solution after time beta of dS/ds=k(v-S^T k)^T; keys not normalised; q not scaled
    """
    return filter_layer(x, everything, lambda length: -expm1(-x.beta * length) / length)


def draw_apa(r: Draws) -> dict:
    with_state = 'h0' in r.sizes
    return dict(q=r.normal('B T H K'), k=r.normal('B T H K'), v=r.normal('B T H V'), mu=r.sigmoid('B T H', 1.5),
                h0=state(r), k0=r.normal('B p-1 H K') if with_state else None,
                v0=r.normal('B p-1 H V') if with_state else None)


@operation({'a_B2_T7_H1_K4_V5_p3': {'p': 3, 'eps': 0.1}, 'b_B1_T48_H2_K8_V12_h0_p3': {'p': 3, 'eps': 0.01}}, draw_apa)
def apa(x: Inputs) -> Outputs:
    """K_w, V_w = last p pairs (fewer while t<p without a cache); S=S+mu K_w^T (K_w K_w^T+eps I)^{-1}(V_w-K_w S);
    o=S^T q

    scale: none
    layout: mu [B,T,H]; k0,v0 [B,p-1,H,.] = the p-1 pairs before the first token, oldest first
    reference: affine projection algorithm (block Kaczmarz)
    """
    k, v = swap(x.after('k'), 1, 2), swap(x.after('v'), 1, 2)
    before = k.shape[2] - x.q.shape[1]

    def update(S: Tensor, t: int) -> Tensor:
        end = t + before + 1
        begin = max(0, end - x.option('p'))
        K, V = k[:, :, begin:end], v[:, :, begin:end]
        gram = K @ K.T + x.option('eps') * np.eye(end - begin)
        return S + per_head(x.mu[:, t]) * (K.T @ solve(gram, V - K @ S))
    return memory_layer(x, update, x.q, x.v)
