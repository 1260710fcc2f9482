// The products of matrix_simd.h for one instruction set.
//
// A Decoder turns the numbers k .. k+31 of a row into vectors, times a factor that is common to the block. Two sums take the
// blocks in turn, so that the additions of one do not wait for the other; the memory of the weights is the limit.
#if defined(TTR_LANGUAGE_MATRIX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LANGUAGE_MATRIX_INL_H_
#undef TTR_LANGUAGE_MATRIX_INL_H_
#else
#define TTR_LANGUAGE_MATRIX_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "language/matrix_simd.h"
#include "simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

using model::Stored;
using Floats = Vec<float>;
constexpr Size kStep = 32;         // numbers of a step, whatever the type
constexpr Size kAhead = 12 << 10;  // bytes between the weights at hand and those that are asked for

// A half in every lane, as floats.
HWY_INLINE Floats HalfAt(const std::byte* p) {
  const hn::Rebind<std::uint16_t, Tag<float>> u;
  const hn::Rebind<hwy::float16_t, Tag<float>> h;
  std::uint16_t half;
  std::memcpy(&half, p, 2);
  return hn::PromoteTo(Tag<float>(), hn::BitCast(h, hn::Set(u, half)));
}

// What follows: at(row, k, j) is the j-th vector of the step that begins with number k, times factor(row, k). Numbers have
// no alignment in a file: they are copied where a load would want one.
struct DecodeF32 {
  static constexpr bool scaled = false;
  static constexpr Size bytes = 4 * kStep;  // of a step
  static HWY_INLINE Floats factor(const std::byte*, Size) { return hn::Set(Tag<float>(), 1.0f); }
  static HWY_INLINE Floats at(const std::byte* row, Size k, Size j) {
    return hn::LoadU(Tag<float>(), reinterpret_cast<const float*>(row) + k + j * Width<float>());
  }
};
struct DecodeF16 {
  static constexpr bool scaled = false;
  static constexpr Size bytes = 2 * kStep;
  static HWY_INLINE Floats factor(const std::byte*, Size) { return hn::Set(Tag<float>(), 1.0f); }
  static HWY_INLINE Floats at(const std::byte* row, Size k, Size j) {
    const hn::Rebind<hwy::float16_t, Tag<float>> h;
    return hn::PromoteTo(Tag<float>(),
                         hn::LoadU(h, reinterpret_cast<const hwy::float16_t*>(row) + k + j * Width<float>()));
  }
};
struct DecodeBf16 {
  static constexpr bool scaled = false;
  static constexpr Size bytes = 2 * kStep;
  static HWY_INLINE Floats factor(const std::byte*, Size) { return hn::Set(Tag<float>(), 1.0f); }
  static HWY_INLINE Floats at(const std::byte* row, Size k, Size j) {
    const hn::Rebind<std::uint16_t, Tag<float>> h;
    const hn::RebindToUnsigned<Tag<float>> u;
    const auto bits = hn::LoadU(h, reinterpret_cast<const std::uint16_t*>(row) + k + j * Width<float>());
    return hn::BitCast(Tag<float>(), hn::ShiftLeft<16>(hn::PromoteTo(u, bits)));
  }
};
struct DecodeQ8 {
  static constexpr bool scaled = true;
  static constexpr Size bytes = 34;
  static HWY_INLINE Floats factor(const std::byte* row, Size k) { return HalfAt(row + k / 32 * 34); }
  static HWY_INLINE Floats at(const std::byte* row, Size k, Size j) {
    const hn::Rebind<std::int8_t, Tag<float>> b;
    const hn::RebindToSigned<Tag<float>> s;
    const auto place = reinterpret_cast<const std::int8_t*>(row + k / 32 * 34 + 2) + j * Width<float>();
    return hn::ConvertTo(Tag<float>(), hn::PromoteTo(s, hn::LoadU(b, place)));
  }
};
struct DecodeQ4 {
  static constexpr bool scaled = true;
  static constexpr Size bytes = 18;
  static HWY_INLINE Floats factor(const std::byte* row, Size k) { return HalfAt(row + k / 32 * 18); }
  static HWY_INLINE Floats at(const std::byte* row, Size k, Size j) {
    static_assert(Width<float>() <= 16, "a vector is numbers of one half of a block");
    const hn::Rebind<std::uint8_t, Tag<float>> b;
    const hn::RebindToSigned<Tag<float>> s;
    const Size first = j * Width<float>();
    const auto place = reinterpret_cast<const std::uint8_t*>(row + k / 32 * 18 + 2) + first % 16;
    auto q = hn::PromoteTo(s, hn::LoadU(b, place));
    q = first < 16 ? hn::And(q, hn::Set(s, 15)) : hn::ShiftRight<4>(q);
    if constexpr (Width<float>() == 16) {  // a table of all there are
      HWY_ALIGN static constexpr float all[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
      return hn::TableLookupLanes(hn::Load(Tag<float>(), all), hn::IndicesFromVec(Tag<float>(), q));
    }
    return hn::ConvertTo(Tag<float>(), hn::Sub(q, hn::Set(s, 8)));
  }
};

// y_ri = row_r . x_i for R rows of W, which follow each other, and N rows of x. The last numbers of a row that is no multiple of
// a step go through floats in a buffer. What a number is does not depend on R and N.
template <class Decoder, int R, int N>
HWY_INLINE void DotRows(Stored type, Size in, const std::byte* W, Size bytes, const float* x, Size ldx, float* y,
                        Size ldy, std::uintptr_t next) {
  constexpr Size L = Width<float>(), vectors = kStep / L;
  const Tag<float> d;
  Floats sums[2][R][N];
  TTR_UNROLL for (int r = 0; r < R; ++r) {
    TTR_UNROLL for (int i = 0; i < N; ++i) sums[0][r][i] = sums[1][r][i] = hn::Zero(d);
  }
  const auto step = [&](const auto& at, const auto& factor, auto& to, Size ld, const float* from) HWY_ATTR {
    Floats part[R][N];
    TTR_UNROLL for (int r = 0; r < R; ++r) { TTR_UNROLL for (int i = 0; i < N; ++i) part[r][i] = hn::Zero(d); }
    TTR_UNROLL for (Size j = 0; j < vectors; ++j) {
      Floats values[N];
      TTR_UNROLL for (int i = 0; i < N; ++i) values[i] = hn::LoadU(d, from + i * ld + j * L);
      TTR_UNROLL for (int r = 0; r < R; ++r) {
        const Floats w = at(r, j);
        TTR_UNROLL for (int i = 0; i < N; ++i) {
          if constexpr (Decoder::scaled)
            part[r][i] = j ? hn::MulAdd(w, values[i], part[r][i]) : hn::Mul(w, values[i]);
          else to[r][i] = hn::MulAdd(w, values[i], to[r][i]);
        }
      }
    }
    if constexpr (Decoder::scaled) {
      TTR_UNROLL for (int r = 0; r < R; ++r) {
        const Floats scale = factor(r);
        TTR_UNROLL for (int i = 0; i < N; ++i) to[r][i] = hn::MulAdd(scale, part[r][i], to[r][i]);
      }
    }
  };
  const auto stored = [&](Size k, auto& to) HWY_ATTR {
    step([&](int r, Size j) HWY_ATTR { return Decoder::at(W + r * bytes, k, j); },
         [&](int r) HWY_ATTR { return Decoder::factor(W + r * bytes, k); }, to, ldx, x + k);
  };
  constexpr std::uintptr_t read = 2 * R * Decoder::bytes;
  Size k = 0;
  for (; k + 2 * kStep <= in; k += 2 * kStep, next += read) {
    if constexpr (R > 1) {
      TTR_UNROLL for (std::uintptr_t line = 0; line < read; line += 64)
          __builtin_prefetch(reinterpret_cast<const void*>(next + line), 0, 2);
    }
    stored(k, sums[0]), stored(k + kStep, sums[1]);
  }
  if (k + kStep <= in) {
    stored(k, sums[0]);
    k += kStep;
  }
  if (k < in) {
    HWY_ALIGN float rest[R * kStep] = {};
    HWY_ALIGN float values[N * kStep] = {};
    const Size n = in - k;
    for (int r = 0; r < R; ++r) model::widen(type, n, W + r * bytes + model::row_bytes(type, k), rest + r * kStep);
    for (int i = 0; i < N; ++i) std::copy_n(x + i * ldx + k, n, values + i * kStep);
    step([&](int r, Size j) HWY_ATTR { return hn::LoadU(d, rest + r * kStep + j * L); },
         [&](int) HWY_ATTR { return hn::Set(d, 1.0f); }, sums[1], kStep, values);
  }
  TTR_UNROLL for (int r = 0; r < R; ++r) {
    TTR_UNROLL for (int i = 0; i < N; ++i) y[i * ldy + r] =
        hn::GetLane(hn::SumOfLanes(d, hn::Add(sums[0][r][i], sums[1][r][i])));
  }
}

template <class Decoder>
void DotsOf(Stored type, Size in, Size out, const std::byte* W, Size bytes, Size n, const float* x, Size ldx,
            float* y, Size ldy, const std::byte* after) {
  // Rows of W together, as registers permit: sums that do not wait for each other, and fewer loads of x.
  Size o = 0;
  for (; o + 4 <= out; o += 4) {
    const std::byte* const rows = W + o * bytes;
    // Rows are short, and a processor that looks ahead begins anew with each: the rows that come next are asked for, to lie in
    // the second cache.
    const std::uintptr_t next = model::read_next(rows, std::max<Size>(4 * bytes, kAhead), W + out * bytes, after);
    Size i = 0;
    for (; i + 4 <= n; i += 4)
      for (Size r = 0; r < 4; ++r)
        DotRows<Decoder, 1, 4>(type, in, rows + r * bytes, bytes, x + i * ldx, ldx, y + i * ldy + o + r, ldy, 0);
    for (; i < n; ++i) DotRows<Decoder, 4, 1>(type, in, rows, bytes, x + i * ldx, ldx, y + i * ldy + o, ldy, next);
  }
  for (; o < out; ++o)
    for (Size i = 0; i < n; ++i)
      DotRows<Decoder, 1, 1>(type, in, W + o * bytes, bytes, x + i * ldx, ldx, y + i * ldy + o, ldy, 0);
}

// Blocks of 256 by way of floats.
inline void DotsOfLarge(Stored type, Size in, Size out, const std::byte* W, Size bytes, Size n, const float* x,
                        Size ldx, float* y, Size ldy) {
  const Size block = model::block_bytes(type);
  HWY_ALIGN float numbers[256];
  for (Size o = 0; o < out; ++o) {
    for (Size i = 0; i < n; ++i) y[i * ldy + o] = 0;
    for (Size b = 0; b < in / 256; ++b) {
      model::widen(type, 256, W + o * bytes + b * block, numbers);
      for (Size i = 0; i < n; ++i) {
        float part = 0;
        DotRows<DecodeF32, 1, 1>(Stored::f32, 256, reinterpret_cast<const std::byte*>(numbers), 0,
                                 x + i * ldx + b * 256, 0, &part, 0, 0);
        y[i * ldy + o] += part;
      }
    }
  }
}

inline void Dots(Stored type, Size in, Size out, const std::byte* W, Size bytes, Size n, const float* x, Size ldx,
                 float* y, Size ldy, const std::byte* after) {
  switch (type) {
    case Stored::f32:
      return DotsOf<DecodeF32>(type, in, out, W, bytes, n, x, ldx, y, ldy, after);
    case Stored::f16:
      return DotsOf<DecodeF16>(type, in, out, W, bytes, n, x, ldx, y, ldy, after);
    case Stored::bf16:
      return DotsOf<DecodeBf16>(type, in, out, W, bytes, n, x, ldx, y, ldy, after);
    case Stored::q8_0:
      return DotsOf<DecodeQ8>(type, in, out, W, bytes, n, x, ldx, y, ldy, after);
    case Stored::q4_0:
      return DotsOf<DecodeQ4>(type, in, out, W, bytes, n, x, ldx, y, ldy, after);
    case Stored::q4_k:
    case Stored::q5_k:
    case Stored::q6_k:
      return DotsOfLarge(type, in, out, W, bytes, n, x, ldx, y, ldy);
  }
}

template <class Decoder>
void WidenOf(Stored type, Size n, const std::byte* from, float* to) {
  constexpr Size L = Width<float>();
  const Tag<float> d;
  Size k = 0;
  for (; k + kStep <= n; k += kStep) {
    const Floats factor = Decoder::factor(from, k);
    TTR_UNROLL for (Size j = 0; j < kStep / L; ++j) {
      Floats w = Decoder::at(from, k, j);
      if constexpr (Decoder::scaled) w = hn::Mul(factor, w);
      hn::StoreU(w, d, to + k + j * L);
    }
  }
  if (k < n) model::widen(type, n - k, from + model::row_bytes(type, k), to + k);
}

inline void Widen(Stored type, Size n, const std::byte* from, float* to) {
  switch (type) {
    case Stored::f16:
      return WidenOf<DecodeF16>(type, n, from, to);
    case Stored::bf16:
      return WidenOf<DecodeBf16>(type, n, from, to);
    case Stored::q8_0:
      return WidenOf<DecodeQ8>(type, n, from, to);
    case Stored::q4_0:
      return WidenOf<DecodeQ4>(type, n, from, to);
    default:
      return model::widen(type, n, from, to);
  }
}

template <class T>
const model::MatrixSimd* MatrixTable() {
  static constexpr model::MatrixSimd table{Dots, Widen};
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
