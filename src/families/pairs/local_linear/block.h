// Pairs and queries of local linear attention in tiles, and the weights of one tile of queries.
//
// The pairs of a sequence lie in tiles of 64: first the past (its last tile may be short), then the new tokens, so
// that a tile of queries meets its own keys in exactly one tile. With causality that last tile is a triangle; it is
// only touched by triangular products, which do not read above the diagonal, because 0 times a NaN of a later token
// is NaN; where the tile is `tame` (no NaN, no Inf) the fused passes of local_linear_simd.h take it whole, its
// weights zero above the diagonal.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "families/common/scratch.h"
#include "families/pairs/layout.h"
#include "families/pairs/local_linear/local_linear.h"
#include "families/pairs/local_linear/local_linear_simd.h"

namespace ttr::families::local_linear {

using pairs::Size;

inline constexpr Size tile_size = pairs::block_size;

inline Size tiles_of(Size count) { return (count + tile_size - 1) / tile_size; }
/// Tiles that `longest` pairs may need: past and new tokens are rounded up separately.
inline Size most_tiles(Size longest) { return longest / tile_size + 2; }

/// The pairs of one sequence and key head. Keys are relative to `origin`, the first of them.
template <class T>
struct Pairs {
  Pairs(const Simd<T>& simd, int key_dim, int value_dim, Size longest, Arena& arena)
      : s(simd), K(key_dim), V(value_dim) {
    const Size rows = most_tiles(longest) * tile_size;
    k = arena.take<T>(rows * K), v = arena.take<T>(rows * V), origin = arena.take<T>(K);
    transposed = arena.take<T>(rows * (K + 2));
    tame_keys = arena.take<bool>(most_tiles(longest)), tame_values = arena.take<bool>(most_tiles(longest));
  }

  void load(const LocalLinearProblem<T>& p, std::size_t n, int key_head) {
    const Sequence& q = p.sequences[n];
    const Size row = static_cast<Size>(n);
    queries = q.end - q.begin, past = p.past_of(n), now = p.k ? queries : 0;
    past_tiles = tiles_of(past), tiles = past_tiles + tiles_of(now);
    T* const k_now = k + past_tiles * tile_size * K;
    T* const v_now = v + past_tiles * tile_size * V;
    if (past > 0) pack(s, p.past_k, row, 0, past, key_head, K, T(1), k);
    if (past > 0) pack(s, p.past_v, row, 0, past, key_head, V, T(1), v);
    if (now > 0) pack(s, p.k, q.row, q.begin, now, key_head, K, T(1), k_now);
    if (now > 0) pack(s, p.v, q.row, q.begin, now, key_head, V, T(1), v_now);
    std::copy_n(past > 0 ? k : k_now, K, origin);
    for (Size t = 0; t < tiles; ++t) {
      T* const rows = keys(t);
      T* const columns = along(t);
      const Size filled = count(t);
      bool tame = true;
      for (Size j = 0; j < filled; ++j) {
        s.axpy(K, T(-1), origin, rows + j * K);
        columns[K * tile_size + j] = T(1);
        const T half = s.dot(K, rows + j * K, rows + j * K) / 2;
        columns[(K + 1) * tile_size + j] = half;
        tame = tame && half < T(1e24);
      }
      tame_keys[t] = tame;
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

  Size count(Size t) const {
    return t < past_tiles ? std::min(tile_size, past - t * tile_size)
                          : std::min(tile_size, now - (t - past_tiles) * tile_size);
  }
  T* keys(Size t) const { return k + t * tile_size * K; }                  // [64, K]
  T* values(Size t) const { return v + t * tile_size * V; }                // [64, V]
  T* along(Size t) const { return transposed + t * tile_size * (K + 2); }  // [K + 2, 64]: k', 1, |k|^2 / 2
  const T* half_squares(Size t) const { return along(t) + (K + 1) * tile_size; }

  const Simd<T>& s;
  int K, V;
  Size queries = 0, past = 0, now = 0, past_tiles = 0, tiles = 0;
  Size generation = 0;  // counts loads
  T *k, *v, *origin, *transposed;
  bool *tame_keys, *tame_values;  // [tiles] finite, and far from overflow
};

/// 64 queries of one head and their weights.
template <class T>
struct Block {
  Block(const Simd<T>& simd, const Pairs<T>& pairs_, Size longest, Arena& arena)
      : s(simd), a(simd.name ? &local_linear_simd(simd) : nullptr), pairs(pairs_), K(pairs_.K), V(pairs_.V) {
    weights = arena.take<T>(most_tiles(longest) * tile_size * tile_size);
    q = arena.take<T>(tile_size * K), mean = arena.take<T>(tile_size * K), rhs = arena.take<T>(tile_size * K);
    wide = arena.take<T>(tile_size * (K + 2));
    lambda = arena.take<T>(tile_size), trace = arena.take<T>(tile_size), row = arena.take<T>(tile_size);
    given_lambda = arena.take<T>(tile_size), log_mass = arena.take<double>(tile_size);
    mass = arena.take<double>(tile_size), moment = arena.take<double>(tile_size), ones = arena.take<T>(tile_size);
    tilt = arena.take<double>(tile_size), along_query = arena.take<T>(tile_size * K);
    tilted = arena.take<T>(tile_size * tile_size);
  }

  /// Queries first .. of the sequence: weights, means, ridges. False if a lambda is not positive (its query becomes
  /// NaN). `with_query`: also along_query, half the price of a product with S because q.k is there (exponential
  /// kernel only).
  bool load(const LocalLinearProblem<T>& p, const Sequence& n, int head, Size first, bool with_query) {
    begin = first, rows = std::min(tile_size, n.end - n.begin - first);
    triangle = p.causal;
    tiles = p.causal ? pairs.past_tiles + first / tile_size + 1 : pairs.tiles;
    has_along_query = with_query && p.kernel == LocalKernel::exponential;
    pack(s, p.q, n.row, n.begin + first, rows, head, K, T(1), q);
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
      given_lambda[i] = p.lambda(n.row, n.begin + first + i, head);
      lambda[i] = ridge_of(p.ridge, given_lambda[i], log_mass[i]);
      good = good && given_lambda[i] > T(0);
    }
    return good;
  }

  T* tile(Size t) const { return weights + t * tile_size * tile_size; }
  static T* row_of(T* matrix, Size i) { return matrix + i * tile_size; }
  /// Keys of tile t that query i sees.
  Size seen(Size t, Size i) const { return triangle && t + 1 == tiles ? i + 1 : pairs.count(t); }

  struct Range {
    Size begin, end;
  };
  typename LocalLinearSimd<T>::Visible visible(Size t) const {
    return {rows, pairs.count(t), triangle && t + 1 == tiles};
  }
  /// Pairs that every query of the block sees.
  Size fewest() const { return triangle ? pairs.past + begin + 1 : pairs.past + pairs.now; }
  /// No query of the block meets a number it does not see in a fused pass over the keys of tile t.
  bool whole(Size t) const { return !(triangle && t + 1 == tiles) || pairs.tame_keys[t]; }

  /// Y_ij (+)= X_i . [k_j, 1] for queries of the range and keys of tile t; entries a query does not see are
  /// undefined. `inner` K: without the 1.
  void dots(Range r, Size t, const T* X, Size ldx, Size inner, T beta, T* Y) const {
    const Size n = triangle && t + 1 == tiles ? r.end : pairs.count(t);
    s.gemm_nn(r.end - r.begin, n, inner, T(1), X + r.begin * ldx, ldx, pairs.along(t), tile_size, beta,
              row_of(Y, r.begin), tile_size);
  }
  /// C [64, dim] += A B, A [64, 64] on tile t, B [64, dim] one row per key.
  void read(Range r, Size t, const T* A, const T* B, int dim, T* C) const {
    const Size m = r.end - r.begin;
    const T* const from = A + r.begin * tile_size;
    T* const to = C + r.begin * dim;
    if (!(triangle && t + 1 == tiles)) {
      s.gemm_nn(m, dim, pairs.count(t), T(1), from, tile_size, B, dim, T(1), to, dim);
      return;
    }
    if (r.begin > 0) s.gemm_nn(m, dim, r.begin, T(1), from, tile_size, B, dim, T(1), to, dim);
    s.trmm_nn(m, dim, T(1), from + r.begin, tile_size, B + r.begin * dim, dim, T(1), to, dim);
  }
  /// C [64, dim] += A' X, X [64, dim] one row per query.
  void write(Size t, T scale, const T* A, const T* X, int dim, T* C) const {
    if (triangle && t + 1 == tiles) s.trmm_tn(rows, dim, scale, A, tile_size, X, dim, T(1), C, dim);
    else s.gemm_tn(pairs.count(t), dim, rows, scale, A, tile_size, X, dim, T(1), C, dim);
  }

  const Simd<T>& s;
  const LocalLinearSimd<T>* a;
  const Pairs<T>& pairs;
  int K, V;
  Size begin = 0, rows = 0, tiles = 0;
  bool triangle = false;
  T *q, *mean, *rhs;  // [64, K] relative to the origin: queries, kb, kb - q
  T *lambda, *trace;  // [64] the ridge of S, and the trace of S without it
  T* given_lambda;    // [64] as the caller gave it
  bool has_along_query = false;
  T* along_query;                           // [64, K] (S - lambda I) (q + origin)
  double *log_mass, *mass, *moment, *tilt;  // [64] log of sum w; scratch
  T* ones;                                  // [64]

 private:
  static T ridge_of(LocalRidge kind, T given, double log_of_mass) {
    if (!(given > T(0))) return std::numeric_limits<T>::quiet_NaN();
    if (kind == LocalRidge::relative) return given;
    // Beyond these bounds the answer is that of an infinite ridge, or of none.
    const double bound = std::is_same_v<T, float> ? 1e30 : 1e200;
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
    for (Size t = 0; t < tiles; ++t) {
      dots({0, rows}, t, wide, K + 2, gaussian ? K + 2 : K, T(0), tile(t));
      a->raise(visible(t), tile(t), row);
    }
    for (double* const sum : {mass, moment, tilt}) std::fill_n(sum, rows, 0.0);
    std::fill_n(mean, rows * K, T(0));
    if (has_along_query) std::fill_n(along_query, rows * K, T(0));
    T* const z = has_along_query ? tilted : nullptr;
    for (Size t = 0; t < tiles; ++t) {
      a->weigh(visible(t), row, pairs.half_squares(t), tile(t), z, {mass, moment, tilt});
      read({0, rows}, t, tile(t), pairs.keys(t), K, mean);
      if (z) read({0, rows}, t, z, pairs.keys(t), K, along_query);
    }
    for (Size i = 0; i < rows; ++i) {
      log_mass[i] += static_cast<double>(row[i]) + std::log(mass[i]);
      row[i] = static_cast<T>(1 / mass[i]);
      s.scale(K, row[i], mean + i * K, mean + i * K);
    }
    for (Size t = 0; t < tiles; ++t) s.scale_rows(rows, tile_size, row, tile(t), tile_size, tile(t), tile_size);
  }

  T *weights, *wide, *row, *tilted;
};

}  // namespace ttr::families::local_linear
