#include "bench_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttr::cli {
namespace {

using Real = LeastSquaresReference::Real;
using Reals = std::vector<Real>;

// A = L L' in the lower triangle; false if a pivot is below `least` times the largest diagonal entry.
bool cholesky(Reals& a, std::size_t n, Real least) {
  Real largest = 0;
  for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, a[i * n + i]);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      Real sum = a[i * n + j];
      for (std::size_t l = 0; l < j; ++l) sum -= a[i * n + l] * a[j * n + l];
      if (i == j && !(sum > least * largest)) return false;
      a[i * n + j] = i == j ? std::sqrt(sum) : sum / a[j * n + j];
    }
  return true;
}

Reals solved(const Reals& l, std::size_t n, Reals x) {
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) x[i] -= l[i * n + j] * x[j];
    x[i] /= l[i * n + i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t j = i + 1; j < n; ++j) x[i] -= l[j * n + i] * x[j];
    x[i] /= l[i * n + i];
  }
  return x;
}

// x = A^+ b: the eigenvectors are the columns of `u` once the off-diagonal entries of A are gone.
Reals least_norm(Reals a, std::size_t n, const Reals& b, Real cut) {
  Reals u(n * n, 0);
  Real size = 0;
  for (std::size_t i = 0; i < n; ++i) u[i * n + i] = 1, size = std::max(size, std::abs(a[i * n + i]));
  const Real done = size * std::numeric_limits<Real>::epsilon();
  for (int sweep = 0; sweep < 60; ++sweep) {
    bool turned = false;
    for (std::size_t p = 0; p < n; ++p)
      for (std::size_t q = p + 1; q < n; ++q) {
        const Real off = a[p * n + q];
        if (!(std::abs(off) > done)) continue;
        turned = true;
        const Real theta = (a[q * n + q] - a[p * n + p]) / (2 * off);
        const Real t = (theta < 0 ? -1 : 1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const Real c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (std::size_t i = 0; i < n; ++i) {
          const Real x = a[i * n + p], y = a[i * n + q];
          a[i * n + p] = c * x - s * y, a[i * n + q] = s * x + c * y;
        }
        for (std::size_t i = 0; i < n; ++i) {
          const Real x = a[p * n + i], y = a[q * n + i];
          a[p * n + i] = c * x - s * y, a[q * n + i] = s * x + c * y;
          const Real v = u[i * n + p], w = u[i * n + q];
          u[i * n + p] = c * v - s * w, u[i * n + q] = s * v + c * w;
        }
      }
    if (!turned) break;
  }
  Real largest = 0;
  for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, a[i * n + i]);
  Reals x(n, 0);
  for (std::size_t e = 0; e < n; ++e) {
    const Real value = a[e * n + e];
    if (!(value > cut * largest)) continue;
    Real along = 0;
    for (std::size_t i = 0; i < n; ++i) along += u[i * n + e] * b[i];
    for (std::size_t i = 0; i < n; ++i) x[i] += u[i * n + e] * along / value;
  }
  return x;
}

}  // namespace

LeastSquaresReference::LeastSquaresReference(const LeastSquaresProblem& problem, std::size_t key_dim,
                                             std::size_t value_dim)
    : problem_(problem), K_(key_dim), V_(value_dim), h_(K_ * K_, 0), f_(K_ * V_, 0) {
  if (problem.kind == LeastSquaresProblem::Ridge::fading)
    for (std::size_t i = 0; i < K_; ++i) h_[i * K_ + i] = problem.ridge;
}

void LeastSquaresReference::accumulate(Reals& h, Reals& f, Real gamma, const double* k, const double* v) const {
  for (std::size_t i = 0; i < K_; ++i) {
    const Real x = k[i];
    for (std::size_t j = 0; j <= i; ++j) h[i * K_ + j] = gamma * h[i * K_ + j] + x * k[j];
    for (std::size_t j = 0; j < V_; ++j) f[i * V_ + j] = gamma * f[i * V_ + j] + x * v[j];
  }
}

void LeastSquaresReference::add(const double* k, const double* v) {
  if (problem_.window == 0) {
    accumulate(h_, f_, problem_.gamma, k, v);
    return;
  }
  std::vector<double> pair(k, k + K_);
  pair.insert(pair.end(), v, v + V_);
  pairs_.push_back(std::move(pair));
  if (pairs_.size() > problem_.window) pairs_.pop_front();
}

void LeastSquaresReference::answer(const double* q, double* o) const {
  using Ridge = LeastSquaresProblem::Ridge;
  Reals h = h_, f = f_;
  for (const std::vector<double>& pair : pairs_) accumulate(h, f, problem_.gamma, pair.data(), pair.data() + K_);
  for (std::size_t i = 0; i < K_; ++i)
    for (std::size_t j = 0; j < i; ++j) h[j * K_ + i] = h[i * K_ + j];
  Real ridge = problem_.kind == Ridge::constant || problem_.kind == Ridge::frobenius ? problem_.ridge : 0;
  if (problem_.kind == Ridge::frobenius) {
    Real square = 0;
    for (const Real x : h) square += x * x;
    ridge *= std::sqrt(square);
  }
  const Reals whole = h;
  for (std::size_t i = 0; i < K_; ++i) h[i * K_ + i] += ridge;
  const Reals query(q, q + K_);
  const bool least = ridge == 0;
  Reals x;
  if (cholesky(h, K_, least ? 100 * cut : 0)) x = solved(h, K_, query);
  else if (least) x = least_norm(whole, K_, query, cut);
  else x.assign(K_, std::numeric_limits<Real>::quiet_NaN());
  for (std::size_t j = 0; j < V_; ++j) {
    Real sum = 0;
    for (std::size_t i = 0; i < K_; ++i) sum += f[i * V_ + j] * x[i];
    o[j] = static_cast<double>(problem_.scale * sum);
  }
}

}  // namespace ttr::cli
