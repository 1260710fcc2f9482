// Recursive least squares with forgetting and a constant ridge, as an information pair:
//
//   H_t = e^{g_t} H_{t-1} + beta_t k_t k_t'      F_t = e^{g_t} F_{t-1} + beta_t k_t v_t'
//   o_t = F_t' x_t ,   (H_t + diag(ridge)) x_t = scale q_t        H [K, K] symmetric, F [K, V], per sequence and head
//
// H and F are double whatever T is, and so is the solve (Cholesky, K^3/3 per token): accumulated in float the
// factorisation fails after 1e5 tokens, and Woodbury recursions wind up under forgetting.
//
// Traps: ridge must be > 0 and beta >= 0, else H + diag(ridge) need not be positive definite: Status::out_of_domain.
// Only the lower triangle of an initial H is read; both are written. Gradients of H are *raw*: H counts as K*K
// independent numbers (the solve contributes -u x', not its symmetric part), as in flash-linear-attention. Symmetrise
// them if H_0 is parametrised as a symmetric matrix.
#pragma once

#include <cstddef>

#include "families/common/linear.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

template <class T>
struct LeastSquaresProblem {
  LinearProblem<T> linear;  // q, k, v, g, beta, o, sequences, scale; linear.state is not used
  View<const T, 2> ridge;   // [H, K]; strides may be zero (ridge per head: stride {1, 0})
  double* h = nullptr;      // [N, H, K, K] contiguous, start in, end out
  double* f = nullptr;      // [N, H, K, V] contiguous, start in, end out
};

/// Gradients are added to (+=). `linear.d_final` and `linear.d_initial` are not used.
template <class T>
struct LeastSquaresGradient {
  LinearGradient<T> linear;           // d_o in; d_q, d_k, d_v, d_g, d_beta out
  View<T, 2> d_ridge;                 // [H, K]; a zero key stride sums over the keys, as the chain rule wants
  const double* d_final_h = nullptr;  // null = zero
  const double* d_final_f = nullptr;
  double* d_initial_h = nullptr;
  double* d_initial_f = nullptr;
};

namespace least_squares {

/// `longest` is the length of the longest sequence; the backward pass keeps O(sqrt(longest)) states.
template <class T>
std::size_t workspace_bytes(int key_dim, int value_dim, std::ptrdiff_t longest, bool backward) noexcept;

/// Forms: best, step, recurrent (all the same); others are not_supported. A ridge that is not positive returns
/// out_of_domain before anything is touched. A token whose matrix is not positive definite (beta < 0, NaN) gets NaN
/// as its output, all other tokens are computed, and the call returns out_of_domain. simd = null: the best of this
/// machine.
template <class T>
Status forward(const LeastSquaresProblem<T>&, Form, Workspace, const Simd<double>* simd = nullptr) noexcept;

/// `h` and `f` are the *initial* states and are only read; `linear.o` is ignored.
template <class T>
Status backward(const LeastSquaresProblem<T>&, const LeastSquaresGradient<T>&, Form, Workspace,
                const Simd<double>* simd = nullptr) noexcept;

}  // namespace least_squares
}  // namespace ttr::families
