// Register-blocked matrix products, compiled once per instruction set (included by products_f32.cc and
// products_f64.cc).
//
// Every product is made of tiles of R rows by NV vectors: accumulators stay in registers, a row of B is loaded, an
// element of A is broadcast. 6 x 2 fills the 16 registers of AVX2. AVX-512 has 8 x 2, because chunks have multiples of 8
// rows, and 12 x 2 where there are more of them: fewer loads for as many products. B is used where it lies: a panel of 2
// vectors by K rows fits L1 at the sizes of a chunk. Accumulator arrays forbid scalable vectors (SVE, RVV).
//
// A tile is compiled for every shape and sum it may have, so what does not cost time in the loop is an argument: alpha,
// beta and what is added are read from memory by rows, and a product with a triangle on top is the triangle's tile.
#if defined(TTR_SIMD_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_TILES_INL_H_
#undef TTR_SIMD_TILES_INL_H_
#else
#define TTR_SIMD_TILES_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "hwy/highway.h"
#include "simd/lanes-inl.h"
#include "simd/panels-inl.h"
#include "simd/simd.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

#if HWY_CAP_GE512
constexpr int kRows = 8, kTall = 12;
#else
constexpr int kRows = kBaseline ? 4 : 6, kTall = kRows;
#endif
constexpr int kWide = kBaseline ? 1 : 2;  // vectors of a tile

enum class Op { gemm, trmm, solve };  // trmm: after a product of its own, if there is one

template <class T>
struct Product {
  Size M, K;
  T alpha;
  const T* A;
  Size lda;
  const T* B;
  Size ldb;
  T beta;
  T* C;
  Size ldc;
  const T *rows = nullptr, *alphas = nullptr;  // beta and alpha of every row, in place of those above
  const T* onto = nullptr;                     // gemm: what beta multiplies, if it is not C
  Size ld_onto = 0;
  const T* gates = nullptr;  // gemm with beta = 0: factors of the elements
  Size ld_gates = 0;
  Size K1 = 0;  // trmm: diag(alphas) A1 B1 comes first, alphas = null: 1
  const T* A1 = nullptr;
  Size lda1 = 0;
  const T* B1 = nullptr;
  Size ldb1 = 0;
  Hints* hints = nullptr;
};

// One tile: rows i0 .. i0+R-1 and NV vectors of columns starting at column j (part: the one vector has n lanes).
// gemm sums over all p; trmm and solve over the rows of B that the triangle reaches, the tile's own R rows last (nn)
// or first (tn), so that the order is ascending either way. trmm begins with the sum of a whole product, and a factor
// for every row of it, if it is given one.
template <Op op, bool kTransA, int R, int NV, bool kPart, class T>
HWY_NOINLINE void Tile(const Product<T>& x, Size i0, Size j, Size n) {
  static_assert(!kPart || NV == 1);
  const Tag<T> d;
  constexpr Size L = Width<T>();
  const Size row = kTransA ? 1 : x.lda, col = kTransA ? x.lda : 1;
  const T* const A = x.A + i0 * row;
  const T* const B = x.B + j;
  const Size ldb = x.ldb;

  Vec<T> acc[R][NV];
  TTR_UNROLL for (int r = 0; r < R; ++r) { TTR_UNROLL for (int v = 0; v < NV; ++v) acc[r][v] = hn::Zero(d); }

  const auto sum = [&](Size terms, const T* a_p, Size row_a, Size col_a, const T* b_p, Size ld) HWY_ATTR {
    const auto add = [&](Size count) HWY_ATTR {
      for (Size p = 0; p < count; ++p, a_p += col_a, b_p += ld) {
        Vec<T> b[NV];
        TTR_UNROLL for (int v = 0; v < NV; ++v) b[v] = LoadMaybe<kPart>(b_p + v * L, n);
        TTR_UNROLL for (int r = 0; r < R; ++r) {
          const Vec<T> a = hn::Set(d, a_p[r * row_a]);
          TTR_UNROLL for (int v = 0; v < NV; ++v) acc[r][v] = hn::MulAdd(a, b[v], acc[r][v]);
        }
      }
    };
    if constexpr (op != Op::solve && R >= kRows && NV == kWide) {
      Hints* const hints = x.hints;
      for (; hints && terms >= Hints::round; terms -= Hints::round) add(Hints::round), GiveHints(*hints, R * NV);
    }
    add(terms);
  };
  if (op == Op::trmm && x.K1 > 0) {
    sum(x.K1, x.A1 + i0 * x.lda1, x.lda1, 1, x.B1 + j, x.ldb1);
    if (x.alphas) {
      TTR_UNROLL for (int r = 0; r < R; ++r) {
        const Vec<T> factor = hn::Set(d, x.alphas[i0 + r]);
        TTR_UNROLL for (int v = 0; v < NV; ++v) acc[r][v] = hn::Mul(factor, acc[r][v]);
      }
    }
  }
  const auto diagonal = [&]() HWY_ATTR {
    TTR_UNROLL for (int s = 0; s < R; ++s) {
      Vec<T> b[NV];
      TTR_UNROLL for (int v = 0; v < NV; ++v) b[v] = LoadMaybe<kPart>(B + (i0 + s) * ldb + v * L, n);
      TTR_UNROLL for (int r = 0; r < R; ++r) {
        if (kTransA ? r > s : r < s) continue;
        const Vec<T> a = hn::Set(d, A[r * row + (i0 + s) * col]);
        TTR_UNROLL for (int v = 0; v < NV; ++v) acc[r][v] = hn::MulAdd(a, b[v], acc[r][v]);
      }
    }
  };
  if constexpr (op == Op::trmm && kTransA) diagonal();

  const Size begin = op != Op::gemm && kTransA ? i0 + R : 0;
  const Size whole = op == Op::solve ? i0 / kRows * kRows : i0;  // see below
  const Size end = op != Op::gemm && !kTransA ? whole : x.K;
  sum(end - begin, A + begin * col, row, col, B + begin * ldb, ldb);
  if constexpr (op == Op::trmm && !kTransA) diagonal();

  T* const C = x.C + i0 * x.ldc + j;
  if constexpr (op == Op::solve) {
    TTR_UNROLL for (int r = 0; r < R; ++r) {
      TTR_UNROLL for (int v = 0; v < NV; ++v) acc[r][v] =
          hn::Sub(LoadMaybe<kPart>(C + r * x.ldc + v * L, n), acc[r][v]);
    }
    // Solved rows of a whole tile's height are taken off one by one, whether they lie in this tile or in a smaller
    // one before it: so a row does not depend on how many follow.
    for (Size p = whole; !kTransA && p < i0; ++p) {
      TTR_UNROLL for (int r = 0; r < R; ++r) {
        const Vec<T> a = hn::Set(d, A[r * row + p * col]);
        TTR_UNROLL for (int v = 0; v < NV; ++v) acc[r][v] =
            hn::NegMulAdd(a, LoadMaybe<kPart>(B + p * ldb + v * L, n), acc[r][v]);
      }
    }
    TTR_UNROLL for (int step = 1; step < R; ++step) {
      const int r = kTransA ? R - 1 - step : step;
      TTR_UNROLL for (int done = 0; done < step; ++done) {
        const int s = kTransA ? R - 1 - done : done;
        const Vec<T> a = hn::Set(d, A[r * row + (i0 + s) * col]);
        TTR_UNROLL for (int v = 0; v < NV; ++v) acc[r][v] = hn::NegMulAdd(a, acc[s][v], acc[r][v]);
      }
    }
    TTR_UNROLL for (int r = 0; r < R; ++r) {
      TTR_UNROLL for (int v = 0; v < NV; ++v) StoreMaybe<kPart>(acc[r][v], C + r * x.ldc + v * L, n);
    }
    return;
  }
  if constexpr (op == Op::gemm && !kTransA) {
    if (x.gates) {
      const Vec<T> alpha = hn::Set(d, x.alpha);
      const T* const gates = x.gates + i0 * x.ld_gates + j;
      TTR_UNROLL for (int r = 0; r < R; ++r) {
        TTR_UNROLL for (int v = 0; v < NV; ++v) {
          const Vec<T> gate = LoadMaybe<kPart>(gates + r * x.ld_gates + v * L, n);
          StoreMaybe<kPart>(hn::Mul(hn::Mul(alpha, gate), acc[r][v]), C + r * x.ldc + v * L, n);
        }
      }
      return;
    }
  }
  if constexpr (op != Op::solve) {
    const bool by_rows = op == Op::gemm && x.alphas;
    const T *const factors = by_rows ? x.alphas + i0 : &x.alpha, *const decays = x.rows ? x.rows + i0 : &x.beta;
    const Size factor_step = by_rows ? 1 : 0, decay_step = x.rows ? 1 : 0;
    if (x.beta == T(0)) {
      TTR_UNROLL for (int r = 0; r < R; ++r) {
        const Vec<T> factor = hn::Set(d, factors[r * factor_step]);
        TTR_UNROLL for (int v = 0; v < NV; ++v)
            StoreMaybe<kPart>(hn::Mul(factor, acc[r][v]), C + r * x.ldc + v * L, n);
      }
      return;
    }
    const T* const onto = x.onto ? x.onto + i0 * x.ld_onto + j : C;
    const Size ld_onto = x.onto ? x.ld_onto : x.ldc;
    TTR_UNROLL for (int r = 0; r < R; ++r) {
      const Vec<T> factor = hn::Set(d, factors[r * factor_step]), decay = hn::Set(d, decays[r * decay_step]);
      TTR_UNROLL for (int v = 0; v < NV; ++v) {
        const Vec<T> old = LoadMaybe<kPart>(onto + r * ld_onto + v * L, n);
        StoreMaybe<kPart>(hn::MulAdd(decay, old, hn::Mul(factor, acc[r][v])), C + r * x.ldc + v * L, n);
      }
    }
  }
}

// Rows of the next tile when `left` remain: full tiles, then 4, 2 and 1; 8 rows are 4 + 4 rather than 6 + 2, but not
// in a solve, whose tiles must start where those of a longer one would. The baseline has full tiles and single rows.
template <Op op = Op::gemm>
HWY_INLINE constexpr Size NextRows(Size left) {
  if (left >= kRows && !(kRows == 6 && left == 8 && op != Op::solve)) return kRows;
  return kBaseline ? 1 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

template <Op op, bool kTransA, int NV, bool kPart, class T>
HWY_INLINE void TileOf(Size rows, const Product<T>& x, Size i, Size j, Size n) {
  if (rows == kRows) return Tile<op, kTransA, kRows, NV, kPart>(x, i, j, n);
  if constexpr (!kBaseline) {
    if (rows == 4) return Tile<op, kTransA, 4, NV, kPart>(x, i, j, n);
    if (rows == 2) return Tile<op, kTransA, 2, NV, kPart>(x, i, j, n);
  }
  Tile<op, kTransA, 1, NV, kPart>(x, i, j, n);
}

// With AVX-512 a whole vector is a part with all of its lanes, at the same speed: one shape less. But not in a solve,
// which loads what it has just stored, nor with AVX2, whose masked stores are slow on some machines.
template <Op op>
constexpr bool kAlwaysPart = HWY_CAP_GE512&& op != Op::solve;

// Tall tiles, unless that leaves fewer rows than another tile has: 16 are 8 + 8, and 64 are 4 x 12 + 2 x 8. Not where the
// rows of A lie a multiple of 2 KB apart, as those of a head do: the first cache has no room for 12 such lines.
HWY_INLINE constexpr bool IsTall(Size left) { return kTall > kRows && (left == kTall || left >= kTall + kRows); }

// All row tiles of one column panel; a transposed solve starts at the bottom. kLower: only rows that reach the
// diagonal, and only the first vector where the second one lies above it.
template <Op op, bool kTransA, bool kLower, int NV, bool kPart, class T>
HWY_INLINE void Panel(const Product<T>& x, Size j, Size n) {
  for (Size done = kLower ? j : 0; done < x.M;) {
    if constexpr (op == Op::gemm && !kLower && NV == kWide && kTall > kRows) {
      if (IsTall(x.M - done) && (kTransA || x.lda * Size{sizeof(T)} % 2048 != 0)) {
        Tile<op, kTransA, kTall, NV, kPart>(x, done, j, n);
        done += kTall;
        continue;
      }
    }
    const Size rows = NextRows<op>(x.M - done);
    const Size i = op == Op::solve && kTransA ? x.M - done - rows : done;
    done += rows;
    if constexpr (kLower && NV == 2) {
      if (i + rows <= j + n) {
        TileOf<op, kTransA, 1, kAlwaysPart<op>>(rows, x, i, j, n);
        continue;
      }
    }
    TileOf<op, kTransA, NV, kPart>(rows, x, i, j, n);
  }
}

template <Op op, bool kTransA, bool kLower, class T>
HWY_INLINE void Panels(const Product<T>& x, Size N) {
  constexpr Size L = Width<T>();
  Size j = 0;
  for (; j + kWide * L <= N; j += kWide * L) Panel<op, kTransA, kLower, kWide, false>(x, j, L);
  if constexpr (kWide > 1 && !kAlwaysPart<op>)
    if (j + L <= N) Panel<op, kTransA, kLower, 1, false>(x, j, L), j += L;
  if constexpr (L > 1)
    for (; j < N; j += L) Panel<op, kTransA, kLower, 1, true>(x, j, std::min(L, N - j));
}

template <class T>
void GemmNN(Size M, Size N, Size K, T alpha, const T* A, Size lda, const T* B, Size ldb, T beta, T* C, Size ldc) {
  Panels<Op::gemm, false, false>(Product<T>{M, K, alpha, A, lda, B, ldb, beta, C, ldc}, N);
}
template <class T>
void GemmTN(Size M, Size N, Size K, T alpha, const T* A, Size lda, const T* B, Size ldb, T beta, T* C, Size ldc) {
  Panels<Op::gemm, true, false>(Product<T>{M, K, alpha, A, lda, B, ldb, beta, C, ldc}, N);
}
template <class T>
void GemmTNRows(Size M, Size N, Size K, const T* alpha, const T* A, Size lda, const T* B, Size ldb, const T* beta,
                T* C, Size ldc) {
  Panels<Op::gemm, true, false>(Product<T>{M, K, T(1), A, lda, B, ldb, T(1), C, ldc, beta, alpha}, N);
}
template <bool kTransA, class T>
void GemmOnto(Size M, Size N, Size K, const T* alpha, const T* A, Size lda, const T* B, Size ldb, T beta, const T* F,
              Size ldf, T* C, Size ldc, Hints* hints) {
  Product<T> x{M, K, T(1), A, lda, B, ldb, F ? beta : T(0), C, ldc, nullptr, alpha};
  x.hints = hints;
  if (F) x.onto = F, x.ld_onto = ldf;
  Panels<Op::gemm, kTransA, false>(x, N);
}
template <class T>
void GemmNNOnto(Size M, Size N, Size K, const T* alpha, const T* A, Size lda, const T* B, Size ldb, T beta,
                const T* F, Size ldf, T* C, Size ldc, Hints* hints) {
  GemmOnto<false>(M, N, K, alpha, A, lda, B, ldb, beta, F, ldf, C, ldc, hints);
}
template <class T>
void GemmTNOnto(Size M, Size N, Size K, const T* alpha, const T* A, Size lda, const T* B, Size ldb, T beta,
                const T* F, Size ldf, T* C, Size ldc, Hints* hints) {
  GemmOnto<true>(M, N, K, alpha, A, lda, B, ldb, beta, F, ldf, C, ldc, hints);
}
template <bool kTransL, class T>
void GemmTrmm(Size M, Size N, Size K, const T* alpha, const T* A, Size lda, const T* B, Size ldb, const T* L,
              Size ldl, const T* B2, Size ldb2, T* C, Size ldc, Hints* hints) {
  Product<T> x{M, M, T(1), L, ldl, B2, ldb2, T(0), C, ldc, nullptr, alpha};
  x.hints = hints, x.K1 = K, x.A1 = A, x.lda1 = lda, x.B1 = B, x.ldb1 = ldb;
  Panels<Op::trmm, kTransL, false>(x, N);
}
template <class T>
void GemmTrmmNN(Size M, Size N, Size K, const T* alpha, const T* A, Size lda, const T* B, Size ldb, const T* L,
                Size ldl, const T* B2, Size ldb2, T* C, Size ldc, Hints* hints) {
  GemmTrmm<false>(M, N, K, alpha, A, lda, B, ldb, L, ldl, B2, ldb2, C, ldc, hints);
}
template <class T>
void GemmTrmmTN(Size M, Size N, Size K, const T* alpha, const T* A, Size lda, const T* B, Size ldb, const T* L,
                Size ldl, const T* B2, Size ldb2, T* C, Size ldc, Hints* hints) {
  GemmTrmm<true>(M, N, K, alpha, A, lda, B, ldb, L, ldl, B2, ldb2, C, ldc, hints);
}
template <class T>
void GemmLowerGated(Size M, Size K, T alpha, const T* A, Size lda, const T* B, Size ldb, const T* D, Size ldd, T* C,
                    Size ldc) {
  Product<T> x{M, K, alpha, A, lda, B, ldb, T(0), C, ldc};
  x.gates = D, x.ld_gates = ldd;
  Panels<Op::gemm, false, true>(x, M);
}
template <class T>
void GemmLower(Size M, Size K, T alpha, const T* A, Size lda, const T* B, Size ldb, T* C, Size ldc) {
  Panels<Op::gemm, false, true>(Product<T>{M, K, alpha, A, lda, B, ldb, T(0), C, ldc}, M);
}
template <class T>
void TrmmNN(Size M, Size N, T alpha, const T* L, Size ldl, const T* B, Size ldb, T beta, T* C, Size ldc) {
  Panels<Op::trmm, false, false>(Product<T>{M, M, alpha, L, ldl, B, ldb, beta, C, ldc}, N);
}
template <class T>
void TrmmTN(Size M, Size N, T alpha, const T* L, Size ldl, const T* B, Size ldb, T beta, T* C, Size ldc) {
  Panels<Op::trmm, true, false>(Product<T>{M, M, alpha, L, ldl, B, ldb, beta, C, ldc}, N);
}
template <class T>
void SolveNN(Size M, Size N, const T* L, Size ldl, T* X, Size ldx) {
  Panels<Op::solve, false, false>(Product<T>{M, M, T(1), L, ldl, X, ldx, T(0), X, ldx}, N);
}
template <class T>
void SolveTN(Size M, Size N, const T* L, Size ldl, T* X, Size ldx) {
  Panels<Op::solve, true, false>(Product<T>{M, M, T(1), L, ldl, X, ldx, T(0), X, ldx}, N);
}

// B' is made panel by panel in a buffer on the stack (16 KB at most); every element of B is moved once.
template <class T>
void GemmNT(Size M, Size N, Size K, T alpha, const T* A, Size lda, const T* B, Size ldb, T beta, T* C, Size ldc) {
  constexpr Size L = Width<T>(), kDepth = 128;
  HWY_ALIGN T buffer[kDepth * 2 * L];
  if (K == 0) return GemmNN<T>(M, N, 0, alpha, A, lda, B, ldb, beta, C, ldc);
  for (Size j = 0; j < N; j += 2 * L) {
    const Size n = std::min(2 * L, N - j);
    for (Size p = 0; p < K; p += kDepth) {
      const Size depth = std::min(kDepth, K - p);
      Transpose<T>(n, depth, B + j * ldb + p, ldb, buffer, 2 * L);
      const Product<T> x{M, depth, alpha, A + p, lda, buffer, 2 * L, p == 0 ? beta : T(1), C + j, ldc};
      Panels<Op::gemm, false, false>(x, n);
    }
  }
}

template <class T>
void Gram(Size M, Size K, const T* A, Size lda, T* C, Size ldc) {
  constexpr Size L = Width<T>(), kDepth = 128;
  HWY_ALIGN T buffer[kDepth * 2 * L];
  for (Size j = 0; j < M; j += 2 * L) {
    const Size n = std::min(2 * L, M - j);
    for (Size p = 0; p < K; p += kDepth) {
      const Size depth = std::min(kDepth, K - p);
      Transpose<T>(n, depth, A + j * lda + p, lda, buffer, 2 * L);
      Panels<Op::gemm, false, false>(Product<T>{M - j, depth, T(1), A + j * lda + p, lda, buffer, 2 * L,
                                                p == 0 ? T(0) : T(1), C + j * ldc + j, ldc},
                                     n);
    }
    Transpose<T>(M - j - n, n, C + (j + n) * ldc + j, ldc, C + j * ldc + j + n, ldc);
  }
}

template <class T>
const Products<T>* ProductsTable() {
  static const Products<T> table = {
      .gemm_nn = GemmNN<T>,
      .gemm_tn = GemmTN<T>,
      .gemm_nt = GemmNT<T>,
      .gemm_lower = GemmLower<T>,
      .trmm_nn = TrmmNN<T>,
      .trmm_tn = TrmmTN<T>,
      .solve_nn = SolveNN<T>,
      .solve_tn = SolveTN<T>,
      .gemm_tn_rows = GemmTNRows<T>,
      .gemm_nn_onto = GemmNNOnto<T>,
      .gemm_tn_onto = GemmTNOnto<T>,
      .gemm_trmm_nn = GemmTrmmNN<T>,
      .gemm_trmm_tn = GemmTrmmTN<T>,
      .gemm_lower_gated = GemmLowerGated<T>,
      .gram = Gram<T>,
  };
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
