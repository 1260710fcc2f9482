// One pass over a covariance, compiled once per instruction set (included by covariance_simd.cc).
//
// A few rows at a time, a vector of columns after the other, up to the square on the diagonal and no further. A number
// left of that square is part of two sums of a product, that of its row and, by symmetry, that of its column. In the square
// both triangles are there: left of the diagonal changed by z_i c_j, right of it by c_i z_j, which are the same numbers.
#if defined(TTR_SIMD_COVARIANCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_COVARIANCE_INL_H_
#undef TTR_SIMD_COVARIANCE_INL_H_
#else
#define TTR_SIMD_COVARIANCE_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "families/solve/kalman/covariance_simd.h"
#include "simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

enum class Next { none, as_it_is, drifts };  // the next token: whether P is another before it

// What R rows have of the products so far.
template <int R, class T>
struct CovarianceSums {
  Vec<T> asked[R], product[R];
};

// sums += x[j ..] along the rows; and to[j ..] += x_i times row i, unless it is the square on the diagonal.
template <int R, bool kSquare, bool kPart, class T>
HWY_INLINE void CovarianceProduct(const Vec<T> (&row)[R], const T* x, T* to, Size i, Size j, Size lanes,
                                  Vec<T> (&sums)[R]) {
  const Tag<T> d;
  const Vec<T> along = LoadMaybe<kPart>(x + j, lanes);
  TTR_UNROLL
  for (int r = 0; r < R; ++r) sums[r] = hn::MulAdd(along, row[r], sums[r]);
  if constexpr (!kSquare) {
    Vec<T> down = LoadMaybe<kPart>(to + j, lanes);
    TTR_UNROLL
    for (int r = 0; r < R; ++r) down = hn::MulAdd(hn::Set(d, x[i + r]), row[r], down);
    StoreMaybe<kPart>(down, to + j, lanes);
  }
}

// R rows from i on, the vector of columns at j, `lanes` wide. All rows are fetched before one is put back: they may be as
// far from each other as a store and a load that the processor takes for the same place.
template <int R, bool kSquare, bool kChange, bool kAsk, Next next, bool kPart, class T>
HWY_INLINE void CovarianceTile(const typename CovarianceSimd<T>::Pass& a, Size i, Size j, Size lanes,
                               CovarianceSums<R, T>& sums) {
  const Tag<T> d;
  Vec<T> row[R];
  TTR_UNROLL
  for (int r = 0; r < R; ++r) row[r] = LoadMaybe<kPart>(a.P + (i + r) * a.K + j, lanes);
  if constexpr (kChange) {
    const Vec<T> c = LoadMaybe<kPart>(a.c + j, lanes), z = kSquare ? LoadMaybe<kPart>(a.z + j, lanes) : hn::Zero(d);
    TTR_UNROLL
    for (int r = 0; r < R; ++r) {
      const Vec<T> changed = hn::MulAdd(hn::Set(d, a.z[i + r]), c, row[r]);
      if constexpr (kSquare) {
        const auto left = hn::Le(hn::Iota(d, T(0)), hn::Set(d, static_cast<T>(i + r - j)));
        row[r] = hn::IfThenElse(left, changed, hn::MulAdd(hn::Set(d, a.c[i + r]), z, row[r]));
      } else {
        row[r] = changed;
      }
    }
  }
  if constexpr (kAsk) CovarianceProduct<R, kSquare, kPart, T>(row, a.q, a.asked, i, j, lanes, sums.asked);
  if constexpr (next == Next::drifts) {
    const Vec<T> growth = hn::Set(d, a.growth);
    TTR_UNROLL
    for (int r = 0; r < R; ++r) {
      row[r] = hn::Mul(growth, row[r]);
      if constexpr (kSquare) {
        const auto own = hn::Eq(hn::Iota(d, T(0)), hn::Set(d, static_cast<T>(i + r - j)));
        row[r] = hn::IfThenElse(own, hn::Add(row[r], hn::Set(d, a.process)), row[r]);
      }
    }
  }
  if constexpr (next != Next::none)
    CovarianceProduct<R, kSquare, kPart, T>(row, a.k, a.product, i, j, lanes, sums.product);
  if constexpr (kChange || next == Next::drifts) {
    TTR_UNROLL
    for (int r = 0; r < R; ++r) StoreMaybe<kPart>(row[r], a.P + (i + r) * a.K + j, lanes);
  }
}

template <int R, bool kChange, bool kAsk, Next next, class T>
HWY_INLINE void CovarianceRows(const typename CovarianceSimd<T>::Pass& a, Size i) {
  constexpr Size L = Width<T>();
  const Tag<T> d;
  const Size square = i / L * L, end = (i + R - 1) / L * L + L;
  CovarianceSums<R, T> sums;
  TTR_UNROLL
  for (int r = 0; r < R; ++r) sums.asked[r] = sums.product[r] = hn::Zero(d);
  Size j = 0;
  for (; j < square; j += L) CovarianceTile<R, false, kChange, kAsk, next, false, T>(a, i, j, L, sums);
  for (; j < end && j + L <= a.K; j += L) CovarianceTile<R, true, kChange, kAsk, next, false, T>(a, i, j, L, sums);
  if (j < end && j < a.K) CovarianceTile<R, true, kChange, kAsk, next, true, T>(a, i, j, a.K - j, sums);
  TTR_UNROLL
  for (int r = 0; r < R; ++r) {  // what is below these rows is added to it later
    if constexpr (kAsk) a.asked[i + r] = hn::GetLane(hn::SumOfLanes(d, sums.asked[r]));
    if constexpr (next != Next::none) a.product[i + r] = hn::GetLane(hn::SumOfLanes(d, sums.product[r]));
  }
}

template <bool kChange, bool kAsk, Next next, class T>
void CovariancePass(const typename CovarianceSimd<T>::Pass& a) {
  constexpr int R = Width<T>() >= 8 ? 8 : 4;  // whole vectors: rows of one square go together, or one by one
  Size i = 0;
  for (; i + R <= a.K; i += R) CovarianceRows<R, kChange, kAsk, next, T>(a, i);
  for (; i < a.K; ++i) CovarianceRows<1, kChange, kAsk, next, T>(a, i);
}

template <class T>
void CovariancePassOf(const typename CovarianceSimd<T>::Pass& a) {
  const Next next = !a.k ? Next::none : a.growth == T(1) && a.process == T(0) ? Next::as_it_is : Next::drifts;
  const auto of_next = [&](auto change, auto ask) {
    constexpr bool kChange = decltype(change)::value, kAsk = decltype(ask)::value;
    if (next == Next::drifts) CovariancePass<kChange, kAsk, Next::drifts, T>(a);
    else if (next == Next::as_it_is) CovariancePass<kChange, kAsk, Next::as_it_is, T>(a);
    else if (kChange || kAsk) CovariancePass<kChange, kAsk, Next::none, T>(a);
  };
  if (a.z && a.q) of_next(std::true_type(), std::true_type());
  else if (a.z) of_next(std::true_type(), std::false_type());
  else if (a.q) of_next(std::false_type(), std::true_type());
  else of_next(std::false_type(), std::false_type());
}

template <class T>
const CovarianceSimd<T>* CovarianceTable() {
  static constexpr CovarianceSimd<T> table = {.pass = CovariancePassOf<T>};
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
