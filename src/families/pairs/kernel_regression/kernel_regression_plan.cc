// The plan of kernel ridge regression on the pairs kept.
#include "families/pairs/kernel_regression/kernel_regression.h"
#include "families/pairs/pairs_plan.h"

namespace ttr::families {
namespace {

struct Own {
  enum : std::size_t { ridge = Slot::own, count };
};
struct KernelOptions {
  double bandwidth = 0;
  bool keeps_factor = false;  // the state has the factor of the window
};
constexpr std::ptrdiff_t longest_factor = 2048;  // pairs of a window whose factor is kept: 16 MB per head

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.m.kind, {Memory::Class::kernel});
  rest.needs(!rest.m.bandwidth.is_input());
  rest.needs(rest.m.kernel, {Kernel::exponential, Kernel::gaussian, Kernel::linear, Kernel::polynomial});
  rest.m.kernel_scale = 0, rest.m.bandwidth = {}, rest.m.degree = Memory{}.degree;
  rest.needs(rest.s.kind, {Solver::Kind::exact});
  rest.needs(rest.has_ridge());
  rest.takes(rest.s.ridge_per, {Solver::RidgePer::token});
  rest.takes_ridge();
  if (causal) rest.w.window = 0;
  rest.x.keys = {};
  rest.takes_read_norms();
  return rest.is_nothing();
}

int build(Builder& b, double) {
  const Design& design = b.design();
  const Memory& m = design.memory;
  const double root = std::sqrt(static_cast<double>(b.shape().key_dim));
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  Step step =
      b.kernel(kernel_regression_family, m.kernel_scale != 0 ? m.kernel_scale : b.options().scale.value_or(1 / root),
               q, k, v, -1, -1, Own::count);
  step.operands[Own::ridge] = b.quantity(design.solver.ridge, "ridge");
  std::vector<StatePart> parts = pairs_kept(b, k, v, false);
  // With a window the factor has a fixed size and is kept, so that a step costs n^2 and not n^3.
  const std::ptrdiff_t W = design.weights.window;
  KernelOptions options{m.bandwidth.is_constant() ? m.bandwidth.value : 2 * root};
  options.keeps_factor = W > 0 && W <= longest_factor && design.solver.ridge_per != Solver::RidgePer::token;
  step.set_options(options);
  if (options.keeps_factor) {
    const std::ptrdiff_t H = b.shape().heads;
    b.pipeline().letters['F'] = static_cast<int>(W * (W + 1) / 2), b.pipeline().letters['W'] = static_cast<int>(W);
    std::vector<StatePart> kept = {
        {{"factor", "B H F", "rows of the Cholesky factor of the window", Range::fresh, false},
         {H, W * (W + 1) / 2},
         Type::f64},
        {{"solved", "B H W V", "the values behind the factor", Range::fresh, false}, {H, W, b.width(v)}, Type::f64},
        {{"factored", "B", "pairs in the factor", Range::fresh, false}, {}, Type::f64}};
    parts.insert(parts.end(), kept.begin(), kept.end());
  }
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
struct KernelRegressionCalls {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form, bool backward) {
    Arena arena;
    arena.take<std::int64_t>(body.shape.batch);
    return arena.bytes() + kernel_regression::workspace_bytes(body.shape.heads, body.shape.key_heads,
                                                              width(body, step.operands[Slot::k]),
                                                              width(body, step.operands[Slot::v]), time, false,
                                                              backward, body.pipeline.design.weights.window);
  }
  static KernelRegressionProblem<T> problem(const KernelArgs<T>& o, State state) {
    const Memory& memory = o.body().pipeline.design.memory;
    KernelRegressionProblem<T> p;
    fill(p, o, state);
    p.causal = o.body().options.causal;
    p.window = o.body().pipeline.design.weights.window;
    p.kernel = kernel_of(memory.kernel);
    p.scale = o.step().scale, p.bandwidth = o.step().template options<KernelOptions>().bandwidth,
    p.degree = memory.degree;
    p.ridge = o.scalars(Own::ridge);
    fill_past(p, o, state);
    return p;
  }
  static Status forward(const KernelArgs<T>& o, State state, Form, Workspace work) noexcept {
    if (o.body().pipeline.noncausal)
      return each_whole(o, problem(o, state), no_gradient, [&](const KernelRegressionProblem<T>& p) {
        return kernel_regression::forward(p, *o.body().simd_f64, work);
      });
    if (o.keep() && !has_room(o, state)) return Status::state_full;
    KernelRegressionProblem<T> p = problem(o, state);
    double* const kept = o.step().template options<KernelOptions>().keeps_factor && o.keep()
                             ? o.template state<double>(state, 4)
                             : nullptr;
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
  static Status backward(const KernelArgs<T>& o, const Call& call, Form, Arena arena) noexcept {
    KernelRegressionGradient<T> d;
    d.d_o = o.d_output(o.step().result);
    d.d_q = o.d_vectors(Slot::q), d.d_k = o.d_vectors(Slot::k), d.d_v = o.d_vectors(Slot::v);
    d.d_ridge = o.d_scalars(Own::ridge);
    if (o.body().pipeline.noncausal)
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

const Family kernel_regression_family = {.name = "kernel_regression",
                                         .forms = blocks_only,
                                         .why_absent = list_of_pairs,
                                         .traits = keeps_pairs,
                                         .claim = claim,
                                         .build = build,
                                         .f32 = calls_of<KernelRegressionCalls, float>(),
                                         .f64 = calls_of<KernelRegressionCalls, double>()};

}  // namespace ttr::families
