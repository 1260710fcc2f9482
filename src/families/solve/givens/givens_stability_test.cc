// Long runs of the Givens kernel on float inputs, against normal equations in double.
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

/// Against normal equations in double with a ridge that fades or one that does not, every 97th token of [from, to).
double literal_error(const Stream& x, const Doubles& got, double fading, double constant, Size from, Size to) {
  const Size K = x.K, V = x.V;
  Doubles H(K * K, 0.0), F(K * V, 0.0), all, want;
  for (Size i = 0; i < K; ++i) H[i * K + i] = fading;
  for (Size t = 0; t < to; ++t) {
    const double a = std::exp(x.g[t]);
    for (Size i = 0; i < K; ++i) {
      for (Size j = 0; j < K; ++j) H[i * K + j] = a * H[i * K + j] + x.k[t * K + i] * x.k[t * K + j];
      for (Size j = 0; j < V; ++j) F[i * V + j] = a * F[i * V + j] + x.k[t * K + i] * x.v[t * V + j];
    }
    if (t < from || t % 97 != 0) continue;
    Doubles A = H;
    for (Size i = 0; i < K; ++i) A[i * K + i] += constant;
    const Doubles y = solved(A, Doubles(&x.q[t * K], &x.q[t * K] + K));
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
    for (const double ridge : {0.0, 1e-3}) {
      const Doubles o = Runner<float>(x, ridge).forward();
      EXPECT_LE(literal_error(x, o, ridge, 0, 50, x.T), 1e-7) << gamma << " " << ridge;
      for (const double y : o) ASSERT_TRUE(std::isfinite(y)) << gamma << " " << ridge;
    }
  }
}

// Keys (and queries) in 4 of 16 dimensions for 15,000 tokens, then everywhere again. The directions that fade are
// removed, before they fit rounding noise: the answers are those of a vanishing constant ridge. When they return, they
// are learned from nothing: the answer of least norm, at once.
TEST(GivensStability, WindUp) {
  for (const bool along : {false, true})
    for (const double ridge : {0.0, 1e-3}) {
      const Stream x = long_stream(0.99, 3000, 18000, 4, along);
      Runner<float> run(x, ridge);
      const Doubles o = run.forward();
      EXPECT_LE(literal_error(x, o, 0, 1e-7, 3000, 18000), 1e-5) << along;
      EXPECT_LE(literal_error(x, o, 0, 1e-7, 18100, x.T), 1e-5) << along;
      for (const double y : o) ASSERT_TRUE(std::isfinite(y));
      EXPECT_EQ(run.rank(), x.K);
    }
}

// Triangle and sums are double whatever the type: what counts as seen does not depend on it, and a float plan answers as
// a double plan does on the same numbers. A pair is still there behind gates that leave it 1e-18 of the weight of others.
TEST(GivensStability, FloatAnswersAsDoubleBehindStrongGates) {
  const auto compare = [](const Stream& x, double ridge, Size literal_until) {
    Runner<float> narrow(x, ridge);
    Runner<double> wide(x, ridge);
    const Doubles o = narrow.forward(), want = wide.forward();
    for (std::size_t i = 0; i < o.size(); ++i) EXPECT_EQ(o[i], double(static_cast<float>(want[i]))) << i;
    for (std::size_t i = 0; i < narrow.known.size(); ++i)
      EXPECT_EQ(narrow.known[i], static_cast<float>(wide.known[i])) << i;
    Stream part = x;
    part.T = literal_until;
    expect_literal(part, o, ridge, 2e-6, "literal");
    return wide.rank();
  };
  const double fading = static_cast<float>(0.01);
  for (const double ridge : {0.0, fading}) {
    Stream x(20, 4, 3, 1);
    x.g[15] = -24;
    EXPECT_EQ(compare(x, ridge, x.T), x.K);
    x.g[10] = -24, x.g[15] = -28;
    EXPECT_EQ(compare(x, ridge, 15), x.K);
    for (const unsigned seed : {1u, 2u, 3u}) {
      Stream y(40, 4, 3, seed);
      std::mt19937 rng(seed);
      constexpr float gates[] = {0, -0.1f, -2, -20};
      for (double& g : y.g) g = gates[rng() % 4];
      compare(y, ridge, 0);
    }
  }
}

// A gate of -70 leaves less than the rounding of what comes after it: such a direction is dropped, and counted.
TEST(GivensStability, DroppedDirectionsAreCounted) {
  for (const double gate : {-24.0, -70.0}) {
    Stream x(20, 4, 3, 1);
    x.g[15] = gate;
    Runner<float> run(x, 0);
    Lost lost;
    const std::vector<Sequence> list = {{0, 0, x.T}};
    GivensProblem<float> p = run.problem(list);
    p.lost = &lost;
    ASSERT_EQ(givens::forward(p, Form::best, ttr::simd<double>(""), run.scratch(false)), Status::ok);
    EXPECT_EQ(lost.directions, gate < -50 ? 3 : 0);
    EXPECT_EQ(lost.tokens, gate < -50 ? 1 : 0);
  }
}

// Silence: the answer does not depend on how much everything has faded, and nothing sinks into zero.
TEST(GivensStability, Silence) {
  for (const double ridge : {0.0, 1e-2}) {
    Stream x(5000, 8, 3, 6);
    for (Size t = 0; t < x.T; ++t) {
      x.g[t] = -0.5;
      for (Size c = 0; c < x.K; ++c) {
        if (t >= 12 && t < 4900) x.k[t * x.K + c] = 0;
        x.q[t * x.K + c] = x.q[c];
      }
    }
    Runner<float> run(x, ridge);
    const Doubles o = run.forward();
    const Doubles before(o.begin() + 11 * x.V, o.begin() + 12 * x.V);
    EXPECT_LE(distance(Doubles(o.begin() + 4899 * x.V, o.begin() + 4900 * x.V), before), 1e-4);
    Stream after = x;
    after.T = 100;
    for (Doubles* y : {&after.k, &after.q}) y->erase(y->begin(), y->begin() + 4900 * x.K);
    after.v.erase(after.v.begin(), after.v.begin() + 4900 * x.V);
    const Doubles again(o.end() - x.V, o.end());
    EXPECT_LE(distance(again, literal_answer(after, 99, 0)), 1e-4);
    // What is left of a ridge sinks below every number, and is no fresh start for all that.
    for (const double share : run.share) EXPECT_EQ(share > 0 && share<1e-200, ridge> 0);
  }
}

}  // namespace
