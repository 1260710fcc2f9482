// Backward, per system: weights W and their gradients U of 64 queries at a time; what they say about kappa(K, K) is
// added up in blocks and goes to the keys once per system. Equations: kernel_regression.h.
#include <algorithm>
#include <cstddef>

#include "families/kernel_regression.h"
#include "families/kernel_regression_run.h"
#include "simd/denormals.h"

namespace ttr::families::kernel_regression {
namespace {

template <class T>
class Backward {
 public:
  Backward(const KernelRegressionProblem<T>& problem, const KernelRegressionGradient<T>& gradient, Run& r,
           const Sums& sums_)
      : p(problem), d(gradient), run(r), sums(sums_), s(r.s) {}

  bool sequence(std::size_t n) {
    x = p.sequences[n];
    bool good = true;
    const Size past = past_of(p, n), all = pairs_of(p, n);
    for (int g = 0; g < p.key_heads; ++g) {
      run.load(p, n, g);
      std::fill_n(sums.keys, all * run.K, 0.0);
      std::fill_n(sums.values, all * run.V, 0.0);
      system = {};
      run.walk(
          p, n, g,
          [&](const System& needed) {
            finish();
            system = needed;
            run.factor.attach(run.triangle, run.solved, 0);
            run.grow(system, system.count);
            std::fill_n(sums.gram, Sums::tile(blocks(system.count), 0), 0.0);
          },
          [&](const Queries& queries) { answer(queries); }, [&](int, Size) { good = false; });
      finish();
      if (d.d_past_k) narrow(sums.keys, static_cast<Size>(n), 0, past, g, run.K, true, d.d_past_k);
      if (d.d_past_v) narrow(sums.values, static_cast<Size>(n), 0, past, g, run.V, true, d.d_past_v);
      if (d.d_k) narrow(sums.keys + past * run.K, x.row, x.begin, all - past, g, run.K, true, d.d_k);
      if (d.d_v) narrow(sums.values + past * run.V, x.row, x.begin, all - past, g, run.V, true, d.d_v);
    }
    return good;
  }

 private:
  static constexpr Size C = block_size;
  static Size blocks(Size count) { return (count + C - 1) / C; }

  void answer(const Queries& a) {
    const Size b = a.count, m = p.causal ? a.seen + b - 1 : a.seen, ld = run.N, K = run.K, V = run.V;
    const Size first = x.begin + a.begin;
    const double* const keys = run.keys + system.first * K;
    double *const W = run.X, *const U = run.X + b * ld;
    if (m == 0) return;
    widen(p.q, x.row, first, b, a.head, K, run.q);
    widen(d.d_o, x.row, first, b, a.head, V, run.o);
    run.kernel.values(b, m, run.q, keys, W, ld);
    run.factor.lower(m, b, W, ld);
    s.gemm_nt(b, m, V, 1.0, run.o, V, run.factor.values(), V, 0.0, U, ld);
    for (Size i = 0; p.causal && i < b; ++i) {
      const Size seen = a.seen + i;
      std::fill_n(W + i * ld + seen, m - seen, 0.0);
      std::fill_n(U + i * ld + seen, m - seen, 0.0);
    }
    run.factor.upper(m, 2 * b, W, ld);

    s.gemm_tn(m, V, b, 1.0, W, ld, run.o, V, 1.0, sums.values + system.first * V, V);
    if (d.d_ridge && d.d_ridge.stride[1] == 0) {
      double sum = 0;
      for (Size i = 0; i < b; ++i) sum += s.dot(m, W + i * ld, U + i * ld);
      d.d_ridge(x.row, first, a.head) -= static_cast<T>(sum);
    } else if (d.d_ridge) {
      for (Size i = 0; i < b; ++i)
        d.d_ridge(x.row, first + i, a.head) -= static_cast<T>(s.dot(m, W + i * ld, U + i * ld));
    }
    if (d.d_k || d.d_past_k)
      for (Size I = 0; I < blocks(m); ++I)
        for (Size J = 0; J <= I; ++J) {
          const Size M = std::min(C, m - I * C), N = std::min(C, m - J * C);
          double* const to = sums.gram + Sums::tile(I, J);
          s.gemm_tn(M, N, b, -1.0, U + I * C, ld, W + J * C, ld, 1.0, to, C);
          s.gemm_tn(M, N, b, -1.0, W + I * C, ld, U + J * C, ld, 1.0, to, C);
        }
    std::fill_n(sums.q, b * K, 0.0);
    for (Size j = 0; j < m; j += C)
      run.kernel.back(b, std::min(C, m - j), run.q, keys + j * K, U + j, ld, sums.q,
                      sums.keys + (system.first + j) * K);
    if (d.d_q) narrow(sums.q, x.row, first, b, a.head, K, true, d.d_q);
  }

  // The gradient of kappa(K, K) to the keys. kappa(k_i, k_j) stands there twice, and a diagonal block is symmetric.
  void finish() {
    if (!d.d_k && !d.d_past_k) return;
    const Size count = std::max<Size>(system.count, 0), K = run.K;
    const double* const keys = run.keys + system.first * K;
    double* const to = sums.keys + system.first * K;
    for (Size I = 0; I < blocks(count); ++I)
      for (Size J = 0; J <= I; ++J)
        run.kernel.back(std::min(C, count - I * C), std::min(C, count - J * C), keys + I * C * K, keys + J * C * K,
                        sums.gram + Sums::tile(I, J), C, to + I * C * K, I == J ? nullptr : to + J * C * K);
  }

  const KernelRegressionProblem<T>& p;
  const KernelRegressionGradient<T>& d;
  Run& run;
  const Sums& sums;
  const Simd<double>& s;
  Sequence x{};
  System system;
};

}  // namespace

template <class T>
Status backward(const KernelRegressionProblem<T>& p, const KernelRegressionGradient<T>& d, const Simd<double>& s,
                Workspace work) noexcept {
  Size pairs;
  if (const Status status = check(p, true, false, &pairs); status != Status::ok) return status;
  if (!d.d_o) return Status::ok;
  if (!work.data || work.bytes < workspace_bytes(p.heads, p.key_heads, p.key_dim, p.value_dim, pairs, false, true))
    return Status::small_workspace;
  const FlushDenormals flush;
  Arena arena(work);
  Run run(s, p.heads, p.key_heads, p.key_dim, p.value_dim, pairs, true, true, arena);
  const Sums sums(p.key_dim, p.value_dim, pairs, arena);
  run.kernel.choose(p);
  Backward<T> backward(p, d, run, sums);
  bool good = true;
  for (std::size_t n = 0; n < p.sequences.size(); ++n)
    if (p.sequences[n].end > p.sequences[n].begin) good = backward.sequence(n) && good;
  return good ? Status::ok : Status::out_of_domain;
}

#define TTR_INSTANTIATE(T)                                                                        \
  template Status backward(const KernelRegressionProblem<T>&, const KernelRegressionGradient<T>&, \
                           const Simd<double>&, Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::kernel_regression
