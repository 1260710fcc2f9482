// The table of canonical inputs, one row per name and shape:
//
//   name, axes of one sequence, what asks for it (in words, and as a condition on the design), meaning, random data
//
// Traps: rows of one name stand in order, and the first that is asked for counts (a gate before the decay of a solver, an
// importance called beta before a step). T is the time of tokens and P that of pairs, which differ where a token brings
// several pairs and without causality: an input of pairs that said T would be cut short there.
#include "recipe/schema.h"

#include <algorithm>

#include "recipe/combine.h"

namespace ttr {
namespace {

using Class = Memory::Class;
using Kind = Solver::Kind;
using Per = Weights::Per;
using Rule = Solver::Rule;
using D = const Design&;

bool has_fade(D d, Weights::Fade fade) {  // one the solver sees, and that is an input
  return d.weights.fade == fade && d.weights.decay.is_input() && !sees_newest_only(d);
}
bool gate(D d, Per per) { return has_fade(d, Weights::Fade::gate) && d.weights.per == per; }
bool gates_keys(D d) { return gate(d, Per::key) || gate(d, Per::key_value); }
bool gates_values(D d) { return gate(d, Per::value) || gate(d, Per::key_value); }
bool is_signed(D d) { return d.weights.signed_factors; }
bool turns(D d, Per per) { return d.weights.complex && gate(d, per); }
bool decays(D d, Per per) {
  return d.solver.decay_kind == Solver::Decay::before && d.solver.decay.is_input() && d.solver.decay_per == per;
}
bool is_slots(D d) { return d.memory.kind == Class::slots; }
bool is_keyless(D d) {
  return d.memory.kind == Class::vector || (d.memory.kind == Class::constant && d.weights.near == Kernel::none);
}
/// Whether the solver takes a step per pair; all others take one per token.
bool steps_on_pairs(D d) {
  return (d.solver.kind == Kind::sgd && !d.keeps_pairs()) || d.solver.kind == Kind::minibatch;
}
bool steps_by(D d, Rule rule) { return d.solver.step.is_input() && d.solver.rule == rule; }
bool beta_is_step(D d) {
  return d.solver.kind != Kind::apa && d.solver.kind != Kind::minibatch &&
         (steps_by(d, Rule::plain) || steps_by(d, Rule::flow));
}
bool mu_is_step(D d) { return steps_by(d, Rule::nlms) || (d.solver.kind == Kind::apa && d.solver.step.is_input()); }
bool ridge(D d, Solver::RidgePer per) { return d.solver.ridge.is_input() && d.solver.ridge_per == per; }

constexpr InputRow table[] = {
    {"q", "T H K", "`near(..)`, `kernel(..)`", "query", Range::normal, [](D d) { return d.keeps_pairs(); }},
    {"q", "T G K", "all others", "query", Range::normal, [](D) { return true; }},
    {"k", "P G K", "all", "key", Range::normal, [](D) { return true; }},
    {"v", "P G V", "`near(..)`, `kernel(..)`", "value", Range::normal, [](D d) { return d.keeps_pairs(); }},
    {"v", "P H V", "all others", "value", Range::normal, [](D) { return true; }},
    // How pairs fade, where the solver sees older ones.
    {"a", "P H", "`gate(signed)`", "factor on older pairs, of either sign", Range::factor,
     [](D d) { return is_signed(d) && gate(d, Per::token); }},
    {"ak", "P H K", "`gate(key, signed)`", "factor on each key channel, of either sign", Range::factor,
     [](D d) { return is_signed(d) && gates_keys(d); }},
    {"av", "P H V", "`gate(value, signed)`", "factor on each value channel, of either sign", Range::factor,
     [](D d) { return is_signed(d) && gates_values(d); }},
    {"akv", "P H K V", "`gate(full, signed)`", "factor on each entry of the state, of either sign", Range::factor,
     [](D d) { return is_signed(d) && gate(d, Per::full); }},
    {"gs", "P H M", "`gate` with `slots(m)`", "log of the factor on each slot", Range::log_gate,
     [](D d) { return is_slots(d) && has_fade(d, Weights::Fade::gate); }},
    {"s", "P H M", "`slots(m)`", "write strength of each slot", Range::sigmoid, is_slots},
    {"g", "H", "`decay`, `decay(g)`", "log of the factor per token", Range::log_gate,
     [](D d) { return has_fade(d, Weights::Fade::decay); }},
    {"g", "P H", "`gate`", "log of the factor on older pairs", Range::log_gate,
     [](D d) { return gate(d, Per::token) && !is_signed(d); }},
    {"gk", "P H K", "`gate(key)`", "log of the factor on each key channel", Range::log_gate,
     [](D d) { return gates_keys(d) && !is_signed(d); }},
    {"gv", "P H V", "`gate(value)`", "log of the factor on each value channel", Range::log_gate,
     [](D d) { return gates_values(d) && !is_signed(d); }},
    {"gkv", "P H K V", "`gate(full)`", "log of the factor on each entry of the state", Range::log_gate,
     [](D d) { return gate(d, Per::full) && !is_signed(d); }},
    {"theta", "P H", "`gate(complex)`", "phase of the factor, in radians", Range::normal,
     [](D d) { return turns(d, Per::token); }},
    {"theta", "P H K", "`gate(key, complex)`", "phase of the factor, in radians", Range::normal,
     [](D d) { return turns(d, Per::key); }},
    {"theta", "P H V", "`gate(value, complex)`", "phase of the factor, in radians", Range::normal,
     [](D d) { return turns(d, Per::value); }},
    {"theta", "P H K V", "`gate(full, complex)`", "phase of the factor, in radians", Range::normal,
     [](D d) { return turns(d, Per::full); }},
    // How the state fades before a step.
    {"g", "T H", "`decay` of a solver", "log of the factor on the state", Range::log_gate,
     [](D d) { return decays(d, Per::token); }},
    {"gk", "T H K", "`decay(key)` of a solver", "log of the factor on each row of the state", Range::log_gate,
     [](D d) { return decays(d, Per::key); }},
    {"gv", "T H V", "`decay(value)` of a solver", "log of the factor on each column of the state", Range::log_gate,
     [](D d) { return decays(d, Per::value); }},
    // Importance and steps.
    {"beta", "P H", "`beta` in the weights", "importance of the pair", Range::sigmoid,
     [](D d) { return d.weights.importance == Weights::Importance::beta && d.weights.beta.is_input(); }},
    {"beta", "P H", "`sgd(beta)`, `sgd(flow)`", "step", Range::sigmoid,
     [](D d) { return beta_is_step(d) && steps_on_pairs(d); }},
    {"beta", "T H I", "`step=each` of `gd` and `descend`", "step of each iteration", Range::sigmoid,
     [](D d) { return d.solver.step_each; }},
    {"beta", "T H", "`step` of `gd` and `descend`; `sgd(beta)` with `near` or `kernel`", "step", Range::sigmoid,
     beta_is_step},
    {"i", "P H V", "`exponential` with `constant(channel)`", "log of the importance of the pair", Range::normal,
     [](D d) { return d.weights.importance == Weights::Importance::exponential && d.memory.per_channel; }},
    {"i", "P H", "`exponential`", "log of the importance of the pair", Range::normal,
     [](D d) { return d.weights.importance == Weights::Importance::exponential; }},
    {"trap", "P H", "`gate(trapezoid)`", "share of the write at its own token, before the sigmoid", Range::normal,
     [](D d) { return d.weights.importance == Weights::Importance::trapezoid; }},
    {"dt", "P H", "`gate(trapezoid)`", "size of the write", Range::positive,
     [](D d) { return d.weights.importance == Weights::Importance::trapezoid; }},
    {"mu", "P H", "`sgd(nlms)`", "step relative to the length of the key", Range::sigmoid,
     [](D d) { return mu_is_step(d) && steps_on_pairs(d); }},
    {"mu", "T H", "`apa(p, mu)`; `sgd(nlms)` with `kernel`", "step relative to the length of the key", Range::sigmoid,
     mu_is_step},
    {"delta", "P H", "`sgd(longhorn)`", "implicit step", Range::sigmoid,
     [](D d) { return steps_by(d, Rule::longhorn); }},
    {"lam", "T H", "`leak`, `shrink`", "weight decay", Range::sigmoid,
     [](D d) {
       return d.solver.decay.is_input() &&
              (d.solver.decay_kind == Solver::Decay::leak || d.solver.decay_kind == Solver::Decay::shrink);
     }},
    {"momentum", "T H", "`momentum`", "factor on the previous update", Range::sigmoid,
     [](D d) { return d.solver.momentum.is_input(); }},
    {"gain", "T H", "`sgd(momentum, gain)`", "how much of the update is added to the memory", Range::sigmoid,
     [](D d) { return d.solver.gain.is_input(); }},
    {"p", "P G K", "`sgd(feedback)`", "key the residual is read with", Range::unit,
     [](D d) { return d.solver.feedback; }},
    {"erase", "P H K", "`sgd(split)`", "erase gate on the key", Range::sigmoid, [](D d) { return d.solver.split; }},
    {"write", "P H V", "`sgd(split)`", "write gate on the value", Range::sigmoid, [](D d) { return d.solver.split; }},
    {"g_atk", "T H", "`sgd(precondition)`", "log of the factor on the sum of squared keys", Range::log_gate,
     [](D d) { return d.solver.precondition; }},
    {"beta_atk", "T H", "`sgd(precondition)`", "share of the squared key in that sum", Range::sigmoid,
     [](D d) { return d.solver.precondition; }},
    {"log_atk_scale", "H", "`sgd(precondition)`", "log of the sum at which the key is unchanged", Range::normal,
     [](D d) { return d.solver.precondition; }},
    {"a", "P H K", "`sgd(dplr)`", "read key", Range::unit, [](D d) { return d.solver.dplr; }},
    {"b", "P H K", "`sgd(dplr)`", "erase key", Range::unit, [](D d) { return d.solver.dplr; }},
    // Feature maps.
    {"W", "H M K", "`linear(t2r)`, `(hedgehog..)`, `(favor..)`, `(rfa)`",
     "matrix of the feature map, rows are features", Range::normal,
     [](D d) { return d.memory.has_matrix() && d.memory.feature != Memory::Feature::dijiang; }},
    {"P", "H K M", "`linear(dijiang)`", "matrix of the feature map, columns are features", Range::normal,
     [](D d) { return d.memory.feature == Memory::Feature::dijiang; }},
    {"b", "H M", "`linear(t2r)`, `linear(hedgehog..)`", "bias of the feature map", Range::small,
     [](D d) { return d.memory.has_bias(); }},
    {"gamma", "H K", "`linear(rebased)`", "scale of the normalised key", Range::normal,
     [](D d) { return d.memory.feature == Memory::Feature::rebased; }},
    {"shift", "H K", "`linear(rebased)`", "shift of the normalised key", Range::normal,
     [](D d) { return d.memory.feature == Memory::Feature::rebased; }},
    // Ridge, nearness, read-out, filters.
    {"ridge", "H K", "`ridge(key)`", "ridge", Range::positive, [](D d) { return ridge(d, Solver::RidgePer::key); }},
    {"ridge", "T H", "`ridge(token)`", "ridge", Range::positive,
     [](D d) { return ridge(d, Solver::RidgePer::token); }},
    {"ridge", "H", "`ridge`", "ridge", Range::positive, [](D d) { return ridge(d, Solver::RidgePer::head); }},
    {"exponent", "H", "`power`, `power(a)`", "exponent of the fading by age", Range::positive,
     [](D d) { return d.weights.power.is_input() && !sees_newest_only(d); }},
    {"w", "T H W", "`given(n)`", "weights of the newest n pairs, the newest first", Range::sigmoid,
     [](D d) { return d.weights.given > 0 && !d.weights.mask; }},
    {"mask", "T H W", "`mask(n)`", "above zero where one of the newest n pairs counts, the newest first",
     Range::normal, [](D d) { return d.weights.given > 0 && d.weights.mask; }},
    {"bandwidth", "H", "`near(.., bandwidth)`", "bandwidth of the weights", Range::positive,
     [](D d) { return d.weights.bandwidth.is_input() || d.memory.bandwidth.is_input(); }},
    {"sink", "H", "`near(exp, sink)`", "log of the weight of the sink", Range::normal,
     [](D d) { return d.weights.sink; }},
    {"levels", "T H L", "`levels`", "scale of each level", Range::sigmoid, [](D d) { return d.weights.levels; }},
    {"w_t", "P G K", "`near(exp, transport)`", "Householder vector", Range::unit,
     [](D d) { return d.weights.transport; }},
    {"beta_t", "P G", "`near(exp, transport)`", "step of the Householder map", Range::sigmoid,
     [](D d) { return d.weights.transport; }},
    {"r", "T H K", "`given`", "slope, as an input", Range::small, [](D d) { return d.solver.kind == Kind::given; }},
    {"bonus", "H V", "`read(before, bonus)` with `constant(channel)`", "weight of the newest token", Range::normal,
     [](D d) { return d.extras.bonus && d.memory.per_channel; }},
    {"bonus", "H K", "`read(before, bonus)`", "weight of the newest token", Range::normal,
     [](D d) { return d.extras.bonus; }},
    {"process", "T H", "`kalman(process)`", "variance of the drift per token", Range::sigmoid,
     [](D d) { return d.solver.process.is_input(); }},
    {"noise", "T H", "`kalman(noise)`", "variance of a value", Range::positive,
     [](D d) { return d.solver.noise.is_input(); }},
    {"blend", "T H", "`blend`", "share of the solve in the read", Range::sigmoid, [](D d) { return d.extras.blend; }},
    {"c", "P H", "`huber(c)`", "threshold of the Huber loss", Range::positive,
     [](D d) { return d.extras.loss_parameter.is_input(); }},
    {"l1", "H", "`l1`", "size of the penalty", Range::sigmoid, [](D d) { return d.extras.l1.is_input(); }},
    {"l2", "H", "`l2`", "size of the penalty", Range::sigmoid, [](D d) { return d.extras.l2.is_input(); }},
    {"rate", "P H", "`minibatch(b, rate)`", "step of the token", Range::sigmoid,
     [](D d) { return d.solver.kind == Kind::minibatch && d.solver.step.is_input(); }},
};

}  // namespace

std::span<const InputRow> input_rows() { return table; }

std::vector<DesignInput> inputs_of(const Design& d) {
  std::vector<DesignInput> list;
  for (const InputRow& row : table) {
    const bool known =
        std::any_of(list.begin(), list.end(), [&](const DesignInput& have) { return have.name == row.name; });
    if (known || !row.asked(d)) continue;
    DesignInput input{std::string(row.name), row.axes, std::string(row.meaning), row.range};
    if (input.name == "q" || input.name == "k") {
      // Steps on raw keys are stable for |k| = 1; other memories take keys of any length.
      const Kind kind = d.solver.kind;
      const bool steps = kind == Kind::sgd || kind == Kind::minibatch || kind == Kind::descend;
      if (steps && d.extras.keys == Extras::Keys::raw) input.range = Range::unit;
      input.optional = is_keyless(d);
      if (input.optional) input.meaning += " (not read by this memory)";
    }
    list.push_back(std::move(input));
  }
  return list;
}

bool is_of_pairs(const Design& d, std::string_view name) {
  for (const DesignInput& input : inputs_of(d))
    if (input.name == name) return input.per_pair();
  return false;
}

std::vector<InputInfo> canonical_inputs(const Design& d) {
  // P is the time of pairs; it has a letter of its own where a token brings several.
  const bool several = d.solver.pairs > 1;
  std::vector<InputInfo> list;
  for (const DesignInput& input : inputs_of(d)) {
    const Axes axes = several ? input.axes : input.axes.replaced('P', 'T');
    std::string meaning = input.meaning;
    if (several && (input.name == "k" || input.name == "v" || meaning == "step")) meaning += "; P = T pairs";
    list.push_back({.name = input.name,
                    .shape = (input.timed() ? "B " : "") + axes.to_string(),
                    .meaning = meaning,
                    .range = input.range,
                    .optional = input.optional});
  }
  return list;
}

}  // namespace ttr
