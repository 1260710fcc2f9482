// Grids scale with the dimension, so that one list serves all of them:
//
//   kernels near the query   exp(-|q - k|^2 / h), h = 2 sqrt(d) / m, and exp(s q.k), s = m / sqrt(d): m = 1 is the usual one
//   linear attention         S' q = step sum_i v_i k_i.q; the keys' second moment is about d along the centre, so steps
//                            are multiples of 1/(d n), n the tokens remembered
//
// Keys are as they come, except for the delta rule with a decay, which normalises them as Gated DeltaNet does.
#include "layers.h"

#include <cmath>

#include <fmt/format.h>

namespace ttr::piecewise {

std::vector<Layer> layers(const Spec& spec) {
  using Grid = std::vector<std::string>;
  const double d = spec.dim, root = std::sqrt(d);
  const auto gauss = [&](double m) { return fmt::format("near(gauss, bandwidth={:.6g})", 2 * root / m); };
  const auto exponential = [&](double m) { return fmt::format("near(exp, scale={:.6g})", m / root); };
  const auto ridged = [](const std::string& start, double ridge) {
    return fmt::format("{} / linear / exact(ridge={:.6g})", start, ridge);
  };

  Grid local;
  for (double ridge : {0.001, 0.01, 0.1}) {
    const std::string solver = fmt::format(" / local(1) / exact(ridge={:.6g}, relative)", ridge);
    for (double m : {1.0, 1.5, 2.0, 3.0}) local.push_back(gauss(m) + solver);
    local.push_back(exponential(1) + solver);
  }
  Grid constant;
  for (double m : {1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0}) constant.push_back(gauss(m) + " / constant / exact");
  for (double m : {0.5, 1.0, 2.0}) constant.push_back(exponential(m) + " / constant / exact");

  Grid plain, forgetting;
  for (double ridge : {0.01, 0.1, 1.0}) plain.push_back(ridged("equal", ridge));
  for (double factor : {0.7, 0.8, 0.9, 0.95, 0.97, 0.99})
    for (double ridge : {0.01, 0.1, 1.0}) forgetting.push_back(ridged(fmt::format("decay({:.6g})", factor), ridge));
  Grid kernel;
  for (double m : {0.03, 0.1, 0.3})
    for (double ridge : {0.001, 0.01, 0.1})
      kernel.push_back(
          fmt::format("equal / kernel(gauss, bandwidth={:.6g}) / exact(ridge={:.6g})", 2 * root / m, ridge));

  Grid nlms, delta;
  for (double step : {0.1, 0.25, 0.5, 1.0, 1.5})
    nlms.push_back(fmt::format("equal / linear / sgd(nlms={:.6g})", step));
  for (double step : {0.25, 0.5, 1.0, 1.5})
    for (double decay : {0.001, 0.003, 0.01, 0.03})
      delta.push_back(fmt::format("equal / linear / sgd(beta={:.6g}, decay={:.6g}) | keys(unit)", step, decay));

  Grid linear = {"equal / linear / gd(1, step=auto)", "equal / linear(elu1) / gd(1) | normalise(keysum)"}, gated;
  for (double m : {0.3, 1.0, 3.0, 10.0})
    linear.push_back(fmt::format("equal / linear / gd(1, step={:.6g})", m / (d * spec.length)));
  for (double factor : {0.7, 0.8, 0.9, 0.95}) {
    gated.push_back(fmt::format("decay({:.6g}) / linear(elu1) / gd(1) | normalise(keysum)", factor));
    for (double m : {0.1, 0.3, 1.0})
      gated.push_back(fmt::format("decay({:.6g}) / linear / gd(1, step={:.6g})", factor, m * (1 - factor) / d));
  }

  return {{"local linear attention", 3, 0, local},
          {"softmax attention", 2, 0, constant},
          {"RLS", 1, 0, plain},
          {"RLS, forgetting", 1, 1, forgetting},
          {"kernel ridge regression", 6, 0, kernel},
          {"NLMS", 4, 0, nlms},
          {"Gated DeltaNet", 4, 1, delta},
          {"linear attention", 0, 0, linear},
          {"gated linear attention", 0, 1, gated},
          {"RLS told of each change", -1, 2, plain, true}};
}

}  // namespace ttr::piecewise
