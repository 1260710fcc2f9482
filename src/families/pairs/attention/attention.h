// Softmax attention, streaming: blocks of queries by blocks of pairs with a running maximum, never T x T.
//
//   x_ti = scale q_t.k_i                     or, with a bandwidth h,  x_ti = -|q_t - k_i|^2 / h (Nadaraya-Watson)
//   x_ti += g_{i+1} + .. + g_t               with gates: a pair fades with the log forget gates (forgetting attention)
//   o_t = sum_i e^{x_ti} v_i / (sum_i e^{x_ti} + e^{sink}) ;  lse_t = log of that denominator
//
// i runs over the pairs that query t sees: first those of earlier calls (the past), then those of this call up to t
// itself; with a window only the newest `window` of them; not causal: all of the past and all of its sequence.
// normalise = false drops the denominator from o: o_t = sum_i e^{x_ti} v_i (unnormalised softmax).
//
// Another weight function, with `polynomial`: f(x) e^{gates} in place of e^{x + gates}, f(x) = (c0 + c1 x + c2 x^2)
// e^{rate x}. f = x is linear attention that sees a window, which a state could not forget without the rounding of what
// it forgets; x^2 / K and 1 + x / sqrt(K) + x^2 / (2K) are the squares and Taylor features of ReBased and Based, whose
// K^2 / 2 products cancel where x^2 does not. o_t is divided by sum_i f e^{gates} + eps if it is normalised (0 where
// that is 0), and lse_t is the sum.
//
// q [B, T, H, K], k [B, T, G, K], v [B, T, G, V]; query head h reads key head h / (H/G). The past is only read:
// whoever owns the list of pairs appends to it. One query per sequence (decoding) is one pass over the pairs where
// they lie, all heads of a pair together, in the type they are kept in (kept_simd.h). Source: arXiv 1706.03762, 2205.14135 (streaming), 2503.02130 (forgetting), 2309.17453 (sink); Nadaraya,
// Watson 1964.
//
// Backward, from lse and delta_t = do_t.o_t - dlse_t (two numbers per query and head), P = e^{x - lse}:
//
//   X = P * (dO V' - delta) ;  dV = P' dO ;  dQ = scale X K ;  dK = scale X' Q
//   dsink = -sum_t e^{sink - lse_t} delta_t
//   with a bandwidth:  dQ = 2/h (X K - rowsum(X) * Q) ;  dK = 2/h (X' Q - colsum(X) * K) ;  dh = -1/h sum X * x
//   polynomial:  E = e^{gates} / (the sum + eps) ;  P = f E ;  X = f' E * (dO V' - delta), and P * (dO V' - delta) for dg
//   dg = revcum(rowsum(X) - colsum(X))      in double, without the diagonal (gates.h): most of it cancels
//
// Traps. A query that sees nothing, or nothing above -inf, has o = 0, lse = -inf and no gradient. g = -inf is a
// closed gate. Exponents of gates are sums from the pair to the query, never differences of sums over the sequence,
// which lose everything after a few gates of -1e4. Without normalisation e^x itself is formed: x above 88 (float) or
// 709 (double) overflows to inf. NaN in a pair reaches the queries that see it and no others. Work: proportional to
// the pairs seen (a window of n costs about n + 64 per query). Scratch: forward a constant, backward O(T):
// keys, values and their gradients once more, and per worker the logits of 64 queries (4 MB of floats at most).
//
// A team (families/common/team.h) divides the queries, backwards too, where tiles of queries follow each other over the
// pairs so that every dk and dv is summed in the same order by any number of threads.
#pragma once

#include <cstddef>

#include "families/pairs/attention/attention_simd.h"
#include "families/pairs/layout.h"
#include "families/pairs/problem.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

/// Not causal: k and v may have no data, then the past alone is seen; gates still stand between it and the queries.
template <class T>
struct AttentionProblem : PairProblem<T> {
  T scale = 1;              // on q.k; not used with a bandwidth
  bool causal = true;       // false: not with a window, and with g only if k and v have no data
  bool normalise = true;    // false: not with a sink
  bool polynomial = false;  // the weights are `weight` of x; not with a bandwidth or a sink
  typename AttentionSimd<T>::Polynomial weight;
  T eps = 0;                  // polynomial: beside the sum of the weights
  std::ptrdiff_t window = 0;  // newest pairs a query sees, its own included; 0 = all

  View<const T, 3> g;          // [B, T, H] natural log of the forget gate; no data = 0. Strides may be zero.
  View<const T, 1> sink;       // [H] one more logit, of a pair with value 0; no data = none
  View<const T, 1> bandwidth;  // [H] above 0: Gaussian kernel; no data: exponential kernel. Stride may be zero.

  View<const T, 4> past_v;                  // [N, capacity, G, V]
  View<const T, 3> past_g;                  // [N, capacity, H] each token's own g
  pairs::CompactRows compact_k, compact_v;  // the past in fewer bytes, in place of past_k and past_v; float, forwards
  View<T, 3> lse;                           // [B, T, H]; no data = not wanted
};

/// `d_lse` comes in too.
template <class T>
struct AttentionGradient : PairGradient<T> {
  View<const T, 3> d_lse;  // [B, T, H]; no data = zero. Not without normalisation.
  View<const T, 4> o;      // what forward gave; unless both o and lse are here they are computed again
  View<const T, 3> lse;
  View<T, 3> d_g;  // full strides
  View<T, 1> d_sink, d_bandwidth;
  View<T, 4> d_past_v;
  View<T, 3> d_past_g;
};

namespace attention {

/// `longest`: tokens of the longest sequence; `past`: of the largest past_count; `window` as in the problem.
template <class T>
std::size_t workspace_bytes(int heads, int key_heads, int key_dim, int value_dim, std::ptrdiff_t longest,
                            std::ptrdiff_t past, std::ptrdiff_t window, bool backward, int workers = 1) noexcept;

template <class T>
Status forward(const AttentionProblem<T>&, const Simd<T>&, Workspace) noexcept;

/// `o` and `lse` of the problem are ignored.
template <class T>
Status backward(const AttentionProblem<T>&, const AttentionGradient<T>&, const Simd<T>&, Workspace) noexcept;

}  // namespace attention
}  // namespace ttr::families
