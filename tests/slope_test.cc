// Slopes by differences: of what is smooth, bends, has a kink nearby or at the place itself, or is nothing but noise.
#include <gtest/gtest.h>

#include <cmath>

#include "random.h"
#include "slope.h"

namespace ttr::cli {
namespace {

constexpr double allowed = 1e-7;

TEST(Slope, OfASmoothFunctionIsTheGradientAndNoOtherNumber) {
  const auto f = [](double x) { return std::sin(1 + x); };
  EXPECT_LE(distance_from_slope(std::cos(1.0), 1, allowed, f).distance, allowed);
  const Slope wrong = distance_from_slope(std::cos(1.0) + 1e-5, 1, allowed, f);
  EXPECT_NEAR(wrong.distance, 1e-5, 1e-8);
  EXPECT_LE(wrong.uncertainty, allowed);
  EXPECT_FALSE(wrong.kink);
}

TEST(Slope, OfWhatBendsIsFoundByAShorterStep) {
  const auto f = [](double x) { return std::sin(3000 * x + 1); };
  EXPECT_LE(distance_from_slope(3000 * std::cos(1.0), 1, 3000 * allowed, f).distance, 3000 * allowed);
  EXPECT_NEAR(distance_from_slope(3000 * std::cos(1.0) + 1, 1, 3000 * allowed, f).distance, 1, 1e-2);
}

TEST(Slope, BesideAKinkIsThatOfItsSide) {
  const auto f = [](double x) { return std::abs(x - 1e-5) + x * x; };
  EXPECT_LE(distance_from_slope(-1, 1, allowed, f).distance, allowed);
  EXPECT_NEAR(distance_from_slope(-0.9, 1, allowed, f).distance, 0.1, 1e-6);
}

TEST(Slope, AtAKinkIsAnyNumberBetweenTwo) {
  const auto f = [](double x) { return std::abs(x) + 0.5 * x + std::sin(x); };  // from 0.5 to 2.5
  for (const double gradient : {0.5, 1.0, 1.7, 2.5}) {
    const Slope s = distance_from_slope(gradient, 1, allowed, f);
    EXPECT_LE(s.distance, 1e-6) << gradient;
    EXPECT_LE(s.uncertainty, 1e-5) << gradient;
  }
  const Slope wrong = distance_from_slope(2.6, 1, allowed, f);
  EXPECT_TRUE(wrong.kink);
  EXPECT_NEAR(wrong.distance, 0.1, 1e-5);
  EXPECT_NEAR(distance_from_slope(0.4, 1, allowed, f).distance, 0.1, 1e-5);
}

TEST(Slope, OfNoiseIsUncertain) {
  SplitMix random(1);
  const Slope s = distance_from_slope(0, 1, allowed, [&](double) { return 1e-3 * random.normal(); });
  EXPECT_GT(s.uncertainty, 1e-2);
}

}  // namespace
}  // namespace ttr::cli
