// The plan of least squares: sums H and F, and a solve per token - a Cholesky factor, or n steps of conjugate gradients,
// Chebyshev or gradient descent from zero (gd). The ridge is per head, key or token, or relative to |H|; the answer may blend the solution with the query.
#include "families/solve/least_squares/least_squares.h"

#include <cmath>
#include <cstring>

#include "families/common/wide.h"
#include "families/solve/solve_plan.h"

namespace ttr::families {
namespace {

struct Own {
  enum : std::size_t { ridge = Slot::own, blend, gate_of_keys, step, count };
};
struct LeastSquaresOptions {
  double tolerance = 0;  // 0: the kernel's own
};

bool claim_descent(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(!design.solver.step.is_input() || !design.weights.beta.is_input());  // two inputs of one name
  rest.s.steps = 1, rest.s.step = {};
  rest.takes(rest.s.rule, {Solver::Rule::automatic});
  rest.takes_fade(), rest.takes_importance(), rest.takes_any_features(), rest.takes_read_norms();
  return causal && rest.is_nothing();
}

bool claim(const Design& design, bool causal) {
  using Kind = Solver::Kind;
  if (design.solver.kind == Kind::gd) return claim_descent(design, causal);
  Claim rest(design);
  rest.needs(rest.has_ridge() || design.solver.kind == Kind::cg);
  rest.needs(rest.s.kind, {Kind::exact, Kind::cg, Kind::chebyshev});
  if (design.solver.kind != Kind::exact) rest.s.steps = 1;
  rest.takes(rest.s.ridge_kind, {Solver::RidgeKind::frobenius});
  rest.needs(!rest.has_wide_features() || rest.s.ridge_per != Solver::RidgePer::key);
  rest.takes(rest.s.ridge_per, {Solver::RidgePer::key, Solver::RidgePer::token});
  rest.takes_ridge();
  rest.x.blend = false;
  rest.takes_fade(), rest.takes_importance(), rest.takes_any_features(), rest.takes_read_norms();
  return causal && rest.is_nothing();
}

int build(Builder& b, double scale) {
  const Solver& s = b.design().solver;
  const bool exact = s.kind == Solver::Kind::exact;
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  const bool by_blocks = exact || s.kind == Solver::Kind::gd;  // all tokens take as many steps: blocks are faster
  Step step = b.kernel(by_blocks ? least_squares_family : stepped_least_squares_family, scale, q, k, v, b.log_fade(),
                       b.importance(), Own::count);
  step.operands[Own::ridge] = b.quantity(s.ridge, "ridge");
  if (s.kind == Solver::Kind::gd) step.operands[Own::step] = b.quantity(s.step, "beta");
  step.set_options(LeastSquaresOptions{b.layer() ? b.layer()->kernel_number : 0});
  if (b.design().extras.blend) step.operands[Own::blend] = b.canonical("blend");
  if (b.layer() && b.produced("gh")) step.operands[Own::gate_of_keys] = b.operand("gh");
  if (exact) add_uncertainty(b, step);
  StatePart h = b.memory_part(k, k, "H", "sum of w k k'"), f = b.memory_part(k, v, "F", "sum of w k v'");
  h.type = f.type = Type::f64;
  return b.add(std::move(step), "BTHV", {h, f});
}

SolveBy solver_of(const Design& design) {
  switch (design.solver.kind) {
    case Solver::Kind::cg:
      return SolveBy::conjugate_gradients;
    case Solver::Kind::chebyshev:
      return SolveBy::chebyshev;
    case Solver::Kind::gd:
      return SolveBy::gradient;
    default:
      return SolveBy::cholesky;
  }
}

template <class T>
struct LeastSquaresCalls : HandsOn<T, least_squares::forward<T>, least_squares::backward<T>> {
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward) {
    const Design& design = body.pipeline.design;
    return least_squares::workspace_bytes(K, V, time, solver_of(design), design.solver.steps, backward, form,
                                          body.chunk);
  }
  static LeastSquaresProblem<T> problem(const KernelArgs<T>& o, State state) {
    const Design& design = o.body().pipeline.design;
    LeastSquaresProblem<T> p;
    p.linear = o.problem(State{});
    p.gh = o.scalars(Own::gate_of_keys);
    p.ridge = o.channels(Own::ridge, p.linear.key_dim);
    p.relative = design.solver.ridge_kind == Solver::RidgeKind::frobenius;
    p.blend = o.scalars(Own::blend);
    p.solver = solver_of(design);
    p.steps = design.solver.steps;
    p.step = o.scalars(Own::step), p.automatic = design.solver.rule == Solver::Rule::automatic;
    if (const double tolerance = o.step().template options<LeastSquaresOptions>().tolerance; tolerance > 0)
      p.tolerance = tolerance;
    p.chunk = o.body().chunk;
    p.h = o.template state<double>(state, 0), p.f = o.template state<double>(state, 1);
    p.variance = numbers_of(o.output(o.step().second_result)), p.known = numbers_of(o.output(o.step().third_result));
    p.outside = o.outside();
    return p;
  }
  static LeastSquaresGradient<T> gradient(const KernelArgs<T>& o, const LinearGradient<T>& d, const Call& call) {
    LeastSquaresGradient<T> all;
    all.linear = d;
    all.linear.d_final = nullptr, all.linear.d_initial = nullptr;
    all.d_variance = numbers_of(o.d_output(o.step().second_result));
    all.d_gh = o.d_scalars(Own::gate_of_keys);
    all.d_ridge = o.d_channels(Own::ridge, o.key_dim());
    all.d_blend = o.d_scalars(Own::blend), all.d_step = o.d_scalars(Own::step);
    all.d_final_h = o.template state<const double>(call.d_final, 0);
    all.d_final_f = o.template state<const double>(call.d_final, 1);
    all.d_initial_h = o.template state<double>(call.d_initial, 0);
    all.d_initial_f = o.template state<double>(call.d_initial, 1);
    return all;
  }
};

// Segments of time: the sums of pairs, faded, are what one says about the next.
template <class T>
struct LeastSquaresSegments {
  using Calls = LeastSquaresCalls<T>;
  static void sum(const KernelArgs<T>& o, State own, bool* outside, Workspace work) noexcept {
    LeastSquaresProblem<T> p = Calls::problem(o, own);
    least_squares::find_outside(p, outside);
    if (!own.data) return;
    std::memset(own.data, 0, own.bytes);
    p.linear.o = {}, p.variance = {}, p.known = {}, p.outside = outside;
    static_cast<void>(least_squares::forward(p, Form::chunk, *o.body().simd_f64, work));
  }
  // to += from, faded by the gates of the segment: of states forwards, of their gradients backwards
  static void fade(const KernelArgs<T>& o, State from, State to) noexcept {
    const LeastSquaresProblem<T> p = Calls::problem(o, from), q = Calls::problem(o, to);
    const std::ptrdiff_t K = p.linear.key_dim, V = p.linear.value_dim;
    const Sequence& n = p.linear.sequences.front();
    for (int h = 0; h < p.linear.heads; ++h) {
      double of_f = 0, of_h = 0;
      for (std::ptrdiff_t t = n.begin; t < n.end; ++t) {
        const double g = number(p.linear.g, n.row, t, h, 0);
        of_f += g, of_h += p.gh ? number(p.gh, n.row, t, h, 0) : g;
      }
      const Simd<double>& s = *o.body().simd_f64;
      s.axpy(K * K, std::exp(of_h), p.h + h * K * K, q.h + h * K * K);
      s.axpy(K * V, std::exp(of_f), p.f + h * K * V, q.f + h * K * V);
    }
  }
  static void join(const KernelArgs<T>& o, State start, State own, Workspace) noexcept { fade(o, start, own); }
  static void back(const KernelArgs<T>& o, const Call& call, Arena arena) noexcept {
    static_cast<void>(LinearCalls<T, Calls>::backward_with(o, call, Form::chunk, arena,
                                                           [](auto& d) { d.linear.d_o = {}, d.d_variance = {}; }));
  }
  // The symmetric part of dH where only that has a meaning, as in the other forms.
  static void d_out(const KernelArgs<T>& o, State, State d, Workspace) noexcept {
    const LeastSquaresProblem<T> p = Calls::problem(o, d);
    for (int h = 0; h < p.linear.heads; ++h)
      least_squares::symmetrize(p.solver, p.linear.key_dim,
                                p.h + std::ptrdiff_t{h} * p.linear.key_dim * p.linear.key_dim);
  }
  static constexpr SegmentCalls<T> calls = {.sum = sum, .join = join, .pass = fade, .back = back, .d_out = d_out};
};

constexpr std::string_view why_no_scan =
    "every token solves its own system; what composes are the sums of segments, and by them the parallel form goes";

}  // namespace

const Family least_squares_family = {
    .name = "least_squares",
    .forms = blocks_only,
    .why_absent =
        "every token solves its own system; what composes are the sums of segments, and by them the parallel form "
        "goes",
    .traits = {.answers_on_demand = true},
    .claim = claim,
    .build = build,
    .f32 = linear_calls_of<LeastSquaresCalls, float>(&LeastSquaresSegments<float>::calls),
    .f64 = linear_calls_of<LeastSquaresCalls, double>(&LeastSquaresSegments<double>::calls)};

// The same kernel where it takes steps instead of a factor: blocks of tokens step together.
const Family stepped_least_squares_family = {
    .name = "least_squares",
    .forms = blocks_only,
    .why_absent = why_no_scan,
    .traits = {.answers_on_demand = true, .best = BestForm::recurrent},
    .f32 = linear_calls_of<LeastSquaresCalls, float>(&LeastSquaresSegments<float>::calls),
    .f64 = linear_calls_of<LeastSquaresCalls, double>(&LeastSquaresSegments<double>::calls)};

}  // namespace ttr::families
