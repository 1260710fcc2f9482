// Claims by subtraction. A family removes from a copy of the design what its kernel computes; it claims the design if
// what is left is the default design, `equal / linear / gd(1)`. A field that no family removes is refused by all of
// them, so a new word runs on the oracle until a family says that it computes it.
//
//   bool claim(const Design& design, bool causal) {
//     Claim rest(design);
//     rest.takes_fade(), rest.takes_importance();           // S = a S + beta k v'
//     rest.takes_any_features(), rest.takes_read_norms();   // operations before and after the kernel
//     return causal && rest.is_nothing();
//   }
//
// `takes_x` removes x if it is there; `needs` refuses the design if a condition does not hold.
#pragma once

#include "recipe/design.h"

namespace ttr::families {

class Claim {
 public:
  explicit Claim(const Design& design) : w(rest_.weights), m(rest_.memory), s(rest_.solver), x(rest_.extras) {
    rest_ = design;
  }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

 private:
  Design rest_;
  bool refused_ = false;

 public:
  // The parts of what is left, to look at and to take from.
  Weights& w;
  Memory& m;
  Solver& s;
  Extras& x;

  bool is_nothing() const { return !refused_ && rest_ == Design{}; }
  void needs(bool condition) { refused_ |= !condition; }

  /// A field that must have one of the values; it is taken out.
  template <class Field>
  bool takes(Field& field, std::initializer_list<Field> values) {
    for (const Field& value : values)
      if (field == value) {
        field = Field{};
        return true;
      }
    return false;
  }
  /// The same, and the design is refused if it has none of them.
  template <class Field>
  void needs(Field& field, std::initializer_list<Field> values) {
    needs(takes(field, values));
  }

  // Weights.
  /// One factor per token and head on all that is older; Builder::log_fade puts a constant factor beside it in.
  void takes_fade() {
    w.fade = {}, w.decay = {};
    if (w.per == Weights::Per::token) w.steady = 0;
  }
  /// A factor that is 1 fades nothing.
  bool fades() const { return w.fade != Weights::Fade::equal && !(w.decay.is_constant() && w.decay.value == 1); }
  /// An importance per pair.
  void takes_importance() {
    if (takes(w.importance, {Weights::Importance::beta})) w.beta = {};
  }

  // Operations before the kernel.
  /// Feature maps that keep the width of a key, and norms of keys.
  void takes_narrow_features() {
    using Feature = Memory::Feature;
    takes(m.feature, {Feature::elu1, Feature::relu, Feature::silu});
    x.keys = {};
  }
  bool has_wide_features() const { return !m.keeps_channels(); }
  /// Not those that know the position where pairs have a time of their own.
  void takes_any_features() {
    needs(!m.knows_position() || s.pairs == 1);  // positions are counted in tokens
    if (has_wide_features()) m.feature = {}, m.degree = Memory{}.degree, m.rows = 0, m.length = 0;
    takes_narrow_features();
  }

  // Operations behind it.
  /// A norm of the answer.
  void takes_read_norms() {
    using Normalise = Extras::Normalise;
    if (takes(x.normalise, {Normalise::unit, Normalise::rms})) x.normalise_eps = 0;
  }

  // Solvers.
  /// A ridge that is a number above zero or an input, the same for all tokens unless it was taken out.
  bool has_ridge() const { return s.ridge.is_input() || (s.ridge.is_constant() && s.ridge.value > 0); }
  void takes_ridge() { s.ridge = {}; }
  /// A ridge of zero is none.
  bool has_no_ridge() const { return !s.ridge.given() || (s.ridge.is_constant() && s.ridge.value == 0); }
  /// A factor on the state before the step, per token and head.
  void takes_decay_before() {
    if (takes(s.decay_kind, {Solver::Decay::before})) s.decay = {};
  }
  /// The size of a step by any rule of its own.
  void takes_step_rule() { s.rule = {}, s.step = {}, s.eps = 0; }
  void takes_plain_step() { s.step = {}; }
};

}  // namespace ttr::families
