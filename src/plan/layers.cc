// The public list of layers, and derivations that know it.
#include <algorithm>

#include "plan/pipeline.h"
#include "plan/text.h"
#include "recipe/derive.h"

namespace ttr {

std::span<const LayerInfo> layers() {
  static const std::vector<LayerInfo> all = [] {
    std::vector<LayerInfo> list;
    for (const zoo::Declaration& declaration : zoo::declarations()) {
      LayerInfo info = declaration.info;
      const Plan p = plan(info.name, {.heads = 1, .key_dim = 4, .value_dim = 4});
      for (Form form : p.forms()) info.forms.emplace_back(to_string(form));
      for (Form form : {Form::chunk, Form::parallel, Form::scan})
        if (std::find(p.forms().begin(), p.forms().end(), form) == p.forms().end())
          info.absent_forms.push_back(std::string(to_string(form)) + ": " + std::string(p.why_absent(form)));
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

Derivation derive(const Recipe& recipe, Notation notation) {
  std::vector<std::pair<std::string, std::string>> named;
  for (const zoo::Declaration& declaration : zoo::declarations())
    if (!declaration.is_operation()) named.emplace_back(declaration.info.name, declaration.info.recipe);
  return derive(recipe, notation, named);
}

}  // namespace ttr
