// Tokens through a state one by one, compiled once per instruction set (included by state_table-inl.h).
//
// A sweep keeps a panel of up to 4 vectors of columns in registers and walks down the K rows, so a state is fetched
// once per token. Columns of a state evolve independently: many tokens pass through one panel while it is in L1. The
// tail of a row is a vector with fewer lanes and goes through the same operations, so an element's bits do not
// depend on which side of the tail it falls.
#if defined(TTR_LINEAR_STATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LINEAR_STATE_INL_H_
#undef TTR_LINEAR_STATE_INL_H_
#else
#define TTR_LINEAR_STATE_INL_H_
#endif

#include <hwy/cache_control.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "families/linear/state_simd.h"
#include "simd/half-inl.h"
#include "simd/panels-inl.h"
#include "simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

template <class T>
void Stream(Size n, const T* x, T* y) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  constexpr std::uintptr_t kLine = 64;
  Size i = 0;
  if (reinterpret_cast<std::uintptr_t>(y) % kLine == 0) {
    for (; i + L <= n; i += L) hn::Stream(hn::LoadU(d, x + i), d, y + i);
  }
  if (i < n) std::memcpy(y + i, x + i, static_cast<size_t>(n - i) * sizeof(T));
}

template <bool kFar, class T>
HWY_INLINE void WriteRow(Size N, T a, const T* x, const T* f, const T* x2, const T* f2, T* y) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  const Vec<T> factor = hn::Set(d, a);
  const auto at = [&](Size j, Size lanes, auto part) HWY_ATTR {
    constexpr bool kPart = decltype(part)::value;
    Vec<T> to = LoadMaybe<kPart>(x + j, lanes);
    if (f) to = hn::Mul(to, LoadMaybe<kPart>(f + j, lanes));
    if (x2 && f2) to = hn::MulAdd(LoadMaybe<kPart>(x2 + j, lanes), LoadMaybe<kPart>(f2 + j, lanes), to);
    else if (x2) to = hn::MulAdd(factor, to, LoadMaybe<kPart>(x2 + j, lanes));  // never left to the compiler to fuse
    else to = hn::Mul(factor, to);
    if constexpr (kFar && !kPart) hn::Stream(to, d, y + j);
    else StoreMaybe<kPart>(to, y + j, lanes);
  };
  Size j = 0;
  for (; j + L <= N; j += L) at(j, L, std::false_type());
  if constexpr (L > 1)
    if (j < N) at(j, N - j, std::true_type());
}
template <class T>
void WriteRows(Size M, Size N, const T* a, const T* X, const T* F, const T* X2, const T* F2, T* Y, Size ldy,
               bool far) {
  constexpr Size kLine = 64 / sizeof(T);
  if (reinterpret_cast<std::uintptr_t>(Y) % 64 != 0 || ldy % kLine != 0 || N % kLine != 0) far = false;
  const auto from = [&](const T* x, Size i) { return x ? x + i * N : nullptr; };
  for (Size i = 0; i < M; ++i) {
    const T factor = a ? a[i] : T(1);
    if (far) WriteRow<true>(N, factor, from(X, i), from(F, i), from(X2, i), from(F2, i), Y + i * ldy);
    else WriteRow<false>(N, factor, from(X, i), from(F, i), from(X2, i), from(F2, i), Y + i * ldy);
  }
}
inline void Flush() { hwy::FlushStream(); }

template <class T>
void ColumnDots(Size M, Size N, const T* X, Size ldx, const T* Y, Size ldy, T* z) {
  constexpr Size L = Width<T>();
  const auto columns = [&](Size j, Size lanes, auto part) HWY_ATTR {
    constexpr bool kPart = decltype(part)::value;
    Vec<T> sum = LoadMaybe<kPart>(z + j, lanes);
    for (Size i = 0; i < M; ++i)
      sum = hn::MulAdd(LoadMaybe<kPart>(X + i * ldx + j, lanes), LoadMaybe<kPart>(Y + i * ldy + j, lanes), sum);
    StoreMaybe<kPart>(sum, z + j, lanes);
  };
  Size j = 0;
  for (; j + L <= N; j += L) columns(j, L, std::false_type());
  if constexpr (L > 1)
    if (j < N) columns(j, N - j, std::true_type());
}

// A vector of the values of a row, number `at` of it and those behind, and one of its answers. Rows of a half type are whole
// vectors: of a part there are all lanes or none.
template <bool kPart, class T>
HWY_INLINE Vec<T> LoadValue(Halves type, const T* row, Size at, Size lanes) {
  if constexpr (sizeof(T) == 4)
    if (type != Halves::none) {
      if (kPart && lanes == 0) return hn::Zero(Tag<T>());
      const std::uint16_t* const halves = reinterpret_cast<const std::uint16_t*>(row) + at;
      return type == Halves::bf16 ? RowsOfBf16::load(halves) : RowsOfF16::load(halves);
    }
  return LoadMaybe<kPart>(row + at, lanes);
}
template <bool kPart, class T>
HWY_INLINE void StoreValue(Halves type, Vec<T> x, T* row, Size at, Size lanes) {
  if constexpr (sizeof(T) == 4)
    if (type != Halves::none) {
      if (kPart && lanes == 0) return;
      std::uint16_t* const halves = reinterpret_cast<std::uint16_t*>(row) + at;
      return type == Halves::bf16 ? RowsOfBf16::store(x, halves) : RowsOfF16::store(x, halves);
    }
  StoreMaybe<kPart>(x, row + at, lanes);
}
// Row t of a matrix of values or answers.
template <class T>
HWY_INLINE T* RowOfValues(Halves type, T* data, Size skip) {
  using Half = std::conditional_t<std::is_const_v<T>, const std::uint16_t, std::uint16_t>;
  return type == Halves::none ? data + skip : reinterpret_cast<T*>(reinterpret_cast<Half*>(data) + skip);
}

// As many rows of both states as a vector has numbers are near while all is done with them.
template <class T>
void TurnStates(Size K, Size V, const T* late, const T* S, const T* dS, T* scaled, T* St, T* dSt, T* dots) {
  Size i = 0;
#if HWY_TARGET != HWY_SCALAR
  const Tag<T> d;
  constexpr Size L = Width<T>(), W = 16 / sizeof(T);
  for (; V % W == 0 && i + L <= K; i += L) {
    const T *const from = S + i * V, *const d_from = (late ? scaled : dS) + i * V;
    if (late) ScaleRows<T>(L, V, late + i, dS + i * V, V, scaled + i * V, V);
    Vec<T> sum[W];
    TTR_UNROLL for (Size w = 0; w < W; ++w) sum[w] = hn::Zero(d);
    for (Size j = 0; j < V; j += W) {
      Vec<T> a[W], b[W];
      LoadTurned(from + j, V, a);
      LoadTurned(d_from + j, V, b);
      TTR_UNROLL for (Size w = 0; w < W; ++w) {
        hn::StoreU(a[w], d, St + (j + w) * K + i);
        hn::StoreU(b[w], d, dSt + (j + w) * K + i);
        sum[w] = hn::MulAdd(a[w], b[w], sum[w]);
      }
    }
    TTR_UNROLL for (Size w = 1; w < W; ++w) sum[0] = hn::Add(sum[0], sum[w]);
    hn::StoreU(sum[0], d, dots + i);
  }
#endif
  if (i == K) return;
  const T* const d_from = (late ? scaled : dS) + i * V;
  if (late) ScaleRows<T>(K - i, V, late + i, dS + i * V, V, scaled + i * V, V);
  Transpose<T>(K - i, V, S + i * V, V, St + i, K);
  Transpose<T>(K - i, V, d_from, V, dSt + i, K);
  RowDots<T>(K - i, V, S + i * V, V, d_from, V, dots + i);
}

// As ForPanels; with masks for loads and stores 4 and 2 vectors may be a part as well. A panel of one vector would wait
// for its own sums. The tail is not in the panel that a row begins with: the vector of a masked store reaches into the next
// row, and a load from there would wait until the store is in the cache (V = 56: 2.7 times the time of 64).
template <class T, int kWidest = 4, class F>
HWY_INLINE void ForColumns(Size V, const F& f) {
#if HWY_CAP_GE256
  constexpr Size L = Width<T>();
  Size j = 0;
  if constexpr (kWidest > 4)
    for (; j + kWidest * L <= V; j += kWidest * L) f(j, L, Columns<kWidest, false>());
  for (; j + 4 * L <= V; j += 4 * L) f(j, L, Columns<4, false>());
  if (j > 0 && j + 3 * L < V) return f(j, V - j - 3 * L, Columns<4, true>());
  if (j + 2 * L <= V) f(j, L, Columns<2, false>()), j += 2 * L;
  if (j > 0 && j + L < V) return f(j, V - j - L, Columns<2, true>());
  if (j + L <= V) f(j, L, Columns<1, false>()), j += L;
  if (j < V) f(j, V - j, Columns<1, true>());
#else
  ForPanels<T>(V, f);
#endif
}

template <class T>
struct Sweeping {
  Size n, K;
  const T *a, *b, *beta;
  T scale;
  const T* k;
  Size ldk;
  const T* v;
  Size ldv;
  const T* q;
  Size ldq;
  T* o;
  Size ldo;
  const T* direct = nullptr;  // [n]: o_t += direct_t v_t
  Halves values = Halves::none, answers = Halves::none;
};

template <bool kReads, bool kQuery, int NV, bool kPart, class T>
HWY_NOINLINE void SweepPanel(const Sweeping<T>& x, Size j, Size lanes, T* S, Size lds) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  Vec<T> u[NV], out[NV], read[NV];
  if constexpr (kReads) ReadPanel<NV, kPart>(x.K, x.k, S, lds, lanes, read);
  for (Size t = 0; t < x.n; ++t) {
    // Rows of one head lie far apart in [B, T, H, D]; no hardware prefetcher follows them.
    if (const Size ahead = t + 4; ahead < x.n) {
      PrefetchRow(x.k + ahead * x.ldk, x.K);
      PrefetchRow(x.v + ahead * x.ldv + j, NV * L);
      if constexpr (kQuery) {
        PrefetchRow(x.q + ahead * x.ldq, x.K);
        PrefetchRow(x.o + ahead * x.ldo + j, NV * L);
      }
    }
    const Vec<T> beta = hn::Set(d, x.beta[t]);
    TTR_UNROLL for (int v = 0; v < NV; ++v) {
      u[v] = LoadValue<kPart>(x.values, x.v, t * x.ldv + j + v * L, LanesOf<NV, T>(v, lanes));
      if constexpr (kReads) u[v] = hn::NegMulAdd(hn::Set(d, x.b[t]), read[v], u[v]);
      u[v] = hn::Mul(beta, u[v]);
    }
    const T* const k = x.k + t * x.ldk;
    const T* const q = kQuery ? x.q + t * x.ldq : nullptr;
    if (t + 1 < x.n)
      WritePanel<kQuery, kReads, NV, kPart, T>(x.K, x.a[t], k, u, q, k + x.ldk, S, lds, lanes, out, read);
    else WritePanel<kQuery, false, NV, kPart, T>(x.K, x.a[t], k, u, q, nullptr, S, lds, lanes, out, read);
    if constexpr (kQuery) {
      const Vec<T> scale = hn::Set(d, x.scale), direct = hn::Set(d, x.direct ? x.direct[t] : T(0));
      TTR_UNROLL for (int v = 0; v < NV; ++v) {
        const Size own = LanesOf<NV, T>(v, lanes);
        Vec<T> answer = hn::Mul(scale, out[v]);
        if (x.direct)
          answer = hn::MulAdd(direct, LoadValue<kPart>(x.values, x.v, t * x.ldv + j + v * L, own), answer);
        StoreValue<kPart>(x.answers, answer, x.o, t * x.ldo + j + v * L, own);
      }
    }
  }
}

// f(columns of S, leading dimension, first column, lanes, panel type) panel by panel; with scratch and enough tokens
// on a copy that lies together.
template <class T, class F>
HWY_INLINE void ForMovedPanels(Size n, Size K, Size V, T* S, Size lds, T* panel, const F& f) {
  constexpr Size kWorthMoving = 8;  // tokens
  ForColumns<T>(V, [&](Size j, Size lanes, auto c) HWY_ATTR {
    using P = decltype(c);
    const bool move = panel && n >= kWorthMoving;
    constexpr Size ld = P::vectors * Width<T>();  // whole vectors: no masked store reaches into the next row
    const size_t bytes = static_cast<size_t>(ld - Width<T>() + lanes) * sizeof(T);
    T* const at = move ? panel : S + j;
    if (move)
      for (Size i = 0; i < K; ++i) std::memcpy(panel + i * ld, S + i * lds + j, bytes);
    f(at, move ? ld : lds, j, lanes, c);
    if (move)
      for (Size i = 0; i < K; ++i) std::memcpy(S + i * lds + j, panel + i * ld, bytes);
  });
}

template <class T>
void Sweep(Size n, Size K, Size V, const T* a, const T* b, const T* beta, T scale, const T* k, Size ldk, const T* v,
           Size ldv, const T* q, Size ldq, T* S, Size lds, T* o, Size ldo, T* panel) {
  if (n == 0) return;
  const Sweeping<T> x{n, K, a, b, beta, scale, k, ldk, v, ldv, q, ldq, o, ldo};
  ForMovedPanels(n, K, V, S, lds, panel, [&](T* at, Size ld, Size j, Size lanes, auto c) HWY_ATTR {
    using P = decltype(c);
    if (b && q) SweepPanel<true, true, P::vectors, P::part>(x, j, lanes, at, ld);
    else if (b) SweepPanel<true, false, P::vectors, P::part>(x, j, lanes, at, ld);
    else if (q) SweepPanel<false, true, P::vectors, P::part>(x, j, lanes, at, ld);
    else SweepPanel<false, false, P::vectors, P::part>(x, j, lanes, at, ld);
  });
}

enum class Erase { none, same, other };    // the key that takes back what was read: none, the write key, its own
enum class Query { none, after, before };  // the write

template <Erase kErase, Query kQuery, bool kColumns, int NV, bool kPart, class T>
HWY_NOINLINE void GatedPanel(const typename StateSimd<T>::Tokens& x, Size j, Size lanes, T* S, Size lds, T* o,
                             Size ldo) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  Vec<T> u[NV], read[NV], next[NV], out[NV], column[NV];
  if constexpr (kErase != Erase::none) ReadPanel<NV, kPart>(x.K, x.x, S, lds, lanes, next);
  for (Size t = 0; t < x.n; ++t) {
    if (const Size ahead = t + 4; ahead < x.n) {
      PrefetchRow(x.rows + ahead * x.ld_rows, x.K);
      PrefetchRow(x.k + ahead * x.ldk, x.K);
      PrefetchRow(x.v + ahead * x.ldv + j, NV * L);
      if constexpr (kQuery != Query::none) PrefetchRow(x.q + ahead * x.ldq, x.K);
    }
    const Vec<T> beta = hn::Set(d, x.beta ? x.beta[t] : T(1));
    TTR_UNROLL for (int v = 0; v < NV; ++v) {
      const Size own = LanesOf<NV, T>(v, lanes);
      u[v] = LoadValue<kPart>(x.values, x.v, t * x.ldv + j + v * L, own);
      if constexpr (kErase == Erase::same) u[v] = hn::Sub(u[v], next[v]);
      if (x.beta) u[v] = hn::Mul(beta, u[v]);
      if constexpr (kErase != Erase::none) read[v] = next[v];
      if constexpr (kColumns) column[v] = LoadMaybe<kPart>(x.columns + t * x.ld_columns + j + v * L, own);
      out[v] = next[v] = hn::Zero(d);
    }
    const T *const rows = x.rows + t * x.ld_rows, *const k = x.k + t * x.ldk;
    const T* const q = kQuery != Query::none ? x.q + t * x.ldq : nullptr;
    const T* const y = kErase == Erase::other ? x.y + t * x.ldy : nullptr;
    // The last token's read of itself is not used.
    const T* const ahead = kErase != Erase::none ? x.x + (t + 1 < x.n ? t + 1 : t) * x.ldx : nullptr;
    for (Size i = 0; i < x.K; ++i) {
      // All of them before the first store, behind which the compiler would read them again.
      const Vec<T> row = hn::Set(d, rows[i]), ki = hn::Set(d, k[i]);
      const Vec<T> qi = hn::Set(d, kQuery != Query::none ? q[i] : T(0)),
                   yi = hn::Set(d, kErase == Erase::other ? y[i] : T(0)),
                   xi = hn::Set(d, kErase != Erase::none ? ahead[i] : T(0));
      TTR_UNROLL for (int v = 0; v < NV; ++v) {
        T* const at = S + i * lds + v * L;
        const Size own = LanesOf<NV, T>(v, lanes);
        Vec<T> s = LoadMaybe<kPart>(at, own);
        if constexpr (kQuery == Query::before) out[v] = hn::MulAdd(qi, s, out[v]);
        s = hn::Mul(row, s);
        if constexpr (kColumns) s = hn::Mul(column[v], s);
        s = hn::MulAdd(ki, u[v], s);
        if constexpr (kErase == Erase::other) s = hn::MulAdd(yi, read[v], s);
        StoreMaybe<kPart>(s, at, own);
        if constexpr (kQuery == Query::after) out[v] = hn::MulAdd(qi, s, out[v]);
        if constexpr (kErase != Erase::none) next[v] = hn::MulAdd(xi, s, next[v]);
      }
    }
    if constexpr (kQuery != Query::none) {
      const Vec<T> scale = hn::Set(d, x.scale), direct = hn::Set(d, x.direct ? x.direct[t] : T(0));
      TTR_UNROLL for (int v = 0; v < NV; ++v) {
        const Size own = LanesOf<NV, T>(v, lanes);
        Vec<T> answer = hn::Mul(scale, out[v]);
        if (x.direct)
          answer = hn::MulAdd(direct, LoadValue<kPart>(x.values, x.v, t * x.ldv + j + v * L, own), answer);
        StoreValue<kPart>(x.answers, answer, o, t * ldo + j + v * L, own);
      }
    }
  }
}

// A panel by a rule without a read.
template <int NV, bool kPart, class T>
HWY_INLINE void PlainPanel(const typename StateSimd<T>::Tokens& x, Size j, Size lanes, T* S, Size lds, T* o,
                           Size ldo) {
  if (x.columns) {
    if (!x.q) GatedPanel<Erase::none, Query::none, true, NV, kPart, T>(x, j, lanes, S, lds, o, ldo);
    else if (x.before) GatedPanel<Erase::none, Query::before, true, NV, kPart, T>(x, j, lanes, S, lds, o, ldo);
    else GatedPanel<Erase::none, Query::after, true, NV, kPart, T>(x, j, lanes, S, lds, o, ldo);
  } else {
    if (!x.q) GatedPanel<Erase::none, Query::none, false, NV, kPart, T>(x, j, lanes, S, lds, o, ldo);
    else if (x.before) GatedPanel<Erase::none, Query::before, false, NV, kPart, T>(x, j, lanes, S, lds, o, ldo);
    else GatedPanel<Erase::none, Query::after, false, NV, kPart, T>(x, j, lanes, S, lds, o, ldo);
  }
}

template <class T>
void GatedSweep(const typename StateSimd<T>::Tokens& x, T* S, Size lds, T* o, Size ldo, T* panel) {
  if (x.n == 0) return;
  ForMovedPanels(x.n, x.K, x.V, S, lds, panel, [&](T* at, Size ld, Size j, Size lanes, auto c) HWY_ATTR {
    using P = decltype(c);
    constexpr int NV = P::vectors;
    constexpr bool part = P::part;
    if (x.y) {
      if (x.q) GatedPanel<Erase::other, Query::after, false, NV, part, T>(x, j, lanes, at, ld, o, ldo);
      else GatedPanel<Erase::other, Query::none, false, NV, part, T>(x, j, lanes, at, ld, o, ldo);
    } else if (x.x) {
      if (x.q) GatedPanel<Erase::same, Query::after, false, NV, part, T>(x, j, lanes, at, ld, o, ldo);
      else GatedPanel<Erase::same, Query::none, false, NV, part, T>(x, j, lanes, at, ld, o, ldo);
    } else {
      PlainPanel<NV, part, T>(x, j, lanes, at, ld, o, ldo);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
