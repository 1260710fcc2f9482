// Recipes: parsing, printing, the meaning of words, derivations, and docs/recipes.md against the table of words and
// the list of layers. Errors: recipe_errors_test.cc; random recipes: recipe_property_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "recipe/derive.h"
#include "recipe/design.h"
#include "recipe/markup.h"
#include "recipe/words.h"
#include "ttr/recipe.h"
#include "ttr/status.h"

namespace ttr {
namespace {

using Named = std::vector<NamedRecipe>;

/// Every layer of the literature that is a regression, by name and canonical recipe: the table of docs/recipes.md.
const Named& layer_recipes() {
  static const Named list = {
      {"linear-attention", "equal / linear / gd(1)"},
      {"linear-attention-normalised", "equal / linear / gd(1) | normalise(keysum, eps=1e-10)"},
      {"fast-weights", "equal / linear / gd(1) | dot"},
      {"linear-associator", "equal / linear / exact"},
      {"dense-associative-memory", "equal / kernel(polynomial, degree=3) / gd(1)"},
      {"memory-mosaics", "near(gauss) / constant / exact | keys(unit)"},
      {"linear-attention-elu", "equal / linear(elu1) / gd(1) | normalise(keysum)"},
      {"t2r", "equal / linear(relu) / gd(1) | normalise(keysum, eps=1e-6)"},
      {"silu-attention", "equal / linear(silu) / gd(1)"},
      {"polynomial-regression", "equal / linear(polynomial, degree=2) / gd(1)"},
      {"dpfp", "equal / linear(dpfp, degree=1) / gd(1) | normalise(keysum)"},
      {"based", "equal / linear(taylor2) / gd(1) | normalise(keysum, eps=1e-6)"},
      {"rebased", "equal / linear / gd(1) | normalise(keysum, eps=1e-6)"},
      {"hedgehog", "equal / linear / gd(1) | normalise(keysum, eps=1e-6)"},
      {"performer", "equal / linear / gd(1) | normalise(keysum)"},
      {"cosformer", "equal / linear(cosformer) / gd(1) | normalise(keysum, eps=1e-6)"},
      {"rfa", "equal / linear / gd(1) | normalise(keysum), keys(unit)"},
      {"hadamard", "equal / linear / gd(1)"},
      {"dijiang", "decay(g) / linear / gd(1)"},
      {"simple-gla", "gate / linear / gd(1)"},
      {"retnet", "decay(g) / linear / gd(1)"},
      {"lightning-attention", "decay(g) / linear / gd(1)"},
      {"gated-retention", "gate / linear / gd(1)"},
      {"mamba-2", "gate(beta) / linear / gd(1)"},
      {"mamba-2-negative", "gate(signed, beta) / linear / gd(1)"},
      {"mlstm", "gate(exponential) / linear / gd(1) | normalise(max)"},
      {"mamba-3", "gate(trapezoid) / linear / gd(1)"},
      {"gla", "gate(key) / linear / gd(1)"},
      {"gla-negative", "gate(key, signed) / linear / gd(1)"},
      {"gla-value-gate", "gate(key, value) / linear / gd(1)"},
      {"hgrn-2", "gate(key) / linear / gd(1)"},
      {"lightnet", "gate(key) / linear / gd(1)"},
      {"rodimus", "gate(key) / linear / gd(1)"},
      {"gateloop", "gate(key, complex) / linear / gd(1)"},
      {"rwkv-6", "gate(key) / linear / gd(1) | read(before, bonus)"},
      {"rwkv-5", "gate(key) / linear / gd(1) | read(before, bonus)"},
      {"hgrn", "gate(value) / vector / gd(1)"},
      {"lru", "gate(value, complex) / vector / gd(1)"},
      {"rg-lru", "gate(value) / vector / gd(1)"},
      {"rwkv-4", "gate(value, exponential) / constant(channel) / exact | read(before, bonus)"},
      {"mamba-1", "gate(full) / linear / gd(1)"},
      {"mamba-1-negative", "gate(full, signed) / linear / gd(1)"},
      {"longhorn-released", "gate(full) / linear / gd(1)"},
      {"deltanet", "equal / linear / sgd(beta)"},
      {"leaky-lms", "equal / linear / sgd(beta, leak)"},
      {"decoupled-decay", "equal / linear / sgd(beta, shrink)"},
      {"nlms", "equal / linear / sgd(nlms)"},
      {"longhorn", "equal / linear / sgd(longhorn)"},
      {"efla", "equal / linear / sgd(flow)"},
      {"kaczmarz-linear-attention", "equal / linear / sgd(nlms, eps=1e-6, decay)"},
      {"gated-deltanet", "equal / linear / sgd(beta, decay)"},
      {"kda", "equal / linear / sgd(beta, decay(key))"},
      {"gdn-2", "equal / linear / sgd(split, decay(key))"},
      {"comba", "equal / linear / sgd(beta, decay, feedback)"},
      {"preconditioned-gdn", "equal / linear / sgd(beta, decay, precondition)"},
      {"preconditioned-kda", "equal / linear / sgd(beta, decay(key), precondition)"},
      {"gated-oja", "equal / linear(reverse) / sgd(beta, decay(value))"},
      {"momentum-deltanet", "equal / linear / sgd(beta, decay, momentum, gain, feedback)"},
      {"mom", "equal / linear / sgd(beta, decay)"},
      {"deltaproduct", "equal / linear / sgd(beta, pairs=2)"},
      {"gated-deltaproduct", "equal / linear / sgd(beta, decay, pairs=2)"},
      {"iplr", "equal / linear / sgd(dplr)"},
      {"dplr", "equal / linear / sgd(dplr, decay(key))"},
      {"rwkv-7", "equal / linear / sgd(dplr, decay(key))"},
      {"intention", "equal / linear / exact(ridge)"},
      {"rls", "equal / linear / exact"},
      {"weighted-rls", "decay(0.98) / linear / exact(ridge=0.001, fading)"},
      {"mesa", "equal / linear / exact(ridge)"},
      {"mesanet", "gate(beta) / linear / exact(ridge(key))"},
      {"mesanet-cg", "gate(beta) / linear / cg(30, ridge(key))"},
      {"gated-kalmanet", "gate / linear / chebyshev(30, ridge=0.02, frobenius) | blend"},
      {"gated-rls", "gate(beta) / linear / exact(ridge)"},
      {"apa", "equal / linear / apa(4, mu, eps=1e-6)"},
      {"kalman", "equal / linear / kalman(process, noise)"},
      {"heavy-ball", "equal / linear / sgd(beta, momentum)"},
      {"nesterov", "equal / linear / sgd(beta, momentum, nesterov)"},
      {"huber-lms", "equal / linear / sgd(beta) | huber(c)"},
      {"sliding-window-rls", "window(64) / linear / exact(ridge=0.001)"},
      {"kernel-rls", "window(64) / kernel(gauss) / exact(ridge=0.1)"},
      {"kernel-lms", "equal / kernel(gauss) / sgd(beta)"},
      {"local-quadratic", "near(exp) / local(2) / exact(ridge)"},
      {"four-batch-steps", "equal / linear / gd(4, step=auto)"},
      {"exponential-smoothing", "equal / constant / sgd(beta)"},
      {"kernel-regression", "equal / kernel(exp) / exact(ridge)"},
      {"unnormalised-softmax", "equal / kernel(exp) / gd(1)"},
      {"soft", "near(gauss) / constant / gd(1)"},
      {"skyformer", "near(gauss) / constant / gd(1)"},
      {"softmax-attention", "near(exp) / constant / exact"},
      {"softmax-attention-window", "near(exp) * window(128) / constant / exact"},
      {"softmax-attention-sink", "near(exp, sink) / constant / exact"},
      {"local-linear-attention", "near(exp) / local(1) / exact(ridge, relative)"},
      {"fox", "near(exp) * gate / constant / exact"},
      {"parallax", "near(exp) / local(1) / given"},
      {"path", "near(exp, transport) * gate / constant / exact"},
      {"deltaformer", "near(exp) / constant / sgd(beta)"},
      {"wall", "near(exp) * gate(key) / constant / exact"},
      {"log-linear", "gate * levels / linear / gd(1)"},
      {"ttt-linear", "equal / layernorm(linear, bias, residual) / minibatch(16, rate)"},
      {"ttt-mlp", "equal / mlp(4x, gelu_tanh, bias, residual, layernorm) / minibatch(16, rate)"},
      {"titans", "equal / mlp(2, residual, layernorm) / minibatch(64, rate, momentum, shrink)"},
      {"titans-linear", "equal / linear / sgd(beta, momentum, shrink)"},
      {"lact", "equal / swiglu / minibatch(2048, rate, momentum, muon, rownorm) | dot, read(before)"},
      {"moneta", "equal / mlp(2) / sgd(beta, decay, qnorm=4) | lp(3)"},
      {"yaad", "equal / mlp(2) / sgd(beta, decay) | huber(c)"},
      {"memora", "equal / mlp(2) / sgd(beta, shrink, mirror=softmax)"},
      {"omeganet", "window(16) * equal(beta) / mlp(2) / descend(1, momentum, decay)"},
      {"atlas", "window(16) * equal(beta) / mlp(2) / descend(1, momentum, decay, muon)"},
      {"gsa", "gate / slots(64) / gd(1)"},
      {"abc", "gate / slots(64) / gd(1)"},
      {"raven", "gate / slots(64) / gd(1)"},
  };
  return list;
}

/// Forms are told by the planner; tests/derive_test.cc has those of the program.
const PlanFacts& some_facts() {
  static const PlanFacts facts{true, {"step", "recurrent", "chunk"}, {"parallel: a reason", "scan: another one"}};
  return facts;
}

Derivation derived(const std::string& text, Notation notation = Notation::plain) {
  return derive(parse_recipe(text), notation, some_facts(), layer_recipes());
}

Design design_of(const std::string& text) { return interpret(parse_recipe(text)); }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

std::string joined(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& item : list) out += item + "\n";
  return out;
}

std::string documentation() {
  std::ifstream file(std::string(TTR_SOURCE_DIR) + "/docs/recipes.md");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

TEST(RecipeParse, CanonicalText) {
  const std::pair<const char*, const char*> cases[] = {
      {"equal/linear/gd(1)", "equal / linear / gd(1)"},
      {"  near( exp )*gate\t/\nconstant/exact|keys ( unit ),read", nullptr},
      {" near( exp )*gate\t/\nconstant/exact|keys ( unit )", "near(exp) * gate / constant / exact | keys(unit)"},
      {"equal() / linear() / sgd(beta(), decay( key ))", "equal / linear / sgd(beta, decay(key))"},
      {"equal / mlp(4x) / minibatch(16, momentum, decay)", "equal / mlp(4x) / minibatch(16, momentum, decay)"},
      {"equal / linear / exact(ridge=1e-3, relative)", "equal / linear / exact(ridge=0.001, relative)"},
      {"equal / linear / exact(ridge=0.0000001)", "equal / linear / exact(ridge=1e-7)"},
      {"equal / linear / exact(ridge=+1E2)", "equal / linear / exact(ridge=100)"},
      {"equal / linear / gd(1, step=auto)", "equal / linear / gd(1, step=auto)"},
      {"equal / linear / sgd(beta=.5)", "equal / linear / sgd(beta=0.5)"},
  };
  for (const auto& [text, canonical] : cases) {
    SCOPED_TRACE(text);
    if (canonical == nullptr) {
      EXPECT_THROW(parse_recipe(text), Error);
      continue;
    }
    const Recipe recipe = parse_recipe(text);
    EXPECT_EQ(to_string(recipe), canonical);
    EXPECT_TRUE(parse_recipe(canonical) == recipe);
  }
}

TEST(RecipeParse, TermsAndColumns) {
  const Recipe r = parse_recipe("window(8) * gate(beta) / linear / exact(ridge(key), relative) | blend");
  ASSERT_EQ(r.weights.size(), 2u);
  EXPECT_EQ(r.weights[1].word, "gate");
  EXPECT_EQ(r.weights[1].column, 13);
  EXPECT_EQ(r.solver.column, 35);
  const Argument* ridge = r.solver.find("ridge");
  ASSERT_NE(ridge, nullptr);
  EXPECT_EQ(ridge->column, 41);
  EXPECT_FALSE(ridge->is_number());
  EXPECT_EQ(std::get<Term>(ridge->value).arguments.at(0).key, "key");
  EXPECT_EQ(r.solver.find("frobenius"), nullptr);
  EXPECT_EQ(r.weights[0].find("")->number(), 8);
  EXPECT_FALSE(parse_recipe("equal / linear / gd(1)") == parse_recipe("equal / linear / gd(2)"));
  EXPECT_FALSE(parse_recipe("equal / linear / sgd(beta)") == parse_recipe("equal / linear / sgd(beta=1)"));
  EXPECT_TRUE(parse_recipe("equal/linear/gd(1)") == parse_recipe("  equal  /  linear  /  gd( 1 )"));
}

TEST(RecipeParse, RecipesBuiltByHand) {
  Recipe r;
  EXPECT_THROW(interpret(r), Error);
  r.weights = {Term{"equal", {}, 0}};
  r.memory = Term{"linear", {}, 0};
  r.solver = Term{"sgd", {Argument{"beta", 0.5, 0}}, 0};
  EXPECT_TRUE(parse_recipe(to_string(r)) == r);
  r.solver.arguments[0].value = std::nan("");
  try {
    validate(r);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.where(), "the recipe");
  }
}

TEST(RecipeMeaning, Quantities) {
  using From = Quantity::From;
  EXPECT_EQ(design_of("decay / linear / gd(1)"), design_of("decay(g) / linear / gd(1)"));
  EXPECT_EQ(design_of("decay(0.98) / linear / gd(1)").weights.decay.value, 0.98);
  EXPECT_EQ(design_of("equal / linear / sgd").solver.step.from, From::absent);
  EXPECT_EQ(design_of("equal / linear / sgd(beta)").solver.step.from, From::input);
  const Solver nlms = design_of("equal / linear / sgd(nlms=0.5, eps=1e-6, decay=0.01)").solver;
  EXPECT_EQ(nlms.rule, Solver::Rule::nlms);
  EXPECT_EQ(nlms.step.value, 0.5);
  EXPECT_EQ(nlms.eps, 1e-6);
  EXPECT_EQ(nlms.decay_kind, Solver::Decay::before);
  EXPECT_EQ(nlms.decay.value, 0.01);
  const Solver kda = design_of("equal / linear / sgd(beta, decay(key))").solver;
  EXPECT_EQ(kda.decay_per, Weights::Per::key);
  EXPECT_TRUE(kda.decay.is_input());
  EXPECT_EQ(design_of("equal / linear / gd(4, step=auto)").solver.rule, Solver::Rule::automatic);
  EXPECT_EQ(design_of("equal / linear / gd(4, step=auto)").solver.steps, 4);
  EXPECT_TRUE(design_of("equal / linear / gd(1, step)").solver.step.is_input());
  const Solver apa = design_of("equal / linear / apa(3, mu, eps=0.1)").solver;
  EXPECT_EQ(apa.batch, 3);
  EXPECT_EQ(apa.steps, 1);
  EXPECT_TRUE(apa.step.is_input());
  const Solver ridge = design_of("equal / linear / exact(ridge(token))").solver;
  EXPECT_EQ(ridge.ridge_per, Solver::RidgePer::token);
  EXPECT_EQ(design_of("equal / linear / exact(ridge=0.1, frobenius)").solver.ridge_kind,
            Solver::RidgeKind::frobenius);
  const Memory mlp = design_of("equal / mlp(3, width=7, tanh, bias) / gd(2)").memory;
  EXPECT_EQ(mlp.depth, 3);
  EXPECT_EQ(mlp.width, 7);
  EXPECT_EQ(mlp.activation, Memory::Activation::tanh);
  EXPECT_TRUE(mlp.bias);
  EXPECT_EQ(design_of("equal / mlp(4x) / gd(1)"), design_of("equal / mlp(2) / gd(1)"));
  EXPECT_EQ(design_of("gate(key, value) / linear / gd(1)").weights.per, Weights::Per::key_value);
  EXPECT_EQ(design_of("gate / slots(4) / gd(1)").weights.per, Weights::Per::slot);
  EXPECT_EQ(design_of("near(exp, scale=1) / constant / exact").weights.near_scale, 1);
  EXPECT_EQ(design_of("equal / linear / gd(1) | huber(c=2, coordinate)").extras.loss_parameter.value, 2);
  EXPECT_EQ(design_of("equal / linear / gd(1) | lp(3)").extras.loss_parameter.value, 3);
}

TEST(RecipeMeaning, InputsOfWellKnownLayers) {
  const auto names = [](const std::string& text) {
    std::string out;
    for (const InputInfo& input : canonical_inputs(design_of(text))) out += input.name + "[" + input.shape + "] ";
    return out;
  };
  EXPECT_EQ(names("equal / linear / sgd(beta, decay)"), "q[B T G K] k[B T G K] v[B T H V] g[B T H] beta[B T H] ");
  EXPECT_EQ(names("near(exp, sink) / constant / exact"), "q[B T H K] k[B T G K] v[B T G V] sink[H] ");
  EXPECT_EQ(names("decay(g) / linear / gd(1)"), "q[B T G K] k[B T G K] v[B T H V] g[H] ");
  EXPECT_EQ(names("decay(0.9) / linear / exact(ridge=1)"), "q[B T G K] k[B T G K] v[B T H V] ");
  EXPECT_EQ(names("gate(beta) / linear / cg(30, ridge(key))"),
            "q[B T G K] k[B T G K] v[B T H V] g[B T H] beta[B T H] ridge[H K] ");
  EXPECT_EQ(names("gate / linear / sgd(beta)"), names("equal / linear / sgd(beta)"));
  EXPECT_EQ(names("gate / slots(4) / gd(1)"), "q[B T G K] k[B T G K] v[B T H V] gs[B T H M] s[B T H M] ");
  EXPECT_TRUE(canonical_inputs(design_of("gate(value) / vector / gd(1)"))[0].optional);
  EXPECT_FALSE(canonical_inputs(design_of("equal / linear / gd(1)"))[0].optional);
}

TEST(RecipeMeaning, Remarks) {
  const std::vector<std::string> deltanet = validate(parse_recipe("gate / linear / sgd(beta)"));
  ASSERT_EQ(deltanet.size(), 1u);
  EXPECT_TRUE(contains(deltanet[0], "newest pair")) << deltanet[0];
  EXPECT_TRUE(contains(deltanet[0], "`equal / linear / sgd(beta, decay)`")) << deltanet[0];
  EXPECT_TRUE(contains(joined(validate(parse_recipe("gate(key) / linear / sgd(beta)"))), "sgd(beta, decay(key))"));
  EXPECT_TRUE(contains(joined(validate(parse_recipe("decay(0.98) / linear / sgd(beta)"))), "decay=0.02)"));
  EXPECT_TRUE(contains(joined(validate(parse_recipe("decay(1) / linear / gd(1)"))), "`equal`"));
  EXPECT_TRUE(contains(joined(validate(parse_recipe("near(exp) / local(0) / exact"))), "`constant`"));
  EXPECT_TRUE(contains(joined(validate(parse_recipe("equal / mlp / minibatch(1)"))), "`sgd`"));
  EXPECT_TRUE(validate(parse_recipe("equal / linear / sgd(beta, decay)")).empty());
  EXPECT_TRUE(validate(parse_recipe("gate / linear / gd(1)")).empty());
  // What a remark proposes must itself be valid.
  for (const char* text : {"gate / linear / sgd(beta)", "gate(value) / linear / sgd(nlms)",
                           "decay(g) / mlp / minibatch(4)", "decay(0.9) / linear / sgd(beta=0.1)"})
    for (const std::string& remark : validate(parse_recipe(text))) {
      const std::size_t begin = remark.find("write `") + 7;
      ASSERT_LT(begin, remark.size()) << remark;
      EXPECT_NO_THROW(parse_recipe(remark.substr(begin, remark.find('`', begin) - begin))) << remark;
    }
}

/// Neither `_` nor `^` nor `&` outside $...$ unless escaped; braces and dollars in pairs.
/// Commands are those of LaTeX with amsmath.
std::string latex_problem(const std::string& text) {
  static const std::set<std::string> kCommands = {
      "Delta",        "alpha",         "beta",   "binom", "cdot",   "cdots", "delta", "ell",
      "eta",          "iota",          "kappa",  "lVert", "lambda", "ldots", "le",    "log",
      "mathrm",       "max",           "min",    "mu",    "nabla",  "ne",    "odot",  "omega",
      "operatorname", "partial",       "phi",    "prod",  "rVert",  "rho",   "sqrt",  "sum",
      "text",         "textbackslash", "texttt", "tfrac", "theta",  "tilde", "top",   "leftarrow"};
  bool math = false;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\') {
      std::size_t end = i + 1;
      while (end < text.size() && std::isalpha(static_cast<unsigned char>(text[end]))) ++end;
      const std::string command = text.substr(i + 1, end - i - 1);
      if (!command.empty() && kCommands.count(command) == 0) return "unknown command " + command + " in " + text;
      i = command.empty() ? i + 1 : end - 1;
      continue;
    }
    if (c == '$') math = !math;
    if (c == '{') ++depth;
    if (c == '}' && --depth < 0) return "closing brace in " + text;
    if (!math && (c == '_' || c == '^' || c == '&' || c == '#' || c == '%'))
      return std::string(1, c) + " outside math in " + text;
    if (static_cast<unsigned char>(c) >= 0x80) return "not ASCII: " + text;
  }
  if (math) return "open $ in " + text;
  return depth == 0 ? "" : "open brace in " + text;
}

std::string plain_problem(const std::string& text) {
  return contains(text, "$") || contains(text, "\\") ? "LaTeX in " + text : "";
}

TEST(RecipeLayers, EveryLayerParsesAndDerives) {
  ASSERT_GT(layer_recipes().size(), 100u);
  std::set<std::string> names;
  for (const auto& [name, text, causal] : layer_recipes()) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(names.insert(name).second) << "listed twice";
    const Recipe recipe = parse_recipe(text);
    EXPECT_EQ(to_string(recipe), text);
    for (const Notation notation : {Notation::plain, Notation::latex}) {
      const Derivation d = derive(recipe, notation, some_facts(), layer_recipes());
      EXPECT_TRUE(contains(d.equals, name)) << joined(d.equals);
      for (const std::string& neighbour : d.neighbours)
        EXPECT_NE(neighbour.substr(0, neighbour.find(" (")), name) << "equal and a neighbour at once";
      for (const std::string* field :
           {&d.recipe, &d.objective, &d.gradient, &d.recurrence, &d.readout, &d.state_size, &d.cost_per_token}) {
        EXPECT_FALSE(field->empty());
        EXPECT_EQ(notation == Notation::latex ? latex_problem(*field) : plain_problem(*field), "");
      }
      for (const std::vector<std::string>* list :
           {&d.equals, &d.equals_with, &d.because, &d.neighbours, &d.remarks, &d.forms})
        for (const std::string& item : *list) EXPECT_EQ(notation == Notation::latex ? latex_problem(item) : "", "");
      EXPECT_EQ(d.forms, (std::vector<std::string>{"step", "recurrent", "chunk", "no parallel: a reason",
                                                   "no scan: another one"}));
    }
  }
}

TEST(RecipeDerive, RecurrencesOfTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {"equal / linear / gd(1)", "S_t = S_{t-1} + k_t v_t'"},
      {"gate / linear / gd(1)", "S_t = e^{g_t} S_{t-1} + k_t v_t'"},
      {"gate(beta) / linear / gd(1)", "S_t = e^{g_t} S_{t-1} + beta_t k_t v_t'"},
      {"gate(key) / linear / gd(1)", "S_t = diag(e^{gk_t}) S_{t-1} + k_t v_t'"},
      {"decay(0.9) / linear(elu1) / gd(1)", "S_t = 0.9 S_{t-1} + phi(k_t) v_t'"},
      {"equal / linear / sgd(beta)", "S_t = (I - beta_t k_t k_t') S_{t-1} + beta_t k_t v_t'"},
      {"equal / linear / sgd(beta, decay)", "S~ = e^{g_t} S_{t-1}, S_t = S~ + beta_t k_t (v_t - S~' k_t)'"},
      {"equal / linear / sgd(beta, leak)", "S_t = (1 - beta_t lambda_t) S_{t-1} + beta_t k_t (v_t - S_{t-1}' k_t)'"},
      {"equal / linear / sgd(nlms)", "b_t = mu_t/|k_t|^2"},
      {"equal / linear / sgd(longhorn)", "b_t = delta_t/(1 + delta_t|k_t|^2)"},
      {"equal / linear / sgd(beta, decay, feedback)", "S_t = S~ + beta_t k_t (v_t - S_{t-1}' p_t)'"},
      {"equal / linear / sgd(dplr, decay(key))", "S_t = diag(e^{gk_t}) S_{t-1} + b_t (a_t' S_{t-1}) + k_t v_t'"},
      {"equal / linear / sgd(beta, momentum)",
       "Z_t = momentum_t Z_{t-1} + beta_t k_t (v_t - S_{t-1}' k_t)', S_t = S_{t-1} + Z_t"},
      {"equal / linear / exact(ridge)", "kappa_t = P_{t-1} k_t/(1 + k_t' P_{t-1} k_t)"},
      {"gate(beta) / linear / exact(ridge, fading)", "kappa_t = P_{t-1} k_t/(a_t/beta_t + k_t' P_{t-1} k_t)"},
      {"gate / linear / exact(ridge)", "each token solves"},
      {"decay(0.98) / linear / exact", "kappa_t = P_{t-1} k_t/(0.98 + k_t' P_{t-1} k_t)"},
      {"gate / linear / exact", "P_t = (P_{t-1} - kappa_t (P_{t-1} k_t)')/a_t"},
      {"window(8) / kernel(gauss) / sgd(beta)", "f_{t-1}(x) = sum_{t-8<i<t} c_i kappa(k_i,x)"},
      {"equal / linear / gd(4)", "S_t = sum_{j<4} (I - H_t)^j F_t"},
      {"equal / linear / descend(2, step=0.1)", "S_t = (I - eta H_t)^2 S_{t-1} + eta sum_{j<2} (I - eta H_t)^j F_t"},
      {"window(8) / linear / gd(1)", "S_t = S_{t-1} + k_t v_t' - k_{t-8} v_{t-8}'"},
      {"equal / linear / kalman(process, noise)", "kappa_t = P k_t/(r_t + k_t' P k_t)"},
      {"equal / kernel(gauss) / sgd(beta)", "c_t = beta_t (v_t - f_{t-1}(k_t))"},
      {"gate / slots(8) / gd(1)", "Km_t = Km_{t-1} diag(e^{gs_t}) + k_t s_t'"},
      {"gate(value) / vector / gd(1)", "h_t = e^{gv_t} * h_{t-1} + v_t"},
      {"equal / linear / sgd(beta) | huber(c=1)", "min(1, 1/|v_t - S_{t-1}' k_t|)"},
  };
  for (const auto& [text, recurrence] : cases) {
    const Derivation d = derived(text);
    EXPECT_TRUE(contains(d.recurrence, recurrence)) << text << "\n" << d.recurrence;
  }
}

TEST(RecipeDerive, SizesCostsAndRelatives) {
  const Derivation linear = derived("equal / linear / gd(1)");
  EXPECT_EQ(linear.state_size, "KV");
  EXPECT_EQ(linear.cost_per_token, "2KV");
  EXPECT_TRUE(contains(linear.equals, "linear-attention"));
  EXPECT_TRUE(contains(linear.neighbours, "retnet (weights: decay(g))"));
  EXPECT_TRUE(contains(linear.neighbours, "deltanet (solver: sgd(beta))"));
  EXPECT_TRUE(contains(linear.neighbours, "performer (extra: normalise(keysum))"));
  EXPECT_FALSE(contains(joined(linear.neighbours), "softmax-attention "));  // differs in all three
  EXPECT_EQ(derived("equal / linear / exact").state_size, "K^2 + KV");
  EXPECT_EQ(derived("near(exp) / constant / exact").cost_per_token, "t(K + V)");
  EXPECT_EQ(derived("equal / linear / sgd(beta, momentum)").state_size, "2KV");
  EXPECT_EQ(derived("equal / linear / cg(30, ridge)").cost_per_token, "32K^2 + 3KV");
  // Numbers in front of numbers are products.
  EXPECT_EQ(derived("window(16) / kernel(gauss) / sgd(beta)").cost_per_token, "2*16*(K + V)");
  EXPECT_EQ(derived("window(16) / kernel(gauss) / gd(3)").cost_per_token, "3*16^2 + 16*(2K + V)");
  EXPECT_EQ(derived("equal / kernel(gauss) / gd(3)").cost_per_token, "3t^2 + t(2K + V)");
  EXPECT_EQ(derived("window(16) * near(exp, transport) / constant / exact").cost_per_token, "16*(K + V) + 2*16*K");
  EXPECT_EQ(derived("window(16) / constant / gd(3) | huber(c)").cost_per_token, "3*16*V");
  // The gate has no effect on per-pair steps: the same layer, and the remark says so.
  const Derivation gated = derived("gate / linear / sgd(beta)");
  EXPECT_TRUE(contains(gated.equals, "deltanet"));
  EXPECT_EQ(gated.remarks.size(), 1u);
  const Derivation without = derived("equal / linear / gd(1) | normalise(keysum)");
  EXPECT_TRUE(contains(without.neighbours, "linear-attention (extra: without normalise)"))
      << joined(without.neighbours);
}

TEST(RecipeDerive, LatexIsEscaped) {
  const Derivation d = derived("equal / mlp(4x, gelu_tanh) / minibatch(16) | dot", Notation::latex);
  EXPECT_EQ(d.recipe, "\\texttt{equal / mlp(4x, gelu\\_tanh) / minibatch(16) $|$ dot}");
  EXPECT_TRUE(
      contains(derived("equal / linear / sgd(beta)", Notation::latex).recurrence, "$S_t = S_{t-1} + \\beta_t"));
  EXPECT_EQ(render("$S_{t-1}^\\top q_t \\le \\tfrac12\\lVert x\\rVert^2$", Notation::plain),
            "S_{t-1}' q_t <=1/2 |x|^2");
}

TEST(RecipeWords, TableIsSound) {
  std::set<std::pair<Axis, std::string_view>> seen;
  for (const WordInfo& info : words()) {
    EXPECT_TRUE(seen.emplace(info.axis, info.word).second) << info.word;
    EXPECT_FALSE(info.formula.empty() || info.meaning.empty()) << info.word;
    EXPECT_EQ(find_word(info.axis, info.word), &info);
    std::set<std::string_view> names;
    int numbers = 0;
    for (const OptionInfo& option : info.options) {
      EXPECT_TRUE(names.insert(option.name).second) << info.word << " " << option.name;
      EXPECT_FALSE(option.formula.empty() || option.meaning.empty()) << info.word << " " << option.name;
      EXPECT_FALSE(spellings(option).empty());
      EXPECT_EQ((option.written & (as_word | as_call)) != 0, !option.words.empty())
          << info.word << " " << option.name;
      numbers += (option.written & as_number) != 0;
    }
    EXPECT_LE(numbers, 1) << info.word << " has two bare numbers";
  }
}

// Who a word is from: every word says so, and so does what decides a step, a map or a kernel.
TEST(RecipeWords, EveryWordHasASource) {
  std::set<std::tuple<Axis, std::string_view, std::string>> ways;  // words and options, and ways to write an option
  for (const WordInfo& info : words()) {
    ways.emplace(info.axis, info.word, "");
    EXPECT_FALSE(source_of(info.axis, info.word).value_or("").empty()) << info.word;
    for (const OptionInfo& option : info.options) {
      const std::string name(option.name);
      ways.emplace(info.axis, info.word, name);
      for (const std::string& word : split_words(option.words)) {
        ways.emplace(info.axis, info.word, name + "(" + word + ")");
        ways.emplace(info.axis, info.word, name + "=" + word);
      }
      const std::optional<std::string_view> source = source_of(info.axis, info.word, name);
      EXPECT_TRUE(source) << info.word << "(" << name << ")";
      for (const std::string_view group : {"step", "rule", "metric", "mirror", "feature", "kernel", "importance"})
        if (option.group == group) {
          EXPECT_FALSE(source.value_or("").empty()) << info.word << "(" << name << ")";
        }
    }
  }
  for (const SourceRow& row : source_rows()) {
    const bool used = std::any_of(ways.begin(), ways.end(), [&](const auto& way) {
      const auto& [axis, word, option] = way;
      return axis == row.axis && (row.word.empty() || row.word == word) && option == row.option;
    });
    EXPECT_TRUE(used) << row.word << "(" << row.option << ")";
    const std::string source(row.source);
    const bool dated = std::regex_search(source, std::regex("\\b(1[789]|20)[0-9][0-9]\\b"));
    EXPECT_TRUE(source.empty() || dated || contains(source, "textbook") || contains(source, "ttr") ||
                contains(source, "flash-linear-attention"))
        << source;
  }
}

TEST(RecipeDocs, EveryWordOptionAndLayerHasItsRow) {
  const std::string docs = documentation();
  ASSERT_FALSE(docs.empty()) << "docs/recipes.md is missing";
  for (const WordInfo& info : words()) {
    const std::string row = "| **`" + std::string(info.word) + "`** | `" + cell(info.formula) + "` | " +
                            cell(info.meaning) + " | | " + cell(source_of(info.axis, info.word).value_or("")) +
                            " |\n";
    EXPECT_TRUE(contains(docs, row)) << "docs/recipes.md lacks\n" << row;
    for (const OptionInfo& option : info.options) {
      std::string written;
      for (const std::string& way : spellings(option))
        written += (written.empty() ? "`" : ", `") + std::string(info.word) + "(" + cell(way) + ")`";
      const std::string option_row = "| " + written + " | `" + cell(option.formula) + "` | " + cell(option.meaning) +
                                     " | " + cell(range_in_words(option)) + " | " + cell(source_cell(info, option)) +
                                     " |\n";
      EXPECT_TRUE(contains(docs, option_row)) << "docs/recipes.md lacks\n" << option_row;
    }
  }
  for (const auto& [name, recipe, causal] : layer_recipes()) {
    const std::string row = "| " + name + " | `" + cell(recipe) + "` |";
    EXPECT_TRUE(contains(docs, row)) << "docs/recipes.md lacks\n" << row;
  }
}

}  // namespace
}  // namespace ttr
