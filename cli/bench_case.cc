#include "bench_case.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>

#include "bench_child.h"
#include "bench_gates.h"
#include "bench_machine.h"
#include "commands.h"
#include "regress_parts.h"
#include "ttr/memory.h"

namespace ttr::cli {
namespace {

bool differentiates(Pass pass) { return pass == Pass::both || pass == Pass::backward; }

constexpr std::int64_t step_tokens = 64;    // distinct tokens of a run of steps
constexpr std::int64_t history_steps = 16;  // steps of one run where every step keeps a pair
constexpr std::int64_t oracle_tokens = 32;
constexpr double least_seconds = 0.003;  // of a timed run

// Products of unrelated keys grow without bound in these layers, in exact arithmetic too (docs/accuracy.md).
struct Tied {
  const char *layer, *input, *from;
  double factor;
};
constexpr Tied tied[] = {{"iplr", "b", "a", -0.5}, {"momentum-deltanet", "p", "k", 1.0}};

bool is_half(Type type) { return type == Type::bf16 || type == Type::f16; }

double rounded_to(Type type, double x) {
  switch (type) {
    case Type::bf16:
      return to_float(to_bf16(static_cast<float>(x)));
    case Type::f16:
      return to_float(to_f16(static_cast<float>(x)));
    case Type::f32:
      return static_cast<float>(x);
    default:
      return x;
  }
}

// Dense storage of one named tensor.
struct Array {
  Buffer memory;
  Axes axes;
  std::vector<std::ptrdiff_t> extent, stride;
  Type type = Type::f32;

  Array() = default;
  Array(const Plan& plan, const std::string& shape, std::int64_t time)
      : axes(shape), extent(plan.extents(shape, time)), type(plan.options().tensors.value_or(plan.options().type)) {
    stride.resize(extent.size());
    std::ptrdiff_t step = 1;
    for (std::size_t d = extent.size(); d-- > 0;) stride[d] = step, step *= extent[d];
    memory = Buffer(static_cast<std::size_t>(step) * size_of(type));
    std::memset(memory.data(), 0, memory.size());
  }
  std::size_t count() const { return memory.size() / size_of(type); }
  void write(const Numbers& numbers) {
    for (std::size_t i = 0; i < numbers.size() && i < count(); ++i) put(i, numbers[i]);
  }
  Numbers read(std::size_t n) const {
    Numbers numbers(std::min(n, count()));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = get(i);
    return numbers;
  }
  void put(std::size_t i, double x) {
    if (type == Type::f64) as<double>()[i] = x;
    else if (type == Type::f32) as<float>()[i] = static_cast<float>(x);
    else if (type == Type::bf16) as<bf16>()[i] = to_bf16(static_cast<float>(x));
    else as<f16>()[i] = to_f16(static_cast<float>(x));
  }
  double get(std::size_t i) const {
    if (type == Type::f64) return as<double>()[i];
    if (type == Type::f32) return as<float>()[i];
    return type == Type::bf16 ? to_float(as<bf16>()[i]) : to_float(as<f16>()[i]);
  }
  template <class N>
  N* as() const {
    return reinterpret_cast<N*>(memory.data());
  }
  std::ptrdiff_t time_axis() const {
    const std::size_t time = axes.find_any("TP");
    return time == Axes::npos ? -1 : static_cast<std::ptrdiff_t>(time);
  }
  /// The first `n` tokens if it has a time axis (n < 0: all).
  Tensor tensor(std::int64_t n = -1) const {
    Tensor t;
    t.type = type, t.rank = static_cast<int>(extent.size());
    for (std::size_t d = 0; d < extent.size(); ++d) {
      t.extent[d] = extent[d], t.stride[d] = stride[d];
      if (static_cast<std::ptrdiff_t>(d) == time_axis() && n >= 0) t.extent[d] = n;
    }
    t.data = memory.data();
    return t;
  }
};

std::uint64_t seed_of(std::size_t index) { return 1000 + index; }

Numbers drawn(const Plan& plan, std::size_t index, std::int64_t time) {
  const InputInfo& info = plan.inputs()[index];
  for (const Tied& tie : tied)
    for (std::size_t i = 0; i < plan.inputs().size() && plan.name() == tie.layer && info.name == tie.input; ++i)
      if (plan.inputs()[i].name == tie.from) {
        Numbers numbers = random_input(plan, plan.inputs()[i], time, seed_of(i));
        for (double& x : numbers) x *= tie.factor;
        return numbers;
      }
  return random_input(plan, info, time, seed_of(index));
}

const LayerInfo* known_layer(const std::string& text) {
  const std::string name = text.substr(0, text.find(':'));
  for (const LayerInfo& info : layers())
    if (info.name == name) return &info;
  return nullptr;
}

Plan plan_of(const BenchCase& c, const std::string& kernel) {
  Options options;
  options.type = is_half(c.type) ? Type::f32 : c.type, options.kernel = kernel, options.threads = c.threads;
  if (is_half(c.type)) options.tensors = c.type;
  options.chunk = c.chunk, options.target = c.target, options.count = c.count;
  return plan(c.layer, {1, c.heads, c.key_heads, c.key_dim, c.value_dim}, options);
}

}  // namespace

struct CaseRun::Memory {
  explicit Memory(Plan p) : plan(std::move(p)) {}
  Plan plan;
  std::map<std::string, Array> inputs, outputs, d_outputs, d_inputs;
  Buffer fresh, state, work, saved;  // saved: what the forward of Pass::both leaves for its backward
  Inputs in, d_out;
  Outputs out, d_in;
  struct Moving {  // a tensor of one token of many
    const std::byte* base;
    std::ptrdiff_t bytes;
    ConstTensor* in;
    Tensor* out;
  };
  std::vector<Moving> moving;
  Status status = Status::ok;
  State state_of() { return {state.data(), state.size()}; }
  Workspace workspace() { return {work.data(), work.size()}; }
  Saved room() { return saved.size() ? Saved{saved.data(), saved.size()} : Saved{}; }
};

std::string_view to_string(Pass pass) noexcept {
  constexpr std::string_view names[] = {"forward", "forward+backward", "step", "backward"};
  return names[static_cast<int>(pass)];
}

std::string name_of(const BenchCase& c) {
  return fmt::format("{} {} {} {} K{} V{} H{}{} T{} threads {}{}", c.layer, to_string(c.pass), ttr::to_string(c.form),
                     ttr::to_string(c.type), c.key_dim, c.value_dim, c.heads,
                     c.key_heads ? fmt::format(" G{}", c.key_heads) : "", c.time, c.threads,
                     c.gates == "gentle" ? "" : " gates " + c.gates);
}

CaseRun::CaseRun(const BenchCase& spec, const std::string& kernel)
    : spec_(spec), memory_(std::make_unique<Memory>(plan_of(spec, kernel))) {
  const Plan& p = memory_->plan;
  const Footprint bytes = p.footprint(spec.time, spec.form);
  require_memory(tensor_bytes(spec) + static_cast<double>(bytes.state) + static_cast<double>(bytes.workspace) +
                     (differentiates(spec.pass) ? static_cast<double>(bytes.backward) : 0),
                 name_of(spec), "take fewer tokens, heads or channels");
  Buffer probe(p.footprint(1).state);
  std::memset(probe.data(), 0, probe.size());
  keeps_pairs_ = p.tokens_kept({probe.data(), probe.size()}) >= 0;
  const Form form = spec_.pass == Pass::step ? Form::step : spec_.form;
  if (form != Form::best && std::find(p.forms().begin(), p.forms().end(), form) == p.forms().end())
    throw Error(fmt::format("{} has no form {}: {}", spec_.layer, ttr::to_string(form), p.why_absent(form)),
                "--form");
  if (spec_.pass == Pass::step && !keeps_pairs_) spec_.time = 1;
  tokens_ = spec_.pass == Pass::step ? (keeps_pairs_ ? spec_.time + history_steps : step_tokens) : spec_.time;

  const GateKind gates(spec_.gates);
  for (std::size_t i = 0; i < p.inputs().size(); ++i) {
    const InputInfo& info = p.inputs()[i];
    Array& array = memory_->inputs[info.name] = Array(p, info.shape, tokens_);
    Numbers numbers = drawn(p, i, tokens_);
    gates.apply(p, info, tokens_, numbers);
    for (double& x : numbers) x = rounded_to(spec_.rounded, x);
    array.write(numbers);
    if (differentiates(spec_.pass) && info.differentiable)
      memory_->d_inputs[info.name] = Array(p, info.shape, tokens_);
  }
  for (std::size_t i = 0; i < p.outputs().size(); ++i) {
    const InputInfo& info = p.outputs()[i];
    memory_->outputs[info.name] = Array(p, info.shape, tokens_);
    if (!differentiates(spec_.pass) || !info.differentiable) continue;
    InputInfo normal = info;
    normal.range = Range::normal;
    Array& array = memory_->d_outputs[info.name] = Array(p, info.shape, tokens_);
    Numbers numbers = random_input(p, normal, tokens_, seed_of(100 + i));
    for (double& x : numbers) x = rounded_to(spec_.rounded, x);
    array.write(numbers);
  }
  bind();
}

CaseRun::~CaseRun() = default;

const Plan& CaseRun::plan() const { return memory_->plan; }

// Names of tensors must outlive the lists, so they are those of the plan.
void CaseRun::bind() {
  Memory& m = *memory_;
  const bool step = spec_.pass == Pass::step;
  const auto moving = [&](const Array& array, ConstTensor* in, Tensor* out) {
    const std::ptrdiff_t axis = array.time_axis();
    if (!step || axis < 0) return;
    const auto d = static_cast<std::size_t>(axis);
    // A token is more than one row where it brings several pairs.
    const std::ptrdiff_t rows = array.extent[d] / tokens_;
    m.moving.push_back({static_cast<const std::byte*>(in ? in->data : out->data),
                        rows * array.stride[d] * static_cast<std::ptrdiff_t>(size_of(array.type)), in, out});
    (in ? in->extent[d] : out->extent[d]) = rows;
  };
  for (const InputInfo& info : m.plan.inputs()) {
    const Array& array = m.inputs.at(info.name);
    ConstTensor& slot = m.in[info.name] = array.tensor();
    moving(array, &slot, nullptr);
    if (const auto found = m.d_inputs.find(info.name); found != m.d_inputs.end())
      m.d_in[info.name] = found->second.tensor();
  }
  for (const InputInfo& info : m.plan.outputs()) {
    Tensor& slot = m.out[info.name] = m.outputs.at(info.name).tensor();
    moving(m.outputs.at(info.name), nullptr, &slot);
    if (const auto found = m.d_outputs.find(info.name); found != m.d_outputs.end())
      m.d_out[info.name] = found->second.tensor();
  }
  const std::int64_t all = keeps_pairs_ ? tokens_ : step ? 1 : tokens_;
  const Form form = step ? Form::step : spec_.form;
  const Footprint bytes = m.plan.footprint(all, form);
  m.fresh = Buffer(bytes.state), m.state = Buffer(bytes.state);
  std::size_t scratch = differentiates(spec_.pass) ? std::max(bytes.workspace, bytes.backward) : bytes.workspace;
  if (step && keeps_pairs_) scratch = std::max(scratch, m.plan.footprint(all).workspace);  // to fill it
  m.work = Buffer(scratch);
  m.saved = Buffer(spec_.pass == Pass::both ? bytes.saved : 0);
  if (m.plan.reset({m.fresh.data(), m.fresh.size()}) != Status::ok)
    throw Error("the state of " + m.plan.name() + " cannot be reset");
  if (!step || !keeps_pairs_ || spec_.time == 0) return;
  // The pairs that are there before the first step.
  Inputs in;
  Outputs out;
  for (const InputInfo& info : m.plan.inputs()) in[info.name] = m.inputs.at(info.name).tensor(spec_.time);
  for (const InputInfo& info : m.plan.outputs()) out[info.name] = m.outputs.at(info.name).tensor(spec_.time);
  const State state{m.fresh.data(), m.fresh.size()};
  const Status status = m.plan.forward(in, state, out, m.workspace(), spec_.form);
  if (status != Status::ok) throw Error(m.plan.name() + ": " + m.plan.diagnose(in, state, out, m.workspace()));
}

void CaseRun::rewind() { std::memcpy(memory_->state.data(), memory_->fresh.data(), memory_->state.size()); }

void CaseRun::run(std::int64_t repeats) {
  Memory& m = *memory_;
  const Workspace work = m.workspace();
  const State state = m.state_of();
  if (spec_.pass == Pass::step) {
    const std::int64_t first = keeps_pairs_ ? spec_.time : 0, tokens = tokens_ - first;
    for (std::int64_t s = 0; s < repeats && m.status == Status::ok; ++s) {
      const std::ptrdiff_t token = first + s % tokens;
      for (const Memory::Moving& moved : m.moving) {
        const std::byte* data = moved.base + token * moved.bytes;
        if (moved.in) moved.in->data = data;
        else moved.out->data = const_cast<std::byte*>(data);
      }
      m.status = m.plan.step(m.in, state, m.out, work);
    }
    return;
  }
  for (std::int64_t r = 0; r < repeats && m.status == Status::ok; ++r) {
    if (r > 0) rewind();
    if (spec_.pass != Pass::backward) m.status = m.plan.forward(m.in, state, m.out, work, spec_.form, m.room());
    if (differentiates(spec_.pass) && m.status == Status::ok)
      m.status = m.plan.backward(m.in, {m.fresh.data(), m.fresh.size()}, m.d_out, {}, m.d_in, {}, work, spec_.form,
                                 Gradients::write, m.room());
  }
}

void CaseRun::once() {
  rewind();
  run(spec_.pass == Pass::step ? static_cast<std::int64_t>(tokens_of_once()) : 1);
  require_ok();
}

double CaseRun::tokens_of_once() const {
  return static_cast<double>(spec_.pass != Pass::step ? spec_.time : keeps_pairs_ ? history_steps : step_tokens);
}

double CaseRun::timed() {
  const bool fixed = spec_.pass == Pass::step && keeps_pairs_;  // more steps would keep more pairs
  const auto once = [&] {
    rewind();
    return seconds_of_team(1, [&](int) { run(repeats_); });
  };
  if (repeats_ == 0) {
    repeats_ = fixed ? history_steps : 1;
    double seconds = once();
    while (!fixed && seconds < least_seconds && repeats_ < (std::int64_t{1} << 30)) {
      const double factor = std::clamp(1.3 * least_seconds / std::max(seconds, 1e-9), 2.0, 64.0);
      repeats_ = static_cast<std::int64_t>(std::ceil(static_cast<double>(repeats_) * factor));
      seconds = once();
    }
    require_ok();
    if (seconds > 1) return seconds;  // long enough not to mind a cold start
  }
  const double seconds = once();
  require_ok();
  return seconds;
}

void CaseRun::require_ok() const {
  if (memory_->status != Status::ok)
    throw Error(name_of(spec_) + ": " + std::string(ttr::to_string(memory_->status)));
}

double CaseRun::tokens_per_run() const {
  const double each = spec_.pass == Pass::step ? 1 : static_cast<double>(spec_.time);
  return each * static_cast<double>(repeats_);
}

std::string CaseRun::form() const {
  if (spec_.pass == Pass::step) return "step";
  if (spec_.form != Form::best || spec_.pass == Pass::both) return std::string(ttr::to_string(spec_.form));
  return std::string(ttr::to_string(memory_->plan.best_form(spec_.time)));
}

std::size_t CaseRun::workspace_bytes() const {
  const Footprint f = memory_->plan.footprint(keeps_pairs_ || spec_.pass != Pass::step ? tokens_ : 1,
                                              spec_.pass == Pass::step ? Form::step : spec_.form);
  return spec_.pass == Pass::both ? std::max(f.workspace, f.backward) : f.workspace;
}

std::size_t CaseRun::saved_bytes() const { return memory_->saved.size(); }

Form form_of(const std::string& name, const char* others) {
  for (const Form form : {Form::best, Form::recurrent, Form::chunk, Form::parallel, Form::scan})
    if (name == ttr::to_string(form)) return form;
  throw Error(fmt::format("there is no form '{}'; the forms are best, recurrent, chunk, parallel{}", name, others),
              "--form");
}

double CaseRun::bytes_per_token() const {
  double bytes = 0;
  const auto moved = [&](const std::map<std::string, Array>& arrays, double times) {
    for (const auto& [name, array] : arrays)
      if (array.time_axis() >= 0) bytes += times * static_cast<double>(array.memory.size());
  };
  const double passes = spec_.pass == Pass::both ? 2 : 1;
  moved(memory_->inputs, passes), moved(memory_->outputs, 1);
  moved(memory_->d_inputs, 1), moved(memory_->d_outputs, 1);
  bytes += 2 * static_cast<double>(memory_->saved.size());  // written and read
  bytes /= static_cast<double>(tokens_);
  if (spec_.pass != Pass::step) return bytes;
  // A list of pairs is read, a state of fixed size is read and written.
  return bytes + (keeps_pairs_ ? 1 : 2) *
                     static_cast<double>(memory_->plan.footprint(std::max<std::int64_t>(spec_.time, 1)).state);
}

Traffic CaseRun::traffic() const {
  return spec_.pass == Pass::step && keeps_pairs_ ? Traffic::read : Traffic::update;
}

std::size_t CaseRun::bytes_touched() const {
  std::size_t bytes = memory_->state.size();
  if (spec_.pass == Pass::step) return bytes;
  for (const auto* arrays : {&memory_->inputs, &memory_->outputs, &memory_->d_inputs, &memory_->d_outputs})
    for (const auto& [name, array] : *arrays) bytes += array.memory.size();
  return bytes;
}

NamedNumbers CaseRun::outputs(std::int64_t tokens) const {
  NamedNumbers result;
  const std::int64_t first = spec_.pass == Pass::step && keeps_pairs_ ? spec_.time : 0;
  for (const auto& [name, array] : memory_->outputs) {
    const auto per_token = static_cast<std::int64_t>(array.count()) / tokens_;
    Numbers all = array.read(static_cast<std::size_t>((first + tokens) * per_token));
    all.erase(all.begin(), all.begin() + first * per_token);
    result[name] = std::move(all);
  }
  return result;
}

NamedNumbers CaseRun::gradients() const {
  NamedNumbers result;
  for (const auto& [name, array] : memory_->d_inputs) result[name] = array.read(array.count());
  return result;
}

void CaseRun::differentiate_only(const NamedNumbers& outputs) {
  Inputs kept;
  for (const std::string_view name : memory_->d_out.names())
    if (outputs.contains(name)) kept[name] = memory_->d_out.get(name);
  memory_->d_out = kept;
}

namespace {

// As in `ttr check`: a gradient much smaller than the others is compared relative to a tenth of the largest.
double floor_of(const NamedNumbers& gradients) {
  double largest = 0;
  for (const auto& [name, numbers] : gradients)
    for (const double x : numbers) largest = std::max(largest, std::abs(x));
  return std::max(0.1 * largest, 1e-2);
}

NamedNumbers only(NamedNumbers numbers, const NamedNumbers& names) {
  std::erase_if(numbers, [&](const auto& item) { return !names.contains(item.first); });
  return numbers;
}

}  // namespace

CaseCheck check_case(CaseRun& run) {
  const BenchCase& spec = run.spec();
  const LayerInfo* info = known_layer(spec.layer);
  const bool on_oracle = run.plan().kernel() == "oracle";
  const bool literal = !on_oracle && !run.plan().recipe().solver.word.empty() && (!info || info->literal);
  const bool step = spec.pass == Pass::step;
  double tolerance = spec.type == Type::f64 ? 1e-10 : 1e-4;
  if (info) tolerance = (spec.type == Type::f64 ? info->tolerance_f64 : info->tolerance_f32) * info->conditioning;
  if (is_half(spec.type)) tolerance += spec.type == Type::bf16 ? 0x1p-8 : 0x1p-11;  // results are rounded
  run.once();

  std::string what;
  struct Against {
    const char* name;
    std::string kernel;
    std::int64_t tokens;
  };
  std::vector<Against> list;
  const bool slow = run.keeps_pairs() || spec.pass == Pass::both;
  if (literal) list.push_back({"oracle", "oracle", std::min(spec.time, oracle_tokens)});
  if (!on_oracle) list.push_back({"double", "", std::min<std::int64_t>(spec.time, slow ? 256 : 1024)});
  if (on_oracle) what = "runs on the oracle itself";
  for (const Against& other : list) {
    BenchCase same = spec;
    same.type = Type::f64, same.threads = 1, same.form = Form::recurrent;
    same.rounded = is_half(spec.type) ? spec.type : Type::f64;
    std::int64_t tokens = other.tokens;
    if (step) {
      tokens = run.keeps_pairs() ? history_steps : std::min(step_tokens, oracle_tokens);
      if (run.keeps_pairs() && other.kernel == "oracle") continue;  // all pairs at once: seconds per token
    } else {
      same.time = tokens;
    }
    if (step && !run.keeps_pairs()) same.pass = Pass::forward, same.time = tokens;
    CaseRun reference(same, other.kernel);
    reference.once();
    const NamedNumbers expected = reference.outputs(tokens);
    double error = relative_error(only(run.outputs(tokens), expected), expected);
    if (spec.pass == Pass::both) {
      BenchCase shorter = spec;
      shorter.time = tokens;
      CaseRun measured(shorter);
      measured.differentiate_only(expected);
      measured.once();
      const NamedNumbers gradients = reference.gradients();
      error = std::max(error, relative_error(measured.gradients(), gradients, floor_of(gradients)));
    }
    if (!(error <= tolerance))
      return {false, fmt::format("differs from the {} on {} tokens by {:.1e}, more than {:.0e}",
                                 other.kernel == "oracle" ? "literal solution" : "recurrent form in double", tokens,
                                 error, tolerance)};
    what += fmt::format("{}{} {} tokens", what.empty() ? "" : ", ", other.name, tokens);
  }
  return {true, what};
}

namespace {

// The products of the chunk algorithm of a network, per token and head; d = K = V, w hidden units, blocks of b tokens:
//   ttt-linear  keys, update and reads 6 d^2, pairs of a block 2 d (b + 1)
//   ttt-mlp     14 d w and 2 (d + w)(b + 1)
//   lact        18 d w, and per chunk five Newton-Schulz steps of three matrices, symmetric products counted half
double network_flops(const std::string& name, const Plan& plan) {
  const auto setting = [&](const char* key, double otherwise) {
    const auto found = plan.options().settings.find(key);
    return found == plan.options().settings.end() ? otherwise : std::strtod(found->second.c_str(), nullptr);
  };
  const double d = plan.shape().key_dim, w = setting("width", 4 * d),
               b = setting("batch", name == "lact" ? 2048 : 16);
  if (name == "ttt-linear") return 6 * d * d + 2 * d * (b + 1);
  if (name == "ttt-mlp") return 14 * d * w + 2 * (d + w) * (b + 1);
  if (name != "lact" || d != plan.shape().value_dim) return std::numeric_limits<double>::quiet_NaN();
  const auto muon = plan.options().settings.find("muon");
  const bool orthogonal = muon == plan.options().settings.end() || muon->second == "yes";
  const double r = std::min(d, w), c = std::max(d, w);
  return 18 * d * w + (orthogonal ? 15 * (3 * r * r * c + r * r * r) / b : 0);
}

}  // namespace

double recurrence_flops(const std::string& layer, double key_dim, double value_dim, double heads, double time) {
  // The plain recurrence; multiples of K V per token and head.
  static const std::map<std::string, double> counts = {{"gla", 5},      {"hgrn-2", 5},
                                                       {"rwkv-6", 5},   {"simple-gla", 5},
                                                       {"retnet", 5},   {"lightning-attention", 5},
                                                       {"mamba-2", 5},  {"mlstm", 5},
                                                       {"deltanet", 6}, {"gated-deltanet", 7},
                                                       {"kda", 7},      {"rwkv-7", 9},
                                                       {"dplr", 9}};
  if (layer == "softmax-attention") return 2 * (key_dim + value_dim) * (time + 1) / 2 * heads;
  const auto found = counts.find(layer);
  return found == counts.end() ? std::numeric_limits<double>::quiet_NaN()
                               : found->second * key_dim * value_dim * heads;
}

double useful_flops_per_token(const CaseRun& run) {
  const BenchCase& c = run.spec();
  const double K = c.key_dim, V = c.value_dim, H = c.heads, T = static_cast<double>(c.time);
  const std::string name = c.layer.substr(0, c.layer.find(':'));
  const bool attention = name == "softmax-attention" && c.layer == name;
  if (attention && c.pass == Pass::step) return 2 * (K + V) * (T + 0.5 * history_steps) * H;
  if (attention) return (c.pass == Pass::both ? attention_both : 1) * recurrence_flops(name, K, V, H, T);
  if ((name == "ttt-linear" || name == "ttt-mlp" || name == "lact") && c.pass == Pass::forward)
    return network_flops(name, run.plan()) * H;
  return (c.pass == Pass::both ? recurrence_both : 1) * recurrence_flops(c.layer, K, V, H, T);
}

Limit limit_of(const CaseRun& run, double flops, double peak_gflops, const MachineLimits& machine) {
  const double moving = run.bytes_per_token() / bandwidth_for(machine, run.traffic(), run.bytes_touched());
  const double computing = flops / peak_gflops;
  return {1e9 / std::max(moving, computing), moving >= computing};
}

double executed_flops_per_token(const BenchCase& spec) {
  BenchCase counted = spec;
  counted.count = true, counted.threads = 1;
  CaseRun run(counted);
  const Executed before = executed();
  run.once();
  const Executed after = executed();
  if (after.uncounted != before.uncounted || after.multiply_adds == before.multiply_adds)
    return std::numeric_limits<double>::quiet_NaN();
  return 2 * static_cast<double>(after.multiply_adds - before.multiply_adds) / run.tokens_of_once();
}

}  // namespace ttr::cli
