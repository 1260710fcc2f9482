"""Memories that are the solution of a least-squares problem: ridge, recursive, windows, Kalman filter."""
from __future__ import annotations

from typing import Callable, Optional

import numpy as np

from attention import PAIRS
from draws import Draws, exact
from pieces import ask, grouped, outer, over_time, per_head, state
from registry import Inputs, Outputs, operation
from tape import Tensor, einsum, exp, norm, solve, swap, total

CASES = ('a_B2_T7_H1_K3_V5', 'b_B1_T48_H2_K8_V12_h0')
SHORTER = ('a_B2_T7_H1_K3_V5', 'b_B1_T64_H2_K8_V12_h0')


def draw_qkv(r: Draws) -> dict:
    return dict(q=r.normal('B T H K'), k=r.normal('B T H K'), v=r.normal('B T H V'))


def covariance_state(r: Draws) -> Optional[np.ndarray]:
    """An initial covariance, which the cases with h0 in their name have."""
    return r.covariance('B H K K') if 'h0' in r.sizes else None


def answered(matrix: Tensor, query: Tensor) -> Tensor:
    """matrix^-1 q: [B,H,K,K] and [B,H,K]."""
    return solve(matrix, query[..., None])[..., 0]


def draw_minnorm(r: Draws) -> dict:
    """Two keys are those of token 2 once more if the name says dup."""
    k = r.normal('B T H K')
    if 'dup' in r.sizes:
        k[:, 6] = k[:, 7] = k[:, 2]
    return dict(q=r.normal('B T H K'), k=k, v=r.normal('B T H V'))


@operation(('a_B2_T7_H1_K3_V5', 'a2_B1_T5_H2_K8_V4', 'b_B1_T48_H2_K10_V12_dup'), draw_minnorm, forward_only=True)
def rls_minnorm(x: Inputs) -> Outputs:
    """o_t=S_t^T q_t, S_t=pinv(K_t) V_t (rows of K_t, V_t = the first t pairs)

    scale: none
    reference: test-time regression paper Eq. 11
    note: forward only; singular values below 1e-10 of the largest count as zero; in files named dup some keys are
      repeated exactly (with other values), so the rank is below min(t,K); else keys in general position; ht = S after
      the last token; errors near t=K scale with the condition number
    """
    def fitted(n: int) -> np.ndarray:
        """The map of the first n pairs, [B,H,K,V]."""
        keys, values = (np.swapaxes(y.value[:, :n], 1, 2) for y in (x.k, x.v))
        return np.linalg.pinv(keys, rcond=1e-10) @ values
    maps = [fitted(t + 1) for t in range(x.q.shape[1])]
    return {'o': Tensor(np.einsum('bthk,tbhkv->bthv', x.q.value, np.array(maps))), 'ht': Tensor(maps[-1])}


def information_layer(x: Inputs, read: Callable[[Tensor, Tensor, int], Tensor],
                      decay_of_keys: Optional[Tensor] = None, decay_of_values: Optional[Tensor] = None) -> Outputs:
    """H = f H + w k k^T; G = f' G + w k v^T; o_t = read(H, G, t). w is in.beta or 1."""
    B, T, H, K = x.q.shape

    def step(both: tuple, t: int) -> tuple:
        keys, values = both
        weighted = x.k[:, t] * x.beta[:, t][..., None] if 'beta' in x else x.k[:, t]
        if decay_of_keys is not None and decay_of_values is not None:
            keys, values = per_head(exp(decay_of_keys[:, t])) * keys, per_head(exp(decay_of_values[:, t])) * values
        keys, values = keys + outer(weighted, x.k[:, t]), values + outer(weighted, x.v[:, t])
        return (keys, values), read(keys, values, t)
    (keys, values), o = over_time(T, (x.get('hkk0', (B, H, K, K)), x.get('hkv0', (B, H, K, x.v.shape[-1]))), step)
    return {'o': o, 'hkk': keys, 'hkv': values}


def ridge_read(x: Inputs, ridge: Tensor) -> Callable[[Tensor, Tensor, int], Tensor]:
    """o = G^T (H + ridge)^-1 q."""
    return lambda H, G, t: ask(G, answered(H + ridge, x.q[:, t]))


@operation(CASES, lambda r: dict(draw_qkv(r), lam=r.uniform('H', 0.05, 0.5), hkk0=covariance_state(r), hkv0=state(r)),
           symmetric=('hkk0', 'hkk'))
def rls_ridge(x: Inputs) -> Outputs:
    """H=H+k k^T; G=G+k v^T; o=G^T (H+lam I)^{-1} q

    scale: none
    layout: lam [H] constant ridge, never decayed; hkk [B,H,K,K], hkv [B,H,K,V]
    reference: weighted recursive least squares with a constant ridge
    note: exact solve at every token; gradients through the solve; hkk0 is symmetric positive definite, its gradient
      is symmetrised ((G+G^T)/2), and grad_out.hkk is symmetric
    """
    return information_layer(x, ridge_read(x, x.lam[:, None, None] * np.eye(x.q.shape[-1])))


@operation(CASES, lambda r: dict(draw_qkv(r), g=r.log_gate('B T H', mean=2.5), beta=r.sigmoid('B T H', 2.0),
                                 lam=r.uniform('H', 0.05, 0.5), hkk0=covariance_state(r), hkv0=state(r)),
           symmetric=('hkk0', 'hkk'))
def rls_gated(x: Inputs) -> Outputs:
    """H=exp(g)H+beta k k^T; G=exp(g)G+beta k v^T; o=G^T (H+lam I)^{-1} q

    scale: none
    gate: g [B,T,H] natural log, beta [B,T,H] weight of the pair
    layout: lam [H] constant ridge, never decayed; hkk [B,H,K,K], hkv [B,H,K,V]
    reference: weighted recursive least squares with a constant ridge
    note: exact solve at every token; gradients through the solve; hkk0 is symmetric positive definite, its gradient
      is symmetrised ((G+G^T)/2), and grad_out.hkk is symmetric
    """
    return information_layer(x, ridge_read(x, x.lam[:, None, None] * np.eye(x.q.shape[-1])), x.g, x.g)


def draw_mesa(r: Draws) -> dict:
    drawn = dict(q=r.unit('B T H K'), k=r.unit('B T H K'), v=r.normal('B T H V'), g=r.log_gate('B T H', mean=3.0),
                 lamb=exact(0.25 + r.softplus('H K')), beta=r.sigmoid('B T H'))
    return dict(drawn, hkk0=covariance_state(r), hkv0=state(r, std=0.5))


@operation(('a_B2_T7_H1_K4_V4', 'b_B1_T72_H2_K16_V16_h0'), draw_mesa)
def mesa_exact(x: Inputs) -> Outputs:
    """H=exp(g)H+beta k k^T; G=exp(g)G+beta k v^T; o=G^T (H+diag(lamb))^-1 q

    scale: none
    gate: g [B,T,H] logsigmoid
    norm: unit q,k; lamb [H,K]>=0.25, not decayed
    reference: flash-linear-attention bc3b101d
    note: gradients through the exact solve; hkk0 given symmetric, its gradient is the raw (unsymmetrised) autograd
      gradient
    """
    return information_layer(x, ridge_read(x, x.lamb[..., None] * np.eye(x.q.shape[-1])), x.g, x.g)


def draw_gka(r: Draws) -> dict:
    g, same = r.log_gate('B T H', mean=3.0), r.sizes.tag == 'a'
    return dict(q=r.unit('B T H K'), k=r.unit('B T H K'), v=r.normal('B T H V'), g=g,
                gk=g if same else r.log_gate('B T H', mean=3.0),
                alpha=np.ones(g.shape) if same else r.sigmoid('B T H'), hkk0=covariance_state(r), hkv0=state(r))


@operation(SHORTER, draw_gka, symmetric=('hkk0', 'hkk'))
def gka(x: Inputs) -> Outputs:
    """H=exp(gk)H+k k^T; G=exp(g)G+k v^T; lam=0.02|H|_F; x=(H+lam I)^{-1}q; o=scale G^T(q+alpha(x-q))

    scale: K^-0.5 on the output
    gate: g (of G), gk (of H) [B,T,H] natural log; alpha [B,T,H] mixes q and the ridge solution; case a has gk=g and
      alpha=1
    norm: unit q,k
    reference: Gated KalmaNet (arXiv 2511.21016), argument names of flash-linear-attention gka
    note: exact solve (the layer uses 30 Chebyshev iterations); gradients include the path through |H|_F; hkk0
      symmetric, gradient symmetrised, grad_out.hkk symmetric
    """
    K = x.q.shape[-1]

    def read(H: Tensor, G: Tensor, t: int) -> Tensor:
        q = x.q[:, t]
        solved = answered(H + 0.02 * norm(H, (-1, -2)) * np.eye(K), q)
        return ask(G, q + x.alpha[:, t][..., None] * (solved - q)) * K ** -0.5
    return information_layer(x, read, x.gk, x.g)


def gain_layer(x: Inputs, P: Tensor, before: Callable[[Tensor, int], Tensor], noise: Callable[[int], Tensor],
               after: Callable[[Tensor, int], Tensor]) -> Outputs:
    """P = before(P, t); gain = P k/(noise_t + k.P k); S = S + gain (v - S^T k)^T; P = after(P - gain (P k)^T, t)."""
    B, T, H, K = x.q.shape

    def step(both: tuple, t: int) -> tuple:
        S, P = both
        P, key = before(P, t), x.k[:, t]
        Pk = einsum('bhij,bhj->bhi', P, key)
        gain = Pk / (noise(t) + total(key * Pk, -1))[..., None]
        S = S + outer(gain, x.v[:, t] - ask(S, key))
        return (S, after(P - outer(gain, Pk), t)), ask(S, x.q[:, t])
    (S, P), o = over_time(T, (x.get('h0', (B, H, K, x.v.shape[-1])), P), step)
    return {'o': o, 'ht': S, 'Pt': P}


def draw_woodbury(r: Draws) -> dict:
    drawn = dict(draw_qkv(r), g=r.log_gate('B T H', mean=3.0), beta=r.sigmoid('B T H', 2.0))
    drawn['eps'] = None if 'h0' in r.sizes else r.uniform('H', 0.1, 0.3)
    return dict(drawn, h0=state(r), P0=covariance_state(r))


@operation(SHORTER, draw_woodbury, symmetric=('P0', 'Pt'))
def rls_woodbury(x: Inputs) -> Outputs:
    """gain=P k/(exp(g)/beta+k.P k); S=S+gain(v-S^T k)^T; P=(P-gain (P k)^T)/exp(g); o=S^T q; P_0=I/eps or in.P0,
    S_0=0 or in.h0

    scale: none
    gate: g [B,T,H] natural log of the forgetting factor, beta [B,T,H]>0 weight of the pair
    layout: eps [H] (only without P0); P [B,H,K,K]
    reference: recursive least squares (Haykin)
    note: equals the batch solution with the ridge P_0^{-1} prod exp(g) centred at S_0: the ridge decays; P0
      symmetric, its gradient is symmetrised ((G+G^T)/2), grad_out.Pt is symmetric
    """
    B, _, H, K = x.q.shape
    P = x.P0 if 'P0' in x else np.eye(K) / x.eps[:, None, None] * np.ones((B, 1, 1, 1))
    return gain_layer(x, P, lambda P, t: P, lambda t: exp(x.g[:, t]) / x.beta[:, t],
                      lambda P, t: P / per_head(exp(x.g[:, t])))


@operation(SHORTER, lambda r: dict(draw_qkv(r), qvar=r.log_normal('B T H', 0.05), rvar=r.log_normal('B T H', 0.3),
                                   h0=state(r), P0=r.covariance('B H K K')), symmetric=('P0', 'Pt'))
def kalman(x: Inputs) -> Outputs:
    """P=P+qvar I; gain=P k/(rvar+k.P k); S=S+gain(v-S^T k)^T; P=P-gain (P k)^T; o=S^T q

    scale: none
    layout: S [B,H,K,V] mean; P [B,H,K,K] covariance shared by the value channels; qvar (process), rvar (measurement)
      variances [B,T,H]
    reference: Kalman filter
    note: random-walk memory, read after the update; P0 symmetric, its gradient is symmetrised ((G+G^T)/2),
      grad_out.Pt is symmetric
    """
    return gain_layer(x, x.P0, lambda P, t: P + per_head(x.qvar[:, t]) * np.eye(x.q.shape[-1]),
                      lambda t: x.rvar[:, t], lambda P, t: P)


def draw_window(r: Draws) -> dict:
    cached = 'cache' in r.sizes
    return dict(draw_qkv(r), lam=r.uniform('H', 0.1, 0.5), k0=r.normal('B win-1 H K') if cached else None,
                v0=r.normal('B win-1 H V') if cached else None)


@operation({'a_B2_T7_H1_K3_V5_win4': {'window': 4}, 'b_B1_T48_H2_K8_V12_win13_cache': {'window': 13}}, draw_window)
def window_rls(x: Inputs) -> Outputs:
    """o_t=V_w^T K_w (K_w^T K_w+lam I)^{-1} q_t over the last W pairs (fewer at the start without a cache)

    scale: none
    layout: lam [H]; k0,v0 [B,W-1,H,.] = the W-1 pairs before the first token, oldest first
    """
    k, v = swap(x.after('k'), 1, 2), swap(x.after('v'), 1, 2)
    before = k.shape[2] - x.q.shape[1]
    ridge = x.lam[:, None, None] * np.eye(k.shape[-1])

    def step(nothing: None, t: int) -> tuple:
        end = t + before + 1
        window = slice(max(0, end - x.option('window')), end)
        K, V = k[:, :, window], v[:, :, window]
        return nothing, ask(K.T @ V, answered(K.T @ K + ridge, x.q[:, t]))
    return {'o': over_time(x.q.shape[1], None, step)[1]}


@operation(PAIRS, lambda r: dict(q=r.normal('B T H K'), k=r.normal('B S HKV K'), v=r.normal('B S HKV V'),
                                 alpha=r.uniform('H', 0.1)))
def intention(x: Inputs) -> Outputs:
    """o=V^T K (K^T K+alpha I)^{-1} q over all S pairs, no mask

    scale: none
    layout: q [B,T,H,K]; k,v [B,S,HKV,.]; q head h uses k/v head h//(H/HKV); alpha [H]
    reference: Garnelo and Czarnecki 2023
    """
    q, k, v = (swap(y, 1, 2) for y in grouped(x))
    fitted = solve(k.T @ k + x.alpha[:, None, None] * np.eye(q.shape[-1]), k.T @ v)
    return {'o': swap(q @ fitted, 1, 2)}
