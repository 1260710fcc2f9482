// Prediction intervals of `ttr regress --interval`: an answer with the range that its value should fall into.
//
// Least squares is a Kalman filter without drift. Before the pair (x, y) is learned its error e = y - S'x has the
// variance s^2 c, where s^2 is the noise of the values and c is the layer's output `variance`:
//
//   exact     c = 1 + x' A^{-1} x ,       A = a^m H + ridge I        H = sum_i w_i k_i k_i'
//   kalman    c = noise + x' (P + m process I) x
//
// a is the forgetting factor and m >= 1 the pairs between the newest learned and the one asked for: A and P are what the
// pair itself will find when it is learned. So the layer is asked after m empty pairs (zeros), on a copy of its state; a
// window that forgets nothing is asked as it is, since empty pairs would push others out. c is infinite where the layer
// knows nothing (`known` = 0: without a ridge, while x has a part outside the span of the keys seen).
//
// The noise is estimated from the answers whose values have arrived, with the forgetting (or the window) of the fit:
//
//   s^2 = sum_i w_i u_i e_i^2 / c_i / sum_i w_i u_i        w_i = a^age
//   u = 1 - (part of c that comes from the prior) = the output `known`, 1 - ridge |A^{-1} x|^2 / c
//                                                   (kalman: 1 - |M'x|^2 / c)
//   y in S'x -+ t s sqrt(c) ,   t the quantile of Student's t with (sum w u)^2 / (sum w^2 u) degrees of freedom
//
// M is the product of (I - gain k'): what is left of S_0. A second filter that starts at S_0 = the root of its covariance
// and is shown zeros remembers nothing else, so its answer is M'x. Errors that stem from the prior say how
// large S is, not how noisy the values are, so they count less, by u. For a = 1 sum u = n - trace(A^{-1} H), the
// effective degrees of freedom of ridge regression; without a ridge they are n - rank, s^2 is the residual sum of
// squares over them, and for Gaussian noise the interval is exact. One noise per value column, one c for all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "archive.h"
#include "json.h"
#include "regress_ridge.h"
#include "ttr/plan.h"

namespace ttr::cli {

/// The t with P(|T| <= t) = level for Student's t with so many degrees of freedom (not necessarily whole; infinity is
/// the normal). level in (0, 1), degrees > 0.
double student_quantile(double level, double degrees);

/// P(|T| > t) for t > 0 and finite degrees of freedom.
double student_tail(double t, double degrees);

/// c and u of one answer.
struct Uncertainty {
  double variance = std::numeric_limits<double>::infinity();
  double share = 0;
};

/// Asks a layer for c and u; double, one sequence, one head.
class ErrorVariance {
 public:
  /// Throws Error if the layer does not give a variance; the message names the layers that do. `ahead` is m above,
  /// `renewed` what fades the plan's state and keeps its ridge, if that is not the plan itself.
  ErrorVariance(const Plan& plan, const std::string& name, std::int64_t ahead,
                const std::optional<RenewedRidge>& renewed = {});

  /// What the layer's own step has to be asked for. Places of this object: it must stay where it is.
  void ask(Outputs& outputs);
  /// After a step of the plan that learned `key`: the uncertainty of the answer to `query`. Call it once per step.
  Uncertainty after_step(ConstState state, const double* key, const double* query);

  void archive(Archive& a) {
    if (filter_) a(filter_->state);
  }
  double forgetting() const { return forgetting_.factor; }
  std::int64_t window() const { return forgetting_.window; }  // pairs; 0: all

 private:
  struct Filter {
    Plan plan;
    std::vector<double> state, work, zeros, answer;
  };
  void forecast(ConstState state, const double* query);
  double left_of_prior(const double* key, const double* query);

  Plan plan_;
  std::string name_;
  std::int64_t ahead_;
  std::optional<RenewedRidge> renewed_;
  Forgetting forgetting_;
  std::optional<Filter> filter_;  // of a layer that does not say itself what is known
  double variance_ = 0, known_ = 0;
  std::vector<double> copy_, work_, zeros_;
};

/// s^2 per value column, and the degrees of freedom.
class NoiseEstimate {
 public:
  NoiseEstimate(int values, double forgetting, std::int64_t window);
  /// The squares e^2 / c [V] of an answer whose value has arrived; share 0 if it says nothing.
  void add(double share, const double* squares);
  double degrees() const;
  void archive(Archive& a) { a(newer_, older_, since_, sum_, newer_entries_, older_sums_, total_); }
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
    double pinball = 0;    // sum over the finite ones: loss of both bounds as quantiles, their mean
    double share() const;  // NaN if none is finite
    double mean_width() const;
    double mean_pinball() const;
    Tally& operator+=(const Tally& other);
    void archive(Archive& a) { a(inside, finite, none, width, pinball); }
  };
  std::vector<Tally> values;
  double tail;  // of the values that should be below the lower bound, and above the upper one

  explicit Coverage(int count, double level = std::numeric_limits<double>::quiet_NaN())
      : values(static_cast<std::size_t>(count)), tail((1 - level) / 2) {}
  void add(const double* prediction, const double* half, const double* actual);
  Tally all() const;
  void archive(Archive& a) { a(values); }
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
  void archive(Archive& a) { a(noise_, coverage_); }

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
