// Per-token operations before and after the regression, each with its gradient: norms, step-size rules, gates,
// feature maps, rotary embedding, the skip connection. They have no state: a row is the last axis of one (batch,
// token, head). `number` is the operation's one constant (an eps, a divisor, a degree ...). s = sigmoid.
//
// Arithmetic (token_elements-inl.h, arithmetic.cc); y is as wide as x, or one number wide. Of add, subtract and skip any operand may be
// left out (0), of silu_gate z (then x itself).
//   multiply     x, y          x y             negative_product  x, y      -x y
//   add          x, y          x + y           subtract          x, y       x - y
//   divide       o, n          o / n, 0 where n = 0
//   scale        x             number x
//   skip         o, x, d       o + d x         d as wide as x, or one number wide
//   silu_gate    x, z          x z s(z)
//   join_three   x, y, z       one row of three numbers
//   first_half, second_half  x   of a row of even width                                        -> D/2
//   outer_product  x, A [K, V]   x_d A(f, d), a matrix [K, V]; Mamba-1's gate dt A
//   blend_product  x, y, z     x (1 + (y - 1) z)       RWKV-7's key: k (1 + (a - 1) k_a)
//   bonus_value  r, k, u, v    (sum_d r k u) v         RWKV-7's bonus
// These change the number of tokens (DeltaProduct, number = n pairs per token). The extent is that of the result:
//   spread_last  x [T] -> [T n]   x_t at sub-step t n + n - 1, zero elsewhere
//   spread_first x [T] -> [T n]   x_t at sub-step t n, zero elsewhere
//   take_last    x [T n] -> [T]   x at sub-step t n + n - 1
//   interleave   x, y [T] -> [2 T]   row 2t is x_t, row 2t + 1 is y_t (`number` is not used)
//
// Norms (token_rows-inl.h); w and b may be left out
//   unit_norm        x / |x|              (zero stays zero; with eps: x / sqrt(sum x^2 + eps))
//   unit_norm_clamp  x / max(|x|, eps)
//   rms_norm         x / sqrt(mean x^2)   (zero stays zero; with eps added to the mean)
//   rms_norm_weighted  x, w       rms_norm(x) w
//   sum_norm         x / sum x, zero where the sum is zero; for positive features
//   softmax          e^x / sum e^x, the largest x subtracted
//   layer_norm       x, w, b      (x - mean) / sqrt(var + eps) w + b, biased variance
//   rms_gate_norm_first_{silu,sigmoid}  x, z, w   rms_norm(x) w act(z)
//   rms_gate_gate_first_{silu,sigmoid}  x, z, w   rms_norm(x act(z)) w
//   square_norm      |x|^2
//
// Step-size rules and gates (token_rows-inl.h, token_elements-inl.h)
//   nlms_step    mu, k       mu / (eps + |k|^2)           0 where the denominator is 0: such a key writes nothing
//   longhorn_step  delta, k  delta / (1 + delta |k|^2)    the implicit step, argmin 1/2|X-S|^2 + delta/2 |v - X'k|^2
//   flow_step    beta, k     (1 - exp(-beta |k|^2)) / |k|^2   by expm1; beta where k = 0
//   leak_gate    beta, lam   log(1 - beta lam)            log of the factor that leaky LMS puts on the state
//   implicit_step  delta, n  delta / (1 + delta n)        delta a row, n one number (|k|^2)
//   shrink_gate  lam         log(1 - lam)                 log  x   log x
//   erase_log    k, d        log(1 - k_f^2 d_d), a matrix [K, V]; the gate of Longhorn as released
//   sigmoid, softplus        softplus = log(1 + e^x)
//   log_sigmoid  x           log s(x) / number            (number 0 counts as 1)
//   exp  x                   e^x                          exp_negative  x   -e^x
//   one_minus_exp  x         1 - e^x, by expm1            HGRN2's key from its gate
//   lower_bound_gate  f, l   log(l + (1 - l) s(f))        0 <= l <= 1; HGRN, HGRN2
//   decay_rate_gate  r, lam  -8 s(r) softplus(-lam)       RG-LRU's log decay
//   root_complement  x       sqrt(1 - e^(2x)), by expm1   x <= 0; RG-LRU's write. The slope at 0 is large but finite
//   phase_step   a, dt       pi tanh(a) dt                dt one number; Mamba-3
//   precondition A, c        1.5^(-r/(1+|r|)), r = log(A + 1e-6) - c    A >= 0, c one number; preconditioned DeltaNet
//
// Feature maps (the first line token_elements-inl.h, cosformer rotary.cc; feature_maps.cc, matrix_features.cc); D = width of x, m or F = rows of W
//   elu1, relu, silu         x_i + 1 | e^x ; max(x, 0) ; x s(x)
//   cosformer  x, offset     relu(x) cos a ; relu(x) sin a;  a = pi i / (2 number), i = t + 1 + offset   -> 2 D
//   dpfp       x             r = [relu(x); relu(-x)], r * roll(r, j) for j = 1..nu                       -> 2 D nu
//   taylor2    x             1 ; x_i/D^(1/4) ; x_i^2/sqrt(2D) ; x_i x_j/sqrt(D) for i < j      -> 1 + D + D(D+1)/2
//   rebased    x, gamma, beta  y = gamma LN(x) + beta (eps 1e-5): y_i^2/sqrt(D) ; sqrt(2/D) y_i y_j  -> D(D+1)/2
//   quadratic  y             rebased without its layer norm: y_i^2/sqrt(D) ; sqrt(2/D) y_i y_j       -> D(D+1)/2
//   polynomial x             all monomials up to degree `number`, by degree, then by indices    -> C(D + p, p)
//   project    x, W          W x                                                                -> F
//   t2r        x, W, b       relu(z), z = W x + b                                               -> F
//   hedgehog_{exp,softmax,softmax2}  x, W, b   [e^z; e^-z] ; softmax([z; -z]) ; softmax([2z; -2z])   -> 2 F
//   favor      x, W          m^-1/2 (exp(W u - |u|^2/2) + 1e-4), u = x / D^(1/4); no running maximum      -> m
//   favor_relu x, W          relu(W u) + 1e-3                                                            -> m
//   rfa        x, W          m^-1/2 [sin(W x); cos(W x)]                                                 -> 2 m
//   dijiang    x, P [D, F]   softmax(x P)                                                                -> F
//
// Positions (rotary.cc)
//   rotary_interleaved, rotary_half  x, offset   pair i turned by (t + offset) number^(-2i/D); pairs (2i, 2i+1) or
//                                                (i, i + D/2); the last element of an odd D stays
//   rotate  x, phi [m]   pair (2i, 2i+1) of the first 2 m <= D elements turned by phi_i; the rest stays
//
// The offset of cosformer and rotary may be left out (0). It is a count of tokens, so it has no gradient; t is the
// index of the row, and with packed sequences an offset per token takes it back to the start of its sequence.
//
// leak_gate, shrink_gate, log and erase_log are undefined where the factor is negative (Status::out_of_domain),
// lower_bound_gate where l is not a fraction, root_complement where x > 0, precondition where A < 0. A factor of zero
// is clamped to a tiny positive number: the forward error is below rounding, and the gradient, which is divided by
// the factor again, keeps its value.
#pragma once

#include <cstddef>

#include "ttr/status.h"

namespace ttr {
template <class T>
struct Simd;
}

namespace ttr::prepare {

// clang-format off
enum class Op {
  multiply, unit_norm, rms_norm, nlms_step, longhorn_step, flow_step, leak_gate, shrink_gate, square_norm, skip,
  divide,
  // arithmetic
  add, subtract, negative_product, scale, blend_product, bonus_value, spread_last, spread_first, take_last,
  interleave, silu_gate, outer_product, first_half, second_half, join_three,
  // norms
  unit_norm_clamp, sum_norm, layer_norm, rms_norm_weighted, rms_gate_norm_first_silu, rms_gate_norm_first_sigmoid,
  rms_gate_gate_first_silu, rms_gate_gate_first_sigmoid, softmax,
  // gates
  sigmoid, log_sigmoid, softplus, exp_negative, one_minus_exp, lower_bound_gate, exp, log, erase_log, precondition,
  decay_rate_gate, root_complement, phase_step, implicit_step,
  // feature maps
  elu1, relu, silu, cosformer, dpfp, taylor2, rebased, polynomial, t2r, hedgehog_exp, hedgehog_softmax,
  hedgehog_softmax2, favor, favor_relu, rfa, dijiang, quadratic, project,
  // positions
  rotary_interleaved, rotary_half, rotate
};
// clang-format on
inline constexpr int op_count = static_cast<int>(Op::rotate) + 1;

/// Rows of a tensor: element d of row (b, t, h) is data[b*batch + t*time + (h/group)*head + d*inner].
/// A matrix (an operand W [F, K] or [H, F, K], or a result) has a second inner axis: element (f, d) is f*outer +
/// d*inner further on.
template <class T>
struct Rows {
  T* data = nullptr;
  std::ptrdiff_t batch = 0, time = 0, head = 0, inner = 0;
  int group = 1;  // heads of the operation that share one head of this tensor
  int width = 1;  // extent of the last axis
  std::ptrdiff_t outer = 0;
  int height = 1;  // extent of the last axis but one, of a matrix
  T* row(std::ptrdiff_t b, std::ptrdiff_t t, std::ptrdiff_t h) const {
    return data + b * batch + t * time + h / group * head;
  }
};

struct Extent {
  std::ptrdiff_t batch, time, heads;
};

inline constexpr int max_operands = 4;

/// Whether row t of the result depends on t itself, so that a call on a part of the tokens needs an offset.
constexpr bool depends_on_time_index(Op op) {
  return op == Op::cosformer || op == Op::rotary_interleaved || op == Op::rotary_half;
}

/// Tokens of the result and of the operands: so many of the result belong to so many of the operands. `number` is that
/// of the operation. A call on a part of the tokens has the bits of the whole if it starts and ends between such blocks.
struct TokenRatio {
  std::ptrdiff_t result = 1, operands = 1;
};
constexpr TokenRatio token_ratio(Op op, double number) {
  const std::ptrdiff_t pairs = number < 1.5 ? 1 : static_cast<std::ptrdiff_t>(number + 0.5);
  switch (op) {
    case Op::spread_last:
    case Op::spread_first:
      return {pairs, 1};
    case Op::take_last:
      return {1, pairs};
    case Op::interleave:
      return {2, 1};
    default:
      return {1, 1};
  }
}
constexpr bool changes_token_count(Op op) {
  return op == Op::spread_last || op == Op::spread_first || op == Op::take_last || op == Op::interleave;
}

/// to = op(from...). `number` is the operation's constant. `from` has as many entries as the list above names
/// operands (one that may be left out then has no data). `to` does not overlap an operand. `simd` is the table of the
/// instruction set to use; null: the best of this machine.
template <class T>
Status forward(Op, const Rows<const T>* from, const Rows<T>& to, double number, const Extent&,
               const Simd<T>* simd = nullptr) noexcept;

/// d_from += gradient, for each operand whose d_from has data; `to` is the forward result.
template <class T>
void backward(Op, const Rows<const T>* from, const Rows<const T>& to, const Rows<const T>& d_to,
              const Rows<T>* d_from, double number, const Extent&, const Simd<T>* simd = nullptr) noexcept;

/// Width of a feature map's result: `width` of x, `features` = rows of W (columns of P) where there is one, `number`
/// = the degree of polynomial or the nu of dpfp. Half of it for first_half and second_half, the width of x for any
/// other operation.
std::ptrdiff_t feature_width(Op, int width, int features, double number) noexcept;

}  // namespace ttr::prepare
