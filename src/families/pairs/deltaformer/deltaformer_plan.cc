// The plan of a step on the newest pair near the query: what is kept of a value is its residual.
#include "families/pairs/deltaformer/deltaformer.h"
#include "families/pairs/pairs_plan.h"

namespace ttr::families {
namespace {

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.m.kind, {Memory::Class::constant});
  rest.needs(rest.w.near == Kernel::exponential);
  takes_near(rest);
  rest.needs(rest.s.kind, {Solver::Kind::sgd});
  rest.takes_plain_step();
  if (!rest.fades()) rest.takes_fade();
  return causal && rest.is_nothing();
}

int build(Builder& b, double) {
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  Step step = b.kernel(deltaformer_family, near_scale(b), q, k, v, -1, b.quantity(b.design().solver.step, "beta"));
  b.second_result(step, "", "BTHV");  // what is kept of a value
  std::vector<StatePart> parts = pairs_kept(b, k, v, false);
  parts[1] = {{"u", "B N H V", "corrected values of the pairs kept"}, {b.shape().heads, b.width(v)}, b.type()};
  parts[1].history = true;
  return b.add(std::move(step), "BTHV", parts);
}

template <class T>
struct DeltaformerCalls {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form, bool backward) {
    return after(body, step, time, time, backward);
  }
  static std::size_t after(const Plan::Body& body, const Step& step, std::int64_t time, std::int64_t past,
                           bool backward) {
    const std::size_t bytes =
        deltaformer::workspace_bytes<T>(body.shape.heads, body.shape.key_heads, width(body, step.operands[Slot::k]),
                                        width(body, step.operands[Slot::v]), time, past, backward);
    // The gradient of the corrected values, which the final state may have.
    const std::size_t row = static_cast<std::size_t>(body.shape.batch) * static_cast<std::size_t>(body.shape.heads) *
                            static_cast<std::size_t>(body.shape.value_dim) * sizeof(T);
    return backward ? bytes + 64 + static_cast<std::size_t>(time) * row : bytes;
  }
  static DeltaformerProblem<T> problem(const KernelArgs<T>& o, State state) {
    DeltaformerProblem<T> p;
    fill(p, o, state);
    p.scale = static_cast<T>(o.step().scale);
    p.beta = o.scalars(Slot::beta);
    p.past_k = history<const T>(o, ConstState(state), 0), p.past_u = history<const T>(o, ConstState(state), 1);
    p.u = o.output(o.step().second_result);
    return p;
  }
  static Status forward(const KernelArgs<T>& o, State state, Form, Workspace work) noexcept {
    if (o.keep() && !has_room(o, state)) return Status::state_full;
    const DeltaformerProblem<T> p = problem(o, state);
    const Status status = deltaformer::forward(p, simd_of<T>(o.body()), work);
    if (status != Status::ok || !o.keep()) return status;
    append(o, state, 0, p.k);
    append(o, state, 1, View<const T, 4>{p.u.data, p.u.extent, p.u.stride});
    count_up(o, state);
    return status;
  }
  static Status backward(const KernelArgs<T>& o, const Call& call, Form, Arena arena) noexcept {
    const GateGradient<T> d_beta(o, Slot::beta, arena);
    DeltaformerGradient<T> d;
    d.d_o = o.d_output(o.step().result);
    d.d_q = o.d_vectors(Slot::q), d.d_k = o.d_vectors(Slot::k), d.d_v = o.d_vectors(Slot::v);
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

}  // namespace

const Family deltaformer_family = {.name = "deltaformer",
                                   .forms = blocks_only,
                                   .why_absent = list_of_pairs,
                                   .traits = keeps_pairs,
                                   .claim = claim,
                                   .build = build,
                                   .f32 = calls_of<DeltaformerCalls, float>(),
                                   .f64 = calls_of<DeltaformerCalls, double>()};

}  // namespace ttr::families
