// `ttr bench latency`: how long a single decode step takes, and how long it can take: the median, and the tail of a million.
//
// A step is a prepared call with T = 1, timed by itself. Three cases of every layer:
//
//   normal      inputs as the layer's table says
//   denormal    q, k and v of about 1e-40, below the smallest normal float: no slower, because kernels flush them
//   one of N    a plan of N slots of which one advances, the others being given no token (packed sequences)
//
// Layers that keep their pairs are truncated to the same number after every step. Besides the clock: how often the steps ask
// for memory (allocation_count.h), how many system calls they make (system_calls.h; a second run, behind a filter), and how
// often the system took the core away meanwhile, which is what the worst of a million is made of on a busy machine.
#include <fmt/core.h>

#ifdef __linux__
#include <sys/resource.h>
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>

#include "allocation_count.h"
#include "aside.h"
#include "bench.h"
#include "commands.h"
#include "json.h"
#include "progress.h"
#include "regress_parts.h"
#include "standard_files.h"
#include "system_calls.h"
#include "text_table.h"
#include "ttr/ttr.h"

namespace ttr::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::int64_t ring = 64;  // different tokens

double nanoseconds(Clock::duration d) { return std::chrono::duration<double, std::nano>(d).count(); }

// Counts of durations: exact to a nanosecond below 65 us, to 1/64 above; a step touches one of them, so that the cache is
// the layer's.
class Histogram {
 public:
  void add(double ns) {
    ++all_;
    worst_ = std::max(worst_, ns);
    ++counts_[index(ns)];
  }
  double worst() const { return worst_; }
  double quantile(double share) const {
    const auto wanted = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(all_)));
    std::int64_t seen = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i)
      if ((seen += counts_[i]) >= wanted) return std::min(value(i), worst_);
    return worst_;
  }

 private:
  static constexpr std::size_t exact = 1 << 16, per_octave = 64, octaves = 32;
  static std::size_t index(double ns) {
    if (ns < static_cast<double>(exact)) return static_cast<std::size_t>(std::max(ns, 0.0));
    const double octave = std::log2(ns / static_cast<double>(exact));
    return exact + std::min(static_cast<std::size_t>(octave * per_octave), octaves * per_octave - 1);
  }
  static double value(std::size_t i) {
    if (i < exact) return static_cast<double>(i);
    return static_cast<double>(exact) * std::exp2(static_cast<double>(i - exact + 1) / per_octave);
  }
  std::vector<std::uint32_t> counts_ = std::vector<std::uint32_t>(exact + octaves * per_octave);
  std::int64_t all_ = 0;
  double worst_ = 0;
};

// Times that the system took the core away from this thread; -1 where it does not say.
long switches() {
#if defined(__linux__) && defined(RUSAGE_THREAD)
  rusage use{};
  if (getrusage(RUSAGE_THREAD, &use) == 0) return use.ru_nivcsw;
#endif
  return -1;
}

struct Case {
  std::string layer, name;
  int batch = 1;
  int slot = -1;  // the one that advances; -1: all
  bool denormal = false;
};
struct Row {
  Case of;
  std::string kernel;
  std::int64_t steps = 0, pairs = -1;
  double median = 0, p99 = 0, p9999 = 0, worst = 0;
  std::optional<long> allocations, switches;
  std::optional<SystemCalls> calls;
  std::string why_no_calls;
};

// A plan with its memory, ready to step.
class Steps {
 public:
  Steps(const Case& c, const LatencyOptions& options)
      : plan_(ttr::plan(c.layer, {c.batch, options.heads, 0, options.key_dim, options.value_dim})), slot_(c.slot) {
    const std::int64_t rows = slot_ < 0 ? c.batch : 1;  // sequences that advance
    Buffer probe(plan_.footprint(1).state);
    if (plan_.reset({probe.data(), probe.size()}) != Status::ok) throw Error("reset failed", c.layer);
    // A window fills by itself and then stays as it is; a list is cut after every step.
    constexpr std::int64_t many = 1 << 20;
    const bool has_end = plan_.footprint(many, Form::step).state == plan_.footprint(many / 2, Form::step).state;
    keeps_pairs_ = !has_end && plan_.capacity({probe.data(), probe.size()}) >= 0;
    pairs_ = keeps_pairs_ ? options.pairs : 0;
    const std::int64_t longest = keeps_pairs_ ? pairs_ + 1 : many;
    const Footprint bytes = plan_.footprint(longest, Form::step);
    state_ = Buffer(bytes.state);
    // A packed call is measured as a whole, whatever its sequences are.
    work_ = Buffer(std::max(bytes.workspace, plan_.footprint(keeps_pairs_ ? pairs_ + 1 : 1).workspace));

    const Plan one =
        ttr::plan(c.layer, {static_cast<int>(rows), options.heads, 0, options.key_dim, options.value_dim});
    if (slot_ >= 0) {
      for (int n = 0; n <= c.batch; ++n) begins_.push_back(n > slot_ ? 1 : 0);
      in_.cu_seqlens = begins_;
    }
    reads_.resize(static_cast<std::size_t>(ring));
    for (std::size_t i = 0; i < one.inputs().size(); ++i) {
      const InputInfo& info = one.inputs()[i];
      const bool moves = Axes(info.shape).has_any("TP");
      const bool scaled = c.denormal && (info.name == "q" || info.name == "k" || info.name == "v");
      std::vector<float>& all = numbers_.emplace_back();
      for (std::int64_t t = 0; t < (moves ? ring : 1); ++t)
        for (const double x : random_input(one, info, 1, static_cast<std::uint64_t>(1 + t * 100) + i))
          all.push_back(scaled ? static_cast<float>(x) * 1e-40f : static_cast<float>(x));
      const std::size_t size = all.size() / static_cast<std::size_t>(moves ? ring : 1);
      for (std::size_t t = 0; t < reads_.size(); ++t) reads_[t].push_back(all.data() + (moves ? t * size : 0));
      in_[info.name] = tensor_of<ConstTensor>(one, info);
    }
    for (const InputInfo& info : one.outputs()) {
      const bool first = &info == &one.outputs().front();
      if (first) {
        Tensor tensor = tensor_of<Tensor>(one, info);
        std::size_t size = 1;
        for (int a = 0; a < tensor.rank; ++a)
          size *= static_cast<std::size_t>(tensor.extent[static_cast<std::size_t>(a)]);
        answer_.resize(size);
        out_[info.name] = tensor;
      }
      writes_.push_back(first ? answer_.data() : nullptr);
    }
    call_.emplace(plan_.prepare(in_, out_, slot_ < 0 ? Form::step : Form::recurrent));
    start();
  }

  void start() {
    if (plan_.reset(state()) != Status::ok) throw Error("reset failed", plan_.name());
    for (std::int64_t t = 0; t < std::max<std::int64_t>(pairs_, 200); ++t) require(step(t)), put_back();
  }
  Status step(std::int64_t t) noexcept {
    return (*call_)(reads_[static_cast<std::size_t>(t % ring)], writes_, state(), {work_.data(), work_.size()});
  }
  // As many pairs as at first; not part of a step.
  void put_back() noexcept {
    if (!keeps_pairs_) return;
    for (int n = slot_ < 0 ? 0 : slot_; n < (slot_ < 0 ? plan_.shape().batch : slot_ + 1); ++n)
      if (plan_.tokens_kept(state(), n) > pairs_ && plan_.truncate(state(), n, pairs_) != Status::ok) failed_ = true;
  }
  void require(Status status) const {
    if (status != Status::ok || failed_)
      throw Error(fmt::format("a step of {} failed: {}", plan_.name(), to_string(status)), plan_.name());
  }
  const Plan& plan() const { return plan_; }
  bool keeps_pairs() const { return keeps_pairs_; }
  std::int64_t pairs() const { return pairs_; }

 private:
  State state() const { return {state_.data(), state_.size()}; }
  template <class Any>
  static Any tensor_of(const Plan& of, const InputInfo& info) {
    const std::vector<std::ptrdiff_t> extents = of.extents(info.shape, 1);
    Any tensor;
    tensor.type = Type::f32, tensor.rank = static_cast<int>(extents.size());
    std::ptrdiff_t stride = 1;
    for (std::size_t a = extents.size(); a-- > 0; stride *= extents[a])
      tensor.extent[a] = extents[a], tensor.stride[a] = stride;
    return tensor;
  }

  Plan plan_;
  int slot_;
  bool keeps_pairs_ = false, failed_ = false;
  std::int64_t pairs_ = 0;
  Buffer state_, work_;
  std::vector<std::int64_t> begins_;
  Inputs in_;
  Outputs out_;
  std::vector<std::vector<float>> numbers_;
  std::vector<float> answer_;
  std::vector<std::vector<const void*>> reads_;  // of every token of the ring
  std::vector<void*> writes_;
  std::optional<Prepared> call_;
};

// Nothing: interrupted.
std::optional<Row> measured(const Case& c, const LatencyOptions& options) {
  const auto made = made_aside([c, options] { return std::make_shared<Steps>(c, options); });
  if (!made) return {};
  Steps& steps = **made;
  Row row;
  row.of = c, row.kernel = steps.plan().kernel(), row.steps = options.steps;
  if (steps.keeps_pairs()) row.pairs = steps.pairs();
  Histogram histogram;
  Status status = Status::ok;
  const long before = switches(), allocated = allocations();
  count_allocations(true);
  for (std::int64_t t = 0; t < options.steps && status == Status::ok && !interrupted(); ++t) {
    const Clock::time_point begin = Clock::now();
    status = steps.step(t);
    histogram.add(nanoseconds(Clock::now() - begin));
    steps.put_back();
  }
  count_allocations(false);
  steps.require(status);
  row.median = histogram.quantile(0.5), row.p99 = histogram.quantile(0.99);
  row.p9999 = histogram.quantile(0.9999), row.worst = histogram.worst();
  if (counts_allocations()) row.allocations = allocations() - allocated;
  if (before >= 0) row.switches = switches() - before;
  row.calls = count_system_calls(
      [&] {
        for (std::int64_t t = 0; t < std::min<std::int64_t>(options.steps, 100'000) && !interrupted(); ++t)
          static_cast<void>(steps.step(t)), steps.put_back();
      },
      row.why_no_calls);
  if (interrupted()) return {};
  return row;
}

// What reading the clock twice takes, which is part of every figure.
double clock_median() {
  Histogram histogram;
  for (int i = 0; i < 100'000; ++i) {
    const Clock::time_point begin = Clock::now();
    histogram.add(nanoseconds(Clock::now() - begin));
  }
  return histogram.quantile(0.5);
}

std::string time_text(double ns) { return ns < 1e6 ? short_number(ns / 1e3) : fmt::format("{:.0f}", ns / 1e3); }

template <class N>
std::string count_text(const std::optional<N>& n) {
  return n ? fmt::format("{}", *n) : "-";
}

Json json_of(const Row& row, const LatencyOptions& options) {
  Json j = Json::object();
  j.set("layer", row.of.layer).set("case", row.of.name).set("kernel", row.kernel).set("dtype", "f32");
  j.set("d_key", options.key_dim).set("d_value", options.value_dim).set("heads", options.heads);
  j.set("batch", row.of.batch).set("steps", row.steps);
  if (row.pairs >= 0) j.set("pairs", row.pairs);
  j.set("median_ns", row.median).set("p99_ns", row.p99).set("p99_99_ns", row.p9999).set("worst_ns", row.worst);
  j.set("allocations", row.allocations ? Json(std::int64_t{*row.allocations}) : Json());
  j.set("system_calls", row.calls ? Json(std::int64_t{row.calls->count}) : Json());
  if (!row.calls) j.set("system_calls_why_not", row.why_no_calls);
  j.set("switches", row.switches ? Json(std::int64_t{*row.switches}) : Json());
  return j;
}

void check(const LatencyOptions& options) {
  const auto within = [](const char* name, std::int64_t n, std::int64_t least, std::int64_t most) {
    if (n < least || n > most) throw Error(fmt::format("{} is {}; it can be {} to {}", name, n, least, most), name);
  };
  within("--steps", options.steps, 100, 1'000'000'000);
  within("--key-dim", options.key_dim, 1, 4096);
  within("--value-dim", options.value_dim, 1, 4096);
  within("--heads", options.heads, 1, 4096);
  within("--slots", options.slots, 2, 65536);
  within("--pairs", options.pairs, 1, 1 << 24);
}

}  // namespace

int run_bench_latency(LatencyOptions options) {
  if (options.value_dim == 0) options.value_dim = options.key_dim;
  check(options);
  std::vector<std::string> layers = options.layers;
  if (layers.empty()) layers = {"gated-deltanet", "mamba-2", "softmax-attention", "rls"};
  std::vector<Case> cases;
  for (const std::string& layer : layers) {
    const Plan p = ttr::plan(layer, {1, options.heads, 0, options.key_dim, options.value_dim});  // refuses early
    if (!p.options().causal) throw Error(layer + " is not causal: it has no step", layer);
    const int slot = options.slots / 2;
    cases.push_back({layer, "normal"});
    cases.push_back({layer, "denormal", 1, -1, true});
    cases.push_back({layer, fmt::format("one of {}", options.slots), options.slots, slot});
  }
  InterruptGuard guard;
  Progress progress("bench latency", true);
  std::vector<Row> rows;
  bool is_clean = true;
  for (const Case& c : cases) {
    progress.update(static_cast<double>(rows.size()), static_cast<double>(cases.size()),
                    fmt::format("{}, {}", c.layer, c.name));
    if (interrupted()) break;
    std::optional<Row> measured_row = measured(c, options);
    if (!measured_row) break;
    rows.push_back(std::move(*measured_row));
    const Row& row = rows.back();
    if (row.kernel == "oracle") continue;  // which promises nothing
    is_clean = is_clean && row.allocations.value_or(0) == 0 && (!row.calls || row.calls->count == 0);
  }
  progress.finish();
  const double clock = clock_median();
  if (options.json) {
    Json list = Json::array();
    for (const Row& row : rows) list.push(json_of(row, options));
    Json all = Json::object();
    fmt::print("{}\n", all.set("clock_ns", clock).set("rows", list).dump());
  } else {
    TextTable table(
        {"layer", "case", "median us", "p99", "p99.99", "worst", "allocations", "system calls", "switches"});
    for (const Row& row : rows)
      table.row({row.of.layer, row.of.name, time_text(row.median), time_text(row.p99), time_text(row.p9999),
                 time_text(row.worst), count_text(row.allocations),
                 row.calls ? fmt::format("{}", row.calls->count) : "-", count_text(row.switches)});
    fmt::print("{}", table.text());
    fmt::print("{} steps each, f32, H = {}, K = {}, V = {}", options.steps, options.heads, options.key_dim,
               options.value_dim);
    fmt::print("; layers that keep pairs have {}. Reading the clock, which is in every figure: {:.0f} ns.\n",
               options.pairs, clock);
    for (const Row& row : rows)
      if (!row.calls) {
        fmt::print("System calls were not counted: {}.\n", row.why_no_calls);
        break;
      }
    if (!counts_allocations()) fmt::print("This build cannot count allocations.\n");
  }
  if (interrupted()) {
    tell("ttr: interrupted; what is above is complete\n");
    return 128 + interrupted();
  }
  return is_clean ? 0 : 1;
}

}  // namespace ttr::cli
