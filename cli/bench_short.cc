// `ttr bench short`: the time of a token in prompts of few tokens, where Form::best goes over from the token loop to
// chunks.
//
// For every layer and size all lengths from 1 to --longest take turns, and the median of several runs counts. The last
// column is the largest ratio between the time of a token at two neighbouring lengths of at least two tokens: a prompt
// of one token more should cost about one token more.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "aside.h"
#include "bench.h"
#include "bench_case.h"
#include "json.h"
#include "progress.h"
#include "standard_files.h"
#include "text_table.h"

namespace ttr::cli {
namespace {

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

// Seconds of a token for 1, 2, .. tokens; empty after Ctrl-C.
std::vector<double> measure(BenchCase spec, const ShortOptions& options) {
  std::vector<std::unique_ptr<CaseRun>> cases;
  for (std::int64_t time = 1; time <= options.longest; ++time) {
    spec.time = time;
    cases.push_back(std::make_unique<CaseRun>(spec));
  }
  std::vector<std::vector<double>> seconds(cases.size());
  for (int round = 0; round < options.runs; ++round)
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const double one = cases[i]->timed();
      seconds[i].push_back(one / cases[i]->tokens_per_run());
      if (interrupted()) return {};
    }
  std::vector<double> result;
  result.reserve(seconds.size());
  for (const std::vector<double>& of : seconds) result.push_back(median(of));
  return result;
}

struct Jump {
  double ratio = 1;
  std::int64_t from = 0;  // tokens; the other length is one more
};
Jump largest_jump(const std::vector<double>& seconds) {
  Jump largest;
  for (std::size_t i = 1; i + 1 < seconds.size(); ++i) {
    const double ratio = std::max(seconds[i] / seconds[i + 1], seconds[i + 1] / seconds[i]);
    if (ratio > largest.ratio) largest = {ratio, static_cast<std::int64_t>(i) + 1};
  }
  return largest;
}

}  // namespace

int run_bench_short(const ShortOptions& given) {
  ShortOptions options = given;
  if (options.quick) options.dims = {8}, options.longest = 10, options.runs = 1, options.heads = 2;
  if (options.layers.empty()) options.layers = {"gla", "gated-deltanet", "rwkv-7", "kda", "mamba-2"};
  for (const int dim : options.dims)
    if (dim < 1 || dim > 4096) throw Error(fmt::format("--dim has {}; it can be 1 to 4096", dim), "--dim");
  if (options.longest < 3 || options.longest > 256)
    throw Error(fmt::format("--longest is {}; it can be 3 to 256", options.longest), "--longest");
  if (options.heads < 1 || options.heads > 1024)
    throw Error(fmt::format("--heads is {}; it can be 1 to 1024", options.heads), "--heads");
  if (options.runs < 1 || options.runs > 1000)
    throw Error(fmt::format("--runs is {}; it can be 1 to 1000", options.runs), "--runs");

  std::vector<std::int64_t> shown;
  for (const std::int64_t time : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 32, 33, 64})
    if (time <= options.longest) shown.push_back(time);
  std::vector<std::string> header = {"layer", "K = V"};
  for (const std::int64_t time : shown) header.push_back(fmt::format("T {}", time));
  header.push_back("largest jump");
  TextTable rows(header);
  Json json = Json::array();
  const InterruptGuard guard;
  Progress progress("measuring", !options.json);
  const double total = static_cast<double>(options.layers.size() * options.dims.size());
  double done = 0;
  for (const std::string& layer : options.layers)
    for (const int dim : options.dims) {
      BenchCase spec;
      spec.layer = layer, spec.key_dim = spec.value_dim = dim, spec.heads = options.heads;
      const std::vector<double> seconds =
          made_aside([spec, options] { return measure(spec, options); }).value_or(std::vector<double>());
      if (seconds.empty()) {
        progress.finish();
        tell("ttr: interrupted\n");
        return 128 + interrupted();
      }
      const Jump jump = largest_jump(seconds);
      std::vector<std::string> cells = {layer, std::to_string(dim)};
      for (const std::int64_t time : shown)
        cells.push_back(fmt::format("{:.2f}", seconds[static_cast<std::size_t>(time - 1)] * 1e6));
      cells.push_back(fmt::format("{:.2f} ({}, {})", jump.ratio, jump.from, jump.from + 1));
      rows.row(cells);
      Json times = Json::array();
      for (const double one : seconds) times.push(one * 1e6);
      json.push(Json::object()
                    .set("layer", layer)
                    .set("dim", dim)
                    .set("us_per_token", times)
                    .set("largest_jump", jump.ratio)
                    .set("from", jump.from));
      progress.update(++done, total, layer);
    }
  progress.finish();
  if (options.json) fmt::print("{}\n", Json::object().set("short", json).dump());
  else
    fmt::print("{}us per token of {} heads, one thread, T tokens from a fresh state\n", rows.text(), options.heads);
  return 0;
}

}  // namespace ttr::cli
