// The preconditioner of the conjugate gradients of local linear attention.
//
// The matrix of a query is about S = theta Gamma + lambda I: Gamma the covariance of all keys, theta the share of its
// trace that is left under the query's weights. So one inverse (Gamma + tau I)^{-1}, tau the ninth decile of lambda /
// theta (too large a tau costs less than too small a one), serves all queries of a block: conjugate gradients do not
// see its scale. It takes out what keys of different scales and correlated keys have in common, which a diagonal
// cannot. Gamma is of the keys up to a rung of a ladder, 1, 2, 3, 4, 6, 8, 12, 16, .. tiles, so that it is renewed when the
// pairs grew by half (with a window: when an eighth of them have left it), and tau is the power of two above. So an inverse
// serves many blocks, and is the same whoever works on them: a worker keeps the last it has made. Few queries (a decode step) do
// not pay for it: 1 / (theta diag(Gamma) + lambda) then, as where Gamma is not finite. It only changes the path to
// the solution.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "families/pairs/local_linear/block.h"
#include "families/pairs/local_linear/moments.h"

namespace ttr::families::local_linear {

template <class T>
class Preconditioner {
 public:
  Preconditioner(const Simd<T>& simd, const Pairs<T>& pairs_, Moments& moments_, Arena& arena)
      : s(simd), pairs(pairs_), moments(moments_), K(pairs_.K) {
    sums = arena.take<T>(K), ones = arena.take<T>(tile_size), diagonal = arena.take<T>(tile_size * K);
    gram = arena.take<T>(Size{K} * K), inverse = arena.take<T>(Size{K} * K), column = arena.take<double>(K);
    inverse_wide = arena.take<double>(Size{K} * K);
    ratios = arena.take<double>(tile_size), row = arena.take<T>(K);
  }

  void prepare(const Block<T>& block) {
    if (generation != pairs.generation) restart();
    const Rung rung = rung_of(block.first, block.tiles);
    if (from != rung.from || tiles > rung.to) clear(rung.from);
    accumulate(rung.to);
    const double total = trace();
    use_inverse = full && total > 0 && renew(block, total);
    if (use_inverse) return;
    for (Size i = 0; i < block.rows; ++i)
      for (int c = 0; c < K; ++c) {
        const double share = total > 0 ? std::max(covariance(c, c), 0.0) / total : 1.0 / K;
        diagonal[i * K + c] = 1 / (block.trace[i] * static_cast<T>(share) + block.lambda[i]);
      }
  }

  /// out_r = M^{-1} x_r for the queries rows[0 .. m-1], x and out [m, K]
  void apply(Size m, const Size* rows, const T* x, T* out) const {
    if (use_inverse) s.gemm_nn(m, K, K, T(1), x, K, inverse, K, T(0), out, K);
    else
      for (Size r = 0; r < m; ++r) s.mul(K, x + r * K, diagonal + rows[r] * K, out + r * K);
  }

 private:
  void restart() {
    generation = pairs.generation;
    full = pairs.queries >= 16 && K >= 8;
    inverse_of = {};
    std::fill_n(ones, tile_size, T(1));
    clear(0);
  }
  // The tiles that stand for first .. end - 1: some of them, at least one, and few choices as `end` grows.
  struct Rung {
    Size from = 0, to = 0;
    bool operator==(const Rung&) const = default;
  };
  static Rung rung_of(Size first, Size end) {
    Size step = 1;
    if (first > 0) {
      while (8 * step <= end - first) step *= 2;
      return {(first + step - 1) / step * step, end / step * step};
    }
    while (4 * step <= end) step *= 2;
    return {0, end / step * step};  // 2 or 3 steps; 1 tile alone
  }
  // Sums over the tiles from `first` on.
  void clear(Size first) {
    from = tiles = first, count = 0;
    std::fill_n(sums, K, T(0)), std::fill_n(gram, Size{K} * K, T(0));
  }
  // Sums of k and k k' (its diagonal alone where that is all that is needed).
  void accumulate(Size wanted) {
    for (; tiles < wanted; ++tiles) {
      const Size n = pairs.count(tiles);
      count += n;
      if (pairs.one) {
        add_rows(pairs.keys(tiles), n);
        continue;
      }
      for (int c = 0; c < K; ++c) {
        const T* const x = pairs.along(tiles) + c * tile_size;
        sums[c] += s.dot(n, x, ones);
        if (!full) gram[c * K + c] += s.dot(n, x, x);
      }
      if (full) s.gemm_tn(K, K, n, T(1), pairs.keys(tiles), K, pairs.keys(tiles), K, T(1), gram, K);
    }
  }
  // The same from rows.
  void add_rows(const T* rows, Size n) {
    std::fill_n(row, K, T(0));
    local_linear_simd(s).column_sums(n, K, rows, sums, row);
    for (int c = 0; c < K; ++c) gram[c * K + c] += row[c];
  }
  double covariance(Size a, Size b) const {
    const double n = static_cast<double>(count);
    return static_cast<double>(gram[a * K + b]) / n -
           static_cast<double>(sums[a]) / n * static_cast<double>(sums[b]) / n;
  }
  double trace() const {
    double total = 0;
    for (int c = 0; c < K; ++c) total += covariance(c, c);
    return std::isfinite(total) && total > 0 ? total : 0;
  }
  bool renew(const Block<T>& block, double total) {
    Size used = 0;
    for (Size i = 0; i < block.rows; ++i) {
      const double ratio = static_cast<double>(block.lambda[i]) * total / static_cast<double>(block.trace[i]);
      if (std::isfinite(ratio) && ratio > 0) ratios[used++] = ratio;
    }
    if (used == 0) return false;
    std::nth_element(ratios, ratios + 9 * used / 10, ratios + used);
    const double tau = std::exp2(std::ceil(std::log2(ratios[9 * used / 10])));
    if (inverse_of == Rung{from, tiles} && inverse_tau == tau) return invertible;
    inverse_of = {from, tiles}, inverse_tau = tau;
    moments.clear();
    for (Size a = 0; a < K; ++a)
      for (Size b = 0; b <= a; ++b) moments.entry(a, b) = covariance(a, b);
    invertible = moments.factor(tau);
    if (!invertible) return false;
    moments.invert(inverse_wide, column);
    for (Size a = 0; a < Size{K} * K; ++a) inverse[a] = static_cast<T>(inverse_wide[a]);
    return true;
  }

  const Simd<T>& s;
  const Pairs<T>& pairs;
  Moments& moments;
  int K;
  T *sums, *gram, *inverse, *diagonal, *ones, *row;
  double *column, *ratios, *inverse_wide;
  bool full = false, use_inverse = false;
  Size from = 0, tiles = 0, count = 0;  // tiles that are summed, and their pairs
  Rung inverse_of;                      // nothing: 0 tiles
  double inverse_tau = 0;
  bool invertible = false;
  Size generation = -1;
};

}  // namespace ttr::families::local_linear
