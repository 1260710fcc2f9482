// Whether a number is the slope of a function, by differences of its values.
//
//   central   (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h      of a smooth function to h^4
//   one side  +-(-3 f(0) + 4 f(+-h) - f(+-2h)) / 2h             on either side of a kink to h^2
//
// No step is right for every function: a long one leaves what bends (a norm of a short vector, an orthogonalised update),
// a short one divides the rounding of f by little. Steps therefore get shorter, each a tenth of the one before, until one
// agrees. If none does, two neighbours that agree best with each other say how well a slope is known at all: what they
// differ by is its uncertainty, and a gradient beyond that is wrong.
//
// A function with kinks (soft thresholds, absolute values, relu, clipped residuals) has two slopes at one of them. Nearby,
// within the longest step, a shorter step sees one side only; at the kink itself the two sides differ however short the
// step is, and then any number between the two is a slope (the subdifferential), no other is.
#pragma once

#include <functional>

namespace ttr::cli {

struct Slope {
  double distance = 0;     // of the gradient from the slope, or from the interval of slopes at a kink
  double uncertainty = 0;  // of the slope; 0 if a step agreed with the gradient within what was allowed
  bool kink = false;
};

/// `f`: the change of the argument to the value. Steps begin at 1e-3 of `size`; `shortest`: the last of them.
Slope distance_from_slope(double gradient, double size, double allowed, const std::function<double(double)>& f,
                          double shortest = 1e-7);

}  // namespace ttr::cli
