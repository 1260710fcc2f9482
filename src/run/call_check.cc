// What is wrong with a call: shapes, types, buffers, forms. Found without allocating.
#include <algorithm>
#include <bit>

#include "plan/pipeline.h"
#include "run/bind.h"
#include "run/partition.h"

namespace ttr {
namespace {

// Letters whose extent the caller chooses.
bool is_free(const Plan::Body& body, char letter) { return letter == 'L' && !body.pipeline.letters.contains('L'); }

template <class AnyTensor>
Fault check_tensor(const Plan::Body& body, std::string_view name, const Axes& axes, const AnyTensor& tensor,
                   std::ptrdiff_t batch, std::ptrdiff_t time, std::ptrdiff_t pairs) noexcept {
  if (tensor.type != body.options.type && tensor.type != body.options.tensors)
    return {Status::bad_type, name, 0, static_cast<std::ptrdiff_t>(tensor.type), 0};
  const int rank = static_cast<int>(axes.size());
  for (int i = 0; i < std::min(rank, tensor.rank); ++i) {
    const char letter = axes[static_cast<std::size_t>(i)];
    if (is_free(body, letter)) continue;
    const std::ptrdiff_t got = tensor.extent[static_cast<std::size_t>(i)],
                         want = body.extent(letter, batch, time, pairs);
    if (got != want) return {Status::bad_shape, name, letter, got, want};
  }
  if (tensor.rank != rank) return {Status::bad_shape, name, 0, tensor.rank, rank};
  return {};
}

// Which part of the state is the first list of pairs.
int first_history(const Plan::Body& body) {
  const auto& parts = body.pipeline.states;
  return static_cast<int>(
      std::find_if(parts.begin(), parts.end(), [](const StatePart& part) { return part.history; }) - parts.begin());
}

// Boundaries of packed sequences in a tensor of `length` tokens.
Fault check_packing(const Plan::Body& body, std::string_view name, std::span<const std::int64_t> cu, char axis,
                    std::ptrdiff_t length) noexcept {
  if (cu.size() != static_cast<std::size_t>(body.shape.batch) + 1)
    return {Status::bad_shape, name, 'B', static_cast<std::ptrdiff_t>(cu.size()) - 1, body.shape.batch};
  for (std::size_t i = 0; i + 1 < cu.size(); ++i)
    if (cu[i] > cu[i + 1]) return {Status::bad_shape, name, 0, cu[i + 1], cu[i]};
  if (cu.front() != 0) return {Status::bad_shape, name, 0, cu.front(), 0};
  if (cu.back() != length) return {Status::bad_shape, name, axis, cu.back(), length};
  return {};
}

}  // namespace

namespace {

// Extent of axis `letter` (T or P) of the inputs; below zero if none has it.
std::ptrdiff_t length_of(const Plan::Body& body, const Inputs& inputs, char letter) noexcept {
  for (std::size_t i = 0; i < body.pipeline.inputs.size(); ++i) {
    const std::size_t axis = body.pipeline.input_axes[i].find(letter);
    if (axis == Axes::npos) continue;
    const ConstTensor* const tensor = inputs.find(body.pipeline.inputs[i].name, static_cast<int>(i));
    if (tensor && static_cast<int>(axis) < tensor->rank) return tensor->extent[axis];
  }
  return -1;
}

// L levels weigh 2^(L-1) tokens: the newest has no scale for a level beyond. Levels that the call has, and needs.
Fault check_levels(const Plan::Body& body, const Call& call) noexcept {
  const Pipeline& p = body.pipeline;
  for (std::size_t i = 0; i < p.inputs.size(); ++i) {
    const std::size_t axis = p.input_axes[i].find('L');
    const ConstTensor* const tensor = call.inputs->find(p.inputs[i].name, static_cast<int>(i));
    if (axis == Axes::npos || !tensor || static_cast<int>(axis) >= tensor->rank) continue;
    const std::ptrdiff_t levels = tensor->extent[axis];
    const auto cu = call.inputs->cu_seqlens;
    const bool counted = p.counted || p.history;
    for (std::size_t n = 0; n < static_cast<std::size_t>(body.shape.batch); ++n) {
      const std::int64_t own = cu.empty() ? call.time : cu[n + 1] - cu[n];
      const std::int64_t seen = counted ? static_cast<const std::int64_t*>(call.state.data)[n] : 0;
      if (own < 1 || seen < 0) continue;
      const std::ptrdiff_t needed = std::bit_width(static_cast<std::uint64_t>(seen + own - 1)) + 1;
      if (needed > levels) return {Status::state_full, p.inputs[i].name, 'L', levels, needed};
    }
  }
  return {};
}

}  // namespace

void measure(const Plan::Body& body, Call& call) noexcept {
  call.time = length_of(body, *call.inputs, 'T');
  const std::ptrdiff_t own = body.pipeline.noncausal ? length_of(body, *call.inputs, 'P') : -1;
  call.pairs = own >= 0 ? own : call.time * body.pipeline.pairs;
  const auto cu = call.inputs->cu_seqlens;
  std::ptrdiff_t longest = cu.empty() ? call.time : 0;
  for (std::size_t n = 1; n < cu.size(); ++n)
    longest = std::max(longest, static_cast<std::ptrdiff_t>(cu[n]) - static_cast<std::ptrdiff_t>(cu[n - 1]));
  call.form = form_in_team(body, call.form, longest, call.d_inputs != nullptr);
}

Fault check_call(const Plan::Body& body, const Call& call) noexcept {
  const auto cu = call.inputs->cu_seqlens, pair_cu = call.inputs->cu_seqlens_pairs;
  if (cu.empty() && !pair_cu.empty()) return {Status::missing_input, "cu_seqlens", 0, 0, 0};
  const std::ptrdiff_t time = call.time, pairs = call.pairs;
  const std::ptrdiff_t batch = cu.empty() ? body.shape.batch : 1;
  static constexpr ConstTensor absent;
  const Pipeline& p = body.pipeline;
  for (std::size_t i = 0; i < p.inputs.size(); ++i) {
    const InputInfo& info = p.inputs[i];
    const ConstTensor* const found = call.inputs->find(info.name, static_cast<int>(i));
    const ConstTensor& tensor = found ? *found : absent;
    if (tensor.rank == 0 && info.optional) continue;
    if (tensor.rank == 0) return {Status::missing_input, info.name, 0, 0, 0};
    if (const Fault fault =
            check_tensor(body, info.name, p.input_axes[i], tensor, batch, std::max<std::ptrdiff_t>(time, 0), pairs);
        fault.status != Status::ok)
      return fault;
    std::ptrdiff_t count = 1;
    for (int d = 0; d < tensor.rank; ++d) count *= tensor.extent[static_cast<std::size_t>(d)];
    if (!tensor && count != 0)  // tensors of zero tokens may have no data
      return {Status::missing_input, info.name, 0, 0, 0};
  }
  if (!cu.empty()) {
    if (const Fault f = check_packing(body, "cu_seqlens", cu, 'T', time); f.status != Status::ok) return f;
    if (body.pipeline.noncausal)
      if (const Fault f = check_packing(body, "cu_seqlens_pairs", pair_cu.empty() ? cu : pair_cu, 'P', pairs);
          f.status != Status::ok)
        return f;
  }
  for (std::size_t i = 0; i < p.outputs.size(); ++i) {
    const std::string& name = p.outputs[i].name;
    if (call.outputs)
      if (const Tensor* const tensor = call.outputs->find(name, static_cast<int>(i)); tensor && *tensor)
        if (const Fault f = check_tensor(body, name, p.output_axes[i], *tensor, batch, time, pairs);
            f.status != Status::ok)
          return f;
    if (call.d_outputs)
      if (const ConstTensor* const tensor = call.d_outputs->find(name, static_cast<int>(i)); tensor && *tensor) {
        if (!p.outputs[i].differentiable) return {Status::not_supported, name, 0, 0, 0};
        if (const Fault f = check_tensor(body, name, p.output_axes[i], *tensor, batch, time, pairs);
            f.status != Status::ok)
          return f;
      }
  }
  for (std::size_t i = 0; call.d_inputs && i < p.inputs.size(); ++i)
    if (const Tensor* const tensor = call.d_inputs->find(p.inputs[i].name, static_cast<int>(i)); tensor && *tensor)
      if (const Fault f = check_tensor(body, p.inputs[i].name, p.input_axes[i], *tensor, batch, time, pairs);
          f.status != Status::ok)
        return f;

  const std::size_t state_needed = body.state_bytes(0);
  if (!call.state.data || call.state.bytes < state_needed)
    return {Status::small_state, "state", 0, static_cast<std::ptrdiff_t>(call.state.bytes),
            static_cast<std::ptrdiff_t>(state_needed)};
  for (const ConstState other : {call.d_final, ConstState(call.d_initial)})
    if (other.data && other.bytes < state_needed)
      return {Status::small_state, "gradient of the state", 0, static_cast<std::ptrdiff_t>(other.bytes),
              static_cast<std::ptrdiff_t>(state_needed)};
  if (p.design.weights.levels)
    if (const Fault fault = check_levels(body, call); fault.status != Status::ok) return fault;
  // Form::best is left to the kernel, which chooses for each sequence by its own length.
  if (call.form != Form::best && std::find(body.forms.begin(), body.forms.end(), call.form) == body.forms.end())
    return {Status::not_supported, to_string(call.form), 0, 0, 0};
  std::int64_t kept = 0;  // kernels that read the pairs kept may need scratch for them as well
  if (body.pipeline.history && !body.on_oracle())
    for (int n = 0; n < body.shape.batch; ++n)
      kept = std::max(kept, static_cast<const std::int64_t*>(call.state.data)[n]);
  if (kept > 0 && call.outputs && !body.pipeline.design.weights.reach())
    for (int n = 0; n < body.shape.batch; ++n) {
      const std::int64_t own =
          cu.empty() ? time : cu[static_cast<std::size_t>(n) + 1] - cu[static_cast<std::size_t>(n)];
      const std::int64_t after = static_cast<const std::int64_t*>(call.state.data)[n] + own;
      const std::ptrdiff_t room = body.state_place(call.state.bytes, first_history(body)).capacity;
      if (after > room) return {Status::state_full, "state", 0, after, room};
    }
  const bool one = time == 1 && kept == 0 && !call.d_inputs && !body.pipeline.noncausal &&
                   (call.form == Form::step || call.form == Form::best || call.form == Form::recurrent);
  if (one && call.workspace.data && call.workspace.bytes >= body.one_token_workspace) return {};
  const std::size_t needed = workspace_bytes(body, time + kept, pairs + kept, call.form, call.d_inputs != nullptr);
  if (call.workspace.bytes < needed || (!call.workspace.data && needed))
    return {Status::small_workspace, "workspace", 0, static_cast<std::ptrdiff_t>(call.workspace.bytes),
            static_cast<std::ptrdiff_t>(needed)};
  if (call.form == Form::step && time != 1) return {Status::bad_shape, "step", 'T', time, 1};
  return {};
}

}  // namespace ttr
