"""Memories that are trained inside the forward pass: TTT, Titans, LaCT, Miras, the Omega rule.

Where the equation says "the gradient of the loss", tape.gradients takes it, and it is differentiated once more.
"""
from __future__ import annotations

import math
from typing import Callable, Sequence

import numpy as np

from draws import Draws, exact
from pieces import ask, layer_norm, memory_layer, outer, over_time, per_head, state
from registry import Inputs, Outputs, operation
from tape import (Tensor, absolute, concatenate, exp, gelu, gradients, log, mean, norm, silu, swap, tanh, total,
                  watched, where)

Weights = dict[str, Tensor]
SHORTER = ('a_B2_T7_H1_K3_V5', 'b_B1_T64_H2_K8_V12_h0')
LACT_STEPS = ((4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037),
              (2.8769, -3.1427, 1.2046), (2.8366, -3.0525, 1.2012))
MUON_STEPS = ((3.4445, -4.7750, 2.0315),) * 5


def newton_schulz(G: Tensor, steps: Sequence[tuple[float, float, float]]) -> Tensor:
    """X = G/(|G|_F + 1e-7), transposed if rows > columns; per step X = a X + (b A + c A^2) X, A = X X^T."""
    tall = G.shape[-2] > G.shape[-1]
    X = G.T if tall else G
    X = X / (norm(X, (-1, -2)) + 1e-7)
    for a, b, c in steps:
        A = X @ X.T
        X = a * X + (b * A + c * (A @ A)) @ X
    return X.T if tall else X


def per_batch(W: Tensor, batch: int) -> Tensor:
    """Initial weights [H,...] of every sequence, [B,H,...]."""
    return W * np.ones((batch,) + (1,) * len(W.shape))


def trained(weights: Weights, loss: Callable[[Weights], Tensor]) -> Weights:
    """The gradient of the loss at the weights. Sequences and heads share none, so the loss may sum over them."""
    at = {name: watched(W) for name, W in weights.items()}
    return dict(zip(at, gradients(loss(at), list(at.values()), keep=True)))


# TTT: LN(f(q)) + q with the L2 loss of LN(f(k)) against v - k, mini-batches.

def norm_loss_gradient(z: Tensor, target: Tensor, w: Tensor, b: Tensor, eps: float) -> Tensor:
    """The gradient of |w LN(z) + b - target|^2 / 2 for z."""
    centred = z - mean(z, keep=True)
    deviation = (mean(centred * centred, keep=True) + eps) ** 0.5
    normal = centred / deviation
    g = (w * normal + b - target) * w
    return (g - mean(g, keep=True) - normal * mean(g * normal, keep=True)) / deviation


def gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def gelu_tanh_slope(x: Tensor) -> Tensor:
    """The slope of gelu_tanh with the eight digits that the released code has."""
    t = tanh(0.79788456 * x * (1.0 + 0.044715 * x * x))
    return 0.5 * x * ((1.0 - t * t) * (0.79788456 + 0.1070322243 * x * x)) + 0.5 * (1.0 + t)


def ttt_layer(x: Inputs, names: Sequence[str], batch_step: Callable) -> Outputs:
    """batch_step(weights, q, k, v, step) -> (weights, f(q)), one mini-batch at a time; step is [B,H,n,n]."""
    B, T, H, D = x.q.shape
    q, k, v = (swap(y, 1, 2) for y in (x.q, x.k, x.v))
    rate, size = swap(x.lr, 1, 2), x.option('mini_batch_size')
    w, b = x.ln_w[:, None], x.ln_b[:, None]
    weights, answers = [per_batch(getattr(x, name), B) for name in names], []
    for begin in range(0, T, size):
        part = slice(begin, min(begin + size, T))
        n = part.stop - begin
        step = x.token_eta[:n][:, None] * rate[:, :, part][:, :, None] * np.tril(np.ones((n, n)))
        weights, z = batch_step(weights, q[:, :, part], k[:, :, part], v[:, :, part], step, (w, b))
        answers.append(q[:, :, part] + layer_norm(z, 1e-6) * w + b)
    return dict({'o': swap(concatenate(answers, 2), 1, 2)}, **{f'{n}_t': W for n, W in zip(names, weights)})


def read_and_write(W: Tensor, b: Tensor, seen: Tensor, d: Tensor, asked: Tensor, step: Tensor) -> tuple:
    """asked (W_t, b_t) with W_t = W - sum_s step_ts seen_s^T d_s for every row t; and the last W and b."""
    answers = asked @ W + b - (step * (asked @ seen.T)) @ d - step @ d
    last = step[:, :, -1][..., None]
    return answers, W - seen.T @ (last * d), b - total(last * d, -2, keep=True)


def draw_ttt(r: Draws, wide: bool) -> dict:
    D, F = r.sizes['D'], '4*D' if wide else 'D'
    token = 1 / np.arange(1, r.sizes['mb'] + 1)
    drawn = dict(q=r.normal('B T H D'), k=r.normal('B T H D'), v=r.normal('B T H D'), lr=r.sigmoid('B T H', 1 / D),
                 token_eta=exact(np.maximum(token + r.normal('mb', 0.02), 0.0)), ln_w=r.normal('H D', 0.1, 1.0),
                 ln_b=r.normal('H D', 0.1), W1=r.normal(f'H D {F}', 0.2), b1=r.normal(f'H 1 {F}', 0.1))
    return dict(drawn, W2=r.normal(f'H {F} D', 0.2), b2=r.normal('H 1 D', 0.1)) if wide else drawn


@operation({'a_B2_T8_H1_D4_mb8': {'mini_batch_size': 8}, 'b_B1_T72_H2_D12_mb16': {'mini_batch_size': 16}},
           lambda r: draw_ttt(r, False))
def ttt_linear(x: Inputs) -> Outputs:
    """z=kW1+b1; target v-k; d=LN-L2 backward; effective step eta_ts=token_eta_t*lr_s; W_t=W_0-sum_{s<=t} eta_ts
    grad_s within a mini-batch, last row carried; out=q+LN(f_t(q))

    scale: none
    layout: lr [B,T,H] (=base_lr*sigmoid/head_dim), token_eta [mb] (=max(1/(i+1)+learnable,0)), W1 [H,D,F] shared
      initial value, final states [B,H,..]
    reference: test-time-training/ttt-lm-pytorch dual form
    note: q,k already rotated; a trailing partial mini-batch is one smaller mini-batch and its token_eta starts at
      index 0; out.*_t are the states after the last (maybe partial) mini-batch; gelu_bwd in the reference uses
      8-digit constants 0.79788456, 0.1070322243, so grads of gelu agree with exact tanh-gelu only to ~1e-8
    """
    def batch_step(weights: list, q: Tensor, k: Tensor, v: Tensor, step: Tensor, affine: tuple) -> tuple:
        W, b = weights
        d = norm_loss_gradient(k @ W + b, v - k, *affine, 1e-6)
        z, W, b = read_and_write(W, b, k, d, q, step)
        return [W, b], z
    return ttt_layer(x, ('W1', 'b1'), batch_step)


@operation({'a_B2_T8_H1_D4_mb8': {'mini_batch_size': 8}, 'b_B1_T72_H2_D8_mb16': {'mini_batch_size': 16}},
           lambda r: draw_ttt(r, True))
def ttt_mlp(x: Inputs) -> Outputs:
    """z1=kW1+b1; x2=gelu_tanh(z1); z2=x2W2+b2; target v-k; d=LN-L2 backward; effective step eta_ts=token_eta_t*lr_s;
    W_t=W_0-sum_{s<=t} eta_ts grad_s within a mini-batch, last row carried; out=q+LN(f_t(q))

    scale: none
    layout: lr [B,T,H] (=base_lr*sigmoid/head_dim), token_eta [mb] (=max(1/(i+1)+learnable,0)), W1 [H,D,F] shared
      initial value, final states [B,H,..]
    reference: test-time-training/ttt-lm-pytorch dual form
    note: q,k already rotated; a trailing partial mini-batch is one smaller mini-batch and its token_eta starts at
      index 0; out.*_t are the states after the last (maybe partial) mini-batch; gelu_bwd in the reference uses
      8-digit constants 0.79788456, 0.1070322243, so grads of gelu agree with exact tanh-gelu only to ~1e-8
    """
    def batch_step(weights: list, q: Tensor, k: Tensor, v: Tensor, step: Tensor, affine: tuple) -> tuple:
        W1, b1, W2, b2 = weights
        z1 = k @ W1 + b1
        hidden = gelu_tanh(z1)
        d2 = norm_loss_gradient(hidden @ W2 + b2, v - k, *affine, 1e-6)
        d1 = (d2 @ W2.T) * gelu_tanh_slope(z1)
        asked, W1, b1 = read_and_write(W1, b1, k, d1, q, step)
        z2, W2, b2 = read_and_write(W2, b2, hidden, d2, gelu_tanh(asked), step)
        return [W1, b1, W2, b2], z2
    return ttt_layer(x, ('W1', 'b1', 'W2', 'b2'), batch_step)


def draw_ttt_last(r: Draws) -> dict:
    return dict(q=r.normal('B T H K'), k=r.unit('B T H K'), v=r.normal('B T H V'), w=r.normal('H K', 0.1, 1.0),
                b=r.normal('H K', 0.1), eta=r.sigmoid('B T H 1', 0.3), h0=state(r, 'B H K V', 0.3),
                hb0=state(r, 'B H 1 V', 0.1))


@operation({'a_B2_T8_H1_K4_V4_mb4': {'mini_batch_size': 4, 'eps': 1e-6},
            'b_B1_T64_H2_K12_V12_h0_mb16': {'mini_batch_size': 16, 'eps': 1e-6}}, draw_ttt_last, first_seed=1000)
def ttt_linear_fla(x: Inputs) -> Outputs:
    """per mini-batch: z=kW+bias; d=LNbwd(w*(w z^+b-(v-k))); o_t=q_t W+bias-eta_t sum_{s<=t}(q_t.k_s+1)d_s;
    W-=eta_last K^T d; bias-=eta_last sum d; out=o+LN(o)w+b

    scale: D^-0.5 on q
    layout: w,b [H,D]; eta [B,T,H,1]; state [B,H,D,D], bias [B,H,1,D]
    reference: flash-linear-attention bc3b101d
    note: eta_t belongs to the QUERY row and eta_last (last token of the mini-batch) scales the whole state update; T
      not a multiple of mb is zero padded and then the reference final bias is polluted by the padding, so case c
      records o only
    """
    B, T, H, D = x.q.shape
    q, k, v, eta = (swap(y, 1, 2) for y in (x.q * D ** -0.5, x.k, x.v, x.eta))
    W, bias = x.get('h0', (B, H, D, D)), x.get('hb0', (B, H, 1, D))
    w, b, size, eps = x.w[:, None], x.b[:, None], x.option('mini_batch_size'), x.option('eps')
    answers = []
    for begin in range(0, T, size):
        part = slice(begin, begin + size)
        qs, ks, vs, step = q[:, :, part], k[:, :, part], v[:, :, part], eta[:, :, part]
        d = norm_loss_gradient(ks @ W + bias, vs - ks, w, b, eps)
        o = qs @ W + bias - step * (((qs @ ks.T + 1.0) * np.tril(np.ones((size, size)))) @ d)
        last = step[:, :, -1:]
        W, bias = W - last * (ks.T @ d), bias - last * total(d, -2, keep=True)
        answers.append(o + layer_norm(o, eps) * w + b)
    return {'o': swap(concatenate(answers, 2), 1, 2), 'ht': W, 'hbt': bias}


# Titans

def titans_layer(x: Inputs, depth: int) -> Outputs:
    """The memory LN(mlp(x)) (gamma+1) + x, gradients at the weights of the start or of the last multiple of batch_size,
    momentum and decay once a chunk."""
    B, T, H, D = x.q.shape
    C, batch = x.option('chunk_size'), x.option('batch_size')
    names = ['gamma'] + [f'W{i}' for i in range(depth)]
    q, k, v, rate = (swap(y, 1, 2) for y in (x.q, x.k, x.v, x.lr))

    def f(weights: Weights, y: Tensor) -> Tensor:
        z = y
        for i in range(depth):
            z = (gelu(z) if i else z) @ weights[f'W{i}']
        return layer_norm(z) * (weights['gamma'][:, :, None] + 1.0) + y
    first = {name: per_batch(getattr(x, name), B) for name in names}
    base, M, S, answers = first, first, {name: 0.0 * W for name, W in first.items()}, []
    for n in range(T // C + 1):  # tokens whose index plus one, divided by C, is n read M_n
        asked = q[:, :, max(n * C - 1, 0):min((n + 1) * C - 1, T)]
        if asked.shape[2]:
            answers.append(f(M, asked))
        if n == T // C:
            break
        part = slice(n * C, (n + 1) * C)
        if batch and n * C % batch == 0:
            base = M

        def loss(weights: Weights, part: slice = part) -> Tensor:
            error = f(weights, k[:, :, part]) - v[:, :, part]
            return total(rate[:, :, part] * mean(error * error))
        G = trained(base, loss)

        def shaped(gate: Tensor, like: Tensor) -> Tensor:
            return gate[(...,) + (None,) * (len(like.shape) - 2)]
        S = {name: shaped(x.eta[:, n], s) * s - G[name] for name, s in S.items()}
        M = {name: shaped(1.0 - x.alpha[:, n], m) * m + S[name] for name, m in M.items()}
    return dict({'o': swap(concatenate(answers, 2), 1, 2)}, **{f'{name}_t': M[name] for name in names},
                **{f'S_{name}_t': S[name] for name in names})


def draw_titans(r: Draws, depth: int) -> dict:
    D = r.sizes['D']
    drawn = dict(q=r.normal('B T H D'), k=r.normal('B T H D'), v=r.normal('B T H D'), lr=r.sigmoid('B T H'),
                 eta=r.sigmoid('B T/C H'), alpha=r.sigmoid('B T/C H', 0.5), gamma=r.normal('H D', 0.1))
    if depth == 1:
        return dict(drawn, W0=r.normal('H D D', D ** -0.5))
    return dict(drawn, W0=r.normal('H D 2*D', D ** -0.5), W1=r.normal('H 2*D D', (2 * D) ** -0.5))


def titans_cases(depth: int) -> dict:
    return {'a_B2_T8_H1_D4_C1': {'chunk_size': 1, 'batch_size': None, 'depth': depth},
            'b_B1_T36_H2_D8_C4': {'chunk_size': 4, 'batch_size': None, 'depth': depth},
            'c_B1_T14_H1_D4_C2_b6': {'chunk_size': 2, 'batch_size': 6, 'depth': depth}}


@operation(titans_cases(1), lambda r: draw_titans(r, 1), first_seed=1000)
def titans_memory_depth1(x: Inputs) -> Outputs:
    """f(x)=LN(mlp(x))*(gamma+1)+x (LN eps 1e-5 no affine; erf gelu between layers); per chunk n: g=grad_theta sum_t
    lr_t mean_d (f(k)-v)^2 at theta_base; S=eta_n S-g; M=(1-alpha_n)M+S; o_t=f_{M_{floor((t+1)/C)}}(q_t),
    M_0=theta_0

    scale: none
    layout: lr [B,T,H]; eta (momentum), alpha (decay) [B,T/C,H]; W_i [H,in,out], gamma [H,D] are memory parameters and
      are ALL updated (gamma too)
    reference: lucidrains/titans-pytorch neural_memory.py, reduced to equations (package itself needs torch>=2)
    note: theta_base = theta_0 for the whole sequence when batch_size is None, else refreshed to M at multiples of
      batch_size; decay pulls towards 0 not towards theta_0; only whole chunks are stored (T mod C tail reads only)
    """
    return titans_layer(x, 1)


@operation(titans_cases(2), lambda r: draw_titans(r, 2), first_seed=1000)
def titans_memory_depth2(x: Inputs) -> Outputs:
    """f(x)=LN(mlp(x))*(gamma+1)+x (LN eps 1e-5 no affine; erf gelu between layers); per chunk n: g=grad_theta sum_t
    lr_t mean_d (f(k)-v)^2 at theta_base; S=eta_n S-g; M=(1-alpha_n)M+S; o_t=f_{M_{floor((t+1)/C)}}(q_t),
    M_0=theta_0

    scale: none
    layout: lr [B,T,H]; eta (momentum), alpha (decay) [B,T/C,H]; W_i [H,in,out], gamma [H,D] are memory parameters and
      are ALL updated (gamma too)
    reference: lucidrains/titans-pytorch neural_memory.py, reduced to equations (package itself needs torch>=2)
    note: theta_base = theta_0 for the whole sequence when batch_size is None, else refreshed to M at multiples of
      batch_size; decay pulls towards 0 not towards theta_0; only whole chunks are stored (T mod C tail reads only)
    """
    return titans_layer(x, 2)


def chunk_gradient_layer(x: Inputs, weights: Weights, momentum: Weights,
                         f: Callable[[Weights, Tensor], Tensor]) -> tuple[Tensor, Weights, Weights]:
    """G_t = gradient of |f(k_t) - v_t|^2 at the weights A of the start of the chunk; S = eta S - theta G;
    W = (1 - alpha) W + S; o_t = f(q_t). f takes rows [B,H,1,K]."""
    def step(parts: tuple, t: int) -> tuple:
        A, W, S = parts
        A = W if t % x.option('chunk_size') == 0 else A

        def loss(weights: Weights) -> Tensor:
            error = f(weights, x.k[:, t][:, :, None]) - x.v[:, t][:, :, None]
            return total(error * error)
        G = trained(A, loss)
        S = {n: per_head(x.eta[:, t]) * s - per_head(x.theta[:, t]) * G[n] for n, s in S.items()}
        W = {n: per_head(1.0 - x.alpha[:, t]) * w + S[n] for n, w in W.items()}
        return (A, W, S), f(W, x.q[:, t][:, :, None])[:, :, 0]
    (_, W, S), o = over_time(x.q.shape[1], (weights, weights, momentum), step)
    return o, W, S


@operation({'a_B2_T7_H1_K3_V5_C3': {'chunk_size': 3}, 'b_B1_T48_H2_K8_V12_h0_C16': {'chunk_size': 16}},
           lambda r: dict(q=r.normal('B T H K'), k=r.unit('B T H K'), v=r.normal('B T H V'),
                          theta=r.sigmoid('B T H', 0.2), eta=r.uniform('B T H', 0.1, 0.8),
                          alpha=r.sigmoid('B T H', 0.2), h0=state(r, std=0.5), s0=state(r, std=0.2)))
def titans_chunked_linear(x: Inputs) -> Outputs:
    """G_t=2 k_t(A^T k_t-v_t)^T with A=M at the start of the chunk of C tokens; S=eta_t S-theta_t G_t;
    M=(1-alpha_t)M+S; o_t=M_t^T q_t

    scale: none
    gate: theta (step), eta (momentum), alpha (decay) [B,T,H] per token
    norm: unit k
    reference: Titans (arXiv 2501.00663), linear memory
    note: loss |M^T k-v|^2 (factor 2); momentum and decay act at every token, only the gradient is frozen at the chunk
      start; a last partial chunk is learned like the others
    """
    B, _, H, K = x.q.shape
    zero = (B, H, K, x.v.shape[-1])
    o, W, S = chunk_gradient_layer(x, {'M': x.get('h0', zero)}, {'M': x.get('s0', zero)}, lambda W, y: y @ W['M'])
    return {'o': o, 'ht': W['M'], 'st': S['M']}


@operation({'a_B2_T7_H1_K3_V5_Dh4_C3': {'chunk_size': 3}, 'b_B1_T48_H2_K8_V8_Dh12_C16': {'chunk_size': 16}},
           lambda r: dict(q=r.normal('B T H K'), k=r.unit('B T H K'), v=r.normal('B T H V'),
                          theta=r.sigmoid('B T H', 0.06), eta=r.uniform('B T H', 0.1, 0.6),
                          alpha=r.sigmoid('B T H', 0.1), W0=r.normal('H K Dh', r.sizes['K'] ** -0.5),
                          W1=r.normal('H Dh V', r.sizes['Dh'] ** -0.5)))
def titans_chunked_mlp(x: Inputs) -> Outputs:
    """f(x)=gelu(x W0) W1 (erf gelu, no residual, no norm); G_t=grad of |f(k_t)-v_t|^2 at the W of the start of the
    chunk of C tokens; S=eta_t S-theta_t G_t; W=(1-alpha_t)W+S; o_t=f_{W_t}(q_t)

    scale: none
    gate: theta (step), eta (momentum), alpha (decay) [B,T,H] per token
    norm: unit k
    layout: W0 [H,K,Dh], W1 [H,Dh,V] (in,out) initial values; final W and momentum S [B,H,..]
    reference: Titans (arXiv 2501.00663), plain two-layer memory
    note: momentum starts at 0; momentum and decay act at every token, only the gradient is frozen at the chunk start;
      a last partial chunk is learned like the others
    """
    first = {name: per_batch(getattr(x, name), x.q.shape[0]) for name in ('W0', 'W1')}
    o, W, S = chunk_gradient_layer(x, first, {name: 0.0 * w for name, w in first.items()},
                                   lambda W, y: gelu(y @ W['W0']) @ W['W1'])
    return dict({'o': o}, **{f'{n}_t': w for n, w in W.items()}, **{f'S_{n}_t': s for n, s in S.items()})


# LaCT

def draw_lact(r: Draws) -> dict:
    K, Dh = r.sizes['K'], r.sizes['Dh']
    return dict(q=r.normal('B T H K'), k=r.normal('B T H K'), v=r.normal('B T H V'), lr0=r.softplus('B T H', 0.3),
                lr1=r.softplus('B T H', 0.3), lr2=r.softplus('B T H', 0.3), mom=r.sigmoid('B T H'),
                W0=r.normal('H Dh K', K ** -0.5), W1=r.normal('H V Dh', Dh ** -0.5), W2=r.normal('H Dh K', K ** -0.5))


@operation({'a_B2_T11_H1_K3_V5_Dh4_C5_ns': {'chunk_size': 5, 'newton_schulz': 'yes'},
            'a2_B2_T9_H1_K3_V5_Dh4_C3': {'chunk_size': 3, 'newton_schulz': 'no'},
            'b_B1_T48_H2_K8_V8_Dh12_C16_ns': {'chunk_size': 16, 'newton_schulz': 'yes'}}, draw_lact)
def lact(x: Inputs) -> Outputs:
    """f(x)=W1(silu(W0 x)*(W2 x)); per chunk of C tokens: first o=f(q) with the current W, then G_i=sum_t lr_i,t
    d(f(k_t).v_t)/dW_i at the current W; M_i=G_i+mean_chunk(mom) M_i; W_i=W_i+NS5(M_i) (or +M_i); each row of W_i
    rescaled: W/(|row|+1e-5)*(norm of that row in the initial W_i)

    scale: none
    layout: W0,W2 [H,Dh,K], W1 [H,V,Dh] (out,in); lr0,lr1,lr2,mom [B,T,H]; final W [B,H,..]
    reference: LaCT (arXiv 2505.23884), block_causal_lact_swiglu
    note: the last chunk (1..C tokens, also when T is a multiple of C) is read only, never learned; momentum starts at
      0, is stored before NS5; NS5: X=G/(|G|_F+1e-7), transposed if rows>cols, five steps X=aX+(bA+cA^2)X, A=XX^T,
      (a,b,c)=(4.0848,-6.8946,2.9270), (3.9505,-6.3029,2.6377), (3.7418,-5.5913,2.3037),
      (2.8769,-3.1427,1.2046), (2.8366,-3.0525,1.2012),
      all in float64
    """
    names, C = ('W0', 'W1', 'W2'), x.option('chunk_size')
    q, k, v, momentum = (swap(y, 1, 2) for y in (x.q, x.k, x.v, x.mom))
    rates = {name: swap(getattr(x, 'lr' + name[1]), 1, 2) for name in names}

    def f(W: Weights, y: Tensor) -> Tensor:
        return (silu(y @ W['W0'].T) * (y @ W['W2'].T)) @ W['W1'].T
    W = {name: per_batch(getattr(x, name), x.q.shape[0]) for name in names}
    lengths = {name: norm(w) for name, w in W.items()}
    M, answers, begin = {name: 0.0 * w for name, w in W.items()}, [], 0
    for begin in range(0, q.shape[2], C):
        part = slice(begin, begin + C)
        answers.append(f(W, q[:, :, part]))
        if begin + C >= q.shape[2]:  # the last chunk is only read
            break
        kept = mean(momentum[:, :, part])[..., None, None]

        def gain(weights: Weights, name: str, part: slice = part) -> Tensor:
            return total(rates[name][:, :, part] * total(f(weights, k[:, :, part]) * v[:, :, part], -1))
        M = {name: trained(W, lambda w, name=name: gain(w, name))[name] + kept * M[name] for name in names}
        moved = {name: W[name] + (newton_schulz(M[name], LACT_STEPS) if x.option('newton_schulz') == 'yes'
                                  else M[name]) for name in names}
        W = {name: w / (norm(w) + 1e-5) * lengths[name] for name, w in moved.items()}
    return dict({'o': swap(concatenate(answers, 2), 1, 2)}, **{f'{name}_t': w for name, w in W.items()})


# Miras with a linear memory

def yaad(x: Inputs, bounded: Callable[[Tensor, Tensor], Tensor]) -> Outputs:
    """e = S^T k - v; S = exp(g) S - eta k bounded(e, delta)^T; o = S^T q."""
    def update(S: Tensor, t: int) -> Tensor:
        r = bounded(ask(S, x.k[:, t]) - x.v[:, t], x.delta[:, t][..., None])
        return per_head(exp(x.g[:, t])) * S - per_head(x.eta[:, t]) * outer(x.k[:, t], r)
    return memory_layer(x, update, x.q, x.v)


def yaad_inputs(threshold: Callable[[int], float]) -> Callable[[Draws], dict]:
    """delta is threshold(V) (0.5 + uniform)."""
    def draw(r: Draws) -> dict:
        return dict(q=r.normal('B T H K'), k=r.unit('B T H K'), v=r.normal('B T H V'),
                    g=r.log_gate('B T H', mean=3.0), eta=r.sigmoid('B T H'),
                    delta=r.scaled_uniform('B T H', 0.5, threshold(r.sizes['V'])), h0=state(r, std=0.5))
    return draw


def of_length(width: int) -> float:
    """A threshold that about half of the residuals of that width pass."""
    return 1.6 * {5: 1.2, 12: 1.8}.get(width, 0.5 * math.sqrt(width))


@operation(SHORTER, yaad_inputs(of_length))
def miras_yaad(x: Inputs) -> Outputs:
    """e=S_{t-1}^T k-v; r=e if |e|_2<=delta else delta e/|e|_2; S=exp(g)S-eta k r^T; o=S^T q

    scale: none
    gate: g [B,T,H] natural log of the retention alpha; eta step, delta threshold [B,T,H]
    norm: unit k
    reference: Miras (arXiv 2504.13173), Huber attentional bias
    note: linear memory; gradient of the Huber function of |e|_2 (1/2 a^2, then delta(|a|-delta/2)): continuous at the
      threshold
    """
    return yaad(x, lambda e, delta: where(norm(e).value <= delta.value, e, e * (delta / norm(e))))


@operation(SHORTER, yaad_inputs(lambda width: 0.8))
def miras_yaad_coord(x: Inputs) -> Outputs:
    """e=S_{t-1}^T k-v; r=clip(e,-delta,delta) per coordinate; S=exp(g)S-eta k r^T; o=S^T q

    scale: none
    gate: g [B,T,H] natural log of the retention alpha; eta step, delta threshold [B,T,H]
    norm: unit k
    reference: Miras (arXiv 2504.13173), Huber attentional bias
    note: linear memory; gradient of the coordinatewise Huber loss
    """
    return yaad(x, lambda e, delta: where(np.abs(e.value) <= delta.value, e, delta * np.sign(e.value)))


@operation(SHORTER, yaad_inputs(of_length))
def miras_yaad_l1(x: Inputs) -> Outputs:
    """e=S_{t-1}^T k-v; r=e if |e|_2<=delta else delta sign(e); S=exp(g)S-eta k r^T; o=S^T q

    scale: none
    gate: g [B,T,H] natural log of the retention alpha; eta step, delta threshold [B,T,H]
    norm: unit k
    reference: Miras (arXiv 2504.13173), Huber attentional bias
    note: linear memory; mixture used in the Yaad update: l2 gradient below the threshold, delta times the l1 gradient
      above (jumps at the threshold)
    """
    return yaad(x, lambda e, delta: where(norm(e).value <= delta.value, e, delta * np.sign(e.value)))


@operation({'a_B2_T7_H1_K3_V5_h0_p3_q4': {'p': 3, 'q_norm': 4}, 'b_B1_T64_H2_K8_V12_h0_p3_q4': {'p': 3, 'q_norm': 4}},
           lambda r: dict(q=r.normal('B T H K'), k=r.unit('B T H K'), v=r.normal('B T H V'),
                          g=r.log_gate('B T H', mean=4.0), eta=r.sigmoid('B T H', 0.2), A0=r.normal('B H K V')))
def miras_moneta(x: Inputs) -> Outputs:
    """W=A/|A|_q^{q-2} (|.|_q over the whole K x V matrix); e=W_{t-1}^T k-v; A=exp(g)A-eta k (p sign(e)|e|^{p-1})^T;
    o=W_t^T q

    scale: none
    gate: g [B,T,H] natural log of the retention alpha; eta step [B,T,H]
    norm: unit k
    reference: Miras (arXiv 2504.13173) Eq. 24-25, Moneta
    note: linear memory; exact sign and power, no smoothing; A0 must not be zero (W undefined), so it is given in
      every case; step once per token
    """
    p, q = x.option('p'), x.option('q_norm')

    def memory(A: Tensor) -> Tensor:
        return A / total(absolute(A) ** q, (-1, -2), keep=True) ** ((q - 2) / q)

    def step(A: Tensor, t: int) -> tuple:
        e = ask(memory(A), x.k[:, t]) - x.v[:, t]
        slope = p * np.sign(e.value) * absolute(e) ** (p - 1)
        A = per_head(exp(x.g[:, t])) * A - per_head(x.eta[:, t]) * outer(x.k[:, t], slope)
        return A, ask(memory(A), x.q[:, t])
    A, o = over_time(x.q.shape[1], x.A0, step)
    return {'o': o, 'At': A}


@operation({'a_B2_T7_H1_K3_V5_h0_c1': {'radius': 1}, 'b_B1_T64_H2_K8_V12_h0_c20': {'radius': 20}},
           lambda r: dict(q=r.normal('B T H K'), k=r.unit('B T H K'), v=r.normal('B T H V'),
                          g=r.log_gate('B T H', mean=4.0), eta=r.sigmoid('B T H'), A0=r.normal('B H K V')))
def miras_memora(x: Inputs) -> Outputs:
    """W_0=c softmax(A0) over the whole K x V matrix; e=W_{t-1}^T k-v;
    W_t=c softmax(exp(g) log W_{t-1}-eta k e^T); o=W_t^T q

    scale: none
    gate: g [B,T,H] natural log of the retention alpha; eta step [B,T,H]; radius: c
    norm: unit k
    reference: Miras (arXiv 2504.13173), Memora: KL retention, squared attentional bias
    note: linear memory; W itself is carried, as the paper writes it. At is what A is after the last token, where
      A_t=exp(g)A-eta k e^T starts at A0: log W without the numbers that all entries share
    """
    c = x.option('radius')

    def softmax_of_all(A: Tensor) -> Tensor:
        e = exp(A - np.max(A.value, axis=(-1, -2), keepdims=True))
        return c * e / total(e, (-1, -2), keep=True)

    def step(state: tuple, t: int) -> tuple:
        W, A = state
        slope = per_head(x.eta[:, t]) * outer(x.k[:, t], ask(W, x.k[:, t]) - x.v[:, t])
        alpha = per_head(exp(x.g[:, t]))
        W, A = softmax_of_all(alpha * log(W) - slope), alpha * A - slope
        return (W, A), ask(W, x.q[:, t])
    (_, A), o = over_time(x.q.shape[1], (softmax_of_all(x.A0), x.A0), step)
    return {'o': o, 'At': A}


# The Omega rule

def omega_layer(x: Inputs, moved: Callable[[Tensor], Tensor]) -> Outputs:
    """G = sum over the window of gamma k (M^T k - v)^T; S = theta S - eta G; M = exp(g) M + moved(S); o = M^T q."""
    B, T, H, K = x.q.shape
    k, v, gamma = (swap(x.after(name), 1, 2) for name in ('k', 'v', 'gamma'))
    before = k.shape[2] - T

    def step(both: tuple, t: int) -> tuple:
        M, S = both
        end = t + before + 1
        window = slice(max(0, end - x.option('window')), end)
        error = k[:, :, window] @ M - v[:, :, window]
        G = k[:, :, window].T @ (gamma[:, :, window][..., None] * error)
        S = per_head(x.theta[:, t]) * S - per_head(x.eta[:, t]) * G
        M = per_head(exp(x.g[:, t])) * M + moved(S)
        return (M, S), ask(M, x.q[:, t])
    zero = (B, H, K, x.v.shape[-1])
    (M, S), o = over_time(T, (x.get('h0', zero), x.get('s0', zero)), step)
    return {'o': o, 'ht': M, 'st': S}


OMEGA = {'a_B2_T7_H1_K3_V5_win3': {'window': 3}, 'b_B1_T48_H2_K8_V10_h0_win5': {'window': 5}}


def omega_inputs(std: float, gate: float) -> Callable[[Draws], dict]:
    """Values of that size, and a gate whose sigmoid has that mean."""
    def draw(r: Draws) -> dict:
        past = 'h0' in r.sizes
        return dict(q=r.normal('B T H K'), k=r.unit('B T H K'), v=r.normal('B T H V', std), gamma=r.sigmoid('B T H'),
                    g=r.log_gate('B T H', mean=gate), eta=r.sigmoid('B T H', 0.3), theta=r.sigmoid('B T H', 0.8),
                    h0=state(r, std=0.5), s0=state(r, std=0.3), k0=r.unit('B win-1 H K') if past else None,
                    v0=r.normal('B win-1 H V', std) if past else None,
                    gamma0=r.sigmoid('B win-1 H') if past else None)
    return draw


@operation(OMEGA, omega_inputs(1.0, 3.0))
def omega_rule(x: Inputs) -> Outputs:
    """G=sum over the last c pairs of gamma_i k_i(M_{t-1}^T k_i-v_i)^T; S=theta S-eta G; M=exp(g)M+S; o=M^T q

    scale: none
    gate: g [B,T,H] natural log of the retention; gamma (weight of a pair), eta (step), theta (momentum) [B,T,H]
    norm: unit k
    layout: M,S [B,H,K,V]; k0,v0,gamma0 = the c-1 pairs before the first token, oldest first (absent: shorter windows
      at the start)
    reference: ATLAS Omega rule (arXiv 2505.23735)
    note: linear memory; loss 1/2|.|^2 (no factor 2)
    """
    return omega_layer(x, lambda S: S)


@operation(OMEGA, omega_inputs(8.0, 1.0))
def omega_rule_muon(x: Inputs) -> Outputs:
    """G=sum over the last c pairs of gamma_i k_i(M_{t-1}^T k_i-v_i)^T; S=theta S-eta G; M=exp(g)M+NS5(S); o=M^T q

    scale: none
    gate: g [B,T,H] natural log of the retention; gamma (weight of a pair), eta (step), theta (momentum) [B,T,H]
    norm: unit k
    layout: M,S [B,H,K,V]; k0,v0,gamma0 = the c-1 pairs before the first token, oldest first (absent: shorter windows
      at the start)
    reference: ATLAS Omega rule (arXiv 2505.23735)
    note: linear memory; loss 1/2|.|^2 (no factor 2); NS5: X=S/(|S|_F+1e-7), transposed if rows>cols, five steps
      X=aX+(bA+cA^2)X, A=XX^T, (a,b,c)=(3.4445,-4.7750,2.0315), in float64; S stored before NS5
    """
    return omega_layer(x, lambda S: newton_schulz(S, MUON_STEPS))
