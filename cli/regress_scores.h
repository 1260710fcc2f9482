// What is known of predictions once their values have arrived, summed up in constant memory.
//
//   MSE, RMSE, MAE   over rows and values, by the weights of the rows
//   R2               1 - squared error / squared deviation of the values from their mean
//   skill            1 - MSE / MSE of the naive forecast
//   p                of a test that two forecasters are equally good (Diebold and Mariano 1995, with the correction of
//                    Harvey, Leybourne and Newbold 1997): d_t = difference of their losses,
//                      t = mean(d) / sqrt(V / n) * sqrt((n + 1 - 2h + h (h - 1) / n) / n) ,  V = c_0 + 2 sum_{0 < k < h} c_k
//                    two-sided, Student's t with n - 1 degrees of freedom; c_k are the autocovariances of d, h the horizon
// A prediction is a divergence if it is not a number, or misses by more than a million times the largest value so far.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "archive.h"
#include "classify.h"
#include "ttr/stream.h"

namespace ttr::cli {

/// Means over consecutive windows of equal width. When there are more than `most` of them, neighbours are merged and
/// the width doubles; so memory is bounded whatever the length of the stream.
class Windows {
 public:
  Windows(std::int64_t width, std::size_t most) : width_(width), most_(most) {}
  void add(double loss, double weight = 1);
  std::int64_t width() const { return width_; }
  /// The width, or the rows there are if one window has them all.
  std::int64_t rows_of_one() const { return sums_.size() > 1 || in_last_ == 0 ? width_ : in_last_; }
  std::size_t size() const { return sums_.size(); }
  double mean(std::size_t window) const;
  std::int64_t count(std::size_t window) const;
  /// The last window that is full; the last one if none is.
  double last_full() const;
  void archive(Archive& a) { a(width_, in_last_, most_, sums_, weights_); }

 private:
  std::int64_t width_, in_last_ = 0;
  std::size_t most_;
  std::vector<double> sums_, weights_;
};

/// What is known of one forecaster's predictions.
struct Score {
  std::string name, recipe, kernel;
  std::string ran;      // the recipe, and what there is to say about it
  std::string failure;  // why its layer could not go on
  StreamText stream;
  Windows windows, curve;
  double squared_error = 0, absolute_error = 0;  // summed over rows and values, times the weights of the rows
  double weight = 0;                             // of all rows
  std::int64_t rows = 0;
  std::int64_t diverged_at = 0;  // the first row whose prediction was a divergence; 0: none
  double us_per_row = 0;
  std::size_t state_bytes = 0;
  std::optional<ClassMeasures> classes;  // under --classify: the loss of a row is then its log loss

  Score(std::string name, std::int64_t window, std::size_t most);
  /// Returns the mean squared error of the row, or its log loss.
  double add(std::int64_t row, const double* prediction, const double* actual, int values, double row_weight = 1);
  double mse(int values) const { return squared_error / weight / values; }
  double mae(int values) const { return absolute_error / weight / values; }
  /// What forecasters are compared by, summed over the rows; infinite where it is not a number.
  double total_loss() const {
    const double loss = classes ? classes->total_log_loss() : squared_error;
    return std::isnan(loss) ? std::numeric_limits<double>::infinity() : loss;
  }
  void archive(Archive& a) {
    a(windows, curve, squared_error, absolute_error, weight, rows, diverged_at, largest_);
    if (classes) a(*classes);
  }

 private:
  double largest_ = 0;
};

/// Tests which forecasters are equally good.
class Comparisons {
 public:
  Comparisons(std::size_t forecasters, std::int64_t horizon);
  /// The losses of one row, one per forecaster.
  void add(const std::vector<double>& losses);
  /// The p-value above; NaN if there is nothing to say (few rows, no difference, a divergence).
  double p(std::size_t a, std::size_t b) const;
  void archive(Archive& a) { a(rows_, sums_, products_, recent_); }

 private:
  std::size_t count_, lags_;  // lags_: of autocovariances, with lag 0
  std::int64_t horizon_, rows_ = 0;
  std::vector<double> sums_, products_, recent_;  // per pair; products and recent [pairs, lags]
};

/// Variance of the actual values, for R2.
class Spread {
 public:
  explicit Spread(int values) : mean_(values) {}
  void add(const double* values, double weight = 1);
  void archive(Archive& a) { a(mean_, sum_, count_); }
  double sum_of_squares() const { return sum_; }  // around the mean, over all columns
  /// 1 - error / spread; NaN if the values never change.
  double r2(double squared_error) const;

 private:
  std::vector<double> mean_;
  double sum_ = 0, count_ = 0;
};

}  // namespace ttr::cli
