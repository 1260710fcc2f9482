// Solvers that look at every pair they may see, anew for each query: gd(n), exact, cg(n), chebyshev(n), given.
//
//   objective   1/2 sum_i w_i loss(m(k_i), v_i) + 1/2 sum_a ridge_a |S_a|^2
//   gd(n)       S <- S - step * gradient, n times from zero (networks: from the initial weights in the state)
//   exact       argmin; without ridge the one of least norm
//   cg(n)       o = F' x, x after n steps for (H + ridge) x = phi(q), H = sum w phi phi', F = sum w phi v'
//   given       o = mean v - Cov(k, v)' r: the local slope is not solved for but given (parallax)
//
// local(p) and constant: the intercept carries no ridge, so the fit is done on centred features,
// o = vb - W' xb, W = argmin sum p |v - vb - W'(x - xb)|^2 + (ridge / sum w) |W|^2, p = w / sum w. Without ridge W is
// the least-norm one: the limit of a vanishing ridge. A sink is one more pair, at the query itself, with value zero.
#pragma once

#include <cmath>
#include <vector>

#include "oracle/weights.h"

namespace ttr::oracle {

/// The weighted pairs of one query as rows of a regression problem.
template <class S>
struct Rows {
  std::vector<Vec<S>> x, v;  // what the memory sees, and the target
  Vec<S> w;
  PairWeights<S> weights;
  int count() const { return static_cast<int>(w.size()); }
  S sum() const {
    S total = 0.0;
    for (const S& e : w) total += e;
    return total;
  }
};

/// `shifted`: the largest logit is subtracted from all; the caller scales back what depends on it.
template <class S>
Rows<S> make_rows(const Head<S>& h, int t, int newest, bool shifted) {
  using std::exp;
  Rows<S> rows;
  PairWeights<S>& pw = rows.weights;
  pw = pair_weights(h, t, newest);
  const bool sink = h.design.weights.sink;
  if (shifted && (pw.count > 0 || sink)) {
    double largest = sink ? value_of(h.at("sink", 0)) : -HUGE_VAL;
    for (int j = 0; j < pw.count; ++j)
      if (value_of(pw.factor[j]) != 0) largest = std::max(largest, value_of(pw.logit[j]));
    if (std::isfinite(largest)) pw.shift = largest;
  }
  for (int j = 0; j < pw.count; ++j) {
    const int i = pw.first + j;
    const bool reverse = h.design.memory.reverse;
    rows.x.push_back(reverse ? h.value(i) : h.pair_vector(i, t));
    rows.v.push_back(reverse ? h.keys[i] : h.value(i));
    rows.w.push_back(pw.weight(j));
  }
  if (sink) {
    rows.x.push_back(is_linear_class(h.design.memory) ? features(h.design.memory, h.queries[t], h.queries[t])
                                                      : h.queries[t]);
    rows.v.push_back(Vec<S>(h.sizes.value_dim, S(0.0)));
    rows.w.push_back(exp(h.at("sink", 0) - S(pw.shift)));
  }
  return rows;
}

/// The step a rule makes of `s` for a pair (or a sum of pairs) of squared length `square`.
template <class S>
S step_size(const Solver& solver, const S& s, const S& square) {
  using std::expm1;
  using R = Solver::Rule;
  switch (solver.rule) {
    case R::plain:
      return s;
    case R::nlms:
      return value_of(square) + solver.eps > 0 ? s / (S(solver.eps) + square) : S(0.0);
    case R::longhorn:
      return s / (S(1.0) + s * square);
    case R::flow:
      // For short keys the series: exact to rounding there, also in its gradient.
      if (std::abs(value_of(s) * value_of(square)) < 1e-4) {
        const S x = s * square;
        return s * (S(1.0) - x * (S(1.0 / 2) - x * (S(1.0 / 6) - x * S(1.0 / 24))));
      }
      return -expm1(-s * square) / square;
    case R::automatic:
      return value_of(square) > 0 ? S(1.0) / square : S(0.0);
  }
  return s;
}

template <class S>
S loss_parameter(const Head<S>& h, int i) {
  const Quantity& c = h.design.extras.loss_parameter;
  return c.is_input() ? h.pair.at("c")(i, 0) : S(c.value);
}

/// dw += w * (gradient of the loss of one pair)
template <class S>
void add_pair_gradient(const Head<S>& h, const Parameters<S>& w, const Vec<S>& x, const Vec<S>& v, const S& c,
                       const S& weight, Parameters<S>& dw) {
  const Memory& m = h.design.memory;
  Vec<S> dy = d_loss(h.design.extras, m.reverse ? times(w[0], x) : predict(m, w, x), v, c);
  for (S& e : dy) e *= weight;
  if (m.reverse) add_outer(dw[0], dy, x);
  else gradient(m, w, x, dy, dw);
}

template <class S>
Parameters<S> zeros_like(const Parameters<S>& w) {
  Parameters<S> z;
  for (const Matrix<S>& m : w) z.emplace_back(m.rows, m.cols);
  return z;
}

/// Gradient of the whole objective.
template <class S>
Parameters<S> objective_gradient(const Head<S>& h, const Parameters<S>& w, const Rows<S>& rows) {
  Parameters<S> dw = zeros_like(w);
  const PairWeights<S>& pw = rows.weights;
  for (int j = 0; j < rows.count(); ++j) {
    const S c = j < pw.count ? loss_parameter(h, pw.first + j) : S(h.design.extras.loss_parameter.value);
    if (!pw.per_channel() || j >= pw.count) {
      add_pair_gradient(h, w, rows.x[j], rows.v[j], c, rows.w[j], dw);
      continue;
    }
    Parameters<S> own = zeros_like(w);
    add_pair_gradient(h, w, rows.x[j], rows.v[j], c, rows.w[j], own);
    for (int a = 0; a < own[0].rows; ++a)
      for (int b = 0; b < own[0].cols; ++b) dw[0](a, b) += pw.channel(j, a, b) * own[0](a, b);
  }
  return dw;
}

template <class S>
S squares(const Rows<S>& rows) {
  S sum = 0.0;
  for (int j = 0; j < rows.count(); ++j) sum += rows.w[j] * dot(rows.x[j], rows.x[j]);
  return sum;
}

template <class S>
Vec<S> gd_answer(const Head<S>& h, int t, const Rows<S>& rows) {
  const Solver& solver = h.design.solver;
  Parameters<S> w;
  for (const ParameterInfo& p : parameters_of(h.design.memory, h.sizes.key_dim, h.sizes.value_dim)) {
    w.emplace_back(p.in, p.out);
    if (!is_linear_class(h.design.memory)) w.back().data = h.state.at(p.name).data;
  }
  const S step = step_size(solver, h.quantity(solver.step, step_name(h.design), t, 1.0), squares(rows));
  Parameters<S> z = zeros_like(w);
  for (int n = 0; n < solver.steps; ++n) {
    const Parameters<S> dw = objective_gradient(h, w, rows);
    const S momentum = h.quantity(solver.momentum, "momentum", t, 0.0);
    for (std::size_t p = 0; p < w.size(); ++p)
      for (std::size_t c = 0; c < w[p].data.size(); ++c) {
        z[p].data[c] = momentum * z[p].data[c] - step * dw[p].data[c];
        w[p].data[c] += z[p].data[c];
      }
  }
  return predict(h.design.memory, w, h.read_vector(t));
}

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

/// The fitted intercept of a local polynomial (order 0: the weighted mean).
template <class S>
Vec<S> local_answer(const Head<S>& h, int t, int newest, const Rows<S>& rows) {
  const int F = static_cast<int>(rows.x[0].size()) - 1, V = h.sizes.value_dim, n = rows.count();
  const S total = rows.sum();
  if (value_of(total) == 0) return Vec<S>(V, S(0.0));
  Vec<S> p, xb(F, S(0.0)), vb(V, S(0.0));
  for (int j = 0; j < n; ++j) {
    p.push_back(rows.w[j] / total);
    for (int a = 0; a < F; ++a) xb[a] += p[j] * rows.x[j][a + 1];
    for (int b = 0; b < V; ++b) vb[b] += p[j] * rows.v[j][b];
  }
  if (F == 0) return vb;
  Rows<S> centred;
  centred.w = p;
  for (int j = 0; j < n; ++j) {
    centred.x.emplace_back();
    centred.v.emplace_back();
    for (int a = 0; a < F; ++a) centred.x[j].push_back(rows.x[j][a + 1] - xb[a]);
    for (int b = 0; b < V; ++b) centred.v[j].push_back(rows.v[j][b] - vb[b]);
  }
  Vec<S> slope_times_mean(V, S(0.0));
  if (h.design.solver.kind == Solver::Kind::given) {
    const Vec<S> r = h.input_row("r", t);
    for (int j = 0; j < n; ++j) {
      const S along = p[j] * dot(centred.x[j], r);
      for (int b = 0; b < V; ++b) slope_times_mean[b] += along * centred.v[j][b];
    }
  } else {
    const bool frobenius_ridge =
        h.design.solver.ridge_kind == Solver::RidgeKind::frobenius && h.design.solver.ridge.given();
    const S norm = frobenius_ridge ? frobenius(second_moment(centred, F)) * total : S(0.0);
    Vec<S> ridge = ridge_vector(h, t, newest, F, rows.weights.shift, total, norm);
    for (S& r : ridge) r /= total;
    const Matrix<S> slope = fit(centred.x, centred.v, centred.w, ridge);
    slope_times_mean = through(xb, slope);
  }
  for (int b = 0; b < V; ++b) vb[b] -= slope_times_mean[b];
  return vb;
}

template <class S>
Vec<S> moment_read(const Rows<S>& rows, const Vec<S>& x, int V) {  // F' x
  Vec<S> o(V, S(0.0));
  for (int j = 0; j < rows.count(); ++j) {
    const S along = rows.w[j] * dot(rows.x[j], x);
    for (int b = 0; b < V; ++b) o[b] += along * rows.v[j][b];
  }
  return o;
}

/// exact, cg and chebyshev for the linear classes.
template <class S>
Vec<S> least_squares_answer(const Head<S>& h, int t, int newest, const Rows<S>& rows) {
  const Design& design = h.design;
  const bool local = design.memory.kind == Memory::Class::local || design.memory.kind == Memory::Class::constant;
  const bool exact = design.solver.kind == Solver::Kind::exact;
  if (local && (exact || design.solver.kind == Solver::Kind::given)) return local_answer(h, t, newest, rows);
  const int F = static_cast<int>(rows.x[0].size()), V = h.sizes.value_dim;
  const Vec<S> q = h.read_vector(t);
  const bool need_norm = design.solver.kind == Solver::Kind::chebyshev ||
                         (design.solver.ridge.given() && design.solver.ridge_kind == Solver::RidgeKind::frobenius);
  const Matrix<S> moment = exact && !need_norm ? Matrix<S>() : second_moment(rows, F);
  const S norm = need_norm ? frobenius(moment) : S(0.0);
  Vec<S> ridge = ridge_vector(h, t, newest, F - (local ? 1 : 0), rows.weights.shift, rows.sum(), norm);
  if (local && !ridge.empty()) ridge.insert(ridge.begin(), S(0.0));
  Vec<S> o;
  if (exact) {
    const Matrix<S> m = fit(rows.x, rows.v, rows.w, ridge);
    o = design.memory.reverse ? times(m, q) : through(q, m);
  } else {
    Matrix<S> a = moment;
    S low = 0.0, high = norm;
    for (std::size_t c = 0; c < ridge.size(); ++c) {
      a(static_cast<int>(c), static_cast<int>(c)) += ridge[c];
      if (c == 0 || ridge[c] < low) low = ridge[c];
      if (c == 0 || ridge[c] + norm > high) high = ridge[c] + norm;
    }
    const int n = design.solver.steps;
    o = moment_read(
        rows, design.solver.kind == Solver::Kind::cg ? conjugate_gradients(a, q, n) : chebyshev(a, q, low, high, n),
        V);
  }
  if (design.extras.blend) {  // o = F'(q + blend (x - q)), and o so far is F' x
    using std::exp;
    const S blend = h.at("blend", t), unshift = exp(S(rows.weights.shift));
    const Vec<S> plain = moment_read(rows, q, V);
    for (int b = 0; b < V; ++b) o[b] = unshift * plain[b] + blend * (o[b] - unshift * plain[b]);
  }
  return o;
}

/// Kernel memory: f = sum_i alpha_i kappa(k_i, .), o = f(q).
template <class S>
Vec<S> kernel_answer(const Head<S>& h, int t, int newest, const Rows<S>& rows) {
  using std::sqrt;
  const Solver& solver = h.design.solver;
  const int n = rows.count(), V = h.sizes.value_dim;
  Matrix<S> gram(n, n), alpha(n, V);
  Vec<S> at_query;
  for (int i = 0; i < n; ++i) at_query.push_back(h.kernel(rows.x[i], h.queries[t]));
  const bool one_step =
      solver.kind == Solver::Kind::gd && solver.steps == 1 && solver.rule != Solver::Rule::automatic;
  for (int i = 0; i < n && !one_step; ++i)
    for (int j = 0; j <= i; ++j) gram(i, j) = gram(j, i) = h.kernel(rows.x[i], rows.x[j]);
  if (solver.kind == Solver::Kind::gd) {
    S square = 0.0;
    for (int i = 0; i < n; ++i) square += rows.w[i] * gram(i, i);
    const S step = step_size(solver, h.quantity(solver.step, step_name(h.design), t, 1.0), square);
    for (int s = 0; s < solver.steps; ++s) {
      Matrix<S> next = alpha;
      for (int i = 0; i < n; ++i) {
        Vec<S> y(V, S(0.0));
        for (int j = 0; j < n && s > 0; ++j)
          for (int b = 0; b < V; ++b) y[b] += gram(i, j) * alpha(j, b);
        const S c = i < rows.weights.count ? loss_parameter(h, rows.weights.first + i) : S(0.0);
        const Vec<S> dy = d_loss(h.design.extras, y, rows.v[i], c);
        for (int b = 0; b < V; ++b) next(i, b) -= step * rows.w[i] * dy[b];
      }
      alpha = next;
    }
  } else {
    std::vector<int> used;
    for (int i = 0; i < n; ++i)
      if (value_of(rows.w[i]) != 0) used.push_back(i);
    const int m = static_cast<int>(used.size());
    Matrix<S> a(m, m), b(m, V), x;
    Vec<S> rhs, root;
    for (int i : used) root.push_back(sqrt(rows.w[i]));
    // Scaled by the roots of the weights the system (D K D + ridge) is symmetric, and alpha = D times its solution.
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < m; ++j) a(i, j) = root[i] * gram(used[i], used[j]) * root[j];
      for (int c = 0; c < V; ++c) b(i, c) = root[i] * rows.v[used[i]][c];
      rhs.push_back(root[i] * at_query[used[i]]);
    }
    const bool need_norm =
        solver.kind == Solver::Kind::chebyshev || solver.ridge_kind == Solver::RidgeKind::frobenius;
    const S norm = need_norm ? frobenius(a) : S(0.0);
    const Vec<S> ridge = ridge_vector(h, t, newest, 1, rows.weights.shift, rows.sum(), norm);
    for (int i = 0; i < m && !ridge.empty(); ++i) a(i, i) += ridge[0];
    if (solver.kind == Solver::Kind::exact) {
      x = ridge.empty() ? least_squares(a, b) : solve_positive(a, b);
      for (int i = 0; i < m; ++i)
        for (int c = 0; c < V; ++c) alpha(used[i], c) = root[i] * x(i, c);
    } else {
      const S low = ridge.empty() ? S(0.0) : ridge[0];
      const Vec<S> y = solver.kind == Solver::Kind::cg ? conjugate_gradients(a, rhs, solver.steps)
                                                       : chebyshev(a, rhs, low, low + norm, solver.steps);
      Vec<S> o(V, S(0.0));
      for (int i = 0; i < m; ++i)
        for (int c = 0; c < V; ++c) o[c] += y[i] * b(i, c);
      return o;
    }
  }
  Vec<S> o(V, S(0.0));
  for (int i = 0; i < n; ++i)
    for (int b = 0; b < V; ++b) o[b] += at_query[i] * alpha(i, b);
  return o;
}

/// constant(channel): a weighted mean in each value channel; `bonus` adds the pair of the query itself (RWKV-4).
template <class S>
Vec<S> channel_means(const Head<S>& h, int t, int newest) {
  using std::exp;
  const PairWeights<S> pw = pair_weights(h, t, newest);
  const bool exponential = h.design.weights.importance == Weights::Importance::exponential;
  const bool bonus = h.design.extras.read_before && h.design.extras.bonus;
  Vec<S> o(h.sizes.value_dim, S(0.0));
  for (int b = 0; b < h.sizes.value_dim; ++b) {
    Vec<S> logit, factor;
    std::vector<int> who;
    for (int j = 0; j < pw.count; ++j) {
      S e = pw.logit[j];
      if (!pw.value.empty()) e += pw.value[j][b];
      if (exponential) e += h.pair.at("i")(pw.first + j, b);
      logit.push_back(e), factor.push_back(pw.factor[j]), who.push_back(pw.first + j);
    }
    if (bonus) {
      const int i = h.kept + t;
      S e = h.call.at("bonus")(0, b);
      if (exponential) e += h.pair.at("i")(i, b);
      logit.push_back(e), factor.push_back(S(1.0)), who.push_back(i);
    }
    double largest = -HUGE_VAL;
    for (const S& e : logit) largest = std::max(largest, value_of(e));
    S above = 0.0, below = 0.0;
    for (std::size_t j = 0; j < logit.size(); ++j) {
      const S w = factor[j] * exp(logit[j] - S(largest));
      above += w * h.pair.at("v")(who[j], b);
      below += w;
    }
    if (value_of(below) != 0) o[b] = above / below;
  }
  return o;
}

/// Divides by the weighted sum of keys read with the query, or by max(|that|, 1).
template <class S>
void normalise_by_keys(const Head<S>& h, int t, const Rows<S>& rows, Vec<S>& o) {
  using std::abs;
  using std::exp;
  const Vec<S> q = h.read_vector(t);
  S along = 0.0;
  for (int j = 0; j < rows.count(); ++j)
    for (std::size_t a = 0; a < q.size(); ++a) {
      S term = rows.w[j] * rows.x[j][a] * q[a];
      if (!rows.weights.key.empty()) term *= exp(rows.weights.key[j][a]);
      along += term;
    }
  const S unit = exp(S(-rows.weights.shift));
  if (h.design.extras.normalise == Extras::Normalise::max_one) {
    along = abs(along);
    if (along < unit) along = unit;
  }
  along += S(h.design.extras.normalise_eps) * unit;
  for (S& e : o) e = value_of(along) != 0 ? e / along : S(0.0);
}

/// The answer to query t of the pairs up to `newest`.
template <class S>
Vec<S> batch_answer(const Head<S>& h, int t, int newest) {
  const Design& d = h.design;
  if (d.memory.per_channel && d.memory.kind == Memory::Class::constant) return channel_means(h, t, newest);
  const bool gd = d.solver.kind == Solver::Kind::gd;
  const bool by_keys =
      d.extras.normalise == Extras::Normalise::keysum || d.extras.normalise == Extras::Normalise::max_one;
  // One step from zero is proportional to the weights, so a shift may be taken out and put back.
  const Rows<S> rows =
      make_rows(h, t, newest, !gd || (by_keys && d.solver.steps == 1 && d.solver.rule == Solver::Rule::plain));
  if (rows.count() == 0) return Vec<S>(h.sizes.value_dim, S(0.0));
  if (!gd)
    for (const S& w : rows.w)
      if (value_of(w) < 0)
        throw Error("a pair has the negative weight " + std::to_string(value_of(w)) +
                    "; exact, cg and chebyshev need weights that are not negative");
  Vec<S> o = d.memory.kind == Memory::Class::kernel ? kernel_answer(h, t, newest, rows)
             : gd                                   ? gd_answer(h, t, rows)
                                                    : least_squares_answer(h, t, newest, rows);
  if (by_keys) normalise_by_keys(h, t, rows, o);
  return o;
}

/// Read-outs that come after every solver: the bonus of the query's own pair and the norm of the output.
template <class S>
void finish_read(const Head<S>& h, int t, Vec<S>& o) {
  using std::sqrt;
  using N = Extras::Normalise;
  const Extras& extras = h.design.extras;
  if (extras.read_before && extras.bonus && !h.design.memory.per_channel) {
    const int i = h.kept + t;
    const Vec<S> q = h.read_vector(t), k = h.pair_vector(i, t), u = h.call.at("bonus").row(0);
    S along = 0.0;
    for (std::size_t a = 0; a < q.size(); ++a) along += q[a] * u[a] * k[a];
    for (int b = 0; b < h.sizes.value_dim; ++b) o[b] += along * h.pair.at("v")(i, b);
  }
  if (extras.normalise == N::rms || extras.normalise == N::unit) {
    S square = dot(o, o);
    if (extras.normalise == N::rms) square /= S(static_cast<double>(o.size()));
    square += S(extras.normalise_eps);
    if (value_of(square) == 0) return;
    const S length = sqrt(square);
    for (S& e : o) e /= length;
  }
}

template <class S>
void run_batch(Head<S>& h) {
  for (int t = 0; t < h.time; ++t) {
    const int newest = !h.sizes.causal ? h.pairs - 1 : h.kept + t - (h.design.extras.read_before ? 1 : 0);
    Vec<S> o = batch_answer(h, t, newest);
    finish_read(h, t, o);
    for (int b = 0; b < h.sizes.value_dim; ++b) h.o(t, b) = o[b];
  }
  const auto fade = h.state.find("log_fade");
  if (fade != h.state.end()) {
    const std::int64_t limit = pairs_to_keep(h.design);
    const int dropped = limit < 0 ? 0 : std::max(0, h.pairs - static_cast<int>(limit));
    for (int i = 0; i < dropped; ++i) fade->second(0, 0) += log_gate(h, i);
  }
  keep_pairs(h);
}

}  // namespace ttr::oracle
