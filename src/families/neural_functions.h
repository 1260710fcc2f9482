// Elementwise parts of a neural memory: activations with two derivatives, losses with their second derivative.
#pragma once

#include <cmath>
#include <cstddef>

#include "families/neural.h"
#include "simd/simd.h"

namespace ttr::families::neural {

/// y = act(x), slope = act'(x), bend = act''(x), the last two unless null; `spare` has n numbers. y may not be x.
template <class T>
void activate(const Simd<T>& s, Activation kind, std::ptrdiff_t n, const T* x, T* y, T* slope, T* bend, T* spare) {
  using Size = std::ptrdiff_t;
  switch (kind) {
    case Activation::gelu: {
      for (Size i = 0; i < n; ++i) spare[i] = T(-0.5) * x[i] * x[i];
      s.exp(n, spare, spare);
      for (Size i = 0; i < n; ++i) {
        const T below = T(0.5) * (T(1) + std::erf(x[i] * T(0.70710678118654752)));
        const T density = T(0.39894228040143268) * spare[i];
        y[i] = x[i] * below;
        if (slope) slope[i] = below + x[i] * density;
        if (bend) bend[i] = density * (T(2) - x[i] * x[i]);
      }
      return;
    }
    case Activation::gelu_tanh: {
      constexpr T c = T(0.79788456080286536), k = T(0.044715);
      for (Size i = 0; i < n; ++i) spare[i] = T(2) * c * x[i] * (T(1) + k * x[i] * x[i]);
      s.exp(n, spare, spare);
      for (Size i = 0; i < n; ++i) spare[i] = T(1) - T(2) / (spare[i] + T(1));  // tanh
      for (Size i = 0; i < n; ++i) y[i] = T(0.5) * x[i] * (T(1) + spare[i]);
      if (slope)
        for (Size i = 0; i < n; ++i) {
          const T t = spare[i], du = c * (T(1) + 3 * k * x[i] * x[i]);
          slope[i] = T(0.5) * (T(1) + t) + T(0.5) * x[i] * (T(1) - t * t) * du;
        }
      if (bend)
        for (Size i = 0; i < n; ++i) {
          const T t = spare[i], u = T(1) - t * t, du = c * (T(1) + 3 * k * x[i] * x[i]);
          bend[i] = u * (du + x[i] * (3 * c * k * x[i] - t * du * du));
        }
      return;
    }
    case Activation::relu:
      for (Size i = 0; i < n; ++i) {
        y[i] = x[i] > 0 ? x[i] : T(0);
        if (slope) slope[i] = x[i] > 0 ? T(1) : T(0);
        if (bend) bend[i] = 0;
      }
      return;
    case Activation::silu:
      for (Size i = 0; i < n; ++i) spare[i] = -x[i];
      s.exp(n, spare, spare);
      for (Size i = 0; i < n; ++i) {
        const T g = T(1) / (T(1) + spare[i]);
        y[i] = x[i] * g;
        if (slope) slope[i] = g + x[i] * g * (T(1) - g);
        if (bend) bend[i] = g * (T(1) - g) * (T(2) + x[i] * (T(1) - 2 * g));
      }
      return;
    case Activation::tanh:
      for (Size i = 0; i < n; ++i) spare[i] = 2 * x[i];
      s.exp(n, spare, spare);
      for (Size i = 0; i < n; ++i) {
        // Near zero 1 - 2/(e+1) would cancel.
        const T t = std::abs(x[i]) < T(0.1) ? std::tanh(x[i]) : T(1) - T(2) / (spare[i] + T(1));
        y[i] = t;
        if (slope) slope[i] = T(1) - t * t;
        if (bend) bend[i] = -2 * t * (T(1) - t * t);
      }
      return;
  }
}

/// One row of V: e holds y - v and becomes d loss / d y; `residual` keeps y - v.
template <class T>
void loss_slope(const Simd<T>& s, const NeuralModel& m, int V, const T* v, T c, T* residual, T* e) {
  const T scale = static_cast<T>(m.gradient_scale);
  for (int j = 0; j < V; ++j) residual[j] = e[j];
  switch (m.loss) {
    case Loss::squared:
      break;
    case Loss::dot:
      for (int j = 0; j < V; ++j) e[j] = -v[j];
      break;
    case Loss::huber: {
      const T square = s.dot(V, e, e);
      if (square > c * c) s.scale(V, c / std::sqrt(square), e, e);
      break;
    }
    case Loss::huber_coordinate:
      for (int j = 0; j < V; ++j)
        if (std::abs(e[j]) > c) e[j] = std::copysign(c, e[j]);
      break;
    case Loss::huber_sign:
      if (s.dot(V, e, e) > c * c)
        for (int j = 0; j < V; ++j) e[j] = e[j] > 0 ? c : e[j] < 0 ? -c : T(0);
      break;
    case Loss::power:
      for (int j = 0; j < V; ++j)
        if (e[j] != 0)
          e[j] = static_cast<T>(m.power) * std::copysign(std::pow(std::abs(e[j]), static_cast<T>(m.power - 1)), e[j]);
      break;
  }
  if (scale != T(1)) s.scale(V, scale, e, e);
}

/// d_e is the gradient of what loss_slope gave; d_y = (d2 loss / dy dy) d_e, d_v and *d_c are added to.
template <class T>
void loss_slope_back(const Simd<T>& s, const NeuralModel& m, int V, const T* e, T c, const T* d_e, T* d_y, T* d_v,
                     T* d_c) {
  const T scale = static_cast<T>(m.gradient_scale);
  switch (m.loss) {
    case Loss::squared:
      s.scale(V, scale, d_e, d_y);
      break;
    case Loss::dot:
      s.axpy(V, -scale, d_e, d_v);
      for (int j = 0; j < V; ++j) d_y[j] = 0;
      return;
    case Loss::huber: {
      const T square = s.dot(V, e, e), length = std::sqrt(square);
      if (!(square > c * c)) {
        s.scale(V, scale, d_e, d_y);
        break;
      }
      const T along = s.dot(V, e, d_e) / length;
      for (int j = 0; j < V; ++j) d_y[j] = scale * c / length * (d_e[j] - along / length * e[j]);
      *d_c += scale * along;
      break;
    }
    case Loss::huber_coordinate:
      for (int j = 0; j < V; ++j) {
        const bool clipped = std::abs(e[j]) > c;
        d_y[j] = clipped ? T(0) : scale * d_e[j];
        if (clipped) *d_c += std::copysign(scale, e[j]) * d_e[j];
      }
      break;
    case Loss::huber_sign: {
      const bool far = s.dot(V, e, e) > c * c;
      for (int j = 0; j < V; ++j) {
        d_y[j] = far ? T(0) : scale * d_e[j];
        if (far && e[j] != 0) *d_c += std::copysign(scale, e[j]) * d_e[j];
      }
      break;
    }
    case Loss::power: {
      const T p = static_cast<T>(m.power);
      for (int j = 0; j < V; ++j)
        d_y[j] = e[j] == 0 && p < 2 ? T(0) : scale * p * (p - 1) * std::pow(std::abs(e[j]), p - 2) * d_e[j];
      break;
    }
  }
  s.axpy(V, T(-1), d_y, d_v);
}

}  // namespace ttr::families::neural
