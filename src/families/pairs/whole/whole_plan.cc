// The plan of all pairs at once, without an order in which they could fade: a sum, or least squares.
#include "families/pairs/pairs_plan.h"
#include "families/pairs/whole/whole.h"

namespace ttr::families {
namespace {

struct Own {
  enum : std::size_t { ridge = Slot::own, count };
};

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(!rest.m.knows_position());  // queries and pairs have positions of their own
  rest.takes_importance(), rest.takes_any_features(), rest.takes_read_norms();
  if (rest.takes(rest.s.kind, {Solver::Kind::exact})) {
    rest.needs(rest.has_ridge());
    rest.takes_ridge();
  }
  return !causal && rest.is_nothing();
}

int build(Builder& b, double scale) {
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  Step step = b.kernel(whole_family, scale, q, k, v, -1, b.importance(), Own::count);
  const Solver& s = b.design().solver;
  if (s.kind == Solver::Kind::exact) step.operands[Own::ridge] = b.quantity(s.ridge, "ridge");
  return b.add(std::move(step), "BTHV", {});
}

// (K'K + ridge)^-1 q from q, k and ridge, without a state.
int solved_queries(Builder& b, const zoo::Stage&, const std::vector<int>& operands, Axes axes) {
  Step step = b.kernel(whole_family, 1, operands[0], operands[1], -1, -1, -1, Own::count);
  step.operands[Own::ridge] = operands[2];
  return b.add(std::move(step), axes, {});
}

template <class T>
struct WholeCalls {
  static WholeSolve solve_of(const Step& step) {
    return step.operands[Own::ridge] >= 0 ? WholeSolve::exact : WholeSolve::none;
  }
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t, Form, bool backward) {
    const int v = step.operands[Slot::v];
    return families::whole::workspace_bytes<T>(width(body, step.operands[Slot::k]), v < 0 ? 0 : width(body, v),
                                               solve_of(step), backward);
  }
  static WholeProblem<T> problem(const KernelArgs<T>& o) {
    WholeProblem<T> p;
    p.sequences = o.sequences(), p.key_sequences = o.pair_sequences();
    p.heads = o.heads();
    p.query_heads = o.heads_of(Slot::q), p.key_heads = o.heads_of(Slot::k);
    p.value_heads = o.has(Slot::v) ? o.heads_of(Slot::v) : p.heads;
    p.key_dim = o.key_dim(), p.value_dim = o.has(Slot::v) ? o.value_dim() : 0;
    p.solve = solve_of(o.step());
    p.scale = static_cast<T>(o.step().scale);
    p.q = o.vectors(Slot::q), p.k = o.vectors(Slot::k), p.v = o.vectors(Slot::v);
    p.beta = o.scalars(Slot::beta), p.ridge = o.per_head_number(Own::ridge);
    p.o = o.output(o.step().result);
    return p;
  }
  static Status forward(const KernelArgs<T>& o, State, Form, Workspace work) noexcept {
    return families::whole::forward(problem(o), simd_of<T>(o.body()), *o.body().simd_f64, work);
  }
  static Status backward(const KernelArgs<T>& o, const Call&, Form, Arena arena) noexcept {
    WholeGradient<T> d;
    d.d_o = o.d_output(o.step().result);
    d.d_q = o.d_vectors(Slot::q), d.d_k = o.d_vectors(Slot::k), d.d_v = o.d_vectors(Slot::v);
    d.d_beta = o.d_scalars(Slot::beta), d.d_ridge = o.d_per_head_number(Own::ridge);
    return families::whole::backward(problem(o), d, simd_of<T>(o.body()), *o.body().simd_f64, arena.rest());
  }
};

}  // namespace

const Family whole_family = {.name = "whole",
                             .forms = blocks_only,
                             .why_absent = list_of_pairs,
                             .claim = claim,
                             .build = build,
                             .stage = solved_queries,
                             .f32 = calls_of<WholeCalls, float>(),
                             .f64 = calls_of<WholeCalls, double>()};

}  // namespace ttr::families
