// `ttr regress FILE`: rows in, predictions out, in constant memory. Blocks of rows are read, every layer runs over
// the block, then the block is scored and written; a live stream has blocks of one row.
//
// What is known of one answer stands in one row of numbers, so that it can wait for its value (--horizon):
//   predictions [L + 1, V]: the layers, then the naive forecast; and with --interval
//   half [L, V]: half of the interval's width;  deviation [L, V]: of the error, in units of the noise;  share [L]
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "atomic_file.h"
#include "interval.h"
#include "regress_input.h"
#include "regress_pairs.h"
#include "regress_parts.h"
#include "report.h"

namespace ttr::cli {

class Stream {
 public:
  explicit Stream(const RegressOptions& options) : options_(options) {}
  int run();

 private:
  void choose_columns();
  void make_layers();
  void open_outputs();
  void read_all();
  bool read_block();
  void run_layers();
  void process_block();
  void set_widths(double* answer) const;
  void score(std::int64_t row, const double* answer, const double* actual);
  void emit(std::int64_t row, const double* answer, const double* actual);
  void write_leftovers();
  void finish_files();
  Report make_report() const;
  Plot loss_plot() const;
  std::size_t best_layer() const;  // of least error, without the naive forecast
  Plot prediction_plot(std::size_t value) const;
  std::string summary() const;
  std::vector<std::string> interval_header() const;
  std::vector<std::vector<std::string>> interval_rows() const;
  Json interval_json(std::size_t layer) const;
  Json json() const;

  std::vector<std::string> header_row() const;
  // Places in the row of numbers of an answer.
  std::size_t prediction_at(std::size_t layer) const { return layer * V_; }
  std::size_t half_at(std::size_t layer) const { return (layers_.size() + 1 + layer) * V_; }
  std::size_t deviation_at(std::size_t layer) const { return (2 * layers_.size() + 1 + layer) * V_; }
  std::size_t share_at(std::size_t layer) const { return (3 * layers_.size() + 1) * V_ + layer; }
  std::size_t width() const { return options_.interval ? share_at(layers_.size()) : half_at(0); }
  bool live() const { return options_.file == "-" && options_.out.empty() && !options_.json; }
  bool predictions_on_stdout() const { return out_ && out_->is_standard_output(); }

  const RegressOptions& options_;
  std::unique_ptr<RowSource> source_;
  std::vector<int> key_columns_, value_columns_;
  std::vector<std::string> value_names_;
  std::size_t V_ = 1;
  PairSpec spec_;
  std::optional<PairBuilder> pairs_;
  std::vector<StreamLayer> layers_;
  std::vector<Score> scores_;  // one per layer, then the naive one
  struct LayerIntervals {
    Intervals intervals;
    std::vector<Windows> widths;  // per value; finite ones only
    double last_width() const;    // mean over the values, in the last full window
  };
  std::vector<LayerIntervals> intervals_;  // one per layer, if they are wanted
  std::optional<Spread> spread_;

  Block block_;
  // Rows of the next block: more while layers are quick, so that Ctrl-C is always heard.
  std::size_t block_limit_ = 1;
  struct BlockRow {
    std::int64_t number;  // in the file, from 1
    bool asks;
  };
  std::vector<BlockRow> rows_;
  std::vector<double> raw_, actual_, shift_, scale_, naive_, layer_out_, answers_;
  std::vector<Uncertainty> uncertainties_;
  struct Waiting {
    std::int64_t row;
    std::vector<double> answer;
  };
  std::deque<Waiting> waiting_;  // answers whose value is not known yet
  struct Shown {
    std::int64_t row;
    std::vector<double> answer, actual;
  };
  std::deque<Shown> shown_;

  std::optional<AtomicFile> out_, report_, svg_;
  bool npy_ = false;
  fmt::memory_buffer line_;
  std::int64_t good_rows_ = 0, skipped_ = 0, asked_ = 0, written_ = 0;
  BadRow first_bad_;
  bool closed_ = false;
};

}  // namespace ttr::cli
