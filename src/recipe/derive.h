// A recipe worked out on paper: objective, gradient, recurrence, read-out, sizes and forms, composed from the parts
// of its design (recipe/derive_parts.h), never from a table of layers.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "ttr/recipe.h"

namespace ttr {

/// `named` is a list of (layer name, recipe text), searched for equal recipes and for recipes one choice away.
Derivation derive(const Recipe&, Notation, std::span<const std::pair<std::string, std::string>> named);

}  // namespace ttr
