// Backward of PaTH attention, tile of queries by tile from the newest to the oldest: down to the oldest block with
// the queries, up again with their gradients. What a block gets from all tiles adds up in scratch; it is complete
// when its own tile is done. Equations: path_attention.h.
#include <cmath>
#include <limits>
#include <utility>

#include "families/pairs/path_attention/scores.h"

namespace ttr::families::path_attention {
namespace {

template <class T>
class Backward {
 public:
  Backward(const Simd<T>& simd, const pairs::Sizes& sizes, Arena& arena)
      : s(simd),
        a(simd.name ? &attention_simd(simd) : nullptr),
        group(sizes.group()),
        K(sizes.key_dim),
        V(sizes.value_dim),
        stream(simd, sizes, arena),
        maps(simd, sizes.key_dim, true, arena),
        statistics(simd, sizes, arena),
        gate_sums(a, group, C, sizes.longest + sizes.past, arena) {
    const Size most = (sizes.longest + C - 1) / C + (sizes.past + C - 1) / C;
    for (T** piece : {&keys, &d_keys, &X}) *piece = arena.take<T>(most * C * K);
    for (T** piece : {&P, &d_P}) *piece = arena.take<T>(most * K * K);
    d_v = arena.take<T>(most * C * V);
    suffix = arena.take<T>(group * most * C), total = arena.take<double>(group * most);
    between = arena.take<double>(most);
    for (T** piece : {&q, &d_q, &d_x, &spare}) *piece = arena.take<T>(C * K);
    for (T** piece : {&v, &d_o}) *piece = arena.take<T>(C * V);
    for (T** piece : {&S, &d_S, &E, &D}) *piece = arena.take<T>(C * C);
    row = arena.take<T>(C);
  }

  void run(const PathAttentionProblem<T>& p, const PathAttentionGradient<T>& d, const Layout& sequence,
           int key_head) {
    x = sequence;
    blocks = x.past_blocks() + x.tiles();
    gates = p.g && (d.d_g || d.d_past_g);
    stream.run(p, x, key_head, 1, true, [&](int head, Block tokens, const T* o, const T* logs) {
      statistics.keep(x, head, tokens, o, logs, d.d_o, {}, d_o);
    });
    prepare(p, key_head);
    for (Size i = x.tiles(); i-- > 0;) {
      const Size own = x.past_blocks() + i;
      maps.load(p, x, key_head, x.block(own));
      maps.own();
      maps.clear_gradient();
      for (int r = 0; r < group; ++r) tile(p, d, key_head, r, i);
      emit(d, key_head, own);
    }
    const bool wanted = d.d_past_k || d.d_past_w || d.d_past_beta || d.d_past_v;
    for (Size b = wanted ? x.past_blocks() : 0; b-- > 0;) {
      maps.load(p, x, key_head, x.block(b));
      maps.clear_gradient();
      emit(d, key_head, b);
    }
    for (int r = 0; gates && r < group; ++r) gate_sums.back(x, r, key_head * group + r, p.scale, d.d_past_g, d.d_g);
  }

 private:
  // K~, P and gates of every block; sums start at zero.
  void prepare(const PathAttentionProblem<T>& p, int key_head) {
    for (Size b = 0; b < blocks; ++b) {
      if (b + 1 < blocks) {
        maps.load(p, x, key_head, x.block(b));
        maps.later();
        maps.carry(keys + b * C * K, P + b * K * K);
      }
      for (int r = 0; p.g && r < group; ++r)
        total[r * blocks + b] = suffix_gates(s, p.scale, x.place(p.past_g, p.g, x.block(b).begin), x.block(b).count,
                                             key_head * group + r, suffix + (r * blocks + b) * C);
    }
    std::fill_n(d_keys, blocks * C * K, T(0));
    std::fill_n(d_P, blocks * K * K, T(0));
    std::fill_n(d_v, blocks * C * V, T(0));
    if (gates) gate_sums.clear(x, group);
  }

  void tile(const PathAttentionProblem<T>& p, const PathAttentionGradient<T>& d, int key_head, int r, Size index) {
    const int key_dim = static_cast<int>(K), value_dim = static_cast<int>(V), head = key_head * group + r;
    const Block tokens = x.tile(index);
    const Size own = x.past_blocks() + index, M = tokens.count, first = x.token(tokens);
    pack(s, p.q, x.row(), first, M, head, key_dim, p.scale, q);
    pack(s, d.d_o, x.row(), first, M, head, value_dim, T(1), d_o);
    maps.meet(q, E);

    // Down: X_b are the queries at the end of block b. Behind a closed gate nothing is seen.
    Size oldest = own;
    double sum = 0;
    while (oldest > 0) {
      const Size b = oldest - 1;
      between[b] = sum;
      if (p.g) {
        sum += total[r * blocks + b];
        if (static_cast<double>(p.g(x.row(), first, head)) + between[b] == -std::numeric_limits<double>::infinity())
          break;
      }
      if (oldest == own) maps.to_start(q, E, X + b * C * K);
      else s.gemm_nn(M, K, K, T(1), X + oldest * C * K, K, P + oldest * K * K, K, T(0), X + b * C * K, K);
      oldest = b;
    }

    // Up: d_x is the gradient of the queries at the start of the next block.
    for (Size b = oldest; b < own; ++b) {
      const Block pairs = x.block(b);
      const T *const queries = X + b * C * K, *const key = keys + b * C * K;
      typename AttentionSimd<T>::Bias bias;
      if (p.g) {
        prefix_gates(s, p.scale, p.g, x, tokens, head, between[b], row);
        bias = {suffix + (r * blocks + b) * C, 0, row};
      }
      s.gemm_nt(M, pairs.count, K, T(1), queries, K, key, K, T(0), S, C);
      weights_back(p, key_head, r, tokens, pairs, bias);
      s.gemm_tn(pairs.count, V, M, T(1), S, C, d_o, V, T(1), d_v + b * C * V, V);
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
      own_gates(s, p.scale, p.g, x, tokens, head, D, C);
      bias = {D, C, nullptr};
    }
    maps.own_logits(q, E, S);
    weights_back(p, key_head, r, tokens, x.block(own), bias);
    s.trmm_tn(M, V, T(1), S, C, d_o, V, T(1), d_v + own * C * V, V);
    maps.own_back(q, E, d_S, oldest < own ? d_x : nullptr, d_q, S);
    if (d.d_q) add_rows(s, p.scale, d_q, x.row(), first, M, head, key_dim, d.d_q);
  }

  // From logits in S: weights in S, gradients of the logits in d_S, and what these add up to for the gates.
  void weights_back(const PathAttentionProblem<T>& p, int key_head, int r, Block tokens, Block pairs,
                    const typename AttentionSimd<T>::Bias& bias) {
    const Size at = statistics.at(x, r, tokens);
    Size ld;
    const T* const value = contiguous(s, x.place(p.past_v, p.v, pairs.begin), pairs.count, key_head, V, v, &ld);
    s.gemm_nt(tokens.count, pairs.count, V, T(1), d_o, V, value, ld, T(0), d_S, C);
    a->softmax_back(x.visible(tokens, pairs), bias, true, statistics.lse + at, statistics.delta + at, S, S, d_S, C,
                    nullptr);
    if (!gates) return;
    gate_sums.sum(x, tokens, pairs, d_S, C);
    gate_sums.add(x, r, tokens, pairs);
  }

  // A block to which all queries have added.
  void emit(const PathAttentionGradient<T>& d, int key_head, Size b) {
    const Block pairs = x.block(b);
    const bool carried = b + 1 < blocks;
    if (carried) maps.later();
    maps.back(carried ? d_keys + b * C * K : nullptr, carried && b > 0 ? d_P + b * K * K : nullptr);
    add_rows(s, maps.keys_back(), pairs.count, key_head, K, x.place(d.d_past_k, d.d_k, pairs.begin));
    add_rows(s, d_v + b * C * V, pairs.count, key_head, V, x.place(d.d_past_v, d.d_v, pairs.begin));
    add_rows(s, maps.maps_back(), pairs.count, key_head, K, x.place(d.d_past_w, d.d_w, pairs.begin));
    const auto to_beta = x.place(d.d_past_beta, d.d_beta, pairs.begin);
    for (Size j = 0; to_beta.view && j < pairs.count; ++j)
      to_beta.view(to_beta.row, to_beta.at + j, key_head) += maps.steps_back()[j];
  }

  const Simd<T>& s;
  const AttentionSimd<T>* a;
  int group;
  Size K, V, blocks = 0;
  bool gates = false;
  Stream<T> stream;
  Maps<T> maps;
  pairs::Statistics<T> statistics;
  pairs::GateSums<T> gate_sums;
  Layout x{};
  T *keys, *d_keys, *X, *d_v;  // [blocks, C, ..]; X: the queries of one tile and head at the end of every block
  T *P, *d_P;                  // [blocks, K, K]
  T* suffix;                   // [group, blocks, C]
  double *total, *between;     // gates of a block; those between a block and the tile
  T *q, *d_q, *d_x, *spare, *v, *d_o, *S, *d_S, *E, *D, *row;
};

}  // namespace

template <class T>
std::size_t backward_bytes(const pairs::Sizes& sizes) {
  return pairs::bytes_of<Backward<T>, T>(sizes);
}

template <class T>
Status backward(const PathAttentionProblem<T>& p, const PathAttentionGradient<T>& d, const Simd<T>& s,
                Workspace work) noexcept {
  pairs::Sizes sizes;
  if (const Status status = check(p, true, work, &sizes); status != Status::ok) return status;
  if (d.d_o) pairs::each_key_head<Backward<T>>(p, d, sizes, s, work);
  return Status::ok;
}

#define TTR_INSTANTIATE(T)                                                                                  \
  template std::size_t backward_bytes<T>(const pairs::Sizes&);                                              \
  template Status backward(const PathAttentionProblem<T>&, const PathAttentionGradient<T>&, const Simd<T>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::path_attention
