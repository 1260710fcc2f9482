// SIMD primitives of the elementwise families, compiled once per instruction set like those of simd.h.
//
//   const ScanSimd<float>& s = scan_simd(simd<float>(""));      // of the same instruction set
//
// Nothing outside the named elements is touched; an element's bits do not depend on its place in a row.
#pragma once

#include <cstddef>

#include "simd/simd.h"

namespace ttr {

template <class T>
struct ScanSimd {
  using Size = std::ptrdiff_t;

  /// h = a * h + x
  void (*decay_add)(Size n, const T* a, const T* x, T* h);
  /// h = a * h
  void (*decay)(Size n, const T* a, T* h);
  /// re + i im <- (a_re + i a_im)(re + i im), with a factor for each number and with one for all
  void (*turn)(Size n, const T* a_re, const T* a_im, T* re, T* im);
  void (*turn_all)(Size n, T a_re, T a_im, T* re, T* im);
  /// d <- conj(a) d ;  d_g = Re(conj(old) d) ;  d_theta = Im(conj(old) d)
  void (*turn_back)(Size n, const T* a_re, const T* a_im, const T* old_re, const T* old_im, T* re, T* im, T* d_g,
                    T* d_theta);

  /// re + i im = size e^{i theta}, where re comes in as the size
  void (*polar)(Size n, const T* theta, T* re, T* im);
  /// S <- diag(a) S + k v', S [K, V] complex ;  o = q' Re(S), where q is given
  void (*rotate)(Size K, Size V, const T* a_re, const T* a_im, const T* k, const T* v, const T* q, T* re, T* im,
                 T* o);

  /// Running products of the factors a [count, n] of count tokens, times the rows x of those (at a distance ld):
  ///   before   i from the last to the first:  out_i = x_i A , then A <- a_i A
  ///   after    i from the first to the last:  A <- conj(a_i) A , then out_i = x_i A          out [count, n] complex
  using Products = void (*)(Size count, Size n, const T* a_re, const T* a_im, const T* x, Size ld, T* A_re, T* A_im,
                            T* out_re, T* out_im);
  Products products_before, products_after;

  /// One token of n weighted means (families/elementwise/weighted_mean/weighted_mean.h). u = null: no outputs.
  void (*mean)(Size n, const T* k, const T* v, const T* w, const T* u, T* alpha, T* beta, T* exponent, T* o);
};

/// The table for the instruction set of `simd`. Does not allocate.
template <class T>
const ScanSimd<T>& scan_simd(const Simd<T>& simd) noexcept;

}  // namespace ttr
