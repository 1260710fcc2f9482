// PaTH attention: softmax attention whose keys are carried to the query by the Householder-like maps between them.
//
//   H_j = I - beta_j w_j w_j'
//   x_ti = scale (q_t' H_t H_{t-1} .. H_{i+1} k_i + g_{i+1} + .. + g_t)          the gates (optional) are scaled too
//   o_t = sum_{i<=t} e^{x_ti} v_i / sum_{i<=t} e^{x_ti}
//
// i runs over the pairs of earlier calls (the past), then over those of this call up to t itself. By blocks of C = 64
// pairs (UT transform), rows of Q, K, W the tokens of a block, D = diag(beta), L = D stril(W W'), B = stril(W K'):
//
//   U = (I + L)^{-1} D W      Y = D (I + L)^{-T} W      R = (I + L)^{-1} D B
//   within a block     logits = tril(Q K' - tril(Q W') R)        queries at its start   Q - tril(Q W') U
//   other queries      logits = X K~' , K~ = K - B' Y (keys at the end of the block) , X the queries at that place
//                      queries at its start   X P , P = I - W' U
//
// so a block is prepared once for many queries, and a query goes from block to block by one product with P [K, K].
//
// q [B, T, H, K], k and w [B, T, G, K], beta [B, T, G], v [B, T, G, V], g [B, T, H]; query head h reads key head
// h / (H/G). The past is only read: whoever owns the list of pairs appends to it. One query per sequence (decoding)
// is one pass over the pairs where they lie, newest to oldest, with x <- H_j x. Source: arXiv 2505.16381.
//
// Backward: softmax as in attention.h. From dX at the start of a block, dX P' goes to its end and X' dX to dP; what
// the block's own queries and dK~, dP add up to goes through the transform (path_attention/maps.h):
//
//   dU = -W dP , dW = -U dP' ;  dB = -stril(Y dK~') , dY = -B dK~
//   S = (I + L)^{-1} F :  dF = (I + L)^{-T} dS , dL = -stril(dF S')
//
// Traps. Nothing is said of |w|: with unit w and beta in [0, 2] no query grows. beta = 1 is a projection, so carrying
// cannot be undone: backward keeps the queries of one tile at the end of every block. The map of the oldest pair is
// never used and has no gradient. g = -inf is a closed gate (if scale > 0). NaN in a token reaches the later ones of
// its sequence. Scratch: forward a constant, backward O(T).
#pragma once

#include <cstddef>

#include "families/pairs/problem.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

template <class T>
struct PathAttentionProblem : PairProblem<T> {
  T scale = 1;  // on logits and gates

  View<const T, 4> w;     // [B, T, G, K]
  View<const T, 3> beta;  // [B, T, G]. Strides may be zero.
  View<const T, 3> g;     // [B, T, H] natural log of the forget gate; no data = 0. Strides may be zero.

  View<const T, 4> past_v, past_w;     // [N, capacity, G, V], [N, capacity, G, K]
  View<const T, 3> past_beta, past_g;  // [N, capacity, G], [N, capacity, H]
};

template <class T>
struct PathAttentionGradient : PairGradient<T> {
  View<T, 4> d_w;
  View<T, 3> d_beta, d_g;  // full strides
  View<T, 4> d_past_v, d_past_w;
  View<T, 3> d_past_beta, d_past_g;
};

namespace path_attention {

/// `longest`: tokens of the longest sequence; `past`: of the largest past_count.
template <class T>
std::size_t workspace_bytes(int heads, int key_heads, int key_dim, int value_dim, std::ptrdiff_t longest,
                            std::ptrdiff_t past, bool backward) noexcept;

template <class T>
Status forward(const PathAttentionProblem<T>&, const Simd<T>&, Workspace) noexcept;

/// `o` of the problem is ignored.
template <class T>
Status backward(const PathAttentionProblem<T>&, const PathAttentionGradient<T>&, const Simd<T>&, Workspace) noexcept;

}  // namespace path_attention
}  // namespace ttr::families
