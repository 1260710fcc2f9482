// Prediction intervals for forecasters that do not know their own uncertainty: adaptive conformal inference.
//
//   half_t = the (1 - a_t) quantile of the last |errors|          W = 500 of them
//   a_{t+1} = a_t + rate ((1 - level) - [value outside])          rate = 0.02
//
// (Gibbs and Candes 2021.) Whatever the errors are, the share of values outside is within (1 + rate) / (rate n) of 1 - level
// after n rows: too many misses lower a and widen the intervals. a_t <= 0 asks for more than every error seen: twice the
// largest one. Fewer than 1 / (1 - level) errors: nothing is known, the interval is infinite, and a stands still.
#pragma once

#include <cstddef>
#include <vector>

#include "archive.h"
#include "interval.h"

namespace ttr::cli {

class Conformal {
 public:
  Conformal(double level, int values);
  /// Half-widths [V] of the next answer.
  void widths(double* half) const;
  /// The value of an answer has arrived; `half` is what it had.
  void add(const double* prediction, const double* half, const double* actual);
  const Coverage& coverage() const { return coverage_; }
  void archive(Archive& a) { a(columns_, coverage_); }

 private:
  struct Column {
    double miss = 0;             // a_t
    std::vector<double> errors;  // a ring
    std::size_t next = 0;
    void archive(Archive& a) { a(miss, errors, next); }
  };
  double level_;
  std::vector<Column> columns_;
  Coverage coverage_;
  mutable std::vector<double> sorted_;
};

}  // namespace ttr::cli
