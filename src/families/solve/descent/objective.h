// The objectives of descent.h, and the steps that are taken on either: an objective has
//
//   gradient(S, G)          G = dL/dS at S
//   reverse(S, d_G, d_S)    d_S += the reverse at S for the cotangent d_G; what it says about pairs is added up
//   squares()               sum_i w_i |k_i|^2 ;  squares_back(d) its reverse
//
// Reverse of a step, last first, with U = Z_{j+1} the update and c = 1 - lam for shrink, else 1:
//
//   dU = dS + dZ ;  dm_j = dU.Z_j ;  dZ = m_j dU ;  dstep_j = -dU.G ;  dG = -step_j dU
//   dlam = -dS.S_j (shrink) , dG.P (leak) ;  dS <- c dS + dP ,  dP = lam dG + (reverse of the gradient)
//   nesterov: dm_j += dP.Z_j ;  dZ += m_j dP
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "families/common/scratch.h"
#include "families/network/neural/network.h"
#include "families/solve/descent/descent.h"
#include "simd/simd.h"

namespace ttr::families::descent {

using Size = std::ptrdiff_t;

/// G = H S - F.
class Sums {
 public:
  Sums(const Simd<double>& simd, Size key_dim, Size value_dim) : s(simd), K(key_dim), V(value_dim) {}

  /// Of the token at work, and their cotangents, which are added to.
  const double *H = nullptr, *F = nullptr;
  double *d_H = nullptr, *d_F = nullptr;

  void gradient(const double* S, double* G) {
    std::copy_n(F, K * V, G);
    s.gemm_nn(K, V, K, 1.0, H, K, S, V, -1.0, G, V);
  }
  void reverse(const double* S, const double* d_G, double* d_S) {
    s.gemm_tn(K, V, K, 1.0, H, K, d_G, V, 1.0, d_S, V);
    s.gemm_nt(K, K, V, 1.0, d_G, V, S, V, 1.0, d_H, K);
    s.axpy(K * V, -1.0, d_G, d_F);
  }
  double squares() const {
    double trace = 0;
    for (Size i = 0; i < K; ++i) trace += H[i * (K + 1)];
    return trace;
  }
  void squares_back(double d) {
    for (Size i = 0; i < K; ++i) d_H[i * (K + 1)] += d;
  }

 private:
  const Simd<double>& s;
  Size K, V;
};

/// A gradient that is known: it was taken at the weights that the steps start from.
class Gathered {
 public:
  Gathered(const Simd<double>& simd, Size numbers) : s(simd), size(numbers) {}

  const double* G = nullptr;
  double* d_G = nullptr;  // added to

  void gradient(const double*, double* to) { std::copy_n(G, size, to); }
  void reverse(const double*, const double* d, double*) { s.axpy(size, 1.0, d, d_G); }

 private:
  const Simd<double>& s;
  Size size;
};

/// The pairs of one head as rows: those of the past, then those of the call.
class PairRows {
 public:
  static constexpr Size tile = 64;

  PairRows(const Simd<double>& simd, const DescentModel& model, neural::Network<double>& network, Size pairs,
           bool backward, Arena& arena)
      : s(simd), m(model), net(network), K(model.network.key_dim), V(model.network.value_dim) {
    const auto take = [&](Size n) { return arena.take<double>(n); };
    x = take(pairs * K), v = take(pairs * V), beta = take(pairs), g = take(pairs);
    w = take(pairs), fade = take(pairs), threshold = take(tile);
    keys = net.take_keys(arena);
    N = m.near_dim, query = take(N), c = m.own_near ? take(pairs * N) : x;
    if (!backward) return;
    d_x = take(pairs * K), d_v = take(pairs * V), d_beta = take(pairs), d_g = take(pairs), d_w = take(pairs);
    d_query = take(N), d_c = m.own_near ? take(pairs * N) : d_x;
    d_threshold = take(tile), minus = take(net.layout().size);
    cotangents = net.take_cotangents(arena);
  }
  /// Pairs of a head that are there at once, and rows of them that go through the network together.
  static Size kept(const DescentModel& m, Size pairs) { return m.sums ? 0 : m.sees_newest() ? 1 : pairs; }
  static Size rows(const DescentModel& m, Size pairs) { return std::clamp<Size>(kept(m, pairs), 1, tile); }

  double *x, *v, *beta, *g, *c;  // [pairs, ..]; c may be x
  double *d_x = nullptr, *d_v = nullptr, *d_beta = nullptr, *d_g = nullptr, *d_c = nullptr;
  // Of the token at work: r, and the bandwidth; their cotangents are set by see_back, and added to.
  double *query, bandwidth = 1, *d_query = nullptr, d_bandwidth = 0;

  void clear(Size pairs) {
    std::fill_n(d_x, pairs * K, 0.0), std::fill_n(d_v, pairs * V, 0.0);
    std::fill_n(d_beta, pairs, 0.0), std::fill_n(d_g, pairs, 0.0);
    if (m.own_near) std::fill_n(d_c, pairs * N, 0.0);
  }

  /// The pairs that the token of pair `newest` sees, and their weights.
  void see(Size newest) {
    first = m.window > 0 ? std::max<Size>(0, newest + 1 - m.window) : 0, count = newest + 1 - first;
    double sum = 0;
    for (Size i = count; i-- > 0; sum += g[first + i]) fade[i] = sum + nearness(first + i);
    s.exp(count, fade, fade);
    s.mul(count, fade, beta + first, w);
    if (d_w) std::fill_n(d_w, count, 0.0);
  }
  /// From the cotangents of the weights to those of importances, gates (pair i has every gate behind it), c and r.
  void see_back() {
    double sum = 0;
    std::fill_n(d_query, N, 0.0);
    for (Size i = 0; i < count; ++i) {
      d_beta[first + i] += d_w[i] * fade[i];
      d_g[first + i] += sum;
      sum += d_w[i] * w[i];
      nearness_back(first + i, d_w[i] * w[i]);
    }
  }

  void gradient(const double* S, double* G) {
    for (Size i = 0; i < count; i += tile) {
      const Size n = learn(i, S);
      net.gather(n, keys, -1.0, nullptr, i > 0 ? 1.0 : 0.0, G);
    }
  }
  void reverse(const double* S, const double* d_G, double* d_S) {
    s.scale(net.layout().size, -1.0, d_G, minus);
    net.turn(S);
    for (Size i = 0; i < count; i += tile) {
      const Size n = learn(i, S), at = first + i;
      for (int j = 0; j < net.layout().matrices; ++j) {
        const NeuralLayout::Part& part = net.layout().part[static_cast<std::size_t>(net.layout().matrix(j))];
        std::fill_n(cotangents.update[static_cast<std::size_t>(j)], n * part.out, 0.0);
        if (j < m.network.depth) std::fill_n(cotangents.x[static_cast<std::size_t>(j)], n * part.in, 0.0);
      }
      net.gather_back(n, keys, nullptr, minus, cotangents, nullptr);
      net.weigh_back(n, keys, w + i, cotangents, d_w + i);
      net.learn_back(n, keys, S, threshold, cotangents, d_S, d_v + at * V, d_threshold);
      s.axpy(n * K, 1.0, cotangents.x[0], d_x + at * K);
    }
    net.turn(nullptr);
  }
  double squares() const {
    double sum = 0;
    for (Size i = 0; i < count; ++i) sum += w[i] * s.dot(K, x + (first + i) * K, x + (first + i) * K);
    return sum;
  }
  void squares_back(double d) {
    for (Size i = 0; i < count; ++i) {
      const double* const k = x + (first + i) * K;
      d_w[i] += d * s.dot(K, k, k);
      s.axpy(K, 2 * d * w[i], k, d_x + (first + i) * K);
    }
  }

 private:
  // The log of what a pair's distance from r makes of its weight.
  double nearness(Size i) const {
    if (m.near == DescentModel::Near::exponential) return m.near_scale * s.dot(N, c + i * N, query);
    return m.near == DescentModel::Near::gaussian ? -distance(i) / bandwidth : 0;
  }
  double distance(Size i) const {
    double sum = 0;
    for (Size a = 0; a < N; ++a) sum += (c[i * N + a] - query[a]) * (c[i * N + a] - query[a]);
    return sum;
  }
  void nearness_back(Size i, double d) {
    if (m.near == DescentModel::Near::exponential) {
      s.axpy(N, m.near_scale * d, query, d_c + i * N);
      s.axpy(N, m.near_scale * d, c + i * N, d_query);
    } else if (m.near == DescentModel::Near::gaussian) {
      for (Size a = 0; a < N; ++a) {
        const double e = 2 * d / bandwidth * (c[i * N + a] - query[a]);
        d_c[i * N + a] -= e, d_query[a] += e;
      }
      d_bandwidth += d * distance(i) / (bandwidth * bandwidth);
    }
  }
  Size learn(Size i, const double* S) {
    const Size n = std::min(tile, count - i);
    std::fill_n(threshold, n, m.threshold);
    keys.x[0] = x + (first + i) * K;
    net.learn(n, keys, S, v + (first + i) * V, threshold, w + i);
    return n;
  }

  const Simd<double>& s;
  const DescentModel& m;
  neural::Network<double>& net;
  Size K, V, N = 0, first = 0, count = 0;
  neural::KeyRows<double> keys;
  neural::KeyCotangents<double> cotangents;
  double *w, *fade, *threshold;
  double *d_w = nullptr, *d_threshold = nullptr, *minus = nullptr;
};

/// The numbers of one token.
struct Token {
  double momentum = 0, lam = 0;  // lam: of leak and shrink
  double d_momentum = 0, d_lam = 0;
};

/// The steps of one token, and their reverse.
class Steps {
 public:
  Steps(const Simd<double>& simd, const DescentModel& model, Size numbers, bool backward, Arena& arena)
      : s(simd), m(model), size(numbers), keeps(backward) {
    rates = arena.take<double>(m.steps), d_rates = arena.take<double>(backward ? m.steps : 0);
    const Size kept = backward ? m.steps : 1;
    g = arena.take<double>(kept * size), point = arena.take<double>(size);
    if (!backward) return;
    starts = arena.take<double>(kept * size), d_g = arena.take<double>(size), d_point = arena.take<double>(size);
    if (m.has_momentum()) zs = arena.take<double>(kept * size);
  }

  double *rates, *d_rates;  // of the token

  /// S and Z move; Z may be null without momentum.
  template <class Objective>
  void run(Objective& objective, const Token& t, double* S, double* Z) {
    for (Size j = 0; j < m.steps; ++j) {
      double* const G = g + (keeps ? j * size : 0);
      if (keeps) std::copy_n(S, size, starts + j * size);
      if (keeps && m.has_momentum()) std::copy_n(Z, size, zs + j * size);
      const double momentum = momentum_of(t, j);
      const double* const P = point_of(S, Z, momentum);
      objective.gradient(P, G);
      if (m.decay == DescentModel::Decay::leak) s.axpy(size, t.lam, P, G);
      if (m.decay == DescentModel::Decay::shrink) s.scale(size, 1 - t.lam, S, S);
      if (m.has_momentum()) {
        s.scale(size, momentum, Z, Z);
        s.axpy(size, -rates[j], G, Z);
        s.axpy(size, 1.0, Z, S);
      } else {
        s.axpy(size, -rates[j], G, S);
      }
    }
  }

  /// Of the last run: cotangents of S and Z after the steps become those before them; d_rates is set.
  template <class Objective>
  void back(Objective& objective, Token& t, double* d_S, double* d_Z) {
    for (Size j = m.steps; j-- > 0;) {
      const double *const S = starts + j * size, *const Z = m.has_momentum() ? zs + j * size : nullptr;
      const double *const G = g + j * size, momentum = momentum_of(t, j);
      double d_momentum = 0;
      const double* d_U = d_S;
      if (m.has_momentum()) {
        s.axpy(size, 1.0, d_S, d_Z);
        d_U = d_Z;
        d_momentum = s.dot(size, d_Z, Z);
      }
      d_rates[j] = -s.dot(size, d_U, G);
      s.scale(size, -rates[j], d_U, d_g);
      if (m.has_momentum()) s.scale(size, momentum, d_Z, d_Z);
      const double* const P = point_of(S, Z, momentum);
      std::fill_n(d_point, size, 0.0);
      if (m.decay == DescentModel::Decay::leak) {
        t.d_lam += s.dot(size, d_g, P);
        s.axpy(size, t.lam, d_g, d_point);
      }
      objective.reverse(P, d_g, d_point);
      if (m.decay == DescentModel::Decay::shrink) {
        t.d_lam -= s.dot(size, d_S, S);
        s.scale(size, 1 - t.lam, d_S, d_S);
      }
      s.axpy(size, 1.0, d_point, d_S);
      if (m.nesterov) {
        d_momentum += s.dot(size, d_point, Z);
        s.axpy(size, momentum, d_point, d_Z);
      }
      if (!m.momentum_auto) t.d_momentum += d_momentum;
    }
  }

 private:
  double momentum_of(const Token& t, Size j) const {
    return m.momentum_auto ? static_cast<double>(j) / static_cast<double>(j + 3) : t.momentum;
  }
  const double* point_of(const double* S, const double* Z, double momentum) {
    if (!m.nesterov) return S;
    std::copy_n(S, size, point);
    s.axpy(size, momentum, Z, point);
    return point;
  }

  const Simd<double>& s;
  const DescentModel& m;
  Size size;
  bool keeps;
  double *g, *point, *starts = nullptr, *zs = nullptr, *d_g = nullptr, *d_point = nullptr;
};

}  // namespace ttr::families::descent
