// Sums over pairs whose weight is a square, (q.k)^2 / K, with one gate per token and head (ReBased, arXiv 2402.10644):
//
//   S_t = e^{g_t} S_{t-1} + beta_t phi(k_t) v_t' ;  o_t = S_t' (scale phi(q_t))       S [F, V], F = K (K + 1) / 2
//   phi(x).phi(y) = (x.y)^2 / K                                                       simd/squares.h
//
// This is the family decay on features that are made here, in double, and so are S and its sums, whatever the type of the
// tensors. In float phi(q).phi(k) is known to u |q|^2 |k|^2 only, so that a query nearly at right angles to the keys has no
// digits left; a chunk could square q.k of its own pairs, but S holds rounded products of all before it. In double both
// are known to more than the rounding of q and k themselves is.
//
// Features take scratch for a block of tokens forwards, for one key head of one sequence backwards.
#pragma once

#include <cstddef>

#include "families/common/linear.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"

namespace ttr::families {

/// key_dim is K; `state` is not used.
template <class T>
struct SquaresProblem : LinearProblem<T> {
  double* memory = nullptr;  // [N, H, F, V] contiguous, start in, end out
};
/// d_final and d_initial are not used.
template <class T>
struct SquaresGradient : LinearGradient<T> {
  const double* d_final_memory = nullptr;
  double* d_initial_memory = nullptr;
};

namespace squares {

/// `group`: heads that share a key head.
std::size_t workspace_bytes(int key_dim, int value_dim, int group, std::ptrdiff_t longest, Form, int chunk,
                            bool backward) noexcept;

template <class T>
Status forward(const SquaresProblem<T>&, Form, int chunk, const Simd<double>&, Workspace) noexcept;

/// `memory` is the initial state and is only read; `o` is ignored.
template <class T>
Status backward(const SquaresProblem<T>&, const SquaresGradient<T>&, Form, int chunk, const Simd<double>&,
                Workspace) noexcept;

}  // namespace squares
}  // namespace ttr::families
