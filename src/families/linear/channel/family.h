// The families with a gate for every channel: what gated and dplr hand to run.h.
#pragma once

#include <type_traits>

#include "families/common/run.h"
#include "families/linear/channel/chunk.h"
#include "families/linear/channel/problem.h"
#include "families/linear/channel/recurrent.h"

namespace ttr::families {

template <class T, Erase erase>
struct VectorFamily : LinearState<T> {
  static constexpr Tuned tuned{erase == Erase::none ? "gated" : erase == Erase::same ? "gated_delta" : "dplr"};
  using Problem = VectorProblem<T>;
  using Gradient = VectorGradient<T>;
  using Chunk = VectorChunk<T, erase>;
  using Recurrent = VectorRecurrent<T, erase>;
  using Map = std::conditional_t<erase == Erase::none, DiagonalMap<T>, DenseMap<VectorFamily>>;
};

}  // namespace ttr::families
