// From rows to pairs: which key is asked, and which (key, value) has just become known. All in the units of the file.
//
// Row t has key columns x_t and value columns y_t. With horizon h the pair is (k_t, y_{t+h}); k_t = x_t, or with N
// lags k_t = (x_t, x_{t-1}, ..., x_{t-N+1}), newest first; a bias appends 1. At row t:
//   h = 0:  ask with k_t, then y_t completes the pair (k_t, y_t), learned at the next row.
//   h > 0:  y_t completes the pair (k_{t-h}, y_t); learn it, then ask with k_t for y_{t+h}.
// Either way a row is at most one pair and one query, which is one step of a layer.
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
  bool bias = false;
  bool questions = false;  // values may be NaN
  std::int64_t lags = 0, horizon = 0;
};

class PairBuilder {
 public:
  explicit PairBuilder(const PairSpec& spec);
  int key_dim() const { return key_dim_; }

  /// Takes the next row. If it can ask (enough lags seen), appends a row to `block`, writes the last value seen into an
  /// array of V numbers, and returns true.
  bool add(const double* x, const double* y, Block& block, double* last_value);

 private:
  void make_key(const double* x);                     // into key_; has_key_ says whether there is one
  void complete(const double* key, const double* y);  // the pending pair
  void ask(Block& block, double* last_value);

  PairSpec spec_;
  int key_dim_;
  std::vector<double> history_, key_, queue_;  // history_ [lags, key_columns], queue_ [horizon, K]: rings
  std::int64_t rows_ = 0, keys_made_ = 0;
  std::vector<double> pair_key_, pair_value_, last_;
  bool has_key_ = false, has_pair_ = false;
};

}  // namespace ttr::cli
