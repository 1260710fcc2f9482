// How a call of a family that keeps pairs goes: checks of what all of them are given, then sequence after sequence and
// key head after key head.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>

#include "families/common/replay.h"
#include "families/common/scratch.h"
#include "families/pairs/layout.h"
#include "simd/denormals.h"
#include "ttr/status.h"

namespace ttr::families::pairs {

/// What scratch is laid out for.
struct Sizes {
  int heads, key_heads, key_dim, value_dim;
  Size longest, past, window = 0;  // tokens of the longest sequence, pairs of the largest past
  int group() const { return heads / key_heads; }
};

/// A list that the caller keeps between calls: whether it is there, and the pairs it has room for.
struct KeptList {
  bool there;
  Size capacity;
};
template <class T, std::size_t N>
KeptList kept(const View<const T, N>& list) {
  return {static_cast<bool>(list), list.extent[1]};
}

/// The largest numbers of a call: tokens of a sequence, pairs before it, and both together where there are tokens.
struct Largest {
  Size tokens = 0, past = 0, pairs = 0;
};

/// Sizes, heads, and a past that is there and fits its lists.
template <class T>
Status check_pairs(const PairProblem<T>& p, std::initializer_list<KeptList> lists, Largest* largest) noexcept {
  *largest = {.tokens = longest_of(p.sequences)};
  if (largest->tokens < 0 || p.key_dim < 1 || p.value_dim < 1 || p.heads < 1 || p.key_heads < 1 ||
      p.heads % p.key_heads != 0)
    return Status::bad_shape;
  for (std::size_t n = 0; n < p.sequences.size(); ++n) {
    if (p.past_of(n) < 0) return Status::bad_shape;
    largest->past = std::max(largest->past, p.past_of(n));
    if (p.tokens_of(n) > 0) largest->pairs = std::max(largest->pairs, p.pairs_of(n));
  }
  if (largest->past == 0) return Status::ok;
  for (const KeptList& list : lists)
    if (!list.there) return Status::missing_input;
  for (const KeptList& list : lists)
    if (largest->past > list.capacity) return Status::bad_shape;
  return Status::ok;
}

inline Status check_workspace(Workspace work, std::size_t bytes) noexcept {
  return work.data && work.bytes >= bytes ? Status::ok : Status::small_workspace;
}

/// Bytes that a pass over sequences of these sizes takes from a workspace.
template <class Pass, class T>
std::size_t bytes_of(const Sizes& sizes) {
  static constexpr Simd<T> none{};
  Arena arena;
  Pass(none, sizes, arena);
  return arena.bytes();
}

/// each(n) for every sequence that has tokens.
template <class T, class Each>
void each_sequence(const PairProblem<T>& p, Each&& each) {
  for (std::size_t n = 0; n < p.sequences.size(); ++n)
    if (p.tokens_of(n) > 0) each(n);
}

/// Backward: Pass::run(problem, gradient, sequence, key head) for all of them, in scratch laid out for the sequence.
template <class Pass, class T, class P, class D>
void each_key_head(const P& p, const D& d, Sizes sizes, const Simd<T>& s, Workspace work) {
  const FlushDenormals flush;
  each_sequence(p, [&](std::size_t n) {
    const Layout x = layout_of(p, n);
    Arena arena(work);
    sizes.longest = x.tokens, sizes.past = x.past;
    Pass pass(s, sizes, arena);
    for (int h = 0; h < p.key_heads; ++h) pass.run(p, d, x, h);
  });
}

}  // namespace ttr::families::pairs
