// One forecast made of several, online and without looking ahead: `mix`, and the settings of a layer under --tune.
//
// The exponentially weighted mean. Forecasts f_j, weights w_j, p = sum_j w_j f_j; once the value y is known
//
//   L_j += (f_j - y)^2 ,   B = max |p - y| so far ,   w_j ~ exp(-L_j / (2 B^2))
//
// The squared loss is exp-concave: while no forecast misses by more than B, exp(-(f - y)^2 / (2 B^2)) is concave in f, and the
// squared error of p is at most that of the best forecaster in hindsight plus 2 B^2 log E in all, however many rows there are
// (Cesa-Bianchi and Lugosi 2006, section 3.3). B is not known beforehand and grows with what was seen; there is nothing to set.
//
//   stack = p + S'(f - p)      S from recursive least squares of (y - p) on (f_j - p), both over the deviation of y - p
//
// may leave the convex hull (two layers whose errors have opposite signs), with a ridge that holds it at p. The mix is the
// exponentially weighted mean of p and the stack, so that it falls back to p where the stack does not pay. Columns of values
// are aggregated each by itself.
//
// Forecasts are clipped to the range of the values so far, widened by that range on both sides: one that diverges cannot
// take the mix along before its weight is gone. One that is NaN sleeps for that row.
#pragma once

#include <cstddef>
#include <vector>

#include "regress_parts.h"

namespace ttr::cli {

/// The aggregation of one column of values.
class Aggregation {
 public:
  explicit Aggregation(std::size_t experts);
  /// The weighted mean of forecasts that are not NaN; NaN if all are.
  double predict(const double* forecasts) const;
  /// `prediction` is what predict() gave for these forecasts.
  void update(const double* forecasts, double prediction, double value);
  const std::vector<double>& weights() const { return weights_; }
  void archive(Archive& a) { a(losses_, largest_, weights_); }

 private:
  std::vector<double> losses_, weights_;
  double largest_ = 0;  // B^2
};

class Mix {
 public:
  /// Without `stacked` the aggregation alone.
  Mix(std::size_t experts, std::size_t values, bool stacked);
  /// Numbers of a prediction: that of the mix [V], then what update() will want to have again.
  std::size_t width() const { return (3 + experts_) * values_.size(); }
  /// From forecasts [E, V].
  void predict(const double* forecasts, double* prediction);
  /// `prediction` is all that predict() wrote. Every value may come after further predictions (a horizon).
  void update(const double* prediction, const double* actual);
  /// Weights of the experts now and, last, of the stack; means over the values.
  std::vector<double> weights() const;
  void archive(Archive& a) { a(values_); }

 private:
  struct Column {
    Aggregation base, top;           // of the experts; of the base and the stack
    std::vector<StreamLayer> stack;  // one or none
    Block block;                     // one row: the pair that is known and not learned yet, and the query
    bool seen = false;
    double low = 0, high = 0;       // of the values so far
    double squares = 0, count = 0;  // of y - p
    void archive(Archive& a) { a(base, top, stack, block, seen, low, high, squares, count); }
  };
  double clipped(const Column& column, double forecast) const;

  std::size_t experts_;
  std::vector<Column> values_;
};

}  // namespace ttr::cli
