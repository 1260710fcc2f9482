#include "families/common/choice.h"

#include <algorithm>

namespace ttr::families {

static_assert(
    [] {
      for (std::size_t i = 1; i < std::size(detail::choice_rows); ++i) {
        const detail::ChoiceRow &a = detail::choice_rows[i - 1], &b = detail::choice_rows[i];
        if (a.family != b.family) continue;
        if (a.vector_bytes > b.vector_bytes || (a.vector_bytes == b.vector_bytes && a.up_to >= b.up_to)) return false;
      }
      return true;
    }(),
    "the rows of a family in choice_table.inc are sorted");

static_assert(std::all_of(std::begin(detail::choice_rows), std::end(detail::choice_rows),
                          [](const detail::ChoiceRow& row) { return row.forward.from > 1; }),
              "one token is recurrent");

// The rows of a family are sorted by the size of a vector, then by that of the state. Of the widest vectors that are not
// wider, or the narrowest; of the smallest state that is not smaller, or the largest.
Choice choice(const Tuned& tuned, int vector_bytes, int key_dim, int value_dim, bool backward) noexcept {
  const detail::ChoiceRow* const rows = detail::choice_rows;
  int first = tuned.first;
  for (int i = tuned.first; i < tuned.end && rows[i].vector_bytes <= vector_bytes; ++i)
    if (rows[i].vector_bytes != rows[first].vector_bytes) first = i;
  int row = first;
  while (row + 1 < tuned.end && rows[row + 1].vector_bytes == rows[first].vector_bytes &&
         rows[row].up_to * rows[row].up_to < key_dim * value_dim)
    ++row;
  return backward ? rows[row].backward : rows[row].forward;
}

}  // namespace ttr::families
