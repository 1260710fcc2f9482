// Vector primitives and sweeps over a state, compiled once per instruction set (included by simd_f32.cc, simd_f64.cc).
//
// A sweep keeps up to 4 vectors of columns in registers and walks down the K rows, so a state is fetched once per token.
// The tail of a row is one vector with fewer lanes and goes through the same operations, so an element's bits do not
// depend on which side of the tail it falls.
#if defined(TTR_SIMD_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_VECTORS_INL_H_
#undef TTR_SIMD_VECTORS_INL_H_
#else
#define TTR_SIMD_VECTORS_INL_H_
#endif

#include <limits>

#include "hwy/contrib/math/math-inl.h"
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
  if (i < n) f(i, n - i, Tail());
}

template <class T>
void Axpy(Size n, T a, const T* x, T* y) {
  const Vec<T> va = hn::Set(Tag<T>(), a);
  ForVectors<T>(n, [&](Size i, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    StoreMaybe<part>(hn::MulAdd(va, LoadMaybe<part>(x + i, lanes), LoadMaybe<part>(y + i, lanes)), y + i, lanes);
  });
}

template <class T>
void Scale(Size n, T a, const T* x, T* y) {
  const Vec<T> va = hn::Set(Tag<T>(), a);
  ForVectors<T>(n, [&](Size i, Size lanes, auto p) HWY_ATTR {
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

// Results below the smallest normal number become 0: a gate that weak adds nothing, and denormal operands would cost a
// hundred cycles each in every product that follows. NaN stays NaN (Highway's Exp would return 0).
template <class T>
HWY_INLINE Vec<T> ExpOf(Vec<T> x) {
  const Tag<T> d;
  const Vec<T> low = hn::Set(d, static_cast<T>(sizeof(T) == 4 ? -87.33654 : -708.3964));
  const Vec<T> high = hn::Set(d, static_cast<T>(sizeof(T) == 4 ? 88.72283 : 709.7827));
  const Vec<T> y = hn::Exp(d, hn::Min(hn::Max(x, low), high));
  const Vec<T> bounded = hn::IfThenElse(hn::Gt(x, high), hn::Inf(d), hn::IfThenElseZero(hn::Ge(x, low), y));
  return hn::IfThenElse(hn::Eq(x, x), bounded, x);
}

template <class T>
void Exp(Size n, const T* x, T* y) {
  ForVectors<T>(n, [&](Size i, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    StoreMaybe<part>(ExpOf<T>(LoadMaybe<part>(x + i, lanes)), y + i, lanes);
  });
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
void GateMatrix(Size C, const T* g, T* sums, T* D, Size ldd) {
  for (Size i = 0; i < C; ++i) {
    const Vec<T> gi = hn::Set(Tag<T>(), g[i]);
    T* const row = D + i * ldd;
    ForVectors<T>(i, [&](Size j, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      const Vec<T> sum = hn::Add(LoadMaybe<part>(sums + j, lanes), gi);
      StoreMaybe<part>(sum, sums + j, lanes);
      StoreMaybe<part>(ExpOf<T>(sum), row + j, lanes);
    });
    sums[i] = 0;
    row[i] = 1;
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

// f(column, lanes, count of vectors, part) for panels of 4, then 1, then a part of a vector.
template <int NV, bool kPart>
struct Columns {
  static constexpr int vectors = NV;
  static constexpr bool part = kPart;
};
template <class T, class F>
HWY_INLINE void ForPanels(Size V, const F& f) {
  constexpr Size L = Width<T>();
  Size j = 0;
  for (; j + 4 * L <= V; j += 4 * L) f(j, L, Columns<4, false>());
  for (; j + L <= V; j += L) f(j, L, Columns<1, false>());
  if (j < V) f(j, V - j, Columns<1, true>());
}

template <int NV, bool kPart, class T>
HWY_INLINE void ReadPanel(Size K, const T* x, const T* S, Size lds, Size lanes, Vec<T> (&y)[NV]) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  Vec<T> odd[NV];
  TTR_UNROLL for (int v = 0; v < NV; ++v) y[v] = odd[v] = hn::Zero(d);
  Size i = 0;
  for (; i + 2 <= K; i += 2) {
    const Vec<T> x0 = hn::Set(d, x[i]), x1 = hn::Set(d, x[i + 1]);
    const T* const row = S + i * lds;
    TTR_UNROLL for (int v = 0; v < NV; ++v) {
      y[v] = hn::MulAdd(x0, LoadMaybe<kPart>(row + v * L, lanes), y[v]);
      odd[v] = hn::MulAdd(x1, LoadMaybe<kPart>(row + lds + v * L, lanes), odd[v]);
    }
  }
  if (i < K) {
    const Vec<T> x0 = hn::Set(d, x[i]);
    TTR_UNROLL for (int v = 0; v < NV; ++v)
      y[v] = hn::MulAdd(x0, LoadMaybe<kPart>(S + i * lds + v * L, lanes), y[v]);
  }
  TTR_UNROLL for (int v = 0; v < NV; ++v) y[v] = hn::Add(y[v], odd[v]);
}

template <bool kQuery, int NV, bool kPart, class T>
HWY_INLINE void WritePanel(Size K, T a, const T* k, const Vec<T> (&u)[NV], const T* q, T* S, Size lds, Size lanes, T* o) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  const Vec<T> va = hn::Set(d, a);
  Vec<T> out[NV];
  TTR_UNROLL for (int v = 0; v < NV; ++v) out[v] = hn::Zero(d);
  for (Size i = 0; i < K; ++i) {
    T* const row = S + i * lds;
    const Vec<T> ki = hn::Set(d, k[i]);
    TTR_UNROLL for (int v = 0; v < NV; ++v) {
      const Vec<T> s = hn::MulAdd(ki, u[v], hn::Mul(va, LoadMaybe<kPart>(row + v * L, lanes)));
      StoreMaybe<kPart>(s, row + v * L, lanes);
      if constexpr (kQuery) out[v] = hn::MulAdd(hn::Set(d, q[i]), s, out[v]);
    }
  }
  if constexpr (kQuery) {
    TTR_UNROLL for (int v = 0; v < NV; ++v) StoreMaybe<kPart>(out[v], o + v * L, lanes);
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
    Vec<T> vu[P::vectors];
    TTR_UNROLL for (int v = 0; v < P::vectors; ++v) vu[v] = LoadMaybe<P::part>(u + j + v * Width<T>(), lanes);
    WritePanel<false, P::vectors, P::part, T>(K, a, k, vu, nullptr, S + j, lds, lanes, nullptr);
  });
}

template <class T>
void Step(Size K, Size V, T a, const T* k, const T* u, const T* q, T* S, Size lds, T* o) {
  ForPanels<T>(V, [&](Size j, Size lanes, auto c) HWY_ATTR {
    using P = decltype(c);
    Vec<T> vu[P::vectors];
    TTR_UNROLL for (int v = 0; v < P::vectors; ++v) vu[v] = LoadMaybe<P::part>(u + j + v * Width<T>(), lanes);
    WritePanel<true, P::vectors, P::part, T>(K, a, k, vu, q, S + j, lds, lanes, o + j);
  });
}

template <class T>
void StepDelta(Size K, Size V, T a, T b, T beta, const T* k, const T* v, const T* q, T* S, Size lds, T* u, T* o) {
  const Tag<T> d;
  const Vec<T> vb = hn::Set(d, b), vbeta = hn::Set(d, beta);
  ForPanels<T>(V, [&](Size j, Size lanes, auto c) HWY_ATTR {
    using P = decltype(c);
    Vec<T> vu[P::vectors];
    ReadPanel<P::vectors, P::part>(K, k, S + j, lds, lanes, vu);
    TTR_UNROLL for (int n = 0; n < P::vectors; ++n) {
      const Size at = j + n * Width<T>();
      vu[n] = hn::Mul(vbeta, hn::NegMulAdd(vb, vu[n], LoadMaybe<P::part>(v + at, lanes)));
      StoreMaybe<P::part>(vu[n], u + at, lanes);
    }
    WritePanel<true, P::vectors, P::part, T>(K, a, k, vu, q, S + j, lds, lanes, o + j);
  });
}

template <class T>
const Simd<T>* Table() {
  static const Simd<T> table = {
      .name = hwy::TargetName(HWY_TARGET),
      .lanes = static_cast<int>(hn::MaxLanes(Tag<T>())),
      .gemm_nn = GemmNN<T>,
      .gemm_tn = GemmTN<T>,
      .gemm_nt = GemmNT<T>,
      .gemm_lower = GemmLower<T>,
      .trmm_nn = TrmmNN<T>,
      .trmm_tn = TrmmTN<T>,
      .solve_nn = SolveNN<T>,
      .solve_tn = SolveTN<T>,
      .transpose = Transpose<T>,
      .scale_rows = ScaleRows<T>,
      .row_dots = RowDots<T>,
      .gate_matrix = GateMatrix<T>,
      .gate_lower = GateLower<T>,
      .axpy = Axpy<T>,
      .scale = Scale<T>,
      .dot = DotOf<T>,
      .exp = Exp<T>,
      .vec_mat = VecMat<T>,
      .mat_vec = MatVec<T>,
      .rank_one = RankOne<T>,
      .step = Step<T>,
      .step_delta = StepDelta<T>,
  };
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
