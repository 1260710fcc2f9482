// Products of whole numbers (products.h) by AVX-512 and its products of bytes. Highway 1.0 has no name for these, so the
// instructions are written out.
//
// X is one or three bytes, the first signed: q X is as many products of bytes, of which an instruction makes 64 and sums them by
// fours. It wants one factor without a sign: for the lower bytes that is X, for the first one it is q + 128, and 128 times the
// first bytes is subtracted beforehand. Sixteen rows of W stand side by side, fours of their bytes in a lane each: so the sum of a
// block is in one lane, and both ways, one that puts the fours into registers as the weights come and one that keeps them
// as panels, add the same numbers in the same order.
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

HWY_PUSH_ATTRIBUTES("avx,avx2,f16c,fma,avx512f,avx512vl,avx512bw,avx512dq,avx512vnni")
namespace ttr::model {
namespace {

using Size = ProductSimd::Size;
constexpr Size kRows = 16, kStrip = 32;  // rows of W side by side; blocks whose factors are looked up together

// 32 numbers of a row of x.
template <int P>
struct IntegerBlock {
  std::int8_t bytes[P][32];  // the highest first, which has a sign: with three bytes X / 2^16, rounded down
  float scale;               // s
  std::int32_t offset;       // -128 times the sum of the first bytes
};

// 32 numbers of each of 16 rows of W: by fours, the fours of the rows side by side.
struct alignas(64) Panel {
  std::int8_t q[8][kRows][4];
  float d[kRows];
};

// s and 1 / s for the largest number of a block, which is the bits of a float without its sign: an exponent that is all ones is
// not finite and the largest.
struct Scale {
  float scale, factor;
};
template <int P>
HWY_INLINE Scale ScaleOf(std::uint32_t largest) {
  const auto number = [](std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  };
  const std::uint32_t exponent = largest & 0x7f800000u;
  if (exponent == 0x7f800000u) return {number(0x7fc00000u), 0.0f};
  if (exponent < 24u << 23) return {0.0f, 0.0f};
  if (P == 1) return {number(largest) / 127.0f, 127.0f / number(largest)};
  return {number(exponent - (22u << 23)), number(((254u + 22u) << 23) - exponent)};
}

template <int P>
void Round(Size in, const float* x, std::byte* bytes) {
  auto* to = reinterpret_cast<IntegerBlock<P>*>(bytes);
  for (Size k = 0; k < in; k += 32, x += 32, ++to) {
    const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    const __m512i sizes =
        _mm512_max_epi32(_mm512_castps_si512(_mm512_abs_ps(a)), _mm512_castps_si512(_mm512_abs_ps(b)));
    const Scale s = ScaleOf<P>(static_cast<std::uint32_t>(_mm512_reduce_max_epi32(sizes)));
    const auto whole = [&](__m512 v) {
      const __m512i nearest = _mm512_cvt_roundps_epi32(_mm512_mul_ps(v, _mm512_set1_ps(s.factor)),
                                                       _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      return _mm512_min_epi32(nearest, _mm512_set1_epi32(P == 1 ? 127 : 0x7fffff));
    };
    const __m512i X[2] = {whole(a), whole(b)};
    __m256i first;
#pragma GCC unroll 3
    for (int p = P - 1; p >= 0; --p) {
      const auto lowest = [&](int j) {
        return _mm512_cvtepi32_epi8(_mm512_srli_epi32(X[j], static_cast<unsigned>(8 * (P - 1 - p))));
      };
      first = _mm256_set_m128i(lowest(1), lowest(0));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to->bytes[p]), first);
    }
    const __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(static_cast<char>(128)), first);
    to->scale = s.scale;
    to->offset = -_mm512_reduce_add_epi32(_mm512_zextsi256_si512(sums));
  }
}

// 16 bytes of each of 16 rows, fours of a row in a lane: to[g] has bytes 4 g .. 4 g + 3 of all rows. Rows are base + r bytes; a few
// pointers with small multiples of `bytes` are all that an address needs.
struct RowPointers {
  const std::byte* base[6];
  Size bytes;
  HWY_INLINE RowPointers(const std::byte* W, Size row_bytes) : bytes(row_bytes) {
#pragma GCC unroll 6
    for (int i = 0; i < 6; ++i) base[i] = W + 3 * i * row_bytes;
  }
  HWY_INLINE const std::byte* at(int r) const { return base[r / 3] + r % 3 * bytes; }
  HWY_INLINE void advance(Size by) {
#pragma GCC unroll 6
    for (int i = 0; i < 6; ++i) base[i] += by;
  }
};
HWY_INLINE void LoadFours(const RowPointers& rows, Size from, __m512i* to) {
  __m512i z[4];  // in each quarter 16 bytes of a row, of every fourth row
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const auto piece = [&](int r) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows.at(r) + from)); };
    z[i] = _mm512_castsi128_si512(piece(i));
    z[i] = _mm512_mask_broadcast_i32x4(z[i], 0x00f0, piece(4 + i));
    z[i] = _mm512_mask_broadcast_i32x4(z[i], 0x0f00, piece(8 + i));
    z[i] = _mm512_mask_broadcast_i32x4(z[i], 0xf000, piece(12 + i));
  }
  const __m512i a = _mm512_unpacklo_epi32(z[0], z[1]), b = _mm512_unpackhi_epi32(z[0], z[1]);
  const __m512i c = _mm512_unpacklo_epi32(z[2], z[3]), d = _mm512_unpackhi_epi32(z[2], z[3]);
  to[0] = _mm512_unpacklo_epi64(a, c), to[1] = _mm512_unpackhi_epi64(a, c);
  to[2] = _mm512_unpacklo_epi64(b, d), to[3] = _mm512_unpackhi_epi64(b, d);
}

// The halves with which the blocks of 16 rows begin, as floats.
HWY_INLINE __m512 Factors(const RowPointers& rows) {
  __m128i halves[2];
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    halves[h] = _mm_setzero_si128();
    const auto half = [&](int r) {
      std::uint16_t bits;
      std::memcpy(&bits, rows.at(8 * h + r), 2);
      return bits;
    };
    halves[h] = _mm_insert_epi16(_mm_cvtsi32_si128(half(0)), half(1), 1);
    halves[h] = _mm_insert_epi16(_mm_insert_epi16(halves[h], half(2), 2), half(3), 3);
    halves[h] = _mm_insert_epi16(_mm_insert_epi16(halves[h], half(4), 4), half(5), 5);
    halves[h] = _mm_insert_epi16(_mm_insert_epi16(halves[h], half(6), 6), half(7), 7);
  }
  return _mm512_cvtph_ps(_mm256_set_m128i(halves[1], halves[0]));
}

// Half a block, h = 0 or 1, of 16 rows: f(g, q) for its fours g = 4 h .. 4 h + 3. Behind the half d come the numbers.
struct Q8 {
  static constexpr Size bytes = 34;
  template <class F>
  HWY_INLINE static void fours(const RowPointers& rows, F&& f) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      __m512i q[4];
      LoadFours(rows, 2 + 16 * h, q);
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g) f(4 * h + g, q[g]);
    }
  }
};
struct Q4 {
  static constexpr Size bytes = 18;
  template <class F>
  HWY_INLINE static void fours(const RowPointers& rows, F&& f) {
    __m512i both[4];  // the lower four bits are the first half of a block
    LoadFours(rows, 2, both);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g) {
        const __m512i q = _mm512_and_si512(h ? _mm512_srli_epi16(both[g], 4) : both[g], _mm512_set1_epi8(15));
        f(4 * h + g, _mm512_sub_epi8(q, _mm512_set1_epi8(8)));
      }
    }
  }
};

// The sums of a block of one row of x with 16 rows of W.
template <int P>
struct BlockSums {
  __m512i byte[P];
  HWY_INLINE void begin(const IntegerBlock<P>& x) {
    byte[0] = _mm512_set1_epi32(x.offset);
#pragma GCC unroll 2
    for (int p = 1; p < P; ++p) byte[p] = _mm512_setzero_si512();
  }
  HWY_INLINE void add(const IntegerBlock<P>& x, int g, __m512i q, __m512i raised) {
    const auto four = [&](int p) {
      std::int32_t value;
      std::memcpy(&value, x.bytes[p] + 4 * g, 4);
      return _mm512_set1_epi32(value);
    };
    byte[0] = _mm512_dpbusd_epi32(byte[0], raised, four(0));
#pragma GCC unroll 2
    for (int p = 1; p < P; ++p) byte[p] = _mm512_dpbusd_epi32(byte[p], four(p), q);
  }
  HWY_INLINE __m512 onto(const IntegerBlock<P>& x, __m512 d, __m512 sum) const {
    __m512 product = _mm512_cvtepi32_ps(byte[0]);
    if constexpr (P == 3) {
      const __m512i rest = _mm512_add_epi32(_mm512_slli_epi32(byte[1], 8), byte[2]);
      product = _mm512_fmadd_ps(product, _mm512_set1_ps(65536), _mm512_cvtepi32_ps(rest));
    }
    return _mm512_fmadd_ps(product, _mm512_mul_ps(d, _mm512_set1_ps(x.scale)), sum);
  }
};
HWY_INLINE __m512i Raised(__m512i q) { return _mm512_xor_si512(q, _mm512_set1_epi8(static_cast<char>(128))); }

// y_i += W x_i for 16 rows of W and N of x, `blocks` blocks; the lines from `next` on are asked for meanwhile, to lie in the
// second cache: a processor that looks ahead begins anew with each row.
template <class Format, int P, int N>
HWY_INLINE void DotRows(Size blocks, const std::byte* W, Size bytes, const std::byte* x, Size ldx, bool add, float* y,
                        Size ldy, __mmask16 lanes, const char* next) {
  const auto at = [&](int i, Size b) -> const IntegerBlock<P>& {
    return reinterpret_cast<const IntegerBlock<P>*>(x + i * ldx)[b];
  };
  __m512 sums[N];
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) sums[i] = add ? _mm512_maskz_loadu_ps(lanes, y + i * ldy) : _mm512_setzero_ps();
  RowPointers rows(W, bytes);
  constexpr Size read = kRows * Format::bytes;
  for (Size b = 0; b < blocks; ++b, rows.advance(Format::bytes)) {
    if (next) {
#pragma GCC unroll 9
      for (Size line = 0; line < read; line += 64) _mm_prefetch(next + b * read + line, _MM_HINT_T1);
    }
    BlockSums<P> parts[N];
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) parts[i].begin(at(i, b));
    Format::fours(rows, [&](int g, __m512i q) {
      const __m512i raised = Raised(q);
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) parts[i].add(at(i, b), g, q, raised);
    });
    const __m512 d = Factors(rows);
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) sums[i] = parts[i].onto(at(i, b), d, sums[i]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) _mm512_mask_storeu_ps(y + i * ldy, lanes, sums[i]);
}

template <class Format, int P>
void DotsOf(Size in, Size out, const std::byte* W, Size bytes, Size n, const std::byte* x, Size ldx, float* y,
            Size ldy, const std::byte* after) {
  constexpr Size x_bytes = sizeof(IntegerBlock<P>), most = kStrip * Format::bytes;
  std::byte last[kRows * most];  // rows that are less than 16, with zeros behind them
  // The first rows all at once: sixteen streams would wait for the memory one line after another.
  for (Size line = 0; line < std::min(kRows, out) * bytes; line += 64)
    _mm_prefetch(reinterpret_cast<const char*>(W + line), _MM_HINT_T1);
  for (Size o = 0; o < out; o += kRows) {
    const Size count = std::min(kRows, out - o);
    const __mmask16 lanes = static_cast<__mmask16>((1u << count) - 1);
    for (Size b = 0; b < in / 32; b += kStrip) {
      const Size blocks = std::min(kStrip, in / 32 - b);
      const std::byte* rows = W + o * bytes + b * Format::bytes;
      Size apart = bytes;
      if (count < kRows) {
        std::memset(last, 0, sizeof last);
        for (Size r = 0; r < count; ++r)
          std::memcpy(last + r * most, rows + r * bytes, static_cast<std::size_t>(blocks * Format::bytes));
        rows = last, apart = most;
      }
      const std::byte* const then = o + kRows < out ? W + (o + kRows) * bytes : after;
      const char* next = then ? reinterpret_cast<const char*>(then + b * kRows * Format::bytes) : nullptr;
      for (Size i = 0; i < n; next = nullptr) {
        const std::byte* const xi = x + i * ldx + b * x_bytes;
        float* const yi = y + i * ldy + o;
        switch (std::min<Size>(n - i, 4)) {
#define TTR_DOTS(N)                                                                           \
  case N:                                                                                     \
    DotRows<Format, P, N>(blocks, rows, apart, xi, ldx, b > 0, yi, ldy, lanes, next), i += N; \
    break;
          TTR_DOTS(1) TTR_DOTS(2) TTR_DOTS(3) TTR_DOTS(4)
#undef TTR_DOTS
        }
      }
    }
  }
}

template <int P>
void Dots(Stored type, Size in, Size out, const std::byte* W, Size bytes, Size n, const std::byte* x, Size ldx,
          float* y, Size ldy, const std::byte* after) {
  if (type == Stored::q8_0) DotsOf<Q8, P>(in, out, W, bytes, n, x, ldx, y, ldy, after);
  else DotsOf<Q4, P>(in, out, W, bytes, n, x, ldx, y, ldy, after);
}

template <class Format>
void PackOf(Size rows, Size blocks, const std::byte* W, Size bytes, Panel* to) {
  std::byte last[kRows * Format::bytes] = {};
  for (Size b = 0; b < blocks; ++b, W += Format::bytes, ++to) {
    // The rows that are packed next: so many streams are more than a processor looks ahead in.
    for (Size r = 0; r < kRows; ++r)
      _mm_prefetch(reinterpret_cast<const char*>(W) + (kRows + r) * bytes, _MM_HINT_T1);
    const std::byte* from = W;
    Size apart = bytes;
    if (rows < kRows) {
      for (Size r = 0; r < rows; ++r) std::memcpy(last + r * Format::bytes, W + r * bytes, Format::bytes);
      from = last, apart = Format::bytes;
    }
    const RowPointers at(from, apart);
    Format::fours(at, [&](int g, __m512i q) { _mm512_store_si512(to->q[g], q); });
    _mm512_store_ps(to->d, Factors(at));
  }
}

void Pack(Stored type, Size rows, Size in, const std::byte* W, Size bytes, std::byte* to) {
  if (type == Stored::q8_0) PackOf<Q8>(rows, in / 32, W, bytes, reinterpret_cast<Panel*>(to));
  else PackOf<Q4>(rows, in / 32, W, bytes, reinterpret_cast<Panel*>(to));
}

// M rows of x with a panel: three sums of whole numbers and one of floats for each, or one and one.
template <int P, int M>
HWY_INLINE void Tile(Size rows, Size blocks, const std::byte* x, Size ldx, const Panel* W, bool add, float* y,
                     Size ldy) {
  const __mmask16 lanes = static_cast<__mmask16>((1u << rows) - 1);
  const std::byte* base[(M + 2) / 3];  // of every third row: addresses as in RowPointers
#pragma GCC unroll 4
  for (int i = 0; i < (M + 2) / 3; ++i) base[i] = x + 3 * i * ldx;
  const auto at = [&](int i) -> const IntegerBlock<P>& {
    return *reinterpret_cast<const IntegerBlock<P>*>(base[i / 3] + i % 3 * ldx);
  };
  __m512 sums[M];
#pragma GCC unroll 12
  for (int i = 0; i < M; ++i) sums[i] = add ? _mm512_maskz_loadu_ps(lanes, y + i * ldy) : _mm512_setzero_ps();
  for (Size b = 0; b < blocks; ++b, ++W) {
    BlockSums<P> parts[M];
#pragma GCC unroll 12
    for (int i = 0; i < M; ++i) parts[i].begin(at(i));
#pragma GCC unroll 8  // g++ 12 copies every sum at the end of a loop
    for (int g = 0; g < 8; ++g) {
      const __m512i q = _mm512_load_si512(W->q[g]), raised = Raised(q);
#pragma GCC unroll 12
      for (int i = 0; i < M; ++i) parts[i].add(at(i), g, q, raised);
    }
    const __m512 d = _mm512_load_ps(W->d);
#pragma GCC unroll 12
    for (int i = 0; i < M; ++i) sums[i] = parts[i].onto(at(i), d, sums[i]);
#pragma GCC unroll 4
    for (int i = 0; i < (M + 2) / 3; ++i) base[i] += sizeof(IntegerBlock<P>);
  }
#pragma GCC unroll 12
  for (int i = 0; i < M; ++i) _mm512_mask_storeu_ps(y + i * ldy, lanes, sums[i]);
}

template <int P>
constexpr Size kTileRows = P == 1 ? 12 : 6;

template <int P>
void Tiles(Size n, Size rows, Size blocks, const std::byte* x, Size ldx, const std::byte* panels, bool add, float* y,
           Size ldy) {
  const Panel* const W = reinterpret_cast<const Panel*>(panels);
  while (n > 0) {
    switch (std::min<Size>(n, kTileRows<P>)) {
#define TTR_TILE(M)                                                                         \
  case M:                                                                                   \
    if constexpr (M <= kTileRows<P>)                                                        \
      Tile<P, M>(rows, blocks, x, ldx, W, add, y, ldy), n -= M, x += M * ldx, y += M * ldy; \
    break;
      TTR_TILE(1)
      TTR_TILE(2)
      TTR_TILE(3)
      TTR_TILE(4) TTR_TILE(5) TTR_TILE(6) TTR_TILE(7) TTR_TILE(8) TTR_TILE(9) TTR_TILE(10) TTR_TILE(11) TTR_TILE(12)
#undef TTR_TILE
    }
  }
}

bool Takes(Stored type) { return type == Stored::q8_0 || type == Stored::q4_0; }

template <int P>
constexpr ProductSimd table{
    sizeof(IntegerBlock<P>), kRows, sizeof(Panel), 12, Takes, Round<P>, Dots<P>, Pack, Tiles<P>};

}  // namespace
}  // namespace ttr::model
HWY_POP_ATTRIBUTES

namespace ttr::model {
const ProductSimd* integer_products(const Simd<float>& simd, int bits) noexcept {
  if (simd.target != HWY_AVX3 || !__builtin_cpu_supports("avx512vnni")) return nullptr;
  return bits == 8 ? &table<1> : &table<3>;
}
}  // namespace ttr::model
#else
namespace ttr::model {
const ProductSimd* integer_products(const Simd<float>&, int) noexcept { return nullptr; }
}  // namespace ttr::model
#endif
