// Register-blocked matrix products, compiled once per instruction set (included by simd_f32.cc and simd_f64.cc).
//
// Every product is made of tiles of R rows by NV vectors: accumulators stay in registers, a row of B is loaded, an
// element of A is broadcast. 6 x 2 fills the 16 registers of AVX2, 8 x 2 leaves AVX-512 room. B is used where it
// lies: a panel of 2 vectors by K rows fits L1 at the sizes of a chunk. Accumulator arrays forbid scalable vectors
// (SVE, RVV).
#if defined(TTR_SIMD_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_TILES_INL_H_
#undef TTR_SIMD_TILES_INL_H_
#else
#define TTR_SIMD_TILES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "hwy/highway.h"
#include "simd/simd.h"

#undef TTR_UNROLL
#if HWY_COMPILER_CLANG
#define TTR_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TTR_UNROLL _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Size = std::ptrdiff_t;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vec = hn::Vec<Tag<T>>;
template <class T>
HWY_INLINE constexpr Size Width() {
  return static_cast<Size>(hn::MaxLanes(Tag<T>()));
}

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
constexpr int kRows = 4;
#elif HWY_CAP_GE512
constexpr int kRows = 8;
#else
constexpr int kRows = 6;
#endif

// The masked loads of AVX2 and AVX-512 touch only the lanes they name; elsewhere a masked load may read the whole
// vector.
#undef TTR_MASKS_ARE_SAFE
#define TTR_MASKS_ARE_SAFE (HWY_TARGET == HWY_AVX2 || HWY_CAP_GE512)

template <class T>
HWY_INLINE Vec<T> LoadPart(const T* p, Size n) {
  const Tag<T> d;
#if TTR_MASKS_ARE_SAFE
  return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, p);
#else
  HWY_ALIGN T buffer[hn::MaxLanes(d)] = {};
  std::memcpy(buffer, p, static_cast<size_t>(n) * sizeof(T));
  return hn::Load(d, buffer);
#endif
}

template <class T>
HWY_INLINE void StorePart(Vec<T> v, T* p, Size n) {
  const Tag<T> d;
#if TTR_MASKS_ARE_SAFE
  hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(n)), d, p);
#else
  HWY_ALIGN T buffer[hn::MaxLanes(d)];
  hn::Store(v, d, buffer);
  std::memcpy(p, buffer, static_cast<size_t>(n) * sizeof(T));
#endif
}

template <bool kPart, class T>
HWY_INLINE Vec<T> LoadMaybe(const T* p, Size n) {
  if constexpr (kPart) return LoadPart(p, n);
  return hn::LoadU(Tag<T>(), p);
}
template <bool kPart, class T>
HWY_INLINE void StoreMaybe(Vec<T> v, T* p, Size n) {
  if constexpr (kPart) StorePart(v, p, n);
  else hn::StoreU(v, Tag<T>(), p);
}

enum class Op { gemm, trmm, solve, joint };  // joint: a product, then a triangle on top

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
  Size K1 = 0;  // joint: diag(alphas) A1 B1 comes first, alphas = null: 1
  const T* A1 = nullptr;
  Size lda1 = 0;
  const T* B1 = nullptr;
  Size ldb1 = 0;
  Hints* hints = nullptr;
};

HWY_INLINE void Prefetch([[maybe_unused]] const char* p) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  __builtin_prefetch(p, 0, 2);
#endif
}
// Called between rounds of the sum with the number of accumulators at work.
HWY_INLINE void GiveHints(Hints& h, Size vectors) {
  for (h.credit += vectors; h.credit >= h.every && h.at < h.count; h.credit -= h.every) {
    Hints::Rows& piece = h.pieces[h.at];
    const char* const p = piece.data + h.done;
    const Size left = piece.bytes - h.done;
    Prefetch(p);
    if (left > 64) Prefetch(p + 64);
    if (left > 128) Prefetch(p + 128);
    if (left > 192) Prefetch(p + 192);
    h.done += Hints::strip;
    if (left > Hints::strip) continue;
    h.done = 0, piece.data += piece.step;
    if (--piece.rows == 0) ++h.at;
  }
}

// One tile: rows i0 .. i0+R-1 and NV vectors of columns starting at column j (part: the one vector has n lanes).
// gemm sums over all p; trmm and solve over the rows of B that the triangle reaches, the tile's own R rows last (nn)
// or first (tn), so that the order is ascending either way. joint is a whole product with a factor for every row, and
// trmm on the same accumulators.
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
    if constexpr ((op == Op::gemm || op == Op::joint) && R == kRows && NV == 2) {
      if (x.hints)
        for (; terms >= Hints::round; terms -= Hints::round) add(Hints::round), GiveHints(*x.hints, R * NV);
    }
    add(terms);
  };
  if constexpr (op == Op::joint) {
    sum(x.K1, x.A1 + i0 * x.lda1, x.lda1, 1, x.B1 + j, x.ldb1);
    if (x.alphas) {
      TTR_UNROLL for (int r = 0; r < R; ++r) {
        const Vec<T> factor = hn::Set(d, x.alphas[i0 + r]);
        TTR_UNROLL for (int v = 0; v < NV; ++v) acc[r][v] = hn::Mul(factor, acc[r][v]);
      }
    }
  }
  constexpr bool kTriangle = op == Op::trmm || op == Op::joint;
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
  if constexpr (kTriangle && kTransA) diagonal();

  const Size begin = op != Op::gemm && kTransA ? i0 + R : 0;
  const Size whole = op == Op::solve ? i0 / kRows * kRows : i0;  // see below
  const Size end = op != Op::gemm && !kTransA ? whole : x.K;
  sum(end - begin, A + begin * col, row, col, B + begin * ldb, ldb);
  if constexpr (kTriangle && !kTransA) diagonal();

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
  } else if constexpr (op == Op::joint) {
    TTR_UNROLL for (int r = 0; r < R; ++r) {
      TTR_UNROLL for (int v = 0; v < NV; ++v) StoreMaybe<kPart>(acc[r][v], C + r * x.ldc + v * L, n);
    }
  } else {
    const Vec<T> alpha = hn::Set(d, x.alpha), beta = hn::Set(d, x.beta);
    const bool read = x.beta != T(0);
    if (op == Op::gemm && (x.rows || x.alphas || x.onto)) {
      const T* const onto = x.onto ? x.onto + i0 * x.ld_onto + j : C;
      const Size ld_onto = x.onto ? x.ld_onto : x.ldc;
      TTR_UNROLL for (int r = 0; r < R; ++r) {
        const Vec<T> decay = x.rows ? hn::Set(d, x.rows[i0 + r]) : beta;
        const Vec<T> factor = x.alphas ? hn::Set(d, x.alphas[i0 + r]) : alpha;
        TTR_UNROLL for (int v = 0; v < NV; ++v) {
          Vec<T> y = hn::Mul(factor, acc[r][v]);
          if (read) y = hn::MulAdd(decay, LoadMaybe<kPart>(onto + r * ld_onto + v * L, n), y);
          StoreMaybe<kPart>(y, C + r * x.ldc + v * L, n);
        }
      }
      return;
    }
    if (op == Op::gemm && x.gates) {
      const T* const gates = x.gates + i0 * x.ld_gates + j;
      TTR_UNROLL for (int r = 0; r < R; ++r) {
        TTR_UNROLL for (int v = 0; v < NV; ++v) {
          const Vec<T> gate = LoadMaybe<kPart>(gates + r * x.ld_gates + v * L, n);
          StoreMaybe<kPart>(hn::Mul(hn::Mul(alpha, gate), acc[r][v]), C + r * x.ldc + v * L, n);
        }
      }
      return;
    }
    TTR_UNROLL for (int r = 0; r < R; ++r) {
      TTR_UNROLL for (int v = 0; v < NV; ++v) {
        T* const c = C + r * x.ldc + v * L;
        Vec<T> y = hn::Mul(alpha, acc[r][v]);
        if (read) y = hn::MulAdd(beta, LoadMaybe<kPart>(c, n), y);
        StoreMaybe<kPart>(y, c, n);
      }
    }
  }
}

// Rows of the next tile when `left` remain: full tiles, then 4, 2 and 1; 8 rows are 4 + 4 rather than 6 + 2, but not
// in a solve, whose tiles must start where those of a longer one would.
template <Op op = Op::gemm>
HWY_INLINE constexpr Size NextRows(Size left) {
  if (left >= kRows && !(kRows == 6 && left == 8 && op != Op::solve)) return kRows;
  return left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

template <Op op, bool kTransA, int NV, bool kPart, class T>
HWY_INLINE void TileOf(Size rows, const Product<T>& x, Size i, Size j, Size n) {
  if (rows == kRows) Tile<op, kTransA, kRows, NV, kPart>(x, i, j, n);
  else if (rows == 4) Tile<op, kTransA, 4, NV, kPart>(x, i, j, n);
  else if (rows == 2) Tile<op, kTransA, 2, NV, kPart>(x, i, j, n);
  else Tile<op, kTransA, 1, NV, kPart>(x, i, j, n);
}

// All row tiles of one column panel; a transposed solve starts at the bottom. kLower: only rows that reach the
// diagonal, and only the first vector where the second one lies above it.
template <Op op, bool kTransA, bool kLower, int NV, bool kPart, class T>
HWY_INLINE void Panel(const Product<T>& x, Size j, Size n) {
  for (Size done = kLower ? j : 0; done < x.M;) {
    const Size rows = NextRows<op>(x.M - done);
    const Size i = op == Op::solve && kTransA ? x.M - done - rows : done;
    if (kLower && NV == 2 && i + rows <= j + n) TileOf<op, kTransA, 1, kPart>(rows, x, i, j, n);
    else TileOf<op, kTransA, NV, kPart>(rows, x, i, j, n);
    done += rows;
  }
}

template <Op op, bool kTransA, bool kLower, class T>
HWY_INLINE void Panels(const Product<T>& x, Size N) {
  constexpr Size L = Width<T>();
  Size j = 0;
  for (; j + 2 * L <= N; j += 2 * L) Panel<op, kTransA, kLower, 2, false>(x, j, L);
  if (j + L <= N) Panel<op, kTransA, kLower, 1, false>(x, j, L), j += L;
  if (j < N) Panel<op, kTransA, kLower, 1, true>(x, j, N - j);
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
  Panels<Op::joint, kTransL, false>(x, N);
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

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
