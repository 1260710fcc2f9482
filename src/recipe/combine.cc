// Combinations. The rules, by the thing that restricts:
//
//   near        constant, linear, local, kernel, networks; solved for each query: exact, cg, gd, and descend where an
//               answer can be carried on (constant also by sgd(beta): DeltaFormer)
//   local       near, solved by exact, cg, gd or given      given       near / local(1) only
//   kernel      gd, exact, cg, sgd                          slots       gate or equal, gd(1)
//   vector      gd(1)                                       networks    sgd, minibatch, descend, gd
//   constant    gd, sgd, exact                              gate(full), trapezoid: linear gd(1)
//   complex, signed         linear or vector, gd(1): the pairs of one sum may count negative
//   gate(key), gate(value)  weights that differ between channels: gd(1) (or exact where each channel is its own mean)
//   importance, levels, given, mask   solvers that see every pair; for the others the importance of the newest pair
//               *is* the step
//   window      everything; kernel / sgd drops the centres that leave it
//   losses      gradient steps; dot has no minimum; irls: those whose derivative is a weight times the residual
//   metrics     lbfgs and momentum of gd: several steps; newton: the squared loss; kernel: none
//   penalties   gradient steps in a metric that is diagonal, on the memory itself (no mirror)
#include "recipe/combine.h"

#include <cmath>

#include "recipe/words.h"

namespace ttr {
namespace {

using Class = Memory::Class;
using Kind = Solver::Kind;
using Metric = Solver::Metric;
using Per = Weights::Per;
using Importance = Weights::Importance;

const Term* term_of(const std::vector<Term>& terms, std::initializer_list<std::string_view> names) {
  for (const Term& term : terms)
    for (const std::string_view name : names)
      if (term.word == name) return &term;
  return nullptr;
}

class Check {
 public:
  Check(const Recipe& recipe, const Design& design)
      : r_(recipe), w_(design.weights), m_(design.memory), s_(design.solver), e_(design.extras), d_(design) {}

  void run() const {
    near();
    memory();
    weights();
    check_ages(r_, d_);
    importance();
    descent();
    update();
    penalty();
    ridge();
    loss();
    readout();
  }

 private:
  [[noreturn]] static void fail(const Term& term, std::string_view option, const std::string& message) {
    const Argument* a = option.empty() ? nullptr : term.find(option);
    fail_at(a != nullptr && a->column > 0 ? a->column : term.column, message);
  }
  const Term& fade_term() const {
    const Term* term = term_of(r_.weights, {"gate", "decay", "equal"});
    return term != nullptr ? *term : r_.weights.front();
  }
  const Term& weight_term(std::string_view word) const {
    const Term* term = term_of(r_.weights, {word});
    return term != nullptr ? *term : r_.weights.front();
  }
  const Term& extra_term(std::initializer_list<std::string_view> names) const {
    const Term* term = term_of(r_.extras, names);
    return term != nullptr ? *term : r_.solver;
  }
  bool near_on() const { return w_.near != Kernel::none; }
  /// One step from zero, which is a sum over the pairs.
  bool one_batch_step() const {
    return s_.kind == Kind::gd && s_.steps == 1 && s_.metric == Metric::none && !e_.l1.given() && !e_.l2.given();
  }
  /// True if the features are not one for each key channel.
  bool widens() const { return !m_.keeps_channels(); }
  std::string solver_name() const { return quoted(r_.solver.word); }
  std::string memory_name() const { return quoted(r_.memory.word); }

  void solver_must_be(bool allowed, const std::string& valid) const {
    if (!allowed) fail(r_.solver, {}, solver_name() + " does not solve a " + memory_name() + " memory; use " + valid);
  }

  void near() const {
    if (!near_on()) {
      if (m_.kind == Class::local)
        fail(r_.memory, {},
             "`local` is a polynomial around the query and needs `near(exp)` or `near(gauss)` among the "
             "weights");
      return;
    }
    const Term& term = weight_term("near");
    if (m_.kind == Class::slots || m_.kind == Class::vector)
      fail(r_.memory, {},
           memory_name() +
               " is written once for all queries, and `near` weighs pairs anew for every query; use `constant`, "
               "`linear`, `local(p)`, `kernel(..)` or a network");
    if (m_.per_channel) fail(r_.memory, "channel", "`channel` is for weights without `near`; write `constant`");
    if (s_.kind == Kind::sgd) {
      if (m_.kind != Class::constant)
        fail(r_.solver, {},
             "`sgd` keeps one answer for all queries, `near` asks for one per query; use `exact`, or "
             "`near(exp) / constant / sgd(beta)`");
      Solver plain;
      plain.kind = Kind::sgd;
      plain.step = s_.step;
      if (!(s_ == plain) || w_.fade != Weights::Fade::equal || w_.reach() > 0 || w_.power.given() || w_.levels ||
          w_.sink || w_.transport)
        fail(r_.solver, {},
             "with `near`, `sgd` takes a step `beta` and nothing else fades or moves the pairs; write "
             "`near(exp) / constant / sgd(beta)`");
    } else if (m_.kind == Class::constant) {
      solver_must_be(s_.kind == Kind::exact || s_.kind == Kind::gd || s_.kind == Kind::irls,
                     "`exact`, `irls(n)`, `gd(1)` or `sgd(beta)` with `near`");
    } else if (m_.kind == Class::linear) {
      solver_must_be(s_.kind == Kind::exact || s_.kind == Kind::cg || s_.kind == Kind::gd ||
                         s_.kind == Kind::descend || s_.kind == Kind::irls,
                     "`exact`, `irls(n)`, `cg(n)`, `gd(n)` or `descend(n)` with `near`");
    } else if (m_.kind == Class::kernel) {
      solver_must_be(s_.kind == Kind::exact || s_.kind == Kind::cg || s_.kind == Kind::gd || s_.kind == Kind::irls,
                     "`exact(ridge)`, `irls(n, ridge)`, `cg(n, ridge)` or `gd(n)` with `near`");
    } else if (is_network(m_)) {
      solver_must_be(s_.kind == Kind::gd || s_.kind == Kind::descend,
                     "`gd(n)` or `descend(n)` with `near`: the other steps see one pair, whose weight is its step");
    }
    for (const std::string_view option : {"sink", "transport"})
      if (term.has(option) && (m_.kind != Class::constant || s_.kind != Kind::exact))
        fail(term, option, quoted(option) + " is defined for `near(exp) / constant / exact`");
  }

  void memory() const {
    switch (m_.kind) {
      case Class::linear:
        if (m_.reverse && s_.kind != Kind::sgd)
          fail(r_.memory, "reverse", "`reverse` (Oja's rule) is a per-pair rule; solve it by `sgd(beta)`");
        if (s_.kind == Kind::given)
          fail(r_.solver, {}, "`given` is the slope of `local(1)`; write `near(exp) / local(1) / given`");
        if (m_.reverse && (s_.feedback || s_.split || s_.dplr || s_.precondition || s_.pairs > 1))
          fail(r_.memory, "reverse", "`reverse` takes a plain step with or without decay and momentum");
        break;
      case Class::constant:
        if (!near_on())
          solver_must_be(
              s_.kind == Kind::gd || s_.kind == Kind::sgd || s_.kind == Kind::exact || s_.kind == Kind::irls,
              "`exact`, `irls(n)`, `gd(n)` or `sgd(beta)`");
        if (m_.per_channel && s_.kind != Kind::exact)
          fail(r_.memory, "channel", "`constant(channel)` is a weighted mean per channel; solve it by `exact`");
        break;
      case Class::local:
        if (s_.kind == Kind::given && m_.order != 1)
          fail(r_.solver, {}, "`given` supplies the slope of `local(1)`, not of order " + std::to_string(m_.order));
        if (s_.kind == Kind::descend)
          fail(r_.solver, {},
               "`descend` goes on from the last answer, but `local` is centred at each query, where the last answer "
               "means another polynomial; use `gd(n)`, which starts at zero");
        solver_must_be(s_.kind == Kind::exact || s_.kind == Kind::cg || s_.kind == Kind::gd ||
                           s_.kind == Kind::given || s_.kind == Kind::irls,
                       "`exact(ridge)`, `irls(n, ridge)`, `cg(n, ridge)`, `gd(n)` or `given`");
        break;
      case Class::kernel:
        solver_must_be(s_.kind == Kind::gd || s_.kind == Kind::exact || s_.kind == Kind::cg || s_.kind == Kind::sgd ||
                           s_.kind == Kind::irls,
                       "`exact(ridge)`, `irls(n, ridge)`, `cg(n, ridge)`, `gd(n)` or `sgd(beta)`");
        if (s_.kind == Kind::irls && (!s_.ridge.given() || (s_.ridge.is_constant() && s_.ridge.value == 0)))
          fail(r_.solver, {},
               "without a ridge a function of a `kernel` memory goes through every value, whatever the loss; write "
               "`irls(n, ridge)`");
        break;
      case Class::mlp:
      case Class::swiglu:
      case Class::layernorm_linear:
        solver_must_be(
            s_.kind == Kind::sgd || s_.kind == Kind::minibatch || s_.kind == Kind::descend || s_.kind == Kind::gd,
            "gradient steps: `minibatch(16)`, `sgd(beta)`, `descend(n)` or `gd(n)`");
        break;
      case Class::slots:
        solver_must_be(one_batch_step() && !s_.step.given() && s_.rule == Solver::Rule::plain, "`gd(1)`");
        if (w_.fade == Weights::Fade::decay || w_.reach() > 0 || w_.levels || w_.power.given() || w_.steady > 0 ||
            w_.importance != Importance::one || fade_term().has("key") || fade_term().has("value") ||
            fade_term().has("full"))
          fail(r_.weights.front(), {},
               "`slots` have a write strength `s` and a gate `gs` of their own; the weights are "
               "`gate` or `equal`");
        break;
      case Class::vector:
        solver_must_be(one_batch_step(), "`gd(1)`");
        break;
    }
  }

  void weights() const {
    const Term& fade = fade_term();
    const bool linear_step = m_.kind == Class::linear && !near_on() && one_batch_step();
    if (w_.per == Per::full && !linear_step)
      fail(fade, "full", "`gate(full)` gates every entry of the state of `linear` solved by `gd(1)`");
    const bool sums = linear_step || (m_.kind == Class::vector && one_batch_step() && w_.per != Per::key);
    if (w_.complex && !sums)
      fail(fade, "complex",
           "`complex` weights turn the terms of a sum, which is what `linear` or `vector` with `gd(1)` keeps: "
           "`gate(key, complex) / linear / gd(1)`");
    if (w_.signed_factors) {
      if (!sums)
        fail(fade, "signed",
             "`signed` factors give pairs negative weights: a sum may have such terms, `linear` or `vector` with "
             "`gd(1)`, but an objective with them has no minimum; write `gate`, or let a step overshoot: `sgd(beta)` "
             "with beta up to 2 has eigenvalues down to -1");
      if (s_.rule == Solver::Rule::automatic)
        fail(r_.solver, "step",
             "`step=auto` divides by the sum of the weights, which `signed` factors may make zero; give a number");
    }
    if (w_.importance == Importance::trapezoid && !(linear_step && w_.per == Per::token))
      fail(fade, "trapezoid", "`gate(trapezoid)` is a scalar gate of `linear` solved by `gd(1)`");
    if (w_.levels) {
      const Term& levels = weight_term("levels");
      if (sees_newest_only(d_))
        fail(levels, {},
             "`levels` weighs pairs by the level of their age, but " + solver_name() +
                 " sees only the newest pair; use `gd(n)`, `descend(n)`, `exact`, `cg(n)` or `chebyshev(n)`");
      if (w_.per != Per::token || w_.complex || w_.importance == Importance::trapezoid ||
          w_.importance == Importance::exponential)
        fail(fade, {}, "`levels` goes with a scalar fade: `equal`, `decay(g)` or `gate`, with or without `beta`");
    }
    if (w_.window > 0 && (w_.levels || w_.complex || w_.per == Per::full || w_.importance == Importance::trapezoid))
      fail(weight_term("window"), {}, "`window` does not go with `levels`, `full`, `complex` or `trapezoid`");
    channel_gates(fade, linear_step);
  }

  void channel_gates(const Term& fade, bool linear_step) const {
    const bool key = w_.per == Per::key || w_.per == Per::key_value;
    const bool value = w_.per == Per::value || w_.per == Per::key_value;
    if (!key && !value && w_.per != Per::full) return;
    if ((key || w_.per == Per::full) && widens())
      fail(fade, key ? "key" : "full",
           "the gate has one entry per key channel, but this feature map has other features than channels; write "
           "`gate`");
    if (m_.kind == Class::vector && key)
      fail(fade, "key", "a `vector` memory has no key channels; write `gate(value)`");
    if (m_.kind == Class::vector || linear_step) return;
    const bool delta_like = sees_newest_only(d_) && m_.kind == Class::linear && !near_on();
    if (delta_like) return;  // the fade has no effect at all, which is a remark
    if (near_on() && key && !value && w_.near == Kernel::exponential && m_.kind == Class::constant &&
        s_.kind == Kind::exact && !w_.transport)
      return;
    if (!near_on() && m_.kind == Class::constant && value && !key) {
      if (m_.per_channel) return;
      fail(fade, "value", "a gate per value channel needs a mean per channel; write `constant(channel)`");
    }
    fail(fade, key ? "key" : "value",
         "gates per channel give every channel its own weights, which " + solver_name() + " of " + memory_name() +
             " does not have; use `gate`, or `linear` with `gd(1)`, or forget inside the step: `sgd(beta, "
             "decay(key))`");
  }

  void importance() const {
    if (w_.importance == Importance::one) return;
    const Term& fade = fade_term();
    const std::string_view option = w_.importance == Importance::beta          ? "beta"
                                    : w_.importance == Importance::exponential ? "exponential"
                                                                               : "trapezoid";
    if (sees_newest_only(d_) || is_deltaformer(d_))
      fail(fade, option,
           quoted(option) + " weighs pairs, but " + solver_name() +
               " sees only the newest one, whose importance is its step" +
               (s_.step.is_input()
                    ? ": `beta` would count twice; keep it in the solver"
                    : "; write it there: " + std::string(s_.kind == Kind::minibatch ? "`minibatch(b, rate)`"
                                                         : s_.kind == Kind::apa     ? "`apa(p, mu)`"
                                                         : s_.kind == Kind::kalman  ? "`kalman(noise)`"
                                                                                    : "`sgd(beta)`")));
    if (w_.beta.is_input() && s_.step.is_input())
      fail(r_.solver, "step",
           "the step would be the input `beta`, which is already the importance in the weights; give "
           "one of them as a number, e.g. `step=0.1`");
    if (m_.kind == Class::vector && w_.importance == Importance::exponential)
      fail(fade, option, "`exponential` needs a `linear` or `constant` memory; a `vector` takes `beta`");
  }

  void descent() const {
    const Term& term = r_.solver;
    if (s_.kind != Kind::gd && s_.kind != Kind::descend && s_.kind != Kind::sgd && s_.kind != Kind::minibatch) {
      if ((s_.kind == Kind::apa || s_.kind == Kind::kalman || s_.kind == Kind::chebyshev) && m_.kind != Class::linear)
        solver_must_be(false, "it with `linear`");
      return;
    }
    if (s_.rule == Solver::Rule::automatic && m_.kind != Class::linear && m_.kind != Class::local)
      fail(term, "step", "`step=auto` is computed for `linear` memories; give a number or an input `step`");
    const bool linear = m_.kind == Class::linear;
    if (!linear)
      for (const std::string_view option : {"feedback", "split", "dplr", "precondition", "pairs"})
        if (term.has(option)) fail(term, option, quoted(option) + " is defined for `linear` memories only");
    if (!linear && m_.kind != Class::kernel)
      for (const std::string_view option : {"nlms", "longhorn", "flow"})
        if (term.has(option))
          fail(term, option,
               quoted(option) +
                   " divides by |k|^2, which is the curvature of `linear` memories only; use "
                   "`beta`");
    const bool per_channel = s_.decay_per != Per::token;
    if (per_channel && !linear && !(m_.kind == Class::constant && s_.decay_per == Per::value))
      fail(term, "decay",
           "`decay(key)` and `decay(value)` gate the rows and columns of a `linear` memory; write `decay`");
    if (s_.decay_per == Per::key && widens())
      fail(term, "decay",
           "`decay(key)` has one gate per key channel, but this feature map has other features than "
           "channels; write `decay`");
    if (linear && m_.feature != Memory::Feature::identity)
      for (const std::string_view option : {"feedback", "split", "dplr", "precondition"})
        if (term.has(option)) fail(term, option, quoted(option) + " is defined for raw keys; drop the feature map");
    if ((s_.dplr || s_.precondition) && s_.decay_per == Per::value)
      fail(term, "decay", quoted(s_.dplr ? "dplr" : "precondition") + " decays rows: write `decay` or `decay(key)`");
    if (m_.kind == Class::kernel) {
      for (const std::string_view option : {"longhorn", "flow", "gain", "muon", "rownorm", "qnorm", "mirror"})
        if (term.has(option))
          fail(term, option,
               quoted(option) +
                   " is not defined for `kernel` memories; use `beta` or `nlms`, with or "
                   "without `decay` and `momentum`");
      if (s_.metric != Metric::none)
        fail(term, metric_word(),
             quoted(metric_word()) +
                 " divides the entries of a matrix, and a function of a `kernel` memory has none; use `momentum`");
    }
    if (linear && s_.row_norm)
      fail(term, "rownorm",
           "`rownorm` keeps initial lengths, and a `linear` memory starts at zero; use `mlp`, `swiglu` or "
           "`layernorm(linear)`");
    if (m_.kind == Class::constant)
      for (const std::string_view option : {"muon", "rownorm", "qnorm"})
        if (term.has(option)) fail(term, option, quoted(option) + " acts on weight matrices; `constant` has none");
  }

  std::string_view metric_word() const {
    for (const std::string_view word : {"adagrad", "rmsprop", "adam", "shampoo", "lbfgs", "newton"})
      if (r_.solver.has(word)) return word;
    return "momentum";
  }

  /// Momentum, metrics and mirror maps.
  void update() const {
    const Term& term = r_.solver;
    const bool batch = s_.kind == Kind::gd || s_.kind == Kind::descend;
    const bool restarts = s_.kind == Kind::gd || s_.momentum_auto;  // with every token
    if (batch && s_.steps == 1 && restarts && term.has("momentum"))
      fail(term, "momentum",
           "a single step that starts anew with every token has no last update for `momentum` to keep; take several "
           "steps, " +
               quoted(term.word + "(3, ...)"));
    if (s_.metric == Metric::lbfgs && s_.steps == 1)
      fail(term, "lbfgs",
           "`lbfgs` learns from the changes between the steps of a token; take several, " +
               quoted(term.word + "(3, ...)"));
    if (s_.metric == Metric::lbfgs && term.has("momentum"))
      fail(term, "momentum", "`lbfgs` already uses the last updates; drop `momentum`");
    if (s_.metric == Metric::shampoo && s_.eps == 0)
      fail(term, "eps", "`shampoo` takes roots of matrices that are singular at first; give `eps` above 0");
    if (s_.metric != Metric::none && m_.kind == Class::vector) solver_must_be(false, "`gd(1)`");
    if (s_.metric != Metric::none && s_.precondition)
      fail(term, "precondition", "`precondition` and " + quoted(metric_word()) + " both divide the step; keep one");
    const bool mirrored = s_.q_norm > 0 || s_.mirror != Solver::Mirror::none;
    if (s_.metric == Metric::newton) {
      if (e_.loss != Extras::Loss::squared)
        fail(term, "newton", "`newton` linearises the memory inside the squared loss; drop the other loss");
      for (const std::string_view option : {"leak", "feedback", "qnorm", "mirror"})
        if (term.has(option))
          fail(term, option,
               quoted(option) + " changes the gradient that `newton` solves for; use `decay` or `shrink`, or " +
                   "another metric");
    }
    if (s_.mirror != Solver::Mirror::none) {
      if (s_.decay_kind == Solver::Decay::leak)
        fail(term, "leak",
             "with `mirror` the memory is forgotten through its dual variable; use `decay` or `shrink`");
      if (s_.row_norm) fail(term, "rownorm", "`rownorm` and `mirror` both say how large the memory is; keep one");
    }
    if (mirrored && s_.metric == Metric::shampoo)
      fail(term, "shampoo", "a mirror map has a metric of its own; drop `shampoo`");
  }

  void penalty() const {
    if (!e_.l1.given() && !e_.l2.given()) return;
    const Term& extra = extra_term({"l1", "l2"});
    const std::string name = quoted(extra.word);
    const bool steps =
        s_.kind == Kind::gd || s_.kind == Kind::sgd || s_.kind == Kind::minibatch || s_.kind == Kind::descend;
    if (!steps)
      fail(extra, {},
           extra.word == "l2" ? "the squared penalty of " + solver_name() + " is its ridge; write " +
                                    quoted(r_.solver.word + "(ridge=x)")
                              : name + " has no normal equations for " + solver_name() +
                                    "; take proximal steps, `gd(20, step=auto)`");
    if (m_.kind != Class::linear && m_.kind != Class::constant && !is_network(m_))
      fail(extra, {}, name + " is a penalty on matrices; a " + memory_name() + " memory has none, so drop it");
    if (s_.metric == Metric::shampoo || s_.metric == Metric::lbfgs || s_.metric == Metric::newton)
      fail(extra, {},
           quoted(metric_word()) + " mixes the entries of the memory, so that " + name +
               " has no proximal step entry by entry; use `adagrad` or none");
    for (const std::string_view option :
         {"muon", "rownorm", "qnorm", "mirror", "split", "dplr", "feedback", "precondition", "gain"})
      if (r_.solver.has(option))
        fail(extra, {},
             name + " belongs to gradient steps on the memory itself, which " + quoted(option) +
                 " changes; keep one of them");
    if (is_deltaformer(d_)) fail(extra, {}, "`near(..) / constant / sgd` keeps values and no matrix; drop " + name);
  }

  void ridge() const {
    if (!s_.ridge.given()) return;
    if (s_.ridge_per == Solver::RidgePer::key && (m_.kind != Class::linear || widens()))
      fail(r_.solver, "ridge", "`ridge(key)` has one entry per key channel of a `linear` memory; write `ridge`");
    if (s_.ridge_kind == Solver::RidgeKind::frobenius && (m_.kind != Class::linear || near_on()))
      fail(r_.solver, "frobenius", "`frobenius` scales the ridge by |H|_F of a `linear` memory; use `relative`");
    if (s_.ridge_kind == Solver::RidgeKind::fading &&
        (near_on() || m_.kind == Class::kernel || w_.reach() > 0 || w_.power.given() || w_.levels))
      fail(r_.solver, "fading",
           "`fading` forgets the ridge with the oldest pairs of a `decay` or `gate`; it has no "
           "meaning with `near`, `window`, `levels`, `power`, `given`, `mask` or `kernel`");
    if (s_.ridge_kind == Solver::RidgeKind::fading && s_.ridge_per == Solver::RidgePer::token)
      fail(r_.solver, "fading",
           "`fading` starts from one ridge before the first pair; `ridge(token)` has one per token");
  }

  void loss() const {
    using Loss = Extras::Loss;
    if (e_.loss == Loss::squared) return;
    const Term& term = extra_term({"dot", "huber", "lp", "insensitive", "quantile", "logistic", "cross_entropy"});
    const bool steps =
        s_.kind == Kind::gd || s_.kind == Kind::sgd || s_.kind == Kind::minibatch || s_.kind == Kind::descend;
    if (!steps && s_.kind != Kind::irls)
      fail(term, {},
           quoted(term.word) + (e_.loss == Loss::dot ? " has no minimum, so " : " has no closed-form minimum, so ") +
               solver_name() + " cannot find it; use gradient steps such as `gd(1)` or `sgd(beta)`" +
               (e_.loss == Loss::dot ? "" : ", or `irls(n)`"));
    if (s_.kind == Kind::irls) {
      if (e_.loss == Loss::dot) fail(term, {}, "`dot` has no minimum, so `irls` cannot find it; use `gd(1)`");
      if (e_.loss == Loss::insensitive)
        fail(term, {},
             "`insensitive` gives the pairs inside its tube no weight at all, so `irls` has nothing to fit; use "
             "`gd(n)`");
      if (e_.loss == Loss::cross_entropy)
        fail(term, {},
             "`cross_entropy` ties the value channels together, which the weights of `irls` do not; use `gd(n)`");
      if (e_.loss == Loss::lp && e_.loss_parameter.value >= 3)
        fail(term, {},
             "`irls` converges for powers below 3 only; use `gd(n)` with `lp(" + shortest(e_.loss_parameter.value) +
                 ")`");
    }
    if (s_.rule == Solver::Rule::longhorn || s_.rule == Solver::Rule::flow)
      fail(term, {},
           "the longhorn and flow steps are solved for the squared loss; use `beta` with " + quoted(term.word));
    if (s_.split || s_.dplr || s_.feedback || s_.precondition)
      fail(term, {}, "this rule of `sgd` is defined for the squared loss; use `beta` with " + quoted(term.word));
    if (m_.kind == Class::slots || m_.kind == Class::vector)
      fail(term, {}, memory_name() + " has no residual to put a loss on; drop " + quoted(term.word));
    if (is_deltaformer(d_))
      fail(term, {}, "`near(..) / constant / sgd` corrects values by the squared loss; drop " + quoted(term.word));
    const bool channel_gated = w_.per != Per::token && s_.kind == Kind::gd;
    if (channel_gated && e_.loss != Loss::dot)
      fail(term, {}, "gates per channel are defined for the squared or dot loss; drop " + quoted(term.word));
    if ((w_.levels || w_.importance == Importance::trapezoid) && e_.loss != Loss::dot)
      fail(term, {}, "`levels` and `trapezoid` are defined for the squared or dot loss; drop " + quoted(term.word));
  }

  void readout() const {
    using Normalise = Extras::Normalise;
    const bool linear_step = m_.kind == Class::linear && !near_on() && one_batch_step() && !w_.levels && !w_.complex;
    if (e_.normalise == Normalise::keysum || e_.normalise == Normalise::max_one) {
      const Term& term = extra_term({"normalise"});
      const std::string_view option = e_.normalise == Normalise::keysum ? "keysum" : "max";
      if (!linear_step || w_.per == Per::value || w_.per == Per::key_value || w_.per == Per::full ||
          w_.importance == Importance::trapezoid)
        fail(term, option,
             "`normalise(" + std::string(option) +
                 ")` divides by the sum of the keys that `linear` with "
                 "`gd(1)` stores; for weights that sum to one write `near(exp) / constant / exact`");
      if (w_.signed_factors)
        fail(term, option,
             "`normalise(" + std::string(option) +
                 ")` divides by a sum of weights, which `signed` factors may make zero; use `normalise(rms)`");
      if (e_.read_before)
        fail(term, option,
             "`normalise(" + std::string(option) + ")` belongs to the state after the token; drop `read`");
      if (e_.loss != Extras::Loss::squared && e_.loss != Extras::Loss::dot)
        fail(term, option, "`normalise(" + std::string(option) + ")` goes with the squared or dot loss");
    }
    if (e_.read_before) {
      const Term& term = extra_term({"read"});
      if (near_on() || m_.kind == Class::kernel || m_.kind == Class::slots || w_.levels ||
          w_.importance == Importance::trapezoid)
        fail(term, {},
             "`read(before)` needs a state that exists before the token; it does not go with `near`, `kernel`, "
             "`slots`, `levels` or `trapezoid`");
      const bool mean = m_.kind == Class::constant && m_.per_channel;
      if (e_.bonus && !mean && !(linear_step && m_.feature == Memory::Feature::identity))
        fail(term, "bonus", "`bonus` weighs the newest token of `linear` with `gd(1)` or of `constant(channel)`");
    }
    if (e_.blend && (m_.kind != Class::linear || near_on() || m_.reverse ||
                     (s_.kind != Kind::exact && s_.kind != Kind::cg && s_.kind != Kind::chebyshev)))
      fail(extra_term({"blend"}), {},
           "`blend` lies between the query and its solve; it needs a `linear` memory with "
           "`exact`, `cg` or `chebyshev`");
    if (e_.blend && e_.read_before)
      fail(extra_term({"blend"}), {}, "`blend` reads the state after the token; drop `read`");
    if (e_.keys != Extras::Keys::raw && (m_.kind == Class::vector || (m_.kind == Class::constant && !near_on())))
      fail(extra_term({"keys"}), {}, memory_name() + " reads no keys, so `keys` has nothing to normalise; drop it");
  }

  const Recipe& r_;
  const Weights& w_;
  const Memory& m_;
  const Solver& s_;
  const Extras& e_;
  const Design& d_;
};

}  // namespace

bool is_network(const Memory& m) {
  return m.kind == Class::mlp || m.kind == Class::swiglu || m.kind == Class::layernorm_linear;
}

bool is_deltaformer(const Design& d) { return d.weights.near != Kernel::none && d.solver.kind == Kind::sgd; }

bool sees_newest_only(const Design& d) {
  const Kind kind = d.solver.kind;
  return (kind == Kind::sgd && !is_deltaformer(d)) || kind == Kind::minibatch || kind == Kind::apa ||
         kind == Kind::kalman;
}

bool forgets_by_window(const Design& d) { return !sees_newest_only(d) || d.memory.kind == Class::kernel; }

void check_combination(const Recipe& recipe, const Design& design) { Check(recipe, design).run(); }

std::vector<std::string> remarks_on(const Recipe& recipe, const Design& d) {
  std::vector<std::string> out;
  const Weights& w = d.weights;
  const Solver& s = d.solver;
  const Term* const window = term_of(recipe.weights, {"window"});
  const bool idle_window = window != nullptr && !forgets_by_window(d);
  const Term* const fade = term_of(recipe.weights, {"gate", "decay", "power"});
  if (sees_newest_only(d) && (fade != nullptr || idle_window)) {
    Recipe plain = recipe;
    plain.weights = {window != nullptr && !idle_window ? *window : Term{"equal", {}, 0}};
    std::string text = std::string(s.kind == Kind::minibatch ? "minibatch steps see only the pairs of their block"
                                   : s.kind == Kind::apa     ? "affine projection sees only the newest pairs"
                                   : s.kind == Kind::kalman  ? "the Kalman filter forgets through `process`"
                                                             : "per-pair SGD sees only the newest pair") +
                       ", so the weights `" + (fade != nullptr ? std::string(fade->word) : "window") +
                       "` change nothing: this is `" + to_string(plain) + "`";
    if ((s.kind == Kind::sgd || s.kind == Kind::minibatch) && w.fade != Weights::Fade::equal &&
        s.decay_kind == Solver::Decay::none && !s.split && !s.dplr) {
      Argument decay{"decay", {}, 0};
      if (w.per == Per::key && d.memory.kind == Class::linear)
        decay.value = Term{"decay", {Argument{"key", {}, 0}}, 0};
      if (w.per == Per::value && d.memory.kind == Class::linear)
        decay.value = Term{"decay", {Argument{"value", {}, 0}}, 0};
      if (w.decay.is_constant())
        decay.value = std::round((1 - w.decay.value) * 1e12) / 1e12;  // 0.02, not 0.02000..18
      Recipe meant = plain;
      meant.solver.arguments.push_back(decay);
      text += "; to forget the state before each step write `" + to_string(meant) + "`";
    }
    out.push_back(text);
  }
  if (w.fade == Weights::Fade::decay && w.decay.is_constant() && w.decay.value == 1)
    out.push_back("`decay(1)` forgets nothing: it is `equal`");
  if (d.memory.kind == Class::local && d.memory.order == 0)
    out.push_back("`local(0)` is the weighted mean: it is `constant`");
  if (d.memory.kind == Class::kernel && d.memory.kernel == Kernel::linear)
    out.push_back("`kernel(linear)` spans the same functions as `linear`, which needs no list of pairs");
  if (s.kind == Kind::exact && !s.ridge.given() && d.memory.kind == Class::linear && w.near == Kernel::none)
    out.push_back(
        "without a ridge the answer has the least norm until as many independent keys as features were seen");
  if (s.kind == Kind::irls && d.extras.loss == Extras::Loss::squared)
    out.push_back("the squared loss weighs every residual alike: `irls` is `exact`");
  if (s.kind == Kind::minibatch && s.batch == 1 && s.decay_kind != Solver::Decay::before)
    out.push_back("`minibatch(1)` takes every gradient at the newest weights: it is `sgd`");
  if (s.ridge_kind == Solver::RidgeKind::fading && w.fade == Weights::Fade::equal)
    out.push_back("with `equal` weights nothing fades: `fading` changes nothing");
  if (d.extras.loss == Extras::Loss::dot && s.kind == Kind::gd && s.steps == 1 && s.rule != Solver::Rule::automatic &&
      !is_network(d.memory))
    out.push_back("one step from zero has the same gradient for `dot` and `squared`: `dot` changes nothing");
  if (d.extras.keys == Extras::Keys::unit && d.memory.kind == Class::linear &&
      d.memory.feature == Memory::Feature::identity &&
      (s.rule == Solver::Rule::nlms || s.rule == Solver::Rule::longhorn || s.rule == Solver::Rule::flow))
    out.push_back("keys of length 1 make the step rule a function of its input alone: `sgd(beta)` with another beta");
  return out;
}

}  // namespace ttr
