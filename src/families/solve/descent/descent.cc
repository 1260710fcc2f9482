// One head of one sequence after the other. A state at work is  S | Z | H | F , those that the model carries.
//
// Backward of the sums, as in least_squares.cc:
//   dk = beta (dF v + (dH + dH') k) ;  dv = beta dF' k ;  dbeta = k'dF v + k'dH k
//   dg = e^g (<dF, F_{t-1}> + <dH, H_{t-1}>) ;  dF <- e^g dF ;  dH <- e^g dH
#include "families/solve/descent/descent.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "families/common/replay.h"
#include "families/common/wide.h"
#include "families/solve/descent/objective.h"
#include "simd/denormals.h"

namespace ttr::families::descent {
namespace {

using Decay = DescentModel::Decay;

class Head {
 public:
  Head(const Simd<double>& simd, const DescentModel& model, Size pairs, bool backward, Arena& arena)
      : s(simd),
        m(model),
        K(model.network.key_dim),
        V(model.network.value_dim),
        net(simd, model.network, PairRows::rows(model, pairs), backward, arena),
        size(net.layout().size),
        of_s(m.carries() ? size : 0),
        of_z((m.carries() && m.has_momentum()) || m.gathered() ? size : 0),
        of_h(m.sums ? K * K : 0),
        of_f(m.sums ? K * V : 0),
        steps(simd, model, size, backward, arena),
        sums(simd, K, V),
        gathered(simd, size),
        rows(simd, model, net, PairRows::kept(model, pairs), backward, arena),
        replay({of_s + of_z + of_h + of_f}, backward ? pairs : 0, 0, arena),
        reads(net.take_rows(arena)) {
    const auto take = [&](Size n) { return arena.take<double>(n); };
    state = take(of_s + of_z + of_h + of_f), S_ = take(size), Z_ = take(m.has_momentum() ? size : 0);
    start = take(m.restarts ? size : 0);
    k = take(K), kb = take(K), v = take(V), o = take(V), ones = take(V), zeros = take(V);
    if (simd.name) std::fill_n(ones, V, 1.0), std::fill_n(zeros, V, 0.0);
    net.norm_weight = ones, net.norm_bias = zeros;
    if (!backward) return;
    d_state = take(of_s + of_z + of_h + of_f), d_S_ = take(size), d_Z_ = take(m.has_momentum() ? size : 0);
    d_start = take(m.restarts ? size : 0), d_q = take(K), d_k = take(K), d_v = take(V), spare = take(K);
  }

  template <class T>
  void forward(const DescentProblem<T>& p, std::size_t n, int head) {
    const Sequence& sequence = p.linear.sequences[n];
    enter(p, n, head);
    for (Size t = sequence.begin; t < sequence.end; ++t) token(p, n, t, head, state, static_cast<bool>(p.linear.o));
    if (!p.keep) return;
    const Size seq_head = static_cast<Size>(n) * p.linear.heads + head;
    if (of_s)
      parts(p.state.weights, seq_head, [&](Size at, Size count, double* to) { std::copy_n(state + at, count, to); });
    if (of_z)
      parts(p.state.z, seq_head, [&](Size at, Size count, double* to) { std::copy_n(state + of_s + at, count, to); });
    if (m.sums) {
      std::copy_n(h_of(state), of_h, p.state.h + seq_head * of_h);
      std::copy_n(f_of(state), of_f, p.state.f + seq_head * of_f);
    }
  }

  template <class T>
  void backward(const DescentProblem<T>& p, const DescentGradient<T>& d, std::size_t n, int head) {
    const Sequence& sequence = p.linear.sequences[n];
    const Size seq_head = static_cast<Size>(n) * p.linear.heads + head, tokens = sequence.end - sequence.begin;
    enter(p, n, head);
    std::fill_n(d_state, of_s + of_z + of_h + of_f, 0.0);
    const auto from = [&](const NeuralParts<const double>& of, Size offset) {
      parts(of, seq_head,
            [&](Size at, Size count, const double* x) { std::copy_n(x, count, d_state + offset + at); });
    };
    if (m.restarts) {
      std::fill_n(d_start, size, 0.0);
      parts(d.d_final.weights, seq_head,
            [&](Size at, Size count, const double* x) { std::copy_n(x, count, d_start + at); });
    }
    if (of_s) from(d.d_final.weights, 0);
    if (of_z) from(d.d_final.z, of_s);
    if (m.sums && d.d_final.h) std::copy_n(d.d_final.h + seq_head * of_h, of_h, h_of(d_state));
    if (m.sums && d.d_final.f) std::copy_n(d.d_final.f + seq_head * of_f, of_f, f_of(d_state));
    if (!m.sums) rows.clear(m.sees_newest() ? 1 : past + tokens);
    std::fill_n(net.d_norm_weight, V, 0.0), std::fill_n(net.d_norm_bias, V, 0.0);
    replay.run(
        tokens, {state},
        [&](Size i, const Parts<double, 1>& x) { token(p, n, sequence.begin + i, head, x[0], false); },
        [&](Size i, const Parts<const double, 1>& old, const Parts<const double, 1>& now) {
          token_back(p, d, n, sequence.begin + i, head, old[0], now[0]);
        });
    if (m.lists_pairs()) pairs_back(p, d, n, head);
    const auto add_to = [&](const NeuralParts<double>& to, const double* x) {
      parts(to, seq_head, [&](Size at, Size count, double* y) { s.axpy(count, 1.0, x + at, y); });
    };
    if (m.restarts) add_to(d.d_initial.weights, d_start);
    if (of_s) add_to(d.d_initial.weights, d_state);
    if (of_z) add_to(d.d_initial.z, d_state + of_s);
    if (m.sums && d.d_initial.h) s.axpy(of_h, 1.0, h_of(d_state), d.d_initial.h + seq_head * of_h);
    if (m.sums && d.d_initial.f) s.axpy(of_f, 1.0, f_of(d_state), d.d_initial.f + seq_head * of_f);
  }

 private:
  double* z_of(double* x) const { return x + of_s; }
  const double* z_of(const double* x) const { return x + of_s; }
  double* h_of(double* x) const { return x + of_s + of_z; }
  double* f_of(double* x) const { return x + of_s + of_z + of_h; }
  const double* h_of(const double* x) const { return x + of_s + of_z; }
  const double* f_of(const double* x) const { return x + of_s + of_z + of_h; }
  template <class T>
  static int head_of(const LinearProblem<T>& a, int own_heads, int head) {
    return head / (a.heads / own_heads);
  }

  // c has heads of its own: features may be those of every head.
  template <class T>
  static int near_head(const DescentProblem<T>& p, int head) {
    return head_of(p.linear, static_cast<int>(p.near_k.extent[2]), head);
  }

  /// f(offset, count, numbers) for every parameter that is there.
  template <class N, class F>
  void parts(const NeuralParts<N>& of, Size seq_head, F&& f) const {
    for (int i = 0; i < net.layout().count; ++i) {
      const NeuralLayout::Part& part = net.layout().part[static_cast<std::size_t>(i)];
      const Size count = Size{part.in} * part.out;
      if (N* const numbers = of[static_cast<std::size_t>(i)]) f(part.offset, count, numbers + seq_head * count);
    }
  }

  // The state at the start, and the pairs of the past and of the call.
  template <class T>
  void enter(const DescentProblem<T>& p, std::size_t n, int head) {
    const Size seq_head = static_cast<Size>(n) * p.linear.heads + head;
    if (m.restarts) {
      std::fill_n(start, size, 0.0);
      parts(p.state.weights, seq_head,
            [&](Size at, Size count, const double* x) { std::copy_n(x, count, start + at); });
    }
    if (of_s)
      parts(p.state.weights, seq_head,
            [&](Size at, Size count, const double* x) { std::copy_n(x, count, state + at); });
    if (of_z)
      parts(p.state.z, seq_head,
            [&](Size at, Size count, const double* x) { std::copy_n(x, count, state + of_s + at); });
    if (m.sums) {
      std::copy_n(p.state.h + seq_head * of_h, of_h, h_of(state));
      std::copy_n(p.state.f + seq_head * of_f, of_f, f_of(state));
    }
    past = m.lists_pairs() && p.past_count ? static_cast<Size>(p.past_count[n]) : 0;
    if (!m.lists_pairs()) return;
    const LinearProblem<T>& a = p.linear;
    const int own = head_of(a, a.key_heads, head);
    const Size row = static_cast<Size>(n);
    for (Size i = 0; i < past; ++i) {
      load(p.past.k, row, i, own, K, 1.0, rows.x + i * K);
      load(p.past.v, row, i, head_of(a, p.value_heads, head), V, 1.0, rows.v + i * V);
      if (m.own_near) load(p.past.near, row, i, near_head(p, head), m.near_dim, 1.0, rows.c + i * m.near_dim);
      rows.g[i] = number(p.past.g, row, i, head, 0), rows.beta[i] = number(p.past.beta, row, i, head, 1);
    }
    const Sequence& sequence = a.sequences[n];
    for (Size t = sequence.begin; t < sequence.end; ++t)
      load_pair(p, sequence.row, t, head, past + t - sequence.begin);
  }
  template <class T>
  void load_pair(const DescentProblem<T>& p, Size row, Size t, int head, Size at) {
    const LinearProblem<T>& a = p.linear;
    load(a.k, row, t, head_of(a, a.key_heads, head), K, 1.0, rows.x + at * K);
    load(a.v, row, t, head_of(a, p.value_heads, head), V, 1.0, rows.v + at * V);
    if (m.own_near) load(p.near_k, row, t, near_head(p, head), m.near_dim, 1.0, rows.c + at * m.near_dim);
    rows.g[at] = number(a.g, row, t, head, 0), rows.beta[at] = number(a.beta, row, t, head, 1);
  }

  // What the objective of token t is made of; the sums move.
  template <class T>
  void see(const DescentProblem<T>& p, std::size_t n, Size t, int head, double* x) {
    const LinearProblem<T>& a = p.linear;
    const Sequence& sequence = a.sequences[n];
    if (!m.sums) {
      if (m.sees_newest()) load_pair(p, sequence.row, t, head, 0);
      if (m.near != DescentModel::Near::none)
        load(p.near_q, sequence.row, t, head_of(a, p.query_heads, head), m.near_dim, 1.0, rows.query);
      if (m.near == DescentModel::Near::gaussian) rows.bandwidth = static_cast<double>(p.bandwidth(head));
      return rows.see(m.sees_newest() ? 0 : past + t - sequence.begin);
    }
    const double decay = a.g ? std::exp(number(a.g, sequence.row, t, head, 0)) : 1.0;
    load(a.k, sequence.row, t, head_of(a, a.key_heads, head), K, 1.0, k);
    load(a.v, sequence.row, t, head, V, 1.0, v);
    s.scale(K, number(a.beta, sequence.row, t, head, 1), k, kb);
    s.rank_one(K, K, decay, kb, k, h_of(x), K);
    s.rank_one(K, V, decay, kb, v, f_of(x), V);
  }

  // The numbers of a token, and its step sizes once the objective is there.
  template <class T>
  Token numbers_of(const DescentProblem<T>& p, Size row, Size t, int head) {
    Token x;
    if (m.momentum) x.momentum = number(p.momentum, row, t, head, 0);
    if (m.decay == Decay::leak || m.decay == Decay::shrink) x.lam = number(p.decay, row, t, head, 0);
    square = m.automatic ? (m.sums ? sums.squares() : rows.squares()) : 0;
    for (Size j = 0; j < m.steps; ++j)
      steps.rates[j] = !m.list.empty() ? m.list[static_cast<std::size_t>(j)]
                       : m.automatic   ? (square > 0 ? 1 / square : 0)
                       : p.rate        ? static_cast<double>(p.rate(row, t, head, m.each ? j : 0))
                                       : 1;
    return x;
  }
  template <class T>
  double factor(const DescentProblem<T>& p, Size row, Size t, int head) const {
    return m.decay == Decay::before ? std::exp(number(p.decay, row, t, head, 0)) : 1.0;
  }

  // S and Z of a token's steps, from the state x before it: in place, or copies that start anew.
  struct Answer {
    double *S, *Z;
  };
  Answer begin(double* x) {
    if (m.carries()) return {x, of_z ? x + of_s : nullptr};
    gathered.G = z_of(x);
    std::copy_n(start, size, S_);
    if (m.has_momentum()) std::fill_n(Z_, size, 0.0);
    return {S_, m.has_momentum() ? Z_ : nullptr};
  }
  void take_steps(const Token& t, const Answer& a) {
    if (m.sums) steps.run(sums, t, a.S, a.Z);
    else if (m.gathered()) steps.run(gathered, t, a.S, a.Z);
    else steps.run(rows, t, a.S, a.Z);
  }
  // The newest pair joins the sum of gradients.
  template <class T>
  void gather(const DescentProblem<T>& p, Size row, Size t, int head, double* G) {
    rows.gradient(start, S_);
    s.scale(size, p.linear.g ? std::exp(number(p.linear.g, row, t, head, 0)) : 1.0, G, G);
    s.axpy(size, 1.0, S_, G);
  }
  template <class T>
  void gather_back(const DescentProblem<T>& p, const DescentGradient<T>& d, Size row, Size t, int head,
                   const double* old) {
    double* const d_G = z_of(d_state);
    rows.reverse(start, d_G, d_start);
    if (!p.linear.g) return;
    const double decay = std::exp(number(p.linear.g, row, t, head, 0));
    if (d.linear.d_g) d.linear.d_g(row, t, head) += static_cast<T>(decay * s.dot(size, d_G, z_of(old)));
    s.scale(size, decay, d_G, d_G);
  }

  template <class T>
  void token(const DescentProblem<T>& p, std::size_t n, Size t, int head, double* x, bool outputs) {
    const Size row = p.linear.sequences[n].row;
    if (outputs && m.read_before) read(p, row, t, head, x);
    if (outputs || m.carries() || !m.lists_pairs()) see(p, n, t, head, x);
    if (m.gathered()) gather(p, row, t, head, z_of(x));
    if (!outputs && !m.carries()) return;  // nothing but sums moves
    sums.H = h_of(x), sums.F = f_of(x);
    const Token now = numbers_of(p, row, t, head);
    const Answer a = begin(x);
    if (m.decay == Decay::before) s.scale(size, factor(p, row, t, head), a.S, a.S);
    take_steps(now, a);
    if (outputs && !m.read_before) read(p, row, t, head, a.S);
  }
  template <class T>
  void read(const DescentProblem<T>& p, Size row, Size t, int head, const double* S) {
    const LinearProblem<T>& a = p.linear;
    load(a.q, row, t, head_of(a, p.query_heads, head), K, static_cast<double>(a.scale), reads.x[0]);
    net.read(1, reads, {.W = S}, o);
    for (Size j = 0; j < V; ++j) a.o(row, t, head, j) = static_cast<T>(o[j]);
  }

  template <class T>
  void read_back(const DescentProblem<T>& p, const DescentGradient<T>& d, Size row, Size t, int head, const double* S,
                 double* d_S) {
    if (!d.linear.d_o) return;
    const LinearProblem<T>& a = p.linear;
    const int own = head_of(a, p.query_heads, head);
    load(a.q, row, t, own, K, static_cast<double>(a.scale), reads.x[0]);
    neural::Mix<double> mix;
    mix.W = S;
    neural::MixCotangent<double> to;
    to.W = d_S;
    net.read(1, reads, mix, o);
    load(d.linear.d_o, row, t, head, V, 1.0, o);
    net.read_back(1, reads, mix, to, o, d_q);
    if (d.linear.d_q) add(d_q, static_cast<double>(a.scale), K, d.linear.d_q, row, t, own);
  }

  template <class T>
  void token_back(const DescentProblem<T>& p, const DescentGradient<T>& d, std::size_t n, Size t, int head,
                  const double* old, const double* now) {
    const Size row = p.linear.sequences[n].row;
    // The steps once more; the sums are there already.
    if (!m.sums) see(p, n, t, head, nullptr);
    sums.H = h_of(now), sums.F = f_of(now), sums.d_H = h_of(d_state), sums.d_F = f_of(d_state);
    Token x = numbers_of(p, row, t, head);
    const double a = factor(p, row, t, head);
    std::copy_n(m.carries() ? old : start, size, S_);
    if (m.has_momentum()) {
      if (m.carries()) std::copy_n(z_of(old), size, Z_);
      else std::fill_n(Z_, size, 0.0);
    }
    gathered.G = z_of(now), gathered.d_G = z_of(d_state);
    if (m.decay == Decay::before) s.scale(size, a, S_, S_);
    take_steps(x, {S_, m.has_momentum() ? Z_ : nullptr});

    double* const d_S = m.carries() ? d_state : d_S_;
    double* const d_Z = !m.has_momentum() ? nullptr : m.carries() ? z_of(d_state) : d_Z_;
    if (!m.carries()) std::fill_n(d_S, size, 0.0);
    if (d_Z && !m.carries()) std::fill_n(d_Z, size, 0.0);
    if (!m.read_before) read_back(p, d, row, t, head, S_, d_S);
    if (m.sums) steps.back(sums, x, d_S, d_Z);
    else if (m.gathered()) steps.back(gathered, x, d_S, d_Z);
    else steps.back(rows, x, d_S, d_Z);
    if (m.decay == Decay::before) {
      if (d.d_decay) d.d_decay(row, t, head) += static_cast<T>(a * s.dot(size, d_S, m.carries() ? old : start));
      s.scale(size, a, d_S, d_S);
    } else if (d.d_decay) {
      d.d_decay(row, t, head) += static_cast<T>(x.d_lam);
    }
    if (m.read_before) read_back(p, d, row, t, head, old, d_S);
    if (m.restarts) s.axpy(size, 1.0, d_S, d_start);
    if (d.d_momentum) d.d_momentum(row, t, head) += static_cast<T>(x.d_momentum);
    rates_back(d, row, t, head);
    if (m.gathered()) gather_back(p, d, row, t, head, old);
    if (m.sums) sums_back(p, d, row, t, head, old);
    else see_back(p, d, row, t, head);
    if (!m.sums && m.sees_newest()) pair_back(p, d, row, t, head, 0), rows.clear(1);
  }
  template <class T>
  void rates_back(const DescentGradient<T>& d, Size row, Size t, int head) {
    double sum = 0;
    for (Size j = 0; j < m.steps; ++j) {
      sum += steps.d_rates[j];
      if (m.each && d.d_rate) d.d_rate(row, t, head, j) += static_cast<T>(steps.d_rates[j]);
    }
    if (!m.list.empty() || m.each) return;
    if (!m.automatic) {
      if (d.d_rate) d.d_rate(row, t, head, 0) += static_cast<T>(sum);
    } else if (square > 0) {
      if (m.sums) sums.squares_back(-sum / (square * square));
      else rows.squares_back(-sum / (square * square));
    }
  }

  template <class T>
  void sums_back(const DescentProblem<T>& p, const DescentGradient<T>& d, Size row, Size t, int head,
                 const double* old) {
    const LinearProblem<T>& a = p.linear;
    const LinearGradient<T>& to = d.linear;
    const int own = head_of(a, a.key_heads, head);
    double *const d_h = h_of(d_state), *const d_f = f_of(d_state);
    const double beta = number(a.beta, row, t, head, 1);
    load(a.k, row, t, own, K, 1.0, k);
    load(a.v, row, t, head, V, 1.0, v);
    s.mat_vec(K, V, d_f, V, v, d_k);
    s.mat_vec(K, K, d_h, K, k, spare);
    if (to.d_beta) to.d_beta(row, t, head) += static_cast<T>(s.dot(K, k, d_k) + s.dot(K, k, spare));
    s.axpy(K, 1.0, spare, d_k);
    s.vec_mat(K, K, k, d_h, K, spare);
    s.axpy(K, 1.0, spare, d_k);
    if (to.d_k) add(d_k, beta, K, to.d_k, row, t, own);
    if (to.d_v) {
      s.vec_mat(K, V, k, d_f, V, d_v);
      add(d_v, beta, V, to.d_v, row, t, head);
    }
    if (!a.g) return;
    const double decay = std::exp(number(a.g, row, t, head, 0));
    if (to.d_g)
      to.d_g(row, t, head) += static_cast<T>(decay * (s.dot(of_f, d_f, f_of(old)) + s.dot(of_h, d_h, h_of(old))));
    s.scale(of_h, decay, d_h, d_h);
    s.scale(of_f, decay, d_f, d_f);
  }

  template <class T>
  void see_back(const DescentProblem<T>& p, const DescentGradient<T>& d, Size row, Size t, int head) {
    rows.d_bandwidth = 0;
    rows.see_back();
    if (m.near != DescentModel::Near::none && d.d_near_q)
      add(rows.d_query, 1.0, m.near_dim, d.d_near_q, row, t, head_of(p.linear, p.query_heads, head));
    if (d.d_bandwidth) d.d_bandwidth(head) += static_cast<T>(rows.d_bandwidth);
  }

  // The gradient of pair `at` of the rows goes to token t.
  template <class T>
  void pair_back(const DescentProblem<T>& p, const DescentGradient<T>& d, Size row, Size t, int head, Size at) {
    const LinearProblem<T>& a = p.linear;
    const LinearGradient<T>& to = d.linear;
    if (to.d_k) add(rows.d_x + at * K, 1.0, K, to.d_k, row, t, head_of(a, a.key_heads, head));
    if (to.d_v) add(rows.d_v + at * V, 1.0, V, to.d_v, row, t, head_of(a, p.value_heads, head));
    if (m.own_near && d.d_near_k)
      add(rows.d_c + at * m.near_dim, 1.0, m.near_dim, d.d_near_k, row, t, near_head(p, head));
    if (to.d_g && a.g) to.d_g(row, t, head) += static_cast<T>(rows.d_g[at]);
    if (to.d_beta && a.beta) to.d_beta(row, t, head) += static_cast<T>(rows.d_beta[at]);
  }
  template <class T>
  void pairs_back(const DescentProblem<T>& p, const DescentGradient<T>& d, std::size_t n, int head) {
    const LinearProblem<T>& a = p.linear;
    const Sequence& sequence = a.sequences[n];
    const Size row = static_cast<Size>(n);
    const int own = head_of(a, a.key_heads, head);
    for (Size i = 0; i < past; ++i) {
      if (d.d_past.k) add(rows.d_x + i * K, 1.0, K, d.d_past.k, row, i, own);
      if (d.d_past.v) add(rows.d_v + i * V, 1.0, V, d.d_past.v, row, i, head_of(a, p.value_heads, head));
      if (m.own_near && d.d_past.near)
        add(rows.d_c + i * m.near_dim, 1.0, m.near_dim, d.d_past.near, row, i, near_head(p, head));
      if (d.d_past.g) d.d_past.g(row, i, head) += static_cast<T>(rows.d_g[i]);
      if (d.d_past.beta) d.d_past.beta(row, i, head) += static_cast<T>(rows.d_beta[i]);
    }
    for (Size t = sequence.begin; t < sequence.end; ++t)
      pair_back(p, d, sequence.row, t, head, past + t - sequence.begin);
  }

  const Simd<double>& s;
  const DescentModel& m;
  Size K, V;
  neural::Network<double> net;
  Size size, of_s, of_z, of_h, of_f;
  Steps steps;
  Sums sums;
  Gathered gathered;
  PairRows rows;
  Replay<double, 1> replay;
  neural::Rows<double> reads;
  Size past = 0;      // of the sequence at work
  double square = 0;  // of the token at work
  double *state, *S_, *Z_, *start, *k, *kb, *v, *o, *ones, *zeros;
  double *d_state = nullptr, *d_S_ = nullptr, *d_Z_ = nullptr, *d_start = nullptr, *d_q = nullptr, *d_k = nullptr,
         *d_v = nullptr, *spare = nullptr;
};

template <class T>
Status check(const DescentProblem<T>& p, bool reads, Form form, bool backward, Workspace work, Size* pairs) {
  const LinearProblem<T>& a = p.linear;
  const DescentModel& m = *p.model;
  if (form != Form::best && form != Form::step && form != Form::recurrent) return Status::not_supported;
  const Size longest = longest_of(a.sequences);
  if (longest < 0 || a.heads < 1 || a.key_heads < 1 || a.heads % a.key_heads != 0 || p.query_heads < 1 ||
      a.heads % p.query_heads != 0 || p.value_heads < 1 || a.heads % p.value_heads != 0 || m.steps < 1 ||
      (m.restarts && m.read_before) || (m.sums && (!m.linear || m.window != 0)) || (m.automatic && !m.linear))
    return Status::bad_shape;
  if (longest > 0 && (!a.k || !a.v || (reads && !a.q))) return Status::missing_input;
  if (longest > 0 && ((m.momentum && !p.momentum) || (m.decay != Decay::none && !p.decay)))
    return Status::missing_input;
  const bool near = m.near != DescentModel::Near::none;
  if (near && (m.sums || m.near_dim < 1 || (!m.own_near && m.near_dim != m.network.key_dim)))
    return Status::bad_shape;
  if (longest > 0 && near && (!p.near_q || (m.own_near && !p.near_k))) return Status::missing_input;
  if (m.near == DescentModel::Near::gaussian && !p.bandwidth) return Status::missing_input;
  if (!a.sequences.empty() && m.sums && (!p.state.h || !p.state.f)) return Status::missing_input;
  const NeuralLayout layout(m.network);
  for (int i = 0; !a.sequences.empty() && i < layout.count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (!p.state.weights[at] && !(m.restarts && m.linear)) return Status::missing_input;
    if (!p.state.z[at] && ((m.carries() && m.has_momentum()) || m.gathered())) return Status::missing_input;
  }
  *pairs = longest;
  for (std::size_t n = 0; m.lists_pairs() && p.past_count && n < a.sequences.size(); ++n) {
    const auto kept = static_cast<Size>(p.past_count[n]);
    if (kept < 0 || (kept > 0 && (!p.past.k || !p.past.v || kept > p.past.k.extent[1]))) return Status::bad_shape;
    *pairs = std::max(*pairs, kept + a.sequences[n].end - a.sequences[n].begin);
  }
  return work.data && work.bytes >= workspace_bytes(m, *pairs, backward) ? Status::ok : Status::small_workspace;
}

template <class T, class Each>
void each_head(const DescentProblem<T>& p, Each&& each) {
  for (std::size_t n = 0; n < p.linear.sequences.size(); ++n)
    for (int h = 0; h < p.linear.heads; ++h) each(n, h);
}

}  // namespace

std::size_t workspace_bytes(const DescentModel& model, std::ptrdiff_t pairs, bool backward) noexcept {
  static constexpr Simd<double> none{};
  Arena arena;
  Head(none, model, pairs, backward, arena);
  return arena.bytes();
}

template <class T>
Status forward(const DescentProblem<T>& p, Form form, const Simd<double>& s, Workspace work) noexcept {
  Size pairs = 0;
  if (const Status bad = check(p, static_cast<bool>(p.linear.o), form, false, work, &pairs); bad != Status::ok)
    return bad;
  const FlushDenormals flush;
  Arena arena(work);
  Head run(s, *p.model, pairs, false, arena);
  each_head(p, [&](std::size_t n, int h) { run.forward(p, n, h); });
  return Status::ok;
}

template <class T>
Status backward(const DescentProblem<T>& p, const DescentGradient<T>& d, Form form, const Simd<double>& s,
                Workspace work) noexcept {
  Size pairs = 0;
  if (const Status bad = check(p, static_cast<bool>(d.linear.d_o), form, true, work, &pairs); bad != Status::ok)
    return bad;
  const FlushDenormals flush;
  Arena arena(work);
  Head run(s, *p.model, pairs, true, arena);
  each_head(p, [&](std::size_t n, int h) { run.backward(p, d, n, h); });
  return Status::ok;
}

#define TTR_INSTANTIATE(T)                                                                                 \
  template Status forward(const DescentProblem<T>&, Form, const Simd<double>&, Workspace) noexcept;        \
  template Status backward(const DescentProblem<T>&, const DescentGradient<T>&, Form, const Simd<double>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::descent
