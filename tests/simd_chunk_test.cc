// The primitives that only the chunk forms use, on every instruction set: products with factors per row, panels with
// strides, and running sums of gates as pairs of factors.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "simd/simd.h"
#include "simd_fixture.h"

namespace {

using ttr::Simd;
using Size = std::ptrdiff_t;

template <class T>
class ChunkPrimitives : public ttr_simd_test::Primitives<T> {};
using Numbers = testing::Types<float, double>;
TYPED_TEST_SUITE(ChunkPrimitives, Numbers);

TYPED_TEST(ChunkPrimitives, ProductWithFactorsOfRows) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    for (const Size M : {1, 3, 8, 13, 32})
      for (const Size N : {1, 7, 16, 37})
        for (const Size K : {0, 1, 5, 20})
          for (const bool with_alpha : {false, true}) {
            const Size lda = M + 2, ldb = N + 1, ldc = N + 3;
            const auto A = this->normals(K * lda), B = this->normals(K * ldb), alpha = this->normals(M),
                       beta = this->normals(M), before = this->normals(M * ldc);
            auto C = before;
            s.gemm_tn_rows(M, N, K, with_alpha ? alpha.data() : nullptr, A.data(), lda, B.data(), ldb, beta.data(),
                           C.data(), ldc);
            for (Size i = 0; i < M; ++i)
              for (Size j = 0; j < ldc; ++j) {
                const double old = before[i * ldc + j];
                if (j >= N) {
                  ASSERT_EQ(C[i * ldc + j], before[i * ldc + j]);
                  continue;
                }
                double sum = 0, size = std::abs(beta[i] * old);
                for (Size p = 0; p < K; ++p) {
                  sum += double(A[p * lda + i]) * B[p * ldb + j];
                  size += std::abs(double(alpha[i]) * A[p * lda + i] * B[p * ldb + j]) + std::abs(sum);
                }
                ASSERT_NEAR(C[i * ldc + j], (with_alpha ? alpha[i] : 1.0) * sum + beta[i] * old,
                            this->tolerance(size));
              }
          }
  });
}

TYPED_TEST(ChunkPrimitives, ProductElementByElementOfPanels) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    for (const Size M : {0, 1, 5})
      for (const Size N : {1, 7, 16, 70}) {
        const auto X = this->normals(M * (N + 4)), Y = this->normals(M * (N + 1)),
                   before = this->normals(M * (N + 2));
        auto Z = before;
        s.mul_rows(M, N, X.data(), N + 4, Y.data(), N + 1, Z.data(), N + 2);
        s.prefetch_rows(M, N, X.data(), N + 4);
        s.prefetch_rows(3, N, nullptr, N);
        for (Size i = 0; i < M; ++i)
          for (Size j = 0; j < N + 2; ++j)
            ASSERT_EQ(Z[i * (N + 2) + j], j < N ? X[i * (N + 4) + j] * Y[i * (N + 1) + j] : before[i * (N + 2) + j]);
      }
  });
}

TYPED_TEST(ChunkPrimitives, ReachOfGates) {
  using T = TypeParam;
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  this->for_targets([&](const Simd<T>& s) {
    for (const Size C : {1, 2, 17, 32})
      for (const Size D : {1, 5, 16, 35})
        for (const T strong : {T(0), T(-11), -inf, inf, nan}) {  // 0: none
          const Size ld = D + 3;
          auto g = this->normals(C * ld);
          for (T& x : g) x = -std::abs(x) / 16;
          for (Size i = 0; i < C; ++i)
            for (Size j = D; j < ld; ++j) g[i * ld + j] = nan;
          const Size bad = C * 2 / 3;
          if (strong != T(0)) g[bad * ld + D / 2] = strong;
          std::vector<T> up((C + 1) * D + 1, nan), down((C + 1) * D + 1, nan);
          const Size rows = s.gate_reach(C, D, g.data(), ld, T(10), up.data(), down.data());
          ASSERT_EQ(rows, strong == T(0) ? C : bad) << C << " " << D << " " << strong;
          for (Size i = 0; i <= rows; ++i)
            for (Size j = 0; j < D; ++j) {
              double sum = 0;
              for (Size p = 0; p < i; ++p) sum += g[p * ld + j];
              ASSERT_NEAR(up[i * D + j] / std::exp(sum), 1, this->tolerance(1));
              ASSERT_NEAR(down[i * D + j] * std::exp(sum), 1, this->tolerance(1));
            }
          ASSERT_TRUE(std::isnan(up[(C + 1) * D]) && std::isnan(down[(C + 1) * D]));
        }
  });
}

// A row of a solution must not depend on how many rows follow: a chunk that a strong gate cuts short has the bits of the
// longer one.
TYPED_TEST(ChunkPrimitives, SolutionsOfPrefixesHaveTheSameBits) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    const Size M = 40, N = 21;
    auto L = this->normals(M * M), X = this->normals(M * N);
    for (T& x : L) x /= 8;
    auto whole = X;
    s.solve_nn(M, N, L.data(), M, whole.data(), N);
    for (Size m = 1; m < M; ++m) {
      std::vector<T> part(X.begin(), X.begin() + m * N);
      s.solve_nn(m, N, L.data(), M, part.data(), N);
      for (Size i = 0; i < m * N; ++i) ASSERT_EQ(part[i], whole[i]) << m << " rows, row " << i / N;
    }
  });
}

TYPED_TEST(ChunkPrimitives, ProductsAddedToRows) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    for (const Size M : {0, 1, 5})
      for (const Size N : {1, 7, 16, 37, 64}) {
        const auto X = this->normals(M * (N + 1)), Y = this->normals(M * (N + 2)),
                   before = this->normals(M * (N + 3));
        auto Z = before;
        s.mul_add_rows(M, N, X.data(), N + 1, Y.data(), N + 2, Z.data(), N + 3);
        for (Size i = 0; i < M; ++i)
          for (Size j = 0; j < N + 3; ++j) {
            const double add = j < N ? double(X[i * (N + 1) + j]) * Y[i * (N + 2) + j] : 0;
            ASSERT_NEAR(Z[i * (N + 3) + j], before[i * (N + 3) + j] + add, this->tolerance(std::abs(add)));
          }
      }
  });
}

TYPED_TEST(ChunkPrimitives, GradientOfGates) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    for (const Size C : {1, 2, 17})
      for (const Size D : {1, 3, 8, 21, 64, 70})
        for (const int count : {1, 3, 4}) {
          const Size ldo = D + 3;
          const auto x = this->normals(4 * C * D), dx = this->normals(4 * C * D), last = this->normals(D),
                     before = this->normals(C * ldo);
          typename Simd<T>::GateTerm terms[4];
          for (int t = 0; t < 4; ++t) terms[t] = {x.data() + t * C * D, dx.data() + t * C * D, t % 2 == 1, t == 2};
          auto out = before;
          s.gate_gradient(C, D, terms, count, last.data(), false, out.data(), ldo);
          std::vector<T> written(C * D, std::numeric_limits<T>::quiet_NaN());
          s.gate_gradient(C, D, terms, count, last.data(), true, written.data(), D);
          for (Size j = 0; j < ldo; ++j) {
            double sum = j < D ? last[j] : 0;
            for (Size i = C; i-- > 0;) {
              for (int t = 0; j < D && t < count; ++t) {
                const Size row = i + (terms[t].before ? 1 : 0);
                if (row == C) continue;
                sum += (terms[t].writer ? -1.0 : 1.0) * terms[t].x[row * D + j] * terms[t].dx[row * D + j];
              }
              ASSERT_NEAR(out[i * ldo + j], before[i * ldo + j] + sum, this->tolerance(std::abs(sum) + C));
              if (j < D) {
                ASSERT_NEAR(written[i * D + j], sum, this->tolerance(std::abs(sum) + C));
              }
            }
          }
        }
  });
}

TYPED_TEST(ChunkPrimitives, SumsOfPairs) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    for (const Size C : {1, 2, 15, 16, 17, 40}) {
      const Size ld = C + 1;
      const auto last = this->normals(C);
      auto M = this->normals(C * ld);
      for (Size i = 0; i < C; ++i)
        for (Size j = i; j < ld; ++j) M[i * ld + j] = std::numeric_limits<T>::quiet_NaN();
      std::vector<T> out(C + 1, T(7));
      s.pair_sums(C, M.data(), ld, last.data(), out.data());
      for (Size i = 0; i < C; ++i) {
        double sum = 0, size = 1;
        for (Size j = 0; j < i; ++j) {
          sum += last[j], size += std::abs(last[j]);
          for (Size r = i; r < C; ++r) sum += M[r * ld + j], size += std::abs(M[r * ld + j]);
        }
        ASSERT_NEAR(out[i], sum, this->tolerance(size));
      }
      ASSERT_EQ(out[C], T(7));
    }
  });
}

TYPED_TEST(ChunkPrimitives, TransposesOfEverySize) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    for (const Size M : {1, 3, 4, 8, 16, 19, 32, 47})
      for (const Size N : {1, 2, 4, 5, 8, 16, 31, 33}) {
        const auto A = this->normals(M * (N + 2)), before = this->normals(N * (M + 1));
        auto B = before;
        s.transpose(M, N, A.data(), N + 2, B.data(), M + 1);
        for (Size j = 0; j < N; ++j)
          for (Size i = 0; i < M + 1; ++i)
            ASSERT_EQ(B[j * (M + 1) + i], i < M ? A[i * (N + 2) + j] : before[j * (M + 1) + i]) << M << " " << N;
      }
  });
}

}  // namespace
