// DeltaFormer: the delta rule in the space of a softmax kernel. What the older pairs already say is taken off a value
// before it is written.
//
//   x_ti = scale q_t.k_i ;  c_t = sum_{i<t} e^{x_ti} u_i / sum_{i<t} e^{x_ti}      (nothing before t: c_t = 0)
//   u_t = v_t - beta_t c_t ;  o_t = sum_{i<=t} e^{x_ti} u_i / sum_{i<=t} e^{x_ti} = (1 - p_t) c_t + p_t u_t
//   p_t = sigmoid(x_tt - log sum_{i<t} e^{x_ti})
//
// i runs over the pairs of earlier calls (the past), then over those of this call. By blocks of 64 tokens: the
// streaming softmax gives the part c0 of c that older blocks have; W the weights (of the same softmax) within the
// block, strictly below the diagonal,
//
//   (I + diag(beta) W) U = V - diag(beta) c0 ;  c = c0 + W U
//
// q [B, T, H, K], k [B, T, G, K], v [B, T, G, V]; query head h reads key head h / (H/G). u is [B, T, H, V], because
// the weights are those of the queries; it and k are what later calls need: whoever owns the list of pairs appends
// them. The past is only read. One query per sequence (decoding) is one pass over the pairs where they lie. Source:
// arXiv 2505.19488.
//
// Backward, from the newest block to the oldest; du has what came in and what newer blocks added to it:
//
//   (I + diag(beta) W)' du = du + p do + W' (1 - p) do ;  dc = (1 - p) do - beta du ;  dv = du ;  dbeta = -du.c
//   e_t = p_t (1 - p_t) do_t.(u_t - c_t) = dx_tt ;  dx_ti = W_ti (dc_t.u_i - dc_t.c_t - e_t) for i < t
//
// Traps. The solve is exact, so beta is not confined to (0, 1), but with |beta| > 1 values may grow from token to
// token. c is kept, not found again as (v - u) / beta. NaN in a token reaches the later ones of its sequence.
// Scratch: O(T); backward solves forward again.
#pragma once

#include <cstddef>

#include "families/pairs/problem.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

template <class T>
struct DeltaformerProblem : PairProblem<T> {
  T scale = 1;              // on q.k
  View<const T, 3> beta;    // [B, T, H]; no data = 1. Strides may be zero.
  View<const T, 4> past_u;  // [N, capacity, H, V], oldest first
  View<T, 4> u;             // [B, T, H, V]; no data = not wanted
};

/// `d_u` comes in too.
template <class T>
struct DeltaformerGradient : PairGradient<T> {
  View<const T, 4> d_u;  // [B, T, H, V]; no data = zero
  View<T, 3> d_beta;     // full strides
  View<T, 4> d_past_u;
};

namespace deltaformer {

/// `longest`: tokens of the longest sequence; `past`: of the largest past_count.
template <class T>
std::size_t workspace_bytes(int heads, int key_heads, int key_dim, int value_dim, std::ptrdiff_t longest,
                            std::ptrdiff_t past, bool backward) noexcept;

template <class T>
Status forward(const DeltaformerProblem<T>&, const Simd<T>&, Workspace) noexcept;

/// `o` and `u` of the problem are ignored.
template <class T>
Status backward(const DeltaformerProblem<T>&, const DeltaformerGradient<T>&, const Simd<T>&, Workspace) noexcept;

}  // namespace deltaformer
}  // namespace ttr::families
