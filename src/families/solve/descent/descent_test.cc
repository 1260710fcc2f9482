// Steps on whole objectives against loops that say what descent.h says, in doubles; the ways to the same answer against
// each other (sums of pairs, pairs as rows, a call in parts); gradients against differences; and what a call refuses.
#include "families/solve/descent/descent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace ttr::families {
namespace {

using Size = std::ptrdiff_t;
using Numbers = std::vector<double>;

constexpr int K = 3, V = 2, T = 9;

DescentModel linear_model(int window, bool sums) {
  DescentModel m;
  m.network.key_dim = K, m.network.value_dim = V;
  m.window = window, m.sums = sums, m.steps = 3;
  return m;
}

// One sequence with one head. What a test does not use stays empty.
struct Data {
  explicit Data(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    const auto fill = [&](Numbers& to, std::size_t n, const std::function<double()>& draw) {
      to.resize(n);
      for (double& x : to) x = draw();
    };
    fill(q, T * K, [&] { return normal(random); }), fill(k, T * K, [&] { return normal(random); });
    fill(v, T * V, [&] { return normal(random); });
    fill(g, T, [&] { return -std::abs(normal(random)) / 4; }),
        fill(beta, T, [&] { return 0.5 + 0.1 * normal(random); });
    fill(rate, T, [&] { return 0.1 + 0.02 * normal(random); });
    fill(momentum, T, [&] { return 0.4 + 0.1 * normal(random); });
    fill(lam, T, [&] { return 0.1 + 0.02 * normal(random); });
    fill(s, K * V, [&] { return normal(random); }), fill(z, K * V, [&] { return 0.1 * normal(random); });
    h.assign(K * K, 0.0), f.assign(K * V, 0.0);
  }
  Numbers q, k, v, g, beta, rate, momentum, lam, s, z, h, f;
  std::vector<Numbers*> inputs() { return {&q, &k, &v, &g, &beta, &rate, &momentum, &lam, &s, &z}; }
};

template <class N>
View<N, 4> rows(N* x, Size dim) {
  return {x, {1, T, 1, dim}, {T * dim, dim, dim, 1}};
}
template <class N>
View<N, 3> scalars(N* x) {
  return {x, {1, T, 1}, {T, 1, 1}};
}

struct Answers {
  Numbers o, s, z;
};

// Tokens begin .. end-1, with the pairs before `begin` as the past.
Answers run(const DescentModel& m, const Data& x, const Answers& from, int begin = 0, int end = T,
            Numbers* h = nullptr, Numbers* f = nullptr) {
  Answers a{Numbers(T * V), from.s, from.z};
  Numbers own_h = h ? *h : x.h, own_f = f ? *f : x.f;
  const Sequence sequence{0, begin, end};
  const std::int64_t past = begin;
  DescentProblem<double> p;
  p.model = &m;
  p.linear.sequences = {&sequence, 1};
  p.linear.heads = p.linear.key_heads = 1, p.linear.key_dim = K, p.linear.value_dim = V, p.linear.scale = 1;
  p.linear.q = rows(x.q.data(), K), p.linear.k = rows(x.k.data(), K), p.linear.v = rows(x.v.data(), V);
  p.linear.g = scalars(x.g.data()), p.linear.beta = scalars(x.beta.data()), p.linear.o = rows(a.o.data(), V);
  p.rate = rows(x.rate.data(), 1);
  if (m.momentum) p.momentum = scalars(x.momentum.data());
  if (m.decay != DescentModel::Decay::none) p.decay = scalars(x.lam.data());
  if (m.lists_pairs()) {
    p.past = {rows(x.k.data(), K), rows(x.v.data(), V), {}, scalars(x.g.data()), scalars(x.beta.data())};
    p.past_count = &past;
  }
  p.state.weights[0] = a.s.data(), p.state.z[0] = a.z.data(), p.state.h = own_h.data(), p.state.f = own_f.data();
  Numbers work(descent::workspace_bytes(m, T, false) / sizeof(double) + 1);
  EXPECT_EQ(descent::forward(p, Form::recurrent, simd<double>(""), {work.data(), work.size() * sizeof(double)}),
            Status::ok);
  if (h) *h = own_h, *f = own_f;
  return a;
}

// The gradient of sum o.d_o + sum s.d_s + sum z.d_z in the order of Data::inputs.
std::vector<Numbers> gradients(const DescentModel& m, const Data& x, const Answers& d) {
  std::vector<Numbers> to;
  Data copy = x;
  for (Numbers* in : copy.inputs()) to.emplace_back(in->size());
  Numbers s = x.s, z = x.z, h = x.h, f = x.f;
  const Sequence sequence{0, 0, T};
  DescentProblem<double> p;
  p.model = &m;
  p.linear.sequences = {&sequence, 1};
  p.linear.heads = p.linear.key_heads = 1, p.linear.key_dim = K, p.linear.value_dim = V, p.linear.scale = 1;
  p.linear.q = rows(x.q.data(), K), p.linear.k = rows(x.k.data(), K), p.linear.v = rows(x.v.data(), V);
  p.linear.g = scalars(x.g.data()), p.linear.beta = scalars(x.beta.data());
  p.rate = rows(x.rate.data(), 1);
  if (m.momentum) p.momentum = scalars(x.momentum.data());
  if (m.decay != DescentModel::Decay::none) p.decay = scalars(x.lam.data());
  p.state.weights[0] = s.data(), p.state.z[0] = z.data(), p.state.h = h.data(), p.state.f = f.data();
  DescentGradient<double> g;
  g.linear.d_o = rows(d.o.data(), V);
  g.d_final.weights[0] = d.s.data(), g.d_final.z[0] = d.z.data();
  g.linear.d_q = rows(to[0].data(), K), g.linear.d_k = rows(to[1].data(), K), g.linear.d_v = rows(to[2].data(), V);
  g.linear.d_g = scalars(to[3].data()), g.linear.d_beta = scalars(to[4].data()), g.d_rate = rows(to[5].data(), 1);
  g.d_momentum = scalars(to[6].data()), g.d_decay = scalars(to[7].data());
  g.d_initial.weights[0] = to[8].data(), g.d_initial.z[0] = to[9].data();
  Numbers work(descent::workspace_bytes(m, T, true) / sizeof(double) + 1);
  EXPECT_EQ(descent::backward(p, g, Form::recurrent, simd<double>(""), {work.data(), work.size() * sizeof(double)}),
            Status::ok);
  return to;
}

// descent.h in loops, for linear memories and the squared loss.
Answers plain(const DescentModel& m, const Data& x) {
  using Decay = DescentModel::Decay;
  Answers a{Numbers(T * V), x.s, x.z};
  for (int t = 0; t < T; ++t) {
    if (m.restarts) a.s.assign(K * V, 0.0), a.z.assign(K * V, 0.0);
    if (m.decay == Decay::before)
      for (double& e : a.s) e *= std::exp(x.lam[t]);
    double square = 0;
    const int first = m.window > 0 ? std::max(0, t + 1 - m.window) : 0;
    const auto weight = [&](int i) {
      double w = x.beta[i];
      for (int j = i + 1; j <= t; ++j) w *= std::exp(x.g[j]);
      return w;
    };
    for (int i = first; i <= t; ++i)
      for (int c = 0; c < K; ++c) square += weight(i) * x.k[i * K + c] * x.k[i * K + c];
    for (int j = 0; j < m.steps; ++j) {
      const double step = m.automatic ? 1 / square : x.rate[t];
      const double momentum = m.momentum_auto ? j / (j + 3.0) : m.momentum ? x.momentum[t] : 0;
      Numbers point = a.s, gradient(K * V);
      for (int e = 0; m.nesterov && e < K * V; ++e) point[e] += momentum * a.z[e];
      for (int i = first; i <= t; ++i)
        for (int b = 0; b < V; ++b) {
          double error = -x.v[i * V + b];
          for (int c = 0; c < K; ++c) error += x.k[i * K + c] * point[c * V + b];
          for (int c = 0; c < K; ++c) gradient[c * V + b] += weight(i) * x.k[i * K + c] * error;
        }
      for (int e = 0; e < K * V; ++e) {
        if (m.decay == Decay::leak) gradient[e] += x.lam[t] * point[e];
        if (m.decay == Decay::shrink) a.s[e] *= 1 - x.lam[t];
        const double update = (m.has_momentum() ? momentum * a.z[e] : 0) - step * gradient[e];
        if (m.has_momentum()) a.z[e] = update;
        a.s[e] += update;
      }
    }
    for (int b = 0; b < V; ++b)
      for (int c = 0; c < K; ++c) a.o[t * V + b] += x.q[t * K + c] * a.s[c * V + b];
  }
  return a;
}

void expect_near(const Numbers& a, const Numbers& b, double tolerance, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], tolerance * std::max(1.0, std::abs(b[i]))) << what << " " << i;
}

// Every combination of what a step may have.
void each_model(const std::function<void(DescentModel, const std::string&)>& visit) {
  using Decay = DescentModel::Decay;
  for (int way = 0; way < 4; ++way)
    for (const Decay decay : {Decay::none, Decay::before, Decay::leak, Decay::shrink})
      for (int momentum = 0; momentum < 4; ++momentum)
        for (const bool automatic : {false, true}) {
          DescentModel m = linear_model(way == 2 ? 4 : way == 3 ? 1 : 0, way == 0);
          m.decay = decay, m.automatic = automatic;
          m.momentum = momentum == 1 || momentum == 2, m.nesterov = momentum >= 2, m.momentum_auto = momentum == 3;
          visit(m, "way " + std::to_string(way) + " decay " + std::to_string(static_cast<int>(decay)) + " momentum " +
                       std::to_string(momentum) + (automatic ? " automatic" : ""));
        }
}

TEST(Descent, IsWhatItsEquationsSay) {
  const Data x(1);
  each_model([&](DescentModel m, const std::string& what) {
    const Answers a = run(m, x, {{}, x.s, x.z}), b = plain(m, x);
    expect_near(a.o, b.o, 1e-12, "o: " + what), expect_near(a.s, b.s, 1e-12, "S: " + what);
    if (m.has_momentum()) expect_near(a.z, b.z, 1e-12, "Z: " + what);
    if (m.decay != DescentModel::Decay::none) return;
    m.restarts = true;
    expect_near(run(m, x, {{}, Numbers(K * V), Numbers(K * V)}).o, plain(m, x).o, 1e-12, "restarts: " + what);
  });
}

TEST(Descent, SumsAndRowsAndPartsOfACallAgree) {
  const Data x(2);
  const Answers sums = run(linear_model(0, true), x, {{}, x.s, x.z}),
                rows = run(linear_model(0, false), x, {{}, x.s, x.z});
  expect_near(sums.o, rows.o, 1e-12, "o"), expect_near(sums.s, rows.s, 1e-12, "S");
  expect_near(run(linear_model(T, false), x, {{}, x.s, x.z}).o, rows.o, 1e-15, "a window that holds all");
  for (const bool by_sums : {false, true})
    for (int cut = 1; cut < T; ++cut) {
      const DescentModel m = linear_model(0, by_sums);
      Numbers h = x.h, f = x.f;
      const Answers first = run(m, x, {{}, x.s, x.z}, 0, cut, &h, &f), second = run(m, x, first, cut, T, &h, &f);
      expect_near(second.s, by_sums ? sums.s : rows.s, 0, "S in two calls");
    }
}

TEST(Descent, GradientsAreThoseOfWhatIsComputed) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  each_model([&](DescentModel m, const std::string& what) {
    Data x(3);
    Answers d{Numbers(T * V), Numbers(K * V), Numbers(K * V)};
    for (Numbers* to : {&d.o, &d.s, &d.z})
      for (double& e : *to) e = normal(random);
    if (!m.has_momentum()) d.z.assign(K * V, 0.0);
    const std::vector<Numbers> gradient = gradients(m, x, d);
    const auto loss = [&] {
      const Answers a = run(m, x, {{}, x.s, x.z});
      double sum = 0;
      for (std::size_t i = 0; i < a.o.size(); ++i) sum += a.o[i] * d.o[i];
      for (std::size_t i = 0; i < a.s.size(); ++i) sum += a.s[i] * d.s[i] + (m.has_momentum() ? a.z[i] * d.z[i] : 0);
      return sum;
    };
    for (std::size_t n = 0; n < gradient.size(); ++n) {
      const bool unused = (n == 6 && !m.momentum) || (n == 7 && m.decay == DescentModel::Decay::none) ||
                          (n == 9 && !m.has_momentum()) || (n == 5 && m.automatic);
      if (unused) continue;
      Numbers& in = *x.inputs()[n];
      for (std::size_t i = n; i < in.size(); i += 4) {
        const double at = in[i], step = 1e-4;
        const auto moved = [&](double by) {
          in[i] = at + by;
          const double value = loss();
          in[i] = at;
          return value;
        };
        const double slope = (8 * (moved(step) - moved(-step)) - (moved(2 * step) - moved(-2 * step))) / (12 * step);
        EXPECT_NEAR(gradient[n][i], slope, 1e-7 * std::max(1.0, std::abs(slope)))
            << what << " input " << n << " " << i;
      }
    }
  });
}

TEST(Descent, SaysWhatItCannotDo) {
  const DescentModel m = linear_model(0, true);
  DescentProblem<double> p;
  const Sequence sequence{0, 0, 1};
  p.model = &m;
  p.linear.sequences = {&sequence, 1};
  p.linear.heads = p.linear.key_heads = 1, p.linear.key_dim = K, p.linear.value_dim = V;
  const Data x(4);
  Numbers s = x.s, h = x.h, f = x.f, work(descent::workspace_bytes(m, 1, false) / sizeof(double) + 1);
  const Workspace all{work.data(), work.size() * sizeof(double)};
  const auto call = [&](Form form, Workspace w) { return descent::forward(p, form, simd<double>(""), w); };
  EXPECT_EQ(call(Form::chunk, all), Status::not_supported);
  EXPECT_EQ(call(Form::step, all), Status::missing_input);
  p.linear.k = rows(x.k.data(), K), p.linear.v = rows(x.v.data(), V);
  EXPECT_EQ(call(Form::step, all), Status::missing_input) << "no state";
  p.state.weights[0] = s.data(), p.state.h = h.data(), p.state.f = f.data();
  EXPECT_EQ(call(Form::step, {work.data(), 8}), Status::small_workspace);
  EXPECT_EQ(call(Form::step, all), Status::ok) << "without answers";
  p.linear.key_heads = 2;
  EXPECT_EQ(call(Form::step, all), Status::bad_shape);
}

}  // namespace
}  // namespace ttr::families
