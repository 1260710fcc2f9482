// S x = b for the queries of a block, S = sum p (x - xb)(x - xb)' + lambda I: Cholesky in double for one query, or
// conjugate gradients for all of them together.
//
// The number of products with S is all that counts, so the first and the last of them are saved. S q needs only half
// a product, because q.k is known from the weights: x starts at the best multiple of q, and the directions that
// follow are kept conjugate to it (deflation). The last step needs none: its direction d = z + b d follows from the
// residual, its length a = z.r / d'Sd is close to those before. It leaves (1 - a'/a)^2 of what the exact step would
// have taken off the error's energy, where a' is the shortest length so far (too long a step along a direction of
// large variance could do harm, too short a one cannot), and what that step would have left. With normal keys lengths
// differ by 2 to 10 % and a step leaves 3 to 25 % of the error, so the guess is as good as a product.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "families/pairs/local_linear/block.h"
#include "families/pairs/local_linear/findings.h"
#include "families/pairs/local_linear/moments.h"
#include "families/pairs/local_linear/precondition.h"

namespace ttr::families::local_linear {

/// One right-hand side of a block. Order 1 only.
template <class T>
struct System {
  const T* b;     // [64, K]
  T* x;           // [64, K + 1]: the solution, and -kb.x beside it
  const T* size;  // [64] what an error of x is small against, as an energy (square); null = 1
  double tolerance;
};

template <class T>
class Solver {
 public:
  Solver(const Simd<T>& simd, const Pairs<T>& pairs_, Moments& moments_, Arena& arena)
      : s(simd), pairs(pairs_), moments(moments_), preconditioner(simd, pairs_, moments_, arena), K(pairs_.K) {
    residual = arena.take<T>(tile_size * K), preconditioned = arena.take<T>(tile_size * K);
    direction = arena.take<T>(tile_size * (K + 1)), image = arena.take<T>(tile_size * K);
    gathered = arena.take<T>(tile_size * (K + 1)), query = arena.take<T>(tile_size * K);
    query_image = arena.take<T>(tile_size * K), query_norm = arena.take<double>(tile_size);
    y = arena.take<T>(tile_size), sums = arena.take<T>(tile_size), order = arena.take<Size>(tile_size);
    for (double** const piece :
         {&rho, &step, &energy, &change, &shortest, &last_drop, &rho_now, &slant, &curvature, &length, &drop})
      *piece = arena.take<double>(tile_size);
    active = arena.take<bool>(tile_size), failed = arena.take<bool>(tile_size);
    rows_wide = arena.take<double>(tile_size * K), weights_wide = arena.take<double>(tile_size);
    solution = arena.take<double>(K);
  }

  /// Whether the next block should be loaded with along_query. `advice` is that of earlier blocks; it holds for the solve.
  bool wants_query(const LocalLinearProblem<T>& p, Finding advice) {
    advised = advice, found = {};
    return p.order == 1 && !p.slope && !p.g && p.scale != T(0) && !is_direct() && advice.query;
  }
  /// What the last solve tells later blocks.
  Finding finding() const { return found; }

  /// A query without a solution (lambda or data NaN) gets NaN; so does one whose first system, the slope, is not known
  /// well enough for an answer (moments.h), and then it returns false.
  bool solve(const Block<T>& block, const System<T>* systems, int count) {
    const bool direct = is_direct();
    std::fill_n(failed, block.rows, direct);
    if (!direct) {
      preconditioner.prepare(block);
      for (int i = 0; i < count; ++i) iterate(block, systems[i], i == 0 && block.has_along_query);
      // Keys on which most queries run out of steps will do so again. Where the next block may take more steps, this
      // one says nothing about it.
      found.iterate =
          2 * std::count(failed, failed + block.rows, true) <= block.rows || (narrow && block.fewest() < K);
    }
    bool all_known = true;
    for (Size i = 0; i < block.rows; ++i) {
      // Steps cannot tell what is lost in rounding of S.
      const double rounding = static_cast<double>(std::numeric_limits<T>::epsilon() * block.trace[i]);
      const bool lost = block.loses_ridge(i) || static_cast<double>(block.lambda[i]) < rounding;
      const bool known = (!failed[i] && !lost) || solve_row(block, i, systems, count);
      if (known && is_known(Size{K}, systems[0].x + i * (K + 1), block.mean + i * K)) continue;
      for (int n = 0; n < count; ++n) std::fill_n(systems[n].x + i * (K + 1), K, std::numeric_limits<T>::quiet_NaN());
      all_known = false;
    }
    for (int n = 0; n < count; ++n) finish(block, systems[n].x);
    return all_known;
  }
  /// Steps so far, of all queries together: wrong products, or a preconditioner that does nothing, show here alone,
  /// because the direct solve repairs the answers.
  Size steps_taken() const { return steps; }
  /// The last column of x: -kb.x, so that x . [k, 1] = x . (k - kb).
  void finish(const Block<T>& block, T* x) const {
    for (Size i = 0; i < block.rows; ++i) x[i * (K + 1) + K] = -s.dot(K, block.mean + i * K, x + i * (K + 1));
  }

 private:
  static constexpr bool narrow = std::is_same_v<T, float>;

  // Up to here the direct solve, K^2 / 2 multiply-adds in double per pair, costs no more than the steps do.
  static constexpr int largest_direct = narrow ? 32 : 64;

  // Steps that are tried before a query is solved directly: some that well conditioned keys need whatever K is, and
  // as many as cost about a direct solve, 2 K against K^2 / 2 per pair: K / 4. In float a step is far cheaper than its
  // share of the direct solve, which is in double; but with fewer pairs than dimensions many steps mean lost digits.
  static constexpr int base_steps = 16;
  static int most_steps(int key_dim, bool enough_pairs) {
    return base_steps + (narrow && enough_pairs ? 3 * key_dim / 4 : key_dim / 4);
  }

  // Where slopes are large an error may be as large relative to them, |r|_S, as it may be absolutely; in float a tenth
  // of that (the square is here), for which its tolerance is far enough above rounding, as that of double is not.
  static constexpr double relative_part = narrow ? 0.01 : 1.0;

  // What the guessed length of the last step is taken to be wrong by. Before there are two lengths to compare: twice
  // what those of normal keys differ by at most. Later no less than sqrt(slow / 4), slow the part of the energy that a
  // step leaves: lengths that agree so far may do so by chance, and the slower the steps, the less they say.
  static constexpr double unknown_change = 0.2;
  static constexpr double least_missed = 1.0 / 4;

  // The start at the query costs half a product, so it has to find half of the energy of the solution.
  static constexpr double worthwhile_start = 0.5;

  bool is_direct() const { return K <= largest_direct || !advised.iterate; }

  // False: rounding leaves nothing of the solution.
  bool solve_row(const Block<T>& block, Size i, const System<T>* systems, int count) {
    moments.clear();
    for (Size t = block.first; t < block.tiles; ++t) {
      const MaskRange range = block.seen(t);
      const Size begin = range.begin(i), n = range.end(i) - begin;
      if (n <= 0) continue;
      const T* const p = block.row_of(block.tile(t), i) + begin;
      const T* const k = pairs.keys(t) + begin * K;
      const T* const kb = block.mean + i * K;
      for (Size j = 0; j < n; ++j) {
        weights_wide[j] = static_cast<double>(p[j]);
        for (int c = 0; c < K; ++c)
          rows_wide[j * K + c] = static_cast<double>(k[j * K + c]) - static_cast<double>(kb[c]);
      }
      moments.add(n, weights_wide, rows_wide);
    }
    const bool good = moments.factor(static_cast<double>(block.lambda[i]));
    for (int n = 0; n < count; ++n) {
      for (int c = 0; c < K; ++c) solution[c] = static_cast<double>(systems[n].b[i * K + c]);
      if (good) moments.solve(solution);
      else std::fill_n(solution, K, std::numeric_limits<double>::quiet_NaN());
      for (int c = 0; c < K; ++c) systems[n].x[i * (K + 1) + c] = static_cast<T>(solution[c]);
    }
    return !good || moments.is_known(block.loses_ridge(i) ? Block<T>::least_ridge : 0.0);
  }

  // The queries that are still active, in `order`.
  Size collect(Size rows) {
    Size m = 0;
    for (Size i = 0; i < rows; ++i)
      if (active[i]) order[m++] = i;
    return m;
  }
  // Rows of the active queries: where they lie, if all are active, else side by side in `gathered`.
  const T* gather(Size m, Size rows, Size width, const T* from) const {
    if (m == rows) return from;
    for (Size r = 0; r < m; ++r) std::copy_n(from + order[r] * width, width, gathered + r * width);
    return gathered;
  }

  // image = sum_j p_j (c_j.d) k_j for the active queries, gathered; direction has -kb.d beside it.
  void apply(const Block<T>& block, Size m) {
    const Size ld = K + 1;
    steps += m;
    const T* const d = gather(m, block.rows, ld, direction);
    Size padded = m;  // to whole register tiles, with zero directions
    for (; m < block.rows && padded % 4 != 0; ++padded)
      std::fill_n(gathered + padded * ld, ld, T(0)), order[padded] = order[m - 1];
    std::fill_n(image, padded * K, T(0)), std::fill_n(sums, padded, T(0));
    for (Size t = block.first; t < block.tiles; ++t) {
      if (pairs.one) apply_to_one(block, t, d);
      else if (block.fuses(t))
        block.a->moment({padded, pairs.count(t), K, K, d, ld, pairs.along(t), block.tile(t), order, block.own(t),
                         pairs.keys(t), image, sums});
      else apply_by_rows(block, t, m, d);
    }
  }
  void apply_to_one(const Block<T>& block, Size t, const T* d) {
    const pairs::Block range = block.seen_by_one(t);
    sums[0] += block.a->moment_of_one(range.count, K, pairs.keys(t) + range.begin * K, block.tile(t) + range.begin, d,
                                      image);
  }
  // A tile with numbers that some queries must not meet.
  void apply_by_rows(const Block<T>& block, Size t, Size m, const T* d) {
    const MaskRange range = block.seen(t);
    for (Size r = 0; r < m; ++r) {
      const Size begin = range.begin(order[r]), n = range.end(order[r]) - begin;
      if (n <= 0) continue;
      s.vec_mat(K + 1, n, d + r * (K + 1), pairs.along(t) + begin, tile_size, y);
      s.mul(n, block.row_of(block.tile(t), order[r]) + begin, y, y);
      sums[r] += s.dot(n, y, block.ones);
      for (Size j = 0; j < n; ++j) s.axpy(K, y[j], pairs.keys(t) + (begin + j) * K, image + r * K);
    }
  }

  // x = the best multiple of the query; the directions that follow are kept conjugate to it.
  void start_at_query(const Block<T>& block, const System<T>& system) {
    for (Size i = 0; i < block.rows; ++i) {
      T* const q = query + i * K;
      T* const Sq = query_image + i * K;
      std::copy_n(block.q + i * K, K, q), std::copy_n(block.along_query + i * K, K, Sq);
      s.axpy(K, T(1), pairs.origin, q);
      s.axpy(K, block.lambda[i], q, Sq);
      const double norm = static_cast<double>(s.dot(K, q, Sq)),
                   product = static_cast<double>(s.dot(K, q, system.b + i * K));
      const double c = product / norm;
      query_norm[i] = norm > 0 && std::isfinite(c) ? norm : 0;
      if (query_norm[i] == 0) continue;
      s.axpy(K, static_cast<T>(c), q, system.x + i * (K + 1));
      s.axpy(K, static_cast<T>(-c), Sq, residual + i * K);
      energy[i] = c * product;
    }
  }

  // z, rho and the part of z along the query; what is to be added of the query to keep z conjugate to it.
  void precondition(const typename LocalLinearSimd<T>::Vectors& v, const Block<T>& block) {
    preconditioner.apply(v.m, order, gather(v.m, block.rows, K, residual), v.z);
    block.a->project(v, rho_now, slant);
    for (Size r = 0; r < v.m; ++r) {
      const double norm = query_norm[order[r]];
      slant[r] = norm > 0 ? -slant[r] / norm : 0;
    }
  }

  void iterate(const Block<T>& block, const System<T>& system, bool from_query) {
    const Size rows = block.rows, ld = K + 1;
    const int limit = most_steps(K, block.fewest() >= K);
    const double least = system.tolerance * system.tolerance, relative = least * relative_part;
    std::fill_n(system.x, rows * ld, T(0)), std::copy_n(system.b, rows * K, residual);
    std::fill_n(active, rows, true), std::fill_n(last_drop, rows, 1.0);
    for (double* const zero : {energy, query_norm, length}) std::fill_n(zero, rows, 0.0);
    if (from_query) start_at_query(block, system);
    double start = 0, all = 0;
    for (Size i = 0; i < rows; ++i) start += energy[i];
    typename LocalLinearSimd<T>::Vectors v{collect(rows),
                                           K,
                                           order,
                                           block.mean,
                                           from_query ? query : nullptr,
                                           query_image,
                                           block.lambda,
                                           system.x,
                                           direction,
                                           residual,
                                           preconditioned,
                                           image};
    precondition(v, block);
    block.a->turn(v, length, slant);  // length is zero here
    for (Size i = 0; i < rows; ++i) {
      rho[i] = rho_now[i];
      active[i] = rho[i] > 0;
      if (!(rho[i] >= 0)) failed[i] = true;  // NaN
    }
    for (int n = 0; n < limit; ++n) {
      v.m = collect(rows);
      if (v.m == 0) break;
      apply(block, v.m);
      block.a->close(v, sums, curvature);
      for (Size r = 0; r < v.m; ++r) {
        const Size i = order[r];
        const double alpha = rho[i] / curvature[r];
        if (alpha > 0 && std::isfinite(alpha)) {
          shortest[i] = n == 0 ? alpha : std::min(alpha, shortest[i]);
          change[i] = n == 0 ? unknown_change : std::max(1 - shortest[i] / alpha, std::abs(alpha / step[i] - 1) / 2);
          step[i] = length[r] = alpha, energy[i] += alpha * rho[i];
        } else {
          length[r] = 0, active[i] = false, failed[i] = true;
        }
      }
      block.a->move(v, length);
      precondition(v, block);
      for (Size r = 0; r < v.m; ++r) {
        const Size i = order[r];
        drop[r] = rho_now[r] / rho[i];
        rho[i] = rho_now[r];
        if (!active[i]) continue;
        // The next step would take about alpha rho off the energy of the error. It is taken without a product, with
        // the shortest length so far; what it leaves is `slow` of it, and the square of what the length is wrong by.
        const double size = system.size ? static_cast<double>(system.size[i]) : 1.0;
        const double slow = std::max(drop[r], last_drop[i]),
                     missed = std::max(change[i] * change[i], slow * least_missed);
        last_drop[i] = drop[r];
        active[i] = step[i] * rho[i] * (slow + missed) > std::max(least * size, relative * energy[i]);
      }
      block.a->turn(v, drop, slant);
      for (Size r = 0; r < v.m; ++r) {
        const Size i = order[r];
        if (!active[i] && !failed[i]) s.axpy(K, static_cast<T>(shortest[i]), direction + i * ld, system.x + i * ld);
      }
    }
    for (Size i = 0; i < rows; ++i) failed[i] = failed[i] || active[i], all += energy[i];
    if (from_query) found.query = start > worthwhile_start * all;
  }

  const Simd<T>& s;
  const Pairs<T>& pairs;
  Moments& moments;
  Preconditioner<T> preconditioner;
  int K;
  T *residual, *preconditioned, *direction, *image, *gathered, *query, *query_image, *y, *sums;
  Size* order;
  Size steps = 0;
  Finding advised, found;
  double *rho, *step, *energy, *change, *shortest, *last_drop, *query_norm;  // [64] by query
  double *rho_now, *slant, *curvature, *length, *drop;                       // [64] by active query
  bool *active, *failed;
  double *rows_wide, *weights_wide, *solution;
};

}  // namespace ttr::families::local_linear
