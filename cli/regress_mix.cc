#include "regress_mix.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttr::cli {

Aggregation::Aggregation(std::size_t experts)
    : losses_(experts), weights_(experts, 1 / static_cast<double>(std::max<std::size_t>(experts, 1))) {}

double Aggregation::predict(const double* forecasts) const {
  double sum = 0, total = 0;
  for (std::size_t j = 0; j < weights_.size(); ++j) {
    if (std::isnan(forecasts[j])) continue;
    sum += weights_[j] * forecasts[j], total += weights_[j];
  }
  return total > 0 ? sum / total : std::numeric_limits<double>::quiet_NaN();
}

void Aggregation::update(const double* forecasts, double prediction, double value) {
  const double own = (prediction - value) * (prediction - value);
  if (!std::isfinite(own)) return;
  largest_ = std::max(largest_, own);
  for (std::size_t j = 0; j < losses_.size(); ++j) {
    const double loss = (forecasts[j] - value) * (forecasts[j] - value);
    losses_[j] += std::isnan(loss) ? own : loss;  // one that sleeps neither gains nor loses
  }
  const double least = *std::min_element(losses_.begin(), losses_.end());
  if (!(largest_ > 0) || !std::isfinite(least)) return;
  double sum = 0;
  for (std::size_t j = 0; j < losses_.size(); ++j)
    sum += weights_[j] = std::exp((least - losses_[j]) / (2 * largest_));
  for (double& w : weights_) w /= sum;
}

Mix::Mix(std::size_t experts, std::size_t values, bool stacked) : experts_(experts) {
  for (std::size_t v = 0; v < values; ++v) {
    values_.push_back({Aggregation(experts), Aggregation(2), {}, {}});
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
    prediction[2 * V + v] = stacked;
    const double both[] = {base, stacked};
    prediction[v] = column.top.predict(both);
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
    const double both[] = {base, prediction[2 * V + v]};
    column.top.update(both, prediction[v], actual[v]);
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
  const double share = 1 / static_cast<double>(values_.size());
  for (const Column& column : values_) {
    const double of_base = column.stack.empty() ? 1 : column.top.weights()[0];
    for (std::size_t j = 0; j < experts_; ++j) mean[j] += share * of_base * column.base.weights()[j];
    mean[experts_] += share * (1 - of_base);
  }
  return mean;
}

}  // namespace ttr::cli
