// Forward: the streaming softmax over blocks of pairs, for many queries at once (matrix products on packed blocks)
// and for one (a pass over the pairs where they lie). Equations: attention.h; blocks and gates: attention_tiles.h.
#include "families/pairs/attention/attention.h"

#include <cmath>
#include <limits>

#include "families/pairs/attention/tiles.h"
#include "families/common/replay.h"
#include "simd/denormals.h"

namespace ttr::families::attention {

template <class T>
Stream<T>::Stream(const Simd<T>& simd, int heads, int key_heads, int key_dim, int value_dim, Size window,
                  Arena& arena)
    : s(simd),
      a(simd.name ? &attention_simd(simd) : nullptr),
      group(heads / key_heads),
      K(key_dim),
      V(value_dim),
      C(Layout::block_size(window)),
      ahead(simd) {
  together = static_cast<int>(std::min<Size>(group, rows_together / C));
  tiles = rows_together / (C * together);
  const Size rows = std::max<Size>(tiles * together * C, heads);
  q = arena.take<T>(rows * K), acc = arena.take<T>(rows * V), m = arena.take<T>(rows), l = arena.take<T>(rows);
  k = arena.take<T>(C * K), kt = arena.take<T>(K * C), v = arena.take<T>(C * V);
  S = arena.take<T>(C * C), D = arena.take<T>(C * C);
  for (T** piece : {&factor, &row}) *piece = arena.take<T>(C);
  suffix = arena.take<T>(together * C), answer = arena.take<T>(V);
  between = arena.take<double>(std::max<Size>(tiles * together, heads)), total = arena.take<double>(together);
}

template <class T>
void Stream<T>::start(const AttentionProblem<T>& p, int head, Size lead, Size count, bool outputs) {
  constexpr T none = -std::numeric_limits<T>::infinity();
  const T first = !p.normalise ? T(0) : p.sink ? p.sink(head) : none;
  std::fill_n(m + lead, count, first);
  std::fill_n(l + lead, count, p.normalise && p.sink && first != none ? T(1) : T(0));
  if (outputs) std::fill_n(acc + lead * V, count * V, T(0));
}

template <class T>
void Stream<T>::finish(bool normalise, Size lead, Size count, bool outputs) {
  for (Size i = lead; i < lead + count; ++i) {
    if (outputs && normalise) s.scale(V, l[i] == T(0) ? T(0) : 1 / l[i], acc + i * V, acc + i * V);
    m[i] += std::log(l[i]);
  }
}

// All heads pass over a block of pairs before the next block: the pairs are read once, in the order they lie in.
template <class T>
void Stream<T>::one_query(const AttentionProblem<T>& p, const Layout& x, const Sequence& n, Size lane,
                          int first_key_head, int key_heads, bool outputs) {
  const int key_dim = static_cast<int>(K), value_dim = static_cast<int>(V);
  const int first = first_key_head * group, heads = key_heads * group;
  for (int r = 0; r < heads; ++r) {
    pack(s, p.q, n.row, n.begin, 1, first + r, key_dim, p.bandwidth ? T(1) : p.scale, q + r * K);
    start(p, first + r, r, 1, outputs);
    between[r] = 0;
  }
  const Block seen = x.seen(0, 1);
  for (Size end = seen.begin + seen.count, begin; end > seen.begin; end = begin) {
    begin = std::max({seen.begin, end - C, end > x.past ? x.past : 0});
    const Size count = end - begin;
    const auto keys = place(x, n, lane, p.past_k, p.k, begin), values = place(x, n, lane, p.past_v, p.v, begin);
    for (int h = 0; h < key_heads; ++h) {
      Size ldk, ldv = 0;
      const T* const key = contiguous(s, keys.view, keys.row, keys.at, count, first_key_head + h, key_dim, k, &ldk);
      const T* const value =
          outputs ? contiguous(s, values.view, values.row, values.at, count, first_key_head + h, value_dim, v, &ldv)
                  : nullptr;
      for (int r = h * group, rows; r < (h + 1) * group; r += rows) {
        rows = static_cast<int>(std::min<Size>(C, (h + 1) * group - r));
        for (int i = 0; i < rows; ++i) {
          const int head = first + r + i;
          a->scores(count, K, static_cast<bool>(p.bandwidth), p.bandwidth ? -1 / p.bandwidth(head) : T(1), key, ldk,
                    q + (r + i) * K, S + i * C);
          if (!p.g) continue;
          const double sum = suffix_gates(place(x, n, lane, p.past_g, p.g, begin), count, head, D + i * C);
          row[i] = static_cast<T>(between[r + i]);
          between[r + i] += sum;
        }
        typename AttentionSimd<T>::Bias bias;
        if (p.g) bias = {D, C, row};
        const bool changed =
            a->softmax({rows, count, -far_away, far_away}, bias, p.normalise, S, C, m + r, l + r, factor);
        if (!outputs) continue;
        T* const answers = acc + r * V;
        for (Size i = 0; changed && i < rows; ++i)
          if (factor[i] != T(1)) s.scale(V, factor[i], answers + i * V, answers + i * V);
        if (rows == 1) {
          s.vec_mat(count, V, S, value, ldv, answer);
          s.axpy(V, T(1), answer, answers);
        } else {
          s.gemm_nn(rows, V, count, T(1), S, C, value, ldv, T(1), answers, V);
        }
      }
    }
  }
}

template <class T>
void Stream<T>::many_queries(const AttentionProblem<T>& p, const Layout& x, const Sequence& n, Size lane,
                             int key_head, int first_head, int heads, Size first_tile, Size count, bool outputs) {
  const int key_dim = static_cast<int>(K), value_dim = static_cast<int>(V);
  const Size first = x.tile(first_tile).begin;
  const Block last = x.tile(first_tile + count - 1), seen = x.seen(first, last.begin + last.count - first);
  for (Size i = 0; i < count; ++i)
    for (int r = 0; r < heads; ++r) {
      const Block tokens = x.tile(first_tile + i);
      const Size lead = (i * heads + r) * C;
      pack(s, p.q, n.row, n.begin + tokens.begin, tokens.count, first_head + r, key_dim, p.bandwidth ? T(1) : p.scale,
           q + lead * K);
      start(p, first_head + r, lead, tokens.count, outputs);
      between[i * heads + r] = 0;
    }
  if (seen.count == 0) return;
  // From the newest pair to the oldest: gates of the blocks between add up, and the maximum settles early.
  for (Size b = x.block_at(seen.begin + seen.count - 1), oldest = x.block_at(seen.begin); b >= oldest; --b) {
    const Block pairs = x.block(b);
    const auto keys = place(x, n, lane, p.past_k, p.k, pairs.begin);
    const auto values = place(x, n, lane, p.past_v, p.v, pairs.begin);
    Size ld;
    const T* const key = contiguous(s, keys.view, keys.row, keys.at, pairs.count, key_head, key_dim, k, &ld);
    s.transpose(pairs.count, K, key, ld, kt, C);
    if (outputs) {
      pack(s, values.view, values.row, values.at, pairs.count, key_head, value_dim, T(1), v);
      finite = a->finite(pairs.count * V, v);
    }
    ahead.begin();
    if (b > oldest) {
      const Block next = x.block(b - 1);
      const auto next_keys = place(x, n, lane, p.past_k, p.k, next.begin);
      const auto next_values = place(x, n, lane, p.past_v, p.v, next.begin);
      ahead.add(next_keys.view, next_keys.row, next_keys.at, next.count, key_head, 1, K);
      if (outputs) ahead.add(next_values.view, next_values.row, next_values.at, next.count, key_head, 1, V);
      ahead.spread(2 * count * heads);
    }
    for (int r = 0; p.g && r < heads; ++r)
      total[r] =
          suffix_gates(place(x, n, lane, p.past_g, p.g, pairs.begin), pairs.count, first_head + r, suffix + r * C);
    for (Size i = 0; i < count; ++i)
      for (int r = 0; r < heads; ++r)
        tile(p, x, n, x.tile(first_tile + i), pairs, first_head + r, r, (i * heads + r) * C, between + i * heads + r,
             outputs);
  }
}

template <class T>
void Stream<T>::tile(const AttentionProblem<T>& p, const Layout& x, const Sequence& n, Block tokens, Block pairs,
                     int head, int slot, Size lead, double* gates_between, bool outputs) {
  const auto see = x.template sight<T>(tokens, pairs);
  if (sees_nothing(see)) return;
  const bool own = x.is_own(tokens, pairs);
  typename AttentionSimd<T>::Bias bias;
  if (p.g && own) {
    own_gates(p.g, n.row, n.begin + tokens.begin, tokens.count, head, D, C);
    bias = {D, C, nullptr};
  } else if (p.g) {
    prefix_gates(p.g, n.row, n.begin + tokens.begin, tokens.count, head, *gates_between, row);
    bias = {suffix + slot * C, 0, row};
    *gates_between += total[slot];
    if (row[0] == -std::numeric_limits<T>::infinity()) return;  // then so are all that follow
  }

  const T* const queries = q + lead * K;
  T* const answers = acc + lead * V;
  ahead.step();
  if (p.bandwidth) a->distances(see.M, see.N, K, -1 / p.bandwidth(head), queries, K, kt, C, S, C);
  else if (own) s.gemm_lower(see.M, K, T(1), queries, K, kt, C, S, C);
  else s.gemm_nn(see.M, see.N, K, T(1), queries, K, kt, C, T(0), S, C);
  const bool changed = a->softmax(see, bias, p.normalise, S, C, m + lead, l + lead, factor);
  ahead.step();
  if (!outputs) return;
  for (Size i = 0; changed && i < see.M; ++i)
    if (factor[i] != T(1)) s.scale(V, factor[i], answers + i * V, answers + i * V);
  if (!finite && !sees_all(see)) {  // 0 times what is not seen would be NaN
    for (Size i = 0; i < see.M; ++i) {
      const Size begin = see.begin(i), count = see.end(i) - begin;
      if (count <= 0) continue;
      s.vec_mat(count, V, S + i * C + begin, v + begin * V, V, answer);
      s.axpy(V, T(1), answer, answers + i * V);
    }
  } else if (own) {
    s.trmm_nn(see.M, V, T(1), S, C, v, V, T(1), answers, V);
  } else {
    s.gemm_nn(see.M, V, see.N, T(1), S, C, v, V, T(1), answers, V);
  }
}

template class Stream<float>;
template class Stream<double>;

template <class T>
Status check(const AttentionProblem<T>& p, bool backward, Workspace work) noexcept {
  const Size longest = longest_of(p.sequences);
  if (longest < 0 || p.key_dim < 1 || p.value_dim < 1 || p.heads < 1 || p.key_heads < 1 ||
      p.heads % p.key_heads != 0 || p.window < 0)
    return Status::bad_shape;
  if ((!p.causal && (p.g || p.window > 0)) || (!p.normalise && p.sink)) return Status::not_supported;
  Size past = 0;
  for (std::size_t n = 0; p.past_count && n < p.sequences.size(); ++n) {
    if (p.past_count[n] < 0) return Status::bad_shape;
    past = std::max(past, static_cast<Size>(p.past_count[n]));
  }
  if (past > 0) {
    if (!p.past_k || !p.past_v || (p.g && !p.past_g)) return Status::missing_input;
    if (past > p.past_k.extent[1] || past > p.past_v.extent[1] || (p.g && past > p.past_g.extent[1]))
      return Status::bad_shape;
  }
  if (longest > 0 && (!p.q || (!p.k != !p.v) || (!p.k && p.causal))) return Status::missing_input;
  for (int h = 0; p.bandwidth && h < p.heads; ++h)
    if (!(p.bandwidth(h) > 0)) return Status::out_of_domain;
  if (!work.data || work.bytes < workspace_bytes<T>(p.heads, p.key_heads, p.key_dim, p.value_dim, longest, past,
                                                    p.window, backward))
    return Status::small_workspace;
  return Status::ok;
}

template <class T>
std::size_t workspace_bytes(int heads, int key_heads, int key_dim, int value_dim, std::ptrdiff_t longest,
                            std::ptrdiff_t past, std::ptrdiff_t window, bool backward) noexcept {
  if (backward) return backward_bytes<T>(heads, key_heads, key_dim, value_dim, longest, past, window);
  static constexpr Simd<T> none{};
  Arena arena;
  Stream<T>(none, heads, key_heads, key_dim, value_dim, window, arena);
  return arena.bytes();
}

template <class T>
Status forward(const AttentionProblem<T>& p, const Simd<T>& s, Workspace work) noexcept {
  if (const Status status = check(p, false, work); status != Status::ok) return status;
  if (!p.o && !p.lse) return Status::ok;
  const FlushDenormals flush;
  Arena arena(work);
  Stream<T> stream(s, p.heads, p.key_heads, p.key_dim, p.value_dim, p.window, arena);
  Size lane = 0;
  for (const Sequence& n : p.sequences) {
    if (n.end > n.begin)
      stream.run(p, n, lane, 0, p.key_heads, static_cast<bool>(p.o),
                 [&](int head, Block tokens, const T* o, const T* lse) {
                   const Size first = n.begin + tokens.begin;
                   if (p.o) unpack(o, n.row, first, tokens.count, head, p.value_dim, p.o);
                   for (Size i = 0; p.lse && i < tokens.count; ++i) p.lse(n.row, first + i, head) = lse[i];
                 });
    ++lane;
  }
  return Status::ok;
}

#define TTR_INSTANTIATE(T)                                                                                    \
  template Status check(const AttentionProblem<T>&, bool, Workspace) noexcept;                                \
  template std::size_t workspace_bytes<T>(int, int, int, int, std::ptrdiff_t, std::ptrdiff_t, std::ptrdiff_t, \
                                          bool) noexcept;                                                     \
  template Status forward(const AttentionProblem<T>&, const Simd<T>&, Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::attention
