// Weighted rows above a ridge as an orthogonal matrix times a triangle,
//
//   [ sqrt(w_j) x_j ; sqrt(ridge) e_c ]  =  Q R ,   R'R = sum_j w_j x_j x_j' + ridge       the first column has no ridge
//
// by Gram-Schmidt, every column twice. A ridge far below the products of the rows has no digits left in their sum, which
// this never forms. What is read with A^-1 = R^-1 R^-T goes through the rows of Q that belong to pairs:
//
//   u = W X A^-1 b = sqrt(w) Q g ,  g = R^-T b ;     A^-1 X'W d = R^-1 Q' (sqrt(w) d)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "families/common/scratch.h"
#include "simd/simd.h"

namespace ttr::families::query_fit {

class Orthogonal {
 public:
  using Size = std::ptrdiff_t;
  Orthogonal(const Simd<double>& simd, Size most_pairs, Size columns, Arena& arena) : s(simd), F(columns) {
    Q = arena.take<double>(F * (most_pairs + F)), R = arena.take<double>(F * F),
    root = arena.take<double>(most_pairs);
    g = arena.take<double>(F);
  }

  /// Of n rows x [n, F]. False if a column vanishes or is no number.
  bool factor(Size n, const double* w, const double* x, double ridge) {
    m = n, length = n + F;
    for (Size j = 0; j < m; ++j) root[j] = std::sqrt(w[j]);
    for (Size c = 0; c < F; ++c) {
      double* const q = column(c);
      for (Size j = 0; j < m; ++j) q[j] = root[j] * x[j * F + c];
      std::fill_n(q + m, F, 0.0);
      if (c > 0) q[m + c] = std::sqrt(ridge);
      std::fill_n(R + c * F, F, 0.0);
      for (int pass = 0; pass < 2; ++pass)
        for (Size d = 0; d < c; ++d) {
          const double along = s.dot(length, column(d), q);
          R[d * F + c] += along;
          s.axpy(length, -along, column(d), q);
        }
      const double size = std::sqrt(s.dot(length, q, q));
      if (!(size > 0) || !std::isfinite(size)) return false;
      R[c * F + c] = size;
      s.scale(length, 1 / size, q, q);
    }
    return true;
  }
  /// y = A^-1 b and u [m]
  void solve(const double* b, double* y, double* u) {
    for (Size c = 0; c < F; ++c) {
      double sum = b[c];
      for (Size d = 0; d < c; ++d) sum -= R[d * F + c] * g[d];
      g[c] = sum / R[c * F + c];
    }
    std::fill_n(u, m, 0.0);
    for (Size c = 0; c < F; ++c) s.axpy(m, g[c], column(c), u);
    s.mul(m, root, u, u);
    finish(y);
  }
  /// z = A^-1 X'W d, for d [m], which is spoilt
  void solve_back(double* d, double* z) {
    s.mul(m, root, d, d);
    for (Size c = 0; c < F; ++c) g[c] = s.dot(m, column(c), d);
    finish(z);
  }

 private:
  double* column(Size c) const { return Q + c * length; }
  // y = R^-1 g
  void finish(double* y) const {
    for (Size c = F; c-- > 0;) y[c] = (g[c] - s.dot(F - c - 1, R + c * F + c + 1, y + c + 1)) / R[c * F + c];
  }

  const Simd<double>& s;
  Size F, m = 0, length = 0;
  double *Q, *R, *root, *g;
};

}  // namespace ttr::families::query_fit
