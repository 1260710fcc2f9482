// Which designs mean something, and which arrays they read and carry.
#include <algorithm>
#include <string>
#include <vector>

#include "oracle/head.h"

namespace ttr::oracle {
namespace {

using Class = Memory::Class;
using Kind = Solver::Kind;
using Per = Weights::Per;

[[noreturn]] void refuse(const std::string& sentence) { throw Error(sentence); }

bool sees_all_pairs(const Design& d, Way way) {
  return way == Way::batch || way == Way::descend || way == Way::corrected ||
         (way == Way::functional && d.solver.kind == Kind::descend);
}

/// Gates that have an input of their own (a constant gate has none).
bool gate_is_input(const Weights& w) { return w.fade == Weights::Fade::gate && !w.decay.is_constant(); }

void check_memory(const Design& d) {
  const Memory& m = d.memory;
  if (m.kind == Class::kernel && m.kernel == Kernel::none)
    refuse("a kernel memory needs the name of its kernel, as in kernel(exp)");
  if (m.kind == Class::mlp && m.depth < 1)
    refuse("an mlp memory needs at least one layer, depth is " + std::to_string(m.depth));
  if (m.kind == Class::slots && m.slots < 1) refuse("a slots memory needs at least one slot, as in slots(64)");
  if (m.kind == Class::local && m.order < 0) refuse("local(p) needs p >= 0, p is " + std::to_string(m.order));
  if (m.reverse && (m.kind != Class::linear || m.feature != Memory::Feature::identity))
    refuse("reverse belongs to a plain linear memory");
  if (m.per_channel && m.kind != Class::constant) refuse("channel belongs to a constant memory");
  if (m.kind == Class::linear && m.degree < 1) refuse("a feature map needs degree >= 1");
}

void check_solver(const Design& d, Way way) {
  const Solver& s = d.solver;
  const bool linear = is_linear_class(d.memory);
  if (s.steps < 0) refuse("the number of steps is " + std::to_string(s.steps) + "; it must not be negative");
  if (s.pairs < 1 || s.batch < 1) refuse("pairs and batch sizes are at least one");
  const bool stepwise = way == Way::online || way == Way::descend;
  if ((s.feedback || s.split || s.dplr || s.precondition) &&
      (s.kind != Kind::sgd || d.memory.kind != Class::linear || way != Way::online))
    refuse("feedback, split, dplr and precondition belong to sgd on a linear memory");
  if (d.memory.reverse && (s.feedback || s.split || s.dplr || s.precondition))
    refuse("feedback, split, dplr and precondition have no meaning for linear(reverse)");
  if ((s.split || s.dplr) && feature_count(d.memory, 7) != 7)
    refuse("split and dplr have one entry per key channel; they need as many features");
  if ((s.muon || s.row_norm || s.q_norm != 0 || s.nesterov) && !stepwise)
    refuse("muon, row_norm, q_norm and nesterov belong to sgd, minibatch and descend on a memory with parameters");
  if (s.momentum.given() && !stepwise && s.kind != Kind::gd) refuse("momentum belongs to gradient steps");
  if (s.nesterov && !s.momentum.given()) refuse("nesterov looks ahead along the momentum; give a momentum");
  if (s.pairs > 1 && (way != Way::online || s.kind != Kind::sgd))
    refuse("pairs=n belongs to sgd on a memory with parameters");
  if (s.decay_kind != Solver::Decay::none && (way == Way::batch || way == Way::slots))
    refuse("a solver that starts anew for each token has no state to decay; put the gate into the weights");
  if ((s.decay_kind == Solver::Decay::leak || s.decay_kind == Solver::Decay::shrink) &&
      (way == Way::projection || way == Way::kalman || way == Way::corrected ||
       (way == Way::functional && s.kind == Kind::descend)))
    refuse("leak and shrink belong to sgd, minibatch and descend");
  if (s.decay_kind == Solver::Decay::before && way == Way::corrected)
    refuse("near / constant / sgd has no state to decay; put the gate into the weights");
  if (s.decay_kind == Solver::Decay::before && s.decay_per != Per::token && !s.decay.is_constant()) {
    if (!linear || s.decay_per == Per::slot) refuse("a decay per channel belongs to a linear memory");
    if (feature_count(d.memory, 7) != 7 && s.decay_per != Per::value)
      refuse("a decay per key channel needs as many features as key channels");
  }
  const bool solves = s.kind == Kind::exact || s.kind == Kind::cg || s.kind == Kind::chebyshev ||
                      s.kind == Kind::given || s.kind == Kind::apa || s.kind == Kind::kalman;
  if (solves && d.extras.loss != Extras::Loss::squared)
    refuse(
        "exact, cg, chebyshev, given, apa and kalman minimise the squared loss; use gradient steps for another loss");
  if (s.ridge.given() && s.ridge_kind == Solver::RidgeKind::fading && gate_is_input(d.weights) &&
      d.weights.per != Per::token && d.memory.kind != Class::constant)
    refuse("a fading ridge needs a gate per token");
}

void check_extras(const Design& d, Way way) {
  using N = Extras::Normalise;
  const Extras& e = d.extras;
  const bool needs_parameter =
      e.loss == Extras::Loss::huber || e.loss == Extras::Loss::huber_coordinate || e.loss == Extras::Loss::lp;
  if (needs_parameter && !e.loss_parameter.given())
    refuse("huber needs its threshold and lp its power, as in huber(c=1) and lp(3)");
  if (e.loss == Extras::Loss::lp && e.loss_parameter.is_input()) refuse("the power of lp is a number, not an input");
  const bool linear = is_linear_class(d.memory) && d.memory.kind != Class::local;
  if ((e.normalise == N::keysum || e.normalise == N::max_one) &&
      (way != Way::batch || !linear || d.memory.reverse || d.weights.sink))
    refuse(
        "normalise(keysum) and normalise(max) divide by the weighted sum of the keys: they need gd, exact, cg or "
        "chebyshev on a linear memory");
  if (e.bonus && !e.read_before) refuse("a bonus belongs to read(before)");
  if (e.bonus &&
      !(d.memory.per_channel || (d.memory.kind == Class::linear && !d.memory.reverse && way != Way::slots)))
    refuse("a bonus belongs to a linear memory or to constant(channel)");
  if (e.bonus && d.solver.pairs > 1) refuse("a bonus needs one pair per token");
  if (e.bonus && !d.memory.per_channel && feature_count(d.memory, 7) != 7)
    refuse("a bonus has one entry per key channel; it needs as many features");
  if (e.blend &&
      (way != Way::batch || d.solver.kind == Kind::gd || d.memory.kind != Class::linear || d.memory.reverse))
    refuse("blend mixes the query with the solution of exact, cg or chebyshev on a linear memory");
}

void check_weights(const Design& d, Way way) {
  const Weights& w = d.weights;
  if (w.window < 0) refuse("a window of " + std::to_string(w.window) + " pairs is not possible");
  if (w.levels && w.window > 0) refuse("levels need all pairs; leave the window out");
  if (w.transport && w.near == Kernel::none) refuse("transport belongs to near(exp)");
  if (w.sink && (w.near == Kernel::none || d.memory.reverse)) refuse("a sink belongs to near(..)");
  if (w.complex && !(gate_is_input(w) && (w.per == Per::key || w.per == Per::value)))
    refuse("complex belongs to gate(key) and gate(value)");
  if (!sees_all_pairs(d, way) || !gate_is_input(w) || w.per == Per::token) return;
  const bool in_kernel = w.per == Per::key && w.near != Kernel::none && !w.complex;
  const bool channel_mean = d.memory.per_channel && w.per == Per::value && !w.complex;
  if (in_kernel || channel_mean) return;
  if (w.per == Per::slot) refuse("gate(slot) belongs to a slots memory");
  if (!is_linear_class(d.memory) || d.memory.kind == Class::local)
    refuse("gates per channel belong to linear memories");
  if (d.memory.per_channel) refuse("constant(channel) takes gate or gate(value)");
  if (d.solver.kind != Kind::gd && d.solver.kind != Kind::descend)
    refuse("gates per channel are no weights of pairs: exact, cg and chebyshev need a gate per token; use gd(n)");
  if (w.per != Per::value && feature_count(d.memory, 7) != 7)
    refuse("a gate per key channel needs as many features as key channels");
}

}  // namespace

Way way_of(const Design& d) {
  check_memory(d);
  const bool linear = is_linear_class(d.memory), kernel = d.memory.kind == Class::kernel;
  Way way = Way::batch;
  if (d.memory.kind == Class::slots) {
    if (d.solver.kind != Kind::gd) refuse("a slots memory is written by gd(1) only");
    way = Way::slots;
  } else {
    switch (d.solver.kind) {
      case Kind::gd:
        break;
      case Kind::exact:
      case Kind::cg:
      case Kind::chebyshev:
        if (!linear && !kernel)
          refuse("exact, cg and chebyshev need a memory that is linear in its parameters or a kernel memory");
        if (d.memory.per_channel && d.solver.kind != Kind::exact) refuse("constant(channel) is solved by exact");
        break;
      case Kind::given:
        if (d.memory.kind != Class::local || d.memory.order != 1) refuse("given slopes belong to local(1)");
        break;
      case Kind::sgd:
        if (d.weights.near != Kernel::none && d.memory.kind == Class::constant) way = Way::corrected;
        else way = kernel ? Way::functional : Way::online;
        break;
      case Kind::descend:
        way = kernel ? Way::functional : Way::descend;
        break;
      case Kind::minibatch:
        if (kernel) refuse("minibatch needs a memory with parameters; a kernel memory takes sgd");
        way = Way::online;
        break;
      case Kind::apa:
      case Kind::kalman:
        if (!linear) refuse("apa and kalman need a memory that is linear in its parameters");
        if (d.memory.reverse) refuse("apa and kalman have no meaning for linear(reverse)");
        way = d.solver.kind == Kind::apa ? Way::projection : Way::kalman;
        break;
    }
    if (d.memory.kind == Class::local && way != Way::batch)
      refuse("local(p) is centred at each query, so nothing can be carried from token to token; use gd, exact or cg");
    if (d.memory.per_channel && way != Way::corrected && d.solver.kind != Kind::exact)
      refuse("constant(channel) is solved by exact");
    if (d.memory.per_channel && way == Way::corrected) refuse("constant(channel) is solved by exact");
  }
  check_weights(d, way);
  check_solver(d, way);
  check_extras(d, way);
  return way;
}

std::string step_name(const Design& d, bool rate_given) {
  if (d.solver.kind == Kind::minibatch) return "rate";
  if (d.solver.kind == Kind::apa || d.solver.rule == Solver::Rule::nlms) return "mu";
  if (d.solver.rule == Solver::Rule::longhorn) return "delta";
  return rate_given ? "rate" : "beta";
}

std::vector<InputSpec> input_specs(const Design& d) {
  const Way way = way_of(d);
  const Weights& w = d.weights;
  const Solver& s = d.solver;
  std::vector<InputSpec> list;
  auto add = [&](const std::string& name, const std::string& letters, bool optional = false) {
    for (const InputSpec& spec : list)
      if (spec.name == name) return;
    list.push_back({name, letters, optional});
  };
  const bool pairs = d.keeps_pairs(),
             no_key = (d.memory.kind == Class::vector || d.memory.kind == Class::constant) && w.near == Kernel::none;
  add("q", pairs ? "T H K" : "T G K", no_key);
  add("k", "P G K", no_key);
  add("v", pairs ? "P G V" : "P H V");
  if (sees_all_pairs(d, way) || way == Way::slots) {
    if (w.fade == Weights::Fade::decay && !w.decay.is_constant()) add("g", "H");
    if (gate_is_input(w)) {
      if (w.per == Per::token) add("g", "P H");
      if (w.per == Per::key || w.per == Per::key_value) add("gk", "P H K");
      if (w.per == Per::value || w.per == Per::key_value) add("gv", "P H V");
      if (w.per == Per::full) add("gkv", "P H K V");
      if (w.per == Per::slot) add("gs", "P H M");
      if (w.complex) add("theta", w.per == Per::key ? "P H K" : "P H V");
    }
    if (w.levels) add("levels", "T H L");
  }
  if (way == Way::slots) add("s", "P H M");
  if (way != Way::slots && way != Way::projection) {
    if (w.importance == Weights::Importance::beta && !w.beta.is_constant()) add("beta", "P H");
    if (w.importance == Weights::Importance::exponential) add("i", d.memory.per_channel ? "P H V" : "P H");
    if (w.importance == Weights::Importance::trapezoid) add("trap", "P H"), add("dt", "P H");
  }
  if ((w.near == Kernel::gaussian && w.bandwidth.is_input()) ||
      (d.memory.kernel == Kernel::gaussian && d.memory.bandwidth.is_input()))
    add("bandwidth", "H");
  if (w.sink) add("sink", "H");
  if (w.transport) add("w_t", "P G K"), add("beta_t", "P G");
  const bool takes_step = s.kind == Kind::gd || s.kind == Kind::descend || s.kind == Kind::sgd ||
                          s.kind == Kind::minibatch || s.kind == Kind::apa;
  if (takes_step && way != Way::slots && s.step.is_input() && s.rule != Solver::Rule::automatic) {
    const std::string name = step_name(d, false);
    const std::string letters = way == Way::online ? "P H" : "T H";
    const bool shared =
        name == "beta" && std::any_of(list.begin(), list.end(), [](const InputSpec& x) { return x.name == "beta"; });
    if (shared) add("rate", letters, true);  // importance and step are both called beta: `rate` separates them
    add(name, letters);
  }
  if (s.decay_kind == Solver::Decay::before && !s.decay.is_constant()) {
    if (s.decay_per == Per::token) add("g", "T H");
    if (s.decay_per == Per::key || s.decay_per == Per::key_value) add("gk", "T H K");
    if (s.decay_per == Per::value || s.decay_per == Per::key_value) add("gv", "T H V");
    if (s.decay_per == Per::full) add("gkv", "T H K V");
  }
  if ((s.decay_kind == Solver::Decay::leak || s.decay_kind == Solver::Decay::shrink) && !s.decay.is_constant())
    add("lam", "T H");
  if (s.momentum.is_input()) add("momentum", "T H");
  if (s.gain.is_input()) add("gain", "T H");
  if (s.precondition) add("g_atk", "T H"), add("beta_atk", "T H"), add("log_atk_scale", "H");
  if (s.feedback) add("p", "P G K");
  if (s.split) add("erase", "P H K"), add("write", "P H V");
  if (s.dplr) add("a", "P H K"), add("b", "P H K");
  if (s.ridge.is_input() && (s.kind == Kind::exact || s.kind == Kind::cg || s.kind == Kind::chebyshev))
    add("ridge", s.ridge_per == Solver::RidgePer::head ? "H" : s.ridge_per == Solver::RidgePer::key ? "H K" : "T H");
  if (s.kind == Kind::given) add("r", "T H K");
  if (d.extras.bonus) add("bonus", d.memory.per_channel ? "H V" : "H K");
  if (s.kind == Kind::kalman && s.process.is_input()) add("process", "T H");
  if (s.kind == Kind::kalman && s.noise.is_input()) add("noise", "T H");
  if (d.extras.blend) add("blend", "T H");
  if (d.extras.loss_parameter.is_input()) add("c", "P H");
  return list;
}

std::int64_t pairs_to_keep(const Design& d) {
  if (d.solver.kind == Kind::apa) return d.solver.batch - 1;
  if (way_of(d) == Way::functional) return -1;
  if (d.weights.window == 0) return -1;
  // The newest pair is the token's own, unless the token reads before it writes.
  return d.weights.window - 1 + (d.extras.read_before && d.solver.kind != Kind::sgd ? 1 : 0);
}

std::vector<StateShape> state_shapes(const Design& d) {
  const Way way = way_of(d);
  std::vector<StateShape> list;
  auto kept = [&](const InputSpec& spec) {
    if (!spec.per_pair() || spec.optional) return false;
    if (way == Way::batch || way == Way::descend || (way == Way::functional && d.solver.kind == Kind::descend))
      return true;
    if (way == Way::projection) return spec.name == "k" || spec.name == "v";
    if (way == Way::corrected) return spec.name != "v";
    return way == Way::functional && spec.name == "k";
  };
  for (const InputSpec& spec : input_specs(d))
    if (kept(spec))
      list.push_back(
          {spec.name, "N" + spec.letters.substr(1), "input " + spec.name + " of the pairs kept, oldest first"});
  if (way == Way::corrected) list.push_back({"u", "N H V", "corrected values of the pairs kept"});
  if (way == Way::functional) list.push_back({"alpha", "N H V", "coefficients of the kernels at the keys kept"});
  if (way == Way::slots) {
    list.push_back({"Km", "H K M", "keys of the slots"});
    list.push_back({"Vm", "H M V", "values of the slots"});
  }
  const bool answer = way == Way::online || way == Way::descend || way == Way::projection || way == Way::kalman;
  const bool network = way == Way::batch && !is_linear_class(d.memory) && d.memory.kind != Class::kernel;
  if (answer || network) {
    const std::vector<ParameterInfo> parameters = parameters_of(d.memory, 2, 2);
    const bool stepwise = way == Way::online || way == Way::descend;
    for (const ParameterInfo& p : parameters)
      list.push_back({p.name, p.letters, network ? "initial weights" : "the memory"});
    if (stepwise && d.solver.momentum.given())
      for (const ParameterInfo& p : parameters)
        list.push_back({p.name == "S" ? "Z" : "Z_" + p.name, p.letters, "the last update of " + p.name});
    if (d.solver.kind == Kind::minibatch) {
      for (const ParameterInfo& p : parameters)
        list.push_back({"start_" + p.name, p.letters, p.name + " at the start of the block"});
      list.push_back({"position", "H", "tokens seen of the current block"});
    }
    if (stepwise && d.solver.row_norm)
      for (const ParameterInfo& p : parameters)
        if (!p.bias)
          list.push_back({"norm_" + p.name, std::string("H ") + p.letters.back(),
                          "initial lengths of the columns of " + p.name});
    if (d.solver.precondition) list.push_back({"A", parameters[0].letters.substr(0, 3), "gated sum of squared keys"});
    if (way == Way::kalman) {
      const std::string f = parameters[0].letters.size() > 3 ? parameters[0].letters.substr(2, 1) : "1";
      list.push_back({"P", "H " + f + " " + f, "covariance of the memory, shared by the value channels"});
    }
  }
  if (way == Way::batch && d.solver.ridge.given() && d.solver.ridge_kind == Solver::RidgeKind::fading)
    list.push_back({"log_fade", "H", "log of the fading of pairs no longer kept"});
  return list;
}

bool keeps_history(const Design& d) {
  for (const StateShape& shape : state_shapes(d))
    if (shape.letters[0] == 'N') return true;
  return false;
}

bool is_of_pairs(const Design& d, const std::string& input) {
  for (const InputSpec& spec : input_specs(d))
    if (spec.name == input) return spec.per_pair();
  return false;
}

std::int64_t extent_of(char letter, const Design& d, const Sizes& s, std::int64_t pairs, std::int64_t kept) {
  switch (letter) {
    case 'T':
      return s.time;
    case 'P':
      return pairs;
    case 'N':
      return kept;
    case 'H':
      return s.heads;
    case 'G':
      return s.key_heads;
    case 'K':
      return s.key_dim;
    case 'V':
      return s.value_dim;
    case 'F':
      return feature_count(d.memory, s.key_dim);
    case 'D':
      return d.memory.width > 0 ? d.memory.width : 4 * s.key_dim;
    case 'M':
      return d.memory.slots;
    case '1':
      return 1;
    default:
      return -1;  // L: any
  }
}

namespace {

std::string describe(const std::vector<std::int64_t>& extent) {
  std::string text = "[";
  for (std::size_t i = 0; i < extent.size(); ++i)
    text += (i ? ", " : "") + (extent[i] < 0 ? std::string("any") : std::to_string(extent[i]));
  return text + "]";
}

void check_array(const std::string& what, const Array& array, const std::string& letters, const Design& d,
                 const Sizes& s, std::int64_t pairs, std::int64_t kept) {
  std::vector<std::int64_t> want;
  for (char c : letters)
    if (c != ' ') want.push_back(extent_of(c, d, s, pairs, kept));
  bool fits = want.size() == array.extent.size();
  std::int64_t count = 1;
  for (std::size_t i = 0; fits && i < want.size(); ++i) {
    fits = want[i] < 0 || want[i] == array.extent[i];
    count *= array.extent[i];
  }
  if (!fits)
    throw Error(what + " has the shape " + describe(array.extent) + " but should be " + letters + " = " +
                describe(want));
  if (static_cast<std::int64_t>(array.data.size()) != count)
    throw Error(what + " has " + std::to_string(array.data.size()) + " numbers but its shape " +
                describe(array.extent) + " holds " + std::to_string(count));
}

}  // namespace

std::int64_t check_call(const Design& d, const Sizes& s, const Arrays& inputs, const Arrays& state) {
  const Way way = way_of(d);
  if (s.heads < 1 || s.key_heads < 1 || s.heads % s.key_heads != 0)
    throw Error("heads is " + std::to_string(s.heads) + " and key_heads " + std::to_string(s.key_heads) +
                "; key_heads must divide heads");
  if (s.key_dim < 1 || s.value_dim < 1 || s.time < 0)
    throw Error("key_dim is " + std::to_string(s.key_dim) + ", value_dim " + std::to_string(s.value_dim) + ", time " +
                std::to_string(s.time) + "; dimensions are at least one and time is not negative");
  const bool adds_input =
      d.memory.residual && (d.memory.kind == Class::mlp || d.memory.kind == Class::layernorm_linear);
  if (adds_input && s.key_dim != s.value_dim)
    throw Error("a memory that adds its input to its answer needs key_dim = value_dim; they are " +
                std::to_string(s.key_dim) + " and " + std::to_string(s.value_dim));
  if (!s.causal && (way != Way::batch || d.extras.read_before || d.weights.levels))
    throw Error(
        "without causality every query sees all pairs: this needs gd, exact, cg, chebyshev or given, without "
        "read(before) and levels");
  std::int64_t pairs = s.time * (d.solver.kind == Kind::sgd ? d.solver.pairs : 1);
  if (!s.causal) {
    const auto v = inputs.find("v");
    if (v != inputs.end() && !v->second.extent.empty()) pairs = v->second.extent[0];
  }
  for (const InputSpec& spec : input_specs(d)) {
    const auto found = inputs.find(spec.name);
    if (found == inputs.end()) {
      if (spec.optional) continue;
      std::vector<std::int64_t> want;
      for (char c : spec.letters)
        if (c != ' ') want.push_back(extent_of(c, d, s, pairs, 0));
      throw Error("input " + spec.name + " is missing; its shape is " + spec.letters + " = " + describe(want));
    }
    check_array("input " + spec.name, found->second, spec.letters, d, s, pairs, 0);
  }
  std::int64_t kept = -1;
  for (const StateShape& shape : state_shapes(d)) {
    const auto found = state.find(shape.name);
    if (found == state.end())
      throw Error("the state lacks " + shape.name + " (" + shape.meaning + "); start from fresh_state");
    if (shape.letters[0] == 'N') {
      if (found->second.extent.empty()) throw Error("state " + shape.name + " has no shape");
      if (kept < 0) kept = found->second.extent[0];
    }
    check_array("state " + shape.name, found->second, shape.letters, d, s, pairs, kept);
  }
  return pairs;
}

}  // namespace ttr::oracle
