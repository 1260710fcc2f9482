// The table, and the search in it: by family, size of a vector, and size of the state.
#include "families/common/choice.h"

#include <iterator>

namespace ttr::families {
namespace {

struct Row {
  Chooser family;
  int vector_bytes;
  int up_to;  // root of K V
  Choice forward, backward;
};

constexpr Form chunk = Form::chunk, recurrent = Form::recurrent;
constexpr Row rows[] = {
#include "families/common/choice_table.inc"
};

// The rows of a family for vectors of a size, one behind the other: a step of one token asks too often to search them
// all. Of the widest vectors that are not wider, or the narrowest.
struct Range {
  int first = 0, end = 0;
};
struct Index {
  Range of[choosers][std::size(vector_sizes)];
};
constexpr Index index = [] {
  Index all;
  constexpr int count = static_cast<int>(std::size(rows));
  for (int family = 0; family < choosers; ++family)
    for (std::size_t size = 0; size < std::size(vector_sizes); ++size) {
      int width = 0;
      const auto better = [&](int bytes) { return bytes <= vector_sizes[size] ? bytes > width : width == 0; };
      for (const Row& row : rows)
        if (static_cast<int>(row.family) == family && better(row.vector_bytes)) width = row.vector_bytes;
      const auto found = [&](int i) {
        return static_cast<int>(rows[i].family) == family && rows[i].vector_bytes == width;
      };
      Range& range = all.of[family][size];
      while (range.first < count && !found(range.first)) ++range.first;
      for (range.end = range.first; range.end < count && found(range.end);) ++range.end;
    }
  return all;
}();
static_assert(
    [] {
      for (const auto& family : index.of)
        for (const Range& range : family)
          if (range.first == range.end) return false;
      return true;
    }(),
    "every family has rows in choice_table.inc");

}  // namespace

const char* to_string(Chooser family) noexcept {
  constexpr const char* names[choosers] = {"decay", "delta", "gated",    "gated_delta",
                                           "dplr",  "oja",   "momentum", "stabilised"};
  return names[static_cast<int>(family)];
}

// Of the smallest state that is not smaller, or the largest.
Choice choice(Chooser family, int vector_bytes, int key_dim, int value_dim, bool backward) noexcept {
  std::size_t size = 0;
  while (size + 1 < std::size(vector_sizes) && vector_sizes[size + 1] <= vector_bytes) ++size;
  const Range range = index.of[static_cast<int>(family)][size];
  int row = range.first;  // small states first
  while (row + 1 < range.end && rows[row].up_to * rows[row].up_to < key_dim * value_dim) ++row;
  return backward ? rows[row].backward : rows[row].forward;
}

}  // namespace ttr::families
