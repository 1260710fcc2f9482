#include "slope.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace ttr::cli {

Slope distance_from_slope(double gradient, double size, double allowed, const std::function<double(double)>& f,
                          double shortest) {
  Slope best{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  double before = std::numeric_limits<double>::quiet_NaN(), left = before, right = before;
  std::array<double, 3> gaps{before, before, before};  // between the two sides, at the last three steps
  const double here = f(0);
  for (double step = 1e-3 * size; step >= 0.99 * shortest * size; step /= 10) {
    const double up = f(step), up2 = f(2 * step), down = f(-step), down2 = f(-2 * step);
    const double slope = (8 * (up - down) - (up2 - down2)) / (12 * step);
    if (std::abs(slope - gradient) <= allowed) return {std::abs(slope - gradient), 0};
    if (const double moved = std::abs(slope - before); moved < best.uncertainty)
      best = {std::abs(slope - gradient), moved};
    before = slope;
    right = (-3 * here + 4 * up - up2) / (2 * step), left = (3 * here - 4 * down + down2) / (2 * step);
    gaps = {gaps[1], gaps[2], std::abs(right - left)};
  }
  // Of a smooth function the sides differ by a hundredth of what they did a step before, of rounding by ten times that.
  const auto same = [](double a, double b) { return a > 0.8 * b && b > 0.8 * a; };
  if (gaps[2] > 10 * allowed && same(gaps[2], gaps[1]) && same(gaps[1], gaps[0])) {
    const double low = std::min(left, right), high = std::max(left, right);
    return {std::max({low - gradient, gradient - high, 0.0}), std::abs(gaps[2] - gaps[1]), true};
  }
  return best;
}

}  // namespace ttr::cli
