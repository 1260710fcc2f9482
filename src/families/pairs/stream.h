// The streaming softmax over blocks of pairs, for many queries at once (matrix products on packed blocks) and for one
// (a pass over the pairs where they lie), never T x T: a running maximum m, the sum l of weights and the weighted sum
// of values acc for every query; a block of pairs first lowers what is there by the growth of m.
//
//   x_ti a logit ;  m_t = max_i x_ti ;  l_t = sum_i e^{x_ti - m_t} ;  o_t = acc_t / l_t ;  lse_t = m_t + log l_t
//
// What a logit is, a class `Scores` says (attention/scores.h, path_attention/scores.h):
//
//   Scores(simd, sizes, arena)
//   query_scale(p), gate_scale(p)                       factors of q as it is packed, and of gates
//   normalise(p) ; start(p, head) -> {m, l}             before the first pair
//   polynomial(p) ; eps(p)                              weights that are no softmax, or null; what is added to their sum
//   heads_at_once                                       of one query, those that go through a softmax together
//   open(p, x, key_head, pairs)                         for one query: the pairs of a block
//   one(p, head, pairs, query, S)                       its logits; may move the query on to the start of the block
//   load(p, x, key_head, pairs, {own, later})           for tiles: the same; which tiles will come
//   tile(p, head, own, more, visible, queries, S)       logits of a tile; `more`: older blocks follow
//
// The problem has g, past_g and past_v beside what is in PairProblem.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "families/common/prefetch.h"
#include "families/common/team.h"
#include "families/pairs/driver.h"
#include "families/pairs/gates.h"

namespace ttr::families::pairs {

/// Bytes of pairs that a cache is taken to hold: what one query reads of more is fetched ahead, of less it would only cost.
inline constexpr Size largest_near = 6 << 20;
inline constexpr Size rows_together = 512;  // queries (tokens x heads) that share a packed block of pairs

/// One block of pairs in the streaming softmax.
template <class T>
class Softmax {
 public:
  using Bias = typename AttentionSimd<T>::Bias;

  Softmax(const Simd<T>& simd, Size value_dim, Size block, Arena& arena)
      : a(simd.name ? &attention_simd(simd) : nullptr), s(simd), V(value_dim), C(block) {
    S = arena.take<T>(C * C), factor = arena.take<T>(C), answer = arena.take<T>(V);
  }

  /// Weights from the logits in S, and acc [M, V] (null: not wanted) rescaled to the new maximum. free = false: the
  /// maximum stays.
  void weigh(const MaskRange& visible, const Bias& bias, bool free, T* m, T* l, T* acc) const {
    if (!a->softmax(visible, bias, free, S, C, m, l, factor) || !acc) return;
    for (Size i = 0; i < visible.M; ++i)
      if (factor[i] != T(1)) s.scale(V, factor[i], acc + i * V, acc + i * V);
  }
  /// acc [V] += the first row of S times values [count, V]
  void add_one(Size count, const T* values, Size ld, T* acc) const { add_row(S, count, values, ld, acc); }
  /// acc [M, V] += S values. `own`: S is a lower triangle. `finite`: the values are.
  void add(const MaskRange& visible, bool own, bool finite, const T* values, Size ld, T* acc) const {
    if (!finite && !visible.all()) {  // 0 times what is not seen would be NaN
      for (Size i = 0; i < visible.M; ++i) {
        const Size begin = visible.begin(i), count = visible.end(i) - begin;
        if (count > 0) add_row(S + i * C + begin, count, values + begin * ld, ld, acc + i * V);
      }
    } else if (own) {
      s.trmm_nn(visible.M, V, T(1), S, C, values, ld, T(1), acc, V);
    } else {
      s.gemm_nn(visible.M, V, visible.N, T(1), S, C, values, ld, T(1), acc, V);
    }
  }

  const AttentionSimd<T>* a;
  T *S, *factor;  // [C, C], [C]

 private:
  void add_row(const T* weights, Size count, const T* values, Size ld, T* acc) const {
    s.vec_mat(count, V, weights, values, ld, answer);
    s.axpy(V, T(1), answer, acc);
  }

  const Simd<T>& s;
  Size V, C;
  T* answer;
};

/// Which tiles a block of pairs is loaded for: that of the same tokens, and later ones.
struct Tiles {
  bool own, later;
};

/// The pass over key heads of one sequence, for forward, and for backward, which needs lse and o again. Results are
/// handed over tile by tile.
template <class T, class Scores>
class Stream {
 public:
  Stream(const Simd<T>& simd, const Sizes& sizes, Arena& arena)
      : s(simd),
        group(sizes.group()),
        K(sizes.key_dim),
        V(sizes.value_dim),
        C(Layout::block_of(sizes.window)),
        softmax(simd, sizes.value_dim, C, arena),
        scores(simd, sizes, arena),
        ahead(simd) {
    together = static_cast<int>(std::min<Size>(group, rows_together / C));
    tiles = rows_together / (C * together);
    // One query of every head at once, or tiles of queries of a few heads.
    const Size rows = sizes.longest <= 1 ? sizes.heads : std::max<Size>(tiles * together * C, sizes.heads);
    q = arena.take<T>(rows * K), acc = arena.take<T>(rows * V), m = arena.take<T>(rows), l = arena.take<T>(rows);
    v = arena.take<T>(C * V), D = arena.take<T>(C * C), row = arena.take<T>(C);
    suffix = arena.take<T>(together * C), total = arena.take<double>(together);
    between = arena.take<double>(std::max<Size>(tiles * together, sizes.heads));
  }

  /// each(head, tokens, o [count, V], lse [count]) for the tokens of a tile; o is null unless `outputs`.
  template <class P, class Each>
  void run(const P& p, const Layout& x, int first_key_head, int key_heads, bool outputs, Each&& each) {
    const int first = first_key_head * group, end = first + key_heads * group;
    const auto emit = [&](int head, Block tokens, Size lead) {
      finish(p, lead, tokens.count, outputs);
      each(head, tokens, outputs ? acc + lead * V : nullptr, m + lead);
    };
    if (x.tokens == 1) {
      one_query(p, x, first_key_head, key_heads, outputs);
      for (int head = first; head < end; ++head) emit(head, {0, 1}, head - first);
      return;
    }
    for (int h = first; h < end; h += heads_at(h))
      for (Size i = 0; i < x.tiles(); i += tiles)
        run_tiles(p, x, h, i, std::min(tiles, x.tiles() - i), outputs, each);
  }

  /// Parts of the same for a team, a few tiles of the heads that go side by side each; tokens > 1.
  Size parts(const Layout& x, int key_heads) const { return key_heads * bundles() * blocks(x); }
  /// One of them. Later queries see more pairs: they come first.
  template <class P, class Each>
  void run_part(const P& p, const Layout& x, int first_key_head, int key_heads, Size part, bool outputs,
                Each&& each) {
    const Size all = key_heads * bundles(), block = blocks(x) - 1 - part / all, bundle = part % all;
    const int first = (first_key_head + static_cast<int>(bundle / bundles())) * group +
                      static_cast<int>(bundle % bundles()) * together;
    run_tiles(p, x, first, block * few(x), std::min(few(x), x.tiles() - block * few(x)), outputs, each);
  }

 private:
  using Bias = typename Softmax<T>::Bias;

  int heads_at(int first) const { return std::min(together, (first / group + 1) * group - first); }
  Size bundles() const { return (group + together - 1) / together; }  // of the heads of a key head
  Size few(const Layout& x) const { return std::clamp<Size>(x.tiles() / 8, 1, tiles); }
  Size blocks(const Layout& x) const { return (x.tiles() + few(x) - 1) / few(x); }

  template <class P, class Each>
  void run_tiles(const P& p, const Layout& x, int first, Size i, Size count, bool outputs, Each&& each) {
    const int heads = heads_at(first);
    many_queries(p, x, first / group, first, heads, i, count, outputs);
    for (Size t = 0; t < count; ++t)
      for (int r = 0; r < heads; ++r) {
        const Block tokens = x.tile(i + t);
        const Size lead = (t * heads + r) * C;
        finish(p, lead, tokens.count, outputs);
        each(first + r, tokens, outputs ? acc + lead * V : nullptr, m + lead);
      }
  }

  template <class P>
  void start(const P& p, const Layout& x, Block tokens, int head, Size lead, bool outputs) {
    pack(s, p.q, x.row(), x.token(tokens), tokens.count, head, static_cast<int>(K), Scores::query_scale(p),
         q + lead * K);
    const auto [top, sum] = Scores::start(p, head);
    std::fill_n(m + lead, tokens.count, top);
    std::fill_n(l + lead, tokens.count, sum);
    if (outputs) std::fill_n(acc + lead * V, tokens.count * V, T(0));
  }
  // A sum of weights takes the place of lse where they are no softmax.
  template <class P>
  void finish(const P& p, Size lead, Size count, bool outputs) {
    const bool normalise = Scores::normalise(p);
    const bool sums = Scores::polynomial(p) != nullptr;
    for (Size i = lead; i < lead + count; ++i) {
      if (sums) l[i] += Scores::eps(p);
      if (outputs && normalise) s.scale(V, l[i] == T(0) ? T(0) : 1 / l[i], acc + i * V, acc + i * V);
      m[i] = sums ? l[i] : m[i] + std::log(l[i]);
    }
  }

  template <class P>
  void weigh(const P& p, const MaskRange& visible, const Bias& bias, Size lead, T* answers) {
    if (const auto* const f = Scores::polynomial(p)) softmax.a->weigh(visible, bias, *f, softmax.S, C, l + lead);
    else softmax.weigh(visible, bias, Scores::normalise(p), m + lead, l + lead, answers);
  }

  // All heads pass over a block of pairs before the next block: the pairs are read once, in the order they lie in.
  template <class P>
  void one_query(const P& p, const Layout& x, int first_key_head, int key_heads, bool outputs) {
    const int first = first_key_head * group, heads = key_heads * group;
    for (int r = 0; r < heads; ++r) {
      start(p, x, {0, 1}, first + r, r, outputs);
      // The query's own gate comes with its own pair, if it has one.
      between[r] = p.g && !p.k ? static_cast<double>(p.g(x.row(), x.sequence.begin, first + r)) : 0;
    }
    const Block seen = x.seen(0, 1);
    for (Size end = seen.begin + seen.count, begin; end > seen.begin; end = begin) {
      begin = std::max({seen.begin, end - C, end > x.past ? x.past : 0});
      const Block pairs{begin, end - begin};
      if constexpr (sizeof(T) == 4 && requires { p.compact_k; })
        if (goes_by_pairs(p, x, pairs)) {
          by_pairs(p, x, first_key_head, key_heads, pairs, seen, outputs);
          continue;
        }
      for (int h = 0; h < key_heads; ++h) {
        scores.open(p, x, first_key_head + h, pairs);
        Size ld = 0;
        const T* const value =
            outputs ? rows_at(s, x, p.past_v, compact_values(p), p.v, pairs, first_key_head + h, V, v, &ld) : nullptr;
        for (int r = h * group, rows; r < (h + 1) * group; r += rows) {
          rows = static_cast<int>(std::min<Size>({C, Scores::heads_at_once, (h + 1) * group - r}));
          for (int i = 0; i < rows; ++i) scores.one(p, first + r + i, pairs, q + (r + i) * K, softmax.S + i * C);
          const Bias bias = gates_of_one(p, x, pairs, first + r, r, rows);
          const MaskRange all = MaskRange::everything(rows, pairs.count);
          T* const answers = outputs ? acc + r * V : nullptr;
          weigh(p, all, bias, r, answers);
          if (!outputs) continue;
          if (rows == 1) softmax.add_one(pairs.count, value, ld, answers);
          else softmax.add(all, false, true, value, ld, answers);
        }
      }
    }
  }

  // What gates add to the logits of one query of the heads `head` .., whose rows are `lead` ..
  template <class P>
  Bias gates_of_one(const P& p, const Layout& x, Block pairs, int head, int lead, int rows) {
    if (!p.g) return {};
    for (int i = 0; i < rows; ++i) {
      const double sum = suffix_gates(s, Scores::gate_scale(p), x.place(p.past_g, p.g, pairs.begin), pairs.count,
                                      head + i, D + i * C);
      row[i] = static_cast<T>(between[lead + i]) * Scores::gate_scale(p);
      between[lead + i] += sum;
    }
    return {D, C, row};
  }

  // All heads of a pair together, where it lies, which may be in fewer bytes.
  template <class P>
  bool goes_by_pairs(const P& p, const Layout& x, Block pairs) const {
    return pairs.begin < x.past && group <= C && lies_by_pairs(p.past_k, p.compact_k) &&
           lies_by_pairs(p.past_v, p.compact_v);
  }
  template <class P>
  void by_pairs(const P& p, const Layout& x, int first_key_head, int key_heads, Block pairs, Block seen,
                bool outputs) {
    const Size older = std::max(seen.begin, pairs.begin - C);
    const Size of_pair = key_heads * (K + V) * static_cast<Size>(size_of(p.compact_k ? p.compact_k.type : Type::f32));
    const bool fetch = seen.count * of_pair > largest_near;
    for (int h = 0, some; h < key_heads; h += some) {
      some = std::min(key_heads - h, static_cast<int>(C) / group);
      const int key_head = first_key_head + h, lead = h * group, rows = some * group;
      KeptSimd::Rows values{}, next{};
      if (fetch) next = kept_rows(x, p.past_k, p.compact_k, {older, pairs.begin - older}, key_head, some);
      if (outputs) values = kept_rows(x, p.past_v, p.compact_v, pairs, key_head, some);
      scores.kept(p, x, key_head, some, pairs, q + lead * K, fetch && outputs ? values : next, softmax.S);
      const Bias bias = gates_of_one(p, x, pairs, key_head * group, lead, rows);
      T* const answers = outputs ? acc + lead * V : nullptr;
      weigh(p, MaskRange::everything(rows, pairs.count), bias, lead, answers);
      if (outputs) kept_simd(s).add(values, group, softmax.S, C, answers, next);
    }
  }

  template <class P>
  void many_queries(const P& p, const Layout& x, int key_head, int first_head, int heads, Size first_tile, Size count,
                    bool outputs) {
    const Size first = x.tile(first_tile).begin;
    const Block last = x.tile(first_tile + count - 1), seen = x.seen(first, last.begin + last.count - first);
    for (Size i = 0; i < count; ++i)
      for (int r = 0; r < heads; ++r) {
        start(p, x, x.tile(first_tile + i), first_head + r, (i * heads + r) * C, outputs);
        between[i * heads + r] = gates_before(p, x, x.tile(first_tile + i), first_head + r);
      }
    if (seen.count == 0) return;
    // From the newest pair to the oldest: gates of the blocks between add up, and the maximum settles early.
    const Size newest = x.block_at(seen.begin + seen.count - 1), oldest = x.block_at(seen.begin);
    for (Size b = newest; b >= oldest; --b) {
      const Block pairs = x.block(b);
      scores.load(p, x, key_head, pairs, {pairs.begin >= x.past + first, b < newest});
      if (outputs) {
        if (compact_values(p) && pairs.begin < x.past) {
          Size ld = 0;
          (void)rows_at(s, x, p.past_v, compact_values(p), p.v, pairs, key_head, V, v, &ld);
        } else {
          pack(s, x.place(p.past_v, p.v, pairs.begin), pairs.count, key_head, V, v);
        }
        finite = softmax.a->finite(pairs.count * V, v);
      }
      ahead.begin();
      if (b > oldest) hint(p, x, x.block(b - 1), key_head, 2 * count * heads, outputs);
      for (int r = 0; p.g && r < heads; ++r)
        total[r] = suffix_gates(s, Scores::gate_scale(p), x.place(p.past_g, p.g, pairs.begin), pairs.count,
                                first_head + r, suffix + r * C);
      for (Size i = 0; i < count; ++i)
        for (int r = 0; r < heads; ++r)
          tile(p, x, x.tile(first_tile + i), pairs, first_head + r, r, (i * heads + r) * C, between + i * heads + r,
               outputs);
    }
  }
  template <class P>
  void hint(const P& p, const Layout& x, Block next, int key_head, Size steps, bool outputs) {
    if (compact_keys(p) && next.begin < x.past) return;
    const auto keys = x.place(p.past_k, p.k, next.begin), values = x.place(p.past_v, p.v, next.begin);
    ahead.add(keys.view, keys.row, keys.at, next.count, key_head, 1, K);
    if (outputs) ahead.add(values.view, values.row, values.at, next.count, key_head, 1, V);
    ahead.spread(steps);
  }

  template <class P>
  void tile(const P& p, const Layout& x, Block tokens, Block pairs, int head, int slot, Size lead,
            double* gates_between, bool outputs) {
    const MaskRange visible = x.visible(tokens, pairs);
    if (visible.nothing()) return;
    const bool own = x.is_own(tokens, pairs);
    Bias bias;
    if (p.g && own) {
      own_gates(s, Scores::gate_scale(p), p.g, x, tokens, head, D, C);
      bias = {D, C, nullptr};
    } else if (p.g) {
      prefix_gates(s, Scores::gate_scale(p), p.g, x, tokens, head, *gates_between, row);
      bias = {suffix + slot * C, 0, row};
      *gates_between += total[slot];
      if (row[0] == -std::numeric_limits<T>::infinity()) return;  // then so are all that follow
    }
    ahead.step();
    scores.tile(p, head, own, pairs.begin > 0, visible, q + lead * K, softmax.S);
    T* const answers = outputs ? acc + lead * V : nullptr;
    weigh(p, visible, bias, lead, answers);
    ahead.step();
    if (outputs) softmax.add(visible, own, finite, v, V, answers);
  }

  const Simd<T>& s;
  int group, together = 0;  // heads that read one key head; those of them that go side by side
  Size K, V, C, tiles = 0;  // tiles that go side by side
  Softmax<T> softmax;
  Scores scores;
  T *q, *acc, *m, *l;  // [rows, ...], rows ordered tile, head, token; finish turns m into lse
  T *v, *D, *row, *suffix;
  double *between, *total;
  bool finite = true;  // of the packed values
  Prefetch<T> ahead;   // of the next block of pairs, whose rows lie far apart
};

/// What backward needs of forward, for the queries of a group of heads: lse and delta_t = do_t.o_t - dlse_t.
template <class T>
struct Statistics {
  Statistics(const Simd<T>& simd, const Sizes& sizes, Arena& arena)
      : s(simd), group(sizes.group()), V(sizes.value_dim) {
    for (T** piece : {&lse, &delta}) *piece = arena.take<T>(group * sizes.longest);
  }

  /// Of the tokens of a tile, from its o [count, V] and logs [count]. rows [count, V] is scratch.
  void keep(const Layout& x, int head, Block tokens, const T* o, const T* logs, const View<const T, 4>& d_o,
            const View<const T, 3>& d_lse, T* rows) {
    const Size to = at(x, head % group, tokens);
    std::copy_n(logs, tokens.count, lse + to);
    if (d_o) {
      pack(s, d_o, x.row(), x.token(tokens), tokens.count, head, static_cast<int>(V), T(1), rows);
      s.row_dots(tokens.count, V, rows, V, o, V, delta + to);
    } else {
      std::fill_n(delta + to, tokens.count, T(0));
    }
    for (Size i = 0; d_lse && i < tokens.count; ++i) delta[to + i] -= d_lse(x.row(), x.token(tokens) + i, head);
  }
  /// Where head `r` of the group has a tile.
  static Size at(const Layout& x, int r, Block tokens) { return r * x.tokens + tokens.begin; }

  const Simd<T>& s;
  int group;
  Size V;
  T *lse, *delta;  // [group, tokens]
};

/// Forward: what the stream gives, to the caller. `lse` has no data where it is not wanted. A team takes tiles of queries.
template <class T, class Scores, class P>
void stream_forward(const P& p, const View<T, 3>& lse, const Sizes& sizes, const Simd<T>& s, Workspace work) {
  const FlushDenormals flush;
  Arena arena(work);
  const Rooms rooms(p.team.workers(), bytes_of<Stream<T, Scores>, T>(sizes), arena);
  const auto stream_of = [&](int worker) {
    Arena own = rooms.of(worker);
    return Stream<T, Scores>(s, sizes, own);
  };
  Stream<T, Scores> stream = stream_of(0);
  each_sequence(p, [&](std::size_t n) {
    const Layout x = layout_of(p, n);
    const bool outputs = static_cast<bool>(p.o);
    const auto each = [&](int head, Block tokens, const T* o, const T* logs) {
      if (p.o) unpack(o, x.row(), x.token(tokens), tokens.count, head, p.value_dim, p.o);
      for (Size i = 0; lse && i < tokens.count; ++i) lse(x.row(), x.token(tokens) + i, head) = logs[i];
    };
    if (p.team.workers() == 1 || x.tokens == 1) return stream.run(p, x, 0, p.key_heads, outputs, each);
    p.team.each(stream.parts(x, p.key_heads), [&](Size part, int worker) {
      const FlushDenormals own_flush;
      stream_of(worker).run_part(p, x, 0, p.key_heads, part, outputs, each);
    });
  });
}
/// Bytes of it from a workspace.
template <class T, class Scores>
std::size_t stream_bytes(const Sizes& sizes, int workers) {
  Arena arena;
  const Rooms rooms(workers, bytes_of<Stream<T, Scores>, T>(sizes), arena);
  return arena.bytes();
}

}  // namespace ttr::families::pairs
