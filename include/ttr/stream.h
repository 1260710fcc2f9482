// Layers on a stream of rows, where nothing is learned beforehand.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ttr/recipe.h"

namespace ttr {

/// Newest pairs that a layer without a state of fixed size keeps on a stream.
inline constexpr int stream_window = 1024;

/// The recipe text of a layer name ("nlms"), a name with settings ("rls:decay=0.99,ridge=1e-3") or a recipe, in
/// which every quantity that a model would learn or compute per token is a constant: the setting given, else the
/// layer's stream default. Layers that keep their pairs get `window(stream_window)` unless they have a window.
/// A recipe is otherwise left as it is; a named network loses its layer norm and its residual. What was changed is
/// added to `changes`, one sentence each. Throws Error for unknown layers and settings, and for a recipe that cannot
/// run without further inputs.
std::string stream_recipe(std::string_view layer_or_recipe, std::vector<std::string>* changes = nullptr);

/// Where an input of a layer comes from.
struct StreamInput {
  enum class Source { query, key, value, number, identity, random, cosine, scores, shares };  // src/plan/stream.cc
  std::string name;
  Source source = Source::number;
  double number = 1;       // the number, or a factor on what comes from the row
  double shift = 0;        // query, key: added to every entry
  bool unit = false;       // query, key: of length one
  std::string words = {};  // all of it, to be read: "0.02 value"
};

/// What runs on a stream.
struct StreamText {
  std::string text;                  // for plan(): a recipe, or a layer with settings
  std::string recipe;                // the recipe that this is
  bool as_layer = false;             // the layer with inputs of its own, not the recipe alone
  std::vector<StreamInput> inputs;   // those that the plan has; others are already numbers
  std::vector<std::string> changes;  // what is not as it was written, one sentence each
};

/// As stream_recipe, and layers that are more than their recipe with numbers for what a model would compute.
StreamText stream_layer(std::string_view layer_or_recipe);

/// Empty, or the sentence that stream_layer refuses a layer with.
std::string why_not_on_a_stream(std::string_view layer);

}  // namespace ttr
