// Small dense linear algebra in plain loops, generic in the scalar so that the tape can differentiate through it.
//
//   solve_positive   A x = b, A symmetric positive definite, by Cholesky
//   least_squares    argmin_X |A X - B|, and among the minimisers the one of least norm, by a complete orthogonal
//                    decomposition: A P = Q [R11 R12; 0 0], then [R11 R12]' = Z [T; 0]
//   conjugate_gradients, chebyshev   n steps from x = 0
//
// Pivots and ranks are decided on values: a column whose remaining length is below 1e-10 of the largest counts as
// dependent. At a change of rank the minimum-norm solution is not differentiable; the gradient given is that of the
// rank found.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "oracle/tape.h"
#include "ttr/status.h"

namespace ttr::oracle {

inline constexpr double rank_cut = 1e-10;
inline constexpr double flat_cut = 1e-13;  // of conjugate gradients: p'A p over |p|^2 tr A, 450 eps

template <class S>
using Vec = std::vector<S>;

template <class S>
struct Matrix {
  int rows = 0, cols = 0;
  std::vector<S> data;
  Matrix() = default;
  Matrix(int r, int c) : rows(r), cols(c), data(static_cast<std::size_t>(r) * c, S(0.0)) {}
  S& operator()(int r, int c) { return data[static_cast<std::size_t>(r) * cols + c]; }
  const S& operator()(int r, int c) const { return data[static_cast<std::size_t>(r) * cols + c]; }
  Vec<S> row(int r) const {
    return Vec<S>(data.begin() + std::ptrdiff_t(r) * cols, data.begin() + std::ptrdiff_t(r + 1) * cols);
  }
};

template <class S>
S dot(const Vec<S>& a, const Vec<S>& b) {
  S sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

template <class S>
S frobenius(const Matrix<S>& a) {
  using std::sqrt;
  S sum = 0.0;
  for (const S& x : a.data) sum += x * x;
  return value_of(sum) == 0 ? S(0.0) : S(sqrt(sum));
}

/// True if every entry is finite. What is solved for from other numbers is not a number, never an error or a zero.
template <class S>
bool all_finite(const std::vector<S>& data) {
  return std::all_of(data.begin(), data.end(), [](const S& x) { return std::isfinite(value_of(x)); });
}

/// X with A X = B for a symmetric positive definite A.
template <class S>
Matrix<S> solve_positive(Matrix<S> a, Matrix<S> b) {
  using std::sqrt;
  const int n = a.rows;
  if (!all_finite(a.data)) {
    for (S& x : b.data) x = S(std::nan(""));
    return b;
  }
  for (int j = 0; j < n; ++j) {  // a becomes L, lower triangular
    for (int k = 0; k < j; ++k) a(j, j) -= a(j, k) * a(j, k);
    if (!(value_of(a(j, j)) > 0))
      throw Error("the weighted least-squares problem is not positive definite; a larger ridge makes it so");
    a(j, j) = sqrt(a(j, j));
    for (int i = j + 1; i < n; ++i) {
      for (int k = 0; k < j; ++k) a(i, j) -= a(i, k) * a(j, k);
      a(i, j) /= a(j, j);
    }
  }
  for (int c = 0; c < b.cols; ++c) {
    for (int i = 0; i < n; ++i) {
      for (int k = 0; k < i; ++k) b(i, c) -= a(i, k) * b(k, c);
      b(i, c) /= a(i, i);
    }
    for (int i = n - 1; i >= 0; --i) {
      for (int k = i + 1; k < n; ++k) b(i, c) -= a(k, i) * b(k, c);
      b(i, c) /= a(i, i);
    }
  }
  return b;
}

/// Householder vector u (u'u > 0) such that (I - 2 u u'/u'u) maps x[from..] to (alpha, 0, ..., 0); returns alpha.
template <class S>
S householder(const Vec<S>& x, Vec<S>& u) {
  using std::sqrt;
  S norm = 0.0;
  for (const S& e : x) norm += e * e;
  norm = sqrt(norm);
  const S alpha = value_of(x[0]) > 0 ? -norm : norm;
  u = x;
  u[0] = x[0] - alpha;
  return alpha;
}

/// The X of least norm that minimises |A X - B|.
template <class S>
Matrix<S> least_squares(Matrix<S> a, Matrix<S> b) {
  const int m = a.rows, n = a.cols;
  if (!all_finite(a.data)) {
    Matrix<S> nothing(n, b.cols);
    for (S& x : nothing.data) x = S(std::nan(""));
    return nothing;
  }
  std::vector<int> order(n);
  for (int j = 0; j < n; ++j) order[j] = j;
  int rank = 0;
  double largest = 0;
  for (; rank < std::min(m, n); ++rank) {
    int pivot = rank;
    double longest = -1;
    for (int j = rank; j < n; ++j) {
      double length = 0;
      for (int i = rank; i < m; ++i) length += value_of(a(i, j)) * value_of(a(i, j));
      if (length > longest) longest = length, pivot = j;
    }
    longest = std::sqrt(longest);
    if (rank == 0) largest = longest;
    if (!(longest > rank_cut * largest)) break;
    if (pivot != rank) {
      for (int i = 0; i < m; ++i) std::swap(a(i, rank), a(i, pivot));
      std::swap(order[rank], order[pivot]);
    }
    Vec<S> x, u;
    for (int i = rank; i < m; ++i) x.push_back(a(i, rank));
    const S alpha = householder(x, u);
    const S scale = S(2.0) / dot(u, u);
    auto reflect = [&](Matrix<S>& t, int c) {
      S s = 0.0;
      for (int i = rank; i < m; ++i) s += u[i - rank] * t(i, c);
      s *= scale;
      for (int i = rank; i < m; ++i) t(i, c) -= s * u[i - rank];
    };
    for (int c = rank + 1; c < n; ++c) reflect(a, c);
    for (int c = 0; c < b.cols; ++c) reflect(b, c);
    a(rank, rank) = alpha;
  }

  // The rows [R11 R12] (rank x n) as columns: W = [R11 R12]' = Z [T; 0], so R X = c has the least-norm solution
  // X = Z [T'^-1 c; 0].
  Matrix<S> w(n, rank);
  for (int r = 0; r < rank; ++r)
    for (int c = r; c < n; ++c) w(c, r) = a(r, c);
  std::vector<Vec<S>> us(rank);
  Vec<S> scales(rank, S(0.0));
  for (int j = 0; j < rank && rank < n; ++j) {
    Vec<S> x;
    for (int i = j; i < n; ++i) x.push_back(w(i, j));
    const S alpha = householder(x, us[j]);
    scales[j] = S(2.0) / dot(us[j], us[j]);
    for (int c = j + 1; c < rank; ++c) {
      S s = 0.0;
      for (int i = j; i < n; ++i) s += us[j][i - j] * w(i, c);
      s *= scales[j];
      for (int i = j; i < n; ++i) w(i, c) -= s * us[j][i - j];
    }
    w(j, j) = alpha;
    for (int i = j + 1; i < n; ++i) w(i, j) = 0.0;
  }
  Matrix<S> x(n, b.cols);
  for (int c = 0; c < b.cols; ++c) {
    Vec<S> y(n, S(0.0));
    if (rank < n) {  // T' y = b, T' lower triangular
      for (int i = 0; i < rank; ++i) {
        y[i] = b(i, c);
        for (int k = 0; k < i; ++k) y[i] -= w(k, i) * y[k];
        y[i] /= w(i, i);
      }
      for (int j = rank - 1; j >= 0; --j) {
        S s = 0.0;
        for (int i = j; i < n; ++i) s += us[j][i - j] * y[i];
        s *= scales[j];
        for (int i = j; i < n; ++i) y[i] -= s * us[j][i - j];
      }
    } else {  // R y = b, R upper triangular
      for (int i = n - 1; i >= 0; --i) {
        y[i] = b(i, c);
        for (int k = i + 1; k < n; ++k) y[i] -= a(i, k) * y[k];
        y[i] /= a(i, i);
      }
    }
    for (int i = 0; i < n; ++i) x(order[i], c) = y[i];
  }
  return x;
}

template <class S>
Vec<S> times(const Matrix<S>& a, const Vec<S>& x) {
  Vec<S> y(a.rows, S(0.0));
  for (int i = 0; i < a.rows; ++i)
    for (int j = 0; j < a.cols; ++j) y[i] += a(i, j) * x[j];
  return y;
}

/// x after `steps` conjugate-gradient steps for A x = b from x = 0. Stops at a residual of 1e-13, where
/// further steps would follow rounding errors only.
template <class S>
Vec<S> conjugate_gradients(const Matrix<S>& a, const Vec<S>& b, int steps) {
  Vec<S> x(b.size(), S(0.0)), r = b, p = b;
  if (!all_finite(a.data) || !all_finite(b)) return Vec<S>(b.size(), S(std::nan("")));
  S rr = dot(r, r);
  const double start = value_of(rr);
  double trace = 0;
  for (int i = 0; i < a.rows; ++i) trace += value_of(a(i, i));
  for (int n = 0; n < steps && value_of(rr) > 1e-26 * start; ++n) {
    const Vec<S> ap = times(a, p);
    const S curvature = dot(p, ap);
    // A direction that the matrix does not have: what curvature it shows is rounding of its entries.
    if (!(value_of(curvature) > flat_cut * trace * value_of(dot(p, p)))) break;
    const S alpha = rr / curvature;
    for (std::size_t i = 0; i < b.size(); ++i) x[i] += alpha * p[i], r[i] -= alpha * ap[i];
    const S next = dot(r, r), ratio = next / rr;
    for (std::size_t i = 0; i < b.size(); ++i) p[i] = r[i] + ratio * p[i];
    rr = next;
  }
  return x;
}

/// x after `steps` Chebyshev steps for A x = b, the eigenvalues of A in [low, high]; see Gated KalmaNet.
template <class S>
Vec<S> chebyshev(const Matrix<S>& a, const Vec<S>& b, const S& low, const S& high, int steps) {
  const std::size_t n = b.size();
  Vec<S> x(n, S(0.0)), before(n, S(0.0));
  if (value_of(low + high) == 0) return x;
  const S s = S(2.0) / (high + low), rho = (high - low) / (high + low);
  S omega = 2.0;
  for (std::size_t i = 0; i < n; ++i) x[i] = s * b[i];
  for (int step = 0; step < steps; ++step) {
    omega = S(4.0) / (S(4.0) - rho * rho * omega);
    const Vec<S> ax = times(a, x);
    for (std::size_t i = 0; i < n; ++i) {
      const S next = x[i] - omega * s * (ax[i] - b[i]) + (omega - S(1.0)) * (x[i] - before[i]);
      before[i] = x[i];
      x[i] = next;
    }
  }
  return x;
}

}  // namespace ttr::oracle
