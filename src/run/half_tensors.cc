#include "run/half_tensors.h"

#include <algorithm>
#include <new>

#include "run/bind.h"
#include "run/execute.h"
#include "run/time_blocks.h"
#include "simd/half_simd.h"

namespace ttr {
namespace {

bool is_half(Type type) { return type == Type::bf16 || type == Type::f16; }

// Calls row(of the caller, of the copy, numbers) for every row of the tokens. Numbers of the caller lie step_of(..)
// apart, those of the copy beside each other.
template <class Row>
void each_row(const HalfTensor& h, std::ptrdiff_t begin, std::ptrdiff_t end, Row&& row) {
  PerAxis extent = h.extent;
  std::uint16_t* data = static_cast<std::uint16_t*>(h.data);
  if (h.time_axis >= 0) {
    const auto d = static_cast<std::size_t>(h.time_axis);
    extent[d] = std::min((end - begin) * h.pairs, extent[d] - begin * h.pairs);
    data += begin * h.pairs * h.stride[d];
  }
  for_each_row<2>(h.rank, extent, {&h.stride, &h.copy_stride}, [&](const auto& offset, std::ptrdiff_t count) {
    row(data + offset[0], h.copy + offset[1], count);
  });
}

void widen(const HalfTensor& h, const HalfSimd& s, std::ptrdiff_t begin, std::ptrdiff_t end) noexcept {
  const auto convert = h.type == Type::bf16 ? s.widen_bf16 : s.widen_f16;
  if (h.flat > 0) return convert(h.flat, static_cast<const std::uint16_t*>(h.data), h.copy);
  const std::ptrdiff_t step = step_of(h.rank, h.stride);
  each_row(h, begin, end, [&](const std::uint16_t* theirs, float* own, std::ptrdiff_t n) {
    if (step == 1) return convert(n, theirs, own);
    for (std::ptrdiff_t i = 0; i < n; ++i) convert(1, theirs + i * step, own + i);
  });
}

void narrow(const HalfTensor& h, const HalfSimd& s, std::ptrdiff_t begin, std::ptrdiff_t end) noexcept {
  const auto convert = h.type == Type::bf16 ? s.narrow_bf16 : s.narrow_f16;
  if (h.flat > 0) return convert(h.flat, h.copy, static_cast<std::uint16_t*>(h.data));
  const std::ptrdiff_t step = step_of(h.rank, h.stride);
  each_row(h, begin, end, [&](std::uint16_t* theirs, const float* own, std::ptrdiff_t n) {
    if (step == 1) return convert(n, own, theirs);
    for (std::ptrdiff_t i = 0; i < n; ++i) convert(1, own + i, theirs + i * step);
  });
}

// All numbers of a tensor, if they lie in one row.
std::ptrdiff_t numbers_together(const HalfTensor& h) {
  std::ptrdiff_t rows = 0, numbers = 0;
  for_each_row<2>(h.rank, h.extent, {&h.stride, &h.copy_stride},
                  [&](const auto&, std::ptrdiff_t count) { ++rows, numbers = count; });
  return rows == 1 && step_of(h.rank, h.stride) == 1 ? numbers : 0;
}

// A tensor of the caller as a call on tokens begin .. end-1 sees it: a view of these tokens, of a half type a view of
// the copy. `length` tokens have room in the copy.
template <class AnyTensor>
AnyTensor part_of(const Plan::Body& body, const Axes& axes, AnyTensor tensor, std::ptrdiff_t begin,
                  std::ptrdiff_t end, std::ptrdiff_t length, Arena& arena, HalfTensor* half) noexcept {
  using Byte = std::conditional_t<std::is_same_v<AnyTensor, ConstTensor>, const std::byte, std::byte>;
  *half = {};
  half->rank = tensor.rank, half->type = tensor.type, half->extent = tensor.extent, half->stride = tensor.stride;
  for (std::size_t d = 0; d < axes.size() && static_cast<int>(d) < tensor.rank; ++d) {
    if (axes[d] != 'T' && (axes[d] != 'P' || body.pipeline.noncausal)) continue;
    half->time_axis = static_cast<int>(d), half->pairs = axes[d] == 'P' ? body.pipeline.pairs : 1;
    tensor.extent[d] = std::min((end - begin) * half->pairs, tensor.extent[d]);
  }
  if (!is_half(tensor.type)) {
    if (half->time_axis >= 0 && tensor.data)
      tensor.data = static_cast<Byte*>(tensor.data) + begin * half->pairs *
                                                          half->stride[static_cast<std::size_t>(half->time_axis)] *
                                                          static_cast<std::ptrdiff_t>(size_of(tensor.type));
    return tensor;
  }
  half->data = const_cast<void*>(static_cast<const void*>(tensor.data));
  std::ptrdiff_t count = 1;
  for (std::size_t d = static_cast<std::size_t>(tensor.rank); d-- > 0;) {
    const bool timed = static_cast<int>(d) == half->time_axis;
    half->copy_stride[d] = count;
    count *= timed ? std::min(length * half->pairs, half->extent[d]) : half->extent[d];
  }
  half->copy = arena.take<float>(count);
  tensor.data = half->data ? half->copy : nullptr;
  tensor.type = Type::f32, tensor.stride = half->copy_stride;
  return tensor;
}

// The levels of a log-linear weight on the oracle: as many as the caller's tensor has. 64 are enough for any number of
// tokens; with more a call finds its workspace too small.
bool has_free_extent(const Plan::Body& body, const Axes& axes) {
  return axes.has('L') && !body.pipeline.letters.contains('L');
}
constexpr std::ptrdiff_t most_free = 64;

template <class List>
bool any_half(const List* list) {
  if (!list) return false;
  const auto names = list->names();
  for (std::size_t i = 0; i < names.size(); ++i)
    if (is_half(list->find(names[i], static_cast<int>(i))->type)) return true;
  return false;
}

// The tensor of a value of the pipeline; null: none, or not one of the caller's.
struct TensorOfValue {
  const Axes* axes = nullptr;
  void* data = nullptr;  // of an input it is only read
  Type type = Type::f32;
  int rank = 0;
  const PerAxis *extent = nullptr, *stride = nullptr;  // the caller's own: copies were a tenth of a short call
  bool output = false;
};
TensorOfValue tensor_of(const Plan::Body& body, const Call& call, std::size_t value) noexcept {
  const Pipeline& p = body.pipeline;
  const Value& v = p.values[value];
  TensorOfValue found;
  const auto take = [&](const Axes& axes, const auto* tensor) {
    if (!tensor || !*tensor) return;
    found.axes = &axes, found.data = const_cast<void*>(static_cast<const void*>(tensor->data));
    found.type = tensor->type, found.rank = tensor->rank;
    found.extent = &tensor->extent, found.stride = &tensor->stride;
  };
  if (v.from == Value::From::input && v.input >= 0) {
    const auto input = static_cast<std::size_t>(v.input);
    take(p.input_axes[input], call.inputs->find(p.inputs[input].name, v.input));
  } else if (v.from == Value::From::step && v.output >= 0) {
    const auto output = static_cast<std::size_t>(v.output);
    take(p.output_axes[output], call.outputs->find(p.outputs[output].name, v.output));
    found.output = true;
  }
  return found;
}

// Whether kernels alone read or write the tensor of a value, and can where it lies.
bool is_in_place(const Plan::Body& body, const Call& call, std::size_t value, const TensorOfValue& tensor) noexcept {
  const Value& v = body.pipeline.values[value];
  const AxisPlaces& at = v.places;
  if (call.form == Form::scan || !is_half(tensor.type)) return false;
  if (call.d_outputs ? !v.halves_with_gradients : !v.halves) return false;
  if (at.batch < 0 || at.time < 0 || at.inner < 0 || at.outer >= 0 || at.inner + 1 != tensor.rank) return false;
  const auto inner = static_cast<std::size_t>(at.inner);
  return (*tensor.stride)[inner] == 1 && (*tensor.extent)[inner] >= 2;
}

}  // namespace

bool has_half_tensors(const Call& call) noexcept {
  return any_half(call.inputs) || any_half(call.outputs) || any_half(call.d_outputs) || any_half(call.d_inputs);
}

std::size_t half_tensor_bytes(const Plan::Body& body, std::int64_t length, std::int64_t pairs, bool backward) {
  if (!body.options.tensors || !is_half(*body.options.tensors)) return 0;
  Arena arena;
  arena.take<HalfTensor>(static_cast<std::ptrdiff_t>(body.pipeline.values.size()));
  const auto copies = [&](const std::vector<Axes>& list, int times) {
    for (const Axes& axes : list) {
      auto count = static_cast<std::ptrdiff_t>(body.elements(axes, body.shape.batch, length, pairs));
      if (has_free_extent(body, axes)) count *= most_free;
      for (int i = 0; i < times; ++i) arena.take<float>(count);
    }
  };
  copies(body.pipeline.input_axes, backward ? 2 : 1), copies(body.pipeline.output_axes, 1);
  return arena.bytes();
}

HalfCopies::HalfCopies(const Plan::Body& body, const Call& call, std::ptrdiff_t length, Arena& arena) noexcept
    : convert_(half_simd(*body.simd_f32)) {
  const Pipeline& p = body.pipeline;
  list_ = arena.take<HalfTensor>(static_cast<std::ptrdiff_t>(p.values.size()));
  ok_ = arena.rest().data != nullptr;
  const std::ptrdiff_t time = std::max<std::ptrdiff_t>(0, call.time);
  length = std::min(length, time);
  for (std::size_t i = 0; i < p.values.size() && ok_; ++i) {
    const TensorOfValue found = tensor_of(body, call, i);
    if (!found.axes || !is_half(found.type)) continue;
    HalfTensor& one = *new (list_ + count_) HalfTensor;
    if (is_in_place(body, call, i, found)) {
      one.data = found.data, one.type = found.type, one.in_place = true;
    } else {
      Tensor tensor;
      tensor.data = found.data, tensor.type = found.type, tensor.rank = found.rank;
      tensor.extent = *found.extent, tensor.stride = *found.stride;
      part_of(body, *found.axes, tensor, 0, time, length, arena, &one);
      if (time <= length) one.flat = numbers_together(one);
      ok_ = one.copy && arena.rest().data;
    }
    one.value = static_cast<int>(i), one.output = found.output;
    if (ok_) ++count_;
  }
}

std::ptrdiff_t half_length(const Plan::Body& body, const Call& call) noexcept {
  if (!goes_in_blocks(body, call.form)) return bound_length(body, call.form);
  if (call.time <= least_half_block) return least_half_block;  // they are one block in any case
  std::array<bool, max_values> copied{};
  for (std::size_t i = 0; i < body.pipeline.values.size(); ++i) {
    const TensorOfValue found = tensor_of(body, call, i);
    copied[i] = found.axes && is_half(found.type) && !is_in_place(body, call, i, found);
  }
  return half_block_length(body, call.form, copied);
}

bool HalfCopies::any_of_tokens() const noexcept {
  return std::any_of(list_, list_ + count_,
                     [](const HalfTensor& one) { return !one.in_place && one.time_axis >= 0; });
}

void HalfCopies::bind_in_place(Binding<float>& b) const noexcept {
  for (const HalfTensor& one : list())
    if (one.in_place) b.values[static_cast<std::size_t>(one.value)].half = one.type;
}

void HalfCopies::bind(Binding<float>& b) const noexcept {
  bind_in_place(b);
  for (const HalfTensor& one : list()) {
    Bound<float>& bound = b.values[static_cast<std::size_t>(one.value)];
    if (one.in_place) continue;
    bound.data = one.copy, bound.stride = one.copy_stride;
    if (one.output) bound.writable = one.copy;
  }
}

void HalfCopies::open_parameters() const noexcept {
  for (const HalfTensor& one : list())
    if (!one.in_place && !one.output && one.time_axis < 0) widen(one, convert_, 0, 0);
}

void HalfCopies::open_all(std::ptrdiff_t time) const noexcept {
  for (const HalfTensor& one : list())
    if (!one.in_place && !one.output) widen(one, convert_, 0, time);
}

void HalfCopies::open(std::ptrdiff_t begin, std::ptrdiff_t end) const noexcept {
  for (const HalfTensor& one : list())
    if (!one.in_place && !one.output && one.time_axis >= 0) widen(one, convert_, begin, end);
}

void HalfCopies::close(std::ptrdiff_t begin, std::ptrdiff_t end) const noexcept {
  for (const HalfTensor& one : list())
    if (!one.in_place && one.output) narrow(one, convert_, begin, end);
}

Status backward_half_tensors(const Plan::Body& body, const Call& call) noexcept {
  const HalfSimd& simd = half_simd(*body.simd_f32);
  const std::ptrdiff_t time = std::max<std::ptrdiff_t>(0, call.time);
  Arena arena(call.workspace);
  Inputs in, d_out;
  Outputs d_in;
  Call part = call;
  part.inputs = &in, part.d_outputs = &d_out, part.d_inputs = &d_in;
  std::array<HalfTensor, Inputs::capacity> written{};
  std::size_t count = 0;
  const Pipeline& p = body.pipeline;
  const auto read = [&](const std::vector<InputInfo>& list, const std::vector<Axes>& axes, const Inputs& from,
                        Inputs& to) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      const ConstTensor tensor = from.get(list[i].name);
      if (tensor.rank == 0 && !tensor) continue;
      HalfTensor half;
      to[list[i].name] = part_of(body, axes[i], tensor, 0, time, time, arena, &half);
      if (!arena.rest().data) return false;
      if (half.copy && half.data) widen(half, simd, 0, time);
    }
    return true;
  };
  if (!read(p.inputs, p.input_axes, *call.inputs, in) || !read(p.outputs, p.output_axes, *call.d_outputs, d_out))
    return Status::small_workspace;
  for (std::size_t i = 0; i < p.inputs.size(); ++i)
    if (const Tensor tensor = call.d_inputs->get(p.inputs[i].name)) {
      d_in[p.inputs[i].name] = part_of(body, p.input_axes[i], tensor, 0, time, time, arena, &written[count]);
      if (!arena.rest().data) return Status::small_workspace;
      if (call.gradients == Gradients::add && written[count].copy) widen(written[count], simd, 0, time);
      ++count;
    }
  in.cu_seqlens = call.inputs->cu_seqlens, in.cu_seqlens_pairs = call.inputs->cu_seqlens_pairs;
  part.workspace = arena.rest();
  if (!part.workspace.data) return Status::small_workspace;
  const Status status = run_backward(body, part);
  for (std::size_t i = 0; i < count; ++i)
    if (written[i].copy) narrow(written[i], simd, 0, time);
  return status;
}

}  // namespace ttr
