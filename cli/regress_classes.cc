// `ttr regress --classify` (classify.h): the column of classes, and what a run says of its probabilities.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include <fmt/format.h>

#include "regress_stream.h"
#include "text_table.h"
#include "ttr/status.h"

namespace ttr::cli {

// A column of words that was named as the value is one of classes, whether --classify says so or not.
void Stream::choose_classes(std::vector<int> named) {
  if (options_.load.empty() && !options_.classify && value_columns_.size() == 1 && options_.lags == 0 &&
      source_->kind(value_columns_[0]) == RowSource::ColumnKind::text && !options_.interval && options_.season == 0 &&
      !options_.differences && options_.file != "-")
    options_.classify = true;
  if (!options_.classify) return;
  if (options_.values.empty()) {
    named.insert(named.end(), key_columns_.begin(), key_columns_.end());
    int last = static_cast<int>(source_->names().size()) - 1;
    while (last > 0 && std::find(named.begin(), named.end(), last) != named.end()) --last;
    value_columns_ = {last};
    options_.values = {source_->has_header() ? source_->names()[last] : std::to_string(last + 1)};
  }
  if (value_columns_.size() > 1)
    throw Error(fmt::format("--classify predicts one column, and --values names {}", value_columns_.size()),
                "--classify");
  std::error_code ignored;
  if (options_.classes.empty() && !std::filesystem::is_regular_file(options_.file, ignored))
    throw Error(
        fmt::format("{} can be read once only; list its classes, such as --classes yes,no", source_->input_name()),
        "--classes");
  if (options_.classes.empty()) options_.classes = find_classes(options_.file, options_.header, options_.values[0]);
  class_encoder_.emplace(options_.classes);
}

std::vector<std::string> Stream::class_header() const {
  const std::int64_t window = scores_[0].windows.rows_of_one();
  return {"layer",
          "log loss",
          "accuracy",
          "AUC",
          "skill",
          "p",
          "first " + counted(window, "row"),
          "last " + counted(window, "row"),
          "us/row",
          "state"};
}

std::vector<std::string> Stream::class_cells(std::size_t f) const {
  const Score& s = scores_[f];
  const auto share = [](double number) { return std::isfinite(number) ? fmt::format("{:.4f}", number) : "-"; };
  const double naive = scores_[forecasters_->naive_index()].classes->log_loss();
  return {shown_name(f),
          s.diverged_at > 0 ? fmt::format("diverged at row {}", s.diverged_at) : share(s.classes->log_loss()),
          share(s.classes->accuracy()),
          share(s.classes->auc()),
          share(naive > 0 ? 1 - s.classes->log_loss() / naive : std::numeric_limits<double>::quiet_NaN()),
          p_cell(f),
          s.windows.size() > 0 ? short_number(s.windows.mean(0)) : "-",
          short_number(s.windows.last_full()),
          s.us_per_row > 0 ? short_number(s.us_per_row) : "-",
          short_bytes(static_cast<double>(s.state_bytes))};
}

Json Stream::class_json(std::size_t f) const {
  const ClassMeasures& m = *scores_[f].classes;
  const double naive = scores_[forecasters_->naive_index()].classes->log_loss();
  Json bins = Json::array();
  for (const ClassMeasures::Bin& bin : m.reliability())
    bins.push(Json::object()
                  .set("from", bin.low)
                  .set("to", bin.high)
                  .set("count", bin.count)
                  .set("mean_probability", bin.mean)
                  .set("share", bin.share));
  return Json::object()
      .set("log_loss", m.log_loss())
      .set("accuracy", m.accuracy())
      .set("auc", m.auc())
      .set("brier", scores_[f].squared_error / scores_[f].weight)
      .set("skill", naive > 0 ? 1 - m.log_loss() / naive : std::numeric_limits<double>::quiet_NaN())
      .set("calibration_error", m.calibration_error())
      .set("reliability", bins);
}

std::vector<std::string> Stream::reliability_header() const {
  return {"probability", "answers", "mean probability", "share that came true", "+-"};
}

std::vector<std::vector<std::string>> Stream::reliability_rows(std::size_t f) const {
  std::vector<std::vector<std::string>> rows;
  for (const ClassMeasures::Bin& bin : scores_[f].classes->reliability())
    rows.push_back({fmt::format("{:.1f} to {:.1f}", bin.low, bin.high), fmt::format("{}", bin.count),
                    fmt::format("{:.3f}", bin.mean), fmt::format("{:.3f}", bin.share),
                    fmt::format("{:.3f}", bin.standard_error)});
  return rows;
}

}  // namespace ttr::cli
