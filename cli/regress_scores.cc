#include "regress_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "interval.h"

namespace ttr::cli {

void Windows::add(double loss, double weight) {
  if (sums_.empty() || in_last_ == width_) {
    if (sums_.size() == most_) {
      // An odd one out at the end stays alone: it becomes a half-full window.
      const std::size_t pairs = (sums_.size() + 1) / 2;
      const bool odd = sums_.size() % 2 == 1;
      for (std::vector<double>* all : {&sums_, &weights_}) {
        for (std::size_t i = 0; i < pairs; ++i)
          (*all)[i] = (*all)[2 * i] + (2 * i + 1 < all->size() ? (*all)[2 * i + 1] : 0);
        all->resize(pairs);
      }
      in_last_ = odd ? width_ : 2 * width_;
      width_ *= 2;
    }
    if (in_last_ == width_ || sums_.empty()) sums_.push_back(0), weights_.push_back(0), in_last_ = 0;
  }
  sums_.back() += weight * loss, weights_.back() += weight;
  ++in_last_;
}

std::int64_t Windows::count(std::size_t window) const { return window + 1 < sums_.size() ? width_ : in_last_; }

double Windows::mean(std::size_t window) const { return sums_[window] / weights_[window]; }

double Windows::last_full() const {
  if (sums_.empty()) return std::numeric_limits<double>::quiet_NaN();
  const std::size_t last = sums_.size() - 1;
  return mean(in_last_ == width_ || last == 0 ? last : last - 1);
}

Score::Score(std::string name_, std::int64_t window, std::size_t most)
    : name(std::move(name_)), windows(window, most), curve(1, 80) {}

double Score::add(std::int64_t row, const double* prediction, const double* actual, int values, double row_weight) {
  double loss = 0;
  for (int i = 0; i < values; ++i) {
    const double error = prediction[i] - actual[i];
    loss += error * error, absolute_error += row_weight * std::abs(error);
    largest_ = std::max(largest_, std::abs(actual[i]));
    if (diverged_at == 0 && (!std::isfinite(prediction[i]) || (largest_ > 0 && std::abs(error) > 1e6 * largest_)))
      diverged_at = row;
  }
  squared_error += row_weight * loss, weight += row_weight, ++rows;
  loss = classes ? classes->add(prediction, actual, row_weight) : loss / values;
  windows.add(loss, row_weight), curve.add(loss, row_weight);
  return loss;
}

Comparisons::Comparisons(std::size_t forecasters, std::int64_t horizon)
    : count_(forecasters),
      lags_(static_cast<std::size_t>(std::clamp<std::int64_t>(horizon, 1, 24))),
      horizon_(std::max<std::int64_t>(horizon, 1)),
      sums_(count_ * count_),
      products_(count_ * count_ * lags_),
      recent_(count_ * count_ * lags_) {}

void Comparisons::add(const std::vector<double>& losses) {
  const std::size_t now = static_cast<std::size_t>(rows_) % lags_;
  for (std::size_t a = 0; a < count_; ++a)
    for (std::size_t b = a + 1; b < count_; ++b) {
      const std::size_t pair = a * count_ + b;
      const double d = losses[a] - losses[b];
      double* const recent = recent_.data() + pair * lags_;
      recent[now] = d;
      sums_[pair] += d;
      for (std::size_t k = 0; k < lags_ && k <= static_cast<std::size_t>(rows_); ++k)
        products_[pair * lags_ + k] += d * recent[(now + lags_ - k) % lags_];
    }
  ++rows_;
}

double Comparisons::p(std::size_t a, std::size_t b) const {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  if (a == b) return nan;
  if (a > b) std::swap(a, b);
  const std::size_t pair = a * count_ + b;
  const double n = static_cast<double>(rows_), h = static_cast<double>(horizon_);
  const double correction = (n + 1 - 2 * h + h * (h - 1) / n) / n;
  if (rows_ < 3 || !(correction > 0)) return nan;
  const double mean = sums_[pair] / n;
  const double* const products = products_.data() + pair * lags_;
  const double own = products[0] / n - mean * mean;
  double variance = own;
  for (std::size_t k = 1; k < lags_; ++k) variance += 2 * (products[k] / n - mean * mean);
  if (!(variance > 0)) variance = own;  // the estimate need not be positive
  const double t = std::abs(mean) * std::sqrt(correction * n / variance);
  return std::isfinite(t) && t > 0 ? student_tail(t, n - 1) : nan;
}

void Spread::add(const double* values, double weight) {
  if (!(weight > 0)) return;
  count_ += weight;
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    const double before = values[i] - mean_[i];
    mean_[i] += weight * before / count_;
    sum_ += weight * before * (values[i] - mean_[i]);
  }
}

double Spread::r2(double squared_error) const {
  return sum_ > 0 ? 1 - squared_error / sum_ : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace ttr::cli
