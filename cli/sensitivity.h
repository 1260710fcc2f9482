// What a problem itself does with rounding, measured with the literal solver: the allowance of `ttr check --recipes`.
//
//   sensitivity   how much answers and gradients change, relative to a relative change of the inputs by 1e-8, or by less
//                 where that leaves no digit of them
//   condition     of the products of features that a solve divides by. Moved inputs do not show it, because a map may
//                 leave features that nearly depend on each other whatever the inputs are (rebased of two channels has
//                 three features and two points; favor_relu leaves 1e-3 where nothing is active), and rounding leaves
//                 that surface. Normal equations and rotations lose u condition (Higham, Accuracy and Stability of
//                 Numerical Algorithms, section 20.4).
#pragma once

#include "runner.h"

namespace ttr::cli {

struct Sensitivity {
  double answers = 0, gradients = 0;  // NaN at the border of what has an answer
};

/// A call from a fresh state and what the literal solver made of it.
struct SolvedCall {
  const NamedNumbers &inputs, &d_outputs;
  const NamedNumbers &outputs, &gradients;
};

/// `floor`: the size of a gradient below which it does not count.
Sensitivity measure_sensitivity(const Runner& literal, const SolvedCall&, double floor, std::uint64_t seed);

/// Largest over smallest s^2 + ridge, s the singular values of the features of the last `most_pairs` pairs, the worst of
/// all tokens and heads; infinite where they depend on each other and there is no ridge, 1 for a memory that is not linear.
/// `literal` is a plan of `recipe`.
double condition_of_features(const Plan& literal, const Recipe& recipe, const NamedNumbers& inputs,
                             std::int64_t pairs, std::int64_t most_pairs, double ridge);

/// layernorm(linear): |S| |x| over the length that S'x has less its mean, the worst of all queries and next keys x, else 1.
/// A norm divides by that length, and rounding has the size of the terms of S'x. Moved inputs do not show it where S has
/// one direction alone (closed gates): a norm of its answers does not depend on them then, and its gradient is what is
/// left of terms that cancel.
double longest_before_norm(const Runner& literal, const NamedNumbers& inputs);

}  // namespace ttr::cli
