// What is wrong with a call: shapes, types, buffers, forms. Found without allocating.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "plan/pipeline.h"
#include "run/execute.h"
#include "run/overlap.h"
#include "run/saved.h"

namespace ttr {
namespace {

// Letters whose extent the caller chooses.
bool is_free(const Plan::Body& body, char letter) { return letter == 'L' && !body.pipeline.letters.contains('L'); }

template <class AnyTensor>
bool is_misaligned(const AnyTensor& tensor) noexcept {
  return reinterpret_cast<std::uintptr_t>(tensor.data) % size_of(tensor.type) != 0;
}
bool is_misaligned(ConstState state) noexcept { return reinterpret_cast<std::uintptr_t>(state.data) % 8 != 0; }

template <class AnyTensor>
Fault check_tensor(const Plan::Body& body, std::string_view name, const Axes& axes, const AnyTensor& tensor,
                   std::ptrdiff_t batch, std::ptrdiff_t time, std::ptrdiff_t pairs) noexcept {
  if (tensor.type != body.options.type && tensor.type != body.options.tensors)
    return {Status::bad_type, name, 0, static_cast<std::ptrdiff_t>(tensor.type), 0};
  if (is_misaligned(tensor))
    return {Status::misaligned, name, 0, 0, static_cast<std::ptrdiff_t>(size_of(tensor.type))};
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

// A name that the plan does not know.
template <class AnyTensor>
Fault check_names(const NamedTensors<AnyTensor>& given, const std::vector<InputInfo>& known) noexcept {
  const auto names = given.names();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i < known.size() && known[i].name == names[i]) continue;  // the usual order
    if (std::none_of(known.begin(), known.end(), [&](const InputInfo& info) { return info.name == names[i]; }))
      return {Status::unknown_name, names[i], 0, 0, 0};
  }
  if (!given.complete())
    return {Status::unknown_name,
            {},
            0,
            static_cast<std::ptrdiff_t>(names.size()) + 1,
            static_cast<std::ptrdiff_t>(names.size())};
  return {};
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
      const std::int64_t seen = counted ? body.counts(call.state)[n] : 0;
      if (own < 1 || seen < 0) continue;
      const std::ptrdiff_t needed = std::bit_width(static_cast<std::uint64_t>(seen + own - 1)) + 1;
      if (needed > levels) return {Status::state_full, p.inputs[i].name, 'L', levels, needed};
    }
  }
  return {};
}

}  // namespace

Fault check_state(const Plan::Body& body, const Call& call, std::int64_t& kept) noexcept {
  const std::size_t needed = body.layout.bytes(0);
  const auto check_size = [&](std::string_view name, ConstState state, bool written = false) -> Fault {
    const auto small = [&](std::size_t want) -> Fault {
      return {Status::small_state, name, 0, static_cast<std::ptrdiff_t>(state.bytes),
              static_cast<std::ptrdiff_t>(want)};
    };
    if (!state.data || state.bytes < needed) return small(needed);
    if (is_misaligned(state)) return {Status::misaligned, name, 0, 0, 8};
    if (written || !body.layout.grows()) return {};
    const Status s = check_buffer(body, state);
    if (s == Status::bad_state) return {s, name, 'N', body.capacity(state), 0};
    return s == Status::small_state ? small(body.layout.bytes(body.capacity(state))) : Fault{};
  };
  if (const Fault f = check_size("state", call.state); f.status != Status::ok) return f;
  if (call.d_final.data)
    if (const Fault f = check_size("d_final", call.d_final); f.status != Status::ok) return f;
  if (call.d_initial.data)
    if (const Fault f = check_size("d_initial", call.d_initial, true); f.status != Status::ok) return f;
  if (body.pipeline.design.weights.levels)
    if (const Fault f = check_levels(body, call); f.status != Status::ok) return f;
  if (!body.pipeline.history && !body.pipeline.counted) return {};
  const auto cu = call.inputs->cu_seqlens;
  const std::int64_t room_of_gradient = call.d_initial.data ? body.layout.fits(call.d_initial.bytes) : 0;
  for (int n = 0; n < body.shape.batch; ++n) {
    const std::int64_t before = body.counts(call.state)[n];
    if (before < 0) return {Status::bad_state, "state", 0, before, 0, {}, n};
    if (!body.pipeline.history) continue;
    const std::ptrdiff_t room = body.capacity(call.state);
    if (before > room) return {Status::bad_state, "state", 0, before, room, {}, n};
    const std::int64_t own =
        cu.empty() ? call.time : cu[static_cast<std::size_t>(n) + 1] - cu[static_cast<std::size_t>(n)];
    std::int64_t after = before + std::max<std::int64_t>(own, 0);
    if (body.pipeline.most_pairs >= 0) after = std::min(after, body.pipeline.most_pairs);
    if (call.outputs && after > room) return {Status::state_full, "state", 0, after, room, {}, n};
    if (call.d_final.data && after > body.capacity(call.d_final))
      return {Status::small_state,
              "d_final",
              0,
              static_cast<std::ptrdiff_t>(call.d_final.bytes),
              static_cast<std::ptrdiff_t>(body.state_bytes(after)),
              {},
              n};
    if (call.d_initial.data && before > room_of_gradient)
      return {Status::small_state,
              "d_initial",
              0,
              static_cast<std::ptrdiff_t>(call.d_initial.bytes),
              static_cast<std::ptrdiff_t>(body.state_bytes(before)),
              {},
              n};
    if (!body.on_oracle()) kept = std::max(kept, before);
  }
  return {};
}

namespace {

// The tensors of a call, noted while they are checked. Without initialisers, which would cost more than a step of a small
// layer.
class CallMemory {
 public:
  template <class AnyTensor>
  void reads(std::string_view name, const AnyTensor& tensor) noexcept {
    if (read_count_ < most) note(read_[read_count_++], name, range_of(tensor), tensor);
  }
  void reads(std::string_view name, const void* data, std::size_t bytes) noexcept {
    if (read_count_ < most && data) note(read_[read_count_++], name, range_of_bytes(data, bytes));
  }
  template <class AnyTensor>
  void writes(std::string_view name, const AnyTensor& tensor) noexcept {
    if (written_count_ < most) note(written_[written_count_++], name, range_of(tensor), tensor);
  }
  void writes(std::string_view name, const void* data, std::size_t bytes) noexcept {
    if (written_count_ < most && data) note(written_[written_count_++], name, range_of_bytes(data, bytes));
  }

  /// What is written overlaps nothing else.
  Fault check() const noexcept {
    const auto together = [](const Entry& a, const Entry& b) {
      return overlap(a.range, b.range) && (!a.tensor || !b.tensor || share_memory(a.as_tensor(), b.as_tensor()));
    };
    for (int i = 0; i < written_count_; ++i) {
      for (int j = i + 1; j < written_count_; ++j)
        if (together(written_[i], written_[j])) return {Status::overlap, written_[i].name, 0, 0, 0, written_[j].name};
      for (int j = 0; j < read_count_; ++j)
        if (together(written_[i], read_[j])) return {Status::overlap, written_[i].name, 0, 0, 0, read_[j].name};
    }
    return {};
  }

 private:
  struct Entry {
    std::string_view name;
    ByteRange range;
    const void* tensor;  // null: plain bytes
    bool writable;       // a Tensor, else a ConstTensor
    ConstTensor as_tensor() const {
      return writable ? ConstTensor(*static_cast<const Tensor*>(tensor)) : *static_cast<const ConstTensor*>(tensor);
    }
  };
  // Member by member: an entry that is made elsewhere and copied would wait for its own stores.
  static void note(Entry& e, std::string_view name, const ByteRange& range) noexcept {
    e.name = name, e.range.begin = range.begin, e.range.end = range.end, e.tensor = nullptr, e.writable = false;
  }
  template <class AnyTensor>
  static void note(Entry& e, std::string_view name, const ByteRange& range, const AnyTensor& tensor) noexcept {
    note(e, name, range);
    e.tensor = &tensor, e.writable = std::is_same_v<AnyTensor, Tensor>;
  }
  static constexpr int most = 2 * Inputs::capacity + 5;  // inputs and outputs, or twice that with their gradients
  union {
    Entry read_[most];
  };
  union {
    Entry written_[most];
  };
  int read_count_ = 0, written_count_ = 0;

 public:
  CallMemory() noexcept {}
};

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

}  // namespace

void measure(const Plan::Body& body, Call& call) noexcept {
  call.time = length_of(body, *call.inputs, 'T');
  const std::ptrdiff_t own = body.pipeline.noncausal ? length_of(body, *call.inputs, 'P') : -1;
  call.pairs = own >= 0 ? own : call.time * body.pipeline.pairs;
}

namespace {

// Every tensor that the plan knows; `unknown` becomes true if a list has names besides.
Fault check_tensors(const Plan::Body& body, const Call& call, CallMemory& memory, bool& unknown) noexcept {
  const auto cu = call.inputs->cu_seqlens, pair_cu = call.inputs->cu_seqlens_pairs;
  if (cu.empty() && !pair_cu.empty()) return {Status::missing_input, "cu_seqlens", 0, 0, 0};
  const std::ptrdiff_t time = call.time, pairs = call.pairs;
  const std::ptrdiff_t batch = cu.empty() ? body.shape.batch : 1;
  static constexpr ConstTensor absent;
  const Pipeline& p = body.pipeline;
  const auto lists_others = [](const auto& list, std::size_t known) {
    return list.names().size() != known || !list.complete();
  };
  std::size_t known = 0, known_gradients = 0;
  Fault worst;
  for (std::size_t i = 0; i < p.inputs.size(); ++i) {
    const InputInfo& info = p.inputs[i];
    const ConstTensor* const found = call.inputs->find(info.name, static_cast<int>(i));
    const ConstTensor& tensor = found ? *found : absent;
    known += found != nullptr;
    if (worst.status != Status::ok || (tensor.rank == 0 && info.optional)) continue;
    const Fault fault = tensor.rank == 0 ? Fault{Status::missing_input, info.name, 0, 0, 0}
                                         : check_tensor(body, info.name, p.input_axes[i], tensor, batch,
                                                        std::max<std::ptrdiff_t>(time, 0), pairs);
    if (fault.status != Status::ok) {
      worst = fault;
      continue;
    }
    std::ptrdiff_t count = 1;
    for (int d = 0; d < tensor.rank; ++d) count *= tensor.extent[static_cast<std::size_t>(d)];
    if (!tensor && count != 0)  // tensors of zero tokens may have no data
      worst = {Status::missing_input, info.name, 0, 0, 0};
    memory.reads(info.name, tensor);
  }
  unknown = lists_others(*call.inputs, known);
  if (worst.status != Status::ok) return worst;
  if (!cu.empty()) {
    if (const Fault f = check_packing(body, "cu_seqlens", cu, 'T', time); f.status != Status::ok) return f;
    if (body.pipeline.noncausal)
      if (const Fault f = check_packing(body, "cu_seqlens_pairs", pair_cu.empty() ? cu : pair_cu, 'P', pairs);
          f.status != Status::ok)
        return f;
  }
  known = 0;
  for (std::size_t i = 0; i < p.outputs.size(); ++i) {
    const std::string& name = p.outputs[i].name;
    if (const Tensor* const tensor = call.outputs ? call.outputs->find(name, static_cast<int>(i)) : nullptr) {
      ++known;
      if (*tensor) {
        if (const Fault f = check_tensor(body, name, p.output_axes[i], *tensor, batch, time, pairs);
            f.status != Status::ok)
          return f;
        memory.writes(name, *tensor);
      }
    }
    if (const ConstTensor* const tensor =
            call.d_outputs ? call.d_outputs->find(name, static_cast<int>(i)) : nullptr) {
      ++known_gradients;
      if (*tensor) {
        if (!p.outputs[i].differentiable) return {Status::not_supported, name, 0, 0, 0};
        if (const Fault f = check_tensor(body, name, p.output_axes[i], *tensor, batch, time, pairs);
            f.status != Status::ok)
          return f;
        memory.reads(name, *tensor);
      }
    }
  }
  unknown |= (call.outputs && lists_others(*call.outputs, known)) ||
             (call.d_outputs && lists_others(*call.d_outputs, known_gradients));
  if (!call.d_inputs) return {};
  known = 0;
  for (std::size_t i = 0; i < p.inputs.size(); ++i)
    if (const Tensor* const tensor = call.d_inputs->find(p.inputs[i].name, static_cast<int>(i))) {
      ++known;
      if (!*tensor) continue;
      if (const Fault f = check_tensor(body, p.inputs[i].name, p.input_axes[i], *tensor, batch, time, pairs);
          f.status != Status::ok)
        return f;
      memory.writes(p.inputs[i].name, *tensor);
    }
  unknown |= lists_others(*call.d_inputs, known);
  return {};
}

// The first name of a list that the plan does not know.
Fault find_unknown(const Plan::Body& body, const Call& call) noexcept {
  const Pipeline& p = body.pipeline;
  Fault fault = check_names(*call.inputs, p.inputs);
  if (fault.status == Status::ok && call.outputs) fault = check_names(*call.outputs, p.outputs);
  if (fault.status == Status::ok && call.d_outputs) fault = check_names(*call.d_outputs, p.outputs);
  if (fault.status == Status::ok && call.d_inputs) fault = check_names(*call.d_inputs, p.inputs);
  return fault;
}

}  // namespace

namespace {

// Names, shapes and types.
Fault check_named_tensors(const Plan::Body& body, const Call& call, CallMemory& memory) noexcept {
  bool unknown = false;
  const Fault fault = check_tensors(body, call, memory, unknown);
  // A name that nobody knows may be why another is missing.
  if (unknown && (fault.status == Status::ok || fault.status == Status::missing_input))
    if (const Fault name = find_unknown(body, call); name.status != Status::ok) return name;
  return fault;
}

// Form::best is left to the kernel, which chooses for each sequence by its own length.
Fault check_form(const Plan::Body& body, Form form) noexcept {
  if (form == Form::best || std::find(body.forms.begin(), body.forms.end(), form) != body.forms.end()) return {};
  return {Status::not_supported, to_string(form), 0, 0, 0};
}

}  // namespace

Fault use_saved(const Plan::Body& body, Call& call) noexcept {
  bool used = false;
  const Fault fault = check_saved(body, call, &used);
  if (!used) call.saved = {};
  return fault;
}

Fault check_tensors_alone(const Plan::Body& body, const Call& call) noexcept {
  CallMemory memory;
  if (const Fault f = check_named_tensors(body, call, memory); f.status != Status::ok) return f;
  if (const Fault f = check_form(body, call.form); f.status != Status::ok) return f;
  if (call.form == Form::step && call.time != 1) return {Status::bad_shape, "step", 'T', call.time, 1};
  if (call.d_inputs && body.options.state_type) return {Status::not_supported, state_type_name, 0, 0, 0};
  return {};
}

Fault check_call(const Plan::Body& body, const Call& call) noexcept {
  CallMemory memory;
  if (const Fault f = check_named_tensors(body, call, memory); f.status != Status::ok) return f;
  const std::ptrdiff_t time = call.time, pairs = call.pairs;
  std::int64_t kept = 0;
  if (const Fault f = check_state(body, call, kept); f.status != Status::ok) return f;
  if (const Fault f = check_form(body, call.form); f.status != Status::ok) return f;
  if (call.d_inputs && body.options.state_type) return {Status::not_supported, state_type_name, 0, 0, 0};
  memory.writes("the workspace", call.workspace.data, call.workspace.bytes);
  if (call.outputs) memory.writes("the state", call.state.data, call.state.bytes);
  else {
    memory.writes("d_initial", call.d_initial.data, call.d_initial.bytes);
    memory.reads("the state", call.state.data, call.state.bytes);
    memory.reads("d_final", call.d_final.data, call.d_final.bytes);
  }
  if (call.d_inputs) memory.reads("saved", call.saved.data, call.saved.bytes);
  else memory.writes("saved", call.saved.data, call.saved.bytes);
  if (const Fault f = memory.check(); f.status != Status::ok) return f;
  const bool one = time == 1 && kept == 0 && !call.d_inputs && !body.pipeline.noncausal &&
                   (call.form == Form::step || call.form == Form::best || call.form == Form::recurrent);
  if (one && call.workspace.data && call.workspace.bytes >= body.one_token_workspace) return {};
  const std::size_t needed = workspace_bytes(body, time, pairs, kept, call.form, call.d_inputs != nullptr);
  if (call.workspace.bytes < needed || (!call.workspace.data && needed))
    return {Status::small_workspace, "workspace", 0, static_cast<std::ptrdiff_t>(call.workspace.bytes),
            static_cast<std::ptrdiff_t>(needed)};
  if (call.form == Form::step && time != 1) return {Status::bad_shape, "step", 'T', time, 1};
  return {};
}

}  // namespace ttr
