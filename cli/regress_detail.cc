// Parts of a summary that only some runs have: windows, odd rows, drifts and groups.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "regress_stream.h"
#include "text_table.h"

namespace ttr::cli {
namespace {

constexpr std::size_t most_windows_shown = 12, most_groups_shown = 10, most_groups_in_json = 1000;

double skill_of(double loss, double naive) { return naive > 0 ? 1 - loss / naive : std::nan(""); }

}  // namespace

std::string Stream::time_text() const {
  std::string text;
  if (memory_.ahead > 0) text += fmt::format(", {} ahead", memory_.ahead);
  if (options_.iterate) text += " in steps of one";
  if (options_.delay > 0) text += fmt::format(", values {} late", counted(options_.delay, "row"));
  if (!options_.group.empty()) text += ", " + counted(static_cast<std::int64_t>(memories_.size()), "group");
  return text;
}

Coverage Stream::coverage(std::size_t l) const {
  Coverage sum = now().coverage(l);
  for (std::size_t g = 1; g < memories_.size(); ++g) {
    const Coverage& one = memories_[g]->forecasters().coverage(l);
    for (std::size_t v = 0; v < sum.values.size(); ++v) sum.values[v] += one.values[v];
  }
  return sum;
}

// The windowed loss and skill, where --window asks for them: the first and the last ones if there are many.
std::vector<std::string> Stream::window_header() const {
  std::vector<std::string> header = {"scored rows"};
  for (std::size_t f = 0; f < scores_.size(); ++f) {
    header.push_back(shown_name(f));
    if (f < forecasters_->naive_index()) header.emplace_back("skill");
  }
  return header;
}

std::vector<std::vector<std::string>> Stream::window_rows() const {
  std::vector<std::vector<std::string>> rows;
  const Windows& naive = scores_[forecasters_->naive_index()].windows;
  for (std::size_t w = 0; w < naive.size(); ++w) {
    const bool left_out =
        naive.size() > most_windows_shown && w >= most_windows_shown / 2 && w + most_windows_shown / 2 < naive.size();
    if (left_out) {
      if (rows.back()[0] != "...") rows.push_back({"..."}), rows.back().resize(window_header().size());
      continue;
    }
    const std::int64_t first = static_cast<std::int64_t>(w) * naive.width();
    rows.push_back({fmt::format("{} to {}", first + 1, first + naive.count(w))});
    for (std::size_t f = 0; f < scores_.size(); ++f) {
      const double loss = scores_[f].windows.mean(w), skill = skill_of(loss, naive.mean(w));
      rows.back().push_back(short_number(loss));
      if (f < forecasters_->naive_index())
        rows.back().push_back(std::isfinite(skill) ? fmt::format("{:.3f}", skill) : "-");
    }
  }
  return rows;
}

std::vector<std::string> Stream::odd_header() const {
  std::vector<std::string> header = {"row"};
  if (!options_.group.empty()) header.push_back(options_.group);
  header.emplace_back("anomaly");
  for (const std::string& value : value_names_)
    header.push_back(value), header.push_back(V_ > 1 ? value + " predicted" : "predicted");
  return header;
}

std::vector<std::vector<std::string>> Stream::odd_rows() const {
  std::vector<std::vector<std::string>> rows;
  for (const Odd& odd : odd_) {
    rows.push_back({fmt::format("{}", odd.row)});
    if (!options_.group.empty()) rows.back().push_back(groups_.names()[odd.group]);
    rows.back().push_back(std::isfinite(odd.score) ? fmt::format("{:.1f}", odd.score) : "infinite");
    for (std::size_t v = 0; v < V_; ++v) {
      rows.back().push_back(fmt::format("{:.6g}", odd.actual[v]));
      rows.back().push_back(fmt::format("{:.6g}", odd.answer[forecasters_->prediction_at(judged()) + v]));
    }
  }
  return rows;
}

std::vector<Change> Stream::changes() const {
  std::vector<Change> all;
  for (const auto& memory : memories_)
    if (memory->detector)
      all.insert(all.end(), memory->detector->changes().begin(), memory->detector->changes().end());
  std::stable_sort(all.begin(), all.end(), [](const Change& a, const Change& b) { return a.row < b.row; });
  return all;
}

void Stream::detect_json(Json& out) const {
  if (!options_.detect) return;
  Json odd = Json::array(), drifts = Json::array(), improvements = Json::array();
  for (const Odd& one : odd_) {
    Json entry = Json::object().set("row", one.row).set("score", one.score);
    if (!options_.group.empty()) entry.set("group", groups_.names()[one.group]);
    Json actual = Json::array(), predicted = Json::array();
    for (std::size_t v = 0; v < V_; ++v)
      actual.push(one.actual[v]), predicted.push(one.answer[forecasters_->prediction_at(judged()) + v]);
    odd.push(entry.set("actual", actual).set("predicted", predicted));
  }
  for (const auto& memory : memories_)
    for (const Change& change : memory->detector->changes()) {
      Json entry = Json::object()
                       .set("row", change.row)
                       .set("mean_absolute_error_before", change.before)
                       .set("mean_absolute_error_after", change.after);
      if (!options_.group.empty()) entry.set("group", groups_.names()[memory->group]);
      (change.worse() ? drifts : improvements).push(entry);
    }
  out.set("judged", scores_[judged()].name).set("anomalies", odd);
  out.set("drifts", drifts).set("improvements", improvements);
}

std::vector<std::size_t> Stream::groups_by_error() const {
  const std::size_t f = judged();
  std::vector<std::size_t> order;
  for (std::size_t g = 0; g < memories_.size(); ++g)
    if (memories_[g]->scored > 0) order.push_back(g);
  const auto mse = [&](std::size_t g) { return memories_[g]->losses[f] / memories_[g]->scored; };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return mse(a) > mse(b); });
  return order;
}

std::vector<std::string> Stream::group_header() const {
  return {options_.group, "rows", "MSE of " + shown_name(judged()), "skill", "best"};
}

// Those of largest error.
std::vector<std::vector<std::string>> Stream::group_rows() const {
  std::vector<std::vector<std::string>> rows;
  for (const std::size_t g : groups_by_error()) {
    if (rows.size() == most_groups_shown) break;
    const Memory& memory = *memories_[g];
    const std::vector<double>& losses = memory.losses;
    // Least, and one that is a number before one that is not.
    const auto best = std::min_element(losses.begin(), losses.end(),
                                       [](double a, double b) { return a < b || (std::isnan(b) && !std::isnan(a)); });
    const double skill = skill_of(losses[judged()], losses[forecasters_->naive_index()]);
    rows.push_back({groups_.names()[g], fmt::format("{}", memory.scored_rows),
                    short_number(losses[judged()] / memory.scored),
                    std::isfinite(skill) ? fmt::format("{:.4f}", skill) : "-",
                    std::isfinite(*best) ? shown_name(static_cast<std::size_t>(best - losses.begin())) : "-"});
  }
  return rows;
}

void Stream::group_json(Json& out) const {
  if (options_.group.empty()) return;
  Json list = Json::array();
  const std::vector<std::size_t> order = groups_by_error();
  for (std::size_t i = 0; i < std::min(order.size(), most_groups_in_json); ++i) {
    const Memory& memory = *memories_[order[i]];
    Json mse = Json::object();
    for (std::size_t f = 0; f < scores_.size(); ++f) mse.set(scores_[f].name, memory.losses[f] / memory.scored);
    list.push(Json::object()
                  .set("name", groups_.names()[order[i]])
                  .set("rows", memory.rows())
                  .set("scored", memory.scored_rows)
                  .set("mse", mse));
  }
  out.set("group", options_.group).set("group_count", memories_.size()).set("groups", list);
}

}  // namespace ttr::cli
