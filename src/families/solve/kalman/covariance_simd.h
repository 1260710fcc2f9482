// One pass over a covariance that a token has changed, compiled once per instruction set.
//
//   const CovarianceSimd<double>& s = covariance_simd(simd<double>(""));      // of the same instruction set
//
// Textbook code goes over P [K, K] three times a token: P k, P - gain c', and P x of a query or the fading before the next
// token. What the next token asks of P is known when this one has changed it, so a pass does all of it on the way:
//
//   P <- P + z c'            z = -gain: the lower triangle, by products z_i c_j with i >= j
//   asked = P q              of the covariance that this token leaves
//   P <- growth P + process I                  what the next token finds
//   product = P k            of the next token
//
// The lower triangle is read and written, and the squares of eight rows on the diagonal, of which the upper part has to be
// there. Products are sums along rows and down columns in one order, whatever else the pass does: the bits do not depend on
// where a call ends.
#pragma once

#include <cstddef>

#include "simd/simd.h"

namespace ttr {

template <class T>
struct CovarianceSimd {
  using Size = std::ptrdiff_t;

  struct Pass {
    Size K = 0;
    T* P = nullptr;                      // [K, K]
    const T *z = nullptr, *c = nullptr;  // [K]; null: P is not changed
    const T* q = nullptr;                // [K]; null: not asked
    T* asked = nullptr;                  // [K]
    T growth = T(1), process = T(0);     // before the next token
    const T* k = nullptr;                // [K]; null: no next token
    T* product = nullptr;                // [K]
  };
  void (*pass)(const Pass&);
};

/// The table for the instruction set of `simd`. Does not allocate.
template <class T>
const CovarianceSimd<T>& covariance_simd(const Simd<T>& simd) noexcept;

}  // namespace ttr
