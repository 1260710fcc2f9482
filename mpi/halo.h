// The halo: layers whose state is the last few tokens, or how many there were.
//
//   forward    a rank runs the last `span` tokens of its piece from nothing, which makes the state at its end, and sends that
//              on ;  what comes from the rank before is its start
//   backward   the gradient of a start is made by the first `span` answers alone: a rank sends it back, and what comes from
//              the rank after it is the gradient of its end
//
// Nobody waits for another rank's work, and only 2 span tokens are done twice. Counts of tokens and positions do not come out
// of the last tokens: they are those of the initial state and the lengths of the pieces before.
//
// Traps: a piece that is shorter than the span hands on tokens of the pieces before it, and a packed sequence may end long
// before its piece does: such calls are relayed.
#pragma once

#include <cstdint>
#include <optional>

#include "mpi/split_body.h"

namespace ttr::mpi {

/// How many of the last tokens make the state of a plan; empty: it is more than that.
std::optional<std::int64_t> halo_of(const Plan&);

}  // namespace ttr::mpi
