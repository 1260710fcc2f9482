// Counting against a case worked out by hand, and against the formula written as it stands.
#include "ttr/ngram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "ttr/random.h"
#include "ttr/status.h"

namespace {

using namespace ttr::model;

std::vector<unsigned char> bytes(const std::string& text) { return {text.begin(), text.end()}; }

TEST(Ngram, ByHand) {
  // "aab": n(a) = 2, n(b) = 1, u = 2. p_0(a) = (2 + 2/256)/5, p_0(b) = (1 + 2/256)/5, p_0(c) = (2/256)/5.
  const double a = (2 + 2 / 256.0) / 5, b = (1 + 2 / 256.0) / 5, c = 2 / 256.0 / 5;
  // Order 1: after a came a and b once each: p_1(a|a) = (1 + 2 a)/4. After b and c came nothing.
  const std::vector<double> bits = ngram_bits(bytes("aab"), bytes("aabcb"), 1);
  ASSERT_EQ(bits.size(), 2u);
  EXPECT_NEAR(bits[0], -std::log2(a * a * b * c * b) / 5, 1e-12);
  EXPECT_NEAR(bits[1], -std::log2(a * (1 + 2 * a) / 4 * (1 + 2 * b) / 4 * c * b) / 5, 1e-12);
}

TEST(Ngram, AsTheFormula) {
  std::string train, test;
  ttr::model::Random random(5);
  for (int i = 0; i < 3000; ++i)
    (i < 2500 ? train : test) += static_cast<char>(200 + random.below(random.below(6) + 1));
  const auto probability = [&](auto&& self, const std::string& h, char c) -> double {
    const double before = h.empty() ? 1.0 / 256 : self(self, h.substr(1), c);
    double n = 0, both = 0;
    std::set<char> kinds;
    for (std::size_t i = h.size(); i < train.size(); ++i)
      if (train.compare(i - h.size(), h.size(), h) == 0) ++n, both += train[i] == c, kinds.insert(train[i]);
    const auto u = static_cast<double>(kinds.size());
    return n == 0 ? before : (both + u * before) / (n + u);
  };
  const std::vector<double> bits = ngram_bits(bytes(train), bytes(test), 3);
  for (std::size_t k = 0; k <= 3; ++k) {
    double sum = 0;
    for (std::size_t i = 0; i < test.size(); ++i) {
      const std::size_t length = std::min(k, i);
      sum -= std::log2(probability(probability, test.substr(i - length, length), test[i]));
    }
    EXPECT_NEAR(bits[k], sum / static_cast<double>(test.size()), 1e-10) << k;
  }
}

TEST(Ngram, LongContextsAndErrors) {
  const std::vector<double> bits = ngram_bits(bytes(std::string(500, 'x')), bytes(std::string(100, 'x')), 7);
  for (const double one : bits) EXPECT_LT(one, 0.1);
  EXPECT_THROW(ngram_bits(bytes("a"), bytes("b"), 8), ttr::Error);
  EXPECT_THROW(ngram_bits(bytes(""), bytes("b"), 1), ttr::Error);
  EXPECT_THROW(read_text("/nonexistent", 0.1, 0), ttr::Error);
}

}  // namespace
