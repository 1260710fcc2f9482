// What the planning glue of elementwise families shares: kernels that know no heads run one sequence and head at a time,
// so that a state is [B, H, V].
#pragma once

#include "families/common/linear_plan.h"

namespace ttr::families {

inline constexpr std::string_view elementwise_state =
    "the state is elementwise, so a block of tokens holds no matrix product; the scan is the form for long sequences";

// Calls run(sequence, head, offset of its share of a state [B, H, size]) until one fails.
template <class T, class Run>
Status for_each_head(const KernelArgs<T>& o, std::ptrdiff_t size, Run&& run) noexcept {
  const std::span<const Sequence> all = o.sequences();
  const int H = o.heads();
  for (std::size_t n = 0; n < all.size(); ++n)
    for (int h = 0; h < H; ++h)
      if (const Status s = run(all.subspan(n, 1), h, (static_cast<std::ptrdiff_t>(n) * H + h) * size);
          s != Status::ok)
        return s;
  return Status::ok;
}

// A slot that pauses: a forward call has nothing to do for it.
inline bool pauses(std::span<const Sequence> one) { return one.front().begin == one.front().end; }

// Tokens of a segment of a scan, or between kept states.
inline int chunk_of(const Plan::Body& body, Form form) {
  return form == Form::scan ? body.options.chunk : body.chunk;
}

template <class N>
N* offset(N* data, std::ptrdiff_t by) {
  return data ? data + by : nullptr;
}

// One head of a view over heads.
template <class N>
View<N, 3> head_of(const View<N, 4>& view, int head) {
  return {offset(view.data, head * view.stride[2]),
          {view.extent[0], view.extent[1], view.extent[3]},
          {view.stride[0], view.stride[1], view.stride[3]}};
}

}  // namespace ttr::families
