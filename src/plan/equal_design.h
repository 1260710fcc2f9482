// Which design runs a recipe: its own, or an equal one that a kernel has where its own would run on the oracle.
#pragma once

#include "recipe/design.h"
#include "ttr/plan.h"

namespace ttr {

/// `own` is the design of the recipe. Another one is returned only if no family claims `own`, one claims the other, and
/// both ask for the same inputs in the same shapes.
Design design_to_run(const Recipe&, const Design& own, const Options&);

}  // namespace ttr
