// Attention by a ring of blocks: a plan whose attention kernel asks the other ranks (mpi/ring_attention.h). Norms of queries
// and keys, importances, the list of pairs and all gradients around the kernel are the plan's own.
//
// The memory for pairs is divided, and so is the state: that of a rank keeps the pairs of its own piece (the first rank's
// also those before), and the lists of all ranks, end to end, are the list of one process.
//
// Traps: a rank whose plan refuses a call would never reach the kernel, where the others wait for it. So calls are checked,
// and agreed on, first. A plan does not come to its kernel without tokens: such a rank takes part from here.
#pragma once

#include <optional>
#include <string>

#include "mpi/ring_attention.h"
#include "mpi/split_body.h"

namespace ttr::mpi {

/// What is asked of the other ranks, if a plan is attention over all pairs, however its inputs are prepared.
std::optional<RingSizes> ring_of(const Plan&);

}  // namespace ttr::mpi
