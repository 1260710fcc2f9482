// Prefetching the rows that are needed next. The rows of one head lie far apart in [B, T, H, D] and no hardware
// prefetcher follows them, so a chunk would wait for its panels. A burst of prefetches waits as well, once the queue
// of the cache is full (a dozen lines), so they are spread over the work on the current chunk, in one of two ways.
//
//   rows.begin();  rows.add(view, row, begin, count, head, heads, dim);  ..
//   rows.spread(steps);  rows.step();  work  rows.step();  work  ..           a few lines between two parts of the work
//   rows.spread_over(multiply_adds);  s.gemm_nn_onto(.., rows.get());         four lines about every hundred vector
//                                                                             multiply-adds of the product (simd.h)
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "families/common/half_rows.h"
#include "simd/simd.h"
#include "ttr/view.h"

namespace ttr::families {

/// Bytes of the longest rows that are worth it while products (state sweeps) are at work: the hardware notices longer
/// ones. Measured: with products, rows of 512 bytes cost more than they save; with sweeps they save a third of the time.
inline constexpr std::ptrdiff_t longest_in_products = 256, longest_in_sweeps = 2048;

template <class T>
class Prefetch {
 public:
  using Size = std::ptrdiff_t;
  /// With a longest row (bytes): neither longer ones nor those that are neighbours in memory, which the hardware finds.
  explicit Prefetch(const Simd<T>& simd, Size longest_row = 0) : s(simd), longest(longest_row) {}

  void begin() {
    list.count = list.at = 0, list.done = list.credit = 0, list.every = 1, filled = 0, lines = strips = 0;
  }

  /// Tokens begin .. begin+count-1 of heads head .. head+heads-1, D numbers each.
  template <class U>
  void add(const View<U, 4>& x, Size row, Size begin, Size count, Size head, Size heads, Size D) {
    const bool half = has_half_rows(x);
    const Size size = half ? 2 : sizeof(T);
    if (!x || count <= 0 || (x.stride[3] != 1 && !half) || (heads > 1 && x.stride[2] != D)) return;
    if (longest > 0 && (x.stride[1] == D || D * size > longest)) return;
    const Size at = row * x.stride[0] + begin * x.stride[1] + head * x.stride[2];
    append(reinterpret_cast<const char*>(x.data) + at * size, x.stride[1] * size, heads * D * size, count);
  }
  /// Of the next chunk, the share of head `head` of `heads`: whole tokens, whose heads are neighbours. For loops that
  /// take a chunk of c tokens at `begin` through all heads before the next. Rows that will be written are left out where
  /// others lie between them, which another thread may write: with a line its neighbours are fetched as well, and whoever
  /// owns them waits to have them back (two threads had hardly more tokens than one).
  template <class U>
  void add_share(const View<U, 4>& x, Size row, Size begin, Size c, Size head, Size heads, Size D) {
    if (!std::is_const_v<U> && x.stride[1] != heads * D) return;
    const Size from = c * head / heads, count = c * (head + 1) / heads - from;
    add(x, row, begin + c + from, count, 0, heads, D);
  }
  /// n numbers that lie together.
  void add_rows(const T* x, Size n) { append(x, 0, n * Size{sizeof(T)}, 1); }

  /// All of them in this many steps.
  void spread(Size steps) { budget = (lines + steps - 1) / steps; }
  void step() {
    for (Size left = budget; left > 0 && list.at < filled;) {
      Hints::Rows& rows = piece(list.at);
      if (rows.rows <= 0) {
        ++list.at;
        continue;
      }
      const Size rest = rows.bytes - list.done, now = std::min(left, (rest + line - 1) / line);
      s.prefetch_rows(1, std::min(rest, now * line) / Size{sizeof(T)},
                      reinterpret_cast<const T*>(rows.data + list.done), 0);
      left -= now, list.done += now * line;
      if (list.done >= rows.bytes) list.done = 0, rows.data += rows.step, --rows.rows;
    }
  }

  /// All of them during products of this many multiply-adds, or a little earlier.
  void spread_over(Size multiply_adds) {
    const Size rounds = multiply_adds / std::max<Size>(1, s.lanes) / Hints::round;
    list.every = std::max<Size>(1, rounds * 7 / 8 / std::max<Size>(1, strips));
  }
  Hints* get() { return strips > 0 ? &list : nullptr; }

 private:
  static constexpr Size line = 64;

  Hints::Rows& piece(int i) { return i < Hints::most ? list.pieces[i] : more[i - Hints::most]; }
  void append(const void* first, Size step, Size bytes, Size rows) {
    if (filled == 2 * Hints::most) return;
    piece(filled++) = {static_cast<const char*>(first), step, bytes, rows};
    lines += rows * ((bytes + line - 1) / line);
    if (filled > Hints::most) return;
    list.count = filled, strips += rows * ((bytes + Hints::strip - 1) / Hints::strip);
  }

  const Simd<T>& s;
  Hints list;  // no initial values of rows: a step of one token makes one of these and adds nothing
  Hints::Rows more[Hints::most];  // for step() alone: products take no more than Hints has
  int filled = 0;
  Size longest, lines = 0, strips = 0, budget = 0;
};

}  // namespace ttr::families
