// kappa(x, y) for tiles of rows, and its gradient, in double.
//
//   exponential  exp(scale x.y)      gaussian  exp(-|x - y|^2 / bandwidth)
//   linear       x.y                 polynomial  (1 + x.y)^degree
//
//   X_ij = d kappa(a_i, b_j) given      da_i += sum_j X_ij d kappa / da_i      db_j += sum_i X_ij d kappa / db_j
//
// With G = X * kappa', kappa' the slope in x.y (gaussian: in -|x-y|^2 / 2): dA = G B, dB = G' A, and for the gaussian
// less rowsum(G) * A and colsum(G) * B.
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/common/scratch.h"
#include "families/pairs/attention/attention_simd.h"
#include "families/pairs/layout.h"
#include "simd/simd.h"

namespace ttr::families {

enum class RegressionKernel { exponential, gaussian, linear, polynomial };

namespace pairs {

class Kernel {
 public:
  Kernel(const Simd<double>& simd, Size key_dim, Arena& arena)
      : s(simd), a(simd.name ? &attention_simd(simd) : nullptr), K(key_dim) {
    turned = arena.take<double>(K * C);
    slope = arena.take<double>(C * C);
    for (double** sums : {&rows, &columns}) *sums = arena.take<double>(C);
  }

  /// Each kernel reads its own number alone.
  void choose(RegressionKernel kernel, double scale_, double bandwidth_, int degree_) {
    kind = kernel, scale = scale_, bandwidth = bandwidth_, degree = degree_;
  }
  void choose_gaussian(double width) { kind = RegressionKernel::gaussian, bandwidth = width; }

  /// out [M, N] = kappa(A_i, B_j) for A [M, K] and B [N, K]
  void values(Size M, Size N, const double* A, const double* B, double* out, Size ld) {
    for (Size j = 0; j < N; j += C) {
      const Size n = std::min(C, N - j);
      products(M, n, A, B + j * K, out + j, ld);
      for (Size i = 0; i < M; ++i) apply(n, out + i * ld + j, degree);
    }
  }

  /// M, N <= 64. X is overwritten; dA or dB may be null.
  void back(Size M, Size N, const double* A, const double* B, double* X, Size ld, double* dA, double* dB) {
    using K_ = RegressionKernel;
    if (kind != K_::linear) {
      products(M, N, A, B, slope, C);
      const double rate = kind == K_::exponential ? scale : kind == K_::gaussian ? 2 / bandwidth : degree;
      for (Size i = 0; i < M; ++i) {
        apply(N, slope + i * C, degree - 1);
        s.scale(N, rate, slope + i * C, slope + i * C);
        s.mul(N, slope + i * C, X + i * ld, X + i * ld);
      }
    }
    if (dA) s.gemm_nn(M, K, N, 1.0, X, ld, B, K, 1.0, dA, K);
    if (dB) s.gemm_tn(N, K, M, 1.0, X, ld, A, K, 1.0, dB, K);
    if (kind != K_::gaussian) return;
    std::fill_n(rows, M, 0.0), std::fill_n(columns, N, 0.0);
    a->add_sums(M, N, X, ld, rows, columns);
    for (Size i = 0; dA && i < M; ++i) s.axpy(K, -rows[i], A + i * K, dA + i * K);
    for (Size j = 0; dB && j < N; ++j) s.axpy(K, -columns[j], B + j * K, dB + j * K);
  }

 private:
  static constexpr Size C = block_size;

  // What the kernel is a function of: x.y, scaled where it is an exponent, or -|x - y|^2 / bandwidth.
  void products(Size M, Size N, const double* A, const double* B, double* out, Size ld) {
    using K_ = RegressionKernel;
    s.transpose(N, K, B, K, turned, C);
    if (kind == K_::gaussian) a->distances(M, N, K, -1 / bandwidth, A, K, turned, C, out, ld);
    else s.gemm_nn(M, N, K, kind == K_::exponential ? scale : 1.0, A, K, turned, C, 0.0, out, ld);
  }
  void apply(Size n, double* x, int power) const {
    using K_ = RegressionKernel;
    if (kind == K_::exponential || kind == K_::gaussian) s.exp(n, x, x);
    if (kind != K_::polynomial) return;
    for (Size j = 0; j < n; ++j) {
      const double base = 1 + x[j];
      x[j] = 1;
      for (int d = 0; d < power; ++d) x[j] *= base;
    }
  }

  const Simd<double>& s;
  const AttentionSimd<double>* a;
  Size K;
  RegressionKernel kind = RegressionKernel::exponential;
  double scale = 1, bandwidth = 1;
  int degree = 2;
  double *turned, *slope, *rows, *columns;
};

}  // namespace pairs
}  // namespace ttr::families
