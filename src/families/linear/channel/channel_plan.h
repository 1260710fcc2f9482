// Operands of a step of the gated family, beyond those that every kernel has.
#pragma once

#include "plan/pipeline.h"

namespace ttr::families {

struct GatedSlot {
  enum : std::size_t { gk = Slot::own, gv, bonus, count };
};

}  // namespace ttr::families
