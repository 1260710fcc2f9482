// Decoding: one token of a few heads at a time, by the primitives whose rows are heads (state_simd.h: sweep_heads).
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/common/half_rows.h"
#include "simd/simd.h"
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
/// The same, or of a half type, which rows_of_heads makes floats of.
template <class N>
bool has_step_rows(const View<N, 4>& x) {
  return has_rows(x) || has_half_rows(x);
}

/// Rows of `count` heads of one token where they lie, *ld apart; of a half type as floats in `buffer` [heads_at_once, dim].
template <class T>
const T* rows_of_heads(const Simd<T>& s, const View<const T, 4>& x, std::ptrdiff_t row, std::ptrdiff_t t, int first,
                       int count, int dim, T* buffer, std::ptrdiff_t* ld) {
  if constexpr (sizeof(T) == 4)
    if (has_half_rows(x)) {
      const HalfSimd& convert = half_simd(s);
      const auto widen = x.stride[3] == stride_of_bf16 ? convert.widen_rows_bf16 : convert.widen_rows_f16;
      widen(count, dim, half_row(x, row, t, first), x.stride[2], nullptr, buffer);
      *ld = dim;
      return buffer;
    }
  *ld = x.stride[2];
  return &x(row, t, first, 0);
}
/// Numbers of such a buffer; only floats need one.
template <class T>
constexpr std::ptrdiff_t step_buffer(std::ptrdiff_t rows, int dim) {
  return (sizeof(T) == 4 ? std::max<std::ptrdiff_t>(rows, heads_at_once) : rows) * dim;
}

}  // namespace ttr::families
