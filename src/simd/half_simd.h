// Conversion between float and the two half types, compiled once per instruction set like the primitives of simd.h.
//
//   bf16  1 sign, 8 exponent, 7 mantissa bits: the upper half of a float
//   f16   1 sign, 5 exponent, 10 mantissa bits: largest 65504, subnormal below 2^-14
//
// Widening is exact. Narrowing rounds to nearest, ties to even, in integers: the same bits on every instruction set and
// whatever the machine does with denormal floats (a float below 2^-126 becomes zero in f16 and is kept in bf16). NaN
// stays NaN, too large numbers become infinite.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simd/simd.h"

namespace ttr {

struct HalfSimd {
  using Size = std::ptrdiff_t;
  void (*widen_bf16)(Size n, const std::uint16_t* in, float* out);
  void (*widen_f16)(Size n, const std::uint16_t* in, float* out);
  void (*narrow_bf16)(Size n, const float* in, std::uint16_t* out);
  void (*narrow_f16)(Size n, const float* in, std::uint16_t* out);
  /// The same for rows of n numbers that lie ld apart on the side of the halves, and one behind the other on that of the
  /// floats. out = in * factors where there are factors, rows as of out.
  void (*widen_rows_bf16)(Size rows, Size n, const std::uint16_t* in, Size ld, const float* factors, float* out);
  void (*widen_rows_f16)(Size rows, Size n, const std::uint16_t* in, Size ld, const float* factors, float* out);
  void (*narrow_rows_bf16)(Size rows, Size n, const float* in, std::uint16_t* out, Size ld);
  void (*narrow_rows_f16)(Size rows, Size n, const float* in, std::uint16_t* out, Size ld);
  /// Narrowing at random: up with the probability that makes the mean exact, so that what is far below a rounding still
  /// adds up over many tokens. Number first + i of an array gets the bits of (seed, first + i), on every instruction set.
  void (*round_bf16)(Size n, const float* in, std::uint32_t seed, std::uint32_t first, std::uint16_t* out);
  /// out = scale in
  void (*widen_i8)(Size n, const std::int8_t* in, float scale, float* out);
  /// out = in / scale to the nearest; returns the scale, max |in| / 127. Numbers that are not finite make it NaN.
  float (*narrow_i8)(Size n, const float* in, std::int8_t* out);
};

/// The table for the instruction set of `simd`. Does not allocate.
const HalfSimd& half_simd(const Simd<float>& simd) noexcept;

}  // namespace ttr
