// Products in the types of weights (language/products.h): numbers of very different sizes, at the limits of the bytes, and such
// as are none; rounded activations beside the rounded problem in double; bits alone and in company. Without the instructions
// these are the products of floats, of which the same holds.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "language/matrix.h"
#include "ttr/random.h"

namespace ttr::model {
namespace {

struct IntegerMatrix {  // rows of whole numbers with factors of halves, written by hand
  Matrix matrix;
  std::vector<std::byte> bytes;
  std::vector<float> plain;
};

// q(o, k) from -128 to 127, or -8 to 7; every block has the factor 2^-7.
template <class F>
IntegerMatrix weights(Stored type, Size out, Size in, F&& q) {
  IntegerMatrix w;
  const Size block = block_bytes(type), blocks = in / 32;
  w.bytes.resize(static_cast<std::size_t>(out * blocks * block));
  for (Size o = 0; o < out; ++o)
    for (Size b = 0; b < blocks; ++b) {
      std::byte* const to = w.bytes.data() + (o * blocks + b) * block;
      const std::uint16_t half = 0x2000;
      std::memcpy(to, &half, 2);
      for (Size k = 0; k < 32; ++k)
        if (type == Stored::q8_0) to[2 + k] = static_cast<std::byte>(q(o, b * 32 + k));
        else to[2 + k % 16] |= static_cast<std::byte>((q(o, b * 32 + k) + 8) << (k < 16 ? 0 : 4));
    }
  w.plain.resize(static_cast<std::size_t>(out * in));
  widen(type, out * in, w.bytes.data(), w.plain.data());
  w.matrix.type = type, w.matrix.out = out, w.matrix.in = in, w.matrix.data = w.bytes.data();
  return w;
}
IntegerMatrix random_weights(Stored type, Size out, Size in, std::uint64_t seed) {
  Random random(seed);
  const int reach = type == Stored::q8_0 ? 128 : 8;
  return weights(type, out, in, [&](Size, Size) {
    return static_cast<int>(random.below(static_cast<std::uint64_t>(2 * reach))) - reach;
  });
}

enum class How { tokens, block };
std::vector<float> product(How how, int threads, const Matrix& W, const std::vector<float>& x, Size n,
                           Activations activations = Activations::exact) {
  Team team(threads);
  MatrixProducts<float> products(team, W.in, activations);
  std::vector<float> y(static_cast<std::size_t>(n * W.out), 77.0f);
  const Product<float> to_y{&W, x.data(), W.in, y.data(), W.out};
  if (how == How::tokens) products.tokens(n, {&to_y, 1});
  else products.block(n, {&to_y, 1});
  return y;
}

// Half of the last place that the largest number of a block has, times the weights, and the roundings of a sum of floats.
void expect_near_exact(const IntegerMatrix& w, const std::vector<float>& x, Size n, const std::vector<float>& y,
                       const std::string& what) {
  const Size in = w.matrix.in, out = w.matrix.out;
  for (Size i = 0; i < n; ++i)
    for (Size o = 0; o < out; ++o) {
      double sum = 0, size = 0, rounding = 0;
      for (Size b = 0; b < in; b += 32) {
        double largest = 0, weight = 0;
        for (Size k = b; k < b + 32; ++k) {
          const double a = static_cast<double>(x[static_cast<std::size_t>(i * in + k)]);
          const double c = static_cast<double>(w.plain[static_cast<std::size_t>(o * in + k)]);
          sum += a * c, size += std::abs(a * c), weight += std::abs(c), largest = std::max(largest, std::abs(a));
        }
        rounding += std::ldexp(largest * weight, -23);
      }
      ASSERT_NEAR(static_cast<double>(y[static_cast<std::size_t>(i * out + o)]), sum, rounding + 4e-7 * size + 1e-30)
          << what << ", in " << in << ", row " << i << ", column " << o;
    }
}

TEST(LanguageIntegers, NumbersOfAllSizes) {
  for (const Stored type : {Stored::q8_0, Stored::q4_0})
    for (const Size in : {Size{32}, Size{64}, Size{96}, Size{288}, Size{320}}) {
      const Size out = 21, n = 15;
      const IntegerMatrix w = random_weights(type, out, in, 1);
      Random random(2);
      std::vector<float> x(static_cast<std::size_t>(n * in));
      for (Size i = 0; i < n; ++i)
        for (Size k = 0; k < in; ++k) {
          const double spread = i < 5    ? 1
                                : i < 10 ? std::pow(10, -6 * random.uniform())
                                         : std::pow(10, 20 - 40 * random.uniform());
          x[static_cast<std::size_t>(i * in + k)] = static_cast<float>(random.normal() * spread);
        }
      for (const How how : {How::tokens, How::block})
        expect_near_exact(w, x, n, product(how, 2, w.matrix, x, n), std::string(to_string(type)));
    }
}

// Every sum of bytes at its largest, with numbers that are as large as a power of two, just below it and halfway to it.
TEST(LanguageIntegers, LimitsOfBytes) {
  for (const Stored type : {Stored::q8_0, Stored::q4_0}) {
    const int reach = type == Stored::q8_0 ? 128 : 8;
    for (const int kind : {0, 1, 2}) {
      const Size in = 96, out = 17, n = 13;
      const IntegerMatrix w = weights(type, out, in, [&](Size o, Size k) {
        return kind == 0 ? -reach : kind == 1 ? reach - 1 : (o + k) % 2 ? -reach : reach - 1;
      });
      std::vector<float> x(static_cast<std::size_t>(n * in));
      const float values[] = {1.0f,  std::nextafter(2.0f, 0.0f),  1.9999998f, 1.5f,
                              -1.0f, -std::nextafter(2.0f, 0.0f), -2.0f};
      for (Size i = 0; i < n; ++i)
        for (Size k = 0; k < in; ++k)
          x[static_cast<std::size_t>(i * in + k)] =
              i < 7 ? values[i] : values[static_cast<std::size_t>((i + k) % 7)] * (k % 3 ? 1.0f : 0.00390625f);
      for (const How how : {How::tokens, How::block})
        expect_near_exact(w, x, n, product(how, 1, w.matrix, x, n), std::string(to_string(type)));
    }
  }
}

TEST(LanguageIntegers, WhatIsNotFiniteStaysInItsRow) {
  const Size in = 96, out = 19, n = 14;
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const Stored type : {Stored::q8_0, Stored::q4_0}) {
    // No weight is zero, whose product with an infinite number is none either.
    const IntegerMatrix w = weights(type, out, in, [](Size o, Size k) { return 1 + static_cast<int>((o + k) % 5); });
    std::vector<float> x(static_cast<std::size_t>(n * in), 0.5f);
    x[3] = nan, x[static_cast<std::size_t>(2 * in + 70)] = inf, x[static_cast<std::size_t>(5 * in + 95)] = -inf;
    for (Size k = 0; k < in; ++k) {
      x[static_cast<std::size_t>(7 * in + k)] = 0;
      x[static_cast<std::size_t>(8 * in + k)] = 1e-38f;
      x[static_cast<std::size_t>(9 * in + k)] = std::numeric_limits<float>::max() / 4096;
    }
    for (const Activations activations : {Activations::exact, Activations::rounded})
      for (const How how : {How::tokens, How::block}) {
        const std::vector<float> y = product(how, 2, w.matrix, x, n, activations);
        for (Size i = 0; i < n; ++i)
          for (Size o = 0; o < out; ++o) {
            const float value = y[static_cast<std::size_t>(i * out + o)];
            EXPECT_EQ(std::isfinite(value), i != 0 && i != 2 && i != 5) << i;
            EXPECT_TRUE(i != 7 || value == 0) << value;
            EXPECT_TRUE(i != 8 || std::abs(value) < 1e-36f) << value;
            EXPECT_TRUE(i != 9 || value > 1e34f) << value;
          }
      }
  }
}

// 32 numbers to eight bits and a factor, or numbers to bf16, as the file's head says; in double.
std::vector<double> rounded(Stored type, Size in, const std::vector<float>& x) {
  std::vector<double> to(x.begin(), x.end());
  for (std::size_t row = 0; row < x.size(); row += static_cast<std::size_t>(in))
    for (Size k = 0; k < in; ++k) {
      const std::size_t at = row + static_cast<std::size_t>(k);
      if (type == Stored::bf16) {
        int exponent;
        const double part = std::frexp(static_cast<double>(x[at]), &exponent);  // 8 bits of it stay
        to[at] = std::ldexp(std::nearbyint(std::ldexp(part, 8)), exponent - 8);
      } else if (type == Stored::q8_0 || type == Stored::q4_0) {
        float largest = 0;
        const std::size_t block = row + static_cast<std::size_t>(k / 32 * 32);
        for (std::size_t j = block; j < block + 32; ++j) largest = std::max(largest, std::abs(x[j]));
        const float factor = largest == 0 ? 0 : 127.0f / largest;
        to[at] = static_cast<double>(largest / 127.0f) * static_cast<double>(std::nearbyint(x[at] * factor));
      }
    }
  return to;
}

IntegerMatrix random_numbers(Stored type, Size out, Size in, std::uint64_t seed) {
  IntegerMatrix w;
  Random random(seed);
  std::vector<float> numbers(static_cast<std::size_t>(out * in));
  for (float& v : numbers) v = static_cast<float>(random.normal());
  w.bytes.resize(static_cast<std::size_t>(row_bytes(type, out * in)));
  narrow(type, out * in, numbers.data(), w.bytes.data());
  w.plain.resize(numbers.size());
  widen(type, out * in, w.bytes.data(), w.plain.data());
  w.matrix.type = type, w.matrix.out = out, w.matrix.in = in, w.matrix.data = w.bytes.data();
  return w;
}

std::vector<float> random_rows(Size n, Size in, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> x(static_cast<std::size_t>(n * in));
  for (Size i = 0; i < n; ++i)
    for (Size k = 0; k < in; ++k)
      x[static_cast<std::size_t>(i * in + k)] =
          static_cast<float>(random.normal() * (i % 2 ? 1 : std::pow(10, 6 - 12 * random.uniform())));
  return x;
}

TEST(LanguageRounded, TheRoundedProblemInDouble) {
  for (const Stored type : {Stored::bf16, Stored::q8_0, Stored::q4_0, Stored::f32, Stored::f16})
    for (const Size in : {Size{32}, Size{96}, Size{1120}, Size{7}, Size{45}}) {
      if (in % block_numbers(type)) continue;
      const Size out = 53, n = 15;
      const IntegerMatrix w = random_numbers(type, out, in, 1);
      const std::vector<float> x = random_rows(n, in, 2);
      const std::vector<double> X = rounded(type, in, x);
      for (const How how : {How::tokens, How::block})
        for (const Size rows : {Size{1}, Size{3}, n}) {
          const std::vector<float> y = product(how, 2, w.matrix, x, rows, Activations::rounded);
          for (Size i = 0; i < rows; ++i)
            for (Size o = 0; o < out; ++o) {
              double sum = 0, size = 0;
              for (Size k = 0; k < in; ++k) {
                const double term = X[static_cast<std::size_t>(i * in + k)] *
                                    static_cast<double>(w.plain[static_cast<std::size_t>(o * in + k)]);
                sum += term, size += std::abs(term);
              }
              ASSERT_NEAR(static_cast<double>(y[static_cast<std::size_t>(i * out + o)]), sum, 2e-6 * size)
                  << to_string(type) << ", in " << in << ", row " << i << " of " << rows << ", column " << o;
            }
        }
    }
}

// What stands in for the instructions elsewhere multiplies the same numbers.
TEST(LanguageRounded, NumbersElsewhere) {
  const Size in = 96, n = 8;
  const std::vector<float> x = random_rows(n, in, 3);
  for (const Stored type : {Stored::bf16, Stored::q8_0, Stored::q4_0, Stored::f32, Stored::q6_k}) {
    const std::vector<double> X = rounded(type, in, x);
    std::vector<float> y(x.size());
    round_activations(rounding_of(type), n * in, x.data(), y.data());
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(static_cast<double>(y[i]), X[i], 1e-7 * std::abs(X[i])) << to_string(type) << " " << i;
    std::vector<double> wide(x.begin(), x.end());
    round_activations(rounding_of(type), n * in, wide.data(), wide.data());
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(wide[i], X[i]) << to_string(type) << " " << i;
  }
}

// Several products in one call, of which some share their rows and some have groups, a bias and rows far apart: the bits of
// each are those of a token alone, on any number of threads.
TEST(LanguageIntegers, BitsAloneAndInCompany) {
  const Size in = 96, n = 29, room = 3 * in + 5;
  const IntegerMatrix a = random_weights(Stored::q8_0, 150, in, 3), b = random_weights(Stored::q4_0, 33, in, 4),
                      c = random_weights(Stored::q8_0, 7, in, 5);
  Matrix d = Matrix::of(9, in, std::vector<float>(static_cast<std::size_t>(9 * in), 0.25f));
  Random random(6);
  std::vector<float> x(static_cast<std::size_t>(n * room)), bias(7);
  for (float& v : x) v = static_cast<float>(random.normal());
  for (float& v : bias) v = static_cast<float>(random.normal());
  struct Results {
    std::vector<float> a, b, c, d, e;
    bool operator==(const Results&) const = default;
  };
  const IntegerMatrix e = random_numbers(Stored::bf16, 37, in, 8);
  const auto run = [&](How how, Activations activations, int threads, Size first, Size count) {
    Team team(threads);
    MatrixProducts<float> products(team, in, activations);
    const auto numbers = [&](Size width) { return std::vector<float>(static_cast<std::size_t>(count * width)); };
    Results r{numbers(150), numbers(33), numbers(3 * 7), numbers(9), numbers(37)};
    const float* const from = x.data() + first * room;
    const Product<float> list[] = {{&a.matrix, from, room, r.a.data(), 150},
                                   {&b.matrix, from, room, r.b.data(), 33},
                                   {&c.matrix, from, room, r.c.data(), 3 * 7, bias.data(), 3},
                                   {&d, from + in, room, r.d.data(), 9},
                                   {&e.matrix, from + in, room, r.e.data(), 37}};
    products.reserve(count, list);
    if (how == How::tokens) products.tokens(count, list);
    else products.block(count, list);
    return r;
  };
  for (const Activations activations : {Activations::exact, Activations::rounded})
    for (const How how : {How::tokens, How::block}) {
      const Results all = run(how, activations, 1, 0, n);
      EXPECT_TRUE(all == run(how, activations, 2, 0, n));
      EXPECT_TRUE(all == run(how, activations, 3, 0, n));
      for (const Size count : {Size{1}, Size{2}, Size{3}, Size{6}, Size{13}})
        for (Size first = 0; first + count <= n; first += 5) {
          const Results part = run(how, activations, 2, first, count);
          const auto same = [&](const std::vector<float>& whole, const std::vector<float>& some) {
            const std::size_t width = whole.size() / static_cast<std::size_t>(n);
            return std::memcmp(whole.data() + static_cast<std::size_t>(first) * width, some.data(),
                               some.size() * sizeof(float)) == 0;
          };
          EXPECT_TRUE(same(all.a, part.a) && same(all.b, part.b) && same(all.c, part.c) && same(all.d, part.d) &&
                      same(all.e, part.e))
              << first << " " << count;
        }
    }
}

}  // namespace
}  // namespace ttr::model
