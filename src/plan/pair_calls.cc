// Families that keep their pairs: the state is a list, read by the kernel and appended to here.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "families/pairs/attention/attention.h"
#include "families/pairs/deltaformer/deltaformer.h"
#include "families/pairs/kernel_regression/kernel_regression.h"
#include "families/pairs/local_linear/local_linear.h"
#include "families/pairs/path_attention/path_attention.h"
#include "plan/calls.h"

namespace ttr {
namespace {

// Part `index` of the step's states, a history: [N, capacity, heads, dim]; no data if there is no buffer.
template <class N, class T, class AnyState>
View<N, 4> history(const Operands<T>& o, AnyState buffer, int index) {
  if (!buffer.data) return {};
  const std::size_t part = static_cast<std::size_t>(o.step().state + index);
  const std::vector<std::ptrdiff_t>& extent = o.body().pipeline.states[part].extent;
  const StatePlace place = o.body().state_place(buffer.bytes, o.step().state + index);
  const std::ptrdiff_t heads = extent[0], dim = extent.size() > 1 ? extent[1] : 1;
  return {o.template state<N>(buffer, index),
          {static_cast<std::ptrdiff_t>(o.sequences().size()), place.capacity,
           heads / o.body().shape.key_heads * o.key_heads(), dim},
          {place.capacity * heads * dim, heads * dim, dim, 1}};
}

template <class N>
View<N, 3> without_last(const View<N, 4>& v) {
  return {v.data, {v.extent[0], v.extent[1], v.extent[2]}, {v.stride[0], v.stride[1], v.stride[2]}};
}
template <class N>
View<N, 4> with_last(const View<N, 3>& v) {
  return {v.data, {v.extent[0], v.extent[1], v.extent[2], 1}, {v.stride[0], v.stride[1], v.stride[2], 0}};
}

// What the list holds after a call: the newest `kept` of `before` old and `tokens` new pairs.
struct Kept {
  std::ptrdiff_t before, tokens, kept;
  std::ptrdiff_t old() const { return std::max<std::ptrdiff_t>(0, kept - tokens); }
  std::ptrdiff_t first() const { return before + tokens - kept; }  // counted from the oldest of all
};
template <class T>
Kept kept_of(const Operands<T>& o, ConstState state, std::size_t n) {
  const Sequence& sequence = o.sequences()[n];
  Kept k{o.counts(state)[n], sequence.end - sequence.begin, 0};
  k.kept = k.before + k.tokens;
  if (const std::ptrdiff_t window = o.body().pipeline.design.weights.window; window > 0)
    k.kept = std::min(k.kept, window);
  return k;
}

template <class T>
bool has_room(const Operands<T>& o, State state) {
  for (std::size_t n = 0; n < o.sequences().size(); ++n)
    if (kept_of(o, state, n).kept > o.body().state_place(state.bytes, o.step().state).capacity) return false;
  return true;
}

// Appends the rows of `x` [B, T, heads, dim] to the history of part `index`.
template <class T>
void append(const Operands<T>& o, State state, int index, const View<const T, 4>& x) {
  const View<T, 4> list = history<T>(o, state, index);
  const std::ptrdiff_t row = list.stride[1];
  for (std::size_t n = 0; n < o.sequences().size(); ++n) {
    const Sequence& sequence = o.sequences()[n];
    const Kept k = kept_of(o, state, n);
    T* to = list.data + static_cast<std::ptrdiff_t>(n) * list.stride[0];
    const std::ptrdiff_t own = list.extent[2] * list.extent[3];  // of the row: the heads of this share
    if (const std::ptrdiff_t gone = k.before - k.old(); k.first() > 0 && own == row)
      std::memmove(to, to + gone * row, static_cast<std::size_t>(k.old() * row) * sizeof(T));
    else if (k.first() > 0)
      for (std::ptrdiff_t i = 0; i < k.old(); ++i) std::copy_n(to + (i + gone) * row, own, to + i * row);
    to += k.old() * row;
    for (std::ptrdiff_t t = sequence.end - (k.kept - k.old()); t < sequence.end; ++t, to += row - own)
      for (std::ptrdiff_t h = 0; h < list.extent[2]; ++h)
        for (std::ptrdiff_t d = 0; d < list.extent[3]; ++d) *to++ = x(sequence.row, t, h, d);
  }
}
template <class T>
void count_up(const Operands<T>& o, State state) {
  for (std::size_t n = 0; n < o.sequences().size(); ++n) o.counts(state)[n] = kept_of(o, state, n).kept;
}

// The gradient of the final list goes to the pairs that are in it: d_x for new ones, d_past for old ones.
template <class T>
void from_final(const Operands<T>& o, const Call& call, int index, const View<T, 4>& d_x) {
  const View<const T, 4> d_list = history<const T>(o, call.d_final, index);
  if (!d_list) return;
  const View<T, 4> d_past = history<T>(o, call.d_initial, index);
  for (std::size_t n = 0; n < o.sequences().size(); ++n) {
    const Sequence& sequence = o.sequences()[n];
    const Kept k = kept_of(o, call.state, n);
    for (std::ptrdiff_t j = 0; j < std::min(k.kept, d_list.extent[1]); ++j) {
      const std::ptrdiff_t i = k.first() + j, b = static_cast<std::ptrdiff_t>(n);
      for (std::ptrdiff_t h = 0; h < d_list.extent[2]; ++h)
        for (std::ptrdiff_t d = 0; d < d_list.extent[3]; ++d)
          if (i >= k.before) {
            if (d_x) d_x(sequence.row, sequence.begin + i - k.before, h, d) += d_list(b, j, h, d);
          } else if (d_past) {
            d_past(b, i, h, d) += d_list(b, j, h, d);
          }
    }
  }
}

template <class T>
void copy_counts(const Operands<T>& o, const Call& call) {
  if (!call.d_initial.data || !o.first_heads()) return;
  for (std::size_t n = 0; n < o.sequences().size(); ++n)
    o.counts(call.d_initial)[n] = o.counts(ConstState(call.state))[n];
}

// The tokens of one sequence, as a list of pairs.
template <class N>
View<N, 4> list_of(const View<N, 4>& x, const Sequence& s) {
  return {x.data ? x.data + s.row * x.stride[0] + s.begin * x.stride[1] : nullptr,
          {1, s.end - s.begin, x.extent[2], x.extent[3]},
          {0, x.stride[1], x.stride[2], x.stride[3]}};
}

// Not causal: every sequence of queries sees a list of pairs that has its own length, and nothing is kept. run() is
// called for each sequence with the pairs as the past; `d`, if there is one, gets their gradients.
template <class T, class P, class D, class Run>
Status each_whole(const Operands<T>& o, P p, D* d, Run&& run) {
  const View<const T, 4> k = p.k, v = p.v;
  View<T, 4> d_k, d_v;
  if constexpr (!std::is_same_v<D, const void>) d_k = d->d_k, d_v = d->d_v, d->d_k = d->d_v = {};
  p.k = p.v = {};
  Status worst = Status::ok;
  for (std::size_t n = 0; n < o.sequences().size(); ++n) {
    const Sequence& pairs = o.pair_sequences()[n];
    const std::int64_t count = pairs.end - pairs.begin;
    p.sequences = o.sequences().subspan(n, 1);
    p.past_k = list_of(k, pairs), p.past_v = list_of(v, pairs), p.past_count = &count;
    if constexpr (!std::is_same_v<D, const void>)
      d->d_past_k = list_of(d_k, pairs), d->d_past_v = list_of(d_v, pairs);
    if (count == 0) {  // nothing to answer with
      if (!p.o) continue;
      const Sequence& tokens = p.sequences.front();
      for (std::ptrdiff_t t = tokens.begin; t < tokens.end; ++t)
        for (std::ptrdiff_t h = 0; h < p.heads; ++h)
          for (std::ptrdiff_t j = 0; j < p.value_dim; ++j) p.o(tokens.row, t, h, j) = 0;
      continue;
    }
    if (const Status status = run(p); status != Status::ok) worst = status;
    if (worst != Status::ok && worst != Status::out_of_domain) return worst;
  }
  return worst;
}
constexpr const void* no_gradient = nullptr;

// What every problem of these families has.
template <class P, class T>
void fill(P& p, const Operands<T>& o, ConstState state) {
  p.sequences = o.sequences();
  p.heads = o.heads(), p.key_heads = o.key_heads();
  p.key_dim = o.key_dim(), p.value_dim = o.value_dim();
  p.q = o.vectors(Role::q), p.k = o.vectors(Role::k), p.v = o.vectors(Role::v);
  p.past_count = o.counts(state);
  p.o = o.output(o.step().to);
}

template <class P, class T>
void fill_past(P& p, const Operands<T>& o, ConstState state) {
  if (o.body().pipeline.own_pairs) return;
  p.past_k = history<const T>(o, state, 0), p.past_v = history<const T>(o, state, 1);
}
template <class D, class T>
void fill_past_gradient(D& d, const Operands<T>& o, const Call& call) {
  if (o.body().pipeline.own_pairs) return;
  d.d_past_k = history<T>(o, call.d_initial, 0), d.d_past_v = history<T>(o, call.d_initial, 1);
}

template <class T>
struct AttentionFamily {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form, bool backward) {
    return attention::workspace_bytes<T>(body.shape.heads, body.shape.key_heads, width(body, step.from[Role::k]),
                                         width(body, step.from[Role::v]), time, time,
                                         body.pipeline.design.weights.window, backward);
  }
  static AttentionProblem<T> problem(const Operands<T>& o, State state) {
    AttentionProblem<T> p;
    fill(p, o, state);
    p.scale = static_cast<T>(o.step().scale);
    p.causal = o.body().options.causal;
    p.normalise = !o.step().unnormalised;
    p.window = o.body().pipeline.design.weights.window;
    p.g = o.scalars(Role::g);
    p.sink = o.per_head_number(Role::sink), p.bandwidth = o.per_head_number(Role::bandwidth);
    fill_past(p, o, state);
    if (o.has(Role::g)) p.past_g = without_last(history<const T>(o, ConstState(state), 2));
    return p;
  }
  static Status forward(const Operands<T>& o, State state, Form, Workspace work) noexcept {
    if (o.body().pipeline.own_pairs)
      return each_whole(o, problem(o, state), no_gradient, [&](const AttentionProblem<T>& p) {
        return attention::forward(p, simd_of<T>(o.body()), work);
      });
    if (o.keep() && !has_room(o, state)) return Status::state_full;
    const Status status = attention::forward(problem(o, state), simd_of<T>(o.body()), work);
    if (status != Status::ok || !o.keep()) return status;
    append(o, state, 0, o.vectors(Role::k)), append(o, state, 1, o.vectors(Role::v));
    if (o.has(Role::g)) append(o, state, 2, with_last(o.scalars(Role::g)));
    count_up(o, state);
    return status;
  }
  static Status backward(const Operands<T>& o, const Call& call, Form, Arena arena) noexcept {
    const GateGradient<T> d_g(o, Role::g, arena);
    AttentionGradient<T> d;
    d.d_o = o.d_output(o.step().to);
    d.d_q = o.d_vectors(Role::q), d.d_k = o.d_vectors(Role::k), d.d_v = o.d_vectors(Role::v);
    d.d_g = d_g.view();
    d.d_sink = o.d_per_head_number(Role::sink), d.d_bandwidth = o.d_per_head_number(Role::bandwidth);
    if (o.body().pipeline.own_pairs)
      return each_whole(o, problem(o, call.state), &d, [&](const AttentionProblem<T>& p) {
        return attention::backward(p, d, simd_of<T>(o.body()), arena.rest());
      });
    fill_past_gradient(d, o, call);
    if (o.has(Role::g)) d.d_past_g = without_last(history<T>(o, call.d_initial, 2));
    const Status status = attention::backward(problem(o, call.state), d, simd_of<T>(o.body()), arena.rest());
    from_final(o, call, 0, d.d_k), from_final(o, call, 1, d.d_v);
    if (o.has(Role::g)) from_final(o, call, 2, with_last(d.d_g));
    d_g.finish();
    copy_counts(o, call);
    return status;
  }
};

template <class T>
struct LocalLinearFamily {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form, bool backward) {
    return local_linear::workspace_bytes<T>(width(body, step.from[Role::k]), width(body, step.from[Role::v]),
                                            body.pipeline.design.memory.order, time, backward);
  }
  static LocalLinearProblem<T> problem(const Operands<T>& o, State state) {
    const Design& design = o.body().pipeline.design;
    LocalLinearProblem<T> p;
    fill(p, o, state);
    p.order = design.memory.order;
    p.causal = o.body().options.causal;
    p.kernel = o.has(Role::bandwidth) ? LocalKernel::gaussian : LocalKernel::exponential;
    p.scale = static_cast<T>(o.step().scale);
    p.bandwidth = o.per_head_number(Role::bandwidth);
    p.ridge = o.step().absolute_ridge ? LocalRidge::absolute : LocalRidge::relative;
    p.lambda = o.scalars(Role::ridge);
    p.slope = o.vectors(Role::a);
    fill_past(p, o, state);
    return p;
  }
  static Status forward(const Operands<T>& o, State state, Form, Workspace work) noexcept {
    if (o.body().pipeline.own_pairs)
      return each_whole(o, problem(o, state), no_gradient, [&](const LocalLinearProblem<T>& p) {
        return local_linear::forward(p, simd_of<T>(o.body()), work, o.body().simd_f64);
      });
    if (o.keep() && !has_room(o, state)) return Status::state_full;
    const Status status = local_linear::forward(problem(o, state), simd_of<T>(o.body()), work, o.body().simd_f64);
    if ((status != Status::ok && status != Status::out_of_domain) || !o.keep()) return status;
    append(o, state, 0, o.vectors(Role::k)), append(o, state, 1, o.vectors(Role::v));
    count_up(o, state);
    return status;
  }
  static Status backward(const Operands<T>& o, const Call& call, Form, Arena arena) noexcept {
    LocalLinearGradient<T> d;
    d.d_o = o.d_output(o.step().to);
    d.d_q = o.d_vectors(Role::q), d.d_k = o.d_vectors(Role::k), d.d_v = o.d_vectors(Role::v);
    d.d_lambda = o.d_scalars(Role::ridge), d.d_slope = o.d_vectors(Role::a);
    d.d_bandwidth = o.d_per_head_number(Role::bandwidth);
    if (o.body().pipeline.own_pairs)
      return each_whole(o, problem(o, call.state), &d, [&](const LocalLinearProblem<T>& p) {
        return local_linear::backward(p, d, simd_of<T>(o.body()), arena.rest(), o.body().simd_f64);
      });
    fill_past_gradient(d, o, call);
    const Status status =
        local_linear::backward(problem(o, call.state), d, simd_of<T>(o.body()), arena.rest(), o.body().simd_f64);
    from_final(o, call, 0, d.d_k), from_final(o, call, 1, d.d_v);
    copy_counts(o, call);
    return status;
  }
};

// [B, T, G] of an operand per key head
template <class N, class T>
View<N, 3> per_key_head(const View<N, 3>& v, const Operands<T>& o) {
  return {v.data, {v.extent[0], v.extent[1], o.key_heads()}, v.stride};
}

template <class T>
struct PathFamily {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form, bool backward) {
    return path_attention::workspace_bytes<T>(body.shape.heads, body.shape.key_heads, width(body, step.from[Role::k]),
                                              width(body, step.from[Role::v]), time, time, backward);
  }
  static PathAttentionProblem<T> problem(const Operands<T>& o, State state) {
    PathAttentionProblem<T> p;
    fill(p, o, state);
    p.scale = static_cast<T>(o.step().scale);
    p.w = o.vectors(Role::w);
    p.beta = per_key_head(o.scalars(Role::beta), o), p.g = o.scalars(Role::g);
    const ConstState past(state);
    p.past_k = history<const T>(o, past, 0), p.past_v = history<const T>(o, past, 1);
    p.past_w = history<const T>(o, past, 2), p.past_beta = without_last(history<const T>(o, past, 3));
    if (o.has(Role::g)) p.past_g = without_last(history<const T>(o, past, 4));
    return p;
  }
  static Status forward(const Operands<T>& o, State state, Form, Workspace work) noexcept {
    if (o.keep() && !has_room(o, state)) return Status::state_full;
    const PathAttentionProblem<T> p = problem(o, state);
    const Status status = path_attention::forward(p, simd_of<T>(o.body()), work);
    if (status != Status::ok || !o.keep()) return status;
    append(o, state, 0, p.k), append(o, state, 1, p.v), append(o, state, 2, p.w);
    append(o, state, 3, with_last(p.beta));
    if (o.has(Role::g)) append(o, state, 4, with_last(p.g));
    count_up(o, state);
    return status;
  }
  static Status backward(const Operands<T>& o, const Call& call, Form, Arena arena) noexcept {
    const GateGradient<T> d_g(o, Role::g, arena);
    PathAttentionGradient<T> d;
    d.d_o = o.d_output(o.step().to);
    d.d_q = o.d_vectors(Role::q), d.d_k = o.d_vectors(Role::k), d.d_v = o.d_vectors(Role::v);
    d.d_w = o.d_vectors(Role::w), d.d_beta = per_key_head(o.d_scalars(Role::beta), o), d.d_g = d_g.view();
    d.d_past_k = history<T>(o, call.d_initial, 0), d.d_past_v = history<T>(o, call.d_initial, 1);
    d.d_past_w = history<T>(o, call.d_initial, 2);
    d.d_past_beta = without_last(history<T>(o, call.d_initial, 3));
    if (o.has(Role::g)) d.d_past_g = without_last(history<T>(o, call.d_initial, 4));
    const Status status = path_attention::backward(problem(o, call.state), d, simd_of<T>(o.body()), arena.rest());
    from_final(o, call, 0, d.d_k), from_final(o, call, 1, d.d_v), from_final(o, call, 2, d.d_w);
    from_final(o, call, 3, with_last(d.d_beta));
    if (o.has(Role::g)) from_final(o, call, 4, with_last(d.d_g));
    d_g.finish();
    copy_counts(o, call);
    return status;
  }
};

template <class T>
struct DeltaformerFamily {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form, bool backward) {
    const std::size_t bytes =
        deltaformer::workspace_bytes<T>(body.shape.heads, body.shape.key_heads, width(body, step.from[Role::k]),
                                        width(body, step.from[Role::v]), time, time, backward);
    // The gradient of the corrected values, which the final state may have.
    const std::size_t row = static_cast<std::size_t>(body.shape.batch) * static_cast<std::size_t>(body.shape.heads) *
                            static_cast<std::size_t>(body.shape.value_dim) * sizeof(T);
    return backward ? bytes + 64 + static_cast<std::size_t>(time) * row : bytes;
  }
  static DeltaformerProblem<T> problem(const Operands<T>& o, State state) {
    DeltaformerProblem<T> p;
    fill(p, o, state);
    p.scale = static_cast<T>(o.step().scale);
    p.beta = o.scalars(Role::beta);
    p.past_k = history<const T>(o, ConstState(state), 0), p.past_u = history<const T>(o, ConstState(state), 1);
    p.u = o.output(o.step().also);
    return p;
  }
  static Status forward(const Operands<T>& o, State state, Form, Workspace work) noexcept {
    if (o.keep() && !has_room(o, state)) return Status::state_full;
    const DeltaformerProblem<T> p = problem(o, state);
    const Status status = deltaformer::forward(p, simd_of<T>(o.body()), work);
    if (status != Status::ok || !o.keep()) return status;
    append(o, state, 0, p.k);
    append(o, state, 1, View<const T, 4>{p.u.data, p.u.extent, p.u.stride});
    count_up(o, state);
    return status;
  }
  static Status backward(const Operands<T>& o, const Call& call, Form, Arena arena) noexcept {
    const GateGradient<T> d_beta(o, Role::beta, arena);
    DeltaformerGradient<T> d;
    d.d_o = o.d_output(o.step().to);
    d.d_q = o.d_vectors(Role::q), d.d_k = o.d_vectors(Role::k), d.d_v = o.d_vectors(Role::v);
    d.d_beta = d_beta.view();
    d.d_past_k = history<T>(o, call.d_initial, 0), d.d_past_u = history<T>(o, call.d_initial, 1);
    // Corrected values that are in the final list; old ones are passed on as they are.
    const std::ptrdiff_t B = d.d_q.extent[0], H = o.heads(), V = o.value_dim(), count = B * o.time() * H * V;
    T* const from_list = arena.take<T>(count);
    std::fill_n(from_list, count, T(0));
    const View<T, 4> d_u{from_list, {B, o.time(), H, V}, {o.time() * H * V, H * V, V, 1}};
    from_final(o, call, 1, d_u);
    d.d_u = {d_u.data, d_u.extent, d_u.stride};
    const Status status = deltaformer::backward(problem(o, call.state), d, simd_of<T>(o.body()), arena.rest());
    from_final(o, call, 0, d.d_k);
    d_beta.finish();
    copy_counts(o, call);
    return status;
  }
};

RegressionKernel kernel_of(Kernel kernel) {
  switch (kernel) {
    case Kernel::gaussian:
      return RegressionKernel::gaussian;
    case Kernel::linear:
      return RegressionKernel::linear;
    case Kernel::polynomial:
      return RegressionKernel::polynomial;
    default:
      return RegressionKernel::exponential;
  }
}

template <class T>
struct KernelRegressionFamily {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form, bool backward) {
    Arena arena;
    arena.take<std::int64_t>(body.shape.batch);
    return arena.bytes() + kernel_regression::workspace_bytes(body.shape.heads, body.shape.key_heads,
                                                              width(body, step.from[Role::k]),
                                                              width(body, step.from[Role::v]), time, false, backward,
                                                              body.pipeline.design.weights.window);
  }
  static KernelRegressionProblem<T> problem(const Operands<T>& o, State state) {
    const Memory& memory = o.body().pipeline.design.memory;
    KernelRegressionProblem<T> p;
    fill(p, o, state);
    p.causal = o.body().options.causal;
    p.window = o.body().pipeline.design.weights.window;
    p.kernel = kernel_of(memory.kernel);
    p.scale = o.step().scale, p.bandwidth = o.step().number, p.degree = memory.degree;
    p.ridge = o.scalars(Role::ridge);
    fill_past(p, o, state);
    return p;
  }
  static Status forward(const Operands<T>& o, State state, Form, Workspace work) noexcept {
    if (o.body().pipeline.own_pairs)
      return each_whole(o, problem(o, state), no_gradient, [&](const KernelRegressionProblem<T>& p) {
        return kernel_regression::forward(p, *o.body().simd_f64, work);
      });
    if (o.keep() && !has_room(o, state)) return Status::state_full;
    KernelRegressionProblem<T> p = problem(o, state);
    double* const kept = o.step().keeps_factor && o.keep() ? o.template state<double>(state, 4) : nullptr;
    Arena arena(work);
    const std::ptrdiff_t sequences = static_cast<std::ptrdiff_t>(o.sequences().size());
    std::int64_t* const factored = arena.take<std::int64_t>(sequences);
    if (kept) {                                           // counts are whole numbers in a state of doubles
      const double most = static_cast<double>(p.window);  // any other number: the factor is made anew
      std::transform(kept, kept + sequences, factored,
                     [&](double n) { return n >= 0 && n <= most ? static_cast<std::int64_t>(n) : 0; });
      p.triangle = o.template state<double>(state, 2), p.solved = o.template state<double>(state, 3);
      p.factored = factored, p.factor_capacity = p.window;
    }
    const Status status = kernel_regression::forward(p, *o.body().simd_f64, arena.rest());
    if (kept)
      std::transform(factored, factored + sequences, kept, [](std::int64_t n) { return static_cast<double>(n); });
    if (status != Status::ok || !o.keep()) return status;
    append(o, state, 0, p.k), append(o, state, 1, p.v);
    count_up(o, state);
    return status;
  }
  static Status backward(const Operands<T>& o, const Call& call, Form, Arena arena) noexcept {
    KernelRegressionGradient<T> d;
    d.d_o = o.d_output(o.step().to);
    d.d_q = o.d_vectors(Role::q), d.d_k = o.d_vectors(Role::k), d.d_v = o.d_vectors(Role::v);
    d.d_ridge = o.d_scalars(Role::ridge);
    if (o.body().pipeline.own_pairs)
      return each_whole(o, problem(o, call.state), &d, [&](const KernelRegressionProblem<T>& p) {
        return kernel_regression::backward(p, d, *o.body().simd_f64, arena.rest());
      });
    fill_past_gradient(d, o, call);
    const Status status = kernel_regression::backward(problem(o, call.state), d, *o.body().simd_f64, arena.rest());
    from_final(o, call, 0, d.d_k), from_final(o, call, 1, d.d_v);
    copy_counts(o, call);
    return status;
  }
};

}  // namespace

template <class T>
Calls<T> pair_calls(KernelKind kind) {
  if (kind == KernelKind::attention) return calls<AttentionFamily, T>();
  if (kind == KernelKind::local_linear) return calls<LocalLinearFamily, T>();
  if (kind == KernelKind::path_attention) return calls<PathFamily, T>();
  if (kind == KernelKind::deltaformer) return calls<DeltaformerFamily, T>();
  if (kind == KernelKind::kernel_regression) return calls<KernelRegressionFamily, T>();
  return {};
}

template Calls<float> pair_calls<float>(KernelKind);
template Calls<double> pair_calls<double>(KernelKind);

}  // namespace ttr
