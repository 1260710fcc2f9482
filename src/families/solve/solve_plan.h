// What the planning glue of families that solve shares: outputs that say how sure an answer is.
#pragma once

#include "families/common/linear_plan.h"

namespace ttr::families {

/// The variance of a value at the query and how much of it is known, where the answer is that of least squares as such.
inline void add_uncertainty(Builder& b, Step& step) {
  const Extras& extras = b.design().extras;
  if (extras.normalise != Extras::Normalise::none || extras.blend) return;
  if (b.design().solver.ridge_kind == Solver::RidgeKind::frobenius) return;  // the ridge changes with the data
  step.second_result = b.further_output(zoo::variance());
  step.third_result = b.further_output(zoo::known());
}

}  // namespace ttr::families
