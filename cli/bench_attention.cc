// `ttr bench attention`: softmax attention (a local constant) against local linear attention, in one run.
//
// Forward alone and backward alone take turns, so that all four see the same machine; the median of several rounds
// counts. Before, forward and backward together are compared with the oracle. Peak memory is that of processes of their
// own with one head (bench_child.h): in proportion to the tokens, where a matrix of all pairs would be to their square.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "aside.h"
#include "atomic_file.h"
#include "bench.h"
#include "bench_child.h"
#include "bench_machine.h"
#include "json.h"
#include "progress.h"
#include "report.h"
#include "standard_files.h"
#include "text_table.h"

namespace ttr::cli {
namespace {

constexpr const char* names[] = {"softmax-attention", "local-linear-attention"};

struct Measured {
  double forward = 0, backward = 0;  // seconds
  double ratio() const { return backward / forward; }
};

struct Memory {
  std::int64_t time = 0;
  std::array<ChildResult, 2> forward, both;
};

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.empty() ? std::numeric_limits<double>::quiet_NaN() : x[x.size() / 2];
}

}  // namespace

int run_bench_attention(const AttentionOptions& given) {
  AttentionOptions options = given;
  if (options.quick) {
    options.time = std::min<std::int64_t>(options.time, 64), options.runs = std::min(options.runs, 3);
    options.heads = std::min(options.heads, 2), options.dim = std::min(options.dim, 16);
  }
  if (options.time < 2 || options.time > 1'000'000)
    throw Error(fmt::format("--time is {}; it can be 2 to 1000000", options.time), "--time");
  if (options.heads < 1 || options.heads > 4096)
    throw Error(fmt::format("--heads is {}; it can be 1 to 4096", options.heads), "--heads");
  if (options.dim < 1 || options.dim > 4096)
    throw Error(fmt::format("--dim is {}; it can be 1 to 4096", options.dim), "--dim");
  if (options.runs < 1 || options.runs > 1000)
    throw Error(fmt::format("--runs is {}; it can be 1 to 1000", options.runs), "--runs");
  std::optional<AtomicFile> report_file;
  if (!options.report.empty()) report_file.emplace(options.report, "--report");

  InterruptGuard guard;
  Progress progress("bench attention", true);
  const auto case_of = [&](std::size_t layer, Pass pass, std::int64_t time, int heads) {
    BenchCase c;
    c.layer = names[layer], c.pass = pass, c.key_dim = c.value_dim = options.dim, c.heads = heads, c.time = time;
    return c;
  };
  const std::vector<std::int64_t> lengths =
      options.quick ? std::vector<std::int64_t>{256, 512} : std::vector<std::int64_t>{4096, 8192, 16384};
  const double total = options.runs + static_cast<double>(lengths.size()) * 3 + 1;
  const auto stopped = [&] {
    progress.finish();
    tell("ttr: interrupted; nothing was complete\n");
    return 128 + interrupted();
  };

  // Memory first: the processes must not start with the tensors of the timing.
  std::vector<Memory> memory;
  double done = 0;
  for (const std::int64_t time : lengths) {
    Memory m;
    m.time = time;
    for (std::size_t i = 0; i < 2; ++i)
      for (const Pass pass : {Pass::forward, Pass::both}) {
        progress.update(done, total, fmt::format("{} {} tokens", names[i], time));
        (pass == Pass::forward ? m.forward : m.both)[i] = run_in_child(case_of(i, pass, time, 1), 0, false);
        if (interrupted()) return stopped();
        const ChildResult& result = (pass == Pass::forward ? m.forward : m.both)[i];
        if (!result.right) throw Error(fmt::format("{} with {} tokens: {}", names[i], time, result.why));
      }
    memory.push_back(m);
    done += 3;
  }
  std::array<Measured, 2> measured;
  std::vector<double> peaks;
  {
    std::array<std::array<std::shared_ptr<CaseRun>, 2>, 2> runs;  // layer, pass
    std::array<std::array<std::vector<double>, 2>, 2> seconds;
    for (std::size_t i = 0; i < 2; ++i) {
      progress.update(done, total, fmt::format("checking {}", names[i]));
      for (const Pass pass : {Pass::forward, Pass::both}) {
        const BenchCase one = case_of(i, pass, options.time, options.heads);
        const auto check = made_aside([one] {
          CaseRun checked(one);
          return check_case(checked);
        });
        if (!check || interrupted()) return stopped();
        if (!check->right) {
          progress.finish();
          tell("ttr: not measured: {} {}\n", name_of(one), check->what);
          return 1;
        }
      }
      for (std::size_t p = 0; p < 2; ++p) {
        const Pass pass = p == 0 ? Pass::forward : Pass::backward;
        const auto run = made_aside([one = case_of(i, pass, options.time, options.heads)] {
          auto made = std::make_shared<CaseRun>(one);
          made->timed();
          return made;
        });
        if (!run || interrupted()) return stopped();
        runs[i][p] = *run;
      }
    }
    for (int r = 0; r < options.runs; ++r) {
      progress.update(done + 1 + r, total, "timing");
      peaks.push_back(fma_gflops(Type::f32, 1, 0.001));
      for (std::size_t i = 0; i < 2; ++i)
        for (std::size_t p = 0; p < 2; ++p) {
          if (interrupted()) return stopped();
          const auto taken = made_aside([run = runs[i][p]] { return run->timed(); });
          if (!taken) return stopped();
          seconds[i][p].push_back(*taken / runs[i][p]->tokens_per_run() * static_cast<double>(options.time));
        }
    }
    for (std::size_t i = 0; i < 2; ++i) measured[i] = {median(seconds[i][0]), median(seconds[i][1])};
  }
  progress.finish();

  const double ratio_forward = measured[1].forward / measured[0].forward,
               ratio_backward = measured[1].backward / measured[0].backward;
  Report::Table times{fmt::format("T = {}, H = {}, d = {}, one thread, median of {} rounds in turns.", options.time,
                                  options.heads, options.dim, options.runs),
                      {"", "forward ms", "backward ms", "backward / forward"},
                      {},
                      -1};
  for (std::size_t i = 0; i < 2; ++i)
    times.rows.push_back({names[i], short_number(1e3 * measured[i].forward), short_number(1e3 * measured[i].backward),
                          short_number(measured[i].ratio())});
  times.rows.push_back({"local linear / softmax", short_number(ratio_forward), short_number(ratio_backward), ""});
  Report::Table bytes{"Peak memory beyond inputs and outputs, one head.",
                      {"tokens", "softmax forward", "with backward", "local linear forward", "with backward"},
                      {},
                      -1};
  for (const Memory& m : memory)
    bytes.rows.push_back({fmt::format("{}", m.time), short_bytes(m.forward[0].peak_bytes),
                          short_bytes(m.both[0].peak_bytes), short_bytes(m.forward[1].peak_bytes),
                          short_bytes(m.both[1].peak_bytes)});
  if (options.json) {
    Json layers = Json::array(), lengths_json = Json::array();
    for (std::size_t i = 0; i < 2; ++i) {
      Json j = Json::object();
      j.set("layer", names[i]).set("dtype", "f32").set("time", options.time).set("heads", options.heads);
      j.set("d_key", options.dim).set("d_value", options.dim).set("forward_s", measured[i].forward);
      j.set("backward_s", measured[i].backward);
      layers.push(j.set("backward_over_forward", measured[i].ratio()));
    }
    for (const Memory& m : memory)
      for (std::size_t i = 0; i < 2; ++i) {
        Json j = Json::object();
        j.set("layer", names[i])
            .set("time", m.time)
            .set("heads", 1)
            .set("forward_peak_bytes", m.forward[i].peak_bytes);
        lengths_json.push(j.set("with_backward_peak_bytes", m.both[i].peak_bytes));
      }
    Json j = Json::object();
    j.set("f32_gflops", median(peaks)).set("layers", layers).set("forward_ratio", ratio_forward);
    fmt::print("{}\n", j.set("backward_ratio", ratio_backward).set("memory", lengths_json).dump());
  } else {
    for (const Report::Table* t : {&times, &bytes}) {
      TextTable table(t->header);
      for (const auto& row : t->rows) table.row(row);
      fmt::print("{}{}\n{}", table.text(), t->caption, t == &times ? "\n" : "");
    }
  }
  if (report_file) {
    Report report;
    report.title = "ttr bench attention";
    report.subtitle = "Softmax attention, a local constant, against local linear attention.";
    report.tables = {times, bytes};
    report.facts = {{"command", options.command},
                    {"f32 peak", fmt::format("{} GFLOP/s", short_number(median(peaks)))}};
    report_file->write(report_html(report));
    report_file->commit();
  }
  return 0;
}

}  // namespace ttr::cli
