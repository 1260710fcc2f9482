#include "prepare/short_convolution.h"

#include "prepare/functions.h"

namespace ttr::prepare {
namespace {

using families::Sequence;
using Size = std::ptrdiff_t;

// The inputs of one sequence in the order of time, the cache before them: token -1 is the youngest of the cache.
template <class T>
struct Past {
  Past(const ShortConvolution<T>& p, Size n)
      : problem(p),
        sequence(p.sequences[static_cast<std::size_t>(n)]),
        cached(p.width() - 1),
        channels(p.channels()),
        offset(n * cached * channels) {}

  const ShortConvolution<T>& problem;
  Sequence sequence;
  Size cached, channels, offset;

  Size length() const { return sequence.end - sequence.begin; }
  Size place(Size t, Size d) const { return offset + (cached + t) * channels + d; }  // in the cache, t < 0
  T operator()(Size t, Size d) const {
    if (t >= 0) return problem.x(sequence.row, sequence.begin + t, d);
    return problem.initial ? problem.initial[place(t, d)] : T(0);
  }
};

template <class T>
T before_activation(const ShortConvolution<T>& p, const Past<T>& past, Size t, Size d) {
  T sum = p.b ? p.b(d) : T(0);
  for (Size i = 0, W = p.width(); i < W; ++i) sum += p.w(d, i) * past(t - W + 1 + i, d);
  return sum;
}

// Upwards in place: entry j is read from j + length, which has not been written yet.
template <class T>
void push(const ShortConvolution<T>& p, const Past<T>& past) {
  for (Size j = 0; j < past.cached; ++j)
    for (Size d = 0; d < past.channels; ++d)
      p.final[past.offset + j * past.channels + d] = past(past.length() - past.cached + j, d);
}

template <class T>
void add_to_input(const Past<T>& past, const ShortConvolutionGradient<T>& g, Size t, Size d, T value) {
  if (t >= 0) {
    if (g.d_x) g.d_x(past.sequence.row, past.sequence.begin + t, d) += value;
  } else if (g.d_initial) {
    g.d_initial[past.place(t, d)] += value;
  }
}

template <class T>
void add_output_gradient(const ShortConvolution<T>& p, const ShortConvolutionGradient<T>& g, const Past<T>& past) {
  const Size W = p.width();
  for (Size t = 0; t < past.length(); ++t)
    for (Size d = 0; d < past.channels; ++d) {
      T slope = g.d_y(past.sequence.row, past.sequence.begin + t, d);
      if (p.activation == Activation::silu) slope *= Silu::slope(before_activation(p, past, t, d));
      if (g.d_b) g.d_b(d) += slope;
      for (Size i = 0; i < W; ++i) {
        const Size source = t - W + 1 + i;
        if (g.d_w) g.d_w(d, i) += slope * past(source, d);
        add_to_input(past, g, source, d, slope * p.w(d, i));
      }
    }
}

template <class T>
void add_final_gradient(const ShortConvolutionGradient<T>& g, const Past<T>& past) {
  for (Size j = 0; j < past.cached; ++j)
    for (Size d = 0; d < past.channels; ++d)
      add_to_input(past, g, past.length() - past.cached + j, d, g.d_final[past.offset + j * past.channels + d]);
}

}  // namespace

template <class T>
void short_convolution(const ShortConvolution<T>& p) noexcept {
  for (Size n = 0; n < static_cast<Size>(p.sequences.size()); ++n) {
    const Past<T> past(p, n);
    if (p.y)
      for (Size t = 0; t < past.length(); ++t)
        for (Size d = 0; d < past.channels; ++d) {
          const T sum = before_activation(p, past, t, d);
          p.y(past.sequence.row, past.sequence.begin + t, d) =
              p.activation == Activation::silu ? Silu::value(sum) : sum;
        }
    if (p.final) push(p, past);
  }
}

template <class T>
void short_convolution_backward(const ShortConvolution<T>& p, const ShortConvolutionGradient<T>& g) noexcept {
  for (Size n = 0; n < static_cast<Size>(p.sequences.size()); ++n) {
    const Past<T> past(p, n);
    if (g.d_y) add_output_gradient(p, g, past);
    if (g.d_final) add_final_gradient(g, past);
  }
}

template void short_convolution<float>(const ShortConvolution<float>&) noexcept;
template void short_convolution<double>(const ShortConvolution<double>&) noexcept;
template void short_convolution_backward<float>(const ShortConvolution<float>&,
                                                const ShortConvolutionGradient<float>&) noexcept;
template void short_convolution_backward<double>(const ShortConvolution<double>&,
                                                 const ShortConvolutionGradient<double>&) noexcept;

}  // namespace ttr::prepare
