// Rows of adjacent pairs turned by angles (included by rows_f32.cc, rows_f64.cc):
//   y_2i = c_i x_2i - s_i x_2i+1 ,  y_2i+1 = s_i x_2i + c_i x_2i+1
// with the operands x, phi (c = cos phi, s = sin phi) or x, c, s. A row of x is `width` numbers, of the others half.
// Backwards dx is dy turned back, and dphi = dy . (y turned by a quarter) = dy_1 y_0 - dy_0 y_1.
#if defined(TTR_PREPARE_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_PREPARE_PAIRS_INL_H_
#undef TTR_PREPARE_PAIRS_INL_H_
#else
#define TTR_PREPARE_PAIRS_INL_H_
#endif

#include "prepare/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

template <class T>
struct Pair {
  Num<T> first, second;
};
/// Pairs i, i + 1, ... of a row.
template <class N, class Lanes>
HWY_INLINE Pair<std::remove_const_t<N>> TakePairs(const Line<N>& x, Size i, Lanes lanes) {
  using T = std::remove_const_t<N>;
  if constexpr (Lanes::whole) {
    Vec<T> a, b;
    hn::LoadInterleaved2(Tag<T>(), x.data + 2 * i, a, b);
    return {a, b};
  } else {
    const T* const p = x.data + 2 * i * x.step;
    return {LoadLanes(p, 2 * x.step, lanes.count), LoadLanes(p + x.step, 2 * x.step, lanes.count)};
  }
}
template <class T, class Lanes>
HWY_INLINE void PutPairs(const Pair<T>& v, const Line<T>& y, Size i, Lanes lanes) {
  if constexpr (Lanes::whole) {
    hn::StoreInterleaved2(v.first.v, v.second.v, Tag<T>(), y.data + 2 * i);
  } else {
    T* const p = y.data + 2 * i * y.step;
    StoreLanes<T>(v.first.v, p, 2 * y.step, lanes.count);
    StoreLanes<T>(v.second.v, p + y.step, 2 * y.step, lanes.count);
  }
}
template <class T>
HWY_INLINE Pair<T> Turned(const Pair<T>& x, Num<T> c, Num<T> s) {
  return {fma(c, x.first, -(s * x.second)), fma(s, x.first, c * x.second)};
}

template <class T, bool given>  // c and s are operands
struct TurnPairs {
  template <class Lanes>
  static HWY_INLINE Turn<T> angle(const Line<const T>& one, const Line<const T>& other, Size i, Lanes lanes) {
    if constexpr (given) return {other.at(i, lanes), one.at(i, lanes)};
    else return turn(one.at(i, lanes));
  }
  static bool forward(const Job<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r), one = RowOf<const T>(job.x[1], r),
                          other = RowOf<const T>(job.x[2], r);
      const Line<T> y = RowOf<T>(job.y, r);
      const bool close = Close(x, one, other, y);
      ForLanes<T>(job.width / 2, close, [&](Size i, auto lanes) HWY_ATTR {
        const auto [s, c] = angle(one, other, i, lanes);
        PutPairs(Turned(TakePairs(x, i, lanes), c, s), y, i, lanes);
      });
    }
    return true;
  }
  static void backward(const Job<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> one = RowOf<const T>(job.x[1], r), other = RowOf<const T>(job.x[2], r),
                          y = RowOf<const T>(job.result, r), dy = RowOf<const T>(job.gradient, r);
      const Line<T> dx = RowOf<T>(job.dx[0], r), d_angle = given ? Line<T>() : RowOf<T>(job.dx[1], r);
      const bool close = Close(one, other, y, dy, dx, d_angle);
      Num<T> sum;
      ForLanes<T>(job.width / 2, close, [&](Size i, auto lanes) HWY_ATTR {
        const Pair<T> g = TakePairs(dy, i, lanes);
        if (d_angle) {
          const Pair<T> at_y = TakePairs(y, i, lanes);
          AddTo(d_angle, sum, g.second * at_y.first - g.first * at_y.second, i, lanes);
        }
        if (!dx) return;
        const auto [s, c] = angle(one, other, i, lanes);
        const Pair<T> back = Turned(g, c, -s), old = TakePairs(dx, i, lanes);
        PutPairs(Pair<T>{old.first + back.first, old.second + back.second}, dx, i, lanes);
      });
      Finish(d_angle, sum);
    }
  }
};

template <class T>
struct RowFormula<T, prepare::Op::turn_pairs> : TurnPairs<T, true> {};
template <class T>
struct RowFormula<T, prepare::Op::rotate_pairs> : TurnPairs<T, false> {};

template <class T>
const prepare::TokenTable<T>* RowTable() {
  static constexpr prepare::TokenTable<T> table = TableOf<T, prepare::Kind::row, RowFormula>();
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
