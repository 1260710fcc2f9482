// What rotations leave out of their answers because it is lost in rounding: counted in a trial of Plan::diagnose, never in a
// call.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace ttr::families {

struct Lost {
  std::atomic<std::int64_t> directions{0};  // of keys
  std::atomic<std::int64_t> tokens{0};      // at which that happened, of every head by itself
};

/// The name of the family, whose steps alone have these options.
inline constexpr std::string_view givens_name = "givens";
struct GivensOptions {
  Lost* lost = nullptr;  // null: not counted
};

}  // namespace ttr::families
