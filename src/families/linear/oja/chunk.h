// Chunk form of the gated Oja rule (oja.h), for one head. Rows i of a chunk of c tokens, Q already scaled; pair,
// apply, apply_transposed and the decays to the start (x^) and to the end (y~) of the chunk are those of gates.h,
// over the value gates; every reader sees the gate of its own token:
//
//   M = pair(V, V), strict ;  R0 = K - V^ S_0' ;  (I + diag(beta) M) W = diag(beta) R0
//   O  = (Q S_0)^ + apply(tril(Q W'), V) ;  S' = S_0 diag(e^{Gv_c}) + W' V~
//
// Backward, dS' in, dS_0 out. v has two roles, what is read with (x) and what is written (y):
//
//   PO = pair(dO, V) ;  dW = V~ dS'' + PO' Q ;  dQ = dO^ S_0' + PO W
//   (I + diag(beta) M)' Z = dW ;  dbeta = rowdot(Z, R0 - M W) ;  dK = diag(beta) Z ;  N = -stril(dK W')
//   dVx = -(dK S_0)^ + apply(N, V) ;  dVy = (W dS')~ + apply_transposed(tril(Q W'), dO) + apply_transposed(N, V)
//   dS_0 = dS' diag(e^{Gv_c}) + Q' dO^ - dK' V^
//   dgv: readers dO with O and v with dVx, writer v with dVy, without pairs that no gate stands between, and what
//   reaches the end through one
//
// S_0' and dS'' are transposes, S' the end state. Without data in k it is zero: the linear part of the map (oja.cc).
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/common/linear.h"
#include "families/common/scratch.h"
#include "families/linear/gates.h"
#include "families/linear/oja/oja.h"
#include "simd/simd.h"

namespace ttr::families {

template <class T>
class OjaChunk {
 public:
  using Size = std::ptrdiff_t;

  /// Takes its panels from the arena; C is the largest number of tokens in one chunk.
  OjaChunk(const Simd<T>& simd, int key_dim, int value_dim, Size chunk, bool backward, Arena& arena)
      : s(simd), K(key_dim), V(value_dim), C(chunk), values(simd, value_dim, chunk, true, backward, arena) {
    q = arena.take<T>(C * K), r = arena.take<T>(C * K), w = arena.take<T>(C * K), wt = arena.take<T>(K * C);
    v = arena.take<T>(C * V), o = arena.take<T>(C * V), value_rows = arena.take<T>(C * V);
    A = arena.take<T>(C * C), P = arena.take<T>(C * C), beta = arena.take<T>(C);
    if (!backward) return;
    d_q = arena.take<T>(C * K), d_w = arena.take<T>(C * K), d_x = arena.take<T>(C * V), d_y = arena.take<T>(C * V);
    answer = arena.take<T>(C * V), N = arena.take<T>(C * C), dots = arena.take<T>(C), last = arena.take<T>(V);
    near = arena.take<T>(C), end = arena.take<T>(V);
  }

  /// Tokens begin .. begin+c-1 of a batch row: writes their outputs (if `outputs`) and moves S [K,V] to the end.
  void forward(const OjaProblem<T>& p, Size row, Size begin, Size c, int head, T* S, bool outputs) {
    load(p, row, begin, c, head, outputs);
    solve_writes(c, S);
    if (outputs) {
      ask(c);
      read(c, S, o);
      unpack(o, row, begin, c, head, V, p.linear.o);
    }
    decay_state(c, S);
    s.gemm_tn(K, V, c, T(1), w, K, values.to_end(c, v, value_rows), V, T(1), S, V);
  }

  /// The same tokens backwards: S_0 is the state before them, dS [K,V] goes from dS' to dS_0.
  void backward(const OjaProblem<T>& p, const OjaGradient<T>& d, Size row, Size begin, Size c, int head, const T* S_0,
                const T* /*S_end*/, T* dS) {
    const bool answers = static_cast<bool>(d.linear.d_o);
    const int key_head = head / (p.linear.heads / p.linear.key_heads);
    load(p, row, begin, c, head, answers);
    solve_writes(c, S_0);
    if (d.d_gv) values.clear_gradient(c);

    s.gemm_nt(c, K, V, T(1), values.to_end(c, v, value_rows), V, dS, V, T(0), d_w, K);
    s.gemm_nn(c, V, K, T(1), w, K, dS, V, T(0), d_y, V);
    values.to_end_in_place(c, d_y);
    const bool of_gates = static_cast<bool>(d.d_gv);
    if (of_gates) {
      std::fill_n(last, V, T(0));
      for (Size i = 0; i < K; ++i) s.mul_add(V, S_0 + i * V, dS + i * V, last);
      if (values.gated()) s.mul(V, values.over(c), last, last);
      values.take_end(c, v, d_y, last, end);
    }
    const T* asked = nullptr;
    if (answers) {
      pack(s, d.linear.d_o, row, begin, c, head, V, T(1), o);
      ask(c);
      if (of_gates) values.take_near(c, Reader::after, P, near);
      values.apply_transposed(c, Reader::after, P, o, d_y);
      if (of_gates) read(c, S_0, answer), values.add_reader(c, Reader::after, o, answer);
      values.pair(c, Reader::after, false, o, v, P);
      asked = values.to_start(c, Reader::after, o, answer);
      s.gemm_nt(c, K, V, T(1), asked, V, S_0, V, T(0), d_q, K);
      s.trmm_nn(c, K, T(1), P, C, w, K, T(1), d_q, K);
      s.trmm_tn(c, K, T(1), P, C, q, K, T(1), d_w, K);
      if (d.linear.d_q) add_rows(s, p.linear.scale, d_q, row, begin, c, key_head, K, d.linear.d_q);
    }

    s.solve_tn(c, K, A, C, d_w, K);
    if (d.linear.d_beta) {
      s.trmm_nn(c, K, T(-1), N, C, w, K, T(1), r, K);
      s.row_dots(c, K, d_w, K, r, K, dots);
      for (Size i = 0; i < c; ++i) d.linear.d_beta(row, begin + i, head) += dots[i];
    }
    s.scale_rows(c, K, beta, d_w, K, d_w, K);  // from here on dK
    if (d.linear.d_k) add_rows(s, T(1), d_w, row, begin, c, key_head, K, d.linear.d_k);

    s.transpose(c, K, w, K, wt, C);
    s.gemm_lower(c, K, T(-1), d_w, K, wt, C, N, C);
    for (Size i = 0; i < c; ++i) N[i * C + i] = T(0);
    s.gemm_nn(c, V, K, T(-1), d_w, K, S_0, V, T(0), d_x, V);
    values.to_start_in_place(c, Reader::after, d_x);
    values.apply(c, Reader::after, N, v, d_x);
    values.apply_transposed(c, Reader::after, N, v, d_y);
    if (of_gates) {
      values.add_reader(c, Reader::after, v, d_x);
      values.add_writer(c, v, d_y);
      values.finish_gradient(c, last, d.d_gv, row, begin, head);
      values.put_end(c, end, d_y);
      if (answers) values.put_near(c, Reader::after, near, o, nullptr, nullptr, d_y);
    }
    if (d.linear.d_v) {
      add_rows(s, T(1), d_x, row, begin, c, head, V, d.linear.d_v);
      add_rows(s, T(1), d_y, row, begin, c, head, V, d.linear.d_v);
    }

    decay_state(c, dS);
    if (answers) s.gemm_tn(K, V, c, T(1), q, K, asked, V, T(1), dS, V);
    s.gemm_tn(K, V, c, T(-1), d_w, K, values.to_start(c, Reader::after, v, value_rows), V, T(1), dS, V);
  }

 private:
  void load(const OjaProblem<T>& p, Size row, Size begin, Size c, int head, bool queries) {
    const int key_head = head / (p.linear.heads / p.linear.key_heads);
    if (queries) pack(s, p.linear.q, row, begin, c, key_head, K, p.linear.scale, q);
    if (p.linear.k) pack(s, p.linear.k, row, begin, c, key_head, K, T(1), r);
    else std::fill_n(r, c * K, T(0));
    pack(s, p.linear.v, row, begin, c, head, V, T(1), v);
    for (Size i = 0; i < c; ++i) beta[i] = p.linear.beta ? p.linear.beta(row, begin + i, head) : T(1);
    values.load(p.gv, row, begin, c, head);
  }

  // w, what the tokens write with v. r goes from k to R0, A is the system, and N (backward only) is M.
  void solve_writes(Size c, const T* S) {
    values.pair(c, Reader::after, true, v, v, A);
    if (N)
      for (Size i = 0; i < c; ++i) std::copy_n(A + i * C, i + 1, N + i * C);
    s.gate_lower(c, true, 0, beta, nullptr, C, A, C);
    s.gemm_nt(c, K, V, T(-1), values.to_start(c, Reader::after, v, value_rows), V, S, V, T(1), r, K);
    s.scale_rows(c, K, beta, r, K, w, K);
    s.solve_nn(c, K, A, C, w, K);
  }

  // P = tril(Q W')
  void ask(Size c) {
    s.transpose(c, K, w, K, wt, C);
    s.gemm_lower(c, K, T(1), q, K, wt, C, P, C);
  }

  // out = (Q S_0)^ + apply(P, V)
  void read(Size c, const T* S, T* out) {
    s.gemm_nn(c, V, K, T(1), q, K, S, V, T(0), out, V);
    values.to_start_in_place(c, Reader::after, out);
    values.apply(c, Reader::after, P, v, out);
  }

  void decay_state(Size c, T* S) {
    if (values.gated()) s.scale_columns(K, V, values.over(c), S, V, S, V);
  }

  const Simd<T>& s;
  int K, V;
  Size C;
  Gates<T> values;
  T *q, *r, *w, *wt, *v, *o, *value_rows, *A, *P, *beta;
  T *d_q = nullptr, *d_w = nullptr, *d_x = nullptr, *d_y = nullptr, *answer = nullptr, *N = nullptr, *dots = nullptr,
    *last = nullptr, *near = nullptr, *end = nullptr;
};

}  // namespace ttr::families
