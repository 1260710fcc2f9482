// `ttr bench growth`: time per token and peak memory of one forward call as the sequence gets longer.
//
// Layers whose state has a fixed size: flat in both, from a thousand tokens to a million. Layers that keep their pairs:
// time per token in proportion to the tokens, memory too (the pairs themselves), never their square. Every length runs
// in a process of its own; memory is what it grows by beyond inputs and outputs (bench_child.h). The exponents are of
// time in all and of memory, over the last factor of 4 in length: 1 and 0 for a fixed state, 2 and 1 for pairs.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "atomic_file.h"
#include "bench.h"
#include "bench_child.h"
#include "json.h"
#include "progress.h"
#include "report.h"
#include "standard_files.h"
#include "text_table.h"
#include "ttr/memory.h"

namespace ttr::cli {
namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

struct Point {
  std::int64_t time;
  ChildResult result;
};
struct Curve {
  std::string layer;
  bool pairs = false;
  std::vector<Point> points;
  std::string note;  // why it ends early
  double exponent(double (*of)(const Point&)) const {
    if (points.size() < 2) return nothing;
    const Point& last = points.back();
    const Point& before = points[points.size() - (points.size() > 2 && pairs ? 3 : 2)];
    return std::log(of(last) / of(before)) /
           std::log(static_cast<double>(last.time) / static_cast<double>(before.time));
  }
  double time_exponent() const {
    return exponent([](const Point& p) { return p.result.seconds; });
  }
  double memory_exponent() const {
    return exponent([](const Point& p) { return std::max(p.result.peak_bytes, 4096.0); });
  }
};

bool keeps_pairs(const BenchCase& c) {
  const Plan p = plan(c.layer, {1, c.heads, 0, c.key_dim, c.value_dim});
  std::vector<double> state(p.footprint(1).state / sizeof(double) + 1);
  return p.tokens_kept({state.data(), state.size() * sizeof(double)}) >= 0;
}

double microseconds(const Point& p) { return 1e6 * p.result.seconds / static_cast<double>(p.time); }

Json json_of(const Curve& curve, const GrowthOptions& options) {
  Json points = Json::array();
  for (const Point& p : curve.points) {
    Json j = Json::object();
    j.set("time", p.time).set("us_per_token", microseconds(p)).set("peak_bytes", p.result.peak_bytes);
    points.push(j.set("footprint_bytes", p.result.footprint_bytes));
  }
  Json j = Json::object();
  j.set("layer", curve.layer).set("state", curve.pairs ? "pairs" : "fixed").set("dtype", "f32");
  j.set("d_key", options.dim).set("d_value", options.dim).set("heads", options.heads);
  j.set("time_exponent", curve.time_exponent()).set("memory_exponent", curve.memory_exponent()).set("points", points);
  if (!curve.note.empty()) j.set("note", curve.note);
  return j;
}

Report::Table table_of(const std::vector<Curve>& curves) {
  Report::Table table{"Peak memory: what the process grew by beyond inputs and outputs.",
                      {"layer", "state", "tokens", "us/token", "peak memory", "state + workspace"},
                      {},
                      -1};
  for (const Curve& curve : curves)
    for (const Point& p : curve.points)
      table.rows.push_back({curve.layer, curve.pairs ? "pairs" : "fixed", fmt::format("{}", p.time),
                            short_number(microseconds(p)), short_bytes(p.result.peak_bytes),
                            short_bytes(p.result.footprint_bytes)});
  return table;
}

Plot plot_of(const std::vector<Curve>& curves, bool memory, bool pairs) {
  Plot plot;
  plot.title = fmt::format("{}: {}", memory ? "Peak memory beyond inputs and outputs" : "Time per token",
                           pairs ? "layers that keep their pairs" : "states of fixed size");
  plot.x_label = "log2 of the tokens", plot.y_label = memory ? "bytes" : "microseconds per token";
  plot.log_y = true, plot.legend_by_end = true;
  int hue = 0;
  for (const Curve& curve : curves) {
    if (curve.pairs != pairs) continue;
    Line line;
    line.label = curve.layer, line.hue = hue % 7, line.dash = hue / 7, ++hue;
    for (const Point& p : curve.points) {
      line.x.push_back(std::log2(static_cast<double>(p.time)));
      line.y.push_back(memory ? std::max(p.result.peak_bytes, 4096.0) : microseconds(p));
    }
    plot.lines.push_back(line);
  }
  return plot;
}

}  // namespace

int run_bench_growth(const GrowthOptions& options) {
  if (options.dim < 1 || options.dim > 4096)
    throw Error(fmt::format("--dim is {}; it can be 1 to 4096", options.dim), "--dim");
  if (options.heads < 1 || options.heads > 4096)
    throw Error(fmt::format("--heads is {}; it can be 1 to 4096", options.heads), "--heads");
  for (const auto& [name, length] :
       {std::pair{"--longest", options.longest}, {"--longest-pairs", options.longest_pairs}})
    if (length < 256 || length > (std::int64_t{1} << 30))
      throw Error(fmt::format("{} is {}; it can be 256 to 1073741824", name, length), name);
  std::vector<std::string> layers = options.layers;
  if (layers.empty())
    layers = {"linear-attention", "gla",    "gated-deltanet",    "mamba-2",
              "mamba-1",          "rwkv-7", "softmax-attention", "local-linear-attention"};
  struct Job {
    BenchCase spec;
    bool pairs;
    std::vector<std::int64_t> lengths;
  };
  std::vector<Job> jobs;
  double total = 0;
  for (const std::string& layer : layers) {
    BenchCase c;
    c.layer = layer, c.key_dim = c.value_dim = options.dim, c.heads = options.heads;
    Job job{c, keeps_pairs(c), {}};
    const std::int64_t longest = std::min(job.pairs ? options.longest_pairs : options.longest,
                                          options.quick ? std::int64_t{1024} : std::int64_t{1} << 30);
    for (std::int64_t t = options.quick ? 256 : 1024; t <= longest; t *= job.pairs ? 2 : 4) job.lengths.push_back(t);
    if (job.lengths.empty() || job.lengths.back() < longest) job.lengths.push_back(longest);
    total += static_cast<double>(job.lengths.size());
    jobs.push_back(job);
  }
  std::optional<AtomicFile> report_file;
  if (!options.report.empty()) report_file.emplace(options.report, "--report");

  InterruptGuard guard;
  Progress progress("bench growth", true);
  std::vector<Curve> curves;
  bool all_right = true;
  double done = 0;
  for (Job& job : jobs) {
    Curve curve;
    curve.layer = job.spec.layer, curve.pairs = job.pairs;
    for (const std::int64_t time : job.lengths) {
      progress.update(done++, total, fmt::format("{} {} tokens", job.spec.layer, time));
      if (interrupted()) break;
      job.spec.time = time;
      const double needed = 3 * tensor_bytes(job.spec), there = ttr::free_memory().bytes;
      if (needed > there) {
        curve.note = fmt::format("{} tokens would need {} of memory; {} are free", time, short_bytes(needed),
                                 short_bytes(there));
        break;
      }
      const ChildResult result = run_in_child(job.spec, options.quick ? 1 : 5, curve.points.empty());
      if (interrupted()) break;
      if (!result.right) {
        curve.note = result.why, all_right = false;
        break;
      }
      curve.points.push_back({time, result});
    }
    curves.push_back(curve);
    if (interrupted()) break;
  }
  progress.finish();
  if (options.json) {
    Json list = Json::array();
    for (const Curve& curve : curves) list.push(json_of(curve, options));
    fmt::print("{}\n", list.dump());
  } else {
    const Report::Table rows = table_of(curves);
    TextTable table(rows.header);
    for (const auto& row : rows.rows) table.row(row);
    fmt::print("{}\n", table.text());
    TextTable summary({"exponent in the tokens", "time", "memory", "expected"});
    for (const Curve& curve : curves)
      summary.row({curve.layer, short_number(curve.time_exponent()), short_number(curve.memory_exponent()),
                   curve.pairs ? "2, 1" : "1, 0"});
    fmt::print("{}", summary.text());
    for (const Curve& curve : curves)
      if (!curve.note.empty()) fmt::print("{}: {}\n", curve.layer, curve.note);
  }
  if (interrupted()) {
    tell("ttr: interrupted; what is above is complete\n");
    return 128 + interrupted();
  }
  if (report_file) {
    Report report;
    report.title = "ttr bench growth";
    report.subtitle = "One forward call as the sequence gets longer.";
    report.tables = {table_of(curves)};
    for (const bool memory : {false, true})
      for (const bool pairs : {false, true})
        if (std::any_of(curves.begin(), curves.end(), [&](const Curve& c) { return c.pairs == pairs; }))
          report.figures.push_back({plot_of(curves, memory, pairs),
                                    !pairs   ? "Flat if nothing is kept but the state."
                                    : memory ? "In proportion to the length, never to its square."
                                             : "In proportion to the length: every token reads the list."});
    for (const Curve& curve : curves)
      if (!curve.note.empty()) report.notes.push_back(curve.layer + ": " + curve.note);
    report.facts = {{"command", options.command},
                    {"sizes", fmt::format("H = {}, K = V = {}, float", options.heads, options.dim)}};
    report_file->write(report_html(report));
    report_file->commit();
  }
  return all_right ? 0 : 1;
}

}  // namespace ttr::cli
