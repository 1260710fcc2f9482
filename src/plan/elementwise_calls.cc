// Families whose state is not fed by pairs alone: elementwise states, weighted means, and the running quantities of
// the preparation. Those that know no heads run one sequence and head at a time, so that a state is [B, H, V].
#include "families/elementwise/carry/carry.h"
#include "families/elementwise/diagonal/diagonal.h"
#include "families/elementwise/weighted_mean/weighted_mean.h"
#include "plan/calls.h"
#include "families/elementwise/convolution/short_convolution.h"

namespace ttr {
namespace {

// Calls run(sequence, head, offset of its share of a state [B, H, size]) until one fails.
template <class T, class Run>
Status for_each_head(const Operands<T>& o, std::ptrdiff_t size, Run&& run) noexcept {
  const std::span<const Sequence> all = o.sequences();
  const int H = o.heads();
  for (std::size_t n = 0; n < all.size(); ++n)
    for (int h = 0; h < H; ++h)
      if (const Status s = run(all.subspan(n, 1), h, (static_cast<std::ptrdiff_t>(n) * H + h) * size);
          s != Status::ok)
        return s;
  return Status::ok;
}

template <class N>
N* offset(N* data, std::ptrdiff_t by) {
  return data ? data + by : nullptr;
}

// One head of a view over heads.
template <class N>
View<N, 3> head_of(const View<N, 4>& view, int head) {
  return {offset(view.data, head * view.stride[2]),
          {view.extent[0], view.extent[1], view.extent[3]},
          {view.stride[0], view.stride[1], view.stride[3]}};
}

template <class T>
struct ChannelFamily {
  static std::size_t workspace(const Plan::Body& body, const Step&, std::int64_t time, Form form, bool backward) {
    return elementwise::workspace_bytes<T>(1, body.shape.value_dim, time, form, body.chunk, backward);
  }
  static ChannelProblem<T> problem(const Operands<T>& o, State state, std::span<const Sequence> one, int h,
                                   std::ptrdiff_t at) {
    ChannelProblem<T> p;
    p.sequences = one;
    p.dim = o.dim();
    p.g = o.flat(Role::gv, h), p.theta = o.flat(Role::theta, h);
    p.x = o.flat(Role::v, h), p.x_im = o.flat(Role::v_im, h);
    p.state = offset(o.template state<T>(state), at);
    if (o.has(Role::theta)) p.state_im = offset(o.template state<T>(state, 1), at);
    p.o = head_of(o.output(o.step().to), h), p.o_im = head_of(o.output(o.step().also), h);
    return p;
  }
  static Status forward(const Operands<T>& o, State state, Form form, Workspace work) noexcept {
    return for_each_head(o, o.dim(), [&](std::span<const Sequence> one, int h, std::ptrdiff_t at) {
      return elementwise::forward(problem(o, state, one, h, at), form, o.body().chunk, simd_of<T>(o.body()), work);
    });
  }
  static Status backward(const Operands<T>& o, const Call& call, Form form, Arena arena) noexcept {
    return for_each_head(o, o.dim(), [&](std::span<const Sequence> one, int h, std::ptrdiff_t at) {
      ChannelGradient<T> d;
      d.d_o = head_of(o.d_output(o.step().to), h), d.d_o_im = head_of(o.d_output(o.step().also), h);
      d.d_g = o.d_flat(Role::gv, h), d.d_theta = o.d_flat(Role::theta, h);
      d.d_x = o.d_flat(Role::v, h), d.d_x_im = o.d_flat(Role::v_im, h);
      d.d_final = offset(o.template state<const T>(call.d_final), at);
      d.d_initial = offset(o.template state<T>(call.d_initial), at);
      if (o.has(Role::theta)) {
        d.d_final_im = offset(o.template state<const T>(call.d_final, 1), at);
        d.d_initial_im = offset(o.template state<T>(call.d_initial, 1), at);
      }
      return elementwise::backward(problem(o, call.state, one, h, at), d, form, o.body().chunk, simd_of<T>(o.body()),
                                   arena.rest());
    });
  }
};

template <class T>
struct RotatingFamily {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form form,
                               bool backward) {
    return elementwise::workspace_bytes<T>(width(body, step.from[Role::k]), width(body, step.from[Role::v]), time,
                                           form, body.chunk, backward);
  }
  static RotatingProblem<T> problem(const Operands<T>& o, State state) {
    const LinearProblem<T> linear = o.problem(state);
    RotatingProblem<T> p;
    p.sequences = linear.sequences;
    p.heads = linear.heads, p.key_heads = linear.key_heads;
    p.key_dim = linear.key_dim, p.value_dim = linear.value_dim, p.scale = linear.scale;
    p.q = linear.q, p.k = linear.k, p.v = linear.v, p.o = linear.o;
    p.g = o.vectors(Role::gk), p.theta = o.vectors(Role::theta);
    p.state = linear.state, p.state_im = o.template state<T>(state, 1);
    return p;
  }
  static Status forward(const Operands<T>& o, State state, Form form, Workspace work) noexcept {
    return elementwise::forward(problem(o, state), form, o.body().chunk, simd_of<T>(o.body()), work);
  }
  static Status backward(const Operands<T>& o, const Call& call, Form form, Arena arena) noexcept {
    const LinearGradient<T> linear = o.gradient(call);
    RotatingGradient<T> d;
    d.d_o = linear.d_o, d.d_q = linear.d_q, d.d_k = linear.d_k, d.d_v = linear.d_v;
    d.d_g = o.d_vectors(Role::gk), d.d_theta = o.d_vectors(Role::theta);
    d.d_final = linear.d_final, d.d_initial = linear.d_initial;
    d.d_final_im = o.template state<const T>(call.d_final, 1);
    d.d_initial_im = o.template state<T>(call.d_initial, 1);
    return elementwise::backward(problem(o, call.state), d, form, o.body().chunk, simd_of<T>(o.body()), arena.rest());
  }
};

template <class T>
struct SelectiveFamily {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form form,
                               bool backward) {
    return RotatingFamily<T>::workspace(body, step, time, form, backward);
  }
  static SelectiveProblem<T> problem(const Operands<T>& o, State state) {
    const LinearProblem<T> linear = o.problem(state);
    SelectiveProblem<T> p;
    p.sequences = linear.sequences;
    p.gate = o.step().longhorn_gate ? SelectiveGate::longhorn : SelectiveGate::exponential;
    p.heads = linear.heads, p.key_heads = linear.key_heads;
    p.key_dim = linear.key_dim, p.value_dim = linear.value_dim, p.scale = linear.scale;
    p.q = linear.q, p.k = linear.k, p.u = linear.v, p.o = linear.o;
    p.step = o.vectors(Role::step);
    if (o.has(Role::a)) p.A = o.per_entry(Role::a);
    p.state = linear.state;
    return p;
  }
  static Status forward(const Operands<T>& o, State state, Form form, Workspace work) noexcept {
    return elementwise::forward(problem(o, state), form, o.body().chunk, simd_of<T>(o.body()), work);
  }
  static Status backward(const Operands<T>& o, const Call& call, Form form, Arena arena) noexcept {
    const LinearGradient<T> linear = o.gradient(call);
    SelectiveGradient<T> d;
    d.d_o = linear.d_o, d.d_q = linear.d_q, d.d_k = linear.d_k, d.d_u = linear.d_v;
    d.d_step = o.d_vectors(Role::step);
    if (o.has(Role::a)) d.d_A = o.d_per_entry(Role::a);
    d.d_final = linear.d_final, d.d_initial = linear.d_initial;
    return elementwise::backward(problem(o, call.state), d, form, o.body().chunk, simd_of<T>(o.body()), arena.rest());
  }
};

template <class T>
struct WeightedMeanFamily {
  static std::size_t workspace(const Plan::Body& body, const Step&, std::int64_t time, Form form, bool backward) {
    return weighted_mean::workspace_bytes<T>(body.shape.value_dim, time, form, body.chunk, backward);
  }
  static WeightedMeanProblem<T> problem(const Operands<T>& o, State state, std::span<const Sequence> one, int h,
                                        std::ptrdiff_t at) {
    WeightedMeanProblem<T> p;
    p.sequences = one;
    p.dim = o.dim();
    p.k = o.flat(Role::k, h), p.v = o.flat(Role::v, h);
    p.w = o.flat(Role::gv, h), p.u = o.flat(Role::bonus, h);
    p.alpha = offset(o.template state<T>(state), at), p.beta = offset(o.template state<T>(state, 1), at);
    p.exponent = offset(o.template state<T>(state, 2), at);
    p.o = head_of(o.output(o.step().to), h);
    return p;
  }
  static Status forward(const Operands<T>& o, State state, Form form, Workspace work) noexcept {
    return for_each_head(o, o.dim(), [&](std::span<const Sequence> one, int h, std::ptrdiff_t at) {
      return weighted_mean::forward(problem(o, state, one, h, at), form, o.body().chunk, simd_of<T>(o.body()), work);
    });
  }
  static Status backward(const Operands<T>& o, const Call& call, Form form, Arena arena) noexcept {
    return for_each_head(o, o.dim(), [&](std::span<const Sequence> one, int h, std::ptrdiff_t at) {
      WeightedMeanGradient<T> d;
      d.d_o = head_of(o.d_output(o.step().to), h);
      d.d_k = o.d_flat(Role::k, h), d.d_v = o.d_flat(Role::v, h);
      d.d_w = o.d_flat(Role::gv, h), d.d_u = o.d_flat(Role::bonus, h);
      d.d_final_alpha = offset(o.template state<const T>(call.d_final), at);
      d.d_final_beta = offset(o.template state<const T>(call.d_final, 1), at);
      d.d_initial_alpha = offset(o.template state<T>(call.d_initial), at);
      d.d_initial_beta = offset(o.template state<T>(call.d_initial, 1), at);
      return weighted_mean::backward(problem(o, call.state, one, h, at), d, form, o.body().chunk,
                                     simd_of<T>(o.body()), arena.rest());
    });
  }
};

// The same for every form: one loop over time.
template <class T>
struct CarryFamily {
  static Carry kind(const Step& step) {
    switch (step.running) {
      case zoo::Running::phase:
        return Carry::phase;
      case zoo::Running::log_share:
        return Carry::log_share;
      case zoo::Running::position:
        return Carry::position;
      default:
        return Carry::delay;
    }
  }
  static int dim(const Plan::Body& body, const Step& step) {
    return step.from[Role::v] < 0 ? 1 : width(body, step.from[Role::v]);
  }
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form, bool backward) {
    return backward ? carry::workspace_bytes<T>(kind(step), dim(body, step), time) : 0;
  }
  static CarryProblem<T> problem(const Operands<T>& o, State state) {
    CarryProblem<T> p;
    p.sequences = o.sequences();
    p.kind = kind(o.step());
    p.heads = static_cast<int>(o.output(o.step().to).extent[2]), p.dim = dim(o.body(), o.step());
    p.x = o.vectors(Role::v);
    p.state = o.template state<T>(state);
    p.y = o.output(o.step().to);
    return p;
  }
  static Status forward(const Operands<T>& o, State state, Form, Workspace) noexcept {
    return carry::forward(problem(o, state));
  }
  static Status backward(const Operands<T>& o, const Call& call, Form, Arena arena) noexcept {
    CarryGradient<T> d;
    d.d_y = o.d_output(o.step().to);
    d.d_final = o.template state<const T>(call.d_final);
    d.d_x = o.d_vectors(Role::v);
    d.d_initial = o.template state<T>(call.d_initial);
    return carry::backward(problem(o, call.state), d, arena.rest());
  }
};

template <class T>
struct ConvolutionFamily {
  static std::size_t workspace(const Plan::Body&, const Step&, std::int64_t, Form, bool) { return 0; }

  // w [H, V, J] and b [H, V] of one head
  template <class N>
  static View<N, 2> taps(const View<N, 4>& w, std::ptrdiff_t outer, int D, int h) {
    return {offset(w.data, h * w.stride[2]), {D, w.extent[3]}, {outer, w.stride[3]}};
  }
  static prepare::ShortConvolution<T> problem(const Operands<T>& o, State state, std::span<const Sequence> one, int h,
                                              std::ptrdiff_t at) {
    prepare::ShortConvolution<T> p;
    p.sequences = one;
    p.activation =
        o.step().running == zoo::Running::convolution_silu ? prepare::Activation::silu : prepare::Activation::none;
    p.x = o.flat(Role::v, h);
    p.w = taps(o.vectors(Role::a), o.outer_stride(Role::a), o.dim(), h);
    if (o.has(Role::b)) {
      const View<const T, 4> b = o.vectors(Role::b);
      p.b = {offset(b.data, h * b.stride[2]), {b.extent[3]}, {b.stride[3]}};
    }
    T* const cache = offset(o.template state<T>(state), at);
    p.initial = cache, p.final = cache;
    p.y = head_of(o.output(o.step().to), h);
    return p;
  }
  static std::ptrdiff_t cache_size(const Operands<T>& o) {
    return (width(o.body(), o.role(Role::a)) - 1) * static_cast<std::ptrdiff_t>(o.dim());
  }
  // All heads go through a block of tokens before the next: the rows of a token are neighbours in memory.
  static Status forward(const Operands<T>& o, State state, Form, Workspace) noexcept {
    constexpr std::ptrdiff_t block = 64;
    std::ptrdiff_t longest = 0;
    for (const Sequence& n : o.sequences()) longest = std::max(longest, n.end - n.begin);
    for (std::ptrdiff_t t = 0; t < longest; t += block)
      for_each_head(o, cache_size(o), [&](std::span<const Sequence> one, int h, std::ptrdiff_t at) {
        const Sequence& n = one.front();
        const Sequence part{n.row, std::min(n.begin + t, n.end), std::min(n.begin + t + block, n.end)};
        if (part.begin < part.end)
          prepare::short_convolution(problem(o, state, {&part, 1}, h, at), simd_of<T>(o.body()));
        return Status::ok;
      });
    return Status::ok;
  }
  static Status backward(const Operands<T>& o, const Call& call, Form, Arena) noexcept {
    return for_each_head(o, cache_size(o), [&](std::span<const Sequence> one, int h, std::ptrdiff_t at) {
      prepare::ShortConvolutionGradient<T> d;
      d.d_y = head_of(o.d_output(o.step().to), h);
      d.d_final = offset(o.template state<const T>(call.d_final), at);
      d.d_x = o.d_flat(Role::v, h);
      d.d_w = taps(o.d_vectors(Role::a), o.d_outer_stride(Role::a), o.dim(), h);
      if (o.has(Role::b)) {
        const View<T, 4> b = o.d_vectors(Role::b);
        d.d_b = {offset(b.data, h * b.stride[2]), {b.extent[3]}, {b.stride[3]}};
      }
      d.d_initial = offset(o.template state<T>(call.d_initial), at);
      prepare::ShortConvolution<T> p = problem(o, call.state, one, h, at);
      p.final = nullptr;
      prepare::short_convolution_backward(p, d, simd_of<T>(o.body()));
      return Status::ok;
    });
  }
};

}  // namespace

template <class T>
Calls<T> elementwise_calls(KernelKind kind) {
  switch (kind) {
    case KernelKind::channel:
      return calls<ChannelFamily, T>();
    case KernelKind::rotating:
      return calls<RotatingFamily, T>();
    case KernelKind::selective:
      return calls<SelectiveFamily, T>();
    case KernelKind::weighted_mean:
      return calls<WeightedMeanFamily, T>();
    case KernelKind::carry:
      return calls<CarryFamily, T>();
    case KernelKind::convolution:
      return calls<ConvolutionFamily, T>();
    default:
      return {};
  }
}

template Calls<float> elementwise_calls<float>(KernelKind);
template Calls<double> elementwise_calls<double>(KernelKind);

}  // namespace ttr
