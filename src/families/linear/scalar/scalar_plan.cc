// Plans of the families with one gate per token and head: sums (decay) and steps (delta).
#include "families/linear/scalar/scalar_plan.h"

#include "families/linear/scalar/decay.h"
#include "families/linear/scalar/delta.h"
#include "families/linear/scalar/rule.h"

namespace ttr::families {

using prepare::Op;

bool claims_sums(Claim& rest, const Design& design) {
  using Normalise = Extras::Normalise;
  if (rest.takes(rest.s.kind, {Solver::Kind::sgd})) {
    rest.needs(rest.x.loss, {Extras::Loss::dot});
    ignores_fade(rest);
    rest.takes_plain_step(), rest.takes_decay_before(), rest.takes_read_norms();
    return rest.is_nothing();
  }
  rest.takes(rest.x.loss, {Extras::Loss::dot});
  if (design.weights.per == Weights::Per::token) rest.w.signed_factors = false;
  rest.takes_fade(), rest.takes_importance();
  if (rest.s.step.is_constant()) rest.takes_plain_step();
  if (rest.takes(rest.x.normalise, {Normalise::keysum})) rest.x.normalise_eps = 0;
  else rest.takes(rest.s.rule, {Solver::Rule::automatic});
  rest.takes_read_norms();
  return rest.is_nothing();
}

int build_sums(Builder& b, double scale, const Family& family, int q, int k, MemoryPart part) {
  const Design& design = b.design();
  int v = b.canonical("v");
  if (design.weights.signed_factors) {
    const int sign = b.running_sign(b.canonical("a"), "flip", "a");
    v = b.with_sign(v, sign);
    const StatePart memory = part(b, k, v, "S", "the memory, times -1 where flip is 1");
    Step step = b.kernel(family, scale, q, k, v, b.log_fade(), b.scaled_importance());
    return b.with_sign(b.add(std::move(step), "BTHV", {memory}), sign);
  }
  const StatePart memory = part(b, k, v, "S", "the memory");
  if (design.solver.kind == Solver::Kind::sgd) {
    const int beta = b.quantity(design.solver.step, "beta");
    return b.add(b.kernel(family, scale, q, k, v, b.decay_before(), beta), "BTHV", {memory});
  }
  const int beta = b.scaled_importance(), g = b.log_fade();
  const int answer = b.add(b.kernel(family, scale, q, k, v, g, beta), "BTHV", {memory});
  if (design.extras.normalise == Extras::Normalise::keysum) {
    // The sum of the keys is a memory of its own, whose values are all one.
    const int one = b.constant(1);
    StatePart sum = part(b, k, one, "z", "sum of w k");
    sum.info.range = Range::positive;
    // The weights alone: the step is a factor of the answer.
    int total = b.add(b.kernel(family, scale, q, k, one, g, b.importance()), "BTH1", {std::move(sum)});
    if (const double eps = design.extras.normalise_eps; eps != 0)
      total = b.operation(Op::add, {total, b.constant(eps)}, "BTH1");
    return b.operation(Op::divide, {answer, total}, "BTHV");
  }
  if (design.solver.rule != Solver::Rule::automatic) return answer;
  // The step 1/sum w |k|^2 is a decayed sum of its own: the same kernel with one-dimensional keys and values.
  const int energy = b.operation(Op::square_norm, {k}, "BTH1");
  const int one = b.constant(1);
  StatePart sum = b.memory_part(one, one, "n", "sum of w |k|^2");
  sum.info.range = Range::positive;
  const int total = b.add(b.kernel(decay_family, 1, one, one, energy, g, beta), "BTH1", {std::move(sum)});
  return b.operation(Op::divide, {answer, total}, "BTHV");
}

namespace {

// ---------------------------------------------------------------------------------------------------------- decay

bool claim_decay(const Design& design, bool causal) {
  Claim rest(design);
  rest.takes_any_features();
  return causal && claims_sums(rest, design);
}

StatePart matrix_of(const Builder& b, int k, int v, std::string name, std::string meaning) {
  return b.memory_part(k, v, std::move(name), std::move(meaning));
}

int build_decay(Builder& b, double scale) {
  return build_sums(b, scale, decay_family, b.keys("q"), b.keys("k"), matrix_of);
}

template <class T>
struct DecayCalls : HandsOn<T, decay::forward<T>, decay::backward<T>> {
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward,
                           int workers) {
    return decay::workspace_bytes<T>(K, V, time, form, body.options.chunk, backward, workers);
  }
  /// Nothing where sweeps go back; the few heads whose gates close are replayed.
  static SavedChunks saved(const Plan::Body& body, const Step& step, int K, int V, std::int64_t tokens, Form form) {
    const bool swept = step.operands[Slot::g] >= 0 && !body.pipeline.design.weights.signed_factors &&
                       has_swept_gradient(K, V, vector_bytes_of<T>(body), sizeof(T));
    if (swept) return {};
    return decay::saved_chunks<T>(K, V, tokens, form, body.options.chunk, vector_bytes_of<T>(body));
  }
  static constexpr unsigned clears = 1u << Slot::q | 1u << Slot::k | 1u << Slot::v;
  static constexpr unsigned halves = clears;
  static constexpr bool only_places = true;
  static LinearProblem<T> problem(const KernelArgs<T>& o, State state) {
    LinearProblem<T> p = o.problem(state);
    p.of_factors = o.body().pipeline.design.weights.signed_factors;
    return p;
  }
  static LinearGradient<T> gradient(const KernelArgs<T>&, const LinearGradient<T>& d, const Call&) { return d; }
};

// ---------------------------------------------------------------------------------------------------------- delta
// One step on the newest pair: S = a (I - beta k k') S + beta k v', or with the residual of the undecayed state.

struct DeltaOptions {
  Residual residual = Residual::decayed;
};

bool claim_delta(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.s.kind, {Solver::Kind::sgd});
  ignores_fade(rest);
  // The kernel has the log of the factor 1 - step lam: it must not be negative. A step that is an input is below 1.
  const Solver& s = design.solver;
  const double step = s.step.is_constant() && s.rule == Solver::Rule::plain ? std::max(1.0, s.step.value) : 1;
  rest.needs(s.decay_kind != Solver::Decay::leak || !s.decay.is_constant() || s.decay.value * step <= 1);
  rest.takes_any_features(), rest.takes_read_norms(), rest.takes_step_rule(), rest.takes_decay_before();
  if (rest.s.steps > 1) rest.s.steps = 1;  // together one step; a leak acts on each of them
  else if (rest.s.pairs > 1) rest.s.pairs = 1;
  else if (rest.takes(rest.s.decay_kind, {Solver::Decay::leak, Solver::Decay::shrink})) rest.s.decay = {};
  return causal && rest.is_nothing();
}

// n pairs per token are n tokens: the decay acts before the first of them, the query reads after the last.
int build_product(Builder& b, int n, int q, int k, int v, int g, int beta, double scale) {
  const int spread_q = b.operation(Op::spread_last, {q}, b.axes(q).replaced('T', 'P'), n);
  const int spread_g = g < 0 ? -1 : b.operation(Op::spread_first, {g}, "BPH", n);
  Step step = b.kernel(delta_family, scale, spread_q, k, v, spread_g, beta);
  step.set_options(DeltaOptions{});
  step.pairs = n;
  return b.operation(Op::take_last, {b.add(std::move(step), "BPHV", {b.memory_part(k, v)})}, "BTHV", n);
}

int build_delta(Builder& b, double scale) {
  const Solver& s = b.design().solver;
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  const int beta = b.step_size(k);
  int g = -1;
  DeltaOptions options{Residual::undecayed};
  if (s.decay_kind == Solver::Decay::leak) {
    const int lam = b.quantity(s.decay, "lam");
    g = b.operation(Op::leak_gate, {beta < 0 ? b.constant(1) : beta, lam}, "BTH");
  } else if (s.decay_kind == Solver::Decay::shrink) {
    g = b.operation(Op::shrink_gate, {b.quantity(s.decay, "lam")}, "BTH");
  } else {
    g = b.decay_before(), options.residual = Residual::decayed;
  }
  if (s.pairs > 1) return build_product(b, s.pairs, q, k, v, g, beta, scale);
  Step step = b.kernel(delta_family, scale, q, k, v, g, beta);
  step.set_options(options);
  return b.add(std::move(step), "BTHV", {b.memory_part(k, v)});
}

template <class T>
struct DeltaCalls {
  static Residual residual(const KernelArgs<T>& o) { return o.step().template options<DeltaOptions>().residual; }
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward,
                           int workers) {
    return delta::workspace_bytes<T>(K, V, time, form, body.options.chunk, backward, workers);
  }
  static SavedChunks saved(const Plan::Body& body, const Step&, int K, int V, std::int64_t tokens, Form form) {
    return delta::saved_chunks<T>(K, V, tokens, form, body.options.chunk, vector_bytes_of<T>(body));
  }
  static constexpr unsigned clears = 1u << Slot::q | 1u << Slot::k | 1u << Slot::v;
  static constexpr unsigned halves = clears;
  static constexpr bool only_places = true;
  static LinearProblem<T> problem(const KernelArgs<T>& o, State state) { return o.problem(state); }
  static LinearGradient<T> gradient(const KernelArgs<T>&, const LinearGradient<T>& d, const Call&) { return d; }
  static Status forward(const KernelArgs<T>& o, const LinearProblem<T>& p, Form form, Workspace work) noexcept {
    return delta::forward(p, residual(o), form, o.body().options.chunk, simd_of<T>(o.body()), work);
  }
  static Status backward(const KernelArgs<T>& o, const LinearProblem<T>& p, const LinearGradient<T>& d, Form form,
                         Workspace work) noexcept {
    return delta::backward(p, d, residual(o), form, o.body().options.chunk, simd_of<T>(o.body()), work);
  }
};

}  // namespace

const Family decay_family = {
    .name = "decay",
    .forms = all_forms,
    .traits = {.splits_columns = true, .adds_skip = true, .team = {.forward = scan_only, .backward = chunk_and_scan}},
    .claim = claim_decay,
    .build = build_decay,
    .f32 = linear_calls_of<DecayCalls, float>(),
    .f64 = linear_calls_of<DecayCalls, double>(),
    .tuning = [](const Step&) { return std::optional(Tuned("decay")); }};

const Family delta_family = {
    .name = "delta",
    .forms = all_forms,
    .traits = {.splits_columns = true, .team = {.forward = scan_only, .backward = chunk_and_scan}},
    .claim = claim_delta,
    .build = build_delta,
    .f32 = linear_calls_of<DeltaCalls, float>(),
    .f64 = linear_calls_of<DeltaCalls, double>(),
    .tuning = [](const Step&) { return std::optional(Tuned("delta")); }};

}  // namespace ttr::families
