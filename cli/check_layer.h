// One layer, or recipe, in one case: every check of it (check.cc says which).
#pragma once

#include <string>
#include <vector>

#include "check_case.h"
#include "commands.h"

namespace ttr::cli {

/// There is nothing to compare: rounding alone decides what the problem's answers are, or they leave the numbers.
struct Undetermined {
  std::string sentence;
  bool diverges = false;  // the latter
};

/// The plan that a case checks, of one sequence.
Plan plan_of_case(const LayerInfo&, const std::string& settings, const Case&);

/// A solve without a ridge that stays: of all answers that fit as well, that of least norm.
bool has_least_norm(const Recipe&);
/// A plan that is not causal has neither steps nor a recurrent form.
bool has_steps(const Plan&);

/// `literal`: whether the oracle computes the same. Throws Undetermined, or Error if the layer does not run.
std::vector<CheckRow> check_case(const LayerInfo&, const std::string& settings, bool literal, const Case&);

}  // namespace ttr::cli
