// Whether the memory of two strided tensors overlaps, found without allocating.
//
// Exact for tensors that lie in separate ranges, and for those that take turns in rows of one array: if a stride S is
// common to both and each, without the axes of strides S and above, spans no more than S, then addresses count modulo S.
// Else ranges that overlap are taken for memory that does.
#pragma once

#include <cstddef>

#include "ttr/plan.h"

namespace ttr {

/// From the first byte of a tensor to behind its last; both null if it has none.
struct ByteRange {
  const std::byte *begin, *end;  // without initialisers: a call has room for many and uses few
};

inline ByteRange range_of(const void* data, Type type, int rank, const std::ptrdiff_t* extent,
                          const std::ptrdiff_t* stride) noexcept {
  std::ptrdiff_t below = 0, above = 0;
  bool empty = data == nullptr;
  for (int d = 0; d < rank; ++d) {
    const std::ptrdiff_t reach = (extent[d] - 1) * stride[d];
    empty |= extent[d] < 1;
    (reach < 0 ? below : above) += reach;
  }
  if (empty) return {nullptr, nullptr};
  const std::ptrdiff_t size = static_cast<std::ptrdiff_t>(size_of(type));
  return {static_cast<const std::byte*>(data) + below * size,
          static_cast<const std::byte*>(data) + (above + 1) * size};
}
template <class AnyTensor>
ByteRange range_of(const AnyTensor& t) noexcept {
  return range_of(t.data, t.type, t.rank, t.extent.data(), t.stride.data());
}
inline ByteRange range_of_bytes(const void* data, std::size_t bytes) noexcept {
  const std::byte* const begin = bytes ? static_cast<const std::byte*>(data) : nullptr;
  return {begin, begin ? begin + bytes : nullptr};
}
inline bool overlap(const ByteRange& a, const ByteRange& b) noexcept { return a.begin < b.end && b.begin < a.end; }

/// Whether two tensors share memory; for those whose ranges overlap.
bool share_memory(const ConstTensor&, const ConstTensor&) noexcept;

}  // namespace ttr
