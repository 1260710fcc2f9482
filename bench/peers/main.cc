// ttr beside ggml: both sides in one process, on the same numbers, by turns. A row is measured only if both give the same answers.
//
//   cmake --preset release -DTTR_GGML_DIR=/path/to/llama.cpp && cmake --build --preset release --target ttr_ggml
//   build/bench/peers/ttr_ggml                       all rows, markdown
//   build/bench/peers/ttr_ggml --json gla kda        these operations
//   build/bench/peers/ttr_ggml --merge a.json b.json one table of the rows of several runs, with their means
//
// A prompt is 4096 tokens from a fresh state. Decoding is one call of ttr per token, and one graph of ggml of many tokens, in
// favour of ggml: a state goes on from token to token, and attention has 4096 pairs already. Times are medians of the rounds.
//
// The limit of a row is what ttr could have at most: the operations that its kernels execute (Options::count) at the
// multiply-adds per second measured between the rounds, and its bytes at the bandwidth of the memory that holds them.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <sstream>

#include "bench_case.h"
#include "json.h"
#include "operations.h"

namespace ttr::peers {
namespace {

constexpr std::int64_t prompt = 4096, steps = 64, steps_with_pairs = 16;
constexpr double least_seconds = 0.004;  // of a run

struct Row {
  std::string operation, theirs, gates;
  bool decode = false;
  int heads = 8, dim = 64, threads = 1;
  double off = 0, ours = 0, ggml = 0, limit = 0;  // seconds of a token
  double ratio() const { return ggml / ours; }
  double best_ratio() const { return ggml / limit; }
};

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> all) {
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}

// max |ours - theirs| / max |theirs|; infinite where one is not a number.
double difference(std::span<const float> ours, const float* theirs) {
  double off = 0, largest = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double a = ours[i], b = theirs[i];
    if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
    off = std::max(off, std::abs(a - b)), largest = std::max(largest, std::abs(b));
  }
  return off / std::max(largest, 1e-30);
}

// Runs until they take long enough; the state of ours starts anew where it keeps pairs, and goes on where it does not.
class Side {
 public:
  Side(std::function<void()> anew, std::function<void()> run, bool every_time)
      : anew_(std::move(anew)), run_(std::move(run)), every_time_(every_time) {
    for (double seconds = timed(); seconds < least_seconds && repeats_ < (1 << 20); seconds = timed()) repeats_ *= 2;
  }
  double timed() {  // seconds of all repeats
    double seconds = 0;
    for (int r = 0; r < repeats_; ++r) {
      if (r == 0 || every_time_) anew_();
      if (every_time_) seconds += seconds_of(run_);
    }
    if (every_time_) return seconds;
    return seconds_of([&] {
      for (int r = 0; r < repeats_; ++r) run_();
    });
  }
  double of_a_run() { return timed() / repeats_; }

 private:
  std::function<void()> anew_, run_;
  bool every_time_;
  int repeats_ = 1;
};

// Seconds of a token of ours at the limits of the machine; 0 where its kernels do not count. What is kept in half precision is
// half of the bytes.
double limit_of(const Operation& operation, const Row& row, double peak) {
  static const cli::MachineLimits machine = cli::measure_machine(row.threads, false);
  const Shape shape = operation.shape(row.heads, row.dim);
  cli::BenchCase spec;
  spec.layer = operation.layer, spec.pass = row.decode ? cli::Pass::step : cli::Pass::forward;
  spec.key_dim = shape.key_dim, spec.value_dim = shape.value_dim, spec.heads = shape.heads;
  spec.key_heads = shape.key_heads == shape.heads ? 0 : shape.key_heads, spec.time = prompt;
  spec.gates = row.gates.empty() ? "gentle" : row.gates;
  const cli::CaseRun run(spec);
  const double flops = cli::executed_flops_per_token(spec);
  if (std::isnan(flops)) return 0;
  const double seconds = 1 / cli::limit_of(run, flops, peak, machine).tokens_per_s;
  return operation.half_pairs && row.decode ? seconds / 2 : seconds;
}

Row measure(const Operation& operation, Row row, int rounds) {
  OurCase spec;
  spec.layer = operation.layer, spec.scale = operation.scale, spec.gates = row.gates.empty() ? "gentle" : row.gates;
  spec.shape = operation.shape(row.heads, row.dim), spec.threads = row.threads;
  spec.half_pairs = operation.half_pairs, spec.decode = row.decode;
  spec.tokens = !row.decode ? prompt : operation.pairs ? steps_with_pairs : steps;
  spec.before = row.decode && operation.pairs ? prompt : 0;
  Ours ours(spec);

  Theirs theirs(row.threads);
  std::vector<Answers> answers;
  std::vector<ggml_tensor*> outputs;
  ggml_tensor* state = nullptr;
  for (std::int64_t token = 0, each = row.decode ? 1 : spec.tokens; token < spec.tokens; token += each) {
    theirs.next_step();
    answers.push_back(operation.build(theirs, ours, spec.before + token, each, state));
    for (const auto& [name, node] : answers.back()) outputs.push_back(node);
  }
  theirs.finish(outputs);

  ours.from_fresh(), ours.run(), theirs.run();
  // Of decoding the last token, in which all before it are: the places of earlier ones have been used again.
  const std::int64_t first = row.decode ? spec.tokens - 1 : 0;
  for (const auto& [name, node] : answers.back())
    row.off = std::max(
        row.off, difference(ours.output(name, first, spec.tokens - first), static_cast<const float*>(node->data)));
  if (!(row.off <= operation.tolerance))
    throw Error(fmt::format(
        "{}, {}, d = {}, gates {}: ttr and ggml differ by {:.1e}, more than {:.0e}; nothing is measured",
        row.operation, row.decode ? "decode" : "prompt", row.dim, spec.gates, row.off, operation.tolerance));

  Side us([&] { ours.from_fresh(); }, [&] { ours.run(); }, operation.pairs || !row.decode);
  Side them([] {}, [&] { theirs.run(); }, false);
  std::vector<double> our_times, their_times, peaks;
  for (int round = 0; round < rounds; ++round) {
    peaks.push_back(cli::fma_gflops(Type::f32, row.threads, 0.001));
    our_times.push_back(us.of_a_run()), their_times.push_back(them.of_a_run());
  }
  const auto tokens = static_cast<double>(spec.tokens);
  row.ours = median(our_times) / tokens, row.ggml = median(their_times) / tokens;
  row.limit = limit_of(operation, row, median(peaks));
  return row;
}

double geometric_mean(const std::vector<Row>& rows, const std::function<bool(const Row&)>& wanted,
                      double (Row::*ratio)() const, int* count = nullptr) {
  double sum = 0;
  int n = 0;
  for (const Row& row : rows)
    if (wanted(row) && std::isfinite((row.*ratio)())) sum += std::log((row.*ratio)()), ++n;
  if (count) *count = n;
  return n ? std::exp(sum / n) : std::numeric_limits<double>::quiet_NaN();
}

struct Mean {
  std::string what;
  int rows;
  double ratio, limit;
};

std::vector<Mean> means(const std::vector<Row>& rows) {
  std::vector<Mean> all;
  const auto add = [&](const std::string& what, const std::function<bool(const Row&)>& wanted) {
    Mean mean{what, 0, 0, 0};
    mean.ratio = geometric_mean(rows, wanted, &Row::ratio, &mean.rows);
    mean.limit = geometric_mean(rows, wanted, &Row::best_ratio);
    if (mean.rows) all.push_back(mean);
  };
  for (const bool decode : {false, true})
    add(decode ? "decode" : "prompt", [&](const Row& row) { return row.decode == decode; });
  for (const char* gates : {"gentle", "mixed", "strong", ""})
    add(*gates ? std::string("gates ") + gates : "no gates", [&](const Row& row) { return row.gates == gates; });
  add("all", [](const Row&) { return true; });
  // Operations without gates have fewer rows: here each counts once.
  Mean each{"operations, each once", 0, 0, 0};
  int counted = 0;
  for (const Operation& operation : operations()) {
    const auto wanted = [&](const Row& row) { return row.operation == operation.name; };
    const double ratio = geometric_mean(rows, wanted, &Row::ratio);
    if (!std::isfinite(ratio)) continue;
    each.ratio += std::log(ratio), ++each.rows;
    const double limit = geometric_mean(rows, wanted, &Row::best_ratio);
    if (std::isfinite(limit)) each.limit += std::log(limit), ++counted;
  }
  each.ratio = std::exp(each.ratio / each.rows);
  each.limit = counted ? std::exp(each.limit / counted) : std::numeric_limits<double>::quiet_NaN();
  all.push_back(each);
  return all;
}

std::string tokens_text(double seconds) {
  const double rate = 1 / seconds;
  return rate >= 1e6 ? fmt::format("{:.2f}M", rate * 1e-6) : fmt::format("{:.1f}k", rate * 1e-3);
}

// One line per operation, pass and dimension; the gates beside each other.
std::string markdown(const std::vector<Row>& rows) {
  std::string text =
      "| operation | pass | d | threads | gates | ttr, tokens/s | ggml, tokens/s | ttr / ggml | limit / ggml "
      "|\n|---|---|---|---|---|---|---|---|---|\n";
  std::vector<bool> done(rows.size(), false);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (done[i]) continue;
    std::string gates, ours, ggml, ratio, limit;
    for (std::size_t j = i; j < rows.size(); ++j) {
      const Row &a = rows[i], &b = rows[j];
      if (a.operation != b.operation || a.decode != b.decode || a.dim != b.dim || a.threads != b.threads || done[j])
        continue;
      done[j] = true;
      const char* between = gates.empty() && ours.empty() ? "" : ", ";
      gates += between + b.gates, ours += between + tokens_text(b.ours), ggml += between + tokens_text(b.ggml);
      ratio += fmt::format("{}{:.1f}", between, b.ratio());
      if (b.limit > 0) limit += fmt::format("{}{:.1f}", between, b.best_ratio());
    }
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", rows[i].operation,
                        rows[i].decode ? "decode" : "prompt", rows[i].dim, rows[i].threads, gates, ours, ggml, ratio,
                        limit);
  }
  text += "\n| geometric mean over | rows | ttr / ggml | limit / ggml |\n|---|---|---|---|\n";
  for (const Mean& mean : means(rows))
    text += fmt::format("| {} | {} | {:.2f} | {} |\n", mean.what, mean.rows, mean.ratio,
                        std::isfinite(mean.limit) ? fmt::format("{:.2f}", mean.limit) : "");
  return text;
}

std::string json(const std::vector<Row>& rows) {
  cli::Json list = cli::Json::array(), averages = cli::Json::array();
  for (const Row& row : rows) {
    cli::Json one = cli::Json::object();
    one.set("operation", row.operation).set("ggml", row.theirs).set("pass", row.decode ? "decode" : "prompt");
    one.set("heads", row.heads).set("dim", row.dim).set("threads", row.threads).set("gates", row.gates);
    one.set("off", row.off).set("ours_seconds", row.ours).set("ggml_seconds", row.ggml).set("ratio", row.ratio());
    one.set("limit_seconds", row.limit);
    list.push(one);
  }
  for (const Mean& mean : means(rows)) {
    cli::Json one = cli::Json::object();
    averages.push(
        one.set("over", mean.what).set("rows", mean.rows).set("ratio", mean.ratio).set("limit", mean.limit));
  }
  cli::Json all = cli::Json::object();
  return all.set("rows", list).set("means", averages).dump();
}

std::vector<Row> rows_of(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(path + " cannot be read; give a file that --json has written", "--merge");
  std::stringstream text;
  text << file.rdbuf();
  const cli::Json list = cli::Json::parse(text.str(), path).at("rows");
  std::vector<Row> rows(list.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const cli::Json one = list.at(i);
    Row& row = rows[i];
    row.operation = one.at("operation").text(), row.theirs = one.at("ggml").text(),
    row.gates = one.at("gates").text();
    row.decode = one.at("pass").text() == "decode", row.heads = static_cast<int>(one.at("heads").number());
    row.dim = static_cast<int>(one.at("dim").number()), row.threads = static_cast<int>(one.at("threads").number());
    row.off = one.at("off").number(), row.ours = one.at("ours_seconds").number();
    row.ggml = one.at("ggml_seconds").number(), row.limit = one.at("limit_seconds").number();
  }
  return rows;
}

struct Choice {
  std::vector<std::string> names, gates = {"gentle", "mixed", "strong"}, passes = {"prompt", "decode"}, merge;
  std::vector<int> dims = {64, 128};
  int heads = 8, threads = 1, rounds = 7;
  bool json = false;
};

std::vector<Row> measured(const Choice& choice) {
  std::vector<Row> rows;
  for (const std::string& name : choice.names)
    if (std::none_of(operations().begin(), operations().end(),
                     [&](const Operation& o) { return o.name.starts_with(name); })) {
      std::string known;
      for (const Operation& operation : operations()) known += (known.empty() ? "" : "; ") + operation.name;
      throw Error(fmt::format("there is no operation '{}'; there are: {}", name, known));
    }
  for (const Operation& operation : operations()) {
    const auto named = [&](const std::string& name) { return operation.name.starts_with(name); };
    if (!choice.names.empty() && std::none_of(choice.names.begin(), choice.names.end(), named)) continue;
    for (const std::string& pass : choice.passes)
      for (const int dim : choice.dims)
        for (const std::string& gates : operation.gated ? choice.gates : std::vector<std::string>{""}) {
          Row row;
          row.operation = operation.name, row.theirs = operation.theirs, row.gates = gates;
          row.decode = pass == "decode", row.dim = dim, row.heads = choice.heads, row.threads = choice.threads;
          rows.push_back(measure(operation, row, choice.rounds));
        }
  }
  return rows;
}

}  // namespace
}  // namespace ttr::peers

int main(int argc, char** argv) {
  using namespace ttr::peers;
  Choice choice;
  CLI::App app{"ttr beside ggml, in one process on the same numbers."};
  app.name("ttr_ggml");
  app.add_option("operations", choice.names, "names of the table, or how they begin; all unless given");
  app.add_option("--gates", choice.gates, "as in ttr bench")->delimiter(',')->capture_default_str();
  app.add_option("--pass", choice.passes, "prompt, decode")
      ->delimiter(',')
      ->check(CLI::IsMember({"prompt", "decode"}))
      ->capture_default_str();
  app.add_option("--dim", choice.dims, "K = V of a head")
      ->delimiter(',')
      ->check(CLI::Range(16, 256))
      ->capture_default_str();
  app.add_option("--heads", choice.heads, "heads")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--threads", choice.threads, "threads of both sides")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--rounds", choice.rounds, "times that both sides take their turn")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--merge", choice.merge, "measure nothing: the table of the rows of these files of --json");
  app.add_flag("--json", choice.json, "JSON instead of markdown");
  try {
    app.parse(argc, argv);
    std::vector<Row> rows;
    if (choice.merge.empty()) rows = measured(choice);
    for (const std::string& path : choice.merge)
      for (const Row& row : rows_of(path)) rows.push_back(row);
    fmt::print("{}\n", choice.json ? json(rows) : markdown(rows));
    return 0;
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "ttr_ggml: {}; `ttr_ggml --help` says what there is\n", error.what());
  } catch (const ttr::Error& error) {
    fmt::print(stderr, "ttr_ggml: {}{}\n", error.what(), error.where().empty() ? "" : " (" + error.where() + ")");
  } catch (const std::exception& error) {
    fmt::print(stderr, "ttr_ggml: {}\n", error.what());
  }
  return 2;
}
