// SIMD primitives of attention, compiled once per instruction set like those of simd.h.
//
//   const AttentionSimd<float>& a = attention_simd(simd<float>(""));      // of the same instruction set
//
// A tile [M, N] holds the logits of M queries (rows) and N pairs (columns). A query sees a run of pairs that moves on
// by one from row to row: causality and windows are bounds of loops, and what a query does not see is not read.
#pragma once

#include <cstddef>

#include "simd/simd.h"

namespace ttr {

/// What is visible of a tile [M, N]: row i has columns [lo + i, hi + i), cut to [0, N).
struct MaskRange {
  using Size = std::ptrdiff_t;
  static constexpr Size no_limit = Size{1} << 48;  // as lo (with a minus) or hi: no bound on that side

  Size M, N, lo, hi;
  static MaskRange everything(Size M, Size N) { return {M, N, -no_limit, no_limit}; }
  Size begin(Size i) const { return lo + i <= 0 ? 0 : lo + i >= N ? N : lo + i; }
  Size end(Size i) const { return hi + i >= N ? N : hi + i <= 0 ? 0 : hi + i; }
  bool nothing() const { return hi + M - 1 <= 0 || lo >= N; }
  bool all() const { return hi >= N && lo + M - 1 <= 0; }
};

template <class T>
struct AttentionSimd {
  using Size = std::ptrdiff_t;

  /// What is added to the logits: bias_ij at i ld + j (ld = 0: one row for all), and row_i. Null: nothing.
  struct Bias {
    const T* bias = nullptr;
    Size ld = 0;
    const T* row = nullptr;
  };

  /// One block of the streaming softmax, x = S + bias:
  ///   m' = max(m, max_j x_j) ;  S_j = exp(x_j - m') ;  factor = exp(m - m') ;  l = factor l + sum_j S_j ;  m = m'
  /// S is 0 where it is not visible. A row of -inf leaves m and l alone. True if some factor is not 1.
  /// free = false: m stays as it is.
  bool (*softmax)(const MaskRange&, const Bias&, bool free, T* S, Size lds, T* m, T* l, T* factor);
  /// The sums of such a block alone, S is left as it is, and those of X weighted alike:
  ///   sum = factor sum + sum_j exp(x_j - m') X_j
  void (*gather)(const MaskRange&, const Bias&, const T* S, const T* X, Size ld, T* m, T* l, T* sum);
  /// P = exp(S + bias - lse) ;  X = P * (X - delta) ; both 0 where not visible. lse = -inf: P = 0. P = S is allowed.
  /// bounded: S + bias <= lse, but for rounding. moment (null: not wanted) += sum X S
  void (*softmax_back)(const MaskRange&, const Bias&, bool bounded, const T* lse, const T* delta, const T* S, T* P,
                       T* X, Size ld, double* moment);

  /// Weights that are no softmax: f(x) = (c0 + c1 x + c2 x^2) e^{rate x}
  struct Polynomial {
    T c[3] = {0, 1, 0};
    T rate = 0;
  };
  /// S = f(S) e^bias, 0 where it is not visible ;  l += sum_j S_j
  void (*weigh)(const MaskRange&, const Bias&, const Polynomial&, T* S, Size lds, T* l);
  /// With E = inverse e^bias, all 0 where not visible:  P = f(S) E ;  Y = P * (X - delta) ;  X = f'(S) E * (X - delta).
  /// P = S is allowed. Y null: not wanted.
  void (*weigh_back)(const MaskRange&, const Bias&, const Polynomial&, const T* inverse, const T* delta, const T* S,
                     T* P, T* X, T* Y, Size ld);

  /// C_ij = alpha |a_i - b_j|^2 for A [M,K] and B stored [K,N]: differences, so that nothing cancels far from 0.
  void (*distances)(Size M, Size N, Size K, T alpha, const T* A, Size lda, const T* B, Size ldb, T* C, Size ldc);
  /// y_j = alpha q.x_j, or with `apart` alpha |q - x_j|^2, for rows of X [n,K]
  void (*scores)(Size n, Size K, bool apart, T alpha, const T* X, Size ldx, const T* q, T* y);

  /// rows_i += sum_j X_ij ;  columns_j += sum_i X_ij
  void (*add_sums)(Size M, Size N, const T* X, Size ldx, double* rows, double* columns);
  /// No Inf and no NaN among n numbers
  bool (*finite)(Size n, const T* x);
};

/// The table for the instruction set of `simd`. Does not allocate.
template <class T>
const AttentionSimd<T>& attention_simd(const Simd<T>& simd) noexcept;
/// Its twin that counts multiply-adds (simd/count.h).
template <class T>
const AttentionSimd<T>& counted_table(const AttentionSimd<T>&) noexcept;

}  // namespace ttr
