// Tiles of 64 tokens against Y and U, which are kept as they are and transposed so that every product is a plain one.
// H, F and Y are made again only for a head whose keys, values, beta or ridge are others than those of the head
// before it. Equations: whole.h.
#include "families/pairs/whole/whole.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>

#include "families/common/solve.h"
#include "families/pairs/driver.h"
#include "families/pairs/factor.h"
#include "families/pairs/rows.h"

namespace ttr::families::whole {
namespace {

using pairs::each_tile;
using pairs::Factor;
using pairs::keys_of;
using pairs::Size;
constexpr Size C = pairs::block_size;

/// H = L L' of one head.
class System {
 public:
  System(const Simd<double>& simd, Size dim, Size columns, Arena& arena)
      : s(simd), K(dim), factor(simd, 0, std::max(columns, C), arena) {
    gram = arena.take<double>(K * K), triangle = arena.take<double>(Factor::start(K));
    left = arena.take<double>(C * K);
  }

  void clear() { std::fill_n(gram, K * K, 0.0); }
  /// H += W' X for W and X [c, K]; only its lower triangle is kept.
  void add(Size c, const double* W, Size ldw, const double* X, Size ldx) {
    constexpr Size rows = 32;
    for (Size i = 0; i < K; i += rows) {
      const Size m = std::min(rows, K - i);
      s.gemm_tn(m, i + m, c, 1.0, W + i, ldw, X, ldx, 1.0, gram + i * K, K);
    }
  }
  /// An entry is no larger than the larger one of its two diagonal entries.
  bool finite() const {
    for (Size i = 0; i < K; ++i)
      if (!std::isfinite(gram[i * K + i])) return false;
    return true;
  }
  void decompose(double ridge) {
    factor.attach(triangle, left, 0);
    for (Size a = 0; a < K; a += C) {
      const Size b = std::min(C, K - a);
      for (Size i = 0; i < b; ++i) std::copy_n(gram + (a + i) * K, a, left + i * K);
      factor.lower(a, b, left, K);
      factor.append(b, ridge, left, K, gram + a * K + a, K, left);
    }
  }
  /// The rows of X [R, K] become H^-1 x.
  void solve(Size R, double* X) {
    factor.lower(K, R, X, K);
    factor.upper(K, R, X, K);
  }

 private:
  const Simd<double>& s;
  Size K;
  Factor factor;  // without values: what stands for theirs is not touched
  double *gram, *triangle, *left;
};

struct NoSystem {
  template <class... Any>
  explicit NoSystem(Any&&...) {}
};

/// One sequence and head after the other.
template <class T, WholeSolve kind>
class Run {
 public:
  static constexpr bool exact = kind == WholeSolve::exact;
  using A = std::conditional_t<exact, double, T>;

  Run(const Simd<A>& simd, int key_dim, int value_dim, bool backward, Arena& arena)
      : s(simd), K(key_dim), V(value_dim > 0 ? value_dim : K), valued(value_dim > 0), system(simd, K, V, arena) {
    x = arena.take<A>(C * K), weighted = arena.take<A>(C * K), u = arena.take<A>(C * V), y = arena.take<A>(C * V);
    weights = arena.take<A>(C), F = arena.take<A>(K * V);
    Y = exact ? arena.take<A>(K * V) : F;
    Yt = exact || backward ? arena.take<A>(V * K) : nullptr;
    if (!backward) return;
    U = arena.take<A>(K * V), Ut = arena.take<A>(V * K), d_x = arena.take<A>(C * K), d_v = arena.take<A>(C * V);
    r = arena.take<A>(C * V), dots = arena.take<A>(C);
  }

  bool forward(const WholeProblem<T>& p, std::size_t n, int head) {
    const Sequence& tokens = p.sequences[n];
    if (!load(p, n, head, false)) {
      no_answer(p.o, tokens, head);
      return false;
    }
    each_tile(tokens, [&](Size t, Size c) {
      Size ld_q, ld_o = V;
      const A* const q = rows(p.q, tokens.row, t, c, shared(p, head, p.query_heads), K, x, &ld_q);
      A* to = y;
      if constexpr (std::is_same_v<A, T>)
        if (p.o.stride[3] == 1) to = &p.o(tokens.row, t, head, 0), ld_o = p.o.stride[1];
      s.gemm_nn(c, V, K, static_cast<A>(p.scale), q, ld_q, Y, V, A(0), to, ld_o);
      if (to != y) return;
      if constexpr (std::is_same_v<A, T>) unpack(y, tokens.row, t, c, head, static_cast<int>(V), p.o);
      else pairs::narrow(y, tokens.row, t, c, head, V, false, p.o);
    });
    return true;
  }

  bool backward(const WholeProblem<T>& p, const WholeGradient<T>& d, std::size_t n, int head) {
    if (!load(p, n, head, true)) return false;
    const Sequence& tokens = p.sequences[n];
    const int query_head = shared(p, head, p.query_heads);
    const bool pairs = d.d_k || (d.d_v && valued) || d.d_beta;
    const bool fit = pairs || (exact && d.d_ridge);
    std::fill_n(U, K * V, A(0));
    each_tile(tokens, [&](Size t, Size c) {
      Size ld_q, ld_o;
      const A* const q = rows(p.q, tokens.row, t, c, query_head, K, x, &ld_q);
      const A* const d_o = rows(d.d_o, tokens.row, t, c, head, V, u, &ld_o);
      if (fit) s.gemm_tn(K, V, c, static_cast<A>(p.scale), q, ld_q, d_o, ld_o, A(1), U, V);
      if (!d.d_q) return;
      s.gemm_nn(c, K, V, static_cast<A>(p.scale), d_o, ld_o, Yt, K, A(0), d_x, K);
      add(d_x, tokens.row, t, c, query_head, K, d.d_q);
    });
    if (!fit) return true;
    s.transpose(K, V, U, V, Ut, K);
    if constexpr (exact) {
      system.solve(V, Ut);
      s.transpose(V, K, Ut, K, U, V);
      if (d.d_ridge) d.d_ridge(head) -= static_cast<T>(s.dot(K * V, U, Y));
    }
    if (pairs) each_tile(keys_of(p, n), [&](Size t, Size c) { pairs_back(p, d, keys_of(p, n).row, t, c, head); });
    return true;
  }

 private:
  static int shared(const WholeProblem<T>& p, int head, int count) { return head / (p.heads / count); }

  /// Y of this head, for backward also transposed; false if it has none.
  bool load(const WholeProblem<T>& p, std::size_t n, int head, bool backward) {
    const Sequence& keys = keys_of(p, n);
    const int key = shared(p, head, p.key_heads), value = valued ? shared(p, head, p.value_heads) : 0;
    const int beta = p.beta && p.beta.stride[2] != 0 ? head : 0;
    const bool new_keys = !loaded || n != now.n || key != now.key || beta != now.beta;
    const bool new_values = new_keys || value != now.value;
    double ridge = 0;
    if constexpr (exact) {
      ridge = static_cast<double>(p.ridge(head));
      if (!(ridge > 0)) return false;
      if (new_keys) weighable = is_weighable(p, keys, head);
      if (new_keys && weighable) system.clear();
    }
    if (new_values && valued) std::fill_n(F, K * V, A(0));
    if (weighable && (exact ? new_keys || (new_values && valued) : new_values))
      each_tile(keys, [&](Size t, Size c) {
        Size ld_k, ld_w, ld_v;
        const A* const k = rows(p.k, keys.row, t, c, key, K, x, &ld_k);
        const A* const w = weigh(p, keys.row, t, c, head, k, ld_k, &ld_w);
        if constexpr (exact)
          if (new_keys) system.add(c, w, ld_w, k, ld_k);
        if (!new_values || !valued) return;
        const A* const v = rows(p.v, keys.row, t, c, value, V, u, &ld_v);
        s.gemm_tn(K, V, c, A(1), w, ld_w, v, ld_v, A(1), F, V);
      });
    if constexpr (exact) {
      if (new_keys && weighable) weighable = system.finite();
      const bool new_system = weighable && (new_keys || ridge != now.ridge);
      if (new_system) system.decompose(ridge);
      if (weighable && (new_system || new_values)) fit();
    } else if (backward && new_values) {
      s.transpose(K, V, F, V, Yt, K);
    }
    now = {n, key, value, beta, ridge}, loaded = true;
    return weighable;
  }

  void fit() {
    if (valued) {
      s.transpose(K, V, F, V, Yt, K);
    } else {
      std::fill_n(Yt, K * K, A(0));
      for (Size i = 0; i < K; ++i) Yt[i * K + i] = 1;
    }
    system.solve(V, Yt);
    s.transpose(V, K, Yt, K, Y, V);
  }

  bool is_weighable(const WholeProblem<T>& p, const Sequence& keys, int head) const {
    for (Size t = keys.begin; p.beta && t < keys.end; ++t)
      if (!(p.beta(keys.row, t, head) >= T(0))) return false;
    return true;
  }

  void pairs_back(const WholeProblem<T>& p, const WholeGradient<T>& d, Size row, Size t, Size c, int head) {
    const int key = shared(p, head, p.key_heads), value = shared(p, head, p.value_heads);
    Size ld_k, ld_r = V;
    const A* const k = rows(p.k, row, t, c, key, K, x, &ld_k);
    if (p.beta) load_weights(p, row, t, c, head);
    s.gemm_nn(c, V, K, A(1), k, ld_k, U, V, A(0), y, V);
    if (d.d_v && valued) {
      if (p.beta) s.scale_rows(c, V, weights, y, V, d_v, V);
      add(p.beta ? d_v : y, row, t, c, value, V, d.d_v);
    }
    if (!d.d_beta && !d.d_k) return;

    const A* residual = r;
    if constexpr (exact) {
      Size ld_v = V;
      const A* const v = valued ? rows(p.v, row, t, c, value, V, u, &ld_v) : nullptr;
      for (Size i = 0; valued && i < c; ++i) std::copy_n(v + i * ld_v, V, r + i * V);
      s.gemm_nn(c, V, K, A(-1), k, ld_k, Y, V, A(valued ? 1 : 0), r, V);
    } else {
      residual = rows(p.v, row, t, c, value, V, u, &ld_r);
    }
    if (d.d_beta) {
      s.row_dots(c, V, y, V, residual, ld_r, dots);
      for (Size i = 0; i < c; ++i) d.d_beta(row, t + i, head) += static_cast<T>(dots[i]);
    }
    if (!d.d_k) return;
    s.gemm_nn(c, K, V, A(1), residual, ld_r, Ut, K, A(0), d_x, K);
    if constexpr (exact) s.gemm_nn(c, K, V, A(-1), y, V, Yt, K, A(1), d_x, K);
    if (p.beta) s.scale_rows(c, K, weights, d_x, K, d_x, K);
    add(d_x, row, t, c, key, K, d.d_k);
  }

  void load_weights(const WholeProblem<T>& p, Size row, Size t, Size c, int head) {
    for (Size i = 0; i < c; ++i) weights[i] = static_cast<A>(p.beta(row, t + i, head));
  }
  /// Rows beta_i k_i.
  const A* weigh(const WholeProblem<T>& p, Size row, Size t, Size c, int head, const A* k, Size ld_k, Size* ld) {
    *ld = p.beta ? K : ld_k;
    if (!p.beta) return k;
    load_weights(p, row, t, c, head);
    s.scale_rows(c, K, weights, k, ld_k, weighted, K);
    return weighted;
  }

  /// Rows of the caller, where they lie if they can be used there, else in `buffer`.
  const A* rows(const View<const T, 4>& from, Size row, Size t, Size c, int head, Size dim, A* buffer,
                Size* ld) const {
    if constexpr (std::is_same_v<A, T>) {
      return contiguous(s, from, row, t, c, head, static_cast<int>(dim), buffer, ld);
    } else {
      *ld = dim;
      pairs::widen(from, row, t, c, head, dim, buffer);
      return buffer;
    }
  }
  void add(const A* from, Size row, Size t, Size c, int head, Size dim, const View<T, 4>& to) const {
    if constexpr (std::is_same_v<A, T>) add_rows(s, T(1), from, row, t, c, head, static_cast<int>(dim), to);
    else pairs::narrow(from, row, t, c, head, dim, true, to);
  }

  struct Source {
    std::size_t n;
    int key, value, beta;
    double ridge;
  };

  const Simd<A>& s;
  Size K, V;
  bool valued;
  std::conditional_t<exact, System, NoSystem> system;
  bool loaded = false, weighable = true;
  Source now{};
  A *x, *weighted, *u, *y, *weights, *F, *Y, *Yt;
  A *U = nullptr, *Ut = nullptr, *d_x = nullptr, *d_v = nullptr, *r = nullptr, *dots = nullptr;
};

template <class T>
Status check(const WholeProblem<T>& p, bool backward, Workspace work) {
  const Size longest = longest_of(p.sequences);
  const Size most = p.key_sequences.empty() ? longest : longest_of(p.key_sequences);
  if (longest < 0 || most < 0 || p.key_dim < 1 || p.value_dim < 0 || p.heads < 1 ||
      (!p.key_sequences.empty() && p.key_sequences.size() != p.sequences.size()))
    return Status::bad_shape;
  for (const int count : {p.query_heads, p.key_heads, p.value_heads})
    if (count < 1 || p.heads % count != 0) return Status::bad_shape;
  const bool exact = p.solve == WholeSolve::exact;
  if (!exact && p.value_dim == 0) return Status::not_supported;
  if (longest > 0 && (!p.q || (exact && !p.ridge) || (most > 0 && (!p.k || (p.value_dim > 0 && !p.v)))))
    return Status::missing_input;
  return pairs::check_workspace(work, workspace_bytes<T>(p.key_dim, p.value_dim, p.solve, backward));
}

/// each(run, sequence, head) for every head of every sequence that has queries.
template <WholeSolve kind, class T, class A, class Each>
Status for_heads(const WholeProblem<T>& p, bool backward, const Simd<A>& s, Workspace work, Each&& each) {
  const FlushDenormals flush;
  Arena arena(work);
  Run<T, kind> run(s, p.key_dim, p.value_dim, backward, arena);
  bool good = true;
  for (std::size_t n = 0; n < p.sequences.size(); ++n)
    for (int h = 0; h < p.heads && p.sequences[n].end > p.sequences[n].begin; ++h) good = each(run, n, h) && good;
  return good ? Status::ok : Status::out_of_domain;
}

}  // namespace

template <class T>
std::size_t workspace_bytes(int key_dim, int value_dim, WholeSolve solve, bool backward) noexcept {
  Arena arena;
  if (solve == WholeSolve::exact) {
    static constexpr Simd<double> none{};
    Run<T, WholeSolve::exact>(none, key_dim, value_dim, backward, arena);
  } else {
    static constexpr Simd<T> none{};
    Run<T, WholeSolve::none>(none, key_dim, value_dim, backward, arena);
  }
  return arena.bytes();
}

template <class T>
Status forward(const WholeProblem<T>& p, const Simd<T>& s, const Simd<double>& wide, Workspace work) noexcept {
  if (const Status status = check(p, false, work); status != Status::ok) return status;
  if (!p.o) return Status::ok;
  const auto each = [&](auto& run, std::size_t n, int h) { return run.forward(p, n, h); };
  return p.solve == WholeSolve::exact ? for_heads<WholeSolve::exact>(p, false, wide, work, each)
                                      : for_heads<WholeSolve::none>(p, false, s, work, each);
}

template <class T>
Status backward(const WholeProblem<T>& p, const WholeGradient<T>& d, const Simd<T>& s, const Simd<double>& wide,
                Workspace work) noexcept {
  if (const Status status = check(p, true, work); status != Status::ok) return status;
  if (!d.d_o) return Status::ok;
  const auto each = [&](auto& run, std::size_t n, int h) { return run.backward(p, d, n, h); };
  return p.solve == WholeSolve::exact ? for_heads<WholeSolve::exact>(p, true, wide, work, each)
                                      : for_heads<WholeSolve::none>(p, true, s, work, each);
}

#define TTR_INSTANTIATE(T)                                                                                       \
  template std::size_t workspace_bytes<T>(int, int, WholeSolve, bool) noexcept;                                  \
  template Status forward(const WholeProblem<T>&, const Simd<T>&, const Simd<double>&, Workspace) noexcept;      \
  template Status backward(const WholeProblem<T>&, const WholeGradient<T>&, const Simd<T>&, const Simd<double>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::whole
