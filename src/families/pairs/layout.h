// Blocks of pairs: which of them a block of queries sees, and where they lie.
//
// Pairs have positions: 0 .. past-1 are those of earlier calls, past .. past+present-1 those of this call; token t of
// the sequence is at position past + t. Blocks of C pairs do not cross the border between the two, and the queries of
// tile i are the tokens of the i-th block of this call, so a tile and a block are either the same tokens or apart.
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/common/scratch.h"
#include "families/pairs/attention/attention_simd.h"
#include "families/pairs/problem.h"

namespace ttr::families::pairs {

using Size = std::ptrdiff_t;
using families::add_rows;
using families::contiguous;
using families::pack;

inline constexpr Size block_size = 64;

struct Block {
  Size begin, count;  // position of the first pair, or number of the first token
};

/// A run of positions in the tensor it lies in
template <class View>
struct Place {
  View view;
  Size row, at;
};

/// out [count, dim] = one head of it
template <class T>
void pack(const Simd<T>& s, const Place<View<const T, 4>>& from, Size count, int head, Size dim, T* out) {
  pack(s, from.view, from.row, from.at, count, head, static_cast<int>(dim), T(1), out);
}
/// The same where it lies, if its rows are contiguous, else in `buffer`; *ld is the distance between rows.
template <class T>
const T* contiguous(const Simd<T>& s, const Place<View<const T, 4>>& from, Size count, int head, Size dim, T* buffer,
                    Size* ld) {
  return contiguous(s, from.view, from.row, from.at, count, head, static_cast<int>(dim), buffer, ld);
}
/// One head of it += in [count, dim], if it is wanted
template <class T>
void add_rows(const Simd<T>& s, const T* in, Size count, int head, Size dim, const Place<View<T, 4>>& to) {
  if (to.view) add_rows(s, T(1), in, to.row, to.at, count, head, static_cast<int>(dim), to.view);
}

/// One sequence of a call.
struct Layout {
  Sequence sequence;
  Size index;  // its row of the past
  Size past, tokens, present, window, C;
  bool causal;

  /// Small windows get small blocks: work stays near what is seen.
  static Size block_of(Size window) { return window > 0 && window <= 16 ? 16 : window > 0 && window <= 32 ? 32 : 64; }

  Size row() const { return sequence.row; }
  Size token(Block tile) const { return sequence.begin + tile.begin; }  // of the tensors of this call
  Size pairs() const { return past + present; }
  Size past_blocks() const { return (past + C - 1) / C; }
  Size tiles() const { return (tokens + C - 1) / C; }
  Block tile(Size i) const { return {i * C, std::min(C, tokens - i * C)}; }  // in tokens
  Block block(Size b) const {
    const Size first = past_blocks();
    if (b < first) return {b * C, std::min(C, past - b * C)};
    return {past + (b - first) * C, std::min(C, present - (b - first) * C)};
  }
  Size block_at(Size position) const {
    return position < past ? position / C : past_blocks() + (position - past) / C;
  }
  /// Pairs seen by at least one of the tokens [first, first + count), count >= 1
  Block seen(Size first, Size count) const {
    if (!causal) return {0, pairs()};
    const Size end = past + first + count;
    const Size begin = window > 0 ? std::max<Size>(0, past + first + 1 - window) : 0;
    return {begin, end - begin};
  }
  /// Of a block, to the tokens of a tile
  MaskRange visible(Block tile, Block block) const {
    const Size next = past + tile.begin + 1 - block.begin;
    return {tile.count, block.count, causal && window > 0 ? next - window : -MaskRange::no_limit,
            causal ? next : MaskRange::no_limit};
  }
  bool is_own(Block tile, Block block) const { return causal && block.begin == past + tile.begin; }

  /// `of_past` [N, capacity, ..] and `of_call` [B, T, ..] are the two parts of a list.
  template <class View>
  Place<View> place(const View& of_past, const View& of_call, Size position) const {
    if (position < past) return {of_past, index, position};
    return {of_call, sequence.row, sequence.begin + position - past};
  }
};

/// Families without a window, or that are always causal, do not have these fields.
template <class P>
Layout layout_of(const P& p, std::size_t n) {
  Size window = 0;
  bool causal = true;
  if constexpr (requires { p.window; }) window = p.window;
  if constexpr (requires { p.causal; }) causal = p.causal;
  const Size tokens = p.tokens_of(n);
  return {p.sequences[n], static_cast<Size>(n),     p.past_of(n), tokens, p.k ? tokens : 0,
          window,         Layout::block_of(window), causal};
}

}  // namespace ttr::families::pairs
