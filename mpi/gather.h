// Layers whose state is the list of their pairs, each made of its own token: local linear attention, kernel regression, path
// attention, attention. Every rank makes the pairs of its piece, which takes no answers, and sends them to all later ranks;
// then each runs from its own start, with nobody to wait for.
//
//   forward     pairs of the piece ;  those of rank 0, 1, .. r - 1 are the state at the beginning ;  run
//   backward    run, and the gradients of earlier pairs go to the ranks that they belong to ;  there they are the gradient of
//               the final list, in a backward without answers
//
// The state is that of one process, at the end of each piece: the last rank holds all pairs. Local linear attention has no
// ring because a query is a solve: each step of it is a sum over all pairs again, so that blocks would have to go round once
// per step (docs/scaling.md).
//
// Traps: later ranks have more to do, up to twice the mean. d_initial of a rank but the first is what its own tokens make.
#pragma once

#include "mpi/split_body.h"

namespace ttr::mpi {

bool gathers(const Plan&);

}  // namespace ttr::mpi
