// How a step calls its family: from values to the family's problem struct, and back for gradients. No arithmetic
// happens there. One file for families whose state is a matrix per head fed by pairs, one for the others.
#pragma once

#include "plan/operands.h"

namespace ttr {

template <class T>
struct Calls {
  std::size_t (*workspace)(const Plan::Body&, const Step&, std::int64_t time, Form, bool backward) = nullptr;
  Status (*forward)(const Operands<T>&, State, Form, Workspace) noexcept = nullptr;
  Status (*backward)(const Operands<T>&, const Call&, Form, Arena) noexcept = nullptr;
};

/// The calls of a kernel; empty if it belongs to the other file.
template <class T>
Calls<T> linear_calls(KernelKind);
template <class T>
Calls<T> elementwise_calls(KernelKind);

/// The calls that a struct F<T> holds as static functions.
template <template <class> class F, class T>
Calls<T> calls() {
  return {F<T>::workspace, F<T>::forward, F<T>::backward};
}

}  // namespace ttr
