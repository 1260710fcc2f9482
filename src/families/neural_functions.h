// Elementwise parts of a neural memory: activations with two derivatives, losses with their second derivative.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "families/neural.h"
#include "simd/simd.h"

namespace ttr::families::neural {

/// log(erfc(z) e^{z^2} / t) for t = 2 / (2 + z), z >= 0, x = 2t - 1: its Chebyshev series in t, cut below the
/// rounding of T and written in powers of x. Straight arithmetic, which compilers turn into vectors; std::erf is not.
template <class T>
struct LogErfc {
  static constexpr T power[] = {
      T(-0.67179408405669214),    T(0.67264322397765588),     T(0.047343306841862442),    T(-0.04689561023107319),
      T(-0.0098726893640452758),  T(0.0088249385534188535),   T(0.0017589335063515032),   T(-0.0023458124399827747),
      T(-0.00014624627690404141), T(0.00067367822919978809),  T(-9.3739009383154645e-05), T(-0.00017429963980296684),
      T(7.1418332630954207e-05),  T(3.1732401196873927e-05),  T(-3.0238393935760888e-05), T(1.715096928922577e-07),
      T(8.6634264965246288e-06),  T(-3.0100535832744413e-06), T(-1.4103901695428078e-06), T(1.3292141796128476e-06),
      T(-4.0836223291762508e-08), T(-3.184010530787873e-07),  T(7.7213172744450276e-08),  T(4.0304016124537156e-08),
      T(-1.2735483778669732e-08), T(-1.6815420167404227e-09)};
  static constexpr int terms = 26;
};
template <>
struct LogErfc<float> {
  static constexpr float power[] = {-0.671794092f,    0.672642217f,    0.0473438876f,  -0.0468748882f,
                                    -0.00988001932f,  0.00870381204f,  0.00179406625f, -0.00204873476f,
                                    -0.000227910966f, 0.000333735894f, 8.00073816e-06f};
  static constexpr int terms = 11;
};
template <class T, int from = 0>
T log_erfc(T x) {
  if constexpr (from + 1 == LogErfc<T>::terms) return LogErfc<T>::power[from];
  else return LogErfc<T>::power[from] + x * log_erfc<T, from + 1>(x);
}

/// g = 1 / (1 + e^{-z}) and h = g (1 - g) from a = e^{-|z|}: neither overflows, h does not cancel, nothing branches.
template <class T>
struct Logistic {
  T g, h;
  Logistic(T a, T z) {
    const T r = T(1) / (T(1) + a);
    g = T(0.5) + std::copysign(T(0.5) * (T(1) - a) * r, z);
    h = a * r * r;
  }
};

/// y = act(x), slope = act'(x), bend = act''(x), the last two unless null; `spare` has n numbers. y may not be x.
template <class T>
void activate(const Simd<T>& s, Activation kind, std::ptrdiff_t n, const T* x, T* y, T* slope, T* bend, T* spare) {
  using Size = std::ptrdiff_t;
  switch (kind) {
    case Activation::gelu: {
      const auto part = [](T z) { return T(2) / (T(2) + T(0.70710678118654752) * std::abs(z)); };
      for (Size i = 0; i < n; ++i) y[i] = log_erfc(2 * part(x[i]) - T(1)) - T(0.5) * x[i] * x[i];
      s.exp(n, y, y);
      if (slope) {
        for (Size i = 0; i < n; ++i) spare[i] = T(-0.5) * x[i] * x[i];
        s.exp(n, spare, spare);
      }
      for (Size i = 0; i < n; ++i) {
        const T below = T(0.5) + std::copysign(T(0.5) - T(0.5) * part(x[i]) * y[i], x[i]);
        y[i] = x[i] * below;
        if (slope) slope[i] = below + x[i] * (T(0.39894228040143268) * spare[i]);
        if (bend) bend[i] = T(0.39894228040143268) * spare[i] * (T(2) - x[i] * x[i]);
      }
      return;
    }
    case Activation::gelu_tanh: {
      // x (1 + tanh u) / 2 = x g,  g = 1 / (1 + e^{-2u}) ,  2u = x (c + k x^2)
      constexpr T c = T(1.5957691216057308), k = T(0.071354816272600247);
      for (Size i = 0; i < n; ++i) spare[i] = -std::abs(x[i]) * (c + k * x[i] * x[i]);
      s.exp(n, spare, spare);
      for (Size i = 0; i < n; ++i) {
        const Logistic<T> l(spare[i], x[i]);
        const T d = c + 3 * k * x[i] * x[i];
        y[i] = x[i] * l.g;
        if (slope) slope[i] = l.g + x[i] * l.h * d;
        if (bend) bend[i] = l.h * (2 * d + x[i] * (6 * k * x[i] + (T(1) - 2 * l.g) * d * d));
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
      for (Size i = 0; i < n; ++i) spare[i] = -std::abs(x[i]);
      s.exp(n, spare, spare);
      for (Size i = 0; i < n; ++i) {
        const Logistic<T> l(spare[i], x[i]);
        y[i] = x[i] * l.g;
        if (slope) slope[i] = l.g + x[i] * l.h;
        if (bend) bend[i] = l.h * (T(2) + x[i] * (T(1) - 2 * l.g));
      }
      return;
    case Activation::tanh:
      for (Size i = 0; i < n; ++i) spare[i] = -2 * std::abs(x[i]);
      s.exp(n, spare, spare);
      for (Size i = 0; i < n; ++i) {
        const Logistic<T> l(spare[i], x[i]);
        y[i] = 2 * l.g - T(1);
        if (slope) slope[i] = 4 * l.h;
        if (bend) bend[i] = -8 * l.h * (2 * l.g - T(1));
      }
      return;
  }
}

/// True if the second derivative depends on where it is taken.
inline bool bends(Loss loss) { return loss != Loss::squared && loss != Loss::dot; }

/// One row of V: e holds y - v and becomes d loss / d y; `residual` keeps y - v where the loss bends.
template <class T>
void loss_slope(const Simd<T>& s, const NeuralModel& m, int V, const T* v, T c, T* residual, T* e) {
  const T scale = static_cast<T>(m.gradient_scale);
  if (bends(m.loss)) std::copy_n(e, V, residual);
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
