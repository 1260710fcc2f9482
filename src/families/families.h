// The list of families (families.def). A layer that needs another kernel than the one its recipe gets names it from
// here.
#pragma once

#include <span>

#include "families/family.h"

namespace ttr::families {

#define TTR_FAMILY(name) extern const Family name##_family;
#include "families/families.def"
#undef TTR_FAMILY

/// All of them, in the order in which a design is offered.
std::span<const Family* const> list() noexcept;

/// The oracle as a family; throws Error where it was left out of the build.
const Family& literal();

/// The first family that claims the design, or else the oracle.
const Family& claimed_by(const Design&, bool causal);

}  // namespace ttr::families
