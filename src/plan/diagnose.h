// Sentences about a plan and about calls that fail: they name the tensor, the sequence, the number and the remedy.
#pragma once

#include <span>
#include <string>

#include "plan/pipeline.h"

namespace ttr {

std::string describe(const Shape&);
std::string names_of(std::span<const Form>);

/// The fault of a call that check_call refuses.
std::string sentence_of(const Plan::Body&, const Call&, const Fault&);

/// What is wrong with a call or left out of its answers, empty if nothing is. A call that check_call lets pass is run on
/// copies of what it writes.
std::string diagnose_call(const Plan::Body&, const Call&);

}  // namespace ttr
