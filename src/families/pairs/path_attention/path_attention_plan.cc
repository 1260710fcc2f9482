// The plan of attention whose keys are carried to the query by products of Householder reflections (PaTH).
#include "families/pairs/pairs_plan.h"
#include "families/pairs/path_attention/path_attention.h"

namespace ttr::families {
namespace {

struct Own {
  enum : std::size_t { reflection = Slot::own, count };
};

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.m.kind, {Memory::Class::constant});
  rest.needs(rest.w.transport && rest.w.near == Kernel::exponential);
  rest.w.transport = false;
  takes_near(rest);
  rest.needs(rest.s.kind, {Solver::Kind::exact});
  rest.takes_fade();
  return causal && rest.is_nothing();
}

int build(Builder& b, double) {
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  Step step =
      b.kernel(path_attention_family, near_scale(b), q, k, v, b.log_fade(), b.canonical("beta_t"), Own::count);
  step.operands[Own::reflection] = b.canonical("w_t");
  std::vector<StatePart> parts = pairs_kept(b, k, v, step.operands[Slot::g] >= 0);
  const std::ptrdiff_t G = b.shape().key_heads;
  StatePart w = {{"w", "B N G K", "Householder vectors of the pairs kept"}, {G, b.shape().key_dim}, b.type()},
            beta = {{"beta", "B N G", "their steps"}, {G}, b.type()};
  w.history = beta.history = true;
  parts.insert(parts.begin() + 2, {w, beta});
  return b.add(std::move(step), "BTHV", parts);
}

// [B, T, G] of an operand per key head
template <class N, class T>
View<N, 3> per_key_head(const View<N, 3>& v, const KernelArgs<T>& o) {
  return {v.data, {v.extent[0], v.extent[1], o.key_heads()}, v.stride};
}

template <class T>
struct PathAttentionCalls {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form, bool backward) {
    return after(body, step, time, time, backward);
  }
  static std::size_t after(const Plan::Body& body, const Step& step, std::int64_t time, std::int64_t past,
                           bool backward) {
    return path_attention::workspace_bytes<T>(body.shape.heads, body.shape.key_heads,
                                              width(body, step.operands[Slot::k]),
                                              width(body, step.operands[Slot::v]), time, past, backward);
  }
  static PathAttentionProblem<T> problem(const KernelArgs<T>& o, State state) {
    PathAttentionProblem<T> p;
    fill(p, o, state);
    p.scale = static_cast<T>(o.step().scale);
    p.w = o.vectors(Own::reflection);
    p.beta = per_key_head(o.scalars(Slot::beta), o), p.g = o.scalars(Slot::g);
    const ConstState past(state);
    p.past_k = history<const T>(o, past, 0), p.past_v = history<const T>(o, past, 1);
    p.past_w = history<const T>(o, past, 2), p.past_beta = without_last(history<const T>(o, past, 3));
    if (o.has(Slot::g)) p.past_g = without_last(history<const T>(o, past, 4));
    return p;
  }
  static Status forward(const KernelArgs<T>& o, State state, Form, Workspace work) noexcept {
    if (o.keep() && !has_room(o, state)) return Status::state_full;
    const PathAttentionProblem<T> p = problem(o, state);
    const Status status = path_attention::forward(p, simd_of<T>(o.body()), work);
    if (status != Status::ok || !o.keep()) return status;
    append(o, state, 0, p.k), append(o, state, 1, p.v), append(o, state, 2, p.w);
    append(o, state, 3, with_last(p.beta));
    if (o.has(Slot::g)) append(o, state, 4, with_last(p.g));
    count_up(o, state);
    return status;
  }
  static Status backward(const KernelArgs<T>& o, const Call& call, Form, Arena arena) noexcept {
    const GateGradient<T> d_g(o, Slot::g, arena);
    PathAttentionGradient<T> d;
    d.d_o = o.d_output(o.step().result);
    d.d_q = o.d_vectors(Slot::q), d.d_k = o.d_vectors(Slot::k), d.d_v = o.d_vectors(Slot::v);
    d.d_w = o.d_vectors(Own::reflection), d.d_beta = per_key_head(o.d_scalars(Slot::beta), o), d.d_g = d_g.view();
    d.d_past_k = history<T>(o, call.d_initial, 0), d.d_past_v = history<T>(o, call.d_initial, 1);
    d.d_past_w = history<T>(o, call.d_initial, 2);
    d.d_past_beta = without_last(history<T>(o, call.d_initial, 3));
    if (o.has(Slot::g)) d.d_past_g = without_last(history<T>(o, call.d_initial, 4));
    const Status status = path_attention::backward(problem(o, call.state), d, simd_of<T>(o.body()), arena.rest());
    from_final(o, call, 0, d.d_k), from_final(o, call, 1, d.d_v), from_final(o, call, 2, d.d_w);
    from_final(o, call, 3, with_last(d.d_beta));
    if (o.has(Slot::g)) from_final(o, call, 4, with_last(d.d_g));
    d_g.finish();
    copy_counts(o, call);
    return status;
  }
};

}  // namespace

const Family path_attention_family = {.name = "path_attention",
                                      .forms = blocks_only,
                                      .why_absent = list_of_pairs,
                                      .traits = keeps_pairs,
                                      .claim = claim,
                                      .build = build,
                                      .f32 = calls_of<PathAttentionCalls, float>(),
                                      .f64 = calls_of<PathAttentionCalls, double>()};

}  // namespace ttr::families
