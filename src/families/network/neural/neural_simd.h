// SIMD primitives of neural memories, compiled once per instruction set like those of simd.h: activations with their
// derivatives, norms and deltas of rows, forwards and backwards.
//
//   const NeuralSimd<float>& r = neural_simd(simd<float>(""));      // of the same instruction set
//
// Rows are contiguous: row i of a block [n, V] begins at i V. Rates of rows are strided: that of row i is rate[i ld],
// rate = null: 1. Pointers marked * may be null: not wanted, or as said.
#pragma once

#include <cstddef>

#include "simd/simd.h"

namespace ttr {

enum class Curve { gelu, gelu_tanh, relu, silu, tanh };

template <class T>
struct NeuralSimd {
  using Size = std::ptrdiff_t;

  /// y* = f(x), slope* = f'(x), bend* = f''(x) ;  with `other`, product = f(x) other
  struct Activation {
    const T* x = nullptr;
    T *y = nullptr, *slope = nullptr, *bend = nullptr;
    const T* other = nullptr;
    T* product = nullptr;
  };
  void (*activate)(Curve, Size n, const Activation&);

  /// N = (y - mean) / sd, 1 / sd = inverse, sd = sqrt(var + eps) ;  out = N w + c + plus* - minus*
  /// Row i of w is at w + i ldw. normed and inverse may be null.
  struct Norm {
    Size n = 0, V = 0;
    const T* y = nullptr;
    T eps = 0;
    const T* w = nullptr;
    Size ldw = 0;
    const T *c = nullptr, *plus = nullptr, *minus = nullptr;
    T *normed = nullptr, *inverse = nullptr, *out = nullptr;
  };
  void (*normalise)(const Norm&);
  /// out* = J (w e), J g = (g - mean(g) - N mean(g N)) inverse ;  scaled* = -rate out. out = e is allowed.
  void (*norm_delta)(Size n, Size V, const T* normed, const T* inverse, const T* w, Size ldw, const T* e,
                     const T* rate, Size ld, T* out, T* scaled);

  /// The reverse of norm_delta for the cotangent t of what it gave (delta), g = w e:
  ///   d_w += e J t ;  d_e = w J t ;  d_N = -(t mean(g N) + g mean(t N)) inverse ;  d_sd = -t.delta inverse / V
  void (*norm_delta_back)(Size n, Size V, const T* normed, const T* inverse, const T* w, const T* e, const T* delta,
                          const T* t, T* d_w, T* d_e, T* d_normed, T* d_sd);
  /// The reverse of normalise for y^, the cotangent of out: d_w += N y^ ;  y = J (w y^ + d_N) + d_sd N, in place.
  void (*norm_back)(Size n, Size V, const T* normed, const T* inverse, const T* w, T* d_w, const T* d_normed,
                    const T* d_sd, T* y);

  /// out* = x y z* ;  scaled* = -rate out, rows of length V
  void (*deltas)(Size n, Size V, const T* x, const T* y, const T* z, const T* rate, Size ld, T* out, T* scaled);
  /// The reverse of two deltas, back slope other and back y, for their cotangents d and d_other:
  ///   d_back = d other slope + d_other y ;  d_x = d other back bend + d_other back slope ;  d_linear = d back slope
  struct Gated {
    const T *back, *slope, *bend, *y, *other;
  };
  void (*gated_back)(Size n, const Gated&, const T* d, const T* d_other, T* d_back, T* d_x, T* d_linear);
  /// y_i = factor_i x for the row x [V], factor* = 1; with `add`, y_i += factor_i x
  void (*spread)(Size n, Size V, const T* factor, const T* x, bool add, T* y);
  /// y = f y + alpha sum_i factor_i* x_i* z_i for rows of z [n,V]; f = 0 does not read y
  void (*collect)(Size n, Size V, T alpha, const T* factor, const T* x, const T* z, T f, T* y);
  /// X_ij <- gamma_ij (X_ij + plus) for j <= i
  void (*gate_pairs)(Size n, T plus, const T* gamma, Size ldg, T* X, Size ldx);
  /// Into the cache: n rows of `length` numbers, ld apart.
  void (*fetch)(Size n, Size length, const T* x, Size ld);
};

/// The table for the instruction set of `simd`. Does not allocate.
template <class T>
const NeuralSimd<T>& neural_simd(const Simd<T>& simd) noexcept;

}  // namespace ttr
