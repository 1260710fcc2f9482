// Backward of PaTH attention, tile of queries by tile from the newest to the oldest: down to the oldest block with
// the queries, up again with their gradients. What a block gets from all tiles adds up in scratch; it is complete
// when its own tile is done. Equations: path_attention.h.
#include <cmath>
#include <limits>
#include <utility>

#include "families/pairs/path_attention/block.h"
#include "simd/denormals.h"

namespace ttr::families::path_attention {
namespace {

template <class T>
class Backward {
 public:
  Backward(const Simd<T>& simd, int heads_of_group, int key_dim, int value_dim, Size longest, Size past, Arena& arena)
      : s(simd),
        a(simd.name ? &attention_simd(simd) : nullptr),
        group(heads_of_group),
        K(key_dim),
        V(value_dim),
        stream(simd, heads_of_group, key_dim, value_dim, arena),
        maps(simd, key_dim, true, arena) {
    const Size most = (longest + C - 1) / C + (past + C - 1) / C;
    for (T** piece : {&keys, &d_keys, &X}) *piece = arena.take<T>(most * C * K);
    for (T** piece : {&P, &d_P}) *piece = arena.take<T>(most * K * K);
    d_v = arena.take<T>(most * C * V);
    suffix = arena.take<T>(group * most * C), total = arena.take<double>(group * most);
    between = arena.take<double>(most), net = arena.take<double>(group * (longest + past));
    for (T** piece : {&lse, &delta}) *piece = arena.take<T>(group * longest);
    for (T** piece : {&q, &d_q, &d_x, &spare}) *piece = arena.take<T>(C * K);
    for (T** piece : {&v, &d_o}) *piece = arena.take<T>(C * V);
    for (T** piece : {&S, &d_S, &E, &D}) *piece = arena.take<T>(C * C);
    row = arena.take<T>(C);
    for (double** piece : {&row_sums, &column_sums}) *piece = arena.take<double>(C);
  }

  void run(const PathAttentionProblem<T>& p, const PathAttentionGradient<T>& d, const Sequence& n, Size lane,
           int key_head) {
    x = layout_of(p, n, lane);
    blocks = x.past_blocks() + x.tiles();
    gates = p.g && (d.d_g || d.d_past_g);
    statistics(p, d, n, lane, key_head);
    prepare(p, n, lane, key_head);
    for (Size i = x.tiles(); i-- > 0;) {
      const Size own = x.past_blocks() + i;
      maps.load(p, x, n, lane, key_head, x.block(own));
      maps.own();
      maps.clear_gradient();
      for (int r = 0; r < group; ++r) tile(p, d, n, lane, key_head, r, i);
      hand_over(d, n, lane, key_head, own);
    }
    const bool wanted = d.d_past_k || d.d_past_w || d.d_past_beta || d.d_past_v;
    for (Size b = wanted ? x.past_blocks() : 0; b-- > 0;) {
      maps.load(p, x, n, lane, key_head, x.block(b));
      maps.clear_gradient();
      hand_over(d, n, lane, key_head, b);
    }
    for (int r = 0; gates && r < group; ++r)
      gates_back(p.scale, d, n, lane, key_head * group + r, net + r * (x.past + x.tokens));
  }

 private:
  // lse and delta of every query
  void statistics(const PathAttentionProblem<T>& p, const PathAttentionGradient<T>& d, const Sequence& n, Size lane,
                  int key_head) {
    const int dim = static_cast<int>(V);
    const auto keep = [&](int head, Run tokens, const T* o, const T* logs) {
      const Size first = n.begin + tokens.begin, to = (head - key_head * group) * x.tokens + tokens.begin;
      std::copy_n(logs, tokens.count, lse + to);
      if (d.d_o) pack(s, d.d_o, n.row, first, tokens.count, head, dim, T(1), d_o);
      if (d.d_o) s.row_dots(tokens.count, V, d_o, V, o, V, delta + to);
      else std::fill_n(delta + to, tokens.count, T(0));
      for (Size i = 0; d.d_lse && i < tokens.count; ++i) delta[to + i] -= d.d_lse(n.row, first + i, head);
    };
    if (!d.o || !d.lse) return stream.run(p, n, lane, key_head, static_cast<bool>(d.d_o), keep);
    for (int head = key_head * group; head < (key_head + 1) * group; ++head)
      for (Size i = 0; i < x.tiles(); ++i) {
        const Run tokens = x.tile(i);
        pack(s, d.o, n.row, n.begin + tokens.begin, tokens.count, head, dim, T(1), v);
        for (Size t = 0; t < tokens.count; ++t) row[t] = d.lse(n.row, n.begin + tokens.begin + t, head);
        keep(head, tokens, v, row);
      }
  }

  // K~, P and gates of every block; sums start at zero.
  void prepare(const PathAttentionProblem<T>& p, const Sequence& n, Size lane, int key_head) {
    for (Size b = 0; b < blocks; ++b) {
      if (b + 1 < blocks) {
        maps.load(p, x, n, lane, key_head, x.block(b));
        maps.later();
        maps.carry(keys + b * C * K, P + b * K * K);
      }
      for (int r = 0; p.g && r < group; ++r)
        total[r * blocks + b] =
            scaled_suffix(s, p, x, n, lane, x.block(b), key_head * group + r, suffix + (r * blocks + b) * C);
    }
    std::fill_n(d_keys, blocks * C * K, T(0));
    std::fill_n(d_P, blocks * K * K, T(0));
    std::fill_n(d_v, blocks * C * V, T(0));
    if (gates) std::fill_n(net, group * (x.past + x.tokens), 0.0);
  }

  void tile(const PathAttentionProblem<T>& p, const PathAttentionGradient<T>& d, const Sequence& n, Size lane,
            int key_head, int r, Size index) {
    const int key_dim = static_cast<int>(K), value_dim = static_cast<int>(V), head = key_head * group + r;
    const Run tokens = x.tile(index);
    const Size own = x.past_blocks() + index, M = tokens.count, first = n.begin + tokens.begin;
    pack(s, p.q, n.row, first, M, head, key_dim, p.scale, q);
    if (d.d_o) pack(s, d.d_o, n.row, first, M, head, value_dim, T(1), d_o);
    maps.meet(q, E);

    // Down: X_b are the queries at the end of block b. Behind a closed gate nothing is seen.
    Size oldest = own;
    double sum = 0;
    while (oldest > 0) {
      const Size b = oldest - 1;
      between[b] = sum;
      if (p.g) {
        sum += total[r * blocks + b];
        if (static_cast<double>(p.g(n.row, first, head)) + between[b] == -std::numeric_limits<double>::infinity())
          break;
      }
      if (oldest == own) maps.to_start(q, E, X + b * C * K);
      else s.gemm_nn(M, K, K, T(1), X + oldest * C * K, K, P + oldest * K * K, K, T(0), X + b * C * K, K);
      oldest = b;
    }

    // Up: d_x is the gradient of the queries at the start of the next block.
    for (Size b = oldest; b < own; ++b) {
      const Run pairs = x.block(b);
      const T *const queries = X + b * C * K, *const key = keys + b * C * K;
      typename AttentionSimd<T>::Bias bias;
      if (p.g) {
        scaled_prefix(s, p, n, tokens, head, between[b], row);
        bias = {suffix + (r * blocks + b) * C, 0, row};
      }
      s.gemm_nt(M, pairs.count, K, T(1), queries, K, key, K, T(0), S, C);
      weights_back(p, d, n, lane, key_head, r, tokens, pairs, bias);
      if (d.d_o) s.gemm_tn(pairs.count, V, M, T(1), S, C, d_o, V, T(1), d_v + b * C * V, V);
      s.gemm_tn(pairs.count, K, M, T(1), d_S, C, queries, K, T(1), d_keys + b * C * K, K);
      if (b > oldest) {
        s.gemm_tn(K, K, M, T(1), queries, K, d_x, K, T(1), d_P + b * K * K, K);
        s.gemm_nt(M, K, K, T(1), d_x, K, P + b * K * K, K, T(0), spare, K);
        std::swap(d_x, spare);
      }
      s.gemm_nn(M, K, pairs.count, T(1), d_S, C, key, K, b > oldest ? T(1) : T(0), d_x, K);
    }

    typename AttentionSimd<T>::Bias bias;
    if (p.g) {
      scaled_own(s, p, n, tokens, head, D);
      bias = {D, C, nullptr};
    }
    maps.own_logits(q, E, S);
    weights_back(p, d, n, lane, key_head, r, tokens, x.block(own), bias);
    if (d.d_o) s.trmm_tn(M, V, T(1), S, C, d_o, V, T(1), d_v + own * C * V, V);
    maps.own_back(q, E, d_S, oldest < own ? d_x : nullptr, d_q, S);
    if (d.d_q) add_rows(s, p.scale, d_q, n.row, first, M, head, key_dim, d.d_q);
  }

  // From logits in S: weights in S, gradients of the logits in d_S, and what these add up to for the gates.
  void weights_back(const PathAttentionProblem<T>& p, const PathAttentionGradient<T>& d, const Sequence& n, Size lane,
                    int key_head, int r, Run tokens, Run pairs, const typename AttentionSimd<T>::Bias& bias) {
    const Size at = r * x.tokens + tokens.begin;
    if (d.d_o) {
      const auto values = place(x, n, lane, p.past_v, p.v, pairs.begin);
      Size ld;
      const T* const value =
          contiguous(s, values.view, values.row, values.at, pairs.count, key_head, static_cast<int>(V), v, &ld);
      s.gemm_nt(tokens.count, pairs.count, V, T(1), d_o, V, value, ld, T(0), d_S, C);
    } else {
      for (Size i = 0; i < tokens.count; ++i) std::fill_n(d_S + i * C, pairs.count, T(0));
    }
    a->softmax_back(x.template sight<T>(tokens, pairs), bias, true, lse + at, delta + at, S, S, d_S, C, nullptr);
    if (!gates) return;
    std::fill_n(row_sums, tokens.count, 0.0);
    std::fill_n(column_sums, pairs.count, 0.0);
    a->add_sums(tokens.count, pairs.count, d_S, C, row_sums, column_sums);
    double* const sums = net + r * (x.past + x.tokens);
    for (Size i = 0; i < tokens.count; ++i) sums[x.past + tokens.begin + i] += row_sums[i];
    for (Size j = 0; j < pairs.count; ++j) sums[pairs.begin + j] -= column_sums[j];
  }

  // A block to which all queries have added.
  void hand_over(const PathAttentionGradient<T>& d, const Sequence& n, Size lane, int key_head, Size b) {
    const int key_dim = static_cast<int>(K), value_dim = static_cast<int>(V);
    const Run pairs = x.block(b);
    const bool carried = b + 1 < blocks;
    if (carried) maps.later();
    maps.back(carried ? d_keys + b * C * K : nullptr, carried && b > 0 ? d_P + b * K * K : nullptr);
    const auto to_k = place(x, n, lane, d.d_past_k, d.d_k, pairs.begin);
    const auto to_w = place(x, n, lane, d.d_past_w, d.d_w, pairs.begin);
    const auto to_v = place(x, n, lane, d.d_past_v, d.d_v, pairs.begin);
    const auto to_beta = place(x, n, lane, d.d_past_beta, d.d_beta, pairs.begin);
    if (to_k.view) add_rows(s, T(1), maps.keys_back(), to_k.row, to_k.at, pairs.count, key_head, key_dim, to_k.view);
    if (to_v.view) add_rows(s, T(1), d_v + b * C * V, to_v.row, to_v.at, pairs.count, key_head, value_dim, to_v.view);
    if (to_w.view) add_rows(s, T(1), maps.maps_back(), to_w.row, to_w.at, pairs.count, key_head, key_dim, to_w.view);
    for (Size j = 0; to_beta.view && j < pairs.count; ++j)
      to_beta.view(to_beta.row, to_beta.at + j, key_head) += maps.steps_back()[j];
  }

  // The oldest gate has no pair before it.
  void gates_back(T scale, const PathAttentionGradient<T>& d, const Sequence& n, Size lane, int head,
                  const double* sums) const {
    double sum = 0;
    for (Size i = x.past + x.tokens; --i > 0;) {
      sum += sums[i];
      const auto to = place(x, n, lane, d.d_past_g, d.d_g, i);
      if (to.view) to.view(to.row, to.at, head) += static_cast<T>(static_cast<double>(scale) * sum);
    }
  }

  const Simd<T>& s;
  const AttentionSimd<T>* a;
  int group;
  Size K, V, blocks = 0;
  bool gates = false;
  Stream<T> stream;
  Maps<T> maps;
  Layout x{};
  T *keys, *d_keys, *X, *d_v;  // [blocks, C, ..]; X: the queries of one tile and head at the end of every block
  T *P, *d_P;                  // [blocks, K, K]
  T* suffix;                   // [group, blocks, C]
  double *total, *between;     // gates of a block; those between a block and the tile
  double* net;                 // [group, pairs] rowsum - colsum of the gradients of logits
  T *lse, *delta;              // [group, tokens]
  T *q, *d_q, *d_x, *spare, *v, *d_o, *S, *d_S, *E, *D, *row;
  double *row_sums, *column_sums;
};

}  // namespace

template <class T>
std::size_t backward_bytes(int heads, int key_heads, int key_dim, int value_dim, Size longest, Size past) {
  static constexpr Simd<T> none{};
  Arena arena;
  Backward<T>(none, heads / key_heads, key_dim, value_dim, longest, past, arena);
  return arena.bytes();
}

template <class T>
Status backward(const PathAttentionProblem<T>& p, const PathAttentionGradient<T>& d, const Simd<T>& s,
                Workspace work) noexcept {
  if (const Status status = check(p, true, work); status != Status::ok) return status;
  if (!d.d_o && !d.d_lse) return Status::ok;
  const FlushDenormals flush;
  Size lane = 0;
  for (const Sequence& n : p.sequences) {
    Arena arena(work);
    const Layout x = layout_of(p, n, lane);
    if (x.tokens > 0) {
      Backward<T> run(s, p.heads / p.key_heads, p.key_dim, p.value_dim, x.tokens, x.past, arena);
      for (int h = 0; h < p.key_heads; ++h) run.run(p, d, n, lane, h);
    }
    ++lane;
  }
  return Status::ok;
}

#define TTR_INSTANTIATE(T)                                                                                  \
  template std::size_t backward_bytes<T>(int, int, int, int, Size, Size);                                   \
  template Status backward(const PathAttentionProblem<T>&, const PathAttentionGradient<T>&, const Simd<T>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::path_attention
