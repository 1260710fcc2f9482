// Exponential input weights with a running maximum, normalised (mLSTM of xLSTM):
//
//   m_t = max(f_t + m_{t-1}, i_t) ;  f' = e^{f_t + m_{t-1} - m_t} ;  i' = e^{i_t - m_t}
//   C_t = f' C_{t-1} + i' k~_t v_t' ;  n_t = f' n_{t-1} + i' k~_t                               k~ = key_scale k
//   denom_t = max(|n_t.q_t|, e^{-m_t}) + eps ;  o_t = C_t' q_t / denom_t
//
// f is the log of the forget gate (log sigmoid of its pre-activation, or the pre-activation itself), i the log of the
// input gate. State per sequence and head: C [K, V] and n [K], both relative to e^m, and m; fresh: all zero.
// Source: NX-AI/xlstm (arXiv 2405.04517); key_scale = K^{-1/2} there.
//
// Chunk form, rows t of c tokens (n is one more column of C, for which every value is 1):
//
//   W_ts = e^{f_{s+1} + .. + f_t + i_s - m_t} (s <= t) ;  e_t = e^{f_1 + .. + f_t + m_0 - m_t}           all <= 1
//   [C' q, n.q] = diag(e) Q [C_0, n_0] + tril(Q K~' * W) [V, 1]
//   [C, n]_end  = e_c [C_0, n_0] + (diag(W_c) K~)' [V, 1]
//
// Forms: step, recurrent, chunk (best from 8 tokens on), parallel (one chunk of T). scan: not_supported.
//
// Gradients are those of the formula as written, also through m: they differ from the gradients at constant m only by
// what eps contributes, and where the final C, n, m are part of the loss one by one. At a tie of the maximum each
// side gets half. Gradients are added to (+=).
#pragma once

#include <cstddef>

#include "families/common/linear.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

template <class T>
struct StabilisedProblem {
  LinearProblem<T> linear;  // q, k, v, o, sequences; g is f (no data = 0), scale is on q, state is C; beta: no data
  T key_scale = 1;
  T eps = 0;
  View<const T, 3> input;   // i [B, T, H]
  T* normaliser = nullptr;  // n [N, H, K] contiguous, start in, end out
  T* maximum = nullptr;     // m [N, H]
  View<T, 3> denom;         // [B, T, H]; no data = not wanted
};

template <class T>
struct StabilisedGradient {
  LinearGradient<T> linear;  // d_g is df; d_final and d_initial are dC
  View<const T, 3> d_denom;  // no data = zero
  View<T, 3> d_input;
  const T *d_final_normaliser = nullptr, *d_final_maximum = nullptr;
  T *d_initial_normaliser = nullptr, *d_initial_maximum = nullptr;
};

namespace stabilised {

/// chunk <= 0: see choice.h; in the recurrent form's backward the distance of kept states, <= 0: sqrt(T).
template <class T>
std::size_t workspace_bytes(int key_dim, int value_dim, std::ptrdiff_t longest, Form, int chunk,
                            bool backward) noexcept;

template <class T>
Status forward(const StabilisedProblem<T>&, Form, int chunk, const Simd<T>&, Workspace) noexcept;

/// The states are the *initial* ones and are only read; `linear.o` and `denom` are ignored.
template <class T>
Status backward(const StabilisedProblem<T>&, const StabilisedGradient<T>&, Form, int chunk, const Simd<T>&,
                Workspace) noexcept;

}  // namespace stabilised
}  // namespace ttr::families
