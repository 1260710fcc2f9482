// The verbs of the program, one file each. Each returns the exit code: 0 success, 1 a check failed, 2 bad input (by
// throwing ttr::Error), 130 interrupted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ttr/ttr.h"

namespace ttr::cli {

struct LayersOptions {
  std::string name;  // empty: list all
  bool json = false;
  bool markdown = false;                        // the page of docs/layers
  std::optional<std::string> map;               // the file for the map of all layers
  int heads = 1, key_dim = 64, value_dim = 64;  // what state_bytes is told for
  bool footprint = false;                       // bytes of state and scratch instead
  std::int64_t time = 4096;                     // of calls, for these
  int threads = 1;
};
int run_layers(const LayersOptions&);
int run_footprint(const LayersOptions&);  // --footprint

struct DeriveOptions {
  std::string recipe;  // a recipe, or the name of a layer
  bool latex = false, json = false;
};
int run_derive(const DeriveOptions&);

struct CheckOptions {
  std::vector<std::string> what;  // LAYER, LAYER:CASE, LAYER(settings):CASE, RECIPE, RECIPE:CASE
  std::string golden;             // a folder, or empty
  bool json = false;
  bool quiet = false;  // only what fails, and the last line
  bool long_run = false;
  bool list = false;                   // --long: only the names of the layers that it runs
  std::int64_t tokens = 1'000'000;     // --long: so many through each
  std::int64_t recipes = 0, seed = 1;  // --recipes: so many, of the seeds seed, seed + 1, ...
};
int run_check(const CheckOptions&);
int run_check_long(const CheckOptions&);     // --long: many tokens, float against double
int run_check_recipes(const CheckOptions&);  // --recipes: random recipes, kernels against the oracle

/// One line of a check, in the order and under the names of docs/json.md.
struct CheckRow {
  std::string layer, name, check, form, dtype;
  double error = 0, tolerance = 0;
  bool passed = false;
  std::string note;  // what went wrong, or which tensor was worst
};

/// Prints rows as they come, or collects them for --json; closes with `N passed, N failed`.
class CheckPrinter {
 public:
  explicit CheckPrinter(const CheckOptions& options) : json_(options.json), quiet_(options.quiet) {}
  void add(const CheckRow&);
  void shortened() { ++shortened_; }  // a case had fewer tokens, because more leave nothing to compare
  int finish();                       // the exit code

 private:
  bool json_, quiet_;
  std::size_t passed_ = 0, failed_ = 0, shortened_ = 0;
  std::vector<CheckRow> rows_;
};

void check_golden(const std::string& folder, const std::vector<std::string>& ops, CheckPrinter&);

/// Random numbers for an input, as its table says.
std::vector<double> random_input(const Plan&, const InputInfo&, std::int64_t time, std::uint64_t seed);

}  // namespace ttr::cli
