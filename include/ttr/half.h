// One number of a half type from a float, and back.
//
//   ttr::bf16 x = ttr::to_bf16(3.14159f);      // 3.140625: to nearest, ties to even
//   float y = ttr::to_float(x);                // exact
//
// Plans with Options::tensors convert whole tensors by themselves, faster.
#pragma once

#include <bit>
#include <cstdint>

#include "ttr/view.h"

namespace ttr {

constexpr float to_float(bf16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }

constexpr float to_float(f16 x) {
  const std::uint32_t sign = (x.bits & 0x8000u) << 16, exponent = x.bits >> 10 & 31u, mantissa = x.bits & 0x3ffu;
  if (exponent == 0) {  // subnormal: whole steps of 2^-24
    const float size = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -size : size;
  }
  return std::bit_cast<float>(sign | (exponent == 31 ? 255u : exponent + 112) << 23 | mantissa << 13);
}

constexpr bf16 to_bf16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>(bits >> 16 | 0x40u)};  // NaN
  return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

constexpr f16 to_f16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), size = bits & 0x7fffffffu;
  std::uint32_t half = 0;
  if (size > 0x7f800000u) half = 0x7e00u | (size >> 13 & 0x3ffu);  // NaN
  else if (size >= 0x477ff000u) half = 0x7c00u;                    // 65520 and more
  else if (size < 0x38800000u)  // beside 0.5 a float has steps of 2^-24, those of a subnormal half
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000u;
  else half = (size + 0xfffu + (size >> 13 & 1u) - (112u << 23)) >> 13;
  return {static_cast<std::uint16_t>(half | (bits >> 16 & 0x8000u))};
}

}  // namespace ttr
