// Chunk form of scalar decay and of the delta rule, for one head: exact block algebra (math: UT transform).
//
// Rows i of a chunk of c tokens, S_0 at its start, G = cumsum(g), Q already scaled:
//
//   D_ij = e^{G_i - G_j} (j <= i)     e_i = e^{G_i}     t_j = e^{G_c - G_j} = D_cj     e-_i = e_{i-1}, e-_1 = 1
//   add    U = diag(beta) V
//   delta  M = stril(K K' * D),  R0 = V - diag(e) K S_0,  (I + diag(beta) M) U = diag(beta) R0
//          (undecayed: row i of M and R0 takes the gates up to i-1, that is row i-1 of D and e-)
//   O  = diag(e) Q S_0 + tril(Q K' * D) U          S' = e_c S_0 + (diag(t) K)' U
//
// Backward, dS' in, dS_0 out; Y = (I + diag(beta) M)^{-T} dU, dR = diag(beta) Y, E = -diag(beta) stril(Y U' * D):
//
//   dU  = tril(Q K' * D)' dO + diag(t) K dS'                     dP = tril(dO U') * D
//   dQ  = diag(e) dO S_0' + dP K                                 dKw = dP' Q + diag(t) U dS'' (+ E' K)
//   dKr = E K - diag(e) dR S_0'                                  dV = dR,  dbeta = rowdot(Y, R0 - M U)
//   dS_0 = e_c dS' + (diag(e) Q)' dO - (diag(e) K)' dR           (add: no dKr, dV = diag(beta) dU, dbeta = rowdot(dU,
//   V)) dg = revcum(rowdot(Q, dQ) + rowdot(K, dKr) - rowdot(K, dKw)), with <S', dS'> added at the last row;
//   undecayed: rowdot(K_i, dKr_i) counts at row i-1.
//
// Traps: everything above a diagonal is undefined memory and is never read; D comes from sums of gates, not from
// differences (strong gates cancel) and not from e^{-G} (overflows). S_0' means the transpose, S' the end state.
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/ahead.h"
#include "families/linear.h"
#include "families/rule.h"
#include "families/scratch.h"
#include "simd/simd.h"

namespace ttr::families {

template <class T, Rule rule>
class ChunkForm {
 public:
  using Size = std::ptrdiff_t;

  /// Takes its panels from the arena; C is the largest number of tokens in one chunk.
  ChunkForm(const Simd<T>& simd, int key_dim, int value_dim, Size chunk, bool backward, Arena& arena)
      : s(simd), K(key_dim), V(value_dim), C(chunk), ahead(simd) {
    q = arena.take<T>(C * K), k = arena.take<T>(C * K), v = arena.take<T>(C * V), u = arena.take<T>(C * V);
    kt = arena.take<T>(K * C), scaled = arena.take<T>(C * K), o = arena.take<T>(C * V);
    D = arena.take<T>(C * C), P = arena.take<T>(C * C);
    g = arena.take<T>(C), beta = arena.take<T>(C), e = arena.take<T>(C + 1), sums = arena.take<T>(C);
    if (reads(rule)) M = arena.take<T>(C * C);
    if (!backward) return;
    d_u = arena.take<T>(C * V), ut = arena.take<T>(V * C), st = arena.take<T>(V * K);
    d_q = arena.take<T>(C * K), d_k = arena.take<T>(C * K), dots = arena.take<T>(C), delta = arena.take<T>(C);
    if (reads(rule)) r = arena.take<T>(C * V), A = arena.take<T>(C * C), d_kr = arena.take<T>(C * K);
  }

  /// Tokens begin .. begin+c-1 of a batch row: writes their outputs (if `outputs`) and moves S [K,V] to the end. v
  /// without data = 0.
  void forward(const LinearProblem<T>& p, Size row, Size begin, Size c, int head, T* S, bool outputs) {
    const int key_head = head / (p.heads / p.key_heads);
    Size ldk, ldq;
    look_ahead(p, row, begin, c, head, outputs);
    load_gates(p, row, begin, c, head);
    const T* const keys = contiguous(s, p.k, row, begin, c, key_head, K, k, &ldk);
    s.transpose(c, K, keys, ldk, kt, C);
    ahead.step();
    if constexpr (reads(rule)) load_values(p, row, begin, c, head, nullptr, v), solve_writes(c, keys, ldk, S, M);
    else load_values(p, row, begin, c, head, p.beta ? beta : nullptr, u);
    ahead.step();
    if (outputs) {
      const T* queries = contiguous(s, p.q, row, begin, c, key_head, K, q, &ldq);
      s.gemm_lower(c, K, p.scale, queries, ldq, kt, C, P, C);
      ahead.step();
      if (gated) s.gate_lower(c, false, 0, nullptr, D, C, P, C);
      queries = scale_if_gated(c, e + 1, queries, &ldq);
      const bool direct = p.o.stride[3] == 1;
      T* const answer = direct ? &p.o(row, begin, head, 0) : o;
      const Size ldo = direct ? p.o.stride[1] : V, half = c / 2;
      s.gemm_nn(half, V, K, p.scale, queries, ldq, S, V, T(0), answer, ldo);
      ahead.step();
      s.gemm_nn(c - half, V, K, p.scale, queries + half * ldq, ldq, S, V, T(0), answer + half * ldo, ldo);
      ahead.step();
      s.trmm_nn(c, V, T(1), P, C, u, V, T(1), answer, ldo);
      ahead.step();
      if (!direct) unpack(o, row, begin, c, head, V, p.o);
    }
    const T* const late = scale_if_gated(c, D + (c - 1) * C, keys, &ldk);
    const T end = gated ? e[c] : T(1);
    const Size half = K / 2;
    s.gemm_tn(half, V, c, T(1), late, ldk, u, V, end, S, V);
    ahead.step();
    s.gemm_tn(K - half, V, c, T(1), late + half, ldk, u, V, end, S + half * V, V);
    ahead.step();
  }

  /// The same tokens backwards: S_0 and S_end are the states around them, dS [K,V] goes from dS' to dS_0.
  void backward(const LinearProblem<T>& p, const LinearGradient<T>& d, Size row, Size begin, Size c, int head,
                const T* S_0, const T* S_end, T* dS) {
    const bool answers = static_cast<bool>(d.d_o);
    const int key_head = head / (p.heads / p.key_heads);
    load(p, row, begin, c, head, answers);
    if constexpr (reads(rule)) solve_writes(c, k, K, S_0, A, M, r);
    else if (p.beta) s.scale_rows(c, V, beta, v, V, u, V);
    else std::copy_n(v, c * V, u);
    const T* const t = D + (c - 1) * C;
    const T* const read = rule == Rule::delta_undecayed ? e : e + 1;
    if (answers) pack(s, d.d_o, row, begin, c, head, V, T(1), o);
    s.transpose(K, V, S_0, V, st, K);
    s.transpose(c, V, u, V, ut, C);

    if (answers) {
      s.gemm_lower(c, K, T(1), q, K, kt, C, P, C);
      if (gated) s.gate_lower(c, false, 0, nullptr, D, C, P, C);
      s.trmm_tn(c, V, T(1), P, C, o, V, T(0), d_u, V);
    }
    s.gemm_nn(c, V, K, T(1), scale_if_gated(c, t, k), K, dS, V, answers ? T(1) : T(0), d_u, V);

    const T last = d.d_g ? s.dot(K * V, S_end, dS) : T(0);
    // dKw needs dS' transposed; st is free again only after dQ and dKr, so the order below matters.
    if (answers) {
      s.gemm_lower(c, V, T(1), o, V, ut, C, P, C);
      if (gated) s.gate_lower(c, false, 0, nullptr, D, C, P, C);
      s.gemm_nn(c, K, V, T(1), o, V, st, K, T(0), d_q, K);
      if (gated) s.scale_rows(c, K, e + 1, d_q, K, d_q, K);
      s.trmm_nn(c, K, T(1), P, C, k, K, T(1), d_q, K);
    }
    if constexpr (reads(rule)) {
      s.solve_tn(c, V, A, C, d_u, V);  // Y
      if (d.d_beta) {
        s.trmm_nn(c, V, T(-1), M, C, u, V, T(1), r, V);
        s.row_dots(c, V, d_u, V, r, V, dots);
        add_gates(d.d_beta, dots, row, begin, c, head);
      }
      s.gemm_lower(c, V, T(-1), d_u, V, ut, C, A, C);
      s.gate_lower(c, true, rule == Rule::delta_undecayed && gated, beta, gated ? D : nullptr, C, A, C);  // E
      s.scale_rows(c, V, beta, d_u, V, d_u, V);                                                           // dR
      s.gemm_nn(c, K, V, T(-1), d_u, V, st, K, T(0), d_kr, K);
      if (gated) s.scale_rows(c, K, read, d_kr, K, d_kr, K);
      s.trmm_nn(c, K, T(1), A, C, k, K, T(1), d_kr, K);
    } else {
      if (d.d_beta) {
        s.row_dots(c, V, d_u, V, v, V, dots);
        add_gates(d.d_beta, dots, row, begin, c, head);
      }
      if (p.beta) s.scale_rows(c, V, beta, d_u, V, d_u, V);
    }
    if (d.d_v) add_rows(s, T(1), d_u, row, begin, c, head, V, d.d_v);

    s.transpose(K, V, dS, V, st, K);
    s.gemm_nn(c, K, V, T(1), u, V, st, K, T(0), d_k, K);
    if (gated) s.scale_rows(c, K, t, d_k, K, d_k, K);
    if (answers) s.trmm_tn(c, K, T(1), P, C, q, K, T(1), d_k, K);
    if constexpr (reads(rule)) s.trmm_tn(c, K, T(1), A, C, k, K, T(1), d_k, K);

    if (answers && d.d_q) add_rows(s, p.scale, d_q, row, begin, c, key_head, K, d.d_q);
    if (d.d_k) {
      add_rows(s, T(1), d_k, row, begin, c, key_head, K, d.d_k);
      if constexpr (reads(rule)) add_rows(s, T(1), d_kr, row, begin, c, key_head, K, d.d_k);
    }
    if (d.d_g) gate_gradient(d, row, begin, c, head, answers, last);

    const T end = gated ? e[c] : T(1);
    if (answers) s.gemm_tn(K, V, c, T(1), scale_if_gated(c, e + 1, q), K, o, V, end, dS, V);
    else if (gated) s.scale(K * V, end, dS, dS);
    if constexpr (reads(rule)) s.gemm_tn(K, V, c, T(-1), scale_if_gated(c, read, k), K, d_u, V, T(1), dS, V);
  }

 private:
  void look_ahead(const LinearProblem<T>& p, Size row, Size begin, Size c, int head, bool outputs) {
    const int key_head = head / (p.heads / p.key_heads);
    ahead.begin();
    ahead.add_share(p.k, row, begin, c, key_head, p.key_heads, K);
    ahead.add_share(p.v, row, begin, c, head, p.heads, V);
    if (outputs) ahead.add_share(p.q, row, begin, c, key_head, p.key_heads, K);
    if (outputs) ahead.add_share(p.o, row, begin, c, head, p.heads, V);
    ahead.spread((outputs ? 8 : 4) + (reads(rule) ? 2 : 0));
  }

  // Panels q (scaled), k, v, the transpose of k, and the gates of the chunk.
  void load(const LinearProblem<T>& p, Size row, Size begin, Size c, int head, bool queries) {
    const int key_head = head / (p.heads / p.key_heads);
    load_gates(p, row, begin, c, head);
    if (queries) pack(s, p.q, row, begin, c, key_head, K, p.scale, q);
    pack(s, p.k, row, begin, c, key_head, K, T(1), k);
    load_values(p, row, begin, c, head, nullptr, v);
    s.transpose(c, K, k, K, kt, C);
  }

  // e[0] = 1, e[i+1] = e^{G_i}
  void load_gates(const LinearProblem<T>& p, Size row, Size begin, Size c, int head) {
    gated = static_cast<bool>(p.g);
    for (Size i = 0; i < c; ++i) beta[i] = p.beta ? p.beta(row, begin + i, head) : T(1);
    if (!gated) return;
    T sum = 0;
    e[0] = 0;
    for (Size i = 0; i < c; ++i) g[i] = p.g(row, begin + i, head), e[i + 1] = sum += g[i];
    s.exp(c + 1, e, e);
    s.gate_matrix(c, g, sums, D, C);
  }

  // out = diag(factor) V, factor without data = 1
  void load_values(const LinearProblem<T>& p, Size row, Size begin, Size c, int head, const T* factor, T* out) {
    if (!p.v) return static_cast<void>(std::fill_n(out, c * V, T(0)));
    Size ld;
    if (!factor) return pack(s, p.v, row, begin, c, head, V, T(1), out);
    const T* const values = contiguous(s, p.v, row, begin, c, head, V, v, &ld);
    s.scale_rows(c, V, factor, values, ld, out, V);
  }

  // u, the values the tokens write, from v, which becomes R0. For the backward pass also M without beta.
  void solve_writes(Size c, const T* keys, Size ldk, const T* S, T* system, T* without_beta = nullptr,
                    T* residual = nullptr) {
    const Size shift = rule == Rule::delta_undecayed && gated;
    const T* const gates = gated ? D : nullptr;
    s.gemm_lower(c, K, T(1), keys, ldk, kt, C, system, C);
    if (without_beta) {
      s.gate_lower(c, true, shift, nullptr, gates, C, system, C);
      for (Size i = 0; i < c; ++i) std::copy_n(system + i * C, i + 1, without_beta + i * C);
      s.gate_lower(c, true, 0, beta, nullptr, C, system, C);
    } else {
      s.gate_lower(c, true, shift, beta, gates, C, system, C);
    }
    ahead.step();
    const T* const read = scale_if_gated(c, rule == Rule::delta_undecayed ? e : e + 1, keys, &ldk);
    s.gemm_nn(c, V, K, T(-1), read, ldk, S, V, T(1), v, V);
    ahead.step();
    if (residual) std::copy_n(v, c * V, residual);
    s.scale_rows(c, V, beta, v, V, u, V);
    s.solve_nn(c, V, system, C, u, V);
  }

  // diag(f) x [c,K] in the `scaled` panel, or x itself where there are no gates; *ld is the distance of its rows.
  const T* scale_if_gated(Size c, const T* f, const T* x, Size* ld) {
    if (!gated) return x;
    s.scale_rows(c, K, f, x, *ld, scaled, K);
    *ld = K;
    return scaled;
  }
  const T* scale_if_gated(Size c, const T* f, const T* x) {
    Size ld = K;
    return scale_if_gated(c, f, x, &ld);
  }

  void gate_gradient(const LinearGradient<T>& d, Size row, Size begin, Size c, int head, bool answers, T last) {
    std::fill_n(delta, c, T(0));
    const auto collect = [&](T sign, const T* x, const T* dx, Size shift) {
      s.row_dots(c, K, x, K, dx, K, dots);
      for (Size i = shift; i < c; ++i) delta[i - shift] += sign * dots[i];
    };
    if (answers) collect(T(1), q, d_q, 0);
    collect(T(-1), k, d_k, 0);
    if constexpr (reads(rule)) collect(T(1), k, d_kr, rule == Rule::delta_undecayed);
    double sum = last;
    for (Size i = c; i-- > 0;) d.d_g(row, begin + i, head) += static_cast<T>(sum += delta[i]);
  }

  static void add_gates(const View<T, 3>& to, const T* x, Size row, Size begin, Size c, int head) {
    for (Size i = 0; i < c; ++i) to(row, begin + i, head) += x[i];
  }

  const Simd<T>& s;
  int K, V;
  Size C;
  Ahead<T> ahead;
  bool gated = false;
  T *q, *k, *v, *u, *kt, *scaled, *o, *D, *P, *g, *beta, *e, *sums;
  T *M = nullptr, *A = nullptr, *r = nullptr, *d_kr = nullptr;
  T *d_u = nullptr, *ut = nullptr, *st = nullptr, *d_q = nullptr, *d_k = nullptr, *dots = nullptr, *delta = nullptr;
};

}  // namespace ttr::families
