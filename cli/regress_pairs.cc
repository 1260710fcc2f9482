#include "regress_pairs.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttr::cli {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

PairBuilder::PairBuilder(const PairSpec& spec)
    : spec_(spec),
      key_dim_(spec.key_columns * static_cast<int>(spec.lag_count()) + spec.more_columns + (spec.bias ? 1 : 0)),
      history_(static_cast<std::size_t>(spec.lags) * spec.key_columns),
      key_(key_dim_, 1.0),
      queue_(static_cast<std::size_t>(spec.horizon) * static_cast<std::size_t>(key_dim_ + spec.value_columns)),
      row_(static_cast<std::size_t>(spec.key_columns + spec.more_columns)),
      row_value_(static_cast<std::size_t>(spec.value_columns)),
      before_(static_cast<std::size_t>(spec.differences ? spec.key_columns : 0), nan),
      pair_key_(key_dim_),
      pair_value_(spec.value_columns),
      last_(spec.value_columns),
      base_(spec.value_columns) {}

void PairBuilder::make_key(const double* x) {
  const int C = spec_.key_columns;
  std::copy_n(x, row_.size(), row_.data());
  if (spec_.differences) {
    for (int c = 0; c < C; ++c) row_[c] -= before_[c];
    std::copy_n(x, C, before_.data());
  }
  std::copy_n(row_.data() + C, spec_.more_columns, key_.data() + C * static_cast<int>(spec_.lag_count()));
  if (spec_.lags == 0) {
    std::copy_n(row_.data(), C, key_.data());
    has_key_ = true;
    return;
  }
  std::copy_n(row_.data(), C, history_.data() + rows_ % spec_.lags * C);
  has_key_ = rows_ + 1 >= spec_.lags + (spec_.differences ? 1 : 0);
  if (!has_key_) return;
  for (std::size_t i = 0; i < spec_.lag_count(); ++i) {
    const std::int64_t lag = spec_.offsets.empty() ? static_cast<std::int64_t>(i) : spec_.offsets[i] - 1;
    std::copy_n(history_.data() + (rows_ - lag) % spec_.lags * C, C,
                key_.data() + static_cast<std::ptrdiff_t>(i) * C);
  }
}

void PairBuilder::complete(const double* key, const double* base, const double* y, double weight) {
  const int V = spec_.value_columns;
  bool known = true;
  for (int v = 0; v < V; ++v) row_value_[v] = !spec_.differences ? y[v] : key ? y[v] - base[v] : nan;
  for (int v = 0; v < V; ++v)
    if (std::isnan(y[v])) known = false;
    else last_[v] = y[v];
  if (!key || !known) return;
  std::copy_n(key, key_dim_, pair_key_.data());
  std::copy_n(row_value_.data(), V, pair_value_.data());
  pair_weight_ = weight, has_pair_ = weight > 0;
}

void PairBuilder::ask(Block& block, double* last_value) {
  const std::size_t r = block.rows++, K = static_cast<std::size_t>(key_dim_), V = pair_value_.size();
  std::copy_n(key_.data(), K, block.queries.data() + r * K);
  std::copy_n(pair_key_.data(), K, block.keys.data() + r * K);
  std::copy_n(pair_value_.data(), V, block.values.data() + r * V);
  block.has_pair[r] = has_pair_;
  if (spec_.weighted) block.weights[r] = pair_weight_;
  block.may_be_asked_again[r] = spec_.questions;  // with no horizon complete() knows better
  has_pair_ = false;
  std::copy_n(last_.data(), V, last_value);
}

bool PairBuilder::ask_for_last(Block& block, double* last_value) {
  if (!has_pair_) return false;
  ask(block, last_value);
  block.may_be_asked_again[block.rows - 1] = 1;
  return true;
}

bool PairBuilder::add(const double* x, const double* y, double weight, Block& block, double* last_value) {
  make_key(x);
  if (spec_.horizon == 0) {
    if (has_key_) ask(block, last_value);
    std::copy(last_.begin(), last_.end(), base_.begin());
    complete(has_key_ ? key_.data() : nullptr, base_.data(), y, weight);
    if (has_key_ && spec_.questions) block.may_be_asked_again[block.rows - 1] = !has_pair_;
  } else {
    const std::size_t K = static_cast<std::size_t>(key_dim_), V = last_.size();
    const bool known = keys_made_ >= spec_.horizon;
    double* slot = queue_.data() +
                   static_cast<std::size_t>(keys_made_ % spec_.horizon) * (K + V);  // k_{t-h} and its base until now
    complete(known ? slot : nullptr, slot + K, y, weight);
    if (has_key_) {
      ask(block, last_value);
      std::copy_n(key_.data(), K, slot), std::copy_n(last_.data(), V, slot + K);
      ++keys_made_;
    }
  }
  ++rows_;
  return has_key_;
}

}  // namespace ttr::cli
