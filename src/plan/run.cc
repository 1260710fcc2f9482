// Running a pipeline: bind the caller's tensors, walk the steps, and for gradients walk them in reverse.
#include <algorithm>
#include <cstring>

#include "families/decay.h"
#include "families/delta.h"
#include "families/dplr.h"
#include "families/gated.h"
#include "families/least_squares.h"
#include "plan/bind.h"

namespace ttr {
namespace {

using families::LeastSquaresGradient;
using families::LeastSquaresProblem;
using families::LinearGradient;
using families::LinearProblem;
using families::Residual;
using families::Sequence;

template <class T>
const Simd<T>& simd_of(const Plan::Body& body) {
  if constexpr (sizeof(T) == 4)
    return *body.simd_f32;
  else
    return *body.simd_f64;
}

const Value& value(const Plan::Body& body, int index) { return body.pipeline.values[static_cast<std::size_t>(index)]; }

// Extent of the last axis of a value for a kernel's K or V.
int width(const Plan::Body& body, int index) {
  const std::string& axes = value(body, index).axes;
  if (axes.empty()) return 1;
  const char last = axes.back();
  return last == 'K' || last == 'V' || last == '1' ? static_cast<int>(body.extent(last, 1, 1)) : 1;
}

// Heads of a value for a kernel: H, G, or (constants) one for all.
int heads_of(const Plan::Body& body, int index) {
  for (char axis : value(body, index).axes)
    if (axis == 'H' || axis == 'G') return static_cast<int>(body.extent(axis, 1, 1));
  return body.shape.heads;
}

std::ptrdiff_t time_of(const Plan::Body& body, const Inputs& inputs) {
  for (const InputInfo& info : body.pipeline.inputs) {
    const ConstTensor tensor = inputs.get(info.name);
    int axis = 0;
    for (char letter : info.shape) {
      if (letter == ' ') continue;
      if (letter == 'T' && tensor && axis < tensor.rank) return tensor.extent[static_cast<std::size_t>(axis)];
      ++axis;
    }
  }
  return 0;
}

// Which output a value is, or -1.
int output_of(const Plan::Body& body, int index) {
  const std::vector<int>& outputs = body.pipeline.output_values;
  const auto found = std::find(outputs.begin(), outputs.end(), index);
  return found == outputs.end() ? -1 : static_cast<int>(found - outputs.begin());
}

// Whether a step reads the value.
bool is_read(const Plan::Body& body, int index) {
  for (const Step& step : body.pipeline.steps)
    if (std::find(step.from.begin(), step.from.end(), index) != step.from.end()) return true;
  return false;
}

// Visits the elements of a tensor in row-major order: visit(offset in elements).
template <class AnyTensor, class Visit>
void for_each_element(const AnyTensor& tensor, Visit&& visit) noexcept {
  std::array<std::ptrdiff_t, max_rank> at{};
  const std::size_t rank = static_cast<std::size_t>(tensor.rank);
  for (std::size_t d = 0; d < rank; ++d)
    if (tensor.extent[d] == 0) return;
  for (;;) {
    std::ptrdiff_t offset = 0;
    for (std::size_t d = 0; d < rank; ++d) offset += at[d] * tensor.stride[d];
    visit(offset);
    std::size_t d = rank;
    while (d > 0 && ++at[d - 1] == tensor.extent[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

// dense += the strided tensor
template <class T>
void add_strided(const ConstTensor& tensor, const T* data, T* dense) noexcept {
  for_each_element(tensor, [&](std::ptrdiff_t offset) { *dense++ += data[offset]; });
}

// The workspace is large enough: check_call has asked workspace_bytes, which counts the same pieces.
template <class T>
void bind(const Plan::Body& body, const Call& call, bool backward, Arena& arena, Binding<T>& b) noexcept {
  const auto cu = call.inputs->cu_seqlens;
  b.time = time_of(body, *call.inputs);
  b.batch = cu.empty() ? body.shape.batch : 1;

  const std::size_t n = static_cast<std::size_t>(body.shape.batch);
  Sequence* sequences = arena.take<Sequence>(static_cast<std::ptrdiff_t>(n));
  for (std::size_t i = 0; i < n; ++i)
    sequences[i] = cu.empty() ? Sequence{static_cast<std::ptrdiff_t>(i), 0, b.time}
                              : Sequence{0, static_cast<std::ptrdiff_t>(cu[i]), static_cast<std::ptrdiff_t>(cu[i + 1])};
  b.sequences = {sequences, n};

  for (std::size_t i = 0; i < body.pipeline.values.size(); ++i) {
    const Value& v = body.pipeline.values[i];
    Bound<T>& bound = b.values[i];
    switch (v.from) {
      case Value::From::input: {
        if (v.input < 0) break;  // nothing reads it
        const std::string& name = body.pipeline.inputs[static_cast<std::size_t>(v.input)].name;
        const ConstTensor tensor = call.inputs->get(name);
        bound.data = static_cast<const T*>(tensor.data);
        bound.extent = tensor.extent, bound.stride = tensor.stride;
        if (backward) {
          const Tensor gradient = call.d_inputs->get(name);
          bound.gradient = static_cast<T*>(gradient.data);
          bound.gradient_stride = gradient.stride;
        }
        break;
      }
      case Value::From::constant:
      case Value::From::table:
        bound.data = constants<T>(body) + body.constant_offset[i];
        if (v.from == Value::From::table) bound.extent[0] = body.shape.heads, bound.stride[0] = 1;
        break;
      case Value::From::step: {
        const int output = output_of(body, static_cast<int>(i));
        contiguous(body, v.axes, b.batch, b.time, bound.extent, bound.stride);
        bound.gradient_stride = bound.stride;
        const std::ptrdiff_t count = static_cast<std::ptrdiff_t>(body.elements(v.axes, b.batch, b.time));
        if (output >= 0 && !backward) {
          const Tensor out = call.outputs->get(body.pipeline.outputs[static_cast<std::size_t>(output)].name);
          if (out) {
            bound.writable = static_cast<T*>(out.data);
            bound.stride = out.stride;
            bound.data = bound.writable;
            break;
          }
        }
        bound.writable = arena.take<T>(count);
        bound.data = bound.writable;
        if (backward) {
          const ConstTensor d_out =
              output < 0 ? ConstTensor{} : call.d_outputs->get(body.pipeline.outputs[static_cast<std::size_t>(output)].name);
          if (output >= 0 && !is_read(body, static_cast<int>(i))) {  // the caller's gradient is all of it
            bound.gradient_in = static_cast<const T*>(d_out.data);
            if (d_out) bound.gradient_stride = d_out.stride;
            break;
          }
          bound.gradient = arena.take<T>(count);
          std::fill_n(bound.gradient, count, T(0));
          bound.gradient_in = bound.gradient;
          if (d_out) add_strided(d_out, static_cast<const T*>(d_out.data), bound.gradient);
        }
      }
    }
  }
}

template <class T>
prepare::Rows<const T> rows(const Plan::Body& body, const Binding<T>& b, int index, std::ptrdiff_t heads) {
  const Bound<T>& bound = b.values[static_cast<std::size_t>(index)];
  const AxisStrides s = axis_strides(value(body, index).axes, bound.stride);
  const int own = heads_of(body, index);
  return {bound.data, s.batch, s.time, s.head, s.inner, static_cast<int>(heads / own), width(body, index)};
}
template <class T>
prepare::Rows<T> gradient_rows(const Plan::Body& body, const Binding<T>& b, int index, std::ptrdiff_t heads) {
  const Bound<T>& bound = b.values[static_cast<std::size_t>(index)];
  const AxisStrides s = axis_strides(value(body, index).axes, bound.gradient_stride);
  const int own = heads_of(body, index);
  return {bound.gradient, s.batch, s.time, s.head, s.inner, static_cast<int>(heads / own), width(body, index)};
}

// The extent of an operation is that of its result.
template <class T>
prepare::Extent operation_extent(const Plan::Body& body, const Binding<T>& b, const Step& step) {
  return {b.batch, b.time, heads_of(body, step.to)};
}

template <class T>
Status operation_forward(const Plan::Body& body, const Step& step, Binding<T>& b) noexcept {
  const prepare::Extent extent = operation_extent(body, b, step);
  prepare::Rows<const T> from[prepare::max_operands];
  for (std::size_t i = 0; i < step.from.size(); ++i) from[i] = rows(body, b, step.from[i], extent.heads);
  Bound<T>& to = b.values[static_cast<std::size_t>(step.to)];
  const AxisStrides s = axis_strides(value(body, step.to).axes, to.stride);
  const prepare::Rows<T> out{to.writable, s.batch, s.time, s.head, s.inner, 1, width(body, step.to)};
  return prepare::forward(step.op, from, out, step.eps, extent);
}

template <class T>
void operation_backward(const Plan::Body& body, const Step& step, Binding<T>& b) noexcept {
  const Bound<T>& to = b.values[static_cast<std::size_t>(step.to)];
  if (!to.gradient_in) return;
  const prepare::Extent extent = operation_extent(body, b, step);
  prepare::Rows<const T> from[prepare::max_operands];
  prepare::Rows<T> d_from[prepare::max_operands];
  for (std::size_t i = 0; i < step.from.size(); ++i) {
    from[i] = rows(body, b, step.from[i], extent.heads);
    d_from[i] = gradient_rows(body, b, step.from[i], extent.heads);
  }
  const AxisStrides s = axis_strides(value(body, step.to).axes, to.gradient_stride);
  const prepare::Rows<const T> d_to{to.gradient_in, s.batch, s.time, s.head, s.inner, 1, width(body, step.to)};
  prepare::backward(step.op, from, rows(body, b, step.to, extent.heads), d_to, d_from, step.eps, extent);
}

template <class T>
View<const T, 4> view4(const Plan::Body& body, const Binding<T>& b, int index) {
  if (index < 0) return {};
  const Bound<T>& bound = b.values[static_cast<std::size_t>(index)];
  const AxisStrides s = axis_strides(value(body, index).axes, bound.stride);
  return {bound.data, {b.batch, b.time, heads_of(body, index), width(body, index)}, {s.batch, s.time, s.head, s.inner}};
}
template <class T>
View<const T, 3> view3(const Plan::Body& body, const Binding<T>& b, int index) {
  if (index < 0) return {};
  const Bound<T>& bound = b.values[static_cast<std::size_t>(index)];
  const AxisStrides s = axis_strides(value(body, index).axes, bound.stride);
  return {bound.data, {b.batch, b.time, body.shape.heads}, {s.batch, s.time, s.head}};
}
template <class T>
View<T, 4> gradient4(const Plan::Body& body, const Binding<T>& b, int index) {
  if (index < 0) return {};
  const Bound<T>& bound = b.values[static_cast<std::size_t>(index)];
  const AxisStrides s = axis_strides(value(body, index).axes, bound.gradient_stride);
  return {bound.gradient, {b.batch, b.time, heads_of(body, index), width(body, index)}, {s.batch, s.time, s.head, s.inner}};
}

template <class T>
LinearProblem<T> linear_problem(const Plan::Body& body, const Step& step, const Binding<T>& b) {
  LinearProblem<T> p;
  p.sequences = b.sequences;
  p.heads = body.shape.heads, p.key_heads = heads_of(body, step.from[Role::k]);
  p.key_dim = width(body, step.from[Role::k]), p.value_dim = width(body, step.from[Role::v]);
  p.scale = static_cast<T>(step.scale);
  p.q = view4(body, b, step.from[Role::q]), p.k = view4(body, b, step.from[Role::k]);
  p.v = view4(body, b, step.from[Role::v]);
  p.g = view3(body, b, step.from[Role::g]), p.beta = view3(body, b, step.from[Role::beta]);
  const Bound<T>& to = b.values[static_cast<std::size_t>(step.to)];
  const AxisStrides s = axis_strides(value(body, step.to).axes, to.stride);
  p.o = {to.writable, {b.batch, b.time, p.heads, p.value_dim}, {s.batch, s.time, s.head, s.inner}};
  p.state = nullptr;
  return p;
}

// The address of a state part in the caller's buffer.
template <class T, class AnyState>
T* state_part(const Plan::Body& body, AnyState state, int index) {
  if (!state.data) return nullptr;
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return reinterpret_cast<T*>(static_cast<Byte*>(state.data) + body.state_place(state.bytes, index).offset);
}

template <class T>
LeastSquaresProblem<T> least_squares_problem(const Plan::Body& body, const Step& step, const Binding<T>& b, State state) {
  LeastSquaresProblem<T> p;
  p.linear = linear_problem(body, step, b);
  const Bound<T>& ridge = b.values[static_cast<std::size_t>(step.from[Role::ridge])];
  const AxisStrides s = axis_strides(value(body, step.from[Role::ridge]).axes, ridge.stride);
  p.ridge = {ridge.data, {p.linear.heads, p.linear.key_dim}, {s.head, s.inner}};
  p.h = state_part<double>(body, state, step.state);
  p.f = state_part<double>(body, state, step.state + 1);
  return p;
}

Residual residual_of(const Step& step) {
  return step.undecayed ? Residual::undecayed : Residual::decayed;
}

// A gate may be one number per head: it is then seen as a vector whose channels are the same number.
template <class T>
View<const T, 4> channels(const Plan::Body& body, const Binding<T>& b, int index, int width_wanted) {
  View<const T, 4> v = view4(body, b, index);
  if (v) v.extent[2] = body.shape.heads, v.extent[3] = width_wanted;
  return v;
}
template <class T>
View<T, 4> gradient_channels(const Plan::Body& body, const Binding<T>& b, int index, int width_wanted) {
  View<T, 4> v = gradient4(body, b, index);
  if (v) v.extent[2] = body.shape.heads, v.extent[3] = width_wanted;
  return v;
}

template <class T>
families::GatedProblem<T> gated_problem(const Plan::Body& body, const Step& step, const Binding<T>& b, State state) {
  families::GatedProblem<T> p;
  static_cast<LinearProblem<T>&>(p) = linear_problem(body, step, b);
  p.state = state_part<T>(body, state, step.state);
  p.gk = channels(body, b, step.from[Role::gk], p.key_dim), p.gv = channels(body, b, step.from[Role::gv], p.value_dim);
  if (const int bonus = step.from[Role::bonus]; bonus >= 0) {
    const Bound<T>& bound = b.values[static_cast<std::size_t>(bonus)];
    const AxisStrides s = axis_strides(value(body, bonus).axes, bound.stride);
    p.bonus = {bound.data, {p.heads, p.key_dim}, {s.head, s.inner}};
  }
  p.read_before = step.read_before;
  return p;
}

template <class T>
families::DplrProblem<T> dplr_problem(const Plan::Body& body, const Step& step, const Binding<T>& b, State state) {
  families::DplrProblem<T> p;
  static_cast<LinearProblem<T>&>(p) = linear_problem(body, step, b);
  p.state = state_part<T>(body, state, step.state);
  p.gk = channels(body, b, step.from[Role::gk], p.key_dim);
  p.a = view4(body, b, step.from[Role::a]), p.b = view4(body, b, step.from[Role::b]);
  p.decayed_read = !step.undecayed;
  return p;
}

template <class T>
Status kernel_forward(const Plan::Body& body, const Step& step, Binding<T>& b, State state, Form form,
                      Workspace workspace) noexcept {
  if (step.kernel == KernelKind::oracle) return oracle_forward(body, step, b, state, state);
  if (step.kernel == KernelKind::least_squares)
    return families::least_squares::forward(least_squares_problem(body, step, b, state), form, workspace, body.simd_f64);
  if (step.kernel == KernelKind::gated)
    return families::gated::forward(gated_problem(body, step, b, state), form, body.chunk, simd_of<T>(body), workspace);
  if (step.kernel == KernelKind::dplr)
    return families::dplr::forward(dplr_problem(body, step, b, state), form, body.chunk, simd_of<T>(body), workspace);
  LinearProblem<T> p = linear_problem(body, step, b);
  p.state = state_part<T>(body, state, step.state);
  if (step.kernel == KernelKind::decay) return families::decay::forward(p, form, body.chunk, simd_of<T>(body), workspace);
  return families::delta::forward(p, residual_of(step), form, body.chunk, simd_of<T>(body), workspace);
}

// Gates may be constant in time (one number per head): the kernel then writes a gradient per token, summed here.
template <class T>
class GateGradient {
 public:
  GateGradient(const Plan::Body& body, Binding<T>& b, int index, Arena& arena) noexcept : body_(body), b_(b), index_(index) {
    if (index < 0) return;
    const Bound<T>& bound = b.values[static_cast<std::size_t>(index)];
    if (!bound.gradient) return;
    const AxisStrides s = axis_strides(value(body, index).axes, bound.gradient_stride);
    const std::ptrdiff_t H = body.shape.heads;
    if (value(body, index).axes == "BTH") {
      view_ = {bound.gradient, {b.batch, b.time, H}, {s.batch, s.time, s.head}};
      return;
    }
    per_token_ = arena.take<T>(b.batch * b.time * H);
    std::fill_n(per_token_, b.batch * b.time * H, T(0));
    view_ = {per_token_, {b.batch, b.time, H}, {b.time * H, H, 1}};
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
Status vector_backward(const Plan::Body& body, const Step& step, Binding<T>& b, const Call& call, const LinearGradient<T>& d,
                       Form form, Workspace workspace) noexcept {
  const int K = width(body, step.from[Role::k]), V = width(body, step.from[Role::v]);
  if (step.kernel == KernelKind::gated) {
    families::GatedGradient<T> dg;
    static_cast<LinearGradient<T>&>(dg) = d;
    dg.d_gk = gradient_channels(body, b, step.from[Role::gk], K), dg.d_gv = gradient_channels(body, b, step.from[Role::gv], V);
    if (const int bonus = step.from[Role::bonus]; bonus >= 0) {
      const Bound<T>& bound = b.values[static_cast<std::size_t>(bonus)];
      const AxisStrides s = axis_strides(value(body, bonus).axes, bound.gradient_stride);
      dg.d_bonus = {bound.gradient, {body.shape.heads, K}, {s.head, s.inner}};
    }
    return families::gated::backward(gated_problem(body, step, b, call.state), dg, form, body.chunk, simd_of<T>(body), workspace);
  }
  families::DplrGradient<T> dd;
  static_cast<LinearGradient<T>&>(dd) = d;
  dd.d_gk = gradient_channels(body, b, step.from[Role::gk], K);
  dd.d_a = gradient4(body, b, step.from[Role::a]), dd.d_b = gradient4(body, b, step.from[Role::b]);
  return families::dplr::backward(dplr_problem(body, step, b, call.state), dd, form, body.chunk, simd_of<T>(body), workspace);
}

template <class T>
Status kernel_backward(const Plan::Body& body, const Step& step, Binding<T>& b, const Call& call, Form form,
                       Arena arena) noexcept {
  if (step.kernel == KernelKind::oracle)
    return oracle_backward(body, step, b, call.state, call.d_final, call.d_initial);
  const Bound<T>& to = b.values[static_cast<std::size_t>(step.to)];
  const AxisStrides s = axis_strides(value(body, step.to).axes, to.gradient_stride);
  LinearGradient<T> d;
  d.d_o = {to.gradient_in, {b.batch, b.time, body.shape.heads, width(body, step.to)}, {s.batch, s.time, s.head, s.inner}};
  d.d_q = gradient4(body, b, step.from[Role::q]), d.d_k = gradient4(body, b, step.from[Role::k]);
  d.d_v = gradient4(body, b, step.from[Role::v]);
  GateGradient<T> d_g(body, b, step.from[Role::g], arena), d_beta(body, b, step.from[Role::beta], arena);
  d.d_g = d_g.view(), d.d_beta = d_beta.view();
  Status status;
  if (step.kernel == KernelKind::least_squares) {
    const LeastSquaresProblem<T> p = least_squares_problem(body, step, b, call.state);
    LeastSquaresGradient<T> ls;
    ls.linear = d;
    const Bound<T>& ridge = b.values[static_cast<std::size_t>(step.from[Role::ridge])];
    const AxisStrides rs = axis_strides(value(body, step.from[Role::ridge]).axes, ridge.gradient_stride);
    ls.d_ridge = {ridge.gradient, {p.linear.heads, p.linear.key_dim}, {rs.head, rs.inner}};
    ls.d_final_h = state_part<const double>(body, call.d_final, step.state);
    ls.d_final_f = state_part<const double>(body, call.d_final, step.state + 1);
    ls.d_initial_h = state_part<double>(body, call.d_initial, step.state);
    ls.d_initial_f = state_part<double>(body, call.d_initial, step.state + 1);
    status = families::least_squares::backward(p, ls, form, arena.rest(), body.simd_f64);
  } else {
    d.d_final = state_part<const T>(body, call.d_final, step.state);
    d.d_initial = state_part<T>(body, call.d_initial, step.state);
    if (step.kernel == KernelKind::gated || step.kernel == KernelKind::dplr) {
      status = vector_backward(body, step, b, call, d, form, arena.rest());
      d_beta.finish();
      return status;
    }
    LinearProblem<T> p = linear_problem(body, step, b);
    p.state = state_part<T>(body, call.state, step.state);
    status = step.kernel == KernelKind::decay
                 ? families::decay::backward(p, d, form, body.chunk, simd_of<T>(body), arena.rest())
                 : families::delta::backward(p, d, residual_of(step), form, body.chunk, simd_of<T>(body), arena.rest());
  }
  d_g.finish(), d_beta.finish();
  return status;
}

template <class T>
void clear(const Tensor& tensor) noexcept {
  if (tensor) for_each_element(tensor, [&](std::ptrdiff_t offset) { static_cast<T*>(tensor.data)[offset] = 0; });
}

template <class T>
Status forward_typed(const Plan::Body& body, const Call& call) noexcept {
  Arena arena(call.workspace);
  Binding<T> b;
  bind(body, call, false, arena, b);
  if (b.time == 0) return Status::ok;
  for (const Step& step : body.pipeline.steps) {
    const Status s = step.is_kernel ? kernel_forward(body, step, b, call.state, call.form, arena.rest())
                                    : operation_forward(body, step, b);
    if (s != Status::ok) return s;
  }
  return Status::ok;
}

template <class T>
Status backward_typed(const Plan::Body& body, const Call& call) noexcept {
  Arena arena(call.workspace);
  Binding<T> b;
  for (const InputInfo& info : body.pipeline.inputs) clear<T>(call.d_inputs->get(info.name));
  if (call.d_initial.data) std::memset(call.d_initial.data, 0, call.d_initial.bytes);
  bind(body, call, true, arena, b);
  const std::vector<Step>& steps = body.pipeline.steps;

  // The values that gradients need. A kernel's output is needed only if an operation follows; it then runs on a copy of
  // the initial state.
  std::byte* copy = nullptr;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!steps[i].is_kernel) {
      if (const Status s = operation_forward(body, steps[i], b); s != Status::ok) return s;
      continue;
    }
    if (i + 1 == steps.size()) continue;
    Status s;
    if (steps[i].kernel == KernelKind::oracle) {
      s = oracle_forward(body, steps[i], b, call.state, {});
    } else {
      const std::size_t bytes = body.state_bytes(0);
      if (!copy) {
        copy = arena.take<std::byte>(static_cast<std::ptrdiff_t>(bytes));
        std::memcpy(copy, call.state.data, bytes);
      }
      s = kernel_forward(body, steps[i], b, {copy, bytes}, call.form, arena.rest());
    }
    if (s != Status::ok) return s;
  }
  for (std::size_t i = steps.size(); i-- > 0;) {
    if (!steps[i].is_kernel) {
      operation_backward(body, steps[i], b);
      continue;
    }
    const Status s = kernel_backward(body, steps[i], b, call, call.form, arena);
    if (s != Status::ok) return s;
  }
  return Status::ok;
}

}  // namespace

std::size_t workspace_bytes(const Plan::Body& body, std::int64_t time, Form form, bool backward) {
  const std::ptrdiff_t batch = body.shape.batch;
  const std::ptrdiff_t size = static_cast<std::ptrdiff_t>(size_of(body.options.type));
  Arena arena;  // counts
  arena.take<Sequence>(batch);
  bool operation_follows = false, has_gates = false;
  for (std::size_t i = 0; i < body.pipeline.values.size(); ++i) {
    const Value& v = body.pipeline.values[i];
    if (v.from != Value::From::step) continue;
    const std::ptrdiff_t bytes = static_cast<std::ptrdiff_t>(body.elements(v.axes, batch, time)) * size;
    for (int copies = backward ? 2 : 1; copies > 0; --copies) arena.take<std::byte>(bytes);
  }
  std::size_t kernel = 0;
  const std::vector<Step>& steps = body.pipeline.steps;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (!step.is_kernel || step.kernel == KernelKind::oracle) continue;
    operation_follows |= i + 1 < steps.size();
    has_gates |= step.from[Role::g] >= 0 || step.from[Role::beta] >= 0;
    const int K = width(body, step.from[Role::k]), V = width(body, step.from[Role::v]);
    const auto with = [&](bool back) {
      if (step.kernel == KernelKind::least_squares)
        return body.options.type == Type::f32
                   ? families::least_squares::workspace_bytes<float>(K, V, time, back)
                   : families::least_squares::workspace_bytes<double>(K, V, time, back);
      if (step.kernel == KernelKind::gated)
        return body.options.type == Type::f32
                   ? families::gated::workspace_bytes<float>(K, V, time, form, body.chunk, back)
                   : families::gated::workspace_bytes<double>(K, V, time, form, body.chunk, back);
      if (step.kernel == KernelKind::dplr)
        return body.options.type == Type::f32
                   ? families::dplr::workspace_bytes<float>(K, V, time, form, body.chunk, back)
                   : families::dplr::workspace_bytes<double>(K, V, time, form, body.chunk, back);
      if (step.kernel == KernelKind::decay)
        return body.options.type == Type::f32
                   ? families::decay::workspace_bytes<float>(K, V, time, form, body.chunk, back)
                   : families::decay::workspace_bytes<double>(K, V, time, form, body.chunk, back);
      return body.options.type == Type::f32
                 ? families::delta::workspace_bytes<float>(K, V, time, form, body.chunk, back)
                 : families::delta::workspace_bytes<double>(K, V, time, form, body.chunk, back);
    };
    kernel = std::max({kernel, with(false), backward ? with(true) : 0});
  }
  if (backward && operation_follows) arena.take<std::byte>(static_cast<std::ptrdiff_t>(body.state_bytes(0)));
  if (backward && has_gates)  // of g and of beta
    for (int gate = 0; gate < 2; ++gate) arena.take<std::byte>(batch * time * body.shape.heads * size);
  return arena.bytes() + kernel;
}

Status run_forward(const Plan::Body& body, const Call& call) noexcept {
  return body.options.type == Type::f32 ? forward_typed<float>(body, call) : forward_typed<double>(body, call);
}
Status run_backward(const Plan::Body& body, const Call& call) noexcept {
  return body.options.type == Type::f32 ? backward_typed<float>(body, call) : backward_typed<double>(body, call);
}

}  // namespace ttr
