// Prepared calls (ttr/prepared.h). What Plan::forward finds out with every call is found once: the place of every value,
// scratch as offsets from the workspace, how far each tensor reaches from its address. A call then puts addresses in,
// looks whether memory overlaps, and runs the steps.
//
// Tensors of a half type have their float copies in the workspace, at places that are found once too. Calls that go in
// blocks of time bind anew for every block; they take the way of Plan::forward with the addresses put into its lists.
#include "ttr/prepared.h"

#include <algorithm>
#include <cstring>
#include <variant>
#include <vector>

#include "plan/diagnose.h"
#include "plan/joints.h"
#include "run/execute.h"
#include "run/half_tensors.h"
#include "run/operation_steps.h"
#include "run/prepared_parts.h"
#include "run/segments.h"
#include "run/undo.h"

namespace ttr {

struct TTR_HIDDEN Prepared::Body {
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
  // Tensors of a half type, of calls at once: where their copies are from the aligned start of the workspace, and theirs is
  // the place `at` among the reads or writes.
  struct HalfPlace {
    std::ptrdiff_t offset;
    std::size_t at;
  };
  std::vector<HalfTensor> halves;
  std::vector<HalfPlace> half_places;
  std::ptrdiff_t rest = 0;  // where the kernels' scratch begins
  // Steps that keep what they make of these addresses, on one thread: where in ready_memory. Empty: none do.
  struct Ready {
    std::size_t step, offset;
  };
  std::vector<Ready> ready;
  std::vector<std::max_align_t> ready_memory;
  bool is_ready = false;
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
    halves = other.halves, half_places = other.half_places;
    known.assign(other.known.size(), nullptr);
    ready = other.ready, ready_memory.resize(other.ready_memory.size()), is_ready = false;
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
    std::visit([&](auto& b) { b.sequences = b.whole = sequences, b.pair_sequences = pair_sequences; }, binding);
  }

  Call call(State state, Workspace workspace) {
    Call c;
    c.inputs = &in, c.outputs = &out, c.state = state, c.workspace = workspace;
    c.form = form, c.time = time, c.pairs = pairs;
    return c;
  }
  Status whole_call(const Plan::Body& plan, State state, Workspace workspace, Saved saved) noexcept {
    Call c = call(state, workspace);
    c.saved = saved;
    Fault fault = check_call(plan, c);
    if (fault.status == Status::ok && saved.data) fault = use_saved(plan, c);
    return fault.status != Status::ok ? fault.status : run_forward(plan, c);
  }

  // Whether nothing that is written overlaps anything else, judged by ranges alone.
  bool is_apart(std::span<const void* const> inputs, std::span<void* const> outputs, State state,
                Workspace workspace) const noexcept {
    MemoryOfCall memory;
    memory.writes(state.data, state.bytes), memory.writes(workspace.data, workspace.bytes);
    for (std::size_t i = 0; i < reads.size(); ++i) memory.reads(reads[i], inputs[i]);
    for (std::size_t i = 0; i < writes.size(); ++i) memory.writes(writes[i], outputs[i]);
    return memory.is_apart();
  }

  bool has_workspace(const Plan::Body& plan, std::int64_t pairs_kept, Workspace workspace) noexcept {
    if (!workspace.data) return false;
    if (pairs_kept <= kept && workspace.bytes >= needed) return true;
    // For some tokens more at once, so that a growing state does not ask with every call.
    for (const std::int64_t more : {64, 0}) {
      const std::int64_t all = pairs_kept + more;
      const std::size_t bytes = workspace_bytes(plan, time, pairs, all, form, false);
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
    for (std::size_t i = 0; i < halves.size(); ++i) {
      const HalfPlace& of = half_places[i];
      halves[i].data = halves[i].output ? outputs[of.at] : const_cast<void*>(inputs[of.at]);
      if (!halves[i].in_place) halves[i].copy = reinterpret_cast<float*>(base + of.offset);
    }
  }

  template <class T>
  Status run(const Plan::Body& plan, const Binding<T>& b, State state, Workspace workspace) noexcept {
    std::byte* const base = const_cast<std::byte*>(aligned(workspace.data));
    const std::byte* const end = static_cast<const std::byte*>(workspace.data) + workspace.bytes;
    return execute(plan, b, state, form, {base + rest, static_cast<std::size_t>(end - base - rest)});
  }

  std::byte* memory_of(const Ready& r) { return reinterpret_cast<std::byte*>(ready_memory.data()) + r.offset; }
  // Steps whose arguments are the addresses alone, if they all are.
  void find_ready(const Plan::Body& plan) {
    if (plan.options.threads > 1 || keeps_earlier_states(plan) || plan.has_counts()) return;
    std::size_t bytes = 0;
    bool all = true;
    for (std::size_t i = 0; i < plan.pipeline.steps.size(); ++i) {
      const Step& step = plan.pipeline.steps[i];
      if (step.folded) continue;
      std::size_t own = 0;
      std::visit(
          [&]<class T>(const Binding<T>&) {
            own = step.kernel      ? step.kernel->template calls<T>().ready_bytes
                  : joint_of(step) ? ready_joint_bytes<T>()
                                   : ready_operation_bytes<T>();
          },
          binding);
      all = all && own > 0 && !step.compact && !(step.kernel && by_segments(step, form));
      if (joint_of(step) && !joint_of(step)->begins_with(i)) continue;  // the first does its work
      ready.push_back({i, bytes});
      bytes += (own + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t) * sizeof(std::max_align_t);
    }
    if (!all) ready.clear();
    else ready_memory.resize(bytes / sizeof(std::max_align_t));
  }
  template <class T>
  void make_ready(const Plan::Body& plan, const Binding<T>& b, State state, Workspace workspace) noexcept {
    std::byte* const base = const_cast<std::byte*>(aligned(workspace.data));
    const std::byte* const end = static_cast<const std::byte*>(workspace.data) + workspace.bytes;
    const Workspace work{base + rest, static_cast<std::size_t>(end - base - rest)};
    for (const Ready& r : ready) {
      const Step& step = plan.pipeline.steps[r.step];
      if (step.kernel) step.kernel->template calls<T>().ready(plan, step, b, state, form, work, memory_of(r));
      else if (const Joint* const joint = joint_of(step)) ready_joint(plan, *joint, b, memory_of(r));
      else ready_operation(plan, step, b, memory_of(r));
    }
    is_ready = true;
  }
  template <class T>
  Status go(const Plan::Body& plan, const Binding<T>& b, State state) noexcept {
    Status worst = Status::ok;
    for (const Ready& r : ready) {
      const Step& step = plan.pipeline.steps[r.step];
      const Status s = step.kernel      ? step.kernel->template calls<T>().go(memory_of(r))
                       : joint_of(step) ? go_joint<T>(plan, memory_of(r))
                                        : go_operation<T>(plan, memory_of(r));
      if (s != Status::ok && s != Status::out_of_domain) return s;
      if (s != Status::ok) worst = s;
    }
    count_tokens(plan, b, state);
    return worst;
  }

  // Tensors of a half type around the steps.
  Status call_at_once(const Plan::Body& plan, State state, Workspace workspace) noexcept {
    if (halves.empty()) return run_at_once(plan, state, workspace);
    const HalfCopies copies(plan, halves);
    if (!is_ready) {
      // Before anything is written to the workspace.
      std::int64_t pairs_kept = 0;
      if (const Status s = check_memory(plan, state, workspace, pairs_kept); s != Status::ok) return s;
      copies.bind(*std::get_if<Binding<float>>(&binding));
    }
    copies.open_all(time);
    const Status status = run_at_once(plan, state, workspace);
    if (status == Status::ok || status == Status::out_of_domain) copies.close(0, time);
    return status;
  }
  Status check_memory(const Plan::Body& plan, State state, Workspace workspace, std::int64_t& pairs_kept) noexcept {
    if (plan.has_counts()) {
      if (const Fault f = check_state(plan, call(state, workspace), pairs_kept); f.status != Status::ok)
        return f.status;
    } else if (const Status s = check_buffer(plan, state); s != Status::ok) {
      return s;
    }
    return has_workspace(plan, pairs_kept, workspace) ? Status::ok : Status::small_workspace;
  }

  // State and workspace, and then the steps; the binding has the addresses.
  Status run_at_once(const Plan::Body& plan, State state, Workspace workspace) noexcept {
    if (is_ready) {  // state and workspace are those of the call before, which were good
      if (const Binding<float>* const single = std::get_if<Binding<float>>(&binding)) return go(plan, *single, state);
      return go(plan, *std::get_if<Binding<double>>(&binding), state);
    }
    std::int64_t pairs_kept = 0;
    if (const Status s = check_memory(plan, state, workspace, pairs_kept); s != Status::ok) return s;
    if (!ready.empty()) {
      std::visit([&](auto& b) { make_ready(plan, b, state, workspace); }, binding);
      return run_at_once(plan, state, workspace);
    }
    if (Binding<float>* const single = std::get_if<Binding<float>>(&binding))
      return run(plan, *single, state, workspace);
    if constexpr (builds_f64) return run(plan, *std::get_if<Binding<double>>(&binding), state, workspace);
    else return Status::not_supported;
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
                            Workspace workspace, Saved saved) noexcept {
  Body& p = *body_;
  const Plan::Body& plan = *plan_.body();
  if (!saved.data && p.is_known(inputs, outputs, state, workspace)) return p.call_at_once(plan, state, workspace);
  if (inputs.size() != p.reads.size() || outputs.size() != p.writes.size()) return Status::bad_shape;
  if (const Status s = check_addresses(p.reads, inputs); s != Status::ok) return s;
  if (const Status s = check_addresses(p.writes, outputs); s != Status::ok) return s;
  if (p.at_once && !saved.data && p.is_apart(inputs, outputs, state, workspace)) {
    if (!workspace.data) return Status::small_workspace;
    p.is_ready = false;
    std::visit([&](auto& b) { p.place(b, inputs, outputs, workspace); }, p.binding);
    std::copy(outputs.begin(), outputs.end(), std::copy(inputs.begin(), inputs.end(), p.known.begin()));
    p.known_state = state, p.known_work = workspace;
    return p.call_at_once(plan, state, workspace);
  }
  put_addresses(p.reads, inputs, p.in), put_addresses(p.writes, outputs, p.out);
  return p.whole_call(plan, state, workspace, saved);
}

Prepared Plan::prepare(const Inputs& inputs, const Outputs& outputs, Form form) const {
  const Body& body = *body_;
  const Pipeline& pipeline = body.pipeline;
  auto p = std::make_unique<Prepared::Body>();
  p->form = form;
  p->cu.assign(inputs.cu_seqlens.begin(), inputs.cu_seqlens.end());
  p->pair_cu.assign(inputs.cu_seqlens_pairs.begin(), inputs.cu_seqlens_pairs.end());
  Inputs all_inputs = inputs;  // with names that nobody knows, which are refused
  Outputs all_outputs = outputs;
  stand_in(inputs, all_inputs), stand_in(outputs, all_outputs);
  all_inputs.cu_seqlens = p->cu, all_inputs.cu_seqlens_pairs = p->pair_cu;
  Call call;
  call.inputs = &all_inputs, call.outputs = &all_outputs, call.form = form;
  measure(body, call);
  if (const Fault fault = check_tensors_alone(body, call); fault.status != Status::ok)
    throw Error(sentence_of(body, call, fault), std::string(fault.tensor));
  p->time = call.time, p->pairs = call.pairs;

  bool half = false;
  const auto take = [&](const auto& infos, auto& from, auto& to, std::vector<Place>& places, auto&& value_of) {
    half |= take_places(body, infos, from, to, places, value_of);
  };
  take(pipeline.inputs, all_inputs, p->in, p->reads, [&](std::size_t i) { return value_of_input(pipeline, i); });
  take(pipeline.outputs, all_outputs, p->out, p->writes, [&](std::size_t i) { return pipeline.output_values[i]; });
  p->needed = workspace_bytes(body, p->time, p->pairs, 0, form, false);
  p->own_spans();

  const auto bind_once = [&](auto& b) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(b.values[0].writable)>>;
    const std::size_t size = p->needed + 64;
    const auto memory = std::make_unique_for_overwrite<std::byte[]>(size);  // only places in it matter
    Arena arena(Workspace{memory.get(), size});
    Call own = p->call({}, {memory.get(), size});
    const std::ptrdiff_t length = half ? half_length(body, own) : bound_length(body, form);
    bool copies_of_tokens = false;
    const std::byte* const base = aligned(memory.get());
    if (half) {
      const HalfCopies copies(body, own, length, arena);
      copies_of_tokens = copies.any_of_tokens();
      for (const HalfTensor& one : copies.list()) {
        const std::vector<Place>& places = one.output ? p->writes : p->reads;
        const auto at =
            std::find_if(places.begin(), places.end(), [&](const Place& x) { return x.value == one.value; });
        p->halves.push_back(one);
        p->half_places.push_back({one.copy ? reinterpret_cast<const std::byte*>(one.copy) - base : 0,
                                  static_cast<std::size_t>(at - places.begin())});
      }
    }
    bind<T>(body, own, false, length, arena, b);
    p->at_once = b.time > 0 && (copies_of_tokens ? b.time <= length : runs_at_once(body, b, form, length));
    if (!p->at_once) p->halves.clear(), p->half_places.clear();
    p->sequences.assign(b.sequences.begin(), b.sequences.end());
    p->pair_sequences.assign(b.pair_sequences.begin(), b.pair_sequences.end());
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
  if (p->at_once) p->find_ready(body);
  p->own_spans();
  return Prepared(*this, std::move(p));
}

}  // namespace ttr
