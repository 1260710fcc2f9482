// How much a problem magnifies what it is given: the measure by which a difference between two computations of it is an
// error or no more than rounding.
//
// A recipe may magnify rounding without bound: steps that are too long (`descend(3)` on a layer norm), a solve without a
// ridge, a network that trains itself on its own answers. Two ways to compute it that differ in the order of their sums
// then differ by more than any tolerance, though both are right. What tells that from an error is the problem itself: it
// is solved again in double with every number it is given moved by a few roundings u, up or down at random,
//
//   s = max over trials of |change of the result| / |result|, over |change of the inputs| / |inputs|      (at least 1)
//
// and a computation of n roundings is allowed n u s. The moves are as small as the rounding that they stand for, because
// where a problem is chaotic a longer move finds an s that is bounded by one over its length.
#pragma once

#include <cstdint>
#include <limits>

#include "runner.h"

namespace ttr::cli {

struct Magnification {
  double outputs = 1, gradients = 1;                // s; infinite where the result is not finite
  double largest_output = 0, largest_gradient = 0;  // of the result itself
};

/// What a run is given.
struct Given {
  const NamedNumbers &inputs, &initial, &d_outputs, &d_final;
  Form form;
  bool gradients = true;                   // else only outputs are measured
  std::vector<std::string> own_size = {};  // gradients that are compared relative to themselves
  double floor = 0;  // a gradient counts as no smaller than this, or than this part of the largest
  double most = std::numeric_limits<double>::infinity();  // of a larger result nothing but its size is asked
};

/// The largest size of all numbers; infinite if one is not finite.
double largest_of(const NamedNumbers&);

/// `in_double`: a plan in double. `unit`: the rounding of the type that is judged.
Magnification measure_magnification(const Runner& in_double, const Given&, double unit, std::uint64_t seed);

/// cg: the share of an answer by which a conjugate gradient step changes it, where it changes it least but does, else 1.
/// After a step that nearly solved the system what is left to go on with is mostly rounding, and so is the gradient of a
/// step with it: the inverse of the share is what that magnifies.
double least_step_share(const Runner& in_double, const NamedNumbers& inputs, Form);

/// What n roundings may amount to, where `tolerance` is allowed to a problem that magnifies nothing: as many roundings as
/// the tolerance is, but no more than 4000, times s.
double allowed_error(double tolerance, double unit, double magnification);

}  // namespace ttr::cli
