// `ttr sweep`: many runs of `ttr train`, as children, and what comes out of them as a table and a plot.
//
//   FOLDER/runs/KEY.json    one run: settings, command, date and the result of `ttr train --json`; written whole or not
//                           at all, so that a sweep which was killed goes on where it was
//   FOLDER/results.json     command, date, text of the sweep and every run
//   FOLDER/table.md, plot.svg        (with --name X: X.json, X.md, X.svg)
//
// A run that diverges is a result ("diverged"); any other error ends the sweep with the child's sentence.
#pragma once

#include <string>
#include <vector>

#include "json.h"
#include "plot.h"
#include "sweep_spec.h"

namespace ttr::cli {

struct SweepOptions {
  std::vector<std::string> what;  // a file, then name=value; or name=value alone
  std::string variant, out = "sweep";
  std::string name;  // of the files: NAME.json, NAME.md, NAME.svg
  int jobs = 0;      // runs at a time; 0: one for each core
  bool json = false, list = false;
  std::string command;
};
int run_sweep(const SweepOptions&);

/// A run and what came out of it.
struct SweepResult {
  SweepRun run;
  Json saved;   // all that the file of the run has: settings, command, date, seconds, result; null: not run yet
  Json result;  // of ttr train
  std::string failed;  // why there is none: the sentence of a run that diverged
  /// A number of the result by name ("accuracy": of the result itself, else of its last row; "eval.accuracy"), or NaN.
  double number(const std::string& name) const;
  /// A list of numbers: "rows.step", "eval.lengths.accuracy".
  std::vector<double> list(const std::string& path) const;
};

/// "2025-01-31 12:00 UTC"
std::string now_text();

/// Runs what is not in `folder` yet, at most `jobs` at a time. Returns all results, in the order of the runs; those
/// that an interrupt left out have nothing saved. Throws Error where a run cannot be.
std::vector<SweepResult> run_children(const std::vector<SweepRun>&, const std::string& folder, int jobs, bool quiet);

/// A line of the table: the best of `best`, and mean and standard deviation over `mean`.
struct SweepGroup {
  std::vector<std::size_t> choices;        // of every axis; for those of best, the best one
  std::vector<const SweepResult*> chosen;  // one for every choice of `mean`
  double score = 0, spread = 0;            // NaN: diverged
  int diverged = 0;                        // of the chosen
};
std::vector<SweepGroup> reduce(const SweepSpec&, const std::vector<SweepResult>&);

struct SweepTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
  std::string text() const, markdown() const;
};
/// "deltanet, 64": the choices that tell a group from the others.
std::string group_label(const SweepSpec&, const SweepGroup&);
/// A sentence for every expectation that does not hold. Throws Error for one that cannot be read.
std::vector<std::string> broken_expectations(const SweepSpec&, const std::vector<SweepGroup>&);
SweepTable sweep_table(const SweepSpec&, const std::vector<SweepGroup>&);
Plot sweep_plot(const SweepSpec&, const std::vector<SweepGroup>&);

}  // namespace ttr::cli
