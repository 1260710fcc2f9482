// An exponentially weighted mean per channel, with a bonus for the newest token (RWKV-4):
//
//   o_t = (sum_{s<t} e^{w_{s+1} + .. + w_{t-1} + k_s} v_s + e^{u + k_t} v_t) / (the same with v = 1)
//
// State per channel: alpha, beta and an exponent e; the sums are alpha e^e and beta e^e, fresh: 0, 0, -1e30.
//
//   tau = max(u + k_t, e) ;  pa = e^{e - tau} ;  pb = e^{u + k_t - tau}
//   o_t = (pa alpha + pb v_t) / (pa beta + pb)
//   e' = max(w_t + e, k_t) ;  fa = e^{w_t + e - e'} ;  fb = e^{k_t - e'}
//   alpha' = fa alpha + fb v_t ;  beta' = fa beta + fb
//
// w is the log of the decay (RWKV-4: -exp(w_raw)); it acts after the read. Source: BlinkDL/RWKV-LM, wkv kernel.
//
// Forms: step, recurrent (= best) and scan over segments (common/scan.h; `chunk` tokens each, <= 0: by the length), whose
// states are merged like those of a streaming softmax: the map of a segment is its state alone and its sum of w. Of
// gradients it is  d -> e^{sum of w + e_start - e_end} d + D , where the factor is at most 1. chunk, parallel:
// not_supported. Backward of the other forms runs the chain, with states every `chunk` tokens (<= 0: sqrt(T)).
//
// Traps: gradients of alpha and beta are taken at constant e, the initial and the final one: the state means
// alpha e^e, and how a number is split between the two is no part of the function. Then the gradient of e_0 is
// alpha_0 dalpha_0 + beta_0 dbeta_0; it is not returned. Gradients are added to (+=); a gradient view with zero
// strides sums over what it broadcasts.
#pragma once

#include <cstddef>
#include <span>

#include "families/common/linear.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

template <class T>
struct WeightedMeanProblem {
  std::span<const Sequence> sequences;
  int dim = 0;
  View<const T, 3> k, v;                                     // [B, T, D]
  View<const T, 3> w, u;                                     // [B, T, D]; strides may be zero (constants)
  T *alpha = nullptr, *beta = nullptr, *exponent = nullptr;  // [N, D] each, start in, end out
  View<T, 3> o;                                              // [B, T, D]; no data = not wanted
  Team team = {};                                            // who works on it
  int chosen_by = 0;  // columns by which segments are cut: of all, where these are a part; 0: dim
};

template <class T>
struct WeightedMeanGradient {
  View<const T, 3> d_o;
  const T *d_final_alpha = nullptr, *d_final_beta = nullptr;
  View<T, 3> d_k, d_v, d_w, d_u;
  T *d_initial_alpha = nullptr, *d_initial_beta = nullptr;
};

namespace weighted_mean {

template <class T>
std::size_t workspace_bytes(int dim, std::ptrdiff_t longest, Form, int chunk, bool backward,
                            int workers = 1) noexcept;

template <class T>
Status forward(const WeightedMeanProblem<T>&, Form, int chunk, const Simd<T>&, Workspace) noexcept;

/// The states are the *initial* ones and are only read; `o` is ignored.
template <class T>
Status backward(const WeightedMeanProblem<T>&, const WeightedMeanGradient<T>&, Form, int chunk, const Simd<T>&,
                Workspace) noexcept;

}  // namespace weighted_mean
}  // namespace ttr::families
