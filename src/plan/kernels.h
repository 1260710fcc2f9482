// Kernels as steps of a pipeline: the families and the oracle behind one pair of functions.
#pragma once

#include "plan/bind.h"

namespace ttr {

/// Scratch of one call of a kernel on sequences of up to `time` tokens, by all threads of the plan.
std::size_t kernel_workspace(const Plan::Body&, const Step&, std::int64_t time, Form, bool backward);

/// Kernels whose state is the list of pairs.
inline bool keeps_pairs(KernelKind kind) {
  return kind == KernelKind::attention || kind == KernelKind::local_linear || kind == KernelKind::path_attention ||
         kind == KernelKind::deltaformer || kind == KernelKind::kernel_regression;
}

/// Runs the kernel of `step` from `state` and leaves the final state there. Without `keep` the pairs of the call are
/// not appended to a state that is a list of pairs: it is only read.
template <class T>
Status kernel_forward(const Plan::Body&, const Step&, const Binding<T>&, State state, Form, Workspace,
                      bool keep = true) noexcept;

/// Adds the kernel's gradients to those of its operands; call.state is the initial state.
template <class T>
Status kernel_backward(const Plan::Body&, const Step&, const Binding<T>&, const Call& call, Form, Arena) noexcept;

/// Runs the oracle as a step of the pipeline (oracle_step.cc). Arrays are copied to double and back. `final` may be
/// the same buffer as `initial`, or without data if the final state is not wanted.
template <class T>
Status oracle_forward(const Plan::Body&, const Step&, const Binding<T>&, ConstState initial, State final) noexcept;
template <class T>
Status oracle_backward(const Plan::Body&, const Step&, const Binding<T>&, ConstState initial, ConstState d_final,
                       State d_initial) noexcept;

}  // namespace ttr
