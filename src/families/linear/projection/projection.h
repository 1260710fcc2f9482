// Affine projection (APA-p, block Kaczmarz): a step that fits the last p pairs at once,
//
//   S_t = S_{t-1} + mu_t K_w' (K_w K_w' + eps I)^{-1} (V_w - K_w S_{t-1}) ;   o_t = S_t' (scale q_t)
//
// K_w [p, K] and V_w [p, V] are the rows t-p+1 .. t. With mu = 1, eps = 0 the state reproduces the window exactly,
// K_w S_t = V_w; p = 1 is normalised LMS. S [K, V] per sequence and head.
//
// State: S and the p-1 pairs before the first token, oldest first. A fresh state has zero pairs: a pair with a zero
// key writes nothing, so that the first tokens see a shorter window. The p x p systems are solved in double.
//
// Traps: with eps = 0 dependent keys in a window (p > K, repeated keys) have no answer: the tokens from there on are
// NaN and the call returns out_of_domain. Zero keys are no failure. With eps < 0: out_of_domain before anything is
// touched. Windows overlap: there is no chunk or parallel form (not_supported).
//
// Forms: step and recurrent (the same; = best), and scan: the maps S -> A S + B, A [K, K], of segments of `chunk`
// tokens (<= 0: up to five of them), composed by the tree of segments.h. A and B share the systems of their windows and are
// made together. Backward runs the chain, with states kept every `chunk` tokens: windows overlap at the borders.
#pragma once

#include <cstddef>

#include "families/common/linear.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

template <class T>
struct ProjectionProblem {
  LinearProblem<T> linear;  // q, k, v, scale, o, sequences, state; beta is mu. g must have no data
  int window = 1;           // p >= 1
  double eps = 0;
  T* keys = nullptr;    // [N, p-1, G, K] contiguous, start in, end out; null when p = 1
  T* values = nullptr;  // [N, p-1, H, V]
};

/// Gradients are added to (+=). The final pairs are copies of tokens (or of initial pairs, for short calls).
template <class T>
struct ProjectionGradient {
  LinearGradient<T> linear;  // d_beta is dmu
  const T *d_final_keys = nullptr, *d_final_values = nullptr;
  T *d_initial_keys = nullptr, *d_initial_values = nullptr;
};

namespace projection {

template <class T>
std::size_t workspace_bytes(int key_dim, int value_dim, int window, std::ptrdiff_t longest, Form, int chunk,
                            bool backward, int workers = 1) noexcept;

template <class T>
Status forward(const ProjectionProblem<T>&, Form, int chunk, const Simd<T>&, Workspace) noexcept;

/// The states are the *initial* ones and are only read; `linear.o` is ignored.
template <class T>
Status backward(const ProjectionProblem<T>&, const ProjectionGradient<T>&, Form, int chunk, const Simd<T>&,
                Workspace) noexcept;

}  // namespace projection
}  // namespace ttr::families
