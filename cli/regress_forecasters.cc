#include "regress_forecasters.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "regress_tune.h"
#include "ttr/recipe.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

bool gives_log_odds(const StreamLayer& layer) {
  const std::vector<Term>& extras = parse_recipe(layer.recipe()).extras;
  return std::any_of(extras.begin(), extras.end(), [](const Term& term) {
    return (term.word == "logistic" || term.word == "cross_entropy") && !term.has("mean");
  });
}

}  // namespace

std::vector<std::string> settings_of(const std::string& text, bool classify) {
  std::vector<std::string> list;
  if (classify) list = classifier_settings(text);
  return list.empty() ? settings_to_try(text) : list;
}

Forecasters::Forecasters(const ForecastSpec& spec)
    : spec_(spec),
      V_(static_cast<std::size_t>(spec.pairs.value_columns)),
      units_(spec.pairs, spec.standardize, !spec.classify) {
  const int K = PairBuilder(spec.pairs).key_dim();
  for (const std::string& text : spec.layers) {
    std::vector<std::string> variants = {text};
    if (spec.tune) variants = settings_of(text, spec.classify);
    groups_.push_back({layers_.size(), variants.size(), {}, {}});
    for (const std::string& variant : variants)
      layers_.emplace_back(spec.classify ? classifier_text(variant) : variant, K, static_cast<int>(V_));
    std::string label = text;
    for (int n = 2; std::find(names_.begin(), names_.end(), label) != names_.end(); ++n)
      label = fmt::format("{} ({})", text, n);
    names_.push_back(label);
    if (spec.interval) bounds_.push_back(bounds_of(groups_.back()));
  }
  if (spec.mix) {
    names_.emplace_back("mix");
    if (!spec.classify) mix_.emplace(groups_.size() + (spec.season > 0 ? 2 : 1), V_, true);
    if (spec.interval) bounds_.push_back({{}, Conformal(*spec.interval, static_cast<int>(V_))});
  }
  names_.emplace_back(spec.classify ? "frequencies" : "naive");
  if (spec.season > 0) names_.emplace_back("seasonal naive");

  width_ = names_.size() * V_;
  if (spec.classify) {
    place_classes();
    return;
  }
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
  if (group.count == 1 && spec_.steps == 1) {
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

void Forecasters::place_classes() {
  for (const StreamLayer& layer : layers_) calibrations_.emplace_back(V_, gives_log_odds(layer));
  frequencies_.emplace(V_);
  scores_at_ = width_, width_ += layers_.size() * V_;
  for (Group& group : groups_) {
    if (group.count == 1) continue;
    group.class_mix.emplace(group.count, V_);
    group.variants_at = width_, width_ += group.count * V_;
  }
  if (spec_.mix) class_mix_.emplace(names_.size() - 1, V_);
}

std::vector<double> Forecasters::weights_of(const Group& group) const {
  return group.mix ? group.mix->weights() : group.class_mix ? group.class_mix->weights() : std::vector{1.0};
}

std::size_t Forecasters::leader(const Group& group) const {
  const std::vector<double> weights = weights_of(group);
  return group.first +
         static_cast<std::size_t>(
             std::max_element(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(group.count)) -
             weights.begin());
}

const StreamLayer& Forecasters::layer(std::size_t f) const { return layers_[leader(groups_[f])]; }

double Forecasters::largest_weight(std::size_t f) const {
  const Group& group = groups_[f];
  return weights_of(group)[leader(group) - group.first];
}

std::size_t Forecasters::state_bytes(std::size_t f) const {
  if (f >= groups_.size()) return V_ * sizeof(double);
  std::size_t sum = 0;
  for (std::size_t l = 0; l < groups_[f].count; ++l) sum += layers_[groups_[f].first + l].state_bytes();
  return sum;
}

std::vector<double> Forecasters::coefficients(std::size_t f) {
  if (groups_[f].count > 1) return {};
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

void Forecasters::set_bias_of(Block& block, const StreamLayer& layer) const {
  if (!spec_.pairs.bias) return;
  const double number = layer.solves() ? Units::free_bias : 1;
  if (spec_.pairs.weighted && layer.takes_weights()) set_scaled_bias(block, number);
  else set_bias(block, number);
}

// Every row asks several times: the answer becomes the newest lag of the next question. Differences are summed up.
void Forecasters::run_steps(StreamLayer& layer, const Block& block) {
  const std::size_t K = static_cast<std::size_t>(block.key_dim), lagged = V_ * spec_.pairs.lag_count();
  one_.key_dim = block.key_dim, one_.value_dim = block.value_dim, one_.rows = 1;
  one_.has_pair.resize(1), one_.may_be_asked_again.assign(1, 1);
  std::vector<double> answer(V_), sum(V_);
  for (std::size_t r = 0; r < block.rows; ++r) {
    const auto row = [](const std::vector<double>& all, std::size_t at, std::size_t width) {
      const auto from = all.begin() + static_cast<std::ptrdiff_t>(at * width);
      return std::vector<double>(from, from + static_cast<std::ptrdiff_t>(width));
    };
    one_.keys = row(block.keys, r, K), one_.values = row(block.values, r, V_),
    one_.queries = row(block.queries, r, K);
    one_.has_pair[0] = block.has_pair[r];
    std::fill(sum.begin(), sum.end(), 0.0);
    for (std::int64_t step = 0; step < spec_.steps; ++step) {
      layer.run(one_, answer.data());
      one_.has_pair[0] = 0;
      for (std::size_t v = 0; v < V_; ++v) {
        const double value = units_.value_shift(v) + units_.value_scale(v) * answer[v];
        sum[v] = spec_.pairs.differences ? sum[v] + value : value;
        answer[v] = units_.key_number(v, value);
      }
      std::copy_backward(one_.queries.begin(), one_.queries.begin() + static_cast<std::ptrdiff_t>(lagged - V_),
                         one_.queries.begin() + static_cast<std::ptrdiff_t>(lagged));
      std::copy(answer.begin(), answer.end(), one_.queries.begin());
    }
    for (std::size_t v = 0; v < V_; ++v) out_[r * V_ + v] = (sum[v] - units_.value_shift(v)) / units_.value_scale(v);
  }
}

void Forecasters::run_layer(std::size_t l, Block& block, const double* naive, double* answers, std::size_t at,
                            const Group& group) {
  StreamLayer& layer = layers_[l];
  Block& rows = spec_.pairs.weighted && layer.takes_weights() ? scaled_ : block;
  set_bias_of(rows, layer);
  if (spec_.steps > 1) run_steps(layer, rows);
  else layer.run(rows, out_.data(), uncertainties_.data());
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
  if (spec_.pairs.weighted) scaled_ = converted, scale_pairs(scaled_);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    for (std::size_t i = 0; i < group.count; ++i)
      run_layer(group.first + i, converted, naive, answers,
                spec_.classify ? scores_at_ + (group.first + i) * V_
                : group.mix    ? group.variants_at + i * V_
                               : prediction_at(g),
                group);
  }
  if (spec_.pairs.bias) set_bias(block, 1);
  for (std::size_t r = 0; r < block.rows; ++r) {
    std::copy_n(naive + r * V_, V_, answers + r * width_ + prediction_at(naive_index()));
    if (spec_.season > 0) std::copy_n(seasonal + r * V_, V_, answers + r * width_ + prediction_at(naive_index() + 1));
  }
}

std::vector<double> Forecasters::mix_experts(const double* answer) const {
  // The layers and the forecasts without a memory stand on both sides of the mix's own place.
  std::vector<double> experts(answer, answer + prediction_at(mix_index()));
  experts.insert(experts.end(), answer + prediction_at(naive_index()), answer + prediction_at(count()));
  return experts;
}

void Forecasters::finish_classes(double* answer) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    for (std::size_t i = 0; i < group.count; ++i) {
      const std::size_t l = group.first + i;
      calibrations_[l].probabilities(answer + scores_at_ + l * V_,
                                     answer + (group.class_mix ? group.variants_at + i * V_ : prediction_at(g)));
    }
    if (group.class_mix) group.class_mix->predict(answer + group.variants_at, answer + prediction_at(g));
  }
  frequencies_->predict(answer + prediction_at(naive_index()));
  if (class_mix_) class_mix_->predict(mix_experts(answer).data(), answer + prediction_at(mix_index()));
}

void Forecasters::update_classes(const double* answer, const double* actual) {
  for (std::size_t l = 0; l < layers_.size(); ++l) calibrations_[l].update(answer + scores_at_ + l * V_, actual);
  for (Group& group : groups_)
    if (group.class_mix) group.class_mix->update(answer + group.variants_at, actual);
  if (class_mix_) class_mix_->update(mix_experts(answer).data(), actual);
  frequencies_->update(actual);
}

void Forecasters::finish(double* answer) {
  if (spec_.classify) return finish_classes(answer);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    if (!group.mix) continue;
    group.mix->predict(answer + group.variants_at, answer + group.mix_at);
    std::copy_n(answer + group.mix_at, V_, answer + prediction_at(g));
  }
  if (mix_) {
    mix_->predict(mix_experts(answer).data(), answer + mix_at_);
    std::copy_n(answer + mix_at_, V_, answer + prediction_at(mix_index()));
  }
  for (std::size_t l = 0; l < bounds_.size(); ++l) {
    if (bounds_[l].exact) bounds_[l].exact->widths(answer + deviation_at(l), answer + half_at(l));
    else bounds_[l].conformal->widths(answer + half_at(l));
  }
}

void Forecasters::update(const double* answer, const double* actual) {
  if (spec_.classify) return update_classes(answer, actual);
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
  if (spec_.pairs.weighted && past.rows > 0) scaled_ = past, scale_pairs(scaled_);
  for (StreamLayer& layer : layers_) {
    layer.forget();
    if (past.rows == 0) continue;
    Block& pairs = spec_.pairs.weighted && layer.takes_weights() ? scaled_ : past;
    set_bias_of(pairs, layer);
    layer.learn_again(pairs);
  }
}

}  // namespace ttr::cli
