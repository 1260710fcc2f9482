// Long runs of the Givens kernel in float, against normal equations in double.
#include <gtest/gtest.h>

#include "families/solve/givens/streams.h"

namespace {

using namespace ttr_families_test;

constexpr Size long_time = 20000, long_keys = 16;

/// v = W'k + noise; between the borders keys and queries lie in `dims` dimensions (0: everywhere), along coordinates
/// or not.
Stream long_stream(double gamma, Size from, Size to, Size dims, bool along) {
  Stream x(long_time, long_keys, 3, 21);
  for (Size t = from; t < to && dims > 0; ++t)
    for (Doubles* row : {&x.k, &x.q}) {
      Doubles y(x.K, 0.0);
      for (Size i = 0; i < dims; ++i)
        for (Size c = 0; c < x.K; ++c)
          y[c] += along ? double(i == c) * (*row)[t * x.K + c]
                        : (*row)[t * x.K + i] * std::sin(double((c + 1) * (c + 3) * (i + 1)));
      for (Size c = 0; c < x.K; ++c) (*row)[t * x.K + c] = static_cast<float>(y[c] / (along ? 1.0 : 2.0));
    }
  for (Size t = 0; t < x.T; ++t) {
    x.g[t] = static_cast<float>(std::log(gamma));
    for (Size j = 0; j < x.V; ++j) {
      double sum = 0.1 * x.v[t * x.V + j];
      for (Size c = 0; c < x.K; ++c) sum += std::cos(double(c * x.V + j)) * x.k[t * x.K + c];
      x.v[t * x.V + j] = static_cast<float>(sum);
    }
  }
  return x;
}

/// Against normal equations in double, with the ridge the shares define, every 97th token of [from, to).
double literal_error(const Stream& x, const Doubles& got, RidgeKind kind, double ridge, Size from, Size to) {
  const Size K = x.K, V = x.V;
  Doubles H(K * K, 0.0), F(K * V, 0.0), share(K, 0.0), added, all, want;
  for (Size t = 0; t < to; ++t) {
    const double a = std::exp(x.g[t]);
    literal_shares(kind, a, share, added);
    for (Size i = 0; i < K; ++i) {
      for (Size j = 0; j < K; ++j) H[i * K + j] = a * H[i * K + j] + x.k[t * K + i] * x.k[t * K + j];
      for (Size j = 0; j < V; ++j) F[i * V + j] = a * F[i * V + j] + x.k[t * K + i] * x.v[t * V + j];
      H[i * K + i] += ridge * added[i];
    }
    if (t < from || t % 97 != 0) continue;
    const Doubles y = solved(H, Doubles(&x.q[t * K], &x.q[t * K] + K));
    for (Size j = 0; j < V; ++j) {
      double sum = 0;
      for (Size i = 0; i < K; ++i) sum += F[i * V + j] * y[i];
      want.push_back(sum), all.push_back(got[t * V + j]);
    }
  }
  double error = 0, size = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!std::isfinite(all[i])) return std::numeric_limits<double>::infinity();
    error = std::max(error, std::abs(all[i] - want[i])), size = std::max(size, std::abs(want[i]));
  }
  return error / size;
}

TEST(GivensStability, WellConditioned) {
  for (const double gamma : {0.99, 1.0}) {
    const Stream x = long_stream(gamma, 0, 0, 0, false);
    for (const RidgeKind kind : {RidgeKind::none, RidgeKind::fading, RidgeKind::constant}) {
      const bool basis = kind == RidgeKind::none;
      const std::string what = std::to_string(gamma) + " " + std::to_string(static_cast<int>(kind));
      const Doubles narrow = Runner<float, float>(x, kind, 1e-3, basis).forward();
      EXPECT_LE(literal_error(x, narrow, kind, 1e-3, 50, x.T), gamma < 1 ? 3e-6 : 1e-5) << what;
      const Doubles mixed = Runner<float, double>(x, kind, 1e-3, basis).forward();
      EXPECT_LE(literal_error(x, mixed, kind, 1e-3, 50, x.T), 1e-7) << what;
      for (const double y : narrow) ASSERT_TRUE(std::isfinite(y)) << what;
    }
  }
}

// Keys (and queries) in 4 of 16 dimensions for 15,000 tokens, then everywhere again.
TEST(GivensStability, WindUpWithAConstantRidge) {
  for (const bool along : {false, true}) {
    const Stream x = long_stream(0.99, 3000, 18000, 4, along);
    const Doubles narrow = Runner<float, float>(x, RidgeKind::constant, 1e-3, false).forward();
    EXPECT_LE(literal_error(x, narrow, RidgeKind::constant, 1e-3, 3000, 18000), 1e-5);
    EXPECT_LE(literal_error(x, narrow, RidgeKind::constant, 1e-3, 18000, x.T), 1e-5);
    const Doubles mixed = Runner<float, double>(x, RidgeKind::constant, 1e-3, false).forward();
    EXPECT_LE(literal_error(x, mixed, RidgeKind::constant, 1e-3, 50, x.T), 1e-7);
    for (const double y : narrow) ASSERT_TRUE(std::isfinite(y));
  }
}

// Without a ridge the directions that fade are removed, before they fit rounding noise: the answers are those of a
// vanishing constant ridge. When they return, they are learned from nothing: the answer of least norm, at once.
TEST(GivensStability, WindUpWithABasis) {
  for (const bool along : {false, true})
    for (const RidgeKind kind : {RidgeKind::none, RidgeKind::fading}) {
      const Stream x = long_stream(0.99, 3000, 18000, 4, along);
      Runner<float, float> narrow(x, kind, 1e-3, true);
      Runner<float, double> mixed(x, kind, 1e-3, true);
      for (const Doubles& o : {narrow.forward(), mixed.forward()}) {
        EXPECT_LE(literal_error(x, o, RidgeKind::constant, 1e-7, 3000, 18000), 1e-5) << along;
        EXPECT_LE(literal_error(x, o, RidgeKind::constant, 1e-7, 18100, x.T), 1e-5) << along;
        for (const double y : o) ASSERT_TRUE(std::isfinite(y));
      }
      EXPECT_EQ(narrow.rank(), x.K);
      EXPECT_EQ(mixed.rank(), x.K);
    }
}

// Neither: what has faded is kept as it was (along coordinates) or fits rounding noise, but nothing overflows, and
// once the keys return it is forgotten.
TEST(GivensStability, WindUpOfAFadingRidge) {
  for (const double gamma : {0.9, 0.99})
    for (const bool along : {false, true}) {
      const Stream x = long_stream(gamma, 1000, 18000, 4, along);
      const Doubles o = Runner<float, float>(x, RidgeKind::fading, 1e-3, false).forward();
      for (const double y : o) ASSERT_TRUE(std::isfinite(y));
      EXPECT_LE(literal_error(x, o, RidgeKind::constant, 1e-7, 18200, x.T), 1e-5);
      if (along) {
        EXPECT_LE(literal_error(x, o, RidgeKind::constant, 1e-7, 1100, 18000), 1e-5);
      }
    }
}

// Silence: the answer does not depend on how much everything has faded, and nothing sinks into zero.
TEST(GivensStability, Silence) {
  for (const RidgeKind kind : {RidgeKind::none, RidgeKind::fading})
    for (const bool basis : {false, true}) {
      if (kind == RidgeKind::none && !basis) continue;
      Stream x(5000, 8, 3, 6);
      for (Size t = 0; t < x.T; ++t) {
        x.g[t] = -0.5;
        for (Size c = 0; c < x.K; ++c) {
          if (t >= 12 && t < 4900) x.k[t * x.K + c] = 0;
          x.q[t * x.K + c] = x.q[c];
        }
      }
      const Doubles o = Runner<float, float>(x, kind, 1e-2, basis).forward();
      const Doubles before(o.begin() + 11 * x.V, o.begin() + 12 * x.V);
      EXPECT_LE(distance(Doubles(o.begin() + 4899 * x.V, o.begin() + 4900 * x.V), before), 1e-4);
      Stream after = x;
      after.T = 100;
      for (Doubles* y : {&after.k, &after.q}) y->erase(y->begin(), y->begin() + 4900 * x.K);
      after.v.erase(after.v.begin(), after.v.begin() + 4900 * x.V);
      const Doubles again(o.end() - x.V, o.end());
      EXPECT_LE(distance(again, literal_answer(after, 99, 0)), 1e-4);
    }
}

}  // namespace
