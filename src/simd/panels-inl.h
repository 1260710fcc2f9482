// Passes over panels of a chunk: transposes of whole vectors, the gradient of gates.
// Compiled once per instruction set.
//
// A transpose loads 128-bit blocks of as many rows as a vector has numbers, puts blocks of rows a block's width apart
// side by side and interleaves within blocks, so that every store is a whole vector.
#if defined(TTR_SIMD_PANELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_PANELS_INL_H_
#undef TTR_SIMD_PANELS_INL_H_
#else
#define TTR_SIMD_PANELS_INL_H_
#endif

#include "simd/lanes-inl.h"
#include "simd/simd.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

// 128-bit blocks are W x W tiles, W = 4 floats or 2 doubles: W rows where d is one block wide; 2 W rows where it is
// two, the second W in the upper blocks.
#if HWY_TARGET != HWY_SCALAR
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void TransposeTile(D d, const T* a, Size lda, T* b, Size ldb) {
  constexpr Size W = 16 / sizeof(T);
  const hn::FixedTag<T, W> block;
  const auto load = [&](Size r) HWY_ATTR {
    if constexpr (hn::MaxLanes(D()) == W) return hn::LoadU(d, a + r * lda);
    else return hn::Combine(d, hn::LoadU(block, a + (r + W) * lda), hn::LoadU(block, a + r * lda));
  };
  const auto r0 = load(0), r1 = load(1);
  if constexpr (W == 4) {
    const hn::RepartitionToWide<D> pair;
    const auto r2 = load(2), r3 = load(3);
    const auto l01 = hn::BitCast(pair, hn::InterleaveLower(d, r0, r1));
    const auto l23 = hn::BitCast(pair, hn::InterleaveLower(d, r2, r3));
    const auto u01 = hn::BitCast(pair, hn::InterleaveUpper(d, r0, r1));
    const auto u23 = hn::BitCast(pair, hn::InterleaveUpper(d, r2, r3));
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pair, l01, l23)), d, b);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pair, l01, l23)), d, b + ldb);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pair, u01, u23)), d, b + 2 * ldb);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pair, u01, u23)), d, b + 3 * ldb);
  } else {
    hn::StoreU(hn::InterleaveLower(d, r0, r1), d, b);
    hn::StoreU(hn::InterleaveUpper(d, r0, r1), d, b + ldb);
  }
}
template <class D, class T = hn::TFromD<D>>
HWY_INLINE Size TransposeRows(D d, Size i, Size M, Size N, const T* A, Size lda, T* B, Size ldb) {
  constexpr Size W = 16 / sizeof(T), R = static_cast<Size>(hn::MaxLanes(D()));
  for (; i + R <= M; i += R) {
    Size j = 0;
    for (; j + W <= N; j += W) TransposeTile(d, A + i * lda + j, lda, B + j * ldb + i, ldb);
    for (; j < N; ++j)
      for (Size r = 0; r < R; ++r) B[j * ldb + i + r] = A[(i + r) * lda + j];
  }
  return i;
}
#endif

template <class T>
void Transpose(Size M, Size N, const T* A, Size lda, T* B, Size ldb) {
  Size i = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (Width<T>() * sizeof(T) >= 32)
    i = TransposeRows(hn::FixedTag<T, 32 / sizeof(T)>(), i, M, N, A, lda, B, ldb);
  i = TransposeRows(hn::FixedTag<T, 16 / sizeof(T)>(), i, M, N, A, lda, B, ldb);
#endif
  for (; i < M; ++i)
    for (Size j = 0; j < N; ++j) B[j * ldb + i] = A[i * lda + j];
}

#if HWY_TARGET != HWY_SCALAR
// The blocks at p, p + step, p + 2 step, .. as one vector.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, const T* p, Size step) {
  if constexpr (hn::MaxLanes(D()) * sizeof(T) <= 16) {
    return hn::LoadU(d, p);
  } else {
    const hn::Half<D> half;
    constexpr Size kHalf = static_cast<Size>(hn::MaxLanes(D()) * sizeof(T) / 32);
    return hn::Combine(d, LoadBlocks(half, p + kHalf * step, step), LoadBlocks(half, p, step));
  }
}
#endif

/// W columns from `a` on of as many rows as a vector has numbers: column w in t[w].
#if HWY_TARGET != HWY_SCALAR
template <class T>
HWY_INLINE void LoadTurned(const T* a, Size lda, Vec<T> (&t)[16 / sizeof(T)]) {
  const Tag<T> d;
  constexpr Size W = 16 / sizeof(T);
  const Vec<T> r0 = LoadBlocks(d, a, W * lda), r1 = LoadBlocks(d, a + lda, W * lda);
  if constexpr (W == 4) {
    const hn::Repartition<double, Tag<T>> dd;
    const Vec<T> r2 = LoadBlocks(d, a + 2 * lda, W * lda), r3 = LoadBlocks(d, a + 3 * lda, W * lda);
    const auto l01 = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1));
    const auto l23 = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3));
    const auto u01 = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1));
    const auto u23 = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
    t[0] = hn::BitCast(d, hn::InterleaveLower(dd, l01, l23));
    t[1] = hn::BitCast(d, hn::InterleaveUpper(dd, l01, l23));
    t[2] = hn::BitCast(d, hn::InterleaveLower(dd, u01, u23));
    t[3] = hn::BitCast(d, hn::InterleaveUpper(dd, u01, u23));
  } else {
    t[0] = hn::InterleaveLower(d, r0, r1), t[1] = hn::InterleaveUpper(d, r0, r1);
  }
}
#endif

/// B [N,M] = A' for A [M,N]
template <class T>
void TransposeVectors(Size M, Size N, const T* A, Size lda, T* B, Size ldb) {
#if HWY_TARGET == HWY_SCALAR
  Transpose<T>(M, N, A, lda, B, ldb);
#else
  const Tag<T> d;
  constexpr Size L = Width<T>(), W = 16 / sizeof(T);
  const Size rows = M / L * L, columns = N / W * W;
  for (Size i = 0; i < rows; i += L) {
    for (Size j = 0; j < columns; j += W) {
      Vec<T> t[W];
      LoadTurned(A + i * lda + j, lda, t);
      TTR_UNROLL for (Size w = 0; w < W; ++w) hn::StoreU(t[w], d, B + (j + w) * ldb + i);
    }
  }
  if (columns < N) Transpose<T>(rows, N - columns, A + columns, lda, B + columns * ldb, ldb);
  if (rows < M) Transpose<T>(M - rows, N, A + rows * lda, lda, B + rows, ldb);
#endif
}

// NV vectors of doubles of columns j ..; a tag of one lane does the columns that are left with the same operations. The
// terms stay a loop: unrolled for every number of them they were 70 KB of code. What the terms of one token make is in T, with
// a rounding where the panels have several; the sums over tokens, which cancel, are in double.
template <int NV, class D, class T>
HWY_INLINE void GateColumns(D d, Size C, Size K, const typename Simd<T>::GateTerm* terms, int count, const T* last,
                            bool fresh, T* out, Size ldo) {
  const hn::Rebind<T, D> narrow;
  using Own = hn::Vec<decltype(narrow)>;
  constexpr Size L = static_cast<Size>(hn::MaxLanes(D()));
  const auto load = [&](const T* p) HWY_ATTR { return hn::LoadU(narrow, p); };
  const auto widen = [&](Own x) HWY_ATTR {
    if constexpr (sizeof(T) == sizeof(double)) return x;
    else return hn::PromoteTo(d, x);
  };
  hn::Vec<D> sum[NV];
  TTR_UNROLL for (int v = 0; v < NV; ++v) sum[v] = widen(load(last + v * L));
  for (Size i = C; i-- > 0;) {
    Own own[NV];
    TTR_UNROLL for (int v = 0; v < NV; ++v) own[v] = hn::Zero(narrow);
#if !HWY_COMPILER_CLANG
#pragma GCC unroll 1
#endif
    for (int t = 0; t < count; ++t) {
      const Size row = i + (terms[t].before ? 1 : 0);
      if (row == C) continue;
      const T *const x = terms[t].x + row * K, *const dx = terms[t].dx + row * K;
      if (terms[t].writer) {
        TTR_UNROLL for (int v = 0; v < NV; ++v) own[v] = hn::NegMulAdd(load(x + v * L), load(dx + v * L), own[v]);
      } else {
        TTR_UNROLL for (int v = 0; v < NV; ++v) own[v] = hn::MulAdd(load(x + v * L), load(dx + v * L), own[v]);
      }
    }
    T* const o = out + i * ldo;
    TTR_UNROLL for (int v = 0; v < NV; ++v) {
      sum[v] = hn::Add(sum[v], widen(own[v]));
      Own y;
      if constexpr (sizeof(T) == sizeof(double)) y = sum[v];
      else y = hn::DemoteTo(narrow, sum[v]);
      if (!fresh) y = hn::Add(load(o + v * L), y);
      hn::StoreU(y, narrow, o + v * L);
    }
  }
}

template <class T>
void GateGradient(Size C, Size K, const typename Simd<T>::GateTerm* terms, int count, const T* last, bool fresh,
                  T* out, Size ldo) {
  const Tag<double> d;
  const hn::CappedTag<double, 1> one;
  constexpr Size L = Width<double>();
  typename Simd<T>::GateTerm moved[8];
  Size j = 0;
  const auto at = [&](Size column) {
    for (int t = 0; t < count; ++t) moved[t] = terms[t], moved[t].x += column, moved[t].dx += column;
    return moved;
  };
  for (; j + 4 * L <= K; j += 4 * L) GateColumns<4>(d, C, K, at(j), count, last + j, fresh, out + j, ldo);
  for (; j + L <= K; j += L) GateColumns<1>(d, C, K, at(j), count, last + j, fresh, out + j, ldo);
  for (; j < K; ++j) GateColumns<1>(one, C, K, at(j), count, last + j, fresh, out + j, ldo);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
