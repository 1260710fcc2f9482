// Cholesky factors in lanes, compiled once per instruction set (included by factor_simd.cc).
//
// Columns go in blocks of four, rows in blocks of four below them: a block of the matrix stays in registers while the
// columns left of it are subtracted, eight loads for sixteen products.
#if defined(TTR_SIMD_FACTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_FACTOR_INL_H_
#undef TTR_SIMD_FACTOR_INL_H_
#else
#define TTR_SIMD_FACTOR_INL_H_
#endif

#include <limits>

#include "families/solve/least_squares/factor_simd.h"
#include "simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

// Row i of a packed triangle.
template <class T, class N>
HWY_INLINE N* PackedRow(N* A, Size i) {
  return A + i * (i + 1) / 2 * Width<T>();
}

template <class T>
void FormSystems(Size K, const T* H, Size ldh, const T* e, const T* C, const T* k, Size ldk, const T* diagonal,
                 T* A) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  const Vec<T> fade = hn::LoadU(d, e);
  for (Size i = 0; i < K; ++i) {
    Vec<T> c[L];
    TTR_UNROLL
    for (Size s = 0; s < L; ++s) c[s] = hn::Mul(hn::LoadU(d, C + s * L), hn::Set(d, k[s * ldk + i]));
    T* const row = PackedRow<T>(A, i);
    for (Size j = 0; j <= i; ++j) {
      Vec<T> sum = hn::Mul(fade, hn::Set(d, H[i * ldh + j]));
      sum = hn::MulAdd(c[0], hn::Set(d, k[j]), sum);
      // Lanes before s have not seen token s: no product with zero, which would let its NaN in.
      TTR_UNROLL
      for (Size s = 1; s < L; ++s)
        sum = hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(s)), sum,
                             hn::MulAdd(c[s], hn::Set(d, k[s * ldk + j]), sum));
      if (j == i) sum = hn::Add(sum, hn::LoadU(d, diagonal + i * L));
      hn::StoreU(sum, d, row + j * L);
    }
  }
}

// Rows i .. i+M-1 of columns j .. j+3 below the diagonal.
template <class T, int M>
HWY_INLINE void RowsBelow(Size i, Size j, T* A, const T* inverse) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  T* rows[M];
  const T* columns[4];
  Vec<T> sum[M][4];
  for (int a = 0; a < M; ++a) {
    rows[a] = PackedRow<T>(A, i + a);
    for (int b = 0; b < 4; ++b) sum[a][b] = hn::LoadU(d, rows[a] + (j + b) * L);
  }
  for (int b = 0; b < 4; ++b) columns[b] = PackedRow<T, const T>(A, j + b);
  for (Size k = 0; k < j * L; k += L) {
    Vec<T> right[4];
    TTR_UNROLL
    for (int b = 0; b < 4; ++b) right[b] = hn::LoadU(d, columns[b] + k);
    TTR_UNROLL
    for (int a = 0; a < M; ++a) {
      const Vec<T> left = hn::LoadU(d, rows[a] + k);
      TTR_UNROLL
      for (int b = 0; b < 4; ++b) sum[a][b] = hn::NegMulAdd(left, right[b], sum[a][b]);
    }
  }
  for (int b = 0; b < 4; ++b) {
    const Vec<T> scale = hn::LoadU(d, inverse + (j + b) * L);
    for (int c = 0; c < b; ++c) {
      const Vec<T> right = hn::LoadU(d, columns[b] + (j + c) * L);
      for (int a = 0; a < M; ++a) sum[a][b] = hn::NegMulAdd(sum[a][c], right, sum[a][b]);
    }
    for (int a = 0; a < M; ++a) {
      sum[a][b] = hn::Mul(sum[a][b], scale);
      hn::StoreU(sum[a][b], d, rows[a] + (j + b) * L);
    }
  }
}

// The block of N rows and columns on the diagonal.
template <class T, int N>
HWY_INLINE void OnDiagonal(Size j, T* A, T* inverse, T* good) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  T* rows[N];
  Vec<T> sum[N][N];
  for (int a = 0; a < N; ++a) {
    rows[a] = PackedRow<T>(A, j + a);
    for (int b = 0; b <= a; ++b) sum[a][b] = hn::LoadU(d, rows[a] + (j + b) * L);
  }
  for (Size k = 0; k < j * L; k += L) {
    Vec<T> x[N];
    TTR_UNROLL
    for (int a = 0; a < N; ++a) x[a] = hn::LoadU(d, rows[a] + k);
    TTR_UNROLL
    for (int a = 0; a < N; ++a)
      for (int b = 0; b <= a; ++b) sum[a][b] = hn::NegMulAdd(x[a], x[b], sum[a][b]);
  }
  const Vec<T> infinity = hn::Set(d, std::numeric_limits<T>::infinity()), nan = hn::Sub(infinity, infinity);
  Vec<T> all = hn::LoadU(d, good);
  for (int b = 0; b < N; ++b) {
    Vec<T> pivot = sum[b][b];
    const auto fine = hn::And(hn::Gt(pivot, hn::Zero(d)), hn::Lt(pivot, infinity));
    all = hn::IfThenElseZero(fine, all);
    pivot = hn::Sqrt(hn::IfThenElse(fine, pivot, nan));
    const Vec<T> scale = hn::Div(hn::Set(d, T(1)), pivot);
    hn::StoreU(scale, d, inverse + (j + b) * L);
    hn::StoreU(pivot, d, rows[b] + (j + b) * L);
    for (int a = b + 1; a < N; ++a) {
      sum[a][b] = hn::Mul(sum[a][b], scale);
      hn::StoreU(sum[a][b], d, rows[a] + (j + b) * L);
    }
    for (int a = b + 1; a < N; ++a)
      for (int c = b + 1; c <= a; ++c) sum[a][c] = hn::NegMulAdd(sum[a][b], sum[c][b], sum[a][c]);
  }
  hn::StoreU(all, d, good);
}

template <class T>
void FactorSystems(Size K, T* A, T* inverse, T* good) {
  const Tag<T> d;
  hn::StoreU(hn::Set(d, T(1)), d, good);
  for (Size j = 0; j < K; j += 4) {
    switch (K - j) {
      case 1:
        OnDiagonal<T, 1>(j, A, inverse, good);
        break;
      case 2:
        OnDiagonal<T, 2>(j, A, inverse, good);
        break;
      case 3:
        OnDiagonal<T, 3>(j, A, inverse, good);
        break;
      default:
        OnDiagonal<T, 4>(j, A, inverse, good);
    }
    Size i = j + 4;
    for (; i + 4 <= K; i += 4) RowsBelow<T, 4>(i, j, A, inverse);
    for (; i < K; ++i) RowsBelow<T, 1>(i, j, A, inverse);
  }
}

template <class T>
void SolveSystems(Size K, const T* A, const T* inverse, T* x) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  const auto at = [&](Size i) HWY_ATTR { return hn::LoadU(d, x + i * L); };
  const auto put = [&](Size i, Vec<T> value) HWY_ATTR { hn::StoreU(value, d, x + i * L); };
  const auto entry = [&](Size i, Size j) HWY_ATTR { return hn::LoadU(d, PackedRow<T, const T>(A, i) + j * L); };
  const auto scaled = [&](Size i, Vec<T> value) HWY_ATTR { return hn::Mul(value, hn::LoadU(d, inverse + i * L)); };
  const Size whole = K / 4 * 4;
  for (Size i = 0; i < whole; i += 4) {  // four rows at a time, so that four sums are under way
    Vec<T> a = at(i), b = at(i + 1), c = at(i + 2), e = at(i + 3);
    for (Size k = 0; k < i; ++k) {
      const Vec<T> y = at(k);
      a = hn::NegMulAdd(entry(i, k), y, a), b = hn::NegMulAdd(entry(i + 1, k), y, b);
      c = hn::NegMulAdd(entry(i + 2, k), y, c), e = hn::NegMulAdd(entry(i + 3, k), y, e);
    }
    a = scaled(i, a);
    b = scaled(i + 1, hn::NegMulAdd(entry(i + 1, i), a, b));
    c = scaled(i + 2, hn::NegMulAdd(entry(i + 2, i + 1), b, hn::NegMulAdd(entry(i + 2, i), a, c)));
    e = hn::NegMulAdd(entry(i + 3, i + 1), b, hn::NegMulAdd(entry(i + 3, i), a, e));
    e = scaled(i + 3, hn::NegMulAdd(entry(i + 3, i + 2), c, e));
    put(i, a), put(i + 1, b), put(i + 2, c), put(i + 3, e);
  }
  for (Size i = whole; i < K; ++i) {
    Vec<T> a = at(i);
    for (Size k = 0; k < i; ++k) a = hn::NegMulAdd(entry(i, k), at(k), a);
    put(i, scaled(i, a));
  }
  for (Size i = K; i-- > whole;) {
    const Vec<T> a = scaled(i, at(i));
    put(i, a);
    for (Size k = 0; k < i; ++k) put(k, hn::NegMulAdd(entry(i, k), a, at(k)));
  }
  for (Size i = whole; i > 0;) {
    i -= 4;
    const Vec<T> e = scaled(i + 3, at(i + 3));
    const Vec<T> c = scaled(i + 2, hn::NegMulAdd(entry(i + 3, i + 2), e, at(i + 2)));
    Vec<T> b = hn::NegMulAdd(entry(i + 3, i + 1), e, at(i + 1));
    b = scaled(i + 1, hn::NegMulAdd(entry(i + 2, i + 1), c, b));
    Vec<T> a = hn::NegMulAdd(entry(i + 2, i), c, hn::NegMulAdd(entry(i + 3, i), e, at(i)));
    a = scaled(i, hn::NegMulAdd(entry(i + 1, i), b, a));
    put(i, a), put(i + 1, b), put(i + 2, c), put(i + 3, e);
    for (Size k = 0; k < i; ++k) {
      const Vec<T> high = hn::NegMulAdd(entry(i + 3, k), e, hn::NegMulAdd(entry(i + 2, k), c, at(k)));
      put(k, hn::NegMulAdd(entry(i + 1, k), b, hn::NegMulAdd(entry(i, k), a, high)));
    }
  }
}

template <class T>
const FactorSimd<T>* FactorTable() {
  static constexpr FactorSimd<T> table = {
      .lanes = static_cast<int>(Width<T>()),
      .form = FormSystems<T>,
      .factor = FactorSystems<T>,
      .solve = SolveSystems<T>,
  };
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
