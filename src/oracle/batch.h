// Solvers that look at every pair they may see, anew for each query: gd(n), exact, irls(n), cg(n), chebyshev(n),
// given.
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

#include "oracle/descent.h"
#include "oracle/fits.h"
#include "oracle/irls.h"

namespace ttr::oracle {

/// The fitted intercept of a local polynomial (order 0: the weighted mean).
template <class S>
Vec<S> local_answer(const Head<S>& h, int t, int newest, const Rows<S>& rows) {
  const int V = h.sizes.value_dim;
  const S total = rows.sum();
  if (value_of(total) == 0) return Vec<S>(V, S(0.0));
  const Centred<S> c(rows.x, rows.v, rows.w);
  if (c.features == 0) return c.vb;
  if (h.design.solver.kind == Solver::Kind::given) {
    Vec<S> o = c.vb;
    const Vec<S> r = h.input_row("r", t);
    for (int j = 0; j < rows.count(); ++j) {
      const S along = c.rows.w[j] * dot(c.rows.x[j], r);
      for (int b = 0; b < V; ++b) o[b] -= along * c.rows.v[j][b];
    }
    return o;
  }
  const bool frobenius_ridge =
      h.design.solver.ridge_kind == Solver::RidgeKind::frobenius && h.design.solver.ridge.given();
  const S norm = frobenius_ridge ? frobenius(second_moment(c.rows, c.features)) * total : S(0.0);
  return c.solve(ridge_vector(h, t, newest, c.features, rows.weights.shift, total, norm)).row(0);
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
    Matrix<S> last(n, V);  // coefficients of the last update
    for (int s = 0; s < solver.steps; ++s) {
      const S step = batch_step_size(h, t, s, square);
      const S momentum = solver.momentum_auto ? S(s / (s + 3.0)) : h.quantity(solver.momentum, "momentum", t, 0.0);
      Matrix<S> point = alpha;
      for (std::size_t c = 0; c < point.data.size() && solver.nesterov; ++c) point.data[c] += momentum * last.data[c];
      for (int i = 0; i < n; ++i) {
        Vec<S> y(V, S(0.0));
        for (int j = 0; j < n && s > 0; ++j)
          for (int b = 0; b < V; ++b) y[b] += gram(i, j) * point(j, b);
        const S c = i < rows.weights.count ? loss_parameter(h, rows.weights.first + i) : S(0.0);
        const Vec<S> dy = d_loss(h.design.extras, y, rows.v[i], c);
        for (int b = 0; b < V; ++b) {
          last(i, b) = (has_momentum(solver) ? momentum * last(i, b) : S(0.0)) - step * rows.w[i] * dy[b];
          alpha(i, b) += last(i, b);
        }
      }
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
                    "; exact, irls, cg and chebyshev need weights that are not negative");
  const bool irls = d.solver.kind == Solver::Kind::irls;
  Vec<S> o = irls                                     ? irls_answer(h, t, newest, rows)
             : d.memory.kind == Memory::Class::kernel ? kernel_answer(h, t, newest, rows)
             : gd                                     ? gd_answer(h, t, rows)
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
  if (extras.read_mean) {
    if (extras.loss == Extras::Loss::cross_entropy) o = softmax(std::move(o));
    else
      for (S& e : o) e = sigmoid(e);
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
