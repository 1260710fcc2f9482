// The tree of a scan. A sequence is cut into segments; of a family that is linear in its state, each maps its start to
// its end, and the starts of all of them follow from the maps in two sweeps over the powers of two:
//
//   up-sweep      map i <- map i after map i - d          i = 2d - 1, 4d - 1, ..          d = 1, 2, 4, ..
//                 then map i covers the lowbit(i + 1) segments that end with its own
//   down-sweep    start j = map j - 1 of start j - lowbit(j)    j with lowbit(j) = d      d = .., 4, 2, 1
//
// The steps of a level do not wait for each other (Blelloch 1990, "Prefix sums and their applications"). The order is
// that of the tree, whoever does a step: the bits do not depend on the team.
//
// How many segments there are depends on the length of the sequence and the size of the state alone. The first segment
// needs no map, because its start is known, and the last none, because nothing follows it: with 1 + 2^n segments both
// phases over segments have 2^n parts. Few segments suit few threads: where a map costs as much as its tokens, P threads
// take 2 / (P + 1) of the time with P + 1 segments, nearly all of it with many. Five take 4/5 of the time with two threads
// and 2/5 with four or more (nine would take 8/9, 4/9, and 2/9 with eight). Where a map costs next to nothing two threads
// take 3/5. Rounds of five bound the maps that are held.
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/common/linear.h"
#include "families/common/team.h"

namespace ttr::families {

inline constexpr std::ptrdiff_t most_segments = 5;  // that are scanned at a time

/// Tokens that a segment should have at least: with fewer, what several threads win is lost between them. `state` is
/// the numbers of a state.
constexpr std::ptrdiff_t least_segment(std::ptrdiff_t state) {
  return std::clamp<std::ptrdiff_t>(16 * 1024 / std::max<std::ptrdiff_t>(state, 1), 16, 1024);
}

struct Segments {
  using Size = std::ptrdiff_t;
  Sequence all;
  Size length = 1, count = 0;

  /// Of `length` tokens each, but for the last.
  static Segments of_length(const Sequence& n, Size length) {
    length = std::max<Size>(length, 1);
    return {n, length, (n.end - n.begin + length - 1) / length};
  }
  /// 5 or 3 of at least `least` tokens, or one; whole multiples of `unit`. chunk > 0: of that many tokens.
  static Segments of(const Sequence& n, int chunk, Size least, Size unit = 1) {
    const Size time = n.end - n.begin;
    if (chunk > 0) return of_length(n, chunk);
    Size parts = most_segments;
    while (parts > 1 && parts * least > time) parts = parts > 3 ? parts / 2 + 1 : 1;
    const Size share = (time + parts - 1) / parts;
    return of_length(n, (share + unit - 1) / unit * unit);
  }
  /// The most segments that a sequence of up to `time` tokens has.
  static Size most(Size time, int chunk) {
    return chunk > 0 ? (time + chunk - 1) / chunk : std::min(std::max<Size>(time, 1), most_segments);
  }
  /// The longest segment that a sequence of up to `time` tokens has.
  static Size longest(Size time, int chunk, Size least, Size unit = 1) {
    const Size most = chunk > 0 ? Size{chunk} : std::max(3 * least, time / most_segments) + unit;
    return std::clamp<Size>(most, 1, std::max<Size>(time, 1));
  }
  Sequence operator[](Size i) const {
    return {all.row, all.begin + i * length, std::min(all.begin + (i + 1) * length, all.end)};
  }
};

/// compose(i, j): map i becomes map i after map j; for maps 0 .. count-1. `share`: whether a step is worth a part.
template <class Compose>
void up_sweep(const Team& team, std::ptrdiff_t count, bool share, Compose&& compose) {
  for (std::ptrdiff_t d = 1; 2 * d <= count; d *= 2)
    (share ? team : Team()).each(count / (2 * d), [&](std::ptrdiff_t i, int worker) {
      compose((i + 1) * 2 * d - 1, i * 2 * d + d - 1, worker);
    });
}

/// apply(j, i): start j is made by map j - 1 of start i; for starts 1 .. count, of maps that up_sweep has left.
template <class Apply>
void down_sweep(const Team& team, std::ptrdiff_t count, bool share, Apply&& apply) {
  std::ptrdiff_t d = 1;
  while (2 * d <= count) d *= 2;
  for (; d > 0; d /= 2)
    (share ? team : Team()).each((count + d) / (2 * d), [&](std::ptrdiff_t i, int worker) {
      apply(i * 2 * d + d, i * 2 * d, worker);
    });
}

}  // namespace ttr::families
