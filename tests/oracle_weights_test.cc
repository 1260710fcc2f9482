// Weights of the oracle by another way to the same answer: kernels of the distance, nearest neighbours, powers of the
// age, given weights and masks; and problems of their own for every query.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "oracle_cases.h"
#include "ttr/plan.h"

namespace ttr::oracle {
namespace {

constexpr int K = 3, V = 2;

Sizes sizes_for(std::int64_t time) {
  Sizes s;
  s.key_dim = K, s.value_dim = V, s.time = time;
  return s;
}

Design design_of(const std::string& text) { return interpret(parse_recipe(text)); }

Array run(const std::string& recipe, const Arrays& inputs, std::int64_t time) {
  const Design d = design_of(recipe);
  Arrays own, state = fresh_state(d, sizes_for(time));
  for (const DesignInput& input : inputs_of(d)) own[input.name] = inputs.at(input.name);
  return forward(d, sizes_for(time), own, state).at("o");
}

void expect_equal(const Array& a, const Array& b, double tolerance) {
  ASSERT_EQ(a.data.size(), b.data.size());
  for (std::size_t i = 0; i < a.data.size(); ++i) ASSERT_NEAR(a.data[i], b.data[i], tolerance) << i;
}

TEST(OracleWeights, LimitsOfWideKernelsAreEqualWeights) {
  const std::int64_t time = 9;
  const Arrays in = cases::random_inputs(design_of("near(exp) / constant / exact"), sizes_for(time), 3);
  const Array mean = run("equal / constant / exact", in, time);
  for (const char* near : {"near(box, bandwidth=100)", "near(nearest=9)", "near(laplace, bandwidth=1e9)",
                           "near(matern32, bandwidth=1e6)", "near(matern52, bandwidth=1e6)",
                           "near(epanechnikov, bandwidth=1e6)", "near(tricube, bandwidth=1e6)"})
    expect_equal(run(std::string(near) + " / constant / exact", in, time), mean, 1e-7);
  for (const char* rest : {" / kernel(matern32) / exact(ridge=0.1)", " / kernel(gauss) / gd(3, step=0.1)",
                           " / mlp(2, width=4) / gd(3, step=0.1)"})
    expect_equal(run(std::string("near(box, bandwidth=100)") + rest, in, time),
                 run("equal" + std::string(rest), in, time), 1e-12);
}

TEST(OracleWeights, TheNearestNeighbourIsCopied) {
  const std::int64_t time = 8;
  const Arrays in = cases::random_inputs(design_of("near(exp) / constant / exact"), sizes_for(time), 4);
  const Array o = run("near(nearest=1) / constant / exact", in, time);
  for (std::int64_t t = 0; t < time; ++t) {
    std::int64_t best = 0;
    double least = HUGE_VAL;
    for (std::int64_t i = 0; i <= t; ++i) {
      double square = 0;
      for (int a = 0; a < K; ++a) square += std::pow(in.at("q").data[t * K + a] - in.at("k").data[i * K + a], 2);
      if (square < least) least = square, best = i;
    }
    for (int b = 0; b < V; ++b) EXPECT_EQ(o.data[t * V + b], in.at("v").data[best * V + b]) << t;
  }
}

TEST(OracleWeights, GivenWeightsCanBeAnyOthers) {
  const std::int64_t time = 7;
  const int W = 7;
  Arrays in = cases::random_inputs(design_of("given(7) / linear / gd(1)"), sizes_for(time), 5);
  Array& w = in["w"];
  for (const char* rest : {" / linear / gd(1)", " / linear / exact(ridge=0.1)", " / linear / descend(2, step=0.1)",
                           " / kernel(laplace) / exact(ridge=0.2)", " / constant / exact"}) {
    for (std::int64_t t = 0; t < time; ++t)
      for (int age = 0; age < W; ++age) w.data[t * W + age] = std::pow(0.8, age);
    expect_equal(run("given(7)" + std::string(rest), in, time), run("decay(0.8)" + std::string(rest), in, time),
                 1e-12);
    for (std::int64_t t = 0; t < time; ++t)
      for (int age = 0; age < W; ++age) w.data[t * W + age] = std::pow(1.0 + age, -0.7);
    expect_equal(run("given(7)" + std::string(rest), in, time), run("power(0.7)" + std::string(rest), in, time),
                 1e-12);
    in["mask"] = w;
    for (std::int64_t t = 0; t < time; ++t)
      for (int age = 0; age < W; ++age) in["mask"].data[t * W + age] = age < 3 ? 1 : 0;
    expect_equal(run("mask(7)" + std::string(rest), in, time), run("window(3)" + std::string(rest), in, time), 1e-12);
  }
}

TEST(OracleWeights, ADecayBesideAGateIsAGate) {
  const std::int64_t time = 6;
  Arrays in = cases::random_inputs(design_of("gate / linear / exact(ridge=0.1)"), sizes_for(time), 6);
  Arrays shifted = in;
  for (double& g : shifted["g"].data) g += std::log(0.9);
  expect_equal(run("gate * decay(0.9) / linear / exact(ridge=0.1)", in, time),
               run("gate / linear / exact(ridge=0.1)", shifted, time), 1e-13);
}

TEST(OracleWeights, LocalPolynomialsOfHighOrderAreReproduced) {
  Sizes s;
  s.time = 12;
  const Design d = design_of("near(tricube, bandwidth=50) / local(5) / exact");
  Arrays in = cases::random_inputs(d, s, 8);
  const auto f = [](double x) { return 0.2 - x + 0.5 * x * x - 0.1 * std::pow(x, 4) + 0.05 * std::pow(x, 5); };
  for (std::int64_t t = 0; t < s.time; ++t) in["v"].data[t] = f(in["k"].data[t]);
  Arrays state = fresh_state(d, s);
  const Array o = forward(d, s, in, state).at("o");
  for (std::int64_t t = 8; t < s.time; ++t) EXPECT_NEAR(o.data[t], f(in["q"].data[t]), 1e-6) << t;
}

TEST(OracleWeights, TooManyFeaturesAreRefusedByNumber) {
  try {
    plan(parse_recipe("near(exp) / local(12) / exact(ridge)"), Shape{.key_dim = 64, .value_dim = 4});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("features"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("degree 12"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ttr::oracle
