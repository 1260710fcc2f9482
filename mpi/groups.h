// Groups of sequences and heads: what a relay hands on at a time. A group is a problem of its own, with a plan of fewer
// sequences and heads, whose tensors are windows on those of the whole (axes by the letters of their shapes).
//
// Traps: packed sequences lie end to end, so that a group of them is a range of tokens. An input without heads or
// sequences belongs to all groups, and its gradient is a sum over them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ttr/plan.h"

namespace ttr::mpi {

struct Group {
  int row = 0, rows = 1;    // sequences
  int head = 0, heads = 1;  // and the same share of key heads:
  int key_head = 0, key_heads = 1;
};

/// How a plan is divided: every group has the same sizes.
struct Groups {
  Shape shape;  // of one
  int by_batch = 1, by_heads = 1;

  /// At least `wanted`, as far as sequences and, if `heads_part`, heads allow.
  static Groups of(const Shape& whole, int wanted, bool heads_part);
  int count() const { return by_batch * by_heads; }
  Group operator[](int i) const {
    const int b = i / by_heads, h = i % by_heads;
    return {b * shape.batch, shape.batch, h * shape.heads, shape.heads, h * shape.key_heads, shape.key_heads};
  }
};

/// Whether heads can be planned for themselves: none of them is told from the others by its number.
bool heads_part(const Plan&);

/// Tokens of a call's packed sequences; empty: they are not packed.
using Packed = std::vector<std::int64_t>;

/// The part of a group of a tensor with this shape; `pairs` are those of a token.
Tensor part_of(Tensor, std::string_view letters, const Group&, const Packed&, int pairs);
ConstTensor part_of(const ConstTensor&, std::string_view letters, const Group&, const Packed&, int pairs);

/// to = from, where both have numbers.
void copy_numbers(const Tensor& from, const Tensor& to);
/// All numbers of a tensor become x.
void fill(const Tensor&, double x);

/// The state of a group, into that of the whole (`gather`) or out of it. Both have been reset or zeroed.
void copy_state(const Plan& whole, State all, const Plan& part, State one, const Group&, bool gather);

}  // namespace ttr::mpi
