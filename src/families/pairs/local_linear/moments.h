// A weighted second moment in double, its Cholesky factor and solves with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "families/pairs/local_linear/block.h"

namespace ttr::families::local_linear {

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
    return cholesky(lambda) || cholesky(std::max(lambda, 1e-13 * static_cast<double>(F) * diagonal));
  }
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
      if (!(pivot > 0) || !std::isfinite(pivot)) return false;
      row[i] = std::sqrt(pivot);
    }
    return true;
  }

  const Simd<double>& s;
  Size F;
  double *S, *L, *weighted;
};

}  // namespace ttr::families::local_linear
