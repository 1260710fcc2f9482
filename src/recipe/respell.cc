// From a design back to words. Parts that did not change keep their words, and the result is interpreted again: if that
// does not give the wanted design (a word that this file does not know, a combination without a meaning), there is none.
#include "recipe/equal.h"
#include "ttr/status.h"

namespace ttr {
namespace {

class Words {
 public:
  explicit Words(std::string word) : term_{std::move(word), {}, 0} {}
  Words& flag(std::string_view key, bool given = true) {
    if (given) term_.arguments.push_back({std::string(key), {}, 0});
    return *this;
  }
  Words& number(std::string_view key, double value) {
    term_.arguments.push_back({std::string(key), value, 0});
    return *this;
  }
  Words& number_unless(std::string_view key, double value, double otherwise) {
    return value == otherwise ? *this : number(key, value);
  }
  Words& quantity(std::string_view key, const Quantity& q) {
    if (q.is_constant()) return number(key, q.value);
    return flag(key, q.is_input());
  }
  Words& call(const std::string& key, const std::string& word) {
    term_.arguments.push_back({key, Term{key, {Argument{word, {}, 0}}, 0}, 0});
    return *this;
  }
  Words& choice(const std::string& key, const std::string& word) {
    term_.arguments.push_back({key, Term{word, {}, 0}, 0});
    return *this;
  }
  operator Term() const { return term_; }

 private:
  Term term_;
};

std::string name_of(Kernel kernel) {
  switch (kernel) {
    case Kernel::exponential:
      return "exp";
    case Kernel::gaussian:
      return "gauss";
    case Kernel::linear:
      return "linear";
    case Kernel::polynomial:
      return "polynomial";
    case Kernel::laplace:
      return "laplace";
    case Kernel::matern32:
      return "matern32";
    case Kernel::matern52:
      return "matern52";
    case Kernel::epanechnikov:
      return "epanechnikov";
    case Kernel::tricube:
      return "tricube";
    case Kernel::box:
      return "box";
    default:
      return "";  // nearest has a number
  }
}

Term fade(const Weights& w) {
  using Fade = Weights::Fade;
  using Per = Weights::Per;
  Words words(w.fade == Fade::equal ? "equal" : w.fade == Fade::decay ? "decay" : "gate");
  if (w.fade == Fade::decay) {
    if (w.decay.is_constant()) words.number("", w.decay.value);
    else words.flag("g");
  }
  words.flag("key", w.per == Per::key || w.per == Per::key_value);
  words.flag("value", w.per == Per::value || w.per == Per::key_value);
  words.flag("full", w.per == Per::full).flag("complex", w.complex).flag("signed", w.signed_factors);
  if (w.importance == Weights::Importance::beta) words.quantity("beta", w.beta);
  words.flag("exponential", w.importance == Weights::Importance::exponential);
  words.flag("trapezoid", w.importance == Weights::Importance::trapezoid);
  return words;
}

std::vector<Term> weights(const Weights& w) {
  std::vector<Term> terms;
  if (w.near != Kernel::none)
    terms.push_back(Words("near")
                        .flag(name_of(w.near), w.near != Kernel::nearest)
                        .number_unless("nearest", w.neighbours, 0)
                        .number_unless("scale", w.near_scale, 0)
                        .quantity("bandwidth", w.bandwidth)
                        .flag("sink", w.sink)
                        .flag("transport", w.transport));
  const bool plain = w.fade == Weights::Fade::equal && w.importance == Weights::Importance::one;
  if (!plain || (w.near == Kernel::none && w.window == 0 && !w.levels)) terms.push_back(fade(w));
  if (w.window > 0) terms.push_back(Words("window").number("", w.window));
  if (w.levels) terms.push_back(Words("levels").number_unless("", w.level_count, 0));
  return terms;
}

Term memory(const Memory& m) {
  switch (m.kind) {
    case Memory::Class::constant:
      return Words("constant").flag("channel", m.per_channel);
    case Memory::Class::local:
      return Words("local").number("", m.order);
    case Memory::Class::kernel:
      return Words("kernel")
          .flag(name_of(m.kernel))
          .number_unless("scale", m.kernel_scale, 0)
          .quantity("bandwidth", m.bandwidth)
          .number_unless("degree", m.degree, 2);
    default:
      return Words("linear").flag("reverse", m.reverse);  // features, networks, slots: no rule makes them
  }
}

void descent(const Solver& s, Words& words) {
  if (s.decay_kind == Solver::Decay::before && s.decay_per == Weights::Per::key) words.call("decay", "key");
  else if (s.decay_kind == Solver::Decay::before && s.decay_per == Weights::Per::value) words.call("decay", "value");
  else if (s.decay_kind == Solver::Decay::before) words.quantity("decay", s.decay);
  if (s.decay_kind == Solver::Decay::leak) words.quantity("leak", s.decay);
  if (s.decay_kind == Solver::Decay::shrink) words.quantity("shrink", s.decay);
  words.quantity("momentum", s.momentum).flag("nesterov", s.nesterov);
  words.flag("muon", s.muon).flag("rownorm", s.row_norm).number_unless("qnorm", s.q_norm, 0);
}

Term solver(const Solver& s) {
  using Kind = Solver::Kind;
  using Rule = Solver::Rule;
  switch (s.kind) {
    case Kind::gd:
    case Kind::descend: {
      Words words(s.kind == Kind::gd ? "gd" : "descend");
      words.number("", s.steps);
      if (s.rule == Rule::automatic) words.choice("step", "auto");
      else words.quantity("step", s.step);
      if (s.kind == Kind::descend) descent(s, words);
      return words;
    }
    case Kind::sgd: {
      Words words("sgd");
      words.number_unless("", s.steps, 1);
      words.quantity(s.rule == Rule::nlms       ? "nlms"
                     : s.rule == Rule::longhorn ? "longhorn"
                     : s.rule == Rule::flow     ? "flow"
                                                : "beta",
                     s.step);
      words.number_unless("eps", s.eps, 0).number_unless("pairs", s.pairs, 1);
      descent(s, words);
      words.quantity("gain", s.gain).flag("feedback", s.feedback).flag("split", s.split).flag("dplr", s.dplr);
      return words.flag("precondition", s.precondition);
    }
    case Kind::minibatch: {
      Words words("minibatch");
      words.number("", s.batch).quantity("rate", s.step);
      descent(s, words);
      return words;
    }
    case Kind::apa:
      return Words("apa").number("", s.batch).quantity("mu", s.step).number_unless("eps", s.eps, 0);
    case Kind::kalman:
      return Words("kalman").quantity("process", s.process).quantity("noise", s.noise);
    case Kind::given:
      return Words("given");
    default:
      break;
  }
  Words words(s.kind == Kind::exact ? "exact" : s.kind == Kind::cg ? "cg" : "chebyshev");
  if (s.kind != Kind::exact) words.number("", s.steps);
  if (s.ridge_per == Solver::RidgePer::key) words.call("ridge", "key");
  else if (s.ridge_per == Solver::RidgePer::token) words.call("ridge", "token");
  else words.quantity("ridge", s.ridge);
  words.flag("relative", s.ridge_kind == Solver::RidgeKind::relative);
  words.flag("frobenius", s.ridge_kind == Solver::RidgeKind::frobenius);
  return words.flag("fading", s.ridge_kind == Solver::RidgeKind::fading);
}

/// Losses and key norms may go; nothing is added but the squared loss, which is not written.
std::vector<Term> extras(const std::vector<Term>& from, const Extras& before, const Extras& after) {
  std::vector<Term> terms;
  for (const Term& term : from) {
    const bool loss = term.word == "squared" || term.word == "dot" || term.word == "huber" || term.word == "lp" ||
                      term.word == "insensitive" || term.word == "quantile" || term.word == "logistic" ||
                      term.word == "cross_entropy";
    if (loss && before.loss != after.loss) continue;
    if (term.word == "keys" && before.keys != after.keys) continue;
    terms.push_back(term);
  }
  return terms;
}

}  // namespace

std::optional<Recipe> respelled(const Recipe& recipe, const Design& before, const Design& after) {
  Recipe out = recipe;
  if (!(before.weights == after.weights)) out.weights = weights(after.weights);
  if (!(before.memory == after.memory)) out.memory = memory(after.memory);
  if (!(before.solver == after.solver)) out.solver = solver(after.solver);
  if (!(before.extras == after.extras)) out.extras = extras(recipe.extras, before.extras, after.extras);
  try {
    if (interpret(out) == after) return out;
  } catch (const Error&) {  // the words have no meaning together
  }
  return std::nullopt;
}

}  // namespace ttr
