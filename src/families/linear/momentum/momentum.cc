// Backward of a chunk (Y = (I + A)^{-T} diag(eta) dW, N = P K', E = tril(Gm * Q K'), X = tril(dO W')):
//
//   dW = E' dO + diag(Gm_c) K dS' + diag(Dm_c) K dZ' ;  dV = Y ;  dA = -stril(Y R')
//   dP = (dA * Hm * eta) K - diag(ap) Y S_0' - diag(bp) Y Z_0'                        Hm_ti = f_t Gm_{t-1,i}
//   dK = (dA * Hm * eta)' P + (X * Gm)' Q + diag(Gm_c) W dS'' + diag(Dm_c) W dZ''
//   dQ = (X * Gm) K + diag(abar) dO S_0' + diag(bt) dO Z_0'
//
// and the gradients of Gm, bt, abar, m, Dm go back through their recursions.
#include "families/linear/momentum/momentum.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "families/common/gate_pairs.h"
#include "families/common/run.h"
#include "families/linear/momentum/token.h"

namespace ttr::families::momentum {
namespace {

template <class T>
class Chunk {
 public:
  Chunk(const Simd<T>& simd, int key_dim, int value_dim, Size largest, bool backward, Arena& arena)
      : s(simd), K(key_dim), V(value_dim), C(largest) {
    q = arena.take<T>(C * K), k = arena.take<T>(C * K), p = arena.take<T>(C * K), kt = arena.take<T>(K * C);
    scaled = arena.take<T>(C * K), r = arena.take<T>(C * V), w = arena.take<T>(C * V), o = arena.take<T>(C * V);
    for (T** x : {&Gm, &Dm, &N, &A, &E}) *x = arena.take<T>(C * C);
    for (T** x : {&a, &mu, &f, &beta, &eta, &logs, &sums}) *x = arena.take<T>(C);
    for (T** x : {&ab, &bt, &m}) *x = arena.take<T>(C + 1);
    ap = arena.take<T>(C), bp = arena.take<T>(C);
    if (!backward) return;
    for (T** x : {&d_w, &y}) *x = arena.take<T>(C * V);
    for (T** x : {&d_q, &d_k, &d_p}) *x = arena.take<T>(C * K);
    rt = arena.take<T>(V * C), st = arena.take<T>(V * K), X = arena.take<T>(C * C), B = arena.take<T>(C * C);
    M = arena.take<T>(C * C);
    for (T** x : {&d_ab, &d_bt, &d_m}) *x = arena.take<T>(C + 1);
    for (T** x : {&d_f, &d_ap, &d_bp, &d_a, &d_mu, &d_beta, &d_eta, &x_row}) *x = arena.take<T>(C);
    gates = GatePairs<T>(C, arena);
  }

  void forward(const MomentumProblem<T>& problem, Size row, Size begin, Size c, int head, const Parts<T, 2>& state,
               bool outputs) {
    const auto [S, Z] = state;
    load(problem, row, begin, c, head, outputs);
    solve(c, S, Z);
    if (outputs) {
      answers_matrix(c);
      s.scale_rows(c, K, ab + 1, q, K, scaled, K);
      s.gemm_nn(c, V, K, T(1), scaled, K, S, V, T(0), o, V);
      s.scale_rows(c, K, bt + 1, q, K, scaled, K);
      s.gemm_nn(c, V, K, T(1), scaled, K, Z, V, T(1), o, V);
      s.trmm_nn(c, V, T(1), E, C, w, V, T(1), o, V);
      unpack(o, row, begin, c, head, V, problem.linear.o);
    }
    s.scale(Size{K} * V, ab[c], S, S);
    s.axpy(Size{K} * V, bt[c], Z, S);
    s.scale_rows(c, K, Gm + (c - 1) * C, k, K, scaled, K);
    s.gemm_tn(K, V, c, T(1), scaled, K, w, V, T(1), S, V);
    s.scale_rows(c, K, Dm + (c - 1) * C, k, K, scaled, K);
    s.gemm_tn(K, V, c, T(1), scaled, K, w, V, m[c], Z, V);
  }

  void backward(const MomentumProblem<T>& problem, const MomentumGradient<T>& d, Size row, Size begin, Size c,
                int head, const Parts<const T, 2>& old, const Parts<const T, 2>&, const Parts<T, 2>& d_state) {
    const auto [S, Z] = old;
    const auto [dS, dZ] = d_state;
    const LinearGradient<T>& out = d.linear;
    const bool answers = static_cast<bool>(out.d_o);
    const Size n = Size{K} * V;
    const T *const to_S = Gm + (c - 1) * C, *const to_Z = Dm + (c - 1) * C;
    load(problem, row, begin, c, head, answers);
    solve(c, S, Z);
    for (T* x : {d_ab, d_bt, d_m}) std::fill_n(x, c + 1, T(0));
    for (T* x : {d_f, d_a, d_beta, d_mu}) std::fill_n(x, c, T(0));
    d_ab[c] = s.dot(n, S, dS), d_bt[c] = s.dot(n, Z, dS), d_m[c] = s.dot(n, Z, dZ);

    // What reaches S' and Z': dW, dK, and the last rows of Gm and Dm.
    for (Size i = 0; i < c; ++i) std::fill_n(X + i * C, i + 1, T(0)), std::fill_n(B + i * C, i + 1, T(0));
    s.transpose(K, V, dS, V, st, K);
    s.gemm_nn(c, K, V, T(1), w, V, st, K, T(0), d_k, K);
    s.row_dots(c, K, k, K, d_k, K, X + (c - 1) * C);
    s.scale_rows(c, K, to_S, d_k, K, d_k, K);
    s.transpose(K, V, dZ, V, st, K);
    s.gemm_nn(c, K, V, T(1), w, V, st, K, T(0), d_q, K);
    s.row_dots(c, K, k, K, d_q, K, B + (c - 1) * C);
    for (Size i = 0; i < c; ++i) s.axpy(K, to_Z[i], d_q + i * K, d_k + i * K);
    s.scale_rows(c, K, to_S, k, K, scaled, K);
    s.gemm_nn(c, V, K, T(1), scaled, K, dS, V, T(0), d_w, V);
    s.scale_rows(c, K, to_Z, k, K, scaled, K);
    s.gemm_nn(c, V, K, T(1), scaled, K, dZ, V, T(1), d_w, V);

    if (answers) {
      pack(s, out.d_o, row, begin, c, head, V, T(1), o);
      answers_matrix(c);
      s.trmm_tn(c, V, T(1), E, C, o, V, T(1), d_w, V);
      s.transpose(c, V, w, V, rt, C);
      s.gemm_lower(c, K, T(1), q, K, kt, C, M, C);  // Q K'
      s.gemm_lower(c, V, T(1), o, V, rt, C, E, C);  // dO W'
      for (Size t = 0; t < c; ++t)
        for (Size i = 0; i <= t; ++i) {
          X[t * C + i] += E[t * C + i] * M[t * C + i];
          E[t * C + i] *= Gm[t * C + i];
        }
      s.trmm_nn(c, K, T(1), E, C, k, K, T(0), d_q, K);
      s.trmm_tn(c, K, T(1), E, C, q, K, T(1), d_k, K);
      read_gradient(c, o, q, S, ab + 1, d_q, d_ab + 1, T(1));
      read_gradient(c, o, q, Z, bt + 1, d_q, d_bt + 1, T(1));
    }

    s.row_dots(c, V, d_w, V, r, V, d_eta);
    s.scale_rows(c, V, eta, d_w, V, y, V);
    s.solve_tn(c, V, A, C, y, V);
    s.transpose(c, V, r, V, rt, C);
    s.gemm_lower(c, V, T(-1), y, V, rt, C, E, C);  // dA below the diagonal
    for (Size t = 0; t < c; ++t) {
      for (Size i = 0; i < t; ++i) {
        const T last = Gm[(t - 1) * C + i], dA = E[t * C + i], pair = dA * N[t * C + i];
        d_eta[i] += pair * f[t] * last;
        X[(t - 1) * C + i] += pair * eta[i] * f[t];
        d_f[t] += pair * eta[i] * last;
        E[t * C + i] = dA * f[t] * last * eta[i];
      }
      E[t * C + t] = 0;
    }
    s.trmm_nn(c, K, T(1), E, C, k, K, T(0), d_p, K);
    s.trmm_tn(c, K, T(1), E, C, p, K, T(1), d_k, K);
    std::fill_n(d_ap, c, T(0)), std::fill_n(d_bp, c, T(0));
    read_gradient(c, y, p, S, ap, d_p, d_ap, T(-1));
    read_gradient(c, y, p, Z, bp, d_p, d_bp, T(-1));
    for (Size t = 0; t < c; ++t) {
      d_f[t] += d_ap[t] * ab[t] + d_bp[t] * bt[t];
      d_ab[t] += d_ap[t] * f[t], d_bt[t] += d_bp[t] * f[t];
    }
    coefficients_back(c, problem.residual == Residual::decayed);
    write_gradients(problem, d, row, begin, c, head, answers);

    // dZ_0 before dS_0: it reads dS'.
    s.scale(n, m[c], dZ, dZ);
    s.axpy(n, bt[c], dS, dZ);
    s.scale(n, ab[c], dS, dS);
    const auto spread = [&](const T* weights, const T* rows, T sign, const T* from, T* to) {
      s.scale_rows(c, K, weights, rows, K, scaled, K);
      s.gemm_tn(K, V, c, sign, scaled, K, from, V, T(1), to, V);
    };
    if (answers) spread(ab + 1, q, T(1), o, dS), spread(bt + 1, q, T(1), o, dZ);
    spread(ap, p, T(-1), y, dS), spread(bp, p, T(-1), y, dZ);
  }

 private:
  void load(const MomentumProblem<T>& problem, Size row, Size begin, Size c, int head, bool queries) {
    const LinearProblem<T>& l = problem.linear;
    const int shared = key_head(l, head);
    if (queries) pack(s, l.q, row, begin, c, shared, K, l.scale, q);
    pack(s, l.k, row, begin, c, shared, K, T(1), k);
    pack(s, problem.p ? problem.p : l.k, row, begin, c, shared, K, T(1), p);
    pack(s, l.v, row, begin, c, head, V, T(1), r);
    s.transpose(c, K, k, K, kt, C);
    for (Size i = 0; i < c; ++i) {
      a[i] = gate(l.g, row, begin + i, head), mu[i] = gate(problem.g_mu, row, begin + i, head);
      beta[i] = weight(l.beta, row, begin + i, head), eta[i] = weight(problem.eta, row, begin + i, head);
      f[i] = problem.residual == Residual::decayed ? a[i] : T(1);
      logs[i] = problem.g_mu ? problem.g_mu(row, begin + i, head) : T(0);
    }
    s.gate_matrix(c, logs, sums, Dm, C);
    ab[0] = m[0] = 1, bt[0] = 0;
    for (Size t = 0; t < c; ++t) {
      ab[t + 1] = a[t] * ab[t], m[t + 1] = mu[t] * m[t];
      bt[t + 1] = a[t] * bt[t] + beta[t] * m[t + 1];
      ap[t] = f[t] * ab[t], bp[t] = f[t] * bt[t];
      for (Size i = 0; i < t; ++i) Gm[t * C + i] = a[t] * Gm[(t - 1) * C + i] + beta[t] * Dm[t * C + i];
      Gm[t * C + t] = beta[t];
    }
  }

  // N = P K', A, and the residuals r and writes w of all rows.
  void solve(Size c, const T* S, const T* Z) {
    s.gemm_lower(c, K, T(1), p, K, kt, C, N, C);
    for (Size t = 0; t < c; ++t)
      for (Size i = 0; i < t; ++i) A[t * C + i] = f[t] * Gm[(t - 1) * C + i] * N[t * C + i] * eta[i];
    s.scale_rows(c, K, ap, p, K, scaled, K);
    s.gemm_nn(c, V, K, T(-1), scaled, K, S, V, T(1), r, V);
    s.scale_rows(c, K, bp, p, K, scaled, K);
    s.gemm_nn(c, V, K, T(-1), scaled, K, Z, V, T(1), r, V);
    s.solve_nn(c, V, A, C, r, V);
    s.scale_rows(c, V, eta, r, V, w, V);
  }

  void answers_matrix(Size c) {
    s.gemm_lower(c, K, T(1), q, K, kt, C, E, C);
    for (Size t = 0; t < c; ++t)
      for (Size i = 0; i <= t; ++i) E[t * C + i] *= Gm[t * C + i];
  }

  // d_rows += sign diag(weights) G M' ;  d_weights += sign rowdot(rows, G M')
  void read_gradient(Size c, const T* G, const T* rows, const T* state, const T* weights, T* d_rows, T* d_weights,
                     T sign) {
    s.transpose(K, V, state, V, st, K);
    s.gemm_nn(c, K, V, sign, G, V, st, K, T(0), scaled, K);
    s.row_dots(c, K, rows, K, scaled, K, x_row);
    for (Size i = 0; i < c; ++i) {
      d_weights[i] += x_row[i];
      s.axpy(K, weights[i], scaled + i * K, d_rows + i * K);
    }
  }

  // X holds dGm and B the direct part of dDm; leaves d_a, d_mu as gradients of the logs, and d_beta.
  void coefficients_back(Size c, bool decayed) {
    for (Size t = c; t-- > 0;) {
      T* const x = X + t * C;
      const T *const ratio = Dm + t * C, *const last = Gm + (t > 0 ? t - 1 : 0) * C;
      T sum_a = 0, sum_beta = 0;
      for (Size i = 0; i <= t; ++i) {
        sum_beta += x[i] * ratio[i];
        B[t * C + i] += beta[t] * x[i];
      }
      for (Size i = 0; i < t; ++i) {
        sum_a += x[i] * last[i];
        (X + (t - 1) * C)[i] += a[t] * x[i];
      }
      sum_a += d_ab[t + 1] * ab[t] + d_bt[t + 1] * bt[t];
      d_beta[t] = sum_beta + d_bt[t + 1] * m[t + 1];
      d_ab[t] += a[t] * d_ab[t + 1], d_bt[t] += a[t] * d_bt[t + 1];
      d_m[t + 1] += beta[t] * d_bt[t + 1];
      d_a[t] = a[t] * (sum_a + (decayed ? d_f[t] : T(0)));
    }
    // Dm_ti holds the gates i+1 .. t, m_t those up to t.
    for (Size t = 0; t < c; ++t) {
      gates.from_start[t] = d_m[t + 1] * m[t + 1], gates.to_end[t] = 0;
      s.mul(t, B + t * C, Dm + t * C, B + t * C);
    }
    gates.gradient(s, c, B, C, 0.0, [&](Size t, T sum) { d_mu[t] = sum; });
  }

  void write_gradients(const MomentumProblem<T>& problem, const MomentumGradient<T>& d, Size row, Size begin, Size c,
                       int head, bool answers) {
    const LinearGradient<T>& out = d.linear;
    const int shared = key_head(problem.linear, head);
    if (answers && out.d_q) add_rows(s, problem.linear.scale, d_q, row, begin, c, shared, K, out.d_q);
    if (out.d_k) add_rows(s, T(1), d_k, row, begin, c, shared, K, out.d_k);
    if (const View<T, 4>& to = problem.p ? d.d_p : out.d_k; to) add_rows(s, T(1), d_p, row, begin, c, shared, K, to);
    if (out.d_v) add_rows(s, T(1), y, row, begin, c, head, V, out.d_v);
    const auto add = [&](const View<T, 3>& to, const T* from) {
      for (Size i = 0; to && i < c; ++i) to(row, begin + i, head) += from[i];
    };
    add(out.d_g, d_a), add(out.d_beta, d_beta), add(d.d_g_mu, d_mu), add(d.d_eta, d_eta);
  }

  const Simd<T>& s;
  int K, V;
  Size C;
  T *q, *k, *p, *kt, *scaled, *r, *w, *o;              // rows of the chunk
  T *Gm, *Dm, *N, *A, *E;                              // [C, C]
  T *a, *mu, *f, *beta, *eta, *logs, *sums, *ap, *bp;  // [C]
  T *ab, *bt, *m;                                      // [C+1], entry 0 before the first row
  T *d_w = nullptr, *y = nullptr, *d_q = nullptr, *d_k = nullptr, *d_p = nullptr, *rt = nullptr, *st = nullptr;
  T *X = nullptr, *B = nullptr, *M = nullptr, *d_ab = nullptr, *d_bt = nullptr, *d_m = nullptr, *d_f = nullptr;
  T *d_ap = nullptr, *d_bp = nullptr, *d_a = nullptr, *d_mu = nullptr, *d_beta = nullptr, *d_eta = nullptr;
  T* x_row = nullptr;
  GatePairs<T> gates;
};

template <class T>
struct Family : LinearState<T> {
  static constexpr Tuned tuned{"momentum"};
  static constexpr bool keeps_borders = false, interleaves = false, scans_tokens = true;
  using Problem = MomentumProblem<T>;
  using Gradient = MomentumGradient<T>;
  using Chunk = momentum::Chunk<T>;
  using Recurrent = Token<T>;
  using Map = DenseMap<Family>;
  static constexpr std::size_t parts = 2;
  static std::array<Size, 2> sizes(const Shape& x) {
    return {Size{x.key_dim} * x.value_dim, Size{x.key_dim} * x.value_dim};
  }
  static Parts<T, 2> state(const Problem& p) { return {p.linear.state, p.momentum}; }
  static Parts<const T, 2> d_final(const Gradient& d) { return {d.linear.d_final, d.d_final_momentum}; }
  static Parts<T, 2> d_initial(const Gradient& d) { return {d.linear.d_initial, d.d_initial_momentum}; }
};

}  // namespace

template <class T>
std::size_t workspace_bytes(int K, int V, std::ptrdiff_t longest, Form form, int chunk, bool backward,
                            int workers) noexcept {
  return run_bytes<Family<T>>({K, V}, longest, form, chunk, backward, workers);
}

template <class T>
Status forward(const MomentumProblem<T>& p, Form form, int chunk, const Simd<T>& s, Workspace work) noexcept {
  return run_forward<Family<T>>(p, form, chunk, s, work);
}

template <class T>
Status backward(const MomentumProblem<T>& p, const MomentumGradient<T>& d, Form form, int chunk, const Simd<T>& s,
                Workspace work) noexcept {
  return run_backward<Family<T>>(p, d, form, chunk, s, work);
}

#define TTR_INSTANTIATE(T)                                                                                   \
  template std::size_t workspace_bytes<T>(int, int, std::ptrdiff_t, Form, int, bool, int) noexcept;          \
  template Status forward(const MomentumProblem<T>&, Form, int, const Simd<T>&, Workspace) noexcept;         \
  template Status backward(const MomentumProblem<T>&, const MomentumGradient<T>&, Form, int, const Simd<T>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::momentum
