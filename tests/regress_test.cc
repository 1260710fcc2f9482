#include "regress.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "archive.h"
#include "atomic_file.h"
#include "progress.h"
#include "random.h"
#include "regress_columns.h"
#include "regress_detect.h"
#include "regress_forecasters.h"
#include "regress_mix.h"
#include "regress_pairs.h"
#include "regress_parts.h"
#include "regress_ridge.h"
#include "regress_scores.h"
#include "regress_units.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

namespace fs = std::filesystem;

TEST(RegressWindows, MeansAreExactAndBounded) {
  EXPECT_TRUE(rc::check([] {
    const auto losses = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1000));
    const int width = *rc::gen::inRange(1, 5);
    const std::size_t most = *rc::gen::inRange<std::size_t>(2, 9);
    Windows windows(width, most);
    for (int loss : losses) windows.add(loss);
    RC_ASSERT(windows.size() <= most);
    std::size_t at = 0;
    for (std::size_t w = 0; w < windows.size(); ++w) {
      double sum = 0;
      const std::int64_t count = windows.count(w);
      RC_ASSERT(count >= 1);
      if (w + 1 < windows.size()) RC_ASSERT(count == windows.width());
      for (std::int64_t i = 0; i < windows.count(w); ++i) sum += losses.at(at++);
      RC_ASSERT(std::abs(windows.mean(w) - sum / static_cast<double>(windows.count(w))) < 1e-9);
    }
    RC_ASSERT(at == losses.size());
  }));
}

TEST(RegressSpread, R2) {
  Spread spread(1);
  for (double y : {1.0, 2.0, 3.0, 6.0}) spread.add(&y);
  EXPECT_NEAR(spread.sum_of_squares(), 14, 1e-12);
  EXPECT_NEAR(spread.r2(7), 0.5, 1e-12);
  Spread constant(1);
  for (double y : {4.0, 4.0}) constant.add(&y);
  EXPECT_TRUE(std::isnan(constant.r2(1)));
}

struct Asked {
  bool has_pair;
  std::vector<double> key, value, query;
};

/// Feeds rows x_t = t, y_t = 100 + t and collects what a layer would see.
std::vector<Asked> pairs_of(const PairSpec& spec, int rows) {
  PairBuilder builder(spec);
  const std::size_t K = static_cast<std::size_t>(builder.key_dim());
  std::vector<Asked> out;
  for (int t = 0; t < rows; ++t) {
    Block block;
    block.key_dim = builder.key_dim(), block.value_dim = 1;
    block.keys.resize(K), block.queries.resize(K), block.values.resize(1), block.has_pair.resize(1);
    block.may_be_asked_again.resize(1);
    const double x = t, y = 100 + t;
    double last;
    if (builder.add(&x, &y, block, &last))
      out.push_back({block.has_pair[0] != 0, block.keys, block.values, block.queries});
  }
  return out;
}

TEST(RegressPairs, AskThenLearn) {
  const auto asked = pairs_of({.key_columns = 1, .value_columns = 1, .bias = true}, 4);
  ASSERT_EQ(asked.size(), 4u);
  EXPECT_FALSE(asked[0].has_pair);
  for (int t = 1; t < 4; ++t) {
    EXPECT_TRUE(asked[t].has_pair);
    EXPECT_EQ(asked[t].key, (std::vector<double>{t - 1.0, 1}));
    EXPECT_EQ(asked[t].value, (std::vector<double>{99.0 + t}));
    EXPECT_EQ(asked[t].query, (std::vector<double>{1.0 * t, 1}));
  }
}

TEST(RegressPairs, LagsAndHorizon) {
  // k_t = (t, t-1, t-2) is asked for y_{t+2}; at row t the pair (k_{t-2}, y_t) is known.
  const auto asked = pairs_of({.key_columns = 1, .value_columns = 1, .lags = 3, .horizon = 2}, 9);
  ASSERT_EQ(asked.size(), 7u);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const double t = static_cast<double>(i) + 2;
    EXPECT_EQ(asked[i].query, (std::vector<double>{t, t - 1, t - 2}));
    EXPECT_EQ(asked[i].has_pair, t >= 4);
    if (t < 4) continue;
    EXPECT_EQ(asked[i].key, (std::vector<double>{t - 2, t - 3, t - 4}));
    EXPECT_EQ(asked[i].value, (std::vector<double>{100 + t}));
  }
}

Block one_row(int K, int V) {
  Block block;
  block.key_dim = K, block.value_dim = V;
  block.keys.resize(K), block.queries.resize(K), block.values.resize(V), block.has_pair.resize(1);
  block.may_be_asked_again.resize(1);
  return block;
}

/// The answers of forecasters to rows (x, y), row by row, as a stream would ask for them.
std::vector<double> answers_to(const ForecastSpec& spec, const std::vector<std::pair<double, double>>& rows) {
  Forecasters forecasters(spec);
  PairBuilder pairs(spec.pairs);
  std::vector<double> answers, answer(forecasters.width());
  std::vector<std::vector<double>> waiting;
  for (const auto& [x, y] : rows) {
    Block block = one_row(pairs.key_dim(), 1);
    double last = 0;
    const bool asks = pairs.add(&x, &y, block, &last);
    forecasters.see(&x, &y);
    forecasters.run(block, &last, &last, answer.data());
    const std::int64_t horizon = spec.pairs.horizon;
    if (horizon > 0 && static_cast<std::int64_t>(waiting.size()) == horizon) {
      forecasters.update(waiting.front().data(), &y);
      waiting.erase(waiting.begin());
    }
    if (asks) {
      forecasters.finish(answer.data());
      answers.insert(answers.end(), answer.begin(),
                     answer.begin() + static_cast<std::ptrdiff_t>(forecasters.count()));
      if (horizon == 0) forecasters.update(answer.data(), &y);
      else waiting.push_back(answer);
    }
    forecasters.end_block(block);
  }
  return answers;
}

TEST(RegressForecasters, NoAnswerKnowsWhatComesLater) {
  // What is answered at a row must not change with the row's own value (no horizon) or anything that comes after it:
  // units, intercept, tuning and the mix included.
  EXPECT_TRUE(rc::check([] {
    const int count = 24;
    const auto numbers = *rc::gen::container<std::vector<std::pair<int, int>>>(
        count, rc::gen::pair(rc::gen::inRange(-50, 50), rc::gen::inRange(-50, 50)));
    const std::size_t changed = *rc::gen::inRange<std::size_t>(0, count);
    ForecastSpec spec;
    spec.pairs = {.key_columns = 1, .value_columns = 1, .bias = true, .horizon = *rc::gen::inRange(0, 3)};
    spec.layers = {"nlms", "rls"};
    spec.mix = spec.standardize = true, spec.tune = *rc::gen::arbitrary<bool>();
    const auto run = [&](double add) {
      std::vector<std::pair<double, double>> rows(numbers.begin(), numbers.end());
      for (std::size_t t = changed; t < rows.size(); ++t) {
        rows[t].second += add;
        if (t > changed) rows[t].first -= add;
      }
      return answers_to(spec, rows);
    };
    const std::vector<double> plain = run(0), other = run(1000);
    const std::size_t known = (changed + (spec.pairs.horizon == 0 ? 1 : 0)) * 4;  // nlms, rls, mix, naive
    RC_ASSERT(plain.size() == 4 * static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < std::min(known, plain.size()); ++i) RC_ASSERT(plain[i] == other[i]);
  }));
}

TEST(RegressForecasters, UnitsDoNotMatter) {
  // Other units of keys and values give the same answers in those units.
  std::vector<std::pair<double, double>> rows, scaled;
  for (int t = 0; t < 300; ++t) {
    const double x = std::sin(0.7 * t) + 0.01 * t, y = 3 * x - 2 + std::cos(5.0 * t);
    rows.emplace_back(x, y), scaled.emplace_back(1e7 * x + 5e8, 1e-3 * y - 7);
  }
  ForecastSpec spec;
  spec.pairs = {.key_columns = 1, .value_columns = 1, .bias = true};
  spec.layers = {"nlms", "rls", "rls:decay=0.98", "kalman"};
  spec.mix = spec.standardize = true;
  const std::vector<double> plain = answers_to(spec, rows), other = answers_to(spec, scaled);
  ASSERT_EQ(plain.size(), 6u * 300);
  for (std::size_t i = 6; i < plain.size(); ++i) EXPECT_NEAR(other[i], 1e-3 * plain[i] - 7, 1e-6) << i;
}

TEST(RegressForecasters, TheInterceptIsFree) {
  // Shifted keys and values are the same problem, and the ridge must not see the shift.
  std::vector<std::pair<double, double>> rows, shifted;
  for (int t = 0; t < 200; ++t) {
    const double x = std::sin(0.7 * t), y = 3 * x + 0.1 * std::cos(5.0 * t);
    rows.emplace_back(x, y), shifted.emplace_back(x + 1000, y + 500);
  }
  ForecastSpec spec;
  spec.layers = {"rls", "rls:decay=0.99"};
  spec.pairs = {.key_columns = 1, .value_columns = 1, .bias = true};
  const std::vector<double> plain = answers_to(spec, rows), other = answers_to(spec, shifted);
  for (std::size_t i = 3 * 20; i < plain.size(); ++i)
    EXPECT_NEAR(other[i] - 500, plain[i], i % 3 == 2 ? 1e-9 : 2e-2) << i;
}

TEST(RegressMix, IsCloseToTheBestExpert) {
  // Experts of which one is good for a while and another later; the mix must lose little to the better one overall, and
  // gain where two err in opposite directions.
  SplitMix random(7);
  Mix mix(3, 1, true);
  std::vector<double> prediction(mix.width());
  double loss = 0, losses[3] = {};
  for (int t = 0; t < 3000; ++t) {
    const double y = random.normal(), e = random.normal();
    const double forecasts[3] = {y + 0.5 * e + 0.1 * random.normal(), y - 0.5 * e + 0.1 * random.normal(), 100 * e};
    mix.predict(forecasts, prediction.data());
    loss += (prediction[0] - y) * (prediction[0] - y);
    for (int j = 0; j < 3; ++j) losses[j] += (forecasts[j] - y) * (forecasts[j] - y);
    mix.update(prediction.data(), &y);
  }
  EXPECT_LT(loss, 0.6 * std::min(losses[0], losses[1]));
}

TEST(RegressMix, CostsNoMoreThanItsBound) {
  // Forecasts and values in [0, 1], so that no error is above B = 1: in all at most 2 log E above the best expert. B is not
  // told, so the bound is that of the largest error seen, which cannot be more.
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    SplitMix random(seed);
    constexpr std::size_t experts = 6;
    Aggregation aggregation(experts);
    double loss = 0, losses[experts] = {};
    for (int t = 0; t < 4000; ++t) {
      const double y = (t / 500) % 2 == 0 ? 0.9 : 0.1;
      double forecasts[experts];
      for (std::size_t j = 0; j < experts; ++j)
        forecasts[j] =
            std::clamp(0.5 + 0.08 * static_cast<double>(j) * (y - 0.5) * 2 + 0.2 * random.normal(), 0.0, 1.0);
      const double prediction = aggregation.predict(forecasts);
      loss += (prediction - y) * (prediction - y);
      for (std::size_t j = 0; j < experts; ++j) losses[j] += (forecasts[j] - y) * (forecasts[j] - y);
      aggregation.update(forecasts, prediction, y);
    }
    EXPECT_LT(loss, *std::min_element(losses, losses + experts) + 2 * std::log(experts)) << seed;
  }
}

TEST(RegressDetect, NoChangeWhereThereIsNone) {
  int cuts = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SplitMix random(seed);
    Adwin window;
    for (int t = 0; t < 2000; ++t) {
      const double e = std::abs(random.normal());
      cuts += window.add(e / (e + 1)) ? 1 : 0;
    }
    EXPECT_GT(window.size(), 500) << seed;
  }
  EXPECT_LE(cuts, 2);
}

TEST(RegressDetect, AChangeIsFoundAndTheOldIsDropped) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SplitMix random(seed);
    Adwin window;
    int found = 0;
    for (int t = 0; t < 1600; ++t) {
      const double e = (t < 1000 ? 1 : 3) * std::abs(random.normal());
      if (window.add(e / (e + 1)) && t >= 1000 && found == 0) found = t;
    }
    EXPECT_GT(found, 1000) << seed;
    EXPECT_LT(found, 1150) << seed;
    EXPECT_LT(window.size(), 700) << seed;
  }
}

TEST(RegressDetect, AnomaliesAreInDeviations) {
  SplitMix random(11);
  Detector detector;
  double squares = 0;
  int count = 0;
  for (int t = 0; t < 3000; ++t) {
    const double prediction = 0, actual = 5 * random.normal(), score = detector.add(t, &prediction, &actual, 1);
    if (t < 20) EXPECT_TRUE(std::isnan(score));
    else squares += score * score, ++count;
  }
  EXPECT_NEAR(squares / count, 1, 0.15);  // the square of a distance in deviations has mean one
  const double prediction = 0, far = 50;
  EXPECT_NEAR(detector.add(3000, &prediction, &far, 1), 10, 1.5);
}

TEST(RegressMix, AnExpertThatIsNotANumberSleeps) {
  Mix mix(2, 1, true);
  std::vector<double> prediction(mix.width());
  for (int t = 0; t < 50; ++t) {
    const double y = t % 5, forecasts[2] = {y + 0.1, t > 20 ? std::nan("") : y};
    mix.predict(forecasts, prediction.data());
    EXPECT_TRUE(std::isfinite(prediction[0]));
    if (t > 22) {
      EXPECT_NEAR(prediction[0], y + 0.1, 0.2);
    }
    mix.update(prediction.data(), &y);
  }
}

TEST(RegressLayer, AQuestionLeavesNoTrace) {
  // Rows without a pair are answered from the memory as it is, and the rows after them as if they had not been.
  for (const char* text : {"nlms", "rls", "rls:decay=0.9", "kalman", "softmax-attention", "rwkv-7"}) {
    StreamLayer plain(text, 2, 1), asked(text, 2, 1);
    SplitMix random(3);
    for (int t = 0; t < 40; ++t) {
      Block block = one_row(2, 1);
      block.rows = 1, block.has_pair[0] = 1, block.may_be_asked_again[0] = 1;
      for (double& x : block.keys) x = random.normal();
      for (double& x : block.queries) x = random.normal();
      block.values[0] = random.normal();
      double a = 0, b = 0, again = 0;
      plain.run(block, &a), asked.run(block, &b);
      EXPECT_EQ(a, b) << text << " " << t;
      block.has_pair[0] = 0;
      asked.run(block, &again);
      EXPECT_EQ(again, b) << text << " " << t;
    }
  }
}

// x with A x = b, A [n, n] symmetric and positive definite, by elimination.
std::vector<double> solved(std::vector<double> A, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t r = i + 1; r < n; ++r) {
      const double f = A[r * n + i] / A[i * n + i];
      for (std::size_t j = i; j < n; ++j) A[r * n + j] -= f * A[i * n + j];
      b[r] -= f * b[i];
    }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t j = i + 1; j < n; ++j) b[i] -= A[i * n + j] * b[j];
    b[i] /= A[i * n + i];
  }
  return b;
}

// A block of one row, keys normal, the value a line of them with noise; asked with the next row's keys.
struct RandomRows {
  explicit RandomRows(int key_dim, double noise_) : K(static_cast<std::size_t>(key_dim)), noise(noise_), next(K) {
    for (double& x : next) x = random.normal();
  }
  Block row() {
    Block block = one_row(static_cast<int>(K), 1);
    block.rows = 1, block.has_pair[0] = 1, block.may_be_asked_again[0] = 0;
    block.keys = next;
    block.values[0] = noise * random.normal();
    for (std::size_t k = 0; k < K; ++k) block.values[0] += next[k] * std::cos(static_cast<double>(k));
    for (double& x : next) x = random.normal();
    block.queries = next;
    return block;
  }
  std::size_t K;
  double noise;
  SplitMix random{17};
  std::vector<double> next;
};

TEST(RegressRidge, TheRuleFollowsTheNumberOfKeys) {
  const auto kernel_of = [](const char* text, int keys) {
    const StreamLayer layer(text, keys, 1);
    return layer.kernel().substr(0, layer.kernel().find('/')) + (layer.stream().changes.empty() ? "" : ", said");
  };
  EXPECT_EQ(kernel_of("rls:decay=0.98,ridge=1", 16), "least_squares");
  EXPECT_EQ(kernel_of("rls:decay=0.98,ridge=1", 17), "givens, said");
  EXPECT_EQ(kernel_of("rls:decay=0.98,ridge=1", 300), "givens, said");
  EXPECT_EQ(kernel_of("rls:decay=0.8,ridge=1", 17), "least_squares");  // its keys would all have their turn at once
  EXPECT_EQ(kernel_of("rls:decay=0.8,ridge=1", 257), "givens, said");
  EXPECT_EQ(kernel_of("rls:ridge=1", 17), "givens");
  EXPECT_EQ(kernel_of("rls:decay=0.98,ridge=1,ridge_kind=fading", 17), "givens");
  // A recipe is what it says.
  EXPECT_EQ(kernel_of("decay(0.98) / linear / exact(ridge=1)", 256), "least_squares");
  EXPECT_EQ(kernel_of("decay(0.98) / linear / exact(ridge=1)", 257), "givens, said");
  EXPECT_EQ(StreamLayer("rls:decay=0.98,ridge=1", 17, 1).recipe(), "decay(0.98) / linear / exact(ridge=1)");
}

TEST(RegressRidge, TheRenewedOneIsWhatItsEquationsSay) {
  for (const auto& [K, decay] : {std::pair{24, 0.9}, {17, 0.98}, {50, 0.95}}) {
    const std::size_t n = static_cast<std::size_t>(K);
    const double ridge = 2;
    const std::size_t turns = static_cast<std::size_t>(std::ceil(K * (1 - decay)));
    const double rows = static_cast<double>(K) / static_cast<double>(turns);
    const double renewed = rows * (1 - decay) / (1 - std::pow(decay, rows));
    RandomRows data(K, 0.5);
    StreamLayer layer(fmt::format("rls:decay={},ridge={}", decay, ridge), K, 1);
    std::vector<double> H(n * n), F(n), part(n, 1.0);
    std::size_t turn = 0;
    double mean = 0, least = 10, most = 0;
    for (int t = 0; t < 4 * K; ++t) {
      const Block block = data.row();
      double answer = 0;
      layer.run(block, &answer);
      for (double& h : H) h *= decay;
      for (double& f : F) f *= decay;
      for (double& d : part) d *= decay;
      for (std::size_t i = 0; i < turns; ++i) part[turn++ % n] = renewed;
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) H[i * n + j] += block.keys[i] * block.keys[j];
        F[i] += block.keys[i] * block.values[0];
      }
      std::vector<double> A = H;
      for (std::size_t i = 0; i < n; ++i) A[i * n + i] += ridge * part[i];
      const std::vector<double> S = solved(A, F);
      double expected = 0;
      for (std::size_t i = 0; i < n; ++i) expected += S[i] * block.queries[i];
      ASSERT_NEAR(answer, expected, 1e-9) << K << " " << t;
      if (t < 2 * K) continue;
      for (const double d : part) {
        mean += d / (2.0 * K * K);
        least = std::min(least, d), most = std::max(most, d);
      }
    }
    EXPECT_NEAR(mean, 1, 0.06) << K;
    EXPECT_GT(least, 0.55) << K;
    EXPECT_LT(most, 1.6) << K;
  }
}

TEST(RegressRidge, TheRenewedOnePredictsAsOneThatStays) {
  // Many keys, few rows in memory and much noise: with a ridge that fades the fit follows the noise.
  const int K = 120;
  const auto error_of = [&](const std::string& text) {
    RandomRows data(K, 8);
    StreamLayer layer(text, K, 1);
    double answer = 0, sum = 0;
    for (int t = 0; t < 500; ++t) {
      const Block block = data.row();
      if (t > K) sum += (block.values[0] - answer) * (block.values[0] - answer);
      layer.run(block, &answer);
    }
    return sum;
  };
  const double stays = error_of("decay(0.98) / linear / exact(ridge=1)");
  EXPECT_NEAR(error_of("rls:decay=0.98,ridge=1") / stays, 1, 0.03);
  EXPECT_GT(error_of("decay(0.98) / linear / exact(ridge=1, fading)") / stays, 1.2);
}

TEST(RegressRidge, AModelGoesOnWithTheRuleItWasMadeWith) {
  for (const RidgeRule rule : {RidgeRule::stays, RidgeRule::fades, RidgeRule::renewed}) {
    const std::string text = "rls:decay=0.98,ridge=1";
    RandomRows data(20, 0.5);
    StreamLayer whole(text, 20, 1, rule);
    double answer = 0, other = 0;
    for (int t = 0; t < 30; ++t) whole.run(data.row(), &answer);
    Archive out;
    whole.archive(out);
    StreamLayer loaded(text, 20, 1);
    Archive in(out.file(), "model");
    loaded.archive(in);
    in.finish();
    EXPECT_EQ(loaded.recipe(), whole.recipe());
    EXPECT_EQ(loaded.kernel(), whole.kernel());
    for (int t = 0; t < 30; ++t) {
      const Block block = data.row();
      whole.run(block, &answer), loaded.run(block, &other);
      ASSERT_EQ(other, answer) << t;
    }
  }
}

TEST(RegressColumns, Dates) {
  const std::pair<const char*, double> dates[] = {{"1970-01-01", 0},
                                                  {"1970-01-02", 86400},
                                                  {" 2024-02-29 ", 1709164800},
                                                  {"2024/03/01", 1709251200},
                                                  {"2024-03", 1709251200},
                                                  {"2024-03-01T01:02:03.5", 1709251200 + 3723.5},
                                                  {"2024-03-01 01:02", 1709251200 + 3720},
                                                  {"2024-03-01T01:02Z", 1709251200 + 3720},
                                                  {"2024-03-01T01:02+01:30", 1709251200 - 1680},
                                                  {"1969-12-31T23:00", -3600},
                                                  {"1709251200", 1709251200},
                                                  {"1709251200000", 1709251200}};
  for (const auto& [text, expected] : dates) {
    double seconds = -1;
    EXPECT_TRUE(parse_date(text, seconds)) << text;
    EXPECT_EQ(seconds, expected) << text;
  }
  for (const char* text :
       {"", "monday", "2024-02-30", "2024-13-01", "2024-3-1", "2024-03-01T25:00", "2024-03-01x", "nan"}) {
    double seconds;
    EXPECT_FALSE(parse_date(text, seconds)) << text;
  }
}

TEST(RegressColumns, CategoriesHaveSlotsAndThenShareThem) {
  const auto encoder = category_encoder(3);
  std::vector<double> out(3);
  const auto slot = [&](const char* word) {
    EXPECT_TRUE(encoder->encode(word, out.data()));
    EXPECT_EQ(out[0] + out[1] + out[2], 1);
    return std::find(out.begin(), out.end(), 1.0) - out.begin();
  };
  EXPECT_EQ(slot("north"), 0);
  EXPECT_EQ(slot("south"), 1);
  EXPECT_EQ(slot(" north"), 0);
  EXPECT_EQ(slot("east"), 2);
  const auto shared = slot("west");
  EXPECT_EQ(slot("west"), shared);
  EXPECT_EQ(slot("south"), 1);
}

TEST(RegressArchive, DamageIsNoticed) {
  Archive out;
  std::vector<double> numbers = {1, 2, 3};
  std::string text = "three";
  out(numbers, text);
  const std::string file = out.file();
  const auto reads = [](const std::string& bytes) {
    Archive in(bytes, "m");
    std::vector<double> n;
    std::string t;
    in(n, t);
    in.finish();
    return n == std::vector<double>{1, 2, 3} && t == "three";
  };
  EXPECT_TRUE(reads(file));
  for (std::size_t i = 0; i < file.size(); ++i) {
    std::string damaged = file;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    EXPECT_THROW(reads(damaged), Error) << i;
    EXPECT_THROW(reads(file.substr(0, i)), Error) << i;
  }
}

// Lengths are claims: none is believed beyond the bytes that are there.
TEST(RegressArchive, ClaimsAreNoLargerThanTheFile) {
  for (const std::uint64_t length :
       {std::uint64_t{5}, std::uint64_t{33}, std::uint64_t{1} << 40, std::uint64_t{1} << 61, ~std::uint64_t{0}}) {
    Archive out;
    std::uint64_t claim = length;
    double number = 1;
    out(claim, number, number, number, number);
    const auto refuses = [&](auto item) {
      Archive in(out.file(), "m");
      EXPECT_THROW(in(item), Error) << length;
    };
    refuses(std::vector<double>());
    if (length > 32) refuses(std::string()), refuses(Buffer(64)), refuses(std::vector<std::string>());
  }
}

TEST(RegressComparisons, PValues) {
  // Equal but for noise: not significant; clearly worse: significant. By hand: d = 1, 2, 3 has t = 2 sqrt(3) sqrt(2/3)
  // with the deviation sqrt(2/3) and the correction (n - 1) / n, p = 0.0742 with 2 degrees of freedom.
  Comparisons three(2, 1);
  for (double d : {1.0, 2.0, 3.0}) three.add({d, 0});
  EXPECT_NEAR(three.p(0, 1), student_tail(2 * std::sqrt(3.0 / (2.0 / 3) * 2 / 3), 2), 1e-12);
  EXPECT_EQ(three.p(0, 1), three.p(1, 0));
  EXPECT_TRUE(std::isnan(three.p(0, 0)));
  SplitMix random(5);
  Comparisons many(3, 4);
  for (int t = 0; t < 2000; ++t) {
    const double a = random.normal(), b = random.normal();
    many.add({a * a, b * b, 1.3 * a * a + 0.2});
  }
  EXPECT_GT(many.p(0, 1), 0.01);
  EXPECT_LT(many.p(0, 2), 1e-6);
}

TEST(RegressMoments, ConstantColumnsHaveDeviationOne) {
  Moments moments(2);
  for (int i = 0; i < 1000; ++i) {
    const double row[] = {0.1, static_cast<double>(i % 2)};
    moments.add(row);
  }
  EXPECT_EQ(moments.deviation(0), 1);
  EXPECT_NEAR(moments.deviation(1), 0.5, 1e-9);
}

class RegressFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "ttr_test.XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

TEST_F(RegressFiles, AtomicFileAppearsWholeOrNotAtAll) {
  const std::string path = folder_ / "out.txt";
  {
    AtomicFile file(path, "--out");
    file.write("half");
    file.flush();
    EXPECT_FALSE(fs::exists(path));
  }
  EXPECT_EQ(files(), 0u);
  {
    AtomicFile file(path, "--out");
    file.write("XXXX and the rest");
    file.rewrite_start("0123");
    file.write("!");
    file.commit();
  }
  EXPECT_EQ(read("out.txt"), "0123 and the rest!");
  EXPECT_EQ(files(), 1u);
}

TEST_F(RegressFiles, AtomicFileThroughALinkKeepsTheLink) {
  write_file(folder_ / "real.txt", "--out", "old");
  fs::create_symlink("real.txt", folder_ / "link.txt");
  write_file(folder_ / "link.txt", "--out", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link.txt"));
  EXPECT_EQ(read("real.txt"), "new");
}

TEST_F(RegressFiles, AtomicFileErrors) {
  EXPECT_THROW(AtomicFile(folder_ / "no" / "where.txt", "--out"), Error);
  EXPECT_THROW(AtomicFile(folder_, "--out"), Error);
  EXPECT_THROW(AtomicFile("", "--out"), Error);
  write_file("/dev/null", "--out", "nothing");
}

TEST(RegressProgress, Line) {
  EXPECT_EQ(progress_line("work", 1, 4, 3, "5 rows", 60),
            "work  [######.....................]  25 %  0:09 left  5 rows");
  EXPECT_EQ(progress_line("work", 0, 0, 3, "5 rows", 60), "work  5 rows");
  EXPECT_LE(progress_line("a very long name of the work", 1, 2, 5, "with a very long note as well", 40).size(), 40u);
}

TEST(RegressProgress, SignalsBecomeAFlag) {
  {
    const InterruptGuard guard;
    EXPECT_EQ(interrupted(), 0);
    ::raise(SIGINT);
    EXPECT_EQ(interrupted(), SIGINT);
    char byte;
    EXPECT_EQ(::read(interrupt_descriptor(), &byte, 1), 1);
  }
  const InterruptGuard again;
  EXPECT_EQ(interrupted(), 0);
}

}  // namespace
}  // namespace ttr::cli
