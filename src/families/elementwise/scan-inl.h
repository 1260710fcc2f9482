// Elementwise recurrences, compiled once per instruction set (included by scan_f32.cc, scan_f64.cc).
#if defined(TTR_SIMD_SCAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_SCAN_INL_H_
#undef TTR_SIMD_SCAN_INL_H_
#else
#define TTR_SIMD_SCAN_INL_H_
#endif

#include <cmath>

#include "families/elementwise/scan_simd.h"
#include "simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

template <class T>
void DecayAdd(Size n, const T* a, const T* x, T* h) {
  ForVectors<T>(n, [&](Size i, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    StoreMaybe<part>(
        hn::MulAdd(LoadMaybe<part>(a + i, lanes), LoadMaybe<part>(h + i, lanes), LoadMaybe<part>(x + i, lanes)),
        h + i, lanes);
  });
}

template <class T>
void Decay(Size n, const T* a, T* h) {
  ForVectors<T>(n, [&](Size i, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    StoreMaybe<part>(hn::Mul(LoadMaybe<part>(a + i, lanes), LoadMaybe<part>(h + i, lanes)), h + i, lanes);
  });
}

template <class T, bool kOne>
HWY_INLINE void TurnBy(Size n, const T* a_re, const T* a_im, T* re, T* im) {
  const Tag<T> d;
  ForVectors<T>(n, [&](Size i, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    const Vec<T> c = kOne ? hn::Set(d, *a_re) : LoadMaybe<part>(a_re + i, lanes);
    const Vec<T> s = kOne ? hn::Set(d, *a_im) : LoadMaybe<part>(a_im + i, lanes);
    const Vec<T> x = LoadMaybe<part>(re + i, lanes), y = LoadMaybe<part>(im + i, lanes);
    StoreMaybe<part>(hn::MulSub(c, x, hn::Mul(s, y)), re + i, lanes);
    StoreMaybe<part>(hn::MulAdd(c, y, hn::Mul(s, x)), im + i, lanes);
  });
}
template <class T>
void Turn(Size n, const T* a_re, const T* a_im, T* re, T* im) {
  TurnBy<T, false>(n, a_re, a_im, re, im);
}
template <class T>
void TurnAll(Size n, T a_re, T a_im, T* re, T* im) {
  TurnBy<T, true>(n, &a_re, &a_im, re, im);
}

template <class T>
void TurnBack(Size n, const T* a_re, const T* a_im, const T* old_re, const T* old_im, T* re, T* im, T* d_g,
              T* d_theta) {
  ForVectors<T>(n, [&](Size i, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    const Vec<T> c = LoadMaybe<part>(a_re + i, lanes), s = LoadMaybe<part>(a_im + i, lanes);
    const Vec<T> x = LoadMaybe<part>(re + i, lanes), y = LoadMaybe<part>(im + i, lanes);
    const Vec<T> r = LoadMaybe<part>(old_re + i, lanes), q = LoadMaybe<part>(old_im + i, lanes);
    const Vec<T> back_re = hn::MulAdd(c, x, hn::Mul(s, y)), back_im = hn::MulSub(c, y, hn::Mul(s, x));
    StoreMaybe<part>(back_re, re + i, lanes);
    StoreMaybe<part>(back_im, im + i, lanes);
    StoreMaybe<part>(hn::MulAdd(r, back_re, hn::Mul(q, back_im)), d_g + i, lanes);
    StoreMaybe<part>(hn::MulSub(r, back_im, hn::Mul(q, back_re)), d_theta + i, lanes);
  });
}

// The vector functions reduce an angle by a few multiples of pi; beyond them, and for what is no number, the scalar ones.
template <class T>
void Polar(Size n, const T* theta, T* re, T* im) {
  const Tag<T> d;
  constexpr T most = T(1e4);
  ForVectors<T>(n, [&](Size i, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    const Vec<T> angle = LoadMaybe<part>(theta + i, lanes), size = LoadMaybe<part>(re + i, lanes);
    const Vec<T> c = hn::Mul(size, hn::Cos(d, angle)), s = hn::Mul(size, hn::Sin(d, angle));
    if (hn::AllTrue(d, hn::Le(hn::Abs(angle), hn::Set(d, most)))) {
      StoreMaybe<part>(c, re + i, lanes), StoreMaybe<part>(s, im + i, lanes);
      return;
    }
    HWY_ALIGN T angles[hn::MaxLanes(Tag<T>())], sizes[hn::MaxLanes(Tag<T>())], both[2][hn::MaxLanes(Tag<T>())];
    hn::Store(angle, d, angles), hn::Store(size, d, sizes), hn::Store(c, d, both[0]), hn::Store(s, d, both[1]);
    for (Size j = 0; j < lanes; ++j) {
      const bool far = !(std::abs(angles[j]) <= most);
      re[i + j] = far ? sizes[j] * std::cos(angles[j]) : both[0][j];
      im[i + j] = far ? sizes[j] * std::sin(angles[j]) : both[1][j];
    }
  });
}

template <class T, bool kRead>
HWY_INLINE void RotateRows(Size K, Size V, const T* a_re, const T* a_im, const T* k, const T* v, const T* q, T* re,
                           T* im, T* o) {
  const Tag<T> d;
  ForVectors<T>(V, [&](Size i, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    const Vec<T> value = LoadMaybe<part>(v + i, lanes);
    Vec<T> sum = hn::Zero(d);
    for (Size n = 0; n < K; ++n) {
      T *const at_re = re + n * V + i, *const at_im = im + n * V + i;
      const Vec<T> c = hn::Set(d, a_re[n]), s = hn::Set(d, a_im[n]);
      const Vec<T> x = LoadMaybe<part>(at_re, lanes), y = LoadMaybe<part>(at_im, lanes);
      const Vec<T> turned = hn::MulSub(c, x, hn::Mul(s, y)), next = hn::MulAdd(hn::Set(d, k[n]), value, turned);
      StoreMaybe<part>(next, at_re, lanes);
      StoreMaybe<part>(hn::MulAdd(c, y, hn::Mul(s, x)), at_im, lanes);
      if (kRead) sum = hn::MulAdd(hn::Set(d, q[n]), next, sum);
    }
    if (kRead) StoreMaybe<part>(sum, o + i, lanes);
  });
}
template <class T>
void Rotate(Size K, Size V, const T* a_re, const T* a_im, const T* k, const T* v, const T* q, T* re, T* im, T* o) {
  if (q) RotateRows<T, true>(K, V, a_re, a_im, k, v, q, re, im, o);
  else RotateRows<T, false>(K, V, a_re, a_im, k, v, q, re, im, o);
}

template <class T, bool kAfter>
void Products(Size count, Size n, const T* a_re, const T* a_im, const T* x, Size ld, T* A_re, T* A_im, T* out_re,
              T* out_im) {
  ForVectors<T>(n, [&](Size i, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    Vec<T> re = LoadMaybe<part>(A_re + i, lanes), im = LoadMaybe<part>(A_im + i, lanes);
    const auto put = [&](Size t) HWY_ATTR {
      const Vec<T> row = LoadMaybe<part>(x + t * ld + i, lanes);
      StoreMaybe<part>(hn::Mul(row, re), out_re + t * n + i, lanes);
      StoreMaybe<part>(hn::Mul(row, im), out_im + t * n + i, lanes);
    };
    for (Size step = 0; step < count; ++step) {
      const Size t = kAfter ? step : count - 1 - step;
      if (!kAfter) put(t);
      const Vec<T> c = LoadMaybe<part>(a_re + t * n + i, lanes), s = LoadMaybe<part>(a_im + t * n + i, lanes);
      const Vec<T> turned = kAfter ? hn::MulAdd(c, re, hn::Mul(s, im)) : hn::MulSub(c, re, hn::Mul(s, im));
      im = kAfter ? hn::MulSub(c, im, hn::Mul(s, re)) : hn::MulAdd(c, im, hn::Mul(s, re));
      re = turned;
      if (kAfter) put(t);
    }
    StoreMaybe<part>(re, A_re + i, lanes), StoreMaybe<part>(im, A_im + i, lanes);
  });
}

// e^{a - max(a, b)} and e^{b - max(a, b)}: one of them is 1.
template <class T>
HWY_INLINE void Shares(Vec<T> a, Vec<T> b, Vec<T>& of_a, Vec<T>& of_b) {
  const Vec<T> one = hn::Set(Tag<T>(), T(1)), gap = hn::Sub(a, b), small = ExpOf<T>(hn::Neg(hn::Abs(gap)));
  const auto first = hn::Ge(gap, hn::Zero(Tag<T>()));
  of_a = hn::IfThenElse(first, one, small);
  of_b = hn::IfThenElse(first, small, one);
}

template <class T>
void Mean(Size n, const T* k, const T* v, const T* w, const T* u, T* alpha, T* beta, T* exponent, T* o) {
  ForVectors<T>(n, [&](Size i, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    const Vec<T> key = LoadMaybe<part>(k + i, lanes), value = LoadMaybe<part>(v + i, lanes);
    const Vec<T> a = LoadMaybe<part>(alpha + i, lanes), b = LoadMaybe<part>(beta + i, lanes);
    const Vec<T> e = LoadMaybe<part>(exponent + i, lanes);
    Vec<T> past, now;
    if (u) {
      Shares<T>(e, hn::Add(LoadMaybe<part>(u + i, lanes), key), past, now);
      const Vec<T> below = hn::MulAdd(past, b, now);
      StoreMaybe<part>(hn::Div(hn::MulAdd(past, a, hn::Mul(now, value)), below), o + i, lanes);
    }
    const Vec<T> old = hn::Add(LoadMaybe<part>(w + i, lanes), e);
    Shares<T>(old, key, past, now);
    StoreMaybe<part>(hn::MulAdd(past, a, hn::Mul(now, value)), alpha + i, lanes);
    StoreMaybe<part>(hn::MulAdd(past, b, now), beta + i, lanes);
    StoreMaybe<part>(hn::Max(old, key), exponent + i, lanes);
  });
}

template <class T>
const ScanSimd<T>* ScanTable() {
  static constexpr ScanSimd<T> table = {
      .decay_add = DecayAdd<T>,
      .decay = Decay<T>,
      .turn = Turn<T>,
      .turn_all = TurnAll<T>,
      .turn_back = TurnBack<T>,
      .polar = Polar<T>,
      .rotate = Rotate<T>,
      .products_before = Products<T, false>,
      .products_after = Products<T, true>,
      .mean = Mean<T>,
  };
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
