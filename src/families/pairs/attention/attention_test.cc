// Streaming attention against a literal double loop over queries and pairs, and its gradients against differences.
#include "families/pairs/attention/attention.h"

#include <gtest/gtest.h>

#include <array>

#include "families/pairs/attention/attention_simd.h"
#include "families/pairs/pairs_harness.h"

namespace {

using namespace ttr_families_test;
using namespace ttr::families;

constexpr double inf = std::numeric_limits<double>::infinity();

struct Attention : PairFamily {
  double scale = 0.6;
  bool gates = false, sink = false, gauss = false, causal = true, normalise = true, logs = true, saved = false;
  bool polynomial = false;
  std::array<double, 3> weight = {2, 0.3, 0.2};
  double rate = 0;
  Size window = 0;

  std::string name() const {
    return "attention" + sizes() + "-window" + std::to_string(window) + (gates ? "-gates" : "") +
           (sink ? "-sink" : "") + (gauss ? "-gauss" : "") + (causal ? "" : "-all") +
           (normalise ? "" : "-unnormalised") + (polynomial ? "-polynomial" + std::to_string(rate) : "");
  }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = {{"q", Role::input, {B, T, H, K}, 0, 1.5},
                           {"k", Role::input, {B, T, G, K}},
                           {"v", Role::input, {B, T, G, V}},
                           {"o", Role::output, {B, T, H, V}}};
    if (gates) s.push_back({"g", Role::input, {B, T, H}, -0.5, 0.3});
    if (sink) s.push_back({"sink", Role::input, {H}});
    if (gauss) s.push_back({"bandwidth", Role::input, {H}, 2.5, 0.2});
    if (normalise && logs) s.push_back({"lse", Role::output, {B, T, H}});
    if (capacity > 0) {
      s.push_back({"past_k", Role::input, {N(), capacity, G, K}});
      s.push_back({"past_v", Role::input, {N(), capacity, G, V}});
      if (gates) s.push_back({"past_g", Role::input, {N(), capacity, H}, -0.5, 0.3});
    }
    return s;
  }
  Values draw_values() const { return draw(specs(), seed); }
  std::vector<Spec> kept() const override {
    std::vector<Spec> s = {{"k", Role::input, {G, K}}, {"v", Role::input, {G, V}}};
    if (gates) s.push_back({"g", Role::input, {H}});
    return s;
  }

  Values reference(const Values& in) const {
    Values out = {{"o", Doubles(B * T * H * V)}, {"lse", Doubles(B * T * H)}};
    const auto data = [&](const char* name) { return in.count(name) ? in.at(name).data() : nullptr; };
    const double *const q = data("q"), *const ends = data("sink"), *const widths = data("bandwidth");
    const double *const k[2] = {data("k"), data("past_k")}, *const v[2] = {data("v"), data("past_v")};
    const double* const g[2] = {data("g"), data("past_g")};
    Size index = 0;
    for (const Sequence& n : sequences()) {
      const Size before = past_of(index), pairs = before + n.end - n.begin;
      // Where pair i of this sequence lies.
      const auto token = [&](Size i) { return i < before ? index * capacity + i : n.row * T + n.begin + i - before; };
      for (int h = 0; h < H; ++h)
        for (Size t = n.begin; t < n.end; ++t) {
          const Size position = before + t - n.begin, query = (n.row * T + t) * H + h, shared = h / (H / G);
          const Size end = causal ? position + 1 : pairs;
          const Size begin = window > 0 ? std::max<Size>(0, position + 1 - window) : 0;
          Doubles logit(end - begin);
          double decay = 0, top = sink ? ends[h] : -inf;
          for (Size i = end; i-- > begin;) {
            double& x = logit[i - begin] = decay;
            for (Size c = 0; c < K; ++c) {
              const double a = q[query * K + c], b = k[i < before][(token(i) * G + shared) * K + c];
              x += gauss ? -(a - b) * (a - b) / widths[h] : scale * a * b;
            }
            if (gates) decay += g[i < before][token(i) * H + h];
            top = std::max(top, x);
          }
          if (polynomial) {
            double sum = 0.1;
            decay = 0;
            for (Size i = end; i-- > begin;) {
              double& x = logit[i - begin];
              x -= decay;
              x = (weight[0] + weight[1] * x + weight[2] * x * x) * std::exp(rate * x + decay);
              sum += x;
              if (gates) decay += g[i < before][token(i) * H + h];
            }
            for (Size i = begin; i < end; ++i)
              for (Size j = 0; j < V; ++j)
                out["o"][query * V + j] +=
                    logit[i - begin] / (normalise ? sum : 1) * v[i < before][(token(i) * G + shared) * V + j];
            continue;
          }
          if (!normalise || top == -inf) top = 0;
          double below = sink ? std::exp(ends[h] - top) : 0;
          for (double& x : logit) below += x = std::exp(x - top);
          out["lse"][query] = top + std::log(below);
          for (Size i = begin; i < end && below > 0; ++i)
            for (Size j = 0; j < V; ++j)
              out["o"][query * V + j] +=
                  logit[i - begin] / (normalise ? below : 1) * v[i < before][(token(i) * G + shared) * V + j];
        }
      ++index;
    }
    return out;
  }

  template <class X>
  AttentionProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list, Pairs<X>& p) const {
    AttentionProblem<X> a;
    fill(a, x, list, p);
    a.scale = static_cast<X>(scale);
    a.causal = causal, a.normalise = normalise, a.window = window, a.polynomial = polynomial;
    for (std::size_t i = 0; i < 3; ++i) a.weight.c[i] = static_cast<X>(weight[i]);
    a.weight.rate = static_cast<X>(rate), a.eps = polynomial ? X(0.1) : X(0);
    a.g = x.template view<3>("g"), a.sink = x.template view<1>("sink"), a.bandwidth = x.template view<1>("bandwidth");
    a.past_v = p.template view<4>("v"), a.past_g = p.template view<3>("g");
    a.lse = x.template view<3>("lse");
    return a;
  }
  template <class X>
  std::size_t bytes(Size longest, Form, int, bool backward) const {
    return attention::workspace_bytes<X>(H, G, K, V, longest, room(), window, backward);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form, int, const Simd<X>& s, Workspace w) const {
    Pairs<X> p = before(x, list);
    return attention::forward(problem(x, list, p), s, w);
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form, int,
                  const Simd<X>& s, Workspace w) const {
    Pairs<X> p = before(x, list), d = zeros(p);
    auto a = problem(x, list, p);
    if (saved)
      if (const Status status = attention::forward(a, s, w); status != Status::ok) return status;
    AttentionGradient<X> out;
    fill_gradient(out, given, to, d);
    out.d_lse = given.template view<3>("lse");
    if (saved) out.o = a.o, out.lse = a.lse;
    a.o = {}, a.lse = {};
    out.d_g = to.template view<3>("g"), out.d_sink = to.template view<1>("sink");
    out.d_bandwidth = to.template view<1>("bandwidth");
    out.d_past_v = d.template view<4>("v"), out.d_past_g = d.template view<3>("g");
    const Status status = attention::backward(a, out, s, w);
    add_before(d, given, to, list);
    return status;
  }
};

TEST(Attention, AgainstLoopsAndDifferences) {
  for (const bool gates : {false, true})
    for (const Size window : {0, 1, 3})
      for (const Size T : {0, 1, 2, 7}) {
        Attention f;
        f.gates = gates, f.window = window, f.T = T, f.sink = T == 2 || window == 3;
        check_family(f, once);
        f.capacity = 6, f.past = {5}, f.H = 4, f.G = 2, f.saved = true, check_family(f, once);
      }
}

TEST(Attention, Kernels) {
  for (const bool gauss : {false, true})
    for (const bool normalise : {true, false})
      for (const Size T : {1, 6}) {
        Attention f;
        f.gauss = gauss, f.normalise = normalise, f.T = T, f.B = 2, f.K = 1, f.V = 1, check_family(f, once);
        f.gates = true, f.capacity = 9, f.past = {9, 0}, f.K = 5, f.V = 3, f.window = 7, f.logs = false;
        check_family(f, once);
        check_alone(f, once);
      }
}

// Weights that are no softmax: q.k, a quadratic, a quadratic times e^x; with and without their sum.
TEST(Attention, PolynomialWeights) {
  for (const bool normalise : {true, false})
    for (const double rate : {0.0, 0.4})
      for (const Size T : {1, 7, 70}) {
        Attention f;
        f.polynomial = true, f.normalise = normalise, f.logs = false, f.rate = rate, f.T = T;
        if (!normalise && T == 7) f.weight = {0, 1, 0};
        check_family(f, once, T < 70, 5e-5);
        f.gates = true, f.capacity = 40, f.past = {40}, f.H = 4, f.G = 2, f.window = 20;
        check_family(f, once, T < 70, 5e-5);
      }
  Attention f;
  f.polynomial = true, f.logs = false, f.causal = false, f.T = 9, f.B = 2, check_whole(f, true, 2e-5, 1e-4);
}

// Blocks of 16 to 64 pairs: tokens, past, window and heads that divide them and that do not.
TEST(Attention, ManyBlocks) {
  struct Case {
    Size T, past, window;
    int H, G;
    bool gates, gauss;
  };
  for (const Case& c : std::vector<Case>{{150, 0, 0, 1, 1, true, false},
                                         {70, 131, 0, 2, 1, true, false},
                                         {64, 64, 0, 1, 1, false, true},
                                         {128, 3, 100, 1, 1, true, true},
                                         {65, 200, 16, 2, 2, true, false},
                                         {67, 30, 5, 1, 1, false, false},
                                         {90, 65, 33, 5, 1, true, false}}) {
    Attention f;
    f.T = c.T, f.capacity = c.past, f.window = c.window, f.H = c.H, f.G = c.G, f.gates = c.gates, f.gauss = c.gauss;
    f.K = 2, f.V = 1, f.sink = true;
    if (c.past > 0) f.past = {c.past};
    check_family(f, once, true, 1e-4);
  }
}

TEST(Attention, LargerHeads) {
  Attention f;
  f.T = 200, f.H = 12, f.G = 2, f.K = 19, f.V = 33, f.gates = true, f.scale = 0.2;
  check_family(f, once, false, 5e-5);
  f.T = 1, f.capacity = 500, f.past = {333}, f.V = 300, check_family(f, once, false, 5e-5);
  f.gauss = true, f.gates = false, f.T = 20, check_family(f, once, false, 5e-5);
  // One query of more heads than go through a softmax together, and of more than read one key head.
  f = {}, f.T = 1, f.capacity = 90, f.past = {80}, f.H = 70, f.gates = true;
  for (const int G : {70, 35, 1}) f.G = G, check_family(f, once, false, 5e-5);
}

TEST(Attention, Packed) {
  Attention f;
  f.T = 12, f.packed = {0, 3, 3, 4, 12}, f.H = 4, f.G = 2, f.gates = true, f.sink = true;
  f.capacity = 20, f.past = {20, 3, 0, 17};
  check_family(f, once);
  check_alone(f, once);
  f.window = 4, check_family(f, once), check_alone(f, once);
  f = {}, f.T = 170, f.packed = {0, 1, 70, 135, 170}, f.capacity = 100, f.past = {70, 0, 100, 2};
  check_family(f, once, false, 5e-5);
  check_alone(f, once);
}

TEST(Attention, NotCausal) {
  for (const bool gauss : {false, true})
    for (const bool normalise : {true, false})
      for (const Size T : {1, 2, 9, 70}) {
        Attention f;
        f.causal = false, f.gauss = gauss, f.normalise = normalise, f.T = T, f.B = 2, f.sink = normalise && T == 9;
        check_whole(f, T < 70, 2e-5, 1e-4);
        f.capacity = 80, f.past = {80, 5}, f.H = 4, f.G = 2, f.K = 2, f.V = 5, check_whole(f, false, 2e-5, 1e-4);
        f.B = 1, f.packed = {0, T / 2, T}, check_whole(f, false, 2e-5, 1e-4);
      }
}

// Queries that see pairs of somewhere else: no pairs of their own, the past alone.
TEST(Attention, PastAlone) {
  Attention f;
  f.causal = false, f.T = 70, f.capacity = 91, f.past = {91}, f.K = 2, f.V = 2;
  Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences();
  Pairs<double> pairs = f.before(x, list);
  auto p = f.problem(x, list, pairs);
  p.k = {}, p.v = {};
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, true));
  ASSERT_EQ(attention::forward(p, ttr::simd<double>(""), scratch.workspace()), Status::ok);
  const Doubles got = x.held["o"].get();
  // The same with the pairs in this call and other queries behind the 70.
  Attention whole;
  whole.causal = false, whole.T = 91, whole.K = 2, whole.V = 2;
  Values all = whole.draw_values();
  all["k"] = in["past_k"], all["v"] = in["past_v"];
  std::copy(in["q"].begin(), in["q"].end(), all["q"].begin());
  const Values want = whole.reference(all);
  EXPECT_LE(distance(got, Doubles(want.at("o").begin(), want.at("o").begin() + static_cast<Size>(got.size()))),
            1e-12);

  Values d = draw_gradients(whole, 6);
  std::fill(d["lse"].begin(), d["lse"].end(), 0.0);
  std::fill(d["o"].begin() + static_cast<Size>(got.size()), d["o"].end(), 0.0);
  const Values grad = run_backward<double>(whole, all, d, {});
  Doubles d_q(in["q"].size()), d_k(in["past_k"].size()), d_v(in["past_v"].size());
  AttentionGradient<double> out;
  out.d_o = ttr::view(static_cast<const double*>(d["o"].data()), 1, 70, f.H, f.V);
  out.d_q = ttr::view(d_q.data(), 1, 70, f.H, f.K);
  out.d_past_k = ttr::view(d_k.data(), 1, 91, f.G, f.K), out.d_past_v = ttr::view(d_v.data(), 1, 91, f.G, f.V);
  p.past_k = ttr::view(static_cast<const double*>(in["past_k"].data()), 1, 91, f.G, f.K);
  p.past_v = ttr::view(static_cast<const double*>(in["past_v"].data()), 1, 91, f.G, f.V);
  ASSERT_EQ(attention::backward(p, out, ttr::simd<double>(""), scratch.workspace()), Status::ok);
  EXPECT_LE(distance(d_q, Doubles(grad.at("q").begin(), grad.at("q").begin() + static_cast<Size>(d_q.size()))),
            1e-12);
  EXPECT_LE(distance(d_k, grad.at("k")), 1e-12);
  EXPECT_LE(distance(d_v, grad.at("v")), 1e-12);
}

// The same behind forget gates: those of the pairs after one, and those of the queries up to one.
TEST(Attention, PastAloneBehindGates) {
  for (const Size T : {1, 70}) {
    constexpr Size past = 91, H = 2, K = 2, V = 2;
    const std::vector<Spec> specs = {{"q", Role::input, {1, T, H, K}},
                                     {"g", Role::input, {1, T, H}, -0.1, 0.05},
                                     {"k", Role::input, {1, past, 1, K}},
                                     {"v", Role::input, {1, past, 1, V}},
                                     {"f", Role::input, {1, past, H}, -0.1, 0.05},
                                     {"d", Role::input, {1, T, H, V}},
                                     {"e", Role::input, {1, T, H}}};
    Values in = draw(specs, 4);
    const auto loops = [&](const Values& x) {  // o, then lse
      Doubles o(static_cast<std::size_t>(T * H * (V + 1)));
      for (Size h = 0; h < H; ++h)
        for (Size t = 0; t < T; ++t) {
          Doubles weight(past);
          double below = 0;
          for (Size i = 0; i < past; ++i) {
            double logit = 0;
            for (Size c = 0; c < K; ++c) logit += 0.6 * x.at("q")[(t * H + h) * K + c] * x.at("k")[i * K + c];
            for (Size j = i + 1; j < past; ++j) logit += x.at("f")[j * H + h];
            for (Size j = 0; j <= t; ++j) logit += x.at("g")[j * H + h];
            below += weight[i] = std::exp(logit);
          }
          o[T * H * V + t * H + h] = std::log(below);
          for (Size i = 0; i < past; ++i)
            for (Size c = 0; c < V; ++c) o[(t * H + h) * V + c] += weight[i] / below * x.at("v")[i * V + c];
        }
      return o;
    };
    const Sequence one{0, 0, T};
    const std::int64_t count = past;
    const auto of = [&](const char* name, auto... extents) {
      return ttr::view(static_cast<const double*>(in.at(name).data()), extents...);
    };
    AttentionProblem<double> p;
    p.sequences = {&one, 1}, p.heads = H, p.key_heads = 1, p.key_dim = K, p.value_dim = V, p.scale = 0.6,
    p.causal = false;
    p.q = of("q", 1, T, H, K), p.g = of("g", 1, T, H), p.past_count = &count;
    p.past_k = of("k", 1, past, 1, K), p.past_v = of("v", 1, past, 1, V), p.past_g = of("f", 1, past, H);
    Doubles o(static_cast<std::size_t>(T * H * (V + 1))), d_g(static_cast<std::size_t>(T * H)), d_f(past * H);
    p.o = ttr::view(o.data(), 1, T, H, V), p.lse = ttr::view(o.data() + T * H * V, 1, T, H);
    Scratch<double> scratch(attention::workspace_bytes<double>(H, 1, K, V, T, past, 0, true));
    ASSERT_EQ(attention::forward(p, ttr::simd<double>(""), scratch.workspace()), Status::ok);
    EXPECT_LE(distance(o, loops(in)), 1e-12) << T;
    AttentionGradient<double> out;
    out.d_o = of("d", 1, T, H, V), out.d_lse = of("e", 1, T, H), out.d_g = ttr::view(d_g.data(), 1, T, H),
    out.d_past_g = ttr::view(d_f.data(), 1, past, H);
    ASSERT_EQ(attention::backward(p, out, ttr::simd<double>(""), scratch.workspace()), Status::ok);
    const auto slope = [&](const char* name, std::size_t i) {
      double sums[2] = {};
      for (const int side : {0, 1}) {
        Values moved = in;
        moved[name][i] += side ? 1e-5 : -1e-5;
        const Doubles answers = loops(moved);
        for (std::size_t j = 0; j < answers.size(); ++j)
          sums[side] += answers[j] * (j < in.at("d").size() ? in.at("d")[j] : in.at("e")[j - in.at("d").size()]);
      }
      return (sums[1] - sums[0]) / 2e-5;
    };
    for (const std::size_t i : {std::size_t{0}, d_g.size() - 1}) EXPECT_NEAR(d_g[i], slope("g", i), 1e-6) << T;
    for (const std::size_t i : {2u, 3u, 90u, 180u, 181u}) EXPECT_NEAR(d_f[i], slope("f", i), 1e-6) << T << " " << i;
  }
}

TEST(Attention, StrongGates) {
  Attention f;
  f.gates = true, f.T = 100, f.capacity = 40, f.past = {40}, f.window = 110, f.H = 1, f.K = 2, f.V = 1;
  Values in = f.draw_values();
  for (const char* name : {"g", "past_g"})
    for (std::size_t i = 0; i < in[name].size(); ++i) in[name][i] = i % 5 == 0 ? -1e4 : i % 7 == 0 ? -20 : 0.0078125;
  const Values d = draw_gradients(f, 8), want = f.reference(in), grad = run_backward<double>(f, in, d, {});
  expect_near(grad, differences(f, in, d), 1e-6, "differences");
  expect_near(run_forward<double>(f, in, {}), want, 1e-11, "double");
  expect_near(run_forward<float>(f, in, {}), want, 2e-5, "float");
  expect_near(run_backward<float>(f, in, d, {}), grad, 1e-4, "float");
  Call steps;
  for (Size t = 1; t < f.T; ++t) steps.cuts.push_back(t);
  expect_near(run_forward<float>(f, in, steps), want, 2e-5, "float, token by token");
}

// A closed gate: nothing before it is seen. It is a new sequence without a past.
TEST(Attention, ClosedGate) {
  for (const Size cut : {1, 30, 64, 100}) {
    Attention f;
    f.gates = true, f.T = 130, f.capacity = 7, f.past = {7};
    Values in = f.draw_values();
    for (int h = 0; h < f.H; ++h) in["g"][static_cast<std::size_t>(cut * f.H + h)] = -inf;
    Attention parts = f;
    parts.packed = {0, cut, f.T}, parts.past = {7, 0};
    Values split = in;
    for (const char* name : {"past_k", "past_v", "past_g"}) split[name].resize(2 * in[name].size());
    const Values want = parts.reference(split), d = draw_gradients(f, 9);
    const Values want_d = run_backward<double>(parts, split, d, {});
    expect_near(run_forward<double>(f, in, {}), want, 1e-11, "closed");
    expect_near(run_forward<float>(f, in, {}), want, 2e-5, "closed, float");
    for (const auto& [name, x] : run_backward<double>(f, in, d, {})) {
      const Doubles& y = want_d.at(name);
      EXPECT_LE(distance(x, Doubles(y.begin(), y.begin() + static_cast<Size>(x.size()))), 1e-10) << name;
    }
  }
}

// No logit above -inf, or no pair at all: an answer of zero and no gradient.
TEST(Attention, NothingSeen) {
  Attention f;
  f.T = 70, f.K = 1, f.V = 2, f.logs = false;
  Values in = f.draw_values();
  for (double& q : in["q"]) q = 1;
  for (double& k : in["k"]) k = -inf;
  const Values out = run_forward<double>(f, in, {});
  for (const double o : out.at("o")) EXPECT_EQ(o, 0);
  for (const auto& [name, x] : run_backward<double>(f, in, draw_gradients(f, 1), {}))
    for (const double y : x) EXPECT_TRUE(name != "v" || y == 0);
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences();
  Pairs<double> none = f.before(x, list);
  auto p = f.problem(x, list, none);
  Doubles logs(static_cast<std::size_t>(f.T * f.H), 7.0);
  p.k = {}, p.v = {}, p.causal = false, p.lse = ttr::view(logs.data(), 1, f.T, f.H);
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
  ASSERT_EQ(attention::forward(p, ttr::simd<double>(""), scratch.workspace()), Status::ok);
  for (const double y : x.held["o"].get()) EXPECT_EQ(y, 0);
  for (const double y : logs) EXPECT_EQ(y, -inf);
}

// NaN and Inf in a pair or a query: only the queries that see it, and only the pairs they see.
TEST(Attention, NotANumberStaysWhereItIs) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), inf})
    for (const char* name : {"q", "k", "v", "d_o"})
      for (const Size window : {0, 5, 20, 90}) {
        Attention f;
        f.T = 150, f.packed = {0, 40, 150}, f.H = f.G = 1, f.K = 2, f.V = 2, f.window = window;
        Values in = f.draw_values();
        Values d = draw_gradients(f, 3);
        const Values good = in, want = f.reference(good);
        const Values want_d = run_backward<double>(f, good, d, {});
        const Size at = 77;
        const bool given = std::string(name) == "d_o", query = given || std::string(name) == "q";
        (given ? d["o"] : in[name])[static_cast<std::size_t>(at * 2)] = bad;
        const auto reached = [&](Size t) { return query ? t == at : t >= at && (window == 0 || t < at + window); };
        const auto touched = [&](Size t) {  // a pair that a reached query sees
          const Size newest = query ? at : window == 0 ? f.T : at + window - 1;
          return t >= 40 && t <= newest && (window == 0 || t > at - window);
        };
        Bound<double> x(f.specs(), &in, false);
        Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
        ASSERT_EQ(f.forward(x, f.sequences(), Form::best, 0, ttr::simd<double>(""), scratch.workspace()), Status::ok);
        const Values out = {{"o", x.held["o"].get()}}, grad = run_backward<double>(f, in, d, {});
        for (Size t = 0; t < f.T; ++t)
          for (Size j = 0; j < 2; ++j) {
            const std::size_t i = static_cast<std::size_t>(t * 2 + j);
            if (!reached(t)) {
              EXPECT_NEAR(out.at("o")[i], want.at("o")[i], 1e-12) << name << t;
              EXPECT_NEAR(grad.at("q")[i], want_d.at("q")[i], 1e-12) << name << t << " window " << window;
            } else if (!given && bad != inf && (j == 0 || std::string(name) != "v")) {
              EXPECT_TRUE(std::isnan(out.at("o")[i])) << name << t;
            }
            if (touched(t)) continue;
            EXPECT_NEAR(grad.at("k")[i], want_d.at("k")[i], 1e-12) << name << t << " window " << window;
            EXPECT_NEAR(grad.at("v")[i], want_d.at("v")[i], 1e-12) << name << t << " window " << window;
          }
      }
}

// Distances are sums of squared differences: an offset of all keys and queries costs nothing.
TEST(Attention, FarFromZero) {
  Attention f;
  f.gauss = true, f.T = 70, f.K = 3, f.logs = false;
  Values in = f.draw_values();
  for (const char* name : {"q", "k"})
    for (double& x : in[name]) x = 4096 + std::round(256 * x) / 256;  // exact in float, also with the offset
  const Values want = f.reference(in);
  expect_near(run_forward<float>(f, in, {}), want, 2e-6, "offset");
  Call steps;
  for (Size t = 1; t < f.T; ++t) steps.cuts.push_back(t);
  expect_near(run_forward<float>(f, in, steps), want, 2e-6, "offset, token by token");
}

TEST(Attention, LargeLogits) {
  Attention f;
  f.T = 100, f.scale = 1e3, f.sink = true;
  const Values in = f.draw_values(), want = f.reference(in), d = draw_gradients(f, 2);
  expect_near(run_forward<double>(f, in, {}), want, 1e-10, "large logits");
  for (const auto& [name, x] : run_backward<float>(f, in, d, {}))
    for (const double y : x) EXPECT_TRUE(std::isfinite(y)) << name;
}

TEST(Attention, ScratchDoesNotGrowWithTime) {
  const auto bytes = [](Size T, Size past, Size window, bool backward) {
    return attention::workspace_bytes<float>(8, 2, 64, 64, T, past, window, backward);
  };
  EXPECT_EQ(bytes(100, 0, 0, false), bytes(1 << 20, 1 << 20, 0, false));
  EXPECT_LE(bytes(1 << 20, 0, 0, false), std::size_t{1} << 20);
  // Backward: lse and delta in float, two sums in double, for each of the 4 heads of a group; three times the key and twice
  // the value of a pair, and a number in double; for each tile of 64 queries of each head two numbers, for each block of pairs
  // whether it is finite. The logits of 128 blocks are kept, not more.
  const std::size_t more = (1u << 20) - (1u << 14), pair = 5 * 64 * sizeof(float) + sizeof(double);
  EXPECT_EQ(bytes(1 << 20, 0, 0, true) - bytes(1 << 14, 0, 0, true),
            (4 * 24 + pair) * more + (4 * 16 + 1) * (more / 64));
}

TEST(Attention, WhatIsWrongIsSaid) {
  Attention f;
  f.gates = true, f.capacity = 3, f.past = {3};
  const Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences();
  const Simd<double>& s = ttr::simd<double>("");
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, true));
  const Workspace w = scratch.workspace();
  Pairs<double> pairs = f.before(x, list);
  const auto good = f.problem(x, list, pairs);
  auto p = good;
  EXPECT_EQ(attention::forward(p, s, w), Status::ok);
  EXPECT_EQ(attention::forward(p, s, Workspace{w.data, 64}), Status::small_workspace);
  p.polynomial = true;
  EXPECT_EQ(attention::forward(p, s, w), Status::ok);
  const double width = 1;
  p.bandwidth = {&width, {f.H}, {0}};
  EXPECT_EQ(attention::forward(p, s, w), Status::not_supported);
  p = good;
  p.causal = false;
  EXPECT_EQ(attention::forward(p, s, w), Status::not_supported);
  p.g = {}, p.window = 2;
  EXPECT_EQ(attention::forward(p, s, w), Status::not_supported);
  const double one = 1, zero = 0;
  const View<const double, 1> ones{&one, {f.H}, {0}}, zeros{&zero, {f.H}, {0}};
  p = good, p.normalise = false, p.sink = ones;
  EXPECT_EQ(attention::forward(p, s, w), Status::not_supported);
  p = good, p.bandwidth = zeros;
  EXPECT_EQ(attention::forward(p, s, w), Status::out_of_domain);
  p.bandwidth = ones;
  EXPECT_EQ(attention::forward(p, s, w), Status::ok);
  p = good, p.window = -1;
  EXPECT_EQ(attention::forward(p, s, w), Status::bad_shape);
  p = good, p.key_heads = 3;
  EXPECT_EQ(attention::forward(p, s, w), Status::bad_shape);
  p = good, p.q = {};
  EXPECT_EQ(attention::forward(p, s, w), Status::missing_input);
  p = good, p.k = {}, p.v = {};
  EXPECT_EQ(attention::forward(p, s, w), Status::missing_input);
  p = good, p.past_g = {};
  EXPECT_EQ(attention::forward(p, s, w), Status::missing_input);
  pairs.count = {-1};
  EXPECT_EQ(attention::forward(good, s, w), Status::bad_shape);
  pairs.count = {pairs.capacity + 1};
  EXPECT_EQ(attention::forward(good, s, w), Status::bad_shape);
  pairs.count = {3};
  AttentionGradient<double> d;
  d.d_lse = good.lse;
  p = good, p.normalise = false;
  EXPECT_EQ(attention::backward(p, d, s, w), Status::not_supported);
  EXPECT_EQ(attention::backward(good, d, s, w), Status::ok);  // nothing is wanted
}

/// Any count of rows and columns, any place in memory, numbers at the ends of the range: against exp of the standard
/// library.
template <class X>
void check_softmax(const std::string& target, double tolerance) {
  const ttr::AttentionSimd<X>& a = ttr::attention_simd(ttr::simd<X>(target));
  std::mt19937 rng(3);
  std::normal_distribution<double> normal;
  for (const Size M : {1, 4, 7})
    for (Size N = 0; N <= 40; ++N)
      for (const Size hi : {Size{1}, Size{1000}}) {
        const ttr::MaskRange visible{M, N, hi == 1 ? -5 : -1000, hi};
        const Size ld = N + 3, shift = N % 3;
        std::vector<X> S(M * ld + 3, X(7)), bias(N), rows(M), m(M, X(-2)), l(M, X(0.5)), factor(M);
        const std::vector<X> old_m = m, old_l = l;
        for (X& x : S) x = static_cast<X>(20 * normal(rng));
        for (std::size_t i = 0; i < S.size(); i += 7) S[i] = static_cast<X>(i % 2 ? -inf : -300);
        for (X& x : bias) x = static_cast<X>(normal(rng));
        for (X& x : rows) x = static_cast<X>(normal(rng));
        const std::vector<X> old = S;
        a.softmax(visible, {bias.data(), 0, rows.data()}, true, S.data() + shift, ld, m.data(), l.data(),
                  factor.data());
        for (Size i = 0; i < M; ++i) {
          double top = old_m[i], sum = 0;
          const auto x = [&](Size j) { return static_cast<double>(old[shift + i * ld + j] + bias[j] + rows[i]); };
          for (Size j = visible.begin(i); j < visible.end(i); ++j) top = std::max(top, x(j));
          for (Size j = 0; j < N; ++j) {
            const bool seen = j >= visible.begin(i) && j < visible.end(i);
            const double want = seen ? std::exp(x(j) - top) : 0;
            EXPECT_NEAR(S[shift + i * ld + j], want, tolerance * (want + 1e-30)) << target << M << " " << N;
            sum += want;
          }
          for (Size j = N; j < ld; ++j) EXPECT_EQ(S[shift + i * ld + j], old[shift + i * ld + j]);
          EXPECT_NEAR(m[i], top, tolerance * std::abs(top));
          EXPECT_NEAR(factor[i], std::exp(old_m[i] - top), tolerance);
          EXPECT_NEAR(l[i], old_l[i] * std::exp(old_m[i] - top) + sum, tolerance * (sum + 1));
        }
      }
}

TEST(Attention, SoftmaxOfATile) {
  for (const std::string& target : ttr::simd_targets()) {
    check_softmax<float>(target, 1e-5);  // the sum of logit and bias is rounded at 60
    check_softmax<double>(target, 1e-13);
  }
}

}  // namespace
