// The parts of a call, for those that do them at different times: Plan::forward does all of them at once, a Prepared the
// first ones when it is made (run/prepared.cc).
#pragma once

#include "run/bind.h"

namespace ttr {

/// Names, shapes and types of a call's tensors, and its form; not the memory that they share, state and workspace.
Fault check_tensors_alone(const Plan::Body&, const Call&) noexcept;

/// Sizes and counts of the state and of its gradients. `kept`: the most pairs that a sequence has, which kernels that
/// read them may need scratch for.
Fault check_state(const Plan::Body&, const Call&, std::int64_t& kept) noexcept;

/// Gives every value of the pipeline its place: in the caller's tensors, or in the arena, for `length` tokens. The
/// workspace is large enough: check_call has compared it with workspace_bytes, which counts the same.
template <class T>
void bind(const Plan::Body&, const Call&, bool backward, std::ptrdiff_t length, Arena&, Binding<T>&) noexcept;

/// Whether a forward of a call that is bound with `length` tokens of scratch goes through the steps once.
template <class T>
bool runs_at_once(const Plan::Body&, const Binding<T>&, Form, std::ptrdiff_t length) noexcept;

/// Tokens of scratch that a forward in this form is bound with.
std::ptrdiff_t bound_length(const Plan::Body&, Form) noexcept;

/// Clears the gradients of inputs (Gradients::write), but for those that the kernel of the one step that reads an input clears
/// as it goes. parameters: those without time as well.
template <class T>
void start_gradients(const Plan::Body&, const Outputs& d_inputs, Gradients, bool parameters, Binding<T>&) noexcept;

/// Adds the gradients of a call that is bound with them to those of its inputs; `d_outputs` by the plan's outputs, null
/// where there is none. The arena has what is left of the workspace.
template <class T>
Status execute_backward(const Plan::Body&, const Call&, std::span<const ConstTensor* const> d_outputs, Binding<T>&,
                        Arena) noexcept;

/// No tokens leave the state as it is, so its gradient is that of the final state.
void pass_on(const Plan::Body&, const Call&) noexcept;

/// Runs the steps.
template <class T>
Status execute(const Plan::Body&, const Binding<T>&, State, Form, Workspace) noexcept;

}  // namespace ttr
