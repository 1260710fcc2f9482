// Per-token operations as steps of a pipeline. Several threads divide the rows: forwards by tokens; backwards by the
// axes that every wanted gradient has (tokens, heads), so that each sum keeps its order.
#pragma once

#include "run/bind.h"

namespace ttr {

template <class T>
Status operation_forward(const Plan::Body&, const Step&, const Binding<T>&) noexcept;

/// Adds the gradients of the operands, if that of the result is there.
template <class T>
void operation_backward(const Plan::Body&, const Step&, const Binding<T>&) noexcept;

}  // namespace ttr
