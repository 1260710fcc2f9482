// One forecast made of several, online and without looking ahead: `mix`, and the settings of a layer under --tune.
//
// Bernstein online aggregation (Wintenberger 2017, with the gradient trick). Forecasts f_j, weights w_j, p = sum w_j f_j;
// once the value y is known
//
//   r_j = 2 (p - y)(p - f_j)      how much better than p expert j was, to first order (squared loss)
//   B_j = max |r_j| ,  V_j = sum r_j^2 ,  eta_j = min(1 / B_j, sqrt(log E / V_j))
//   L_j += (r_j - eta_j r_j^2 + b_j [eta_j r_j > 1/2]) / 2 ,     w_j ~ eta_j exp(eta_j L_j)
//   b_j = B_j rounded up to a power of two times the first |r_j|, so that units of the values do not matter
//
// The regret against the best expert, and against the best fixed convex combination of them, is at most of the order of
// sqrt(log(E) sum_t r_t^2), whatever the values are: the rates adapt to sizes and need no constant. One of the experts is
//
//   stack = p + S'(f - p)      S from recursive least squares of (y - p) on (f_j - p), both over the deviation of y - p
//
// which may leave the convex hull (two layers whose errors have opposite signs), with a ridge that holds it at p; the
// aggregation falls back to the others where it does not pay. Columns of values are aggregated each by itself.
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
  void archive(Archive& a) { a(regret_, largest_, unit_, squares_, weights_); }

 private:
  double rate(std::size_t expert, double choices) const;  // eta; 0 while it has never differed from the mix

  std::vector<double> regret_, largest_, unit_, squares_, weights_;  // unit_: the first |r| above 0
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
    Aggregation aggregation, base;   // base: without the stack, which starts from it
    std::vector<StreamLayer> stack;  // one or none
    Block block;                     // one row: the pair that is known and not learned yet, and the query
    bool seen = false;
    double low = 0, high = 0;       // of the values so far
    double squares = 0, count = 0;  // of y - p
    void archive(Archive& a) { a(aggregation, base, stack, block, seen, low, high, squares, count); }
  };
  double clipped(const Column& column, double forecast) const;

  std::size_t experts_;
  std::vector<Column> values_;
  std::vector<double> forecasts_;
};

}  // namespace ttr::cli
