// Products with stored weights in a type that the machine multiplies faster than floats, where it has instructions for it:
//
//   y [n, out] = x W'      W [out, in] as stored; the rows of x are rounded first, 32 numbers of a row at a time
//
//                          weights        a block of x                                           what is rounded
//   integers of 24 bits    Q8_0, Q4_0     X of 24 bits times a power of two                      2^-23 of the largest: as floats
//   integers of 8 bits     Q8_0, Q4_0     X of 8 bits times the largest / 127                    1/254 of the largest
//   bf16                   BF16           the nearest numbers of bf16, ties to even              2^-9 of each
//
// The first is `Activations::exact`: y is as near to the exact sum as with floats. The others are `Activations::rounded`; elsewhere
// the same numbers are made by round_activations, as floats, and multiplied like any others. With whole numbers
//
//   y = sum over blocks of d s (sum of the 32 q X)      w = d q, x = s X
//
// and the sum of a block is exact until it becomes a float. Blocks are added one after another, in bf16 lanes of pairs: every y is
// one sum in an order that depends on `in` alone, and what is rounded depends on the 32 numbers, so the bits depend
// neither on the other rows nor on the threads. A block of whole numbers with a number that is not finite makes every y of its row not
// a number; one whose numbers are all below 2^-103 counts as zeros.
#pragma once

#include <algorithm>
#include <cstddef>

#include "language/quantised.h"
#include "simd/simd.h"

namespace ttr::model {

struct ProductSimd {
  using Size = std::ptrdiff_t;
  static constexpr Size block = 32;  // numbers of a row that are rounded together; a row ends with zeros
  static Size blocks(Size in) { return (in + block - 1) / block; }

  Size x_bytes;      // of a block of x
  Size panel_rows;   // rows of W that are packed together
  Size panel_bytes;  // of a block of so many rows
  Size tile_rows;    // rows of x that a tile takes best
  bool (*takes)(Stored);

  /// A row of `in` numbers as blocks(in) blocks.
  void (*round)(Size in, const float* x, std::byte* to);
  /// y [n, out] = x W' while the weights come from memory. Rows of x are `ldx` bytes apart; `after`: rows that the same thread
  /// will likely read next.
  void (*dots)(Stored, Size in, Size out, const std::byte* W, Size row_bytes, Size n, const std::byte* x, Size ldx,
               float* y, Size ldy, const std::byte* after);
  /// `in` numbers of up to panel_rows rows of W, from the first of a block on, as panels; what is not there is zeros.
  void (*pack)(Stored, Size rows, Size in, const std::byte* W, Size row_bytes, std::byte* to);
  /// y [n, rows] = x W', or y += x W', for `blocks` blocks of a panel.
  void (*tile)(Size n, Size rows, Size blocks, const std::byte* x, Size ldx, const std::byte* panels, bool add,
               float* y, Size ldy);
};

/// The tables for the instruction set of `simd`; null where floats are what the machine does best: without AVX-512 and its
/// products of bytes (VNNI), or of bf16. `bits` is 24 or 8.
const ProductSimd* integer_products(const Simd<float>& simd, int bits) noexcept;
const ProductSimd* bf16_products(const Simd<float>& simd) noexcept;

/// What activations are rounded to for weights of a type: BF16, Q8_0 (also for Q4_0), or F32: they stay.
Stored rounding_of(Stored type) noexcept;
/// A row of activations so rounded, where floats or doubles are multiplied; `to` may be `from`.
template <class T>
void round_activations(Stored rounding, std::ptrdiff_t n, const T* from, T* to) noexcept;

}  // namespace ttr::model
