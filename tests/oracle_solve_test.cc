// Least squares, kernels, adaptive filters and network memories of the oracle, against other ways to the same answer;
// and the parts it is made of: the tape, the factorisations, the gradients of networks.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "oracle/least_squares.h"
#include "oracle/losses.h"
#include "oracle/memories.h"
#include "oracle_cases.h"

namespace ttr::oracle {
namespace {

using cases::constant;
using cases::input;
using cases::make;
using C = Memory::Class;
using Kind = Solver::Kind;

constexpr int K = 3, V = 2;

Sizes sizes_for(std::int64_t time) {
  Sizes s;
  s.key_dim = K, s.value_dim = V, s.time = time;
  return s;
}

Array run(const Design& d, const Arrays& inputs, std::int64_t time, Arrays* end = nullptr) {
  Arrays state = fresh_state(d, sizes_for(time));
  Arrays out = forward(d, sizes_for(time), inputs, state);
  if (end) *end = state;
  return out.at("o");
}

void expect_equal(const Array& a, const Array& b, double tolerance, std::size_t from = 0) {
  ASSERT_EQ(a.data.size(), b.data.size());
  for (std::size_t i = from; i < a.data.size(); ++i) ASSERT_NEAR(a.data[i], b.data[i], tolerance) << i;
}

Vec<double> row_of(const Array& a, std::int64_t t, int width) {
  return Vec<double>(a.data.begin() + t * width, a.data.begin() + (t + 1) * width);
}

Design exact(const std::function<void(Design&)>& more = {}) {
  return make([&](Design& d) {
    d.solver.kind = Kind::exact;
    if (more) more(d);
  });
}

TEST(OracleLeastSquares, FadingRidgeIsTheWoodburyRecursion) {
  const Design d = exact([](Design& x) {
    x.solver.ridge = constant(0.3), x.solver.ridge_kind = Solver::RidgeKind::fading, cases::gate(x),
    cases::importance(x);
  });
  const Arrays in = cases::random_inputs(d, sizes_for(8), 1);
  const Array o = run(d, in, 8);
  double P[K][K] = {}, S[K][V] = {};
  for (int a = 0; a < K; ++a) P[a][a] = 1 / 0.3;
  for (std::int64_t t = 0; t < 8; ++t) {
    const Vec<double> k = row_of(in.at("k"), t, K), v = row_of(in.at("v"), t, V), q = row_of(in.at("q"), t, K);
    const double gamma = std::exp(in.at("g").data[t]), beta = in.at("beta").data[t];
    double pk[K] = {}, along = 0;
    for (int a = 0; a < K; ++a)
      for (int b = 0; b < K; ++b) pk[a] += P[a][b] * k[b];
    for (int a = 0; a < K; ++a) along += k[a] * pk[a];
    double e[V];
    for (int b = 0; b < V; ++b) {
      e[b] = v[b];
      for (int a = 0; a < K; ++a) e[b] -= S[a][b] * k[a];
    }
    for (int a = 0; a < K; ++a) {
      const double gain = pk[a] / (gamma / beta + along);
      for (int b = 0; b < V; ++b) S[a][b] += gain * e[b];
      for (int b = 0; b < K; ++b) P[a][b] = (P[a][b] - gain * pk[b]) / gamma;
    }
    for (int b = 0; b < V; ++b) {
      double want = 0;
      for (int a = 0; a < K; ++a) want += S[a][b] * q[a];
      EXPECT_NEAR(o.data[t * V + b], want, 1e-11);
    }
  }
}

TEST(OracleLeastSquares, UnderdeterminedMeansLeastNorm) {
  const Design d = exact();
  Arrays in = cases::random_inputs(d, sizes_for(2), 2);
  in["q"] = in["k"];
  const Array fit = run(d, in, 2);  // two keys in three dimensions: both pairs are fitted
  for (int b = 0; b < V; ++b) EXPECT_NEAR(fit.data[V + b], in["v"].data[V + b], 1e-12);
  const Vec<double> x = row_of(in["k"], 0, K), y = row_of(in["k"], 1, K);
  const Vec<double> normal = {x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]};
  for (int a = 0; a < K; ++a) in["q"].data[K + a] = normal[a];  // and nothing is said across the keys
  const Array across = run(d, in, 2);
  for (int b = 0; b < V; ++b) EXPECT_NEAR(across.data[V + b], 0, 1e-12);
}

TEST(OracleLeastSquares, RepeatedKeysAreAveragedByWeight) {
  const Design d = exact([](Design& x) { cases::importance(x); });
  Arrays in = cases::random_inputs(d, sizes_for(5), 3);
  for (int t = 1; t < 5; ++t)
    for (int a = 0; a < K; ++a) in["k"].data[t * K + a] = in["k"].data[a];
  in["q"] = in["k"];
  const Array o = run(d, in, 5);
  double above = 0, below = 0;
  for (int t = 0; t < 5; ++t) above += in["beta"].data[t] * in["v"].data[t * V], below += in["beta"].data[t];
  EXPECT_NEAR(o.data[4 * V], above / below, 1e-12);
}

TEST(OracleLeastSquares, IterativeSolversConverge) {
  auto ridge = [](Design& d) { d.solver.ridge = input(), cases::gate(d), cases::importance(d); };
  const Design truth = exact(ridge);
  const Arrays in = cases::random_inputs(truth, sizes_for(7), 4);
  const Array o = run(truth, in, 7);
  Design cg = truth;
  cg.solver.kind = Kind::cg, cg.solver.steps = K;
  expect_equal(run(cg, in, 7), o, 1e-11);
  Design chebyshev = truth;
  chebyshev.solver.kind = Kind::chebyshev, chebyshev.solver.steps = 300;
  expect_equal(run(chebyshev, in, 7), o, 1e-10);
  cg.solver.steps = 1;
  double off = 0;
  const Array rough = run(cg, in, 7);
  for (std::size_t i = 0; i < o.data.size(); ++i) off = std::max(off, std::abs(rough.data[i] - o.data[i]));
  EXPECT_GT(off, 1e-3);  // one step is not three
}

TEST(OracleLeastSquares, BothFactorisationsAgree) {
  // Just below and just above the switch from QR to Cholesky.
  auto with = [](double r) { return exact([r](Design& d) { d.solver.ridge = constant(r); }); };
  const Arrays in = cases::random_inputs(with(1), sizes_for(9), 5);
  double diagonal = 0;
  for (int a = 0; a < K; ++a) {
    double sum = 0;
    for (int t = 0; t < 9; ++t) sum += std::pow(in.at("k").data[t * K + a], 2);
    diagonal = std::max(diagonal, sum);
  }
  expect_equal(run(with(0.999999e-6 * diagonal), in, 9), run(with(1.000001e-6 * diagonal), in, 9), 1e-9, 3 * V);
}

TEST(OracleLeastSquares, BlendLiesBetweenTheSumAndTheSolution) {
  const Design d = exact([](Design& x) { x.solver.ridge = input(), x.extras.blend = true; });
  Design plain = d, sum;
  plain.extras.blend = false;
  Arrays in = cases::random_inputs(d, sizes_for(6), 6);
  for (double& x : in["blend"].data) x = 0.25;
  const Array o = run(d, in, 6), solved = run(plain, in, 6), summed = run(sum, in, 6);
  for (std::size_t i = 0; i < o.data.size(); ++i)
    EXPECT_NEAR(o.data[i], 0.75 * summed.data[i] + 0.25 * solved.data[i], 1e-12);
}

TEST(OracleLocal, PolynomialsAreReproduced) {
  for (int order : {1, 2}) {
    const Design d = exact(
        [&](Design& x) { cases::near(x, Kernel::gaussian), cases::memory(x, C::local), x.memory.order = order; });
    const std::int64_t time = 14;
    Arrays in = cases::random_inputs(d, sizes_for(time), 7);
    auto f = [&](const Vec<double>& x) {
      return 0.3 + x[0] - 2 * x[1] + 0.5 * x[2] + (order == 2 ? x[0] * x[1] - 0.7 * x[2] * x[2] : 0);
    };
    for (std::int64_t t = 0; t < time; ++t) in["v"].data[t * V] = f(row_of(in["k"], t, K));
    const Array o = run(d, in, time);
    const std::int64_t enough = monomial_count(K, order);
    for (std::int64_t t = enough; t < time; ++t)
      EXPECT_NEAR(o.data[t * V], f(row_of(in["q"], t, K)), 1e-8) << order << " " << t;
  }
}

TEST(OracleLocal, LinearEqualsTheEquationOfTheWeights) {
  for (bool relative : {false, true}) {
    const Design d = exact([&](Design& x) {
      cases::near(x), cases::memory(x, C::local), x.memory.order = 1, x.solver.ridge = input();
      if (relative) x.solver.ridge_kind = Solver::RidgeKind::relative;
    });
    const Arrays in = cases::random_inputs(d, sizes_for(8), 8);
    const Array o = run(d, in, 8);
    for (std::int64_t t = 0; t < 8;
         ++t) {  // o = sum w_j (1 - z_j.rho) v_j / (omega - mu.rho), rho = (Sigma + ridge)^-1 mu
      const Vec<double> q = row_of(in.at("q"), t, K);
      Matrix<double> sigma(K, K), mu(K, 1);
      double omega = 0;
      std::vector<Vec<double>> z;
      Vec<double> w;
      for (std::int64_t j = 0; j <= t; ++j) {
        const Vec<double> k = row_of(in.at("k"), j, K);
        w.push_back(std::exp(dot(q, k) / std::sqrt(3.0)));
        z.push_back({k[0] - q[0], k[1] - q[1], k[2] - q[2]});
        omega += w.back();
        for (int a = 0; a < K; ++a) {
          mu(a, 0) += w.back() * z.back()[a];
          for (int b = 0; b < K; ++b) sigma(a, b) += w.back() * z.back()[a] * z.back()[b];
        }
      }
      for (int a = 0; a < K; ++a) sigma(a, a) += in.at("ridge").data[0] * (relative ? omega : 1);
      const Matrix<double> rho = solve_positive(sigma, mu);
      double below = omega, above = 0;
      for (int a = 0; a < K; ++a) below -= mu(a, 0) * rho(a, 0);
      for (std::size_t j = 0; j < w.size(); ++j) above += w[j] * (1 - dot(z[j], rho.data)) * in.at("v").data[j * V];
      EXPECT_NEAR(o.data[t * V], above / below, 1e-12);
    }
  }
}

TEST(OracleLocal, ALargeLogitDoesNotOverflowAnAbsoluteRidge) {
  const Design d = exact(
      [](Design& x) { cases::near(x), cases::memory(x, C::local), x.memory.order = 1, x.solver.ridge = input(); });
  Arrays in = cases::random_inputs(d, sizes_for(6), 9);
  for (double& x : in["q"].data) x *= 2000;
  for (double x : run(d, in, 6).data) EXPECT_TRUE(std::isfinite(x));
}

TEST(OracleKernel, LinearKernelIsRidgeRegression) {
  const Design kernel = exact([](Design& d) {
    cases::kernel(d, Kernel::linear), d.solver.ridge = input(), cases::gate(d), cases::importance(d);
  });
  Design linear = kernel;
  linear.memory = {};
  const Arrays in = cases::random_inputs(kernel, sizes_for(8), 10);
  expect_equal(run(kernel, in, 8), run(linear, in, 8), 1e-11);
}

TEST(OracleKernel, WithoutRidgeItInterpolatesAlsoRepeatedKeys) {
  const Design d = exact([](Design& x) { cases::kernel(x, Kernel::gaussian); });
  Arrays in = cases::random_inputs(d, sizes_for(6), 11);
  in["q"] = in["k"];
  const Array o = run(d, in, 6);
  for (int b = 0; b < V; ++b) EXPECT_NEAR(o.data[5 * V + b], in["v"].data[5 * V + b], 1e-10);
  for (int a = 0; a < K; ++a) in["k"].data[4 * K + a] = in["q"].data[5 * K + a] = in["k"].data[5 * K + a];
  const Array twice = run(d, in, 6);
  for (int b = 0; b < V; ++b)
    EXPECT_NEAR(twice.data[5 * V + b], 0.5 * (in["v"].data[4 * V + b] + in["v"].data[5 * V + b]), 1e-10);
}

TEST(OracleKernel, GradientStepsReachTheInterpolant) {
  const Design d = exact([](Design& x) { cases::kernel(x, Kernel::gaussian), x.memory.bandwidth = constant(0.5); });
  Design gd = d;
  gd.solver.kind = Kind::gd, gd.solver.rule = Solver::Rule::automatic, gd.solver.steps = 3000;
  const Arrays in = cases::random_inputs(d, sizes_for(4), 12);
  expect_equal(run(gd, in, 4), run(d, in, 4), 1e-8);
}

TEST(OracleKernel, SgdIsTheDeltaRuleOfTheFeatures) {
  const Design kernel = make([](Design& d) { cases::kernel(d, Kernel::linear), cases::sgd(d), cases::decay(d); });
  const Design linear = make([](Design& d) { cases::sgd(d), cases::decay(d); });
  const Arrays in = cases::random_inputs(kernel, sizes_for(8), 13);
  expect_equal(run(kernel, in, 8), run(linear, in, 8), 1e-12);
}

TEST(OracleFilters, AffineProjectionFitsItsWindowAndOrderOneIsNlms) {
  Design d = make([](Design& x) { x.solver.kind = Kind::apa, x.solver.batch = 2; });
  const Arrays in = cases::random_inputs(d, sizes_for(6), 14);
  Arrays end;
  run(d, in, 6, &end);
  for (std::int64_t t : {4, 5})
    for (int b = 0; b < V; ++b) {
      double y = 0;
      for (int a = 0; a < K; ++a) y += in.at("k").data[t * K + a] * end["S"].data[a * V + b];
      EXPECT_NEAR(y, in.at("v").data[t * V + b], 1e-12);
    }
  d.solver.batch = 1, d.solver.eps = 0.1, d.solver.step = input();
  const Design nlms = make([](Design& x) { cases::sgd(x), x.solver.rule = Solver::Rule::nlms, x.solver.eps = 0.1; });
  const Arrays more = cases::random_inputs(d, sizes_for(6), 15);
  expect_equal(run(d, more, 6), run(nlms, more, 6), 1e-12);
}

TEST(OracleFilters, KalmanWithoutDriftIsRidgeRegression) {
  const Design kalman = make([](Design& d) { d.solver.kind = Kind::kalman, d.solver.noise = constant(0.6); });
  const Design ridge = exact([](Design& d) { d.solver.ridge = constant(0.6); });  // P_0 = I
  const Arrays in = cases::random_inputs(kalman, sizes_for(8), 16);
  expect_equal(run(kalman, in, 8), run(ridge, in, 8), 1e-12);
}

TEST(OracleMemories, SlotsFollowTheirRecursion) {
  const Design d =
      make([](Design& x) { cases::memory(x, C::slots), x.memory.slots = 2, cases::gate(x, Weights::Per::slot); });
  const Arrays in = cases::random_inputs(d, sizes_for(5), 17);
  const Array o = run(d, in, 5);
  double km[K][2] = {}, vm[2][V] = {};
  for (int t = 0; t < 5; ++t) {
    double p[2] = {};
    for (int m = 0; m < 2; ++m) {
      const double f = std::exp(in.at("gs").data[t * 2 + m]), s = in.at("s").data[t * 2 + m];
      for (int a = 0; a < K; ++a) {
        km[a][m] = km[a][m] * f + in.at("k").data[t * K + a] * s;
        p[m] += km[a][m] * in.at("q").data[t * K + a];
      }
      for (int b = 0; b < V; ++b) vm[m][b] = vm[m][b] * f + s * in.at("v").data[t * V + b];
    }
    const double e0 = std::exp(p[0]), e1 = std::exp(p[1]);
    for (int b = 0; b < V; ++b) EXPECT_NEAR(o.data[t * V + b], (e0 * vm[0][b] + e1 * vm[1][b]) / (e0 + e1), 1e-12);
  }
}

TEST(OracleMemories, GroupedHeadsShareTheRightSide) {
  const Design d = make([](Design& x) { cases::sgd(x); });
  Sizes s = sizes_for(5);
  s.heads = 4, s.key_heads = 2;
  const Arrays in = cases::random_inputs(d, s, 18);
  Arrays state = fresh_state(d, s);
  const Array o = forward(d, s, in, state).at("o");
  for (int h = 0; h < 4; ++h) {  // head h alone, with q and k of group h / 2
    auto pick = [](const Array& a, int head, int heads, int width) {
      Array one{{a.extent[0], 1, width}, {}};
      for (std::int64_t t = 0; t < a.extent[0]; ++t)
        for (int c = 0; c < width; ++c) one.data.push_back(a.data[(t * heads + head) * width + c]);
      return one;
    };
    Arrays one = {
        {"q", pick(in.at("q"), h / 2, 2, K)}, {"k", pick(in.at("k"), h / 2, 2, K)}, {"v", pick(in.at("v"), h, 4, V)}};
    one["beta"] = pick(in.at("beta"), h, 4, 1);
    one["beta"].extent = {5, 1};
    expect_equal(run(d, one, 5), pick(o, h, 4, V), 1e-14);
  }
}

/// The gradient of `predict` against central differences of 1/2 |predict - v|^2, parameter by parameter.
TEST(OracleMemories, NetworkGradientsAreTheGradientsOfTheLoss) {
  std::vector<Memory> memories;
  for (auto act : {Memory::Activation::gelu, Memory::Activation::gelu_tanh, Memory::Activation::relu,
                   Memory::Activation::silu, Memory::Activation::tanh}) {
    Memory m;
    m.kind = C::mlp, m.depth = 3, m.width = 4, m.activation = act, m.bias = true;
    memories.push_back(m);
    m.layernorm = m.residual = true;
    memories.push_back(m);
  }
  Memory swiglu, ttt;
  swiglu.kind = C::swiglu, swiglu.width = 4;
  ttt.kind = C::layernorm_linear, ttt.bias = ttt.residual = true;
  memories.push_back(swiglu), memories.push_back(ttt), memories.push_back({});
  for (const Memory& m : memories) {
    cases::Random random(19);
    Parameters<double> w, dw;
    for (const ParameterInfo& p : parameters_of(m, K, K)) {
      w.emplace_back(p.in, p.out), dw.emplace_back(p.in, p.out);
      for (double& x : w.back().data) x = 0.6 * random.normal();
    }
    const Vec<double> x = {0.3, -0.8, 1.1}, v = {0.5, 0.2, -0.4};
    auto loss = [&] {
      const Vec<double> y = predict(m, w, x);
      double sum = 0;
      for (int b = 0; b < K; ++b) sum += 0.5 * (y[b] - v[b]) * (y[b] - v[b]);
      return sum;
    };
    gradient(m, w, x, d_loss(Extras{}, predict(m, w, x), v, 0.0), dw);
    for (std::size_t p = 0; p < w.size(); ++p)
      for (std::size_t c = 0; c < w[p].data.size(); ++c) {
        const double keep = w[p].data[c], h = 1e-5;
        w[p].data[c] = keep + h;
        const double up = loss();
        w[p].data[c] = keep - h;
        const double down = loss();
        w[p].data[c] = keep;
        EXPECT_NEAR(dw[p].data[c], (up - down) / (2 * h), 1e-8) << "parameter " << p << " entry " << c;
      }
  }
}

TEST(OracleMemories, FreshNetworksAreTheSameEveryTimeAndDifferByHead) {
  const Design d = make([](Design& x) { cases::sgd(x), cases::memory(x, C::mlp); });
  Sizes s = sizes_for(0);
  s.heads = 2;
  const Arrays a = fresh_state(d, s), b = fresh_state(d, s);
  EXPECT_EQ(a.at("W0").data, b.at("W0").data);
  EXPECT_EQ(a.at("W0").extent, (std::vector<std::int64_t>{2, K, 4 * K}));
  EXPECT_NE(a.at("W0").data[0], a.at("W0").data[K * 4 * K]);
}

TEST(OracleMemories, FeatureMapsHaveTheirKernels) {
  Memory m;
  const Vec<double> x = {0.3, -0.8, 1.1}, y = {-0.5, 0.7, 0.2}, none;
  const double s = dot(x, y) / std::sqrt(3.0);
  m.feature = Memory::Feature::taylor2;
  EXPECT_NEAR(dot(features(m, x, none), features(m, y, none)), 1 + s + s * s / 2, 1e-14);
  m.feature = Memory::Feature::polynomial;
  EXPECT_EQ(features(m, x, none),
            (Vec<double>{1, 0.3, -0.8, 1.1, 0.3 * 0.3, 0.3 * -0.8, 0.3 * 1.1, -0.8 * -0.8, -0.8 * 1.1, 1.1 * 1.1}));
  m.feature = Memory::Feature::dpfp, m.degree = 1;
  EXPECT_EQ(features(m, x, none), (Vec<double>{0.3 * 0, 0, 0, 1.1 * 0, 0.8 * 0, 0}));
  m.degree = 2;  // r = (.3, 0, 1.1, 0, .8, 0); rolled by two
  EXPECT_EQ(features(m, x, none)[2 + 6], 1.1 * 0.3);
  EXPECT_EQ(features(m, x, none)[4 + 6], 0.8 * 1.1);
}

TEST(OracleTape, DerivativesOfEveryFunction) {
  struct Case {
    const char* name;
    std::function<Var(const Var&)> f;
    std::function<double(double)> g;
  };
  const std::vector<Case> list = {
      {"exp", [](const Var& x) { return exp(x); }, [](double x) { return std::exp(x); }},
      {"expm1", [](const Var& x) { return expm1(x); }, [](double x) { return std::expm1(x); }},
      {"log", [](const Var& x) { return log(x); }, [](double x) { return std::log(x); }},
      {"sqrt", [](const Var& x) { return sqrt(x); }, [](double x) { return std::sqrt(x); }},
      {"tanh", [](const Var& x) { return tanh(x); }, [](double x) { return std::tanh(x); }},
      {"erfc", [](const Var& x) { return erfc(x); }, [](double x) { return std::erfc(x); }},
      {"sin", [](const Var& x) { return sin(x); }, [](double x) { return std::sin(x); }},
      {"cos", [](const Var& x) { return cos(x); }, [](double x) { return std::cos(x); }},
      {"pow", [](const Var& x) { return pow(x, 2.5); }, [](double x) { return std::pow(x, 2.5); }},
      {"abs", [](const Var& x) { return abs(-x); }, [](double x) { return std::abs(-x); }},
      {"quotient", [](const Var& x) { return (x - 2.0) / (x * x + 1.0); },
       [](double x) { return (x - 2) / (x * x + 1); }},
      {"max", [](const Var& x) { return max(x * 3.0, x); }, [](double x) { return std::max(x * 3, x); }},
      {"min", [](const Var& x) { return min(x * 3.0, x); }, [](double x) { return std::min(x * 3, x); }},
  };
  for (const Case& c : list) {
    Tape tape;
    const Var x = tape.leaf(0.7), y = c.f(x);
    tape.seed(y, 2.0);
    tape.sweep();
    EXPECT_DOUBLE_EQ(y.value, c.g(0.7)) << c.name;
    EXPECT_NEAR(tape.gradient(x), 2 * (c.g(0.7 + 1e-6) - c.g(0.7 - 1e-6)) / 2e-6, 1e-8) << c.name;
  }
}

TEST(OracleLeastSquares, MinimumNormFactorisation) {
  cases::Random random(20);
  for (auto [m, n, rank] : {std::array{5, 3, 3}, std::array{3, 5, 3}, std::array{5, 4, 2}, std::array{4, 4, 1}}) {
    Matrix<double> left(m, rank), right(rank, n), a(m, n), b(m, 2);
    for (double& x : left.data) x = random.normal();
    for (double& x : right.data) x = random.normal();
    for (double& x : b.data) x = random.normal();
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j)
        for (int r = 0; r < rank; ++r) a(i, j) += left(i, r) * right(r, j);
    const Matrix<double> x = least_squares(a, b);
    for (int c = 0; c < 2; ++c) {
      Vec<double> residual(m);
      for (int i = 0; i < m; ++i) {
        residual[i] = -b(i, c);
        for (int j = 0; j < n; ++j) residual[i] += a(i, j) * x(j, c);
      }
      for (int j = 0; j < n; ++j) {  // A'(A x - b) = 0
        double along = 0;
        for (int i = 0; i < m; ++i) along += a(i, j) * residual[i];
        EXPECT_NEAR(along, 0, 1e-12);
      }
      // x lies in the row space: the least-squares fit of x by the rows of A leaves nothing.
      Matrix<double> rows(n, rank), target(n, 1);
      for (int j = 0; j < n; ++j) {
        target(j, 0) = x(j, c);
        for (int r = 0; r < rank; ++r) rows(j, r) = right(r, j);
      }
      const Matrix<double> y = least_squares(rows, target);
      for (int j = 0; j < n; ++j) {
        double fit = 0;
        for (int r = 0; r < rank; ++r) fit += rows(j, r) * y(r, 0);
        EXPECT_NEAR(fit, x(j, c), 1e-11);
      }
    }
  }
}

}  // namespace
}  // namespace ttr::oracle
