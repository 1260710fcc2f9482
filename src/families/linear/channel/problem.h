// The problem of the families with a gate for every channel, and its gradient (gated.h and dplr.h are its faces):
//
//   S~  = diag(e^{gk_t}) S_{t-1} diag(e^{gv_t})        R = S_{t-1} (decayed_read: S~)        r_t = R' a_t
//   Erase::none    S_t = S~ + k_t (beta_t v_t)'
//   Erase::same    S_t = S~ + k_t (beta_t (v_t - r_t))'
//   Erase::other   S_t = S~ + k_t (beta_t v_t)' + b_t r_t'
//   o_t = S_t' (scale q_t)        read_before: o_t = (S_{t-1} + (bonus*k_t) v_t')' (scale q_t)
//
// gv, read_before and bonus go with Erase::none only: with a read, a value gate would give every column of S another
// system to solve.
#pragma once

#include "families/common/linear.h"

namespace ttr::families {

enum class Erase { none, same, other };

template <class T>
struct VectorProblem : LinearProblem<T> {
  View<const T, 4> gk, gv;  // [B, T, H, K], [B, T, H, V] natural logs; no data = 0. Strides may be zero.
  View<const T, 4> a, b;    // [B, T, H, K] read and erase keys; a without data = k
  View<const T, 2> bonus;   // [H, K]; no data = 0
  bool read_before = false, decayed_read = false;
};

template <class T>
struct VectorGradient : LinearGradient<T> {
  View<T, 4> d_gk, d_gv, d_a, d_b;
  View<T, 2> d_bonus;
};

}  // namespace ttr::families
