// Backward through a recurrence that cannot be inverted (a gate may be 0): states are kept at the borders of
// segments, those inside a segment are recomputed. Memory for 2 sqrt(T) states instead of T.
//
// A state is P arrays (parts.h), so that the caller's own arrays can be read in place.
// Also here: rows of strided views as contiguous numbers.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "families/common/check.h"
#include "families/common/linear.h"
#include "families/common/parts.h"
#include "families/common/scratch.h"

namespace ttr::families {

template <class T, std::size_t P>
class Replay {
 public:
  using Size = std::ptrdiff_t;
  using Sizes = std::array<Size, P>;

  /// For up to `longest` steps (0: never, and no memory); spacing <= 0 keeps a state every sqrt(longest) steps.
  Replay(const Sizes& sizes, Size longest, Size spacing, Arena& arena) : sizes_{sizes}, total_(sizes_.total()) {
    const auto root = static_cast<Size>(std::ceil(std::sqrt(static_cast<double>(longest))));
    segment_ = std::clamp<Size>(spacing > 0 ? spacing : root, 1, std::max<Size>(longest, 1));
    borders_ = arena.take<T>(std::max<Size>((longest - 1) / segment_, 0) * total_);
    inside_ = arena.take<T>(longest > 0 ? (segment_ + 1) * total_ : 0);
  }

  /// step(i, state) moves a state over step i in place; back(i, before, after) is called for i = steps-1 .. 0 with
  /// the states around step i.
  template <class Step, class Back>
  void run(Size steps, const Parts<const T, P>& initial, Step&& step, Back&& back) {
    const auto advance = [&](Size first, Size end, const Parts<T, P>& state) {
      for (Size i = first; i < end; ++i) step(i, state);
    };
    run_ranges(steps, initial, advance, back);
  }

  /// The same where advance(first, end, state) moves a state over steps first .. end-1.
  template <class Advance, class Back>
  void run_ranges(Size steps, const Parts<const T, P>& initial, Advance&& advance, Back&& back) {
    if (steps == 0) return;
    sizes_.gather(initial, inside_);
    const Size count = (steps + segment_ - 1) / segment_;
    for (Size i = 0; i + 1 < count; ++i) {
      std::copy_n(inside_, total_, borders_ + i * total_);
      advance(i * segment_, (i + 1) * segment_, sizes_.at(inside_));
    }
    for (Size i = count; i-- > 0;) {
      const Size begin = i * segment_, length = std::min(segment_, steps - begin);
      if (i + 1 < count) std::copy_n(borders_ + i * total_, total_, inside_);
      for (Size j = 0; j < length; ++j) {
        std::copy_n(inside_ + j * total_, total_, inside_ + (j + 1) * total_);
        advance(begin + j, begin + j + 1, sizes_.at(inside_, j + 1));
      }
      for (Size j = length; j-- > 0;)
        back(begin + j, constant(sizes_.at(inside_, j)), constant(sizes_.at(inside_, j + 1)));
    }
  }

 private:
  PartSizes<P> sizes_;
  Size total_, segment_ = 1;
  T *borders_, *inside_;
};

/// Tokens between kept states of `time` tokens: `chunk`, or sqrt(time) if that is <= 0.
inline std::ptrdiff_t kept_spacing(std::ptrdiff_t time, int chunk) {
  const auto root = static_cast<std::ptrdiff_t>(std::ceil(std::sqrt(static_cast<double>(time))));
  return std::clamp<std::ptrdiff_t>(chunk > 0 ? chunk : root, 1, std::max<std::ptrdiff_t>(time, 1));
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

}  // namespace ttr::families
