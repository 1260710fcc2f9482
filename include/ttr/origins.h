// Where a layer comes from, beside its derivation (ttr/recipe.h): the papers of its words, and what it has that its
// recipe does not say.
#pragma once

#include <string>
#include <vector>

#include "ttr/export.h"
#include "ttr/layer.h"
#include "ttr/recipe.h"

namespace ttr {

/// The paper of every word of a recipe, or that it is textbook: "sgd(flow): Lei, Zhang, Poria 2025, arXiv 2512.12602".
TTR_API std::vector<std::string> sources(const Recipe&, Notation = Notation::plain);

/// Where the published layer differs from its recipe, of which alone a derivation speaks; empty if nowhere.
TTR_API std::string departure(const LayerInfo&, Notation = Notation::plain);

}  // namespace ttr
