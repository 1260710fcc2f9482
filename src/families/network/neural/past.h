// Going back through the moves of a memory: the states before its units (a unit ends where the weights move), kept
// where they all fit `budget`, else those at borders of segments, and those inside one segment at a time.
//
// A state at work is longer than what must be kept of it: save and load say what that is. Like Replay (replay.h), but
// a unit is computed once more only if there are segments, and its end only where somebody reads it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "families/common/scratch.h"

namespace ttr::families::neural {

template <class T>
class Past {
 public:
  using Size = std::ptrdiff_t;

  /// `slot` numbers are kept of a state; up to `longest` units. budget: numbers, 8 MB of them.
  Past(Size slot, Size longest, Arena& arena, Size budget = (1 << 23) / sizeof(T)) : slot_(slot) {
    // Segments as long as the budget allows, or the root of all: more units never need less memory.
    const auto root = static_cast<Size>(std::ceil(std::sqrt(static_cast<double>(longest))));
    segment_ = std::max<Size>({1, root, std::min(longest, budget / std::max<Size>(1, slot))});
    borders_ = arena.take<T>((longest + segment_ - 1) / segment_ * slot);
    inside_ = arena.take<T>(segment_ * slot);
  }

  /// step(i) moves the state at work over unit i; save(i, slot) keeps it as it is before unit i; load(i, slot) takes
  /// it back, from the start of all with slot = null. back(i, slot, next) is called for i = units-1 .. 0 with what was
  /// kept before unit i (null: the start of all), and before i + 1 (null: the state at work); the latter is there with
  /// `ends` only.
  template <class Step, class Save, class Load, class Back>
  void run(Size units, bool ends, Step&& step, Save&& save, Load&& load, Back&& back) {
    const Size count = (units + segment_ - 1) / segment_;
    load(Size{0}, nullptr);
    for (Size i = 0; i + 1 < count; ++i) {
      if (i > 0) save(i * segment_, borders_ + i * slot_);
      for (Size j = 0; j < segment_; ++j) step(i * segment_ + j);
    }
    if (count > 1) save((count - 1) * segment_, borders_ + (count - 1) * slot_);
    for (Size i = count; i-- > 0;) {
      const Size begin = i * segment_, length = std::min(segment_, units - begin);
      const T* const border = i > 0 ? borders_ + i * slot_ : nullptr;
      if (i + 1 < count) load(begin, border);
      for (Size j = 0; j < length; ++j) {
        if (j > 0) save(begin + j, inside_ + j * slot_);
        if (j + 1 < length || ends) step(begin + j);
      }
      for (Size j = length; j-- > 0;)
        back(begin + j, j > 0 ? inside_ + j * slot_ : border, j + 1 < length ? inside_ + (j + 1) * slot_ : nullptr);
    }
  }

 private:
  Size slot_, segment_ = 1;
  T *borders_, *inside_;
};

}  // namespace ttr::families::neural
