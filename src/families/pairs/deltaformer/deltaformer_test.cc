// DeltaFormer against a literal loop over tokens and pairs, and its gradients against differences of that loop.
#include "families/pairs/deltaformer/deltaformer.h"

#include <gtest/gtest.h>

#include "families/pairs/attention/attention.h"
#include "families/pairs/pairs_harness.h"

namespace {

using namespace ttr_families_test;
using namespace ttr::families;

constexpr double inf = std::numeric_limits<double>::infinity();

struct Deltaformer : PairFamily {
  double scale = 0.6;
  bool steps = true;  // beta is an input

  std::string name() const { return "deltaformer" + sizes(); }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = {{"q", Role::input, {B, T, H, K}, 0, 1.5},
                           {"k", Role::input, {B, T, G, K}},
                           {"v", Role::input, {B, T, G, V}},
                           {"o", Role::output, {B, T, H, V}},
                           {"u", Role::output, {B, T, H, V}}};
    if (steps) s.push_back({"beta", Role::input, {B, T, H}, 0.5, 0.3});
    if (capacity > 0) {
      s.push_back({"past_k", Role::input, {N(), capacity, G, K}});
      s.push_back({"past_u", Role::input, {N(), capacity, H, V}});
    }
    return s;
  }
  Values draw_values() const { return draw(specs(), seed); }
  std::vector<Spec> kept() const override { return {{"k", Role::input, {G, K}}, {"u", Role::output, {H, V}}}; }

  Values reference(const Values& in) const {
    Values out = {{"o", Doubles(B * T * H * V)}, {"u", Doubles(B * T * H * V)}};
    const auto data = [&](const char* name) { return in.count(name) ? in.at(name).data() : nullptr; };
    const double *const q = data("q"), *const v = data("v"), *const beta = data("beta");
    const double* const k[2] = {data("k"), data("past_k")};
    const double* const u[2] = {out["u"].data(), data("past_u")};
    Size index = 0;
    for (const Sequence& n : sequences()) {
      const Size before = past_of(index);
      const auto token = [&](Size i) { return i < before ? index * capacity + i : n.row * T + n.begin + i - before; };
      for (int h = 0; h < H; ++h)
        for (Size t = n.begin; t < n.end; ++t) {
          const Size position = before + t - n.begin, query = (n.row * T + t) * H + h, shared = h / (H / G);
          Doubles logit(position + 1);
          for (Size i = 0; i <= position; ++i)
            for (Size c = 0; c < K; ++c)
              logit[i] += scale * q[query * K + c] * k[i < before][(token(i) * G + shared) * K + c];
          const auto mean = [&](Size end) {
            double top = -inf, below = 0;
            Doubles above(V);
            for (Size i = 0; i < end; ++i) top = std::max(top, logit[i]);
            for (Size i = 0; i < end; ++i) {
              const double weight = std::exp(logit[i] - top);
              below += weight;
              for (Size j = 0; j < V; ++j) above[j] += weight * u[i < before][(token(i) * H + h) * V + j];
            }
            for (double& x : above) x = end > 0 ? x / below : 0.0;
            return above;
          };
          const Doubles older = mean(position);
          for (Size j = 0; j < V; ++j)
            out["u"][query * V + j] = v[((n.row * T + t) * G + shared) * V + j] - (beta ? beta[query] : 1) * older[j];
          const Doubles now = mean(position + 1);
          std::copy(now.begin(), now.end(), out["o"].begin() + query * V);
        }
      ++index;
    }
    return out;
  }

  template <class X>
  DeltaformerProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list, Pairs<X>& p) const {
    DeltaformerProblem<X> a;
    fill(a, x, list, p);
    a.scale = static_cast<X>(scale), a.beta = x.template view<3>("beta");
    a.past_u = p.template view<4>("u"), a.u = x.template view<4>("u");
    return a;
  }
  template <class X>
  std::size_t bytes(Size longest, Form, int, bool backward) const {
    return deltaformer::workspace_bytes<X>(H, G, K, V, longest, room(), backward);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form, int, const Simd<X>& s, Workspace w) const {
    Pairs<X> p = before(x, list);
    return deltaformer::forward(problem(x, list, p), s, w);
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form, int,
                  const Simd<X>& s, Workspace w) const {
    Pairs<X> p = before(x, list), d = zeros(p);
    auto a = problem(x, list, p);
    a.o = {}, a.u = {};
    DeltaformerGradient<X> out;
    fill_gradient(out, given, to, d);
    out.d_u = given.template view<4>("u"), out.d_beta = to.template view<3>("beta");
    out.d_past_u = d.template view<4>("u");
    const Status status = deltaformer::backward(a, out, s, w);
    add_before(d, given, to, list);
    return status;
  }
};

TEST(Deltaformer, AgainstLoopsAndDifferences) {
  for (const bool steps : {true, false})
    for (const Size T : {0, 1, 2, 7}) {
      Deltaformer f;
      f.steps = steps, f.T = T, check_family(f, once);
      f.capacity = 6, f.past = {5}, f.H = 4, f.G = 2, f.K = 1, f.V = 1, check_family(f, once);
    }
}

// Blocks of 64: tokens and past that divide them and that do not.
TEST(Deltaformer, ManyBlocks) {
  struct Case {
    Size T, past;
    int H, G;
  };
  for (const Case& c :
       std::vector<Case>{{130, 0, 1, 1}, {5, 131, 2, 1}, {64, 64, 1, 1}, {65, 1, 2, 2}, {1, 200, 3, 1}}) {
    Deltaformer f;
    f.T = c.T, f.capacity = c.past, f.H = c.H, f.G = c.G, f.K = 2, f.V = 1;
    if (c.past > 0) f.past = {c.past};
    check_family(f, once);
  }
}

TEST(Deltaformer, LargerHeads) {
  Deltaformer f;
  f.T = 200, f.H = 6, f.G = 2, f.K = 19, f.V = 33, f.scale = 0.2;
  check_family(f, once, false);
  f.T = 1, f.capacity = 200, f.past = {150}, f.V = 100, check_family(f, once, false);
}

TEST(Deltaformer, Packed) {
  Deltaformer f;
  f.T = 12, f.packed = {0, 3, 3, 4, 12}, f.H = 4, f.G = 2;
  f.capacity = 20, f.past = {20, 3, 0, 17};
  check_family(f, once);
  check_alone(f, once);
  f = {}, f.B = 3, f.T = 5, f.capacity = 4, f.past = {4, 0, 1}, check_family(f, once), check_alone(f, once);
  f = {}, f.T = 170, f.packed = {0, 1, 70, 135, 170}, f.capacity = 100, f.past = {70, 0, 100, 2};
  check_family(f, once, false);
  check_alone(f, once);
}

// Token by token, and in pieces that end within a block.
TEST(Deltaformer, SplitAnywhere) {
  Deltaformer f;
  f.T = 140, f.H = 2, f.G = 2;
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

TEST(Deltaformer, EveryTargetInFloat) {
  Deltaformer f;
  f.T = 70, f.capacity = 67, f.past = {67}, f.H = 2, f.G = 1, f.K = 5, f.V = 7;
  const Values in = f.draw_values(), d = draw_gradients(f, 6), want = f.reference(in);
  const Values grad = run_backward<double>(f, in, d, {});
  for (const std::string& target : ttr::simd_targets())
    for (const bool strided : {false, true}) {
      const Call call{Form::best, 0, strided, {69}, target};
      expect_near(run_forward<float>(f, in, call), want, 2e-5, target);
      expect_near(run_backward<float>(f, in, d, call), grad, 1e-4, target);
    }
}

// Steps of zero: softmax attention, and u = v.
TEST(Deltaformer, WithoutStepsIsSoftmaxAttention) {
  Deltaformer f;
  f.T = 100;
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
  for (Size t = 0; t < f.T; ++t)
    for (int h = 0; h < f.H; ++h)
      for (Size j = 0; j < f.V; ++j) EXPECT_EQ(out.at("u")[(t * f.H + h) * f.V + j], in["v"][t * f.V + j]);
}

// Logits of hundreds, and steps above one that make the values grow.
TEST(Deltaformer, LargeLogitsAndSteps) {
  Deltaformer f;
  f.T = 100, f.scale = 100;
  const Values in = f.draw_values(), d = draw_gradients(f, 2);
  expect_near(run_forward<double>(f, in, {}), f.reference(in), 1e-10, "large logits");
  for (const auto& [name, x] : run_backward<float>(f, in, d, {}))
    for (const double y : x) EXPECT_TRUE(std::isfinite(y)) << name;
  f.scale = 0.6;
  Values steps = in;
  for (double& b : steps["beta"]) b = 1.875;
  expect_near(run_forward<double>(f, steps, {}), f.reference(steps), 1e-11, "large steps");
  expect_near(run_forward<float>(f, steps, {}), f.reference(steps), 2e-5, "large steps, float");
  Call tokens;
  for (Size t = 1; t < f.T; ++t) tokens.cuts.push_back(t);
  expect_near(run_backward<double>(f, steps, d, {}), run_backward<double>(f, steps, d, tokens), 1e-10, "large steps");
}

// NaN reaches the tokens from its own on, in its own sequence, and no gradient of another one.
TEST(Deltaformer, NotANumberStaysInItsSequence) {
  for (const char* name : {"q", "k", "v", "beta", "past_u", "d_o", "d_u"})
    for (const Size at : {40, 77, 110}) {
      Deltaformer f;
      f.T = 150, f.packed = {0, 40, 111, 150}, f.H = f.G = 1, f.K = 2, f.V = 2, f.capacity = 3, f.past = {3, 3, 2};
      Values in = f.draw_values(), d = draw_gradients(f, 3);
      const Values want = f.reference(in), want_d = run_backward<double>(f, in, d, {});
      const bool given = name[0] == 'd', old = name[0] == 'p', step = name[0] == 'b';
      const Size place = old ? (1 * 3 + 2) * 2 : step ? at : at * 2;
      (given ? d[name + 2] : in[name])[static_cast<std::size_t>(place)] = std::numeric_limits<double>::quiet_NaN();
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
          for (const char* to : {"q", "k", "v"})
            EXPECT_NEAR(grad.at(to)[i], want_d.at(to)[i], 1e-12) << name << " to " << to << t;
        }
      EXPECT_TRUE(given || reached) << name;
    }
}

// Rows of the past behind past_count are not there.
TEST(Deltaformer, RestOfThePastIsNotRead) {
  Deltaformer f;
  f.T = 9, f.capacity = 70, f.past = {66};
  Values in = f.draw_values();
  const Values want = f.reference(in);
  for (Size i = 66; i < 70; ++i) {
    for (Size c = 0; c < f.G * f.K; ++c) in["past_k"][i * f.G * f.K + c] = std::numeric_limits<double>::quiet_NaN();
    for (Size c = 0; c < f.H * f.V; ++c) in["past_u"][i * f.H * f.V + c] = std::numeric_limits<double>::quiet_NaN();
  }
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences();
  Pairs<double> pairs = f.before(x, list);
  auto p = f.problem(x, list, pairs);
  p.past_k = x.view<4>("past_k"), p.past_u = x.view<4>("past_u"), p.past_count = f.past.data();
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, true));
  ASSERT_EQ(deltaformer::forward(p, ttr::simd<double>(""), scratch.workspace()), Status::ok);
  EXPECT_LE(distance(x.held["o"].get(), want.at("o")), 1e-12);
  EXPECT_LE(distance(x.held["u"].get(), want.at("u")), 1e-12);
}

TEST(Deltaformer, ScratchGrowsWithTimeOnly) {
  const auto bytes = [](Size T, Size past, bool backward) {
    return deltaformer::workspace_bytes<float>(8, 2, 64, 64, T, past, backward);
  };
  const std::size_t more = (1u << 20) - (1u << 10);
  EXPECT_EQ(bytes(1 << 10, 0, false), bytes(1 << 10, 1 << 20, false));
  EXPECT_EQ(bytes(1 << 20, 0, false) - bytes(1 << 10, 0, false), 4 * 4 * 64 * more);
  // Backward: u, c, log-sum and share for each of the 4 heads of a group; du and dk.
  EXPECT_EQ(bytes(1 << 20, 0, true) - bytes(1 << 10, 0, true), 4 * (4 * (64 + 64 + 1 + 1) + 64 + 64) * more);
  EXPECT_EQ(bytes(1, 1 << 20, true) - bytes(1, 1 << 10, true), 4 * (64 + 64) * more);
}

TEST(Deltaformer, WhatIsWrongIsSaid) {
  Deltaformer f;
  f.capacity = 3, f.past = {3};
  const Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences();
  const Simd<double>& s = ttr::simd<double>("");
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, true));
  const Workspace w = scratch.workspace();
  Pairs<double> pairs = f.before(x, list);
  const auto good = f.problem(x, list, pairs);
  auto p = good;
  EXPECT_EQ(deltaformer::forward(p, s, w), Status::ok);
  EXPECT_EQ(deltaformer::forward(p, s, Workspace{w.data, 64}), Status::small_workspace);
  p.key_heads = 3;
  EXPECT_EQ(deltaformer::forward(p, s, w), Status::bad_shape);
  p = good, p.q = {};
  EXPECT_EQ(deltaformer::forward(p, s, w), Status::missing_input);
  p = good, p.v = {};
  EXPECT_EQ(deltaformer::forward(p, s, w), Status::missing_input);
  p = good, p.past_u = {};
  EXPECT_EQ(deltaformer::forward(p, s, w), Status::missing_input);
  const Sequence wrong[] = {{0, 3, 2}};
  p = good, p.sequences = wrong;
  EXPECT_EQ(deltaformer::forward(p, s, w), Status::bad_shape);
  pairs.count = {-1};
  EXPECT_EQ(deltaformer::forward(good, s, w), Status::bad_shape);
  pairs.count = {pairs.capacity + 1};
  EXPECT_EQ(deltaformer::forward(good, s, w), Status::bad_shape);
  pairs.count = {3};
  DeltaformerGradient<double> d;
  EXPECT_EQ(deltaformer::backward(good, d, s, w), Status::ok);  // nothing comes in
  d.d_o = good.o;
  EXPECT_EQ(deltaformer::backward(good, d, s, w), Status::ok);  // nothing is wanted
  EXPECT_EQ(deltaformer::backward(good, d, s, Workspace{w.data, 64}), Status::small_workspace);
}

}  // namespace
