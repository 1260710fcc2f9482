// Backward, newest token first. M = e^{-g} P + process I, c = M k, e = v - S'k, den = noise + beta k'c, w = beta /
// den; D_S and D_P are the gradients of the states after the token, y = D_S e.
//
//   dw = c'y - c' D_P c ;  dden = -w dw / den ;  dc = w y - w (D_P + D_P') c + beta dden k
//   dv = w D_S' c ;  dk = beta dden c + M dc - S dv ;  dnoise = dden ;  dbeta = dw / den + dden k'c
//   D_S <- D_S - k dv' ;  D_M = D_P + dc k' ;  dprocess = tr D_M ;  dg = -e^{-g} <D_M, P> ;  D_P <- e^{-g} D_M
//
// States are kept every sqrt(T) tokens and recomputed inside a segment.
#include "families/kalman.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "families/replay.h"
#include "families/scratch.h"
#include "families/solve.h"
#include "families/wide.h"
#include "simd/denormals.h"

namespace ttr::families::kalman {
namespace {

using Size = std::ptrdiff_t;

/// One head of one sequence. A state is S [K,V] and P [K,K].
class Head {
 public:
  Head(const Simd<double>& simd, Size key_dim, Size value_dim, Size longest, bool backward, Arena& arena)
      : s(simd), K(key_dim), V(value_dim), replay({K * V, K * K}, backward ? longest : 0, 0, arena) {
    k = arena.take<double>(K), c = arena.take<double>(K), x = arena.take<double>(K);
    v = arena.take<double>(V), e = arena.take<double>(V);
    if (!backward) return;
    M = arena.take<double>(K * K), d_s = arena.take<double>(K * V), d_p = arena.take<double>(K * K);
    d_c = arena.take<double>(K), d_k = arena.take<double>(K), y = arena.take<double>(K), d_v = arena.take<double>(V);
  }

  template <class T>
  void forward(const KalmanProblem<T>& p, const Sequence& n, int head, Size lane) {
    const LinearProblem<T>& a = p.linear;
    double *const S = p.s + lane * K * V, *const P = p.p + lane * K * K;
    mirror(P);
    for (Size t = n.begin; t < n.end; ++t) {
      step(p, n.row, t, head, S, P);
      if (!a.o && !p.variance) continue;
      load(a.q, n.row, t, key_head(a, head), K, static_cast<double>(a.scale), x);
      if (p.variance) {
        s.mat_vec(K, K, P, K, x, c);
        p.variance(n.row, t, head) = static_cast<T>(s.dot(K, x, c) + number(p.noise, n.row, t, head, 1));
      }
      if (!a.o) continue;
      s.vec_mat(K, V, x, S, V, e);
      for (Size j = 0; j < V; ++j) a.o(n.row, t, head, j) = static_cast<T>(e[j]);
    }
  }

  template <class T>
  void backward(const KalmanProblem<T>& p, const KalmanGradient<T>& d, const Sequence& n, int head, Size lane) {
    copy_or_clear(d.d_final_s ? d.d_final_s + lane * K * V : nullptr, K * V, d_s);
    copy_or_clear(d.d_final_p ? d.d_final_p + lane * K * K : nullptr, K * K, d_p);
    replay.run(
        n.end - n.begin, {p.s + lane * K * V, p.p + lane * K * K},
        [&](Size i, const Parts<double, 2>& state) {
          if (i == 0) mirror(state[1]);
          step(p, n.row, n.begin + i, head, state[0], state[1]);
        },
        [&](Size i, const Parts<const double, 2>& old, const Parts<const double, 2>& now) {
          step_back(p, d, n.row, n.begin + i, head, old, now);
        });
    if (d.d_initial_s) s.axpy(K * V, 1.0, d_s, d.d_initial_s + lane * K * V);
    if (d.d_initial_p) s.axpy(K * K, 1.0, d_p, d.d_initial_p + lane * K * K);
  }

 private:
  template <class T>
  static int key_head(const LinearProblem<T>& a, int head) {
    return head / (a.heads / a.key_heads);
  }
  void mirror(double* P) const {
    for (Size i = 0; i < K; ++i)
      for (Size j = 0; j < i; ++j) P[j * K + i] = P[i * K + j];
  }

  // P <- e^{-g} P + process I in the lower triangle, mirrored.
  void predict(double growth, double process, double* P) const {
    if (growth != 1)
      for (Size i = 0; i < K; ++i) s.scale(i + 1, growth, P + i * K, P + i * K);
    for (Size i = 0; i < K; ++i) P[i * K + i] += process;
    if (growth != 1) mirror(P);
  }

  template <class T>
  void step(const KalmanProblem<T>& p, Size row, Size t, int head, double* S, double* P) {
    const LinearProblem<T>& a = p.linear;
    const double beta = number(a.beta, row, t, head, 1), noise = number(p.noise, row, t, head, 1);
    predict(std::exp(-number(a.g, row, t, head, 0)), number(p.process, row, t, head, 0), P);
    load(a.k, row, t, key_head(a, head), K, 1.0, k);
    load(a.v, row, t, head, V, 1.0, v);
    s.mat_vec(K, K, P, K, k, c);
    const double spread = noise + beta * s.dot(K, k, c);
    if (spread == 0) return;
    s.vec_mat(K, V, k, S, V, e);
    s.scale(V, -1.0, e, e);
    s.axpy(V, 1.0, v, e);
    s.scale(K, beta / spread, c, x);
    s.rank_one(K, V, 1.0, x, e, S, V);
    for (Size i = 0; i < K; ++i) s.axpy(i + 1, -x[i], c, P + i * K);
    mirror(P);
  }

  template <class T>
  void step_back(const KalmanProblem<T>& p, const KalmanGradient<T>& d, Size row, Size t, int head,
                 const Parts<const double, 2>& old, const Parts<const double, 2>& now) {
    const LinearProblem<T>& a = p.linear;
    const LinearGradient<T>& to = d.linear;
    const int shared = key_head(a, head);
    const double scale = static_cast<double>(a.scale), growth = std::exp(-number(a.g, row, t, head, 0));
    const double beta = number(a.beta, row, t, head, 1), noise = number(p.noise, row, t, head, 1);
    const double* const S = old[0];
    double d_noise = 0;
    if (to.d_o || d.d_variance) {
      load(a.q, row, t, shared, K, scale, x);
      std::fill_n(y, K, 0.0);
      if (to.d_o) {
        load(to.d_o, row, t, head, V, 1.0, e);
        s.mat_vec(K, V, now[0], V, e, y);
        s.rank_one(K, V, 1.0, x, e, d_s, V);
      }
      if (d.d_variance) {
        d_noise = static_cast<double>(d.d_variance(row, t, head));
        s.mat_vec(K, K, now[1], K, x, c);
        s.axpy(K, 2 * d_noise, c, y);
        s.scale(K, d_noise, x, c);
        s.rank_one(K, K, 1.0, c, x, d_p, K);
      }
      if (to.d_q) add(y, scale, K, to.d_q, row, t, shared);
    }

    load(a.k, row, t, shared, K, 1.0, k);
    load(a.v, row, t, head, V, 1.0, v);
    std::copy_n(old[1], K * K, M);
    mirror(M);
    predict(growth, number(p.process, row, t, head, 0), M);
    s.mat_vec(K, K, M, K, k, c);
    const double along = s.dot(K, k, c), spread = noise + beta * along;
    if (spread != 0) {
      s.vec_mat(K, V, k, S, V, e);
      s.scale(V, -1.0, e, e);
      s.axpy(V, 1.0, v, e);
      const double w = beta / spread;
      s.mat_vec(K, V, d_s, V, e, y);
      s.mat_vec(K, K, d_p, K, c, d_c);
      const double d_w = s.dot(K, c, y) - s.dot(K, c, d_c), d_spread = -w * d_w / spread;
      s.vec_mat(K, K, c, d_p, K, d_k);
      s.axpy(K, 1.0, d_k, d_c);
      s.scale(K, -w, d_c, d_c);
      s.axpy(K, w, y, d_c);
      s.axpy(K, beta * d_spread, k, d_c);

      s.vec_mat(K, V, c, d_s, V, d_v);
      s.scale(V, w, d_v, d_v);
      s.mat_vec(K, K, M, K, d_c, d_k);
      s.axpy(K, beta * d_spread, c, d_k);
      s.mat_vec(K, V, S, V, d_v, y);
      s.axpy(K, -1.0, y, d_k);
      d_noise += d_spread;
      if (to.d_k) add(d_k, 1.0, K, to.d_k, row, t, shared);
      if (to.d_v) add(d_v, 1.0, V, to.d_v, row, t, head);
      if (to.d_beta) to.d_beta(row, t, head) += static_cast<T>(d_w / spread + d_spread * along);

      s.scale(V, -1.0, d_v, d_v);
      s.rank_one(K, V, 1.0, k, d_v, d_s, V);
      s.rank_one(K, K, 1.0, d_c, k, d_p, K);
    }
    if (d.d_noise) d.d_noise(row, t, head) += static_cast<T>(d_noise);
    if (d.d_process) {
      double trace = 0;
      for (Size i = 0; i < K; ++i) trace += d_p[i * K + i];
      d.d_process(row, t, head) += static_cast<T>(trace);
    }
    if (to.d_g) {
      std::copy_n(old[1], K * K, M);
      mirror(M);
      to.d_g(row, t, head) -= static_cast<T>(growth * s.dot(K * K, d_p, M));
    }
    if (growth != 1) s.scale(K * K, growth, d_p, d_p);
  }

  const Simd<double>& s;
  Size K, V;
  Replay<double, 2> replay;
  double *k, *c, *x, *v, *e;
  double *M = nullptr, *d_s = nullptr, *d_p = nullptr, *d_c = nullptr, *d_k = nullptr, *y = nullptr, *d_v = nullptr;
};

template <class T>
Status check(const KalmanProblem<T>& p, bool queries, Form form, Workspace work, bool backward) {
  const LinearProblem<T>& a = p.linear;
  if (form != Form::best && form != Form::step && form != Form::recurrent) return Status::not_supported;
  const Size longest = longest_of(a.sequences);
  if (longest < 0 || a.key_dim < 1 || a.value_dim < 1 || a.heads < 1 || a.key_heads < 1 || a.heads % a.key_heads != 0)
    return Status::bad_shape;
  if (!a.sequences.empty() && (!p.s || !p.p)) return Status::missing_input;
  if (longest > 0 && (!a.k || !a.v || (queries && !a.q))) return Status::missing_input;
  if (!work.data || work.bytes < workspace_bytes(a.key_dim, a.value_dim, longest, backward))
    return Status::small_workspace;
  return Status::ok;
}

// Whether no variance or importance of this sequence and head is negative or NaN.
template <class T>
bool defined(const KalmanProblem<T>& p, const Sequence& n, int h) {
  for (const View<const T, 3>* x : {&p.linear.beta, &p.process, &p.noise})
    for (Size t = n.begin; *x && t < n.end; ++t)
      if (!((*x)(n.row, t, h) >= T(0))) return false;
  return true;
}

}  // namespace

std::size_t workspace_bytes(int K, int V, std::ptrdiff_t longest, bool backward) noexcept {
  static constexpr Simd<double> none{};
  Arena arena;
  Head head(none, K, V, longest, backward, arena);
  return arena.bytes();
}

template <class T>
Status forward(const KalmanProblem<T>& p, Form form, const Simd<double>& s, Workspace work) noexcept {
  const LinearProblem<T>& a = p.linear;
  if (const Status status = check(p, a.o || p.variance, form, work, false); status != Status::ok) return status;
  const FlushDenormals flush;
  Arena arena(work);
  Head run(s, a.key_dim, a.value_dim, longest_of(a.sequences), false, arena);
  bool good = true;
  Size lane = 0;
  for (const Sequence& n : a.sequences)
    for (int h = 0; h < a.heads; ++h, ++lane) {
      if (defined(p, n, h)) {
        run.forward(p, n, h, lane);
        continue;
      }
      good = false;
      no_answer(a.o, n, h);
      for (Size t = n.begin; p.variance && t < n.end; ++t)
        p.variance(n.row, t, h) = std::numeric_limits<T>::quiet_NaN();
    }
  return good ? Status::ok : Status::out_of_domain;
}

template <class T>
Status backward(const KalmanProblem<T>& p, const KalmanGradient<T>& d, Form form, const Simd<double>& s,
                Workspace work) noexcept {
  const LinearProblem<T>& a = p.linear;
  if (const Status status = check(p, d.linear.d_o || d.d_variance, form, work, true); status != Status::ok)
    return status;
  const FlushDenormals flush;
  Arena arena(work);
  Head run(s, a.key_dim, a.value_dim, longest_of(a.sequences), true, arena);
  bool good = true;
  Size lane = 0;
  for (const Sequence& n : a.sequences)
    for (int h = 0; h < a.heads; ++h, ++lane) {
      const bool has_gradient = defined(p, n, h);
      if (has_gradient) run.backward(p, d, n, h, lane);
      good = good && has_gradient;
    }
  return good ? Status::ok : Status::out_of_domain;
}

#define TTR_INSTANTIATE(T)                                                                               \
  template Status forward(const KalmanProblem<T>&, Form, const Simd<double>&, Workspace) noexcept;       \
  template Status backward(const KalmanProblem<T>&, const KalmanGradient<T>&, Form, const Simd<double>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::kalman
