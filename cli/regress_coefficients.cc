// What linear layers have learned, as coefficients of the keys in the units of the file: over time, and after the last row.
//
// Over time they are those with which the newest row was asked. There are at most 64 samples: when there would be more every
// second one is dropped, and the rows between two of them double.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "aside.h"
#include "csv.h"
#include "regress_stream.h"

namespace ttr::cli {
namespace {

constexpr std::size_t most_samples = 64, most_drawn = 7;

}  // namespace

// A map takes a step of the layer for every key, on a copy of its state.
std::optional<Stream::Sample> Stream::coefficients_now(bool after_the_last_row) {
  const auto sample = std::make_shared<Sample>();
  sample->row = good_rows_;
  const bool done = states_whole_ && run_aside([this, sample, after_the_last_row] {
                      for (const auto& memory : memories_)
                        if (after_the_last_row) memory->learn_last();
                      for (std::size_t l = 0; options_.group.empty() && l < forecasters_->layer_count(); ++l)
                        sample->of.push_back(memories_[0]->forecasters().coefficients(l));
                    });
  if (done) return std::move(*sample);
  left_ = true;
  return {};
}

void Stream::sample_coefficients() {
  if (!options_.group.empty()) return;  // of groups the last ones alone
  std::optional<Sample> sample = coefficients_now(false);
  if (!sample) return;
  samples_.push_back(std::move(*sample));
  if (samples_.size() < most_samples) return;
  coefficients_every_ *= 2;
  std::erase_if(samples_, [&](const Sample& s) { return s.row % coefficients_every_ != 0; });
}

void Stream::final_coefficients() {
  std::optional<Sample> last = coefficients_now(true);
  if (!last) states_whole_ = false, coefficients_.assign(forecasters_->layer_count(), {});
  if (!last || !options_.group.empty()) return;
  coefficients_ = last->of;
  if (!samples_.empty() && samples_.back().row == good_rows_) samples_.pop_back();
  samples_.push_back(std::move(*last));
}

std::string Stream::coefficients_csv() const {
  const std::vector<std::string> names = key_number_names();
  std::string text = options_.group.empty() ? "row,layer,value,key,coefficient\n"
                                            : csv_field(options_.group) + ",layer,value,key,coefficient\n";
  const auto add = [&](const std::string& where, std::size_t layer, const std::vector<double>& map) {
    for (std::size_t v = 0; v < V_ && !map.empty(); ++v)
      for (std::size_t k = 0; k < names.size(); ++k)
        text += fmt::format("{},{},{},{},{}\n", where, csv_field(scores_[layer].name), csv_field(value_names_[v]),
                            csv_field(names[k]), map[k * V_ + v]);
  };
  for (const Sample& sample : samples_)
    for (std::size_t l = 0; l < sample.of.size(); ++l) add(fmt::format("{}", sample.row), l, sample.of[l]);
  for (std::size_t g = 0; !options_.group.empty() && g < memories_.size(); ++g)
    for (std::size_t l = 0; l < forecasters_->layer_count(); ++l)
      add(csv_field(groups_.names()[g]), l, memories_[g]->forecasters().coefficients(l));
  return text;
}

// The keys of the largest coefficients, the intercept left out.
Plot Stream::coefficient_plot(std::size_t layer, std::size_t v) const {
  Plot plot;
  plot.title = fmt::format("Coefficients over time: {}", scores_[layer].name);
  plot.x_label = "row", plot.y_label = V_ > 1 ? "coefficient for " + value_names_[v] : "coefficient";
  plot.height = 360, plot.whole_range = true;
  const std::vector<std::string> names = key_number_names();
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t k = 0; k + (spec_.bias ? 1 : 0) < names.size(); ++k)
    order.emplace_back(-std::abs(coefficients_[layer][k * V_ + v]), k);
  std::stable_sort(order.begin(), order.end());
  order.resize(std::min(order.size(), most_drawn));
  for (std::size_t i = 0; i < order.size(); ++i) {
    Line line;
    line.label = names[order[i].second], line.hue = static_cast<int>(i);
    for (const Sample& sample : samples_) {
      if (sample.of[layer].empty() || sample.row < warmup()) continue;
      line.x.push_back(static_cast<double>(sample.row));
      line.y.push_back(sample.of[layer][order[i].second * V_ + v]);
    }
    plot.lines.push_back(std::move(line));
  }
  return plot;
}

std::vector<std::string> Stream::key_number_names() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < spec_.lag_count(); ++i)
    for (const std::string& name : key_names_) {
      const std::int64_t lag = spec_.offsets.empty() ? static_cast<std::int64_t>(i) + 1 : spec_.offsets[i];
      names.push_back(spec_.lags > 0 ? fmt::format("{}, lag {}", name, lag) : name);
    }
  for (const std::string& name : options_.with) names.push_back(name);
  for (const std::string& name : options_.dates)
    for (const char* what : {"years", "sin year", "cos year", "sin week", "cos week", "sin day", "cos day"})
      names.push_back(fmt::format("{}, {}", name, what));
  for (const std::string& name : options_.categories)
    for (std::int64_t slot = 1; slot <= options_.category_slots; ++slot)
      names.push_back(fmt::format("{}, slot {}", name, slot));
  for (std::int64_t k = 1; k <= options_.fourier; ++k)
    names.push_back(fmt::format("sin {} / season", k)), names.push_back(fmt::format("cos {} / season", k));
  if (options_.missing == "indicator")
    for (const auto* list : {&key_names_, &options_.with})
      for (const std::string& name : *list) names.push_back(name + " is missing");
  if (spec_.bias) names.emplace_back("intercept");
  return names;
}

std::vector<std::string> Stream::coefficient_header() const {
  std::vector<std::string> header = {"coefficient of"};
  for (std::size_t l = 0; l < coefficients_.size(); ++l)
    if (!coefficients_[l].empty()) header.push_back(scores_[l].name);
  return header;
}

std::vector<std::vector<std::string>> Stream::coefficient_rows() const {
  std::vector<std::vector<std::string>> rows;
  const std::vector<std::string> names = key_number_names();
  for (std::size_t v = 0; v < V_; ++v)
    for (std::size_t k = 0; k < names.size(); ++k) {
      rows.push_back({V_ > 1 ? fmt::format("{}: {}", value_names_[v], names[k]) : names[k]});
      for (const std::vector<double>& map : coefficients_)
        if (!map.empty()) rows.back().push_back(fmt::format("{:.6g}", map[k * V_ + v]));
    }
  return rows;
}

}  // namespace ttr::cli
