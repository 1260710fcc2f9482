// Going back through a recurrence that cannot be undone (a gate may be 0): states are kept at segment borders, the
// states inside one segment are recomputed. Memory for 2 sqrt(T) states instead of T.
//
// A state is P arrays ("parts": S, or Re and Im, or S and Z), so that the caller's own arrays can be walked in place.
// Also here: rows of strided views as contiguous numbers, and the checks every family makes.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include "families/common/linear.h"
#include "families/common/scratch.h"
#include "ttr/status.h"

namespace ttr::families {

template <class T, std::size_t P>
using Parts = std::array<T*, P>;

template <class T, std::size_t P>
class Replay {
 public:
  using Size = std::ptrdiff_t;
  using Sizes = std::array<Size, P>;

  /// For up to `longest` steps; spacing <= 0 keeps a state every sqrt(longest) steps.
  Replay(const Sizes& sizes, Size longest, Size spacing, Arena& arena) : sizes_(sizes) {
    const auto root = static_cast<Size>(std::ceil(std::sqrt(static_cast<double>(longest))));
    segment_ = std::clamp<Size>(spacing > 0 ? spacing : root, 1, std::max<Size>(longest, 1));
    for (const Size n : sizes) total_ += n;
    borders_ = arena.take<T>((longest + segment_ - 1) / segment_ * total_);
    inside_ = arena.take<T>((segment_ + 1) * total_);
  }

  /// step(i, state) moves a state over step i in place; back(i, before, after) is called for i = steps-1 .. 0 with
  /// the states around step i.
  template <class Step, class Back>
  void run(Size steps, const Parts<const T, P>& initial, Step&& step, Back&& back) {
    for (std::size_t p = 0; p < P; ++p) std::copy_n(initial[p], sizes_[p], at(inside_, 0)[p]);
    const Size count = (steps + segment_ - 1) / segment_;
    for (Size i = 0; i < count; ++i) {
      std::copy_n(inside_, total_, borders_ + i * total_);
      if (i + 1 < count)
        for (Size j = 0; j < segment_; ++j) step(i * segment_ + j, at(inside_, 0));
    }
    for (Size i = count; i-- > 0;) {
      const Size begin = i * segment_, length = std::min(segment_, steps - begin);
      std::copy_n(borders_ + i * total_, total_, inside_);
      for (Size j = 0; j < length; ++j) {
        std::copy_n(inside_ + j * total_, total_, inside_ + (j + 1) * total_);
        step(begin + j, at(inside_, j + 1));
      }
      for (Size j = length; j-- > 0;) back(begin + j, constant(at(inside_, j)), constant(at(inside_, j + 1)));
    }
  }

 private:
  Parts<T, P> at(T* base, Size index) const {
    Parts<T, P> parts;
    base += index * total_;
    for (std::size_t p = 0; p < P; ++p) parts[p] = base, base += sizes_[p];
    return parts;
  }
  static Parts<const T, P> constant(const Parts<T, P>& x) {
    Parts<const T, P> y;
    for (std::size_t p = 0; p < P; ++p) y[p] = x[p];
    return y;
  }

  Sizes sizes_;
  Size segment_ = 1, total_ = 0;
  T *borders_, *inside_;
};

/// Tokens per segment of a scan over `time` tokens: `chunk`, or sqrt(time) if that is <= 0. From the length of the
/// sequence itself, so that its bits do not depend on the others of a batch.
inline std::ptrdiff_t scan_segment(std::ptrdiff_t time, int chunk) {
  const auto root = static_cast<std::ptrdiff_t>(std::ceil(std::sqrt(static_cast<double>(time))));
  return std::clamp<std::ptrdiff_t>(chunk > 0 ? chunk : root, 1, std::max<std::ptrdiff_t>(time, 1));
}
/// The most segments a sequence of up to `longest` tokens has.
inline std::ptrdiff_t scan_segments(std::ptrdiff_t longest, int chunk) {
  return chunk > 0 ? (longest + chunk - 1) / chunk : scan_segment(longest, 0);
}

/// n numbers `stride` apart: where they lie if that is contiguous, else a copy in `spare`.
template <class T>
const T* contiguous(const T* from, std::ptrdiff_t stride, std::ptrdiff_t n, T* spare) {
  if (stride == 1) return from;
  for (std::ptrdiff_t i = 0; i < n; ++i) spare[i] = from[i * stride];
  return spare;
}

/// to[i stride] += scale x[i]. A stride of zero sums, as the chain rule of a broadcast input wants.
template <class T>
void add_strided(std::ptrdiff_t n, T scale, const T* x, T* to, std::ptrdiff_t stride) {
  for (std::ptrdiff_t i = 0; i < n; ++i) to[i * stride] += scale * x[i];
}

template <class T>
void copy_or_clear(const T* from, std::ptrdiff_t n, T* to) {
  if (from) std::copy_n(from, n, to);
  else std::fill_n(to, n, T(0));
}

/// The length of the longest sequence, -1 if one ends before it begins.
inline std::ptrdiff_t longest_of(std::span<const Sequence> sequences) {
  std::ptrdiff_t longest = 0;
  for (const Sequence& n : sequences) {
    if (n.end < n.begin) return -1;
    longest = std::max(longest, n.end - n.begin);
  }
  return longest;
}

}  // namespace ttr::families
