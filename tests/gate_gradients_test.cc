// Gradients of gates are sums over all pairs that a gate stands between. Found as a running sum of differences, a rounding
// error stays in it for all tokens before: a rate A, whose gradient is the sum of dt dg over time, shows it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>

#include "cli/runner.h"
#include "ttr/ttr.h"

namespace ttr {
namespace {

using cli::NamedNumbers;
using cli::Numbers;
using cli::Runner;

enum class Gates { gentle, half_open, mixed, strong, one_token };

double gate(Gates kind, std::int64_t t, double uniform) {
  if (kind == Gates::gentle) return -0.1 * uniform;
  if (kind == Gates::half_open) return -3 * uniform;
  if (kind == Gates::mixed) return -8 * uniform;
  if (kind == Gates::strong) return -5;
  return t % 64 == 40 ? -20 : -0.1 * uniform;
}

// The largest error of gradients in float, as a share of the largest gradient.
double error_of(const std::string& layer, Gates kind, int dim, std::int64_t time, Form form) {
  const Shape shape{1, 2, 0, dim, dim};
  Options wide;
  wide.type = Type::f64;
  const Runner exact(plan(layer, shape, wide), time), measured(plan(layer, shape), time);
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  NamedNumbers inputs, d_outputs;
  for (const InputInfo& info : exact.plan().inputs()) {
    Numbers& x = inputs[info.name];
    x.resize(cli::count(exact.plan(), info.shape, time));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::int64_t t = static_cast<std::int64_t>(i * static_cast<std::size_t>(time) / x.size());
      x[i] = info.name == "A" ? -1 : info.name == "dt" ? -gate(kind, t, uniform(random)) : normal(random);
      x[i] = static_cast<float>(x[i]);
    }
  }
  const InputInfo& output = exact.plan().outputs()[0];
  Numbers& d_o = d_outputs[output.name];
  d_o.resize(cli::count(exact.plan(), output.shape, time));
  for (double& x : d_o) x = static_cast<float>(normal(random));
  const NamedNumbers expected = exact.backward(inputs, {}, d_outputs, {}, Form::recurrent).inputs;
  double largest = 0;
  for (const auto& [name, numbers] : expected)
    for (const double x : numbers) largest = std::max(largest, std::abs(x));
  EXPECT_GT(largest, 1);
  return cli::relative_error(measured.backward(inputs, {}, d_outputs, {}, form).inputs, expected, 0.1 * largest);
}

// By products errors were a few 1e-7; by sweeps, whose sums ran through all of time, up to 2.4e-4.
TEST(GateGradients, ARateKeepsItsDigitsUnderAnyGates) {
  for (const Gates kind : {Gates::gentle, Gates::half_open, Gates::mixed, Gates::strong, Gates::one_token})
    for (const int dim : {32, 64, 128})
      for (const std::int64_t time : {256, 2048})
        EXPECT_LE(error_of("mamba-2", kind, dim, time, Form::best), 2e-5)
            << "gates " << static_cast<int>(kind) << " K " << dim << " T " << time;
}

}  // namespace
}  // namespace ttr
