// The plan of least squares with a constant ridge: sums H and F, and a Cholesky factor per token.
#include "families/common/linear_plan.h"
#include "families/solve/least_squares/least_squares.h"

namespace ttr::families {
namespace {

struct Own {
  enum : std::size_t { ridge = Slot::own, count };
};

bool claim(const Design& design, bool causal) {
  Claim rest(design);
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
  Step step = b.kernel(least_squares_family, scale, q, k, v, b.log_fade(), b.importance(), Own::count);
  step.operands[Own::ridge] = b.quantity(b.design().solver.ridge, "ridge");
  StatePart h = b.memory_part(k, k, "H", "sum of w k k'"), f = b.memory_part(k, v, "F", "sum of w k v'");
  h.type = f.type = Type::f64;
  return b.add(std::move(step), "BTHV", {h, f});
}

template <class T>
struct LeastSquaresCalls {
  static std::size_t bytes(const Plan::Body&, int K, int V, std::int64_t time, Form, bool backward) {
    return least_squares::workspace_bytes<T>(K, V, time, backward);
  }
  static LeastSquaresProblem<T> problem(const KernelArgs<T>& o, State state) {
    LeastSquaresProblem<T> p;
    p.linear = o.problem(State{});
    p.ridge = o.per_head(Own::ridge);
    p.h = o.template state<double>(state, 0), p.f = o.template state<double>(state, 1);
    return p;
  }
  static LeastSquaresGradient<T> gradient(const KernelArgs<T>& o, const LinearGradient<T>& d, const Call& call) {
    LeastSquaresGradient<T> all;
    all.linear = d;
    all.linear.d_final = nullptr, all.linear.d_initial = nullptr;
    all.d_ridge = o.d_per_head(Own::ridge);
    all.d_final_h = o.template state<const double>(call.d_final, 0);
    all.d_final_f = o.template state<const double>(call.d_final, 1);
    all.d_initial_h = o.template state<double>(call.d_initial, 0);
    all.d_initial_f = o.template state<double>(call.d_initial, 1);
    return all;
  }
  static Status forward(const KernelArgs<T>& o, const LeastSquaresProblem<T>& p, Form form, Workspace work) noexcept {
    return least_squares::forward(p, form, work, o.body().simd_f64);
  }
  static Status backward(const KernelArgs<T>& o, const LeastSquaresProblem<T>& p, const LeastSquaresGradient<T>& d,
                         Form form, Workspace work) noexcept {
    return least_squares::backward(p, d, form, work, o.body().simd_f64);
  }
};

}  // namespace

const Family least_squares_family = {.name = "least_squares",
                                     .forms = token_by_token,
                                     .why_absent = "every token solves its own system",
                                     .claim = claim,
                                     .build = build,
                                     .f32 = linear_calls_of<LeastSquaresCalls, float>(),
                                     .f64 = linear_calls_of<LeastSquaresCalls, double>()};

}  // namespace ttr::families
