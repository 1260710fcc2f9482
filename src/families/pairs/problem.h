// What the problems of all families that keep their pairs have in common, and their gradients.
//
// q [B, T, H, K], k [B, T, G, K], v [B, T, G, V]; query head h reads key head h / (H/G). A sequence of queries has the
// pairs of earlier calls (the past) and, after them, those of this call. The past is only read: whoever owns the list
// of pairs appends to it. What is kept of a value is the family's own matter (DeltaFormer keeps corrected ones, per
// query head), so the lists besides past_k are declared there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "families/common/linear.h"
#include "families/common/team.h"
#include "ttr/view.h"

namespace ttr::families {

template <class T>
struct PairProblem {
  std::span<const Sequence> sequences;  // sequence n owns row n of the past
  int heads = 1, key_heads = 1;
  int key_dim = 1, value_dim = 1;

  View<const T, 4> q;     // [B, T, H, K]
  View<const T, 4> k, v;  // [B, T, G, K], [B, T, G, V]

  View<const T, 4> past_k;                   // [N, capacity, G, K], oldest first
  const std::int64_t* past_count = nullptr;  // [N] pairs that are there; null = none

  View<T, 4> o;  // [B, T, H, V]; no data = not wanted

  Team team = {};  // who works on it, of families that divide queries or pairs

  int group() const { return heads / key_heads; }  // query heads of a key head
  std::ptrdiff_t past_of(std::size_t n) const { return past_count ? static_cast<std::ptrdiff_t>(past_count[n]) : 0; }
  std::ptrdiff_t tokens_of(std::size_t n) const { return sequences[n].end - sequences[n].begin; }
  std::ptrdiff_t pairs_of(std::size_t n) const { return past_of(n) + (k ? tokens_of(n) : 0); }
};

/// `d_o` comes in, the others go out and are *added to* (+=). Views without data are not wanted.
template <class T>
struct PairGradient {
  View<const T, 4> d_o;  // [B, T, H, V]; no data = zero
  View<T, 4> d_q, d_k, d_v;
  View<T, 4> d_past_k;
};

}  // namespace ttr::families
