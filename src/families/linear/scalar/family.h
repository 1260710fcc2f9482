// The families with a scalar gate: decay (Rule::add) and the delta rules.
#pragma once

#include <type_traits>

#include "families/common/linear.h"
#include "families/common/run.h"
#include "families/linear/scalar/chunk.h"
#include "families/linear/scalar/recurrent.h"
#include "families/linear/scalar/rule.h"

namespace ttr::families {

template <class T, Rule rule>
struct ScalarFamily : LinearState<T> {
  static constexpr Tuned tuned{rule == Rule::add ? "decay" : "delta"};
  using Problem = LinearProblem<T>;
  using Gradient = LinearGradient<T>;
  using Chunk = ChunkForm<T, rule>;
  using Recurrent = RecurrentForm<T, rule>;
  using Map = std::conditional_t<rule == Rule::add, ScalarMap<T>, DenseMap<ScalarFamily>>;
};

}  // namespace ttr::families
