// Who answers on a stream: the layers, mixtures of them, and forecasts that need no memory.
//
// What is known of one answer stands in one row of numbers, so that it can wait for its value (--horizon):
//   [F, V] predictions: the layers in the order given, `mix` if there is one, the naive forecast, and with --season the
//          seasonal one;  then what each mixture wants to have again;  and with --interval
//   half [G, V]: half of the interval's width;  deviation [G, V]: of the error, in units of the noise;  share [G]
// for the G forecasters with a memory: the layers and the mix. A layer that gives the variance of its answers has exact
// intervals (interval.h), the others and every mixture conformal ones (conformal.h).
// A layer under --tune is a mixture of the same layer with several settings (regress_tune.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conformal.h"
#include "interval.h"
#include "regress_mix.h"
#include "regress_pairs.h"
#include "regress_parts.h"
#include "regress_units.h"

namespace ttr::cli {

struct ForecastSpec {
  PairSpec pairs;
  std::vector<std::string> layers;  // what the user wrote
  bool mix = false, tune = false, standardize = false;
  std::optional<double> interval;
  std::int64_t season = 0;  // rows; 0: none
};

class Forecasters {
 public:
  explicit Forecasters(const ForecastSpec& spec);

  std::size_t count() const { return names_.size(); }
  /// The first of them are layers.
  std::size_t layer_count() const { return groups_.size(); }
  const std::string& name(std::size_t f) const { return names_[f]; }
  bool has_mix() const { return mix_.has_value(); }
  std::size_t mix_index() const { return groups_.size(); }
  std::size_t naive_index() const { return groups_.size() + (mix_ ? 1 : 0); }
  /// The layer behind forecaster f < layer_count(); under --tune the one of the largest weight now.
  const StreamLayer& layer(std::size_t f) const;
  /// How many settings of the layer there are.
  std::size_t settings_tried(std::size_t f) const { return groups_[f].count; }
  /// The weight of the largest among them.
  double largest_weight(std::size_t f) const;
  std::vector<double> mix_weights() const { return mix_->weights(); }
  std::size_t state_bytes(std::size_t f) const;
  /// Coefficients [K, V] of layer f now, the intercept last; empty if its answers are no linear map of the key.
  std::vector<double> coefficients(std::size_t f);
  double seconds(std::size_t f) const;

  /// Numbers of an answer, and places in it.
  std::size_t width() const { return width_; }
  std::size_t prediction_at(std::size_t f) const { return f * V_; }
  std::size_t half_at(std::size_t l) const { return half_begin_ + l * V_; }
  std::size_t deviation_at(std::size_t l) const { return half_begin_ + (naive_index() + l) * V_; }
  std::size_t share_at(std::size_t l) const { return half_begin_ + 2 * naive_index() * V_ + l; }

  /// The numbers of a row that has been read (PairBuilder::key_numbers, value_numbers).
  void see(const double* x, const double* y) { units_.see(x, y); }
  /// True if rows read from now on must wait for end_block().
  bool must_end_block() const { return units_.due(); }
  /// The layers over a block, in the units of the file; `naive` and `seasonal` [rows, V]; answers [rows, width].
  void run(Block& block, const double* naive, const double* seasonal, double* answers);
  /// What depends on values that arrived between the rows of a block: mixtures and widths. In the order of the rows.
  void finish(double* answer);
  /// The value of an answer has arrived. NaN: it never will.
  void update(const double* answer, const double* actual);
  /// After a block: takes new units if it is time.
  void end_block(const Block& block);

  void archive(Archive& a) {
    a(units_, layers_, mix_);
    for (Bounds& bounds : bounds_) bounds.archive(a);
    for (Group& group : groups_) a(group.mix);
  }

  bool has_intervals() const { return !bounds_.empty(); }
  bool has_exact_intervals(std::size_t l) const { return bounds_[l].exact.has_value(); }
  const Coverage& coverage(std::size_t l) const {
    return bounds_[l].exact ? bounds_[l].exact->coverage() : bounds_[l].conformal->coverage();
  }

 private:
  struct Group {  // the settings of one layer
    std::size_t first, count;
    std::optional<Mix> mix;  // of several
    std::size_t variants_at = 0, mix_at = 0;
  };
  std::size_t leader(const Group& group) const;
  struct Bounds;
  Bounds bounds_of(const Group& group);
  void run_layer(std::size_t l, Block& converted, const double* naive, double* answers, std::size_t at,
                 const Group& group);

  ForecastSpec spec_;
  std::size_t V_, width_ = 0, half_begin_ = 0, mix_at_ = 0;
  Units units_;
  std::vector<StreamLayer> layers_;
  std::vector<Group> groups_;
  std::optional<Mix> mix_;
  std::vector<std::string> names_;
  struct Bounds {  // one of the two
    std::optional<Intervals> exact;
    std::optional<Conformal> conformal;
    void archive(Archive& a) { a(exact, conformal); }
  };
  std::vector<Bounds> bounds_;  // of layers and the mix, if they are wanted
  std::vector<double> out_;
  std::vector<Uncertainty> uncertainties_;
};

}  // namespace ttr::cli
