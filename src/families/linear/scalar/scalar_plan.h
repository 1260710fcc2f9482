// What families that sum over pairs with one gate per token and head share: S = a S + beta k v', its normaliser, and what
// of a design that is.
#pragma once

#include <string>

#include "families/common/linear_plan.h"

namespace ttr::families {

/// gd(1) with a constant or automatic step, or sgd on the dot loss. Features and the norm of keys are the caller's.
bool claims_sums(Claim&, const Design&);

/// The part of the state of a memory with keys k and values v.
using MemoryPart = StatePart (*)(const Builder&, int k, int v, std::string name, std::string meaning);

/// The answer of a design that claims_sums() has claimed, by steps of `family`.
int build_sums(Builder&, double scale, const Family&, int q, int k, MemoryPart);

}  // namespace ttr::families
