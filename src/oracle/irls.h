// irls(n): n weighted least-squares fits, each with the weights that the residuals of the one before give (oracle/losses.h).
//
//   y^0 from the plain fit (logistic: y^0 = 0) ;  then n - 1 times (logistic: n times)
//   m = argmin sum_i w_i omega_i(y) |z_i(y) - m(k_i)|^2 + ridge |S|^2 ,   y = m(k_i)
//
// At a fixed point the gradient of the actual objective is zero. Losses that act on each value channel give every channel
// its own weights and hence its own fit. The intercept of local(p) and constant carries no ridge, as in exact. A kernel
// memory is fitted by (D K D + ridge) x = D z, alpha = D x, D^2 the weights.
#pragma once

#include <cmath>
#include <vector>

#include "oracle/fits.h"

namespace ttr::oracle {

/// Answers at all rows and at the query.
template <class S>
struct Fitted {
  std::vector<Vec<S>> at_rows;
  Vec<S> at_query;
};

/// One fit for the channels of `v`.
template <class S>
class Refit {
 public:
  Refit(const Head<S>& h, int t, int newest, const Rows<S>& rows) : h_(h), t_(t), rows_(rows) {
    const Memory& m = h.design.memory;
    const int n = rows.count();
    kernel_ = m.kind == Memory::Class::kernel;
    local_ = m.kind == Memory::Class::local || m.kind == Memory::Class::constant;
    const bool frobenius_ridge =
        h.design.solver.ridge.given() && h.design.solver.ridge_kind == Solver::RidgeKind::frobenius;
    const int F = kernel_ ? 1 : static_cast<int>(rows.x[0].size()) - (local_ ? 1 : 0);
    const S norm = frobenius_ridge ? frobenius(second_moment(rows, static_cast<int>(rows.x[0].size()))) : S(0.0);
    ridge_ = ridge_vector(h, t, newest, F, rows.weights.shift, rows.sum(), norm);
    if (!kernel_) return;
    gram_ = Matrix<S>(n, n);
    for (int i = 0; i < n; ++i)
      for (int j = 0; j <= i; ++j) gram_(i, j) = gram_(j, i) = h.kernel(rows.x[i], rows.x[j]);
  }

  Fitted<S> operator()(const Vec<S>& w, const std::vector<Vec<S>>& v) const {
    return kernel_ ? of_kernel(w, v) : of_features(w, v);
  }

 private:
  Fitted<S> of_features(const Vec<S>& w, const std::vector<Vec<S>>& v) const {
    const Matrix<S> m = local_ ? centred_fit(rows_.x, v, w, ridge_) : fit(rows_.x, v, w, ridge_);
    Fitted<S> out;
    for (const Vec<S>& x : rows_.x) out.at_rows.push_back(through(x, m));
    out.at_query = local_ ? m.row(0) : through(h_.read_vector(t_), m);
    return out;
  }
  Fitted<S> of_kernel(const Vec<S>& w, const std::vector<Vec<S>>& v) const {
    using std::sqrt;
    std::vector<int> used;
    Vec<S> root;
    for (int i = 0; i < rows_.count(); ++i)
      if (value_of(w[i]) != 0) used.push_back(i), root.push_back(sqrt(w[i]));
    const int m = static_cast<int>(used.size()), V = static_cast<int>(v[0].size());
    Matrix<S> a(m, m), b(m, V);
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < m; ++j) a(i, j) = root[i] * gram_(used[i], used[j]) * root[j];
      if (!ridge_.empty()) a(i, i) += ridge_[0];
      for (int c = 0; c < V; ++c) b(i, c) = root[i] * v[used[i]][c];
    }
    const Matrix<S> x = ridge_.empty() ? least_squares(a, b) : solve_positive(a, b);
    Fitted<S> out;
    out.at_rows.assign(rows_.count(), Vec<S>(V, S(0.0)));
    out.at_query.assign(V, S(0.0));
    for (int j = 0; j < m; ++j) {
      const S at_query = h_.kernel(rows_.x[used[j]], h_.queries[t_]);
      for (int c = 0; c < V; ++c) {
        const S alpha = root[j] * x(j, c);
        out.at_query[c] += at_query * alpha;
        for (int i = 0; i < rows_.count(); ++i) out.at_rows[i][c] += gram_(i, used[j]) * alpha;
      }
    }
    return out;
  }

  const Head<S>& h_;
  int t_;
  const Rows<S>& rows_;
  bool kernel_ = false, local_ = false;
  Vec<S> ridge_;
  Matrix<S> gram_;
};

template <class S>
Vec<S> irls_answer(const Head<S>& h, int t, int newest, const Rows<S>& rows) {
  const Design& d = h.design;
  const Refit<S> refit(h, t, newest, rows);
  const int n = rows.count(), V = h.sizes.value_dim;
  const bool logistic = d.extras.loss == Extras::Loss::logistic;
  Fitted<S> now;
  if (logistic) now.at_rows.assign(n, Vec<S>(V, S(0.0)));
  else now = refit(rows.w, rows.v);
  for (int s = logistic ? 0 : 1; s < d.solver.steps; ++s) {
    Fitted<S> next;
    next.at_rows.assign(n, Vec<S>(V, S(0.0)));
    next.at_query.assign(V, S(0.0));
    const bool channels = reweighs_channels(d.extras.loss);
    for (int b = 0; b < (channels ? V : 1); ++b) {
      Vec<S> w;
      std::vector<Vec<S>> v;
      for (int i = 0; i < n; ++i) {
        const S c =
            i < rows.weights.count ? loss_parameter(h, rows.weights.first + i) : S(d.extras.loss_parameter.value);
        S omega, target;
        reweigh(d.extras, now.at_rows[i], rows.v[i], static_cast<std::size_t>(b), c, d.solver.eps, omega, target);
        w.push_back(rows.w[i] * omega);
        v.push_back(channels ? Vec<S>{target} : rows.v[i]);
      }
      const Fitted<S> part = refit(w, v);
      if (!channels) {
        next = part;
        continue;
      }
      next.at_query[b] = part.at_query[0];
      for (int i = 0; i < n; ++i) next.at_rows[i][b] = part.at_rows[i][0];
    }
    now = std::move(next);
  }
  return now.at_query;
}

}  // namespace ttr::oracle
