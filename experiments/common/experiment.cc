#include "experiment.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <numeric>

#include <fmt/format.h>

#include "atomic_file.h"
#include "ttr/ttr.h"
#include "whole_runs.h"

namespace ttr::experiment {
namespace {

std::string usage(const char* name, const char* purpose) {
  return fmt::format(
      "usage: {} [options]\n\n{}\n\n"
      "  --out FOLDER    where table.md and plot.svg go (default: this folder)\n"
      "  --quick         small sizes: tests the program and not the claims\n"
      "  --seed N        of the random numbers (default 2025)\n"
      "  --help          this text\n",
      name, purpose);
}

Numbers run(const std::string& recipe, const Options& options, int K, int V, const Numbers& keys,
            const Numbers& values, const Numbers& queries, const Numbers& ridge) {
  const Plan p = plan(recipe, {.key_dim = K, .value_dim = V}, options);
  const auto pairs = static_cast<std::ptrdiff_t>(keys.size()) / K;
  const auto asked = static_cast<std::ptrdiff_t>(queries.size()) / K;
  const Footprint bytes = p.footprint(std::max(pairs, asked));
  const cli::Buffer state(bytes.state), work(bytes.workspace);
  Numbers answers(static_cast<std::size_t>(asked) * V);
  Inputs in;
  Outputs out;
  in["k"] = view(keys.data(), 1, pairs, 1, K);
  in["v"] = view(values.data(), 1, pairs, 1, V);
  in["q"] = view(queries.data(), 1, asked, 1, K);
  if (!ridge.empty()) in["ridge"] = view(ridge.data(), 1, asked, 1);
  out["o"] = view(answers.data(), 1, asked, 1, V);
  cli::run_whole(p, recipe, recipe, in, out, state, work);
  return answers;
}

std::string picture(const std::vector<cli::Plot>& plots, const char* name) {
  int height = 0, width = 0;
  for (const cli::Plot& plot : plots) height += plot.height, width = std::max(width, plot.width);
  std::string s = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
      "aria-label=\"{2}\">\n<style>{3}</style>\n<rect width=\"{0}\" height=\"{1}\" style=\"fill: var(--paper)\"/>\n",
      width, height, name, cli::plot_css());
  int top = 0, number = 1;
  for (const cli::Plot& plot : plots) {
    s += fmt::format("<g transform=\"translate(0 {})\">\n{}</g>\n", top, cli::plot_svg(plot, false, number++));
    top += plot.height;
  }
  return s + "</svg>\n";
}

Settings read(int argc, char** argv, bool& help) {
  Settings s;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    const auto value = [&]() -> std::string_view {
      if (i + 1 == argc) throw Error(fmt::format("{} needs a value after it", option), std::string(option));
      return argv[++i];
    };
    if (option == "--help" || option == "-h") help = true;
    else if (option == "--quick") s.quick = true;
    else if (option == "--out") s.out = value();
    else if (option == "--seed") {
      const std::string_view text = value();
      const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), s.seed);
      if (failed != std::errc{} || end != text.data() + text.size())
        throw Error(fmt::format("--seed is '{}'; it must be a whole number of at least 0", text), "--seed");
    } else throw Error(fmt::format("there is no option '{}'; --help lists them", option), "command line");
  }
  if (!std::filesystem::is_directory(s.out))
    throw Error(fmt::format("the folder '{}' does not exist; --out needs one", s.out), "--out");
  return s;
}

}  // namespace

int run_program(int argc, char** argv, const char* name, const char* purpose, Page (*work)(const Settings&)) {
  const auto refuse = [&](std::string_view sentence) {
    fmt::print(stderr, "{}: {}\n", name, sentence);
    return 2;
  };
  try {
    bool help = false;
    const Settings settings = read(argc, argv, help);
    if (help) {
      fmt::print("{}", usage(name, purpose));
      return 0;
    }
    const auto start = std::chrono::steady_clock::now();
    const Page page = work(settings);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    cli::write_file(settings.out + "/table.md", "--out", page.table);
    cli::write_file(settings.out + "/plot.svg", "--out", picture(page.plots, name));
    fmt::print("{}\n{:.1f} s; the table is in {}/table.md, the plot in {}/plot.svg\n", page.table, seconds,
               settings.out, settings.out);
    for (const std::string& statement : page.wrong) fmt::print(stderr, "{}: not so: {}\n", name, statement);
    return page.wrong.empty() ? 0 : 1;
  } catch (const std::bad_alloc&) {
    return refuse("there is not enough memory for this");
  } catch (const std::exception& error) {
    return refuse(error.what());
  }
}

Numbers causal(const std::string& recipe, int K, int V, const Numbers& keys, const Numbers& values,
               const Numbers& queries, const Numbers& ridge) {
  Options options;
  options.type = Type::f64;
  return run(recipe, options, K, V, keys, values, queries, ridge);
}

Numbers ask(const std::string& recipe, int K, int V, const Numbers& keys, const Numbers& values,
            const Numbers& queries, const Numbers& ridge) {
  Options options;
  options.type = Type::f64;
  const Recipe words = parse_recipe(recipe);
  bool by_query = words.memory.word == "kernel";
  for (const Term& term : words.weights) by_query = by_query || term.word == "near";
  if (by_query) {
    options.causal = false;
    return run(recipe, options, K, V, keys, values, queries, ridge);
  }
  const std::size_t asked = queries.size() / K;
  Numbers k = keys, v = values, q(keys.size());
  k.resize(keys.size() + queries.size()), v.resize(values.size() + asked * V);
  q.insert(q.end(), queries.begin(), queries.end());
  const Numbers all = run(recipe, options, K, V, k, v, q, ridge);
  return {all.end() - static_cast<std::ptrdiff_t>(asked * V), all.end()};
}

double log_slope(const Numbers& x, const Numbers& y) {
  const double n = static_cast<double>(x.size());
  double mx = 0, my = 0, xy = 0, xx = 0;
  for (std::size_t i = 0; i < x.size(); ++i) mx += std::log(x[i]) / n, my += std::log(y[i]) / n;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (std::log(x[i]) - mx) * (std::log(y[i]) - my);
    xx += (std::log(x[i]) - mx) * (std::log(x[i]) - mx);
  }
  return xy / xx;
}

double dot(const double* a, const double* b, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

double norm(const double* a, int n) { return std::sqrt(dot(a, a, n)); }

Numbers random_rows(cli::Random& random, int n, int d, bool unit) {
  Numbers rows(static_cast<std::size_t>(n) * d);
  for (double& x : rows) x = random.normal();
  if (unit)
    for (int i = 0; i < n; ++i) {
      const double length = norm(&rows[static_cast<std::size_t>(i) * d], d);
      for (int j = 0; j < d; ++j) rows[static_cast<std::size_t>(i) * d + j] /= length;
    }
  return rows;
}

std::vector<int> shuffled(cli::Random& random, int n) {
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  for (int i = n - 1; i > 0; --i) std::swap(order[i], order[random.bits() % static_cast<std::uint64_t>(i + 1)]);
  return order;
}

std::string row(const std::vector<std::string>& cells) {
  std::string s = "|";
  for (const std::string& cell : cells) s += " " + cell + " |";
  return s + "\n";
}

std::string header(const std::vector<std::string>& cells) {
  std::string s = row(cells) + "|";
  for (std::size_t i = 0; i < cells.size(); ++i) s += "---|";
  return s + "\n";
}

}  // namespace ttr::experiment
