// The gradient of a gate or bonus that is constant in time, where segments go backwards at the same time: each adds to a
// row of its own, and the rows are summed in the order of their slots.
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/common/replay.h"
#include "families/common/scratch.h"
#include "families/common/segments.h"
#include "ttr/view.h"

namespace ttr::families {

template <class T>
class SharedGradient {
 public:
  using Size = std::ptrdiff_t;
  SharedGradient() = default;
  SharedGradient(Size width, Arena& arena) : dim(width), rows(arena.take<T>(most_segments * width)) {}

  /// For row `row` (and head `head`) of a gradient [B, T, D] or [B, T, H, D]. Does nothing where every token has its own.
  template <std::size_t rank>
  void begin(const View<T, rank>& view, Size row, Size head) {
    target = view && view.stride[1] == 0 ? view.data + row * view.stride[0] : nullptr;
    if (!target) return;
    if constexpr (rank == 4) target += head * view.stride[2];
    stride = view.stride[rank - 1];
    std::fill_n(rows, most_segments * dim, T(0));
  }
  /// What the segment in `slot` adds to.
  template <std::size_t rank>
  View<T, rank> of(Size slot, View<T, rank> view) const {
    if (!target) return view;
    view.data = rows + slot * dim;
    view.stride = {};
    view.stride[rank - 1] = 1;
    return view;
  }
  void sum(Size slots) {
    for (Size i = 0; target && i < slots; ++i) add_strided(dim, T(1), rows + i * dim, target, stride);
    if (target) std::fill_n(rows, slots * dim, T(0));
  }

 private:
  Size dim = 0, stride = 0;
  T *rows = nullptr, *target = nullptr;
};

}  // namespace ttr::families
