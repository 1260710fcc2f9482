// `ttr regress`: online regression on a stream. For each row, predict the value from the memory built on all
// earlier rows, then learn the row. Without a file: the built-in switching process (switching_process.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ttr::cli {

struct RegressOptions {
  std::string file;                 // empty: the built-in process; "-": standard input
  std::vector<std::string> keys;    // column names, numbers from 1 or ranges "2-5"; empty: all but the values
  std::vector<std::string> values;  // empty: the last column (with lags: all)
  std::vector<std::string> layers;  // "nlms", "rls:decay=0.99,ridge=1e-3", a recipe, or "mix"; empty: a few and mix
  bool raw = false;                 // keys and values as they are: no intercept, no units (regress_units.h)
  bool bias = false;                // with raw: a further key that is always 1
  bool standardize = false;         // with raw: units
  bool coefficients = false;        // of layers that are linear, over time and in the end
  std::string coefficients_out;     // CSV
  std::string group;                // a column: one memory for each of its words
  std::string weights;              // a column: what a row counts
  std::string id;                   // a column: a later row with the same word brings the value of a question
  std::int64_t delay = 0;           // rows that are asked before the value of a row is known
  bool iterate = false;             // with lags: a horizon in steps of one row
  bool detect = false;              // anomalies and drifts
  bool watch = false;               // a plot in the terminal while it runs
  bool tune = false;                // several settings of every layer
  std::vector<std::string> with;    // further key columns, which are not lagged
  std::vector<std::string> dates;   // columns of dates, as calendar features
  std::vector<std::string> categories;  // columns of words, as zeros and ones
  std::int64_t category_slots = 16;     // numbers per such column
  bool classify = false;                // the value is a class (classify.h)
  std::vector<std::string> classes;     // all of them; empty: those of the file
  std::string missing = "error";        // keys that are missing: error, skip, last, mean, indicator
  std::string lags_text;                // "12": the last 12 rows; "1,12,13" or "1-3,12": these
  std::int64_t lags = 0;                // the largest of them, from lags_text; 0: off
  std::vector<std::int64_t> lag_list;   // all of them; empty: 1 to lags
  bool differences = false;             // with lags: of rows, not rows
  std::int64_t fourier = 0;             // with season: so many sines and cosines of its phase are keys
  std::int64_t horizon = -1;            // the value belongs to the row so many rows later; -1: 0, or 1 with lags
  std::optional<double> interval;       // level of prediction intervals, in (0, 1)
  std::int64_t warmup = -1;             // first rows that are not scored; -1: keys + 1
  std::int64_t season = 0;              // rows of a season, for the seasonal naive forecast; 0: none
  std::optional<std::int64_t> window;   // rows per window of the windowed loss; empty: at most eight windows
  std::string out;                      // predictions, .csv or .npy; "-": standard output
  std::string report;                   // HTML; the built-in process writes report.html if empty
  std::string svg;                      // the plot of the losses alone
  std::string on_bad = "error";         // or "skip"
  std::string header = "auto";          // or "yes", "no"
  bool json = false;
  std::string save;                   // a model: all that has been learned, and the options it was learned with
  std::string load;                   // goes on from one
  std::int64_t checkpoint_every = 0;  // rows between two times of saving; 0: at the end alone
  bool resume = false;                // with load: the input is the same, go on after the rows that are in the model
  bool predict = false;               // with load: learn nothing (`ttr predict`)
  // The built-in process only.
  int seeds = 24;
  int time = 256;
  std::uint64_t seed = 2025;
  std::string covariance = "equicorrelation";
  std::string order = "paper";  // or "slides": which rule comes first
  int threads = 0;              // 0: as many as the machine has; the numbers do not depend on it

  std::vector<std::string> process_options;  // those of the built-in process that were given
  std::string command;                       // the command line, for the report
};

/// Reads lists and refuses, with a sentence, options that are out of range or do not go together.
void check_regress(RegressOptions&);

/// Returns the exit status: 0, or 130 after Ctrl-C. Throws Error for anything the user can put right.
int run_regress(RegressOptions);

}  // namespace ttr::cli
