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
#include <type_traits>
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

/// value + sum_i slope_i (x_i - value of x_i): a number that moves with `x` as the slopes say.
inline double moved_with(double value, const std::vector<double>&, const std::vector<double>&) { return value; }
inline Var moved_with(double value, const std::vector<Var>& x, const std::vector<double>& slope) {
  Var sum = value;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (slope[i] != 0) sum = Tape::current().binary(value, sum, 1, x[i], slope[i]);
  return sum;
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
  // slope[i, j; k, l] = sum_ab u_ia u_jb C_ab u_ka u_lb
  Matrix<double> cross(n, n);
  for (int x = 0; x < n; ++x)
    for (int y = 0; y < n; ++y)
      cross(x, y) = -1 / (root[x] * root[y] * (root[x] + root[y]) * (root[x] * root[x] + root[y] * root[y]));
  const bool differentiate = !std::is_same_v<S, double>;
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      double value = 0;
      for (int x = 0; x < n; ++x) value += u(i, x) * u(j, x) / root[x];
      std::vector<double> slope;
      if (differentiate) {
        slope.assign(a.data.size(), 0.0);
        Matrix<double> half(n, n);  // [a, l] = sum_b u_ia u_jb C_ab u_lb
        for (int x = 0; x < n; ++x)
          for (int l = 0; l < n; ++l)
            for (int y = 0; y < n; ++y) half(x, l) += u(i, x) * u(j, y) * cross(x, y) * u(l, y);
        for (int k = 0; k < n; ++k)
          for (int l = 0; l < n; ++l)
            for (int x = 0; x < n; ++x) slope[static_cast<std::size_t>(k) * n + l] += u(k, x) * half(x, l);
      }
      out(i, j) = moved_with(value, a.data, slope);
    }
  return out;
}

}  // namespace ttr::oracle
