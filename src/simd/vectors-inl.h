// Vector primitives, compiled once per instruction set (included by vectors.cc and by the families' own tables).
//
// The tail of a row is one vector with fewer lanes and goes through the same operations, so an element's bits do not
// depend on which side of the tail it falls. A state is walked in panels of up to 4 vectors of columns, which stay in
// registers.
#if defined(TTR_SIMD_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_VECTORS_INL_H_
#undef TTR_SIMD_VECTORS_INL_H_
#else
#define TTR_SIMD_VECTORS_INL_H_
#endif

#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/contrib/math/math-inl.h"
#include "simd/lanes-inl.h"
#include "simd/panels-inl.h"
#include "simd/rows-inl.h"
#include "simd/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

// f(offset, lanes, part) for every vector of a row of n numbers; `part` is a type, so loads and stores stay static.
struct Whole {
  static constexpr bool part = false;
};
struct Tail {
  static constexpr bool part = true;
};
template <class T, class F>
HWY_INLINE void ForVectors(Size n, const F& f) {
  constexpr Size L = Width<T>();
  Size i = 0;
  for (; i + L <= n; i += L) f(i, L, Whole());
  if constexpr (L > 1)
    if (i < n) f(i, n - i, Tail());
}
// The same for bodies so short that the loop itself would count.
template <class T, class F>
HWY_INLINE void ForVectorsUnrolled(Size n, const F& f) {
  constexpr Size L = Width<T>();
  Size i = 0;
  if constexpr (!kBaseline)
    for (; i + 4 * L <= n; i += 4 * L)
      f(i, L, Whole()), f(i + L, L, Whole()), f(i + 2 * L, L, Whole()), f(i + 3 * L, L, Whole());
  for (; i + L <= n; i += L) f(i, L, Whole());
  if constexpr (L > 1)
    if (i < n) f(i, n - i, Tail());
}

template <class T>
void Axpy(Size n, T a, const T* x, T* y) {
  const Vec<T> va = hn::Set(Tag<T>(), a);
  ForVectorsUnrolled<T>(n, [&](Size i, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    StoreMaybe<part>(hn::MulAdd(va, LoadMaybe<part>(x + i, lanes), LoadMaybe<part>(y + i, lanes)), y + i, lanes);
  });
}

template <class T>
HWY_INLINE void Scale(Size n, T a, const T* x, T* y) {
  const Vec<T> va = hn::Set(Tag<T>(), a);
  ForVectorsUnrolled<T>(n, [&](Size i, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    StoreMaybe<part>(hn::Mul(va, LoadMaybe<part>(x + i, lanes)), y + i, lanes);
  });
}

template <class T>
HWY_INLINE T Dot(Size n, const T* x, const T* y) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  Vec<T> s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  Size i = 0;
  for (; i + 4 * L <= n; i += 4 * L) {
    s0 = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), s0);
    s1 = hn::MulAdd(hn::LoadU(d, x + i + L), hn::LoadU(d, y + i + L), s1);
    s2 = hn::MulAdd(hn::LoadU(d, x + i + 2 * L), hn::LoadU(d, y + i + 2 * L), s2);
    s3 = hn::MulAdd(hn::LoadU(d, x + i + 3 * L), hn::LoadU(d, y + i + 3 * L), s3);
  }
  for (; i + L <= n; i += L) s0 = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), s0);
  if (i < n) s1 = hn::MulAdd(LoadPart(x + i, n - i), LoadPart(y + i, n - i), s1);
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}
template <class T>
T DotOf(Size n, const T* x, const T* y) {
  return Dot(n, x, y);
}

// x = n log(2) + r with |r| <= log(2) / 2, for |x| <= 88 or so; the integer n is left in the low bits of `shifted`.
struct Reduced {
  Vec<float> shifted, r;
};
HWY_INLINE Reduced Reduce(Vec<float> x) {
  const Tag<float> d;
  const Vec<float> magic = hn::Set(d, 12582912.0f);  // 1.5 2^23
  const Vec<float> shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic), n = hn::Sub(shifted, magic);
  const Vec<float> r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x));
  return {shifted, r};
}
// y 2^n (down: y 2^-n) by adding to the exponent: exact while the result is a normal number.
template <bool kDown>
HWY_INLINE Vec<float> Rescale(Vec<float> y, Vec<float> shifted) {
  const Tag<float> d;
  const hn::RebindToSigned<Tag<float>> di;
  const auto n = hn::ShiftLeft<23>(hn::BitCast(di, shifted)), bits = hn::BitCast(di, y);
  return hn::BitCast(d, kDown ? hn::Sub(bits, n) : hn::Add(bits, n));
}

// Results below the smallest normal number become 0: a gate that weak adds nothing, and denormal operands would cost
// a hundred cycles each in every product that follows. NaN stays NaN (Highway's Exp would return 0). In float half
// the work of Highway's: (e^r - 1 - r) / r^2 by its interpolant at Chebyshev points, relative error 1e-8.
template <class T>
HWY_INLINE Vec<T> ExpOf(Vec<T> x) {
  const Tag<T> d;
  const Vec<T> low = hn::Set(d, static_cast<T>(sizeof(T) == 4 ? -87.33654 : -708.3964));
  const Vec<T> high = hn::Set(d, static_cast<T>(sizeof(T) == 4 ? 88.72283 : 709.7827));
  if constexpr (sizeof(T) == 4) {
    const auto [shifted, r] = Reduce(x);
    Vec<T> y = hn::MulAdd(r, hn::Set(d, 1.392625039e-3f), hn::Set(d, 8.363232948e-3f));
    y = hn::MulAdd(y, r, hn::Set(d, 4.166655242e-2f));
    y = hn::MulAdd(y, r, hn::Set(d, 1.666657627e-1f));
    y = hn::MulAdd(y, r, hn::Set(d, 0.5f));
    y = Rescale<false>(hn::Add(hn::MulAdd(y, hn::Mul(r, r), r), hn::Set(d, 1.0f)), shifted);
    y = hn::IfThenElse(hn::Gt(x, high), hn::Inf(d), hn::IfThenZeroElse(hn::Lt(x, low), y));
    return hn::IfThenElse(hn::Eq(x, x), y, x);
  } else {
    const Vec<T> y = hn::Exp(d, hn::Min(hn::Max(x, low), high));
    const Vec<T> bounded = hn::IfThenElse(hn::Gt(x, high), hn::Inf(d), hn::IfThenElseZero(hn::Ge(x, low), y));
    return hn::IfThenElse(hn::Eq(x, x), bounded, x);
  }
}

// e^x and e^-x together: cosh and sinh of the reduced argument are even and odd, so both cost little more than one.
template <class T>
HWY_INLINE void ExpBoth(Vec<T> x, Vec<T>* up, Vec<T>* down) {
  const Tag<T> d;
  if constexpr (sizeof(T) == 4) {
    const auto [shifted, r] = Reduce(x);
    const Vec<T> z = hn::Mul(r, r);
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
void Exp(Size n, const T* x, T* y) {
  ForVectors<T>(n, [&](Size i, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    StoreMaybe<part>(ExpOf<T>(LoadMaybe<part>(x + i, lanes)), y + i, lanes);
  });
}

template <class T>
void PrefetchRows(Size M, Size N, const T* X, Size ldx) {
  constexpr std::uintptr_t kLine = 64;
  const auto bytes = static_cast<std::uintptr_t>(N) * sizeof(T), step = static_cast<std::uintptr_t>(ldx) * sizeof(T);
  auto row = reinterpret_cast<std::uintptr_t>(X);
  for (Size i = 0; i < M; ++i, row += step)
    for (std::uintptr_t at = row; at < row + bytes; at += kLine) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
      __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 2);
#else
      hwy::Prefetch(reinterpret_cast<const T*>(at));
#endif
    }
}

template <class T>
void ScaleRows(Size M, Size N, const T* s, const T* X, Size ldx, T* Y, Size ldy) {
  for (Size i = 0; i < M; ++i) Scale(N, s[i], X + i * ldx, Y + i * ldy);
}
template <class T>
void RowDots(Size M, Size N, const T* X, Size ldx, const T* Y, Size ldy, T* out) {
  for (Size i = 0; i < M; ++i) out[i] = Dot(N, X + i * ldx, Y + i * ldy);
}

template <class T>
HWY_INLINE void Mul(Size n, const T* x, const T* y, T* z) {
  ForVectorsUnrolled<T>(n, [&](Size i, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    StoreMaybe<part>(hn::Mul(LoadMaybe<part>(x + i, lanes), LoadMaybe<part>(y + i, lanes)), z + i, lanes);
  });
}
template <class T>
void MulAdd(Size n, const T* x, const T* y, T* z) {
  ForVectorsUnrolled<T>(n, [&](Size i, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    const Vec<T> sum =
        hn::MulAdd(LoadMaybe<part>(x + i, lanes), LoadMaybe<part>(y + i, lanes), LoadMaybe<part>(z + i, lanes));
    StoreMaybe<part>(sum, z + i, lanes);
  });
}
template <class T>
void ScaleColumns(Size M, Size N, const T* s, const T* X, Size ldx, T* Y, Size ldy) {
  for (Size i = 0; i < M; ++i) Mul(N, s, X + i * ldx, Y + i * ldy);
}

template <class T>
void MulRows(Size M, Size N, const T* X, Size ldx, const T* Y, Size ldy, T* Z, Size ldz) {
  for (Size i = 0; i < M; ++i) Mul(N, X + i * ldx, Y + i * ldy, Z + i * ldz);
}
template <class T>
void MulAddRows(Size M, Size N, const T* X, Size ldx, const T* Y, Size ldy, T* Z, Size ldz) {
  for (Size i = 0; i < M; ++i) MulAdd(N, X + i * ldx, Y + i * ldy, Z + i * ldz);
}

template <class T>
Size GateReach(Size C, Size D, const T* g, Size ldg, T limit, T* up, T* down) {
  const Tag<T> d;
  const Vec<T> one = hn::Set(d, T(1)), most = hn::Set(d, limit);
  Vec<T> rows = hn::Set(d, static_cast<T>(C));
  ForVectors<T>(D, [&](Size j, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    Vec<T> sum = hn::Zero(d), within = hn::Zero(d);
    auto open = hn::Eq(sum, sum);
    StoreMaybe<part>(one, up + j, lanes);
    StoreMaybe<part>(one, down + j, lanes);
    for (Size i = 0; i < C; ++i) {
      sum = hn::Add(sum, LoadMaybe<part>(g + i * ldg + j, lanes));
      open = hn::And(open, hn::Le(hn::Abs(sum), most));
      within = hn::Add(within, hn::IfThenElseZero(open, one));
      Vec<T> grow, shrink;
      ExpBoth<T>(sum, &grow, &shrink);
      StoreMaybe<part>(grow, up + (i + 1) * D + j, lanes);
      StoreMaybe<part>(shrink, down + (i + 1) * D + j, lanes);
    }
    rows = hn::Min(rows, within);
  });
  return static_cast<Size>(hn::GetLane(hn::MinOfLanes(d, rows)));
}

// Down a panel of columns a row is the row above times its own gate; every 16th starts anew from the sums, so that at
// most 16 roundings pile up.
template <class T>
void GateMatrix(Size C, const T* g, T* sums, T* D, Size ldd) {
  constexpr Size kFresh = 16, L = Width<T>();
  HWY_ALIGN T factor[kFresh];
  const Tag<T> d;
  for (Size i0 = 0; i0 < C; i0 += kFresh) {
    const Size end = std::min(i0 + kFresh, C);
    Exp<T>(end - i0, g + i0, factor);
    for (Size j = 0; j < end; j += L) {
      // Columns of this panel that are below the diagonal before the block, then row by row one more.
      const Size open = std::min(L, std::max(Size{0}, i0 - j));
      Vec<T> row = hn::Zero(d);
      if (open > 0) row = ExpOf<T>(hn::Add(LoadPart(sums + j, open), hn::Set(d, g[i0])));
      for (Size i = std::max(i0, j); i < end; ++i) {
        if (i > i0) row = hn::Mul(row, hn::Set(d, factor[i - i0]));
        const Size n = i - j;
        if (n < L) {
          row = hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(n)), row, hn::Set(d, T(1)));
          StorePart(row, D + i * ldd + j, n + 1);
        } else {
          hn::StoreU(row, d, D + i * ldd + j);
        }
      }
    }
    // sums_j = g_{j+1} + .. up to the end of this block
    T block = 0;
    for (Size j = end; j-- > i0; block += g[j]) sums[j] = block;
    for (Size j = 0; j < i0; ++j) sums[j] += block;
  }
}

template <class T>
void GateLower(Size C, bool strict, Size shift, const T* s, const T* D, Size ldd, T* X, Size ldx) {
  for (Size i = 0; i < C; ++i) {
    T* const row = X + i * ldx;
    const Vec<T> si = hn::Set(Tag<T>(), s ? s[i] : T(1));
    const T* const gate = D && i >= shift ? D + (i - shift) * ldd : nullptr;
    const Size n = strict ? i : i + 1;
    if (gate || s) {
      ForVectors<T>(n, [&](Size j, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        Vec<T> y = LoadMaybe<part>(row + j, lanes);
        if (gate) y = hn::Mul(y, LoadMaybe<part>(gate + j, lanes));
        StoreMaybe<part>(hn::Mul(si, y), row + j, lanes);
      });
    }
    if (strict) row[i] = 0;
  }
}

// A vector of columns at a time, whose sums stay in a register: a masked store would be waited for by the load behind it.
template <class T>
void PairSums(Size C, const T* M, Size ldm, const T* last, T* out) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  for (Size i = 0; i < C; ++i) out[i] = 0;
  for (Size j = 0; j + 1 < C; j += L) {
    Vec<T> sum = LoadPart(last + j, std::min(L, C - j));
    for (Size i = C; --i > j;) {
      const Size n = std::min(L, i - j);
      sum = hn::Add(sum, LoadPart(M + i * ldm + j, n));
      const Vec<T> open = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(n)), sum);
      out[i] += hn::GetLane(hn::SumOfLanes(d, open));
    }
  }
}

// f(column, lanes, count of vectors, part) for panels of 4, then 2, then 1, then a part of a vector; in the baseline 1
// and, if a vector has any, parts.
template <int NV, bool kPart>
struct Columns {
  static constexpr int vectors = NV;
  static constexpr bool part = kPart;
};
template <class T, class F>
HWY_INLINE void ForPanels(Size V, const F& f) {
  constexpr Size L = Width<T>();
  Size j = 0;
  if constexpr (!kBaseline) {
    for (; j + 4 * L <= V; j += 4 * L) f(j, L, Columns<4, false>());
    if (j + 2 * L <= V) f(j, L, Columns<2, false>()), j += 2 * L;
  }
  for (; j + L <= V; j += L) f(j, L, Columns<1, false>());
  if constexpr (L > 1)
    if (j < V) f(j, V - j, Columns<1, true>());
}

// Of a panel of NV vectors that is a part the last has fewer lanes.
template <int NV, class T>
HWY_INLINE constexpr Size LanesOf(int v, Size lanes) {
  return v == NV - 1 ? lanes : Width<T>();
}

template <int NV, bool kPart, class T>
HWY_INLINE void ReadPanel(Size K, const T* x, const T* S, Size lds, Size lanes, Vec<T> (&y)[NV]) {
  const Tag<T> d;
  TTR_UNROLL for (int v = 0; v < NV; ++v) y[v] = hn::Zero(d);
  for (Size i = 0; i < K; ++i) {
    const Vec<T> xi = hn::Set(d, x[i]);
    TTR_UNROLL for (int v = 0; v < NV; ++v) y[v] =
        hn::MulAdd(xi, LoadMaybe<kPart>(S + i * lds + v * Width<T>(), LanesOf<NV, T>(v, lanes)), y[v]);
  }
}

// S <- a S + k u' on a panel; with kQuery also out = S' q, with kNext also next = S' k_next.
template <bool kQuery, bool kNext, int NV, bool kPart, class T>
HWY_INLINE void WritePanel(Size K, T a, const T* k, const Vec<T> (&u)[NV], const T* q, const T* k_next, T* S,
                           Size lds, Size lanes, Vec<T> (&out)[NV], Vec<T> (&next)[NV]) {
  const Tag<T> d;
  const Vec<T> va = hn::Set(d, a);
  TTR_UNROLL for (int v = 0; v < NV; ++v) out[v] = next[v] = hn::Zero(d);
  for (Size i = 0; i < K; ++i) {
    T* const row = S + i * lds;
    const Vec<T> ki = hn::Set(d, k[i]);
    TTR_UNROLL for (int v = 0; v < NV; ++v) {
      T* const at = row + v * Width<T>();
      const Size own = LanesOf<NV, T>(v, lanes);
      const Vec<T> s = hn::MulAdd(ki, u[v], hn::Mul(va, LoadMaybe<kPart>(at, own)));
      StoreMaybe<kPart>(s, at, own);
      if constexpr (kQuery) out[v] = hn::MulAdd(hn::Set(d, q[i]), s, out[v]);
      if constexpr (kNext) next[v] = hn::MulAdd(hn::Set(d, k_next[i]), s, next[v]);
    }
  }
}

template <class T>
void VecMat(Size K, Size V, const T* x, const T* S, Size lds, T* y) {
  ForPanels<T>(V, [&](Size j, Size lanes, auto c) HWY_ATTR {
    using P = decltype(c);
    Vec<T> sum[P::vectors];
    ReadPanel<P::vectors, P::part>(K, x, S + j, lds, lanes, sum);
    TTR_UNROLL for (int v = 0; v < P::vectors; ++v) StoreMaybe<P::part>(sum[v], y + j + v * Width<T>(), lanes);
  });
}

template <class T>
void MatVec(Size K, Size V, const T* S, Size lds, const T* x, T* y) {
  for (Size i = 0; i < K; ++i) y[i] = Dot(V, S + i * lds, x);
}

template <class T>
void RankOne(Size K, Size V, T a, const T* k, const T* u, T* S, Size lds) {
  ForPanels<T>(V, [&](Size j, Size lanes, auto c) HWY_ATTR {
    using P = decltype(c);
    Vec<T> vu[P::vectors], unused[P::vectors];
    TTR_UNROLL for (int v = 0; v < P::vectors; ++v) vu[v] = LoadMaybe<P::part>(u + j + v * Width<T>(), lanes);
    WritePanel<false, false, P::vectors, P::part, T>(K, a, k, vu, nullptr, nullptr, S + j, lds, lanes, unused,
                                                     unused);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
