"""Linear attention with gates: S_t = decay(S_{t-1}) + k_t v_t^T, and relatives with normalisers, slots, phases."""
from __future__ import annotations

import math
from typing import Callable

import numpy as np

from draws import Draws, exact
from feature_maps import elu_plus_one, favor_features, fourier_features
from pieces import ask, memory_layer, outer, over_time, per_head, per_row, state
from registry import Arrays, Inputs, Outputs, operation
from tape import (Tensor, absolute, concatenate, cos, cumulated, einsum, exp, expm1, log, log1p, log_add_exp,
                  log_sigmoid, maximum, repeat_heads, reshape, sigmoid, silu, sin, softmax, stack, tanh, total)

CASES = ('a_B2_T7_H1_K3_V5', 'b_B1_T72_H2_K16_V24_h0')
STATELESS = ('a_B2_T7_H1_K3_V5', 'b_B1_T72_H2_K16_V24')
SLOTS = ('a_B2_T7_H1_K3_V5_M4', 'b_B1_T72_H2_K16_V24_h0_M4')
SHORTER = ('a_B2_T7_H1_K3_V5', 'b_B1_T64_H2_K8_V12_h0')


def draw_qkv(r: Draws) -> Arrays:
    """q, k, v, standard normal."""
    return dict(q=r.normal('B T H K'), k=r.normal('B T H K'), v=r.normal('B T H V'))


def scale_of(q: Tensor) -> float:
    """K^-0.5."""
    return q.shape[-1] ** -0.5


@operation(CASES, lambda r: dict(draw_qkv(r), h0=state(r, std=0.5)), first_seed=1000)
def linear_attn(x: Inputs) -> Outputs:
    """S=S+k v^T; o=S^T(scale q)

    scale: K^-0.5
    layout: [B,T,H,D], state [B,H,K,V]
    reference: flash-linear-attention bc3b101d
    """
    return memory_layer(x, lambda S, t: S + outer(x.k[:, t], x.v[:, t]), x.q, x.v, scale_of(x.q))


def normalised(x: Inputs, q: Tensor, k: Tensor, scale: float, eps: float, z0: Tensor,
               decay: Callable[[int], Tensor] = lambda t: Tensor(1.0),
               weight: Callable[[int], Tensor] = lambda t: Tensor(1.0)) -> tuple[Tensor, Tensor, Tensor]:
    """S = f S + w k v^T; z = f z + w k; o = S^T (scale q) / (scale q.z + eps): o, S, z. f and w are per head."""
    def step(both: tuple, t: int) -> tuple:
        S, z = both
        f, w = decay(t), weight(t)
        S = f[..., None] * S + w[..., None] * outer(k[:, t], x.v[:, t])
        z = f * z + w * k[:, t]
        return (S, z), ask(S, q[:, t]) * scale / (total(q[:, t] * z, -1, keep=True) * scale + eps)
    start = x.get('h0', (q.shape[0], q.shape[2], q.shape[3], x.v.shape[-1]))
    (S, z), answers = over_time(q.shape[1], (start, z0), step)
    return answers, S, z


def draw_normalised(r: Draws) -> dict:
    with_state = 'h0' in r.sizes
    return dict(q=r.softplus('B T H K'), k=r.softplus('B T H K'), v=r.normal('B T H V'), h0=state(r, std=0.5),
                z0=r.softplus('B 1 H K') if with_state else None)


@operation(CASES, draw_normalised)
def linear_attn_normalized(x: Inputs) -> Outputs:
    """S=S+k v^T; z=z+k; o=S^T(scale q)/(scale q.z+1e-10)

    scale: K^-0.5
    layout: z [B,1,H,K]
    reference: flash-linear-attention bc3b101d
    """
    B, _, H, K = x.q.shape
    o, S, z = normalised(x, x.q, x.k, scale_of(x.q), 1e-10, x.get('z0', (B, 1, H, K))[:, 0])
    return {'o': o, 'ht': S, 'zt': z[:, None]}


def with_features(x: Inputs, features: Callable[[Tensor], Tensor]) -> Outputs:
    """Normalised linear attention of features, without a scale."""
    q, k = features(x.q), features(x.k)
    o, S, z = normalised(x, q, k, 1.0, 1e-6, x.get('z0', (q.shape[0],) + q.shape[2:]))
    return {'o': o, 'ht': S, 'zt': z}


def draw_features(r: Draws, width: str, matrix: bool) -> dict:
    drawn: dict = draw_qkv(r)
    if matrix:
        drawn['W'] = r.orthogonal_rows(r.sizes['m'], r.sizes['K'])
    drawn['h0'] = state(r, f'B H {width} V')
    drawn['z0'] = r.uniform(f'B H {width}', low=1.0) if 'h0' in r.sizes else None
    return drawn


@operation(SHORTER, lambda r: draw_features(r, 'K', False))
def linear_attn_feature_elu1(x: Inputs) -> Outputs:
    """phi=elu+1; S=S+phi(k)v^T; z=z+phi(k); o=S^T phi(q)/(phi(q).z+1e-6)

    scale: none
    layout: S [B,H,F,V], z [B,H,F]
    """
    return with_features(x, elu_plus_one)


@operation(('a_B2_T7_H1_K3_V5_m4', 'b_B1_T64_H2_K8_V12_h0_m16'), lambda r: draw_features(r, 'm', True),
           constant=('W',))
def linear_attn_feature_favor(x: Inputs) -> Outputs:
    """phi as feature_map_favor; S=S+phi(k)v^T; z=z+phi(k); o=S^T phi(q)/(phi(q).z+1e-6)

    scale: none
    layout: S [B,H,F,V], z [B,H,F]; W [m,D] fixed, no gradient
    """
    return with_features(x, lambda y: favor_features(y, x.W))


def draw_gated_rfa(r: Draws) -> dict:
    """The state is that of five earlier pairs, so that the denominator stays positive."""
    W, keys, values = r.normal('m K', std=0.6), r.unit('B 5 H K'), r.normal('B 5 H V')
    phi = fourier_features(Tensor(keys), Tensor(W)).value
    with_state = 'h0' in r.sizes
    return dict(q=r.unit('B T H K'), k=r.unit('B T H K'), v=r.normal('B T H V'), g=r.log_gate('B T H', mean=1.5), W=W,
                h0=exact(np.einsum('bjhk,bjhv->bhkv', phi, values) / 5) if with_state else None,
                z0=exact(phi.mean(1)) if with_state else None)


@operation(('a_B2_T7_H1_K3_V5_m4', 'b_B1_T64_H2_K8_V12_h0_m12'), draw_gated_rfa, constant=('W',))
def gated_rfa(x: Inputs) -> Outputs:
    """phi(x)=m^{-1/2}[sin(W x);cos(W x)]; S=exp(g)S+(1-exp(g))phi(k)v^T; z=exp(g)z+(1-exp(g))phi(k); o=S^T
    phi(q)/(phi(q).z)

    scale: none
    gate: g [B,T,H] natural log of the sigmoid gate
    norm: q,k given unit-norm
    layout: W [m,D] fixed, no gradient; S [B,H,2m,V], z [B,H,2m]
    reference: RFA-gate (Peng et al. 2021)
    note: no eps in the denominator (W small enough to keep it positive)
    """
    q, k = fourier_features(x.q, x.W), fourier_features(x.k, x.W)
    o, S, z = normalised(x, q, k, 1.0, 0.0, x.get('z0', (q.shape[0],) + q.shape[2:]),
                         lambda t: exp(x.g[:, t])[..., None], lambda t: -expm1(x.g[:, t])[..., None])
    return {'o': o, 'ht': S, 'zt': z}


def decayed(x: Inputs, log_decay: Callable[[int], Tensor]) -> Outputs:
    """S = exp(g_t) S + k v^T; o = S^T (K^-0.5 q), with g_t a factor of memories."""
    return memory_layer(x, lambda S, t: exp(log_decay(t)) * S + outer(x.k[:, t], x.v[:, t]), x.q, x.v, scale_of(x.q))


@operation(CASES, lambda r: dict(draw_qkv(r), g=r.log_gate('B T H', mean=1.0), h0=state(r)), first_seed=1000)
def simple_gla(x: Inputs) -> Outputs:
    """S=exp(g)S+k v^T; o=S^T(scale q)

    scale: K^-0.5
    gate: g [B,T,H] natural log
    reference: flash-linear-attention bc3b101d
    """
    return decayed(x, lambda t: per_head(x.g[:, t]))


@operation(STATELESS, draw_qkv, first_seed=1000)
def retention(x: Inputs) -> Outputs:
    """simple_gla with g_h=log(1-2^(-5-h)), h=0..H-1 (gamma computed in f64)

    scale: K^-0.5
    reference: flash-linear-attention bc3b101d
    """
    log_decay = np.log1p(-2.0 ** (-5 - np.arange(x.q.shape[2])))[:, None, None]
    return {'o': decayed(x, lambda t: Tensor(log_decay))['o']}


@operation({case: {'layer_idx': 1, 'num_layers': 4} for case in CASES}, lambda r: dict(draw_qkv(r), h0=state(r)),
           first_seed=1000)
def lightning_attn(x: Inputs) -> Outputs:
    """simple_gla with g_h=-(8/H)(1-layer_idx/num_layers)*h

    scale: K^-0.5
    reference: flash-linear-attention bc3b101d
    """
    heads = x.q.shape[2]
    slope = -(8 / heads) * (1 - x.option('layer_idx') / x.option('num_layers'))
    return decayed(x, lambda t: Tensor(slope * np.arange(heads)[:, None, None]))


@operation(CASES, lambda r: dict(draw_qkv(r), gk=r.log_gate('B T H K', mean=0.0, divided_by=4.0), h0=state(r)),
           first_seed=1000)
def gla(x: Inputs) -> Outputs:
    """S=diag(exp gk)S+k v^T; o=S^T(scale q)

    scale: K^-0.5
    gate: gk [B,T,H,K] natural log; case c has strong gates (logsigmoid N(0,1))
    reference: flash-linear-attention bc3b101d
    """
    return decayed(x, lambda t: per_row(x.gk[:, t]))


@operation(CASES, lambda r: dict(draw_qkv(r), gk=r.log_gate('B T H K', mean=1.0), h0=state(r)))
def gla_signed(x: Inputs) -> Outputs:
    """S=diag(2 exp(gk)-1)S+k v^T; o=S^T(scale q)

    scale: K^-0.5
    gate: gk [B,T,H,K] natural log, logsigmoid N(1,1): the factors 2 sigmoid-1 have both signs
    reference: Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues (arXiv 2411.12537), eigenvalues in
      [-1,1]
    """
    batch, T, H, K = x.q.shape

    def step(S: Tensor, t: int) -> tuple:
        S = per_row(2.0 * exp(x.gk[:, t]) - 1.0) * S + outer(x.k[:, t], x.v[:, t])
        return S, ask(S, K ** -0.5 * x.q[:, t])
    return {'o': over_time(T, x.get('h0', (batch, H, K, x.v.shape[-1])), step)[1]}


@operation(CASES, lambda r: dict(q=r.normal('B T H K'), f=r.normal('B T H K', mean=1.0), i=r.normal('B T H V'),
                                 lower_bound=r.uniform('H K', 0.1, 0.3), h0=state(r)), first_seed=1000)
def hgrn2(x: Inputs) -> Outputs:
    """g=logaddexp(log lb, log1p(-lb)+logsigmoid(f)); k=1-exp(g); gla(silu(q),k,i,g)

    scale: K^-0.5
    reference: flash-linear-attention bc3b101d
    note: lower_bound [H,K], as the layer does for layer_idx>0; layer 0 uses g=logsigmoid(f)
    """
    g = log_add_exp(log(x.lower_bound), log1p(-x.lower_bound) + log_sigmoid(x.f))
    k, q = 1.0 - exp(g), silu(x.q)
    return memory_layer(x, lambda S, t: per_row(exp(g[:, t])) * S + outer(k[:, t], x.i[:, t]), q, x.i, scale_of(q))


@operation(CASES, lambda r: dict(r=r.normal('B T H K'), k=r.normal('B T H K'), v=r.normal('B T H V'),
                                 w=-exact(np.exp(r.normal('B T H K', mean=-1.0))), u=r.normal('H K'), h0=state(r)),
           first_seed=1000)
def rwkv6(x: Inputs) -> Outputs:
    """o=(S_{t-1}+diag(u)k v^T)^T(scale r); S=diag(exp w)S+k v^T

    scale: 1.0 (layer default)
    gate: w=-exp(raw) natural-log decay
    reference: flash-linear-attention bc3b101d
    """
    def step(S: Tensor, t: int) -> tuple:
        write = outer(x.k[:, t], x.v[:, t])
        return per_row(exp(x.w[:, t])) * S + write, ask(S + per_row(x.u) * write, x.r[:, t])
    B, T, H, K = x.r.shape
    S, o = over_time(T, x.get('h0', (B, H, K, x.v.shape[-1])), step)
    return {'o': o, 'ht': S}


def slots(x: Inputs, write: Callable[[int], Tensor], decay: Callable[[int], Tensor], scale: float) -> Outputs:
    """HK = HK diag(f)+k s^T; p = softmax(scale q HK); HV = diag(f) HV + s v^T; o = p HV."""
    B, T, H, K = x.q.shape
    M, V = x.s.shape[-1], x.v.shape[-1]

    def step(both: tuple, t: int) -> tuple:
        keys, values = both
        f, s = decay(t), write(t)
        keys = keys * f[..., None, :] + outer(x.k[:, t], s)
        values = values * f[..., None] + outer(s, x.v[:, t])
        return (keys, values), ask(values, softmax(ask(keys, x.q[:, t]) * scale))
    (keys, values), o = over_time(T, (x.get('hk0', (B, H, K, M)), x.get('hv0', (B, H, M, V))), step)
    return {'o': o, 'hkt': keys, 'hvt': values}


def draw_gsa(r: Draws) -> dict:
    def activated(letters: str) -> np.ndarray:
        z = r.standard(*r.sizes.shape(letters))
        return exact(z / (1 + np.exp(-z)))
    g = r.log_gate('B T H M', mean=0.0, divided_by=8.0)
    return dict(q=activated('B T H K'), k=activated('B T H K'), v=activated('B T H V'), s=exact(-np.expm1(g)), g=g,
                hk0=state(r, 'B H K M'), hv0=state(r, 'B H M V'))


@operation(SLOTS, draw_gsa)
def gsa(x: Inputs) -> Outputs:
    """HK=HK diag(exp g)+k s^T; p=softmax(scale q HK); HV=diag(exp g)HV+s v^T; o=p HV

    scale: 1.0 (layer default; op default K^-0.5)
    reference: flash-linear-attention bc3b101d
    """
    return slots(x, lambda t: x.s[:, t], lambda t: exp(x.g[:, t]), 1.0)


@operation(SLOTS, lambda r: dict(draw_qkv(r), s=r.normal('B T H M'), hk0=state(r, 'B H K M'),
                                 hv0=state(r, 'B H M V')), first_seed=1000)
def abc(x: Inputs) -> Outputs:
    """z=logcumsumexp_t(s) over THIS call only; sn=exp(s-z); g_t=z_{t-1}-z_t, g_0=0; HK=HK diag(exp g)+k sn^T;
    p=softmax(scale q HK); HV=diag(exp g)HV+sn v^T; o=p HV

    scale: K^-0.5 on q only
    reference: flash-linear-attention bc3b101d
    note: with an initial state the first token is NOT decayed against it (g_0=0): the reference does not carry z
      across calls
    """
    z = [x.s[:, 0]]
    for t in range(1, x.s.shape[1]):
        z.append(log_add_exp(z[-1], x.s[:, t]))
    return slots(x, lambda t: exp(x.s[:, t] - z[t]), lambda t: exp(z[max(t - 1, 0)] - z[t]), scale_of(x.q))


def draw_gateloop(r: Draws) -> dict:
    return dict(draw_qkv(r), la=r.log_gate('B T H K', mean=2.0), theta=r.normal('B T H K'), h0_re=state(r),
                h0_im=state(r))


@operation(SHORTER, draw_gateloop)
def gateloop(x: Inputs) -> Outputs:
    """S=diag(exp(la+i theta))S+k v^T (complex S, real q,k,v); o=Re(S^T q)

    scale: none
    gate: la [B,T,H,K] natural-log magnitude, theta [B,T,H,K] phase in radians
    layout: complex state as two tensors h0_re, h0_im [B,H,K,V]
    reference: Katsch 2024
    """
    B, T, H, K = x.q.shape
    c, s = exp(x.la) * cos(x.theta), exp(x.la) * sin(x.theta)

    def step(both: tuple, t: int) -> tuple:
        re, im = both
        ct, st = per_row(c[:, t]), per_row(s[:, t])
        re, im = ct * re - st * im + outer(x.k[:, t], x.v[:, t]), st * re + ct * im
        return (re, im), ask(re, x.q[:, t])
    zero = (B, H, K, x.v.shape[-1])
    (re, im), o = over_time(T, (x.get('h0_re', zero), x.get('h0_im', zero)), step)
    return {'o': o, 'ht_re': re, 'ht_im': im}


def draw_mlstm(r: Draws) -> dict:
    drawn = dict(draw_qkv(r), i=r.normal('B T H', std=1.5))
    drawn['f'] = exact(r.normal('B T H', std=0.3) - 0.15) if 'expf' in r.sizes else r.normal('B T H', mean=3.0)
    return dict(drawn, C0=state(r), n0=state(r, 'B H K'), m0=state(r, 'B H'))


@operation({'a_B2_T7_H1_K3_V5': {'eps': 0.0, 'forget': 'sigmoid'},
            'a2_B2_T7_H1_K3_V5_expf': {'eps': 1e-6, 'forget': 'exp'},
            'b_B1_T64_H2_K8_V12_h0': {'eps': 1e-6, 'forget': 'sigmoid'}}, draw_mlstm,
           no_loss=('denom', 'Ct', 'nt', 'mt'))
def mlstm(x: Inputs) -> Outputs:
    """lf=logsigmoid(f) (forget="exp": lf=f); m_t=max(lf+m,i); f'=exp(lf+m-m_t); i'=exp(i-m_t); C=f' C+i'
    (k/sqrt(K))v^T; n=f' n+i' k/sqrt(K); denom=max(|n.q|,exp(-m_t))+eps; o=C^T q/denom

    scale: K^-0.5 on k, inside the stored state
    gate: i, f [B,T,H] pre-activations
    layout: C [B,H,K,V], n [B,H,K], m [B,H]; C and n are relative to exp(m); fresh state C=n=m=0
    reference: NX-AI/xlstm recurrent form (Beck et al. 2024)
    note: loss covers o only; gradients are those of the formula as written, also through m (matters only at the size
      of eps)
    """
    B, T, H, K = x.q.shape
    log_f = x.f if x.option('forget') == 'exp' else log_sigmoid(x.f)

    def step(parts: tuple, t: int) -> tuple:
        C, n, m = parts
        top = maximum(log_f[:, t] + m, x.i[:, t])
        f, i = exp(log_f[:, t] + m - top), exp(x.i[:, t] - top)
        key = x.k[:, t] / math.sqrt(K)
        C = per_head(f) * C + per_head(i) * outer(key, x.v[:, t])
        n = f[..., None] * n + i[..., None] * key
        below = maximum(absolute(total(n * x.q[:, t], -1)), exp(-top)) + x.option('eps')
        both = concatenate([ask(C, x.q[:, t]) / below[..., None], below[..., None]], -1)
        return (C, n, top), both
    start = (x.get('C0', (B, H, K, x.v.shape[-1])), x.get('n0', (B, H, K)), x.get('m0', (B, H)))
    (C, n, m), both = over_time(T, start, step)
    return {'o': both[..., :-1], 'denom': both[..., -1], 'Ct': C, 'nt': n, 'mt': m}


def kernel_mean(x: Inputs, weight: Callable[[Tensor], Tensor]) -> Outputs:
    """o = sum_j w v_j / (sum_j w + 1e-6), w = weight(K^-0.5 q.k_j), j <= t."""
    T = x.q.shape[1]
    w = weight(einsum('bihk,bjhk->bhij', x.q, x.k) * scale_of(x.q)) * np.tril(np.ones((T, T)))
    below = total(w, -1) + 1e-6
    return {'o': einsum('bhij,bjhv->bihv', w / below[..., None], x.v)}


@operation(STATELESS, draw_qkv, first_seed=1000)
def based(x: Inputs) -> Outputs:
    """w=1+s+s^2/2, s=scale q.k causal incl. diagonal; o=sum w v/(sum w+1e-6)

    scale: K^-0.5
    reference: flash-linear-attention bc3b101d
    """
    return kernel_mean(x, lambda s: 1.0 + s + s * s * 0.5)


def apart_from_orthogonal(inputs: Arrays) -> bool:
    """Whether every query has sum_j (q.k_j)^2 >= 1e-4 sum_j |q|^2 |k_j|^2: what squares of features lose to
    cancellation, gradients of o divide by that sum."""
    q, k = inputs['q'], inputs['k']
    causal = np.tril(np.ones((q.shape[1], q.shape[1])))
    weights = np.einsum('bihk,bjhk->bhij', q, k) ** 2 * causal
    most = np.einsum('bih,bjh->bhij', (q * q).sum(-1), (k * k).sum(-1)) * causal
    return bool((weights.sum(-1) >= 1e-4 * most.sum(-1)).all())


@operation(STATELESS, draw_qkv, fit=apart_from_orthogonal)
def rebased(x: Inputs) -> Outputs:
    """w=(scale q.k)^2 causal; o=sum w v/(sum w+1e-6)

    scale: K^-0.5
    reference: flash-linear-attention bc3b101d
    note: kernel/layer use eps 1e-5
    """
    return kernel_mean(x, lambda s: s * s)


def fenwick_levels(length: int, levels: int) -> np.ndarray:
    """1 at [t, s, l] if token t finds token s in level l."""
    found = np.zeros((length, length, levels))
    for t in range(length):
        found[t, t, 0] = 1
        for level in range(1, levels):
            half = 2 ** (level - 1)
            if t % (2 * half) >= half:
                begin = t - t % half
                found[t, begin - half:begin, level] = 1
    return found


@operation(('a_B2_T7_H1_K3_V5_L4', 'b_B1_T64_H2_K12_V16_L7'),
           lambda r: dict(q=r.normal('B T H K'), k=r.normal('B T H K', std=0.5), v=r.normal('B T H V'),
                          g=r.log_gate('B T H'), level_scales=r.softplus('B T H L')),
           first_seed=1000)
def log_linear_attn(x: Inputs) -> Outputs:
    """level 0 = {t}; level l>=1 covers [b-2^(l-1), b), b=t-t mod 2^(l-1), present iff t mod 2^l>=2^(l-1); o_t=sum_l
    lambda_t^l sum_{s in level l} (q_t.k_s) exp(G_t-G_s) v_s

    scale: none
    reference: flash-linear-attention bc3b101d
    """
    T = x.q.shape[1]
    level = einsum('bihl,ijl->bhij', x.level_scales, fenwick_levels(T, x.level_scales.shape[-1]))
    G = cumulated(x.g)
    later = einsum('bih,j->bhij', G, np.ones(T)) - einsum('bjh,i->bhij', G, np.ones(T))
    decay = exp(later * np.tril(np.ones((T, T))))
    return {'o': einsum('bhij,bjhv->bihv', einsum('bihk,bjhk->bhij', x.q, x.k) * decay * level, x.v)}


def draw_mamba2(r: Draws) -> dict:
    return dict(x=r.normal('B T H P'), dt=r.softplus('B T H', mean=-2.0),
                A=-r.uniform('H', 1.0, 15.0), B=r.normal('B T G N'), C=r.normal('B T G N'),
                D=r.normal('H', 0.1, 1.0), h0=state(r, 'B H P N'))


@operation(('a_B2_T7_H1_N3_P5_G1', 'b_B1_T72_H2_N16_P24_G1_h0'), draw_mamba2)
def mamba2_ssd(x: Inputs) -> Outputs:
    """h=exp(dt A)h+dt x B^T; y=h C+D x

    scale: none
    layout: x [B,T,H,P]; dt post-softplus [B,T,H]; B,C [B,T,G,N]; state [B,H,P,N] (value-first)
    reference: state-spaces/mamba ssd_minimal_discrete
    """
    batch, T, H, P = x.x.shape
    B, C = repeat_heads(x.B, H), repeat_heads(x.C, H)

    def step(h: Tensor, t: int) -> tuple:
        h = per_head(exp(x.dt[:, t] * x.A)) * h + per_head(x.dt[:, t]) * outer(x.x[:, t], B[:, t])
        return h, einsum('bhpn,bhn->bhp', h, C[:, t]) + x.D[:, None] * x.x[:, t]
    h, y = over_time(T, x.get('h0', (batch, H, P, B.shape[-1])), step)
    return {'y': y, 'ht': h}


@operation(('a_B2_T7_H1_N3_P5_G1', 'b_B1_T72_H2_N16_P24_G1_h0'), draw_mamba2)
def mamba2_signed(x: Inputs) -> Outputs:
    """h=(2 exp(dt A)-1)h+dt x B^T; y=h C+D x

    scale: none
    layout: x [B,T,H,P]; dt post-softplus [B,T,H]; B,C [B,T,G,N]; state [B,H,P,N] (value-first)
    reference: Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues (arXiv 2411.12537), eigenvalues in
      [-1,1]
    """
    batch, T, H, P = x.x.shape
    B, C = repeat_heads(x.B, H), repeat_heads(x.C, H)

    def step(h: Tensor, t: int) -> tuple:
        factor = 2.0 * exp(x.dt[:, t] * x.A) - 1.0
        h = per_head(factor) * h + per_head(x.dt[:, t]) * outer(x.x[:, t], B[:, t])
        return h, einsum('bhpn,bhn->bhp', h, C[:, t]) + x.D[:, None] * x.x[:, t]
    _, y = over_time(T, x.get('h0', (batch, H, P, B.shape[-1])), step)
    return {'y': y}


def turned(v: Tensor, phi: Tensor) -> Tensor:
    """Adjacent pairs of v turned by phi; what is behind the pairs stays."""
    n = phi.shape[-1]
    first, second = v[..., 0:2 * n:2], v[..., 1:2 * n:2]
    pairs = stack([first * cos(phi) - second * sin(phi), first * sin(phi) + second * cos(phi)], len(phi.shape))
    flat = pairs.shape[:-2] + (2 * n,)
    return concatenate([reshape(pairs, flat), v[..., 2 * n:]], -1)


def draw_mamba3(r: Draws) -> dict:
    dt = r.softplus('B T H', mean=-1.0)
    with_state = 'h0' in r.sizes
    return dict(q=r.normal('B T 1 N'), k=r.normal('B T 1 N'), v=r.normal('B T H P'),
                adt=exact(-dt * np.exp(r.normal('B T H', 0.5))), dt=dt, trap=r.normal('B T H'),
                q_bias=r.normal('H N', 0.1, 1.0), k_bias=r.normal('H N', 0.1, 1.0), angles=r.normal('B T H N/4'),
                D=r.normal('H', 0.1, 1.0), z=r.normal('B T H P'),
                angle0=r.uniform('B H N/4', 0.0, 2 * math.pi) if with_state else None, ssm0=state(r, 'B H P N'),
                k0=state(r, 'B H N'), v0=state(r, 'B H P'))


@operation(('a_B2_T7_H1_N4_P5', 'b_B1_T72_H2_N16_P12_h0'), draw_mamba3, no_loss=('angle', 'k_state', 'v_state'))
def mamba3_siso(x: Inputs) -> Outputs:
    """phi=(phi+pi tanh(angles) dt) mod 2pi; q,k=rot_phi(q+bq),rot_phi(k+bk) on adjacent pairs (first N/2 dims here,
    rest unrotated); lam=sigmoid(trap); S=exp(adt)S+(1-lam)dt exp(adt) v_{t-1}k_{t-1}^T+lam dt v k^T; o=(S q+D
    v)*silu(z)

    scale: none
    layout: q=C,k=B [B,T,1,N]; adt,dt,trap [B,T,H]; angles [B,T,H,N/4]; S [B,H,P,N]
    reference: state-spaces/mamba tests/ops/triton/test_mamba3_siso.py step reference
    note: k_state is the rotated, biased key; trap is pre-sigmoid; loss covers o and ssm
    """
    B, T, H, P = x.v.shape
    N = x.q.shape[-1]

    def step(parts: tuple, t: int) -> tuple:
        S, phi, k_before, v_before = parts
        phi = phi + math.pi * tanh(x.angles[:, t]) * x.dt[:, t][..., None]
        phi = phi - 2 * math.pi * np.floor(phi.value / (2 * math.pi))
        q, k = turned(x.q[:, t] + x.q_bias, phi), turned(x.k[:, t] + x.k_bias, phi)
        share, decay = sigmoid(x.trap[:, t]), exp(x.adt[:, t])
        S = (per_head(decay) * S + per_head((1.0 - share) * x.dt[:, t] * decay) * outer(v_before, k_before)
             + per_head(share * x.dt[:, t]) * outer(x.v[:, t], k))
        answer = einsum('bhpn,bhn->bhp', S, q) + x.D[:, None] * x.v[:, t]
        return (S, phi, k, x.v[:, t]), answer * silu(x.z[:, t])
    start = (x.get('ssm0', (B, H, P, N)), x.get('angle0', (B, H) + x.angles.shape[3:]), x.get('k0', (B, H, N)),
             x.get('v0', (B, H, P)))
    (S, phi, k, v), o = over_time(T, start, step)
    return {'o': o, 'ssm': S, 'angle': phi, 'k_state': k, 'v_state': v}
