// `ttr regress FILE`: rows in, predictions out, in constant memory. Blocks of rows are read, every layer runs over
// the block, then the block is scored and written; a live stream has blocks of one row.
//
// The first rows (--warmup) are predicted and written but not scored: they tell how large the numbers are, and who
// knows the last value has an advantage there that says nothing about the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "atomic_file.h"
#include "regress_forecasters.h"
#include "regress_input.h"
#include "regress_pairs.h"
#include "regress_parts.h"
#include "regress_scores.h"
#include "report.h"

namespace ttr::cli {

class Stream {
 public:
  explicit Stream(RegressOptions options) : options_(std::move(options)) {}
  int run();

 private:
  void choose_columns();
  void make_layers();
  void open_outputs();
  void read_all();
  bool read_block();
  const double* make_x();
  void process_block();
  void arrived(std::int64_t row, const double* answer, const double* actual);
  void score(std::int64_t row, const double* answer, const double* actual);
  void score_warmup();
  void emit(std::int64_t row, const double* answer, const double* actual);
  void write_leftovers();
  void finish_files();
  // A model has the options that decide what is learned, then what was learned.
  void archive_options(Archive& a);
  void archive_memory(Archive& a);
  std::string read_model() const;
  void save_model();
  void skip_rows();

  Report make_report() const;
  Plot loss_plot() const;
  Line line_of(std::size_t forecaster) const;
  std::size_t best_with_memory() const;  // of least error, without the naive forecasts
  std::size_t best_forecaster() const;   // and with them
  Plot prediction_plot(std::size_t value) const;
  std::string summary() const;
  std::vector<std::string> notes() const;
  std::string mix_text() const;
  std::vector<std::pair<std::string, double>> mix_parts() const;
  std::string remedy(std::size_t layer) const;
  std::vector<std::string> summary_header() const;
  std::vector<std::string> summary_cells(std::size_t forecaster) const;
  std::string shown_name(std::size_t forecaster) const;
  // Names of the numbers of a key, and after the run the coefficients of the layers that have any.
  std::vector<std::string> key_number_names() const;
  std::vector<std::string> coefficient_header() const;
  std::vector<std::vector<std::string>> coefficient_rows() const;
  std::vector<std::string> interval_header() const;
  std::vector<std::vector<std::string>> interval_rows() const;
  double last_width(std::size_t layer) const;  // mean over the values, in the last full window
  Json interval_json(std::size_t layer) const;
  Json forecaster_json(std::size_t forecaster) const;
  Json json() const;

  std::vector<std::string> header_row() const;
  bool live() const { return options_.file == "-" && options_.out.empty() && !options_.json; }
  bool has_values() const { return !value_columns_.empty(); }
  bool predictions_on_stdout() const { return out_ && out_->is_standard_output(); }
  std::int64_t warmup() const;
  void seasonal_value(const double* y, double* forecast);

  RegressOptions options_;
  std::unique_ptr<RowSource> source_;
  std::vector<int> key_columns_, value_columns_;
  std::vector<std::string> value_names_, key_names_, left_out_;
  std::size_t V_ = 1, values_at_ = 0;                     // values_at_: place of the values in raw_
  std::vector<std::unique_ptr<ColumnEncoder>> encoders_;  // of dates, then of categories
  std::optional<MissingNumbers> missing_;
  PairSpec spec_;
  std::optional<PairBuilder> pairs_;
  std::optional<Forecasters> forecasters_;
  std::vector<Score> scores_;  // one per forecaster
  std::optional<Comparisons> comparisons_;
  std::vector<std::vector<Windows>> widths_;  // of the intervals: per layer and value, finite ones only
  std::optional<Spread> spread_;
  std::vector<std::vector<double>> coefficients_;  // per layer [K, V]; empty: none

  Block block_;
  // Rows of the next block: more while layers are quick, so that Ctrl-C is always heard.
  std::size_t block_limit_ = 1;
  struct BlockRow {
    std::int64_t number;  // in the file, from 1
    bool asks;
  };
  std::vector<BlockRow> rows_;
  std::vector<double> raw_, x_, unknown_, actual_, naive_, seasonal_, answers_, losses_;
  std::vector<double> season_ring_;  // [lag, V]
  std::int64_t season_lag_ = 0;
  struct Waiting {
    std::int64_t row;
    std::vector<double> answer;
    void archive(Archive& a) { a(row, answer); }
  };
  std::deque<Waiting> waiting_;  // answers whose value is not known yet
  struct Shown {
    std::int64_t row;
    std::vector<double> answer, actual;
    void archive(Archive& a) { a(row, answer, actual); }
  };
  std::deque<Shown> shown_;
  std::vector<Shown> unscored_;  // of the warm-up, until there is a row after it
  bool short_stream_ = false;    // it ended within the warm-up, which therefore counts

  std::optional<AtomicFile> out_, report_, svg_;
  bool npy_ = false;
  fmt::memory_buffer line_;
  std::int64_t good_rows_ = 0, skipped_ = 0, asked_ = 0, written_ = 0, questions_ = 0, arrived_ = 0;
  BadRow first_bad_;
  bool closed_ = false;
  std::int64_t file_rows_ = 0, saved_at_ = 0;  // rows of this file so far, good and bad; good rows in the saved model
};

}  // namespace ttr::cli
