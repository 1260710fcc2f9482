// The public list of layers, and derivations that know it.
#include <algorithm>

#include "plan/pipeline.h"
#include "plan/text.h"
#include "recipe/derive.h"
#include "recipe/markup.h"
#include "ttr/origins.h"

namespace ttr {
namespace {

std::vector<std::string> forms_of(const Plan& p) {
  std::vector<std::string> words;
  for (Form form : p.forms()) words.emplace_back(to_string(form));
  return words;
}

std::vector<std::string> absent_forms_of(const Plan& p) {
  std::vector<std::string> sentences;
  for (Form form : {Form::chunk, Form::parallel, Form::scan})
    if (std::find(p.forms().begin(), p.forms().end(), form) == p.forms().end())
      sentences.push_back(std::string(to_string(form)) + ": " + std::string(p.why_absent(form)));
  return sentences;
}

Derivation derive(const Recipe& recipe, Notation notation, const Plan& p) {
  std::vector<NamedRecipe> named;
  for (const zoo::Declaration& declaration : zoo::declarations())
    if (!declaration.is_operation())
      named.push_back({declaration.info.name, declaration.info.recipe, !declaration.whole});
  const PlanFacts facts{p.options().causal, forms_of(p), absent_forms_of(p)};
  return derive(recipe, notation, facts, named);
}

}  // namespace

std::span<const LayerInfo> layers() {
  static const std::vector<LayerInfo> all = [] {
    std::vector<LayerInfo> list;
    for (const zoo::Declaration& declaration : zoo::declarations()) {
      LayerInfo info = declaration.info;
      const Plan p = plan(info.name, {.heads = 1, .key_dim = 4, .value_dim = 4});
      info.forms = forms_of(p), info.absent_forms = absent_forms_of(p);
      info.states.assign(p.states().begin(), p.states().end());
      list.push_back(std::move(info));
    }
    return list;
  }();
  return all;
}

const LayerInfo& find_layer(std::string_view name) {
  const std::string& found = find_declaration(name).info.name;  // throws, with suggestions
  const auto all = layers();
  return *std::find_if(all.begin(), all.end(), [&](const LayerInfo& info) { return info.name == found; });
}

std::string departure(const LayerInfo& info, Notation notation) { return prose(info.departure, notation); }

Derivation derive(const Plan& p, Notation notation) { return derive(p.recipe(), notation, p); }

// Which family runs a recipe does not depend on its sizes, so they are small: a network as wide as the recipe says need
// not fit into memory to be derived.
Derivation derive(const Recipe& recipe, Notation notation) {
  Recipe small = recipe;
  for (Argument& argument : small.memory.arguments)
    if (argument.key == "width") argument.value = 4.0;
  return derive(recipe, notation, plan(small, {.heads = 1, .key_dim = 4, .value_dim = 4}));
}

}  // namespace ttr
