// Every primitive of every runnable instruction set against plain loops: sizes around the vector width, misaligned
// pointers, leading dimensions larger than the rows, NaN all around what may be read and guards around what may be
// written.
#include "simd/simd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "simd_fixture.h"
#include "ttr/status.h"

namespace {

using ttr::Simd;
using ttr::simd;
using ttr::simd_targets;
using Size = std::ptrdiff_t;

using ttr_simd_test::kNan;
using ttr_simd_test::Matrix;
using ttr_simd_test::tolerance;

template <class T>
class SimdTest : public ttr_simd_test::Matrices<T> {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(SimdTest, Types);

TEST(SimdTargets, ListedForcedAndRefused) {
  const std::vector<std::string> targets = simd_targets();
  ASSERT_FALSE(targets.empty());
  EXPECT_EQ(simd<float>("").name, targets.front());
  for (const std::string& name : targets) {
    EXPECT_EQ(simd<float>(name).name, name);
    EXPECT_EQ(simd<double>(name).name, name);
    EXPECT_EQ(simd<float>(name).lanes >= simd<double>(name).lanes, true);
  }
  try {
    simd<double>("AVX9");
    FAIL() << "an unknown target must throw";
  } catch (const ttr::Error& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("AVX9"), std::string::npos);
    for (const std::string& name : targets) EXPECT_NE(what.find(name), std::string::npos) << what;
  }
}

TYPED_TEST(SimdTest, GemmAllLayouts) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    const Size L = s.lanes;
    std::vector<Size> columns = {0, 1, L - 1, L, L + 1, 2 * L - 1, 2 * L, 2 * L + 3, 5 * L + 1};
    for (const Size M : {0, 1, 2, 3, 5, 6, 7, 8, 9, 13, 33})
      for (const Size N : columns)
        for (const Size K : {0, 1, 2, 17, 150}) {
          Matrix<T> A(M, K, this->rng), B(K, N, this->rng), At(K, M, this->rng), Bt(N, K, this->rng);
          for (Size i = 0; i < M; ++i)
            for (Size p = 0; p < K; ++p) At.at(p, i) = A.at(i, p);
          for (Size p = 0; p < K; ++p)
            for (Size j = 0; j < N; ++j) Bt.at(j, p) = B.at(p, j);
          const T alpha = T(-0.5);
          for (const T beta : {T(0), T(1), T(0.25)}) {
            Matrix<T> start(M, N, this->rng);
            if (beta == T(0)) std::fill(start.memory.begin(), start.memory.end(), kNan<T>);
            Matrix<T> nn = start, tn = start, nt = start;
            s.gemm_nn(M, N, K, alpha, A.data(), A.ld, B.data(), B.ld, beta, nn.data(), nn.ld);
            s.gemm_tn(M, N, K, alpha, At.data(), At.ld, B.data(), B.ld, beta, tn.data(), tn.ld);
            s.gemm_nt(M, N, K, alpha, A.data(), A.ld, Bt.data(), Bt.ld, beta, nt.data(), nt.ld);
            for (Size i = 0; i < M; ++i)
              for (Size j = 0; j < N; ++j) {
                double sum = 0, size = 0;
                for (Size p = 0; p < K; ++p) {
                  sum += double(A.at(i, p)) * double(B.at(p, j));
                  size += std::abs(double(A.at(i, p)) * double(B.at(p, j)));
                }
                const double want = alpha * sum + (beta == T(0) ? 0.0 : double(beta) * double(start.at(i, j)));
                ASSERT_NEAR(nn.at(i, j), want, tolerance<T>(size)) << M << " " << N << " " << K;
                ASSERT_NEAR(tn.at(i, j), want, tolerance<T>(size)) << M << " " << N << " " << K;
                ASSERT_NEAR(nt.at(i, j), want, tolerance<T>(size)) << M << " " << N << " " << K;
              }
            ASSERT_TRUE(nn.guards_hold() && tn.guards_hold() && nt.guards_hold());
          }
        }
  });
}

TYPED_TEST(SimdTest, Gram) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    for (const Size M : {1, 7, 16, 31, 33, 70})
      for (const Size K : {1, 40, 128, 300}) {
        Matrix<T> A(M, K, this->rng), C(M, M, this->rng);
        s.gram(M, K, A.data(), A.ld, C.data(), C.ld);
        for (Size i = 0; i < M; ++i)
          for (Size j = 0; j <= i; ++j) {
            double sum = 0;
            for (Size p = 0; p < K; ++p) sum += double(A.at(i, p)) * double(A.at(j, p));
            ASSERT_NEAR(C.at(i, j), sum, tolerance<T>(double(4 * K))) << M << " " << K;
            ASSERT_EQ(C.at(i, j), C.at(j, i));
          }
        ASSERT_TRUE(C.guards_hold());
      }
  });
}

TYPED_TEST(SimdTest, TriangularProductsAndSolves) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    const Size L = s.lanes;
    for (const Size M : {0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 31, 33})
      for (const Size N : {Size{1}, L - 1, L, L + 1, 2 * L, 2 * L + 3}) {
        if (N < 1) continue;
        Matrix<T> X(M, N, this->rng), Lo(M, M, this->rng, T(0.3)), A(M, 9, this->rng), B(9, M, this->rng);
        for (Size i = 0; i < M; ++i)
          for (Size j = i + 1; j < M; ++j) Lo.at(i, j) = kNan<T>;
        Matrix<T> nn(M, N, this->rng), tn = nn, start = nn, fresh = nn;
        std::fill(fresh.memory.begin(), fresh.memory.end(), kNan<T>);
        s.trmm_nn(M, N, T(2), Lo.data(), Lo.ld, X.data(), X.ld, T(1), nn.data(), nn.ld);
        s.trmm_tn(M, N, T(2), Lo.data(), Lo.ld, X.data(), X.ld, T(1), tn.data(), tn.ld);
        s.trmm_nn(M, N, T(1), Lo.data(), Lo.ld, X.data(), X.ld, T(0), fresh.data(), fresh.ld);
        for (Size i = 0; i < M; ++i)
          for (Size j = 0; j < N; ++j) {
            double lower = 0, upper = 0;
            for (Size p = 0; p <= i; ++p) lower += double(Lo.at(i, p)) * double(X.at(p, j));
            for (Size p = i; p < M; ++p) upper += double(Lo.at(p, i)) * double(X.at(p, j));
            ASSERT_NEAR(nn.at(i, j), 2 * lower + start.at(i, j), tolerance<T>(20));
            ASSERT_NEAR(tn.at(i, j), 2 * upper + start.at(i, j), tolerance<T>(20));
            ASSERT_NEAR(fresh.at(i, j), lower, tolerance<T>(20));
          }
        // The diagonal of L must not be read by the solves either.
        for (Size i = 0; i < M; ++i) Lo.at(i, i) = kNan<T>;
        Matrix<T> forward = X, backward = X;
        s.solve_nn(M, N, Lo.data(), Lo.ld, forward.data(), forward.ld);
        s.solve_tn(M, N, Lo.data(), Lo.ld, backward.data(), backward.ld);
        for (Size j = 0; j < N; ++j) {
          std::vector<double> x(M), y(M);
          double big = 1;
          for (Size i = 0; i < M; ++i) {
            x[i] = X.at(i, j);
            for (Size p = 0; p < i; ++p) x[i] -= double(Lo.at(i, p)) * x[p];
            big = std::max(big, std::abs(x[i]));
          }
          for (Size i = M; i-- > 0;) {
            y[i] = X.at(i, j);
            for (Size p = i + 1; p < M; ++p) y[i] -= double(Lo.at(p, i)) * y[p];
            big = std::max(big, std::abs(y[i]));
          }
          for (Size i = 0; i < M; ++i) {
            ASSERT_NEAR(forward.at(i, j), x[i], tolerance<T>(100 * big)) << M << " " << N;
            ASSERT_NEAR(backward.at(i, j), y[i], tolerance<T>(100 * big)) << M << " " << N;
          }
        }
        Matrix<T> P(M, M, this->rng), full = P;
        s.gemm_lower(M, 9, T(1), A.data(), A.ld, B.data(), B.ld, P.data(), P.ld);
        s.gemm_nn(M, M, 9, T(1), A.data(), A.ld, B.data(), B.ld, T(0), full.data(), full.ld);
        for (Size i = 0; i < M; ++i)
          for (Size j = 0; j <= i; ++j) ASSERT_EQ(P.at(i, j), full.at(i, j));
        ASSERT_TRUE(nn.guards_hold() && tn.guards_hold() && forward.guards_hold() && backward.guards_hold() &&
                    P.guards_hold());
      }
  });
}

TYPED_TEST(SimdTest, TriangularProductIgnoresRowsOutOfReach) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    const Size M = 21, N = 2 * s.lanes + 3;
    for (Size bad = 0; bad < M; ++bad) {
      Matrix<T> Lo(M, M, this->rng), X(M, N, this->rng), nn(M, N, this->rng), tn = nn, x = X;
      for (Size j = 0; j < N; ++j) X.at(bad, j) = kNan<T>;
      s.trmm_nn(M, N, T(1), Lo.data(), Lo.ld, X.data(), X.ld, T(0), nn.data(), nn.ld);
      s.trmm_tn(M, N, T(1), Lo.data(), Lo.ld, X.data(), X.ld, T(0), tn.data(), tn.ld);
      x = X;
      s.solve_nn(M, N, Lo.data(), Lo.ld, x.data(), x.ld);
      for (Size i = 0; i < M; ++i)
        for (Size j = 0; j < N; ++j) {
          ASSERT_EQ(std::isnan(nn.at(i, j)), i >= bad);
          ASSERT_EQ(std::isnan(tn.at(i, j)), i <= bad);
          ASSERT_EQ(std::isnan(x.at(i, j)), i >= bad);
        }
    }
  });
}

TYPED_TEST(SimdTest, BitsDoNotDependOnThePlace) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    const Size M = 19, N = 5 * s.lanes + 2, K = 37;
    Matrix<T> A(M, K, this->rng), B(K, N, this->rng), whole(M, N, this->rng);
    s.gemm_nn(M, N, K, T(1), A.data(), A.ld, B.data(), B.ld, T(0), whole.data(), whole.ld);
    for (Size i = 0; i < M; ++i)
      for (Size j = 0; j < N; ++j) {
        T one = 0;
        s.gemm_nn(1, 1, K, T(1), &A.at(i, 0), A.ld, &B.at(0, j), B.ld, T(0), &one, 1);
        ASSERT_EQ(one, whole.at(i, j)) << i << " " << j;
      }
    std::vector<T> x(200), y(200);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = A.at(i % M, i % K), y[i] = B.at(i % K, i % N);
    for (Size n = 0; n < 70; ++n) {
      std::vector<T> moved_x(300, kNan<T>), moved_y(300, kNan<T>);
      const T here = s.dot(n, x.data(), y.data());
      for (Size shift = 1; shift < 9; ++shift) {
        std::copy_n(x.begin(), n, moved_x.begin() + shift);
        std::copy_n(y.begin(), n, moved_y.begin() + 2 * shift);
        ASSERT_EQ(here, s.dot(n, moved_x.data() + shift, moved_y.data() + 2 * shift));
      }
    }
  });
}

TYPED_TEST(SimdTest, Vectors) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    for (Size n = 0; n <= 9 * s.lanes + 3; ++n) {
      Matrix<T> x(1, n, this->rng), y(1, n, this->rng), axpy = y, scaled = y, product = y, in_place = y, added = y;
      s.mul(n, x.data(), y.data(), product.data());
      s.mul(n, x.data(), in_place.data(), in_place.data());
      s.mul_add(n, x.data(), y.data(), added.data());
      s.axpy(n, T(1.5), x.data(), axpy.data());
      s.scale(n, T(-3), x.data(), scaled.data());
      double sum = 0, size = 0;
      for (Size i = 0; i < n; ++i) {
        sum += double(x.at(0, i)) * double(y.at(0, i));
        size += std::abs(double(x.at(0, i)) * double(y.at(0, i)));
        ASSERT_NEAR(axpy.at(0, i), 1.5 * x.at(0, i) + y.at(0, i), tolerance<T>(4));
        ASSERT_EQ(product.at(0, i), x.at(0, i) * y.at(0, i));
        ASSERT_EQ(in_place.at(0, i), product.at(0, i));
        ASSERT_NEAR(added.at(0, i), double(x.at(0, i)) * double(y.at(0, i)) + double(y.at(0, i)), tolerance<T>(8));
        ASSERT_EQ(scaled.at(0, i), T(-3) * x.at(0, i));
      }
      ASSERT_NEAR(s.dot(n, x.data(), y.data()), sum, tolerance<T>(size));
      ASSERT_TRUE(axpy.guards_hold() && scaled.guards_hold() && product.guards_hold() && added.guards_hold());
    }
    for (const Size M : {0, 1, 4, 7})
      for (Size N = 0; N <= 2 * s.lanes + 3; ++N) {
        Matrix<T> X(M, N, this->rng), Y(M, N, this->rng), f(1, M, this->rng), out(1, M, this->rng),
            Z(N, M, this->rng), across(1, N, this->rng), columns = Y;
        s.scale_columns(M, N, across.data(), X.data(), X.ld, columns.data(), columns.ld);
        s.row_dots(M, N, X.data(), X.ld, Y.data(), Y.ld, out.data());
        s.transpose(M, N, X.data(), X.ld, Z.data(), Z.ld);
        Matrix<T> scaled = Y, in_place = X;
        s.scale_rows(M, N, f.data(), X.data(), X.ld, scaled.data(), scaled.ld);
        s.scale_rows(M, N, f.data(), in_place.data(), in_place.ld, in_place.data(), in_place.ld);
        for (Size i = 0; i < M; ++i) {
          double sum = 0;
          for (Size j = 0; j < N; ++j) {
            sum += double(X.at(i, j)) * double(Y.at(i, j));
            ASSERT_EQ(Z.at(j, i), X.at(i, j));
            ASSERT_EQ(scaled.at(i, j), f.at(0, i) * X.at(i, j));
            ASSERT_EQ(in_place.at(i, j), scaled.at(i, j));
            ASSERT_EQ(columns.at(i, j), across.at(0, j) * X.at(i, j));
          }
          ASSERT_NEAR(out.at(0, i), sum, tolerance<T>(2.0 * double(N)));
        }
        ASSERT_TRUE(out.guards_hold() && Z.guards_hold() && scaled.guards_hold() && columns.guards_hold());
      }
  });
}

TYPED_TEST(SimdTest, Exponential) {
  using T = TypeParam;
  const T inf = std::numeric_limits<T>::infinity(), tiny = std::numeric_limits<T>::min();
  this->for_targets([&](const Simd<T>& s) {
    std::vector<T> x;
    for (T v = T(-60); v < T(60); v += T(0.37)) x.push_back(v);
    for (Size n = 0; n <= static_cast<Size>(x.size()); n += 7) {
      std::vector<T> y(n + 1, kNan<T>);
      s.exp(n, x.data(), y.data());
      for (Size i = 0; i < n; ++i)
        ASSERT_NEAR(y[i] / std::exp(double(x[i])), 1, 4 * std::numeric_limits<T>::epsilon()) << x[i];
      ASSERT_TRUE(std::isnan(y[n]));
    }
    const std::vector<T> special = {0, T(-1e4), -inf, T(1e4), inf, kNan<T>, std::log(tiny) - 1, T(-1e30)};
    std::vector<T> y(special.size());
    s.exp(static_cast<Size>(special.size()), special.data(), y.data());
    EXPECT_EQ(y[0], T(1));
    EXPECT_EQ(y[1], T(0));
    EXPECT_EQ(y[2], T(0));
    EXPECT_EQ(y[3], inf);
    EXPECT_EQ(y[4], inf);
    EXPECT_TRUE(std::isnan(y[5]));
    EXPECT_EQ(y[6], T(0));
    EXPECT_EQ(y[7], T(0));
  });
}

TYPED_TEST(SimdTest, Gates) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    for (const Size C : {0, 1, 2, 3, 5, 8, 17, 33}) {
      Matrix<T> g(1, C, this->rng), D(C, C, this->rng), f(1, C, this->rng), X(C, C, this->rng);
      for (Size i = 0; i < C; ++i) g.at(0, i) = -std::abs(g.at(0, i));
      if (C > 4) g.at(0, 2) = T(-1e4), g.at(0, 4) = -std::numeric_limits<T>::infinity();
      std::fill(D.memory.begin(), D.memory.end(), kNan<T>);
      std::vector<T> sums(C, kNan<T>);
      s.gate_matrix(C, g.data(), sums.data(), D.data(), D.ld);
      for (Size i = 0; i < C; ++i)
        for (Size j = 0; j < C; ++j) {
          if (j > i) {
            ASSERT_TRUE(std::isnan(D.at(i, j)));
            continue;
          }
          double sum = 0;
          for (Size m = j + 1; m <= i; ++m) sum += g.at(0, m);
          ASSERT_NEAR(D.at(i, j), std::exp(sum), tolerance<T>(1));
        }
      for (const bool with_factor : {false, true})
        for (const int kind : {0, 1, 2, 3}) {  // inclusive, strict, strict and shifted, no gates
          Matrix<T> Y = X;
          for (Size i = 0; i < C; ++i)
            for (Size j = i + 1; j < C; ++j) Y.at(i, j) = kNan<T>;
          const bool strict = kind == 1 || kind == 2;
          s.gate_lower(C, strict, kind == 2, with_factor ? f.data() : nullptr, kind == 3 ? nullptr : D.data(), D.ld,
                       Y.data(), Y.ld);
          for (Size i = 0; i < C; ++i)
            for (Size j = 0; j <= i; ++j) {
              double want = X.at(i, j) * (with_factor ? double(f.at(0, i)) : 1.0);
              if (strict && j == i) want = 0;
              else if (kind != 3) want *= D.at(i - (kind == 2), j);
              ASSERT_NEAR(Y.at(i, j), want, tolerance<T>(std::abs(want)));
            }
        }
    }
  });
}

TYPED_TEST(SimdTest, SweepsOverAState) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    const Size L = s.lanes;
    for (const Size K : {1, 2, 3, 8, 17})
      for (const Size V : {Size{1}, L - 1, L, L + 1, 3 * L + 2, 4 * L, 4 * L + 1, 6 * L, 9 * L + 3}) {
        if (V < 1) continue;
        Matrix<T> S(K, V, this->rng), k(1, K, this->rng), v(1, V, this->rng), r(1, V, this->rng), p(1, K, this->rng);
        s.vec_mat(K, V, k.data(), S.data(), S.ld, r.data());
        s.mat_vec(K, V, S.data(), S.ld, v.data(), p.data());
        for (Size j = 0; j < V; ++j) {
          double sum = 0;
          for (Size i = 0; i < K; ++i) sum += double(k.at(0, i)) * double(S.at(i, j));
          ASSERT_NEAR(r.at(0, j), sum, tolerance<T>(20));
        }
        for (Size i = 0; i < K; ++i) {
          double sum = 0;
          for (Size j = 0; j < V; ++j) sum += double(v.at(0, j)) * double(S.at(i, j));
          ASSERT_NEAR(p.at(0, i), sum, tolerance<T>(double(2 * V)));
        }
        Matrix<T> one = S;
        s.rank_one(K, V, T(0.9), k.data(), v.data(), one.data(), one.ld);
        for (Size i = 0; i < K; ++i)
          for (Size j = 0; j < V; ++j)
            ASSERT_NEAR(one.at(i, j), 0.9 * double(S.at(i, j)) + double(k.at(0, i)) * double(v.at(0, j)),
                        tolerance<T>(8));
        ASSERT_TRUE(one.guards_hold() && r.guards_hold() && p.guards_hold());
      }
  });
}

}  // namespace
