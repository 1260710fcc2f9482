// Hints for the rows that are needed next. The rows of one head lie far apart in [B, T, H, D] and no hardware
// prefetcher follows them, so a chunk would wait for its panels. A burst of hints waits as well, once the queue of
// the cache is full: they are spread over the work on the chunk at hand, a few lines at a time.
//
//   ahead.begin();  ahead.add(view, row, begin, count, head, heads, dim);  ..  ahead.spread(steps);
//   ahead.step();  work  ahead.step();  work  ..
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "simd/simd.h"
#include "ttr/view.h"

namespace ttr::families {

template <class T>
class Ahead {
 public:
  using Size = std::ptrdiff_t;
  explicit Ahead(const Simd<T>& simd) : s(simd) {}

  void begin() { filled = at = total = 0; }

  /// Tokens begin .. begin+count-1 of heads head .. head+heads-1, D numbers each.
  template <class U>
  void add(const View<U, 4>& x, Size row, Size begin, Size count, Size head, Size heads, Size D) {
    if (!x || x.stride[3] != 1 || filled == static_cast<Size>(pieces.size())) return;
    if (heads > 1 && x.stride[2] != D) return;
    pieces[static_cast<std::size_t>(filled++)] = {
        x.data + row * x.stride[0] + begin * x.stride[1] + head * x.stride[2], x.stride[1], heads * D, count, 0};
    total += count * ((heads * D + line - 1) / line);
  }
  /// Of the next chunk, the share of head `head` of `heads`: whole tokens, whose heads are neighbours. For loops that
  /// take a chunk of c tokens at `begin` through all heads before the next.
  template <class U>
  void add_share(const View<U, 4>& x, Size row, Size begin, Size c, Size head, Size heads, Size D) {
    const Size from = c * head / heads, count = c * (head + 1) / heads - from;
    add(x, row, begin + c + from, count, 0, heads, D);
  }

  /// n numbers that lie together.
  void add_rows(const T* x, Size n) {
    if (filled == static_cast<Size>(pieces.size())) return;
    pieces[static_cast<std::size_t>(filled++)] = {x, 0, n, 1, 0};
    total += (n + line - 1) / line;
  }

  /// All hints in this many steps.
  void spread(Size steps) { budget = (total + steps - 1) / steps; }

  void step() {
    for (Size left = budget; left > 0 && at < filled;) {
      Piece& p = pieces[static_cast<std::size_t>(at)];
      if (p.rows <= 0) {
        ++at;
        continue;
      }
      const Size lines = (p.width - p.done + line - 1) / line, now = std::min(left, lines);
      s.prefetch_rows(1, std::min(p.width - p.done, now * line), p.data + p.done, 0);
      left -= now, p.done += now * line;
      if (p.done >= p.width) p.done = 0, p.data += p.step, --p.rows;
    }
  }

 private:
  static constexpr Size line = 64 / static_cast<Size>(sizeof(T));
  struct Piece {  // no initial values: a step of one token makes one of these and adds nothing
    const T* data;
    Size step, width, rows, done;
  };
  const Simd<T>& s;
  std::array<Piece, 16> pieces;
  Size filled = 0, at = 0, total = 0, budget = 0;
};

}  // namespace ttr::families
