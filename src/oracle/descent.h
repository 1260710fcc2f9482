// Gradients of the objective, and what one step makes of them. Every solver that takes gradient steps (gd, descend, sgd,
// minibatch) takes them by `apply_update`; they differ in where the gradient comes from.
//
//   u = -step M^-1 (G + leak S)          Z <- momentum Z + u, u = Z          S <- prox((1 - shrink) S + gain u)
//
//   G          at S; nesterov: at S + momentum Z
//   M          none     1
//              adagrad  sqrt(A) + eps, A <- A + G*G                           (Duchi, Hazan, Singer 2011)
//              rmsprop  sqrt(A) + eps, A <- x A + (1-x) G*G
//              adam     the same with A/(1 - x2^j), and G replaced by its running mean Z/(1 - x1^j)  (arXiv 1412.6980)
//              shampoo  M^-1 G = (L + eps I)^-1/4 G (R + eps I)^-1/4, L <- L + G G', R <- R + G'G  (arXiv 1802.09568),
//                       for each parameter by itself; a bias, and S of constant, is a matrix of one row
//              lbfgs    M^-1 from step I by the two-loop recursion over the newest changes (s, y); a change of curvature
//                       s.y that is not positive is left out (Liu and Nocedal 1989)
//              newton   J'WJ + damping I, J the derivative of all answers: M^-1 G = J' D (D J J' D + damping)^-1 D e,
//                       D = sqrt(W), which is as large as the answers and not as the weights of a network
//   prox       of l1 |S|_1 + l2/2 |S|^2 in the metric of the step h (step, or step/M): soft(S, h l1)/(1 + h l2). The
//              update that momentum keeps is then the way that was made (FISTA: Beck and Teboulle 2009)
//   muon       u <- NS5(u) before it is added
//
// A gradient of zero where nothing was summed yet moves nothing (adagrad, rmsprop, adam): 0/(0 + eps) has no derivative.
// gd starts all of this anew for every token; the others carry Z, A, L, R in the state. The changes of lbfgs and the
// count of momentum=auto, (j-1)/(j+2) in iteration j, belong to one token in all of them.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "oracle/losses.h"
#include "oracle/roots.h"
#include "oracle/rows.h"

namespace ttr::oracle {

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

/// The step of iteration n of token t, for a sum of pairs of squared length `square`.
template <class S>
S batch_step_size(const Head<S>& h, int t, int n, const S& square) {
  const Solver& solver = h.design.solver;
  if (!solver.step_list.empty()) return S(solver.step_list[static_cast<std::size_t>(n)]);
  if (solver.step_each) return h.call.at("beta")(t, n);
  return step_size(solver, h.quantity(solver.step, step_name(h.design), t, 1.0), square);
}

/// The gradient of the objective in the metric of Gauss and Newton.
template <class S>
Parameters<S> newton_gradient(const Head<S>& h, const Parameters<S>& w, const Rows<S>& rows) {
  using std::sqrt;
  const Memory& m = h.design.memory;
  std::vector<Parameters<S>> jacobian;  // one per answer
  Vec<S> root, error;
  for (int j = 0; j < rows.count(); ++j) {
    if (value_of(rows.w[j]) < 0)
      throw Error("a pair has the negative weight " + std::to_string(value_of(rows.w[j])) +
                  "; newton needs weights that are not negative");
    if (value_of(rows.w[j]) == 0) continue;  // the root has no derivative there
    const Vec<S> y = m.reverse ? times(w[0], rows.x[j]) : predict(m, w, rows.x[j]);
    const S d = sqrt(rows.w[j]);
    for (std::size_t b = 0; b < y.size(); ++b) {
      Vec<S> unit(y.size(), S(0.0));
      unit[b] = S(1.0);
      jacobian.push_back(zeros_like(w));
      if (m.reverse) add_outer(jacobian.back()[0], unit, rows.x[j]);
      else gradient(m, w, rows.x[j], unit, jacobian.back());
      root.push_back(d), error.push_back(d * (y[b] - rows.v[j][b]));
    }
  }
  const int n = static_cast<int>(jacobian.size());
  Matrix<S> gram(n, n), rhs(n, 1);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j <= i; ++j) {
      S sum = 0.0;
      for (std::size_t p = 0; p < w.size(); ++p) sum += dot(jacobian[i][p].data, jacobian[j][p].data);
      gram(i, j) = gram(j, i) = root[i] * sum * root[j];
    }
    gram(i, i) += S(h.design.solver.metric_first);
    rhs(i, 0) = error[i];
  }
  Parameters<S> g = zeros_like(w);
  if (n == 0) return g;
  const Matrix<S> u = solve_positive(gram, rhs);
  for (int i = 0; i < n; ++i)
    for (std::size_t p = 0; p < w.size(); ++p)
      for (std::size_t c = 0; c < w[p].data.size(); ++c) g[p].data[c] += root[i] * u(i, 0) * jacobian[i][p].data[c];
  return g;
}

inline bool has_momentum(const Solver& solver) { return solver.momentum.given() || solver.momentum_auto; }

/// What a step remembers of the steps before it.
template <class S>
struct Moments {
  Moments(const Solver& solver, const Parameters<S>& w) : mean(zeros_like(w)) {
    if (keeps_squares(solver)) squares = zeros_like(w);
    if (solver.metric == Solver::Metric::shampoo)
      for (const Matrix<S>& p : w) left.emplace_back(p.rows, p.rows), right.emplace_back(p.cols, p.cols);
  }
  Parameters<S> mean;         // the last update (momentum), or the running mean of the gradient (adam)
  Parameters<S> squares;      // A
  Parameters<S> left, right;  // L, R of each parameter
  double count = 0;           // steps of adam
  // Of the current token:
  int iteration = 0;
  Parameters<S> last_point, last_gradient;
  std::vector<Parameters<S>> moved, bent;  // s, y
};

template <class S>
S momentum_of(const Head<S>& h, int t, const Moments<S>& m) {
  if (h.design.solver.momentum_auto) return S(m.iteration / (m.iteration + 3.0));
  return h.quantity(h.design.solver.momentum, "momentum", t, 0.0);
}

/// Where the gradient of a step from `w` is taken.
template <class S>
Parameters<S> point_of(const Head<S>& h, int t, const Moments<S>& m, Parameters<S> w) {
  if (!h.design.solver.nesterov) return w;
  const S momentum = momentum_of(h, t, m);
  for (std::size_t p = 0; p < w.size(); ++p)
    for (std::size_t c = 0; c < w[p].data.size(); ++c) w[p].data[c] += momentum * m.mean[p].data[c];
  return w;
}

template <class S>
S inner(const Parameters<S>& a, const Parameters<S>& b) {
  S sum = 0.0;
  for (std::size_t p = 0; p < a.size(); ++p) sum += dot(a[p].data, b[p].data);
  return sum;
}

/// a += factor * b
template <class S>
void add_times(Parameters<S>& a, const S& factor, const Parameters<S>& b) {
  for (std::size_t p = 0; p < a.size(); ++p)
    for (std::size_t c = 0; c < a[p].data.size(); ++c) a[p].data[c] += factor * b[p].data[c];
}

/// M^-1 g of lbfgs times the step, which is where the recursion starts; remembers point and gradient.
template <class S>
Parameters<S> quasi_newton(Moments<S>& m, int kept, const Parameters<S>& point, const Parameters<S>& g,
                           const S& step) {
  if (m.iteration > 0) {
    Parameters<S> s = point, y = g;
    add_times(s, S(-1.0), m.last_point), add_times(y, S(-1.0), m.last_gradient);
    const double along = value_of(inner(s, y)), lengths = value_of(inner(s, s)) * value_of(inner(y, y));
    if (along > 1e-8 * std::sqrt(lengths)) m.moved.push_back(std::move(s)), m.bent.push_back(std::move(y));
    if (static_cast<int>(m.moved.size()) > kept) m.moved.erase(m.moved.begin()), m.bent.erase(m.bent.begin());
  }
  m.last_point = point, m.last_gradient = g;
  Parameters<S> r = g;
  Vec<S> alpha(m.moved.size(), S(0.0)), rho(m.moved.size(), S(0.0));
  for (std::size_t i = m.moved.size(); i-- > 0;) {
    rho[i] = S(1.0) / inner(m.moved[i], m.bent[i]);
    alpha[i] = rho[i] * inner(m.moved[i], r);
    add_times(r, -alpha[i], m.bent[i]);
  }
  for (Matrix<S>& part : r)
    for (S& e : part.data) e *= step;
  for (std::size_t i = 0; i < m.moved.size(); ++i) add_times(r, alpha[i] - rho[i] * inner(m.bent[i], r), m.moved[i]);
  return r;
}

template <class S>
Matrix<S> product(const Matrix<S>& a, const Matrix<S>& b) {
  Matrix<S> c(a.rows, b.cols);
  for (int i = 0; i < a.rows; ++i)
    for (int k = 0; k < a.cols; ++k)
      for (int j = 0; j < b.cols; ++j) c(i, j) += a(i, k) * b(k, j);
  return c;
}

/// (L + eps I)^-1/4 g (R + eps I)^-1/4 of one parameter, after its products are added to L and R.
template <class S>
Matrix<S> between_roots(Matrix<S>& left, Matrix<S>& right, const Matrix<S>& g, double eps) {
  for (int i = 0; i < g.rows; ++i)
    for (int j = 0; j < g.rows; ++j)
      for (int b = 0; b < g.cols; ++b) left(i, j) += g(i, b) * g(j, b);
  for (int i = 0; i < g.cols; ++i)
    for (int j = 0; j < g.cols; ++j)
      for (int a = 0; a < g.rows; ++a) right(i, j) += g(a, i) * g(a, j);
  return product(product(inverse_fourth_root(left, eps), g), inverse_fourth_root(right, eps));
}

/// step M^-1 g. `length`, if asked for, gets the step of every entry.
template <class S>
Parameters<S> in_metric(const Head<S>& h, Moments<S>& m, const Parameters<S>& point, Parameters<S> g, const S& step,
                        Parameters<S>* length) {
  using std::sqrt;
  using M = Solver::Metric;
  const Solver& solver = h.design.solver;
  if (length)
    for (Matrix<S>& part : *length)
      for (S& e : part.data) e = step;
  switch (solver.metric) {
    case M::lbfgs:
      return quasi_newton(m, solver.metric_pairs, point, g, step);
    case M::shampoo:
      for (std::size_t p = 0; p < g.size(); ++p) g[p] = between_roots(m.left[p], m.right[p], g[p], solver.eps);
      break;
    case M::adagrad:
    case M::rmsprop:
    case M::adam: {
      const bool adam = solver.metric == M::adam;
      const double keep = solver.metric == M::adagrad ? 1 : solver.metric_second;
      const double share = solver.metric == M::adagrad ? 1 : 1 - solver.metric_second;
      m.count += 1;
      const double first = adam ? 1 - std::pow(solver.metric_first, m.count) : 1;
      const double second = adam ? 1 - std::pow(solver.metric_second, m.count) : 1;
      for (std::size_t p = 0; p < g.size(); ++p)
        for (std::size_t c = 0; c < g[p].data.size(); ++c) {
          S &e = g[p].data[c], &square = m.squares[p].data[c], &mean = m.mean[p].data[c];
          const S before = square;
          square = S(keep) * square + S(share) * e * e;
          if (adam) mean = S(solver.metric_first) * mean + S(1 - solver.metric_first) * e, e = mean / S(first);
          if (value_of(square) == 0) {
            e = S(0.0);
            if (length) (*length)[p].data[c] = S(0.0);
            continue;
          }
          const S divisor = sqrt(square / S(second)) + S(solver.eps);
          if (length) (*length)[p].data[c] = step / divisor;
          if (solver.metric == M::adagrad) e = over_root(e, before, solver.eps);
          else e /= divisor;
        }
      break;
    }
    case M::none:
    case M::newton:  // the caller's gradient is in it
      break;
  }
  for (Matrix<S>& part : g)
    for (S& e : part.data) e *= step;
  return g;
}

/// The proximal step of the penalties, for an entry whose step was `length`.
template <class S>
S shrunk(const S& x, const S& length, const S& l1, const S& l2) {
  const S threshold = length * l1;
  if (std::abs(value_of(x)) <= value_of(threshold)) return S(0.0);
  return (value_of(x) > 0 ? x - threshold : x + threshold) / (S(1.0) + length * l2);
}

/// One step: `g` is the gradient at `point`.
template <class S>
void apply_update(const Head<S>& h, int t, Moments<S>& m, const S& step, const Parameters<S>& point, Parameters<S> g,
                  Parameters<S>& w) {
  using D = Solver::Decay;
  const Design& d = h.design;
  const Solver& solver = d.solver;
  const bool decays = solver.decay_kind == D::leak || solver.decay_kind == D::shrink;
  const S lam =
      decays ? h.quantity(solver.decay.given() ? solver.decay : Quantity{Quantity::From::input, 0}, "lam", t, 0.0)
             : S(0.0);
  if (solver.decay_kind == D::leak) add_times(g, lam, point);
  const S momentum = momentum_of(h, t, m), gain = h.quantity(solver.gain, "gain", t, 1.0);
  const bool penalty = d.extras.l1.given() || d.extras.l2.given();
  Parameters<S> length = penalty ? zeros_like(w) : Parameters<S>{};
  Parameters<S> update = in_metric(h, m, point, std::move(g), step, penalty ? &length : nullptr);
  const S l1 = h.quantity(d.extras.l1, "l1", 0, 0.0), l2 = h.quantity(d.extras.l2, "l2", 0, 0.0);
  const std::vector<ParameterInfo> infos = parameters_of(d.memory, h.sizes.key_dim, h.sizes.value_dim);
  for (std::size_t p = 0; p < w.size(); ++p) {
    const bool bias = infos[p].bias && !is_linear_class(d.memory);
    for (std::size_t c = 0; c < w[p].data.size(); ++c) {
      S& u = update[p].data[c];
      u = -u;
      if (has_momentum(solver)) u = m.mean[p].data[c] = momentum * m.mean[p].data[c] + u;
      if (solver.decay_kind == D::shrink) w[p].data[c] *= S(1.0) - lam;
    }
    const Matrix<S> move = solver.muon && !infos[p].bias ? orthogonalise(update[p]) : update[p];
    for (std::size_t c = 0; c < w[p].data.size(); ++c) {
      const S before = w[p].data[c];
      S& now = w[p].data[c];
      now += gain * move.data[c];
      if (!penalty || bias) continue;
      now = shrunk(now, length[p].data[c], l1, l2);
      if (has_momentum(solver)) m.mean[p].data[c] = now - before;
    }
  }
  ++m.iteration;
}

/// The answer of gd: n steps on the objective of the rows, from zero or a network's initial weights.
template <class S>
Vec<S> gd_answer(const Head<S>& h, int t, const Rows<S>& rows) {
  const Solver& solver = h.design.solver;
  Parameters<S> w;
  for (const ParameterInfo& p : parameters_of(h.design.memory, h.sizes.key_dim, h.sizes.value_dim)) {
    w.emplace_back(p.in, p.out);
    if (!is_linear_class(h.design.memory)) w.back().data = h.state.at(p.name).data;
  }
  const S square = solver.rule == Solver::Rule::automatic ? squares(rows) : S(0.0);
  Moments<S> moments(solver, w);
  for (int n = 0; n < solver.steps; ++n) {
    const Parameters<S> point = point_of(h, t, moments, w);
    Parameters<S> g = solver.metric == Solver::Metric::newton ? newton_gradient(h, point, rows)
                                                              : objective_gradient(h, point, rows);
    apply_update(h, t, moments, batch_step_size(h, t, n, square), point, std::move(g), w);
  }
  return predict(h.design.memory, w, h.read_vector(t));
}

}  // namespace ttr::oracle
