// S x = b for the queries of a block, S = sum p (x - xb)(x - xb)' + lambda I: Cholesky in double for one query, or
// conjugate gradients for all of them together.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "families/local_linear_block.h"

namespace ttr::families::local_linear {

/// A positive definite F x F matrix in double: sum of weighted outer products, factor, solve.
class Moments {
 public:
  Moments(const Simd<double>& simd, Size features, Arena& arena) : s(simd), F(features) {
    S = arena.take<double>(F * F), L = arena.take<double>(F * F), weighted = arena.take<double>(tile_size * F);
  }
  void clear() { std::fill_n(S, F * F, 0.0); }
  /// S += X' diag(p) X, X [n, F]; panels of rows, because only the lower triangle is used.
  void add(Size n, const double* p, const double* X) {
    s.scale_rows(n, F, p, X, F, weighted, F);
    constexpr Size panel = 32;
    for (Size a = 0; a < F; a += panel) {
      const Size m = std::min(panel, F - a);
      s.gemm_tn(m, a + m, n, 1.0, weighted + a, F, X, F, 1.0, S + a * F, F);
    }
  }
  /// False: S is not finite, or lambda is NaN.
  bool factor(double lambda) {
    double diagonal = 0;
    for (Size i = 0; i < F; ++i) diagonal = std::max(diagonal, S[i * F + i]);
    if (!(lambda > 0) || !std::isfinite(diagonal)) return false;
    return cholesky(lambda) || cholesky(std::max(lambda, 1e-13 * static_cast<double>(F) * diagonal));
  }
  /// b <- (S + lambda I)^{-1} b
  void solve(double* b) const {
    for (Size i = 0; i < F; ++i) b[i] = (b[i] - s.dot(i, L + i * F, b)) / L[i * F + i];
    for (Size i = F; i-- > 0;) {
      b[i] /= L[i * F + i];
      s.axpy(i, -b[i], L + i * F, b);
    }
  }
  Size features() const { return F; }

 private:
  bool cholesky(double lambda) {
    for (Size i = 0; i < F; ++i) {
      double* const row = L + i * F;
      for (Size j = 0; j < i; ++j) row[j] = (S[i * F + j] - s.dot(j, row, L + j * F)) / L[j * F + j];
      const double pivot = S[i * F + i] + lambda - s.dot(i, row, row);
      if (!(pivot > 0) || !std::isfinite(pivot)) return false;
      row[i] = std::sqrt(pivot);
    }
    return true;
  }

  const Simd<double>& s;
  Size F;
  double *S, *L, *weighted;
};

/// One right-hand side of a block. Order 1 only.
template <class T>
struct System {
  const T* b;     // [64, K]
  T* x;           // [64, K + 1]: the solution, and -kb.x beside it
  const T* size;  // [64] what an error of x is small against, as an energy (square); null = 1
  double tolerance;
};

template <class T>
class Solver {
 public:
  Solver(const Simd<T>& simd, Pairs<T>& pairs_, Moments& moments_, Arena& arena)
      : s(simd), pairs(pairs_), moments(moments_), K(pairs_.K) {
    residual = arena.take<T>(tile_size * K), preconditioned = arena.take<T>(tile_size * K);
    direction = arena.take<T>(tile_size * (K + 1)), image = arena.take<T>(tile_size * K);
    diagonal = arena.take<T>(tile_size * K), variance = arena.take<T>(K);
    y = arena.take<T>(tile_size * tile_size), a = arena.take<T>(tile_size * tile_size);
    sums = arena.take<T>(tile_size), part = arena.take<T>(tile_size);
    rho = arena.take<double>(tile_size), energy = arena.take<double>(tile_size);
    active = arena.take<bool>(tile_size), failed = arena.take<bool>(tile_size);
    rows_wide = arena.take<double>(tile_size * K), weights_wide = arena.take<double>(tile_size);
    solution = arena.take<double>(K);
  }

  /// A query without a solution (lambda or data NaN) gets NaN.
  void solve(const Block<T>& block, LocalSolve how, const System<T>* systems, int count) {
    const bool direct = how == LocalSolve::direct || (how == LocalSolve::automatic && K <= (narrow ? 32 : 64));
    std::fill_n(failed, block.rows, direct);
    if (!direct) {
      precondition(block);
      for (int i = 0; i < count; ++i) iterate(block, systems[i]);
    }
    for (Size i = 0; i < block.rows; ++i)
      if (failed[i]) solve_row(block, i, systems, count);
    for (int n = 0; n < count; ++n) finish(block, systems[n].x);
  }
  /// The last column of x: -kb.x, so that x . [k, 1] = x . (k - kb).
  void finish(const Block<T>& block, T* x) const {
    for (Size i = 0; i < block.rows; ++i) x[i * (K + 1) + K] = -s.dot(K, block.mean + i * K, x + i * (K + 1));
  }

 private:
  using Range = typename Block<T>::Range;
  static constexpr bool narrow = std::is_same_v<T, float>;

  void solve_row(const Block<T>& block, Size i, const System<T>* systems, int count) {
    moments.clear();
    for (Size t = 0; t < block.tiles; ++t) {
      const Size n = block.seen(t, i);
      const T* const p = block.row_of(block.tile(t), i);
      const T* const k = pairs.keys(t);
      const T* const kb = block.mean + i * K;
      for (Size j = 0; j < n; ++j) {
        weights_wide[j] = static_cast<double>(p[j]);
        for (int c = 0; c < K; ++c)
          rows_wide[j * K + c] = static_cast<double>(k[j * K + c]) - static_cast<double>(kb[c]);
      }
      moments.add(n, weights_wide, rows_wide);
    }
    const bool good = moments.factor(static_cast<double>(block.lambda[i]));
    for (int n = 0; n < count; ++n) {
      for (int c = 0; c < K; ++c) solution[c] = static_cast<double>(systems[n].b[i * K + c]);
      if (good) moments.solve(solution);
      else std::fill_n(solution, K, std::numeric_limits<double>::quiet_NaN());
      for (int c = 0; c < K; ++c) systems[n].x[i * (K + 1) + c] = static_cast<T>(solution[c]);
    }
  }

  // 1 / (theta variance + lambda), theta = trace of the query's covariance / trace of the keys' covariance.
  void precondition(const Block<T>& block) {
    const double total = pairs.variances(block.tiles, variance);
    for (Size i = 0; i < block.rows; ++i)
      for (int c = 0; c < K; ++c) {
        const T share = total > 0 ? static_cast<T>(static_cast<double>(variance[c]) / total) : T(1) / T(K);
        diagonal[i * K + c] = 1 / (block.trace[i] * share + block.lambda[i]);
      }
  }

  // Runs of queries that are still active, in steps of 8 (the rows of a register tile).
  template <class Body>
  void for_active(Size rows, Body&& body) const {
    constexpr Size step_rows = 8;
    const auto busy = [&](Size i) {
      return std::any_of(active + i, active + std::min(i + step_rows, rows), [](bool b) { return b; });
    };
    for (Size i = 0; i < rows;) {
      if (!busy(i)) {
        i += step_rows;
        continue;
      }
      Size end = i;
      while (end < rows && busy(end)) end += step_rows;
      body(Range{i, std::min(end, rows)});
      i = end;
    }
  }

  // image = S direction for the active queries; direction has -kb.d beside it.
  void apply(const Block<T>& block) {
    for_active(block.rows, [&](Range r) {
      const Size m = r.end - r.begin;
      std::fill_n(image + r.begin * K, m * K, T(0));
      std::fill_n(sums + r.begin, m, T(0));
    });
    for (Size t = 0; t < block.tiles; ++t)
      for_active(block.rows, [&](Range r) {
        const Size m = r.end - r.begin, at = r.begin * tile_size;
        block.dots(r, t, direction, K + 1, K + 1, T(0), y);
        if (block.triangle && t + 1 == block.tiles)
          for (Size i = r.begin; i < r.end; ++i)
            part[i] = s.dot(i + 1, block.row_of(block.tile(t), i), block.row_of(y, i));
        else s.row_dots(m, pairs.count(t), block.tile(t) + at, tile_size, y + at, tile_size, part + r.begin);
        s.mul(m * tile_size, block.tile(t) + at, y + at, a + at);
        s.axpy(m, T(1), part + r.begin, sums + r.begin);
        block.read(r, t, a, pairs.keys(t), K, image);
      });
    for_active(block.rows, [&](Range r) {
      for (Size i = r.begin; i < r.end; ++i) {
        s.axpy(K, -sums[i], block.mean + i * K, image + i * K);
        s.axpy(K, block.lambda[i], direction + i * (K + 1), image + i * K);
      }
    });
  }

  void iterate(const Block<T>& block, const System<T>& system) {
    const Size rows = block.rows, ld = K + 1;
    const int limit = 16 + K / 4;
    const double least = system.tolerance * system.tolerance, relative = least * (narrow ? 0.01 : 1.0);
    for (Size i = 0; i < rows; ++i) {
      std::fill_n(system.x + i * ld, ld, T(0));
      std::copy_n(system.b + i * K, K, residual + i * K);
      s.mul(K, residual + i * K, diagonal + i * K, preconditioned + i * K);
      set_direction(block, i, T(0));
      rho[i] = static_cast<double>(s.dot(K, residual + i * K, preconditioned + i * K));
      energy[i] = 0;
      active[i] = rho[i] > 0;
      if (!(rho[i] >= 0)) failed[i] = true;  // NaN
    }
    for (int n = 0; n < limit && std::any_of(active, active + rows, [](bool b) { return b; }); ++n) {
      apply(block);
      for (Size i = 0; i < rows; ++i) {
        if (!active[i]) continue;
        T* const d = direction + i * ld;
        const double curvature = static_cast<double>(s.dot(K, d, image + i * K));
        const double alpha = rho[i] / curvature, old = rho[i];
        if (!(alpha > 0) || !std::isfinite(alpha)) {
          active[i] = false, failed[i] = true;
          continue;
        }
        energy[i] += alpha * old;
        s.axpy(K, static_cast<T>(alpha), d, system.x + i * ld);
        s.axpy(K, static_cast<T>(-alpha), image + i * K, residual + i * K);
        s.mul(K, residual + i * K, diagonal + i * K, preconditioned + i * K);
        rho[i] = static_cast<double>(s.dot(K, residual + i * K, preconditioned + i * K));
        const double size = system.size ? static_cast<double>(system.size[i]) : 1.0;
        // alpha rho: about what the next step would take off the energy of the error.
        active[i] = alpha * rho[i] > std::max(least * size, relative * energy[i]);
        if (active[i]) set_direction(block, i, static_cast<T>(rho[i] / old));
      }
    }
    for (Size i = 0; i < rows; ++i) failed[i] = failed[i] || active[i];
  }

  void set_direction(const Block<T>& block, Size i, T beta) {
    T* const d = direction + i * (K + 1);
    if (beta == T(0)) std::copy_n(preconditioned + i * K, K, d);
    else
      for (int c = 0; c < K; ++c) d[c] = preconditioned[i * K + c] + beta * d[c];
    d[K] = -s.dot(K, block.mean + i * K, d);
  }

  const Simd<T>& s;
  Pairs<T>& pairs;
  Moments& moments;
  int K;
  T *residual, *preconditioned, *direction, *image, *diagonal, *variance, *y, *a, *sums, *part;
  double *rho, *energy;
  bool *active, *failed;
  double *rows_wide, *weights_wide, *solution;
};

}  // namespace ttr::families::local_linear
