// One random recipe on the kernel that claims it and on the literal solver; the verb is `ttr check --recipes N`.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "ttr/recipe.h"

namespace ttr::cli {

struct RecipeOutcome {
  std::uint64_t seed = 0;
  std::string recipe, shape;  // the text; sizes and type
  std::string family;         // "delta", "oracle" where nobody claims it, "refused" if it cannot be planned
  bool failed = false;
  bool ill_conditioned = false;    // passed only because the problem itself magnifies rounding
  bool no_answer = false;          // the literal solver has none, or one that is not finite
  std::array<double, 4> errors{};  // the largest below the tolerance: f64, its gradients, f32, its gradients
  // If it failed: the worst.
  std::string check, form, note;
  double error = 0, tolerance = 0;
};

/// What one side of a memory's matrix has for keys of that size: monomials of a polynomial are many.
double features_of(const Recipe&, int key_dim);

/// The seed decides the recipe, its shape, its type and its inputs.
RecipeOutcome check_recipe(std::uint64_t seed);

}  // namespace ttr::cli
