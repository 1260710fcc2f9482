// The outputs `variance` and `known` of plans that solve: their numbers, their gradients, and that they may be left out.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ttr/ttr.h"

namespace {

using namespace ttr;
using Doubles = std::vector<double>;

constexpr int T = 9, H = 2, G = 1, K = 3, V = 2;

struct Example {
  Plan plan;
  Doubles q, k, v, o, variance, known;
  std::vector<double> state, work;

  explicit Example(const std::string& layer)
      : plan(ttr::plan(layer, {1, H, G, K, V}, {.type = Type::f64})),
        o(T * H * V, -7.0),
        variance(T * H, -7.0),
        known(T * H, -7.0) {
    std::mt19937 rng(4);
    std::normal_distribution<double> normal;
    for (Doubles* x : {&q, &k}) x->resize(T * G * K);
    v.resize(T * H * V);
    for (Doubles* x : {&q, &k, &v})
      for (double& y : *x) y = normal(rng);
    const Footprint bytes = plan.footprint(T);
    state.resize(bytes.state / 8 + 1), work.resize(std::max(bytes.workspace, bytes.backward) / 8 + 1);
  }
  State start() {
    const State s{state.data(), state.size() * 8};
    EXPECT_EQ(plan.reset(s), Status::ok);
    return s;
  }
  Workspace workspace() { return {work.data(), work.size() * 8}; }
  Inputs inputs() const {
    Inputs in;
    in["q"] = view(q.data(), 1, T, G, K), in["k"] = view(k.data(), 1, T, G, K), in["v"] = view(v.data(), 1, T, H, V);
    return in;
  }
  bool has(const std::string& name) const {
    for (const InputInfo& info : plan.outputs())
      if (info.name == name) return true;
    return false;
  }
  void forward(bool answers = true, bool variances = true) {
    Outputs out;
    if (answers) out["o"] = view(o.data(), 1, T, H, V);
    if (variances) out["variance"] = view(variance.data(), 1, T, H);
    if (variances && has("known")) out["known"] = view(known.data(), 1, T, H);
    ASSERT_EQ(plan.forward(inputs(), start(), out, workspace()), Status::ok);
  }
};

const char* const layers[] = {"rls:ridge=0.5",
                              "rls:ridge=0.5,decay=0.9",
                              "rls:ridge=0.5,decay=0.9,ridge_kind=fading",
                              "rls",
                              "window-rls:window=4,ridge=0.5",
                              "kalman:process=0.1,noise=0.5",
                              "decay(0.9) / linear / exact(ridge=0.5)",
                              "equal / linear / kalman(process=0.1, noise=0.5)"};

TEST(Uncertainty, OutputsMayBeLeftOut) {
  for (const char* layer : layers) {
    Example all(layer), answers(layer), variances(layer), nothing(layer);
    ASSERT_TRUE(all.has("variance")) << layer;
    all.forward(), answers.forward(true, false), variances.forward(false, true), nothing.forward(false, false);
    EXPECT_EQ(all.o, answers.o) << layer;
    EXPECT_EQ(all.variance, variances.variance) << layer;
    EXPECT_EQ(all.known, variances.known) << layer;
    for (const Example* other : {&answers, &variances, &nothing})
      EXPECT_EQ(0, std::memcmp(all.state.data(), other->state.data(), all.state.size() * 8)) << layer;
    EXPECT_EQ(variances.o, Doubles(T * H * V, -7.0)) << layer;
    EXPECT_EQ(answers.variance, Doubles(T * H, -7.0)) << layer;
  }
}

/// x with A x = b, A symmetric positive.
Doubles solved(std::vector<Doubles> A, Doubles b) {
  for (int i = 0; i < K; ++i)
    for (int r = 0; r < K; ++r) {
      if (r == i) continue;
      const double f = A[r][i] / A[i][i];
      for (int c = 0; c < K; ++c) A[r][c] -= f * A[i][c];
      b[r] -= f * b[i];
    }
  for (int i = 0; i < K; ++i) b[i] /= A[i][i];
  return b;
}

TEST(Uncertainty, OfRidgeRegression) {
  struct Case {
    const char* layer;
    double decay;
    int window;
    bool fading;
  };
  for (const Case& c : {Case{"rls:ridge=0.5", 1, T, false}, Case{"rls:ridge=0.5,decay=0.9", 0.9, T, false},
                        Case{"rls:ridge=0.5,decay=0.9,ridge_kind=fading", 0.9, T, true},
                        Case{"window-rls:window=4,ridge=0.5", 1, 4, false}}) {
    Example run(c.layer);
    run.forward();
    for (int t = 0; t < T; ++t) {
      const double ridge = 0.5 * (c.fading ? std::pow(c.decay, t + 1) : 1);
      std::vector<Doubles> A(K, Doubles(K, 0.0));
      const Doubles q(run.q.begin() + t * K, run.q.begin() + (t + 1) * K);
      for (int a = 0; a < K; ++a) {
        for (int i = std::max(0, t + 1 - c.window); i <= t; ++i)
          for (int b = 0; b < K; ++b) A[a][b] += std::pow(c.decay, t - i) * run.k[i * K + a] * run.k[i * K + b];
        A[a][a] += ridge;
      }
      const Doubles x = solved(A, q);
      double variance = 1, prior = 0;
      for (int a = 0; a < K; ++a) variance += q[a] * x[a], prior += ridge * x[a] * x[a];
      for (int h = 0; h < H; ++h) {
        EXPECT_NEAR(run.variance[t * H + h], variance, 1e-11 * variance) << c.layer << " " << t;
        EXPECT_NEAR(run.known[t * H + h], 1 - prior / variance, 1e-11) << c.layer << " " << t;
      }
    }
  }
}

TEST(Uncertainty, WithoutARidgeTheSpanOfTheKeysIsKnown) {
  Example run("rls");
  run.forward();
  for (int t = 0; t < T; ++t)
    for (int h = 0; h < H; ++h) EXPECT_EQ(run.known[t * H + h], t + 1 < K ? 0 : 1) << t;
}

TEST(Uncertainty, GradientsAreDifferences) {
  for (const char* layer : layers) {
    Example run(layer);
    Doubles weights(T * H), dq(run.q.size()), dk(run.k.size()), dv(run.v.size());
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = std::cos(2.0 * double(i));
    // Without a ridge the variance jumps while the keys do not span everything.
    for (int i = 0; std::string(layer) == "rls" && i < K * H; ++i) weights[static_cast<std::size_t>(i)] = 0;
    Inputs d;
    Outputs to;
    d["variance"] = view<const double>(weights.data(), 1, T, H);
    to["q"] = view(dq.data(), 1, T, G, K), to["k"] = view(dk.data(), 1, T, G, K),
    to["v"] = view(dv.data(), 1, T, H, V);
    ASSERT_EQ(run.plan.backward(run.inputs(), run.start(), d, {}, to, {}, run.workspace()), Status::ok) << layer;
    const auto loss = [&] {
      run.forward(false, true);
      double sum = 0;
      for (std::size_t i = 0; i < weights.size(); ++i) sum += weights[i] * run.variance[i];
      return sum;
    };
    for (const auto& [x, gradient] : {std::pair{&run.q, &dq}, {&run.k, &dk}, {&run.v, &dv}})
      for (std::size_t i = 0; i < x->size(); ++i) {
        const double keep = (*x)[i];
        (*x)[i] = keep + 1e-5;
        const double up = loss();
        (*x)[i] = keep - 1e-5;
        const double slope = (up - loss()) / 2e-5;
        (*x)[i] = keep;
        EXPECT_NEAR((*gradient)[i], slope, 1e-6 * (1 + std::abs(slope))) << layer << " " << i;
      }
  }
}

TEST(Uncertainty, WhatIsKnownHasNoGradient) {
  Example run("rls:ridge=0.5");
  Doubles weights(T * H, 1.0), dq(run.q.size());
  Inputs d;
  Outputs to;
  d["known"] = view<const double>(weights.data(), 1, T, H);
  to["q"] = view(dq.data(), 1, T, G, K);
  const Status status = run.plan.backward(run.inputs(), run.start(), d, {}, to, {}, run.workspace());
  EXPECT_EQ(status, Status::not_supported);
  EXPECT_NE(to_string(status).find("the gradient of this output"), std::string_view::npos);
}

TEST(Uncertainty, NotWhereTheAnswerIsNoLeastSquares) {
  for (const char* layer : {"mesanet:steps=5,ridge=0.5,decay=0.9", "gated-kalmanet", "nlms",
                            "equal / linear / exact(ridge=0.1) | normalise(unit)",
                            "equal / linear / exact(ridge=0.1, frobenius)", "window(8) / linear / exact"})
    EXPECT_FALSE(Example(layer).has("variance")) << layer;
}

TEST(Uncertainty, Forgetting) {
  const auto of = [](const char* layer) { return ttr::plan(layer, {1, H, G, K, V}).forgetting(); };
  EXPECT_EQ(of("rls")->factor, 1);
  EXPECT_EQ(of("rls:decay=0.9,ridge=1")->factor, 0.9);
  EXPECT_EQ(of("rls")->window, 0);
  EXPECT_EQ(of("window-rls:window=7")->window, 7);
  EXPECT_FALSE(of("mesanet"));
  EXPECT_FALSE(of("rls:decay=input,ridge=1"));
  EXPECT_FALSE(of("softmax-attention"));
}

}  // namespace
