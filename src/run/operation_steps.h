// Per-token operations as steps of a pipeline. Several threads divide the rows: forwards by tokens; backwards by the
// axes that every wanted gradient has (tokens, heads), so that each sum keeps its order. Operations of a joint (plan/joints.cc)
// go forwards in one pass.
#pragma once

#include "plan/joints.h"
#include "run/bind.h"

namespace ttr {

template <class T>
Status operation_forward(const Plan::Body&, const Step&, const Binding<T>&) noexcept;

/// An operation that comes again and again with the same addresses, on one thread: ready_operation() leaves it in
/// `memory`, which has room for ready_operation_bytes(), and go_operation() runs it.
template <class T>
std::size_t ready_operation_bytes() noexcept;
template <class T>
void ready_operation(const Plan::Body&, const Step&, const Binding<T>&, void* memory) noexcept;
template <class T>
Status go_operation(const Plan::Body&, const void* memory) noexcept;

/// The operations of a joint in one pass, and the same as above where they come again and again.
template <class T>
Status joint_forward(const Plan::Body&, const Joint&, const Binding<T>&) noexcept;
template <class T>
std::size_t ready_joint_bytes() noexcept;
template <class T>
void ready_joint(const Plan::Body&, const Joint&, const Binding<T>&, void* memory) noexcept;
template <class T>
Status go_joint(const Plan::Body&, const void* memory) noexcept;

/// Adds the gradients of the operands, if that of the result is there.
template <class T>
void operation_backward(const Plan::Body&, const Step&, const Binding<T>&) noexcept;

}  // namespace ttr
