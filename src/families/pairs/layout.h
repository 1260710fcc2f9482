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
#include "families/pairs/attention/kept_simd.h"
#include "families/pairs/problem.h"
#include "simd/half_simd.h"

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

/// Rows of a list of pairs in fewer bytes, [N, capacity, heads, dim]: bf16, f16, or i8 with a scale per row.
struct CompactRows {
  Type type = Type::bf16;
  const void* data = nullptr;     // null: the list is of the plan's type
  const float* scales = nullptr;  // [N, capacity, heads] of i8
  Size capacity = 0, heads = 0;   // of the whole list, whatever heads a call sees
  Size dim = 0;
  explicit operator bool() const { return data != nullptr; }

  /// Those of some heads, where they lie
  KeptSimd::Rows rows(Size n, Block block, int first_head, int some) const {
    const Size row = (n * capacity + block.begin) * heads + first_head;
    return {type,
            block.count,
            some,
            dim,
            static_cast<const std::byte*>(data) + row * dim * static_cast<Size>(size_of(type)),
            heads * dim,
            scales ? scales + row : nullptr,
            heads};
  }
  /// out [count, dim] = one head of `count` rows from position `at` on
  void widen(const HalfSimd& convert, Size n, Size at, Size count, int head, float* out) const {
    Size row = (n * capacity + at) * heads + head;
    for (Size i = 0; i < count; ++i, row += heads, out += dim) {
      if (scales) convert.widen_i8(dim, static_cast<const std::int8_t*>(data) + row * dim, scales[row], out);
      else
        (type == Type::f16 ? convert.widen_f16 : convert.widen_bf16)(
            dim, static_cast<const std::uint16_t*>(data) + row * dim, out);
    }
  }
  /// Row `at` of head `head` = in [dim]; the list is then not constant.
  void narrow(const HalfSimd& convert, Size n, Size at, int head, const float* in) const {
    const Size row = (n * capacity + at) * heads + head;
    void* const list = const_cast<void*>(data);
    if (scales)
      const_cast<float*>(scales)[row] = convert.narrow_i8(dim, in, static_cast<std::int8_t*>(list) + row * dim);
    else
      (type == Type::f16 ? convert.narrow_f16 : convert.narrow_bf16)(dim, in,
                                                                     static_cast<std::uint16_t*>(list) + row * dim);
  }
};

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
  Size positions() const { return past + tokens; }  // that gates have: queries may come without pairs of their own
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

/// Rows of one head from `position` on, where they lie or in `buffer`: of the past, which may be in fewer bytes, or of the
/// call. `list` of the problem, its compact form, and of the call.
template <class T>
const T* rows_at(const Simd<T>& s, const Layout& x, const View<const T, 4>& of_past, const CompactRows& compact,
                 const View<const T, 4>& of_call, Block block, int head, Size dim, T* buffer, Size* ld) {
  if constexpr (sizeof(T) == 4)
    if (compact && block.begin < x.past) {
      compact.widen(half_simd(s), x.index, block.begin, block.count, head, buffer);
      *ld = dim;
      return buffer;
    }
  return contiguous(s, x.place(of_past, of_call, block.begin), block.count, head, dim, buffer, ld);
}

/// Rows of the past of some heads, where they lie: of `of_past`, or of its form in fewer bytes.
inline KeptSimd::Rows kept_rows(const Layout& x, const View<const float, 4>& of_past, const CompactRows& compact,
                                Block block, int first_head, int some) {
  if (compact) return compact.rows(x.index, block, first_head, some);
  return {Type::f32,        block.count, some, of_past.extent[3], &of_past(x.index, block.begin, first_head, 0),
          of_past.stride[1]};
}
/// Whether they lie side by side, as kept_rows wants them.
inline bool lies_by_pairs(const View<const float, 4>& of_past, const CompactRows& compact) {
  return compact || (of_past && of_past.stride[3] == 1 && of_past.stride[2] == of_past.extent[3]);
}

/// The compact form of the past's keys (or values), of families that have one.
template <class P>
CompactRows compact_keys(const P& p) {
  if constexpr (requires { p.compact_k; }) return p.compact_k;
  else return {};
}
template <class P>
CompactRows compact_values(const P& p) {
  if constexpr (requires { p.compact_v; }) return p.compact_v;
  else return {};
}

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
