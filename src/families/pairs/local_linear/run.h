// What forward and backward of local linear attention share: checks, the layout of the scratch, the slopes of a
// block. Blocks of queries go to the workers of a team (team.h): `Whole` is what these share, `Run` what each has.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
#include <type_traits>

#include "families/pairs/driver.h"
#include "families/pairs/gates.h"
#include "families/pairs/local_linear/findings.h"
#include "families/pairs/local_linear/quadratic.h"

namespace ttr::families::local_linear {

template <class T>
const Simd<double>& wide_table(const Simd<T>& s, const Simd<double>* given) {
  if (given) return *given;
  if constexpr (std::is_same_v<T, double>) return s;
  static const Simd<double>& best = simd<double>("");
  return best;
}

/// Of the energy norm of an error in the slopes. Gradients need more digits than answers: dlambda = -u.r weighs the
/// directions of small variance, which the energy does not see, by 1 / lambda.
template <class T>
double tolerance(bool backward) {
  return std::is_same_v<T, double> ? 1e-13 : backward ? 1e-6 : 1e-5;
}

/// Pairs of the largest sequence in *longest. `answers`: queries are read at all.
template <class T>
Status check(const LocalLinearProblem<T>& p, bool answers, bool backward, Workspace work, Size* longest) {
  using pairs::kept;
  pairs::Largest most;
  const pairs::KeptList gates = p.g ? kept(p.past_g) : kept(p.past_k);
  if (const Status status = pairs::check_pairs(p, {kept(p.past_k), kept(p.past_v), gates}, &most);
      status != Status::ok)
    return status;
  *longest = most.pairs;
  if (p.window < 0) return Status::bad_shape;
  if (!p.causal && (p.g || p.window > 0)) return Status::not_supported;
  if ((p.order != 1 && p.order != 2) || (p.order == 2 && p.slope)) return Status::not_supported;
  if (most.tokens > 0 && answers) {
    if (!p.q || !p.k != !p.v || (!p.k && p.causal) || (!p.slope && !p.lambda)) return Status::missing_input;
    if (p.kernel == LocalKernel::gaussian && !p.bandwidth) return Status::missing_input;
    if (p.kernel == LocalKernel::gaussian)
      for (int h = 0; h < p.heads; ++h)
        if (!(p.bandwidth(h) > T(0))) return Status::out_of_domain;
  }
  return pairs::check_workspace(work, workspace_bytes<T>(p.key_dim, p.value_dim, p.order, p.group(), most.pairs,
                                                         p.window, backward, p.team.workers()));
}

/// The pairs of a key head, and the gradients that its queries add up in. They do so one block after another, in their
/// order: `turn` counts the blocks that have.
template <class T>
struct Whole {
  Whole(const Simd<T>& simd, int key_dim, int value_dim, int group, Size longest, bool backward, Arena& arena)
      : pairs(simd, key_dim, value_dim, longest, arena),
        findings(group, longest, arena),
        gate_sums(simd.name ? &attention_simd(simd) : nullptr, 1, tile_size, backward ? longest : 0, arena) {
    if (!backward) return;
    const Size rows = most_tiles(longest) * tile_size;
    d_k = arena.take<T>(rows * key_dim), d_v = arena.take<T>(rows * value_dim), d_columns = arena.take<T>(rows);
  }
  Pairs<T> pairs;
  Findings findings;
  pairs::GateSums<T> gate_sums;
  T *d_k = nullptr, *d_v = nullptr, *d_columns = nullptr;
  Progress turn;
};

/// Scratch and slopes of one worker. For order 1 a slope is [64, K + 1] in T, its last entry -kb.r.
template <class T>
struct Run {
  Run(const Simd<T>& simd, const Simd<double>& wide, const Whole<T>& whole, int order_, Size longest, Size window,
      bool backward, Arena& arena)
      : s(simd),
        order(order_),
        pairs(whole.pairs),
        block(simd, pairs, longest, window, arena),
        moments(wide, features_of(pairs.K, order_), arena),
        solver(simd, pairs, moments, arena),
        quadratic(wide, pairs, moments, order_ == 2 ? arena : nothing) {
    const int key_dim = pairs.K, value_dim = pairs.V;
    const Size tile = tile_size * tile_size;
    y = arena.take<T>(tile), c = arena.take<T>(tile);
    values = arena.take<T>(tile_size * value_dim);
    const Size curve = order == 2 ? tile_size * features_of(key_dim, 2) : 0;
    const Size line = order == 1 ? tile_size * (key_dim + 1) : 0;
    r = arena.take<T>(line), r2 = arena.take<double>(curve);
    if (!backward) return;
    u = arena.take<T>(line), u2 = arena.take<double>(curve);
    g = arena.take<T>(seen_tiles(longest, window) * tile), size = arena.take<T>(tile_size);
    rhs = arena.take<T>(tile_size * key_dim), d_q = arena.take<T>(tile_size * key_dim);
    plain = arena.take<T>(tile_size * key_dim);
    mean = arena.take<T>(tile_size), total = arena.take<T>(tile_size);
  }

  /// The given slopes of the block as rows of r.
  void take_slope(const LocalLinearProblem<T>& p, const Sequence& n, int head) {
    const int K = pairs.K;
    for (Size i = 0; i < block.rows; ++i)
      pack(s, p.slope, n.row, n.begin + block.begin + i, 1, head, K, T(1), r + i * (K + 1));
    solver.finish(block, r);
  }
  /// y = r . (x - xb) on tile t
  void along_slope(Size t) {
    if (order == 2) quadratic.dots(block, t, r2, false, y);
    else block.dots(t, r, pairs.K + 1, pairs.K + 1, T(0), y);
  }
  /// c = p (1 - y)
  void combine(Size t) {
    const Size n = block.rows * tile_size;
    s.mul(n, block.tile(t), y, c);
    s.scale(n, T(-1), c, c);
    s.axpy(n, T(1), block.tile(t), c);
    block.hide(t, c);
  }

  /// values += c V on tile t
  void read_values(const LocalLinearProblem<T>& p, Size t) {
    const Size K = pairs.K, V = pairs.V;
    if (pairs.one) {
      along_slope(t);
      combine(t);
      Size ld = 0;
      const T* const rows = pairs.value_rows(p, t, &ld);
      return block.read_one(t, c, rows, ld, pairs.V, values);
    }
    if (order == 1 && (block.whole(t) || (pairs.tame_keys[t] && pairs.tame_values[t]))) {
      block.a->blend({block.rows, pairs.count(t), K, V, r, K + 1, pairs.along(t), block.tile(t), nullptr,
                      block.own(t), pairs.values(t), values, nullptr});
      return;
    }
    along_slope(t);
    combine(t);
    block.read_values(t, c, values);
  }

  const Simd<T>& s;
  int order;
  Arena nothing;
  const Pairs<T>& pairs;
  Block<T> block;
  Moments moments;
  Solver<T> solver;
  Quadratic<T> quadratic;
  T *y, *c, *values, *r;
  double* r2;
  // Backward.
  T *u = nullptr, *g = nullptr, *size = nullptr, *rhs = nullptr, *d_q = nullptr, *plain = nullptr;
  T *mean = nullptr, *total = nullptr;
  double* u2 = nullptr;
};

/// All of a call. A worker keeps its Run, and so what it knows of the keys, from block to block.
template <class T>
class Crew {
 public:
  Crew(const Simd<T>& simd, const Simd<double>& wide, int key_dim, int value_dim, int order, int group, Size longest,
       Size window, bool backward, int workers, Arena& arena)
      : whole(simd, key_dim, value_dim, group, longest, backward, arena),
        rooms(workers, bytes_of_one(whole, order, longest, window, backward), arena),
        runs(arena.take<Run<T>>(workers)) {
    static_assert(std::is_trivially_destructible_v<Run<T>>);
    for (int w = 0; runs && w < workers; ++w) {
      Arena own = rooms.of(w);
      new (runs + w) Run<T>(simd, wide, whole, order, longest, window, backward, own);
    }
  }
  Run<T>& of(int worker) { return runs[worker]; }

  Whole<T> whole;

 private:
  static std::size_t bytes_of_one(const Whole<T>& whole, int order, Size longest, Size window, bool backward) {
    static constexpr Simd<T> none{};
    static constexpr Simd<double> no_wide{};
    Arena arena;
    Run<T> run(none, no_wide, whole, order, longest, window, backward, arena);
    return arena.bytes();
  }
  Rooms rooms;
  Run<T>* runs;
};

/// Blocks of a sequence.
inline Size blocks_of(const Sequence& n) { return (n.end - n.begin + tile_size - 1) / tile_size; }

}  // namespace ttr::families::local_linear
