// Box-Muller on vectors. There is no fused multiply-add in it, and the compiler must not make any (cmake/libraries.cmake): a
// product and a sum are rounded alike everywhere, so that a network begins with the same weights on every machine.
//
//   log u       u = 2^k (1 + f), s = f / (2 + f), log(1 + f) = f - (f^2 / 2 - s (f^2 / 2 + R(s^2))), R as fdlibm has it
//   cos(2 pi v) -sin(t) with t = y - pi/2, or sin(t) with t = y - 3 pi/2: one polynomial for |t| <= pi/2, which interpolates
//               at Chebyshev points (relative error 2.4e-17)
#include "simd/normals.h"

#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/normals.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hwy/highway.h"
#include "simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

constexpr Size kNormals = 128;  // at a time

using Bits = hn::Vec<hn::RebindToUnsigned<Tag<double>>>;

// Some vectors side by side, step by step: one alone would wait for each of its steps.
constexpr int kSide = 4;
struct Side {
  Vec<double> v[kSide];
  template <class F>
  static HWY_INLINE Side of(const F& f) {
    Side y;
    TTR_UNROLL for (int i = 0; i < kSide; ++i) y.v[i] = f(i);
    return y;
  }
  friend HWY_INLINE Side operator+(const Side& a, const Side& b) {
    return of([&](int i) HWY_ATTR { return hn::Add(a.v[i], b.v[i]); });
  }
  friend HWY_INLINE Side operator-(const Side& a, const Side& b) {
    return of([&](int i) HWY_ATTR { return hn::Sub(a.v[i], b.v[i]); });
  }
  friend HWY_INLINE Side operator*(const Side& a, const Side& b) {
    return of([&](int i) HWY_ATTR { return hn::Mul(a.v[i], b.v[i]); });
  }
  friend HWY_INLINE Side operator/(const Side& a, const Side& b) {
    return of([&](int i) HWY_ATTR { return hn::Div(a.v[i], b.v[i]); });
  }
  Side() = default;
  HWY_INLINE Side(double x) { TTR_UNROLL for (int i = 0; i < kSide; ++i) v[i] = hn::Set(Tag<double>(), x); }
};

// z / 2^11 + 1/2 for the integer quotient, in (0, 2^53]: its upper and lower half as numbers, by their bits.
HWY_INLINE Side UniformOf(const std::uint64_t* z) {
  const Tag<double> d;
  const hn::RebindToUnsigned<Tag<double>> u;
  const auto x = [&](int i) HWY_ATTR { return hn::ShiftRight<11>(hn::Load(u, z + i * Width<double>())); };
  const Side high = Side::of([&](int i) HWY_ATTR {  // 2^84 + ..
    return hn::BitCast(d, hn::Or(hn::ShiftRight<32>(x(i)), hn::Set(u, 0x4530000000000000ull)));
  });
  const Side low = Side::of([&](int i) HWY_ATTR {  // 2^52 + ..
    return hn::BitCast(d, hn::Or(hn::And(x(i), hn::Set(u, 0xffffffffull)), hn::Set(u, 0x4330000000000000ull)));
  });
  return high - Side(0x1p84 + 0x1p52) + low + Side(0.5);
}

// -2 log(x / 2^53) of normal numbers. The 2 is in the constants, where it rounds nothing.
HWY_INLINE Side LogOf(const Side& x) {
  const Tag<double> d;
  const hn::RebindToUnsigned<Tag<double>> u;
  // 1 + f between the roots of 1/2 and 2
  const Bits root = hn::Set(u, 0x3fe6a09e667f3bcdull), one = hn::Set(u, 0x3ff0000000000000ull);
  const auto bits = [&](int i) HWY_ATTR { return hn::Add(hn::BitCast(u, x.v[i]), hn::Sub(one, root)); };
  const Side f = Side::of([&](int i) HWY_ATTR {
                   return hn::BitCast(d, hn::Add(hn::And(bits(i), hn::Set(u, 0x000fffffffffffffull)), root));
                 }) -
                 Side(1);
  const Side k = Side::of([&](int i) HWY_ATTR {
                   return hn::BitCast(d, hn::Or(hn::ShiftRight<52>(bits(i)), hn::Set(u, 0x4330000000000000ull)));
                 }) -
                 Side(0x1p52 + 1023 + 53);
  const Side s = f / (Side(2) + f), z = s * s, w = z * z;
  const auto two = [](double c) HWY_ATTR { return Side(2 * c); };
  const Side even =
      w * (two(3.999999999940941908e-01) + w * (two(2.222219843214978396e-01) + w * two(1.531383769920937332e-01)));
  const Side odd =
      z *
      (two(6.666666666666735130e-01) +
       w * (two(2.857142874366239149e-01) + w * (two(1.818357216161805012e-01) + w * two(1.479819860511658591e-01))));
  const Side square = f * f, rest = s * (square + (odd + even)) + k * two(1.90821492927058770002e-10);
  return square - rest - (f + f) - k * two(6.93147180369123816490e-01);
}

// Of y in [0, 2 pi].
HWY_INLINE Side CosOf(const Side& y) {
  const Tag<double> d;
  const auto second = [&](int i) HWY_ATTR { return hn::Ge(y.v[i], hn::Set(d, 3.141592653589793)); };
  const auto centre = [&](double first, double other) HWY_ATTR {
    return Side::of([&](int i) HWY_ATTR { return hn::IfThenElse(second(i), hn::Set(d, other), hn::Set(d, first)); });
  };
  const Side t = y - centre(0x1.921fb544p+0, 0x1.2d97c7f3p+2) - centre(0x1.0b4611a626331p-34, 0x1.90e91a79394cap-33);
  const Side z = t * t;
  Side p(0x1.89a0d15681efap-49);
  for (const double c : {-0x1.ae511b008fcd2p-41, 0x1.612400fe1fb8bp-33, -0x1.ae6455a0b7356p-26, 0x1.71de3a5454ad1p-19,
                         -0x1.a01a01a018a83p-13, 0x1.1111111111107p-7, -0x1.5555555555555p-3})
    p = p * z + Side(c);
  const Side sine = t + t * z * p;
  return Side::of([&](int i) HWY_ATTR { return hn::IfThenElse(second(i), sine.v[i], hn::Neg(sine.v[i])); });
}

// A block of up to kNormals numbers; out has room for all.
template <bool kDivides>
HWY_INLINE void NormalBlock(std::uint64_t seed, std::uint64_t first, double factor, double* HWY_RESTRICT out) {
  HWY_ALIGN std::uint64_t bits[2][kNormals];
  constexpr std::uint64_t step = 0x9e3779b97f4a7c15ull;
  const auto mixed = [](std::uint64_t z) HWY_ATTR {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  };
  std::uint64_t state = seed + 2 * first * step;
  for (Size i = 0; i < kNormals; ++i, state += 2 * step)
    bits[0][i] = mixed(state + step), bits[1][i] = mixed(state + 2 * step);
  constexpr Size kVectors = kSide * Width<double>();
  static_assert(kNormals % kVectors == 0);
  for (Size i = 0; i < kNormals; i += kVectors) {
    const Side logs = LogOf(UniformOf(bits[0] + i));
    const Side length = Side::of([&](int v) HWY_ATTR { return hn::Sqrt(logs.v[v]); });
    const Side x = length * CosOf(Side(6.283185307179586 * 0x1p-53) * UniformOf(bits[1] + i));
    const Side y = kDivides ? x / Side(factor) : x * Side(factor);
    TTR_UNROLL for (int v = 0; v < kSide; ++v) hn::StoreU(y.v[v], Tag<double>(), out + i + v * Width<double>());
  }
}

inline void NormalsOf(std::uint64_t seed, std::uint64_t first, Size n, double divisor, double* out) {
  HWY_ALIGN double rest[kNormals];
  int exponent;
  const bool divides = std::frexp(divisor, &exponent) != 0.5;  // else a factor has the bits of a division
  for (Size i = 0; i < n; i += kNormals) {
    double* const to = i + kNormals <= n ? out + i : rest;
    if (divides) NormalBlock<true>(seed, first + static_cast<std::uint64_t>(i), divisor, to);
    else NormalBlock<false>(seed, first + static_cast<std::uint64_t>(i), 1 / divisor, to);
    if (to == rest) std::memcpy(out + i, rest, static_cast<std::size_t>(n - i) * sizeof(double));
  }
}

using NormalCall = void (*)(std::uint64_t, std::uint64_t, std::ptrdiff_t, double, double*);
template <class T>
const NormalCall* NormalsTable() {
  static constexpr NormalCall call = NormalsOf;
  return &call;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "simd/dispatch.h"

namespace ttr {

void normals(std::uint64_t seed, std::uint64_t first, std::ptrdiff_t n, double divisor, double* out,
             std::string_view target) {
  using T = double;
  using Call = void (*)(std::uint64_t, std::uint64_t, std::ptrdiff_t, double, double*);
  const auto find = [](long long of) -> const Call* { TTR_TABLE_OF(of, NormalsTable) };
  (*find(simd<float>(target).target))(seed, first, n, divisor, out);
}

}  // namespace ttr
#endif
