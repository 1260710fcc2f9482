// Cholesky factors in lanes, on every instruction set, against one factor at a time: every lane is a system of its own.
#include "families/solve/least_squares/factor_simd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "families/common/solve.h"

namespace {

using Size = std::ptrdiff_t;
using Doubles = std::vector<double>;

// Lane l has seen keys 0 .. l of the group; `spoiled` is a token whose key is NaN, `negative` a lane whose diagonal is
// below zero; -1: none.
void expect_each_alone(const ttr::Simd<double>& s, Size K, Size spoiled, Size negative) {
  const ttr::FactorSimd<double>& f = ttr::factor_simd(s);
  const Size L = f.lanes;
  std::mt19937 random(static_cast<unsigned>(K));
  std::normal_distribution<double> normal;
  const auto draw = [&](Size n) {
    Doubles x(static_cast<std::size_t>(n));
    for (double& y : x) y = normal(random);
    return x;
  };
  Doubles root = draw(K * K), H(static_cast<std::size_t>(K * K)), k = draw(L * K), x = draw(K * L), C = draw(L * L);
  s.gemm_nt(K, K, K, 1.0, root.data(), K, root.data(), K, 0.0, H.data(), K);
  Doubles e = draw(L), d = draw(K * L);
  for (Doubles* positive : {&e, &d, &C})
    for (double& y : *positive) y = 0.1 + std::abs(y);
  if (spoiled >= 0) k[static_cast<std::size_t>(spoiled * K + K / 2)] = std::numeric_limits<double>::quiet_NaN();
  if (negative >= 0)
    for (Size i = 0; i < K; ++i) d[static_cast<std::size_t>(i * L + negative)] = -1e6;

  const Doubles b = x;
  Doubles A(static_cast<std::size_t>(K * (K + 1) / 2 * L)), inverse(static_cast<std::size_t>(K * L)),
      good(static_cast<std::size_t>(L));
  f.form(K, H.data(), K, e.data(), C.data(), k.data(), K, d.data(), A.data());
  f.factor(K, A.data(), inverse.data(), good.data());
  f.solve(K, A.data(), inverse.data(), x.data());

  std::vector<std::byte> memory(static_cast<std::size_t>(K * K) * sizeof(double) + 128);
  for (Size l = 0; l < L; ++l) {
    Doubles own(static_cast<std::size_t>(K * K)), ridge(static_cast<std::size_t>(K)), y(static_cast<std::size_t>(K));
    for (Size i = 0; i < K; ++i) {
      for (Size j = 0; j <= i; ++j) {
        double& sum = own[static_cast<std::size_t>(i * K + j)];
        sum = e[static_cast<std::size_t>(l)] * H[static_cast<std::size_t>(i * K + j)];
        for (Size t = 0; t <= l; ++t)
          sum += C[static_cast<std::size_t>(t * L + l)] * k[static_cast<std::size_t>(t * K + i)] *
                 k[static_cast<std::size_t>(t * K + j)];
      }
      ridge[static_cast<std::size_t>(i)] = d[static_cast<std::size_t>(i * L + l)];
      y[static_cast<std::size_t>(i)] = b[static_cast<std::size_t>(i * L + l)];
    }
    ttr::families::Arena arena(ttr::Workspace{memory.data(), memory.size()});
    ttr::families::Cholesky cholesky(s, K, arena);
    const bool fine = cholesky.factor(own.data(), ridge.data());
    cholesky.solve(y.data());
    EXPECT_EQ(fine, l != negative && (spoiled < 0 || l < spoiled)) << "lane " << l;
    EXPECT_EQ(good[static_cast<std::size_t>(l)] == 1, fine) << "lane " << l;
    double size = 0, error = 0;
    for (Size i = 0; i < K; ++i) {
      const double got = x[static_cast<std::size_t>(i * L + l)], want = y[static_cast<std::size_t>(i)];
      if (!fine) EXPECT_TRUE(std::isnan(got)) << "lane " << l;
      else size = std::max(size, std::abs(want)), error = std::max(error, std::abs(got - want));
    }
    EXPECT_LE(error, 1e-11 * size) << "lane " << l;
  }
}

TEST(FactorSimd, EveryLaneIsASystemOfItsOwn) {
  for (const std::string& set : ttr::simd_targets())
    for (const Size K : {1, 2, 3, 4, 5, 7, 8, 11, 16, 33}) {
      const ttr::Simd<double>& s = ttr::simd<double>(set);
      const Size last = ttr::factor_simd(s).lanes - 1;
      SCOPED_TRACE(set + ", K = " + std::to_string(K));
      expect_each_alone(s, K, -1, -1);
      expect_each_alone(s, K, last, -1);
      expect_each_alone(s, K, -1, last / 2);
    }
}

}  // namespace
