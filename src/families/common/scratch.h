// Scratch memory, and copies between the caller's strided views and the contiguous panels that kernels work on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "families/common/half_rows.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/view.h"

namespace ttr::families {

/// Hands out 64-byte aligned pieces of a workspace; without one it only counts, so that a layout is written once.
class Arena {
 public:
  Arena() = default;
  explicit Arena(Workspace w) : end_(static_cast<std::byte*>(w.data) + w.bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(w.data);
    base_ = static_cast<std::byte*>(w.data) + (64 - address % 64) % 64;
  }
  template <class T>
  T* take(std::ptrdiff_t count) {
    T* const piece = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return piece;
  }
  /// Bytes a workspace of any alignment must have.
  std::size_t bytes() const { return used_ + 64; }
  /// What has not been handed out; nothing if the workspace was too small.
  Workspace rest() const {
    if (!base_ || used_ > static_cast<std::size_t>(end_ - base_)) return {};
    return {base_ + used_, static_cast<std::size_t>(end_ - base_) - used_};
  }

 private:
  std::byte *base_ = nullptr, *end_ = nullptr;
  std::size_t used_ = 0;
};

/// out [count, dim] = scale x[row, begin .. begin+count-1, head, :]
template <class T>
void pack(const Simd<T>& s, const View<const T, 4>& x, std::ptrdiff_t row, std::ptrdiff_t begin, std::ptrdiff_t count,
          int head, int dim, T scale, T* out) {
  if constexpr (sizeof(T) == 4)
    if (has_half_rows(x)) {
      widen_rows(s, x, row, begin, count, head, dim, nullptr, out);
      if (scale != T(1)) s.scale(count * dim, scale, out, out);
      return;
    }
  const T* from = x.data + row * x.stride[0] + begin * x.stride[1] + head * x.stride[2];
  for (std::ptrdiff_t i = 0; i < count; ++i, from += x.stride[1], out += dim) {
    if (x.stride[3] != 1)
      for (int j = 0; j < dim; ++j) out[j] = scale * from[j * x.stride[3]];
    else if (scale == T(1)) std::memcpy(out, from, static_cast<std::size_t>(dim) * sizeof(T));
    else s.scale(dim, scale, from, out);
  }
}

/// The rows themselves where they are contiguous, else a copy in `buffer`; *ld is the distance between them.
template <class T>
const T* contiguous(const Simd<T>& s, const View<const T, 4>& x, std::ptrdiff_t row, std::ptrdiff_t begin,
                    std::ptrdiff_t count, int head, int dim, T* buffer, std::ptrdiff_t* ld) {
  *ld = x.stride[3] == 1 ? x.stride[1] : dim;
  if (x.stride[3] == 1) return &x(row, begin, head, 0);
  pack(s, x, row, begin, count, head, dim, T(1), buffer);
  return buffer;
}

/// x[row, begin .. begin+count-1, head, :] = in [count, dim]
template <class T>
void unpack(const T* in, std::ptrdiff_t row, std::ptrdiff_t begin, std::ptrdiff_t count, int head, int dim,
            const View<T, 4>& x) {
  T* to = x.data + row * x.stride[0] + begin * x.stride[1] + head * x.stride[2];
  for (std::ptrdiff_t i = 0; i < count; ++i, to += x.stride[1], in += dim) {
    if (x.stride[3] == 1) std::memcpy(to, in, static_cast<std::size_t>(dim) * sizeof(T));
    else
      for (int j = 0; j < dim; ++j) to[j * x.stride[3]] = in[j];
  }
}

/// The same, also where the rows are of a half type.
template <class T>
void unpack(const Simd<T>& s, const T* in, std::ptrdiff_t row, std::ptrdiff_t begin, std::ptrdiff_t count, int head,
            int dim, const View<T, 4>& x) {
  if constexpr (sizeof(T) == 4)
    if (has_half_rows(x)) return narrow_rows(s, in, row, begin, count, head, dim, x);
  unpack(in, row, begin, count, head, dim, x);
}

/// x[row, begin .. begin+count-1, head, :] = 0
template <class T>
void clear_rows(const View<T, 4>& x, std::ptrdiff_t row, std::ptrdiff_t begin, std::ptrdiff_t count, int head,
                int dim) {
  if (!x) return;
  T* to = x.data + row * x.stride[0] + begin * x.stride[1] + head * x.stride[2];
  for (std::ptrdiff_t i = 0; i < count; ++i, to += x.stride[1]) {
    if (x.stride[3] == 1) std::memset(to, 0, static_cast<std::size_t>(dim) * sizeof(T));
    else
      for (int j = 0; j < dim; ++j) to[j * x.stride[3]] = T(0);
  }
}

/// x[row, begin .. begin+count-1, head, :] += scale in [count, dim]: heads of a group add up in their shared keys.
template <class T>
void add_rows(const Simd<T>& s, T scale, const T* in, std::ptrdiff_t row, std::ptrdiff_t begin, std::ptrdiff_t count,
              int head, int dim, const View<T, 4>& x) {
  T* to = x.data + row * x.stride[0] + begin * x.stride[1] + head * x.stride[2];
  for (std::ptrdiff_t i = 0; i < count; ++i, to += x.stride[1], in += dim) {
    if (x.stride[3] == 1) s.axpy(dim, scale, in, to);
    else
      for (int j = 0; j < dim; ++j) to[j * x.stride[3]] += scale * in[j];
  }
}

}  // namespace ttr::families
