// Tiles of local linear attention, compiled once per instruction set (included by local_linear_f32.cc and
// local_linear_f64.cc).
#if defined(TTR_SIMD_LOCAL_LINEAR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_LOCAL_LINEAR_INL_H_
#undef TTR_SIMD_LOCAL_LINEAR_INL_H_
#else
#define TTR_SIMD_LOCAL_LINEAR_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "families/pairs/attention/attention-inl.h"
#include "families/pairs/local_linear/local_linear_simd.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

constexpr Size kKeys = 64;

// Squares are added up as a dot product adds them, in four sums: one sum per row would lose digits of the weights.
template <class T>
void Centre(Size n, Size K, const T* from, Size ld, const T* origin, T* rows, T* halves) {
  for (Size j = 0; j < n; ++j) {
    T* const row = rows + j * K;
    ForVectors<T>(K, [&](Size c, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      StoreMaybe<part>(hn::Sub(LoadMaybe<part>(from + j * ld + c, lanes), LoadMaybe<part>(origin + c, lanes)),
                       row + c, lanes);
    });
    halves[j] = Dot(K, row, row) / 2;
  }
}

template <bool kBias, class T>
HWY_INLINE void RaiseOf(const MaskRange& visible, const typename AttentionSimd<T>::Bias& bias, T* X, T* top) {
  const Tag<T> d;
  const Vec<T> none = hn::Set(d, -std::numeric_limits<T>::infinity());
  for (Size i = 0; i < visible.M; ++i) {
    const Size begin = visible.begin(i), n = visible.end(i) - begin;
    if (n <= 0) continue;
    T* const x_i = X + i * kKeys + begin;
    const T* const columns = kBias ? bias.bias + i * bias.ld + begin : nullptr;
    const Vec<T> row = hn::Set(d, kBias && bias.row ? bias.row[i] : T(0));
    Vec<T> most = hn::Set(d, top[i]);
    ForVectors<T>(n, [&](Size j, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      Vec<T> x = LoadMaybe<part>(x_i + j, lanes);
      if constexpr (kBias) {
        x = hn::Add(x, hn::Add(LoadMaybe<part>(columns + j, lanes), row));
        StoreMaybe<part>(x, x_i + j, lanes);
      }
      if constexpr (part) x = hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(lanes)), x, none);
      most = hn::Max(most, x);
    });
    top[i] = hn::GetLane(hn::MaxOfLanes(d, most));
  }
}
template <class T>
void Raise(const MaskRange& visible, const typename AttentionSimd<T>::Bias& bias, T* X, T* top) {
  if (bias.bias) RaiseOf<true, T>(visible, bias, X, top);
  else RaiseOf<false, T>(visible, bias, X, top);
}

// R rows that see the same keys [begin, end)
template <int R, bool kTilt, class T>
HWY_INLINE void WeighRows(Size i, Size begin, Size end, const T* top, const T* h, T* X, T* Z,
                          const typename LocalLinearSimd<T>::Sums& sums) {
  const Tag<T> d;
  Vec<T> mass[R], moment[R], tilt[R];
  for (int r = 0; r < R; ++r) {
    T* const x = X + (i + r) * kKeys;
    T* const z = kTilt ? Z + (i + r) * kKeys : nullptr;
    std::fill(x, x + begin, T(0)), std::fill(x + end, x + kKeys, T(0));
    if (kTilt) std::fill(z, z + begin, T(0)), std::fill(z + end, z + kKeys, T(0));
    const Vec<T> shift = hn::Set(d, top[i + r]);
    Vec<T> sum = hn::Zero(d), second = sum, first = sum;
    ForVectors<T>(end - begin, [&](Size at, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      const Size j = begin + at;
      const Vec<T> y = hn::Sub(LoadMaybe<part>(x + j, lanes), shift);
      Vec<T> w = ExpBounded<T>(y);
      if constexpr (part) w = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(lanes)), w);
      StoreMaybe<part>(w, x + j, lanes);
      sum = hn::Add(sum, w);
      second = hn::MulAdd(w, LoadMaybe<part>(h + j, lanes), second);
      if constexpr (kTilt) {
        // exp has made the weight of -inf zero: its product is zero too.
        const Vec<T> wy = hn::IfThenZeroElse(hn::Eq(w, hn::Zero(d)), hn::Mul(w, y));
        StoreMaybe<part>(wy, z + j, lanes);
        first = hn::Add(first, wy);
      }
    });
    mass[r] = sum, moment[r] = second, tilt[r] = first;
  }
  T total[R];
  const auto add = [&](const Vec<T>(&from)[R], double* to) HWY_ATTR {
    FoldRows<R, T>(from, Plus(), total);
    for (int r = 0; r < R; ++r) to[i + r] += static_cast<double>(total[r]);
  };
  add(mass, sums.mass), add(moment, sums.moment);
  if constexpr (kTilt) add(tilt, sums.tilt);
}
template <bool kTilt, class T>
HWY_INLINE void WeighOf(const MaskRange& visible, const T* top, const T* h, T* X, T* Z,
                        const typename LocalLinearSimd<T>::Sums& sums) {
  Size i = 0;
  for (; visible.all() && i + 4 <= visible.M; i += 4) WeighRows<4, kTilt>(i, 0, visible.N, top, h, X, Z, sums);
  for (; i < visible.M; ++i) {
    const Size begin = visible.begin(i), end = std::max(begin, visible.end(i));
    WeighRows<1, kTilt>(i, begin, end, top, h, X, Z, sums);
  }
}
template <class T>
void Weigh(const MaskRange& visible, const T* top, const T* h, T* X, T* Z,
           const typename LocalLinearSimd<T>::Sums& sums) {
  if (Z) WeighOf<true, T>(visible, top, h, X, Z, sums);
  else WeighOf<false, T>(visible, top, h, X, Z, sums);
}

// C [R, D] += A B on a panel of NV vectors of columns; A [R, n] has a leading dimension of kKeys.
template <int R, int NV, bool kPart, class T>
HWY_INLINE void AddPanel(Size n, const T* A, const T* B, Size D, T* C, Size lanes) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  Vec<T> acc[R][NV];
  TTR_UNROLL for (int r = 0; r < R; ++r) { TTR_UNROLL for (int v = 0; v < NV; ++v) acc[r][v] = hn::Zero(d); }
  for (Size j = 0; j < n; ++j, B += D) {
    Vec<T> b[NV];
    TTR_UNROLL for (int v = 0; v < NV; ++v) b[v] = LoadMaybe<kPart>(B + v * L, lanes);
    TTR_UNROLL for (int r = 0; r < R; ++r) {
      const Vec<T> a = hn::Set(d, A[r * kKeys + j]);
      TTR_UNROLL for (int v = 0; v < NV; ++v) acc[r][v] = hn::MulAdd(a, b[v], acc[r][v]);
    }
  }
  TTR_UNROLL for (int r = 0; r < R; ++r) {
    TTR_UNROLL for (int v = 0; v < NV; ++v) {
      T* const c = C + r * D + v * L;
      StoreMaybe<kPart>(hn::Add(LoadMaybe<kPart>(c, lanes), acc[r][v]), c, lanes);
    }
  }
}

// a_ij for R rows and NV vectors of keys
template <int R, int NV, bool kBlend, class Pass, class T>
HWY_INLINE void WeighPanel(const Pass& x, Size i0, Size j, T* a, Vec<T> (&sum)[R]) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  const T* const X = x.X + i0 * x.ldx;
  const T* k = x.along + j;
  Vec<T> acc[R][NV];
  TTR_UNROLL for (int r = 0; r < R; ++r) {
    TTR_UNROLL for (int v = 0; v < NV; ++v) acc[r][v] = hn::Set(d, X[r * x.ldx + x.K]);
  }
  for (Size p = 0; p < x.K; ++p, k += kKeys) {
    Vec<T> key[NV];
    TTR_UNROLL for (int v = 0; v < NV; ++v) key[v] = hn::LoadU(d, k + v * L);
    TTR_UNROLL for (int r = 0; r < R; ++r) {
      const Vec<T> b = hn::Set(d, X[r * x.ldx + p]);
      TTR_UNROLL for (int v = 0; v < NV; ++v) acc[r][v] = hn::MulAdd(b, key[v], acc[r][v]);
    }
  }
  TTR_UNROLL for (int r = 0; r < R; ++r) {
    const T* const weights = x.weights + (x.rows ? x.rows[i0 + r] : i0 + r) * kKeys + j;
    TTR_UNROLL for (int v = 0; v < NV; ++v) {
      const Vec<T> w = hn::LoadU(d, weights + v * L);
      const Vec<T> y = kBlend ? hn::NegMulAdd(w, acc[r][v], w) : hn::Mul(w, acc[r][v]);
      hn::StoreU(y, d, a + r * kKeys + j + v * L);
      sum[r] = hn::Add(sum[r], y);
    }
  }
}

// R rows: their a_ij stay in L1 between the two products.
template <int R, bool kBlend, class T>
HWY_NOINLINE void PassRows(const typename LocalLinearSimd<T>::Pass& x, Size i0, Size n) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  HWY_ALIGN T a[R * kKeys];
  Vec<T> sum[R];
  TTR_UNROLL for (int r = 0; r < R; ++r) sum[r] = hn::Zero(d);
  Size j = 0;
  for (; j + 2 * L <= n; j += 2 * L) WeighPanel<R, 2, kBlend>(x, i0, j, a, sum);
  if (j < n) WeighPanel<R, 1, kBlend>(x, i0, j, a, sum);
  T* const C = x.C + i0 * x.D;
  Size c = 0;
  for (; c + 2 * L <= x.D; c += 2 * L) AddPanel<R, 2, false>(n, a, x.B + c, x.D, C + c, L);
  if (c + L <= x.D) AddPanel<R, 1, false>(n, a, x.B + c, x.D, C + c, L), c += L;
  if (c < x.D) AddPanel<R, 1, true>(n, a, x.B + c, x.D, C + c, x.D - c);
  if (!x.sums) return;
  TTR_UNROLL for (int r = 0; r < R; ++r) x.sums[i0 + r] += hn::GetLane(hn::SumOfLanes(d, sum[r]));
}

template <bool kBlend, class T>
HWY_INLINE void PassOf(const typename LocalLinearSimd<T>::Pass& x) {
  constexpr Size step = Width<T>();
  static_assert(kKeys % step == 0);
  const auto whole = [](Size n) { return (n + step - 1) / step * step; };
  for (Size i = 0; i < x.m;) {
    const Size rows = NextRows(x.m - i), last = x.rows ? x.rows[i + rows - 1] : i + rows - 1;
    const Size n = whole(x.triangle ? last + 1 : x.n);
    if (rows == kRows) PassRows<kRows, kBlend, T>(x, i, n);
    else if (rows == 4) PassRows<4, kBlend, T>(x, i, n);
    else if (rows == 2) PassRows<2, kBlend, T>(x, i, n);
    else PassRows<1, kBlend, T>(x, i, n);
    i += rows;
  }
}
template <class T>
void Moment(const typename LocalLinearSimd<T>::Pass& x) {
  PassOf<false, T>(x);
}
template <class T>
void Blend(const typename LocalLinearSimd<T>::Pass& x) {
  PassOf<true, T>(x);
}

// R rows of NV vectors, which stay in registers between the two products.
template <int R, int NV, class T>
HWY_INLINE T AddMoment(const T* rows, const T* weights, T offset, const Vec<T> (&along)[NV], Vec<T> (&acc)[NV]) {
  const Tag<T> d;
  constexpr Size L = Width<T>(), K = NV * L;
  Vec<T> row[R][NV], sum[R];
  TTR_UNROLL for (int r = 0; r < R; ++r) {
    sum[r] = hn::Zero(d);
    TTR_UNROLL for (int v = 0; v < NV; ++v) {
      row[r][v] = hn::LoadU(d, rows + r * K + v * L);
      sum[r] = hn::MulAdd(row[r][v], along[v], sum[r]);
    }
  }
  T a[R], total = 0;
  FoldRows<R, T>(sum, Plus(), a);
  TTR_UNROLL for (int r = 0; r < R; ++r) a[r] = weights[r] * (a[r] + offset);
  TTR_UNROLL for (int r = 0; r < R; ++r) {
    const Vec<T> by = hn::Set(d, a[r]);
    TTR_UNROLL for (int v = 0; v < NV; ++v) acc[v] = hn::MulAdd(by, row[r][v], acc[v]);
  }
  TTR_UNROLL for (int r = 0; r < R; ++r) total += a[r];
  return total;
}
// K is NV vectors: the image stays in registers for all rows.
template <int NV, class T>
HWY_INLINE T MomentInRegisters(Size n, const T* rows, const T* weights, const T* x, T* image) {
  const Tag<T> d;
  constexpr Size L = Width<T>(), K = NV * L;
  Vec<T> along[NV], acc[NV];
  TTR_UNROLL for (int v = 0; v < NV; ++v) along[v] = hn::LoadU(d, x + v * L), acc[v] = hn::Zero(d);
  T total = 0;
  Size j = 0;
  for (; j + 4 <= n; j += 4) total += AddMoment<4, NV, T>(rows + j * K, weights + j, x[K], along, acc);
  for (; j < n; ++j) total += AddMoment<1, NV, T>(rows + j * K, weights + j, x[K], along, acc);
  TTR_UNROLL for (int v = 0; v < NV; ++v) hn::StoreU(hn::Add(acc[v], hn::LoadU(d, image + v * L)), d, image + v * L);
  return total;
}
// Any K: eight rows at a time, which stay in the first cache.
template <class T>
HWY_INLINE T MomentInCache(Size n, Size K, const T* rows, const T* weights, const T* x, T* image) {
  constexpr Size together = 8;
  T total = 0;
  for (Size j = 0; j < n; j += together) {
    const Size some = std::min(together, n - j);
    const T* const block = rows + j * K;
    T a[together];
    ScoresOf<false, T>(some, K, T(1), block, K, x, a);
    for (Size r = 0; r < some; ++r) a[r] = weights[j + r] * (a[r] + x[K]), total += a[r];
    ForVectors<T>(K, [&](Size c, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      Vec<T> acc = LoadMaybe<part>(image + c, lanes);
      for (Size r = 0; r < some; ++r)
        acc = hn::MulAdd(hn::Set(Tag<T>(), a[r]), LoadMaybe<part>(block + r * K + c, lanes), acc);
      StoreMaybe<part>(acc, image + c, lanes);
    });
  }
  return total;
}
template <class T>
T MomentOfOne(Size n, Size K, const T* rows, const T* weights, const T* x, T* image) {
  if constexpr (HWY_CAP_GE512)
    if (K == 4 * Width<T>()) return MomentInRegisters<4, T>(n, rows, weights, x, image);
  return MomentInCache<T>(n, K, rows, weights, x, image);
}

template <class T>
void ColumnSums(Size n, Size K, const T* rows, T* sums, T* squares) {
  ForVectors<T>(K, [&](Size c, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    Vec<T> first = LoadMaybe<part>(sums + c, lanes), second = LoadMaybe<part>(squares + c, lanes);
    for (Size j = 0; j < n; ++j) {
      const Vec<T> x = LoadMaybe<part>(rows + j * K + c, lanes);
      first = hn::Add(first, x), second = hn::MulAdd(x, x, second);
    }
    StoreMaybe<part>(first, sums + c, lanes), StoreMaybe<part>(second, squares + c, lanes);
  });
}

template <class T>
HWY_INLINE Size RowOf(const typename LocalLinearSimd<T>::Vectors& v, Size r) {
  return v.rows ? v.rows[r] : r;
}

template <class T>
void Close(const typename LocalLinearSimd<T>::Vectors& v, const T* sums, double* curvature) {
  const Tag<T> d;
  for (Size r = 0; r < v.m; ++r) {
    const Size i = RowOf<T>(v, r);
    const T* const along = v.d + i * (v.K + 1);
    const T* const mean = v.mean + i * v.K;
    T* const image = v.image + r * v.K;
    const Vec<T> lambda = hn::Set(d, v.lambda[i]), minus = hn::Set(d, -sums[r]);
    Vec<T> sum = hn::Zero(d);
    ForVectors<T>(v.K, [&](Size c, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      const Vec<T> x = LoadMaybe<part>(along + c, lanes);
      const Vec<T> y = hn::MulAdd(minus, LoadMaybe<part>(mean + c, lanes), LoadMaybe<part>(image + c, lanes));
      const Vec<T> closed = hn::MulAdd(lambda, x, y);
      StoreMaybe<part>(closed, image + c, lanes);
      sum = hn::MulAdd(x, closed, sum);
    });
    curvature[r] = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
}

template <class T>
void Move(const typename LocalLinearSimd<T>::Vectors& v, const double* a) {
  for (Size r = 0; r < v.m; ++r) {
    const Size i = RowOf<T>(v, r);
    Axpy(v.K, static_cast<T>(a[r]), v.d + i * (v.K + 1), v.x + i * (v.K + 1));
    Axpy(v.K, static_cast<T>(-a[r]), v.image + r * v.K, v.residual + i * v.K);
  }
}

template <class T>
void Project(const typename LocalLinearSimd<T>::Vectors& v, double* rho, double* slant) {
  for (Size r = 0; r < v.m; ++r) {
    const Size i = RowOf<T>(v, r);
    rho[r] = static_cast<double>(Dot(v.K, v.residual + i * v.K, v.z + r * v.K));
    slant[r] = v.query ? static_cast<double>(Dot(v.K, v.query_image + i * v.K, v.z + r * v.K)) : 0.0;
  }
}

template <class T>
void Turn(const typename LocalLinearSimd<T>::Vectors& v, const double* b, const double* c) {
  const Tag<T> d;
  for (Size r = 0; r < v.m; ++r) {
    const Size i = RowOf<T>(v, r);
    T* const to = v.d + i * (v.K + 1);
    const T* const z = v.z + r * v.K;
    const T* const mean = v.mean + i * v.K;
    const T* const query = c[r] != 0 ? v.query + i * v.K : nullptr;
    const bool old = b[r] != 0;
    const Vec<T> vb = hn::Set(d, static_cast<T>(b[r])), vc = hn::Set(d, static_cast<T>(c[r]));
    Vec<T> sum = hn::Zero(d);
    ForVectors<T>(v.K, [&](Size k, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      Vec<T> x = LoadMaybe<part>(z + k, lanes);
      if (old) x = hn::MulAdd(vb, LoadMaybe<part>(to + k, lanes), x);
      if (query) x = hn::MulAdd(vc, LoadMaybe<part>(query + k, lanes), x);
      StoreMaybe<part>(x, to + k, lanes);
      sum = hn::MulAdd(x, LoadMaybe<part>(mean + k, lanes), sum);
    });
    to[v.K] = -hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

template <class T>
const LocalLinearSimd<T>* LocalLinearTable() {
  static constexpr LocalLinearSimd<T> table = {
      .centre = Centre<T>,
      .raise = Raise<T>,
      .weigh = Weigh<T>,
      .moment = Moment<T>,
      .blend = Blend<T>,
      .moment_of_one = MomentOfOne<T>,
      .column_sums = ColumnSums<T>,
      .close = Close<T>,
      .move = Move<T>,
      .project = Project<T>,
      .turn = Turn<T>,
  };
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
