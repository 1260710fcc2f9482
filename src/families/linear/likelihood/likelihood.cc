// Backward, newest token first; R is the memory that the step finds, e^g S, and D_S, D_A are the gradients of the states after
// the token:
//
//   U = G / (sqrt(A) + eps) (or G) ;  dbeta = -<D_S, U> ;  D_U = -beta D_S
//   D_G = D_U * dU/dG + 2 D_A * G ;  D_A += -1/2 D_U * U / (sqrt(A) + eps) / sqrt(A)
//   dk = D_G e ;  de = D_G' k ;  dv = -de ;  dy = p (1 - p) de, or p (de - p.de), or de
//   D_R = D_S + k dy' ;  dk += R dy ;  dg = <D_R, R> ;  D_S <- e^g D_R
#include "families/linear/likelihood/likelihood.h"

#include <algorithm>
#include <cmath>

#include "families/common/replay.h"
#include "families/common/scratch.h"
#include "families/common/wide.h"
#include "simd/denormals.h"

namespace ttr::families::likelihood {
namespace {

using Size = std::ptrdiff_t;
using Loss = LikelihoodModel::Loss;

/// y becomes p.
void mean_of(Loss loss, Size V, double* y) {
  if (loss == Loss::logistic)
    for (Size j = 0; j < V; ++j) y[j] = 1 / (1 + std::exp(-y[j]));
  if (loss != Loss::cross_entropy) return;
  const double top = *std::max_element(y, y + V);
  double sum = 0;
  for (Size j = 0; j < V; ++j) sum += y[j] = std::exp(y[j] - top);
  for (Size j = 0; j < V; ++j) y[j] /= sum;
}

/// One head of one sequence. A state is S and A [K, V].
class Head {
 public:
  Head(const Simd<double>& simd, Size key_dim, Size value_dim, Size longest, bool backward, Arena& arena)
      : s_(simd), K_(key_dim), V_(value_dim), replay_({K_ * V_, K_ * V_}, backward ? longest : 0, 0, arena) {
    k_ = arena.take<double>(K_), x_ = arena.take<double>(K_), p_ = arena.take<double>(V_),
    e_ = arena.take<double>(V_);
    none_ = arena.take<double>(K_ * V_);  // A of a memory without
    if (!backward) return;
    R_ = arena.take<double>(K_ * V_), d_s_ = arena.take<double>(K_ * V_), d_a_ = arena.take<double>(K_ * V_);
    d_k_ = arena.take<double>(K_), d_e_ = arena.take<double>(V_), read_ = arena.take<double>(K_ * V_);
  }

  template <class T>
  void forward(const LikelihoodProblem<T>& p, const Sequence& n, int head, Size at) {
    const LinearProblem<T>& a = p.linear;
    double *const S = p.s + at * K_ * V_, *const A = p.squares ? p.squares + at * K_ * V_ : none_;
    for (Size t = n.begin; t < n.end; ++t) {
      if (p.model.read_before) answer(a, n.row, t, head, S);
      step(p, n.row, t, head, S, A);
      if (!p.model.read_before) answer(a, n.row, t, head, S);
    }
  }

  template <class T>
  void backward(const LikelihoodProblem<T>& p, const LikelihoodGradient<T>& d, const Sequence& n, int head, Size at) {
    const Size size = K_ * V_, from = at * size;
    std::fill_n(none_, size, 0.0);
    copy_or_clear(d.d_final_s ? d.d_final_s + from : nullptr, size, d_s_);
    copy_or_clear(d.d_final_squares ? d.d_final_squares + from : nullptr, size, d_a_);
    replay_.run(
        n.end - n.begin, {p.s + from, p.squares ? p.squares + from : none_},
        [&](Size i, const Parts<double, 2>& state) { step(p, n.row, n.begin + i, head, state[0], state[1]); },
        [&](Size i, const Parts<const double, 2>& old, const Parts<const double, 2>& now) {
          step_back(p, d.linear, n.row, n.begin + i, head, old, now);
        });
    if (d.d_initial_s) s_.axpy(size, 1.0, d_s_, d.d_initial_s + from);
    if (d.d_initial_squares) s_.axpy(size, 1.0, d_a_, d.d_initial_squares + from);
  }

 private:
  template <class T>
  static int key_head(const LinearProblem<T>& a, int head) {
    return head / (a.heads / a.key_heads);
  }

  template <class T>
  void answer(const LinearProblem<T>& a, Size row, Size t, int head, const double* S) {
    if (!a.o) return;
    load(a.q, row, t, key_head(a, head), K_, static_cast<double>(a.scale), x_);
    s_.vec_mat(K_, V_, x_, S, V_, e_);
    for (Size j = 0; j < V_; ++j) a.o(row, t, head, j) = static_cast<T>(e_[j]);
  }

  // k_, p_ and e_ of a token from the memory that its step finds.
  template <class T>
  void look(const LikelihoodProblem<T>& p, Size row, Size t, int head, const double* R) {
    const LinearProblem<T>& a = p.linear;
    load(a.k, row, t, key_head(a, head), K_, 1.0, k_);
    s_.vec_mat(K_, V_, k_, R, V_, p_);
    mean_of(p.model.loss, V_, p_);
    load(a.v, row, t, head, V_, 1.0, e_);
    for (Size j = 0; j < V_; ++j) e_[j] = p_[j] - e_[j];
  }

  template <class T>
  void step(const LikelihoodProblem<T>& p, Size row, Size t, int head, double* S, double* A) {
    const LinearProblem<T>& a = p.linear;
    if (a.g) s_.scale(K_ * V_, std::exp(number(a.g, row, t, head, 0)), S, S);
    look(p, row, t, head, S);
    const double beta = number(a.beta, row, t, head, 1);
    if (!p.model.adagrad) {
      s_.scale(V_, -beta, e_, e_);
      return s_.rank_one(K_, V_, 1.0, k_, e_, S, V_);
    }
    for (Size i = 0; i < K_; ++i) {
      double *const sums = A + i * V_, *const memory = S + i * V_;
      const double key = k_[i];
      for (Size j = 0; j < V_; ++j) {
        const double g = key * e_[j], sum = sums[j] + g * g;
        sums[j] = sum;
        memory[j] -= sum != 0 ? beta * g / (std::sqrt(sum) + p.model.eps) : 0;
      }
    }
  }

  template <class T>
  void step_back(const LikelihoodProblem<T>& p, const LinearGradient<T>& to, Size row, Size t, int head,
                 const Parts<const double, 2>& old, const Parts<const double, 2>& now) {
    const LinearProblem<T>& a = p.linear;
    const int shared = key_head(a, head);
    const double beta = number(a.beta, row, t, head, 1), scale = static_cast<double>(a.scale);
    const double fade = a.g ? std::exp(number(a.g, row, t, head, 0)) : 1;
    if (to.d_o) {
      load(a.q, row, t, shared, K_, scale, x_);
      load(to.d_o, row, t, head, V_, 1.0, e_);
      if (to.d_q) {
        s_.mat_vec(K_, V_, p.model.read_before ? old[0] : now[0], V_, e_, d_k_);
        add(d_k_, scale, K_, to.d_q, row, t, shared);
      }
      double* const into = p.model.read_before ? read_ : d_s_;
      if (p.model.read_before) std::fill_n(read_, K_ * V_, 0.0);
      s_.rank_one(K_, V_, 1.0, x_, e_, into, V_);
    }
    s_.scale(K_ * V_, fade, old[0], R_);
    look(p, row, t, head, R_);
    double d_beta = 0;
    std::fill_n(d_k_, K_, 0.0), std::fill_n(d_e_, V_, 0.0);
    for (Size i = 0; i < K_; ++i)
      for (Size j = 0; j < V_; ++j) {
        const Size c = i * V_ + j;
        const double g = k_[i] * e_[j];
        double d_g = -beta * d_s_[c];
        if (!p.model.adagrad) {
          d_beta -= d_s_[c] * g;
        } else {
          const double root = std::sqrt(now[1][c]), divisor = root + p.model.eps, later = d_a_[c];
          if (root == 0) {
            d_g = 0;
          } else {  // dU/dG = (A before + eps root) / (divisor^2 root), which is much less than the terms it is made of
            const double u = g / divisor;
            d_beta -= d_s_[c] * u;
            d_a_[c] -= d_g * u / (2 * divisor * root);
            d_g *= (old[1][c] + p.model.eps * root) / (divisor * divisor * root);
          }
          d_g += 2 * later * g;
        }
        d_k_[i] += d_g * e_[j], d_e_[j] += d_g * k_[i];
      }
    if (to.d_v) add(d_e_, -1.0, V_, to.d_v, row, t, head);
    if (p.model.loss == Loss::logistic)
      for (Size j = 0; j < V_; ++j) d_e_[j] *= p_[j] * (1 - p_[j]);
    if (p.model.loss == Loss::cross_entropy) {
      const double along = s_.dot(V_, p_, d_e_);
      for (Size j = 0; j < V_; ++j) d_e_[j] = p_[j] * (d_e_[j] - along);
    }
    s_.rank_one(K_, V_, 1.0, k_, d_e_, d_s_, V_);
    if (to.d_k) {
      s_.mat_vec(K_, V_, R_, V_, d_e_, x_);
      s_.axpy(K_, 1.0, x_, d_k_);
      add(d_k_, 1.0, K_, to.d_k, row, t, shared);
    }
    if (to.d_beta) to.d_beta(row, t, head) += static_cast<T>(d_beta);
    if (to.d_g) to.d_g(row, t, head) += static_cast<T>(s_.dot(K_ * V_, d_s_, R_));
    if (fade != 1) s_.scale(K_ * V_, fade, d_s_, d_s_);
    if (to.d_o && p.model.read_before) s_.axpy(K_ * V_, 1.0, read_, d_s_);
  }

  const Simd<double>& s_;
  Size K_, V_;
  Replay<double, 2> replay_;
  double *k_, *x_, *p_, *e_, *none_;
  double *R_ = nullptr, *d_s_ = nullptr, *d_a_ = nullptr, *d_k_ = nullptr, *d_e_ = nullptr, *read_ = nullptr;
};

template <class T>
Status check(const LikelihoodProblem<T>& p, bool queries, Form form, Workspace work, bool backward) {
  const LinearProblem<T>& a = p.linear;
  if (form == Form::parallel || form == Form::scan || form == Form::chunk) return Status::not_supported;
  const Size longest = longest_of(a.sequences);
  if (longest < 0 || a.key_dim < 1 || a.value_dim < 1 || a.heads < 1 || a.key_heads < 1 || a.heads % a.key_heads != 0)
    return Status::bad_shape;
  if (!a.sequences.empty() && (!p.s || (p.model.adagrad && !p.squares))) return Status::missing_input;
  if (longest > 0 && (!a.k || !a.v || (queries && !a.q))) return Status::missing_input;
  if (!work.data || work.bytes < workspace_bytes(a.key_dim, a.value_dim, longest, backward))
    return Status::small_workspace;
  return Status::ok;
}

template <class T, class Each>
void run_heads(const LikelihoodProblem<T>& p, bool backward, const Simd<double>& s, Workspace work, Each&& each) {
  const LinearProblem<T>& a = p.linear;
  const FlushDenormals flush;
  Arena arena(work);
  Head run(s, a.key_dim, a.value_dim, longest_of(a.sequences), backward, arena);
  Size at = 0;
  for (const Sequence& n : a.sequences)
    for (int h = 0; h < a.heads; ++h, ++at) each(run, n, h, at);
}

}  // namespace

std::size_t workspace_bytes(int K, int V, std::ptrdiff_t longest, bool backward) noexcept {
  static constexpr Simd<double> none{};
  Arena arena;
  Head(none, K, V, longest, backward, arena);
  return arena.bytes();
}

template <class T>
Status forward(const LikelihoodProblem<T>& p, Form form, const Simd<double>& s, Workspace work) noexcept {
  if (const Status status = check(p, static_cast<bool>(p.linear.o), form, work, false); status != Status::ok)
    return status;
  run_heads(p, false, s, work, [&](Head& run, const Sequence& n, int h, Size at) { run.forward(p, n, h, at); });
  return Status::ok;
}

template <class T>
Status backward(const LikelihoodProblem<T>& p, const LikelihoodGradient<T>& d, Form form, const Simd<double>& s,
                Workspace work) noexcept {
  if (const Status status = check(p, static_cast<bool>(d.linear.d_o), form, work, true); status != Status::ok)
    return status;
  run_heads(p, true, s, work, [&](Head& run, const Sequence& n, int h, Size at) { run.backward(p, d, n, h, at); });
  return Status::ok;
}

#define TTR_INSTANTIATE(T)                                                                                       \
  template Status forward(const LikelihoodProblem<T>&, Form, const Simd<double>&, Workspace) noexcept;           \
  template Status backward(const LikelihoodProblem<T>&, const LikelihoodGradient<T>&, Form, const Simd<double>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::likelihood
