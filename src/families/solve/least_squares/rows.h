// Conjugate gradients, Chebyshev and gradient steps for many systems at once, one per row, and their reverse: the arithmetic of
// solve.h, row by row, on an operator that multiplies all rows by their matrices.
//
//   apply(P, A)        A_t = A_t p_t for all rows t
//   reverse(D, P, A)   A_t = A_t d_t, and d_t p_t' is added to the gradient of matrix t
//
// A row that has converged stands still; the others go on without it. Its direction is zero from then on.
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/common/scratch.h"
#include "families/common/solve.h"
#include "families/solve/least_squares/least_squares.h"
#include "simd/simd.h"

namespace ttr::families::least_squares {

class RowSolve {
 public:
  using Size = std::ptrdiff_t;
  struct Gradient {
    double *b, *diagonal;  // [rows, K] +=; of the right-hand sides, and of the matrices' diagonals
    double *low, *high;    // [rows]; written. Chebyshev
  };

  RowSolve(const Simd<double>& simd, Size key_dim, Size most, SolveBy solver, Size steps, bool reverse, Arena& arena)
      : s(simd), K(key_dim), C(most), by(solver), limit(std::max<Size>(steps - plain(), 0)), keeps(reverse) {
    const Size kept = reverse ? limit + 1 : by == SolveBy::conjugate_gradients ? 1 : 3;
    xs = arena.take<double>(kept * C * K);
    rs = arena.take<double>((by != SolveBy::conjugate_gradients && !reverse ? 1 : kept) * C * K);
    if (by == SolveBy::conjugate_gradients) as = arena.take<double>(kept * C * K);
    for (double** list : {&first, &second, &third}) *list = arena.take<double>(kept * C);
    goal = arena.take<double>(C), taken = arena.take<Size>(C);
    if (!reverse) return;
    for (double*& x : adjoint) x = arena.take<double>(C * K);
    for (double*& x : numbers) x = arena.take<double>(C);
    adjoint_taken = arena.take<Size>(C), exact = arena.take<bool>(C);
  }

  /// Rows X [rows, K] with A_t x_t = b_t; x = 0 where idle. low and high bound the eigenvalues (Chebyshev), trace is
  /// their sum (conjugate gradients); it must live until back().
  template <class Operator>
  void run(Operator& matrices, Size rows, const double* B, const double* low, const double* high, const double* trace,
           const bool* idle, double tolerance, double* X) {
    std::fill_n(X, rows * K, 0.0);
    traces = trace;
    if (by != SolveBy::conjugate_gradients) chebyshev(matrices, rows, B, low, high, idle, X);
    else conjugate_gradients(matrices, rows, B, idle, tolerance, X);
  }

  /// Of the last run() and its X.
  template <class Operator>
  void back(Operator& matrices, Size rows, const double* B, const double* X, const double* dX, const Gradient& d) {
    std::fill_n(d.low, rows, 0.0), std::fill_n(d.high, rows, 0.0);
    if (by != SolveBy::conjugate_gradients) chebyshev_back(matrices, rows, B, dX, d);
    else conjugate_gradients_back(matrices, rows, B, X, dX, d);
  }

 private:
  // Steps of conjugate gradients as in solve.h. Kept before step i: p, r, rr; of it: a, p'a (curvature), ratio. With
  // distance 0 each step overwrites the last.
  struct Track {
    double *p, *r, *a, *rr, *curvature, *ratio;
    Size distance;
  };
  // steps[t]: those that row t has taken; negative: as many as it needs.
  template <class Operator>
  void descend(Operator& matrices, Size rows, const double* B, double tolerance, Size most, const Track& at,
               Size* steps, double* X) {
    const Size next = at.distance * C * K;
    std::copy_n(B, rows * K, at.r), std::copy_n(B, rows * K, at.p);
    std::fill_n(X, rows * K, 0.0);
    bool busy = false;
    for (Size t = 0; t < rows; ++t) {
      at.rr[t] = s.dot(K, B + t * K, B + t * K);
      goal[t] = tolerance * tolerance * at.rr[t];
      if (steps[t] < 0 && (most == 0 || at.rr[t] <= goal[t])) steps[t] = 0;
      busy = busy || steps[t] < 0;
    }
    for (Size i = 0; busy; ++i) {
      const Size slot = i * at.distance;
      double *const p = at.p + i * next, *const r = at.r + i * next, *const a = at.a + i * next;
      for (Size t = 0; t < rows; ++t)
        if (steps[t] >= 0) std::fill_n(p + t * K, K, 0.0);
      matrices.apply(p, a);
      busy = false;
      for (Size t = 0; t < rows; ++t) {
        if (steps[t] >= 0) continue;
        double *const p_t = p + t * K, *const r_t = r + t * K, *const a_t = a + t * K;
        const double rr = at.rr[slot * C + t], curvature = s.dot(K, p_t, a_t);
        if (curvature <= Solve::flat * traces[t] * s.dot(K, p_t, p_t)) {
          steps[t] = i;
          continue;
        }
        const double alpha = rr / curvature;
        s.axpy(K, alpha, p_t, X + t * K);
        s.scale(K, 1.0, r_t, r_t + next);
        s.axpy(K, -alpha, a_t, r_t + next);
        const double now = s.dot(K, r_t + next, r_t + next);
        at.curvature[slot * C + t] = curvature, at.ratio[slot * C + t] = now / rr;
        s.scale(K, now / rr, p_t, p_t + next);
        s.axpy(K, 1.0, r_t + next, p_t + next);
        at.rr[(slot + at.distance) * C + t] = now;
        if (i + 1 == most || now <= goal[t]) steps[t] = i + 1;
        else busy = true;
      }
    }
  }

  template <class Operator>
  void conjugate_gradients(Operator& matrices, Size rows, const double* B, const bool* idle, double tolerance,
                           double* X) {
    for (Size t = 0; t < rows; ++t) taken[t] = idle[t] ? 0 : -1;
    descend(matrices, rows, B, tolerance, limit, {xs, rs, as, first, second, third, keeps}, taken, X);
  }

  // Rows whose steps have converged are exact solves, and their gradient one more (solve.h); they are marked.
  template <class Operator>
  void exact_back(Operator& matrices, Size rows, const double* X, const double* dX, const Gradient& d) {
    double *const u = adjoint[3], *const rr = numbers[0];
    bool any = false;
    for (Size t = 0; t < rows; ++t) {
      exact[t] = taken[t] > 0 && first[taken[t] * C + t] <= Solve::converged * first[t];
      adjoint_taken[t] = exact[t] ? -1 : 0;
      any = any || exact[t];
    }
    if (!any) return;
    descend(matrices, rows, dX, Solve::adjoint_tolerance, limit + 2 * K,
            {adjoint[0], adjoint[1], adjoint[2], rr, numbers[1], numbers[2], 0}, adjoint_taken, u);
    for (Size t = 0; t < rows; ++t) {
      exact[t] = exact[t] && rr[t] <= Solve::converged * s.dot(K, dX + t * K, dX + t * K);
      if (exact[t]) s.axpy(K, 1.0, u + t * K, d.b + t * K), s.scale(K, -1.0, u + t * K, u + t * K);
      else std::fill_n(u + t * K, K, 0.0);
    }
    s.mul_add(rows * K, u, X, d.diagonal);
    matrices.reverse(u, X, adjoint[0]);
  }

  template <class Operator>
  void conjugate_gradients_back(Operator& matrices, Size rows, const double* B, const double* X, const double* dX,
                                const Gradient& d) {
    exact_back(matrices, rows, X, dX, d);
    const auto steps = [&](Size t) { return exact[t] ? 0 : taken[t]; };
    Size most = 0;
    for (Size t = 0; t < rows; ++t) most = std::max(most, steps(t));
    double *const dp = adjoint[0], *const dr = adjoint[1], *const da = adjoint[2], *const product = adjoint[3];
    double* const d_rr = numbers[0];  // of r'r after the step
    std::fill_n(dp, rows * K, 0.0), std::fill_n(dr, rows * K, 0.0), std::fill_n(d_rr, rows, 0.0);
    for (Size i = most; i-- > 0;) {
      const double *const p = xs + i * C * K, *const r = rs + (i + 1) * C * K, *const a = as + i * C * K;
      for (Size t = 0; t < rows; ++t) {
        const Size at = t * K;
        if (i >= steps(t)) {
          std::fill_n(da + at, K, 0.0);
          continue;
        }
        const double rr = first[i * C + t], curvature = second[i * C + t], ratio = third[i * C + t];
        const double alpha = rr / curvature;
        s.axpy(K, 1.0, dp + at, dr + at);
        const double d_ratio = s.dot(K, dp + at, p + at);
        s.scale(K, ratio, dp + at, dp + at);
        d_rr[t] += d_ratio / rr;
        s.axpy(K, 2 * d_rr[t], r + at, dr + at);
        s.scale(K, -alpha, dr + at, da + at);
        const double d_alpha = s.dot(K, dX + at, p + at) - s.dot(K, dr + at, a + at);
        s.axpy(K, alpha, dX + at, dp + at);
        d_rr[t] = d_alpha / curvature - d_ratio * ratio / rr;
        const double d_curvature = -d_alpha * alpha / curvature;
        s.axpy(K, d_curvature, a + at, dp + at);
        s.axpy(K, d_curvature, p + at, da + at);
      }
      s.mul_add(rows * K, da, p, d.diagonal);
      matrices.reverse(da, p, product);
      for (Size t = 0; t < rows; ++t)
        if (i < steps(t)) s.axpy(K, 1.0, product + t * K, dp + t * K);
    }
    for (Size t = 0; t < rows; ++t) {
      if (steps(t) == 0) continue;
      s.axpy(K, 1.0, dr + t * K, d.b + t * K);
      s.axpy(K, 1.0, dp + t * K, d.b + t * K);
      s.axpy(K, 2 * d_rr[t], B + t * K, d.b + t * K);
    }
  }

  // Steps of a given size, low (solve.h).
  bool plain() const { return by == SolveBy::gradient; }

  // Steps i = 1, 2, .. as in solve.h; kept: x_i (xs), r of step i + 1 (rs), w of step i (first). second, third: sigma
  // and rho of a row; taken: whether it has an answer.
  template <class Operator>
  void chebyshev(Operator& matrices, Size rows, const double* B, const double* low, const double* high,
                 const bool* idle, double* X) {
    for (Size t = 0; t < rows; ++t) {
      const double sum = high[t] + low[t];
      taken[t] = plain() || (!idle[t] && !(sum == 0));
      second[t] = plain() ? low[t] : taken[t] ? 2 / sum : 0;
      third[t] = taken[t] && !plain() ? (high[t] - low[t]) / sum : 0;
      first[t] = 2;
      s.scale(K, second[t], B + t * K, xs + t * K);
    }
    for (Size i = 1; i <= limit; ++i) {
      const double *const last = slot(i - 1), *const before = slot(i - 2);
      const double* const w_last = first + (keeps ? (i - 1) * C : 0);
      double *const r = rs + (keeps ? (i - 1) * C * K : 0), *const now = slot(i),
                    *const w = first + (keeps ? i * C : 0);
      matrices.apply(last, r);
      for (Size t = 0; t < rows; ++t) {
        const Size at = t * K;
        w[t] = 4 / (4 - third[t] * third[t] * w_last[t]);
        s.axpy(K, -1.0, B + at, r + at);
        s.scale(K, w[t], last + at, now + at);
        if (i > 1) s.axpy(K, 1 - w[t], before + at, now + at);
        s.axpy(K, -w[t] * second[t], r + at, now + at);
      }
    }
    for (Size t = 0; t < rows; ++t)
      if (taken[t]) std::copy_n(slot(limit) + t * K, K, X + t * K);
  }
  double* slot(Size i) const { return xs + (keeps ? std::max<Size>(i, 0) : (i + 3) % 3) * C * K; }

  template <class Operator>
  void chebyshev_back(Operator& matrices, Size rows, const double* B, const double* dX, const Gradient& d) {
    double *now = adjoint[0], *last = adjoint[1], *before = adjoint[2];
    double *const d_sigma = d.low, *const d_rho = d.high, *const d_w = numbers[0];
    std::fill_n(now, rows * K, 0.0), std::fill_n(last, rows * K, 0.0), std::fill_n(before, rows * K, 0.0);
    std::fill_n(d_w, rows, 0.0);
    for (Size t = 0; t < rows; ++t)
      if (taken[t]) std::copy_n(dX + t * K, K, now + t * K);
    for (Size i = limit; i > 0; --i) {
      const double *const r = rs + (i - 1) * C * K, *const x = slot(i - 1);
      for (Size t = 0; t < rows; ++t) {
        if (!taken[t]) continue;
        const Size at = t * K;
        const double w = first[i * C + t], sigma = second[t], rho = third[t], along = s.dot(K, now + at, r + at);
        d_w[t] += s.dot(K, now + at, x + at) - (i > 1 ? s.dot(K, now + at, slot(i - 2) + at) : 0.0) - sigma * along;
        d_sigma[t] -= w * along;
        s.axpy(K, w, now + at, last + at);
        s.axpy(K, 1 - w, now + at, before + at);
        s.scale(K, -w * sigma, now + at, now + at);  // of r
        s.axpy(K, -1.0, now + at, d.b + at);
        d_rho[t] += d_w[t] * w * w * rho * first[(i - 1) * C + t] / 2;
        d_w[t] *= w * w * rho * rho / 4;
      }
      s.mul_add(rows * K, now, x, d.diagonal);
      matrices.reverse(now, x, adjoint[3]);
      for (Size t = 0; t < rows; ++t)
        if (taken[t]) s.axpy(K, 1.0, adjoint[3] + t * K, last + t * K);
      std::fill_n(now, rows * K, 0.0);
      std::swap(now, last), std::swap(last, before);
    }
    for (Size t = 0; t < rows; ++t) {
      if (!taken[t]) continue;
      const double sigma = second[t], rho = third[t];
      s.axpy(K, sigma, now + t * K, d.b + t * K);
      const double ds = d_sigma[t] + s.dot(K, now + t * K, B + t * K), dr = d_rho[t];
      if (plain()) {
        d.low[t] = ds, d.high[t] = 0;
        continue;
      }
      d.low[t] = -ds * sigma * sigma / 2 - dr * (1 + rho) * sigma / 2;
      d.high[t] = -ds * sigma * sigma / 2 + dr * (1 - rho) * sigma / 2;
    }
  }

  const Simd<double>& s;
  Size K, C;
  SolveBy by;
  Size limit;
  bool keeps;
  Size* taken;  // steps of a row; -1: not yet known
  Size* adjoint_taken = nullptr;
  bool* exact = nullptr;  // rows whose gradient is that of an exact solve
  double *adjoint[4] = {}, *numbers[3] = {};
  double *xs, *rs, *as = nullptr, *first, *second, *third, *goal;
  const double* traces = nullptr;
};

}  // namespace ttr::families::least_squares
