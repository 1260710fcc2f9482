// `ttr regress` without a file: the layers of the test-time regression paper's Figure 2 on its switching process,
// averaged over seeds. Windows: [0, T/4) the first rule, [T/4, T/2) just after the switch, [T/2, T) settled.
//
// Tasks are (layer, seed) pairs taken from a counter by threads; every task writes to its own place, so the numbers
// do not depend on the number of threads.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "atomic_file.h"
#include "interval.h"
#include "progress.h"
#include "regress_parts.h"
#include "report.h"
#include "switching_process.h"
#include "text_table.h"
#include "ttr/status.h"
#include "ttr/stream.h"

namespace ttr::cli {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

struct Entry {
  std::string label, recipe;  // no recipe: the naive forecast
  int hue, dash;
  std::string layer = {};  // what the user asked for; empty: the recipe
  const std::string& text() const { return layer.empty() ? recipe : layer; }
};

/// Related layers share a hue. Linear layers and RLS see raw keys; linear attention's output is normalised, as in the
/// paper; softmax and local linear attention see keys of norm sqrt(D) (RMS QKNorm).
std::vector<Entry> paper_layers() {
  return {{"linear attention", "equal / linear / gd(1) | normalise(unit)", 0, 0},
          {"gated linear attention 0.98", "decay(0.98) / linear / gd(1) | normalise(unit)", 0, 1},
          {"RLS, minimum norm", "equal / linear / exact", 1, 0},
          {"RLS, ridge 1e-3", "equal / linear / exact(ridge=0.001)", 1, 1},
          {"RLS, ridge 1e-2", "equal / linear / exact(ridge=0.01)", 1, 2},
          {"weighted RLS 0.98, ridge 1e-2", "decay(0.98) / linear / exact(ridge=0.01)", 1, 3},
          {"softmax, QKNorm", "near(exp) / constant / exact | keys(rms)", 2, 0},
          {"local linear, ridge 0.1", "near(exp) / local(1) / exact(ridge=0.1, relative) | keys(rms)", 3, 0},
          {"kernel regression exp(cos), ridge 1e-2", "equal / kernel(exp, scale=1) / exact(ridge=0.01) | keys(unit)",
           6, 0},
          {"DeltaNet, unit keys", "equal / linear / sgd(beta=1) | keys(unit)", 4, 0},
          {"NLMS", "equal / linear / sgd(nlms=1)", 4, 1},
          {"naive forecast", "", -1, 2}};
}

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

struct Statistic {
  double mean = nan, error = nan;  // standard error over seeds
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

  const RegressOptions& options_;
  SwitchingSpec spec_;
  std::vector<Result> results_;
  std::vector<SwitchingSequence> data_;  // [seeds]
  int seeds_done_ = 0;                   // complete for every layer
  double value_spread_ = 0;              // sum of squares of the values around their mean, for R2
};

/// Whether a plan has a covariance; the name is that of an error.
bool has_covariance(const Plan& plan, const std::string& name, bool required) {
  try {
    const ErrorVariance variance(plan, name, 1);
    return true;
  } catch (const Error&) {
    if (required) throw;
    return false;
  }
}

void Switching::make_plans() {
  std::vector<Entry> entries;
  const bool chosen = !options_.layers.empty();
  if (!chosen) {
    entries = paper_layers();
  } else {
    int n = 0;
    for (const std::string& text : options_.layers) {
      if (text == "naive") continue;
      entries.push_back({text, stream_layer(text).recipe, n % 7, n / 7 % 4, text});
      ++n;
    }
    entries.push_back({"naive forecast", "", -1, 2});
  }
  for (Entry& entry : entries) {
    Result result;
    result.losses.resize(options_.seeds), result.seconds.resize(options_.seeds);
    if (!entry.recipe.empty()) {
      Options options;
      options.type = Type::f64;
      Shape shape;
      shape.key_dim = shape.value_dim = spec_.dim;
      result.stream = stream_layer(entry.text());
      if (!chosen) result.stream.text = result.stream.recipe = entry.recipe, result.stream.changes.clear();
      result.plan.emplace(plan(result.stream.text, shape, options));
      result.ran = what_ran(result.stream, result.plan->kernel());
      [[maybe_unused]] const StreamInputs complete(*result.plan, entry.label,
                                                   result.stream.inputs);  // else it throws
      if (options_.interval && !has_covariance(*result.plan, entry.label, chosen)) continue;
      if (options_.interval) result.intervals.resize(options_.seeds);
      result.state_bytes = result.plan->footprint(spec_.time).state;
    } else {
      result.state_bytes = static_cast<std::size_t>(spec_.dim) * sizeof(double);
    }
    result.entry = std::move(entry);
    results_.push_back(std::move(result));
  }
}

Block Switching::block_of(const SwitchingSequence& data) const {
  const int D = spec_.dim;
  Block block;
  block.key_dim = block.value_dim = D, block.rows = static_cast<std::size_t>(spec_.time);
  block.has_pair.assign(block.rows, 1);
  block.keys.assign(data.keys.begin(), data.keys.end() - D);
  block.queries.assign(data.keys.begin() + D, data.keys.end());
  block.values.assign(data.values.begin(), data.values.end() - D);
  return block;
}

void Switching::run_plan(const Result& result, const SwitchingSequence& data, double* predictions) const {
  const int T = spec_.time, D = spec_.dim;
  const Plan& p = *result.plan;
  const Footprint bytes = p.footprint(T);
  const Buffer state(bytes.state), work(bytes.workspace);
  Inputs in;
  Outputs out;
  in["k"] = view(data.keys.data(), 1, T, 1, D);
  in["v"] = view(data.values.data(), 1, T, 1, D);
  in["q"] = view(data.keys.data() + D, 1, T, 1, D);  // q_t = k_{t+1}
  out["o"] = view(predictions, 1, T, 1, D);
  Status status = p.reset({state.data(), state.size()});
  if (status == Status::ok) status = p.forward(in, {state.data(), state.size()}, out, {work.data(), work.size()});
  if (status == Status::ok) return;
  std::string reason = p.diagnose(in, {state.data(), state.size()}, out, {work.data(), work.size()});
  if (reason.empty()) reason = to_string(status);
  throw Error(fmt::format("the layer '{}' cannot run: {}", result.entry.label, reason), "--layer");
}

// Token by token, since the layer is asked for its variance after each. Returns the seconds of the layer alone.
double Switching::run_with_intervals(const Result& result, const SwitchingSequence& data, double* predictions,
                                     SeedIntervals& to) const {
  const int D = spec_.dim;
  const std::size_t T = static_cast<std::size_t>(spec_.time), width = static_cast<std::size_t>(D);
  StreamLayer layer(result.entry.text(), D, D);
  const ErrorVariance& variance = layer.track_uncertainty(1);
  Intervals intervals(*options_.interval, D, variance.forgetting(), variance.window());
  const Block block = block_of(data);
  std::vector<Uncertainty> uncertainties(T);
  layer.run(block, predictions, uncertainties.data());

  std::vector<double> deviation(width), half(width);
  for (std::size_t t = 0; t < T; ++t) {
    const double *const prediction = predictions + t * width, *const actual = data.values.data() + (t + 1) * width;
    std::fill(deviation.begin(), deviation.end(), std::sqrt(uncertainties[t].variance));
    intervals.widths(deviation.data(), half.data());
    Coverage row(D);
    row.add(prediction, half.data(), actual);
    const Coverage::Tally tally = row.all();
    to.inside.push_back(tally.share()), to.width.push_back(tally.mean_width());
    to.prediction.push_back(prediction[0]), to.half.push_back(half[0]);
    intervals.add(prediction, deviation.data(), uncertainties[t].share, half.data(), actual);
  }
  to.coverage = intervals.coverage();
  return layer.seconds();
}

void Switching::run_task(Result& result, int seed) {
  const int T = spec_.time, D = spec_.dim;
  const SwitchingSequence& data = data_[seed];
  std::vector<double> predictions(static_cast<std::size_t>(T) * D);
  const auto start = std::chrono::steady_clock::now();
  if (!result.plan) std::copy_n(data.values.data(), predictions.size(), predictions.data());
  else if (!options_.interval && result.stream.as_layer)
    StreamLayer(result.entry.text(), D, D).run(block_of(data), predictions.data());
  else if (!options_.interval) run_plan(result, data, predictions.data());
  result.seconds[seed] = result.plan && options_.interval
                             ? run_with_intervals(result, data, predictions.data(), result.intervals[seed])
                             : std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::vector<double> losses(T);
  for (int t = 0; t < T; ++t)
    for (int i = 0; i < D; ++i) {
      const double error = predictions[t * D + i] - data.values[(t + 1) * D + i];
      losses[t] += error * error;
    }
  result.losses[seed] = std::move(losses);
}

void Switching::run_tasks() {
  const int seeds = options_.seeds, layers = static_cast<int>(results_.size());
  data_.reserve(seeds);
  for (int s = 0; s < seeds; ++s) data_.push_back(switching_sequence(spec_, options_.seed, s));
  // Seed by seed, so that an interrupted run has whole seeds for every layer.
  std::atomic<int> next{0}, done{0};
  std::mutex mutex;
  std::exception_ptr failure;
  Progress progress("switching process", true);
  auto work = [&](bool draws) {
    for (int task; interrupted() == 0 && (task = next++) < seeds * layers;) {
      try {
        run_task(results_[task % layers], task / layers);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = seeds * layers;
      }
      ++done;
      if (draws) progress.update(done, seeds * layers, fmt::format("{} of {} runs", done.load(), seeds * layers));
    }
  };
  const int wanted = options_.threads > 0 ? options_.threads : static_cast<int>(std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (int i = 1; i < std::min(std::max(wanted, 1), seeds * layers); ++i) threads.emplace_back(work, false);
  work(true);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  while (seeds_done_ < seeds && std::all_of(results_.begin(), results_.end(),
                                            [&](const Result& r) { return !r.losses[seeds_done_].empty(); }))
    ++seeds_done_;
  Spread spread(spec_.dim);
  for (int s = 0; s < seeds_done_; ++s)
    for (int t = 1; t <= spec_.time; ++t)
      spread.add(data_[s].values.data() + static_cast<std::size_t>(t) * spec_.dim);
  value_spread_ = spread.sum_of_squares();
}

Statistic statistic(const std::vector<double>& numbers) {
  const double n = static_cast<double>(numbers.size());
  if (numbers.empty()) return {};
  Statistic out{0, 0};
  for (double m : numbers) out.mean += m / n;
  for (double m : numbers) out.error += (m - out.mean) * (m - out.mean);
  out.error = n > 1 ? std::sqrt(out.error / (n - 1) / n) : nan;
  return out;
}

Statistic Switching::window(const Result& result, int from, int to) const {
  std::vector<double> means(seeds_done_);
  for (int s = 0; s < seeds_done_; ++s) {
    for (int t = from; t < to; ++t) means[s] += result.losses[s][t];
    means[s] /= to - from;
  }
  return statistic(means);
}

Statistic Switching::window(const Result& result, PerStep numbers, int from, int to) const {
  std::vector<double> means;
  for (int s = 0; s < seeds_done_; ++s) {
    double sum = 0;
    int count = 0;
    for (int t = from; t < to; ++t)
      if (const double number = (result.intervals[s].*numbers)[t]; std::isfinite(number)) sum += number, ++count;
    if (count > 0) means.push_back(sum / count);
  }
  return statistic(means);
}

double Switching::rows_without(const Result& result) const {
  double count = 0;
  for (int s = 0; s < seeds_done_; ++s)
    for (double inside : result.intervals[s].inside) count += std::isfinite(inside) ? 0 : 1;
  return count / seeds_done_;
}

double Switching::us_per_row(const Result& result) const {
  double total = 0;
  for (int s = 0; s < seeds_done_; ++s) total += result.seconds[s];
  return seeds_done_ > 0 ? 1e6 * total / seeds_done_ / spec_.time : nan;
}

std::string window_name(const std::array<int, 2>& w) { return fmt::format("[{}, {})", w[0], w[1]); }

std::string statistic_text(const Statistic& s) {
  if (!std::isfinite(s.mean)) return "diverged";
  if (!std::isfinite(s.error)) return short_number(s.mean);
  return short_number(s.mean) + " \u00b1 " +
         (s.error < 10 ? fmt::format("{:.2g}", s.error) : fmt::format("{:.0f}", s.error));
}

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

int Switching::run() {
  const std::string path = options_.report.empty() ? "report.html" : options_.report;
  make_plans();
  AtomicFile report_file(path, "--report");
  std::optional<AtomicFile> svg_file;
  if (!options_.svg.empty()) svg_file.emplace(options_.svg, "--svg");
  run_tasks();
  const int signal = interrupted();
  if (seeds_done_ > 0) {
    report_file.write(report_html(report()));
    report_file.commit();
    if (svg_file) {
      svg_file->write(plot_svg(plot(), true));
      svg_file->commit();
    }
    print_out(options_.json ? json().dump(2) + "\n" : table() + fmt::format("\nThe report is in {}\n", path));
  }
  if (signal == 0) return 0;
  fmt::print(stderr, "Interrupted by {} after {} of {} seeds. {}\n", signal_name(signal), seeds_done_, options_.seeds,
             seeds_done_ > 0 ? fmt::format("{} holds these seeds.", path) : "Nothing was written.");
  return 128 + signal;
}

}  // namespace

int run_switching(const RegressOptions& options) { return Switching(options).run(); }

}  // namespace ttr::cli
