// Local linear attention: for every query an affine fit to the pairs near it, read at the query.
//
//   w_j = exp(scale q.k_j)  or  exp(-|k_j - q|^2 / bandwidth) ;   p = w / sum w ,  c_j = k_j - kb
//   w_j *= exp(g_{j+1} + .. + g_t)      with gates: a pair fades with the log forget gates of the tokens after it
//   kb = sum p k ;  vb = sum p v ;  S = sum p c c' + lambda I ;  r = S^-1 (kb - q)
//   o = vb - Cov_p(k, v)' r = sum_j p_j (1 - c_j.r) v_j
//
// = the intercept b of  min_{b,W} sum_j w_j |v_j - b - W'(k_j - q)|^2 + lambda (sum w) |W|^2 : the centred form of
// the ridge `relative`. `absolute` has lambda in place of lambda (sum w). Order 2 regresses on z = k - q and all z_a
// z_b (a <= b), the ridge on all of these coefficients. A given `slope` r replaces the solve (Parallax). With a window
// a query sees the newest `window` pairs, its own included. Sources: arXiv 2510.01450 (LLA), 2605.29157 (Parallax),
// 2501.12352 Eq. 48-49 (order 2), 2503.02130 (the gates, there of softmax).
//
// Tokens are taken in tiles of 64 queries by 64 keys; the weights of one tile of queries are kept, so memory grows
// as L (K + V + 64), L the pairs a query can see, and never as L squared. Everything but the solve is matrix
// products of tiles; with a window tiles that no query of a block sees are left out, so its work is that of window + 64
// pairs per query. A call with one new token and the rest in `past` is a decode step: it goes over the rows of the keys as they
// are, a product with S in one pass.
//
// The solve. *Direct*: S and its Cholesky factor in double whatever T is, L K^2 / 2 per query. *Iterative*: conjugate
// gradients in T for all queries of a tile together, 2 L K per step and query, preconditioned by the covariance of
// the keys (precondition.h). They start from the best multiple of the query, which costs half a step
// because q.k is there (not with gates: then the logits have them too), and end with a step that needs no product
// (solve.h). They stop when the
// estimated energy |x - r|_S, which bounds the error of o in units of the values' weighted standard deviation, is
// below 1e-5 (float; 1e-6 backward) or 1e-13 (double), or below that (float: a tenth of it) relative to |r|_S. A
// query that is not there after 16 + K/4 steps (float, once there are K pairs: 16 + 3K/4) is solved directly, and
// where most are not, seven blocks of eight go without the attempt (findings.h). K <= 32 (float) and K <= 64 (double) are
// direct; order 2 is always direct.
//
// A team (team.h) takes the blocks of 64 queries of all heads of a key head; backwards they solve side by side and add to the
// gradients of the pairs one after another.
//
// Cost in float, K = V = 64, causal, T = 2048, normal keys, AVX-512, at lambda = 0.1, 1 and 10: 12, 7 and 2.8 steps
// on average (9.1, 5.9 and 2.4 weighted by the pairs seen); forward takes 9.5, 6.4 and 4.0 times as long as softmax,
// a step 0.65, all the rest 2.5 of them; backward 2.4 to 2.6 times forward. With keys of scales over two decades,
// mixed: 4.1, 2.3 and 2.0 steps.
//
// Rounding: keys are taken relative to the first finite key of the sequence, which changes nothing on paper and keeps a
// common offset out of every sum; with it T = 1 returns v_1 and identical keys the mean of the values, whatever
// lambda. A narrow Gaussian loses |k - q|^2 / bandwidth rounding units in its logits. Exponents of gates are sums from
// the pair to the query (pairs/gates.h).
//
// Traps: lambda must be > 0; elsewhere a query gets NaN, the others are computed, and the call returns
// out_of_domain. So it is with a query whose logits peak so sharply, beside so small a ridge, that rounding leaves
// less than a digit of its answer: of kb (T's unit, times |r|.|kb|), of S (a pivot), or of weights that underflow
// (moments.h). The weights p_j (1 - c_j.r) sum to 1 but may be negative: |o| can exceed every |v|. NaN reaches the
// queries that see it and no others.
// Gradients are added to (+=); a gradient view with zero strides sums over what it broadcasts.
#pragma once

#include <cstddef>

#include "families/pairs/problem.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

enum class LocalKernel { exponential, gaussian };
enum class LocalRidge { relative, absolute };

/// Not causal: k and v may have no data, then the past alone is seen.
template <class T>
struct LocalLinearProblem : PairProblem<T> {
  int order = 1;              // 1 or 2
  bool causal = true;         // else every query of a sequence sees all of it: not with g, not with a window
  std::ptrdiff_t window = 0;  // newest pairs a query sees, its own included; 0 = all
  LocalKernel kernel = LocalKernel::exponential;
  T scale = 1;                 // exponential: on q.k
  View<const T, 1> bandwidth;  // gaussian: [H] > 0; the stride may be zero
  LocalRidge ridge = LocalRidge::relative;
  View<const T, 3> lambda;  // [B, T, H] > 0; strides may be zero. Not used with `slope`
  View<const T, 4> slope;   // [B, T, H, K]; no data = solved for. Order 1 only
  View<const T, 3> g;       // [B, T, H] natural log of the forget gate; no data = 0. Strides may be zero.
  View<const T, 4> past_v;  // [N, capacity, G, V]
  View<const T, 3> past_g;  // [N, capacity, H] each token's own g
};

template <class T>
struct LocalLinearGradient : PairGradient<T> {
  View<T, 3> d_lambda;     // [B, T, H]
  View<T, 4> d_slope;      // [B, T, H, K]
  View<T, 1> d_bandwidth;  // [H]
  View<T, 3> d_g;          // [B, T, H], full strides
  View<T, 4> d_past_v;
  View<T, 3> d_past_g;
};

namespace local_linear {

/// `group` heads have a key head in common; `longest` is the largest number of pairs of a sequence, past ones included;
/// `window` as in the problem; `workers` are those of its team.
template <class T>
std::size_t workspace_bytes(int key_dim, int value_dim, int order, int group, std::ptrdiff_t longest,
                            std::ptrdiff_t window, bool backward, int workers = 1) noexcept;

/// `wide` is the table of the direct solve; null: the best of this machine.
template <class T>
Status forward(const LocalLinearProblem<T>&, const Simd<T>&, Workspace, const Simd<double>* wide = nullptr) noexcept;

/// `o` is ignored; nothing of the forward pass is needed.
template <class T>
Status backward(const LocalLinearProblem<T>&, const LocalLinearGradient<T>&, const Simd<T>&, Workspace,
                const Simd<double>* wide = nullptr) noexcept;

}  // namespace local_linear
}  // namespace ttr::families
