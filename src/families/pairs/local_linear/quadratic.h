// Order 2: the same regression on the features x = [z, z_a z_b (a <= b)] of z = k - q, query by query, in double.
//
// A vector w over the features is a function of z whose gradient is l + M z: l its first K entries, M symmetric,
// M_ab = w_ab off the diagonal, 2 w_aa on it. The function itself is always taken as w.(x - xb), because w.x - w.xb
// cancels where the ridge is small.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "families/pairs/local_linear/solve.h"

namespace ttr::families::local_linear {

inline Size features_of(int key_dim, int order) {
  return order == 1 ? key_dim : key_dim + Size{key_dim} * (key_dim + 1) / 2;
}

/// Coefficients of the features for each query of a block, [64, F].
using Coefficients = double*;

template <class T>
class Quadratic {
 public:
  Quadratic(const Simd<double>& simd, const Pairs<T>& pairs_, Moments& moments_, Arena& arena)
      : s(simd), pairs(pairs_), moments(moments_), K(pairs_.K), F(features_of(pairs_.K, 2)) {
    x = arena.take<double>(tile_size * F), p = arena.take<double>(tile_size);
    means = arena.take<double>(tile_size * F), first = arena.take<double>(F), y = arena.take<double>(tile_size);
    z = arena.take<double>(K);
    for (Map* m : {&r_map, &u_map})
      m->linear = arena.take<double>(K), m->matrix = arena.take<double>(Size{K} * K), m->at = arena.take<double>(K);
  }

  /// r = S^-1 xb for every query; with `centred` (tiles of g.v_j minus its mean) also
  /// u = -S^-1 sum_j p_j centred_j (x_j - xb).
  /// Queries that are not known (moments.h) get NaN, and it returns false.
  bool solve(const Block<T>& block, const T* centred, Coefficients r, Coefficients u) {
    bool all_known = true;
    for (Size i = 0; i < block.rows; ++i) {
      double* const to = r + i * F;
      double* const other = centred ? u + i * F : nullptr;
      double* const mean = means + i * F;
      const bool exact = find_mean(block, i);
      moments.clear();
      if (other) std::fill_n(other, F, 0.0);
      for (Size t = block.first; t < block.tiles; ++t) {
        const Size n = features(block, i, t);
        for (Size j = 0; j < n; ++j) s.axpy(F, -1.0, mean, x + j * F);
        moments.add(n, p, x);
        if (!other) continue;
        const T* const g = centred + block.slot(t) + i * tile_size + block.seen(t).begin(i);
        for (Size j = 0; j < n; ++j) s.axpy(F, -p[j] * static_cast<double>(g[j]), x + j * F, other);
      }
      const bool good = moments.factor(static_cast<double>(block.lambda[i]));
      std::copy_n(mean, F, to);
      for (double* const b : {to, other}) {
        if (!b) continue;
        if (good) moments.solve(b);
        else std::fill_n(b, F, std::numeric_limits<double>::quiet_NaN());
      }
      const bool solved = !good || moments.is_known(block.loses_ridge(i) ? Block<T>::least_ridge : 0.0);
      if (solved && (exact || is_known(F, to, mean))) continue;
      all_known = false;
      for (double* const b : {to, other})
        if (b) std::fill_n(b, F, std::numeric_limits<double>::quiet_NaN());
    }
    return all_known;
  }

  /// Y_ij = w_i . (x_ij - xb_i) + (add ? Y_ij : 0)
  void dots(const Block<T>& block, Size t, const double* w, bool add, T* Y) {
    for (Size i = 0; i < block.rows; ++i) {
      const Size n = features(block, i, t);
      for (Size j = 0; j < n; ++j) s.axpy(F, -1.0, means + i * F, x + j * F);
      s.mat_vec(n, F, x, F, w + i * F, y);
      T* const to = block.row_of(Y, i) + block.seen(t).begin(i);
      for (Size j = 0; j < n; ++j) to[j] = static_cast<T>(add ? static_cast<double>(to[j]) + y[j] : y[j]);
    }
  }

  /// d_key += Cu u - Cr r through the features, d_query -= the same.
  void back(const Block<T>& block, Size t, const T* Cu, const T* Cr, const double* r, const double* u, T* d_keys,
            T* d_queries) {
    const MaskRange range = block.seen(t);
    for (Size i = 0; i < block.rows; ++i) {
      fold(r + i * F, r_map), fold(u + i * F, u_map);
      for (Size j = range.begin(i); j < range.end(i); ++j) {
        difference(block, i, t, j);
        apply(r_map), apply(u_map);
        const double cu = static_cast<double>(Cu[i * tile_size + j]), cr = static_cast<double>(Cr[i * tile_size + j]);
        for (int c = 0; c < K; ++c) {
          const T d = static_cast<T>(cu * u_map.at[c] - cr * r_map.at[c]);
          d_keys[j * K + c] += d, d_queries[i * K + c] -= d;
        }
      }
    }
  }

  /// u.r of query i
  double product(const double* r, const double* u, Size i) const { return s.dot(F, r + i * F, u + i * F); }

 private:
  struct Map {
    double *linear, *matrix, *at;
  };

  // xb = x_1 + sum p (x - x_1) / sum p: exact for identical keys, and free of the rounding of sum p = 1.
  // True if it is x_1.
  bool find_mean(const Block<T>& block, Size i) {
    double* const mean = means + i * F;
    double total = 0;
    bool started = false;
    std::fill_n(mean, F, 0.0);
    for (Size t = block.first; t < block.tiles; ++t) {
      const Size n = features(block, i, t);
      if (n > 0 && !started) std::copy_n(x, F, first), started = true;
      for (Size j = 0; j < n; ++j) {
        s.axpy(F, -1.0, first, x + j * F);
        s.axpy(F, p[j], x + j * F, mean);
        total += p[j];
      }
    }
    s.scale(F, 1 / total, mean, mean);
    const bool exact = std::all_of(mean, mean + F, [](double m) { return m == 0; });
    s.axpy(F, 1.0, first, mean);
    return exact;
  }
  void difference(const Block<T>& block, Size i, Size t, Size j) const {
    const T* const k = pairs.keys(t) + j * K;
    const T* const q = block.q + i * K;
    for (int c = 0; c < K; ++c) z[c] = static_cast<double>(k[c]) - static_cast<double>(q[c]);
  }
  // x [n, F] and p [n] of the keys of tile t that query i sees, the first of them at block.seen(t).begin(i).
  Size features(const Block<T>& block, Size i, Size t) const {
    const MaskRange range = block.seen(t);
    const Size begin = range.begin(i), n = std::max<Size>(0, range.end(i) - begin);
    for (Size j = 0; j < n; ++j) {
      difference(block, i, t, begin + j);
      double* to = x + j * F;
      to = std::copy_n(z, K, to);
      for (int c = 0; c < K; ++c)
        for (int d = c; d < K; ++d) *to++ = z[c] * z[d];
      p[j] = static_cast<double>(block.row_of(block.tile(t), i)[begin + j]);
    }
    return n;
  }
  void fold(const double* w, const Map& m) const {
    std::copy_n(w, K, m.linear);
    const double* from = w + K;
    for (Size c = 0; c < K; ++c) {
      m.matrix[c * K + c] = 2 * *from++;
      for (Size d = c + 1; d < K; ++d) m.matrix[c * K + d] = m.matrix[d * K + c] = *from++;
    }
  }
  void apply(const Map& m) const {
    s.mat_vec(K, K, m.matrix, K, z, m.at);
    for (int c = 0; c < K; ++c) m.at[c] += m.linear[c];
  }

  const Simd<double>& s;
  const Pairs<T>& pairs;
  Moments& moments;
  int K;
  Size F;
  double *x, *p, *means, *first, *y, *z;
  Map r_map, u_map;
};

}  // namespace ttr::families::local_linear
