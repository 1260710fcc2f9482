// Prepared backward calls (ttr/prepared.h): as prepared.cc, with gradients. A call that goes in pieces of time or has
// tensors of a half type binds anew for every piece, and takes the way of Plan::backward with the addresses in its lists.
#include <variant>

#include "plan/diagnose.h"
#include "run/backward_pieces.h"
#include "run/execute.h"
#include "run/prepared_parts.h"
#include "run/strided.h"
#include "ttr/prepared.h"

namespace ttr {
namespace {

// Scratch of a value and of its gradient, from the aligned start of the workspace; none: below zero.
struct BackwardScratch {
  std::size_t value;
  std::ptrdiff_t data, gradient;
};

}  // namespace

struct PreparedBackward::Body {
  Inputs in, d_out;
  Outputs d_in;
  std::vector<std::int64_t> cu, pair_cu;
  Form form = Form::best;
  Gradients gradients = Gradients::write;
  std::ptrdiff_t time = 0, pairs = 0;
  std::vector<Place> reads, d_reads, d_writes;  // in the order of the plan
  std::size_t needed = 0;                       // bytes of workspace, after `kept` pairs
  std::int64_t kept = 0;
  bool at_once = false;  // on `binding`
  std::variant<Binding<float>, Binding<double>> binding;
  std::vector<families::Sequence> sequences, pair_sequences;
  std::vector<BackwardScratch> scratch;
  std::ptrdiff_t rest = 0;  // where the kernels' scratch begins

  Body() = default;
  Body(const Body& other)
      : in(other.in),
        d_out(other.d_out),
        d_in(other.d_in),
        cu(other.cu),
        pair_cu(other.pair_cu),
        form(other.form),
        gradients(other.gradients),
        time(other.time),
        pairs(other.pairs),
        reads(other.reads),
        d_reads(other.d_reads),
        d_writes(other.d_writes),
        needed(other.needed),
        kept(other.kept),
        at_once(other.at_once),
        binding(other.binding),
        sequences(other.sequences),
        pair_sequences(other.pair_sequences),
        scratch(other.scratch),
        rest(other.rest) {
    own_spans();
  }
  Body& operator=(const Body&) = delete;

  // What points into this object.
  void own_spans() {
    in.cu_seqlens = cu, in.cu_seqlens_pairs = pair_cu;
    std::visit([&](auto& b) { b.sequences = b.whole = sequences, b.pair_sequences = pair_sequences; }, binding);
  }

  Call call(ConstState initial, ConstState d_final, State d_initial, Workspace workspace) {
    Call c;
    c.inputs = &in, c.d_outputs = &d_out, c.d_inputs = &d_in;
    c.state = {const_cast<void*>(initial.data), initial.bytes};  // backward only reads it
    c.d_final = d_final, c.d_initial = d_initial, c.workspace = workspace;
    c.form = form, c.gradients = gradients, c.time = time, c.pairs = pairs;
    return c;
  }

  bool is_apart(const Call& c, std::span<const void* const> inputs, std::span<const void* const> d_outputs,
                std::span<void* const> d_inputs) const noexcept {
    MemoryOfCall memory;
    memory.writes(c.workspace.data, c.workspace.bytes), memory.writes(c.d_initial.data, c.d_initial.bytes);
    memory.reads(c.state.data, c.state.bytes), memory.reads(c.d_final.data, c.d_final.bytes);
    memory.reads(c.saved.data, c.saved.bytes);
    for (std::size_t i = 0; i < reads.size(); ++i) memory.reads(reads[i], inputs[i]);
    for (std::size_t i = 0; i < d_reads.size(); ++i) memory.reads(d_reads[i], d_outputs[i]);
    for (std::size_t i = 0; i < d_writes.size(); ++i) memory.writes(d_writes[i], d_inputs[i]);
    return memory.is_apart();
  }

  template <class T>
  Status run(const Plan::Body& plan, const Call& c, Binding<T>& b, std::span<const void* const> inputs,
             std::span<const void* const> d_outputs, std::span<void* const> d_inputs) noexcept {
    for (std::size_t i = 0; i < reads.size(); ++i)
      if (reads[i].value >= 0)
        b.values[static_cast<std::size_t>(reads[i].value)].data = static_cast<const T*>(inputs[i]);
    for (std::size_t i = 0; i < d_writes.size(); ++i)
      if (d_writes[i].value >= 0)
        b.values[static_cast<std::size_t>(d_writes[i].value)].gradient = static_cast<T*>(d_inputs[i]);
    std::array<const ConstTensor*, Inputs::capacity> outputs{};
    for (std::size_t i = 0; i < d_reads.size(); ++i) {
      if (!d_reads[i].given) continue;
      outputs[i] = &d_out.tensors()[static_cast<std::size_t>(d_reads[i].tensor)];
      const Value& v = plan.pipeline.values[static_cast<std::size_t>(d_reads[i].value)];
      Bound<T>& bound = b.values[static_cast<std::size_t>(d_reads[i].value)];
      if (!v.read) bound.gradient_in = static_cast<const T*>(d_outputs[i]);
    }
    std::byte* const base = const_cast<std::byte*>(aligned(c.workspace.data));
    for (const BackwardScratch& s : scratch) {
      Bound<T>& bound = b.values[s.value];
      if (s.data >= 0) bound.data = bound.writable = reinterpret_cast<T*>(base + s.data);
      if (s.gradient >= 0) {
        bound.gradient = reinterpret_cast<T*>(base + s.gradient);
        bound.gradient_in = bound.gradient;
      }
    }
    b.saved = static_cast<std::byte*>(c.saved.data);
    start_gradients(plan, d_in, gradients, true, b);
    if (c.d_initial.data) clear_state(plan, c.d_initial);
    const std::byte* const end = static_cast<const std::byte*>(c.workspace.data) + c.workspace.bytes;
    return execute_backward(plan, c, {outputs.data(), d_reads.size()}, b,
                            Arena(Workspace{base + rest, static_cast<std::size_t>(end - base - rest)}));
  }
};

PreparedBackward::PreparedBackward(Plan plan, std::unique_ptr<Body> body)
    : plan_(std::move(plan)), body_(std::move(body)) {}
PreparedBackward::PreparedBackward(const PreparedBackward& other)
    : plan_(other.plan_), body_(std::make_unique<Body>(*other.body_)) {}
PreparedBackward::PreparedBackward(PreparedBackward&&) noexcept = default;
PreparedBackward& PreparedBackward::operator=(const PreparedBackward& other) {
  if (this != &other) plan_ = other.plan_, body_ = std::make_unique<Body>(*other.body_);
  return *this;
}
PreparedBackward& PreparedBackward::operator=(PreparedBackward&&) noexcept = default;
PreparedBackward::~PreparedBackward() = default;

std::int64_t PreparedBackward::time() const noexcept { return body_->time; }

Status PreparedBackward::operator()(std::span<const void* const> inputs, ConstState initial,
                                    std::span<const void* const> d_outputs, ConstState d_final,
                                    std::span<void* const> d_inputs, State d_initial, Workspace workspace,
                                    Saved saved) noexcept {
  Body& p = *body_;
  const Plan::Body& plan = *plan_.body();
  if (const Status s = check_addresses(p.reads, inputs); s != Status::ok) return s;
  if (const Status s = check_addresses(p.d_reads, d_outputs); s != Status::ok) return s;
  if (const Status s = check_addresses(p.d_writes, d_inputs); s != Status::ok) return s;
  put_addresses(p.reads, inputs, p.in), put_addresses(p.d_reads, d_outputs, p.d_out);
  put_addresses(p.d_writes, d_inputs, p.d_in);
  Call c = p.call(initial, d_final, d_initial, workspace);
  c.saved = saved;
  if (!p.at_once || !p.is_apart(c, inputs, d_outputs, d_inputs)) {
    Fault fault = check_call(plan, c);
    if (fault.status == Status::ok && saved.data) fault = use_saved(plan, c);
    return fault.status != Status::ok ? fault.status : run_backward(plan, c);
  }
  std::int64_t kept = 0;
  if (const Fault f = check_state(plan, c, kept); f.status != Status::ok) return f.status;
  if (kept > p.kept) p.needed = workspace_bytes(plan, p.time, p.pairs, kept, p.form, true), p.kept = kept;
  if (!workspace.data || workspace.bytes < p.needed) return Status::small_workspace;
  if (saved.data)
    if (const Fault f = use_saved(plan, c); f.status != Status::ok) return f.status;
  if (Binding<float>* const single = std::get_if<Binding<float>>(&p.binding))
    return p.run(plan, c, *single, inputs, d_outputs, d_inputs);
  if constexpr (builds_f64)
    return p.run(plan, c, *std::get_if<Binding<double>>(&p.binding), inputs, d_outputs, d_inputs);
  else return Status::not_supported;
}

PreparedBackward Plan::prepare_backward(const Inputs& inputs, const Inputs& d_outputs, const Outputs& d_inputs,
                                        Form form, Gradients gradients) const {
  const Plan::Body& body = *body_;
  const Pipeline& pipeline = body.pipeline;
  auto p = std::make_unique<PreparedBackward::Body>();
  p->form = form, p->gradients = gradients;
  p->cu.assign(inputs.cu_seqlens.begin(), inputs.cu_seqlens.end());
  p->pair_cu.assign(inputs.cu_seqlens_pairs.begin(), inputs.cu_seqlens_pairs.end());
  Inputs all_inputs = inputs, all_d_outputs = d_outputs;  // with names that nobody knows, which are refused
  Outputs all_d_inputs = d_inputs;
  stand_in(inputs, all_inputs), stand_in(d_outputs, all_d_outputs), stand_in(d_inputs, all_d_inputs);
  all_inputs.cu_seqlens = p->cu, all_inputs.cu_seqlens_pairs = p->pair_cu;
  Call call;
  call.inputs = &all_inputs, call.d_outputs = &all_d_outputs, call.d_inputs = &all_d_inputs, call.form = form;
  measure(body, call);
  if (const Fault fault = check_tensors_alone(body, call); fault.status != Status::ok)
    throw Error(sentence_of(body, call, fault), std::string(fault.tensor));
  p->time = call.time, p->pairs = call.pairs;
  const auto of_input = [&](std::size_t i) { return value_of_input(pipeline, i); };
  const auto of_output = [&](std::size_t i) { return pipeline.output_values[i]; };
  bool half = take_places(body, pipeline.inputs, all_inputs, p->in, p->reads, of_input);
  half |= take_places(body, pipeline.outputs, all_d_outputs, p->d_out, p->d_reads, of_output);
  half |= take_places(body, pipeline.inputs, all_d_inputs, p->d_in, p->d_writes, of_input);
  p->needed = workspace_bytes(body, p->time, p->pairs, 0, form, true);
  p->own_spans();

  const auto bind_once = [&](auto& b) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(b.values[0].writable)>>;
    p->at_once = p->time > 0 && !half && !goes_in_pieces(body, p->time, form);
    if (!p->at_once) return;
    const std::size_t size = p->needed + 64;
    const auto memory = std::make_unique_for_overwrite<std::byte[]>(size);  // only places in it matter
    Arena arena(Workspace{memory.get(), size});
    const Call own = p->call({}, {}, {}, {memory.get(), size});
    bind<T>(body, own, true, std::numeric_limits<std::ptrdiff_t>::max(), arena, b);
    p->sequences.assign(b.sequences.begin(), b.sequences.end());
    p->pair_sequences.assign(b.pair_sequences.begin(), b.pair_sequences.end());
    const std::byte* const base = aligned(memory.get());
    const auto offset = [&](const T* at) { return at ? reinterpret_cast<const std::byte*>(at) - base : -1; };
    for (std::size_t v = 0; v < pipeline.values.size(); ++v)
      if (pipeline.values[v].from == Value::From::step && (b.values[v].writable || b.values[v].gradient))
        p->scratch.push_back({v, offset(b.values[v].writable), offset(b.values[v].gradient)});
    p->rest = static_cast<const std::byte*>(arena.rest().data) - base;
  };
  if (body.options.type == Type::f32) bind_once(p->binding.emplace<Binding<float>>());
  else bind_once(p->binding.emplace<Binding<double>>());
  p->own_spans();
  return PreparedBackward(*this, std::move(p));
}

}  // namespace ttr
