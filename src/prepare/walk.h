// From rows of tensors to jobs for the vector operations of simd/token_simd.h.
//
// The axes batch, time, head (and the rows of a matrix) are joined where every operand, result and gradient goes on
// from one to the next at the same stride: a gate [B, T, H] beside another is one long row, a norm over [B, T, H, K]
// one job of B T H rows. What cannot be joined is walked here.
#pragma once

#include "prepare/operations.h"
#include "simd/token_simd.h"

namespace ttr::prepare {

template <class T>
Status walk_forward(TokenOp, int operands, const Rows<const T>* from, const Rows<T>& to, double number, const Extent&,
                    const TokenSimd<T>&) noexcept;

template <class T>
void walk_backward(TokenOp, int operands, const Rows<const T>* from, const Rows<const T>& to,
                   const Rows<const T>& d_to, const Rows<T>* d_from, double number, const Extent&,
                   const TokenSimd<T>&) noexcept;

}  // namespace ttr::prepare
