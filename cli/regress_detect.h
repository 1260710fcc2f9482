// What is odd about errors: a row that is missed by far, and a time from which on all rows are missed by more.
//
//   anomaly   |error| over 1.4826 times the median of the last 500 |errors|: for Gaussian errors its distance from zero in
//             deviations, and a median does not care how large a few others are. The largest over the values of a row; NaN
//             until 20 errors are known
//   drift     ADWIN (Bifet and Gavalda 2007) on x = |e| / (|e| + s) in [0, 1), s the mean of the first 30 |errors| since the
//             last drift: the newest rows are kept as an exponential histogram, and wherever it is cut in two halves whose
//             means differ by more than
//               sqrt(2 / m * var * d) + 2 / (3 m) * d ,   1/m = 1/n0 + 1/n1 ,   d = ln(2 ln(n) / 0.002)
//             the older half is dropped: a change. If x stays as it is, a stream of any length has one with probability 0.002
//             at each test at most. Both start anew after it. Only a change to larger errors is a drift; a smaller one is
//             learning, and is kept apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "archive.h"

namespace ttr::cli {

/// A window over the newest numbers in [0, 1] that is cut where their mean has changed.
class Adwin {
 public:
  /// True if the window was cut.
  bool add(double x);
  std::int64_t size() const { return count_; }
  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
  void archive(Archive& a) { a(buckets_, count_, sum_, squares_, since_test_); }

 private:
  struct Bucket {
    std::int64_t count = 0;
    double sum = 0, squares = 0;
    void archive(Archive& a) { a(count, sum, squares); }
  };
  bool cut();
  std::deque<Bucket> buckets_;  // the oldest first; sizes are powers of two that fall
  std::int64_t count_ = 0, since_test_ = 0;
  double sum_ = 0, squares_ = 0;
};

struct Change {
  std::int64_t row = 0;          // at which it was noticed
  double before = 0, after = 0;  // mean |error| of the rows before, and of those since it began
  bool worse() const { return after > before; }
  void archive(Archive& a) { a(row, before, after); }
};

class Detector {
 public:
  /// The errors [V] of a row. Returns its anomaly score.
  double add(std::int64_t row, const double* prediction, const double* actual, std::size_t values);
  const std::vector<Change>& changes() const { return changes_; }
  void archive(Archive& a) {
    a(columns_, window_, early_, scale_, newest_, newest_at_, before_, before_count_, changes_);
  }

 private:
  struct Column {
    std::vector<double> errors;  // a ring
    std::size_t next = 0;
    void archive(Archive& a) { a(errors, next); }
  };
  void follow(std::int64_t row, double error);

  std::vector<Column> columns_;
  mutable std::vector<double> sorted_;
  Adwin window_;
  std::vector<double> early_;  // the first errors since the last change
  double scale_ = 0;
  std::vector<double> newest_;  // a ring of the newest errors, for the mean after a change
  std::size_t newest_at_ = 0;
  double before_ = 0;  // mean |error| since the last change
  std::int64_t before_count_ = 0;
  std::vector<Change> changes_;
};

}  // namespace ttr::cli
