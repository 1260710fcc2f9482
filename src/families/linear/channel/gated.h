// Vector decay, S [K, V] per sequence and head:
//
//   S_t = diag(e^{gk_t}) S_{t-1} diag(e^{gv_t}) + beta_t k_t v_t' ;  o_t = S_t' (scale q_t)
//   read_before:   o_t = (S_{t-1} + (bonus*k_t) v_t')' (scale q_t)
//
// GLA and HGRN2 (gk), slots of GSA and ABC (gk or gv), RWKV-6 (read_before with bonus) are this family. Any finite
// gate <= 0, and -inf, is safe in every form: no exponent is ever above 12 (gates.h). The bonus is not times beta.
#pragma once

#include <cstddef>

#include "families/common/linear.h"
#include "families/linear/channel/problem.h"
#include "families/linear/scalar/decay.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"

namespace ttr::families {

/// The scalar gate g of LinearProblem must have no data here (not_supported): give it as gk with a zero inner stride.
/// A bonus goes with read_before only. a and b have no data, and decayed_read is of no account.
template <class T>
struct GatedProblem : VectorProblem<T> {
  GatedProblem() = default;
  GatedProblem(const LinearProblem<T>& p, const View<const T, 4>& key_gates, const View<const T, 4>& value_gates,
               const View<const T, 2>& weights, bool before)
      : VectorProblem<T>{p, key_gates, value_gates, {}, {}, weights, before, false} {}
};

template <class T>
struct GatedGradient : LinearGradient<T> {
  View<T, 4> d_gk, d_gv;  // a zero stride sums: d_gk with a zero inner stride is the gradient of a scalar gate
  View<T, 2> d_bonus;
};

namespace gated {

/// What a forward of a sequence leaves for its backward (common/saved.h).
template <class T>
SavedChunks saved_chunks(int key_dim, int value_dim, std::ptrdiff_t tokens, Form form, int chunk,
                         int vector_bytes) noexcept;

/// As decay::workspace_bytes.
template <class T>
std::size_t workspace_bytes(int key_dim, int value_dim, std::ptrdiff_t longest, Form, int chunk, bool backward,
                            int workers = 1) noexcept;

/// As decay::forward.
template <class T>
Status forward(const GatedProblem<T>&, Form, int chunk, const Simd<T>&, Workspace) noexcept;

/// As decay::backward.
template <class T>
Status backward(const GatedProblem<T>&, const GatedGradient<T>&, Form, int chunk, const Simd<T>&, Workspace) noexcept;

}  // namespace gated
}  // namespace ttr::families
