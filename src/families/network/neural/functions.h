// Elementwise parts of a neural memory: activations with two derivatives, losses with their second derivative.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "families/network/neural/neural.h"
#include "families/network/neural/neural_simd.h"
#include "simd/simd.h"

namespace ttr::families::neural {

/// B [N,M] = A' for a contiguous A [M,N], few rows of B at a time: they may share their places in the cache.
template <class T>
void turn_over(const Simd<T>& s, std::ptrdiff_t M, std::ptrdiff_t N, const T* A, T* B) {
  constexpr std::ptrdiff_t block = 16;
  for (std::ptrdiff_t j = 0; j < N; j += block) s.transpose(M, std::min(block, N - j), A + j, N, B + j * M, M);
}

inline Curve curve_of(Activation kind) {
  switch (kind) {
    case Activation::gelu:
      return Curve::gelu;
    case Activation::gelu_tanh:
      return Curve::gelu_tanh;
    case Activation::relu:
      return Curve::relu;
    case Activation::silu:
      return Curve::silu;
    case Activation::tanh:
      break;
  }
  return Curve::tanh;
}

/// y = act(x), slope = act'(x), bend = act''(x), the last two unless null; the last argument is not used.
template <class T>
void activate(const Simd<T>& s, Activation kind, std::ptrdiff_t n, const T* x, T* y, T* slope, T* bend, T*) {
  neural_simd(s).activate(curve_of(kind), n, {x, y, slope, bend, nullptr, nullptr});
}

/// True if the second derivative depends on where it is taken.
inline bool bends(Loss loss) { return loss != Loss::squared && loss != Loss::dot; }

/// One row of V: e holds y - v and becomes d loss / d y; `residual` keeps y - v where the loss bends.
template <class T>
void loss_slope(const Simd<T>& s, const NeuralModel& m, std::ptrdiff_t V, const T* v, T c, T* residual, T* e) {
  const T scale = static_cast<T>(m.gradient_scale);
  if (bends(m.loss)) std::copy_n(e, V, residual);
  switch (m.loss) {
    case Loss::squared:
      break;
    case Loss::dot:
      s.scale(V, -scale, v, e);
      return;
    case Loss::huber: {
      const T square = s.dot(V, e, e);
      if (!(square <= c * c)) s.scale(V, c / std::sqrt(square), e, e);  // NaN is not lost, here and below
      break;
    }
    case Loss::huber_coordinate:
      for (std::ptrdiff_t j = 0; j < V; ++j)
        if (!(std::abs(e[j]) <= c)) e[j] = std::isnan(e[j]) ? e[j] : std::copysign(c, e[j]);
      break;
    case Loss::huber_sign:
      if (!(s.dot(V, e, e) <= c * c))
        for (std::ptrdiff_t j = 0; j < V; ++j) e[j] = e[j] > 0 ? c : e[j] < 0 ? -c : e[j] + 0 * c;
      break;
    case Loss::power:
      for (std::ptrdiff_t j = 0; j < V; ++j)
        if (e[j] != 0)
          e[j] = static_cast<T>(m.power) * std::copysign(std::pow(std::abs(e[j]), static_cast<T>(m.power - 1)), e[j]);
      break;
  }
  if (scale != T(1)) s.scale(V, scale, e, e);
}

/// n rows; a loss that does not bend knows no rows.
template <class T>
void loss_slopes(const Simd<T>& s, const NeuralModel& m, std::ptrdiff_t n, const T* v, const T* c, T* residual,
                 T* e) {
  const std::ptrdiff_t V = m.value_dim;
  if (!bends(m.loss)) return loss_slope(s, m, n * V, v, T(0), residual, e);
  for (std::ptrdiff_t i = 0; i < n; ++i) loss_slope(s, m, V, v + i * V, c[i], residual + i * V, e + i * V);
}

/// d_e is the gradient of what loss_slope gave; d_y = (d2 loss / dy dy) d_e, d_v and *d_c are added to.
template <class T>
void loss_slope_back(const Simd<T>& s, const NeuralModel& m, std::ptrdiff_t V, const T* e, T c, const T* d_e, T* d_y,
                     T* d_v, T* d_c) {
  const T scale = static_cast<T>(m.gradient_scale);
  switch (m.loss) {
    case Loss::squared:
      s.scale(V, scale, d_e, d_y);
      break;
    case Loss::dot:
      s.axpy(V, -scale, d_e, d_v);
      std::fill_n(d_y, V, T(0));
      return;
    case Loss::huber: {
      const T square = s.dot(V, e, e), length = std::sqrt(square);
      if (square <= c * c) {
        s.scale(V, scale, d_e, d_y);
        break;
      }
      const T along = s.dot(V, e, d_e) / length;
      for (std::ptrdiff_t j = 0; j < V; ++j) d_y[j] = scale * c / length * (d_e[j] - along / length * e[j]);
      *d_c += scale * along;
      break;
    }
    case Loss::huber_coordinate:
      for (std::ptrdiff_t j = 0; j < V; ++j) {
        const bool clipped = std::abs(e[j]) > c;
        d_y[j] = clipped ? T(0) : scale * d_e[j];
        if (clipped) *d_c += std::copysign(scale, e[j]) * d_e[j];
      }
      break;
    case Loss::huber_sign: {
      const bool far = s.dot(V, e, e) > c * c;
      for (std::ptrdiff_t j = 0; j < V; ++j) {
        d_y[j] = far ? T(0) : scale * d_e[j];
        if (far && e[j] != 0) *d_c += std::copysign(scale, e[j]) * d_e[j];
      }
      break;
    }
    case Loss::power: {
      const T p = static_cast<T>(m.power);
      for (std::ptrdiff_t j = 0; j < V; ++j)
        d_y[j] = e[j] == 0 && p < 2 ? T(0) : scale * p * (p - 1) * std::pow(std::abs(e[j]), p - 2) * d_e[j];
      break;
    }
  }
  s.axpy(V, T(-1), d_y, d_v);
}

template <class T>
void loss_slopes_back(const Simd<T>& s, const NeuralModel& m, std::ptrdiff_t n, const T* e, const T* c, const T* d_e,
                      T* d_y, T* d_v, T* d_c) {
  const std::ptrdiff_t V = m.value_dim;
  if (!bends(m.loss)) return loss_slope_back(s, m, n * V, e, T(0), d_e, d_y, d_v, d_c);
  for (std::ptrdiff_t i = 0; i < n; ++i)
    loss_slope_back(s, m, V, e + i * V, c[i], d_e + i * V, d_y + i * V, d_v + i * V, d_c + i);
}

}  // namespace ttr::families::neural
