// Local linear attention against its literal solution, gradients against differences, and what is known on paper.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "families/pairs/local_linear/reference.h"
#include "families/pairs/local_linear/run.h"

namespace {

using namespace ttr_local_linear_test;

/// A few dimensions and many; order 2 knows the direct solve alone.
std::vector<int> solved_by_both(const Case& c, int few) {
  if (c.order == 2) return {few};
  return {few, many};
}

TEST(LocalLinear, OutputsAreTheLiteralFit) {
  for (const Case& size : {Case{.B = 2, .T = 7, .H = 2, .G = 1, .K = 3, .V = 5}, Case{.T = 1, .K = 1, .V = 1},
                           Case{.T = 17, .H = 4, .G = 2, .K = 5, .V = 3}, Case{.T = 70, .H = 1, .K = 2, .V = 3},
                           Case{.T = 9, .K = 4, .V = 2, .past = {6}}, Case{.T = 66, .K = 2, .V = 1, .past = {67}}})
    for (Case c : kinds(size)) {
      const Values in = c.draw_values();
      const Doubles want = literal(c, in);
      EXPECT_LE(distance(forward<double>(c, in), want), 1e-11) << c.name();
      EXPECT_LE(distance(forward<float>(c, in), want), 3e-5) << c.name();
      c.strided = true;
      EXPECT_LE(distance(forward<double>(c, in), want), 1e-11) << c.name() << " strided";
    }
}

TEST(LocalLinear, BothSolversAreTheLiteralFit) {
  for (const Size T : {1, 5, 64, 65, 130})
    for (const int K : {3, 8, 19, 33, many})
      for (const double smallest : {0.01, 1.0}) {
        if (K == many && smallest < 1) continue;  // rounding alone: float loses 6e-8 K / smallest, and more
        const Case c{.T = T, .H = 2, .G = 1, .K = K, .V = 3, .smallest = smallest};
        const Values in = c.draw_values();
        const Doubles want = literal(c, in);
        EXPECT_LE(distance(forward<double>(c, in), want), 1e-11) << c.name();
        EXPECT_LE(distance(forward<float>(c, in), want), 5e-5) << c.name();
      }
}

TEST(LocalLinear, LargeKeysChooseTheirOwnSolver) {
  for (const int K : {33, 65, 70})
    for (const Size past : {0, 80}) {
      Case c{.T = past > 0 ? 2 : 100, .K = K, .V = 5, .lambda = Per::token, .past = {past}, .smallest = 0.2};
      Values in = c.draw_values();
      // Correlated keys: a diagonal preconditioner would not do.
      for (const char* name : {"q", "k", "past_k"})
        for (std::size_t i = 0; i < in[name].size(); ++i)
          if (i % static_cast<std::size_t>(K) > 0) in[name][i] = float(0.8 * in[name][i - 1] + 0.6 * in[name][i]);
      const Doubles want = literal(c, in);
      EXPECT_LE(distance(forward<double>(c, in), want), 1e-11) << c.name();
      EXPECT_LE(distance(forward<float>(c, in), want), 5e-5) << c.name();
      const Doubles d = output_gradient(c);
      expect_near(backward<float>(c, in, d), backward<double>(c, in, d), 1e-4, c.name());
    }
}

TEST(LocalLinear, GradientsAreFiniteDifferences) {
  for (const Case& size : {Case{.B = 2, .T = 5, .H = 2, .G = 1, .K = 3, .V = 2}, Case{.T = 1, .K = 2, .V = 2},
                           Case{.T = 4, .H = 2, .G = 2, .K = 2, .V = 3, .past = {3}},
                           Case{.T = 6, .K = 2, .V = 2, .packed = {0, 2, 2, 6}, .past = {2, 1, 0}}})
    for (Case c : kinds(size)) {
      const Values in = c.draw_values();
      const Doubles d = output_gradient(c);
      const Values want = literal_gradient(c, in, d);
      expect_near(backward<double>(c, in, d), want, 1e-7, c.name());
      expect_near(backward<float>(c, in, d), want, 1e-4, c.name() + " float");
      c.strided = true;
      expect_near(backward<double>(c, in, d), want, 1e-7, c.name() + " strided");
    }
}

// Several tiles, and more keys than a difference quotient can afford: float against double.
TEST(LocalLinear, GradientsOfLongSequences) {
  for (const LocalRidge ridge : {LocalRidge::relative, LocalRidge::absolute})
    for (const bool causal : {true, false}) {
      Case c{.B = 2, .T = 150, .H = 2, .G = 1, .K = 20, .V = 9, .causal = causal, .ridge = ridge, .past = {70, 0}};
      c.lambda = Per::token, c.smallest = 0.3;
      const Values in = c.draw_values();
      const Doubles d = output_gradient(c);
      expect_near(backward<float>(c, in, d), backward<double>(c, in, d), 1e-4, c.name());
      EXPECT_LE(distance(forward<double>(c, in), literal(c, in)), 1e-11) << c.name();
    }
}

// One differential along a random direction checks all gradients of tiles of tiles at once.
TEST(LocalLinear, GradientsOfSeveralTilesAreADifference) {
  std::vector<Case> cases = kinds({.T = 75, .H = 2, .G = 1, .K = 2, .V = 2, .past = {68}});
  for (const Case& c : kinds({.T = 75, .H = 2, .G = 1, .K = many, .V = 2, .past = {68}}))
    if (c.order == 1 && !c.slope && c.causal) cases.push_back(c);
  for (const Case& c : cases) {
    Values in = c.draw_values();
    const Doubles d = output_gradient(c);
    const Values gradient = backward<double>(c, in, d), direction = draw(c.specs(), 5);
    double slope = 0;
    Values up = in, down = in;
    for (const auto& [name, x] : direction)
      for (std::size_t i = 0; i < x.size(); ++i) {
        // Keeps ridges and bandwidths positive.
        const double step = name == "lambda" || name == "bandwidth" ? 0.1 * x[i] * in[name][i] : x[i];
        slope += gradient.at(name)[i] * step, up[name][i] += 1e-5 * step, down[name][i] -= 1e-5 * step;
      }
    const Doubles a = literal(c, up), b = literal(c, down);
    Real difference = 0;
    for (std::size_t i = 0; i < a.size(); ++i) difference += Real(d[i]) * (Real(a[i]) - b[i]) / 2e-5L;
    EXPECT_NEAR(slope, double(difference), 1e-6 * std::max(1.0, std::abs(slope))) << c.name();
  }
}

TEST(LocalLinear, ALargeRidgeGivesSoftmax) {
  for (const int K : {6, many}) {
    const Case c{.T = 80, .H = 2, .G = 1, .K = K, .V = 4, .lambda = Per::all};
    Values in = c.draw_values();
    in["lambda"][0] = 1e12;
    Case zero = c;
    zero.slope = true;
    Values softmax = in;
    softmax["slope"] = Doubles(in["q"].size(), 0.0);
    const Doubles want = literal(zero, softmax);
    EXPECT_LE(distance(forward<double>(c, in), want), 1e-11);
    EXPECT_LE(distance(forward<float>(c, in), want), 1e-6);
    EXPECT_LE(distance(forward<double>(zero, softmax), want), 1e-14);
  }
}

TEST(LocalLinear, AWideKernelAndASmallRidgeGiveAffineLeastSquares) {
  // v is affine in k; read anywhere, the fit of enough pairs returns it.
  Case c{.T = 90, .K = 4, .V = 3, .causal = false, .kernel = LocalKernel::gaussian, .lambda = Per::all};
  Values in = c.draw_values();
  in["lambda"][0] = 1e-12, in["bandwidth"][0] = 1e12;
  const Doubles map = draw({{"m", Role::fixed, {4, 3}}}, 8)["m"];
  const auto affine = [&](const Doubles& x, Size t, Size b) {
    double y = 0.7 - double(b);
    for (Size a = 0; a < 4; ++a) y += map[a * 3 + b] * x[t * 4 + a];
    return y;
  };
  Doubles want;
  for (Size t = 0; t < c.T; ++t)
    for (Size b = 0; b < 3; ++b) in["v"][t * 3 + b] = affine(in["k"], t, b), want.push_back(affine(in["q"], t, b));
  EXPECT_LE(distance(forward<double>(c, in), want), 1e-10);
  // Not only on affine targets: the literal fit with equal weights.
  in["v"] = draw(c.specs(), 21)["v"];
  EXPECT_LE(distance(forward<double>(c, in), literal(c, in)), 1e-10);
  // Order 2 returns a quadratic function.
  c.order = 2;
  const auto quadratic = [&](const Doubles& x, Size t, Size b) {
    double y = affine(x, t, b);
    for (Size a = 0; a < 4; ++a) y += 0.3 * x[t * 4 + a] * x[t * 4 + (a + b) % 4];
    return y;
  };
  for (Size t = 0; t < c.T; ++t)
    for (Size b = 0; b < 3; ++b)
      in["v"][t * 3 + b] = quadratic(in["k"], t, b), want[t * 3 + b] = quadratic(in["q"], t, b);
  EXPECT_LE(distance(forward<double>(c, in), want), 1e-9);
}

TEST(LocalLinear, WeightsSumToOne) {
  for (Case c : kinds({.T = 70, .H = 2, .G = 1, .V = 3, .past = {5}}))
    for (const int K : solved_by_both(c, 4)) {
      // Divided by the mass of some seventy pairs the ridge is lost beside so many dimensions.
      if (K == many && c.ridge == LocalRidge::absolute) continue;
      c.K = K;
      Values in = c.draw_values();
      for (double& v : in["v"]) v = 3;
      for (double& v : in["past_v"]) v = 3;
      const Doubles three(c.T * c.H * c.V, 3.0);
      EXPECT_LE(distance(forward<double>(c, in), three), 1e-12) << c.name();
      EXPECT_LE(distance(forward<float>(c, in), three), 2e-5) << c.name();
    }
}

// Either all of it is numbers, or the call says out_of_domain.
template <class T>
Doubles answers(const Case& c, const Values& in) {
  Bound<T> x(with_output(c), &in, c.strided);
  const auto list = c.sequences();
  Scratch<T> scratch(lla::workspace_bytes<T>(c.K, c.V, c.order, c.H, c.longest(), c.window, false));
  const Simd<double>& wide = ttr::simd<double>("");
  const Status status = lla::forward(problem_of(c, x, list), ttr::simd<T>(""), scratch.workspace(), &wide);
  const Doubles o = x.held["o"].get();
  const bool numbers = std::none_of(o.begin(), o.end(), [](double y) { return std::isnan(y); });
  EXPECT_EQ(status, numbers ? Status::ok : Status::out_of_domain) << c.name();
  return o;
}

TEST(LocalLinear, TheFirstTokenReturnsItsValue) {
  for (Case c : kinds({.B = 2, .T = 3, .H = 2, .G = 2, .K = 5, .V = 4}))
    for (const double lambda : {1e-12, 1.0, 1e12}) {
      if (!c.causal) c.T = 1;
      Values in = c.draw_values();
      if (!c.slope)
        for (double& l : in["lambda"]) l = lambda;
      for (double& k : in["k"]) k += 50;
      const Doubles o = answers<float>(c, in);  // later ones have no digits beside the smallest ridge
      for (Size b = 0; b < c.B; ++b)
        for (Size i = 0; i < c.H * c.V; ++i)
          EXPECT_EQ(o[b * c.T * c.H * c.V + i], in["v"][b * c.T * c.H * c.V + i]) << c.name();
    }
}

TEST(LocalLinear, IdenticalKeysReturnTheMean) {
  for (Case c : kinds({.T = 67, .V = 2})) {
    if (c.slope || c.gates) continue;
    for (const int K : solved_by_both(c, 5)) {
      c.K = K;
      Values in = c.draw_values();
      for (double& l : in["lambda"]) l = 1e-9;
      for (Size i = 0; i < c.T * K; ++i) in["k"][i] = in["k"][i % K] + 7;
      for (Size i = K; i < c.T * K; ++i) in["k"][i] = in["k"][i % K];
      Doubles want;
      for (Size t = 0; t < c.T; ++t)
        for (Size b = 0; b < 2; ++b) {
          double sum = 0;
          const Size end = c.causal ? t + 1 : c.T, begin = c.window > 0 ? std::max<Size>(0, end - c.window) : 0;
          for (Size j = begin; j < end; ++j) sum += in["v"][j * 2 + b];
          want.push_back(sum / double(end - begin));
        }
      EXPECT_LE(distance(forward<double>(c, in), want), 1e-13) << c.name();
      EXPECT_LE(distance(forward<float>(c, in), want), 1e-6) << c.name();
    }
  }
}

TEST(LocalLinear, ACommonOffsetOfKeysAndQueriesCostsNoDigits) {
  for (const int K : {16, 33}) {
    Case c{.T = 100, .K = K, .V = 4, .lambda = Per::all};
    c.kernel = LocalKernel::gaussian;
    Values in = c.draw_values();
    in["lambda"][0] = 1e-2;
    // Multiples of 2^-10, so that the offset is exact in float too.
    for (const char* name : {"q", "k"})
      for (double& x : in[name]) x = std::round(x * 1024) / 1024;
    const Doubles want = literal(c, in);
    EXPECT_LE(distance(forward<float>(c, in), want), 5e-5);
    for (const char* name : {"q", "k"})
      for (double& x : in[name]) x += 1000;
    EXPECT_LE(distance(forward<float>(c, in), want), 5e-5);
  }
}

TEST(LocalLinear, AbsoluteIsRelativeDividedByTheMass) {
  // One weight for all pairs: e^0 each, so the mass of a query is the number of its pairs.
  Case c{.T = 30, .K = 4, .V = 2, .lambda = Per::token};
  Values in = c.draw_values();
  c.scale = 1e-300;
  const Doubles want = forward<double>(c, in);
  c.ridge = LocalRidge::absolute;
  for (Size t = 0; t < c.T; ++t) in["lambda"][t] *= double(t + 1);
  EXPECT_LE(distance(forward<double>(c, in), want), 1e-12);
}

/// Steps of conjugate gradients that the queries of a case take, all of them together.
template <class T>
Size steps_of(const Case& c, const Values& in, double tolerance) {
  Bound<T> x(with_output(c), &in, false);
  const auto list = c.sequences();
  const LocalLinearProblem<T> p = problem_of(c, x, list);
  Scratch<T> scratch(lla::workspace_bytes<T>(c.K, c.V, c.order, c.H, c.longest(), c.window, false));
  ttr::families::Arena arena(scratch.workspace());
  lla::Crew<T> crew(ttr::simd<T>(""), ttr::simd<double>(""), c.K, c.V, c.order, c.H, c.longest(), c.window, false, 1,
                    arena);
  lla::Run<T>& run = crew.of(0);
  lla::Findings& findings = crew.whole.findings;
  for (std::size_t n = 0; n < list.size(); ++n)
    for (int h = 0; h < c.H; ++h) {
      crew.whole.pairs.load(p, n, h / p.group());
      findings.forget();
      for (Size number = 0; number * lla::tile_size < c.T; ++number) {
        const bool with_query = run.solver.wants_query(p, findings.before(0, number));
        run.block.load(p, list[n], h, number * lla::tile_size, with_query);
        const lla::System<T> system{run.block.rhs, run.r, nullptr, tolerance};
        run.solver.solve(run.block, &system, 1);
        if (findings.leads(number)) findings.tell(0, number, run.solver.finding());
      }
    }
  return run.solver.steps_taken();
}

TEST(LocalLinear, HardKeysFallBackToTheDirectSolve) {
  // Scales over four decades and a small ridge: more steps than the iteration is allowed.
  const Case c{.T = 200, .K = 70, .V = 3, .lambda = Per::all, .smallest = 1e-6};
  Values in = c.draw_values();
  for (const char* name : {"q", "k"})
    for (Size i = 0; i < c.T * c.K; ++i) in[name][i] *= std::pow(10.0, -4.0 * double(i % c.K) / c.K);
  // A rotation mixes the scales, so that no diagonal can undo them.
  for (const char* name : {"q", "k"})
    for (Size t = 0; t < c.T; ++t) {
      double sum = 0;
      for (Size a = 0; a < c.K; ++a) sum += in[name][t * c.K + a];
      for (Size a = 0; a < c.K; ++a) in[name][t * c.K + a] -= 2 * sum / double(c.K);
    }
  EXPECT_LE(distance(forward<double>(c, in), literal(c, in)), 1e-8);
  // 16 + K/4 steps for the queries that do not get there; it stops trying, so not for all of them.
  const double limit = 33, steps = double(steps_of<double>(c, in, 1e-13));
  EXPECT_GE(steps, 64 * limit * 0.9);
  EXPECT_LE(steps, double(c.T - 64) * limit);
}

// A wrong product or preconditioner would show here alone: the direct solve repairs the answers.
TEST(LocalLinear, StepsAreFew) {
  const Case c{.T = 600, .K = 40, .V = 3, .lambda = Per::all};
  Values in = c.draw_values();
  // Far below the 46 that a query takes before it is solved directly.
  const auto steps = [&](double lambda, double tolerance = 1e-5) {
    in["lambda"][0] = lambda;
    return double(steps_of<float>(c, in, tolerance)) / double(c.T);
  };
  EXPECT_LE(steps(10), 7);
  EXPECT_LE(steps(1), 13);
  EXPECT_GE(steps(10), 1);
  // Keys of all scales, mixed by a reflection: a diagonal does not help, the covariance does.
  for (const char* name : {"q", "k"})
    for (Size t = 0; t < c.T; ++t) {
      double* const x = &in[name][t * c.K];
      double sum = 0;
      for (Size a = 0; a < c.K; ++a) x[a] *= 4 * std::pow(100.0, -double(a) / c.K), sum += x[a];
      for (Size a = 0; a < c.K; ++a) x[a] -= 2 * sum / double(c.K);
    }
  EXPECT_LE(steps(1), 14);
  EXPECT_LE(steps(1, 1e-3), 10);
  // Double solves so few dimensions directly.
  EXPECT_EQ(steps_of<double>(c, in, 1e-13), 0);
}

TEST(LocalLinear, ThePastIsASplitCall) {
  for (Case c : kinds({.T = 140, .H = 2, .G = 1, .K = 3, .V = 2})) {
    if (!c.causal) continue;
    const Values in = c.draw_values();
    const Doubles whole = forward<double>(c, in), d = output_gradient(c);
    const Values gradient = backward<double>(c, in, d);
    for (const Size cut : {1, 63, 64, 65, 139}) {
      Case later = c;
      later.past = {cut}, later.T = c.T - cut;
      Values x = in;
      const auto tail = [&](const char* name, Size row) {
        if (x.count(name)) x[name].erase(x[name].begin(), x[name].begin() + cut * row);
      };
      x["past_k"] = in.at("k"), x["past_v"] = in.at("v");
      x["past_k"].resize(later.capacity() * c.G * c.K, NAN), x["past_v"].resize(later.capacity() * c.G * c.V, NAN);
      // What is beyond the count is not read.
      for (Size i = cut * c.G * c.K; i < later.capacity() * c.G * c.K; ++i) x["past_k"][i] = NAN;
      for (Size i = cut * c.G * c.V; i < later.capacity() * c.G * c.V; ++i) x["past_v"][i] = NAN;
      if (c.gates) {
        x["past_g"] = in.at("g");
        x["past_g"].resize(later.capacity() * c.H, NAN);
        for (Size i = cut * c.H; i < later.capacity() * c.H; ++i) x["past_g"][i] = NAN;
        tail("g", c.H);
      }
      tail("q", c.H * c.K), tail("k", c.G * c.K), tail("v", c.G * c.V), tail("slope", c.H * c.K);
      if (c.lambda == Per::token) tail("lambda", c.H);
      const Doubles want(whole.begin() + cut * c.H * c.V, whole.end());
      EXPECT_LE(distance(forward<double>(later, x), want), 1e-12) << c.name() << " cut " << cut;
      // The gradient of the later outputs reaches the past pairs.
      Doubles late = d;
      std::fill(late.begin(), late.begin() + cut * c.H * c.V, 0.0);
      const Values all = backward<double>(c, in, late);
      const Values part = backward<double>(later, x, Doubles(d.begin() + cut * c.H * c.V, d.end()));
      Doubles k(part.at("past_k").begin(), part.at("past_k").begin() + cut * c.G * c.K);
      k.insert(k.end(), part.at("k").begin(), part.at("k").end());
      EXPECT_LE(distance(k, all.at("k")), 1e-11) << c.name() << " cut " << cut;
      if (!c.gates) continue;
      Doubles g(part.at("past_g").begin(), part.at("past_g").begin() + cut * c.H);
      g.insert(g.end(), part.at("g").begin(), part.at("g").end());
      EXPECT_LE(distance(g, all.at("g")), 1e-10) << c.name() << " cut " << cut;
    }
  }
}

TEST(LocalLinear, PackedSequencesAreAlone) {
  for (Case c :
       kinds({.T = 150, .H = 2, .G = 1, .K = 3, .V = 2, .packed = {0, 70, 70, 71, 150}, .past = {2, 0, 1, 66}})) {
    const Values in = c.draw_values();
    const Doubles d = output_gradient(c), all = forward<float>(c, in);
    const Values gradient = backward<float>(c, in, d);
    Doubles sum_k(in.at("k").size(), 0.0);
    for (std::size_t n = 0; n < 4; ++n) {
      Case one = c;
      one.packed = {c.packed[n], c.packed[n + 1]}, one.past = {c.past[n]};
      // Room for the past of this sequence alone.
      Values x = in;
      const auto cut = [&](const char* name, Size row) {
        const auto from = in.at(name).begin() + static_cast<Size>(n) * c.capacity() * row;
        x[name] = Doubles(from, from + one.capacity() * row);
      };
      cut("past_k", c.G * c.K), cut("past_v", c.G * c.V);
      if (c.gates) cut("past_g", c.H);
      const Doubles o = forward<float>(one, x);
      for (Size i = one.packed[0] * c.H * c.V; i < one.packed[1] * c.H * c.V; ++i)
        EXPECT_EQ(o[i], all[i]) << c.name();
      const Doubles k = backward<float>(one, x, d).at("k");
      for (std::size_t i = 0; i < k.size(); ++i) sum_k[i] += k[i];
    }
    EXPECT_TRUE(sum_k == gradient.at("k")) << c.name();
  }
}

TEST(LocalLinear, NanStaysWhereItBelongs) {
  constexpr Size at = 70;
  for (Case c : kinds({.B = 2, .T = 130, .H = 1, .G = 1, .V = 2}))
    for (const int K : solved_by_both(c, c.order == 1 ? 9 : 3)) {
      c.K = K;
      const Values in = c.draw_values();
      for (const char* name : {"q", "k", "v"}) {
        Values bad = in;
        const Size width = c.draw_values()[name].size() / (2 * c.T);
        bad[name][(c.T + at) * width] = NAN;  // of the second sequence
        const Doubles want = forward<double>(c, in), got = forward<double>(c, bad), d = output_gradient(c);
        const Values clean = backward<double>(c, in, d), dirty = backward<double>(c, bad, d);
        const Size first = c.T * c.H * c.V;
        for (Size i = 0; i < first; ++i) ASSERT_EQ(got[i], want[i]) << c.name() << name;
        for (Size i = 0; i < c.T * c.K; ++i) ASSERT_EQ(dirty.at("k")[i], clean.at("k")[i]) << c.name() << name;
        EXPECT_TRUE(std::isnan(got[first + at * c.V])) << c.name() << name;
        if (!c.causal) continue;
        // Earlier tokens of the same sequence do not see it, later ones do (a query is seen by itself alone), as long
        // as it is in their window.
        const Size end = c.window > 0 ? std::min(c.T, at + c.window) : c.T;
        for (Size i = first; i < first + at * c.V; ++i) ASSERT_NEAR(got[i], want[i], 1e-11) << c.name() << name;
        for (Size t = at + 1; t < c.T; ++t)
          EXPECT_EQ(std::isnan(got[first + t * c.V]), *name != 'q' && t < end) << c.name() << name << t;
        for (Size i = first + end * c.V; i < 2 * first; ++i) ASSERT_NEAR(got[i], want[i], 1e-11) << c.name() << name;
        for (Size t = at + 1; t < c.T && *name == 'q'; ++t)
          ASSERT_FALSE(std::isnan(dirty.at("k")[(c.T + t) * c.K])) << c.name() << t;
      }
    }
}

TEST(LocalLinear, ARidgeThatIsNotPositiveIsOutOfDomain) {
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()})
    for (const int order : {1, 2})
      for (const int K : {2, many}) {
        if (order == 2 && K == many) continue;
        Case c{.B = 2, .T = 10, .K = K, .V = 2, .order = order, .lambda = Per::token};
        Values in = c.draw_values();
        const Doubles want = forward<double>(c, in);
        in["lambda"][4] = bad;
        const Doubles got = forward<double>(c, in, Status::out_of_domain);
        for (Size t = 0; t < 20; ++t)
          for (Size b = 0; b < 2; ++b) {
            if (t == 4) EXPECT_TRUE(std::isnan(got[t * 2 + b]));
            else EXPECT_NEAR(got[t * 2 + b], want[t * 2 + b], 1e-12);
          }
        backward<double>(c, in, output_gradient(c), 0, Status::out_of_domain);
      }
}

// An absolute ridge that peaked logits push below any number: slopes of one over the weight of the second pair. A query
// of whose answer rounding leaves less than a digit gets NaN and the call says so. One that is answered is within two tenths
// of the values: moments.h leaves one to the rounding of the mean (is_known of the slope) and one to that of the pivots
// (digits > 10), and each counts the weights with what it is a sum of.
TEST(LocalLinear, AVanishingRidgeIsOutOfDomainOrRight) {
  int refused = 0, answered = 0;
  for (const int order : {1, 2})
    for (const int K : {3, 8, many})
      for (const double scale : {1.0, 3.0, 10.0, 60.0})
        for (const double smallest : {1e-8, 1e-3, 0.1})
          for (unsigned seed = 1; seed <= (K == many ? 2u : 10u); ++seed) {
            if (order == 2 && K > 3) continue;
            const Case c{.T = 12,
                         .K = K,
                         .V = 2,
                         .order = order,
                         .ridge = LocalRidge::absolute,
                         .lambda = Per::all,
                         .smallest = smallest,
                         .scale = scale,
                         .size = 2,
                         .seed = seed};
            const Values in = c.draw_values();
            const Doubles want = literal(c, in);
            double size = 0;
            for (const double v : in.at("v")) size = std::max(size, std::abs(v));
            for (const Doubles& got : {answers<double>(c, in), answers<float>(c, in)})
              for (std::size_t i = 0; i < got.size(); ++i) {
                ++(std::isnan(got[i]) ? refused : answered);
                if (i < 2) {  // the first token has one pair
                  EXPECT_EQ(got[i], in.at("v")[i]) << c.name();
                } else if (!std::isnan(got[i])) {
                  EXPECT_LE(std::abs(got[i] - want[i]), 0.2 * size) << c.name() << " scale " << scale << " " << seed;
                }
              }
            if (scale < 60) continue;
            const Doubles d = output_gradient(c);
            backward<double>(c, in, d, 0, Status::out_of_domain), backward<float>(c, in, d, 0, Status::out_of_domain);
          }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(answered, 1000);
}

// Logits that peak as much beside a ridge relative to their mass are in the domain.
TEST(LocalLinear, PeakedLogitsBesideARelativeRidgeAreAnswered) {
  for (const int order : {1, 2})
    for (const double scale : {1.0, 10.0, 60.0}) {
      const Case c{.T = 12, .K = 3, .V = 2, .order = order, .smallest = 1e-3, .scale = scale, .size = 2};
      const Values in = c.draw_values();
      const Doubles want = literal(c, in);
      EXPECT_LE(distance(forward<double>(c, in), want), 1e-9) << c.name() << " scale " << scale;
      EXPECT_LE(distance(forward<float>(c, in), want), 1e-2) << c.name() << " scale " << scale;
    }
}

TEST(LocalLinear, AllInstructionSets) {
  for (const int K : {13, many}) {
    const Case c{.T = 90, .H = 2, .G = 1, .K = K, .V = 7, .past = {9}};
    const Values in = c.draw_values();
    const Doubles d = output_gradient(c), want = literal(c, in);
    const Values gradient = backward<double>(c, in, d);
    for (const std::string& target : ttr::simd_targets()) {
      EXPECT_LE(distance(forward<double>(c, in, Status::ok, target), want), 1e-11) << target;
      EXPECT_LE(distance(forward<float>(c, in, Status::ok, target), want), 2e-5) << target;
      expect_near(backward<double>(c, in, d, 0, Status::ok, target), gradient, 1e-10, target);
    }
  }
}

TEST(LocalLinear, GradientsAreAdded) {
  for (Case c : kinds({.B = 2, .T = 9, .H = 2, .G = 1, .K = 2, .V = 2, .past = {3, 0}})) {
    const Values in = c.draw_values();
    const Doubles d = output_gradient(c);
    Values more = backward<double>(c, in, d, 5.0);
    for (auto& [name, x] : more)
      for (double& y : x) y -= 5;
    expect_near(more, backward<double>(c, in, d), 1e-13, c.name());
  }
}

TEST(LocalLinear, WrongCallsAreRefused) {
  Case c{.B = 2, .T = 5, .H = 2, .G = 1, .past = {3, 1}};
  c.kernel = LocalKernel::gaussian;
  const Values in = c.draw_values();
  Bound<float> x(with_output(c), &in, false);
  const auto list = c.sequences();
  const std::size_t bytes = lla::workspace_bytes<float>(c.K, c.V, 1, c.H / c.G, c.longest(), c.window, false);
  Scratch<float> scratch(bytes);
  const auto status = [&](auto&& change, std::size_t take = 0) {
    LocalLinearProblem<float> p = problem_of(c, x, list);
    change(p);
    const Workspace w = scratch.workspace();
    return lla::forward(p, ttr::simd<float>(""), {w.data, take ? take : w.bytes});
  };
  using P = LocalLinearProblem<float>&;
  EXPECT_EQ(status([](P) {}), Status::ok);
  EXPECT_EQ(status([](P) {}, bytes - 1), Status::small_workspace);
  EXPECT_EQ(status([](P p) { p.order = 3; }), Status::not_supported);
  EXPECT_EQ(status([](P p) { p.order = 2, p.slope = p.q; }), Status::not_supported);
  EXPECT_EQ(status([](P p) { p.key_heads = 3; }), Status::bad_shape);
  EXPECT_EQ(status([](P p) { p.key_dim = 0; }), Status::bad_shape);
  EXPECT_EQ(status([](P p) { p.lambda = {}; }), Status::missing_input);
  EXPECT_EQ(status([](P p) { p.k = {}; }), Status::missing_input);
  EXPECT_EQ(status([](P p) { p.bandwidth = {}; }), Status::missing_input);
  EXPECT_EQ(status([](P p) { p.past_v = {}; }), Status::missing_input);
  EXPECT_EQ(status([](P p) { p.g = p.lambda; }), Status::missing_input);  // and no past_g
  EXPECT_EQ(status([](P p) { p.window = -1; }), Status::bad_shape);
  EXPECT_EQ(status([](P p) { p.window = 3, p.causal = false; }), Status::not_supported);
  static const std::int64_t many[] = {100, 1}, negative[] = {-1, 1};
  EXPECT_EQ(status([](P p) { p.past_count = many; }), Status::bad_shape);
  EXPECT_EQ(status([](P p) { p.past_count = negative; }), Status::bad_shape);
  static const float zero = 0;
  EXPECT_EQ(status([](P p) {
              p.bandwidth.data = &zero;
              p.bandwidth.stride = {0};
            }),
            Status::out_of_domain);
  EXPECT_EQ(status([](P p) { p.o = {}, p.q = {}; }), Status::ok);
}

}  // namespace
