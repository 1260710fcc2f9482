// What problems make of a rounding of their inputs: as much as they are known to by their formulas.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "check_case.h"
#include "magnification.h"
#include "random.h"

namespace ttr::cli {
namespace {

constexpr double unit = 0x1p-53;

Magnification of(const std::string& recipe, int time, double key_size = 1, int key_dim = 3) {
  Options options;
  options.type = Type::f64;
  const Runner runner(plan(recipe, {.key_dim = key_dim, .value_dim = 2}, options), time);
  NamedNumbers inputs, d_outputs, none;
  SplitMix random(3);
  for (const InputInfo& info : runner.plan().inputs()) {
    Numbers& numbers = inputs[info.name];
    numbers.resize(count(runner.plan(), info.shape, time));
    for (double& x : numbers) x = random.normal() * (info.name == "k" || info.name == "q" ? key_size : 1);
  }
  d_outputs["o"].assign(inputs.at("v").size(), 1.0);
  return measure_magnification(runner, {inputs, none, d_outputs, none, Form::recurrent}, unit, 1);
}

TEST(Magnification, OfASumIsSmall) {
  const Magnification s = of("equal / linear / gd(1)", 20);
  EXPECT_LE(s.outputs, 20);
  EXPECT_LE(s.gradients, 20);
  EXPECT_LE(allowed_error(1e-10, unit, s.outputs), 1e-10);
}

// S <- (I - 2.5 k k') S + ..: with keys of length 1 in one dimension every token multiplies by -1.5, and the sign of what
// is left over says nothing of size. Relative to the answer, which grows as fast, nothing is magnified.
TEST(Magnification, OfGrowthIsRelativeToWhatGrows) {
  const Magnification s = of("equal / linear / sgd(beta=2.5) | keys(unit)", 60, 1, 1);
  EXPECT_GT(s.largest_output, 1e8);
  EXPECT_LE(s.outputs, 1e3);
}

// Two keys that differ by 1e-4 and no ridge: what lies between them changes by ten thousand times as much.
TEST(Magnification, OfASolveIsItsCondition) {
  Options options;
  options.type = Type::f64, options.kernel = "oracle";
  const Runner runner(plan("equal / linear / exact", {.key_dim = 2, .value_dim = 1}, options), 2);
  const NamedNumbers inputs = {{"q", {1, 0, 0.3, 1}}, {"k", {1, 1, 1, 1 + 1e-4}}, {"v", {1, -1}}}, none;
  const NamedNumbers d_outputs = {{"o", {1, 1}}};
  const Magnification s = measure_magnification(runner, {inputs, none, d_outputs, none, Form::recurrent}, unit, 7);
  EXPECT_GT(s.outputs, 1e3);
  EXPECT_LT(s.outputs, 1e6);
}

TEST(Magnification, OfWhatLeavesTheNumbersIsInfinite) {
  const Magnification s = of("equal / mlp(2) / sgd(beta=3)", 40, 3);
  EXPECT_TRUE(std::isinf(s.largest_output));
  EXPECT_TRUE(std::isinf(s.outputs));
}

TEST(Magnification, AllowsAsManyRoundingsAsTheToleranceIs) {
  EXPECT_EQ(allowed_error(1e-10, unit, 1), 1e-10);
  EXPECT_DOUBLE_EQ(allowed_error(1e-10, unit, 1e6), 4000 * unit * 1e6);
  EXPECT_DOUBLE_EQ(allowed_error(1e-4, 0x1p-24, 3), 3e-4);
}

}  // namespace
}  // namespace ttr::cli
