// Per-token operations on vectors, compiled once per instruction set like the primitives of simd.h. The formulas are in
// elements-inl.h (every element by itself), rows-inl.h and pairs-inl.h (a row together); row_loop.h says which rows.
//
//   const TokenSimd<float> s = token_simd(&simd<float>(""));      // of the same instruction set
//   s.of(Op::sigmoid).forward(job);
//
// Any strides are allowed: numbers that do not lie side by side are gathered into vectors, and go through the same
// operations. So the bits of a row depend on its numbers alone, not on strides, neighbours or the number of rows.
#pragma once

#include <cstddef>

#include "prepare/operations.h"
#include "simd/simd.h"

namespace ttr::prepare {

/// `rows` rows of a result, each `width` numbers, and of the operands. Element d of row r is data[r row + d step]; an
/// operand with step 0 is one number that serves the whole row, and its gradient is the sum over the row. Without
/// data: left out (of operations by row: a weight is 1, a bias 0), or a gradient that is not wanted.
template <class T>
struct TokenJob {
  using Size = std::ptrdiff_t;
  template <class N>
  struct Side {
    N* data = nullptr;
    Size row = 0, step = 0;
  };
  Size rows = 0, width = 0;
  Size depth = 0;  // numbers in a row that is summed up, where the result is of another width
  T number = 0;
  Side<const T> x[4];
  Side<T> y;             // forward: written
  Side<const T> result;  // backward: y, and its gradient
  Side<const T> gradient;
  Side<T> dx[4];  // added to, where wanted
};

template <class T>
struct TokenCall {
  /// False if a number was outside the domain; the result is defined all the same.
  bool (*forward)(const TokenJob<T>&) = nullptr;
  void (*backward)(const TokenJob<T>&) = nullptr;
};

/// The operations of one kind, by Op; those of other kinds are empty. Two kinds are two tables, so that no file that is
/// compiled once per instruction set takes long.
template <class T>
struct TokenTable {
  TokenCall<T> call[op_count];
  /// Of the table of elements: cos and sin of position * frequency_i, in double.
  void (*turns)(std::ptrdiff_t n, double position, const double* frequency, T* cosine, T* sine) = nullptr;
};

template <class T>
struct TokenSimd {
  const TokenTable<T>& elements;
  const TokenTable<T>& rows;
  const TokenCall<T>& of(Op op) const {
    return (facts(op).kind == Kind::row ? rows : elements).call[static_cast<int>(op)];
  }
};

/// The tables of an instruction set (a target of Highway).
template <class T>
const TokenTable<T>& element_table(long long target) noexcept;
template <class T>
const TokenTable<T>& row_table(long long target) noexcept;

/// The best instruction set of this machine.
long long best_token_target() noexcept;

/// The tables for the instruction set of `simd`, or (null) for the best of this machine. Does not allocate.
template <class T>
TokenSimd<T> token_simd(const Simd<T>* simd) noexcept {
  const long long target = simd ? simd->target : best_token_target();
  return {element_table<T>(target), row_table<T>(target)};
}

}  // namespace ttr::prepare
