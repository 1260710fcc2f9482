// Backward by implicit differentiation, newest token first (A_t = H_t + diag(ridge), x_t from the forward pass):
//
//   u = A^{-1} F_t do ;  dq = scale u ;  dridge -= u * x ;  dF += x do' ;  dH -= u x'
//   dk = beta (dF v + (dH + dH') k) ;  dv = beta dF' k ;  dbeta = k' dF v + k' dH k
//   dg = e^g (<dF, F_{t-1}> + <dH, H_{t-1}>) ;  dF <- e^g dF ;  dH <- e^g dH
//
// States are kept every sqrt(T) tokens and recomputed inside a segment, because a step cannot be undone (e^g may be
// 0).
#include "families/solve/least_squares/least_squares.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "families/common/scratch.h"
#include "simd/denormals.h"

namespace ttr::families::least_squares {
namespace {

using Size = std::ptrdiff_t;

Size segment_of(Size time) {
  return std::max<Size>(1, static_cast<Size>(std::ceil(std::sqrt(static_cast<double>(time)))));
}

/// One head of one sequence. A state is H [K,K] followed by F [K,V].
template <class T>
class Head {
 public:
  Head(const Simd<double>& simd, int key_dim, int value_dim, Size time, bool backward, Arena& arena)
      : s(simd), K(key_dim), V(value_dim), segment(segment_of(time)) {
    k = arena.take<double>(K), kb = arena.take<double>(K), x = arena.take<double>(K), v = arena.take<double>(V);
    o = arena.take<double>(V), ridge = arena.take<double>(K), L = arena.take<double>(Size{K} * K);
    if (!backward) return;
    u = arena.take<double>(K), d_k = arena.take<double>(K), d_ridge = arena.take<double>(K);
    spare = arena.take<double>(std::max(K, V)), d_state = arena.take<double>(state_size());
    borders = arena.take<double>((time + segment - 1) / segment * state_size());
    inside = arena.take<double>((segment + 1) * state_size());
  }
  Size state_size() const { return Size{K} * K + Size{K} * V; }

  bool forward(const LeastSquaresProblem<T>& p, const Sequence& n, int head, double* H, double* F) {
    const LinearProblem<T>& a = p.linear;
    bool good = true;
    load_ridge(p, head);
    mirror(H);
    for (Size t = n.begin; t < n.end; ++t) {
      step(a, n.row, t, head, H, F);
      if (!a.o) continue;
      load(a.q, n.row, t, key_head(a, head), K, static_cast<double>(a.scale), x);
      good = factor(H) && good;
      solve(x);
      s.vec_mat(K, V, x, F, V, o);
      for (int j = 0; j < V; ++j) a.o(n.row, t, head, j) = static_cast<T>(o[j]);
    }
    return good;
  }

  bool backward(const LeastSquaresProblem<T>& p, const LeastSquaresGradient<T>& d, const Sequence& n, int head,
                Size state) {
    const LinearProblem<T>& a = p.linear;
    const Size time = n.end - n.begin, count = (time + segment - 1) / segment, hh = Size{K} * K, ff = Size{K} * V;
    bool good = true;
    load_ridge(p, head);
    std::fill_n(d_ridge, K, 0.0);
    double *const dH = d_state, *const dF = d_state + hh;
    copy_or_clear(d.d_final_h, state * hh, hh, dH);
    copy_or_clear(d.d_final_f, state * ff, ff, dF);

    double* S = inside;
    std::copy_n(p.h + state * hh, hh, S);
    std::copy_n(p.f + state * ff, ff, S + hh);
    mirror(S);
    for (Size i = 0; i < count; ++i) {
      std::copy_n(S, state_size(), borders + i * state_size());
      if (i + 1 < count)
        for (Size j = 0; j < segment; ++j) step(a, n.row, n.begin + i * segment + j, head, S, S + hh);
    }
    for (Size i = count; i-- > 0;) {
      const Size begin = n.begin + i * segment, length = std::min(segment, n.end - begin);
      std::copy_n(borders + i * state_size(), state_size(), inside);
      for (Size j = 0; j < length; ++j) {
        double* const next = inside + (j + 1) * state_size();
        std::copy_n(next - state_size(), state_size(), next);
        step(a, n.row, begin + j, head, next, next + hh);
      }
      for (Size j = length; j-- > 0;) {
        const double* const old = inside + j * state_size();
        good = step_back(p, d, n.row, begin + j, head, old, old + state_size(), dH, dF) && good;
      }
    }
    if (d.d_ridge)
      for (int i = 0; i < K; ++i) d.d_ridge(head, i) += static_cast<T>(d_ridge[i]);
    if (d.d_initial_h) s.axpy(hh, 1.0, dH, d.d_initial_h + state * hh);
    if (d.d_initial_f) s.axpy(ff, 1.0, dF, d.d_initial_f + state * ff);
    return good;
  }

 private:
  static int key_head(const LinearProblem<T>& a, int head) { return head / (a.heads / a.key_heads); }

  static void load(const View<const T, 4>& from, Size row, Size t, int head, int dim, double scale, double* to) {
    const T* const start = &from(row, t, head, 0);
    for (int j = 0; j < dim; ++j) to[j] = scale * static_cast<double>(start[j * from.stride[3]]);
  }
  static void add(const double* from, double scale, int dim, T* to, Size stride) {
    for (int j = 0; j < dim; ++j) to[j * stride] += static_cast<T>(scale * from[j]);
  }
  static void copy_or_clear(const double* from, Size offset, Size size, double* to) {
    if (from) std::copy_n(from + offset, size, to);
    else std::fill_n(to, size, 0.0);
  }
  void load_ridge(const LeastSquaresProblem<T>& p, int head) {
    for (int i = 0; i < K; ++i) ridge[i] = static_cast<double>(p.ridge(head, i));
  }
  void mirror(double* H) const {
    for (int i = 0; i < K; ++i)
      for (int j = 0; j < i; ++j) H[j * K + i] = H[i * K + j];
  }

  // Moves H and F by one token; leaves k and v loaded.
  void step(const LinearProblem<T>& a, Size row, Size t, int head, double* H, double* F) {
    const double decay = a.g ? std::exp(static_cast<double>(a.g(row, t, head))) : 1.0;
    const double beta = a.beta ? static_cast<double>(a.beta(row, t, head)) : 1.0;
    load(a.k, row, t, key_head(a, head), K, 1.0, k);
    load(a.v, row, t, head, V, 1.0, v);
    s.scale(K, beta, k, kb);
    s.rank_one(K, V, decay, kb, v, F, V);
    // Row by row up to the diagonal, then mirrored: k_i (beta k_j) and k_j (beta k_i) round differently.
    for (int i = 0; i < K; ++i) s.rank_one(1, i + 1, decay, kb + i, k, H + i * K, K);
    mirror(H);
  }

  // L L' = H + diag(ridge), L in the lower triangle; false and L = NaN if it is not positive definite.
  bool factor(const double* H) {
    for (int i = 0; i < K; ++i) {
      double* const row = L + Size{i} * K;
      for (int j = 0; j < i; ++j) row[j] = (H[Size{i} * K + j] - s.dot(j, row, L + Size{j} * K)) / L[Size{j} * K + j];
      const double pivot = H[Size{i} * K + i] + ridge[i] - s.dot(i, row, row);
      if (!(pivot > 0) || !std::isfinite(pivot)) {
        std::fill_n(L, Size{K} * K, std::numeric_limits<double>::quiet_NaN());
        return false;
      }
      row[i] = std::sqrt(pivot);
    }
    return true;
  }
  // b <- (L L')^{-1} b
  void solve(double* b) const {
    for (int i = 0; i < K; ++i) b[i] = (b[i] - s.dot(i, L + Size{i} * K, b)) / L[Size{i} * K + i];
    for (int i = K; i-- > 0;) {
      b[i] /= L[Size{i} * K + i];
      s.axpy(i, -b[i], L + Size{i} * K, b);
    }
  }

  bool step_back(const LeastSquaresProblem<T>& p, const LeastSquaresGradient<T>& d, Size row, Size t, int head,
                 const double* old, const double* now, double* dH, double* dF) {
    const LinearProblem<T>& a = p.linear;
    const LinearGradient<T>& to = d.linear;
    const Size hh = Size{K} * K, ff = Size{K} * V;
    const int shared = key_head(a, head);
    const double decay = a.g ? std::exp(static_cast<double>(a.g(row, t, head))) : 1.0;
    const double beta = a.beta ? static_cast<double>(a.beta(row, t, head)) : 1.0;
    bool good = true;
    load(a.k, row, t, shared, K, 1.0, k);
    load(a.v, row, t, head, V, 1.0, v);
    if (to.d_o) {
      load(a.q, row, t, shared, K, static_cast<double>(a.scale), x);
      load(to.d_o, row, t, head, V, 1.0, o);
      good = factor(now);
      solve(x);
      s.mat_vec(K, V, now + hh, V, o, u);
      solve(u);
      if (to.d_q) add(u, static_cast<double>(a.scale), K, &to.d_q(row, t, shared, 0), to.d_q.stride[3]);
      if (d.d_ridge)
        for (int i = 0; i < K; ++i) d_ridge[i] -= u[i] * x[i];
      s.rank_one(K, V, 1.0, x, o, dF, V);
      s.scale(K, -1.0, u, u);
      s.rank_one(K, K, 1.0, u, x, dH, K);
    }
    s.mat_vec(K, V, dF, V, v, d_k);
    const double from_f = s.dot(K, k, d_k);
    s.mat_vec(K, K, dH, K, k, spare);
    const double from_h = s.dot(K, k, spare);
    if (to.d_beta) to.d_beta(row, t, head) += static_cast<T>(from_f + from_h);
    s.axpy(K, 1.0, spare, d_k);
    s.vec_mat(K, K, k, dH, K, spare);
    s.axpy(K, 1.0, spare, d_k);
    if (to.d_k) add(d_k, beta, K, &to.d_k(row, t, shared, 0), to.d_k.stride[3]);
    if (to.d_v) {
      s.vec_mat(K, V, k, dF, V, spare);
      add(spare, beta, V, &to.d_v(row, t, head, 0), to.d_v.stride[3]);
    }
    if (to.d_g) to.d_g(row, t, head) += static_cast<T>(decay * (s.dot(ff, dF, old + hh) + s.dot(hh, dH, old)));
    if (a.g) s.scale(state_size(), decay, d_state, d_state);
    return good;
  }

  const Simd<double>& s;
  int K, V;
  Size segment;
  double *k, *kb, *x, *v, *o, *ridge, *L;
  double *u = nullptr, *d_k = nullptr, *d_ridge = nullptr, *spare = nullptr, *d_state = nullptr, *borders = nullptr,
         *inside = nullptr;
};

template <class T>
Status check(const LeastSquaresProblem<T>& p, bool queries, Form form, Workspace work, bool backward, Size* longest) {
  const LinearProblem<T>& a = p.linear;
  if (form != Form::best && form != Form::step && form != Form::recurrent) return Status::not_supported;
  if (a.key_dim < 1 || a.value_dim < 1 || a.heads < 1 || a.key_heads < 1 || a.heads % a.key_heads != 0)
    return Status::bad_shape;
  *longest = 0;
  for (const Sequence& n : a.sequences) {
    if (n.end < n.begin) return Status::bad_shape;
    *longest = std::max(*longest, n.end - n.begin);
  }
  if (!p.ridge || (!a.sequences.empty() && (!p.h || !p.f))) return Status::missing_input;
  if (*longest > 0 && (!a.k || !a.v || (queries && !a.q))) return Status::missing_input;
  if (!work.data || work.bytes < workspace_bytes<T>(a.key_dim, a.value_dim, *longest, backward))
    return Status::small_workspace;
  for (int h = 0; h < a.heads; ++h)
    for (int i = 0; i < a.key_dim; ++i)
      if (!(p.ridge(h, i) > T(0))) return Status::out_of_domain;
  return Status::ok;
}

const Simd<double>& table(const Simd<double>* given) {
  if (given) return *given;
  static const Simd<double>& best = simd<double>("");
  return best;
}

}  // namespace

template <class T>
std::size_t workspace_bytes(int K, int V, std::ptrdiff_t longest, bool backward) noexcept {
  static constexpr Simd<double> none{};
  Arena arena;
  Head<T> head(none, K, V, longest, backward, arena);
  return arena.bytes();
}

template <class T>
Status forward(const LeastSquaresProblem<T>& p, Form form, Workspace work, const Simd<double>* given) noexcept {
  const LinearProblem<T>& a = p.linear;
  Size longest;
  if (const Status s = check(p, static_cast<bool>(a.o), form, work, false, &longest); s != Status::ok) return s;
  const FlushDenormals flush;
  Arena arena(work);
  Head<T> run(table(given), a.key_dim, a.value_dim, longest, false, arena);
  const Size hh = Size{a.key_dim} * a.key_dim, ff = Size{a.key_dim} * a.value_dim;
  bool good = true;
  Size state = 0;
  for (const Sequence& n : a.sequences)
    for (int h = 0; h < a.heads; ++h, ++state)
      good = run.forward(p, n, h, p.h + state * hh, p.f + state * ff) && good;
  return good ? Status::ok : Status::out_of_domain;
}

template <class T>
Status backward(const LeastSquaresProblem<T>& p, const LeastSquaresGradient<T>& d, Form form, Workspace work,
                const Simd<double>* given) noexcept {
  const LinearProblem<T>& a = p.linear;
  Size longest;
  if (const Status s = check(p, static_cast<bool>(d.linear.d_o), form, work, true, &longest); s != Status::ok)
    return s;
  const FlushDenormals flush;
  Arena arena(work);
  Head<T> run(table(given), a.key_dim, a.value_dim, longest, true, arena);
  bool good = true;
  Size state = 0;
  for (const Sequence& n : a.sequences)
    for (int h = 0; h < a.heads; ++h, ++state) good = run.backward(p, d, n, h, state) && good;
  return good ? Status::ok : Status::out_of_domain;
}

template std::size_t workspace_bytes<float>(int, int, std::ptrdiff_t, bool) noexcept;
template std::size_t workspace_bytes<double>(int, int, std::ptrdiff_t, bool) noexcept;
template Status forward(const LeastSquaresProblem<float>&, Form, Workspace, const Simd<double>*) noexcept;
template Status forward(const LeastSquaresProblem<double>&, Form, Workspace, const Simd<double>*) noexcept;
template Status backward(const LeastSquaresProblem<float>&, const LeastSquaresGradient<float>&, Form, Workspace,
                         const Simd<double>*) noexcept;
template Status backward(const LeastSquaresProblem<double>&, const LeastSquaresGradient<double>&, Form, Workspace,
                         const Simd<double>*) noexcept;

}  // namespace ttr::families::least_squares
