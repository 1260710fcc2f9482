// The plan of attention: the weighted mean, or sum, of the values near the query.
#include "families/pairs/attention/attention.h"
#include "families/pairs/pairs_plan.h"

namespace ttr::families {
namespace {

struct Own {
  enum : std::size_t { bandwidth = Slot::own, sink, count };
};
struct AttentionOptions {
  bool unnormalised = false;  // the weights are not divided by their sum
};

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.m.kind, {Memory::Class::constant});
  takes_near(rest);
  if (!rest.takes(rest.s.kind, {Solver::Kind::exact})) rest.needs(!rest.w.sink);  // a sum has no denominator
  rest.needs(causal || (!rest.fades() && rest.w.window == 0));
  rest.takes_fade();
  rest.w.sink = false, rest.w.window = 0;
  return rest.is_nothing();
}

int build(Builder& b, double) {
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  Step step = b.kernel(attention_family, near_scale(b), q, k, v, b.log_fade(), -1, Own::count);
  step.operands[Own::bandwidth] = bandwidth_of_weights(b);
  if (b.design().weights.sink) step.operands[Own::sink] = b.canonical("sink");
  step.set_options(AttentionOptions{b.design().solver.kind == Solver::Kind::gd});
  const bool gates = step.operands[Slot::g] >= 0;
  return b.add(std::move(step), "BTHV", pairs_kept(b, k, v, gates));
}

template <class T>
struct AttentionCalls {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form, bool backward) {
    return attention::workspace_bytes<T>(body.shape.heads, body.shape.key_heads, width(body, step.operands[Slot::k]),
                                         width(body, step.operands[Slot::v]), time, time,
                                         body.pipeline.design.weights.window, backward);
  }
  static AttentionProblem<T> problem(const KernelArgs<T>& o, State state) {
    AttentionProblem<T> p;
    fill(p, o, state);
    p.scale = static_cast<T>(o.step().scale);
    p.causal = o.body().options.causal;
    p.normalise = !o.step().template options<AttentionOptions>().unnormalised;
    p.window = o.body().pipeline.design.weights.window;
    p.g = o.scalars(Slot::g);
    p.sink = o.per_head_number(Own::sink), p.bandwidth = o.per_head_number(Own::bandwidth);
    fill_past(p, o, state);
    if (o.has(Slot::g)) p.past_g = without_last(history<const T>(o, ConstState(state), 2));
    return p;
  }
  static Status forward(const KernelArgs<T>& o, State state, Form, Workspace work) noexcept {
    if (o.body().pipeline.noncausal)
      return each_whole(o, problem(o, state), no_gradient, [&](const AttentionProblem<T>& p) {
        return attention::forward(p, simd_of<T>(o.body()), work);
      });
    if (o.keep() && !has_room(o, state)) return Status::state_full;
    const Status status = attention::forward(problem(o, state), simd_of<T>(o.body()), work);
    if (status != Status::ok || !o.keep()) return status;
    append(o, state, 0, o.vectors(Slot::k)), append(o, state, 1, o.vectors(Slot::v));
    if (o.has(Slot::g)) append(o, state, 2, with_last(o.scalars(Slot::g)));
    count_up(o, state);
    return status;
  }
  static Status backward(const KernelArgs<T>& o, const Call& call, Form, Arena arena) noexcept {
    const GateGradient<T> d_g(o, Slot::g, arena);
    AttentionGradient<T> d;
    d.d_o = o.d_output(o.step().result);
    d.d_q = o.d_vectors(Slot::q), d.d_k = o.d_vectors(Slot::k), d.d_v = o.d_vectors(Slot::v);
    d.d_g = d_g.view();
    d.d_sink = o.d_per_head_number(Own::sink), d.d_bandwidth = o.d_per_head_number(Own::bandwidth);
    if (o.body().pipeline.noncausal)
      return each_whole(o, problem(o, call.state), &d, [&](const AttentionProblem<T>& p) {
        return attention::backward(p, d, simd_of<T>(o.body()), arena.rest());
      });
    fill_past_gradient(d, o, call);
    if (o.has(Slot::g)) d.d_past_g = without_last(history<T>(o, call.d_initial, 2));
    const Status status = attention::backward(problem(o, call.state), d, simd_of<T>(o.body()), arena.rest());
    from_final(o, call, 0, d.d_k), from_final(o, call, 1, d.d_v);
    if (o.has(Slot::g)) from_final(o, call, 2, with_last(d.d_g));
    d_g.finish();
    copy_counts(o, call);
    return status;
  }
};

}  // namespace

const Family attention_family = {.name = "attention",
                                 .forms = blocks_only,
                                 .why_absent = list_of_pairs,
                                 .traits = keeps_pairs,
                                 .claim = claim,
                                 .build = build,
                                 .f32 = calls_of<AttentionCalls, float>(),
                                 .f64 = calls_of<AttentionCalls, double>()};

}  // namespace ttr::families
