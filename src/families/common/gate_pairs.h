// The gradient of scalar gates g_1 .. g_c inside a chunk, from what passes through them.
//
//   M_rj (j < r)   d loss / d log of the factor between the writer of token j and the reader of token r
//   from_start_r   the same between the state at the start and reader r;  to_end_j: between writer j and the end state
//   across         between the start and the end
//
//   dg_i = across + sum_{r >= i} from_start_r + sum_{j < i} to_end_j + sum_{j < i <= r} M_rj
//
// This is a sum over exactly the pairs that gate i stands between. The usual identity, the reverse cumulative sum of
// rowsum(M) - colsum(M), also has the pairs on one side of the gate, a token's own pair among them, in both sums:
// under gates of -15 what is left when they cancel is their rounding.
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/common/scratch.h"
#include "simd/simd.h"

namespace ttr::families {

template <class T>
class GatePairs {
 public:
  using Size = std::ptrdiff_t;

  GatePairs() = default;
  GatePairs(Size chunk, Arena& arena) {
    for (T** x : {&from_start, &to_end, &passing}) *x = arena.take<T>(chunk);
  }

  T *from_start = nullptr, *to_end = nullptr;  // [c], the caller's to fill

  /// add(i, dg_i) for i = c-1 .. 0; of M [c, c] only what lies below the diagonal is read.
  template <class Add>
  void gradient(const Simd<T>& s, Size c, const T* M, Size ldm, double across, Add&& add) const {
    s.pair_sums(c, M, ldm, to_end, passing);
    double read = across;
    for (Size i = c; i-- > 0;) {
      read += static_cast<double>(from_start[i]);
      add(i, static_cast<T>(read + static_cast<double>(passing[i])));
    }
  }

 private:
  T* passing = nullptr;  // of writers in front of a gate to readers behind it, and to the end
};

}  // namespace ttr::families
