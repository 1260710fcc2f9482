// Identities of exact and nonparametric memories, as named tests.
#include <gtest/gtest.h>

#include <algorithm>

#include "identities_harness.h"

namespace ttr {
namespace {

using namespace ttr_identities;

// Solves A X = B (n x n, n x m) in place of B, by elimination with pivots.
void solve(std::vector<double> a, std::vector<double>& b, std::size_t n, std::size_t m) {
  for (std::size_t c = 0; c < n; ++c) {
    std::size_t best = c;
    for (std::size_t r = c; r < n; ++r)
      if (std::abs(a[r * n + c]) > std::abs(a[best * n + c])) best = r;
    for (std::size_t j = 0; j < n; ++j) std::swap(a[c * n + j], a[best * n + j]);
    for (std::size_t j = 0; j < m; ++j) std::swap(b[c * m + j], b[best * m + j]);
    for (std::size_t r = 0; r < n; ++r) {
      if (r == c) continue;
      const double f = a[r * n + c] / a[c * n + c];
      for (std::size_t j = c; j < n; ++j) a[r * n + j] -= f * a[c * n + j];
      for (std::size_t j = 0; j < m; ++j) b[r * m + j] -= f * b[c * m + j];
    }
  }
  for (std::size_t r = 0; r < n; ++r)
    for (std::size_t j = 0; j < m; ++j) b[r * m + j] /= a[r * n + r];
}

// The objective is a quadratic, so one Newton step from anywhere is its minimum.
TEST(Identities, LeastSquaresIsOneNewtonStepFromAnyStart) {
  const NamedNumbers in = pairs();
  const double ridge = 0.3;
  Numbers expected(T * H * V);
  const Numbers &q = in.at("q"), &k = in.at("k"), &v = in.at("v");
  for (std::size_t h = 0; h < H; ++h) {
    std::vector<double> hessian(K * K);
    for (std::size_t i = 0; i < K; ++i) hessian[i * K + i] = ridge;
    std::vector<double> past_kv(K * V);
    for (std::size_t t = 0; t < T; ++t) {
      const std::size_t row = t * H + h;
      for (std::size_t i = 0; i < K; ++i) {
        for (std::size_t j = 0; j < K; ++j) hessian[i * K + j] += k[row * K + i] * k[row * K + j];
        for (std::size_t j = 0; j < V; ++j) past_kv[i * V + j] += k[row * K + i] * v[row * V + j];
      }
      const Numbers start = normals(K * V, static_cast<unsigned>(100 + row));
      std::vector<double> step(K * V);  // the gradient at the start, then H^-1 times it
      for (std::size_t i = 0; i < K; ++i)
        for (std::size_t j = 0; j < V; ++j) {
          step[i * V + j] = -past_kv[i * V + j];
          for (std::size_t l = 0; l < K; ++l) step[i * V + j] += hessian[i * K + l] * start[l * V + j];
        }
      solve(hessian, step, K, V);
      for (std::size_t j = 0; j < V; ++j)
        for (std::size_t i = 0; i < K; ++i)
          expected[row * V + j] += (start[i * V + j] - step[i * V + j]) * q[row * K + i];
    }
  }
  EXPECT_LT(relative_error(run("rls:ridge=0.3", in), expected), 1e-11);
}

// Asked for the keys it has stored, least squares answers with a projection of the values: never longer than they
// are. The sum of k v' that linear attention keeps has no such bound.
TEST(Identities, LeastSquaresKeepsTheNormBoundAndLinearAttentionDoesNot) {
  int violations = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    NamedNumbers in;
    in["k"] = normals(T * H * K, 10 + seed), in["v"] = normals(T * H * V, 1000 + seed);
    // All answers of the last token: it is asked for one stored key after the other.
    const auto answers = [&](const std::string& layer) {
      Numbers o(T * H * V);
      for (std::size_t j = 0; j < T; ++j) {
        in["q"].assign(T * H * K, 0.0);
        std::copy_n(in["k"].begin() + static_cast<long>(j * H * K), H * K,
                    in["q"].begin() + static_cast<long>((T - 1) * H * K));
        const Numbers all = run(layer, in);
        std::copy_n(all.end() - H * V, H * V, o.begin() + static_cast<long>(j * H * V));
      }
      return o;
    };
    const auto length = [&](const Numbers& x, std::size_t head) {
      double square = 0;
      for (std::size_t t = 0; t < T; ++t)
        for (std::size_t j = 0; j < V; ++j) square += std::pow(x[(t * H + head) * V + j], 2);
      return std::sqrt(square);
    };
    const Numbers exact = answers("rls"), sum = answers("linear-attention");
    for (std::size_t h = 0; h < H; ++h) {
      EXPECT_LE(length(exact, h), length(in["v"], h) * (1 + 1e-12)) << "seed " << seed;
      violations += length(sum, h) > length(in["v"], h);
    }
  }
  EXPECT_EQ(violations, 100);
}

// A very wide kernel gives all pairs the same weight: the best affine function of the key, read at the query.
TEST(Identities, LocalLinearAttentionOfAWideKernelIsAffineLeastSquares) {
  const NamedNumbers in = pairs();
  const Numbers local = run("near(gauss, bandwidth=1e9) / local(1) / exact(ridge=1e-9)", in);
  Numbers expected(T * H * V);
  const Numbers &q = in.at("q"), &k = in.at("k"), &v = in.at("v");
  for (std::size_t t = K + 2; t < T; ++t)  // overdetermined: the ridge does not matter
    for (std::size_t h = 0; h < H; ++h) {
      constexpr std::size_t n = K + 1;
      std::vector<double> a(n * n), b(n * V);
      for (std::size_t i = 0; i <= t; ++i) {
        double x[n] = {1};
        std::copy_n(k.begin() + static_cast<long>((i * H + h) * K), K, x + 1);
        for (std::size_t r = 0; r < n; ++r) {
          for (std::size_t c = 0; c < n; ++c) a[r * n + c] += x[r] * x[c];
          for (std::size_t c = 0; c < V; ++c) b[r * V + c] += x[r] * v[(i * H + h) * V + c];
        }
      }
      solve(a, b, n, V);
      for (std::size_t c = 0; c < V; ++c) {
        double o = b[c];
        for (std::size_t r = 0; r < K; ++r) o += b[(r + 1) * V + c] * q[(t * H + h) * K + r];
        expected[(t * H + h) * V + c] = o;
      }
    }
  const auto tail = [](const Numbers& x) { return Numbers(x.begin() + (K + 2) * H * V, x.end()); };
  EXPECT_LT(relative_error(tail(local), tail(expected)), 1e-6);
}

TEST(Identities, LeastSquaresByWoodburyIsLeastSquaresByRotations) {
  NamedNumbers in = pairs();
  in["g"] = uniforms(T * H, 4, -0.2, -0.01), in["beta"] = uniforms(T * H, 5, 0.2, 2.0);
  in["ridge"] = uniforms(H, 6, 0.5, 1.5);
  const std::string options = "ridge=input,ridge_kind=fading,decay=input,importance=input";
  EXPECT_LT(relative_error(run("rls:solver=woodbury," + options, in), run("rls:" + options, in)), 1e-11);
}

// Without a mask the last token of a causal layer and every other token have the same pairs.
TEST(Identities, TheLastTokenDoesNotKnowAboutTheMask) {
  NamedNumbers in = pairs();
  const auto last = [](const Numbers& x) { return Numbers(x.end() - H * V, x.end()); };
  EXPECT_LT(relative_error(last(run("softmax-attention:causal=no", in)), last(run("softmax-attention", in))), 1e-12);
  EXPECT_LT(relative_error(last(run("kernel-regression:causal=no,ridge=0.2", in)),
                           last(run("kernel-regression:ridge=0.2", in))),
            1e-10);
  EXPECT_LT(relative_error(last(run("local-linear-attention:causal=no,ridge=0.2", in)),
                           last(run("local-linear-attention:ridge=0.2", in))),
            1e-10);
  in["alpha"] = {0.4, 0.4};
  EXPECT_LT(relative_error(last(run("intention", in)), last(run("rls:ridge=0.4", in))), 1e-11);
}

TEST(Identities, SoftIsSkyformerWithTheQueriesAsKeys) {
  NamedNumbers in = pairs();
  in["k"] = in["q"];
  const Numbers skyformer = run("skyformer", in);
  in.erase("k");
  EXPECT_LT(relative_error(run("soft", in), skyformer), 1e-13);
}

// With every token its own landmark the approximation is exact, but for the ridge.
TEST(Identities, AsManyLandmarksAsTokensAreExact) {
  NamedNumbers in = pairs();
  in.erase("k");
  EXPECT_LT(relative_error(run("soft:landmarks=24,ridge=1e-9", in), run("soft", in)), 1e-6);
  EXPECT_GT(relative_error(run("soft:landmarks=3,ridge=1e-9", in), run("soft", in)), 1e-2);
}

}  // namespace
}  // namespace ttr
