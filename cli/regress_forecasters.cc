#include "regress_forecasters.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "regress_tune.h"
#include "ttr/status.h"

namespace ttr::cli {

Forecasters::Forecasters(const ForecastSpec& spec)
    : spec_(spec), V_(static_cast<std::size_t>(spec.pairs.value_columns)), units_(spec.pairs, spec.standardize) {
  const int K = PairBuilder(spec.pairs).key_dim();
  for (const std::string& text : spec.layers) {
    std::vector<std::string> variants = {text};
    if (spec.tune) variants = settings_to_try(text);
    groups_.push_back({layers_.size(), variants.size(), {}});
    for (const std::string& variant : variants) layers_.emplace_back(variant, K, static_cast<int>(V_));
    std::string label = text;
    for (int n = 2; std::find(names_.begin(), names_.end(), label) != names_.end(); ++n)
      label = fmt::format("{} ({})", text, n);
    names_.push_back(label);
    if (spec.interval) bounds_.push_back(bounds_of(groups_.back()));
  }
  if (spec.mix) {
    names_.emplace_back("mix");
    mix_.emplace(groups_.size() + (spec.season > 0 ? 2 : 1), V_, true);
    if (spec.interval) bounds_.push_back({{}, Conformal(*spec.interval, static_cast<int>(V_))});
  }
  names_.emplace_back("naive");
  if (spec.season > 0) names_.emplace_back("seasonal naive");

  width_ = names_.size() * V_;
  for (Group& group : groups_) {
    if (group.count == 1) continue;
    group.mix.emplace(group.count, V_, false);
    group.variants_at = width_, width_ += group.count * V_;
    group.mix_at = width_, width_ += group.mix->width();
  }
  if (mix_) mix_at_ = width_, width_ += mix_->width();
  half_begin_ = width_;
  if (spec.interval) width_ = share_at(naive_index());
}

Forecasters::Bounds Forecasters::bounds_of(const Group& group) {
  Bounds bounds;
  if (group.count == 1) {
    try {
      const ErrorVariance& variance =
          layers_.back().track_uncertainty(std::max<std::int64_t>(spec_.pairs.horizon, 1));
      bounds.exact.emplace(*spec_.interval, static_cast<int>(V_), variance.forgetting(), variance.window());
      return bounds;
    } catch (const Error&) {  // it gives no variance of its answers
    }
  }
  bounds.conformal.emplace(*spec_.interval, static_cast<int>(V_));
  return bounds;
}

std::size_t Forecasters::leader(const Group& group) const {
  if (!group.mix) return group.first;
  const std::vector<double> weights = group.mix->weights();
  return group.first +
         static_cast<std::size_t>(
             std::max_element(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(group.count)) -
             weights.begin());
}

const StreamLayer& Forecasters::layer(std::size_t f) const { return layers_[leader(groups_[f])]; }

double Forecasters::largest_weight(std::size_t f) const {
  const Group& group = groups_[f];
  return group.mix ? group.mix->weights()[leader(group) - group.first] : 1;
}

std::size_t Forecasters::state_bytes(std::size_t f) const {
  if (f >= groups_.size()) return V_ * sizeof(double);
  std::size_t sum = 0;
  for (std::size_t l = 0; l < groups_[f].count; ++l) sum += layers_[groups_[f].first + l].state_bytes();
  return sum;
}

std::vector<double> Forecasters::coefficients(std::size_t f) {
  if (groups_[f].mix) return {};
  StreamLayer& layer = layers_[groups_[f].first];
  std::vector<double> map = layer.map();
  if (!map.empty()) units_.to_file_units(map, layer.solves() ? Units::free_bias : 1);
  return map;
}

double Forecasters::seconds(std::size_t f) const {
  double sum = 0;
  for (std::size_t l = 0; f < groups_.size() && l < groups_[f].count; ++l)
    sum += layers_[groups_[f].first + l].seconds();
  return sum;
}

void Forecasters::run_layer(std::size_t l, Block& block, const double* naive, double* answers, std::size_t at,
                            const Group& group) {
  StreamLayer& layer = layers_[l];
  if (spec_.pairs.bias) set_bias(block, layer.solves() ? Units::free_bias : 1);
  layer.run(block, out_.data(), uncertainties_.data());
  for (std::size_t r = 0; r < block.rows; ++r) {
    double* const answer = answers + r * width_;
    for (std::size_t v = 0; v < V_; ++v)
      answer[at + v] = units_.value_shift(v) + units_.value_scale(v) * out_[r * V_ + v] +
                       (spec_.pairs.differences ? naive[r * V_ + v] : 0);
    if (group.mix || bounds_.empty() || !bounds_[static_cast<std::size_t>(&group - groups_.data())].exact) continue;
    const std::size_t g = static_cast<std::size_t>(&group - groups_.data());
    // The noise is that of the values as they are in the file, so that other units leave it alone.
    std::fill_n(answer + deviation_at(g), V_, std::sqrt(uncertainties_[r].variance));
    answer[share_at(g)] = uncertainties_[r].share;
  }
}

void Forecasters::run(Block& block, const double* naive, const double* seasonal, double* answers) {
  out_.resize(block.rows * V_), uncertainties_.resize(block.rows);
  Block& converted = units_.convert(block);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    for (std::size_t i = 0; i < group.count; ++i)
      run_layer(group.first + i, converted, naive, answers, group.mix ? group.variants_at + i * V_ : prediction_at(g),
                group);
  }
  if (spec_.pairs.bias) set_bias(block, 1);
  for (std::size_t r = 0; r < block.rows; ++r) {
    std::copy_n(naive + r * V_, V_, answers + r * width_ + prediction_at(naive_index()));
    if (spec_.season > 0) std::copy_n(seasonal + r * V_, V_, answers + r * width_ + prediction_at(naive_index() + 1));
  }
}

void Forecasters::finish(double* answer) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    if (!group.mix) continue;
    group.mix->predict(answer + group.variants_at, answer + group.mix_at);
    std::copy_n(answer + group.mix_at, V_, answer + prediction_at(g));
  }
  if (mix_) {
    // Its experts are the layers and the forecasts without a memory, which stand on both sides of its own place.
    std::vector<double> experts(answer, answer + prediction_at(mix_index()));
    experts.insert(experts.end(), answer + prediction_at(naive_index()), answer + prediction_at(count()));
    mix_->predict(experts.data(), answer + mix_at_);
    std::copy_n(answer + mix_at_, V_, answer + prediction_at(mix_index()));
  }
  for (std::size_t l = 0; l < bounds_.size(); ++l) {
    if (bounds_[l].exact) bounds_[l].exact->widths(answer + deviation_at(l), answer + half_at(l));
    else bounds_[l].conformal->widths(answer + half_at(l));
  }
}

void Forecasters::update(const double* answer, const double* actual) {
  for (Group& group : groups_)
    if (group.mix) group.mix->update(answer + group.mix_at, actual);
  if (mix_) mix_->update(answer + mix_at_, actual);
  for (std::size_t l = 0; l < bounds_.size(); ++l) {
    const double *const prediction = answer + prediction_at(l), *const half = answer + half_at(l);
    if (bounds_[l].exact)
      bounds_[l].exact->add(prediction, answer + deviation_at(l), answer[share_at(l)], half, actual);
    else bounds_[l].conformal->add(prediction, half, actual);
  }
}

void Forecasters::end_block(const Block& block) {
  units_.remember(block);
  if (!units_.due()) return;
  units_.update();
  Block& past = units_.past();
  for (StreamLayer& layer : layers_) {
    layer.forget();
    if (past.rows == 0) continue;
    if (spec_.pairs.bias) set_bias(past, layer.solves() ? Units::free_bias : 1);
    layer.learn_again(past);
  }
}

}  // namespace ttr::cli
