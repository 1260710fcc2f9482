// The plan of steps with momentum: S = e^g S + gain Z, Z = momentum Z + step k (v - R'k)'.
#include <cmath>

#include "families/common/linear_plan.h"
#include "families/linear/momentum/momentum.h"

namespace ttr::families {
namespace {

struct Own {
  enum : std::size_t { log_momentum = Slot::own, step, read, count };
};
struct MomentumOptions {
  Residual residual = Residual::decayed;
};

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.s.kind, {Solver::Kind::sgd});
  rest.needs(rest.s.momentum.is_input() || (rest.s.momentum.is_constant() && rest.s.momentum.value > 0));
  rest.needs(!rest.s.feedback || !rest.has_wide_features());
  rest.s.momentum = rest.s.gain = {};
  rest.s.feedback = false;
  ignores_fade(rest);
  rest.takes_any_features(), rest.takes_read_norms(), rest.takes_step_rule(), rest.takes_decay_before();
  return causal && rest.is_nothing();
}

int build(Builder& b, double scale) {
  const Solver& s = b.design().solver;
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  Step step = b.kernel(momentum_family, scale, q, k, v, b.decay_before(), b.quantity(s.gain, "gain"), Own::count);
  step.operands[Own::step] = b.step_size(k);
  step.operands[Own::log_momentum] = s.momentum.is_constant()
                                         ? b.constant(std::log(s.momentum.value))
                                         : b.operation(prepare::Op::log, {b.canonical("momentum")}, "BTH");
  if (s.feedback) step.operands[Own::read] = b.keys("p");
  step.set_options(MomentumOptions{s.feedback ? Residual::undecayed : Residual::decayed});
  return b.add(std::move(step), "BTHV", {b.memory_part(k, v), b.memory_part(k, v, "Z", "the last update")});
}

template <class T>
struct MomentumCalls : HandsOn<T, momentum::forward<T>, momentum::backward<T>> {
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward,
                           int workers) {
    return momentum::workspace_bytes<T>(K, V, time, form, body.options.chunk, backward, workers);
  }
  static constexpr bool only_places = true;
  static MomentumProblem<T> problem(const KernelArgs<T>& o, State state) {
    MomentumProblem<T> p;
    p.linear = o.problem(state);
    p.residual = o.step().template options<MomentumOptions>().residual;
    p.p = o.vectors(Own::read), p.g_mu = o.scalars(Own::log_momentum), p.eta = o.scalars(Own::step);
    p.momentum = o.template state<T>(state, 1);
    return p;
  }
  static MomentumGradient<T> gradient(const KernelArgs<T>& o, const LinearGradient<T>& d, const Call& call) {
    MomentumGradient<T> all;
    all.linear = d;
    all.d_p = o.d_vectors(Own::read);
    all.d_g_mu = o.d_scalars(Own::log_momentum), all.d_eta = o.d_scalars(Own::step);
    all.d_final_momentum = o.template state<const T>(call.d_final, 1);
    all.d_initial_momentum = o.template state<T>(call.d_initial, 1);
    return all;
  }
};

}  // namespace

const Family momentum_family = {.name = "momentum",
                                .forms = all_forms,
                                .traits = {.splits_columns = true, .team = {.forward = scan_only}},
                                .claim = claim,
                                .build = build,
                                .f32 = linear_calls_of<MomentumCalls, float>(),
                                .f64 = linear_calls_of<MomentumCalls, double>(),
                                .tuning = [](const Step&) { return std::optional(Tuned("momentum")); }};

}  // namespace ttr::families
