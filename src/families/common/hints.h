// Hints for the rows of the next chunk, given while products of this one are at work (Hints in simd.h): a strip of
// four cache lines every hundred vector multiply-adds or so. The rows of one head lie far apart in [B, T, H, D] and
// no hardware prefetcher follows them; more than a dozen lines at once, on the other hand, fill the queue of the cache
// and wait, as do hints that come in a burst between two products.
//
//   hints.begin();  hints.add(view, row, begin, count, head, heads, dim);  ..  hints.spread(multiply_adds);
//   s.gemm_nn_onto(.., hints.get());
#pragma once

#include <algorithm>
#include <cstddef>

#include "simd/simd.h"
#include "ttr/view.h"

namespace ttr::families {

inline constexpr std::ptrdiff_t longest_hinted = 2048;  // bytes of a row, for sweeps

template <class T>
class RowHints {
 public:
  using Size = std::ptrdiff_t;
  explicit RowHints(const Simd<T>& simd, Size longest_row = 256) : longest(longest_row), lanes(simd.lanes) {}

  void begin() { hints.count = hints.at = 0, hints.done = hints.credit = 0, hints.every = 1, strips = 0; }

  /// Tokens begin .. begin+count-1 of heads head .. head+heads-1, D numbers each. Nothing where the tokens of a head
  /// are neighbours, or their rows so long that the hardware notices (measured: with products, hints for rows of 512
  /// bytes cost more than they save; with sweeps over the state they save a third of the time).
  template <class U>
  void add(const View<U, 4>& x, Size row, Size begin, Size count, Size head, Size heads, Size D) {
    constexpr Size size = sizeof(T);
    if (!x || count <= 0 || x.stride[3] != 1 || x.stride[1] == D || D * size > longest || hints.count == Hints::most)
      return;
    if (heads > 1 && x.stride[2] != D) return;
    const U* const first = x.data + row * x.stride[0] + begin * x.stride[1] + head * x.stride[2];
    const Size bytes = heads * D * size;
    hints.pieces[hints.count++] = {reinterpret_cast<const char*>(first), x.stride[1] * size, bytes, count};
    strips += count * ((bytes + Hints::strip - 1) / Hints::strip);
  }
  /// Of the next chunk, the share of head `head` of `heads`: whole tokens, whose heads are neighbours. For loops that
  /// take a chunk of c tokens at `begin` through all heads before the next.
  template <class U>
  void add_share(const View<U, 4>& x, Size row, Size begin, Size c, Size head, Size heads, Size D) {
    const Size from = c * head / heads, count = c * (head + 1) / heads - from;
    add(x, row, begin + c + from, count, 0, heads, D);
  }

  /// All of them during products of this many multiply-adds, or a little earlier.
  void spread(Size multiply_adds) {
    const Size rounds = multiply_adds / std::max<Size>(1, lanes) / Hints::round;
    hints.every = std::max<Size>(1, rounds * 7 / 8 / std::max<Size>(1, strips));
  }
  Hints* get() { return strips > 0 ? &hints : nullptr; }

 private:
  Hints hints;
  Size longest, lanes, strips = 0;
};

}  // namespace ttr::families
