// Products with weights that are stored as whole numbers, made in whole numbers, where the machine has instructions for them:
//
//   y [n, out] = x W'      W [out, in] in Q8_0 or Q4_0: w = d q, q of at most eight bits, d common to 32 numbers
//   x = s X                X of 24 bits, s a power of two for each 32 numbers of x: the largest has 23 bits
//   y = sum over blocks of d s (sum of the 32 q X)
//
// A number of x is rounded by at most 2^-23 of the largest of its block: the largest loses the last bit of its float, the others
// no more than it. The sum of a block is exact until it becomes a float, so that y is as near to the exact sum as
// with floats. What is rounded depends on the 32 numbers alone, and every y is one sum in an order that depends on `in`
// alone: the bits depend neither on the other rows nor on the threads. A block with a number that is not finite makes every y of its
// row not a number; one whose numbers are all below 2^-103 counts as zeros.
//
// X is three bytes, the first signed: q X is three products of bytes, of which an instruction makes 64 and sums them by fours. These
// instructions want one factor without a sign: for the lower bytes that is X, for the first one it is q + 128, and 128 times
// the first bytes is subtracted beforehand.
#pragma once

#include <cstddef>
#include <cstdint>

#include "language/quantised.h"
#include "simd/simd.h"

namespace ttr::model {

/// 64 numbers of a row: two blocks. Behind the end of the row they are zeros.
struct alignas(64) IntegerChunk {
  std::int8_t first[64];          // X / 2^16, rounded down
  std::uint8_t second[64];        // the bits 8 to 15 of X
  std::uint8_t third[64];         // the bits 0 to 7
  float scale[16];                // s, of each four numbers
  std::int32_t offset[16];        // -128 times the sum of four of `first`
  std::int32_t block_offset[16];  // the sum of the eight offsets of a block, for each of its fours
};

/// 32 numbers of each of 16 rows of W: by fours, the fours of the rows side by side.
struct alignas(64) IntegerPanel {
  std::int8_t q[8][16][4];
  float d[16];
};

struct IntegerSimd {
  using Size = std::ptrdiff_t;
  static constexpr Size panel_rows = 16;
  static bool takes(Stored type) { return type == Stored::q8_0 || type == Stored::q4_0; }
  static Size chunks(Size in) { return (in + 63) / 64; }

  /// A row of `in` numbers, a multiple of 32, as chunks(in) chunks.
  void (*round)(Size in, const float* x, IntegerChunk* to);
  /// y [n, out] = x W' while the weights come from memory. Rows of x are `ldx` chunks apart.
  void (*dots)(Stored, Size in, Size out, const std::byte* W, Size row_bytes, Size n, const IntegerChunk* x, Size ldx,
               float* y, Size ldy);
  /// `blocks` blocks of up to 16 rows of W as panels; rows that are not there are zeros.
  void (*pack)(Stored, Size rows, Size blocks, const std::byte* W, Size row_bytes, IntegerPanel* to);
  /// y [n, rows] = x W', or y += x W', for `blocks` blocks of up to 16 rows of W. An even block of x comes first.
  void (*tile)(Size n, Size rows, Size blocks, const IntegerChunk* x, Size ldx, const IntegerPanel* W, bool add,
               float* y, Size ldy);
};

/// The table for the instruction set of `simd`; null where floats are what the machine does best: without AVX-512 and its
/// products of bytes (VNNI).
const IntegerSimd* integer_simd(const Simd<float>& simd) noexcept;

}  // namespace ttr::model
