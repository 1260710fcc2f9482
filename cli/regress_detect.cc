#include "regress_detect.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttr::cli {
namespace {

constexpr std::size_t most_errors = 500, least_errors = 20, first_errors = 30, newest_errors = 64;
constexpr std::size_t buckets_of_a_size = 5, most_changes = 10000;
constexpr std::int64_t rows_between_tests = 8, least_half = 8;
constexpr double confidence = 0.002;

}  // namespace

bool Adwin::add(double x) {
  buckets_.push_back({1, x, x * x});
  ++count_, sum_ += x, squares_ += x * x;
  // Two of the oldest of a size become one of twice that size where there are too many; newer ones stand behind.
  for (std::size_t end = buckets_.size(); end > 0;) {
    std::size_t first = end;
    while (first > 0 && buckets_[first - 1].count == buckets_[end - 1].count) --first;
    if (end - first <= buckets_of_a_size) break;
    Bucket& into = buckets_[first];
    const Bucket& from = buckets_[first + 1];
    into.count += from.count, into.sum += from.sum, into.squares += from.squares;
    buckets_.erase(buckets_.begin() + static_cast<std::ptrdiff_t>(first) + 1);
    end = first + 1;
  }
  if (++since_test_ < rows_between_tests || count_ < 2 * least_half) return false;
  since_test_ = 0;
  bool changed = false;
  while (cut()) changed = true;
  return changed;
}

bool Adwin::cut() {
  const double n = static_cast<double>(count_), d = std::log(2 * std::log(n) / confidence);
  const double variance = std::max(squares_ / n - sum_ / n * sum_ / n, 0.0);
  double older = 0, older_sum = 0;
  for (std::size_t i = 0; i + 1 < buckets_.size(); ++i) {
    older += static_cast<double>(buckets_[i].count), older_sum += buckets_[i].sum;
    const double newer = n - older;
    if (older < least_half) continue;
    if (newer < least_half) return false;
    const double inverse = 1 / older + 1 / newer;
    const double bound = std::sqrt(2 * inverse * variance * d) + 2.0 / 3 * inverse * d;
    if (std::abs(older_sum / older - (sum_ - older_sum) / newer) <= bound) continue;
    for (std::size_t j = 0; j <= i; ++j) {
      const Bucket& oldest = buckets_.front();
      count_ -= oldest.count, sum_ -= oldest.sum, squares_ -= oldest.squares;
      buckets_.pop_front();
    }
    return true;
  }
  return false;
}

void Detector::follow(std::int64_t row, double error) {
  if (newest_.size() < newest_errors) newest_.push_back(error);
  else newest_[newest_at_] = error, newest_at_ = (newest_at_ + 1) % newest_errors;
  before_ += (error - before_) / static_cast<double>(++before_count_);
  if (early_.size() < first_errors) {
    early_.push_back(error);
    if (early_.size() < first_errors) return;
    double sum = 0;
    for (const double e : early_) sum += e;
    scale_ = sum / static_cast<double>(first_errors);
    for (const double e : early_) window_.add(scale_ > 0 ? e / (e + scale_) : 0);
    return;
  }
  if (!window_.add(error + scale_ > 0 ? error / (error + scale_) : 0)) return;
  // What is left of the window are the rows since the change; the ring has the newest of them.
  const std::size_t since = std::min(static_cast<std::size_t>(window_.size()), newest_.size());
  double sum = 0;
  for (std::size_t i = 0; i < since; ++i) sum += newest_[(newest_at_ + newest_.size() - 1 - i) % newest_.size()];
  const double after = sum / static_cast<double>(since), n = static_cast<double>(before_count_);
  const double others = n - static_cast<double>(since);
  const double before = others > 0 ? (before_ * n - sum) / others : before_;
  if (changes_.size() < most_changes) changes_.push_back({row, before, after});
  window_ = {}, early_.clear(), before_ = 0, before_count_ = 0;
}

double Detector::add(std::int64_t row, const double* prediction, const double* actual, std::size_t values) {
  columns_.resize(values);
  double score = std::numeric_limits<double>::quiet_NaN(), sum = 0;
  for (std::size_t v = 0; v < values; ++v) {
    Column& column = columns_[v];
    const double error = std::abs(prediction[v] - actual[v]);
    if (!std::isfinite(error)) return std::numeric_limits<double>::infinity();
    sum += error;
    if (column.errors.size() >= least_errors) {
      sorted_ = column.errors;
      const auto middle = sorted_.begin() + static_cast<std::ptrdiff_t>(sorted_.size() / 2);
      std::nth_element(sorted_.begin(), middle, sorted_.end());
      const double one = *middle > 0 ? error / (1.4826 * *middle)
                         : error > 0 ? std::numeric_limits<double>::infinity()
                                     : 0;
      score = std::isnan(score) ? one : std::max(score, one);
    }
    if (column.errors.size() < most_errors) column.errors.push_back(error);
    else column.errors[column.next] = error, column.next = (column.next + 1) % most_errors;
  }
  follow(row, sum / static_cast<double>(values));
  return score;
}

}  // namespace ttr::cli
