// Short convolution along time, before the regression: depthwise and causal,
//
//   y_t = act(b + sum_{i<W} w[:, i] x_{t-W+1+i})          x, y [B, T, D]   w [D, W]   b [D]
//
// The last tap meets the current token. What lies before the first token comes from the cache: the last W - 1 inputs
// of each sequence, oldest first, [N, W-1, D] contiguous, as for any other state. A sequence shorter than W - 1
// pushes its tokens into the cache and keeps the younger part of what was there; W = 1 has no cache. Sequences do not
// see each other. Channels that are contiguous are fastest; bits do not depend on strides or on how a sequence is split.
// Source: Poli 2023, Gu and Dao 2023; fla caches W inputs, of which it reads W - 1.
#pragma once

#include <cstddef>
#include <span>

#include "families/common/linear.h"
#include "simd/simd.h"
#include "ttr/view.h"

namespace ttr::families {

enum class ConvolutionActivation { none, silu };

template <class T>
struct ShortConvolution {
  std::span<const Sequence> sequences;  // sequence n owns cache n
  ConvolutionActivation activation = ConvolutionActivation::none;
  View<const T, 3> x;          // [B, T, D]
  View<const T, 2> w;          // [D, W], W >= 1
  View<const T, 1> b;          // [D]; no data = 0
  const T* initial = nullptr;  // [N, W-1, D]; null = zeros
  T* final = nullptr;          // [N, W-1, D]; null = not wanted; may be `initial`
  View<T, 3> y;                // [B, T, D]; not x; no data = outputs not wanted

  std::ptrdiff_t channels() const { return w.extent[0]; }
  std::ptrdiff_t width() const { return w.extent[1]; }
};

/// `d_y` and `d_final` come in, the others go out. Views without data are not wanted. Gradients are added to (+=).
template <class T>
struct ShortConvolutionGradient {
  View<const T, 3> d_y;        // no data = zero
  const T* d_final = nullptr;  // [N, W-1, D]; null = zero
  View<T, 3> d_x;
  View<T, 2> d_w;
  View<T, 1> d_b;
  T* d_initial = nullptr;  // [N, W-1, D]; not d_final
};

template <class T>
void short_convolution(const ShortConvolution<T>&, const Simd<T>&) noexcept;

/// `problem.initial` is the cache before the call; `problem.y` and `problem.final` are ignored. The sums before the
/// activation are computed again.
template <class T>
void short_convolution_backward(const ShortConvolution<T>&, const ShortConvolutionGradient<T>&,
                                const Simd<T>&) noexcept;

}  // namespace ttr::families
