// The table of canonical inputs: every row is asked for by some recipe, and the section "Inputs" of docs/recipes.md is
// the table.
#include "recipe/schema.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "ttr/recipe.h"

namespace ttr {
namespace {

Design design_of(const std::string& text) { return interpret(parse_recipe(text)); }

// One recipe per row, in the order of the table: the row it is for is the one that counts.
const char* const asking[] = {
    "near(exp) / constant / exact",                                   // q of H heads
    "equal / linear / gd(1)",                                         // q of G heads
    "equal / linear / gd(1)",                                         // k
    "equal / kernel(exp) / exact(ridge)",                             // v of G heads
    "equal / linear / gd(1)",                                         // v of H heads
    "gate(signed) / linear / gd(1)",                                  // a of pairs
    "gate(key, signed) / linear / gd(1)",                             // ak
    "gate(value, signed) / vector / gd(1)",                           // av
    "gate(full, signed) / linear / gd(1)",                            // akv
    "gate / slots(4) / gd(1)",                                        // gs
    "equal / slots(4) / gd(1)",                                       // s
    "decay(g) / linear / gd(1)",                                      // g of a head
    "gate / linear / gd(1)",                                          // g of pairs
    "gate(key) / linear / gd(1)",                                     // gk
    "gate(key, value) / linear / gd(1)",                              // gv
    "gate(full) / linear / gd(1)",                                    // gkv
    "gate(complex) / linear / gd(1)",                                 // theta of tokens
    "gate(key, complex) / linear / gd(1)",                            // theta of keys
    "gate(value, complex) / vector / gd(1)",                          // theta of values
    "gate(full, complex) / linear / gd(1)",                           // theta of entries
    "equal / linear / sgd(beta, decay)",                              // g of the state
    "equal / mlp / minibatch(4, decay)",                              // (the same row)
    "equal / linear / sgd(beta, decay(key))",                         // gk of the state
    "equal / linear / sgd(beta, decay(value))",                       // gv of the state
    "equal(beta) / linear / gd(1)",                                   // beta: importance
    "equal / linear / sgd(flow)",                                     // beta: step on a pair
    "equal / linear / gd(2, step=each)",                              // beta: step of an iteration
    "equal / linear / gd(1, step)",                                   // beta: step of a token
    "near(exp) / constant / sgd(beta)",                               // (the same row)
    "gate(value, exponential) / constant(channel) / exact",           // i per channel
    "gate(exponential) / linear / gd(1)",                             // i
    "gate(trapezoid) / linear / gd(1)",                               // trap, dt
    "equal / linear / sgd(nlms)",                                     // mu of a pair
    "equal / linear / apa(2, mu)",                                    // mu of a token
    "equal / linear / sgd(longhorn)",                                 // delta
    "equal / linear / sgd(beta, leak)",                               // lam
    "equal / linear / sgd(beta, momentum, gain, feedback)",           // momentum, gain, p
    "equal / linear / sgd(split)",                                    // erase, write
    "equal / linear / sgd(beta, precondition)",                       // g_atk, beta_atk, log_atk_scale
    "equal / linear / sgd(dplr)",                                     // a, b
    "equal / linear(hedgehog) / exact",                               // W, b of a feature map
    "equal / linear(dijiang) / gd(1)",                                // P
    "equal / linear(rebased) / gd(1)",                                // gamma, shift
    "equal / linear / exact(ridge(key))",                             // ridge of a channel
    "equal / linear / exact(ridge(token))",                           // ridge of a token
    "equal / linear / exact(ridge)",                                  // ridge of a head
    "power / linear / gd(1)",                                         // exponent
    "given(4) / linear / gd(1)",                                      // w
    "mask(4) / linear / gd(1)",                                       // mask
    "near(gauss, bandwidth) / constant / exact",                      // bandwidth
    "near(exp, sink) / constant / exact",                             // sink
    "gate * levels / linear / gd(1)",                                 // levels
    "near(exp, transport) / constant / exact",                        // w_t, beta_t
    "near(exp) / local(1) / given",                                   // r
    "gate(value) / constant(channel) / exact | read(before, bonus)",  // bonus of values
    "gate(key) / linear / gd(1) | read(before, bonus)",               // bonus of keys
    "equal / linear / kalman(process, noise)",                        // process, noise
    "equal / linear / exact(ridge) | blend",                          // blend
    "equal / linear / sgd(beta) | huber(c)",                          // c
    "equal / linear / sgd(beta) | l1, l2",                            // l1, l2
    "equal / mlp / minibatch(4, rate)",                               // rate
};

TEST(Schema, EveryRowCountsForSomeRecipe) {
  std::set<const InputRow*> seen;
  for (const char* text : asking) {
    const Design d = design_of(text);
    for (const DesignInput& input : inputs_of(d)) {
      // The first row of that name that is asked for.
      for (const InputRow& row : input_rows())
        if (row.name == input.name && row.asked(d)) {
          EXPECT_EQ(row.axes, input.axes) << text << ": " << input.name;
          seen.insert(&row);
          break;
        }
    }
  }
  for (const InputRow& row : input_rows()) EXPECT_TRUE(seen.count(&row)) << row.name << " " << row.axes.to_string();
}

TEST(Schema, CanonicalShapes) {
  const auto shapes = [](const char* text) {
    std::map<std::string, std::string> all;
    for (const InputInfo& info : canonical_inputs(design_of(text))) all[info.name] = info.shape;
    return all;
  };
  // One pair per token: P is T. Several: it has its own letter, and what belongs to tokens keeps T.
  EXPECT_EQ(shapes("equal / linear / sgd(beta, decay)")["beta"], "B T H");
  EXPECT_EQ(shapes("equal / linear / sgd(beta, decay, pairs=2)")["beta"], "B P H");
  EXPECT_EQ(shapes("equal / linear / sgd(beta, decay, pairs=2)")["k"], "B P G K");
  EXPECT_EQ(shapes("equal / linear / sgd(beta, decay, pairs=2)")["q"], "B T G K");
  EXPECT_EQ(shapes("equal / linear / sgd(beta, decay, pairs=2)")["g"], "B T H");
  EXPECT_EQ(shapes("gate / linear / exact(ridge(key))")["ridge"], "H K");
}

TEST(Schema, WhatBelongsToPairs) {
  const Design gated = design_of("gate(beta) / linear / exact(ridge(token))");
  for (const char* name : {"k", "v", "g", "beta"}) EXPECT_TRUE(is_of_pairs(gated, name)) << name;
  for (const char* name : {"q", "ridge", "nothing"}) EXPECT_FALSE(is_of_pairs(gated, name)) << name;
  EXPECT_FALSE(is_of_pairs(design_of("equal / linear / gd(2, step)"), "beta"));  // a step of the query's own descent
}

// A fade that the solver never sees is not asked for.
TEST(Schema, IdleFadesAreNotAskedFor) {
  EXPECT_EQ(inputs_of(design_of("gate / linear / sgd(beta)")).size(),
            inputs_of(design_of("equal / linear / sgd(beta)")).size());
}

std::string drawn(Range range) {
  switch (range) {
    case Range::normal:
      return "N(0, 1)";
    case Range::unit:
      return "length 1";
    case Range::sigmoid:
      return "(0, 1)";
    case Range::log_gate:
      return "log of (0, 1)";
    case Range::factor:
      return "(-1, 1)";
    case Range::positive:
      return "softplus of N(0, 1)";
    case Range::small:
      return "N(0, 1) / 10";
    default:
      return "?";
  }
}

std::string section() {
  std::string text =
      "| input | shape | one for each | asked for by | meaning | random data |\n|---|---|---|---|---|---|\n";
  for (const InputRow& row : input_rows()) {
    const bool pair = row.axes.front() == 'P', token = row.axes.front() == 'T';
    text += "| `" + std::string(row.name) + "` | [" + (pair || token ? "B " : "") +
            row.axes.replaced('P', 'T').to_string() + "] | " +
            (pair    ? "pair"
             : token ? "token"
                     : "head") +
            " | " + std::string(row.asked_by) + " | " + std::string(row.meaning) + " | " + drawn(row.range) + " |\n";
  }
  return text;
}

TEST(Schema, TheSectionOfTheDocumentationIsTheTable) {
  std::ifstream file(std::string(TTR_SOURCE_DIR) + "/docs/recipes.md");
  std::ostringstream text;
  text << file.rdbuf();
  const std::string docs = text.str(), expected = section();
  const std::size_t begin = docs.find("| input | shape |");
  ASSERT_NE(begin, std::string::npos) << "docs/recipes.md should hold\n" << expected;
  EXPECT_EQ(docs.substr(begin, docs.find("\n\n", begin) + 1 - begin), expected);
}

}  // namespace
}  // namespace ttr
