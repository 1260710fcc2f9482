// A weighted second moment in double, its Cholesky factor and solves with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "families/pairs/local_linear/block.h"

namespace ttr::families::local_linear {

/// Whether rounding of the mean leaves something of a slope's answer. r.(x_j - xb) of the nearest pair is known to
/// u sum_a |r_a xb_a|, u the unit of rounding of xb, and the answer to as much of the values. Where logits peak and the
/// ridge is next to nothing r grows as one over the weight of the second pair, and beyond a tenth nothing is left to
/// answer with.
template <class T>
bool is_known(Size count, const T* r, const T* mean) {
  double sum = 0;
  for (Size c = 0; c < count; ++c) sum += std::abs(static_cast<double>(r[c]) * static_cast<double>(mean[c]));
  return !(sum * static_cast<double>(std::numeric_limits<T>::epsilon()) > 0.2);
}

/// A positive definite F x F matrix in double: sum of weighted outer products, factor, solve.
class Moments {
 public:
  Moments(const Simd<double>& simd, Size features, Arena& arena) : s(simd), F(features) {
    S = arena.take<double>(F * F), L = arena.take<double>(F * F), weighted = arena.take<double>(tile_size * F);
  }
  void clear() { std::fill_n(S, F * F, 0.0); }
  /// S += X' diag(p) X, X [n, F]; panels of rows, because only the lower triangle is used.
  void add(Size n, const double* p, const double* X) {
    s.scale_rows(n, F, p, X, F, weighted, F);
    constexpr Size panel = 32;
    for (Size a = 0; a < F; a += panel) {
      const Size m = std::min(panel, F - a);
      s.gemm_tn(m, a + m, n, 1.0, weighted + a, F, X, F, 1.0, S + a * F, F);
    }
  }
  /// False: S is not finite, or lambda is NaN.
  bool factor(double lambda) {
    double diagonal = 0;
    for (Size i = 0; i < F; ++i) diagonal = std::max(diagonal, S[i * F + i]);
    if (!(lambda > 0) || !std::isfinite(diagonal)) return false;
    digits = least_pivot = std::numeric_limits<double>::infinity();
    return cholesky(lambda) || cholesky(std::max(lambda, 1e-13 * static_cast<double>(F) * diagonal));
  }
  /// Whether rounding of S leaves a digit of every pivot; a ridge that was raised leaves none. Weights below `floor` are
  /// lost, and so are ridges: a pivot has to be larger.
  bool is_known(double floor) const { return digits > 10 && least_pivot > 10 * floor; }
  /// b <- (S + lambda I)^{-1} b
  void solve(double* b) const {
    for (Size i = 0; i < F; ++i) b[i] = (b[i] - s.dot(i, L + i * F, b)) / L[i * F + i];
    for (Size i = F; i-- > 0;) {
      b[i] /= L[i * F + i];
      s.axpy(i, -b[i], L + i * F, b);
    }
  }
  /// X [F, F] = (S + lambda I)^{-1}; spoils the factor.
  void invert(double* X, double* scratch) {
    for (Size i = 0; i < F; ++i) scratch[i] = 1 / L[i * F + i];
    s.scale_columns(F, F, scratch, L, F, L, F);  // L = (I + stril(L)) diag: the products of the table want the first
    std::fill_n(X, F * F, 0.0);
    for (Size i = 0; i < F; ++i) X[i * F + i] = 1, scratch[i] *= scratch[i];
    s.solve_nn(F, F, L, F, X, F);
    s.scale_rows(F, F, scratch, X, F, X, F);
    s.solve_tn(F, F, L, F, X, F);
  }
  double& entry(Size i, Size j) { return S[i * F + j]; }  // j <= i

 private:
  bool cholesky(double lambda) {
    for (Size i = 0; i < F; ++i) {
      double* const row = L + i * F;
      for (Size j = 0; j < i; ++j) row[j] = (S[i * F + j] - s.dot(j, row, L + j * F)) / L[j * F + j];
      const double pivot = S[i * F + i] + lambda - s.dot(i, row, row);
      const double rounding = static_cast<double>(F) * std::numeric_limits<double>::epsilon() * S[i * F + i];
      digits = std::min(digits, pivot / rounding), least_pivot = std::min(least_pivot, pivot);
      if (!(pivot > 0) || !std::isfinite(pivot)) return false;
      row[i] = std::sqrt(pivot);
    }
    return true;
  }

  const Simd<double>& s;
  Size F;
  double digits = 0, least_pivot = 0;  // of pivots: the least over its rounding, and the least
  double *S, *L, *weighted;
};

}  // namespace ttr::families::local_linear
