// Prediction intervals: the quantile, the noise, c and u against dense algebra, coverage on data that fit the model.
#include "interval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <tuple>

#include "conformal.h"
#include "random.h"
#include "regress_parts.h"
#include "switching_process.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
using Row = std::vector<double>;
using Matrix = std::vector<Row>;

Matrix identity(std::size_t n, double factor = 1) {
  Matrix m(n, Row(n, 0.0));
  for (std::size_t i = 0; i < n; ++i) m[i][i] = factor;
  return m;
}
double dot(const Row& a, const Row& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
Row times(const Matrix& m, const Row& x) {
  Row out;
  for (const Row& row : m) out.push_back(dot(row, x));
  return out;
}
Matrix transposed(const Matrix& m) {
  Matrix t(m[0].size(), Row(m.size()));
  for (std::size_t i = 0; i < m.size(); ++i)
    for (std::size_t j = 0; j < m[i].size(); ++j) t[j][i] = m[i][j];
  return t;
}
/// Gauss-Jordan with pivots.
Matrix inverse(Matrix m) {
  const std::size_t n = m.size();
  Matrix out = identity(n);
  for (std::size_t c = 0; c < n; ++c) {
    std::size_t p = c;
    for (std::size_t r = c; r < n; ++r)
      if (std::abs(m[r][c]) > std::abs(m[p][c])) p = r;
    std::swap(m[c], m[p]), std::swap(out[c], out[p]);
    const double pivot = m[c][c];
    for (std::size_t j = 0; j < n; ++j) m[c][j] /= pivot, out[c][j] /= pivot;
    for (std::size_t r = 0; r < n; ++r) {
      const double f = m[r][c];
      if (r == c || f == 0) continue;
      for (std::size_t j = 0; j < n; ++j) m[r][j] -= f * m[c][j], out[r][j] -= f * out[c][j];
    }
  }
  return out;
}
/// sum_i weight_i k_i k_i' over the keys before `end`, those of age >= `window` left out.
Matrix gram(const Matrix& keys, std::size_t end, double forgetting, std::size_t window) {
  const std::size_t n = keys[0].size();
  Matrix h(n, Row(n, 0.0));
  for (std::size_t i = window > 0 && end > window ? end - window : 0; i < end; ++i) {
    const double w = std::pow(forgetting, static_cast<double>(end - 1 - i));
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t b = 0; b < n; ++b) h[a][b] += w * keys[i][a] * keys[i][b];
  }
  return h;
}

TEST(IntervalQuantile, TablesAndClosedForms) {
  const std::vector<std::tuple<double, double, double>> table = {
      {0.9, 1, 6.313751514675043},    {0.95, 1, 12.706204736174705},   {0.95, 2, 4.302652729749464},
      {0.9, 3, 2.353363434801823},    {0.99, 5, 4.032142983555228},    {0.9, 10, 1.8124611228107335},
      {0.95, 30, 2.0422724563012373}, {0.99, 100, 2.6258905214380178}, {0.95, 1000, 1.9623390808264074},
      {0.95, inf, 1.959963984540054}, {0.9, inf, 1.6448536269514722},  {0.99, inf, 2.5758293035489004}};
  for (const auto& [level, degrees, t] : table)
    EXPECT_NEAR(student_quantile(level, degrees), t, 1e-11 * t) << level << " " << degrees;
  for (double level : {1e-6, 0.01, 0.3, 0.8, 0.999, 1 - 1e-9}) {
    EXPECT_NEAR(student_quantile(level, 1) * std::tan(std::numbers::pi / 2 * (1 - level)), 1, 1e-9) << level;
    EXPECT_NEAR(student_quantile(level, 2) / (level * std::sqrt(2 / ((1 - level) * (1 + level)))), 1, 1e-9) << level;
  }
}

TEST(IntervalQuantile, FallsTowardsTheNormalWithoutAStep) {
  for (double level : {0.1, 0.5, 0.9, 0.99, 0.9999}) {
    double before = inf;
    for (double degrees : {1.0, 1.5, 2.0, 3.7, 20.0, 300.0, 999.0, 1000.0, 1e5, 1e9}) {
      const double t = student_quantile(level, degrees);
      EXPECT_LT(t, before) << level << " " << degrees;
      before = t;
    }
    EXPECT_GE(before, student_quantile(level, inf));
    EXPECT_NEAR(student_quantile(level, 1000 - 1e-9), student_quantile(level, 1000), 1e-10);
  }
}

TEST(IntervalNoise, SumsWithForgettingAndWindow) {
  Random random(3);
  for (double forgetting : {1.0, 0.9})
    for (std::size_t window : {0u, 1u, 5u, 16u}) {
      NoiseEstimate noise(2, forgetting, static_cast<std::int64_t>(window));
      Matrix rows;  // share, square, square
      for (int n = 0; n < 60; ++n) {
        // A huge error must leave nothing behind once it is out of the window.
        const double factor = n == 20 ? 1e12 : 1;
        rows.push_back({n % 7 == 3 ? 0.0 : random.uniform(), factor * random.uniform(), factor * random.uniform()});
        noise.add(rows.back()[0], rows.back().data() + 1);
        double sum = 0, squares = 0, first = 0, second = 0;
        for (std::size_t i = window > 0 && rows.size() > window ? rows.size() - window : 0; i < rows.size(); ++i) {
          const double w = std::pow(forgetting, static_cast<double>(rows.size() - 1 - i)), u = rows[i][0];
          sum += w * u, squares += w * w * u, first += w * u * rows[i][1], second += w * u * rows[i][2];
        }
        if (sum == 0) {
          EXPECT_EQ(noise.degrees(), 0);
          continue;
        }
        EXPECT_NEAR(noise.degrees(), sum * sum / squares, 1e-12 * sum * sum / squares);
        EXPECT_NEAR(noise.variance(0), first / sum, 1e-12 * first / sum) << n << " window " << window;
        EXPECT_NEAR(noise.variance(1), second / sum, 1e-12 * second / sum);
      }
    }
}

struct Data {
  Matrix keys, values;  // row t + 1 asks with keys[t + 1]
};

Data random_stream(int rows, int K, int V, std::uint64_t seed) {
  Random random(seed);
  Data s;
  Matrix map(static_cast<std::size_t>(V), Row(static_cast<std::size_t>(K)));
  for (Row& row : map)
    for (double& m : row) m = random.normal();
  for (int t = 0; t < rows; ++t) {
    Row k(static_cast<std::size_t>(K));
    for (double& x : k) x = random.normal();
    Row v = times(map, k);
    for (double& y : v) y += 0.3 * random.normal();
    s.keys.push_back(k), s.values.push_back(v);
  }
  return s;
}

struct Answers {
  Matrix predictions;  // of row t from the rows before it, from t = 1
  std::vector<Uncertainty> uncertainties;
  double forgetting;
  std::int64_t window;
};

/// Row t is asked after the pairs 0 .. t - ahead.
Answers run(const std::string& text, const Data& s, int ahead = 1) {
  const int K = static_cast<int>(s.keys[0].size()), V = static_cast<int>(s.values[0].size());
  StreamLayer layer(text, K, V);
  const ErrorVariance& variance = layer.track_uncertainty(ahead);
  Answers out{{}, {}, variance.forgetting(), variance.window()};
  Block block;
  block.key_dim = K, block.value_dim = V, block.rows = s.keys.size() - static_cast<std::size_t>(ahead);
  block.has_pair.assign(block.rows, 1);
  for (std::size_t t = 0; t < block.rows; ++t) {
    const Row& query = s.keys[t + static_cast<std::size_t>(ahead)];
    block.keys.insert(block.keys.end(), s.keys[t].begin(), s.keys[t].end());
    block.values.insert(block.values.end(), s.values[t].begin(), s.values[t].end());
    block.queries.insert(block.queries.end(), query.begin(), query.end());
  }
  Row flat(block.rows * s.values[0].size());
  out.uncertainties.resize(block.rows);
  layer.run(block, flat.data(), out.uncertainties.data());
  for (std::size_t t = 0; t < block.rows; ++t)
    out.predictions.emplace_back(flat.begin() + static_cast<std::ptrdiff_t>(t) * V,
                                 flat.begin() + static_cast<std::ptrdiff_t>(t + 1) * V);
  return out;
}

void expect_close(const Uncertainty& got, double variance, double share, const std::string& what, std::size_t t) {
  EXPECT_NEAR(got.variance, variance, 1e-9 * variance) << what << " after " << t + 1 << " pairs";
  EXPECT_NEAR(got.share, share, 1e-9) << what << " after " << t + 1 << " pairs";
}

struct DenseCase {
  std::string layer;
  double ridge, forgetting;
  std::size_t window;
  bool fading;
};

TEST(IntervalVariance, LeastSquaresAgreesWithDenseAlgebra) {
  const std::vector<DenseCase> cases = {{"rls", 1e-3, 1, 0, false},
                                        {"rls:ridge=0", 0, 1, 0, false},
                                        {"rls:ridge=2,decay=0.9", 2, 0.9, 0, false},
                                        {"rls:ridge=0,decay=0.8", 0, 0.8, 0, false},
                                        {"mesanet:ridge=0.5", 0.5, 0.99, 0, false},
                                        {"window-rls:window=9", 0.01, 1, 9, false},
                                        {"window(7) * decay(0.9) / linear / exact(ridge=0.3)", 0.3, 0.9, 7, false},
                                        {"decay(0.95) / linear / exact(ridge=1.5, fading)", 1.5, 0.95, 0, true},
                                        {"equal / linear / exact(ridge=0.7, fading)", 0.7, 1, 0, true}};
  for (const DenseCase& c : cases)
    for (int ahead : {1, 3}) {
      const Data s = random_stream(40, 4, 1, 17);
      const Answers a = run(c.layer, s, ahead);
      EXPECT_EQ(a.forgetting, c.forgetting);
      EXPECT_EQ(a.window, static_cast<std::int64_t>(c.window));
      for (std::size_t t = 0; t < a.uncertainties.size(); ++t) {
        const Row& x = s.keys[t + static_cast<std::size_t>(ahead)];
        if (c.ridge == 0 && t + 1 < 4) {
          EXPECT_EQ(a.uncertainties[t].variance, inf) << c.layer;
          EXPECT_EQ(a.uncertainties[t].share, 0);
          continue;
        }
        const double later = std::pow(c.forgetting, ahead);
        const double ridge =
            c.fading ? c.ridge * later * std::pow(c.forgetting, static_cast<double>(t + 1)) : c.ridge;
        // A window that forgets has moved on by the pairs between, which may be any.
        const std::size_t window =
            c.window > 0 && c.forgetting < 1 && t + 1 + static_cast<std::size_t>(ahead) > c.window
                ? c.window - std::min(c.window - 1, static_cast<std::size_t>(ahead))
                : c.window;
        Matrix A = gram(s.keys, t + 1, c.forgetting, window);
        for (std::size_t i = 0; i < 4; ++i)
          for (std::size_t j = 0; j < 4; ++j) A[i][j] = later * A[i][j] + (i == j ? ridge : 0);
        const Row y = times(inverse(A), x);
        const double variance = 1 + dot(x, y);
        expect_close(a.uncertainties[t], variance, 1 - ridge * dot(y, y) / variance, c.layer, t);
      }
    }
}

TEST(IntervalVariance, KeyNorms) {
  Data s = random_stream(30, 3, 1, 5);
  const Answers unit = run("rls:keys=unit", s), rms = run("rls:keys=rms,ridge=3e-3", s);
  for (Row& k : s.keys) {
    const double length = std::sqrt(dot(k, k));
    for (double& x : k) x /= length;
  }
  const Answers plain = run("rls", s);
  for (std::size_t t = 0; t < plain.uncertainties.size(); ++t) {
    const Uncertainty& u = plain.uncertainties[t];
    expect_close(unit.uncertainties[t], u.variance, u.share, "unit", t);
    expect_close(rms.uncertainties[t], u.variance, u.share, "rms", t);  // H and the ridge are both 3 times as large
  }
}

TEST(IntervalVariance, SpanOfTheKeys) {
  // Keys in a plane: finite in it from the second pair on, infinite outside, and finite there once it was seen.
  Data s;
  Random random(9);
  for (int t = 0; t < 12; ++t) {
    const double a = random.normal(), b = random.normal();
    s.keys.push_back({a, b, a - 2 * b}), s.values.push_back({a + b});
  }
  s.keys[8] = {1, 1, 7};
  const Answers a = run("rls:ridge=0", s);
  for (std::size_t t = 0; t < a.uncertainties.size(); ++t) {
    const bool known = t >= 1 && t + 1 != 8;
    EXPECT_EQ(std::isfinite(a.uncertainties[t].variance), known) << t;
    EXPECT_EQ(a.uncertainties[t].share, known ? 1 : 0) << t;
  }
  // In coordinates of the plane, which are the first two numbers up to a change of basis.
  Matrix flat;
  for (const Row& k : s.keys) flat.push_back({k[0], k[1]});
  const Row y = times(inverse(gram(flat, 5, 1, 0)), flat[5]);
  EXPECT_NEAR(a.uncertainties[4].variance, 1 + dot(flat[5], y), 1e-9);
}

TEST(IntervalVariance, KalmanAgreesWithTheTextbook) {
  for (int ahead : {1, 2}) {
    const double process = 0.05, noise = 0.7;
    const Data s = random_stream(30, 3, 2, 23);
    const Answers a = run("kalman:process=0.05,noise=0.7", s, ahead);
    Matrix P = identity(3), M = identity(3);
    for (std::size_t t = 0; t < a.uncertainties.size(); ++t) {
      for (std::size_t i = 0; i < 3; ++i) P[i][i] += process;
      const Row Pk = times(P, s.keys[t]), kM = times(transposed(M), s.keys[t]);
      const double r = noise + dot(s.keys[t], Pk);
      for (std::size_t i = 0; i < 3; ++i)
        for (std::size_t j = 0; j < 3; ++j) P[i][j] -= Pk[i] * Pk[j] / r, M[i][j] -= Pk[i] * kM[j] / r;
      const Row& x = s.keys[t + static_cast<std::size_t>(ahead)];
      const Row left = times(transposed(M), x);
      const double variance = noise + dot(x, times(P, x)) + ahead * process * dot(x, x);
      expect_close(a.uncertainties[t], variance, 1 - dot(left, left) / variance, "kalman", t);
    }
  }
  // Without drift it is least squares with the noise as its ridge.
  const Data s = random_stream(30, 3, 1, 29);
  const Answers filter = run("kalman:process=0,noise=0.4", s), ridge = run("rls:ridge=0.4", s);
  for (std::size_t t = 0; t < ridge.uncertainties.size(); ++t)
    expect_close(filter.uncertainties[t], 0.4 * ridge.uncertainties[t].variance, ridge.uncertainties[t].share,
                 "kalman", t);
}

TEST(IntervalVariance, SharesAddUpToTheDegreesOfFreedom) {
  const Data s = random_stream(50, 4, 1, 31);
  for (double ridge : {1e-3, 5.0}) {
    const Answers a = run("rls:ridge=" + std::to_string(ridge), s);
    // The first row is asked of nobody: c = 1 + |x|^2 / ridge, all of it but the 1 from the prior.
    const double square = dot(s.keys[0], s.keys[0]) / ridge;
    double sum = 1 - square / (1 + square);
    for (std::size_t t = 0; t + 1 < s.keys.size(); ++t) sum += a.uncertainties[t].share;
    Matrix H = gram(s.keys, s.keys.size(), 1, 0), A = H;
    for (std::size_t i = 0; i < 4; ++i) A[i][i] += ridge;
    const Matrix P = inverse(A);
    double trace = 0;
    for (std::size_t i = 0; i < 4; ++i) trace += dot(P[i], transposed(H)[i]);
    EXPECT_NEAR(sum, static_cast<double>(s.keys.size()) - trace, 1e-8) << ridge;
  }
}

/// Feeds the answers of a layer to Intervals; halves of every row from the second on.
Coverage follow(const Answers& a, const Data& s, double level, Matrix* halves = nullptr) {
  const int V = static_cast<int>(s.values[0].size());
  Intervals intervals(level, V, a.forgetting, a.window);
  for (std::size_t t = 0; t < a.predictions.size(); ++t) {
    const Row deviation(static_cast<std::size_t>(V), std::sqrt(a.uncertainties[t].variance));
    Row half(static_cast<std::size_t>(V));
    intervals.widths(deviation.data(), half.data());
    intervals.add(a.predictions[t].data(), deviation.data(), a.uncertainties[t].share, half.data(),
                  s.values[t + 1].data());
    if (halves) halves->push_back(half);
  }
  return intervals.coverage();
}

TEST(IntervalWidth, WithoutARidgeItIsTheOneOfTheTextbooks) {
  // t(n - K) sqrt(RSS / (n - K)) sqrt(1 + x' (X'X)^{-1} x), each from all rows at once.
  const Data s = random_stream(40, 3, 2, 41);
  Matrix halves;
  follow(run("rls:ridge=0", s), s, 0.95, &halves);
  for (std::size_t n = 1; n < s.keys.size(); ++n) {
    if (n <= 3) {
      EXPECT_EQ(halves[n - 1], (Row{inf, inf})) << n;
      continue;
    }
    const Matrix P = inverse(gram(s.keys, n, 1, 0));
    const double c = 1 + dot(s.keys[n], times(P, s.keys[n]));
    for (std::size_t v = 0; v < 2; ++v) {
      Row F(3, 0.0);
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < 3; ++j) F[j] += s.keys[i][j] * s.values[i][v];
      const Row S = times(P, F);
      double rss = 0;
      for (std::size_t i = 0; i < n; ++i) rss += std::pow(s.values[i][v] - dot(S, s.keys[i]), 2);
      const double degrees = static_cast<double>(n) - 3;
      const double half = student_quantile(0.95, degrees) * std::sqrt(rss / degrees * c);
      EXPECT_NEAR(halves[n - 1][v], half, 1e-8 * half) << n;
    }
  }
}

void expect_coverage(const Coverage& coverage, double level, const std::string& what) {
  for (const Coverage::Tally& tally : coverage.values) {
    const double error = std::sqrt(level * (1 - level) / static_cast<double>(tally.finite));
    EXPECT_GT(tally.finite, 19900) << what;
    EXPECT_NEAR(tally.share(), level, 3 * error) << what;
  }
}

TEST(IntervalCoverage, GaussianLinearData) {
  const Data s = random_stream(20000, 5, 2, 2026);
  for (const char* layer : {"rls:ridge=0", "rls", "rls:ridge=1", "rls:decay=0.99", "window-rls:window=100"}) {
    const Answers a = run(layer, s);
    for (double level : {0.5, 0.9, 0.99}) expect_coverage(follow(a, s, level), level, layer);
  }
}

TEST(IntervalCoverage, KalmanWithTheTrueDrift) {
  // S_0 ~ N(0, s^2 I), S_t = S_{t-1} + N(0, s^2 process I), v = S'k + N(0, s^2): the scale s is not told to the filter.
  const double scale = 3, process = 0.01;
  Random random(7);
  Data s;
  Row S(4);
  for (double& x : S) x = scale * random.normal();
  for (int t = 0; t < 20000; ++t) {
    Row k(4);
    for (double& x : k) x = random.normal();
    for (double& x : S) x += scale * std::sqrt(process) * random.normal();
    s.keys.push_back(k), s.values.push_back({dot(S, k) + scale * random.normal()});
  }
  const Answers filter = run("kalman:process=0.01,noise=1", s);
  for (double level : {0.5, 0.9, 0.99}) expect_coverage(follow(filter, s, level), level, "kalman");
  // The same map taken for constant: its intervals hold as often, but are far wider.
  Matrix right, wrong;
  follow(filter, s, 0.9, &right), follow(run("rls", s), s, 0.9, &wrong);
  EXPECT_GT(wrong.back()[0], 2 * right.back()[0]);
}

TEST(IntervalCoverage, TheFirstRowsAreHonestToo) {
  // 2000 short streams: the exact interval holds its level at every row, from one degree of freedom on.
  std::vector<Coverage> at(12, Coverage(1));
  for (int n = 0; n < 2000; ++n) {
    const Data s = random_stream(13, 4, 1, 100 + static_cast<std::uint64_t>(n));
    Matrix halves;
    const Answers a = run("rls:ridge=0", s);
    follow(a, s, 0.8, &halves);
    for (std::size_t t = 0; t < at.size(); ++t)
      at[t].add(a.predictions[t].data(), halves[t].data(), s.values[t + 1].data());
  }
  for (std::size_t t = 0; t < at.size(); ++t) {
    const Coverage::Tally tally = at[t].all();
    EXPECT_EQ(tally.finite, t < 4 ? 0 : 2000) << t;
    if (t < 4) continue;
    EXPECT_NEAR(tally.share(), 0.8, 3 * std::sqrt(0.16 / 2000)) << t;
  }
}

TEST(IntervalCoverage, RowsWithoutAreCountedApart) {
  Coverage coverage(2);
  const double p[] = {0, 0}, half[] = {1, inf}, actual[] = {0.5, 0.5}, far[] = {2, 0.5};
  coverage.add(p, half, actual), coverage.add(p, half, far);
  const double lost[] = {std::nan(""), 0};
  coverage.add(lost, half, actual);
  EXPECT_EQ(coverage.values[0].finite, 2);
  EXPECT_EQ(coverage.values[0].inside, 1);
  EXPECT_EQ(coverage.values[0].none, 1);
  EXPECT_EQ(coverage.values[1].finite, 0);
  EXPECT_EQ(coverage.values[1].none, 3);
  EXPECT_TRUE(std::isnan(coverage.values[1].share()));
  EXPECT_EQ(coverage.all().share(), 0.5);
  EXPECT_EQ(coverage.all().mean_width(), 2);
  EXPECT_EQ(coverage_text(0.25, 0.5, 0), "-");
  EXPECT_EQ(coverage_text(0.25, 0.5, 100), "0.2500 \u00b1 0.0500");
}

TEST(IntervalLayers, OthersAreRefusedWithTheReason) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"nlms", "its kernel delta"},
      {"gated-deltanet", "its kernel delta"},
      {"linear-attention", "its kernel decay"},
      {"softmax-attention", "its kernel attention"},
      {"kernel-regression", "its kernel kernel_regression"},
      {"mesanet:steps=5", "its kernel least_squares"},
      {"equal / linear(elu1) / exact(ridge=0.1)", "gives no variance of its answers"},
      {"equal / linear / exact(ridge=0.1) | normalise(unit)", "gives no variance of its answers"},
      {"equal / linear / exact(ridge=0.1, frobenius)", "gives no variance of its answers"},
      {"window(8) / linear / exact", "its kernel oracle"}};
  for (const auto& [layer, reason] : cases) {
    StreamLayer made(layer, 3, 2);
    try {
      made.track_uncertainty(1);
      ADD_FAILURE() << layer << " was accepted";
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("'" + layer + "' has none: "), message.npos) << message;
      EXPECT_NE(message.find(reason), message.npos) << message;
      for (const char* name : {"rls", "window-rls", "mesanet", "kalman"})
        EXPECT_NE(message.find(name), message.npos) << message;
      EXPECT_EQ(error.where(), "--layer");
    }
  }
}

TEST(Conformal, CoversWhateverTheErrorsDo) {
  // Errors whose size jumps by a factor of a hundred up and down: the share outside stays near 1 - level all the same.
  for (const double level : {0.5, 0.9}) {
    SplitMix random(5);
    Conformal conformal(level, 1);
    const int rows = 20000;
    for (int t = 0; t < rows; ++t) {
      const double size = t / 2500 % 2 == 0 ? 1 : 100, prediction = 3, actual = prediction + size * random.normal();
      double half = 0;
      conformal.widths(&half);
      conformal.add(&prediction, &half, &actual);
    }
    const Coverage::Tally tally = conformal.coverage().all();
    EXPECT_NEAR(tally.share(), level, (1 + 0.02) / (0.02 * rows) + 1e-12) << level;  // the bound of the paper
    EXPECT_LE(tally.none, 10);
    EXPECT_GT(tally.mean_pinball(), 0);
  }
}

TEST(Conformal, WidthOfSteadyErrors) {
  // The 0.9 quantile of |normal| is 1.645.
  SplitMix random(6);
  Conformal conformal(0.9, 1);
  double sum = 0;
  for (int t = 0; t < 20000; ++t) {
    const double prediction = 0, actual = random.normal();
    double half = 0;
    conformal.widths(&half);
    if (t >= 1000) sum += half;
    conformal.add(&prediction, &half, &actual);
  }
  EXPECT_NEAR(sum / 19000, 1.645, 0.1);
}

}  // namespace
}  // namespace ttr::cli
