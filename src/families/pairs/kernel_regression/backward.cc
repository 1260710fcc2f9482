// Backward: weights W and their gradients U of 64 queries at a time; what they say about kappa(K, K) is added up in
// blocks and goes to the keys once. Queries with factors of their own, or with one that has slid on, are solved one
// by one and settled 64 at a time. Equations: kernel_regression.h.
#include <algorithm>
#include <cstddef>

#include "families/pairs/driver.h"
#include "families/pairs/kernel_regression/run.h"

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
    const Size past = p.past_of(n), all = p.pairs_of(n);
    for (int g = 0; g < p.key_heads; ++g) {
      run.load(p, n, g);
      std::fill_n(sums.keys, all * run.K, 0.0);
      std::fill_n(sums.values, all * run.V, 0.0);
      std::fill_n(sums.gram, sums.size(blocks(all)), 0.0);
      run.each_system(
          p, n, g, p.window > 0 ? std::max<Size>(0, past + 1 - p.window) : 0, false,
          [&](const System& needed) {
            if (!own_systems(p)) solve_waiting();
            system = needed;
            run.factor.attach(run.triangle, run.solved, 0);
            run.grow(system, system.count);
          },
          [&](const Queries& queries) {
            if (own_systems(p)) one(queries.head, queries.begin);
            else many(queries);
          },
          [&](int head, Size t) {
            run.slide(system, p.window, past + t);
            run.grow(system, ++system.count);
            one(head, t);
          },
          [&](int, Size) { good = false; });
      solve_waiting();
      finish(all);
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

  // A query that waits for solve_waiting(): it sees the pairs [from, end).
  struct Row {
    int head;
    Size t, from, end;
  };

  // Row i of W and U starts with pair `base`, the border of a block at or before the first pair seen.
  double* weights(Size i) const { return sums.rows + i * run.N; }
  double* gradients(Size i) const { return sums.rows + (apart + i) * run.N; }

  void load(const Row& row, Size i) const {
    widen(p.q, x.row, x.begin + row.t, 1, row.head, run.K, run.q + i * run.K);
    widen(d.d_o, x.row, x.begin + row.t, 1, row.head, run.V, run.o + i * run.V);
  }

  void many(const Queries& a) {
    const Size b = a.count, m = p.causal ? a.seen + b - 1 : a.seen, ld = run.N, lead = system.first % C;
    if (m == 0) return;
    solve_waiting();
    base = system.first - lead, apart = b;
    for (Size i = 0; i < b; ++i) {
      rows[i] = {a.head, a.begin + i, system.first, system.first + (p.causal ? a.seen + i : m)};
      load(rows[i], i);
    }
    waiting = b;
    double *const W = weights(0) + lead, *const U = gradients(0) + lead;
    run.kernel.values(b, m, run.q, run.keys + system.first * run.K, W, ld);
    run.factor.lower(m, b, W, ld);
    s.gemm_nt(b, m, run.V, 1.0, run.o, run.V, run.factor.values(), run.V, 0.0, U, ld);
    clear();
    run.factor.upper(m, 2 * b, W, ld);
    solve_waiting();
  }

  // The query of a token that sees the whole factor.
  void one(int head, Size t) {
    const Size m = system.count, lead = system.first % C;
    if (m == 0) return;
    if (waiting == C) solve_waiting();
    if (waiting == 0) base = system.first - lead, apart = C;
    rows[waiting] = {head, t, system.first, system.first + m};
    load(rows[waiting], waiting);
    double *const w = weights(waiting) + (system.first - base), *const u = gradients(waiting) + (system.first - base);
    run.kernel.values(1, m, run.q + waiting * run.K, run.keys + system.first * run.K, w, run.N);
    run.factor.lower(m, 1, w, run.N);
    s.mat_vec(m, run.V, run.factor.values(), run.V, run.o + waiting * run.V, u);
    run.factor.upper(m, 2, w, C * run.N);
    ++waiting;
  }

  // Zero where a query sees nothing.
  void clear() {
    for (Size i = 0; i < waiting; ++i)
      for (double* const row : {weights(i), gradients(i)}) {
        std::fill(row, row + (rows[i].from - base), 0.0);
        std::fill(row + (rows[i].end - base), row + (rows[waiting - 1].end - base), 0.0);
      }
  }

  // What the waiting queries say about keys, values, ridges and queries.
  void solve_waiting() {
    const Size b = waiting, K = run.K, V = run.V, ld = run.N;
    if (b == 0) return;
    clear();
    const Size m = rows[b - 1].end - base;
    double *const W = weights(0), *const U = gradients(0);
    s.gemm_tn(m, V, b, 1.0, W, ld, run.o, V, 1.0, sums.values + base * V, V);
    if (d.d_ridge) ridges(m);
    if (d.d_k || d.d_past_k)
      for (Size I = 0; I < blocks(m); ++I)
        for (Size J = std::max<Size>(0, sums.left(base / C + I) - base / C); J <= I; ++J) {
          const Size M = std::min(C, m - I * C), N = std::min(C, m - J * C);
          double* const to = sums.gram + sums.tile(base / C + I, base / C + J);
          s.gemm_tn(M, N, b, -1.0, U + I * C, ld, W + J * C, ld, 1.0, to, C);
          s.gemm_tn(M, N, b, -1.0, W + I * C, ld, U + J * C, ld, 1.0, to, C);
        }
    std::fill_n(sums.q, b * K, 0.0);
    for (Size j = 0; j < m; j += C)
      run.kernel.back(b, std::min(C, m - j), run.q, run.keys + (base + j) * K, U + j, ld, sums.q,
                      sums.keys + (base + j) * K);
    for (Size i = 0; d.d_q && i < b; ++i)
      narrow(sums.q + i * K, x.row, x.begin + rows[i].t, 1, rows[i].head, K, true, d.d_q);
    waiting = 0;
  }

  // A ridge that many tokens share takes their sum: in float it is added to once.
  void ridges(Size m) {
    const bool one_for_all = d.d_ridge.stride[1] == 0;
    const int group = p.group(), first = rows[0].head / group * group;
    for (int h = first; h < first + group; ++h) {
      double sum = 0;
      Size last = -1;
      for (Size i = 0; i < waiting; ++i) {
        if (rows[i].head != h) continue;
        last = rows[i].t;
        sum += s.dot(m, weights(i), gradients(i));
        if (one_for_all) continue;
        d.d_ridge(x.row, x.begin + last, h) -= static_cast<T>(sum);
        sum = 0;
      }
      if (one_for_all && last >= 0) d.d_ridge(x.row, x.begin + last, h) -= static_cast<T>(sum);
    }
  }

  // The gradient of kappa(K, K) to the keys. kappa(k_i, k_j) stands there twice, and a diagonal block is symmetric.
  void finish(Size count) {
    if (!d.d_k && !d.d_past_k) return;
    const Size K = run.K;
    for (Size I = 0; I < blocks(count); ++I)
      for (Size J = sums.left(I); J <= I; ++J)
        run.kernel.back(std::min(C, count - I * C), std::min(C, count - J * C), run.keys + I * C * K,
                        run.keys + J * C * K, sums.gram + sums.tile(I, J), C, sums.keys + I * C * K,
                        I == J ? nullptr : sums.keys + J * C * K);
  }

  const KernelRegressionProblem<T>& p;
  const KernelRegressionGradient<T>& d;
  Run& run;
  const Sums& sums;
  const Simd<double>& s;
  Sequence x{};
  System system;
  Row rows[C];
  Size waiting = 0, base = 0, apart = C;
};

}  // namespace

template <class T>
Status backward(const KernelRegressionProblem<T>& p, const KernelRegressionGradient<T>& d, const Simd<double>& s,
                Workspace work) noexcept {
  Size most;
  if (const Status status = check(p, true, false, &most); status != Status::ok) return status;
  if (!d.d_o) return Status::ok;
  const std::size_t bytes =
      workspace_bytes(p.heads, p.key_heads, p.key_dim, p.value_dim, most, false, true, p.window);
  if (const Status status = pairs::check_workspace(work, bytes); status != Status::ok) return status;
  const FlushDenormals flush;
  Arena arena(work);
  Run run(s, p.key_dim, p.value_dim, most, p.window, true, true, arena);
  const Sums sums(p.key_dim, p.value_dim, most, p.window, run.N, arena);
  run.kernel.choose(p.kernel, p.scale, p.bandwidth, p.degree);
  Backward<T> backward(p, d, run, sums);
  bool good = true;
  pairs::each_sequence(p, [&](std::size_t n) { good = backward.sequence(n) && good; });
  return good ? Status::ok : Status::out_of_domain;
}

#define TTR_INSTANTIATE(T)                                                                        \
  template Status backward(const KernelRegressionProblem<T>&, const KernelRegressionGradient<T>&, \
                           const Simd<double>&, Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::kernel_regression
