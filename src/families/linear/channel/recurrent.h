// Recurrent form with a gate for every channel, for one head: the step in a loop, one sweep over S per token. A
// sequence in one call has the same bits as one call per token. The recurrence is in vector.h; R is S_{t-1} or S~.
//
// Backward, newest token first, with S_{t-1} and S_t from a segment recomputed between stored states (q scaled):
//
//   dS += q do' ;  dq = S_t do        (read_before: dq = S_{t-1} do now, and dS += q do' at the very end)
//   du = dS' k ;  dk = dS u ;  dbeta = du . (v - r | v) ;  dv = beta du ;  dr = -dv | dS' b | none ;  db = dS r
//   da = R dr ;  decayed_read: dS += a dr' first ;  dgk = rowsum(S~ * dS) ;  dgv = colsum(S~ * dS)
//   dS <- diag(e^gk) dS diag(e^gv)  (+ a dr' where the read is undecayed)
//   bonus, with s = q . (w*k) and x = v . do:   dq += w*k x ;  dk += w*q x ;  dv += s do ;  dw += q*k x
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/common/heads.h"
#include "families/common/scratch.h"
#include "families/linear/channel/problem.h"
#include "families/linear/half_sweep.h"
#include "families/linear/state_simd.h"
#include "simd/simd.h"

namespace ttr::families {

template <class T, Erase erase>
class VectorRecurrent {
 public:
  using Size = std::ptrdiff_t;

  VectorRecurrent(const Simd<T>& simd, int key_dim, int value_dim, Size longest, bool backward, Arena& arena)
      : s(simd),
        through(state_simd(simd)),
        K(key_dim),
        V(value_dim),
        most(std::min(block, std::max<Size>(longest, 1))) {
    const Size gates = std::max<Size>(most, heads_at_once);
    q = arena.take<T>(most * K), k = arena.take<T>(most * K);
    v = arena.take<T>(step_buffer<T>(most, V)), o = arena.take<T>(step_buffer<T>(most, V));
    rows = arena.take<T>(gates * K), columns = arena.take<T>(gates * V);
    beta = arena.take<T>(gates), own = arena.take<T>(gates), w = arena.take<T>(K);
    if (erase != Erase::none) x = arena.take<T>(gates * K);
    if (erase == Erase::other) y = arena.take<T>(most * K);
    panel = arena.take<T>(StateSimd<T>::sweep_scratch(K));
    if (!backward) return;
    u = arena.take<T>(V), d_u = arena.take<T>(V), r = arena.take<T>(V), d_r = arena.take<T>(V);
    d_q = arena.take<T>(K), d_k = arena.take<T>(K), d_x = arena.take<T>(std::max(K, V));
    decayed = arena.take<T>(Size{K} * V);
  }

  /// Tokens begin .. end-1: S [K,V] moves on, their outputs are written if `output`.
  void forward(const VectorProblem<T>& p, Size row, Size begin, Size end, int head, T* S, bool output) {
    const int key_head = head / (p.heads / p.key_heads);
    for (Size n; begin < end; begin += n) {
      n = std::min(most, end - begin);
      load_gates(p, row, begin, n, head);
      typename StateSimd<T>::Tokens t{.n = n, .K = K, .V = V, .rows = rows, .ld_rows = p.gk ? K : 0};
      if (p.gv) t.columns = columns, t.ld_columns = V;
      if (p.beta) t.beta = beta;
      t.k = contiguous(s, p.k, row, begin, n, key_head, K, k, &t.ldk);
      t.v = load_values(p, row, begin, n, head, &t.ldv);
      if (output) t.q = contiguous(s, p.q, row, begin, n, key_head, K, q, &t.ldq);
      if constexpr (erase != Erase::none) {
        t.x = p.a ? contiguous(s, p.a, row, begin, n, head, K, x, &t.ldx) : (t.ldx = t.ldk, t.k);
        if (p.decayed_read && p.gk) {
          for (Size i = 0; i < n; ++i) s.mul(K, t.x + i * t.ldx, rows + i * K, x + i * K);
          t.x = x, t.ldx = K;
        }
      }
      if constexpr (erase == Erase::other) t.y = contiguous(s, p.b, row, begin, n, head, K, y, &t.ldy);
      t.scale = p.scale, t.before = p.read_before;
      if (output && p.bonus) {
        through.bonus_dots(n, 1, K, p.scale, bonus_of(p, head), 0, t.k, t.ldk, t.q, t.ldq, own);
        t.direct = own;
      }
      const bool direct = output && p.o.stride[3] == 1;
      through.gated_sweep(t, S, V, direct ? &p.o(row, begin, head, 0) : o, direct ? p.o.stride[1] : V, panel);
      if (output && !direct) unpack(s, o, row, begin, n, head, V, p.o);
    }
  }

  /// One token of all heads, S [heads, K, V], with the bits of forward. False, and nothing done, where rows of the
  /// caller's tensors are neither contiguous nor of a half type, or no outputs are wanted.
  bool step(const VectorProblem<T>& p, Size row, Size t, T* S) {
    if (!p.o || !has_step_rows(p.q) || !has_step_rows(p.k) || !has_step_rows(p.o)) return false;
    if ((p.v && !has_step_rows(p.v)) || (p.a && !has_step_rows(p.a)) || (p.b && !has_step_rows(p.b))) return false;
    for_head_blocks(p.heads, p.key_heads, [&](const HeadBlock& h) {
      typename StateSimd<T>::Tokens token{.n = h.count, .K = K, .V = V, .rows = rows, .ld_rows = p.gk ? K : 0};
      if (p.gk) step_gates(p.gk, row, t, h, K, rows);
      else std::fill_n(rows, K, T(1));
      if (p.gv) step_gates(p.gv, row, t, h, V, columns), token.columns = columns, token.ld_columns = V;
      for (int i = 0; p.beta && i < h.count; ++i) beta[i] = p.beta(row, t, h.first + i);
      if (p.beta) token.beta = beta;
      const int keys = (h.count + h.group - 1) / h.group;
      token.k = rows_of_heads(s, p.k, row, t, h.key_head, keys, K, step_rows(0), &token.ldk);
      token.q = rows_of_heads(s, p.q, row, t, h.key_head, keys, K, step_rows(1), &token.ldq);
      if (p.v) take_values_of_heads(s, p.v, row, t, h, erase != Erase::none, v, token);
      else std::fill_n(v, V, T(0)), token.v = v;
      Size x_group = 1;
      if constexpr (erase != Erase::none) {
        x_group = p.a ? 1 : h.group;
        if (p.a) token.x = rows_of_heads(s, p.a, row, t, h.first, h.count, K, x, &token.ldx);
        else token.x = token.k, token.ldx = token.ldk;
        if (p.decayed_read && p.gk) {
          for (Size i = 0; i < h.count; ++i) s.mul(K, token.x + i / x_group * token.ldx, rows + i * K, x + i * K);
          token.x = x, token.ldx = K, x_group = 1;
        }
      }
      if constexpr (erase == Erase::other)
        token.y = rows_of_heads(s, p.b, row, t, h.first, h.count, K, step_rows(2), &token.ldy);
      token.scale = p.scale, token.before = p.read_before;
      if (p.bonus) bonus_of_heads(p, h, token);
      to_answers_of_heads(s, p.o, row, t, h, erase != Erase::none, o, token, [&](T* answers, Size ld) {
        through.gated_heads(token, h.group, x_group, S + Size{h.first} * K * V, answers, ld);
      });
    });
    return true;
  }

  /// One token backwards: S_old = S_{t-1}, S_new = S_t, dS [K,V] from the gradient of S_t to that of S_{t-1}.
  void backward(const VectorProblem<T>& p, const VectorGradient<T>& d, Size row, Size t, int head, const T* S_old,
                const T* S_new, T* dS) {
    const int key_head = head / (p.heads / p.key_heads);
    Size ld;
    load_gates(p, row, t, 1, head);
    const T* const key = contiguous(s, p.k, row, t, 1, key_head, K, k, &ld);
    const T* const value = load_values(p, row, t, 1, head, &ld);
    const T* asked = nullptr;
    s.scale_rows(K, V, rows, S_old, V, decayed, V);
    if (p.gv) s.scale_columns(K, V, columns, decayed, V, decayed, V);
    if (d.d_o) {
      pack(s, p.q, row, t, 1, key_head, K, p.scale, q);
      asked = contiguous(s, d.d_o, row, t, 1, head, V, o, &ld);
      if (!p.read_before) s.rank_one(K, V, T(1), q, asked, dS, V);
      if (d.d_q) {
        s.mat_vec(K, V, p.read_before ? S_old : S_new, V, asked, d_q);
        add_rows(s, p.scale, d_q, row, t, 1, key_head, K, d.d_q);
      }
    }
    const T *read_key = nullptr, *erase_key = nullptr;
    const T* const seen = p.decayed_read ? decayed : S_old;
    if constexpr (erase != Erase::none) {
      read_key = p.a ? contiguous(s, p.a, row, t, 1, head, K, x, &ld) : key;
      s.vec_mat(K, V, read_key, seen, V, r);
    }
    if constexpr (erase == Erase::other) erase_key = contiguous(s, p.b, row, t, 1, head, K, y, &ld);

    s.vec_mat(K, V, key, dS, V, d_u);
    for (int j = 0; j < V; ++j) u[j] = erase == Erase::same ? value[j] - r[j] : value[j];
    if (d.d_beta) d.d_beta(row, t, head) += s.dot(V, d_u, u);
    s.scale(V, beta[0], u, u), s.scale(V, beta[0], d_u, d_u);
    if (d.d_v) add_rows(s, T(1), d_u, row, t, 1, head, V, d.d_v);
    if (d.d_k) {
      s.mat_vec(K, V, dS, V, u, d_k);
      add_rows(s, T(1), d_k, row, t, 1, key_head, K, d.d_k);
    }
    if constexpr (erase == Erase::same) s.scale(V, T(-1), d_u, d_r);
    if constexpr (erase == Erase::other) {
      s.vec_mat(K, V, erase_key, dS, V, d_r);
      if (d.d_b) s.mat_vec(K, V, dS, V, r, d_x), add_rows(s, T(1), d_x, row, t, 1, head, K, d.d_b);
    }
    if constexpr (erase != Erase::none) {
      if (p.a ? d.d_a : d.d_k) {
        s.mat_vec(K, V, seen, V, d_r, d_x);
        if (p.a) add_rows(s, T(1), d_x, row, t, 1, head, K, d.d_a);
        else add_rows(s, T(1), d_x, row, t, 1, key_head, K, d.d_k);
      }
      if (p.decayed_read) s.rank_one(K, V, T(1), read_key, d_r, dS, V);
    }
    if (d.d_gk) s.row_dots(K, V, decayed, V, dS, V, d_x), add_rows(s, T(1), d_x, row, t, 1, head, K, d.d_gk);
    if (d.d_gv) {
      std::fill_n(d_x, V, T(0));
      for (Size i = 0; i < K; ++i) s.mul_add(V, decayed + i * V, dS + i * V, d_x);
      add_rows(s, T(1), d_x, row, t, 1, head, V, d.d_gv);
    }
    if (p.gk) s.scale_rows(K, V, rows, dS, V, dS, V);
    if (p.gv) s.scale_columns(K, V, columns, dS, V, dS, V);
    if constexpr (erase != Erase::none)
      if (!p.decayed_read) s.rank_one(K, V, T(1), read_key, d_r, dS, V);
    if (asked && p.read_before) s.rank_one(K, V, T(1), q, asked, dS, V);
    if (asked && p.bonus) through_bonus(p, d, row, t, head, key, value, asked);
  }

 private:
  static constexpr Size block = 64;  // tokens per sweep: their keys and queries stay in cache beside a panel of S

  void load_gates(const VectorProblem<T>& p, Size row, Size begin, Size n, int head) {
    if (p.gk) pack(s, p.gk, row, begin, n, head, K, T(1), rows), s.exp(n * K, rows, rows);
    else std::fill_n(rows, K, T(1));
    if (p.gv) pack(s, p.gv, row, begin, n, head, V, T(1), columns), s.exp(n * V, columns, columns);
    for (Size i = 0; i < n; ++i) beta[i] = p.beta ? p.beta(row, begin + i, head) : T(1);
  }
  // Room for rows of heads_at_once keys; a step moves no panels.
  T* step_rows(Size which) const {
    static_assert(3 * heads_at_once <= StateSimd<T>::sweep_scratch(1) || sizeof(T) > 4);
    return panel + which * heads_at_once * K;
  }
  // out [count, dim] = exp of the gates of some heads
  void step_gates(const View<const T, 4>& g, Size row, Size t, const HeadBlock& h, int dim, T* out) {
    if constexpr (sizeof(T) == 4)
      if (has_half_rows(g))
        return through.exp_rows(g.stride[3] == stride_of_bf16 ? Halves::bf16 : Halves::f16, h.count, dim,
                                reinterpret_cast<const T*>(half_row(g, row, t, h.first)), g.stride[2], out);
    if (has_rows(g)) return through.exp_rows(Halves::none, h.count, dim, &g(row, t, h.first, 0), g.stride[2], out);
    for (int i = 0; i < h.count; ++i) pack(s, g, row, t, 1, h.first + i, dim, T(1), out + Size{i} * dim);
    s.exp(Size{h.count} * dim, out, out);
  }
  const T* load_values(const VectorProblem<T>& p, Size row, Size begin, Size n, int head, Size* ld) {
    if (p.v) return contiguous(s, p.v, row, begin, n, head, V, v, ld);
    *ld = 0;
    std::fill_n(v, V, T(0));
    return v;
  }
  // The weights of a head where they lie, or in w.
  const T* bonus_of(const VectorProblem<T>& p, int head) {
    if (p.bonus.stride[1] == 1) return &p.bonus(head, 0);
    for (int j = 0; j < K; ++j) w[j] = p.bonus(head, j);
    return w;
  }
  void bonus_of_heads(const VectorProblem<T>& p, const HeadBlock& h, typename StateSimd<T>::Tokens& token) {
    token.direct = own;
    if (p.bonus.stride[1] == 1)
      return through.bonus_dots(h.count, h.group, K, p.scale, &p.bonus(h.first, 0), p.bonus.stride[0], token.k,
                                token.ldk, token.q, token.ldq, own);
    for (Size i = 0; i < h.count; ++i)
      through.bonus_dots(1, 1, K, p.scale, bonus_of(p, h.first + static_cast<int>(i)), 0,
                         token.k + i / h.group * token.ldk, 0, token.q + i / h.group * token.ldq, 0, own + i);
  }

  void through_bonus(const VectorProblem<T>& p, const VectorGradient<T>& d, Size row, Size t, int head, const T* key,
                     const T* value, const T* asked) {
    const int key_head = head / (p.heads / p.key_heads);
    const T along = s.dot(V, value, asked);
    const T* const weights = bonus_of(p, head);
    s.mul(K, weights, key, d_q), s.mul(K, weights, q, d_k);
    if (d.d_v) {
      s.scale(V, s.dot(K, q, d_q), asked, d_u);
      add_rows(s, T(1), d_u, row, t, 1, head, V, d.d_v);
    }
    if (d.d_q) add_rows(s, p.scale * along, d_q, row, t, 1, key_head, K, d.d_q);
    if (d.d_k) add_rows(s, along, d_k, row, t, 1, key_head, K, d.d_k);
    if (d.d_bonus)
      for (int j = 0; j < K; ++j) d.d_bonus(head, j) += along * q[j] * key[j];
  }

  const Simd<T>& s;
  const StateSimd<T>& through;
  int K, V;
  Size most;
  T *q, *k, *v, *o, *rows, *columns, *beta, *own, *w, *panel;
  T *x = nullptr, *y = nullptr, *u = nullptr, *d_u = nullptr, *r = nullptr, *d_r = nullptr;
  T *d_q = nullptr, *d_k = nullptr, *d_x = nullptr, *decayed = nullptr;
};

}  // namespace ttr::families
