// The families with a scalar gate: decay (Rule::add) and the delta rules.
#pragma once

#include <type_traits>

#include "families/chunk.h"
#include "families/linear.h"
#include "families/recurrent.h"
#include "families/rule.h"
#include "families/run.h"

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
