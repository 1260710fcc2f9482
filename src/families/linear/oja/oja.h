// The gated Oja rule: a linear map from v to k, one gradient step per token, a gate for every value channel.
//
//   S~ = S_{t-1} diag(e^{gv_t}) ;  w_t = beta_t (k_t - S~ v_t) ;  S_t = S~ + w_t v_t' ;  o_t = S_t' (scale q_t)
//
// S [K, V] per sequence and head. On the transposed state it is the gated delta rule (KDA) with key v and value k,
// but its answer is S' q, where KDA's would be a column S x. Source: fla, ops/gated_oja_rule; scale = K^{-1/2} there.
//
// Forms: step, recurrent, chunk, parallel, scan and best, as in decay.h. The rows of S do not meet, so the map of a
// segment multiplies from the right, S A + B with A [V, V].
//
// Any gate <= 0, and -inf, is safe in every form: no exponent is ever above 12 (gates.h). v is not normalised here,
// and the step is not bounded by itself: for beta |v|^2 beyond 2 the recurrence may grow, in every form alike.
#pragma once

#include <cstddef>

#include "families/common/linear.h"
#include "families/linear/scalar/decay.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

template <class T>
struct OjaProblem {
  LinearProblem<T> linear;  // g must have no data (not_supported): give it as gv with a zero inner stride
  View<const T, 4> gv;      // [B, T, H, V] natural log; no data = 0. Strides may be zero.
};

template <class T>
struct OjaGradient {
  LinearGradient<T> linear;  // d_g is not written
  View<T, 4> d_gv;           // a zero stride sums
};

namespace oja {

/// As decay::workspace_bytes.
template <class T>
std::size_t workspace_bytes(int key_dim, int value_dim, std::ptrdiff_t longest, Form, int chunk, bool backward,
                            int workers = 1) noexcept;

template <class T>
Status forward(const OjaProblem<T>&, Form, int chunk, const Simd<T>&, Workspace) noexcept;

/// `linear.state` is the *initial* state and is only read; `linear.o` is ignored.
template <class T>
Status backward(const OjaProblem<T>&, const OjaGradient<T>&, Form, int chunk, const Simd<T>&, Workspace) noexcept;

}  // namespace oja
}  // namespace ttr::families
