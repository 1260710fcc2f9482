// What every family checks before it touches anything. Plans have already made sure of it; a family that is called
// directly answers with a Status.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>

#include "families/common/linear.h"
#include "ttr/plan.h"
#include "ttr/status.h"

namespace ttr::families {

/// The length of the longest sequence, -1 if one ends before it begins.
inline std::ptrdiff_t longest_of(std::span<const Sequence> sequences) {
  std::ptrdiff_t longest = 0;
  for (const Sequence& n : sequences) {
    if (n.end < n.begin) return -1;
    longest = std::max(longest, n.end - n.begin);
  }
  return longest;
}

/// Dimensions of at least 1, heads in whole groups, sequences that do not end before they begin, and the workspace:
/// bytes(longest) says what is needed.
template <class Bytes>
Status check_common(std::span<const Sequence> sequences, int heads, int key_heads, std::initializer_list<int> dims,
                    Workspace work, Bytes&& bytes) {
  const std::ptrdiff_t longest = longest_of(sequences);
  if (longest < 0 || heads < 1 || key_heads < 1 || heads % key_heads != 0) return Status::bad_shape;
  if (std::any_of(dims.begin(), dims.end(), [](int dim) { return dim < 1; })) return Status::bad_shape;
  if (!work.data || work.bytes < bytes(longest)) return Status::small_workspace;
  return Status::ok;
}

}  // namespace ttr::families
