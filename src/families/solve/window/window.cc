// A token, with i the pair that leaves:  H <- e^{g_t} (H - w_i k_i k_i') + beta_t k_t k_t' , F alike; w_i its weight.
//
// Backward, newest token first; D_H, D_F are the gradients of H_t and F_t, and every pair of the window has a slot of
// gradients that came from its leaving (and from the final ring):
//
//   u = A^{-1} F do + dvariance x ;  dq = scale (u + dvariance x) ;  dridge -= u * x ;  D_F += x do' ;  D_H -= u x'
//   pair t enters:  dk = beta (D_F v + (D_H + D_H') k) ,  dv = beta D_F' k ,  dbeta = k' D_F v + k' D_H k ,  + its
//   slot D <- e^{g_t} D ;  dg_t = <D, sums before> - w_i c ,  c = k_i' D_F v_i + k_i' D_H k_i pair i leaves:  its
//   slot = -w_i (..) as above ,  dbeta_i = -c w_i / beta_i ,  and -c w_i for every g between i and t
//
// Making the sums afresh is the identity here.
#include "families/solve/window/window.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "families/common/replay.h"
#include "families/common/scratch.h"
#include "families/common/solve.h"
#include "simd/denormals.h"

namespace ttr::families::window {
namespace {

using Size = std::ptrdiff_t;
constexpr double sunk = 1e-4;

/// One head of one sequence. Its pairs: index j >= 0 is token begin + j of the call, j < 0 lies in the ring.
template <class T>
class Head {
 public:
  Head(const Simd<double>& simd, Size key_dim, Size value_dim, Size window, Size longest, bool backward, Arena& arena)
      : s(simd),
        K(key_dim),
        V(value_dim),
        W(window),
        cholesky(simd, K, arena),
        replay({K * K, K * V, K}, backward ? longest : 0, 0, arena) {
    for (double** x : {&k, &kb, &q, &x_, &ridge}) *x = arena.take<double>(K);
    v = arena.take<double>(V), o = arena.take<double>(V);
    H = arena.take<double>(K * K), F = arena.take<double>(K * V), peak = arena.take<double>(K);
    if (!backward) return;
    for (double** x : {&u, &d_k, &spare, &d_ridge}) *x = arena.take<double>(K);
    d_v = arena.take<double>(V), d_h = arena.take<double>(K * K), d_f = arena.take<double>(K * V);
    slots = arena.take<double>(W * slot_size());
  }

  bool forward(const WindowProblem<T>& problem, Size sequence, int which) {
    attach(problem, sequence, which);
    const LinearProblem<T>& a = p->linear;
    const bool own = p->h != nullptr;
    double *const hs = own ? p->h + seq_head * K * K : H, *const fs = own ? p->f + seq_head * K * V : F,
                  *const tops = own ? p->peak + seq_head * K : peak;
    if (own) mirror(hs);
    else sum(0, hs, fs, tops);
    bool good = true;
    for (Size t = 0; t < time; ++t) {
      step(t, hs, fs, tops);
      if (!a.o && !p->variance && !p->known) continue;
      good = read(t, hs) && good;
      if (p->variance || p->known) uncertainty(t);
      if (!a.o) continue;
      s.vec_mat(K, V, x_, fs, V, o);
      for (Size j = 0; j < V; ++j) a.o(row, begin + t, head, j) = static_cast<T>(o[j]);
    }
    return good;
  }

  bool backward(const WindowProblem<T>& problem, const WindowGradient<T>& d, Size sequence, int which) {
    attach(problem, sequence, which);
    const bool own = p->h != nullptr;
    copy_or_clear(own && d.d_final_h ? d.d_final_h + seq_head * K * K : nullptr, K * K, d_h);
    copy_or_clear(own && d.d_final_f ? d.d_final_f + seq_head * K * V : nullptr, K * V, d_f);
    std::fill_n(d_ridge, K, 0.0);
    load_slots(d);
    bool good = true;
    if (own) {
      std::copy_n(p->h + seq_head * K * K, K * K, H), std::copy_n(p->f + seq_head * K * V, K * V, F);
      std::copy_n(p->peak + seq_head * K, K, peak);
      mirror(H);
    } else {
      sum(0, H, F, peak);
    }
    replay.run(
        time, {H, F, peak}, [&](Size t, const Parts<double, 3>& state) { step(t, state[0], state[1], state[2]); },
        [&](Size t, const Parts<const double, 3>& old, const Parts<const double, 3>& now) {
          good = step_back(d, t, old, now) && good;
        });
    if (!own) {  // the sums at the start are those of the ring
      for (Size j = -1; j >= -W && count + j >= 0; --j) {
        const double fade = fade_of(j, 0);
        const double c = pair_back(j, 1.0);
        add_pair(j, weight_of(j) * fade, c * fade, c * weight_of(j) * fade, 0);
      }
    }
    store_slots(d);
    if (d.d_ridge)
      for (Size i = 0; i < K; ++i) d.d_ridge(head, i) += static_cast<T>(d_ridge[i]);
    if (own && d.d_initial_h) s.axpy(K * K, 1.0, d_h, d.d_initial_h + seq_head * K * K);
    if (own && d.d_initial_f) s.axpy(K * V, 1.0, d_f, d.d_initial_f + seq_head * K * V);
    return good;
  }

 private:
  // A slot: gradients of k [K], v [V], g, beta.
  Size slot_size() const { return K + V + 2; }
  double* slot(Size j) const { return slots + slot_index(j) * slot_size(); }
  Size slot_index(Size j) const { return (count + j) % W; }

  void attach(const WindowProblem<T>& problem, Size sequence, int which) {
    p = &problem;
    const LinearProblem<T>& a = p->linear;
    const Sequence& n = a.sequences[static_cast<std::size_t>(sequence)];
    number = sequence, row = n.row, begin = n.begin, time = n.end - n.begin, head = which;
    count = static_cast<Size>(p->count[sequence]), seq_head = sequence * a.heads + head;
    key_head = head / (a.heads / a.key_heads);
    for (Size i = 0; i < K; ++i) ridge[i] = static_cast<double>(p->ridge(head, i));
  }

  void load(const View<const T, 4>& from, Size t, int which, Size dim, double scale, double* to) const {
    const T* const start = &from(row, begin + t, which, 0);
    for (Size j = 0; j < dim; ++j) to[j] = scale * static_cast<double>(start[j * from.stride[3]]);
  }
  void load_pair(Size j) const {
    const LinearProblem<T>& a = p->linear;
    if (j >= 0) {
      load(a.k, j, key_head, K, 1.0, k);
      load(a.v, j, head, V, 1.0, v);
      return;
    }
    const Size at = number * W + slot_index(j);
    std::copy_n(p->keys + (at * a.key_heads + key_head) * K, K, k);
    std::copy_n(p->values + (at * a.heads + head) * V, V, v);
  }
  double scalar(Size j, const View<const T, 3>& now, const T* ring, double otherwise) const {
    if (!now) return otherwise;
    if (j >= 0) return static_cast<double>(now(row, begin + j, head));
    return static_cast<double>(ring[(number * W + slot_index(j)) * p->linear.heads + head]);
  }
  double gate_of(Size j) const { return scalar(j, p->linear.g, p->gates, 0); }
  double weight_of(Size j) const { return scalar(j, p->linear.beta, p->weights, 1); }
  // e^{g_{j+1} + .. + g_{end-1}}
  double fade_of(Size j, Size end) const {
    double sum_of_gates = 0;
    for (Size i = j + 1; p->linear.g && i < end; ++i) sum_of_gates += gate_of(i);
    return std::exp(sum_of_gates);
  }

  void mirror(double* to) const {
    for (Size i = 0; i < K; ++i)
      for (Size j = 0; j < i; ++j) to[j * K + i] = to[i * K + j];
  }
  // hs <- decay hs + w k k' in the lower triangle, fs <- decay fs + w k v', for the pair in k and v.
  void add_sums(double decay, double w, double* hs, double* fs) const {
    s.scale(K, w, k, kb);
    s.rank_one(K, V, decay, kb, v, fs, V);
    for (Size i = 0; i < K; ++i) s.rank_one(1, i + 1, decay, kb + i, k, hs + i * K, K);
  }

  // The sums over the window before token t, from its pairs.
  void sum(Size t, double* hs, double* fs, double* tops) const {
    std::fill_n(hs, K * K, 0.0), std::fill_n(fs, K * V, 0.0);
    for (Size j = std::max(t - W, -count); j < t; ++j) {
      load_pair(j);
      add_sums(std::exp(gate_of(j)), weight_of(j), hs, fs);
    }
    mirror(hs);
    for (Size i = 0; i < K; ++i) tops[i] = hs[i * K + i];
  }

  void step(Size t, double* hs, double* fs, double* tops) const {
    const double decay = std::exp(gate_of(t));
    const Size gone = t - W;
    if (count + gone >= 0) {
      load_pair(gone);
      add_sums(1.0, -weight_of(gone) * fade_of(gone, t), hs, fs);
    }
    load_pair(t);
    add_sums(decay, weight_of(t), hs, fs);
    bool afresh = count + gone >= 0 && (count + t) % W == 0;
    for (Size i = 0; i < K; ++i) {
      const double now = hs[i * K + i];
      tops[i] = std::max(decay * tops[i], now);
      afresh = afresh || now < sunk * tops[i];
    }
    if (afresh) sum(t + 1, hs, fs, tops);
    else mirror(hs);
  }

  // q scaled, x_ = A^{-1} q; false and NaN if A is not positive definite.
  bool read(Size t, const double* hs) {
    load(p->linear.q, t, key_head, K, static_cast<double>(p->linear.scale), q);
    std::copy_n(q, K, x_);
    const bool good = cholesky.factor(hs, ridge);
    cholesky.solve(x_);
    return good;
  }
  void uncertainty(Size t) const {
    const double variance = 1 + s.dot(K, q, x_);
    if (p->variance) p->variance(row, begin + t, head) = static_cast<T>(variance);
    if (!p->known) return;
    double prior = 0;
    for (Size i = 0; i < K; ++i) prior += ridge[i] * x_[i] * x_[i];
    p->known(row, begin + t, head) = static_cast<T>(std::max(0.0, 1 - prior / variance));
  }

  // For pair j: d_k = f (D_F v + (D_H + D_H') k), d_v = f D_F' k; returns f (k' D_F v + k' D_H k).
  double pair_back(Size j, double f) const {
    load_pair(j);
    s.mat_vec(K, V, d_f, V, v, d_k);
    s.mat_vec(K, K, d_h, K, k, spare);
    const double c = f * (s.dot(K, k, d_k) + s.dot(K, k, spare));
    s.axpy(K, 1.0, spare, d_k);
    s.vec_mat(K, K, k, d_h, K, spare);
    s.axpy(K, 1.0, spare, d_k);
    s.vec_mat(K, V, k, d_f, V, d_v);
    s.scale(K, f, d_k, d_k);
    s.scale(V, f, d_v, d_v);
    return c;
  }
  // The slot of pair j += scale (d_k, d_v), of its weight += d_weight, of every gate after it and before `end` +=
  // d_gate.
  void add_pair(Size j, double scale, double d_weight, double d_gate, Size end) const {
    double* const to = slot(j);
    s.axpy(K, scale, d_k, to);
    s.axpy(V, scale, d_v, to + K);
    to[K + V + 1] += d_weight;
    for (Size i = j + 1; p->linear.g && i < end; ++i) slot(i)[K + V] += d_gate;
  }

  bool step_back(const WindowGradient<T>& d, Size t, const Parts<const double, 3>& old,
                 const Parts<const double, 3>& now) {
    const LinearProblem<T>& a = p->linear;
    const LinearGradient<T>& to = d.linear;
    bool good = true;
    if (to.d_o || d.d_variance) {
      good = read(t, now[0]);
      std::fill_n(u, K, 0.0);
      if (to.d_o) {
        load(to.d_o, t, head, V, 1.0, o);
        s.mat_vec(K, V, now[1], V, o, u);
        cholesky.solve(u);
        s.rank_one(K, V, 1.0, x_, o, d_f, V);
      }
      const double d_variance = d.d_variance ? static_cast<double>(d.d_variance(row, begin + t, head)) : 0.0;
      s.axpy(K, d_variance, x_, u);
      std::copy_n(u, K, spare);
      s.axpy(K, d_variance, x_, spare);
      if (to.d_q) add_strided_row(to.d_q, t, key_head, K, static_cast<double>(a.scale), spare);
      for (Size i = 0; i < K; ++i) d_ridge[i] -= u[i] * x_[i];
      s.scale(K, -1.0, u, u);
      s.rank_one(K, K, 1.0, u, x_, d_h, K);
    }
    const double d_beta = pair_back(t, 1.0);
    add_pair(t, weight_of(t), d_beta, 0, t);
    double* const mine = slot(t);
    if (to.d_k) add_strided_row(to.d_k, t, key_head, K, 1.0, mine);
    if (to.d_v) add_strided_row(to.d_v, t, head, V, 1.0, mine + K);
    if (to.d_beta) to.d_beta(row, begin + t, head) += static_cast<T>(mine[K + V + 1]);

    const double decay = std::exp(gate_of(t));
    if (decay != 1) s.scale(K * K, decay, d_h, d_h), s.scale(K * V, decay, d_f, d_f);
    double d_g = mine[K + V] + s.dot(K * K, d_h, old[0]) + s.dot(K * V, d_f, old[1]);
    std::fill_n(mine, slot_size(), 0.0);  // from here on the slot of the pair that left
    const Size gone = t - W;
    if (count + gone >= 0) {
      const double fade = fade_of(gone, t), w = weight_of(gone) * fade;
      const double c = pair_back(gone, 1.0);
      d_g -= w * c;
      add_pair(gone, -w, -c * fade, -c * w, t);
    }
    if (to.d_g) to.d_g(row, begin + t, head) += static_cast<T>(d_g);
    return good;
  }

  void add_strided_row(const View<T, 4>& to, Size t, int which, Size dim, double scale, const double* from) const {
    T* const start = &to(row, begin + t, which, 0);
    for (Size j = 0; j < dim; ++j) start[j * to.stride[3]] += static_cast<T>(scale * from[j]);
  }

  // Slots start as the gradients of the final ring. The keys of a group of heads count once.
  void load_slots(const WindowGradient<T>& d) const {
    const LinearProblem<T>& a = p->linear;
    const bool leader = head % (a.heads / a.key_heads) == 0;
    std::fill_n(slots, W * slot_size(), 0.0);
    for (Size i = 0; i < W; ++i) {
      double* const to = slots + i * slot_size();
      const Size at = number * W + i, one = at * a.heads + head;
      if (d.d_final_keys && leader) std::copy_n(d.d_final_keys + (at * a.key_heads + key_head) * K, K, to);
      if (d.d_final_values) std::copy_n(d.d_final_values + one * V, V, to + K);
      if (d.d_final_gates && a.g) to[K + V] = static_cast<double>(d.d_final_gates[one]);
      if (d.d_final_weights && a.beta) to[K + V + 1] = static_cast<double>(d.d_final_weights[one]);
    }
  }
  void store_slots(const WindowGradient<T>& d) const {
    const LinearProblem<T>& a = p->linear;
    for (Size i = 0; i < W; ++i) {
      const double* const from = slots + i * slot_size();
      const Size at = number * W + i, one = at * a.heads + head;
      const auto put = [&](T* to, Size n, const double* x) {
        for (Size j = 0; to && j < n; ++j) to[j] += static_cast<T>(x[j]);
      };
      put(d.d_initial_keys ? d.d_initial_keys + (at * a.key_heads + key_head) * K : nullptr, K, from);
      put(d.d_initial_values ? d.d_initial_values + one * V : nullptr, V, from + K);
      put(d.d_initial_gates && a.g ? d.d_initial_gates + one : nullptr, 1, from + K + V);
      put(d.d_initial_weights && a.beta ? d.d_initial_weights + one : nullptr, 1, from + K + V + 1);
    }
  }

  const Simd<double>& s;
  Size K, V, W;
  Cholesky cholesky;
  Replay<double, 3> replay;
  const WindowProblem<T>* p = nullptr;
  Size number = 0, row = 0, begin = 0, time = 0, count = 0, seq_head = 0;
  int head = 0, key_head = 0;
  double *k, *kb, *q, *x_, *ridge, *v, *o, *H, *F, *peak;
  double *u = nullptr, *d_k = nullptr, *spare = nullptr, *d_ridge = nullptr, *d_v = nullptr, *d_h = nullptr,
         *d_f = nullptr, *slots = nullptr;
};

/// The last tokens of a call into the ring.
template <class T>
void keep(const WindowProblem<T>& p, Size sequence) {
  const LinearProblem<T>& a = p.linear;
  const Sequence& n = a.sequences[static_cast<std::size_t>(sequence)];
  const Size W = p.window, time = n.end - n.begin, count = static_cast<Size>(p.count[sequence]);
  for (Size t = std::max<Size>(0, time - W); t < time; ++t) {
    const Size at = sequence * W + (count + t) % W, token = n.begin + t;
    for (int h = 0; h < a.key_heads; ++h)
      for (int i = 0; i < a.key_dim; ++i) p.keys[(at * a.key_heads + h) * a.key_dim + i] = a.k(n.row, token, h, i);
    for (int h = 0; h < a.heads; ++h) {
      for (int i = 0; i < a.value_dim; ++i) p.values[(at * a.heads + h) * a.value_dim + i] = a.v(n.row, token, h, i);
      if (a.g) p.gates[at * a.heads + h] = a.g(n.row, token, h);
      if (a.beta) p.weights[at * a.heads + h] = a.beta(n.row, token, h);
    }
  }
  p.count[sequence] += time;
}

template <class T>
Status check(const WindowProblem<T>& p, bool queries, Form form, Workspace work, bool backward) {
  const LinearProblem<T>& a = p.linear;
  if (form != Form::best && form != Form::step && form != Form::recurrent) return Status::not_supported;
  const Size longest = longest_of(a.sequences);
  if (longest < 0 || a.key_dim < 1 || a.value_dim < 1 || a.heads < 1 || a.key_heads < 1 ||
      a.heads % a.key_heads != 0 || p.window < 1)
    return Status::bad_shape;
  if (!p.ridge) return Status::missing_input;
  if (!a.sequences.empty() && (!p.keys || !p.values || !p.count || (a.g && !p.gates) || (a.beta && !p.weights)))
    return Status::missing_input;
  if ((p.h || p.f || p.peak) && (!p.h || !p.f || !p.peak)) return Status::missing_input;
  if (longest > 0 && (!a.k || !a.v || (queries && !a.q))) return Status::missing_input;
  if (!work.data || work.bytes < workspace_bytes(a.key_dim, a.value_dim, p.window, longest, backward))
    return Status::small_workspace;
  for (int h = 0; h < a.heads; ++h)
    for (int i = 0; i < a.key_dim; ++i)
      if (!(p.ridge(h, i) > T(0))) return Status::out_of_domain;
  for (const Sequence& n : a.sequences)
    for (Size t = n.begin; a.beta && t < n.end; ++t)
      for (int h = 0; h < a.heads; ++h)
        if (!(a.beta(n.row, t, h) >= T(0))) return Status::out_of_domain;
  return Status::ok;
}

}  // namespace

std::size_t workspace_bytes(int K, int V, int W, std::ptrdiff_t longest, bool backward) noexcept {
  static constexpr Simd<double> none{};
  Arena arena;
  Head<double> head(none, K, V, W, longest, backward, arena);
  return arena.bytes();
}

template <class T>
Status forward(const WindowProblem<T>& p, Form form, const Simd<double>& s, Workspace work) noexcept {
  const LinearProblem<T>& a = p.linear;
  if (const Status status = check(p, a.o || p.variance || p.known, form, work, false); status != Status::ok)
    return status;
  const FlushDenormals flush;
  Arena arena(work);
  Head<T> run(s, a.key_dim, a.value_dim, p.window, longest_of(a.sequences), false, arena);
  bool good = true;
  for (Size n = 0; n < static_cast<Size>(a.sequences.size()); ++n) {
    for (int h = 0; h < a.heads; ++h) good = run.forward(p, n, h) && good;
    keep(p, n);
  }
  return good ? Status::ok : Status::out_of_domain;
}

template <class T>
Status backward(const WindowProblem<T>& p, const WindowGradient<T>& d, Form form, const Simd<double>& s,
                Workspace work) noexcept {
  const LinearProblem<T>& a = p.linear;
  if (const Status status = check(p, d.linear.d_o || d.d_variance, form, work, true); status != Status::ok)
    return status;
  const FlushDenormals flush;
  Arena arena(work);
  Head<T> run(s, a.key_dim, a.value_dim, p.window, longest_of(a.sequences), true, arena);
  bool good = true;
  for (Size n = 0; n < static_cast<Size>(a.sequences.size()); ++n)
    for (int h = 0; h < a.heads; ++h) good = run.backward(p, d, n, h) && good;
  return good ? Status::ok : Status::out_of_domain;
}

#define TTR_INSTANTIATE(T)                                                                               \
  template Status forward(const WindowProblem<T>&, Form, const Simd<double>&, Workspace) noexcept;       \
  template Status backward(const WindowProblem<T>&, const WindowGradient<T>&, Form, const Simd<double>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::window
