#include "magnification.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "random.h"

namespace ttr::cli {
namespace {

constexpr double most_roundings = 4000;
constexpr double moved_roundings = 8;  // one is lost where a number is rounded to double again
constexpr int trials = 6;
constexpr double most_steps = 12;  // of conjugate gradients that are looked at

void move(NamedNumbers& all, double by, SplitMix& random) {
  for (auto& [name, numbers] : all)
    for (double& x : numbers) x *= 1 + by * (random.uniform() < 0.5 ? -1 : 1);
}

NamedNumbers joined(NamedNumbers a, const NamedNumbers& state) {
  for (const auto& [name, numbers] : state) a["state." + name] = numbers;
  return a;
}

}  // namespace

double largest_of(const NamedNumbers& all) {
  double most = 0;
  for (const auto& [name, numbers] : all)
    for (const double x : numbers)
      if (!std::isfinite(x)) return std::numeric_limits<double>::infinity();
      else most = std::max(most, std::abs(x));
  return most;
}

Magnification measure_magnification(const Runner& in_double, const Given& given, double unit, std::uint64_t seed) {
  const double by = moved_roundings * unit;
  struct Result {
    NamedNumbers outputs, gradients;
  };
  const auto solve = [&](const NamedNumbers& inputs, const NamedNumbers& initial) {
    Result result;
    const Forward forward = in_double.forward(inputs, initial, given.form);
    result.outputs = joined(forward.outputs, forward.state);
    if (!given.gradients || !(largest_of(result.outputs) <= given.most)) return result;
    const Backward backward = in_double.backward(inputs, initial, given.d_outputs, given.d_final, given.form);
    result.gradients = joined(backward.inputs, backward.state);
    return result;
  };
  constexpr double infinity = std::numeric_limits<double>::infinity();
  try {
    const Result at = solve(given.inputs, given.initial);
    Magnification s{1, 1, largest_of(at.outputs), largest_of(at.gradients)};
    if (!(std::max(s.largest_output, s.largest_gradient) <= given.most))
      return {infinity, infinity, s.largest_output, s.largest_gradient};
    const double floor = given.floor * std::max(s.largest_gradient, 1.0);
    for (int trial = 0; trial < trials; ++trial) {
      SplitMix random(seed + 1000 + static_cast<std::uint64_t>(trial));
      NamedNumbers inputs = given.inputs, initial = given.initial;
      move(inputs, by, random), move(initial, by, random);
      const Result moved = solve(inputs, initial);
      s.outputs = std::max(s.outputs, relative_error(moved.outputs, at.outputs) / by);
      // As gradients are compared: one that is a sum of larger terms which cancel is known to their rounding alone.
      s.gradients = std::max(s.gradients, relative_error(moved.gradients, at.gradients, floor) / by);
      for (const std::string& name : given.own_size)
        if (const auto found = at.gradients.find(name); found != at.gradients.end())
          s.gradients = std::max(s.gradients, relative_error(moved.gradients.at(name), found->second) / by);
    }
    return s;
  } catch (const Error&) {  // at the border of what has an answer
    return {infinity, infinity, infinity, infinity};
  }
}

double least_step_share(const Runner& in_double, const NamedNumbers& inputs, Form form) {
  Recipe recipe = in_double.plan().recipe();
  double steps = 0;
  for (const Argument& a : recipe.solver.arguments)
    if (a.key.empty() && a.is_number()) steps = std::min(a.number(), most_steps);
  if (recipe.solver.word != "cg" || steps < 2) return 1;
  const std::size_t V = static_cast<std::size_t>(in_double.plan().shape().value_dim);
  double least = 1;
  Numbers after;
  for (double n = steps; n >= 1; --n) {
    for (Argument& a : recipe.solver.arguments)
      if (a.key.empty() && a.is_number()) a.value = n;
    const Runner runner(plan(recipe, in_double.plan().shape(), in_double.plan().options()), in_double.time());
    const Numbers answer = runner.forward(inputs, {}, form).outputs.at("o");
    for (std::size_t base = 0; base < after.size(); base += V) {
      double change = 0, size = 0;
      for (std::size_t i = base; i < base + V; ++i)
        change += std::abs(after[i] - answer[i]), size += std::abs(after[i]);
      if (change > 0 && size > 0) least = std::min(least, change / size);
    }
    after = answer;
  }
  return least;
}

double allowed_error(double tolerance, double unit, double magnification) {
  return std::max(tolerance, std::min(tolerance / unit, most_roundings) * unit * magnification);
}

}  // namespace ttr::cli
