// What the planning glue of families that solve shares: outputs that say how sure an answer is.
#pragma once

#include "families/common/linear_plan.h"

namespace ttr::families {

/// The variance of a value at the query and how much of it is known, where the answer is that of least squares as such:
/// in the keys themselves, so that a pair of zeros says nothing, and with a ridge that does not change with the data.
inline void add_uncertainty(Builder& b, Step& step) {
  const Extras& extras = b.design().extras;
  const Solver& solver = b.design().solver;
  if (extras.normalise != Extras::Normalise::none || extras.blend) return;
  if (b.design().memory.feature != Memory::Feature::identity) return;
  if (solver.ridge_kind == Solver::RidgeKind::frobenius) return;
  step.second_result = b.further_output(zoo::variance());
  if (solver.kind == Solver::Kind::exact) step.third_result = b.further_output(zoo::known());
}

}  // namespace ttr::families
