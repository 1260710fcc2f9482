// `ttr regress` without a file: the layers of the test-time regression paper's Figure 2 on its switching process,
// averaged over seeds. Windows: [0, T/4) the first rule, [T/4, T/2) just after the switch, [T/2, T) settled.
//
// Tasks are (layer, seed) pairs taken from a counter by threads; every task writes to its own place, so the numbers
// do not depend on the number of threads.
#include "regress_switching.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include "aside.h"
#include "atomic_file.h"
#include "progress.h"
#include "regress_scores.h"
#include "standard_files.h"
#include "ttr/memory.h"
#include "ttr/stream.h"

namespace ttr::cli {
namespace switching {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

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

}  // namespace

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
  run_whole(p, result.entry.label, "--layer", in, out, state, work);
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
    Coverage row(D, *options_.interval);
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
  else if (!options_.interval && (result.stream.as_layer || result.plan->inputs().size() != 3))  // not q, k, v alone
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
  const double numbers = static_cast<double>(seeds) * spec_.time;
  require_memory(sizeof(double) * numbers * (2.0 * spec_.dim + layers),
                 fmt::format("{} of {} steps", counted(seeds, "seed"), spec_.time), "take fewer", "--seeds");
  data_.reserve(seeds);
  for (int s = 0; s < seeds && interrupted() == 0; ++s) data_.push_back(switching_sequence(spec_, options_.seed, s));
  if (interrupted() != 0) return;
  // Seed by seed, so that an interrupted run has whole seeds for every layer.
  const auto progress = std::make_shared<Progress>("switching process", true);
  const int tasks = seeds * layers;
  const auto done = std::make_shared<std::vector<std::atomic<char>>>(static_cast<std::size_t>(tasks));
  run_aside([this, tasks, layers, done, progress] {
    in_parallel(
        tasks, options_.threads,
        [&](int task) {
          run_task(results_[task % layers], task / layers);
          (*done)[static_cast<std::size_t>(task)].store(1, std::memory_order_release);
        },
        [&](int count) { progress->update(count, tasks, fmt::format("{} of {} runs", count, tasks)); });
  });
  const auto is_done = [&](int seed) {
    const auto first = done->begin() + static_cast<std::ptrdiff_t>(seed) * layers;
    return std::all_of(first, first + layers, [](const auto& one) { return one.load(std::memory_order_acquire); });
  };
  while (seeds_done_ < seeds && is_done(seeds_done_)) ++seeds_done_;
  Spread spread(spec_.dim);
  for (int s = 0; s < seeds_done_; ++s)
    for (int t = 1; t <= spec_.time; ++t)
      spread.add(data_[s].values.data() + static_cast<std::size_t>(t) * spec_.dim);
  value_spread_ = spread.sum_of_squares();
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
  RowTimes times;
  for (int s = 0; s < seeds_done_; ++s) times.add(result.seconds[s], static_cast<std::size_t>(spec_.time));
  return seeds_done_ > 0 ? 1e6 * times.median() : nan;
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
  tell("Interrupted by {} after {} of {} seeds. {}\n", signal_name(signal), seeds_done_, options_.seeds,
       seeds_done_ > 0 ? fmt::format("{} holds these seeds.", path) : "Nothing was written.");
  return 128 + signal;
}

}  // namespace switching

int run_switching(const RegressOptions& options) { return KeptForAside<switching::Switching>(options)->run(); }

}  // namespace ttr::cli
