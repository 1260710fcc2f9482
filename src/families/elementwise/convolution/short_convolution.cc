// One sequence at a time through the kernels of convolution_simd.h; the cache and its gradient are moved here.
#include "families/elementwise/convolution/short_convolution.h"

#include <algorithm>

#include "families/elementwise/convolution/convolution_simd.h"

namespace ttr::families {
namespace {

using Size = std::ptrdiff_t;

template <class T>
T* row_of(const View<T, 3>& x, const Sequence& n) {
  return x.data + n.row * x.stride[0] + n.begin * x.stride[1];
}

template <class T>
ConvolutionTask<T> task_of(const ShortConvolution<T>& p, Size n) {
  const Sequence& s = p.sequences[static_cast<std::size_t>(n)];
  ConvolutionTask<T> c;
  c.n = s.end - s.begin, c.D = p.channels(), c.W = p.width(), c.silu = p.activation == ConvolutionActivation::silu;
  c.w = p.w.data, c.w_channel = p.w.stride[0], c.w_tap = p.w.stride[1];
  c.b = p.b.data, c.b_stride = p.b.stride[0];
  if (c.n > 0) c.x = row_of(p.x, s), c.x_row = p.x.stride[1], c.x_stride = p.x.stride[2];
  if (p.initial) c.cache = p.initial + n * (c.W - 1) * c.D;
  return c;
}

// Upwards in place: row j is made of row j + n, which has not been written yet.
template <class T>
void push(const ConvolutionTask<T>& c, T* cache) {
  for (Size j = 0; j < c.W - 1; ++j) {
    T* const to = cache + j * c.D;
    const Size t = c.n - (c.W - 1) + j;
    const T* const from = t >= 0 ? c.x + t * c.x_row : c.cache ? c.cache + (c.W - 1 + t) * c.D : nullptr;
    const Size stride = t >= 0 ? c.x_stride : 1;
    if (!from) std::fill_n(to, c.D, T(0));
    else if (stride != 1)
      for (Size d = 0; d < c.D; ++d) to[d] = from[d * stride];
    else if (from != to) std::copy_n(from, c.D, to);
  }
}

// The last inputs are the cache that the sequence leaves behind.
template <class T>
void add_final_gradient(const ConvolutionTask<T>& c, const ConvolutionGradients<T>& g, const T* d_final) {
  for (Size j = 0; j < c.W - 1; ++j) {
    const Size t = c.n - (c.W - 1) + j, stride = t >= 0 ? g.x_stride : 1;
    T* to = nullptr;
    if (t >= 0) to = g.d_x ? g.d_x + t * g.x_row : nullptr;
    else if (g.d_cache) to = g.d_cache + (c.W - 1 + t) * c.D;
    if (to)
      for (Size d = 0; d < c.D; ++d) to[d * stride] += d_final[j * c.D + d];
  }
}

}  // namespace

template <class T>
void short_convolution(const ShortConvolution<T>& p, const Simd<T>& simd) noexcept {
  const ConvolutionSimd<T>& kernels = convolution_simd(simd);
  for (Size n = 0; n < static_cast<Size>(p.sequences.size()); ++n) {
    const ConvolutionTask<T> c = task_of(p, n);
    if (p.y && c.n > 0)
      kernels.forward(c, row_of(p.y, p.sequences[static_cast<std::size_t>(n)]), p.y.stride[1], p.y.stride[2]);
    if (p.final) push(c, p.final + n * (c.W - 1) * c.D);
  }
}

template <class T>
void short_convolution_backward(const ShortConvolution<T>& p, const ShortConvolutionGradient<T>& d,
                                const Simd<T>& simd) noexcept {
  const ConvolutionSimd<T>& kernels = convolution_simd(simd);
  for (Size n = 0; n < static_cast<Size>(p.sequences.size()); ++n) {
    const Sequence& s = p.sequences[static_cast<std::size_t>(n)];
    const ConvolutionTask<T> c = task_of(p, n);
    const Size cache = n * (c.W - 1) * c.D;
    ConvolutionGradients<T> g;
    if (c.n > 0 && d.d_x) g.d_x = row_of(d.d_x, s), g.x_row = d.d_x.stride[1], g.x_stride = d.d_x.stride[2];
    if (d.d_initial) g.d_cache = d.d_initial + cache;
    if (d.d_y && c.n > 0) {
      g.d_y = row_of(d.d_y, s), g.y_row = d.d_y.stride[1], g.y_stride = d.d_y.stride[2];
      g.d_w = d.d_w.data, g.w_channel = d.d_w.stride[0], g.w_tap = d.d_w.stride[1];
      g.d_b = d.d_b.data, g.b_stride = d.d_b.stride[0];
      kernels.backward(c, g);
    }
    if (d.d_final) add_final_gradient(c, g, d.d_final + cache);
  }
}

template void short_convolution<float>(const ShortConvolution<float>&, const Simd<float>&) noexcept;
template void short_convolution<double>(const ShortConvolution<double>&, const Simd<double>&) noexcept;
template void short_convolution_backward<float>(const ShortConvolution<float>&,
                                                const ShortConvolutionGradient<float>&, const Simd<float>&) noexcept;
template void short_convolution_backward<double>(const ShortConvolution<double>&,
                                                 const ShortConvolutionGradient<double>&,
                                                 const Simd<double>&) noexcept;

}  // namespace ttr::families
