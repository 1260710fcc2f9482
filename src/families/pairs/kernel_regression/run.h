// What forward and backward share: the pairs of a sequence and key head in double, and the loop over the systems that
// its queries need. Contract: kernel_regression.h.
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/pairs/factor.h"
#include "families/pairs/kernel_regression/kernel_regression.h"
#include "families/pairs/rows.h"

namespace ttr::families::kernel_regression {

using pairs::block_size;
using pairs::Factor;
using pairs::Kernel;
using pairs::narrow;
using pairs::Size;
using pairs::widen;

/// The pairs [first, first + count) of a sequence, with a ridge.
struct System {
  Size first = 0, count = -1;
  double ridge = 0;
  bool operator==(const System&) const = default;
};

/// Queries [begin, begin + count) of a sequence, for one head. The first of them sees `seen` pairs of the system, and
/// each other one more than the one before it; not causal: all of them `seen`.
struct Queries {
  int head;
  Size begin, count, seen;
};

/// True if every token has a system of its own.
template <class T>
bool own_systems(const KernelRegressionProblem<T>& p) {
  return p.ridge.stride[1] != 0;
}
/// The most pairs that one query sees, of n.
inline Size seen_of(Size n, Size window) { return window > 0 ? std::min(n, window) : n; }

class Run {
 public:
  Run(const Simd<double>& simd, Size key_dim, Size value_dim, Size most, Size window, bool with_factor, bool backward,
      Arena& arena)
      : s(simd),
        K(key_dim),
        V(value_dim),
        N(window > 0 ? std::min(most, window + 2 * C) : most),
        kernel(simd, key_dim, arena),
        factor(simd, value_dim, backward ? 2 * C : C, arena, seen_of(most, window)) {
    const Size room = seen_of(most, window);
    keys = arena.take<double>(most * K), values = arena.take<double>(most * V);
    X = arena.take<double>(C * N);
    q = arena.take<double>(C * K), o = arena.take<double>(C * V);
    if (with_factor) triangle = arena.take<double>(Factor::start(room)), solved = arena.take<double>(room * V);
  }

  template <class T>
  void load(const KernelRegressionProblem<T>& p, std::size_t n, int key_head) {
    const Sequence& x = p.sequences[n];
    const Size past = p.past_of(n);
    if (past > 0) {
      widen(p.past_k, static_cast<Size>(n), 0, past, key_head, K, keys);
      widen(p.past_v, static_cast<Size>(n), 0, past, key_head, V, values);
    }
    if (!p.k) return;
    widen(p.k, x.row, x.begin, x.end - x.begin, key_head, K, keys + past * K);
    widen(p.v, x.row, x.begin, x.end - x.begin, key_head, V, values + past * V);
  }

  /// Appends the pairs of the system up to `count`.
  void grow(const System& system, Size count) {
    factor.grow(kernel, K, keys + system.first * K, values + system.first * V, system.ridge, count, X, N);
  }
  /// Makes room for one more pair, and appends what is missing of the `seen` pairs before it.
  void slide(System& system, Size window, Size seen) {
    if (window > 0 && factor.size() == window) factor.drop(), ++system.first;
    system.count = seen - system.first;
    grow(system, system.count);
  }

  /// For all queries of a sequence that read this key head: begin(system) for every factor that is needed, the first
  /// pair of which is `from`; answer(queries) for up to 64 of them that see a part of it; next(head, token) for the
  /// query of a token that sees one pair more, and with a window perhaps one less; bad(head, token) where the ridge is
  /// not above 0. one_by_one: next() for all of them.
  template <class T, class Begin, class Answer, class Next, class Bad>
  void each_system(const KernelRegressionProblem<T>& p, std::size_t n, int key_head, Size from, bool one_by_one,
                   Begin&& begin, Answer&& answer, Next&& next, Bad&& bad) {
    const Sequence& x = p.sequences[n];
    const Size past = p.past_of(n), tokens = p.tokens_of(n), all = p.pairs_of(n);
    const int group = p.group(), first = key_head * group;
    if (own_systems(p)) {
      System now;
      for (Size t = 0; t < tokens; ++t)
        for (int h = first; h < first + group; ++h) {
          const double ridge = static_cast<double>(p.ridge(x.row, x.begin + t, h));
          if (!(ridge > 0)) {
            bad(h, t);
            continue;
          }
          const Size end = p.causal ? past + t + 1 : all, seen = seen_of(end, p.window);
          const System system{end - seen, seen, ridge};
          if (system != now) begin(now = system);
          answer(Queries{h, t, 1, seen});
        }
      return;
    }
    Size grown = one_by_one ? 0 : tokens;
    if (p.window > 0) grown = std::min(grown, from + p.window - past);
    for (int h = first; h < first + group; ++h) {
      begin(System{from, (p.causal ? past + grown : all) - from, static_cast<double>(p.ridge(x.row, x.begin, h))});
      for (Size t = 0; t < grown; t += C)
        answer(Queries{h, t, std::min(C, grown - t), p.causal ? past + t + 1 - from : all});
      for (Size t = grown; t < tokens; ++t) next(h, t);
    }
  }

  static constexpr Size C = block_size;
  const Simd<double>& s;
  Size K, V, N;
  Kernel kernel;
  Factor factor;
  double *keys, *values;                          // [pairs, K], [pairs, V]
  double* X;                                      // [64, N] right-hand sides
  double *q, *o;                                  // queries, answers or their gradients
  double *triangle = nullptr, *solved = nullptr;  // a factor that is not kept
};

/// What the backward pass adds up, and the right-hand sides of its queries.
struct Sums {
  Sums(Size K, Size V, Size pairs, Size window, Size ld, Arena& arena) {
    const Size blocks = (pairs + block_size - 1) / block_size;
    band = (seen_of(pairs, window) + block_size - 2) / block_size;
    if (2 * (band + 1) > blocks) band = -1;
    keys = arena.take<double>(pairs * K), values = arena.take<double>(pairs * V);
    gram = arena.take<double>(size(blocks)), q = arena.take<double>(block_size * K);
    rows = arena.take<double>(2 * block_size * ld);
  }
  /// The first J of which there is a block (I, J).
  Size left(Size I) const { return band < 0 ? 0 : std::max<Size>(0, I - band); }
  /// Where block (I, J), J <= I, of the gradient of kappa(K, K) starts.
  Size tile(Size I, Size J) const {
    return (band < 0 ? I * (I + 1) / 2 + J : I * (band + 1) + J - I + band) * block_size * block_size;
  }
  Size size(Size blocks) const { return band < 0 ? tile(blocks, 0) : blocks * (band + 1) * block_size * block_size; }

  Size band;  // blocks left of the diagonal; -1: all of them
  double *keys, *values, *gram, *q, *rows;
};

/// Everything but the workspace. `pairs`: of the largest sequence, past ones included.
template <class T>
Status check(const KernelRegressionProblem<T>& p, bool queries, bool kept, Size* pairs) noexcept;

}  // namespace ttr::families::kernel_regression
