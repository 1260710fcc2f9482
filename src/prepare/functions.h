// Scalar functions and row statistics that several operations share. None overflows for a finite argument.
#pragma once

#include <algorithm>
#include <cmath>

#include "prepare/rule.h"

namespace ttr::prepare {

template <class T>
T sigmoid(T x) {
  const T e = std::exp(-std::abs(x));
  return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

/// The activation: value and slope.
struct Silu {
  template <class T>
  static T value(T x, T = 0) {
    return x * sigmoid(x);
  }
  template <class T>
  static T slope(T x, T = 0, T = 0) {
    const T s = sigmoid(x);
    return s * (1 + x * sigmoid(-x));
  }
};

template <class T>
void softmax(const Line<T>& y) {
  T largest = y[0], sum = 0;
  for (int f = 1; f < y.width; ++f) largest = y[f] > largest ? y[f] : largest;
  for (int f = 0; f < y.width; ++f) sum += y[f] = std::exp(y[f] - largest);
  for (int f = 0; f < y.width; ++f) y[f] /= sum;
}

/// The gradient of softmax's argument f is y_f (dy_f - this).
template <class T>
T softmax_mean(const Backward<T>& a) {
  T sum = 0;
  for (int f = 0; f < a.y.width; ++f) sum += a.dy[f] * a.y[f];
  return sum;
}

template <class T>
T square_sum(const Line<const T>& x) {
  T sum = 0;
  for (int d = 0; d < x.width; ++d) sum += x[d] * x[d];
  return sum;
}

/// Layer norm without weights: n_d = (x_d - mean) inverse.
template <class T>
struct Standardised {
  T mean = 0, inverse = 0;
  Standardised(const Line<const T>& x, double eps) {
    for (int d = 0; d < x.width; ++d) mean += x[d];
    mean /= T(x.width);
    T square = 0;
    for (int d = 0; d < x.width; ++d) square += (x[d] - mean) * (x[d] - mean);
    const T spread = square / T(x.width) + T(eps);
    inverse = spread == 0 ? T(0) : 1 / std::sqrt(spread);
  }
  T operator()(T x) const { return (x - mean) * inverse; }
};

/// Adds the gradient of x through the layer norm n(x), where d_normed(d) is that of n_d (asked twice).
template <class T, class Gradient>
void standardised_backward(const Standardised<T>& n, const Line<const T>& x, const Line<T>& dx, Gradient&& d_normed) {
  if (!dx) return;
  T sum = 0, along = 0;
  for (int d = 0; d < x.width; ++d) {
    const T g = d_normed(d);
    sum += g, along += g * n(x[d]);
  }
  sum /= T(x.width), along /= T(x.width);
  for (int d = 0; d < x.width; ++d) dx[d] += n.inverse * (d_normed(d) - sum - n(x[d]) * along);
}

}  // namespace ttr::prepare
