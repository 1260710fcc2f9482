// A Cholesky factor that grows and slides: L L' = A for the leading rows of A, packed by rows, and Z = L^-1 V beside
// it.
//
// The oldest pair leaves by rotations of the others' columns with its own, an update and not a downdate: stable, and
// what a pair has left in the way of rounding leaves with it.
//
// Right-hand sides are rows of X [R, m], so that the row that is appended, l' = (L^-1 a)', is one of them as it is.
// Blocks of 64 columns: what lies left of the diagonal block is a product of matrices, on a copy of that part of L
// with rows of equal distance; the block itself is divided by its diagonal and substituted.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "families/common/scratch.h"
#include "families/pairs/kernel.h"
#include "simd/simd.h"

namespace ttr::families::pairs {

class Factor {
 public:
  /// most: right-hand sides of one call; slides: pairs at a call of drop()
  Factor(const Simd<double>& simd, Size value_dim, Size most, Arena& arena, Size slides = 0) : s(simd), V(value_dim) {
    panel = arena.take<double>(C * width), tile = arena.take<double>(C * C), gram = arena.take<double>(C * C);
    own = arena.take<double>(C * C);
    inverse = arena.take<double>(C), turned = arena.take<double>(C * std::max(most, C));
    if (slides == 0) return;
    for (double** list : {&column, &cosine, &sine}) *list = arena.take<double>(slides);
    oldest = arena.take<double>(V);
  }

  /// Works on these arrays from now on; `rows` of them are there.
  void attach(double* triangle, double* solved, Size rows) { L = triangle, Z = solved, count = rows; }
  Size size() const { return count; }
  const double* values() const { return Z; }
  static Size start(Size row) { return row * (row + 1) / 2; }

  /// X <- X L^-T : a row x' becomes (L^-1 x)'. L is of the first m pairs.
  void lower(Size m, Size R, double* X, Size ld) {
    if (R <= few) {
      for (Size i = 0; i < m; ++i) {
        const double* const row = L + start(i);
        for (Size r = 0; r < R; ++r) X[r * ld + i] = (X[r * ld + i] - s.dot(i, row, X + r * ld)) / row[i];
      }
      return;
    }
    for (Size i = 0; i < m; i += C) {
      const Size n = std::min(C, m - i);
      for (Size j = 0; j < i; j += width) {
        const Size depth = std::min(width, i - j);
        unpack_rows(i, n, j, depth);
        s.gemm_nt(R, n, depth, -1.0, X + j, ld, panel, width, 1.0, X + i, ld);
      }
      diagonal(i, n);
      s.transpose(R, n, X + i, ld, turned, R);
      s.scale_rows(n, R, inverse, turned, R, turned, R);
      s.solve_nn(n, R, tile, C, turned, R);
      s.transpose(n, R, turned, R, X + i, ld);
    }
  }

  /// X <- X L^-1 : a row x' becomes (L^-T x)'.
  void upper(Size m, Size R, double* X, Size ld) {
    if (R <= few) {
      for (Size i = m; i-- > 0;) {
        const double* const row = L + start(i);
        for (Size r = 0; r < R; ++r) {
          X[r * ld + i] /= row[i];
          s.axpy(i, -X[r * ld + i], row, X + r * ld);
        }
      }
      return;
    }
    for (Size i = (m - 1) / C * C; i >= 0; i -= C) {
      const Size n = std::min(C, m - i);
      diagonal(i, n);
      s.transpose(R, n, X + i, ld, turned, R);
      s.solve_tn(n, R, tile, C, turned, R);
      s.scale_rows(n, R, inverse, turned, R, turned, R);
      s.transpose(n, R, turned, R, X + i, ld);
      for (Size j = 0; j < i; j += width) {
        const Size depth = std::min(width, i - j);
        unpack_rows(i, n, j, depth);
        s.gemm_nn(R, depth, n, -1.0, X + i, ld, panel, width, 1.0, X + j, ld);
      }
    }
  }

  /// b <= 64 more rows: X [b, count] = rows of A left of the new block, after lower(); `block` [b, b] the new one,
  /// without the ridge; v [b, V].
  void append(Size b, double ridge, const double* X, Size ld, const double* block, Size ld_block, const double* v) {
    const Size a = count;
    for (Size i = 0; i < b; ++i) std::copy_n(block + i * ld_block, i + 1, gram + i * C);
    s.gemm_nt(b, b, a, -1.0, X, ld, X, ld, 1.0, gram, C);
    for (Size i = 0; i < b; ++i) {
      double *const row = L + start(a + i), *const right = row + a;
      std::copy_n(X + i * ld, a, row);
      for (Size j = 0; j < i; ++j) {
        const double* const above = L + start(a + j) + a;
        right[j] = (gram[i * C + j] - s.dot(j, right, above)) / above[j];
      }
      const double least = std::max(ridge, rounding(a + i) * block[i * ld_block + i]);
      const double pivot = gram[i * C + i] + least - s.dot(i, right, right);
      right[i] = std::sqrt(pivot < least ? least : pivot);
    }
    double* const z = Z + a * V;
    std::copy_n(v, b * V, z);
    s.gemm_nn(b, V, a, -1.0, X, ld, Z, V, 1.0, z, V);
    diagonal(a, b);
    s.scale_rows(b, V, inverse, z, V, z, V);
    s.solve_nn(b, V, tile, C, z, V);
    count += b;
  }

  /// Appends the pairs up to `most` of keys [most, K] and v [most, V]. X [64, ld >= most] is scratch.
  void grow(Kernel& kernel, Size K, const double* keys, const double* v, double ridge, Size most, double* X,
            Size ld) {
    while (count < most) {
      const Size a = count, b = std::min(C, most - a);
      kernel.values(b, a, keys + a * K, keys, X, ld);
      lower(a, b, X, ld);
      kernel.values(b, b, keys + a * K, keys + a * K, own, C);
      append(b, ridge, X, ld, own, C, v + a * V);
    }
  }

  /// Forgets the oldest pair. If it was not finite nothing finite is left: then the factor is empty, to be grown
  /// anew.
  void drop() {
    const Size n = count - 1;
    double sum = L[0];
    for (Size i = 0; i < n; ++i) sum += column[i] = L[start(i + 1)];
    for (Size j = 0; j < V; ++j) sum += oldest[j] = Z[j];
    count = std::isfinite(sum) ? n : 0;
    // Rows of the new factor lie one place before those they are made of: a tile is read before it is written.
    for (Size i = 0; i < count; i += C)
      for (Size j = 0; j <= i; j += C) {
        const Size rows = std::min(C, n - i), columns = std::min(C, i + rows - j);
        const auto width_of = [&](Size r) { return std::min(columns, i + r + 1 - j); };
        for (Size r = 0; r < rows; ++r) std::copy_n(L + start(i + r + 1) + 1 + j, width_of(r), own + r * C);
        s.transpose(rows, columns, own, C, tile, C);
        for (Size c = 0; c < columns; ++c) {
          const Size at = j + c, below = i == j ? c + 1 : 0;
          double *const from = tile + c * C, *const to = gram + c * C;
          if (i == j) {
            to[c] = std::hypot(from[c], column[at]);
            cosine[at] = from[c] / to[c], sine[at] = column[at] / to[c];
          }
          rotate(rows - below, at, from + below, column + i + below, to + below);
        }
        s.transpose(columns, rows, gram, C, own, C);
        for (Size r = 0; r < rows; ++r) std::copy_n(own + r * C, width_of(r), L + start(i + r) + j);
      }
    for (Size i = 0; i < count; ++i) rotate(V, i, Z + (i + 1) * V, oldest, Z + i * V);
  }

  /// x [count] = L^-1 c, of which all but the last entry is known.
  void finish(double* x) const {
    const Size last = count - 1;
    const double* const row = L + start(last);
    x[last] = (x[last] - s.dot(last, row, x)) / row[last];
  }

 private:
  static constexpr Size C = block_size;
  static constexpr Size width = 256;  // a panel of 128 KB
  // The smallest ridge, beside kappa(k, k), with which the matrix is positive definite in spite of rounding. Errors
  // of repeated keys are of one sign, so it grows with the rows.
  static double rounding(Size row) {
    return 16 * std::numeric_limits<double>::epsilon() * static_cast<double>(64 + row);
  }
  static constexpr Size few = 4;  // so many right-hand sides do not pay for a copy of L

  // to <- c x + s y ;  y <- c y - s x
  void rotate(Size n, Size by, const double* x, double* y, double* to) const {
    s.scale(n, cosine[by], x, to);
    s.axpy(n, sine[by], y, to);
    s.scale(n, cosine[by], y, y);
    s.axpy(n, -sine[by], x, y);
  }
  void unpack_rows(Size first, Size n, Size from, Size depth) {
    for (Size i = 0; i < n; ++i) std::copy_n(L + start(first + i) + from, depth, panel + i * width);
  }
  // The block at (first, first), its rows divided by the diagonal.
  void diagonal(Size first, Size n) {
    for (Size i = 0; i < n; ++i) {
      const double* const row = L + start(first + i) + first;
      inverse[i] = 1 / row[i];
      s.scale(i, inverse[i], row, tile + i * C);
    }
  }

  const Simd<double>& s;
  Size V, count = 0;
  double *L = nullptr, *Z = nullptr;
  double *panel, *tile, *gram, *own, *inverse, *turned;
  double *column = nullptr, *cosine = nullptr, *sine = nullptr, *oldest = nullptr;
};

}  // namespace ttr::families::pairs
