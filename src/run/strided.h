// Loops over strided tensors.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "ttr/view.h"

namespace ttr {

/// One number per axis of a tensor: its extents, or its strides.
using PerAxis = std::array<std::ptrdiff_t, max_rank>;

/// Visits N arrays of the same extents in row-major order: visit(offsets, count) for rows of `count` numbers, where
/// array n goes on in steps of its last stride. Axes without gaps between them, in all arrays, are one row.
template <std::size_t N, class Visit>
void for_each_row(int rank, const PerAxis& extent, const std::array<const PerAxis*, N>& stride,
                  Visit&& visit) noexcept {
  for (int d = 0; d < rank; ++d)
    if (extent[static_cast<std::size_t>(d)] <= 0) return;
  std::size_t last = rank == 0 ? 0 : static_cast<std::size_t>(rank - 1);
  const std::size_t inner = last;
  std::ptrdiff_t count = rank == 0 ? 1 : extent[last];
  const auto joins = [&](const PerAxis* s) { return (*s)[last - 1] == count * (*s)[inner]; };
  for (; last > 0 && std::all_of(stride.begin(), stride.end(), joins); --last) count *= extent[last - 1];
  PerAxis at{};
  for (;;) {
    std::array<std::ptrdiff_t, N> offset{};
    for (std::size_t n = 0; n < N; ++n)
      for (std::size_t d = 0; d < last; ++d) offset[n] += at[d] * (*stride[n])[d];
    visit(offset, count);
    std::size_t d = last;
    while (d > 0 && ++at[d - 1] == extent[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

/// The step of a row: the last stride.
inline std::ptrdiff_t step_of(int rank, const PerAxis& stride) {
  return rank == 0 ? 1 : stride[static_cast<std::size_t>(rank - 1)];
}

/// All numbers of a tensor of any type zero, in the order in which they lie: [B, D, T] seen as [B, T, D] is one row.
inline void clear_tensor(const Tensor& tensor) noexcept {
  if (!tensor) return;
  PerAxis extent = tensor.extent, stride = tensor.stride;
  const auto outer = [&](std::size_t a, std::size_t b) {  // axes of one entry first: their strides say nothing
    return (extent[a] == 1) != (extent[b] == 1) ? extent[a] == 1 : stride[a] > stride[b];
  };
  for (std::size_t d = 1; d < static_cast<std::size_t>(tensor.rank); ++d)
    for (std::size_t i = d; i > 0 && outer(i, i - 1); --i)
      std::swap(extent[i], extent[i - 1]), std::swap(stride[i], stride[i - 1]);
  const std::size_t size = size_of(tensor.type);
  const std::ptrdiff_t step = step_of(tensor.rank, stride), bytes = static_cast<std::ptrdiff_t>(size);
  for_each_row<1>(tensor.rank, extent, {&stride}, [&](const auto& offset, std::ptrdiff_t count) {
    std::byte* const row = static_cast<std::byte*>(tensor.data) + offset[0] * bytes;
    if (step == 1) std::memset(row, 0, static_cast<std::size_t>(count) * size);
    else
      for (std::ptrdiff_t i = 0; i < count; ++i) std::memset(row + i * step * bytes, 0, size);
  });
}

}  // namespace ttr
