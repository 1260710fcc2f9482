// Chunk form of the memories of least_squares.h, for one head: all queries of a chunk of c tokens solved together, by
// steps that they take together (rows.h) or by their Cholesky factors side by side (factors.h).
//
// H_0, F_0 at its start; row t of a matrix is token t; e_t = e^{gh_1 + .. + gh_t}, M_ts = beta_s e_t / e_s (s <= t),
// f and N the same with the gates of F:
//
//   H_t = e_t H_0 + sum_s M_ts k_s k_s'          rows H_t p_t = diag(e) P H_0 + tril(P K' * M) K
//   O = diag(f) Y F_0 + tril(Y K' * N) V         H_c, F_c: the last token's
//   |H_t|^2 = e_t^2 |H_0|^2 + 2 e_t sum_s M_ts k_s'H_0 k_s + sum_sj M_ts M_tj (k_s.k_j)^2        no term is negative
//
// Backward: gradients of M, N, e, f are collected, c x c numbers, and become those of beta and of the gates at the
// end. A term  d_t'H_t p_t  (D and P given as rows) contributes
//
//   dM += (P K') * (D K') ;  de_t += d_t'H_0 p_t ;  dH_0 += (diag(e) D)' P
//   dK += tril(P K' * M)' D + tril(D K' * M)' P
//
// and so does every step of a solve, an exact one by d_t = -A_t^{-1} dx_t, p_t = x_t; the final state's gradient is such
// a term of the last token. Of |H_t|, with n_t
// = d|H_t| / |H_t|, X = M (K K')^2 and h_s = k_s'H_0 k_s:
//
//   dM_ts += n_t (X_ts + e_t h_s) ;  de_t += n_t (e_t |H_0|^2 + sum_s M_ts h_s) ;  dh = M' (n * e)
//   dK += 2 ((M' diag(n) M) * (K K')) K + 2 diag(dh) K H_0 ;  dH_0 += K' diag(dh) K + (sum_t n_t e_t^2) H_0
//   dbeta_s = sum_t dM_ts e_t / e_s ;  dgh: gate_pairs.h with M * dM, and e * de from the start
//
// Traps: nothing above a diagonal is ever read. M comes from sums of gates (simd.h, gate_matrix).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "families/common/gate_pairs.h"
#include "families/common/scratch.h"
#include "families/common/wide.h"
#include "families/solve/least_squares/factors.h"
#include "families/solve/least_squares/least_squares.h"
#include "families/solve/least_squares/rows.h"
#include "simd/simd.h"

namespace ttr::families::least_squares {

class Chunk {
 public:
  using Size = std::ptrdiff_t;

  Chunk(const Simd<double>& simd, Size key_dim, Size value_dim, Size most, SolveBy solver, Size steps, bool backward,
        Arena& arena)
      : s(simd),
        K(key_dim),
        V(value_dim),
        C(most),
        by(solver),
        solve(simd, K, exact() ? 0 : C, solver, exact() ? 0 : steps, backward, arena),
        factors(simd, K, exact() ? C : 0, backward, arena) {
    for (double** x : {&q, &k, &kt, &y, &ridge, &scaled, &kh}) *x = arena.take<double>(C * K);
    for (double** x : {&v, &o}) *x = arena.take<double>(C * V);
    for (double** x : {&pairs, &squares, &sums_of_squares}) *x = arena.take<double>(C * C);
    for (double** x : {&beta, &blend, &step, &low, &high, &norm, &trace, &along, &spare}) *x = arena.take<double>(C);
    for (Gate* gate : {&of_h, &of_f}) {
      for (double** x : {&gate->D, &gate->M}) *x = arena.take<double>(C * C);
      for (double** x : {&gate->g, &gate->e}) *x = arena.take<double>(C);
    }
    for (Size** x : {&least, &greatest}) *x = arena.take<Size>(C);
    idle = arena.take<bool>(C);
    if (!backward) return;
    for (Gate* gate : {&of_h, &of_f}) gate->dM = arena.take<double>(C * C), gate->de = arena.take<double>(C);
    for (double** x : {&dy, &dx, &dp, &diagonal, &d_k, &x_}) *x = arena.take<double>(C * K);
    d_v = arena.take<double>(C * V), st = arena.take<double>(V * std::max(K, C)), other = arena.take<double>(C * C);
    for (double** x : {&d_low, &d_high, &delta}) *x = arena.take<double>(C);
    gates = GatePairs<double>(C, arena);
  }

  /// Tokens begin .. begin+c-1: their answers (if `outputs`), and H [K,K], F [K,V] moved to the end. False if a token has
  /// no answer.
  template <class T>
  bool forward(const LeastSquaresProblem<T>& problem, Size row, Size begin, Size tokens, int head, double* H,
               double* F, bool outputs) {
    load(problem, row, begin, tokens, head, H, outputs);
    const bool good = !outputs || read(problem);
    if (outputs) uncertainty(problem, row, begin, head);
    if (outputs && problem.linear.o) {
      mix();
      s.scale_rows(c, K, of_f.e, y, K, scaled, K);
      s.gemm_nn(c, V, K, 1.0, scaled, K, F, V, 0.0, o, V);
      products(y, of_f.M, pairs);
      s.trmm_nn(c, V, 1.0, pairs, C, v, V, 1.0, o, V);
      for (Size t = 0; t < c; ++t)
        for (Size j = 0; j < V; ++j) problem.linear.o(row, begin + t, head, j) = static_cast<T>(o[t * V + j]);
    }
    const Size last = c - 1;
    s.scale_rows(c, K, of_h.M + last * C, k, K, scaled, K);
    s.gemm_tn(K, K, c, 1.0, scaled, K, k, K, of_h.e[last], H, K);
    for (Size i = 0; i < K; ++i)
      for (Size j = 0; j < i; ++j) H[j * K + i] = H[i * K + j];
    s.scale_rows(c, K, of_f.M + last * C, k, K, scaled, K);
    s.gemm_tn(K, V, c, 1.0, scaled, K, v, V, of_f.e[last], F, V);
    return good;
  }

  /// The same tokens backwards: H_0 and F_0 at their start; dH and dF go from the end to the start. Without the gradient
  /// of an answer nothing is solved: what is left is the part of the sums.
  template <class T>
  bool backward(const LeastSquaresProblem<T>& problem, const LeastSquaresGradient<T>& d, Size row, Size begin,
                Size tokens, int head, const double* H_0, const double* F_0, double* dH, double* dF) {
    const bool answers = d.linear.d_o || d.d_variance;
    load(problem, row, begin, tokens, head, H_0, answers);
    d_h = dH;
    for (Gate* gate : {&of_h, &of_f}) {
      for (Size t = 0; t < c; ++t) std::fill_n(gate->dM + t * C, t + 1, 0.0);
      std::fill_n(gate->de, c, 0.0);
    }
    std::fill_n(d_k, c * K, 0.0), std::fill_n(d_v, c * V, 0.0);
    from_end(F_0, dF);
    const bool good = !answers || read_back(problem, d, row, begin, head, F_0, dF);
    const LinearProblem<T>& a = problem.linear;
    const int shared = head / (a.heads / a.key_heads);
    for (Size t = 0; t < c; ++t) {
      if (d.linear.d_k) add(d_k + t * K, 1.0, K, d.linear.d_k, row, begin + t, shared);
      if (d.linear.d_v) add(d_v + t * V, 1.0, V, d.linear.d_v, row, begin + t, head);
    }
    gates_back(problem, d, row, begin, head);
    return good;
  }

  /// Rows A_t p_t.
  void apply(const double* P, double* A) {
    s.gemm_nn(c, K, K, 1.0, P, K, H0, K, 0.0, A, K);
    s.scale_rows(c, K, of_h.e, A, K, A, K);
    products(P, of_h.M, pairs);
    s.trmm_nn(c, K, 1.0, pairs, C, k, K, 1.0, A, K);
    s.mul_add(c * K, ridge, P, A);
  }
  /// Rows A_t d_t; what d_t'A_t p_t says about keys, gates and H_0 is added up.
  void reverse(const double* D, const double* P, double* A) {
    s.gemm_nn(c, K, K, 1.0, D, K, H0, K, 0.0, A, K);
    s.row_dots(c, K, P, K, A, K, along);
    s.axpy(c, 1.0, along, of_h.de);
    s.scale_rows(c, K, of_h.e, A, K, A, K);
    products(P, nullptr, pairs), products(D, nullptr, other);
    for (Size t = 0; t < c; ++t) s.mul_add(t + 1, pairs + t * C, other + t * C, of_h.dM + t * C);
    s.gate_lower(c, false, 0, nullptr, of_h.M, C, pairs, C);
    s.gate_lower(c, false, 0, nullptr, of_h.M, C, other, C);
    s.trmm_nn(c, K, 1.0, other, C, k, K, 1.0, A, K);
    s.mul_add(c * K, ridge, D, A);
    s.trmm_tn(c, K, 1.0, pairs, C, D, K, 1.0, d_k, K);
    s.trmm_tn(c, K, 1.0, other, C, P, K, 1.0, d_k, K);
    s.scale_rows(c, K, of_h.e, D, K, scaled, K);
    s.gemm_tn(K, K, c, 1.0, scaled, K, P, K, 1.0, d_h, K);
  }

 private:
  struct Gate {
    double *g, *e, *D, *M;  // [c], [c], [c, c] e_t / e_s, [c, c] beta_s e_t / e_s
    double *dM = nullptr, *de = nullptr;
  };

  bool exact() const { return by == SolveBy::cholesky; }

  // to = tril(X K'), times `weights` if there are any
  void products(const double* X, const double* weights, double* to) {
    s.gemm_lower(c, K, 1.0, X, K, kt, C, to, C);
    if (weights) s.gate_lower(c, false, 0, nullptr, weights, C, to, C);
  }

  template <class T>
  void load(const LeastSquaresProblem<T>& problem, Size row, Size begin, Size tokens, int head, const double* H,
            bool queries) {
    const LinearProblem<T>& a = problem.linear;
    const int shared = head / (a.heads / a.key_heads);
    c = tokens, H0 = H;
    for (Size t = 0; t < c; ++t) {
      const Size at = begin + t;
      if (queries) families::load(a.q, row, at, shared, K, static_cast<double>(a.scale), q + t * K);
      families::load(a.k, row, at, shared, K, 1.0, k + t * K);
      families::load(a.v, row, at, head, V, 1.0, v + t * V);
      if (problem.ridge && queries) families::load(problem.ridge, row, at, head, K, 1.0, ridge + t * K);
      beta[t] = number(a.beta, row, at, head, 1), blend[t] = number(problem.blend, row, at, head, 1);
      step[t] = number(problem.step, row, at, head, 1);
      of_f.g[t] = number(a.g, row, at, head, 0);
      of_h.g[t] = problem.gh ? number(problem.gh, row, at, head, 0) : of_f.g[t];
    }
    if (!problem.ridge) std::fill_n(ridge, c * K, 0.0);
    s.transpose(c, K, k, K, kt, C);
    for (Gate* gate : {&of_h, &of_f}) {
      double sum = 0;
      for (Size t = 0; t < c; ++t) gate->e[t] = sum += gate->g[t];
      s.exp(c, gate->e, gate->e);
      s.gate_matrix(c, gate->g, spare, gate->D, C);
      for (Size t = 0; t < c; ++t) s.mul(t + 1, gate->D + t * C, beta, gate->M + t * C);
    }
  }

  // norm_t = |H_t|, and of it what the gradient needs too: (K K')^2, its product with M, and K H_0.
  void norms() {
    size = s.dot(K * K, H0, H0);
    s.gemm_nn(c, K, K, 1.0, k, K, H0, K, 0.0, kh, K);
    s.row_dots(c, K, kh, K, k, K, along);
    s.gemm_nn(c, c, K, 1.0, k, K, kt, C, 0.0, squares, C);
    for (Size t = 0; t < c; ++t) s.mul(c, squares + t * C, squares + t * C, squares + t * C);
    s.trmm_nn(c, c, 1.0, of_h.M, C, squares, C, 0.0, sums_of_squares, C);
    for (Size t = 0; t < c; ++t) {
      const double *const m = of_h.M + t * C, e = of_h.e[t];
      norm[t] = std::sqrt(e * e * size + 2 * e * s.dot(t + 1, m, along) + s.dot(t + 1, m, sums_of_squares + t * C));
    }
  }

  // trace_t = tr H_t = e_t tr H_0 + sum_s M_ts |k_s|^2
  void traces() {
    double start = 0;
    for (Size i = 0; i < K; ++i) start += H0[i * K + i];
    s.row_dots(c, K, k, K, k, K, along);
    for (Size t = 0; t < c; ++t) trace[t] = of_h.e[t] * start + s.dot(t + 1, of_h.M + t * C, along);
  }

  // y = x, and what the solve needs: the ridge as it stands in A, the bounds low and high. False if there is none.
  template <class T>
  bool read(const LeastSquaresProblem<T>& problem) {
    if (problem.relative || by == SolveBy::chebyshev) norms();
    else std::fill_n(norm, c, 0.0);
    if (by == SolveBy::conjugate_gradients) traces();
    for (Size t = 0; t < c; ++t) {
      double* const r = ridge + t * K;
      const double unit = problem.relative ? norm[t] : 1;
      least[t] = std::min_element(r, r + K) - r, greatest[t] = std::max_element(r, r + K) - r;
      low[t] = unit * r[least[t]], high[t] = unit * r[greatest[t]] + norm[t];
      idle[t] = problem.relative && norm[t] == 0;
      if (problem.relative) s.scale(K, unit, r, r);
      if (by == SolveBy::conjugate_gradients)
        for (Size i = 0; i < K; ++i) trace[t] += r[i];
    }
    if (exact()) return factors.run({H0, of_h.e, of_h.D, of_h.M, C, k}, c, ridge, idle, q, y);
    if (by == SolveBy::gradient) steps(problem.automatic);
    solve.run(*this, c, q, low, high, trace, idle, problem.tolerance, y);
    return true;
  }
  // Of the last read, before its answers are mixed.
  template <class T>
  void uncertainty(const LeastSquaresProblem<T>& problem, Size row, Size begin, int head) {
    if (!problem.variance && !problem.known) return;
    for (Size t = 0; t < c; ++t) {
      const double *const x = y + t * K, *const r = ridge + t * K;
      const double variance = idle[t] ? std::numeric_limits<double>::infinity() : 1 + s.dot(K, q + t * K, x);
      if (problem.variance) problem.variance(row, begin + t, head) = static_cast<T>(variance);
      double prior = 0;
      for (Size i = 0; i < K; ++i) prior += r[i] * x[i] * x[i];
      if (problem.known)
        problem.known(row, begin + t, head) = static_cast<T>(idle[t] ? 0.0 : std::max(0.0, 1 - prior / variance));
    }
  }
  // low_t = the size of the steps, given or 1 / tr H_t
  void steps(bool automatic) {
    std::copy_n(step, c, low);
    if (!automatic) return;
    traces();
    for (Size t = 0; t < c; ++t) low[t] = trace[t] > 0 ? 1 / trace[t] : 0;
  }
  // From the gradients of these sizes in d_low, those of what the traces are made of.
  void steps_back() {
    double start = 0;
    for (Size i = 0; i < K; ++i) start += H0[i * (K + 1)];
    s.row_dots(c, K, k, K, k, K, along);
    for (Size t = 0; t < c; ++t) {
      const double of_trace = -d_low[t] * low[t] * low[t], e = of_h.e[t];
      s.axpy(t + 1, of_trace, along, of_h.dM + t * C);
      of_h.de[t] += of_trace * start;
      for (Size i = 0; i < K; ++i) d_h[i * (K + 1)] += e * of_trace;
      for (Size j = 0; j <= t; ++j) s.axpy(K, 2 * of_trace * of_h.M[t * C + j], k + j * K, d_k + j * K);
    }
  }
  // y <- p + blend (x - p)
  void mix() {
    for (Size t = 0; t < c; ++t) {
      if (blend[t] == 1) continue;
      s.scale(K, blend[t], y + t * K, y + t * K);
      s.axpy(K, 1 - blend[t], q + t * K, y + t * K);
    }
  }

  // The gradients of H_c and F_c: terms of the last token.
  void from_end(const double* F_0, double* dF) {
    const Size last = c - 1;
    const double *const m = of_h.M + last * C, *const n = of_f.M + last * C;
    of_h.de[last] += s.dot(K * K, d_h, H0);
    s.gemm_nt(c, K, K, 1.0, k, K, d_h, K, 0.0, scaled, K);  // rows dH k_s
    s.row_dots(c, K, k, K, scaled, K, along);
    s.axpy(c, 1.0, along, of_h.dM + last * C);
    s.gemm_nn(c, K, K, 1.0, k, K, d_h, K, 1.0, scaled, K);
    for (Size t = 0; t < c; ++t) s.axpy(K, m[t], scaled + t * K, d_k + t * K);
    of_f.de[last] += s.dot(K * V, dF, F_0);
    s.gemm_nn(c, V, K, 1.0, k, K, dF, V, 0.0, o, V);  // rows dF' k_s
    s.row_dots(c, V, v, V, o, V, along);
    s.axpy(c, 1.0, along, of_f.dM + last * C);
    s.scale_rows(c, V, n, o, V, d_v, V);
    s.gemm_nt(c, K, V, 1.0, v, V, dF, V, 0.0, scaled, K);
    for (Size t = 0; t < c; ++t) s.axpy(K, n[t], scaled + t * K, d_k + t * K);
    s.scale(K * K, of_h.e[last], d_h, d_h);
    s.scale(K * V, of_f.e[last], dF, dF);
  }

  template <class T>
  bool read_back(const LeastSquaresProblem<T>& problem, const LeastSquaresGradient<T>& d, Size row, Size begin,
                 int head, const double* F_0, double* dF) {
    const LinearProblem<T>& a = problem.linear;
    const int shared = head / (a.heads / a.key_heads);
    const bool good = read(problem);
    std::copy_n(y, c * K, x_);
    if (d.linear.d_o) answer_back(d, row, begin, head, F_0, dF);
    else std::fill_n(dy, c * K, 0.0);
    for (Size t = 0; t < c; ++t) {
      const Size at = t * K;
      if (d.d_blend)
        d.d_blend(row, begin + t, head) += static_cast<T>(s.dot(K, dy + at, x_ + at) - s.dot(K, dy + at, q + at));
      s.scale(K, blend[t], dy + at, dx + at);
      s.scale(K, 1 - blend[t], dy + at, dp + at);
      if (!d.d_variance) continue;
      const double d_variance = static_cast<double>(d.d_variance(row, begin + t, head));
      s.axpy(K, d_variance, q + at, dx + at);
      s.axpy(K, d_variance, x_ + at, dp + at);
    }
    std::fill_n(diagonal, c * K, 0.0);
    if (exact()) factors_back();
    else solve.back(*this, c, q, x_, dx, {dp, diagonal, d_low, d_high});
    for (Size t = 0; t < c; ++t) {
      double* const diag = diagonal + t * K;
      if (d.linear.d_q) add(dp + t * K, static_cast<double>(a.scale), K, d.linear.d_q, row, begin + t, shared);
      if (by == SolveBy::chebyshev) diag[least[t]] += d_low[t], diag[greatest[t]] += d_high[t];
      if (d.d_step && !problem.automatic) d.d_step(row, begin + t, head) += static_cast<T>(d_low[t]);
      if (d.d_ridge) add(diag, problem.relative ? norm[t] : 1.0, K, d.d_ridge, row, begin + t, head);
      // The ridge stands in A as a multiple of the norm, which divides its gradient out again.
      const double of_norm = d_high[t] * norm[t] + (problem.relative ? s.dot(K, ridge + t * K, diag) : 0.0);
      spare[t] = norm[t] > 0 ? of_norm / norm[t] / norm[t] : 0;
    }
    if (problem.relative || by == SolveBy::chebyshev) norms_back();
    if (by == SolveBy::gradient && problem.automatic) steps_back();
    return good;
  }
  // From dx in the last read: dp += A^{-1} dx, and what x says about the matrices.
  void factors_back() {
    std::fill_n(d_low, c, 0.0), std::fill_n(d_high, c, 0.0);
    factors.solve(c, idle, dx);
    s.axpy(c * K, 1.0, dx, dp);
    s.scale(c * K, -1.0, dx, dx);
    s.mul_add(c * K, dx, x_, diagonal);
    reverse(dx, x_, dy);
  }

  // dy, and what the answers say about F_0, V, K and N; y becomes what is read.
  template <class T>
  void answer_back(const LeastSquaresGradient<T>& d, Size row, Size begin, int head, const double* F_0, double* dF) {
    mix();
    for (Size t = 0; t < c; ++t) families::load(d.linear.d_o, row, begin + t, head, V, 1.0, o + t * V);
    // dY = diag(f) dO F_0' + tril(dO V' * N) K
    s.transpose(K, V, F_0, V, st, K);
    s.gemm_nn(c, K, V, 1.0, o, V, st, K, 0.0, dy, K);
    s.row_dots(c, K, y, K, dy, K, along);
    s.axpy(c, 1.0, along, of_f.de);
    s.scale_rows(c, K, of_f.e, dy, K, dy, K);
    products(y, nullptr, pairs);
    s.transpose(c, V, v, V, st, C);
    s.gemm_lower(c, V, 1.0, o, V, st, C, other, C);
    for (Size t = 0; t < c; ++t) s.mul_add(t + 1, pairs + t * C, other + t * C, of_f.dM + t * C);
    s.gate_lower(c, false, 0, nullptr, of_f.M, C, pairs, C);
    s.gate_lower(c, false, 0, nullptr, of_f.M, C, other, C);
    s.trmm_nn(c, K, 1.0, other, C, k, K, 1.0, dy, K);
    s.trmm_tn(c, K, 1.0, other, C, y, K, 1.0, d_k, K);
    s.trmm_tn(c, V, 1.0, pairs, C, o, V, 1.0, d_v, V);
    s.scale_rows(c, K, of_f.e, y, K, scaled, K);
    s.gemm_tn(K, V, c, 1.0, scaled, K, o, V, 1.0, dF, V);
  }

  // From n_t = d|H_t| / |H_t| in `spare`.
  void norms_back() {
    const double* const n = spare;
    double total = 0;
    s.row_dots(c, K, kh, K, k, K, along);  // h
    std::fill_n(delta, c, 0.0);            // dh
    for (Size t = 0; t < c; ++t) {
      const double *const m = of_h.M + t * C, e = of_h.e[t];
      s.axpy(t + 1, n[t], sums_of_squares + t * C, of_h.dM + t * C);
      s.axpy(t + 1, n[t] * e, along, of_h.dM + t * C);
      of_h.de[t] += n[t] * (e * size + s.dot(t + 1, m, along));
      s.axpy(t + 1, n[t] * e, m, delta);
      total += n[t] * e * e;
      s.scale(t + 1, n[t], m, other + t * C);
      std::fill(other + t * C + t + 1, other + t * C + c, 0.0);
    }
    s.trmm_tn(c, c, 1.0, of_h.M, C, other, C, 0.0, pairs, C);
    s.gemm_nn(c, c, K, 2.0, k, K, kt, C, 0.0, other, C);
    for (Size t = 0; t < c; ++t) s.mul(c, pairs + t * C, other + t * C, pairs + t * C);
    s.gemm_nn(c, K, c, 1.0, pairs, C, k, K, 1.0, d_k, K);
    for (Size t = 0; t < c; ++t) s.axpy(K, 2 * delta[t], kh + t * K, d_k + t * K);
    s.scale_rows(c, K, delta, k, K, scaled, K);
    s.gemm_tn(K, K, c, 1.0, scaled, K, k, K, 1.0, d_h, K);
    s.axpy(K * K, total, H0, d_h);
  }

  // dM and de become the gradients of beta and of a gate.
  template <class T>
  void gates_back(const LeastSquaresProblem<T>& problem, const LeastSquaresGradient<T>& d, Size row, Size begin,
                  int head) {
    const LinearGradient<T>& to = d.linear;
    for (Gate* gate : {&of_h, &of_f}) {
      s.gate_lower(c, false, 0, nullptr, gate->D, C, gate->dM, C);
      std::fill_n(along, c, 0.0);
      for (Size t = 0; t < c; ++t) {
        s.axpy(t + 1, 1.0, gate->dM + t * C, along);
        s.mul(t, gate->dM + t * C, beta, gate->dM + t * C);
        gates.from_start[t] = gate->e[t] * gate->de[t], gates.to_end[t] = 0;
      }
      if (to.d_beta)
        for (Size t = 0; t < c; ++t) to.d_beta(row, begin + t, head) += static_cast<T>(along[t]);
      const View<T, 3>& target = gate == &of_h && problem.gh ? d.d_gh : to.d_g;
      if (target)
        gates.gradient(s, c, gate->dM, C, 0.0,
                       [&](Size t, double sum) { target(row, begin + t, head) += static_cast<T>(sum); });
    }
  }

  const Simd<double>& s;
  Size K, V, C;
  SolveBy by;
  RowSolve solve;
  Factors factors;
  Size c = 0;                  // tokens of the chunk
  const double* H0 = nullptr;  // its start
  double* d_h = nullptr;       // gradient of H
  double size = 0;             // |H_0|^2
  Gate of_h, of_f;
  GatePairs<double> gates;
  double *q, *k, *kt, *y, *ridge, *scaled, *kh, *v, *o, *pairs, *squares, *sums_of_squares;
  double *beta, *blend, *step, *low, *high, *norm, *trace, *along, *spare;
  Size *least, *greatest;
  bool* idle;
  double *dy = nullptr, *dx = nullptr, *dp = nullptr, *diagonal = nullptr, *d_k = nullptr, *x_ = nullptr,
         *d_v = nullptr, *st = nullptr, *other = nullptr, *d_low = nullptr, *d_high = nullptr, *delta = nullptr;
};

}  // namespace ttr::families::least_squares
