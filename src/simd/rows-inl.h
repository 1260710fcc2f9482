// Passes over the rows of gradients, compiled once per instruction set (included by vectors-inl.h).
//
//   add_rows_dots   Y_i += a_i X_i + X2_i,  dots_i = Z_i . X_i,  dots2_i = Z_i . X2_i
//
// One pass where there were five: the rows of Y lie far apart in the caller's memory, those of X come from a product.
#if defined(TTR_SIMD_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_ROWS_INL_H_
#undef TTR_SIMD_ROWS_INL_H_
#else
#define TTR_SIMD_ROWS_INL_H_
#endif

#include <cstddef>
#include <type_traits>

#include "hwy/highway.h"
#include "simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <bool kSecond, bool kDots, bool kAdd, class T>
void AddRowsDotsOf(Size M, Size N, const T* a, const T* X, Size ldx, const T* X2, Size ldx2, const T* Z, Size ldz,
                   T* Y, Size ldy, T* dots, T* dots2) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  for (Size i = 0; i < M; ++i) {
    const T *const x = X + i * ldx, *const x2 = kSecond ? X2 + i * ldx2 : nullptr;
    const T* const z = kDots ? Z + i * ldz : nullptr;
    T* const y = kAdd ? Y + i * ldy : nullptr;
    const Vec<T> factor = hn::Set(d, a ? a[i] : T(1));
    Vec<T> sum[2] = {hn::Zero(d), hn::Zero(d)}, sum2[2] = {hn::Zero(d), hn::Zero(d)};
    const auto go = [&](Size j, Size n, auto part, int turn) HWY_ATTR {
      constexpr bool kPart = decltype(part)::value;
      const Vec<T> one = LoadMaybe<kPart>(x + j, n);
      [[maybe_unused]] Vec<T> two = one, other = one;
      if constexpr (kSecond) two = LoadMaybe<kPart>(x2 + j, n);
      if constexpr (kDots) {
        other = LoadMaybe<kPart>(z + j, n);
        sum[turn] = hn::MulAdd(other, one, sum[turn]);
        if constexpr (kSecond) sum2[turn] = hn::MulAdd(other, two, sum2[turn]);
      }
      if constexpr (kAdd) {
        Vec<T> to = hn::MulAdd(factor, one, LoadMaybe<kPart>(y + j, n));
        if constexpr (kSecond) to = hn::Add(to, two);
        StoreMaybe<kPart>(to, y + j, n);
      }
    };
    Size j = 0;
    for (; j + 2 * L <= N; j += 2 * L) go(j, L, std::false_type(), 0), go(j + L, L, std::false_type(), 1);
    if (j + L <= N) go(j, L, std::false_type(), 0), j += L;
    if (j < N) go(j, N - j, std::true_type(), 1);
    if constexpr (kDots) dots[i] = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum[0], sum[1])));
    if constexpr (kDots && kSecond) dots2[i] = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum2[0], sum2[1])));
  }
}

template <class T>
void AddRowsDots(Size M, Size N, const T* a, const T* X, Size ldx, const T* X2, Size ldx2, const T* Z, Size ldz, T* Y,
                 Size ldy, T* dots, T* dots2) {
  const auto run = [&](auto second) HWY_ATTR {
    constexpr bool kSecond = decltype(second)::value;
    if (Z && Y) AddRowsDotsOf<kSecond, true, true>(M, N, a, X, ldx, X2, ldx2, Z, ldz, Y, ldy, dots, dots2);
    else if (Z) AddRowsDotsOf<kSecond, true, false>(M, N, a, X, ldx, X2, ldx2, Z, ldz, Y, ldy, dots, dots2);
    else if (Y) AddRowsDotsOf<kSecond, false, true>(M, N, a, X, ldx, X2, ldx2, Z, ldz, Y, ldy, dots, dots2);
  };
  if (X2) run(std::true_type());
  else run(std::false_type());
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
