// Givens rotations of several rows, compiled once per instruction set (included by rotate_simd.cc).
//
// A vector of columns of all rows above it: x and q of N tokens stay in registers. Its own rows, on the diagonal, find the
// coefficients, which wait for each other: a root and a quotient for every row and token.
#if defined(TTR_SIMD_ROTATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_ROTATE_INL_H_
#undef TTR_SIMD_ROTATE_INL_H_
#else
#define TTR_SIMD_ROTATE_INL_H_
#endif

#include <cmath>
#include <limits>
#include <type_traits>

#include "families/solve/givens/rotate_simd.h"
#include "simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

// Coefficients of row i: cosines, sines, answers, N of each.
template <int N, class T>
HWY_INLINE T* CoefficientsOf(const typename RotateSimd<T>::Rows& a, Size i) {
  return a.coefficients + i * 3 * N;
}

// (row, x) rotated by the coefficients of a row, token after token; `also` gets sign * answer * row.
template <int N, bool kAlso, class T>
HWY_INLINE void RotateRow(const T* HWY_RESTRICT coefficients, bool minus, Vec<T>& row, Vec<T> (&x)[N],
                          Vec<T> (&also)[N]) {
  const Tag<T> d;
  TTR_UNROLL
  for (int m = 0; m < N; ++m) {
    const Vec<T> c = hn::Set(d, coefficients[m]), s = hn::Set(d, coefficients[N + m]);
    const Vec<T> up = hn::MulAdd(c, row, hn::Mul(s, x[m]));
    x[m] = hn::NegMulAdd(s, row, hn::Mul(c, x[m]));
    row = up;
    if constexpr (kAlso) {
      const Vec<T> answer = hn::Set(d, coefficients[2 * N + m]);
      also[m] = minus ? hn::NegMulAdd(answer, row, also[m]) : hn::MulAdd(answer, row, also[m]);
    }
  }
}

// W vectors of columns from j on, the last of them `lanes` wide, of rows first .. end-1; x and `also` [N, ld]. R: minus,
// Z: plus.
template <int N, int W, bool kAlso, bool kPart, class T>
HWY_INLINE void RotateColumns(const typename RotateSimd<T>::Rows& a, Size first, Size end, T* matrix, Size ldm,
                              Size j, Size lanes, bool minus, T* rows_x, T* rows_also, Size ld) {
  constexpr Size L = Width<T>();
  Vec<T> x[W][N], also[W][N];
  TTR_UNROLL
  for (int w = 0; w < W; ++w) {
    TTR_UNROLL
    for (int m = 0; m < N; ++m) {
      x[w][m] = LoadMaybe<kPart>(rows_x + m * ld + j + w * L, lanes);
      also[w][m] = kAlso ? LoadMaybe<kPart>(rows_also + m * ld + j + w * L, lanes) : hn::Zero(Tag<T>());
    }
  }
  for (Size i = first; i < end; ++i) {
    T* const place = matrix + i * ldm + j;
    TTR_UNROLL
    for (int w = 0; w < W; ++w) {
      Vec<T> row = LoadMaybe<kPart>(place + w * L, lanes);
      RotateRow<N, kAlso, T>(CoefficientsOf<N, T>(a, i), minus, row, x[w], also[w]);
      StoreMaybe<kPart>(row, place + w * L, lanes);
    }
  }
  TTR_UNROLL
  for (int w = 0; w < W; ++w) {
    TTR_UNROLL
    for (int m = 0; m < N; ++m) {
      StoreMaybe<kPart>(x[w][m], rows_x + m * ld + j + w * L, lanes);
      if constexpr (kAlso) StoreMaybe<kPart>(also[w][m], rows_also + m * ld + j + w * L, lanes);
    }
  }
}

template <class T>
HWY_INLINE T LengthOf(T a, T b) {
  const T sum = a * a + b * b;
  constexpr T low = std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon();
  if (sum > low && sum < std::numeric_limits<T>::max()) return std::sqrt(sum);
  return std::hypot(a, b);
}

// The rows of the diagonal block that begins at j: coefficients, and its columns.
template <int N, bool kAlso, bool kPart, class T>
HWY_INLINE void RotateDiagonal(const typename RotateSimd<T>::Rows& a, Size j, Size lanes) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  const Vec<T> places = hn::Iota(d, T(0));
  Vec<T> x[N], q[N];
  T entry[N][L], asked[N][L];
  TTR_UNROLL
  for (int m = 0; m < N; ++m) {
    x[m] = LoadMaybe<kPart>(a.x + m * a.ldx + j, lanes);
    q[m] = kAlso ? LoadMaybe<kPart>(a.q + m * a.ldx + j, lanes) : hn::Zero(d);
  }
  for (Size own = 0; own < lanes; ++own) {
    const Size i = j + own;
    T* const coefficients = CoefficientsOf<N, T>(a, i);
    T* const place = a.R + i * a.ldr + j;
    TTR_UNROLL
    for (int m = 0; m < N; ++m) {
      hn::StoreU(x[m], d, entry[m]);
      if constexpr (kAlso) hn::StoreU(q[m], d, asked[m]);
    }
    T pivot = place[own];
    for (int m = 0; m < N; ++m) {
      const T below = entry[m][own];
      T c = T(1), s = T(0);
      if (below != T(0)) {
        const T length = LengthOf(pivot, below);
        c = pivot / length, s = below / length, pivot = length;
      }
      coefficients[m] = c, coefficients[N + m] = s;
      if constexpr (kAlso) coefficients[2 * N + m] = pivot == T(0) ? T(0) : asked[m][own] / pivot;
    }
    // Lanes before `own` are zero in row and x and stay what they are; `own` itself is known.
    const auto here = hn::Eq(places, hn::Set(d, static_cast<T>(own)));
    Vec<T> row = LoadMaybe<kPart>(place, lanes);
    RotateRow<N, kAlso, T>(coefficients, true, row, x, q);
    StoreMaybe<kPart>(hn::IfThenElse(here, hn::Set(d, pivot), row), place, lanes);
    TTR_UNROLL
    for (int m = 0; m < N; ++m) {
      x[m] = hn::IfThenZeroElse(here, x[m]);
      if constexpr (kAlso) q[m] = hn::IfThenElse(here, hn::Set(d, coefficients[2 * N + m]), q[m]);
    }
  }
  TTR_UNROLL
  for (int m = 0; m < N; ++m) {
    StoreMaybe<kPart>(x[m], a.x + m * a.ldx + j, lanes);
    if constexpr (kAlso) StoreMaybe<kPart>(q[m], a.q + m * a.ldx + j, lanes);
  }
}

// Panels of W vectors: what the rows above do to a panel, then its diagonal blocks, each with what it does to the rest.
template <int N, int W, bool kAlso, class T>
HWY_INLINE void RotateAll(const typename RotateSimd<T>::Rows& a) {
  constexpr Size L = Width<T>();
  const auto columns = [&](auto width, Size first, Size end, Size j) HWY_ATTR {
    RotateColumns<N, decltype(width)::value, kAlso, false, T>(a, first, end, a.R, a.ldr, j, L, true, a.x, a.q, a.ldx);
  };
  using One = std::integral_constant<int, 1>;
  Size j = 0;
  for (; W > 1 && j + W * L <= a.rank; j += W * L) {
    columns(std::integral_constant<int, W>(), 0, j, j);
    for (Size own = j; own < j + W * L; own += L) {
      RotateDiagonal<N, kAlso, false, T>(a, own, L);
      for (Size later = own + L; later < j + W * L; later += L) columns(One(), own, own + L, later);
    }
  }
  for (; j + L <= a.rank; j += L) {
    columns(One(), 0, j, j);
    RotateDiagonal<N, kAlso, false, T>(a, j, L);
  }
  if (j < a.rank) {
    RotateColumns<N, 1, kAlso, true, T>(a, 0, j, a.R, a.ldr, j, a.rank - j, true, a.x, a.q, a.ldx);
    RotateDiagonal<N, kAlso, true, T>(a, j, a.rank - j);
  }
  j = 0;
  for (; W > 1 && j + W * L <= a.V; j += W * L)
    RotateColumns<N, W, kAlso, false, T>(a, 0, a.rank, a.Z, a.V, j, L, false, a.y, a.o, a.ldy);
  for (; j + L <= a.V; j += L)
    RotateColumns<N, 1, kAlso, false, T>(a, 0, a.rank, a.Z, a.V, j, L, false, a.y, a.o, a.ldy);
  if (j < a.V) RotateColumns<N, 1, kAlso, true, T>(a, 0, a.rank, a.Z, a.V, j, a.V - j, false, a.y, a.o, a.ldy);
}

template <int N, int W, class T>
void RotateRows(const typename RotateSimd<T>::Rows& a) {
  if (a.q) RotateAll<N, W, true, T>(a);
  else RotateAll<N, W, false, T>(a);
}

template <class T>
const RotateSimd<T>* RotateTable() {
  constexpr int kTokens = 4;  // x and q of as many fit into 16 registers; eight in 32 are 2 to 16 % slower on Zen 4
  static constexpr RotateSimd<T> table = {
      .tokens = kTokens,
      .several = RotateRows<kTokens, 1, T>,
      .one = RotateRows<1, 4, T>,
  };
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
