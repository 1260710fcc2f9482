// Kernel ridge regression: the function of the kernel's Hilbert space that fits the pairs seen so far, at the query.
//
//   o_t = V_t' w_t ,   (kappa(K_t, K_t) + ridge I) w_t = kappa(K_t, q_t)                 K_t [t, K], V_t [t, V]
//
//   exponential  exp(scale x.y)      gaussian  exp(-|x - y|^2 / bandwidth)
//   linear       x.y                 polynomial  (1 + x.y)^degree
//
// i runs over the pairs that query t sees: those of earlier calls (the past), then those of this call up to t itself;
// with a window only the newest `window` of them; not causal: all of the past and all of its sequence. Source:
// arXiv 2501.12352 Eq. 43 with a ridge; Saunders, Gammerman, Vovk 1998.
//
// The factor L L' = kappa(K, K) + ridge I grows by one row per pair, l = L^-1 kappa(K, k_t), and so does Z = L^-1 V;
// the factor of fewer pairs is its upper left corner. An answer is one triangular solve: o = (L^-1 kappa(K, q))' Z.
// Rows are appended and queries answered 64 at a time, as matrix products, t^2 per token. All of it is in double
// whatever T is. L is packed: row i, of i + 1 numbers, starts at i (i + 1) / 2 whatever the capacity is.
//
// A window slides over the factor: the oldest pair leaves (3 n^2 for n pairs), the new one is appended. The factor
// may be kept between calls (`triangle`, `solved`, `factored`); a step then costs t^2, or n^2 with a window, and not
// t^3. It is a function of the past pairs and the ridge: if it is not there (factored = 0), or lags behind, it is
// made from the past, and gradients of the past include what goes through it. If the past is cut to its oldest pairs
// the factor needs no change. With a window it is that of the newest min(past, window) pairs of the past, whether the
// list still has older ones or not; if `factored` is another number it is made anew. With a ridge that changes from
// token to token every token has a system of its own: n^3 / 3 for n pairs seen, and nothing to keep.
//
// Backward, U and W with a column per query (zero where it does not see a pair), W = A_t^-1 kappa(K_t, q_t):
//
//   U = L^-T (Z dO') ,  W = L^-T Y       dV = W dO ;  dridge_t = -u_t.w_t ;  d kappa(K, q_t) = u_t
//   d kappa(K, K) = -(U W' + W U')       for each pair of keys once
//
// Traps. ridge must be above 0; with ridge = 0 and repeated keys there is no factor. Where each token has its own
// ridge, a token with another one gets NaN and no gradient, the others are computed, and the call returns
// out_of_domain; else the call returns it before anything is touched. A ridge below 4e-15 (64 + t) kappa(k_t, k_t) is
// raised to that, beside which rounding would decide the answer: a tiny ridge gives a smoother answer and never an
// infinite one. Errors are about 1e-16 t max(kappa) / ridge. The exponential kernel overflows where scale |k|^2 is
// above 709. NaN reaches the queries that see it and no others (when it leaves the window the factor is made anew);
// gradients only keep it within its sequence. Scratch: n^2 / 2 numbers forward (none with a kept factor), n^2
// backward where n is the most pairs that a query sees, and t (n + 64) for gradients where a window is shorter than
// the list.
#pragma once

#include <cstddef>
#include <cstdint>

#include "families/pairs/kernel.h"
#include "families/pairs/problem.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

/// Not causal: k and v may have no data, then the past alone is seen.
template <class T>
struct KernelRegressionProblem : PairProblem<T> {
  bool causal = true;         // false: not with a window
  std::ptrdiff_t window = 0;  // newest pairs a query sees, its own included; 0 = all

  RegressionKernel kernel = RegressionKernel::exponential;
  double scale = 1;      // exponential
  double bandwidth = 1;  // gaussian: above 0
  int degree = 2;        // polynomial: at least 1

  View<const T, 3> ridge;   // [B, T, H] above 0, of the whole system at t. Stride 0 in T: one system for a sequence
  View<const T, 4> past_v;  // [N, capacity, G, V], oldest first

  // The factor that is kept, all or none. Contiguous; start in, end out.
  double* triangle = nullptr;          // [N, H, factor_capacity (factor_capacity + 1) / 2]
  double* solved = nullptr;            // [N, H, factor_capacity, V] Z
  std::int64_t* factored = nullptr;    // [N] pairs in it; afterwards all that a sequence's next query could see
  std::ptrdiff_t factor_capacity = 0;  // pairs
};

template <class T>
struct KernelRegressionGradient : PairGradient<T> {
  View<T, 3> d_ridge;  // [B, T, H]; a zero stride sums over what it broadcasts
  View<T, 4> d_past_v;
};

namespace kernel_regression {

/// `pairs`: the largest number of pairs of a sequence, past ones included; `kept`: the problem has a factor. With
/// window = 0 it is enough for any window. Any number of heads takes the same: they follow one another.
std::size_t workspace_bytes(int heads, int key_heads, int key_dim, int value_dim, std::ptrdiff_t pairs, bool kept,
                            bool backward, std::ptrdiff_t window = 0) noexcept;

template <class T>
Status forward(const KernelRegressionProblem<T>&, const Simd<double>&, Workspace) noexcept;

/// `o` and the factor are ignored.
template <class T>
Status backward(const KernelRegressionProblem<T>&, const KernelRegressionGradient<T>&, const Simd<double>&,
                Workspace) noexcept;

}  // namespace kernel_regression
}  // namespace ttr::families
