// Backward, newest token first; p = scale q, y = p + blend (x - p), m = |H|_F where the ridge is relative, else 1.
//
//   dy = F do ;  dF += y do' ;  dblend = dy'(x - p) ;  dx = blend dy + dvariance p
//   dp = (1 - blend) dy + dvariance x + (what the solve says of b)
//   DA from the solve (solve.h) ;  dH += DA ;  dridge_j = m DA_jj ;  relative: dm = sum_j ridge_j DA_jj
//   chebyshev: low = m min ridge and high = m max ridge + |H|_F have gradients too ;  dH += d|H|_F H / |H|_F
//   dk = beta (dF v + (dH + dH') k) ;  dv = beta dF' k ;  dbeta = k' dF v + k' dH k
//   dg = e^g <dF, F_{t-1}> ;  dgh = e^gh <dH, H_{t-1}> ;  dF <- e^g dF ;  dH <- e^gh dH
//
// States are kept every sqrt(T) tokens and recomputed inside a segment.
#include "families/solve/least_squares/least_squares.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "families/common/choice.h"
#include "families/common/replay.h"
#include "families/common/scratch.h"
#include "families/common/solve.h"
#include "families/common/wide.h"
#include "families/solve/least_squares/chunk.h"
#include "simd/denormals.h"

namespace ttr::families::least_squares {

void symmetrize(SolveBy by, std::ptrdiff_t K, double* d_h) noexcept {
  if (by != SolveBy::conjugate_gradients) return;
  for (std::ptrdiff_t i = 0; i < K; ++i)
    for (std::ptrdiff_t j = 0; j < i; ++j) d_h[i * K + j] = d_h[j * K + i] = (d_h[i * K + j] + d_h[j * K + i]) / 2;
}

namespace {

using Size = std::ptrdiff_t;

void mirror(Size K, double* H) {
  for (Size i = 0; i < K; ++i)
    for (Size j = 0; j < i; ++j) H[j * K + i] = H[i * K + j];
}

/// One head of one sequence. A state is H [K,K] and F [K,V].
class Head {
 public:
  Head(const Simd<double>& simd, Size key_dim, Size value_dim, Size longest, SolveBy solver, int steps, bool backward,
       Arena& arena)
      : s(simd),
        K(key_dim),
        V(value_dim),
        by(solver),
        solve(simd, K, solver, steps, backward, arena),
        replay({K * K, K * V}, backward ? longest : 0, 0, arena) {
    for (double** x : {&k, &kb, &p, &x_, &ridge, &diagonal}) *x = arena.take<double>(K);
    v = arena.take<double>(V), o = arena.take<double>(V);
    if (!backward) return;
    start = arena.take<double>(K * K), d_h = arena.take<double>(K * K), d_f = arena.take<double>(K * V);
    for (double** x : {&dy, &dx, &dp, &d_diagonal, &d_ridge, &d_k, &spare}) *x = arena.take<double>(K);
  }

  template <class T>
  bool forward(const LeastSquaresProblem<T>& problem, const Sequence& n, int head, Size seq_head) {
    const LinearProblem<T>& a = problem.linear;
    double *const H = problem.h + seq_head * K * K, *const F = problem.f + seq_head * K * V;
    bool good = true;
    load_ridge(problem, n, head);
    mirror(K, H);
    for (Size t = n.begin; t < n.end; ++t) {
      step(problem, n.row, t, head, H, F);
      if (!a.o && !problem.variance && !problem.known) continue;
      good = read(problem, n.row, t, head, H) && good;
      if (problem.variance || problem.known) uncertainty(problem, n.row, t, head);
      if (!a.o) continue;
      mix(number(problem.blend, n.row, t, head, 1));
      s.vec_mat(K, V, x_, F, V, o);
      for (Size j = 0; j < V; ++j) a.o(n.row, t, head, j) = static_cast<T>(o[j]);
    }
    return good;
  }

  template <class T>
  bool backward(const LeastSquaresProblem<T>& problem, const LeastSquaresGradient<T>& d, const Sequence& n, int head,
                Size seq_head) {
    copy_or_clear(d.d_final_h ? d.d_final_h + seq_head * K * K : nullptr, K * K, d_h);
    copy_or_clear(d.d_final_f ? d.d_final_f + seq_head * K * V : nullptr, K * V, d_f);
    std::fill_n(d_ridge, K, 0.0);
    bool good = true;
    load_ridge(problem, n, head);
    std::copy_n(problem.h + seq_head * K * K, K * K, start);
    mirror(K, start);
    replay.run(
        n.end - n.begin, {start, problem.f + seq_head * K * V},
        [&](Size i, const Parts<double, 2>& state) { step(problem, n.row, n.begin + i, head, state[0], state[1]); },
        [&](Size i, const Parts<const double, 2>& old, const Parts<const double, 2>& now) {
          good = step_back(problem, d, n.row, n.begin + i, head, old, now) && good;
        });
    if (d.d_ridge && n.end > n.begin) add(d_ridge, 1.0, K, d.d_ridge, n.row, n.begin, head);
    symmetrize(by, K, d_h);
    if (d.d_initial_h) s.axpy(K * K, 1.0, d_h, d.d_initial_h + seq_head * K * K);
    if (d.d_initial_f) s.axpy(K * V, 1.0, d_f, d.d_initial_f + seq_head * K * V);
    return good;
  }

 private:
  template <class T>
  static int key_head(const LinearProblem<T>& a, int head) {
    return head / (a.heads / a.key_heads);
  }
  template <class T>
  static double factor(const View<const T, 3>& gate, Size row, Size t, int head) {
    return gate ? std::exp(static_cast<double>(gate(row, t, head))) : 1.0;
  }

  // A ridge that is the same for all tokens is loaded, and its gradient stored, once.
  template <class T>
  static bool per_token(const View<T, 4>& ridge) {
    return ridge.stride[1] != 0;
  }
  template <class T>
  void load_ridge(const LeastSquaresProblem<T>& problem, const Sequence& n, int head) {
    if (!problem.ridge) std::fill_n(ridge, K, 0.0);
    else if (!per_token(problem.ridge) && n.end > n.begin) load(problem.ridge, n.row, n.begin, head, K, 1.0, ridge);
  }

  template <class T>
  void step(const LeastSquaresProblem<T>& problem, Size row, Size t, int head, double* H, double* F) {
    const LinearProblem<T>& a = problem.linear;
    const double decay = factor(a.g, row, t, head);
    const double decay_h = problem.gh ? factor(problem.gh, row, t, head) : decay;
    load(a.k, row, t, key_head(a, head), K, 1.0, k);
    load(a.v, row, t, head, V, 1.0, v);
    s.scale(K, number(a.beta, row, t, head, 1), k, kb);
    s.rank_one(K, V, decay, kb, v, F, V);
    // Row by row up to the diagonal, then mirrored: k_i (beta k_j) and k_j (beta k_i) round differently.
    for (Size i = 0; i < K; ++i) s.rank_one(1, i + 1, decay_h, kb + i, k, H + i * K, K);
    mirror(K, H);
  }

  // p, the diagonal that joins H, the bounds low and high, and x_ = x.
  template <class T>
  bool read(const LeastSquaresProblem<T>& problem, Size row, Size t, int head, const double* H) {
    const LinearProblem<T>& a = problem.linear;
    load(a.q, row, t, key_head(a, head), K, static_cast<double>(a.scale), p);
    if (problem.ridge && per_token(problem.ridge)) load(problem.ridge, row, t, head, K, 1.0, ridge);
    norm = problem.relative || by == SolveBy::chebyshev ? std::sqrt(s.dot(K * K, H, H)) : 0;
    unit = problem.relative ? norm : 1;
    if (by == SolveBy::chebyshev) {
      least = std::min_element(ridge, ridge + K) - ridge, most = std::max_element(ridge, ridge + K) - ridge;
      low = unit * ridge[least], high = unit * ridge[most] + norm;
    }
    if (by == SolveBy::gradient) {
      double trace = 0;
      for (Size i = 0; problem.automatic && i < K; ++i) trace += H[i * K + i];
      low = !problem.automatic ? number(problem.step, row, t, head, 1) : trace > 0 ? 1 / trace : 0;
    }
    empty = problem.relative && norm == 0;
    if (empty) {
      std::fill_n(x_, K, 0.0);
      return true;
    }
    if (problem.relative) s.scale(K, unit, ridge, diagonal);
    return solve.run(H, problem.relative ? diagonal : ridge, p, low, high, problem.tolerance, x_);
  }
  // Of the last read.
  template <class T>
  void uncertainty(const LeastSquaresProblem<T>& problem, Size row, Size t, int head) {
    const double variance = empty ? std::numeric_limits<double>::infinity() : 1 + s.dot(K, p, x_);
    if (problem.variance) problem.variance(row, t, head) = static_cast<T>(variance);
    if (!problem.known) return;
    double prior = 0;
    for (Size i = 0; i < K; ++i) prior += unit * ridge[i] * x_[i] * x_[i];
    problem.known(row, t, head) = static_cast<T>(empty ? 0.0 : std::max(0.0, 1 - prior / variance));
  }
  // x_ <- p + blend (x - p)
  void mix(double blend) {
    if (blend == 1) return;
    s.scale(K, blend, x_, x_);
    s.axpy(K, 1 - blend, p, x_);
  }

  template <class T>
  bool read_back(const LeastSquaresProblem<T>& problem, const LeastSquaresGradient<T>& d, Size row, Size t, int head,
                 const double* H, const double* F) {
    const LinearProblem<T>& a = problem.linear;
    const LinearGradient<T>& to = d.linear;
    const int shared = key_head(a, head);
    const double blend = number(problem.blend, row, t, head, 1);
    const bool good = read(problem, row, t, head, H);
    if (to.d_o) {
      load(to.d_o, row, t, head, V, 1.0, o);
      s.mat_vec(K, V, F, V, o, dy);
      if (d.d_blend) d.d_blend(row, t, head) += static_cast<T>(s.dot(K, dy, x_) - s.dot(K, dy, p));
      s.scale(K, blend, dy, dx);
      s.scale(K, 1 - blend, dy, dp);
    } else {
      std::fill_n(dx, K, 0.0), std::fill_n(dp, K, 0.0);
    }
    if (d.d_variance) {
      const double d_variance = static_cast<double>(d.d_variance(row, t, head));
      s.axpy(K, d_variance, p, dx);
      s.axpy(K, d_variance, x_, dp);
    }
    std::fill_n(d_diagonal, K, 0.0);
    Solve::Gradient back{dp, d_h, d_diagonal};
    if (!empty) solve.back(x_, dx, back);
    if (to.d_q) add(dp, static_cast<double>(a.scale), K, to.d_q, row, t, shared);
    if (to.d_o) {
      mix(blend);
      s.rank_one(K, V, 1.0, x_, o, d_f, V);
    }
    if (by == SolveBy::chebyshev) d_diagonal[least] += back.low, d_diagonal[most] += back.high;
    if (d.d_ridge && per_token(d.d_ridge)) add(d_diagonal, unit, K, d.d_ridge, row, t, head);
    else if (d.d_ridge) s.axpy(K, unit, d_diagonal, d_ridge);
    if (by == SolveBy::gradient && problem.automatic) {
      for (Size i = 0; i < K; ++i) d_h[i * (K + 1)] -= back.low * low * low;
    } else if (d.d_step) {
      d.d_step(row, t, head) += static_cast<T>(back.low);
    }
    const double d_norm = back.high + (problem.relative ? s.dot(K, ridge, d_diagonal) : 0.0);
    if (norm > 0) s.axpy(K * K, d_norm / norm, H, d_h);
    return good;
  }

  template <class T>
  bool step_back(const LeastSquaresProblem<T>& problem, const LeastSquaresGradient<T>& d, Size row, Size t, int head,
                 const Parts<const double, 2>& old, const Parts<const double, 2>& now) {
    const LinearProblem<T>& a = problem.linear;
    const LinearGradient<T>& to = d.linear;
    const int shared = key_head(a, head);
    const bool good = (!to.d_o && !d.d_variance) || read_back(problem, d, row, t, head, now[0], now[1]);
    const double beta = number(a.beta, row, t, head, 1);
    load(a.k, row, t, shared, K, 1.0, k);
    load(a.v, row, t, head, V, 1.0, v);
    s.mat_vec(K, V, d_f, V, v, d_k);
    s.mat_vec(K, K, d_h, K, k, spare);
    if (to.d_beta) to.d_beta(row, t, head) += static_cast<T>(s.dot(K, k, d_k) + s.dot(K, k, spare));
    s.axpy(K, 1.0, spare, d_k);
    s.vec_mat(K, K, k, d_h, K, spare);
    s.axpy(K, 1.0, spare, d_k);
    if (to.d_k) add(d_k, beta, K, to.d_k, row, t, shared);
    if (to.d_v) {
      s.vec_mat(K, V, k, d_f, V, o);
      add(o, beta, V, to.d_v, row, t, head);
    }
    const double decay = factor(a.g, row, t, head);
    const double decay_h = problem.gh ? factor(problem.gh, row, t, head) : decay;
    if (to.d_g) {
      const double of_h = problem.gh ? 0.0 : s.dot(K * K, d_h, old[0]);
      to.d_g(row, t, head) += static_cast<T>(decay * (s.dot(K * V, d_f, old[1]) + of_h));
    }
    if (problem.gh && d.d_gh) d.d_gh(row, t, head) += static_cast<T>(decay_h * s.dot(K * K, d_h, old[0]));
    if (decay != 1) s.scale(K * V, decay, d_f, d_f);
    if (decay_h != 1) s.scale(K * K, decay_h, d_h, d_h);
    return good;
  }

  const Simd<double>& s;
  Size K, V;
  SolveBy by;
  Solve solve;
  Replay<double, 2> replay;
  double norm = 0, unit = 1, low = 0, high = 0;  // of the last read
  Size least = 0, most = 0;
  bool empty = false;
  double *k, *kb, *p, *x_, *ridge, *diagonal, *v, *o;
  double *start = nullptr, *d_h = nullptr, *d_f = nullptr, *dy = nullptr, *dx = nullptr, *dp = nullptr,
         *d_diagonal = nullptr, *d_ridge = nullptr, *d_k = nullptr, *spare = nullptr;
};

// Whether a sequence goes by chunks. To the kernel the parallel form is the chunk form: what is parallel about it, segments
// of time, are problems of their own. Factors side by side are several times as fast as one after another.
bool chunked(Form form, SolveBy by, Size time) {
  if (form == Form::best) return (by == SolveBy::cholesky || by == SolveBy::gradient) && time >= shortest_chunked;
  return form == Form::chunk || form == Form::parallel;
}

Size tokens_of(int chunk, Size longest) {
  return std::min<Size>(chunk > 0 ? chunk : default_chunk, std::max<Size>(longest, 1));
}

/// One head of one sequence, chunk by chunk.
class Chunks {
 public:
  Chunks(const Simd<double>& simd, Size key_dim, Size value_dim, Size longest, SolveBy solver, int steps,
         bool backward, Size tokens, Arena& arena)
      : s(simd),
        K(key_dim),
        V(value_dim),
        C(tokens),
        chunk(simd, K, V, C, solver, steps, backward, arena),
        replay({K * K, K * V}, backward ? (longest + C - 1) / C : 0, 0, arena) {
    if (!backward) return;
    start = arena.take<double>(K * K), d_h = arena.take<double>(K * K), d_f = arena.take<double>(K * V);
  }

  template <class T>
  bool forward(const LeastSquaresProblem<T>& problem, const Sequence& n, int head, Size seq_head) {
    double *const H = problem.h + seq_head * K * K, *const F = problem.f + seq_head * K * V;
    const bool outputs = problem.linear.o || problem.variance || problem.known;
    bool good = true;
    mirror(K, H);
    for (Size t = n.begin; t < n.end; t += C)
      good = chunk.forward(problem, n.row, t, std::min(C, n.end - t), head, H, F, outputs) && good;
    return good;
  }

  template <class T>
  bool backward(const LeastSquaresProblem<T>& problem, const LeastSquaresGradient<T>& d, const Sequence& n, int head,
                Size seq_head) {
    copy_or_clear(d.d_final_h ? d.d_final_h + seq_head * K * K : nullptr, K * K, d_h);
    copy_or_clear(d.d_final_f ? d.d_final_f + seq_head * K * V : nullptr, K * V, d_f);
    const auto length = [&](Size i) { return std::min(C, n.end - n.begin - i * C); };
    bool good = true;
    std::copy_n(problem.h + seq_head * K * K, K * K, start);
    mirror(K, start);
    replay.run((n.end - n.begin + C - 1) / C, {start, problem.f + seq_head * K * V},
               [&](Size i, const Parts<double, 2>& state) {
                 chunk.forward(problem, n.row, n.begin + i * C, length(i), head, state[0], state[1], false);
               },
               [&](Size i, const Parts<const double, 2>& old, const Parts<const double, 2>&) {
                 const bool here =
                     chunk.backward(problem, d, n.row, n.begin + i * C, length(i), head, old[0], old[1], d_h, d_f);
                 good = good && here;
               });
    symmetrize(problem.solver, K, d_h);
    if (d.d_initial_h) s.axpy(K * K, 1.0, d_h, d.d_initial_h + seq_head * K * K);
    if (d.d_initial_f) s.axpy(K * V, 1.0, d_f, d.d_initial_f + seq_head * K * V);
    return good;
  }

 private:
  const Simd<double>& s;
  Size K, V, C;
  Chunk chunk;
  Replay<double, 2> replay;
  double *start = nullptr, *d_h = nullptr, *d_f = nullptr;
};

template <class T>
Status check(const LeastSquaresProblem<T>& p, Form form, Workspace work, bool reads, bool variance, bool backward) {
  const LinearProblem<T>& a = p.linear;
  const bool exact = p.solver == SolveBy::cholesky;
  if (form == Form::scan || (variance && !exact)) return Status::not_supported;
  const Size longest = longest_of(a.sequences);
  if (longest < 0 || a.key_dim < 1 || a.value_dim < 1 || a.heads < 1 || a.key_heads < 1 || a.heads % a.key_heads != 0)
    return Status::bad_shape;
  if (!a.sequences.empty() && (!p.h || !p.f)) return Status::missing_input;
  if (longest > 0 && (!a.k || !a.v || ((reads || variance) && !a.q))) return Status::missing_input;
  if (!p.ridge && (p.relative || exact)) return Status::missing_input;
  if (p.steps < 0 || !(p.tolerance >= 0)) return Status::out_of_domain;
  if (!work.data ||
      work.bytes < workspace_bytes(a.key_dim, a.value_dim, longest, p.solver, p.steps, backward, form, p.chunk))
    return Status::small_workspace;
  return Status::ok;
}

// Whether no importance or ridge of this sequence and head is negative or NaN (cholesky: or a ridge zero).
template <class T>
bool defined(const LeastSquaresProblem<T>& p, const Sequence& n, int h, Size seq_head) {
  const LinearProblem<T>& a = p.linear;
  if (p.outside) return !p.outside[seq_head];
  const bool positive = p.solver == SolveBy::cholesky;
  for (Size t = n.begin; a.beta && t < n.end; ++t)
    if (!(a.beta(n.row, t, h) >= T(0))) return false;
  const Size end = p.ridge.stride[1] != 0 ? n.end : std::min(n.end, n.begin + 1);
  for (Size t = n.begin; p.ridge && t < end; ++t)
    for (int j = 0; j < a.key_dim; ++j)
      if (const T r = p.ridge(n.row, t, h, j); positive ? !(r > T(0)) : !(r >= T(0))) return false;
  return true;
}

}  // namespace

std::size_t workspace_bytes(int K, int V, std::ptrdiff_t longest, SolveBy solver, int steps, bool backward, Form form,
                            int chunk) noexcept {
  static constexpr Simd<double> none{};
  Arena arena;
  if (!chunked(form, solver, longest)) {
    Head(none, K, V, longest, solver, steps, backward, arena);
    return arena.bytes();
  }
  Chunks(none, K, V, longest, solver, steps, backward, tokens_of(chunk, longest), arena);
  if (form != Form::best) return arena.bytes();
  Arena of_short;  // sequences that are too short for chunks
  Head(none, K, V, shortest_chunked, solver, steps, backward, of_short);
  return std::max(arena.bytes(), of_short.bytes());
}

namespace {

// each(run, sequence, head, number of both) for every head of every sequence; false if one of them was.
template <class T, class Each>
Status run_heads(const LeastSquaresProblem<T>& p, Form form, bool backward, const Simd<double>& s, Workspace work,
                 Each&& each) {
  const LinearProblem<T>& a = p.linear;
  const FlushDenormals flush;
  bool good = true;
  Size seq_head = 0;
  const auto all = [&](auto&& run, const Sequence& n) {
    for (int h = 0; h < a.heads; ++h, ++seq_head) good = each(run, n, h, seq_head) && good;
  };
  for (const Sequence& n : a.sequences) {
    const Size time = n.end - n.begin;
    Arena arena(work);
    if (chunked(form, p.solver, time))
      all(Chunks(s, a.key_dim, a.value_dim, time, p.solver, p.steps, backward, tokens_of(p.chunk, time), arena), n);
    else all(Head(s, a.key_dim, a.value_dim, time, p.solver, p.steps, backward, arena), n);
  }
  return good ? Status::ok : Status::out_of_domain;
}

}  // namespace

template <class T>
Status forward(const LeastSquaresProblem<T>& p, Form form, const Simd<double>& s, Workspace work) noexcept {
  if (const Status status = check(p, form, work, static_cast<bool>(p.linear.o), p.variance || p.known, false);
      status != Status::ok)
    return status;
  return run_heads(p, form, false, s, work, [&](auto& run, const Sequence& n, int h, Size seq_head) {
    const bool has_answer = defined(p, n, h, seq_head);
    if (!has_answer) no_answer(p.linear.o, n, h), no_answer(p.variance, n, h), no_answer(p.known, n, h);
    return has_answer && run.forward(p, n, h, seq_head);
  });
}

template <class T>
Status backward(const LeastSquaresProblem<T>& p, const LeastSquaresGradient<T>& d, Form form, const Simd<double>& s,
                Workspace work) noexcept {
  if (const Status status =
          check(p, form, work, static_cast<bool>(d.linear.d_o), static_cast<bool>(d.d_variance), true);
      status != Status::ok)
    return status;
  return run_heads(p, form, true, s, work, [&](auto& run, const Sequence& n, int h, Size seq_head) {
    return defined(p, n, h, seq_head) && run.backward(p, d, n, h, seq_head);
  });
}

template <class T>
void find_outside(const LeastSquaresProblem<T>& p, bool* outside) noexcept {
  Size seq_head = 0;
  for (const Sequence& n : p.linear.sequences)
    for (int h = 0; h < p.linear.heads; ++h, ++seq_head) outside[seq_head] = !defined(p, n, h, seq_head);
}

#define TTR_INSTANTIATE(T)                                                                                           \
  template void find_outside(const LeastSquaresProblem<T>&, bool*) noexcept;                                         \
  template Status forward(const LeastSquaresProblem<T>&, Form, const Simd<double>&, Workspace) noexcept;             \
  template Status backward(const LeastSquaresProblem<T>&, const LeastSquaresGradient<T>&, Form, const Simd<double>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::least_squares
