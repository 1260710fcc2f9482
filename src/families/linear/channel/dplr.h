// Diagonal plus low rank:
//
//   S~ = diag(e^{gk_t}) S_{t-1} ;  r_t = R' a_t ;  S_t = S~ + k_t (beta_t v_t)' + b_t r_t' ;  o_t = S_t' (scale q_t)
//
// R = S_{t-1}, or S~ with decayed_read. Without b the tokens write their residual with their own key,
// S_t = S~ + k_t (beta_t (v_t - r_t))', which is b = -beta k at half the work; without a the read key is k.
//
//   DPLR, RWKV-7 (a, b), IPLR (no gk)             KDA: decayed_read and beta alone, no a, no b
//   GDN-2: decayed_read, a = erase*k, v = write*v   preconditioned KDA: decayed_read, a = k, k = D*k, beta
//   Comba: a = p, gk with a zero inner stride
//
// The step is not bounded by itself: for beta a'k (or -a'b) beyond 2 the recurrence grows, in every form alike.
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
/// a without data = k, b without data = -beta k. gv and bonus have no data, and there is no read_before.
template <class T>
struct DplrProblem : VectorProblem<T> {
  DplrProblem() = default;
  DplrProblem(const LinearProblem<T>& p, const View<const T, 4>& gates, const View<const T, 4>& read,
              const View<const T, 4>& erase, bool decayed)
      : VectorProblem<T>{p, gates, {}, read, erase, {}, false, decayed} {}
};

template <class T>
struct DplrGradient : LinearGradient<T> {
  View<T, 4> d_gk, d_a, d_b;  // zero strides sum; without a its part is in d_k, without b in d_k and d_beta
};

namespace dplr {

/// What a forward of a sequence leaves for its backward (common/saved.h).
template <class T>
SavedChunks saved_chunks(int key_dim, int value_dim, bool erases, std::ptrdiff_t tokens, Form form, int chunk,
                         int vector_bytes) noexcept;

/// As decay::workspace_bytes; enough with and without b.
template <class T>
std::size_t workspace_bytes(int key_dim, int value_dim, std::ptrdiff_t longest, Form, int chunk, bool backward,
                            int workers = 1) noexcept;

/// As decay::forward.
template <class T>
Status forward(const DplrProblem<T>&, Form, int chunk, const Simd<T>&, Workspace) noexcept;

/// As decay::backward.
template <class T>
Status backward(const DplrProblem<T>&, const DplrGradient<T>&, Form, int chunk, const Simd<T>&, Workspace) noexcept;

}  // namespace dplr
}  // namespace ttr::families
