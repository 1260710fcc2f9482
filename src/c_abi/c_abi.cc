// The functions of ttr/c.h: structs are read as far as they say, exceptions become a status and a sentence.
//
// Traps: an enum of C++ and its number in C must stay the same (static_assert below); a struct may be shorter than here
// (an older caller) or longer (a newer one).
#include "ttr/c.h"

#include <cstring>
#include <string>
#include <vector>

#include "c_abi/guard.h"
#include "ttr/plan.h"
#include "ttr/prepared.h"
#include "ttr/saved_state.h"
#include "ttr/stream.h"
#include "ttr/version.h"

namespace {

using ttr::Status;
using ttr::c_abi::bad;
using ttr::c_abi::fail;
using ttr::c_abi::guarded;
using ttr::c_abi::no_plan;

static_assert(static_cast<int>(Status::misaligned) == TTR_MISALIGNED &&
              static_cast<int>(Status::bad_saved) == TTR_BAD_SAVED &&
              static_cast<int>(Status::overlap) == TTR_OVERLAP &&
              static_cast<int>(Status::out_of_domain) == TTR_OUT_OF_DOMAIN);
static_assert(static_cast<int>(ttr::Type::f16) == TTR_F16 && static_cast<int>(ttr::Type::i64) == TTR_I64 &&
              static_cast<int>(ttr::Type::i8) == TTR_I8);
static_assert(static_cast<int>(ttr::Form::scan) == TTR_SCAN && static_cast<int>(ttr::Form::step) == TTR_STEP);
static_assert(TTR_MAX_RANK == ttr::max_rank && TTR_ALL_SEQUENCES == ttr::all_sequences);

// The hot path: only a failure costs anything.
ttr_status answer(Status status) noexcept {
  if (status == Status::ok) return TTR_OK;
  return fail(static_cast<ttr_status>(status), ttr::to_string(status).data());
}

constexpr const char* no_stream = "the stream is NULL";

// A struct of the caller, with zeros behind its end; false if it has no size.
template <class Struct>
bool read(const Struct* from, Struct& to) noexcept {
  std::memset(static_cast<void*>(&to), 0, sizeof to);
  if (!from || from->size < sizeof(std::size_t)) return false;
  std::memcpy(static_cast<void*>(&to), from, std::min(from->size, sizeof to));
  return true;
}
// The other way round: no more than the caller has room for.
template <class Struct>
ttr_status write(Struct value, Struct* to) noexcept {
  if (!to || to->size < sizeof(std::size_t)) return bad("a struct to fill in has no size; set it to sizeof");
  value.size = to->size;
  std::memcpy(to, &value, std::min(to->size, sizeof value));
  return TTR_OK;
}

// Tensor i of an array whose elements are as long as the first says.
const ttr_tensor* element(const ttr_tensor* first, std::size_t i) noexcept {
  return reinterpret_cast<const ttr_tensor*>(reinterpret_cast<const char*>(first) + i * first->size);
}

template <class AnyTensor>
bool read_tensor(const ttr_tensor& from, AnyTensor& to) noexcept {
  if (from.rank < 0 || from.rank > TTR_MAX_RANK || from.type < TTR_F32 || from.type > TTR_I8) return false;
  to.data = from.data, to.type = static_cast<ttr::Type>(from.type), to.rank = from.rank;
  bool strided = false;
  for (int d = 0; d < from.rank; ++d) strided |= from.stride[d] != 0;
  std::ptrdiff_t stride = 1;
  for (int d = from.rank; d-- > 0;) {
    const auto at = static_cast<std::size_t>(d);
    to.extent[at] = static_cast<std::ptrdiff_t>(from.extent[d]);
    to.stride[at] = strided ? static_cast<std::ptrdiff_t>(from.stride[d]) : stride;
    stride *= to.extent[at];
  }
  return true;
}

template <class AnyTensor>
ttr_status read_list(const ttr_tensor* first, std::size_t count, ttr::NamedTensors<AnyTensor>& list) noexcept {
  if (count > 0 && !first) return bad("an array of tensors is NULL and its count is not 0");
  for (std::size_t i = 0; i < count; ++i) {
    ttr_tensor tensor;
    if (!read(element(first, i), tensor) || !tensor.name) return bad("a tensor has no size or no name");
    if (!read_tensor(tensor, list[tensor.name])) return bad("a tensor has a rank or a type that there is not");
  }
  return TTR_OK;
}

// The arguments of a call as C++ has them.
struct Arguments {
  ttr::Inputs in, d_out;
  ttr::Outputs out, d_in;
  ttr::State state{}, d_initial{};
  ttr::ConstState d_final{};
  ttr::Workspace work{};
  ttr::Saved saved{};
  ttr::Form form = ttr::Form::best;
  ttr::Gradients gradients = ttr::Gradients::write;

  ttr_status fill(const ttr::Plan& plan, const ttr_arguments* from) noexcept {
    ttr_arguments a;
    if (!read(from, a)) return bad("the arguments are NULL or have no size; set it to sizeof");
    if (a.form < TTR_BEST || a.form > TTR_SCAN) return bad("there is no such form");
    if (const ttr_status s = read_list(a.inputs, a.input_count, in); s != TTR_OK) return s;
    if (const ttr_status s = read_list(a.outputs, a.output_count, out); s != TTR_OK) return s;
    const std::size_t bounds = static_cast<std::size_t>(plan.shape().batch) + 1;
    if (a.cu_seqlens) in.cu_seqlens = {a.cu_seqlens, bounds};
    if (a.cu_seqlens_pairs) in.cu_seqlens_pairs = {a.cu_seqlens_pairs, bounds};
    state = {a.state, a.state_bytes}, work = {a.workspace, a.workspace_bytes};
    saved = {a.saved, a.saved_bytes};
    form = static_cast<ttr::Form>(a.form);
    return TTR_OK;
  }
  ttr_status fill(const ttr_gradients* from) noexcept {
    ttr_gradients g;
    if (!read(from, g)) return bad("the gradients are NULL or have no size; set it to sizeof");
    if (const ttr_status s = read_list(g.d_outputs, g.d_output_count, d_out); s != TTR_OK) return s;
    if (const ttr_status s = read_list(g.d_inputs, g.d_input_count, d_in); s != TTR_OK) return s;
    d_final = {g.d_final, g.d_final_bytes}, d_initial = {g.d_initial, g.d_initial_bytes};
    gradients = g.gradients == TTR_ADD ? ttr::Gradients::add : ttr::Gradients::write;
    return TTR_OK;
  }
};

ttr_status run(const ttr_plan* plan, const ttr_arguments* arguments, bool step) noexcept {
  if (!plan) return bad(no_plan);
  Arguments a;
  if (const ttr_status s = a.fill(plan->plan, arguments); s != TTR_OK) return s;
  return answer(plan->plan.forward(a.in, a.state, a.out, a.work, step ? ttr::Form::step : a.form, a.saved));
}

void read_settings(const char* text, std::map<std::string, std::string>& settings) {
  for (std::string rest = text ? text : ""; !rest.empty();) {
    const std::size_t comma = rest.find(','), equals = rest.find('=');
    if (equals == std::string::npos || equals > comma)
      throw ttr::Error("settings are name=value,name=value; '" + rest.substr(0, comma) + "' has no '='", "settings");
    settings[rest.substr(0, equals)] =
        rest.substr(equals + 1, comma == std::string::npos ? comma : comma - equals - 1);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
  }
}

template <class Info>
ttr_status write_info(std::span<const Info> infos, std::size_t i, ttr_info* to) noexcept {
  if (i >= infos.size()) return bad("there is no such input, output or state");
  ttr_info info{sizeof(ttr_info),         infos[i].name.c_str(),   infos[i].shape.c_str(),
                infos[i].meaning.c_str(), infos[i].differentiable, 0};
  if constexpr (requires { infos[i].optional; }) info.optional = infos[i].optional;
  return write(info, to);
}

// Pushes to a stream, or asks it, in its own type.
ttr_status advance(ttr_stream* s, const void* const* inputs, void* to, std::int64_t tokens, bool keep) noexcept {
  if (!s || !inputs) return bad("the stream or its pointers are NULL");
  return guarded([&] {
    const auto in = [&]<class T>(T* own) {
      std::vector<const T*> typed;
      for (std::size_t i = 0; i < s->stream.plan().inputs().size(); ++i)
        typed.push_back(static_cast<const T*>(inputs[i]));
      if (keep) s->stream.push(typed, own, tokens);
      else s->stream.query(typed, own, tokens);
    };
    if (s->stream.plan().options().type == ttr::Type::f64) in(static_cast<double*>(to));
    else in(static_cast<float*>(to));
    return ttr_status{TTR_OK};
  });
}

}  // namespace

extern "C" {

const char* ttr_version(void) { return TTR_VERSION; }
int32_t ttr_abi_version(void) { return TTR_ABI_VERSION; }
int32_t ttr_saved_state_layout(void) { return ttr::saved_state_layout; }
const char* ttr_last_error(void) { return ttr::c_abi::last_error().sentence.c_str(); }
const char* ttr_status_text(ttr_status status) {
  if (status == TTR_ERROR) return "an error; ttr_last_error() has its sentence";
  if (status == TTR_BAD_ARGUMENT) return "a null pointer, or a struct without its size";
  return ttr::to_string(static_cast<Status>(status)).data();
}

size_t ttr_layer_count(void) { return ttr::layers().size(); }
const char* ttr_layer_name(size_t i) { return i < ttr::layers().size() ? ttr::layers()[i].name.c_str() : nullptr; }

ttr_status ttr_plan_create(const char* text, const ttr_shape* shape, const ttr_options* options, ttr_plan** plan) {
  if (!plan) return bad("there is nowhere to put the plan");
  *plan = nullptr;
  ttr_shape s;
  ttr_options o;
  if (!text || !read(shape, s)) return bad("the layer or the shape is NULL, or the shape has no size");
  if (!read(options, o) && options) return bad("the options have no size; set it to sizeof");
  return guarded([&] {
    const auto or_one = [](int32_t n) { return n == 0 ? 1 : n; };
    const ttr::Shape own{or_one(s.batch), or_one(s.heads), s.key_heads, or_one(s.key_dim), or_one(s.value_dim)};
    ttr::Options all;
    all.type = static_cast<ttr::Type>(o.type);
    if (o.half_tensors) all.tensors = static_cast<ttr::Type>(o.half_tensors);
    all.causal = !o.whole, all.chunk = o.chunk, all.rewind = o.rewind;
    all.threads = o.threads < 0 ? 0 : or_one(o.threads);
    if (o.has_scale) all.scale = o.scale;
    read_settings(o.settings, all.settings);
    if (o.kernel) all.kernel = o.kernel;
    if (o.target) all.target = o.target;
    all.executor = {o.run_jobs, o.executor};
    if (o.state_type) all.state_type = static_cast<ttr::Type>(o.state_type);
    ttr::Plan made = ttr::plan(text, own, all);
    std::string kernel = made.kernel();
    *plan = new ttr_plan{std::move(made), std::move(kernel)};
    return ttr_status{TTR_OK};
  });
}
void ttr_plan_destroy(ttr_plan* plan) { delete plan; }

const char* ttr_plan_name(const ttr_plan* p) { return p ? p->plan.name().c_str() : nullptr; }
const char* ttr_plan_kernel(const ttr_plan* p) { return p ? p->kernel.c_str() : nullptr; }
double ttr_plan_scale(const ttr_plan* p) { return p ? p->plan.scale() : 0; }
size_t ttr_plan_input_count(const ttr_plan* p) { return p ? p->plan.inputs().size() : 0; }
size_t ttr_plan_output_count(const ttr_plan* p) { return p ? p->plan.outputs().size() : 0; }
size_t ttr_plan_state_count(const ttr_plan* p) { return p ? p->plan.states().size() : 0; }
ttr_status ttr_plan_input(const ttr_plan* p, size_t i, ttr_info* to) {
  return p ? write_info(p->plan.inputs(), i, to) : bad(no_plan);
}
ttr_status ttr_plan_output(const ttr_plan* p, size_t i, ttr_info* to) {
  return p ? write_info(p->plan.outputs(), i, to) : bad(no_plan);
}
ttr_status ttr_plan_state(const ttr_plan* p, size_t i, ttr_info* to) {
  return p ? write_info(p->plan.states(), i, to) : bad(no_plan);
}
int32_t ttr_plan_has_form(const ttr_plan* p, int32_t form) {
  if (!p) return 0;
  for (const ttr::Form f : p->plan.forms())
    if (static_cast<int32_t>(f) == form) return 1;
  return form == TTR_BEST;
}
int32_t ttr_plan_best_form(const ttr_plan* p, int64_t time) {
  return p ? static_cast<int32_t>(p->plan.best_form(time)) : TTR_BEST;
}
ttr_status ttr_plan_footprint(const ttr_plan* p, int64_t time, int32_t form, ttr_footprint* to) {
  if (!p) return bad(no_plan);
  return guarded([&] {
    const ttr::Footprint bytes = p->plan.footprint(time, static_cast<ttr::Form>(form));
    return write(ttr_footprint{sizeof(ttr_footprint), bytes.state, bytes.workspace, bytes.backward, bytes.saved}, to);
  });
}
size_t ttr_plan_extents(const ttr_plan* p, const char* shape, int64_t time, int64_t* to) {
  std::size_t count = 0;
  if (!p || !shape || !to) return count;
  (void)guarded([&] {
    for (const std::ptrdiff_t extent : p->plan.extents(shape, time))
      if (count < TTR_MAX_RANK) to[count++] = extent;
    return ttr_status{TTR_OK};
  });
  return count;
}

ttr_status ttr_step(const ttr_plan* plan, const ttr_arguments* arguments) { return run(plan, arguments, true); }
ttr_status ttr_forward(const ttr_plan* plan, const ttr_arguments* arguments) { return run(plan, arguments, false); }
ttr_status ttr_backward(const ttr_plan* p, const ttr_arguments* arguments, const ttr_gradients* gradients) {
  if (!p) return bad(no_plan);
  Arguments a;
  if (const ttr_status s = a.fill(p->plan, arguments); s != TTR_OK) return s;
  if (const ttr_status s = a.fill(gradients); s != TTR_OK) return s;
  return answer(
      p->plan.backward(a.in, a.state, a.d_out, a.d_final, a.d_in, a.d_initial, a.work, a.form, a.gradients, a.saved));
}
int32_t ttr_diagnose(const ttr_plan* p, const ttr_arguments* arguments, const ttr_gradients* gradients) {
  if (!p) return bad(no_plan), 0;
  const ttr_status status = guarded([&] {
    Arguments a;
    if (const ttr_status s = a.fill(p->plan, arguments); s != TTR_OK) return s;
    if (gradients)
      if (const ttr_status s = a.fill(gradients); s != TTR_OK) return s;
    const std::string said =
        gradients ? p->plan.diagnose(a.in, a.state, a.d_out, a.d_final, a.d_in, a.d_initial, a.work, a.form, a.saved)
                  : p->plan.diagnose(a.in, a.state, a.out, a.work, a.form, a.saved);
    return said.empty() ? ttr_status{TTR_OK} : fail(TTR_ERROR, said.c_str());
  });
  return status == TTR_OK;
}

ttr_status ttr_call_create(const ttr_plan* p, const ttr_arguments* arguments, ttr_call** call) {
  if (!call) return bad("there is nowhere to put the call");
  *call = nullptr;
  if (!p) return bad(no_plan);
  return guarded([&] {
    Arguments a;
    if (const ttr_status s = a.fill(p->plan, arguments); s != TTR_OK) return s;
    *call = new ttr_call{p->plan.prepare(a.in, a.out, a.form)};
    return ttr_status{TTR_OK};
  });
}
void ttr_call_destroy(ttr_call* call) { delete call; }
ttr_status ttr_call_run(ttr_call* c, const void* const* inputs, void* const* outputs, void* state, size_t state_bytes,
                        void* workspace, size_t workspace_bytes) {
  return ttr_call_run_saving(c, inputs, outputs, state, state_bytes, workspace, workspace_bytes, nullptr, 0);
}
ttr_status ttr_call_run_saving(ttr_call* c, const void* const* inputs, void* const* outputs, void* state,
                               size_t state_bytes, void* workspace, size_t workspace_bytes, void* saved,
                               size_t saved_bytes) {
  if (!c || !inputs || !outputs) return bad("the call or its pointers are NULL");
  const ttr::Plan& plan = c->call.plan();
  return answer(c->call({inputs, plan.inputs().size()}, {outputs, plan.outputs().size()}, {state, state_bytes},
                        {workspace, workspace_bytes}, {saved, saved_bytes}));
}

ttr_status ttr_backward_create(const ttr_plan* p, const ttr_arguments* arguments, const ttr_gradients* gradients,
                               ttr_backward_call** call) {
  if (!call) return bad("there is nowhere to put the call");
  *call = nullptr;
  if (!p) return bad(no_plan);
  return guarded([&] {
    Arguments a;
    if (const ttr_status s = a.fill(p->plan, arguments); s != TTR_OK) return s;
    if (const ttr_status s = a.fill(gradients); s != TTR_OK) return s;
    *call = new ttr_backward_call{p->plan.prepare_backward(a.in, a.d_out, a.d_in, a.form, a.gradients)};
    return ttr_status{TTR_OK};
  });
}
void ttr_backward_destroy(ttr_backward_call* call) { delete call; }
ttr_status ttr_backward_run(ttr_backward_call* c, const void* const* inputs, const void* state, size_t state_bytes,
                            const void* const* d_outputs, const void* d_final, size_t d_final_bytes,
                            void* const* d_inputs, void* d_initial, size_t d_initial_bytes, void* workspace,
                            size_t workspace_bytes) {
  return ttr_backward_run_saved(c, inputs, state, state_bytes, d_outputs, d_final, d_final_bytes, d_inputs, d_initial,
                                d_initial_bytes, workspace, workspace_bytes, nullptr, 0);
}
ttr_status ttr_backward_run_saved(ttr_backward_call* c, const void* const* inputs, const void* state,
                                  size_t state_bytes, const void* const* d_outputs, const void* d_final,
                                  size_t d_final_bytes, void* const* d_inputs, void* d_initial,
                                  size_t d_initial_bytes, void* workspace, size_t workspace_bytes, const void* saved,
                                  size_t saved_bytes) {
  if (!c || !inputs || !d_outputs || !d_inputs) return bad("the call or its pointers are NULL");
  const ttr::Plan& plan = c->call.plan();
  const std::size_t in = plan.inputs().size(), out = plan.outputs().size();
  return answer(c->call({inputs, in}, {state, state_bytes}, {d_outputs, out}, {d_final, d_final_bytes},
                        {d_inputs, in}, {d_initial, d_initial_bytes}, {workspace, workspace_bytes},
                        {const_cast<void*>(saved), saved_bytes}));
}

ttr_status ttr_state_reset(const ttr_plan* p, void* state, size_t bytes) {
  return p ? answer(p->plan.reset({state, bytes})) : bad(no_plan);
}
ttr_status ttr_state_zero(const ttr_plan* p, void* state, size_t bytes) {
  return p ? answer(p->plan.zero({state, bytes})) : bad(no_plan);
}
ttr_status ttr_state_grow(const ttr_plan* to_plan, void* to, size_t to_bytes, const ttr_plan* from_plan,
                          const void* from, size_t from_bytes) {
  if (!to_plan || !from_plan) return bad(no_plan);
  return answer(to_plan->plan.grow(from_plan->plan, {from, from_bytes}, {to, to_bytes}));
}
ttr_status ttr_state_tensor(const ttr_plan* p, void* state, size_t bytes, const char* name, ttr_tensor* to) {
  if (!p || !name) return bad("the plan or the name is NULL");
  const ttr::Tensor tensor = p->plan.state_tensor({state, bytes}, name);
  if (!tensor) return fail(TTR_UNKNOWN_NAME, "the state has no part of that name, or its buffer was never reset");
  ttr_tensor own{};
  for (const ttr::StateInfo& info : p->plan.states())
    if (info.name == name) own.name = info.name.c_str();
  own.data = tensor.data, own.type = static_cast<int32_t>(tensor.type), own.rank = tensor.rank;
  for (std::size_t d = 0; d < static_cast<std::size_t>(tensor.rank); ++d)
    own.extent[d] = tensor.extent[d], own.stride[d] = tensor.stride[d];
  return write(own, to);
}
int64_t ttr_state_capacity(const ttr_plan* p, const void* state, size_t bytes) {
  return p ? p->plan.capacity({state, bytes}) : -1;
}
int64_t ttr_state_tokens_seen(const ttr_plan* p, const void* state, size_t bytes, int32_t sequence) {
  return p ? p->plan.tokens_seen({state, bytes}, sequence) : -1;
}
int64_t ttr_state_tokens_kept(const ttr_plan* p, const void* state, size_t bytes, int32_t sequence) {
  return p ? p->plan.tokens_kept({state, bytes}, sequence) : -1;
}
int64_t ttr_state_rewindable(const ttr_plan* p, const void* state, size_t bytes, int32_t sequence) {
  return p ? p->plan.rewindable({state, bytes}, sequence) : 0;
}
ttr_status ttr_slot_reset(const ttr_plan* p, void* state, size_t bytes, int32_t sequence) {
  return p ? answer(p->plan.reset({state, bytes}, sequence)) : bad(no_plan);
}
ttr_status ttr_slot_copy(const ttr_plan* to_plan, void* to, size_t to_bytes, int32_t to_sequence,
                         const ttr_plan* from_plan, const void* from, size_t from_bytes, int32_t from_sequence) {
  if (!to_plan || !from_plan) return bad(no_plan);
  return answer(to_plan->plan.copy(from_plan->plan, {from, from_bytes}, from_sequence, {to, to_bytes}, to_sequence));
}
ttr_status ttr_slot_swap(const ttr_plan* p, void* state, size_t bytes, int32_t one, int32_t other) {
  return p ? answer(p->plan.swap({state, bytes}, one, other)) : bad(no_plan);
}
ttr_status ttr_slot_truncate(const ttr_plan* p, void* state, size_t bytes, int32_t sequence, int64_t tokens) {
  return p ? answer(p->plan.truncate({state, bytes}, sequence, tokens)) : bad(no_plan);
}
ttr_status ttr_slot_rewind(const ttr_plan* p, void* state, size_t bytes, int32_t sequence, int64_t tokens) {
  return p ? answer(p->plan.rewind({state, bytes}, sequence, tokens)) : bad(no_plan);
}

ttr_status ttr_state_save(const ttr_plan* p, const void* state, size_t bytes, int32_t sequence, const char* path) {
  if (!p || !path) return bad("the plan or the path is NULL");
  return guarded([&] {
    ttr::save_state(path, p->plan, {state, bytes}, sequence);
    return ttr_status{TTR_OK};
  });
}
ttr_status ttr_state_load(const ttr_plan* p, void* state, size_t bytes, int32_t to, int32_t from, const char* path) {
  if (!p || !path) return bad("the plan or the path is NULL");
  return guarded([&] {
    ttr::load_state(path, p->plan, {state, bytes}, to, from);
    return ttr_status{TTR_OK};
  });
}
ttr_status ttr_state_pack(const ttr_plan* p, const void* state, size_t bytes, int32_t sequence, void* buffer,
                          size_t* size) {
  if (!p || !size) return bad("the plan or the size is NULL");
  return guarded([&] {
    const std::vector<std::byte> packed = ttr::save_state(p->plan, {state, bytes}, sequence);
    const bool fits = buffer && *size >= packed.size();
    if (fits) std::memcpy(buffer, packed.data(), packed.size());
    *size = packed.size();
    return fits || !buffer ? ttr_status{TTR_OK} : bad("the buffer is smaller than the saved state");
  });
}
ttr_status ttr_state_unpack(const ttr_plan* p, void* state, size_t bytes, int32_t to, int32_t from,
                            const void* packed, size_t size) {
  if (!p || !packed) return bad("the plan or the saved state is NULL");
  return guarded([&] {
    ttr::load_state(std::span(static_cast<const std::byte*>(packed), size), p->plan, {state, bytes}, to, from);
    return ttr_status{TTR_OK};
  });
}

ttr_status ttr_stream_create(const ttr_plan* p, ttr_stream** stream) {
  if (!stream) return bad("there is nowhere to put the stream");
  *stream = nullptr;
  if (!p) return bad(no_plan);
  return guarded([&] {
    *stream = new ttr_stream{ttr::Stream(p->plan)};
    return ttr_status{TTR_OK};
  });
}
void ttr_stream_destroy(ttr_stream* s) { delete s; }
ttr_status ttr_stream_push(ttr_stream* s, const void* const* inputs, void* to, int64_t tokens) {
  return advance(s, inputs, to, tokens, true);
}
ttr_status ttr_stream_query(ttr_stream* s, const void* const* inputs, void* to, int64_t tokens) {
  return advance(s, inputs, to, tokens, false);
}
ttr_status ttr_stream_clone(const ttr_stream* s, ttr_stream** clone) {
  if (!clone) return bad("there is nowhere to put the clone");
  *clone = nullptr;
  if (!s) return bad(no_stream);
  return guarded([&] {
    *clone = new ttr_stream{s->stream.clone()};
    return ttr_status{TTR_OK};
  });
}
ttr_status ttr_stream_save(const ttr_stream* s, const char* path) {
  if (!s || !path) return bad("the stream or the path is NULL");
  return guarded([&] { return s->stream.save(path), ttr_status{TTR_OK}; });
}
ttr_status ttr_stream_load(ttr_stream* s, const char* path) {
  if (!s || !path) return bad("the stream or the path is NULL");
  return guarded([&] { return s->stream.load(path), ttr_status{TTR_OK}; });
}
ttr_status ttr_stream_rewind(ttr_stream* s, int64_t tokens) {
  if (!s) return bad(no_stream);
  return guarded([&] { return s->stream.rewind(tokens), ttr_status{TTR_OK}; });
}
int64_t ttr_stream_tokens(const ttr_stream* s, int32_t sequence) { return s ? s->stream.tokens(sequence) : -1; }

}  // extern "C"
