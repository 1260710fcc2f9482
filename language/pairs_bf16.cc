// Products of bf16 (products.h) by the instruction of AVX-512 that multiplies 32 of them and adds them by pairs to 16 floats. Highway
// 1.0 has no name for it. Numbers below the smallest normal one count as zeros in it.
#include "hwy/highway.h"
#include "language/products.h"

#if (HWY_ARCH_X86_64) && (HWY_COMPILER_GCC_ACTUAL || HWY_COMPILER_CLANG)
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#if HWY_COMPILER_GCC_ACTUAL  // its own header leaves what a mask without holes would blend with undefined
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

HWY_PUSH_ATTRIBUTES("avx,avx2,f16c,fma,avx512f,avx512vl,avx512bw,avx512dq,avx512bf16")
namespace ttr::model {
namespace {

using Size = ProductSimd::Size;
constexpr Size kBytes = 64, kPanelRows = 32;  // of 32 numbers; rows of W of a panel
constexpr Size kAhead = 12 << 10;             // bytes between the weights at hand and those that are asked for

HWY_INLINE __m512 Onto(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

void Round(Size in, const float* x, std::byte* to) {
  for (Size k = 0; k < in; k += 32, x += 32, to += kBytes) {
    const std::uint32_t some = in - k < 32 ? (1u << (in - k)) - 1 : ~0u;
    const __m512 a = _mm512_maskz_loadu_ps(static_cast<__mmask16>(some), x);
    const __m512 b =
        some >> 16 ? _mm512_maskz_loadu_ps(static_cast<__mmask16>(some >> 16), x + 16) : _mm512_setzero_ps();
    _mm512_storeu_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a)));
  }
}

// y_ri = row_r . x_i for R rows of W and N of x. What a number is does not depend on R and N.
template <int R, int N>
HWY_INLINE void DotRows(Size in, const std::byte* W, Size bytes, const std::byte* x, Size ldx, float* y, Size ldy,
                        std::uintptr_t next) {
  __m512 sums[R][N];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) sums[r][i] = _mm512_setzero_ps();
  }
  const auto step = [&](const auto& weights, const std::byte* from) {
    __m512i values[N];
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) values[i] = _mm512_loadu_si512(from + i * ldx);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m512i w = weights(W + r * bytes);
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) sums[r][i] = Onto(sums[r][i], w, values[i]);
    }
  };
  Size k = 0;
  for (; k + 32 <= in; k += 32, W += kBytes, x += kBytes, next += R * kBytes) {
    if constexpr (R > 1) {
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) _mm_prefetch(reinterpret_cast<const char*>(next + 64 * r), _MM_HINT_T1);
    }
    step([&](const std::byte* p) { return _mm512_loadu_si512(p); }, x);
  }
  if (k < in) {
    const __mmask32 some = (1u << (in - k)) - 1;
    step([&](const std::byte* p) { return _mm512_maskz_loadu_epi16(some, p); }, x);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) y[i * ldy + r] = _mm512_reduce_add_ps(sums[r][i]);
  }
}

void Dots(Stored, Size in, Size out, const std::byte* W, Size bytes, Size n, const std::byte* x, Size ldx, float* y,
          Size ldy, const std::byte* after) {
  Size o = 0;
  for (; o + 4 <= out; o += 4) {
    const std::byte* const rows = W + o * bytes;
    // As in matrix-inl.h: the rows that come next are asked for, to lie in the second cache.
    const std::uintptr_t next = read_next(rows, std::max<Size>(4 * bytes, kAhead), W + out * bytes, after);
    Size i = 0;
    for (; i + 4 <= n; i += 4) DotRows<4, 4>(in, rows, bytes, x + i * ldx, ldx, y + i * ldy + o, ldy, next);
    if (i + 2 <= n) DotRows<4, 2>(in, rows, bytes, x + i * ldx, ldx, y + i * ldy + o, ldy, next), i += 2;
    if (i < n) DotRows<4, 1>(in, rows, bytes, x + i * ldx, ldx, y + i * ldy + o, ldy, next);
  }
  for (; o < out; ++o)
    for (Size i = 0; i < n; ++i) DotRows<1, 1>(in, W + o * bytes, bytes, x + i * ldx, ldx, y + i * ldy + o, ldy, 0);
}

// A block of a panel: 16 pairs, of each those of 32 rows of W side by side. From 16 bytes of 16 rows, every fourth of which are
// quarters of a vector, come four pairs of all of them.
void Pack(Stored, Size rows, Size in, const std::byte* W, Size bytes, std::byte* to) {
  alignas(64) std::byte last[kPanelRows][kBytes];
  for (Size k = 0; k < in; k += 32, W += kBytes, to += kPanelRows * kBytes) {
    // The rows that are packed next: so many streams are more than a processor looks ahead in.
    for (Size r = 0; r < kPanelRows; ++r)
      _mm_prefetch(reinterpret_cast<const char*>(W) + (kPanelRows + r) * bytes, _MM_HINT_T1);
    const std::byte* from = W;
    Size apart = bytes;
    if (rows < kPanelRows || in - k < 32) {  // what is not there is zeros
      std::memset(last, 0, sizeof last);
      for (Size r = 0; r < rows; ++r)
        std::memcpy(last[r], W + r * bytes, static_cast<std::size_t>(2 * std::min<Size>(32, in - k)));
      from = last[0], apart = kBytes;
    }
    for (Size half = 0; half < 2; ++half)
      for (Size piece = 0; piece < 4; ++piece) {
        __m512i z[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          const auto quarter = [&](int j) {
            return _mm_loadu_si128(
                reinterpret_cast<const __m128i*>(from + (16 * half + 4 * j + i) * apart + 16 * piece));
          };
          z[i] = _mm512_castsi128_si512(quarter(0));
          z[i] = _mm512_mask_broadcast_i32x4(z[i], 0x00f0, quarter(1));
          z[i] = _mm512_mask_broadcast_i32x4(z[i], 0x0f00, quarter(2));
          z[i] = _mm512_mask_broadcast_i32x4(z[i], 0xf000, quarter(3));
        }
        const __m512i a = _mm512_unpacklo_epi32(z[0], z[1]), b = _mm512_unpackhi_epi32(z[0], z[1]);
        const __m512i c = _mm512_unpacklo_epi32(z[2], z[3]), d = _mm512_unpackhi_epi32(z[2], z[3]);
        std::byte* const place = to + (8 * piece + half) * kBytes;
        _mm512_store_si512(place, _mm512_unpacklo_epi64(a, c));
        _mm512_store_si512(place + 2 * kBytes, _mm512_unpackhi_epi64(a, c));
        _mm512_store_si512(place + 4 * kBytes, _mm512_unpacklo_epi64(b, d));
        _mm512_store_si512(place + 6 * kBytes, _mm512_unpackhi_epi64(b, d));
      }
  }
}

// M rows of x with a panel.
template <int M>
HWY_INLINE void Tile(Size rows, Size blocks, const std::byte* x, Size ldx, const std::byte* W, bool add, float* y,
                     Size ldy) {
  const std::uint32_t all = rows < 32 ? (1u << rows) - 1 : ~0u;
  const __mmask16 lanes[2] = {static_cast<__mmask16>(all), static_cast<__mmask16>(all >> 16)};
  const std::byte* base[(M + 2) / 3];  // of every third row: the others are small multiples of ldx from it
#pragma GCC unroll 4
  for (int i = 0; i < (M + 2) / 3; ++i) base[i] = x + 3 * i * ldx;
  __m512 sums[M][2];
#pragma GCC unroll 12
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j)
      sums[i][j] = add ? _mm512_maskz_loadu_ps(lanes[j], y + i * ldy + 16 * j) : _mm512_setzero_ps();
  }
  for (Size b = 0; b < 4 * blocks; ++b, W += 8 * kBytes) {
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      const __m512i w0 = _mm512_load_si512(W + 2 * g * kBytes), w1 = _mm512_load_si512(W + (2 * g + 1) * kBytes);
#pragma GCC unroll 12
      for (int i = 0; i < M; ++i) {
        std::int32_t pair;
        std::memcpy(&pair, base[i / 3] + i % 3 * ldx + 4 * g, 4);
        const __m512i value = _mm512_set1_epi32(pair);
        sums[i][0] = Onto(sums[i][0], w0, value), sums[i][1] = Onto(sums[i][1], w1, value);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < (M + 2) / 3; ++i) base[i] += 16;
  }
#pragma GCC unroll 12
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) _mm512_mask_storeu_ps(y + i * ldy + 16 * j, lanes[j], sums[i][j]);
  }
}

void Tiles(Size n, Size rows, Size blocks, const std::byte* x, Size ldx, const std::byte* W, bool add, float* y,
           Size ldy) {
  while (n > 0) {
    switch (std::min<Size>(n, 12)) {
#define TTR_TILE(M)                                                                    \
  case M:                                                                              \
    Tile<M>(rows, blocks, x, ldx, W, add, y, ldy), n -= M, x += M * ldx, y += M * ldy; \
    break;
      TTR_TILE(1)
      TTR_TILE(2)
      TTR_TILE(3)
      TTR_TILE(4) TTR_TILE(5) TTR_TILE(6) TTR_TILE(7) TTR_TILE(8) TTR_TILE(9) TTR_TILE(10) TTR_TILE(11) TTR_TILE(12)
#undef TTR_TILE
    }
  }
}

bool Takes(Stored type) { return type == Stored::bf16; }

constexpr ProductSimd table{kBytes, kPanelRows, kPanelRows* kBytes, 12, Takes, Round, Dots, Pack, Tiles};

}  // namespace
}  // namespace ttr::model
HWY_POP_ATTRIBUTES

namespace ttr::model {
const ProductSimd* bf16_products(const Simd<float>& simd) noexcept {
  return simd.target == HWY_AVX3 && __builtin_cpu_supports("avx512bf16") ? &table : nullptr;
}
}  // namespace ttr::model
#else
namespace ttr::model {
const ProductSimd* bf16_products(const Simd<float>&) noexcept { return nullptr; }
}  // namespace ttr::model
#endif
