// States that decay element by element; no matrix product mixes their rows (the `scan` family).
//
//   vector     h_t = e^{g_t + i theta_t} * h_{t-1} + x_t ;  o_t = h_t                 h [D], real or complex
//   selective  S_t[n,d] = a_t[n,d] S_{t-1}[n,d] + k_t[n] u_t[d]                       S [K, V], real
//              o_t[d] = scale sum_n q_t[n] S_t[n,d]
//              a_t[n,d] = exp(step_t[d] A[n,d])   (Mamba-1: step = dt, u = dt x)
//                      or 2 exp(step_t[d] A[n,d]) - 1  (Mamba-1 with eigenvalues in [-1, 1])
//                      or 1 - k_t[n]^2 step_t[d]  (Longhorn as released: step = delta, u = delta x)
//   rotating   S_t = diag(e^{g_t + i theta_t}) S_{t-1} + k_t v_t' ;  o_t = scale Re(S_t)' q_t
//              S [K, V], complex
//
// HGRN, RG-LRU and LRU are `vector`, GateLoop is `rotating`. The [T, K, V] tensor of gates of `selective` is never
// stored. Sources: arXiv 2312.00752 (Mamba), 2407.14207 (Longhorn), 2411.12537 (negative eigenvalues), 2311.01927 (GateLoop), 2303.06349 (LRU).
//
// Forms: step and recurrent (the same, bit for bit; Form::best is this with one thread) and scan (common/scan.h): per
// segment of `chunk` tokens (<= 0: up to five of them) the map S -> A * S + B, an up-sweep and a down-sweep over the maps,
// then every segment from its own start; a team does the segments. A is a product of factors, not a sum of logs:
// Longhorn's factor may be zero or negative. Where it underflows the state has faded as well. Backward the scan is the
// same in reverse; the recurrent form runs the chain, with states kept every `chunk` tokens (<= 0: sqrt(T)).
//
// Traps: a complex state is two arrays, and its gradients are those of two real numbers (not Wirtinger's conjugates
// halved). Gradients are added to (+=); a gradient view with zero strides sums over what it broadcasts, in the
// precision of T. g = -inf closes a gate. chunk, parallel: not_supported.
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
struct ChannelProblem {
  std::span<const Sequence> sequences;
  int dim = 0;
  View<const T, 3> g;      // [B, T, D] log magnitude; no data = 0. Zero strides: a constant (evaluated once)
  View<const T, 3> theta;  // [B, T, D] phase in radians; no data = real
  View<const T, 3> x;      // [B, T, D]
  View<const T, 3> x_im;   // no data = 0; needs state_im
  T* state = nullptr;      // [N, D] contiguous, start in, end out
  T* state_im = nullptr;   // [N, D]; null = real. With theta it is required
  View<T, 3> o, o_im;      // no data = not wanted
  Team team = {};          // who works on it
  int chosen_by = 0;       // columns by which segments are cut: of all, where these are a part; 0: dim
};

template <class T>
struct ChannelGradient {
  View<const T, 3> d_o, d_o_im;  // no data = zero
  const T *d_final = nullptr, *d_final_im = nullptr;
  View<T, 3> d_g, d_theta, d_x, d_x_im;
  T *d_initial = nullptr, *d_initial_im = nullptr;
};

enum class SelectiveGate { exponential, twice, longhorn };

/// Head h reads q and k of head h / (heads / key_heads). Mamba-1's grouped B and C with D channels: heads = key_heads
/// = groups and V = D / groups, which is a view of [B, T, D]; without groups one head has all channels.
template <class T>
struct SelectiveProblem {
  std::span<const Sequence> sequences;
  SelectiveGate gate = SelectiveGate::exponential;
  int heads = 1, key_heads = 1, key_dim = 0, value_dim = 0;
  T scale = 1;            // on q
  View<const T, 4> q, k;  // [B, T, G, K]
  View<const T, 4> u;     // [B, T, H, V] what is written
  View<const T, 4> step;  // [B, T, H, V] dt or delta
  View<const T, 3> A;     // [H, K, V]; not used by the Longhorn gate
  T* state = nullptr;     // [N, H, K, V] contiguous
  View<T, 4> o;           // [B, T, H, V]
  Team team = {};
  int chosen_by = 0;  // columns by which segments are cut; 0: value_dim
};

template <class T>
struct SelectiveGradient {
  View<const T, 4> d_o;
  const T* d_final = nullptr;
  View<T, 4> d_q, d_k, d_u, d_step;
  View<T, 3> d_A;  // [H, K, V]
  T* d_initial = nullptr;
};

template <class T>
struct RotatingProblem {
  std::span<const Sequence> sequences;
  int heads = 1, key_heads = 1, key_dim = 0, value_dim = 0;
  T scale = 1;                              // on q
  View<const T, 4> q, k;                    // [B, T, G, K]
  View<const T, 4> v;                       // [B, T, H, V]
  View<const T, 4> g, theta;                // [B, T, H, K] log magnitude and phase; no data = 0; strides may be zero
  T *state = nullptr, *state_im = nullptr;  // [N, H, K, V] each
  View<T, 4> o;                             // [B, T, H, V]
  Team team = {};
  int chosen_by = 0;  // columns by which segments are cut; 0: value_dim
};

template <class T>
struct RotatingGradient {
  View<const T, 4> d_o;
  const T *d_final = nullptr, *d_final_im = nullptr;
  View<T, 4> d_q, d_k, d_v, d_g, d_theta;
  T *d_initial = nullptr, *d_initial_im = nullptr;
};

namespace elementwise {

/// Scratch for one call. `key_dim` is 1 for a vector problem, `longest` the length of the longest sequence.
template <class T>
std::size_t workspace_bytes(int key_dim, int value_dim, std::ptrdiff_t longest, Form, int chunk, bool backward,
                            int workers = 1) noexcept;

template <class T>
Status forward(const ChannelProblem<T>&, Form, int chunk, const Simd<T>&, Workspace) noexcept;
template <class T>
Status forward(const SelectiveProblem<T>&, Form, int chunk, const Simd<T>&, Workspace) noexcept;
template <class T>
Status forward(const RotatingProblem<T>&, Form, int chunk, const Simd<T>&, Workspace) noexcept;

/// `state` is the *initial* state and is only read; `o` is ignored.
template <class T>
Status backward(const ChannelProblem<T>&, const ChannelGradient<T>&, Form, int chunk, const Simd<T>&,
                Workspace) noexcept;
template <class T>
Status backward(const SelectiveProblem<T>&, const SelectiveGradient<T>&, Form, int chunk, const Simd<T>&,
                Workspace) noexcept;
template <class T>
Status backward(const RotatingProblem<T>&, const RotatingGradient<T>&, Form, int chunk, const Simd<T>&,
                Workspace) noexcept;

}  // namespace elementwise
}  // namespace ttr::families
