// What a sweep runs, as text:
//
//   # recall against the size of the state
//   title = MQAR, T = 64
//   task  = mqar(vocabulary=512, time=64, pairs=8)
//   layer = deltanet | GLA: gla | {equal / linear / sgd(beta, momentum)}(conv=4) & rate=1e-2
//   width = 32 | 64
//   rate  = 1e-3 | 3e-3
//   seed  = 1 | 2
//   best  = rate                       # of these settings the best counts,
//   mean  = seed                       # over these mean and standard deviation are taken
//   score = accuracy
//   expect = deltanet, 64 > GLA, 64 + 0.1; deltanet, 64 > 0.5
//
//   [quick]                            # a variant: what it says replaces what stands above
//   steps = 50
//
// `name = value` are settings of `ttr train`: the task, and its options without the dashes (yes: a flag). Several values
// are separated by |; `label: value` says how one is called in tables, `value & name=value` what else it sets. Brackets
// keep | : & from meaning anything, # begins a comment at the start of a line or after a blank. The other words are in
// SweepSpec. Every combination is a run; combinations that come to the same settings are one.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ttr::cli {

using Settings = std::map<std::string, std::string>;

struct Choice {
  std::string label, value;
  std::vector<std::pair<std::string, std::string>> with;  // settings that come along
};
struct SweepAxis {
  std::string name;
  std::vector<Choice> choices;  // one: the same for all runs
};

struct SweepSpec {
  std::string title;
  std::vector<SweepAxis> axes;          // in the order of the text
  std::vector<std::string> best, mean;  // axes
  std::string score = "accuracy";       // a number of the result of `ttr train --json`, such as test_loss
  bool lowest = false;                  // "lowest test_loss" or "highest accuracy"; otherwise the name decides
  std::string columns;                  // axis across the table
  std::vector<std::string> show;        // further numbers of the result
  std::string x, y, lines;              // of the plot: an axis, a number, or a list of the result (rows.step)
  std::string x_label, y_label;
  bool log_x = false, log_y = false;
  std::vector<std::string> expect;  // "deltanet > gla + 0.1", "gla > 0.9": what the scores must satisfy
  std::string eval;                 // words for `ttr eval` after each run (`& eval=..`: of one choice); its answer is
                                    // `eval` of the result

  const SweepAxis* axis(std::string_view name) const;
};

/// Throws Error with the number of the line. `overrides` are lines too, and come last.
SweepSpec parse_sweep(std::string_view text, const std::string& variant, const std::vector<std::string>& overrides);
/// The variants that a text has.
std::vector<std::string> sweep_variants(std::string_view text);

struct SweepRun {
  Settings settings;
  std::vector<std::size_t> choices;  // of every axis
  std::string eval;                  // words for `ttr eval`; none: it is not asked
  std::string key;                   // of the settings, for the name of a file
};
std::vector<SweepRun> expand(const SweepSpec&);

/// The words of `ttr train` for a run.
std::vector<std::string> train_words(const Settings&);

}  // namespace ttr::cli
