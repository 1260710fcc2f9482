// What the layers of `ttr regress` take of memory, said and refused before they take it.
#pragma once

#include <string>
#include <vector>

#include "regress_forecasters.h"

namespace ttr::cli {

/// The default layers whose state grows with the square of the keys are left out beyond this many.
constexpr int most_keys_of_default = 2000;

/// Removes them from `layers` and returns them.
std::vector<std::string> leave_out_quadratic(std::vector<std::string>& layers, const ForecastSpec& spec);

/// What decides how often a run has the state of a layer.
struct NeedSpec {
  bool groups = false;     // the start is kept for further groups
  bool questions = false;  // rows without a value may follow
  bool asks = false;       // coefficients are asked for
  bool saved = false;      // states are written to a file
};

/// Throws NotEnoughMemory with a sentence: what the layers keep, what they need at the peak, what is free, which
/// layer would do.
void require_layers(const ForecastSpec& spec, const NeedSpec& need);

}  // namespace ttr::cli
