// Recurrent form of scalar decay and of the delta rule, for one head: the step in a loop, one sweep over S per token.
//
//   u = beta (v - b S' k), b = e^g | 1 (add: u = beta v) ;   S <- e^g S + k u' ;   o = S' (scale q)
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

#include <cmath>
#include <cstddef>

#include "families/linear.h"
#include "families/rule.h"
#include "families/scratch.h"
#include "simd/simd.h"

namespace ttr::families {

template <class T, Rule rule>
class RecurrentForm {
 public:
  using Size = std::ptrdiff_t;

  RecurrentForm(const Simd<T>& simd, int key_dim, int value_dim, bool backward, Arena& arena)
      : s(simd), K(key_dim), V(value_dim) {
    q = arena.take<T>(K), k = arena.take<T>(K), v = arena.take<T>(V), u = arena.take<T>(V), o = arena.take<T>(V);
    if (backward) d_u = arena.take<T>(V), r = arena.take<T>(V), d_q = arena.take<T>(K), d_k = arena.take<T>(K);
  }

  /// One token: S [K,V] moves on, its output is written if `output`.
  void forward(const LinearProblem<T>& p, Size row, Size t, int head, T* S, bool output) {
    const int key_head = head / (p.heads / p.key_heads);
    const T a = p.g ? std::exp(p.g(row, t, head)) : T(1);
    const T b = rule == Rule::delta ? a : T(1);
    const T beta = p.beta ? p.beta(row, t, head) : T(1);
    const T* const key = contiguous(p.k, row, t, key_head, K, T(1), k);
    const T* const value = contiguous(p.v, row, t, head, V, rule == Rule::add ? beta : T(1), v);
    if (!output) {
      if constexpr (reads(rule)) {
        s.vec_mat(K, V, key, S, V, u);
        for (int j = 0; j < V; ++j) u[j] = beta * (value[j] - b * u[j]);
        s.rank_one(K, V, a, key, u, S, V);
      } else {
        s.rank_one(K, V, a, key, value, S, V);
      }
      return;
    }
    const T* const query = contiguous(p.q, row, t, key_head, K, p.scale, q);
    T* const answer = p.o.stride[3] == 1 ? &p.o(row, t, head, 0) : o;
    if constexpr (reads(rule))
      s.step_delta(K, V, a, b, beta, key, value, query, S, V, u, answer);
    else
      s.step(K, V, a, key, value, query, S, V, answer);
    if (answer == o) unpack(o, row, t, 1, head, V, p.o);
  }

  /// One token backwards: S_old = S_{t-1}, S_new = S_t, dS [K,V] from the gradient of S_t to that of S_{t-1}.
  void backward(const LinearProblem<T>& p, const LinearGradient<T>& d, Size row, Size t, int head, const T* S_old,
                const T* S_new, T* dS) {
    const int key_head = head / (p.heads / p.key_heads);
    const T a = p.g ? std::exp(p.g(row, t, head)) : T(1);
    const T b = rule == Rule::delta ? a : T(1);
    const T beta = p.beta ? p.beta(row, t, head) : T(1);
    const T* const key = contiguous(p.k, row, t, key_head, K, T(1), k);
    const T* const value = contiguous(p.v, row, t, head, V, T(1), v);
    if (d.d_o) {
      const T* const query = contiguous(p.q, row, t, key_head, K, p.scale, q);
      const T* const d_answer = contiguous(d.d_o, row, t, head, V, T(1), o);
      s.rank_one(K, V, T(1), query, d_answer, dS, V);
      if (d.d_q) {
        s.mat_vec(K, V, S_new, V, d_answer, d_q);
        add_rows(s, p.scale, d_q, row, t, 1, key_head, K, d.d_q);
      }
    }
    s.vec_mat(K, V, key, dS, V, d_u);
    if constexpr (reads(rule)) {
      s.vec_mat(K, V, key, S_old, V, r);
      for (int j = 0; j < V; ++j) r[j] = value[j] - b * r[j];
    } else {
      std::memcpy(r, value, static_cast<std::size_t>(V) * sizeof(T));
    }
    s.scale(V, beta, r, u);
    if (d.d_beta) d.d_beta(row, t, head) += s.dot(V, d_u, r);
    s.scale(V, beta, d_u, d_u);
    if (d.d_v) add_rows(s, T(1), d_u, row, t, 1, head, V, d.d_v);
    if (d.d_k) {
      s.mat_vec(K, V, dS, V, u, d_k);
      add_rows(s, T(1), d_k, row, t, 1, key_head, K, d.d_k);
      if constexpr (reads(rule)) {
        s.mat_vec(K, V, S_old, V, d_u, d_k);
        add_rows(s, -b, d_k, row, t, 1, key_head, K, d.d_k);
      }
    }
    if constexpr (reads(rule)) s.scale(V, T(-1), d_u, d_u);
    if constexpr (rule == Rule::delta) s.rank_one(K, V, T(1), key, d_u, dS, V);
    if (d.d_g) d.d_g(row, t, head) += a * s.dot(K * V, dS, S_old);
    if constexpr (rule == Rule::delta_undecayed)
      s.rank_one(K, V, a, key, d_u, dS, V);
    else if (p.g)
      s.scale(K * V, a, dS, dS);
  }

 private:
  // The vector itself where it is contiguous and unscaled, else a copy in `buffer`.
  const T* contiguous(const View<const T, 4>& x, Size row, Size t, int head, int dim, T scale, T* buffer) {
    if (x.stride[3] == 1 && scale == T(1)) return &x(row, t, head, 0);
    pack(s, x, row, t, 1, head, dim, scale, buffer);
    return buffer;
  }

  const Simd<T>& s;
  int K, V;
  T *q, *k, *v, *u, *o;
  T *d_u = nullptr, *r = nullptr, *d_q = nullptr, *d_k = nullptr;
};

}  // namespace ttr::families
