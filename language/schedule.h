// The order in which the nodes of a graph run: products that do not wait for each other become one step, which threads share
// as a whole: q, k, v and gates of a block, or both halves of a perceptron; and so do mixers.
#pragma once

#include <vector>

#include "language/graph.h"

namespace ttr::model {

struct ScheduledStep {
  enum class Kind { one, products, mixers } kind = Kind::one;
  std::vector<std::size_t> nodes;
};

/// Every node once, after those it reads.
std::vector<ScheduledStep> schedule(const Graph&);

}  // namespace ttr::model
