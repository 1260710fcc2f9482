// `ttr regress FILE`: rows in, predictions out, in constant memory. Blocks of rows are read, every layer runs over
// the block, then the block is scored and written; a live stream has blocks of one row.
//
// The first rows (--warmup) are predicted and written but not scored: they tell how large the numbers are, and who
// knows the last value has an advantage there that says nothing about the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "atomic_file.h"
#include "regress_forecasters.h"
#include "regress_input.h"
#include "regress_memory.h"
#include "regress_pairs.h"
#include "regress_parts.h"
#include "regress_scores.h"
#include "regress_watch.h"
#include "report.h"

namespace ttr::cli {

class Stream {
 public:
  explicit Stream(RegressOptions options) : options_(std::move(options)) {}
  int run();

  /// The same without files around it, for a program that has rows of its own (serve_model.h): nothing is printed or written.
  /// `model` holds the bytes of a saved one, or nothing. Throws Error.
  Stream(RegressOptions options, std::unique_ptr<RowSource> source, const std::string& model);
  /// Takes the next row of the source: predicts it, learns it. Returns the answer, or null while there are too few rows to
  /// ask (lags). Throws Error for a bad row, which leaves the memory as it was.
  const double* learn_row();
  /// As learn_row, and leaves no trace; a value in the row is not looked at.
  const double* ask_row();
  /// Where the V numbers of a forecaster stand in an answer, and with --interval half the widths of their intervals.
  struct Place {
    std::string name;
    std::size_t prediction = 0, half = 0;
  };
  std::vector<Place> places() const;
  const std::vector<std::string>& answer_names() const { return value_names_; }  // of the V numbers
  const RegressOptions& options() const { return options_; }
  std::int64_t rows_read() const { return file_rows_; }
  /// The options that a saved model was made with; `name` stands in messages.
  static RegressOptions saved_options(const std::string& bytes, const std::string& name);
  /// What `--save` writes.
  std::string model_bytes();
  /// What `--json` prints.
  Json served_json();

 private:
  void prepare(const std::string& model);  // columns and layers, with what a saved model has learned
  void describe_scores();                  // what was not summed up on the way
  std::string by_column(const std::string& failure) const;
  void choose_columns();
  void choose_classes(std::vector<int> named);  // the column of --classify, and what there is in it
  struct Named {                                // columns, by the option that names them
    std::vector<int> with, dates, categories, group, weights, id;
  };
  void refuse_values(const Named& named) const;
  void arrange_time(bool lags_alone);
  void make_layers();
  void open_outputs();
  void read_all();
  bool read_block();
  std::unique_ptr<Memory> new_memory() const;
  Memory& memory_of_row();  // of raw_
  void process_block();
  // A row may take longer than a second (regress_interrupt.cc). False: interrupted, and the block is to be left.
  bool run_layers();
  double seconds_of_next_block(const Memory& memory) const;
  void keep_what_was(const Memory& memory);
  void go_back();
  double arrived(Memory& memory, const Memory::Row& row, const double* answer,
                 const double* actual);  // anomaly score
  void score(Memory& memory, std::int64_t row, double weight, const double* answer, const double* actual,
             double anomaly);
  void score_warmup();
  void emit(std::int64_t row, const Memory& memory, const double* answer, const double* actual, double anomaly);
  void take_late_values();
  // A question and the value that a later row brings, by --id. Such rows are processed one by one.
  struct Asked {
    double id = 0;
    std::int64_t row = 0;
    std::size_t group = 0;
    std::vector<double> columns, answer;
    void archive(Archive& a) { a(id, row, group, columns, answer); }
  };
  bool take_value_of_question(const double* y, double weight);  // of the row in raw_; false if it is none
  void keep_question(const Memory& memory, std::int64_t row, const double* answer);
  void archive_questions(Archive& a);
  void write_leftovers();
  void refuse_warmup() const;         // one that leaves nothing to score
  std::int64_t most_arrived() const;  // values of a memory
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
  std::size_t best_linear() const;       // of those with coefficients
  // And with them; none where nothing was scored, or no error is finite.
  std::optional<std::size_t> best_forecaster() const;
  double p_versus_best(std::size_t forecaster) const;
  std::string p_cell(std::size_t forecaster) const;
  Plot prediction_plot(std::size_t value) const;
  std::string summary() const;
  std::string time_text() const;           // ", 3 ahead, 2 late", or nothing
  std::string picture(int columns) const;  // of the last rows, for a terminal
  std::vector<std::string> notes() const;
  std::string mix_text() const;
  std::vector<std::pair<std::string, double>> mix_parts() const;
  std::string remedy(std::size_t layer) const;
  // Under --classify: measures in place of errors, and a table of probabilities against what came true.
  const char* answer_word() const { return options_.classify ? "class" : "value"; }
  std::vector<std::string> class_header() const;
  std::vector<std::string> class_cells(std::size_t forecaster) const;
  Json class_json(std::size_t forecaster) const;
  std::vector<std::string> reliability_header() const;
  std::vector<std::vector<std::string>> reliability_rows(std::size_t forecaster) const;
  std::vector<std::string> summary_header() const;
  std::vector<std::string> summary_cells(std::size_t forecaster) const;
  std::string shown_name(std::size_t forecaster) const;
  // Coefficients over time (regress_coefficients.cc).
  bool wants_coefficients() const { return options_.coefficients || !options_.coefficients_out.empty(); }
  struct Sample {
    std::int64_t row;
    std::vector<std::vector<double>> of;  // per layer [K, V]
  };
  std::optional<Sample> coefficients_now(bool after_the_last_row);  // none: interrupted
  void sample_coefficients();
  void final_coefficients();
  std::string coefficients_csv() const;
  Plot coefficient_plot(std::size_t layer, std::size_t value) const;
  // Names of the numbers of a key, and after the run the coefficients of the layers that have any.
  std::vector<std::string> key_number_names() const;
  std::vector<std::string> coefficient_header() const;
  std::vector<std::vector<std::string>> coefficient_rows() const;
  std::vector<std::string> window_header() const;
  std::vector<std::vector<std::string>> window_rows() const;
  std::vector<std::string> odd_header() const;
  std::vector<std::vector<std::string>> odd_rows() const;
  std::vector<std::string> group_header() const;
  std::vector<std::vector<std::string>> group_rows() const;
  std::vector<std::size_t> groups_by_error() const;
  std::vector<Change> changes() const;  // of all memories, in the order of the rows
  void detect_json(Json& out) const;
  void group_json(Json& out) const;
  Coverage coverage(std::size_t layer) const;
  std::vector<std::string> interval_header() const;
  std::vector<std::vector<std::string>> interval_rows() const;
  double last_width(std::size_t layer) const;  // mean over the values, in the last full window
  Json interval_json(std::size_t layer) const;
  Json forecaster_json(std::size_t forecaster) const;
  Json json() const;

  std::vector<std::string> header_row() const;
  bool live() const { return options_.file == "-" && options_.out.empty() && !options_.json && !served_; }
  /// Whether a line of predictions has its value: a live prediction of a later row is printed long before that is known.
  bool values_follow() const { return npy_ || !live() || memory_.ahead + memory_.late == 0; }
  bool has_values() const { return !value_columns_.empty(); }
  bool predictions_on_stdout() const { return out_ && out_->is_standard_output(); }
  std::int64_t warmup() const;
  /// The memory that speaks for all of them where one has to.
  const Forecasters& now() const { return memories_.empty() ? *forecasters_ : memories_[0]->forecasters(); }
  /// Whose errors are judged for anomalies and drifts: the mix, or the first layer.
  std::size_t judged() const { return forecasters_->has_mix() ? forecasters_->mix_index() : 0; }

  RegressOptions options_;
  bool served_ = false;  // rows come one by one, and nothing is written
  std::unique_ptr<RowSource> source_;
  std::vector<int> key_columns_, value_columns_;
  std::vector<std::string> value_names_, key_names_, left_out_;
  std::size_t V_ = 1, values_at_ = 0, weight_at_ = 0, group_at_ = 0, id_at_ = 0;  // places in raw_; 0: none
  std::vector<std::unique_ptr<ColumnEncoder>> encoders_;                          // of dates, then of categories
  GroupNames groups_;
  std::optional<ClassEncoder> class_encoder_;  // of the value
  NameHash names_;
  PairSpec spec_;
  MemorySpec memory_;
  int key_dim_ = 0;
  std::optional<Forecasters> forecasters_;         // as they start
  std::vector<std::unique_ptr<Memory>> memories_;  // one, or one per group
  std::unique_ptr<Memory> asked_once_;             // of a group that was asked about and never met
  std::vector<Score> scores_;                      // one per forecaster
  std::optional<Comparisons> comparisons_;
  std::vector<std::vector<Windows>> widths_;  // of the intervals: per layer and value, finite ones only
  std::optional<Spread> spread_;
  std::vector<std::vector<double>> coefficients_;  // per layer [K, V]; empty: none
  std::vector<Sample> samples_;
  std::int64_t coefficients_every_ = 1;  // rows between two samples; doubles when there are many

  // Rows of the next block: more while layers are quick, so that Ctrl-C is always heard.
  std::size_t block_limit_ = 1;
  double row_seconds_ = 0;            // of the last block, or a guess
  std::unique_ptr<Memory> what_was_;  // before this block, for --save where a row takes long
  std::int64_t good_before_ = 0, questions_before_ = 0;
  bool left_ = false;                      // a row was not waited for
  bool states_whole_ = true;               // what layers have learned is that of the rows counted
  std::vector<std::string> large_layers_;  // that the default set leaves out
  struct BlockRow {
    std::int64_t number;  // in the file, from 1
    Memory* memory;
    Memory::Row brought;
  };
  std::vector<BlockRow> rows_;
  std::vector<Memory*> touched_;  // by the rows of this block
  std::vector<double> raw_, unknown_, actual_, losses_;
  std::unordered_map<double, Asked> open_questions_;  // by id
  std::map<std::int64_t, double> open_rows_;          // row -> id: the oldest first
  std::optional<Asked> answered_;                     // whose value the row of this block has brought
  std::deque<Answered> shown_;
  struct Odd {
    std::int64_t row;
    double score;
    std::size_t group;
    std::vector<double> answer, actual;
  };
  std::vector<Odd> odd_;       // the largest score first
  bool short_stream_ = false;  // it ended within the warm-up, which therefore counts
  friend class Watch;
  Watch watch_;

  std::optional<AtomicFile> out_, report_, svg_, coefficients_out_;
  bool npy_ = false;
  fmt::memory_buffer line_;
  std::int64_t good_rows_ = 0, skipped_ = 0, asked_ = 0, written_ = 0, questions_ = 0, arrived_ = 0;
  BadRow first_bad_;
  bool closed_ = false;
  std::int64_t file_rows_ = 0, saved_at_ = 0;  // rows of this file so far, good and bad; good rows in the saved model
};

}  // namespace ttr::cli
