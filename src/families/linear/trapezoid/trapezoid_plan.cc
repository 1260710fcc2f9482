// The trapezoid of Mamba-3: S = e^g S + (1 - lam) dt e^g k_{t-1} v_{t-1}' + lam dt k v', lam = sigmoid(trap). Two pairs
// per token, the older one first, on the kernel of decay. No kernel of its own.
#include "families/common/linear_plan.h"
#include "families/elementwise/carry/carry.h"

namespace ttr::families {
namespace {

using prepare::Op;

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.w.importance, {Weights::Importance::trapezoid});
  rest.takes_fade(), rest.takes_any_features(), rest.takes_read_norms();
  return causal && rest.is_nothing();
}

int build(Builder& b, double scale) {
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  const int g = b.log_fade(), trap = b.canonical("trap"), dt = b.canonical("dt");
  const int own = b.operation(Op::multiply, {b.operation(Op::sigmoid, {trap}, "BTH"), dt}, "BTH");
  const int opposite = b.operation(Op::sigmoid, {b.operation(Op::scale, {trap}, "BTH", -1)}, "BTH");
  int late = b.operation(Op::multiply, {opposite, dt}, "BTH");
  if (g >= 0) late = b.operation(Op::multiply, {late, b.operation(Op::exp, {g}, "BTH")}, "BTH");
  b.pipeline().pairs = 2;
  const auto in_pairs = [&](int value) { return b.axes(value).replaced('T', 'P'); };
  const auto last = [&](int value, const char* name, const char* meaning) {
    const std::string heads(1, b.axes(value)[2]), letter(1, b.axes(value).back());
    const zoo::Stage delay{.family = &carry_family,
                           .option = static_cast<int>(Carry::delay),
                           .state = {name, "B " + heads + " " + letter, meaning}};
    return carry_family.stage(b, delay, {value}, b.axes(value));
  };
  const int keys = b.operation(Op::interleave, {last(k, "k", "key of the last token"), k}, in_pairs(k));
  const int values = b.operation(Op::interleave, {last(v, "v", "value of the last token"), v}, in_pairs(v));
  const int weights = b.operation(Op::interleave, {late, own}, "BPH");
  const int spread_q = b.operation(Op::spread_last, {q}, in_pairs(q), 2);
  const int spread_g = g < 0 ? -1 : b.operation(Op::spread_first, {g}, "BPH", 2);
  Step step = b.kernel(decay_family, scale, spread_q, keys, values, spread_g, weights);
  step.pairs = 2;
  return b.operation(Op::take_last, {b.add(std::move(step), "BPHV", {b.memory_part(k, v)})}, "BTHV", 2);
}

}  // namespace

const Family trapezoid_family = {.name = "trapezoid", .forms = all_forms, .claim = claim, .build = build};

}  // namespace ttr::families
