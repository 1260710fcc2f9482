// Layers on a stream of rows, where nothing is learned beforehand.
#pragma once

#include <string>
#include <string_view>

#include "ttr/recipe.h"

namespace ttr {

/// Newest pairs that a layer without a state of fixed size keeps on a stream.
inline constexpr int stream_window = 1024;

/// The recipe text of a layer name ("nlms"), a name with settings ("rls:decay=0.99,ridge=1e-3") or a recipe, in
/// which every quantity that a model would learn or compute per token is a constant: the setting given, else the
/// layer's stream default. Layers that keep their pairs get `window(stream_window)` unless they have a window.
/// Throws Error for unknown layers and settings, and for a recipe that cannot run without further inputs.
std::string stream_recipe(std::string_view layer_or_recipe);

}  // namespace ttr
