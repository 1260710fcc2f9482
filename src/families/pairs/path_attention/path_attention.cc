// Forward of PaTH attention, and the checks of a call. Equations: path_attention.h; the streaming softmax:
// pairs/stream.h.
#include "families/pairs/path_attention/path_attention.h"

#include <cstddef>

#include "families/pairs/path_attention/scores.h"

namespace ttr::families::path_attention {

template <class T>
Status check(const PathAttentionProblem<T>& p, bool backward, Workspace work, pairs::Sizes* sizes) noexcept {
  using pairs::kept;
  pairs::Largest most;
  const pairs::KeptList gates = p.g ? kept(p.past_g) : kept(p.past_k);
  if (const Status status =
          pairs::check_pairs(p, {kept(p.past_k), kept(p.past_v), kept(p.past_w), kept(p.past_beta), gates}, &most);
      status != Status::ok)
    return status;
  if (most.tokens > 0 && (!p.q || !p.k || !p.v || !p.w || !p.beta)) return Status::missing_input;
  *sizes = {p.heads, p.key_heads, p.key_dim, p.value_dim, most.tokens, most.past};
  return pairs::check_workspace(
      work, workspace_bytes<T>(p.heads, p.key_heads, p.key_dim, p.value_dim, most.tokens, most.past, backward));
}

template <class T>
std::size_t workspace_bytes(int heads, int key_heads, int key_dim, int value_dim, std::ptrdiff_t longest,
                            std::ptrdiff_t past, bool backward) noexcept {
  const pairs::Sizes sizes{heads, key_heads, key_dim, value_dim, longest, past};
  return backward ? backward_bytes<T>(sizes) : pairs::bytes_of<Stream<T>, T>(sizes);
}

template <class T>
Status forward(const PathAttentionProblem<T>& p, const Simd<T>& s, Workspace work) noexcept {
  pairs::Sizes sizes;
  if (const Status status = check(p, false, work, &sizes); status != Status::ok) return status;
  if (p.o) pairs::stream_forward<T, Scores<T>>(p, {}, sizes, s, work);
  return Status::ok;
}

#define TTR_INSTANTIATE(T)                                                                                    \
  template Status check(const PathAttentionProblem<T>&, bool, Workspace, pairs::Sizes*) noexcept;             \
  template std::size_t workspace_bytes<T>(int, int, int, int, std::ptrdiff_t, std::ptrdiff_t, bool) noexcept; \
  template Status forward(const PathAttentionProblem<T>&, const Simd<T>&, Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::path_attention
