// What a forward keeps for its backward, so that this need not find it again: at the end of every chunk but the last of
// a sequence the state S [K,V], and of its tokens what the family asks for (rows of V numbers: what a delta rule has
// written). A slot per chunk and head, chunk after chunk, the heads of a chunk beside each other; the slots of a sequence
// come before those of the next. The last chunk has none: a call may end in the middle of it, and backward takes it from
// the slot before.
//
// The bits are those of the replay that backward does without it: forward and replay are the same code, in chunks of the
// same length (schedule.h), and the chunks of a sequence are counted from its own beginning whatever block of time, heads
// or columns a call is divided into.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace ttr::families {

/// Tokens [begin, end) of batch row `row` are one sequence with one state.
struct Sequence {
  std::ptrdiff_t row, begin, end;
};

/// Rows of numbers `ld` apart, one for each token; data = null: nobody asks.
template <class T>
struct TokenRows {
  T* data = nullptr;
  std::ptrdiff_t ld = 0;
  TokenRows from(std::ptrdiff_t token) const { return {data ? data + token * ld : nullptr, ld}; }
};

/// The room of one step of a call, as the part of the call at hand sees it; data = null: there is none.
template <class T>
struct Saving {
  T* data = nullptr;
  std::span<const Sequence> whole;         // the sequences of the call, of which those of the part are pieces
  const std::ptrdiff_t* before = nullptr;  // tokens of each of them in front of this piece; null: none
  std::size_t first_sequence = 0;          // the first of the part
  int pairs = 1;                           // tokens of the step per token of the call
  int heads = 0, first_head = 0;           // of the call, and the first of the part
  int columns = 0, first_column = 0;
};

/// Numbers of a slot: the state, the rows, and one that says whether the rows are there. Multiples of a cache line.
struct SlotShape {
  using Size = std::ptrdiff_t;
  Size state = 0, rows = 0;
  static constexpr Size line = 16;
  static constexpr Size lines(Size n) { return (n + line - 1) / line * line; }
  Size numbers() const { return lines(state) + lines(rows) + line; }
};

/// What a forward leaves of a sequence: a slot for each of `count` chunks of `tokens` tokens and each head, of `slot` numbers,
/// which begins with the state behind the chunk.
struct SavedChunks {
  std::ptrdiff_t count = 0, tokens = 0, slot = 0;
};

/// The slots of one sequence and head.
template <class T>
struct Slots {
  using Size = std::ptrdiff_t;
  T* data = nullptr;  // of the first chunk; null: none
  Size stride = 0;    // between chunks
  Size count = 0;     // chunks that have one
  Size chunk = 1;     // tokens of a chunk
  SlotShape shape;
  Size columns = 0, first_column = 0, width = 0;  // of all; the first and the number of those at hand
  bool first = true;                              // who writes what columns share
  bool far = false;                               // more than caches hold: what is left there goes past them

  explicit operator bool() const { return data != nullptr; }
  T* state(Size i) const { return data + i * stride; }
  TokenRows<T> rows(Size i) const {
    if (shape.rows == 0) return {};
    return {data + i * stride + SlotShape::lines(shape.state) + first_column, columns};
  }
  /// Not zero: the rows of chunk i are there.
  T& filled(Size i) const { return data[i * stride + shape.numbers() - SlotShape::line]; }

  /// Where the rows of the token `at` of the sequence go; nowhere in the last chunk.
  TokenRows<T> rows_at(Size at) const {
    const Size i = at / chunk;
    return i < count ? rows(i).from(at % chunk) : TokenRows<T>{};
  }
  /// Tokens at .. at+c-1, within one chunk, have passed: S is the state behind them, and their rows are there if `kept`.
  /// copy(n, from, to) copies numbers.
  template <class Copy>
  void passed(Size at, Size c, bool kept, Size K, const T* S, const Copy& copy) const {
    const Size i = at / chunk;
    if (i >= count) return;
    if (first && (at % chunk == 0 || !kept)) filled(i) = kept ? T(1) : T(0);
    if ((at + c) % chunk != 0) return;
    T* const to = state(i) + first_column;
    if (width == columns) copy(K * width, S, to);
    else
      for (Size row = 0; row < K; ++row) std::copy_n(S + row * width, width, to + row * columns);
  }
};

/// The slots of a sequence and head, and how many tokens of it have passed.
template <class T>
struct KeptFrom {
  Slots<T> slots;
  std::ptrdiff_t passed = 0;
};

}  // namespace ttr::families
