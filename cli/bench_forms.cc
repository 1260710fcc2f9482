// `ttr bench forms`: the token loop against chunks of several sizes, for the families that choose between them.
//
// For every family, instruction set of this machine and size of the state, forwards and backwards: all candidates take
// turns, the median of several runs counts, of several kinds of gates their geometric mean, the fastest is chosen; of two
// within 3 percent the simpler, that is the token loop before chunks and short chunks before long ones. What the present
// table chooses takes part, so the last column says how far it is from the fastest. --write makes the table (src/families/common/choice_table.inc); rows for vectors
// that this machine does not have are kept from the file that is there.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

#include "aside.h"
#include "atomic_file.h"
#include "bench.h"
#include "bench_case.h"
#include "bench_gates.h"
#include "json.h"
#include "progress.h"
#include "standard_files.h"
#include "text_table.h"

namespace ttr::cli {
namespace {

struct Family {
  const char *name, *layer;  // as in families/common/choice.h, and a layer that is little more than its kernel
};
constexpr Family families[] = {{"decay", "simple-gla"},
                               {"delta", "gated-deltanet"},
                               {"gated", "gla"},
                               {"gated_delta", "kda"},
                               {"dplr", "dplr"},
                               {"oja", "gated-oja"},
                               {"momentum", "momentum-deltanet"},
                               {"stabilised", "mlstm"}};

struct Target {
  int vector_bytes;
  std::string name;
};
// The best instruction set of this machine for each size of a vector.
std::vector<Target> targets(const std::vector<int>& wanted) {
  std::vector<Target> found;
  const std::pair<int, std::vector<const char*>> sizes[] = {
      {16, {"SSE4", "NEON"}}, {32, {"AVX2"}}, {64, {"AVX3_DL", "AVX3"}}};
  for (const auto& [bytes, names] : sizes)
    for (const char* name : names) {
      if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), bytes) == wanted.end()) continue;
      Options options;
      options.target = name;
      try {
        plan("nlms", {}, options);
      } catch (const Error&) {
        continue;
      }
      found.push_back({bytes, name});
      break;
    }
  if (found.empty()) throw Error("this machine has no vectors of the bytes that --vectors names", "--vectors");
  return found;
}

struct Candidate {
  Form form = Form::recurrent;
  int chunk = 0;
  double seconds = 0;
};
std::string text(const Candidate& c) {
  return c.form == Form::chunk ? fmt::format("chunk {}", c.chunk) : std::string(to_string(c.form));
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.empty() ? std::numeric_limits<double>::quiet_NaN() : x[x.size() / 2];
}

// Seconds of every candidate, the geometric mean over the gates; the last is what the table says.
std::vector<Candidate> measure(const BenchCase& spec, const FormsOptions& options) {
  std::vector<Candidate> candidates = {{Form::recurrent, 0, 0}};
  for (const int chunk : options.chunks) candidates.push_back({Form::chunk, chunk, 0});
  candidates.push_back({Form::best, 0, 0});
  const bool gated = GateKind::has_gates(plan(spec.layer, {1, spec.heads, 0, spec.key_dim, spec.value_dim}));
  const std::vector<std::string> kinds = gated ? options.gates : std::vector<std::string>{"gentle"};
  for (const std::string& gates : kinds) {
    std::vector<std::unique_ptr<CaseRun>> runs;
    for (const Candidate& c : candidates) {
      BenchCase one = spec;
      one.form = c.form, one.chunk = c.chunk, one.gates = gates;
      runs.push_back(std::make_unique<CaseRun>(one));
    }
    std::vector<std::vector<double>> times(candidates.size());
    for (int round = 0; round < options.runs; ++round)
      for (std::size_t i = 0; i < runs.size(); ++i) {
        const double seconds = runs[i]->timed();
        times[i].push_back(seconds / runs[i]->tokens_per_run() * static_cast<double>(spec.time));
        if (interrupted()) return candidates;
      }
    for (std::size_t i = 0; i < candidates.size(); ++i)
      candidates[i].seconds += std::log(median(times[i])) / static_cast<double>(kinds.size());
  }
  for (Candidate& c : candidates) c.seconds = std::exp(c.seconds);
  return candidates;
}

// A forward call goes in time blocks, which must be whole chunks (whole_chunks in families/common/choice.h; a test makes
// sure of it).
constexpr int longest_forward = 64;
std::vector<Candidate> eligible(std::vector<Candidate> all, bool backward) {
  if (!backward) std::erase_if(all, [](const Candidate& c) { return c.chunk > longest_forward; });
  return all;
}
// The simplest of those that are nearly the fastest.
Candidate chosen(const std::vector<Candidate>& candidates) {
  double fastest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i + 1 < candidates.size(); ++i) fastest = std::min(fastest, candidates[i].seconds);
  return *std::find_if(candidates.begin(), candidates.end(),
                       [&](const Candidate& c) { return c.seconds <= 1.03 * fastest; });
}
// The chunk for callers who ask for the chunk form.
int chunk_of(const std::vector<Candidate>& candidates) {
  const auto last = candidates.end() - 1;
  return std::min_element(candidates.begin() + 1, last,
                          [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; })
      ->chunk;
}

std::string table_line(const char* family, int vector_bytes, int dim, const std::vector<Candidate>& forward,
                       const std::vector<Candidate>& backward) {
  const auto choice = [](const std::vector<Candidate>& c) {
    return fmt::format("{{{}, {}}}", to_string(chosen(c).form), chunk_of(c));
  };
  return fmt::format("{{\"{}\", {}, {}, {}, {}}},", family, vector_bytes, dim, choice(forward), choice(backward));
}

// Lines of the table that is there, for vectors that were not measured.
std::multimap<std::string, std::string> kept_lines(const std::string& file, const std::vector<Target>& measured) {
  std::multimap<std::string, std::string> kept;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::string family;
    int bytes = 0;
    const std::size_t comma = line.find("\",");
    if (!line.starts_with("{\"") || comma == std::string::npos) continue;
    family = line.substr(2, comma - 2);
    std::istringstream(line.substr(comma + 2)) >> bytes;
    if (std::none_of(measured.begin(), measured.end(), [&](const Target& t) { return t.vector_bytes == bytes; }))
      kept.emplace(family, line);
  }
  return kept;
}

}  // namespace

int run_bench_forms(const FormsOptions& given) {
  FormsOptions options = given;
  if (options.quick) options.dims = {8, 16}, options.chunks = {4, 8}, options.time = 32, options.runs = 1;
  for (const int dim : options.dims)
    if (dim < 1 || dim > 4096) throw Error(fmt::format("--dim has {}; it can be 1 to 4096", dim), "--dim");
  for (const int chunk : options.chunks)
    if (chunk < 1 || 128 % chunk != 0)
      throw Error(fmt::format("--chunk has {}; it can be 1, 2, 4, ... 128", chunk), "--chunk");
  if (options.time < 16 || options.time > 1'000'000)
    throw Error(fmt::format("--time is {}; it can be 16 to 1000000", options.time), "--time");
  if (options.runs < 1 || options.runs > 1000)
    throw Error(fmt::format("--runs is {}; it can be 1 to 1000", options.runs), "--runs");
  for (const std::string& gates : options.gates) GateKind{gates};  // an Error before anything is measured
  if (options.gates.empty()) throw Error("--gates names none; it can be gentle, mixed, strong, ..", "--gates");
  const std::vector<Target> sets = targets(options.vectors);
  std::optional<AtomicFile> file;
  std::multimap<std::string, std::string> kept;
  if (!options.write.empty()) kept = kept_lines(options.write, sets), file.emplace(options.write, "--write");

  std::string table =
      "// Written by `ttr bench forms --write`: family, bytes of a vector, root of K V up to, forward, backward.\n"
      "// clang-format off\n";
  std::vector<std::string> header = {"family", "instructions", "K = V", "pass", "recurrent"};
  for (const int chunk : options.chunks) header.push_back(fmt::format("chunk {}", chunk));
  header.insert(header.end(), {"chosen", "table / chosen"});
  TextTable rows(header);
  Json json = Json::array();
  double worst = 0;
  const InterruptGuard guard;
  Progress progress("measuring", !options.json);
  const double total = static_cast<double>(std::size(families) * sets.size() * options.dims.size());
  double done = 0;
  for (const Family& family : families) {
    const auto [first, last] = kept.equal_range(family.name);
    for (auto line = first; line != last; ++line) table += line->second + "\n";
    for (const Target& target : sets)
      for (const int dim : options.dims) {
        std::array<std::vector<Candidate>, 2> both;
        for (const bool backward : {false, true}) {
          BenchCase spec;
          spec.layer = family.layer, spec.pass = backward ? Pass::backward : Pass::forward;
          spec.key_dim = spec.value_dim = dim, spec.heads = options.heads;
          spec.time = dim < 256 ? options.time : std::max<std::int64_t>(16, options.time / 4);
          spec.target = target.name;
          const auto measured = made_aside([spec, options] { return measure(spec, options); });
          if (!measured || interrupted()) {
            progress.finish();
            tell("ttr: interrupted; nothing was written\n");
            return 128 + interrupted();
          }
          const std::vector<Candidate>& all = *measured;
          const std::vector<Candidate> some = eligible(all, backward);
          both[backward] = some;
          const double ratio = all.back().seconds / chosen(some).seconds;
          worst = std::max(worst, ratio);
          std::vector<std::string> cells = {family.name, target.name, std::to_string(dim),
                                            backward ? "backward" : "forward"};
          Json times = Json::array();
          for (std::size_t i = 0; i + 1 < all.size(); ++i) {
            const double rate = static_cast<double>(spec.time) / all[i].seconds;
            cells.push_back(fmt::format("{:.1f}k", rate * 1e-3));
            times.push(Json::object()
                           .set("form", to_string(all[i].form))
                           .set("chunk", all[i].chunk)
                           .set("tokens_per_s", rate));
          }
          cells.insert(cells.end(), {text(chosen(some)), fmt::format("{:.2f}", ratio)});
          rows.row(cells);
          Json j = Json::object();
          j.set("family", family.name).set("layer", family.layer).set("target", target.name).set("dim", dim);
          j.set("pass", backward ? "backward" : "forward").set("candidates", times);
          json.push(j.set("chosen", text(chosen(some))).set("table_over_chosen", ratio));
        }
        table += table_line(family.name, target.vector_bytes, dim, both[0], both[1]) + "\n";
        progress.update(++done, total, family.name);
      }
  }
  progress.finish();
  table += "// clang-format on\n";
  if (options.json) fmt::print("{}\n", Json::object().set("forms", json).set("worst", worst).dump());
  else
    fmt::print(
        "{}tokens/s of {} heads, {} tokens (a quarter of it from 256 on), one thread; the table is at most {:.2f} "
        "times as slow as the chosen\n",
        rows.text(), options.heads, options.time, worst);
  if (file) file->write(table), file->commit();
  return 0;
}

}  // namespace ttr::cli
