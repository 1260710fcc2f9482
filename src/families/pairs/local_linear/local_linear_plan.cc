// The plan of local polynomials near the query: lines and quadratics by ridge regression, or a line with a given slope.
#include "families/pairs/local_linear/local_linear.h"
#include "families/pairs/pairs_plan.h"

namespace ttr::families {
namespace {

struct Own {
  enum : std::size_t { bandwidth = Slot::own, ridge, slope, count };
};

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.m.kind, {Memory::Class::local});
  takes_near(rest);
  rest.needs(causal || (!rest.fades() && rest.w.window == 0));
  rest.takes_fade();
  rest.w.window = 0;
  if (rest.takes(rest.s.kind, {Solver::Kind::given})) {
    rest.needs(rest.m.order, {1});
  } else {
    rest.needs(rest.s.kind, {Solver::Kind::exact});
    rest.needs(rest.m.order, {1, 2});
    rest.needs(rest.has_ridge());
    rest.takes(rest.s.ridge_kind, {Solver::RidgeKind::relative});
    rest.takes(rest.s.ridge_per, {Solver::RidgePer::token});
    rest.takes_ridge();
  }
  return rest.is_nothing();
}

int build(Builder& b, double) {
  const Solver& s = b.design().solver;
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  Step step = b.kernel(local_linear_family, near_scale(b), q, k, v, b.log_fade(), -1, Own::count);
  step.operands[Own::bandwidth] = bandwidth_of_weights(b);
  if (s.kind == Solver::Kind::given) step.operands[Own::slope] = b.canonical("r");
  else step.operands[Own::ridge] = b.quantity(s.ridge, "ridge");
  const bool gates = step.operands[Slot::g] >= 0;
  return b.add(std::move(step), "BTHV", pairs_kept(b, k, v, gates));
}

template <class T>
struct LocalLinearCalls {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form form,
                               bool backward) {
    return team_workspace(body, step, time, form, backward, 1);
  }
  static std::size_t team_workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form, bool backward,
                                    int workers) {
    return local_linear::workspace_bytes<T>(
        width(body, step.operands[Slot::k]), width(body, step.operands[Slot::v]), body.pipeline.design.memory.order,
        body.shape.heads / body.shape.key_heads, time, body.pipeline.design.weights.window, backward, workers);
  }
  static LocalLinearProblem<T> problem(const KernelArgs<T>& o, State state) {
    const Design& design = o.body().pipeline.design;
    LocalLinearProblem<T> p;
    fill(p, o, state);
    p.order = design.memory.order;
    p.causal = o.body().options.causal;
    p.kernel = o.has(Own::bandwidth) ? LocalKernel::gaussian : LocalKernel::exponential;
    p.scale = static_cast<T>(o.step().scale);
    p.bandwidth = o.per_head_number(Own::bandwidth);
    p.ridge = design.solver.ridge_kind == Solver::RidgeKind::absolute ? LocalRidge::absolute : LocalRidge::relative;
    p.lambda = o.scalars(Own::ridge);
    p.slope = o.vectors(Own::slope);
    p.window = design.weights.window;
    p.g = o.scalars(Slot::g);
    fill_past(p, o, state);
    if (o.has(Slot::g)) p.past_g = without_last(history<const T>(o, ConstState(state), 2));
    return p;
  }
  static Status forward(const KernelArgs<T>& o, State state, Form, Workspace work) noexcept {
    if (o.body().pipeline.noncausal)
      return each_whole(o, problem(o, state), no_gradient, [&](const LocalLinearProblem<T>& p) {
        return local_linear::forward(p, simd_of<T>(o.body()), work, o.body().simd_f64);
      });
    if (o.keep() && !has_room(o, state)) return Status::state_full;
    const Status status = local_linear::forward(problem(o, state), simd_of<T>(o.body()), work, o.body().simd_f64);
    if ((status != Status::ok && status != Status::out_of_domain) || !o.keep()) return status;
    append(o, state, 0, o.vectors(Slot::k)), append(o, state, 1, o.vectors(Slot::v));
    if (o.has(Slot::g)) append(o, state, 2, with_last(o.scalars(Slot::g)));
    count_up(o, state);
    return status;
  }
  static Status backward(const KernelArgs<T>& o, const Call& call, Form, Arena arena) noexcept {
    const GateGradient<T> d_g(o, Slot::g, arena);
    LocalLinearGradient<T> d;
    d.d_g = d_g.view();
    d.d_o = o.d_output(o.step().result);
    d.d_q = o.d_vectors(Slot::q), d.d_k = o.d_vectors(Slot::k), d.d_v = o.d_vectors(Slot::v);
    d.d_lambda = o.d_scalars(Own::ridge), d.d_slope = o.d_vectors(Own::slope);
    d.d_bandwidth = o.d_per_head_number(Own::bandwidth);
    if (o.body().pipeline.noncausal)
      return each_whole(o, problem(o, call.state), &d, [&](const LocalLinearProblem<T>& p) {
        return local_linear::backward(p, d, simd_of<T>(o.body()), arena.rest(), o.body().simd_f64);
      });
    fill_past_gradient(d, o, call);
    if (o.has(Slot::g)) d.d_past_g = without_last(history<T>(o, call.d_initial, 2));
    const Status status =
        local_linear::backward(problem(o, call.state), d, simd_of<T>(o.body()), arena.rest(), o.body().simd_f64);
    from_final(o, call, 0, d.d_k), from_final(o, call, 1, d.d_v);
    if (o.has(Slot::g)) from_final(o, call, 2, with_last(d.d_g));
    d_g.finish();
    copy_counts(o, call);
    return status;
  }
};

}  // namespace

const Family local_linear_family = {.name = "local_linear",
                                    .forms = blocks_only,
                                    .why_absent = list_of_pairs,
                                    .traits = keeps_pairs_in_team,
                                    .claim = claim,
                                    .build = build,
                                    .f32 = calls_of<LocalLinearCalls, float>(),
                                    .f64 = calls_of<LocalLinearCalls, double>()};

}  // namespace ttr::families
