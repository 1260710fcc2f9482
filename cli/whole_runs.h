// What runs over whole sequences share: a plan from a fresh state to the last token, tasks on threads, and the mean over
// runs with its standard error.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "regress_parts.h"
#include "ttr/plan.h"

namespace ttr::cli {

/// Resets the state and runs the sequence. A call that fails is an Error with the sentence of Plan::diagnose; `label`
/// names the layer in it, `where` is what the user can change. The buffers are those of Plan::footprint.
void run_whole(const Plan&, std::string_view label, const std::string& where, const Inputs&, const Outputs&,
               const Buffer& state, const Buffer& work);

/// Calls work(0) .. work(count - 1) on `threads` threads (0: as many as the machine has), in this order of beginnings;
/// `after(done)` is called by the first of them alone. False if the run was interrupted. Rethrows the first exception.
bool in_parallel(int count, int threads, const std::function<void(int)>& work, const std::function<void(int)>& after);

struct Statistic {
  double mean = std::numeric_limits<double>::quiet_NaN();
  double error = std::numeric_limits<double>::quiet_NaN();  // standard error; NaN for one run
};
Statistic statistic(const std::vector<double>& per_run);

}  // namespace ttr::cli
