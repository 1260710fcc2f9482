// From how many tokens on Form::best is the form of the table (choice.h) and no longer the token loop.
//
// Chunks take a state that does not stay in L1 through fewer trips, and cost more to begin than a token: with vectors of
// 64 bytes four tokens are enough for states that L1 does not hold, six for smaller ones (`ttr bench short`).
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/common/choice.h"

namespace ttr::families {

/// No choice is from fewer tokens on.
inline constexpr std::ptrdiff_t fewest_chunked = 4;

constexpr std::ptrdiff_t chunked_from(const Choice& choice, int vector_bytes, int key_dim, int value_dim,
                                      bool backward) {
  if (backward || vector_bytes < 64) return choice.from;
  constexpr int fits_l1 = 80 * 80;  // numbers
  return std::min(choice.from, key_dim * value_dim > fits_l1 ? fewest_chunked : std::ptrdiff_t{6});
}

}  // namespace ttr::families
