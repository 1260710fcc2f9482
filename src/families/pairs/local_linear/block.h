// Pairs and queries of local linear attention in tiles, and the weights of one tile of queries.
//
// The pairs of a sequence lie in tiles of 64: first the past (its last tile may be short), then the new tokens, so
// that a tile of queries meets its own keys in exactly one tile. With causality that last tile is a triangle; it is
// only touched by triangular products, which do not read above the diagonal, because 0 times a NaN of a later token
// is NaN; where the tile is `tame` (no NaN, no Inf) the fused passes of local_linear_simd.h take it whole, its
// weights zero above the diagonal. A tile that a window cuts (pairs that have left it for some of the queries) is taken
// whole where it is tame, what is not seen set to zero, else query by query.
//
// One query (a decode step) takes the rows of the pairs as they are: no keys as columns, values where they lie, and of every
// tile exactly what it sees.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "families/common/scratch.h"
#include "families/pairs/attention/attention_simd.h"
#include "families/pairs/gates.h"
#include "families/pairs/layout.h"
#include "families/pairs/local_linear/local_linear.h"
#include "families/pairs/local_linear/local_linear_simd.h"

namespace ttr::families::local_linear {

using pairs::Size;

inline constexpr Size tile_size = pairs::block_size;

/// Tiles that `longest` pairs may need: past and new tokens are rounded up separately.
inline Size most_tiles(Size longest) { return longest / tile_size + 2; }
/// Those of them that the queries of a block may see: window + 63 pairs in a row, and one tile may be short.
inline Size seen_tiles(Size longest, Size window) {
  return window > 0 ? std::min(most_tiles(longest), (window + tile_size - 1) / tile_size + 2) : most_tiles(longest);
}

/// The pairs of one sequence and key head. Keys are relative to `origin`, the first finite one of them.
template <class T>
struct Pairs {
  Pairs(const Simd<T>& simd, int key_dim, int value_dim, Size longest, Arena& arena)
      : s(simd), K(key_dim), V(value_dim) {
    const Size rows = most_tiles(longest) * tile_size;
    k = arena.take<T>(rows * K), v = arena.take<T>(rows * V), origin = arena.take<T>(K);
    transposed = arena.take<T>(rows * (K + 2));
    tame_keys = arena.take<bool>(most_tiles(longest)), tame_values = arena.take<bool>(most_tiles(longest));
  }

  /// `rows_alone`: for one query, forwards. Then nothing is along, values are those of value_rows, and nothing is tame.
  void load(const LocalLinearProblem<T>& p, std::size_t n, int head, bool rows_alone = false) {
    layout = pairs::layout_of(p, n), layout.C = tile_size;
    queries = layout.tokens, past = layout.past, now = layout.present;
    past_tiles = layout.past_blocks(), tiles = past_tiles + (now > 0 ? layout.tiles() : 0);
    one = rows_alone, key_head = head;
    choose_origin(p);
    const LocalLinearSimd<T>& a = local_linear_simd(s);
    for (Size t = one ? layout.block_at(layout.seen(0, 1).begin) : 0; t < tiles; ++t) {
      T* const rows = keys(t);
      T* const columns = along(t);
      const Size filled = count(t);
      Size ld = 0;
      const T* const given =
          contiguous(s, layout.place(p.past_k, p.k, layout.block(t).begin), filled, key_head, Size{K}, rows, &ld);
      if (one) fetch(p.past_k, p.k, t + 1, K);
      T* const halves = columns + (K + 1) * tile_size;
      a.centre(filled, K, given, ld, origin, rows, halves);
      tame_keys[t] = tame_values[t] = false;
      if (one) continue;
      pack(s, layout.place(p.past_v, p.v, layout.block(t).begin), filled, key_head, Size{V}, values(t));
      std::fill_n(columns + K * tile_size, filled, T(1));
      tame_keys[t] = std::all_of(halves, halves + filled, [](T half) { return half < T(1e24); });
      tame_values[t] = true;
      for (Size j = 0; j < filled; ++j)
        tame_values[t] = tame_values[t] && s.dot(V, values(t) + j * V, values(t) + j * V) < T(1e24);
      // What is beyond the last key is multiplied by zero.
      std::fill(rows + filled * K, rows + tile_size * K, T(0));
      std::fill(values(t) + filled * V, values(t) + tile_size * V, T(0));
      for (Size c = 0; c < K + 2; ++c)
        std::fill(columns + c * tile_size + filled, columns + (c + 1) * tile_size, T(0));
      s.transpose(filled, K, rows, K, columns, tile_size);
    }
    ++generation;
  }

  Size count(Size t) const { return layout.block(t).count; }
  T* keys(Size t) const { return k + t * tile_size * K; }                  // [64, K]
  T* values(Size t) const { return v + t * tile_size * V; }                // [64, V]
  T* along(Size t) const { return transposed + t * tile_size * (K + 2); }  // [K + 2, 64]: k', 1, |k|^2 / 2
  const T* half_squares(Size t) const { return along(t) + (K + 1) * tile_size; }
  /// Where the caller has them, or packed; *ld is the distance between rows. Of one query.
  const T* value_rows(const LocalLinearProblem<T>& p, Size t, Size* ld) const {
    fetch(p.past_v, p.v, t + 1, V);
    return contiguous(s, layout.place(p.past_v, p.v, layout.block(t).begin), count(t), key_head, Size{V}, values(t),
                      ld);
  }

  const Simd<T>& s;
  int K, V;
  pairs::Layout layout{};  // its blocks are the tiles
  Size queries = 0, past = 0, now = 0, past_tiles = 0, tiles = 0;
  Size generation = 0;  // counts loads
  T *k, *v, *origin, *transposed;
  bool *tame_keys, *tame_values;  // [tiles] finite, and far from overflow
  bool one = false;               // one query, its rows alone
  int key_head = 0;

 private:
  // The rows of tile t will be read next, and lie far apart.
  void fetch(const View<const T, 4>& of_past, const View<const T, 4>& of_call, Size t, Size dim) const {
    if (t >= tiles) return;
    const auto rows = layout.place(of_past, of_call, layout.block(t).begin);
    if (rows.view.stride[3] == 1)
      s.prefetch_rows(count(t), dim, &rows.view(rows.row, rows.at, key_head, 0), rows.view.stride[1]);
  }
  // Not a key that later queries, beyond its window, may not see because it is not finite.
  void choose_origin(const LocalLinearProblem<T>& p) {
    for (Size i = 0; i < layout.pairs(); ++i) {
      pack(s, layout.place(p.past_k, p.k, i), 1, key_head, Size{K}, origin);
      if (s.dot(K, origin, origin) < T(1e24)) return;
    }
    std::fill_n(origin, K, T(0));
  }
};

/// 64 queries of one head and their weights.
template <class T>
struct Block {
  Block(const Simd<T>& simd, const Pairs<T>& pairs_, Size longest, Size window, Arena& arena)
      : s(simd),
        a(simd.name ? &local_linear_simd(simd) : nullptr),
        common(simd.name ? &attention_simd(simd) : nullptr),
        pairs(pairs_),
        K(pairs_.K),
        V(pairs_.V) {
    weights = arena.take<T>(seen_tiles(longest, window) * tile_size * tile_size);
    q = arena.take<T>(tile_size * K), mean = arena.take<T>(tile_size * K), rhs = arena.take<T>(tile_size * K);
    wide = arena.take<T>(tile_size * (K + 2));
    lambda = arena.take<T>(tile_size), trace = arena.take<T>(tile_size), row = arena.take<T>(tile_size);
    given_lambda = arena.take<T>(tile_size), log_mass = arena.take<double>(tile_size);
    mass = arena.take<double>(tile_size), moment = arena.take<double>(tile_size), ones = arena.take<T>(tile_size);
    tilt = arena.take<double>(tile_size), along_query = arena.take<T>(tile_size * K);
    tilted = arena.take<T>(tile_size * tile_size);
    suffix = arena.take<T>(tile_size), prefix = arena.take<T>(tile_size);
    sum_of_one = arena.take<T>(std::max(K, V));
  }

  /// Queries first .. of the sequence: weights, means, ridges. False if a lambda is not positive (its query becomes
  /// NaN). `with_query`: also along_query, half the price of a product with S because q.k is there (exponential
  /// kernel only).
  bool load(const LocalLinearProblem<T>& p, const Sequence& n, int head, Size first_query, bool with_query) {
    begin = first_query, rows = std::min(tile_size, n.end - n.begin - begin);
    causal = p.causal;
    first = pairs.layout.block_at(pairs.layout.seen(begin, rows).begin);
    tiles = causal ? pairs.past_tiles + begin / tile_size + 1 : pairs.tiles;
    has_along_query = with_query && p.kernel == LocalKernel::exponential;
    pack(s, p.q, n.row, n.begin + begin, rows, head, K, T(1), q);
    std::fill_n(ones, tile_size, T(1));
    form_weights(p, head);
    bool good = true;
    for (Size i = 0; i < rows; ++i) {
      const double square = static_cast<double>(s.dot(K, mean + i * K, mean + i * K)), inverse = 1 / mass[i];
      const double second = 2 * moment[i] * inverse;
      trace[i] = static_cast<T>(second > square ? second - square : 0.0);
      for (int c = 0; c < K; ++c) rhs[i * K + c] = mean[i * K + c] - q[i * K + c];
      if (has_along_query) {
        s.scale(K, static_cast<T>(inverse / static_cast<double>(p.scale)), along_query + i * K, along_query + i * K);
        s.axpy(K, static_cast<T>(-tilt[i] * inverse / static_cast<double>(p.scale)), mean + i * K,
               along_query + i * K);
      }
      if (p.slope) continue;
      given_lambda[i] = p.lambda(n.row, n.begin + begin + i, head);
      lambda[i] = ridge_of(p.ridge, given_lambda[i], log_mass[i]);
      good = good && given_lambda[i] > T(0);
    }
    return good;
  }

  /// Tiles first .. tiles-1 of the pairs have one [64, 64] each here, and in other lists that are laid out so.
  Size slot(Size t) const { return (t - first) * tile_size * tile_size; }
  T* tile(Size t) const { return weights + slot(t); }
  static T* row_of(T* matrix, Size i) { return matrix + i * tile_size; }

  pairs::Block tokens() const { return {begin, rows}; }
  /// Keys of tile t that the queries see.
  MaskRange seen(Size t) const { return pairs.layout.visible(tokens(), pairs.layout.block(t)); }
  /// The tile of the queries' own keys: seen up to the diagonal, and not beyond.
  bool own(Size t) const { return causal && t + 1 == tiles; }
  /// Some of it has left the window of some of the queries.
  bool cut(Size t) const { return seen(t).lo + rows - 1 > 0; }
  bool whole(Size t) const { return !own(t) && !cut(t); }
  /// Pairs that every query of the block sees.
  Size fewest() const {
    const Size past = pairs.layout.seen(begin, 1).count;
    return causal ? past : pairs.past + pairs.now;
  }
  /// Weights and ridges below this do not count beside the largest weight, 1 / pairs or more.
  static constexpr double least_ridge = std::is_same_v<T, float> ? 1e-30 : 1e-200;
  /// A ridge so small that it may have been raised to this, or that weights larger than it may have been lost.
  bool loses_ridge(Size i) const {
    return static_cast<double>(lambda[i]) <= 1.001 * least_ridge && pairs.layout.seen(begin + i, 1).count > 1;
  }
  /// No query of the block meets a number it does not see in a fused pass over the keys of tile t.
  bool fuses(Size t) const { return whole(t) || pairs.tame_keys[t]; }

  /// Y_ij (+)= X_i . [k_j, 1] for the keys of tile t; entries a query does not see are undefined. `inner` K: without
  /// the 1.
  void dots(Size t, const T* X, Size ldx, Size inner, T beta, T* Y) const {
    if (pairs.one) return dots_of_one(t, X, inner, Y);
    s.gemm_nn(rows, own(t) ? rows : pairs.count(t), inner, T(1), X, ldx, pairs.along(t), tile_size, beta, Y,
              tile_size);
  }
  /// The same for one query, beta = 0.
  void dots_of_one(Size t, const T* x, Size inner, T* y) const {
    const pairs::Block range = seen_by_one(t);
    const Size n = range.count;
    common->scores(n, K, false, T(1), pairs.keys(t) + range.begin * K, K, x, y + range.begin);
    if (inner > K && x[K] != T(0)) s.axpy(n, x[K], ones, y + range.begin);
    if (inner > K + 1) s.axpy(n, x[K + 1], pairs.half_squares(t) + range.begin, y + range.begin);
  }
  /// Keys of tile t that the one query sees.
  pairs::Block seen_by_one(Size t) const {
    const MaskRange range = seen(t);
    const Size from = range.begin(0);
    return {from, std::max<Size>(0, range.end(0) - from)};
  }
  /// c [dim] += a' B, a [64] on tile t, B [64, dim] with a leading dimension of ld
  void read_one(Size t, const T* weights_of, const T* B, Size ld, int dim, T* c) const {
    const pairs::Block range = seen_by_one(t);
    if (range.count == 0) return;
    s.vec_mat(range.count, dim, weights_of + range.begin, B + range.begin * ld, ld, sum_of_one);
    s.axpy(dim, T(1), sum_of_one, c);
  }
  /// A [64, 64] on tile t is zero where it is not seen, as read and write want it of a tile that is cut, and
  /// `everywhere` also above a diagonal.
  void hide(Size t, T* A, bool everywhere = false) const {
    if (!cut(t) && !(everywhere && own(t))) return;
    const MaskRange range = seen(t);
    for (Size i = 0; i < rows; ++i) {
      T* const row_i = row_of(A, i);
      std::fill(row_i, row_i + range.begin(i), T(0));
      std::fill(row_i + std::max(range.begin(i), range.end(i)), row_i + tile_size, T(0));
    }
  }
  /// C [64, K] += A k and C [64, V] += A v, A [64, 64] on tile t
  void read_keys(Size t, const T* A, T* C) const { read(t, A, pairs.keys(t), K, pairs.tame_keys[t], C); }
  void read_values(Size t, const T* A, T* C) const { read(t, A, pairs.values(t), V, pairs.tame_values[t], C); }
  /// C [64, dim] += scale A' X, X [64, dim] one row per query.
  void write(Size t, T scale, const T* A, const T* X, int dim, T* C) const {
    if (cut(t) && !common->finite(rows * dim, X)) {  // 0 times what is not seen would be NaN
      const MaskRange range = seen(t);
      for (Size i = 0; i < rows; ++i)
        for (Size j = range.begin(i); j < range.end(i); ++j)
          s.axpy(dim, scale * A[i * tile_size + j], X + i * dim, C + j * dim);
    } else if (own(t) && !cut(t)) {
      s.trmm_tn(rows, dim, scale, A, tile_size, X, dim, T(1), C, dim);
    } else {
      s.gemm_tn(pairs.count(t), dim, rows, scale, A, tile_size, X, dim, T(1), C, dim);
    }
  }

  const Simd<T>& s;
  const LocalLinearSimd<T>* a;
  const AttentionSimd<T>* common;
  const Pairs<T>& pairs;
  int K, V;
  Size begin = 0, rows = 0, first = 0, tiles = 0;  // first query, queries; the tiles that they see
  bool causal = false;
  T *q, *mean, *rhs;  // [64, K] relative to the origin: queries, kb, kb - q
  T *lambda, *trace;  // [64] the ridge of S, and the trace of S without it
  T* given_lambda;    // [64] as the caller gave it
  bool has_along_query = false;
  T* along_query;                           // [64, K] (S - lambda I) (q + origin)
  double *log_mass, *mass, *moment, *tilt;  // [64] log of sum w; scratch
  T* ones;                                  // [64]

 private:
  using Bias = typename AttentionSimd<T>::Bias;

  void read(Size t, const T* A, const T* B, int dim, bool tame, T* C) const {
    if (pairs.one) return read_one(t, A, B, dim, dim, C);
    if (cut(t) && !tame) {
      const MaskRange range = seen(t);
      for (Size i = 0; i < rows; ++i)
        for (Size j = range.begin(i); j < range.end(i); ++j)
          s.axpy(dim, A[i * tile_size + j], B + j * dim, C + i * dim);
    } else if (own(t) && !cut(t)) {
      s.trmm_nn(rows, dim, T(1), A, tile_size, B, dim, T(1), C, dim);
    } else {
      s.gemm_nn(rows, dim, pairs.count(t), T(1), A, tile_size, B, dim, T(1), C, dim);
    }
  }

  // What the gates add to the logits of tile t. From the newest tile to the oldest: `between` are the gates of the
  // tiles in the middle.
  Bias gates(const LocalLinearProblem<T>& p, int head, Size t, double* between) {
    if (!p.g) return {};
    const pairs::Layout& x = pairs.layout;
    if (own(t)) {
      pairs::own_gates(s, T(1), p.g, x, tokens(), head, tilted, tile_size);
      return {tilted, tile_size, nullptr};
    }
    const pairs::Block block = x.block(t);
    pairs::prefix_gates(s, T(1), p.g, x, tokens(), head, *between, prefix);
    *between += pairs::suffix_gates(s, T(1), x.place(p.past_g, p.g, block.begin), block.count, head, suffix);
    return {suffix, 0, prefix};
  }

  static T ridge_of(LocalRidge kind, T given, double log_of_mass) {
    if (!(given > T(0))) return std::numeric_limits<T>::quiet_NaN();
    if (kind == LocalRidge::relative) return given;
    // Beyond these bounds the answer is that of an infinite ridge, or of none.
    const double bound = 1 / least_ridge;
    const double value = static_cast<double>(given) * std::exp(-log_of_mass);
    return static_cast<T>(value > bound ? bound : value < 1 / bound ? 1 / bound : value);
  }

  void form_weights(const LocalLinearProblem<T>& p, int head) {
    const bool gaussian = p.kernel == LocalKernel::gaussian;
    const T slope = gaussian ? 2 / p.bandwidth(head) : p.scale;
    for (Size i = 0; i < rows; ++i) {
      T* const x = q + i * K;
      T* const to = wide + i * (K + 2);
      // On the true query: scale q.k = scale q.k' + scale q.origin.
      const double shift = static_cast<double>(slope * s.dot(K, x, pairs.origin));
      if (!gaussian) s.scale(K, slope, x, to);
      s.axpy(K, T(-1), pairs.origin, x);
      if (gaussian) s.scale(K, slope, x, to);
      to[K] = T(0), to[K + 1] = -slope;
      log_mass[i] = gaussian ? -static_cast<double>(s.dot(K, x, x) / p.bandwidth(head)) : shift;
      row[i] = -std::numeric_limits<T>::infinity();
    }
    double between = 0;
    for (Size t = tiles; t-- > first;) {
      dots(t, wide, K + 2, gaussian ? K + 2 : K, T(0), tile(t));
      a->raise(seen(t), gates(p, head, t, &between), tile(t), row);
    }
    for (double* const sum : {mass, moment, tilt}) std::fill_n(sum, rows, 0.0);
    std::fill_n(mean, rows * K, T(0));
    if (has_along_query) std::fill_n(along_query, rows * K, T(0));
    T* const z = has_along_query ? tilted : nullptr;
    for (Size t = first; t < tiles; ++t) {
      a->weigh(seen(t), row, pairs.half_squares(t), tile(t), z, {mass, moment, tilt});
      read_keys(t, tile(t), mean);
      if (z) read_keys(t, z, along_query);
    }
    for (Size i = 0; i < rows; ++i) {
      log_mass[i] += static_cast<double>(row[i]) + std::log(mass[i]);
      row[i] = static_cast<T>(1 / mass[i]);
      s.scale(K, row[i], mean + i * K, mean + i * K);
    }
    for (Size t = first; t < tiles; ++t) s.scale_rows(rows, tile_size, row, tile(t), tile_size, tile(t), tile_size);
  }

  T *weights, *wide, *row, *tilted, *suffix, *prefix, *sum_of_one;
};

}  // namespace ttr::families::local_linear
