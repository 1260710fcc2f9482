// The units in which layers see a stream: every column shifted by its mean and divided by its deviation.
//
// Both come from the rows seen so far, and are taken anew each time there is a quarter more of them: after rows 1, 2, 3, .. 8,
// 10, 12, 15, .. 1024 (256 in a group; fewer where keys are long). Pairs learned in other units would be wrong in the new
// ones, so every layer then forgets and learns the pairs so far again; they are kept until the units are fixed, which bounds
// memory, and all of this costs about five further steps per row of the first 1024. Twice as many rows between two updates
// are not enough where a series grows: its ridge would be that of the smaller numbers. A row is asked in the units of rows
// before it: nothing of a later row is ever used.
//
// A free intercept: a key that is always 1 has a ridge like every other. For layers that solve (linear / exact) the
// number in its place is `free_bias`, so that the ridge on the intercept is a millionth of the others; such a solution
// does not depend on the size of a key in any other way. Layers that step would take all their steps along such a key,
// and keep 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "regress_pairs.h"
#include "regress_parts.h"

namespace ttr::cli {

/// Mean and deviation so far, column by column (Welford). NaN is left out.
class Moments {
 public:
  explicit Moments(int columns) : mean_(columns), squares_(columns), count_(columns) {}
  void add(const double* row);
  double mean(int column) const { return mean_[column]; }
  double deviation(int column) const;  // 1 while the column has not varied
  void archive(Archive& a) { a(mean_, squares_, count_); }

 private:
  std::vector<double> mean_, squares_;
  std::vector<std::int64_t> count_;
};

class Units {
 public:
  static constexpr double free_bias = 1000;
  /// After these many the units are fixed.
  static constexpr std::int64_t most_rows = 1024;

  /// Without `standardize` the units are those of the file, for ever; without `values_too` those of the values are.
  Units(const PairSpec& spec, bool standardize, bool values_too = true);

  /// The numbers of a row (PairBuilder::key_numbers, value_numbers).
  void see(const double* x, const double* y);
  /// Whether it is time to update(). Rows that come after this must wait for it.
  bool due(std::int64_t further_rows = 0) const;
  /// Takes new units; layers must then learn past() again.
  void update();
  /// Keeps the pairs of a block in the units of the file while they may be needed again.
  void remember(const Block& block);
  /// All pairs so far, in the units now; valid until the next call.
  Block& past();
  /// A block in the units now; valid until the next call. With units of the file it is the block itself.
  Block& convert(Block& block);

  /// The coefficients [K, V] of the keys in the units of the file, from those in the units now; `bias` is the number that
  /// stood in the place of the 1 of the intercept, which comes last.
  void to_file_units(std::vector<double>& map, double bias) const;

  /// A number of key column c in the units now.
  double key_number(std::size_t c, double number) const { return (number - key_shift_[c]) * key_factor_[c]; }
  double value_shift(std::size_t v) const { return value_shift_[v]; }
  double value_scale(std::size_t v) const { return value_scale_[v]; }
  void archive(Archive& a) {
    a(rows_, updated_, keys_, values_, key_shift_, key_factor_, value_shift_, value_scale_, past_);
  }

 private:
  void convert_keys(std::vector<double>& keys, std::size_t rows) const;

  PairSpec spec_;
  bool values_too_;
  std::int64_t rows_ = 0, updated_ = 0, last_;  // updated_: rows at the last update; last_: rows of the last one
  Moments keys_, values_;
  std::vector<double> key_shift_, key_factor_, value_shift_, value_scale_;
  Block converted_, past_;
};

/// Writes the bias of every row, the last of its keys.
void set_bias(Block& block, double number);

/// Multiplies keys and values by the roots of their weights: for a sum of squares, a filter or a step along the gradient
/// that is the weight. set_scaled_bias writes the bias of such a block.
void scale_pairs(Block& block);
void set_scaled_bias(Block& block, double number);

}  // namespace ttr::cli
