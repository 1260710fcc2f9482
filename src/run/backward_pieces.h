// Backward in pieces of time: a long call whose scratch would be several times its tensors goes forwards once, keeping
// the state at the start of every piece, and then backwards piece after piece, each as a call of its own that hands the
// gradient of its initial state to the piece before it. Scratch is that of one piece, and the states.
//
// It costs one more forward pass where the plan has a state, and nothing where it has none (norms, feature maps), which
// always goes so. Whether, and how long a piece is, depends on what one token of one sequence takes, never on the call: a
// sequence has the same bits in any batch and on any number of threads.
#pragma once

#include "plan/pipeline.h"

namespace ttr {

/// Tokens of a piece, found when a plan is made; 0: a call is a whole.
std::int64_t piece_length(const Plan::Body&);

/// Whether a backward of `time` tokens goes in pieces.
bool goes_in_pieces(const Plan::Body&, std::int64_t time, Form) noexcept;

/// Scratch of such a call.
std::size_t pieces_bytes(const Plan::Body&, std::int64_t time, Form);

Status backward_in_pieces(const Plan::Body&, const Call&) noexcept;

}  // namespace ttr
