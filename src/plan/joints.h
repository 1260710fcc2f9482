// Steps of a pipeline that one pass over the tokens computes together (prepare/joint.h).
#pragma once

#include <array>
#include <cstddef>

#include "plan/pipeline.h"

namespace ttr {

/// Indices of steps, -1 = absent. A forward pass runs them where the first of them stands. Backward, where each has a
/// gradient of its own, knows the steps alone. It is the option of each of its steps.
struct Joint {
  int multiply = -1, norm = -1, blend = -1, erase = -1, bonus = -1;
  std::array<int, 5> members() const { return {multiply, norm, blend, erase, bonus}; }
  int first = -1;  // of them
  bool begins_with(std::size_t step) const { return first == static_cast<int>(step); }
};

/// Finds them by what they do, and skips that a kernel adds itself (Step::skip).
void find_joints(Pipeline&, const Shape&);

/// The joint that a step is a part of; null: none.
inline const Joint* joint_of(const Step& step) {
  return step.kernel || !step.options_of_family ? nullptr : &step.options<Joint>();
}

}  // namespace ttr
