// Which family computes a design. A family claims a design only if it computes exactly that; what nobody claims goes
// to the oracle. Every claim is compared with the oracle by tests/claimed_recipes_test.cc.
#include "plan/builder.h"
#include "plan/neural_model.h"

namespace ttr {
namespace {

using Feature = Memory::Feature;
using Normalise = Extras::Normalise;
using Per = Weights::Per;
using Importance = Weights::Importance;
using Kind = Solver::Kind;
using Rule = Solver::Rule;
using Decay = Solver::Decay;

// The parts of a design, as the questions that several families ask.
struct Facts {
  const Weights& w;
  const Memory& m;
  const Solver& s;
  const Extras& x;

  explicit Facts(const Design& d) : w(d.weights), m(d.memory), s(d.solver), x(d.extras) {}

  bool squared() const { return x.loss == Extras::Loss::squared; }
  bool dot() const { return x.loss == Extras::Loss::dot; }
  bool keysum() const { return x.normalise == Normalise::keysum; }
  bool reads_after() const { return !x.read_before && !x.bonus; }
  bool unit_pairs() const { return w.importance == Importance::one; }
  bool per_token() const { return w.per == Per::token; }
  bool per_channel() const { return w.per == Per::key || w.per == Per::value || w.per == Per::key_value; }
  bool same_width() const {
    return m.feature == Feature::identity || m.feature == Feature::elu1 || m.feature == Feature::relu ||
           m.feature == Feature::silu;
  }
  bool linear() const { return m.kind == Memory::Class::linear && !m.reverse; }
  // Nothing but a fade and an importance: no similarity to the query, no window.
  bool plain_weights() const {
    return w.near == Kernel::none && w.window == 0 && !w.levels && !w.complex && w.per != Per::full &&
           (w.importance == Importance::one || w.importance == Importance::beta);
  }
  bool plain_read() const {
    return !x.blend && (x.normalise == Normalise::none || keysum() || x.normalise == Normalise::unit ||
                        x.normalise == Normalise::rms);
  }
  bool one_step() const {
    return s.steps == 1 && !s.precondition && !s.muon && !s.row_norm && s.q_norm == 0 && !s.gain.given();
  }
  bool plain_step() const { return one_step() && !s.momentum.given(); }
  // gd(1) without a step size of its own: the weighted sum of the pairs.
  bool sum() const {
    return s.kind == Kind::gd && plain_step() && s.rule == Rule::plain && !s.step.given() &&
           s.decay_kind == Decay::none && squared();
  }
  bool no_leak() const { return s.decay_kind == Decay::none || s.decay_kind == Decay::before; }
};

Claim sum_claim(const Facts& f) {
  const auto& [w, m, s, x] = f;
  if (!(f.squared() || f.dot()) || !f.plain_step() || s.step.is_input() || s.decay_kind != Decay::none)
    return Claim::nobody;
  const bool automatic = s.rule == Rule::automatic && !f.keysum();
  if (f.per_token() && f.reads_after() && (s.rule == Rule::plain || automatic)) return Claim::decay;
  if (f.keysum() || !f.same_width()) return Claim::nobody;
  const bool weighted = !f.unit_pairs() || s.step.given();
  if ((f.per_token() || f.per_channel()) && s.rule == Rule::plain && !(x.bonus && weighted)) return Claim::gated;
  return Claim::nobody;
}

Claim step_claim(const Facts& f) {
  const auto& [w, m, s, x] = f;
  const bool scalar = s.decay_per == Per::token;
  const bool other_keys = s.feedback || s.split || s.dplr;
  if (!f.unit_pairs()) return Claim::nobody;
  if (s.momentum.given() || s.gain.given()) {
    const bool one_step = s.steps == 1 && !s.precondition && !s.muon && !s.row_norm && s.q_norm == 0;
    const bool some = s.momentum.is_input() || (s.momentum.is_constant() && s.momentum.value > 0);
    return one_step && f.squared() && some && s.pairs == 1 && !s.nesterov && scalar && !s.split && !s.dplr &&
                   f.no_leak() && (f.same_width() || !s.feedback)
               ? Claim::momentum
               : Claim::nobody;
  }
  if (s.precondition) {
    const bool plain = s.steps == 1 && s.pairs == 1 && !s.muon && !s.row_norm && s.q_norm == 0 && !other_keys;
    return plain && f.squared() && f.no_leak() && f.same_width() && (scalar || s.decay_per == Per::key)
               ? Claim::dplr
               : Claim::nobody;
  }
  if (!f.plain_step()) return Claim::nobody;
  if (f.squared() && !other_keys && scalar && (s.pairs == 1 || f.no_leak())) return Claim::delta;
  if (s.pairs > 1) return Claim::nobody;
  if (f.dot() && !other_keys && scalar && f.no_leak() && s.rule == Rule::plain) return Claim::decay;
  const bool plain_erase = !s.dplr || (!s.step.given() && s.rule == Rule::plain);
  const bool one_way = int{s.feedback} + int{s.split} + int{s.dplr} <= 1;
  if (f.squared() && f.no_leak() && plain_erase && one_way && f.same_width() && (scalar || s.decay_per == Per::key))
    return Claim::dplr;
  return Claim::nobody;
}

// Weights by similarity to the query: the pairs themselves are the state.
Claim near_claim(const Facts& f, bool causal) {
  const auto& [w, m, s, x] = f;
  const bool plain =
      !w.levels && !w.complex && f.unit_pairs() && f.per_token() && f.squared() && f.reads_after() && !x.blend &&
      m.feature == Feature::identity &&
      (x.normalise == Normalise::none || x.normalise == Normalise::unit || x.normalise == Normalise::rms);
  const bool gated = w.fade != Weights::Fade::equal && !(w.decay.is_constant() && w.decay.value == 1);
  if (!plain || (!causal && (gated || w.window > 0))) return Claim::nobody;
  if (w.transport)
    return causal && m.kind == Memory::Class::constant && !m.per_channel && s.kind == Kind::exact &&
                   !s.ridge.given() && w.near == Kernel::exponential && !w.sink && w.window == 0
               ? Claim::path_attention
               : Claim::nobody;
  if (m.kind == Memory::Class::constant && !m.per_channel && s.kind == Kind::sgd)
    return causal && f.plain_step() && s.pairs == 1 && s.rule == Rule::plain && s.decay_kind == Decay::none &&
                   w.near == Kernel::exponential && !gated && !w.sink && w.window == 0 && !s.feedback && !s.split &&
                   !s.dplr
               ? Claim::deltaformer
               : Claim::nobody;
  if (m.kind == Memory::Class::constant && !m.per_channel) {
    const bool mean = s.kind == Kind::exact && !s.ridge.given();
    return mean || (f.sum() && !w.sink) ? Claim::attention : Claim::nobody;
  }
  if (m.kind != Memory::Class::local || gated || w.window > 0 || w.sink) return Claim::nobody;
  if (s.kind == Kind::given) return m.order == 1 ? Claim::local_linear : Claim::nobody;
  const bool ridge = s.ridge.is_input() || (s.ridge.is_constant() && s.ridge.value > 0);
  const bool known = s.ridge_kind == Solver::RidgeKind::absolute || s.ridge_kind == Solver::RidgeKind::relative;
  return s.kind == Kind::exact && ridge && known && s.ridge_per != Solver::RidgePer::key &&
                 (m.order == 1 || m.order == 2)
             ? Claim::local_linear
             : Claim::nobody;
}

// A linear memory solved for: the families differ in the ridge and in what is kept.
Claim solve_claim(const Facts& f) {
  const auto& [w, m, s, x] = f;
  if (!f.squared() || !f.per_token() || !f.linear()) return Claim::nobody;
  const bool ridge = s.ridge.is_input() || (s.ridge.is_constant() && s.ridge.value > 0);
  const bool per_key = s.ridge_per == Solver::RidgePer::key, per_token = s.ridge_per == Solver::RidgePer::token;
  const bool fits = !per_key || f.same_width();
  using RidgeKind = Solver::RidgeKind;
  if (w.window > 0)
    return s.kind == Kind::exact && ridge && fits && !per_token && !x.blend && s.ridge_kind == RidgeKind::absolute
               ? Claim::window
               : Claim::nobody;
  const bool known = s.ridge_kind == RidgeKind::absolute || s.ridge_kind == RidgeKind::frobenius;
  if (s.kind == Kind::cg) return known && fits ? Claim::iterative : Claim::nobody;
  if (s.kind == Kind::chebyshev) return known && fits && ridge ? Claim::iterative : Claim::nobody;
  if (s.kind != Kind::exact) return Claim::nobody;
  if (!s.ridge.given() || (s.ridge.is_constant() && s.ridge.value == 0))
    return x.blend ? Claim::nobody : Claim::givens;
  if (s.ridge_kind == RidgeKind::fading)
    return !x.blend && fits && !per_token && ridge ? Claim::givens : Claim::nobody;
  if (!ridge || !known || !fits) return Claim::nobody;
  const bool plain = s.ridge_kind == RidgeKind::absolute && !per_token && !x.blend;
  return plain ? Claim::least_squares : Claim::iterative;
}

// All pairs of the call at once, without an order in which they could fade.
Claim whole_claim(const Facts& f) {
  const auto& [w, m, s, x] = f;
  const bool plain = f.linear() && f.plain_weights() && w.fade == Weights::Fade::equal && f.per_token() &&
                     f.squared() && f.reads_after() && f.plain_read() && !f.keysum();
  const bool ridge = (s.ridge.is_input() || (s.ridge.is_constant() && s.ridge.value > 0)) &&
                     s.ridge_kind == Solver::RidgeKind::absolute && s.ridge_per == Solver::RidgePer::head;
  return plain && (f.sum() || (s.kind == Kind::exact && ridge)) ? Claim::whole : Claim::nobody;
}

// Every family but that of networks.
Claim claimed_by_others(const Design& d, bool causal) {
  const Facts f(d);
  const auto& [w, m, s, x] = f;
  if (w.near != Kernel::none) return near_claim(f, causal);
  if (m.kind == Memory::Class::kernel) {
    const bool ridge = s.ridge.is_input() || (s.ridge.is_constant() && s.ridge.value > 0);
    return s.kind == Kind::exact && ridge && s.ridge_kind == Solver::RidgeKind::absolute &&
                   s.ridge_per != Solver::RidgePer::key && w.fade == Weights::Fade::equal && f.unit_pairs() &&
                   f.per_token() && f.squared() && f.reads_after() && !x.blend && !w.levels &&
                   !m.bandwidth.is_input() && (causal || w.window == 0) &&
                   (x.normalise == Normalise::none || x.normalise == Normalise::unit || x.normalise == Normalise::rms)
               ? Claim::kernel_regression
               : Claim::nobody;
  }
  if (!causal) return whole_claim(f);

  const bool ungated_read = x.normalise != Normalise::max_one && !f.keysum();
  const bool plain_sum = f.sum() && w.near == Kernel::none && w.window == 0 && ungated_read && f.reads_after();
  if (m.kind == Memory::Class::vector)
    return plain_sum && (f.per_token() || w.per == Per::value) && !w.levels && f.unit_pairs() &&
                   (!w.complex || w.per == Per::value)
               ? Claim::channel
               : Claim::nobody;
  if (m.kind == Memory::Class::slots) return plain_sum && f.unit_pairs() ? Claim::slots : Claim::nobody;
  if (m.kind == Memory::Class::constant && m.per_channel)  // a weighted mean per channel, read before the write
    return s.kind == Kind::exact && !s.ridge.given() && w.near == Kernel::none && w.window == 0 && f.squared() &&
                   w.per == Per::value && w.importance == Importance::exponential && x.bonus && ungated_read
               ? Claim::weighted_mean
               : Claim::nobody;
  if (m.kind == Memory::Class::linear && m.reverse) {
    const bool values = s.decay_kind == Decay::none ||
                        (s.decay_kind == Decay::before &&
                         (s.decay_per == Per::value || (s.decay_per == Per::token && s.decay.given())));
    return s.kind == Kind::sgd && f.plain_step() && s.pairs == 1 && f.squared() && values && f.unit_pairs() &&
                   s.rule == Rule::plain && f.reads_after() && ungated_read && f.same_width() && f.plain_weights()
               ? Claim::oja
               : Claim::nobody;
  }
  if (!f.linear()) return Claim::nobody;

  if (w.levels)
    return plain_sum && f.per_token() && (f.unit_pairs() || w.importance == Importance::beta) && w.level_count > 0
               ? Claim::log_linear
               : Claim::nobody;
  if (w.complex)
    return plain_sum && w.per == Per::key && f.unit_pairs() && f.same_width() ? Claim::rotating : Claim::nobody;
  if (w.importance == Importance::trapezoid) return plain_sum && f.per_token() ? Claim::trapezoid : Claim::nobody;
  if (w.importance == Importance::exponential)
    return f.sum() && f.per_token() && w.near == Kernel::none && w.window == 0 && f.reads_after() &&
                   x.normalise == Normalise::max_one && x.normalise_eps == 0
               ? Claim::stabilised
               : Claim::nobody;
  const bool solved = s.kind == Kind::exact || s.kind == Kind::cg || s.kind == Kind::chebyshev;
  if (solved && f.reads_after() && ungated_read && !w.levels && !w.complex && w.per != Per::full &&
      (f.unit_pairs() || w.importance == Importance::beta))
    return solve_claim(f);
  if (x.blend || !f.plain_weights() || !f.plain_read()) return Claim::nobody;
  if (s.kind == Kind::gd) return sum_claim(f);
  if (!f.reads_after() || f.keysum()) return Claim::nobody;
  if (s.kind == Kind::kalman) return f.squared() && f.unit_pairs() && f.per_token() ? Claim::kalman : Claim::nobody;
  if (s.kind == Kind::apa) return f.squared() && f.unit_pairs() ? Claim::projection : Claim::nobody;
  return s.kind == Kind::sgd ? step_claim(f) : Claim::nobody;
}

}  // namespace

// Networks, and linear memories with a loss or solver that only the kernel of networks has, come last.
Claim claimed_by(const Design& d, bool causal) {
  const Claim claim = claimed_by_others(d, causal);
  return claim == Claim::nobody && causal && neural_model(d, 1, 1) ? Claim::neural : claim;
}

}  // namespace ttr
