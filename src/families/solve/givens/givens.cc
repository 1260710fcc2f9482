// Backward by implicit differentiation, newest token first; D_H, D_F are the gradients of H_t and F_t.
//
//   x = H^{-1} scale q ;  u = H^{-1} F do = R^{-1} Z do ;  m = u + 2 dvariance x ;  dq = scale m
//   D_F += x do' ;  D_H -= (u + dvariance x) x'
//   dk = beta (D_F v + (D_H + D_H') k) ;  dv = beta D_F' k ;  dbeta = k' D_F v + k' D_H k
//   dridge_j = added_j D_H[jj] ;  dg = a (<D_F, F_{t-1}> + <D_H, H_{t-1}>) ;  D <- a D
//
// Where H is singular, p = q - H pinv(H) q is what the query has outside the span of the keys; moving a key moves the
// span:  D_H += pinv(H) m p'   (from d pinv(H) = -pinv dH pinv + pinv^2 dH (I - H pinv) + transposed).
//
// <D_H, H> costs K^3 from R. But with c_t = <D_F, F_t> + <D_H, H_t> the recursion of H says
//   dg_t = c_t - beta dbeta - sum_j ridge_j added_j D_H[jj] ,   c_{t-1} = dg_t + (what token t-1 adds to c)
// and an answer, which does not change when H and F are scaled together, adds nothing to c; a variance adds minus
// itself. c is computed afresh every K tokens so that the long sum does not collect rounding.
#include "families/solve/givens/givens.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "families/common/replay.h"
#include "families/common/scratch.h"
#include "families/solve/givens/triangle.h"
#include "simd/denormals.h"

namespace ttr::families::givens {
namespace {

using Size = std::ptrdiff_t;

template <class From, class To>
void load(const View<From, 4>& from, Size row, Size t, int head, Size dim, To scale, To* to) {
  const auto* const start = &from(row, t, head, 0);
  for (Size j = 0; j < dim; ++j) to[j] = scale * static_cast<To>(start[j * from.stride[3]]);
}
template <class T>
void add(const double* from, double scale, Size dim, const View<T, 4>& to, Size row, Size t, int head) {
  T* const start = &to(row, t, head, 0);
  for (Size j = 0; j < dim; ++j) start[j * to.stride[3]] += static_cast<T>(scale * from[j]);
}

/// Which part of the ridge joins H at a token with decay a, and the shares after it; see givens.h.
template <class A>
void leak(RidgeKind kind, Size K, A a, A enough, const A* before, A* added, A* after) {
  if (kind == RidgeKind::fading) {
    for (Size j = 0; j < K; ++j) added[j] = before[j] == A(0) ? a : A(0), after[j] = 1;
    return;
  }
  Size least = 0;
  for (Size j = 0; j < K; ++j) {
    after[j] = a * before[j], added[j] = 0;
    if (after[j] < after[least]) least = j;
  }
  const A smallest = after[least];
  for (Size j = 0; j < K; ++j)
    if (after[j] < enough) added[j] = 1 - after[j], after[j] = 1;
  if (smallest >= enough && smallest < A(1)) added[least] = 2 * (1 - smallest), after[least] = 2 - smallest;
}

// The rounding that decides which directions count as seen. With a wider A only the keys are rounded, not the sums,
// and a tenth of T's unit still tells their directions apart.
template <class T, class A>
constexpr A resolution() {
  return static_cast<A>((sizeof(A) > sizeof(T) ? 0.1 : 1.0) * static_cast<double>(std::numeric_limits<T>::epsilon()));
}

/// One head of one sequence. A state is R, Z, share, basis.
template <class T, class A>
class Head {
 public:
  Head(const Simd<A>& simd, const Simd<double>& wide, int key_dim, int value_dim, Size longest, bool with_basis,
       bool backward, Arena& arena)
      : s(simd),
        w(wide),
        K(key_dim),
        V(value_dim),
        ranked(with_basis),
        triangle(simd, K, V, with_basis, resolution<T, A>(), arena),
        k(arena.take<A>(K)),
        v(arena.take<A>(V)),
        q(arena.take<A>(K)),
        o(arena.take<A>(V)),
        added(arena.take<A>(K)),
        shares(arena.take<A>(K)),
        replay({K * K, K * V, K, with_basis ? K * K : 0}, backward ? longest : 0, 0, arena) {
    if (!backward) return;
    R = arena.take<double>(K * K), Z = arena.take<double>(K * V), B = arena.take<double>(ranked ? K * K : 0);
    for (double** vector : {&kd, &qd, &x, &u, &m, &d_k, &spare, &more, &d_share, &d_ridge})
      *vector = arena.take<double>(K);
    vd = arena.take<double>(V), d_o = arena.take<double>(V), d_v = arena.take<double>(V);
    d_state = arena.take<double>(K * K + K * V), product = arena.take<double>(K * std::max(K, V));
    frame = arena.take<double>(ranked ? K * K : 0);
  }

  void forward(const GivensProblem<T, A>& p, const Sequence& n, int head, Size lane) {
    const LinearProblem<T>& a = p.linear;
    const Parts<A, 4> state = {p.r + lane * K * K, p.z + lane * K * V, p.share ? p.share + lane * K : nullptr,
                               p.basis ? p.basis + lane * K * K : nullptr};
    for (Size i = 0; i < K; ++i) std::fill_n(state[0] + i * K, i, A(0));
    triangle.attach(state[0], state[1], state[3]);
    for (Size t = n.begin; t < n.end; ++t) {
      step(p, n.row, t, head, state[2]);
      if (!a.o && !p.variance) continue;
      load(a.q, n.row, t, key_head(a, head), K, static_cast<A>(a.scale), k);
      triangle.read(k, q);
      const Size rank = triangle.dimension();
      if (p.variance) p.variance(n.row, t, head) = static_cast<T>(s.dot(rank, q, q));
      if (!a.o) continue;
      s.vec_mat(rank, V, q, state[1], V, o);
      for (Size j = 0; j < V; ++j) a.o(n.row, t, head, j) = static_cast<T>(o[j]);
    }
  }

  void backward(const GivensProblem<T, A>& p, const GivensGradient<T>& d, const Sequence& n, int head, Size lane) {
    double *const DH = d_state, *const DF = d_state + K * K;
    copy_or_clear(d.d_final_h ? d.d_final_h + lane * K * K : nullptr, K * K, DH);
    copy_or_clear(d.d_final_f ? d.d_final_f + lane * K * V : nullptr, K * V, DF);
    copy_or_clear(d.d_final_share ? d.d_final_share + lane * K : nullptr, K, d_share);
    std::fill_n(d_ridge, K, 0.0);
    // Without shares (kind none) the part is there and is not used; any K numbers will do.
    const Parts<const A, 4> initial = {p.r + lane * K * K, p.z + lane * K * V,
                                       p.share ? p.share + lane * K : p.r + lane * K * K,
                                       p.basis ? p.basis + lane * K * K : nullptr};
    const Size time = n.end - n.begin;
    replay.run(
        time, initial,
        [&](Size i, const Parts<A, 4>& state) {
          for (Size r = 0; i == 0 && r < K; ++r) std::fill_n(state[0] + r * K, r, A(0));
          triangle.attach(state[0], state[1], state[3]);
          step(p, n.row, n.begin + i, head, state[2]);
        },
        [&](Size i, const Parts<const A, 4>& old, const Parts<const A, 4>& now) {
          step_back(p, d, n.row, n.begin + i, head, old, now, i == time - 1 || (i + 1) % K == 0);
        });
    if (d.d_ridge)
      for (Size j = 0; j < K; ++j) d.d_ridge(head, j) += static_cast<T>(d_ridge[j]);
    if (d.d_initial_h) w.axpy(K * K, 1.0, DH, d.d_initial_h + lane * K * K);
    if (d.d_initial_f) w.axpy(K * V, 1.0, DF, d.d_initial_f + lane * K * V);
    if (d.d_initial_share && p.kind == RidgeKind::constant) w.axpy(K, 1.0, d_share, d.d_initial_share + lane * K);
  }

 private:
  static int key_head(const LinearProblem<T>& a, int head) { return head / (a.heads / a.key_heads); }
  static double gate(const LinearProblem<T>& a, Size row, Size t, int head) {
    return a.g ? static_cast<double>(a.g(row, t, head)) : 0.0;
  }

  // Moves the attached triangle and the shares by one token.
  void step(const GivensProblem<T, A>& p, Size row, Size t, int head, A* share) {
    const LinearProblem<T>& a = p.linear;
    const A g = static_cast<A>(gate(a, row, t, head));
    triangle.fade(std::exp(g / 2));
    if (p.kind != RidgeKind::none) {
      leak(p.kind, K, std::exp(g), p.least_share, share, added, shares);
      std::copy_n(shares, K, share);
      std::fill_n(k, K, A(0));
      for (Size j = 0; j < K; ++j) {
        if (!(added[j] > A(0))) continue;
        k[j] = 1;
        triangle.add(std::sqrt(added[j] * static_cast<A>(p.ridge(head, j))), k, nullptr);
        k[j] = 0;
      }
    }
    load(a.k, row, t, key_head(a, head), K, A(1), k);
    load(a.v, row, t, head, V, A(1), v);
    triangle.add(a.beta ? std::sqrt(static_cast<A>(a.beta(row, t, head))) : A(1), k, v);
  }

  // R, Z, B of a state in double; the dimensions in use.
  Size widen(const Parts<const A, 4>& state) {
    std::copy_n(state[0], K * K, R), std::copy_n(state[1], K * V, Z);
    Size rank = K;
    if (ranked) {
      std::copy_n(state[3], K * K, B);
      for (rank = 0; rank < K; ++rank)
        if (std::all_of(B + rank * K, B + (rank + 1) * K, [](double b) { return b == 0; })) break;
    }
    return rank;
  }
  // b [rank] <- R'^{-1} b and R^{-1} b
  void solve_transposed(Size rank, double* b) const {
    for (Size i = 0; i < rank; ++i) {
      b[i] = R[i * K + i] == 0 ? 0 : b[i] / R[i * K + i];
      w.axpy(rank - i - 1, -b[i], R + i * K + i + 1, b + i + 1);
    }
  }
  void solve(Size rank, double* b) const {
    for (Size i = rank; i-- > 0;) {
      const double sum = b[i] - w.dot(rank - i - 1, R + i * K + i + 1, b + i + 1);
      b[i] = R[i * K + i] == 0 ? 0 : sum / R[i * K + i];
    }
  }
  // to [K] = B' from and to [rank] = B from; copies without a basis.
  void outwards(Size rank, const double* from, double* to) const {
    if (ranked) w.vec_mat(rank, K, from, B, K, to);
    else std::copy_n(from, K, to);
  }
  void inwards(Size rank, const double* from, double* to) const {
    if (ranked) w.mat_vec(rank, K, B, K, from, to);
    else std::copy_n(from, K, to);
  }

  // <D_H, H> + <D_F, F>, the sums over rows of R B and of Z.
  double contracted(Size rank) {
    const double *const DH = d_state, *const DF = d_state + K * K, *rows = R;
    if (ranked) {
      w.gemm_nn(rank, K, rank, 1.0, R, K, B, K, 0.0, frame, K);
      rows = frame;
    }
    double sum = 0;
    w.gemm_nn(rank, K, K, 1.0, rows, K, DH, K, 0.0, product, K);
    for (Size i = 0; i < rank; ++i) sum += w.dot(K, rows + i * K, product + i * K);
    w.gemm_nn(rank, V, K, 1.0, rows, K, DF, V, 0.0, product, V);
    for (Size i = 0; i < rank; ++i) sum += w.dot(V, Z + i * V, product + i * V);
    return sum;
  }

  void step_back(const GivensProblem<T, A>& p, const GivensGradient<T>& d, Size row, Size t, int head,
                 const Parts<const A, 4>& old, const Parts<const A, 4>& now, bool afresh) {
    const LinearProblem<T>& a = p.linear;
    const LinearGradient<T>& to = d.linear;
    const int shared = key_head(a, head);
    double *const DH = d_state, *const DF = d_state + K * K;
    const Size rank = widen(now);
    load(a.k, row, t, shared, K, 1.0, kd);
    load(a.v, row, t, head, V, 1.0, vd);
    const double d_variance = d.d_variance ? static_cast<double>(d.d_variance(row, t, head)) : 0;
    if (to.d_o || d.d_variance) {
      const double scale = static_cast<double>(a.scale);
      load(a.q, row, t, shared, K, scale, qd);
      inwards(rank, qd, spare);
      if (rank < K) outwards(rank, spare, more);
      solve_transposed(rank, spare);
      total -= d_variance * w.dot(rank, spare, spare);
      solve(rank, spare);
      outwards(rank, spare, x);
      std::fill_n(u, K, 0.0);
      if (to.d_o) {
        load(to.d_o, row, t, head, V, 1.0, d_o);
        w.mat_vec(rank, V, Z, V, d_o, spare);
        solve(rank, spare);
        outwards(rank, spare, u);
        w.rank_one(K, V, 1.0, x, d_o, DF, V);
      }
      w.scale(K, 1.0, u, m);
      w.axpy(K, 2 * d_variance, x, m);
      if (to.d_q) add(m, scale, K, to.d_q, row, t, shared);
      w.axpy(K, d_variance, x, u);
      w.scale(K, -1.0, u, u);
      w.rank_one(K, K, 1.0, u, x, DH, K);
      if (rank < K) {
        w.axpy(K, -1.0, more, qd);  // p
        inwards(rank, m, spare);
        solve_transposed(rank, spare), solve(rank, spare);
        outwards(rank, spare, m);
        w.rank_one(K, K, 1.0, m, qd, DH, K);
      }
    }
    if (afresh) total = contracted(rank);

    const double beta = a.beta ? static_cast<double>(a.beta(row, t, head)) : 1.0;
    w.mat_vec(K, V, DF, V, vd, d_k);
    w.mat_vec(K, K, DH, K, kd, spare);
    const double d_beta = w.dot(K, kd, d_k) + w.dot(K, kd, spare);
    if (to.d_beta) to.d_beta(row, t, head) += static_cast<T>(d_beta);
    w.axpy(K, 1.0, spare, d_k);
    w.vec_mat(K, K, kd, DH, K, spare);
    w.axpy(K, 1.0, spare, d_k);
    if (to.d_k) add(d_k, beta, K, to.d_k, row, t, shared);
    if (to.d_v) {
      w.vec_mat(K, V, kd, DF, V, d_v);
      add(d_v, beta, V, to.d_v, row, t, head);
    }

    const double g = gate(a, row, t, head), decay = std::exp(g);
    total = decay == 0 ? 0.0 : total - beta * d_beta;
    double d_g = total;
    if (p.kind != RidgeKind::none) {
      const double rest = ridge_back(p, head, static_cast<A>(std::exp(static_cast<A>(g))), old[2], DH);
      if (decay != 0) total -= rest;
      d_g = total + from_shares;
    }
    if (to.d_g) to.d_g(row, t, head) += static_cast<T>(decay == 0 ? 0.0 : d_g);
    if (a.g) w.scale(K * K + K * V, decay, d_state, d_state);
  }

  // Gradients of the ridge and of the shares before the token; from_shares is what they say about g. Returns
  // <D_H, diag(ridge * added)>.
  double ridge_back(const GivensProblem<T, A>& p, int head, A decay, const A* before, const double* DH) {
    leak(p.kind, K, decay, p.least_share, before, added, shares);
    double sum = 0;
    from_shares = 0;
    for (Size j = 0; j < K; ++j) {
      const double ridge = static_cast<double>(p.ridge(head, j)), d_h = DH[j * K + j];
      const double kept = static_cast<double>(decay) * static_cast<double>(before[j]);
      sum += ridge * static_cast<double>(added[j]) * d_h;
      d_ridge[j] += static_cast<double>(added[j]) * d_h;
      if (p.kind == RidgeKind::fading) {
        from_shares += ridge * static_cast<double>(added[j]) * d_h;  // added = a
        continue;
      }
      double d_kept = d_share[j];
      if (added[j] > A(0)) d_kept = shares[j] > A(1) ? -d_share[j] - 2 * ridge * d_h : -ridge * d_h;
      from_shares += d_kept * kept;
      d_share[j] = static_cast<double>(decay) * d_kept;
    }
    return sum;
  }

  const Simd<A>& s;
  const Simd<double>& w;
  Size K, V;
  bool ranked;
  Triangle<A> triangle;
  A *k, *v, *q, *o, *added, *shares;
  Replay<A, 4> replay;
  double total = 0, from_shares = 0;  // total: c_t of the comment above
  double *R = nullptr, *Z = nullptr, *B = nullptr, *kd = nullptr, *qd = nullptr, *x = nullptr, *u = nullptr,
         *m = nullptr, *d_k = nullptr, *spare = nullptr, *more = nullptr, *d_share = nullptr, *d_ridge = nullptr,
         *vd = nullptr, *d_o = nullptr, *d_v = nullptr, *d_state = nullptr, *product = nullptr, *frame = nullptr;
};

template <class T, class A>
Status check(const GivensProblem<T, A>& p, bool queries, Form form, Workspace work, bool backward) {
  const LinearProblem<T>& a = p.linear;
  const bool ridge = p.kind != RidgeKind::none;
  if (form != Form::best && form != Form::step && form != Form::recurrent) return Status::not_supported;
  const Size longest = longest_of(a.sequences);
  if (longest < 0 || a.key_dim < 1 || a.value_dim < 1 || a.heads < 1 || a.key_heads < 1 || a.heads % a.key_heads != 0)
    return Status::bad_shape;
  if (ridge ? !p.ridge : !p.basis && !a.sequences.empty()) return Status::missing_input;
  if (!a.sequences.empty() && (!p.r || !p.z || (ridge && !p.share))) return Status::missing_input;
  if (longest > 0 && (!a.k || !a.v || (queries && !a.q))) return Status::missing_input;
  if (!work.data || work.bytes < workspace_bytes<A>(a.key_dim, a.value_dim, longest, p.basis != nullptr, backward))
    return Status::small_workspace;
  if (ridge && !(p.least_share > A(0) && p.least_share <= A(1))) return Status::out_of_domain;
  for (int h = 0; ridge && h < a.heads; ++h)
    for (int j = 0; j < a.key_dim; ++j)
      if (!(p.ridge(h, j) > T(0))) return Status::out_of_domain;
  for (const Sequence& n : a.sequences)
    for (Size t = n.begin; a.beta && t < n.end; ++t)
      for (int h = 0; h < a.heads; ++h)
        if (!(a.beta(n.row, t, h) >= T(0))) return Status::out_of_domain;
  return Status::ok;
}

}  // namespace

template <class A>
std::size_t workspace_bytes(int K, int V, std::ptrdiff_t longest, bool basis, bool backward) noexcept {
  static constexpr Simd<A> none{};
  static constexpr Simd<double> wide{};
  Arena arena;
  Head<A, A> head(none, wide, K, V, longest, basis, backward, arena);
  return arena.bytes();
}

template <class T, class A>
Status forward(const GivensProblem<T, A>& p, Form form, const Simd<A>& s, Workspace work) noexcept {
  static constexpr Simd<double> wide{};
  const LinearProblem<T>& a = p.linear;
  if (const Status status = check(p, a.o || p.variance, form, work, false); status != Status::ok) return status;
  const FlushDenormals flush;
  Arena arena(work);
  Head<T, A> run(s, wide, a.key_dim, a.value_dim, longest_of(a.sequences), p.basis != nullptr, false, arena);
  Size lane = 0;
  for (const Sequence& n : a.sequences)
    for (int h = 0; h < a.heads; ++h, ++lane) run.forward(p, n, h, lane);
  return Status::ok;
}

template <class T, class A>
Status backward(const GivensProblem<T, A>& p, const GivensGradient<T>& d, Form form, const Simd<A>& s,
                const Simd<double>& wide, Workspace work) noexcept {
  const LinearProblem<T>& a = p.linear;
  if (const Status status = check(p, d.linear.d_o || d.d_variance, form, work, true); status != Status::ok)
    return status;
  const FlushDenormals flush;
  Arena arena(work);
  Head<T, A> run(s, wide, a.key_dim, a.value_dim, longest_of(a.sequences), p.basis != nullptr, true, arena);
  Size lane = 0;
  for (const Sequence& n : a.sequences)
    for (int h = 0; h < a.heads; ++h, ++lane) run.backward(p, d, n, h, lane);
  return Status::ok;
}

template std::size_t workspace_bytes<float>(int, int, std::ptrdiff_t, bool, bool) noexcept;
template std::size_t workspace_bytes<double>(int, int, std::ptrdiff_t, bool, bool) noexcept;
#define TTR_INSTANTIATE(T, A)                                                                          \
  template Status forward(const GivensProblem<T, A>&, Form, const Simd<A>&, Workspace) noexcept;       \
  template Status backward(const GivensProblem<T, A>&, const GivensGradient<T>&, Form, const Simd<A>&, \
                           const Simd<double>&, Workspace) noexcept;
TTR_INSTANTIATE(float, float)
TTR_INSTANTIATE(float, double)
TTR_INSTANTIATE(double, double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::givens
