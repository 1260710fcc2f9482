// Kalman filter of a linear memory that drifts: mean S [K, V] and covariance P [K, K], shared by the value channels.
//
//   P <- e^{-g_t} P + process_t I                                       what is not seen becomes uncertain
//   gain = beta P k_t / (noise_t + beta k_t' P k_t) ;  S <- S + gain (v_t - S'k_t)' ;  P <- P - gain (P k_t)'
//   o_t = scale S' q_t ;  variance_t = scale^2 q_t' P q_t + noise_t     of the value a query should find
//
// A pair that counts beta times is a measurement of variance noise / beta. g is the fading memory of RLS: with
// process = 0, noise = 1 and P_0 = diag(1 / ridge) this is the textbook recursion of recursive least squares with
// forgetting e^g (and a ridge that fades), by one-triangle Woodbury.
//
// S and P are double whatever T is; P is computed in its lower triangle (covariance_simd.h) and mirrored at the end of a
// call: a full matrix that is updated by gain (P k)' loses its symmetry, and under fading the antisymmetric rounding grows
// without bound. The Joseph form costs more and is no more stable.
//
// Forms: step and recurrent, and chunk, which takes up to `chunk` tokens through one triangular system by matrix
// products (the block Woodbury update; kalman_block.h), forwards and backwards, with drift and without. Blocks end
// early where that would cancel: under strong fading, and where a token is almost known from its block. The forms
// differ by rounding: 1e-14 where prior and noise are of size one. Where k'Pk of the prior is r times the noise
// answers are wrong by about 1e-16 r in either form, in the chunk form up to five times as much.
//
// Traps: with g < 0 and process = 0 the covariance of directions that keys do not visit grows as e^{-g t} until it
// overflows (wind-up): givens.h does not. A head of a sequence with process, noise or beta < 0 (or NaN) gets NaN and
// keeps its state, the others are computed, and the call returns out_of_domain. A token with noise + beta k'Pk = 0
// (nothing uncertain, nothing measured, or k = 0 without noise) changes nothing. Only the lower triangle of an
// initial P is read; both are written. Gradients of P are symmetric, (G + G') / 2 where G counts K*K independent
// numbers, and only that part of a final gradient matters. Sources: Kalman 1960; Haykin, Adaptive Filter Theory.
#pragma once

#include <cstddef>

#include "families/common/linear.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

template <class T>
struct KalmanProblem {
  LinearProblem<T> linear;   // q, k, v, g, beta, o, sequences, scale; linear.state is not used
  View<const T, 3> process;  // [B, T, H]; no data = 0. Strides may be zero
  View<const T, 3> noise;    // [B, T, H]; no data = 1
  double* s = nullptr;       // [N, H, K, V] contiguous, start in, end out
  double* p = nullptr;       // [N, H, K, K]
  View<T, 3> variance;       // [B, T, H]; no data = not wanted
  int chunk = 0;             // most tokens of a block of Form::chunk; 0 = default_chunk
};

/// Gradients are added to (+=). `linear.d_final` and `linear.d_initial` are not used.
template <class T>
struct KalmanGradient {
  LinearGradient<T> linear;     // d_o in; d_q, d_k, d_v, d_g, d_beta out
  View<const T, 3> d_variance;  // no data = zero
  View<T, 3> d_process, d_noise;
  const double *d_final_s = nullptr, *d_final_p = nullptr;  // null = zero
  double *d_initial_s = nullptr, *d_initial_p = nullptr;
};

namespace kalman {

inline constexpr int default_chunk = 32;

/// `longest` is the length of the longest sequence; the backward pass keeps O(sqrt(longest)) states.
std::size_t workspace_bytes(int key_dim, int value_dim, std::ptrdiff_t longest, bool backward, Form = Form::recurrent,
                            int chunk = 0) noexcept;

/// Forms: step, recurrent, chunk, best; others are not_supported.
template <class T>
Status forward(const KalmanProblem<T>&, Form, const Simd<double>&, Workspace) noexcept;

/// `s` and `p` are the *initial* states and are only read; outputs are ignored.
template <class T>
Status backward(const KalmanProblem<T>&, const KalmanGradient<T>&, Form, const Simd<double>&, Workspace) noexcept;

}  // namespace kalman
}  // namespace ttr::families
