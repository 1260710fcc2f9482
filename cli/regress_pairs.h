// From rows to pairs: which key is asked, and which (key, value) has just become known.
//
// Row t has key columns x_t and value columns y_t. With horizon h the pair is (k_t, y_{t+h}); k_t = x_t, or with N
// lags k_t = (x_t, x_{t-1}, ..., x_{t-N+1}), newest first; a bias appends 1. At row t:
//   h = 0:  ask with k_t, then y_t completes the pair (k_t, y_t), learned at the next row.
//   h > 0:  y_t completes the pair (k_{t-h}, y_t); learn it, then ask with k_t for y_{t+h}.
// Either way a row is at most one pair and one query, which is one step of a layer.
//
// Standardised: keys with the mean and deviation of the rows up to and including their own (they are known when the
// row is asked), values with those up to and including the one learned; a prediction is turned back with what was
// known when it was made. Nothing of a later row is ever used. Columns that do not vary become 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "regress_parts.h"

namespace ttr::cli {

/// Mean and deviation so far, column by column (Welford).
class Moments {
 public:
  explicit Moments(int columns) : mean_(columns), squares_(columns) {}
  void add(const double* row);
  double mean(int column) const { return mean_[column]; }
  double deviation(int column) const;  // 1 while the column has not varied

 private:
  std::vector<double> mean_, squares_;
  std::int64_t count_ = 0;
};

struct PairSpec {
  int key_columns = 0, value_columns = 1;
  bool bias = false, standardize = false;
  std::int64_t lags = 0, horizon = 0;
};

class PairBuilder {
 public:
  explicit PairBuilder(const PairSpec& spec);
  int key_dim() const { return key_dim_; }

  /// Takes the next row. If it can ask (enough lags seen), appends a row to `block`, writes how to turn a prediction
  /// back (y = shift + scale * prediction) and the last value seen into arrays of V numbers, and returns true.
  bool add(const double* x, const double* y, Block& block, double* shift, double* scale, double* last_value);

 private:
  void make_key(const double* x);                     // into key_; has_key_ says whether there is one
  void complete(const double* key, const double* y);  // the pending pair
  void ask(Block& block, double* shift, double* scale, double* last_value);

  PairSpec spec_;
  int key_dim_;
  Moments key_moments_, value_moments_;
  std::vector<double> row_, history_, key_, queue_;  // history_ [lags, key_columns], queue_ [horizon, K]: rings
  std::int64_t rows_ = 0, keys_made_ = 0;
  std::vector<double> pair_key_, pair_value_, last_;
  bool has_key_ = false, has_pair_ = false;
};

}  // namespace ttr::cli
