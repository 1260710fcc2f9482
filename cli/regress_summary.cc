// What a run on a file leaves behind: the table, the JSON, the plots and the report.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "progress.h"
#include "regress_stream.h"
#include "text_table.h"
#include "ttr/layer.h"

namespace ttr::cli {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t most_values_listed = 8;

}  // namespace

// The colour and dash of a forecaster are the same in every plot.
Line Stream::line_of(std::size_t f) const {
  Line line;
  line.label = shown_name(f);
  const bool memoryless = f >= forecasters_->naive_index();
  line.hue = memoryless ? -1 : static_cast<int>(f % 7), line.dash = memoryless ? 2 : static_cast<int>(f / 7 % 4);
  return line;
}

Plot Stream::loss_plot() const {
  Plot plot;
  plot.title = "Squared error over time";
  plot.x_label = "row", plot.y_label = "mean squared error", plot.log_y = plot.legend_by_end = true;
  const double first = static_cast<double>(options_.lags > 0 ? options_.lags - 1 : 0) +
                       static_cast<double>(spec_.horizon + (short_stream_ ? 0 : warmup()));
  for (std::size_t f = 0; f < scores_.size(); ++f) {
    const Windows& curve = scores_[f].curve;
    Line line = line_of(f);
    for (std::size_t i = 0; i < curve.size(); ++i) {
      line.x.push_back(first + static_cast<double>(curve.width()) * static_cast<double>(i) +
                       0.5 * static_cast<double>(curve.count(i) + 1));
      line.y.push_back(curve.mean(i));
    }
    plot.lines.push_back(std::move(line));
  }
  return plot;
}

std::size_t Stream::best_with_memory() const {
  std::size_t best = 0;
  for (std::size_t l = 1; l < forecasters_->naive_index(); ++l)
    if (!(scores_[best].squared_error <= scores_[l].squared_error)) best = l;
  return best;
}

std::size_t Stream::best_forecaster() const {
  std::size_t best = 0;
  for (std::size_t f = 1; f < scores_.size(); ++f)
    if (!(scores_[best].squared_error <= scores_[f].squared_error)) best = f;
  return best;
}

Plot Stream::prediction_plot(std::size_t v) const {
  Plot plot;
  const std::string name = source_->has_header() ? value_names_[v] : "column " + value_names_[v];
  plot.title = "Predictions: " + name;
  plot.x_label = "row", plot.y_label = name;
  plot.height = 360;
  // The three of least error: more lines over one another cannot be told apart.
  std::vector<std::size_t> order(forecasters_->naive_index());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores_[a].squared_error < scores_[b].squared_error; });
  order.resize(std::min<std::size_t>(order.size(), 3));
  for (const std::size_t f : order) {
    Line line = line_of(f);
    line.width = 1.4;
    for (const Shown& s : shown_)
      line.x.push_back(static_cast<double>(s.row)), line.y.push_back(s.answer[forecasters_->prediction_at(f) + v]);
    plot.lines.push_back(std::move(line));
  }
  // Last, so that nothing hides it.
  Line actual;
  actual.label = "actual", actual.hue = -1, actual.width = 1.6, actual.points = true;
  for (const Shown& s : shown_) actual.x.push_back(static_cast<double>(s.row)), actual.y.push_back(s.actual[v]);
  plot.lines.push_back(std::move(actual));
  if (!forecasters_->has_intervals()) return plot;
  // Of one layer alone: several bands over one another cannot be told apart.
  const std::size_t best = best_with_memory();
  Band band;
  band.hue = line_of(best).hue;
  for (const Shown& s : shown_) {
    const double prediction = s.answer[forecasters_->prediction_at(best) + v],
                 half = s.answer[forecasters_->half_at(best) + v];
    band.x.push_back(static_cast<double>(s.row));
    band.low.push_back(prediction - half), band.high.push_back(prediction + half);
  }
  plot.bands.push_back(std::move(band));
  return plot;
}

std::string Stream::shown_name(std::size_t f) const {
  if (f == forecasters_->naive_index()) return "naive (last value)";
  if (f > forecasters_->naive_index()) return fmt::format("naive ({} rows ago)", season_lag_);
  if (f < forecasters_->layer_count() && forecasters_->settings_tried(f) > 1) return scores_[f].name + ", tuned";
  return scores_[f].name;
}

std::vector<std::string> Stream::summary_header() const {
  const std::int64_t window = scores_[0].windows.width();
  return {"layer",
          "MSE",
          "MAE",
          "R2",
          "skill",
          "p",
          "first " + counted(window, "row"),
          "last " + counted(window, "row"),
          "us/row",
          "state"};
}

std::vector<std::string> Stream::summary_cells(std::size_t f) const {
  const Score& s = scores_[f];
  const int V = static_cast<int>(V_);
  const auto share = [](double number) {
    return !std::isfinite(number) ? "-" : number < -999 ? "< -999" : fmt::format("{:.4f}", number);
  };
  const double naive = scores_[forecasters_->naive_index()].mse(V), p = comparisons_->p(f, best_forecaster());
  return {shown_name(f),
          s.diverged_at > 0 ? fmt::format("diverged at row {}", s.diverged_at) : short_number(s.mse(V)),
          s.diverged_at > 0 ? "-" : short_number(s.mae(V)),
          share(s.diverged_at > 0 ? nan : spread_->r2(s.squared_error)),
          share(s.diverged_at > 0 || !(naive > 0) ? nan : 1 - s.mse(V) / naive),
          f == best_forecaster() ? "best"
          : std::isfinite(p)     ? fmt::format("{:.3f}", p)
                                 : "-",
          s.windows.size() > 0 ? short_number(s.windows.mean(0)) : "-",
          short_number(s.windows.last_full()),
          s.us_per_row > 0 ? short_number(s.us_per_row) : "-",
          short_bytes(static_cast<double>(s.state_bytes))};
}

// What to do about a layer that has diverged.
std::string Stream::remedy(std::size_t l) const {
  std::vector<std::string> ways;
  if (!scores_[l].failure.empty()) ways.push_back(scores_[l].failure);
  const std::string& name = scores_[l].name;
  if (name.find('/') == std::string::npos)
    for (const SettingInfo& setting : find_layer(name.substr(0, name.find(':'))).settings)
      for (const auto& [step, example] :
           {std::pair{"mu", "0.05"}, {"beta", "0.05"}, {"rate", "0.01"}, {"delta", "0.1"}})
        if (setting.name == step) ways.push_back(fmt::format("a smaller step helps, such as {}={}", step, example));
  if (options_.raw && !options_.standardize)
    ways.emplace_back("without --raw layers see every column in units of its own deviation");
  if (ways.empty()) ways.emplace_back("a smaller step or a larger ridge in the recipe helps, or --tune");
  std::string text;
  for (const std::string& way : ways) text += (text.empty() ? "" : "; ") + way;
  return fmt::format("{} diverged at row {}: {}.", name, scores_[l].diverged_at, text);
}

std::vector<std::string> Stream::notes() const {
  std::vector<std::string> list;
  if (skipped_ > 0)
    list.push_back(fmt::format("Left out {}. The first: {}.", counted(skipped_, "bad row"), first_bad_.message));
  if (!left_out_.empty())
    list.push_back(
        fmt::format("Left out {} {}, which {} text, not numbers; --dates and --categories make keys of {}.",
                    left_out_.size() == 1 ? "the column" : "the columns", join(left_out_),
                    left_out_.size() == 1 ? "holds" : "hold", left_out_.size() == 1 ? "it" : "them"));
  if (questions_ > 0)
    list.push_back(
        fmt::format("{} had no value: predicted, not scored and not learned.", counted(questions_, "row")));
  if (short_stream_) list.emplace_back("The stream ended within the warm-up, so all of its rows are scored.");
  else if (scores_[0].rows == 0 && !options_.predict)
    list.push_back(fmt::format("No row was scored: the warm-up (--warmup) is {} long.", counted(warmup(), "row")));
  for (std::size_t l = 0; l < forecasters_->layer_count(); ++l)
    if (scores_[l].diverged_at > 0) list.push_back(remedy(l));
  return list;
}

double Stream::last_width(std::size_t l) const {
  double sum = 0;
  for (const Windows& value : widths_[l]) sum += value.last_full();
  return sum / static_cast<double>(widths_[l].size());
}

std::vector<std::string> Stream::interval_header() const {
  std::int64_t rows = 1;
  for (const std::vector<Windows>& layer : widths_) rows = std::max(rows, layer[0].width());
  return {"layer", "intervals", "coverage", "width, last " + counted(rows, "row"), "rows", "rows without"};
}

// A line per layer, and one per value where there are a few.
std::vector<std::vector<std::string>> Stream::interval_rows() const {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t l = 0; l < widths_.size(); ++l) {
    const Coverage& coverage = forecasters_->coverage(l);
    const auto add = [&](const std::string& name, const Coverage::Tally& t, double width, std::size_t values) {
      const std::int64_t per_row = static_cast<std::int64_t>(values);  // values of a row are not independent
      rows.push_back({name, forecasters_->has_exact_intervals(l) ? "exact" : "conformal",
                      coverage_text(t.share(), *options_.interval, t.finite / per_row), short_number(width),
                      fmt::format("{}", t.finite / per_row), fmt::format("{}", t.none / per_row)});
    };
    add(scores_[l].name, coverage.all(), last_width(l), V_);
    for (std::size_t v = 0; V_ > 1 && V_ <= most_values_listed && v < V_; ++v)
      add(scores_[l].name + ": " + value_names_[v], coverage.values[v], widths_[l][v].last_full(), 1);
  }
  return rows;
}

Json Stream::interval_json(std::size_t layer) const {
  const Coverage& coverage = forecasters_->coverage(layer);
  Json out = Json::object(), list = Json::array();
  coverage_fields(out, coverage.all());
  for (std::size_t v = 0; v < V_; ++v) {
    Json one = Json::object().set("name", value_names_[v]);
    coverage_fields(one, coverage.values[v]);
    list.push(one.set("last_width", widths_[layer][v].last_full()));
  }
  out.set("kind", forecasters_->has_exact_intervals(layer) ? "exact" : "conformal");
  return out.set("last_width", last_width(layer)).set("values", list);
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

std::string Stream::summary() const {
  std::string text = fmt::format(
      "{} of {}: {}, {}{}. Each row is predicted from the rows before it{}.\n\n", counted(good_rows_, "row"),
      source_->input_name(), counted(pairs_->key_dim(), "key"), counted(static_cast<std::int64_t>(V_), "value"),
      spec_.horizon > 0 ? fmt::format(", {} ahead", spec_.horizon) : "",
      warmup() > 0 && !short_stream_ ? fmt::format("; the first {} are not scored", warmup()) : "");
  TextTable table(summary_header());
  for (std::size_t f = 0; f < scores_.size(); ++f) table.row(summary_cells(f));
  text += table.text() + "\n";
  for (std::size_t f = 0; f < forecasters_->layer_count(); ++f) {
    const Score& s = scores_[f];
    if (forecasters_->settings_tried(f) > 1)
      text += fmt::format("{} is a mixture of {} settings; in the end {} had {:.0f} % of the weight\n", s.name,
                          forecasters_->settings_tried(f), forecasters_->layer(f).name(),
                          100 * forecasters_->largest_weight(f));
    else if (!s.ran.empty() && s.ran != s.name) text += fmt::format("{} ran {}\n", s.name, s.ran);
  }
  if (forecasters_->has_mix()) text += mix_text() + "\n";
  if (forecasters_->has_intervals()) {
    TextTable coverage(interval_header());
    for (auto& row : interval_rows()) coverage.row(std::move(row));
    text += fmt::format("\nPrediction intervals of level {}; coverage and width of the finite ones:\n\n{}",
                        *options_.interval, coverage.text());
    if (V_ > most_values_listed) text += fmt::format("\n--json lists each of the {} values.\n", V_);
  }
  if (coefficient_header().size() > 1) {
    TextTable table_of_keys(coefficient_header());
    for (auto& row : coefficient_rows()) table_of_keys.row(std::move(row));
    text += "\nAfter the last row, in the units of the file:\n\n" + table_of_keys.text();
  }
  for (const std::string& note : notes()) text += "\n" + note + "\n";
  return text;
}

std::string Stream::mix_text() const {
  std::string list;
  for (const auto& [name, weight] : mix_parts())
    list += fmt::format("{}{} {:.2f}", list.empty() ? "" : ", ", name, weight);
  return "mix is a weighted mean, in the end of " + list;
}

std::vector<std::pair<std::string, double>> Stream::mix_parts() const {
  const std::vector<double> weights = forecasters_->mix_weights();
  std::vector<std::pair<std::string, double>> parts;
  for (std::size_t f = 0; f < scores_.size(); ++f)
    if (f != forecasters_->mix_index()) parts.emplace_back(scores_[f].name, weights[parts.size()]);
  parts.emplace_back("their least-squares stack", weights.back());
  return parts;
}

Json Stream::forecaster_json(std::size_t f) const {
  const Score& s = scores_[f];
  const int V = static_cast<int>(V_);
  Json windows = Json::array(), out = Json::object();
  for (std::size_t i = 0; i < s.windows.size(); ++i) windows.push(s.windows.mean(i));
  const double mse = s.rows > 0 ? s.mse(V) : nan, naive = scores_[forecasters_->naive_index()].mse(V);
  const bool layer = f < forecasters_->layer_count();
  out.set("name", s.name)
      .set("recipe", layer                              ? s.recipe
                     : f == forecasters_->naive_index() ? "the last value seen"
                     : f > forecasters_->naive_index()  ? "the value a season ago"
                                                        : "an online aggregation of the others");
  out.set("mse", mse).set("rmse", std::sqrt(mse)).set("mae", s.rows > 0 ? s.mae(V) : nan);
  out.set("r2", spread_->r2(s.squared_error)).set("skill", naive > 0 ? 1 - mse / naive : nan);
  if (options_.season > 0) {
    const double seasonal = scores_.back().mse(V);
    out.set("seasonal_skill", seasonal > 0 ? 1 - mse / seasonal : nan);
  }
  out.set("p_versus_best", comparisons_->p(f, best_forecaster())).set("windows", windows);
  out.set("us_per_row", s.us_per_row).set("state_bytes", s.state_bytes).set("kernel", layer ? s.kernel : "none");
  if (layer) {
    Json inputs = Json::object(), changes = Json::array();
    for (const StreamInput& input : s.stream.inputs) inputs.set(input.name, input.words);
    for (const std::string& change : s.stream.changes) changes.push(change);
    out.set("plan", s.stream.text).set("inputs", inputs).set("changes", changes);
    if (options_.tune)
      out.set("settings_tried", forecasters_->settings_tried(f))
          .set("settings_best", forecasters_->layer(f).name())
          .set("settings_best_weight", forecasters_->largest_weight(f));
  }
  if (forecasters_->has_mix() && f == forecasters_->mix_index()) {
    Json weights = Json::object();
    for (const auto& [name, weight] : mix_parts()) weights.set(name, weight);
    out.set("weights", weights);
  }
  if (f < coefficients_.size() && !coefficients_[f].empty()) {
    Json of = Json::array();
    const std::vector<std::string> names = key_number_names();
    for (std::size_t v = 0; v < V_; ++v)
      for (std::size_t k = 0; k < names.size(); ++k)
        of.push(Json::object()
                    .set("value", value_names_[v])
                    .set("key", names[k])
                    .set("coefficient", coefficients_[f][k * V_ + v]));
    out.set("coefficients", of);
  }
  out.set("diverged_at", s.diverged_at > 0 ? Json(s.diverged_at) : Json());
  if (s.diverged_at > 0 && layer) out.set("remedy", remedy(f));
  if (f < widths_.size()) out.set("interval", interval_json(f));
  return out;
}

Json Stream::json() const {
  Json out = Json::object();
  out.set("rows", good_rows_).set("skipped", skipped_).set("questions", questions_).set("predictions", asked_);
  out.set("warmup", short_stream_ ? 0 : warmup()).set("scored", scores_[0].rows);
  out.set("keys", pairs_->key_dim()).set("values", V_).set("loss", "mean squared error");
  out.set("window_rows", scores_[0].windows.width()).set("interrupted", interrupted() != 0);
  out.set("best", scores_[best_forecaster()].name);
  if (options_.interval) out.set("interval", *options_.interval);
  Json list = Json::array(), left_out = Json::array();
  for (const std::string& name : left_out_) left_out.push(name);
  out.set("columns_left_out", left_out);
  for (std::size_t f = 0; f < forecasters_->naive_index(); ++f) list.push(forecaster_json(f));
  out.set("layers", list).set("baseline", forecaster_json(forecasters_->naive_index()));
  if (options_.season > 0) out.set("seasonal_baseline", forecaster_json(scores_.size() - 1));
  return out;
}

Report Stream::make_report() const {
  Report report;
  report.title = "Online regression: " + (options_.file == "-" ? std::string("standard input") : options_.file);
  report.subtitle = fmt::format("{}, {}, {}. Each row is predicted from the memory built on the rows before it{}.",
                                counted(good_rows_, "row"), counted(pairs_->key_dim(), "key"),
                                counted(static_cast<std::int64_t>(V_), "value"),
                                spec_.horizon > 0 ? ", " + counted(spec_.horizon, "row") + " ahead" : "");
  Report::Table table;
  table.header = summary_header();
  for (std::size_t f = 0; f < scores_.size(); ++f) table.rows.push_back(summary_cells(f));
  table.emphasised = static_cast<int>(best_forecaster());
  table.caption = fmt::format(
      "MSE, MAE: mean squared and absolute error over rows and values{}. R2: share of the variance of the values "
      "that is "
      "explained. skill: share of the naive forecast's squared error that is saved. p: how likely a difference to "
      "the best "
      "as large as this one would be between equals (Diebold-Mariano). us/row: time of the layer alone.",
      warmup() > 0 && !short_stream_ ? fmt::format(", after the first {}", warmup()) : "");
  report.tables.push_back(std::move(table));
  if (forecasters_->has_intervals())
    report.tables.push_back(
        {fmt::format("Prediction intervals of level {}: the share of values inside, with the standard error it would "
                     "have at that level over as many independent rows. Rows without: the interval is infinite, "
                     "because the keys have a part that was never seen or the noise is not known yet.",
                     *options_.interval),
         interval_header(), interval_rows()});
  if (coefficient_header().size() > 1)
    report.tables.push_back(
        {"Coefficients after the last row, in the units of the file.", coefficient_header(), coefficient_rows()});
  report.figures.push_back(
      {loss_plot(), fmt::format("Squared error, averaged over {} at a time, on a log scale; lower is better.",
                                counted(scores_[0].curve.width(), "row"))});
  for (std::size_t v = 0; v < std::min<std::size_t>(V_, 3); ++v) {
    report.figures.push_back(
        {prediction_plot(v),
         fmt::format("The last {} with both a prediction and a value; the lines of least error.{}",
                     counted(static_cast<std::int64_t>(shown_.size()), "row"),
                     forecasters_->has_intervals()
                         ? fmt::format(" Band: intervals of level {} of {}, the line of least error.",
                                       *options_.interval, scores_[best_with_memory()].name)
                         : "")});
  }
  if (V_ > 3) report.notes.push_back(fmt::format("The first 3 of {} values are drawn.", V_));
  for (const std::string& note : notes()) report.notes.push_back(note);
  if (interrupted() != 0)
    report.notes.push_back(fmt::format("The run was interrupted after {}.", counted(good_rows_, "row")));
  if (!options_.command.empty()) report.facts.emplace_back("command", options_.command);
  for (std::size_t f = 0; f < forecasters_->layer_count(); ++f) {
    const Score& s = scores_[f];
    if (forecasters_->settings_tried(f) > 1)
      report.facts.emplace_back(
          s.name, fmt::format("{} settings; the largest weight, {:.2f}, has {}", forecasters_->settings_tried(f),
                              forecasters_->largest_weight(f), forecasters_->layer(f).name()));
    else report.facts.emplace_back(s.name == s.recipe ? "recipe" : s.name, s.ran.empty() ? s.recipe : s.ran);
  }
  if (forecasters_->has_mix()) report.facts.emplace_back("mix", mix_text());
  return report;
}

}  // namespace ttr::cli
