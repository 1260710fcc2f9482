// Recurrent form of scalar decay and of the delta rule, for one head: the step in a loop, one sweep over S per token.
//
//   u = beta (v - b S' k), b = e^g | 1 (add: u = beta v) ;   S <- e^g S + k u' ;   o = scale S' q (+ skip v)
//
// A sequence in one call has the same bits as one call per token.
//
// Backward, newest token first, with S_{t-1} and S_t from a segment recomputed between stored states:
//
//   dS += scale q do' ;  dq = scale S_t do ;  du = dS' k ;  dk = dS u ;  dbeta = du . u / beta ;  dv = beta du
//   add               dg = e^g <dS, S_{t-1}> ;                          dS <- e^g dS
//   delta             dk -= e^g S_{t-1} dv ;  dS -= k dv' ;  dg = e^g <dS, S_{t-1}> ;  dS <- e^g dS
//   delta_undecayed   dk -= S_{t-1} dv ;      dg = e^g <dS, S_{t-1}> ;                 dS <- e^g dS - k dv'
//
// (dbeta is taken as du . (v - b S' k), which also holds at beta = 0.)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "families/common/heads.h"
#include "families/common/linear.h"
#include "families/common/scratch.h"
#include "families/linear/half_sweep.h"
#include "families/linear/scalar/rule.h"
#include "families/linear/state_simd.h"
#include "simd/simd.h"

namespace ttr::families {

template <class T, Rule rule>
class RecurrentForm {
 public:
  using Size = std::ptrdiff_t;

  RecurrentForm(const Simd<T>& simd, int key_dim, int value_dim, Size longest, bool backward, Arena& arena)
      : s(simd),
        through(state_simd(simd)),
        K(key_dim),
        V(value_dim),
        most(std::min(block, std::max<Size>(longest, 1))) {
    q = arena.take<T>(most * K), k = arena.take<T>(most * K);
    v = arena.take<T>(step_buffer<T>(most, V)), o = arena.take<T>(step_buffer<T>(most, V));
    const Size gates = std::max<Size>(most, heads_at_once);
    a = arena.take<T>(gates), beta = arena.take<T>(gates), ones = arena.take<T>(gates);
    direct = arena.take<T>(gates);
    panel = arena.take<T>(StateSimd<T>::sweep_scratch(K));
    if (!backward) return;
    u = arena.take<T>(V), d_u = arena.take<T>(V), r = arena.take<T>(V), d_q = arena.take<T>(K),
    d_k = arena.take<T>(K);
  }

  /// Tokens begin .. end-1: S [K,V] moves on, their outputs are written if `output`.
  void forward(const LinearProblem<T>& p, Size row, Size begin, Size end, int head, T* S, bool output) {
    const int key_head = head / (p.heads / p.key_heads);
    for (Size n; begin < end; begin += n) {
      n = std::min(most, end - begin);
      for (Size i = 0; i < n; ++i) {
        a[i] = p.g ? p.g(row, begin + i, head) : T(0), beta[i] = p.beta ? p.beta(row, begin + i, head) : T(1);
        ones[i] = T(1);
      }
      s.exp(n, a, a);
      Size ldk, ldv, ldq = 0;
      const T* const key = contiguous(s, p.k, row, begin, n, key_head, K, k, &ldk);
      const T* const value = contiguous(s, p.v, row, begin, n, head, V, v, &ldv);
      const T* const query = output ? contiguous(s, p.q, row, begin, n, key_head, K, q, &ldq) : nullptr;
      const bool in_place = output && p.o.stride[3] == 1;
      T* const answer = in_place ? &p.o(row, begin, head, 0) : o;
      const T* const b = rule == Rule::add ? nullptr : rule == Rule::delta ? a : ones;
      through.sweep(n, K, V, a, b, beta, p.scale, key, ldk, value, ldv, query, ldq, S, V, answer,
                    in_place ? p.o.stride[1] : V, panel);
      if (output && p.skip)
        for (Size i = 0; i < n; ++i)
          s.axpy(V, p.skip(head), value + i * ldv, answer + i * (in_place ? p.o.stride[1] : V));
      if (output && !in_place) unpack(s, o, row, begin, n, head, V, p.o);
    }
  }

  /// One token of all heads, S [heads, K, V], with the bits of forward. False, and nothing done, where rows of the
  /// caller's tensors are neither contiguous nor of a half type, or no outputs are wanted.
  bool step(const LinearProblem<T>& p, Size row, Size t, T* S) {
    if (!p.o || !has_step_rows(p.q) || !has_step_rows(p.k) || !has_step_rows(p.v) || !has_step_rows(p.o))
      return false;
    for_head_blocks(p.heads, p.key_heads, [&](const HeadBlock& h) {
      for (int i = 0; i < h.count; ++i) {
        a[i] = p.g ? p.g(row, t, h.first + i) : T(0), beta[i] = p.beta ? p.beta(row, t, h.first + i) : T(1);
        ones[i] = T(1), direct[i] = p.skip ? p.skip(h.first + i) : T(0);
      }
      s.exp(h.count, a, a);
      typename StateSimd<T>::Tokens x{.n = h.count, .K = K, .V = V, .beta = beta, .scale = p.scale};
      const int keys = (h.count + h.group - 1) / h.group;
      static_assert(2 * heads_at_once <= StateSimd<T>::sweep_scratch(1));  // a step moves no panels
      x.k = rows_of_heads(s, p.k, row, t, h.key_head, keys, K, panel, &x.ldk);
      x.q = rows_of_heads(s, p.q, row, t, h.key_head, keys, K, panel + Size{heads_at_once} * K, &x.ldq);
      take_values_of_heads(s, p.v, row, t, h, reads(rule), v, x);
      if (p.skip) x.direct = direct;
      const T* const b = rule == Rule::add ? nullptr : rule == Rule::delta ? a : ones;
      to_answers_of_heads(s, p.o, row, t, h, reads(rule), o, x, [&](T* answers, Size ld) {
        through.sweep_heads(x, h.group, a, b, S + Size{h.first} * K * V, answers, ld);
      });
    });
    return true;
  }

  /// One token backwards: S_old = S_{t-1}, S_new = S_t, dS [K,V] from the gradient of S_t to that of S_{t-1}.
  void backward(const LinearProblem<T>& p, const LinearGradient<T>& d, Size row, Size t, int head, const T* S_old,
                const T* S_new, T* dS) {
    const int key_head = head / (p.heads / p.key_heads);
    T decay = p.g ? p.g(row, t, head) : T(0);
    s.exp(1, &decay, &decay);
    const T read = rule == Rule::delta ? decay : T(1);
    const T step = p.beta ? p.beta(row, t, head) : T(1);
    Size ld;
    const T* const key = contiguous(s, p.k, row, t, 1, key_head, K, k, &ld);
    const T* const value = contiguous(s, p.v, row, t, 1, head, V, v, &ld);
    if (d.d_o) {
      pack(s, p.q, row, t, 1, key_head, K, p.scale, q);
      const T* const d_answer = contiguous(s, d.d_o, row, t, 1, head, V, o, &ld);
      s.rank_one(K, V, T(1), q, d_answer, dS, V);
      if (d.d_q) {
        s.mat_vec(K, V, S_new, V, d_answer, d_q);
        add_rows(s, p.scale, d_q, row, t, 1, key_head, K, d.d_q);
      }
    }
    s.vec_mat(K, V, key, dS, V, d_u);
    if constexpr (reads(rule)) {
      s.vec_mat(K, V, key, S_old, V, r);
      for (int j = 0; j < V; ++j) r[j] = value[j] - read * r[j];
    } else {
      std::memcpy(r, value, static_cast<std::size_t>(V) * sizeof(T));
    }
    s.scale(V, step, r, u);
    if (d.d_beta) d.d_beta(row, t, head) += s.dot(V, d_u, r);
    s.scale(V, step, d_u, d_u);
    if (d.d_v) add_rows(s, T(1), d_u, row, t, 1, head, V, d.d_v);
    if (d.d_k) {
      s.mat_vec(K, V, dS, V, u, d_k);
      add_rows(s, T(1), d_k, row, t, 1, key_head, K, d.d_k);
      if constexpr (reads(rule)) {
        s.mat_vec(K, V, S_old, V, d_u, d_k);
        add_rows(s, -read, d_k, row, t, 1, key_head, K, d.d_k);
      }
    }
    if constexpr (reads(rule)) s.scale(V, T(-1), d_u, d_u);
    if constexpr (rule == Rule::delta) s.rank_one(K, V, T(1), key, d_u, dS, V);
    if (d.d_g) d.d_g(row, t, head) += decay * s.dot(K * V, dS, S_old);
    if constexpr (rule == Rule::delta_undecayed) s.rank_one(K, V, decay, key, d_u, dS, V);
    else if (p.g) s.scale(K * V, decay, dS, dS);
  }

 private:
  static constexpr Size block = 64;  // tokens per sweep: their keys and queries stay in cache beside a panel of S

  const Simd<T>& s;
  const StateSimd<T>& through;
  int K, V;
  Size most;
  T *q, *k, *v, *o, *a, *beta, *ones, *direct, *panel;
  T *u = nullptr, *d_u = nullptr, *r = nullptr, *d_q = nullptr, *d_k = nullptr;
};

}  // namespace ttr::families
