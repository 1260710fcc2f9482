// What a family claims it must compute exactly: every combination of the options that lowering accepts, kernel
// against oracle, forward and backward.
#include <gtest/gtest.h>

#include <random>

#include "cli/commands.h"
#include "cli/runner.h"

namespace ttr {
namespace {

using cli::NamedNumbers;
using cli::Numbers;
using cli::Runner;

std::vector<std::string> claimed_recipes() {
  std::vector<std::string> all;
  const std::vector<std::string> reads = {"",
                                          " | keys(unit)",
                                          " | keys(rms)",
                                          " | normalise(unit, eps=0.5)",
                                          " | normalise(rms, eps=0.3)",
                                          " | keys(rms), normalise(unit, eps=1)"};
  const std::vector<std::string> fades = {"equal",       "decay(0.9)",       "decay(g)",   "gate",
                                          "equal(beta)", "decay(0.9, beta)", "gate(beta)", "gate(beta=0.5)"};
  for (const std::string& read : reads) {
    for (const std::string& fade : fades) {
      for (const char* solver :
           {"gd(1)", "gd(1, step=0.3)", "gd(1, step=auto)", "exact(ridge)", "exact(ridge=0.4)", "exact(ridge(key))"})
        all.push_back(fade + " / linear / " + solver + read);
      all.push_back(fade + " / linear / gd(1)" + (read.empty() ? " | dot" : read + ", dot"));
    }
    for (const char* step :
         {"", "beta", "beta=0.7", "nlms", "nlms=0.5, eps=0.1", "longhorn", "longhorn=2", "flow", "flow=0.6"})
      for (const char* decay : {"", "decay", "decay=0.2", "leak", "leak=0.3", "shrink", "shrink=0.3"}) {
        const std::string options = std::string(step) + (*step && *decay ? ", " : "") + decay;
        const std::string solver = options.empty() ? "sgd" : "sgd(" + options + ")";
        // Plain steps on raw keys of any length diverge; normalised keys keep every one of these finite.
        const bool raw =
            read.find("keys(unit)") == std::string::npos && (!*step || std::string(step).starts_with("beta"));
        if (!raw) all.push_back("equal / linear / " + solver + read);
      }
    for (const char* weights :
         {"gate(key)", "gate(value)", "gate(key, value)", "gate(key, beta)", "gate(value, beta=0.5)"})
      for (const char* solver : {"gd(1)", "gd(1, step=0.3)"}) {
        all.push_back(std::string(weights) + " / linear / " + solver + read);
        all.push_back(std::string(weights) + " / linear / " + solver + (read.empty() ? " | " : read + ", ") +
                      "read(before)");
      }
    for (const char* weights : {"gate(key)", "gate", "decay(0.9)", "decay(g)", "equal"})
      all.push_back(std::string(weights) + " / linear / gd(1)" + (read.empty() ? " | " : read + ", ") +
                    "read(before, bonus)");
    for (const char* options :
         {"beta, decay(key)", "nlms, decay(key)", "beta=0.7, decay(key)", "feedback", "beta, feedback",
          "beta, decay, feedback", "beta, decay(key), feedback", "split", "split, decay", "split, decay(key)", "dplr",
          "dplr, decay(key)", "dplr, decay", "beta, momentum=0.7", "beta=0.5, momentum=0.9, decay",
          "nlms=0.4, momentum=0.5", "beta, momentum=0.6, feedback", "beta, momentum=0.6, feedback, decay=0.1"})
      all.push_back("equal / linear / sgd(" + std::string(options) + ")" + read);
    for (const char* options :
         {"beta, pairs=2", "beta, pairs=3, decay", "nlms, pairs=2", "beta=0.7, pairs=2, decay=0.1"})
      all.push_back("equal / linear / sgd(" + std::string(options) + ")" + read);
    for (const char* memory : {"linear(elu1)", "linear(relu)", "linear(silu)"})
      for (const char* solver : {"gd(1)", "sgd(nlms)", "exact(ridge)", "sgd(nlms, decay(key))"})
        all.push_back("equal / " + std::string(memory) + " / " + solver + read);
    for (const char* memory :
         {"linear(taylor2)", "linear(dpfp)", "linear(dpfp, degree=1)", "linear(polynomial)", "linear(hedgehog)",
          "linear(t2r, features=3)", "linear(rfa)", "linear(dijiang)", "linear(rebased)", "linear(favor, features=2)",
          "linear(polynomial, degree=3)", "linear(cosformer, length=20)"})
      for (const char* rest : {"gd(1)", "sgd(nlms)", "sgd(nlms, decay)", "exact(ridge=0.4)", "apa(2, mu, eps=0.1)"})
        all.push_back("equal / " + std::string(memory) + " / " + rest + read);
    for (const char* options : {"beta, momentum", "beta, momentum, gain", "beta, decay, momentum, gain, feedback",
                                "beta=0.5, momentum=0.6, gain=0.7", "beta, precondition", "beta, decay, precondition",
                                "nlms, decay(key), precondition", "beta, decay=0.1, precondition"})
      all.push_back("equal / linear / sgd(" + std::string(options) + ")" + read);
    if (read.find("keys") == std::string::npos)
      for (const char* text :
           {"gate(key, complex) / linear / gd(1)", "gate(complex) / linear / gd(1)",
            "gate(complex, beta) / linear(elu1) / gd(1)", "gate(key, complex, beta=0.5) / linear / gd(1)",
            "gate(signed) / linear / gd(1)", "gate(signed, beta) / linear(rebased) / gd(1)",
            "gate(signed, beta) * decay(0.9) / linear(hedgehog) / gd(1, step=0.5)",
            "gate(key, signed) / linear / gd(1)", "gate(value, signed) / linear(elu1) / gd(1)",
            "gate(key, value, signed, beta) / linear / gd(1)", "gate * levels(5) / linear / gd(1)",
            "equal * levels(5) / linear / gd(1)", "gate(beta) * levels(6) / linear(elu1) / gd(1)",
            "gate / slots(3) / gd(1)", "equal / slots(4) / gd(1)", "gate(trapezoid) / linear / gd(1)"})
        all.push_back(std::string(text) + read);
    if (read.find("normalise") == std::string::npos)
      for (const char* weights : {"gate(exponential)", "equal(exponential)", "decay(g, exponential)"})
        all.push_back(std::string(weights) + " / linear / gd(1)" + (read.empty() ? " | " : read + ", ") +
                      "normalise(max)");
    for (const char* options : {"beta=0.1", "beta=0.1, decay", "beta=0.1, decay(value)", "beta=0.1, decay=0.2"})
      all.push_back("equal / linear(reverse) / sgd(" + std::string(options) + ")" + read);
    for (const char* weights : {"near(exp)", "near(exp, scale=0.7)", "near(gauss)", "near(gauss, bandwidth)",
                                "near(gauss, bandwidth=2)", "near(exp) * gate", "near(exp) * decay(0.9)",
                                "near(exp) * decay(g)", "window(4) * near(exp)", "near(gauss) * gate"}) {
      all.push_back(std::string(weights) + " / constant / exact" + read);
      all.push_back(std::string(weights) + " / constant / gd(1)" + read);
    }
    for (const char* rest : {"near(exp, sink) / constant / exact",
                             "near(exp, transport) / constant / exact",
                             "near(exp, transport) * gate / constant / exact",
                             "near(exp) / constant / sgd(beta)",
                             "near(exp) / constant / sgd(beta=0.5)",
                             "near(exp) / local(1) / exact(ridge)",
                             "near(exp) / local(1) / exact(ridge(token), relative)",
                             "near(gauss) / local(2) / exact(ridge=0.3, relative)",
                             "near(gauss, bandwidth) / local(1) / exact(ridge=0.2)",
                             "near(exp) / local(1) / given",
                             "window(4) * near(exp) / local(1) / exact(ridge)",
                             "near(exp) * gate / local(1) / exact(ridge, relative)",
                             "near(gauss) * decay(0.9) / local(1) / exact(ridge=0.2)",
                             "near(exp) * decay(g) / local(1) / given",
                             "window(4) * near(gauss, bandwidth) * gate / local(2) / exact(ridge=0.3)",
                             "equal / kernel(exp) / exact(ridge)",
                             "equal / kernel(gauss, bandwidth=3) / exact(ridge=0.2)",
                             "equal / kernel(linear) / exact(ridge(token))",
                             "equal / kernel(polynomial, degree=3) / exact(ridge=0.5)",
                             "window(4) / kernel(exp) / exact(ridge=0.3)"})
      all.push_back(std::string(rest) + read);
    for (const char* rest :
         {"window(4) / linear / gd(1)", "window(4) * gate / linear(elu1) / gd(1, step)",
          "window(3) * decay(g) / linear(taylor2) / gd(1)",
          "window(4) * gate(beta) / linear(rebased) / gd(1, step=0.3)",
          "window(4) * equal(beta) / linear(dpfp) / gd(1)", "equal / kernel(exp) / gd(1)",
          "decay(0.9) / kernel(gauss, bandwidth=3) / gd(1, step)", "gate(beta) / kernel(polynomial) / gd(1)",
          "window(4) * gate / kernel(polynomial, degree=1) / gd(1)", "near(exp) * gate / linear / gd(1, step)",
          "near(exp, scale=0.3) / kernel(exp, scale=0.2) / gd(1)", "near(gauss) / constant / gd(1, step)"})
      all.push_back(std::string(rest) + read);
    for (const char* rest :
         {"near(exp) / linear / exact(ridge=0.3)", "near(gauss, bandwidth) * gate / linear(elu1) / exact(ridge)",
          "near(exp) * window(4) / linear(taylor2) / exact(ridge(token), relative)",
          "near(exp) * decay(g) / linear(t2r, features=3) / exact(ridge=0.4)", "near(gauss) / linear / gd(1)",
          "near(exp) * equal(beta) / linear(relu) / gd(3, step=0.05)", "window(4) / linear / gd(3, step=0.05)",
          "window(4) * gate(beta) / linear(elu1) / gd(2, step=auto)",
          "window(4) * decay(g) / linear / cg(2, ridge=0.3)", "near(exp) / local(1) / gd(2, step=0.1)",
          "near(gauss) * gate / local(2) / gd(2, step=auto)", "near(exp) / constant / gd(3, step=0.1)",
          "gate / kernel(exp) / exact(ridge)", "decay(0.9) / kernel(gauss, bandwidth=3) / exact(ridge=0.2)",
          "window(4) * gate(beta) / kernel(polynomial) / exact(ridge=0.3)",
          "equal / kernel(gauss) / cg(2, ridge=0.5)", "equal(beta) / kernel(gauss) / gd(3, step=0.1)",
          "near(exp) * gate / kernel(linear) / gd(2, step=0.1)",
          "near(gauss) / kernel(exp) / exact(ridge=0.3, relative)"})
      all.push_back(std::string(rest) + read);
    if (read.find("normalise") == std::string::npos)
      for (const char* memory : {"linear(elu1)", "linear(taylor2)", "linear(rebased)"})
        all.push_back("window(4) * gate / " + std::string(memory) + " / gd(1)" +
                      (read.empty() ? " | " : read + ", ") + "normalise(keysum, eps=0.1)");
    for (const std::string& fade : fades) {
      for (const char* solver : {"gd(3, step=auto)", "gd(4, step=0.05)", "exact(ridge=0.4, fading)",
                                 "exact(ridge, fading)", "exact(ridge=0.1, frobenius)", "exact(ridge(token))",
                                 "cg(2, ridge=0.3)", "cg(3, ridge)", "chebyshev(3, ridge=0.2)"})
        all.push_back(fade + " / linear / " + solver + read);
      all.push_back("window(4) * " + fade + " / linear / exact(ridge=0.3)" + read);
      all.push_back(fade + " / linear / exact(ridge=0.2)" + (read.empty() ? " | " : read + ", ") + "blend");
    }
    for (const char* options : {"process, noise", "process=0.1", "noise=0.5"})
      all.push_back("equal / linear / kalman(" + std::string(options) + ")" + read);
    for (const char* weights : {"equal", "decay(0.9)", "gate(beta)"})
      if (read.find("normalise") == std::string::npos)
        all.push_back(std::string(weights) + " / linear(elu1) / gd(1)" + (read.empty() ? " | " : read + ", ") +
                      "normalise(keysum, eps=0.1)");
    for (const char* options : {"1, mu", "2, mu, eps=0.1", "3, mu=0.5, eps=0.2", "5, eps=1"})
      all.push_back("equal / linear / apa(" + std::string(options) + ")" + read);
    for (const char* options : {"beta", "beta=0.5", "beta, decay", "beta=0.5, decay=0.1"})
      all.push_back("equal / linear / sgd(" + std::string(options) + ")" +
                    (read.empty() ? " | dot" : read + ", dot"));
  }
  return all;
}

// Steps of losses that bend, and steps that AdaGrad divides.
std::vector<std::string> likelihood_recipes() {
  std::vector<std::string> all;
  for (const char* memory : {"linear", "linear(elu1)"})
    for (const char* step : {"beta", "beta=0.3", "beta, adagrad", "beta=0.2, adagrad, eps=1e-3"})
      for (const char* decay : {"", ", decay", ", decay=0.2"})
        for (const char* loss : {"logistic", "cross_entropy", "cross_entropy, read(before)", "logistic, keys(unit)",
                                 "logistic, normalise(rms, eps=0.3)"})
          all.push_back(std::string("equal / ") + memory + " / sgd(" + step + decay + ") | " + loss);
  for (const char* solver : {"sgd(beta, adagrad)", "sgd(beta=0.2, adagrad, decay)"})
    for (const char* read : {"", " | read(before)", " | keys(rms)"})
      all.push_back(std::string("equal / linear / ") + solver + read);
  return all;
}

// Memories that are networks, and linear ones with a solver or a loss of networks.
std::vector<std::string> neural_recipes() {
  std::vector<std::string> all;
  for (const char* memory : {"linear", "linear(elu1)", "layernorm(linear)", "layernorm(linear, bias)", "mlp(1)",
                             "mlp(2)", "mlp(2, width=3, tanh)", "mlp(3, width=4, silu, bias)",
                             "mlp(2, relu, layernorm, width=5)", "swiglu(width=4)"})
    for (const char* solver :
         {"minibatch(3)", "minibatch(4, rate)", "minibatch(1, rate=0.1)", "minibatch(3, rate, momentum)",
          "minibatch(3, rate, shrink)", "minibatch(3, rate, decay)",
          "minibatch(2, rate=0.1, momentum=0.5, decay=0.1)", "minibatch(3, rate, momentum, shrink, muon)",
          "minibatch(3, rate, momentum, rownorm)", "sgd(beta, momentum, muon)",
          "sgd(beta=0.1, shrink, momentum, rownorm)", "minibatch(2, rate, qnorm=3)"})
      if (!std::string(memory).starts_with("linear") || std::string(solver).find("rownorm") == std::string::npos)
        all.push_back("equal / " + std::string(memory) + " / " + solver);
  for (const char* memory : {"layernorm(linear)", "mlp(2, width=3)", "swiglu(width=3)"})
    for (const char* solver :
         {"sgd(beta)", "sgd(beta, decay)", "sgd(beta, shrink)", "sgd(beta=0.2, momentum, decay=0.1)"})
      for (const char* read : {"", " | dot", " | huber(c)", " | huber(c=0.5, coordinate)", " | read(before)",
                               " | keys(unit)", " | normalise(rms, eps=0.3)"})
        all.push_back("equal / " + std::string(memory) + " / " + solver + read);
  // Steps on powers of the error must be short.
  for (const char* memory : {"linear", "layernorm(linear)", "mlp(2, width=3)"})
    for (const char* solver : {"sgd(beta=0.01)", "sgd(beta=0.01, decay)", "sgd(beta=0.01, shrink)",
                               "minibatch(3, rate=0.01)", "sgd(beta=0.01, qnorm=3)"})
      for (const char* read : {" | lp(3)", " | lp(4), keys(unit)"})
        all.push_back("equal / " + std::string(memory) + " / " + solver + read);
  for (const char* read : {" | huber(c)", " | huber(c, coordinate)"})
    for (const char* solver : {"sgd(beta)", "sgd(beta, decay)", "sgd(beta, shrink)", "minibatch(3, rate)"})
      all.push_back("equal / linear / " + std::string(solver) + read);
  for (const char* memory : {"linear", "mlp(2, width=3)"})
    for (const char* weights : {"window(3)", "window(3) * equal(beta)", "window(1) * equal(beta)"})
      for (const char* solver : {"descend(1, step=0.1)", "descend(1, step=0.1, momentum)",
                                 "descend(1, step=0.1, shrink)", "descend(1, step=0.1, momentum, decay, muon)"})
        all.push_back(std::string(weights) + " / " + memory + " / " + solver);
  return all;
}

// Several steps on objectives of many pairs, and several on one.
std::vector<std::string> descent_recipes() {
  std::vector<std::string> all;
  for (const char* weights : {"equal", "decay(g)", "gate(beta)", "window(4) * gate", "window(3) * equal(beta)"})
    for (const char* memory : {"linear", "linear(taylor2)", "linear(hedgehog)", "mlp(2, width=3, tanh, bias)",
                               "swiglu(width=3)", "layernorm(linear)"}) {
      const std::string problem = std::string(weights) + " / " + memory + " / ";
      for (const char* solver :
           {"descend(2, step=0.03)", "descend(1, step=0.03, decay)",
            "descend(2, step(0.03, 0.02), momentum, nesterov)", "descend(2, step=0.03, leak)",
            "descend(2, step=0.03, momentum=0.5, shrink)", "descend(3, step=0.03, momentum=auto)", "gd(3, step=0.03)",
            "gd(1, step=0.03)", "gd(3, step=0.03, momentum)", "gd(2, step(0.03, 0.02), momentum=auto, nesterov)"})
        all.push_back(problem + solver);
      all.push_back(problem + "descend(2, step=0.03) | read(before), keys(unit)");
      all.push_back(problem + "descend(2, step=0.03) | dot, normalise(rms, eps=0.3)");
      all.push_back(problem + "gd(2, step=0.01) | lp(3)");
      all.push_back(problem + "descend(2, step=0.02) | huber(c=0.5)");
      if (std::string(memory).starts_with("linear"))
        for (const char* solver : {"descend(2, step=auto)", "gd(2, step=auto, momentum)"})
          all.push_back(problem + solver);
    }
  // Steps of an input are long, so the pairs weigh little.
  for (const char* weights : {"equal(beta=0.05)", "gate(beta=0.05)", "window(4) * equal(beta=0.05)"})
    for (const char* solver : {"descend(2, step=each)", "gd(2, step=each)", "gd(1, step)"})
      for (const char* memory : {"linear", "mlp(2, width=3, tanh)"})
        all.push_back(std::string(weights) + " / " + memory + " / " + solver + " | keys(unit)");
  for (const char* memory : {"linear", "mlp(2, width=3, bias)", "swiglu(width=3)", "layernorm(linear, bias)"})
    for (const char* solver :
         {"sgd(3, beta=0.1)", "sgd(beta, leak)", "sgd(2, beta, decay)", "sgd(3, beta=0.1, shrink)",
          "sgd(beta, momentum, nesterov)", "sgd(beta=0.1, momentum=0.5, nesterov, leak)"})
      for (const char* read : {"", " | read(before)", " | keys(unit), normalise(unit, eps=0.5)"})
        all.push_back("gate / " + std::string(memory) + " / " + solver + read);
  for (const char* memory : {"linear", "mlp(2, width=3, bias)", "swiglu(width=3)"})
    for (const char* rest : {"leak) | lp(3)", "leak) | dot", "shrink) | dot"})
      all.push_back("gate / " + std::string(memory) + " / sgd(2, beta=0.01, " + rest);
  for (const char* weights : {"near(exp)", "near(exp, scale=0.3) * gate", "near(gauss, bandwidth) * window(4)",
                              "near(gauss) * decay(0.9, beta)"})
    for (const char* memory : {"linear", "linear(elu1)", "linear(taylor2)", "linear(hedgehog)",
                               "mlp(2, width=3, tanh)", "swiglu(width=3)", "layernorm(linear)"})
      for (const char* solver : {"descend(1, step=0.05)", "descend(2, step=0.03, momentum)", "gd(3, step=0.03)",
                                 "gd(1, step=0.05)", "gd(2, step=0.03, momentum)"})
        for (const char* read : {"", " | keys(unit)"})
          all.push_back(std::string(weights) + " / " + memory + " / " + solver + read);
  return all;
}

TEST(ClaimedRecipes, KernelEqualsOracle) {
  constexpr int T = 11;
  std::size_t claimed = 0;
  std::vector<std::string> all = claimed_recipes();
  for (const char* weights : {"equal", "decay(0.9)", "decay(g)", "gate", "gate(value)", "gate(value, complex)",
                              "gate(signed)", "gate(value, signed)"})
    all.push_back(std::string(weights) + " / vector / gd(1)");
  all.push_back("gate(value, exponential) / constant(channel) / exact | read(before, bonus)");
  for (const std::string& text : neural_recipes()) all.push_back(text);
  for (const std::string& text : likelihood_recipes()) all.push_back(text);
  for (const std::string& text : descent_recipes()) all.push_back(text);
  for (const std::string& text : all) {
    const int heads = 2;
    const Shape shape{.batch = 1, .heads = heads, .key_heads = 1, .key_dim = 3, .value_dim = 4};
    const Plan fast = plan(text, shape, {.type = Type::f64, .chunk = 4});
    ASSERT_NE(fast.kernel(), "oracle") << text << " is expected to have a kernel";
    ++claimed;
    const Runner kernel(fast, T), literal(plan(text, shape, {.type = Type::f64, .kernel = "oracle"}), T);
    NamedNumbers in, d_out;
    for (std::size_t i = 0; i < fast.inputs().size(); ++i)
      in[fast.inputs()[i].name] = cli::random_input(fast, fast.inputs()[i], T, 100 + i);
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    d_out["o"].resize(static_cast<std::size_t>(T * heads * 4));
    for (double& x : d_out["o"]) x = normal(random);
    const Numbers expected = literal.forward(in, {}, Form::recurrent).outputs.at("o");
    const NamedNumbers d_expected = literal.backward(in, {}, d_out, {}, Form::recurrent).inputs;
    for (Form form : fast.forms()) {
      if (form == Form::step) continue;
      // Five Newton-Schulz steps multiply what is small in an update by 3.4^5, its rounding included, at every token.
      const double magnified = text.find("muon") == std::string::npos ? 1 : 500;
      EXPECT_LT(cli::relative_error(kernel.forward(in, {}, form).outputs.at("o"), expected), magnified * 1e-11)
          << text << " " << to_string(form);
      EXPECT_LT(cli::relative_error(kernel.backward(in, {}, d_out, {}, form).inputs, d_expected, 1e-2),
                magnified * 1e-9)
          << text << " " << to_string(form);
    }
  }
  EXPECT_GT(claimed, 2000u);
  for (const char* text : {"equal / linear / gd(2)", "gate / linear / gd(3, step)", "decay / linear / gd(1, step)",
                           "equal / linear / sgd(4, beta)", "equal / linear / sgd(3, nlms, decay)"})
    EXPECT_NE(plan(text, {.key_dim = 3, .value_dim = 4}).kernel(), "oracle") << text;
  // What a kernel ignores it must not claim.
  for (const char* text : {"equal / linear / sgd(nlms, momentum=0.9, nesterov)",
                           "given(4) / linear / gd(1)",
                           "equal / linear / descend(2, adagrad)",
                           "equal / linear / descend(2, decay(key))",
                           "equal / linear / gd(2, step=0.1) | read(before)",
                           "equal / mlp(2) / descend(2, muon)",
                           "window(4) / mlp(2) / descend(2) | huber(c)",
                           "gate * levels(5) / linear / descend(2)",
                           "window(4) * gate(key) / linear / gd(1)",
                           "gate(key) / linear / gd(1) | normalise(keysum)",
                           "near(exp) / linear / cg(3, ridge=0.1)",
                           "near(exp) / linear / exact",
                           "window(4) / linear / gd(2, adagrad)",
                           "gate(full) / linear / gd(1)",
                           "gate * levels / linear / gd(1)",
                           "equal / linear(reverse) / sgd(nlms)",
                           "gate(exponential) / linear / gd(1)",
                           "gate(value, exponential) / constant(channel) / exact",
                           "equal / linear / gd(1, adagrad)",
                           "equal / linear / gd(1) | l1(0.1)",
                           "equal / linear / sgd(beta, adam)",
                           "equal / linear / sgd(beta, momentum) | l2(0.1)",
                           "equal / linear / sgd(beta) | quantile(0.3)",
                           "equal / linear / sgd(beta, adagrad, momentum) | logistic",
                           "equal / linear / sgd(beta) | logistic(mean)",
                           "equal / linear / sgd(nlms) | cross_entropy",
                           "equal / mlp(2) / sgd(beta) | cross_entropy",
                           "equal / mlp(2) / sgd(beta) | insensitive(0.1)",
                           "equal / mlp(2) / sgd(beta, rmsprop=0.9)",
                           "equal / mlp(2) / minibatch(4, rate) | l1",
                           "equal / linear / irls(3, ridge=0.1) | lp(1)",
                           "near(exp) / constant / irls(3) | lp(1)"})
    EXPECT_EQ(plan(text, {.key_dim = 3, .value_dim = 4}).kernel(), "oracle") << text;
}

// Every query sees all pairs, of which there may be more or fewer.
TEST(ClaimedRecipes, KernelEqualsOracleWithoutCausality) {
  std::vector<std::string> all;
  for (const char* read : {"", " | keys(unit)", " | normalise(unit, eps=0.5)"})
    for (const char* text :
         {"equal / linear / gd(1)", "equal(beta) / linear / gd(1)", "equal / linear(elu1) / gd(1)",
          "equal / linear(taylor2) / exact(ridge=0.3)", "equal / linear / exact(ridge)",
          "equal(beta) / linear / exact(ridge=0.4)", "near(exp) / constant / exact",
          "near(exp, sink) / constant / exact", "near(gauss, bandwidth) / constant / exact",
          "near(gauss) / constant / gd(1)", "near(exp, scale=0.7) / constant / gd(1)",
          "near(exp) / local(1) / exact(ridge)", "near(exp) / local(1) / exact(ridge(token), relative)",
          "near(gauss) / local(2) / exact(ridge=0.3, relative)", "near(exp) / local(1) / given",
          "equal / kernel(exp) / exact(ridge)", "equal / kernel(gauss, bandwidth=3) / exact(ridge=0.2)",
          "equal / kernel(linear) / exact(ridge(token))"})
      all.push_back(std::string(text) + read);
  for (const std::string& text : all)
    for (const std::int64_t P : {7, 11, 15}) {
      constexpr int T = 11;
      const Shape shape{.batch = 2, .heads = 2, .key_heads = 1, .key_dim = 3, .value_dim = 4};
      const Plan fast = plan(text, shape, {.type = Type::f64, .causal = false});
      ASSERT_NE(fast.kernel(), "oracle") << text << " is expected to have a kernel";
      EXPECT_EQ(fast.forms().size(), 1u);
      EXPECT_TRUE(fast.states().empty());
      const Runner kernel(fast, T, 0, P),
          literal(plan(text, shape, {.type = Type::f64, .causal = false, .kernel = "oracle"}), T, 0, P);
      std::mt19937 random(3);
      std::normal_distribution<double> normal;
      NamedNumbers in, d_out;
      for (std::size_t i = 0; i < fast.inputs().size(); ++i) {
        const InputInfo& info = fast.inputs()[i];
        const bool of_pairs = info.shape.find('P') != std::string::npos;
        in[info.name] = cli::random_input(fast, info, of_pairs ? P : T, 100 + i);
      }
      d_out["o"].resize(2 * T * 2 * 4);
      for (double& x : d_out["o"]) x = normal(random);
      EXPECT_LT(cli::relative_error(kernel.forward(in, {}, Form::best).outputs.at("o"),
                                    literal.forward(in, {}, Form::best).outputs.at("o")),
                1e-11)
          << text << ", " << P << " pairs";
      EXPECT_LT(cli::relative_error(kernel.backward(in, {}, d_out, {}, Form::best).inputs,
                                    literal.backward(in, {}, d_out, {}, Form::best).inputs, 1e-2),
                1e-9)
          << text << ", " << P << " pairs";
    }
}

}  // namespace
}  // namespace ttr
