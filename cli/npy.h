// NumPy's .npy: 6 bytes "\x93NUMPY", version, header length, a Python dict padded to 64 bytes, then the numbers.
//
//   {'descr': '<f8', 'fortran_order': False, 'shape': (1000, 3), }
//
// Read: 1-D (one column) and 2-D, C order, little endian, float32/float64/int32/int64. Written: float64, 2-D.
// Trap: the writer learns the number of rows at the end, so its header has room for any 64-bit count.
#pragma once

#include "regress_input.h"

namespace ttr::cli {

class NpyReader : public RowSource {
 public:
  explicit NpyReader(ByteSource bytes);

  const std::vector<std::string>& names() const override { return names_; }
  bool has_header() const override { return false; }
  ColumnKind kind(int) override { return ColumnKind::number; }
  void select(std::vector<int> columns, std::vector<bool> optional = {},
              std::vector<ColumnEncoder*> encoders = {}) override {
    selected_ = std::move(columns), optional_ = std::move(optional), encoders_ = std::move(encoders);
  }
  Read next(double* out) override;
  const BadRow& bad() const override { return bad_; }
  std::int64_t rows_read() const override { return rows_; }
  bool ready() const override { return end_ - begin_ >= row_bytes_; }
  double share() const override {
    return total_rows_ > 0 ? static_cast<double>(rows_) / static_cast<double>(total_rows_) : -1;
  }
  const std::string& input_name() const override { return bytes_.name(); }
  std::int64_t rows() const { return total_rows_; }

 private:
  enum class Kind { f4, f8, i4, i8 };
  void read_header();
  void read_exactly(char* data, std::size_t count);
  bool fill();

  ByteSource bytes_;
  std::vector<std::string> names_;
  std::vector<int> selected_;
  std::vector<bool> optional_;
  std::vector<ColumnEncoder*> encoders_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0, row_bytes_ = 0, item_bytes_ = 0;
  Kind kind_ = Kind::f8;
  std::int64_t total_rows_ = 0, rows_ = 0;
  BadRow bad_;
};

/// The header with this Python dict and room for `longest` characters of it.
std::string npy_header(std::string dict, std::size_t longest = 0);
/// The header of a C-order float64 array of `rows` x `columns`; its length does not depend on `rows`.
std::string npy_header(std::int64_t rows, std::int64_t columns);

}  // namespace ttr::cli
