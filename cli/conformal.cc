#include "conformal.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttr::cli {
namespace {

constexpr std::size_t most_errors = 500;
constexpr double rate = 0.02;

}  // namespace

Conformal::Conformal(double level, int values)
    : level_(level), columns_(static_cast<std::size_t>(values)), coverage_(values, level) {
  for (Column& column : columns_) column.miss = 1 - level;
}

void Conformal::widths(double* half) const {
  for (std::size_t v = 0; v < columns_.size(); ++v) {
    const Column& column = columns_[v];
    const std::size_t n = column.errors.size();
    half[v] = std::numeric_limits<double>::infinity();
    if (static_cast<double>(n) * (1 - level_) < 1 - 1e-9) continue;
    sorted_ = column.errors;
    // The k-th smallest with k = ceil((n + 1)(1 - a)): a new error from the same distribution is below it with at least
    // that probability.
    const double place = std::ceil(static_cast<double>(n + 1) * (1 - column.miss));
    if (place > static_cast<double>(n)) {
      half[v] = (column.miss > 0 ? 1 : 2) * *std::max_element(sorted_.begin(), sorted_.end());
      continue;
    }
    const auto at = sorted_.begin() + std::max<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(place) - 1, 0);
    std::nth_element(sorted_.begin(), at, sorted_.end());
    half[v] = place < 1 ? 0 : *at;
  }
}

void Conformal::add(const double* prediction, const double* half, const double* actual) {
  coverage_.add(prediction, half, actual);
  for (std::size_t v = 0; v < columns_.size(); ++v) {
    Column& column = columns_[v];
    const double error = std::abs(actual[v] - prediction[v]);
    if (!std::isfinite(error)) continue;
    if (std::isfinite(half[v])) column.miss += rate * ((1 - level_) - (error > half[v] ? 1 : 0));
    if (column.errors.size() < most_errors) {
      column.errors.push_back(error);
    } else {
      column.errors[column.next] = error;
      column.next = (column.next + 1) % most_errors;
    }
  }
}

}  // namespace ttr::cli
