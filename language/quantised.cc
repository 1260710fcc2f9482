#include "language/quantised.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ttr/half.h"

namespace ttr::model {
namespace {

using Size = std::ptrdiff_t;

float half_at(const std::byte* p) {
  f16 h;
  std::memcpy(&h, p, 2);
  return to_float(h);
}
unsigned byte_at(const std::byte* p, Size i) { return std::to_integer<unsigned>(p[i]); }
int signed_at(const std::byte* p, Size i) { return static_cast<signed char>(byte_at(p, i)); }

// Six bits each for the scale and the least value of sub-block j, from twelve bytes.
struct SixBits {
  unsigned scale, least;
};
SixBits six_bits(const std::byte* s, Size j) {
  if (j < 4) return {byte_at(s, j) & 63u, byte_at(s, j + 4) & 63u};
  return {(byte_at(s, j + 4) & 15u) | (byte_at(s, j - 4) >> 6) << 4, byte_at(s, j + 4) >> 4 | (byte_at(s, j) >> 6)
                                                                                                  << 4};
}

// 4 and 5 bits: `high` has the fifth ones, or is null.
void widen_45(const std::byte* block, const std::byte* high, const std::byte* low, float* x) {
  const float d = half_at(block), m = half_at(block + 2);
  for (Size c = 0; c < 4; ++c)
    for (int upper = 0; upper < 2; ++upper) {
      const SixBits s = six_bits(block + 4, 2 * c + upper);
      const float scale = d * static_cast<float>(s.scale), least = m * static_cast<float>(s.least);
      for (Size l = 0; l < 32; ++l) {
        unsigned q = upper ? byte_at(low, 32 * c + l) >> 4 : byte_at(low, 32 * c + l) & 15u;
        if (high && (byte_at(high, l) >> (2 * c + upper) & 1u)) q += 16;
        *x++ = scale * static_cast<float>(q) - least;
      }
    }
}

void widen_6(const std::byte* block, float* x) {
  const float d = half_at(block + 208);
  for (Size h = 0; h < 2; ++h, x += 128) {
    const std::byte *low = block + 64 * h, *high = block + 128 + 32 * h, *scales = block + 192 + 8 * h;
    for (Size l = 0; l < 32; ++l) {
      const unsigned bits = byte_at(high, l);
      const unsigned q[4] = {
          (byte_at(low, l) & 15u) | (bits & 3u) << 4, (byte_at(low, l + 32) & 15u) | (bits >> 2 & 3u) << 4,
          byte_at(low, l) >> 4 | (bits >> 4 & 3u) << 4, byte_at(low, l + 32) >> 4 | (bits >> 6 & 3u) << 4};
      for (Size j = 0; j < 4; ++j) {
        const float scale = d * static_cast<float>(signed_at(scales, l / 16 + 2 * j));
        x[l + 32 * j] = scale * static_cast<float>(static_cast<int>(q[j]) - 32);
      }
    }
  }
}

}  // namespace

std::string_view to_string(Stored type) noexcept {
  constexpr std::string_view names[] = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K"};
  return names[static_cast<int>(type)];
}
Size block_numbers(Stored type) noexcept {
  constexpr Size numbers[] = {1, 1, 1, 32, 32, 256, 256, 256};
  return numbers[static_cast<int>(type)];
}
Size block_bytes(Stored type) noexcept {
  constexpr Size bytes[] = {4, 2, 2, 34, 18, 144, 176, 210};
  return bytes[static_cast<int>(type)];
}

void widen(Stored type, Size n, const std::byte* from, float* to) noexcept {
  switch (type) {
    case Stored::f32:
      std::memcpy(to, from, static_cast<std::size_t>(n) * 4);
      return;
    case Stored::f16:
      for (Size i = 0; i < n; ++i) to[i] = half_at(from + 2 * i);
      return;
    case Stored::bf16:
      for (Size i = 0; i < n; ++i) {
        bf16 h;
        std::memcpy(&h, from + 2 * i, 2);
        to[i] = to_float(h);
      }
      return;
    case Stored::q8_0:
      for (Size b = 0; b < n / 32; ++b) {
        const std::byte* const block = from + 34 * b;
        const float d = half_at(block);
        for (Size i = 0; i < 32; ++i) to[32 * b + i] = d * static_cast<float>(signed_at(block + 2, i));
      }
      return;
    case Stored::q4_0:
      for (Size b = 0; b < n / 32; ++b) {
        const std::byte* const block = from + 18 * b;
        const float d = half_at(block);
        for (Size i = 0; i < 16; ++i) {
          const unsigned q = byte_at(block + 2, i);
          to[32 * b + i] = d * static_cast<float>(static_cast<int>(q & 15u) - 8);
          to[32 * b + i + 16] = d * static_cast<float>(static_cast<int>(q >> 4) - 8);
        }
      }
      return;
    case Stored::q4_k:
      for (Size b = 0; b < n / 256; ++b) widen_45(from + 144 * b, nullptr, from + 144 * b + 16, to + 256 * b);
      return;
    case Stored::q5_k:
      for (Size b = 0; b < n / 256; ++b)
        widen_45(from + 176 * b, from + 176 * b + 16, from + 176 * b + 48, to + 256 * b);
      return;
    case Stored::q6_k:
      for (Size b = 0; b < n / 256; ++b) widen_6(from + 210 * b, to + 256 * b);
      return;
  }
}

void narrow(Stored type, Size n, const float* from, std::byte* to) noexcept {
  const auto put_half = [](float x, std::byte* place) {
    const f16 h = to_f16(x);
    std::memcpy(place, &h, 2);
  };
  switch (type) {
    case Stored::f32:
      std::memcpy(to, from, static_cast<std::size_t>(n) * 4);
      return;
    case Stored::f16:
      for (Size i = 0; i < n; ++i) put_half(from[i], to + 2 * i);
      return;
    case Stored::bf16:
      for (Size i = 0; i < n; ++i) {
        const bf16 h = to_bf16(from[i]);
        std::memcpy(to + 2 * i, &h, 2);
      }
      return;
    case Stored::q8_0:
      for (Size b = 0; b < n / 32; ++b) {
        const float* const x = from + 32 * b;
        float largest = 0;
        for (Size i = 0; i < 32; ++i) largest = std::max(largest, std::abs(x[i]));
        const float d = largest / 127, inverse = d > 0 ? 1 / d : 0;
        put_half(d, to + 34 * b);
        for (Size i = 0; i < 32; ++i)
          to[34 * b + 2 + i] = static_cast<std::byte>(
              static_cast<signed char>(std::clamp(std::nearbyint(x[i] * inverse), -127.0f, 127.0f)));
      }
      return;
    case Stored::q4_0:
      for (Size b = 0; b < n / 32; ++b) {
        const float* const x = from + 32 * b;
        float largest = 0;
        for (Size i = 0; i < 32; ++i)
          if (std::abs(x[i]) > std::abs(largest)) largest = x[i];
        const float d = largest / -8, inverse = d != 0 ? 1 / d : 0;
        put_half(d, to + 18 * b);
        const auto level = [&](float v) {
          return static_cast<unsigned>(std::clamp(std::floor(v * inverse + 8.5f), 0.0f, 15.0f));
        };
        for (Size i = 0; i < 16; ++i)
          to[18 * b + 2 + i] = static_cast<std::byte>(level(x[i]) | level(x[i + 16]) << 4);
      }
      return;
    case Stored::q4_k:
    case Stored::q5_k:
    case Stored::q6_k:
      return;  // read only
  }
}

}  // namespace ttr::model
