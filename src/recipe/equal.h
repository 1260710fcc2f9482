// When two designs are the same layer. A rule rewrites a design into an equal one that is simpler, or nearer to a named
// layer; each rule has a name, a reason and, where the equality was published, a source. `derive` finds named layers by
// it and the planner kernels.
//
//   Chain chain = rewritten(parse_recipe("near(gauss) / constant / exact | keys(unit)"));
//   chain[0]   near(exp) / constant / exact | keys(unit)     the same inputs
//   chain[1]   near(exp) / constant / exact                  q_t <- q_t/|q_t|, k_t <- k_t/|k_t|
//
// Rules fail closed: one removes from a copy of a part what it has looked at and applies only if nothing is left, so
// that a word which no rule knows stops it; and what it makes must be a valid recipe again.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/design.h"

namespace ttr {

/// An equality of designs.
struct EqualityRule {
  std::string_view name;     // "gaussian-of-one-length"
  std::string_view because;  // the reason, in the markup of recipe/markup.h
  std::string_view source;   // who published it; may be empty
  bool remarked;             // remarks_on says the same
  /// Turns a design it applies to into an equal one; false if it does not apply. `inputs` becomes how the inputs of the
  /// new design follow from those of the old one; it stays empty if they are the same, or some of the same.
  bool (*apply)(Design&, std::string& inputs);
};

/// All rules, in the order in which they are tried.
const std::vector<EqualityRule>& equality_rules();

/// A link of a chain: the recipe after a rule.
struct Rewriting {
  const EqualityRule* rule;
  std::string inputs;  // as in EqualityRule::apply
  Recipe recipe;
  Design design;
};
using Chain = std::vector<Rewriting>;

/// The recipe rewritten until no rule applies; rules that keep the inputs come first.
Chain rewritten(const Recipe&);

/// The part of the chain before the first link that changes inputs: the same function of the same inputs.
Chain with_the_same_inputs(Chain);

/// A recipe of the design `after`, with the words of `recipe`, whose design is `before`, wherever the two agree.
/// Nothing if there is no such recipe.
std::optional<Recipe> respelled(const Recipe& recipe, const Design& before, const Design& after);

/// Other ways to write a recipe that no rule makes, because they are not simpler.
std::vector<Rewriting> other_spellings(const Recipe&, const Design&);

}  // namespace ttr
