#include "regress_pairs.h"

#include <algorithm>
#include <cmath>

namespace ttr::cli {

void Moments::add(const double* row) {
  ++count_;
  for (std::size_t c = 0; c < mean_.size(); ++c) {
    const double before = row[c] - mean_[c];
    mean_[c] += before / static_cast<double>(count_);
    squares_[c] += before * (row[c] - mean_[c]);
  }
}

double Moments::deviation(int column) const {
  const double variance = count_ > 0 ? squares_[column] / static_cast<double>(count_) : 0;
  // Below rounding noise a column counts as constant.
  const double noise = 1e-14 * std::abs(mean_[column]);
  return variance > noise * noise && variance > 1e-300 ? std::sqrt(variance) : 1;
}

PairBuilder::PairBuilder(const PairSpec& spec)
    : spec_(spec),
      key_dim_(spec.key_columns * static_cast<int>(std::max<std::int64_t>(spec.lags, 1)) + (spec.bias ? 1 : 0)),
      key_moments_(spec.key_columns),
      value_moments_(spec.value_columns),
      row_(spec.key_columns),
      history_(static_cast<std::size_t>(spec.lags) * spec.key_columns),
      key_(key_dim_, 1.0),
      queue_(static_cast<std::size_t>(spec.horizon) * key_dim_),
      pair_key_(key_dim_),
      pair_value_(spec.value_columns),
      last_(spec.value_columns) {}

void PairBuilder::make_key(const double* x) {
  const int C = spec_.key_columns;
  const double* row = x;
  if (spec_.standardize) {
    key_moments_.add(x);
    for (int c = 0; c < C; ++c) row_[c] = (x[c] - key_moments_.mean(c)) / key_moments_.deviation(c);
    row = row_.data();
  }
  if (spec_.lags == 0) {
    std::copy_n(row, C, key_.data());
    has_key_ = true;
    return;
  }
  std::copy_n(row, C, history_.data() + rows_ % spec_.lags * C);
  has_key_ = rows_ + 1 >= spec_.lags;
  if (!has_key_) return;
  for (std::int64_t lag = 0; lag < spec_.lags; ++lag)
    std::copy_n(history_.data() + (rows_ - lag) % spec_.lags * C, C, key_.data() + lag * C);
}

void PairBuilder::complete(const double* key, const double* y) {
  const int V = spec_.value_columns;
  std::copy_n(y, V, last_.data());
  if (spec_.standardize) value_moments_.add(y);
  if (!key) return;
  std::copy_n(key, key_dim_, pair_key_.data());
  for (int c = 0; c < V; ++c)
    pair_value_[c] = spec_.standardize ? (y[c] - value_moments_.mean(c)) / value_moments_.deviation(c) : y[c];
  has_pair_ = true;
}

void PairBuilder::ask(Block& block, double* shift, double* scale, double* last_value) {
  const std::size_t r = block.rows++, K = static_cast<std::size_t>(key_dim_), V = pair_value_.size();
  std::copy_n(key_.data(), K, block.queries.data() + r * K);
  std::copy_n(pair_key_.data(), K, block.keys.data() + r * K);
  std::copy_n(pair_value_.data(), V, block.values.data() + r * V);
  block.has_pair[r] = has_pair_;
  has_pair_ = false;
  for (std::size_t c = 0; c < V; ++c) {
    shift[c] = spec_.standardize ? value_moments_.mean(static_cast<int>(c)) : 0;
    scale[c] = spec_.standardize ? value_moments_.deviation(static_cast<int>(c)) : 1;
    last_value[c] = last_[c];
  }
}

bool PairBuilder::add(const double* x, const double* y, Block& block, double* shift, double* scale,
                      double* last_value) {
  make_key(x);
  if (spec_.horizon == 0) {
    if (has_key_) ask(block, shift, scale, last_value);
    complete(has_key_ ? key_.data() : nullptr, y);
  } else {
    const std::size_t K = static_cast<std::size_t>(key_dim_);
    const bool known = keys_made_ >= spec_.horizon;
    double* slot =
        queue_.data() + static_cast<std::size_t>(keys_made_ % spec_.horizon) * K;  // holds k_{t-h} until now
    complete(known ? slot : nullptr, y);
    if (has_key_) {
      ask(block, shift, scale, last_value);
      std::copy_n(key_.data(), K, slot);
      ++keys_made_;
    }
  }
  ++rows_;
  return has_key_;
}

}  // namespace ttr::cli
