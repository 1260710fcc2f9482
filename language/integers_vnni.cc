// integers.h by AVX-512 and its products of bytes. Highway 1.0 has no name for these, so the instructions are written out.
#include "language/integers.h"

#include "hwy/highway.h"

#if (HWY_ARCH_X86_64) && (HWY_COMPILER_GCC_ACTUAL || HWY_COMPILER_CLANG)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#if HWY_COMPILER_GCC_ACTUAL  // its own header leaves what a mask without holes would blend with undefined
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

HWY_PUSH_ATTRIBUTES("avx,avx2,f16c,fma,avx512f,avx512vl,avx512bw,avx512dq,avx512vnni")
namespace ttr::model {
namespace {

using Size = IntegerSimd::Size;
constexpr Size kAhead = 12 << 10;  // bytes between the weights at hand and those that are asked for

// The largest, or the sum, of each half of a vector in all its lanes.
struct Largest {
  HWY_INLINE static __m512i of(__m512i a, __m512i b) { return _mm512_max_epi32(a, b); }
};
struct Sum {
  HWY_INLINE static __m512i of(__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }
};
template <class Join>
HWY_INLINE __m512i JoinHalves(__m512i v) {
  v = Join::of(v, _mm512_shuffle_i64x2(v, v, 0xb1));
  v = Join::of(v, _mm512_shuffle_epi32(v, _MM_PERM_BADC));
  return Join::of(v, _mm512_shuffle_epi32(v, _MM_PERM_CDAB));
}

void Round(Size in, const float* x, IntegerChunk* to) {
  const __m512i exponents = _mm512_set1_epi32(0x7f800000);
  for (Size k = 0; k < in; k += 64, x += 64, ++to) {
    const __mmask16 second = k + 32 < in ? 0xffff : 0;
    const __m512 values[4] = {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16), _mm512_maskz_loadu_ps(second, x + 32),
                              _mm512_maskz_loadu_ps(second, x + 48)};
    // Sizes of floats are ordered as their bits are, and what is not finite is largest: its exponent is the largest.
    const auto larger = [&](__m512 a, __m512 b) {
      return _mm512_max_epi32(_mm512_castps_si512(_mm512_abs_ps(a)), _mm512_castps_si512(_mm512_abs_ps(b)));
    };
    const __m512i a = larger(values[0], values[1]), b = larger(values[2], values[3]);
    const __m512i each = _mm512_max_epi32(_mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xee));
    const __m512i exponent = _mm512_and_si512(JoinHalves<Largest>(each), exponents);
    // The exponents of s and 1 / s in the place that floats have for them; both are floats from 24 on.
    const __mmask16 some = _mm512_cmpge_epi32_mask(exponent, _mm512_set1_epi32(24 << 23));
    const __m512i scale = _mm512_maskz_sub_epi32(some, exponent, _mm512_set1_epi32(22 << 23));
    const __m512i factor = _mm512_maskz_sub_epi32(some, _mm512_set1_epi32((254 + 22) << 23), exponent);
    const __mmask16 wrong = _mm512_cmpeq_epi32_mask(exponent, exponents);
    _mm512_store_si512(to->scale, _mm512_mask_mov_epi32(scale, wrong, _mm512_set1_epi32(0x7fc00000)));
    const __m512 factors[2] = {_mm512_castsi512_ps(_mm512_shuffle_i64x2(factor, factor, 0x00)),
                               _mm512_castsi512_ps(_mm512_shuffle_i64x2(factor, factor, 0xff))};
    __m512i X[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512i nearest = _mm512_cvt_roundps_epi32(_mm512_mul_ps(values[j], factors[j / 2]),
                                                       _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      X[j] = _mm512_min_epi32(nearest, _mm512_set1_epi32(0x7fffff));
    }
    const auto bytes = [&](unsigned shift) {  // of all X, the lowest after the shift
      const auto lowest = [&](int j) { return _mm512_cvtepi32_epi8(_mm512_srli_epi32(X[j], shift)); };
      return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(lowest(1), lowest(0))),
                                _mm256_set_m128i(lowest(3), lowest(2)), 1);
    };
    const __m512i first = bytes(16);
    _mm512_store_si512(to->first, first);
    _mm512_store_si512(to->second, bytes(8));
    _mm512_store_si512(to->third, bytes(0));
    const __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(static_cast<char>(128)), first);
    const __m512i offsets = _mm512_sub_epi32(_mm512_setzero_si512(), sums);
    _mm512_store_si512(to->offset, offsets);
    _mm512_store_si512(to->block_offset, JoinHalves<Sum>(offsets));
  }
}

// Two blocks of a row: q, and d for each of their eight fours. Halves stand before the numbers of a block, at words 0 and 17 or
// 9; the words are taken into place and become floats together.
struct Weights {
  __m512i q;
  __m512 d;
};
struct Q8 {
  static constexpr Size bytes = 34;
  HWY_INLINE static Weights at(const std::byte* p) {
    const __m512i low = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 2)));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 36));
    const __m512i places = _mm512_inserti64x4(
        _mm512_setzero_si512(), _mm256_inserti128_si256(_mm256_setzero_si256(), _mm_set1_epi16(17), 1), 0);
    const __m256i d = _mm512_castsi512_si256(_mm512_permutexvar_epi16(places, _mm512_loadu_si512(p)));
    return {_mm512_inserti64x4(low, high, 1), _mm512_cvtph_ps(d)};
  }
};
struct Q4 {
  static constexpr Size bytes = 18;
  HWY_INLINE static Weights at(const std::byte* p) {
    const __m512i both = _mm512_maskz_loadu_epi16(0x3ffff, p);  // 36 bytes and no more
    const __m512i places = _mm512_inserti64x4(
        _mm512_setzero_si512(), _mm256_inserti128_si256(_mm256_setzero_si256(), _mm_set1_epi16(9), 1), 0);
    const __m256i d = _mm512_castsi512_si256(_mm512_permutexvar_epi16(places, both));
    // The 16 bytes of each block twice: once for the lower four bits of each, once for the upper ones.
    const __m128i eight = _mm_set_epi16(8, 7, 6, 5, 4, 3, 2, 1), next = _mm_set_epi16(17, 16, 15, 14, 13, 12, 11, 10);
    const __m512i twice =
        _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(eight, eight)), _mm256_set_m128i(next, next), 1);
    __m512i q = _mm512_permutexvar_epi16(twice, both);
    q = _mm512_mask_srli_epi16(q, 0xff00ff00, q, 4);
    q = _mm512_sub_epi8(_mm512_and_si512(q, _mm512_set1_epi8(15)), _mm512_set1_epi8(8));
    return {q, _mm512_cvtph_ps(d)};
  }
};

// y_ri = row_r . x_i for R rows of W and N of x. What a number is does not depend on R and N.
template <class Format, int R, int N>
HWY_INLINE void DotRows(Size in, const std::byte* W, Size bytes, const IntegerChunk* x, Size ldx, float* y,
                        Size ldy) {
  __m512 sums[R][N];
  for (int r = 0; r < R; ++r)
    for (int i = 0; i < N; ++i) sums[r][i] = _mm512_setzero_ps();
  const auto step = [&](const auto& weights, Size c) {
    const IntegerChunk* const chunk = x + c;
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const Weights w = weights(r);
      const __m512i raised = _mm512_xor_si512(w.q, _mm512_set1_epi8(static_cast<char>(128)));  // q + 128
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) {
        const IntegerChunk& X = chunk[i * ldx];
        const __m512i upper = _mm512_dpbusd_epi32(_mm512_load_si512(X.offset), raised, _mm512_load_si512(X.first));
        __m512i lower = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_load_si512(X.second), w.q);
        lower = _mm512_dpbusd_epi32(_mm512_slli_epi32(lower, 8), _mm512_load_si512(X.third), w.q);
        const __m512 product =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(upper), _mm512_set1_ps(65536), _mm512_cvtepi32_ps(lower));
        sums[r][i] = _mm512_fmadd_ps(product, _mm512_mul_ps(w.d, _mm512_load_ps(X.scale)), sums[r][i]);
      }
    }
  };
  // As in matrix-inl.h: the rows that come next are asked for here, to lie in the second cache.
  std::uintptr_t next =
      reinterpret_cast<std::uintptr_t>(W) + static_cast<std::uintptr_t>(std::max<Size>(R * bytes, kAhead));
  constexpr std::uintptr_t read = 2 * R * Format::bytes;
  const Size whole = in / 64;
  for (Size c = 0; c < whole; ++c, next += read) {
    if constexpr (R > 1) {
#pragma GCC unroll 8
      for (std::uintptr_t line = 0; line < read; line += 64)
        _mm_prefetch(reinterpret_cast<const char*>(next + line), _MM_HINT_T1);
    }
    step([&](int r) { return Format::at(W + r * bytes + c * 2 * Format::bytes); }, c);
  }
  if (in % 64) {  // a block is left
    std::byte last[R][2 * Format::bytes] = {};
    for (int r = 0; r < R; ++r) std::memcpy(last[r], W + r * bytes + whole * 2 * Format::bytes, Format::bytes);
    step([&](int r) { return Format::at(last[r]); }, whole);
  }
  for (int r = 0; r < R; ++r)
    for (int i = 0; i < N; ++i) y[i * ldy + r] = _mm512_reduce_add_ps(sums[r][i]);
}

template <class Format>
void DotsOf(Size in, Size out, const std::byte* W, Size bytes, Size n, const IntegerChunk* x, Size ldx, float* y,
            Size ldy) {
  Size o = 0;
  for (; o + 4 <= out; o += 4) {
    const std::byte* const rows = W + o * bytes;
    Size i = 0;
    for (; i + 2 <= n; i += 2) DotRows<Format, 4, 2>(in, rows, bytes, x + i * ldx, ldx, y + i * ldy + o, ldy);
    for (; i < n; ++i) DotRows<Format, 4, 1>(in, rows, bytes, x + i * ldx, ldx, y + i * ldy + o, ldy);
  }
  for (; o < out; ++o)
    for (Size i = 0; i < n; ++i)
      DotRows<Format, 1, 1>(in, W + o * bytes, bytes, x + i * ldx, ldx, y + i * ldy + o, ldy);
}

void Dots(Stored type, Size in, Size out, const std::byte* W, Size bytes, Size n, const IntegerChunk* x, Size ldx,
          float* y, Size ldy) {
  if (type == Stored::q8_0) DotsOf<Q8>(in, out, W, bytes, n, x, ldx, y, ldy);
  else DotsOf<Q4>(in, out, W, bytes, n, x, ldx, y, ldy);
}

// Fours of 16 rows side by side, from the 32 bytes of two rows in each vector: rows r and r + 8.
HWY_INLINE void TransposeFours(const __m512i* rows, IntegerPanel& to) {
  __m512i fours[8];  // four rows, and the four that are eight further, by fours g and g + 4
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const __m512i* const z = rows + 4 * h;
    const __m512i a = _mm512_unpacklo_epi32(z[0], z[1]), b = _mm512_unpackhi_epi32(z[0], z[1]);
    const __m512i c = _mm512_unpacklo_epi32(z[2], z[3]), d = _mm512_unpackhi_epi32(z[2], z[3]);
    fours[4 * h] = _mm512_unpacklo_epi64(a, c), fours[4 * h + 1] = _mm512_unpackhi_epi64(a, c);
    fours[4 * h + 2] = _mm512_unpacklo_epi64(b, d), fours[4 * h + 3] = _mm512_unpackhi_epi64(b, d);
  }
  const __m512i even = _mm512_set_epi64(13, 12, 5, 4, 9, 8, 1, 0), odd = _mm512_set_epi64(15, 14, 7, 6, 11, 10, 3, 2);
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    _mm512_store_si512(to.q[g], _mm512_permutex2var_epi64(fours[g], even, fours[4 + g]));
    _mm512_store_si512(to.q[g + 4], _mm512_permutex2var_epi64(fours[g], odd, fours[4 + g]));
  }
}

template <class Format>
void PackOf(Size rows, Size blocks, const std::byte* W, Size bytes, IntegerPanel* to) {
  constexpr Size most = IntegerSimd::panel_rows, pair = 2 * Format::bytes;
  for (Size b = 0; b < blocks; b += 2, to += 2) {
    const bool both = b + 1 < blocks;
    alignas(64) std::uint16_t halves[2][most];
    __m512i q[most];
#pragma GCC unroll 16
    for (Size r = 0; r < most; ++r) {
      const std::byte* p = W + r * bytes + b * Format::bytes;
      std::byte copy[pair] = {};
      if (r >= rows || !both) {  // what is not there is zeros
        if (r < rows) std::memcpy(copy, p, Format::bytes);
        p = copy;
      }
      q[r] = Format::at(p).q;
      std::memcpy(&halves[0][r], p, 2), std::memcpy(&halves[1][r], p + Format::bytes, 2);
    }
    __m512i half[most / 2];
    for (int h = 0; h < 2 && (h == 0 || both); ++h) {
#pragma GCC unroll 8
      for (Size r = 0; r < most / 2; ++r)
        half[r] = h ? _mm512_shuffle_i64x2(q[r], q[r + 8], 0xee) : _mm512_shuffle_i64x2(q[r], q[r + 8], 0x44);
      TransposeFours(half, to[h]);
      _mm512_store_ps(to[h].d, _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves[h]))));
    }
  }
}

void Pack(Stored type, Size rows, Size blocks, const std::byte* W, Size bytes, IntegerPanel* to) {
  if (type == Stored::q8_0) PackOf<Q8>(rows, blocks, W, bytes, to);
  else PackOf<Q4>(rows, blocks, W, bytes, to);
}

// M rows of x: lanes are the rows of W.
template <int M>
HWY_INLINE void Tile(Size rows, Size blocks, const IntegerChunk* x, Size ldx, const IntegerPanel* W, bool add,
                     float* y, Size ldy) {
  const __mmask16 lanes = static_cast<__mmask16>((1u << rows) - 1);
  __m512 sums[M];
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i) sums[i] = add ? _mm512_maskz_loadu_ps(lanes, y + i * ldy) : _mm512_setzero_ps();
  for (Size b = 0; b < blocks; ++b, ++W) {
    const IntegerChunk* const chunk = x + b / 2;
    const Size half = b % 2;
    __m512i upper[M], middle[M], lower[M];
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) {
      upper[i] = _mm512_set1_epi32(chunk[i * ldx].block_offset[8 * half]);
      middle[i] = lower[i] = _mm512_setzero_si512();
    }
    const auto four = [&](const void* bytes, int g) {
      std::int32_t value;
      std::memcpy(&value, static_cast<const std::byte*>(bytes) + 32 * half + 4 * g, 4);
      return _mm512_set1_epi32(value);
    };
#pragma GCC unroll 8  // g++ 12 copies every sum at the end of a loop
    for (int g = 0; g < 8; ++g) {
      const __m512i q = _mm512_load_si512(W->q[g]);
      const __m512i raised = _mm512_xor_si512(q, _mm512_set1_epi8(static_cast<char>(128)));
#pragma GCC unroll 8
      for (int i = 0; i < M; ++i) {
        const IntegerChunk& X = chunk[i * ldx];
        upper[i] = _mm512_dpbusd_epi32(upper[i], raised, four(X.first, g));
        middle[i] = _mm512_dpbusd_epi32(middle[i], four(X.second, g), q);
        lower[i] = _mm512_dpbusd_epi32(lower[i], four(X.third, g), q);
      }
    }
    const __m512 d = _mm512_load_ps(W->d);
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) {
      const __m512i rest = _mm512_add_epi32(_mm512_slli_epi32(middle[i], 8), lower[i]);
      const __m512 product =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(upper[i]), _mm512_set1_ps(65536), _mm512_cvtepi32_ps(rest));
      sums[i] = _mm512_fmadd_ps(product, _mm512_mul_ps(d, _mm512_set1_ps(chunk[i * ldx].scale[8 * half])), sums[i]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i) _mm512_mask_storeu_ps(y + i * ldy, lanes, sums[i]);
}

void Tiles(Size n, Size rows, Size blocks, const IntegerChunk* x, Size ldx, const IntegerPanel* W, bool add, float* y,
           Size ldy) {
  while (n > 0) {
    switch (std::min<Size>(n, 6)) {
#define TTR_TILE(M)                                                                    \
  case M:                                                                              \
    Tile<M>(rows, blocks, x, ldx, W, add, y, ldy), n -= M, x += M * ldx, y += M * ldy; \
    break;
      TTR_TILE(1) TTR_TILE(2) TTR_TILE(3) TTR_TILE(4) TTR_TILE(5) TTR_TILE(6)
#undef TTR_TILE
    }
  }
}

constexpr IntegerSimd table{Round, Dots, Pack, Tiles};

}  // namespace
}  // namespace ttr::model
HWY_POP_ATTRIBUTES

namespace ttr::model {
const IntegerSimd* integer_simd(const Simd<float>& simd) noexcept {
  return simd.target == HWY_AVX3 && __builtin_cpu_supports("avx512vnni") ? &table : nullptr;
}
}  // namespace ttr::model
#else
namespace ttr::model {
const IntegerSimd* integer_simd(const Simd<float>&) noexcept { return nullptr; }
}  // namespace ttr::model
#endif
