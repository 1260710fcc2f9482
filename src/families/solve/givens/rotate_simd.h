// Rows rotated into a triangle, several tokens at once, compiled once per instruction set.
//
//   const RotateSimd<double>& s = rotate_simd(simd<double>(""));      // of the same instruction set
//
// A token's row (x, y) goes into [R Z] from the first pivot to the last, and its query reads what it has left behind:
//
//   length = sqrt(R_ii^2 + x_i^2) ;  c = R_ii / length ;  s = x_i / length ;  R_ii = length
//   (row i, x) <- (c row + s x, c x - s row) on the columns behind i, and on [Z, y]
//   q_i <- q_i / R_ii ;  q_j -= q_i R_ij for j > i ;  o += q_i Z_i           that is R'^{-1} q, and Z' R'^{-1} q
//
// Row i may take the next token as soon as this one has passed it. So a few tokens go through a few columns of all rows
// while x and q are in registers, and every token does the same operations in the same order as it does alone: the bits do
// not depend on how many go together. Nothing is rotated where x_i = 0; a row without a pivot answers 0.
#pragma once

#include <cstddef>

#include "simd/simd.h"

namespace ttr {

template <class T>
struct RotateSimd {
  using Size = std::ptrdiff_t;

  struct Rows {
    Size rank = 0, V = 0;          // pivots, columns of Z
    T *R = nullptr, *Z = nullptr;  // [rank, ldr], zero below the diagonal; [rank, V]
    Size ldr = 0;
    T *x = nullptr, *q = nullptr;  // [tokens, ldx]: rows in; queries in, R'^{-1} q out. q null: none
    Size ldx = 0;
    T *y = nullptr, *o = nullptr;  // [tokens, ldy]: rows in; answers are added to. o null: none
    Size ldy = 0;
    T* coefficients = nullptr;  // scratch: 3 tokens rank
  };
  int tokens;  // that go together
  /// The next `tokens` of them, and one.
  void (*several)(const Rows&);
  void (*one)(const Rows&);
};

/// The table for the instruction set of `simd`. Does not allocate.
template <class T>
const RotateSimd<T>& rotate_simd(const Simd<T>& simd) noexcept;

}  // namespace ttr
