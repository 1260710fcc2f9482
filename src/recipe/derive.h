// The derivation of a recipe: objective, gradient, recurrence, read-out and sizes, composed from the parts of its design
// (recipe/derive_parts.h), never from a table of layers. Its forms, and whether its plan is causal, are passed in by the
// planner: nothing here knows kernels.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ttr/recipe.h"

namespace ttr {

struct PlanFacts {
  bool causal = true;                     // false: every query sees all pairs of its call
  std::vector<std::string> forms;         // "step", "recurrent", ...
  std::vector<std::string> absent_forms;  // "chunk: why there is none"
};

struct NamedRecipe {
  std::string name, recipe;
  bool causal = true;
};

/// `named` is searched for equal recipes and for recipes one choice away.
Derivation derive(const Recipe&, Notation, const PlanFacts&, std::span<const NamedRecipe> named);

}  // namespace ttr
