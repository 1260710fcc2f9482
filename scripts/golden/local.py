"""Regression around the query: kernel regression, local constants, local lines and parabolas."""
from __future__ import annotations

import math
from typing import Callable

import numpy as np

from attention import (CASES, causal_softmax, distances, draw_qkv, exponential_kernel, gaussian_kernel)
from draws import Draws
from pieces import grouped
from registry import Inputs, Outputs, operation
from tape import Tensor, concatenate, einsum, exp, log_sum_exp, softmax, solve, stack, swap, total


def kernel_regression(x: Inputs, kernel: Callable[[Tensor, Tensor], Tensor]) -> Outputs:
    """o_t = V_t^T (kappa(K_t,K_t) + lam I)^-1 kappa(K_t,q_t)."""
    q, k, v = grouped(x)
    among_keys, of_query = kernel(k, k), kernel(q, k)
    values, answers = swap(v, 1, 2), []
    for n in range(1, q.shape[1] + 1):
        matrix = among_keys[:, :, :n, :n] + x.lam[:, None, None] * np.eye(n)
        weights = solve(matrix, of_query[:, :, n - 1, :n][..., None])
        answers.append(einsum('bhj,bhjv->bhv', weights[..., 0], values[:, :, :n]))
    return {'o': stack(answers, 1)}


def draw_kernel_regression(r: Draws) -> dict:
    return dict(draw_qkv(r, 0.7), lam=r.uniform('H', 0.1, 0.4))


@operation(CASES, draw_kernel_regression)
def kernel_regression_exp(x: Inputs) -> Outputs:
    """o_t=V_t^T (kappa(K_t,K_t)+lam I)^{-1} kappa(K_t,q_t), kappa(x,y)=exp(x.y/sqrt(K)), causal

    scale: K^-0.5 inside the kernel
    layout: q head h uses k/v head h//(H/HKV); lam [H] per query head
    reference: test-time regression paper Eq. 43 with a ridge
    """
    return kernel_regression(x, exponential_kernel)


@operation(CASES, draw_kernel_regression)
def kernel_regression_gauss(x: Inputs) -> Outputs:
    """o_t=V_t^T (kappa(K_t,K_t)+lam I)^{-1} kappa(K_t,q_t), kappa(x,y)=exp(-|x-y|^2/(2 sqrt(K))), causal

    scale: K^-0.5 inside the kernel
    layout: q head h uses k/v head h//(H/HKV); lam [H] per query head
    reference: test-time regression paper Eq. 43 with a ridge
    """
    return kernel_regression(x, gaussian_kernel)


@operation(CASES, lambda r: dict(draw_qkv(r), bandwidth=r.scaled_uniform('H', 0.5, 2 * math.sqrt(r.sizes['K']))))
def local_constant_gauss(x: Inputs) -> Outputs:
    """o_t=sum_{j<=t} w_j v_j/sum w_j, w_j=exp(-|k_j-q_t|^2/bandwidth)

    scale: none
    layout: q head h uses k/v head h//(H/HKV); bandwidth [H]
    reference: Nadaraya-Watson (test-time regression paper Eq. 50)
    """
    q, k, v = grouped(x)
    return causal_softmax(-distances(q, k) / x.bandwidth[:, None, None], v)


def local_regression(x: Inputs, features: Callable[[Tensor], Tensor], logits: Callable[[Tensor, Tensor], Tensor],
                     ridge: Callable[[int, Tensor], Tensor]) -> Outputs:
    """The intercept of the regression of v_j on features(k_j - q_t), j <= t, with weights p = softmax(logits).

    features() has the constant 1 in front, which is not penalised; ridge(t, log of the sum of weights) [B,H] is
    relative to the sum of the weights.
    """
    q, k, v = grouped(x)
    keys, values, answers = swap(k, 1, 2), swap(v, 1, 2), []
    for t in range(q.shape[1]):
        query = q[:, t][:, :, None]
        logit = logits(query, keys[:, :, :t + 1])
        p = softmax(logit)
        X = features(keys[:, :, :t + 1] - query)
        penalty = np.eye(X.shape[-1])
        penalty[0, 0] = 0.0
        weighted = X * p[..., None]
        matrix = weighted.T @ X + ridge(t, log_sum_exp(logit))[..., None, None] * penalty
        answers.append(solve(matrix, weighted.T @ values[:, :, :t + 1])[:, :, 0])
    return {'o': stack(answers, 1)}


def ones_and(z: Tensor) -> Tensor:
    """[1; z]."""
    return concatenate([np.ones(z.shape[:-1] + (1,)), z], -1)


def ones_and_products(z: Tensor) -> Tensor:
    """[1; z; z_a z_b for a <= b row by row]."""
    a, b = np.triu_indices(z.shape[-1])
    return concatenate([ones_and(z), z[..., a] * z[..., b]], -1)


def dot_logits(q: Tensor, k: Tensor) -> Tensor:
    return total(q * k, -1) / math.sqrt(k.shape[-1])


@operation(('a_B2_T7_H1_K3_V5', 'b_B1_T48_H2_K8_V12'),
           lambda r: dict(q=r.normal('B T H K'), k=r.normal('B T H K'), v=r.normal('B T H V'),
                          lamb=r.uniform('H', 0.5, 2.0)))
def local_linear_attn(x: Inputs) -> Outputs:
    """w_j=exp(scale q.k_j) (unnormalised), z_j=k_j-q; omega=sum w; mu=sum w z; Sigma=sum w z z^T+lamb I; rho=Sigma^-1
    mu; o=sum_j w_j(1-z_j.rho)/(omega-mu.rho) v_j = intercept of the w-weighted ridge regression of v on k centred
    at q (intercept not penalised)

    scale: K^-0.5
    reference: equation of local linear attention (weighted least squares); the authors code is not public in the
      snapshot; cross-checked against a direct (K+1)-dim solve
    note: lamb [H] is added to the UNNORMALISED Sigma, so subtracting a row max from the logits requires scaling lamb
      by exp(-max)
    """
    return local_regression(x, ones_and, dot_logits, lambda t, log_sum: x.lamb * exp(-log_sum))


@operation(CASES, lambda r: dict(draw_qkv(r), lamb=r.uniform('B T H', 0.1, 2.0)))
def local_linear_abs(x: Inputs) -> Outputs:
    """w_j=exp(scale q.k_j), z_j=k_j-q, j<=t; fit b+W z by min sum w_j|v_j-b-W z_j|^2+lt|W|^2 (intercept free); o=b;
    lt=lamb

    scale: K^-0.5
    layout: q head h uses k/v head h//(H/HKV); lamb [B,T,H] per position and query head
    reference: local linear attention (arXiv 2510.01450)
    note: absolute ridge as in local_linear_attn, but one lamb per position
    """
    return local_regression(x, ones_and, dot_logits, lambda t, log_sum: x.lamb[:, t] * exp(-log_sum))


@operation(CASES, lambda r: dict(draw_qkv(r), lamb=r.uniform('B T H', 0.05)))
def local_linear_rel(x: Inputs) -> Outputs:
    """w_j=exp(scale q.k_j), z_j=k_j-q, j<=t; fit b+W z by min sum w_j|v_j-b-W z_j|^2+lt|W|^2 (intercept free); o=b;
    lt=lamb*sum_j w_j

    scale: K^-0.5
    layout: q head h uses k/v head h//(H/HKV); lamb [B,T,H] per position and query head
    reference: local linear attention (arXiv 2510.01450)
    note: relative ridge: invariant to a shift of the logits; = vb-Cov_p(v,k)(Cov_p(k)+lamb I)^{-1}(kb-q) with
      p=softmax weights
    """
    return local_regression(x, ones_and, dot_logits, lambda t, log_sum: x.lamb[:, t])


@operation(('a_B2_T7_H2_K2_V5', 'b_B1_T48_H4_K4_V8_HKV2'),
           lambda r: dict(draw_qkv(r), lamb=r.uniform('H', 0.02, 0.2)))
def local_quadratic(x: Inputs) -> Outputs:
    """w_j=exp(-|z_j|^2/(2 sqrt(K))), z_j=k_j-q, j<=t; x_j=[1; z; z_a z_b for a<=b row by row]; min_B sum w_j|v_j-B^T
    x_j|^2+lamb (sum w)|B without its intercept row|^2; o=intercept

    scale: K^-0.5 inside the kernel
    layout: q head h uses k/v head h//(H/HKV); lamb [H]
    reference: local polynomial regression p=2 (test-time regression paper Eq. 48-49)
    note: the ridge depends on the scaling of the features: monomials with coefficient 1, off-diagonal products once
    """
    def logits(q: Tensor, k: Tensor) -> Tensor:
        return -total((k - q) * (k - q), -1) / (2 * math.sqrt(k.shape[-1]))
    return local_regression(x, ones_and_products, logits, lambda t, log_sum: x.lamb + 0.0 * log_sum)
