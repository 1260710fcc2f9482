// Backward of streaming attention, block of pairs by block of pairs, all queries that see it for each: gradients of
// the pairs add up in scratch, those of the queries where the caller wants them. Equations: attention.h.
#include <cmath>
#include <limits>

#include "families/pairs/attention/tiles.h"
#include "simd/denormals.h"

namespace ttr::families::attention {
namespace {

template <class T>
class Backward {
 public:
  Backward(const Simd<T>& simd, int heads, int key_heads, int key_dim, int value_dim, Size longest, Size past,
           Size window, Arena& arena)
      : s(simd),
        a(simd.name ? &attention_simd(simd) : nullptr),
        group(heads / key_heads),
        K(key_dim),
        V(value_dim),
        C(Layout::block_size(window)),
        stream(simd, heads, key_heads, key_dim, value_dim, window, arena) {
    for (T** piece : {&lse, &delta}) *piece = arena.take<T>(group * longest);
    net = arena.take<double>(group * (longest + past));
    for (T** piece : {&k, &kt, &q, &d_k, &buffer}) *piece = arena.take<T>(C * K);
    for (T** piece : {&v, &vt, &d_o, &d_v}) *piece = arena.take<T>(C * V);
    for (T** piece : {&S, &X, &D}) *piece = arena.take<T>(C * C);
    for (T** piece : {&row, &suffix}) *piece = arena.take<T>(C);
    for (double** piece : {&row_sums, &column_sums, &pull}) *piece = arena.take<double>(C);
    behind = arena.take<double>(group), moment = arena.take<double>(group);
  }

  void run(const AttentionProblem<T>& p, const AttentionGradient<T>& d, const Sequence& n, Size lane, int key_head) {
    x = layout_of(p, n, lane);
    const Size total = x.past + x.present;
    const bool gates = p.g && (d.d_g || d.d_past_g);
    if (gates) std::fill_n(net, group * total, 0.0);
    std::fill_n(behind, group, 0.0);
    std::fill_n(moment, group, 0.0);
    statistics(p, d, n, lane, key_head);

    const Block seen = x.seen(0, x.tokens);
    const Size oldest = seen.count > 0 ? x.block_at(seen.begin) : 0;
    // From the newest block to the oldest: the gates between a block of the past and the first token add up.
    for (Size b = seen.count > 0 ? x.block_at(total - 1) : -1; b >= oldest; --b)
      block(p, d, n, lane, key_head, x.block(b), gates);

    for (int r = 0; r < group; ++r) {
      const int head = key_head * group + r;
      if (p.bandwidth && d.d_bandwidth)
        d.d_bandwidth(head) -= static_cast<T>(moment[r] / static_cast<double>(p.bandwidth(head)));
      if (gates) gates_back(d, n, lane, head, net + r * total);
    }
  }

 private:
  // lse and delta of every query
  void statistics(const AttentionProblem<T>& p, const AttentionGradient<T>& d, const Sequence& n, Size lane,
                  int key_head) {
    if (!p.normalise) {  // the weights are e^x as they are
      std::fill_n(lse, group * x.tokens, T(0));
      std::fill_n(delta, group * x.tokens, T(0));
      return;
    }
    const int dim = static_cast<int>(V);
    const auto keep = [&](int head, Block tokens, const T* o, const T* logs) {
      const Size first = n.begin + tokens.begin, to = (head - key_head * group) * x.tokens + tokens.begin;
      std::copy_n(logs, tokens.count, lse + to);
      if (d.d_o) pack(s, d.d_o, n.row, first, tokens.count, head, dim, T(1), d_o);
      if (d.d_o) s.row_dots(tokens.count, V, d_o, V, o, V, delta + to);
      else std::fill_n(delta + to, tokens.count, T(0));
      for (Size i = 0; d.d_lse && i < tokens.count; ++i) delta[to + i] -= d.d_lse(n.row, first + i, head);
    };
    if (d.o && d.lse) {
      for (int r = 0; r < group; ++r)
        for (Size i = 0; i < x.tiles(); ++i) {
          const int head = key_head * group + r;
          const Block tokens = x.tile(i);
          pack(s, d.o, n.row, n.begin + tokens.begin, tokens.count, head, dim, T(1), v);
          for (Size t = 0; t < tokens.count; ++t) row[t] = d.lse(n.row, n.begin + tokens.begin + t, head);
          keep(head, tokens, v, row);
        }
    } else {
      stream.run(p, n, lane, key_head, 1, static_cast<bool>(d.d_o), keep);
    }
    for (int r = 0; p.sink && d.d_sink && r < group; ++r) {
      const int head = key_head * group + r;
      const T sink = p.sink(head);
      if (sink == -std::numeric_limits<T>::infinity()) continue;
      double sum = 0;
      for (Size t = r * x.tokens; t < (r + 1) * x.tokens; ++t)
        sum += static_cast<double>(std::exp(sink - lse[t])) * static_cast<double>(delta[t]);
      d.d_sink(head) -= static_cast<T>(sum);
    }
  }

  void block(const AttentionProblem<T>& p, const AttentionGradient<T>& d, const Sequence& n, Size lane, int key_head,
             Block pairs, bool gates) {
    const int key_dim = static_cast<int>(K), value_dim = static_cast<int>(V);
    const auto keys = place(x, n, lane, p.past_k, p.k, pairs.begin);
    const auto values = place(x, n, lane, p.past_v, p.v, pairs.begin);
    const auto to_keys = place(x, n, lane, d.d_past_k, d.d_k, pairs.begin);
    const auto to_values = place(x, n, lane, d.d_past_v, d.d_v, pairs.begin);
    pack(s, keys.view, keys.row, keys.at, pairs.count, key_head, key_dim, T(1), k);
    s.transpose(pairs.count, K, k, K, kt, C);
    pack(s, values.view, values.row, values.at, pairs.count, key_head, value_dim, T(1), v);
    s.transpose(pairs.count, V, v, V, vt, C);
    finite = a->finite(pairs.count * K, k);
    const Wanted want{static_cast<bool>(d.d_q), static_cast<bool>(to_keys.view), static_cast<bool>(to_values.view),
                      gates};
    std::fill_n(d_k, pairs.count * K, T(0));
    std::fill_n(d_v, pairs.count * V, T(0));
    std::fill_n(pull, pairs.count, 0.0);

    const bool of_past = pairs.begin < x.past;
    const Size first = of_past || !x.causal ? 0 : (pairs.begin - x.past) / C;
    for (int r = 0; r < group; ++r) {
      double between = behind[r];
      if (p.g) {
        const double all =
            suffix_gates(place(x, n, lane, p.past_g, p.g, pairs.begin), pairs.count, key_head * group + r, suffix);
        if (of_past) behind[r] += all;
        else between = 0;
      }
      for (Size i = first; i < x.tiles(); ++i)
        if (!tile(p, d, n, pairs, x.tile(i), key_head * group + r, r, want, &between)) break;
    }

    if (want.keys) {
      for (Size j = 0; p.bandwidth && j < pairs.count; ++j)
        s.axpy(K, static_cast<T>(-pull[j]), k + j * K, d_k + j * K);
      add_rows(s, T(1), d_k, to_keys.row, to_keys.at, pairs.count, key_head, key_dim, to_keys.view);
    }
    if (want.values)
      add_rows(s, T(1), d_v, to_values.row, to_values.at, pairs.count, key_head, value_dim, to_values.view);
  }

  struct Wanted {
    bool queries, keys, values, gates;
  };

  // False if no later tile sees the block.
  bool tile(const AttentionProblem<T>& p, const AttentionGradient<T>& d, const Sequence& n, Block pairs, Block tokens,
            int head, int r, const Wanted& want, double* between) {
    const auto see = x.template sight<T>(tokens, pairs);
    if (see.lo >= see.N) return false;
    const Size first = n.begin + tokens.begin, M = see.M, N = see.N, at = r * x.tokens + tokens.begin;
    const bool own = x.is_own(tokens, pairs);
    typename AttentionSimd<T>::Bias bias;
    if (p.g && own) {
      own_gates(p.g, n.row, first, M, head, D, C);
      bias = {D, C, nullptr};
    } else if (p.g) {
      *between += prefix_gates(p.g, n.row, first, M, head, *between, row);
      bias = {suffix, 0, row};
      if (row[0] == -std::numeric_limits<T>::infinity()) return false;
    }

    pack(s, p.q, n.row, first, M, head, static_cast<int>(K), p.bandwidth ? T(1) : p.scale, q);
    if (p.bandwidth) a->distances(M, N, K, -1 / p.bandwidth(head), q, K, kt, C, S, C);
    else if (own) s.gemm_lower(M, K, T(1), q, K, kt, C, S, C);
    else s.gemm_nn(M, N, K, T(1), q, K, kt, C, T(0), S, C);
    if (d.d_o) {
      pack(s, d.d_o, n.row, first, M, head, static_cast<int>(V), T(1), d_o);
      if (own) s.gemm_lower(M, V, T(1), d_o, V, vt, C, X, C);
      else s.gemm_nn(M, N, V, T(1), d_o, V, vt, C, T(0), X, C);
    } else {
      for (Size i = 0; i < M; ++i) std::fill_n(X + i * C, N, T(0));
    }
    a->softmax_back(see, bias, p.normalise, lse + at, delta + at, S, S, X, C,
                    p.bandwidth && d.d_bandwidth ? moment + r : nullptr);

    // X K goes to the queries, where they lie if they can be written as rows.
    const bool in_place = d.d_q.stride[3] == 1;
    const T rate = p.bandwidth ? 2 / p.bandwidth(head) : p.scale, key_rate = p.bandwidth ? rate : T(1);
    T* const to = !want.queries ? nullptr : in_place ? &d.d_q(n.row, first, head, 0) : buffer;
    const Size ld = in_place ? d.d_q.stride[1] : K;
    if (want.queries && !in_place) std::fill_n(buffer, M * K, T(0));
    const bool values = want.values && d.d_o;
    if (!sees_all(see) && !(finite && a->finite(M * K, q) && (!d.d_o || a->finite(M * V, d_o)))) {
      rows_back(see, values, want.keys, rate, key_rate, to, ld);
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
    if (to && !in_place) add_rows(s, T(1), buffer, n.row, first, M, head, static_cast<int>(K), d.d_q);
    return true;
  }

  // The products of a tile over what is seen alone: 0 times NaN is not 0.
  template <class Sight>
  void rows_back(const Sight& see, bool values, bool keys, T rate, T key_rate, T* to, Size ld) {
    for (Size i = 0; i < see.M; ++i) {
      const Size begin = see.begin(i);
      for (Size j = begin; j < see.end(i); ++j) {
        if (values) s.axpy(V, S[i * C + j], d_o + i * V, d_v + j * V);
        if (keys) s.axpy(K, key_rate * X[i * C + j], q + i * K, d_k + j * K);
        if (to) s.axpy(K, rate * X[i * C + j], k + j * K, to + i * ld);
      }
    }
  }

  // What rows and columns of X add up to: to the gates, and to the Gaussian's q and k.
  void sums_back(const AttentionProblem<T>& p, Block pairs, Block tokens, int r, const Wanted& want, T rate, T* to,
                 Size ld) {
    std::fill_n(row_sums, tokens.count, 0.0);
    std::fill_n(column_sums, pairs.count, 0.0);
    a->add_sums(tokens.count, pairs.count, X, C, row_sums, column_sums);
    if (want.gates) {
      double* const sums = net + r * (x.past + x.present);
      for (Size i = 0; i < tokens.count; ++i) sums[x.past + tokens.begin + i] += row_sums[i];
      for (Size j = 0; j < pairs.count; ++j) sums[pairs.begin + j] -= column_sums[j];
    }
    if (!p.bandwidth) return;
    for (Size j = 0; j < pairs.count; ++j) pull[j] += static_cast<double>(rate) * column_sums[j];
    for (Size i = 0; to && i < tokens.count; ++i)
      s.axpy(K, static_cast<T>(-static_cast<double>(rate) * row_sums[i]), q + i * K, to + i * ld);
  }

  // The oldest gate has no pair before it.
  void gates_back(const AttentionGradient<T>& d, const Sequence& n, Size lane, int head, const double* sums) const {
    double sum = 0;
    for (Size i = x.past + x.present; --i > 0;) {
      sum += sums[i];
      const auto to = place(x, n, lane, d.d_past_g, d.d_g, i);
      if (to.view) to.view(to.row, to.at, head) += static_cast<T>(sum);
    }
  }

  const Simd<T>& s;
  const AttentionSimd<T>* a;
  int group;
  Size K, V, C;
  Stream<T> stream;
  Layout x{};
  T *lse, *delta;  // [group, tokens]
  double* net;     // [group, pairs] rowsum(X) - colsum(X)
  T *k, *kt, *q, *d_k, *buffer, *v, *vt, *d_o, *d_v, *S, *X, *D, *row, *suffix;
  double *row_sums, *column_sums, *pull;
  double *behind, *moment;  // [group] gates from the current block of the past to the first token; sum X x
  bool finite = true;       // of the keys of the block
};

}  // namespace

template <class T>
std::size_t backward_bytes(int heads, int key_heads, int key_dim, int value_dim, Size longest, Size past,
                           Size window) {
  static constexpr Simd<T> none{};
  Arena arena;
  Backward<T>(none, heads, key_heads, key_dim, value_dim, longest, past, window, arena);
  return arena.bytes();
}

template <class T>
Status backward(const AttentionProblem<T>& p, const AttentionGradient<T>& d, const Simd<T>& s,
                Workspace work) noexcept {
  if (const Status status = check(p, true, work); status != Status::ok) return status;
  if (d.d_lse && !p.normalise) return Status::not_supported;
  if (!d.d_o && !d.d_lse) return Status::ok;
  const FlushDenormals flush;
  Size lane = 0;
  for (const Sequence& n : p.sequences) {
    Arena arena(work);
    const Layout x = layout_of(p, n, lane);
    if (x.tokens > 0) {
      Backward<T> run(s, p.heads, p.key_heads, p.key_dim, p.value_dim, x.tokens, x.past, p.window, arena);
      for (int h = 0; h < p.key_heads; ++h) run.run(p, d, n, lane, h);
    }
    ++lane;
  }
  return Status::ok;
}

#define TTR_INSTANTIATE(T)                                                                          \
  template std::size_t backward_bytes<T>(int, int, int, int, Size, Size, Size);                     \
  template Status backward(const AttentionProblem<T>&, const AttentionGradient<T>&, const Simd<T>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::attention
