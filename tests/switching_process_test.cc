#include "switching_process.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ttr/status.h"

namespace ttr::cli {
namespace {

double squared_distance(const double* a, const double* b, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

TEST(SwitchingProcess, TheNaiveForecastHasThePublishedLoss) {
  // Measured with another program and other random numbers: .229, .049 and .0118, standard errors below ten percent.
  const SwitchingSpec spec;
  const int T = spec.time, D = spec.dim, seeds = 48;
  double loss[3] = {};
  for (int s = 0; s < seeds; ++s) {
    const SwitchingSequence x = switching_sequence(spec, 11, s);
    for (int t = 0; t < T; ++t)
      loss[t < T / 4   ? 0
           : t < T / 2 ? 1
                       : 2] += squared_distance(&x.values[t * D], &x.values[(t + 1) * D], D) / seeds;
  }
  EXPECT_NEAR(loss[0] / (T / 4), 0.229, 0.035);
  EXPECT_NEAR(loss[1] / (T / 4), 0.049, 0.012);
  EXPECT_NEAR(loss[2] / (T / 2), 0.0118, 0.0035);
}

TEST(SwitchingProcess, ValuesAreTheNextKeysAtLengthOne) {
  const SwitchingSpec spec{.time = 40, .dim = 5};
  const SwitchingSequence x = switching_sequence(spec, 1, 0);
  ASSERT_EQ(x.keys.size(), 41u * 5);
  ASSERT_EQ(x.values.size(), 41u * 5);
  for (int t = 0; t < 40; ++t) {
    double norm = 0;
    for (int i = 0; i < 5; ++i) norm += x.keys[(t + 1) * 5 + i] * x.keys[(t + 1) * 5 + i];
    for (int i = 0; i < 5; ++i) EXPECT_NEAR(x.values[t * 5 + i], x.keys[(t + 1) * 5 + i] / std::sqrt(norm), 1e-15);
  }
}

TEST(SwitchingProcess, TheNoiseHasTheRequestedCorrelation) {
  for (Covariance kind :
       {Covariance::equicorrelation, Covariance::toeplitz, Covariance::wishart, Covariance::identity}) {
    Random random(5);
    const int n = 12;
    const std::vector<double> factor = covariance_factor(kind, n, random);
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) {
        double sigma = 0;
        for (int p = 0; p < n; ++p) sigma += factor[i * n + p] * factor[j * n + p];
        const double off = kind == Covariance::equicorrelation ? 0.5
                           : kind == Covariance::toeplitz      ? std::pow(0.9, std::abs(i - j))
                                                               : 0.0;
        if (i != j && kind == Covariance::wishart) {
          EXPECT_LT(std::abs(sigma), 1);
        } else {
          EXPECT_NEAR(sigma, i == j ? 1 : off, 1e-12) << to_string(kind);
        }
      }
  }
}

TEST(SwitchingProcess, TheSlidesHaveTheOtherOrder) {
  const SwitchingSpec paper{.covariance = Covariance::identity},
      slides{.covariance = Covariance::identity, .order = RuleOrder::slides};
  const int D = paper.dim, T = paper.time;
  const auto mean_square = [&](const SwitchingSpec& spec, int from, int to) {
    double sum = 0;
    for (int n = 0; n < 20; ++n) {
      const SwitchingSequence x = switching_sequence(spec, 9, n);
      for (int i = from * D; i < to * D; ++i) sum += x.keys[i] * x.keys[i] / (20.0 * (to - from) * D);
    }
    return sum;
  };
  // Stationary at 0.02^2 / (1 - a^2): 0.0021 and 0.2.
  EXPECT_NEAR(mean_square(paper, 0, T / 4), 0.0021, 0.0004);
  EXPECT_NEAR(mean_square(slides, 0, T / 4), 0.2, 0.05);
  EXPECT_NEAR(mean_square(slides, T / 2, T), 0.0021, 0.0004);
  EXPECT_GT(mean_square(paper, T / 2, T), 0.02);
  EXPECT_EQ(parse_rule_order("slides"), RuleOrder::slides);
  EXPECT_THROW(parse_rule_order("talk"), Error);
}

TEST(SwitchingProcess, SequencesRepeatAndDiffer) {
  const SwitchingSpec spec{.time = 8, .dim = 4};
  EXPECT_EQ(switching_sequence(spec, 3, 1).keys, switching_sequence(spec, 3, 1).keys);
  EXPECT_NE(switching_sequence(spec, 3, 1).keys, switching_sequence(spec, 3, 2).keys);
  EXPECT_NE(switching_sequence(spec, 3, 1).keys, switching_sequence(spec, 4, 1).keys);
}

TEST(SwitchingProcess, RandomNumbersAreNormal) {
  Random random(1);
  double sum = 0, squares = 0, fourth = 0;
  const int n = 200000;
  for (int i = 0; i < n; ++i) {
    const double x = random.normal();
    sum += x, squares += x * x, fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(squares / n, 1, 0.015);
  EXPECT_NEAR(fourth / n, 3, 0.12);
}

TEST(SwitchingProcess, TheGeneratorIsPortable) {
  // A change of these words would change every published number.
  Random random(2025, 1);
  EXPECT_EQ(random.bits(), 10985464781510699309u);
  EXPECT_EQ(random.bits(), 5148783282625633819u);
}

TEST(SwitchingProcess, UnknownCovariance) {
  EXPECT_EQ(parse_covariance("toeplitz"), Covariance::toeplitz);
  EXPECT_THROW(parse_covariance("round"), Error);
}

}  // namespace
}  // namespace ttr::cli
