// Least squares in a linear memory, exact or by a few steps: RLS, mesa layers and Gated KalmaNet.
//
//   H_t = e^{gh_t} H_{t-1} + beta_t k_t k_t' ;  F_t = e^{g_t} F_{t-1} + beta_t k_t v_t'        H [K, K], F [K, V]
//   A_t = H_t + diag(ridge)   or, relative,  H_t + |H_t|_F diag(ridge)
//   x_t ~ A_t^{-1} p_t ,  p_t = scale q_t ;  o_t = F_t' (p_t + blend_t (x_t - p_t))
//   variance_t = 1 + p_t' A_t^{-1} p_t          of a value at the query, in units of the values' noise
//   known_t = 1 - x_t' diag(A_t - H_t) x_t / variance_t          the part of it that pairs account for, not the ridge
//
//   cholesky             x exact, K^3 / 3 per token
//   conjugate_gradients  at most `steps` from x = 0, 2 K^2 each, until |A x - p| <= tolerance |p|
//   chebyshev            x_0 = s p, then `steps` steps for eigenvalues in [low, high], low = min ridge_j,
//                        high = max ridge_j + |H|_F (ridge as it stands in A):
//     w_n = 4 / (4 - rho^2 w_{n-1}) , w_0 = 2 ;  x_n = x_{n-1} - w_n s (A x_{n-1} - p) + (w_n - 1)(x_{n-1} - x_{n-2})
//     s = 2 / (high + low) ,  rho = (high - low) / (high + low)
//
//   gradient             x_0 = 0, then `steps` steps  x_n = x_{n-1} - s (A x_{n-1} - p) , s = step_t or, automatic,
//                        1 / trace H_t: o = S'p for the S that as many steps on the objective from S = 0 reach
//
// RLS with forgetting: cholesky and a constant ridge. MesaNet (arXiv 2506.05233): g = gh, ridge [H, K], conjugate
// gradients. Gated KalmaNet (arXiv 2511.21016): relative ridge 0.02, blend, chebyshev. No constants are added to
// denominators: they would bound the accuracy at 1e-3.
//
// Gradients are those of what is computed: the reverse of the steps taken, not the implicit gradient of an exact
// solution, which is off by the residual of a truncated one. Conjugate gradients that have converged (|A x - p| <=
// 1e-12 |p|) are an exact solution. Gradients include the paths through |H|_F, low and high.
//
// H and F are double whatever T is, and so is the work: accumulated in float the factorisation fails after 1e5 tokens,
// and Woodbury recursions wind up under forgetting.
//
// Forms: step and recurrent; chunk, in which all queries of a chunk are solved together (chunk.h). By steps this goes
// without H_t and A_t, by matrix products: the same steps, each query with its own number of them, forwards and
// backwards, so results differ by rounding: Chebyshev steps by 1e-15. Conjugate gradients magnify it where they have not
// converged on an ill-conditioned matrix, at most up to the error that is left after the steps (1e-13 where they have);
// at |A x - p| = tolerance the number of steps may differ by one. An exact solve needs each token's own factor: those of
// as many tokens as a vector has lanes are computed side by side.
//
// parallel: T independent systems (arXiv 2501.12352), segments of time as tasks (run/segments.h). H and F are sums, so
// those of a segment need nothing before it, and a segment starts from the faded sums of all before it: additions of
// positive terms, in the order of time, no less accurate than the token loop. Every segment then goes by chunks.
// Rank-one updates of a factor are not used: a ridge that does not fade beside sums that do is not a change of low rank.
//
// Traps: a head of a sequence with beta < 0 or a ridge < 0 (cholesky: <= 0) or NaN gets NaN and keeps its state, the
// others are computed, and the call returns out_of_domain. Where H = 0 a relative ridge leaves nothing to solve: x =
// 0. A token whose matrix has no Cholesky factor gets NaN, the others are computed, and the call returns
// out_of_domain. Only the lower triangle of an initial H is read; both are written. Gradients of H are raw: K*K
// independent numbers; solvers agree in the symmetric part only. With conjugate_gradients they are that part, (G +
// G') / 2: the rest is rounding once the steps have converged.
#pragma once

#include <cstddef>

#include "families/common/linear.h"
#include "families/common/solve.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

template <class T>
struct LeastSquaresProblem {
  LinearProblem<T> linear;  // q, k, v, g, beta, o, sequences, scale; linear.state is not used
  View<const T, 3> gh;      // [B, T, H] gate of H; no data = g
  View<const T, 4> ridge;   // [B, T, H, K]; strides may be zero; no data = 0 (not with cholesky)
  bool relative = false;    // the ridge is a factor of |H_t|_F
  View<const T, 3> blend;   // [B, T, H]; no data = 1
  SolveBy solver = SolveBy::cholesky;
  int steps = 30;              // all but cholesky
  View<const T, 3> step;       // [B, T, H]; gradient; no data = 1
  bool automatic = false;      // gradient: 1 / trace H_t instead, 0 where that is 0
  double tolerance = 1e-13;    // conjugate_gradients
  int chunk = 0;               // tokens of Form::chunk; 0 = default_chunk
  double* h = nullptr;         // [N, H, K, K] contiguous, start in, end out
  double* f = nullptr;         // [N, H, K, V]
  View<T, 3> variance, known;  // [B, T, H]; no data = not wanted; with cholesky alone. known has no gradient
  const bool* outside =
      nullptr;  // [N, H] who has a number outside the domain, where that is known; null: is looked for
};

/// Gradients are added to (+=). `linear.d_final` and `linear.d_initial` are not used.
template <class T>
struct LeastSquaresGradient {
  LinearGradient<T> linear;     // d_o in; d_q, d_k, d_v, d_g, d_beta out; d_g includes that of H where gh has no data
  View<T, 3> d_gh;              // only where gh has data
  View<const T, 3> d_variance;  // no data = zero
  View<T, 4> d_ridge;           // zero strides sum
  View<T, 3> d_blend, d_step;
  const double *d_final_h = nullptr, *d_final_f = nullptr;  // null = zero
  double *d_initial_h = nullptr, *d_initial_f = nullptr;
};

namespace least_squares {

inline constexpr int default_chunk = 32;

/// `longest` is the length of the longest sequence; the backward pass keeps O(sqrt(longest)) states and one solve, or
/// one of every query of a chunk.
std::size_t workspace_bytes(int key_dim, int value_dim, std::ptrdiff_t longest, SolveBy, int steps, bool backward,
                            Form = Form::recurrent, int chunk = 0) noexcept;

/// Forms: step, recurrent (the same), chunk, parallel (the same as chunk), best: with cholesky and gradient chunk for
/// sequences of some tokens, else recurrent. Others, and variance and known without cholesky, are not_supported.
template <class T>
Status forward(const LeastSquaresProblem<T>&, Form, const Simd<double>&, Workspace) noexcept;

/// The symmetric part of a gradient of H [K, K] where only that has a meaning: with conjugate_gradients.
void symmetrize(SolveBy, std::ptrdiff_t K, double* d_h) noexcept;

/// outside [N, H] = who has an importance or a ridge outside the domain.
template <class T>
void find_outside(const LeastSquaresProblem<T>&, bool* outside) noexcept;

/// `h` and `f` are the *initial* states and are only read; outputs are ignored.
template <class T>
Status backward(const LeastSquaresProblem<T>&, const LeastSquaresGradient<T>&, Form, const Simd<double>&,
                Workspace) noexcept;

}  // namespace least_squares
}  // namespace ttr::families
