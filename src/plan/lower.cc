// From a design to a pipeline: the layer's stages turn the caller's tensors into the canonical inputs of the recipe,
// a family solves the regression, and the layer's read-out follows.
#include <algorithm>
#include <cmath>

#include "families/families.h"
#include "plan/builder.h"
#include "plan/joints.h"
#include "recipe/text_tools.h"

namespace ttr {
namespace {

using prepare::Op;

}  // namespace

Builder::Builder(const Design& design, const zoo::Declaration* layer, const Shape& shape, const Options& options)
    : layer_(layer), shape_(shape), options_(options), type_(options.type) {
  p_.design = design;
  p_.pairs = design.solver.pairs;
  if (layer) p_.letters = layer->letters;
  if (design.memory.slots > 0) p_.letters['M'] = design.memory.slots;
  if (design.solver.step_each) p_.letters['I'] = design.solver.steps;
  if (design.weights.level_count > 0) p_.letters['L'] = design.weights.level_count;
  if (design.memory.has_matrix()) p_.letters['M'] = design.memory.matrix_rows(shape.key_dim);
  if (design.weights.given > 0) p_.letters['W'] = design.weights.given;
  if (!layer || !layer->is_operation()) p_.canonical_info = canonical_inputs(design);
  // What a memory does not read a layer need not have; a tensor of that name may be something else there.
  if (layer) std::erase_if(p_.canonical_info, [](const InputInfo& info) { return info.optional; });
  p_.inputs = layer ? layer->info.inputs : p_.canonical_info;
  if (!options.causal) give_pairs_their_own_time();
  for (std::size_t i = 0; i < p_.inputs.size(); ++i) {
    if (const InputInfo* info = canonical_info(p_.inputs[i].name);
        layer && info && !produced(info->name) && p_.inputs[i].shape != info->shape)
      p_.inputs[i].shape = info->shape;  // a setting changed it: ridge=token
    add_value({p_.inputs[i].name, Axes(p_.inputs[i].shape), Value::From::input, static_cast<int>(i), {}});
  }
  // A setting may ask for an input the layer's table does not have (sink=input on another kernel, ...).
  for (const InputInfo& info : p_.canonical_info)
    if (layer && !produced(info.name) && !has(info.name)) {
      p_.inputs.push_back(info);
      add_value({info.name, Axes(info.shape), Value::From::input, static_cast<int>(p_.inputs.size()) - 1, {}});
    }
  p_.outputs = layer ? layer->info.outputs : std::vector<InputInfo>{zoo::output()};
}

namespace {

// A step that is folded into its kernel is not there, forwards.
bool takes_halves(const Pipeline& p, int index, bool forward) {
  const Value& value = p.values[static_cast<std::size_t>(index)];
  const bool output = value.from == Value::From::step;
  if (output && (value.output < 0 || value.read)) return false;
  for (const Step& step : p.steps) {
    if (forward && step.folded) continue;
    const unsigned halves = step.kernel ? step.kernel->f32.halves : 0;
    const int written = forward && step.skip >= 0 ? p.steps[static_cast<std::size_t>(step.skip)].result : step.result;
    if (output && written == index) return halves != 0;
    for (std::size_t r = 0; r < step.operands.size(); ++r)
      if (step.operands[r] == index && (halves >> r & 1) == 0) return false;
  }
  return !output;
}

}  // namespace

Pipeline Builder::build(double scale) {
  if (layer_ && layer_->is_operation()) {
    make_operation_layer();
  } else {
    const Family& family = options_.kernel == "oracle" ? families::literal()
                           : layer_ && layer_->family  ? *layer_->family
                                                       : families::claimed_by(p_.design, options_.causal);
    finish(family.build(*this, scale));
  }
  drop_unused_inputs();
  find_replayed();
  for (Value& value : p_.values) value.places = places_of(value.axes);
  find_joints(p_, shape_);
  for (std::size_t i = 0; i < p_.values.size(); ++i)
    p_.values[i].halves = takes_halves(p_, static_cast<int>(i), true),
    p_.values[i].halves_with_gradients = takes_halves(p_, static_cast<int>(i), false);
  for (const InputInfo& info : p_.inputs) p_.input_axes.emplace_back(info.shape);
  for (const InputInfo& info : p_.outputs) p_.output_axes.emplace_back(info.shape);
  if (p_.noncausal) p_.states.clear(), p_.history = false;  // a call is a whole
  return std::move(p_);
}

// Not causal: what belongs to pairs has the letter P for its time; and so have the layer's inputs it is made of.
void Builder::give_pairs_their_own_time() {
  p_.noncausal = true;
  const auto input_of = [&](const std::string& name) {
    if (layer_)
      for (const auto& [fed, input] : layer_->feeds)
        if (fed == name) return input;
    return name;
  };
  if (input_of("k") == input_of("q")) return;  // keys that are the queries (SOFT): there are as many pairs as tokens
  const auto own_time = [](std::string& shape) {
    if (const std::size_t at = shape.find('T'); at != std::string::npos) shape[at] = 'P';
  };
  std::vector<std::string> of_pairs;
  for (InputInfo& info : p_.canonical_info)
    if (oracle::is_of_pairs(p_.design, info.name)) own_time(info.shape), of_pairs.push_back(info.name);
  if (!layer_) {
    p_.inputs = p_.canonical_info;
    return;
  }
  for (std::size_t i = 0; i < of_pairs.size(); ++i) {
    const std::string name = of_pairs[i];
    for (const auto& [fed, input] : layer_->feeds)
      if (fed == name) of_pairs.push_back(input);
    for (const zoo::Stage& stage : layer_->prepare)
      if (stage.to == name && name != stage.from.front())
        of_pairs.insert(of_pairs.end(), stage.from.begin(), stage.from.end());
  }
  for (InputInfo& input : p_.inputs)
    if (std::find(of_pairs.begin(), of_pairs.end(), input.name) != of_pairs.end()) own_time(input.shape);
}

const InputInfo* Builder::canonical_info(const std::string& name) const {
  for (const InputInfo& info : p_.canonical_info)
    if (info.name == name) return &info;
  return nullptr;
}

bool Builder::produced(const std::string& name) const {
  if (!layer_) return false;
  if (name == "g" && layer_->log_decay_of_head) return true;
  for (const auto& [fed, input] : layer_->feeds)
    if (fed == name) return true;
  return std::any_of(layer_->prepare.begin(), layer_->prepare.end(),
                     [&](const zoo::Stage& stage) { return stage.to == name; });
}

bool Builder::has(const std::string& name) const {
  return std::any_of(p_.values.begin(), p_.values.end(), [&](const Value& value) { return value.name == name; });
}

int Builder::index_of(const std::string& name) const {
  for (std::size_t i = 0; i < p_.values.size(); ++i)
    if (p_.values[i].name == name) return static_cast<int>(i);
  if (options_.kernel == "oracle")
    throw Error(
        "the literal solver does not compute '" + name + "' of " + layer_->info.name + "; leave options.kernel empty",
        "options.kernel");
  throw Error("the layer's pipeline names '" + name + "', which is neither an input nor a result");
}

int Builder::add_value(Value value) {
  p_.values.push_back(std::move(value));
  return static_cast<int>(p_.values.size()) - 1;
}

int Builder::operation(Op op, std::vector<int> operands, Axes axes, double number, std::string name) {
  const int to = add_value({std::move(name), axes, Value::From::step, -1, {}});
  Step step;
  step.op = op, step.number = number, step.operands = std::move(operands), step.result = to;
  p_.steps.push_back(std::move(step));
  return to;
}

int Builder::extent(char letter) const {
  const auto own = p_.letters.find(letter);
  return own != p_.letters.end() ? own->second
         : letter == 'K'         ? shape_.key_dim
         : letter == 'V'         ? shape_.value_dim
                                 : 1;
}

int Builder::width(int value) const {
  const Axes& own = axes(value);
  return own.empty() || !Axes::is_inner(own.back()) ? 1 : extent(own.back());
}

int Builder::per_head(int value) {
  if (!axes(value).has('G') || shape_.key_heads == shape_.heads) return value;
  return operation(Op::multiply, {value, constant(1)}, axes(value).replaced('G', 'H'));
}

int Builder::canonical(const std::string& name) {
  const InputInfo* info = canonical_info(name);
  if (!info) return -1;
  if (const auto found = canonical_values_.find(name); found != canonical_values_.end()) return found->second;
  return canonical_values_[name] = canonical_value(*info);
}

// The caller's tensor of that name, of another name, or a result.
int Builder::canonical_value(const InputInfo& info) {
  if (layer_) {
    if (info.name == "g" && layer_->log_decay_of_head)
      return add_value(
          {"g", "H", Value::From::table, -1, layer_->log_decay_of_head(shape_.heads, options_.settings)});
    for (const auto& [fed, name] : layer_->feeds)
      if (fed == info.name) return operand(name);
    if (const int result = stage_result(info.name, Axes(info.shape)); result >= 0) return result;
  }
  return index_of(info.name);
}

// What a stage of the preparation names: an input of the layer, the result of another stage, or a number.
int Builder::operand(const std::string& name) {
  for (const InputInfo& input : layer_->info.inputs)
    if (input.name == name) return index_of(name);
  if (const int result = stage_result(name, ""); result >= 0) return result;
  if (const auto number = read_number<double>(name)) return constant(*number);
  if (const int fed = canonical(name); fed >= 0) return fed;
  for (const auto& [fed, input] : layer_->feeds)  // what a kernel takes and no recipe knows
    if (fed == name) return index_of(input);
  return index_of(name);
}

// The result of the stage that makes `name`, run once; -1 if there is none.
int Builder::stage_result(const std::string& name, Axes axes) {
  if (const auto found = stage_results_.find(name); found != stage_results_.end()) return found->second;
  for (const zoo::Stage& stage : layer_->prepare)
    if (stage.to == name) {
      if (axes.empty())
        if (const InputInfo* info = canonical_info(name)) axes = Axes(info->shape);
      return stage_results_[name] = run_stage(stage, axes);
    }
  return -1;
}

// Without axes, those of the first operand.
int Builder::run_stage(const zoo::Stage& stage, Axes axes) {
  if (!stage.shape.empty()) axes = Axes(stage.shape);
  std::vector<int> from;
  for (const std::string& name : stage.from) from.push_back(operand(name));
  if (axes.empty()) axes = this->axes(from.front());
  if (stage.family) return stage.family->stage(*this, stage, from, axes);
  return operation(stage.op, from, axes, stage.number, stage.to);
}

Step Builder::kernel(const Family& family, double scale, int q, int k, int v, int g, int beta, std::size_t slots) {
  Step step;
  step.kernel = &family, step.scale = scale;
  step.operands.assign(slots, -1);
  step.operands[Slot::q] = q, step.operands[Slot::k] = k, step.operands[Slot::v] = v;
  step.operands[Slot::g] = g, step.operands[Slot::beta] = beta;
  return step;
}

int Builder::add(Step step, Axes axes, std::vector<StatePart> states) {
  step.result = add_value({"", axes, Value::From::step, -1, {}});
  step.state = static_cast<int>(p_.states.size());
  for (StatePart& part : states) {
    part.axes = Axes(part.info.shape);
    p_.states.push_back(std::move(part));
  }
  p_.steps.push_back(step);
  return step.result;
}

int Builder::second_result(Step& step, const std::string& name, Axes axes) {
  step.second_result = add_value({name, axes, Value::From::step, -1, {}});
  if (!name.empty()) stage_results_[name] = step.second_result;
  return step.second_result;
}

int Builder::further_output(const InputInfo& info) {
  if (!layer_) p_.outputs.push_back(info);
  return stage_results_[info.name] = add_value({info.name, Axes(info.shape), Value::From::step, -1, {}});
}

void Builder::finish(int answer) {
  const bool on_oracle = p_.steps.back().kernel && p_.steps.back().kernel->traits.literal;
  if (!on_oracle) {  // the oracle normalises by itself
    const Extras& extras = p_.design.extras;
    if (extras.normalise == Extras::Normalise::unit)
      answer = operation(Op::unit_norm, {answer}, "BTHV", extras.normalise_eps);
    if (extras.normalise == Extras::Normalise::rms)
      answer = operation(Op::rms_norm, {answer}, "BTHV", extras.normalise_eps);
  }
  if (p_.values[static_cast<std::size_t>(answer)].name.empty())
    p_.values[static_cast<std::size_t>(answer)].name = "o";
  stage_results_["o"] = answer;
  if (layer_)
    for (const zoo::Stage& stage : layer_->finish) stage_results_[stage.to] = run_stage(stage, axes_of(stage.to));
  std::vector<InputInfo> outputs;
  for (const InputInfo& output : p_.outputs) {
    // An output that only the kernel gives (a denominator) does not exist where another solver answers.
    const auto found = stage_results_.find(output.name);
    if (found == stage_results_.end()) continue;
    outputs.push_back(output);
    p_.output_values.push_back(found->second);
  }
  p_.outputs = std::move(outputs);
}

void Builder::make_operation_layer() {
  for (const zoo::Stage& stage : layer_->finish) stage_results_[stage.to] = run_stage(stage, axes_of(stage.to));
  for (const InputInfo& output : p_.outputs) p_.output_values.push_back(stage_results_.at(output.name));
}

// Letters of an output, or of a result on the way to one.
Axes Builder::axes_of(const std::string& name) const {
  for (const InputInfo& output : p_.outputs)
    if (output.name == name) return Axes(output.shape);
  return layer_->is_operation() ? "" : "BTHV";
}

void Builder::drop_unused_inputs() {
  std::vector<bool> used(p_.inputs.size(), false);
  for (const Step& step : p_.steps)
    for (int from : step.operands)
      if (from >= 0 && p_.values[static_cast<std::size_t>(from)].from == Value::From::input)
        used[static_cast<std::size_t>(p_.values[static_cast<std::size_t>(from)].input)] = true;
  std::vector<InputInfo> kept;
  std::vector<int> renumbered(p_.inputs.size(), -1);
  for (std::size_t i = 0; i < p_.inputs.size(); ++i)
    if (used[i]) renumbered[i] = static_cast<int>(kept.size()), kept.push_back(p_.inputs[i]);
  for (Value& value : p_.values)
    if (value.from == Value::From::input) value.input = renumbered[static_cast<std::size_t>(value.input)];
  p_.inputs = std::move(kept);
}

// Which steps backward has to run forwards first: those whose result a gradient reads, and the steps that these
// depend on. The gradient of a kernel reads its operands, never its results.
void Builder::find_replayed() {
  std::vector<bool> read(p_.values.size(), false);
  const auto mark = [&](int value) {
    if (value >= 0) read[static_cast<std::size_t>(value)] = true;
  };
  for (const Step& step : p_.steps) {
    for (std::size_t i = 0; i < step.operands.size(); ++i)
      if (step.kernel || prepare::backward_reads_operand(step.op, static_cast<int>(i))) mark(step.operands[i]);
    if (!step.kernel && prepare::backward_reads_result(step.op)) mark(step.result);
  }
  p_.replayed.assign(p_.steps.size(), false);
  for (std::size_t i = p_.steps.size(); i-- > 0;) {
    const Step& step = p_.steps[i];
    for (const int result : {step.result, step.second_result, step.third_result})
      if (result >= 0 && read[static_cast<std::size_t>(result)]) p_.replayed[i] = true;
    if (p_.replayed[i]) std::for_each(step.operands.begin(), step.operands.end(), mark);
  }
  for (std::size_t i = 0; i < p_.steps.size(); ++i) {
    const Step& step = p_.steps[i];
    for (const int result : {step.result, step.second_result, step.third_result})
      if (result >= 0) {
        Value& value = p_.values[static_cast<std::size_t>(result)];
        value.replayed = p_.replayed[i], value.on_demand = step.kernel && step.kernel->traits.answers_on_demand;
      }
    for (const int operand : step.operands)
      if (operand >= 0) p_.values[static_cast<std::size_t>(operand)].read = true;
  }
  for (std::size_t i = p_.output_values.size(); i-- > 0;)
    p_.values[static_cast<std::size_t>(p_.output_values[i])].output = static_cast<int>(i);
}

AxisPlaces places_of(const Axes& axes) {
  AxisPlaces places;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto at = static_cast<signed char>(i);
    switch (axes[i]) {
      case 'B':
        places.batch = at;
        break;
      case 'P':
        places.of_pairs = true;
        [[fallthrough]];
      case 'T':
        places.time = at;
        break;
      case 'G':
        places.grouped = true;
        [[fallthrough]];
      case 'H':
        places.head = at;
        break;
      default:
        places.outer = places.inner, places.inner = at;
    }
  }
  return places;
}

Pipeline lower(const Design& design, const zoo::Declaration* layer, const Shape& shape, const Options& options,
               double scale) {
  return Builder(design, layer, shape, options).build(scale);
}

}  // namespace ttr
