// Gates of channels as factors of readers and writers, compiled once per instruction set (included by
// state_table-inl.h). What they are for: gates.h.
//
// A factor of a reader times one of a writer is e^{G_i - G_j}, where |G| may be 55: the rounding of a sum of that size
// would cost two digits of a float. So sums are kept with what their additions lost, and the exponential takes both.
// At the end of a frame only channels whose sums have become large begin anew: one strong channel is one row of the
// state to multiply, not all of them.
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

// sum += gate, and what that loses to rest.
template <class T>
HWY_INLINE void AddGate(Vec<T> gate, Vec<T>* sum, Vec<T>* rest) {
  const Vec<T> next = hn::Add(*sum, gate);
  if constexpr (sizeof(T) == 4) {
    const Vec<T> added = hn::Sub(next, *sum);
    *rest = hn::Add(*rest, hn::Add(hn::Sub(*sum, hn::Sub(next, added)), hn::Sub(gate, added)));
  }
  *sum = next;
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
      AddGate<T>(LoadMaybe<part>(g + i * ldg + j, lanes), &sum, &rest);
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

// A vector of channels at a time, as far as the vectors before it came: `end` is the first token that is not in the frame.
template <class T>
Size GateFrames(Size C, Size D, const T* g, Size ldg, Size group, T soft, T hard, T* sums, T* carried, Size* ends,
                Size* frames) {
  const Tag<T> d;
  const Vec<T> most = hn::Set(d, hard), much = hn::Set(d, soft), little = hn::Set(d, soft / 2);
  const Vec<T> one = hn::Set(d, T(1));
  T *const base = sums, *const trail = sums + D;  // G in front of the frame, and behind each of its groups
  Size start = 0, count = 0;
  std::fill_n(base, D, T(0));
  while (start < C) {
    Size end = C;
    ForVectors<T>(D, [&](Size j, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      const auto gate = [&](Size t) HWY_ATTR { return LoadMaybe<part>(g + t * ldg + j, lanes); };
      Vec<T> sum = LoadMaybe<part>(base + j, lanes);
      for (Size t = start, i = 0; t < end; ++i) {
        const Size n = std::min(group, end - t);
        const Vec<T> first = sum;
        Vec<T> largest = hn::Zero(d);
        for (Size r = 0; r < n; ++r) sum = hn::Add(sum, gate(t + r)), largest = hn::Max(largest, hn::Abs(sum));
        // NaN may be lost in the largest, but not in the sum
        if (!hn::AllTrue(d, hn::And(hn::Le(largest, most), hn::Eq(sum, sum)))) {
          sum = first;
          for (end = t; hn::AllTrue(d, hn::Le(hn::Abs(sum = hn::Add(sum, gate(end))), most));) ++end;
          return;
        }
        t += n;
        StoreMaybe<part>(sum, trail + i * D + j, lanes);
        if (n == group && !hn::AllTrue(d, hn::Le(hn::Abs(sum), much))) {
          end = t;
          return;
        }
      }
    });
    if (end == start) break;
    ends[count++] = end;
    if (end < C) {  // sums that are small, and stay within the limit with the next token, go on
      const Size groups = (end - start) / group;
      T* const row = carried + count * D;
      ForVectors<T>(D, [&](Size j, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        const auto gate = [&](Size t) HWY_ATTR { return LoadMaybe<part>(g + t * ldg + j, lanes); };
        Vec<T> sum = LoadMaybe<part>(groups > 0 ? trail + (groups - 1) * D + j : base + j, lanes);
        for (Size t = start + groups * group; t < end; ++t) sum = hn::Add(sum, gate(t));
        const auto goes_on = hn::And(hn::Le(hn::Abs(sum), little), hn::Le(hn::Abs(hn::Add(sum, gate(end))), most));
        StoreMaybe<part>(hn::IfThenElseZero(goes_on, sum), base + j, lanes);
        StoreMaybe<part>(hn::IfThenElseZero(goes_on, one), row + j, lanes);
      });
    }
    start = end;
  }
  *frames = count;
  return start;
}

template <bool kX, bool kY, class T>
bool GateRowsWith(Size frames, const Size* ends, Size D, const T* g, Size ldg, const T* carried, T limit,
                  const typename StateSimd<T>::GateRows& rows, T* late) {
  const Tag<T> d;
  const Vec<T> one = hn::Set(d, T(1)), most = hn::Set(d, limit);
  auto within = hn::Eq(one, one);
  const typename StateSimd<T>::GateRows x = rows;  // the stores might change it, for all the compiler knows
  // By masks: a choice between two vectors in a loop becomes a choice of where on the stack to load one from.
  const auto q_before = hn::Eq(hn::Set(d, static_cast<T>(x.q_before)), one);
  const auto x_before = hn::Eq(hn::Set(d, static_cast<T>(x.x_before)), one);
  ForVectors<T>(D, [&](Size j, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    const auto scale = [&](const T* from, Size ld, Size t, Vec<T> factor, T* to) HWY_ATTR {
      StoreMaybe<part>(hn::Mul(LoadMaybe<part>(from + t * ld + j, lanes), factor), to + t * D + j, lanes);
    };
    Vec<T> sum = hn::Zero(d), rest = sum, largest = sum, grow = one, shrink;
    for (Size f = 0, t = 0; f < frames; ++f) {
      if (f > 0) {
        const auto goes_on = hn::Eq(LoadMaybe<part>(carried + f * D + j, lanes), one);
        StoreMaybe<part>(hn::IfThenElse(goes_on, one, grow), late + (t - 1) * D + j, lanes);
        sum = hn::IfThenElseZero(goes_on, sum), rest = hn::IfThenElseZero(goes_on, rest);
        grow = hn::IfThenElse(goes_on, grow, one);
      }
      for (; t < ends[f]; ++t) {
        const Vec<T> before = grow;
        AddGate<T>(LoadMaybe<part>(g + t * ldg + j, lanes), &sum, &rest);
        largest = hn::Max(largest, hn::Abs(sum));
        ExpBothOfSum<T>(sum, rest, &grow, &shrink);
        scale(x.k, x.ldk, t, shrink, x.to_k);
        if constexpr (kY) scale(x.y, x.ldy, t, shrink, x.to_y);
        if (x.q) scale(x.q, x.ldq, t, hn::IfThenElse(q_before, before, grow), x.to_q);
        if constexpr (kX) scale(x.x, x.ldx, t, hn::IfThenElse(x_before, before, grow), x.to_x);
      }
      // NaN may be lost in the largest, but not in the sum
      within = hn::And(within, hn::And(hn::Le(largest, most), hn::Eq(sum, sum)));
    }
    StoreMaybe<part>(grow, late + (ends[frames - 1] - 1) * D + j, lanes);
  });
  return hn::AllTrue(d, within);
}
template <class T>
bool GateRowsOf(Size frames, const Size* ends, Size D, const T* g, Size ldg, const T* carried, T limit,
                const typename StateSimd<T>::GateRows& rows, T* late) {
  if (rows.y) return GateRowsWith<true, true, T>(frames, ends, D, g, ldg, carried, limit, rows, late);
  if (rows.x) return GateRowsWith<true, false, T>(frames, ends, D, g, ldg, carried, limit, rows, late);
  return GateRowsWith<false, false, T>(frames, ends, D, g, ldg, carried, limit, rows, late);
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
