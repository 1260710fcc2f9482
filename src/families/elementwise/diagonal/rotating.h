// One token of the rotating problem (diagonal.h), forwards and backwards, and the map of a segment for its scan; and what
// it shares with the tokens of the vector problem: factors of complex gates, rows of views.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "families/common/parts.h"
#include "families/common/replay.h"
#include "families/common/scratch.h"
#include "families/common/segments.h"
#include "families/elementwise/diagonal/diagonal.h"
#include "families/elementwise/scan_simd.h"

namespace ttr::families::elementwise {

using Size = std::ptrdiff_t;

// Real and imaginary part; a real state has an imaginary part of size 0.
template <class T>
using Pair = Parts<T, 2>;
template <class T>
using ConstPair = Parts<const T, 2>;

/// Where an element of a [B, T, H, X] or [B, T, X] view's row starts.
template <class T>
T* row_of(const View<T, 4>& x, Size row, Size t, int head) {
  return x.data + row * x.stride[0] + t * x.stride[1] + head * x.stride[2];
}
template <class T>
T* row_of(const View<T, 3>& x, Size row, Size t) {
  return x.data + row * x.stride[0] + t * x.stride[1];
}

/// a = e^{g + i theta} for n channels from strided rows; theta = null: real.
template <class T>
void factors(const Simd<T>& s, const ScanSimd<T>& e, Size n, const T* g, Size g_stride, const T* theta,
             Size theta_stride, T* a_re, T* a_im) {
  if (g) s.exp(n, contiguous(g, g_stride, n, a_re), a_re);
  else std::fill_n(a_re, n, T(1));
  if (theta) e.polar(n, contiguous(theta, theta_stride, n, a_im), a_re, a_im);
  else if (a_im) std::fill_n(a_im, n, T(0));
}

template <class T>
class RotatingCell {
 public:
  using Problem = RotatingProblem<T>;
  using Gradient = RotatingGradient<T>;

  RotatingCell(const Simd<T>& simd, const ScanSimd<T>& scan, const Problem& problem, bool backward, Arena& arena)
      : s(simd), e(scan), p(problem), K(p.key_dim), V(p.value_dim) {
    gates_re = arena.take<T>(block * K), gates_im = arena.take<T>(block * K);
    q = arena.take<T>(K), k = arena.take<T>(K), v = arena.take<T>(V), o = arena.take<T>(V);
    turned = arena.take<T>(2 * block * K), rows = arena.take<T>(block * std::max(K, V));
    if (!backward) return;
    d_q = arena.take<T>(K), d_k = arena.take<T>(K), d_g = arena.take<T>(K), d_theta = arena.take<T>(K);
    d_v = arena.take<T>(V);
  }
  static std::array<Size, 2> sizes(const Problem& p) {
    return {Size{p.key_dim} * p.value_dim, Size{p.key_dim} * p.value_dim};
  }
  static int heads(const Problem& p) { return p.heads; }
  static Size least(const Problem& p) {
    return least_segment(Size{p.key_dim} * (p.chosen_by ? p.chosen_by : p.value_dim));
  }
  static Size width_of_gates(const Problem& p) { return p.key_dim; }
  static Size factors_of(const Problem& p) { return 2 * Size{p.key_dim}; }
  static Status check(const Problem& p, Size longest, bool queries) {
    if (p.key_dim < 1 || p.value_dim < 1 || p.heads < 1 || p.key_heads < 1 || p.heads % p.key_heads != 0)
      return Status::bad_shape;
    if (!p.sequences.empty() && !p.state_im) return Status::missing_input;
    if (longest > 0 && (!p.k || !p.v || (queries && !p.q))) return Status::missing_input;
    return Status::ok;
  }
  /// The tokens that follow are of this sequence and head.
  void begin(int head, const Sequence& n) { tokens = n, of_head = head, made_from = made_to = 0; }

  void step(Size row, Size t, int head, const Pair<T>& state, bool outputs, bool = false) {
    const bool answers = outputs && p.o;
    const Row r = load(row, t, head, answers);
    e.rotate(K, V, r.a_re, r.a_im, r.k, r.v, r.q, state[0], state[1], o);
    if (!answers) return;
    T* const to = row_of(p.o, row, t, head);
    if (p.o.stride[3] == 1) return s.scale(V, p.scale, o, to);
    for (Size i = 0; i < V; ++i) to[i * p.o.stride[3]] = p.scale * o[i];
  }

  // The map of a segment, S -> diag(A) S + B: A [2, K]. What a token writes is turned by all behind it, so that B is a
  // product of matrices, a block of tokens at a time from the last to the first:
  //   B = sum_t (k_t a_{t+1} .. a_end) v_t'
  static void identity(const Problem& p, T* A) {
    std::fill_n(A, p.key_dim, T(1)), std::fill_n(A + p.key_dim, p.key_dim, T(0));
  }
  void map_segment(const Sequence& n, int head, T* A, const Pair<T>& B) {
    for (Size end = n.end; end > n.begin; end = made_from) {
      make_gates(std::max(end - block, n.begin), end);
      turn_block(p.k, e.products_before, A);
      add_block(p.v, T(1), head, B);
    }
  }
  // Of gradients, E <- conj(a)(E + q do'):   E = sum_t (q_t conj(a_begin .. a_t)) do_t'
  void map_segment_back(const Gradient& d, const Sequence& n, int head, T* A, const Pair<T>& B) {
    const bool answers = static_cast<bool>(d.d_o);
    for (Size begin = n.begin; begin < n.end; begin = made_to) {
      make_gates(begin, std::min(begin + block, n.end));
      turn_block(answers ? p.q : p.k, e.products_after, A);
      if (answers) add_block(d.d_o, p.scale, head, B);
    }
  }
  void compose(const T* first, T* A) { e.turn(K, first, first + K, A, A + K); }
  void add_mapped(const T* A, const Pair<const T>& S, const Pair<T>& out) {
    for (Size n = 0; n < K; ++n) {
      std::copy_n(S[0] + n * V, V, v), std::copy_n(S[1] + n * V, V, o);
      e.turn_all(V, A[n], A[K + n], v, o);
      s.axpy(V, T(1), v, out[0] + n * V), s.axpy(V, T(1), o, out[1] + n * V);
    }
  }

  void back(const Gradient& d, Size row, Size t, int head, const ConstPair<T>& old, const ConstPair<T>& now,
            const Pair<T>& d_state) {
    const bool answers = static_cast<bool>(d.d_o);
    const Row r = load(row, t, head, answers);
    const int shared = key_head(head);
    if (answers) {
      const T* const g = contiguous(row_of(d.d_o, row, t, head), d.d_o.stride[3], V, o);
      s.mat_vec(K, V, now[0], V, g, d_q);
      for (Size n = 0; n < K; ++n) s.axpy(V, p.scale * r.q[n], g, d_state[0] + n * V);
      if (d.d_q) add_strided(K, p.scale, d_q, row_of(d.d_q, row, t, shared), d.d_q.stride[3]);
    }
    s.mat_vec(K, V, d_state[0], V, r.v, d_k);
    s.vec_mat(K, V, r.k, d_state[0], V, d_v);
    for (Size n = 0; n < K; ++n) {
      T *const re = d_state[0] + n * V, *const im = d_state[1] + n * V;
      const T *const old_re = old[0] + n * V, *const old_im = old[1] + n * V;
      e.turn_all(V, r.a_re[n], -r.a_im[n], re, im);  // conj(a) dS
      d_g[n] = s.dot(V, old_re, re) + s.dot(V, old_im, im);
      d_theta[n] = s.dot(V, old_re, im) - s.dot(V, old_im, re);
    }
    if (d.d_k) add_strided(K, T(1), d_k, row_of(d.d_k, row, t, shared), d.d_k.stride[3]);
    if (d.d_v) add_strided(V, T(1), d_v, row_of(d.d_v, row, t, head), d.d_v.stride[3]);
    if (d.d_g) add_strided(K, T(1), d_g, row_of(d.d_g, row, t, head), d.d_g.stride[3]);
    if (d.d_theta) add_strided(K, T(1), d_theta, row_of(d.d_theta, row, t, head), d.d_theta.stride[3]);
  }

 private:
  struct Row {
    const T *a_re, *a_im, *q, *k, *v;
  };
  // Factors are made for a block of tokens at a time: exponentials and angles of one token are few, and wait for each other.
  static constexpr Size block = 32;
  int key_head(int head) const { return head / (p.heads / p.key_heads); }
  // The factors of tokens `from` to `to` of the sequence.
  void make_gates(Size from, Size to) {
    const Size n = (to - from) * K;
    made_from = from, made_to = to;
    const auto packed = [&](const View<const T, 4>& x, T* out) {
      pack(s, x, tokens.row, from, to - from, of_head, p.key_dim, T(1), out);
    };
    if (p.g) packed(p.g, gates_re), s.exp(n, gates_re, gates_re);
    else std::fill_n(gates_re, n, T(1));
    if (p.theta) packed(p.theta, gates_im), e.polar(n, gates_im, gates_re, gates_im);
    else std::fill_n(gates_im, n, T(0));
  }
  // The rows x of the block times the products of the factors behind them, or up to them; A goes on.
  template <class Products>
  void turn_block(const View<const T, 4>& x, Products products, T* A) {
    Size ld;
    const T* const from =
        contiguous(s, x, tokens.row, made_from, made_to - made_from, key_head(of_head), p.key_dim, rows, &ld);
    products(made_to - made_from, K, gates_re, gates_im, from, ld, A, A + K, turned, turned + block * K);
  }
  // B += alpha (the block as it was turned)' x
  void add_block(const View<const T, 4>& x, T alpha, int head, const Pair<T>& B) {
    Size ld;
    const Size count = made_to - made_from;
    const T* const from = contiguous(s, x, tokens.row, made_from, count, head, p.value_dim, rows, &ld);
    s.gemm_tn(K, V, count, alpha, turned, K, from, ld, T(1), B[0], V);
    s.gemm_tn(K, V, count, alpha, turned + block * K, K, from, ld, T(1), B[1], V);
  }
  Row load(Size row, Size t, int head, bool queries) {
    const int shared = key_head(head);
    if (t < made_from || t >= made_to) {
      if (t + 1 == made_from) make_gates(std::max(t + 1 - block, tokens.begin), t + 1);  // backwards
      else make_gates(t, std::min(t + block, tokens.end));
    }
    return {gates_re + (t - made_from) * K, gates_im + (t - made_from) * K,
            queries ? contiguous(row_of(p.q, row, t, shared), p.q.stride[3], K, q) : nullptr,
            contiguous(row_of(p.k, row, t, shared), p.k.stride[3], K, k),
            contiguous(row_of(p.v, row, t, head), p.v.stride[3], V, v)};
  }

  const Simd<T>& s;
  const ScanSimd<T>& e;
  const Problem& p;
  Size K, V;
  Sequence tokens{};
  int of_head = 0;
  Size made_from = 0, made_to = 0;  // tokens whose factors are there
  T *gates_re, *gates_im, *q, *k, *v, *o, *turned, *rows;
  T *d_q = nullptr, *d_k = nullptr, *d_g = nullptr, *d_theta = nullptr, *d_v = nullptr;
};

}  // namespace ttr::families::elementwise
