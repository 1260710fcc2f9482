// orthogonal.h
#include "model/orthogonal.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace ttr::model {

template <class T>
void orthogonalise(Gemm<T>& gemm, std::ptrdiff_t rows, std::ptrdiff_t columns, T scale, T* X, T* scratch) {
  const T a = static_cast<T>(3.4445), b = static_cast<T>(-4.7750), c = static_cast<T>(2.0315);
  const std::ptrdiff_t small = std::min(rows, columns), size = rows * columns, room = std::max(size, small * small);
  T *const gram = scratch, *const square = scratch + room, *const next = square + room;
  for (std::ptrdiff_t i = 0; i < size; ++i) X[i] *= scale;
  for (int step = 0; step < 5; ++step) {
    if (rows <= columns) gemm.nt(rows, rows, columns, X, columns, X, columns, 0, gram, small);
    else gemm.tn(columns, columns, rows, X, columns, X, columns, 0, gram, small);
    gemm.nn(small, small, small, gram, small, gram, small, 0, square, small);
    for (std::ptrdiff_t i = 0; i < small * small; ++i) square[i] = b * gram[i] + c * square[i];
    if (rows <= columns) gemm.nn(rows, columns, rows, square, small, X, columns, 0, next, columns);
    else gemm.nn(rows, columns, columns, X, columns, square, small, 0, next, columns);
    for (std::ptrdiff_t i = 0; i < size; ++i) X[i] = a * X[i] + next[i];
  }
}

template <class T>
void eigenvectors(std::ptrdiff_t n, const T* A, T* Q, std::vector<double>& work) {
  work.resize(static_cast<std::size_t>(2 * n * n));
  double *const a = work.data(), *const q = a + n * n;
  double off = 0, all = 0;
  for (std::ptrdiff_t i = 0; i < n * n; ++i) {
    a[i] = static_cast<double>(A[i]), q[i] = i % n == i / n ? 1 : 0;
    all += a[i] * a[i];
  }
  for (int sweep = 0; sweep < 40; ++sweep) {
    off = 0;
    for (std::ptrdiff_t i = 0; i < n; ++i)
      for (std::ptrdiff_t j = 0; j < i; ++j) off += a[i * n + j] * a[i * n + j];
    if (off <= 1e-30 * all) break;
    for (std::ptrdiff_t i = 0; i < n; ++i)
      for (std::ptrdiff_t j = i + 1; j < n; ++j) {
        const double e = a[i * n + j];
        if (e == 0) continue;
        const double tau = (a[j * n + j] - a[i * n + i]) / (2 * e);
        const double t = (tau < 0 ? -1 : 1) / (std::abs(tau) + std::sqrt(1 + tau * tau));
        const double c = 1 / std::sqrt(1 + t * t), s = t * c;
        for (std::ptrdiff_t k = 0; k < n; ++k) {  // columns i and j, then rows
          const double x = a[k * n + i], y = a[k * n + j];
          a[k * n + i] = c * x - s * y, a[k * n + j] = s * x + c * y;
        }
        for (std::ptrdiff_t k = 0; k < n; ++k) {
          const double x = a[i * n + k], y = a[j * n + k];
          a[i * n + k] = c * x - s * y, a[j * n + k] = s * x + c * y;
        }
        for (std::ptrdiff_t k = 0; k < n; ++k) {  // rows of q are eigenvectors
          const double x = q[i * n + k], y = q[j * n + k];
          q[i * n + k] = c * x - s * y, q[j * n + k] = s * x + c * y;
        }
      }
  }
  std::vector<std::ptrdiff_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::ptrdiff_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto i, auto j) { return a[i * n + i] > a[j * n + j]; });
  for (std::ptrdiff_t j = 0; j < n; ++j)
    for (std::ptrdiff_t k = 0; k < n; ++k)
      Q[k * n + j] = static_cast<T>(q[order[static_cast<std::size_t>(j)] * n + k]);
}

template <class T>
void iterate(std::ptrdiff_t n, const T* A, T* Q, std::vector<double>& work) {
  work.resize(static_cast<std::size_t>(n * n));
  double* const rows = work.data();  // row j is column j of A Q
  std::fill_n(rows, n * n, 0.0);
  for (std::ptrdiff_t i = 0; i < n; ++i)
    for (std::ptrdiff_t k = 0; k < n; ++k) {
      const double x = static_cast<double>(A[i * n + k]);
      for (std::ptrdiff_t j = 0; j < n; ++j) rows[j * n + i] += x * static_cast<double>(Q[k * n + j]);
    }
  for (std::ptrdiff_t j = 0; j < n; ++j) {
    double* const v = rows + j * n;
    const double before = std::sqrt(std::inner_product(v, v + n, v, 0.0));
    for (int twice = 0; twice < 2; ++twice)
      for (std::ptrdiff_t i = 0; i < j; ++i) {
        const double* const u = rows + i * n;
        const double dot = std::inner_product(u, u + n, v, 0.0);
        for (std::ptrdiff_t k = 0; k < n; ++k) v[k] -= dot * u[k];
      }
    double length = std::sqrt(std::inner_product(v, v + n, v, 0.0));
    if (length <= 1e-13 * before || length == 0) {  // A has no such direction: keep the old one, made orthogonal
      for (std::ptrdiff_t k = 0; k < n; ++k) v[k] = static_cast<double>(Q[k * n + j]);
      for (int twice = 0; twice < 2; ++twice)
        for (std::ptrdiff_t i = 0; i < j; ++i) {
          const double* const u = rows + i * n;
          const double dot = std::inner_product(u, u + n, v, 0.0);
          for (std::ptrdiff_t k = 0; k < n; ++k) v[k] -= dot * u[k];
        }
      length = std::sqrt(std::inner_product(v, v + n, v, 0.0));
    }
    if (length > 0)
      for (std::ptrdiff_t k = 0; k < n; ++k) v[k] /= length;
  }
  for (std::ptrdiff_t j = 0; j < n; ++j)
    for (std::ptrdiff_t k = 0; k < n; ++k) Q[k * n + j] = static_cast<T>(rows[j * n + k]);
}

template <class T>
void inverse_root(Gemm<double>& gemm, std::ptrdiff_t n, int order, double mass, double damping, const T* A, T* root,
                  std::vector<double>& work) {
  const std::ptrdiff_t size = n * n;
  work.resize(static_cast<std::size_t>(4 * size));
  double *M = work.data(), *X = M + size, *Y = X + size, *other = Y + size;
  double trace = 0, length = 0;
  for (std::ptrdiff_t i = 0; i < size; ++i) M[i] = static_cast<double>(A[i]) / mass;
  for (std::ptrdiff_t i = 0; i < n; ++i) trace += M[i * n + i];
  if (!(trace > 0)) {
    for (std::ptrdiff_t i = 0; i < size; ++i) root[i] = i % (n + 1) == 0 ? T(1) : T(0);
    return;
  }
  // A is a sum that was rounded, so that eigenvalues that should be zero may be below it by some roundings of the trace.
  const double least = 8 * static_cast<double>(std::numeric_limits<T>::epsilon());
  const double added = std::max(damping / static_cast<double>(n), least) * trace;
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    M[i * n + i] += added;
    for (std::ptrdiff_t j = 0; j < i; ++j) M[i * n + j] = M[j * n + i] = (M[i * n + j] + M[j * n + i]) / 2;
  }
  for (std::ptrdiff_t i = 0; i < size; ++i) length += M[i] * M[i];
  const double s = (order + 1) / (2 * std::sqrt(length));
  for (std::ptrdiff_t i = 0; i < size; ++i) M[i] *= s, X[i] = i % (n + 1) == 0 ? std::pow(s, 1.0 / order) : 0;
  double far = 0;
  for (int step = 0; step < 100; ++step) {
    double now = 0;
    for (std::ptrdiff_t i = 0; i < size; ++i) {
      const double one = i % (n + 1) == 0 ? 1 : 0;
      now = std::max(now, std::abs(M[i] - one));
      Y[i] = ((order + 1) * one - M[i]) / order;
    }
    if (now < 1e-13 || (step > 0 && now < 1e-6 && now >= far)) break;  // there, or as near as rounding lets it be
    far = now;
    gemm.nn(n, n, n, X, n, Y, n, 0, other, n), std::swap(X, other);
    for (int power = order; power > 1; power /= 2) gemm.nn(n, n, n, Y, n, Y, n, 0, other, n), std::swap(Y, other);
    gemm.nn(n, n, n, Y, n, M, n, 0, other, n), std::swap(M, other);
  }
  for (std::ptrdiff_t i = 0; i < n; ++i)
    for (std::ptrdiff_t j = 0; j < n; ++j) root[i * n + j] = static_cast<T>((X[i * n + j] + X[j * n + i]) / 2);
}

template void orthogonalise<float>(Gemm<float>&, std::ptrdiff_t, std::ptrdiff_t, float, float*, float*);
template void orthogonalise<double>(Gemm<double>&, std::ptrdiff_t, std::ptrdiff_t, double, double*, double*);
template void eigenvectors<float>(std::ptrdiff_t, const float*, float*, std::vector<double>&);
template void eigenvectors<double>(std::ptrdiff_t, const double*, double*, std::vector<double>&);
template void iterate<float>(std::ptrdiff_t, const float*, float*, std::vector<double>&);
template void iterate<double>(std::ptrdiff_t, const double*, double*, std::vector<double>&);
template void inverse_root<float>(Gemm<double>&, std::ptrdiff_t, int, double, double, const float*, float*,
                                  std::vector<double>&);
template void inverse_root<double>(Gemm<double>&, std::ptrdiff_t, int, double, double, const double*, double*,
                                   std::vector<double>&);

}  // namespace ttr::model
