// A small closed set of SIMD primitives, compiled once per instruction set and chosen once, when planning.
//
//   const Simd<float>& s = simd<float>("");            // the best of this machine; "AVX2" forces that one
//   s.gemm_nn(M, N, K, 1, A, lda, B, ldb, 0, C, ldc);  // C [M,N] = A [M,K] B [K,N]
//
// Matrices are row-major with a leading dimension in elements. Sizes may be zero. No pointer needs an alignment
// and nothing outside the named elements is read or written, so a result depends on the numbers alone, never on
// where they lie or on what lies beside them. Products accumulate in ascending order of the summed index with one
// fused (or, below AVX2, separate) multiply-add per term.
//
// In gemm-like primitives  C = alpha (product) + beta C ; with beta = 0 the old C is not read (it may hold NaN).
// C must not overlap A or B.
//
// What a family alone needs is not here: it has a table of its own beside it (state_simd.h of the linear families,
// attention_simd.h, ..), found by the instruction set of a Simd.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ttr {

/// Memory to ask for while products are at work: rows of bytes, a strip of at most four cache lines at a time. No
/// address is wrong. The products that take Hints move them on; null: none.
struct Hints {
  static constexpr int most = 8;
  static constexpr std::ptrdiff_t strip = 256, round = 8;  // bytes; summands between two looks at the hints
  struct Rows {
    const char* data;
    std::ptrdiff_t step, bytes, rows;
  };
  Rows pieces[most];
  int count = 0, at = 0;
  std::ptrdiff_t done = 0;               // bytes of the row at hand
  std::ptrdiff_t every = 1, credit = 0;  // rounds of one vector between two strips
};

/// Products of matrices (tiles-inl.h).
template <class T>
struct Products {
  using Size = std::ptrdiff_t;

  /// C [M,N] = alpha A B + beta C, A [M,K], B [K,N]
  using Gemm = void (*)(Size M, Size N, Size K, T alpha, const T* A, Size lda, const T* B, Size ldb, T beta, T* C,
                        Size ldc);
  Gemm gemm_nn;
  Gemm gemm_tn;  // A is stored [K,M]
  Gemm gemm_nt;  // B is stored [N,K]
  /// As gemm_nn with M = N, but only C_ij with j <= i is defined; other entries may be overwritten with anything.
  void (*gemm_lower)(Size M, Size K, T alpha, const T* A, Size lda, const T* B, Size ldb, T* C, Size ldc);

  /// C [M,N] = alpha tril(L) B + beta C and alpha tril(L)' B + beta C; L [M,M] is not read above its diagonal, and
  /// row i of tril(L) B does not touch rows of B below i.
  using Trmm = void (*)(Size M, Size N, T alpha, const T* L, Size ldl, const T* B, Size ldb, T beta, T* C, Size ldc);
  Trmm trmm_nn, trmm_tn;

  /// X [M,N] <- (I + stril(L))^{-1} X and (I + stril(L))^{-T} X; L is read below its diagonal only.
  using Solve = void (*)(Size M, Size N, const T* L, Size ldl, T* X, Size ldx);
  Solve solve_nn, solve_tn;
  /// C [M,N] = diag(alpha) A B + diag(beta) C, A stored [K,M]; alpha = null: 1
  void (*gemm_tn_rows)(Size M, Size N, Size K, const T* alpha, const T* A, Size lda, const T* B, Size ldb,
                       const T* beta, T* C, Size ldc);

  /// C [M,N] = diag(a) A B + b F, A [M,K] (tn: stored [K,M]); a = null: 1. F = null: nothing is added; F may be C.
  using Onto = void (*)(Size M, Size N, Size K, const T* a, const T* A, Size lda, const T* B, Size ldb, T b,
                        const T* F, Size ldf, T* C, Size ldc, Hints* hints);
  Onto gemm_nn_onto, gemm_tn_onto;
  /// C [M,N] = diag(a) A B + tril(L) B2, and with tril(L)': A [M,K], L as in trmm, B2 [M,N]; a = null: 1.
  using Joint = void (*)(Size M, Size N, Size K, const T* a, const T* A, Size lda, const T* B, Size ldb, const T* L,
                         Size ldl, const T* B2, Size ldb2, T* C, Size ldc, Hints* hints);
  Joint gemm_trmm_nn, gemm_trmm_tn;
  /// gemm_lower with C_ij = alpha D_ij (A B)_ij. D [M,M] may hold anything above its diagonal, but is read there.
  void (*gemm_lower_gated)(Size M, Size K, T alpha, const T* A, Size lda, const T* B, Size ldb, const T* D, Size ldd,
                           T* C, Size ldc);
  /// C [M,M] = A A' for A [M,K]: one triangle is computed, the other is its mirror image.
  void (*gram)(Size M, Size K, const T* A, Size lda, T* C, Size ldc);
};

/// Loops over vectors and over the rows of matrices (vectors-inl.h).
template <class T>
struct Vectors {
  using Size = std::ptrdiff_t;

  int lanes;  // numbers per vector

  /// B [N,M] = A' for A [M,N]
  void (*transpose)(Size M, Size N, const T* A, Size lda, T* B, Size ldb);
  /// Y_i = s_i X_i for the rows of X [M,N]; X = Y is allowed.
  void (*scale_rows)(Size M, Size N, const T* s, const T* X, Size ldx, T* Y, Size ldy);
  /// out_i = X_i . Y_i for rows of length N
  void (*row_dots)(Size M, Size N, const T* X, Size ldx, const T* Y, Size ldy, T* out);

  /// D_ij = exp(g_{j+1} + .. + g_i) for j <= i, D [C,C]; nothing above the diagonal is written. Made of sums of
  /// gates and products of at most 16 factors, never of differences: no cancellation under strong gates, and g = -inf
  /// is a closed gate. `sums` [C] is scratch.
  void (*gate_matrix)(Size C, const T* g, T* sums, T* D, Size ldd);
  /// X_ij <- s_i D_{i-shift,j} X_ij for j <= i (strict: j < i; then the diagonal becomes 0). s = null: 1, D =
  /// null: 1. shift is 0 or, with strict, 1.
  void (*gate_lower)(Size C, bool strict, Size shift, const T* s, const T* D, Size ldd, T* X, Size ldx);

  /// Y_ij = s_j X_ij for X [M,N]; X = Y is allowed.
  void (*scale_columns)(Size M, Size N, const T* s, const T* X, Size ldx, T* Y, Size ldy);

  void (*mul)(Size n, const T* x, const T* y, T* z);      // z = x y, element by element; z may be x or y
  void (*mul_add)(Size n, const T* x, const T* y, T* z);  // z += x y

  void (*axpy)(Size n, T a, const T* x, T* y);   // y += a x
  void (*scale)(Size n, T a, const T* x, T* y);  // y = a x
  T (*dot)(Size n, const T* x, const T* y);
  void (*exp)(Size n, const T* x, T* y);  // 0 below the smallest normal number, inf above the largest

  /// y [V] = S' x and y [K] = S x for S [K,V]
  void (*vec_mat)(Size K, Size V, const T* x, const T* S, Size lds, T* y);
  void (*mat_vec)(Size K, Size V, const T* S, Size lds, const T* x, T* y);
  /// S <- a S + k u'
  void (*rank_one)(Size K, Size V, T a, const T* k, const T* u, T* S, Size lds);
  /// Z_ij = X_ij Y_ij for [M,N]; Z may be X or Y.
  void (*mul_rows)(Size M, Size N, const T* X, Size ldx, const T* Y, Size ldy, T* Z, Size ldz);
  /// up_i = exp(G_i) and down_i = exp(-G_i), both [C+1,D], for G_0 = 0, G_i = g_1 + .. + g_i. Returns for how many of
  /// the C rows of g all |G_i| up to there are within the limit (at most 80); beyond, up and down are undefined.
  Size (*gate_reach)(Size C, Size D, const T* g, Size ldg, T limit, T* up, T* down);
  /// Z_ij += X_ij Y_ij for [M,N]
  void (*mul_add_rows)(Size M, Size N, const T* X, Size ldx, const T* Y, Size ldy, T* Z, Size ldz);
  /// Rows x [C,D], contiguous, and the gradient of what the gates made of them: a reader, with its own gate or `before`
  /// it, or a writer.
  struct GateTerm {
    const T *x, *dx;
    bool writer, before;
  };
  /// The gradient of gates, out_i += last + sum_{j>=i} (readers x_j dx_j, writers -x_j dx_j), `before` only j > i;
  /// last [D]. The terms nearly cancel: the sums are kept in double. At most 8 terms. fresh: out holds nothing yet.
  void (*gate_gradient)(Size C, Size D, const GateTerm* terms, int count, const T* last, bool fresh, T* out,
                        Size ldo);
  /// out_i = sum_{j<i} (last_j + sum_{r>=i} M_rj) for i < C; of M [C,C] only what lies below the diagonal is read.
  void (*pair_sums)(Size C, const T* M, Size ldm, const T* last, T* out);
  /// A hint that the M rows of N numbers will be used soon; no address is wrong.
  void (*prefetch_rows)(Size M, Size N, const T* X, Size ldx);

  /// Y_i += a_i X_i + X2_i and dots_i = Z_i . X_i, dots2_i = Z_i . X2_i for rows of length N. Y = null: only
  /// the dots; Z = null: none; X2 = null: zero (dots2 is left alone); a = null: 1.
  void (*add_rows_dots)(Size M, Size N, const T* a, const T* X, Size ldx, const T* X2, Size ldx2, const T* Z,
                        Size ldz, T* Y, Size ldy, T* dots, T* dots2);
};

/// The primitives of one instruction set.
template <class T>
struct Simd : Products<T>, Vectors<T> {
  using Size = std::ptrdiff_t;

  const char* name;      // as Highway spells it: "AVX3", "AVX2", "SSE4", "EMU128", "SCALAR"
  long long target;      // the bit of that set, by which other tables of the same set are found (dispatch.h)
  bool counted = false;  // count.h
};

/// The table of an instruction set ("AVX2"), or of the best one here (""). Throws Error that lists what there is.
template <class T>
const Simd<T>& simd(std::string_view target);
/// The same with functions that count their multiply-adds (count.h). Throws Error on a second instruction set.
template <class T>
const Simd<T>& counted_simd(std::string_view target);

/// Instruction sets compiled in and runnable on this machine, best first.
std::vector<std::string> simd_targets();

namespace simd_detail {
/// What was compiled for a Highway target bit.
template <class T>
const Products<T>& products(long long target);
template <class T>
const Vectors<T>& vectors(long long target);
/// Highway target bits compiled in and runnable, best first.
std::vector<long long> runnable();
}  // namespace simd_detail

}  // namespace ttr
