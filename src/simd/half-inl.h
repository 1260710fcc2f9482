// The conversions of half_simd.h for one instruction set.
#if defined(TTR_SIMD_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_HALF_INL_H_
#undef TTR_SIMD_HALF_INL_H_
#else
#define TTR_SIMD_HALF_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "simd/half_simd.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

struct HalfBits {
  using F = hn::ScalableTag<float>;
  using U = hn::RebindToUnsigned<F>;
  using S = hn::RebindToSigned<F>;
  using H = hn::Rebind<std::uint16_t, F>;

  static HWY_INLINE hn::Vec<F> from_bf16(hn::Vec<U> h) { return hn::BitCast(F(), hn::ShiftLeft<16>(h)); }

  static HWY_INLINE hn::Vec<F> from_f16(hn::Vec<U> h) {
    const U u;
    const F f;
    const auto sign = hn::ShiftLeft<16>(hn::And(h, hn::Set(u, 0x8000u)));
    const auto exponent = hn::And(hn::ShiftRight<10>(h), hn::Set(u, 31u)), mantissa = hn::And(h, hn::Set(u, 0x3ffu));
    auto bits = hn::Or(hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(u, 112u))), hn::ShiftLeft<13>(mantissa));
    const auto special = hn::Or(hn::Set(u, 0x7f800000u), hn::ShiftLeft<13>(mantissa));
    bits = hn::IfThenElse(hn::Eq(exponent, hn::Set(u, 31u)), special, bits);
    const auto small = hn::Mul(hn::ConvertTo(f, hn::BitCast(S(), mantissa)), hn::Set(f, 0x1p-24f));
    bits = hn::IfThenElse(hn::Eq(exponent, hn::Zero(u)), hn::BitCast(u, small), bits);
    return hn::BitCast(f, hn::Or(bits, sign));
  }

  static HWY_INLINE hn::Vec<U> to_bf16(hn::Vec<F> x) {
    const U u;
    const auto bits = hn::BitCast(u, x), size = hn::And(bits, hn::Set(u, 0x7fffffffu));
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1u));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(u, 0x7fffu)), odd));
    const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(u, 0x40u));
    return hn::IfThenElse(hn::Gt(size, hn::Set(u, 0x7f800000u)), quiet, rounded);
  }

  static HWY_INLINE hn::Vec<U> to_f16(hn::Vec<F> x) {
    const U u;
    const F f;
    const auto bits = hn::BitCast(u, x), size = hn::And(bits, hn::Set(u, 0x7fffffffu));
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 0x8000u));
    const auto odd = hn::And(hn::ShiftRight<13>(size), hn::Set(u, 1u));
    auto half = hn::ShiftRight<13>(hn::Sub(hn::Add(hn::Add(size, hn::Set(u, 0xfffu)), odd), hn::Set(u, 112u << 23)));
    // Beside 0.5 a float has steps of 2^-24, those of a subnormal half.
    const auto beside = hn::Add(hn::BitCast(f, size), hn::Set(f, 0.5f));
    const auto small = hn::Sub(hn::BitCast(u, beside), hn::Set(u, 0x3f000000u));
    half = hn::IfThenElse(hn::Lt(size, hn::Set(u, 0x38800000u)), small, half);
    half = hn::IfThenElse(hn::Gt(size, hn::Set(u, 0x477fefffu)), hn::Set(u, 0x7c00u), half);
    const auto quiet = hn::Or(hn::Set(u, 0x7e00u), hn::And(hn::ShiftRight<13>(size), hn::Set(u, 0x3ffu)));
    half = hn::IfThenElse(hn::Gt(size, hn::Set(u, 0x7f800000u)), quiet, half);
    return hn::Or(half, sign);
  }
};

// The last numbers go through the same vectors by way of a buffer; a few, as the gates of a token are, by one(half).
template <class Convert, class One>
HWY_INLINE void widen_all(std::ptrdiff_t n, const std::uint16_t* HWY_RESTRICT in, float* HWY_RESTRICT out,
                          Convert&& convert, One&& single) {
  const HalfBits::F f;
  const HalfBits::U u;
  const HalfBits::H h;
  const std::ptrdiff_t lanes = static_cast<std::ptrdiff_t>(hn::Lanes(f));
  std::ptrdiff_t i = 0;
  const auto one = [&](std::ptrdiff_t at)
                       HWY_ATTR { hn::StoreU(convert(hn::PromoteTo(u, hn::LoadU(h, in + at))), f, out + at); };
  for (; i + 4 * lanes <= n; i += 4 * lanes) one(i), one(i + lanes), one(i + 2 * lanes), one(i + 3 * lanes);
  for (; i + lanes <= n; i += lanes) one(i);
  if (n - i <= 4) {
    for (; i < n; ++i) out[i] = single(in[i]);
    return;
  }
  HWY_ALIGN std::uint16_t from[HWY_MAX_BYTES / sizeof(float)] = {};
  HWY_ALIGN float to[HWY_MAX_BYTES / sizeof(float)];
  for (std::ptrdiff_t j = i; j < n; ++j) from[j - i] = in[j];
  hn::Store(convert(hn::PromoteTo(u, hn::Load(h, from))), f, to);
  for (std::ptrdiff_t j = i; j < n; ++j) out[j] = to[j - i];
}

template <class Convert>
HWY_INLINE void narrow_all(std::ptrdiff_t n, const float* HWY_RESTRICT in, std::uint16_t* HWY_RESTRICT out,
                           Convert&& convert) {
  const HalfBits::F f;
  const HalfBits::S s;
  const HalfBits::H h;
  const std::ptrdiff_t lanes = static_cast<std::ptrdiff_t>(hn::Lanes(f));
  const auto halves = [&](auto x) HWY_ATTR { return hn::DemoteTo(h, hn::BitCast(s, convert(x))); };
  std::ptrdiff_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(halves(hn::LoadU(f, in + i)), h, out + i);
  if (i == n) return;
  HWY_ALIGN float from[HWY_MAX_BYTES / sizeof(float)] = {};
  HWY_ALIGN std::uint16_t to[HWY_MAX_BYTES / sizeof(float)];
  for (std::ptrdiff_t j = i; j < n; ++j) from[j - i] = in[j];
  hn::Store(halves(hn::Load(f, from)), h, to);
  for (std::ptrdiff_t j = i; j < n; ++j) out[j] = to[j - i];
}

inline void widen_bf16(std::ptrdiff_t n, const std::uint16_t* in, float* out) {
  const auto single = [](std::uint16_t half) {
    const std::uint32_t bits = std::uint32_t{half} << 16;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  };
  widen_all(
      n, in, out, [](auto h) HWY_ATTR { return HalfBits::from_bf16(h); }, single);
}
inline void widen_f16(std::ptrdiff_t n, const std::uint16_t* in, float* out) {
#if HWY_ARCH_X86 && HWY_CAP_GE256 && !defined(HWY_DISABLE_F16C)
  // The machine converts by itself; the last numbers go the way of all.
  const HalfBits::F f;
  const hn::Rebind<hwy::float16_t, HalfBits::F> h;
  const std::ptrdiff_t lanes = static_cast<std::ptrdiff_t>(hn::Lanes(f)), whole = n / lanes * lanes;
  for (std::ptrdiff_t i = 0; i < whole; i += lanes)
    hn::StoreU(hn::PromoteTo(f, hn::LoadU(h, reinterpret_cast<const hwy::float16_t*>(in + i))), f, out + i);
  n -= whole, in += whole, out += whole;
#endif
  const auto single = [](std::uint16_t half) {
    const bool special = (half >> 10 & 31) == 31;
    const std::uint32_t sign = std::uint32_t{half} >> 15 << 31, size = half & 0x7fffu;
    std::uint32_t bits = (size << 13) + ((special ? 224u : 112u) << 23);
    float x = static_cast<float>(size) * 0x1p-24f;  // a subnormal half
    if (size < 0x400u) std::memcpy(&bits, &x, sizeof bits);
    bits |= sign;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  };
  widen_all(
      n, in, out, [](auto half) HWY_ATTR { return HalfBits::from_f16(half); }, single);
}
inline void narrow_bf16(std::ptrdiff_t n, const float* in, std::uint16_t* out) {
#if HWY_TARGET != HWY_SCALAR
  // Two vectors at a time: the upper halves of both are one vector.
  const HalfBits::F f;
  const HalfBits::U u;
  const hn::Repartition<std::uint16_t, HalfBits::F> halves;
  const std::ptrdiff_t lanes = static_cast<std::ptrdiff_t>(hn::Lanes(f)), whole = n / (2 * lanes) * 2 * lanes;
  const auto rounded = [&](const float* from) HWY_ATTR {
    const auto x = hn::LoadU(f, from);
    const auto bits = hn::BitCast(u, x), odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1u));
    const auto up = hn::Add(hn::Add(bits, hn::Set(u, 0x7fffu)), odd), quiet = hn::Or(bits, hn::Set(u, 0x400000u));
    return hn::BitCast(halves, hn::IfThenElse(hn::RebindMask(u, hn::IsNaN(x)), quiet, up));
  };
  for (std::ptrdiff_t i = 0; i < whole; i += 2 * lanes)
    hn::StoreU(hn::ConcatOdd(halves, rounded(in + i + lanes), rounded(in + i)), halves, out + i);
  n -= whole, in += whole, out += whole;
#endif
  narrow_all(n, in, out, [](auto x) HWY_ATTR { return HalfBits::to_bf16(x); });
}
inline void narrow_f16(std::ptrdiff_t n, const float* in, std::uint16_t* out) {
#if HWY_ARCH_X86 && HWY_CAP_GE256 && !defined(HWY_DISABLE_F16C)
  const HalfBits::F f;
  const hn::Rebind<hwy::float16_t, HalfBits::F> h;
  const std::ptrdiff_t lanes = static_cast<std::ptrdiff_t>(hn::Lanes(f)), whole = n / lanes * lanes;
  for (std::ptrdiff_t i = 0; i < whole; i += lanes)
    hn::StoreU(hn::DemoteTo(h, hn::LoadU(f, in + i)), h, reinterpret_cast<hwy::float16_t*>(out + i));
  n -= whole, in += whole, out += whole;
#endif
  narrow_all(n, in, out, [](auto x) HWY_ATTR { return HalfBits::to_f16(x); });
}

// One vector of floats from halves and to them, and a row from them.
struct RowsOfBf16 {
  static HWY_INLINE hn::Vec<HalfBits::F> load(const std::uint16_t* in) {
    return HalfBits::from_bf16(hn::PromoteTo(HalfBits::U(), hn::LoadU(HalfBits::H(), in)));
  }
  static HWY_INLINE void store(hn::Vec<HalfBits::F> x, std::uint16_t* out) {
    const HalfBits::H h;
#if HWY_CAP_GE512  // what DemoteTo makes sure of is so
    hn::StoreU(hn::TruncateTo(h, HalfBits::to_bf16(x)), h, out);
#else
    hn::StoreU(hn::DemoteTo(h, hn::BitCast(HalfBits::S(), HalfBits::to_bf16(x))), h, out);
#endif
  }
  static HWY_INLINE void row(std::ptrdiff_t n, const std::uint16_t* in, float* out) { widen_bf16(n, in, out); }
};
struct RowsOfF16 {
  static HWY_INLINE hn::Vec<HalfBits::F> load(const std::uint16_t* in) {
#if HWY_ARCH_X86 && HWY_CAP_GE256 && !defined(HWY_DISABLE_F16C)
    const hn::Rebind<hwy::float16_t, HalfBits::F> h;
    return hn::PromoteTo(HalfBits::F(), hn::LoadU(h, reinterpret_cast<const hwy::float16_t*>(in)));
#else
    return HalfBits::from_f16(hn::PromoteTo(HalfBits::U(), hn::LoadU(HalfBits::H(), in)));
#endif
  }
  static HWY_INLINE void store(hn::Vec<HalfBits::F> x, std::uint16_t* out) {
#if HWY_ARCH_X86 && HWY_CAP_GE256 && !defined(HWY_DISABLE_F16C)
    const hn::Rebind<hwy::float16_t, HalfBits::F> h;
    hn::StoreU(hn::DemoteTo(h, x), h, reinterpret_cast<hwy::float16_t*>(out));
#else
    const HalfBits::H h;
    hn::StoreU(hn::DemoteTo(h, hn::BitCast(HalfBits::S(), HalfBits::to_f16(x))), h, out);
#endif
  }
  static HWY_INLINE void row(std::ptrdiff_t n, const std::uint16_t* in, float* out) { widen_f16(n, in, out); }
};

template <class Widen>
void widen_rows(std::ptrdiff_t rows, std::ptrdiff_t n, const std::uint16_t* in, std::ptrdiff_t ld,
                const float* factors, float* HWY_RESTRICT out) {
  const HalfBits::F f;
  const std::ptrdiff_t lanes = static_cast<std::ptrdiff_t>(hn::Lanes(f)), whole = n / lanes * lanes;
  for (std::ptrdiff_t r = 0; r < rows; ++r, in += ld, out += n) {
    if (factors) {
      for (std::ptrdiff_t i = 0; i < whole; i += lanes)
        hn::StoreU(hn::Mul(Widen::load(in + i), hn::LoadU(f, factors + i)), f, out + i);
    } else {
      for (std::ptrdiff_t i = 0; i < whole; i += lanes) hn::StoreU(Widen::load(in + i), f, out + i);
    }
    if (whole < n) {
      Widen::row(n - whole, in + whole, out + whole);
      for (std::ptrdiff_t i = whole; factors && i < n; ++i) out[i] *= factors[i];
    }
    if (factors) factors += n;
  }
}

inline void narrow_rows_bf16(std::ptrdiff_t rows, std::ptrdiff_t n, const float* in, std::uint16_t* out,
                             std::ptrdiff_t ld) {
  for (std::ptrdiff_t r = 0; r < rows; ++r, in += n, out += ld) narrow_bf16(n, in, out);
}
inline void narrow_rows_f16(std::ptrdiff_t rows, std::ptrdiff_t n, const float* in, std::uint16_t* out,
                            std::ptrdiff_t ld) {
  for (std::ptrdiff_t r = 0; r < rows; ++r, in += n, out += ld) narrow_f16(n, in, out);
}

// The 16 random bits of an element are the upper half of seed + number of the element x 2^32 / golden ratio. For one
// element they are as random as the seed, which is a hash of the token; neighbours are spread evenly. What is kept of a
// number plus its bits is the upper half, two vectors at a time. The lines behind `out` are fetched meanwhile: they are
// what is widened next.
inline void round_bf16(std::ptrdiff_t n, const float* HWY_RESTRICT in, std::uint32_t seed, std::uint32_t first,
                       std::uint16_t* HWY_RESTRICT out) {
  constexpr std::uint32_t step = 0x9e3779b9u;
  float odd = 0;  // NaN if a number is not finite
  std::ptrdiff_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const HalfBits::F f;
  const HalfBits::U u;
  const hn::Repartition<std::uint16_t, HalfBits::F> halves;
  const std::ptrdiff_t lanes = static_cast<std::ptrdiff_t>(hn::Lanes(f));
  const auto next = hn::Set(u, static_cast<std::uint32_t>(lanes) * step);
  auto counter = hn::Add(hn::Set(u, seed + first * step), hn::Mul(hn::Iota(u, 0), hn::Set(u, step)));
  auto sum = hn::Zero(f);
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    hwy::Prefetch(out + n + i);
    const auto x = hn::LoadU(f, in + i), y = hn::LoadU(f, in + i + lanes);
    const auto low = hn::Add(hn::BitCast(u, x), hn::ShiftRight<16>(counter));
    counter = hn::Add(counter, next);
    const auto high = hn::Add(hn::BitCast(u, y), hn::ShiftRight<16>(counter));
    counter = hn::Add(counter, next);
    hn::StoreU(hn::ConcatOdd(halves, hn::BitCast(halves, high), hn::BitCast(halves, low)), halves, out + i);
    sum = hn::MulAdd(hn::Zero(f), hn::Add(x, y), sum);
  }
  odd = hn::GetLane(hn::SumOfLanes(f, sum));
#endif
  for (std::ptrdiff_t j = i; j < n; ++j) {
    std::uint32_t bits;
    std::memcpy(&bits, in + j, sizeof bits);
    out[j] =
        static_cast<std::uint16_t>((bits + ((seed + (first + static_cast<std::uint32_t>(j)) * step) >> 16)) >> 16);
    odd += 0 * in[j];
  }
  // The sum may have carried a NaN over to something else.
  for (std::ptrdiff_t j = 0; odd != 0 && j < n; ++j)
    if (in[j] != in[j]) out[j] = 0x7fc0u;
}

inline void widen_i8(std::ptrdiff_t n, const std::int8_t* HWY_RESTRICT in, float scale, float* HWY_RESTRICT out) {
  const HalfBits::F f;
  const HalfBits::S s;
  const hn::Rebind<std::int8_t, HalfBits::F> b;
  const std::ptrdiff_t lanes = static_cast<std::ptrdiff_t>(hn::Lanes(f));
  const auto by = hn::Set(f, scale);
  std::ptrdiff_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Mul(by, hn::ConvertTo(f, hn::PromoteTo(s, hn::LoadU(b, in + i)))), f, out + i);
  for (; i < n; ++i) out[i] = scale * static_cast<float>(in[i]);
}

inline float narrow_i8(std::ptrdiff_t n, const float* HWY_RESTRICT in, std::int8_t* HWY_RESTRICT out) {
  const HalfBits::F f;
  const HalfBits::S s;
  const hn::Rebind<std::int8_t, HalfBits::F> b;
  const std::ptrdiff_t lanes = static_cast<std::ptrdiff_t>(hn::Lanes(f));
  auto most = hn::Zero(f), odd = hn::Zero(f);  // odd: 0, or NaN if a number is not finite
  std::ptrdiff_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto x = hn::LoadU(f, in + i);
    most = hn::Max(most, hn::Abs(x)), odd = hn::Add(odd, hn::Sub(x, x));
  }
  float top = hn::GetLane(hn::MaxOfLanes(f, most)), bad = hn::GetLane(hn::SumOfLanes(f, odd));
  for (; i < n; ++i) top = std::max(top, std::abs(in[i])), bad += in[i] - in[i];
  const float inverse = top > 0 && bad == 0 ? 127 / top : 0;
  const bool tiny = !(inverse <= std::numeric_limits<float>::max());  // a row of denormal numbers is zero
  const auto by = hn::Set(f, tiny ? 0.0f : inverse);
  for (i = 0; i + lanes <= n; i += lanes)
    hn::StoreU(hn::DemoteTo(b, hn::NearestInt(hn::Mul(by, hn::LoadU(f, in + i)))), b, out + i);
  for (; i < n; ++i) {
    HWY_ALIGN float from[HWY_MAX_BYTES / sizeof(float)] = {};
    HWY_ALIGN std::int32_t to[HWY_MAX_BYTES / sizeof(float)];
    from[0] = in[i];
    hn::Store(hn::NearestInt(hn::Mul(by, hn::Load(f, from))), s, to);
    out[i] = static_cast<std::int8_t>(to[0]);
  }
  return bad != 0 || bad != bad ? std::numeric_limits<float>::quiet_NaN() : tiny ? 0.0f : top / 127;
}

template <class T>
const HalfSimd* HalfTable() {
  static constexpr HalfSimd table{widen_bf16,
                                  widen_f16,
                                  narrow_bf16,
                                  narrow_f16,
                                  widen_rows<RowsOfBf16>,
                                  widen_rows<RowsOfF16>,
                                  narrow_rows_bf16,
                                  narrow_rows_f16,
                                  round_bf16,
                                  widen_i8,
                                  narrow_i8};
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // per target
