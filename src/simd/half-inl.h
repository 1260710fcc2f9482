// The conversions of half_simd.h for one instruction set.
#if defined(TTR_SIMD_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_HALF_INL_H_
#undef TTR_SIMD_HALF_INL_H_
#else
#define TTR_SIMD_HALF_INL_H_
#endif

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

// The last numbers go through the same vectors by way of a buffer.
template <class Convert>
HWY_INLINE void widen_all(std::ptrdiff_t n, const std::uint16_t* HWY_RESTRICT in, float* HWY_RESTRICT out,
                          Convert&& convert) {
  const HalfBits::F f;
  const HalfBits::U u;
  const HalfBits::H h;
  const std::ptrdiff_t lanes = static_cast<std::ptrdiff_t>(hn::Lanes(f));
  std::ptrdiff_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(convert(hn::PromoteTo(u, hn::LoadU(h, in + i))), f, out + i);
  if (i == n) return;
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
  widen_all(n, in, out, [](auto h) HWY_ATTR { return HalfBits::from_bf16(h); });
}
inline void widen_f16(std::ptrdiff_t n, const std::uint16_t* in, float* out) {
  widen_all(n, in, out, [](auto h) HWY_ATTR { return HalfBits::from_f16(h); });
}
inline void narrow_bf16(std::ptrdiff_t n, const float* in, std::uint16_t* out) {
  narrow_all(n, in, out, [](auto x) HWY_ATTR { return HalfBits::to_bf16(x); });
}
inline void narrow_f16(std::ptrdiff_t n, const float* in, std::uint16_t* out) {
  narrow_all(n, in, out, [](auto x) HWY_ATTR { return HalfBits::to_f16(x); });
}

template <class T>
const HalfSimd* HalfTable() {
  static constexpr HalfSimd table{widen_bf16, widen_f16, narrow_bf16, narrow_f16};
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // per target
