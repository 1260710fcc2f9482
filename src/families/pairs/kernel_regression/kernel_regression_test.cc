// Kernel ridge regression against a literal system for every query, and its gradients against differences.
#include "families/pairs/kernel_regression/kernel_regression.h"

#include <gtest/gtest.h>

#include "families/pairs/kernel_regression/reference.h"
#include "families/solve/least_squares/least_squares.h"

namespace {

using namespace ttr_families_test;
using namespace ttr::families;
using Kind = RegressionKernel;

constexpr double float_tolerance = 1e-6;

TEST(KernelRegression, AgainstLoopsAndDifferences) {
  for (const Kind kernel : {Kind::exponential, Kind::gaussian, Kind::linear, Kind::polynomial})
    for (const Ridge ridge : {Ridge::head, Ridge::token, Ridge::all})
      for (const Size T : {0, 1, 2, 7}) {
        Regression f;
        f.kernel = kernel, f.ridge = ridge, f.T = T;
        check_family(f, once, true, float_tolerance);
        f.capacity = 6, f.past = {5}, f.H = 4, f.G = 2, f.degree = 3, check_family(f, once, true, float_tolerance);
        if (ridge == Ridge::token) continue;
        f.keeps_factor = true, check_family(f, once, true, float_tolerance);
      }
}

TEST(KernelRegression, OneNumberPerKey) {
  for (const int degree : {1, 4}) {
    Regression f;
    f.kernel = Kind::polynomial, f.degree = degree, f.K = f.V = f.H = 1, f.B = 3, f.T = 5;
    check_family(f, once, true, float_tolerance);
  }
}

// Blocks of 64 pairs and 64 queries, panels of 256: sizes that divide them and that do not.
TEST(KernelRegression, ManyBlocks) {
  struct Case {
    Size T, past;
    int H, G;
    bool kept;
    Ridge ridge;
    Kind kernel;
  };
  for (const Case& c : std::vector<Case>{{64, 0, 1, 1, false, Ridge::head, Kind::exponential},
                                         {70, 131, 2, 1, true, Ridge::all, Kind::gaussian},
                                         {66, 64, 2, 2, true, Ridge::head, Kind::exponential},
                                         {130, 3, 1, 1, true, Ridge::head, Kind::polynomial},
                                         {67, 0, 1, 1, false, Ridge::token, Kind::gaussian},
                                         {9, 300, 6, 1, true, Ridge::all, Kind::gaussian}}) {
    Regression f;
    f.T = c.T, f.capacity = c.past, f.H = c.H, f.G = c.G, f.keeps_factor = c.kept, f.ridge = c.ridge,
    f.kernel = c.kernel;
    f.K = 4, f.V = 3;
    if (c.past > 0) f.past = {c.past};
    check_family(f, once, false, float_tolerance);
  }
}

// The derivative along a random direction of each input.
void check_along_a_direction(const Regression& f) {
  const Values in = f.draw_values(), d = draw_gradients(f, 5), grad = run_backward<double>(f, in, d, {});
  const Values directions = draw(f.specs(), 6);
  for (const auto& [name, gradient] : grad) {
    const Doubles& along = directions.at(name);
    double want = 0, got = 0, size = 0;
    for (const double h : {1e-5, -1e-5}) {
      Values x = in;
      for (std::size_t i = 0; i < along.size(); ++i) x[name][i] += h * along[i];
      const Doubles o = f.reference(x).at("o");
      for (std::size_t i = 0; i < o.size(); ++i) want += d.at("o")[i] * o[i] / (2 * h);
    }
    for (std::size_t i = 0; i < along.size(); ++i)
      got += gradient[i] * along[i], size += std::abs(gradient[i] * along[i]);
    EXPECT_NEAR(got, want, 1e-7 * (1 + size)) << f.name() << ": " << name;
  }
}

TEST(KernelRegression, GradientsOfManyBlocks) {
  for (const Kind kernel : {Kind::exponential, Kind::gaussian, Kind::polynomial})
    for (const bool causal : {true, false}) {
      Regression f;
      f.T = 66, f.capacity = 70, f.past = {9}, f.kernel = kernel, f.causal = causal, f.H = 1;
      check_along_a_direction(f);
    }
}

TEST(KernelRegression, Packed) {
  for (const bool kept : {false, true})
    for (const Ridge ridge : {Ridge::head, Ridge::token}) {
      if (kept && ridge == Ridge::token) continue;
      Regression f;
      f.T = 12, f.packed = {0, 3, 3, 4, 12}, f.H = 4, f.G = 2, f.capacity = 9, f.past = {9, 3, 0, 7};
      f.keeps_factor = kept, f.ridge = ridge;
      check_family(f, once, ridge == Ridge::token, float_tolerance);
      if (!kept) check_alone(f, once);
    }
  Regression f;
  f.T = 170, f.packed = {0, 1, 70, 135, 170}, f.capacity = 100, f.past = {70, 0, 100, 2}, f.kernel = Kind::gaussian;
  check_family(f, once, false, float_tolerance);
  check_alone(f, once);
}

TEST(KernelRegression, Window) {
  for (const Size window : {1, 2, 3, 100})
    for (const Ridge ridge : {Ridge::head, Ridge::token, Ridge::all})
      for (const bool kept : {false, true}) {
        if (kept && ridge == Ridge::token) continue;
        Regression f;
        f.window = window, f.ridge = ridge, f.T = 8, f.capacity = 4, f.past = {3}, f.kernel = Kind::gaussian, f.H = 2;
        f.keeps_factor = kept;
        check_family(f, once, true, float_tolerance);
      }
}

// Windows that end inside a block and at its border, shorter and longer than what was there before, and several heads
// that share a factor or have one each.
TEST(KernelRegression, WindowOfManyBlocks) {
  struct Case {
    Size T, past, window;
    int H, G;
    bool kept;
    Ridge ridge;
  };
  for (const Case& c : std::vector<Case>{{75, 0, 70, 1, 1, false, Ridge::head},
                                         {130, 0, 64, 1, 1, true, Ridge::head},
                                         {9, 200, 129, 2, 1, true, Ridge::all},
                                         {90, 30, 65, 2, 1, false, Ridge::all},
                                         {70, 40, 63, 2, 2, true, Ridge::head},
                                         {70, 5, 67, 2, 1, false, Ridge::token}}) {
    Regression f;
    f.T = c.T, f.capacity = c.past, f.window = c.window, f.H = c.H, f.G = c.G, f.keeps_factor = c.kept,
    f.ridge = c.ridge;
    f.kernel = Kind::gaussian, f.K = 3, f.V = 2;
    if (c.past > 0) f.past = {c.past};
    check_family(f, once, false, float_tolerance);
    if (!c.kept) check_alone(f, once);
    check_along_a_direction(f);
  }
}

// The list cut to the window after every call, as a stream keeps it, and the factor beside it: after three thousand
// tokens it is as good as a new one.
TEST(KernelRegression, WindowDoesNotDrift) {
  Regression f;
  f.T = 3000, f.H = f.G = 1, f.window = 40, f.kernel = Kind::gaussian, f.K = 2, f.V = 2;
  Values in = f.draw_values();
  in["ridge"][0] = 1e-6;
  const Size W = f.window, room = W;
  Doubles list_k(room * f.K), list_v(room * f.V), triangle(room * (room + 1) / 2), Z(room * f.V), o(2), fresh(2);
  std::int64_t there = 0, count = 0;
  double worst = 0, size = 0;
  for (Size t = 0; t < f.T; ++t) {
    const std::vector<Sequence> token = {{0, 0, 1}};
    KernelRegressionProblem<double> p;
    p.sequences = token, p.key_dim = f.K, p.value_dim = f.V, p.window = W, p.kernel = f.kernel;
    p.bandwidth = f.bandwidth;
    p.q = ttr::view<const double>(&in["q"][t * f.K], 1, 1, 1, f.K);
    p.k = ttr::view<const double>(&in["k"][t * f.K], 1, 1, 1, f.K);
    p.v = ttr::view<const double>(&in["v"][t * f.V], 1, 1, 1, f.V);
    p.ridge = {in["ridge"].data(), {1, 1, 1}, {0, 0, 0}};
    p.past_k = ttr::view<const double>(list_k.data(), 1, room, 1, f.K);
    p.past_v = ttr::view<const double>(list_v.data(), 1, room, 1, f.V);
    p.past_count = &there;
    const auto run = [&](Doubles& to) {
      p.o = ttr::view(to.data(), 1, 1, 1, f.V);
      Scratch<double> scratch(kernel_regression::workspace_bytes(1, 1, f.K, f.V, there + 1, p.factored, false, W));
      ASSERT_EQ(kernel_regression::forward(p, ttr::simd<double>(""), scratch.workspace()), Status::ok);
      ASSERT_TRUE(scratch.intact());
    };
    run(fresh);
    p.triangle = triangle.data(), p.solved = Z.data(), p.factored = &count, p.factor_capacity = room;
    run(o);
    for (Size j = 0; j < f.V; ++j)
      worst = std::max(worst, std::abs(o[j] - fresh[j])), size = std::max(size, std::abs(fresh[j]));
    if (there == W) {
      std::copy(list_k.begin() + f.K, list_k.end(), list_k.begin());
      std::copy(list_v.begin() + f.V, list_v.end(), list_v.begin());
      --there;
    }
    std::copy_n(&in["k"][t * f.K], f.K, &list_k[there * f.K]);
    std::copy_n(&in["v"][t * f.V], f.V, &list_v[there * f.V]);
    ++there;
    ASSERT_EQ(count, there);
  }
  // 40 pairs, kappa = 1 and a ridge of 1e-6: either way of factoring is right to about 40 eps / ridge.
  EXPECT_LE(worst, 1e-8 * size);
}

// A pair that is not a number is forgotten when it leaves the window.
TEST(KernelRegression, WindowForgetsWhatIsNotANumber) {
  for (const char* name : {"k", "v"})
    for (const bool kept : {false, true})
      for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        Regression f;
        f.T = 60, f.H = f.G = 1, f.window = 9, f.keeps_factor = kept;
        Values in = f.draw_values();
        const Doubles want = f.reference(in).at("o");
        const Size at = 20, width = std::string(name) == "k" ? f.K : f.V;
        in[name][static_cast<std::size_t>(at * width)] = bad;
        Bound<double> x(f.specs(), &in, false);
        x.counts = f.counts();
        for (const auto& [begin, end] : {std::pair<Size, Size>{0, 7}, {7, 22}, {22, 28}, {28, f.T}}) {
          Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
          const auto list = clipped(f.sequences(), begin, end);
          ASSERT_EQ(f.forward(x, list, Form::best, 0, ttr::simd<double>(""), scratch.workspace()), Status::ok);
        }
        const Doubles got = x.held["o"].get();
        for (Size i = 0; i < static_cast<Size>(got.size()); ++i) {
          const Size t = i / f.V;
          const bool reached = t >= at && t < at + f.window && (width == f.K || i % f.V == 0);
          if (reached) {
            EXPECT_FALSE(std::isfinite(got[i])) << name << t;
          } else {
            EXPECT_NEAR(got[i], want[i], 1e-11) << name << t;
          }
        }
      }
}

// A kept factor of another number of pairs than the window sees is not used.
TEST(KernelRegression, WindowFactorOfAnotherPast) {
  Regression f;
  f.T = 6, f.capacity = 20, f.past = {20}, f.keeps_factor = true, f.window = 8;
  const Values in = f.draw_values();
  for (const std::int64_t stated : {0, 3, 7, 9, 20}) {
    Bound<double> x(f.specs(), &in, false);
    x.counts = f.counts();
    x.counts[0] = stated;
    Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
    EXPECT_EQ(f.forward(x, f.sequences(), Form::best, 0, ttr::simd<double>(""), scratch.workspace()), Status::ok);
    EXPECT_LE(distance(x.held["o"].get(), f.reference(in).at("o")), 1e-11) << stated;
  }
}

TEST(KernelRegression, TokenByToken) {
  for (const bool kept : {false, true})
    for (const Ridge ridge : {Ridge::head, Ridge::all}) {
      Regression f;
      f.T = 40, f.H = 6, f.G = 2, f.keeps_factor = kept, f.ridge = ridge, f.capacity = 5, f.past = {4};
      const Values in = f.draw_values(), want = f.reference(in);
      Call steps;
      for (Size t = 1; t < f.T; ++t) steps.cuts.push_back(t);
      expect_near(run_forward<double>(f, in, steps), want, 1e-11, f.name());
      expect_near(run_forward<float>(f, in, steps), want, float_tolerance, f.name());
    }
}

// A factor that lags behind the past is completed; one that is ahead of it, after the past was cut, is its corner.
TEST(KernelRegression, FactorBehindAndAhead) {
  Regression f;
  f.T = 9, f.capacity = 30, f.past = {30}, f.keeps_factor = true;
  const Values in = f.draw_values();
  const auto run = [&](Size past, std::vector<std::int64_t>& state) {
    Regression now = f;
    now.past = {past};
    Bound<double> x(now.specs(), &in, false);
    x.counts = state;
    Scratch<double> scratch(now.bytes<double>(now.T, Form::best, 0, false));
    EXPECT_EQ(now.forward(x, now.sequences(), Form::best, 0, ttr::simd<double>(""), scratch.workspace()), Status::ok);
    state = x.counts;
    EXPECT_LE(distance(x.held["o"].get(), now.reference(in).at("o")), 1e-11) << past;
  };
  auto state = f.counts();
  run(30, state);
  state[0] = 7;  // as if it had been kept up to there only
  run(30, state);
  run(12, state);
  state[0] = 12;
  run(30, state);
}

TEST(KernelRegression, NotCausal) {
  for (const Ridge ridge : {Ridge::head, Ridge::token, Ridge::all})
    for (const Size T : {1, 2, 9, 70}) {
      Regression f;
      f.causal = false, f.ridge = ridge, f.T = T, f.B = 2, f.kernel = Kind::gaussian;
      if (ridge != Ridge::head && T == 70) continue;
      check_whole(f, T < 9, float_tolerance, float_tolerance);
      f.capacity = 70, f.past = {65, 5}, f.H = 2, f.G = 2, f.K = 2, f.V = 5,
      check_whole(f, false, float_tolerance, float_tolerance);
      f.keeps_factor = ridge != Ridge::token, f.B = 1, f.packed = {0, T / 2, T},
      check_whole(f, false, float_tolerance, float_tolerance);
    }
}

// Queries that see pairs of somewhere else: no pairs of their own, the past alone.
TEST(KernelRegression, PastAlone) {
  Regression f;
  f.causal = false, f.T = 9, f.capacity = 13, f.past = {13};
  const Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences();
  auto pairs = f.before(x, list);
  auto p = f.problem(x, list, pairs);
  p.k = {}, p.v = {};
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, true));
  ASSERT_EQ(kernel_regression::forward(p, ttr::simd<double>(""), scratch.workspace()), Status::ok);
  Regression whole = f;
  whole.T = 13, whole.capacity = 0, whole.past = {};
  Values all = whole.draw_values(), d = draw_gradients(whole, 6);
  all["k"] = in.at("past_k"), all["v"] = in.at("past_v"), all["ridge"] = in.at("ridge");
  std::copy(in.at("q").begin(), in.at("q").end(), all["q"].begin());
  const Doubles got = x.held["o"].get(), want = whole.reference(all).at("o");
  EXPECT_LE(distance(got, Doubles(want.begin(), want.begin() + static_cast<Size>(got.size()))), 1e-12);

  std::fill(d["o"].begin() + static_cast<Size>(got.size()), d["o"].end(), 0.0);
  const Values grad = run_backward<double>(whole, all, d, {});
  Doubles d_k(in.at("past_k").size()), d_v(in.at("past_v").size());
  KernelRegressionGradient<double> out;
  out.d_o = ttr::view(static_cast<const double*>(d["o"].data()), 1, f.T, f.H, f.V);
  p.past_k = ttr::view(in.at("past_k").data(), 1, 13, f.G, f.K);
  p.past_v = ttr::view(in.at("past_v").data(), 1, 13, f.G, f.V);
  out.d_past_k = ttr::view(d_k.data(), 1, 13, f.G, f.K), out.d_past_v = ttr::view(d_v.data(), 1, 13, f.G, f.V);
  ASSERT_EQ(kernel_regression::backward(p, out, ttr::simd<double>(""), scratch.workspace()), Status::ok);
  EXPECT_LE(distance(d_k, grad.at("k")), 1e-12);
  EXPECT_LE(distance(d_v, grad.at("v")), 1e-12);

  pairs.count = {0};  // nothing to see
  p.past_count = pairs.count.data();
  ASSERT_EQ(kernel_regression::forward(p, ttr::simd<double>(""), scratch.workspace()), Status::ok);
  for (const double o : x.held["o"].get()) EXPECT_EQ(o, 0);
  ASSERT_EQ(kernel_regression::backward(p, out, ttr::simd<double>(""), scratch.workspace()), Status::ok);
}

// V' (K K' + ridge)^-1 K q = (K' K + ridge)^-1 K' V : the same answers from t x t and from K x K systems.
TEST(KernelRegression, LinearKernelIsRecursiveLeastSquares) {
  Regression f;
  f.kernel = Kind::linear, f.T = 150, f.H = f.G = 2, f.K = 7, f.V = 4;
  const Values in = f.draw_values(), d = draw_gradients(f, 4);
  Bound<double> x(f.specs(), &in, false), given(f.specs(), &d, false), to(f.specs(), nullptr, false);
  Doubles h(static_cast<std::size_t>(f.H * f.K * f.K)), hf(static_cast<std::size_t>(f.H * f.K * f.V));
  const auto list = f.sequences();
  LeastSquaresProblem<double> p{};
  p.linear.sequences = list, p.linear.heads = f.H, p.linear.key_heads = f.G;
  p.linear.key_dim = f.K, p.linear.value_dim = f.V, p.linear.scale = 1;
  p.linear.q = x.view<4>("q"), p.linear.k = x.view<4>("k"), p.linear.v = x.view<4>("v"), p.linear.o = x.view<4>("o");
  p.ridge = {x.pointer("ridge"), {1, f.T, f.H, f.K}, {0, 0, 1, 0}};
  p.h = h.data(), p.f = hf.data();
  Scratch<double> scratch(least_squares::workspace_bytes(f.K, f.V, f.T, SolveBy::cholesky, 0, true));
  LeastSquaresGradient<double> out{};
  out.linear.d_o = given.view<4>("o"), out.linear.d_q = to.view<4>("q"), out.linear.d_k = to.view<4>("k");
  out.linear.d_v = to.view<4>("v"), out.d_ridge = {to.pointer("ridge"), {1, f.T, f.H, f.K}, {0, 0, 1, 0}};
  ASSERT_EQ(least_squares::backward(p, out, Form::recurrent, ttr::simd<double>(""), scratch.workspace()), Status::ok);
  ASSERT_EQ(least_squares::forward(p, Form::recurrent, ttr::simd<double>(""), scratch.workspace()), Status::ok);
  EXPECT_LE(distance(run_forward<double>(f, in, {}).at("o"), x.held["o"].get()), 1e-11);
  for (const auto& [name, gradient] : run_backward<double>(f, in, d, {}))
    EXPECT_LE(distance(gradient, to.held[name].get()), 1e-10) << name;
}

// ridge o -> sum kappa(k_i, q) v_i as the ridge grows: unnormalised softmax attention.
TEST(KernelRegression, LargeRidgeIsUnnormalisedAttention) {
  Regression f;
  f.T = 70;
  Values in = f.draw_values();
  std::fill(in["ridge"].begin(), in["ridge"].end(), 1e9);
  Doubles got = run_forward<double>(f, in, {}).at("o"), want(got.size());
  for (double& o : got) o *= 1e9;
  for (Size t = 0; t < f.T; ++t)
    for (int h = 0; h < f.H; ++h)
      for (Size i = 0; i <= t; ++i)
        for (Size j = 0; j < f.V; ++j)
          want[(t * f.H + h) * f.V + j] +=
              f.kappa(&in["k"][i * f.K], &in["q"][(t * f.H + h) * f.K]) * in["v"][i * f.V + j];
  EXPECT_LE(distance(got, want), 1e-6);
}

// A small ridge: asked for a key it has seen, the memory answers with its value.
TEST(KernelRegression, SmallRidgeRecalls) {
  Regression f;
  f.T = 80, f.H = f.G = 1, f.K = 20, f.V = 3, f.kernel = Kind::gaussian;
  Values in = f.draw_values();
  in["ridge"][0] = 1e-9, in["q"] = in["k"];
  EXPECT_LE(distance(run_forward<double>(f, in, {}).at("o"), in["v"]), 1e-7);
}

// t equal keys with kappa = c: o = c' sum v / (t c + ridge), c' = kappa(k, q).
TEST(KernelRegression, RepeatedKeys) {
  for (const double ridge : {1.0, 1e-4, 1e-8})
    for (const bool kept : {false, true}) {
      Regression f;
      f.T = 100, f.H = f.G = 1, f.keeps_factor = kept;
      Values in = f.draw_values();
      in["ridge"][0] = ridge;
      for (std::size_t i = 0; i < in["k"].size(); ++i) in["k"][i] = in["k"][i % static_cast<std::size_t>(f.K)];
      const double c = f.kappa(in["k"].data(), in["k"].data());
      Doubles sum(static_cast<std::size_t>(f.V)), want;
      for (Size t = 0; t < f.T; ++t)
        for (Size j = 0; j < f.V; ++j) {
          sum[j] += in["v"][t * f.V + j];
          want.push_back(f.kappa(in["k"].data(), &in["q"][t * f.K]) * sum[j] /
                         (static_cast<double>(t + 1) * c + ridge));
        }
      EXPECT_LE(distance(run_forward<double>(f, in, {}).at("o"), want), 1e-14 * c * 100 / ridge) << ridge;
      for (const auto& [name, gradient] : run_backward<double>(f, in, draw_gradients(f, 3), {}))
        for (const double g : gradient) EXPECT_TRUE(std::isfinite(g)) << name << " ridge " << ridge;
    }
}

// A ridge far below rounding, and five keys again and again: no root of a negative number, no division by zero.
TEST(KernelRegression, RidgeBelowRoundingStaysBounded) {
  for (const Kind kernel : {Kind::exponential, Kind::linear})
    for (unsigned seed = 1; seed <= 40; ++seed) {
      Regression f;
      f.T = 90, f.kernel = kernel, f.seed = seed;
      Values in = f.draw_values();
      std::fill(in["ridge"].begin(), in["ridge"].end(), 1e-30);
      for (std::size_t i = 0; i < in["k"].size(); ++i) in["k"][i] = in["k"][i % static_cast<std::size_t>(5 * f.K)];
      const Doubles answers = run_forward<double>(f, in, {}).at("o");
      for (const double o : answers) EXPECT_LT(std::abs(o), 1e4) << seed;
    }
}

// NaN in one sequence stays there, and forwards it reaches the queries that see it and no others.
TEST(KernelRegression, NotANumberStaysWhereItIs) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const char* name : {"q", "k", "v", "o"}) {
    Regression f;
    f.T = 190, f.packed = {0, 40, 150, 190}, f.H = f.G = 1, f.K = 2, f.V = 2;
    Values in = f.draw_values(), d = draw_gradients(f, 3);
    const Values want = f.reference(in), want_d = run_backward<double>(f, in, d, {});
    const Size at = 77;
    const std::string what = name;
    (what == "o" ? d["o"] : in[what])[static_cast<std::size_t>(at * 2)] = nan;
    Bound<double> x(f.specs(), &in, false), given(f.specs(), &d, false), to(f.specs(), nullptr, false);
    Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, true));
    ASSERT_EQ(f.forward(x, f.sequences(), Form::best, 0, ttr::simd<double>(""), scratch.workspace()), Status::ok);
    ASSERT_EQ(f.backward(x, given, to, f.sequences(), Form::best, 0, ttr::simd<double>(""), scratch.workspace()),
              Status::ok);
    const Doubles o = x.held["o"].get();
    for (Size t = 0; t < f.T; ++t)
      for (Size j = 0; j < 2; ++j) {
        const std::size_t i = static_cast<std::size_t>(t * 2 + j);
        const bool reached = t < 150 && (what == "q"   ? t == at
                                         : what == "k" ? t >= at
                                                       : what == "v" && t >= at && j == 0);
        if (reached) EXPECT_TRUE(std::isnan(o[i])) << what << t;
        else EXPECT_NEAR(o[i], want.at("o")[i], 1e-11) << what << t;
        if (t >= 40 && t < 150) continue;
        for (const char* input : {"q", "k", "v"})
          EXPECT_NEAR(to.held[input].get()[i], want_d.at(input)[i], 1e-11) << what << t << input;
      }
  }
}

TEST(KernelRegression, WhatItRefuses) {
  Regression f;
  f.T = 5, f.capacity = 4, f.past = {4};
  Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences();
  auto pairs = f.before(x, list);
  const auto good = f.problem(x, list, pairs);
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
  const auto status = [&](auto&& change) {
    auto p = good;
    change(p);
    return kernel_regression::forward(p, ttr::simd<double>(""), scratch.workspace());
  };
  using P = KernelRegressionProblem<double>;
  EXPECT_EQ(status([](P&) {}), Status::ok);
  EXPECT_EQ(status([](P& p) { p.heads = 3, p.key_heads = 2; }), Status::bad_shape);
  EXPECT_EQ(status([](P& p) { p.kernel = Kind::gaussian, p.bandwidth = 0; }), Status::out_of_domain);
  EXPECT_EQ(status([](P& p) { p.kernel = Kind::polynomial, p.degree = 0; }), Status::bad_shape);
  EXPECT_EQ(status([](P& p) { p.q = {}; }), Status::missing_input);
  EXPECT_EQ(status([](P& p) { p.k = {}; }), Status::missing_input);
  EXPECT_EQ(status([](P& p) { p.past_k = {}; }), Status::missing_input);
  EXPECT_EQ(status([](P& p) { p.past_k.extent[1] = 3; }), Status::bad_shape);
  EXPECT_EQ(status([](P& p) { p.causal = false, p.window = 2; }), Status::not_supported);
  EXPECT_EQ(status([](P& p) {
              static double some[64];
              p.triangle = some;
            }),
            Status::missing_input);
  std::int64_t count = 0;
  Doubles triangle(2 * 9 * 10 / 2), Z(2 * 9 * 2);
  const auto keep = [&](P& p) {
    p.triangle = triangle.data(), p.solved = Z.data(), p.factored = &count, p.factor_capacity = 9;
  };
  EXPECT_EQ(status([&](P& p) { keep(p), p.factor_capacity = 8; }), Status::state_full);
  EXPECT_EQ(status([&](P& p) { keep(p), p.window = 3, p.factor_capacity = 2; }), Status::state_full);
  EXPECT_EQ(status([&](P& p) { keep(p), p.ridge.stride[1] = 1; }), Status::not_supported);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(status([&](P& p) { keep(p); }), Status::ok);
  EXPECT_EQ(count, 9);

  x.held["ridge"].at(1) = 0;
  std::fill(x.held["o"].memory.begin(), x.held["o"].memory.end(), 7.0);
  EXPECT_EQ(status([](P&) {}), Status::out_of_domain);
  for (const double o : x.held["o"].get()) EXPECT_EQ(o, 7);
  const Workspace small{scratch.memory.data(), 100};
  x.held["ridge"].at(1) = 1;
  EXPECT_EQ(kernel_regression::forward(good, ttr::simd<double>(""), small), Status::small_workspace);
}

// A ridge of its own that is not above 0 costs a token its answer, and no other token.
TEST(KernelRegression, BadRidgeOfOneToken) {
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    Regression f;
    f.ridge = Ridge::token, f.T = 6;
    Values in = f.draw_values(), d = draw_gradients(f, 2);
    const Doubles want = f.reference(in).at("o");
    Values without = d;
    for (Size j = 0; j < f.V; ++j) without["o"][(3 * f.H + 1) * f.V + j] = 0;
    const Values want_d = run_backward<double>(f, in, without, {});
    in["ridge"][3 * f.H + 1] = bad;
    Bound<double> x(f.specs(), &in, false), given(f.specs(), &d, false), to(f.specs(), nullptr, false);
    Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, true));
    const auto& s = ttr::simd<double>("");
    EXPECT_EQ(f.forward(x, f.sequences(), Form::best, 0, s, scratch.workspace()), Status::out_of_domain);
    EXPECT_EQ(f.backward(x, given, to, f.sequences(), Form::best, 0, s, scratch.workspace()), Status::out_of_domain);
    const Doubles o = x.held["o"].get();
    for (std::size_t i = 0; i < o.size(); ++i) {
      if (i / static_cast<std::size_t>(f.V) == 3 * 2 + 1) EXPECT_TRUE(std::isnan(o[i]));
      else EXPECT_NEAR(o[i], want[i], 1e-12);
    }
    for (const auto& [name, gradient] : want_d) EXPECT_LE(distance(to.held[name].get(), gradient), 1e-11) << name;
  }
}

}  // namespace
