// A neural memory by its definition: one token at a time, plain loops in double, and the case that feeds it and the
// kernel to the harness.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "families/network/neural/neural.h"
#include "families_harness.h"

namespace ttr_families_test {

using namespace ttr::families;
using namespace ttr::families::neural;

using Parameters = std::vector<Doubles>;  // in the order of NeuralLayout

struct NeuralReference {
  const NeuralModel& m;
  NeuralLayout layout{m};
  Doubles norm_weight = {}, norm_bias = {};

  double act(double x, int derivative) const {
    const double e = 1 / (1 + std::exp(-x)), t = std::tanh(x);
    const double c = std::sqrt(2 / std::acos(-1.0)), u = std::tanh(c * (x + 0.044715 * x * x * x));
    switch (m.activation) {
      case Activation::gelu:
        return derivative
                   ? 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0))
                   : 0.5 * x * std::erfc(-x / std::sqrt(2.0));
      case Activation::gelu_tanh:
        return derivative ? 0.5 * (1 + u) + 0.5 * x * (1 - u * u) * c * (1 + 3 * 0.044715 * x * x)
                          : 0.5 * x * (1 + u);
      case Activation::relu:
        return x > 0 ? (derivative ? 1 : x) : 0;
      case Activation::silu:
        return derivative ? e + x * e * (1 - e) : x * e;
      case Activation::tanh:
        return derivative ? 1 - t * t : t;
    }
    return 0;
  }
  Doubles through(const Parameters& w, int j, const Doubles& x) const {
    const NeuralLayout::Part& p = layout.part[layout.matrix(j)];
    Doubles y(p.out);
    for (int b = 0; b < p.out; ++b) {
      if (m.bias) y[b] = w[layout.matrix(j) + 1][b];
      for (int a = 0; a < p.in; ++a) y[b] += x[a] * w[layout.matrix(j)][a * p.out + b];
    }
    return y;
  }
  struct Trace {
    std::vector<Doubles> x, y;
    Doubles linear, normed, scale;
    double sd = 1;
  };
  Doubles predict(const Parameters& w, const Doubles& x, bool reading, Trace& t) const {
    Doubles z = x;
    for (int l = 0; l < m.depth; ++l) {
      t.x.push_back(z);
      t.y.push_back(z = through(w, l, z));
      if (l + 1 == m.depth) break;
      if (m.gated) t.linear = through(w, m.depth, x);
      for (std::size_t i = 0; i < z.size(); ++i) z[i] = act(z[i], 0) * (m.gated ? t.linear[i] : 1);
    }
    const Doubles sum = z;
    const int V = m.value_dim;
    if (m.norm != Norm::none) {
      double mean = 0, var = 0;
      for (const double e : z) mean += e / V;
      for (const double e : z) var += (e - mean) * (e - mean) / V;
      t.sd = std::sqrt(var + m.norm_eps);
      for (int j = 0; j < V; ++j) {
        t.normed.push_back((z[j] - mean) / t.sd);
        t.scale.push_back(m.norm == Norm::learned ? 1 + w.back()[j] : norm_weight[j]);
        z[j] = t.normed[j] * t.scale[j] + norm_bias[j];
      }
    }
    for (int j = 0; m.skip != Skip::none && j < V; ++j) z[j] += reading && m.skip == Skip::sum ? sum[j] : x[j];
    return z;
  }
  Doubles read(const Parameters& w, const Doubles& q) const {
    Trace t;
    return predict(w, q, true, t);
  }
  /// Gradient of one pair's loss.
  Parameters gradient(const Parameters& w, const Doubles& k, const Doubles& v, double c) const {
    Trace t;
    const int V = m.value_dim;
    Doubles e = predict(w, k, false, t);
    double square = 0;
    for (int j = 0; j < V; ++j) e[j] -= v[j], square += e[j] * e[j];
    for (int j = 0; j < V; ++j) {
      const double x = e[j], sign = x > 0 ? 1 : x < 0 ? -1 : 0;
      switch (m.loss) {
        case Loss::squared:
          break;
        case Loss::dot:
          e[j] = -v[j];
          break;
        case Loss::huber:
          if (square > c * c) e[j] = c * x / std::sqrt(square);
          break;
        case Loss::huber_coordinate:
          if (std::abs(x) > c) e[j] = c * sign;
          break;
        case Loss::huber_sign:
          if (square > c * c) e[j] = c * sign;
          break;
        case Loss::power:
          e[j] = m.power * sign * std::pow(std::abs(x), m.power - 1);
          break;
      }
      e[j] *= m.gradient_scale;
    }
    Parameters g;
    for (const Doubles& x : w) g.emplace_back(x.size());
    if (m.norm != Norm::none) {
      double mean = 0, along = 0;
      for (int j = 0; j < V; ++j) {
        if (m.norm == Norm::learned) g.back()[j] = e[j] * t.normed[j];
        e[j] *= t.scale[j];
        mean += e[j] / V, along += e[j] * t.normed[j] / V;
      }
      for (int j = 0; j < V; ++j) e[j] = (e[j] - mean - t.normed[j] * along) / t.sd;
    }
    const auto outer = [&](int j, const Doubles& x, const Doubles& d) {
      for (std::size_t a = 0; a < x.size(); ++a)
        for (std::size_t b = 0; b < d.size(); ++b) g[layout.matrix(j)][a * d.size() + b] += x[a] * d[b];
      for (std::size_t b = 0; m.bias && b < d.size(); ++b) g[layout.matrix(j) + 1][b] += d[b];
    };
    for (int l = m.depth - 1; l >= 0; --l) {
      outer(l, t.x[l], e);
      if (l == 0) break;
      Doubles d(t.x[l].size()), linear(t.x[l].size());
      for (std::size_t a = 0; a < d.size(); ++a) {
        for (std::size_t b = 0; b < e.size(); ++b) d[a] += w[layout.matrix(l)][a * e.size() + b] * e[b];
        linear[a] = d[a] * act(t.y[l - 1][a], 0);
        d[a] *= act(t.y[l - 1][a], 1) * (m.gated ? t.linear[a] : 1);
      }
      if (m.gated) outer(m.depth, k, linear);
      e = d;
    }
    return g;
  }
  /// Five Newton-Schulz steps on G [r, c], written as a polynomial in G G'.
  Doubles orthogonal(const Doubles& g, int r, int c) const {
    if (r > c) return turned(orthogonal(turned(g, r, c), c, r), c, r);
    const double lact[5][3] = {{4.0848, -6.8946, 2.9270},
                               {3.9505, -6.3029, 2.6377},
                               {3.7418, -5.5913, 2.3037},
                               {2.8769, -3.1427, 1.2046},
                               {2.8366, -3.0525, 1.2012}};
    double norm = 0;
    for (const double e : g) norm += e * e;
    Doubles x = g;
    for (double& e : x) e /= std::sqrt(norm) + 1e-7;
    for (int i = 0; i < 5; ++i) {
      const double p[3] = {m.orthogonalise == Orthogonalise::fixed ? 3.4445 : lact[i][0],
                           m.orthogonalise == Orthogonalise::fixed ? -4.7750 : lact[i][1],
                           m.orthogonalise == Orthogonalise::fixed ? 2.0315 : lact[i][2]};
      Doubles a(r * r), once(r * c), twice(r * c);
      for (int u = 0; u < r; ++u)
        for (int v = 0; v < r; ++v)
          for (int k = 0; k < c; ++k) a[u * r + v] += x[u * c + k] * x[v * c + k];
      for (int u = 0; u < r; ++u)
        for (int k = 0; k < c; ++k)
          for (int v = 0; v < r; ++v) once[u * c + k] += a[u * r + v] * x[v * c + k];
      for (int u = 0; u < r; ++u)
        for (int k = 0; k < c; ++k)
          for (int v = 0; v < r; ++v) twice[u * c + k] += a[u * r + v] * once[v * c + k];
      for (std::size_t e = 0; e < x.size(); ++e) x[e] = p[0] * x[e] + p[1] * once[e] + p[2] * twice[e];
    }
    return x;
  }
  static Doubles turned(const Doubles& g, int r, int c) {
    Doubles t(g.size());
    for (int a = 0; a < r; ++a)
      for (int b = 0; b < c; ++b) t[b * r + a] = g[a * c + b];
    return t;
  }
  Parameters in_use(Parameters w) const {
    for (std::size_t i = 0; m.mirror != neural::Mirror::none && i < w.size(); ++i) {
      double sum = 0;
      for (const double e : w[i]) sum += std::exp(e);
      if (layout.part[i].matrix)
        for (double& e : w[i])
          e = m.radius * (m.mirror == neural::Mirror::softmax ? std::exp(e) / sum
                          : m.mirror == neural::Mirror::exp   ? std::exp(e)
                                                              : std::sinh(e));
    }
    for (Doubles& x : w) {
      if (m.q_norm == 0) break;
      double sum = 0;
      for (const double e : x) sum += std::pow(std::abs(e), m.q_norm);
      const double divisor = std::pow(std::pow(sum, 1 / m.q_norm), m.q_norm - 2);
      for (double& e : x) e /= divisor;
    }
    return w;
  }
  double factor(double decay) const {
    return m.decay == Decay::none ? 1 : m.decay == Decay::log ? std::exp(decay) : 1 - decay;
  }
  /// norms: [H-seq_head rows] of every matrix.
  void step(Parameters& w, Parameters& z, const Parameters& a, const Parameters& u, double decay, double momentum,
            double gain, const Parameters& norms) const {
    for (std::size_t i = 0; i < w.size(); ++i) {
      const NeuralLayout::Part& p = layout.part[i];
      if (m.block) {
        for (std::size_t e = 0; e < w[i].size(); ++e) z[i][e] += u[i][e], w[i][e] = a[i][e] + gain * z[i][e];
        continue;
      }
      Doubles move = u[i];
      for (std::size_t e = 0; m.momentum && e < move.size(); ++e) move[e] = z[i][e] = momentum * z[i][e] + u[i][e];
      if (p.matrix && m.orthogonalise != Orthogonalise::none) move = orthogonal(move, p.in, p.out);
      for (std::size_t e = 0; e < move.size(); ++e) w[i][e] = factor(decay) * w[i][e] + move[e];
      for (int b = 0; p.matrix && m.row_norm && b < p.out; ++b) {
        double square = 0;
        for (int r = 0; r < p.in; ++r) square += w[i][r * p.out + b] * w[i][r * p.out + b];
        for (int r = 0; r < p.in; ++r) w[i][r * p.out + b] *= norms[i][b] / (std::sqrt(square) + 1e-5);
      }
    }
  }
};

struct Neural : FamilyBase {
  NeuralModel m;
  int H = 2, G = 1;
  double scale = 0.8, size = 0.5;  // of the initial weights
  bool rate = true, gain = false, position_gain = false, weight = true, plain_norm = false;
  std::int64_t seen = 0;
  std::string label = "neural";

  Neural() { m.key_dim = 3, m.value_dim = 4; }
  bool huber() const {
    return m.loss == Loss::huber || m.loss == Loss::huber_coordinate || m.loss == Loss::huber_sign;
  }
  bool start() const { return m.batch != 1 || m.block; }
  bool z() const { return m.momentum || m.block; }
  bool pending() const { return m.step_every > 1 || m.lazy; }

  std::string name() const {
    return label + "-T" + std::to_string(T) + "-K" + std::to_string(m.key_dim) + "-V" + std::to_string(m.value_dim) +
           "-b" + std::to_string(m.batch) + "-every" + std::to_string(m.step_every) + "-seen" + std::to_string(seen);
  }
  std::vector<std::int64_t> counts() const { return std::vector<std::int64_t>(N(), seen); }
  std::vector<Spec> specs() const {
    const Size K = m.key_dim, V = m.value_dim;
    std::vector<Spec> s = {{"q", Role::input, {B, T, G, K}},
                           {"k", Role::input, {B, T, G, K}},
                           {"v", Role::input, {B, T, H, V}},
                           {"o", Role::output, {B, T, H, V}}};
    if (rate) s.push_back({"rate", Role::input, {B, T, H, m.rates}, 0.3, 0.1});
    if (m.momentum) s.push_back({"momentum", Role::input, {B, T, H}, 0.5, 0.2});
    if (m.decay != Decay::none)
      s.push_back({"decay", Role::input, {B, T, H}, m.decay == Decay::log ? -0.2 : 0.2, 0.1});
    if (gain) s.push_back({"gain", Role::input, {B, T, H}, 0.8, 0.2});
    if (position_gain) s.push_back({"position_gain", Role::input, {H, m.batch}, 0.8, 0.2});
    if (huber()) s.push_back({"threshold", Role::input, {B, T, H}, 1.2, 0.1});
    if (m.window > 1 && weight) s.push_back({"weight", Role::input, {B, T, H}, 0.6, 0.2});
    if (m.norm != Norm::none && !plain_norm) {
      if (m.norm == Norm::fixed) s.push_back({"norm_weight", Role::input, {H, V}, 1, 0.3});
      s.push_back({"norm_bias", Role::input, {H, V}, 0, 0.3});
    }
    const NeuralLayout layout(m);
    for (int i = 0; i < layout.count; ++i) {
      const std::string n = std::to_string(i);
      const Size in = layout.part[i].in, out = layout.part[i].out;
      s.push_back({"W" + n, Role::state, {N(), H, in, out}, 0, size});
      if (start()) s.push_back({"A" + n, Role::state, {N(), H, in, out}, 0, size});
      if (z()) s.push_back({"Z" + n, Role::state, {N(), H, in, out}, 0, 0.3});
      if (pending()) s.push_back({"P" + n, Role::state, {N(), H, in, out}, 0, 0.3});
      if (m.row_norm && layout.part[i].matrix) s.push_back({"norm" + n, Role::input, {N() * H * out}, 1, 0.1});
    }
    if (pending()) s.push_back({"sums", Role::state, {N(), H, 2}, 0.3, 0.1});
    if (m.window > 1) {
      s.push_back({"hk", Role::state, {N(), m.window - 1, G, K}});
      s.push_back({"hv", Role::state, {N(), m.window - 1, H, V}});
      if (weight) s.push_back({"hw", Role::state, {N(), m.window - 1, H}, 0.6, 0.2});
    }
    return s;
  }
  Values draw_values() const { return draw(specs(), seed); }

  Values reference(const Values& in) const {
    Values out = {{"o", Doubles(B * T * H * m.value_dim)}};
    for (const Spec& s : specs())
      if (s.role == Role::state) out[s.name] = in.at(s.name);
    const int K = m.key_dim, V = m.value_dim, w1 = m.window - 1;
    for (Size n = 0; n < N(); ++n)
      for (int h = 0; h < H; ++h) one(in, out, n, h);
    const auto all = sequences();
    for (Size n = 0; n < N() && m.window > 1; ++n) {
      const Sequence q = all[n];
      const auto keep = [&](const std::string& to, const std::string& from, Size width) {
        for (Size j = 0; j < w1; ++j)
          for (Size c = 0; c < width; ++c) {
            const Size t = q.end - w1 + j;
            out[to][(n * w1 + j) * width + c] = t >= q.begin ? in.at(from)[(q.row * T + t) * width + c]
                                                             : in.at(to)[(n * w1 + j + q.end - q.begin) * width + c];
          }
      };
      keep("hk", "k", Size{G} * K), keep("hv", "v", Size{H} * V);
      if (weight) keep("hw", "weight", H);
    }
    return out;
  }
  void one(const Values& in, Values& out, Size n, int h) const {
    NeuralReference net{m};
    const int K = m.key_dim, V = m.value_dim, shared = h / (H / G);
    const Sequence q = sequences()[n];
    for (int j = 0; j < V; ++j) {
      net.norm_weight.push_back(in.count("norm_weight") ? in.at("norm_weight")[h * V + j] : 1);
      net.norm_bias.push_back(in.count("norm_bias") ? in.at("norm_bias")[h * V + j] : 0);
    }
    const int parts = net.layout.count;
    const auto move = [&](const char* letter, Parameters& p, bool store) {
      if (!store) p.resize(parts);
      for (int i = 0; i < parts; ++i) {
        const std::string key = letter + std::to_string(i);
        const Size count = Size{net.layout.part[i].in} * net.layout.part[i].out;
        if (!out.count(key)) {
          if (!store) p[i] = Doubles(count);
        } else if (store) {
          std::copy(p[i].begin(), p[i].end(), out[key].begin() + (n * H + h) * count);
        } else {
          p[i].assign(out[key].begin() + (n * H + h) * count, out[key].begin() + (n * H + h + 1) * count);
        }
      }
    };
    Parameters W, A, Z, P, norms(parts);
    move("W", W, false), move("A", A, false), move("Z", Z, false), move("P", P, false);
    for (int i = 0; i < parts; ++i)
      if (in.count("norm" + std::to_string(i))) {
        const Doubles& all = in.at("norm" + std::to_string(i));
        const int width = net.layout.part[i].out;
        norms[i].assign(all.begin() + (n * H + h) * width, all.begin() + (n * H + h + 1) * width);
      }
    double sums[2] = {0, 0};
    if (pending())
      for (int i = 0; i < 2; ++i) sums[i] = out["sums"][(n * H + h) * 2 + i];
    const auto clear = [](Parameters& p) {
      for (Doubles& x : p) std::fill(x.begin(), x.end(), 0.0);
    };
    std::int64_t count = seen;
    for (Size t = q.begin; t < q.end; ++t, ++count) {
      const Size token = (q.row * T + t) * H + h;
      const auto gate = [&](const char* key, double otherwise) {
        return in.count(key) ? in.at(key)[token] : otherwise;
      };
      const auto take = [&](double own_gain) {
        net.step(W, Z, A, P, sums[1] / m.step_every, sums[0] / m.step_every, own_gain, norms);
        clear(P), sums[0] = sums[1] = 0;
      };
      if (m.lazy && count > 0 && count % m.step_every == 0) take(1);
      if (m.batch == 0 ? count == 0 : count % m.batch == 0) {
        A = W;
        if (m.block) clear(Z);
      }
      const auto row = [&](const char* key, Size at, Size width) {
        return Doubles(in.at(key).begin() + at * width, in.at(key).begin() + (at + 1) * width);
      };
      Doubles query = row("q", (q.row * T + t) * G + shared, K);
      for (double& e : query) e *= scale;
      const auto answer = [&] {
        const Doubles y = net.read(net.in_use(W), query);
        std::copy(y.begin(), y.end(), out["o"].begin() + token * V);
      };
      if (m.read_before) answer();
      Parameters point = A;
      if (!start()) point = W;
      if (m.decayed_point)
        for (Doubles& x : point)
          for (double& e : x) e *= net.factor(gate("decay", 0));
      point = net.in_use(point);
      if (!pending()) clear(P);
      for (std::int64_t age = std::min<std::int64_t>(m.window - 1, count); age >= 0; --age) {
        const Size i = t - age, slot = m.window - 1 - (q.begin - i);
        const bool past = i < q.begin;
        const Doubles k =
            past ? row("hk", (n * (m.window - 1) + slot) * G + shared, K) : row("k", (q.row * T + i) * G + shared, K);
        const Doubles v =
            past ? row("hv", (n * (m.window - 1) + slot) * H + h, V) : row("v", (q.row * T + i) * H + h, V);
        double factor = 1;
        if (m.window > 1 && weight)
          factor = past ? in.at("hw")[(n * (m.window - 1) + slot) * H + h] : in.at("weight")[(q.row * T + i) * H + h];
        const Parameters g = net.gradient(point, k, v, gate("threshold", 0));
        for (int part = 0; part < parts; ++part)
          for (std::size_t e = 0; e < g[part].size(); ++e) {
            const int r = m.rates > 1 ? part / (m.bias ? 2 : 1) : 0;
            P[part][e] -= (rate ? in.at("rate")[token * m.rates + r] : 1) * factor * g[part][e];
          }
      }
      sums[0] += gate("momentum", 0), sums[1] += gate("decay", 0);
      if (!m.lazy && (count + 1) % m.step_every == 0)
        take(gate("gain", 1) * (position_gain ? in.at("position_gain")[h * m.batch + count % m.batch] : 1));
      if (!m.read_before) answer();
    }
    move("W", W, true), move("A", A, true), move("Z", Z, true), move("P", P, true);
    if (pending())
      for (int i = 0; i < 2; ++i) out["sums"][(n * H + h) * 2 + i] = sums[i];
  }

  template <class X, class Y>
  void state(Bound<X>& x, NeuralState<Y>& s) const {
    for (int i = 0; i < NeuralLayout(m).count; ++i) {
      const std::string n = std::to_string(i);
      s.weights[i] = x.pointer("W" + n), s.start[i] = x.pointer("A" + n);
      s.z[i] = x.pointer("Z" + n), s.pending[i] = x.pointer("P" + n);
    }
    s.gate_sums = x.pointer("sums");
    s.history_k = x.pointer("hk"), s.history_v = x.pointer("hv"), s.history_weight = x.pointer("hw");
  }
  template <class X>
  NeuralProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list) const {
    NeuralProblem<X> p;
    p.model = m, p.sequences = list, p.heads = H, p.key_heads = G, p.scale = static_cast<X>(scale);
    p.q = x.template view<4>("q"), p.k = x.template view<4>("k"), p.v = x.template view<4>("v");
    p.rate = x.template view<4>("rate"), p.momentum = x.template view<3>("momentum");
    p.decay = x.template view<3>("decay"), p.gain = x.template view<3>("gain");
    p.position_gain = x.template view<2>("position_gain"), p.threshold = x.template view<3>("threshold");
    p.weight = x.template view<3>("weight"), p.norm_weight = x.template view<2>("norm_weight");
    p.norm_bias = x.template view<2>("norm_bias"), p.o = x.template view<4>("o"), p.count = x.counts.data();
    for (int i = 0; i < NeuralLayout(m).count; ++i) p.norms[i] = x.pointer("norm" + std::to_string(i));
    state(x, p.state);
    return p;
  }
  template <class X>
  std::size_t bytes(Size longest, Form form, int chunk, bool backward) const {
    return workspace_bytes<X>(m, longest, form, chunk, backward);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form form, int chunk, const Simd<X>& s,
                 Workspace w) const {
    return neural::forward(problem(x, list), form, chunk, s, w);
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form form, int chunk,
                  const Simd<X>& s, Workspace w) const {
    NeuralGradient<X> d;
    d.d_o = given.template view<4>("o");
    d.d_q = to.template view<4>("q"), d.d_k = to.template view<4>("k"), d.d_v = to.template view<4>("v");
    d.d_rate = to.template view<4>("rate"), d.d_momentum = to.template view<3>("momentum");
    d.d_decay = to.template view<3>("decay"), d.d_gain = to.template view<3>("gain");
    d.d_position_gain = to.template view<2>("position_gain"), d.d_threshold = to.template view<3>("threshold");
    d.d_weight = to.template view<3>("weight"), d.d_norm_weight = to.template view<2>("norm_weight");
    d.d_norm_bias = to.template view<2>("norm_bias");
    for (int i = 0; i < NeuralLayout(m).count; ++i) d.d_norms[i] = to.pointer("norm" + std::to_string(i));
    state(given, d.d_final), state(to, d.d_initial);
    return neural::backward(problem(x, list), d, form, chunk, s, w);
  }
};

/// Five-point differences: a step through Newton-Schulz bends too much for two points.
inline Values five_point_differences(const Neural& f, const Values& in, const Values& d, double h) {
  const auto loss = [&](const Values& x) {
    const Values out = f.reference(x);
    double sum = 0;
    for (const auto& [name, weights] : d)
      for (std::size_t i = 0; i < weights.size(); ++i) sum += weights[i] * out.at(name)[i];
    return sum;
  };
  Values gradient, x = in;
  for (const Spec& s : f.specs()) {
    if (s.role != Role::input && s.role != Role::state) continue;
    for (double& number : x[s.name]) {
      const double old = number;
      const auto at = [&](double step) {
        number = old + step;
        const double y = loss(x);
        number = old;
        return y;
      };
      gradient[s.name].push_back((8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h));
    }
  }
  return gradient;
}

}  // namespace ttr_families_test
