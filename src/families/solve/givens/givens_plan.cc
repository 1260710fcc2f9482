// The plan of least squares without a ridge (the answer of least norm), with one that fades, or with a constant one where
// nothing fades: a triangle by rotations, in double whatever the plan's type is. Under a fade a constant ridge is not in
// the sums that fade, and least_squares has it; so has it a ridge that is an input, which may change between calls.
#include "families/solve/givens/givens.h"

#include <cmath>

#include "families/solve/solve_plan.h"

namespace ttr::families {
namespace {

struct Own {
  enum : std::size_t { ridge = Slot::own, count };
};

// A ridge that is one number for all tokens and calls, where no pair fades: it is in the triangle from the start.
bool is_regular(const Design& design) {
  const Claim all(design);
  const Solver& s = design.solver;
  return s.ridge.is_constant() && s.ridge.value > 0 && s.ridge_kind == Solver::RidgeKind::absolute && !all.fades();
}

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.s.kind, {Solver::Kind::exact});
  if (is_regular(design)) {
    rest.takes(rest.s.ridge_per, {Solver::RidgePer::key, Solver::RidgePer::token});  // a number is the same for all
  } else if (rest.has_no_ridge()) {  // of what kind does not matter then
    rest.s.ridge_kind = {}, rest.s.ridge_per = {};
  } else {
    rest.needs(rest.s.ridge_kind, {Solver::RidgeKind::fading});
    rest.needs(!rest.has_wide_features() || rest.s.ridge_per != Solver::RidgePer::key);
    rest.takes(rest.s.ridge_per, {Solver::RidgePer::key});
  }
  rest.takes_ridge();
  rest.takes_fade(), rest.takes_importance(), rest.takes_any_features(), rest.takes_read_norms();
  return causal && rest.is_nothing();
}

int build(Builder& b, double scale) {
  const Solver& s = b.design().solver;
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  const bool regular = is_regular(b.design());
  Step step = b.kernel(givens_family, scale, q, k, v, regular ? -1 : b.log_fade(), b.importance(), Own::count);
  const bool none = !s.ridge.given() || (s.ridge.is_constant() && s.ridge.value == 0);
  const bool fading = s.ridge_kind == Solver::RidgeKind::fading && !none;
  if (fading) step.operands[Own::ridge] = b.quantity(s.ridge, "ridge");
  step.set_options(GivensOptions{});
  add_uncertainty(b, step);
  std::vector<StatePart> parts = {
      b.memory_part(k, k, "R", regular ? "triangle, R'R = ridge I + sum of w k k'" : "triangle, R'R = sum of w k k'"),
      b.memory_part(k, v, "Z", "R'Z = sum of w k v'")};
  if (regular) {
    parts[0].identity = true, parts[0].fresh = std::sqrt(s.ridge.value);
  } else {
    parts.push_back(b.vector_part(k, "share", "part of the ridge that is still there"));
    parts.push_back(b.memory_part(k, k, "basis", "orthonormal basis of the keys seen"));
  }
  for (StatePart& part : parts)
    part.type = Type::f64, part.info.range = Range::fresh, part.info.differentiable = regular;
  return b.add(std::move(step), "BTHV", parts);
}

template <class T>
struct GivensCalls : HandsOn<T, givens::forward<T>, givens::backward<T>> {
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form, bool backward) {
    return givens::workspace_bytes(K, V, time, backward, is_regular(body.pipeline.design));
  }
  static GivensProblem<T> problem(const KernelArgs<T>& o, State state) {
    GivensProblem<T> p;
    p.linear = o.problem(State{});
    p.ridge = o.per_head(Own::ridge);
    p.r = o.template state<double>(state, 0), p.z = o.template state<double>(state, 1);
    if (const Design& design = o.body().pipeline.design; is_regular(design)) {
      p.constant = design.solver.ridge.value;
    } else {
      if (o.has(Own::ridge)) p.share = o.template state<double>(state, 2);
      p.basis = o.template state<double>(state, 3);
    }
    p.lost = o.step().template options<GivensOptions>().lost;
    p.variance = numbers_of(o.output(o.step().second_result)), p.known = numbers_of(o.output(o.step().third_result));
    return p;
  }
  static GivensGradient<T> gradient(const KernelArgs<T>& o, const LinearGradient<T>& d, const Call& call) {
    GivensGradient<T> all;
    all.linear = d;
    all.linear.d_final = nullptr, all.linear.d_initial = nullptr;
    all.d_ridge = o.d_per_head(Own::ridge);
    all.d_final_r = o.template state<const double>(call.d_final, 0);
    all.d_final_z = o.template state<const double>(call.d_final, 1);
    all.d_initial_r = o.template state<double>(call.d_initial, 0);
    all.d_initial_z = o.template state<double>(call.d_initial, 1);
    all.d_variance = numbers_of(o.d_output(o.step().second_result));
    return all;
  }
};

}  // namespace

const Family givens_family = {.name = givens_name,
                              .forms = token_by_token,
                              .why_absent =
                                  "rotations go token by token; a block's start from sums would square the condition "
                                  "number. A ridge that is an input, or stands beside a decay, goes by sums",
                              .traits = {.answers_on_demand = true},
                              .claim = claim,
                              .build = build,
                              .f32 = linear_calls_of<GivensCalls, float>(),
                              .f64 = linear_calls_of<GivensCalls, double>()};

}  // namespace ttr::families
