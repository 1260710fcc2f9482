// A case measured in a process of its own, so that its peak memory is its own.
//
// Peak memory is what the process grew by while it ran, beyond inputs and outputs, which are there before: state,
// workspace and whatever else was touched. Linux resets the mark of the peak on request; where that fails, the peak of
// the whole life of the process counts, the drawing of the inputs included.
#pragma once

#include <string>

#include "bench_case.h"

namespace ttr::cli {

struct ChildResult {
  bool right = false;          // false: `why` says what went wrong
  double seconds = 0;          // median of one pass over all tokens
  double peak_bytes = 0;       // as above
  double footprint_bytes = 0;  // state and workspace that the plan asks for
  std::string why;
};

/// Runs the case once, then `runs` times for the clock (fewer if a run takes seconds; 0: memory alone). `check`: compare
/// it with the oracle first. An interrupted child ends with the parent's flag set.
ChildResult run_in_child(const BenchCase&, int runs, bool check);

/// Bytes of the inputs and outputs of a case.
double tensor_bytes(const BenchCase&);

}  // namespace ttr::cli
