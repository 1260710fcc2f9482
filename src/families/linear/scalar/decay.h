// Scalar decay, S [K, V] per sequence and head:
//
//   S_t = e^{g_t} S_{t-1} + beta_t k_t v_t' ;  o_t = S_t' (scale q_t)
//
// Linear attention (no g), RetNet (g constant: zero strides), Mamba-2 and simple GLA (g per token) are this family.
// All forms are exact and agree to rounding; see chunk.h for the block form and recurrent.h for the step.
#pragma once

#include <cstddef>

#include "families/common/linear.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"

namespace ttr::families {

namespace decay {

/// What a forward of a sequence leaves for its backward (common/saved.h).
template <class T>
SavedChunks saved_chunks(int key_dim, int value_dim, std::ptrdiff_t tokens, Form form, int chunk,
                         int vector_bytes) noexcept;

/// Scratch for one call: `longest` is the length of the longest sequence, chunk <= 0: see choice.h.
/// Form::parallel works on one chunk of `longest` tokens and so needs O(longest^2). `workers`: of the team (team.h).
template <class T>
std::size_t workspace_bytes(int key_dim, int value_dim, std::ptrdiff_t longest, Form, int chunk, bool backward,
                            int workers = 1) noexcept;

/// Forms: step and recurrent (the same, bit for bit), chunk, parallel; best: see choice.h, for each sequence by its
/// own length; scan: segments of `chunk` tokens (default: up to five of them, in whole chunks) as affine maps, composed
/// by a tree: scan.h. The workspace's contents do not matter before or after.
template <class T>
Status forward(const LinearProblem<T>&, Form, int chunk, const Simd<T>&, Workspace) noexcept;

/// `problem.state` is the *initial* state and is only read; `problem.o` is ignored.
template <class T>
Status backward(const LinearProblem<T>&, const LinearGradient<T>&, Form, int chunk, const Simd<T>&,
                Workspace) noexcept;

}  // namespace decay
}  // namespace ttr::families
