// One token of the delta rule with momentum (momentum.h), forwards; and backwards, newest token first:
//
//   dS += scale q do' ;  dq = scale S do ;  dbeta = <dS, Z> ;  dZ += beta dS ;  deta = r.(dZ' k) ;  dr = eta dZ' k
//   dk = eta dZ r ;  dv = dr ;  dp = -f S_old dr ;  dg = <a dS, S_old> (+ p.dp when the read decays)
//   dg_mu = <mu dZ, Z_old> ;  dS <- a dS - f p dr' ;  dZ <- mu dZ
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "families/common/heads.h"
#include "families/common/parts.h"
#include "families/common/scratch.h"
#include "families/linear/momentum/momentum.h"
#include "families/linear/state_simd.h"
#include "simd/simd.h"

namespace ttr::families::momentum {

using Size = std::ptrdiff_t;

template <class T>
T gate(const View<const T, 3>& g, Size row, Size t, int head) {
  return g ? std::exp(g(row, t, head)) : T(1);
}
template <class T>
T weight(const View<const T, 3>& x, Size row, Size t, int head) {
  return x ? x(row, t, head) : T(1);
}
inline int key_head(const auto& linear, int head) { return head / (linear.heads / linear.key_heads); }

template <class T>
class Token {
 public:
  Token(const Simd<T>& simd, int key_dim, int value_dim, Size /*longest*/, bool /*backward*/, Arena& arena)
      : s(simd), through(state_simd(simd)), K(key_dim), V(value_dim) {
    q = arena.take<T>(K), k = arena.take<T>(K), p = arena.take<T>(K), r = arena.take<T>(V), o = arena.take<T>(V);
    d_k = arena.take<T>(K), d_r = arena.take<T>(V);
    for (T** x : {&decays, &reads, &momenta, &steps, &rates}) *x = arena.take<T>(heads_at_once);
  }

  /// Tokens begin .. end-1: the state {S, Z} moves on. v without data = 0.
  void forward(const MomentumProblem<T>& m, Size row, Size begin, Size end, int head, const Parts<T, 2>& state,
               bool outputs) {
    const LinearProblem<T>& a = m.linear;
    const int shared = key_head(a, head);
    const bool direct = outputs && has_rows(a.o);
    for (Size t = begin; t < end; ++t) {
      typename StateSimd<T>::Momentum x = gates(m, row, t, {head, 1, shared, 1});
      const auto rows = [&](const View<const T, 4>& from, int h, int dim, T* buffer) {
        Size ld;
        return contiguous(s, from, row, t, 1, h, dim, buffer, &ld);
      };
      x.k = rows(a.k, shared, K, k), x.v = a.v ? rows(a.v, head, V, r) : std::fill_n(r, V, T(0)) - V;
      x.p = m.p ? rows(m.p, shared, K, p) : x.k;
      if (outputs) x.q = rows(a.q, shared, K, q);
      through.momentum_heads(x, state[0], state[1], direct ? &a.o(row, t, head, 0) : o, V);
      if (outputs && !direct) unpack(o, row, t, 1, head, V, a.o);
    }
  }

  /// One token of all heads, with the bits of forward. False, and nothing done, where rows of the caller's tensors are
  /// not contiguous or no outputs are wanted.
  bool step(const MomentumProblem<T>& m, Size row, Size t, const Parts<T, 2>& state) {
    const LinearProblem<T>& a = m.linear;
    if (!a.o || !has_rows(a.q) || !has_rows(a.k) || !has_rows(a.v) || !has_rows(a.o) || (m.p && !has_rows(m.p)))
      return false;
    for_head_blocks(a.heads, a.key_heads, [&](const HeadBlock& h) {
      typename StateSimd<T>::Momentum x = gates(m, row, t, h);
      x.k = &a.k(row, t, h.key_head, 0), x.ldk = a.k.stride[2], x.v = &a.v(row, t, h.first, 0), x.ldv = a.v.stride[2];
      x.p = m.p ? &m.p(row, t, h.key_head, 0) : x.k, x.ldp = m.p ? m.p.stride[2] : x.ldk;
      x.q = &a.q(row, t, h.key_head, 0), x.ldq = a.q.stride[2];
      const Size at = Size{h.first} * K * V;
      through.momentum_heads(x, state[0] + at, state[1] + at, &a.o(row, t, h.first, 0), a.o.stride[2]);
    });
    return true;
  }

  void backward(const MomentumProblem<T>& m, const MomentumGradient<T>& d, Size row, Size t, int head,
                const Parts<const T, 2>& old, const Parts<const T, 2>& now, const Parts<T, 2>& d_state) {
    const auto [dS, dZ] = d_state;
    const LinearProblem<T>& a = m.linear;
    const LinearGradient<T>& out = d.linear;
    const Size n = Size{K} * V;
    const int shared = key_head(a, head);
    const T f = load(m, row, t, head, old[0]);
    const T decay = gate(a.g, row, t, head), mu = gate(m.g_mu, row, t, head);
    const T eta = weight(m.eta, row, t, head), beta = weight(a.beta, row, t, head);
    if (out.d_o) {
      pack(s, a.q, row, t, 1, shared, K, a.scale, q);
      pack(s, out.d_o, row, t, 1, head, V, T(1), o);
      s.rank_one(K, V, T(1), q, o, dS, V);
      if (out.d_q) {
        s.mat_vec(K, V, now[0], V, o, d_k);
        add_rows(s, a.scale, d_k, row, t, 1, shared, K, out.d_q);
      }
    }
    if (out.d_beta) out.d_beta(row, t, head) += s.dot(n, dS, now[1]);
    s.axpy(n, beta, dS, dZ);
    s.vec_mat(K, V, k, dZ, V, d_r);
    if (d.d_eta) d.d_eta(row, t, head) += s.dot(V, r, d_r);
    s.scale(V, eta, d_r, d_r);
    if (out.d_v) add_rows(s, T(1), d_r, row, t, 1, head, V, out.d_v);
    if (out.d_k) {
      s.mat_vec(K, V, dZ, V, r, d_k);
      add_rows(s, eta, d_k, row, t, 1, shared, K, out.d_k);
    }
    s.mat_vec(K, V, old[0], V, d_r, d_k);
    s.scale(K, -f, d_k, d_k);
    if (const View<T, 4>& to = m.p ? d.d_p : out.d_k; to) add_rows(s, T(1), d_k, row, t, 1, shared, K, to);
    if (out.d_g)
      out.d_g(row, t, head) +=
          decay * s.dot(n, dS, old[0]) + (m.residual == Residual::decayed ? s.dot(K, p, d_k) : T(0));
    if (d.d_g_mu) d.d_g_mu(row, t, head) += mu * s.dot(n, dZ, old[1]);
    s.scale(V, -f, d_r, d_r);
    s.rank_one(K, V, decay, p, d_r, dS, V);
    s.scale(n, mu, dZ, dZ);
  }

 private:
  typename StateSimd<T>::Momentum gates(const MomentumProblem<T>& m, Size row, Size t, const HeadBlock& h) {
    const LinearProblem<T>& a = m.linear;
    for (int i = 0; i < h.count; ++i) {
      const int head = h.first + i;
      decays[i] = gate(a.g, row, t, head), momenta[i] = gate(m.g_mu, row, t, head);
      reads[i] = m.residual == Residual::decayed ? decays[i] : T(1);
      steps[i] = weight(m.eta, row, t, head), rates[i] = weight(a.beta, row, t, head);
    }
    return {.heads = h.count,
            .group = h.group,
            .K = K,
            .V = V,
            .a = decays,
            .f = reads,
            .mu = momenta,
            .eta = steps,
            .beta = rates,
            .scale = a.scale};
  }

  // k, p and the residual r of a token; returns f.
  T load(const MomentumProblem<T>& m, Size row, Size t, int head, const T* S) {
    const LinearProblem<T>& a = m.linear;
    const int shared = key_head(a, head);
    const T f = m.residual == Residual::decayed ? gate(a.g, row, t, head) : T(1);
    pack(s, a.k, row, t, 1, shared, K, T(1), k);
    pack(s, m.p ? m.p : a.k, row, t, 1, shared, K, T(1), p);
    s.vec_mat(K, V, p, S, V, d_r);
    pack(s, a.v, row, t, 1, head, V, T(1), r);
    s.axpy(V, -f, d_r, r);
    return f;
  }

  const Simd<T>& s;
  const StateSimd<T>& through;
  int K, V;
  T *q, *k, *p, *r, *o, *d_k, *d_r;
  T *decays, *reads, *momenta, *steps, *rates;  // of the heads of a step
};

}  // namespace ttr::families::momentum
