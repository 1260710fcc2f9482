// Identities of memories that are small networks, as named tests.
#include <gtest/gtest.h>

#include "identities_harness.h"

namespace ttr {
namespace {

using namespace ttr_identities;

NamedNumbers unit_pairs() {
  NamedNumbers in = pairs(K);
  normalise(in["q"], K), normalise(in["k"], K);
  return in;
}

Numbers square(const std::string& text, const NamedNumbers& in) { return run(text, in, Form::best, 0, T, K); }

TEST(Identities, TttOfALinearMemoryWithoutNormAndBatchOneIsDeltaNet) {
  NamedNumbers in = unit_pairs();
  in["rate"] = uniforms(T * H, 5, 0.1, 0.9);
  const Numbers ttt = square("equal / linear / minibatch(1, rate)", in);
  in["beta"] = in["rate"];
  EXPECT_LT(relative_error(ttt, square("deltanet", in)), 1e-12);
}

TEST(Identities, TitansWithoutMomentumAndForgettingIsTtt) {
  NamedNumbers in = unit_pairs();
  in["theta"] = uniforms(T * H, 5, 0.01, 0.1);
  in["eta"].assign(T * H, 0.0), in["alpha"].assign(T * H, 0.0);
  in["W0"] = normals(H * K * 4 * K, 6), in["W1"] = normals(H * 4 * K * K, 7);
  for (const char* name : {"W0", "W1"})
    for (double& x : in[name]) x /= 5;
  const Numbers titans = square("titans:batch=4", in);
  // The same memory as a recipe, from the same weights, with the factor 2 of Titans' loss in the rate.
  Options options;
  options.type = Type::f64;
  const Runner ttt(plan("equal / mlp(2) / minibatch(4, rate)", {1, H, 0, K, K}, options), T);
  in["rate"] = in["theta"];
  for (double& x : in["rate"]) x *= 2;
  const NamedNumbers start = {{"W0", in["W0"]}, {"W1", in["W1"]}};
  EXPECT_LT(relative_error(titans, ttt.forward(in, start, Form::best).outputs.at("o")), 1e-12);
}

// One batch of all tokens from zero: every token reads the sum of the pairs before it.
TEST(Identities, OneBatchOfALinearMemoryFromZeroIsLinearAttention) {
  const NamedNumbers in = pairs(K);
  EXPECT_LT(relative_error(square("equal / linear / minibatch(24)", in), square("linear-attention", in)), 1e-12);
}

TEST(Identities, TitansOfALinearMemoryAndBatchOneIsTheDeltaRuleWithMomentum) {
  NamedNumbers in = unit_pairs();
  in["theta"] = uniforms(T * H, 5, 0.05, 0.4), in["eta"] = uniforms(T * H, 6, 0.1, 0.8);
  in["alpha"] = uniforms(T * H, 7, 0.01, 0.2);
  in["S"].assign(H * K * K, 0.0);
  const Numbers titans = square("titans:depth=1,batch=1", in);
  in["beta"] = in["theta"], in["momentum"] = in["eta"], in["lam"] = in["alpha"];
  for (double& x : in["beta"]) x *= 2;
  Options options;
  options.type = Type::f64, options.kernel = "oracle";
  const Runner literal(plan("equal / linear / sgd(beta, momentum, shrink)", {1, H, 0, K, K}, options), T);
  EXPECT_LT(relative_error(titans, literal.forward(in, {}, Form::recurrent).outputs.at("o")), 1e-12);
}

TEST(Identities, YaadWithAThresholdThatIsNeverReachedIsTheDeltaRule) {
  NamedNumbers in = unit_pairs();
  in["eta"] = uniforms(T * H, 5, 0.1, 0.9), in["g"].assign(T * H, 0.0), in["delta"].assign(T * H, 1e6);
  const Numbers yaad = square("yaad", in);
  in["beta"] = in["eta"];
  EXPECT_LT(relative_error(yaad, square("deltanet", in)), 1e-12);
}

TEST(Identities, OmegaRuleOfOnePairWithoutMomentumIsTheDeltaRule) {
  NamedNumbers in = unit_pairs();
  in["rate"] = uniforms(T * H, 5, 0.1, 0.9);
  in["gamma"].assign(T * H, 1.0), in["g"].assign(T * H, 0.0), in["theta"].assign(T * H, 0.0);
  const Numbers omega = square("omega-rule:window=1", in);
  in["beta"] = in["rate"];
  EXPECT_LT(relative_error(omega, square("deltanet", in)), 1e-12);
}

}  // namespace
}  // namespace ttr
