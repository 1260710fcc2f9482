// The loops over sequences, heads and tiles of queries. Equations: query_fit.h; a tile: tile.h.
#include "families/pairs/query_fit/query_fit.h"

#include <algorithm>
#include <cstddef>

#include "families/pairs/driver.h"
#include "families/pairs/query_fit/tile.h"

namespace ttr::families::query_fit {
namespace {

template <class T>
Status check(const QueryFitProblem<T>& p, bool backward, Workspace work, Size* longest) {
  using pairs::kept;
  pairs::Largest most;
  const auto k = kept(p.past_k);
  if (const Status status = pairs::check_pairs(p,
                                               {k, kept(p.past_v), p.g ? kept(p.past_g) : k,
                                                p.beta ? kept(p.past_beta) : k, p.features > 0 ? kept(p.past_x) : k},
                                               &most);
      status != Status::ok)
    return status;
  *longest = most.pairs;
  if (p.window < 0 || p.features < 0 || p.steps < 1 || p.order < 0 || p.degree < 1) return Status::bad_shape;
  if (p.solve == SolveBy::chebyshev || (p.features > 0 && p.memory != FitMemory::features))
    return Status::not_supported;
  if (most.tokens > 0) {
    if (!p.q || !p.k || !p.v || (p.features > 0 && (!p.x_q || !p.x_k)) ||
        (p.solve == SolveBy::cholesky && !p.ridge) || (p.near == FitNear::gaussian && !p.bandwidth))
      return Status::missing_input;
    if (p.memory == FitMemory::kernel && p.kernel == RegressionKernel::gaussian && !(p.kernel_bandwidth > 0))
      return Status::out_of_domain;
    for (int h = 0; p.near == FitNear::gaussian && h < p.heads; ++h)
      if (!(p.bandwidth(h) > 0)) return Status::out_of_domain;
  }
  return pairs::check_workspace(work, workspace_bytes(p, most.pairs, backward));
}

// each(first query, count) for the tiles of a sequence; what is not a number is met query by query.
template <class T, class Each>
void each_tile(const Tile<T>& tile, Size rows, Size tokens, Each&& each) {
  for (Size t = 0; t < tokens; t += rows) {
    const Size count = std::min(rows, tokens - t);
    if (count == 1 || tile.tame(t, count)) {
      each(t, count);
      continue;
    }
    for (Size i = t; i < t + count; ++i) each(i, Size{1});
  }
}

// What a head adds to a list of numbers, [past | call].
template <class T>
void add_numbers(const double* from, Size past, const Sequence& x, Size n, int head, const View<T, 3>& d_past,
                 const View<T, 3>& d_now) {
  for (Size i = 0; i < past && d_past; ++i) d_past(n, i, head) += static_cast<T>(from[i]);
  for (Size i = 0; i < x.end - x.begin && d_now; ++i)
    d_now(x.row, x.begin + i, head) += static_cast<T>(from[past + i]);
}
template <class T>
void add_vectors(const double* from, Size past, const Sequence& x, Size n, int head, Size dim,
                 const View<T, 4>& d_past, const View<T, 4>& d_now) {
  if (d_past && past > 0) narrow(from, n, 0, past, head, dim, true, d_past);
  if (d_now) narrow(from + past * dim, x.row, x.begin, x.end - x.begin, head, dim, true, d_now);
}

}  // namespace

std::ptrdiff_t monomials(int key_dim, int order) noexcept {
  double count = 1;
  for (int i = 1; i <= order; ++i) count = count * (key_dim + i) / i;
  return static_cast<std::ptrdiff_t>(count + 0.5);
}

template <class T>
std::size_t workspace_bytes(const QueryFitProblem<T>& p, std::ptrdiff_t most, bool backward) noexcept {
  static constexpr Simd<double> none{};
  Arena arena;
  const Tile<T> tile(p, none, sizes_of(p, most, backward), arena);
  return arena.bytes();
}

template <class T>
Status forward(const QueryFitProblem<T>& p, const Simd<double>& s, Workspace work) noexcept {
  Size longest;
  if (const Status status = check(p, false, work, &longest); status != Status::ok) return status;
  if (!p.o) return Status::ok;
  const FlushDenormals flush;
  Arena arena(work);
  const Sizes sizes = sizes_of(p, longest, false);
  Tile<T> tile(p, s, sizes, arena);
  bool good = true;
  pairs::each_sequence(p, [&](std::size_t n) {
    const Sequence& x = p.sequences[n];
    for (int g = 0; g < p.key_heads; ++g) {
      tile.load_pairs(n, g);
      for (int h = g * p.group(); h < (g + 1) * p.group(); ++h) {
        tile.load_weights(n, h);
        each_tile(tile, sizes.rows, x.end - x.begin, [&](Size t, Size count) {
          good = tile.answer(n, h, t, count) && good;
          narrow(tile.o, x.row, x.begin + t, count, h, sizes.V, false, p.o);
        });
      }
    }
  });
  return good ? Status::ok : Status::out_of_domain;
}

template <class T>
Status backward(const QueryFitProblem<T>& p, const QueryFitGradient<T>& d, const Simd<double>& s,
                Workspace work) noexcept {
  Size longest;
  if (const Status status = check(p, true, work, &longest); status != Status::ok) return status;
  if (!d.d_o) return Status::ok;
  const FlushDenormals flush;
  Arena arena(work);
  const Sizes sizes = sizes_of(p, longest, true);
  Tile<T> tile(p, s, sizes, arena);
  bool good = true;
  pairs::each_sequence(p, [&](std::size_t n) {
    const Sequence& x = p.sequences[n];
    const Size past = p.past_of(n), all = p.pairs_of(n), row = static_cast<Size>(n);
    for (int g = 0; g < p.key_heads; ++g) {
      tile.load_pairs(n, g);
      tile.clear_sums(all);
      for (int h = g * p.group(); h < (g + 1) * p.group(); ++h) {
        tile.load_weights(n, h);
        tile.clear_weights(all);
        each_tile(tile, sizes.rows, x.end - x.begin, [&](Size t, Size count) {
          good = tile.answer(n, h, t, count) && good;
          tile.back(d);
        });
        if (p.g) add_numbers(tile.d_gates, past, x, row, h, d.d_past_g, d.d_g);
        if (p.beta) add_numbers(tile.d_factors, past, x, row, h, d.d_past_beta, d.d_beta);
      }
      add_vectors(tile.d_keys, past, x, row, g, sizes.K, d.d_past_k, d.d_k);
      add_vectors(tile.d_values, past, x, row, g, sizes.V, d.d_past_v, d.d_v);
      if (sizes.given) add_vectors(tile.d_given, past, x, row, g, sizes.F, d.d_past_x, d.d_x_k);
    }
  });
  return good ? Status::ok : Status::out_of_domain;
}

#define TTR_INSTANTIATE(T)                                                                             \
  template std::size_t workspace_bytes(const QueryFitProblem<T>&, std::ptrdiff_t, bool) noexcept;      \
  template Status forward(const QueryFitProblem<T>&, const Simd<double>&, Workspace) noexcept;         \
  template Status backward(const QueryFitProblem<T>&, const QueryFitGradient<T>&, const Simd<double>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::query_fit
