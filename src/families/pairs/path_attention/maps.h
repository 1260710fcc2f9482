// One block of pairs of PaTH attention: its transform (equations: path_attention.h) and the way back through it.
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/common/scratch.h"
#include "families/pairs/layout.h"
#include "families/pairs/path_attention/path_attention.h"

namespace ttr::families::path_attention {

using pairs::Block;
using pairs::Layout;
using pairs::Size;

constexpr Size C = pairs::block_size;

/// X_ij = 0 for j >= i
template <class T>
void clear_above(Size count, T* X) {
  for (Size i = 0; i < count; ++i) std::fill_n(X + i * C + i, count - i, T(0));
}

template <class T>
class Maps {
 public:
  Maps(const Simd<T>& simd, Size key_dim, bool backward, Arena& arena) : s(simd), K(key_dim) {
    for (T** piece : {&k, &w, &kt, &wt, &U, &Y, &spare}) *piece = arena.take<T>(C * K);
    for (T** piece : {&N, &L, &B, &R}) *piece = arena.take<T>(C * C);
    beta = arena.take<T>(C);
    if (!backward) return;
    for (T** piece : {&d_k, &d_w, &d_U}) *piece = arena.take<T>(C * K);
    for (T** piece : {&d_R, &d_B, &d_L}) *piece = arena.take<T>(C * C);
    for (T** piece : {&d_beta, &dots}) *piece = arena.take<T>(C);
  }

  /// The pairs of a block, and U. The oldest map of all stands between no query and no key: it becomes I.
  void load(const PathAttentionProblem<T>& p, const Layout& x, int key_head, Block block) {
    count = block.count;
    const auto steps = x.place(p.past_beta, p.beta, block.begin);
    pack(s, x.place(p.past_k, p.k, block.begin), count, key_head, K, k);
    pack(s, x.place(p.past_w, p.w, block.begin), count, key_head, K, w);
    for (Size j = 0; j < count; ++j) beta[j] = steps.view(steps.row, steps.at + j, key_head);
    if (block.begin == 0) std::fill_n(w, K, T(0)), beta[0] = 0;
    s.transpose(count, K, k, K, kt, C);
    s.transpose(count, K, w, K, wt, C);
    s.gemm_lower(count, K, T(1), w, K, wt, C, N, C);
    s.scale_rows(count, count, beta, N, C, L, C);
    s.gemm_lower(count, K, T(1), w, K, kt, C, B, C);
    clear_above(count, B);
    s.scale_rows(count, K, beta, w, K, U, K);
    s.solve_nn(count, K, L, C, U, K);
  }
  /// R, for the queries of the same tokens
  void own() {
    s.scale_rows(count, count, beta, B, C, R, C);
    s.solve_nn(count, count, L, C, R, C);
  }
  /// Y, for later queries (without its factor D)
  void later() {
    std::copy_n(w, count * K, Y);
    s.solve_tn(count, K, L, C, Y, K);
  }
  /// K~ [count, K] and, unless it is null, P [K, K]; after later()
  void carry(T* keys, T* P) const {
    s.scale_rows(count, K, beta, Y, K, spare, K);
    std::copy_n(k, count * K, keys);
    s.trmm_tn(count, K, T(-1), B, C, spare, K, T(1), keys, K);
    if (!P) return;
    s.gemm_tn(K, K, count, T(-1), w, K, U, K, T(0), P, K);
    for (Size i = 0; i < K; ++i) P[i * K + i] += 1;
  }
  /// E = tril(q W') for the block's own queries q [count, K]
  void meet(const T* q, T* E) const { s.gemm_lower(count, K, T(1), q, K, wt, C, E, C); }
  /// Their logits S [count, C], below and on the diagonal; after own()
  void own_logits(const T* q, const T* E, T* S) const {
    s.gemm_lower(count, K, T(1), q, K, kt, C, S, C);
    s.trmm_nn(count, count, T(-1), E, C, R, C, T(1), S, C);
  }
  /// They themselves at the start of the block
  void to_start(const T* q, const T* E, T* out) const {
    std::copy_n(q, count * K, out);
    s.trmm_nn(count, K, T(-1), E, C, U, K, T(1), out, K);
  }

  void clear_gradient() {
    for (T* piece : {d_k, d_w, d_U}) std::fill_n(piece, count * K, T(0));
    for (Size i = 0; i < count; ++i) std::fill_n(d_R + i * C, count, T(0));
    asked = false;
  }
  /// What own_logits and to_start (d_start, or null if nothing came from there) give back: d_q [count, K] = .., the
  /// rest is added up. d_S is 0 above the diagonal. d_E is scratch.
  void own_back(const T* q, const T* E, const T* d_S, const T* d_start, T* d_q, T* d_E) {
    asked = true;
    s.gemm_nt(count, count, count, T(-1), d_S, C, R, C, T(0), d_E, C);
    if (d_start) s.gemm_nt(count, count, K, T(-1), d_start, K, U, K, T(1), d_E, C);
    if (d_start) std::copy_n(d_start, count * K, d_q);
    s.trmm_nn(count, K, T(1), d_S, C, k, K, d_start ? T(1) : T(0), d_q, K);
    s.trmm_nn(count, K, T(1), d_E, C, w, K, T(1), d_q, K);
    s.trmm_tn(count, K, T(1), d_S, C, q, K, T(1), d_k, K);
    s.trmm_tn(count, K, T(1), d_E, C, q, K, T(1), d_w, K);
    s.trmm_tn(count, count, T(-1), E, C, d_S, C, T(1), d_R, C);
    if (d_start) s.trmm_tn(count, K, T(-1), E, C, d_start, K, T(1), d_U, K);
  }
  /// From all that has been added up, and from the gradients of K~ and P (null: none), d_k, d_w and d_beta. After
  /// load, and later() if there is d_keys.
  void back(const T* d_keys, const T* d_P) {
    for (Size i = 0; i < count; ++i) std::fill_n(d_B + i * C, count, T(0)), std::fill_n(d_L + i * C, count, T(0));
    std::fill_n(d_beta, count, T(0));
    if (d_P) {
      s.gemm_nn(count, K, K, T(-1), w, K, d_P, K, T(1), d_U, K);
      s.gemm_nt(count, K, K, T(-1), U, K, d_P, K, T(1), d_w, K);
    }
    if (d_keys) {
      s.axpy(count * K, T(1), d_keys, d_k);
      s.scale_rows(count, K, beta, Y, K, spare, K);
      s.gemm_nt(count, count, K, T(-1), spare, K, d_keys, K, T(1), d_B, C);
      s.trmm_nn(count, K, T(-1), B, C, d_keys, K, T(0), spare, K);
      add_dots(spare, Y);
      s.scale_rows(count, K, beta, spare, K, spare, K);
      s.solve_nn(count, K, L, C, spare, K);
      s.axpy(count * K, T(1), spare, d_w);
      s.gemm_nt(count, count, K, T(-1), Y, K, spare, K, T(1), d_L, C);
    }
    if (asked) {
      s.solve_tn(count, count, L, C, d_R, C);
      clear_above(count, d_R);
      s.gemm_nt(count, count, count, T(-1), d_R, C, R, C, T(1), d_L, C);
      s.row_dots(count, count, d_R, C, B, C, dots);
      s.axpy(count, T(1), dots, d_beta);
      for (Size i = 0; i < count; ++i) s.axpy(count, beta[i], d_R + i * C, d_B + i * C);
    }
    s.solve_tn(count, K, L, C, d_U, K);
    s.gemm_nt(count, count, K, T(-1), d_U, K, U, K, T(1), d_L, C);
    add_dots(d_U, w);
    for (Size i = 0; i < count; ++i) s.axpy(K, beta[i], d_U + i * K, d_w + i * K);

    for (T* piece : {d_L, d_B}) clear_above(count, piece);
    for (Size i = 0; i < count; ++i) d_beta[i] += s.dot(i, d_L + i * C, N + i * C);
    s.scale_rows(count, count, beta, d_L, C, d_L, C);
    s.trmm_nn(count, K, T(1), d_L, C, w, K, T(1), d_w, K);
    s.trmm_tn(count, K, T(1), d_L, C, w, K, T(1), d_w, K);
    s.trmm_nn(count, K, T(1), d_B, C, k, K, T(1), d_w, K);
    s.trmm_tn(count, K, T(1), d_B, C, w, K, T(1), d_k, K);
  }

  const T* keys_back() const { return d_k; }
  const T* maps_back() const { return d_w; }
  const T* steps_back() const { return d_beta; }

 private:
  void add_dots(const T* x, const T* y) {
    s.row_dots(count, K, x, K, y, K, dots);
    s.axpy(count, T(1), dots, d_beta);
  }

  const Simd<T>& s;
  Size K, count = 0;
  bool asked = false;  // by queries of the same tokens
  T *k, *w, *kt, *wt, *U, *Y, *spare, *N, *L, *B, *R, *beta;
  T *d_k = nullptr, *d_w = nullptr, *d_U = nullptr;
  T *d_R = nullptr, *d_B = nullptr, *d_L = nullptr, *d_beta = nullptr, *dots = nullptr;
};

}  // namespace ttr::families::path_attention
