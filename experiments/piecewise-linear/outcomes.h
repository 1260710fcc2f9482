// What the paper says in words about its experiment, asked of the numbers of this one.
#pragma once

#include <string>
#include <vector>

#include "sweep.h"

namespace ttr::piecewise {

/// A difference counts if it is larger than twice the standard error of the paired differences.
struct Outcome {
  std::string statement;  // as published
  int shown = 0, of = 0;  // cells (or columns of the sweep) in which it holds
  std::string remark;     // where not, or by how much
};

std::vector<Outcome> outcomes(const std::vector<Cell>&, const SweepOptions&);

/// The layer with the least mean loss, those that are told of the changes left out.
const LayerResult& best_layer(const Cell&);

}  // namespace ttr::piecewise
