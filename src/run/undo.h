// Earlier states: with Options::rewind = R a kernel runs the last R tokens of a sequence one by one, and before each of
// them what the token changes in its state goes to the ring of the state (plan/state_layout.cc). Plan::rewind puts it back.
//
// The tokens before these go in the form of the call, so a prompt stays as fast as it is; single tokens are recurrent.
#pragma once

#include "run/bind.h"

namespace ttr {

/// Scratch of a call that keeps earlier states; from an Arena that only counts: how much.
struct UndoScratch {
  UndoScratch() = default;
  UndoScratch(const Plan::Body& body, Arena& arena)
      : sequences(arena.take<families::Sequence>(body.shape.batch)),
        of_pairs(arena.take<families::Sequence>(body.shape.batch)),
        counts(arena.take<std::int64_t>(body.shape.batch)),
        earlier(arena.take<std::ptrdiff_t>(body.shape.batch)) {}
  families::Sequence *sequences = nullptr, *of_pairs = nullptr;  // of a piece of the call
  std::int64_t* counts = nullptr;                                // of the state, before the call
  std::ptrdiff_t* earlier = nullptr;                             // tokens of the call before the piece
};

inline bool keeps_earlier_states(const Plan::Body& body) { return body.layout.undo != StateLayout::none; }

/// A kernel step of the call, with earlier states. `scratch.counts` are those before its first step.
template <class T>
Status kernel_forward_undoable(const Plan::Body&, const Step&, const Binding<T>&, State, Form, Workspace,
                               const UndoScratch& scratch) noexcept;

/// After all steps: the tokens of the call have been seen.
template <class T>
void count_tokens(const Plan::Body&, const Binding<T>&, State) noexcept;

}  // namespace ttr
