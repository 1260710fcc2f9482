// From a design to a pipeline: which family claims it, and which per-token operations stand before and after.
//
// A family claims a design only if it computes exactly that; what nobody claims goes to the oracle.
#include <algorithm>
#include <cmath>

#include "plan/pipeline.h"

namespace ttr {
namespace {

using prepare::Op;

std::string without_spaces(const std::string& letters) {
  std::string axes;
  for (char c : letters)
    if (c != ' ') axes += c;
  return axes;
}

class Builder {
 public:
  Builder(const Design& design, const zoo::Declaration* layer, const Shape& shape) : layer_(layer), shape_(shape) {
    p_.design = design;
    p_.canonical_info = canonical_inputs(design);
    p_.inputs = layer ? layer->info.inputs : p_.canonical_info;
    for (std::size_t i = 0; i < p_.inputs.size(); ++i) {
      if (const InputInfo* info = canonical_info(p_.inputs[i].name);
          layer && info && p_.inputs[i].shape != info->shape)
        p_.inputs[i].shape = info->shape;  // a setting changed it: ridge=token
      add_value({p_.inputs[i].name, without_spaces(p_.inputs[i].shape), Value::From::input, static_cast<int>(i), {}});
    }
    // A setting may ask for an input the layer's table does not have (sink=input on another kernel, ...).
    for (const InputInfo& info : p_.canonical_info)
      if (layer && !produced(info.name) && !find(info.name)) {
        p_.inputs.push_back(info);
        add_value(
            {info.name, without_spaces(info.shape), Value::From::input, static_cast<int>(p_.inputs.size()) - 1, {}});
      }
    p_.outputs = layer ? layer->info.outputs : std::vector<InputInfo>{zoo::output()};
  }

  Pipeline build(const Options& options, double scale) {
    type_ = options.type, causal_ = options.causal, kernel_scale_ = options.scale.value_or(0),
    settings_ = options.settings;
    prepare_inputs();
    const Claim claim = options.kernel == "oracle" ? Claim::nobody : claimed_by(p_.design, shape_, options.causal);
    int answer = claim == Claim::nobody ? oracle_step(scale) : family_step(claim, scale);
    finish(answer);
    drop_unused_inputs();
    return std::move(p_);
  }

 private:
  enum class Claim { nobody, decay, delta, gated, dplr, momentum, projection, channel, least_squares };

  static Claim claimed_by(const Design& d, const Shape& shape, bool causal);

  const InputInfo* canonical_info(const std::string& name) const {
    for (const InputInfo& info : p_.canonical_info)
      if (info.name == name) return &info;
    return nullptr;
  }
  // Whether the layer makes this canonical input itself.
  bool produced(const std::string& name) const {
    if (!layer_) return false;
    if (name == "g" && layer_->log_decay_of_head) return true;
    for (const auto& [canonical, input] : layer_->feeds)
      if (canonical == name) return true;
    return std::any_of(layer_->prepare.begin(), layer_->prepare.end(),
                       [&](const zoo::Stage& stage) { return stage.to == name; });
  }
  const Value* find(const std::string& name) const {
    for (const Value& value : p_.values)
      if (value.name == name) return &value;
    return nullptr;
  }
  int index_of(const std::string& name) const {
    for (std::size_t i = 0; i < p_.values.size(); ++i)
      if (p_.values[i].name == name) return static_cast<int>(i);
    throw Error("the layer's pipeline names '" + name + "', which is neither an input nor a result");
  }
  int add_value(Value value) {
    p_.values.push_back(std::move(value));
    return static_cast<int>(p_.values.size()) - 1;
  }
  int constant(double number) { return add_value({"", "", Value::From::constant, -1, {number}}); }
  int operation(Op op, std::vector<int> from, std::string axes, double eps = 0, std::string name = {}) {
    const int to = add_value({std::move(name), std::move(axes), Value::From::step, -1, {}});
    Step step;
    step.op = op, step.eps = eps, step.from = std::move(from), step.to = to;
    p_.steps.push_back(std::move(step));
    return to;
  }

  // Every canonical input gets a value: the caller's tensor of that name, of another name, or a result.
  void prepare_inputs() {
    for (const InputInfo& info : p_.canonical_info) p_.canonical.push_back(canonical_value(info));
  }
  int canonical_value(const InputInfo& info) {
    if (layer_) {
      if (info.name == "g" && layer_->log_decay_of_head)
        return add_value({"g", "H", Value::From::table, -1, layer_->log_decay_of_head(shape_.heads, settings_)});
      for (const auto& [canonical, name] : layer_->feeds)
        if (canonical == info.name) return operand(name);
      if (const int result = stage_result(info.name, without_spaces(info.shape)); result >= 0) return result;
    }
    return index_of(info.name);
  }
  // What a stage of the preparation names: an input of the layer, or the result of another stage.
  int operand(const std::string& name) {
    for (const InputInfo& input : layer_->info.inputs)
      if (input.name == name) return index_of(name);
    const int result = stage_result(name, "");
    return result >= 0 ? result : index_of(name);
  }
  // The result of the stage that makes `name`, run once; -1 if there is none. Without axes, those of the first
  // operand.
  int stage_result(const std::string& name, std::string axes) {
    if (const auto found = stage_results_.find(name); found != stage_results_.end()) return found->second;
    for (const zoo::Stage& stage : layer_->prepare)
      if (stage.to == name) {
        if (axes.empty())
          if (const InputInfo* info = canonical_info(name)) axes = without_spaces(info->shape);
        std::vector<int> from;
        for (const std::string& each : stage.from) from.push_back(operand(each));
        if (axes.empty()) axes = p_.values[static_cast<std::size_t>(from.front())].axes;
        return stage_results_[name] = operation(stage.op, from, axes, stage.eps, name);
      }
    return -1;
  }

  int canonical(const std::string& name) const {
    for (std::size_t i = 0; i < p_.canonical_info.size(); ++i)
      if (p_.canonical_info[i].name == name) return p_.canonical[i];
    return -1;
  }

  int kernel_step(Step step, std::string axes, std::vector<StatePart> states) {
    step.is_kernel = true;
    step.to = add_value({"", std::move(axes), Value::From::step, -1, {}});
    step.state = static_cast<int>(p_.states.size());
    for (StatePart& part : states) p_.states.push_back(std::move(part));
    p_.steps.push_back(step);
    return step.to;
  }

  static Step kernel(KernelKind kind, double scale, int q, int k, int v, int g = -1, int beta = -1) {
    Step step;
    step.kernel = kind, step.scale = scale;
    step.from.assign(Role::count, -1);
    step.from[Role::q] = q, step.from[Role::k] = k, step.from[Role::v] = v;
    step.from[Role::g] = g, step.from[Role::beta] = beta;
    return step;
  }

  int oracle_step(double scale) {
    oracle::Sizes& sizes = p_.oracle_sizes;
    sizes.heads = shape_.heads, sizes.key_heads = shape_.key_heads;
    sizes.key_dim = shape_.key_dim, sizes.value_dim = shape_.value_dim;
    sizes.causal = causal_;
    const bool in_kernel = p_.design.keeps_pairs();  // the scale of near(..) and kernel(..) sits inside the kernel
    sizes.scale = in_kernel ? 1 : scale;
    sizes.kernel_scale = in_kernel ? kernel_scale_ : 0;
    const oracle::Arrays fresh = oracle::fresh_state(p_.design, sizes);
    std::vector<StatePart> states;
    for (const oracle::StateShape& shape : oracle::state_shapes(p_.design)) {
      const std::vector<std::int64_t>& extent = fresh.at(shape.name).extent;
      StatePart part{{shape.name, "B " + shape.letters, shape.meaning}, {}, Type::f64, false};
      part.history = !extent.empty() && extent.front() == 0;
      p_.history |= part.history;
      part.extent.assign(extent.begin() + (part.history ? 1 : 0), extent.end());
      states.push_back(std::move(part));
    }
    Step step;
    step.kernel = KernelKind::oracle, step.scale = scale, step.from = p_.canonical;
    return kernel_step(std::move(step), "BTHV", std::move(states));
  }

  // The factor in front of a quantity that is absent (-1), a constant, or an input.
  int quantity(const Quantity& q, const std::string& input) {
    if (q.is_input()) return canonical(input);
    return q.is_constant() ? constant(q.value) : -1;
  }

  int normalised_keys(const std::string& name) {
    int value = canonical(name);
    const std::string axes = p_.values[static_cast<std::size_t>(value)].axes;
    const auto keys = p_.design.extras.keys;
    if (keys != Extras::Keys::raw)
      value = operation(keys == Extras::Keys::unit ? Op::unit_norm : Op::rms_norm, {value}, axes);
    switch (p_.design.memory.feature) {
      case Memory::Feature::elu1:
        return operation(Op::elu1, {value}, axes);
      case Memory::Feature::relu:
        return operation(Op::relu, {value}, axes);
      case Memory::Feature::silu:
        return operation(Op::silu, {value}, axes);
      default:
        return value;  // the identity; other maps are not claimed
    }
  }

  // Log decay of the weights: absent, a constant, an input per head or per token.
  int log_fade() {
    const Weights& w = p_.design.weights;
    if (w.fade == Weights::Fade::equal) return -1;
    if (w.decay.is_constant()) return w.decay.value == 1 ? -1 : constant(std::log(w.decay.value));
    return canonical("g");
  }
  int importance() {
    const Weights& w = p_.design.weights;
    return w.importance == Weights::Importance::beta ? quantity(w.beta, "beta") : -1;
  }

  // An elementwise state: h = e^g * h + v, no keys.
  int channel_step() {
    const Weights& w = p_.design.weights;
    Step step = kernel(KernelKind::channel, 1, -1, -1, canonical("v"));
    step.from[Role::gv] = w.per == Weights::Per::value ? canonical("gv") : log_fade();
    return kernel_step(std::move(step), "BTHV",
                       {{{"h", "B H V", "the memory"}, {shape_.heads, shape_.value_dim}, type_}});
  }

  // S = e^g S + Z, Z = momentum Z + step k (v - R'k)'.
  int momentum_step(int q, int k, int v, double scale, const StatePart& memory) {
    const Solver& s = p_.design.solver;
    Step step = kernel(KernelKind::momentum, scale, q, k, v, decay_before());
    step.from[Role::eta] = step_size(k);
    step.from[Role::g_mu] = constant(std::log(s.momentum.value));
    if (s.feedback) step.from[Role::a] = normalised_keys("p");
    step.undecayed = s.feedback;
    const StatePart update = {{"Z", "B H K V", "the last update"}, memory.extent, type_};
    return kernel_step(std::move(step), "BTHV", {memory, update});
  }

  // A step that fits the last p pairs at once; the pairs before the newest are part of the state.
  int projection_step(int q, int k, int v, double scale, const StatePart& memory) {
    const Solver& s = p_.design.solver;
    Step step = kernel(KernelKind::projection, scale, q, k, v, -1, quantity(s.step, "mu"));
    step.eps = s.eps;
    const std::ptrdiff_t before = s.batch - 1, G = shape_.key_heads, H = shape_.heads;
    return kernel_step(
        std::move(step), "BTHV",
        {memory,
         {{"k", "B W G K", "keys of the window before the newest"}, {before, G, shape_.key_dim}, type_},
         {{"v", "B W H V", "values of the window before the newest"}, {before, H, shape_.value_dim}, type_}});
  }

  int family_step(Claim claim, double scale) {
    if (claim == Claim::channel) return channel_step();
    const int q = normalised_keys("q"), k = normalised_keys("k"), v = canonical("v");
    const std::ptrdiff_t H = shape_.heads, K = shape_.key_dim, V = shape_.value_dim;
    if (claim == Claim::least_squares) {
      Step step = kernel(KernelKind::least_squares, scale, q, k, v, log_fade(), importance());
      step.from[Role::ridge] = quantity(p_.design.solver.ridge, "ridge");
      return kernel_step(std::move(step), "BTHV",
                         {{{"H", "B H K K", "sum of w k k'"}, {H, K, K}, Type::f64},
                          {{"F", "B H K V", "sum of w k v'"}, {H, K, V}, Type::f64}});
    }
    const StatePart memory = {{"S", "B H K V", "the memory"}, {H, K, V}, type_};
    if (claim == Claim::decay) return decay_step(q, k, v, scale, memory);
    if (claim == Claim::gated) return gated_step(q, k, v, scale, memory);
    if (claim == Claim::dplr) return dplr_step(q, k, v, scale, memory);
    if (claim == Claim::momentum) return momentum_step(q, k, v, scale, memory);
    if (claim == Claim::projection) return projection_step(q, k, v, scale, memory);
    const auto [g, beta, undecayed] = delta_gates(k);
    const int n = p_.design.solver.pairs;
    if (n > 1) return product_step(n, q, k, v, g, beta, scale, memory);
    Step step = kernel(KernelKind::delta, scale, q, k, v, g, beta);
    step.undecayed = undecayed;
    return kernel_step(std::move(step), "BTHV", {memory});
  }

  // n pairs per token are n tokens: the decay acts before the first of them, the query reads after the last.
  int product_step(int n, int q, int k, int v, int g, int beta, double scale, const StatePart& memory) {
    const int spread_q = operation(Op::spread_last, {q}, "BPGK", n);
    const int spread_g = g < 0 ? -1 : operation(Op::spread_first, {g}, "BPH", n);
    Step step = kernel(KernelKind::delta, scale, spread_q, k, v, spread_g, beta);
    step.pairs = n;
    return operation(Op::take_last, {kernel_step(std::move(step), "BPHV", {memory})}, "BTHV", n);
  }

  // A gate per channel, or an output that reads before it writes: S = diag(e^gk) S diag(e^gv) + beta k v'.
  int gated_step(int q, int k, int v, double scale, const StatePart& memory) {
    const Weights& w = p_.design.weights;
    Step step = kernel(KernelKind::gated, scale, q, k, v, -1, scaled_importance());
    const bool per_key = w.per == Weights::Per::key || w.per == Weights::Per::key_value;
    const bool per_value = w.per == Weights::Per::value || w.per == Weights::Per::key_value;
    step.from[Role::gk] = per_key ? canonical("gk") : per_value ? -1 : log_fade();
    step.from[Role::gv] = per_value ? canonical("gv") : -1;
    step.read_before = p_.design.extras.read_before;
    if (p_.design.extras.bonus) step.from[Role::bonus] = canonical("bonus");
    return kernel_step(std::move(step), "BTHV", {memory});
  }

  // Delta rules with a gate per key channel, or with other keys to read or erase with than to write with.
  int dplr_step(int q, int k, int v, double scale, const StatePart& memory) {
    const Solver& s = p_.design.solver;
    if (s.split) v = operation(Op::multiply, {v, canonical("write")}, "BTHV");
    Step step = kernel(KernelKind::dplr, scale, q, k, v, -1, s.dplr ? -1 : step_size(k));
    step.from[Role::gk] = s.decay_per == Weights::Per::key && s.decay.is_input() ? canonical("gk") : decay_before();
    if (s.split) step.from[Role::a] = operation(Op::multiply, {canonical("erase"), k}, "BTHK");
    if (s.feedback) {
      const int p = normalised_keys("p");  // shared by a group of heads; the kernel takes one per head
      const bool shared = shape_.key_heads != shape_.heads;
      step.from[Role::a] = shared ? operation(Op::multiply, {p, constant(1)}, "BTHK") : p;
    }
    if (s.dplr) step.from[Role::a] = canonical("a"), step.from[Role::b] = canonical("b");
    step.undecayed = s.feedback || s.dplr;
    return kernel_step(std::move(step), "BTHV", {memory});
  }

  // gd(1) with a constant or automatic step, or sgd on the dot loss: S = a S + beta k v'.
  int decay_step(int q, int k, int v, double scale, const StatePart& memory) {
    const Solver& s = p_.design.solver;
    if (s.kind == Solver::Kind::sgd) {
      const int beta = quantity(s.step, "beta");
      return kernel_step(kernel(KernelKind::decay, scale, q, k, v, decay_before(), beta), "BTHV", {memory});
    }
    const int beta = scaled_importance(), g = log_fade();
    const int answer = kernel_step(kernel(KernelKind::decay, scale, q, k, v, g, beta), "BTHV", {memory});
    if (p_.design.extras.normalise == Extras::Normalise::keysum) {
      // The sum of the keys is a memory of its own, whose values are all one.
      const StatePart sum = {{"z", "B H K 1", "sum of w k"}, {shape_.heads, shape_.key_dim, 1}, type_};
      int total = kernel_step(kernel(KernelKind::decay, scale, q, k, constant(1), g, beta), "BTH1", {sum});
      if (const double eps = p_.design.extras.normalise_eps; eps != 0)
        total = operation(Op::add, {total, constant(eps)}, "BTH1");
      return operation(Op::divide, {answer, total}, "BTHV");
    }
    if (s.rule != Solver::Rule::automatic) return answer;
    // The step 1/sum w |k|^2 is a decayed sum of its own: the same kernel with one-dimensional keys and values.
    const int energy = operation(Op::square_norm, {k}, "BTH1");
    const int one = constant(1);
    const int total = kernel_step(kernel(KernelKind::decay, 1, one, one, energy, g, beta), "BTH1",
                                  {{{"n", "B H 1 1", "sum of w |k|^2"}, {shape_.heads, 1, 1}, type_}});
    return operation(Op::divide, {answer, total}, "BTHV");
  }

  // The importance of a pair times the constant step of gd(1).
  int scaled_importance() {
    const Solver& s = p_.design.solver;
    const int beta = importance();
    if (s.rule != Solver::Rule::plain || !s.step.is_constant() || s.step.value == 1) return beta;
    const int step = constant(s.step.value);
    return beta < 0 ? step : operation(Op::multiply, {beta, step}, "BTH");
  }

  int decay_before() {
    const Solver& s = p_.design.solver;
    if (s.decay_kind != Solver::Decay::before) return -1;
    return s.decay.is_constant() ? constant(std::log1p(-s.decay.value)) : canonical("g");
  }

  struct DeltaGates {
    int g, beta;
    bool undecayed;
  };
  // The step size on the newest pair, as its rule says.
  int step_size(int k) {
    const Solver& s = p_.design.solver;
    const auto rule_step = [&](Op op, const char* input) {
      const int step = s.step.given() ? quantity(s.step, input) : constant(1);
      return operation(op, {step, k}, s.pairs > 1 ? "BPH" : "BTH", s.eps);
    };
    switch (s.rule) {
      case Solver::Rule::nlms:
        return rule_step(Op::nlms_step, "mu");
      case Solver::Rule::longhorn:
        return rule_step(Op::longhorn_step, "delta");
      case Solver::Rule::flow:
        return rule_step(Op::flow_step, "beta");
      default:
        return quantity(s.step, "beta");
    }
  }
  DeltaGates delta_gates(int k) {
    const Solver& s = p_.design.solver;
    const int beta = step_size(k);
    if (s.decay_kind == Solver::Decay::leak) {
      const int lam = quantity(s.decay, "lam");
      return {operation(Op::leak_gate, {beta < 0 ? constant(1) : beta, lam}, "BTH"), beta, true};
    }
    if (s.decay_kind == Solver::Decay::shrink)
      return {operation(Op::shrink_gate, {quantity(s.decay, "lam")}, "BTH"), beta, true};
    return {decay_before(), beta, false};
  }

  void finish(int answer) {
    const bool on_oracle = p_.steps.back().is_kernel && p_.steps.back().kernel == KernelKind::oracle;
    if (!on_oracle) {  // the oracle normalises by itself
      const Extras& extras = p_.design.extras;
      if (extras.normalise == Extras::Normalise::unit)
        answer = operation(Op::unit_norm, {answer}, "BTHV", extras.normalise_eps);
      if (extras.normalise == Extras::Normalise::rms)
        answer = operation(Op::rms_norm, {answer}, "BTHV", extras.normalise_eps);
    }
    p_.values[static_cast<std::size_t>(answer)].name = "o";
    if (layer_)
      for (const zoo::Stage& stage : layer_->finish) {
        std::vector<int> from;
        for (const std::string& name : stage.from) from.push_back(name == "o" ? answer : index_of_canonical(name));
        const int to = operation(stage.op, from, axes_of(stage.to), stage.eps, stage.to);
        if (stage.to == "o") answer = to;
      }
    for (const InputInfo& output : p_.outputs)
      p_.output_values.push_back(output.name == "o" ? answer : index_of(output.name));
  }
  // Letters of an output, or of a result on the way to one.
  std::string axes_of(const std::string& name) const {
    for (const InputInfo& output : p_.outputs)
      if (output.name == name) return without_spaces(output.shape);
    return "BTHV";
  }
  // An input of the layer, or else a canonical input (a result of the preparation).
  int index_of_canonical(const std::string& name) {
    const int value = find(name) ? -1 : canonical(name);
    return value >= 0 ? value : operand(name);
  }

  void drop_unused_inputs() {
    std::vector<bool> used(p_.inputs.size(), false);
    for (const Step& step : p_.steps)
      for (int from : step.from)
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

  Pipeline p_;
  const zoo::Declaration* layer_;
  const Shape& shape_;
  std::map<std::string, int> stage_results_;
  Type type_ = Type::f32;
  bool causal_ = true;
  std::map<std::string, std::string> settings_;
  double kernel_scale_ = 0;  // 0: the kernel's own
};

Builder::Claim Builder::claimed_by(const Design& d, const Shape& shape, bool causal) {
  const Weights& w = d.weights;
  const Solver& s = d.solver;
  const Extras& x = d.extras;
  const bool plain_weights = w.near == Kernel::none && w.window == 0 && !w.levels && !w.complex &&
                             (w.importance == Weights::Importance::one || w.importance == Weights::Importance::beta);
  const bool per_token = w.per == Weights::Per::token;
  const bool per_channel =
      w.per == Weights::Per::key || w.per == Weights::Per::value || w.per == Weights::Per::key_value;
  using Feature = Memory::Feature;
  const bool same_width = d.memory.feature == Feature::identity || d.memory.feature == Feature::elu1 ||
                          d.memory.feature == Feature::relu || d.memory.feature == Feature::silu;
  const bool plain_memory = d.memory.kind == Memory::Class::linear && same_width && !d.memory.reverse;
  const bool keysum = x.normalise == Extras::Normalise::keysum;
  const bool plain_read =
      !x.blend && (x.normalise == Extras::Normalise::none || keysum || x.normalise == Extras::Normalise::unit ||
                   x.normalise == Extras::Normalise::rms);
  const bool reads_after = !x.read_before && !x.bonus;
  const bool one_step = s.steps == 1 && !s.precondition && !s.muon && !s.row_norm && s.q_norm == 0;
  const bool plain_step = one_step && !s.momentum.given();
  const bool own_keys = !s.feedback && !s.split && !s.dplr;
  const bool vector = d.memory.kind == Memory::Class::vector && shape.heads == 1;
  if (!causal || !plain_weights || !(plain_memory || vector) || !plain_read) return Claim::nobody;
  const bool squared = x.loss == Extras::Loss::squared, dot = x.loss == Extras::Loss::dot;

  if (vector) {
    const bool gates = per_token || w.per == Weights::Per::value;
    const bool sum = s.kind == Solver::Kind::gd && plain_step && s.rule == Solver::Rule::plain && !s.step.given();
    return gates && sum && squared && reads_after && !keysum && w.importance == Weights::Importance::one
               ? Claim::channel
               : Claim::nobody;
  }
  if (s.kind == Solver::Kind::gd && plain_step && (squared || dot) && !s.step.is_input() &&
      s.decay_kind == Solver::Decay::none) {
    if (per_token && reads_after && (s.rule == Solver::Rule::plain || (s.rule == Solver::Rule::automatic && !keysum)))
      return Claim::decay;
    if (keysum) return Claim::nobody;
    const bool weighted = w.importance != Weights::Importance::one || s.step.given();
    if ((per_token || per_channel) && s.rule == Solver::Rule::plain && !(x.bonus && weighted)) return Claim::gated;
  }
  if (!reads_after || keysum) return Claim::nobody;
  if (s.kind == Solver::Kind::apa && squared && w.importance == Weights::Importance::one) return Claim::projection;
  if (s.kind == Solver::Kind::sgd && one_step && squared && s.momentum.is_constant() && s.momentum.value > 0 &&
      s.pairs == 1 && !s.nesterov && w.importance == Weights::Importance::one && s.decay_per == Weights::Per::token &&
      !s.split && !s.dplr && (s.decay_kind == Solver::Decay::none || s.decay_kind == Solver::Decay::before))
    return Claim::momentum;
  if (s.kind == Solver::Kind::sgd && plain_step && w.importance == Weights::Importance::one) {
    const bool scalar = s.decay_per == Weights::Per::token;
    const bool no_leak = s.decay_kind == Solver::Decay::none || s.decay_kind == Solver::Decay::before;
    if (squared && own_keys && scalar && (s.pairs == 1 || no_leak)) return Claim::delta;
    if (s.pairs > 1) return Claim::nobody;
    if (dot && own_keys && scalar && no_leak && s.rule == Solver::Rule::plain) return Claim::decay;
    const bool plain_erase = !s.dplr || (!s.step.given() && s.rule == Solver::Rule::plain);
    const bool one_way = int{s.feedback} + int{s.split} + int{s.dplr} <= 1;
    if (squared && no_leak && plain_erase && one_way && (scalar || s.decay_per == Weights::Per::key))
      return Claim::dplr;
  }
  const bool ridge = s.ridge.is_input() || (s.ridge.is_constant() && s.ridge.value > 0);
  if (s.kind == Solver::Kind::exact && squared && per_token && ridge && s.ridge_kind == Solver::RidgeKind::absolute &&
      (s.ridge_per == Solver::RidgePer::head || s.ridge_per == Solver::RidgePer::key))
    return Claim::least_squares;
  return Claim::nobody;
}

}  // namespace

Pipeline lower(const Design& design, const zoo::Declaration* layer, const Shape& shape, const Options& options,
               double scale) {
  return Builder(design, layer, shape).build(options, scale);
}

}  // namespace ttr
