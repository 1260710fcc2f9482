// The layers as a picture: Figure 1 of the test-time regression paper (Wang, Shi, Fox 2025, arXiv 2501.12352), drawn
// from the declarations of the zoo.
//
//   a band is how the regression is solved        batch gradient descent, SGD, Newton; networks; kernels, local polynomials
//   a column is what the weights forget            nothing, a window, a constant decay, a gate per token, per channel
//   a point is a layer                             full: a state of fixed size; ring: it keeps its pairs; diamond: no state
//
// Band and column follow from the words of the recipe, so that a new layer is on the map without another line of code. A
// solver that nobody has sorted yet gets a band of its own at the end.
// Trap: what a solver forgets (`sgd(decay)`) is in the solver's term and not among the weights; the column looks at both.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ttr/layer.h"
#include "ttr/recipe.h"

namespace ttr::cli {

enum class Family { batch, stochastic, newton, network, kernel, local, other };
enum class Forgets { nothing, window, decay, token, channel };
constexpr int family_count = 7, forgets_count = 5;

Family family_of(const Recipe&);
Forgets forgets_of(const Recipe&);

struct MapPoint {
  std::string name, hint;  // what is written, and what a pointer that rests on it shows
  Family family = Family::batch;
  Forgets forgets = Forgets::nothing;
  enum class State { fixed, grows, none } state = State::fixed;  // none: it sees the whole sequence at once
  double x = 0, y = 0;                                           // of the dot
  double left = 0, right = 0;                                    // of dot and label together
  double height = 0;                                             // of the line it has for itself
};

struct LayerMap {
  std::vector<MapPoint> points;
  std::array<double, forgets_count> column_left{}, column_width{};
  std::array<double, family_count> band_top{}, band_height{};  // height 0: nothing is in it
  double width = 0, height = 0;
};

/// Layers without a recipe are operations and no regression: they are not on the map.
LayerMap layer_map(std::span<const LayerInfo>);
/// A complete file, light and dark.
std::string map_svg(const LayerMap&);

}  // namespace ttr::cli
