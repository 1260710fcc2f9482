// Per-token operations before and after the regression, each with its gradient: norms, step-size rules, gates,
// the skip connection. They have no state and no time: a row is the last axis of one (batch, token, head).
//
//   multiply     x, y       y is as wide as x, or one number wide
//   unit_norm    x / |x|              (zero stays zero; with eps: x / sqrt(sum x^2 + eps))
//   rms_norm     x / sqrt(mean x^2)   (zero stays zero; with eps added to the mean)
//   nlms_step    mu / (eps + |k|^2)           0 where the denominator is 0: such a key writes nothing
//   longhorn_step  delta / (1 + delta |k|^2)  the implicit step, argmin 1/2|X-S|^2 + delta/2 |v - X'k|^2
//   flow_step    (1 - exp(-beta |k|^2)) / |k|^2   by expm1; beta where k = 0
//   leak_gate    log(1 - beta lam)            log of the factor that leaky LMS puts on the state
//   shrink_gate  log(1 - lam)
//   square_norm  |x|^2
//   skip         o + d x
//   divide       o / n                        0 where n = 0
//
// leak_gate and shrink_gate are undefined where the factor is negative (Status::out_of_domain). A factor of zero is
// clamped to a tiny positive number: the forward error is below rounding, and the gradient, which is divided by the
// factor again, keeps its value.
#pragma once

#include <cstddef>

#include "ttr/status.h"

namespace ttr::prepare {

enum class Op {
  multiply, unit_norm, rms_norm, nlms_step, longhorn_step, flow_step, leak_gate, shrink_gate, square_norm, skip, divide
};

/// Rows of a tensor: element d of row (b, t, h) is data[b*batch + t*time + (h/group)*head + d*inner].
template <class T>
struct Rows {
  T* data = nullptr;
  std::ptrdiff_t batch = 0, time = 0, head = 0, inner = 0;
  int group = 1;  // heads of the operation that share one head of this tensor
  int width = 1;  // extent of the last axis
  T* row(std::ptrdiff_t b, std::ptrdiff_t t, std::ptrdiff_t h) const {
    return data + b * batch + t * time + h / group * head;
  }
};

struct Extent {
  std::ptrdiff_t batch, time, heads;
};

inline constexpr int max_operands = 3;

/// to = op(from...). eps is the operation's constant.
template <class T>
Status forward(Op, const Rows<const T>* from, const Rows<T>& to, double eps, const Extent&) noexcept;

/// d_from += gradient, for each operand whose d_from has data; `to` is the forward result.
template <class T>
void backward(Op, const Rows<const T>* from, const Rows<const T>& to, const Rows<const T>& d_to, const Rows<T>* d_from,
              double eps, const Extent&) noexcept;

}  // namespace ttr::prepare
