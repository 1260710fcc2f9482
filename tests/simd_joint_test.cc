// The products that the chunk form of scalar gates is made of, on every instruction set, against plain loops: onto
// another matrix, with a triangle on top, with gates on the lower half; gradients added to rows; what lies beside the
// named elements stays as it was, NaN above a diagonal reaches nothing, and hints change no bit.
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

using ttr::Hints;
using ttr::Simd;
using Size = std::ptrdiff_t;

template <class T>
class JointPrimitives : public ttr_simd_test::Primitives<T> {
 protected:
  // Columns from N on are unchanged, the others equal want(i, j, &size), where size is the sum of the absolute terms.
  template <class F>
  static void expect(Size M, Size N, Size ld, const std::vector<T>& got, const std::vector<T>& before,
                     const F& want) {
    for (Size i = 0; i < M; ++i)
      for (Size j = 0; j < ld; ++j) {
        if (j >= N) {
          ASSERT_EQ(got[i * ld + j], before[i * ld + j]);
          continue;
        }
        double size = 0;
        const double value = want(i, j, &size);
        ASSERT_NEAR(got[i * ld + j], value, JointPrimitives::tolerance(size))
            << M << " " << N << " at " << i << " " << j;
      }
  }
};
using Numbers = testing::Types<float, double>;
TYPED_TEST_SUITE(JointPrimitives, Numbers);

Hints hints_on(const std::vector<char>& memory) {
  Hints h;
  h.pieces[0] = {memory.data(), 300, 290, 3};
  h.pieces[1] = {memory.data() + 1000, 0, 64, 1};
  h.count = 2, h.every = 5;
  return h;
}

TYPED_TEST(JointPrimitives, ProductsOntoAnotherMatrix) {
  using T = TypeParam;
  const std::vector<char> memory(2000);
  this->for_targets([&](const Simd<T>& s) {
    for (const Size M : {1, 3, 8, 13, 32})
      for (const Size N : {1, 7, 16, 37, 64})
        for (const Size K : {0, 1, 5, 20})
          for (const int kind : {0, 1, 2, 3})
            for (const bool transposed : {false, true}) {
              const bool factors = kind & 1, onto = kind & 2;
              const Size lda = transposed ? M + 2 : K + 2, ldb = N + 1, ldc = N + 3, ldf = N + 2;
              const auto A = this->normals((transposed ? K : M) * lda), B = this->normals(K * ldb),
                         a = this->normals(M), F = this->normals(M * ldf), before = this->normals(M * ldc);
              auto C = before;
              Hints hints = hints_on(memory);
              (transposed ? s.gemm_tn_onto : s.gemm_nn_onto)(M, N, K, factors ? a.data() : nullptr, A.data(), lda,
                                                             B.data(), ldb, T(0.5), onto ? F.data() : nullptr, ldf,
                                                             C.data(), ldc, kind == 3 ? &hints : nullptr);
              this->expect(M, N, ldc, C, before, [&](Size i, Size j, double* size) {
                double sum = 0;
                for (Size p = 0; p < K; ++p) {
                  const double term =
                      (factors ? double{a[i]} : 1) * (transposed ? A[p * lda + i] : A[i * lda + p]) * B[p * ldb + j];
                  sum += term, *size += std::abs(term);
                }
                if (onto) sum += 0.5 * F[i * ldf + j], *size += std::abs(F[i * ldf + j]);
                return sum;
              });
            }
  });
}

TYPED_TEST(JointPrimitives, HintsChangeNoBit) {
  using T = TypeParam;
  const std::vector<char> memory(2000);
  this->for_targets([&](const Simd<T>& s) {
    const Size M = 37, N = 70, K = 41;
    const auto A = this->normals(M * K), B = this->normals(K * N), L = this->normals(M * M),
               B2 = this->normals(M * N);
    std::vector<T> with(M * N), without(M * N);
    Hints hints = hints_on(memory);
    s.gemm_trmm_nn(M, N, K, nullptr, A.data(), K, B.data(), N, L.data(), M, B2.data(), N, with.data(), N, &hints);
    s.gemm_trmm_nn(M, N, K, nullptr, A.data(), K, B.data(), N, L.data(), M, B2.data(), N, without.data(), N, nullptr);
    ASSERT_EQ(with, without);
    ASSERT_EQ(hints.at, hints.count);
  });
}

TYPED_TEST(JointPrimitives, ProductWithATriangleOnTop) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    for (const Size M : {1, 3, 8, 13, 32, 45})
      for (const Size N : {1, 16, 37, 64})
        for (const Size K : {0, 1, 20})
          for (const bool factors : {false, true})
            for (const bool transposed : {false, true}) {
              const Size lda = K + 2, ldb = N + 1, ldl = M + 1, ldb2 = N + 2, ldc = N + 3;
              const auto A = this->normals(M * lda), B = this->normals(K * ldb), a = this->normals(M),
                         B2 = this->normals(M * ldb2), before = this->normals(M * ldc);
              auto L = this->normals(M * ldl);
              for (Size i = 0; i < M; ++i)
                for (Size j = i + 1; j < ldl; ++j) L[i * ldl + j] = std::numeric_limits<T>::quiet_NaN();
              auto C = before;
              (transposed ? s.gemm_trmm_tn : s.gemm_trmm_nn)(M, N, K, factors ? a.data() : nullptr, A.data(), lda,
                                                             B.data(), ldb, L.data(), ldl, B2.data(), ldb2, C.data(),
                                                             ldc, nullptr);
              this->expect(M, N, ldc, C, before, [&](Size i, Size j, double* size) {
                double sum = 0;
                const auto add = [&](double term) { sum += term, *size += std::abs(term); };
                for (Size p = 0; p < K; ++p) add((factors ? double{a[i]} : 1) * A[i * lda + p] * B[p * ldb + j]);
                for (Size p = transposed ? i : 0; p < (transposed ? M : i + 1); ++p)
                  add(double{transposed ? L[p * ldl + i] : L[i * ldl + p]} * B2[p * ldb2 + j]);
                return sum;
              });
            }
  });
}

TYPED_TEST(JointPrimitives, LowerHalfWithGates) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    for (const Size M : {1, 3, 16, 21, 32, 45})
      for (const Size K : {0, 1, 20}) {
        const Size lda = K + 2, ldb = M + 1, ldd = M + 2, ldc = M + 3;
        const auto A = this->normals(M * lda), B = this->normals(K * ldb);
        auto D = this->normals(M * ldd), C = this->normals(M * ldc);
        for (Size i = 0; i < M; ++i)
          for (Size j = i + 1; j < ldd; ++j) D[i * ldd + j] = std::numeric_limits<T>::quiet_NaN();
        s.gemm_lower_gated(M, K, T(0.5), A.data(), lda, B.data(), ldb, D.data(), ldd, C.data(), ldc);
        for (Size i = 0; i < M; ++i)
          for (Size j = 0; j <= i; ++j) {
            double sum = 0, size = 0;
            for (Size p = 0; p < K; ++p) {
              const double term = 0.5 * D[i * ldd + j] * A[i * lda + p] * B[p * ldb + j];
              sum += term, size += std::abs(term);
            }
            ASSERT_NEAR(C[i * ldc + j], sum, this->tolerance(size)) << M << " " << K << " at " << i << " " << j;
          }
      }
  });
}

TYPED_TEST(JointPrimitives, GradientsAddedToRows) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    for (const Size M : {1, 5})
      for (const Size N : {1, 7, 16, 37, 64})
        for (int kind = 0; kind < 16; ++kind) {
          const bool second = kind & 1, dots = kind & 2, add = kind & 4, factors = kind & 8;
          const Size ldx = N + 1, ldz = N + 2, ldy = N + 3;
          const auto X = this->normals(M * ldx), X2 = this->normals(M * ldx), Z = this->normals(M * ldz),
                     a = this->normals(M), before = this->normals(M * ldy);
          auto Y = before;
          std::vector<T> one(M, T(7)), two(M, T(7));
          s.add_rows_dots(M, N, factors ? a.data() : nullptr, X.data(), ldx, second ? X2.data() : nullptr, ldx,
                          dots ? Z.data() : nullptr, ldz, add ? Y.data() : nullptr, ldy, one.data(), two.data());
          this->expect(M, N, ldy, Y, before, [&](Size i, Size j, double* size) {
            double sum = before[i * ldy + j];
            if (add) sum += (factors ? double{a[i]} : 1) * X[i * ldx + j] + (second ? double{X2[i * ldx + j]} : 0);
            *size = 4 + std::abs(sum);
            return sum;
          });
          for (Size i = 0; i < M; ++i) {
            double first = 0, other = 0, size = 0;
            for (Size j = 0; j < N; ++j) {
              first += double{Z[i * ldz + j]} * X[i * ldx + j], other += double{Z[i * ldz + j]} * X2[i * ldx + j];
              size += std::abs(Z[i * ldz + j]) * (std::abs(X[i * ldx + j]) + std::abs(X2[i * ldx + j]));
            }
            ASSERT_NEAR(one[i], dots ? first : 7, this->tolerance(size));
            ASSERT_NEAR(two[i], dots && second ? other : 7, this->tolerance(size));
          }
        }
  });
}

TYPED_TEST(JointPrimitives, TransposesOfAnyShape) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    for (const Size M : {1, 3, 4, 8, 11, 13, 32})
      for (const Size N : {1, 2, 5, 8, 16, 37}) {
        const Size lda = N + 1, ldb = M + 2;
        const auto A = this->normals(M * lda), before = this->normals(N * ldb);
        auto B = before;
        s.transpose(M, N, A.data(), lda, B.data(), ldb);
        for (Size j = 0; j < N; ++j)
          for (Size i = 0; i < ldb; ++i) ASSERT_EQ(B[j * ldb + i], i < M ? A[i * lda + j] : before[j * ldb + i]);
      }
  });
}

}  // namespace
