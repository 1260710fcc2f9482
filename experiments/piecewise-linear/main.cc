// The program of the experiment: reads its options, runs the sweep, writes table.md, results.json and plot.svg.
//
// Exit status: 0; 2 with a sentence for anything the user can put right; 128 + signal after Ctrl-C, and then the files
// of an earlier run are untouched.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "atomic_file.h"
#include "outcomes.h"
#include "output.h"
#include "progress.h"
#include "regress_parts.h"
#include "sweep.h"

namespace {

using ttr::Error;
using namespace ttr::piecewise;

constexpr const char* usage = R"(usage: piecewise_linear [options]

Layers on a regression whose target is linear in pieces; see README.md.

  --out FOLDER    where table.md, results.json and plot.svg go (default: this folder)
  --quick         a small sweep that takes about a second
  --dims LIST     dimensions, such as 8,32 (default 8,16,32,64; quick: 4,8,16)
  --segments LIST segment lengths (default 64,128,256,512; quick: 32,64,128)
  --centre X      distance of the regions from zero over sqrt(d) (default 1.5)
  --seeds N       sequences measured (default 16; quick: 4)
  --seed N        the first number of the random streams (default 2025)
  --threads N     threads; the numbers do not depend on it (default: all)
  --help          this text
)";

struct Settings {
  SweepOptions sweep;
  std::string out = ".";
  bool quick = false, help = false;
};

template <class Number>
Number parse(std::string_view option, std::string_view text, Number low, Number high) {
  Number value{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end != text.data() + text.size() || value < low || value > high)
    throw Error(fmt::format("{} is '{}'; it must be a whole number from {} to {}", option, text, low, high),
                std::string(option));
  return value;
}

std::vector<int> parse_list(std::string_view option, std::string_view text, int low, int high) {
  std::vector<int> out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    out.push_back(parse(option, text.substr(begin, end - begin), low, high));
    if (out.size() > 1 && out.back() <= out[out.size() - 2])
      throw Error(fmt::format("{} is '{}'; the numbers must increase", option, text), std::string(option));
    begin = end + 1;
  }
  return out;
}

double parse_centre(std::string_view option, std::string_view text) {
  double value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end != text.data() + text.size() || !(value >= 0 && value <= 1000))
    throw Error(fmt::format("{} is '{}'; it must be a number from 0 to 1000", option, text), std::string(option));
  return value;
}

Settings read(int argc, char** argv) {
  Settings s;
  std::vector<int> dims, segments;
  int seeds = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    const auto value = [&]() -> std::string_view {
      if (i + 1 == argc) throw Error(fmt::format("{} needs a value after it", option), std::string(option));
      return argv[++i];
    };
    if (option == "--help" || option == "-h") s.help = true;
    else if (option == "--quick") s.quick = true;
    else if (option == "--out") s.out = value();
    else if (option == "--seeds") seeds = parse(option, value(), 1, 10000);
    else if (option == "--dims") dims = parse_list(option, value(), 1, 256);
    else if (option == "--segments") segments = parse_list(option, value(), 4, 512);
    else if (option == "--centre") s.sweep.centre = parse_centre(option, value());
    else if (option == "--seed") s.sweep.seed = parse<std::int64_t>(option, value(), 0, INT64_MAX);
    else if (option == "--threads") s.sweep.threads = parse(option, value(), 0, 1024);
    else throw Error(fmt::format("there is no option '{}'; --help lists them", option), "command line");
  }
  if (s.out.empty()) throw Error("--out is empty; give a folder", "--out");
  if (s.quick) {
    s.sweep.dims = {4, 8, 16}, s.sweep.segments = {32, 64, 128}, s.sweep.length = 256, s.sweep.tuning_seeds = 1;
    s.sweep.seeds = 4;
    for (int segment : segments)
      if (2 * segment > s.sweep.length)
        throw Error(
            fmt::format("--segments has {}; with --quick a sequence has {} tokens, room for two of {} at most",
                        segment, s.sweep.length, s.sweep.length / 2),
            "--segments");
  }
  if (!dims.empty()) s.sweep.dims = dims;
  if (!segments.empty()) s.sweep.segments = segments;
  if (seeds > 0) s.sweep.seeds = seeds;
  return s;
}

int run(const Settings& settings) {
  const ttr::cli::InterruptGuard guard;
  // Opened first: a folder that cannot be written to is found before the work and not after it.
  ttr::cli::AtomicFile table(settings.out + "/table.md", "--out"), results(settings.out + "/results.json", "--out"),
      picture(settings.out + "/plot.svg", "--out");
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Cell> cells = sweep(settings.sweep);
  if (const int signal = ttr::cli::interrupted(); cells.empty()) {
    fmt::print(stderr, "Interrupted by {}: nothing was written.\n", ttr::cli::signal_name(signal));
    return 128 + signal;
  }
  table.write(table_markdown(cells, settings.sweep));
  results.write(results_json(cells, settings.sweep));
  picture.write(plot_picture(cells, settings.sweep));
  table.commit(), results.commit(), picture.commit();
  std::string text;
  for (const Outcome& outcome : outcomes(cells, settings.sweep))
    text += fmt::format("{:<62} {:>2} of {:<2}  {}\n", outcome.statement, outcome.shown, outcome.of, outcome.remark);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ttr::cli::print_out(fmt::format("{}\n{:.1f} s; the tables are in {}, the plot in {}\n", text, seconds, table.path(),
                                  picture.path()));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto refuse = [](std::string_view sentence) {
    fmt::print(stderr, "piecewise_linear: {}\n", sentence);
    return 2;
  };
  try {
    const Settings settings = read(argc, argv);
    if (!settings.help) return run(settings);
    ttr::cli::print_out(usage);
    return 0;
  } catch (const ttr::cli::ClosedPipe&) {
    return 0;
  } catch (const Error& error) {
    return refuse(error.what());
  } catch (const std::bad_alloc&) {
    return refuse("there is not enough memory for this; take fewer --seeds or --threads");
  } catch (const std::exception& error) {
    return refuse(error.what());
  }
}
