// What a run on a file leaves behind: the table, the JSON, the plots and the report.

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "progress.h"
#include "regress_stream.h"
#include "text_table.h"

namespace ttr::cli {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t most_values_listed = 8;

}  // namespace

Plot Stream::loss_plot() const {
  Plot plot;
  plot.title = "Squared error over time";
  plot.x_label = "row", plot.y_label = "mean squared error", plot.log_y = plot.legend_by_end = true;
  for (std::size_t l = 0; l < scores_.size(); ++l) {
    const Windows& curve = scores_[l].curve;
    const bool naive = l + 1 == scores_.size();
    Line line;
    line.label = naive ? "naive (last value)" : scores_[l].name;
    line.hue = naive ? -1 : static_cast<int>(l % 7), line.dash = naive ? 2 : static_cast<int>(l / 7 % 4);
    const double first =
        static_cast<double>(options_.lags > 0 ? options_.lags - 1 : 0) + static_cast<double>(spec_.horizon);
    for (std::size_t i = 0; i < curve.size(); ++i) {
      line.x.push_back(first + static_cast<double>(curve.width()) * static_cast<double>(i) +
                       0.5 * static_cast<double>(curve.count(i) + 1));
      line.y.push_back(curve.mean(i));
    }
    plot.lines.push_back(std::move(line));
  }
  return plot;
}

std::size_t Stream::best_layer() const {
  std::size_t best = 0;
  for (std::size_t l = 1; l < layers_.size(); ++l)
    if (!(scores_[best].squared_error <= scores_[l].squared_error)) best = l;
  return best;
}

Plot Stream::prediction_plot(std::size_t v) const {
  Plot plot;
  const std::string name = source_->has_header() ? value_names_[v] : "column " + value_names_[v];
  plot.title = "Predictions: " + name;
  plot.x_label = "row", plot.y_label = name;
  plot.height = 360;
  Line actual;
  actual.label = "actual", actual.hue = -1, actual.width = 2.6;
  for (const Shown& s : shown_) actual.x.push_back(static_cast<double>(s.row)), actual.y.push_back(s.actual[v]);
  plot.lines.push_back(std::move(actual));
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    Line line;
    line.label = scores_[l].name, line.hue = static_cast<int>(l % 7), line.dash = static_cast<int>(l / 7 % 4),
    line.width = 1.4;
    for (const Shown& s : shown_)
      line.x.push_back(static_cast<double>(s.row)), line.y.push_back(s.answer[prediction_at(l) + v]);
    plot.lines.push_back(std::move(line));
  }
  if (intervals_.empty()) return plot;
  // Of one layer alone: several bands over one another cannot be told apart.
  const std::size_t best = best_layer();
  Band band;
  band.hue = static_cast<int>(best % 7);
  for (const Shown& s : shown_) {
    const double prediction = s.answer[prediction_at(best) + v], half = s.answer[half_at(best) + v];
    band.x.push_back(static_cast<double>(s.row));
    band.low.push_back(prediction - half), band.high.push_back(prediction + half);
  }
  plot.bands.push_back(std::move(band));
  return plot;
}

namespace {

std::vector<std::string> summary_cells(const Score& s, double r2, std::size_t values) {
  const double mse = s.squared_error / static_cast<double>(s.rows) / static_cast<double>(values);
  return {s.name,
          s.diverged_at > 0 ? fmt::format("diverged at row {}", s.diverged_at) : short_number(mse),
          std::isfinite(r2) ? fmt::format("{:.4f}", r2) : "-",
          s.windows.size() > 0 ? short_number(s.windows.mean(0)) : "-",
          short_number(s.windows.last_full()),
          s.us_per_row > 0 ? short_number(s.us_per_row) : "-",
          short_bytes(static_cast<double>(s.state_bytes))};
}

std::vector<std::string> summary_header(std::int64_t window) {
  return {"layer",  "MSE",  "R2", "first " + counted(window, "row"), "last " + counted(window, "row"),
          "us/row", "state"};
}

}  // namespace

double Stream::LayerIntervals::last_width() const {
  double sum = 0;
  for (const Windows& value : widths) sum += value.last_full();
  return sum / static_cast<double>(widths.size());
}

std::vector<std::string> Stream::interval_header() const {
  std::int64_t rows = 1;
  for (const LayerIntervals& layer : intervals_) rows = std::max(rows, layer.widths[0].width());
  return {"layer", "coverage", "width, last " + counted(rows, "row"), "rows", "rows without"};
}

// A line per layer, and one per value where there are a few.
std::vector<std::vector<std::string>> Stream::interval_rows() const {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t l = 0; l < intervals_.size(); ++l) {
    const Coverage& coverage = intervals_[l].intervals.coverage();
    const auto add = [&](const std::string& name, const Coverage::Tally& t, double width, std::size_t values) {
      const std::int64_t per_row = static_cast<std::int64_t>(values);  // values of a row are not independent
      rows.push_back({name, coverage_text(t.share(), *options_.interval, t.finite / per_row), short_number(width),
                      fmt::format("{}", t.finite / per_row), fmt::format("{}", t.none / per_row)});
    };
    add(scores_[l].name, coverage.all(), intervals_[l].last_width(), V_);
    for (std::size_t v = 0; V_ > 1 && V_ <= most_values_listed && v < V_; ++v)
      add(scores_[l].name + ": " + value_names_[v], coverage.values[v], intervals_[l].widths[v].last_full(), 1);
  }
  return rows;
}

Json Stream::interval_json(std::size_t layer) const {
  const LayerIntervals& of = intervals_[layer];
  const Coverage& coverage = of.intervals.coverage();
  Json out = Json::object(), list = Json::array();
  coverage_fields(out, coverage.all());
  for (std::size_t v = 0; v < V_; ++v) {
    Json one = Json::object().set("name", value_names_[v]);
    coverage_fields(one, coverage.values[v]);
    list.push(one.set("last_width", of.widths[v].last_full()));
  }
  return out.set("last_width", of.last_width()).set("values", list);
}

std::string Stream::summary() const {
  std::string text = fmt::format("{} of {}: {}, {}{}. Each row is predicted from the rows before it.\n\n",
                                 counted(good_rows_, "row"), source_->input_name(), counted(pairs_->key_dim(), "key"),
                                 counted(static_cast<std::int64_t>(V_), "value"),
                                 spec_.horizon > 0 ? fmt::format(", {} ahead", spec_.horizon) : "");
  TextTable table(summary_header(scores_[0].windows.width()));
  for (const Score& s : scores_) {
    std::vector<std::string> cells = summary_cells(s, spread_->r2(s.squared_error), V_);
    if (&s == &scores_.back()) cells[0] = "naive (last value)";
    table.row(std::move(cells));
  }
  text += table.text() + "\n";
  for (const Score& s : scores_)
    if (!s.ran.empty() && s.ran != s.name) text += fmt::format("{} ran {}\n", s.name, s.ran);
  if (!intervals_.empty()) {
    TextTable coverage(interval_header());
    for (auto& row : interval_rows()) coverage.row(std::move(row));
    text += fmt::format("\nPrediction intervals of level {}; coverage and width of the finite ones:\n\n{}",
                        *options_.interval, coverage.text());
    if (V_ > most_values_listed) text += fmt::format("\n--json lists each of the {} values.\n", V_);
  }
  if (skipped_ > 0)
    text += fmt::format("\nLeft out {}. The first: {}.\n", counted(skipped_, "bad row"), first_bad_.message);
  return text;
}

Json Stream::json() const {
  Json out = Json::object();
  out.set("rows", good_rows_).set("skipped", skipped_).set("predictions", asked_).set("scored", scores_[0].rows);
  out.set("keys", pairs_->key_dim()).set("values", V_).set("loss", "mean squared error");
  out.set("window_rows", scores_[0].windows.width()).set("interrupted", interrupted() != 0);
  if (options_.interval) out.set("interval", *options_.interval);
  Json list = Json::array(), baseline = Json::object();
  for (std::size_t l = 0; l < scores_.size(); ++l) {
    const Score& s = scores_[l];
    Json windows = Json::array(), layer = Json::object();
    for (std::size_t i = 0; i < s.windows.size(); ++i) windows.push(s.windows.mean(i));
    const double scored = static_cast<double>(s.rows) * static_cast<double>(V_);
    layer.set("name", s.name).set("recipe", s.recipe).set("mse", s.rows > 0 ? s.squared_error / scored : nan);
    layer.set("r2", spread_->r2(s.squared_error)).set("windows", windows).set("us_per_row", s.us_per_row);
    layer.set("state_bytes", s.state_bytes).set("kernel", s.kernel);
    if (l + 1 < scores_.size()) {
      Json inputs = Json::object(), changes = Json::array();
      for (const StreamInput& input : s.stream.inputs) inputs.set(input.name, input.words);
      for (const std::string& change : s.stream.changes) changes.push(change);
      layer.set("plan", s.stream.text).set("inputs", inputs).set("changes", changes);
    }
    layer.set("diverged_at", s.diverged_at > 0 ? Json(s.diverged_at) : Json());
    if (l < intervals_.size()) layer.set("interval", interval_json(l));
    if (l + 1 < scores_.size()) list.push(layer);
    else baseline = layer;
  }
  return out.set("layers", list).set("baseline", baseline);
}

Report Stream::make_report() const {
  Report report;
  report.title = "Online regression: " + (options_.file == "-" ? std::string("standard input") : options_.file);
  report.subtitle = fmt::format("{}, {}, {}. Each row is predicted from the memory built on the rows before it{}.",
                                counted(good_rows_, "row"), counted(pairs_->key_dim(), "key"),
                                counted(static_cast<std::int64_t>(V_), "value"),
                                spec_.horizon > 0 ? ", " + counted(spec_.horizon, "row") + " ahead" : "");
  Report::Table table;
  table.header = summary_header(scores_[0].windows.width());
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t l = 0; l < scores_.size(); ++l) {
    table.rows.push_back(summary_cells(scores_[l], spread_->r2(scores_[l].squared_error), V_));
    if (scores_[l].squared_error < best) best = scores_[l].squared_error, table.emphasised = static_cast<int>(l);
  }
  table.rows.back()[0] = "naive (last value)";
  table.caption =
      "MSE: mean squared error over all rows and values, the first rows included. R2: share of the variance of the "
      "values that is explained. us/row: time of the layer alone.";
  report.tables.push_back(std::move(table));
  if (!intervals_.empty())
    report.tables.push_back(
        {fmt::format("Prediction intervals of level {}: the share of values inside, with the standard error it would "
                     "have at that level over as many independent rows. Rows without: the interval is infinite, "
                     "because the keys have a part that was never seen or the noise is not known yet.",
                     *options_.interval),
         interval_header(), interval_rows()});
  report.figures.push_back(
      {loss_plot(), fmt::format("Squared error, averaged over {} at a time, on a log scale; lower is better.",
                                counted(scores_[0].curve.width(), "row"))});
  for (std::size_t v = 0; v < std::min<std::size_t>(V_, 3); ++v) {
    report.figures.push_back(
        {prediction_plot(v),
         fmt::format("The last {} with both a prediction and a value.{}",
                     counted(static_cast<std::int64_t>(shown_.size()), "row"),
                     intervals_.empty() ? ""
                                        : fmt::format(" Band: intervals of level {} of {}, the layer of least error.",
                                                      *options_.interval, scores_[best_layer()].name))});
  }
  if (V_ > 3) report.notes.push_back(fmt::format("The first 3 of {} values are drawn.", V_));
  if (skipped_ > 0)
    report.notes.push_back(
        fmt::format("Left out {}. The first: {}.", counted(skipped_, "bad row"), first_bad_.message));
  if (interrupted() != 0)
    report.notes.push_back(fmt::format("The run was interrupted after {}.", counted(good_rows_, "row")));
  if (!options_.command.empty()) report.facts.emplace_back("command", options_.command);
  for (const Score& s : scores_)
    report.facts.emplace_back(s.name == s.recipe ? "recipe" : s.name, s.ran.empty() ? s.recipe : s.ran);
  return report;
}

}  // namespace ttr::cli
