// Running a pipeline: bind the caller's tensors, execute the steps, and for gradients execute them in reverse.
#include <algorithm>
#include <cstring>
#include <limits>

#include "families/family.h"
#include "run/backward_pieces.h"
#include "run/execute.h"
#include "run/half_tensors.h"
#include "run/kernels.h"
#include "run/operation_steps.h"
#include "run/saved.h"
#include "run/strided.h"
#include "run/time_blocks.h"
#include "run/undo.h"

namespace ttr {
namespace {

using families::Sequence;

// dense += the strided tensor
template <class T>
void add_strided(const ConstTensor& tensor, const T* data, T* dense) noexcept {
  const std::ptrdiff_t step = step_of(tensor.rank, tensor.stride);
  for_each_row<1>(tensor.rank, tensor.extent, {&tensor.stride}, [&](const auto& offset, std::ptrdiff_t count) {
    for (std::ptrdiff_t i = 0; i < count; ++i) *dense++ += data[offset[0] + i * step];
  });
}

}  // namespace

template <class T>
void bind(const Plan::Body& body, const Call& call, bool backward, std::ptrdiff_t length, Arena& arena,
          Binding<T>& b) noexcept {
  const auto cu = call.inputs->cu_seqlens;
  b.time = std::max<std::ptrdiff_t>(0, call.time);
  b.pairs = std::max<std::ptrdiff_t>(0, call.pairs);
  b.batch = cu.empty() ? body.shape.batch : 1;
  b.later = call.later;
  b.saved = static_cast<std::byte*>(call.saved.data), b.form = call.form, b.backward = backward;

  const std::size_t n = static_cast<std::size_t>(body.shape.batch);
  Sequence* sequences = arena.take<Sequence>(static_cast<std::ptrdiff_t>(n));
  for (std::size_t i = 0; i < n; ++i)
    sequences[i] = cu.empty()
                       ? Sequence{static_cast<std::ptrdiff_t>(i), 0, b.time}
                       : Sequence{0, static_cast<std::ptrdiff_t>(cu[i]), static_cast<std::ptrdiff_t>(cu[i + 1])};
  b.sequences = {sequences, n};
  b.whole = call.whole ? std::span<const Sequence>(call.whole, n) : b.sequences, b.before = call.before;
  const std::ptrdiff_t pairs = body.pipeline.pairs;
  const auto pair_cu = call.inputs->cu_seqlens_pairs.empty() ? cu : call.inputs->cu_seqlens_pairs;
  Sequence* of_pairs = arena.take<Sequence>(static_cast<std::ptrdiff_t>(n));
  for (std::size_t i = 0; i < n; ++i) {
    of_pairs[i] = {sequences[i].row, sequences[i].begin * pairs, sequences[i].end * pairs};
    if (!body.pipeline.noncausal) continue;
    of_pairs[i].begin = cu.empty() ? 0 : static_cast<std::ptrdiff_t>(pair_cu[i]);
    of_pairs[i].end = cu.empty() ? b.pairs : static_cast<std::ptrdiff_t>(pair_cu[i + 1]);
  }
  b.pair_sequences = {of_pairs, n};

  for (std::size_t i = 0; i < body.pipeline.values.size(); ++i) {
    const Value& v = body.pipeline.values[i];
    Bound<T>& bound = b.values[i];
    bound.clear();
    switch (v.from) {
      case Value::From::input: {
        if (v.input < 0) break;  // nothing reads it
        const std::string& name = body.pipeline.inputs[static_cast<std::size_t>(v.input)].name;
        if (const ConstTensor* tensor = call.inputs->find(name, v.input)) {
          bound.data = static_cast<const T*>(tensor->data);
          bound.extent = tensor->extent, bound.stride = tensor->stride;
        }
        bound.of_caller = true;
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
        const int output = v.output;
        length = std::min(length, b.time);
        const std::ptrdiff_t count = contiguous(body, v.axes, b.batch, length, b.pairs, bound.extent, bound.stride);
        bound.gradient_stride = bound.stride;
        if (output >= 0 && !backward) {
          const Tensor* const out =
              call.outputs->find(body.pipeline.outputs[static_cast<std::size_t>(output)].name, output);
          if (out && *out) {
            bound.writable = static_cast<T*>(out->data);
            bound.stride = out->stride;
            bound.data = bound.writable;
            bound.of_caller = true;
            break;
          }
          if (!v.read && v.on_demand) break;
        }
        if (!backward || v.replayed) bound.data = bound.writable = arena.take<T>(count);
        if (backward) {
          const ConstTensor d_out =
              output < 0 ? ConstTensor{}
                         : call.d_outputs->get(body.pipeline.outputs[static_cast<std::size_t>(output)].name);
          if (output >= 0 && !v.read) {  // the caller's gradient is all of it
            bound.gradient_in = static_cast<const T*>(d_out.data);
            if (d_out) bound.gradient_stride = d_out.stride;
            break;
          }
          bound.gradient = arena.take<T>(count);
          bound.gradient_in = bound.gradient;
          // Nobody reads its numbers, but an operand without a place counts as left out.
          if (!bound.data) bound.data = bound.gradient;
        }
      }
    }
  }
}

template void bind<float>(const Plan::Body&, const Call&, bool, std::ptrdiff_t, Arena&, Binding<float>&) noexcept;
template void bind<double>(const Plan::Body&, const Call&, bool, std::ptrdiff_t, Arena&, Binding<double>&) noexcept;

namespace {

// An input outside the domain makes its own sequence wrong and no other. The steps that follow still run, so that the
// other sequences get their answers and every state is complete; the call then returns out_of_domain. The literal
// solver stops at the first such number and changes nothing.
bool stops(const Step& step, Status s) noexcept {
  return s != Status::ok && (s != Status::out_of_domain || (step.kernel && step.kernel->traits.literal));
}

// Tokens begin .. end-1 of every row as a call of its own. Sequences outside have no tokens in it.
template <class T>
void bind_block(const Plan::Body& body, const Binding<T>& whole, std::ptrdiff_t begin, std::ptrdiff_t end,
                Sequence* sequences, Sequence* of_pairs, std::ptrdiff_t* later, std::ptrdiff_t* before,
                Binding<T>& piece) noexcept {
  const std::ptrdiff_t pairs = body.pipeline.pairs;
  piece.batch = whole.batch, piece.time = end - begin, piece.pairs = piece.time * pairs;
  for (std::size_t n = 0; n < whole.sequences.size(); ++n) {
    const Sequence& s = whole.sequences[n];
    const std::ptrdiff_t from = std::clamp(s.begin, begin, end) - begin, to = std::clamp(s.end, begin, end) - begin;
    sequences[n] = {s.row, from, to}, of_pairs[n] = {s.row, from * pairs, to * pairs};
    later[n] = std::max<std::ptrdiff_t>(0, s.end - end) + (whole.later ? whole.later[n] : 0);
    before[n] = std::clamp(begin, s.begin, s.end) - s.begin + (whole.before ? whole.before[n] : 0);
  }
  piece.later = later;
  piece.saved = whole.saved, piece.whole = whole.whole, piece.before = before, piece.form = whole.form;
  piece.sequences = {sequences, whole.sequences.size()}, piece.pair_sequences = {of_pairs, whole.sequences.size()};
  for (std::size_t i = 0; i < body.pipeline.values.size(); ++i) {
    Bound<T>& bound = piece.values[i] = whole.values[i];
    if (!bound.of_caller || !bound.data) continue;
    const AxisPlaces& places = body.pipeline.values[i].places;
    if (places.time < 0) continue;
    const std::ptrdiff_t first = places.of_pairs ? begin * pairs : begin;
    const std::ptrdiff_t skip = first * bound.stride[static_cast<std::size_t>(places.time)];
    bound.data = further(bound.half, bound.data, skip);
    bound.writable = further(bound.half, bound.writable, skip);
  }
}

}  // namespace

template <class T>
Status execute(const Plan::Body& body, const Binding<T>& b, State state, Form form, Workspace work) noexcept {
  const bool undoable = keeps_earlier_states(body);
  Arena arena(work);
  UndoScratch scratch;
  if (undoable) {
    scratch = UndoScratch(body, arena);
    if (body.has_counts()) std::copy_n(body.counts(state), body.shape.batch, scratch.counts);
    work = arena.rest();
  }
  Status worst = Status::ok;
  const std::vector<Step>& steps = body.pipeline.steps;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    const Joint* const joint = joint_of(step);
    if (step.folded || (joint && !joint->begins_with(i))) continue;
    const Status s = joint          ? joint_forward(body, *joint, b)
                     : !step.kernel ? operation_forward(body, step, b)
                     : undoable     ? kernel_forward_undoable(body, step, b, state, form, work, scratch)
                                    : kernel_forward(body, step, b, state, form, work);
    if (stops(step, s)) return s;
    if (s != Status::ok) worst = s;
  }
  count_tokens(body, b, state);
  return worst;
}
template Status execute<float>(const Plan::Body&, const Binding<float>&, State, Form, Workspace) noexcept;
template Status execute<double>(const Plan::Body&, const Binding<double>&, State, Form, Workspace) noexcept;

std::ptrdiff_t bound_length(const Plan::Body& body, Form form) noexcept {
  return goes_in_blocks(body, form) ? block_length(body, form) : std::numeric_limits<std::ptrdiff_t>::max();
}

template <class T>
bool runs_at_once(const Plan::Body& body, const Binding<T>& b, Form form, std::ptrdiff_t length) noexcept {
  if (b.time <= length) return true;
  if (grows(body) || form == Form::scan) return false;
  // The caller has made room for all results of steps.
  return std::none_of(b.values.begin(), b.values.begin() + static_cast<std::ptrdiff_t>(body.pipeline.values.size()),
                      [](const Bound<T>& bound) { return bound.writable && !bound.of_caller; });
}
template bool runs_at_once<float>(const Plan::Body&, const Binding<float>&, Form, std::ptrdiff_t) noexcept;
template bool runs_at_once<double>(const Plan::Body&, const Binding<double>&, Form, std::ptrdiff_t) noexcept;

void pass_on(const Plan::Body& body, const Call& call) noexcept {
  if (!call.d_initial.data || !call.d_final.data) return;
  const std::size_t batch = static_cast<std::size_t>(body.shape.batch);
  if (body.pipeline.history)
    std::memcpy(body.counts(call.d_initial), body.counts(call.state), batch * sizeof(std::int64_t));
  const auto kept = [&](std::size_t n) {
    return body.pipeline.history ? static_cast<std::ptrdiff_t>(body.counts(call.state)[n]) : 0;
  };
  for (std::size_t i = 0; i < body.pipeline.states.size(); ++i) {
    const StatePart& part = body.pipeline.states[i];
    const StatePlace from = body.state_place(call.d_final, static_cast<int>(i)),
                     to = body.state_place(call.d_initial, static_cast<int>(i));
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

namespace {

// Whether the gradient of a value is that of one operand of one kernel, which clears the rows it is about to add to.
template <class T>
bool is_cleared_by_kernel(const Plan::Body& body, const Bound<T>& bound, std::size_t index) {
  const Value& v = body.pipeline.values[index];
  const AxisPlaces& at = v.places;
  if (!bound.gradient || v.axes.size() != 4 || at.batch < 0 || at.time < 0 || at.head < 0 || at.inner < 0)
    return false;
  for (std::size_t d = 0; d < 4; ++d)
    if (bound.gradient_stride[d] == 0 && bound.extent[d] != 1) return false;
  int readers = 0;
  bool clears = false;
  for (const Step& step : body.pipeline.steps)
    for (std::size_t r = 0; r < step.operands.size(); ++r) {
      if (step.operands[r] != static_cast<int>(index)) continue;
      ++readers;
      clears = step.kernel && (step.kernel->template calls<T>().clears >> r & 1) != 0;
    }
  return readers == 1 && clears;
}

// A result that is added to and read by nothing else has the gradient of the sum: it is read there, not copied.
template <class T>
void share_gradients(const Plan::Body& body, Binding<T>& b) {
  const std::vector<Step>& steps = body.pipeline.steps;
  for (std::size_t i = steps.size(); i-- > 0;) {
    using prepare::Op;
    const Step& step = steps[i];
    const bool passes = step.op == Op::skip || step.op == Op::add || step.op == Op::subtract ||
                        (step.op == Op::scale && step.number == 1);
    if (step.kernel || !passes || step.operands.empty() || step.operands[0] < 0) continue;
    const auto index = static_cast<std::size_t>(step.operands[0]);
    const Value &from = body.pipeline.values[index], &sum = value(body, step.result);
    if (from.from != Value::From::step || from.output >= 0 || !(from.axes == sum.axes)) continue;
    int readers = 0;
    for (const Step& other : steps)
      readers += static_cast<int>(std::count(other.operands.begin(), other.operands.end(), step.operands[0]));
    Bound<T>& bound = b.values[index];
    const Bound<T>& to = b.values[static_cast<std::size_t>(step.result)];
    if (readers != 1 || !bound.gradient) continue;
    bound.gradient = nullptr, bound.gradient_in = to.gradient_in, bound.gradient_stride = to.gradient_stride;
  }
}

}  // namespace

template <class T>
void start_gradients(const Plan::Body& body, const Outputs& d_inputs, Gradients gradients, bool parameters,
                     Binding<T>& b) noexcept {
  if (gradients != Gradients::write) return;
  for (std::size_t i = 0; i < body.pipeline.inputs.size(); ++i) {
    const Tensor* const tensor = d_inputs.find(body.pipeline.inputs[i].name, static_cast<int>(i));
    if (!tensor || (!parameters && !body.pipeline.input_axes[i].has_any("TP"))) continue;
    bool by_kernel = false;
    for (std::size_t v = 0; v < body.pipeline.values.size() && !by_kernel; ++v) {
      const Value& value = body.pipeline.values[v];
      if (value.from != Value::From::input || value.input != static_cast<int>(i)) continue;
      by_kernel = b.values[v].fresh = b.time > 0 && is_cleared_by_kernel(body, b.values[v], v);
    }
    if (!by_kernel) clear_tensor(*tensor);
  }
}
template void start_gradients<float>(const Plan::Body&, const Outputs&, Gradients, bool, Binding<float>&) noexcept;
template void start_gradients<double>(const Plan::Body&, const Outputs&, Gradients, bool, Binding<double>&) noexcept;

template <class T>
Status execute_backward(const Plan::Body& body, const Call& call, std::span<const ConstTensor* const> d_outputs,
                        Binding<T>& b, Arena arena) noexcept {
  const std::vector<Step>& steps = body.pipeline.steps;
  share_gradients(body, b);
  for (std::size_t i = 0; i < body.pipeline.values.size(); ++i) {
    const Value& v = body.pipeline.values[i];
    if (v.from != Value::From::step || !b.values[i].gradient) continue;
    b.values[i].fresh = v.output < 0 && is_cleared_by_kernel(body, b.values[i], i);
    if (b.values[i].fresh) continue;
    std::ptrdiff_t count = 1;
    for (std::size_t d = 0; d < v.axes.size(); ++d) count *= b.values[i].extent[d];
    std::fill_n(b.values[i].gradient, count, T(0));
    const ConstTensor* const d_out = v.output < 0 ? nullptr : d_outputs[static_cast<std::size_t>(v.output)];
    if (d_out && *d_out) add_strided(*d_out, static_cast<const T*>(d_out->data), b.values[i].gradient);
  }

  // The values that gradients read. A kernel runs on a copy of the initial state.
  Status worst = Status::ok;
  std::byte* copy = nullptr;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!body.pipeline.replayed[i]) continue;
    Status s = Status::ok;
    if (!steps[i].kernel) {
      s = operation_forward(body, steps[i], b);
    } else if (steps[i].kernel->traits.literal || steps[i].kernel->traits.keeps_pairs) {
      s = kernel_forward(body, steps[i], b, call.state, call.form, arena.rest(), false);
    } else {
      const std::size_t bytes = body.layout.bytes(0);
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
    if (!steps[i].kernel) {
      operation_backward(body, steps[i], b);
      continue;
    }
    const Status s = kernel_backward(body, steps[i], b, call, call.form, arena);
    if (stops(steps[i], s)) return s;
    if (s != Status::ok) worst = s;
  }
  return worst;
}
template Status execute_backward<float>(const Plan::Body&, const Call&, std::span<const ConstTensor* const>,
                                        Binding<float>&, Arena) noexcept;
template Status execute_backward<double>(const Plan::Body&, const Call&, std::span<const ConstTensor* const>,
                                         Binding<double>&, Arena) noexcept;

namespace {

// `halves` are the float copies of tensors of a half type; null: there are none.
template <class T>
Status forward_bound(const Plan::Body& body, const Call& call, std::ptrdiff_t length, Arena arena,
                     const HalfCopies* halves) noexcept {
  Binding<T> b;
  bind(body, call, false, length, arena, b);
  if (b.time == 0) return Status::ok;
  if constexpr (sizeof(T) == 4)
    if (halves) halves->bind_in_place(b);
  const auto run = [&](Binding<T>& tokens, std::ptrdiff_t begin, std::ptrdiff_t end) {
    if constexpr (sizeof(T) == 4)
      if (halves) halves->bind(tokens), halves->open(begin, end);
    const Status status = execute(body, tokens, call.state, call.form, arena.rest());
    if (halves) halves->close(begin, end);
    return status;
  };
  const bool copies = halves && halves->any_of_tokens();
  if (copies ? b.time <= length : runs_at_once(body, b, call.form, length)) return run(b, 0, b.time);
  Sequence* const sequences = arena.take<Sequence>(body.shape.batch);
  Sequence* const of_pairs = arena.take<Sequence>(body.shape.batch);
  std::ptrdiff_t* const later = arena.take<std::ptrdiff_t>(body.shape.batch);
  std::ptrdiff_t* const before = arena.take<std::ptrdiff_t>(body.shape.batch);
  Binding<T> piece;
  return each_block(b.time, b.sequences, !call.inputs->cu_seqlens.empty(), length,
                    [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
                      bind_block(body, b, begin, end, sequences, of_pairs, later, before, piece);
                      return run(piece, begin, end);
                    });
}

template <class T>
Status forward_typed(const Plan::Body& body, const Call& call) noexcept {
  return forward_bound<T>(body, call, bound_length(body, call.form), Arena(call.workspace), nullptr);
}

Status forward_half_tensors(const Plan::Body& body, const Call& call) noexcept {
  Arena arena(call.workspace);
  const std::ptrdiff_t length = half_length(body, call);
  const HalfCopies halves(body, call, length, arena);
  if (!halves.ok()) return Status::small_workspace;
  halves.open_parameters();
  return forward_bound<float>(body, call, length, arena, &halves);
}

template <class T>
Status backward_typed(const Plan::Body& body, const Call& call) noexcept {
  Arena arena(call.workspace);
  Binding<T> b;
  std::array<const ConstTensor*, Inputs::capacity> d_outputs{};
  bind(body, call, true, std::numeric_limits<std::ptrdiff_t>::max(), arena, b);
  start_gradients(body, *call.d_inputs, call.gradients, !call.sums_parameters, b);
  if (call.d_initial.data) clear_state(body, call.d_initial);
  if (b.time == 0) {
    pass_on(body, call);
    return Status::ok;
  }
  for (std::size_t i = 0; i < body.pipeline.outputs.size(); ++i)
    d_outputs[i] = call.d_outputs->find(body.pipeline.outputs[i].name, static_cast<int>(i));
  return execute_backward(body, call, {d_outputs.data(), body.pipeline.outputs.size()}, b, arena);
}

}  // namespace

std::size_t workspace_bytes(const Plan::Body& body, std::int64_t time, std::int64_t pairs, std::int64_t kept,
                            Form form, bool backward) {
  if (backward && goes_in_pieces(body, time, form)) return pieces_bytes(body, time, form);
  const std::ptrdiff_t batch = body.shape.batch;
  const std::ptrdiff_t size = static_cast<std::ptrdiff_t>(size_of(body.options.type));
  Arena arena;  // counts
  for (int lists = 0; lists < 4; ++lists) arena.take<Sequence>(batch);
  const std::int64_t length =
      !backward && goes_in_blocks(body, form) ? std::min(time, block_length(body, form)) : time;
  bool replays_kernel = false, has_gates = false;
  for (std::size_t i = 0; i < body.pipeline.values.size(); ++i) {
    const Value& v = body.pipeline.values[i];
    if (v.from != Value::From::step) continue;
    const std::ptrdiff_t bytes = static_cast<std::ptrdiff_t>(body.elements(v.axes, batch, length, pairs)) * size;
    const bool own_gradient = backward && (v.output < 0 || v.read);
    const bool left_out = v.output >= 0 && !v.read && v.on_demand;
    if (backward ? v.replayed : !left_out) arena.take<std::byte>(bytes);
    if (own_gradient) arena.take<std::byte>(bytes);
  }
  std::size_t kernel = 0;
  const std::vector<Step>& steps = body.pipeline.steps;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (!step.kernel || step.kernel->traits.literal) continue;
    replays_kernel |= body.pipeline.replayed[i];
    has_gates |= step.operands[Slot::g] >= 0 || step.operands[Slot::beta] >= 0;
    const std::int64_t own = !backward && grows(body) ? length : time;
    const std::int64_t longest = body.pipeline.noncausal ? std::max(time, pairs) : own * step.pairs;
    const auto bytes = [&](std::int64_t tokens, Form how, bool back) {
      return kernel_workspace(body, step, tokens, kept, how, back);
    };
    if (!backward && keeps_earlier_states(body)) kernel = std::max(kernel, bytes(longest, Form::recurrent, false));
    if (!backward || body.pipeline.replayed[i]) kernel = std::max(kernel, bytes(longest, form, false));
    if (length < time) kernel = std::max(kernel, bytes(length * step.pairs, form, false));
    if (backward) kernel = std::max(kernel, bytes(longest, form, true));
  }
  if (backward && replays_kernel) arena.take<std::byte>(static_cast<std::ptrdiff_t>(body.layout.bytes(0)));
  for (int lists = 0; !backward && lists < 2; ++lists) arena.take<std::ptrdiff_t>(batch);
  if (!backward && keeps_earlier_states(body)) UndoScratch(body, arena);
  if (backward && has_gates)  // of g and of beta, for every thread
    for (int gate = 0; gate < 2 * body.options.threads; ++gate)
      arena.take<std::byte>(batch * time * body.pipeline.pairs * body.shape.heads * size);
  return arena.bytes() + kernel + half_tensor_bytes(body, length, pairs, backward);
}

Status run_forward(const Plan::Body& body, const Call& call) noexcept {
  const auto run = [&] {
    if (body.options.tensors && has_half_tensors(call)) return forward_half_tensors(body, call);
    if constexpr (builds_f64)
      if (body.options.type == Type::f64) return forward_typed<double>(body, call);
    return forward_typed<float>(body, call);
  };
  if (!call.saved.data) return run();
  mark_saved(body, call, false);
  const Status status = run();
  if (status == Status::ok) mark_saved(body, call, true);
  return status;
}
Status run_backward(const Plan::Body& body, const Call& call) noexcept {
  if (goes_in_pieces(body, call.time, call.form)) return backward_in_pieces(body, call);
  if (body.options.tensors && has_half_tensors(call)) return backward_half_tensors(body, call);
  if constexpr (builds_f64)
    if (body.options.type == Type::f64) return backward_typed<double>(body, call);
  return backward_typed<float>(body, call);
}

}  // namespace ttr
