// What the grammar can say the oracle can run: each recipe takes its canonical inputs, and forward and backward give
// finite numbers. Random recipes are not refused either: recipe/combine.cc alone says what goes together.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "oracle_cases.h"
#include "recipe/design.h"

namespace ttr::oracle {
namespace {

class EveryRecipe : public testing::TestWithParam<const char*> {};

TEST_P(EveryRecipe, RunsOnItsCanonicalInputs) {
  const Design d = interpret(parse_recipe(GetParam()));
  Sizes s;
  s.heads = 2, s.key_heads = 1, s.key_dim = 3, s.value_dim = 3, s.time = 5;
  const Arrays inputs = cases::random_inputs(d, s, 21);
  const Arrays start = fresh_state(d, s);
  Arrays state = start;
  const Array o = forward(d, s, inputs, state).at("o");
  double largest = 0;
  for (double x : o.data) {
    ASSERT_TRUE(std::isfinite(x));
    largest = std::max(largest, std::abs(x));
  }
  EXPECT_GT(largest, 0);
  const Arrays gradients = backward(d, s, inputs, start, o, {});
  for (const auto& [name, gradient] : gradients)
    for (double x : gradient.data) ASSERT_TRUE(std::isfinite(x)) << name;
}

RC_GTEST_PROP(OracleRecipe, NothingTheGrammarAcceptsIsRefused, ()) {
  const Recipe recipe = random_recipe(*rc::gen::arbitrary<std::uint64_t>());
  RC_LOG() << to_string(recipe) << "\n";
  const Design d = interpret(recipe);
  Sizes s;
  s.key_dim = s.value_dim = 2, s.time = 3;
  const Arrays inputs = cases::random_inputs(d, s, 5);
  Arrays state = fresh_state(d, s);
  RC_ASSERT(forward(d, s, inputs, state).at("o").data.size() == 6u);
  RC_ASSERT(forward(d, s, inputs, state).at("o").data.size() == 6u);
}

INSTANTIATE_TEST_SUITE_P(
    Oracle, EveryRecipe,
    testing::Values(
        "equal / linear / gd(1)", "equal(beta) / linear / gd(3, step=auto)", "decay(g) / linear / gd(1)",
        "decay(0.9) / linear / gd(1)", "gate / linear / gd(1)", "gate(beta) / linear / gd(1)",
        "gate(key) / linear / gd(1)", "gate(value) / linear / gd(1)", "gate(key, value) / linear / gd(1)",
        "gate(full) / linear / gd(1)", "gate(signed) / linear / gd(1)", "gate(key, signed) / linear / gd(1)",
        "gate(value, signed) / vector / gd(1)", "gate(full, signed) / linear / gd(1)",
        "gate(complex) / linear / gd(1)", "gate(full, complex) / linear / gd(1)",
        "gate(value, complex) / linear / gd(1)", "gate(key, value, signed) / linear / gd(1)",
        "equal / linear(cosformer, length=9) / gd(1) | normalise(keysum, eps=0.1)",
        "equal / linear(cosformer, length=9) / sgd(beta, pairs=2)",
        "window(3) / linear(cosformer, length=9) / exact(ridge)", "gate(key, complex) / linear / gd(1)",
        "gate(trapezoid) / linear / gd(1)", "gate(value) / vector / gd(1)", "gate(value, complex) / vector / gd(1)",
        "gate * window(3) / linear / gd(2)", "gate * levels / linear / gd(1)",
        "gate(exponential) / linear / gd(1) | normalise(max)",
        "equal / linear(elu1) / gd(1) | normalise(keysum, eps=1e-6)", "equal / linear(taylor2) / gd(1)",
        "equal / linear(dpfp, degree=2) / gd(1)", "equal / linear(polynomial, degree=3) / gd(1)",
        "gate(key) / linear / gd(1) | read(before, bonus)", "equal / linear / gd(2) | huber(c)",
        "equal / linear / sgd(beta)", "equal / linear / sgd(beta, decay)", "equal / linear / sgd(beta, decay(key))",
        "equal / linear / sgd(beta, decay(value))", "equal / linear / sgd(nlms)", "equal / linear / sgd(longhorn)",
        "equal / linear / sgd(flow)", "equal / linear / sgd(beta, leak)", "equal / linear / sgd(beta, shrink)",
        "equal / linear / sgd(beta, momentum, shrink)", "equal / linear / sgd(beta, momentum, nesterov)",
        "equal / linear / sgd(beta, decay, feedback)", "equal / linear / sgd(split, decay(key))",
        "equal / linear / sgd(dplr, decay(key))", "equal / linear / sgd(beta, decay, precondition)",
        "equal / linear / sgd(beta, pairs=2, decay)", "equal / linear / sgd(2, beta)",
        "equal / linear(reverse) / sgd(beta, decay(value))", "equal / linear / sgd(beta) | huber(c, coordinate)",
        "equal / linear / sgd(beta, shrink, qnorm=4) | lp(3)", "equal / constant / sgd(beta)",
        "equal / linear / sgd(beta) | keys(unit), normalise(rms)", "equal / linear / sgd(beta) | read(before)",
        "window(3) / linear / descend(1, momentum, muon, decay)", "gate / linear / descend(2, step=auto)",
        "equal / linear / exact", "gate(beta) / linear / exact(ridge)", "gate / linear / exact(ridge(key))",
        "gate / linear / exact(ridge, fading)", "gate / linear / exact(ridge(token), relative)",
        "gate / linear / chebyshev(8, ridge=0.02, frobenius) | blend", "gate(beta) / linear / cg(5, ridge(key))",
        "window(4) / linear / exact(ridge)", "equal / linear / apa(2, mu, eps=0.1)",
        "equal / linear / kalman(process, noise)", "near(exp) / constant / exact",
        "near(exp, sink) * window(3) / constant / exact", "near(exp) * gate / constant / exact",
        "near(exp) * gate(key) / constant / exact", "near(exp, transport) * gate / constant / exact",
        "near(gauss, bandwidth) / constant / exact", "near(exp) / constant / gd(1)",
        "near(exp) / constant / sgd(beta)", "near(exp) / local(1) / exact(ridge)",
        "near(exp) / local(1) / exact(ridge(token), relative)", "near(gauss) / local(2) / exact(ridge, relative)",
        "near(exp) / local(1) / cg(3, ridge)", "near(exp) / local(1) / given", "near(exp) / linear / exact(ridge)",
        "gate / constant / exact", "gate(value, exponential) / constant(channel) / exact | read(before, bonus)",
        "equal / kernel(exp) / exact(ridge)", "equal / kernel(gauss, bandwidth=2) / exact",
        "equal / kernel(exp) / gd(1)", "equal / kernel(polynomial, degree=2) / cg(3, ridge)",
        "equal / kernel(gauss) / sgd(beta)", "window(2) / kernel(gauss) / sgd(beta)",
        "equal / mlp(2, width=4, bias) / minibatch(3, rate, momentum, shrink)",
        "equal / mlp(2, gelu_tanh) / sgd(beta, decay)",
        "equal / layernorm(linear, bias, residual) / minibatch(4, rate)",
        "equal / swiglu(width=4) / minibatch(2, rate, momentum, muon, rownorm) | dot, read(before)",
        "gate / mlp(2, width=3) / gd(2, step=0.1)", "equal / slots(4) / gd(1)", "gate / slots(4) / gd(1)"));

}  // namespace
}  // namespace ttr::oracle
