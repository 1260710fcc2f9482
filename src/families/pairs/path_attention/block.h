// One block of pairs of PaTH attention: its transform (equations: path_attention.h) and the way back through it; and
// the streaming pass that both directions make.
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/pairs/attention/tiles.h"
#include "families/pairs/path_attention/path_attention.h"
#include "families/common/scratch.h"
#include "families/pairs/attention/attention_simd.h"

namespace ttr::families::path_attention {

using attention::Layout;
using attention::place;
using Size = std::ptrdiff_t;
using Run = attention::Block;  // of positions, or of tokens

constexpr Size C = 64;

template <class T>
Layout layout_of(const PathAttentionProblem<T>& p, const Sequence& n, Size lane) {
  const Size tokens = n.end - n.begin, past = p.past_count ? static_cast<Size>(p.past_count[lane]) : 0;
  return {past, tokens, tokens, 0, C, true};
}

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

  /// The pairs of `run`, and U. The oldest map of all stands between no query and no key: it becomes I.
  void load(const PathAttentionProblem<T>& p, const Layout& x, const Sequence& n, Size lane, int key_head, Run run) {
    const int dim = static_cast<int>(K);
    count = run.count;
    const auto keys = place(x, n, lane, p.past_k, p.k, run.begin), maps = place(x, n, lane, p.past_w, p.w, run.begin);
    const auto steps = place(x, n, lane, p.past_beta, p.beta, run.begin);
    pack(s, keys.view, keys.row, keys.at, count, key_head, dim, T(1), k);
    pack(s, maps.view, maps.row, maps.at, count, key_head, dim, T(1), w);
    for (Size j = 0; j < count; ++j) beta[j] = steps.view(steps.row, steps.at + j, key_head);
    if (run.begin == 0) std::fill_n(w, K, T(0)), beta[0] = 0;
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

/// What the gates of a block add to logits, all of it times the scale of the problem.
template <class T>
double scaled_suffix(const Simd<T>& s, const PathAttentionProblem<T>& p, const Layout& x, const Sequence& n,
                     Size lane, Run pairs, int head, T* sums) {
  const double sum = attention::suffix_gates(place(x, n, lane, p.past_g, p.g, pairs.begin), pairs.count, head, sums);
  s.scale(pairs.count, p.scale, sums, sums);
  return sum;
}
template <class T>
void scaled_prefix(const Simd<T>& s, const PathAttentionProblem<T>& p, const Sequence& n, Run tokens, int head,
                   double between, T* sums) {
  attention::prefix_gates(p.g, n.row, n.begin + tokens.begin, tokens.count, head, between, sums);
  s.scale(tokens.count, p.scale, sums, sums);
}
template <class T>
void scaled_own(const Simd<T>& s, const PathAttentionProblem<T>& p, const Sequence& n, Run tokens, int head, T* D) {
  attention::own_gates(p.g, n.row, n.begin + tokens.begin, tokens.count, head, D, C);
  for (Size i = 0; i < tokens.count; ++i) s.scale(i + 1, p.scale, D + i * C, D + i * C);
}

/// The streaming pass over one key head of one sequence, for forward, and for backward, which needs lse and o again.
template <class T>
class Stream {
 public:
  Stream(const Simd<T>& simd, int heads_of_group, int key_dim, int value_dim, Arena& arena);

  /// each(head, tokens, o [count, V], lse [count]) for the tokens of a tile; o is null unless `outputs`.
  template <class Each>
  void run(const PathAttentionProblem<T>& p, const Sequence& n, Size lane, int key_head, bool outputs, Each&& each) {
    x = layout_of(p, n, lane);
    const auto hand_over = [&](int head, Run tokens, Size lead) {
      finish(lead, tokens.count, outputs);
      each(head, tokens, outputs ? acc + lead * V : nullptr, m + lead);
    };
    if (x.tokens == 1) {
      one_query(p, n, lane, key_head, outputs);
      for (int r = 0; r < group; ++r) hand_over(key_head * group + r, {0, 1}, r);
      return;
    }
    for (int h = 0; h < group; h += together) {
      const int heads = std::min(together, group - h);
      for (Size i = 0; i < x.tiles(); i += tiles) {
        const Size count = std::min(tiles, x.tiles() - i);
        many_queries(p, n, lane, key_head, key_head * group + h, heads, i, count, outputs);
        for (Size t = 0; t < count; ++t)
          for (int r = 0; r < heads; ++r) hand_over(key_head * group + h + r, x.tile(i + t), (t * heads + r) * C);
      }
    }
  }

 private:
  void one_query(const PathAttentionProblem<T>&, const Sequence&, Size lane, int key_head, bool outputs);
  void many_queries(const PathAttentionProblem<T>&, const Sequence&, Size lane, int key_head, int first_head,
                    int heads, Size first_tile, Size count, bool outputs);
  void tile(const PathAttentionProblem<T>&, const Sequence&, Run tokens, Run pairs, int head, int slot, Size lead,
            double* gates_between, bool outputs);
  void start(Size lead, Size count, bool outputs);
  void finish(Size lead, Size count, bool outputs);

  const Simd<T>& s;
  const AttentionSimd<T>* a;
  int group, together;  // heads that read one key head; those of them that go side by side
  Size K, V, tiles;     // tiles that go side by side
  Maps<T> maps;
  Layout x{};
  T *q, *acc, *m, *l;  // [rows, ..], rows ordered tile, head, token; finish turns m into lse
  T *keys, *kt, *P, *v, *S, *E, *D, *moved, *factor, *row, *suffix, *answer;
  double *between, *total;
};

extern template class Stream<float>;
extern template class Stream<double>;

/// Bytes the backward pass takes from a workspace.
template <class T>
std::size_t backward_bytes(int heads, int key_heads, int key_dim, int value_dim, Size longest, Size past);

/// Everything that does not depend on the numbers in a call.
template <class T>
Status check(const PathAttentionProblem<T>&, bool backward, Workspace) noexcept;

}  // namespace ttr::families::path_attention
