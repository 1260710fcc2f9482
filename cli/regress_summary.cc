// What a run on a file leaves behind: the table, the JSON, the plots and the report.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "progress.h"
#include "regress_needs.h"
#include "regress_stream.h"
#include "text_table.h"
#include "ttr/layer.h"

namespace ttr::cli {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t most_values_listed = 8, most_drifts_listed = 8;

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
  plot.title = options_.classify ? "Log loss over time" : "Squared error over time";
  plot.x_label = "row", plot.y_label = options_.classify ? "mean log loss" : "mean squared error",
  plot.log_y = plot.legend_by_end = true;
  const double first = static_cast<double>(options_.lags > 0 ? options_.lags - 1 : 0) +
                       static_cast<double>(memory_.ahead + (short_stream_ ? 0 : warmup()));
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
  for (const Change& change : changes())
    if (change.worse() && plot.marks.size() < 20) plot.marks.push_back({static_cast<double>(change.row), "drift"});
  return plot;
}

std::size_t Stream::best_with_memory() const {
  std::size_t best = 0;
  for (std::size_t l = 1; l < forecasters_->naive_index(); ++l)
    if (scores_[l].total_loss() < scores_[best].total_loss()) best = l;
  return best;
}

std::size_t Stream::best_linear() const {
  std::size_t best = coefficients_.size();
  for (std::size_t l = 0; l < coefficients_.size(); ++l)
    if (!coefficients_[l].empty() &&
        (best == coefficients_.size() || scores_[l].total_loss() < scores_[best].total_loss()))
      best = l;
  return best;
}

std::optional<std::size_t> Stream::best_forecaster() const {
  std::optional<std::size_t> best;
  for (std::size_t f = 0; scores_[0].weight > 0 && f < scores_.size(); ++f)
    if (std::isfinite(scores_[f].total_loss()) && !(best && scores_[*best].total_loss() <= scores_[f].total_loss()))
      best = f;
  return best;
}

double Stream::p_versus_best(std::size_t f) const {
  const std::optional<std::size_t> best = best_forecaster();
  return best ? comparisons_->p(f, *best) : nan;
}

std::string Stream::p_cell(std::size_t f) const {
  if (f == best_forecaster()) return "best";
  const double p = p_versus_best(f);
  return std::isfinite(p) ? fmt::format("{:.3f}", p) : "-";
}

Plot Stream::prediction_plot(std::size_t v) const {
  Plot plot;
  const std::string name = options_.classify       ? "probability of " + value_names_[v]
                           : source_->has_header() ? value_names_[v]
                                                   : "column " + value_names_[v];
  plot.title = "Predictions: " + name;
  plot.x_label = "row", plot.y_label = name;
  plot.height = 360;
  // The three of least error: more lines over one another cannot be told apart.
  std::vector<std::size_t> order(forecasters_->naive_index());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores_[a].total_loss() < scores_[b].total_loss(); });
  order.resize(std::min<std::size_t>(order.size(), 3));
  for (const std::size_t f : order) {
    Line line = line_of(f);
    line.width = 1.4;
    for (const Answered& s : shown_)
      line.x.push_back(static_cast<double>(s.row)), line.y.push_back(s.answer[forecasters_->prediction_at(f) + v]);
    plot.lines.push_back(std::move(line));
  }
  // Last, so that nothing hides it.
  Line actual;
  actual.label = "actual", actual.hue = -1, actual.width = 1.6, actual.points = true;
  for (const Answered& s : shown_) actual.x.push_back(static_cast<double>(s.row)), actual.y.push_back(s.actual[v]);
  plot.lines.push_back(std::move(actual));
  if (!forecasters_->has_intervals()) return plot;
  // Of one layer alone: several bands over one another cannot be told apart.
  const std::size_t best = best_with_memory();
  Band band;
  band.hue = line_of(best).hue;
  for (const Answered& s : shown_) {
    const double prediction = s.answer[forecasters_->prediction_at(best) + v],
                 half = s.answer[forecasters_->half_at(best) + v];
    band.x.push_back(static_cast<double>(s.row));
    band.low.push_back(prediction - half), band.high.push_back(prediction + half);
  }
  plot.bands.push_back(std::move(band));
  return plot;
}

std::string Stream::shown_name(std::size_t f) const {
  if (f == forecasters_->naive_index()) return options_.classify ? "class frequencies" : "naive (last value)";
  if (f > forecasters_->naive_index()) return fmt::format("naive ({} rows ago)", memory_.season_lag());
  if (f < forecasters_->layer_count() && forecasters_->settings_tried(f) > 1) return scores_[f].name + ", tuned";
  return scores_[f].name;
}

std::vector<std::string> Stream::summary_header() const {
  if (options_.classify) return class_header();
  const std::int64_t window = scores_[0].windows.rows_of_one();
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
  if (options_.classify) return class_cells(f);
  const Score& s = scores_[f];
  const int V = static_cast<int>(V_);
  const auto share = [](double number) {
    return !std::isfinite(number) ? "-" : number < -999 ? "< -999" : fmt::format("{:.4f}", number);
  };
  const double naive = scores_[forecasters_->naive_index()].mse(V);
  return {shown_name(f),
          s.diverged_at > 0 ? fmt::format("diverged at row {}", s.diverged_at) : short_number(s.mse(V)),
          s.diverged_at > 0 ? "-" : short_number(s.mae(V)),
          share(s.diverged_at > 0 ? nan : spread_->r2(s.squared_error)),
          share(s.diverged_at > 0 || !(naive > 0) ? nan : 1 - s.mse(V) / naive),
          p_cell(f),
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
  if (!large_layers_.empty())
    list.push_back(
        fmt::format("Left out {}: their memory and time grow with the square of the keys, of which there are {}; the "
                    "default set has {} up to {}. --layer {} runs one of them.",
                    join(large_layers_), key_dim_, large_layers_.size() == 1 ? "it" : "them", most_keys_of_default,
                    large_layers_.front()));
  if (left_ && wants_coefficients()) list.emplace_back("The coefficients after the last row were not waited for.");
  if (questions_ > 0)
    list.push_back(
        fmt::format("{} had no value: predicted, not scored and not learned.", counted(questions_, "row")));
  if (!options_.weights.empty())
    for (std::size_t l = 0; l < forecasters_->layer_count(); ++l)
      if (!now().layer(l).takes_weights())
        list.push_back(fmt::format("{} learns every row alike: its step has no place for a weight; its score has.",
                                   scores_[l].name));
  std::size_t drifts = 0;
  for (const Change& change : changes())
    if (change.worse() && ++drifts <= most_drifts_listed)
      list.push_back(fmt::format("Drift at row {}: the mean error of {} rose from {} to {}.", change.row,
                                 scores_[judged()].name, short_number(change.before), short_number(change.after)));
  if (drifts > most_drifts_listed)
    list.push_back(fmt::format("Further drifts: {}; --json lists them.", drifts - most_drifts_listed));
  if (options_.detect && drifts == 0) list.emplace_back("No drift: errors did not grow for good.");
  if (short_stream_) list.emplace_back("The stream ended within the warm-up, so all of its rows are scored.");
  else if (scores_[0].rows == 0 && !options_.predict)
    list.push_back(most_arrived() > 0 ? fmt::format("No row was scored: the warm-up (--warmup) is {} long.",
                                                    counted(warmup(), "row"))
                                      : "No row was scored: none has both a prediction and a value.");
  else if (scores_[0].weight > 0 && !best_forecaster())
    list.emplace_back(
        "No error is finite, so no line is the best: squares of these values are beyond a double; give them in "
        "larger "
        "units.");
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
    const Coverage coverage = this->coverage(l);
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
  const Coverage coverage = this->coverage(layer);
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

std::string Stream::summary() const {
  std::string text = fmt::format(
      "{} of {}: {}, {}{}. Each row is predicted from the rows before it{}.\n\n", counted(good_rows_, "row"),
      source_->input_name(), counted(key_dim_, "key"), counted(static_cast<std::int64_t>(V_), answer_word()),
      time_text(), warmup() > 0 && !short_stream_ ? fmt::format("; the first {} are not scored", warmup()) : "");
  TextTable table(summary_header());
  for (std::size_t f = 0; f < scores_.size(); ++f) table.row(summary_cells(f));
  text += table.text() + "\n";
  for (std::size_t f = 0; f < forecasters_->layer_count(); ++f) {
    const Score& s = scores_[f];
    if (forecasters_->settings_tried(f) > 1)
      text += fmt::format("{} is a mixture of {} settings; in the end {} had {:.0f} % of the weight\n", s.name,
                          forecasters_->settings_tried(f), now().layer(f).name(), 100 * now().largest_weight(f));
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
  const auto add_table = [&](const std::string& title, std::vector<std::string> header,
                             std::vector<std::vector<std::string>> rows) {
    if (rows.empty()) return;
    TextTable part(std::move(header));
    for (auto& row : rows) part.row(std::move(row));
    text += "\n" + title + "\n\n" + part.text();
  };
  if (options_.window)
    add_table("MSE in windows, and skill against the naive forecast:", window_header(), window_rows());
  if (!options_.group.empty()) add_table("Groups of largest error:", group_header(), group_rows());
  if (options_.detect)
    add_table(
        fmt::format("Rows that {} missed most, in deviations of its errors (--out has all):", scores_[judged()].name),
        odd_header(), odd_rows());
  if (options_.classify && scores_[0].rows > 0)
    add_table(fmt::format("Probabilities of {} against what came true{}:", scores_[best_with_memory()].name,
                          V_ == 2 ? fmt::format(" ({})", value_names_[1]) : " (all classes)"),
              reliability_header(), reliability_rows(best_with_memory()));
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
  std::vector<double> weights(now().mix_weights().size());
  for (const auto& memory : memories_) {
    const std::vector<double> one = memory->forecasters().mix_weights();
    for (std::size_t j = 0; j < one.size(); ++j) weights[j] += one[j] / static_cast<double>(memories_.size());
  }
  std::vector<std::pair<std::string, double>> parts;
  for (std::size_t f = 0; f < scores_.size(); ++f)
    if (f != forecasters_->mix_index()) parts.emplace_back(scores_[f].name, weights[parts.size()]);
  if (!options_.classify) parts.emplace_back("their least-squares stack", weights.back());
  return parts;
}

Json Stream::forecaster_json(std::size_t f) const {
  const Score& s = scores_[f];
  const int V = static_cast<int>(V_);
  Json windows = Json::array(), out = Json::object();
  Json window_skills = Json::array();
  const Windows& naive_windows = scores_[forecasters_->naive_index()].windows;
  for (std::size_t i = 0; i < s.windows.size(); ++i) {
    windows.push(s.windows.mean(i));
    window_skills.push(naive_windows.mean(i) > 0 ? 1 - s.windows.mean(i) / naive_windows.mean(i) : nan);
  }
  const double mse = s.rows > 0 ? s.mse(V) : nan, naive = scores_[forecasters_->naive_index()].mse(V);
  const bool layer = f < forecasters_->layer_count();
  out.set("name", s.name)
      .set("recipe", layer                                                   ? s.recipe
                     : options_.classify && f == forecasters_->naive_index() ? "how often each class came so far"
                     : f == forecasters_->naive_index()                      ? "the last value seen"
                     : f > forecasters_->naive_index()                       ? "the value a season ago"
                                                                             : "an online aggregation of the others");
  if (options_.classify) {
    out.set("classification", class_json(f));
  } else {
    out.set("mse", mse).set("rmse", std::sqrt(mse)).set("mae", s.rows > 0 ? s.mae(V) : nan);
    out.set("r2", spread_->r2(s.squared_error)).set("skill", naive > 0 ? 1 - mse / naive : nan);
  }
  if (options_.season > 0) {
    const double seasonal = scores_.back().mse(V);
    out.set("seasonal_skill", seasonal > 0 ? 1 - mse / seasonal : nan);
  }
  out.set("p_versus_best", p_versus_best(f)).set("windows", windows);
  out.set("window_skills", window_skills);
  out.set("us_per_row", s.us_per_row).set("state_bytes", s.state_bytes).set("kernel", layer ? s.kernel : "none");
  if (layer) {
    Json inputs = Json::object(), changes = Json::array();
    for (const StreamInput& input : s.stream.inputs) inputs.set(input.name, input.words);
    for (const std::string& change : s.stream.changes) changes.push(change);
    out.set("plan", s.stream.text).set("inputs", inputs).set("changes", changes);
    if (options_.tune)
      out.set("settings_tried", forecasters_->settings_tried(f))
          .set("settings_best", now().layer(f).name())
          .set("settings_best_weight", now().largest_weight(f));
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
    Json over_time = Json::array();
    for (const Sample& sample : samples_) {
      Json numbers = Json::array();
      for (const double number : sample.of[f]) numbers.push(number);
      if (!sample.of[f].empty()) over_time.push(Json::object().set("row", sample.row).set("numbers", numbers));
    }
    out.set("coefficients_over_time", over_time);
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
  out.set("keys", key_dim_).set("values", V_);
  out.set("loss", options_.classify ? "log loss" : "mean squared error");
  if (options_.classify) {
    Json classes = Json::array();
    for (const std::string& name : options_.classes) classes.push(name);
    out.set("classes", classes);
  }
  out.set("window_rows", scores_[0].windows.width()).set("interrupted", interrupted() != 0);
  const std::optional<std::size_t> best = best_forecaster();
  out.set("best", best ? Json(scores_[*best].name) : Json());
  if (options_.interval) out.set("interval", *options_.interval);
  Json list = Json::array(), left_out = Json::array();
  for (const std::string& name : left_out_) left_out.push(name);
  out.set("columns_left_out", left_out);
  Json large = Json::array();
  for (const std::string& name : large_layers_) large.push(name);
  out.set("layers_left_out", large);
  for (std::size_t f = 0; f < forecasters_->naive_index(); ++f) list.push(forecaster_json(f));
  out.set("layers", list).set("baseline", forecaster_json(forecasters_->naive_index()));
  if (options_.season > 0) out.set("seasonal_baseline", forecaster_json(scores_.size() - 1));
  detect_json(out), group_json(out);
  return out;
}

Report Stream::make_report() const {
  Report report;
  report.title = "Online regression: " + (options_.file == "-" ? std::string("standard input") : options_.file);
  report.subtitle = fmt::format("{}, {}, {}. Each row is predicted from the memory built on the rows before it{}.",
                                counted(good_rows_, "row"), counted(key_dim_, "key"),
                                counted(static_cast<std::int64_t>(V_), answer_word()), time_text());
  if (const std::optional<std::size_t> line = best_forecaster()) {
    const Score& best = scores_[*line];
    const int V = static_cast<int>(V_);
    const double naive = scores_[forecasters_->naive_index()].mse(V), r2 = spread_->r2(best.squared_error);
    report.figures_of_merit = {{"best", shown_name(*line)}};
    if (best.classes)
      report.figures_of_merit.insert(report.figures_of_merit.end(),
                                     {{"its log loss", fmt::format("{:.4f}", best.classes->log_loss())},
                                      {"accuracy", fmt::format("{:.4f}", best.classes->accuracy())}});
    else report.figures_of_merit.emplace_back("its MSE", short_number(best.mse(V)));
    if (naive > 0 && !best.classes)
      report.figures_of_merit.emplace_back("skill", fmt::format("{:.3f}", 1 - best.mse(V) / naive));
    if (std::isfinite(r2) && !best.classes) report.figures_of_merit.emplace_back("R2", fmt::format("{:.4f}", r2));
    report.figures_of_merit.emplace_back("rows", fmt::format("{}", good_rows_));
    if (options_.detect) {
      const std::vector<Change> all = changes();
      report.figures_of_merit.emplace_back(
          "drifts",
          fmt::format("{}", std::count_if(all.begin(), all.end(), [](const Change& c) { return c.worse(); })));
    }
  }
  Report::Table table;
  table.header = summary_header();
  for (std::size_t f = 0; f < scores_.size(); ++f) table.rows.push_back(summary_cells(f));
  if (const std::optional<std::size_t> best = best_forecaster()) table.emphasised = static_cast<int>(*best);
  table.caption = fmt::format(
      "MSE, MAE: mean squared and absolute error over rows and values{}. R2: share of the variance of the values "
      "that is "
      "explained. skill: share of the naive forecast's squared error that is saved. p: how likely a difference to "
      "the best "
      "as large as this one would be between equals (Diebold-Mariano). us/row: median time of the layer alone.",
      warmup() > 0 && !short_stream_ ? fmt::format(", after the first {}", warmup()) : "");
  if (options_.classify)
    table.caption =
        "Log loss: mean of -log of the probability that the class had, in nats. AUC: chance that a row of a class is "
        "given a larger probability of it than another row. skill: share of the log loss of the class frequencies "
        "that is saved. p: Diebold-Mariano, against the best. us/row: median time of the layer alone.";
  report.tables.push_back(std::move(table));
  if (options_.classify && scores_[0].rows > 0)
    report.tables.push_back(
        {fmt::format("Probabilities of {} against what came true.", scores_[best_with_memory()].name),
         reliability_header(), reliability_rows(best_with_memory())});
  if (forecasters_->has_intervals())
    report.tables.push_back(
        {fmt::format("Prediction intervals of level {}: the share of values inside, with the standard error it would "
                     "have at that level over as many independent rows. Rows without: the interval is infinite, "
                     "because the keys have a part that was never seen or the noise is not known yet.",
                     *options_.interval),
         interval_header(), interval_rows()});
  if (options_.window)
    report.tables.push_back({fmt::format("Windows of {}: mean squared error, and skill against the naive forecast.",
                                         counted(scores_[0].windows.width(), "row")),
                             window_header(), window_rows()});
  if (!options_.group.empty())
    report.tables.push_back(
        {"Groups of largest error, each with a memory of its own.", group_header(), group_rows()});
  if (options_.detect && !odd_.empty())
    report.tables.push_back({fmt::format("Rows that {} missed most: |error| over the usual error of the rows before.",
                                         scores_[judged()].name),
                             odd_header(), odd_rows()});
  if (coefficient_header().size() > 1)
    report.tables.push_back(
        {"Coefficients after the last row, in the units of the file.", coefficient_header(), coefficient_rows()});
  report.figures.push_back(
      {loss_plot(),
       fmt::format("{}, averaged over {} at a time, on a log scale; lower is better.",
                   options_.classify ? "Log loss" : "Squared error", counted(scores_[0].curve.width(), "row"))});
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
  if (samples_.size() > 1)
    for (std::size_t l = 0; l < coefficients_.size(); ++l)
      if (!coefficients_[l].empty() && l == best_linear())
        report.figures.push_back({coefficient_plot(l, 0),
                                  "The coefficients with which rows were asked, in the units of the "
                                  "file; the largest ones."});
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
                              now().largest_weight(f), now().layer(f).name()));
    else report.facts.emplace_back(s.name == s.recipe ? "recipe" : s.name, s.ran.empty() ? s.recipe : s.ran);
  }
  if (forecasters_->has_mix()) report.facts.emplace_back("mix", mix_text());
  return report;
}

}  // namespace ttr::cli
