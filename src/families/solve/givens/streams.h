// Streams of one head through the Givens kernel, and their literal solutions: normal equations where they are
// regular, a pivoted orthogonal decomposition where they are not.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "families/solve/givens/givens.h"
#include "families_harness.h"
#include "oracle/least_squares.h"

namespace ttr_families_test {

using namespace ttr::families;

/// x with A x = b by elimination with pivoting; A need not be symmetric.
inline Doubles solved(Doubles A, Doubles b) {
  const Size n = static_cast<Size>(b.size());
  for (Size i = 0; i < n; ++i) {
    Size best = i;
    for (Size r = i; r < n; ++r)
      if (std::abs(A[r * n + i]) > std::abs(A[best * n + i])) best = r;
    for (Size j = 0; j < n; ++j) std::swap(A[i * n + j], A[best * n + j]);
    std::swap(b[i], b[best]);
    for (Size r = i + 1; r < n; ++r) {
      const double f = A[r * n + i] / A[i * n + i];
      for (Size j = i; j < n; ++j) A[r * n + j] -= f * A[i * n + j];
      b[r] -= f * b[i];
    }
  }
  for (Size i = n; i-- > 0;) {
    for (Size j = i + 1; j < n; ++j) b[i] -= A[i * n + j] * b[j];
    b[i] /= A[i * n + i];
  }
  return b;
}

/// One head from fresh states: keys, values, queries, logs of the gates, weights.
struct Stream {
  Size T, K, V;
  Doubles q, k, v, g, beta;
  Stream(Size time, Size key_dim, Size value_dim, unsigned seed) : T(time), K(key_dim), V(value_dim) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    for (Size i = 0; i < T * K; ++i) q.push_back(normal(rng)), k.push_back(normal(rng));
    for (Size i = 0; i < T * V; ++i) v.push_back(normal(rng));
    g.assign(T, 0.0), beta.assign(T, 1.0);
  }
};

template <class T>
struct Runner {
  const Stream& x;
  double fading;  // ridge; 0: none
  std::vector<T> q, k, v, g, beta, o, ridge, variance, known;
  Doubles R, Z, share, basis, work;

  Runner(const Stream& stream, double fading_ridge)
      : x(stream),
        fading(fading_ridge),
        q(x.q.begin(), x.q.end()),
        k(x.k.begin(), x.k.end()),
        v(x.v.begin(), x.v.end()),
        g(x.g.begin(), x.g.end()),
        beta(x.beta.begin(), x.beta.end()),
        o(x.T * x.V, T(0)),
        ridge(1, static_cast<T>(fading_ridge)),
        variance(x.T, T(0)),
        known(x.T, T(0)),
        R(x.K * x.K, 0.0),
        Z(x.K * x.V, 0.0),
        share(x.K, 0.0),
        basis(x.K * x.K, 0.0) {}
  GivensProblem<T> problem(const std::vector<Sequence>& list) {
    GivensProblem<T> p;
    const int K = static_cast<int>(x.K), V = static_cast<int>(x.V);
    p.linear = {list,
                1,
                1,
                K,
                V,
                T(1),
                ttr::view<const T>(q.data(), 1, x.T, 1, x.K),
                ttr::view<const T>(k.data(), 1, x.T, 1, x.K),
                ttr::view<const T>(v.data(), 1, x.T, 1, x.V),
                ttr::view<const T>(g.data(), 1, x.T, 1),
                ttr::view<const T>(beta.data(), 1, x.T, 1),
                nullptr,
                ttr::view(o.data(), 1, x.T, 1, x.V)};
    if (fading > 0) p.ridge = {ridge.data(), {1, x.K}, {0, 0}};
    p.r = R.data(), p.z = Z.data(), p.share = share.data(), p.basis = basis.data();
    p.variance = ttr::view(variance.data(), 1, x.T, 1), p.known = ttr::view(known.data(), 1, x.T, 1);
    return p;
  }
  Workspace scratch(bool backward) {
    const std::size_t bytes = givens::workspace_bytes(static_cast<int>(x.K), static_cast<int>(x.V), x.T, backward);
    work.assign(bytes / 8 + 1, std::numeric_limits<double>::quiet_NaN());
    return {work.data(), work.size() * 8};
  }
  Doubles forward() {
    const std::vector<Sequence> list = {{0, 0, x.T}};
    EXPECT_EQ(givens::forward(problem(list), Form::best, ttr::simd<double>(""), scratch(false)), Status::ok);
    return Doubles(o.begin(), o.end());
  }
  int rank() const {
    int r = 0;
    for (Size i = 0; i < x.K; ++i) r += R[i * x.K + i] != 0;
    return r;
  }
};

/// The answer at token t by an orthogonal decomposition of all weighted rows (ridge: one more row per coordinate).
inline Doubles literal_answer(const Stream& x, Size t, double fading_ridge) {
  using ttr::oracle::Matrix;
  const int K = static_cast<int>(x.K), V = static_cast<int>(x.V), n = static_cast<int>(t) + 1;
  const int extra = fading_ridge > 0 ? K : 0;
  Matrix<double> a(n + extra, K), b(n + extra, V);
  double fade = 0;
  for (int i = n; i-- > 0; fade += x.g[i]) {
    const double root = std::sqrt(x.beta[i]) * std::exp(fade / 2);
    for (int c = 0; c < K; ++c) a(i, c) = root * x.k[i * K + c];
    for (int c = 0; c < V; ++c) b(i, c) = root * x.v[i * V + c];
  }
  for (int c = 0; c < extra; ++c) a(n + c, c) = std::sqrt(fading_ridge) * std::exp(fade / 2);
  const Matrix<double> S = ttr::oracle::least_squares(a, b);
  Doubles o(V, 0.0);
  for (int i = 0; i < K; ++i)
    for (int j = 0; j < V; ++j) o[j] += S(i, j) * x.q[t * K + i];
  return o;
}

inline void expect_literal(const Stream& x, const Doubles& got, double ridge, double tolerance,
                           const std::string& what) {
  for (Size t = 0; t < x.T; ++t) {
    const Doubles want = literal_answer(x, t, ridge);
    ASSERT_LE(distance(Doubles(got.begin() + t * x.V, got.begin() + (t + 1) * x.V), want), tolerance)
        << what << " token " << t;
  }
}

}  // namespace ttr_families_test
