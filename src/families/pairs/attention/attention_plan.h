// Between a step of a plan and attention.h: what a call's problem and gradients are, and what becomes of the state. The ring
// of mpi/ring.cc takes the place of the kernel in it.
#pragma once

#include <algorithm>

#include "families/pairs/attention/attention.h"
#include "families/pairs/pairs_plan.h"

namespace ttr::families {

struct AttentionSlots {
  enum : std::size_t { bandwidth = Slot::own, sink, count };
};
struct AttentionOptions {
  bool unnormalised = false;  // the weights are not divided by their sum
  bool own = false;           // every head has keys and values of its own
  bool polynomial = false;    // the weights are (c0 + c1 x + c2 x^2) e^{rate x}, x = q.k
  double c[3] = {0, 1, 0}, rate = 0, eps = 0;
};

template <class T>
struct AttentionCalls {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form, bool backward) {
    return after(body, step, time, time, backward);
  }
  static std::size_t after(const Plan::Body& body, const Step& step, std::int64_t time, std::int64_t past,
                           bool backward) {
    return bytes(body, step, time, past, backward, 1);
  }
  static std::size_t bytes(const Plan::Body& body, const Step& step, std::int64_t time, std::int64_t past,
                           bool backward, int workers) {
    if (body.pipeline.noncausal) past = time;  // its pairs are given to the kernel as a past
    const bool own = step.options<AttentionOptions>().own;
    return attention::workspace_bytes<T>(body.shape.heads, own ? body.shape.heads : body.shape.key_heads,
                                         width(body, step.operands[Slot::k]), width(body, step.operands[Slot::v]),
                                         time, past, body.pipeline.design.weights.window, backward, workers);
  }
  static std::size_t team_workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form, bool backward,
                                    int workers) {
    return bytes(body, step, time, time, backward, workers);
  }
  // The scales of i8 are behind the gates.
  static int first_scale(const KernelArgs<T>& o) { return o.has(Slot::g) ? 3 : 2; }
  static AttentionProblem<T> problem(const KernelArgs<T>& o, State state) {
    AttentionProblem<T> p;
    fill(p, o, state);
    p.scale = static_cast<T>(o.step().scale);
    p.causal = o.body().options.causal;
    const AttentionOptions& options = o.step().template options<AttentionOptions>();
    p.normalise = !options.unnormalised, p.polynomial = options.polynomial;
    std::transform(options.c, options.c + 3, p.weight.c, [](double c) { return static_cast<T>(c); });
    p.weight.rate = static_cast<T>(options.rate), p.eps = static_cast<T>(options.eps);
    if (options.own) p.key_heads = p.heads;
    p.window = o.body().pipeline.design.weights.window;
    p.g = o.scalars(Slot::g);
    p.sink = o.per_head_number(AttentionSlots::sink), p.bandwidth = o.per_head_number(AttentionSlots::bandwidth);
    if (!o.body().pipeline.noncausal) {
      p.compact_k = compact_history(o, state, 0, first_scale(o)),
      p.compact_v = compact_history(o, state, 1, first_scale(o) + 1);
      if (!p.compact_k) fill_past(p, o, state);
    }
    if (o.has(Slot::g)) p.past_g = without_last(history<const T>(o, ConstState(state), 2));
    return p;
  }
  static Status forward(const KernelArgs<T>& o, State state, Form, Workspace work) noexcept {
    const auto run = [&](const AttentionProblem<T>& p) { return attention::forward(p, simd_of<T>(o.body()), work); };
    if (o.body().pipeline.noncausal) return each_whole(o, problem(o, state), no_gradient, run);
    return forward_by(run, o, state, work);
  }
  static Status backward(const KernelArgs<T>& o, const Call& call, Form, Arena arena) noexcept {
    return backward_by([&](const AttentionProblem<T>& p, const AttentionGradient<T>& d,
                           Workspace work) { return attention::backward(p, d, simd_of<T>(o.body()), work); },
                       o, call, arena);
  }

  /// What is around the kernel, for whoever solves the problem: run(problem), and the state gets the pairs of the call.
  template <class Run>
  static Status forward_by(Run&& run, const KernelArgs<T>& o, State state, Workspace work) {
    if (o.keep() && !has_room(o, state)) return Status::state_full;
    const Status status = run(problem(o, state));
    if (status != Status::ok || !o.keep()) return status;
    if constexpr (sizeof(T) == 4) {
      if (const auto list = compact_history(o, state, 0, first_scale(o)))
        append_compact(o, state, list, o.vectors(Slot::k), work);
      if (const auto list = compact_history(o, state, 1, first_scale(o) + 1))
        append_compact(o, state, list, o.vectors(Slot::v), work);
    }
    if (!o.body().options.state_type)
      append(o, state, 0, o.vectors(Slot::k)), append(o, state, 1, o.vectors(Slot::v));
    if (o.has(Slot::g)) append(o, state, 2, with_last(o.scalars(Slot::g)));
    count_up(o, state);
    return status;
  }
  /// The same with run(problem, gradient, workspace).
  template <class Run>
  static Status backward_by(Run&& run, const KernelArgs<T>& o, const Call& call, Arena arena) {
    const GateGradient<T> d_g(o, Slot::g, arena);
    AttentionGradient<T> d;
    d.d_o = o.d_output(o.step().result);
    d.d_q = o.d_vectors(Slot::q), d.d_k = o.d_vectors(Slot::k), d.d_v = o.d_vectors(Slot::v);
    d.d_g = d_g.view();
    d.d_sink = o.d_per_head_number(AttentionSlots::sink),
    d.d_bandwidth = o.d_per_head_number(AttentionSlots::bandwidth);
    if (o.body().pipeline.noncausal)
      return each_whole(o, problem(o, call.state), &d,
                        [&](const AttentionProblem<T>& p) { return run(p, d, arena.rest()); });
    fill_past_gradient(d, o, call);
    if (o.has(Slot::g)) d.d_past_g = without_last(history<T>(o, call.d_initial, 2));
    const Status status = run(problem(o, call.state), d, arena.rest());
    from_final(o, call, 0, d.d_k), from_final(o, call, 1, d.d_v);
    if (o.has(Slot::g)) from_final(o, call, 2, with_last(d.d_g));
    d_g.finish();
    copy_counts(o, call);
    return status;
  }
};

}  // namespace ttr::families
