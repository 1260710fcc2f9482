// Forward: per tile of queries the weights and their means, the slopes, then one more pass over the keys.
#include "families/pairs/local_linear/local_linear.h"

#include <algorithm>
#include <cstddef>

#include "families/pairs/local_linear/run.h"

namespace ttr::families::local_linear {
namespace {

template <class T>
bool forward_head(const LocalLinearProblem<T>& p, const Sequence& n, int head, Run<T>& run) {
  Block<T>& block = run.block;
  bool good = true;
  for (Size first = 0; first < n.end - n.begin; first += tile_size) {
    good = block.load(p, n, head, first, run.solver.wants_query(p, first)) && good;
    if (p.slope) run.take_slope(p, n, head);
    else if (p.order == 2) good = run.quadratic.solve(block, nullptr, run.r2, nullptr) && good;
    else {
      const System<T> system{block.rhs, run.r, nullptr, tolerance<T>(false)};
      good = run.solver.solve(block, &system, 1) && good;
    }
    std::fill_n(run.values, block.rows * p.value_dim, T(0));
    for (Size t = block.first; t < block.tiles; ++t) run.read_values(p, t);
    unpack(run.values, n.row, n.begin + first, block.rows, head, p.value_dim, p.o);
  }
  return good;
}

}  // namespace

template <class T>
std::size_t workspace_bytes(int key_dim, int value_dim, int order, std::ptrdiff_t longest, std::ptrdiff_t window,
                            bool backward) noexcept {
  static constexpr Simd<T> none{};
  static constexpr Simd<double> no_wide{};
  Arena arena;
  Run<T> run(none, no_wide, key_dim, value_dim, order, longest, window, backward, arena);
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
  Run<T> run(s, wide_table(s, wide), p.key_dim, p.value_dim, p.order, longest, p.window, false, arena);
  bool good = true;
  pairs::each_sequence(p, [&](std::size_t n) {
    for (int g = 0; g < p.key_heads; ++g) {
      run.pairs.load(p, n, g, p.order == 1 && p.tokens_of(n) == 1);
      for (int h = g * p.group(); h < (g + 1) * p.group(); ++h)
        good = forward_head(p, p.sequences[n], h, run) && good;
    }
  });
  return good ? Status::ok : Status::out_of_domain;
}

#define TTR_INSTANTIATE(T)                                                                               \
  template std::size_t workspace_bytes<T>(int, int, int, std::ptrdiff_t, std::ptrdiff_t, bool) noexcept; \
  template Status forward(const LocalLinearProblem<T>&, const Simd<T>&, Workspace, const Simd<double>*) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::local_linear
