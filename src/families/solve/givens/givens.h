// Recursive least squares by QR: rows are rotated into a triangle, O(K^2 + K V) per token, and nothing is squared.
//
//   H_t = a_t H_{t-1} + beta_t k_t k_t' + diag(ridge * added_t)     a_t = e^{g_t}        H = R'R ,  F = R'Z
//   F_t = a_t F_{t-1} + beta_t k_t v_t'                             o_t = S_t' (scale q_t) ,  S = H^{-1} F = R^{-1} Z
//   [R Z] <- Givens rotations of the rows
//            [sqrt(a) R, sqrt(a) Z],  sqrt(beta) [k', v'],  sqrt(ridge_j added_j) [e_j', 0]
//   variance_t = scale^2 q_t' H_t^{-1} q_t : times the variance of the values' noise it is that of the answer
//
// R [K, K] upper triangular, Z [K, V], per sequence and head. What is added for the ridge, by kind:
//
//   none      nothing. The answer of least norm (test-time regression Eq. 11 and 15); needs a basis, see below.
//   fading    once, before the first token, and forgotten like every pair: P_0 = diag(1 / ridge) of the textbooks
//   constant  by leakage. share_j is the part of ridge_j that H still holds: share <- a share; then every share below
//             least_share (1/2) is set to 1, and if there is none the smallest, s, to 2 - s: one coordinate per
//             token, in turn. So the ridge is right on average and within a factor 1 -+ (1 - a^K) / 2 of a constant
//             one; a is near 1 where that matters. In exchange a token costs K^2 and not K^3. With least_share = 1
//             all coordinates are restored at every token: exactly constant, K^3.
//
// With a basis the triangle is in coordinates of B [K, K], an orthonormal basis of the span of the keys, one row per
// dimension, the others zero (Gram-Schmidt, twice): H = B' R' R B. A key that is out of the span by more than 100 eps
// of its length appends a row. A direction whose pivot has sunk below 1000 eps of the largest (what was known of it
// has faded, or is lost in the rounding of the others) is turned into a coordinate and removed: a URV decomposition
// kept up to date, O(K^2 + K V) per change. The answer is pinv(H) F. Without a basis every direction counts and R
// must have a full diagonal: fading and constant.
//
// All states zero is a fresh start, for every kind. `share` is 1 where the ridge is in H already (a state made from
// a given H: R its Cholesky factor, Z = R'^{-1} F).
//
// Types: T of the inputs and outputs (eps above is its), A of the states and the work. With A = float the rounding of
// R stays below 4e-6 of the answers under forgetting, and wanders as sqrt(t) without (8e-6 after 20,000 tokens at K =
// 16, 5e-5 after 100,000 at K = 32). <float, double> answers to the rounding of its output, for ever.
//
// Traps: beta < 0 or a ridge or least_share that is not positive returns out_of_domain before anything is touched. A
// faded row is not scaled below a pivot of about 4e-19 (float) or 6e-154 (double): S does not depend on the scale of
// a row of [R Z], and only numbers next to zero weigh anything else. A closed gate (g = -inf) forgets a fading ridge
// too; then use a basis, because without one the answer sets unknown coordinates to zero, which is not the least
// norm. Gradients of states are those of H and F, raw as in least_squares.h, because R is defined up to signs only.
// Sources: Golub and Van Loan 6.5; Stewart 1992 (URV); arXiv 2501.12352.
#pragma once

#include <cstddef>

#include "families/common/linear.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

enum class RidgeKind { none, fading, constant };

template <class T, class A = T>
struct GivensProblem {
  LinearProblem<T> linear;  // q, k, v, g, beta, o, sequences, scale; linear.state is not used
  RidgeKind kind = RidgeKind::none;
  View<const T, 2> ridge;  // [H, K]; strides may be zero. Not with none
  A* r = nullptr;          // [N, H, K, K] contiguous, start in, end out; not read below the diagonal
  A* z = nullptr;          // [N, H, K, V]
  A* share = nullptr;      // [N, H, K]; not used with none
  A* basis = nullptr;      // [N, H, K, K]; null: none, and not with RidgeKind::none
  View<T, 3> variance;     // [B, T, H]; no data = not wanted
  A least_share = A(0.5);  // in (0, 1]
};

/// Gradients are added to (+=). `linear.d_final` and `linear.d_initial` are not used.
template <class T>
struct GivensGradient {
  LinearGradient<T> linear;                                 // d_o in; d_q, d_k, d_v, d_g, d_beta out
  View<const T, 3> d_variance;                              // no data = zero
  View<T, 2> d_ridge;                                       // [H, K]; a zero key stride sums over the keys
  const double *d_final_h = nullptr, *d_final_f = nullptr;  // [N, H, K, K], [N, H, K, V]; null = zero
  double *d_initial_h = nullptr, *d_initial_f = nullptr;
  const double* d_final_share = nullptr;  // [N, H, K]; constant ridge only
  double* d_initial_share = nullptr;
};

namespace givens {

/// `longest` is the length of the longest sequence; the backward pass keeps O(sqrt(longest)) states.
template <class A>
std::size_t workspace_bytes(int key_dim, int value_dim, std::ptrdiff_t longest, bool basis, bool backward) noexcept;

/// Forms: best, step, recurrent (all the same); others are not_supported.
template <class T, class A>
Status forward(const GivensProblem<T, A>&, Form, const Simd<A>&, Workspace) noexcept;

/// Implicit differentiation in double. The states are the *initial* ones and are only read; outputs are ignored.
/// Exact where H is regular and, without a ridge, while the keys are independent (then weights do not matter, Eq.
/// 15); the least-norm answer is not differentiable where a key repeats, and the gradient there is that of the rank
/// found.
template <class T, class A>
Status backward(const GivensProblem<T, A>&, const GivensGradient<T>&, Form, const Simd<A>&, const Simd<double>&,
                Workspace) noexcept;

}  // namespace givens
}  // namespace ttr::families
