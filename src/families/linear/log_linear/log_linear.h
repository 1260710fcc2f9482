// Log-linear attention: one decayed memory per level of a binary (Fenwick) partition of the past,
//
//   o_t = scale sum_l lambda_t[l] S_t^{(l)}' q_t
//   S_t^{(l)} = sum_{s in level l of t} e^{g_{s+1} + .. + g_t} beta_s k_s v_s'
//
// Level 0 is {t}; level l >= 1 holds the s < t whose highest binary digit different from t's is digit l-1 (so it has
// 2^{l-1} tokens, and exists when that digit of t is 1). t counts from the start of the sequence, across calls.
// Source: arXiv 2506.04761; without the scale there.
//
// State: the count of tokens seen and L slots [K, V]; slot j holds a bucket of 2^j tokens, decayed up to now, and is
// live when digit j of the count is 1 - popcount(count) live slots. A new token is a bucket of one and is carried
// like a 1 in a binary counter. Dead slots are not read, and are written as zero at the end of a call; a
// sequence of no tokens is left as it is.
//
// A piece of c = 2^m tokens that starts at a multiple of c sees the same slots from its first to its last token:
//
//   O = sum_{live j} diag(lambda[j+1] e^G) Q S_j + tril(Q K' * D * Lambda) U        Lambda_is = lambda_i[level(i, s)]
//   S_dest = e^{G_c} (sum of the slots carried away) + (diag(t) K)' U               U = diag(beta) V
//
// with D, t, e^G of scalar decay (chunk.h). Every form is a list of such pieces, the largest that fit: c <= 1 (step,
// recurrent), c <= chunk rounded down to a power of two (chunk; default 32), c unbounded (parallel). Alignment is to
// the count, so a call may start and stop anywhere.
//
// Traps: 2^{L-1} tokens at most (there is no scale for the next level): more return state_full before anything is
// touched. scan: not_supported.
#pragma once

#include <cstddef>
#include <cstdint>

#include "families/common/linear.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

template <class T>
struct LogLinearProblem {
  LinearProblem<T> linear;        // q, k, v, g, beta, scale, o, sequences; linear.state: [N, H, L, K, V] slots
  int levels = 0;                 // L >= 1
  View<const T, 4> level_scales;  // [B, T, H, L]
  std::int64_t* count = nullptr;  // [N] tokens seen, start in, end out
};

/// Gradients are added to (+=). linear.d_final and linear.d_initial are [N, H, L, K, V]; dead slots are ignored.
template <class T>
struct LogLinearGradient {
  LinearGradient<T> linear;
  View<T, 4> d_level_scales;
};

namespace log_linear {

template <class T>
std::size_t workspace_bytes(int key_dim, int value_dim, int levels, std::ptrdiff_t longest, Form, int chunk,
                            bool backward) noexcept;

template <class T>
Status forward(const LogLinearProblem<T>&, Form, int chunk, const Simd<T>&, Workspace) noexcept;

/// `linear.state` and `count` are the *initial* state and are only read; `linear.o` is ignored.
template <class T>
Status backward(const LogLinearProblem<T>&, const LogLinearGradient<T>&, Form, int chunk, const Simd<T>&,
                Workspace) noexcept;

}  // namespace log_linear
}  // namespace ttr::families
