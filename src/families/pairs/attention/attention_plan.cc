// The plan of attention: the weighted mean, or sum, of the values near the query; and sums whose weights are another
// function of q.k.
#include "families/pairs/attention/attention_plan.h"

namespace ttr::families {
namespace {

// One step from zero is a sum of values, whose weights are the pair's times how alike the memory finds key and query:
// q.k of the features, or a kernel. It needs the pairs where a state cannot forget them (a window), and where there is no
// state because the weights or the kernel ask for the query.
bool claim_sum(const Design& design, bool causal) {
  using Class = Memory::Class;
  using Normalise = Extras::Normalise;
  Claim rest(design);
  const bool linear = rest.m.kind == Class::linear, near = rest.w.near == Kernel::exponential;
  const bool keysum = rest.takes(rest.x.normalise, {Normalise::keysum});
  if (keysum) rest.x.normalise_eps = 0;
  rest.takes_read_norms();
  rest.needs(!keysum || (linear && !near && rest.w.importance == Weights::Importance::one));
  if (near) rest.w.near = {}, rest.w.near_scale = 0;
  if (linear) {
    rest.needs(near ? rest.m.feature == Memory::Feature::identity : causal && rest.w.window > 0);
    rest.takes_any_features();
  } else {
    rest.needs(rest.m.kind, {Class::kernel});
    rest.needs(!near || rest.m.kernel != Kernel::gaussian);
    rest.needs(rest.m.kernel != Kernel::polynomial || rest.m.degree <= 2);
    rest.needs(rest.m.kernel, {Kernel::exponential, Kernel::gaussian, Kernel::linear, Kernel::polynomial});
    rest.needs(!rest.m.bandwidth.is_input());
    rest.m.kernel_scale = 0, rest.m.bandwidth = {}, rest.m.degree = Memory{}.degree;
    rest.x.keys = {};
  }
  rest.needs(causal || (!rest.fades() && rest.w.window == 0));
  rest.takes(rest.x.loss, {Extras::Loss::dot});
  rest.takes_fade(), rest.takes_importance(), rest.takes_plain_step();
  rest.w.window = 0;
  return rest.is_nothing();
}

bool claim(const Design& design, bool causal) {
  if (design.memory.kind == Memory::Class::linear || design.memory.kind == Memory::Class::kernel)
    return claim_sum(design, causal);
  Claim rest(design);
  rest.needs(rest.m.kind, {Memory::Class::constant});
  takes_near(rest);
  if (!rest.takes(rest.s.kind, {Solver::Kind::exact})) {
    rest.needs(!rest.w.sink);  // a sum has no denominator
    rest.takes_plain_step();
  }
  rest.needs(causal || (!rest.fades() && rest.w.window == 0));
  rest.takes_fade();
  rest.w.sink = false, rest.w.window = 0;
  return rest.is_nothing();
}

// What the weights of claim_sum are as a function of q.k, and by which keys; a Gaussian has a bandwidth instead.
struct Sum {
  int q, k;
  double bandwidth = 0;
};
Sum sum_of(Builder& b, double scale, AttentionOptions* o) {
  using Feature = Memory::Feature;
  const Memory& m = b.design().memory;
  const double K = b.shape().key_dim, own = b.options().scale.value_or(1 / std::sqrt(K));
  const auto weight = [&](double c0, double c1, double c2, double rate = 0) {
    o->c[0] = c0, o->c[1] = c1, o->c[2] = c2, o->rate = rate;
  };
  const double near = b.design().weights.near == Kernel::exponential ? near_scale(b) : 0;
  o->unnormalised = b.design().extras.normalise != Extras::Normalise::keysum;
  o->eps = b.design().extras.normalise_eps, o->polynomial = true;
  if (m.kind == Memory::Class::kernel) {
    const Sum keys{b.plain_keys("q"), b.plain_keys("k")};
    const double rate = m.kernel_scale != 0 ? m.kernel_scale : own;
    if (m.kernel == Kernel::exponential) weight(1, 0, 0, near + rate);
    else if (m.kernel == Kernel::linear) weight(0, 1, 0, near);
    else if (m.degree == 1) weight(1, 1, 0, near);
    else weight(1, 2, 1, near);
    if (m.kernel != Kernel::gaussian) return keys;
    o->polynomial = false;
    return {keys.q, keys.k, m.bandwidth.is_constant() ? m.bandwidth.value : 2 * std::sqrt(K)};
  }
  if (near != 0) scale = 1;
  // (q.k)^2 is known to more digits than the sum of its products, and is K numbers wide.
  if (m.feature == Feature::taylor2) {
    weight(scale, scale / std::sqrt(K), scale / (2 * K));
    return {b.plain_keys("q"), b.plain_keys("k")};
  }
  if (m.feature == Feature::rebased) {
    weight(0, 0, scale / K);
    return {b.squared_keys("q"), b.squared_keys("k")};
  }
  weight(0, scale, 0, near);
  return {b.keys("q"), b.keys("k")};
}

int build(Builder& b, double scale) {
  using prepare::Op;
  const Design& design = b.design();
  AttentionOptions options{design.solver.kind == Solver::Kind::gd};
  const bool sum = design.memory.kind != Memory::Class::constant;
  Sum x = sum ? sum_of(b, scale, &options) : Sum{b.keys("q"), b.keys("k")};
  int v = b.canonical("v");
  // Linear memories have groups of keys and a value for each head, and an importance belongs to a head.
  const int importance = b.importance();
  options.own = b.axes(v).has('H') || b.axes(x.k).has('H') || (importance >= 0 && b.axes(importance).has('H'));
  if (options.own) x.q = b.per_head(x.q), x.k = b.per_head(x.k), v = b.per_head(v);
  if (importance >= 0) v = b.operation(Op::multiply, {v, importance}, b.axes(v));
  Step step =
      b.kernel(attention_family, sum ? 1 : near_scale(b), x.q, x.k, v, b.log_fade(), -1, AttentionSlots::count);
  step.operands[AttentionSlots::bandwidth] = x.bandwidth > 0 ? b.constant(x.bandwidth) : bandwidth_of_weights(b);
  if (design.weights.sink) step.operands[AttentionSlots::sink] = b.canonical("sink");
  step.set_options(options);
  const bool gates = step.operands[Slot::g] >= 0;
  const int answer = b.add(std::move(step), "BTHV", pairs_kept(b, x.k, v, gates, options.own, true));
  const Quantity& rate = design.solver.step;  // of one step from zero
  if (design.solver.kind != Solver::Kind::gd || !rate.given()) return answer;
  return b.operation(Op::multiply, {answer, b.quantity(rate, "beta")}, "BTHV");
}

}  // namespace

const Family attention_family = {.name = "attention",
                                 .forms = blocks_only,
                                 .why_absent = list_of_pairs,
                                 .traits = keeps_pairs_in_team,
                                 .claim = claim,
                                 .build = build,
                                 .f32 = calls_of<AttentionCalls, float>(),
                                 .f64 = calls_of<AttentionCalls, double>()};

}  // namespace ttr::families
