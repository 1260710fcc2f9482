// Derivations of what the program plans: forms are those of the plan, and plans that are not causal have neither state
// nor recurrence. (Formulas: recipe_test.cc.)
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ttr/ttr.h"

namespace ttr {
namespace {

using Words = std::vector<std::string>;
constexpr Shape small{.batch = 1, .heads = 1, .key_dim = 4, .value_dim = 4};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Forms, then "no chunk: ..." for the others.
Words expected_forms(const Words& forms, const Words& absent) {
  Words all = forms;
  for (const std::string& sentence : absent) all.push_back("no " + sentence);
  return all;
}

TEST(Derive, FormsOfEveryLayerAreThoseOfItsPlan) {
  int layers_seen = 0;
  for (const LayerInfo& info : layers()) {
    if (info.recipe.empty()) continue;
    ++layers_seen;
    EXPECT_EQ(derive(plan(info.name, small)).forms, expected_forms(info.forms, info.absent_forms)) << info.name;
  }
  EXPECT_GT(layers_seen, 60);
}

RC_GTEST_PROP(Derive, FormsOfRecipesAreThoseOfTheirPlans, ()) {
  const Recipe recipe = random_recipe(*rc::gen::arbitrary<std::uint64_t>());
  RC_LOG() << to_string(recipe) << "\n";
  const Plan p = plan(recipe, small);
  Words present;
  for (const Form form : p.forms()) present.emplace_back(to_string(form));
  const Derivation d = derive(recipe);
  RC_ASSERT(Words(d.forms.begin(), d.forms.begin() + static_cast<std::ptrdiff_t>(present.size())) == present);
  RC_ASSERT(d.forms == derive(p).forms);
  if (p.kernel() == "oracle") RC_ASSERT(present == (Words{"step", "recurrent"}));
}

TEST(Derive, ANetworkNeedNotFitIntoMemory) {
  EXPECT_TRUE(contains(derive(parse_recipe("equal / mlp(3, width=1048576) / sgd(beta)")).state_size, "1048576"));
}

TEST(Derive, PlansThatAreNotCausalHaveNoState) {
  for (const char* layer : {"intention", "soft", "skyformer", "sigma-intention", "softmax-attention:causal=no",
                            "kernel-regression:causal=no", "local-linear-attention:causal=no"}) {
    SCOPED_TRACE(layer);
    for (const Notation notation : {Notation::plain, Notation::latex}) {
      const Derivation d = derive(plan(layer, small), notation);
      for (const std::string* text : {&d.objective, &d.gradient, &d.recurrence, &d.readout, &d.cost_per_token}) {
        EXPECT_FALSE(contains(*text, "t-1") || contains(*text, "<=t") || contains(*text, "\\le t")) << *text;
        EXPECT_FALSE(contains(*text, "H_t") || contains(*text, "S_t")) << *text;
      }
      EXPECT_EQ(d.recurrence.substr(0, 6), "None: ");
      EXPECT_EQ(d.state_size.substr(0, 6), "none: ");
      EXPECT_EQ(d.forms.front(), "parallel");
    }
  }
  EXPECT_EQ(
      derive(plan("intention", small)).recurrence,
      "None: every query sees all N pairs of its call, in no order; S = (H + lambda I)^{-1} F is solved for once.");
}

// The same recipe with and without causality is not the same layer.
TEST(Derive, CausalityIsAChoice) {
  const Derivation mesa = derive(parse_recipe("equal / linear / exact(ridge)"));
  for (const std::string& name : mesa.equals) EXPECT_NE(name, "intention");
  bool near = false;
  for (const std::string& name : mesa.neighbours) near = near || name == "intention (not causal)";
  EXPECT_TRUE(near);
  const Derivation intention = derive(plan("intention", small));
  EXPECT_EQ(intention.equals, Words{"intention"});
}

}  // namespace
}  // namespace ttr
