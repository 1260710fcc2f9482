// The families with a scalar gate: decay (Rule::add) and the delta rules.
#pragma once

#include <type_traits>

#include "families/linear/scalar/chunk.h"
#include "families/common/linear.h"
#include "families/linear/scalar/recurrent.h"
#include "families/linear/scalar/rule.h"
#include "families/common/run.h"

namespace ttr::families {

template <class T, Rule rule>
struct ScalarFamily {
  static constexpr Chooser chooser = rule == Rule::add ? Chooser::decay : Chooser::delta;
  using Number = T;
  using Problem = LinearProblem<T>;
  using Gradient = LinearGradient<T>;
  using Chunk = ChunkForm<T, rule>;
  using Recurrent = RecurrentForm<T, rule>;
  using Map = std::conditional_t<rule == Rule::add, ScalarMap<T>, DenseMap<T, Chunk>>;
};

}  // namespace ttr::families
