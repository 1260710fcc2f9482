// Forward: per tile of queries the weights and their means, the slopes, then one more pass over the keys.
#include "families/pairs/local_linear/local_linear.h"

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "families/pairs/local_linear/run.h"

namespace ttr::families::local_linear {
namespace {

// Queries 64 number .. of a head, the r-th of its key head. False: not all of them have an answer.
template <class T>
bool forward_block(const LocalLinearProblem<T>& p, const Sequence& n, int r, Size number, Crew<T>& crew, int worker) {
  Run<T>& run = crew.of(worker);
  Block<T>& block = run.block;
  const int head = run.pairs.key_head * p.group() + r;
  const Size first = number * tile_size;
  bool good = block.load(p, n, head, first, run.solver.wants_query(p, crew.whole.findings.before(r, number)));
  if (p.slope) run.take_slope(p, n, head);
  else if (p.order == 2) good = run.quadratic.solve(block, nullptr, run.r2, nullptr) && good;
  else {
    const System<T> system{block.rhs, run.r, nullptr, tolerance<T>(false)};
    good = run.solver.solve(block, &system, 1) && good;
  }
  if (Findings::leads(number)) crew.whole.findings.tell(r, number, run.solver.finding());
  std::fill_n(run.values, block.rows * p.value_dim, T(0));
  for (Size t = block.first; t < block.tiles; ++t) run.read_values(p, t);
  unpack(run.values, n.row, n.begin + first, block.rows, head, p.value_dim, p.o);
  return good;
}

}  // namespace

template <class T>
std::size_t workspace_bytes(int key_dim, int value_dim, int order, int group, std::ptrdiff_t longest,
                            std::ptrdiff_t window, bool backward, int workers) noexcept {
  static constexpr Simd<T> none{};
  static constexpr Simd<double> no_wide{};
  Arena arena;
  Crew<T> crew(none, no_wide, key_dim, value_dim, order, group, longest, window, backward, workers, arena);
  return arena.bytes();
}

template <class T>
Status forward(const LocalLinearProblem<T>& p, const Simd<T>& s, Workspace work, const Simd<double>* wide) noexcept {
  const bool answers = static_cast<bool>(p.o);
  Size longest;
  if (const Status status = check(p, answers, false, work, &longest); status != Status::ok) return status;
  if (!answers) return Status::ok;
  const FlushDenormals flush;
  Arena arena(work);
  Crew<T> crew(s, wide_table(s, wide), p.key_dim, p.value_dim, p.order, p.group(), longest, p.window, false,
               p.team.workers(), arena);
  std::atomic<bool> good = true;
  pairs::each_sequence(p, [&](std::size_t n) {
    const Sequence& sequence = p.sequences[n];
    const Size blocks = blocks_of(sequence);
    for (int g = 0; g < p.key_heads; ++g) {
      crew.whole.pairs.load(p, n, g, p.order == 1 && p.tokens_of(n) == 1);
      crew.whole.findings.forget();
      p.team.each(p.group() * blocks, [&](Size part, int worker) {
        const FlushDenormals own_flush;
        if (!forward_block(p, sequence, static_cast<int>(part / blocks), part % blocks, crew, worker)) good = false;
      });
    }
  });
  return good ? Status::ok : Status::out_of_domain;
}

#define TTR_INSTANTIATE(T)                                                                                         \
  template std::size_t workspace_bytes<T>(int, int, int, int, std::ptrdiff_t, std::ptrdiff_t, bool, int) noexcept; \
  template Status forward(const LocalLinearProblem<T>&, const Simd<T>&, Workspace, const Simd<double>*) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::local_linear
