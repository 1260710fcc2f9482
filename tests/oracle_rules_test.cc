// Solvers, losses, penalties and mirror maps of the oracle against what they must equal: other recipes, closed forms,
// conditions of a minimum, and the equation of a paper.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "oracle/roots.h"
#include "oracle_cases.h"
#include "ttr/recipe.h"

namespace ttr::oracle {
namespace {

Sizes sizes_of(int time, int key_dim = 3, int value_dim = 2) {
  Sizes s;
  s.heads = s.key_heads = 1, s.key_dim = key_dim, s.value_dim = value_dim, s.time = time;
  return s;
}

Array answers(const std::string& recipe, const Sizes& sizes, const Arrays& inputs) {
  const Design d = interpret(parse_recipe(recipe));
  Arrays state = fresh_state(d, sizes);
  return forward(d, sizes, inputs, state).at("o");
}

Arrays inputs_for(const std::string& recipe, const Sizes& sizes, std::uint64_t seed = 1) {
  return cases::random_inputs(interpret(parse_recipe(recipe)), sizes, seed);
}

void expect_same(const std::string& a, const std::string& b, int time, double tolerance, int from = 0) {
  const Sizes sizes = sizes_of(time);
  Arrays inputs = inputs_for(a, sizes);
  for (const auto& [name, array] : inputs_for(b, sizes)) inputs.emplace(name, array);
  const Array x = answers(a, sizes, inputs), y = answers(b, sizes, inputs);
  for (std::size_t i = static_cast<std::size_t>(from) * 2; i < x.data.size(); ++i)
    EXPECT_NEAR(x.data[i], y.data[i], tolerance) << a << " and " << b << " at " << i;
}

TEST(Rules, EqualRecipes) {
  expect_same("equal / linear / gd(3, step(0.2, 0.2, 0.2))", "equal / linear / gd(3, step=0.2)", 6, 1e-13);
  expect_same("equal / linear / gd(1, newton=0.3)", "equal / linear / exact(ridge=0.3)", 6, 1e-11);
  expect_same("decay(0.9) / linear / gd(1, newton=0.3)", "decay(0.9) / linear / exact(ridge=0.3)", 6, 1e-11);
  expect_same("equal / linear / sgd(newton=0.5)", "equal / linear / sgd(nlms=1, eps=0.5)", 6, 1e-12);
  expect_same("equal / linear / irls(1, ridge=0.1) | lp(1)", "equal / linear / exact(ridge=0.1)", 6, 1e-12);
  expect_same("equal / linear / irls(4, ridge=0.1)", "equal / linear / exact(ridge=0.1)", 6, 1e-12);
  expect_same("near(gauss) / local(1) / irls(2, ridge=0.1)", "near(gauss) / local(1) / exact(ridge=0.1)", 6, 1e-12);
  expect_same("equal / kernel(gauss) / irls(2, ridge=0.1)", "equal / kernel(gauss) / exact(ridge=0.1)", 6, 1e-11);
  // A linear kernel has the functions of a linear memory, also their momentum.
  expect_same("equal / kernel(linear) / sgd(beta=0.3, momentum=0.5)", "equal / linear / sgd(beta=0.3, momentum=0.5)",
              6, 1e-12);
  expect_same("equal / kernel(linear) / sgd(beta=0.3, momentum=0.5, nesterov)",
              "equal / linear / sgd(beta=0.3, momentum=0.5, nesterov)", 6, 1e-12);
  expect_same("equal / kernel(linear) / gd(4, step(0.2, 0.1, 0.1, 0.05), momentum=0.4, nesterov)",
              "equal / linear / gd(4, step(0.2, 0.1, 0.1, 0.05), momentum=0.4, nesterov)", 6, 1e-12);
  // l2 by a proximal step is implicit: with one step of size h from zero it divides by 1 + h l2.
  expect_same("equal / linear / gd(1, step=0.25) | l2(2)", "equal / linear / gd(1, step(0.16666666666666666))", 6,
              1e-12);
}

TEST(Rules, ManyStepsReachTheMinimum) {
  const int from = 5;  // once there are more pairs than features
  expect_same("equal / linear / gd(200, step=0.1, lbfgs=6)", "equal / linear / exact", 8, 1e-7, from);
  expect_same("equal / linear / gd(3000, step=auto, momentum=auto, nesterov)", "equal / linear / exact", 8, 1e-5,
              from);
  expect_same("equal / linear / gd(4000, step=auto) | l1(0.3)",
              "equal / linear / gd(2000, step=auto, momentum=auto, nesterov) | l1(0.3)", 8, 1e-6, from);
  expect_same("equal / linear / irls(400, ridge=0.1) | logistic",
              "equal / mlp(1) / descend(4000, step=0.5, leak=0.1) | logistic", 4, 1e-6);
  expect_same("equal / linear / irls(200, ridge=0.1) | huber(c=0.3)",
              "equal / mlp(1) / descend(3000, step=0.2, leak=0.1) | huber(c=0.3)", 4, 1e-6);
}

TEST(Rules, ReweightedFitsOfAConstantAreQuantiles) {
  const int n = 41;
  const Sizes sizes = sizes_of(n);
  const Arrays inputs = inputs_for("equal / constant / exact", sizes);
  for (const double tau : {0.5, 0.2}) {
    const std::string loss = tau == 0.5 ? "lp(1)" : "quantile(0.2)";
    const Array o = answers("equal / constant / irls(300, eps=1e-9) | " + loss, sizes, inputs);
    for (int b = 0; b < 2; ++b) {
      std::vector<double> values;
      for (int t = 0; t < n; ++t) values.push_back(inputs.at("v").data[static_cast<std::size_t>(t) * 2 + b]);
      std::sort(values.begin(), values.end());
      EXPECT_NEAR(o.data[static_cast<std::size_t>(n - 1) * 2 + b], values[static_cast<std::size_t>(tau * n)], 1e-3);
    }
  }
}

// W = softmax(a log W - eta grad 1/2 |W'k - v|^2), o = W'q: Memora (arXiv 2504.13173) with a linear memory.
TEST(Rules, MemoraIsItsEquation) {
  const std::string recipe = "equal / linear / sgd(beta, shrink, mirror=softmax)";
  const Sizes sizes = sizes_of(5);
  const Arrays inputs = inputs_for(recipe, sizes);
  const Array o = answers(recipe, sizes, inputs);
  std::vector<double> w(6, 1.0 / 6);
  for (int t = 0; t < 5; ++t) {
    const double *k = &inputs.at("k").data[t * 3], *q = &inputs.at("q").data[t * 3], *v = &inputs.at("v").data[t * 2];
    std::vector<double> next(6);
    double sum = 0;
    for (int b = 0; b < 2; ++b) {
      double e = -v[b];
      for (int a = 0; a < 3; ++a) e += w[a * 2 + b] * k[a];
      for (int a = 0; a < 3; ++a)
        sum += next[a * 2 + b] =
            std::exp((1 - inputs.at("lam").data[t]) * std::log(w[a * 2 + b]) - inputs.at("beta").data[t] * k[a] * e);
    }
    for (double& e : next) e /= sum;
    w = next;
    for (int b = 0; b < 2; ++b) {
      double y = 0;
      for (int a = 0; a < 3; ++a) y += w[a * 2 + b] * q[a];
      EXPECT_NEAR(o.data[t * 2 + b], y, 1e-13) << t;
    }
  }
}

TEST(Rules, TheFirstStepOfAdamHasTheSizeOfTheStep) {
  const std::string recipe = "equal / constant / sgd(beta=0.3, adam, eps=0)";
  const Sizes sizes = sizes_of(1);
  const Arrays inputs = inputs_for(recipe, sizes);
  const Array o = answers(recipe, sizes, inputs);
  for (int b = 0; b < 2; ++b) EXPECT_NEAR(o.data[b], inputs.at("v").data[b] > 0 ? 0.3 : -0.3, 1e-14);
}

TEST(Rules, InverseFourthRoot) {
  cases::Random random(3);
  for (const int n : {1, 2, 5}) {
    Matrix<double> a(n, n);
    for (int r = 0; r < n + 1; ++r) {
      std::vector<double> x(n);
      for (double& e : x) e = random.normal();
      for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j) a(i, j) += x[i] * x[j];
    }
    const Matrix<double> r = inverse_fourth_root(a, 0.1);
    const auto times = [n](const Matrix<double>& x, const Matrix<double>& y) {
      Matrix<double> z(n, n);
      for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j)
          for (int k = 0; k < n; ++k) z(i, j) += x(i, k) * y(k, j);
      return z;
    };
    for (int i = 0; i < n; ++i) a(i, i) += 0.1;
    const Matrix<double> one = times(times(times(r, r), times(r, r)), a);
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) EXPECT_NEAR(one(i, j), i == j ? 1 : 0, 1e-12);
  }
}

}  // namespace
}  // namespace ttr::oracle
