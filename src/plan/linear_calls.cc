// Families whose state is a matrix per head fed by pairs of keys and values.
#include "families/linear/scalar/decay.h"
#include "families/linear/scalar/delta.h"
#include "families/linear/channel/dplr.h"
#include "families/linear/channel/gated.h"
#include "families/solve/least_squares/least_squares.h"
#include "families/linear/log_linear/log_linear.h"
#include "families/linear/momentum/momentum.h"
#include "families/linear/oja/oja.h"
#include "families/linear/projection/projection.h"
#include "families/linear/stabilised/stabilised.h"
#include "plan/calls.h"

namespace ttr {
namespace {

Residual residual_of(const Step& step) { return step.undecayed ? Residual::undecayed : Residual::decayed; }

// Most families have the same signatures; `name` is the namespace of one. They choose the chunk if the caller does not.
#define TTR_FAMILY_CALLS(name)                                                                                  \
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward) { \
    return name::workspace_bytes<T>(K, V, time, form, body.options.chunk, backward);                            \
  }                                                                                                             \
  template <class P>                                                                                            \
  static Status forward(const Operands<T>& o, const P& p, Form form, Workspace work) noexcept {                 \
    return name::forward(p, form, o.body().options.chunk, simd_of<T>(o.body()), work);                          \
  }                                                                                                             \
  template <class P, class G>                                                                                   \
  static Status backward(const Operands<T>& o, const P& p, const G& d, Form form, Workspace work) noexcept {    \
    return name::backward(p, d, form, o.body().options.chunk, simd_of<T>(o.body()), work);                      \
  }

template <class T>
struct DecayFamily {
  TTR_FAMILY_CALLS(decay)
  static LinearProblem<T> problem(const Operands<T>& o, State state) { return o.problem(state); }
  static LinearGradient<T> gradient(const Operands<T>&, const LinearGradient<T>& d, const Call&) { return d; }
};

template <class T>
struct DeltaFamily {
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward) {
    return delta::workspace_bytes<T>(K, V, time, form, body.options.chunk, backward);
  }
  static LinearProblem<T> problem(const Operands<T>& o, State state) { return o.problem(state); }
  static LinearGradient<T> gradient(const Operands<T>&, const LinearGradient<T>& d, const Call&) { return d; }
  static Status forward(const Operands<T>& o, const LinearProblem<T>& p, Form form, Workspace work) noexcept {
    return delta::forward(p, residual_of(o.step()), form, o.body().options.chunk, simd_of<T>(o.body()), work);
  }
  static Status backward(const Operands<T>& o, const LinearProblem<T>& p, const LinearGradient<T>& d, Form form,
                         Workspace work) noexcept {
    return delta::backward(p, d, residual_of(o.step()), form, o.body().options.chunk, simd_of<T>(o.body()), work);
  }
};

template <class T>
struct GatedFamily {
  TTR_FAMILY_CALLS(gated)
  static GatedProblem<T> problem(const Operands<T>& o, State state) {
    GatedProblem<T> p;
    static_cast<LinearProblem<T>&>(p) = o.problem(state);
    p.gk = o.channels(Role::gk, p.key_dim), p.gv = o.channels(Role::gv, p.value_dim);
    p.bonus = o.per_head(Role::bonus);
    p.read_before = o.step().read_before;
    return p;
  }
  static GatedGradient<T> gradient(const Operands<T>& o, const LinearGradient<T>& d, const Call&) {
    GatedGradient<T> all;
    static_cast<LinearGradient<T>&>(all) = d;
    all.d_gk = o.d_channels(Role::gk, o.key_dim()), all.d_gv = o.d_channels(Role::gv, o.value_dim());
    all.d_bonus = o.d_per_head(Role::bonus);
    return all;
  }
};

template <class T>
struct DplrFamily {
  TTR_FAMILY_CALLS(dplr)
  static DplrProblem<T> problem(const Operands<T>& o, State state) {
    DplrProblem<T> p;
    static_cast<LinearProblem<T>&>(p) = o.problem(state);
    p.gk = o.channels(Role::gk, p.key_dim);
    p.a = o.vectors(Role::a), p.b = o.vectors(Role::b);
    p.decayed_read = !o.step().undecayed;
    return p;
  }
  static DplrGradient<T> gradient(const Operands<T>& o, const LinearGradient<T>& d, const Call&) {
    DplrGradient<T> all;
    static_cast<LinearGradient<T>&>(all) = d;
    all.d_gk = o.d_channels(Role::gk, o.key_dim());
    all.d_a = o.d_vectors(Role::a), all.d_b = o.d_vectors(Role::b);
    return all;
  }
};

template <class T>
struct OjaFamily {
  TTR_FAMILY_CALLS(oja)
  static OjaProblem<T> problem(const Operands<T>& o, State state) {
    OjaProblem<T> p;
    p.linear = o.problem(state);
    p.gv = o.channels(Role::gv, p.linear.value_dim);
    return p;
  }
  static OjaGradient<T> gradient(const Operands<T>& o, const LinearGradient<T>& d, const Call&) {
    OjaGradient<T> all;
    all.linear = d;
    all.d_gv = o.d_channels(Role::gv, o.value_dim());
    return all;
  }
};

template <class T>
struct MomentumFamily {
  TTR_FAMILY_CALLS(momentum)
  static MomentumProblem<T> problem(const Operands<T>& o, State state) {
    MomentumProblem<T> p;
    p.linear = o.problem(state);
    p.residual = residual_of(o.step());
    p.p = o.vectors(Role::a), p.g_mu = o.scalars(Role::g_mu), p.eta = o.scalars(Role::eta);
    p.momentum = o.template state<T>(state, 1);
    return p;
  }
  static MomentumGradient<T> gradient(const Operands<T>& o, const LinearGradient<T>& d, const Call& call) {
    MomentumGradient<T> all;
    all.linear = d;
    all.d_p = o.d_vectors(Role::a);
    all.d_g_mu = o.d_scalars(Role::g_mu), all.d_eta = o.d_scalars(Role::eta);
    all.d_final_momentum = o.template state<const T>(call.d_final, 1);
    all.d_initial_momentum = o.template state<T>(call.d_initial, 1);
    return all;
  }
};

template <class T>
struct ProjectionFamily {
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward) {
    return projection::workspace_bytes<T>(K, V, body.pipeline.design.solver.batch, time, form, body.chunk, backward);
  }
  static ProjectionProblem<T> problem(const Operands<T>& o, State state) {
    ProjectionProblem<T> p;
    p.linear = o.problem(state);
    p.window = o.body().pipeline.design.solver.batch;
    p.eps = o.step().number;
    if (p.window > 1) p.keys = o.template state<T>(state, 1), p.values = o.template state<T>(state, 2);
    return p;
  }
  static ProjectionGradient<T> gradient(const Operands<T>& o, const LinearGradient<T>& d, const Call& call) {
    ProjectionGradient<T> all;
    all.linear = d;
    if (o.body().pipeline.design.solver.batch > 1) {
      all.d_final_keys = o.template state<const T>(call.d_final, 1);
      all.d_final_values = o.template state<const T>(call.d_final, 2);
      all.d_initial_keys = o.template state<T>(call.d_initial, 1);
      all.d_initial_values = o.template state<T>(call.d_initial, 2);
    }
    return all;
  }
  static Status forward(const Operands<T>& o, const ProjectionProblem<T>& p, Form form, Workspace work) noexcept {
    return projection::forward(p, form, o.body().chunk, simd_of<T>(o.body()), work);
  }
  static Status backward(const Operands<T>& o, const ProjectionProblem<T>& p, const ProjectionGradient<T>& d,
                         Form form, Workspace work) noexcept {
    return projection::backward(p, d, form, o.body().chunk, simd_of<T>(o.body()), work);
  }
};

template <class T>
struct LogLinearFamily {
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward) {
    return log_linear::workspace_bytes<T>(K, V, body.pipeline.letters.at('L'), time, form, body.chunk, backward);
  }
  static LogLinearProblem<T> problem(const Operands<T>& o, State state) {
    LogLinearProblem<T> p;
    p.linear = o.problem(state);
    p.level_scales = o.vectors(Role::levels);
    p.levels = o.body().pipeline.letters.at('L');
    p.count = o.counts(state);
    return p;
  }
  static LogLinearGradient<T> gradient(const Operands<T>& o, const LinearGradient<T>& d, const Call&) {
    LogLinearGradient<T> all;
    all.linear = d;
    all.d_level_scales = o.d_vectors(Role::levels);
    return all;
  }
  static Status forward(const Operands<T>& o, const LogLinearProblem<T>& p, Form form, Workspace work) noexcept {
    return log_linear::forward(p, form, o.body().chunk, simd_of<T>(o.body()), work);
  }
  static Status backward(const Operands<T>& o, const LogLinearProblem<T>& p, const LogLinearGradient<T>& d, Form form,
                         Workspace work) noexcept {
    return log_linear::backward(p, d, form, o.body().chunk, simd_of<T>(o.body()), work);
  }
};

template <class T>
struct StabilisedFamily {
  TTR_FAMILY_CALLS(stabilised)
  static StabilisedProblem<T> problem(const Operands<T>& o, State state) {
    StabilisedProblem<T> p;
    p.linear = o.problem(state);
    p.key_scale = p.linear.scale, p.linear.scale = 1;
    p.eps = static_cast<T>(o.step().number);
    p.input = o.scalars(Role::input);
    p.normaliser = o.template state<T>(state, 1), p.maximum = o.template state<T>(state, 2);
    const View<T, 4> denom = o.output(o.step().also);
    p.denom = {denom.data,
               {denom.extent[0], denom.extent[1], denom.extent[2]},
               {denom.stride[0], denom.stride[1], denom.stride[2]}};
    return p;
  }
  static StabilisedGradient<T> gradient(const Operands<T>& o, const LinearGradient<T>& d, const Call& call) {
    StabilisedGradient<T> all;
    all.linear = d;
    const View<const T, 4> denom = o.d_output(o.step().also);
    all.d_denom = {denom.data,
                   {denom.extent[0], denom.extent[1], denom.extent[2]},
                   {denom.stride[0], denom.stride[1], denom.stride[2]}};
    all.d_input = o.d_scalars(Role::input);
    all.d_final_normaliser = o.template state<const T>(call.d_final, 1);
    all.d_final_maximum = o.template state<const T>(call.d_final, 2);
    all.d_initial_normaliser = o.template state<T>(call.d_initial, 1);
    all.d_initial_maximum = o.template state<T>(call.d_initial, 2);
    return all;
  }
};

template <class T>
struct LeastSquaresFamily {
  static std::size_t bytes(const Plan::Body&, int K, int V, std::int64_t time, Form, bool backward) {
    return least_squares::workspace_bytes<T>(K, V, time, backward);
  }
  static LeastSquaresProblem<T> problem(const Operands<T>& o, State state) {
    LeastSquaresProblem<T> p;
    p.linear = o.problem(State{});
    p.ridge = o.per_head(Role::ridge);
    p.h = o.template state<double>(state, 0), p.f = o.template state<double>(state, 1);
    return p;
  }
  static LeastSquaresGradient<T> gradient(const Operands<T>& o, const LinearGradient<T>& d, const Call& call) {
    LeastSquaresGradient<T> all;
    all.linear = d;
    all.linear.d_final = nullptr, all.linear.d_initial = nullptr;
    all.d_ridge = o.d_per_head(Role::ridge);
    all.d_final_h = o.template state<const double>(call.d_final, 0);
    all.d_final_f = o.template state<const double>(call.d_final, 1);
    all.d_initial_h = o.template state<double>(call.d_initial, 0);
    all.d_initial_f = o.template state<double>(call.d_initial, 1);
    return all;
  }
  static Status forward(const Operands<T>& o, const LeastSquaresProblem<T>& p, Form form, Workspace work) noexcept {
    return least_squares::forward(p, form, work, o.body().simd_f64);
  }
  static Status backward(const Operands<T>& o, const LeastSquaresProblem<T>& p, const LeastSquaresGradient<T>& d,
                         Form form, Workspace work) noexcept {
    return least_squares::backward(p, d, form, work, o.body().simd_f64);
  }
};

#undef TTR_FAMILY_CALLS

}  // namespace

template <class T>
Calls<T> linear_calls(KernelKind kind) {
  switch (kind) {
    case KernelKind::decay:
      return linear<T, DecayFamily>();
    case KernelKind::delta:
      return linear<T, DeltaFamily>();
    case KernelKind::gated:
      return linear<T, GatedFamily>();
    case KernelKind::dplr:
      return linear<T, DplrFamily>();
    case KernelKind::momentum:
      return linear<T, MomentumFamily>();
    case KernelKind::projection:
      return linear<T, ProjectionFamily>();
    case KernelKind::oja:
      return linear<T, OjaFamily>();
    case KernelKind::log_linear:
      return linear<T, LogLinearFamily>();
    case KernelKind::stabilised:
      return linear<T, StabilisedFamily>();
    case KernelKind::least_squares:
      return linear<T, LeastSquaresFamily>();
    default:
      return {};
  }
}

template Calls<float> linear_calls<float>(KernelKind);
template Calls<double> linear_calls<double>(KernelKind);

}  // namespace ttr
