// Decoding: one token of a few heads at a time, by the primitives whose rows are heads (state_simd.h: sweep_heads).
#pragma once

#include <algorithm>
#include <cstddef>

#include "ttr/view.h"

namespace ttr::families {

inline constexpr int heads_at_once = 16;  // the gates of so many heads have a place in the scratch memory

/// Heads first .. first + count - 1, which read keys from row key_head on, `group` of them each.
struct HeadBlock {
  int first, count, key_head, group;
};

template <class Each>
void for_head_blocks(int heads, int key_heads, Each&& each) {
  const int group = heads / key_heads, most = group < heads_at_once ? heads_at_once / group * group : heads_at_once;
  for (int first = 0, count; first < heads; first += count) {
    const int left = group <= heads_at_once ? heads - first : group - first % group;
    count = std::min(most, left);
    each(HeadBlock{first, count, first / group, std::min(group, heads_at_once)});
  }
}

/// Rows that can be read where they lie.
template <class N>
bool has_rows(const View<N, 4>& x) {
  return x.stride[3] == 1;
}

}  // namespace ttr::families
