// Linear memories fitted to all pairs of a call at once, without a mask: every query of a sequence sees every pair of
// its key sequence.
//
//   F = sum_i beta_i k_i v_i' ;  H = sum_i beta_i k_i k_i' + ridge I                          F [K, V], H [K, K]
//
//   none       o_t = scale F' q_t            one gradient step from zero: linear attention that is not causal
//   exact      o_t = scale F' H^-1 q_t       ridge regression: intention (Garnelo and Czarnecki, arXiv 2305.10203)
//   no values  o_t = scale H^-1 q_t          [K]; exact only. The weight of pair i in o_t is beta_i k_i.H^-1 q_t: a
//                                            softmax over the pairs makes it sigma-intention
//
// The queries read Y = H^-1 F (none: F; no values: H^-1), so nothing has the size T x S: the work is
// (T + S) K (K + V) + K^3 / 3 + 2 K^2 V, the memory K (K + V). H, its Cholesky factor and everything behind them are
// double whatever T is; `none` works in T.
//
// Backward, dY = scale sum_t q_t do_t' , U = H^-1 dY (none: dY), r_i = v_i - Y' k_i (none: v_i; no values: -Y' k_i):
//
//   dq_t = scale Y do_t ;  dv_i = beta_i U' k_i ;  dbeta_i = r_i.U' k_i
//   dk_i = beta_i (U r_i - Y U' k_i) (none: beta_i U r_i) ;  dridge = -<U, Y>
//
// Traps: without pairs o = 0, and without values scale q / ridge. Least norm (ridge = 0) is not offered. NaN for its
// queries and no gradients: for a head whose ridge is NaN or not above 0, and for a head of a sequence with a beta
// that is NaN or below 0 or with an H that is not finite; the others are computed, the call returns out_of_domain.
// `none` has no such bounds. A ridge below 4e-15 (64 + j) H_jj is raised to that in row j, beside which rounding
// would decide the answer (kernel_regression.h); gradients are then those of the raised one. Errors are about
// 1e-16 |H| / ridge. Other NaN stays in its sequence, but for the gradient of the ridge, which all sequences share.
#pragma once

#include <cstddef>
#include <span>

#include "families/common/linear.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

enum class WholeSolve { none, exact };

/// Head h reads q of head h / (heads / query_heads), and so on: each count divides `heads`.
template <class T>
struct WholeProblem {
  std::span<const Sequence> sequences;      // tokens of q and o
  std::span<const Sequence> key_sequences;  // tokens of k, v and beta that sequence n sees; empty: the same as of q
  int heads = 1, query_heads = 1, key_heads = 1, value_heads = 1;
  int key_dim = 1, value_dim = 1;  // value_dim 0: no values
  WholeSolve solve = WholeSolve::exact;
  T scale = 1;

  View<const T, 4> q;      // [B, T, query_heads, K]
  View<const T, 4> k, v;   // [B, S, key_heads, K], [B, S, value_heads, V]
  View<const T, 3> beta;   // [B, S, H]; no data = 1. Strides may be zero
  View<const T, 1> ridge;  // [H]; the stride may be zero. Not used by `none`
  View<T, 4> o;            // [B, T, H, V], no values: [B, T, H, K]; no data = not wanted
};

/// `d_o` comes in, the others go out and are *added to* (+=). Views without data are not wanted; zero strides sum.
template <class T>
struct WholeGradient {
  View<const T, 4> d_o;      // as o; no data = zero
  View<T, 4> d_q, d_k, d_v;  // d_q and d_k may be the same view
  View<T, 3> d_beta;         // [B, S, H]
  View<T, 1> d_ridge;        // [H]
};

namespace whole {

template <class T>
std::size_t workspace_bytes(int key_dim, int value_dim, WholeSolve, bool backward) noexcept;

/// `wide` is for `exact`.
template <class T>
Status forward(const WholeProblem<T>&, const Simd<T>&, const Simd<double>& wide, Workspace) noexcept;

/// `o` is ignored.
template <class T>
Status backward(const WholeProblem<T>&, const WholeGradient<T>&, const Simd<T>&, const Simd<double>& wide,
                Workspace) noexcept;

}  // namespace whole
}  // namespace ttr::families
