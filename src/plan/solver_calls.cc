// Families that solve a least-squares problem for every token; their states are double whatever the plan's type is.
#include "families/solve/givens/givens.h"
#include "families/solve/iterative/iterative.h"
#include "families/solve/kalman/kalman.h"
#include "families/solve/window/window.h"
#include "plan/calls.h"

namespace ttr {
namespace {

// [B, T, H] of the second output of a step
template <class N>
View<N, 3> numbers_of(const View<N, 4>& v) {
  return {v.data, {v.extent[0], v.extent[1], v.extent[2]}, {v.stride[0], v.stride[1], v.stride[2]}};
}

template <class T>
struct GivensFamily {
  static std::size_t bytes(const Plan::Body&, int K, int V, std::int64_t time, Form, bool backward) {
    return givens::workspace_bytes<double>(K, V, time, true, backward);
  }
  static GivensProblem<T, double> problem(const Operands<T>& o, State state) {
    GivensProblem<T, double> p;
    p.linear = o.problem(State{});
    p.kind = o.has(Role::ridge) ? RidgeKind::fading : RidgeKind::none;
    p.ridge = o.per_head(Role::ridge);
    p.r = o.template state<double>(state, 0), p.z = o.template state<double>(state, 1);
    if (o.has(Role::ridge)) p.share = o.template state<double>(state, 2);
    p.basis = o.template state<double>(state, 3);
    return p;
  }
  static GivensGradient<T> gradient(const Operands<T>& o, const LinearGradient<T>& d, const Call&) {
    GivensGradient<T> all;
    all.linear = d;
    all.linear.d_final = nullptr, all.linear.d_initial = nullptr;
    all.d_ridge = o.d_per_head(Role::ridge);
    return all;
  }
  static Status forward(const Operands<T>& o, const GivensProblem<T, double>& p, Form form, Workspace work) noexcept {
    return givens::forward(p, form, *o.body().simd_f64, work);
  }
  static Status backward(const Operands<T>& o, const GivensProblem<T, double>& p, const GivensGradient<T>& d,
                         Form form, Workspace work) noexcept {
    return givens::backward(p, d, form, *o.body().simd_f64, *o.body().simd_f64, work);
  }
};

SolveBy solver_of(const Design& design) {
  switch (design.solver.kind) {
    case Solver::Kind::cg:
      return SolveBy::conjugate_gradients;
    case Solver::Kind::chebyshev:
      return SolveBy::chebyshev;
    default:
      return SolveBy::cholesky;
  }
}

template <class T>
struct IterativeFamily {
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward) {
    const Design& design = body.pipeline.design;
    return iterative::workspace_bytes(K, V, time, solver_of(design), design.solver.steps, backward, form, body.chunk);
  }
  static IterativeProblem<T> problem(const Operands<T>& o, State state) {
    const Design& design = o.body().pipeline.design;
    IterativeProblem<T> p;
    p.linear = o.problem(State{});
    p.gh = o.scalars(Role::g_mu);
    p.ridge = o.channels(Role::ridge, p.linear.key_dim);
    p.relative = design.solver.ridge_kind == Solver::RidgeKind::frobenius;
    p.blend = o.scalars(Role::blend);
    p.solver = solver_of(design);
    p.steps = design.solver.steps;
    if (o.step().number > 0) p.tolerance = o.step().number;
    p.chunk = o.body().chunk;
    p.h = o.template state<double>(state, 0), p.f = o.template state<double>(state, 1);
    return p;
  }
  static IterativeGradient<T> gradient(const Operands<T>& o, const LinearGradient<T>& d, const Call& call) {
    IterativeGradient<T> all;
    all.linear = d;
    all.linear.d_final = nullptr, all.linear.d_initial = nullptr;
    all.d_gh = o.d_scalars(Role::g_mu);
    all.d_ridge = o.d_channels(Role::ridge, o.key_dim());
    all.d_blend = o.d_scalars(Role::blend);
    all.d_final_h = o.template state<const double>(call.d_final, 0);
    all.d_final_f = o.template state<const double>(call.d_final, 1);
    all.d_initial_h = o.template state<double>(call.d_initial, 0);
    all.d_initial_f = o.template state<double>(call.d_initial, 1);
    return all;
  }
  static Status forward(const Operands<T>& o, const IterativeProblem<T>& p, Form form, Workspace work) noexcept {
    return iterative::forward(p, form, *o.body().simd_f64, work);
  }
  static Status backward(const Operands<T>& o, const IterativeProblem<T>& p, const IterativeGradient<T>& d, Form form,
                         Workspace work) noexcept {
    return iterative::backward(p, d, form, *o.body().simd_f64, work);
  }
};

template <class T>
struct KalmanFamily {
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward) {
    return kalman::workspace_bytes(K, V, time, backward, form, body.chunk);
  }
  static KalmanProblem<T> problem(const Operands<T>& o, State state) {
    KalmanProblem<T> p;
    p.linear = o.problem(State{});
    p.process = o.scalars(Role::process), p.noise = o.scalars(Role::noise);
    p.chunk = o.body().chunk;
    p.s = o.template state<double>(state, 0), p.p = o.template state<double>(state, 1);
    p.variance = numbers_of(o.output(o.step().also));
    return p;
  }
  static KalmanGradient<T> gradient(const Operands<T>& o, const LinearGradient<T>& d, const Call& call) {
    KalmanGradient<T> all;
    all.linear = d;
    all.linear.d_final = nullptr, all.linear.d_initial = nullptr;
    all.d_variance = numbers_of(o.d_output(o.step().also));
    all.d_process = o.d_scalars(Role::process), all.d_noise = o.d_scalars(Role::noise);
    all.d_final_s = o.template state<const double>(call.d_final, 0);
    all.d_final_p = o.template state<const double>(call.d_final, 1);
    all.d_initial_s = o.template state<double>(call.d_initial, 0);
    all.d_initial_p = o.template state<double>(call.d_initial, 1);
    return all;
  }
  static Status forward(const Operands<T>& o, const KalmanProblem<T>& p, Form form, Workspace work) noexcept {
    return kalman::forward(p, form, *o.body().simd_f64, work);
  }
  static Status backward(const Operands<T>& o, const KalmanProblem<T>& p, const KalmanGradient<T>& d, Form form,
                         Workspace work) noexcept {
    return kalman::backward(p, d, form, *o.body().simd_f64, work);
  }
};

// The same kernel as least squares, without noise and drift. P_0 = diag(1 / ridge): of a constant ridge it is what
// reset writes, a ridge that is an input makes it at the first token.
template <class T>
struct WoodburyProblem : KalmanProblem<T> {
  std::int64_t* count = nullptr;
};
template <class T>
struct WoodburyGradient : KalmanGradient<T> {
  View<T, 2> d_ridge;
};

template <class T>
struct WoodburyFamily {
  static std::ptrdiff_t covariances(std::ptrdiff_t sequences, std::ptrdiff_t heads, std::ptrdiff_t K) {
    return sequences * heads * K * K;
  }
  static std::ptrdiff_t covariances(const Operands<T>& o) {
    return covariances(static_cast<std::ptrdiff_t>(o.sequences().size()), o.heads(), o.key_dim());
  }
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward) {
    Arena arena;
    const std::ptrdiff_t size = covariances(body.shape.batch, body.shape.heads, K);
    if (backward) arena.take<double>(size), arena.take<double>(size);
    return arena.bytes() + KalmanFamily<T>::bytes(body, K, V, time, form, backward);
  }
  static WoodburyProblem<T> problem(const Operands<T>& o, State state) {
    return {KalmanFamily<T>::problem(o, state), o.counts(state)};
  }
  static WoodburyGradient<T> gradient(const Operands<T>& o, const LinearGradient<T>& d, const Call& call) {
    return {KalmanFamily<T>::gradient(o, d, call), o.d_per_head(Role::ridge)};
  }
  // visit(h, j, the j-th number of the diagonal of head h) for sequences that begin with this call
  template <class Visit>
  static void diagonals(const Operands<T>& o, const WoodburyProblem<T>& p, double* covariance, Visit&& visit) {
    const std::ptrdiff_t H = o.heads(), K = o.key_dim();
    for (std::size_t n = 0; n < o.sequences().size(); ++n) {
      if (!o.begins(p.count, n)) continue;
      for (std::ptrdiff_t h = 0; h < H; ++h) {
        double* const head = covariance + (static_cast<std::ptrdiff_t>(n) * H + h) * K * K;
        for (std::ptrdiff_t j = 0; j < K; ++j) visit(h, j, head[j * (K + 1)]);
      }
    }
  }
  static void begin(const Operands<T>& o, const WoodburyProblem<T>& p, double* covariance) {
    const View<const T, 2> ridge = o.per_head(Role::ridge);
    const std::ptrdiff_t one = covariances(1, o.heads(), o.key_dim());
    for (std::size_t n = 0; n < o.sequences().size(); ++n)
      if (o.begins(p.count, n)) std::fill_n(covariance + static_cast<std::ptrdiff_t>(n) * one, one, 0.0);
    diagonals(o, p, covariance,
              [&](std::ptrdiff_t h, std::ptrdiff_t j, double& x) { x = 1 / static_cast<double>(ridge(h, j)); });
  }
  static Status forward(const Operands<T>& o, const WoodburyProblem<T>& p, Form form, Workspace work) noexcept {
    if (!o.has(Role::ridge)) return KalmanFamily<T>::forward(o, p, form, work);
    begin(o, p, p.p);
    const Status status = KalmanFamily<T>::forward(o, p, form, work);
    for (std::size_t n = 0; n < o.sequences().size(); ++n)
      p.count[n] += o.sequences()[n].end - o.sequences()[n].begin;
    return status;
  }
  static Status backward(const Operands<T>& o, const WoodburyProblem<T>& p, const WoodburyGradient<T>& d, Form form,
                         Workspace work) noexcept {
    if (!o.has(Role::ridge)) return KalmanFamily<T>::backward(o, p, d, form, work);
    Arena arena(work);
    const std::ptrdiff_t size = covariances(o);
    double *const start = arena.take<double>(size), *const d_start = arena.take<double>(size);
    std::copy_n(p.p, size, start), std::fill_n(d_start, size, 0.0);
    begin(o, p, start);
    KalmanProblem<T> inner = p;
    KalmanGradient<T> d_inner = d;
    inner.p = start, d_inner.d_initial_p = d_start;
    const Status status = KalmanFamily<T>::backward(o, inner, d_inner, form, arena.rest());
    const View<const T, 2> ridge = o.per_head(Role::ridge);
    diagonals(o, p, d_start, [&](std::ptrdiff_t h, std::ptrdiff_t j, double& x) {
      const double r = static_cast<double>(ridge(h, j));
      if (d.d_ridge) d.d_ridge(h, j) -= static_cast<T>(x / (r * r));
    });
    if (d.d_initial_p) {  // what began here has no P before it
      const std::ptrdiff_t one = covariances(1, o.heads(), o.key_dim());
      for (std::ptrdiff_t i = 0; i < size; ++i)
        if (!o.begins(p.count, static_cast<std::size_t>(i / one))) d.d_initial_p[i] += d_start[i];
    }
    return status;
  }
};

template <class T>
struct WindowFamily {
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form, bool backward) {
    return window::workspace_bytes(K, V, body.pipeline.design.weights.window, time, backward);
  }
  static WindowProblem<T> problem(const Operands<T>& o, State state) {
    WindowProblem<T> p;
    p.linear = o.problem(State{});
    p.ridge = o.per_head(Role::ridge);
    p.window = o.body().pipeline.design.weights.window;
    p.keys = o.template state<T>(state, 0), p.values = o.template state<T>(state, 1);
    if (o.has(Role::g)) p.gates = o.template state<T>(state, 2);
    if (o.has(Role::beta)) p.weights = o.template state<T>(state, 3);
    p.count = o.counts(state);
    p.h = o.template state<double>(state, 4), p.f = o.template state<double>(state, 5);
    p.peak = o.template state<double>(state, 6);
    return p;
  }
  static WindowGradient<T> gradient(const Operands<T>& o, const LinearGradient<T>& d, const Call& call) {
    WindowGradient<T> all;
    all.linear = d;
    all.linear.d_final = nullptr, all.linear.d_initial = nullptr;
    all.d_ridge = o.d_per_head(Role::ridge);
    all.d_final_keys = o.template state<const T>(call.d_final, 0);
    all.d_final_values = o.template state<const T>(call.d_final, 1);
    all.d_initial_keys = o.template state<T>(call.d_initial, 0);
    all.d_initial_values = o.template state<T>(call.d_initial, 1);
    if (o.has(Role::g)) {
      all.d_final_gates = o.template state<const T>(call.d_final, 2);
      all.d_initial_gates = o.template state<T>(call.d_initial, 2);
    }
    if (o.has(Role::beta)) {
      all.d_final_weights = o.template state<const T>(call.d_final, 3);
      all.d_initial_weights = o.template state<T>(call.d_initial, 3);
    }
    all.d_final_h = o.template state<const double>(call.d_final, 4);
    all.d_final_f = o.template state<const double>(call.d_final, 5);
    all.d_initial_h = o.template state<double>(call.d_initial, 4);
    all.d_initial_f = o.template state<double>(call.d_initial, 5);
    return all;
  }
  static Status forward(const Operands<T>& o, const WindowProblem<T>& p, Form form, Workspace work) noexcept {
    return window::forward(p, form, *o.body().simd_f64, work);
  }
  static Status backward(const Operands<T>& o, const WindowProblem<T>& p, const WindowGradient<T>& d, Form form,
                         Workspace work) noexcept {
    return window::backward(p, d, form, *o.body().simd_f64, work);
  }
};

}  // namespace

template <class T>
Calls<T> solver_calls(KernelKind kind) {
  switch (kind) {
    case KernelKind::givens:
      return linear<T, GivensFamily>();
    case KernelKind::iterative:
    case KernelKind::stepped:
      return linear<T, IterativeFamily>();
    case KernelKind::kalman:
      return linear<T, KalmanFamily>();
    case KernelKind::woodbury:
      return linear<T, WoodburyFamily>();
    case KernelKind::window:
      return linear<T, WindowFamily>();
    default:
      return {};
  }
}

template Calls<float> solver_calls<float>(KernelKind);
template Calls<double> solver_calls<double>(KernelKind);

}  // namespace ttr
