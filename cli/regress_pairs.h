// From rows to pairs: which key is asked, and which (key, value) has just become known. All in the units of the file.
//
// Row t has key columns x_t, further ones z_t that are never lagged, and value columns y_t. With horizon h the pair is
// (k_t, y_{t+h}); k_t = (x_t, z_t), or with lags l_1, l_2, .. k_t = (x_{t+1-l_1}, x_{t+1-l_2}, .., z_t); a bias appends 1.
// At row t:
//   h = 0:  ask with k_t, then y_t completes the pair (k_t, y_t), learned at the next row.
//   h > 0:  y_t completes the pair (k_{t-h}, y_t); learn it, then ask with k_t for y_{t+h}.
// Either way a row is at most one pair and one query, which is one step of a layer.
//
// Differences: x_t - x_{t-1} in place of x_t, and y_{t+h} minus the last value known when it is asked for, to which the
// answer must be added again.
//
// A row with a value that is NaN is a question: it asks like any other, and there is nothing to learn from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "regress_parts.h"

namespace ttr::cli {

struct PairSpec {
  int key_columns = 0, value_columns = 1;
  int more_columns = 0;  // z
  bool bias = false;
  bool questions = false;    // values may be NaN
  bool differences = false;  // with lags
  bool weighted = false;     // rows have weights
  bool one_of_many = false;  // a group: there may be thousands
  std::int64_t lags = 0, horizon = 0;
  std::vector<std::int64_t> offsets = {};  // the lags, the largest of them `lags`; empty: 1, 2, .. lags

  std::size_t lag_count() const {
    return offsets.empty() ? static_cast<std::size_t>(lags > 1 ? lags : 1) : offsets.size();
  }
};

class PairBuilder {
 public:
  explicit PairBuilder(const PairSpec& spec);
  int key_dim() const { return key_dim_; }

  /// Takes the next row: x [key_columns, then more_columns] and y. If it can ask (enough lags seen), appends a row to `block`, writes the last value seen into an
  /// array of V numbers, and returns true.
  bool add(const double* x, const double* y, double weight, Block& block, double* last_value);
  bool add(const double* x, const double* y, Block& block, double* last_value) {
    return add(x, y, 1, block, last_value);
  }
  /// After the last row: appends the pair that waits for the next one, with a query that does not matter; false if there is
  /// none.
  bool ask_for_last(Block& block, double* last_value);
  /// The numbers of the row just added of which keys and values are made, for units; NaN where there are none.
  const double* key_numbers() const { return row_.data(); }
  const double* value_numbers() const { return row_value_.data(); }
  /// The pair of the last row is learned already.
  void pair_was_learned() { has_pair_ = false; }
  void archive(Archive& a) {
    a(history_, key_, queue_, rows_, keys_made_, pair_key_, pair_value_, pair_weight_, last_, before_, has_key_,
      has_pair_);
  }

 private:
  void make_key(const double* x);  // into key_; has_key_ says whether there is one
  // The pending pair; `base` [V] is what the value is a difference from.
  void complete(const double* key, const double* base, const double* y, double weight);
  void ask(Block& block, double* last_value);

  PairSpec spec_;
  int key_dim_;
  std::vector<double> history_, key_, queue_;     // history_ [lags, key_columns], queue_ [horizon, K + V]: rings
  std::vector<double> row_, row_value_, before_;  // before_: x of the row before
  std::int64_t rows_ = 0, keys_made_ = 0;
  std::vector<double> pair_key_, pair_value_, last_, base_;
  double pair_weight_ = 1;
  bool has_key_ = false, has_pair_ = false;
};

}  // namespace ttr::cli
