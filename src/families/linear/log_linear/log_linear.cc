// Backward of a piece of c tokens, dS' in, dS_0 out (E = Q K' * D, F = E * Lambda, dest(j): where slot j ends up):
//
//   dU = F' dO + diag(t) K dS'_dest ;  dv = beta dU ;  dbeta = rowdot(dU, V)
//   X = tril(dO U') ;  dlambda_i[l] = sum_{s at level l} X_is E_is  and, from slots, e_i q_i . (S_j do_i)
//   dQ = (X * D * Lambda) K + sum_j diag(lambda[j+1] e^G) dO S_j' ;  dK = (X * D * Lambda)' Q + diag(t) U dS'_dest'
//   dS_j = e_c dS'_dest(j) + (diag(lambda[j+1] e^G) Q)' dO
//   dg: gate_pairs.h with M = X * E * Lambda
#include "families/linear/log_linear/log_linear.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "families/common/gate_pairs.h"
#include "families/common/run.h"

namespace ttr::families::log_linear {
namespace {

using Size = std::ptrdiff_t;

bool live(std::int64_t count, int slot) { return (count >> slot) & 1; }
int level_of(Size i, Size s) { return std::bit_width(static_cast<std::uint64_t>(i ^ s)); }  // 0 on the diagonal

/// The problem is that of one sequence (Family::of_sequence): tokens seen before token t of it.
template <class T>
std::int64_t seen(const LogLinearProblem<T>& p, Size t) {
  return *p.count + t - p.linear.sequences[0].begin;
}

/// Pieces of one head; a state S is [L, K, V] throughout.
template <class T>
class Chunk {
 public:
  Chunk(const Simd<T>& simd, const Shape& x, Size most, bool backward, Arena& arena)
      : s(simd),
        K(x.key_dim),
        V(x.value_dim),
        L(x.depth),
        C(static_cast<Size>(std::bit_floor(static_cast<std::uint64_t>(most)))) {
    q = arena.take<T>(C * K), k = arena.take<T>(C * K), scaled = arena.take<T>(C * K);
    v = arena.take<T>(C * V), u = arena.take<T>(C * V), o = arena.take<T>(C * V), kt = arena.take<T>(K * C);
    lambda = arena.take<T>(C * L), D = arena.take<T>(C * C), E = arena.take<T>(C * C), spare = arena.take<T>(C);
    g = arena.take<T>(C), beta = arena.take<T>(C), e = arena.take<T>(C), sums = arena.take<T>(C);
    if (!backward) return;
    d_q = arena.take<T>(C * K), d_k = arena.take<T>(C * K), d_u = arena.take<T>(C * V), ut = arena.take<T>(V * C);
    st = arena.take<T>(V * K), X = arena.take<T>(C * C), d_lambda = arena.take<T>(C * L);
    gates = GatePairs<T>(C, arena);
  }

  /// The tokens of the piece at `begin`: as many as fit before `end` and divide the count.
  Size piece(const LogLinearProblem<T>& p, Size begin, Size end) const {
    Size c = std::min(C, static_cast<Size>(std::bit_floor(static_cast<std::uint64_t>(end - begin))));
    while (seen(p, begin) % c != 0) c /= 2;
    return c;
  }

  void forward(const LogLinearProblem<T>& p, Size row, Size begin, Size c, int head, T* S, bool outputs) {
    const std::int64_t count = seen(p, begin);
    load(p, row, begin, c, head, outputs);
    if (outputs) {
      pairs(c, E);
      s.trmm_nn(c, V, T(1), E, C, u, V, T(0), o, V);
      for (int j = 0; j < L; ++j) {
        if (!live(count, j)) continue;
        s.scale_rows(c, K, slot_weights(c, j), q, K, scaled, K);
        s.gemm_nn(c, V, K, T(1), scaled, K, slot(S, j), V, T(1), o, V);
      }
      unpack(o, row, begin, c, head, V, p.linear.o);
    }
    const int to = destination(count, c);
    s.scale_rows(c, K, D + (c - 1) * C, k, K, scaled, K);
    s.gemm_tn(K, V, c, T(1), scaled, K, u, V, T(0), slot(S, to), V);
    for (int j = 0; j < L; ++j) {
      if (!live(count, j)) continue;
      if (j < to) s.axpy(K * V, e[c - 1], slot(S, j), slot(S, to));
      else if (p.linear.g) s.scale(K * V, e[c - 1], slot(S, j), slot(S, j));
    }
    if (begin + c == p.linear.sequences[0].end) clear_dead(count + c, S);
  }

  void backward(const LogLinearProblem<T>& p, const LogLinearGradient<T>& d, Size row, Size begin, Size c, int head,
                const T* old, const T* /*now*/, T* d_state) {
    const std::int64_t count = seen(p, begin);
    const LinearProblem<T>& a = p.linear;
    const LinearGradient<T>& out = d.linear;
    const bool answers = static_cast<bool>(out.d_o);
    const int shared = head / (a.heads / a.key_heads), to = destination(count, c);
    const T* const t = D + (c - 1) * C;
    T* const d_dest = slot(d_state, to);
    load(p, row, begin, c, head, answers);
    double across = 0;
    std::fill_n(gates.from_start, c, T(0));

    s.scale_rows(c, K, t, k, K, scaled, K);
    s.gemm_nn(c, V, K, T(1), scaled, K, d_dest, V, T(0), d_u, V);
    s.transpose(K, V, d_dest, V, st, K);
    s.gemm_nn(c, K, V, T(1), u, V, st, K, T(0), d_k, K);
    s.scale_rows(c, K, t, d_k, K, d_k, K);
    s.row_dots(c, K, k, K, d_k, K, gates.to_end);
    if (answers) {
      pack(s, out.d_o, row, begin, c, head, V, T(1), o);
      pairs(c, X);
      s.trmm_tn(c, V, T(1), X, C, o, V, T(1), d_u, V);
      s.transpose(c, V, u, V, ut, C);
      s.gemm_lower(c, V, T(1), o, V, ut, C, X, C);
      std::fill_n(d_lambda, c * L, T(0));
      for (Size i = 0; i < c; ++i)
        for (Size r = 0; r <= i; ++r) {
          const int level = level_of(i, r);
          E[i * C + r] *= X[i * C + r];
          d_lambda[i * L + level] += E[i * C + r];
          E[i * C + r] *= lambda[i * L + level];
          X[i * C + r] *= D[i * C + r] * lambda[i * L + level];
        }
      s.trmm_nn(c, K, T(1), X, C, k, K, T(0), d_q, K);
      s.trmm_tn(c, K, T(1), X, C, q, K, T(1), d_k, K);
    } else {
      for (Size i = 0; i < c; ++i) std::fill_n(E + i * C, i + 1, T(0));
    }
    // Slots below `to` were carried into it; the others only faded.
    for (int j = 0; j < L; ++j) {
      if (!live(count, j)) continue;
      s.scale(K * V, e[c - 1], j < to ? d_dest : slot(d_state, j), slot(d_state, j));
      if (out.d_g) across += static_cast<double>(s.dot(K * V, slot(old, j), slot(d_state, j)));
      if (!answers) continue;
      s.transpose(K, V, slot(old, j), V, st, K);
      s.gemm_nn(c, K, V, T(1), o, V, st, K, T(0), scaled, K);
      s.row_dots(c, K, q, K, scaled, K, sums);
      for (Size i = 0; i < c; ++i) d_lambda[i * L + j + 1] += e[i] * sums[i];
      const T* const w = slot_weights(c, j);
      for (Size i = 0; i < c; ++i) gates.from_start[i] += w[i] * sums[i];
      for (Size i = 0; i < c; ++i) s.axpy(K, w[i], scaled + i * K, d_q + i * K);
      s.scale_rows(c, K, w, q, K, scaled, K);
      s.gemm_tn(K, V, c, T(1), scaled, K, o, V, T(1), slot(d_state, j), V);
    }

    if (out.d_g) gates.gradient(s, c, E, C, across, [&](Size i, T sum) { out.d_g(row, begin + i, head) += sum; });
    if (answers && out.d_q) add_rows(s, a.scale, d_q, row, begin, c, shared, K, out.d_q);
    if (out.d_k) add_rows(s, T(1), d_k, row, begin, c, shared, K, out.d_k);
    if (answers && d.d_level_scales) add_rows(s, T(1), d_lambda, row, begin, c, head, L, d.d_level_scales);
    if (out.d_beta) {
      s.row_dots(c, V, d_u, V, v, V, sums);
      for (Size i = 0; i < c; ++i) out.d_beta(row, begin + i, head) += sums[i];
    }
    s.scale_rows(c, V, beta, d_u, V, d_u, V);
    if (out.d_v) add_rows(s, T(1), d_u, row, begin, c, head, V, out.d_v);
  }

  /// Dead slots of the start have no gradient.
  void close(const LogLinearProblem<T>& p, T* d_state) const { clear_dead(*p.count, d_state); }

 private:
  void clear_dead(std::int64_t count, T* S) const {
    for (int j = 0; j < L; ++j)
      if (!live(count, j)) std::fill_n(slot(S, j), K * V, T(0));
  }
  T* slot(T* S, int j) const { return S + Size{j} * K * V; }
  const T* slot(const T* S, int j) const { return S + Size{j} * K * V; }

  // Where a bucket of c tokens that follows `count` tokens ends up: the first dead slot from its own size on.
  static int destination(std::int64_t count, Size c) {
    int j = std::countr_zero(static_cast<std::uint64_t>(c));
    while (live(count, j)) ++j;
    return j;
  }

  void load(const LogLinearProblem<T>& p, Size row, Size begin, Size c, int head, bool queries) {
    const LinearProblem<T>& a = p.linear;
    const int shared = head / (a.heads / a.key_heads);
    if (queries) {
      pack(s, a.q, row, begin, c, shared, K, a.scale, q);
      pack(s, p.level_scales, row, begin, c, head, L, T(1), lambda);
    }
    pack(s, a.k, row, begin, c, shared, K, T(1), k);
    pack(s, a.v, row, begin, c, head, V, T(1), v);
    s.transpose(c, K, k, K, kt, C);
    T sum = 0;
    for (Size i = 0; i < c; ++i) {
      beta[i] = a.beta ? a.beta(row, begin + i, head) : T(1);
      g[i] = a.g ? a.g(row, begin + i, head) : T(0);
      e[i] = sum += g[i];
    }
    s.exp(c, e, e);
    s.gate_matrix(c, g, sums, D, C);
    s.scale_rows(c, V, beta, v, V, u, V);
  }

  // E = tril(Q K' * D), and in `to` the same with the scale of each pair's level.
  void pairs(Size c, T* to) {
    s.gemm_lower(c, K, T(1), q, K, kt, C, E, C);
    s.gate_lower(c, false, 0, nullptr, D, C, E, C);
    for (Size i = 0; i < c; ++i)
      for (Size r = 0; r <= i; ++r) to[i * C + r] = E[i * C + r] * lambda[i * L + level_of(i, r)];
  }

  // diag(lambda[j+1] e^G) for the rows of a piece.
  const T* slot_weights(Size c, int j) {
    for (Size i = 0; i < c; ++i) spare[i] = lambda[i * L + j + 1] * e[i];
    return spare;
  }

  const Simd<T>& s;
  int K, V, L;
  Size C;
  T *q, *k, *scaled, *v, *u, *o, *kt, *lambda, *D, *E, *spare, *g, *beta, *e, *sums;
  T *d_q = nullptr, *d_k = nullptr, *d_u = nullptr, *ut = nullptr, *st = nullptr, *X = nullptr, *d_lambda = nullptr;
  GatePairs<T> gates;
};

template <class T>
struct Family : LinearState<T> {
  static constexpr Choice best{Form::chunk, 32, 1};
  static constexpr bool keeps_borders = false, interleaves = false;
  using Problem = LogLinearProblem<T>;
  using Gradient = LogLinearGradient<T>;
  using Chunk = log_linear::Chunk<T>;
  using Recurrent = Absent;
  using Map = Absent;
  static std::array<Size, 1> sizes(const Shape& x) { return {Size{x.depth} * x.key_dim * x.value_dim}; }
  static Shape shape(const Problem& p) { return {p.linear.key_dim, p.linear.value_dim, p.levels}; }
  static Problem of_sequence(Size index, const Problem&, Problem p) {
    p.linear.sequences = p.linear.sequences.subspan(static_cast<std::size_t>(index), 1), p.count += index;
    return p;
  }
};

template <class T>
Status check_own(const LogLinearProblem<T>& p, bool queries) {
  const LinearProblem<T>& a = p.linear;
  if (p.levels < 1 || p.levels > 62) return Status::bad_shape;
  if (!a.sequences.empty() && !p.count) return Status::missing_input;
  if (longest_of(a.sequences) > 0 && queries && !p.level_scales) return Status::missing_input;
  const std::int64_t room = std::int64_t{1} << (p.levels - 1);
  for (std::size_t n = 0; n < a.sequences.size(); ++n) {
    if (p.count[n] < 0) return Status::out_of_domain;
    if (p.count[n] > room || p.count[n] + (a.sequences[n].end - a.sequences[n].begin) > room)
      return Status::state_full;
  }
  return Status::ok;
}

}  // namespace

template <class T>
std::size_t workspace_bytes(int K, int V, int levels, std::ptrdiff_t longest, Form form, int chunk,
                            bool backward) noexcept {
  return run_bytes<Family<T>>({K, V, levels}, longest, form, chunk, backward);
}

template <class T>
Status forward(const LogLinearProblem<T>& p, Form form, int chunk, const Simd<T>& s, Workspace work) noexcept {
  const LinearProblem<T>& a = p.linear;
  if (const Status status = check_own(p, static_cast<bool>(a.o)); status != Status::ok) return status;
  if (const Status status = run_forward<Family<T>>(p, form, chunk, s, work); status != Status::ok) return status;
  for (std::size_t n = 0; n < a.sequences.size(); ++n) p.count[n] += a.sequences[n].end - a.sequences[n].begin;
  return Status::ok;
}

template <class T>
Status backward(const LogLinearProblem<T>& p, const LogLinearGradient<T>& d, Form form, int chunk, const Simd<T>& s,
                Workspace work) noexcept {
  if (const Status status = check_own(p, static_cast<bool>(d.linear.d_o)); status != Status::ok) return status;
  return run_backward<Family<T>>(p, d, form, chunk, s, work);
}

#define TTR_INSTANTIATE(T)                                                                                     \
  template std::size_t workspace_bytes<T>(int, int, int, std::ptrdiff_t, Form, int, bool) noexcept;            \
  template Status forward(const LogLinearProblem<T>&, Form, int, const Simd<T>&, Workspace) noexcept;          \
  template Status backward(const LogLinearProblem<T>&, const LogLinearGradient<T>&, Form, int, const Simd<T>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::log_linear
