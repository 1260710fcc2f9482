#include "regress_memory.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ttr::cli {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

std::int64_t MemorySpec::season_lag() const {
  const std::int64_t least = std::max<std::int64_t>(ahead + late, 1);
  return season > 0 ? (least + season - 1) / season * season : 0;
}

Memory::Memory(const MemorySpec& spec, const Forecasters& fresh)
    : losses(fresh.count()),
      spec_(spec),
      V_(static_cast<std::size_t>(spec.pairs.value_columns)),
      pairs_(spec.pairs),
      forecasters_(fresh),
      x_(static_cast<std::size_t>(spec.pairs.key_columns + spec.pairs.more_columns)),
      unknown_(V_, nan),
      season_ring_(static_cast<std::size_t>(spec.season_lag()) * V_, nan) {
  if (spec.fill) missing_.emplace(*spec.fill, spec.numbers);
  block_.key_dim = pairs_.key_dim(), block_.value_dim = static_cast<int>(V_);
}

// The numbers keys are made of: columns, encoded columns, the phase of the season, flags of what was missing.
const double* Memory::make_x(const double* columns) {
  std::size_t at = spec_.columns;
  std::copy_n(columns, at, x_.data());
  for (std::int64_t k = 1; k <= spec_.fourier; ++k) {
    const double phase = 2 * std::numbers::pi * static_cast<double>(k) * static_cast<double>(rows_ % spec_.season) /
                         static_cast<double>(spec_.season);
    x_[at++] = std::sin(phase), x_[at++] = std::cos(phase);
  }
  if (missing_) missing_->fill(x_.data(), x_.data() + at);
  return x_.data();
}

// The value some seasons before the one asked for, the last one seen while that is not known; y takes its place, which is
// the value of `late` rows ago.
void Memory::seasonal_value(const double* y, double* forecast) {
  const std::int64_t lag = spec_.season_lag();
  const auto slot = [&](std::int64_t row) {
    return season_ring_.data() + static_cast<std::size_t>((row % lag + lag) % lag) * V_;
  };
  // What is known before the row is asked belongs to the ring before it is read.
  const bool first = spec_.ahead + spec_.late > 0;
  if (first) std::copy_n(y, V_, slot(rows_ - spec_.late));
  if (forecast) {
    const double* const then = slot(rows_ + spec_.ahead - lag);
    for (std::size_t v = 0; v < V_; ++v)
      if (std::isfinite(then[v])) forecast[v] = then[v];
  }
  if (!first) std::copy_n(y, V_, slot(rows_));
}

void Memory::make_room() {
  if (block_.rows < room_) return;
  room_ = std::max<std::size_t>(2 * room_, 1);
  const std::size_t K = static_cast<std::size_t>(block_.key_dim);
  block_.keys.resize(room_ * K), block_.queries.resize(room_ * K), block_.values.resize(room_ * V_);
  block_.has_pair.resize(room_), block_.may_be_asked_again.resize(room_);
  if (spec_.pairs.weighted) block_.weights.resize(room_);
  naive_.resize(room_ * V_), seasonal_.resize(room_ * V_), answers_.resize(room_ * forecasters_.width());
}

Memory::Row Memory::add(std::int64_t number, const double* columns, const double* y, double weight, bool learn,
                        double* known) {
  Row row;
  touched_ = true, row.own_index = rows_;
  if (spec_.late == 0) {
    row.known = true, row.index = rows_, row.number = number, row.weight = weight;
    std::copy_n(y, V_, known);
  } else {
    late.push_back({rows_, number, weight, {y, y + V_}});
    row.known = late.size() > static_cast<std::size_t>(spec_.late);
    std::copy_n(row.known ? late.front().value.data() : unknown_.data(), V_, known);
    if (row.known) {
      row.index = late.front().index, row.number = late.front().number, row.weight = late.front().weight;
      late.pop_front();
    }
  }
  make_room();
  const double* const learned = learn ? known : unknown_.data();
  const std::size_t at = block_.rows * V_;
  row.asks = pairs_.add(make_x(columns), learned, row.weight, block_, naive_.data() + at);
  if (spec_.season > 0) {
    if (row.asks) std::copy_n(naive_.data() + at, V_, seasonal_.data() + at);
    seasonal_value(learned, row.asks ? seasonal_.data() + at : nullptr);
  }
  if (learn) forecasters_.see(pairs_.key_numbers(), pairs_.value_numbers());
  ++rows_;
  return row;
}

// The pair that the last row completed is learned now and not with the next row, which is no trace: it would be learned
// before that row is asked, and what a layer is asked does not change its state. All else that adding a row changes is put back.
const double* Memory::ask(const double* columns) {
  const PairBuilder pairs = pairs_;
  const std::optional<MissingNumbers> missing = missing_;
  make_room();
  const bool asks = pairs_.add(make_x(columns), unknown_.data(), 1, block_, naive_.data());
  if (asks && spec_.season > 0) {
    const std::vector<double> ring = season_ring_;
    std::copy_n(naive_.data(), V_, seasonal_.data());
    seasonal_value(unknown_.data(), seasonal_.data());
    season_ring_ = ring;
  }
  if (asks) {
    run();
    forecasters_.finish(answers_.data());
    forecasters_.end_block(block_);
  }
  block_.rows = 0;
  pairs_ = pairs, missing_ = missing;
  if (asks) pairs_.pair_was_learned();
  return asks ? answers_.data() : nullptr;
}

void Memory::run() { forecasters_.run(block_, naive_.data(), seasonal_.data(), answers_.data()); }

void Memory::end_learning() {
  forecasters_.end_block(block_);
  learning_ended_ = true;
}

void Memory::end_block() {
  if (!learning_ended_) end_learning();
  block_.rows = queries = 0, touched_ = learning_ended_ = false;
}

void Memory::learn_last() {
  make_room();
  if (!pairs_.ask_for_last(block_, naive_.data())) return;
  forecasters_.run(block_, naive_.data(), naive_.data(), answers_.data());
  block_.rows = 0;
}

void Memory::archive(Archive& a) {
  a(missing_, pairs_, forecasters_, season_ring_, waiting, late, rows_, arrived, unscored, losses, scored,
    scored_rows, detector);
}

}  // namespace ttr::cli
