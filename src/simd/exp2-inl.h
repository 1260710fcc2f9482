// 2^x in few operations, compiled once per instruction set: 12 in float, 18 in double.
//
// For exponentials whose argument is made anyway: with log2(e) in a factor that is constant, e^x needs no reduction by
// a constant of two parts. The rounding of that product gives e^x a relative error of |x| 2^-24 (2^-53).
#if defined(TTR_SIMD_EXP2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_EXP2_INL_H_
#undef TTR_SIMD_EXP2_INL_H_
#else
#define TTR_SIMD_EXP2_INL_H_
#endif

#include "simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

template <class T>
constexpr T kLog2E = T(1.44269504088896341);

template <class T>
struct Exp2Range;
template <>
struct Exp2Range<float> {
  static constexpr float low = -127.0f, high = 128.0f, magic = 12583039.0f;  // 1.5 2^23 + 127
  static constexpr int mantissa = 23;
};
template <>
struct Exp2Range<double> {
  static constexpr double low = -1023.0, high = 1024.0, magic = 6755399441056767.0;  // 1.5 2^52 + 1023
  static constexpr int mantissa = 52;
};

template <class T>
HWY_INLINE Vec<T> Horner(Vec<T>, Vec<T> y) {
  return y;
}
template <class T, class... C>
HWY_INLINE Vec<T> Horner(Vec<T> r, Vec<T> y, double c, C... rest) {
  return Horner<T>(r, hn::MulAdd(y, r, hn::Set(Tag<T>(), static_cast<T>(c))), rest...);
}
// 2^r for |r| <= 1/2: (2^r - 1 - r log 2) / r^2 by its interpolant at Chebyshev points. With the two exact terms the
// result is exact at 0 in value and slope; its relative error is 1e-8 in float, 3e-17 in double before rounding.
template <class T>
HWY_INLINE Vec<T> SmallExp2(Vec<T> r) {
  const Tag<T> d;
  if constexpr (sizeof(T) == 4)
    return Horner<T>(r, hn::Set(d, 1.544496632e-4f), 1.338139834e-3, 9.618102735e-3, 5.550380762e-2, 2.402265070e-1,
                     6.931471806e-1, 1.0);
  else
    return Horner<T>(r, hn::Set(d, 4.4541034105870405e-10), 7.0709778665081383e-09, 1.0178067267449427e-07,
                     1.3215451633221434e-06, 1.5252733820795803e-05, 1.5403530424776529e-04, 1.3333558146423213e-03,
                     9.6181291076186653e-03, 5.5504108664821583e-02, 2.4022650695910075e-01, 0.693147180559945309,
                     1.0);
}

// 2^x: 0 below the smallest normal number, inf above the largest, NaN stays NaN. kGentle: x is at most 0 and no NaN.
// With the bias in the rounding constant the integer part is an exponent field as it stands: `low` gives the factor 0
// and `high` the factor inf, so clamping is all the care the ends need.
template <bool kGentle, class T>
HWY_INLINE Vec<T> Exp2(Vec<T> x) {
  using P = Exp2Range<T>;
  const Tag<T> d;
  const Vec<T> low = hn::Set(d, P::low), magic = hn::Set(d, P::magic);
  if constexpr (kGentle) {
    x = hn::Max(x, low);
  } else {
    const Vec<T> high = hn::Set(d, P::high);
    x = hn::IfThenElse(hn::Lt(x, low), low, hn::IfThenElse(hn::Gt(x, high), high, x));
  }
  const Vec<T> shifted = hn::Add(x, magic), r = hn::Sub(x, hn::Sub(shifted, magic));
  const hn::RebindToSigned<Tag<T>> di;
  return hn::Mul(SmallExp2<T>(r), hn::BitCast(d, hn::ShiftLeft<P::mantissa>(hn::BitCast(di, shifted))));
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
