// Blocks of streaming attention: which pairs a block of queries sees, where they lie, and what gates add to a logit.
//
// Pairs have positions: 0 .. past-1 are those of earlier calls, past .. past+present-1 those of this call; token t of
// the sequence is at position past + t. Blocks of C pairs do not cross the border between the two, and the queries of
// tile i are the tokens of the i-th block of this call, so a tile and a block are either the same tokens or apart.
//
// A gate between a query and a pair of different blocks is a sum of three: from the pair to the end of its block,
// over the blocks between, from the start of the tile to the query; one number per pair and one per query. Only a
// tile's own block needs a matrix of sums.
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/common/prefetch.h"
#include "families/pairs/attention/attention.h"
#include "families/common/scratch.h"
#include "families/pairs/attention/attention_simd.h"

namespace ttr::families::attention {

using Size = std::ptrdiff_t;

constexpr Size far_away = Size{1} << 48;
constexpr Size rows_together = 512;  // queries (tokens x heads) that share a packed block of pairs

struct Block {
  Size begin, count;  // position of the first pair
};

struct Layout {
  Size past, tokens, present, window, C;
  bool causal;

  /// Small windows get small blocks: work stays near what is seen.
  static Size block_size(Size window) {
    return window > 0 && window <= 16 ? 16 : window > 0 && window <= 32 ? 32 : 64;
  }

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
    if (!causal) return {0, past + present};
    const Size end = past + first + count;
    const Size begin = window > 0 ? std::max<Size>(0, past + first + 1 - window) : 0;
    return {begin, end - begin};
  }
  /// Of a block by the tokens of a tile
  template <class T>
  typename AttentionSimd<T>::Sight sight(Block tile, Block block) const {
    const Size next = past + tile.begin + 1 - block.begin;
    return {tile.count, block.count, causal && window > 0 ? next - window : -far_away, causal ? next : far_away};
  }
  bool is_own(Block tile, Block block) const { return causal && block.begin == past + tile.begin; }
};

template <class Sight>
bool sees_nothing(const Sight& s) {
  return s.hi + s.M - 1 <= 0 || s.lo >= s.N;
}
template <class Sight>
bool sees_all(const Sight& s) {
  return s.hi >= s.N && s.lo + s.M - 1 <= 0;
}

template <class T>
Layout layout_of(const AttentionProblem<T>& p, const Sequence& n, Size lane) {
  const Size tokens = n.end - n.begin;
  const Size past = p.past_count ? static_cast<Size>(p.past_count[lane]) : 0;
  return {past, tokens, p.k ? tokens : 0, p.window, Layout::block_size(p.window), p.causal};
}

/// A run of positions in the tensor it lies in
template <class View>
struct Place {
  View view;
  Size row, at;
};
template <class View>
Place<View> place(const Layout& x, const Sequence& n, Size lane, const View& past, const View& present,
                  Size position) {
  if (position < x.past) return {past, lane, position};
  return {present, n.row, n.begin + position - x.past};
}

/// sums_j = g_{j+1} + .. + g_end for the positions of a block; returns the sum of all its gates.
template <class T>
double suffix_gates(const Place<View<const T, 3>>& g, Size count, int head, T* sums) {
  double sum = 0;
  for (Size j = count; j-- > 0;) {
    sums[j] = static_cast<T>(sum);
    sum += static_cast<double>(g.view(g.row, g.at + j, head));
  }
  return sum;
}

/// sums_i = between + g_first + .. + g_i for the tokens of a tile; returns the last, without `between`.
template <class T>
double prefix_gates(const View<const T, 3>& g, Size row, Size first, Size count, int head, double between, T* sums) {
  double sum = 0;
  for (Size i = 0; i < count; ++i) {
    sum += static_cast<double>(g(row, first + i, head));
    sums[i] = static_cast<T>(between + sum);
  }
  return sum;
}

/// D_ij = g_{j+1} + .. + g_i for j <= i, within a tile
template <class T>
void own_gates(const View<const T, 3>& g, Size row, Size first, Size count, int head, T* D, Size ldd) {
  for (Size i = 0; i < count; ++i) {
    const T gate = g(row, first + i, head);
    for (Size j = 0; j < i; ++j) D[i * ldd + j] = D[(i - 1) * ldd + j] + gate;
    D[i * ldd + i] = 0;
  }
}

/// Everything that does not depend on the numbers in a call.
template <class T>
Status check(const AttentionProblem<T>&, bool backward, Workspace) noexcept;

/// Bytes the backward pass takes from a workspace.
template <class T>
std::size_t backward_bytes(int heads, int key_heads, int key_dim, int value_dim, Size longest, Size past,
                           Size window);

/// The streaming pass over key heads of one sequence, for forward, and for backward, which needs lse and o again.
/// Results are handed over tile by tile.
template <class T>
class Stream {
 public:
  Stream(const Simd<T>& simd, int heads, int key_heads, int key_dim, int value_dim, Size window, Arena& arena);

  /// each(head, tokens, o [count, V], lse [count]) for the tokens of a tile; o is null unless `outputs`.
  template <class Each>
  void run(const AttentionProblem<T>& p, const Sequence& n, Size lane, int first_key_head, int key_heads,
           bool outputs, Each&& each) {
    const Layout x = layout_of(p, n, lane);
    const int first = first_key_head * group, end = first + key_heads * group;
    if (x.tokens == 1) {
      one_query(p, x, n, lane, first_key_head, key_heads, outputs);
      for (int head = first; head < end; ++head) hand_over(p, head, {0, 1}, head - first, outputs, each);
      return;
    }
    for (int h = first; h < end;) {
      const int key_head = h / group, heads = std::min(together, (key_head + 1) * group - h);
      for (Size i = 0; i < x.tiles(); i += tiles) {
        const Size count = std::min(tiles, x.tiles() - i);
        many_queries(p, x, n, lane, key_head, h, heads, i, count, outputs);
        for (Size t = 0; t < count; ++t)
          for (int r = 0; r < heads; ++r) hand_over(p, h + r, x.tile(i + t), (t * heads + r) * C, outputs, each);
      }
      h += heads;
    }
  }

 private:
  void one_query(const AttentionProblem<T>&, const Layout&, const Sequence&, Size lane, int first_key_head,
                 int key_heads, bool outputs);
  void many_queries(const AttentionProblem<T>&, const Layout&, const Sequence&, Size lane, int key_head,
                    int first_head, int heads, Size first_tile, Size count, bool outputs);
  void tile(const AttentionProblem<T>&, const Layout&, const Sequence&, Block tokens, Block pairs, int head, int slot,
            Size lead, double* gates_between, bool outputs);
  void start(const AttentionProblem<T>&, int head, Size lead, Size count, bool outputs);
  void finish(bool normalise, Size lead, Size count, bool outputs);
  template <class Each>
  void hand_over(const AttentionProblem<T>& p, int head, Block tokens, Size lead, bool outputs, Each& each) {
    finish(p.normalise, lead, tokens.count, outputs);
    each(head, tokens, outputs ? acc + lead * V : nullptr, m + lead);
  }

  const Simd<T>& s;
  const AttentionSimd<T>* a;
  int group, together;  // heads that read one key head; those of them that go side by side
  Size K, V, C, tiles;  // tiles that go side by side
  T *q, *acc, *m, *l;   // [rows, ...], rows ordered tile, head, token; finish turns m into lse
  T *k, *kt, *v, *S, *factor, *row, *suffix, *D, *answer;
  double *between, *total;
  bool finite = true;  // of the packed values
  Prefetch<T> ahead;   // of the next block of pairs, whose rows lie far apart
};

extern template class Stream<float>;
extern template class Stream<double>;

}  // namespace ttr::families::attention
