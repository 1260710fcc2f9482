// Kernels as steps of a pipeline: a step calls its family, once or on several threads with a shard each.
#pragma once

#include "run/bind.h"

namespace ttr {

/// Scratch of one call of a kernel on sequences of up to `time` tokens after `past` pairs, by all threads of the plan.
std::size_t kernel_workspace(const Plan::Body&, const Step&, std::int64_t time, std::int64_t past, Form,
                             bool backward);

/// Runs the kernel of `step` from `state` and leaves the final state there. Without `keep` the pairs of the call are
/// not appended to a state that is a list of pairs: it is only read.
template <class T>
Status kernel_forward(const Plan::Body&, const Step&, const Binding<T>&, State state, Form, Workspace,
                      bool keep = true) noexcept;

/// Adds the kernel's gradients to those of its operands; call.state is the initial state.
template <class T>
Status kernel_backward(const Plan::Body&, const Step&, const Binding<T>&, const Call& call, Form, Arena) noexcept;

}  // namespace ttr
