// Cholesky factors of several systems at once, one in every lane of a vector, compiled once per instruction set.
//
//   const FactorSimd<double>& s = factor_simd(simd<double>(""));      // of the same instruction set
//
// L systems of K unknowns lie side by side: entry (i, j <= i) of system l is number (i (i + 1) / 2 + j) L + l, entry i of
// a vector number i L + l. One factor at a time is short sums that wait for each other, and at K = 64 reaches a tenth of
// what the machine can do; side by side every operation is a whole vector, and no lane waits for another. What a lane
// holds never reaches another one, NaN included.
#pragma once

#include <cstddef>

#include "simd/simd.h"

namespace ttr {

template <class T>
struct FactorSimd {
  using Size = std::ptrdiff_t;

  int lanes;  // L

  /// A_l = e_l H + sum_{s <= l} C_sl k_s k_s' + diag(d_l): of H [K,K] the lower triangle is read; e [L], C [L,L] (row s,
  /// column l; not used where s > l), k [L,K], d [K,L].
  void (*form)(Size K, const T* H, Size ldh, const T* e, const T* C, const T* k, Size ldk, const T* d, T* A);
  /// A <- its factor, without the diagonal, whose reciprocals are `inverse` [K,L]. good [L] = 1, or 0 where the matrix is
  /// not positive definite: the lane is then NaN.
  void (*factor)(Size K, T* A, T* inverse, T* good);
  /// x [K,L] <- A^{-1} x
  void (*solve)(Size K, const T* A, const T* inverse, T* x);
};

/// The table for the instruction set of `simd`. Does not allocate.
template <class T>
const FactorSimd<T>& factor_simd(const Simd<T>& simd) noexcept;

}  // namespace ttr
