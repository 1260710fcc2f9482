// What one stream of rows remembers: of all rows, or with --group of the rows of one group.
//
// Rows are counted within the stream. The answer to row t is for the value of row t + ahead. A value may come late: at row t
// that of row t - late becomes known, before row t is asked (ahead = late = 0: right after it). An answer waits for its
// value, and is scored, and shown to mixtures and intervals, when that becomes known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

#include "archive.h"
#include "regress_columns.h"
#include "regress_detect.h"
#include "regress_forecasters.h"
#include "regress_pairs.h"

namespace ttr::cli {

struct MemorySpec {
  PairSpec pairs;                        // its horizon: rows from a key to the row at which its value is known
  std::int64_t ahead = 0, late = 0;      // as above
  std::int64_t season = 0, fourier = 0;  // rows of a season; sines and cosines of its phase
  std::size_t numbers = 0, columns = 0;  // numbers of a row that may be missing, and with encoded columns
  std::optional<MissingNumbers::Fill> fill = {};  // of what is missing
  std::int64_t season_lag() const;                // rows before the one asked for: a whole number of seasons
};

/// An answer with its value; row: the number in the file of the row that the value belongs to.
struct Answered {
  std::int64_t row = 0;
  double weight = 1;
  std::vector<double> answer, actual;
  void archive(Archive& a) { a(row, weight, answer, actual); }
};

class Memory {
 public:
  Memory(const MemorySpec& spec, const Forecasters& fresh);

  /// What a row has brought.
  struct Row {
    bool asks = false;           // it is in the block
    bool known = false;          // a value has become known, which may be NaN
    std::int64_t index = 0;      // of the row whose value that is, in this stream
    std::int64_t number = 0;     // and in the file
    double weight = 1;           // of that row
    std::int64_t own_index = 0;  // of the row itself
  };
  /// Takes a row: its number in the file, its columns, its value y [V] and its weight. Writes the value that has become known
  /// to `known` [V]. With `learn` false the value is for the score alone.
  Row add(std::int64_t number, const double* columns, const double* y, double weight, bool learn, double* known);
  /// The answer to a row that leaves no trace; null if it cannot ask yet. Between blocks. Valid until the next row.
  const double* ask(const double* columns);
  /// No row since the last end_block().
  bool idle() const { return !touched_; }
  /// After the row just added: coefficients will be wanted after this block.
  void keep_before_last() {
    if (block_.rows > 0) block_.may_be_asked_again[block_.rows - 1] = 1;
  }
  /// True if rows from now on must wait for end_block().
  bool must_end_block() const { return forecasters_.must_end_block(); }

  /// The rows since the last end_block(): all layers answer.
  void run();
  /// What of end_block() takes long: all pairs so far may be learned again, in other units. No answer depends on it.
  void end_learning();
  const double* first_answer() const { return answers_.data(); }  // of the last block
  double* answer(std::size_t query) { return answers_.data() + query * forecasters_.width(); }
  std::size_t queries = 0;  // answers of this block that have been looked at
  void end_block();
  /// Whether the next row makes end_learning() learn all rows again.
  bool will_learn_again() const { return forecasters_.must_end_block_soon(); }

  /// Answers whose values are not known yet; `target` is the index of the row they are for.
  struct Waiting {
    std::int64_t target = 0, row = 0;  // row: its number in the file if no row is left out
    std::vector<double> answer;
    void archive(Archive& a) { a(target, row, answer); }
  };
  std::deque<Waiting> waiting;
  /// Values of the last rows, which have not become known when the rows end.
  struct Late {
    std::int64_t index = 0, number = 0;
    double weight = 1;
    std::vector<double> value;
    void archive(Archive& a) { a(index, number, weight, value); }
  };
  std::deque<Late> late;

  /// Learns the pair that is known and not learned yet, so that coefficients are those after the last row.
  void learn_last();

  Forecasters& forecasters() { return forecasters_; }
  const Forecasters& forecasters() const { return forecasters_; }
  std::int64_t rows() const { return rows_; }

  std::int64_t arrived = 0;        // answers whose value has come
  std::vector<Answered> unscored;  // of the warm-up, until there is a row after it
  std::vector<double> losses;      // summed, per forecaster
  double scored = 0;               // weight of the rows in them
  std::int64_t scored_rows = 0;

  std::optional<Detector> detector;
  std::size_t group = 0;  // its number
  void forget_scores() { unscored.clear(), losses.assign(losses.size(), 0.0), scored = 0, scored_rows = 0; }

  void archive(Archive& a);

 private:
  const double* make_x(const double* columns);
  void seasonal_value(const double* y, double* forecast);
  void make_room();

  MemorySpec spec_;
  std::size_t V_;
  std::optional<MissingNumbers> missing_;
  PairBuilder pairs_;
  Forecasters forecasters_;
  Block block_;
  std::size_t room_ = 0;  // rows
  std::vector<double> x_, unknown_, naive_, seasonal_, answers_;
  std::vector<double> season_ring_;  // [season_lag, V]
  std::int64_t rows_ = 0;
  bool touched_ = false, learning_ended_ = false;
};

}  // namespace ttr::cli
