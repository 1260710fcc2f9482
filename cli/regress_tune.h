// --tune: the settings of a layer that are tried side by side.
//
// All of them run over the whole stream, and at every row the forecast is their aggregation (regress_mix.h) with the
// weights that earlier rows have earned them. So nothing is chosen by what comes later: a prequential grid.
#pragma once

#include <string>
#include <vector>

namespace ttr::cli {

/// The layer with a grid of settings ("rls:decay=0.98,ridge=0.1", ...), the defaults among them. Settings that `text` gives
/// stay as they are; a recipe, and a layer that has nothing to tune, comes back alone.
std::vector<std::string> settings_to_try(const std::string& text);

}  // namespace ttr::cli
