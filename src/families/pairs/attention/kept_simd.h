// One query of every head through the keys and values that a state keeps, compiled once per instruction set. They may be
// in fewer bytes than float (Options::state_type) and are widened as they are loaded: what is read from memory is what is
// kept.
//
//   const KeptSimd& c = kept_simd(simd<float>(""));
//
// A pair's rows of all heads lie side by side, and pairs go from one to the next as they lie: memory is read in order.
#pragma once

#include <cstddef>

#include "simd/simd.h"
#include "ttr/view.h"

namespace ttr {

struct KeptSimd {
  using Size = std::ptrdiff_t;

  /// The rows of n pairs and `heads` key heads, [n, heads, dim].
  struct Rows {
    Type type;  // f32, bf16, f16 or i8
    Size n, heads, dim;
    const void* data;
    Size next;                      // numbers from a pair to the next
    const float* scales = nullptr;  // i8: what the numbers of a row are multiples of, [n, heads]
    Size next_scale = 0;            // scales from a pair to the next
  };

  /// S_hi = q_h . x_i, or with `apart` |q_h - x_i|^2, for the `group` queries of every key head: q [heads group, dim],
  /// S [heads group, lds]. The rows `ahead` (none: n = 0) will be read next; they are fetched meanwhile.
  void (*scores)(const Rows&, Size group, bool apart, const float* q, float* S, Size lds, const Rows& ahead);
  /// acc_h += sum_i W_hi x_i, acc [heads group, dim]
  void (*add)(const Rows&, Size group, const float* W, Size ldw, float* acc, const Rows& ahead);
};

/// The table for the instruction set of `simd`. Does not allocate.
const KeptSimd& kept_simd(const Simd<float>& simd) noexcept;
/// Its twin that counts multiply-adds (simd/count.h).
const KeptSimd& counted_table(const KeptSimd&) noexcept;

}  // namespace ttr
