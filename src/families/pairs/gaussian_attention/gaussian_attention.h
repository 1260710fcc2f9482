// Gaussian attention without a mask and without a denominator, exact or by landmarks (Nystrom):
//
//   o_i = sum_j kappa(q_i, k_j) v_j ,   kappa(x, y) = exp(-|x - y|^2 / bandwidth) ,  bandwidth 2 sqrt(K) by default
//   o_i = kappa(q_i, W) (kappa(W, W) + ridge I)^-1 kappa(W, K) V                        W [M, K] landmarks of a head
//
// Every query of a sequence sees every pair of its key sequence. SOFT (arXiv 2110.11945) has k = q: give q as k and
// d_q as d_k; its landmarks are a strided convolution of q, its ridge is 0.01. Skyformer (arXiv 2111.00035) draws its
// landmarks from the rows of q and k, its ridge is 0.1. Which landmarks is the caller's choice, and so is what their
// gradient means. The released codes approximate the inverse of A = kappa(W, W) + ridge I by 20 steps
// X <- 2X - X A X, and by 6 steps X <- X (13 I - A X (15 I - A X (7 I - A X))) / 4 on an A scaled by its row sums,
// which is undone afterwards. Here it is the limit of both, by a Cholesky factor, and its gradient.
//
// The exact form is that of attention.h, streaming, T x S work in T. By landmarks the work is (T + S) M (K + V) + M^3
// / 3, in double, and the memory M (M + K + V).
//
// Backward by landmarks, a = (kappa(W, W) + ridge I)^-1 Y, Y = kappa(W, K) V, U the same inverse of kappa(W, Q) dO:
//
//   d kappa(Q, W) = dO a' ;  d kappa(W, W) = -U a' ;  d kappa(W, K) = U V' ;  dV = kappa(K, W) U
//
// Traps: without pairs o = 0. A ridge that is not above 0 returns out_of_domain; one below rounding is raised as in
// kernel_regression.h.
#pragma once

#include <cstddef>
#include <span>

#include "families/common/linear.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

template <class T>
struct GaussianAttentionProblem {
  std::span<const Sequence> sequences;      // tokens of q and o
  std::span<const Sequence> key_sequences;  // tokens of k and v that sequence n sees; empty: the same as of q
  int heads = 1, key_heads = 1;             // head h reads k and v of head h / (heads / key_heads)
  int key_dim = 1, value_dim = 1;
  double bandwidth = 0;  // 0: 2 sqrt(key_dim)

  View<const T, 4> q;          // [B, T, H, K]
  View<const T, 4> k, v;       // [B, S, G, K], [B, S, G, V]
  View<const T, 4> landmarks;  // [N, M, H, K]; no data: exact. Strides may be zero
  double ridge = 0.1;          // by landmarks
  View<T, 4> o;                // [B, T, H, V]; no data = not wanted
};

/// `d_o` comes in, the others go out and are *added to* (+=). Views without data are not wanted.
template <class T>
struct GaussianAttentionGradient {
  View<const T, 4> d_o;      // [B, T, H, V]; no data = zero
  View<T, 4> d_q, d_k, d_v;  // d_q and d_k may be the same view
  View<T, 4> d_landmarks;    // [N, M, H, K]
};

namespace gaussian_attention {

/// `longest`: tokens of the longest sequence; `pairs`: of the longest key sequence; `landmarks`: M, 0 = exact.
template <class T>
std::size_t workspace_bytes(int heads, int key_heads, int key_dim, int value_dim, std::ptrdiff_t longest,
                            std::ptrdiff_t pairs, std::ptrdiff_t landmarks, bool backward) noexcept;

/// `wide` is for the work by landmarks.
template <class T>
Status forward(const GaussianAttentionProblem<T>&, const Simd<T>&, const Simd<double>& wide, Workspace) noexcept;

/// `o` is ignored.
template <class T>
Status backward(const GaussianAttentionProblem<T>&, const GaussianAttentionGradient<T>&, const Simd<T>&,
                const Simd<double>& wide, Workspace) noexcept;

}  // namespace gaussian_attention
}  // namespace ttr::families
