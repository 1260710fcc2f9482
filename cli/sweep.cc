#include "sweep.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include <fmt/format.h>

#include "atomic_file.h"
#include "progress.h"
#include "ranks.h"
#include "shell.h"
#include "standard_files.h"
#include "ttr/status.h"
#include "ttr/version.h"

namespace ttr::cli {
namespace {

std::string spec_text(std::vector<std::string>& what) {
  if (what.empty() || what.front().find('=') != std::string::npos) return "";
  const std::string file = what.front();
  what.erase(what.begin());
  std::ifstream in(file, std::ios::binary);
  if (!in || std::filesystem::is_directory(file))
    throw Error(fmt::format("the sweep '{}' cannot be read; name a file, or settings such as task=parity", file),
                "command line");
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

int run_sweep(const SweepOptions& options) {
  if (options.jobs < 0)
    throw Error(fmt::format("--jobs is {}; it is at least 1, or 0 for one on each core", options.jobs), "--jobs");
  std::vector<std::string> overrides = options.what;
  const std::string text = spec_text(overrides);
  const SweepSpec spec = parse_sweep(text, options.variant, overrides);
  const std::vector<SweepRun> runs = expand(spec);
  if (options.list) {
    for (const SweepRun& run : runs)
      if (ranks().first()) fmt::print("{}\n", shell_command(train_words(run.settings)));
    return 0;
  }
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int jobs = options.jobs ? options.jobs : std::max(1, cores / ranks().here());
  const std::string folder = options.out + "/runs";
  const std::vector<SweepResult> results = run_children(runs, folder, jobs, options.json || !ranks().first());
  if (!ranks().first()) return 0;
  std::size_t done = 0;
  for (const SweepResult& one : results) done += one.saved.is_null() ? 0 : 1;
  if (done < runs.size()) {
    tell("ttr: stopped; {} of {} runs are done, and the same command goes on with the others\n", done, runs.size());
    return 128 + (interrupted() ? interrupted() : SIGINT);
  }
  const std::vector<SweepGroup> groups = reduce(spec, results);
  const SweepTable table = sweep_table(spec, groups);
  const std::vector<std::string> broken = broken_expectations(spec, groups);
  Json all = Json::object().set("title", spec.title).set("command", options.command).set("date", now_text());
  all.set("version", TTR_VERSION).set("variant", options.variant).set("text", text);
  double seconds = 0;
  Json list = Json::array(), summary = Json::array();
  const bool curves = spec.x.starts_with("curve") || spec.y.starts_with("curve");
  for (const SweepResult& one : results) {
    seconds += one.saved.at("seconds").number();
    Json saved = one.saved;
    if (!one.result.is_null()) {
      Json result = one.result;
      for (const char* repeated : {"task", "out", "config", "settings"})
        result.remove(repeated);            // the run's settings
      if (!curves) result.remove("curve");  // most of the bytes
      if (!result.at("eval").is_null()) result.set("eval", result.at("eval").remove("model").remove("data"));
      saved.set("result", result);
    }
    list.push(saved);
  }
  for (const std::vector<std::string>& row : table.rows) {
    Json cells = Json::object();
    for (std::size_t i = 0; i < row.size(); ++i) cells.set(table.header[i], row[i]);
    summary.push(cells);
  }
  all.set("seconds_of_all_runs", seconds).set("table", summary).set("runs", list);
  const std::string page = fmt::format("# {}\n\n    {}\n\n{}", spec.title.empty() ? "Sweep" : spec.title,
                                       options.command, table.markdown());
  const auto file = [&](const char* usual, const char* ending) {
    return options.out + "/" + (options.name.empty() ? usual : options.name) + ending;
  };
  write_file(file("results", ".json"), "--out", all.dump(1) + "\n");
  write_file(file("table", ".md"), "--out", page);
  if (!spec.x.empty()) write_file(file("plot", ".svg"), "--out", plot_svg(sweep_plot(spec, groups), true));
  if (options.json) fmt::print("{}\n", all.dump());
  else
    fmt::print("{}\n{} runs, {:.0f} s of them in all; {}, {}{}\n", table.text(), runs.size(), seconds,
               file("results", ".json"), file("table", ".md"), spec.x.empty() ? "" : ", " + file("plot", ".svg"));
  for (const std::string& one : broken) tell("ttr: not as expected: {}\n", one);
  return broken.empty() ? 0 : 1;
}

}  // namespace ttr::cli
