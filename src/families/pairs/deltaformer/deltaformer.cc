// DeltaFormer by blocks of tokens, forwards and backwards. Equations: deltaformer.h; blocks: pairs/layout.h.
#include "families/pairs/deltaformer/deltaformer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "families/pairs/stream.h"

namespace ttr::families::deltaformer {
namespace {

using pairs::Block;
using pairs::Layout;
using pairs::Size;

constexpr Size C = pairs::block_size;

/// Row i sees the columns before i.
MaskRange before(Size count) { return {count, count, -MaskRange::no_limit, 0}; }

/// The corrected values of the heads that share a key head, in one sequence.
template <class T>
class Forward {
 public:
  /// keep: c, the log-sums and p of every token stay, for backward.
  Forward(const Simd<T>& simd, const pairs::Sizes& sizes, bool keep, Arena& arena)
      : s(simd),
        group(sizes.group()),
        K(sizes.key_dim),
        V(sizes.value_dim),
        rows(keep ? sizes.longest : std::min(sizes.longest, C)),
        softmax(simd, sizes.value_dim, C, arena) {
    u = arena.take<T>(group * sizes.longest * V), c = arena.take<T>(group * rows * V);
    logs = arena.take<T>(group * rows), share = arena.take<T>(group * rows);
    q = arena.take<T>(group * C * K), k = arena.take<T>(C * K), kt = arena.take<T>(K * C), v = arena.take<T>(C * V);
    A = arena.take<T>(C * C), answers = arena.take<T>(C * V);
    for (T** piece : {&m, &l}) *piece = arena.take<T>(group * C);
    for (T** piece : {&inverse, &own, &beta}) *piece = arena.take<T>(C);
  }

  /// each(slot, tile, o) with the outputs [count, V] of a tile, for the head first_head + slot; `outputs` = false: no
  /// call.
  template <class Each>
  void run(const DeltaformerProblem<T>& p, const Layout& sequence, int key_head, bool outputs, Each&& each) {
    x = sequence;
    for (Size i = 0; i < x.tiles(); ++i) {
      const Block tile = x.tile(i);
      for (int r = 0; r < group; ++r) {
        pack(s, p.q, x.row(), x.token(tile), tile.count, key_head * group + r, static_cast<int>(K), p.scale,
             q + r * C * K);
        std::fill_n(m + r * C, tile.count, -std::numeric_limits<T>::infinity());
        std::fill_n(l + r * C, tile.count, T(0));
        std::fill_n(mean(r, tile), tile.count * V, T(0));
      }
      if (x.tokens == 1) one_query(p, key_head);
      else
        for (Size b = x.past_blocks() + i; b-- > 0;) older(p, key_head, tile, x.block(b));
      newest(p, key_head, tile);
      for (int r = 0; outputs && r < group; ++r) {
        const T *const means = mean(r, tile), *const values = corrected(r, tile.begin),
                       *const p_own = shares(r, tile);
        for (Size t = 0; t < tile.count; ++t) {
          s.scale(V, 1 - p_own[t], means + t * V, answers + t * V);
          s.axpy(V, p_own[t], values + t * V, answers + t * V);
        }
        each(r, tile, answers);
      }
    }
  }

  /// The corrected values of a block of pairs, for head `slot` of the group
  const T* values_of(const DeltaformerProblem<T>& p, int key_head, int slot, Block pairs, Size* ld) const {
    *ld = V;
    if (pairs.begin >= x.past) return corrected(slot, pairs.begin - x.past);
    return contiguous(s, p.past_u, x.index, pairs.begin, pairs.count, key_head * group + slot, static_cast<int>(V), v,
                      ld);
  }
  const T* corrected(int slot, Size token) const { return u + (slot * x.tokens + token) * V; }
  const T* means(int slot, Block tile) const { return c + at(slot, tile) * V; }
  const T* log_sums(int slot, Block tile) const { return logs + at(slot, tile); }
  const T* shares(int slot, Block tile) const { return share + at(slot, tile); }

 private:
  Size at(int slot, Block tile) const { return slot * rows + (rows >= x.tokens ? tile.begin : 0); }
  T* mean(int slot, Block tile) { return c + at(slot, tile) * V; }

  void older(const DeltaformerProblem<T>& p, int key_head, Block tile, Block pairs) {
    const MaskRange all = MaskRange::everything(tile.count, pairs.count);
    Size ldk, ldu;
    const T* const key = contiguous(s, x.place(p.past_k, p.k, pairs.begin), pairs.count, key_head, K, k, &ldk);
    s.transpose(pairs.count, K, key, ldk, kt, C);
    for (int r = 0; r < group; ++r) {
      const T* const values = values_of(p, key_head, r, pairs, &ldu);
      s.gemm_nn(tile.count, pairs.count, K, T(1), q + r * C * K, K, kt, C, T(0), softmax.S, C);
      softmax.weigh(all, {}, true, m + r * C, l + r * C, mean(r, tile));
      softmax.add(all, false, true, values, ldu, mean(r, tile));
    }
  }

  // All heads pass over a block of pairs before the next block: the keys are read once, in the order they lie in.
  void one_query(const DeltaformerProblem<T>& p, int key_head) {
    for (Size b = x.past_blocks(); b-- > 0;) {
      const Block pairs = x.block(b);
      Size ldk, ldu;
      const T* const key =
          contiguous(s, p.past_k, x.index, pairs.begin, pairs.count, key_head, static_cast<int>(K), k, &ldk);
      for (int r = 0; r < group; ++r) {
        const T* const values = values_of(p, key_head, r, pairs, &ldu);
        softmax.a->scores(pairs.count, K, false, T(1), key, ldk, q + r * C * K, softmax.S);
        softmax.weigh(MaskRange::everything(1, pairs.count), {}, true, m + r * C, l + r * C, mean(r, {0, 1}));
        softmax.add_one(pairs.count, values, ldu, mean(r, {0, 1}));
      }
    }
  }

  // The pairs of the tile itself: u, c, log-sums and shares from m, l and what has been summed.
  void newest(const DeltaformerProblem<T>& p, int key_head, Block tile) {
    constexpr T none = -std::numeric_limits<T>::infinity();
    T* const S = softmax.S;
    const Size first = x.token(tile), count = tile.count;
    pack(s, p.k, x.row(), first, count, key_head, static_cast<int>(K), T(1), k);
    s.transpose(count, K, k, K, kt, C);
    pack(s, p.v, x.row(), first, count, key_head, static_cast<int>(V), T(1), v);
    for (int r = 0; r < group; ++r) {
      T *const acc = mean(r, tile), *const values = u + (r * x.tokens + tile.begin) * V;
      s.gemm_lower(count, K, T(1), q + r * C * K, K, kt, C, S, C);
      for (Size t = 0; t < count; ++t) own[t] = S[t * C + t];
      softmax.weigh(before(count), {}, true, m + r * C, l + r * C, acc);
      for (Size t = 0; t < count; ++t) {
        const T sum = l[r * C + t], log_sum = m[r * C + t] + std::log(sum);
        logs[at(r, tile) + t] = log_sum;
        share[at(r, tile) + t] = own[t] == none    ? T(0)
                                 : log_sum == none ? T(1)
                                                   : 1 / (1 + std::exp(log_sum - own[t]));
        inverse[t] = sum == T(0) ? T(0) : 1 / sum;
        beta[t] = p.beta ? p.beta(x.row(), first + t, key_head * group + r) : T(1);
      }
      s.scale_rows(count, V, inverse, acc, V, acc, V);
      s.scale_rows(count, count, inverse, S, C, S, C);
      s.scale_rows(count, count, beta, S, C, A, C);
      s.scale_rows(count, V, beta, acc, V, values, V);
      s.scale(count * V, T(-1), values, values);
      s.axpy(count * V, T(1), v, values);
      s.solve_nn(count, V, A, C, values, V);
      s.trmm_nn(count, V, T(1), S, C, values, V, T(1), acc, V);
    }
  }

  const Simd<T>& s;
  int group;
  Size K, V, rows;
  pairs::Softmax<T> softmax;
  Layout x{};
  T *u, *c, *logs, *share;  // [group, tokens or a tile, ..]
  T *q, *k, *kt, *v, *A, *answers, *m, *l, *inverse, *own, *beta;
};

template <class T>
class Backward {
 public:
  Backward(const Simd<T>& simd, const pairs::Sizes& sizes, Arena& arena)
      : s(simd),
        a(simd.name ? &attention_simd(simd) : nullptr),
        group(sizes.group()),
        K(sizes.key_dim),
        V(sizes.value_dim),
        ahead(simd, sizes, true, arena) {
    const Size most = sizes.longest + sizes.past;
    d_u = arena.take<T>(most * V), d_k = arena.take<T>(most * K);
    for (T** piece : {&q, &d_q, &k}) *piece = arena.take<T>(C * K);
    for (T** piece : {&d_o, &d_c}) *piece = arena.take<T>(C * V);
    for (T** piece : {&S, &W, &X}) *piece = arena.take<T>(C * C);
    for (T** piece : {&beta, &delta, &edge, &dots}) *piece = arena.take<T>(C);
  }

  void run(const DeltaformerProblem<T>& p, const DeltaformerGradient<T>& d, const Layout& sequence, int key_head) {
    x = sequence;
    ahead.run(p, x, key_head, false, [](int, Block, const T*) {});
    std::fill_n(d_k, x.pairs() * K, T(0));
    for (int r = 0; r < group; ++r) {
      const int head = key_head * group + r;
      std::fill_n(d_u, x.past * V, T(0));
      if (d.d_u)
        pack(s, d.d_u, x.row(), x.sequence.begin, x.tokens, head, static_cast<int>(V), T(1), d_u + x.past * V);
      else std::fill_n(d_u + x.past * V, x.tokens * V, T(0));
      for (Size i = x.tiles(); i-- > 0;) {
        newest(p, d, key_head, r, x.tile(i));
        for (Size b = x.past_blocks() + i; b-- > 0;) older(p, key_head, r, x.tile(i), x.block(b));
        if (d.d_q)
          add_rows(s, p.scale, d_q, x.row(), x.token(x.tile(i)), x.tile(i).count, head, static_cast<int>(K), d.d_q);
      }
      if (d.d_past_u) add_rows(s, T(1), d_u, x.index, 0, x.past, head, static_cast<int>(V), d.d_past_u);
    }
    if (d.d_past_k) add_rows(s, T(1), d_k, x.index, 0, x.past, key_head, static_cast<int>(K), d.d_past_k);
    if (d.d_k)
      add_rows(s, T(1), d_k + x.past * K, x.row(), x.sequence.begin, x.tokens, key_head, static_cast<int>(K), d.d_k);
  }

 private:
  // du of a tile to which all newer ones have added, then what its own pairs get. Leaves q, d_q, d_c, delta for the
  // older blocks.
  void newest(const DeltaformerProblem<T>& p, const DeltaformerGradient<T>& d, int key_head, int r, Block tile) {
    const int key_dim = static_cast<int>(K), value_dim = static_cast<int>(V), head = key_head * group + r;
    const Size first = x.token(tile), count = tile.count;
    const T *const u = ahead.corrected(r, tile.begin), *const c = ahead.means(r, tile);
    const T *const share = ahead.shares(r, tile), *const logs = ahead.log_sums(r, tile);
    T* const du = d_u + (x.past + tile.begin) * V;
    pack(s, p.q, x.row(), first, count, head, key_dim, p.scale, q);
    pack(s, p.k, x.row(), first, count, key_head, key_dim, T(1), k);
    if (d.d_o) pack(s, d.d_o, x.row(), first, count, head, value_dim, T(1), d_o);
    else std::fill_n(d_o, count * V, T(0));

    s.gemm_nt(count, count, K, T(1), q, K, k, K, T(0), S, C);
    std::fill_n(delta, count, T(0));
    for (Size t = 0; t < count; ++t) std::fill_n(X + t * C, count, T(0));
    a->softmax_back(before(count), {}, true, logs, delta, S, W, X, C, nullptr);
    for (Size t = 0; t < count; ++t) {
      beta[t] = p.beta ? p.beta(x.row(), first + t, head) : T(1);
      s.axpy(V, share[t], d_o + t * V, du + t * V);
      s.scale(V, 1 - share[t], d_o + t * V, d_c + t * V);
    }
    s.trmm_tn(count, V, T(1), W, C, d_c, V, T(1), du, V);
    s.scale_rows(count, count, beta, W, C, X, C);
    s.solve_tn(count, V, X, C, du, V);
    if (d.d_v) add_rows(s, T(1), du, x.row(), first, count, key_head, value_dim, d.d_v);
    s.row_dots(count, V, du, V, c, V, dots);
    for (Size t = 0; t < count; ++t) {
      if (d.d_beta) d.d_beta(x.row(), first + t, head) -= dots[t];
      s.axpy(V, -beta[t], du + t * V, d_c + t * V);
    }

    s.row_dots(count, V, d_o, V, u, V, edge);
    s.row_dots(count, V, d_o, V, c, V, dots);
    s.row_dots(count, V, d_c, V, c, V, delta);
    for (Size t = 0; t < count; ++t) {
      edge[t] = share[t] * (1 - share[t]) * (edge[t] - dots[t]);
      delta[t] += edge[t];
    }
    s.gemm_nt(count, count, V, T(1), d_c, V, u, V, T(0), X, C);
    a->softmax_back(before(count), {}, true, logs, delta, S, W, X, C, nullptr);
    for (Size t = 0; t < count; ++t) X[t * C + t] = edge[t];
    s.trmm_nn(count, K, T(1), X, C, k, K, T(0), d_q, K);
    s.trmm_tn(count, K, T(1), X, C, q, K, T(1), d_k + (x.past + tile.begin) * K, K);
  }

  void older(const DeltaformerProblem<T>& p, int key_head, int r, Block tile, Block pairs) {
    Size ldk, ldu;
    const T* const key = contiguous(s, x.place(p.past_k, p.k, pairs.begin), pairs.count, key_head, K, k, &ldk);
    const T* const u = ahead.values_of(p, key_head, r, pairs, &ldu);
    const Size M = tile.count, N = pairs.count;
    s.gemm_nt(M, N, K, T(1), q, K, key, ldk, T(0), S, C);
    s.gemm_nt(M, N, V, T(1), d_c, V, u, ldu, T(0), X, C);
    a->softmax_back(MaskRange::everything(M, N), {}, true, ahead.log_sums(r, tile), delta, S, S, X, C, nullptr);
    s.gemm_tn(N, V, M, T(1), S, C, d_c, V, T(1), d_u + pairs.begin * V, V);
    s.gemm_tn(N, K, M, T(1), X, C, q, K, T(1), d_k + pairs.begin * K, K);
    s.gemm_nn(M, K, N, T(1), X, C, key, ldk, T(1), d_q, K);
  }

  const Simd<T>& s;
  const AttentionSimd<T>* a;
  int group;
  Size K, V;
  Forward<T> ahead;
  Layout x{};
  T *d_u, *d_k;  // [past + tokens, ..]
  T *q, *d_q, *k, *d_o, *d_c, *S, *W, *X, *beta, *delta, *edge, *dots;
};

template <class T>
Status check(const DeltaformerProblem<T>& p, bool backward, Workspace work, pairs::Sizes* sizes) noexcept {
  pairs::Largest most;
  if (const Status status = pairs::check_pairs(p, {pairs::kept(p.past_k), pairs::kept(p.past_u)}, &most);
      status != Status::ok)
    return status;
  if (most.tokens > 0 && (!p.q || !p.k || !p.v)) return Status::missing_input;
  *sizes = {p.heads, p.key_heads, p.key_dim, p.value_dim, most.tokens, most.past};
  return pairs::check_workspace(
      work, workspace_bytes<T>(p.heads, p.key_heads, p.key_dim, p.value_dim, most.tokens, most.past, backward));
}

}  // namespace

template <class T>
std::size_t workspace_bytes(int heads, int key_heads, int key_dim, int value_dim, std::ptrdiff_t longest,
                            std::ptrdiff_t past, bool backward) noexcept {
  const pairs::Sizes sizes{heads, key_heads, key_dim, value_dim, longest, past};
  if (backward) return pairs::bytes_of<Backward<T>, T>(sizes);
  static constexpr Simd<T> none{};
  Arena arena;
  Forward<T>(none, sizes, false, arena);
  return arena.bytes();
}

template <class T>
Status forward(const DeltaformerProblem<T>& p, const Simd<T>& s, Workspace work) noexcept {
  pairs::Sizes sizes;
  if (const Status status = check(p, false, work, &sizes); status != Status::ok) return status;
  if (!p.o && !p.u) return Status::ok;
  const FlushDenormals flush;
  Arena arena(work);
  Forward<T> run(s, sizes, false, arena);
  pairs::each_sequence(p, [&](std::size_t n) {
    const Layout x = pairs::layout_of(p, n);
    for (int h = 0; h < p.key_heads; ++h) {
      const int first = h * p.group();
      run.run(p, x, h, static_cast<bool>(p.o), [&](int slot, Block tile, const T* o) {
        unpack(o, x.row(), x.token(tile), tile.count, first + slot, p.value_dim, p.o);
      });
      for (int r = 0; p.u && r < p.group(); ++r)
        unpack(run.corrected(r, 0), x.row(), x.sequence.begin, x.tokens, first + r, p.value_dim, p.u);
    }
  });
  return Status::ok;
}

template <class T>
Status backward(const DeltaformerProblem<T>& p, const DeltaformerGradient<T>& d, const Simd<T>& s,
                Workspace work) noexcept {
  pairs::Sizes sizes;
  if (const Status status = check(p, true, work, &sizes); status != Status::ok) return status;
  if (d.d_o || d.d_u) pairs::each_key_head<Backward<T>>(p, d, sizes, s, work);
  return Status::ok;
}

#define TTR_INSTANTIATE(T)                                                                                    \
  template std::size_t workspace_bytes<T>(int, int, int, int, std::ptrdiff_t, std::ptrdiff_t, bool) noexcept; \
  template Status forward(const DeltaformerProblem<T>&, const Simd<T>&, Workspace) noexcept;                  \
  template Status backward(const DeltaformerProblem<T>&, const DeltaformerGradient<T>&, const Simd<T>&,       \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::deltaformer
