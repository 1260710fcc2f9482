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

// Every frame as far as a token or a whole group takes it; small sums go on behind it, the others begin anew.
TYPED_TEST(Frames, EndWhereSumsBecomeTooLarge) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    for (const Size C : {1, 3, 16, 61})
      for (const Size D : {1, 7, 33})
        for (const Size group : {1, 2, 4})
          for (const double strength : {0.1, 8.0, 20.0, 50.0})
            for (const bool one : {false, true})  // only one channel is that strong
              for (const T alone : {T(0), T(-56), -this->inf, this->nan}) {
                const Size ld = D + 1, at = C / 2;
                auto g = this->gates(C, D, ld, strength);
                for (Size i = 0; one && i < C * ld; ++i)
                  if (i % ld != D / 2) g[i] *= T(0.05);
                if (alone != T(0)) g[at * ld + D - 1] = alone;
                std::vector<T> sums((C + 1) * D), carried(C * D, this->nan);
                std::vector<Size> ends(C, -1);
                Size frames = -1;
                const Size n = state_simd(s).gate_frames(C, D, g.data(), ld, group, T(30), T(55), sums.data(),
                                                         carried.data(), ends.data(), &frames);
                ASSERT_EQ(n, alone == T(0) ? C : at);
                std::vector<T> G(D, T(0));          // as the kernel adds them
                const auto largest = [&](Size t) {  // with token t; C: as they are
                  double most = 0;
                  for (Size j = 0; j < D; ++j) {
                    const double with = std::abs(double(t < C ? G[j] + g[t * ld + j] : G[j]));
                    most = std::isnan(with) ? double(this->inf) : std::max(most, with);
                  }
                  return most;
                };
                Size start = 0, restarts = 0;
                for (Size f = 0; f < frames; ++f) {
                  ASSERT_GT(ends[f], start);
                  for (Size j = 0; f > 0 && j < D; ++j) {
                    const bool goes_on = std::abs(G[j]) <= 15 && std::abs(G[j] + g[start * ld + j]) <= 55;
                    ASSERT_EQ(carried[f * D + j], goes_on ? T(1) : T(0));
                    if (!goes_on) G[j] = 0, ++restarts;
                  }
                  for (Size t = start; t < ends[f]; ++t) {
                    if (t > start && (t - start) % group == 0) {
                      ASSERT_LE(largest(C), 30);
                    }
                    ASSERT_LE(largest(t), 55);
                    for (Size j = 0; j < D; ++j) G[j] += g[t * ld + j];
                  }
                  const bool full = (ends[f] - start) % group == 0 && largest(C) > 30;
                  if (f + 1 < frames) {
                    ASSERT_TRUE(full || largest(ends[f]) > 55);
                  }
                  start = ends[f];
                }
                ASSERT_EQ(start, n);
                if (one && strength == 20 && alone == T(0) && C == 61) {
                  ASSERT_GT(frames, 5);
                  // the strong channel; another at most once in 15 of the 61 that its gates sum up to
                  ASSERT_LE(restarts, frames + 4 * (D - 1));
                }
              }
  });
}

TYPED_TEST(Frames, GatesInRows) {
  using T = TypeParam;
  using Rows = typename ttr::StateSimd<T>::GateRows;
  this->for_targets([&](const Simd<T>& s) {
    for (const Size C : {2, 16, 61})
      for (const Size D : {1, 5, 33})
        for (const bool strong : {false, true})
          for (int which = 0; which < 6; ++which) {  // k; k q; k q x; k q x y; the last before; the last in place
            const Size ld = D + 2;
            auto g = this->gates(C, D, ld, strong ? 2.0 : 20.0 / static_cast<double>(C));
            for (Size i = 0; strong && i < C; ++i) g[i * ld + D / 3] = T(-9);
            std::vector<T> sums((C + 1) * D), carried(C * D, this->nan);
            std::vector<Size> ends{C};
            Size frames = 1;
            if (strong) {
              ends.resize(C);
              ASSERT_EQ(state_simd(s).gate_frames(C, D, g.data(), ld, 2, T(30), T(55), sums.data(), carried.data(),
                                                  ends.data(), &frames),
                        C);
            }
            const bool before = which == 4, in_place = which == 5;
            const auto from = this->normals(4 * C * D);
            std::vector<T> to(4 * C * D + 1, this->nan), late(C * D + 1, this->nan);
            if (in_place) std::copy(from.begin(), from.end(), to.begin());
            const auto source = [&](Size n) { return (in_place ? to.data() : from.data()) + n * C * D; };
            Rows rows;
            rows.k = source(0), rows.ldk = D, rows.to_k = to.data();
            if (which > 0) rows.q = source(1), rows.ldq = D, rows.to_q = to.data() + C * D;
            if (which > 1) rows.x = source(2), rows.ldx = D, rows.to_x = to.data() + 2 * C * D;
            if (which > 2) rows.y = source(3), rows.ldy = D, rows.to_y = to.data() + 3 * C * D;
            rows.q_before = rows.x_before = before;
            const bool within =
                state_simd(s).gate_rows(frames, ends.data(), D, g.data(), ld, strong ? carried.data() : nullptr,
                                        T(strong ? 55 : 30), rows, late.data());
            ASSERT_TRUE(within);
            const double most = sizeof(T) == 4 ? 5e-7 : 60 * 4e-16;
            const auto expect = [&](Size n, Size at, double factor, bool given) {
              const bool touched =
                  in_place ? to[n * C * D + at] != from[n * C * D + at] : !std::isnan(to[n * C * D + at]);
              if (!given) {
                ASSERT_FALSE(touched);
                return;
              }
              ASSERT_NEAR(to[n * C * D + at] / (static_cast<double>(from[n * C * D + at]) * factor), 1, most);
            };
            for (Size j = 0; j < D; ++j) {
              double G = 0;
              for (Size f = 0, t = 0; f < frames; ++f) {
                for (; t < ends[f]; ++t) {
                  const double old = G;
                  G += static_cast<double>(g[t * ld + j]);
                  const Size at = t * D + j;
                  expect(0, at, std::exp(-G), true), expect(1, at, std::exp(before ? old : G), which > 0);
                  expect(2, at, std::exp(before ? old : G), which > 1), expect(3, at, std::exp(-G), which > 2);
                }
                const bool goes_on = f + 1 < frames && carried[(f + 1) * D + j] == T(1);
                ASSERT_NEAR(late[(t - 1) * D + j] / std::exp(goes_on ? 0 : G), 1, goes_on ? 0 : most);
                if (!goes_on) G = 0;
              }
            }
            ASSERT_TRUE(std::isnan(late[C * D]) && std::isnan(to[4 * C * D]));
          }
    // Whether a frame is within its limit: not with a sum beyond it, on the way or at its end, and not with NaN.
    for (const std::vector<T>& g :
         {std::vector<T>{-1, -20, -3, -5}, {-1, -20, -20, -20}, {-1, -20, -20, 20}, {-1, this->nan, -1, -1}}) {
      std::vector<T> k(4, T(1)), late(4);
      Rows rows;
      rows.k = rows.to_k = k.data(), rows.ldk = 1;
      const Size end = 4;
      ASSERT_EQ(state_simd(s).gate_rows(1, &end, 1, g.data(), 1, nullptr, T(30), rows, late.data()), g[2] == T(-3));
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
