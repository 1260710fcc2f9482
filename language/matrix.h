// A matrix of weights as it is stored, and its product with rows of tokens on threads:
//
//   y [n, out] = x W'      W [out, in] in any stored type; x, y float, or double to compare with
//
//   tokens   the weights are read once and the sums made as they come: the limit is the memory. The bits of a row depend
//            neither on the other rows nor on the threads
//   block    many rows: strips of W become floats in the order of the register tiles of simd.h, and are used for all rows.
//            Sums are in blocks of `sum_block`, so the bits of a row depend neither on the other rows nor on the threads,
//            but they are not those of `tokens`
#pragma once

#include <memory>
#include <vector>

#include "language/matrix_simd.h"
#include "language/quantised.h"
#include "model/buffer.h"
#include "simd/simd.h"

namespace ttr::model {

struct Matrix {
  Stored type = Stored::f32;
  Size out = 0, in = 0;
  const std::byte* data = nullptr;              // rows one after another
  std::shared_ptr<std::vector<float>> numbers;  // where it is no part of a file: a sum or a transpose of one

  Size bytes() const { return out * row_bytes(type, in); }
  const std::byte* row(Size i) const { return data + i * row_bytes(type, in); }
  /// Rows begin .. begin + count alone.
  Matrix rows(Size begin, Size count) const {
    Matrix part = *this;
    part.data = row(begin), part.out = count;
    return part;
  }
  /// Of [out, in] floats.
  static Matrix of(Size out, Size in, std::vector<float> numbers);
};

template <class T>
class MatrixProducts {
 public:
  /// For matrices of up to `most_in` columns.
  MatrixProducts(int threads, Size most_in);
  void tokens(const Matrix&, Size n, const T* x, Size ldx, T* y, Size ldy);
  void block(const Matrix&, Size n, const T* x, Size ldx, T* y, Size ldy);
  /// Row `i` of the matrix as numbers.
  void row(const Matrix&, Size i, T* to);

  int threads() const { return threads_; }
  const Simd<T>& simd() const { return simd_; }

 private:
  static constexpr Size sum_block = 256, row_block = 64, strips = 4;
  struct Room {
    Buffer<float> rows;  // of W, widened
    Buffer<T> wide;      // the same as T, or strips of W in the order of the tiles
  };
  const Simd<T>& simd_;
  const MatrixSimd& stored_;
  int threads_;
  Size tile_;  // columns of a register tile
  std::vector<Room> rooms_;
};

}  // namespace ttr::model
