// Puts the pieces of a derivation together and compares the recipe with those of named layers: not their spelling but
// what the rules of recipe/equal.h make of both.
#include "recipe/derive.h"

#include <algorithm>

#include "recipe/combine.h"
#include "recipe/derive_parts.h"
#include "recipe/equal.h"
#include "recipe/markup.h"

namespace ttr {
namespace {

/// A way to write a recipe, and what it means.
struct Spelling {
  Recipe recipe;
  Design design;
};

/// The recipe as it is, as every rule that keeps its inputs leaves it, and otherwise: first as given, last the simplest.
std::vector<Spelling> spellings_of(const Recipe& recipe, const Chain& chain) {
  std::vector<Spelling> list = {{recipe, interpret(recipe)}};
  for (const Rewriting& link : with_the_same_inputs(chain)) list.push_back({link.recipe, link.design});
  return list;
}

std::string term_text(const Term& term) {
  Recipe holder;
  holder.weights = {term};
  const std::string text = to_string(holder);
  return text.substr(0, text.find(" / "));
}

/// A polynomial around the query, of order 0 (the weighted mean) or more.
bool is_local(const Design& d) {
  return d.weights.near != Kernel::none &&
         (d.memory.kind == Memory::Class::constant || d.memory.kind == Memory::Class::local);
}

Solver without_ridge(Solver s) {
  s.ridge = {}, s.ridge_kind = {}, s.ridge_per = {};
  return s;
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
  // Local polynomials of different order: their ridge is on slopes that one of them may not have.
  const bool orders = is_local(mine) && is_local(other) && !(mine.memory == other.memory);
  if (!(mine.solver == other.solver) && !(orders && without_ridge(mine.solver) == without_ridge(other.solver)))
    found.push_back("solver: " + term_text(other_recipe.solver));
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
  extra(a.loss != b.loss || !(a.loss_parameter == b.loss_parameter) || a.read_mean != b.read_mean,
        {"dot", "huber", "lp", "insensitive", "quantile", "logistic", "cross_entropy", "squared"}, "another loss");
  extra(!(a.l1 == b.l1), {"l1"}, "l1");
  extra(!(a.l2 == b.l2), {"l2"}, "l2");
  extra(a.normalise != b.normalise || a.normalise_eps != b.normalise_eps, {"normalise"}, "normalise");
  extra(a.read_before != b.read_before || a.bonus != b.bonus, {"read"}, "read(before)");
  extra(a.blend != b.blend, {"blend"}, "blend");
  extra(a.keys != b.keys, {"keys"}, "keys");
  if (found.empty()) return "";
  return found.size() == 1 ? found.front() : "-";
}

/// "near(exp) / constant / exact: why (who)".
std::string reason(const Rewriting& link, Notation notation) {
  std::string text = prose("`" + to_string(link.recipe) + "`: ", notation) + render(link.rule->because, notation);
  if (!link.inputs.empty()) text += " (" + render(link.inputs, notation) + ")";
  if (!link.rule->source.empty()) text += " [" + prose(link.rule->source, notation) + "]";
  return text;
}

/// Named layers that are the same function, also of other inputs; those one choice away; and why.
void compare(const Recipe& recipe, Notation notation, bool causal, std::span<const NamedRecipe> named,
             Derivation& out) {
  const Chain chain = rewritten(recipe);
  const std::vector<Spelling> mine = spellings_of(recipe, chain);
  std::vector<Spelling> around = mine;  // where neighbours are looked for
  for (const Rewriting& other : other_spellings(mine.back().recipe, mine.back().design))
    around.push_back({other.recipe, other.design});
  const std::size_t same = mine.size() - 1;  // links of the chain that keep the inputs
  std::size_t told = same;
  out.simplest =
      prose(notation == Notation::latex ? "`" + to_string(mine.back().recipe) + "`" : to_string(mine.back().recipe),
            notation);
  for (const auto& [name, text, other_causal] : named) {
    const Recipe other = parse_recipe(text);
    const Chain other_chain = rewritten(other);
    std::vector<Spelling> theirs = spellings_of(other, other_chain);
    const Spelling simplest = theirs.back();
    if (causal == other_causal && mine.back().design == simplest.design) {
      out.equals.push_back(prose(name, notation));
      continue;
    }
    std::string inputs;
    for (std::size_t i = same; i < chain.size() && causal == other_causal; ++i) {
      if (!chain[i].inputs.empty()) inputs += (inputs.empty() ? "" : ", then ") + chain[i].inputs;
      if (!(chain[i].design == simplest.design)) continue;
      out.equals_with.push_back(prose(name, notation) + " with " + render(inputs, notation));
      told = std::max(told, i + 1);
      break;
    }
    for (const Rewriting& spelled : other_spellings(simplest.recipe, simplest.design))
      theirs.push_back({spelled.recipe, spelled.design});
    std::string best = "-";
    for (const Spelling& a : around)
      for (const Spelling& b : theirs)
        if (best == "-") best = difference(a.design, causal, b.design, other_causal, b.recipe);
    if (!best.empty() && best != "-") out.neighbours.push_back(prose(name + " (" + best + ")", notation));
  }
  for (std::size_t i = 0; i < told; ++i)
    if (!chain[i].rule->remarked) out.because.push_back(reason(chain[i], notation));
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
  compare(recipe, notation, facts.causal, named, out);
  for (const std::string& remark : remarks_on(recipe, design)) out.remarks.push_back(prose(remark, notation));
  return out;
}

}  // namespace ttr
