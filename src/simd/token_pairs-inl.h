// Rows of adjacent pairs turned by angles (included by token_f32.cc, token_f64.cc):
//   y_2i = c_i x_2i - s_i x_2i+1 ,  y_2i+1 = s_i x_2i + c_i x_2i+1
// with the operands x, phi (c = cos phi, s = sin phi) or x, c, s. A row of x is `width` numbers, of the others half.
// Backwards dx is dy turned back, and dphi = dy . (y turned by a quarter) = dy_1 y_0 - dy_0 y_1.
#if defined(TTR_SIMD_TOKEN_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_TOKEN_PAIRS_INL_H_
#undef TTR_SIMD_TOKEN_PAIRS_INL_H_
#else
#define TTR_SIMD_TOKEN_PAIRS_INL_H_
#endif

#include "simd/token_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

template <class T>
struct Pair {
  Num<T> first, second;
};
/// Pairs i, i + 1, ... of a row.
template <bool kPart, class N>
HWY_INLINE Pair<std::remove_const_t<N>> TakePairs(const Line<N>& x, Size i, Size lanes) {
  using T = std::remove_const_t<N>;
  if (!kPart && HWY_LIKELY(x.step == 1)) {
    Vec<T> a, b;
    hn::LoadInterleaved2(Tag<T>(), x.data + 2 * i, a, b);
    return {a, b};
  }
  const T* const p = x.data + 2 * i * x.step;
  return {LoadStrided(p, 2 * x.step, lanes), LoadStrided(p + x.step, 2 * x.step, lanes)};
}
template <bool kPart, class T>
HWY_INLINE void PutPairs(const Pair<T>& v, const Line<T>& y, Size i, Size lanes) {
  if (!kPart && HWY_LIKELY(y.step == 1)) {
    hn::StoreInterleaved2(v.first.v, v.second.v, Tag<T>(), y.data + 2 * i);
    return;
  }
  T* const p = y.data + 2 * i * y.step;
  StoreStrided(v.first.v, p, 2 * y.step, lanes);
  StoreStrided(v.second.v, p + y.step, 2 * y.step, lanes);
}
template <class T>
HWY_INLINE Pair<T> Turned(const Pair<T>& x, Num<T> c, Num<T> s) {
  return {fma(c, x.first, -(s * x.second)), fma(s, x.first, c * x.second)};
}

template <class T, bool given>  // c and s are operands
struct TurnPairs {
  template <bool kPart>
  static HWY_INLINE Turn<T> angle(const Line<const T>& one, const Line<const T>& other, Size i, Size lanes) {
    if constexpr (given) return {other.template at<kPart>(i, lanes), one.template at<kPart>(i, lanes)};
    else return turn(one.template at<kPart>(i, lanes));
  }
  static bool forward(const TokenJob<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r), one = RowOf<const T>(job.x[1], r),
                          other = RowOf<const T>(job.x[2], r);
      const Line<T> y = RowOf<T>(job.y, r);
      ForVectors<T>(job.width / 2, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        const auto [s, c] = angle<part>(one, other, i, lanes);
        PutPairs<part>(Turned(TakePairs<part>(x, i, lanes), c, s), y, i, lanes);
      });
    }
    return true;
  }
  static void backward(const TokenJob<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> one = RowOf<const T>(job.x[1], r), other = RowOf<const T>(job.x[2], r),
                          y = RowOf<const T>(job.result, r), dy = RowOf<const T>(job.gradient, r);
      const Line<T> dx = RowOf<T>(job.dx[0], r), d_angle = given ? Line<T>() : RowOf<T>(job.dx[1], r);
      Num<T> sum;
      ForVectors<T>(job.width / 2, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        const Pair<T> g = TakePairs<part>(dy, i, lanes);
        if (d_angle) {
          const Pair<T> at_y = TakePairs<part>(y, i, lanes);
          AddTo<part>(d_angle, sum, g.second * at_y.first - g.first * at_y.second, i, lanes);
        }
        if (!dx) return;
        const auto [s, c] = angle<part>(one, other, i, lanes);
        const Pair<T> back = Turned(g, c, -s), old = TakePairs<part>(dx, i, lanes);
        PutPairs<part>(Pair<T>{old.first + back.first, old.second + back.second}, dx, i, lanes);
      });
      Finish(d_angle, sum);
    }
  }
};

template <class T>
const TokenSimd<T>* TokenTable() {
  static constexpr TokenSimd<T> table = [] {
    TokenSimd<T> all;
    AddElements(all);
    AddRows(all);
    AddRow<TurnPairs<T, true>>(all, TokenOp::turn_pairs);
    AddRow<TurnPairs<T, false>>(all, TokenOp::rotate_pairs);
    return all;
  }();
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
