// Formulas are written once, in a small part of LaTeX inside $...$, and rendered either as they are or as plain
// ASCII: `S_t = a_t S_{t-1} + k_t v_t'`.
#pragma once

#include <string>
#include <string_view>

#include "ttr/recipe.h"

namespace ttr {

/// Text with $formulas$ in the wanted notation.
std::string render(std::string_view markup, Notation);

/// Text without formulas (recipes, remarks): special characters are escaped in LaTeX.
std::string prose(std::string_view text, Notation);

}  // namespace ttr
