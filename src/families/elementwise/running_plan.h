// A running quantity of a layer's preparation as a step: its state, and the name of its result.
#pragma once

#include "families/common/linear_plan.h"

namespace ttr::families {

inline int add_running(Builder& b, Step step, const zoo::Stage& stage, Axes axes) {
  StatePart part{stage.state, {}, b.type()};
  for (const char letter : Axes(stage.state.shape))
    if (letter != 'B')
      part.extent.push_back(letter == 'H' ? b.shape().heads : letter == 'G' ? b.shape().key_heads : b.extent(letter));
  const int result = b.add(std::move(step), axes, {part});
  b.pipeline().values[static_cast<std::size_t>(result)].name = stage.to;
  return result;
}

}  // namespace ttr::families
