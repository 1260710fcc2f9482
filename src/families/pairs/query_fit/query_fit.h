// A regression of its own for every query, over the pairs that it sees, with weights that depend on the query.
//
//   w_j = beta_j e^{near + g_{j+1} + .. + g_t}      near = scale q.k_j , -|q - k_j|^2 / bandwidth , or 0
//   o = sum_j u_j v_j                               what the memory fitted to (x_j, v_j, w_j) answers at the query
//
// What a memory sees of a pair, and the system A y = b that gives u:
//
//   features  rows x_j and x_q [F] (a linear memory behind any feature map)
//   local     the monomials of k_j - q up to an order, 1 first, and x_q = e_1: a polynomial around the query. Its constant
//             carries no ridge, so that exact solves may take them around their means (Tile::centre); where the ridge
//             is below 1e-6 of their products, they are orthogonalised and not multiplied (orthogonal.h)
//             A = sum_j w_j x_j x_j' + ridge I [F, F] ,  b = scale x_q ,  u_j = w_j x_j.y
//   kernel    A = D kappa(K, K) D + ridge I [n, n] ,  b = D kappa(K, q) ,  u = D y ,  D = diag(sqrt w)
//
// and y is solved for exactly (Cholesky), by n steps of conjugate gradients, or by n gradient steps y <- y - s (A y - b)
// from zero, s = step_t or 1 / tr A (automatic). Gradient steps on the memory itself are those: what they make of F = sum
// w x v' is a polynomial of A, which may as well be applied to b.
//
// Everything is in double whatever T is. Queries go 64 at a time (local: one by one, whose rows are its own): iterations
// multiply all of them by their matrices in two products of [64, F] and [n, F] (kernel: one with kappa, [n, n]), 4 n F per
// step and query; exact solves form A for every query, n F^2 / 2 + F^3 / 6 (kernel: n^3 / 6; orthogonalised: 2 (n + F)
// F^2). Windows leave out what no query of the 64 sees. Source: weighted least squares at a point, Cleveland 1979, arXiv 2501.12352 (test-time regression).
//
// Backward, given dy: exact  z = A^-1 dy, dA = -z y', db = z; else the steps in reverse (solve/least_squares/rows.h). dA
// goes to weights and rows as  dw_j += (x_j.d)(x_j.p) , dx_j += w_j (d (x_j.p) + p (x_j.d))  for each d p' in dA.
//
// Traps: weights are relative to the largest where that changes nothing (exact, cg), with the absolute ridge; gradient
// steps take them as they are, and e^x may overflow. A ridge below 0 (exact: not above 0), or a negative beta (not with
// gradient steps), costs a query its answer: NaN, and the call returns out_of_domain. So does a system that rounding has
// made indefinite although its ridge was raised to 1e-13 tr A. Kernel and local memories take time from n^2 on.
#pragma once

#include <cstddef>

#include "families/common/solve.h"
#include "families/pairs/kernel.h"
#include "families/pairs/problem.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

enum class FitMemory { features, local, kernel };
enum class FitNear { none, exponential, gaussian };

/// Always causal. q and k are what weights, monomials and kernels look at.
template <class T>
struct QueryFitProblem : PairProblem<T> {
  FitMemory memory = FitMemory::features;
  int features = 0;  // F of rows that are not q and k themselves; 0: they are
  int order = 1;     // local
  RegressionKernel kernel = RegressionKernel::exponential;
  double kernel_scale = 1, kernel_bandwidth = 1;  // of exponential and gaussian
  int degree = 2;                                 // polynomial
  double scale = 1;                               // on x_q

  FitNear near = FitNear::none;
  double near_scale = 1;       // exponential
  View<const T, 1> bandwidth;  // gaussian: [H] above 0; the stride may be zero
  std::ptrdiff_t window = 0;   // newest pairs a query sees, its own included; 0 = all
  View<const T, 3> g, beta;    // [B, T, H]; no data = 0 and 1. Strides may be zero

  View<const T, 4> x_q, x_k;  // [B, T, H, F], [B, T, G, F]; with features > 0

  SolveBy solve = SolveBy::cholesky;  // not chebyshev
  int steps = 1;
  View<const T, 3> ridge;              // [B, T, H]; no data = 0 (not exact)
  bool relative = false;               // the ridge is times sum w
  View<const T, 3> step;               // [B, T, H] of gradient steps; no data = 1
  bool automatic = false;              // 1 / tr A instead
  View<const T, 4> past_v;             // [N, capacity, G, V]
  View<const T, 4> past_x;             // [N, capacity, G, F]
  View<const T, 3> past_g, past_beta;  // [N, capacity, H]

  int width() const { return features > 0 ? features : this->key_dim; }
};

template <class T>
struct QueryFitGradient : PairGradient<T> {
  View<T, 4> d_x_q, d_x_k;
  View<T, 3> d_g, d_beta, d_ridge, d_step;  // [B, T, H]; zero strides sum
  View<T, 1> d_bandwidth;
  View<T, 4> d_past_v, d_past_x;
  View<T, 3> d_past_g, d_past_beta;
};

namespace query_fit {

/// Numbers of a monomial basis in K variables up to the order.
std::ptrdiff_t monomials(int key_dim, int order) noexcept;

/// Of the problem's own sizes, settings and window, for sequences of up to `pairs` pairs, past ones included.
template <class T>
std::size_t workspace_bytes(const QueryFitProblem<T>&, std::ptrdiff_t pairs, bool backward) noexcept;

template <class T>
Status forward(const QueryFitProblem<T>&, const Simd<double>&, Workspace) noexcept;

/// `o` is ignored.
template <class T>
Status backward(const QueryFitProblem<T>&, const QueryFitGradient<T>&, const Simd<double>&, Workspace) noexcept;

}  // namespace query_fit
}  // namespace ttr::families
