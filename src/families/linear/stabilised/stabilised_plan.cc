// The plan of importances given by their logs: a running maximum of exponents and a normaliser (mLSTM). The scale is on
// the keys: it is in the state as published.
#include "families/common/linear_plan.h"
#include "families/linear/stabilised/stabilised.h"

namespace ttr::families {
namespace {

struct Own {
  enum : std::size_t { input = Slot::own, count };
};
struct StabilisedOptions {
  double eps = 0;  // added to the normaliser
};

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.w.importance, {Weights::Importance::exponential});
  rest.needs(rest.x.normalise, {Extras::Normalise::max_one});
  rest.takes_fade(), rest.takes_any_features();
  return causal && rest.is_nothing();
}

int build(Builder& b, double scale) {
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  Step step = b.kernel(stabilised_family, scale, q, k, v, b.log_fade(), -1, Own::count);
  step.operands[Own::input] = b.canonical("i");
  step.set_options(StabilisedOptions{b.layer() ? b.layer()->kernel_number : 0});
  b.second_result(step, "denom", "BTH");
  return b.add(std::move(step), "BTHV",
               {b.memory_part(k, v, "C", "the memory, relative to exp(m)"),
                b.vector_part(k, "n", "weighted sum of keys, relative to exp(m)"),
                {{"m", "B H", "the exponent C and n are relative to"}, {b.shape().heads}, b.type()}});
}

template <class T>
struct StabilisedCalls : HandsOn<T, stabilised::forward<T>, stabilised::backward<T>> {
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward) {
    return stabilised::workspace_bytes<T>(K, V, time, form, body.options.chunk, backward);
  }
  static StabilisedProblem<T> problem(const KernelArgs<T>& o, State state) {
    StabilisedProblem<T> p;
    p.linear = o.problem(state);
    p.key_scale = p.linear.scale, p.linear.scale = 1;
    p.eps = static_cast<T>(o.step().template options<StabilisedOptions>().eps);
    p.input = o.scalars(Own::input);
    p.normaliser = o.template state<T>(state, 1), p.maximum = o.template state<T>(state, 2);
    p.denom = numbers_of(o.output(o.step().second_result));
    return p;
  }
  static StabilisedGradient<T> gradient(const KernelArgs<T>& o, const LinearGradient<T>& d, const Call& call) {
    StabilisedGradient<T> all;
    all.linear = d;
    all.d_denom = numbers_of(o.d_output(o.step().second_result));
    all.d_input = o.d_scalars(Own::input);
    all.d_final_normaliser = o.template state<const T>(call.d_final, 1);
    all.d_final_maximum = o.template state<const T>(call.d_final, 2);
    all.d_initial_normaliser = o.template state<T>(call.d_initial, 1);
    all.d_initial_maximum = o.template state<T>(call.d_initial, 2);
    return all;
  }
};

}  // namespace

const Family stabilised_family = {
    .name = "stabilised",
    .forms = blocks_only,
    .why_absent = "the running maximum makes the map of a segment depend on what came before; chunks carry it",
    .claim = claim,
    .build = build,
    .f32 = linear_calls_of<StabilisedCalls, float>(),
    .f64 = linear_calls_of<StabilisedCalls, double>(),
    .tuning = [](const Step&) { return std::optional(Tuned("stabilised")); }};

}  // namespace ttr::families
