// Prediction intervals of `ttr regress --interval`: an answer with the range that its value should fall into.
//
// Least squares is a Kalman filter without drift. Before the pair (x, y) is learned its error e = y - S'x has the
// variance s^2 c, where s^2 is the noise of the values and c comes from the state of the layer:
//
//   exact     c = 1 + x' A^{-1} x ,       A = a^m H + ridge I        H = sum_i w_i k_i k_i', from the state H or R'R
//   kalman    c = noise + x' (P + m process I) x                     P from the state
//
// a is the forgetting factor and m >= 1 the pairs between the newest learned and the one asked for: A and P are what the
// pair itself will find when it is learned. Without a ridge c is infinite while x has a part outside the span of the
// keys seen, and so is the interval.
//
// The noise is estimated from the answers whose values have arrived, with the forgetting (or the window) of the fit:
//
//   s^2 = sum_i w_i u_i e_i^2 / c_i / sum_i w_i u_i        w_i = a^age
//   u = 1 - (part of c that comes from the prior) = 1 - ridge |A^{-1} x|^2 / c     (kalman: 1 - |M'x|^2 / c)
//   y in S'x -+ t s sqrt(c) ,   t the quantile of Student's t with (sum w u)^2 / (sum w^2 u) degrees of freedom
//
// M is the product of (I - gain k'): what is left of S_0, whose covariance is I. Errors that stem from the prior say how
// large S is, not how noisy the values are, so they count less, by u. For a = 1 sum u = n - trace(A^{-1} H), the
// effective degrees of freedom of ridge regression; without a ridge they are n - rank, s^2 is the residual sum of
// squares over them, and for Gaussian noise the interval is exact. One noise per value column, one c for all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "json.h"
#include "ttr/plan.h"

namespace ttr::cli {

/// The t with P(|T| <= t) = level for Student's t with so many degrees of freedom (not necessarily whole; infinity is
/// the normal). level in (0, 1), degrees > 0.
double student_quantile(double level, double degrees);

/// c and u of one answer.
struct Uncertainty {
  double variance = std::numeric_limits<double>::infinity();
  double share = 0;
};

/// Reads c and u from the state of a layer; double, one sequence, one head.
class ErrorVariance {
 public:
  /// Throws Error if the layer has no covariance; the message says why and names the layers that have one. `ahead` is
  /// m above.
  ErrorVariance(const Plan& plan, const std::string& name, std::int64_t ahead);

  /// After a step of the plan that learned `key`: the uncertainty of the answer to `query`. Call it once per step.
  Uncertainty after_step(State state, const double* key, const double* query);

  double forgetting() const { return forgetting_; }
  std::int64_t window() const { return window_; }  // pairs; 0: all

 private:
  enum class Kind { sums, triangle, filter };
  enum class Norm { raw, unit, rms };

  void read_weights(const Recipe& recipe);
  void read_solver(const Recipe& recipe);
  void normalise(const double* from, double scale, std::vector<double>& to) const;
  Uncertainty from_sums(State state);
  Uncertainty from_triangle(State state);
  Uncertainty from_filter(State state);
  const double* part(State state, const char* name) const;

  Plan plan_;
  std::string name_;
  Kind kind_ = Kind::sums;
  Norm norm_ = Norm::raw;
  std::size_t K_;
  double forgetting_ = 1, ridge_ = 0, process_ = 0, noise_ = 1, ahead_;
  double fade_ = 1;   // forgetting^ahead
  double prior_ = 0;  // what a fading ridge still is
  std::int64_t window_ = 0;
  std::vector<double> x_, k_, y_, work_, left_;  // left_: M of a filter
};

/// s^2 per value column, and the degrees of freedom.
class NoiseEstimate {
 public:
  NoiseEstimate(int values, double forgetting, std::int64_t window);
  /// The squares e^2 / c [V] of an answer whose value has arrived; share 0 if it says nothing.
  void add(double share, const double* squares);
  double degrees() const;
  double variance(int value) const;

 private:
  // Sums of (u, u, u e^2/c ...), which fade by a, a^2, a, ... per answer. A window is a queue of two stacks: the older
  // half as sums from each entry to its newest, the newer half as entries and their sum; so nothing is ever taken away
  // from a sum, which would leave its rounding.
  void fade(double* sums, std::int64_t steps) const;
  void turn_over();
  std::size_t width_;
  double forgetting_;
  std::int64_t window_, newer_ = 0, older_ = 0, since_ = 0;  // since_: answers since the stacks were turned over
  std::vector<double> sum_, newer_entries_, older_sums_, total_;
};

/// How often intervals held, in all and per value column.
struct Coverage {
  struct Tally {
    std::int64_t inside = 0, finite = 0, none = 0;
    double width = 0;      // sum over the finite ones
    double share() const;  // NaN if none is finite
    double mean_width() const;
    Tally& operator+=(const Tally& other);
  };
  std::vector<Tally> values;

  explicit Coverage(int count) : values(static_cast<std::size_t>(count)) {}
  void add(const double* prediction, const double* half, const double* actual);
  Tally all() const;
};

/// The intervals of one layer on a stream.
class Intervals {
 public:
  Intervals(double level, int values, double forgetting, std::int64_t window);
  /// Half-widths [V] of an answer whose errors have the deviations s * deviation [V]. Infinite while the noise has less
  /// than one degree of freedom or the deviation is infinite.
  void widths(const double* deviation, double* half) const;
  /// The value of an answer has arrived.
  void add(const double* prediction, const double* deviation, double share, const double* half, const double* actual);
  const Coverage& coverage() const { return coverage_; }

 private:
  double level_;
  NoiseEstimate noise_;
  Coverage coverage_;
  std::vector<double> squares_;
};

/// "0.8991 +- 0.0021": the share, and its standard error over so many independent rows if the level is right.
std::string coverage_text(double share, double level, std::int64_t rows);
/// Sets coverage, finite, infinite and mean_width.
void coverage_fields(Json& object, const Coverage::Tally& tally);

}  // namespace ttr::cli
