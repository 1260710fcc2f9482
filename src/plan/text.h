// Names with settings: "rls:decay=0.99,ridge=1e-3" is the layer rls with two changes to its recipe.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ttr/layer.h"
#include "ttr/recipe.h"
#include "zoo/zoo.h"

namespace ttr {

using Settings = std::map<std::string, std::string>;

/// What a user wrote: a recipe (it has a slash), or a layer with settings.
struct LayerText {
  const zoo::Declaration* layer = nullptr;
  Settings settings;
  Recipe recipe;  // the recipe, or the layer's own before its settings
};
LayerText read_layer_text(std::string_view text);

/// Changes the recipe as one setting says. Throws Error for a value that makes no sense.
void apply_setting(Recipe&, const std::string& name, const std::string& value);

/// Applies all settings; throws Error for one the layer does not have.
void apply_settings(Recipe&, const zoo::Declaration*, const Settings&);

/// stream_recipe, with inputs that a stream has beside q, k and v: those of the memory for which `has` is true.
std::string stream_recipe(std::string_view text, std::vector<std::string>* changes,
                          bool (*has)(const Term& memory, std::string_view input));

/// The declaration of a name, or an Error that suggests near names.
const zoo::Declaration& find_declaration(std::string_view name);

}  // namespace ttr
