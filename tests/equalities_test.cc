// The equalities that `derive` knows (recipe/equal.h), in numbers: both sides solved by the oracle, in double, on the
// same random inputs. Where the inputs of the two sides differ, they are computed here as the rule's words say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "oracle/batch.h"
#include "oracle/feature_maps.h"
#include "oracle_cases.h"
#include "recipe/derive.h"
#include "recipe/equal.h"
#include "recipe/markup.h"
#include "recipe/random.h"
#include "recipe/words.h"
#include "ttr/ttr.h"

namespace ttr {
namespace {

using oracle::Array;
using oracle::Arrays;
using oracle::Matrix;
using oracle::Sizes;
using oracle::Vec;

constexpr double tolerance = 1e-10;
constexpr Sizes sizes{.heads = 2, .key_heads = 2, .key_dim = 3, .value_dim = 4, .time = 9};
constexpr std::size_t T = 9, H = 2, K = 3, V = 4;

/// The solver's step at (token, head) as a number: the constant, the input, or 1.
double step_at(const Design& d, const Arrays& in, std::size_t at) {
  if (d.solver.step.is_constant()) return d.solver.step.value;
  return d.solver.step.is_input() ? in.at(oracle::step_name(d)).data[at] : 1;
}

double decay_at(const Design& d, const Arrays& in, std::size_t at) {
  return d.solver.decay.is_constant() ? d.solver.decay.value : in.at("lam").data[at];
}

/// |phi(k)|^2, or kappa(k, k).
double square_at(const Design& d, const Arrays& in, std::size_t at) {
  const double* const k = in.at("k").data.data() + at * K;
  const Vec<double> key = oracle::normalised(d.extras.keys, Vec<double>(k, k + K));
  if (d.memory.kind == Memory::Class::kernel) {
    const double root = std::sqrt(static_cast<double>(K));
    return oracle::similarity(d.memory.kernel, key, key, d.memory.kernel_scale > 0 ? d.memory.kernel_scale : 1 / root,
                              d.memory.bandwidth.is_constant() ? d.memory.bandwidth.value : 2 * root, d.memory.degree)
        .value();
  }
  if (!d.memory.has_map_inputs()) {
    const Vec<double> phi = oracle::features(d.memory, key, key);
    return oracle::dot(phi, phi);
  }
  std::map<std::string, Matrix<double>> of_head;  // [H, ..]: a row for each head
  for (const char* name : {"W", "b", "P", "gamma", "shift"})
    if (const auto found = in.find(name); found != in.end()) {
      const std::size_t width = found->second.data.size() / H;
      Matrix<double>& row = of_head[name] = Matrix<double>(1, static_cast<int>(width));
      for (std::size_t i = 0; i < width; ++i) row(0, static_cast<int>(i)) = found->second.data[at % H * width + i];
    }
  const Vec<double> phi = oracle::matrix_features(d.memory, key, of_head);
  return oracle::dot(phi, phi);
}

double size_of_step(const Design& d, const Arrays& in, std::size_t at) {
  return oracle::step_size(d.solver, step_at(d, in, at), square_at(d, in, at));
}

Array per_token(const std::function<double(std::size_t)>& value) {
  Array a{{T, H}, {}};
  for (std::size_t at = 0; at < T * H; ++at) a.data.push_back(value(at));
  return a;
}

/// What the inputs of the design after a rule are, by the name of the rule; none for rules that keep them.
using Change = void (*)(const Design& before, const Design& after, Arrays& in);
void step_of_the_rule(const Design& d, const Design&, Arrays& in) {
  in["beta"] = per_token([&, old = in](std::size_t at) { return size_of_step(d, old, at); });
}
const std::map<std::string_view, Change>& changes() {
  static const std::map<std::string_view, Change> list = {
      {"steps-of-a-constant-gradient",
       [](const Design& d, const Design&, Arrays& in) {
         for (double& x : in.at("beta").data) x *= d.solver.steps;
       }},
      {"blocks-of-one", [](const Design&, const Design&, Arrays& in) { in["beta"] = in.at("rate"); }},
      {"dot-by-pairs",
       [](const Design& d, const Design& after, Arrays& in) {
         const Arrays old = in;
         if (after.weights.beta.is_input())
           in["beta"] = per_token([&](std::size_t at) { return d.solver.steps * size_of_step(d, old, at); });
         const bool leak = d.solver.decay_kind == Solver::Decay::leak;
         if (leak || d.solver.decay_kind == Solver::Decay::shrink)
           in["g"] = per_token(
               [&](std::size_t at) { return std::log1p(-(leak ? step_at(d, old, at) : 1) * decay_at(d, old, at)); });
       }},
      {"filter-without-drift",
       [](const Design&, const Design&, Arrays& in) {
         in["beta"] = per_token([&](std::size_t at) { return 1 / in.at("noise").data[at]; });
       }},
      {"square-of-two",
       [](const Design& d, const Design&, Arrays& in) {
         for (double& x : in.at(oracle::step_name(d)).data) x *= 2;
       }},
      {"repeated-steps",
       [](const Design& d, const Design& after, Arrays& in) {
         const double n = d.solver.steps;
         const Arrays old = in;
         in[oracle::step_name(after)] = per_token([&](std::size_t at) {
           const double x = step_at(d, old, at), square = square_at(d, old, at);
           if (d.solver.rule == Solver::Rule::flow) return n * x;
           if (after.solver.rule == Solver::Rule::nlms) return 1 - std::pow(1 - x, n);
           return (1 - std::pow(1 - size_of_step(d, old, at) * square, n)) / square;
         });
       }},
      {"step-of-nlms", step_of_the_rule},
      {"step-of-longhorn", step_of_the_rule},
      {"step-of-flow", step_of_the_rule},
      {"weight-decay",
       [](const Design& d, const Design&, Arrays& in) {
         const Arrays old = in;
         const auto a = [&](std::size_t at) {
           const double beta = d.solver.decay_kind == Solver::Decay::leak ? step_at(d, old, at) : 1;
           return 1 - beta * decay_at(d, old, at);
         };
         in["g"] = per_token([&](std::size_t at) { return std::log(a(at)); });
         in["beta"] = per_token([&](std::size_t at) { return step_at(d, old, at) / a(at); });
         for (std::size_t i = 0; i < in["v"].data.size(); ++i) in["v"].data[i] *= a(i / V);
       }},
      {"importance-of-a-sum",
       [](const Design& d, const Design&, Arrays& in) {
         const bool exponential = d.weights.importance == Weights::Importance::exponential;
         for (std::size_t i = 0; i < in["v"].data.size(); ++i)
           in["v"].data[i] *= exponential                    ? std::exp(in.at("i").data[i / V])
                              : d.weights.beta.is_constant() ? d.weights.beta.value
                                                             : in.at("beta").data[i / V];
       }},
      {"norm-of-keys",
       [](const Design& d, const Design&, Arrays& in) {
         for (const char* name : {"q", "k"}) {
           std::vector<double>& x = in.at(name).data;
           for (std::size_t i = 0; i < x.size(); i += K) {
             const Vec<double> row =
                 oracle::normalised(d.extras.keys, Vec<double>(x.begin() + static_cast<std::ptrdiff_t>(i),
                                                               x.begin() + static_cast<std::ptrdiff_t>(i + K)));
             std::copy(row.begin(), row.end(), x.begin() + static_cast<std::ptrdiff_t>(i));
           }
         }
       }},
      {"constant-decay",
       [](const Design& d, const Design& after, Arrays& in) {
         if (d.weights.decay.is_constant() && !after.weights.decay.is_constant())
           in["g"] = Array{{H}, std::vector<double>(H, std::log(d.weights.decay.value))};
         else in["g"] = per_token([&](std::size_t) { return std::log1p(-d.solver.decay.value); });
       }},
      {"decay-as-gate",
       [](const Design&, const Design&, Arrays& in) {
         in["g"] = per_token([g = in.at("g")](std::size_t at) { return g.data[at % H]; });
       }},
  };
  return list;
}

/// A state with nothing seen, and networks with weights.
Arrays fresh(const Design& d) {
  Arrays state = oracle::fresh_state(d, sizes);
  for (auto& [name, array] : state)
    if (name.size() == 2 && (name[0] == 'W' || name[0] == 'b') && std::isdigit(static_cast<unsigned char>(name[1]))) {
      oracle::cases::Random random(static_cast<std::uint64_t>(name[0] * 64 + name[1]));
      for (double& x : array.data) x = 0.4 * random.normal();
    }
  return state;
}

std::vector<double> solved(const Design& d, const Arrays& inputs) {
  Arrays own;
  for (const DesignInput& input : inputs_of(d))
    if (inputs.count(input.name)) own[input.name] = inputs.at(input.name);
  Arrays state = fresh(d);
  return oracle::forward(d, sizes, own, state).at("o").data;
}

/// A step that is too long makes the answers grow without end; what is left of them then is rounding.
bool diverged(const std::vector<double>& o) {
  return std::any_of(o.begin(), o.end(), [](double x) { return !(std::abs(x) < 1e4); });
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (diverged(a) && diverged(b)) return 0;
  double largest = 1e-300, error = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max({largest, std::abs(a[i]), std::abs(b[i])});
    error = std::max(error, std::abs(a[i] - b[i]));
  }
  return error / largest;
}

/// Each link of the chain: the design before and after it give the same numbers. Returns the inputs at its end.
Arrays expect_chain_holds(const Recipe& recipe, const Chain& chain, const Arrays& start) {
  Design before = interpret(recipe);
  std::string text = to_string(recipe);
  Arrays in = start;
  for (const Rewriting& link : chain) {
    Arrays next = in;
    if (!link.inputs.empty()) changes().at(link.rule->name)(before, link.design, next);
    EXPECT_LT(difference(solved(before, in), solved(link.design, next)), tolerance)
        << text << " is not " << to_string(link.recipe) << " by " << link.rule->name;
    before = link.design, text = to_string(link.recipe), in = std::move(next);
  }
  return in;
}

Arrays inputs_for(const Recipe& recipe, std::uint64_t seed = 7) {
  Arrays in = oracle::cases::random_inputs(interpret(recipe), sizes, seed);
  return in;
}

/// The recipe becomes `last` by the rule `name` (among others), and all links of the chain hold in numbers.
void expect_equal(const std::string& text, std::string_view name, const std::string& last) {
  SCOPED_TRACE(text);
  const Recipe recipe = parse_recipe(text);
  Chain chain = rewritten(recipe);
  const auto found = std::find_if(chain.begin(), chain.end(), [&](const Rewriting& link) {
    return link.rule->name == name && to_string(link.recipe) == last;
  });
  ASSERT_NE(found, chain.end()) << "no link " << name << " to " << last;
  expect_chain_holds(recipe, chain, inputs_for(recipe));
}

/// `derive` lists the layer, with or without other inputs.
void expect_derived(const std::string& text, const std::string& equal) {
  const Derivation d = derive(parse_recipe(text));
  std::vector<std::string> all = d.equals;
  all.insert(all.end(), d.equals_with.begin(), d.equals_with.end());
  std::string list;
  for (const std::string& item : all) list += item + "; ";
  EXPECT_NE(std::find(all.begin(), all.end(), equal), all.end()) << text << " equals " << list << "not " << equal;
}

void expect_neighbour(const std::string& text, const std::string& neighbour) {
  const Derivation d = derive(parse_recipe(text));
  EXPECT_NE(std::find(d.neighbours.begin(), d.neighbours.end(), neighbour), d.neighbours.end())
      << text << " has no neighbour " << neighbour;
}

// Wang, Shi, Fox, Eq. 51.
TEST(Equalities, SoftmaxOfUnitKeysIsGaussianLocalConstantRegression) {
  const std::string soft = "near(exp) / constant / exact";
  expect_equal("near(gauss) / constant / exact | keys(unit)", "gaussian-of-one-length", soft + " | keys(unit)");
  expect_equal("near(gauss) / constant / exact | keys(rms)", "gaussian-of-one-length", soft + " | keys(rms)");
  expect_equal("near(gauss, bandwidth=0.5) * gate / constant / exact | keys(unit)", "gaussian-of-one-length",
               "near(exp, scale=4) * gate / constant / exact | keys(unit)");
  expect_equal("near(gauss) / local(1) / exact(ridge, relative) | keys(unit)", "gaussian-of-one-length",
               "near(exp) / local(1) / exact(ridge, relative) | keys(unit)");
  expect_equal("near(gauss) / constant / sgd(beta) | keys(unit)", "gaussian-of-one-length",
               "near(exp) / constant / sgd(beta) | keys(unit)");
  expect_equal("equal / kernel(gauss) / exact | keys(unit)", "gaussian-of-one-length",
               "equal / kernel(exp) / exact | keys(unit)");
  expect_derived("near(gauss) / constant / exact | keys(unit)",
                 "softmax-attention with q_t <- q_t/|q_t|, k_t <- k_t/|k_t|");
  // An absolute ridge does not scale with the weights: no equality.
  EXPECT_EQ(derive(parse_recipe("near(gauss) / local(1) / exact(ridge) | keys(unit)")).simplest,
            "near(gauss) / local(1) / exact(ridge) | keys(unit)");
}

// What belongs to no pair alone is a factor of all: it goes into the ridge or the step.
TEST(Equalities, TheGaussianKernelOfUnitKeysIsTheExponentialKernelWithAnotherRidge) {
  const auto number = [](double x) { return shortest(x) + ")"; };
  const double shared = std::exp(-2 / 4.0);
  expect_equal("equal / kernel(gauss, bandwidth=4) / exact(ridge=0.1) | keys(unit)", "gaussian-of-one-length",
               "equal / kernel(exp, scale=0.5) / exact(ridge=" + number(0.1 / shared) + " | keys(unit)");
  expect_equal("decay(0.9) / kernel(gauss, bandwidth=4) / cg(3, ridge=0.1) | keys(unit)", "gaussian-of-one-length",
               "decay(0.9) / kernel(exp, scale=0.5) / cg(3, ridge=" + number(0.1 / shared) + " | keys(unit)");
  expect_equal("equal / kernel(gauss) / cg(3) | keys(rms)", "gaussian-of-one-length",
               "equal / kernel(exp) / cg(3) | keys(rms)");
  expect_equal("equal / kernel(gauss, bandwidth=4) / sgd(beta=0.5) | keys(unit)", "gaussian-of-one-length",
               "equal / kernel(exp, scale=0.5) / sgd(beta=" + number(0.5 * shared) + " | keys(unit)");
  expect_equal("near(gauss, bandwidth=4) / local(1) / exact(ridge=0.1) | keys(unit)", "gaussian-of-one-length",
               "near(exp, scale=0.5) / local(1) / exact(ridge=" + number(0.1 / shared) + " | keys(unit)");
  expect_equal("near(gauss, bandwidth=4) / constant / gd(1) | keys(unit)", "gaussian-of-one-length",
               "near(exp, scale=0.5) / constant / gd(1, step=" + number(shared) + " | keys(unit)");
  // An input ridge, or a length that is no number, has no place for the factor.
  for (const char* text : {"equal / kernel(gauss) / exact(ridge) | keys(unit)",
                           "equal / kernel(gauss, bandwidth=4) / exact(ridge=0.1) | keys(rms)"})
    EXPECT_EQ(derive(parse_recipe(text)).simplest, text);
}

TEST(Equalities, KernelsOfTheDistance) {
  EXPECT_EQ(interpret(parse_recipe("near(matern12) / constant / exact")),
            interpret(parse_recipe("near(laplace) / constant / exact")));
  EXPECT_EQ(interpret(parse_recipe("equal / kernel(matern12, bandwidth=3) / exact(ridge)")),
            interpret(parse_recipe("equal / kernel(laplace, bandwidth=3) / exact(ridge)")));
  for (const std::string kernel : {"laplace", "matern32", "matern52"}) {
    expect_equal("gate / kernel(" + kernel + ", bandwidth=3) / gd(1)", "kernel-without-inverse",
                 "near(" + kernel + ", bandwidth=3) * gate / constant / gd(1)");
    // kappa(k, k) = 1: the residual of the newest pair shrinks by 1 - beta whatever the key.
    expect_equal("equal / kernel(" + kernel + ") / sgd(3, beta=0.5)", "repeated-steps",
                 "equal / kernel(" + kernel + ") / sgd(beta=0.875)");
  }
  // No two keys of length 1 are more than 2 apart.
  expect_equal("near(box, bandwidth=2) * decay(0.9) / constant / exact | keys(unit)", "box-around-everything",
               "decay(0.9) / constant / exact");
  expect_equal("near(box) / linear / exact(ridge) | keys(rms)", "box-around-everything",
               "equal / linear / exact(ridge) | keys(rms)");
  expect_equal("near(box) / kernel(gauss) / exact(ridge) | keys(unit)", "box-around-everything",
               "equal / kernel(gauss) / exact(ridge) | keys(unit)");
  expect_derived("near(box) / linear / gd(1) | keys(unit)",
                 "linear-attention with q_t <- q_t/|q_t|, k_t <- k_t/|k_t|");
  expect_equal("near(nearest=4) * window(3) / constant / exact", "nearest-of-few", "window(3) / constant / exact");
  expect_equal("near(nearest=3) * window(3) / linear / exact(ridge)", "nearest-of-few",
               "window(3) / linear / exact(ridge)");
  expect_equal("near(epanechnikov, bandwidth=2) * gate / constant / gd(1) | keys(unit)", "epanechnikov-of-unit-keys",
               "gate / kernel(polynomial, degree=1) / gd(1, step=0.5) | keys(unit)");
  for (const char* text :
       {"near(box, bandwidth=1.9) / constant / exact | keys(unit)", "near(box, bandwidth=9) / constant / exact",
        "near(nearest=2) * window(3) / constant / exact", "near(epanechnikov) / constant / gd(1)"})
    EXPECT_EQ(derive(parse_recipe(text)).simplest, text);
}

// Wang, Shi, Fox, Eq. 44-47.
TEST(Equalities, UnnormalisedSoftmaxIsKernelRegressionWithoutTheInverse) {
  const std::string text = "equal / kernel(exp) / gd(1)";
  expect_equal(text, "kernel-without-inverse", "near(exp) / constant / gd(1)");
  expect_equal("window(4) * decay(0.9) / kernel(gauss, bandwidth=3) / gd(1, step=0.5)", "kernel-without-inverse",
               "near(gauss, bandwidth=3) * decay(0.9) * window(4) / constant / gd(1, step=0.5)");
  expect_derived(text, "unnormalised-softmax");
  expect_neighbour(text, "kernel-regression (solver: exact(ridge))");
  expect_neighbour(text, "softmax-attention (solver: exact)");
  expect_neighbour("near(exp) / constant / gd(1)", "kernel-regression (solver: exact(ridge))");
}

TEST(Equalities, SgdOnTheDotLossIsLinearAttention) {
  expect_equal("equal / linear / sgd | dot", "dot-by-pairs", "equal / linear / gd(1)");
  expect_equal("equal / linear / sgd(beta) | dot", "dot-by-pairs", "equal(beta) / linear / gd(1)");
  expect_equal("equal / linear(elu1) / sgd(3, beta=0.5) | dot", "dot-by-pairs",
               "equal(beta=1.5) / linear(elu1) / gd(1)");
  expect_equal("equal / linear / sgd(3, nlms) | dot", "dot-by-pairs", "equal(beta) / linear / gd(1)");
  expect_equal("equal / kernel(gauss) / sgd(beta) | dot", "dot-by-pairs", "equal(beta) / kernel(gauss) / gd(1)");
  expect_equal("equal / linear / minibatch(4, rate=0.5, shrink) | dot", "dot-by-pairs",
               "gate(beta=0.5) / linear / gd(1)");
  expect_equal("equal / linear / gd(3, step=0.5) | dot", "steps-of-a-constant-gradient",
               "equal / linear / gd(1, step=1.5) | dot");
  expect_equal("gate / linear / gd(3, step) | dot", "steps-of-a-constant-gradient",
               "gate / linear / gd(1, step) | dot");
  expect_equal("equal / linear / gd(1) | dot", "dot-from-zero", "equal / linear / gd(1)");
  expect_derived("equal / linear / sgd | dot", "linear-attention");
  expect_derived("equal / linear / sgd(beta) | dot", "linear-attention with v_t <- beta_t v_t");
}

TEST(Equalities, SgdOnTheDotLossWithDecayIsRetention) {
  expect_equal("equal / linear / sgd(decay=0.02) | dot", "dot-by-pairs", "decay(0.98) / linear / gd(1)");
  expect_derived("equal / linear / sgd(decay=0.02) | dot", "retnet with g <- log 0.98");
  expect_derived("equal / linear / sgd(decay=0.02) | dot", "lightning-attention with g <- log 0.98");
  expect_equal("equal / linear / sgd(beta=0.5, leak=0.1) | dot", "dot-by-pairs",
               "decay(0.95, beta=0.5) / linear / gd(1)");
  expect_equal("equal / linear / sgd(beta=0.5, shrink=0.25) | dot", "dot-by-pairs",
               "decay(0.75, beta=0.5) / linear / gd(1)");
}

TEST(Equalities, SgdOnTheDotLossWithGatesIsMamba2AndSimpleGla) {
  expect_equal("equal / linear / sgd(beta, decay) | dot", "dot-by-pairs", "gate(beta) / linear / gd(1)");
  expect_equal("equal / linear / sgd(beta, leak) | dot", "dot-by-pairs", "gate(beta) / linear / gd(1)");
  expect_equal("equal / linear / sgd(beta, shrink) | dot", "dot-by-pairs", "gate(beta) / linear / gd(1)");
  expect_equal("equal / linear / sgd(decay(key)) | dot", "dot-by-pairs", "gate(key) / linear / gd(1)");
  expect_equal("equal / linear / sgd(beta, decay(value)) | dot", "dot-by-pairs",
               "gate(value, beta) / linear / gd(1)");
  expect_derived("equal / linear / sgd(beta, decay) | dot", "mamba-2");
  expect_derived("equal / linear / sgd(beta, decay) | dot", "simple-gla with v_t <- beta_t v_t");
  expect_derived("equal / linear / sgd(decay) | dot", "simple-gla");
  expect_derived("equal / linear / sgd(decay(key)) | dot", "gla");
}

TEST(Equalities, StepsOnOnePairAreOneStep) {
  expect_equal("equal / linear / sgd(3, beta)", "repeated-steps", "equal / linear / sgd(beta)");
  expect_equal("equal / linear(taylor2) / sgd(3, beta=0.1)", "repeated-steps", "equal / linear(taylor2) / sgd(beta)");
  expect_equal("equal / linear / sgd(4, longhorn, decay)", "repeated-steps", "equal / linear / sgd(beta, decay)");
  expect_equal("equal / linear / sgd(4, nlms, eps=0.1)", "repeated-steps", "equal / linear / sgd(beta)");
  expect_equal("equal / linear / sgd(4, nlms)", "repeated-steps", "equal / linear / sgd(nlms)");
  expect_equal("equal / linear / sgd(2, nlms=0.5)", "repeated-steps", "equal / linear / sgd(nlms=0.75)");
  expect_equal("equal / linear / sgd(3, flow)", "repeated-steps", "equal / linear / sgd(flow)");
  expect_equal("equal / linear / sgd(2, beta=0.5) | keys(unit)", "repeated-steps",
               "equal / linear / sgd(beta=0.75) | keys(unit)");
  expect_equal("equal / constant / sgd(2, beta=0.5)", "repeated-steps", "equal / constant / sgd(beta=0.75)");
  expect_equal("equal / kernel(exp) / sgd(2, beta)", "repeated-steps", "equal / kernel(exp) / sgd(beta)");
  expect_derived("equal / linear / sgd(3, beta)",
                 "deltanet with beta_t <- (1 - (1 - b |k_t|^2)^3)/|k_t|^2, b = beta_t");
  expect_derived("equal / linear / sgd(3, flow)", "efla with beta_t <- 3 beta_t");
}

TEST(Equalities, NlmsIsTheAffineProjectionOfOrderOne) {
  expect_equal("equal / linear / apa(1, mu)", "projection-on-one", "equal / linear / sgd(nlms)");
  expect_equal("equal / linear(relu) / apa(1, eps=0.5)", "projection-on-one",
               "equal / linear(relu) / sgd(nlms=1, eps=0.5)");
  expect_derived("equal / linear / apa(1, mu)", "nlms");
}

TEST(Equalities, StepRulesAreDeltaRules) {
  expect_equal("equal / linear / sgd(nlms)", "step-of-nlms", "equal / linear / sgd(beta)");
  expect_equal("equal / linear(polynomial) / sgd(longhorn=0.3, decay)", "step-of-longhorn",
               "equal / linear(polynomial) / sgd(beta, decay)");
  expect_equal("equal / linear / sgd(flow)", "step-of-flow", "equal / linear / sgd(beta)");
  expect_equal("equal / linear / sgd(longhorn=3) | keys(unit)", "step-rule-of-unit-keys",
               "equal / linear / sgd(beta=0.75) | keys(unit)");
  expect_derived("equal / linear / sgd(nlms)", "deltanet with beta_t <- mu_t/|k_t|^2");
  expect_derived("equal / linear / sgd(longhorn)", "deltanet with beta_t <- delta_t/(1 + delta_t|k_t|^2)");
}

TEST(Equalities, WeightDecayIsAGate) {
  expect_equal("equal / linear / sgd(beta, leak)", "weight-decay", "equal / linear / sgd(beta, decay)");
  expect_equal("equal / linear / sgd(leak=0.1)", "weight-decay", "equal / linear / sgd(beta, decay)");
  expect_equal("equal / linear / sgd(beta, shrink)", "weight-decay", "equal / linear / sgd(beta, decay)");
}

TEST(Equalities, TheLinearKernelIsTheDualOfTheLinearMap) {
  expect_equal("equal / kernel(linear) / exact(ridge)", "dual-form", "equal / linear / exact(ridge)");
  expect_equal("gate(beta) / kernel(linear) / exact(ridge, relative)", "dual-form",
               "gate(beta) / linear / exact(ridge, relative)");
  expect_equal("window(5) / kernel(linear) / gd(3, step=0.1)", "dual-form", "window(5) / linear / gd(3, step=0.1)");
  expect_equal("equal / kernel(linear) / sgd(nlms, leak)", "dual-form", "equal / linear / sgd(nlms, leak)");
  // The least norm: 9 pairs of 3 keys have more than one exact solution first, and none later.
  expect_equal("equal / kernel(linear) / exact", "dual-form", "equal / linear / exact");
  expect_equal("decay(0.8) / kernel(linear) / exact", "dual-form", "decay(0.8) / linear / exact");
  expect_derived("equal / kernel(linear) / exact", "rls");
}

TEST(Equalities, AFilterWithoutDriftIsLeastSquares) {
  expect_equal("equal / linear / kalman", "filter-without-drift", "equal / linear / exact(ridge=1)");
  expect_equal("equal / linear / kalman(noise=0.5)", "filter-without-drift", "equal / linear / exact(ridge=0.5)");
  expect_equal("equal / linear / kalman(process=0, noise)", "filter-without-drift",
               "equal(beta) / linear / exact(ridge=1)");
}

TEST(Equalities, ChoicesWithoutEffect) {
  expect_equal("gate / linear / sgd(beta)", "weights-of-the-newest", "equal / linear / sgd(beta)");
  expect_equal("decay(1) / linear / gd(1)", "decay-of-one", "equal / linear / gd(1)");
  expect_equal("equal / linear / sgd(beta=1, leak=0, momentum=0, nesterov)", "numbers-without-effect",
               "equal / linear / sgd");
  expect_equal("equal / mlp / sgd(beta=0.1, qnorm=2)", "numbers-without-effect", "equal / mlp / sgd(beta=0.1)");
  expect_equal("near(exp) / local(0) / exact(ridge)", "order-zero", "near(exp) / constant / exact(ridge)");
  expect_equal("near(exp) / constant / exact(ridge)", "ridge-of-a-mean", "near(exp) / constant / exact");
  expect_equal("equal / linear / exact(ridge, fading)", "fading-of-nothing", "equal / linear / exact(ridge)");
  expect_equal("equal / mlp / minibatch(1, rate, shrink)", "blocks-of-one", "equal / mlp / sgd(beta, shrink)");
  expect_equal("equal / mlp / sgd(beta=0.1) | lp(2)", "square-of-two", "equal / mlp / sgd(beta=0.2)");
  expect_equal("equal / linear / sgd(nlms, decay) | lp(2)", "square-of-two", "equal / linear / sgd(nlms, decay)");
  // A block of one takes the gradient before the decay.
  EXPECT_EQ(derive(parse_recipe("equal / mlp / minibatch(1, decay)")).simplest, "equal / mlp / minibatch(1, decay)");
}

TEST(Equalities, OtherInputs) {
  expect_equal("gate(exponential) / linear / gd(1)", "importance-of-a-sum", "gate / linear / gd(1)");
  expect_equal("near(exp) * equal(beta=0.5) / constant / gd(1)", "importance-of-a-sum",
               "near(exp) / constant / gd(1)");
  expect_equal("equal / linear / sgd(beta) | keys(rms)", "norm-of-keys", "equal / linear / sgd(beta)");
  expect_equal("equal / linear / sgd(beta, decay=0.1)", "constant-decay", "equal / linear / sgd(beta, decay)");
  expect_equal("decay(0.9) / linear / exact(ridge)", "constant-decay", "decay(g) / linear / exact(ridge)");
  expect_equal("decay(g) / linear / gd(1)", "decay-as-gate", "gate / linear / gd(1)");
}

// What only the oracle would have runs on the kernel of an equal recipe, if that asks for the same inputs.
TEST(Equalities, EqualRecipesRunOnKernels) {
  const Shape shape{.batch = 1, .heads = 2, .key_dim = 3, .value_dim = 4};
  const auto kernel = [&](const std::string& text, const Options& options = {}) {
    const std::string name = plan(text, shape, options).kernel();
    return name.substr(0, name.find('/'));
  };
  EXPECT_EQ(kernel("equal / kernel(exp) / gd(1)"), "attention");
  EXPECT_EQ(kernel("gate / kernel(gauss) / gd(1)"), "attention");
  EXPECT_EQ(kernel("equal / linear / sgd(2, nlms=0.5)"), "delta");
  EXPECT_EQ(kernel("equal / linear / gd(2) | dot"), "decay");
  EXPECT_EQ(kernel("near(exp) / constant / exact(ridge)"), "oracle");             // it has a ridge, the mean has not
  EXPECT_EQ(kernel("equal / kernel(exp) / gd(1)", {.scale = 0.5}), "attention");  // claimed as it is
  // A scale is not the same for both.
  EXPECT_EQ(kernel("equal / linear / gd(2) | dot", {.scale = 0.5}), "oracle");
  EXPECT_EQ(kernel("equal / kernel(exp) / gd(1)", {.kernel = "oracle"}), "oracle");
}

// p = 0 and p = 1, whatever the ridge on the slope.
TEST(Equalities, LocalPolynomialsOfOtherOrdersAreNeighbours) {
  expect_neighbour("near(exp) / constant / exact", "local-linear-attention (memory: local(1))");
  expect_neighbour("near(exp) / local(1) / exact(ridge, relative)", "softmax-attention (memory: constant)");
  expect_neighbour("near(exp) / local(1) / exact", "softmax-attention (memory: constant)");
  expect_neighbour("near(exp) / local(2) / exact(ridge)", "local-linear-attention (memory: local(1))");
}

TEST(Equalities, EveryRuleIsUsedAndEveryChangeOfInputsBelongsToARule) {
  std::set<std::string_view> names;
  for (const EqualityRule& rule : equality_rules()) EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
  for (const auto& [name, change] : changes()) EXPECT_TRUE(names.count(name)) << name;
  std::set<std::string_view> used;
  for (std::uint64_t seed = 0; seed < 20'000; ++seed)
    for (const Rewriting& link : rewritten(random_recipe(seed))) used.insert(link.rule->name);
  used.insert("square-of-two");     // random powers are never 2; tested above
  used.insert("step-of-longhorn");  // none of these seeds draws one that it applies to; tested above
  for (const std::string_view name : names) EXPECT_TRUE(used.count(name)) << "no random recipe meets " << name;
}

// The table of docs/recipes.md, whose rows are printed where they are absent.
TEST(Equalities, EveryRuleHasItsRow) {
  std::ifstream file(std::string(TTR_SOURCE_DIR) + "/docs/recipes.md");
  std::ostringstream docs;
  docs << file.rdbuf();
  for (const EqualityRule& rule : equality_rules()) {
    std::string why;
    for (const char c : render(rule.because, Notation::plain))
      why += c == '|' ? std::string("\\|") : std::string(1, c);
    const std::string row = "| " + std::string(rule.name) + " | " + why + " | " + std::string(rule.source) + " |\n";
    EXPECT_NE(docs.str().find(row), std::string::npos) << row;
  }
}

// Rules that are too wide show here: whatever the recipe, all links of its chain hold.
TEST(Equalities, ChainsOfRandomRecipesHold) {
  int links = 0;
  for (std::uint64_t seed = 0; links < 400; ++seed) {
    const Recipe recipe = random_recipe(seed);
    const Chain chain = rewritten(recipe);
    const Design design = interpret(recipe);
    // Both sides of a nearly singular system are right to fewer digits: its condition is 1 over the ridge.
    const auto tiny = [](const Quantity& q) { return q.is_constant() && q.value > 0 && q.value < 1e-3; };
    if (tiny(design.solver.ridge) || tiny(design.solver.noise)) continue;
    if (chain.empty() || design.solver.pairs > 1 || design.solver.steps > 40 || design.memory.residual) continue;
    ASSERT_LT(chain.size(), 30u) << to_string(recipe);
    links += static_cast<int>(chain.size());
    expect_chain_holds(recipe, chain, inputs_for(recipe, seed));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace ttr
