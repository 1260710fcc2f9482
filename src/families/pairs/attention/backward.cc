// Backward of streaming attention, block of pairs by block of pairs, all queries that see it for each: gradients of
// the pairs add up in scratch, those of the queries where the caller wants them. Equations: attention.h.
//
// Blocks are the parts of a team, from the newest pairs to the oldest. What they add to the gradient of a tile of queries
// keeps that order: a block waits until the one before it has passed the tile, which it had begun with a tile earlier.
#include <cmath>
#include <limits>

#include "families/pairs/attention/scores.h"

namespace ttr::families::attention {
namespace {

// What the blocks of pairs of a key head share.
template <class T>
struct Whole {
  Whole(const Simd<T>& simd, const pairs::Sizes& sizes, Arena& arena)
      : group(sizes.group()),
        statistics(simd, sizes, arena),
        gate_sums(simd.name ? &attention_simd(simd) : nullptr, group, Layout::block_of(sizes.window),
                  sizes.longest + sizes.past, arena) {
    const Size C = Layout::block_of(sizes.window), blocks = (sizes.longest + C - 1) / C + (sizes.past + C - 1) / C;
    behind = arena.take<double>(group * blocks), moment = arena.take<double>(group * blocks);
    passed = arena.take<Progress>(blocks);
    for (Size b = 0; passed && b < blocks; ++b) new (passed + b) Progress;
  }

  int group;
  pairs::Statistics<T> statistics;
  pairs::GateSums<T> gate_sums;
  // [blocks, group] gates from a block of the past to the first token; sum X x
  double *behind, *moment;
  Progress* passed;  // tiles of queries, those of one head after the other, that a block is done with
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
        stream(simd, sizes, arena),
        whole(shared),
        statistics(shared.statistics),
        gate_sums(shared.gate_sums, C, arena) {
    for (T** piece : {&k, &kt, &q, &d_k, &buffer}) *piece = arena.take<T>(C * K);
    for (T** piece : {&v, &vt, &d_o, &d_v}) *piece = arena.take<T>(C * V);
    for (T** piece : {&S, &X, &D, &Y}) *piece = arena.take<T>(C * C);
    for (T** piece : {&row, &suffix}) *piece = arena.take<T>(C);
    dk_correction = arena.take<double>(C);
  }

  /// lse and delta of the queries: as many parts of a team.
  Size statistics_parts(const AttentionProblem<T>& p, const AttentionGradient<T>& d, const Layout& sequence) const {
    return !p.normalise || (d.o && d.lse) || sequence.tokens == 1 ? 1 : stream.parts(sequence, 1);
  }
  void find_statistics(const AttentionProblem<T>& p, const AttentionGradient<T>& d, const Layout& sequence,
                       int key_head, Size part) {
    x = sequence;
    if (!p.normalise) {  // the weights are e^x, or f(x), as they are
      std::fill_n(statistics.lse, group * x.tokens, T(p.polynomial ? 1 : 0));
      std::fill_n(statistics.delta, group * x.tokens, T(0));
      return;
    }
    const auto keep = [&](int head, Block tokens, const T* o, const T* logs) {
      statistics.keep(x, head, tokens, o, logs, d.d_o, d.d_lse, d_o);
    };
    if (d.o && d.lse) {
      for (int head = key_head * group; head < (key_head + 1) * group; ++head)
        for (Size i = 0; i < x.tiles(); ++i) {
          const Block tokens = x.tile(i);
          pack(s, d.o, x.row(), x.token(tokens), tokens.count, head, static_cast<int>(V), T(1), v);
          for (Size t = 0; t < tokens.count; ++t) row[t] = d.lse(x.row(), x.token(tokens) + t, head);
          keep(head, tokens, v, row);
        }
    } else if (x.tokens == 1) {
      stream.run(p, x, key_head, 1, static_cast<bool>(d.d_o), keep);
    } else {
      stream.run_part(p, x, key_head, 1, part, static_cast<bool>(d.d_o), keep);
    }
  }
  /// What is done once with all of them.
  void finish_statistics(const AttentionProblem<T>& p, const AttentionGradient<T>& d, const Layout& sequence,
                         int key_head) {
    x = sequence;
    for (Size t = 0; p.normalise && p.polynomial && t < group * x.tokens; ++t)
      statistics.lse[t] = statistics.lse[t] == T(0) ? T(0) : 1 / statistics.lse[t];
    for (int r = 0; p.normalise && p.sink && d.d_sink && r < group; ++r) {
      const int head = key_head * group + r;
      const T sink = p.sink(head);
      if (sink == -std::numeric_limits<T>::infinity()) continue;
      double sum = 0;
      for (Size t = r * x.tokens; t < (r + 1) * x.tokens; ++t)
        sum += static_cast<double>(std::exp(sink - statistics.lse[t])) * static_cast<double>(statistics.delta[t]);
      d.d_sink(head) -= static_cast<T>(sum);
    }
    // From the newest block to the oldest: the gates between a block of the past and the first token add up.
    for (int r = 0; p.g && r < group; ++r) {
      double sum = 0;
      for (Size b = x.past_blocks(); b-- > 0;) {
        whole.behind[b * group + r] = sum;
        const Block pairs = x.block(b);
        sum += suffix_gates(s, T(1), x.place(p.past_g, p.g, pairs.begin), pairs.count, key_head * group + r, suffix);
      }
    }
  }

  /// Block b of the pairs; `newest`: the last that there is.
  void block(const AttentionProblem<T>& p, const AttentionGradient<T>& d, const Layout& sequence, int key_head,
             Size b, Size newest, bool gates) {
    x = sequence, index = b, last = newest;
    const Block pairs = x.block(b);
    const auto to_keys = x.place(d.d_past_k, d.d_k, pairs.begin);
    const auto to_values = x.place(d.d_past_v, d.d_v, pairs.begin);
    pack(s, x.place(p.past_k, p.k, pairs.begin), pairs.count, key_head, K, k);
    s.transpose(pairs.count, K, k, K, kt, C);
    pack(s, x.place(p.past_v, p.v, pairs.begin), pairs.count, key_head, V, v);
    s.transpose(pairs.count, V, v, V, vt, C);
    finite = a->finite(pairs.count * K, k);
    const Wanted want{static_cast<bool>(d.d_q), static_cast<bool>(to_keys.view), static_cast<bool>(to_values.view),
                      gates};
    std::fill_n(d_k, pairs.count * K, T(0));
    std::fill_n(d_v, pairs.count * V, T(0));
    std::fill_n(dk_correction, pairs.count, 0.0);
    std::fill_n(whole.moment + b * group, group, 0.0);

    for (int r = 0; r < group; ++r) {
      double between = 0;
      if (p.g) {
        suffix_gates(s, T(1), x.place(p.past_g, p.g, pairs.begin), pairs.count, key_head * group + r, suffix);
        if (pairs.begin < x.past) between = whole.behind[b * group + r];
      }
      for (Size i = first_tile(b); i < x.tiles(); ++i) {
        number = i;
        if (!tile(p, d, pairs, x.tile(i), key_head * group + r, r, want, &between)) break;
        whole.passed[b].reach(r * x.tiles() + i + 1);
      }
      whole.passed[b].reach((r + 1) * x.tiles());
    }

    if (want.keys) {
      for (Size j = 0; p.bandwidth && j < pairs.count; ++j)
        s.axpy(K, static_cast<T>(-dk_correction[j]), k + j * K, d_k + j * K);
      add_rows(s, d_k, pairs.count, key_head, K, to_keys);
    }
    add_rows(s, d_v, pairs.count, key_head, V, to_values);
  }

 private:
  // The first tile of queries that sees block b.
  Size first_tile(Size b) const { return b < x.past_blocks() || !x.causal ? 0 : b - x.past_blocks(); }
  // Until the gradient of the tile of head `r` has what newer blocks add to it.
  void wait_for_turn(int r) const {
    if (index < last && number >= first_tile(index + 1)) whole.passed[index + 1].wait(r * x.tiles() + number + 1);
  }

  struct Wanted {
    bool queries, keys, values, gates;
  };

  // False if no later tile sees the block.
  bool tile(const AttentionProblem<T>& p, const AttentionGradient<T>& d, Block pairs, Block tokens, int head, int r,
            const Wanted& want, double* between) {
    const MaskRange visible = x.visible(tokens, pairs);
    if (visible.lo >= visible.N) return false;
    const Size first = x.token(tokens), M = visible.M, N = visible.N, at = statistics.at(x, r, tokens);
    const bool own = x.is_own(tokens, pairs);
    typename AttentionSimd<T>::Bias bias;
    if (p.g && own) {
      own_gates(s, T(1), p.g, x, tokens, head, D, C);
      bias = {D, C, nullptr};
    } else if (p.g) {
      *between += prefix_gates(s, T(1), p.g, x, tokens, head, *between, row);
      bias = {suffix, 0, row};
      if (row[0] == -std::numeric_limits<T>::infinity()) return false;
    }

    pack(s, p.q, x.row(), first, M, head, static_cast<int>(K), Scores<T>::query_scale(p), q);
    Scores<T>::logits(s, a, p, head, own, visible, K, q, kt, C, S);
    if (d.d_o) {
      pack(s, d.d_o, x.row(), first, M, head, static_cast<int>(V), T(1), d_o);
      if (own) s.gemm_lower(M, V, T(1), d_o, V, vt, C, X, C);
      else s.gemm_nn(M, N, V, T(1), d_o, V, vt, C, T(0), X, C);
    } else {
      for (Size i = 0; i < M; ++i) std::fill_n(X + i * C, N, T(0));
    }
    if (p.polynomial)
      a->weigh_back(visible, bias, p.weight, statistics.lse + at, statistics.delta + at, S, S, X,
                    want.gates ? Y : nullptr, C);
    else
      a->softmax_back(visible, bias, p.normalise, statistics.lse + at, statistics.delta + at, S, S, X, C,
                      p.bandwidth && d.d_bandwidth ? whole.moment + index * group + r : nullptr);

    // X K goes to the queries, where they lie if they can be written as rows.
    const bool in_place = d.d_q.stride[3] == 1;
    const T rate = p.bandwidth ? 2 / p.bandwidth(head) : p.scale, key_rate = p.bandwidth ? rate : T(1);
    T* const to = !want.queries ? nullptr : in_place ? &d.d_q(x.row(), first, head, 0) : buffer;
    const Size ld = in_place ? d.d_q.stride[1] : K;
    if (want.queries && !in_place) std::fill_n(buffer, M * K, T(0));
    const bool values = want.values && d.d_o;
    wait_for_turn(r);
    if (!visible.all() && !(finite && a->finite(M * K, q) && (!d.d_o || a->finite(M * V, d_o)))) {
      rows_back(visible, values, want.keys, rate, key_rate, to, ld);
    } else if (own) {
      if (values) s.trmm_tn(M, V, T(1), S, C, d_o, V, T(1), d_v, V);
      if (want.keys) s.trmm_tn(M, K, key_rate, X, C, q, K, T(1), d_k, K);
      if (to) s.trmm_nn(M, K, rate, X, C, k, K, T(1), to, ld);
    } else {
      if (values) s.gemm_tn(N, V, M, T(1), S, C, d_o, V, T(1), d_v, V);
      if (want.keys) s.gemm_tn(N, K, M, key_rate, X, C, q, K, T(1), d_k, K);
      if (to) s.gemm_nn(M, K, N, rate, X, C, k, K, T(1), to, ld);
    }
    if (want.gates || p.bandwidth) sums_back(p, pairs, tokens, r, want, rate, to, ld);
    if (to && !in_place) add_rows(s, T(1), buffer, x.row(), first, M, head, static_cast<int>(K), d.d_q);
    return true;
  }

  // The products of a tile over what is seen alone: 0 times NaN is not 0.
  void rows_back(const MaskRange& visible, bool values, bool keys, T rate, T key_rate, T* to, Size ld) {
    for (Size i = 0; i < visible.M; ++i) {
      const Size begin = visible.begin(i);
      for (Size j = begin; j < visible.end(i); ++j) {
        if (values) s.axpy(V, S[i * C + j], d_o + i * V, d_v + j * V);
        if (keys) s.axpy(K, key_rate * X[i * C + j], q + i * K, d_k + j * K);
        if (to) s.axpy(K, rate * X[i * C + j], k + j * K, to + i * ld);
      }
    }
  }

  // What rows and columns of X add up to: to the gates, and to the Gaussian's q and k.
  void sums_back(const AttentionProblem<T>& p, Block pairs, Block tokens, int r, const Wanted& want, T rate, T* to,
                 Size ld) {
    gate_sums.sum(x, tokens, pairs, p.polynomial ? Y : X, C);
    if (want.gates) gate_sums.add(x, r, tokens, pairs);
    if (!p.bandwidth) return;
    gate_sums.with_own();
    for (Size j = 0; j < pairs.count; ++j) dk_correction[j] += static_cast<double>(rate) * gate_sums.columns[j];
    for (Size i = 0; to && i < tokens.count; ++i)
      s.axpy(K, static_cast<T>(-static_cast<double>(rate) * gate_sums.rows[i]), q + i * K, to + i * ld);
  }

  const Simd<T>& s;
  const AttentionSimd<T>* a;
  int group;
  Size K, V, C;
  Stream<T> stream;
  Layout x{};
  Whole<T>& whole;
  pairs::Statistics<T>& statistics;
  pairs::GateSums<T> gate_sums;
  Size index = 0, last = 0, number = 0;  // of the block, of the newest one, of the tile
  T *k, *kt, *q, *d_k, *buffer, *v, *vt, *d_o, *d_v, *S, *X, *D, *Y, *row, *suffix;
  double* dk_correction;
  bool finite = true;  // of the keys of the block
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
  Backward<T> own = scratch.of(0);
  p.team.each(own.statistics_parts(p, d, x), [&](Size part, int worker) {
    const FlushDenormals flush;
    scratch.of(worker).find_statistics(p, d, x, key_head, part);
  });
  own.finish_statistics(p, d, x, key_head);

  const Block seen = x.seen(0, x.tokens);
  const Size oldest = seen.count > 0 ? x.block_at(seen.begin) : 0;
  const Size newest = seen.count > 0 ? x.block_at(x.pairs() - 1) : oldest - 1;
  for (Size b = oldest; b <= newest; ++b) whole.passed[b].reset();
  p.team.each(newest - oldest + 1, [&](Size part, int worker) {
    const FlushDenormals flush;
    scratch.of(worker).block(p, d, x, key_head, newest - part, newest, gates);
  });

  for (int r = 0; r < group; ++r) {
    const int head = key_head * group + r;
    double moment = 0;
    for (Size b = newest; b >= oldest; --b) moment += whole.moment[b * group + r];
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
