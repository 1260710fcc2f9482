// Prepared calls (ttr/prepared.h). What Plan::forward finds out with every call is found once: the place of every value,
// scratch as offsets from the workspace, how far each tensor reaches from its address. A call then puts addresses in,
// looks whether memory overlaps, and runs the steps.
//
// Calls that go in blocks of time or have tensors of a half type bind anew for every block; they take the way of
// Plan::forward with the addresses put into its lists.
#include "ttr/prepared.h"

#include <algorithm>
#include <cstring>
#include <variant>
#include <vector>

#include "plan/diagnose.h"
#include "run/execute.h"
#include "run/half_tensors.h"
#include "run/overlap.h"

namespace ttr {
namespace {

// A tensor of the call, whose address is not known yet.
struct Place {
  bool given = false;
  std::uintptr_t odd = 0;               // bits of an address that must be zero
  std::ptrdiff_t below = 0, above = 0;  // bytes that it reaches from its address
  int value = -1;                       // of the pipeline
  int tensor = -1;                      // in its list
};

struct Scratch {
  std::size_t value;
  std::ptrdiff_t offset;  // from the aligned start of the workspace
};

template <class AnyTensor>
Place place_of(const AnyTensor& tensor, int value, int index) {
  Place place{true, size_of(tensor.type) - 1, 0, 0, value, index};
  const char origin = 0;
  const ByteRange range = range_of(&origin, tensor.type, tensor.rank, tensor.extent.data(), tensor.stride.data());
  if (range.begin) {
    place.below = range.begin - reinterpret_cast<const std::byte*>(&origin);
    place.above = range.end - reinterpret_cast<const std::byte*>(&origin);
  }
  return place;
}

const std::byte* aligned(const void* workspace) {
  const auto address = reinterpret_cast<std::uintptr_t>(workspace);
  return static_cast<const std::byte*>(workspace) + (64 - address % 64) % 64;
}

}  // namespace

struct Prepared::Body {
  Inputs in;
  Outputs out;
  std::vector<std::int64_t> cu, pair_cu;
  Form form = Form::best;
  std::ptrdiff_t time = 0, pairs = 0;
  std::vector<Place> reads, writes;  // in the order of the plan
  std::size_t needed = 0;            // bytes of workspace, after `kept` pairs
  std::int64_t kept = 0;
  bool at_once = false;  // the steps run once, on `binding`
  std::variant<Binding<float>, Binding<double>> binding;
  std::vector<families::Sequence> sequences, pair_sequences;
  std::vector<Scratch> scratch;
  std::ptrdiff_t rest = 0;  // where the kernels' scratch begins
  // The addresses of the last call at once, which `binding` holds and which need not be looked at again.
  std::vector<const void*> known;
  State known_state{};
  Workspace known_work{};

  Body() = default;
  Body(const Body& other) { *this = other; }
  Body& operator=(const Body& other) {
    if (this == &other) return *this;
    in = other.in, out = other.out, cu = other.cu, pair_cu = other.pair_cu, form = other.form;
    time = other.time, pairs = other.pairs, reads = other.reads, writes = other.writes;
    needed = other.needed, kept = other.kept, at_once = other.at_once, binding = other.binding;
    sequences = other.sequences, pair_sequences = other.pair_sequences, scratch = other.scratch, rest = other.rest;
    known.assign(other.known.size(), nullptr);
    own_spans();
    return *this;
  }
  bool is_known(std::span<const void* const> inputs, std::span<void* const> outputs, State state,
                Workspace work) const noexcept {
    return known.size() == inputs.size() + outputs.size() && !known.empty() &&
           std::equal(inputs.begin(), inputs.end(), known.begin()) &&
           std::equal(outputs.begin(), outputs.end(), known.begin() + static_cast<std::ptrdiff_t>(inputs.size())) &&
           state.data == known_state.data && state.bytes == known_state.bytes && work.data == known_work.data &&
           work.bytes == known_work.bytes;
  }
  // What points into this object.
  void own_spans() {
    in.cu_seqlens = cu, in.cu_seqlens_pairs = pair_cu;
    std::visit([&](auto& b) { b.sequences = sequences, b.pair_sequences = pair_sequences; }, binding);
  }

  Call call(State state, Workspace workspace) {
    Call c;
    c.inputs = &in, c.outputs = &out, c.state = state, c.workspace = workspace;
    c.form = form, c.time = time, c.pairs = pairs;
    return c;
  }
  Status whole_call(const Plan::Body& plan, State state, Workspace workspace) noexcept {
    const Call c = call(state, workspace);
    const Fault fault = check_call(plan, c);
    return fault.status != Status::ok ? fault.status : run_forward(plan, c);
  }

  // Whether nothing that is written overlaps anything else, judged by ranges alone.
  bool is_apart(std::span<const void* const> inputs, std::span<void* const> outputs, State state,
                Workspace workspace) const noexcept {
    const auto range = [](const Place& place, const void* data) -> ByteRange {
      const std::byte* const at = static_cast<const std::byte*>(data);
      return {at + place.below, at + place.above};
    };
    const ByteRange own[] = {range_of_bytes(state.data, state.bytes),
                             range_of_bytes(workspace.data, workspace.bytes)};
    bool apart = !overlap(own[0], own[1]);
    for (std::size_t i = 0; i < reads.size(); ++i) {
      if (!reads[i].given) continue;
      const ByteRange r = range(reads[i], inputs[i]);
      apart = apart && !overlap(own[0], r) && !overlap(own[1], r);
    }
    for (std::size_t j = 0; j < writes.size(); ++j) {
      if (!writes[j].given) continue;
      const ByteRange w = range(writes[j], outputs[j]);
      apart = apart && !overlap(own[0], w) && !overlap(own[1], w);
      for (std::size_t i = 0; i < reads.size(); ++i)
        if (reads[i].given) apart &= !overlap(w, range(reads[i], inputs[i]));
      for (std::size_t i = j + 1; i < writes.size(); ++i)
        if (writes[i].given) apart &= !overlap(w, range(writes[i], outputs[i]));
    }
    return apart;
  }

  bool has_workspace(const Plan::Body& plan, std::int64_t pairs_kept, Workspace workspace) noexcept {
    if (!workspace.data) return false;
    if (pairs_kept <= kept && workspace.bytes >= needed) return true;
    // For some tokens more at once, so that a growing state does not ask with every call.
    for (const std::int64_t more : {64, 0}) {
      const std::int64_t all = pairs_kept + more;
      const std::size_t bytes = workspace_bytes(plan, time + all, pairs + all, form, false);
      if (workspace.bytes < bytes) continue;
      kept = all, needed = bytes;
      return true;
    }
    return false;
  }

  // Puts the addresses of a call into the binding.
  template <class T>
  void place(Binding<T>& b, std::span<const void* const> inputs, std::span<void* const> outputs,
             Workspace workspace) noexcept {
    for (std::size_t i = 0; i < reads.size(); ++i)
      if (reads[i].value >= 0)
        b.values[static_cast<std::size_t>(reads[i].value)].data = static_cast<const T*>(inputs[i]);
    for (std::size_t i = 0; i < writes.size(); ++i)
      if (writes[i].given) {
        Bound<T>& bound = b.values[static_cast<std::size_t>(writes[i].value)];
        bound.data = bound.writable = static_cast<T*>(outputs[i]);
      }
    std::byte* const base = const_cast<std::byte*>(aligned(workspace.data));
    for (const Scratch& s : scratch)
      b.values[s.value].data = b.values[s.value].writable = reinterpret_cast<T*>(base + s.offset);
  }

  template <class T>
  Status run(const Plan::Body& plan, const Binding<T>& b, State state, Workspace workspace) noexcept {
    std::byte* const base = const_cast<std::byte*>(aligned(workspace.data));
    const std::byte* const end = static_cast<const std::byte*>(workspace.data) + workspace.bytes;
    return execute(plan, b, state, form, {base + rest, static_cast<std::size_t>(end - base - rest)});
  }

  // State and workspace, and then the steps; the binding has the addresses.
  Status run_at_once(const Plan::Body& plan, State state, Workspace workspace) noexcept {
    std::int64_t pairs_kept = 0;
    if (plan.has_counts()) {
      if (const Fault f = check_state(plan, call(state, workspace), pairs_kept); f.status != Status::ok)
        return f.status;
    } else if (const Status s = check_buffer(plan, state); s != Status::ok) {
      return s;
    }
    if (!has_workspace(plan, pairs_kept, workspace)) return Status::small_workspace;
    if (Binding<float>* const single = std::get_if<Binding<float>>(&binding))
      return run(plan, *single, state, workspace);
    return run(plan, *std::get_if<Binding<double>>(&binding), state, workspace);
  }
};

Prepared::Prepared(Plan plan, std::unique_ptr<Body> body) : plan_(std::move(plan)), body_(std::move(body)) {}
Prepared::Prepared(const Prepared& other) : plan_(other.plan_), body_(std::make_unique<Body>(*other.body_)) {}
Prepared::Prepared(Prepared&&) noexcept = default;
Prepared& Prepared::operator=(const Prepared& other) {
  if (this != &other) plan_ = other.plan_, body_ = std::make_unique<Body>(*other.body_);
  return *this;
}
Prepared& Prepared::operator=(Prepared&&) noexcept = default;
Prepared::~Prepared() = default;

std::int64_t Prepared::time() const noexcept { return body_->time; }

Status Prepared::operator()(std::span<const void* const> inputs, std::span<void* const> outputs, State state,
                            Workspace workspace) noexcept {
  Body& p = *body_;
  const Plan::Body& plan = *plan_.body();
  if (p.is_known(inputs, outputs, state, workspace)) return p.run_at_once(plan, state, workspace);
  if (inputs.size() != p.reads.size() || outputs.size() != p.writes.size()) return Status::bad_shape;
  std::uintptr_t odd = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if ((inputs[i] != nullptr) != p.reads[i].given)
      return p.reads[i].given ? Status::missing_input : Status::bad_shape;
    odd |= reinterpret_cast<std::uintptr_t>(inputs[i]) & p.reads[i].odd;
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if ((outputs[i] != nullptr) != p.writes[i].given)
      return p.writes[i].given ? Status::missing_input : Status::bad_shape;
    odd |= reinterpret_cast<std::uintptr_t>(outputs[i]) & p.writes[i].odd;
  }
  if (odd) return Status::misaligned;
  const bool apart = p.is_apart(inputs, outputs, state, workspace);
  if (p.at_once && apart) {
    if (!workspace.data) return Status::small_workspace;
    std::visit([&](auto& b) { p.place(b, inputs, outputs, workspace); }, p.binding);
    std::copy(outputs.begin(), outputs.end(), std::copy(inputs.begin(), inputs.end(), p.known.begin()));
    p.known_state = state, p.known_work = workspace;
    return p.run_at_once(plan, state, workspace);
  }
  const std::span<ConstTensor> reads = p.in.tensors();
  const std::span<Tensor> writes = p.out.tensors();
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (p.reads[i].given) reads[static_cast<std::size_t>(p.reads[i].tensor)].data = inputs[i];
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (p.writes[i].given) writes[static_cast<std::size_t>(p.writes[i].tensor)].data = outputs[i];
  return p.whole_call(plan, state, workspace);
}

Prepared Plan::prepare(const Inputs& inputs, const Outputs& outputs, Form form) const {
  const Body& body = *body_;
  const Pipeline& pipeline = body.pipeline;
  auto p = std::make_unique<Prepared::Body>();
  p->form = form;
  p->cu.assign(inputs.cu_seqlens.begin(), inputs.cu_seqlens.end());
  p->pair_cu.assign(inputs.cu_seqlens_pairs.begin(), inputs.cu_seqlens_pairs.end());
  // Addresses that are not null and aligned stand for those to come; nobody reads there.
  alignas(64) static std::byte somewhere[64];
  const auto named = [&](const auto& from, auto& to) {
    for (const std::string_view name : from.names()) {
      auto tensor = from.get(name);
      if (tensor.rank == 0 && !tensor.data) continue;
      tensor.data = somewhere;
      to[name] = tensor;
    }
  };
  Inputs all_inputs = inputs;  // with names that nobody knows, which are refused
  Outputs all_outputs = outputs;
  named(inputs, all_inputs), named(outputs, all_outputs);
  all_inputs.cu_seqlens = p->cu, all_inputs.cu_seqlens_pairs = p->pair_cu;
  Call call;
  call.inputs = &all_inputs, call.outputs = &all_outputs, call.form = form;
  measure(body, call);
  if (const Fault fault = check_tensors_alone(body, call); fault.status != Status::ok)
    throw Error(sentence_of(body, call, fault), std::string(fault.tensor));
  p->time = call.time, p->pairs = call.pairs;

  const auto value_of_input = [&](std::size_t i) {
    for (std::size_t v = 0; v < pipeline.values.size(); ++v)
      if (pipeline.values[v].from == Value::From::input && pipeline.values[v].input == static_cast<int>(i))
        return static_cast<int>(v);
    return -1;
  };
  bool half = false;
  const auto take = [&](const auto& infos, auto& from, auto& to, std::vector<Place>& places, auto&& value_of) {
    for (std::size_t i = 0; i < infos.size(); ++i) {
      Place& place = places.emplace_back();
      const auto* const tensor = from.find(infos[i].name, static_cast<int>(i));
      if (!tensor || tensor->rank == 0) continue;
      const int index = static_cast<int>(to.names().size());
      to[infos[i].name] = *tensor;
      place = place_of(*tensor, value_of(i), index);
      half |= tensor->type != body.options.type;
    }
  };
  take(pipeline.inputs, all_inputs, p->in, p->reads, value_of_input);
  take(pipeline.outputs, all_outputs, p->out, p->writes, [&](std::size_t i) { return pipeline.output_values[i]; });
  p->needed = workspace_bytes(body, p->time, p->pairs, form, false);
  p->own_spans();

  const auto bind_once = [&](auto& b) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(b.values[0].writable)>>;
    std::vector<std::byte> memory(p->needed + 64);
    Arena arena(Workspace{memory.data(), memory.size()});
    const std::ptrdiff_t length = bound_length(body, form);
    Call own = p->call({}, {memory.data(), memory.size()});
    bind<T>(body, own, false, length, arena, b);
    p->at_once = b.time > 0 && !half && runs_at_once(body, b, form, length);
    p->sequences.assign(b.sequences.begin(), b.sequences.end());
    p->pair_sequences.assign(b.pair_sequences.begin(), b.pair_sequences.end());
    const std::byte* const base = aligned(memory.data());
    for (std::size_t v = 0; v < pipeline.values.size(); ++v) {
      Bound<T>& bound = b.values[v];
      if (bound.of_caller || !bound.writable) continue;
      p->scratch.push_back({v, reinterpret_cast<const std::byte*>(bound.writable) - base});
      bound.writable = nullptr, bound.data = nullptr;
    }
    p->rest = static_cast<const std::byte*>(arena.rest().data) - base;
  };
  if (body.options.type == Type::f32) bind_once(p->binding.emplace<Binding<float>>());
  else bind_once(p->binding.emplace<Binding<double>>());
  p->known.resize(p->reads.size() + p->writes.size());
  p->own_spans();
  return Prepared(*this, std::move(p));
}

}  // namespace ttr
