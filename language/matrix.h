// A matrix of weights as it is stored, and its product with rows of tokens on threads:
//
//   y [n, out] = x W'      W [out, in] in any stored type; x, y float, or double to compare with
//
//   tokens   the weights are read once and the sums made as they come: the limit is the memory. The bits of a row depend
//            neither on the other rows nor on the threads
//   block    many rows: strips of W become floats in the order of the register tiles of simd.h, and are used for all rows.
//            Sums are in blocks of `sum_block`, so the bits of a row depend neither on the other rows nor on the threads,
//            but they are not those of `tokens`
//
// Where the machine multiplies the type of the weights faster than floats, and the rows of x may be rounded for it, it does
// (products.h): both rules hold.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "language/matrix_simd.h"
#include "language/products.h"
#include "language/quantised.h"
#include "language/team.h"
#include "model/buffer.h"
#include "simd/simd.h"
#include "ttr/language.h"

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
  MatrixProducts(Team&, Size most_in, Activations = Activations::exact);
  /// Memory for such a call with up to `n` rows: calls that were announced allocate nothing.
  void reserve(Size n, std::span<const Product<T>>);
  /// Several products with the same rows, as one step of the team.
  void tokens(Size n, std::span<const Product<T>>);
  void block(Size n, std::span<const Product<T>>);
  /// Row `i` of the matrix as numbers.
  void row(const Matrix&, Size i, T* to);

  const Simd<T>& simd() const { return simd_; }
  std::size_t bytes() const;

 private:
  // Sums of `sum_block` terms; a task of `block` has so many columns in panels as wide as a tile, and takes `row_block` rows at
  // a time, six tiles of twelve. Sums are long: what is read of a row of W, and of y, lies together.
  static constexpr Size sum_block = 1024, row_block = 72, row_pad = 16, strips = 4;
  struct Room {
    Buffer<float> rows;  // of W, widened
    Buffer<T> wide;      // the same as T
    Buffer<T> panels;
    Buffer<std::byte> packed;  // panels of products.h
  };
  // The rows of x of a call in the order that products want: rounded for a table of products.h, or as numbers, rounded to be the
  // same, or for tiles: those are not a power of two apart, where a cache has place for eight. Of each token, those of
  // all products side by side.
  struct Side {
    Size begin = 0;                   // of the first row, in bytes or numbers
    bool first = true;                // no product before this one has the same x
    const ProductSimd* by = nullptr;  // null: numbers
    Stored rounded = Stored::f32;     // the type that they are rounded for
    bool copied = false;              // numbers that are not read where they are
  };
  const ProductSimd* table_for(Stored type) const;
  void place(std::span<const Product<T>>, bool tiles);
  void prepare(Size n, std::span<const Product<T>>, bool tiles);
  const std::byte* rounded(const Side& side, const Matrix& W, Size group) const {
    return rounded_.data() + side.begin + group * ProductSimd::blocks(W.in) * side.by->x_bytes;
  }
  void float_block(const Product<T>&, Size n, Size first, Size columns, const T* x, T* y, Room&);
  void packed_block(const Product<T>&, const ProductSimd&, Size n, Size first, Size columns, const std::byte* x, T* y,
                    Room&);
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
  Activations activations_;
  const ProductSimd *integers_ = nullptr, *bf16_ = nullptr;  // null: floats
  std::vector<Side> sides_;                                  // of the products at hand
  Size bytes_ = 0, numbers_ = 0;                             // of a token
  Buffer<std::byte> rounded_;
  Buffer<T> copied_;
};

}  // namespace ttr::model
