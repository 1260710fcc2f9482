// The delta rule with scalar decay:
//
//   S~ = e^{g_t} S_{t-1} ;  u_t = beta_t (v_t - R' k_t) ;  S_t = S~ + k_t u_t' ;  o_t = S_t' (scale q_t)
//
// R = S~ (Residual::decayed: DeltaNet without g, Gated DeltaNet) or R = S_{t-1} (Residual::undecayed: leaky LMS,
// decoupled weight decay). Stable while beta |k|^2 <= 2; beyond it the recurrence itself grows without bound, and
// every form then returns those large numbers (or inf), not an error.
#pragma once

#include <cstddef>

#include "families/common/linear.h"
#include "families/linear/scalar/decay.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"

namespace ttr::families {

enum class Residual { decayed, undecayed };

namespace delta {

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
Status forward(const LinearProblem<T>&, Residual, Form, int chunk, const Simd<T>&, Workspace) noexcept;

/// As decay::backward.
template <class T>
Status backward(const LinearProblem<T>&, const LinearGradient<T>&, Residual, Form, int chunk, const Simd<T>&,
                Workspace) noexcept;

}  // namespace delta
}  // namespace ttr::families
