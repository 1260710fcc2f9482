"""Recurrences of numbers instead of matrices: every channel decays by itself."""
from __future__ import annotations

import math

import numpy as np

from draws import Draws, exact
from pieces import over_time, state
from registry import Inputs, Outputs, operation
from tape import Tensor, cos, einsum, exp, expm1, maximum, sigmoid, silu, sin, softplus, sqrt, swap, total


@operation(('a_B2_T7_D5', 'b_B1_T72_D48_h0'),
           lambda r: dict(x=r.normal('B T D'), g=r.log_gate('B T D', mean=1.0), h0=state(r, 'B D')), first_seed=1000)
def hgrn(x: Inputs) -> Outputs:
    """h=exp(g)*h+x; o=h

    scale: none
    layout: [B,T,D]
    reference: flash-linear-attention bc3b101d
    """
    def step(h: Tensor, t: int) -> tuple:
        h = exp(x.g[:, t]) * h + x.x[:, t]
        return h, h
    h, o = over_time(x.x.shape[1], x.get('h0', (x.x.shape[0], x.x.shape[2])), step)
    return {'o': o, 'ht': h}


def draw_lru(r: Draws) -> dict:
    D, N = r.sizes['D'], r.sizes['N']
    radius = 0.6 + 0.38 * np.sqrt(r.uniform('N'))
    return dict(x=r.normal('B T D'), nu_log=exact(np.log(-np.log(radius))),
                theta_log=exact(np.log(math.pi * (0.02 + 0.9 * r.uniform('N')))),
                B_re=r.normal('N D', (2 * D) ** -0.5), B_im=r.normal('N D', (2 * D) ** -0.5),
                C_re=r.normal('D N', N ** -0.5), C_im=r.normal('D N', N ** -0.5), D=r.normal('D'),
                h0_re=state(r, 'B N'), h0_im=state(r, 'B N'))


@operation(('a_B2_T7_D3_N4', 'b_B1_T64_D12_N16_h0'), draw_lru)
def lru(x: Inputs) -> Outputs:
    """lambda=exp(-exp(nu_log)+i exp(theta_log)); gamma=sqrt(1-|lambda|^2); h=lambda*h+gamma*(B x); y=Re(C h)+D*x

    scale: none
    layout: x,y [B,T,D]; nu_log,theta_log [N]; B=B_re+i B_im [N,D]; C [D,N]; state h0_re,h0_im [B,N]
    reference: Orvieto et al. 2023
    note: gamma is computed from lambda (and differentiated through); the paper stores it as a separate parameter
      initialised to this value
    """
    nu, theta = exp(x.nu_log), exp(x.theta_log)
    a, b = exp(-nu) * cos(theta), exp(-nu) * sin(theta)
    gamma = sqrt(-expm1(-2.0 * nu))
    u_re, u_im = (x.x @ x.B_re.T) * gamma, (x.x @ x.B_im.T) * gamma

    def step(both: tuple, t: int) -> tuple:
        re, im = both
        re, im = a * re - b * im + u_re[:, t], b * re + a * im + u_im[:, t]
        return (re, im), re @ x.C_re.T - im @ x.C_im.T + x.D * x.x[:, t]
    zero = (x.x.shape[0], x.nu_log.shape[0])
    (re, im), y = over_time(x.x.shape[1], (x.get('h0_re', zero), x.get('h0_im', zero)), step)
    return {'y': y, 'ht_re': re, 'ht_im': im}


def draw_rg_lru(r: Draws) -> dict:
    a = 0.9 + 0.099 * r.uniform('D')
    return dict(x=r.normal('B T D'), r=r.normal('B T D'), i=r.normal('B T D'), Lambda=exact(np.log(a / (1 - a))),
                h0=state(r, 'B D'))


@operation(('a_B2_T7_D5', 'b_B1_T72_D24_h0'), draw_rg_lru)
def rg_lru(x: Inputs) -> Outputs:
    """a_t=sigmoid(Lambda)^(8 sigmoid(r)), i.e. log a_t=-8 sigmoid(r) softplus(-Lambda);
    h=a_t*h+sqrt(1-a_t^2)*(sigmoid(i)*x); o=h

    scale: none
    layout: [B,T,D]; r,i pre-sigmoid gates; Lambda [D]
    reference: Griffin (De et al. 2024)
    note: c=8; sqrt(1-a^2) also at the first token; released code (and the appendix of the paper) has softplus of a
      parameter that is -Lambda here, and replaces the factor by 1 at the first token of a segment
    """
    log_a = -8.0 * sigmoid(x.r) * softplus(-x.Lambda)
    u = sqrt(-expm1(2.0 * log_a)) * sigmoid(x.i) * x.x

    def step(h: Tensor, t: int) -> tuple:
        h = exp(log_a[:, t]) * h + u[:, t]
        return h, h
    h, o = over_time(x.x.shape[1], x.get('h0', (x.x.shape[0], x.x.shape[2])), step)
    return {'o': o, 'ht': h}


def draw_rwkv4(r: Draws) -> dict:
    with_state = 'h0' in r.sizes
    return dict(w=r.normal('C'), u=r.normal('C'), k=r.normal('B T C'), v=r.normal('B T C'), alpha0=state(r, 'B C'),
                beta0=r.uniform('B C', 0.5) if with_state else None, eps0=state(r, 'B C', 0.5))


@operation(('a_B2_T7_C5', 'b_B1_T72_C48_h0'), draw_rwkv4, constant=('eps0',), no_loss=('alpha', 'beta', 'eps'))
def rwkv4(x: Inputs) -> Outputs:
    """wkv with max-exponent stabilisation; decay exp(-exp(w)) per step; fresh state alpha=beta=0, eps=-1e30 (any very
    negative number)

    scale: none
    source: equation of the fused_recurrent kernel (no naive file); plain unstabilised form cross-checked
    reference: flash-linear-attention bc3b101d
    note: loss covers o only (alpha, beta are relative to exp(eps), eps is a running max); initial alpha0,beta0 get
      gradients, eps0 not
    """
    B, T, C = x.k.shape

    def weights(a: Tensor, b: Tensor) -> tuple:
        """exp(a) and exp(b) relative to the larger, and the exponent of that."""
        top = maximum(a, b)
        return exp(a - top), exp(b - top), top

    def step(parts: tuple, t: int) -> tuple:
        alpha, beta, eps = parts
        k, v = x.k[:, t], x.v[:, t]
        old, new, _ = weights(eps, x.u + k)
        answer = (old * alpha + new * v) / (old * beta + new)
        old, new, eps = weights(eps - exp(x.w), k)
        return (old * alpha + new * v, old * beta + new, eps), answer
    lowest = x.eps0 if 'eps0' in x else Tensor(np.full((B, C), -1e30))
    (alpha, beta, eps), o = over_time(T, (x.get('alpha0', (B, C)), x.get('beta0', (B, C)), lowest), step)
    return {'o': o, 'alpha': alpha, 'beta': beta, 'eps': eps}


def draw_mamba1(r: Draws) -> dict:
    poles = np.arange(1, r.sizes['N'] + 1)
    return dict(u=r.normal('B D L'), delta=r.normal('B D L', mean=-1.0),
                A=-exact(poles * np.exp(r.normal('D N', 0.1))), B=r.normal('B N L'), C=r.normal('B N L'),
                D=r.normal('D', 0.1, 1.0), z=r.normal('B D L'), delta_bias=r.normal('D', mean=-2.0))


@operation(('a_B2_D3_L7_N4', 'b_B1_D24_L72_N8'), draw_mamba1)
def mamba1_selective_scan(x: Inputs) -> Outputs:
    """dt=softplus(delta+delta_bias); h=exp(dt A)h+dt B u; y=(C.h+D u)*silu(z); ht before D and z

    scale: none
    layout: u,delta,z [B,D,L]; A [D,N]; B,C [B,N,L] or [B,G,N,L] (channel d uses group d//(D/G)); ht [B,D,N]
    reference: state-spaces/mamba selective_scan_ref
    """
    batch, D, L = x.u.shape
    dt = softplus(x.delta + x.delta_bias[:, None])

    def step(h: Tensor, t: int) -> tuple:
        now = dt[..., t]
        h = exp(now[..., None] * x.A) * h + (now * x.u[..., t])[..., None] * x.B[..., t][:, None]
        return h, einsum('bdn,bn->bd', h, x.C[..., t])
    h, read = over_time(L, Tensor(np.zeros((batch, D, x.A.shape[-1]))), step)
    return {'y': (swap(read, 1, 2) + x.D[:, None] * x.u) * silu(x.z), 'ht': h}


@operation(('a_B2_D3_L7_N4', 'b_B1_D24_L72_N8'), draw_mamba1)
def mamba1_signed(x: Inputs) -> Outputs:
    """dt=softplus(delta+delta_bias); h=(2 exp(dt A)-1)h+dt B u; y=(C.h+D u)*silu(z); ht before D and z

    scale: none
    layout: u,delta,z [B,D,L]; A [D,N]; B,C [B,N,L]; ht [B,D,N]
    reference: Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues (arXiv 2411.12537), Mamba with
      eigenvalues in [-1,1]
    """
    batch, D, L = x.u.shape
    dt = softplus(x.delta + x.delta_bias[:, None])

    def step(h: Tensor, t: int) -> tuple:
        now = dt[..., t]
        factor = 2.0 * exp(now[..., None] * x.A) - 1.0
        h = factor * h + (now * x.u[..., t])[..., None] * x.B[..., t][:, None]
        return h, einsum('bdn,bn->bd', h, x.C[..., t])
    h, read = over_time(L, Tensor(np.zeros((batch, D, x.A.shape[-1]))), step)
    return {'y': (swap(read, 1, 2) + x.D[:, None] * x.u) * silu(x.z), 'ht': h}


def draw_longhorn(r: Draws) -> dict:
    return dict(x=r.normal('B T D'), q=r.normal('B T N'), k=r.normal('B T N'), beta_raw=r.normal('B T D'),
                beta_bias=r.normal('D'), D=r.normal('D', 0.1, 1.0), z=r.normal('B T D'), h0=state(r, 'B D N'))


@operation(('a_B2_T7_D3_N4', 'b_B1_T72_D24_N8_h0'), draw_longhorn)
def longhorn(x: Inputs) -> Outputs:
    """beta=sigmoid(raw+bias); de=beta/(1+beta |k|^2); S=S*(1-de k^2)+(de x)k^T (diagonal approx. of the implicit
    delta rule); y=(S q+D x)*silu(z)

    scale: none
    layout: [B,T,D]; q,k [B,T,N] shared by channels; S [B,D,N]
    reference: Cranial-XIX/longhorn models/longhorn.py step()
    """
    beta = sigmoid(x.beta_raw + x.beta_bias)
    de = beta / (1.0 + beta * total(x.k * x.k, -1, keep=True))

    def step(S: Tensor, t: int) -> tuple:
        k = x.k[:, t][:, None]
        S = S * (1.0 - de[:, t][..., None] * k * k) + (de[:, t] * x.x[:, t])[..., None] * k
        return S, (einsum('bdn,bn->bd', S, x.q[:, t]) + x.D * x.x[:, t]) * silu(x.z[:, t])
    S, y = over_time(x.x.shape[1], x.get('h0', (x.x.shape[0], x.x.shape[2], x.q.shape[-1])), step)
    return {'y': y, 'ht': S}
