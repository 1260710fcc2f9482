// `ttr bench [LAYER...]`: tokens per second of any layer in any form, beside what the machine can do.
//
//   useful GFLOP/s   operations of the plain recurrence, so that a form that does more is not rewarded for it
//   % peak           of the multiply-adds per second that were measured between the runs of the case
//   kflop, KB        what a token executes and moves: operations that a counting plan finds in the kernels; inputs, outputs
//                    and gradients once per pass, what forward leaves for backward twice, and when decoding the state in and
//                    out (a list of pairs: in)
//   % bandwidth      the bytes, of the bandwidth of the smallest memory that holds them: of updates, with a list of pairs of
//                    reading
//   % limit          of the tokens per second that these operations at the peak and these bytes at the bandwidth permit;
//                    where kernels do not count, the operations of the plain recurrence
//
// What is not counted is "-" in the table and null in JSON.
//
// A case is measured only if its numbers are right: the literal solution on a few tokens, the recurrent form in double
// on more. The median of several runs counts, `best` is the shortest; cases that differ in form, gates or threads alone take
// turns.
#include "bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <thread>

#include "aside.h"
#include "atomic_file.h"
#include "bench_bars.h"
#include "bench_case.h"
#include "bench_compare.h"
#include "bench_gates.h"
#include "bench_machine.h"
#include "json.h"
#include "progress.h"
#include "report.h"
#include "standard_files.h"
#include "text_table.h"

namespace ttr::cli {
namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

struct Row {
  BenchCase spec;
  std::string form, kernel, checked;
  double tokens_per_s = 0, best_tokens_per_s = 0, gflops = nothing, percent_peak = nothing,
         percent_bandwidth = nothing;
  double executed = nothing, bytes = nothing;  // operations and bytes per token
  double roofline = nothing;                   // tokens/s that the machine permits; NaN: operations not counted
  bool memory_bound = true;
  std::size_t workspace = 0, saved = 0;
};
struct Refused {
  std::string name, why;
};
using Group = std::vector<BenchCase>;  // measured in turns

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  const std::size_t n = x.size();
  return n == 0 ? nothing : n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

std::vector<int> thread_counts(const BenchOptions& options) {
  if (!options.threads.empty()) return options.threads;
  const int all = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return all == 1 || options.quick ? std::vector<int>{1} : std::vector<int>{1, all};
}

// What a user of other libraries knows: prompts, decoding, attention and a training step.
std::vector<Group> standard_groups(const BenchOptions& options) {
  struct Work {
    const char* layer;
    Pass pass;
    int key_dim, value_dim, heads;
    std::int64_t time;
    const char* gates = "gentle";
  };
  constexpr Work table[] = {
      {"gla", Pass::forward, 64, 64, 8, 4096},
      {"gla", Pass::forward, 128, 128, 8, 4096},
      {"rwkv-6", Pass::forward, 64, 64, 8, 4096},
      {"rwkv-6", Pass::forward, 128, 128, 8, 4096},
      {"rwkv-7", Pass::forward, 64, 64, 8, 4096},
      {"rwkv-7", Pass::forward, 128, 128, 8, 4096},
      {"gated-deltanet", Pass::forward, 64, 64, 8, 4096},
      {"gated-deltanet", Pass::forward, 128, 128, 8, 4096},
      {"kda", Pass::forward, 64, 64, 8, 4096},
      {"mamba-2", Pass::forward, 128, 64, 8, 4096},
      {"gla", Pass::forward, 64, 64, 8, 4096, "mixed"},
      {"gla", Pass::forward, 64, 64, 8, 4096, "strong"},
      {"rwkv-6", Pass::forward, 64, 64, 8, 4096, "mixed"},
      {"dplr", Pass::forward, 64, 64, 8, 4096, "mixed"},
      {"gated-deltanet", Pass::forward, 64, 64, 8, 4096, "mixed"},
      {"kda", Pass::forward, 64, 64, 8, 4096, "mixed"},
      {"kda", Pass::forward, 64, 64, 8, 4096, "strong"},
      {"mamba-2", Pass::forward, 128, 64, 8, 4096, "mixed"},
      {"mamba-1", Pass::forward, 16, 512, 1, 4096},
      {"short-convolution", Pass::forward, 64, 1536, 1, 4096},
      {"softmax-attention", Pass::forward, 64, 64, 8, 512},
      {"softmax-attention", Pass::forward, 64, 64, 8, 2048},
      {"softmax-attention", Pass::forward, 64, 64, 8, 4096},
      {"softmax-attention", Pass::forward, 128, 128, 8, 4096},
      {"softmax-attention", Pass::step, 64, 64, 8, 4096},
      {"gla", Pass::step, 64, 64, 8, 1},
      {"gla", Pass::step, 128, 128, 8, 1},
      {"gated-deltanet", Pass::step, 64, 64, 8, 1},
      {"gated-deltanet", Pass::step, 128, 128, 8, 1},
      {"softmax-attention", Pass::both, 64, 64, 8, 1024},
      {"gla", Pass::both, 64, 64, 8, 4096},
      {"gla", Pass::both, 128, 128, 8, 4096},
      {"gated-deltanet", Pass::both, 64, 64, 8, 4096},
      {"gated-deltanet", Pass::both, 128, 128, 8, 4096},
      {"kda", Pass::both, 64, 64, 8, 4096},
      {"gla", Pass::both, 64, 64, 8, 4096, "mixed"},
      {"kda", Pass::both, 64, 64, 8, 4096, "mixed"},
      {"mamba-2", Pass::both, 128, 64, 8, 4096},
  };
  std::vector<Group> groups;
  for (const Work& work : table) {
    if (options.quick && work.key_dim > 64) continue;
    Group group;
    for (const int threads : thread_counts(options)) {
      BenchCase c{work.layer,     work.pass,  Form::best, Type::f32, work.key_dim,
                  work.value_dim, work.heads, work.time,  threads};
      c.gates = work.gates;
      if (options.quick) {
        c.time = std::min<std::int64_t>(c.time, 64), c.heads = std::min(c.heads, 2);
        c.key_dim = std::min(c.key_dim, 16), c.value_dim = std::min(c.value_dim, 16);
      }
      group.push_back(c);
    }
    const auto same = [&](const Group& other) { return name_of(other.front()) == name_of(group.front()); };
    if (std::none_of(groups.begin(), groups.end(), same)) groups.push_back(group);  // small sizes are often equal
  }
  return groups;
}

Pass pass_of(const std::string& name) {
  for (const Pass pass : {Pass::forward, Pass::both, Pass::step})
    if (name == to_string(pass) || (name == "both" && pass == Pass::both)) return pass;
  throw Error("there is no pass '" + name + "'; it can be forward, both or step", "--pass");
}

Type type_of_name(const std::string& name) {
  for (const Type type : {Type::f32, Type::f64, Type::bf16, Type::f16})
    if (name == ttr::to_string(type)) return type;
  throw Error("there is no type '" + name + "'; it can be f32, f64, bf16 or f16", "--dtype");
}

template <class N>
void check_range(const std::vector<N>& numbers, const char* option, N most) {
  if (numbers.empty()) throw Error(fmt::format("{} has no number", option), option);
  for (const N n : numbers)
    if (n < 1 || n > most) throw Error(fmt::format("{} is {}; it can be 1 to {}", option, n, most), option);
}

std::vector<Form> forms_of(const BenchOptions& options, const BenchCase& c) {
  if (c.pass == Pass::step) return {Form::best};
  std::vector<Form> forms;
  for (const std::string& name : options.forms) {
    if (name != "all") {
      forms.push_back(form_of(name, ", scan and all"));
      continue;
    }
    const Plan p = plan(c.layer, {1, c.heads, c.key_heads, c.key_dim, c.value_dim});
    for (const Form form : p.forms())
      if (form != Form::step) forms.push_back(form);
  }
  return forms;
}

// Heads, and key heads that divide them: 0 where there are as many.
std::vector<std::pair<int, int>> head_counts(const BenchOptions& options) {
  std::vector<std::pair<int, int>> counts;
  for (const int heads : options.heads)
    for (const int key_heads : options.key_heads)
      if (key_heads == 0 || (key_heads < heads && heads % key_heads == 0)) counts.emplace_back(heads, key_heads);
  if (counts.empty())
    throw Error(fmt::format("--key-heads is {} and --heads is {}; heads must be a multiple of key heads",
                            options.key_heads.front(), options.heads.front()),
                "--key-heads");
  return counts;
}

std::vector<Group> wanted_groups(const BenchOptions& options) {
  std::vector<Group> groups;
  const std::vector<int> values = options.value_dims.empty() ? std::vector<int>{0} : options.value_dims;
  for (const std::string& layer : options.layers)
    for (const std::string& pass : options.passes)
      for (const std::string& dtype : options.dtypes)
        for (const int key_dim : options.key_dims)
          for (const int value_dim : values)
            for (const auto& [heads, key_heads] : head_counts(options))
              for (const std::int64_t time : options.times) {
                BenchCase c{layer,      pass_of(pass),
                            Form::best, type_of_name(dtype),
                            key_dim,    value_dim == 0 ? key_dim : value_dim,
                            heads,      time,
                            1};
                c.key_heads = key_heads;
                if (options.quick) c.time = std::min<std::int64_t>(c.time, 128);
                Group group;
                for (const std::string& gates : options.gates)
                  for (const Form form : forms_of(options, c))
                    for (const int threads : thread_counts(options)) {
                      c.form = form, c.threads = threads, c.gates = gates;
                      group.push_back(c);
                    }
                groups.push_back(group);
              }
  return groups;
}

class Bench {
 public:
  explicit Bench(const BenchOptions& options) : options_(options) {}

  /// False if interrupted.
  bool run(const std::vector<Group>& groups) {
    Progress progress("bench", true);
    const double total = static_cast<double>(groups.size()) + 1;
    progress.update(0, total, "the machine");
    for (const int threads : thread_counts(options_)) {
      if (interrupted()) return false;
      const auto limits = made_aside([threads, quick = options_.quick] { return measure_machine(threads, quick); });
      if (!limits) return false;
      limits_[threads] = *limits;
    }
    for (std::size_t g = 0; g < groups.size(); ++g)
      if (!run_group(groups[g], progress, static_cast<double>(g) + 1, total)) return false;
    return true;
  }

  const std::vector<Row>& rows() const { return rows_; }
  const std::vector<Refused>& refused() const { return refused_; }
  const std::map<int, MachineLimits>& limits() const { return limits_; }

 private:
  struct Entry {
    std::shared_ptr<CaseRun> run;
    CaseCheck check;
    double executed = nothing, last = 0;  // seconds of the last run
    std::vector<double> seconds, peaks;
  };
  static Entry entry_of(const BenchCase& c) {
    Entry entry;
    entry.run = std::make_shared<CaseRun>(c);
    try {
      entry.check = check_case(*entry.run);
    } catch (const Error& error) {
      entry.check = {false, error.what()};
    }
    if (!entry.check.right) return entry;
    entry.executed = executed_flops_per_token(c);
    entry.last = entry.run->timed();  // warm, and the length of a run is chosen
    return entry;
  }

  bool run_group(const Group& group, Progress& progress, double done, double total) {
    constexpr double long_seconds = 0.2;
    std::vector<Entry> entries;
    for (const BenchCase& c : group) {
      if (interrupted()) return false;
      progress.update(done, total, name_of(c));
      std::optional<Entry> entry = made_aside([c] { return entry_of(c); });
      if (!entry) return false;
      if (entry->check.right) entries.push_back(std::move(*entry));
      else refused_.push_back({name_of(c), entry->check.what});
    }
    const int runs = options_.quick ? std::min(options_.runs, 3) : options_.runs;
    for (int r = 0; r < runs; ++r)
      for (Entry& entry : entries) {
        if (interrupted()) return false;
        const BenchCase& c = entry.run->spec();
        progress.update(done + static_cast<double>(r) / runs, total, name_of(c));
        entry.peaks.push_back(fma_gflops(c.type == Type::f64 ? Type::f64 : Type::f32, c.threads, 0.001));
        const std::optional<double> taken =
            entry.last < long_seconds ? entry.run->timed() : made_aside([run = entry.run] { return run->timed(); });
        if (!taken) return false;
        entry.seconds.push_back(*taken);
      }
    for (Entry& entry : entries)
      rows_.push_back(row_of(*entry.run, entry.check.what, entry.executed, entry.seconds, entry.peaks));
    return true;
  }

  Row row_of(const CaseRun& run, const std::string& checked, double executed, const std::vector<double>& seconds,
             const std::vector<double>& peaks) {
    Row row;
    row.spec = run.spec(), row.form = run.form(), row.kernel = run.plan().kernel();
    row.checked = checked, row.workspace = run.workspace_bytes();
    row.saved = run.saved_bytes();
    row.tokens_per_s = run.tokens_per_run() / median(seconds);
    row.best_tokens_per_s = run.tokens_per_run() / *std::min_element(seconds.begin(), seconds.end());
    MachineLimits& limits = limits_.at(row.spec.threads);
    const double peak = median(peaks), flops = useful_flops_per_token(run);
    double& best = row.spec.type == Type::f64 ? limits.f64_gflops : limits.f32_gflops;
    best = std::max(best, *std::max_element(peaks.begin(), peaks.end()));
    row.gflops = flops * row.tokens_per_s * 1e-9;
    row.percent_peak = 100 * row.gflops / peak;
    const double bandwidth = bandwidth_for(limits, run.traffic(), run.bytes_touched()), bytes = run.bytes_per_token();
    row.percent_bandwidth = 100 * bytes * row.tokens_per_s * 1e-9 / bandwidth;
    row.executed = executed, row.bytes = bytes;
    if (const double known = std::isnan(executed) ? flops : executed; !std::isnan(known)) {
      const Limit limit = limit_of(run, known, peak, limits);
      row.roofline = limit.tokens_per_s, row.memory_bound = limit.by_memory;
    }
    return row;
  }

  const BenchOptions& options_;
  std::map<int, MachineLimits> limits_;
  std::vector<Row> rows_;
  std::vector<Refused> refused_;
};

std::string dtype_of(const BenchCase& c) { return std::string(ttr::to_string(c.type)); }

std::string key_of(const Row& row) {
  const BenchCase& c = row.spec;
  return bench_key(c.layer, std::string(to_string(c.pass)), row.form, dtype_of(c), c.key_dim, c.value_dim, c.heads,
                   c.key_heads ? c.key_heads : c.heads, static_cast<long>(c.time), c.threads, c.gates);
}

Json json_of(const std::map<int, MachineLimits>& limits) {
  Json list = Json::array();
  const std::vector<MemoryLevel> levels = memory_levels();
  for (const auto& [threads, limit] : limits) {
    Json j = Json::object(), update = Json::object(), read = Json::object();
    for (std::size_t i = 0; i < levels.size(); ++i)
      update.set(levels[i].name, limit.update[i]), read.set(levels[i].name, limit.read[i]);
    j.set("threads", threads).set("f32_gflops", limit.f32_gflops).set("f64_gflops", limit.f64_gflops);
    list.push(j.set("update_gb_per_s", update).set("read_gb_per_s", read));
  }
  return Json::object().set("vectors", vector_unit()).set("limits", list);
}

Json json_of(const Row& row, const std::map<std::string, EarlierCase>& earlier) {
  const BenchCase& c = row.spec;
  Json j = Json::object();
  j.set("layer", c.layer).set("pass", to_string(c.pass)).set("form", row.form).set("dtype", dtype_of(c));
  j.set("d_key", c.key_dim).set("d_value", c.value_dim).set("heads", c.heads);
  j.set("key_heads", c.key_heads ? c.key_heads : c.heads).set("time", c.time);
  j.set("threads", c.threads).set("gates", c.gates).set("tokens_per_s", row.tokens_per_s);
  j.set("best_tokens_per_s", row.best_tokens_per_s);
  j.set("useful_gflops", row.gflops).set("percent_peak", row.percent_peak);
  j.set("percent_bandwidth", row.percent_bandwidth).set("workspace_bytes", row.workspace);
  j.set("executed_flops_per_token", row.executed).set("bytes_per_token", row.bytes);
  const bool limited = !std::isnan(row.roofline);
  j.set("limit_tokens_per_s", row.roofline);
  j.set("limited_by", limited ? Json(row.memory_bound ? "memory" : "multiply-adds") : Json());
  if (c.pass == Pass::both) j.set("saved_bytes", row.saved);
  j.set("kernel", row.kernel).set("checked", row.checked);
  if (const auto found = earlier.find(key_of(row)); found != earlier.end())
    j.set("times_earlier", row.tokens_per_s / found->second.tokens_per_s);
  return j;
}

std::string rate_text(double rate) {
  if (rate >= 1e6) return fmt::format("{:.2f}M", rate / 1e6);
  return rate >= 1e3 ? fmt::format("{:.1f}k", rate / 1e3) : short_number(rate);
}
std::string case_text(const BenchCase& c) {
  return fmt::format("{} H{}{} K{} V{} T{}{}", dtype_of(c), c.heads,
                     c.key_heads ? fmt::format(" G{}", c.key_heads) : "", c.key_dim, c.value_dim, c.time,
                     c.gates == "gentle" ? "" : " gates " + c.gates);
}

std::vector<std::string> header(bool compared) {
  std::vector<std::string> cells = {"layer",   "pass",   "form",        "case",  "threads", "tokens/s", "best",
                                    "GFLOP/s", "% peak", "% bandwidth", "kflop", "KB",      "% limit",  "workspace"};
  if (compared) cells.push_back("x earlier");
  return cells;
}

std::vector<std::string> cells_of(const Row& row, const std::map<std::string, EarlierCase>& earlier, bool compared) {
  const BenchCase& c = row.spec;
  std::vector<std::string> cells = {c.layer,
                                    c.pass == Pass::both ? "fwd+bwd" : std::string(to_string(c.pass)),
                                    row.form,
                                    case_text(c),
                                    std::to_string(c.threads),
                                    rate_text(row.tokens_per_s),
                                    rate_text(row.best_tokens_per_s),
                                    short_number(row.gflops),
                                    percent_text(row.percent_peak),
                                    percent_text(row.percent_bandwidth),
                                    std::isnan(row.executed) ? "-" : short_number(row.executed / 1e3),
                                    short_number(row.bytes / 1e3),
                                    percent_text(100 * row.tokens_per_s / row.roofline),
                                    short_bytes(static_cast<double>(row.workspace)) +
                                        (row.saved ? " + " + short_bytes(static_cast<double>(row.saved)) : "")};
  if (compared) {
    const auto found = earlier.find(key_of(row));
    cells.push_back(found == earlier.end() ? "-"
                                           : fmt::format("{:.2f}", row.tokens_per_s / found->second.tokens_per_s));
  }
  return cells;
}

std::vector<std::string> machine_header() {
  return {
      "machine (" + vector_unit() + ")", "f32 GFLOP/s", "f64 GFLOP/s", "L1 GB/s", "L2 GB/s", "L3 GB/s", "DRAM GB/s"};
}
std::vector<std::vector<std::string>> machine_rows(const std::map<int, MachineLimits>& limits) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [threads, limit] : limits) {
    const std::string name = fmt::format("{} thread{}", threads, threads == 1 ? "" : "s");
    std::vector<std::string> update = {name, short_number(limit.f32_gflops), short_number(limit.f64_gflops)};
    std::vector<std::string> read = {name + ", reading", "", ""};
    for (const double bandwidth : limit.update) update.push_back(short_number(bandwidth));
    for (const double bandwidth : limit.read) read.push_back(short_number(bandwidth));
    rows.push_back(update), rows.push_back(read);
  }
  return rows;
}

std::string limits_text(const std::map<int, MachineLimits>& limits) {
  TextTable table(machine_header());
  for (const std::vector<std::string>& row : machine_rows(limits)) table.row(row);
  return table.text();
}

std::string report_of(const Bench& bench, const std::map<std::string, EarlierCase>& earlier,
                      const BenchOptions& options) {
  Report report;
  report.title = "ttr bench";
  report.subtitle = "Tokens per second of each case, and how much that is of what this machine permits.";
  const bool compared = !options.compare.empty();
  Report::Table cases{"", header(compared), {}, -1};
  BarChart chart{"Share of the roofline", "of the tokens per second that peak and bandwidth permit", {}, {}};
  chart.hues = {{0, "bounded by multiply-adds"}, {1, "bounded by memory"}};
  for (const Row& row : bench.rows()) {
    cases.rows.push_back(cells_of(row, earlier, compared));
    if (std::isnan(row.roofline)) continue;  // a bar of no length would say 0
    const BenchCase& c = row.spec;
    const std::string what = c.pass == Pass::step ? "step" : fmt::format("{} {}", to_string(c.pass), row.form);
    chart.bars.push_back(
        {fmt::format("{} {} {}, {} thread{}", c.layer, what, case_text(c), c.threads, c.threads == 1 ? "" : "s"),
         row.tokens_per_s / row.roofline, rate_text(row.tokens_per_s) + " tokens/s", row.memory_bound ? 1 : 0});
  }
  const Report::Table machine{
      "Best of several short measurements: updates in place, where bytes read and bytes written both count, and "
      "reading.",
      machine_header(), machine_rows(bench.limits()), -1};
  report.tables = {cases, machine};
  for (const Refused& r : bench.refused()) report.notes.push_back("Not measured: " + r.name + " " + r.why + ".");
  report.facts = {{"command", options.command},
                  {"vectors", vector_unit()},
                  {"runs", fmt::format("median of {}", options.quick ? std::min(options.runs, 3) : options.runs)}};
  return with_figure(report_html(report), bars_svg(chart),
                     "The limit of a case is the lower of two: the operations that its kernels execute at the peak "
                     "measured between the runs, and its bytes at the bandwidth of the memory that holds them. "
                     "Where kernels do not count, the operations of the plain recurrence; where these are not known "
                     "either, there is no limit and no bar.");
}

}  // namespace

int run_bench(const BenchOptions& options) {
  if (options.runs < 1 || options.runs > 1000)
    throw Error(fmt::format("--runs is {}; it can be 1 to 1000", options.runs), "--runs");
  check_range(options.key_dims, "--key-dim", 4096), check_range(options.heads, "--heads", 4096);
  for (const int key_heads : options.key_heads)
    if (key_heads < 0 || key_heads > 4096)
      throw Error(fmt::format("--key-heads is {}; it can be 1 to 4096, or 0 for as many as heads", key_heads),
                  "--key-heads");
  if (!options.value_dims.empty()) check_range(options.value_dims, "--value-dim", 4096);
  check_range(options.times, "--time", std::int64_t{100'000'000});
  check_range(thread_counts(options), "--threads", 1024);
  if (options.processor_time) {
    for (const int threads : thread_counts(options))
      if (threads != 1)
        throw Error(fmt::format("--processor-time is for one thread, and --threads is {}; give --threads 1", threads),
                    "--processor-time");
    count_processor_time();
  }
  const std::map<std::string, EarlierCase> earlier =
      options.compare.empty() ? std::map<std::string, EarlierCase>() : read_earlier(options.compare);
  std::optional<AtomicFile> report_file;
  if (!options.report.empty()) report_file.emplace(options.report, "--report");  // a bad path before minutes of work
  const std::vector<Group> groups = options.layers.empty() ? standard_groups(options) : wanted_groups(options);
  for (const Group& group : groups)
    for (const BenchCase& c : group) {  // what the user wrote must make sense before anything is measured
      const Plan p = plan(c.layer, {1, c.heads, c.key_heads, c.key_dim, c.value_dim});
      if (c.form != Form::best && std::find(p.forms().begin(), p.forms().end(), c.form) == p.forms().end())
        throw Error(fmt::format("{} has no form {}: {}", c.layer, ttr::to_string(c.form), p.why_absent(c.form)),
                    "--form");
      if (!GateKind(c.gates).gentle() && !GateKind::has_gates(p))
        throw Error(fmt::format("{} has no gates of its own; --gates {} would change nothing", c.layer, c.gates),
                    "--gates");
    }
  InterruptGuard guard;
  Bench bench(options);
  const bool whole = bench.run(groups);
  const bool compared = !options.compare.empty();
  if (options.json) {
    Json cases = Json::array(), refused = Json::array();
    for (const Row& row : bench.rows()) cases.push(json_of(row, earlier));
    for (const Refused& r : bench.refused()) refused.push(Json::object().set("case", r.name).set("why", r.why));
    fmt::print(
        "{}\n",
        Json::object().set("machine", json_of(bench.limits())).set("cases", cases).set("refused", refused).dump());
  } else {
    TextTable table(header(compared));
    for (const Row& row : bench.rows()) table.row(cells_of(row, earlier, compared));
    fmt::print("{}\n{}", limits_text(bench.limits()), table.text());
    for (const Refused& r : bench.refused()) fmt::print("not measured: {}: {}\n", r.name, r.why);
  }
  if (report_file && whole) {
    report_file->write(report_of(bench, earlier, options));
    report_file->commit();
  }
  if (!whole) {
    tell("ttr: interrupted; the cases above are complete\n");
    return 128 + interrupted();
  }
  return bench.refused().empty() ? 0 : 1;
}

}  // namespace ttr::cli
