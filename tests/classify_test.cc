// cli/classify.h: calibration, the mixture and the measures against what they are defined by.
#include "classify.h"

#include <cmath>
#include <fstream>
#include <sstream>
#include <vector>

#include <gtest/gtest.h>

#include "random.h"

namespace ttr::cli {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Scores that are three times too large and shifted: the slope and the offset are found, from past answers alone.
TEST(Classify, CalibrationFindsSlopeAndOffset) {
  SplitMix random(1);
  Calibration calibration(2, true);
  ClassMeasures raw(2), calibrated(2);
  for (int t = 0; t < 20000; ++t) {
    const double log_odds = 2 * random.normal(), scores[] = {0, 3 * log_odds + 2};
    const bool yes = random.uniform() < sigmoid(log_odds);
    const double actual[] = {yes ? 0.0 : 1.0, yes ? 1.0 : 0.0};
    double p[2];
    calibration.probabilities(scores, p);
    EXPECT_NEAR(p[0] + p[1], 1, 1e-12);
    if (t >= 2000) {
      calibrated.add(p, actual);
      const double q[] = {1 - sigmoid(scores[1]), sigmoid(scores[1])};
      const double kept[] = {std::max(q[0], 1e-9), std::max(q[1], 1e-9)};
      raw.add(kept, actual);
    }
    calibration.update(scores, actual);
  }
  EXPECT_NEAR(calibration.slope(), 1.0 / 3, 0.05);
  EXPECT_LT(calibrated.calibration_error(), 0.02);
  EXPECT_GT(raw.calibration_error(), 0.1);
  EXPECT_LT(calibrated.log_loss(), raw.log_loss());
}

TEST(Classify, CalibrationOfManyClassesStaysADistribution) {
  SplitMix random(2);
  Calibration calibration(5, false);
  for (int t = 0; t < 2000; ++t) {
    double scores[5], actual[5] = {}, p[5], sum = 0;
    const std::size_t c = static_cast<std::size_t>(5 * random.uniform()) % 5;
    for (std::size_t d = 0; d < 5; ++d) scores[d] = (d == c ? 0.5 : 0) + 0.3 * random.normal();
    actual[c] = 1;
    calibration.probabilities(scores, p);
    for (const double x : p) {
      EXPECT_GE(x, 1e-5);
      sum += x;
    }
    EXPECT_NEAR(sum, 1, 1e-12);
    calibration.update(scores, actual);
  }
  const double lost[] = {0, std::nan(""), 0, 0, 0};
  double p[5];
  calibration.probabilities(lost, p);
  for (const double x : p) EXPECT_TRUE(std::isnan(x));
}

// The bound at the top of classify.h, with an expert that is best first and another that is best later.
TEST(Classify, MixIsWithinItsBoundOfTheBestExpert) {
  ClassMix mix(3, 2);
  double loss[3] = {}, mixed = 0;
  const int n = 3000;
  for (int t = 0; t < n; ++t) {
    const bool late = t >= n / 2;
    const double experts[] = {0.1, 0.9, late ? 0.05 : 0.5, late ? 0.95 : 0.5, 0.5, 0.5}, actual[] = {0, 1};
    double p[2];
    mix.predict(experts, p);
    mixed -= std::log(p[1]);
    for (int j = 0; j < 3; ++j) loss[j] -= std::log(experts[2 * j + 1]);
    mix.update(experts, actual);
  }
  EXPECT_LE(mixed, std::min({loss[0], loss[1], loss[2]}) + std::log(3.0) + 0.0011 * n);
  EXPECT_GT(mix.weights()[1], 0.9);  // a share was given back, so the later one has taken over
}

TEST(Classify, MixLetsALostExpertSleep) {
  ClassMix mix(2, 2);
  const double nan = std::nan(""), experts[] = {nan, nan, 0.3, 0.7}, actual[] = {0, 1};
  double p[2];
  mix.predict(experts, p);
  EXPECT_DOUBLE_EQ(p[1], 0.7);
  mix.update(experts, actual);
  mix.predict(experts, p);
  EXPECT_DOUBLE_EQ(p[0] + p[1], 1);
  EXPECT_NEAR(mix.weights()[0] + mix.weights()[1], 1, 1e-12);
}

// Against all pairs, counted one by one.
TEST(Classify, MeasuresAreWhatTheirNamesSay) {
  SplitMix random(3);
  const std::size_t C = 3;
  const int n = 400;
  ClassMeasures measures(C);
  std::vector<std::vector<double>> ps;
  std::vector<std::size_t> cs;
  double loss = 0, correct = 0;
  for (int t = 0; t < n; ++t) {
    std::vector<double> p(C), actual(C);
    const std::size_t c = static_cast<std::size_t>(C * random.uniform()) % C;
    double sum = 0;
    for (std::size_t d = 0; d < C; ++d) sum += p[d] = std::exp((d == c ? 0.8 : 0) + random.normal());
    for (double& x : p) x /= sum;
    actual[c] = 1;
    measures.add(p.data(), actual.data());
    loss -= std::log(p[c]), correct += class_of(p.data(), C) == c;
    ps.push_back(p), cs.push_back(c);
  }
  EXPECT_NEAR(measures.log_loss(), loss / n, 1e-12);
  EXPECT_NEAR(measures.accuracy(), correct / n, 1e-12);
  double auc = 0;
  for (std::size_t d = 0; d < C; ++d) {
    double wins = 0, pairs = 0;
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j)
        if (cs[i] == d && cs[j] != d) ++pairs, wins += ps[i][d] > ps[j][d] ? 1 : ps[i][d] == ps[j][d] ? 0.5 : 0;
    auc += wins / pairs / static_cast<double>(C);
  }
  EXPECT_NEAR(measures.auc(), auc, 1e-3);
  double counted = 0;
  for (const ClassMeasures::Bin& bin : measures.reliability()) counted += bin.count;
  EXPECT_EQ(counted, n * static_cast<double>(C));
}

TEST(Classify, WordsBecomeClasses) {
  ClassEncoder encoder({"no", "yes"});
  double out[2];
  ASSERT_TRUE(encoder.encode(" yes ", out));
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[1], 1);
  ASSERT_TRUE(encoder.encode("", out));
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_FALSE(encoder.encode("maybe", out));
  EXPECT_EQ(encoder.expected(), "one of the classes no and yes");
}

TEST(Classify, WordsOfLayersAreRecipes) {
  EXPECT_EQ(classifier_text("logistic:rate=0.2"), "equal / linear / sgd(beta=0.2, adagrad) | logistic");
  EXPECT_EQ(classifier_text("nlms"), "nlms");
  EXPECT_THROW(classifier_text("cross-entropy:rate=-1"), std::exception);
  EXPECT_EQ(classifier_settings("cross-entropy").size(), 5u);
  EXPECT_TRUE(classifier_settings("rls").empty());
}

}  // namespace
}  // namespace ttr::cli
