// Solvers that carry an answer from token to token: sgd, minibatch, descend; apa, kalman; and the two that carry it
// as a list (DeltaFormer's corrected values, the coefficients of a kernel memory), and slots.
//
// One step of sgd, minibatch and descend is that of oracle/descent.h, with the gradient G of the actual loss through the
// actual function class:
//
//   G is taken      sgd: on the newest pair at S ;
//                   minibatch(b): on the newest pair at the S of the start of the block ;
//                   descend: on the whole weighted objective at S ;  nesterov: at S + momentum Z
//   decay before    S <- e^g S first, G at the decayed S
//   feedback        the residual is read with p at the undecayed S, the write goes to k (Comba)
//   split           residual write*v - S'(erase*k) (GDN-2)
//   dplr            S <- decayed S + b (a' S) + step k v', a reads the undecayed S
//   precondition    A <- e^ga A + ba k*k, D = 1.5^(-r/(1+|r|)), r = log(A + 1e-6) - c; the write key is D*k
//   q_norm          the memory in use is S / |S|_q^(q-2), the state is S (Moneta)
//   mirror          the memory in use is radius softmax(S) (over all entries of a matrix: Memora), radius e^S or
//                   radius sinh S (hyperbolic entropy, arXiv 1902.01903); biases of networks are used as they are.
//                   With G at the memory in use this is argmin_W step G.W + D(W, W_{t-1}), D the Bregman divergence of
//                   the entropy whose gradient the map inverts: KL for softmax and exp
//   row_norm        after the step every output unit's weights get back their initial length (LaCT)
//
//   apa(p)    S += mu K'(K K' + eps)^-1 (V - K S) over the last p pairs
//   kalman    P += process I ; gain = P k / (noise + k'P k) ; S += gain (v - S'k)' ; P -= gain (P k)'
//   near / constant / sgd    u_t = v_t - step * mean_{i<t} u_i ; o_t = mean_{i<=t} u_i, means weighted by q_t
//   kernel / sgd             alpha_t = step (v_t - f(k_t)), f = sum alpha_i kappa(k_i, .) over the window, or all;
//                            momentum: zeta <- momentum zeta, zeta_t = step (v_t - f(k_t)), alpha <- alpha + zeta
//   slots     Km <- Km diag(e^gs) + k s' ; Vm <- diag(e^gs) Vm + s v' ; o = Vm' softmax(Km' q)
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "oracle/batch.h"

namespace ttr::oracle {

/// Reads the state of every parameter into matrices that have their size already.
template <class S>
void load_into(const Head<S>& h, const std::string& prefix, Parameters<S>& w) {
  int n = 0;
  for (const ParameterInfo& p : parameters_of(h.design.memory, h.sizes.key_dim, h.sizes.value_dim))
    w[n++].data = h.state.at(state_name(prefix, p.name)).data;
}
template <class S>
Parameters<S> load_parameters(const Head<S>& h, const std::string& prefix) {
  Parameters<S> w;
  for (const ParameterInfo& p : parameters_of(h.design.memory, h.sizes.key_dim, h.sizes.value_dim))
    w.emplace_back(p.in, p.out);
  load_into(h, prefix, w);
  return w;
}
template <class S>
void store_parameters(Head<S>& h, const std::string& prefix, const Parameters<S>& w) {
  int n = 0;
  for (const ParameterInfo& p : parameters_of(h.design.memory, h.sizes.key_dim, h.sizes.value_dim))
    h.state.at(state_name(prefix, p.name)).data = w[n++].data;
}

/// What the steps before remember, from the state and back into it.
template <class S>
Moments<S> load_moments(const Head<S>& h, const Parameters<S>& w) {
  const Solver& solver = h.design.solver;
  Moments<S> m(solver, w);
  if (keeps_update(solver)) m.mean = load_parameters(h, "Z");
  if (keeps_squares(solver)) m.squares = load_parameters(h, "squares");
  if (solver.metric == Solver::Metric::adam) m.count = value_of(h.state.at("count")(0, 0));
  if (solver.metric == Solver::Metric::shampoo) load_into(h, "L", m.left), load_into(h, "R", m.right);
  return m;
}
template <class S>
void store_moments(Head<S>& h, const Moments<S>& m) {
  const Solver& solver = h.design.solver;
  if (keeps_update(solver)) store_parameters(h, "Z", m.mean);
  if (keeps_squares(solver)) store_parameters(h, "squares", m.squares);
  if (solver.metric == Solver::Metric::adam) h.state.at("count")(0, 0) = S(m.count);
  if (solver.metric == Solver::Metric::shampoo) store_parameters(h, "L", m.left), store_parameters(h, "R", m.right);
}

/// Factor of the decay before a step on entry (a, b) of a parameter.
template <class S>
S decay_factor(const Head<S>& h, int t, int a, int b) {
  using std::exp;
  using P = Weights::Per;
  const Solver& solver = h.design.solver;
  if (solver.decay.is_constant()) return S(1 - solver.decay.value);
  switch (solver.decay_per) {
    case P::key:
      return exp(h.call.at("gk")(t, a));
    case P::value:
      return exp(h.call.at("gv")(t, b));
    default:
      return exp(h.at("g", t));
  }
}

template <class S>
void decay_before(const Head<S>& h, int t, Parameters<S>& w) {
  if (h.design.solver.decay_kind != Solver::Decay::before) return;
  if (h.design.solver.decay_per == Weights::Per::token || h.design.solver.decay.is_constant()) {
    const S factor = decay_factor(h, t, 0, 0);
    for (Matrix<S>& m : w)
      for (S& e : m.data) e *= factor;
    return;
  }
  for (int a = 0; a < w[0].rows; ++a)
    for (int b = 0; b < w[0].cols; ++b) w[0](a, b) *= decay_factor(h, t, a, b);
}

/// The memory in use: S itself, S / |S|_q^(q-2), or what a mirror map makes of it.
template <class S>
Parameters<S> in_use(const Design& design, Parameters<S> w) {
  using std::abs;
  using std::exp;
  using std::pow;
  using Mirror = Solver::Mirror;
  const Solver& solver = design.solver;
  const double q = solver.q_norm;
  if (q == 0 && solver.mirror == Mirror::none) return w;
  const std::vector<ParameterInfo> infos = parameters_of(design.memory, 1, 1);
  for (std::size_t p = 0; p < w.size(); ++p) {
    Matrix<S>& m = w[p];
    if (solver.mirror != Mirror::none) {
      if (infos[p].bias && !is_linear_class(design.memory)) continue;
      if (solver.mirror == Mirror::softmax) m.data = softmax(std::move(m.data));
      for (S& e : m.data) {
        if (solver.mirror == Mirror::exp) e = exp(e);
        if (solver.mirror == Mirror::sinh) e = S(0.5) * (exp(e) - exp(-e));
        e *= S(solver.radius);
      }
      continue;
    }
    S sum = 0.0;
    for (const S& e : m.data)
      if (value_of(e) != 0) sum += pow(S(abs(e)), q);
    if (value_of(sum) == 0) continue;
    const S divisor = pow(sum, (q - 2) / q);
    for (S& e : m.data) e /= divisor;
  }
  return w;
}

/// Diagonal preconditioner; advances A.
template <class S>
Vec<S> precondition(Head<S>& h, int t, const Vec<S>& k) {
  using std::abs;
  using std::exp;
  using std::log;
  Matrix<S>& a = h.state.at("A");
  const S fade = exp(h.call.at("g_atk")(t, 0)), share = h.call.at("beta_atk")(t, 0),
          level = h.call.at("log_atk_scale")(0, 0);
  Vec<S> write;
  for (int c = 0; c < a.cols; ++c) {
    a(0, c) = fade * a(0, c) + share * k[c] * k[c];
    const S r = log(a(0, c) + S(1e-6)) - level;
    write.push_back(k[c] * exp(S(-std::log(1.5)) * r / (S(1.0) + abs(r))));
  }
  return write;
}

/// Gradient of a linear memory by one pair, or what feedback, split, dplr put in its place.
template <class S>
Matrix<S> linear_gradient(Head<S>& h, int t, int i, const Matrix<S>& point, const Matrix<S>& undecayed) {
  const Design& d = h.design;
  const Solver& solver = d.solver;
  const int row = i - h.kept;
  const Vec<S> x = d.memory.reverse ? h.value(i) : h.pair_vector(i, t);
  const S weight = newest_weight(h, i, t);
  Matrix<S> g(point.rows, point.cols);
  if (solver.dplr) {
    Vec<S> write = h.value(i), erase = through(h.input_row("a", row), undecayed);
    for (S& e : write) e *= -weight;
    for (S& e : erase) e = -e;
    add_outer(g, x, write);
    add_outer(g, h.input_row("b", row), erase);
    return g;
  }
  Vec<S> read = x, target = h.value(i), write = x;
  const Matrix<S>* memory = &point;
  if (solver.feedback) {
    const Vec<S> p = normalised(d.extras.keys, h.input_row("p", row));
    read = is_linear_class(d.memory) ? features(d.memory, p, p) : p;
    memory = &undecayed;
  }
  if (solver.split) {
    const Vec<S> erase = h.input_row("erase", row), gate = h.input_row("write", row);
    for (std::size_t a = 0; a < read.size(); ++a) read[a] *= erase[a];
    for (std::size_t b = 0; b < target.size(); ++b) target[b] *= gate[b];
  }
  if (solver.precondition) write = precondition(h, t, x);
  const Matrix<S> used = in_use(d, Parameters<S>{*memory})[0];
  Vec<S> dy = d.memory.reverse ? d_loss(d.extras, times(used, read), h.keys[i], loss_parameter(h, i))
                               : d_loss(d.extras, through(read, used), target, loss_parameter(h, i));
  for (S& e : dy) e *= weight;
  if (d.memory.reverse) add_outer(g, dy, x);
  else add_outer(g, write, dy);
  return g;
}

template <class S>
void restore_row_norms(Head<S>& h, Parameters<S>& w) {
  using std::sqrt;
  int n = 0;
  for (const ParameterInfo& p : parameters_of(h.design.memory, h.sizes.key_dim, h.sizes.value_dim)) {
    Matrix<S>& m = w[n++];
    if (p.bias) continue;
    const Matrix<S>& target = h.state.at("norm_" + p.name);
    for (int b = 0; b < m.cols; ++b) {
      S square = 0.0;
      for (int a = 0; a < m.rows; ++a) square += m(a, b) * m(a, b);
      if (value_of(square) == 0) continue;
      const S factor = target(0, b) / (sqrt(square) + S(1e-5));
      for (int a = 0; a < m.rows; ++a) m(a, b) *= factor;
    }
  }
}

/// One step. `w` is the (decayed) answer, `undecayed` the answer before this token's decay, `block_start` where a
/// block's gradients are taken (minibatch) or null.
template <class S>
void take_step(Head<S>& h, int t, int i, bool first, Parameters<S>& w, const Parameters<S>& undecayed,
               const Parameters<S>* block_start, Moments<S>& moments) {
  const Design& d = h.design;
  const Solver& solver = d.solver;
  const Parameters<S> point = point_of(h, t, moments, block_start ? *block_start : w);
  const bool newton = solver.metric == Solver::Metric::newton;
  const bool batch = solver.kind == Solver::Kind::descend;
  Parameters<S> g;
  S step = 1.0;
  if (batch) {
    const Rows<S> rows = make_rows(h, t, i, false);
    step = batch_step_size(h, t, moments.iteration, squares(rows));
    g = newton ? newton_gradient(h, point, rows) : objective_gradient(h, in_use(d, point), rows);
  } else {
    const Vec<S> x = d.memory.reverse ? h.value(i) : is_linear_class(d.memory) ? h.pair_vector(i, t) : h.keys[i];
    step = step_size(solver, h.quantity(solver.step, step_name(d), i - h.kept, 1.0), dot(x, x));
    if (newton) {
      Rows<S> row;
      row.x = {x}, row.v = {d.memory.reverse ? h.keys[i] : h.value(i)}, row.w = {newest_weight(h, i, t)};
      g = newton_gradient(h, point, row);
    } else if (is_linear_class(d.memory)) {
      g = {linear_gradient(h, t, i, point[0], first && !block_start ? undecayed[0] : point[0])};
    } else {
      g = zeros_like(w);
      add_pair_gradient(h, in_use(d, point), x, h.value(i), loss_parameter(h, i), newest_weight(h, i, t), g);
    }
  }
  apply_update(h, t, moments, step, point, std::move(g), w);
  if (solver.row_norm) restore_row_norms(h, w);
}

template <class S>
void write_output(Head<S>& h, int t, Vec<S> o) {
  finish_read(h, t, o);
  for (int b = 0; b < h.sizes.value_dim; ++b) h.o(t, b) = o[b];
}

template <class S>
void run_online(Head<S>& h) {
  const Design& d = h.design;
  const Solver& solver = d.solver;
  const bool blocks = solver.kind == Solver::Kind::minibatch;
  const int pairs = solver.kind == Solver::Kind::sgd ? solver.pairs : 1;
  const int steps = blocks ? 1 : solver.steps;
  Parameters<S> w = load_parameters(h, ""), start;
  Moments<S> moments = load_moments(h, w);
  int position = 0;
  if (blocks)
    start = load_parameters(h, "start_"), position = static_cast<int>(value_of(h.state.at("position")(0, 0)));
  for (int t = 0; t < h.time; ++t) {
    if (d.extras.read_before) write_output(h, t, predict(d.memory, in_use(d, w), h.read_vector(t)));
    if (blocks && position == 0) start = w;
    const Parameters<S> undecayed = w;
    decay_before(h, t, w);
    moments.iteration = 0, moments.moved.clear(), moments.bent.clear();
    for (int j = 0; j < pairs; ++j)
      for (int s = 0; s < steps; ++s)
        take_step(h, t, h.kept + t * pairs + j, j == 0 && s == 0, w, undecayed, blocks ? &start : nullptr, moments);
    if (blocks) position = (position + 1) % solver.batch;
    if (!d.extras.read_before) write_output(h, t, predict(d.memory, in_use(d, w), h.read_vector(t)));
  }
  store_parameters(h, "", w);
  store_moments(h, moments);
  if (blocks) {
    store_parameters(h, "start_", start);
    h.state.at("position")(0, 0) = S(static_cast<double>(position));
  }
  keep_pairs(h);
}

template <class S>
void run_projection(Head<S>& h) {
  const Design& d = h.design;
  const int V = h.sizes.value_dim;
  Parameters<S> w = load_parameters(h, "");
  for (int t = 0; t < h.time; ++t) {
    if (d.extras.read_before) write_output(h, t, predict(d.memory, w, h.read_vector(t)));
    decay_before(h, t, w);
    const int last = h.kept + t, first = std::max(0, last - d.solver.batch + 1), n = last - first + 1;
    const int F = w[0].rows;
    Matrix<S> keys(n, F), residual(n, V);
    for (int j = 0; j < n; ++j) {
      const Vec<S> x = h.pair_vector(first + j, t), y = through(x, w[0]);
      for (int a = 0; a < F; ++a) keys(j, a) = x[a];
      for (int b = 0; b < V; ++b) residual(j, b) = h.pair.at("v")(first + j, b) - y[b];
    }
    Matrix<S> change(F, V);
    if (d.solver.eps > 0) {
      Matrix<S> gram(n, n);
      for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j) {
          for (int a = 0; a < F; ++a) gram(i, j) += keys(i, a) * keys(j, a);
          if (i == j) gram(i, j) += S(d.solver.eps);
        }
      const Matrix<S> y = solve_positive(gram, residual);
      for (int j = 0; j < n; ++j) add_outer(change, keys.row(j), y.row(j));
    } else {
      change = least_squares(keys, residual);
    }
    const S mu = h.quantity(d.solver.step, step_name(d), t, 1.0);
    for (std::size_t c = 0; c < change.data.size(); ++c) w[0].data[c] += mu * change.data[c];
    if (!d.extras.read_before) write_output(h, t, predict(d.memory, w, h.read_vector(t)));
  }
  store_parameters(h, "", w);
  keep_pairs(h);
}

template <class S>
void run_kalman(Head<S>& h) {
  const Design& d = h.design;
  Parameters<S> w = load_parameters(h, "");
  const int F = w[0].rows;
  Matrix<S> cov(F, F);
  cov.data = h.state.at("P").data;
  for (int t = 0; t < h.time; ++t) {
    if (d.extras.read_before) write_output(h, t, predict(d.memory, w, h.read_vector(t)));
    decay_before(h, t, w);
    const Vec<S> k = h.pair_vector(t, t), y = through(k, w[0]);
    for (int a = 0; a < F; ++a) cov(a, a) += h.quantity(d.solver.process, "process", t, 0.0);
    const Vec<S> pk = times(cov, k);
    // A pair that counts w times is a measurement of noise / w.
    const S weight = newest_weight(h, t, t);
    const S spread = h.quantity(d.solver.noise, "noise", t, 1.0) + weight * dot(k, pk);
    if (value_of(spread) != 0) {
      Vec<S> gain, residual;
      for (int a = 0; a < F; ++a) gain.push_back(weight * pk[a] / spread);
      for (std::size_t b = 0; b < y.size(); ++b) residual.push_back(h.pair.at("v")(t, static_cast<int>(b)) - y[b]);
      add_outer(w[0], gain, residual);
      for (int a = 0; a < F; ++a)
        for (int b = 0; b < F; ++b) cov(a, b) -= gain[a] * pk[b];
    }
    if (!d.extras.read_before) write_output(h, t, predict(d.memory, w, h.read_vector(t)));
  }
  store_parameters(h, "", w);
  h.state.at("P").data = cov.data;
}

/// Weighted mean of rows of `u` under the query's weights, with or without the newest; zero if there is no weight.
template <class S>
Vec<S> weighted_mean(const Head<S>& h, int t, int newest, bool with_newest, const Matrix<S>& u) {
  using std::exp;
  PairWeights<S> pw = pair_weights(h, t, newest);
  if (!with_newest) pw.logit.pop_back(), pw.factor.pop_back(), --pw.count;
  const bool sink = h.design.weights.sink;
  double largest = sink ? value_of(h.at("sink", 0)) : -HUGE_VAL;
  for (const S& e : pw.logit) largest = std::max(largest, value_of(e));
  if (std::isfinite(largest)) pw.shift = largest;
  S below = sink ? exp(h.at("sink", 0) - S(pw.shift)) : S(0.0);
  Vec<S> above(u.cols, S(0.0));
  for (int j = 0; j < pw.count; ++j) {
    const S w = pw.weight(j);
    below += w;
    for (int b = 0; b < u.cols; ++b) above[b] += w * u(pw.first + j, b);
  }
  for (S& e : above) e = value_of(below) != 0 ? e / below : S(0.0);
  return above;
}

/// `kept` rows of a list in the state, with room for this call's.
template <class S>
Matrix<S> grown(const Head<S>& h, const std::string& name) {
  Matrix<S> all(h.pairs, h.sizes.value_dim);
  const Matrix<S>& past = h.state.at(name);
  std::copy(past.data.begin(), past.data.end(), all.data.begin());
  return all;
}

template <class S>
void run_corrected(Head<S>& h) {
  const Solver& solver = h.design.solver;
  Matrix<S> u = grown(h, "u");
  for (int t = 0; t < h.time; ++t) {
    const int i = h.kept + t;
    const Vec<S> before = weighted_mean(h, t, i, false, u);
    const S step = h.quantity(solver.step, step_name(h.design), t, 1.0);
    for (int b = 0; b < u.cols; ++b) u(i, b) = h.call.at("v")(t, b) - step * before[b];
    write_output(h, t, h.design.extras.read_before ? before : weighted_mean(h, t, i, true, u));
  }
  h.pair["u"] = u;
  keep_pairs(h);
}

template <class S>
void run_functional(Head<S>& h) {
  const Design& d = h.design;
  const Solver& solver = d.solver;
  const int V = h.sizes.value_dim;
  Matrix<S> alpha = grown(h, "alpha"), zeta;  // of the function, and of its last update
  const bool momentum = solver.momentum.given();
  if (momentum) zeta = grown(h, "zeta");
  const int window = d.weights.window;
  // What left the window is no part of the function any more (the truncation of NORMA).
  auto answer = [&](const Vec<S>& x, int count, const Matrix<S>& coefficients) {
    Vec<S> y(V, S(0.0));
    for (int i = window > 0 ? std::max(0, count - window) : 0; i < count; ++i) {
      const S kappa = h.kernel(h.keys[i], x);
      for (int b = 0; b < V; ++b) y[b] += kappa * coefficients(i, b);
    }
    return y;
  };
  for (int t = 0; t < h.time; ++t) {
    const int i = h.kept + t;
    const S s = h.quantity(solver.step, step_name(d), t, 1.0);
    Parameters<S> list{alpha};
    if (solver.decay_kind == Solver::Decay::before) decay_before(h, t, list), alpha = list[0];
    const Quantity decay = solver.decay.given() ? solver.decay : Quantity{Quantity::From::input, 0};
    const S own = h.kernel(h.keys[i], h.keys[i]), step = step_size(solver, s, own), weight = newest_weight(h, i, t);
    for (int n = 0; n < solver.steps; ++n) {
      const S share = h.quantity(solver.momentum, "momentum", t, 0.0);
      Matrix<S> point = alpha;
      for (std::size_t c = 0; c < point.data.size() && solver.nesterov; ++c) point.data[c] += share * zeta.data[c];
      const Vec<S> dy =
          d_loss(d.extras, answer(h.keys[i], i + 1, point), h.call.at("v").row(t),
                 d.extras.loss_parameter.is_input() ? h.call.at("c")(t, 0) : S(d.extras.loss_parameter.value));
      S factor = 1.0;
      if (solver.decay_kind == Solver::Decay::leak) factor = S(1.0) - step * h.quantity(decay, "lam", t, 0.0);
      if (solver.decay_kind == Solver::Decay::shrink) factor = S(1.0) - h.quantity(decay, "lam", t, 0.0);
      if (solver.decay_kind == Solver::Decay::leak || solver.decay_kind == Solver::Decay::shrink)
        for (S& e : alpha.data) e *= factor;
      if (!momentum) {
        for (int b = 0; b < V; ++b) alpha(i, b) -= step * weight * dy[b];
        continue;
      }
      for (S& e : zeta.data) e *= share;
      for (int b = 0; b < V; ++b) zeta(i, b) -= step * weight * dy[b];
      for (std::size_t c = 0; c < alpha.data.size(); ++c) alpha.data[c] += zeta.data[c];
    }
    write_output(h, t, answer(h.queries[t], i + 1, alpha));
  }
  h.pair["alpha"] = alpha;
  if (momentum) h.pair["zeta"] = zeta;
  keep_pairs(h);
}

template <class S>
void run_slots(Head<S>& h) {
  using std::exp;
  const int K = h.sizes.key_dim, V = h.sizes.value_dim, M = h.design.memory.slots;
  Matrix<S> km(K, M), vm(M, V);
  km.data = h.state.at("Km").data;
  vm.data = h.state.at("Vm").data;
  auto read = [&](int t) {
    const Vec<S> logit = through(h.read_vector(t), km);
    double largest = -HUGE_VAL;
    for (const S& e : logit) largest = std::max(largest, value_of(e));
    Vec<S> p;
    S sum = 0.0;
    for (const S& e : logit) p.push_back(exp(e - S(largest))), sum += p.back();
    for (S& e : p) e /= sum;
    return through(p, vm);
  };
  for (int t = 0; t < h.time; ++t) {
    if (h.design.extras.read_before) write_output(h, t, read(t));
    const bool own = h.has("gs");
    for (int m = 0; m < M; ++m) {
      const S factor = exp(own ? h.call.at("gs")(t, m) : log_gate(h, t)), s = h.call.at("s")(t, m);
      for (int a = 0; a < K; ++a) km(a, m) = km(a, m) * factor + h.keys[t][a] * s;
      for (int b = 0; b < V; ++b) vm(m, b) = factor * vm(m, b) + s * h.pair.at("v")(t, b);
    }
    if (!h.design.extras.read_before) write_output(h, t, read(t));
  }
  h.state.at("Km").data = km.data;
  h.state.at("Vm").data = vm.data;
}

template <class S>
void solve_head(Head<S>& h) {
  switch (h.way) {
    case Way::batch:
      return run_batch(h);
    case Way::descend:
    case Way::online:
      return run_online(h);
    case Way::projection:
      return run_projection(h);
    case Way::kalman:
      return run_kalman(h);
    case Way::corrected:
      return run_corrected(h);
    case Way::functional:
      return run_functional(h);
    case Way::slots:
      return run_slots(h);
  }
}

template <class S>
void run_head(Head<S>& h) {
  solve_head(h);
  if (h.design.memory.knows_position()) h.state.at("seen")(0, 0) = S(h.seen + h.time);
}

}  // namespace ttr::oracle
