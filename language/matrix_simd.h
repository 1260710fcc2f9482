// Products with stored weights, compiled once per instruction set like the primitives of simd.h.
#pragma once

#include <cstddef>

#include "language/quantised.h"
#include "simd/simd.h"

namespace ttr::model {

struct MatrixSimd {
  using Size = std::ptrdiff_t;
  /// y [n, out] = x W' for x [n, in] and W [out, in] as stored. A row of W is read once for up to four rows of x. Every
  /// number is one sum in an order that depends on `in` alone. `after`: rows that the same thread will likely read next.
  void (*dots)(Stored type, Size in, Size out, const std::byte* W, Size row_bytes, Size n, const float* x, Size ldx,
               float* y, Size ldy, const std::byte* after);
  /// `n` numbers from the start of a block on, as floats.
  void (*widen)(Stored type, Size n, const std::byte* from, float* to);
};

/// The table for the instruction set of `simd`.
const MatrixSimd& matrix_simd(const Simd<float>& simd) noexcept;

}  // namespace ttr::model
