// The plan of least squares over a window: a ring of pairs, and sums that are down-dated.
#include "families/solve/solve_plan.h"
#include "families/solve/window/window.h"

namespace ttr::families {
namespace {

struct Own {
  enum : std::size_t { ridge = Slot::own, count };
};

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.w.window > 0);
  rest.w.window = 0;
  rest.needs(rest.s.kind, {Solver::Kind::exact});
  rest.needs(rest.has_ridge());
  rest.needs(!rest.has_wide_features() || rest.s.ridge_per != Solver::RidgePer::key);
  rest.takes(rest.s.ridge_per, {Solver::RidgePer::key});
  rest.takes_ridge();
  rest.takes_fade(), rest.takes_importance(), rest.takes_any_features(), rest.takes_read_norms();
  return causal && rest.is_nothing();
}

int build(Builder& b, double scale) {
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  Step step = b.kernel(window_family, scale, q, k, v, b.log_fade(), b.importance(), Own::count);
  step.operands[Own::ridge] = b.quantity(b.design().solver.ridge, "ridge");
  add_uncertainty(b, step);
  b.pipeline().counted = true;
  const std::ptrdiff_t W = b.design().weights.window, H = b.shape().heads;
  b.pipeline().letters['W'] = static_cast<int>(W);
  const bool grouped = b.axes(k).has('G');
  const std::string letter(1, b.axes(k).back());
  std::vector<StatePart> parts = {
      {{"k", (grouped ? "B W G " : "B W H ") + letter, "keys, token n in slot n mod W"},
       {W, grouped ? b.shape().key_heads : H, b.width(k)},
       b.type()},
      {{"v", "B W H V", "values"}, {W, H, b.shape().value_dim}, b.type()},
      {{"gate", "B W H", "log gates"}, {W, H}, b.type()},
      {{"weight", "B W H", "importances"}, {W, H}, b.type()},
      b.memory_part(k, k, "H", "sum of w k k'"),
      b.memory_part(k, v, "F", "sum of w k v'"),
      {{"peak", "B H " + letter, "largest diagonal of H since it was made afresh"}, {H, b.width(k)}, b.type()}};
  for (std::size_t i = 4; i < parts.size(); ++i) parts[i].type = Type::f64;
  for (StatePart& part : parts) part.info.range = Range::fresh, part.info.differentiable = false;
  return b.add(std::move(step), "BTHV", parts);
}

template <class T>
struct WindowCalls : HandsOn<T, window::forward<T>, window::backward<T>> {
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form, bool backward) {
    return window::workspace_bytes(K, V, body.pipeline.design.weights.window, time, backward);
  }
  static WindowProblem<T> problem(const KernelArgs<T>& o, State state) {
    WindowProblem<T> p;
    p.linear = o.problem(State{});
    p.ridge = o.per_head(Own::ridge);
    p.window = o.body().pipeline.design.weights.window;
    p.keys = o.template state<T>(state, 0), p.values = o.template state<T>(state, 1);
    if (o.has(Slot::g)) p.gates = o.template state<T>(state, 2);
    if (o.has(Slot::beta)) p.weights = o.template state<T>(state, 3);
    p.count = o.counts(state);
    p.h = o.template state<double>(state, 4), p.f = o.template state<double>(state, 5);
    p.peak = o.template state<double>(state, 6);
    p.variance = numbers_of(o.output(o.step().second_result));
    p.known = numbers_of(o.output(o.step().third_result));
    return p;
  }
  static WindowGradient<T> gradient(const KernelArgs<T>& o, const LinearGradient<T>& d, const Call& call) {
    WindowGradient<T> all;
    all.linear = d;
    all.linear.d_final = nullptr, all.linear.d_initial = nullptr;
    all.d_variance = numbers_of(o.d_output(o.step().second_result));
    all.d_ridge = o.d_per_head(Own::ridge);
    all.d_final_keys = o.template state<const T>(call.d_final, 0);
    all.d_final_values = o.template state<const T>(call.d_final, 1);
    all.d_initial_keys = o.template state<T>(call.d_initial, 0);
    all.d_initial_values = o.template state<T>(call.d_initial, 1);
    if (o.has(Slot::g)) {
      all.d_final_gates = o.template state<const T>(call.d_final, 2);
      all.d_initial_gates = o.template state<T>(call.d_initial, 2);
    }
    if (o.has(Slot::beta)) {
      all.d_final_weights = o.template state<const T>(call.d_final, 3);
      all.d_initial_weights = o.template state<T>(call.d_initial, 3);
    }
    all.d_final_h = o.template state<const double>(call.d_final, 4);
    all.d_final_f = o.template state<const double>(call.d_final, 5);
    all.d_initial_h = o.template state<double>(call.d_initial, 4);
    all.d_initial_f = o.template state<double>(call.d_initial, 5);
    return all;
  }
};

}  // namespace

const Family window_family = {.name = "window",
                              .forms = token_by_token,
                              .why_absent = "every token solves its own system",
                              .traits = {.answers_on_demand = true},
                              .claim = claim,
                              .build = build,
                              .f32 = linear_calls_of<WindowCalls, float>(),
                              .f64 = linear_calls_of<WindowCalls, double>()};

}  // namespace ttr::families
