// Identities of the papers, as named tests: two layers that must be the same function, run as plans.
#include <gtest/gtest.h>

#include <algorithm>

#include "identities_harness.h"

namespace ttr {
namespace {

using namespace ttr_identities;

// Test-time regression, Eq. 41: GDN(a, eta, v) = leaky LMS(beta = a eta, lambda = (1-a)/(a eta), v/a).
TEST(Identities, GatedDeltaNetIsLeakyLms) {
  NamedNumbers gdn = pairs(), lms = pairs();
  normalise(gdn["k"], K), normalise(lms["k"], K);
  gdn["g"] = uniforms(T * H, 4, -0.5, -0.01), gdn["beta"] = uniforms(T * H, 5, 0.1, 0.9);
  lms["beta"].resize(T * H), lms["lam"].resize(T * H);
  for (std::size_t i = 0; i < T * H; ++i) {
    const double a = std::exp(gdn["g"][i]), eta = gdn["beta"][i];
    lms["beta"][i] = a * eta;
    lms["lam"][i] = (1 - a) / (a * eta);
    for (std::size_t j = 0; j < V; ++j) lms["v"][i * V + j] = gdn["v"][i * V + j] / a;
  }
  EXPECT_LT(relative_error(run("gated-deltanet", gdn), run("leaky-lms", lms)), 1e-12);
}

TEST(Identities, NlmsReproducesTheNewestPair) {
  NamedNumbers in = pairs();
  in["q"] = in["k"];  // asked for what was just stored
  EXPECT_LT(relative_error(run("nlms:mu=1", in), in["v"]), 1e-12);
}

TEST(Identities, LonghornTendsToNlms) {
  const NamedNumbers in = pairs();
  EXPECT_LT(relative_error(run("longhorn:delta=1e12", in), run("nlms:mu=1", in)), 1e-10);
}

TEST(Identities, DeltaNetWithOrthonormalKeysIsLinearAttention) {
  NamedNumbers in;
  in["q"] = normals(K * H * K, 1), in["v"] = normals(K * H * V, 3), in["k"].assign(K * H * K, 0.0);
  for (int t = 0; t < K; ++t)
    for (int h = 0; h < H; ++h) in["k"][static_cast<std::size_t>((t * H + h) * K + (t + h) % K)] = 1;
  EXPECT_LT(
      relative_error(run("deltanet:beta=1", in, Form::best, 0, K), run("linear-attention", in, Form::best, 0, K)),
      1e-13);
}

TEST(Identities, DeltaProductOfOneIsDeltaNet) {
  NamedNumbers in = pairs();
  normalise(in["k"], K);
  in["beta"] = uniforms(T * H, 5, 0.1, 1.9), in["g"] = uniforms(T * H, 4, -0.5, 0);
  EXPECT_LT(relative_error(run("deltaproduct:n=1", in), run("deltanet", in)), 1e-13);
  EXPECT_LT(relative_error(run("gated-deltaproduct:n=1", in), run("gated-deltanet", in)), 1e-13);
}

TEST(Identities, ChunkOfOneIsRecurrentAndChunkOfAllIsParallel) {
  NamedNumbers in = pairs();
  normalise(in["k"], K);
  in["beta"] = uniforms(T * H, 5, 0.1, 0.9), in["g"] = uniforms(T * H, 4, -0.5, 0);
  in["gk"] = uniforms(T * H * K, 6, -0.5, 0);
  for (const char* name : {"gated-deltanet", "linear-attention", "gla"}) {
    EXPECT_LT(relative_error(run(name, in, Form::chunk, 1), run(name, in, Form::recurrent)), 1e-13) << name;
    EXPECT_EQ(run(name, in, Form::chunk, T), run(name, in, Form::parallel)) << name;
  }
}

TEST(Identities, ExactFlowOfShortTimeIsDeltaNet) {
  NamedNumbers in = pairs();
  in["beta"].assign(T * H, 1e-7);
  EXPECT_LT(relative_error(run("efla", in), run("deltanet", in)), 1e-5);
}

TEST(Identities, KdaWithOneGateForAllChannelsIsGatedDeltaNet) {
  NamedNumbers gdn = pairs();
  normalise(gdn["k"], K);
  gdn["beta"] = uniforms(T * H, 5, 0.1, 0.9), gdn["g"] = uniforms(T * H, 4, -0.5, 0);
  NamedNumbers kda = gdn;
  kda["g"].clear();
  for (double g : gdn["g"]) kda["g"].insert(kda["g"].end(), K, g);
  EXPECT_LT(relative_error(run("kda", kda), run("gated-deltanet", gdn)), 1e-12);
}

TEST(Identities, GdnTwoWithEqualGatesIsKda) {
  NamedNumbers in = pairs();
  normalise(in["k"], K);
  in["g"] = uniforms(T * H * K, 4, -0.5, 0), in["beta"] = uniforms(T * H, 5, 0.1, 0.9);
  NamedNumbers split = in;
  for (double beta : in["beta"])
    split["b"].insert(split["b"].end(), K, beta), split["w"].insert(split["w"].end(), V, beta);
  EXPECT_LT(relative_error(run("gdn-2", split), run("kda", in)), 1e-12);
}

TEST(Identities, DplrWithTiedKeysIsGatedDeltaNet) {
  NamedNumbers gdn = pairs();
  normalise(gdn["k"], K);
  gdn["beta"] = uniforms(T * H, 5, 0.1, 0.9), gdn["g"] = uniforms(T * H, 4, -0.5, 0);
  NamedNumbers dplr = gdn;  // a = e^g k, b = -beta k, v -> beta v
  dplr["a"] = dplr["b"] = gdn["k"];
  for (std::size_t i = 0; i < T * H; ++i) {
    dplr["gk"].insert(dplr["gk"].end(), K, gdn["g"][i]);
    for (std::size_t j = 0; j < K; ++j)
      dplr["a"][i * K + j] *= std::exp(gdn["g"][i]), dplr["b"][i * K + j] *= -gdn["beta"][i];
    for (std::size_t j = 0; j < V; ++j) dplr["v"][i * V + j] *= gdn["beta"][i];
  }
  EXPECT_LT(relative_error(run("dplr", dplr), run("gated-deltanet", gdn)), 1e-12);
}

TEST(Identities, AffineProjectionOfOnePairIsNlms) {
  const NamedNumbers in = pairs();
  EXPECT_LT(relative_error(run("affine-projection:p=1,mu=0.7,eps=0.1", in), run("nlms:mu=0.7,eps=0.1", in)), 1e-12);
}

TEST(Identities, LeastSquaresWithOrthonormalKeysIsLinearAttention) {
  NamedNumbers in;
  in["q"] = normals(K * H * K, 1), in["v"] = normals(K * H * V, 3), in["k"].assign(K * H * K, 0.0);
  for (int t = 0; t < K; ++t)
    for (int h = 0; h < H; ++h) in["k"][static_cast<std::size_t>((t * H + h) * K + (t + h) % K)] = 1;
  EXPECT_LT(relative_error(run("rls", in, Form::best, 0, K), run("linear-attention", in, Form::best, 0, K)), 1e-12);
}

TEST(Identities, ManyGradientStepsTendToLeastSquares) {
  const NamedNumbers in = pairs();
  EXPECT_LT(relative_error(run("equal / linear / gd(20000, step=auto)", in, Form::recurrent, 0, 4),
                           run("equal / linear / exact", in, Form::recurrent, 0, 4)),
            1e-6);
}

// Test-time regression, Eq. 15: while there are no more pairs than dimensions the weights do not matter.
TEST(Identities, WeightedLeastSquaresIsUnweightedWhileUnderdetermined) {
  NamedNumbers in = pairs();
  for (auto& [name, numbers] : in) numbers.resize(numbers.size() / T * K);
  const Numbers plain = run("rls", in, Form::best, 0, K);
  EXPECT_LT(relative_error(run("rls:decay=0.8", in, Form::best, 0, K), plain), 1e-9);
  in["beta"] = uniforms(K * H, 9, 0.2, 2.0);
  EXPECT_LT(relative_error(run("rls:importance=input", in, Form::best, 0, K), plain), 1e-9);
}

TEST(Identities, KernelRegressionWithALinearKernelIsRidgeRegression) {
  const NamedNumbers in = pairs();
  EXPECT_LT(relative_error(run("kernel-regression:kernel=linear,ridge=0.3", in), run("rls:ridge=0.3", in)), 1e-10);
}

TEST(Identities, LocalLinearAttentionOfALargeRidgeIsSoftmaxAttention) {
  const NamedNumbers in = pairs();
  EXPECT_LT(relative_error(run("local-linear-attention:ridge=1e9", in), run("softmax-attention", in)), 1e-7);
  EXPECT_GT(relative_error(run("local-linear-attention:ridge=1", in), run("softmax-attention", in)), 1e-2);
}

TEST(Identities, LocalLinearAttentionWeightsSumToOne) {
  NamedNumbers in = pairs();
  std::fill(in["v"].begin(), in["v"].end(), 2.5);
  const Numbers o = run("local-linear-attention:ridge=0.1", in);
  EXPECT_LT(relative_error(o, in["v"]), 1e-11);
}

TEST(Identities, OneTokenOfAttentionIsItsValue) {
  NamedNumbers in = pairs();
  for (auto& [name, numbers] : in) numbers.resize(numbers.size() / T);
  for (const char* layer :
       {"softmax-attention", "local-linear-attention:ridge=0.1", "forgetting-attention:decay=0.5"})
    EXPECT_LT(relative_error(run(layer, in, Form::best, 0, 1), in["v"]), 1e-12) << layer;
}

TEST(Identities, EqualKeysOfAttentionGiveTheMeanOfTheValues) {
  NamedNumbers in = pairs();
  for (std::size_t t = 1; t < T; ++t)
    std::copy_n(in["k"].begin(), H * K, in["k"].begin() + static_cast<long>(t * H * K));
  Numbers mean(T * H * V), sum(H * V);
  for (std::size_t t = 0; t < T; ++t)
    for (std::size_t i = 0; i < H * V; ++i)
      mean[t * H * V + i] = (sum[i] += in["v"][t * H * V + i]) / static_cast<double>(t + 1);
  for (const char* layer : {"softmax-attention", "local-linear-attention:ridge=0.1"})
    EXPECT_LT(relative_error(run(layer, in), mean), 1e-11) << layer;
}

TEST(Identities, KalmanWithoutDriftIsRidgeRegression) {
  const NamedNumbers in = pairs();  // P_0 = I and unit noise are a ridge of one
  EXPECT_LT(relative_error(run("kalman:process=0,noise=1", in), run("rls:ridge=1", in)), 1e-10);
}

TEST(Identities, ManyConjugateGradientStepsAreTheExactSolution) {
  NamedNumbers in = pairs();
  in["g"] = uniforms(T * H, 4, -0.3, -0.01), in["beta"] = uniforms(T * H, 5, 0.1, 0.9);
  in["lamb"] = uniforms(H * K, 6, 0.3, 1.0);
  EXPECT_LT(relative_error(run("mesanet:steps=40", in), run("mesanet", in)), 1e-10);
}

TEST(Identities, ATightToleranceIsTheExactSolutionAndALooseOneIsNot) {
  NamedNumbers in = pairs();
  in["g"] = uniforms(T * H, 4, -0.3, -0.01), in["beta"] = uniforms(T * H, 5, 0.1, 0.9);
  in["lamb"] = uniforms(H * K, 6, 0.3, 1.0);
  const Numbers exact = run("mesanet", in);
  EXPECT_LT(relative_error(run("mesanet:steps=40,tolerance=1e-9", in), exact), 1e-7);
  const double loose = relative_error(run("mesanet:steps=40,tolerance=0.1", in), exact);
  EXPECT_LT(loose, 0.5);
  EXPECT_GT(loose, 1e-4);
}

TEST(Identities, ParallaxWithoutASlopeIsSoftmaxAttention) {
  NamedNumbers in = pairs();
  const Numbers softmax = run("softmax-attention", in);
  in["r"].assign(T * H * K, 0.0);
  EXPECT_LT(relative_error(run("parallax", in), softmax), 1e-12);
}

TEST(Identities, AWindowOfAllTokensIsLeastSquares) {
  const NamedNumbers in = pairs();
  EXPECT_LT(relative_error(run("window-rls:window=24,ridge=0.2", in), run("rls:ridge=0.2", in)), 1e-11);
}

}  // namespace
}  // namespace ttr
