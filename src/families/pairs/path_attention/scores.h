// Logits of PaTH attention for the stream (pairs/stream.h): queries are carried from block to block, newest to oldest.
// Equations: path_attention.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "families/pairs/path_attention/maps.h"
#include "families/pairs/stream.h"

namespace ttr::families::path_attention {

template <class T>
class Scores {
 public:
  using Problem = PathAttentionProblem<T>;
  static constexpr Size heads_at_once = 1;  // each carries a query of its own along the pairs

  Scores(const Simd<T>& simd, const pairs::Sizes& sizes, Arena& arena)
      : s(simd), K(sizes.key_dim), maps(simd, sizes.key_dim, false, arena) {
    for (T** piece : {&keys, &kt, &moved}) *piece = arena.take<T>(C * K);
    E = arena.take<T>(C * C), P = arena.take<T>(K * K);
  }

  static T query_scale(const Problem& p) { return p.scale; }
  static T gate_scale(const Problem& p) { return p.scale; }
  static bool normalise(const Problem&) { return true; }
  static const typename AttentionSimd<T>::Polynomial* polynomial(const Problem&) { return nullptr; }
  static T eps(const Problem&) { return T(0); }
  static std::pair<T, T> start(const Problem&, int) { return {-std::numeric_limits<T>::infinity(), T(0)}; }

  void open(const Problem& p, const Layout& x, int key_head_, Block block) {
    key_head = key_head_, steps = x.place(p.past_beta, p.beta, block.begin);
    key = contiguous(s, x.place(p.past_k, p.k, block.begin), block.count, key_head, K, keys, &ldk);
    map = contiguous(s, x.place(p.past_w, p.w, block.begin), block.count, key_head, K, moved, &ldw);
  }
  /// The query meets a pair's key, then its map.
  void one(const Problem&, int, Block block, T* query, T* S) const {
    for (Size j = block.count; j-- > 0;) {
      S[j] = s.dot(K, query, key + j * ldk);
      if (block.begin + j == 0) break;
      const T step = steps.view(steps.row, steps.at + j, key_head);
      s.axpy(K, -step * s.dot(K, query, map + j * ldw), map + j * ldw, query);
    }
  }

  void load(const Problem& p, const Layout& x, int key_head_, Block block, const pairs::Tiles& tiles) {
    maps.load(p, x, key_head_, block);
    if (tiles.own) maps.own();
    if (!tiles.later) return;
    maps.later();
    maps.carry(keys, block.begin > 0 ? P : nullptr);
    s.transpose(block.count, K, keys, K, kt, C);
  }
  void tile(const Problem&, int, bool own, bool more, const MaskRange& visible, T* queries, T* S) const {
    const Size M = visible.M;
    if (own) {
      maps.meet(queries, E);
      maps.own_logits(queries, E, S);
      if (more) maps.to_start(queries, E, moved);
    } else {
      s.gemm_nn(M, visible.N, K, T(1), queries, K, kt, C, T(0), S, C);
      if (more) s.gemm_nn(M, K, K, T(1), queries, K, P, K, T(0), moved, K);
    }
    if (more) std::copy_n(moved, M * K, queries);
  }

 private:
  const Simd<T>& s;
  Size K, ldk = 0, ldw = 0;
  Maps<T> maps;
  int key_head = 0;
  const T *key = nullptr, *map = nullptr;  // of a block, for one query
  pairs::Place<View<const T, 3>> steps{};
  T *keys, *kt, *moved, *E, *P;
};

template <class T>
using Stream = pairs::Stream<T, Scores<T>>;

/// Everything that does not depend on the numbers in a call, and what scratch is laid out for.
template <class T>
Status check(const PathAttentionProblem<T>&, bool backward, Workspace, pairs::Sizes*) noexcept;

/// Bytes the backward pass takes from a workspace.
template <class T>
std::size_t backward_bytes(const pairs::Sizes&);

}  // namespace ttr::families::path_attention
