// Forward: the factor of a sequence's pairs, then its queries 64 at a time. One new token, and every token that
// pushes a pair out of the window, in one sweep over the factor.
#include "families/pairs/kernel_regression/kernel_regression.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "families/pairs/kernel_regression/run.h"
#include "families/common/replay.h"
#include "simd/denormals.h"

namespace ttr::families::kernel_regression {

template <class T>
Status check(const KernelRegressionProblem<T>& p, bool queries, bool kept, Size* pairs) noexcept {
  const Size longest = longest_of(p.sequences);
  if (longest < 0 || p.key_dim < 1 || p.value_dim < 1 || p.heads < 1 || p.key_heads < 1 ||
      p.heads % p.key_heads != 0 || p.window < 0 || (p.kernel == RegressionKernel::polynomial && p.degree < 1))
    return Status::bad_shape;
  if (p.kernel == RegressionKernel::gaussian && !(p.bandwidth > 0)) return Status::out_of_domain;
  if (!p.causal && p.window > 0) return Status::not_supported;
  if (longest > 0 && (!p.ridge || (queries && !p.q) || (!p.k != !p.v) || (!p.k && p.causal)))
    return Status::missing_input;
  if (kept && longest > 0 && own_systems(p)) return Status::not_supported;
  *pairs = 0;
  for (std::size_t n = 0; n < p.sequences.size(); ++n) {
    const Size past = past_of(p, n);
    if (past < 0) return Status::bad_shape;
    if (past > 0 && (!p.past_k || !p.past_v)) return Status::missing_input;
    if (past > 0 && (past > p.past_k.extent[1] || past > p.past_v.extent[1])) return Status::bad_shape;
    if (p.sequences[n].end == p.sequences[n].begin) continue;
    *pairs = std::max(*pairs, pairs_of(p, n));
    if (kept && seen_of(pairs_of(p, n), p.window) > p.factor_capacity) return Status::state_full;
    if (kept && p.factored[n] < 0) return Status::out_of_domain;
    if (own_systems(p)) continue;
    const int group = p.heads / p.key_heads;
    for (int h = 0; h < p.heads; ++h) {
      const T ridge = p.ridge(p.sequences[n].row, p.sequences[n].begin, h);
      if (!(ridge > 0)) return Status::out_of_domain;
      if (p.shared && ridge != p.ridge(p.sequences[n].row, p.sequences[n].begin, h / group * group))
        return Status::out_of_domain;
    }
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
    const Size tokens = x.end - x.begin, past = past_of(p, n), all = pairs_of(p, n);
    // With a window the factor that is kept is that of the pairs the last query saw, or of no use.
    Size there = p.factored ? std::min(past, static_cast<Size>(p.factored[n])) : 0;
    if (p.window > 0 && (!p.factored || p.factored[n] != seen_of(past, p.window))) there = 0;
    const Size from = p.window == 0 ? 0 : there > 0 ? past - there : std::max<Size>(0, past + 1 - p.window);
    const bool one_by_one = tokens == 1 && p.causal;
    for (int g = 0; g < p.key_heads; ++g) {
      run.load(p, n, g);
      int lane = g * (p.shared ? 1 : p.heads / p.key_heads);
      run.walk(
          p, n, g, from, one_by_one,
          [&](const System& needed) {
            system = needed;
            attach(n, lane++, there);
            run.grow(system, system.count);
          },
          [&](const Queries& queries) {
            if (p.o) many(queries);
          },
          [&](int head, int heads, Size t) {
            run.slide(system, p.window, past + t);
            if (p.o) one(head, heads, t);
            else run.grow(system, system.count + 1);
          },
          [&](int head, Size t) {
            good = false;
            if (p.o)
              for (int j = 0; j < p.value_dim; ++j)
                p.o(x.row, x.begin + t, head, j) = std::numeric_limits<T>::quiet_NaN();
          });
    }
    if (p.factored && tokens > 0) p.factored[n] = seen_of(all, p.window);
    return good;
  }

 private:
  void attach(std::size_t n, int lane, Size there) {
    if (!p.triangle) return run.factor.attach(run.triangle, run.solved, 0);
    const Size at = static_cast<Size>(n) * (p.shared ? p.key_heads : p.heads) + lane, room = p.factor_capacity;
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

  // The new pair and, of the heads that share its factor, the queries: the factor is read once for all of them.
  void one(int head, int heads, Size t) {
    const Size old = system.count, N = run.N;
    const double *const keys = run.keys + system.first * run.K, *const newest = keys + old * run.K;
    for (int r = 0; r < heads; ++r) widen(p.q, x.row, x.begin + t, 1, head + r, run.K, run.q + r * run.K);
    run.kernel.values(1, old, newest, keys, run.X, N);
    run.kernel.values(heads, old + 1, run.q, keys, run.X + N, N);
    run.factor.lower(old, 1 + heads, run.X, N);
    double block;
    run.kernel.values(1, 1, newest, newest, &block, 1);
    run.factor.append(1, system.ridge, run.X, N, &block, 1, run.values + (system.first + old) * run.V);
    for (int r = 0; r < heads; ++r) {
      double* const y = run.X + (1 + r) * N;
      run.factor.finish(y);
      s.vec_mat(old + 1, run.V, y, run.factor.values(), run.V, run.o);
      narrow(run.o, x.row, x.begin + t, 1, head + r, run.V, false, p.o);
    }
  }

  const KernelRegressionProblem<T>& p;
  Run& run;
  const Simd<double>& s;
  Sequence x{};
  System system;
};

}  // namespace

std::size_t workspace_bytes(int heads, int key_heads, int key_dim, int value_dim, std::ptrdiff_t pairs, bool kept,
                            bool backward, std::ptrdiff_t window) noexcept {
  static constexpr Simd<double> none{};
  Arena arena;
  const Run run(none, heads, key_heads, key_dim, value_dim, pairs, window, backward || !kept, backward, arena);
  if (backward) Sums(key_dim, value_dim, pairs, window, run.N, arena);
  return arena.bytes();
}

template <class T>
Status forward(const KernelRegressionProblem<T>& p, const Simd<double>& s, Workspace work) noexcept {
  const bool kept = p.triangle || p.solved || p.factored;
  if (kept && (!p.triangle || !p.solved || !p.factored)) return Status::missing_input;
  Size pairs;
  if (const Status status = check(p, static_cast<bool>(p.o), kept, &pairs); status != Status::ok) return status;
  if (!p.o && !kept) return Status::ok;
  if (!work.data ||
      work.bytes < workspace_bytes(p.heads, p.key_heads, p.key_dim, p.value_dim, pairs, kept, false, p.window))
    return Status::small_workspace;
  const FlushDenormals flush;
  Arena arena(work);
  Run run(s, p.heads, p.key_heads, p.key_dim, p.value_dim, pairs, p.window, !kept, false, arena);
  run.kernel.choose(p);
  Forward<T> forward(p, run);
  bool good = true;
  for (std::size_t n = 0; n < p.sequences.size(); ++n)
    if (p.sequences[n].end > p.sequences[n].begin) good = forward.sequence(n) && good;
  return good ? Status::ok : Status::out_of_domain;
}

#define TTR_INSTANTIATE(T)                                                              \
  template Status check(const KernelRegressionProblem<T>&, bool, bool, Size*) noexcept; \
  template Status forward(const KernelRegressionProblem<T>&, const Simd<double>&, Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::kernel_regression
