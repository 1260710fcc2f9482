// Recursive least squares by QR: rows are rotated into a triangle, O(K^2 + K V) per token, and nothing is squared.
//
//   H_t = a_t H_{t-1} + beta_t k_t k_t'          a_t = e^{g_t}                            H = B'R'R B ,  F = B'R'Z
//   F_t = a_t F_{t-1} + beta_t k_t v_t'          o_t = S_t' (scale q_t) ,  S = pinv(H) F = B'R^{-1} Z
//   [R Z] <- Givens rotations of the rows  [sqrt(a) R, sqrt(a) Z],  sqrt(beta) [k'B', v']
//   variance_t = 1 + scale^2 q_t' pinv(H_t) q_t          of a value at the query, in units of the values' noise
//
// R [K, K] upper triangular, Z [K, V], B [K, K], per sequence and head; double whatever T is. B is an orthonormal basis
// of the span of the keys, one row per dimension, the others zero (Gram-Schmidt, twice). A key that is out of the span
// by more than 100 eps of its length appends a row; eps is that of the keys' type (float: a tenth), whose rounding says
// nothing. What they say fades in double: a direction whose pivot has sunk below 1000 eps of double of the largest (what
// was known of it has faded, or is lost in the rounding of the others) is turned into a coordinate and removed, and `lost`
// counts it: a URV decomposition kept up to date, O(K^2 + K V) per change. Directions below 1e-4 of the largest pivot are
// the last coordinates: rows that reach into them by no more than 100 eps of their length are taken not to, or their
// rounding would be what is known there after some time.
//
//   without a ridge   the answer of least norm (test-time regression Eq. 11 and 15)
//   with one          diag(ridge) is in H before the first token and is forgotten like every pair: P_0 = diag(1 / ridge)
//                     of the textbooks. share [K] is the part of it that is still there; 0 is a fresh start.
//   with a constant   sqrt(ridge) I is R at the start, and nothing fades (`constant`, a regular triangle): R'R = H_t + ridge
//   one               I for all tokens. The triangle has a row per key from the start, there is no basis to find, B = I,
//                     and no direction is ever removed, however small the ridge is beside the pairs
//
// known_t is the part of variance_t that pairs account for, 1 - (scale q)'pinv(H) diag(ridge share) pinv(H)(scale q) /
// variance: 1 without a ridge, 0 where the query leaves the span of the keys: nothing is known there, and the variance
// says only how much the answer scatters.
//
// All states zero is a fresh start; regular: Z = 0 and R = sqrt(ridge) I.
//
// Traps: a head of a sequence with beta < 0 or a ridge that is not positive (or NaN) gets NaN and keeps its state, the
// others are computed, and the call returns out_of_domain. A faded row is not
// scaled below a pivot of about 6e-154: S does not depend on the scale of a row of [R Z], and only numbers next to zero
// weigh anything else. A closed gate (g = -inf) forgets a ridge too. R and B are defined up to signs and turns only, so
// what the gradient of a state holds in the places of R and Z are D_H [K, K] and D_F [K, V], the gradients of the sums H
// and F: calls that hand it on compose. If the triangle is regular, R and Z are those of a Cholesky factor, and the
// gradient is that of R and Z. known has none in any case.
// Sources: Golub and Van Loan 6.5; Stewart 1992 (URV); arXiv 2501.12352.
#pragma once

#include <cstddef>

#include "families/common/linear.h"
#include "families/solve/givens/lost.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

template <class T>
struct GivensProblem {
  LinearProblem<T> linear;     // q, k, v, g, beta, o, sequences, scale; linear.state is not used
  View<const T, 2> ridge;      // [H, K]; strides may be zero; no data = no ridge
  double constant = 0;         // above 0: this ridge is in R from the start; no gates, no `ridge`, no share, no basis
  double* r = nullptr;         // [N, H, K, K] contiguous, start in, end out; not read below the diagonal
  double* z = nullptr;         // [N, H, K, V]
  double* share = nullptr;     // [N, H, K]; not used without `ridge`
  double* basis = nullptr;     // [N, H, K, K]; not used if regular
  View<T, 3> variance, known;  // [B, T, H]; no data = not wanted
  Lost* lost = nullptr;        // forward: directions that were dropped; null: not wanted
};

/// Gradients are added to (+=). `linear.d_final` and `linear.d_initial` are not used.
template <class T>
struct GivensGradient {
  LinearGradient<T> linear;     // d_o in; d_q, d_k, d_v, d_g, d_beta out
  View<const T, 3> d_variance;  // no data = zero
  View<T, 2> d_ridge;           // [H, K]; a zero key stride sums over the keys; not if regular: R has it
  const double *d_final_r = nullptr, *d_final_z = nullptr;  // null = zero; of H and F if not regular
  double *d_initial_r = nullptr, *d_initial_z = nullptr;
};

namespace givens {

/// `longest` is the length of the longest sequence; the backward pass keeps O(sqrt(longest)) states.
std::size_t workspace_bytes(int key_dim, int value_dim, std::ptrdiff_t longest, bool backward,
                            bool regular = false) noexcept;

/// Forms: best, step, recurrent (all the same); others are not_supported.
template <class T>
Status forward(const GivensProblem<T>&, Form, const Simd<double>&, Workspace) noexcept;

/// Implicit differentiation. The states are the *initial* ones and are only read; outputs are ignored. Exact where H is
/// regular and, without a ridge, while the keys are independent (then weights do not matter, Eq. 15); the least-norm
/// answer is not differentiable where a key repeats, and the gradient there is that of the rank found.
template <class T>
Status backward(const GivensProblem<T>&, const GivensGradient<T>&, Form, const Simd<double>&, Workspace) noexcept;

}  // namespace givens
}  // namespace ttr::families
