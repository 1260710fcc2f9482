// Chunk form of scalar decay and of the delta rule, for one head: exact block algebra (math: UT transform).
//
// Rows i of a chunk of c tokens, S_0 at its start, G = cumsum(g), Q already scaled; a token writes with its key times
// its step, B = diag(beta) K:
//
//   D_ij = e^{G_i - G_j} (j <= i)     e_i = e^{G_i}     t_j = e^{G_c - G_j} = D_cj     e-_i = e_{i-1}, e-_1 = 1
//   add    W = V
//   delta  N = stril(K B' * D),  (I + N) W = V - diag(r) K S_0,  r = e
//          (undecayed: row i takes the gates up to i-1, that is row i-1 of D, and r = e-)
//   O  = diag(e) Q S_0 + tril(Q B' * D) W          S' = e_c S_0 + (diag(t) B)' W
//
// Backward, dS' in, dS_0 out. The read of the delta rule is one more query, with dR for dO:
//
//   dW  = diag(t) B dS' + tril(Q B' * D)' dO     dR = (I + N)^{-T} dW  (add: dW)     dV = dR
//   X   = tril(dO W' * D)                        E = -stril(dR W' * D)
//   dQ  = diag(e) dO S_0' + X B                  dKr = E B - diag(r) dR S_0'
//   dB  = diag(t) W dS'' + X' Q + E' K           dK = dKr + diag(beta) dB,  dbeta = rowdot(K, dB)
//   dS_0 = e_c dS' + Q' diag(e) dO - K' diag(r) dR                               (add: no E, no dKr)
//   dg: gate_pairs.h with M = (Q B' * D) * (dO W') - N * (dR W'); reads of S_0: rowdots of Q and K with the parts of dQ
//   and dKr that come from it; writes to the end: rowdot(B, diag(t) W dS''); across: e_c <S_0, dS'>. Undecayed: row i
//   of N and of K counts at row i-1.
//
// Flops per token, triangles as half a product: forward 4 K V + C (K + V), delta 6 K V + 2 C (K + V); backward
// 8 K V + C (3 K + 2 V), delta 12 K V + C (6 K + 4 V), and 2 K V, 4 K V for a pass that finds the states and W again where
// forward has not left them (common/saved.h).
//
// Forward there is a shorter way as long as the gates are bounded: tokens go through e^{-G} S, which has no gates, in
// groups (groups-inl.h) and frames (gates.h), in which G starts anew. What they write is multiplied by e^{-G_i}, what they
// read by e^{G_i}, and the state at the end of a frame by e^{G_c}:
//
//   u_i = e^{-G_i} beta_i v_i - beta_i x_i ,  x_i = S' k_i  (undecayed: times e^{-g_i})     o_i = e^{G_i} S' q_i
//
// Backward a decayed sum has such a way too (swept_gradient.h); the delta rule goes by products.
//
// Traps: what lies above a diagonal is undefined and reaches no result; D comes from sums of gates, not from
// differences (strong gates cancel) and not from e^{-G} (overflows). S_0' means the transpose, S' the end state.
// beta may be zero: nothing is divided by it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

#include "families/common/gate_pairs.h"
#include "families/common/linear.h"
#include "families/common/prefetch.h"
#include "families/common/scratch.h"
#include "families/linear/gates.h"
#include "families/linear/half_sweep.h"
#include "families/linear/scalar/rule.h"
#include "families/linear/scalar/swept_gradient.h"
#include "families/linear/state_simd.h"
#include "simd/simd.h"

namespace ttr::families {

template <class T, Rule rule>
class ChunkForm {
 public:
  using Size = std::ptrdiff_t;

  /// Takes its panels from the arena; C is the largest number of tokens in one chunk.
  ChunkForm(const Simd<T>& simd, int key_dim, int value_dim, Size chunk, bool backward, Arena& arena)
      : s(simd),
        through(state_simd(simd)),
        K(key_dim),
        V(value_dim),
        C(chunk),
        hints(simd, backward ? 0 : longest_in_products),
        sweep_hints(simd, longest_in_sweeps) {
    const Size stack = reads(rule) ? 2 * C : C;  // queries above reads
    x = arena.take<T>(2 * C * K), w = arena.take<T>(C * V), kt = arena.take<T>(K * C), o = arena.take<T>(C * V);
    T* const rows = arena.take<T>((C + 1) * C);
    D = rows ? rows + C : nullptr, P = arena.take<T>(C * C);  // row -1: the shifted row of the first token
    g = arena.take<T>(C), beta = arena.take<T>(C), e = arena.take<T>(C + 1), sums = arena.take<T>(C);
    rests = arena.take<T>(C), skip = arena.take<T>(C), ends = arena.take<Size>(C), factors = arena.take<T>(2 * C),
    swept = arena.take<T>(StateSimd<T>::sweep_scratch(K));
    if (reads(rule)) N = arena.take<T>(C * C), kept_rows = arena.take<T>(C * V);
    if (!backward) return;
    y = arena.take<T>(stack * V), wt = arena.take<T>(V * C), st = arena.take<T>(V * K), d_st = arena.take<T>(V * K),
    state_dots = arena.take<T>(K);
    d_q = arena.take<T>(C * K), d_b = arena.take<T>(C * K), kb = arena.take<T>(C * K);
    spare = arena.take<T>(C * std::max(K, V));
    dots = arena.take<T>(C), read_dots = arena.take<T>(C), X = arena.take<T>(C * C), gates = GatePairs<T>(C, arena);
    if (reads(rule)) E = arena.take<T>(C * C), d_kr = arena.take<T>(C * K);
    else swept_gradient.emplace(simd, key_dim, value_dim, chunk, arena);
  }

  /// A copy that nobody reads soon, and room for the rows of a chunk on their way there. After flush() others see it, and
  /// gradients that went past the caches.
  void stream(Size n, const T* from, T* to) const { through.stream(n, from, to); }
  void flush() const { through.flush(); }
  T* rows() { return kept_rows; }
  /// The state and the rows that the next backward() will want; null: they are at hand.
  void expect(const T* state, const T* rows, const SlotShape& sizes) {
    next_state = state, next_rows = rows, next_sizes = sizes;
  }

  /// Gradients are more than caches hold: rows that are written once go past them.
  void write_far(bool far) {
    past = far;
    if (swept_gradient) swept_gradient->write_far(far);
  }

  /// No sweeps over the state: all through products of matrices.
  void by_products() { sweeps = false; }

  /// Numbers that forward keeps of one chunk for backward: W.
  static Size kept(int value_dim, Size chunk) { return reads(rule) ? chunk * value_dim : 0; }

  /// Tokens begin .. begin+c-1 of a batch row: writes their outputs (if `outputs`) and moves S [K,V] to the end. v
  /// without data = 0. `keep` gets the rows of W.
  bool forward(const LinearProblem<T>& p, Size row, Size begin, Size c, int head, T* S, bool outputs,
               TokenRows<T> keep = {}) {
    const int key_head = head / (p.heads / p.key_heads);
    const auto hint = [&](Prefetch<T>& next) {
      next.begin();
      next.add_share(p.k, row, begin, c, key_head, p.key_heads, K);
      next.add_share(p.v, row, begin, c, head, p.heads, V);
      if (outputs) next.add_share(p.q, row, begin, c, key_head, p.key_heads, K);
      if (outputs) next.add_share(p.o, row, begin, c, head, p.heads, V);
      next.spread_over((outputs + 1 + reads(rule)) * c * K * V);
    };
    hint(hints);
    if (sweeps && forgets(p, row, begin, head)) {
      hint(sweep_hints);
      const Size n = sweep(p, row, begin, c, head, S, outputs, keep);
      begin += n, c -= n, keep = keep.from(n);
    }
    if (c == 0) return true;
    advance(p, row, begin, c, head, S, S, outputs);
    for (Size i = 0; reads(rule) && keep.data && i < c; ++i) std::copy_n(w + i * V, V, keep.data + i * keep.ld);
    return true;
  }

  /// The same tokens backwards: S_0 is the state before them and `keep` the rows of W, both from forward;
  /// dS [K,V] goes from dS' to dS_0.
  void backward(const LinearProblem<T>& p, const LinearGradient<T>& d, Size row, Size begin, Size c, int head,
                const T* S_0, const T* /*S_end*/, T* dS, const T* keep) {
    back(p, d, row, begin, c, head, S_0, dS, keep, nullptr);
    pass_start(c, dS, dS);
  }

  /// Whether the heads of this key head go backwards by sweeps: where they do forwards and rule.h says so. Their d_g is a
  /// difference of sums within a chunk, exact beside the largest and not by itself: not for gates that close (a rate A, whose
  /// gradient is the sum of dt dg, had errors of 5e-5 under gates in [-8, 0]). Decided for all of them together, because they
  /// add to the same gradients.
  bool sweeps_back(const LinearProblem<T>& p, const LinearGradient<T>& d, const Sequence& n, int head) const
      requires(rule == Rule::add) {
    if (!sweeps || !has_swept_gradient(K, V, s.lanes * Size{sizeof(T)}, sizeof(T))) return false;
    if (!d.d_o || !p.v || (p.of_factors && d.d_g)) return false;
    const int group = p.heads / p.key_heads, first = head / group * group;
    for (int h = first; h < first + group; ++h)
      if (!forgets(p, n.row, n.begin, h) || (d.d_g && closes(p, n, h))) return false;
    return true;
  }
  SweptGradient<T>& by_sweeps() requires(rule == Rule::add) { return *swept_gradient; }

  /// Numbers that back_state passes on of one chunk: dR.
  static Size passed(int value_dim, Size chunk) { return reads(rule) ? chunk * value_dim : 0; }

  /// dS_0 from dS' alone. No replay has come here yet: N is found again.
  void back_state(const LinearProblem<T>& p, const LinearGradient<T>& d, Size row, Size begin, Size c, int head,
                  const T* d_end, T* d_start, T* pass) {
    look_behind(p, d, row, begin, head, true);
    load_gates(p, row, begin, c, head, reads(rule));
    T *const q = x, *const k = x + c * K;
    load(p, d, row, begin, c, head, q, k, y);
    if constexpr (reads(rule)) {
      T* const d_r = y + c * V;
      const T* const b = p.beta ? kb : k;
      if (p.beta) s.scale_rows(c, K, beta, k, K, kb, K);
      s.transpose(c, K, b, K, kt, C);
      lower(c, K, T(1), q, kt, 0, P);
      s.gemm_trmm_tn(c, V, K, gated ? D + (c - 1) * C : nullptr, b, K, d_end, V, P, C, y, V, d_r, V, hints.get());
      lower(c, K, T(1), k, kt, undecayed, N);
      s.solve_tn(c, V, N, C, d_r, V);
      std::copy_n(d_r, c * V, pass);
    }
    scale_gradients(c);
    pass_start(c, d_end, d_start);
  }
  /// What backward() does beside that, from dS' and what back_state has passed on.
  void back_rest(const LinearProblem<T>& p, const LinearGradient<T>& d, Size row, Size begin, Size c, int head,
                 const T* S_0, const T* dS, const T* keep, const T* pass) {
    back(p, d, row, begin, c, head, S_0, dS, keep, reads(rule) ? pass : nullptr);
  }

 private:
  static constexpr Size undecayed = rule == Rule::delta_undecayed;

  // A state that only adds keeps every rounding. Products add a chunk at a time, sweeps every token, as the recurrent
  // form does: in float, over a million tokens, with up to a hundred times the error (docs/accuracy.md). Gates that are
  // the same for all tokens can be seen to be open; others are trusted to close.
  static bool forgets(const LinearProblem<T>& p, Size row, Size begin, int head) {
    return reads(rule) || (p.g && (p.g.stride[1] != 0 || p.g(row, begin, head) != 0));
  }

  static bool closes(const LinearProblem<T>& p, const Sequence& n, int head) {
    constexpr T closed = -3;
    const Size end = p.g.stride[1] == 0 ? n.begin + 1 : n.end;
    for (Size t = n.begin; t < end; ++t)
      if (!(p.g(n.row, t, head) >= closed)) return true;
    return false;
  }

  // The factors of tokens in frames: up e^{G_i}, down e^{-G_i}, with the accuracy of an exponential (frames-inl.h).
  // How many tokens there are before one that is alone beyond the limit, and *frames of them; no tokens where most frames
  // would be shorter than a group.
  Size load_frames(const LinearProblem<T>& p, Size row, Size begin, Size c, int head, T* up, T* down, Size* frames) {
    constexpr Size group = reads(rule) ? 2 : 4;
    double sum = 0;
    Size n = 0, start = 0, count = 0;
    for (; n < c; ++n) {
      g[n] = p.g(row, begin + n, head), sum += static_cast<double>(g[n]);
      if (!(std::abs(sum) <= bounded_limit) && n > start) ends[count++] = start = n, sum = g[n];
      if (!(std::abs(sum) <= bounded_limit)) break;
      up[n] = static_cast<T>(sum), down[n] = -up[n], rests[n] = static_cast<T>(sum - static_cast<double>(up[n]));
      if (std::abs(sum) > mild_limit && (n + 1 - start) % group == 0 && n + 1 < c)
        ends[count++] = start = n + 1, sum = 0;
    }
    if (n > start) ends[count++] = n;
    *frames = count;
    if (n == 0 || (count > 2 && count * group > n + group)) return 0;
    s.exp(n, up, up), s.exp(n, down, down);
    for (Size i = 0; i < n; ++i) up[i] += up[i] * rests[i], down[i] -= down[i] * rests[i];
    return n;
  }

  // As many tokens as have bounded gates, in groups; how many they were.
  Size sweep(const LinearProblem<T>& p, Size row, Size begin, Size c, int head, T* S, bool outputs,
             TokenRows<T> keep) {
    const int key_head = head / (p.heads / p.key_heads);
    Size n = c;
    T *const up = e, *const write = factors, *const read = beta;
    Size frames = 0;
    if (p.g) {
      n = load_frames(p, row, begin, c, head, up, write, &frames);
      if (n == 0) return 0;
      if (undecayed) {
        for (Size i = 0; i < n; ++i) read[i] = -g[i];
        s.exp(n, read, read);
        s.mul(n, up, read, rests);
      }
    }
    typename StateSimd<T>::Group tokens{.n = n, .K = K, .V = V};
    for (Size i = 0; p.beta && i < n; ++i) {
      const T step = p.beta(row, begin + i, head);
      write[i] = p.g ? step * write[i] : step;
      read[i] = p.g && undecayed ? step * read[i] : step;
    }
    if (p.g || p.beta) tokens.write = write;
    if (p.beta || (p.g && undecayed)) tokens.read = read;
    if (p.g) {
      tokens.answer = tokens.late = up, tokens.ld_late = 1, tokens.late_step = 0;
      tokens.ends = ends, tokens.frames = frames;
    }
    tokens.k = contiguous(s, p.k, row, begin, n, key_head, K, x, &tokens.ldk);
    if (reads(rule)) tokens.x = tokens.k, tokens.ldx = tokens.ldk;
    if (reads(rule) && keep.data) {
      tokens.kept = keep.data, tokens.ld_kept = keep.ld;
      if (p.g) tokens.kept_read = undecayed ? rests : up;
    }
    if (!p.v) std::fill_n(w, V, T(0)), tokens.v = w;
    else if (!takes_values(s, p.v, row, begin, head, tokens)) tokens.v = values(p, row, begin, n, head, &tokens.ldv);
    if (outputs) {
      tokens.q = contiguous(s, p.q, row, begin, n, key_head, K, x + C * K, &tokens.ldq);
      tokens.scale = p.scale;
      if (p.skip) std::fill_n(skip, n, p.skip(head)), tokens.direct = skip;
    }
    tokens.hints = sweep_hints.get();
    bool direct = true;
    Size ldo = V;
    T* const answers = outputs ? answers_of_sweep(s, p.o, row, begin, head, o, tokens, &ldo, &direct) : o;
    through.group_sweep(tokens, S, V, answers, ldo, swept);
    if (!direct) unpack(s, o, row, begin, n, head, V, p.o);
    return n;
  }

  // The chunk from S to S_end, which may be the same; leaves W in w. Here D has beta in its columns.
  void advance(const LinearProblem<T>& p, Size row, Size begin, Size c, int head, const T* S, T* S_end,
               bool outputs) {
    T* const W = w;
    const int key_head = head / (p.heads / p.key_heads);
    Size ldk, ldq, ldv = V;
    load_gates(p, row, begin, c, head, reads(rule) || outputs);
    const T* const write = fold_beta(p, c, reads(rule) || outputs);
    const T* keys = contiguous(s, p.k, row, begin, c, key_head, K, x, &ldk);
    if (reads(rule) || outputs) s.transpose(c, K, keys, ldk, kt, C);
    if constexpr (reads(rule)) {
      gated_product(c, K, T(1), keys, ldk, kt, undecayed, write != nullptr, N);
      for (Size i = 0; i < c; ++i) factors[i] = gated ? -e[i + 1 - undecayed] : T(-1);
      const T* const v = p.v ? contiguous(s, p.v, row, begin, c, head, V, o, &ldv) : nullptr;
      s.gemm_nn_onto(c, V, K, factors, keys, ldk, S, V, T(1), v, ldv, W, V, hints.get());
      s.solve_nn(c, V, N, C, W, V);
    } else if (p.v) {
      pack(s, p.v, row, begin, c, head, V, T(1), W);
    } else {
      std::fill_n(W, c * V, T(0));
    }
    if (outputs) {
      const T* const queries = contiguous(s, p.q, row, begin, c, key_head, K, x + C * K, &ldq);
      gated_product(c, K, p.scale, queries, ldq, kt, 0, write != nullptr, P);
      for (Size i = 0; i < c; ++i) factors[i] = gated ? p.scale * e[i + 1] : p.scale;
      const bool direct = p.o.stride[3] == 1;
      T* const answer = direct ? &p.o(row, begin, head, 0) : o;
      s.gemm_trmm_nn(c, V, K, factors, queries, ldq, S, V, P, C, W, V, answer, direct ? p.o.stride[1] : V,
                     hints.get());
      if (p.skip) {
        const T* const v = contiguous(s, p.v, row, begin, c, head, V, W, &ldv);
        for (Size i = 0; i < c; ++i) s.axpy(V, p.skip(head), v + i * ldv, answer + i * (direct ? p.o.stride[1] : V));
      }
      if (!direct) unpack(s, o, row, begin, c, head, V, p.o);
    }
    if (write) s.scale_rows(c, K, write, keys, ldk, x, K), keys = x, ldk = K;
    s.gemm_tn_onto(K, V, c, nullptr, keys, ldk, W, V, gated ? e[c] : T(1), S, V, S_end, V, hints.get());
  }

  // backward() but for dS_0. pass: dR, where it is known. What pass_start() reads is left in x, y and e.
  void back(const LinearProblem<T>& p, const LinearGradient<T>& d, Size row, Size begin, Size c, int head,
            const T* S_0, const T* dS, const T* keep, const T* pass) {
    const int key_head = head / (p.heads / p.key_heads);
    look_behind(p, d, row, begin, head, false);
    load_gates(p, row, begin, c, head, true);
    T *const q = x, *const k = x + c * K, *const d_r = reads(rule) ? y + c * V : o;
    load(p, d, row, begin, c, head, q, k, y);
    const T* const b = p.beta ? kb : k;
    if (p.beta) s.scale_rows(c, K, beta, k, K, kb, K);
    s.transpose(c, K, b, K, kt, C);
    Size ldw = V;
    const T* const W = reads(rule) ? keep : values(p, row, begin, c, head, &ldw);
    s.transpose(c, V, W, ldw, wt, C);
    const T* const t = gated ? D + (c - 1) * C : nullptr;
    if (!pass || d.d_g) lower(c, K, T(1), q, kt, 0, P);
    if (pass) {
      std::copy_n(pass, c * V, d_r);
    } else {
      s.gemm_trmm_tn(c, V, K, t, b, K, dS, V, P, C, y, V, d_r, V, hints.get());
    }
    if constexpr (reads(rule)) {
      if (!pass || d.d_g) lower(c, K, T(1), k, kt, undecayed, N);
      if (!pass) s.solve_tn(c, V, N, C, d_r, V);
    }
    using Gradient = LinearGradient<T>;
    const int group = p.heads / p.key_heads;
    const unsigned fresh = head % group == 0 ? d.fresh : d.fresh & Gradient::fresh_v;  // the first head of a key head
    if (d.d_v) finish(c, V, nullptr, d_r, nullptr, nullptr, d.d_v, row, begin, head, fresh & Gradient::fresh_v, past);

    if (d.d_g) {
      pair_gradients(c, d_r);
    } else {
      lower(c, V, T(1), y, wt, 0, X);
      if constexpr (reads(rule)) lower(c, V, T(-1), d_r, wt, undecayed, E), clear_diagonal(c, E);
    }
    through.turn_states(K, V, nullptr, S_0, dS, nullptr, st, d_st, state_dots);
    double across = 0;
    for (int i = 0; i < K; ++i) across += static_cast<double>(state_dots[i]);
    scale_gradients(c);
    through_start(c, y, st, X, b, q, d_q, d.d_g ? gates.from_start : nullptr);
    if constexpr (reads(rule)) {
      through_start(c, d_r, st, E, b, k, d_kr, d.d_g ? dots : nullptr);
      for (Size i = undecayed; d.d_g && i < c; ++i) gates.from_start[i - undecayed] += dots[i];
    }

    if (d.d_g) {
      s.gemm_nn_onto(c, K, V, t, W, ldw, d_st, K, T(0), nullptr, K, d_b, K, hints.get());
      s.row_dots(c, K, b, K, d_b, K, gates.to_end);
      s.trmm_tn(c, K, T(1), X, C, q, K, T(1), d_b, K);
    } else {
      s.gemm_trmm_tn(c, K, V, t, W, ldw, d_st, K, X, C, q, K, d_b, K, hints.get());
    }
    if constexpr (reads(rule)) s.trmm_tn(c, K, T(1), E, C, k, K, T(1), d_b, K);
    const bool past_keys = past && group == 1;
    if (d.d_o && d.d_q) {
      std::fill_n(factors, c, p.scale);
      finish(c, K, factors, d_q, nullptr, nullptr, d.d_q, row, begin, key_head, fresh & Gradient::fresh_q, past_keys);
    } else if (fresh & Gradient::fresh_q) {
      clear_rows(d.d_q, row, begin, c, key_head, K);
    }
    if (d.d_k || d.d_beta)
      finish(c, K, p.beta ? beta : nullptr, d_b, reads(rule) ? d_kr : nullptr, d.d_beta ? k : nullptr, d.d_k, row,
             begin, key_head, fresh & Gradient::fresh_k, past_keys);
    if (d.d_beta)
      for (Size i = 0; i < c; ++i) d.d_beta(row, begin + i, head) += dots[i];
    if (!d.d_g) return;
    if (gated) across *= static_cast<double>(e[c]);
    gates.gradient(s, c, P, C, across, [&](Size i, T sum) { d.d_g(row, begin + i, head) += sum; });
  }

  // dS_0 = e_c dS' + [Q; K]' [dO; dR], whose rows have been scaled
  void pass_start(Size c, const T* d_end, T* d_start) {
    s.gemm_tn_onto(K, V, reads(rule) ? 2 * c : c, nullptr, x, K, y, V, gated ? e[c] : T(1), d_end, V, d_start, V,
                   hints.get());
  }

  void look_behind(const LinearProblem<T>& p, const LinearGradient<T>& d, Size row, Size begin, int head,
                   bool state_only) {
    const int key_head = head / (p.heads / p.key_heads);
    hints.begin();
    if (begin >= C) {
      const Size from = begin - C;
      hints.add(p.k, row, from, C, key_head, 1, K), hints.add(p.q, row, from, C, key_head, 1, K);
      hints.add(d.d_o, row, from, C, head, 1, V);
    }
    if (begin >= C && !state_only) {
      const Size from = begin - C;
      if (!reads(rule)) hints.add(p.v, row, from, C, head, 1, V);
      using Gradient = LinearGradient<T>;
      const auto old = [&](unsigned role) { return !(d.fresh & role) || !past; };  // else written without being read
      if (old(Gradient::fresh_v)) hints.add(d.d_v, row, from, C, head, 1, V);
      if (old(Gradient::fresh_q)) hints.add(d.d_q, row, from, C, key_head, 1, K);
      if (old(Gradient::fresh_k)) hints.add(d.d_k, row, from, C, key_head, 1, K);
      if (next_state) hints.add_rows(next_state, next_sizes.state);
      if (next_rows) hints.add_rows(next_rows, next_sizes.rows);
    }
    hints.spread_over((state_only ? (reads(rule) ? 3 : 1) : reads(rule) ? 6 : 4) * C * K * V);
  }

  // Queries (scaled), keys and the gradient of the outputs; without that gradient there are no queries either.
  void load(const LinearProblem<T>& p, const LinearGradient<T>& d, Size row, Size begin, Size c, int head, T* q, T* k,
            T* d_o) {
    const int key_head = head / (p.heads / p.key_heads);
    if (d.d_o)
      pack(s, p.q, row, begin, c, key_head, K, p.scale, q), pack(s, d.d_o, row, begin, c, head, V, T(1), d_o);
    else std::fill_n(q, c * K, T(0)), std::fill_n(d_o, c * V, T(0));
    pack(s, p.k, row, begin, c, key_head, K, T(1), k);
  }

  const T* values(const LinearProblem<T>& p, Size row, Size begin, Size c, int head, Size* ld) {
    return contiguous(s, p.v, row, begin, c, head, V, w, ld);
  }

  // e[0] = 1, e[i+1] = e^{G_i}; all of D, or its last row only.
  void load_gates(const LinearProblem<T>& p, Size row, Size begin, Size c, int head, bool all) {
    gated = static_cast<bool>(p.g);
    for (Size i = 0; i < c; ++i) beta[i] = p.beta ? p.beta(row, begin + i, head) : T(1);
    if (!gated) return;
    T sum = 0;
    e[0] = 0;
    for (Size i = 0; i < c; ++i) g[i] = p.g(row, begin + i, head), e[i + 1] = sum += g[i];
    s.exp(c + 1, e, e);
    if (all) return s.gate_matrix(c, g, sums, D, C);
    sum = 0;
    T* const end = D + (c - 1) * C;
    for (Size i = c; i-- > 0; sum += g[i]) end[i] = sum;
    s.exp(c, end, end);
  }

  // Columns of D times beta, all of them or the last row only; the last row, or null where D is 1.
  const T* fold_beta(const LinearProblem<T>& p, Size c, bool all) {
    T* const end = D + (c - 1) * C;
    if (!p.beta) return gated ? end : nullptr;
    const Size first = all ? 0 : c - 1;
    if (gated) s.scale_columns(c - first, c, beta, D + first * C, C, D + first * C, C);
    else
      for (Size i = first; i < c; ++i) std::copy_n(beta, c, D + i * C);
    return end;
  }

  // out = tril(A B * D), with the diagonal 0 and the gates of the row before if shifted.
  void lower(Size c, Size n, T alpha, const T* A, const T* B, Size shift, T* out) {
    gated_product(c, n, alpha, A, n, B, shift, gated, out);
  }
  void gated_product(Size c, Size n, T alpha, const T* A, Size lda, const T* B, Size shift, bool factored, T* out) {
    if (factored) s.gemm_lower_gated(c, n, alpha, A, lda, B, C, D - (gated ? shift : 0) * C, C, out, C);
    else s.gemm_lower(c, n, alpha, A, lda, B, C, out, C);
  }
  void clear_diagonal(Size c, T* A) {
    for (Size i = 0; i < c; ++i) A[i * C + i] = 0;
  }

  // X and E as lower() makes them, and in P, which holds tril(Q B' * D), the gradients of the pairs for the gates. Each
  // is a product of one matrix with the factors and one without: where they are tiny their squares would vanish.
  void pair_gradients(Size c, const T* d_r) {
    s.gemm_lower(c, V, T(1), y, V, wt, C, X, C);
    for (Size i = 1; i < c; ++i) s.mul(i, P + i * C, X + i * C, P + i * C);
    if (gated) s.gate_lower(c, false, 0, nullptr, D, C, X, C);
    if constexpr (reads(rule)) {
      s.gemm_lower(c, V, T(-1), d_r, V, wt, C, E, C);
      for (Size i = 1; i < c; ++i) s.mul_add(i - undecayed, N + i * C, E + i * C, P + (i - undecayed) * C);
      s.gate_lower(c, true, undecayed, nullptr, gated ? D : nullptr, C, E, C);
    }
  }

  // out = from start + tril(L) rows; `common`, where wanted: the dots of the readers with what the start alone says.
  void through_start(Size c, const T* from, const T* start, const T* L, const T* rows, const T* readers, T* out,
                     T* common) {
    if (!common) return s.gemm_trmm_nn(c, K, V, nullptr, from, V, start, K, L, C, rows, K, out, K, hints.get());
    s.gemm_nn_onto(c, K, V, nullptr, from, V, start, K, T(0), nullptr, K, out, K, hints.get());
    s.row_dots(c, K, readers, K, out, K, common);
    s.trmm_nn(c, K, T(1), L, C, rows, K, T(1), out, K);
  }

  // The rows of dO and dR times e and -r.
  void scale_gradients(Size c) {
    for (Size i = 0; i < c; ++i) {
      factors[i] = gated ? e[i + 1] : T(1);
      factors[c + i] = gated ? -e[i + 1 - undecayed] : T(-1);
    }
    const Size first = gated ? 0 : c, end = reads(rule) ? 2 * c : c;
    if (first < end) s.scale_rows(end - first, V, factors + first, y + first * V, V, y + first * V, V);
  }

  // to[rows] += diag(a) from + also, where `to` is wanted; fresh: = ; with z also dots = rowdot(z, from) and
  // read_dots = rowdot(z, also).
  void finish(Size c, int dim, const T* a, const T* from, const T* also, const T* z, const View<T, 4>& to, Size row,
              Size begin, int head, bool fresh, bool far) {
    const bool direct = !to || to.stride[3] == 1;
    if (fresh && to && direct) {
      if (z) s.add_rows_dots(c, dim, a, from, dim, also, dim, z, dim, nullptr, dim, dots, read_dots);
      return through.write_rows(c, dim, a, from, nullptr, also, nullptr, &to(row, begin, head, 0), to.stride[1], far);
    }
    if (fresh) clear_rows(to, row, begin, c, head, dim);
    T* const rows = !to ? nullptr : direct ? &to(row, begin, head, 0) : spare;
    if (!direct) std::fill_n(spare, c * dim, T(0));
    s.add_rows_dots(c, dim, a, from, dim, also, dim, z, dim, rows, direct ? to.stride[1] : dim, dots, read_dots);
    if (!direct) add_rows(s, T(1), spare, row, begin, c, head, dim, to);
  }

  const Simd<T>& s;
  const StateSimd<T>& through;
  int K, V;
  Size C;
  Prefetch<T> hints, sweep_hints;
  bool sweeps = true;
  bool gated = false;
  bool past = false;  // gradients go past the caches
  T *x, *w, *kt, *o, *D, *P, *g, *beta, *e, *sums, *rests, *skip, *factors, *swept;
  Size* ends;
  T *N = nullptr, *X = nullptr, *E = nullptr, *y = nullptr, *wt = nullptr, *st = nullptr, *d_st = nullptr,
    *state_dots = nullptr, *kb = nullptr, *spare = nullptr;
  T *d_q = nullptr, *d_b = nullptr, *d_kr = nullptr, *dots = nullptr, *read_dots = nullptr;
  T* kept_rows = nullptr;
  const T *next_state = nullptr, *next_rows = nullptr;
  SlotShape next_sizes;
  GatePairs<T> gates;
  std::optional<SweptGradient<T>> swept_gradient;  // Rule::add
};

}  // namespace ttr::families
