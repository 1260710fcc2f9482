// Forward: the factor of a sequence's pairs, then its queries 64 at a time. One new token, and every token that
// pushes a pair out of the window, in one sweep over the factor.
#include "families/pairs/kernel_regression/kernel_regression.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "families/pairs/driver.h"
#include "families/pairs/kernel_regression/run.h"

namespace ttr::families::kernel_regression {

template <class T>
Status check(const KernelRegressionProblem<T>& p, bool queries, bool kept, Size* most_pairs) noexcept {
  pairs::Largest most;
  if (const Status status = pairs::check_pairs(p, {pairs::kept(p.past_k), pairs::kept(p.past_v)}, &most);
      status != Status::ok)
    return status;
  *most_pairs = most.pairs;
  if (p.window < 0 || (p.kernel == RegressionKernel::polynomial && p.degree < 1)) return Status::bad_shape;
  if (p.kernel == RegressionKernel::gaussian && !(p.bandwidth > 0)) return Status::out_of_domain;
  if (!p.causal && p.window > 0) return Status::not_supported;
  if (most.tokens > 0 && (!p.ridge || (queries && !p.q) || (!p.k != !p.v) || (!p.k && p.causal)))
    return Status::missing_input;
  if (kept && most.tokens > 0 && own_systems(p)) return Status::not_supported;
  for (std::size_t n = 0; n < p.sequences.size(); ++n) {
    if (p.tokens_of(n) == 0) continue;
    if (kept && seen_of(p.pairs_of(n), p.window) > p.factor_capacity) return Status::state_full;
    if (kept && p.factored[n] < 0) return Status::out_of_domain;
    for (int h = 0; h < p.heads && !own_systems(p); ++h)
      if (!(p.ridge(p.sequences[n].row, p.sequences[n].begin, h) > 0)) return Status::out_of_domain;
  }
  return Status::ok;
}

namespace {

template <class T>
class Forward {
 public:
  Forward(const KernelRegressionProblem<T>& problem, Run& r) : p(problem), run(r), s(r.s) {}

  bool sequence(std::size_t n) {
    x = p.sequences[n];
    bool good = true;
    const Size tokens = p.tokens_of(n), past = p.past_of(n), all = p.pairs_of(n);
    // With a window the factor that is kept is that of the pairs the last query saw, or of no use.
    Size there = p.factored ? std::min(past, static_cast<Size>(p.factored[n])) : 0;
    if (p.window > 0 && (!p.factored || p.factored[n] != seen_of(past, p.window))) there = 0;
    const Size from = p.window == 0 ? 0 : there > 0 ? past - there : std::max<Size>(0, past + 1 - p.window);
    const bool one_by_one = tokens == 1 && p.causal;
    for (int g = 0; g < p.key_heads; ++g) {
      run.load(p, n, g);
      int head = g * p.group();  // whose factor is next
      run.each_system(
          p, n, g, from, one_by_one,
          [&](const System& needed) {
            system = needed;
            attach(n, head++, there);
            run.grow(system, system.count);
          },
          [&](const Queries& queries) {
            if (p.o) many(queries);
          },
          [&](int h, Size t) {
            run.slide(system, p.window, past + t);
            if (p.o) one(h, t);
            else run.grow(system, system.count + 1);
          },
          [&](int h, Size t) {
            good = false;
            if (p.o)
              for (int j = 0; j < p.value_dim; ++j)
                p.o(x.row, x.begin + t, h, j) = std::numeric_limits<T>::quiet_NaN();
          });
    }
    if (p.factored && tokens > 0) p.factored[n] = seen_of(all, p.window);
    return good;
  }

 private:
  void attach(std::size_t n, int head, Size there) {
    if (!p.triangle) return run.factor.attach(run.triangle, run.solved, 0);
    const Size at = static_cast<Size>(n) * p.heads + head, room = p.factor_capacity;
    run.factor.attach(p.triangle + at * Factor::start(room), p.solved + at * room * p.value_dim, there);
  }

  void many(const Queries& a) {
    const Size b = a.count, end = p.causal ? a.seen + b - 1 : a.seen, all_see = p.causal ? a.seen - 1 : a.seen;
    widen(p.q, x.row, x.begin + a.begin, b, a.head, run.K, run.q);
    run.kernel.values(b, end, run.q, run.keys + system.first * run.K, run.X, run.N);
    run.factor.lower(end, b, run.X, run.N);
    const double* const Z = run.factor.values();
    s.gemm_nn(b, run.V, all_see, 1.0, run.X, run.N, Z, run.V, 0.0, run.o, run.V);
    if (p.causal) s.trmm_nn(b, run.V, 1.0, run.X + all_see, run.N, Z + all_see * run.V, run.V, 1.0, run.o, run.V);
    narrow(run.o, x.row, x.begin + a.begin, b, a.head, run.V, false, p.o);
  }

  // The new pair and the query that sees it: the factor is read once for both.
  void one(int head, Size t) {
    const Size old = system.count, N = run.N;
    const double *const keys = run.keys + system.first * run.K, *const newest = keys + old * run.K;
    double *const of_pair = run.X, *const of_query = run.X + N;
    widen(p.q, x.row, x.begin + t, 1, head, run.K, run.q);
    run.kernel.values(1, old, newest, keys, of_pair, N);
    run.kernel.values(1, old + 1, run.q, keys, of_query, N);
    run.factor.lower(old, 2, run.X, N);
    double block;
    run.kernel.values(1, 1, newest, newest, &block, 1);
    run.factor.append(1, system.ridge, of_pair, N, &block, 1, run.values + (system.first + old) * run.V);
    run.factor.finish(of_query);
    s.vec_mat(old + 1, run.V, of_query, run.factor.values(), run.V, run.o);
    narrow(run.o, x.row, x.begin + t, 1, head, run.V, false, p.o);
  }

  const KernelRegressionProblem<T>& p;
  Run& run;
  const Simd<double>& s;
  Sequence x{};
  System system;
};

}  // namespace

std::size_t workspace_bytes(int, int, int key_dim, int value_dim, std::ptrdiff_t most, bool kept, bool backward,
                            std::ptrdiff_t window) noexcept {
  static constexpr Simd<double> none{};
  Arena arena;
  const Run run(none, key_dim, value_dim, most, window, backward || !kept, backward, arena);
  if (backward) Sums(key_dim, value_dim, most, window, run.N, arena);
  return arena.bytes();
}

template <class T>
Status forward(const KernelRegressionProblem<T>& p, const Simd<double>& s, Workspace work) noexcept {
  const bool kept = p.triangle || p.solved || p.factored;
  if (kept && (!p.triangle || !p.solved || !p.factored)) return Status::missing_input;
  Size most;
  if (const Status status = check(p, static_cast<bool>(p.o), kept, &most); status != Status::ok) return status;
  if (!p.o && !kept) return Status::ok;
  const std::size_t bytes =
      workspace_bytes(p.heads, p.key_heads, p.key_dim, p.value_dim, most, kept, false, p.window);
  if (const Status status = pairs::check_workspace(work, bytes); status != Status::ok) return status;
  const FlushDenormals flush;
  Arena arena(work);
  Run run(s, p.key_dim, p.value_dim, most, p.window, !kept, false, arena);
  run.kernel.choose(p.kernel, p.scale, p.bandwidth, p.degree);
  Forward<T> forward(p, run);
  bool good = true;
  pairs::each_sequence(p, [&](std::size_t n) { good = forward.sequence(n) && good; });
  return good ? Status::ok : Status::out_of_domain;
}

#define TTR_INSTANTIATE(T)                                                              \
  template Status check(const KernelRegressionProblem<T>&, bool, bool, Size*) noexcept; \
  template Status forward(const KernelRegressionProblem<T>&, const Simd<double>&, Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::kernel_regression
