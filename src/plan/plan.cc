// The public class Plan: planning, memory layouts, and sentences for calls that fail.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "families/common/short.h"
#include "plan/diagnose.h"
#include "plan/equal_design.h"
#include "plan/pipeline.h"
#include "plan/text.h"
#include "run/backward_pieces.h"
#include "run/bind.h"
#include "run/compact_state.h"
#include "run/kernels.h"
#include "simd/count.h"
#include "threads/pool.h"

namespace ttr {
namespace {

struct NamedForm {
  Form form;
  std::string_view name;
};
constexpr NamedForm form_names[] = {{Form::best, "best"},           {Form::step, "step"},
                                    {Form::recurrent, "recurrent"}, {Form::chunk, "chunk"},
                                    {Form::parallel, "parallel"},   {Form::scan, "scan"}};

constexpr int most_of_a_dimension = 1 << 26;  // kernels count a few rows of it in 32 bits

Shape checked(Shape shape) {
  if (shape.key_heads == 0) shape.key_heads = shape.heads;
  const std::pair<const char*, int> numbers[] = {{"batch", shape.batch},
                                                 {"heads", shape.heads},
                                                 {"key_heads", shape.key_heads},
                                                 {"key_dim", shape.key_dim},
                                                 {"value_dim", shape.value_dim}};
  for (const auto& [name, number] : numbers)
    if (number < 1)
      throw Error(std::string(name) + " is " + std::to_string(number) + "; it must be at least 1",
                  std::string("shape.") + name);
  for (const auto& [name, number] : {numbers[3], numbers[4]})
    if (number > most_of_a_dimension)
      throw Error(std::string(name) + " is " + std::to_string(number) + "; it can be 1 to " +
                      std::to_string(most_of_a_dimension),
                  std::string("shape.") + name);
  if (shape.heads % shape.key_heads != 0)
    throw Error("heads " + std::to_string(shape.heads) + " is not a multiple of key_heads " +
                    std::to_string(shape.key_heads) + "; groups of heads must have the same size",
                "shape.key_heads");
  return shape;
}

std::string target_of(const Options& options) {
  if (!options.target.empty()) return options.target;
  const char* forced = std::getenv("TTR_TARGET");
  return forced ? forced : "";
}

// Those that every kernel of the pipeline has; an operation goes token by token.
std::vector<Form> forms_of(const Pipeline& pipeline, bool causal, bool operation) {
  if (!causal) return {Form::parallel};
  if (operation) return {Form::step, Form::recurrent};
  std::vector<Form> forms = {Form::step, Form::recurrent, Form::chunk, Form::parallel, Form::scan};
  for (const Step& step : pipeline.steps)
    if (step.kernel) std::erase_if(forms, [&](Form form) { return !step.kernel->forms.has(form); });
  return forms;
}

// The regression itself: the last kernel of the longest keys that is not a running quantity of the preparation.
void find_main_kernel(Plan::Body& body) {
  const auto& steps = body.pipeline.steps;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!steps[i].kernel || steps[i].kernel->traits.running) continue;
    const bool oracle = steps[i].kernel->traits.literal;
    const int k = oracle ? -1 : steps[i].operands[Slot::k], v = oracle ? -1 : steps[i].operands[Slot::v];
    const int keys = oracle ? body.shape.key_dim : k < 0 ? 1 : width(body, k);
    if (body.main_kernel >= 0 && keys < body.key_width) continue;
    body.main_kernel = static_cast<int>(i);
    body.key_width = keys, body.value_width = v < 0 ? body.shape.value_dim : width(body, v);
  }
}

// Bytes are counted in 64 bits; a state of more than this does not exist, and its size must not come out small.
constexpr double most_bytes = 0x1p60;

void check_sizes(const Plan::Body& body) {
  for (const StatePart& part : body.pipeline.states) {
    double bytes = static_cast<double>(size_of(part.type)) * body.shape.batch;
    for (const std::ptrdiff_t extent : part.extent) bytes *= static_cast<double>(extent);
    bytes *= 1 + body.options.rewind;
    if (bytes > most_bytes)
      throw Error("the state " + part.info.name + " of " + body.name + " with " + describe(body.shape) +
                      " has more bytes than any machine; take smaller dimensions",
                  "shape");
  }
}

Plan make_plan(std::string name, Recipe recipe, const zoo::Declaration* layer, const Shape& shape,
               const Options& options) {
  auto body = std::make_shared<Plan::Body>();
  body->name = std::move(name);
  body->recipe = std::move(recipe);
  body->shape = checked(shape);
  body->options = options;
  if (!options.kernel.empty() && options.kernel != "oracle")
    throw Error(
        "there is no kernel '" + options.kernel + "' to force; 'oracle' is the literal solver, empty the fastest",
        "options.kernel");
  if (options.chunk < 0)
    throw Error("chunk is " + std::to_string(options.chunk) + "; it must be positive, or 0 for the plan's choice",
                "options.chunk");
  if (options.type != Type::f32 && options.type != Type::f64)
    throw Error(
        "a plan cannot compute in " + std::string(to_string(options.type)) +
            (options.type == Type::i64 ? "; set type to f32 or f64"
                                       : "; set type to f32 and tensors to " + std::string(to_string(options.type))),
        "options.type");
  if (options.type == Type::f64 && !builds_f64)
    throw Error(
        "this build of ttr computes in f32 alone (it was configured with -DTTR_TYPES=f32); set type to f32, or "
        "configure with -DTTR_TYPES=\"f32;f64\"",
        "options.type");
  if (options.tensors && *options.tensors != options.type && options.type != Type::f32)
    throw Error("tensors of " + std::string(to_string(*options.tensors)) + " need a plan of f32, not " +
                    std::string(to_string(options.type)),
                "options.tensors");
  if (options.tensors == Type::f64 && options.type == Type::f32)
    throw Error("tensors of f64 need a plan of f64; set type", "options.tensors");
  if (options.tensors == Type::i64) throw Error("tensors cannot be i64, which counts in a state", "options.tensors");
  if (options.rewind < 0)
    throw Error("rewind is " + std::to_string(options.rewind) + "; it must be 0 or a number of tokens",
                "options.rewind");
  if (options.threads < 0 || options.threads > threads::most)
    throw Error("threads is " + std::to_string(options.threads) + "; it must be between 1 and " +
                    std::to_string(threads::most) + ", or 0 for all of the machine",
                "options.threads");
  if (options.threads == 0) body->options.threads = std::min(threads::available(), threads::most);
  try {
    if (!options.executor.run) threads::prepare(body->options.threads);
  } catch (const std::system_error& e) {
    throw Error("the system does not start " + std::to_string(body->options.threads) + " threads: " + e.what() +
                    "; ask for fewer",
                "options.threads");
  }
  if (options.scale && !std::isfinite(*options.scale)) throw Error("scale is not a finite number", "options.scale");
  if (layer && !layer->info.grouped && body->shape.key_heads != body->shape.heads)
    throw Error(layer->info.name + " has one key head per head; key_heads " + std::to_string(body->shape.key_heads) +
                    " does not match heads " + std::to_string(body->shape.heads),
                "shape.key_heads");
  const bool root = layer && layer->scale_by_root_key;
  body->scale = options.scale.value_or(root ? 1 / std::sqrt(static_cast<double>(body->shape.key_dim)) : 1.0);
  const bool operation = layer && layer->is_operation();
  zoo::Declaration adapted;
  if (layer && layer->adapt) {
    adapted = *layer;
    layer->adapt(adapted, options.settings, body->shape);
    layer = &adapted;
  }
  if (layer && layer->whole) body->options.causal = false;
  const bool causal = body->options.causal;
  const Design design = operation ? Design{} : interpret(body->recipe);
  const bool sees_all = design.solver.kind == Solver::Kind::gd || design.solver.kind == Solver::Kind::exact ||
                        design.solver.kind == Solver::Kind::cg || design.solver.kind == Solver::Kind::chebyshev ||
                        design.solver.kind == Solver::Kind::given || design.solver.kind == Solver::Kind::irls;
  if (!causal && operation)
    throw Error(body->name + " works token by token; it has no non-causal meaning", "options.causal");
  if (!causal && !(sees_all && oracle::keeps_history(design)))
    throw Error("'" + to_string(body->recipe) +
                    "' answers token by token; only solvers that see all pairs at once "
                    "(gd, exact, cg) have a non-causal meaning",
                "options.causal");
  body->pipeline = lower(layer ? design : design_to_run(body->recipe, design, body->options), layer, body->shape,
                         body->options, body->scale);
  body->fix_extents();
  if (body->pipeline.values.size() > static_cast<std::size_t>(max_values))
    throw Error("the layer's pipeline has " + std::to_string(body->pipeline.values.size()) + " values; at most " +
                std::to_string(max_values) + " fit");
  find_main_kernel(*body);
  if (body->pipeline.history) {
    const int reach = body->pipeline.design.weights.reach();
    body->pipeline.most_pairs = body->on_oracle() ? oracle::pairs_to_keep(body->pipeline.design)
                                : reach > 0       ? reach
                                                  : -1;
  }
  apply_state_type(*body);
  check_sizes(*body);
  lay_out_state(*body);
  body->chunk = options.chunk;
  if (body->chunk == 0) body->chunk = body->key_width <= 64 && body->value_width <= 64 ? 32 : 64;
  body->forms = forms_of(body->pipeline, causal, operation);
  const auto table = [&]<class T>(T) -> const Simd<T>& {
    return options.count ? counted_simd<T>(target_of(options)) : simd<T>(target_of(options));
  };
  body->simd_f32 = &table(float{});
  if constexpr (has_f64_products) body->simd_f64 = &table(double{});
  for (const Value& value : body->pipeline.values) {
    body->constant_offset.push_back(static_cast<std::ptrdiff_t>(body->constants_f64.size()));
    for (double number : value.numbers) {
      body->constants_f64.push_back(number);
      body->constants_f32.push_back(static_cast<float>(number));
    }
  }
  body->backward_piece = piece_length(*body);
  for (const Form form : {Form::best, Form::step, Form::recurrent})
    body->one_token_workspace = std::max(body->one_token_workspace, workspace_bytes(*body, 1, 1, 0, form, false));
  return Plan(std::move(body));
}

}  // namespace

Executed executed() noexcept {
  const simd_detail::Count& all = simd_detail::count();
  return {all.multiply_adds.load(), all.uncounted.load()};
}

std::string_view to_string(Form form) noexcept {
  for (const NamedForm& named : form_names)
    if (named.form == form) return named.name;
  return "?";
}

std::string_view to_string(Type type) noexcept {
  constexpr std::string_view names[] = {"f32", "f64", "bf16", "f16", "i64", "i8"};
  const auto index = static_cast<std::size_t>(type);
  return index < std::size(names) ? names[index] : "?";
}

std::string_view to_string(Status status) noexcept {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::missing_input:
      return "a required input has no data";
    case Status::bad_shape:
      return "a tensor's extent does not fit the plan";
    case Status::bad_type:
      return "a tensor has another type than the plan takes";
    case Status::small_state:
      return "the state buffer is smaller than footprint().state";
    case Status::state_full:
      return "the state has no room for more pairs; give it a larger buffer with grow()";
    case Status::small_workspace:
      return "the workspace is smaller than footprint() asks for";
    case Status::out_of_domain:
      return "a number for which the layer is not defined";
    case Status::not_supported:
      return "this form, or the gradient of this output, does not exist for this plan";
    case Status::out_of_memory:
      return "no memory left";
    case Status::unknown_name:
      return "a tensor has a name that the plan does not know";
    case Status::bad_state:
      return "the state holds counts that no call has left in it; reset() it first";
    case Status::overlap:
      return "memory that the call writes overlaps other memory of the call";
    case Status::misaligned:
      return "a pointer is not aligned to its type";
    case Status::small_saved:
      return "the buffer for what forward leaves is smaller than footprint().saved";
    case Status::bad_saved:
      return "the buffer holds nothing that a forward of this call has left for its backward";
  }
  return "unknown status";
}

void Plan::Body::fix_extents() {
  const auto at = [&](char letter) -> std::ptrdiff_t& {
    return fixed_extents[static_cast<std::size_t>(letter) % fixed_extents.size()];
  };
  fixed_extents.fill(1);
  for (const auto& [letter, extent] : pipeline.letters) at(letter) = extent;
  at('H') = shape.heads, at('G') = shape.key_heads, at('K') = shape.key_dim, at('V') = shape.value_dim;
  at('B') = at('T') = at('P') = -1;
}

std::size_t Plan::Body::elements(const Axes& axes, std::ptrdiff_t batch, std::ptrdiff_t time,
                                 std::ptrdiff_t pairs) const {
  std::size_t count = 1;
  for (char axis : axes) count *= static_cast<std::size_t>(extent(axis, batch, time, pairs));
  return count;
}

Footprint Plan::footprint(std::int64_t time, Form form) const {
  if (time < 0) throw Error("footprint of " + std::to_string(time) + " tokens; time cannot be negative", "time");
  if (form != Form::best && std::find(body_->forms.begin(), body_->forms.end(), form) == body_->forms.end())
    throw Error(name() + " has no form '" + std::string(to_string(form)) + "'; it has " + names_of(body_->forms),
                "form");
  double longest = 1;  // bytes of a value per token, or of a pair in the state
  for (const Value& value : body_->pipeline.values) {
    double one = 8;
    for (const char axis : value.axes) one *= static_cast<double>(body_->extent(axis, body_->shape.batch, 1, 1));
    longest = std::max(longest, one);
  }
  // Scratch grows with the cube of the time at most, and is counted in 64 bits: half the time is asked before, down to
  // where not even the products of all extents could be too many.
  const auto too_many = [&] {
    if (longest * static_cast<double>(time) > most_bytes) return true;
    const double heads = static_cast<double>(shape().batch) * shape().heads;
    if (static_cast<double>(time) * static_cast<double>(time) * heads < 0x1p47) return false;
    const Footprint half = footprint(time / 2, form);
    return static_cast<double>(std::max({half.workspace, half.backward, half.saved})) > most_bytes / 8;
  };
  if (too_many())
    throw Error("footprint of " + std::to_string(time) + " tokens of " + name() + " with " + describe(shape()) +
                    ": more bytes than any machine has",
                "time");
  Footprint bytes{body_->state_bytes(time), 0, 0, saved_bytes(*body_, time, form)};
  // Of `time` pairs in all some may be kept already, and a state that is full of them (a window stays so) still takes one
  // more token.
  const bool history = body_->pipeline.history;
  const std::int64_t tokens = time + (history ? 1 : 0);
  const auto add = [&](std::int64_t of_call, std::int64_t kept, Form f) {
    bytes.workspace = std::max(bytes.workspace, workspace_bytes(*body_, of_call, of_call, kept, f, false));
    bytes.backward = std::max(bytes.backward, workspace_bytes(*body_, of_call, of_call, kept, f, true));
  };
  const auto include = [&](Form f) {
    const std::int64_t most = f == Form::step ? std::min<std::int64_t>(tokens, 1) : tokens;
    if (!history) {
      add(most, 0, f);
      if (most > 1) add(1, 0, f);
      return;
    }
    // Scratch may be largest for some tokens after some pairs, products of both: it grows with each, so that a call of
    // a to b tokens needs no more than b tokens after tokens - a pairs.
    constexpr std::int64_t cuts = 16;
    std::int64_t from = std::min<std::int64_t>(most, 1);
    add(from, tokens - from, f);
    for (std::int64_t i = 1; i <= cuts && from < most; ++i) {
      const std::int64_t to = i == cuts ? most : std::max(from, most * i / cuts);
      add(to, tokens - from, f);
      from = to;
    }
  };
  include(form);
  if (form == Form::best)
    for (Form f : body_->forms)
      if (f != Form::parallel && f != Form::scan) include(f);
  return bytes;
}

std::string Plan::kernel() const {
  if (body_->main_kernel < 0) return "operation";
  const Family& family = *body_->pipeline.steps[static_cast<std::size_t>(body_->main_kernel)].kernel;
  if (family.traits.literal) return "oracle";
  const char* target = body_->options.type == Type::f32 ? body_->simd_f32->name : body_->simd_f64->name;
  const std::string name(family.name);
  if (!family.forms.chunk && !family.forms.scan) return name + "/recurrent";
  return name + "/" + std::string(to_string(best_form(4096))) + "/" + target;
}

const std::string& Plan::name() const noexcept { return body_->name; }
const Recipe& Plan::recipe() const noexcept { return body_->recipe; }
const Shape& Plan::shape() const noexcept { return body_->shape; }
const Options& Plan::options() const noexcept { return body_->options; }
double Plan::scale() const noexcept { return body_->scale; }
std::span<const InputInfo> Plan::inputs() const noexcept { return body_->pipeline.inputs; }
std::span<const InputInfo> Plan::outputs() const noexcept { return body_->pipeline.outputs; }
std::span<const StateInfo> Plan::states() const noexcept { return body_->states; }
std::span<const Form> Plan::forms() const noexcept { return body_->forms; }

std::string_view Plan::why_absent(Form form) const noexcept {
  if (body_->pipeline.noncausal) return "every query sees all pairs: there is no order in which to take them";
  for (const Step& step : body_->pipeline.steps)
    if (step.kernel && !step.kernel->forms.has(form)) return step.kernel->why_absent;
  return "an operation goes token by token";
}

std::optional<Forgetting> Plan::forgetting() const noexcept {
  const Weights& w = body_->pipeline.design.weights;
  if (w.near != Kernel::none || w.per != Weights::Per::token || w.levels || w.power.given() || w.given > 0)
    return std::nullopt;
  if (w.fade == Weights::Fade::equal) return Forgetting{1, w.window};
  return w.decay.is_constant() ? std::optional(Forgetting{w.decay.value, w.window}) : std::nullopt;
}

Form Plan::best_form(std::int64_t time) const noexcept {
  const auto& forms = body_->forms;
  if (forms.size() == 1) return forms.front();
  const bool chunk = std::find(forms.begin(), forms.end(), Form::chunk) != forms.end();
  if (!chunk || body_->main_kernel < 0) return Form::recurrent;
  const Step& step = body_->pipeline.steps[static_cast<std::size_t>(body_->main_kernel)];
  const Family& family = *step.kernel;
  if (family.traits.best == BestForm::recurrent) return Form::recurrent;
  if (family.traits.best == BestForm::chunk_of_any_length) return time > 1 ? Form::chunk : Form::recurrent;
  const std::optional<families::Tuned> row = family.tuning ? family.tuning(step) : std::nullopt;
  if (!row) return time < families::shortest_chunked ? Form::recurrent : Form::chunk;
  const int vector_bytes = body_->options.type == Type::f32 ? body_->simd_f32->lanes * 4 : body_->simd_f64->lanes * 8;
  const int K = body_->key_width, V = body_->value_width;
  const families::Choice choice = families::choice(*row, vector_bytes, K, V, false);
  return time < families::chunked_from(choice, vector_bytes, K, V, false) ? Form::recurrent : choice.form;
}

std::vector<std::ptrdiff_t> Plan::extents(std::string_view letters, std::int64_t time, std::int64_t pairs) const {
  std::vector<std::ptrdiff_t> result;
  for (char letter : letters) {
    if (letter == ' ') continue;
    // Levels without a number: as many as the caller's tensor has, and `time` tokens need these.
    const bool free = letter == 'L' && !body_->pipeline.letters.contains('L');
    result.push_back(free ? std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(time, 1) - 1)) + 1
                          : body_->extent(letter, body_->shape.batch, time, pairs));
  }
  return result;
}

Status Plan::step(const Inputs& inputs, State state, const Outputs& outputs, Workspace workspace) const noexcept {
  return forward(inputs, state, outputs, workspace, Form::step);
}

Status Plan::forward(const Inputs& inputs, State state, const Outputs& outputs, Workspace workspace, Form form,
                     Saved saved) const noexcept {
  Call call;
  call.inputs = &inputs, call.outputs = &outputs, call.state = state, call.workspace = workspace;
  call.form = form, call.saved = saved;
  measure(*body_, call);
  if (const Fault fault = check_call(*body_, call); fault.status != Status::ok) return fault.status;
  if (saved.data)
    if (const Fault fault = use_saved(*body_, call); fault.status != Status::ok) return fault.status;
  return run_forward(*body_, call);
}

Status Plan::backward(const Inputs& inputs, ConstState initial, const Inputs& d_outputs, ConstState d_final,
                      const Outputs& d_inputs, State d_initial, Workspace workspace, Form form, Gradients gradients,
                      Saved saved) const noexcept {
  Call call;
  call.inputs = &inputs, call.d_outputs = &d_outputs, call.d_inputs = &d_inputs;
  call.state = {const_cast<void*>(initial.data), initial.bytes};  // only read
  call.d_final = d_final, call.d_initial = d_initial, call.workspace = workspace;
  call.form = form, call.gradients = gradients, call.saved = saved;
  measure(*body_, call);
  if (const Fault fault = check_call(*body_, call); fault.status != Status::ok) return fault.status;
  if (saved.data)
    if (const Fault fault = use_saved(*body_, call); fault.status != Status::ok) return fault.status;
  return run_backward(*body_, call);
}

std::string Plan::diagnose(const Inputs& inputs, ConstState state, const Outputs& outputs, Workspace workspace,
                           Form form, Saved saved) const {
  Call call;
  call.inputs = &inputs, call.outputs = &outputs, call.workspace = workspace;
  call.state = {const_cast<void*>(state.data), state.bytes};  // only read
  call.form = form, call.saved = saved;
  measure(*body_, call);
  return diagnose_call(*body_, call);
}

std::string Plan::diagnose(const Inputs& inputs, ConstState initial, const Inputs& d_outputs, ConstState d_final,
                           const Outputs& d_inputs, State d_initial, Workspace workspace, Form form,
                           Saved saved) const {
  Call call;
  call.inputs = &inputs, call.d_outputs = &d_outputs, call.d_inputs = &d_inputs;
  call.state = {const_cast<void*>(initial.data), initial.bytes};  // only read
  call.d_final = d_final, call.d_initial = d_initial, call.workspace = workspace;
  call.form = form, call.saved = saved;
  measure(*body_, call);
  return diagnose_call(*body_, call);
}

Plan plan(const Recipe& recipe, const Shape& shape, const Options& options) {
  Recipe changed = recipe;
  apply_settings(changed, nullptr, options.settings);
  validate(changed);
  std::string text = to_string(changed);
  return make_plan(std::move(text), std::move(changed), nullptr, shape, options);
}

Plan plan(std::string_view text, const Shape& shape, const Options& options) {
  LayerText read = read_layer_text(text);
  if (!read.layer) return plan(read.recipe, shape, options);
  for (const auto& [name, value] : options.settings) read.settings[name] = value;
  apply_settings(read.recipe, read.layer, read.settings);
  Options all = options;
  all.settings = read.settings;
  return make_plan(read.layer->info.name, std::move(read.recipe), read.layer, shape, all);
}

TriedPlan try_plan(std::string_view text, const Shape& shape, const Options& options) noexcept {
  TriedPlan tried;
  try {
    try {
      tried.plan = plan(text, shape, options);
    } catch (const Error& error) {
      tried.error = error.what(), tried.where = error.where();
    } catch (const std::exception& error) {
      tried.error = error.what();
    }
  } catch (...) {  // no memory for the sentence either
  }
  return tried;
}

}  // namespace ttr
