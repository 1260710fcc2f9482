// Forward of PaTH attention: blocks of pairs from the newest to the oldest, the queries carried from block to block.
// Equations: path_attention.h; blocks and gates: attention_tiles.h.
#include "families/pairs/path_attention/path_attention.h"

#include <cmath>
#include <limits>

#include "families/pairs/path_attention/block.h"
#include "families/common/replay.h"
#include "simd/denormals.h"

namespace ttr::families::path_attention {

constexpr Size rows_together = 512;  // queries (tokens x heads) that share a prepared block of pairs

template <class T>
Stream<T>::Stream(const Simd<T>& simd, int heads_of_group, int key_dim, int value_dim, Arena& arena)
    : s(simd),
      a(simd.name ? &attention_simd(simd) : nullptr),
      group(heads_of_group),
      together(static_cast<int>(std::min<Size>(heads_of_group, rows_together / C))),
      K(key_dim),
      V(value_dim),
      tiles(rows_together / (C * together)),
      maps(simd, key_dim, false, arena) {
  const Size rows = std::max<Size>(tiles * together * C, group);
  q = arena.take<T>(rows * K), acc = arena.take<T>(rows * V), m = arena.take<T>(rows), l = arena.take<T>(rows);
  for (T** piece : {&keys, &kt, &moved}) *piece = arena.take<T>(C * K);
  for (T** piece : {&S, &E, &D}) *piece = arena.take<T>(C * C);
  P = arena.take<T>(K * K), v = arena.take<T>(C * V), answer = arena.take<T>(V);
  for (T** piece : {&factor, &row}) *piece = arena.take<T>(C);
  suffix = arena.take<T>(together * C);
  between = arena.take<double>(std::max<Size>(tiles * together, group)), total = arena.take<double>(together);
}

template <class T>
void Stream<T>::start(Size lead, Size count, bool outputs) {
  std::fill_n(m + lead, count, -std::numeric_limits<T>::infinity());
  std::fill_n(l + lead, count, T(0));
  if (outputs) std::fill_n(acc + lead * V, count * V, T(0));
}

template <class T>
void Stream<T>::finish(Size lead, Size count, bool outputs) {
  for (Size i = lead; i < lead + count; ++i) {
    if (outputs) s.scale(V, l[i] == T(0) ? T(0) : 1 / l[i], acc + i * V, acc + i * V);
    m[i] += std::log(l[i]);
  }
}

// All heads pass over a block of pairs before the next block. A query meets a pair's key, then its map.
template <class T>
void Stream<T>::one_query(const PathAttentionProblem<T>& p, const Sequence& n, Size lane, int key_head,
                          bool outputs) {
  const int key_dim = static_cast<int>(K), value_dim = static_cast<int>(V);
  for (int r = 0; r < group; ++r) {
    pack(s, p.q, n.row, n.begin, 1, key_head * group + r, key_dim, p.scale, q + r * K);
    start(r, 1, outputs);
    between[r] = 0;
  }
  for (Size b = x.past_blocks() + 1; b-- > 0;) {
    const Run pairs = x.block(b);
    const auto at_k = place(x, n, lane, p.past_k, p.k, pairs.begin),
               at_w = place(x, n, lane, p.past_w, p.w, pairs.begin);
    const auto at_v = place(x, n, lane, p.past_v, p.v, pairs.begin);
    const auto steps = place(x, n, lane, p.past_beta, p.beta, pairs.begin);
    Size ldk, ldw, ldv = 0;
    const T* const key = contiguous(s, at_k.view, at_k.row, at_k.at, pairs.count, key_head, key_dim, keys, &ldk);
    const T* const map = contiguous(s, at_w.view, at_w.row, at_w.at, pairs.count, key_head, key_dim, moved, &ldw);
    const T* const value =
        outputs ? contiguous(s, at_v.view, at_v.row, at_v.at, pairs.count, key_head, value_dim, v, &ldv) : nullptr;
    for (int r = 0; r < group; ++r) {
      T* const query = q + r * K;
      for (Size j = pairs.count; j-- > 0;) {
        S[j] = s.dot(K, query, key + j * ldk);
        if (pairs.begin + j == 0) break;
        const T step = steps.view(steps.row, steps.at + j, key_head);
        s.axpy(K, -step * s.dot(K, query, map + j * ldw), map + j * ldw, query);
      }
      typename AttentionSimd<T>::Bias bias;
      if (p.g) {
        const double sum = scaled_suffix(s, p, x, n, lane, pairs, key_head * group + r, suffix);
        *row = static_cast<T>(between[r]) * p.scale;
        bias = {suffix, 0, row};
        between[r] += sum;
      }
      const bool changed = a->softmax({1, pairs.count, -attention::far_away, attention::far_away}, bias, true, S, C,
                                      m + r, l + r, factor);
      if (!outputs) continue;
      if (changed) s.scale(V, *factor, acc + r * V, acc + r * V);
      s.vec_mat(pairs.count, V, S, value, ldv, answer);
      s.axpy(V, T(1), answer, acc + r * V);
    }
  }
}

template <class T>
void Stream<T>::many_queries(const PathAttentionProblem<T>& p, const Sequence& n, Size lane, int key_head,
                             int first_head, int heads, Size first_tile, Size count, bool outputs) {
  const int key_dim = static_cast<int>(K), value_dim = static_cast<int>(V);
  for (Size i = 0; i < count; ++i)
    for (int r = 0; r < heads; ++r) {
      const Run tokens = x.tile(first_tile + i);
      const Size lead = (i * heads + r) * C;
      pack(s, p.q, n.row, n.begin + tokens.begin, tokens.count, first_head + r, key_dim, p.scale, q + lead * K);
      start(lead, tokens.count, outputs);
      between[i * heads + r] = 0;
    }
  const Size newest = x.past_blocks() + first_tile + count - 1;
  for (Size b = newest; b >= 0; --b) {
    const Run pairs = x.block(b);
    maps.load(p, x, n, lane, key_head, pairs);
    if (pairs.begin >= x.past + x.tile(first_tile).begin) maps.own();
    if (b < newest) {
      maps.later();
      maps.carry(keys, b > 0 ? P : nullptr);
      s.transpose(pairs.count, K, keys, K, kt, C);
    }
    const auto values = place(x, n, lane, p.past_v, p.v, pairs.begin);
    if (outputs) pack(s, values.view, values.row, values.at, pairs.count, key_head, value_dim, T(1), v);
    for (int r = 0; p.g && r < heads; ++r)
      total[r] = scaled_suffix(s, p, x, n, lane, pairs, first_head + r, suffix + r * C);
    for (Size i = 0; i < count; ++i) {
      const Run tokens = x.tile(first_tile + i);
      if (x.past + tokens.begin < pairs.begin) continue;
      for (int r = 0; r < heads; ++r)
        tile(p, n, tokens, pairs, first_head + r, r, (i * heads + r) * C, between + i * heads + r, outputs);
    }
  }
}

template <class T>
void Stream<T>::tile(const PathAttentionProblem<T>& p, const Sequence& n, Run tokens, Run pairs, int head, int slot,
                     Size lead, double* gates_between, bool outputs) {
  const auto see = x.template sight<T>(tokens, pairs);
  const bool own = x.is_own(tokens, pairs), more = pairs.begin > 0;
  T *const queries = q + lead * K, *const answers = acc + lead * V;
  typename AttentionSimd<T>::Bias bias;
  if (p.g && own) {
    scaled_own(s, p, n, tokens, head, D);
    bias = {D, C, nullptr};
  } else if (p.g) {
    scaled_prefix(s, p, n, tokens, head, *gates_between, row);
    bias = {suffix + slot * C, 0, row};
    *gates_between += total[slot];
    if (row[0] == -std::numeric_limits<T>::infinity()) return;  // then so are all that follow
  }
  if (own) {
    maps.meet(queries, E);
    maps.own_logits(queries, E, S);
    if (more) maps.to_start(queries, E, moved);
  } else {
    s.gemm_nn(see.M, see.N, K, T(1), queries, K, kt, C, T(0), S, C);
    if (more) s.gemm_nn(see.M, K, K, T(1), queries, K, P, K, T(0), moved, K);
  }
  if (more) std::copy_n(moved, see.M * K, queries);
  const bool changed = a->softmax(see, bias, true, S, C, m + lead, l + lead, factor);
  if (!outputs) return;
  for (Size i = 0; changed && i < see.M; ++i)
    if (factor[i] != T(1)) s.scale(V, factor[i], answers + i * V, answers + i * V);
  if (own) s.trmm_nn(see.M, V, T(1), S, C, v, V, T(1), answers, V);
  else s.gemm_nn(see.M, V, see.N, T(1), S, C, v, V, T(1), answers, V);
}

template class Stream<float>;
template class Stream<double>;

template <class T>
Status check(const PathAttentionProblem<T>& p, bool backward, Workspace work) noexcept {
  const Size longest = longest_of(p.sequences);
  if (longest < 0 || p.key_dim < 1 || p.value_dim < 1 || p.heads < 1 || p.key_heads < 1 || p.heads % p.key_heads != 0)
    return Status::bad_shape;
  Size past = 0;
  for (std::size_t n = 0; p.past_count && n < p.sequences.size(); ++n) {
    if (p.past_count[n] < 0) return Status::bad_shape;
    past = std::max(past, static_cast<Size>(p.past_count[n]));
  }
  if (past > 0) {
    if (!p.past_k || !p.past_v || !p.past_w || !p.past_beta || (p.g && !p.past_g)) return Status::missing_input;
    for (const View<const T, 4>* view : {&p.past_k, &p.past_v, &p.past_w})
      if (past > view->extent[1]) return Status::bad_shape;
    if (past > p.past_beta.extent[1] || (p.g && past > p.past_g.extent[1])) return Status::bad_shape;
  }
  if (longest > 0 && (!p.q || !p.k || !p.v || !p.w || !p.beta)) return Status::missing_input;
  if (!work.data ||
      work.bytes < workspace_bytes<T>(p.heads, p.key_heads, p.key_dim, p.value_dim, longest, past, backward))
    return Status::small_workspace;
  return Status::ok;
}

template <class T>
std::size_t workspace_bytes(int heads, int key_heads, int key_dim, int value_dim, std::ptrdiff_t longest,
                            std::ptrdiff_t past, bool backward) noexcept {
  if (backward) return backward_bytes<T>(heads, key_heads, key_dim, value_dim, longest, past);
  static constexpr Simd<T> none{};
  Arena arena;
  Stream<T>(none, heads / key_heads, key_dim, value_dim, arena);
  return arena.bytes();
}

template <class T>
Status forward(const PathAttentionProblem<T>& p, const Simd<T>& s, Workspace work) noexcept {
  if (const Status status = check(p, false, work); status != Status::ok) return status;
  if (!p.o && !p.lse) return Status::ok;
  const FlushDenormals flush;
  Arena arena(work);
  Stream<T> stream(s, p.heads / p.key_heads, p.key_dim, p.value_dim, arena);
  Size lane = 0;
  for (const Sequence& n : p.sequences) {
    for (int h = 0; n.end > n.begin && h < p.key_heads; ++h)
      stream.run(p, n, lane, h, static_cast<bool>(p.o), [&](int head, Run tokens, const T* o, const T* lse) {
        const Size first = n.begin + tokens.begin;
        if (p.o) unpack(o, n.row, first, tokens.count, head, p.value_dim, p.o);
        for (Size i = 0; p.lse && i < tokens.count; ++i) p.lse(n.row, first + i, head) = lse[i];
      });
    ++lane;
  }
  return Status::ok;
}

#define TTR_INSTANTIATE(T)                                                                                    \
  template Status check(const PathAttentionProblem<T>&, bool, Workspace) noexcept;                            \
  template std::size_t workspace_bytes<T>(int, int, int, int, std::ptrdiff_t, std::ptrdiff_t, bool) noexcept; \
  template Status forward(const PathAttentionProblem<T>&, const Simd<T>&, Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::path_attention
