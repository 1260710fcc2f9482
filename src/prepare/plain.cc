// Operations that are one of the vector operations as it stands. Their formulas and gradients are in
// simd/token_elements-inl.h and simd/token_rows-inl.h.
#include "prepare/rule.h"
#include "prepare/walk.h"

namespace ttr::prepare {
namespace {

template <class T, TokenOp op, int operands>
Kernel<T> vector_operation() {
  return {
      [](const Rows<const T>* from, const Rows<T>& to, double number, const Extent& extent,
         const TokenSimd<T>& simd) noexcept { return walk_forward(op, operands, from, to, number, extent, simd); },
      [](const Rows<const T>* from, const Rows<const T>& to, const Rows<const T>& d_to, const Rows<T>* d_from,
         double number, const Extent& extent, const TokenSimd<T>& simd) noexcept {
        walk_backward(op, operands, from, to, d_to, d_from, number, extent, simd);
      }};
}

}  // namespace

template <class T>
Kernel<T> plain(Op op) {
  switch (op) {
#define TTR_CASE(name, token, operands) \
  case Op::name:                        \
    return vector_operation<T, TokenOp::token, operands>();
    TTR_CASE(multiply, multiply, 2)
    TTR_CASE(negative_product, negative_product, 2)
    TTR_CASE(outer_product, multiply, 2)
    TTR_CASE(divide, divide, 2)
    TTR_CASE(scale, scale, 1)
    TTR_CASE(blend_product, blend_product, 3)
    TTR_CASE(bonus_value, bonus_value, 4)
    TTR_CASE(unit_norm, unit_norm, 1)
    TTR_CASE(rms_norm, rms_norm, 1)
    TTR_CASE(rms_norm_weighted, rms_norm, 2)
    TTR_CASE(unit_norm_clamp, unit_norm_clamp, 1)
    TTR_CASE(sum_norm, sum_norm, 1)
    TTR_CASE(softmax, softmax, 1)
    TTR_CASE(layer_norm, layer_norm, 3)
    TTR_CASE(rms_gate_norm_first_silu, gated_silu, 3)
    TTR_CASE(rms_gate_norm_first_sigmoid, gated_sigmoid, 3)
    TTR_CASE(rms_gate_gate_first_silu, silu_gated, 3)
    TTR_CASE(rms_gate_gate_first_sigmoid, sigmoid_gated, 3)
    TTR_CASE(square_norm, square_norm, 1)
    TTR_CASE(nlms_step, nlms_step, 2)
    TTR_CASE(longhorn_step, longhorn_step, 2)
    TTR_CASE(flow_step, flow_step, 2)
    TTR_CASE(leak_gate, leak_gate, 2)
    TTR_CASE(shrink_gate, shrink_gate, 1)
    TTR_CASE(log, log, 1)
    TTR_CASE(sigmoid, sigmoid, 1)
    TTR_CASE(log_sigmoid, log_sigmoid, 1)
    TTR_CASE(softplus, softplus, 1)
    TTR_CASE(exp, exp, 1)
    TTR_CASE(exp_negative, exp_negative, 1)
    TTR_CASE(one_minus_exp, one_minus_exp, 1)
    TTR_CASE(lower_bound_gate, lower_bound_gate, 2)
    TTR_CASE(decay_rate_gate, decay_rate_gate, 2)
    TTR_CASE(root_complement, root_complement, 1)
    TTR_CASE(phase_step, phase_step, 2)
    TTR_CASE(precondition, precondition, 2)
    TTR_CASE(implicit_step, implicit_step, 2)
    TTR_CASE(elu1, elu1, 1)
    TTR_CASE(relu, relu, 1)
    TTR_CASE(silu, silu, 1)
#undef TTR_CASE
    default:
      return {};
  }
}

template Kernel<float> plain<float>(Op);
template Kernel<double> plain<double>(Op);

}  // namespace ttr::prepare
