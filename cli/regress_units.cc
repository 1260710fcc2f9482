#include "regress_units.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ttr::cli {
namespace {

constexpr std::int64_t most_rows_of_a_group = 256, most_numbers = 4'000'000;

std::int64_t rows_of_last_update(const PairSpec& spec, bool standardize) {
  if (!standardize) return 0;
  const std::int64_t numbers =
      static_cast<std::int64_t>(spec.lag_count()) * spec.key_columns + spec.more_columns + spec.value_columns + 1;
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(std::clamp<std::int64_t>(
      most_numbers / numbers, 1, spec.one_of_many ? most_rows_of_a_group : Units::most_rows))));
}

}  // namespace

void Moments::add(const double* row) {
  for (std::size_t c = 0; c < mean_.size(); ++c) {
    if (std::isnan(row[c])) continue;
    const double before = row[c] - mean_[c];
    mean_[c] += before / static_cast<double>(++count_[c]);
    squares_[c] += before * (row[c] - mean_[c]);
  }
}

double Moments::deviation(int column) const {
  const std::int64_t count = count_[column];
  const double variance = count > 0 ? squares_[column] / static_cast<double>(count) : 0;
  // Below rounding noise a column counts as constant.
  const double noise = 1e-14 * std::abs(mean_[column]);
  return variance > noise * noise && variance > 1e-300 ? std::sqrt(variance) : 1;
}

Units::Units(const PairSpec& spec, bool standardize, bool values_too)
    : spec_(spec),
      values_too_(values_too),
      last_(rows_of_last_update(spec, standardize)),
      keys_(spec.key_columns + spec.more_columns),
      values_(spec.value_columns),
      key_shift_(spec.key_columns + spec.more_columns),
      key_factor_(spec.key_columns + spec.more_columns, 1.0),
      value_shift_(spec.value_columns),
      value_scale_(spec.value_columns, 1.0) {}

void Units::see(const double* x, const double* y) {
  ++rows_;
  if (rows_ > last_) return;
  keys_.add(x), values_.add(y);
}

bool Units::due(std::int64_t further_rows) const {
  const std::int64_t rows = rows_ + further_rows;
  if (rows <= updated_ || rows > last_) return false;
  return rows == last_ || rows >= updated_ + std::max<std::int64_t>(1, updated_ / 4);
}

void Units::update() {
  updated_ = rows_;
  for (int c = 0; c < spec_.key_columns + spec_.more_columns; ++c) {
    key_shift_[c] = keys_.mean(c);
    key_factor_[c] = 1 / keys_.deviation(c);
  }
  for (int v = 0; values_too_ && v < spec_.value_columns; ++v) {
    value_shift_[v] = values_.mean(v);
    value_scale_[v] = values_.deviation(v);
  }
}

void Units::remember(const Block& block) {
  if (updated_ >= last_) {
    past_ = {};
    return;
  }
  const std::size_t K = static_cast<std::size_t>(block.key_dim), V = static_cast<std::size_t>(block.value_dim);
  past_.key_dim = block.key_dim, past_.value_dim = block.value_dim;
  for (std::size_t r = 0; r < block.rows; ++r) {
    if (!block.has_pair[r]) continue;
    const double *const key = block.keys.data() + r * K, *const value = block.values.data() + r * V;
    past_.keys.insert(past_.keys.end(), key, key + K);
    past_.values.insert(past_.values.end(), value, value + V);
    past_.has_pair.push_back(1), past_.may_be_asked_again.push_back(0);
    if (!block.weights.empty()) past_.weights.push_back(block.weights[r]);
    ++past_.rows;
  }
}

void Units::convert_keys(std::vector<double>& keys, std::size_t rows) const {
  const std::size_t all = key_shift_.size(), C = static_cast<std::size_t>(spec_.key_columns),
                    lags = spec_.lag_count();
  double* key = keys.data();
  const auto convert_column = [&](std::size_t c) { *key = (*key - key_shift_[c]) * key_factor_[c], ++key; };
  for (std::size_t r = 0; r < rows; ++r, key += spec_.bias ? 1 : 0) {
    for (std::size_t lag = 0; lag < lags; ++lag)
      for (std::size_t c = 0; c < C; ++c) convert_column(c);
    for (std::size_t c = C; c < all; ++c) convert_column(c);
  }
}

Block& Units::convert(Block& block) {
  if (last_ == 0) return block;
  converted_ = block;
  convert_keys(converted_.keys, block.rows), convert_keys(converted_.queries, block.rows);
  const std::size_t V = value_shift_.size();
  for (std::size_t i = 0; i < block.rows * V; ++i)
    converted_.values[i] = (block.values[i] - value_shift_[i % V]) / value_scale_[i % V];
  return converted_;
}

Block& Units::past() {
  past_.queries = past_.keys;
  if (past_.rows > 0) past_.may_be_asked_again.back() = 1;
  Block& converted = convert(past_);
  if (past_.rows > 0) past_.may_be_asked_again.back() = 0;
  return converted;
}

void Units::to_file_units(std::vector<double>& map, double bias) const {
  const std::size_t V = value_shift_.size(), K = map.size() / V, C = static_cast<std::size_t>(spec_.key_columns);
  const std::size_t lagged = C * spec_.lag_count(), keys = K - (spec_.bias ? 1 : 0);
  for (std::size_t v = 0; v < V; ++v) {
    double intercept = spec_.bias ? value_shift_[v] + value_scale_[v] * bias * map[(K - 1) * V + v] : 0;
    for (std::size_t k = 0; k < keys; ++k) {
      const std::size_t column = k < lagged ? k % C : C + k - lagged;
      map[k * V + v] *= value_scale_[v] * key_factor_[column];
      intercept -= map[k * V + v] * key_shift_[column];
    }
    if (spec_.bias) map[(K - 1) * V + v] = intercept;
  }
}

void set_bias(Block& block, double number) {
  const std::size_t K = static_cast<std::size_t>(block.key_dim);
  for (std::size_t r = 0; r < block.rows; ++r) block.keys[r * K + K - 1] = block.queries[r * K + K - 1] = number;
}

void scale_pairs(Block& block) {
  const std::size_t K = static_cast<std::size_t>(block.key_dim), V = static_cast<std::size_t>(block.value_dim);
  for (std::size_t r = 0; r < block.rows; ++r) {
    const double root = std::sqrt(block.weights[r]);
    for (std::size_t k = 0; k < K; ++k) block.keys[r * K + k] *= root;
    for (std::size_t v = 0; v < V; ++v) block.values[r * V + v] *= root;
  }
}

void set_scaled_bias(Block& block, double number) {
  const std::size_t K = static_cast<std::size_t>(block.key_dim);
  for (std::size_t r = 0; r < block.rows; ++r) {
    block.queries[r * K + K - 1] = number;
    block.keys[r * K + K - 1] = number * std::sqrt(block.weights[r]);
  }
}

}  // namespace ttr::cli
