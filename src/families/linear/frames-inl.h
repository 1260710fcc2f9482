// Gates of channels as factors of readers and writers, compiled once per instruction set (included by
// state_table-inl.h). What they are for: gates.h.
//
// A factor of a reader times one of a writer is e^{G_i - G_j}, where |G| may be 55: the rounding of a sum of that size
// would cost two digits of a float. So sums are kept with what their additions lost, and the exponential takes both.
#if defined(TTR_LINEAR_FRAMES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LINEAR_FRAMES_INL_H_
#undef TTR_LINEAR_FRAMES_INL_H_
#else
#define TTR_LINEAR_FRAMES_INL_H_
#endif

#include "families/linear/state_simd.h"
#include "simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

// e^{x + rest} and e^{-(x + rest)}, rest a few roundings of x.
template <class T>
HWY_INLINE void ExpBothOfSum(Vec<T> x, Vec<T> rest, Vec<T>* up, Vec<T>* down) {
  const Tag<T> d;
  if constexpr (sizeof(T) == 4) {
    const auto [shifted, r0] = Reduce(x);
    const Vec<T> r = hn::Add(r0, rest), z = hn::Mul(r, r);
    Vec<T> even = hn::MulAdd(z, hn::Set(d, 1.393373124e-3f), hn::Set(d, 4.166646302e-2f));
    even = hn::MulAdd(hn::MulAdd(even, z, hn::Set(d, 0.5f)), z, hn::Set(d, 1.0f));
    Vec<T> odd = hn::MulAdd(z, hn::Set(d, 8.357248269e-3f), hn::Set(d, 1.666663140e-1f));
    odd = hn::MulAdd(hn::Mul(odd, z), r, r);
    *up = Rescale<false>(hn::Add(even, odd), shifted);
    *down = Rescale<true>(hn::Sub(even, odd), shifted);
  } else {
    *up = hn::Exp(d, x);
    *down = hn::Exp(d, hn::Neg(x));
  }
}

template <class T>
Size GateFactors(Size C, Size D, const T* g, Size ldg, const T* centre, T limit, T* up, T* down) {
  const Tag<T> d;
  const Vec<T> one = hn::Set(d, T(1)), most = hn::Set(d, limit);
  Vec<T> rows = hn::Set(d, static_cast<T>(C));
  ForVectors<T>(D, [&](Size j, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    Vec<T> sum = hn::Zero(d), rest = hn::Zero(d), within = hn::Zero(d);
    if (centre) sum = hn::Neg(LoadMaybe<part>(centre + j, lanes));
    auto open = hn::Eq(one, one);
    for (Size i = 0; i < C; ++i) {
      const Vec<T> gate = LoadMaybe<part>(g + i * ldg + j, lanes), next = hn::Add(sum, gate);
      if constexpr (sizeof(T) == 4) {
        const Vec<T> added = hn::Sub(next, sum);
        rest = hn::Add(rest, hn::Add(hn::Sub(sum, hn::Sub(next, added)), hn::Sub(gate, added)));
      }
      sum = next;
      open = hn::And(open, hn::Le(hn::Abs(sum), most));
      within = hn::Add(within, hn::IfThenElseZero(open, one));
      Vec<T> grow, shrink;
      ExpBothOfSum<T>(sum, rest, &grow, &shrink);
      StoreMaybe<part>(grow, up + i * D + j, lanes);
      StoreMaybe<part>(shrink, down + i * D + j, lanes);
    }
    rows = hn::Min(rows, within);
  });
  return static_cast<Size>(hn::GetLane(hn::MinOfLanes(d, rows)));
}

template <class T>
Size GateFrames(Size C, Size D, const T* g, Size ldg, Size group, T soft, T hard, T* sums, Size* ends, Size* frames) {
  const Tag<T> d;
  const Vec<T> most = hn::Set(d, hard), much = hn::Set(d, soft);
  Size start = 0, count = 0, t = 0;
  // sums (+)= the gates of token t; whether all are within the two limits
  bool within = true, mild = true;
  const auto add = [&](bool fresh) HWY_ATTR {
    const auto all = hn::Eq(most, most);
    auto ok = all, small = all;
    ForVectors<T>(D, [&](Size j, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      Vec<T> sum = LoadMaybe<part>(g + t * ldg + j, lanes);
      if (!fresh) sum = hn::Add(sum, LoadMaybe<part>(sums + j, lanes));
      StoreMaybe<part>(sum, sums + j, lanes);
      const Vec<T> size = hn::Abs(sum);
      ok = hn::And(ok, hn::Le(size, most));
      small = hn::And(small, hn::Le(size, much));
    });
    within = hn::AllTrue(d, ok), mild = hn::AllTrue(d, small);
  };
  for (; t < C; ++t) {
    add(t == start);
    if (!within && t > start) ends[count++] = start = t, add(true);
    if (!within) break;
    if (!mild && (t + 1 - start) % group == 0 && t + 1 < C) ends[count++] = start = t + 1;
  }
  if (t > start) ends[count++] = t;
  *frames = count;
  return t;
}

template <class T>
int GateCentres(Size C, Size D, const T* g, Size ldg, Size piece, T mild, T limit, T* centres) {
  const Tag<T> d;
  const Vec<T> most = hn::Set(d, 2 * limit), much = hn::Set(d, mild), half = hn::Set(d, T(0.5));
  const auto all = hn::Eq(half, half);
  auto fits = all, still = all;
  ForVectors<T>(D, [&](Size j, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    for (Size begin = 0, n = 0; begin < C; begin += piece, ++n) {
      Vec<T> sum = hn::Zero(d), low = sum, high = sum;
      const Size end = std::min(begin + piece, C);
      for (Size i = begin; i < end; ++i) {
        sum = hn::Add(sum, LoadMaybe<part>(g + i * ldg + j, lanes));
        low = hn::Min(sum, low), high = hn::Max(sum, high);
      }
      // NaN is lost in low and high, but not in the sum; so are two infinities
      const auto fit = hn::And(hn::Le(hn::Sub(high, low), most), hn::Le(hn::Abs(sum), most));
      fits = hn::And(fits, fit);
      const auto small = hn::Le(hn::Max(high, hn::Neg(low)), much);
      still = hn::And(still, small);
      const Vec<T> centre = hn::IfThenZeroElse(small, hn::Mul(half, hn::Add(low, high)));
      StoreMaybe<part>(hn::IfThenElse(fit, centre, hn::NaN(d)), centres + n * D + j, lanes);
    }
  });
  return !hn::AllTrue(d, fits) ? 0 : hn::AllTrue(d, still) ? 1 : 2;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
