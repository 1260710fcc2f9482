// Errors: what can go wrong, and how it is reported.
//
// Planning and reading files throw `ttr::Error` with a sentence a person can act on. The hot path
// (`Plan::step`, `forward`, `backward`) is noexcept and returns a `Status`; `Plan::diagnose` turns a
// failed call into a sentence that names the input and the number.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "ttr/export.h"

namespace ttr {

enum class Status : int {
  ok = 0,
  missing_input,    // a required input has no data (outputs may be left out)
  bad_shape,        // an extent does not fit the plan
  bad_type,         // a type the plan does not take: Options::type, Options::tensors
  small_state,      // the state buffer is smaller than footprint().state
  state_full,       // a growing state (a history of pairs) has no room for the new tokens
  small_workspace,  // the workspace is smaller than footprint() asks for
  out_of_domain,    // an input for which the layer is not defined, e.g. a leak above one
  not_supported,    // this form or this gradient does not exist for this plan
  out_of_memory,    // the oracle could not allocate (kernels never allocate)
  unknown_name,     // a tensor has a name that the plan does not know, or there are more names than fit
  bad_state,        // the state holds counts that no call has left in it; reset() it first
  overlap,          // memory that the call writes overlaps other memory of the call
  misaligned,       // a pointer is not aligned to its type (states: 8 bytes)
  small_saved,      // the buffer for what forward leaves to backward is smaller than footprint().saved
  bad_saved,        // backward: that buffer is not what a forward of this call has left
};

/// One sentence for a status; `Plan::diagnose` says more.
TTR_API std::string_view to_string(Status) noexcept;

/// Thrown when planning, parsing or reading a file. `what()` is a sentence; `where()` names the place
/// (a column of the recipe, a line of a file, an option) or is empty.
class TTR_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, std::string where = {})
      : std::runtime_error(message), where_(std::move(where)) {}
  const std::string& where() const noexcept { return where_; }

 private:
  std::string where_;
};

}  // namespace ttr
