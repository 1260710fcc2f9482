#include "language/schedule.h"

#include <algorithm>

namespace ttr::model {

std::vector<Step> schedule(const Graph& graph) {
  const std::size_t count = graph.nodes.size();
  std::vector<bool> done(count, false);
  const auto ready = [&](std::size_t i) {
    for (const Operand& operand : graph.nodes[i].in)
      if (operand.value.there() && !done[static_cast<std::size_t>(operand.value.node)]) return false;
    return true;
  };
  std::vector<Step> steps;
  std::size_t left = count, first = 0;  // all before `first` are done
  // Products wait until nothing else can run, and then all that can run go together. Nodes stand behind what they read, so
  // what is ready lies near the first that is not done: a window keeps this linear in the number of blocks.
  constexpr std::size_t window = 256;
  while (left > 0) {
    while (first < count && done[first]) ++first;
    const std::size_t end = std::min(count, first + window);
    bool found = false;
    for (std::size_t i = first; i < end; ++i)
      if (!done[i] && graph.nodes[i].kind != Node::Kind::linear && ready(i)) {
        steps.push_back({false, {i}});
        done[i] = found = true, --left;
      }
    if (found) continue;
    Step step{true, {}};
    for (std::size_t i = first; i < end; ++i)
      if (!done[i] && graph.nodes[i].kind == Node::Kind::linear && ready(i)) step.nodes.push_back(i);
    for (const std::size_t i : step.nodes) done[i] = true, --left;
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace ttr::model
