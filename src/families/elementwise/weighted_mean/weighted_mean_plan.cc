// The plan of a weighted mean per channel, read before the write: sums alpha e^e and beta e^e of values and weights, fresh
// at e = -1e30 (RWKV-4).
#include "families/elementwise/elementwise_plan.h"
#include "families/elementwise/weighted_mean/weighted_mean.h"

namespace ttr::families {
namespace {

struct Own {
  enum : std::size_t { gv = Slot::own, bonus, count };
};

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.m.kind, {Memory::Class::constant});
  rest.needs(rest.m.per_channel && rest.x.bonus && rest.x.read_before);
  rest.m.per_channel = rest.x.bonus = rest.x.read_before = false;
  rest.needs(rest.s.kind, {Solver::Kind::exact});
  rest.needs(rest.w.per, {Weights::Per::value});
  rest.needs(rest.w.importance, {Weights::Importance::exponential});
  rest.takes_fade(), rest.takes_read_norms();
  rest.x.keys = {};  // there are none
  return causal && rest.is_nothing();
}

int build(Builder& b, double) {
  Step step = b.kernel(weighted_mean_family, 1, -1, b.canonical("i"), b.canonical("v"), -1, -1, Own::count);
  step.operands[Own::gv] = b.canonical("gv"), step.operands[Own::bonus] = b.canonical("bonus");
  const std::vector<std::ptrdiff_t> extent = {b.shape().heads, b.shape().value_dim};
  StatePart alpha = {{"alpha", "B H V", "weighted sum of values, relative to exp(e)"}, extent, b.type()};
  StatePart beta = {{"beta", "B H V", "sum of weights, relative to exp(e)", Range::positive}, extent, b.type()};
  StatePart exponent = {{"e", "B H V", "the exponent both are relative to", Range::normal, false}, extent, b.type()};
  exponent.fresh = -1e30;
  return b.add(std::move(step), "BTHV", {alpha, beta, exponent});
}

template <class T>
struct WeightedMeanCalls {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form form,
                               bool backward) {
    return team_workspace(body, step, time, form, backward, 1);
  }
  static std::size_t team_workspace(const Plan::Body& body, const Step&, std::int64_t time, Form form, bool backward,
                                    int workers) {
    return weighted_mean::workspace_bytes<T>(body.shape.value_dim, time, form, chunk_of(body, form), backward,
                                             workers);
  }
  static WeightedMeanProblem<T> problem(const KernelArgs<T>& o, State state, std::span<const Sequence> one, int h,
                                        std::ptrdiff_t at) {
    WeightedMeanProblem<T> p;
    p.sequences = one;
    p.dim = o.dim();
    p.k = o.flat(Slot::k, h), p.v = o.flat(Slot::v, h);
    p.w = o.flat(Own::gv, h), p.u = o.flat(Own::bonus, h);
    p.alpha = offset(o.template state<T>(state), at), p.beta = offset(o.template state<T>(state, 1), at);
    p.exponent = offset(o.template state<T>(state, 2), at);
    p.o = head_of(o.output(o.step().result), h);
    p.team = o.team(), p.chosen_by = o.body().shape.value_dim;
    return p;
  }
  static Status forward(const KernelArgs<T>& o, State state, Form form, Workspace work) noexcept {
    return for_each_head(o, o.dim(), [&](std::span<const Sequence> one, int h, std::ptrdiff_t at) {
      if (pauses(one)) return Status::ok;
      return weighted_mean::forward(problem(o, state, one, h, at), form, chunk_of(o.body(), form),
                                    simd_of<T>(o.body()), work);
    });
  }
  static Status backward(const KernelArgs<T>& o, const Call& call, Form form, Arena arena) noexcept {
    return for_each_head(o, o.dim(), [&](std::span<const Sequence> one, int h, std::ptrdiff_t at) {
      WeightedMeanGradient<T> d;
      d.d_o = head_of(o.d_output(o.step().result), h);
      d.d_k = o.d_flat(Slot::k, h), d.d_v = o.d_flat(Slot::v, h);
      d.d_w = o.d_flat(Own::gv, h), d.d_u = o.d_flat(Own::bonus, h);
      d.d_final_alpha = offset(o.template state<const T>(call.d_final), at);
      d.d_final_beta = offset(o.template state<const T>(call.d_final, 1), at);
      d.d_initial_alpha = offset(o.template state<T>(call.d_initial), at);
      d.d_initial_beta = offset(o.template state<T>(call.d_initial, 1), at);
      return weighted_mean::backward(problem(o, call.state, one, h, at), d, form, chunk_of(o.body(), form),
                                     simd_of<T>(o.body()), arena.rest());
    });
  }
};

}  // namespace

const Family weighted_mean_family = {
    .name = "weighted_mean",
    .forms = scan_only,
    .why_absent = elementwise_state,
    .traits = {.splits_columns = true, .team = {.forward = scan_only, .backward = scan_only}},
    .claim = claim,
    .build = build,
    .f32 = calls_of<WeightedMeanCalls, float>(),
    .f64 = calls_of<WeightedMeanCalls, double>()};

}  // namespace ttr::families
