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
#include <span>
#include <vector>

#include "language/matrix_simd.h"
#include "language/quantised.h"
#include "language/team.h"
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

/// y [n, out] = x W' + bias, for each of `groups` parts of the rows of x, which make as many parts of the rows of y.
template <class T>
struct Product {
  const Matrix* matrix;
  const T* x;
  Size ldx;
  T* y;
  Size ldy;
  const T* bias = nullptr;  // [out], of every part
  Size groups = 1;
};

template <class T>
class MatrixProducts {
 public:
  /// For matrices of up to `most_in` columns.
  MatrixProducts(Team&, Size most_in);
  /// Several products with the same rows, as one step of the team.
  void tokens(Size n, std::span<const Product<T>>);
  void block(Size n, std::span<const Product<T>>);
  /// Row `i` of the matrix as numbers.
  void row(const Matrix&, Size i, T* to);

  const Simd<T>& simd() const { return simd_; }
  std::size_t bytes() const;

 private:
  // Sums of `sum_block` terms; a task of `block` has so many columns in panels as wide as a tile, and takes `row_block` rows at
  // a time, side by side in memory: rows of x may lie a power of two apart, where a cache has place for eight.
  static constexpr Size sum_block = 256, row_block = 64, row_pad = 16, strips = 4;
  struct Room {
    Buffer<float> rows;  // of W, widened
    Buffer<T> wide;      // the same as T
    Buffer<T> panels, left;
  };
  template <class F>
  void run_tasks(std::span<const Product<T>>, F&&);

  const Simd<T>& simd_;
  const MatrixSimd& stored_;
  Team& team_;
  Size tile_;  // columns of a register tile
  std::vector<Room> rooms_;
  struct Cut {
    Size rows, tasks;  // rows of W of a task, and tasks of a group
  };
  std::vector<Cut> cuts_;
};

}  // namespace ttr::model
