// The inputs a design asks for, in the order of the table in recipe/design.h.
#include "recipe/combine.h"
#include "recipe/design.h"

namespace ttr {
namespace {

using Class = Memory::Class;
using Kind = Solver::Kind;
using Per = Weights::Per;
using Importance = Weights::Importance;

class List {
 public:
  void add(const char* name, const char* shape, const char* meaning, Range range) {
    for (const InputInfo& have : inputs_)
      if (have.name == name) return;
    inputs_.push_back({.name = name, .shape = shape, .meaning = meaning, .range = range});
  }
  void optional() { inputs_.back().optional = true; }
  std::vector<InputInfo> take() { return std::move(inputs_); }

 private:
  std::vector<InputInfo> inputs_;
};

void add_pairs(const Design& d, List& list) {
  const bool keyless =
      d.memory.kind == Class::vector || (d.memory.kind == Class::constant && d.weights.near == Kernel::none);
  // Steps on raw keys are stable for |k| = 1; other memories take keys of any length.
  const bool delta = d.solver.kind == Kind::sgd || d.solver.kind == Kind::minibatch || d.solver.kind == Kind::descend;
  const Range keys = delta && d.extras.keys == Extras::Keys::raw ? Range::unit : Range::normal;
  const bool shared = d.keeps_pairs();
  const char* pair_time = d.solver.pairs > 1 ? "key; P = T pairs" : "key";
  list.add("q", shared ? "B T H K" : "B T G K", keyless ? "query (not read by this memory)" : "query", keys);
  if (keyless) list.optional();
  list.add("k", "B T G K", keyless ? "key (not read by this memory)" : pair_time, keys);
  if (keyless) list.optional();
  list.add("v", shared ? "B T G V" : "B T H V", d.solver.pairs > 1 ? "value; P = T pairs" : "value", Range::normal);
}

void add_gates(const Weights& w, List& list) {
  if (w.per == Per::slot) {
    if (w.fade == Weights::Fade::gate) list.add("gs", "B T H M", "log of the factor on each slot", Range::log_gate);
    list.add("s", "B T H M", "write strength of each slot", Range::sigmoid);
    return;
  }
  if (!w.decay.is_input() || w.fade == Weights::Fade::equal) return;
  if (w.fade == Weights::Fade::decay) {
    list.add("g", "H", "log of the factor per token", Range::log_gate);
    return;
  }
  if (w.per == Per::token) list.add("g", "B T H", "log of the factor on older pairs", Range::log_gate);
  if (w.per == Per::key || w.per == Per::key_value)
    list.add("gk", "B T H K", "log of the factor on each key channel", Range::log_gate);
  if (w.per == Per::value || w.per == Per::key_value)
    list.add("gv", "B T H V", "log of the factor on each value channel", Range::log_gate);
  if (w.per == Per::full)
    list.add("gkv", "B T H K V", "log of the factor on each entry of the state", Range::log_gate);
  if (w.complex)
    list.add("theta", w.per == Per::key ? "B T H K" : "B T H V", "phase of the factor, in radians", Range::normal);
}

void add_state_decay(const Solver& s, List& list) {
  if (!s.decay.is_input()) return;
  if (s.decay_kind != Solver::Decay::before) return;
  if (s.decay_per == Per::token) list.add("g", "B T H", "log of the factor on the state", Range::log_gate);
  if (s.decay_per == Per::key)
    list.add("gk", "B T H K", "log of the factor on each row of the state", Range::log_gate);
  if (s.decay_per == Per::value)
    list.add("gv", "B T H V", "log of the factor on each column of the state", Range::log_gate);
}

void add_steps(const Design& d, List& list) {
  const Solver& s = d.solver;
  if (d.weights.importance == Importance::beta && d.weights.beta.is_input())
    list.add("beta", "B T H", "importance of the pair", Range::sigmoid);
  const bool beta_step = s.step.is_input() && s.kind != Kind::apa && s.kind != Kind::minibatch &&
                         (s.rule == Solver::Rule::plain || s.rule == Solver::Rule::flow);
  if (beta_step) list.add("beta", "B T H", s.pairs > 1 ? "step; P = T pairs" : "step", Range::sigmoid);
  if (d.weights.importance == Importance::exponential)
    list.add("i", d.memory.per_channel ? "B T H V" : "B T H", "log of the importance of the pair", Range::normal);
  if (d.weights.importance == Importance::trapezoid) {
    list.add("trap", "B T H", "share of the write at its own token, before the sigmoid", Range::normal);
    list.add("dt", "B T H", "size of the write", Range::positive);
  }
  if (s.step.is_input() && (s.kind == Kind::apa || s.rule == Solver::Rule::nlms))
    list.add("mu", "B T H", "step relative to the length of the key", Range::sigmoid);
  if (s.step.is_input() && s.rule == Solver::Rule::longhorn)
    list.add("delta", "B T H", "implicit step", Range::sigmoid);
  if (s.decay.is_input() && (s.decay_kind == Solver::Decay::leak || s.decay_kind == Solver::Decay::shrink))
    list.add("lam", "B T H", "weight decay", Range::sigmoid);
  if (s.momentum.is_input()) list.add("momentum", "B T H", "factor on the previous update", Range::sigmoid);
  if (s.gain.is_input()) list.add("gain", "B T H", "how much of the update is added to the memory", Range::sigmoid);
  if (s.feedback) list.add("p", "B T G K", "key the residual is read with", Range::unit);
  if (s.split) {
    list.add("erase", "B T H K", "erase gate on the key", Range::sigmoid);
    list.add("write", "B T H V", "write gate on the value", Range::sigmoid);
  }
  if (s.precondition) {
    list.add("g_atk", "B T H", "log of the factor on the sum of squared keys", Range::log_gate);
    list.add("beta_atk", "B T H", "share of the squared key in that sum", Range::sigmoid);
    list.add("log_atk_scale", "H", "log of the sum at which the key is unchanged", Range::normal);
  }
  if (s.dplr) {
    list.add("a", "B T H K", "read key", Range::unit);
    list.add("b", "B T H K", "erase key", Range::unit);
  }
}

}  // namespace

std::vector<InputInfo> canonical_inputs(const Design& d) {
  List list;
  const Weights& w = d.weights;
  const Solver& s = d.solver;
  add_pairs(d, list);
  // A fade that the solver never sees is not asked for.
  if (!sees_newest_only(d)) add_gates(w, list);
  add_state_decay(s, list);
  add_steps(d, list);
  if (s.ridge.is_input()) {
    const char* shape = s.ridge_per == Solver::RidgePer::key     ? "H K"
                        : s.ridge_per == Solver::RidgePer::token ? "B T H"
                                                                 : "H";
    list.add("ridge", shape, "ridge", Range::positive);
  }
  if (w.bandwidth.is_input()) list.add("bandwidth", "H", "bandwidth of the weights", Range::positive);
  if (w.sink) list.add("sink", "H", "log of the weight of the sink", Range::normal);
  if (w.levels) list.add("levels", "B T H L", "scale of each level", Range::sigmoid);
  if (w.transport) {
    list.add("w_t", "B T G K", "Householder vector", Range::unit);
    list.add("beta_t", "B T G", "step of the Householder map", Range::sigmoid);
  }
  if (s.kind == Kind::given) list.add("r", "B T H K", "slope, as an input", Range::small);
  if (d.extras.bonus)
    list.add("bonus", d.memory.per_channel ? "H V" : "H K", "weight of the newest token", Range::normal);
  if (s.process.is_input()) list.add("process", "B T H", "variance of the drift per token", Range::sigmoid);
  if (s.noise.is_input()) list.add("noise", "B T H", "variance of a value", Range::positive);
  if (d.extras.blend) list.add("blend", "B T H", "share of the solve in the read", Range::sigmoid);
  if (d.extras.loss_parameter.is_input()) list.add("c", "B T H", "threshold of the Huber loss", Range::positive);
  if (s.kind == Kind::minibatch && s.step.is_input()) list.add("rate", "B T H", "step of the token", Range::sigmoid);
  std::vector<InputInfo> inputs = list.take();
  if (s.pairs > 1)  // P = T times pairs: what belongs to a pair, not to a token
    for (InputInfo& info : inputs)
      for (const char* name : {"k", "v", "beta", "mu", "delta", "p", "erase", "write", "a", "b", "c"})
        if (info.name == name) info.shape.replace(info.shape.find('T'), 1, "P");
  return inputs;
}

}  // namespace ttr
