// PaTH attention against a literal loop over queries and pairs that carries the query map by map, and its gradients
// against differences of that loop.
#include "families/pairs/path_attention/path_attention.h"

#include <gtest/gtest.h>

#include "families/pairs/attention/attention.h"
#include "families/pairs/pairs_harness.h"

namespace {

using namespace ttr_families_test;
using namespace ttr::families;

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

struct Path : PairFamily {
  double scale = 0.6;
  bool gates = false;

  std::string name() const { return "path" + sizes() + (gates ? "-gates" : ""); }
  std::vector<Spec> kept() const override {
    // Lengths near one and steps around one: reflections, projections and maps between.
    std::vector<Spec> s = {{"k", Role::input, {G, K}},
                           {"v", Role::input, {G, V}},
                           {"w", Role::input, {G, K}, 0, 1 / std::sqrt(double(K))},
                           {"beta", Role::input, {G}, 0.9, 0.4}};
    if (gates) s.push_back({"g", Role::input, {H}, -0.5, 0.3});
    return s;
  }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = {{"q", Role::input, {B, T, H, K}, 0, 1.5}, {"o", Role::output, {B, T, H, V}}};
    for (Spec x : kept()) {
      std::vector<Size> inner = x.extent;
      x.extent.insert(x.extent.begin(), {B, T});
      s.push_back(x);
      if (capacity == 0) continue;
      inner.insert(inner.begin(), {N(), capacity});
      x.name = "past_" + x.name, x.extent = inner;
      s.push_back(x);
    }
    return s;
  }
  /// Random maps make a long product explode or vanish: lengths of w are cut to one, steps to [0, 2].
  Values draw_values() const {
    Values x = draw(specs(), seed);
    for (const char* name : {"w", "past_w"}) {
      Doubles& w = x[name];
      for (std::size_t i = 0; i + K <= w.size(); i += K) {
        double sum = 0;
        for (Size c = 0; c < K; ++c) sum += w[i + c] * w[i + c];
        for (Size c = 0; c < K && sum > 1; ++c) w[i + c] = static_cast<float>(w[i + c] / std::sqrt(sum));
      }
    }
    for (const char* name : {"beta", "past_beta"})
      for (double& b : x[name]) b = std::clamp(b, 0.0, 2.0);
    return x;
  }

  Values reference(const Values& in) const {
    Values out = {{"o", Doubles(B * T * H * V)}};
    struct Tensor {
      const double *now, *old;
    };
    const auto data = [&](const std::string& name) { return in.count(name) ? in.at(name).data() : nullptr; };
    const auto both = [&](const std::string& name) { return Tensor{data(name), data("past_" + name)}; };
    const Tensor k = both("k"), v = both("v"), w = both("w"), beta = both("beta"), g = both("g");
    Size index = 0;
    for (const Sequence& n : sequences()) {
      const Size before = past_of(index);
      /// The row of head h of pair i, for a tensor with `heads` heads of `width` numbers
      const auto row = [&](const Tensor& x, Size i, Size heads, Size h, Size width) {
        const bool old = i < before;
        const Size token = old ? index * capacity + i : n.row * T + n.begin + i - before;
        return (old ? x.old : x.now) + (token * heads + h) * width;
      };
      for (int h = 0; h < H; ++h)
        for (Size t = n.begin; t < n.end; ++t) {
          const Size position = before + t - n.begin, query = (n.row * T + t) * H + h, shared = h / (H / G);
          const double* const q = data("q") + query * K;
          Doubles logit(position + 1), x(q, q + K);
          double decay = 0, top = -inf, below = 0;
          for (Size i = position + 1; i-- > 0;) {
            const double *const key = row(k, i, G, shared, K), *const map = row(w, i, G, shared, K);
            double product = decay, met = 0;
            for (Size c = 0; c < K; ++c) product += x[c] * key[c], met += x[c] * map[c];
            logit[i] = scale * product, top = std::max(top, logit[i]);
            for (Size c = 0; c < K; ++c) x[c] -= *row(beta, i, G, shared, 1) * met * map[c];
            if (gates) decay += *row(g, i, H, h, 1);
          }
          for (double& y : logit) below += y = std::exp(y - top);
          for (Size i = 0; i <= position; ++i)
            for (Size j = 0; j < V; ++j) out["o"][query * V + j] += logit[i] / below * row(v, i, G, shared, V)[j];
        }
      ++index;
    }
    return out;
  }

  template <class X>
  PathAttentionProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list, Pairs<X>& p) const {
    PathAttentionProblem<X> a;
    fill(a, x, list, p);
    a.scale = static_cast<X>(scale);
    a.w = x.template view<4>("w"), a.beta = x.template view<3>("beta"), a.g = x.template view<3>("g");
    a.past_v = p.template view<4>("v"), a.past_w = p.template view<4>("w");
    a.past_beta = p.template view<3>("beta"), a.past_g = p.template view<3>("g");
    return a;
  }
  template <class X>
  std::size_t bytes(Size longest, Form, int, bool backward) const {
    return path_attention::workspace_bytes<X>(H, G, K, V, longest, room(), backward);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form, int, const Simd<X>& s, Workspace w) const {
    Pairs<X> p = before(x, list);
    return path_attention::forward(problem(x, list, p), s, w);
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form, int,
                  const Simd<X>& s, Workspace w) const {
    Pairs<X> p = before(x, list), d = zeros(p);
    auto a = problem(x, list, p);
    a.o = {};
    PathAttentionGradient<X> out;
    fill_gradient(out, given, to, d);
    out.d_w = to.template view<4>("w"), out.d_beta = to.template view<3>("beta"), out.d_g = to.template view<3>("g");
    out.d_past_v = d.template view<4>("v"), out.d_past_w = d.template view<4>("w"),
    out.d_past_beta = d.template view<3>("beta");
    out.d_past_g = d.template view<3>("g");
    const Status status = path_attention::backward(a, out, s, w);
    add_before(d, given, to, list);
    return status;
  }
};

TEST(PathAttention, AgainstLoopsAndDifferences) {
  for (const bool gates : {false, true})
    for (const Size T : {0, 1, 2, 7}) {
      Path f;
      f.gates = gates, f.T = T, check_family(f, once);
      f.capacity = 6, f.past = {5}, f.H = 4, f.G = 2, f.K = 2, f.V = 1, check_family(f, once);
    }
}

// Blocks of 64 pairs: tokens, past and heads that divide them and that do not.
TEST(PathAttention, ManyBlocks) {
  struct Case {
    Size T, past;
    int H, G;
    bool gates;
  };
  for (const Case& c : std::vector<Case>{{130, 0, 1, 1, true},
                                         {3, 131, 2, 1, true},
                                         {64, 64, 1, 1, false},
                                         {65, 1, 1, 1, true},
                                         {1, 200, 2, 1, false}}) {
    Path f;
    f.T = c.T, f.capacity = c.past, f.H = c.H, f.G = c.G, f.gates = c.gates, f.K = 2, f.V = 1;
    if (c.past > 0) f.past = {c.past};
    check_family(f, once);
  }
}

// More heads and more tiles than go side by side.
TEST(PathAttention, LargerHeads) {
  Path f;
  f.T = 200, f.H = 10, f.G = 1, f.K = 19, f.V = 33, f.gates = true, f.scale = 0.2;
  check_family(f, once, false);
  f.T = 1, f.H = 6, f.capacity = 500, f.past = {333}, f.V = 300, check_family(f, once, false);
  f = {}, f.T = 520, f.H = f.G = 1, f.K = 70, f.V = 5, f.scale = 0.12, check_family(f, once, false);
}

TEST(PathAttention, Packed) {
  Path f;
  f.T = 12, f.packed = {0, 3, 3, 4, 12}, f.H = 4, f.G = 2, f.gates = true;
  f.capacity = 20, f.past = {20, 3, 0, 17};
  check_family(f, once);
  check_alone(f, once);
  f = {}, f.B = 3, f.T = 5, f.capacity = 4, f.past = {4, 0, 1};
  check_family(f, once), check_alone(f, once);
  f = {}, f.T = 170, f.packed = {0, 1, 70, 135, 170}, f.capacity = 100, f.past = {70, 0, 100, 2};
  check_family(f, once, false);
  check_alone(f, once);
}

// Token by token, and in pieces that end within a block.
TEST(PathAttention, SplitAnywhere) {
  Path f;
  f.T = 140, f.H = 2, f.G = 2, f.gates = true;
  const Values in = f.draw_values(), d = draw_gradients(f, 5), want = f.reference(in);
  const Values grad = run_backward<double>(f, in, d, {});
  Call tokens, pieces;
  for (Size t = 1; t < f.T; ++t) tokens.cuts.push_back(t);
  pieces.cuts = {1, 63, 64, 66, 129, 130};
  for (const Call& call : {tokens, pieces}) {
    expect_near(run_forward<double>(f, in, call), want, 1e-11, "split");
    expect_near(run_forward<float>(f, in, call), want, 2e-5, "split, float");
    expect_near(run_backward<double>(f, in, d, call), grad, 1e-10, "split");
    expect_near(run_backward<float>(f, in, d, call), grad, 1e-4, "split, float");
  }
}

TEST(PathAttention, EveryTargetInFloat) {
  Path f;
  f.T = 70, f.gates = true, f.capacity = 67, f.past = {67}, f.H = 2, f.G = 1, f.K = 5, f.V = 7;
  const Values in = f.draw_values(), d = draw_gradients(f, 6), want = f.reference(in);
  const Values grad = run_backward<double>(f, in, d, {});
  for (const std::string& target : ttr::simd_targets())
    for (const bool strided : {false, true}) {
      const Call call{Form::best, 0, strided, {69}, target};
      expect_near(run_forward<float>(f, in, call), want, 2e-5, target);
      expect_near(run_backward<float>(f, in, d, call), grad, 1e-4, target);
    }
}

// Steps of zero: softmax attention.
TEST(PathAttention, WithoutStepsIsSoftmaxAttention) {
  Path f;
  f.T = 150;
  Values in = f.draw_values();
  std::fill(in["beta"].begin(), in["beta"].end(), 0.0);
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences();
  AttentionProblem<double> a;
  a.sequences = list, a.heads = f.H, a.key_heads = f.G, a.key_dim = f.K, a.value_dim = f.V, a.scale = f.scale;
  a.q = x.view<4>("q"), a.k = x.view<4>("k"), a.v = x.view<4>("v"), a.o = x.view<4>("o");
  Scratch<double> scratch(attention::workspace_bytes<double>(f.H, f.G, f.K, f.V, f.T, 0, 0, false));
  ASSERT_EQ(attention::forward(a, ttr::simd<double>(""), scratch.workspace()), Status::ok);
  const Values out = run_forward<double>(f, in, {});
  EXPECT_LE(distance(out.at("o"), x.held["o"].get()), 1e-13);
}

// Reflections in the same w cancel in pairs; a projection (beta = 1) forgets for good.
TEST(PathAttention, ReflectionsAndProjections) {
  for (const double step : {1.0, 2.0}) {
    Path f;
    f.T = 1000, f.H = f.G = 1, f.K = 2, f.V = 1, f.scale = 1;
    Values in = f.draw_values();
    for (Size t = 0; t < f.T; ++t) in["w"][t * 2] = 0, in["w"][t * 2 + 1] = 1, in["beta"][t] = step;
    const Doubles &q = in["q"], &k = in["k"], &v = in["v"];
    Doubles want(f.T);
    for (Size t = 0; t < f.T; ++t) {
      double above = 0, below = 0;
      for (Size i = 0; i <= t; ++i) {
        const double factor = step == 2 ? ((t - i) % 2 ? -1.0 : 1.0) : i == t ? 1.0 : 0.0;
        const double weight = std::exp(q[t * 2] * k[i * 2] + factor * q[t * 2 + 1] * k[i * 2 + 1]);
        above += weight * v[i], below += weight;
      }
      want[t] = above / below;
    }
    EXPECT_LE(distance(run_forward<double>(f, in, {}).at("o"), want), 1e-13) << step;
    EXPECT_LE(distance(run_forward<float>(f, in, {}).at("o"), want), 1e-5) << step;
  }
}

// 4096 unit reflections: queries keep their length, so float stays as exact as at the start.
TEST(PathAttention, ManyReflectionsInFloat) {
  Path f;
  f.T = 4096, f.H = f.G = 1, f.K = 16, f.V = 2, f.scale = 0.25;
  Values in = f.draw_values();
  for (Size t = 0; t < f.T; ++t) {
    double sum = 0;
    for (Size c = 0; c < f.K; ++c) sum += in["w"][t * f.K + c] * in["w"][t * f.K + c];
    for (Size c = 0; c < f.K; ++c) in["w"][t * f.K + c] = static_cast<float>(in["w"][t * f.K + c] / std::sqrt(sum));
    in["beta"][t] = 2;
  }
  const Values want = run_forward<double>(f, in, {}), d = draw_gradients(f, 4);
  expect_near(run_forward<float>(f, in, {}), want, 2e-5, "reflections");
  expect_near(run_backward<float>(f, in, d, {}), run_backward<double>(f, in, d, {}), 1e-4, "reflections");
}

TEST(PathAttention, StrongGates) {
  Path f;
  f.gates = true, f.T = 100, f.capacity = 40, f.past = {40}, f.H = 1, f.K = 2, f.V = 1;
  Values in = f.draw_values();
  for (const char* name : {"g", "past_g"})
    for (std::size_t i = 0; i < in[name].size(); ++i) in[name][i] = i % 5 == 0 ? -1e4 : i % 7 == 0 ? -20 : 0.0078125;
  const Values d = draw_gradients(f, 8), want = f.reference(in), grad = run_backward<double>(f, in, d, {});
  expect_near(grad, differences(f, in, d), 1e-6, "differences");
  expect_near(run_forward<double>(f, in, {}), want, 1e-11, "double");
  expect_near(run_forward<float>(f, in, {}), want, 2e-5, "float");
  expect_near(run_backward<float>(f, in, d, {}), grad, 1e-4, "float");
}

// A closed gate: nothing before it is seen. It is a new sequence without a past.
TEST(PathAttention, ClosedGate) {
  for (const Size cut : {1, 30, 64, 100, 128}) {
    Path f;
    f.gates = true, f.T = 200, f.capacity = 7, f.past = {7};
    Values in = f.draw_values();
    for (int h = 0; h < f.H; ++h) in["g"][static_cast<std::size_t>(cut * f.H + h)] = -inf;
    Path parts = f;
    parts.packed = {0, cut, f.T}, parts.past = {7, 0};
    Values split = in;
    for (const char* name : {"past_k", "past_v", "past_w", "past_beta", "past_g"})
      split[name].resize(2 * in[name].size());
    const Values want = parts.reference(split), d = draw_gradients(f, 9);
    const Values want_d = run_backward<double>(parts, split, d, {});
    expect_near(run_forward<double>(f, in, {}), want, 1e-11, "closed");
    expect_near(run_forward<float>(f, in, {}), want, 2e-5, "closed, float");
    Call tokens;
    for (Size t = 1; t < f.T; ++t) tokens.cuts.push_back(t);
    expect_near(run_forward<double>(f, in, tokens), want, 1e-11, "closed, token by token");
    for (const auto& [name, x] : run_backward<double>(f, in, d, {})) {
      const Doubles& y = want_d.at(name);
      EXPECT_LE(distance(x, Doubles(y.begin(), y.begin() + static_cast<Size>(x.size()))), 1e-10) << name << cut;
    }
  }
}

// The map and the gate of the oldest pair stand between nothing: not read, no gradient.
TEST(PathAttention, OldestMapIsNotUsed) {
  for (const Size T : {1, 3, 70, 200}) {
    Path f;
    f.T = T, f.gates = true, f.G = 2;
    Values in = f.draw_values();
    const Values want = f.reference(in), d = draw_gradients(f, 3), want_d = run_backward<double>(f, in, d, {});
    const auto spoil = [&](const char* name, Size width) {
      for (Size c = 0; c < width; ++c) {
        EXPECT_EQ(want_d.at(name)[static_cast<std::size_t>(c)], 0) << name;
        in[name][static_cast<std::size_t>(c)] = nan;
      }
    };
    spoil("w", f.G * f.K), spoil("beta", f.G), spoil("g", f.H);
    Bound<double> x(f.specs(), &in, false);
    Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
    ASSERT_EQ(f.forward(x, f.sequences(), Form::best, 0, ttr::simd<double>(""), scratch.workspace()), Status::ok);
    EXPECT_LE(distance(x.held["o"].get(), want.at("o")), 1e-12) << T;
  }
}

TEST(PathAttention, LargeLogits) {
  Path f;
  f.T = 100, f.scale = 1e3;
  const Values in = f.draw_values(), want = f.reference(in), d = draw_gradients(f, 2);
  expect_near(run_forward<double>(f, in, {}), want, 1e-9, "large logits");
  for (const auto& [name, x] : run_backward<float>(f, in, d, {}))
    for (const double y : x) EXPECT_TRUE(std::isfinite(y)) << name;
}

// NaN reaches the tokens from its own on, in its own sequence, and no gradient of another one.
TEST(PathAttention, NotANumberStaysInItsSequence) {
  for (const char* name : {"q", "k", "v", "w", "beta", "past_w", "d_o"})
    for (const Size at : {41, 77, 110}) {
      Path f;
      f.T = 150, f.packed = {0, 40, 111, 150}, f.H = f.G = 1, f.K = 2, f.V = 2, f.capacity = 3, f.past = {3, 3, 2};
      Values in = f.draw_values(), d = draw_gradients(f, 3);
      const Values want = f.reference(in), want_d = run_backward<double>(f, in, d, {});
      const bool given = name[0] == 'd', old = name[0] == 'p', step = name[0] == 'b';
      const Size place = old ? (1 * 3 + 2) * 2 : step ? at : at * 2;
      (given ? d[name + 2] : in[name])[static_cast<std::size_t>(place)] = nan;
      Bound<double> x(f.specs(), &in, false);
      Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, true));
      ASSERT_EQ(f.forward(x, f.sequences(), Form::best, 0, ttr::simd<double>(""), scratch.workspace()), Status::ok);
      const Doubles o = x.held["o"].get();
      const Values grad = run_backward<double>(f, in, d, {});
      bool reached = false;
      for (Size t = 0; t < f.T; ++t)
        for (Size j = 0; j < 2; ++j) {
          const std::size_t i = static_cast<std::size_t>(t * 2 + j);
          if (given || t >= 111 || t < (old ? 40 : at)) EXPECT_NEAR(o[i], want.at("o")[i], 1e-12) << name << t;
          else reached = reached || std::isnan(o[i]);
          if (t >= 40 && t < 111) continue;
          for (const char* to : {"q", "k", "v", "w"})
            EXPECT_NEAR(grad.at(to)[i], want_d.at(to)[i], 1e-12) << name << " to " << to << t;
        }
      EXPECT_TRUE(given || reached) << name;
    }
}

// Rows of the past behind past_count are not there.
TEST(PathAttention, RestOfThePastIsNotRead) {
  Path f;
  f.T = 9, f.capacity = 70, f.past = {66}, f.gates = true;
  Values in = f.draw_values();
  const Values want = f.reference(in);
  for (const Spec& part : f.kept()) {
    Doubles& x = in["past_" + part.name];
    std::fill(x.begin() + 66 * count_of(part.extent), x.end(), nan);
  }
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences();
  Pairs<double> pairs = f.before(x, list);
  auto p = f.problem(x, list, pairs);
  p.past_k = x.view<4>("past_k"), p.past_v = x.view<4>("past_v"), p.past_w = x.view<4>("past_w");
  p.past_beta = x.view<3>("past_beta"), p.past_g = x.view<3>("past_g"), p.past_count = f.past.data();
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, true));
  ASSERT_EQ(path_attention::forward(p, ttr::simd<double>(""), scratch.workspace()), Status::ok);
  EXPECT_LE(distance(x.held["o"].get(), want.at("o")), 1e-12);
}

TEST(PathAttention, ScratchGrowsWithTimeOnly) {
  const auto bytes = [](Size T, Size past, bool backward) {
    return path_attention::workspace_bytes<float>(8, 2, 64, 64, T, past, backward);
  };
  EXPECT_EQ(bytes(100, 0, false), bytes(1 << 20, 1 << 20, false));
  EXPECT_LE(bytes(1 << 20, 0, false), std::size_t{1} << 20);
  // Backward, per pair: keys, their gradient, the queries of a tile, dv, and as much again for the two products; for
  // each of the 4 heads of a group lse, delta, a gate and two sums in double; per block sums of gates.
  const std::size_t more = (1u << 20) - (1u << 10);
  EXPECT_EQ(bytes(1 << 20, 0, true) - bytes(1 << 10, 0, true),
            (4 * (6 * 64 + 4 * (1 + 1 + 1 + 2 * 2))) * more + (4 + 1) * 8 * more / 64);
}

TEST(PathAttention, WhatIsWrongIsSaid) {
  Path f;
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
  EXPECT_EQ(path_attention::forward(p, s, w), Status::ok);
  EXPECT_EQ(path_attention::forward(p, s, Workspace{w.data, 64}), Status::small_workspace);
  p.key_heads = 3;
  EXPECT_EQ(path_attention::forward(p, s, w), Status::bad_shape);
  p = good, p.q = {};
  EXPECT_EQ(path_attention::forward(p, s, w), Status::missing_input);
  p = good, p.w = {};
  EXPECT_EQ(path_attention::forward(p, s, w), Status::missing_input);
  p = good, p.beta = {};
  EXPECT_EQ(path_attention::forward(p, s, w), Status::missing_input);
  p = good, p.past_w = {};
  EXPECT_EQ(path_attention::forward(p, s, w), Status::missing_input);
  p = good, p.past_g = {};
  EXPECT_EQ(path_attention::forward(p, s, w), Status::missing_input);
  p.g = {};
  EXPECT_EQ(path_attention::forward(p, s, w), Status::ok);
  const Sequence wrong[] = {{0, 3, 2}};
  p = good, p.sequences = wrong;
  EXPECT_EQ(path_attention::forward(p, s, w), Status::bad_shape);
  pairs.count = {-1};
  EXPECT_EQ(path_attention::forward(good, s, w), Status::bad_shape);
  pairs.count = {pairs.capacity + 1};
  EXPECT_EQ(path_attention::forward(good, s, w), Status::bad_shape);
  pairs.count = {3};
  PathAttentionGradient<double> d;
  EXPECT_EQ(path_attention::backward(good, d, s, w), Status::ok);  // nothing comes in
  d.d_o = good.o;
  EXPECT_EQ(path_attention::backward(good, d, s, w), Status::ok);  // nothing is wanted
  EXPECT_EQ(path_attention::backward(good, d, s, Workspace{w.data, 64}), Status::small_workspace);
}

}  // namespace
