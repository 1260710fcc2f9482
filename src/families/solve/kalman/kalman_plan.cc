// Plans of the Kalman filter, and of least squares by its covariance (woodbury), which is the same kernel without noise
// and drift. States are double whatever the plan's type is.
#include "families/solve/kalman/kalman.h"
#include "families/solve/solve_plan.h"

namespace ttr::families {
namespace {

struct Own {
  enum : std::size_t { process = Slot::own, noise, ridge, count };
};
constexpr std::string_view why_blocks =
    "the gain of a token depends on the covariance that all tokens before it left; blocks carry it";

bool claim_kalman(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.s.kind, {Solver::Kind::kalman});
  rest.s.process = rest.s.noise = {};
  rest.takes_fade();  // the filter sees the newest pair alone
  rest.takes_any_features(), rest.takes_read_norms();
  return causal && rest.is_nothing();
}

int build_kalman(Builder& b, double scale) {
  const Solver& s = b.design().solver;
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  Step step = b.kernel(kalman_family, scale, q, k, v, -1, -1, Own::count);
  step.operands[Own::process] = b.quantity(s.process, "process");
  step.operands[Own::noise] = b.quantity(s.noise, "noise");
  StatePart mean = b.memory_part(k, v), p = b.memory_part(k, k, "P", "covariance, shared by the value channels");
  mean.type = p.type = Type::f64, p.identity = true, p.fresh = 1;
  add_uncertainty(b, step);
  return b.add(std::move(step), "BTHV", {mean, p});
}

// Least squares by its covariance: P_0 = diag(1 / ridge), which fades.
int build_woodbury(Builder& b, double scale) {
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  Step step = b.kernel(woodbury_family, scale, q, k, v, b.log_fade(), b.importance(), Own::count);
  const Quantity& ridge = b.design().solver.ridge;
  StatePart s = b.memory_part(k, v), p = b.memory_part(k, k, "P", "inverse of the sum of w k k' and the faded ridge");
  s.type = p.type = Type::f64, p.identity = true;
  if (ridge.is_constant()) {
    p.fresh = 1 / ridge.value;
  } else {  // P begins with the first token
    step.operands[Own::ridge] = b.canonical("ridge");
    b.pipeline().counted = true, s.info.range = p.info.range = Range::fresh;
  }
  return b.add(std::move(step), "BTHV", {s, p});
}

template <class T>
struct KalmanCalls : HandsOn<T, kalman::forward<T>, kalman::backward<T>> {
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward) {
    return kalman::workspace_bytes(K, V, time, backward, form, body.chunk);
  }
  static KalmanProblem<T> problem(const KernelArgs<T>& o, State state) {
    KalmanProblem<T> p;
    p.linear = o.problem(State{});
    p.process = o.scalars(Own::process), p.noise = o.scalars(Own::noise);
    p.chunk = o.body().chunk;
    p.s = o.template state<double>(state, 0), p.p = o.template state<double>(state, 1);
    p.variance = numbers_of(o.output(o.step().second_result));
    return p;
  }
  static KalmanGradient<T> gradient(const KernelArgs<T>& o, const LinearGradient<T>& d, const Call& call) {
    KalmanGradient<T> all;
    all.linear = d;
    all.linear.d_final = nullptr, all.linear.d_initial = nullptr;
    all.d_variance = numbers_of(o.d_output(o.step().second_result));
    all.d_process = o.d_scalars(Own::process), all.d_noise = o.d_scalars(Own::noise);
    all.d_final_s = o.template state<const double>(call.d_final, 0);
    all.d_final_p = o.template state<const double>(call.d_final, 1);
    all.d_initial_s = o.template state<double>(call.d_initial, 0);
    all.d_initial_p = o.template state<double>(call.d_initial, 1);
    return all;
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
struct WoodburyCalls {
  static std::ptrdiff_t covariances(std::ptrdiff_t sequences, std::ptrdiff_t heads, std::ptrdiff_t K) {
    return sequences * heads * K * K;
  }
  static std::ptrdiff_t covariances(const KernelArgs<T>& o) {
    return covariances(static_cast<std::ptrdiff_t>(o.sequences().size()), o.heads(), o.key_dim());
  }
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward) {
    Arena arena;
    const std::ptrdiff_t size = covariances(body.shape.batch, body.shape.heads, K);
    if (backward) arena.take<double>(size), arena.take<double>(size);
    return arena.bytes() + KalmanCalls<T>::bytes(body, K, V, time, form, backward);
  }
  static WoodburyProblem<T> problem(const KernelArgs<T>& o, State state) {
    return {KalmanCalls<T>::problem(o, state), o.counts(state)};
  }
  static WoodburyGradient<T> gradient(const KernelArgs<T>& o, const LinearGradient<T>& d, const Call& call) {
    return {KalmanCalls<T>::gradient(o, d, call), o.d_per_head(Own::ridge)};
  }
  // visit(h, j, the j-th number of the diagonal of head h) for sequences that begin with this call
  template <class Visit>
  static void diagonals(const KernelArgs<T>& o, const WoodburyProblem<T>& p, double* covariance, Visit&& visit) {
    const std::ptrdiff_t H = o.heads(), K = o.key_dim();
    for (std::size_t n = 0; n < o.sequences().size(); ++n) {
      if (!o.begins(p.count, n)) continue;
      for (std::ptrdiff_t h = 0; h < H; ++h) {
        double* const head = covariance + (static_cast<std::ptrdiff_t>(n) * H + h) * K * K;
        for (std::ptrdiff_t j = 0; j < K; ++j) visit(h, j, head[j * (K + 1)]);
      }
    }
  }
  static void begin(const KernelArgs<T>& o, const WoodburyProblem<T>& p, double* covariance) {
    const View<const T, 2> ridge = o.per_head(Own::ridge);
    const std::ptrdiff_t one = covariances(1, o.heads(), o.key_dim());
    for (std::size_t n = 0; n < o.sequences().size(); ++n)
      if (o.begins(p.count, n)) std::fill_n(covariance + static_cast<std::ptrdiff_t>(n) * one, one, 0.0);
    diagonals(o, p, covariance,
              [&](std::ptrdiff_t h, std::ptrdiff_t j, double& x) { x = 1 / static_cast<double>(ridge(h, j)); });
  }
  static Status forward(const KernelArgs<T>& o, const WoodburyProblem<T>& p, Form form, Workspace work) noexcept {
    if (!o.has(Own::ridge)) return KalmanCalls<T>::forward(o, p, form, work);
    begin(o, p, p.p);
    const Status status = KalmanCalls<T>::forward(o, p, form, work);
    for (std::size_t n = 0; n < o.sequences().size(); ++n)
      p.count[n] += o.sequences()[n].end - o.sequences()[n].begin;
    return status;
  }
  static Status backward(const KernelArgs<T>& o, const WoodburyProblem<T>& p, const WoodburyGradient<T>& d, Form form,
                         Workspace work) noexcept {
    if (!o.has(Own::ridge)) return KalmanCalls<T>::backward(o, p, d, form, work);
    Arena arena(work);
    const std::ptrdiff_t size = covariances(o);
    double *const start = arena.take<double>(size), *const d_start = arena.take<double>(size);
    std::copy_n(p.p, size, start), std::fill_n(d_start, size, 0.0);
    begin(o, p, start);
    KalmanProblem<T> inner = p;
    KalmanGradient<T> d_inner = d;
    inner.p = start, d_inner.d_initial_p = d_start;
    const Status status = KalmanCalls<T>::backward(o, inner, d_inner, form, arena.rest());
    const View<const T, 2> ridge = o.per_head(Own::ridge);
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

}  // namespace

const Family kalman_family = {.name = "kalman",
                              .forms = chunk_only,
                              .why_absent = why_blocks,
                              .traits = {.answers_on_demand = true, .best = BestForm::recurrent},
                              .claim = claim_kalman,
                              .build = build_kalman,
                              .f32 = linear_calls_of<KalmanCalls, float>(),
                              .f64 = linear_calls_of<KalmanCalls, double>()};

const Family woodbury_family = {.name = "kalman",
                                .forms = chunk_only,
                                .why_absent = why_blocks,
                                .traits = {.answers_on_demand = true, .best = BestForm::recurrent},
                                .build = build_woodbury,
                                .f32 = linear_calls_of<WoodburyCalls, float>(),
                                .f64 = linear_calls_of<WoodburyCalls, double>()};

}  // namespace ttr::families
