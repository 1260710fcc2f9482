// Backward of streaming attention, tile of queries by tile of queries. Equations: attention.h.
//
// First the logits and dO V' of all pairs that the tile sees, and from them lse and delta_t = sum_i P_ti dP_ti; then, with
// the same tiles, which are kept that long, the gradients: five products in all, where a pass for the statistics alone would
// make them seven. Of very long sequences only the newest tiles are kept, and older ones computed again. Gradients of the
// pairs add up in scratch, those of a tile of queries beside its numbers.
//
// Tiles are the parts of a team, from the last to the first. What they add to the gradient of a block of pairs keeps that
// order: a part waits until the one before it has passed the block, which it had begun with a block earlier.
#include <cmath>
#include <limits>

#include "families/pairs/attention/scores.h"

namespace ttr::families::attention {
namespace {

// Blocks of pairs whose logits a tile of queries keeps: 4 MB of floats.
constexpr Size most_kept = 128;

Size blocks_of(const pairs::Sizes& sizes) {
  const Size C = Layout::block_of(sizes.window);
  return (sizes.longest + C - 1) / C + (sizes.past + C - 1) / C;
}
// Those of them that a tile of queries sees at most: window + C - 1 pairs in a row, and one block may be short.
Size seen_blocks(const pairs::Sizes& sizes) {
  const Size C = Layout::block_of(sizes.window), all = blocks_of(sizes);
  return sizes.window > 0 ? std::min(all, (sizes.window + C - 1) / C + 2) : all;
}

// What the tiles of queries of a key head share. Block b of the pairs has C rows from b C on.
template <class T>
struct Whole {
  Whole(const Simd<T>& simd, const pairs::Sizes& sizes, Arena& arena)
      : group(sizes.group()),
        statistics(simd, sizes, arena),
        gate_sums(simd.name ? &attention_simd(simd) : nullptr, group, Layout::block_of(sizes.window),
                  sizes.longest + sizes.past, arena) {
    const Size C = Layout::block_of(sizes.window), blocks = blocks_of(sizes), rows = blocks * C;
    const Size parts = group * ((sizes.longest + C - 1) / C);
    for (T** piece : {&k, &kt, &d_k}) *piece = arena.take<T>(rows * sizes.key_dim);
    for (T** piece : {&vt, &d_v}) *piece = arena.take<T>(rows * sizes.value_dim);
    dk_correction = arena.take<double>(rows), finite = arena.take<bool>(blocks);
    moment = arena.take<double>(parts), passed = arena.take<Progress>(parts);
    for (Size i = 0; passed && i < parts; ++i) new (passed + i) Progress;
  }

  int group;
  pairs::Statistics<T> statistics;
  pairs::GateSums<T> gate_sums;
  T *k, *kt, *vt, *d_k, *d_v;  // keys; [K, C] and [V, C] for every block; gradients
  double* dk_correction;
  bool* finite;      // [blocks] of the keys
  double* moment;    // [parts] sum X x
  Progress* passed;  // [parts] blocks of pairs, from the newest on, that a part is done with
};

// What one worker has for them.
template <class T>
class Backward {
 public:
  Backward(const Simd<T>& simd, const pairs::Sizes& sizes, Whole<T>& shared, Arena& arena)
      : s(simd),
        a(simd.name ? &attention_simd(simd) : nullptr),
        group(sizes.group()),
        K(sizes.key_dim),
        V(sizes.value_dim),
        C(Layout::block_of(sizes.window)),
        kept(std::min(most_kept, seen_blocks(sizes))),
        whole(shared),
        statistics(shared.statistics),
        gate_sums(shared.gate_sums, C, arena) {
    for (T** piece : {&q, &d_q}) *piece = arena.take<T>(C * K);
    for (T** piece : {&v, &d_o}) *piece = arena.take<T>(C * V);
    for (T** piece : {&logits, &products}) *piece = arena.take<T>((kept + 1) * C * C);  // one for what is not kept
    for (T** piece : {&D, &Y}) *piece = arena.take<T>(C * C);
    for (T** piece : {&row, &suffix, &top, &mass, &sum}) *piece = arena.take<T>(C);
  }

  /// Block b of the pairs, for all queries.
  void load(const AttentionProblem<T>& p, const Layout& sequence, int key_head, Size b) {
    x = sequence;
    const Block pairs = x.block(b);
    T* const k = keys(b);
    pack(s, x.place(p.past_k, p.k, pairs.begin), pairs.count, key_head, K, k);
    s.transpose(pairs.count, K, k, K, whole.kt + b * C * K, C);
    pack(s, x.place(p.past_v, p.v, pairs.begin), pairs.count, key_head, V, v);
    s.transpose(pairs.count, V, v, V, whole.vt + b * C * V, C);
    whole.finite[b] = a->finite(pairs.count * K, k);
    std::fill_n(whole.d_k + b * C * K, pairs.count * K, T(0));
    std::fill_n(whole.d_v + b * C * V, pairs.count * V, T(0));
    std::fill_n(whole.dk_correction + b * C, pairs.count, 0.0);
  }
  /// Its gradients to the caller.
  void store(const AttentionProblem<T>& p, const AttentionGradient<T>& d, const Layout& sequence, int key_head,
             Size b) {
    x = sequence;
    const Block pairs = x.block(b);
    const auto to_keys = x.place(d.d_past_k, d.d_k, pairs.begin);
    T* const d_k = whole.d_k + b * C * K;
    if (to_keys.view) {
      for (Size j = 0; p.bandwidth && j < pairs.count; ++j)
        s.axpy(K, static_cast<T>(-whole.dk_correction[b * C + j]), keys(b) + j * K, d_k + j * K);
      add_rows(s, d_k, pairs.count, key_head, K, to_keys);
    }
    add_rows(s, whole.d_v + b * C * V, pairs.count, key_head, V, x.place(d.d_past_v, d.d_v, pairs.begin));
  }

  /// Part number `part`: the queries of a tile and a head. Blocks oldest .. newest are all that is seen.
  void tile(const AttentionProblem<T>& p, const AttentionGradient<T>& d, const Layout& sequence, int key_head,
            Size part, Size oldest, Size newest, bool gates) {
    x = sequence, tokens = x.tile(x.tiles() - 1 - part / group), r = static_cast<int>(part % group);
    head = key_head * group + r;
    pack(s, p.q, x.row(), x.token(tokens), tokens.count, head, static_cast<int>(K), Scores<T>::query_scale(p), q);
    if (d.d_o) pack(s, d.d_o, x.row(), x.token(tokens), tokens.count, head, static_cast<int>(V), T(1), d_o);
    std::fill_n(d_q, tokens.count * K, T(0));
    whole.moment[part] = 0;
    const Block seen = x.seen(tokens.begin, tokens.count);
    first = seen.count > 0 ? x.block_at(seen.begin + seen.count - 1) : -1;
    last = seen.count > 0 ? x.block_at(seen.begin) : 0;
    const bool stored = find_statistics(p, d);

    Walk walk{gates_before(p, x, tokens, head)};
    for (Size b = first; b >= last; --b) {
      typename AttentionSimd<T>::Bias bias;
      if (!next(p, b, &walk, &bias)) break;
      const bool there = stored && first - b < kept;
      const Size slot = (there ? first - b : kept) * C * C;
      if (!there) form(p, d, b, logits + slot, products + slot);
      back(p, d, b, bias, logits + slot, products + slot, part, newest, gates);
      whole.passed[part].reach(newest - b + 1);
    }
    // A part that sees less than the one before it is not done before that one.
    const Size all = newest - oldest + 1;
    if (part > 0) whole.passed[part - 1].wait(all);
    if (d.d_q) add_rows(s, T(1), d_q, x.row(), x.token(tokens), tokens.count, head, static_cast<int>(K), d.d_q);
    whole.passed[part].reach(all);
  }

  void sink_back(const AttentionProblem<T>& p, const AttentionGradient<T>& d, const Layout& sequence, int key_head) {
    for (int n = 0; p.normalise && p.sink && d.d_sink && n < group; ++n) {
      const int to = key_head * group + n;
      const T sink = p.sink(to);
      if (sink == -std::numeric_limits<T>::infinity()) continue;
      double total = 0;
      for (Size t = n * sequence.tokens; t < (n + 1) * sequence.tokens; ++t)
        total += static_cast<double>(std::exp(sink - statistics.lse[t])) * static_cast<double>(statistics.delta[t]);
      d.d_sink(to) -= static_cast<T>(total);
    }
  }

 private:
  T* keys(Size b) const { return whole.k + b * C * K; }
  MaskRange visible(Size b) const { return x.visible(tokens, x.block(b)); }

  // From the newest block to the oldest: the gates between add up.
  struct Walk {
    double between = 0;
  };
  // What gates add to the logits of block b; false if neither it nor an older one is seen through them.
  bool next(const AttentionProblem<T>& p, Size b, Walk* walk, typename AttentionSimd<T>::Bias* bias) {
    if (!p.g) return true;
    const Block pairs = x.block(b);
    if (x.is_own(tokens, pairs)) {
      own_gates(s, T(1), p.g, x, tokens, head, D, C);
      *bias = {D, C, nullptr};
      return true;
    }
    prefix_gates(s, T(1), p.g, x, tokens, head, walk->between, row);
    walk->between += suffix_gates(s, T(1), x.place(p.past_g, p.g, pairs.begin), pairs.count, head, suffix);
    *bias = {suffix, 0, row};
    return row[0] != -std::numeric_limits<T>::infinity();
  }

  // S = the logits of block b, X = dO V'
  void form(const AttentionProblem<T>& p, const AttentionGradient<T>& d, Size b, T* S, T* X) const {
    const MaskRange range = visible(b);
    const bool own = x.is_own(tokens, x.block(b));
    const T* const vt = whole.vt + b * C * V;
    Scores<T>::logits(s, a, p, head, own, range, K, q, whole.kt + b * C * K, C, S);
    if (!d.d_o)
      for (Size i = 0; i < range.M; ++i) std::fill_n(X + i * C, range.N, T(0));
    else if (own) s.gemm_lower(range.M, V, T(1), d_o, V, vt, C, X, C);
    else s.gemm_nn(range.M, range.N, V, T(1), d_o, V, vt, C, T(0), X, C);
  }

  // lse and delta of the queries. True: `form` was called for all blocks, and the first `kept` are where they belong.
  bool find_statistics(const AttentionProblem<T>& p, const AttentionGradient<T>& d) {
    const Size at = statistics.at(x, r, tokens), M = tokens.count;
    T *const lse = statistics.lse + at, *const delta = statistics.delta + at;
    std::fill_n(lse, M, T(p.polynomial ? 1 : 0)), std::fill_n(delta, M, T(0));
    if (!p.normalise) return false;  // the weights are e^x, or f(x), as they are
    if (d.o && d.lse) {
      pack(s, d.o, x.row(), x.token(tokens), M, head, static_cast<int>(V), T(1), v);
      for (Size t = 0; t < M; ++t) row[t] = d.lse(x.row(), x.token(tokens) + t, head);
      statistics.keep(x, head, tokens, v, row, d.d_o, d.d_lse, d_o);
      for (Size t = 0; p.polynomial && t < M; ++t) lse[t] = lse[t] == T(0) ? T(0) : 1 / lse[t];
      return false;
    }
    const auto [start, weight] = Scores<T>::start(p, head);
    std::fill_n(top, M, start), std::fill_n(mass, M, weight), std::fill_n(sum, M, T(0));
    Walk walk{gates_before(p, x, tokens, head)};
    for (Size b = first; b >= last; --b) {
      typename AttentionSimd<T>::Bias bias;
      if (!next(p, b, &walk, &bias)) break;
      const Size slot = std::min(first - b, kept) * C * C;
      T *const S = logits + slot, *const X = products + slot;
      form(p, d, b, S, X);
      if (p.polynomial) gather_weights(p, visible(b), bias, S, X);
      else a->gather(visible(b), bias, S, X, C, top, mass, sum);
    }
    for (Size i = 0; i < M; ++i) {
      if (p.polynomial) mass[i] += p.eps;
      const T inverse = mass[i] == T(0) ? T(0) : 1 / mass[i];
      lse[i] = p.polynomial ? inverse : top[i] + std::log(mass[i]);
      delta[i] = inverse * sum[i];
      if (d.d_lse) delta[i] -= d.d_lse(x.row(), x.token(tokens) + i, head);
    }
    return true;
  }
  // The same for weights that are no softmax.
  void gather_weights(const AttentionProblem<T>& p, const MaskRange& range,
                      const typename AttentionSimd<T>::Bias& bias, const T* S, const T* X) {
    for (Size i = 0; i < range.M; ++i) std::copy_n(S + i * C, range.N, Y + i * C);
    a->weigh(range, bias, p.weight, Y, C, mass);
    for (Size i = 0; i < range.M; ++i) {
      const Size begin = range.begin(i), count = range.end(i) - begin;
      if (count > 0) sum[i] += s.dot(count, Y + i * C + begin, X + i * C + begin);
    }
  }

  // What follows from S and X of block b.
  void back(const AttentionProblem<T>& p, const AttentionGradient<T>& d, Size b,
            const typename AttentionSimd<T>::Bias& bias, T* S, T* X, Size part, Size newest, bool gates) {
    const MaskRange range = visible(b);
    const Block pairs = x.block(b);
    const Size M = range.M, N = range.N, at = statistics.at(x, r, tokens);
    const bool own = x.is_own(tokens, pairs);
    if (p.polynomial)
      a->weigh_back(range, bias, p.weight, statistics.lse + at, statistics.delta + at, S, S, X, gates ? Y : nullptr,
                    C);
    else
      a->softmax_back(range, bias, p.normalise, statistics.lse + at, statistics.delta + at, S, S, X, C,
                      p.bandwidth && d.d_bandwidth ? whole.moment + part : nullptr);

    const T rate = p.bandwidth ? 2 / p.bandwidth(head) : p.scale, key_rate = p.bandwidth ? rate : T(1);
    const bool past = pairs.begin < x.past;
    const bool to_values = d.d_o && (past ? d.d_past_v : d.d_v),
               to_keys = static_cast<bool>(past ? d.d_past_k : d.d_k);
    const bool to_queries = static_cast<bool>(d.d_q);
    const T* const k = keys(b);
    T *const d_k = whole.d_k + b * C * K, *const d_v = whole.d_v + b * C * V;
    const bool by_rows =
        !range.all() && !(whole.finite[b] && a->finite(M * K, q) && (!d.d_o || a->finite(M * V, d_o)));
    if (to_queries && !by_rows) {
      if (own) s.trmm_nn(M, K, rate, X, C, k, K, T(1), d_q, K);
      else s.gemm_nn(M, K, N, rate, X, C, k, K, T(1), d_q, K);
    }
    if (part > 0) whole.passed[part - 1].wait(newest - b + 1);  // whose turn it is to add to the pairs
    if (by_rows) {
      rows_back(range, to_values, to_keys, to_queries, rate, key_rate, S, X, k, d_k, d_v);
    } else if (own) {
      if (to_values) s.trmm_tn(M, V, T(1), S, C, d_o, V, T(1), d_v, V);
      if (to_keys) s.trmm_tn(M, K, key_rate, X, C, q, K, T(1), d_k, K);
    } else {
      if (to_values) s.gemm_tn(N, V, M, T(1), S, C, d_o, V, T(1), d_v, V);
      if (to_keys) s.gemm_tn(N, K, M, key_rate, X, C, q, K, T(1), d_k, K);
    }
    if (gates || p.bandwidth) sums_back(p, b, gates, rate, X, to_queries);
  }

  // The products of a tile over what is seen alone: 0 times NaN is not 0.
  void rows_back(const MaskRange& range, bool values, bool to_keys, bool queries, T rate, T key_rate, const T* S,
                 const T* X, const T* k, T* d_k, T* d_v) {
    for (Size i = 0; i < range.M; ++i) {
      for (Size j = range.begin(i); j < range.end(i); ++j) {
        if (values) s.axpy(V, S[i * C + j], d_o + i * V, d_v + j * V);
        if (to_keys) s.axpy(K, key_rate * X[i * C + j], q + i * K, d_k + j * K);
        if (queries) s.axpy(K, rate * X[i * C + j], k + j * K, d_q + i * K);
      }
    }
  }

  // What rows and columns of X add up to: to the gates, and to the Gaussian's q and k.
  void sums_back(const AttentionProblem<T>& p, Size b, bool gates, T rate, T* X, bool queries) {
    const Block pairs = x.block(b);
    gate_sums.sum(x, tokens, pairs, p.polynomial ? Y : X, C);
    if (gates) gate_sums.add(x, r, tokens, pairs);
    if (!p.bandwidth) return;
    gate_sums.with_own();
    double* const correction = whole.dk_correction + b * C;
    for (Size j = 0; j < pairs.count; ++j) correction[j] += static_cast<double>(rate) * gate_sums.columns[j];
    for (Size i = 0; queries && i < tokens.count; ++i)
      s.axpy(K, static_cast<T>(-static_cast<double>(rate) * gate_sums.rows[i]), q + i * K, d_q + i * K);
  }

  const Simd<T>& s;
  const AttentionSimd<T>* a;
  int group;
  Size K, V, C, kept;
  Layout x{};
  Block tokens{};
  int r = 0, head = 0;
  Size first = 0, last = 0;  // blocks that the tile sees, the newest and the oldest
  Whole<T>& whole;
  pairs::Statistics<T>& statistics;
  pairs::GateSums<T> gate_sums;
  T *q, *d_q, *v, *d_o;
  T *logits, *products;  // [kept + 1, C, C]
  T *D, *Y, *row, *suffix, *top, *mass, *sum;
};

// The rooms of all workers, and what they share.
template <class T>
struct Scratch {
  Scratch(const Simd<T>& simd, const pairs::Sizes& of, int workers, Arena& arena)
      : s(simd), sizes(of), whole(simd, sizes, arena), rooms(workers, bytes(), arena) {}
  Backward<T> of(int worker) {
    Arena own = rooms.of(worker);
    return Backward<T>(s, sizes, whole, own);
  }
  std::size_t bytes() {
    static constexpr Simd<T> none{};
    Arena arena;
    Backward<T>(none, sizes, whole, arena);
    return arena.bytes();
  }

  const Simd<T>& s;
  pairs::Sizes sizes;
  Whole<T> whole;
  Rooms rooms;
};

template <class T>
void back_key_head(const AttentionProblem<T>& p, const AttentionGradient<T>& d, const Layout& x, int key_head,
                   Scratch<T>& scratch) {
  const int group = p.group();
  const bool gates = p.g && (d.d_g || d.d_past_g);
  Whole<T>& whole = scratch.whole;
  if (gates) whole.gate_sums.clear(x, group);
  const Block seen = x.seen(0, x.tokens);
  const Size oldest = seen.count > 0 ? x.block_at(seen.begin) : 0;
  const Size newest = seen.count > 0 ? x.block_at(x.pairs() - 1) : oldest - 1;
  const Size blocks = newest - oldest + 1, parts = group * x.tiles();
  p.team.each(blocks, [&](Size b, int worker) { scratch.of(worker).load(p, x, key_head, oldest + b); });
  for (Size i = 0; i < parts; ++i) whole.passed[i].reset();
  p.team.each(parts, [&](Size part, int worker) {
    const FlushDenormals flush;
    scratch.of(worker).tile(p, d, x, key_head, part, oldest, newest, gates);
  });
  Backward<T> own = scratch.of(0);
  p.team.each(blocks, [&](Size b, int worker) { scratch.of(worker).store(p, d, x, key_head, oldest + b); });
  own.sink_back(p, d, x, key_head);

  for (int r = 0; r < group; ++r) {
    const int head = key_head * group + r;
    double moment = 0;
    for (Size part = r; part < parts; part += group) moment += whole.moment[part];
    if (p.bandwidth && d.d_bandwidth)
      d.d_bandwidth(head) -= static_cast<T>(moment / static_cast<double>(p.bandwidth(head)));
    if (gates) whole.gate_sums.back(x, r, head, T(1), d.d_past_g, d.d_g);
  }
}

}  // namespace

template <class T>
std::size_t backward_bytes(const pairs::Sizes& sizes, int workers) {
  static constexpr Simd<T> none{};
  Arena arena;
  Scratch<T>(none, sizes, workers, arena);
  return arena.bytes();
}

template <class T>
Status backward(const AttentionProblem<T>& p, const AttentionGradient<T>& d, const Simd<T>& s,
                Workspace work) noexcept {
  pairs::Sizes sizes;
  if (const Status status = check(p, true, work, &sizes); status != Status::ok) return status;
  if (d.d_lse && !p.normalise) return Status::not_supported;
  if (!d.d_o && !d.d_lse) return Status::ok;
  const FlushDenormals flush;
  pairs::each_sequence(p, [&](std::size_t n) {
    const Layout x = pairs::layout_of(p, n);
    sizes.longest = x.tokens, sizes.past = x.past;
    Arena arena(work);
    Scratch<T> scratch(s, sizes, p.team.workers(), arena);
    for (int h = 0; h < p.key_heads; ++h) back_key_head(p, d, x, h, scratch);
  });
  return Status::ok;
}

#define TTR_INSTANTIATE(T)                                                                          \
  template std::size_t backward_bytes<T>(const pairs::Sizes&, int);                                 \
  template Status backward(const AttentionProblem<T>&, const AttentionGradient<T>&, const Simd<T>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::attention
