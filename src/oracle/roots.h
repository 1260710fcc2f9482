// A^(-1/4) of a symmetric positive definite matrix, with its gradient (the preconditioners of Shampoo).
//
//   A = U diag(l) U'  (Jacobi rotations),   A^(-1/4) = U diag(l^(-1/4)) U'
//   d A^(-1/4) = U (C * (U' dA U)) U',  C_ab = (f(l_a) - f(l_b))/(l_a - l_b), which for f = l^(-1/4) and r = l^(1/4) is
//                                          -1/(r_a r_b (r_a + r_b) (r_a^2 + r_b^2)): no difference of equal numbers
//
// (Daleckii and Krein 1965). The tape differentiates the function, not the rotations, which would lose digits where
// eigenvalues are close.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "oracle/least_squares.h"

namespace ttr::oracle {

/// Eigenvectors (columns of `u`) and eigenvalues of a symmetric matrix.
inline void symmetric_eigen(Matrix<double> a, Matrix<double>& u, std::vector<double>& values) {
  const int n = a.rows;
  u = Matrix<double>(n, n);
  for (int i = 0; i < n; ++i) u(i, i) = 1;
  for (int sweep = 0; sweep < 60; ++sweep) {
    double off = 0, on = 0;
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) (i == j ? on : off) += a(i, j) * a(i, j);
    if (!(off > 1e-34 * on)) break;
    for (int p = 0; p < n; ++p)
      for (int q = p + 1; q < n; ++q) {
        if (a(p, q) == 0) continue;
        const double theta = (a(q, q) - a(p, p)) / (2 * a(p, q));
        const double t = (theta < 0 ? -1 : 1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (int k = 0; k < n; ++k) {
          const double kp = a(k, p), kq = a(k, q);
          a(k, p) = c * kp - s * kq, a(k, q) = s * kp + c * kq;
        }
        for (int k = 0; k < n; ++k) {
          const double pk = a(p, k), qk = a(q, k);
          a(p, k) = c * pk - s * qk, a(q, k) = s * pk + c * qk;
        }
        for (int k = 0; k < n; ++k) {
          const double kp = u(k, p), kq = u(k, q);
          u(k, p) = c * kp - s * kq, u(k, q) = s * kp + c * kq;
        }
      }
  }
  values.clear();
  for (int i = 0; i < n; ++i) values.push_back(a(i, i));
}

/// u x, or u' x, for numbers u that do not move: one node of the tape for each product.
inline Matrix<Var> fixed_times(const Matrix<double>& u, bool transposed, const Matrix<Var>& x) {
  Matrix<Var> y(x.rows, x.cols);
  for (int i = 0; i < x.rows; ++i)
    for (int j = 0; j < x.cols; ++j)
      for (int k = 0; k < x.rows; ++k) {
        const double factor = transposed ? u(k, i) : u(i, k);
        if (factor == 0) continue;
        Var& sum = y(i, j);
        sum = Tape::current().binary(sum.value + factor * x(k, j).value, sum, 1, x(k, j), factor);
      }
  return y;
}

/// f(A) that moves with A as U (C * (U' dA U)) U' says, which is symmetric as A is: n^3 nodes, where the slope of every
/// entry by every other would be n^4.
inline void move_with(Matrix<double>&, const Matrix<double>&, const Matrix<double>&, const Matrix<double>&) {}
inline void move_with(Matrix<Var>& f, const Matrix<Var>& a, const Matrix<double>& u, const Matrix<double>& cross) {
  const auto transposed = [](const Matrix<Var>& x) {
    Matrix<Var> y(x.cols, x.rows);
    for (int i = 0; i < x.rows; ++i)
      for (int j = 0; j < x.cols; ++j) y(j, i) = x(i, j);
    return y;
  };
  Matrix<Var> change = a;
  for (Var& e : change.data) e = Tape::current().unary(0, e, 1);
  change = fixed_times(u, true, transposed(fixed_times(u, true, change)));
  for (std::size_t c = 0; c < change.data.size(); ++c) change.data[c] *= Var(cross.data[c]);
  change = fixed_times(u, false, transposed(fixed_times(u, false, change)));
  for (std::size_t c = 0; c < change.data.size(); ++c) f.data[c] += change.data[c];
}

/// (A + eps I)^(-1/4) for a positive semidefinite A and eps > 0.
template <class S>
Matrix<S> inverse_fourth_root(Matrix<S> a, double eps) {
  const int n = a.rows;
  for (int i = 0; i < n; ++i) {
    a(i, i) += S(eps);
    for (int j = 0; j < i; ++j) a(i, j) = a(j, i) = S(0.5) * (a(i, j) + a(j, i));  // what a caller's state may not be
  }
  Matrix<double> plain(n, n), u;
  for (std::size_t c = 0; c < a.data.size(); ++c) plain.data[c] = value_of(a.data[c]);
  Matrix<S> out(n, n);
  if (!all_finite(plain.data)) {
    for (S& e : out.data) e = S(std::nan(""));
    return out;
  }
  std::vector<double> values, root;
  symmetric_eigen(plain, u, values);
  for (const double l : values) root.push_back(std::sqrt(std::sqrt(std::max(l, eps))));  // below eps is rounding
  Matrix<double> cross(n, n);
  for (int x = 0; x < n; ++x)
    for (int y = 0; y < n; ++y)
      cross(x, y) = -1 / (root[x] * root[y] * (root[x] + root[y]) * (root[x] * root[x] + root[y] * root[y]));
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      double value = 0;
      for (int x = 0; x < n; ++x) value += u(i, x) * u(j, x) / root[x];
      out(i, j) = S(value);
    }
  move_with(out, a, u, cross);
  return out;
}

}  // namespace ttr::oracle
