#include "regress_mix.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttr::cli {

Aggregation::Aggregation(std::size_t experts)
    : regret_(experts),
      largest_(experts),
      unit_(experts),
      squares_(experts),
      weights_(experts, 1 / static_cast<double>(std::max<std::size_t>(experts, 1))) {}

double Aggregation::predict(const double* forecasts) const {
  double sum = 0, total = 0;
  for (std::size_t j = 0; j < weights_.size(); ++j) {
    if (std::isnan(forecasts[j])) continue;
    sum += weights_[j] * forecasts[j], total += weights_[j];
  }
  return total > 0 ? sum / total : std::numeric_limits<double>::quiet_NaN();
}

void Aggregation::update(const double* forecasts, double prediction, double value) {
  const double slope = 2 * (prediction - value), choices = std::log(static_cast<double>(weights_.size()) + 1);
  if (!std::isfinite(slope)) return;
  for (std::size_t j = 0; j < weights_.size(); ++j) {
    const double r = slope * (prediction - forecasts[j]);
    // The difference of two sums of the same forecasts is rounding, and would make a rate without bound.
    if (!std::isfinite(r) || std::abs(prediction - forecasts[j]) <= 1e-9 * std::abs(prediction - value)) continue;
    if (unit_[j] == 0) unit_[j] = std::abs(r);
    largest_[j] = std::max(largest_[j], std::abs(r));
    squares_[j] += r * r;
    const double eta = rate(j, choices);
    const double over = eta * r > 0.5 ? unit_[j] * std::exp2(std::ceil(std::log2(largest_[j] / unit_[j]))) : 0;
    regret_[j] += (r - eta * r * r + over) / 2;
  }
  // An expert that has never differed from the mix has no rate of its own, and gets the largest of the others.
  double most = 0, top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (std::size_t j = 0; j < weights_.size(); ++j) most = std::max(most, rate(j, choices));
  if (most == 0) return;
  for (std::size_t j = 0; j < weights_.size(); ++j) {
    const double eta = squares_[j] > 0 ? rate(j, choices) : most;
    weights_[j] = std::log(eta) + eta * regret_[j];
    top = std::max(top, weights_[j]);
  }
  for (double& w : weights_) sum += w = std::exp(w - top);
  for (double& w : weights_) w /= sum;
}

double Aggregation::rate(std::size_t j, double choices) const {
  return squares_[j] > 0 ? std::min(1 / largest_[j], std::sqrt(choices / squares_[j])) : 0;
}

Mix::Mix(std::size_t experts, std::size_t values, bool stacked) : experts_(experts), forecasts_(experts + 1) {
  for (std::size_t v = 0; v < values; ++v) {
    values_.push_back({Aggregation(experts + (stacked ? 1 : 0)), Aggregation(experts), {}, {}});
    if (!stacked) continue;
    Column& column = values_.back();
    column.stack.emplace_back("rls:ridge=10", static_cast<int>(experts), 1);
    column.block.key_dim = static_cast<int>(experts), column.block.value_dim = 1, column.block.rows = 1;
    column.block.keys.resize(experts), column.block.queries.resize(experts), column.block.values.resize(1);
    column.block.has_pair.resize(1), column.block.may_be_asked_again.assign(1, 1);
  }
}

double Mix::clipped(const Column& column, double forecast) const {
  const double range = column.high - column.low;
  return range > 0 ? std::clamp(forecast, column.low - range, column.high + range) : forecast;
}

// A prediction: [V] the mix, [V] the base, [V] the stack, [V, E] the experts' forecasts as they were used.
void Mix::predict(const double* forecasts, double* prediction) {
  const std::size_t V = values_.size();
  for (std::size_t v = 0; v < V; ++v) {
    Column& column = values_[v];
    double* const used = prediction + 3 * V + v * experts_;
    for (std::size_t j = 0; j < experts_; ++j) used[j] = clipped(column, forecasts[j * V + v]);
    std::copy_n(used, experts_, forecasts_.data());
    const double base = column.base.predict(used);
    prediction[V + v] = base;
    if (column.stack.empty()) {
      prediction[v] = prediction[2 * V + v] = base;
      continue;
    }
    const double deviation = column.count > 0 ? std::sqrt(column.squares / column.count) : 0;
    double stacked = base;
    if (deviation > 0 && std::isfinite(base)) {
      for (std::size_t j = 0; j < experts_; ++j)
        column.block.queries[j] = std::isfinite(used[j]) ? (used[j] - base) / deviation : 0;
      double answer = 0;
      column.stack[0].run(column.block, &answer);
      column.block.has_pair[0] = 0;
      stacked = clipped(column, base + deviation * answer);
    }
    forecasts_[experts_] = prediction[2 * V + v] = stacked;
    prediction[v] = column.aggregation.predict(forecasts_.data());
  }
}

void Mix::update(const double* prediction, const double* actual) {
  const std::size_t V = values_.size();
  for (std::size_t v = 0; v < V; ++v) {
    Column& column = values_[v];
    const double* const used = prediction + 3 * V + v * experts_;
    const double base = prediction[V + v], error = actual[v] - base;
    if (std::isnan(actual[v])) continue;
    column.low = column.seen ? std::min(column.low, actual[v]) : actual[v];
    column.high = column.seen ? std::max(column.high, actual[v]) : actual[v];
    column.seen = true;
    if (!std::isfinite(base)) continue;
    // Where all say the same but for rounding, as after the first value, nothing can be learned about them.
    if (std::none_of(used, used + experts_,
                     [&](double forecast) { return std::abs(forecast - base) > 1e-9 * std::abs(error); }))
      continue;
    column.base.update(used, base, actual[v]);
    if (column.stack.empty()) continue;
    std::copy_n(used, experts_, forecasts_.data());
    forecasts_[experts_] = prediction[2 * V + v];
    column.aggregation.update(forecasts_.data(), prediction[v], actual[v]);
    column.squares += error * error, column.count += 1;
    const double deviation = std::sqrt(column.squares / column.count);
    if (!(deviation > 0)) continue;
    double ignored = 0;
    if (column.block.has_pair[0]) column.stack[0].run(column.block, &ignored);  // nobody has asked since
    for (std::size_t j = 0; j < experts_; ++j)
      column.block.keys[j] = std::isfinite(used[j]) ? (used[j] - base) / deviation : 0;
    column.block.values[0] = error / deviation;
    column.block.has_pair[0] = 1;
  }
}

std::vector<double> Mix::weights() const {
  std::vector<double> mean(experts_ + 1);
  for (const Column& column : values_) {
    const std::vector<double>& of = column.stack.empty() ? column.base.weights() : column.aggregation.weights();
    for (std::size_t j = 0; j < of.size(); ++j) mean[j] += of[j] / static_cast<double>(values_.size());
  }
  return mean;
}

}  // namespace ttr::cli
