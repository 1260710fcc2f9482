// Quantities of a design that several families ask for: keys with their norm and features, gates, steps, importances.
#include <cmath>

#include "families/elementwise/carry/carry.h"
#include "plan/builder.h"
#include "zoo/features.h"
#include "zoo/zoo.h"

namespace ttr {

using prepare::Op;

// The factor in front of a quantity that is absent (-1), a constant, or an input.
int Builder::quantity(const Quantity& q, const std::string& input) {
  if (q.is_input()) return canonical(input);
  return q.is_constant() ? constant(q.value) : -1;
}

int Builder::keys(const std::string& name) {
  const int value = plain_keys(name);
  return value < 0 ? -1 : features(value);
}

int Builder::plain_keys(const std::string& name) {
  int value = canonical(name);
  if (value < 0) return -1;
  const auto norm = p_.design.extras.keys;
  if (norm != Extras::Keys::raw)
    value = operation(norm == Extras::Keys::unit ? Op::unit_norm : Op::rms_norm, {value}, axes(value));
  return value;
}

int Builder::squared_keys(const std::string& name) {
  if (p_.design.memory.feature != Memory::Feature::rebased) return operand(name);
  constexpr double eps = 1e-5;  // ReBased's own
  const int x = plain_keys(name);
  return operation(Op::layer_norm, {x, canonical("gamma"), canonical("shift")}, axes(x).replaced('G', 'H'), eps);
}

int Builder::features(int value) {
  const Memory& memory = p_.design.memory;
  const auto map = [&](Op op, double number = 0) {
    const auto wide = prepare::feature_width(op, width(value), 0, number);
    if (wide == width(value)) return operation(op, {value}, axes(value), number);
    p_.letters['F'] = zoo::features_that_fit(wide);
    return operation(op, {value}, axes(value).replaced(axes(value).back(), 'F'), number);
  };
  // Matrices belong to heads, so features do: q and k of a group have them for every head.
  const auto map_by = [&](Op op, std::initializer_list<const char*> inputs) {
    std::vector<int> operands = {value};
    for (const char* name : inputs) operands.push_back(canonical(name));
    const int rows = memory.has_matrix() ? memory.matrix_rows(width(value)) : 0;
    p_.letters['F'] = zoo::features_that_fit(prepare::feature_width(op, width(value), rows, 0));
    return operation(op, operands, axes(value).replaced('G', 'H').replaced(axes(value).back(), 'F'));
  };
  switch (memory.feature) {
    case Memory::Feature::t2r:
      return map_by(Op::t2r, {"W", "b"});
    case Memory::Feature::hedgehog:
      return map_by(Op::hedgehog_softmax, {"W", "b"});
    case Memory::Feature::hedgehog_exp:
      return map_by(Op::hedgehog_exp, {"W", "b"});
    case Memory::Feature::hedgehog_softmax2:
      return map_by(Op::hedgehog_softmax2, {"W", "b"});
    case Memory::Feature::favor:
      return map_by(Op::favor, {"W"});
    case Memory::Feature::favor_relu:
      return map_by(Op::favor_relu, {"W"});
    case Memory::Feature::rfa:
      return map_by(Op::rfa, {"W"});
    case Memory::Feature::dijiang:
      return map_by(Op::dijiang, {"P"});
    case Memory::Feature::rebased:
      return map_by(Op::rebased, {"gamma", "shift"});
    case Memory::Feature::cosformer:
      p_.letters['F'] = 2 * width(value);
      return operation(Op::cosformer, {value, position()}, axes(value).replaced(axes(value).back(), 'F'),
                       memory.length);
    case Memory::Feature::identity:
      return value;
    case Memory::Feature::elu1:
      return map(Op::elu1);
    case Memory::Feature::relu:
      return map(Op::relu);
    case Memory::Feature::silu:
      return map(Op::silu);
    case Memory::Feature::taylor2:
      return map(Op::taylor2);
    case Memory::Feature::polynomial:
      return map(Op::polynomial, memory.degree);
    case Memory::Feature::dpfp:
      return map(Op::dpfp, memory.degree);
  }
  return value;
}

// What takes the index of a token in the call to its number in the sequence; one count for all who ask.
int Builder::position() {
  if (position_ >= 0) return position_;
  const zoo::Stage count{.shape = "B T 1",
                         .family = &families::carry_family,
                         .option = static_cast<int>(families::Carry::position),
                         .state = {"position", "B 1", "tokens seen", Range::positive, false}};
  return position_ = run_stage(count, {});
}

int Builder::log_magnitude(int factors) { return operation(Op::log_magnitude, {factors}, axes(factors)); }

int Builder::running_sign(int factors, std::string state, const std::string& of) {
  const bool inner = Axes::is_inner(axes(factors).back());
  const std::string shape = std::string("B H ") + (inner ? axes(factors).back() : '1');
  const zoo::Stage sign{.family = &families::carry_family,
                        .option = static_cast<int>(families::Carry::sign),
                        .state = {std::move(state), shape,
                                  "1 where the product of the signs of " + of + " is negative", Range::fresh, false}};
  return sign.family->stage(*this, sign, {factors}, inner ? axes(factors) : axes(factors).with('1'));
}

int Builder::with_sign(int value, int sign) { return operation(Op::with_sign, {value, sign}, axes(value)); }

// Log decay of the weights: absent, a constant, an input per head or per token.
int Builder::log_fade() {
  const Weights& w = p_.design.weights;
  if (w.fade == Weights::Fade::equal) return -1;
  if (w.decay.is_constant()) return w.decay.value == 1 ? -1 : constant(std::log(w.decay.value));
  const int g = w.signed_factors ? log_magnitude(canonical("a")) : canonical("g");
  if (w.steady == 0 || w.steady == 1) return g;
  return operation(Op::add, {g, constant(std::log(w.steady))}, axes(g));  // gate * decay(x)
}

int Builder::importance() {
  const Weights& w = p_.design.weights;
  return w.importance == Weights::Importance::beta ? quantity(w.beta, "beta") : -1;
}

// The importance of a pair times the constant step of gd(1).
int Builder::scaled_importance() {
  const Solver& s = p_.design.solver;
  const int beta = importance();
  if (s.rule != Solver::Rule::plain || !s.step.is_constant() || s.step.value == 1) return beta;
  const int step = constant(s.step.value);
  return beta < 0 ? step : operation(Op::multiply, {beta, step}, "BTH");
}

int Builder::decay_before() {
  const Solver& s = p_.design.solver;
  if (s.decay_kind != Solver::Decay::before) return -1;
  return s.decay.is_constant() ? constant(std::log1p(-s.decay.value)) : canonical("g");
}

// The step size on the newest pair, as its rule says.
int Builder::step_size(int k) {
  const Solver& s = p_.design.solver;
  const auto rule_step = [&](Op op, const char* input) {
    const int step = s.step.given() ? quantity(s.step, input) : constant(1);
    return operation(op, {step, k}, s.pairs > 1 ? "BPH" : "BTH", s.eps);
  };
  const auto one_step = [&] {
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
  };
  const int step = one_step();
  if (s.steps == 1) return step;
  // n steps on one pair are one: the residual along k shrinks by 1 - step |k|^2 each time.
  return operation(Op::repeated_step, {step < 0 ? constant(1) : step, k}, "BTH", s.steps);
}

StatePart Builder::memory_part(int k, int v, std::string name, std::string meaning) const {
  const auto letter = [&](int value) {
    return axes(value).empty() || !Axes::is_inner(axes(value).back()) ? '1' : axes(value).back();
  };
  const std::string shape = std::string("B H ") + letter(k) + " " + letter(v);
  return {{std::move(name), shape, std::move(meaning)}, {shape_.heads, width(k), width(v)}, type_};
}

StatePart Builder::vector_part(int k, std::string name, std::string meaning) const {
  const bool inner = !axes(k).empty() && Axes::is_inner(axes(k).back());
  const std::string shape = std::string("B H ") + (inner ? axes(k).back() : '1');
  return {{std::move(name), shape, std::move(meaning)}, {shape_.heads, width(k)}, type_};
}

}  // namespace ttr
