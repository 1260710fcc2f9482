// The plan of the short convolution over time, a running quantity: its state is the last inputs.
#include "families/elementwise/convolution/short_convolution.h"
#include "families/elementwise/elementwise_plan.h"
#include "families/elementwise/running_plan.h"

namespace ttr::families {
namespace {

struct Own {
  enum : std::size_t { taps = Slot::own, bias, count };
};

int stage(Builder& b, const zoo::Stage& stage, const std::vector<int>& operands, Axes axes) {
  Step step = b.kernel(convolution_family, 1, -1, -1, operands[0], -1, -1, Own::count);
  step.operands[Own::taps] = operands[1], step.operands[Own::bias] = operands.size() > 2 ? operands[2] : -1;
  step.set_options(static_cast<ConvolutionActivation>(stage.option));
  return add_running(b, std::move(step), stage, axes);
}

template <class T>
struct ConvolutionCalls {
  static std::size_t workspace(const Plan::Body&, const Step&, std::int64_t, Form, bool) { return 0; }

  // w [H, V, J] and b [H, V] of one head
  template <class N>
  static View<N, 2> taps(const View<N, 4>& w, std::ptrdiff_t outer, int D, int h) {
    return {offset(w.data, h * w.stride[2]), {D, w.extent[3]}, {outer, w.stride[3]}};
  }
  static ShortConvolution<T> problem(const KernelArgs<T>& o, State state, std::span<const Sequence> one, int h,
                                     std::ptrdiff_t at) {
    ShortConvolution<T> p;
    p.sequences = one;
    p.activation = o.step().template options<ConvolutionActivation>();
    p.x = o.flat(Slot::v, h);
    p.w = taps(o.vectors(Own::taps), o.outer_stride(Own::taps), o.dim(), h);
    if (o.has(Own::bias)) {
      const View<const T, 4> b = o.vectors(Own::bias);
      p.b = {offset(b.data, h * b.stride[2]), {b.extent[3]}, {b.stride[3]}};
    }
    T* const cache = offset(o.template state<T>(state), at);
    p.initial = cache, p.final = cache;
    p.y = head_of(o.output(o.step().result), h);
    return p;
  }
  static std::ptrdiff_t cache_size(const KernelArgs<T>& o) {
    return (width(o.body(), o.value_of(Own::taps)) - 1) * static_cast<std::ptrdiff_t>(o.dim());
  }
  // All heads go through a block of tokens before the next where the rows of a token are neighbours in memory; where the
  // tokens of a channel are, one block is all of them.
  static Status forward(const KernelArgs<T>& o, State state, Form, Workspace) noexcept {
    std::ptrdiff_t longest = 0;
    for (const Sequence& n : o.sequences()) longest = std::max(longest, n.end - n.begin);
    const std::ptrdiff_t block = o.flat(Slot::v, 0).stride[1] == 1 ? std::max<std::ptrdiff_t>(longest, 1) : 64;
    for (std::ptrdiff_t t = 0; t < longest; t += block)
      for_each_head(o, cache_size(o), [&](std::span<const Sequence> one, int h, std::ptrdiff_t at) {
        const Sequence& n = one.front();
        const Sequence part{n.row, std::min(n.begin + t, n.end), std::min(n.begin + t + block, n.end)};
        if (part.begin < part.end) short_convolution(problem(o, state, {&part, 1}, h, at), simd_of<T>(o.body()));
        return Status::ok;
      });
    return Status::ok;
  }
  static Status backward(const KernelArgs<T>& o, const Call& call, Form, Arena) noexcept {
    return for_each_head(o, cache_size(o), [&](std::span<const Sequence> one, int h, std::ptrdiff_t at) {
      ShortConvolutionGradient<T> d;
      d.d_y = head_of(o.d_output(o.step().result), h);
      d.d_final = offset(o.template state<const T>(call.d_final), at);
      d.d_x = o.d_flat(Slot::v, h);
      d.d_w = taps(o.d_vectors(Own::taps), o.d_outer_stride(Own::taps), o.dim(), h);
      if (o.has(Own::bias)) {
        const View<T, 4> b = o.d_vectors(Own::bias);
        d.d_b = {offset(b.data, h * b.stride[2]), {b.extent[3]}, {b.stride[3]}};
      }
      d.d_initial = offset(o.template state<T>(call.d_initial), at);
      ShortConvolution<T> p = problem(o, call.state, one, h, at);
      p.final = nullptr;
      short_convolution_backward(p, d, simd_of<T>(o.body()));
      return Status::ok;
    });
  }
};

}  // namespace

const Family convolution_family = {.name = "running",
                                   .forms = all_forms,
                                   .traits = {.splits_columns = true, .running = true},
                                   .stage = stage,
                                   .f32 = calls_of<ConvolutionCalls, float>(),
                                   .f64 = calls_of<ConvolutionCalls, double>()};

}  // namespace ttr::families
