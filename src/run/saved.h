// The room in which a forward leaves what its backward would have to find again (Footprint::saved): a header that says to
// which call it belongs, then the slots of every kernel that leaves any (families/common/saved.h), step after step.
//
// The header guards against a buffer of another plan, length, packing or form; it cannot know whether the numbers of the
// inputs are still the same.
#pragma once

#include "run/kernel_args.h"

namespace ttr {

/// Bytes that a forward of up to `time` tokens leaves at most; 0: nothing, in this form or at all.
std::size_t saved_bytes(const Plan::Body&, std::int64_t time, Form);

/// Whether the buffer of a call is to be used: it has one, and the call leaves something. A fault says why it cannot be.
Fault check_saved(const Plan::Body&, const Call&, bool* used) noexcept;

/// The buffer belongs to this call from now on; `complete`: and all of it is there.
void mark_saved(const Plan::Body&, const Call&, bool complete) noexcept;

/// Whether every part of the state is in the slots, so that states inside a call can be read from there.
bool saves_all_states(const Plan::Body&, Form) noexcept;
/// The state of every sequence behind its first `tokens` (per sequence, whole chunks, less than it has), from the slots of a
/// call, where saves_all_states(); sequences with none are left alone.
void saved_state(const Plan::Body&, const Call&, const families::Sequence* whole, const std::ptrdiff_t* tokens,
                 State to) noexcept;

/// The room of a step, for a share of it.
template <class T>
families::Saving<T> saving_of(const KernelArgs<T>&) noexcept;

}  // namespace ttr
