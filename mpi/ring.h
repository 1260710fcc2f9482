// Softmax attention by a ring of blocks: rank r has the queries of its piece, and the keys and values of pieces come by one
// after another, its own, then those of ranks r - 1, r - 2, .. 0. A block is handed on before it is used. What a query sees
// of one block is one softmax; two of them are one by their log-sums (lse) of weights:
//
//   lse = log(e^lse1 + e^lse2) ;  o = e^(lse1 - lse) o1 + e^(lse2 - lse) o2
//
// Backwards the blocks come by twice: once for o and lse of all pairs, from which the weights e^(x - lse) are made anew, and
// once for the gradients; those of a block go to the rank that owns it, which adds them up in the order of ranks.
//
// No rank ever holds more than two blocks beside its own: the memory for pairs is divided. So is the state: that of a rank
// keeps the pairs of its own piece (the first rank's also those before), and the lists of all ranks, end to end, are the
// list of one process. Traps: later ranks have more to do, up to twice the mean.
#pragma once

#include <cstdint>
#include <vector>

#include "mpi/channel.h"
#include "mpi/split_body.h"

namespace ttr::mpi {

/// Whether a plan is softmax attention of its inputs as they are, over all pairs.
bool rings(const Plan&);

}  // namespace ttr::mpi
