#include "language/products.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace ttr::model {
namespace {

// The nearest number of bf16, ties to even.
float nearest_bf16(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return x;  // not a number
  bits += 0x7fffu + (bits >> 16 & 1u);
  bits &= 0xffff0000u;
  std::memcpy(&x, &bits, 4);
  return x;
}

}  // namespace

Stored rounding_of(Stored type) noexcept {
  return type == Stored::bf16                           ? Stored::bf16
         : type == Stored::q8_0 || type == Stored::q4_0 ? Stored::q8_0
                                                        : Stored::f32;
}

template <class T>
void round_activations(Stored rounding, std::ptrdiff_t n, const T* from, T* to) noexcept {
  if (rounding == Stored::bf16) {
    for (std::ptrdiff_t i = 0; i < n; ++i) to[i] = static_cast<T>(nearest_bf16(static_cast<float>(from[i])));
  } else if (rounding == Stored::q8_0) {
    for (std::ptrdiff_t b = 0; b < n; b += ProductSimd::block) {
      const std::ptrdiff_t count = std::min(ProductSimd::block, n - b);
      float x[ProductSimd::block], largest = 0;
      bool finite = true;
      for (std::ptrdiff_t i = 0; i < count; ++i) {
        x[i] = static_cast<float>(from[b + i]);
        finite = finite && std::isfinite(x[i]), largest = std::max(largest, std::abs(x[i]));
      }
      const bool some = largest >= std::ldexp(1.0f, -103);
      const float scale = !finite ? std::numeric_limits<float>::quiet_NaN() : some ? largest / 127 : 0;
      const float factor = finite && some ? 127 / largest : 0;
      for (std::ptrdiff_t i = 0; i < count; ++i)
        to[b + i] = static_cast<T>(scale) * (finite ? static_cast<T>(std::nearbyint(x[i] * factor)) : T(1));
    }
  } else if (to != from) std::copy_n(from, n, to);
}

template void round_activations(Stored, std::ptrdiff_t, const float*, float*) noexcept;
template void round_activations(Stored, std::ptrdiff_t, const double*, double*) noexcept;

}  // namespace ttr::model
