// The short convolution of families/elementwise/convolution/short_convolution.h: one sequence, forwards and backwards.
//
//   z_t = b + sum_{i<W} w[:, i] x_{t-W+1+i} ;   y_t = z_t or silu(z_t)        x, y [n, D]   w [D, W]
//
// Channels are the lanes (tokens, where those of a channel lie side by side). A tile of tokens goes over all channels before the next tile: a row is read in order, taps
// are loaded once per tile, and the W - 1 inputs before a token are in registers. Taps are added in ascending order,
// by the same operations wherever a token or a channel lies, so bits do not depend on strides or on cuts.
#pragma once

#include <cstddef>

#include "simd/simd.h"

namespace ttr {

/// Token t < 0 is row W - 1 + t of the cache.
template <class T>
struct ConvolutionTask {
  using Size = std::ptrdiff_t;
  Size n = 0, D = 0, W = 0;
  bool silu = false;
  const T* w = nullptr;  // tap i of channel d at w[d w_channel + i w_tap]
  Size w_channel = 0, w_tap = 0;
  const T* b = nullptr;  // null: 0
  Size b_stride = 0;
  const T* x = nullptr;  // row t at x + t x_row, its channels x_stride apart
  Size x_row = 0, x_stride = 1;
  const T* cache = nullptr;  // [W-1, D] contiguous; null: 0
};

/// All are added to; null: not wanted.
template <class T>
struct ConvolutionGradients {
  using Size = std::ptrdiff_t;
  const T* d_y = nullptr;
  Size y_row = 0, y_stride = 1;
  T* d_x = nullptr;
  Size x_row = 0, x_stride = 1;
  T* d_w = nullptr;
  Size w_channel = 0, w_tap = 0;
  T* d_b = nullptr;
  Size b_stride = 0;
  T* d_cache = nullptr;  // [W-1, D]
};

template <class T>
struct ConvolutionSimd {
  using Size = std::ptrdiff_t;
  void (*forward)(const ConvolutionTask<T>&, T* y, Size y_row, Size y_stride);
  void (*backward)(const ConvolutionTask<T>&, const ConvolutionGradients<T>&);
};

/// The table for the instruction set of `simd`. Does not allocate.
template <class T>
const ConvolutionSimd<T>& convolution_simd(const Simd<T>& simd) noexcept;

}  // namespace ttr
