// The part of a kernel step that one task does: some sequences, some heads, or some columns of the values. Sequences,
// heads and, in linear memories, the columns of a state are independent, so every partition gives the same bits. Or a
// segment of one sequence for the heads of one key head, whose states lie beside each other in buffers of their own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ttr {

struct Shard {
  static constexpr int most_parts = 4;  // of the state of a step that is divided by columns

  std::size_t first_sequence = 0, sequences = 0;  // 0: all
  int first_group = 0, groups = 0;                // of key heads; 0: all
  int first_head = 0, heads = 0;                  // of the heads of one key head, groups = 1; 0: all
  int first_column = 0, columns = 0;              // of the values; 0: all
  std::int64_t* counts = nullptr;                 // divided by heads: a copy of the counts at the start of the state
  std::array<void*, most_parts> parts{};          // divided by columns: copies of its columns of the state
  bool copied = false;                            // `parts` is all of the state of the shard: run/compact_state.h
  bool segment = false;                           // of one sequence: tokens begin .. end-1, one group
  std::ptrdiff_t begin = 0, end = 0;
  const bool* outside = nullptr;  // of a segment, per head: known to have a number outside the domain
};

}  // namespace ttr
