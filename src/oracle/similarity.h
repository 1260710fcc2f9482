// How alike a key is to a query (near) or to another key (kernel): a factor times an exponential, kept apart because
// the exponent may be large and the factor zero.
//
//   exponential  e^{s x.y}              gaussian  e^{-|x-y|^2/h}         linear x.y ;  polynomial (1 + x.y)^degree
//   with u = |x-y|/h:  laplace e^-u ;  matern32 (1 + a) e^-a, a = sqrt(3) u ;  matern52 (1 + a + a^2/3) e^-a,
//   a = sqrt(5) u ;  epanechnikov (1 - u^2)+ ;  tricube (1 - u^3)+^3 ;  box [u <= 1] ;  nearest: not a function of two
//   vectors, see oracle/weights.h
//
// Traps: |x-y| has no derivative at x = y; there the similarity is at its largest and its gradient is taken as zero,
// which is right for the Matern kernels from 3/2 on and a choice for Laplace. A box has no gradient anywhere.
#pragma once

#include <cmath>

#include "oracle/least_squares.h"
#include "recipe/design.h"

namespace ttr::oracle {

template <class S>
struct Similarity {
  S factor = 1.0, exponent = 0.0;
  S value() const {
    using std::exp;
    return factor * exp(exponent);
  }
};

template <class S>
S squared_distance(const Vec<S>& x, const Vec<S>& y) {
  S sum = 0.0;
  for (std::size_t a = 0; a < x.size(); ++a) sum += (x[a] - y[a]) * (x[a] - y[a]);
  return sum;
}

/// The kernels of u = |x-y|/h.
template <class S>
Similarity<S> similarity_at(Kernel kind, const S& square, const S& bandwidth) {
  using std::sqrt;
  if (value_of(square) == 0) return {};
  const S u = sqrt(square) / bandwidth;
  const bool outside = value_of(u) > 1;
  switch (kind) {
    case Kernel::laplace:
      return {S(1.0), -u};
    case Kernel::matern32: {
      const S a = S(std::sqrt(3.0)) * u;
      return {S(1.0) + a, -a};
    }
    case Kernel::matern52: {
      const S a = S(std::sqrt(5.0)) * u;
      return {S(1.0) + a + a * a / S(3.0), -a};
    }
    case Kernel::epanechnikov:
      return {outside ? S(0.0) : S(1.0) - u * u, S(0.0)};
    case Kernel::tricube: {
      const S rest = S(1.0) - u * u * u;
      return {outside ? S(0.0) : rest * rest * rest, S(0.0)};
    }
    case Kernel::box:
      return {outside ? S(0.0) : S(1.0), S(0.0)};
    default:
      return {};
  }
}

template <class S>
Similarity<S> similarity(Kernel kind, const Vec<S>& x, const Vec<S>& y, double scale, const S& bandwidth,
                         int degree) {
  switch (kind) {
    case Kernel::exponential:
      return {S(1.0), dot(x, y) * S(scale)};
    case Kernel::gaussian:
      return {S(1.0), -squared_distance(x, y) / bandwidth};
    case Kernel::linear:
      return {dot(x, y), S(0.0)};
    case Kernel::polynomial: {
      const S base = S(1.0) + dot(x, y);
      S power = 1.0;
      for (int d = 0; d < degree; ++d) power *= base;
      return {power, S(0.0)};
    }
    default:
      return similarity_at(kind, squared_distance(x, y), bandwidth);
  }
}

}  // namespace ttr::oracle
