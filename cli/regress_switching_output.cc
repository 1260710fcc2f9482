// The table, the report with its plots, and the JSON of `ttr regress` without a file.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "progress.h"
#include "regress_switching.h"
#include "text_table.h"

namespace ttr::cli::switching {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::string window_name(const std::array<int, 2>& w) { return fmt::format("[{}, {})", w[0], w[1]); }

std::string statistic_text(const Statistic& s) {
  if (!std::isfinite(s.mean)) return "diverged";
  if (!std::isfinite(s.error)) return short_number(s.mean);
  return short_number(s.mean) + " \u00b1 " +
         (s.error < 10 ? fmt::format("{:.2g}", s.error) : fmt::format("{:.0f}", s.error));
}

}  // namespace

std::string Switching::table() const {
  std::vector<std::string> header = {"layer"};
  for (const auto& w : windows()) header.push_back(window_name(w));
  header.push_back("us/row");
  header.push_back("state");
  TextTable out(header);
  for (const Result& r : results_) {
    std::vector<std::string> cells = {r.entry.label};
    for (const auto& w : windows()) cells.push_back(statistic_text(window(r, w[0], w[1])));
    cells.push_back(r.plan ? short_number(us_per_row(r)) : "-");
    cells.push_back(short_bytes(static_cast<double>(r.state_bytes)));
    out.row(std::move(cells));
  }
  std::string text = fmt::format(
      "Switching process, K = V = {}, T = {}, {} noise; the rule changes from {} to {} at t = {}.\n"
      "Squared 2-norm loss, mean \u00b1 standard error over {} seeds, in three windows of time:\n\n{}",
      spec_.dim, spec_.time, to_string(spec_.covariance), spec_.first_rule(), spec_.second_rule(), spec_.time / 4,
      seeds_done_, out.text());
  if (!options_.layers.empty()) text += "\n";
  for (const Result& r : results_)
    if (!options_.layers.empty() && r.plan && r.ran != r.entry.label)
      text += fmt::format("{} ran {}\n", r.entry.label, r.ran);
  if (!options_.interval) return text;
  TextTable coverage(interval_header());
  for (auto& row : interval_rows()) coverage.row(std::move(row));
  return text +
         fmt::format("\nPrediction intervals of level {}: share of the values inside, of the finite ones{}:\n\n{}",
                     *options_.interval,
                     options_.layers.empty() ? "\n(layers without a covariance are left out)" : "", coverage.text());
}

std::vector<std::string> Switching::interval_header() const {
  std::vector<std::string> header = {"layer"};
  for (const auto& w : windows()) header.push_back(window_name(w));
  header.push_back("width " + window_name(windows()[2]));
  header.push_back("rows without");
  return header;
}

std::vector<std::vector<std::string>> Switching::interval_rows() const {
  std::vector<std::vector<std::string>> rows;
  for (const Result& r : results_) {
    if (r.intervals.empty()) continue;
    std::vector<std::string> cells = {r.entry.label};
    const auto cell = [](const Statistic& s) { return std::isfinite(s.mean) ? statistic_text(s) : "-"; };
    for (const auto& w : windows()) cells.push_back(cell(window(r, &SeedIntervals::inside, w[0], w[1])));
    cells.push_back(cell(window(r, &SeedIntervals::width, windows()[2][0], windows()[2][1])));
    cells.push_back(fmt::format("{:.1f} of {}", rows_without(r), spec_.time));
    rows.push_back(std::move(cells));
  }
  return rows;
}

// A moving mean that never reaches over the switch, which would blur the one thing to see.
std::vector<double> Switching::smoothed(const std::vector<double>& means) const {
  const int T = spec_.time, reach = std::max(1, T / 32);  // half the width
  std::vector<double> out(means.size(), nan);
  for (int t = 0; t < T; ++t) {
    if (!std::isfinite(means[t])) continue;
    const int low = std::max(t < T / 4 ? 0 : T / 4, t - reach),
              high = std::min(t < T / 4 ? T / 4 - 1 : T - 1, t + reach);
    double sum = 0, count = 0;
    for (int u = low; u <= high; ++u)
      if (std::isfinite(means[u])) sum += means[u], ++count;
    out[t] = sum / count;
  }
  return out;
}

Plot Switching::plot() const {
  const int T = spec_.time;
  Plot plot;
  plot.title = "A process that changes its rule: loss of each layer over time";
  plot.x_label = "t, pairs in memory", plot.y_label = "squared 2-norm loss";
  plot.log_y = plot.legend_by_end = true, plot.height = 520;
  plot.marks.push_back({T / 4.0, "the rule changes"});
  for (const Result& r : results_) {
    std::vector<double> mean(T);
    for (int s = 0; s < seeds_done_; ++s)
      for (int t = 0; t < T; ++t) mean[t] += r.losses[s][t] / seeds_done_;
    Line line;
    line.label = r.entry.label, line.hue = r.entry.hue, line.dash = r.entry.dash;
    for (int t = 0; t < T; ++t) line.x.push_back(t);
    line.y = smoothed(mean);
    plot.lines.push_back(std::move(line));
  }
  return plot;
}

Plot Switching::coverage_plot() const {
  const int T = spec_.time;
  Plot plot;
  plot.title = fmt::format("Share of the values inside their interval of level {}", *options_.interval);
  plot.x_label = "t, pairs in memory", plot.y_label = "coverage", plot.height = 360;
  plot.marks.push_back({T / 4.0, "the rule changes"});
  Line level;
  level.label = "level", level.hue = -1, level.dash = 2;
  for (int t = 0; t < T; ++t) level.x.push_back(t), level.y.push_back(*options_.interval);
  plot.lines.push_back(std::move(level));
  int hue = 0;  // layers with a covariance are all related: here each has its own
  for (const Result& r : results_) {
    if (r.intervals.empty()) continue;
    Line line;
    line.label = r.entry.label, line.hue = hue % 7, line.dash = hue / 7 % 4, ++hue;
    std::vector<double> mean(T);
    for (int t = 0; t < T; ++t) line.x.push_back(t), mean[t] = window(r, &SeedIntervals::inside, t, t + 1).mean;
    line.y = smoothed(mean);
    plot.lines.push_back(std::move(line));
  }
  return plot;
}

// Of one layer alone: several bands over one another cannot be told apart.
Plot Switching::band_plot(const Result& r) const {
  const int T = spec_.time, D = spec_.dim;
  const SeedIntervals& first = r.intervals[0];
  Plot plot;
  plot.title = "Predictions: the first value of the first seed";
  plot.x_label = "t, pairs in memory", plot.y_label = "value", plot.height = 360;
  plot.marks.push_back({T / 4.0, "the rule changes"});
  Line actual, line;
  Band band;
  actual.label = "actual", actual.hue = -1, actual.width = 2.6;
  line.label = r.entry.label, line.width = 1.4, line.y = first.prediction;
  for (int t = 0; t < T; ++t) {
    actual.x.push_back(t), actual.y.push_back(data_[0].values[(t + 1) * D]);
    band.low.push_back(first.prediction[t] - first.half[t]), band.high.push_back(first.prediction[t] + first.half[t]);
  }
  line.x = band.x = actual.x;
  plot.lines = {std::move(actual), std::move(line)}, plot.bands = {std::move(band)};
  return plot;
}

Report Switching::report() const {
  Report out;
  out.title = "The switching process";
  out.subtitle = fmt::format(
      "Keys follow k(t+1) = a k(t) + noise with a = {} before t = {} and {} after; values are the next key at "
      "length 1. "
      "After every pair each memory predicts the next value. K = V = {}, T = {}, {} noise, {} seeds.",
      spec_.first_rule(), spec_.time / 4, spec_.second_rule(), spec_.dim, spec_.time, to_string(spec_.covariance),
      seeds_done_);
  Report::Table table;
  table.header = {"layer"};
  for (const auto& w : windows()) table.header.push_back(window_name(w));
  table.header.insert(table.header.end(), {"us/row", "state"});
  double best = std::numeric_limits<double>::infinity();
  for (const Result& r : results_) {
    std::vector<std::string> cells = {r.entry.label};
    for (const auto& w : windows()) cells.push_back(statistic_text(window(r, w[0], w[1])));
    cells.push_back(r.plan ? short_number(us_per_row(r)) : "-");
    cells.push_back(short_bytes(static_cast<double>(r.state_bytes)));
    if (const double last = window(r, windows()[2][0], windows()[2][1]).mean; last < best)
      best = last, table.emphasised = static_cast<int>(table.rows.size());
    table.rows.push_back(std::move(cells));
  }
  table.caption =
      "Squared 2-norm loss, mean \u00b1 standard error over seeds, in three windows of t. Minimum-norm RLS has its "
      "double-descent peak where the pairs number as many as the key has entries, at the switch; single seeds "
      "dominate its mean there.";
  out.tables.push_back(std::move(table));
  out.figures.push_back(
      {plot(), fmt::format("Mean over seeds, moving mean over {} steps that stops at the switch; log scale, lower "
                           "is better; peaks far above the other lines are cut off. The legend stands in the order "
                           "in which the lines end.",
                           2 * std::max(1, spec_.time / 32) + 1)});
  if (options_.interval) {
    out.tables.push_back(
        {fmt::format("Prediction intervals of level {}: share of the values inside, of those that "
                     "are finite, mean \u00b1 standard error over seeds; and how many rows of a run "
                     "have none, because the key has a part that was never seen or the noise is not "
                     "known yet.{}",
                     *options_.interval, options_.layers.empty() ? " Layers without a covariance are left out." : ""),
         interval_header(), interval_rows()});
    out.figures.push_back({coverage_plot(), "Mean over values and seeds, moving mean as above."});
    const Result* least = nullptr;
    const auto last = [&](const Result& r) { return window(r, windows()[2][0], windows()[2][1]).mean; };
    for (const Result& r : results_)
      if (!r.intervals.empty() && (!least || last(r) < last(*least))) least = &r;
    if (least)
      out.figures.push_back(
          {band_plot(*least), fmt::format("The layer of least loss in the last window. Band: intervals of level {}.",
                                          *options_.interval)});
  }
  if (interrupted() != 0)
    out.notes.push_back(fmt::format("The run was interrupted after {} of {} seeds.", seeds_done_, options_.seeds));
  if (!options_.command.empty()) out.facts.emplace_back("command", options_.command);
  out.facts.emplace_back("seed", fmt::format("{}", options_.seed));
  for (const Result& r : results_) out.facts.emplace_back(r.entry.label, r.plan ? r.ran : "the last value seen");
  return out;
}

Json Switching::interval_json(const Result& r) const {
  Coverage sum(spec_.dim);
  for (int s = 0; s < seeds_done_; ++s)
    for (std::size_t v = 0; v < sum.values.size(); ++v) sum.values[v] += r.intervals[s].coverage.values[v];
  Json out = Json::object(), values = Json::array(), means = Json::array(), errors = Json::array();
  coverage_fields(out, sum.all());
  for (const auto& w : windows()) {
    const Statistic s = window(r, &SeedIntervals::inside, w[0], w[1]);
    means.push(s.mean), errors.push(s.error);
  }
  for (std::size_t v = 0; v < sum.values.size(); ++v) {
    Json one = Json::object().set("name", fmt::format("{}", v + 1));
    coverage_fields(one, sum.values[v]);
    values.push(one);
  }
  return out.set("windows", means).set("windows_standard_error", errors).set("values", values);
}

Json Switching::json() const {
  Json out = Json::object(), list = Json::array(), bounds = Json::array();
  for (const auto& w : windows()) bounds.push(Json::array().push(w[0]).push(w[1]));
  const std::int64_t rows = static_cast<std::int64_t>(seeds_done_) * spec_.time;
  for (const Result& r : results_) {
    Json layer = Json::object(), means = Json::array(), errors = Json::array();
    for (const auto& w : windows()) {
      const Statistic s = window(r, w[0], w[1]);
      means.push(s.mean), errors.push(s.error);
    }
    const double mse = overall(r);
    layer.set("name", r.entry.label).set("recipe", r.plan ? r.entry.recipe : "the last value seen").set("mse", mse);
    layer.set("r2", 1 - mse * static_cast<double>(rows) / value_spread_).set("windows", means);
    layer.set("windows_standard_error", errors).set("us_per_row", us_per_row(r));
    layer.set("state_bytes", r.state_bytes).set("kernel", r.plan ? r.plan->kernel() : "none");
    if (!r.intervals.empty()) layer.set("interval", interval_json(r));
    list.push(layer);
  }
  out.set("rows", rows).set("loss", "squared 2-norm").set("process", "switching").set("seeds", seeds_done_);
  out.set("time", spec_.time)
      .set("covariance", to_string(spec_.covariance))
      .set("order", to_string(spec_.order))
      .set("window_bounds", bounds);
  if (options_.interval) out.set("interval", *options_.interval);
  return out.set("interrupted", interrupted() != 0).set("layers", list);
}

}  // namespace ttr::cli::switching
