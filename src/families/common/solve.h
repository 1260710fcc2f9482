// A x = b for a symmetric positive A [K, K] = H + diag(ridge), by Cholesky, conjugate gradients, Chebyshev or gradient steps
// (equations: families/solve/least_squares/least_squares.h), and the reverse of each: from dx the gradients of b, of A
// and of the bounds of its eigenvalues. A itself is never formed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "families/common/linear.h"
#include "families/common/scratch.h"
#include "simd/simd.h"
#include "ttr/view.h"

namespace ttr::families {

enum class SolveBy { cholesky, conjugate_gradients, chebyshev, gradient };

/// L L' = H + diag(ridge), and systems with it; of H only the lower triangle is read.
class Cholesky {
 public:
  using Size = std::ptrdiff_t;
  Cholesky(const Simd<double>& simd, Size dim, Arena& arena) : s(simd), K(dim), L(arena.take<double>(K * K)) {}

  /// False, and L = NaN, if the matrix is not positive definite.
  bool factor(const double* H, const double* ridge) {
    for (Size i = 0; i < K; ++i) {
      double* const row = L + i * K;
      for (Size j = 0; j < i; ++j) row[j] = (H[i * K + j] - s.dot(j, row, L + j * K)) / L[j * K + j];
      const double pivot = H[i * K + i] + ridge[i] - s.dot(i, row, row);
      if (!(pivot > 0) || !std::isfinite(pivot)) {
        std::fill_n(L, K * K, std::numeric_limits<double>::quiet_NaN());
        return false;
      }
      row[i] = std::sqrt(pivot);
    }
    return true;
  }
  /// b <- (L L')^{-1} b
  void solve(double* b) const {
    for (Size i = 0; i < K; ++i) b[i] = (b[i] - s.dot(i, L + i * K, b)) / L[i * K + i];
    for (Size i = K; i-- > 0;) {
      b[i] /= L[i * K + i];
      s.axpy(i, -b[i], L + i * K, b);
    }
  }

 private:
  const Simd<double>& s;
  Size K;
  double* L;
};

class Solve {
 public:
  using Size = std::ptrdiff_t;
  /// With a residual of 1e-12 |b| conjugate gradients are an exact solve, and their gradient is one more solve. The
  /// reverse of the steps would magnify the rounding of so small a residual a thousand times.
  static constexpr double converged = 1e-24, adjoint_tolerance = 1e-13;
  /// The steps end at a direction p with p'A p <= 450 eps |p|^2 tr A (450 eps = 1e-13): the matrix does not have it (no
  /// ridge, fewer keys than dimensions), its curvature is rounding, and so would be the length of a step. The trace
  /// bounds the largest eigenvalue from above and is what rounding of p'A p is small against, whatever directions came
  /// before: each entry of a sum of n pairs is wrong by at most n eps sqrt(A_ii A_jj), so p'A p by n eps |p|^2 tr A.
  static constexpr double flat = 1e-13;
  struct Gradient {
    double* b;         // [K] +=
    double* matrix;    // [K, K] +=, raw: every entry by itself
    double* diagonal;  // [K] += the diagonal of what is added to matrix
    double low = 0, high = 0;
  };

  /// reverse: the steps taken are kept for back().
  Solve(const Simd<double>& simd, Size dim, SolveBy solver, Size steps, bool reverse, Arena& arena)
      : s(simd),
        K(dim),
        by(solver),
        limit(std::max<Size>(steps - (solver == SolveBy::gradient), 0)),
        stride(reverse ? dim : 0),
        cholesky(simd, solver == SolveBy::cholesky ? dim : 0, arena) {
    if (reverse)
      for (double*& x : adjoint) x = arena.take<double>(K);
    if (by == SolveBy::cholesky) return;
    const Size kept = reverse ? limit + 1 : 3;
    for (double** list : {&xs, &rs, &as}) *list = arena.take<double>(kept * K);
    for (double** list : {&first, &second, &third}) *list = arena.take<double>(reverse ? kept : 1);
  }

  /// False, and x = NaN, if A = H + diag(ridge) has no Cholesky factor. low and high bound its eigenvalues; of gradient
  /// steps low is the size.
  bool run(const double* H, const double* ridge, const double* b, double low, double high, double tolerance,
           double* x) {
    h_ = H, ridge_ = ridge, b_ = b, low_ = low, high_ = high;
    if (by == SolveBy::cholesky) {
      const bool good = cholesky.factor(H, ridge);
      std::copy_n(b, K, x);
      cholesky.solve(x);
      return good;
    }
    if (by != SolveBy::conjugate_gradients) {
      chebyshev(x);
    } else {
      trace = 0;
      for (Size i = 0; i < K; ++i) trace += H[i * K + i] + ridge[i];
      conjugate_gradients(tolerance, x);
    }
    return true;
  }

  /// Of the last run and its x, while what it was given is still there.
  void back(const double* x, const double* dx, Gradient& d) {
    if (by == SolveBy::cholesky) cholesky_back(x, dx, d);
    else if (by != SolveBy::conjugate_gradients) chebyshev_back(dx, d);
    else conjugate_gradients_back(x, dx, d);
  }

 private:
  // matrix += f u x'
  void add_outer(double f, double* u, const double* x, Gradient& d) const {
    for (Size i = 0; i < K; ++i) u[i] *= f, d.diagonal[i] += u[i] * x[i];
    s.rank_one(K, K, 1.0, u, x, d.matrix, K);
  }

  // a = A p
  void apply(const double* p, double* a) const {
    s.mat_vec(K, K, h_, K, p, a);
    s.mul_add(K, ridge_, p, a);
  }

  void cholesky_back(const double* x, const double* dx, Gradient& d) {
    double* const u = adjoint[0];
    std::copy_n(dx, K, u);
    cholesky.solve(u);
    s.axpy(K, 1.0, u, d.b);
    add_outer(-1.0, u, x, d);
  }

  // Step i: a = A p ; alpha = rr / p'a ; x += alpha p ; r <- r - alpha a ; ratio = r'r / rr ; p <- r + ratio p. Kept
  // before the step: p, r, rr; of it: a, p'a (curvature), ratio. With distance 0 each overwrites the last.
  struct Track {
    double *p, *r, *a, *rr, *curvature, *ratio;
    Size distance;
  };
  /// Steps taken.
  Size descend(const double* b, double tolerance, Size most, const Track& at, double* x) const {
    std::fill_n(x, K, 0.0);
    std::copy_n(b, K, at.r), std::copy_n(b, K, at.p);
    at.rr[0] = s.dot(K, b, b);
    const double enough = tolerance * tolerance * at.rr[0];
    const Size next = at.distance * K;
    Size steps = 0;
    for (double rr = at.rr[0]; steps < most && !(rr <= enough); ++steps) {
      const Size i = steps * at.distance;
      double *const p = at.p + i * K, *const r = at.r + i * K, *const a = at.a + i * K;
      apply(p, a);
      const double curvature = s.dot(K, p, a);
      if (curvature <= flat * trace * s.dot(K, p, p)) break;
      const double alpha = rr / curvature;
      s.axpy(K, alpha, p, x);
      s.scale(K, 1.0, r, r + next);
      s.axpy(K, -alpha, a, r + next);
      const double now = s.dot(K, r + next, r + next);
      at.curvature[i] = curvature, at.ratio[i] = now / rr;
      s.scale(K, now / rr, p, p + next);
      s.axpy(K, 1.0, r + next, p + next);
      at.rr[i + at.distance] = rr = now;
    }
    return steps;
  }
  void conjugate_gradients(double tolerance, double* x) {
    taken = descend(b_, tolerance, limit, {xs, rs, as, first, second, third, stride > 0}, x);
  }

  void conjugate_gradients_back(const double* x, const double* dx, Gradient& d) {
    if (taken == 0) return;
    if (first[taken] <= converged * first[0]) {
      double numbers[3], *const u = adjoint[3];
      const Track track{adjoint[0], adjoint[1], adjoint[2], numbers, numbers + 1, numbers + 2, 0};
      const double size = s.dot(K, dx, dx);
      descend(dx, adjoint_tolerance, limit + 2 * K, track, u);
      if (numbers[0] <= converged * size) {
        s.axpy(K, 1.0, u, d.b);
        add_outer(-1.0, u, x, d);
        return;
      }
    }
    double *const dp = adjoint[0], *const dr = adjoint[1], *const da = adjoint[2];
    std::fill_n(dp, K, 0.0), std::fill_n(dr, K, 0.0);
    double d_rr = 0;  // of r'r after the step
    for (Size i = taken; i-- > 0;) {
      const double *const p = xs + i * K, *const a = as + i * K;
      const double rr = first[i], curvature = second[i], ratio = third[i], alpha = rr / curvature;
      s.axpy(K, 1.0, dp, dr);
      const double d_ratio = s.dot(K, dp, p);
      s.scale(K, ratio, dp, dp);
      d_rr += d_ratio / rr;
      s.axpy(K, 2 * d_rr, rs + (i + 1) * K, dr);
      s.scale(K, -alpha, dr, da);
      const double d_alpha = s.dot(K, dx, p) - s.dot(K, dr, a);
      s.axpy(K, alpha, dx, dp);
      d_rr = d_alpha / curvature - d_ratio * ratio / rr;
      const double d_curvature = -d_alpha * alpha / curvature;
      s.axpy(K, d_curvature, a, dp);
      s.axpy(K, d_curvature, p, da);
      apply(da, adjoint[3]);
      s.axpy(K, 1.0, adjoint[3], dp);
      add_outer(1.0, da, p, d);
    }
    s.axpy(K, 1.0, dr, d.b);
    s.axpy(K, 1.0, dp, d.b);
    s.axpy(K, 2 * d_rr, b_, d.b);
  }

  // Step i = 1, 2, ..: r = A x_{i-1} - b ; x_i = w x_{i-1} - (w - 1) x_{i-2} - w sigma r , w = 4 / (4 - rho^2 w').
  // Kept: x_i (xs), r of step i + 1 (rs), w of step i (first). x_{-1} = 0. Gradient steps are those with w = 1 (rho = 0)
  // and sigma given.
  bool plain() const { return by == SolveBy::gradient; }
  double sigma_of() const { return plain() ? low_ : 2 / (high_ + low_); }
  double rho_of() const { return plain() ? 0 : (high_ - low_) / (high_ + low_); }
  void chebyshev(double* x) {
    taken = 0;
    std::fill_n(x, K, 0.0);
    if (!plain() && low_ + high_ == 0) return;
    const double sigma = sigma_of(), rho = rho_of();
    double w = 2;
    s.scale(K, sigma, b_, xs);
    if (stride > 0) first[0] = w;
    for (taken = 1; taken <= limit; ++taken) {
      w = 4 / (4 - rho * rho * w);
      const double* const last = slot(taken - 1);
      double *const r = rs + (taken - 1) * stride, *const now = slot(taken);
      apply(last, r);
      s.axpy(K, -1.0, b_, r);
      s.scale(K, w, last, now);
      if (taken > 1) s.axpy(K, 1 - w, slot(taken - 2), now);
      s.axpy(K, -w * sigma, r, now);
      if (stride > 0) first[taken] = w;
    }
    std::copy_n(slot(limit), K, x);
  }
  double* slot(Size i) const { return xs + (stride > 0 ? i : i % 3) * K; }

  void chebyshev_back(const double* dx, Gradient& d) {
    if (!plain() && low_ + high_ == 0) return;
    const double sigma = sigma_of(), rho = rho_of();
    double *now = adjoint[0], *last = adjoint[1], *before = adjoint[2], d_sigma = 0, d_rho = 0, d_w = 0;
    std::copy_n(dx, K, now);
    std::fill_n(last, K, 0.0), std::fill_n(before, K, 0.0);
    for (Size i = limit; i > 0; --i) {
      const double w = first[i], *const r = rs + (i - 1) * K, *const x = slot(i - 1);
      const double along = s.dot(K, now, r);
      d_w += s.dot(K, now, x) - (i > 1 ? s.dot(K, now, slot(i - 2)) : 0.0) - sigma * along;
      d_sigma -= w * along;
      s.axpy(K, w, now, last);
      s.axpy(K, 1 - w, now, before);
      s.scale(K, -w * sigma, now, now);  // of r
      apply(now, adjoint[3]);
      s.axpy(K, 1.0, adjoint[3], last);
      s.axpy(K, -1.0, now, d.b);
      add_outer(1.0, now, x, d);
      d_rho += d_w * w * w * rho * first[i - 1] / 2;
      d_w *= w * w * rho * rho / 4;
      std::fill_n(now, K, 0.0);
      std::swap(now, last), std::swap(last, before);
    }
    s.axpy(K, sigma, now, d.b);
    d_sigma += s.dot(K, now, b_);
    if (plain()) {
      d.low += d_sigma;
      return;
    }
    d.low += -d_sigma * sigma * sigma / 2 - d_rho * (1 + rho) * sigma / 2;
    d.high += -d_sigma * sigma * sigma / 2 + d_rho * (1 - rho) * sigma / 2;
  }

  const Simd<double>& s;
  Size K;
  SolveBy by;
  Size limit, stride, taken = 0;
  Cholesky cholesky;
  const double *h_ = nullptr, *ridge_ = nullptr, *b_ = nullptr;  // of the last run
  double low_ = 0, high_ = 0, trace = 0;
  double* adjoint[4] = {};
  double *xs = nullptr, *rs = nullptr, *as = nullptr, *first = nullptr, *second = nullptr, *third = nullptr;
};

/// A head of a sequence with a number outside the domain has no answer; the others have theirs.
template <class T>
void no_answer(const View<T, 4>& o, const Sequence& n, int h) {
  for (std::ptrdiff_t t = n.begin; o && t < n.end; ++t)
    for (std::ptrdiff_t b = 0; b < o.extent[3]; ++b) o(n.row, t, h, b) = std::numeric_limits<T>::quiet_NaN();
}
template <class T>
void no_answer(const View<T, 3>& o, const Sequence& n, int h) {
  for (std::ptrdiff_t t = n.begin; o && t < n.end; ++t) o(n.row, t, h) = std::numeric_limits<T>::quiet_NaN();
}

}  // namespace ttr::families
