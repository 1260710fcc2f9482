// Weights that are squares, in float, where a query is nearly at right angles to all keys: (q.k)^2 keeps its digits, and so
// must sums over the K^2 / 2 products of its features, which cancel (docs/accuracy.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "cli/runner.h"

namespace ttr {
namespace {

using cli::NamedNumbers;
using cli::Numbers;
using cli::Runner;

constexpr int K = 16, V = 4, T = 40;

// Keys are sums of rows 1 to 7 of a Hadamard matrix, queries of rows 8 to 15 and a little of the others: no entry is small,
// and the layer norm of the map has no mean to take off.
NamedNumbers at_right_angles() {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  NamedNumbers in;
  const auto entry = [](unsigned i, unsigned j) { return std::popcount(i & j) % 2 ? -1.0 : 1.0; };
  for (int t = 0; t < T; ++t) {
    Numbers k(K), q(K);
    for (unsigned i = 1; i < K; ++i) {
      const double of_k = i < K / 2 ? normal(random) : 0.0, of_q = normal(random) * (i < K / 2 ? 0.02 : 1.0);
      for (unsigned j = 0; j < K; ++j) k[j] += of_k * entry(i, j), q[j] += of_q * entry(i, j);
    }
    for (unsigned j = 0; j < K; ++j) {
      in["k"].push_back(static_cast<float>(k[j]));
      in["q"].push_back(static_cast<float>(q[j]));
    }
  }
  for (int i = 0; i < T * V; ++i) in["v"].push_back(static_cast<float>(normal(random)));
  in["gamma"] = Numbers(K, 1.0), in["shift"] = Numbers(K, 0.0), in["g"] = Numbers(T, -0.0625);
  return in;
}

// The largest error of a float plan, relative to the largest answer.
double error_of(const std::string& recipe, Form form) {
  const Shape shape{.batch = 1, .heads = 1, .key_dim = K, .value_dim = V};
  const NamedNumbers in = at_right_angles();
  const Numbers got = Runner(plan(recipe, shape, {.type = Type::f32}), T).forward(in, {}, form).outputs.at("o");
  const Numbers want = Runner(plan(recipe, shape, {.type = Type::f64, .kernel = "oracle"}), T)
                           .forward(in, {}, Form::recurrent)
                           .outputs.at("o");
  double error = 0, size = 0;
  for (std::size_t i = 0; i < want.size(); ++i)
    error = std::max(error, std::abs(got[i] - want[i])), size = std::max(size, std::abs(want[i]));
  return error / size;
}

TEST(Squares, OfProductsKeepTheirDigits) {
  for (const Form form : {Form::recurrent, Form::chunk, Form::parallel}) {
    EXPECT_LT(error_of("window(64) / linear(rebased) / gd(1) | normalise(keysum)", form), 2e-5) << to_string(form);
    EXPECT_LT(error_of("equal / linear(rebased) / gd(1) | normalise(keysum)", form), 2e-5) << to_string(form);
    EXPECT_LT(error_of("gate / linear(rebased) / gd(1) | normalise(keysum)", form), 2e-5) << to_string(form);
  }
}

// The layer takes keys whose norm is the caller's business: nothing is rounded before they are squared.
TEST(Squares, OfTheLayerKeepTheirDigits) {
  for (const Form form : {Form::recurrent, Form::chunk, Form::parallel, Form::scan})
    EXPECT_LT(error_of("rebased", form), 2e-6) << to_string(form);
}

// 1 + x + x^2 / 2 is at least 1/2: its features may be float.
TEST(Squares, OfTaylorHaveASumThatStays) {
  EXPECT_LT(error_of("equal / linear(taylor2) / gd(1) | normalise(keysum)", Form::chunk), 2e-5);
}

}  // namespace
}  // namespace ttr
