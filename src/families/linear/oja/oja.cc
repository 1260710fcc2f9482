// The step, S once for the read and once for the write and the answer:
//
//   w = beta (k - S (e^gv * v)) ;  S <- S diag(e^gv) + w v' ;  o = scale S' q
//
// Backward, newest token first, with S_{t-1} and S_t from a segment recomputed between stored states (q scaled):
//
//   dS += q do' ;  dq = S_t do ;  dw = dS v ;  dbeta = dw . (k - S~ v) ;  dk = beta dw ;  dv = dS' w - S~' dk
//   dS -= dk v' ;  dgv = colsum(S~ * dS) ;  dS <- dS diag(e^gv)
#include "families/linear/oja/oja.h"

#include <algorithm>
#include <cstddef>

#include "families/common/run.h"
#include "families/linear/oja/chunk.h"
#include "families/linear/state_simd.h"

namespace ttr::families::oja {
namespace {

using Size = std::ptrdiff_t;

template <class T>
class Recurrent {
 public:
  Recurrent(const Simd<T>& simd, int key_dim, int value_dim, Size longest, bool backward, Arena& arena)
      : s(simd),
        through(state_simd(simd)),
        K(key_dim),
        V(value_dim),
        most(std::min(block, std::max<Size>(longest, 1))) {
    q = arena.take<T>(most * K), k = arena.take<T>(most * K), v = arena.take<T>(most * V);
    o = arena.take<T>(most * V), gate = arena.take<T>(most * V);
    w = arena.take<T>(K), ones = arena.take<T>(K), faded = arena.take<T>(V);
    if (!backward) return;
    r = arena.take<T>(K), d_q = arena.take<T>(K), d_k = arena.take<T>(K), d_v = arena.take<T>(V);
    decayed = arena.take<T>(Size{K} * V);
  }

  /// Tokens begin .. end-1: S [K,V] moves on, their outputs are written if `output`.
  void forward(const OjaProblem<T>& p, Size row, Size begin, Size end, int head, T* S, bool output) {
    const int key_head = head / (p.linear.heads / p.linear.key_heads);
    std::fill_n(ones, K, T(1));
    for (Size n; begin < end; begin += n) {
      n = std::min(most, end - begin);
      load_gates(p, row, begin, n, head);
      Size ldk, ldv, ldq = 0;
      const T* const keys = contiguous(s, p.linear.k, row, begin, n, key_head, K, k, &ldk);
      const T* const values = contiguous(s, p.linear.v, row, begin, n, head, V, v, &ldv);
      const T* const queries = output ? contiguous(s, p.linear.q, row, begin, n, key_head, K, q, &ldq) : nullptr;
      const bool direct = output && p.linear.o.stride[3] == 1;
      typename StateSimd<T>::Tokens one{.n = 1, .K = K, .V = V, .rows = ones, .ld_rows = 0};
      one.k = w, one.scale = p.linear.scale;
      for (Size i = 0; i < n; ++i) {
        one.v = values + i * ldv;
        const T* reader = one.v;
        if (p.gv) one.columns = gate + i * V, s.mul(V, one.columns, one.v, faded), reader = faded;
        s.mat_vec(K, V, S, V, reader, w);
        const T beta = step(p, row, begin + i, head);
        for (Size j = 0; j < K; ++j) w[j] = beta * (keys[i * ldk + j] - w[j]);
        if (output) one.q = queries + i * ldq;
        through.gated_sweep(one, S, V, direct ? &p.linear.o(row, begin + i, head, 0) : o + i * V, V, nullptr);
      }
      if (output && !direct) unpack(o, row, begin, n, head, V, p.linear.o);
    }
  }

  /// One token backwards: S_old = S_{t-1}, S_new = S_t, dS [K,V] from the gradient of S_t to that of S_{t-1}.
  void backward(const OjaProblem<T>& p, const OjaGradient<T>& d, Size row, Size t, int head, const T* S_old,
                const T* S_new, T* dS) {
    const int key_head = head / (p.linear.heads / p.linear.key_heads);
    Size ld;
    load_gates(p, row, t, 1, head);
    const T* const key = contiguous(s, p.linear.k, row, t, 1, key_head, K, k, &ld);
    const T* const value = contiguous(s, p.linear.v, row, t, 1, head, V, v, &ld);
    const T* kept = S_old;
    if (p.gv) s.scale_columns(K, V, gate, S_old, V, decayed, V), kept = decayed;
    if (d.linear.d_o) {
      pack(s, p.linear.q, row, t, 1, key_head, K, p.linear.scale, q);
      const T* const asked = contiguous(s, d.linear.d_o, row, t, 1, head, V, o, &ld);
      s.rank_one(K, V, T(1), q, asked, dS, V);
      if (d.linear.d_q) {
        s.mat_vec(K, V, S_new, V, asked, d_q);
        add_rows(s, p.linear.scale, d_q, row, t, 1, key_head, K, d.linear.d_q);
      }
    }
    const T beta = step(p, row, t, head);
    s.mat_vec(K, V, kept, V, value, r);
    for (Size j = 0; j < K; ++j) r[j] = key[j] - r[j];
    s.mat_vec(K, V, dS, V, value, d_k);
    if (d.linear.d_beta) d.linear.d_beta(row, t, head) += s.dot(K, d_k, r);
    s.scale(K, beta, r, w), s.scale(K, beta, d_k, d_k);
    if (d.linear.d_k) add_rows(s, T(1), d_k, row, t, 1, key_head, K, d.linear.d_k);
    if (d.linear.d_v) {
      s.vec_mat(K, V, w, dS, V, d_v);
      s.vec_mat(K, V, d_k, kept, V, faded);
      s.axpy(V, T(-1), faded, d_v);
      add_rows(s, T(1), d_v, row, t, 1, head, V, d.linear.d_v);
    }
    s.scale(K, T(-1), d_k, d_k);
    s.rank_one(K, V, T(1), d_k, value, dS, V);
    if (d.d_gv) {
      std::fill_n(d_v, V, T(0));
      for (Size i = 0; i < K; ++i) s.mul_add(V, kept + i * V, dS + i * V, d_v);
      add_rows(s, T(1), d_v, row, t, 1, head, V, d.d_gv);
    }
    if (p.gv) s.scale_columns(K, V, gate, dS, V, dS, V);
  }

 private:
  static constexpr Size block = 64;  // tokens whose gates are exponentiated at once

  void load_gates(const OjaProblem<T>& p, Size row, Size begin, Size n, int head) {
    if (p.gv) pack(s, p.gv, row, begin, n, head, V, T(1), gate), s.exp(n * V, gate, gate);
  }
  static T step(const OjaProblem<T>& p, Size row, Size t, int head) {
    return p.linear.beta ? p.linear.beta(row, t, head) : T(1);
  }

  const Simd<T>& s;
  const StateSimd<T>& through;
  int K, V;
  Size most;
  T *q, *k, *v, *o, *gate, *w, *ones, *faded;
  T *r = nullptr, *d_q = nullptr, *d_k = nullptr, *d_v = nullptr, *decayed = nullptr;
};

/// S_out = S_in A + B for a segment (scan.h): A [V,V] is the chunk form on the identity, without keys to write.
template <class T>
class RightMap {
 public:
  static constexpr bool large = true;
  static Size least(const Shape& x) { return 2 * x.value_dim; }
  static Size size(const Shape& x) { return Size{x.value_dim} * x.value_dim; }
  RightMap(const Simd<T>& simd, const Shape& x, Schedule plan, Arena& arena)
      : s(simd),
        K(x.key_dim),
        V(x.value_dim),
        length(plan.segment),
        form(simd, x.value_dim, x.value_dim, length, false, arena),
        product(arena.take<T>(V * V)) {}
  void make(OjaProblem<T> p, const Sequence& n, int head, T* A) {
    p.linear.k = {};
    std::fill_n(A, V * V, T(0));
    for (Size i = 0; i < V; ++i) A[i * V + i] = T(1);
    for (Size t = n.begin; t < n.end; t += length)
      form.forward(p, n.row, t, std::min(length, n.end - t), head, A, false);
  }
  void compose(const T* second, const T* first, T* out) {
    s.gemm_nn(V, V, V, T(1), first, V, second, V, T(0), product, V);
    std::copy_n(product, V * V, out);
  }
  void apply(const T* A, const T* S, T* out) { s.gemm_nn(K, V, V, T(1), S, V, A, V, T(1), out, V); }
  void apply_transposed(const T* A, const T* S, T* out) { s.gemm_nt(K, V, V, T(1), S, V, A, V, T(1), out, V); }

 private:
  const Simd<T>& s;
  Size K, V, length;
  OjaChunk<T> form;
  T* product;
};

template <class T>
struct Family : LinearState<T> {
  static constexpr Tuned tuned{"oja"};
  using Problem = OjaProblem<T>;
  using Gradient = OjaGradient<T>;
  using Chunk = OjaChunk<T>;
  using Recurrent = oja::Recurrent<T>;
  using Map = RightMap<T>;
};

}  // namespace

template <class T>
std::size_t workspace_bytes(int K, int V, std::ptrdiff_t longest, Form form, int chunk, bool backward,
                            int workers) noexcept {
  return run_bytes<Family<T>>({K, V}, longest, form, chunk, backward, workers);
}

template <class T>
Status forward(const OjaProblem<T>& p, Form form, int chunk, const Simd<T>& simd, Workspace work) noexcept {
  if (p.linear.g) return Status::not_supported;
  return run_forward<Family<T>>(p, form, chunk, simd, work);
}

template <class T>
Status backward(const OjaProblem<T>& p, const OjaGradient<T>& d, Form form, int chunk, const Simd<T>& simd,
                Workspace work) noexcept {
  if (p.linear.g) return Status::not_supported;
  return run_backward<Family<T>>(p, d, form, chunk, simd, work);
}

#define TTR_INSTANTIATE(T)                                                                          \
  template std::size_t workspace_bytes<T>(int, int, std::ptrdiff_t, Form, int, bool, int) noexcept; \
  template Status forward(const OjaProblem<T>&, Form, int, const Simd<T>&, Workspace) noexcept;     \
  template Status backward(const OjaProblem<T>&, const OjaGradient<T>&, Form, int, const Simd<T>&,  \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::oja
