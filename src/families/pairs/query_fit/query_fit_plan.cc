// The plan of regressions that every query has to itself: linear, local and kernel memories whose weights depend on the
// query or slide, solved exactly, by conjugate gradients or by gradient steps.
#include "families/pairs/pairs_plan.h"
#include "families/pairs/query_fit/query_fit.h"

namespace ttr::families {
namespace {

using Class = Memory::Class;
using Feature = Memory::Feature;

struct Own {
  enum : std::size_t { bandwidth = Slot::own, ridge, step, x_q, x_k, count };
};
struct FitOptions {
  bool own = false;  // every head has keys and values of its own
  FitMemory memory = FitMemory::features;
  FitNear near = FitNear::none;
  double scale = 1, near_scale = 1, kernel_scale = 1, kernel_bandwidth = 1;
  int past_x = -1, past_g = -1, past_beta = -1;  // parts of the state
};

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  const bool near = rest.w.near == Kernel::exponential || rest.w.near == Kernel::gaussian;
  if (near) rest.w.near = {}, rest.w.near_scale = 0, rest.w.bandwidth = {};
  const bool constant = rest.m.kind == Class::constant, local = rest.m.kind == Class::local;
  switch (rest.m.kind) {
    case Class::linear:  // without these a state of fixed size does it
      rest.needs(near || rest.w.window > 0);
      rest.takes_any_features();
      break;
    case Class::local:
    case Class::constant:
      rest.needs(near);
      rest.m.kind = {}, rest.m.order = 0, rest.x.keys = {};
      break;
    default:
      rest.needs(rest.m.kind, {Class::kernel});
      rest.needs(rest.m.kernel, {Kernel::exponential, Kernel::gaussian, Kernel::linear, Kernel::polynomial});
      rest.needs(!rest.m.bandwidth.is_input());
      rest.m.kernel_scale = 0, rest.m.bandwidth = {}, rest.m.degree = Memory{}.degree, rest.x.keys = {};
  }
  rest.takes_fade(), rest.takes_importance(), rest.takes_read_norms();
  rest.w.window = 0;
  const bool exact = rest.s.kind == Solver::Kind::exact;
  if (exact || rest.s.kind == Solver::Kind::cg) {
    rest.needs(!exact || near ||
               design.memory.kind != Class::linear);  // windows of least squares have sums that slide
    // Where weights peak, rounding decides the last of few steps, and any two ways of forming a product differ.
    rest.needs(exact || !near);
    rest.needs(exact ? rest.has_ridge() && !constant : !rest.s.ridge.given() || rest.has_ridge());
    rest.needs(!(exact && local) || design.memory.order > 2);  // the others are fitted around their means
    rest.takes(rest.s.ridge_kind, {Solver::RidgeKind::relative});
    rest.takes(rest.s.ridge_per, {Solver::RidgePer::token});
    rest.takes_ridge();
    rest.s.kind = {};
  } else if (!rest.takes(rest.s.rule, {Solver::Rule::automatic})) {
    rest.takes_plain_step();
  }
  rest.s.steps = 1;
  return causal && rest.is_nothing();
}

int build(Builder& b, double scale) {
  const Design& design = b.design();
  const Memory& m = design.memory;
  const Solver& s = design.solver;
  const bool near = design.weights.near != Kernel::none, linear = m.kind == Class::linear;
  oracle::Sizes sizes;
  sizes.key_dim = b.shape().key_dim;
  oracle::check_features(design, sizes);  // a square matrix of them must fit into memory
  FitOptions options;
  options.memory = m.kind == Class::kernel ? FitMemory::kernel : linear ? FitMemory::features : FitMemory::local;
  options.near = !near                                        ? FitNear::none
                 : design.weights.near == Kernel::exponential ? FitNear::exponential
                                                              : FitNear::gaussian;
  const double K = b.shape().key_dim, own_scale = b.options().scale.value_or(1 / std::sqrt(K));
  options.scale = near || !linear ? 1 : scale, options.near_scale = near_scale(b);
  options.kernel_scale = m.kernel_scale != 0 ? m.kernel_scale : own_scale;
  options.kernel_bandwidth = m.bandwidth.is_constant() ? m.bandwidth.value : 2 * std::sqrt(K);

  // Weights near the query see the keys as they are, the memory sees their features.
  const bool both = near && linear && m.feature != Feature::identity;
  const bool plain = near || !linear;
  int q = plain ? b.plain_keys("q") : b.keys("q"), k = plain ? b.plain_keys("k") : b.keys("k"), v = b.canonical("v");
  int x_q = both ? b.keys("q") : -1, x_k = both ? b.keys("k") : -1;
  options.own = b.axes(v).has('H') || b.axes(k).has('H') || (both && b.axes(x_k).has('H'));
  if (options.own) q = b.per_head(q), k = b.per_head(k), v = b.per_head(v);
  if (options.own && both) x_q = b.per_head(x_q), x_k = b.per_head(x_k);

  Step step = b.kernel(query_fit_family, 1, q, k, v, b.log_fade(), b.importance(), Own::count);
  step.operands[Own::bandwidth] = bandwidth_of_weights(b);
  step.operands[Own::x_q] = x_q, step.operands[Own::x_k] = x_k;
  if (s.ridge.given()) step.operands[Own::ridge] = b.quantity(s.ridge, "ridge");
  if (s.kind == Solver::Kind::gd && s.step.given()) step.operands[Own::step] = b.quantity(s.step, "beta");

  const bool gates = step.operands[Slot::g] >= 0;
  std::vector<StatePart> parts = pairs_kept(b, k, v, gates, options.own);
  const auto keep = [&](StatePart part) {
    part.history = true;
    parts.push_back(std::move(part));
    return static_cast<int>(parts.size()) - 1;
  };
  if (gates) options.past_g = 2;
  const std::ptrdiff_t H = b.shape().heads, G = options.own ? H : b.shape().key_heads;
  if (both)
    options.past_x =
        keep({{"x", std::string(options.own ? "B N H " : "B N G ") + b.axes(x_k).back(), "features of the keys kept"},
              {G, b.width(x_k)},
              b.type()});
  if (step.operands[Slot::beta] >= 0)
    options.past_beta = keep({{"beta", "B N H", "importances of the pairs kept"}, {H}, b.type()});
  step.set_options(options);
  return b.add(std::move(step), "BTHV", parts);
}

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
struct QueryFitCalls {
  // What does not depend on a call.
  static QueryFitProblem<T> settings(const Plan::Body& body, const Step& step) {
    const Design& design = body.pipeline.design;
    const FitOptions& options = step.options<FitOptions>();
    QueryFitProblem<T> p;
    p.heads = body.shape.heads, p.key_heads = options.own ? body.shape.heads : body.shape.key_heads;
    p.key_dim = width(body, step.operands[Slot::k]), p.value_dim = width(body, step.operands[Slot::v]);
    p.features = step.operands[Own::x_k] >= 0 ? width(body, step.operands[Own::x_k]) : 0;
    p.memory = options.memory, p.near = options.near, p.scale = options.scale, p.near_scale = options.near_scale;
    p.order = design.memory.order, p.degree = design.memory.degree, p.kernel = kernel_of(design.memory.kernel);
    p.kernel_scale = options.kernel_scale, p.kernel_bandwidth = options.kernel_bandwidth;
    p.window = design.weights.window;
    p.solve = design.solver.kind == Solver::Kind::exact ? SolveBy::cholesky
              : design.solver.kind == Solver::Kind::cg  ? SolveBy::conjugate_gradients
                                                        : SolveBy::gradient;
    p.steps = design.solver.steps, p.automatic = design.solver.rule == Solver::Rule::automatic;
    p.relative = design.solver.ridge_kind == Solver::RidgeKind::relative;
    return p;
  }
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form, bool backward) {
    return query_fit::workspace_bytes(settings(body, step), time, backward);
  }
  static QueryFitProblem<T> problem(const KernelArgs<T>& o, State state) {
    const FitOptions& options = o.step().template options<FitOptions>();
    QueryFitProblem<T> p = settings(o.body(), o.step());
    fill(p, o, state);
    if (options.own) p.key_heads = p.heads;
    p.bandwidth = o.per_head_number(Own::bandwidth), p.ridge = o.scalars(Own::ridge), p.step = o.scalars(Own::step);
    p.g = o.scalars(Slot::g), p.beta = o.scalars(Slot::beta);
    p.x_q = o.vectors(Own::x_q), p.x_k = o.vectors(Own::x_k);
    fill_past(p, o, state);
    const auto past = [&](int part) { return history<const T>(o, ConstState(state), part); };
    if (options.past_x >= 0) p.past_x = past(options.past_x);
    if (options.past_g >= 0) p.past_g = without_last(past(options.past_g));
    if (options.past_beta >= 0) p.past_beta = without_last(past(options.past_beta));
    return p;
  }
  static Status forward(const KernelArgs<T>& o, State state, Form, Workspace work) noexcept {
    if (o.keep() && !has_room(o, state)) return Status::state_full;
    const FitOptions& options = o.step().template options<FitOptions>();
    const QueryFitProblem<T> p = problem(o, state);
    const Status status = query_fit::forward(p, *o.body().simd_f64, work);
    if ((status != Status::ok && status != Status::out_of_domain) || !o.keep()) return status;
    append(o, state, 0, p.k), append(o, state, 1, p.v);
    if (options.past_x >= 0) append(o, state, options.past_x, p.x_k);
    if (options.past_g >= 0) append(o, state, options.past_g, with_last(p.g));
    if (options.past_beta >= 0) append(o, state, options.past_beta, with_last(p.beta));
    count_up(o, state);
    return status;
  }
  static Status backward(const KernelArgs<T>& o, const Call& call, Form, Arena arena) noexcept {
    const FitOptions& options = o.step().template options<FitOptions>();
    const GateGradient<T> d_g(o, Slot::g, arena), d_beta(o, Slot::beta, arena);
    QueryFitGradient<T> d;
    d.d_o = o.d_output(o.step().result);
    d.d_q = o.d_vectors(Slot::q), d.d_k = o.d_vectors(Slot::k), d.d_v = o.d_vectors(Slot::v);
    d.d_x_q = o.d_vectors(Own::x_q), d.d_x_k = o.d_vectors(Own::x_k);
    d.d_g = d_g.view(), d.d_beta = d_beta.view();
    d.d_ridge = o.d_scalars(Own::ridge), d.d_step = o.d_scalars(Own::step);
    d.d_bandwidth = o.d_per_head_number(Own::bandwidth);
    fill_past_gradient(d, o, call);
    const auto past = [&](int part) { return history<T>(o, call.d_initial, part); };
    if (options.past_x >= 0) d.d_past_x = past(options.past_x);
    if (options.past_g >= 0) d.d_past_g = without_last(past(options.past_g));
    if (options.past_beta >= 0) d.d_past_beta = without_last(past(options.past_beta));
    const Status status = query_fit::backward(problem(o, call.state), d, *o.body().simd_f64, arena.rest());
    from_final(o, call, 0, d.d_k), from_final(o, call, 1, d.d_v);
    if (options.past_x >= 0) from_final(o, call, options.past_x, d.d_x_k);
    if (options.past_g >= 0) from_final(o, call, options.past_g, with_last(d.d_g));
    if (options.past_beta >= 0) from_final(o, call, options.past_beta, with_last(d.d_beta));
    d_g.finish(), d_beta.finish();
    copy_counts(o, call);
    return status;
  }
};

}  // namespace

const Family query_fit_family = {.name = "query_fit",
                                 .forms = blocks_only,
                                 .why_absent = list_of_pairs,
                                 .traits = keeps_pairs,
                                 .claim = claim,
                                 .build = build,
                                 .f32 = calls_of<QueryFitCalls, float>(),
                                 .f64 = calls_of<QueryFitCalls, double>()};

}  // namespace ttr::families
