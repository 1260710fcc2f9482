// What forward and backward share: the pairs of a sequence and key head in double, and the walk over the systems that
// its queries need. Contract: kernel_regression.h.
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/kernel_regression_factor.h"
#include "families/kernel_regression_kernel.h"

namespace ttr::families::kernel_regression {

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

template <class T>
Size past_of(const KernelRegressionProblem<T>& p, std::size_t n) {
  return p.past_count ? static_cast<Size>(p.past_count[n]) : 0;
}
template <class T>
Size pairs_of(const KernelRegressionProblem<T>& p, std::size_t n) {
  return past_of(p, n) + (p.k ? p.sequences[n].end - p.sequences[n].begin : 0);
}
/// True if every token has a system of its own.
template <class T>
bool own_systems(const KernelRegressionProblem<T>& p) {
  return p.window > 0 || p.ridge.stride[1] != 0;
}

/// out [count, dim] = x[row, begin .. begin+count-1, head, :]
template <class T>
void widen(const View<const T, 4>& x, Size row, Size begin, Size count, int head, Size dim, double* out) {
  const T* from = x.data + row * x.stride[0] + begin * x.stride[1] + head * x.stride[2];
  for (Size i = 0; i < count; ++i, from += x.stride[1], out += dim)
    for (Size j = 0; j < dim; ++j) out[j] = static_cast<double>(from[j * x.stride[3]]);
}
/// x[row, begin .. begin+count-1, head, :] = in [count, dim], or += with `add`
template <class T>
void narrow(const double* in, Size row, Size begin, Size count, int head, Size dim, bool add, const View<T, 4>& x) {
  T* to = x.data + row * x.stride[0] + begin * x.stride[1] + head * x.stride[2];
  for (Size i = 0; i < count; ++i, to += x.stride[1], in += dim)
    for (Size j = 0; j < dim; ++j) {
      T& y = to[j * x.stride[3]];
      y = static_cast<T>(add ? static_cast<double>(y) + in[j] : in[j]);
    }
}

class Run {
 public:
  Run(const Simd<double>& simd, int heads, int key_heads, Size key_dim, Size value_dim, Size most, bool with_factor,
      bool backward, Arena& arena)
      : s(simd),
        K(key_dim),
        V(value_dim),
        N(most),
        rows(std::max<Size>(backward ? 2 * C : C, 1 + heads / key_heads)),
        kernel(simd, key_dim, arena),
        factor(simd, value_dim, rows, arena) {
    keys = arena.take<double>(N * K), values = arena.take<double>(N * V);
    X = arena.take<double>(rows * N);
    const Size at_once = std::max<Size>(C, heads / key_heads);
    q = arena.take<double>(at_once * K), o = arena.take<double>(at_once * V);
    if (with_factor) triangle = arena.take<double>(Factor::start(N)), solved = arena.take<double>(N * V);
  }

  template <class T>
  void load(const KernelRegressionProblem<T>& p, std::size_t n, int key_head) {
    const Sequence& x = p.sequences[n];
    const Size past = past_of(p, n);
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

  /// Walks over all queries of a sequence that read this key head: begin(system) whenever another system is needed,
  /// answer(queries) for up to 64 of them, bad(head, token) where the ridge is not above 0.
  template <class T, class Begin, class Answer, class Bad>
  void walk(const KernelRegressionProblem<T>& p, std::size_t n, int key_head, Begin&& begin, Answer&& answer,
            Bad&& bad) {
    const Sequence& x = p.sequences[n];
    const Size past = past_of(p, n), tokens = x.end - x.begin, all = pairs_of(p, n);
    const int group = p.heads / p.key_heads, first = key_head * group;
    System now;
    const auto need = [&](const System& system) {
      if (system == now) return;
      now = system;
      begin(now);
    };
    if (own_systems(p)) {
      for (Size t = 0; t < tokens; ++t)
        for (int h = first; h < first + group; ++h) {
          const double ridge = static_cast<double>(p.ridge(x.row, x.begin + t, h));
          if (!(ridge > 0)) {
            bad(h, t);
            continue;
          }
          const Size end = p.causal ? past + t + 1 : all, from = p.window > 0 ? std::max<Size>(0, end - p.window) : 0;
          need({from, end - from, ridge});
          answer(Queries{h, t, 1, end - from});
        }
      return;
    }
    for (int h = first; h < first + group; ++h) {
      if (h == first || !p.shared) now = {};
      need({0, all, static_cast<double>(p.ridge(x.row, x.begin, h))});
      for (Size t = 0; t < tokens; t += C)
        answer(Queries{h, t, std::min(C, tokens - t), p.causal ? past + t + 1 : all});
    }
  }

  static constexpr Size C = block_size;
  const Simd<double>& s;
  Size K, V, N, rows;
  Kernel kernel;
  Factor factor;
  double *keys, *values;                          // [N, K], [N, V]
  double* X;                                      // [rows, N] right-hand sides
  double *q, *o;                                  // queries, answers or their gradients
  double *triangle = nullptr, *solved = nullptr;  // a factor that is not kept
};

/// What the backward pass adds up.
struct Sums {
  Sums(Size K, Size V, Size pairs, Arena& arena) {
    const Size blocks = (pairs + block_size - 1) / block_size;
    keys = arena.take<double>(pairs * K), values = arena.take<double>(pairs * V);
    gram = arena.take<double>(tile(blocks, 0)), q = arena.take<double>(block_size * K);
  }
  /// Where block (I, J), J <= I, of the gradient of kappa(K, K) starts.
  static Size tile(Size I, Size J) { return (I * (I + 1) / 2 + J) * block_size * block_size; }

  double *keys, *values, *gram, *q;
};

/// Everything but the workspace. `pairs`: of the largest sequence, past ones included.
template <class T>
Status check(const KernelRegressionProblem<T>& p, bool queries, bool kept, Size* pairs) noexcept;

}  // namespace ttr::families::kernel_regression
