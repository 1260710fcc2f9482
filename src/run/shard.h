// The part of a kernel step that one task does: some sequences, some heads, or some columns of the values. Sequences,
// heads and, in linear memories, the columns of a state are independent, so every partition gives the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ttr {

struct Shard {
  static constexpr int most_parts = 4;  // of the state of a step that is divided by columns

  std::size_t first_sequence = 0, sequences = 0;  // 0: all
  int first_group = 0, groups = 0;                // of key heads; 0: all
  int first_column = 0, columns = 0;              // of the values; 0: all
  std::int64_t* counts = nullptr;                 // divided by heads: a copy of the counts at the start of the state
  std::array<void*, most_parts> parts{};          // divided by columns: copies of its columns of the state
};

}  // namespace ttr
