// Chunk form with a gate for every channel, for one head. Rows i of a chunk of c tokens, Q already scaled; pair,
// apply and apply_transposed and the decays to the start (x^) and to the end (y~) of the chunk are those of gates.h,
// over the key gates unless marked v (value gates); a reader of token i sees the gates up to i or, before, up to i-1:
//
//   none    U = diag(beta) V
//   same    M = pair(X, K), strict ;  R0 = V - X^ S_0 ;  (I + diag(beta) M) U = diag(beta) R0
//   other   U = diag(beta) V ;  (I - pair(X, Y)) R = X^ S_0 + pair(X, K) U                  X = a, Y = b, strict
//   O  = (Q^ S_0)^v + apply_v(pair(Q, K), U) (+ pair(Q, Y) R)
//   S' = diag(e^{G_c}) S_0 diag(e^{Gv_c}) + K~' U~v (+ Y~' R)
//
// Backward, dS' in, dS_0 out:
//
//   dU = apply_v_transposed(pair(Q, K), dO) + (K~ dS')~v
//   same    (I + diag(beta) M)' Z = dU ;  dbeta = rowdot(Z, R0 - M U) ;  dV = diag(beta) Z ;  dR = -dV
//   other   (I - pair(X, Y))' dR = pair(Q, Y)' dO + Y~ dS' ;  dU += pair(X, K)' dR
//   PQ = pair_v(dO, U), PX = stril(dR U'), and with Y also tril(dO R') and stril(dR R')
//   dQ = (dO^v S_0')^ + apply(PQ, K) + ..        dX = (dR S_0')^ + apply(PX, K) + ..
//   dK = (U~v dS'')~ + apply_transposed(PQ, Q) + apply_transposed(PX, X)         dY likewise with R
//   dS_0 = diag(e^{G_c}) dS' diag(e^{Gv_c}) + Q^' dO^v + X^' dR
//   dgk: readers q, x and writers k, y, all without pairs that no gate stands between, and what reaches the end
//   through one; dgv: reader dO with O, writer u
//
// Traps: the bonus of a token on itself passes no gate, so it is kept out of the gates' gradient. S_0' and dS'' are
// transposes, S' the end state.
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/common/prefetch.h"
#include "families/common/scratch.h"
#include "families/linear/channel/problem.h"
#include "families/linear/channel/recurrent.h"
#include "families/linear/gates.h"
#include "families/linear/state_simd.h"
#include "simd/simd.h"

namespace ttr::families {

template <class T, Erase erase>
class VectorChunk {
 public:
  using Size = std::ptrdiff_t;

  /// Takes its panels from the arena; C is the largest number of tokens in one chunk.
  VectorChunk(const Simd<T>& simd, int key_dim, int value_dim, Size chunk, bool backward, Arena& arena)
      : s(simd),
        through(state_simd(simd)),
        K(key_dim),
        V(value_dim),
        C(chunk),
        ahead(simd),
        hints(simd, longest_in_sweeps),
        behind(simd),
        one_by_one(simd, key_dim, value_dim, chunk, false, arena),
        keys(simd, key_dim, chunk, true, backward, arena),
        values(simd, value_dim, chunk, erase == Erase::none, backward, arena) {
    constexpr Size with_read = erase == Erase::none ? 1 : 2, with_erase = erase == Erase::other ? 2 : 1;
    q = arena.take<T>(with_read * C * K), y = arena.take<T>(with_erase * C * K),
    k = y ? y + (with_erase - 1) * C * K : y;
    if (erase != Erase::none) x = q ? q + C * K : q, A = arena.take<T>(C * C);
    v = arena.take<T>(C * V), u = arena.take<T>(C * V), o = arena.take<T>((backward ? 1 + with_erase : 1) * C * V);
    key_rows = arena.take<T>(C * K), value_rows = arena.take<T>(C * V), kt = arena.take<T>(K * C);
    P = arena.take<T>(C * C), beta = arena.take<T>(C), own = arena.take<T>(C), w = arena.take<T>(K);
    swept = arena.take<T>(StateSimd<T>::sweep_scratch(K));
    if (erase != Erase::none) kept_rows = arena.take<T>(C * V);
    if (erase == Erase::other) yt = arena.take<T>(K * C), N = arena.take<T>(C * C), r = arena.take<T>(C * V);
    if (!backward) return;
    alone = true;
    d_u = arena.take<T>(C * V), d_q = arena.take<T>(with_read * C * K), d_y = arena.take<T>(with_erase * C * K);
    d_k = d_y ? d_y + (with_erase - 1) * C * K : d_y;
    st = arena.take<T>(V * K), d_st = arena.take<T>(V * K), wide = arena.take<T>(V * C),
    last = arena.take<T>(std::max(K, V));
    answer = arena.take<T>(C * V), near_k = arena.take<T>(2 * C), near_y = arena.take<T>(2 * C);
    end_k = arena.take<T>(std::max(K, V)), end_y = arena.take<T>(K);
    inside = arena.take<T>(Gates<T>::most_pieces * K * V), d_own = arena.take<T>(K * V);
    if (erase != Erase::none) d_x = d_q ? d_q + C * K : d_q, d_r = arena.take<T>(C * V), PX = arena.take<T>(C * C);
    if (erase != Erase::none) found = arena.take<T>(C * V);
    if (erase == Erase::same) N = arena.take<T>(C * C), r = arena.take<T>(C * V);
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
  void write_far(bool far) { past = far; }

  /// No sweeps over the state: all through products of matrices.
  void by_products() { sweeps = false; }

  /// Numbers that forward keeps of one chunk for backward: R.
  static Size kept(int value_dim, Size chunk) { return erase == Erase::none ? 0 : chunk * value_dim; }

  /// Tokens begin .. begin+c-1 of a batch row: writes their outputs (if `outputs`) and moves S [K,V] to the end. `keep` gets
  /// the rows of R; false: some of them it did not get.
  bool forward(const VectorProblem<T>& p, Size row, Size begin, Size c, int head, T* S, bool outputs,
               TokenRows<T> keep = {}) {
    const bool sweep = sweeps && !p.gv;
    look_ahead(p, row, begin, c, head, outputs, sweep);
    bool kept = true;
    if (sweep && sweep_frames(p, row, begin, c, head, S, outputs, keep, &kept)) return kept;
    advance(p, row, begin, c, head, S, outputs, !sweep);
    return false;
  }

  /// The same tokens backwards: S_0 is the state before them, dS [K,V] goes from dS' to dS_0. `keep` are the rows
  /// that forward kept; null: it did not.
  void backward(const VectorProblem<T>& p, const VectorGradient<T>& d, Size row, Size begin, Size c, int head,
                const T* S_0, const T* /*S_end*/, T* dS, const T* keep) {
    look_back(p, d, row, begin, head);
    back(p, d, row, begin, c, head, S_0, dS, keep, Back::all);
  }

  /// backward() in two (schedule.h): dS_0 from dS' alone, where no replay has come yet, and what is left. Passed on: dR.
  static Size passed(int value_dim, Size chunk) { return erase == Erase::none ? 0 : chunk * value_dim; }
  void back_state(const VectorProblem<T>& p, const VectorGradient<T>& d, Size row, Size begin, Size c, int head,
                  const T* d_end, T* d_start, T* pass) {
    look_back_for_state(p, d, row, begin, head);
    std::copy_n(d_end, Size{K} * V, d_start);
    back(p, d, row, begin, c, head, nullptr, d_start, nullptr, Back::state, {pass, nullptr});
  }
  void back_rest(const VectorProblem<T>& p, const VectorGradient<T>& d, Size row, Size begin, Size c, int head,
                 const T* S_0, const T* d_end, const T* keep, const T* pass) {
    look_back(p, d, row, begin, head);
    std::copy_n(d_end, Size{K} * V, d_own);
    back(p, d, row, begin, c, head, S_0, d_own, keep, Back::rest, {nullptr, pass});
  }

 private:
  enum class Back { all, state, rest };
  // Where dR of the tokens at hand goes, or is; null: nowhere. Only where gates are bounded, as both parts of backward() see.
  struct Passed {
    T* to = nullptr;
    const T* from = nullptr;
    Passed at(Size n) const {
      if constexpr (erase == Erase::none) return {};
      else return {to ? to + n : nullptr, from ? from + n : nullptr};
    }
  };

  // Rows of gradients that hold nothing yet; those of a key head are cleared by its first head.
  void clear_fresh(const VectorProblem<T>& p, const VectorGradient<T>& d, Size row, Size begin, Size c, int head) {
    using Gradient = LinearGradient<T>;
    const int group = p.heads / p.key_heads;
    if (d.fresh & Gradient::fresh_v) clear_rows(d.d_v, row, begin, c, head, V);
    if (d.fresh & Gradient::fresh_gk) clear_rows(d.d_gk, row, begin, c, head, K);
    if (d.fresh & Gradient::fresh_a) clear_rows(d.d_a, row, begin, c, head, K);
    if (d.fresh & Gradient::fresh_b) clear_rows(d.d_b, row, begin, c, head, K);
    if (head % group != 0) return;
    if (d.fresh & Gradient::fresh_q) clear_rows(d.d_q, row, begin, c, head / group, K);
    if (d.fresh & Gradient::fresh_k) clear_rows(d.d_k, row, begin, c, head / group, K);
  }

  void back(const VectorProblem<T>& p, const VectorGradient<T>& d, Size row, Size begin, Size c, int head,
            const T* S_0, T* dS, const T* keep, Back what, const Passed& pass = {}) {
    const bool answers = static_cast<bool>(d.d_o);
    const int key_head = head / (p.heads / p.key_heads);
    if (back_through_pieces(p, d, row, begin, c, head, S_0, dS, keep, what, pass)) return;
    if (what != Back::state) clear_fresh(p, d, row, begin, c, head);
    load_gates(p, row, begin, c, head);
    load(p, row, begin, c, head, answers);
    if (what == Back::state) return pass_start(p, d, row, begin, c, head, dS);
    solve_writes(c, S_0);
    if (answers) pack(s, d.d_o, row, begin, c, head, V, T(1), o);
    s.gemm_nn(c, V, K, T(1), keys.to_end(c, k, key_rows), K, dS, V, T(0), d_u, V);
    values.to_end_in_place(c, d_u);
    const bool of_values = values.gated() && d.d_gv, of_keys = keys.gated() && d.d_gk;
    if (of_values) {
      std::fill_n(last, V, T(0));
      for (Size i = 0; i < K; ++i) {
        s.scale(V, keys.gated() ? keys.over(c)[i] : T(1), S_0 + i * V, value_rows);
        s.mul_add(V, value_rows, dS + i * V, last);
      }
      s.mul(V, values.over(c), last, last);
      values.take_end(c, u, d_u, last, end_k);
    }
    if (answers) {
      keys.pair(c, ask, false, q, k, P);
      if (of_values) keys.take_near(c, ask, P, near_k);
      values.apply_transposed(c, ask, P, o, d_u);
    }
    if (of_values) {
      values.clear_gradient(c);
      if (answers) read(c, S_0, answer), values.add_reader(c, ask, o, answer);
      values.add_writer(c, u, d_u);
      values.finish_gradient(c, last, d.d_gv, row, begin, head);
      values.put_end(c, end_k, d_u);
      if (answers) values.put_near(c, ask, near_k, o, nullptr, nullptr, d_u);
    }
    through_writes(p, d, c, dS, row, begin, head, answers);
    if (d.d_v) add_rows(s, T(1), d_u, row, begin, c, head, V, d.d_v);

    s.transpose(K, V, S_0, V, st, K);
    const T* const asked = answers ? values.to_start(c, ask, o, answer) : nullptr;
    if (answers) {
      values.pair(c, ask, false, o, u, P);
      if (of_keys) keys.take_near(c, ask, P, near_k);
      s.gemm_nn(c, K, V, T(1), asked, V, st, K, T(0), d_q, K);
      keys.to_start_in_place(c, ask, d_q);
      keys.apply(c, ask, P, k, d_q);
    }
    if constexpr (erase != Erase::none) {
      s.gemm_nn(c, K, V, T(1), d_r, V, st, K, T(0), d_x, K);
      keys.to_start_in_place(c, look, d_x);
      outer(c, d_r, u, N);
      if (of_keys) keys.take_near(c, look, N, near_k + C);
      keys.apply(c, look, N, k, d_x);
    }
    s.transpose(K, V, dS, V, st, K);
    s.gemm_nn(c, K, V, T(1), values.to_end(c, u, value_rows), V, st, K, T(0), d_k, K);
    keys.to_end_in_place(c, d_k);
    if (of_keys) {
      for (Size i = 0; i < K; ++i) {
        if (values.gated()) s.mul(V, S_0 + i * V, values.over(c), value_rows);
        last[i] = keys.over(c)[i] * s.dot(V, values.gated() ? value_rows : S_0 + i * V, dS + i * V);
      }
      keys.take_end(c, k, d_k, last, end_k);
    }
    if (answers) keys.apply_transposed(c, ask, P, q, d_k);
    if constexpr (erase != Erase::none) keys.apply_transposed(c, look, N, x, d_k);
    if constexpr (erase == Erase::other) {
      s.gemm_nn(c, K, V, T(1), r, V, st, K, T(0), d_y, K);
      keys.to_end_in_place(c, d_y);
      if (of_keys) keys.take_end(c, y, d_y, last, end_y);
      if (answers) {
        s.transpose(c, V, r, V, wide, C);
        s.gemm_lower(c, V, T(1), o, V, wide, C, P, C);
        if (of_keys) keys.take_near(c, ask, P, near_y);
        keys.apply(c, ask, P, y, d_q);
        keys.apply_transposed(c, ask, P, q, d_y);
      }
      outer(c, d_r, r, N);
      if (of_keys) keys.take_near(c, look, N, near_y + C);
      keys.apply(c, look, N, y, d_x);
      keys.apply_transposed(c, look, N, x, d_y);
    }
    if (of_keys) {
      keys.clear_gradient(c);
      if (answers) keys.add_reader(c, ask, q, d_q);
      keys.add_writer(c, k, d_k);
      if constexpr (erase != Erase::none) keys.add_reader(c, look, x, d_x);
      if constexpr (erase == Erase::other) keys.add_writer(c, y, d_y);
      keys.finish_gradient(c, last, d.d_gk, row, begin, head);
      put_back(c, answers, q, x, k, y, d_q, d_x, d_k, d_y);
    }
    if (answers && p.bonus) through_bonus(d, c, row, begin, head);
    if (answers && d.d_q) add_rows(s, p.scale, d_q, row, begin, c, key_head, K, d.d_q);
    if (d.d_k) add_rows(s, T(1), d_k, row, begin, c, key_head, K, d.d_k);
    if constexpr (erase != Erase::none) {
      if (!p.a && d.d_k) add_rows(s, T(1), d_x, row, begin, c, key_head, K, d.d_k);
      if (p.a && d.d_a) add_rows(s, T(1), d_x, row, begin, c, head, K, d.d_a);
    }
    if constexpr (erase == Erase::other) {
      if (d.d_b) add_rows(s, T(1), d_y, row, begin, c, head, K, d.d_b);
    }

    if (what == Back::all) to_start_of(c, asked, dS);
  }

  // dS_0 from dS': what the readers of S_0 add to it
  void to_start_of(Size c, const T* asked, T* dS) {
    decay_state(c, dS);
    if (asked) s.gemm_tn(K, V, c, T(1), keys.to_start(c, ask, q, key_rows), K, asked, V, T(1), dS, V);
    if constexpr (erase != Erase::none)
      s.gemm_tn(K, V, c, T(1), keys.to_start(c, look, x, key_rows), K, d_r, V, T(1), dS, V);
  }

  // The same as back() does it, and nothing else. Gates and panels are loaded.
  void pass_start(const VectorProblem<T>& p, const VectorGradient<T>& d, Size row, Size begin, Size c, int head,
                  T* dS) {
    const bool answers = static_cast<bool>(d.d_o);
    if (answers) pack(s, d.d_o, row, begin, c, head, V, T(1), o);
    if constexpr (erase != Erase::none) {
      find_systems(c);
      s.gemm_nn(c, V, K, T(1), keys.to_end(c, k, key_rows), K, dS, V, T(0), d_u, V);
      if (answers) {
        keys.pair(c, ask, false, q, k, P);
        values.apply_transposed(c, ask, P, o, d_u);
      }
      VectorGradient<T> none;
      through_writes(p, none, c, dS, row, begin, head, answers);
    }
    to_start_of(c, answers ? values.to_start(c, ask, o, answer) : nullptr, dS);
  }

  // As far as the gates are bounded, the short way. A strong gate cuts the chunk; if the cuts come too close, what
  // is left is taken in blocks.
  void advance(const VectorProblem<T>& p, Size row, Size begin, Size c, int head, T* S, bool outputs,
               bool by_products) {
    for (bool bounded = by_products && !p.gv; bounded;) {
      const Size n = keys.reach(p.gk, row, begin, std::min(c, longest_bounded), head);
      if (n == 0) break;
      ahead.step();
      forward_gently(p, row, begin, n, head, S, outputs, nullptr);
      begin += n, c -= n;
      if (c == 0) return;
      bounded = n >= shortest_bounded;
    }
    load_gates(p, row, begin, c, head);
    load(p, row, begin, c, head, outputs);
    solve_writes(c, S);
    if (outputs) {
      keys.pair(c, ask, false, q, k, P);
      read(c, S, o);
      if constexpr (erase == Erase::other) {
        keys.pair(c, ask, false, q, y, P);
        s.trmm_nn(c, V, T(1), P, C, r, V, T(1), o, V);
      }
      if (p.bonus) {
        for (Size i = 0; i < c; ++i) s.axpy(V, own[i], v + i * V, o + i * V);
      }
      unpack(s, o, row, begin, c, head, V, p.o);
    }
    decay_state(c, S);
    s.gemm_tn(K, V, c, T(1), keys.to_end(c, k, key_rows), K, values.to_end(c, u, value_rows), V, T(1), S, V);
    if constexpr (erase == Erase::other) s.gemm_tn(K, V, c, T(1), keys.to_end(c, y, key_rows), K, r, V, T(1), S, V);
  }

  // Under bounded key gates and without value gates, by sweeps over the state: sweep.h
  bool sweep_frames(const VectorProblem<T>& p, Size row, Size begin, Size c, int head, T* S, bool outputs,
                    TokenRows<T> keep, bool* kept);
  typename StateSimd<T>::GateRows rows_of(const VectorProblem<T>& p, Size row, Size begin, Size c, int head,
                                          bool queries, bool* copied);
  void sweep_gently(const VectorProblem<T>& p, Size row, Size begin, Size c, int head, T* S, bool outputs,
                    TokenRows<T> keep);

  // backward() in pieces whose gates are bounded; false: they are not. The states between them are found once more, and R
  // where it was not kept.
  bool back_through_pieces(const VectorProblem<T>& p, const VectorGradient<T>& d, Size row, Size begin, Size c,
                           int head, const T* S_0, T* dS, const T* keep, Back what, const Passed& pass) {
    const Size length = p.gv ? 0 : keys.pieces(p.gk, row, begin, c, head);
    if (length == 0) return false;
    const auto load_piece = [&](Size i) {
      const Size at = i * length, n = std::min(length, c - at);
      keys.load_piece(p.gk, row, begin + at, n, head, i);
      return n;
    };
    const auto start = [&](Size i) { return i == 0 ? S_0 : inside + (i - 1) * K * V; };
    const bool find = erase != Erase::none && !keep;
    const Size count = (c + length - 1) / length, end = what == Back::state ? 0 : find ? count : count - 1;
    for (Size i = 0; i < end; ++i) {
      T* const next = inside + i * K * V;
      std::copy_n(start(i), Size{K} * V, next);
      const Size n = load_piece(i);
      forward_gently(p, row, begin + i * length, n, head, next, false, find ? found + i * length * V : nullptr);
    }
    if (find) keep = found;
    for (Size i = count; i-- > 0;) {
      const Size n = load_piece(i);
      backward_gently(p, d, row, begin + i * length, n, head, start(i), dS, keep ? keep + i * length * V : nullptr,
                      i > 0 && what == Back::rest ? Back::all : what, pass.at(i * length * V));
    }
    return true;
  }

  // What was kept out of the gates' gradient (gates.h).
  void put_back(Size c, bool answers, const T* Q, const T* X, const T* Kd, const T* Y, T* dQ, T* dX, T* dK,
                T* dY) const {
    keys.put_end(c, end_k, dK);
    if (answers) keys.put_near(c, ask, near_k, Q, Kd, dQ, dK);
    if constexpr (erase != Erase::none) keys.put_near(c, look, near_k + C, X, Kd, dX, dK);
    if constexpr (erase == Erase::other) {
      keys.put_end(c, end_y, dY);
      if (answers) keys.put_near(c, ask, near_y, Q, Y, dQ, dY);
      keys.put_near(c, look, near_y + C, X, Y, dX, dY);
    }
  }

  // Who reads before or after the gates, and beta.
  void prepare(const VectorProblem<T>& p, Size row, Size begin, Size c, int head) {
    ask = p.read_before ? Reader::before : Reader::after;
    look = p.decayed_read ? Reader::after : Reader::before;
    for (Size i = 0; i < c; ++i) beta[i] = p.beta ? p.beta(row, begin + i, head) : T(1);
    if constexpr (erase == Erase::none) values.load({}, row, begin, c, head);
  }
  void load_gates(const VectorProblem<T>& p, Size row, Size begin, Size c, int head) {
    prepare(p, row, begin, c, head);
    keys.load(p.gk, row, begin, c, head);
    if constexpr (erase == Erase::none) values.load(p.gv, row, begin, c, head);
  }
  void load(const VectorProblem<T>& p, Size row, Size begin, Size c, int head, bool queries) {
    const int key_head = head / (p.heads / p.key_heads);
    if (queries) pack(s, p.q, row, begin, c, key_head, K, p.scale, q);
    pack(s, p.k, row, begin, c, key_head, K, T(1), k);
    if (p.v) pack(s, p.v, row, begin, c, head, V, T(1), v);
    else std::fill_n(v, c * V, T(0));
    if constexpr (erase != Erase::none) {
      if (p.a) pack(s, p.a, row, begin, c, head, K, T(1), x);
      else std::copy_n(k, c * K, x);
    }
    if constexpr (erase == Erase::other) pack(s, p.b, row, begin, c, head, K, T(1), y);
    if (!p.bonus || !queries) return;
    for (int j = 0; j < K; ++j) w[j] = p.bonus(head, j);
    s.scale_columns(c, K, w, k, K, key_rows, K);
    s.row_dots(c, K, q, K, key_rows, K, own);
  }

  // The rows of the next chunk: of all heads this head's share, or, where one head runs to the end, its own.
  template <class List>
  void add_next(List& list, const VectorProblem<T>& p, Size row, Size begin, Size c, int head, bool outputs) {
    const int key_head = head / (p.heads / p.key_heads);
    const auto add = [&](const auto& rows, int h, int heads, int dim) {
      if (alone) list.add(rows, row, begin + c, c, h, 1, dim);
      else list.add_share(rows, row, begin, c, h, heads, dim);
    };
    list.begin();
    add(p.gk, head, p.heads, K), add(p.k, key_head, p.key_heads, K), add(p.v, head, p.heads, V);
    add(p.a, head, p.heads, K), add(p.b, head, p.heads, K);
    if (outputs) add(p.q, key_head, p.key_heads, K), add(p.o, head, p.heads, V);
  }
  // Asked for between products, or by sweeps on their way.
  void look_ahead(const VectorProblem<T>& p, Size row, Size begin, Size c, int head, bool outputs, bool sweep) {
    if (sweep) {
      add_next(hints, p, row, begin, c, head, outputs);
      const Size products = 1 + outputs + (erase == Erase::none ? 0 : erase == Erase::same ? 1 : 2);
      return hints.spread_over(products * c * K * V);
    }
    add_next(ahead, p, row, begin, c, head, outputs);
    const Size reads = (outputs ? 1 : 0) + (erase == Erase::none ? 0 : 1);
    ahead.spread(count_pieces(K, V) + reads * count_pieces(c, V) + (outputs ? 5 : 2));
  }
  // The chunk before, for the backward pass.
  void look_back(const VectorProblem<T>& p, const VectorGradient<T>& d, Size row, Size begin, int head) {
    const int key_head = head / (p.heads / p.key_heads);
    const Size from = std::max<Size>(0, begin - C), count = begin - from;
    const auto add = [&](const auto& rows, int h, int dim) { behind.add(rows, row, from, count, h, 1, dim); };
    // Not what is written without being read; nor values, where what they were made of is kept.
    using Gradient = LinearGradient<T>;
    const auto add_old = [&](unsigned role, const auto& rows, int h, int dim) {
      if (!(d.fresh & role) || !past) add(rows, h, dim);
    };
    behind.begin();
    add(p.gk, head, K), add(p.k, key_head, K), add(p.q, key_head, K), add(d.d_o, head, V);
    if (count > 0 && next_state) behind.add_rows(next_state, next_sizes.state);
    if (count > 0 && next_rows) behind.add_rows(next_rows, next_sizes.rows);
    add(p.a, head, K), add(p.b, head, K);
    if (erase != Erase::same) add(p.v, head, V);
    add_old(Gradient::fresh_v, d.d_v, head, V), add_old(Gradient::fresh_gk, d.d_gk, head, K);
    add_old(Gradient::fresh_q, d.d_q, key_head, K), add_old(Gradient::fresh_k, d.d_k, key_head, K);
    add_old(Gradient::fresh_a, d.d_a, head, K), add_old(Gradient::fresh_b, d.d_b, head, K);
    constexpr Size products = erase == Erase::none ? 4 : erase == Erase::same ? 6 : 8;
    behind.spread_over(products * C * K * V);
  }

  void look_back_for_state(const VectorProblem<T>& p, const VectorGradient<T>& d, Size row, Size begin, int head) {
    const int key_head = head / (p.heads / p.key_heads);
    const Size from = std::max<Size>(0, begin - C), count = begin - from;
    const auto add = [&](const auto& rows, int h, int dim) { behind.add(rows, row, from, count, h, 1, dim); };
    behind.begin();
    add(p.gk, head, K), add(p.q, key_head, K), add(d.d_o, head, V);
    if (erase != Erase::none) add(p.k, key_head, K), add(p.a, head, K), add(p.b, head, K);
    behind.spread_over((erase == Erase::none ? 1 : erase == Erase::same ? 3 : 4) * C * K * V);
  }

  // Products in pieces of about one tile, with hints between them.
  template <class F>
  void pieces(Size rows, Size columns, const F& f) {
    for (Size i = 0; i < rows; i += piece_rows())
      for (Size j = 0; j < columns; j += piece_columns()) {
        f(i, std::min(piece_rows(), rows - i), j, std::min(piece_columns(), columns - j));
        ahead.step();
      }
  }
  Size piece_rows() const { return s.lanes >= 16 ? 8 : 12; }
  Size piece_columns() const { return 2 * Size{s.lanes}; }
  Size count_pieces(Size rows, Size columns) const {
    return (rows + piece_rows() - 1) / piece_rows() * ((columns + piece_columns() - 1) / piece_columns());
  }
  void product_nn(Size rows, Size n, Size inner, T alpha, const T* left, Size ldl, const T* right, Size ldr, T keep,
                  T* out, Size ldo) {
    pieces(rows, n, [&](Size i, Size m, Size j, Size l) {
      s.gemm_nn(m, l, inner, alpha, left + i * ldl, ldl, right + j, ldr, keep, out + i * ldo + j, ldo);
    });
  }

  // out [c,n] = factors (left right) + tril(L) below, and with tril(L)'; L null: without
  void product_nn(Size c, Size n, Size inner, const T* factors, const T* left, const T* right, const T* L,
                  const T* below, T* out, Size ldo) {
    s.gemm_trmm_nn(c, n, inner, factors, left, inner, right, n, L, C, below, n, out, ldo, behind.get());
    ahead.step();
  }
  void product_tn(Size c, Size n, Size inner, const T* left, const T* right, const T* L, const T* below, T* out) {
    Hints* const at = behind.get();
    if (L) s.gemm_trmm_tn(c, n, inner, nullptr, left, inner, right, n, L, C, below, n, out, n, at);
    else s.gemm_nn_onto(c, n, inner, nullptr, left, inner, right, n, T(0), nullptr, n, out, n, at);
  }

  // out [c,K] = the rows of a view times factors
  void scaled(const View<const T, 4>& from, Size row, Size begin, Size c, int head, const T* factors, T* out) {
    if constexpr (sizeof(T) == 4)
      if (has_half_rows(from)) return widen_rows(s, from, row, begin, c, head, K, factors, out);
    Size ld;
    const T* const rows = contiguous(s, from, row, begin, c, head, K, out, &ld);
    s.mul_rows(c, K, rows, ld, factors, K, out, K);
  }
  // out = tril(rows columns), with a zero diagonal if strict; columns [inner,c] lie C apart
  void lower(Size c, int inner, const T* rows, const T* columns, T alpha, bool strict, T* out) {
    s.gemm_lower(c, inner, alpha, rows, inner, columns, C, out, C);
    for (Size i = 0; strict && i < c; ++i) out[i * C + i] = T(0);
  }

  // Under bounded key gates and without value gates: bounded.h
  void forward_gently(const VectorProblem<T>& p, Size row, Size begin, Size c, int head, T* S, bool outputs, T* keep);
  void backward_gently(const VectorProblem<T>& p, const VectorGradient<T>& d, Size row, Size begin, Size c, int head,
                       const T* S_0, T* dS, const T* R, Back what, const Passed& pass);
  void find_systems_gently(Size c, const T* X, const T* Y, bool state, bool known);

  using Channel = Apart<T>;  // channels apart, by their roles
  void load_apart(const VectorProblem<T>& p, Size row, Size begin, Size c, int head, bool queries);
  void back_apart(Size c, bool answers, T* Q, T* X, T* Kd, T* Y, T* dQ, T* dX, T* dK, T* dY);
  void back_to_writers(Size c, const T* W, const T* L, const T* Q, const T* Y, T* dY, T* end);

  // to += panel * factors
  void add_scaled(const T* factors, T* panel, Size row, Size begin, Size c, int head, const View<T, 4>& to) {
    if (!to) return;
    if (to.stride[3] == 1) return s.mul_add_rows(c, K, panel, K, factors, K, &to(row, begin, head, 0), to.stride[1]);
    s.mul(c * K, panel, factors, panel);
    add_rows(s, T(1), panel, row, begin, c, head, K, to);
  }

  // Whether a panel is all that comes to rows of a gradient: they are written, not added to.
  bool is_written(const VectorGradient<T>& d, unsigned role, const View<T, 4>& to) const {
    return to && (d.fresh & role) && to.stride[3] == 1;
  }
  // to = panel * factors + panel2 * factors2, the second where there is one
  void write(const T* panel, const T* factors, const T* panel2, const T* factors2, Size row, Size begin, Size c,
             int head, int dim, const View<T, 4>& to, bool far) {
    through.write_rows(c, dim, nullptr, panel, factors, panel2, factors2, &to(row, begin, head, 0), to.stride[1],
                       far);
  }
  void clear_if(bool fresh, Size row, Size begin, Size c, int head, int dim, const View<T, 4>& to) const {
    if (fresh) clear_rows(to, row, begin, c, head, dim);
  }

  // out = diag(beta) V. A copy even where nothing need be done: rows a power of two apart share a few sets of L1.
  void written(const VectorProblem<T>& p, Size row, Size begin, Size c, int head, T* out) {
    if (!p.v) return static_cast<void>(std::fill_n(out, c * V, T(0)));
    if (!p.beta) return pack(s, p.v, row, begin, c, head, V, T(1), out);
    Size ld;
    const T* const rows = contiguous(s, p.v, row, begin, c, head, V, v, &ld);
    s.scale_rows(c, V, beta, rows, ld, out, V);
  }

  // own_i = scale q_i . w*k_i
  void find_bonus(const VectorProblem<T>& p, Size row, Size begin, Size c, int head) {
    const int key_head = head / (p.heads / p.key_heads);
    for (int j = 0; j < K; ++j) w[j] = p.bonus(head, j);
    Size ldk, ldq;
    const T* const key = contiguous(s, p.k, row, begin, c, key_head, K, key_rows, &ldk);
    const T* const query = contiguous(s, p.q, row, begin, c, key_head, K, kt, &ldq);
    through.bonus_dots(c, 1, K, p.scale, w, 0, key, ldk, query, ldq, own);
  }
  // o_i += own_i v_i
  void add_bonus(const VectorProblem<T>& p, Size row, Size begin, Size c, int head, T* out, Size ldo) {
    find_bonus(p, row, begin, c, head);
    Size ldv;
    const T* const value = contiguous(s, p.v, row, begin, c, head, V, v, &ldv);
    for (Size i = 0; i < c; ++i) s.axpy(V, own[i], value + i * ldv, out + i * ldo);
  }

  // A and N, which depend on the keys alone
  void find_systems(Size c) {
    if constexpr (erase == Erase::same) {
      keys.pair(c, look, true, x, k, A);
      if (N)
        for (Size i = 0; i < c; ++i) std::copy_n(A + i * C, i + 1, N + i * C);
      s.gate_lower(c, true, 0, beta, nullptr, C, A, C);
    } else if constexpr (erase == Erase::other) {
      keys.pair(c, look, true, x, y, A);
      for (Size i = 0; i < c; ++i) s.scale(i, T(-1), A + i * C, A + i * C);
      keys.pair(c, look, true, x, k, N);
    }
  }

  // u, the values the tokens write, and (other) r, what they read. For the backward pass of `same` r is R0, and N is
  // M.
  void solve_writes(Size c, const T* S) {
    if constexpr (erase == Erase::none) {
      s.scale_rows(c, V, beta, v, V, u, V);
    } else if constexpr (erase == Erase::same) {
      find_systems(c);
      s.gemm_nn(c, V, K, T(-1), keys.to_start(c, look, x, key_rows), K, S, V, T(1), v, V);
      if (r) std::copy_n(v, c * V, r);
      s.scale_rows(c, V, beta, v, V, u, V);
      s.solve_nn(c, V, A, C, u, V);
    } else {
      s.scale_rows(c, V, beta, v, V, u, V);
      find_systems(c);
      s.gemm_nn(c, V, K, T(1), keys.to_start(c, look, x, key_rows), K, S, V, T(0), r, V);
      s.trmm_nn(c, V, T(1), N, C, u, V, T(1), r, V);
      s.solve_nn(c, V, A, C, r, V);
    }
  }

  // out = (Q^ S_0)^v + apply_v(P, U)
  void read(Size c, const T* S, T* out) {
    s.gemm_nn(c, V, K, T(1), keys.to_start(c, ask, q, key_rows), K, S, V, T(0), out, V);
    values.to_start_in_place(c, ask, out);
    values.apply(c, ask, P, u, out);
  }

  void decay_state(Size c, T* S) {
    if (keys.gated()) s.scale_rows(K, V, keys.over(c), S, V, S, V);
    if (values.gated()) s.scale_columns(K, V, values.over(c), S, V, S, V);
  }

  // d_u from the gradient of what was written to that of v, d_r, and the gradient of beta.
  void through_writes(const VectorProblem<T>& p, const VectorGradient<T>& d, Size c, const T* dS, Size row,
                      Size begin, int head, bool answers) {
    if constexpr (erase == Erase::other) {
      s.gemm_nn(c, V, K, T(1), keys.to_end(c, y, key_rows), K, dS, V, T(0), d_r, V);
      if (answers) {
        keys.pair(c, ask, false, q, y, P);
        s.trmm_tn(c, V, T(1), P, C, o, V, T(1), d_r, V);
      }
      s.solve_tn(c, V, A, C, d_r, V);
      s.trmm_tn(c, V, T(1), N, C, d_r, V, T(1), d_u, V);
    }
    if constexpr (erase == Erase::same) s.solve_tn(c, V, A, C, d_u, V);
    if (d.d_beta) {
      if constexpr (erase == Erase::same) s.trmm_nn(c, V, T(-1), N, C, u, V, T(1), r, V);
      s.row_dots(c, V, d_u, V, erase == Erase::same ? r : v, V, beta_dots());
      for (Size i = 0; i < c; ++i) d.d_beta(row, begin + i, head) += beta_dots()[i];
    }
    if (p.beta) s.scale_rows(c, V, beta, d_u, V, d_u, V);
    if constexpr (erase == Erase::same) s.scale(c * V, T(-1), d_u, d_r);
  }
  T* beta_dots() { return wide; }

  // out = stril(l r'), with a zero diagonal
  void outer(Size c, const T* left, const T* right, T* out) {
    s.transpose(c, V, right, V, wide, C);
    s.gemm_lower(c, V, T(1), left, V, wide, C, out, C);
    for (Size i = 0; i < c; ++i) out[i * C + i] = T(0);
  }

  // o_i += (q_i . w*k_i) v_i: adds to d_q and d_k, and to the caller's d_v and d_bonus.
  void through_bonus(const VectorGradient<T>& d, Size c, Size row, Size begin, int head) {
    s.scale_columns(c, K, w, k, K, key_rows, K);
    for (Size i = 0; i < c; ++i) s.axpy(K, s.dot(V, v + i * V, o + i * V), key_rows + i * K, d_q + i * K);
    s.scale_columns(c, K, w, q, K, key_rows, K);
    for (Size i = 0; i < c; ++i) s.axpy(K, s.dot(V, v + i * V, o + i * V), key_rows + i * K, d_k + i * K);
    if (d.d_v) {
      s.scale_rows(c, V, own, o, V, value_rows, V);
      add_rows(s, T(1), value_rows, row, begin, c, head, V, d.d_v);
    }
    if (!d.d_bonus) return;
    for (Size i = 0; i < c; ++i) s.scale(K, s.dot(V, v + i * V, o + i * V), k + i * K, key_rows + i * K);
    s.mul(c * K, q, key_rows, key_rows);
    for (int j = 0; j < K; ++j) {
      double sum = 0;
      for (Size i = 0; i < c; ++i) sum += key_rows[i * K + j];
      d.d_bonus(head, j) += static_cast<T>(sum);
    }
  }

  const Simd<T>& s;
  const StateSimd<T>& through;
  int K, V;
  Size C;
  static constexpr Size longest_bounded =
      256;                   // with Form::parallel the search for the next cut must not grow with T
  Prefetch<T> ahead, hints;  // between products, and while a sweep is at work
  Prefetch<T> behind;        // backwards, while products are at work
  bool past = false;         // gradients go past the caches
  bool sweeps = true;
  Reader ask = Reader::after, look = Reader::before;
  VectorRecurrent<T, erase> one_by_one;  // tokens whose gates are too strong for a frame
  Gates<T> keys, values;
  T *q, *k, *v, *u, *o, *kt, *key_rows, *value_rows, *P, *beta, *own, *w, *swept;
  T *x = nullptr, *y = nullptr, *yt = nullptr, *r = nullptr, *A = nullptr, *N = nullptr;
  T *PX = nullptr, *inside = nullptr, *d_own = nullptr;  // inside: states between the pieces of a chunk
  T* kept_rows = nullptr;
  const T *next_state = nullptr, *next_rows = nullptr;
  SlotShape next_sizes;
  T* found = nullptr;  // R, where it was not kept
  bool alone = false;  // one head goes to the end before the next begins
  T *d_u = nullptr, *d_q = nullptr, *d_k = nullptr, *d_x = nullptr, *d_y = nullptr, *d_r = nullptr;
  T *st = nullptr, *d_st = nullptr, *wide = nullptr, *last = nullptr, *answer = nullptr;
  T *near_k = nullptr, *near_y = nullptr, *end_k = nullptr, *end_y = nullptr;  // what no gate has touched
};

}  // namespace ttr::families

#include "families/linear/channel/bounded.h"
#include "families/linear/channel/sweep.h"
