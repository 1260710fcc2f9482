// From rows of tensors to jobs for the vector operations of prepare/token_simd.h.
//
// The axes batch, time, head (and the rows of a matrix) are joined where every operand, result and gradient goes on
// from one to the next at the same stride: a gate [B, T, H] beside another is one long row, a norm over [B, T, H, K]
// one job of B T H rows. What cannot be joined is looped over here.
//
// Backwards, operands and results that the gradient does not read take no part: they neither stand in the way of a
// join nor are they looked at.
#pragma once

#include "prepare/operations.h"
#include "prepare/token_simd.h"

namespace ttr::prepare {

template <class T>
Status loop_forward(Op, const Rows<const T>* from, const Rows<T>& to, double number, const Extent&,
                    const TokenSimd<T>&) noexcept;

template <class T>
void loop_backward(Op, const Rows<const T>* from, const Rows<const T>& to, const Rows<const T>& d_to,
                   const Rows<T>* d_from, double number, const Extent&, const TokenSimd<T>&) noexcept;

}  // namespace ttr::prepare
