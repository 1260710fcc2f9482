// Small running quantities that some layers prepare before their regression, with a state carried from call to call.
// Per sequence, head and channel, with x, y [B, T, H, D] unless said otherwise:
//
//   delay      y_t = x_{t-1}                                            state [N, H, D]: the last x
//   phase      y_t = (y_{t-1} + x_t) mod 2 pi, in [0, 2 pi)             state [N, H, D]: the last y
//   log_share  z_t = log(e^{z_{t-1}} + e^{x_t})                         state [N, H, 2D]: z [D], then seen [D]
//              y_t = (e^{x_t - z_t}, z_{t-1} - z_t)                     y [B, T, H, 2D]: shares, then log decays
//   sign       y_t = y_{t-1} sign(x_t), sign(0) = 1: +1 or -1          state [N, H, D]: 1 where y is negative, else 0
//   position   y_t = tokens seen before this call - begin               state [N, 1]: tokens seen;  y [B, T, 1, 1]
//              so that t + y_t counts from the start of the sequence; no x
//
// A state of zeros is fresh. One loop over time serves every form, and a call has the bits of one call per token.
// Sources: Mamba-3 (phases of its rotation, the previous key and value); ABC, arXiv 2110.02488 (log_share).
//
// log_share: seen = 0 means that nothing came before (z = -inf). Then the share is 1 and the log decay 0, not -inf:
// ABC as published does not decay a given memory at the first token. Any other value means seen, and 1 is written.
// In float that 1 also holds what rounding took from z (1 + remainder), so that z does not stand still when shares
// get smaller than its last digit. x = -inf is a token without weight; +inf gives NaN.
//
// Gradients are those of the formulas; a sign has none, the modulus has slope 1, and `seen` none (a call without tokens hands d_final
// through whole).
//
// Traps: y must not overlap x. position counts in T: more than 2^24 tokens in float (2^53 in double), or a tensor of
// that length, return state_full before anything is touched. phase in float loses up to 2.4e-7 per token; with one
// and the same x these need not average out. log_share holds z to 6e-8 in float while |z| < 2^23, then to its last
// digit.
#pragma once

#include <cstddef>
#include <span>

#include "families/common/linear.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

enum class Carry { delay, phase, log_share, sign, position };

template <class T>
struct CarryProblem {
  std::span<const Sequence> sequences;  // sequence n owns state n
  Carry kind = Carry::delay;
  int heads = 1, dim = 0;  // not read by position
  View<const T, 4> x;      // [B, T, H, D]; not read by position
  T* state = nullptr;      // [N, carry::state_size] contiguous, start in, end out
  View<T, 4> y;            // [B, T, H, carry::width], position: [B, T, 1, 1]; no data = not wanted
};

/// `d_y` and `d_final` come in, the others go out and are added to (+=). Without data: zero, or not wanted.
template <class T>
struct CarryGradient {
  View<const T, 4> d_y;
  const T* d_final = nullptr;  // as the state
  View<T, 4> d_x;
  T* d_initial = nullptr;
};

namespace carry {

/// Numbers per sequence in the state.
std::ptrdiff_t state_size(Carry, int heads, int dim) noexcept;
/// Numbers per token and head in y.
int width(Carry, int dim) noexcept;

/// Scratch of backward, `longest` the length of the longest sequence: 0 except for log_share. Forward needs none.
template <class T>
std::size_t workspace_bytes(Carry, int dim, std::ptrdiff_t longest) noexcept;

template <class T>
Status forward(const CarryProblem<T>&) noexcept;

/// `state` is the *initial* state and is only read; `y` is ignored.
template <class T>
Status backward(const CarryProblem<T>&, const CarryGradient<T>&, Workspace) noexcept;

}  // namespace carry
}  // namespace ttr::families
