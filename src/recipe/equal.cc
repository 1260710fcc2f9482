// The rules, in three groups: choices without effect, other ways to write the same function of the same inputs, and
// functions that are the same once their inputs are computed from others (a step from another step, say).
//
// Traps. A mean has no ridge: the constant term of a local polynomial is not shrunk, and the memory `constant` is that
// term. minibatch(1) is sgd unless it decays: it takes the gradient before the decay. A step rule, and what repeated
// steps make of it, depends on |phi(k)|^2, which is 1 for `constant`, for keys of length 1 without features, and
// kappa(k, k) = 1 for the kernels of the distance. Keys of length 1 are at most 2 apart, those of length sqrt(K) at most
// 2 sqrt(K), which is the default bandwidth.
#include "recipe/equal.h"

#include <cmath>

#include "recipe/combine.h"
#include "recipe/derive_parts.h"
#include "recipe/words.h"

namespace ttr {
namespace {

using Class = Memory::Class;
using Feature = Memory::Feature;
using Kind = Solver::Kind;
using Rule = Solver::Rule;
using Decay = Solver::Decay;
using Fade = Weights::Fade;
using Importance = Weights::Importance;
using Loss = Extras::Loss;
using Text = std::string;

Quantity constant(double value) { return {Quantity::From::constant, value}; }
Quantity input() { return {Quantity::From::input, 0}; }
bool is(const Quantity& q, double value) { return q.is_constant() && q.value == value; }
/// A quantity that is 1 if it is absent.
bool known(const Quantity& q) { return !q.is_input(); }
double number(const Quantity& q) { return q.is_constant() ? q.value : 1; }

/// True if nothing is left of a solver but its kind.
bool is_bare(Solver rest) {
  rest.kind = {};
  return rest == Solver{};
}

/// A map that is linear in what is learned, from zero, without a norm by the sum of the keys.
bool is_sum(const Design& d) {
  const Class kind = d.memory.kind;
  return (kind == Class::linear && !d.memory.reverse) || kind == Class::constant || kind == Class::kernel ||
         kind == Class::vector;
}

/// Mercer kernels of the distance of two keys, which are 1 where it is 0.
bool is_distance_kernel(Kernel kernel) {
  return kernel == Kernel::gaussian || kernel == Kernel::laplace || kernel == Kernel::matern32 ||
         kernel == Kernel::matern52;
}

/// |phi(k)|^2 is 1 whatever the key.
bool has_unit_curvature(const Design& d) {
  const Memory& m = d.memory;
  if (m.kind == Class::constant) return true;
  if (m.kind == Class::kernel) return is_distance_kernel(m.kernel);
  return m.kind == Class::linear && m.feature == Feature::identity && !m.reverse &&
         d.extras.keys == Extras::Keys::unit;
}

Text step_of(const Design& d) {
  const derivation::Symbols y(d, true);
  return y.step(d.memory.kind == Class::kernel ? "k_t" : y.key("t"));
}

Text square_of(const Design& d) {
  const derivation::Symbols y(d, true);
  return d.memory.kind == Class::kernel ? "\\kappa(k_t,k_t)" : "\\lVert " + y.key("t") + "\\rVert^2";
}

// ------------------------------------------------------------------------------------------ choices without effect

bool weights_of_the_newest(Design& d, Text&) {
  if (!sees_newest_only(d)) return false;
  Weights rest = d.weights, plain;
  rest.fade = {}, rest.decay = {}, rest.per = {}, rest.complex = false, rest.steady = 0, rest.power = {};
  plain.window = d.weights.window;  // 0 unless it matters: interpret sees to that
  if (!(rest == plain) || d.weights == plain) return false;
  d.weights = plain;
  return true;
}

bool decay_of_one(Design& d, Text&) {
  Weights& w = d.weights;
  if (w.fade == Fade::equal || !is(w.decay, 1) || w.per != Weights::Per::token) return false;
  w.fade = Fade::equal, w.decay = {};
  return true;
}

bool numbers_without_effect(Design& d, Text&) {
  const Design before = d;
  Solver& s = d.solver;
  if (s.rule == Rule::plain && is(s.step, 1)) s.step = {};
  if (d.weights.importance == Importance::beta && is(d.weights.beta, 1))
    d.weights.importance = Importance::one, d.weights.beta = {};
  if (s.decay_kind != Decay::none && is(s.decay, 0)) s.decay_kind = Decay::none, s.decay = {};
  if (is(s.gain, 1)) s.gain = {};
  if (is(s.momentum, 0) && !s.gain.given()) s.momentum = {}, s.nesterov = false;
  if (is(s.process, 0)) s.process = {};
  if (is(s.noise, 1)) s.noise = {};
  if (is(s.ridge, 0) && s.kind != Kind::chebyshev) s.ridge = {}, s.ridge_kind = {};
  if (s.q_norm == 2 && is_network(d.memory)) s.q_norm = 0;  // a matrix would start from zero instead of a draw
  return !(d == before);
}

bool order_zero(Design& d, Text&) {
  if (d.memory.kind != Class::local || d.memory.order != 0 || d.solver.kind != Kind::exact) return false;
  d.memory = {};
  d.memory.kind = Class::constant;
  return true;
}

bool ridge_of_a_mean(Design& d, Text&) {
  Solver& s = d.solver;
  if (d.memory.kind != Class::constant || s.kind != Kind::exact || !s.ridge.given()) return false;
  s.ridge = {}, s.ridge_kind = {}, s.ridge_per = {};
  return true;
}

bool fading_of_nothing(Design& d, Text&) {
  if (d.solver.ridge_kind != Solver::RidgeKind::fading || d.weights.fade != Fade::equal) return false;
  d.solver.ridge_kind = {};
  return true;
}

// -------------------------------------------------------------------------- the same function of the same inputs

bool dot_from_zero(Design& d, Text&) {
  if (d.solver.kind != Kind::gd || d.solver.steps != 1 || d.extras.loss != Loss::dot || !is_sum(d)) return false;
  d.extras.loss = Loss::squared;
  return true;
}

bool steps_of_a_constant_gradient(Design& d, Text& inputs) {
  Solver& s = d.solver;
  if (s.kind != Kind::gd || s.steps == 1 || d.extras.loss != Loss::dot || !is_sum(d) || s.rule != Rule::plain)
    return false;
  const double n = s.steps;
  if (!known(s.step)) inputs = "$\\beta_t \\leftarrow " + std::to_string(s.steps) + "\\beta_t$";
  else s.step = constant(n * number(s.step));
  s.steps = 1;
  return true;
}

bool blocks_of_one(Design& d, Text& inputs) {
  Solver& s = d.solver;
  if (s.kind != Kind::minibatch || s.batch != 1 || s.decay_kind == Decay::before) return false;
  s.kind = Kind::sgd;
  if (s.step.is_input()) inputs = "$\\beta_t \\leftarrow \\mathrm{rate}_t$";
  return true;
}

/// The factor on the state of a rule whose gradient does not look at the state; false if it has none.
bool fade_of_a_sum(const Solver& s, Weights& w, Text& inputs) {
  switch (s.decay_kind) {
    case Decay::none:
      return true;
    case Decay::before:
      w.fade = s.decay.is_constant() ? Fade::decay : Fade::gate;
      w.decay = s.decay.is_constant() ? constant(1 - s.decay.value) : s.decay;
      w.per = s.decay_per;
      return true;
    case Decay::shrink:
    case Decay::leak: {
      const bool leak = s.decay_kind == Decay::leak;
      if (s.steps > 1 || (leak && s.rule != Rule::plain)) return false;  // each step would fade those before it
      if (s.decay.is_constant() && (!leak || known(s.step))) {
        w.fade = Fade::decay, w.decay = constant(1 - (leak ? number(s.step) : 1) * s.decay.value);
        return true;
      }
      w.fade = Fade::gate, w.decay = input();
      const Text lambda = derivation::number_or(s.decay, "\\lambda_t");
      const Text step = !leak || !s.step.given() ? "" : derivation::number_or(s.step, "\\beta_t") + "\\,";
      inputs = "$g_t \\leftarrow \\log(1 - " + step + lambda + ")$";
      return true;
    }
  }
  return false;
}

bool dot_by_pairs(Design& d, Text& inputs) {
  const Solver& s = d.solver;
  const bool blocks = s.kind == Kind::minibatch;
  if ((s.kind != Kind::sgd && !blocks) || d.extras.loss != Loss::dot || !is_sum(d)) return false;
  if (d.weights.near != Kernel::none || (s.rule != Rule::plain && s.rule != Rule::nlms)) return false;
  if (blocks && s.decay_kind == Decay::leak) return false;  // leaks from the weights of the start of the block
  Solver rest = s;
  rest.step = {}, rest.steps = 1, rest.rule = {}, rest.eps = 0, rest.batch = 1;
  rest.decay_kind = {}, rest.decay = {}, rest.decay_per = {};
  Weights w, none;
  none.window = w.window = d.weights.window;
  if (!is_bare(rest) || !(d.weights == none) || !fade_of_a_sum(s, w, inputs)) return false;
  const Text n = s.steps > 1 ? std::to_string(s.steps) + "\\," : "";
  if (s.rule == Rule::nlms || s.step.is_input()) {
    w.importance = Importance::beta, w.beta = input();
    if (s.rule == Rule::nlms || s.steps > 1 || blocks)
      inputs += (inputs.empty() ? "$" : ", $") + Text("\\beta_t \\leftarrow ") + n + step_of(d) + "$";
  } else if (s.steps * number(s.step) != 1) {
    w.importance = Importance::beta, w.beta = constant(s.steps * number(s.step));
  }
  d.weights = w;
  d.solver = {};
  d.extras.loss = Loss::squared;
  return true;
}

bool kernel_without_inverse(Design& d, Text&) {
  const Kernel kernel = d.memory.kernel;
  if (d.memory.kind != Class::kernel || d.solver.kind != Kind::gd || d.solver.steps != 1 ||
      d.solver.rule != Rule::plain || d.extras.loss != Loss::squared || d.weights.near != Kernel::none ||
      (kernel != Kernel::exponential && !is_distance_kernel(kernel)))
    return false;
  d.weights.near = kernel, d.weights.near_scale = d.memory.kernel_scale, d.weights.bandwidth = d.memory.bandwidth;
  d.memory = {};
  d.memory.kind = Class::constant;
  return true;
}

bool dual_form(Design& d, Text&) {
  Memory plain, rest = d.memory;
  if (rest.kind != Class::kernel || rest.kernel != Kernel::linear) return false;
  rest.kind = {}, rest.kernel = {};
  const Solver& s = d.solver;
  const bool same = s.kind == Kind::exact || s.kind == Kind::gd || (s.kind == Kind::sgd && d.weights.window == 0);
  if (!(rest == plain) || !same) return false;
  d.memory = plain;
  return true;
}

/// Puts a factor on all weights into the ridge or the step, where it does not cancel; false if it has no place there.
/// Without a number (zero) it must cancel.
bool absorbs_factor(Design& d, double factor) {
  Solver& s = d.solver;
  const bool kernel = d.memory.kind == Class::kernel;
  const bool no_ridge = !s.ridge.given() || is(s.ridge, 0);
  if (s.kind == Kind::given || is_deltaformer(d)) return true;
  if (s.kind == Kind::exact || (s.kind == Kind::cg && kernel)) {
    if (no_ridge || s.ridge_kind == (kernel ? Solver::RidgeKind::frobenius : Solver::RidgeKind::relative))
      return true;
    if (factor == 0 || !s.ridge.is_constant() || s.ridge_kind == Solver::RidgeKind::fading) return false;
    s.ridge.value /= factor;
    return true;
  }
  const bool one_step = (s.kind == Kind::gd && d.memory.kind == Class::constant) || (s.kind == Kind::sgd && kernel);
  if (factor == 0 || !one_step || s.steps != 1 || s.rule != Rule::plain || !known(s.step)) return false;
  if (d.extras.loss != Loss::squared || s.momentum.given()) return false;
  s.step = constant(number(s.step) * factor);
  return true;
}

bool gaussian_of_one_length(Design& d, Text&) {
  if (d.extras.keys == Extras::Keys::raw) return false;
  const bool kernel = d.memory.kind == Class::kernel;
  Kernel& shape = kernel ? d.memory.kernel : d.weights.near;
  Quantity& h = kernel ? d.memory.bandwidth : d.weights.bandwidth;
  if (shape != Kernel::gaussian || h.is_input()) return false;
  const bool unit = d.extras.keys == Extras::Keys::unit;  // otherwise the length, sqrt(K), is no number
  if (!absorbs_factor(d, unit && h.is_constant() ? std::exp(-2 / h.value) : 0)) return false;
  shape = Kernel::exponential;
  (kernel ? d.memory.kernel_scale : d.weights.near_scale) = h.is_constant() ? 2 / h.value : 0;  // 0: 1/sqrt(K) = 2/h
  h = {};
  return true;
}

/// Weights by similarity that are all 1; what reads no keys then has none to normalise.
bool drop_near(Design& d) {
  if (is_deltaformer(d)) return false;  // a mean of corrected values, not a step towards the newest
  d.weights.near = Kernel::none, d.weights.bandwidth = {}, d.weights.neighbours = 0;
  if (d.memory.kind == Class::constant) d.extras.keys = Extras::Keys::raw;
  return true;
}

bool box_around_everything(Design& d, Text&) {
  const Weights& w = d.weights;
  const Extras::Keys keys = d.extras.keys;
  const bool wide = w.bandwidth.is_constant() ? keys == Extras::Keys::unit && w.bandwidth.value >= 2
                                              : keys != Extras::Keys::raw && !w.bandwidth.given();
  return w.near == Kernel::box && wide && drop_near(d);
}

bool nearest_of_few(Design& d, Text&) {
  const Weights& w = d.weights;
  return w.near == Kernel::nearest && w.reach() > 0 && w.neighbours >= w.reach() && drop_near(d);
}

bool epanechnikov_of_unit_keys(Design& d, Text&) {
  Weights& w = d.weights;
  Solver& s = d.solver;
  if (w.near != Kernel::epanechnikov || !is(w.bandwidth, 2) || d.extras.keys != Extras::Keys::unit ||
      d.memory.kind != Class::constant || s.kind != Kind::gd || s.steps != 1 || s.rule != Rule::plain ||
      !known(s.step) || d.extras.loss != Loss::squared)
    return false;
  s.step = constant(number(s.step) / 2);
  w.near = Kernel::none, w.bandwidth = {};
  d.memory = {};
  d.memory.kind = Class::kernel, d.memory.kernel = Kernel::polynomial, d.memory.degree = 1;
  return true;
}

bool filter_without_drift(Design& d, Text& inputs) {
  Solver rest = d.solver;
  if (rest.kind != Kind::kalman || rest.process.given() || !(d.weights == Weights{})) return false;
  rest.noise = {};
  if (!is_bare(rest)) return false;
  const Quantity noise = d.solver.noise;
  d.solver = {};
  d.solver.kind = Kind::exact, d.solver.ridge = constant(noise.is_constant() ? noise.value : 1);
  if (noise.is_input()) {
    d.weights.importance = Importance::beta, d.weights.beta = input();
    inputs = "$\\beta_t \\leftarrow 1/r_t$";
  }
  return true;
}

bool projection_on_one(Design& d, Text&) {
  Solver rest = d.solver;
  if (rest.kind != Kind::apa || rest.batch != 1) return false;
  rest.step = {}, rest.eps = 0;
  if (!is_bare(rest)) return false;
  d.solver.kind = Kind::sgd, d.solver.rule = Rule::nlms;
  if (!d.solver.step.given()) d.solver.step = constant(1);
  return true;
}

bool square_of_two(Design& d, Text& inputs) {
  Solver& s = d.solver;
  if (d.extras.loss != Loss::lp || !is(d.extras.loss_parameter, 2) || s.decay_kind == Decay::leak) return false;
  if (s.rule != Rule::plain && s.rule != Rule::nlms) return false;
  if (known(s.step)) s.step = constant(2 * number(s.step));
  else {
    const Text name = s.rule == Rule::nlms ? "\\mu_t" : s.kind == Kind::minibatch ? "\\mathrm{rate}_t" : "\\beta_t";
    inputs = "$" + name + " \\leftarrow 2" + name + "$";
  }
  d.extras.loss = Loss::squared, d.extras.loss_parameter = {};
  return true;
}

bool repeated_steps(Design& d, Text& inputs) {
  Solver& s = d.solver;
  const bool class_fits = (d.memory.kind == Class::linear && !d.memory.reverse) || d.memory.kind == Class::constant ||
                          d.memory.kind == Class::kernel;
  if (s.kind != Kind::sgd || s.steps == 1 || d.extras.loss != Loss::squared || !class_fits) return false;
  Solver rest = s;
  rest.step = {}, rest.rule = {}, rest.eps = 0, rest.steps = 1;
  if (rest.decay_kind == Decay::before) rest.decay_kind = {}, rest.decay = {}, rest.decay_per = {};
  if (!is_bare(rest)) return false;
  const Text n = std::to_string(s.steps);
  if (s.rule == Rule::flow) {
    if (known(s.step)) s.step = constant(s.steps * number(s.step));
    else inputs = "$\\beta_t \\leftarrow " + n + "\\beta_t$";
  } else if ((s.rule == Rule::nlms && s.eps == 0) || (s.rule == Rule::plain && has_unit_curvature(d))) {
    const Text name = s.rule == Rule::nlms ? "\\mu_t" : "\\beta_t";
    if (known(s.step)) s.step = constant(1 - std::pow(1 - number(s.step), s.steps));
    else inputs = "$" + name + " \\leftarrow 1 - (1 - " + name + ")^{" + n + "}$";
  } else {
    const Text square = square_of(d), step = step_of(d);
    inputs = "$\\beta_t \\leftarrow (1 - (1 - b\\," + square + ")^{" + n + "})/" + square + "$, $b = " + step + "$";
    s.rule = Rule::plain, s.eps = 0, s.step = input();
  }
  s.steps = 1;
  return true;
}

bool step_rule_of_unit_keys(Design& d, Text&) {
  Solver& s = d.solver;
  if (s.kind != Kind::sgd || s.rule == Rule::plain || s.rule == Rule::automatic || s.steps != 1 || !known(s.step) ||
      !has_unit_curvature(d) || d.memory.kind != Class::linear)
    return false;
  const double x = number(s.step);
  s.step = constant(s.rule == Rule::nlms       ? x / (1 + s.eps)
                    : s.rule == Rule::longhorn ? x / (1 + x)
                                               : -std::expm1(-x));
  s.rule = Rule::plain, s.eps = 0;
  return true;
}

// ------------------------------------------------------------------------------- the same function of other inputs

template <Rule rule>
bool step_rule(Design& d, Text& inputs) {
  Solver& s = d.solver;
  if (s.kind != Kind::sgd || s.rule != rule || s.steps != 1 || d.memory.kind != Class::linear || d.memory.reverse ||
      s.pairs != 1)
    return false;
  inputs = "$\\beta_t \\leftarrow " + step_of(d) + "$";
  s.rule = Rule::plain, s.eps = 0, s.step = input();
  return true;
}

bool weight_decay(Design& d, Text& inputs) {
  Solver& s = d.solver;
  if (s.kind != Kind::sgd || (s.decay_kind != Decay::leak && s.decay_kind != Decay::shrink) ||
      s.rule != Rule::plain || s.steps != 1 || d.memory.kind != Class::linear || d.memory.reverse ||
      d.extras.loss != Loss::squared)
    return false;
  Solver rest = s;
  rest.step = {}, rest.decay_kind = {}, rest.decay = {};
  if (!is_bare(rest)) return false;
  const Text beta = s.step.given() ? derivation::number_or(s.step, "\\beta_t") : "1";
  const Text lambda = derivation::number_or(s.decay, "\\lambda_t");
  const Text a = "1 - " + (s.decay_kind == Decay::leak && beta != "1" ? beta + "\\," : Text()) + lambda;
  inputs = "$g_t \\leftarrow \\log a_t$, $\\beta_t \\leftarrow " + beta +
           "/a_t$, $v_t \\leftarrow a_t v_t$, $a_t = " + a + "$";
  s.decay_kind = Decay::before, s.decay = input(), s.step = input();
  return true;
}

bool importance_of_a_sum(Design& d, Text& inputs) {
  const Weights& w = d.weights;
  const bool beta = w.importance == Importance::beta, exponential = w.importance == Importance::exponential;
  const Extras& e = d.extras;
  if ((!beta && !exponential) || d.solver.kind != Kind::gd || d.solver.steps != 1 || d.solver.rule != Rule::plain ||
      !is_sum(d) || e.loss != Loss::squared || e.bonus ||
      (e.normalise != Extras::Normalise::none && e.normalise != Extras::Normalise::rms &&
       e.normalise != Extras::Normalise::unit))
    return false;
  inputs = "$v_t \\leftarrow " + (beta ? derivation::number_or(w.beta, "\\beta_t") + "\\," : Text("e^{\\iota_t}")) +
           " v_t$";
  d.weights.importance = Importance::one, d.weights.beta = {};
  return true;
}

bool norm_of_keys(Design& d, Text& inputs) {
  if (d.extras.keys == Extras::Keys::raw || d.solver.feedback) return false;
  const bool unit = d.extras.keys == Extras::Keys::unit;
  const auto scaled = [unit](const Text& x) {
    return "$" + x + " \\leftarrow " + (unit ? "" : "\\sqrt{K}\\,") + x + "/\\lVert " + x + "\\rVert$";
  };
  inputs = scaled("q_t") + ", " + scaled("k_t");
  d.extras.keys = Extras::Keys::raw;
  return true;
}

bool constant_decay(Design& d, Text& inputs) {
  Weights& w = d.weights;
  Solver& s = d.solver;
  if (w.fade == Fade::decay && w.decay.is_constant()) {
    inputs = "$g \\leftarrow \\log " + derivation::numeral(w.decay.value) + "$";
    w.decay = input();
    return true;
  }
  if (s.kind == Kind::sgd && s.decay_kind == Decay::before && s.decay.is_constant() && s.decay.value < 1) {
    inputs = "$g_t \\leftarrow \\log " + derivation::numeral(1 - s.decay.value) + "$";
    s.decay = input();
    return true;
  }
  return false;
}

bool decay_as_gate(Design& d, Text& inputs) {
  Weights& w = d.weights;
  if (w.fade != Fade::decay || !w.decay.is_input()) return false;
  inputs = "$g_t \\leftarrow g$";
  w.fade = Fade::gate;
  return true;
}

}  // namespace

const std::vector<EqualityRule>& equality_rules() {
  const auto of_rule = [](std::string_view option) { return source_of(Axis::solver, "sgd", option).value(); };
  static const std::vector<EqualityRule> rules = {
      {"weights-of-the-newest", "a solver that sees the newest pairs only does not see how older ones fade", "", true,
       weights_of_the_newest},
      {"decay-of-one", "a factor of 1 forgets nothing", "", true, decay_of_one},
      {"numbers-without-effect", "a factor of 1, a sum with 0 and a norm to the power of 0 change nothing", "", false,
       numbers_without_effect},
      {"order-zero", "a local polynomial of order 0 is the weighted mean", "", true, order_zero},
      {"ridge-of-a-mean", "a ridge shrinks slopes; a mean has none, and its constant term is not shrunk", "", false,
       ridge_of_a_mean},
      {"fading-of-nothing", "with equal weights nothing fades", "", true, fading_of_nothing},
      {"dot-from-zero",
       "at zero the gradient of $\\tfrac12\\lVert v - m(k)\\rVert^2$ is that of $-v^\\top m(k)$, and one step from "
       "zero sees no other point",
       "", true, dot_from_zero},
      {"steps-of-a-constant-gradient",
       "the gradient of $-v^\\top m(k)$ does not depend on $m$, so $n$ steps are one of $n$ times the size", "",
       false, steps_of_a_constant_gradient},
      {"blocks-of-one", "a block of one token takes every gradient at the newest weights", "", true, blocks_of_one},
      {"dot-by-pairs",
       "the gradient $-k_t v_t^\\top$ of the dot loss does not depend on the state, so SGD adds up what one batch "
       "step from zero adds up, and a factor on the state is a weight that fades",
       "Schlag, Irie, Schmidhuber 2021, arXiv 2102.11174", false, dot_by_pairs},
      {"kernel-without-inverse",
       "one gradient step from zero gives $f = \\sum_i w_i v_i\\,\\kappa(k_i,\\cdot)$: kernel regression with the "
       "inverse of the Gram matrix left out, a sum of values weighted by similarity",
       "Wang, Shi, Fox 2025, arXiv 2501.12352, Eq. 44-47", false, kernel_without_inverse},
      {"dual-form",
       "$K^\\top (K K^\\top + \\lambda I)^{-1} V = (K^\\top K + \\lambda I)^{-1} K^\\top V$, and gradient steps on "
       "$S = K^\\top C$ move $C$ as they move $S$: the linear kernel is the dual of the linear map",
       "Saunders, Gammerman, Vovk 1998", false, dual_form},
      {"gaussian-of-one-length",
       "for $q$ and $k$ of one length $c$, $e^{-\\lVert q-k\\rVert^2/h} = e^{-2c^2/h}\\, e^{2q^\\top k/h}$, and a "
       "factor that all pairs share cancels, or belongs into the ridge or the step",
       "Wang, Shi, Fox 2025, arXiv 2501.12352, Eq. 51", false, gaussian_of_one_length},
      {"box-around-everything",
       "keys of length 1 are at most 2 apart, keys of length $\\sqrt{K}$ at most $2\\sqrt{K}$: within such a "
       "bandwidth all pairs count the same",
       "", false, box_around_everything},
      {"nearest-of-few", "the $n$ nearest of at most $n$ pairs are all of them", "", false, nearest_of_few},
      {"epanechnikov-of-unit-keys",
       "for $q$ and $k$ of length 1, $1 - \\lVert q-k\\rVert^2/4 = (1 + q^\\top k)/2$: linear attention with a "
       "constant feature",
       "", false, epanechnikov_of_unit_keys},
      {"filter-without-drift",
       "the Kalman filter of a state that does not drift is recursive least squares: $P_t^{-1} = I + \\sum_i k_i "
       "k_i^\\top/r_i$",
       "Sorenson 1970", false, filter_without_drift},
      {"projection-on-one", "the affine projection on one pair divides by $\\lVert k_t\\rVert^2$: it is NLMS",
       "Ozeki, Umeda 1984", false, projection_on_one},
      {"square-of-two", "$|e|^2$ is twice $\\tfrac12|e|^2$: the squared loss with twice the step", "", false,
       square_of_two},
      {"repeated-steps",
       "on one pair every step multiplies the residual by $1 - b\\lVert k_t\\rVert^2$ and moves $S$ along $k_t$: $n$ "
       "steps are one, to where the residual is multiplied by the $n$-th power",
       "", false, repeated_steps},
      {"step-rule-of-unit-keys", "for keys of length 1 the step rule is a number", "", false, step_rule_of_unit_keys},
      {"step-of-nlms", "NLMS is the delta rule with a step computed from the key", of_rule("nlms"), false,
       step_rule<Rule::nlms>},
      {"step-of-longhorn", "the implicit step is the delta rule with a step computed from the key",
       of_rule("longhorn"), false, step_rule<Rule::longhorn>},
      {"step-of-flow", "the flow along one pair's gradient is the delta rule with a step computed from the key",
       of_rule("flow"), false, step_rule<Rule::flow>},
      {"weight-decay",
       "$a S + \\beta k (v - S^\\top k)^\\top = a S + (\\beta/a)\\, k (a v - (a S)^\\top k)^\\top$: weight decay is "
       "a gate before the step",
       "", false, weight_decay},
      {"importance-of-a-sum", "in a sum of $w_i k_i v_i^\\top$ the importance of a pair is a factor of its value", "",
       false, importance_of_a_sum},
      {"norm-of-keys", "a norm of $q$ and $k$ may be taken before the layer", "", false, norm_of_keys},
      {"constant-decay", "a constant is an input that is always the same", "", false, constant_decay},
      {"decay-as-gate", "a constant rate is a gate that is the same for every token", "", false, decay_as_gate},
  };
  return rules;
}

namespace {

/// Steps whose size the metric, the penalty or the last update change: what the rules say of a step and a sum does not
/// hold for them, nor for reweighted fits.
bool beyond_the_rules(const Design& d) {
  const Solver& s = d.solver;
  return s.metric != Solver::Metric::none || s.mirror != Solver::Mirror::none || !s.step_list.empty() ||
         s.step_each || s.momentum_auto || (s.kind == Kind::gd && s.momentum.given()) || s.kind == Kind::irls ||
         d.extras.l1.given() || d.extras.l2.given();
}

/// The first rule that applies and keeps the inputs (or changes them, if `with_other_inputs`).
std::optional<Rewriting> next(const Recipe& recipe, const Design& design, bool with_other_inputs) {
  if (beyond_the_rules(design)) return std::nullopt;
  for (const EqualityRule& rule : equality_rules()) {
    Rewriting link{&rule, {}, {}, design};
    if (!rule.apply(link.design, link.inputs) || link.inputs.empty() == with_other_inputs) continue;
    std::optional<Recipe> words = respelled(recipe, design, link.design);
    if (!words) continue;
    link.recipe = std::move(*words);
    return link;
  }
  return std::nullopt;
}

}  // namespace

Chain rewritten(const Recipe& recipe) {
  Chain chain;
  Recipe now = recipe;
  Design design = interpret(recipe);
  // Every rule leads to fewer words, smaller numbers or fewer memories, so that this ends; the limit is for a mistake.
  for (int links = 0; links < 100; ++links) {
    std::optional<Rewriting> link = next(now, design, false);
    if (!link) link = next(now, design, true);
    if (!link) break;
    now = link->recipe, design = link->design;
    chain.push_back(std::move(*link));
  }
  return chain;
}

Chain with_the_same_inputs(Chain chain) {
  std::size_t same = 0;
  while (same < chain.size() && chain[same].inputs.empty()) ++same;
  chain.erase(chain.begin() + static_cast<std::ptrdiff_t>(same), chain.end());
  return chain;
}

std::vector<Rewriting> other_spellings(const Recipe& recipe, const Design& design) {
  const Weights& w = design.weights;
  if (w.near == Kernel::none || w.sink || w.transport || w.bandwidth.is_input() ||
      design.memory.kind != Class::constant || design.solver.kind != Kind::gd || design.solver.steps != 1)
    return {};
  Rewriting kernel{nullptr, {}, {}, design};
  kernel.design.memory.kind = Class::kernel, kernel.design.memory.kernel = w.near;
  kernel.design.memory.kernel_scale = w.near_scale, kernel.design.memory.bandwidth = w.bandwidth;
  kernel.design.weights.near = Kernel::none, kernel.design.weights.near_scale = 0;
  kernel.design.weights.bandwidth = {};
  std::optional<Recipe> words = respelled(recipe, design, kernel.design);
  if (!words) return {};
  kernel.recipe = std::move(*words);
  return {kernel};
}

}  // namespace ttr
