"""What is done to vectors before and after a memory: feature maps, norms, short convolution, gated norms."""
from __future__ import annotations

import math

import numpy as np

from draws import Draws, exact
from pieces import layer_norm, rms_norm, unit
from registry import Arrays, Inputs, Outputs, operation
from tape import Tensor, concatenate, cos, einsum, exp, relu, sigmoid, silu, sin, softmax, sqrt, total, where

CASES = ('a_B2_T7_H1_K3', 'b_B1_T48_H2_K8')
NARROW = ('a_B2_T7_H1_K3', 'b_B1_T48_H2_K6')
RANDOM = {'a_B2_T7_H1_K3_m4': {'m': 4}, 'b_B1_T48_H2_K8_m16': {'m': 16}}


def draw_x(r: Draws) -> Arrays:
    return dict(x=r.normal('B T H K'))


def elu_plus_one(x: Tensor) -> Tensor:
    """x + 1 above 0, exp(x) below."""
    return where(x.value > 0, x + 1.0, exp(where(x.value > 0, 0.0, x)))


def favor_features(x: Tensor, W: Tensor) -> Tensor:
    """m^-1/2 (exp(W y - |y|^2 / 2) + 1e-4), y = x / D^1/4."""
    y = x * x.shape[-1] ** -0.25
    return (exp(y @ W.T - total(y * y, -1, keep=True) * 0.5) + 1e-4) / math.sqrt(W.shape[0])


def fourier_features(x: Tensor, W: Tensor) -> Tensor:
    """m^-1/2 [sin(W x); cos(W x)]."""
    y = x @ W.T
    return concatenate([sin(y), cos(y)], -1) / math.sqrt(W.shape[0])


def per_head_linear(x: Inputs) -> Tensor:
    """W x + b with the W [H,out,in] and b [H,out] of every head."""
    return einsum('bthd,hmd->bthm', x.x, x.W) + x.b


def products(x: Tensor) -> Tensor:
    """x_i x_j for i < j, row by row."""
    i, j = np.triu_indices(x.shape[-1], 1)
    return x[..., i] * x[..., j]


@operation(CASES, draw_x)
def feature_map_elu1(x: Inputs) -> Outputs:
    """phi_i = x_i+1 if x_i>0 else exp(x_i)

    scale: none
    layout: x [B,T,H,D] -> phi [B,T,H,F]
    reference: Katharopoulos et al. 2020
    """
    return {'phi': elu_plus_one(x.x)}


@operation(CASES, draw_x)
def feature_map_relu(x: Inputs) -> Outputs:
    """phi_i = max(x_i,0)

    scale: none
    layout: x [B,T,H,D] -> phi [B,T,H,F]
    """
    return {'phi': relu(x.x)}


@operation(CASES, draw_x)
def feature_map_silu(x: Inputs) -> Outputs:
    """phi_i = x_i sigmoid(x_i)

    scale: none
    layout: x [B,T,H,D] -> phi [B,T,H,F]
    note: not positive: no key-sum normaliser
    """
    return {'phi': silu(x.x)}


@operation({'a_B2_T7_H1_K3_m4': {'m': 4}, 'b_B1_T48_H2_K8_m12': {'m': 12}},
           lambda r: dict(draw_x(r), W=r.normal('H m K', r.sizes['K'] ** -0.5), b=r.normal('H m', 0.3)))
def feature_map_t2r(x: Inputs) -> Outputs:
    """phi = relu(W x + b)

    scale: none
    layout: W [H,m,D] (out,in), b [H,m], learned per head
    reference: Kasai et al. 2021 (with bias)
    """
    return {'phi': relu(per_head_linear(x))}


@operation({'a_B2_T7_H1_K3_L16': {'L_max': 16, 'position_offset': 0},
            'b_B1_T48_H2_K8_L64': {'L_max': 64, 'position_offset': 5}}, draw_x)
def feature_map_cosformer(x: Inputs) -> Outputs:
    """phi = [relu(x_t) cos(pi i/(2 L_max)); relu(x_t) sin(pi i/(2 L_max))], i = position_offset+t, t=1..T

    scale: none
    layout: x [B,T,H,D] -> phi [B,T,H,F]
    reference: Qin et al. 2022
    note: L_max fixed instead of the sequence length, so that the map can stream; cos block first (released code: sin
      first, same kernel)
    """
    position = x.option('position_offset') + np.arange(1, x.x.shape[1] + 1)
    angle = (math.pi * position / (2 * x.option('L_max')))[:, None, None]
    return {'phi': concatenate([relu(x.x) * np.cos(angle), relu(x.x) * np.sin(angle)], -1)}


@operation({'a_B2_T7_H1_K3_nu1': {'nu': 1}, 'b_B1_T48_H2_K6_nu3': {'nu': 3}}, draw_x)
def feature_map_dpfp(x: Inputs) -> Outputs:
    """r=[relu(x);relu(-x)] (2D); phi=concat_{j=1..nu} r*roll(r,j), roll(r,j)_i=r_{(i-j) mod 2D}; F=2 D nu

    scale: none
    layout: x [B,T,H,D] -> phi [B,T,H,F]
    reference: Schlag et al. 2021
    note: paper form; some public code has [relu(x);-relu(x)] instead
    """
    r = concatenate([relu(x.x), relu(-x.x)], -1)
    places = np.arange(r.shape[-1])
    return {'phi': concatenate([r * r[..., (places - j) % len(places)] for j in range(1, x.option('nu') + 1)], -1)}


@operation(NARROW, draw_x)
def feature_map_taylor2(x: Inputs) -> Outputs:
    """phi=[1; x_i/D^{1/4}; x_i^2/sqrt(2D); x_i x_j/sqrt(D) for i<j row by row]; F=1+D+D(D+1)/2;
    phi(x).phi(y)=1+s+s^2/2, s=x.y/sqrt(D)

    scale: none
    layout: x [B,T,H,D] -> phi [B,T,H,F]
    reference: Based (Arora et al. 2024)
    """
    D = x.x.shape[-1]
    return {'phi': concatenate([np.ones(x.x.shape[:-1] + (1,)), x.x * D ** -0.25, x.x * x.x / math.sqrt(2 * D),
                                products(x.x) / math.sqrt(D)], -1)}


@operation(NARROW, lambda r: dict(draw_x(r), gamma=r.normal('K', 0.2, 1.0), beta=r.normal('K', 0.2)))
def feature_map_rebased(x: Inputs) -> Outputs:
    """y=gamma*LN(x)+beta (LN over D, biased variance, eps 1e-5); phi=[y_i^2/sqrt(D); sqrt(2/D) y_i y_j for i<j row by
    row]; F=D(D+1)/2; phi(x).phi(x2)=(y.y2)^2/D

    scale: none
    layout: gamma,beta [D] shared by heads (q and k have their own in a layer)
    reference: Aksenov et al. 2024
    """
    D = x.x.shape[-1]
    y = layer_norm(x.x) * x.gamma + x.beta
    return {'phi': concatenate([y * y / math.sqrt(D), products(y) * math.sqrt(2 / D)], -1)}


def draw_hedgehog(r: Draws) -> Arrays:
    return dict(draw_x(r), W=exact(np.eye(r.sizes['K']) + r.normal('H K K', 0.3)), b=r.normal('H K', 0.2))


def both_signs(z: Tensor) -> Tensor:
    return concatenate([z, -z], -1)


@operation(CASES, draw_hedgehog)
def feature_map_hedgehog_exp(x: Inputs) -> Outputs:
    """z=W x+b; phi=[exp(z); exp(-z)]

    scale: none
    layout: W [H,D,D] (out,in), b [H,D]
    reference: Zhang et al. 2024
    """
    return {'phi': exp(both_signs(per_head_linear(x)))}


@operation(CASES, draw_hedgehog)
def feature_map_hedgehog_softmax(x: Inputs) -> Outputs:
    """z=W x+b; phi=softmax([z;-z]) over 2D

    scale: none
    layout: W [H,D,D] (out,in), b [H,D]
    reference: Zhang et al. 2024
    """
    return {'phi': softmax(both_signs(per_head_linear(x)))}


@operation(CASES, draw_hedgehog)
def feature_map_hedgehog_softmax2(x: Inputs) -> Outputs:
    """z=W x+b; phi=softmax([2z;-2z]) over 2D

    scale: none
    layout: W [H,D,D] (out,in), b [H,D]
    reference: Zhang et al. 2024
    """
    return {'phi': softmax(both_signs(2.0 * per_head_linear(x)))}


def draw_random_features(r: Draws) -> Arrays:
    return dict(draw_x(r), W=r.orthogonal_rows(r.sizes['m'], r.sizes['K']))


@operation(RANDOM, draw_random_features, constant=('W',))
def feature_map_favor(x: Inputs) -> Outputs:
    """y=x/D^{1/4}; phi=m^{-1/2}(exp(W y-|y|^2/2)+1e-4)

    scale: none
    layout: W [m,D] fixed, shared by heads, no gradient
    reference: Performer FAVOR+ (Choromanski et al. 2021)
    note: no max stabiliser
    """
    return {'phi': favor_features(x.x, x.W)}


@operation(RANDOM, draw_random_features, constant=('W',))
def feature_map_favor_relu(x: Inputs) -> Outputs:
    """y=x/D^{1/4}; phi=relu(W y)+1e-3

    scale: none
    layout: W [m,D] fixed, shared by heads, no gradient
    reference: Performer generalised attention
    note: no m^{-1/2} factor
    """
    return {'phi': relu((x.x * x.x.shape[-1] ** -0.25) @ x.W.T) + 1e-3}


@operation(RANDOM, lambda r: dict(x=r.unit('B T H K'), W=r.normal('m K')), constant=('W',))
def feature_map_rfa(x: Inputs) -> Outputs:
    """phi=m^{-1/2}[sin(W x); cos(W x)]

    scale: none
    norm: x given unit-norm, no normalisation inside
    layout: W [m,D] fixed, shared by heads, no gradient
    reference: Peng et al. 2021
    """
    return {'phi': fourier_features(x.x, x.W)}


def normal_quantile(p: float) -> float:
    """Where the normal distribution function is p: Newton's method."""
    z = 0.0
    for _ in range(50):
        z -= (0.5 * math.erfc(-z / math.sqrt(2)) - p) * math.sqrt(2 * math.pi) * math.exp(z * z / 2)
    return z


def draw_dijiang(r: Draws) -> Arrays:
    x, D = r.normal('B T H K'), r.sizes['K']
    n = np.arange(D)
    dct = np.cos(math.pi * (n[None] + 0.5) * n[:, None] / D) * math.sqrt(2 / D)
    dct[0] /= math.sqrt(2)
    quantiles = np.array([normal_quantile(p) for p in r.raw_uniform(D) * 0.9 + 0.05])
    return dict(x=x, P=exact(dct.T * quantiles))


@operation(CASES, draw_dijiang, constant=('P',))
def feature_map_dijiang(x: Inputs) -> Outputs:
    """phi=softmax(x P) over the m columns of P

    scale: none
    layout: P [D,D] fixed (DCT-II matrix times diag of normal quantiles), shared by heads, no gradient
    reference: Chen et al. 2024
    note: released code uses softmax where the paper writes exp
    """
    return {'phi': softmax(x.x @ x.P)}


NORMS = ('a_B2_T7_H1_K3', 'b_B1_T48_H2_K16')


@operation(NORMS, draw_x)
def qk_norm_l2(x: Inputs) -> Outputs:
    """y=x/sqrt(sum x^2+1e-6) over the last dimension

    scale: none
    layout: x,y [B,T,H,D]; w,b [D] shared by heads
    """
    return {'y': x.x / sqrt(total(x.x * x.x, -1, keep=True) + 1e-6)}


@operation(NORMS, draw_x)
def qk_norm_l2_clamp(x: Inputs) -> Outputs:
    """y=x/max(|x|,1e-12) over the last dimension

    scale: none
    layout: x,y [B,T,H,D]; w,b [D] shared by heads
    """
    return {'y': unit(x.x, 1e-12)}


@operation(NORMS, lambda r: dict(draw_x(r), w=r.normal('K', 0.2, 1.0)))
def qk_norm_rms(x: Inputs) -> Outputs:
    """y=x/sqrt(mean x^2+1e-6)*w over the last dimension

    scale: none
    layout: x,y [B,T,H,D]; w,b [D] shared by heads
    """
    return {'y': rms_norm(x.x, x.w, 1e-6)}


@operation(NORMS, lambda r: dict(draw_x(r), w=r.normal('K', 0.2, 1.0), b=r.normal('K', 0.2)))
def qk_norm_layernorm(x: Inputs) -> Outputs:
    """y=(x-mean)/sqrt(var+1e-5)*w+b (biased variance) over the last dimension

    scale: none
    layout: x,y [B,T,H,D]; w,b [D] shared by heads
    """
    return {'y': layer_norm(x.x) * x.w + x.b}


@operation(NORMS, lambda r: dict(x=r.log_normal('B T H K')))
def qk_norm_sum(x: Inputs) -> Outputs:
    """y=x/sum(x) (for positive features) over the last dimension

    scale: none
    layout: x,y [B,T,H,D]; w,b [D] shared by heads
    """
    return {'y': x.x / total(x.x, -1, keep=True)}


GATED = {'a_B2_T7_H1_K3_silu': {'gate_activation': 'silu'}, 'a2_B2_T7_H1_K3_sigmoid': {'gate_activation': 'sigmoid'},
         'b_B1_T48_H2_K16_silu': {'gate_activation': 'silu'}}


def draw_gated_norm(r: Draws) -> Arrays:
    return dict(x=r.normal('B T H K'), z=r.normal('B T H K'), w=r.normal('K', 0.2, 1.0))


def gate_of(x: Inputs) -> Tensor:
    return (silu if x.option('gate_activation') == 'silu' else sigmoid)(x.z)


@operation(GATED, draw_gated_norm)
def rmsnorm_gated_norm_first(x: Inputs) -> Outputs:
    """y=RMSNorm(x)*w*act(z), RMSNorm(x)=x/sqrt(mean x^2+1e-5) over the last dimension

    scale: none
    layout: x,z,y [B,T,H,D]; w [D] shared by heads
    note: norm before gate (FLA fused norm-gate, Qwen)
    """
    return {'y': rms_norm(x.x, x.w, 1e-5) * gate_of(x)}


@operation(GATED, draw_gated_norm)
def rmsnorm_gated_gate_first(x: Inputs) -> Outputs:
    """y=RMSNorm(x*act(z))*w, RMSNorm(x)=x/sqrt(mean x^2+1e-5) over the last dimension

    scale: none
    layout: x,z,y [B,T,H,D]; w [D] shared by heads
    note: gate before norm (Mamba-2, norm_before_gate=False)
    """
    return {'y': rms_norm(x.x * gate_of(x), x.w, 1e-5)}


def draw_convolution(r: Draws) -> dict:
    return dict(x=r.normal('B T D'), w=r.normal('D W', 0.5), b=r.normal('D', 0.3) if 'bias' in r.sizes else None,
                x0=r.normal('B W-1 D') if 'x0' in r.sizes else None)


@operation({'a_B2_T7_D3_W4_bias_silu': {'activation': 'silu', 'width': 4},
            'a2_B2_T7_D3_W2': {'activation': 'none', 'width': 2},
            'b_B1_T48_D24_W4_bias_silu_x0': {'activation': 'silu', 'width': 4},
            'b2_B1_T48_D24_W2_bias_silu_x0': {'activation': 'silu', 'width': 2}}, draw_convolution, no_loss=('xt',))
def short_conv(x: Inputs) -> Outputs:
    """y_t=act(b+sum_{i=0}^{W-1} w[:,i] x_{t-W+1+i}), depthwise, causal (last tap = current token), missing past = x0
    or 0

    scale: none
    layout: x,y [B,T,D]; w [D,W]; b [D]; x0 and out.xt [B,W-1,D] = last W-1 inputs, oldest first
    note: xt is not part of the loss
    """
    B, T, D = x.x.shape
    W = x.option('width')
    past = concatenate([x.get('x0', (B, W - 1, D)), x.x], 1)
    y = sum((x.w[:, i] * past[:, i:i + T] for i in range(W)), x.get('b', (D,)))
    return {'y': silu(y) if x.option('activation') == 'silu' else y, 'xt': past[:, T:]}
