// The selective state of families/elementwise/diagonal/diagonal.h: tokens through S [K,V], forwards and backwards.
//
//   S[n,d] <- a[n,d] S[n,d] + k[n] u[d] ;   o[d] = scale sum_n q[n] S[n,d]
//   a = exp(step[d] A[n,d]), twice that less one (twice), or 1 - k[n]^2 step[d] where there are no rates
//
// Channels do not see each other, so a panel of columns passes through all tokens of a call while its state is in L1;
// gates live in registers. A number's bits do not depend on its place in a row nor on how tokens are cut into calls.
#pragma once

#include <cstddef>

#include "simd/simd.h"

namespace ttr {

/// Row t of a matrix is at data + t ld; its numbers are contiguous.
template <class T>
struct SelectiveTokens {
  using Size = std::ptrdiff_t;
  Size n = 0, K = 0, V = 0;
  const T* rates = nullptr;  // [K,V] as SelectiveSimd::rates writes them; null: the gate is 1 - k^2 step
  Size ld_rates = 0;
  bool bounded = false;     // what `rates` returned
  bool twice = false;       // the gate is 2 exp(step A) - 1
  const T* step = nullptr;  // [n,V]
  Size ld_step = 0;
  const T* k = nullptr;  // [n,K]
  Size ldk = 0;
  const T* u = nullptr;  // [n,V]
  Size ldu = 0;
  const T* q = nullptr;  // [n,K]
  Size ldq = 0;
  const T* gate = nullptr;  // [n,K] keys of the gate 1 - k^2 step, if they are not those that are written
  Size ld_gate = 0;
  T scale = 1;
};

template <class T>
struct SelectiveGradients {
  using Size = std::ptrdiff_t;
  const T* d_o = nullptr;  // [n,V]; null: zero, and q is not read
  Size ld_o = 0;
  T *d_q = nullptr, *d_k = nullptr;     // [n,K] contiguous, written; d_q of scale q
  T *d_u = nullptr, *d_step = nullptr;  // [n,V], added to; null: not wanted
  Size ldu = 0, ld_step = 0;
  T* d_A = nullptr;  // [K,V], added to; null without rates
};

template <class T>
struct SelectiveSimd {
  using Size = std::ptrdiff_t;

  /// rates = A (may be the same rows) in the unit the gates want. True if all are finite and none is positive: then a
  /// step that is not negative gives gates of at most 1, which need fewer checks (the bits are the same).
  bool (*rates)(Size K, Size V, const T* A, Size ld, T* rates, Size ld_rates);
  /// Tokens through S [K,V]. write = false: S <- a S. o = null: no outputs, q is not read.
  void (*forward)(const SelectiveTokens<T>&, bool write, T* S, T* o, Size ldo, T* scratch);
  /// The same tokens backwards: `start` is the state before them, dS [K,V] goes from the gradient of the state after
  /// them to that of the state before.
  void (*backward)(const SelectiveTokens<T>&, const SelectiveGradients<T>&, const T* start, T* dS, T* scratch);

  /// Numbers of scratch.
  static constexpr Size panel = 128 / static_cast<Size>(sizeof(T));  // the widest panel: two vectors of 64 bytes
  static constexpr Size forward_scratch(Size K) { return 2 * K * panel; }
  static constexpr Size backward_scratch(Size n, Size K) { return (3 * n + 4) * K * panel + 2 * n * panel; }
};

/// The table for the instruction set of `simd`. Does not allocate.
template <class T>
const SelectiveSimd<T>& selective_simd(const Simd<T>& simd) noexcept;

}  // namespace ttr
