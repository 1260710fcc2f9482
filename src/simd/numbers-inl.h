// A vector of numbers that formulas can be written with, and the functions that per-token operations are made of.
//
//   Num<T> s = 1 / (1 + exp(-x));       every lane by itself, the same bits in every lane and at every place
//
// exp: x = n log 2 + r, e^r = 1 + r + r^2 q(r); log: x = 2^n (1 + f), s = f / (2 + f), log(1 + f) = f - (f^2/2 -
// s (f^2/2 + R(s^2))). q and R interpolate at Chebyshev points (errors 2e-10 and 2e-11 in float, 2e-19 and 5e-18 in
// double), and what rounding takes from r is added again in double. Errors, in units of the last place: 1 for exp and
// log, 2 for log1p, expm1, sigmoid and tanh. NaN stays NaN; e^x below the smallest normal number is 0. Without fused
// multiply-add (SSE4 and below) the reductions stay exact: the high part of log 2 has zeros at its end.
#if defined(TTR_SIMD_NUMBERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_NUMBERS_INL_H_
#undef TTR_SIMD_NUMBERS_INL_H_
#else
#define TTR_SIMD_NUMBERS_INL_H_
#endif

#include <cmath>
#include <limits>

#include "simd/simd.h"
#include "simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

template <class T>
struct Num {
  using Truth = hn::Mask<Tag<T>>;
  Vec<T> v;
  HWY_INLINE Num() : v(hn::Zero(Tag<T>())) {}
  HWY_INLINE Num(Vec<T> vector) : v(vector) {}
  HWY_INLINE Num(T one) : v(hn::Set(Tag<T>(), one)) {}

  friend HWY_INLINE Num operator+(Num a, Num b) { return hn::Add(a.v, b.v); }
  friend HWY_INLINE Num operator-(Num a, Num b) { return hn::Sub(a.v, b.v); }
  friend HWY_INLINE Num operator*(Num a, Num b) { return hn::Mul(a.v, b.v); }
  friend HWY_INLINE Num operator/(Num a, Num b) { return hn::Div(a.v, b.v); }
  friend HWY_INLINE Num operator-(Num a) { return hn::Neg(a.v); }
  friend HWY_INLINE Truth operator<(Num a, Num b) { return hn::Lt(a.v, b.v); }
  friend HWY_INLINE Truth operator>(Num a, Num b) { return hn::Gt(a.v, b.v); }
  friend HWY_INLINE Truth operator<=(Num a, Num b) { return hn::Le(a.v, b.v); }
  friend HWY_INLINE Truth operator>=(Num a, Num b) { return hn::Ge(a.v, b.v); }
  friend HWY_INLINE Truth operator==(Num a, Num b) { return hn::Eq(a.v, b.v); }
  /// a b + c, fused where the machine can
  friend HWY_INLINE Num fma(Num a, Num b, Num c) { return hn::MulAdd(a.v, b.v, c.v); }
  friend HWY_INLINE Num abs(Num a) { return hn::Abs(a.v); }
  friend HWY_INLINE Num sqrt(Num a) { return hn::Sqrt(a.v); }
};

template <class T>
HWY_INLINE Num<T> where(typename Num<T>::Truth truth, Num<T> yes, Num<T> no) {
  return hn::IfThenElse(truth, yes.v, no.v);
}

/// x = n log 2 + r + rest; the integer n stands in the low bits of `shifted`.
template <class T>
struct Parts {
  Num<T> shifted, r, rest;
};
template <class T>
HWY_INLINE Parts<T> parts(Num<T> x) {
  constexpr bool single = sizeof(T) == 4;
  const Num<T> magic = T(single ? 12582912.0 : 6755399441055744.0);  // 1.5 2^23, 1.5 2^52
  const Num<T> shifted = fma(x, Num<T>(T(1.4426950408889634)), magic), n = shifted - magic;
  const Num<T> high = fma(-n, Num<T>(T(single ? 0.693359375 : 0.6931471803691238)), x);
  const Num<T> low = n * T(single ? -2.12194440055e-4 : 1.9082149292705878e-10), r = high - low;
  if constexpr (single) return {shifted, r, T(0)};
  else return {shifted, r, (high - r) - low};
}

/// e^(r + rest) - 1 for |r| <= log(2) / 2
template <class T>
HWY_INLINE Num<T> exp_less_one(const Parts<T>& p) {
  const Num<T> r = p.r;
  Num<T> q;
  if constexpr (sizeof(T) == 4) {
    q = fma(r, Num<T>(1.9891080464e-4f), Num<T>(1.3933730716e-3f));
    q = fma(q, r, Num<T>(8.3333108446e-3f));
    q = fma(q, r, Num<T>(4.1666464197e-2f));
    q = fma(q, r, Num<T>(1.6666666682e-1f));
    q = fma(q, r, Num<T>(0.5f));
    return fma(q, r * r, r);
  } else {
    constexpr double c[] = {2.09147553258932022e-9,
                            2.5105312729622101787e-8,
                            2.7557273478718580474e-7,
                            2.7557255170000887438e-6,
                            2.48015873256774619e-5,
                            1.9841269875002278793e-4,
                            1.3888888888883711167e-3,
                            8.3333333333260831202e-3,
                            4.1666666666666669783e-2,
                            1.666666666666667103e-1,
                            0.5};
    q = T(c[0]);
    TTR_UNROLL for (int i = 1; i < 11; ++i) q = fma(q, r, Num<T>(T(c[i])));
    return r + fma(q, r * r, p.rest);
  }
}

/// y 2^n by adding to the exponent; exact while y and the result are normal numbers.
template <class T>
HWY_INLINE Num<T> times_power(Num<T> y, Num<T> shifted) {
  const Tag<T> d;
  const hn::RebindToSigned<Tag<T>> di;
  constexpr int mantissa = sizeof(T) == 4 ? 23 : 52;
  return hn::BitCast(d, hn::Add(hn::BitCast(di, y.v), hn::ShiftLeft<mantissa>(hn::BitCast(di, shifted.v))));
}

template <class T>
HWY_INLINE Num<T> exp(Num<T> x) {
  const Num<T> low = T(sizeof(T) == 4 ? -87.33654 : -708.3964), high = T(sizeof(T) == 4 ? 88.72283 : 709.7827);
  const Parts<T> p = parts(x);
  Num<T> y = times_power(1 + exp_less_one(p), p.shifted);
  y = where(x > high, Num<T>(hn::Inf(Tag<T>())), Num<T>(hn::IfThenZeroElse(x < low, y.v)));
  return where(x == x, y, x);
}

/// e^x for x <= 0
template <class T>
HWY_INLINE Num<T> exp_of_negative(Num<T> x) {
  const Parts<T> p = parts(x);
  const Num<T> y = times_power(1 + exp_less_one(p), p.shifted);
  const Num<T> low = T(sizeof(T) == 4 ? -87.33654 : -708.3964);
  return where(x == x, Num<T>(hn::IfThenZeroElse(x < low, y.v)), x);
}

/// e^x - 1. Put together at half the size, since 2^n can be too large by itself.
template <class T>
HWY_INLINE Num<T> expm1(Num<T> x) {
  const Num<T> low = T(sizeof(T) == 4 ? -60 : -700), high = T(sizeof(T) == 4 ? 88.72283 : 709.7827);
  const Parts<T> p = parts(where(x < low, low, x));
  const Num<T> half = times_power(Num<T>(T(0.5)), p.shifted);
  Num<T> y = fma(half, exp_less_one(p), half - T(0.5));
  y = where(x > high, Num<T>(hn::Inf(Tag<T>())), y + y);
  return where(x == x, y, x);
}

/// n log 2 + log(1 + f) + rest for sqrt(1/2) <= 1 + f <= sqrt(2); without kPower n = 0.
template <class T>
HWY_INLINE Num<T> log_of_parts(Num<T> n, Num<T> f, Num<T> rest) {
  constexpr bool single = sizeof(T) == 4;
  const Num<T> s = f / (2 + f), z = s * s, half_square = f * f * T(0.5);
  Num<T> R;
  if constexpr (single) {
    R = fma(z, Num<T>(2.3331614472e-1f), Num<T>(2.8550778633e-1f));
    R = fma(R, z, Num<T>(4.0000122212e-1f));
    R = fma(R, z, Num<T>(6.6666666554e-1f));
  } else {
    constexpr double c[] = {1.461780715346282875e-1,  1.5331611722050652378e-1, 1.818289243253703153e-1,
                            2.2222211089379493382e-1, 2.8571428626253837631e-1, 3.9999999999898890513e-1,
                            6.6666666666666697077e-1};
    R = T(c[0]);
    TTR_UNROLL for (int i = 1; i < 7; ++i) R = fma(R, z, Num<T>(T(c[i])));
  }
  const Num<T> low = fma(n, Num<T>(T(single ? -2.12194440055e-4 : 1.9082149292705878e-10)), rest);
  const Num<T> correction = half_square - fma(s, fma(R, z, half_square), low);
  return fma(n, Num<T>(T(single ? 0.693359375 : 0.6931471803691238)), f - correction);
}

/// log(u) + rest. Of 0 (and numbers below the smallest normal one) -inf, of negative ones NaN.
template <class T>
HWY_INLINE Num<T> log_and(Num<T> u, Num<T> rest) {
  const Tag<T> d;
  const hn::RebindToSigned<Tag<T>> di;
  using I = hn::TFromD<decltype(di)>;
  constexpr bool single = sizeof(T) == 4;
  constexpr int mantissa = single ? 23 : 52;
  const auto bits = hn::BitCast(di, u.v);
  const auto root = hn::Set(di, static_cast<I>(single ? 0x3F3504F3LL : 0x3FE6A09E667F3BCDLL));  // sqrt(1/2)
  const auto n = hn::ShiftRight<mantissa>(hn::Sub(bits, root));
  const Num<T> f = Num<T>(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<mantissa>(n)))) - 1;
  const Num<T> magic = T(single ? 12582912.0 : 6755399441055744.0);
  const Num<T> power = Num<T>(hn::BitCast(d, hn::Add(hn::BitCast(di, magic.v), n))) - magic;
  const Num<T> y = log_of_parts(power, f, rest), infinity = hn::Inf(d);
  const Num<T> outside = where(u >= T(0), -infinity, Num<T>(hn::NaN(d)));
  const Num<T> inside = where(u < infinity, y, u);  // inf, NaN
  return where(u < Num<T>(std::numeric_limits<T>::min()), outside, inside);
}
template <class T>
HWY_INLINE Num<T> log(Num<T> x) {
  return log_and(x, Num<T>(T(0)));
}

template <class T>
HWY_INLINE Num<T> log1p(Num<T> x) {
  const Num<T> u = 1 + x, infinity = hn::Inf(Tag<T>());
  const Num<T> lost = where(x > T(1), 1 - (u - x), x - (u - 1));  // what rounding took from u
  const Num<T> rest = Num<T>(hn::IfThenElseZero(u < infinity, hn::IfThenElseZero(u > T(0), (lost / u).v)));
  return log_and(u, rest);
}
/// log(1 + e) for 0 <= e <= 1
template <class T>
HWY_INLINE Num<T> log1p_of_unit(Num<T> e) {
  const auto large = e > T(0.41421356);
  return log_of_parts(Num<T>(hn::IfThenElseZero(large, Num<T>(T(1)).v)), where(large, (e - 1) * T(0.5), e),
                      Num<T>(T(0)));
}

template <class T>
HWY_INLINE Num<T> sigmoid(Num<T> x) {
  const Num<T> e = exp_of_negative(-abs(x));
  return where(x >= T(0), Num<T>(T(1)), e) / (1 + e);
}
/// s(x) and s(-x)
template <class T>
struct BothSigmoids {
  Num<T> up, down;
};
template <class T>
HWY_INLINE BothSigmoids<T> both_sigmoids(Num<T> x) {
  const Num<T> e = exp_of_negative(-abs(x)), large = 1 / (1 + e), small = e * large;
  const auto positive = x >= T(0);
  return {where(positive, large, small), where(positive, small, large)};
}
template <class T>
HWY_INLINE Num<T> softplus(Num<T> x) {
  return where(x > T(0), x, Num<T>(T(0))) + log1p_of_unit(exp_of_negative(-abs(x)));
}
template <class T>
HWY_INLINE Num<T> log_sigmoid(Num<T> x) {
  return -softplus(-x);
}
template <class T>
HWY_INLINE Num<T> tanh(Num<T> x) {
  const Num<T> limit = T(sizeof(T) == 4 ? 10 : 22), size = abs(x), t = expm1(2 * where(size > limit, limit, size));
  return hn::CopySign((t / (t + 2)).v, x.v);
}

template <class T>
struct Turn {
  Num<T> sine, cosine;
};
/// For the lanes that are too large to be reduced in T.
template <class T>
HWY_NOINLINE Turn<T> turn_of_large(Num<T> x) {
  const Tag<T> d;
  HWY_ALIGN T sine[hn::MaxLanes(d)], cosine[hn::MaxLanes(d)];
  hn::Store(x.v, d, sine);
  for (Size i = 0; i < Width<T>(); ++i) cosine[i] = std::cos(sine[i]), sine[i] = std::sin(sine[i]);
  return {hn::Load(d, sine), hn::Load(d, cosine)};
}
/// x = n pi/2 + r + rest with |r| <= pi/4; sin and cos of r by interpolation at Chebyshev points in r^2 (errors 2e-11
/// and 1e-17). The first parts of pi/2 have so few bits that their products with n are exact.
template <class T>
HWY_INLINE Turn<T> turn(Num<T> x) {
  constexpr bool single = sizeof(T) == 4;
  const Tag<T> d;
  const hn::RebindToSigned<Tag<T>> di;
  using I = hn::TFromD<decltype(di)>;
  const Num<T> magic = T(single ? 12582912.0 : 6755399441055744.0), largest = T(single ? 8192 : 1e6);
  const Num<T> shifted = fma(x, Num<T>(T(0.63661977236758134)), magic), n = shifted - magic;
  Num<T> high = fma(-n, Num<T>(T(single ? 1.5703125 : 1.570796326734125614166)), x), low, rest;
  if constexpr (single) high = fma(-n, Num<T>(4.837512969970703125e-4f), high);
  low = n * T(single ? 7.549533620476722717e-8 : 6.077100506303965976596e-11);
  Num<T> r = high - low;
  rest = (high - r) - low;
  rest = fma(-n, Num<T>(T(single ? 2.563344151594518788e-12 : 2.0222662487959507324e-21)), rest);
  const Num<T> z = r * r;
  Num<T> S, C;
  if constexpr (single) {
    S = fma(z, Num<T>(2.7249314360e-6f), Num<T>(-1.9840082015e-4f));
    S = fma(S, z, Num<T>(8.3333318660e-3f));
    S = fma(S, z, Num<T>(-1.6666666664e-1f));
    C = fma(z, Num<T>(-2.7300448874e-7f), Num<T>(2.4800596438e-5f));
    C = fma(C, z, Num<T>(-1.3888887665e-3f));
    C = fma(C, z, Num<T>(4.1666666664e-2f));
  } else {
    constexpr double s[] = {1.5917848664894212319e-10, -2.505112794596176769e-8, 2.7557316083825716678e-6,
                            -1.9841269836722435815e-4, 8.333333333330924574e-3,  -1.6666666666666664599e-1};
    constexpr double c[] = {-1.1382456865698036325e-11, 2.0876143829211515636e-9,  -2.7557317260014692409e-7,
                            2.4801587298743080583e-5,   -1.3888888888887382278e-3, 4.1666666666666665373e-2};
    S = T(s[0]), C = T(c[0]);
    TTR_UNROLL for (int i = 1; i < 6; ++i) S = fma(S, z, Num<T>(T(s[i]))), C = fma(C, z, Num<T>(T(c[i])));
  }
  const Num<T> half = z * T(0.5), whole = 1 - half, sine = r + fma(S * z, r, rest * whole);
  const Num<T> cosine = whole + (((1 - whole) - half) + fma(C * z, z, -(sine * rest)));
  // A quarter turn swaps the two; signs by the quadrant.
  const auto quadrant = hn::BitCast(di, shifted.v), one = hn::Set(di, I{1}), two = hn::Set(di, I{2});
  const auto odd = hn::RebindMask(d, hn::Eq(hn::And(quadrant, one), one));
  constexpr int to_sign = single ? 30 : 62;
  const auto s_sign = hn::BitCast(d, hn::ShiftLeft<to_sign>(hn::And(quadrant, two)));
  const auto c_sign = hn::BitCast(d, hn::ShiftLeft<to_sign>(hn::And(hn::Add(quadrant, one), two)));
  const Turn<T> small{hn::Xor(where(odd, cosine, sine).v, s_sign), hn::Xor(where(odd, sine, cosine).v, c_sign)};
  const auto far = abs(x) > largest;
  if (HWY_LIKELY(hn::AllFalse(d, far))) return small;
  const Turn<T> large = turn_of_large(x);
  return {where(far, large.sine, small.sine), where(far, large.cosine, small.cosine)};
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
