// The plan of Oja's rule: a map from values to keys, S = S diag(e^gv) + beta (k - S v) v'.
#include "families/common/linear_plan.h"
#include "families/linear/oja/oja.h"

namespace ttr::families {
namespace {

using Per = Weights::Per;

struct Own {
  enum : std::size_t { gv = Slot::own, count };
};

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.s.kind, {Solver::Kind::sgd});
  rest.needs(rest.m.reverse);
  rest.m.reverse = false;
  ignores_fade(rest);
  rest.takes_narrow_features(), rest.takes_read_norms(), rest.takes_plain_step();
  rest.takes_decay_before();
  rest.takes(rest.s.decay_per, {Per::value});
  return causal && rest.is_nothing();
}

int build(Builder& b, double scale) {
  const Solver& s = b.design().solver;
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  Step step = b.kernel(oja_family, scale, q, k, v, -1, b.quantity(s.step, "beta"), Own::count);
  step.operands[Own::gv] = s.decay_per == Per::value && s.decay.is_input() ? b.canonical("gv") : b.decay_before();
  return b.add(std::move(step), "BTHV", {b.memory_part(k, v)});
}

template <class T>
struct OjaCalls : HandsOn<T, oja::forward<T>, oja::backward<T>> {
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward,
                           int workers) {
    return oja::workspace_bytes<T>(K, V, time, form, body.options.chunk, backward, workers);
  }
  static OjaProblem<T> problem(const KernelArgs<T>& o, State state) {
    OjaProblem<T> p;
    p.linear = o.problem(state);
    p.gv = o.channels(Own::gv, p.linear.value_dim);
    return p;
  }
  static OjaGradient<T> gradient(const KernelArgs<T>& o, const LinearGradient<T>& d, const Call&) {
    OjaGradient<T> all;
    all.linear = d;
    all.d_gv = o.d_channels(Own::gv, o.value_dim());
    return all;
  }
};

}  // namespace

const Family oja_family = {.name = "oja",
                           .forms = all_forms,
                           .traits = {.team = {.forward = scan_only, .backward = scan_only}},
                           .claim = claim,
                           .build = build,
                           .f32 = linear_calls_of<OjaCalls, float>(),
                           .f64 = linear_calls_of<OjaCalls, double>(),
                           .tuning = [](const Step&) { return std::optional(Tuned("oja")); }};

}  // namespace ttr::families
