// From values to the problem structs of the families, and back for gradients. No arithmetic happens here.
#include "plan/kernels.h"

#include <algorithm>

#include "families/decay.h"
#include "families/delta.h"
#include "families/dplr.h"
#include "families/elementwise.h"
#include "families/gated.h"
#include "families/least_squares.h"
#include "families/momentum.h"
#include "families/projection.h"

namespace ttr {
namespace {

using namespace families;

template <class T>
const Simd<T>& simd_of(const Plan::Body& body) {
  if constexpr (sizeof(T) == 4) return *body.simd_f32;
  else return *body.simd_f64;
}

/// One kernel step of one call: its operands, gradients and states as the views a family wants.
template <class T>
class Operands {
 public:
  Operands(const Plan::Body& body, const Step& step, Binding<T>& b)
      : body_(body), step_(step), b_(b), time_(b.time * step.pairs) {}

  int role(std::size_t r) const { return step_.from[r]; }
  bool has(std::size_t r) const { return role(r) >= 0; }
  int key_dim() const { return width(body_, role(Role::k)); }
  int value_dim() const { return width(body_, role(Role::v)); }

  // [B, T, heads of the operand, its width]
  View<const T, 4> vectors(std::size_t r) const {
    return has(r) ? rows(r, heads_of(body_, role(r)), width(body_, role(r))) : View<const T, 4>{};
  }
  View<T, 4> d_vectors(std::size_t r) const {
    return has(r) ? d_rows(r, heads_of(body_, role(r)), width(body_, role(r))) : View<T, 4>{};
  }
  // A gate may be one number per head: it is then seen as a vector whose channels are the same number.
  View<const T, 4> channels(std::size_t r, int channels) const {
    return has(r) ? rows(r, body_.shape.heads, channels) : View<const T, 4>{};
  }
  View<T, 4> d_channels(std::size_t r, int channels) const {
    return has(r) ? d_rows(r, body_.shape.heads, channels) : View<T, 4>{};
  }
  // [B, T, H]
  View<const T, 3> scalars(std::size_t r) const {
    if (!has(r)) return {};
    const AxisStrides s = strides(r);
    return {bound(r).data, {b_.batch, time_, body_.shape.heads}, {s.batch, s.time, s.head}};
  }
  View<T, 3> d_scalars(std::size_t r) const {
    if (!has(r)) return {};
    const AxisStrides s = d_strides(r);
    return {bound(r).gradient, {b_.batch, time_, body_.shape.heads}, {s.batch, s.time, s.head}};
  }
  // [B, T, V] of a plan with one head
  View<const T, 3> flat(std::size_t r) const {
    if (!has(r)) return {};
    const AxisStrides s = strides(r);
    return {bound(r).data, {b_.batch, time_, body_.shape.value_dim}, {s.batch, s.time, s.inner}};
  }
  View<T, 3> d_flat(std::size_t r) const {
    if (!has(r)) return {};
    const AxisStrides s = d_strides(r);
    return {bound(r).gradient, {b_.batch, time_, body_.shape.value_dim}, {s.batch, s.time, s.inner}};
  }
  // [H, K]
  View<const T, 2> per_head(std::size_t r) const {
    if (!has(r)) return {};
    const AxisStrides s = strides(r);
    return {bound(r).data, {body_.shape.heads, key_dim()}, {s.head, s.inner}};
  }
  View<T, 2> d_per_head(std::size_t r) const {
    if (!has(r)) return {};
    const AxisStrides s = d_strides(r);
    return {bound(r).gradient, {body_.shape.heads, key_dim()}, {s.head, s.inner}};
  }

  // Part `index` of the step's states in one of the caller's buffers; null if there is no buffer.
  template <class N, class AnyState>
  N* state(AnyState buffer, int index = 0) const {
    if (!buffer.data) return nullptr;
    using Byte = std::conditional_t<std::is_const_v<N>, const std::byte, std::byte>;
    const std::size_t offset = body_.state_place(buffer.bytes, step_.state + index).offset;
    return reinterpret_cast<N*>(static_cast<Byte*>(buffer.data) + offset);
  }

  LinearProblem<T> problem(State buffer) const {
    LinearProblem<T> p;
    p.sequences = step_.pairs > 1 ? b_.pair_sequences : b_.sequences;
    p.heads = body_.shape.heads, p.key_heads = heads_of(body_, role(Role::k));
    p.key_dim = key_dim(), p.value_dim = value_dim();
    p.scale = static_cast<T>(step_.scale);
    p.q = vectors(Role::q), p.k = vectors(Role::k), p.v = vectors(Role::v);
    p.g = scalars(Role::g), p.beta = scalars(Role::beta);
    p.state = state<T>(buffer);
    const Bound<T>& to = b_.values[static_cast<std::size_t>(step_.to)];
    const AxisStrides s = axis_strides(value(body_, step_.to).axes, to.stride);
    p.o = {to.writable, {b_.batch, time_, p.heads, p.value_dim}, {s.batch, s.time, s.head, s.inner}};
    return p;
  }

  LinearGradient<T> gradient(const Call& call) const {
    LinearGradient<T> d;
    const Bound<T>& to = b_.values[static_cast<std::size_t>(step_.to)];
    const AxisStrides s = axis_strides(value(body_, step_.to).axes, to.gradient_stride);
    d.d_o = {to.gradient_in, {b_.batch, time_, body_.shape.heads, value_dim()}, {s.batch, s.time, s.head, s.inner}};
    d.d_q = d_vectors(Role::q), d.d_k = d_vectors(Role::k), d.d_v = d_vectors(Role::v);
    d.d_final = state<const T>(call.d_final), d.d_initial = state<T>(call.d_initial);
    return d;
  }

  LeastSquaresProblem<T> least_squares(State buffer) const {
    LeastSquaresProblem<T> p;
    p.linear = problem(State{});
    p.ridge = per_head(Role::ridge);
    p.h = state<double>(buffer, 0), p.f = state<double>(buffer, 1);
    return p;
  }
  GatedProblem<T> gated(State buffer) const {
    GatedProblem<T> p;
    static_cast<LinearProblem<T>&>(p) = problem(buffer);
    p.gk = channels(Role::gk, p.key_dim), p.gv = channels(Role::gv, p.value_dim);
    p.bonus = per_head(Role::bonus);
    p.read_before = step_.read_before;
    return p;
  }
  MomentumProblem<T> momentum(State buffer) const {
    MomentumProblem<T> p;
    p.linear = problem(buffer);
    p.residual = step_.undecayed ? Residual::undecayed : Residual::decayed;
    p.p = vectors(Role::a), p.g_mu = scalars(Role::g_mu), p.eta = scalars(Role::eta);
    p.momentum = state<T>(buffer, 1);
    return p;
  }
  ProjectionProblem<T> projection(State buffer) const {
    ProjectionProblem<T> p;
    p.linear = problem(buffer);
    p.window = body_.pipeline.design.solver.batch;
    p.eps = step_.eps;
    if (p.window > 1) p.keys = state<T>(buffer, 1), p.values = state<T>(buffer, 2);
    return p;
  }
  ChannelProblem<T> channel(State buffer) const {
    ChannelProblem<T> p;
    p.sequences = step_.pairs > 1 ? b_.pair_sequences : b_.sequences;
    p.dim = body_.shape.value_dim;
    p.g = flat(Role::gv), p.x = flat(Role::v);
    p.state = state<T>(buffer);
    const Bound<T>& to = b_.values[static_cast<std::size_t>(step_.to)];
    const AxisStrides s = axis_strides(value(body_, step_.to).axes, to.stride);
    p.o = {to.writable, {b_.batch, time_, p.dim}, {s.batch, s.time, s.inner}};
    return p;
  }
  ChannelGradient<T> channel_gradient(const Call& call) const {
    ChannelGradient<T> d;
    const Bound<T>& to = b_.values[static_cast<std::size_t>(step_.to)];
    const AxisStrides s = axis_strides(value(body_, step_.to).axes, to.gradient_stride);
    d.d_o = {to.gradient_in, {b_.batch, time_, body_.shape.value_dim}, {s.batch, s.time, s.inner}};
    d.d_g = d_flat(Role::gv), d.d_x = d_flat(Role::v);
    d.d_final = state<const T>(call.d_final), d.d_initial = state<T>(call.d_initial);
    return d;
  }
  DplrProblem<T> dplr(State buffer) const {
    DplrProblem<T> p;
    static_cast<LinearProblem<T>&>(p) = problem(buffer);
    p.gk = channels(Role::gk, p.key_dim);
    p.a = vectors(Role::a), p.b = vectors(Role::b);
    p.decayed_read = !step_.undecayed;
    return p;
  }

 private:
  const Bound<T>& bound(std::size_t r) const { return b_.values[static_cast<std::size_t>(role(r))]; }
  AxisStrides strides(std::size_t r) const { return axis_strides(value(body_, role(r)).axes, bound(r).stride); }
  AxisStrides d_strides(std::size_t r) const {
    return axis_strides(value(body_, role(r)).axes, bound(r).gradient_stride);
  }
  View<const T, 4> rows(std::size_t r, int heads, int channels) const {
    const AxisStrides s = strides(r);
    return {bound(r).data, {b_.batch, time_, heads, channels}, {s.batch, s.time, s.head, s.inner}};
  }
  View<T, 4> d_rows(std::size_t r, int heads, int channels) const {
    const AxisStrides s = d_strides(r);
    return {bound(r).gradient, {b_.batch, time_, heads, channels}, {s.batch, s.time, s.head, s.inner}};
  }

  const Plan::Body& body_;
  const Step& step_;
  Binding<T>& b_;
  std::ptrdiff_t time_;
};

Residual residual_of(const Step& step) { return step.undecayed ? Residual::undecayed : Residual::decayed; }

// Gates may be constant in time (one number per head): the kernel then writes a gradient per token, summed here.
template <class T>
class GateGradient {
 public:
  GateGradient(const Plan::Body& body, Binding<T>& b, int index, std::ptrdiff_t time, Arena& arena) noexcept
      : body_(body), b_(b), index_(index) {
    if (index < 0) return;
    const Bound<T>& bound = b.values[static_cast<std::size_t>(index)];
    if (!bound.gradient) return;
    const AxisStrides s = axis_strides(value(body, index).axes, bound.gradient_stride);
    const std::ptrdiff_t H = body.shape.heads;
    const std::string& axes = value(body, index).axes;
    if (axes == "BTH" || axes == "BPH") {
      view_ = {bound.gradient, {b.batch, time, H}, {s.batch, s.time, s.head}};
      return;
    }
    per_token_ = arena.take<T>(b.batch * time * H);
    std::fill_n(per_token_, b.batch * time * H, T(0));
    view_ = {per_token_, {b.batch, time, H}, {time * H, H, 1}};
  }
  View<T, 3> view() const { return view_; }
  void finish() {
    if (!per_token_) return;
    Bound<T>& bound = b_.values[static_cast<std::size_t>(index_)];
    const AxisStrides s = axis_strides(value(body_, index_).axes, bound.gradient_stride);
    for (std::ptrdiff_t i = 0; i < view_.extent[0]; ++i)
      for (std::ptrdiff_t t = 0; t < view_.extent[1]; ++t)
        for (std::ptrdiff_t h = 0; h < view_.extent[2]; ++h)
          bound.gradient[i * s.batch + t * s.time + h * s.head] += view_(i, t, h);
  }

 private:
  const Plan::Body& body_;
  Binding<T>& b_;
  int index_;
  T* per_token_ = nullptr;
  View<T, 3> view_;
};

template <class T>
std::size_t workspace_of(const Plan::Body& body, const Step& step, std::int64_t time, Form form, bool backward) {
  if (step.kernel == KernelKind::channel)
    return elementwise::workspace_bytes<T>(1, body.shape.value_dim, time, form, body.chunk, backward);
  const int K = width(body, step.from[Role::k]), V = width(body, step.from[Role::v]);
  switch (step.kernel) {
    case KernelKind::decay:
      return decay::workspace_bytes<T>(K, V, time, form, body.chunk, backward);
    case KernelKind::delta:
      return delta::workspace_bytes<T>(K, V, time, form, body.chunk, backward);
    case KernelKind::gated:
      return gated::workspace_bytes<T>(K, V, time, form, body.chunk, backward);
    case KernelKind::dplr:
      return dplr::workspace_bytes<T>(K, V, time, form, body.chunk, backward);
    case KernelKind::momentum:
      return momentum::workspace_bytes<T>(K, V, time, form, body.chunk, backward);
    case KernelKind::projection:
      return projection::workspace_bytes<T>(K, V, body.pipeline.design.solver.batch, time, form, body.chunk,
                                            backward);
    case KernelKind::least_squares:
      return least_squares::workspace_bytes<T>(K, V, time, backward);
    case KernelKind::channel:
    case KernelKind::oracle:
      return 0;
  }
  return 0;
}

}  // namespace

std::size_t kernel_workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form form, bool backward) {
  return body.options.type == Type::f32 ? workspace_of<float>(body, step, time, form, backward)
                                        : workspace_of<double>(body, step, time, form, backward);
}

template <class T>
Status kernel_forward(const Plan::Body& body, const Step& step, Binding<T>& b, State state, Form form,
                      Workspace work) noexcept {
  const Operands<T> operands(body, step, b);
  const Simd<T>& simd = simd_of<T>(body);
  switch (step.kernel) {
    case KernelKind::decay:
      return decay::forward(operands.problem(state), form, body.chunk, simd, work);
    case KernelKind::delta:
      return delta::forward(operands.problem(state), residual_of(step), form, body.chunk, simd, work);
    case KernelKind::gated:
      return gated::forward(operands.gated(state), form, body.chunk, simd, work);
    case KernelKind::dplr:
      return dplr::forward(operands.dplr(state), form, body.chunk, simd, work);
    case KernelKind::momentum:
      return momentum::forward(operands.momentum(state), form, body.chunk, simd, work);
    case KernelKind::projection:
      return projection::forward(operands.projection(state), form, body.chunk, simd, work);
    case KernelKind::channel:
      return elementwise::forward(operands.channel(state), form, body.chunk, simd, work);
    case KernelKind::least_squares:
      return least_squares::forward(operands.least_squares(state), form, work, body.simd_f64);
    case KernelKind::oracle:
      return oracle_forward(body, step, b, state, state);
  }
  return Status::not_supported;
}

template <class T>
Status kernel_backward(const Plan::Body& body, const Step& step, Binding<T>& b, const Call& call, Form form,
                       Arena arena) noexcept {
  if (step.kernel == KernelKind::oracle)
    return oracle_backward(body, step, b, call.state, call.d_final, call.d_initial);
  const Operands<T> operands(body, step, b);
  const Simd<T>& simd = simd_of<T>(body);
  if (step.kernel == KernelKind::channel)
    return elementwise::backward(operands.channel(call.state), operands.channel_gradient(call), form, body.chunk,
                                 simd, arena.rest());
  LinearGradient<T> d = operands.gradient(call);
  const std::ptrdiff_t time = b.time * step.pairs;
  GateGradient<T> d_g(body, b, step.from[Role::g], time, arena), d_beta(body, b, step.from[Role::beta], time, arena);
  d.d_g = d_g.view(), d.d_beta = d_beta.view();
  const Workspace work = arena.rest();
  const int K = operands.key_dim(), V = operands.value_dim();
  Status status = Status::not_supported;
  switch (step.kernel) {
    case KernelKind::decay:
      status = decay::backward(operands.problem(call.state), d, form, body.chunk, simd, work);
      break;
    case KernelKind::delta:
      status = delta::backward(operands.problem(call.state), d, residual_of(step), form, body.chunk, simd, work);
      break;
    case KernelKind::gated: {
      GatedGradient<T> all;
      static_cast<LinearGradient<T>&>(all) = d;
      all.d_gk = operands.d_channels(Role::gk, K), all.d_gv = operands.d_channels(Role::gv, V);
      all.d_bonus = operands.d_per_head(Role::bonus);
      status = gated::backward(operands.gated(call.state), all, form, body.chunk, simd, work);
      break;
    }
    case KernelKind::dplr: {
      DplrGradient<T> all;
      static_cast<LinearGradient<T>&>(all) = d;
      all.d_gk = operands.d_channels(Role::gk, K);
      all.d_a = operands.d_vectors(Role::a), all.d_b = operands.d_vectors(Role::b);
      status = dplr::backward(operands.dplr(call.state), all, form, body.chunk, simd, work);
      break;
    }
    case KernelKind::momentum: {
      MomentumGradient<T> all;
      all.linear = d;
      all.d_p = operands.d_vectors(Role::a);
      all.d_g_mu = operands.d_scalars(Role::g_mu), all.d_eta = operands.d_scalars(Role::eta);
      all.d_final_momentum = operands.template state<const T>(call.d_final, 1);
      all.d_initial_momentum = operands.template state<T>(call.d_initial, 1);
      status = momentum::backward(operands.momentum(call.state), all, form, body.chunk, simd, work);
      break;
    }
    case KernelKind::projection: {
      ProjectionGradient<T> all;
      all.linear = d;
      if (body.pipeline.design.solver.batch > 1) {
        all.d_final_keys = operands.template state<const T>(call.d_final, 1);
        all.d_final_values = operands.template state<const T>(call.d_final, 2);
        all.d_initial_keys = operands.template state<T>(call.d_initial, 1);
        all.d_initial_values = operands.template state<T>(call.d_initial, 2);
      }
      status = projection::backward(operands.projection(call.state), all, form, body.chunk, simd, work);
      break;
    }
    case KernelKind::least_squares: {
      LeastSquaresGradient<T> all;
      all.linear = d;
      all.d_ridge = operands.d_per_head(Role::ridge);
      all.d_final_h = operands.template state<const double>(call.d_final, 0);
      all.d_final_f = operands.template state<const double>(call.d_final, 1);
      all.d_initial_h = operands.template state<double>(call.d_initial, 0);
      all.d_initial_f = operands.template state<double>(call.d_initial, 1);
      status = least_squares::backward(operands.least_squares(call.state), all, form, work, body.simd_f64);
      break;
    }
    case KernelKind::channel:
    case KernelKind::oracle:
      break;
  }
  d_g.finish(), d_beta.finish();
  return status;
}

template Status kernel_forward<float>(const Plan::Body&, const Step&, Binding<float>&, State, Form,
                                      Workspace) noexcept;
template Status kernel_forward<double>(const Plan::Body&, const Step&, Binding<double>&, State, Form,
                                       Workspace) noexcept;
template Status kernel_backward<float>(const Plan::Body&, const Step&, Binding<float>&, const Call&, Form,
                                       Arena) noexcept;
template Status kernel_backward<double>(const Plan::Body&, const Step&, Binding<double>&, const Call&, Form,
                                        Arena) noexcept;

}  // namespace ttr
