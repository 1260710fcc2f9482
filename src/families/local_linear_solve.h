// S x = b for the queries of a block, S = sum p (x - xb)(x - xb)' + lambda I: Cholesky in double for one query, or
// conjugate gradients for all of them together.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "families/local_linear_block.h"
#include "families/local_linear_moments.h"
#include "families/local_linear_precondition.h"

namespace ttr::families::local_linear {

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
  Solver(const Simd<T>& simd, const Pairs<T>& pairs_, Moments& moments_, Arena& arena)
      : s(simd), pairs(pairs_), moments(moments_), preconditioner(simd, pairs_, moments_, arena), K(pairs_.K) {
    residual = arena.take<T>(tile_size * K), preconditioned = arena.take<T>(tile_size * K);
    direction = arena.take<T>(tile_size * (K + 1)), image = arena.take<T>(tile_size * K);
    gathered = arena.take<T>(tile_size * (K + 1)), gathered_image = arena.take<T>(tile_size * K);
    y = arena.take<T>(tile_size * tile_size), sums = arena.take<T>(tile_size), order = arena.take<Size>(tile_size);
    rho = arena.take<double>(tile_size), step = arena.take<double>(tile_size);
    energy = arena.take<double>(tile_size);
    active = arena.take<bool>(tile_size), failed = arena.take<bool>(tile_size);
    rows_wide = arena.take<double>(tile_size * K), weights_wide = arena.take<double>(tile_size);
    solution = arena.take<double>(K);
  }

  /// A query without a solution (lambda or data NaN) gets NaN.
  void solve(const Block<T>& block, LocalSolve how, const System<T>* systems, int count, LocalLinearReport* report) {
    steps = 0;
    if (block.begin == 0) skip = wait = 0;
    bool direct = how == LocalSolve::direct || (how == LocalSolve::automatic && K <= (narrow ? 32 : 64));
    if (!direct && skip > 0) direct = true, --skip;
    std::fill_n(failed, block.rows, direct);
    if (!direct) {
      preconditioner.prepare(block);
      for (int i = 0; i < count; ++i) iterate(block, systems[i]);
      // Keys on which most queries run out of steps will do so again: leave out 1, 3, then 7 blocks.
      const bool most = 2 * std::count(failed, failed + block.rows, true) > block.rows;
      skip = wait = most ? std::min<Size>(2 * wait + 1, 7) : 0;
    }
    for (Size i = 0; i < block.rows; ++i)
      if (failed[i]) solve_row(block, i, systems, count);
    for (int n = 0; n < count; ++n) finish(block, systems[n].x);
    if (!report) return;
    report->solves += direct ? 0 : block.rows * count, report->steps += steps;
    report->factors += std::count(failed, failed + block.rows, true);
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

  // image = S direction for the active queries; direction has -kb.d beside it. Queries stop at different times: in
  // full tiles only the active ones are multiplied, gathered into the first rows. The triangle stays in place.
  void apply(const Block<T>& block) {
    const Size ld = K + 1;
    Size m = 0;
    for (Size i = 0; i < block.rows; ++i)
      if (active[i]) order[m++] = i;
    steps += m;
    for (Size r = 0; r < m; ++r) std::copy_n(direction + order[r] * ld, ld, gathered + r * ld);
    std::fill_n(gathered_image, m * K, T(0)), std::fill_n(sums, m, T(0));
    const Size full = block.triangle ? block.tiles - 1 : block.tiles;
    for (Size t = 0; t < full; ++t) {
      const Size n = pairs.count(t);
      block.dots({0, m}, t, gathered, ld, ld, T(0), y);
      for (Size r = 0; r < m; ++r) {
        const T* const p = block.row_of(block.tile(t), order[r]);
        sums[r] += s.dot(n, p, block.row_of(y, r));
        s.mul(n, p, block.row_of(y, r), block.row_of(y, r));
      }
      block.read({0, m}, t, y, pairs.keys(t), K, gathered_image);
    }
    if (block.triangle) apply_triangle(block, m);
    for (Size r = 0; r < m; ++r) {
      T* const to = image + order[r] * K;
      if (!block.triangle) std::fill_n(to, K, T(0));
      s.axpy(K, T(1), gathered_image + r * K, to);
      s.axpy(K, -sums[r], block.mean + order[r] * K, to);
      s.axpy(K, block.lambda[order[r]], gathered + r * ld, to);
    }
  }
  void apply_triangle(const Block<T>& block, Size m) {
    const Size t = block.tiles - 1;
    for_active(block.rows, [&](Range r) {
      const Size count = r.end - r.begin, at = r.begin * tile_size;
      std::fill_n(image + r.begin * K, count * K, T(0));
      block.dots(r, t, direction, K + 1, K + 1, T(0), y);
      s.mul(count * tile_size, block.tile(t) + at, y + at, y + at);
      block.read(r, t, y, pairs.keys(t), K, image);
    });
    for (Size r = 0; r < m; ++r) sums[r] += s.dot(order[r] + 1, block.row_of(y, order[r]), block.ones);
  }

  void iterate(const Block<T>& block, const System<T>& system) {
    const Size rows = block.rows, ld = K + 1;
    const int limit = 16 + K / 4;
    const double least = system.tolerance * system.tolerance, relative = least * (narrow ? 0.01 : 1.0);
    for (Size i = 0; i < rows; ++i) std::fill_n(system.x + i * ld, ld, T(0));
    std::copy_n(system.b, rows * K, residual);
    preconditioner.apply({0, rows}, residual, preconditioned);
    for (Size i = 0; i < rows; ++i) {
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
        const double alpha = rho[i] / static_cast<double>(s.dot(K, d, image + i * K));
        if (!(alpha > 0) || !std::isfinite(alpha)) {
          active[i] = false, failed[i] = true;
          continue;
        }
        step[i] = alpha, energy[i] += alpha * rho[i];
        s.axpy(K, static_cast<T>(alpha), d, system.x + i * ld);
        s.axpy(K, static_cast<T>(-alpha), image + i * K, residual + i * K);
      }
      for_active(rows, [&](Range r) { preconditioner.apply(r, residual, preconditioned); });
      for (Size i = 0; i < rows; ++i) {
        if (!active[i]) continue;
        const double old = rho[i], size = system.size ? static_cast<double>(system.size[i]) : 1.0;
        rho[i] = static_cast<double>(s.dot(K, residual + i * K, preconditioned + i * K));
        // alpha rho: about what the next step would take off the energy of the error.
        active[i] = step[i] * rho[i] > std::max(least * size, relative * energy[i]);
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
  const Pairs<T>& pairs;
  Moments& moments;
  Preconditioner<T> preconditioner;
  int K;
  T *residual, *preconditioned, *direction, *image, *gathered, *gathered_image, *y, *sums;
  Size* order;
  Size steps = 0, skip = 0, wait = 0;
  double *rho, *step, *energy;
  bool *active, *failed;
  double *rows_wide, *weights_wide, *solution;
};

}  // namespace ttr::families::local_linear
