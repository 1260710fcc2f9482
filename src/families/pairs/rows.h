// Rows of the caller in double, and back, for the families that solve in double whatever the caller's type is; and
// tiles of tokens of a sequence.
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/pairs/layout.h"

namespace ttr::families::pairs {

/// out [count, dim] = x[row, begin .. begin+count-1, head, :]
template <class T>
void widen(const View<const T, 4>& x, Size row, Size begin, Size count, int head, Size dim, double* out) {
  const T* from = x.data + row * x.stride[0] + begin * x.stride[1] + head * x.stride[2];
  for (Size i = 0; i < count; ++i, from += x.stride[1], out += dim)
    for (Size j = 0; j < dim; ++j) out[j] = static_cast<double>(from[j * x.stride[3]]);
}
/// x[row, begin .. begin+count-1, head, :] = in [count, dim], or += with `add`
template <class T>
void narrow(const double* in, Size row, Size begin, Size count, int head, Size dim, bool add, const View<T, 4>& x) {
  T* to = x.data + row * x.stride[0] + begin * x.stride[1] + head * x.stride[2];
  for (Size i = 0; i < count; ++i, to += x.stride[1], in += dim)
    for (Size j = 0; j < dim; ++j) {
      T& y = to[j * x.stride[3]];
      y = static_cast<T>(add ? static_cast<double>(y) + in[j] : in[j]);
    }
}

/// Of families whose queries see the pairs of a sequence of their own: those of query sequence n.
template <class P>
const Sequence& keys_of(const P& p, std::size_t n) {
  return p.key_sequences.empty() ? p.sequences[n] : p.key_sequences[n];
}
/// each(first token, count) for the tokens of a sequence, 64 at a time
template <class Each>
void each_tile(const Sequence& n, Each&& each) {
  for (Size t = n.begin; t < n.end; t += block_size) each(t, std::min(block_size, n.end - t));
}

}  // namespace ttr::families::pairs
