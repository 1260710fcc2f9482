// Tiles of softmax attention, compiled once per instruction set (included by attention_f32.cc, attention_f64.cc).
#if defined(TTR_SIMD_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_ATTENTION_INL_H_
#undef TTR_SIMD_ATTENTION_INL_H_
#else
#define TTR_SIMD_ATTENTION_INL_H_
#endif

#include <cmath>
#include <limits>

#include "families/pairs/attention/attention_simd.h"
#include "simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

// x_j + bias_j + row for a vector of columns
template <bool kPart, class T>
HWY_INLINE Vec<T> Biased(Vec<T> x, const T* bias, Vec<T> row, Size j, Size lanes) {
  if (bias) x = hn::Add(x, LoadMaybe<kPart>(bias + j, lanes));
  return hn::Add(x, row);
}

template <class T>
void ClearOutside(Size begin, Size end, Size N, T* x) {
  std::fill(x, x + begin, T(0));
  std::fill(x + end, x + N, T(0));
}

// exp for x <= 88 (float): with the range known, half the work of the general one. Below the smallest normal number
// 0; NaN stays NaN. 2^n 2^f with n the nearest integer to x log2(e), and for 2^f the polynomial of least relative error
// on |f| <= 1/2 (3e-9) with p(0) = 1. The rounding of log2(e) makes an error of 2e-8 |x| e^x at most: weights are
// compared with their largest, which is 1.
template <class T>
HWY_INLINE Vec<T> ExpBounded(Vec<T> x) {
  if constexpr (sizeof(T) == 8) return ExpOf<T>(x);
  else {
    const Tag<float> d;
    const hn::RebindToSigned<Tag<float>> di;
    const Vec<float> magic = hn::Set(d, 12582912.0f + 127.0f);  // 1.5 2^23 + bias: an exponent in the low bits
    const Vec<float> log2e = hn::Set(d, 1.44269504088896341f);
    const Vec<float> shifted = hn::MulAdd(x, log2e, magic), f = hn::MulSub(x, log2e, hn::Sub(shifted, magic));
    Vec<float> y = hn::MulAdd(f, hn::Set(d, 1.559467755e-4f), hn::Set(d, 1.340664391e-3f));
    y = hn::MulAdd(y, f, hn::Set(d, 9.617692975e-3f));
    y = hn::MulAdd(y, f, hn::Set(d, 5.550310551e-2f));
    y = hn::MulAdd(y, f, hn::Set(d, 2.402265278e-1f));
    y = hn::MulAdd(y, f, hn::Set(d, 6.931472150e-1f));
    y = hn::MulAdd(y, f, hn::Set(d, 1.0f));
    y = hn::Mul(y, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
    return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.33654f)), y);
  }
}

struct Plus {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};
struct Larger {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};

#if HWY_TARGET != HWY_SCALAR
// The blocks of 128 bits of a vector, folded into one.
template <class D, class V, class Op>
HWY_INLINE auto FoldBlocks(D d, V v, Op op) {
  if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) <= 16) {
    (void)d, (void)op;
    return v;
  } else {
    const hn::Half<D> h;
    return FoldBlocks(h, op(hn::LowerHalf(h, v), hn::UpperHalf(h, v)), op);
  }
}
#endif

// y_r = the lanes of x_r, folded; four vectors together need half the shuffles of four times one.
template <class T, class Op>
HWY_INLINE void FoldFour(const Vec<T> (&x)[4], Op op, T* y) {
#if HWY_TARGET == HWY_SCALAR
  (void)op;
  for (int r = 0; r < 4; ++r) y[r] = hn::GetLane(x[r]);
#else
  const Tag<T> d;
  const hn::FixedTag<T, 16 / sizeof(T)> block;
  const Vec<T> low = op(hn::InterleaveLower(d, x[0], x[1]), hn::InterleaveUpper(d, x[0], x[1]));
  const Vec<T> high = op(hn::InterleaveLower(d, x[2], x[3]), hn::InterleaveUpper(d, x[2], x[3]));
  if constexpr (sizeof(T) == 4) {  // per block: 0 1 0 1 and 2 3 2 3 -> 0 1 2 3
    const hn::Repartition<double, Tag<T>> wide;
    const auto a = hn::BitCast(wide, low), b = hn::BitCast(wide, high);
    const Vec<T> all =
        op(hn::BitCast(d, hn::InterleaveLower(wide, a, b)), hn::BitCast(d, hn::InterleaveUpper(wide, a, b)));
    hn::StoreU(FoldBlocks(d, all, op), block, y);
  } else {
    hn::StoreU(FoldBlocks(d, low, op), block, y);
    hn::StoreU(FoldBlocks(d, high, op), block, y + 2);
  }
#endif
}

template <int R, class T>
HWY_INLINE void FoldRows(const Vec<T> (&x)[R], Plus op, T* y) {
  if constexpr (R == 4) FoldFour<T>(x, op, y);
  else *y = hn::GetLane(hn::SumOfLanes(Tag<T>(), x[0]));
}
template <int R, class T>
HWY_INLINE void FoldRows(const Vec<T> (&x)[R], Larger op, T* y) {
  if constexpr (R == 4) FoldFour<T>(x, op, y);
  else *y = hn::GetLane(hn::MaxOfLanes(Tag<T>(), x[0]));
}

// R rows that see the same columns [begin, begin + n)
template <int R, bool kFree, class T>
HWY_INLINE bool SoftmaxRows(const typename AttentionSimd<T>::Bias& b, Size i, Size begin, Size n, T* S, Size lds,
                            T* m, T* l, T* factor) {
  const Tag<T> d;
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  const Vec<T> none = hn::Set(d, kNone);
  const bool biased = b.bias || b.row;
  T tops[R], totals[R];
  Vec<T> most[R], sum[R];
  if (kFree || biased) {
    for (int r = 0; r < R; ++r) {
      T* const x = S + (i + r) * lds + begin;
      const T* const bias = b.bias ? b.bias + (i + r) * b.ld + begin : nullptr;
      const Vec<T> row = hn::Set(d, b.row ? b.row[i + r] : T(0));
      Vec<T> top = none;
      ForVectors<T>(n, [&](Size j, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        Vec<T> y = LoadMaybe<part>(x + j, lanes);
        if (biased) {
          y = Biased<part, T>(y, bias, row, j, lanes);
          StoreMaybe<part>(y, x + j, lanes);
        }
        if constexpr (part) y = hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(lanes)), y, none);
        top = hn::Max(top, y);
      });
      most[r] = top;
    }
  }
  if constexpr (kFree) FoldRows<R, T>(most, Larger(), tops);
  for (int r = 0; r < R; ++r) {
    T* const x = S + (i + r) * lds + begin;
    tops[r] = kFree ? std::max(m[i + r], tops[r]) : m[i + r];
    // With no number above -inf, exp(x) is 0, or NaN where x is.
    const Vec<T> shift = hn::Set(d, tops[r] == kNone ? T(0) : tops[r]);
    Vec<T> total = hn::Zero(d);
    ForVectors<T>(n, [&](Size j, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      const Vec<T> z = hn::Sub(LoadMaybe<part>(x + j, lanes), shift);
      Vec<T> y = kFree ? ExpBounded<T>(z) : ExpOf<T>(z);
      StoreMaybe<part>(y, x + j, lanes);
      if constexpr (part) y = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(lanes)), y);
      total = hn::Add(total, y);
    });
    sum[r] = total;
  }
  FoldRows<R, T>(sum, Plus(), totals);
  bool changed = false;
  for (int r = 0; r < R; ++r) {
    const bool same = m[i + r] == tops[r];
    factor[i + r] = same ? T(1) : std::exp(m[i + r] - tops[r]);
    changed = changed || !same;
    l[i + r] = factor[i + r] * l[i + r] + totals[r];
    m[i + r] = tops[r];
  }
  return changed;
}

// Four rows of n columns, whole vectors, without bias: what most of a long sequence is. The bits of SoftmaxRows<4>.
template <class T>
HWY_INLINE bool SoftmaxFour(Size n, T* S, Size lds, T* m, T* l, T* factor) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  T* const rows[4] = {S, S + lds, S + 2 * lds, S + 3 * lds};
  Vec<T> fold[4], shift[4];
  TTR_UNROLL for (int r = 0; r < 4; ++r) fold[r] = hn::Set(d, kNone);
  for (Size j = 0; j < n; j += L) {
    TTR_UNROLL for (int r = 0; r < 4; ++r) fold[r] = hn::Max(fold[r], hn::LoadU(d, rows[r] + j));
  }
  T tops[4], totals[4];
  FoldFour<T>(fold, Larger(), tops);
  TTR_UNROLL for (int r = 0; r < 4; ++r) {
    tops[r] = std::max(m[r], tops[r]);
    shift[r] = hn::Set(d, tops[r] == kNone ? T(0) : tops[r]);
    fold[r] = hn::Zero(d);
  }
  for (Size j = 0; j < n; j += L) {
    TTR_UNROLL for (int r = 0; r < 4; ++r) {
      const Vec<T> y = ExpBounded<T>(hn::Sub(hn::LoadU(d, rows[r] + j), shift[r]));
      hn::StoreU(y, d, rows[r] + j);
      fold[r] = hn::Add(fold[r], y);
    }
  }
  FoldFour<T>(fold, Plus(), totals);
  bool changed = false;
  for (int r = 0; r < 4; ++r) {
    const bool same = m[r] == tops[r];
    factor[r] = same ? T(1) : std::exp(m[r] - tops[r]);
    changed = changed || !same;
    l[r] = factor[r] * l[r] + totals[r];
    m[r] = tops[r];
  }
  return changed;
}

template <bool kFree, class T>
HWY_INLINE bool SoftmaxOf(const MaskRange& visible, const typename AttentionSimd<T>::Bias& b, T* S, Size lds, T* m,
                          T* l, T* factor) {
  bool changed = false;
  for (Size i = 0; i < visible.M;) {
    const Size begin = std::min(visible.begin(i), visible.end(i)), end = visible.end(i);
    const bool four = i + 4 <= visible.M && visible.begin(i + 3) == visible.begin(i) && visible.end(i + 3) == end;
    if (kFree && four && !b.bias && !b.row && begin == 0 && end == visible.N && end % Width<T>() == 0) {
      const bool now = SoftmaxFour<T>(end, S + i * lds, lds, m + i, l + i, factor + i);
      changed = changed || now;
      i += 4;
      continue;
    }
    const bool now = four ? SoftmaxRows<4, kFree>(b, i, begin, end - begin, S, lds, m, l, factor)
                          : SoftmaxRows<1, kFree>(b, i, begin, end - begin, S, lds, m, l, factor);
    changed = changed || now;
    for (const Size next = i + (four ? 4 : 1); i < next; ++i) ClearOutside(begin, end, visible.N, S + i * lds);
  }
  return changed;
}
template <class T>
bool Softmax(const MaskRange& visible, const typename AttentionSimd<T>::Bias& b, bool free, T* S, Size lds, T* m,
             T* l, T* factor) {
  return free ? SoftmaxOf<true>(visible, b, S, lds, m, l, factor)
              : SoftmaxOf<false>(visible, b, S, lds, m, l, factor);
}

// R rows that see the same columns [begin, begin + n)
template <int R, bool kBiased, class T>
HWY_INLINE void GatherRows(const typename AttentionSimd<T>::Bias& b, Size i, Size begin, Size n, const T* S,
                           const T* X, Size ld, T* m, T* l, T* sum) {
  const Tag<T> d;
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  const Vec<T> none = hn::Set(d, kNone);
  const Size at = i * ld + begin;
  const T* const bias = kBiased && b.bias ? b.bias + i * b.ld + begin : nullptr;
  Vec<T> most[R], mass[R], dot[R], row[R];
  TTR_UNROLL for (int r = 0; r < R; ++r) {
    most[r] = none, mass[r] = dot[r] = hn::Zero(d), row[r] = hn::Set(d, kBiased && b.row ? b.row[i + r] : T(0));
  }
  const auto logits = [&](int r, Size j, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    Vec<T> x = LoadMaybe<part>(S + at + r * ld + j, lanes);
    if constexpr (kBiased) x = Biased<part, T>(x, bias ? bias + r * b.ld : nullptr, row[r], j, lanes);
    if constexpr (part) x = hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(lanes)), x, none);
    return x;
  };
  ForVectors<T>(n, [&](Size j, Size lanes, auto p) HWY_ATTR {
    TTR_UNROLL for (int r = 0; r < R; ++r) most[r] = hn::Max(most[r], logits(r, j, lanes, p));
  });
  T tops[R], masses[R], dots[R];
  FoldRows<R, T>(most, Larger(), tops);
  Vec<T> shift[R];
  TTR_UNROLL for (int r = 0; r < R; ++r) {
    tops[r] = std::max(m[i + r], tops[r]);
    shift[r] = hn::Set(d, tops[r] == kNone ? T(0) : tops[r]);
  }
  ForVectors<T>(n, [&](Size j, Size lanes, auto p) HWY_ATTR {
    TTR_UNROLL for (int r = 0; r < R; ++r) {
      const Vec<T> e = ExpBounded<T>(hn::Sub(logits(r, j, lanes, p), shift[r]));  // beyond the last column 0
      mass[r] = hn::Add(mass[r], e);
      dot[r] = hn::MulAdd(e, LoadMaybe<decltype(p)::part>(X + at + r * ld + j, lanes), dot[r]);
    }
  });
  FoldRows<R, T>(mass, Plus(), masses), FoldRows<R, T>(dot, Plus(), dots);
  for (int r = 0; r < R; ++r) {
    const T factor = m[i + r] == tops[r] ? T(1) : std::exp(m[i + r] - tops[r]);
    l[i + r] = factor * l[i + r] + masses[r];
    sum[i + r] = factor * sum[i + r] + dots[r];
    m[i + r] = tops[r];
  }
}
template <bool kBiased, class T>
HWY_INLINE void GatherOf(const MaskRange& visible, const typename AttentionSimd<T>::Bias& b, const T* S, const T* X,
                         Size ld, T* m, T* l, T* sum) {
  for (Size i = 0; i < visible.M;) {
    const Size begin = std::min(visible.begin(i), visible.end(i)), end = visible.end(i);
    const bool four = i + 4 <= visible.M && visible.begin(i + 3) == visible.begin(i) && visible.end(i + 3) == end;
    if (four) GatherRows<4, kBiased>(b, i, begin, end - begin, S, X, ld, m, l, sum), i += 4;
    else GatherRows<1, kBiased>(b, i, begin, end - begin, S, X, ld, m, l, sum), i += 1;
  }
}
template <class T>
void Gather(const MaskRange& visible, const typename AttentionSimd<T>::Bias& b, const T* S, const T* X, Size ld, T* m,
            T* l, T* sum) {
  if (b.bias || b.row) GatherOf<true>(visible, b, S, X, ld, m, l, sum);
  else GatherOf<false>(visible, b, S, X, ld, m, l, sum);
}

template <bool kBounded, class T>
HWY_INLINE void SoftmaxBackOf(const MaskRange& visible, const typename AttentionSimd<T>::Bias& b, const T* lse,
                              const T* delta, const T* S, T* P, T* X, Size ld, double* moment) {
  const Tag<T> d;
  constexpr T kInf = std::numeric_limits<T>::infinity();
  for (Size i = 0; i < visible.M; ++i) {
    const Size begin = std::min(visible.begin(i), visible.end(i)), n = visible.end(i) - begin, at = i * ld + begin;
    const T* const bias = b.bias ? b.bias + i * b.ld + begin : nullptr;
    const Vec<T> row = hn::Set(d, b.row ? b.row[i] : T(0));
    const Vec<T> shift = hn::Set(d, lse[i] == -kInf ? kInf : lse[i]), minus = hn::Set(d, delta[i]);
    Vec<T> sum = hn::Zero(d);
    ForVectors<T>(n, [&](Size j, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      const Vec<T> s = LoadMaybe<part>(S + at + j, lanes);
      const Vec<T> z = hn::Sub(Biased<part, T>(s, bias, row, j, lanes), shift);
      const Vec<T> weight = kBounded ? ExpBounded<T>(z) : ExpOf<T>(z);
      Vec<T> y = hn::Mul(weight, hn::Sub(LoadMaybe<part>(X + at + j, lanes), minus));
      StoreMaybe<part>(weight, P + at + j, lanes);
      StoreMaybe<part>(y, X + at + j, lanes);
      if (moment) {
        y = hn::Mul(y, s);
        if constexpr (part) y = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(lanes)), y);
        sum = hn::Add(sum, y);
      }
    });
    if (moment) *moment += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
    ClearOutside(begin, begin + n, visible.N, P + i * ld);
    ClearOutside(begin, begin + n, visible.N, X + i * ld);
  }
}
template <class T>
void SoftmaxBack(const MaskRange& visible, const typename AttentionSimd<T>::Bias& b, bool bounded, const T* lse,
                 const T* delta, const T* S, T* P, T* X, Size ld, double* moment) {
  if (bounded) SoftmaxBackOf<true>(visible, b, lse, delta, S, P, X, ld, moment);
  else SoftmaxBackOf<false>(visible, b, lse, delta, S, P, X, ld, moment);
}

// c0 + c1 x + c2 x^2, and its slope
template <class T>
struct Quadratic {
  explicit Quadratic(const typename AttentionSimd<T>::Polynomial& p)
      : c0(hn::Set(Tag<T>(), p.c[0])),
        c1(hn::Set(Tag<T>(), p.c[1])),
        c2(hn::Set(Tag<T>(), p.c[2])),
        rate(hn::Set(Tag<T>(), p.rate)) {}
  HWY_INLINE Vec<T> At(Vec<T> x) const { return hn::MulAdd(hn::MulAdd(c2, x, c1), x, c0); }
  // Of the quadratic times e^{rate x}, without that factor
  HWY_INLINE Vec<T> Slope(Vec<T> x, Vec<T> y) const {
    return hn::MulAdd(rate, y, hn::MulAdd(hn::Add(c2, c2), x, c1));
  }
  Vec<T> c0, c1, c2, rate;
};

template <bool kExp, class T>
HWY_INLINE void WeighOf(const MaskRange& visible, const typename AttentionSimd<T>::Bias& b,
                        const typename AttentionSimd<T>::Polynomial& p, T* S, Size lds, T* l) {
  const Tag<T> d;
  const Quadratic<T> f(p);
  for (Size i = 0; i < visible.M; ++i) {
    const Size begin = std::min(visible.begin(i), visible.end(i)), n = visible.end(i) - begin;
    T* const x = S + i * lds + begin;
    const T* const bias = b.bias ? b.bias + i * b.ld + begin : nullptr;
    const Vec<T> row = hn::Set(d, b.row ? b.row[i] : T(0));
    Vec<T> total = hn::Zero(d);
    ForVectors<T>(n, [&](Size j, Size lanes, auto part) HWY_ATTR {
      constexpr bool kPart = decltype(part)::part;
      const Vec<T> s = LoadMaybe<kPart>(x + j, lanes);
      Vec<T> y = f.At(s);
      if constexpr (kExp) y = hn::Mul(y, ExpOf<T>(Biased<kPart, T>(hn::Mul(f.rate, s), bias, row, j, lanes)));
      StoreMaybe<kPart>(y, x + j, lanes);
      if constexpr (kPart) y = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(lanes)), y);
      total = hn::Add(total, y);
    });
    l[i] += hn::GetLane(hn::SumOfLanes(d, total));
    ClearOutside(begin, begin + n, visible.N, S + i * lds);
  }
}
template <class T>
void Weigh(const MaskRange& visible, const typename AttentionSimd<T>::Bias& b,
           const typename AttentionSimd<T>::Polynomial& p, T* S, Size lds, T* l) {
  if (b.bias || b.row || p.rate != T(0)) WeighOf<true>(visible, b, p, S, lds, l);
  else WeighOf<false>(visible, b, p, S, lds, l);
}

template <class T>
void WeighBack(const MaskRange& visible, const typename AttentionSimd<T>::Bias& b,
               const typename AttentionSimd<T>::Polynomial& p, const T* inverse, const T* delta, const T* S, T* P,
               T* X, T* Y, Size ld) {
  const Tag<T> d;
  const Quadratic<T> f(p);
  const bool exponent = b.bias || b.row || p.rate != T(0);
  for (Size i = 0; i < visible.M; ++i) {
    const Size begin = std::min(visible.begin(i), visible.end(i)), n = visible.end(i) - begin, at = i * ld + begin;
    const T* const bias = b.bias ? b.bias + i * b.ld + begin : nullptr;
    const Vec<T> row = hn::Set(d, b.row ? b.row[i] : T(0));
    const Vec<T> factor = hn::Set(d, inverse[i]), minus = hn::Set(d, delta[i]);
    ForVectors<T>(n, [&](Size j, Size lanes, auto part) HWY_ATTR {
      constexpr bool kPart = decltype(part)::part;
      const Vec<T> s = LoadMaybe<kPart>(S + at + j, lanes), y = f.At(s);
      Vec<T> e = factor;
      if (exponent) e = hn::Mul(e, ExpOf<T>(Biased<kPart, T>(hn::Mul(f.rate, s), bias, row, j, lanes)));
      const Vec<T> weight = hn::Mul(y, e), gap = hn::Sub(LoadMaybe<kPart>(X + at + j, lanes), minus);
      StoreMaybe<kPart>(weight, P + at + j, lanes);
      StoreMaybe<kPart>(hn::Mul(hn::Mul(f.Slope(s, y), e), gap), X + at + j, lanes);
      if (Y) StoreMaybe<kPart>(hn::Mul(weight, gap), Y + at + j, lanes);
    });
    for (T* const rows : {P, X, Y})
      if (rows) ClearOutside(begin, begin + n, visible.N, rows + i * ld);
  }
}

template <int R, int NV, bool kPart, class T>
HWY_INLINE void DistanceTile(const Product<T>& x, Size i, Size j, Size n) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  Vec<T> acc[R][NV];
  TTR_UNROLL for (int r = 0; r < R; ++r) { TTR_UNROLL for (int v = 0; v < NV; ++v) acc[r][v] = hn::Zero(d); }
  const T* const A = x.A + i * x.lda;
  for (Size p = 0; p < x.K; ++p) {
    Vec<T> b[NV];
    TTR_UNROLL for (int v = 0; v < NV; ++v) b[v] = LoadMaybe<kPart>(x.B + p * x.ldb + j + v * L, n);
    TTR_UNROLL for (int r = 0; r < R; ++r) {
      const Vec<T> a = hn::Set(d, A[r * x.lda + p]);
      TTR_UNROLL for (int v = 0; v < NV; ++v) {
        const Vec<T> gap = hn::Sub(a, b[v]);
        acc[r][v] = hn::MulAdd(gap, gap, acc[r][v]);
      }
    }
  }
  const Vec<T> alpha = hn::Set(d, x.alpha);
  TTR_UNROLL for (int r = 0; r < R; ++r) {
    TTR_UNROLL for (int v = 0; v < NV; ++v)
        StoreMaybe<kPart>(hn::Mul(alpha, acc[r][v]), x.C + (i + r) * x.ldc + j + v * L, n);
  }
}

template <int NV, bool kPart, class T>
HWY_INLINE void DistancePanel(const Product<T>& x, Size j, Size n) {
  Size i = 0;
  for (; i + 4 <= x.M; i += 4) DistanceTile<4, NV, kPart>(x, i, j, n);
  for (; i < x.M; ++i) DistanceTile<1, NV, kPart>(x, i, j, n);
}

template <class T>
void Distances(Size M, Size N, Size K, T alpha, const T* A, Size lda, const T* B, Size ldb, T* C, Size ldc) {
  constexpr Size L = Width<T>();
  const Product<T> x{M, K, alpha, A, lda, B, ldb, T(0), C, ldc};
  Size j = 0;
  for (; j + 2 * L <= N; j += 2 * L) DistancePanel<2, false>(x, j, L);
  if (j + L <= N) DistancePanel<1, false>(x, j, L), j += L;
  if (j < N) DistancePanel<1, true>(x, j, N - j);
}

template <bool kApart, class T>
HWY_INLINE Vec<T> AddScore(Vec<T> q, Vec<T> x, Vec<T> sum) {
  if constexpr (!kApart) return hn::MulAdd(q, x, sum);
  const Vec<T> gap = hn::Sub(q, x);
  return hn::MulAdd(gap, gap, sum);
}

template <bool kApart, class T>
void ScoresOf(Size n, Size K, T alpha, const T* X, Size ldx, const T* q, T* y) {
  const Tag<T> d;
  Size i = 0;
  for (; i + 4 <= n; i += 4) {
    const T *const x0 = X + i * ldx, *const x1 = x0 + ldx, *const x2 = x1 + ldx, *const x3 = x2 + ldx;
    Vec<T> sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    ForVectors<T>(K, [&](Size j, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      const Vec<T> a = LoadMaybe<part>(q + j, lanes);
      sum[0] = AddScore<kApart, T>(a, LoadMaybe<part>(x0 + j, lanes), sum[0]);
      sum[1] = AddScore<kApart, T>(a, LoadMaybe<part>(x1 + j, lanes), sum[1]);
      sum[2] = AddScore<kApart, T>(a, LoadMaybe<part>(x2 + j, lanes), sum[2]);
      sum[3] = AddScore<kApart, T>(a, LoadMaybe<part>(x3 + j, lanes), sum[3]);
    });
    FoldFour<T>(sum, Plus(), y + i);
    for (Size r = i; r < i + 4; ++r) y[r] *= alpha;
  }
  for (; i < n; ++i) {
    Vec<T> sum = hn::Zero(d);
    ForVectors<T>(K, [&](Size j, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      sum = AddScore<kApart, T>(LoadMaybe<part>(q + j, lanes), LoadMaybe<part>(X + i * ldx + j, lanes), sum);
    });
    y[i] = alpha * hn::GetLane(hn::SumOfLanes(d, sum));
  }
}
template <class T>
void Scores(Size n, Size K, bool apart, T alpha, const T* X, Size ldx, const T* q, T* y) {
  if (apart) ScoresOf<true>(n, K, alpha, X, ldx, q, y);
  else ScoresOf<false>(n, K, alpha, X, ldx, q, y);
}

template <class T>
void AddSums(Size M, Size N, const T* X, Size ldx, double* rows, double* columns) {
  constexpr Size kLanes = 8;  // independent sums, for the compiler to put into vectors
  for (Size i = 0; i < M; ++i) {
    const T* const x = X + i * ldx;
    double sum[kLanes] = {};
    Size j = 0;
    for (; j + kLanes <= N; j += kLanes) {
      TTR_UNROLL for (Size r = 0; r < kLanes; ++r) {
        const double y = static_cast<double>(x[j + r]);
        sum[r] += y;
        columns[j + r] += y;
      }
    }
    for (; j < N; ++j) sum[0] += static_cast<double>(x[j]), columns[j] += static_cast<double>(x[j]);
    for (Size r = 0; r < kLanes; ++r) rows[i] += sum[r];
  }
}

template <class T>
bool Finite(Size n, const T* x) {
  const Tag<T> d;
  Vec<T> sum = hn::Zero(d);  // 0 x is 0, or NaN
  ForVectors<T>(n, [&](Size i, Size lanes, auto p)
                       HWY_ATTR { sum = hn::MulAdd(LoadMaybe<decltype(p)::part>(x + i, lanes), hn::Zero(d), sum); });
  return hn::GetLane(hn::SumOfLanes(d, sum)) == T(0);
}

template <class T>
const AttentionSimd<T>* AttentionTable() {
  static constexpr AttentionSimd<T> table = {
      .softmax = Softmax<T>,
      .gather = Gather<T>,
      .softmax_back = SoftmaxBack<T>,
      .weigh = Weigh<T>,
      .weigh_back = WeighBack<T>,
      .distances = Distances<T>,
      .scores = Scores<T>,
      .add_sums = AddSums<T>,
      .finite = Finite<T>,
  };
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
