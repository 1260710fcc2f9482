// States in fewer bytes (Options::state_type = bf16): a kernel computes in float on a panel of a few heads, which is read
// from the state and rounded back to it, so that memory sees half the bytes and the kernel knows nothing of it.
//
//   panel = float(S) ;  panel = kernel(panel, tokens) ;  S = round(panel)
//
// Rounding is at random, with bits that are a function of the tokens seen, the part and the place of the number in it: the
// same on any number of threads, in any slot, after a rewind and on every instruction set. What is below a rounding then
// adds up in the mean; to the nearest, a state that changes by less than 2^-9 of itself would not change at all.
//
// A call rounds once, a long one after each of its blocks of time. Sequences without tokens in a call are not touched.
#pragma once

#include "run/bind.h"

namespace ttr {

/// Changes the parts of the plan's state to Options::state_type, or throws an Error that says why that has no meaning.
void apply_state_type(Plan::Body&);

/// Scratch of a step with such a state beside that of the kernel: the panel of one task.
std::size_t panel_bytes(const Plan::Body&, const Step&);

Status forward_compact(const Plan::Body&, const Step&, const Binding<float>&, State, Form, Workspace) noexcept;

}  // namespace ttr
