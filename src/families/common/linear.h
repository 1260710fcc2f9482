// The problem every linear-memory family solves, and its gradient: one state S [K, V] per sequence and head.
//
// A kernel sees canonical tensors only. It knows no layer names; a gate exists if its view has data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "families/common/saved.h"
#include "families/common/team.h"
#include "ttr/plan.h"
#include "ttr/view.h"

namespace ttr::families {

template <class T>
struct LinearProblem {
  std::span<const Sequence> sequences;  // sequence n owns state n
  int heads, key_heads;                 // value head h reads q and k of head h / (heads / key_heads)
  int key_dim, value_dim;
  T scale = 1;                 // on q
  View<const T, 4> q, k;       // [B, T, G, K]
  View<const T, 4> v;          // [B, T, H, V]
  View<const T, 3> g;          // [B, T, H] natural log of the decay; no data = 0. Strides may be zero.
  View<const T, 3> beta;       // [B, T, H]; no data = 1
  T* state;                    // [N, H, K, V] contiguous, start in, end out
  View<T, 4> o;                // [B, T, H, V]; no data = outputs not wanted
  View<const T, 1> skip = {};  // [H]: o has skip v too (Traits::adds_skip); no data = 0
  int chosen_by = 0;  // columns by which form and chunk are chosen: of all, where these are a part; 0: value_dim
  Team team = {};     // who works on it
  bool of_factors =
      false;  // g are logs of factors that are inputs: d_g is divided by them, however small, and must be exact
  Saving<T> saving = {};  // forward: what backward will want; backward: what forward has left
  int value_dim_of_choice() const { return chosen_by ? chosen_by : value_dim; }
};

/// Gradients: `d_o` and `d_final` come in, the others go out. Views without data are not wanted.
/// Output gradients are *added to* (+=); the caller clears them, but for those that are `fresh`: these hold nothing yet, and
/// whoever comes first to a row clears it. They have a row of their own for every token and head (key head).
template <class T>
struct LinearGradient {
  View<const T, 4> d_o;        // [B, T, H, V]; no data = zero
  const T* d_final = nullptr;  // [N, H, K, V]; null = zero
  View<T, 4> d_q, d_k, d_v;
  View<T, 3> d_g, d_beta;  // full strides (a constant gate is summed by the caller)
  T* d_initial = nullptr;  // [N, H, K, V]
  enum Fresh : unsigned { fresh_q = 1, fresh_k = 2, fresh_v = 4, fresh_gk = 8, fresh_a = 16, fresh_b = 32 };
  unsigned fresh = 0;
};

}  // namespace ttr::families
