// Recursive least squares over a sliding window: the last W pairs, with a constant ridge.
//
//   H_t = sum_{t-W < i <= t} w_ti k_i k_i' ,  F_t = sum w_ti k_i v_i' ,  w_ti = beta_i e^{g_{i+1} + .. + g_t}
//   o_t = F_t' x_t ,   (H_t + diag(ridge)) x_t = scale q_t                        H [K, K], F [K, V] in double
//   variance_t = 1 + scale q_t' x_t          of a value at the query, in units of the values' noise
//   known_t = 1 - x_t' diag(ridge) x_t / variance_t          the part of it that pairs account for, not the ridge
//
// A token adds its pair and takes away the one that leaves (down-dating), O(K^2 + K V), then Cholesky, K^3 / 3.
// Taking away leaves the rounding of what was there. So the sums are made afresh from the window every W tokens, and
// at once when a diagonal entry of H has sunk below 1e-4 of its peak since then (a large key has left small ones):
// the error stays below about 1e-12 of H as it is. Hyperbolic rotations of a triangle would save the K^3 but break
// down in just that case.
//
// State: a ring of W pairs, the pair of token n (counted from the start of the stream) in slot n mod W, with its gate
// and weight; the count of tokens; and the sums H, F with the peaks. Fresh: count = 0, sums zero. The sums may be
// left out (null): then every call makes them from the ring, W K^2, and gradients of the ring include theirs.
//
// Traps: ridge <= 0 or beta < 0 returns out_of_domain before anything is touched. Slots no token has filled are not
// read. Only step and recurrent (the same bits, if the sums are kept). Gradients of H are raw, as in least_squares.h.
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
struct WindowProblem {
  LinearProblem<T> linear;        // q, k, v, g, beta, o, sequences, scale; linear.state is not used
  View<const T, 2> ridge;         // [H, K]; strides may be zero
  int window = 1;                 // W >= 1
  T* keys = nullptr;              // [N, W, G, K] contiguous, start in, end out
  T* values = nullptr;            // [N, W, H, V]
  T* gates = nullptr;             // [N, W, H]; null iff g has no data
  T* weights = nullptr;           // [N, W, H]; null iff beta has no data
  std::int64_t* count = nullptr;  // [N] tokens seen
  double *h = nullptr, *f = nullptr, *peak = nullptr;  // [N, H, K, K], [N, H, K, V], [N, H, K]; all or none
  View<T, 3> variance, known;                          // [B, T, H]; no data = not wanted. known has no gradient
};

/// Gradients are added to (+=). `linear.d_final` and `linear.d_initial` are not used. Null = zero, or not wanted.
template <class T>
struct WindowGradient {
  LinearGradient<T> linear;     // d_o in; d_q, d_k, d_v, d_g, d_beta out
  View<const T, 3> d_variance;  // no data = zero
  View<T, 2> d_ridge;           // [H, K]; a zero key stride sums over the keys
  const T *d_final_keys = nullptr, *d_final_values = nullptr, *d_final_gates = nullptr, *d_final_weights = nullptr;
  T *d_initial_keys = nullptr, *d_initial_values = nullptr, *d_initial_gates = nullptr, *d_initial_weights = nullptr;
  const double *d_final_h = nullptr, *d_final_f = nullptr;  // ignored where the problem has no sums
  double *d_initial_h = nullptr, *d_initial_f = nullptr;
};

namespace window {

std::size_t workspace_bytes(int key_dim, int value_dim, int window, std::ptrdiff_t longest, bool backward) noexcept;

template <class T>
Status forward(const WindowProblem<T>&, Form, const Simd<double>&, Workspace) noexcept;

/// The states are the *initial* ones and are only read; outputs are ignored.
template <class T>
Status backward(const WindowProblem<T>&, const WindowGradient<T>&, Form, const Simd<double>&, Workspace) noexcept;

}  // namespace window
}  // namespace ttr::families
