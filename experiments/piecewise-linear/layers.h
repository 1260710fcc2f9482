// The layers of the experiment, each with the grid of settings it may choose from.
#pragma once

#include <string>
#include <vector>

#include "piecewise_linear.h"

namespace ttr::piecewise {

struct Layer {
  std::string name;
  int hue, dash;                     // of its line, see cli/plot.h
  std::vector<std::string> recipes;  // the grid, constants filled in
  bool told = false;                 // forgets everything at each change, which no layer of a model could know
};

constexpr int local_linear = 0, softmax = 1, least_squares = 2;  // places in the list, for the published outcomes

std::vector<Layer> layers(const Spec&);

}  // namespace ttr::piecewise
