// Who answers on a stream: the layers, mixtures of them, and forecasts that need no memory.
//
// What is known of one answer stands in one row of numbers, so that it can wait for its value (--horizon):
//   [F, V] predictions: the layers in the order given, `mix` if there is one, the naive forecast, and with --season the
//          seasonal one;  then what each mixture wants to have again;  and with --interval
//   half [G, V]: half of the interval's width;  deviation [G, V]: of the error, in units of the noise;  share [G]
// for the G forecasters with a memory: the layers and the mix. A layer that gives the variance of its answers has exact
// intervals (interval.h), the others and every mixture conformal ones (conformal.h).
// A layer under --tune is a mixture of the same layer with several settings (regress_tune.h).
// Under --classify a prediction [V] is the probabilities of the V classes, made of the layers' scores [L, V], which stand
// behind the predictions (classify.h); the mixtures are those of probabilities, and the naive forecast is the frequencies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "classify.h"
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
  bool classify = false;  // the values are classes
  std::optional<double> interval;
  std::int64_t season = 0;  // rows; 0: none
  std::int64_t steps = 1;   // answers that follow each other, each a key of the next; the last one counts
};

/// The settings of a layer that --tune runs.
std::vector<std::string> settings_of(const std::string& text, bool classify);

class Forecasters {
 public:
  explicit Forecasters(const ForecastSpec& spec);

  /// Gives back the memory of the layers: this one will not run.
  void release() {
    for (StreamLayer& layer : layers_) layer.release();
  }

  std::size_t count() const { return names_.size(); }
  /// The first of them are layers.
  std::size_t layer_count() const { return groups_.size(); }
  const std::string& name(std::size_t f) const { return names_[f]; }
  bool has_mix() const { return spec_.mix; }
  bool classifies() const { return spec_.classify; }
  std::size_t mix_index() const { return groups_.size(); }
  std::size_t naive_index() const { return groups_.size() + (spec_.mix ? 1 : 0); }
  /// The layer behind forecaster f < layer_count(); under --tune the one of the largest weight now.
  const StreamLayer& layer(std::size_t f) const;
  /// How many settings of the layer there are.
  std::size_t settings_tried(std::size_t f) const { return groups_[f].count; }
  /// The weight of the largest among them.
  double largest_weight(std::size_t f) const;
  std::vector<double> mix_weights() const { return mix_ ? mix_->weights() : class_mix_->weights(); }
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
  /// As it will be after one more row.
  bool must_end_block_soon() const { return units_.due(1); }
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
    if (!spec_.classify) return;
    a(calibrations_, class_mix_, frequencies_);
    for (Group& group : groups_) a(group.class_mix);
  }

  bool has_intervals() const { return !bounds_.empty(); }
  bool has_exact_intervals(std::size_t l) const { return bounds_[l].exact.has_value(); }
  const Coverage& coverage(std::size_t l) const {
    return bounds_[l].exact ? bounds_[l].exact->coverage() : bounds_[l].conformal->coverage();
  }

 private:
  struct Group {  // the settings of one layer
    std::size_t first, count;
    std::optional<Mix> mix;             // of several
    std::optional<ClassMix> class_mix;  // the same of classes
    std::size_t variants_at = 0, mix_at = 0;
  };
  std::vector<double> weights_of(const Group& group) const;
  std::size_t leader(const Group& group) const;
  void place_classes();
  void finish_classes(double* answer);
  void update_classes(const double* answer, const double* actual);
  // The experts of the mix: all forecasters but itself [F - 1, V].
  std::vector<double> mix_experts(const double* answer) const;
  struct Bounds;
  Bounds bounds_of(const Group& group);
  void set_bias_of(Block& block, const StreamLayer& layer) const;
  void run_steps(StreamLayer& layer, const Block& block);
  void run_layer(std::size_t l, Block& converted, const double* naive, double* answers, std::size_t at,
                 const Group& group);

  ForecastSpec spec_;
  std::size_t V_, width_ = 0, half_begin_ = 0, mix_at_ = 0;
  Units units_;
  std::vector<StreamLayer> layers_;
  std::vector<Group> groups_;
  std::optional<Mix> mix_;
  std::vector<Calibration> calibrations_;  // one per layer, its scores at scores_at_ + l V
  std::size_t scores_at_ = 0;
  std::optional<ClassMix> class_mix_;
  std::optional<Frequencies> frequencies_;
  std::vector<std::string> names_;
  struct Bounds {  // one of the two
    std::optional<Intervals> exact;
    std::optional<Conformal> conformal;
    void archive(Archive& a) { a(exact, conformal); }
  };
  std::vector<Bounds> bounds_;  // of layers and the mix, if they are wanted
  std::vector<double> out_;
  std::vector<Uncertainty> uncertainties_;
  Block scaled_, one_;
};

}  // namespace ttr::cli
