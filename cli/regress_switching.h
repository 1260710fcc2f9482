// What the two files of `ttr regress` without a file share: the runs (regress_switching.cc) and what is said about them
// (regress_switching_output.cc).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "interval.h"
#include "plot.h"
#include "regress_parts.h"
#include "report.h"
#include "switching_process.h"
#include "whole_runs.h"

namespace ttr::cli::switching {

struct Entry {
  std::string label, recipe;  // no recipe: the naive forecast
  int hue, dash;
  std::string layer = {};  // what the user asked for; empty: the recipe
  const std::string& text() const { return layer.empty() ? recipe : layer; }
};

/// The intervals of one layer and seed.
struct SeedIntervals {
  std::vector<double> inside, width;     // [T]: share of the values inside, mean width; NaN: infinite
  std::vector<double> prediction, half;  // [T], of the first value
  Coverage coverage{0};
};

struct Result {
  Entry entry;
  std::optional<Plan> plan;
  StreamText stream;
  std::string ran;
  std::vector<std::vector<double>> losses;  // [seeds][T]; empty: not run
  std::vector<SeedIntervals> intervals;     // [seeds], if they are wanted
  std::vector<double> seconds;
  std::size_t state_bytes = 0;
};

class Switching {
 public:
  explicit Switching(const RegressOptions& options) : options_(options) {
    spec_.time = options.time;
    spec_.covariance = parse_covariance(options.covariance);
    spec_.order = parse_rule_order(options.order);
  }
  int run();

 private:
  void make_plans();
  void run_tasks();
  void run_task(Result& result, int seed);
  Block block_of(const SwitchingSequence& data) const;
  void run_plan(const Result& result, const SwitchingSequence& data, double* predictions) const;
  double run_with_intervals(const Result& result, const SwitchingSequence& data, double* predictions,
                            SeedIntervals& intervals) const;
  Statistic window(const Result& result, int from, int to) const;
  using PerStep = std::vector<double> SeedIntervals::*;
  Statistic window(const Result& result, PerStep numbers, int from, int to) const;  // rows with an interval only
  double rows_without(const Result& result) const;                                  // per run
  std::vector<double> smoothed(const std::vector<double>& means) const;
  double overall(const Result& result) const { return window(result, 0, spec_.time).mean; }
  double us_per_row(const Result& result) const;
  Plot plot() const;
  Plot coverage_plot() const;
  Plot band_plot(const Result& result) const;
  Report report() const;
  std::string table() const;
  std::vector<std::string> interval_header() const;
  std::vector<std::vector<std::string>> interval_rows() const;
  Json json() const;
  Json interval_json(const Result& result) const;
  std::array<std::array<int, 2>, 3> windows() const {
    const int T = spec_.time;
    return {{{0, T / 4}, {T / 4, T / 2}, {T / 2, T}}};
  }

  const RegressOptions options_;
  SwitchingSpec spec_;
  std::vector<Result> results_;
  std::vector<SwitchingSequence> data_;  // [seeds]
  int seeds_done_ = 0;                   // complete for every layer
  double value_spread_ = 0;              // sum of squares of the values around their mean, for R2
};

}  // namespace ttr::cli::switching
