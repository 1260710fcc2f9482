// Every form goes through chunks; a step is a chunk of one token, in place. With S = [C, n] (V+1 columns),
// Va = [V, 1], Oa = [C' q, n.q], backward of a chunk is that of scalar decay with weights W and e, and the logs of the
// weights:
//
//   dOa = [do / denom, sign(n.q) dden] or, where e^{-m} is the larger, [do / denom, 0] and dm -= e^{-m} dden
//   dden = d_denom - (do.o) / denom
//   X = tril(dOa Va') * W ;  dQ = X K~ + diag(e) dOa S_0' ;  dK~ = X' Q + diag(W_c) Va dS''
//   dVa = (Q K~' * W)' dOa + diag(W_c) K~ dS' ;  dS_0 = e_c dS' + (diag(e) Q)' dOa
//
// A row's weights carry e^{-m}, a column's e^{i}, and both the gates between them: with the pairs M = (Q K~' * W) *
// (dOa Va'), those with the start, e_t q_t.(S_0 dOa_t) , and with the end, W_cs k_s.(dS' va_s) , x the sum of a row of
// all of these and y that of a column
//
//   di += y ;  dm -= x ;  df += gate_pairs.h ;  dm_0 += the pairs with the start
//
// then, from the last token to the first, dm goes to the winner of the maximum. Where that is a token's own input gate
// its pair with itself stands in y and x and has no gradient: it is kept apart (`own`), as with the other gates, or
// rounding of it would be all that is left under strong gates.
#include "families/linear/stabilised/stabilised.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "families/common/gate_pairs.h"
#include "families/common/run.h"

namespace ttr::families::stabilised {
namespace {

using Size = std::ptrdiff_t;

template <class T>
using State = Parts<T, 3>;  // C, n, m

template <class T>
class Chunk {
 public:
  Chunk(const Simd<T>& simd, int key_dim, int value_dim, Size largest, bool backward, Arena& arena)
      : s(simd), K(key_dim), V(value_dim), U(V + 1), C(largest) {
    for (T** x : {&q, &k, &scaled}) *x = arena.take<T>(C * K);
    kt = arena.take<T>(K * C), v = arena.take<T>(C * U), o = arena.take<T>(C * U), S = arena.take<T>(K * U);
    W = arena.take<T>(C * C), P = arena.take<T>(C * C);
    for (T** x : {&f, &in, &e, &denom}) *x = arena.take<T>(C);
    m = arena.take<T>(C + 1);
    if (!backward) return;
    for (T** x : {&d_q, &d_k}) *x = arena.take<T>(C * K);
    for (T** x : {&d_o, &d_v}) *x = arena.take<T>(C * U);
    for (T** x : {&dS, &st}) *x = arena.take<T>(K * U);
    vt = arena.take<T>(U * C), X = arena.take<T>(C * C);
    for (T** x : {&d_m, &d_f, &d_in, &own}) *x = arena.take<T>(C + 1);
    gates = GatePairs<T>(C, arena);
  }

  void forward(const StabilisedProblem<T>& p, Size row, Size begin, Size c, int head, const State<T>& state,
               bool outputs) {
    if (c == 1) return token(p, row, begin, head, state, outputs);
    load(p, row, begin, c, head, outputs, *state[2]);
    gather(state[0], state[1], S);
    if (outputs) {
      answers(p, c);
      for (Size i = 0; i < c; ++i) s.scale(V, 1 / denom[i], o + i * U, o + i * U);
      if (p.linear.o) store(p, row, begin, c, head);
      for (Size i = 0; p.denom && i < c; ++i) p.denom(row, begin + i, head) = denom[i];
    }
    s.scale_rows(c, K, W + (c - 1) * C, k, K, scaled, K);
    s.gemm_tn(K, U, c, T(1), scaled, K, v, U, e[c - 1], S, U);
    scatter(S, state[0], state[1]);
    *state[2] = m[c];
  }

  void backward(const StabilisedProblem<T>& p, const StabilisedGradient<T>& d, Size row, Size begin, Size c, int head,
                const Parts<const T, 3>& old, const Parts<const T, 3>& /*now*/, const State<T>& d_state) {
    const LinearGradient<T>& out = d.linear;
    const bool asked = out.d_o || d.d_denom;
    const T* const last = W + (c - 1) * C;
    load(p, row, begin, c, head, asked, *old[2]);
    gather(old[0], old[1], S);
    gather(d_state[0], d_state[1], dS);
    std::fill_n(d_m, c + 1, T(0));
    d_m[c] = *d_state[2];

    const T across = e[c - 1] * s.dot(K * U, S, dS);
    d_m[0] = across;
    s.scale_rows(c, K, last, k, K, scaled, K);
    s.gemm_nn(c, U, K, T(1), scaled, K, dS, U, T(0), d_v, U);
    s.transpose(K, U, dS, U, st, K);
    s.gemm_nn(c, K, U, T(1), v, U, st, K, T(0), d_k, K);
    s.scale_rows(c, K, last, d_k, K, d_k, K);
    s.row_dots(c, K, k, K, d_k, K, gates.to_end);
    T end = across;
    for (Size i = 0; i < c; ++i) {
      d_in[i] = i + 1 < c ? gates.to_end[i] : T(0), own[i] = i + 1 < c ? T(0) : gates.to_end[i];
      end += d_in[i];
    }
    d_m[c] -= end;
    std::fill_n(gates.from_start, c, T(0));
    if (asked) {
      answers(p, c);
      answers_back(d, row, begin, c, head);
      s.trmm_tn(c, U, T(1), P, C, d_o, U, T(1), d_v, U);
      s.transpose(c, U, v, U, vt, C);
      s.gemm_lower(c, U, T(1), d_o, U, vt, C, X, C);
      for (Size i = 0; i < c; ++i) {
        s.mul(i + 1, P + i * C, X + i * C, P + i * C);
        s.mul(i + 1, W + i * C, X + i * C, X + i * C);
        own[i] += P[i * C + i];
        for (Size j = 0; j < i; ++j) d_m[i + 1] -= P[i * C + j], d_in[j] += P[i * C + j];
      }
      s.trmm_nn(c, K, T(1), X, C, k, K, T(0), d_q, K);
      s.trmm_tn(c, K, T(1), X, C, q, K, T(1), d_k, K);
      s.transpose(K, U, S, U, st, K);
      s.gemm_nn(c, K, U, T(1), d_o, U, st, K, T(0), scaled, K);
      s.scale_rows(c, K, e, scaled, K, scaled, K);
      s.row_dots(c, K, q, K, scaled, K, gates.from_start);
      for (Size i = 0; i < c; ++i) d_m[0] += gates.from_start[i], d_m[i + 1] -= gates.from_start[i];
      s.axpy(c * K, T(1), scaled, d_q);
    } else {
      for (Size i = 0; i < c; ++i) std::fill_n(P + i * C, i + 1, T(0));
    }
    gates.gradient(s, c, P, C, static_cast<double>(across), [&](Size i, T sum) { d_f[i] = sum; });
    maxima_back(c);

    const int shared = head / (p.linear.heads / p.linear.key_heads);
    if (asked && out.d_q) add_rows(s, p.linear.scale, d_q, row, begin, c, shared, K, out.d_q);
    if (out.d_k) add_rows(s, p.key_scale, d_k, row, begin, c, shared, K, out.d_k);
    for (Size i = 0; i < c; ++i) {
      if (out.d_v) add_rows(s, T(1), d_v + i * U, row, begin + i, 1, head, V, out.d_v);
      if (out.d_g) out.d_g(row, begin + i, head) += d_f[i];
      if (d.d_input) d.d_input(row, begin + i, head) += d_in[i];
    }
    s.scale(K * U, e[c - 1], dS, dS);
    if (asked) {
      s.scale_rows(c, K, e, q, K, scaled, K);
      s.gemm_tn(K, U, c, T(1), scaled, K, d_o, U, T(1), dS, U);
    }
    scatter(dS, d_state[0], d_state[1]);
    *d_state[2] = d_m[0];
  }

 private:
  // One token in place: the state is not copied.
  void token(const StabilisedProblem<T>& p, Size row, Size t, int head, const State<T>& state, bool outputs) {
    load(p, row, t, 1, head, outputs, *state[2]);
    s.scale(K, W[0], k, scaled);
    s.rank_one(K, V, e[0], scaled, v, state[0], V);
    s.scale(K, e[0], state[1], state[1]);
    s.axpy(K, T(1), scaled, state[1]);
    *state[2] = m[1];
    if (!outputs) return;
    const T divisor = std::max(std::abs(s.dot(K, q, state[1])), std::exp(-m[1])) + p.eps;
    if (p.denom) p.denom(row, t, head) = divisor;
    if (!p.linear.o) return;
    s.vec_mat(K, V, q, state[0], V, o);
    s.scale(V, 1 / divisor, o, o);
    store(p, row, t, 1, head);
  }

  void load(const StabilisedProblem<T>& p, Size row, Size begin, Size c, int head, bool queries, T start) {
    const LinearProblem<T>& a = p.linear;
    const int shared = head / (a.heads / a.key_heads);
    if (queries) pack(s, a.q, row, begin, c, shared, K, a.scale, q);
    pack(s, a.k, row, begin, c, shared, K, p.key_scale, k);
    s.transpose(c, K, k, K, kt, C);
    m[0] = start;
    T sum = 0;
    for (Size i = 0; i < c; ++i) {
      pack(s, a.v, row, begin + i, 1, head, V, T(1), v + i * U);
      v[i * U + V] = 1;
      f[i] = a.g ? a.g(row, begin + i, head) : T(0), in[i] = p.input(row, begin + i, head);
      m[i + 1] = std::max(f[i] + m[i], in[i]);
      sum += f[i];
      e[i] = sum + start - m[i + 1];
      // Exponents are sums of gates, not differences of sums; the one of m_i - the maximum of such sums - comes last.
      for (Size j = 0; j < i; ++j) P[i * C + j] = P[(i - 1) * C + j] + f[i];
      P[i * C + i] = 0;
      for (Size j = 0; j <= i; ++j) W[i * C + j] = std::min(P[i * C + j] + in[j] - m[i + 1], T(0));
      s.exp(i + 1, W + i * C, W + i * C);
    }
    for (Size i = 0; i < c; ++i) e[i] = std::min(e[i], T(0));
    s.exp(c, e, e);
  }

  void gather(const T* matrix, const T* column, T* both) const {
    for (Size i = 0; i < K; ++i) {
      std::copy_n(matrix + i * V, V, both + i * U);
      both[i * U + V] = column[i];
    }
  }
  void scatter(const T* both, T* matrix, T* column) const {
    for (Size i = 0; i < K; ++i) {
      std::copy_n(both + i * U, V, matrix + i * V);
      column[i] = both[i * U + V];
    }
  }

  // P = tril(Q K~' * W), o = [C' q, n.q] (not yet divided), denom.
  void answers(const StabilisedProblem<T>& p, Size c) {
    s.gemm_lower(c, K, T(1), q, K, kt, C, P, C);
    for (Size i = 0; i < c; ++i)
      for (Size j = 0; j <= i; ++j) P[i * C + j] *= W[i * C + j];
    s.scale_rows(c, K, e, q, K, scaled, K);
    s.gemm_nn(c, U, K, T(1), scaled, K, S, U, T(0), o, U);
    s.trmm_nn(c, U, T(1), P, C, v, U, T(1), o, U);
    for (Size i = 0; i < c; ++i) denom[i] = std::max(std::abs(o[i * U + V]), std::exp(-m[i + 1])) + p.eps;
  }

  void answers_back(const StabilisedGradient<T>& d, Size row, Size begin, Size c, int head) {
    for (Size i = 0; i < c; ++i) {
      T* const to = d_o + i * U;
      T d_denom = d.d_denom ? d.d_denom(row, begin + i, head) : T(0);
      if (d.linear.d_o) {
        pack(s, d.linear.d_o, row, begin + i, 1, head, V, 1 / denom[i], to);
        d_denom -= s.dot(V, to, o + i * U) / denom[i];
      } else {
        std::fill_n(to, V, T(0));
      }
      const T read = o[i * U + V], floor = std::exp(-m[i + 1]);
      const T share = std::abs(read) > floor ? T(1) : std::abs(read) == floor ? T(0.5) : T(0);
      to[V] = share * (read < 0 ? -d_denom : d_denom);
      // e^{-m} beyond the largest number: o is 0 and so is its gradient.
      if (share < 1 && std::isfinite(floor)) d_m[i + 1] -= (1 - share) * floor * d_denom;
    }
  }

  // d_f and d_in become the gradients of the gates, d_m[0] that of m_0. A token's own pair, e^{i - m}, counts where m is
  // not i.
  void maxima_back(Size c) {
    for (Size i = c; i-- > 0;) {
      const T old = f[i] + m[i], share = old > in[i] ? T(1) : old == in[i] ? T(0.5) : T(0);
      const T to_old = share * (d_m[i + 1] - own[i]);
      d_f[i] += to_old;
      d_in[i] += (1 - share) * d_m[i + 1] + share * own[i];
      d_m[i] += to_old;
    }
  }

  void store(const StabilisedProblem<T>& p, Size row, Size begin, Size c, int head) const {
    for (Size i = 0; i < c; ++i) unpack(o + i * U, row, begin + i, 1, head, V, p.linear.o);
  }

  const Simd<T>& s;
  Size K, V, U, C;
  T *q, *k, *scaled, *kt, *v, *o, *S, *W, *P, *f, *in, *e, *denom, *m;
  T *d_q = nullptr, *d_k = nullptr, *d_o = nullptr, *d_v = nullptr, *dS = nullptr, *st = nullptr, *vt = nullptr;
  T *d_m = nullptr, *d_f = nullptr, *d_in = nullptr, *own = nullptr, *X = nullptr;
  GatePairs<T> gates;
};

template <class T>
struct Family : LinearState<T> {
  static constexpr Tuned tuned{"stabilised"};
  static constexpr bool keeps_borders = false, interleaves = false;
  using Problem = StabilisedProblem<T>;
  using Gradient = StabilisedGradient<T>;
  using Chunk = stabilised::Chunk<T>;
  using Recurrent = Absent;
  using Map = Absent;
  static constexpr std::size_t parts = 3;
  static std::array<Size, 3> sizes(const Shape& x) { return {Size{x.key_dim} * x.value_dim, x.key_dim, 1}; }
  static State<T> state(const Problem& p) { return {p.linear.state, p.normaliser, p.maximum}; }
  static Parts<const T, 3> d_final(const Gradient& d) {
    return {d.linear.d_final, d.d_final_normaliser, d.d_final_maximum};
  }
  static State<T> d_initial(const Gradient& d) {
    return {d.linear.d_initial, d.d_initial_normaliser, d.d_initial_maximum};
  }
  static bool has_outputs(const Problem& p) { return p.linear.o || p.denom; }
  static bool has_d_outputs(const Gradient& d) { return d.linear.d_o || d.d_denom; }
};

template <class T>
Status check_own(const StabilisedProblem<T>& p) {
  if (p.linear.beta) return Status::not_supported;
  return longest_of(p.linear.sequences) > 0 && !p.input ? Status::missing_input : Status::ok;
}

}  // namespace

template <class T>
std::size_t workspace_bytes(int K, int V, std::ptrdiff_t longest, Form form, int chunk, bool backward) noexcept {
  return run_bytes<Family<T>>({K, V}, longest, form, chunk, backward);
}

template <class T>
Status forward(const StabilisedProblem<T>& p, Form form, int chunk, const Simd<T>& s, Workspace work) noexcept {
  if (const Status status = check_own(p); status != Status::ok) return status;
  return run_forward<Family<T>>(p, form, chunk, s, work);
}

template <class T>
Status backward(const StabilisedProblem<T>& p, const StabilisedGradient<T>& d, Form form, int chunk, const Simd<T>& s,
                Workspace work) noexcept {
  if (const Status status = check_own(p); status != Status::ok) return status;
  return run_backward<Family<T>>(p, d, form, chunk, s, work);
}

#define TTR_INSTANTIATE(T)                                                                                       \
  template std::size_t workspace_bytes<T>(int, int, std::ptrdiff_t, Form, int, bool) noexcept;                   \
  template Status forward(const StabilisedProblem<T>&, Form, int, const Simd<T>&, Workspace) noexcept;           \
  template Status backward(const StabilisedProblem<T>&, const StabilisedGradient<T>&, Form, int, const Simd<T>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::stabilised
