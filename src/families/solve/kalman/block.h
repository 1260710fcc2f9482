// Chunk form of the Kalman filter, for one head: c tokens with one triangular system.
//
// P_0, S_0 at the start of a block; row t of a matrix is token t. With the fading taken out, P_t = D_t / e_t where
//
//   e_t = e^{g_1 + .. + g_t} ;  n_t = e_t noise_t ;  u_t = sum_{s<=t} e_s process_s ;  c_t = (P_0 + u_t I) k_t
//
// the tokens of a block are rank-one steps a_t = D k_t (before token t), w_t = beta_t / (n_t + beta_t a_t.k_t):
//
//   N_ts = a_s.k_t = c_s.k_t - sum_{j<s} w_j N_sj N_tj   (s <= t) ;  (I + stril(N diag(w))) [A E] = [C, V - K S_0]
//   S_t = S_0 + sum_{s<=t} w_s a_s e_s' ;  D_t = P_0 + u_t I - sum_{s<=t} w_s a_s a_s'
//   O = Q S_0 + tril(Q A') diag(w) E ;  variance_t = (q'(P_0 + u_t I) q - sum_{s<=t} w_s (q.a_s)^2) / e_t + noise_t
//
// This is the block update of the information form, P'^{-1} = e_c P_0^{-1} + K'W K, by one c x c factor, and the
// answers inside the block come from the same factor. It subtracts from P_0 what the recurrent form subtracts from P
// step by step, so a block ends early, before a token of which less than a hundredth of the uncertainty at the
// block's start is left (n + beta a.k cancels), or whose e leaves [e^-2, e^2]: a block of one token is the recurrent
// step.
//
// Backward, X = tril(Q A'), dD = dP' / e_c, z_t = dvariance_t / e_t, F_ts = do_t.e_s, all sums over t >= s:
//
//   dX_ts = w_s (F_ts - 2 z_t X_ts) ;  dQ = dO S_0' + dX A + 2 z (P_0 + u) q ;  dA = dX'Q + diag(w) (E dS'' - 2 A dD)
//   dE = diag(w) (X'dO + A dS') ;  dw_s = sum_t X_ts (F_ts - z_t X_ts) + a_s'(dS' e_s - dD a_s) + sum_t dT_ts N_ts
//   [Y Z] = (I + T)^{-T} [dE dA], T = stril(N diag(w)) ;  dT = -stril(Y E' + Z A') ;  dN = dT diag(w)
//   for s = c .. 1, den = beta / w:  dn = -w dw / den ;  dbeta = dw / den + dn N_ss ;  dN_ss += beta dn ;  for j < s:
//     h_j = sum_{t>=s} dN_ts N_tj ;  dN_tj -= dN_ts w_j N_sj ;  dN_sj -= w_j h_j ;  dw_j -= N_sj h_j
//   dC = Z + tril(dN)'K ;  dK = tril(dN) C + dC (P_0 + u) - Y S_0' ;  dV = Y ;  dP_0 = dD + sym(K'dC) + Q'diag(z) Q
//   dS_0 = dS' + Q'dO - K'Y ;  du_t = k_t.dc_t + z_t q_t.q_t (+ tr dD at c)
//   de_t = noise dn + process sum_{s>=t} du_s - z_t (variance_t - noise_t) (- <dP', P'> / e_c at c)
//   dg = revcum(e * de) ;  dnoise_t = e_t dn_t + dvariance_t ;  dprocess_t = e_t sum_{s>=t} du_s
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "families/common/scratch.h"
#include "families/common/wide.h"
#include "families/solve/kalman/kalman.h"
#include "simd/simd.h"

namespace ttr::families::kalman {

/// The upper triangle of a symmetric matrix from its lower one, in the squares of eight rows on its diagonal alone.
inline void mirror_squares(std::ptrdiff_t K, double* P) {
  for (std::ptrdiff_t first = 0; first < K; first += 8)
    for (std::ptrdiff_t i = first; i < std::min(first + 8, K); ++i)
      for (std::ptrdiff_t j = first; j < i; ++j) P[j * K + i] = P[i * K + j];
}
/// The same everywhere.
inline void mirror(const Simd<double>& s, std::ptrdiff_t K, double* P) {
  mirror_squares(K, P);
  for (std::ptrdiff_t i = 8; i < K; i += 8)
    s.transpose(std::min<std::ptrdiff_t>(8, K - i), i, P + i * K, K, P + i, K);
}

class Block {
 public:
  using Size = std::ptrdiff_t;

  Block(const Simd<double>& simd, Size key_dim, Size value_dim, Size most, bool backward, Arena& arena)
      : s(simd), K(key_dim), V(value_dim), C(most) {
    for (double** x : {&q, &k, &kt, &c, &A, &spare}) *x = arena.take<double>(C * K);
    for (double** x : {&E, &o}) *x = arena.take<double>(C * V);
    for (double** x : {&M, &N, &T, &X}) *x = arena.take<double>(C * C);
    for (double** x : {&e, &u, &w, &spread, &beta, &noise, &process, &variance, &line}) *x = arena.take<double>(C);
    if (!backward) return;
    for (double** x : {&d_q, &d_k, &d_a}) *x = arena.take<double>(C * K);
    for (double** x : {&d_e, &et}) *x = arena.take<double>(C * V);
    for (double** x : {&dX, &dN}) *x = arena.take<double>(C * C);
    for (double** x : {&d_w, &d_u, &z, &d_decay, &d_beta}) *x = arena.take<double>(C);
    square = arena.take<double>(K * std::max(K, V));
  }

  /// The first tokens of begin .. begin+most-1, as many as one block takes: their answers (if `outputs`), and S [K,V]
  /// and P [K,K] moved behind them. Returns how many.
  template <class Number>
  Size forward(const KalmanProblem<Number>& p, Size row, Size begin, Size most, int head, double* S, double* P,
               bool outputs) {
    const LinearProblem<Number>& a = p.linear;
    const Size n = load(p, row, begin, std::min(most, C), false, head, P, outputs);
    factor(n, S);
    if (outputs && a.o) {
      answers(n);
      for (Size t = 0; t < n; ++t) s.mul(t + 1, w, X + t * C, M + t * C);
      s.gemm_nn(n, V, K, 1.0, q, K, S, V, 0.0, o, V);
      s.trmm_nn(n, V, 1.0, M, C, E, V, 1.0, o, V);
      for (Size t = 0; t < n; ++t)
        for (Size j = 0; j < V; ++j) a.o(row, begin + t, head, j) = static_cast<Number>(o[t * V + j]);
    }
    if (outputs && p.variance) {
      if (!a.o) answers(n);
      variances(n, P);
      for (Size t = 0; t < n; ++t)
        p.variance(row, begin + t, head) = static_cast<Number>(variance[t] / e[t] + noise[t]);
    }
    s.scale_rows(n, K, w, A, K, spare, K);
    s.gemm_tn(K, V, n, 1.0, spare, K, E, V, 1.0, S, V);
    s.gemm_tn(K, K, n, -1.0, spare, K, A, K, 1.0, P, K);
    for (Size i = 0; i < K; ++i) {
      P[i * K + i] += u[n - 1];
      s.scale(i + 1, 1 / e[n - 1], P + i * K, P + i * K);
    }
    mirror(s, K, P);
    return n;
  }

  /// The same tokens, of which forward() took `tokens`, backwards: S and P at their start, P_end behind them; dS and
  /// the symmetric dP go from the end to the start.
  template <class Number>
  void backward(const KalmanProblem<Number>& p, const KalmanGradient<Number>& d, Size row, Size begin, Size tokens,
                int head, const double* S, const double* P, const double* P_end, double* dS, double* dP) {
    const LinearProblem<Number>& a = p.linear;
    const LinearGradient<Number>& to = d.linear;
    const int shared = head / (a.heads / a.key_heads);
    const double scale = static_cast<double>(a.scale);
    const bool answered = to.d_o || d.d_variance;
    const Size n = load(p, row, begin, tokens, true, head, P, answered), last = n - 1;
    factor(n, S);

    std::fill_n(d_decay, n, 0.0), std::fill_n(d_u, n, 0.0);
    d_decay[last] -= s.dot(K * K, dP, P_end) / e[last];
    s.scale(K * K, 1 / e[last], dP, dP);
    for (Size i = 0; i < K; ++i) d_u[last] += dP[i * K + i];
    // From the states behind the block: dA = diag(w) (E dS'' - 2 A dD), dE = diag(w) A dS', and their part of dw.
    s.gemm_nn(n, V, K, 1.0, A, K, dS, V, 0.0, d_e, V);
    s.row_dots(n, V, d_e, V, E, V, d_w);
    s.gemm_nn(n, K, K, -1.0, A, K, dP, K, 0.0, d_a, K);
    s.row_dots(n, K, d_a, K, A, K, line);
    s.axpy(n, 1.0, line, d_w);
    s.transpose(K, V, dS, V, square, K);
    s.scale(n * K, 2.0, d_a, d_a);
    s.gemm_nn(n, K, V, 1.0, E, V, square, K, 1.0, d_a, K);
    for (double* x : {d_q, d_k}) std::fill_n(x, n * K, 0.0);
    if (answered) read_back(d, row, begin, n, head, S, P, dS, dP);
    s.scale_rows(n, K, w, d_a, K, d_a, K);
    s.scale_rows(n, V, w, d_e, V, d_e, V);
    if (answered) s.trmm_tn(n, K, 1.0, dX, C, q, K, 1.0, d_a, K);  // dX has its w already
    if (answered && to.d_q)
      for (Size t = 0; t < n; ++t) add(d_q + t * K, scale, K, to.d_q, row, begin + t, shared);

    s.solve_tn(n, V, T, C, d_e, V);  // Y
    s.solve_tn(n, K, T, C, d_a, K);  // Z
    factor_back(n);
    s.trmm_tn(n, K, 1.0, dN, C, k, K, 1.0, d_a, K);  // dC
    s.trmm_nn(n, K, 1.0, dN, C, c, K, 1.0, d_k, K);
    s.gemm_nn(n, K, K, 1.0, d_a, K, P, K, 1.0, d_k, K);
    s.transpose(K, V, S, V, square, K);
    s.gemm_nn(n, K, V, -1.0, d_e, V, square, K, 1.0, d_k, K);
    s.row_dots(n, K, k, K, d_a, K, line);
    s.axpy(n, 1.0, line, d_u);
    for (Size t = 0; t < n; ++t) s.axpy(K, u[t], d_a + t * K, d_k + t * K);
    s.gemm_tn(K, V, n, -1.0, k, K, d_e, V, 1.0, dS, V);
    s.gemm_tn(K, K, n, 0.5, k, K, d_a, K, 0.0, square, K);
    for (Size i = 0; i < K; ++i)
      for (Size j = 0; j <= i; ++j)
        dP[i * K + j] = dP[j * K + i] = dP[i * K + j] + square[i * K + j] + square[j * K + i];

    double of_process = 0, of_gate = 0;
    for (Size t = n; t-- > 0;) {
      const Size at = begin + t;
      of_process += d_u[t];
      of_gate += e[t] * (d_decay[t] + noise[t] * spread[t] + process[t] * of_process);
      if (to.d_k) add(d_k + t * K, 1.0, K, to.d_k, row, at, shared);
      if (to.d_v) add(d_e + t * V, 1.0, V, to.d_v, row, at, head);
      if (to.d_beta) to.d_beta(row, at, head) += static_cast<Number>(d_beta[t]);
      if (to.d_g) to.d_g(row, at, head) += static_cast<Number>(of_gate);
      if (d.d_noise) {
        const double direct = d.d_variance ? static_cast<double>(d.d_variance(row, at, head)) : 0;
        d.d_noise(row, at, head) += static_cast<Number>(e[t] * spread[t] + direct);
      }
      if (d.d_process) d.d_process(row, at, head) += static_cast<Number>(e[t] * of_process);
    }
  }

 private:
  static constexpr double most_fading = 2, least_share = 1e-2;

  // Everything up to N and w; returns the number of tokens of the block. known: all of them are.
  template <class Number>
  Size load(const KalmanProblem<Number>& p, Size row, Size begin, Size most, bool known, int head, const double* P,
            bool queries) {
    const LinearProblem<Number>& a = p.linear;
    const int shared = head / (a.heads / a.key_heads);
    double sum = 0;
    Size n = 0;
    for (; n < most; ++n) {
      if (sum += number(a.g, row, begin + n, head, 0); n > 0 && !known && !(std::abs(sum) <= most_fading)) break;
      e[n] = std::exp(sum);
    }
    for (Size t = 0; t < n; ++t) {
      const Size at = begin + t;
      if (queries) families::load(a.q, row, at, shared, K, static_cast<double>(a.scale), q + t * K);
      families::load(a.k, row, at, shared, K, 1.0, k + t * K);
      families::load(a.v, row, at, head, V, 1.0, E + t * V);
      beta[t] = number(a.beta, row, at, head, 1), noise[t] = number(p.noise, row, at, head, 1);
      process[t] = number(p.process, row, at, head, 0);
      u[t] = (t > 0 ? u[t - 1] : 0.0) + e[t] * process[t];
    }
    s.gemm_nn(n, K, K, 1.0, k, K, P, K, 0.0, c, K);
    for (Size t = 0; t < n; ++t) s.axpy(K, u[t], k + t * K, c + t * K);
    s.transpose(n, K, c, K, kt, C);
    s.gemm_lower(n, K, 1.0, k, K, kt, C, M, C);
    // Row t of N, and in T the rows w * N that the later ones are multiplied with.
    for (Size t = 0; t < n; ++t) {
      double *const row_t = N + t * C, *const weighted = T + t * C;
      for (Size j = 0; j < t; ++j) row_t[j] = M[t * C + j] - s.dot(j, row_t, T + j * C);
      s.mul(t, w, row_t, weighted);
      row_t[t] = M[t * C + t] - s.dot(t, row_t, weighted);
      spread[t] = e[t] * noise[t] + beta[t] * row_t[t];
      const double whole = e[t] * noise[t] + beta[t] * M[t * C + t];
      if (t > 0 && !known && !(spread[t] >= least_share * whole)) return t;
      w[t] = spread[t] == 0 ? 0 : beta[t] / spread[t];
    }
    return n;
  }

  // A and E. T = stril(N diag(w)) is what load() has left: row t of N times w.
  void factor(Size n, const double* S) {
    std::copy_n(c, n * K, A);
    s.gemm_nn(n, V, K, -1.0, k, K, S, V, 1.0, E, V);
    s.solve_nn(n, K, T, C, A, K);
    s.solve_nn(n, V, T, C, E, V);
  }

  // X = tril(Q A')
  void answers(Size n) {
    s.transpose(n, K, A, K, kt, C);
    s.gemm_lower(n, K, 1.0, q, K, kt, C, X, C);
  }
  // q'D_t q, and Q (P_0 + u) in `spare`
  void variances(Size n, const double* P) {
    s.gemm_nn(n, K, K, 1.0, q, K, P, K, 0.0, spare, K);
    for (Size t = 0; t < n; ++t) s.axpy(K, u[t], q + t * K, spare + t * K);
    s.row_dots(n, K, q, K, spare, K, variance);
    for (Size t = 0; t < n; ++t) {
      s.mul(t + 1, X + t * C, X + t * C, line);
      variance[t] -= s.dot(t + 1, w, line);
    }
  }

  template <class Number>
  void read_back(const KalmanGradient<Number>& d, Size row, Size begin, Size n, int head, const double* S,
                 const double* P, double* dS, double* dP) {
    const LinearGradient<Number>& to = d.linear;
    answers(n);
    std::fill_n(z, n, 0.0);
    if (d.d_variance) {
      variances(n, P);
      for (Size t = 0; t < n; ++t) {
        z[t] = static_cast<double>(d.d_variance(row, begin + t, head)) / e[t];
        d_decay[t] -= z[t] * variance[t] / e[t];
        d_u[t] += z[t] * s.dot(K, q + t * K, q + t * K);
        s.axpy(K, 2 * z[t], spare + t * K, d_q + t * K);
      }
      s.scale_rows(n, K, z, q, K, spare, K);
      s.gemm_tn(K, K, n, 1.0, spare, K, q, K, 1.0, dP, K);
      mirror(s, K, dP);
    }
    if (to.d_o) {
      for (Size t = 0; t < n; ++t) families::load(to.d_o, row, begin + t, head, V, 1.0, o + t * V);
      s.transpose(K, V, S, V, square, K);
      s.gemm_nn(n, K, V, 1.0, o, V, square, K, 1.0, d_q, K);
      s.gemm_tn(K, V, n, 1.0, q, K, o, V, 1.0, dS, V);
      s.trmm_tn(n, V, 1.0, X, C, o, V, 1.0, d_e, V);
      s.transpose(n, V, E, V, et, C);
      s.gemm_lower(n, V, 1.0, o, V, et, C, dX, C);
    } else {
      for (Size t = 0; t < n; ++t) std::fill_n(dX + t * C, t + 1, 0.0);
    }
    for (Size t = 0; t < n; ++t) {
      double *const f = dX + t * C, *const x = X + t * C;
      s.axpy(t + 1, -z[t], x, f);
      s.mul_add(t + 1, f, x, d_w);
      s.axpy(t + 1, -z[t], x, f);
      s.mul(t + 1, w, f, f);
    }
    s.trmm_nn(n, K, 1.0, dX, C, A, K, 1.0, d_q, K);
  }

  // From Y (d_e), Z (d_a) and d_w to dN, d_beta and, in `spread`, dn.
  void factor_back(Size n) {
    s.transpose(n, V, E, V, et, C);
    s.gemm_lower(n, V, -1.0, d_e, V, et, C, dN, C);
    s.transpose(n, K, A, K, kt, C);
    s.gemm_lower(n, K, -1.0, d_a, K, kt, C, dX, C);
    for (Size t = 0; t < n; ++t) {
      double *const row_t = dN + t * C, *const n_t = N + t * C;
      s.axpy(t, 1.0, dX + t * C, row_t);
      s.mul_add(t, row_t, n_t, d_w);
      s.mul(t, w, row_t, row_t);
      row_t[t] = 0;
    }
    for (Size i = n; i-- > 0;) {
      double* const n_i = N + i * C;
      const bool moves = spread[i] != 0;
      const double d_spread = moves ? -w[i] * d_w[i] / spread[i] : 0;
      d_beta[i] = moves ? d_w[i] / spread[i] + d_spread * n_i[i] : 0;
      dN[i * C + i] += beta[i] * d_spread;
      spread[i] = d_spread;
      std::fill_n(line, i, 0.0);
      for (Size t = i; t < n; ++t) {
        const double at = dN[t * C + i];
        s.axpy(i, at, N + t * C, line);
        s.axpy(i, -at, T + i * C, dN + t * C);
      }
      s.mul(i, n_i, line, variance);
      s.axpy(i, -1.0, variance, d_w);
      s.mul(i, w, line, line);
      s.axpy(i, -1.0, line, dN + i * C);
    }
  }

  const Simd<double>& s;
  Size K, V, C;
  double *q, *k, *kt, *c, *A, *spare, *E, *o, *M, *N, *T, *X;
  double *e, *u, *w, *spread, *beta, *noise, *process, *variance, *line;
  double *d_q = nullptr, *d_k = nullptr, *d_a = nullptr, *d_e = nullptr, *et = nullptr, *dX = nullptr, *dN = nullptr,
         *d_w = nullptr, *d_u = nullptr, *z = nullptr, *d_decay = nullptr, *d_beta = nullptr, *square = nullptr;
};

}  // namespace ttr::families::kalman
