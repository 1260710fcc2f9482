// Backward, newest token first. M = e^{-g} P + process I, c = M k, e = v - S'k, den = noise + beta k'c, w = beta /
// den; D_S and D_P are the gradients of the states after the token, y = D_S e.
//
//   dw = c'y - c' D_P c ;  dden = -w dw / den ;  dc = w y - w (D_P + D_P') c + beta dden k
//   dv = w D_S' c ;  dk = beta dden c + M dc - S dv ;  dnoise = dden ;  dbeta = dw / den + dden k'c
//   D_S <- D_S - k dv' ;  D_M = D_P + dc k' ;  dprocess = tr D_M ;  dg = -e^{-g} <D_M, P> ;  D_P <- e^{-g} D_M
//
// Of D_P only the symmetric part (D_P + D_P') / 2 is kept: nothing else depends on the rest, which no measurement
// ever contracts, so that under fading it would grow as e^{-g t} until its rounding is all that is left of the
// gradients.
//
// States are kept every sqrt(T) tokens and recomputed inside a segment.
#include "families/solve/kalman/kalman.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "families/common/replay.h"
#include "families/common/scratch.h"
#include "families/common/solve.h"
#include "families/common/wide.h"
#include "families/solve/kalman/block.h"
#include "families/solve/kalman/covariance_simd.h"
#include "simd/denormals.h"

namespace ttr::families::kalman {
namespace {

using Size = std::ptrdiff_t;

template <class T>
void start_gradients(const Simd<double>& s, const KalmanGradient<T>& d, Size K, Size V, Size seq_head, double* d_s,
                     double* d_p) {
  copy_or_clear(d.d_final_s ? d.d_final_s + seq_head * K * V : nullptr, K * V, d_s);
  copy_or_clear(d.d_final_p ? d.d_final_p + seq_head * K * K : nullptr, K * K, d_p);
  for (Size i = 0; i < K; ++i)
    for (Size j = 0; j < i; ++j) d_p[i * K + j] = (d_p[i * K + j] + d_p[j * K + i]) / 2;
  mirror(s, K, d_p);
}

/// One head of one sequence. A state is S [K,V] and P [K,K].
class Head {
  using Pass = CovarianceSimd<double>::Pass;

 public:
  Head(const Simd<double>& simd, Size key_dim, Size value_dim, Size longest, bool backward, Arena& arena)
      : s(simd),
        covariance(simd.name ? &covariance_simd(simd) : nullptr),
        K(key_dim),
        V(value_dim),
        replay({K * V, K * K}, backward ? longest : 0, 0, arena) {
    for (double** vector : {&k, &c, &next, &x, &z, &asked}) *vector = arena.take<double>(K);
    v = arena.take<double>(V), e = arena.take<double>(V);
    if (!backward) return;
    M = arena.take<double>(K * K), d_s = arena.take<double>(K * V), d_p = arena.take<double>(K * K);
    d_c = arena.take<double>(K), d_k = arena.take<double>(K), y = arena.take<double>(K), d_v = arena.take<double>(V);
  }

  template <class T>
  void forward(const KalmanProblem<T>& p, const Sequence& n, int head, Size seq_head) {
    const LinearProblem<T>& a = p.linear;
    double *const S = p.s + seq_head * K * V, *const P = p.p + seq_head * K * K;
    mirror_squares(K, P);
    for (Size t = n.begin; t < n.end; ++t) {
      if (t == n.begin) covariance->pass(before(p, n.row, t, head, P, c));
      const bool moves = measure(p, n.row, t, head, S);
      Pass pass = t + 1 < n.end ? before(p, n.row, t + 1, head, P, next) : Pass{.K = K, .P = P};
      if (moves) pass.z = z, pass.c = c;
      if (a.o || p.variance) load(a.q, n.row, t, key_head(a, head), K, static_cast<double>(a.scale), x);
      if (p.variance) pass.q = x, pass.asked = asked;
      covariance->pass(pass);
      std::swap(c, next);
      if (p.variance)
        p.variance(n.row, t, head) = static_cast<T>(s.dot(K, x, asked) + number(p.noise, n.row, t, head, 1));
      if (!a.o) continue;
      answer(x, S, e);
      for (Size j = 0; j < V; ++j) a.o(n.row, t, head, j) = static_cast<T>(e[j]);
    }
    mirror(P);
  }

  template <class T>
  void backward(const KalmanProblem<T>& p, const KalmanGradient<T>& d, const Sequence& n, int head, Size seq_head) {
    start_gradients(s, d, K, V, seq_head, d_s, d_p);
    replay.run(
        n.end - n.begin, {p.s + seq_head * K * V, p.p + seq_head * K * K},
        [&](Size i, const Parts<double, 2>& state) {
          if (i == 0) mirror_squares(K, state[1]);
          step(p, n.row, n.begin + i, head, state[0], state[1]);
        },
        [&](Size i, const Parts<const double, 2>& old, const Parts<const double, 2>& now) {
          step_back(p, d, n.row, n.begin + i, head, old, now);
        });
    if (d.d_initial_s) s.axpy(K * V, 1.0, d_s, d.d_initial_s + seq_head * K * V);
    if (d.d_initial_p) s.axpy(K * K, 1.0, d_p, d.d_initial_p + seq_head * K * K);
  }

 private:
  template <class T>
  static int key_head(const LinearProblem<T>& a, int head) {
    return head / (a.heads / a.key_heads);
  }
  void mirror(double* P) const { kalman::mirror(s, K, P); }

  // d_p += f (a b' + b a') / 2
  void add_symmetric(double f, const double* a, const double* b) const {
    for (Size i = 0; i < K; ++i) {
      s.axpy(i + 1, f * a[i] / 2, b, d_p + i * K);
      s.axpy(i + 1, f * b[i] / 2, a, d_p + i * K);
    }
    mirror(d_p);
  }

  // P <- e^{-g} P + process I, P symmetric
  void predict(double growth, double process, double* P) const {
    if (growth != 1) s.scale(K * K, growth, P, P);
    for (Size i = 0; i < K; ++i) P[i * K + i] += process;
  }

  // to = S'x
  void answer(const double* at, const double* S, double* to) const {
    if (V == 1) to[0] = s.dot(K, at, S);
    else s.vec_mat(K, V, at, S, V, to);
  }

  // What a token finds, and P k of it: its key is left in `k`.
  template <class T>
  Pass before(const KalmanProblem<T>& p, Size row, Size t, int head, double* P, double* product) const {
    load(p.linear.k, row, t, key_head(p.linear, head), K, 1.0, k);
    const double gate = number(p.linear.g, row, t, head, 0);
    return {.K = K,
            .P = P,
            .growth = gate == 0 ? 1.0 : std::exp(-gate),
            .process = number(p.process, row, t, head, 0),
            .k = k,
            .product = product};
  }

  // S behind a token whose P k is in c, by -gain (in z) times minus the surprise; P is to be changed by z c'. False: nothing is.
  template <class T>
  bool measure(const KalmanProblem<T>& p, Size row, Size t, int head, double* S) {
    const LinearProblem<T>& a = p.linear;
    const double beta = number(a.beta, row, t, head, 1), noise = number(p.noise, row, t, head, 1);
    const double spread = noise + beta * s.dot(K, k, c);
    if (spread == 0) return false;
    load(a.v, row, t, head, V, 1.0, v);
    answer(k, S, e);
    for (Size j = 0; j < V; ++j) e[j] -= v[j];
    s.scale(K, -beta / spread, c, z);
    if (V == 1) s.axpy(K, e[0], z, S);
    else s.rank_one(K, V, 1.0, z, e, S, V);
    return true;
  }

  template <class T>
  void step(const KalmanProblem<T>& p, Size row, Size t, int head, double* S, double* P) {
    covariance->pass(before(p, row, t, head, P, c));
    if (measure(p, row, t, head, S)) covariance->pass({.K = K, .P = P, .z = z, .c = c});
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
        add_symmetric(d_noise, x, x);
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
      s.scale(K, -2 * w, d_c, d_c);
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
      add_symmetric(1.0, d_c, k);
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
  const CovarianceSimd<double>* covariance;
  Size K, V;
  Replay<double, 2> replay;
  double *k, *c, *next, *x, *z, *asked, *v, *e;
  double *M = nullptr, *d_s = nullptr, *d_p = nullptr, *d_c = nullptr, *d_k = nullptr, *y = nullptr, *d_v = nullptr;
};

/// One head of one sequence, block by block. Where blocks end depends on the states, so how many there are is known
/// at the end only: states are kept at the borders of segments of sqrt(T) blocks, as many as that is.
class Blocks {
 public:
  Blocks(const Simd<double>& simd, Size key_dim, Size value_dim, Size longest, bool backward, Size most, Arena& arena)
      : s(simd),
        K(key_dim),
        V(value_dim),
        segment(static_cast<Size>(std::ceil(std::sqrt(static_cast<double>(longest))))),
        block(simd, K, V, most, backward, arena) {
    if (!backward) return;
    d_s = arena.take<double>(K * V), d_p = arena.take<double>(K * K), begins = arena.take<Size>(longest + 1);
    borders = arena.take<double>((segment + 1) * state()), inside = arena.take<double>((segment + 1) * state());
  }

  template <class T>
  void forward(const KalmanProblem<T>& p, const Sequence& n, int head, Size seq_head) {
    double *const S = p.s + seq_head * K * V, *const P = p.p + seq_head * K * K;
    mirror(s, K, P);
    for (Size t = n.begin; t < n.end;)
      t += block.forward(p, n.row, t, n.end - t, head, S, P, p.linear.o || p.variance);
  }

  template <class T>
  void backward(const KalmanProblem<T>& p, const KalmanGradient<T>& d, const Sequence& n, int head, Size seq_head) {
    start_gradients(s, d, K, V, seq_head, d_s, d_p);
    const auto advance = [&](Size begin, Size most, double* to) {
      return block.forward(p, n.row, begin, most, head, to, to + K * V, false);
    };
    Size count = 0;
    std::copy_n(p.s + seq_head * K * V, K * V, inside);
    std::copy_n(p.p + seq_head * K * K, K * K, inside + K * V);
    mirror(s, K, inside + K * V);
    for (Size t = n.begin; t < n.end; ++count) {
      if (count % segment == 0) std::copy_n(inside, state(), borders + count / segment * state());
      begins[count] = t;
      t += advance(t, n.end - t, inside);
    }
    begins[count] = n.end;
    while (count > 0) {
      const Size first = (count - 1) / segment * segment;
      std::copy_n(borders + first / segment * state(), state(), inside);
      for (Size i = first; i < count; ++i) {
        double* const next = inside + (i - first + 1) * state();
        std::copy_n(next - state(), state(), next);
        advance(begins[i], begins[i + 1] - begins[i], next);
      }
      for (Size i = count; i-- > first;) {
        const double *const old = inside + (i - first) * state(), *const now = old + state();
        block.backward(p, d, n.row, begins[i], begins[i + 1] - begins[i], head, old, old + K * V, now + K * V, d_s,
                       d_p);
      }
      count = first;
    }
    if (d.d_initial_s) s.axpy(K * V, 1.0, d_s, d.d_initial_s + seq_head * K * V);
    if (d.d_initial_p) s.axpy(K * K, 1.0, d_p, d.d_initial_p + seq_head * K * K);
  }

 private:
  Size state() const { return K * V + K * K; }

  const Simd<double>& s;
  Size K, V, segment;
  Block block;
  double *d_s = nullptr, *d_p = nullptr, *borders = nullptr, *inside = nullptr;
  Size* begins = nullptr;
};

Size tokens_of(int chunk, Size longest) {
  return std::clamp<Size>(chunk > 0 ? chunk : default_chunk, 1, std::max<Size>(longest, 1));
}

// Form::best is recurrent forwards, whose pass over half of P is as fast as blocks, and backwards chunk once K is no longer small:
// 1.3 times as fast with K = 32, twice with 64.
bool by_blocks(Form form, Size K, bool backward) {
  return form == Form::chunk || (form == Form::best && backward && K >= 32);
}

template <class T>
Status check(const KalmanProblem<T>& p, bool queries, Form form, Workspace work, bool backward) {
  const LinearProblem<T>& a = p.linear;
  if (form == Form::parallel || form == Form::scan) return Status::not_supported;
  const Size longest = longest_of(a.sequences);
  if (longest < 0 || a.key_dim < 1 || a.value_dim < 1 || a.heads < 1 || a.key_heads < 1 || a.heads % a.key_heads != 0)
    return Status::bad_shape;
  if (!a.sequences.empty() && (!p.s || !p.p)) return Status::missing_input;
  if (longest > 0 && (!a.k || !a.v || (queries && !a.q))) return Status::missing_input;
  if (!work.data || work.bytes < workspace_bytes(a.key_dim, a.value_dim, longest, backward, form, p.chunk))
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

std::size_t workspace_bytes(int K, int V, std::ptrdiff_t longest, bool backward, Form form, int chunk) noexcept {
  static constexpr Simd<double> none{};
  Arena arena;
  if (by_blocks(form, K, backward)) Blocks(none, K, V, longest, backward, tokens_of(chunk, longest), arena);
  else Head(none, K, V, longest, backward, arena);
  return arena.bytes();
}

namespace {

// each(run, sequence, head, seq_head) for every head of every sequence that is inside the domain, other(..) for the rest.
template <class T, class Each, class Other>
Status run_heads(const KalmanProblem<T>& p, Form form, bool backward, const Simd<double>& s, Workspace work,
                 Each&& each, Other&& other) {
  const LinearProblem<T>& a = p.linear;
  const Size longest = longest_of(a.sequences);
  const FlushDenormals flush;
  Arena arena(work);
  const auto run_all = [&](auto&& run) {
    bool good = true;
    Size seq_head = 0;
    for (const Sequence& n : a.sequences)
      for (int h = 0; h < a.heads; ++h, ++seq_head) {
        if (defined(p, n, h)) each(run, n, h, seq_head);
        else other(n, h), good = false;
      }
    return good ? Status::ok : Status::out_of_domain;
  };
  if (!by_blocks(form, a.key_dim, backward))
    return run_all(Head(s, a.key_dim, a.value_dim, longest, backward, arena));
  return run_all(Blocks(s, a.key_dim, a.value_dim, longest, backward, tokens_of(p.chunk, longest), arena));
}

}  // namespace

template <class T>
Status forward(const KalmanProblem<T>& p, Form form, const Simd<double>& s, Workspace work) noexcept {
  const LinearProblem<T>& a = p.linear;
  if (const Status status = check(p, a.o || p.variance, form, work, false); status != Status::ok) return status;
  return run_heads(
      p, form, false, s, work,
      [&](auto& run, const Sequence& n, int h, Size seq_head) { run.forward(p, n, h, seq_head); },
      [&](const Sequence& n, int h) { no_answer(a.o, n, h), no_answer(p.variance, n, h); });
}

template <class T>
Status backward(const KalmanProblem<T>& p, const KalmanGradient<T>& d, Form form, const Simd<double>& s,
                Workspace work) noexcept {
  if (const Status status = check(p, d.linear.d_o || d.d_variance, form, work, true); status != Status::ok)
    return status;
  return run_heads(
      p, form, true, s, work,
      [&](auto& run, const Sequence& n, int h, Size seq_head) { run.backward(p, d, n, h, seq_head); },
      [](const Sequence&, int) {});
}

#define TTR_INSTANTIATE(T)                                                                               \
  template Status forward(const KalmanProblem<T>&, Form, const Simd<double>&, Workspace) noexcept;       \
  template Status backward(const KalmanProblem<T>&, const KalmanGradient<T>&, Form, const Simd<double>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::kalman
