// What the checks measure numbers by: how large they are, what of a gradient is known, whether a loss has a slope, and
// how far rounding carries.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "runner.h"
#include "ttr/plan.h"

namespace ttr::cli {

inline double largest_of(const NamedNumbers& gradients) {
  double largest = 0;
  for (const auto& [name, numbers] : gradients)
    for (double x : numbers) largest = std::max(largest, std::abs(x));
  return largest;
}

// A gradient that is smaller than the others of its layer may be a sum of terms of their size that cancel (of that of
// the incoming gradients, 1, where all of them vanish, as behind a norm of one channel). Such a sum is known to some
// roundings of the largest and no better, so an error of so many is allowed in every gradient, and beyond that a
// tolerance relative to its own size. The most that any layer needs is 500 in double (a division by the length of an
// answer of one channel) and 20 in float.
inline double gradient_floor(const NamedNumbers& gradients, Type type, double tolerance) {
  const double cancelled = type == Type::f32 ? 100 * 0x1p-24 : 1000 * 0x1p-53;
  return cancelled * std::max(largest_of(gradients), 1.0) / tolerance;
}

// Differences of a loss know a slope to the rounding of the loss over the step, 1e-13 or so, whatever its size.
inline double difference_floor(const NamedNumbers& gradients) { return std::max(0.1 * largest_of(gradients), 1e-2); }

/// The largest number on a scale on which 1 is so large that products of gradients are no numbers any more: steps that
/// are too long for their problem get there, by a factor for every token.
inline double growth(const NamedNumbers& all, Type type) {
  double largest = 1;
  for (const auto& [name, numbers] : all)
    for (double x : numbers) largest = std::max(largest, std::isfinite(x) ? std::abs(x) : HUGE_VAL);
  return std::log(largest) / std::log(type == Type::f32 ? 1e16 : 1e140);
}

// How far `gradient` is from the slope of a loss at x. Five points, so that the step can be long enough for rounding
// not to matter; it is relative to the number, because a rate of a hundredth matters as much as a weight of one. Where
// the loss bends too much for it (a norm of a short vector, an orthogonalised update) a shorter one decides.
struct Slope {
  double distance = std::numeric_limits<double>::infinity();
  bool found =
      false;  // two of them in a row agree: where answers depend on rounding no step is short enough for that
};
template <class Loss>
Slope slope_of(double gradient, double x, double allowed, Loss&& loss_at,
               std::initializer_list<double> sizes = {1e-3, 1e-4}) {
  Slope s;
  double last = std::nan("");
  for (const double size : sizes) {
    const double step = size * std::clamp(std::abs(x), 0.02, 1.0);
    const double slope =
        (8 * (loss_at(step) - loss_at(-step)) - (loss_at(2 * step) - loss_at(-2 * step))) / (12 * step);
    s.distance = std::min(s.distance, std::abs(slope - gradient));
    s.found |= std::abs(slope - last) <= std::min(allowed, 1e-3 * std::max(std::abs(slope), std::abs(last)));
    last = slope;
    if (s.distance <= allowed) break;
  }
  return s;
}

/// Inputs moved by a few roundings of doubles, each by a share of its own size: 1e-12.
inline constexpr double nudge = 1e-12;
inline NamedNumbers nudged(NamedNumbers inputs) {
  int n = 0;
  for (auto& [name, numbers] : inputs)
    for (double& x : numbers) x *= 1 + (++n % 2 == 0 ? nudge : -nudge);
  return inputs;
}

}  // namespace ttr::cli
