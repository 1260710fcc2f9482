// The numbers that networks begin with: those of the formula, and the same bits on every instruction set and however they are
// divided into calls.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "simd/normals.h"
#include "simd/simd.h"

namespace {

// SplitMix64 and Box-Muller by the library's functions.
class Plain {
 public:
  explicit Plain(std::uint64_t seed) : state_(seed) {}
  double operator()() {
    const double u = uniform(), v = uniform();
    return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
  }

 private:
  double uniform() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    return (static_cast<double>(z >> 11) + 0.5) * 0x1p-53;
  }
  std::uint64_t state_;
};

std::vector<double> drawn(std::uint64_t seed, std::uint64_t first, std::size_t n, double divisor,
                          std::string_view target = {}) {
  std::vector<double> x(n + 1, 7);
  ttr::normals(seed, first, static_cast<std::ptrdiff_t>(n), divisor, x.data(), target);
  EXPECT_EQ(x.back(), 7) << "beyond the end";
  x.pop_back();
  return x;
}

TEST(Normals, AreThoseOfTheFormula) {
  for (const double divisor : {1.0, 8.0, std::sqrt(48.0)}) {
    Plain plain(3000010);
    for (const double x : drawn(3000010, 0, 100'000, divisor)) {
      const double y = plain() / divisor;
      ASSERT_NEAR(x, y, 1e-15 * std::abs(y) + 1e-16);
      ASSERT_EQ(static_cast<float>(x), static_cast<float>(y));
    }
  }
}

TEST(Normals, HaveTheSameBitsOnEveryInstructionSet) {
  const std::vector<double> best = drawn(5, 0, 10'000, 3);
  for (const std::string& target : ttr::simd_targets()) EXPECT_EQ(drawn(5, 0, 10'000, 3, target), best) << target;
  // And on every machine: numbers of this seed.
  const std::vector<double> first(best.begin(), best.begin() + 4);
  EXPECT_EQ(first, (std::vector<double>{0x1.b4734332e6513p-8, 0x1.d8f7077c2cdecp-2, -0x1.c8938caa37631p-2,
                                        -0x1.d08d2d5d61825p-5}));
}

TEST(Normals, DoNotDependOnWhereACallBegins) {
  const std::vector<double> whole = drawn(9, 0, 1000, 4);
  for (const std::size_t begin : {1u, 64u, 127u, 128u, 500u})
    for (const std::size_t n : {0u, 1u, 127u, 129u, 400u})
      EXPECT_EQ(drawn(9, begin, n, 4), std::vector<double>(whole.begin() + static_cast<std::ptrdiff_t>(begin),
                                                           whole.begin() + static_cast<std::ptrdiff_t>(begin + n)));
}

}  // namespace
