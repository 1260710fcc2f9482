// Classes on a stream: from the scores of a layer to probabilities, their mixture, and how good they are.
//
// With C classes the value of a row is e_c: C channels, 1 at its class. A layer answers with a score s_d per class: log odds
// under the losses `logistic` and `cross_entropy`, a number around 0 and 1 under the squared loss. In both cases
//
//   z_d = a s_d + b_d ,   p = softmax(z) ,   then p <- (1 - 1e-4) p + 1e-4 / C
//
// with a slope a and C offsets b that are learned on past answers alone (Platt's scaling, online): they are the state of an
// extended Kalman filter for the log loss,
//
//   P <- f P + (1 - f) P_0 + J' (diag(p) - p p') J ,   theta <- theta - P^-1 J' (p - e_c) ,   J = dz / dtheta ,  f = 0.999
//
// from a_0 = 1 for log odds and 4 for the squared loss (the slope of a logistic curve at 1/2 is 1/4). A value that arrives
// late (--horizon) moves them when it arrives, so nothing of a later row is ever used.
//
// Mixture of experts' probabilities p_j by exponential weights on the log loss, which is Bayes' rule, with a fixed share of
// 1e-3 given back to all (Herbster and Warmuth 1998), so that another expert may become the best one later:
//
//   p = sum_j w_j p_j ,   w_j <- (1 - 0.001) w_j p_j[c] / p[c] + 0.001 / E
//
// Its log loss exceeds that of the best expert by at most log(E) + 0.0011 n after n rows, whatever the classes are.
//
// AUC: the chance that a row of the class has a larger probability of it than a row of another class, ties counting half;
// with more than two classes the mean over the classes. Probabilities are counted in 2048 bins of their log odds, so memory is
// constant, and pairs within a bin count half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "archive.h"
#include "regress_columns.h"

namespace ttr::cli {

inline constexpr int most_classes = 64;

/// A field as its class, C numbers of which one is 1; all NaN where it is missing.
class ClassEncoder : public ColumnEncoder {
 public:
  explicit ClassEncoder(std::vector<std::string> classes) : classes_(std::move(classes)) {}
  int width() const override { return static_cast<int>(classes_.size()); }
  bool encode(std::string_view field, double* out) override;
  std::string expected() const override;
  void archive(Archive&) override {}  // the classes are an option

 private:
  std::vector<std::string> classes_;
};

/// The classes of a column of a file: numbers in their order, then words in theirs. Nothing else of the rows is used. Throws
/// Error if there is one class only, or too many.
std::vector<std::string> find_classes(const std::string& file, const std::string& header, const std::string& column);

/// The layer that a word under --classify stands for: `logistic:rate=0.1` and `cross-entropy:rate=0.1` are recipes of single
/// gradient steps; anything else is itself.
std::string classifier_text(const std::string& text);
/// Several settings of such a word; empty if it is none.
std::vector<std::string> classifier_settings(const std::string& text);
/// Without --layer.
const std::vector<std::string>& default_classifiers();

/// From scores [C] to probabilities [C].
class Calibration {
 public:
  /// `log_odds`: the scores are log odds.
  Calibration(std::size_t classes, bool log_odds);
  void probabilities(const double* scores, double* p) const;
  /// The class of an answer with these scores is known.
  void update(const double* scores, const double* actual);
  double slope() const { return theta_[0]; }
  void archive(Archive& a) { a(theta_, precision_); }

 private:
  std::size_t classes_;
  std::vector<double> theta_;      // a, b_1 .. b_C
  std::vector<double> precision_;  // P [C + 1, C + 1]
  std::vector<double> work_, p_, g_;
};

/// The mixture above.
class ClassMix {
 public:
  ClassMix(std::size_t experts, std::size_t classes);
  /// From probabilities [E, C]; an expert that gives NaN sleeps.
  void predict(const double* experts, double* p) const;
  void update(const double* experts, const double* actual);
  const std::vector<double>& weights() const { return weights_; }
  void archive(Archive& a) { a(weights_); }

 private:
  std::size_t classes_;
  std::vector<double> weights_;
};

/// Class frequencies so far, (n_c + 1) / (n + C): the forecast without a memory.
class Frequencies {
 public:
  explicit Frequencies(std::size_t classes) : counts_(classes, 1.0), rows_(static_cast<double>(classes)) {}
  void predict(double* p) const;
  void update(const double* actual);
  void archive(Archive& a) { a(counts_, rows_); }

 private:
  std::vector<double> counts_;
  double rows_;
};

/// The place of the 1, or of the largest probability.
std::size_t class_of(const double* p, std::size_t classes);

/// What is known of one forecaster's probabilities.
class ClassMeasures {
 public:
  static constexpr std::size_t reliability_bins = 10;

  explicit ClassMeasures(std::size_t classes = 0);
  /// Returns the log loss of the row, which counts `weight` in all means.
  double add(const double* p, const double* actual, double weight = 1);
  double log_loss() const;
  double accuracy() const;
  double auc() const;
  double total_log_loss() const { return log_loss_; }

  struct Bin {
    double low = 0, high = 0, mean = 0, share = 0;  // of probabilities; mean: of those in it, share: that came true
    double standard_error = 0;                      // of the share
    double count = 0;
  };
  /// Probabilities against what came true: of the last class if there are two, else of all classes. Empty bins are left out.
  std::vector<Bin> reliability() const;
  /// Mean distance between probability and share, weighted by counts.
  double calibration_error() const;
  void archive(Archive& a) { a(log_loss_, correct_, rows_, positive_, negative_, sums_, hits_, counts_); }

 private:
  std::size_t classes_;
  double log_loss_ = 0, correct_ = 0, rows_ = 0;  // sums of weights, as all that follows
  std::vector<double> positive_, negative_;       // [C, bins]
  std::vector<double> sums_, hits_, counts_;      // [reliability_bins]
};

}  // namespace ttr::cli
