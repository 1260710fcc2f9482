// Factors of gates, frames and pieces, against sums in double for every instruction set; odd sizes, NaN around the rows.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "families/linear/state_simd.h"
#include "simd_fixture.h"

namespace {

using ttr::Simd;
using ttr::state_simd;
using Size = std::ptrdiff_t;

template <class T>
class Frames : public ttr_simd_test::Primitives<T> {
 protected:
  static constexpr T nan = std::numeric_limits<T>::quiet_NaN(), inf = std::numeric_limits<T>::infinity();

  /// Rows of `strength` times a uniform number in (-1, 0), NaN behind them.
  std::vector<T> gates(Size C, Size D, Size ld, double strength) {
    std::vector<T> g(static_cast<std::size_t>(C * ld), nan);
    const auto normal = this->normals(C * D);
    for (Size i = 0; i < C; ++i)
      for (Size j = 0; j < D; ++j)
        g[i * ld + j] = static_cast<T>(-strength * std::abs(std::sin(10 * normal[i * D + j])));
    return g;
  }
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Frames, Types);

// The factors are as accurate for a sum of 50 as for one of 1.
TYPED_TEST(Frames, FactorsAreExponentials) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    for (const Size C : {1, 2, 17, 32})
      for (const Size D : {1, 5, 16, 35})
        for (const bool centred : {false, true})
          for (const T strong : {T(0), T(-60), -this->inf, this->inf, this->nan}) {  // 0: none
            const Size ld = D + 3, bad = C * 2 / 3;
            auto g = this->gates(C, D, ld, 50.0 / static_cast<double>(C));
            if (strong != T(0)) g[bad * ld + D / 2] = strong;
            std::vector<T> centre(D, T(-1.7)), up(C * D + 1, this->nan), down(C * D + 1, this->nan);
            const Size rows = state_simd(s).gate_factors(C, D, g.data(), ld, centred ? centre.data() : nullptr, T(55),
                                                         up.data(), down.data());
            ASSERT_EQ(rows, strong == T(0) ? C : bad) << C << " " << D << " " << strong;
            for (Size j = 0; j < D; ++j) {
              double sum = centred ? -static_cast<double>(centre[j]) : 0;
              for (Size i = 0; i < rows; ++i) {
                sum += static_cast<double>(g[i * ld + j]);
                // The sums in double have roundings of their own.
                const double most = sizeof(T) == 4 ? 4e-7 : 50 * 4e-16;
                ASSERT_NEAR(up[i * D + j] / std::exp(sum), 1, most) << sum;
                ASSERT_NEAR(down[i * D + j] * std::exp(sum), 1, most) << sum;
              }
            }
            ASSERT_TRUE(std::isnan(up[C * D]) && std::isnan(down[C * D]));
          }
  });
}

TYPED_TEST(Frames, EndWhereSumsBecomeTooLarge) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    for (const Size C : {1, 3, 16, 61})
      for (const Size D : {1, 7, 33})
        for (const Size group : {1, 2, 4})
          for (const double strength : {0.1, 8.0, 20.0, 50.0})
            for (const T alone : {T(0), T(-56), -this->inf, this->nan}) {
              const Size ld = D + 1, at = C / 2;
              auto g = this->gates(C, D, ld, strength);
              if (alone != T(0)) g[at * ld + D - 1] = alone;
              std::vector<T> sums(D);
              std::vector<Size> ends(C, -1);
              Size frames = -1;
              const Size n = state_simd(s).gate_frames(C, D, g.data(), ld, group, T(30), T(55), sums.data(),
                                                       ends.data(), &frames);
              ASSERT_EQ(n, alone == T(0) ? C : at);
              // Each frame as far as a token or a whole group takes it.
              Size start = 0;
              const auto most = [&](Size from, Size to) {
                double largest = 0;
                for (Size j = 0; j < D; ++j) {
                  T sum = 0;
                  for (Size i = from; i < to; ++i)
                    sum += g[i * ld + j], largest = std::max(largest, double(std::abs(sum)));
                }
                return largest;
              };
              const auto last = [&](Size from, Size to) {
                double largest = 0;
                for (Size j = 0; j < D; ++j) {
                  T sum = 0;
                  for (Size i = from; i < to; ++i) sum += g[i * ld + j];
                  largest = std::max(largest, double(std::abs(sum)));
                }
                return largest;
              };
              for (Size f = 0; f < frames; ++f) {
                ASSERT_GT(ends[f], start);
                ASSERT_LE(most(start, ends[f]), 55);
                const bool full = (ends[f] - start) % group == 0 && last(start, ends[f]) > 30;
                if (f + 1 < frames) {
                  ASSERT_TRUE(full || most(start, ends[f] + 1) > 55);
                }
                for (Size i = start + group; i < ends[f]; i += group) ASSERT_LE(last(start, i), 30);
                start = ends[f];
              }
              ASSERT_EQ(start, n);
            }
  });
}

TYPED_TEST(Frames, PiecesAreCentred) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    for (const Size C : {1, 16, 29})
      for (const Size D : {1, 7, 33})
        for (const Size piece : {4, 8, 30})
          for (const double strength : {0.1, 4.0, 9.0, 40.0})
            for (const T odd : {T(0), T(3), this->nan, this->inf, -this->inf}) {
              const Size ld = D + 1, pieces = (C + piece - 1) / piece;
              auto g = this->gates(C, D, ld, strength);
              if (odd != T(0)) g[C / 2 * ld + D - 1] = odd;
              std::vector<T> centres(pieces * D + 1, this->nan);
              const int fit = state_simd(s).gate_centres(C, D, g.data(), ld, piece, T(10), T(20), centres.data());
              bool fits = true, zero = true;
              for (Size n = 0; n < pieces; ++n)
                for (Size j = 0; j < D; ++j) {
                  T sum = 0, low = 0, high = 0;
                  bool number = true;
                  for (Size i = n * piece; i < std::min(C, (n + 1) * piece); ++i) {
                    sum += g[i * ld + j];
                    number &= std::isfinite(sum);
                    low = std::min(low, sum), high = std::max(high, sum);
                  }
                  const bool fit_here = number && high - low <= 40;
                  fits &= fit_here;
                  ASSERT_EQ(std::isnan(centres[n * D + j]), !fit_here);
                  if (!fit_here) continue;
                  const bool mild = std::max(high, -low) <= 10;
                  zero &= mild;
                  ASSERT_EQ(centres[n * D + j], mild ? T(0) : (low + high) / 2);
                }
              ASSERT_EQ(fit, !fits ? 0 : zero ? 1 : 2);
              ASSERT_TRUE(std::isnan(centres[pieces * D]));
            }
  });
}

}  // namespace
