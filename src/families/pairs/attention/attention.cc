// Forward, and the checks of a call. Equations: attention.h; the streaming softmax: pairs/stream.h.
#include "families/pairs/attention/attention.h"

#include <algorithm>
#include <cstddef>

#include "families/pairs/attention/scores.h"

namespace ttr::families::attention {

template <class T>
Status check(const AttentionProblem<T>& p, bool backward, Workspace work, pairs::Sizes* sizes) noexcept {
  using pairs::kept;
  pairs::Largest most;
  const auto list = [](const View<const T, 4>& plain, const pairs::CompactRows& compact) {
    return compact ? pairs::KeptList{true, compact.capacity} : kept(plain);
  };
  const pairs::KeptList keys = list(p.past_k, p.compact_k), gates = p.g ? kept(p.past_g) : keys;
  if (const Status status = pairs::check_pairs(p, {keys, list(p.past_v, p.compact_v), gates}, &most);
      status != Status::ok)
    return status;
  if ((p.compact_k || p.compact_v) && (backward || sizeof(T) != 4)) return Status::not_supported;
  if (p.window < 0) return Status::bad_shape;
  if ((!p.causal && ((p.g && p.k) || p.window > 0)) || ((!p.normalise || p.polynomial) && p.sink) ||
      (p.polynomial && p.bandwidth))
    return Status::not_supported;
  if (most.tokens > 0 && (!p.q || (!p.k != !p.v) || (!p.k && p.causal))) return Status::missing_input;
  for (int h = 0; p.bandwidth && h < p.heads; ++h)
    if (!(p.bandwidth(h) > 0)) return Status::out_of_domain;
  *sizes = {p.heads, p.key_heads, p.key_dim, p.value_dim, most.tokens, most.past, p.window};
  return pairs::check_workspace(work, workspace_bytes<T>(p.heads, p.key_heads, p.key_dim, p.value_dim, most.tokens,
                                                         most.past, p.window, backward, p.team.workers()));
}

template <class T>
std::size_t workspace_bytes(int heads, int key_heads, int key_dim, int value_dim, std::ptrdiff_t longest,
                            std::ptrdiff_t past, std::ptrdiff_t window, bool backward, int workers) noexcept {
  const pairs::Sizes sizes{heads, key_heads, key_dim, value_dim, longest, past, window};
  const std::size_t forward = pairs::stream_bytes<T, Scores<T>>(sizes, workers);
  // Whoever keeps o and lse for backward runs forward in the same workspace.
  return backward ? std::max(forward, backward_bytes<T>(sizes, workers)) : forward;
}

template <class T>
Status forward(const AttentionProblem<T>& p, const Simd<T>& s, Workspace work) noexcept {
  pairs::Sizes sizes;
  if (const Status status = check(p, false, work, &sizes); status != Status::ok) return status;
  if (p.o || p.lse) pairs::stream_forward<T, Scores<T>>(p, p.lse, sizes, s, work);
  return Status::ok;
}

#define TTR_INSTANTIATE(T)                                                                                          \
  template Status check(const AttentionProblem<T>&, bool, Workspace, pairs::Sizes*) noexcept;                       \
  template std::size_t workspace_bytes<T>(int, int, int, int, std::ptrdiff_t, std::ptrdiff_t, std::ptrdiff_t, bool, \
                                          int) noexcept;                                                            \
  template Status forward(const AttentionProblem<T>&, const Simd<T>&, Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::attention
