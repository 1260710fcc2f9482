// Running a pipeline: bind the caller's tensors, walk the steps, and for gradients walk them in reverse.
#include <algorithm>
#include <cstring>

#include "plan/bind.h"
#include "plan/kernels.h"

namespace ttr {
namespace {

using families::Sequence;

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
  b.time = std::max<std::ptrdiff_t>(0, length_of(body, *call.inputs, 'T'));
  b.pairs = body.pipeline.own_pairs ? std::max<std::ptrdiff_t>(0, length_of(body, *call.inputs, 'P'))
                                    : b.time * body.pipeline.pairs;
  b.batch = cu.empty() ? body.shape.batch : 1;

  const std::size_t n = static_cast<std::size_t>(body.shape.batch);
  Sequence* sequences = arena.take<Sequence>(static_cast<std::ptrdiff_t>(n));
  for (std::size_t i = 0; i < n; ++i)
    sequences[i] = cu.empty()
                       ? Sequence{static_cast<std::ptrdiff_t>(i), 0, b.time}
                       : Sequence{0, static_cast<std::ptrdiff_t>(cu[i]), static_cast<std::ptrdiff_t>(cu[i + 1])};
  b.sequences = {sequences, n};
  const std::ptrdiff_t pairs = body.pipeline.pairs;
  const auto pair_cu = call.inputs->cu_seqlens_pairs.empty() ? cu : call.inputs->cu_seqlens_pairs;
  Sequence* of_pairs = arena.take<Sequence>(static_cast<std::ptrdiff_t>(n));
  for (std::size_t i = 0; i < n; ++i) {
    of_pairs[i] = {sequences[i].row, sequences[i].begin * pairs, sequences[i].end * pairs};
    if (!body.pipeline.own_pairs) continue;
    of_pairs[i].begin = cu.empty() ? 0 : static_cast<std::ptrdiff_t>(pair_cu[i]);
    of_pairs[i].end = cu.empty() ? b.pairs : static_cast<std::ptrdiff_t>(pair_cu[i + 1]);
  }
  b.pair_sequences = {of_pairs, n};

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
        contiguous(body, v.axes, b.batch, b.time, b.pairs, bound.extent, bound.stride);
        bound.gradient_stride = bound.stride;
        const std::ptrdiff_t count = static_cast<std::ptrdiff_t>(body.elements(v.axes, b.batch, b.time, b.pairs));
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
              output < 0 ? ConstTensor{}
                         : call.d_outputs->get(body.pipeline.outputs[static_cast<std::size_t>(output)].name);
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

// Rows of a value for an operation on `heads` heads.
template <class N, class T>
prepare::Rows<N> rows_at(const Plan::Body& body, int index, N* data,
                         const std::array<std::ptrdiff_t, max_rank>& stride, std::ptrdiff_t heads) {
  const AxisStrides s = axis_strides(value(body, index).axes, stride);
  const int group = std::max(1, static_cast<int>(heads / heads_of(body, index)));
  return {data, s.batch, s.time, s.head, s.inner, group, width(body, index), s.outer, height(body, index)};
}
template <class T>
prepare::Rows<const T> rows(const Plan::Body& body, const Binding<T>& b, int index, std::ptrdiff_t heads) {
  const Bound<T>& bound = b.values[static_cast<std::size_t>(index)];
  return rows_at<const T, T>(body, index, bound.data, bound.stride, heads);
}
template <class T>
prepare::Rows<T> gradient_rows(const Plan::Body& body, const Binding<T>& b, int index, std::ptrdiff_t heads) {
  const Bound<T>& bound = b.values[static_cast<std::size_t>(index)];
  return rows_at<T, T>(body, index, bound.gradient, bound.gradient_stride, heads);
}

// The extent of an operation is that of its result; parameters have no batch and no time.
template <class T>
prepare::Extent operation_extent(const Plan::Body& body, const Binding<T>& b, const Step& step) {
  const std::string& axes = value(body, step.to).axes;
  const auto has = [&](char letter) { return axes.find(letter) != std::string::npos; };
  const bool heads = has('H') || has('G');
  return {has('B') ? b.batch : 1, has('P') ? b.pairs : has('T') ? b.time : 1, heads ? heads_of(body, step.to) : 1};
}

// A matrix operand whose axes stand the other way round than those of a matrix result.
template <class N>
prepare::Rows<N> turned_like(const Plan::Body& body, int to, int index, prepare::Rows<N> rows) {
  const std::string &result = value(body, to).axes, &own = value(body, index).axes;
  const std::size_t n = result.size(), m = own.size();
  if (n < 2 || m < 2 || !is_inner(result[n - 2]) || result[n - 2] != own[m - 1] || result[n - 1] != own[m - 2])
    return rows;
  std::swap(rows.inner, rows.outer), std::swap(rows.width, rows.height);
  return rows;
}

template <class T>
Status operation_forward(const Plan::Body& body, const Step& step, Binding<T>& b) noexcept {
  const prepare::Extent extent = operation_extent(body, b, step);
  prepare::Rows<const T> from[prepare::max_operands];
  for (std::size_t i = 0; i < step.from.size(); ++i)
    from[i] = turned_like(body, step.to, step.from[i], rows(body, b, step.from[i], extent.heads));
  Bound<T>& to = b.values[static_cast<std::size_t>(step.to)];
  const prepare::Rows<T> out = rows_at<T, T>(body, step.to, to.writable, to.stride, extent.heads);
  return prepare::forward(step.op, from, out, step.number, extent);
}

template <class T>
void operation_backward(const Plan::Body& body, const Step& step, Binding<T>& b) noexcept {
  const Bound<T>& to = b.values[static_cast<std::size_t>(step.to)];
  if (!to.gradient_in) return;
  const prepare::Extent extent = operation_extent(body, b, step);
  prepare::Rows<const T> from[prepare::max_operands];
  prepare::Rows<T> d_from[prepare::max_operands];
  for (std::size_t i = 0; i < step.from.size(); ++i) {
    from[i] = turned_like(body, step.to, step.from[i], rows(body, b, step.from[i], extent.heads));
    d_from[i] = turned_like(body, step.to, step.from[i], gradient_rows(body, b, step.from[i], extent.heads));
  }
  const prepare::Rows<const T> d_to =
      rows_at<const T, T>(body, step.to, to.gradient_in, to.gradient_stride, extent.heads);
  prepare::backward(step.op, from, rows(body, b, step.to, extent.heads), d_to, d_from, step.number, extent);
}

template <class T>
void clear(const Tensor& tensor) noexcept {
  if (tensor) for_each_element(tensor, [&](std::ptrdiff_t offset) { static_cast<T*>(tensor.data)[offset] = 0; });
}

// A number outside the domain spoils its own sequence. The steps that follow still run, so that the other sequences
// have their answers and no state is left half way; the call returns out_of_domain in the end. The literal solver
// stops at the first such number and has changed nothing.
bool stops(const Step& step, Status s) noexcept {
  return s != Status::ok && (s != Status::out_of_domain || (step.is_kernel && step.kernel == KernelKind::oracle));
}

template <class T>
Status forward_typed(const Plan::Body& body, const Call& call) noexcept {
  Arena arena(call.workspace);
  Binding<T> b;
  bind(body, call, false, arena, b);
  if (b.time == 0) return Status::ok;
  Status worst = Status::ok;
  for (const Step& step : body.pipeline.steps) {
    const Status s = step.is_kernel ? kernel_forward(body, step, b, call.state, call.form, arena.rest())
                                    : operation_forward(body, step, b);
    if (stops(step, s)) return s;
    if (s != Status::ok) worst = s;
  }
  return worst;
}

// No tokens leave the state as it is, so its gradient is that of the final state.
void pass_on(const Plan::Body& body, const Call& call) noexcept {
  if (!call.d_initial.data || !call.d_final.data) return;
  const std::size_t batch = static_cast<std::size_t>(body.shape.batch);
  if (body.pipeline.history || body.pipeline.counted)
    std::memcpy(call.d_initial.data, call.state.data, batch * sizeof(std::int64_t));
  const auto kept = [&](std::size_t n) {
    return body.pipeline.history ? static_cast<std::ptrdiff_t>(static_cast<const std::int64_t*>(call.state.data)[n])
                                 : 0;
  };
  for (std::size_t i = 0; i < body.pipeline.states.size(); ++i) {
    const StatePart& part = body.pipeline.states[i];
    const StatePlace from = body.state_place(call.d_final.bytes, static_cast<int>(i)),
                     to = body.state_place(call.d_initial.bytes, static_cast<int>(i));
    const std::size_t one = numbers(part) * size_of(part.type);
    const auto rows = [&](std::ptrdiff_t capacity) {
      return part.history ? one * static_cast<std::size_t>(capacity) : one;
    };
    for (std::size_t n = 0; n < batch; ++n)
      std::memcpy(static_cast<std::byte*>(call.d_initial.data) + to.offset + n * rows(to.capacity),
                  static_cast<const std::byte*>(call.d_final.data) + from.offset + n * rows(from.capacity),
                  rows(std::min({from.capacity, to.capacity, kept(n)})));
  }
}

template <class T>
Status backward_typed(const Plan::Body& body, const Call& call) noexcept {
  Arena arena(call.workspace);
  Binding<T> b;
  for (const InputInfo& info : body.pipeline.inputs) clear<T>(call.d_inputs->get(info.name));
  if (call.d_initial.data) std::memset(call.d_initial.data, 0, call.d_initial.bytes);
  bind(body, call, true, arena, b);
  if (b.time == 0) {
    pass_on(body, call);
    return Status::ok;
  }
  const std::vector<Step>& steps = body.pipeline.steps;

  // The values that gradients need. A kernel's output is needed only if an operation follows; it then runs on a copy
  // of the initial state.
  Status worst = Status::ok;
  std::byte* copy = nullptr;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Status s = Status::ok;
    if (!steps[i].is_kernel) {
      s = operation_forward(body, steps[i], b);
      if (stops(steps[i], s)) return s;
      if (s != Status::ok) worst = s;
      continue;
    }
    if (i + 1 == steps.size()) continue;
    if (steps[i].kernel == KernelKind::oracle || keeps_pairs(steps[i].kernel)) {
      s = kernel_forward(body, steps[i], b, call.state, call.form, arena.rest(), false);
    } else {
      const std::size_t bytes = body.state_bytes(0);
      if (!copy) {
        copy = arena.take<std::byte>(static_cast<std::ptrdiff_t>(bytes));
        std::memcpy(copy, call.state.data, bytes);
      }
      s = kernel_forward(body, steps[i], b, {copy, bytes}, call.form, arena.rest());
    }
    if (stops(steps[i], s)) return s;
    if (s != Status::ok) worst = s;
  }
  for (std::size_t i = steps.size(); i-- > 0;) {
    if (!steps[i].is_kernel) {
      operation_backward(body, steps[i], b);
      continue;
    }
    const Status s = kernel_backward(body, steps[i], b, call, call.form, arena);
    if (stops(steps[i], s)) return s;
    if (s != Status::ok) worst = s;
  }
  return worst;
}

}  // namespace

std::size_t workspace_bytes(const Plan::Body& body, std::int64_t time, std::int64_t pairs, Form form, bool backward) {
  const std::ptrdiff_t batch = body.shape.batch;
  const std::ptrdiff_t size = static_cast<std::ptrdiff_t>(size_of(body.options.type));
  Arena arena;  // counts
  arena.take<Sequence>(batch), arena.take<Sequence>(batch);
  bool operation_follows = false, has_gates = false;
  for (std::size_t i = 0; i < body.pipeline.values.size(); ++i) {
    const Value& v = body.pipeline.values[i];
    if (v.from != Value::From::step) continue;
    const std::ptrdiff_t bytes = static_cast<std::ptrdiff_t>(body.elements(v.axes, batch, time, pairs)) * size;
    for (int copies = backward ? 2 : 1; copies > 0; --copies) arena.take<std::byte>(bytes);
  }
  std::size_t kernel = 0;
  const std::vector<Step>& steps = body.pipeline.steps;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (!step.is_kernel || step.kernel == KernelKind::oracle) continue;
    operation_follows |= i + 1 < steps.size();
    has_gates |= step.from[Role::g] >= 0 || step.from[Role::beta] >= 0;
    const std::int64_t longest = body.pipeline.own_pairs ? std::max(time, pairs) : time * step.pairs;
    kernel = std::max({kernel, kernel_workspace(body, step, longest, form, false),
                       backward ? kernel_workspace(body, step, longest, form, true) : 0});
  }
  if (backward && operation_follows) arena.take<std::byte>(static_cast<std::ptrdiff_t>(body.state_bytes(0)));
  if (backward && has_gates)  // of g and of beta
    for (int gate = 0; gate < 2; ++gate)
      arena.take<std::byte>(batch * time * body.pipeline.pairs * body.shape.heads * size);
  return arena.bytes() + kernel;
}

Status run_forward(const Plan::Body& body, const Call& call) noexcept {
  return body.options.type == Type::f32 ? forward_typed<float>(body, call) : forward_typed<double>(body, call);
}
Status run_backward(const Plan::Body& body, const Call& call) noexcept {
  return body.options.type == Type::f32 ? backward_typed<float>(body, call) : backward_typed<double>(body, call);
}

}  // namespace ttr
