// Forget gates between pairs and queries: what they add to a logit, and their gradient.
//
// A gate between a query and a pair of different blocks is a sum of three: from the pair to the end of its block,
// over the blocks between, from the start of the tile to the query; one number per pair and one per query. Only a
// tile's own block needs a matrix of sums. All of it times `scale`, which is 1 where logits are scaled before the
// gates are added.
//
//   dg = scale revcum(rowsum(X) - colsum(X))      X the gradient of the logits; in double: most of it cancels. The sums
//   are taken without the pair of a token with itself, which no gate stands before: it would be all of both under
//   strong gates, and what is left its rounding.
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/common/scratch.h"
#include "families/pairs/layout.h"

namespace ttr::families::pairs {

/// sums_j = scale (g_{j+1} + .. + g_end) for the positions of a block; returns the sum of all its gates, unscaled.
template <class T>
double suffix_gates(const Simd<T>& s, T scale, const Place<View<const T, 3>>& g, Size count, int head, T* sums) {
  double sum = 0;
  for (Size j = count; j-- > 0;) {
    sums[j] = static_cast<T>(sum);
    sum += static_cast<double>(g.view(g.row, g.at + j, head));
  }
  if (scale != T(1)) s.scale(count, scale, sums, sums);
  return sum;
}

/// What queries that see the past alone have between it and a tile: the gates of all tokens before. Others meet these with
/// the pairs of the tokens.
template <class Problem>
double gates_before(const Problem& p, const Layout& x, Block tile, int head) {
  double sum = 0;
  for (Size t = 0; p.g && !p.k && t < tile.begin; ++t)
    sum += static_cast<double>(p.g(x.row(), x.sequence.begin + t, head));
  return sum;
}

/// sums_i = scale (between + g_first + .. + g_i) for the tokens of a tile; returns the last, without `between` and
/// unscaled.
template <class T>
double prefix_gates(const Simd<T>& s, T scale, const View<const T, 3>& g, const Layout& x, Block tile, int head,
                    double between, T* sums) {
  double sum = 0;
  for (Size i = 0; i < tile.count; ++i) {
    sum += static_cast<double>(g(x.row(), x.token(tile) + i, head));
    sums[i] = static_cast<T>(between + sum);
  }
  if (scale != T(1)) s.scale(tile.count, scale, sums, sums);
  return sum;
}

/// D_ij = scale (g_{j+1} + .. + g_i) for j <= i, within a tile
template <class T>
void own_gates(const Simd<T>& s, T scale, const View<const T, 3>& g, const Layout& x, Block tile, int head, T* D,
               Size ldd) {
  for (Size i = 0; i < tile.count; ++i) {
    const T gate = g(x.row(), x.token(tile) + i, head);
    for (Size j = 0; j < i; ++j) D[i * ldd + j] = D[(i - 1) * ldd + j] + gate;
    D[i * ldd + i] = 0;
  }
  for (Size i = 0; scale != T(1) && i < tile.count; ++i) s.scale(i + 1, scale, D + i * ldd, D + i * ldd);
}

/// rowsum(X) - colsum(X) of the heads of a group, for all positions of a sequence.
template <class T>
struct GateSums {
  GateSums(const AttentionSimd<T>* table, int group, Size C, Size pairs, Arena& arena) : a(table) {
    read = arena.take<double>(group * pairs), written = arena.take<double>(group * pairs);
    take(C, arena);
  }
  /// For another worker: adds to the same sums.
  GateSums(const GateSums& whole, Size C, Arena& arena) : a(whole.a), read(whole.read), written(whole.written) {
    take(C, arena);
  }

  void clear(const Layout& x, int group) {
    std::fill_n(read, group * x.positions(), 0.0), std::fill_n(written, group * x.positions(), 0.0);
  }
  /// What the rows and columns of X [tile, block] add up to, in `rows` and `columns`, without the pairs of tokens with
  /// themselves; with_own adds these.
  void sum(const Layout& x, Block tile, Block block, T* X, Size ld) {
    std::fill_n(rows, tile.count, 0.0);
    std::fill_n(columns, block.count, 0.0);
    own = x.is_own(tile, block) ? std::min(tile.count, block.count) : 0;
    for (Size i = 0; i < own; ++i) diagonal[i] = X[i * ld + i], X[i * ld + i] = T(0);
    a->add_sums(tile.count, block.count, X, ld, rows, columns);
    for (Size i = 0; i < own; ++i) X[i * ld + i] = diagonal[i];
  }
  void with_own() {
    for (Size i = 0; i < own; ++i) {
      const double pair = static_cast<double>(diagonal[i]);
      rows[i] += pair, columns[i] += pair;
    }
  }
  /// These, for head `r` of the group
  void add(const Layout& x, int r, Block tile, Block block) {
    double *const to_rows = read + r * x.positions(), *const to_columns = written + r * x.positions();
    for (Size i = 0; i < tile.count; ++i) to_rows[x.past + tile.begin + i] += rows[i];
    for (Size j = 0; j < block.count; ++j) to_columns[block.begin + j] += columns[j];
  }
  /// The oldest gate has no pair before it.
  void back(const Layout& x, int r, int head, T scale, const View<T, 3>& d_past_g, const View<T, 3>& d_g) const {
    const double *const of_rows = read + r * x.positions(), *const of_columns = written + r * x.positions();
    double sum = 0;
    for (Size i = x.positions(); --i > 0;) {
      sum += of_rows[i] - of_columns[i];
      const auto to = x.place(d_past_g, d_g, i);
      if (to.view) to.view(to.row, to.at, head) += static_cast<T>(static_cast<double>(scale) * sum);
    }
  }

  const AttentionSimd<T>* a;
  double *read, *written;  // [group, positions]: of rows and of columns, which a team may add to at the same time
  double *rows, *columns;  // [C]
  T* diagonal;
  Size own = 0;

 private:
  void take(Size C, Arena& arena) {
    for (double** piece : {&rows, &columns}) *piece = arena.take<double>(C);
    diagonal = arena.take<T>(C);
  }
};

}  // namespace ttr::families::pairs
