// Logits of softmax attention for the stream (pairs/stream.h): scale q.k, or with a bandwidth -|q - k|^2 / h.
#pragma once

#include <cstddef>
#include <limits>
#include <utility>

#include "families/pairs/attention/attention.h"
#include "families/pairs/stream.h"

namespace ttr::families::attention {

using pairs::Block;
using pairs::Layout;
using pairs::Size;

template <class T>
class Scores {
 public:
  using Problem = AttentionProblem<T>;
  static constexpr Size heads_at_once = MaskRange::no_limit;

  Scores(const Simd<T>& simd, const pairs::Sizes& sizes, Arena& arena)
      : s(simd), a(simd.name ? &attention_simd(simd) : nullptr), K(sizes.key_dim), C(Layout::block_of(sizes.window)) {
    k = arena.take<T>(C * K), kt = arena.take<T>(K * C);
  }

  static T query_scale(const Problem& p) { return p.bandwidth ? T(1) : p.scale; }
  static T gate_scale(const Problem&) { return T(1); }
  static bool normalise(const Problem& p) { return p.normalise; }
  static const typename AttentionSimd<T>::Polynomial* polynomial(const Problem& p) {
    return p.polynomial ? &p.weight : nullptr;
  }
  static T eps(const Problem& p) { return p.eps; }
  /// A sink is a pair with value 0.
  static std::pair<T, T> start(const Problem& p, int head) {
    constexpr T none = -std::numeric_limits<T>::infinity();
    if (!p.normalise || p.polynomial) return {T(0), T(0)};
    const T sink = p.sink ? p.sink(head) : none;
    return {sink, sink != none ? T(1) : T(0)};
  }

  void open(const Problem& p, const Layout& x, int key_head, Block block) {
    key = pairs::rows_at(s, x, p.past_k, p.compact_k, p.k, block, key_head, K, k, &ld);
  }
  void one(const Problem& p, int head, Block block, const T* query, T* S) const {
    a->scores(block.count, K, static_cast<bool>(p.bandwidth), p.bandwidth ? -1 / p.bandwidth(head) : T(1), key, ld,
              query, S);
  }

  /// Logits of one query of the heads of some key heads, S [heads, C], from keys of the past; `values` are read next.
  void kept(const Problem& p, const Layout& x, int key_head, int key_heads, Block block, const T* queries,
            const KeptSimd::Rows& values, T* S) const {
    const int group = p.group();
    kept_simd(s).scores(pairs::kept_rows(x, p.past_k, p.compact_k, block, key_head, key_heads), group,
                        static_cast<bool>(p.bandwidth), queries, S, C, values);
    for (int r = 0; p.bandwidth && r < key_heads * group; ++r)
      s.scale(block.count, -1 / p.bandwidth(key_head * group + r), S + r * C, S + r * C);
  }

  void load(const Problem& p, const Layout& x, int key_head, Block block, const pairs::Tiles&) {
    open(p, x, key_head, block);
    s.transpose(block.count, K, key, ld, kt, C);
  }
  void tile(const Problem& p, int head, bool own, bool, const MaskRange& visible, const T* queries, T* S) const {
    logits(s, a, p, head, own, visible, K, queries, kt, C, S);
  }

  /// S [M, N] from queries [M, K] and keys as columns [K, N]
  static void logits(const Simd<T>& s, const AttentionSimd<T>* a, const Problem& p, int head, bool own,
                     const MaskRange& visible, Size K, const T* queries, const T* columns, Size C, T* S) {
    if (p.bandwidth) a->distances(visible.M, visible.N, K, -1 / p.bandwidth(head), queries, K, columns, C, S, C);
    else if (own) s.gemm_lower(visible.M, K, T(1), queries, K, columns, C, S, C);
    else s.gemm_nn(visible.M, visible.N, K, T(1), queries, K, columns, C, T(0), S, C);
  }

 private:
  const Simd<T>& s;
  const AttentionSimd<T>* a;
  Size K, C, ld = 0;
  T *k, *kt;
  const T* key = nullptr;
};

template <class T>
using Stream = pairs::Stream<T, Scores<T>>;

/// Everything that does not depend on the numbers in a call, and what scratch is laid out for.
template <class T>
Status check(const AttentionProblem<T>&, bool backward, Workspace, pairs::Sizes*) noexcept;

/// Bytes the backward pass takes from a workspace.
template <class T>
std::size_t backward_bytes(const pairs::Sizes&, int workers);

}  // namespace ttr::families::attention
