// A linear memory moved by single gradient steps of a loss that bends, or by steps that AdaGrad divides: online logistic and
// softmax regression.
//
//   S <- e^{g_t} S ;  y = S'k_t ;  p = sigmoid(y), softmax(y) or y ;  e = p - v_t                     Loss
//   G = k_t e' ;  S <- S - beta_t G                                                                  without adagrad
//                 A <- A + G*G ,  S <- S - beta_t G / (sqrt(A) + eps)                                adagrad, entry by entry
//   o_t = scale S' q_t , after the step, or (read_before) before it and before the decay
//
// S and A [K, V] per head, double whatever T is: A is a sum of many small squares. Where nothing was summed yet (A = 0) an entry
// does not move. Forms: step and recurrent, since every step goes through the answer of the memory as it is; logistic regression
// has no state that tokens could be added to. Backward keeps 2 sqrt(T) states (families/common/replay.h).
// Sources: Duchi, Hazan, Singer 2011; recipes `sgd(beta, adagrad) | logistic` and `| cross_entropy`.
#pragma once

#include <cstddef>

#include "families/common/linear.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

struct LikelihoodModel {
  enum class Loss { squared, logistic, cross_entropy } loss = Loss::squared;
  bool adagrad = false, read_before = false;
  double eps = 0;
};

template <class T>
struct LikelihoodProblem {
  LinearProblem<T> linear;  // beta is the step; linear.state is not used
  LikelihoodModel model;
  double* s = nullptr;        // [N, H, K, V] contiguous, start in, end out
  double* squares = nullptr;  // A, with adagrad
};

/// Gradients are added to (+=). `linear.d_final` and `linear.d_initial` are not used.
template <class T>
struct LikelihoodGradient {
  LinearGradient<T> linear;
  const double *d_final_s = nullptr, *d_final_squares = nullptr;  // null = zero
  double *d_initial_s = nullptr, *d_initial_squares = nullptr;
};

namespace likelihood {

std::size_t workspace_bytes(int key_dim, int value_dim, std::ptrdiff_t longest, bool backward) noexcept;

/// Forms: best, step, recurrent, all the same; others are not_supported.
template <class T>
Status forward(const LikelihoodProblem<T>&, Form, const Simd<double>&, Workspace) noexcept;

/// `s` and `squares` are the *initial* states and are only read; `o` is ignored.
template <class T>
Status backward(const LikelihoodProblem<T>&, const LikelihoodGradient<T>&, Form, const Simd<double>&,
                Workspace) noexcept;

}  // namespace likelihood
}  // namespace ttr::families
