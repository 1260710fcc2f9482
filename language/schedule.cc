#include "language/schedule.h"

#include <algorithm>

namespace ttr::model {

std::vector<ScheduledStep> schedule(const Graph& graph) {
  const std::size_t count = graph.nodes.size();
  std::vector<bool> done(count, false);
  const auto ready = [&](std::size_t i) {
    for (const Operand& operand : graph.nodes[i].in)
      if (operand.value.there() && !done[static_cast<std::size_t>(operand.value.node)]) return false;
    return true;
  };
  std::vector<ScheduledStep> steps;
  std::size_t left = count, first = 0;  // all before `first` are done
  // Mixers wait until nothing else can run, products until no mixer can; then all that can run go together. Nodes stand behind what they read, so
  // what is ready lies near the first that is not done: a window keeps this linear in the number of blocks.
  constexpr std::size_t window = 256;
  while (left > 0) {
    while (first < count && done[first]) ++first;
    const std::size_t end = std::min(count, first + window);
    const auto is = [&](std::size_t i, Node::Kind kind) { return graph.nodes[i].kind == kind; };
    bool found = false;
    for (std::size_t i = first; i < end; ++i)
      if (!done[i] && !is(i, Node::Kind::linear) && !is(i, Node::Kind::mixer) && ready(i)) {
        steps.push_back({ScheduledStep::Kind::one, {i}});
        done[i] = found = true, --left;
      }
    const auto together = [&](Node::Kind kind, ScheduledStep::Kind step_kind) {
      ScheduledStep step{step_kind, {}};
      for (std::size_t i = first; i < end; ++i)
        if (!done[i] && is(i, kind) && ready(i)) step.nodes.push_back(i);
      for (const std::size_t i : step.nodes) done[i] = found = true, --left;
      if (!step.nodes.empty()) steps.push_back(std::move(step));
    };
    if (!found) together(Node::Kind::mixer, ScheduledStep::Kind::mixers);
    if (!found) together(Node::Kind::linear, ScheduledStep::Kind::products);
  }
  return steps;
}

}  // namespace ttr::model
