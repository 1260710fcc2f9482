// What the small experiments share: options, running a recipe on data, fitting a slope, and writing table.md and plot.svg.
//
// Everything runs in double through the public API. Shapes: keys, queries [n, K], values, answers [n, V], row by row.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plot.h"
#include "switching_process.h"

namespace ttr::experiment {

using Numbers = std::vector<double>;

struct Settings {
  std::string out = ".";
  bool quick = false;  // small sizes: tests the program and not the claims
  std::uint64_t seed = 2025;
};

struct Page {
  std::string table;               // Markdown
  std::vector<cli::Plot> plots;    // below each other in plot.svg
  std::vector<std::string> wrong;  // statements that the numbers must satisfy and do not; the exit code is then 1
};

/// Reads --out FOLDER, --quick, --seed N, --help; runs; writes both files and prints the table. Exit code 0; 1 if
/// something is wrong; 2 with a sentence for what the user can put right.
int run_program(int argc, char** argv, const char* name, const char* purpose, Page (*)(const Settings&));

/// A token at a time: after the pair t the layer is asked with query t.
Numbers causal(const std::string& recipe, int key_dim, int value_dim, const Numbers& keys, const Numbers& values,
               const Numbers& queries, const Numbers& ridge_per_token = {});

/// All pairs first, then all queries, which store nothing. Layers that weigh pairs by the query see them as a plan that
/// is not causal; to the others the queries come with keys of zero, which change no memory that is linear.
Numbers ask(const std::string& recipe, int key_dim, int value_dim, const Numbers& keys, const Numbers& values,
            const Numbers& queries, const Numbers& ridge_per_token = {});

/// Slope of the straight line through (log x, log y).
double log_slope(const Numbers& x, const Numbers& y);

double dot(const double* a, const double* b, int n);
double norm(const double* a, int n);
/// n rows of d entries from N(0, 1); with `unit` of length 1.
Numbers random_rows(cli::Random&, int n, int d, bool unit);
/// n numbers 0 .. n-1 in random order.
std::vector<int> shuffled(cli::Random&, int n);

/// "| a | b |" of cells.
std::string row(const std::vector<std::string>& cells);
/// The first row of a table and the rule below it.
std::string header(const std::vector<std::string>& cells);

}  // namespace ttr::experiment
