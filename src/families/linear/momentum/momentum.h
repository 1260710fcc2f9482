// The delta rule with momentum, states S and Z [K, V] per sequence and head:
//
//   r_t = v_t - f_t S_{t-1}' p_t ;  Z_t = e^{g_mu,t} Z_{t-1} + eta_t k_t r_t'
//   S_t = e^{g_t} S_{t-1} + beta_t Z_t ;  o_t = S_t' (scale q_t)
//
// f = 1 (Residual::undecayed) or f = e^{g_t} (Residual::decayed: the paper's p = a k). p = k unless given.
// Source: Momentum DeltaNet, arXiv 2605.05838. Without momentum (g_mu = -inf) it is the delta rule with the step
// beta eta.
//
// Trap: flash-linear-attention keeps M = -Z ("the gradient"): negate the state, and its gradients, at the border.
//
// Chunk form, rows t of c tokens from S_0, Z_0, with a = e^g, abar its running product, m that of e^{g_mu},
// Dm_ti = m_t / m_i from sums of gates (i <= t):
//
//   Gm_ti = a_t Gm_{t-1,i} + beta_t Dm_ti ;  bt_t = a_t bt_{t-1} + beta_t m_t          (all 0 before the first row)
//   (I + A) R = V - diag(ap) P S_0 - diag(bp) P Z_0
//        A_ti = f_t Gm_{t-1,i} p_t.k_i eta_i ;  ap_t = f_t abar_{t-1} ;  bp_t = f_t bt_{t-1}
//   O  = diag(abar) Q S_0 + diag(bt) Q Z_0 + tril(Gm * Q K') W                         W = diag(eta) R
//   S' = abar_c S_0 + bt_c Z_0 + (diag(Gm_c) K)' W ;   Z' = m_c Z_0 + (diag(Dm_c) K)' W
//
// The recursions for Gm and bt take the place of a log-sum-exp: no division by products of gates, every factor of a
// gate is <= 1, beta may have any sign. parallel is one chunk of T tokens. scan composes the maps of segments of
// `chunk` tokens (<= 0: up to five of them) on [S; Z], 2K x 2K matrices, by the tree of segments.h; backward it is the
// recurrent form.
#pragma once

#include <cstddef>

#include "families/common/linear.h"
#include "families/linear/scalar/delta.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

template <class T>
struct MomentumProblem {
  LinearProblem<T> linear;  // q, k, v, g, beta, scale, o, sequences; linear.state is S
  Residual residual = Residual::undecayed;
  View<const T, 4> p;     // [B, T, G, K] read key; no data = k
  View<const T, 3> g_mu;  // [B, T, H] log of the momentum; no data = 0 (nothing is forgotten). -inf: no momentum
  View<const T, 3> eta;   // [B, T, H]; no data = 1
  T* momentum = nullptr;  // Z [N, H, K, V] contiguous, start in, end out
};

/// Gradients are added to (+=). Without a view p in the problem the read's gradient goes to d_k (and d_p is ignored).
template <class T>
struct MomentumGradient {
  LinearGradient<T> linear;
  View<T, 4> d_p;
  View<T, 3> d_g_mu, d_eta;
  const T* d_final_momentum = nullptr;
  T* d_initial_momentum = nullptr;
};

namespace momentum {

/// chunk <= 0: see choice.h; in the recurrent form's backward the distance of kept states, <= 0: sqrt(T).
template <class T>
std::size_t workspace_bytes(int key_dim, int value_dim, std::ptrdiff_t longest, Form, int chunk, bool backward,
                            int workers = 1) noexcept;

/// Form::best is the chunk form from 8 tokens on.
template <class T>
Status forward(const MomentumProblem<T>&, Form, int chunk, const Simd<T>&, Workspace) noexcept;

/// The states are the *initial* ones and are only read; `linear.o` is ignored.
template <class T>
Status backward(const MomentumProblem<T>&, const MomentumGradient<T>&, Form, int chunk, const Simd<T>&,
                Workspace) noexcept;

}  // namespace momentum
}  // namespace ttr::families
