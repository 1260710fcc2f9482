// Backward by implicit differentiation, newest token first; D_H, D_F are the gradients of H_t and F_t.
//
//   x = H^{-1} scale q ;  u = H^{-1} F do = R^{-1} Z do ;  m = u + 2 dvariance x ;  dq = scale m
//   D_F += x do' ;  D_H -= (u + dvariance x) x'
//   dk = beta (D_F v + (D_H + D_H') k) ;  dv = beta D_F' k ;  dbeta = k' D_F v + k' D_H k
//   dridge_j = a D_H[jj] at the first token ;  dg = a (<D_F, F_{t-1}> + <D_H, H_{t-1}>) ;  D <- a D
//
// Where H is singular, p = q - H pinv(H) q is what the query has outside the span of the keys; moving a key moves the
// span:  D_H += pinv(H) m p'   (from d pinv(H) = -pinv dH pinv + pinv^2 dH (I - H pinv) + transposed).
//
// <D_H, H> costs K^3 from R. But with c_t = <D_F, F_t> + <D_H, H_t> the recursion of H says
//   dg_t = c_t - beta dbeta ,   c_{t-1} = dg_t - (what the ridge adds at the first token) + (what token t-1 adds to c)
// and an answer, which does not change when H and F are scaled together, adds nothing to c; a variance adds minus
// itself. c is computed afresh every K tokens so that the long sum does not collect rounding.
//
// States of a regular triangle, L = R': H + ridge I = L L' and Z = L^{-1} F, so that at the end of a call, from dR and dZ,
//   D_F = L^{-T} dZ ;  dL = dR' - D_F Z' ;  D_H = sym(L^{-T} low(L'dL) L^{-1})     low: lower triangle, half the diagonal
// and at its start  dR = triu(R (D_H + D_H') + Z D_F') ,  dZ = R D_F.
#include "families/solve/givens/givens.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "families/common/replay.h"
#include "families/common/scratch.h"
#include "families/common/solve.h"
#include "families/common/wide.h"
#include "families/solve/givens/triangle.h"
#include "simd/denormals.h"

namespace ttr::families::givens {
namespace {

using Size = std::ptrdiff_t;

// Of float inputs the keys are rounded, not the sums; a tenth of their unit still tells their directions apart.
template <class T>
constexpr double key_rounding() {
  return (sizeof(T) < sizeof(double) ? 0.1 : 1.0) * static_cast<double>(std::numeric_limits<T>::epsilon());
}

// A ridge that has faded away is not a fresh start.
constexpr double least_share = 1e-300;

/// One head of one sequence. A state is R, Z, share, basis.
template <class T>
class Head {
 public:
  Head(const Simd<double>& simd, int key_dim, int value_dim, Size longest, bool backward, bool is_regular,
       Arena& arena)
      : s(simd),
        K(key_dim),
        V(value_dim),
        regular(is_regular),
        triangle(simd, K, V, key_rounding<T>(), arena),
        replay({K * K, K * V, regular ? 0 : K, regular ? 0 : K * K}, backward ? longest : 0, 0, arena) {
    for (double** vector : {&k, &q, &y, &x}) *vector = arena.take<double>(K);
    v = arena.take<double>(V), o = arena.take<double>(V);
    if (!backward) return;
    for (double** vector : {&u, &m, &d_k, &spare, &more, &d_ridge}) *vector = arena.take<double>(K);
    d_v = arena.take<double>(V), frame = arena.take<double>(K * K);
    d_state = arena.take<double>(K * K + K * V), product = arena.take<double>(K * std::max(K, V));
  }

  void forward(const GivensProblem<T>& p, const Sequence& n, int head, Size seq_head) {
    const LinearProblem<T>& a = p.linear;
    double *const r = p.r + seq_head * K * K, *const z = p.z + seq_head * K * V,
                  *const share = p.share ? p.share + seq_head * K : nullptr;
    for (Size i = 0; i < K; ++i) std::fill_n(r + i * K, i, 0.0);
    triangle.attach(r, z, regular ? nullptr : p.basis + seq_head * K * K);
    if (regular && !p.known) return forward_regular(p, n, head);
    for (Size t = n.begin; t < n.end; ++t) {
      step(p, n.row, t, head, share);
      if (const Size lost = triangle.take_lost(); lost > 0 && p.lost) p.lost->directions += lost, ++p.lost->tokens;
      if (!a.o && !p.variance && !p.known) continue;
      load(a.q, n.row, t, key_head(a, head), K, static_cast<double>(a.scale), q);
      triangle.read(q, y);
      const Size rank = triangle.dimension();
      if (a.o) {
        s.vec_mat(rank, V, y, z, V, o);
        for (Size j = 0; j < V; ++j) a.o(n.row, t, head, j) = static_cast<T>(o[j]);
      }
      if (!p.variance && !p.known) continue;
      const double variance = 1 + s.dot(rank, y, y);
      if (p.variance) p.variance(n.row, t, head) = static_cast<T>(variance);
      if (p.known) p.known(n.row, t, head) = static_cast<T>(known(p, head, share, variance));
    }
  }

  // Several tokens at once, which have the bits of one after the other.
  void forward_regular(const GivensProblem<T>& p, const Sequence& n, int head) {
    const LinearProblem<T>& a = p.linear;
    const bool asks = a.o || p.variance;
    const int shared = key_head(a, head);
    for (Size t = n.begin, count; t < n.end; t += count) {
      count = n.end - t < triangle.together() ? 1 : triangle.together();
      for (Size i = 0; i < count; ++i) {
        const double root = std::sqrt(number(a.beta, n.row, t + i, head, 1));
        load(a.k, n.row, t + i, shared, K, root, triangle.row_of(i));
        load(a.v, n.row, t + i, head, V, root, triangle.value_of(i));
        if (asks) load(a.q, n.row, t + i, shared, K, static_cast<double>(a.scale), triangle.query_of(i));
      }
      triangle.add_rows(count, asks);
      for (Size i = 0; i < count; ++i) {
        for (Size j = 0; a.o && j < V; ++j) a.o(n.row, t + i, head, j) = static_cast<T>(triangle.answer_of(i)[j]);
        if (p.variance)
          p.variance(n.row, t + i, head) = static_cast<T>(1 + s.dot(K, triangle.query_of(i), triangle.query_of(i)));
      }
    }
  }

  void backward(const GivensProblem<T>& p, const GivensGradient<T>& d, const Sequence& n, int head, Size seq_head) {
    std::fill_n(d_state, K * K + K * V, 0.0), std::fill_n(d_ridge, K, 0.0);
    // Parts that are there and not used: any K numbers will do.
    const double *const r = p.r + seq_head * K * K, *const z = p.z + seq_head * K * V;
    const Parts<const double, 4> initial = {r, z, p.share ? p.share + seq_head * K : r,
                                            regular ? r : p.basis + seq_head * K * K};
    const Size time = n.end - n.begin;
    if (time == 0) return hand_over(p, d, seq_head);
    replay.run(
        time, initial,
        [&](Size i, const Parts<double, 4>& state) {
          for (Size j = 0; i == 0 && j < K; ++j) std::fill_n(state[0] + j * K, j, 0.0);
          triangle.attach(state[0], state[1], regular ? nullptr : state[3]);
          step(p, n.row, n.begin + i, head, state[2]);
        },
        [&](Size i, const Parts<const double, 4>& old, const Parts<const double, 4>& now) {
          if (i == time - 1) from_end(d, seq_head, now[0], now[1]);
          step_back(p, d, n.row, n.begin + i, head, old, now, i == time - 1 || (i + 1) % K == 0);
        });
    if (d.d_ridge)
      for (Size j = 0; j < K; ++j) d.d_ridge(head, j) += static_cast<T>(d_ridge[j]);
    to_start(d, seq_head, r, z);
  }

 private:
  static int key_head(const LinearProblem<T>& a, int head) { return head / (a.heads / a.key_heads); }

  // No tokens: the state at the end is that at the start.
  void hand_over(const GivensProblem<T>& p, const GivensGradient<T>& d, Size seq_head) {
    if (!p.r) return;
    if (d.d_final_r && d.d_initial_r)
      s.axpy(K * K, 1.0, d.d_final_r + seq_head * K * K, d.d_initial_r + seq_head * K * K);
    if (d.d_final_z && d.d_initial_z)
      s.axpy(K * V, 1.0, d.d_final_z + seq_head * K * V, d.d_initial_z + seq_head * K * V);
  }
  // D_H and D_F from the gradients of the state at the end of a call; r and z are that state.
  void from_end(const GivensGradient<T>& d, Size seq_head, const double* r, const double* z) {
    if (!d.d_final_r && !d.d_final_z) return;
    double *const DH = d_state, *const DF = d_state + K * K, *const dL = frame;
    if (!regular) {
      if (d.d_final_r) std::copy_n(d.d_final_r + seq_head * K * K, K * K, DH);
      if (d.d_final_z) std::copy_n(d.d_final_z + seq_head * K * V, K * V, DF);
      return;
    }
    if (d.d_final_z) {  // D_F = R^{-1} dZ, row by row from the last
      std::copy_n(d.d_final_z + seq_head * K * V, K * V, DF);
      for (Size i = K; i-- > 0;) {
        for (Size j = i + 1; j < K; ++j) s.axpy(V, -r[i * K + j], DF + j * V, DF + i * V);
        s.scale(V, 1 / r[i * K + i], DF + i * V, DF + i * V);
      }
    }
    s.gemm_nt(K, K, V, -1.0, DF, V, z, V, 0.0, dL, K);
    for (Size i = 0; i < K; ++i)
      for (Size j = 0; j < K; ++j) {
        if (j > i) dL[i * K + j] = 0;
        else if (d.d_final_r) dL[i * K + j] += d.d_final_r[(seq_head * K + j) * K + i];
      }
    s.gemm_nn(K, K, K, 1.0, r, K, dL, K, 0.0, product, K);  // L' dL
    for (Size i = 0; i < K; ++i)
      for (Size j = i; j < K; ++j) product[i * K + j] *= j == i ? 0.5 : 0.0;
    // X = R^{-1} low, then the rows of X R'^{-1}
    for (Size i = K; i-- > 0;) {
      for (Size j = i + 1; j < K; ++j) s.axpy(K, -r[i * K + j], product + j * K, product + i * K);
      s.scale(K, 1 / r[i * K + i], product + i * K, product + i * K);
    }
    for (Size i = 0; i < K; ++i) {
      double* const row = product + i * K;
      for (Size j = K; j-- > 0;) row[j] = (row[j] - s.dot(K - j - 1, r + j * K + j + 1, row + j + 1)) / r[j * K + j];
    }
    for (Size i = 0; i < K; ++i)
      for (Size j = 0; j < K; ++j) DH[i * K + j] = (product[i * K + j] + product[j * K + i]) / 2;
  }
  void to_start(const GivensGradient<T>& d, Size seq_head, const double* r, const double* z) {
    double *const DH = d_state, *const DF = d_state + K * K;
    if (!regular) {
      if (d.d_initial_r) s.axpy(K * K, 1.0, DH, d.d_initial_r + seq_head * K * K);
      if (d.d_initial_z) s.axpy(K * V, 1.0, DF, d.d_initial_z + seq_head * K * V);
      return;
    }
    std::fill_n(frame, K * K, 0.0);  // R; what lies below its diagonal is not a part of the state
    for (Size i = 0; i < K; ++i) std::copy(r + i * K + i, r + (i + 1) * K, frame + i * K + i);
    if (d.d_initial_z) s.gemm_nn(K, V, K, 1.0, frame, K, DF, V, 1.0, d.d_initial_z + seq_head * K * V, V);
    if (!d.d_initial_r) return;
    s.gemm_nn(K, K, K, 1.0, frame, K, DH, K, 0.0, product, K);
    s.gemm_nt(K, K, K, 1.0, frame, K, DH, K, 1.0, product, K);
    s.gemm_nt(K, K, V, 1.0, z, V, DF, V, 1.0, product, K);
    for (Size i = 0; i < K; ++i) s.axpy(K - i, 1.0, product + i * K + i, d.d_initial_r + (seq_head * K + i) * K + i);
  }

  // Moves the attached triangle and the shares by one token.
  void step(const GivensProblem<T>& p, Size row, Size t, int head, double* share) {
    const LinearProblem<T>& a = p.linear;
    const double g = number(a.g, row, t, head, 0), decay = std::exp(g);
    triangle.fade(std::exp(g / 2));
    if (p.ridge && triangle.dimension() == 0 &&
        std::all_of(share, share + K, [](double part) { return part == 0; })) {
      for (Size j = 0; j < K; ++j) {
        share[j] = std::max(least_share, decay);
        k[j] = std::sqrt(decay * static_cast<double>(p.ridge(head, j)));
      }
      triangle.start(k);
    } else if (p.ridge) {
      std::fill_n(k, K, 0.0);
      for (Size j = 0; j < K; ++j) {
        const bool fresh = share[j] == 0;
        share[j] = std::max(least_share, decay * (fresh ? 1 : share[j]));
        if (!fresh) continue;
        k[j] = 1;
        triangle.add(std::sqrt(decay * static_cast<double>(p.ridge(head, j))), k, nullptr);
        k[j] = 0;
      }
    }
    load(a.k, row, t, key_head(a, head), K, 1.0, k);
    load(a.v, row, t, head, V, 1.0, v);
    triangle.add(std::sqrt(number(a.beta, row, t, head, 1)), k, v);
  }

  // From q and y, the query and what the triangle makes of it.
  double known(const GivensProblem<T>& p, int head, const double* share, double variance) {
    if (!regular && triangle.leaves_span(q)) return 0;
    if (!p.ridge && !regular) return 1;
    triangle.solve(y, x);
    double prior = regular ? p.constant * s.dot(K, x, x) : 0;
    for (Size j = 0; !regular && j < K; ++j) prior += static_cast<double>(p.ridge(head, j)) * share[j] * x[j] * x[j];
    return std::max(0.0, 1 - prior / variance);
  }

  // b [rank] <- R'^{-1} b and R^{-1} b
  void solve_transposed(Size rank, double* b) const {
    for (Size i = 0; i < rank; ++i) {
      b[i] = R[i * K + i] == 0 ? 0 : b[i] / R[i * K + i];
      s.axpy(rank - i - 1, -b[i], R + i * K + i + 1, b + i + 1);
    }
  }
  void solve(Size rank, double* b) const {
    for (Size i = rank; i-- > 0;) {
      const double sum = b[i] - s.dot(rank - i - 1, R + i * K + i + 1, b + i + 1);
      b[i] = R[i * K + i] == 0 ? 0 : sum / R[i * K + i];
    }
  }
  // to [K] = B' from and to [rank] = B from
  void outwards(Size rank, const double* from, double* to) const {
    if (regular) std::copy_n(from, K, to);
    else s.vec_mat(rank, K, from, B, K, to);
  }
  void inwards(Size rank, const double* from, double* to) const {
    if (regular) std::copy_n(from, K, to);
    else s.mat_vec(rank, K, B, K, from, to);
  }

  // <D_H, H> + <D_F, F>, the sums over rows of R B and of Z.
  double contracted(Size rank) {
    const double *const DH = d_state, *const DF = d_state + K * K;
    double sum = 0;
    s.gemm_nn(rank, K, rank, 1.0, R, K, B, K, 0.0, frame, K);
    s.gemm_nn(rank, K, K, 1.0, frame, K, DH, K, 0.0, product, K);
    for (Size i = 0; i < rank; ++i) sum += s.dot(K, frame + i * K, product + i * K);
    s.gemm_nn(rank, V, K, 1.0, frame, K, DF, V, 0.0, product, V);
    for (Size i = 0; i < rank; ++i) sum += s.dot(V, Z + i * V, product + i * V);
    return sum;
  }

  void step_back(const GivensProblem<T>& p, const GivensGradient<T>& d, Size row, Size t, int head,
                 const Parts<const double, 4>& old, const Parts<const double, 4>& now, bool afresh) {
    const LinearProblem<T>& a = p.linear;
    const LinearGradient<T>& to = d.linear;
    const int shared = key_head(a, head);
    double *const DH = d_state, *const DF = d_state + K * K;
    R = now[0], Z = now[1], B = now[3];
    const Size rank = regular ? K : Triangle::rank_of(K, B);
    load(a.k, row, t, shared, K, 1.0, k);
    load(a.v, row, t, head, V, 1.0, v);
    const double d_variance = number(d.d_variance, row, t, head, 0);
    if (to.d_o || d.d_variance) {
      const double scale = static_cast<double>(a.scale);
      load(a.q, row, t, shared, K, scale, q);
      inwards(rank, q, spare);
      if (rank < K) outwards(rank, spare, more);
      solve_transposed(rank, spare);
      total -= d_variance * s.dot(rank, spare, spare);
      solve(rank, spare);
      outwards(rank, spare, x);
      std::fill_n(u, K, 0.0);
      if (to.d_o) {
        load(to.d_o, row, t, head, V, 1.0, o);
        s.mat_vec(rank, V, Z, V, o, spare);
        solve(rank, spare);
        outwards(rank, spare, u);
        s.rank_one(K, V, 1.0, x, o, DF, V);
      }
      s.scale(K, 1.0, u, m);
      s.axpy(K, 2 * d_variance, x, m);
      if (to.d_q) add(m, scale, K, to.d_q, row, t, shared);
      s.axpy(K, d_variance, x, u);
      s.scale(K, -1.0, u, u);
      s.rank_one(K, K, 1.0, u, x, DH, K);
      if (rank < K) {
        s.axpy(K, -1.0, more, q);  // p
        inwards(rank, m, spare);
        solve_transposed(rank, spare), solve(rank, spare);
        outwards(rank, spare, m);
        s.rank_one(K, K, 1.0, m, q, DH, K);
      }
    }
    if (afresh && to.d_g) total = contracted(rank);  // for d_g alone

    const double beta = number(a.beta, row, t, head, 1);
    s.mat_vec(K, V, DF, V, v, d_k);
    s.mat_vec(K, K, DH, K, k, spare);
    const double d_beta = s.dot(K, k, d_k) + s.dot(K, k, spare);
    if (to.d_beta) to.d_beta(row, t, head) += static_cast<T>(d_beta);
    s.axpy(K, 1.0, spare, d_k);
    s.vec_mat(K, K, k, DH, K, spare);
    s.axpy(K, 1.0, spare, d_k);
    if (to.d_k) add(d_k, beta, K, to.d_k, row, t, shared);
    if (to.d_v) {
      s.vec_mat(K, V, k, DF, V, d_v);
      add(d_v, beta, V, to.d_v, row, t, head);
    }

    const double decay = std::exp(number(a.g, row, t, head, 0));
    total = decay == 0 ? 0.0 : total - beta * d_beta;
    if (to.d_g) to.d_g(row, t, head) += static_cast<T>(total);
    for (Size j = 0; p.ridge && j < K; ++j) {
      if (old[2][j] != 0) continue;  // the ridge came before this token
      const double d_h = decay * DH[j * K + j];
      d_ridge[j] += d_h;
      total -= static_cast<double>(p.ridge(head, j)) * d_h;
    }
    if (a.g) s.scale(K * K + K * V, decay, d_state, d_state);
  }

  const Simd<double>& s;
  Size K, V;
  bool regular;
  Triangle triangle;
  Replay<double, 4> replay;
  double total = 0;                                       // c_t of the comment above
  const double *R = nullptr, *Z = nullptr, *B = nullptr;  // backward: of the token
  double *k, *q, *y, *x, *v, *o;
  double *u = nullptr, *m = nullptr, *d_k = nullptr, *spare = nullptr, *more = nullptr, *d_ridge = nullptr,
         *d_v = nullptr, *d_state = nullptr, *product = nullptr, *frame = nullptr;
};

template <class T>
Status check(const GivensProblem<T>& p, bool queries, Form form, Workspace work, bool backward) {
  const LinearProblem<T>& a = p.linear;
  if (form != Form::best && form != Form::step && form != Form::recurrent) return Status::not_supported;
  const Size longest = longest_of(a.sequences);
  if (longest < 0 || a.key_dim < 1 || a.value_dim < 1 || a.heads < 1 || a.key_heads < 1 || a.heads % a.key_heads != 0)
    return Status::bad_shape;
  const bool regular = p.constant > 0;
  if (regular && (a.g || p.ridge)) return Status::not_supported;
  if (!(p.constant >= 0)) return Status::out_of_domain;
  if (!a.sequences.empty() && (!p.r || !p.z)) return Status::missing_input;
  if (!a.sequences.empty() && !regular && (!p.basis || (p.ridge && !p.share))) return Status::missing_input;
  if (longest > 0 && (!a.k || !a.v || (queries && !a.q))) return Status::missing_input;
  if (!work.data || work.bytes < workspace_bytes(a.key_dim, a.value_dim, longest, backward, regular))
    return Status::small_workspace;
  return Status::ok;
}

// Whether no importance or ridge of this sequence and head is negative or NaN, or a ridge zero.
template <class T>
bool defined(const GivensProblem<T>& p, const Sequence& n, int h) {
  const LinearProblem<T>& a = p.linear;
  for (int j = 0; p.ridge && j < a.key_dim; ++j)
    if (!(p.ridge(h, j) > T(0))) return false;
  for (Size t = n.begin; a.beta && t < n.end; ++t)
    if (!(a.beta(n.row, t, h) >= T(0))) return false;
  return true;
}

}  // namespace

std::size_t workspace_bytes(int K, int V, std::ptrdiff_t longest, bool backward, bool regular) noexcept {
  static constexpr Simd<double> none{};
  Arena arena;
  Head<double> head(none, K, V, longest, backward, regular, arena);
  return arena.bytes();
}

template <class T>
Status forward(const GivensProblem<T>& p, Form form, const Simd<double>& s, Workspace work) noexcept {
  const LinearProblem<T>& a = p.linear;
  if (const Status status = check(p, a.o || p.variance || p.known, form, work, false); status != Status::ok)
    return status;
  const FlushDenormals flush;
  Arena arena(work);
  Head<T> run(s, a.key_dim, a.value_dim, longest_of(a.sequences), false, p.constant > 0, arena);
  bool good = true;
  Size seq_head = 0;
  for (const Sequence& n : a.sequences)
    for (int h = 0; h < a.heads; ++h, ++seq_head) {
      if (n.end == n.begin) continue;  // a slot that pauses
      const bool has_answer = defined(p, n, h);
      good = good && has_answer;
      if (has_answer) run.forward(p, n, h, seq_head);
      else no_answer(a.o, n, h), no_answer(p.variance, n, h), no_answer(p.known, n, h);
    }
  return good ? Status::ok : Status::out_of_domain;
}

template <class T>
Status backward(const GivensProblem<T>& p, const GivensGradient<T>& d, Form form, const Simd<double>& s,
                Workspace work) noexcept {
  const LinearProblem<T>& a = p.linear;
  if (const Status status = check(p, d.linear.d_o || d.d_variance, form, work, true); status != Status::ok)
    return status;
  const FlushDenormals flush;
  Arena arena(work);
  Head<T> run(s, a.key_dim, a.value_dim, longest_of(a.sequences), true, p.constant > 0, arena);
  bool good = true;
  Size seq_head = 0;
  for (const Sequence& n : a.sequences)
    for (int h = 0; h < a.heads; ++h, ++seq_head) {
      const bool has_answer = defined(p, n, h);
      good = good && has_answer;
      if (has_answer) run.backward(p, d, n, h, seq_head);
    }
  return good ? Status::ok : Status::out_of_domain;
}

#define TTR_INSTANTIATE(T)                                                                               \
  template Status forward(const GivensProblem<T>&, Form, const Simd<double>&, Workspace) noexcept;       \
  template Status backward(const GivensProblem<T>&, const GivensGradient<T>&, Form, const Simd<double>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::givens
