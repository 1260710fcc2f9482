// Weighted least squares with a ridge: what exact and irls solve.
//
//   fit          argmin_X sum_j w_j |v_j - X' x_j|^2 + sum_a ridge_a |X_a|^2
//   Centred      the same for features that start with a 1, whose row carries no ridge: on features and values around
//                their means, W = argmin sum p |v - vb - W'(x - xb)|^2 + (ridge / sum w) |W|^2, p = w / sum w; the first
//                row is vb - W' xb. Without ridge W is the least-norm one: the limit of a vanishing ridge.
#pragma once

#include <cmath>
#include <vector>

#include "oracle/rows.h"

namespace ttr::oracle {

/// The ridge of each coefficient, in the units of the (shifted) weights. Empty: no ridge, or a zero one.
template <class S>
Vec<S> ridge_vector(const Head<S>& h, int t, int newest, int count, double shift, const S& weight_sum,
                    const S& norm) {
  using std::exp;
  using R = Solver::RidgeKind;
  using P = Solver::RidgePer;
  const Solver& solver = h.design.solver;
  if (!solver.ridge.given()) return {};
  S unit = 1.0;
  if (solver.ridge_kind == R::absolute) unit = exp(S(-shift));
  if (solver.ridge_kind == R::relative) unit = weight_sum;
  if (solver.ridge_kind == R::frobenius) unit = norm;
  if (solver.ridge_kind == R::fading) {
    S fade = h.state.at("log_fade")(0, 0);
    for (int i = 0; i <= newest; ++i) fade += log_gate(h, i);
    unit = exp(fade - S(shift));
  }
  const bool by_key = solver.ridge.is_input() && solver.ridge_per == P::key;
  Vec<S> ridge;
  bool positive = false;
  for (int a = 0; a < count; ++a) {
    const S r = by_key ? h.call.at("ridge")(0, a) : h.quantity(solver.ridge, "ridge", t, 0.0);
    if (value_of(r) < 0) throw Error("the ridge is " + std::to_string(value_of(r)) + "; it must not be negative");
    positive = positive || !(value_of(r) <= 0);  // NaN is a ridge, too
    ridge.push_back(r * unit);
  }
  return positive ? ridge : Vec<S>{};
}

/// argmin_X sum_j w_j |v_j - X' x_j|^2 + sum_a ridge_a |X_a|^2. Cholesky where the ridge dominates rounding, else QR.
template <class S>
Matrix<S> fit(const std::vector<Vec<S>>& x, const std::vector<Vec<S>>& v, const Vec<S>& w, const Vec<S>& ridge) {
  using std::sqrt;
  const int F = static_cast<int>(x[0].size()), V = static_cast<int>(v[0].size()), n = static_cast<int>(w.size());
  double least = ridge.empty() ? 0 : HUGE_VAL, most = 0;
  for (const S& r : ridge) least = std::min(least, value_of(r));
  for (int a = 0; a < F; ++a) {
    double diagonal = 0;
    for (int j = 0; j < n; ++j) diagonal += value_of(w[j]) * value_of(x[j][a]) * value_of(x[j][a]);
    most = std::max(most, diagonal);
  }
  if (least > 1e-6 * most) {
    Matrix<S> hessian(F, F), moment(F, V);
    for (int a = 0; a < F; ++a) hessian(a, a) = ridge[a];
    for (int j = 0; j < n; ++j) {
      Vec<S> wx = x[j];
      for (S& e : wx) e *= w[j];
      add_outer(hessian, wx, x[j]);
      add_outer(moment, wx, v[j]);
    }
    return solve_positive(hessian, moment);
  }
  std::vector<int> used;  // a pair of weight zero is no row: the root has no derivative there
  for (int j = 0; j < n; ++j)
    if (value_of(w[j]) != 0) used.push_back(j);
  int penalties = 0;
  for (const S& r : ridge) penalties += value_of(r) > 0;
  Matrix<S> a(static_cast<int>(used.size()) + penalties, F), b(a.rows, V);
  int row = 0;
  for (int j : used) {
    const S root = sqrt(w[j]);
    for (int c = 0; c < F; ++c) a(row, c) = root * x[j][c];
    for (int c = 0; c < V; ++c) b(row, c) = root * v[j][c];
    ++row;
  }
  for (std::size_t c = 0; c < ridge.size(); ++c)
    if (value_of(ridge[c]) > 0) a(row++, static_cast<int>(c)) = sqrt(ridge[c]);
  return least_squares(a, b);
}

/// H = sum w x x'
template <class S>
Matrix<S> second_moment(const Rows<S>& rows, int F) {
  Matrix<S> hessian(F, F);
  for (int j = 0; j < rows.count(); ++j) {
    Vec<S> wx = rows.x[j];
    for (S& e : wx) e *= rows.w[j];
    add_outer(hessian, wx, rows.x[j]);
  }
  return hessian;
}

/// Rows around their weighted means; the sum of the weights must not be zero.
template <class S>
struct Centred {
  Centred(const std::vector<Vec<S>>& x, const std::vector<Vec<S>>& v, const Vec<S>& w)
      : features(static_cast<int>(x[0].size()) - 1), vb(v[0].size(), S(0.0)), xb(x[0].size() - 1, S(0.0)) {
    const int n = static_cast<int>(w.size()), V = static_cast<int>(vb.size());
    for (const S& e : w) total += e;
    for (int j = 0; j < n; ++j) {
      rows.w.push_back(w[j] / total);
      for (int a = 0; a < features; ++a) xb[a] += rows.w[j] * x[j][a + 1];
      for (int b = 0; b < V; ++b) vb[b] += rows.w[j] * v[j][b];
    }
    for (int j = 0; j < n && features > 0; ++j) {
      rows.x.emplace_back(), rows.v.emplace_back();
      for (int a = 0; a < features; ++a) rows.x[j].push_back(x[j][a + 1] - xb[a]);
      for (int b = 0; b < V; ++b) rows.v[j].push_back(v[j][b] - vb[b]);
    }
  }
  /// The coefficients of 1 and of the other features.
  Matrix<S> solve(Vec<S> ridge) const {
    const int V = static_cast<int>(vb.size());
    Matrix<S> out(features + 1, V);
    Vec<S> first = vb;
    if (features > 0) {
      for (S& r : ridge) r /= total;
      const Matrix<S> slope = fit(rows.x, rows.v, rows.w, ridge);
      const Vec<S> along = through(xb, slope);
      for (int b = 0; b < V; ++b) first[b] -= along[b];
      std::copy(slope.data.begin(), slope.data.end(), out.data.begin() + V);
    }
    std::copy(first.begin(), first.end(), out.data.begin());
    return out;
  }

  int features;
  Vec<S> vb, xb;
  S total = 0.0;
  Rows<S> rows;  // weights that sum to one
};

/// The fit with a free first row; zero if no pair has a weight.
template <class S>
Matrix<S> centred_fit(const std::vector<Vec<S>>& x, const std::vector<Vec<S>>& v, const Vec<S>& w,
                      const Vec<S>& ridge) {
  double total = 0;
  for (const S& e : w) total += value_of(e);
  if (total == 0) return Matrix<S>(static_cast<int>(x[0].size()), static_cast<int>(v[0].size()));
  return Centred<S>(x, v, w).solve(ridge);
}

}  // namespace ttr::oracle
