// Per-token operations on vectors, compiled once per instruction set like the primitives of simd.h. The formulas are in
// token_elements-inl.h (every element by itself), token_rows-inl.h and token_pairs-inl.h (a row together); prepare/ says which rows.
//
//   const TokenSimd<float>& s = token_simd(simd<float>(""));      // of the same instruction set
//   s.forward[int(TokenOp::sigmoid)](job);
//
// Any strides are allowed: numbers that do not lie side by side are gathered into vectors, and go through the same
// operations. So the bits of a row depend on its numbers alone, not on strides, neighbours or the number of rows.
#pragma once

#include <cstddef>

#include "simd/simd.h"

namespace ttr {

// clang-format off
enum class TokenOp {
  // every element by itself
  zero, copy, negate, multiply, negative_product, add, subtract, divide, scale, skip, silu_gate, blend_product,
  leak_gate, shrink_gate, log, erase_log, sigmoid, log_sigmoid, softplus, exp, exp_negative, one_minus_exp,
  lower_bound_gate, decay_rate_gate, root_complement, phase_step, precondition, implicit_step, elu1, relu, silu,
  relu_times, turn_first, turn_second,
  // a row together
  unit_norm, rms_norm, unit_norm_clamp, sum_norm, softmax, layer_norm, gated_silu, gated_sigmoid, silu_gated,
  sigmoid_gated, square_norm, nlms_step, longhorn_step, flow_step, bonus_value, turn_pairs,
  rotate_pairs
};
// clang-format on
inline constexpr int token_op_count = static_cast<int>(TokenOp::rotate_pairs) + 1;
constexpr bool by_row(TokenOp op) { return op >= TokenOp::unit_norm; }

/// `rows` rows of a result, each `width` numbers, and of the operands. Element d of row r is data[r row + d step]; an
/// operand with step 0 is one number that serves the whole row, and its gradient is the sum over the row. Without
/// data: left out (of operations by row: a weight is 1, a bias 0), or a gradient that is not wanted.
template <class T>
struct TokenJob {
  using Size = std::ptrdiff_t;
  template <class N>
  struct Side {
    N* data = nullptr;
    Size row = 0, step = 0;
  };
  Size rows = 0, width = 0;
  Size depth = 0;  // numbers in a row that is summed up, where the result is of another width
  T number = 0;
  Side<const T> x[4];
  Side<T> y;             // forward: written
  Side<const T> result;  // backward: y, and its gradient
  Side<const T> gradient;
  Side<T> dx[4];  // added to, where wanted
};

template <class T>
struct TokenSimd {
  /// False if a number was outside the domain; the result is defined all the same.
  bool (*forward[token_op_count])(const TokenJob<T>&) = {};
  void (*backward[token_op_count])(const TokenJob<T>&) = {};
  /// cos and sin of position * frequency_i, in double
  void (*turns)(std::ptrdiff_t n, double position, const double* frequency, T* cosine, T* sine) = nullptr;
};

/// The table for the instruction set of `simd`, or (null) for the best of this machine. Does not allocate.
template <class T>
const TokenSimd<T>& token_simd(const Simd<T>* simd) noexcept;

}  // namespace ttr
