// Puts the pieces of a derivation together and compares the design with those of named layers. Choices without
// effect (a gate before per-pair steps, dot after one step from zero) do not count as differences.
#include "recipe/derive.h"

#include "recipe/combine.h"
#include "recipe/derive_parts.h"
#include "recipe/design.h"
#include "recipe/markup.h"

namespace ttr {
namespace {

/// The design without the choices that have no effect, so that equal layers compare equal.
Design simplest(Design d) {
  if (sees_newest_only(d)) {
    const int window = d.weights.window;  // 0 unless it matters: interpret sees to that
    d.weights = Weights{};
    d.weights.window = window;
  }
  if (d.weights.fade == Weights::Fade::decay && d.weights.decay.is_constant() && d.weights.decay.value == 1) {
    d.weights.fade = Weights::Fade::equal;
    d.weights.decay = {};
  }
  if (d.memory.kind == Memory::Class::local && d.memory.order == 0) d.memory.kind = Memory::Class::constant;
  if (d.memory.feature != Memory::Feature::polynomial && d.memory.feature != Memory::Feature::dpfp &&
      d.memory.kind != Memory::Class::kernel)
    d.memory.degree = 2;
  if (d.solver.kind == Solver::Kind::gd && d.solver.steps == 1 && d.extras.loss == Extras::Loss::dot &&
      d.memory.kind == Memory::Class::linear)
    d.extras.loss = Extras::Loss::squared;
  return d;
}

std::string term_text(const Term& term) {
  Recipe holder;
  holder.weights = {term};
  const std::string text = to_string(holder);
  return text.substr(0, text.find(" / "));
}

/// How `other` differs from `mine` if it does by exactly one choice: "weights: decay(g)"; "" if equal; "-" if more.
std::string difference(const Design& mine, bool causal, const Design& other, bool other_causal,
                       const Recipe& other_recipe) {
  std::vector<std::string> found;
  if (causal != other_causal) found.push_back(other_causal ? "causal" : "not causal");
  if (!(mine.weights == other.weights)) {
    std::string text;
    for (const Term& term : other_recipe.weights) text += (text.empty() ? "" : " * ") + term_text(term);
    found.push_back("weights: " + text);
  }
  if (!(mine.memory == other.memory)) found.push_back("memory: " + term_text(other_recipe.memory));
  if (!(mine.solver == other.solver)) found.push_back("solver: " + term_text(other_recipe.solver));
  const auto extra = [&](bool differs, std::initializer_list<std::string_view> words, const std::string& without) {
    if (!differs) return;
    for (const Term& term : other_recipe.extras)
      for (const std::string_view word : words)
        if (term.word == word) {
          found.push_back("extra: " + term_text(term));
          return;
        }
    found.push_back("extra: without " + without);
  };
  const Extras &a = mine.extras, &b = other.extras;
  extra(a.loss != b.loss || !(a.loss_parameter == b.loss_parameter), {"dot", "huber", "lp", "squared"},
        "another loss");
  extra(a.normalise != b.normalise || a.normalise_eps != b.normalise_eps, {"normalise"}, "normalise");
  extra(a.read_before != b.read_before || a.bonus != b.bonus, {"read"}, "read(before)");
  extra(a.blend != b.blend, {"blend"}, "blend");
  extra(a.keys != b.keys, {"keys"}, "keys");
  if (found.empty()) return "";
  return found.size() == 1 ? found.front() : "-";
}

}  // namespace

Derivation derive(const Recipe& recipe, Notation notation, const PlanFacts& facts,
                  std::span<const NamedRecipe> named) {
  const Design design = interpret(recipe);
  const derivation::Symbols symbols(design, facts.causal);
  Derivation out;
  const std::string text = to_string(recipe);
  out.recipe = notation == Notation::latex ? prose("`" + text + "`", notation) : text;
  out.objective = render(derivation::objective(symbols), notation);
  out.gradient = render(derivation::gradient(symbols), notation);
  out.recurrence = render(derivation::recurrence(symbols), notation);
  out.readout = render(derivation::readout(symbols), notation);
  out.state_size = render(derivation::state_size(symbols), notation);
  out.cost_per_token = render(derivation::cost(symbols), notation);
  for (const std::string& form : facts.forms) out.forms.push_back(prose(form, notation));
  for (const std::string& absent : facts.absent_forms) out.forms.push_back(prose("no " + absent, notation));
  const Design mine = simplest(design);
  for (const auto& [name, other_text, other_causal] : named) {
    const Recipe other = parse_recipe(other_text);
    const std::string what = difference(mine, facts.causal, simplest(interpret(other)), other_causal, other);
    if (what.empty()) out.equals.push_back(prose(name, notation));
    else if (what != "-") out.neighbours.push_back(prose(name + " (" + what + ")", notation));
  }
  for (const std::string& remark : remarks_on(recipe, design)) out.remarks.push_back(prose(remark, notation));
  return out;
}

}  // namespace ttr
