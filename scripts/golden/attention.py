"""Attention of one kind or another: weights from q.k or |q - k|, over the past or over everything."""
from __future__ import annotations

import math
import numpy as np

from draws import Draws
from pieces import grouped, rms_norm
from registry import Arrays, Inputs, Outputs, operation
from tape import Tensor, concatenate, cumulated, einsum, exp, norm, repeat_heads, softmax, stack, swap, total

CASES = ('a_B2_T7_H2_K3_V5', 'b_B1_T48_H4_K8_V10_HKV2')
PAIRS = ('a_B2_T7_H2_K3_V5', 'b_B1_T40_H4_K8_V10_HKV2_S56')
LONGER = ('a_B2_T7_H2_K4_V4_HKV2', 'b_B1_T72_H4_K12_V12_HKV2')


def draw_qkv(r: Draws, std: float = 1.0) -> Arrays:
    return dict(q=r.normal('B T H K', std), k=r.normal('B S HKV K', std), v=r.normal('B S HKV V'))


def past(length: int) -> np.ndarray:
    """True where key j <= query i."""
    return np.tril(np.ones((length, length), dtype=bool))


def dots(q: Tensor, k: Tensor) -> Tensor:
    """q_i.k_j: [B,H,T,S]."""
    return einsum('bihk,bjhk->bhij', q, k)


def distances(q: Tensor, k: Tensor) -> Tensor:
    """|q_i - k_j|^2, from the differences: [B,H,T,S]."""
    difference = swap(q, 1, 2)[:, :, :, None] - swap(k, 1, 2)[:, :, None]
    return total(difference * difference, -1)


def exponential_kernel(q: Tensor, k: Tensor) -> Tensor:
    """exp(q.k / sqrt(K))."""
    return exp(dots(q, k) / math.sqrt(q.shape[-1]))


def gaussian_kernel(q: Tensor, k: Tensor) -> Tensor:
    """exp(-|q - k|^2 / (2 sqrt(K)))."""
    return exp(-distances(q, k) / (2 * math.sqrt(q.shape[-1])))


def mix(weights: Tensor, v: Tensor) -> Tensor:
    """sum_j w_ij v_j."""
    return einsum('bhij,bjhv->bihv', weights, v)


def causal_softmax(logits: Tensor, v: Tensor) -> Outputs:
    return {'o': mix(softmax(logits, past(logits.shape[-1])), v)}


def draw_sink(r: Draws) -> dict:
    return dict(draw_qkv(r), sink=r.normal('H') if 'sink' in r.sizes else None)


@operation({'a_B2_T7_H2_K4_V4_HKV2': {'window': None}, 'b_B1_T72_H4_K12_V12_HKV2_sink': {'window': None}}, draw_sink,
           first_seed=1000)
def attn(x: Inputs) -> Outputs:
    """causal softmax(scale q.k) v, keys in [i-W+1,i]; sink adds exp(sink_h) to the denominator only

    scale: K^-0.5
    reference: flash-linear-attention bc3b101d
    """
    q, k, v = grouped(x)
    T, window = q.shape[1], x.option('window') or q.shape[1]
    allowed = past(T) & (np.subtract.outer(np.arange(T), np.arange(T)) < window)
    logits = dots(q, k) / math.sqrt(q.shape[-1])
    if 'sink' in x:
        extra = x.sink[:, None, None] * np.ones(logits.shape[:-1] + (1,))
        logits = concatenate([logits, extra], -1)
        allowed = np.concatenate([allowed, np.ones((T, 1), dtype=bool)], 1)
    return {'o': mix(softmax(logits, allowed)[..., :T], v)}


def gate_difference(g: Tensor) -> Tensor:
    """G_i - G_j of the running sums G, [B,H,T,T]."""
    G = swap(cumulated(g), 1, 2)
    return G[..., :, None] - G[..., None, :]


@operation({case: {'window': None} for case in LONGER}, lambda r: dict(draw_qkv(r), g=r.log_gate('B T H')))
def forgetting_attn(x: Inputs) -> Outputs:
    """softmax(scale q.k + G_i - G_j) v, G=cumsum g (gate not scaled)

    scale: K^-0.5
    reference: flash-linear-attention bc3b101d
    """
    q, k, v = grouped(x)
    return causal_softmax(dots(q, k) / math.sqrt(q.shape[-1]) + gate_difference(x.g), v)


@operation({case: {'window': None} for case in LONGER},
           lambda r: dict(q=r.normal('B T H K'), r=r.normal('B T H K', 0.3), k=r.normal('B T HKV K'),
                          v=r.normal('B T HKV V')))
def parallax(x: Inputs) -> Outputs:
    """p=softmax(scale q.k); s=r.k (unscaled); o=E_p[v](1+E_p[s])-E_p[s v]

    scale: K^-0.5 on q.k only
    reference: flash-linear-attention bc3b101d
    """
    q, k, v = grouped(x)
    p = softmax(dots(q, k) / math.sqrt(q.shape[-1]), past(q.shape[1]))
    s = p * dots(x.r, k)
    expected = swap(total(s, -1), 1, 2)[..., None]
    return {'o': mix(p, v) * (1.0 + expected) - mix(s, v)}


@operation(LONGER, lambda r: dict(draw_qkv(r), w=r.unit('B T HKV K'), beta=r.sigmoid('B T HKV', 2.0),
                                  g=r.log_gate('B T H')))
def path_attn(x: Inputs) -> Outputs:
    """A_ij=q_i^T H_i H_{i-1}...H_{j+1} k_j, H_l=I-beta_l w_l w_l^T; o=softmax(scale (A+G_i-G_j)) v  (gate IS scaled)

    scale: K^-0.5
    norm: unit w
    reference: flash-linear-attention bc3b101d
    """
    q, k, v = grouped(x)
    B, T, H, K = q.shape
    w, beta = repeat_heads(x.w, H), repeat_heads(x.beta, H)
    rows = q[:, T:]  # q_i^T H_i ... H_{j+1} of the i >= j, while j goes down
    columns = []
    for j in reversed(range(T)):
        rows = concatenate([q[:, j:j + 1], rows], 1)
        column = einsum('bihk,bhk->bhi', rows, k[:, j])
        columns.append(concatenate([np.zeros((B, H, j)), column], 2))
        along = einsum('bihk,bhk->bih', rows, w[:, j]) * beta[:, j][:, None]
        rows = rows - along[..., None] * w[:, j][:, None]
    A = stack(columns[::-1], 3)
    return causal_softmax((A + gate_difference(x.g)) / math.sqrt(K), v)


@operation(('a_B2_T7_H2_K4_V4', 'b_B1_T72_H4_K12_V12'), lambda r: dict(draw_qkv(r), beta=r.sigmoid('B T H')))
def deltaformer(x: Inputs) -> Outputs:
    """u_t=v_t-beta_t sum_{j<t} softmax_{j<t}(scale q_t.k_j) u_j; o=causal softmax(scale q.k) u

    scale: K^-0.5
    reference: flash-linear-attention bc3b101d
    """
    logits = dots(x.q, x.k) / math.sqrt(x.q.shape[-1])
    u = [x.v[:, 0]]
    for t in range(1, x.q.shape[1]):
        seen = einsum('bhj,bjhv->bhv', softmax(logits[:, :, t, :t]), stack(u, 1))
        u.append(x.v[:, t] - x.beta[:, t][..., None] * seen)
    return causal_softmax(logits, stack(u, 1))


@operation(CASES, lambda r: draw_qkv(r, 0.7))
def unnormalised_softmax(x: Inputs) -> Outputs:
    """o_t=sum_{j<=t} exp(scale q.k_j) v_j

    scale: K^-0.5
    layout: q head h uses k/v head h//(H/HKV)
    reference: test-time regression paper Eq. 47
    """
    q, k, v = grouped(x)
    return {'o': mix(exponential_kernel(q, k) * past(q.shape[1]).astype(float), v)}


@operation(CASES, draw_qkv)
def softmax_qknorm_unit(x: Inputs) -> Outputs:
    """q<-q/|q|, k<-k/|k| (no eps); causal softmax(scale q.k) v

    scale: K^-0.5 after normalisation
    layout: q head h uses k/v head h//(H/HKV)
    reference: test-time regression paper Eq. 50-51
    note: equals Nadaraya-Watson with exp(-|k-q|^2/(2 sqrt(K))) on the unit vectors
    """
    q, k, v = grouped(x)
    return causal_softmax(dots(q / norm(q), k / norm(k)) / math.sqrt(q.shape[-1]), v)


@operation(CASES, lambda r: dict(draw_qkv(r), q_w=r.normal('K', 0.2, 1.0), k_w=r.normal('K', 0.2, 1.0)))
def softmax_qknorm_rms(x: Inputs) -> Outputs:
    """x<-x/sqrt(mean(x^2)+1e-6)*w for q and k (own weights); causal softmax(scale q.k) v

    scale: K^-0.5 after normalisation
    layout: q head h uses k/v head h//(H/HKV); q_w,k_w [K] shared by heads
    """
    q, k, v = grouped(x)
    return causal_softmax(dots(rms_norm(q, x.q_w, 1e-6), rms_norm(k, x.k_w, 1e-6)) / math.sqrt(q.shape[-1]), v)


@operation(PAIRS, draw_qkv)
def softmax_noncausal(x: Inputs) -> Outputs:
    """o=softmax(scale q k^T) v over all S keys, no mask

    scale: K^-0.5
    layout: q [B,T,H,K]; k,v [B,S,HKV,.]; q head h uses k/v head h//(H/HKV)
    """
    q, k, v = grouped(x)
    return {'o': mix(softmax(dots(q, k) / math.sqrt(q.shape[-1])), v)}


@operation(PAIRS, draw_qkv)
def skyformer_exact(x: Inputs) -> Outputs:
    """o_i=sum_j exp(-|q_i-k_j|^2/(2 sqrt(K))) v_j over all S keys, no mask, no row normalisation

    scale: K^-0.5 inside the kernel
    layout: q [B,T,H,K]; k,v [B,S,HKV,.]; q head h uses k/v head h//(H/HKV)
    reference: Skyformer (Chen et al. 2021)
    note: Gaussian attention before the Nystrom approximation
    """
    q, k, v = grouped(x)
    return {'o': mix(gaussian_kernel(q, k), v)}


@operation(('a_B2_T7_H2_K3_V5', 'b_B1_T48_H2_K8_V10'), lambda r: dict(q=r.normal('B T H K'), v=r.normal('B T H V')))
def soft(x: Inputs) -> Outputs:
    """o_i=sum_j exp(-|q_i-q_j|^2/(2 sqrt(K))) v_j over all tokens, no mask, no row normalisation (keys are the
    queries)

    scale: K^-0.5 inside the kernel
    reference: SOFT (Lu et al. 2021)
    note: exact, without the Nystrom landmarks
    """
    return {'o': mix(gaussian_kernel(x.q, x.q), x.v)}
