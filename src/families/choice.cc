#include "families/choice.h"

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
#include "families/choice_table.inc"
};

}  // namespace

const char* to_string(Chooser family) noexcept {
  constexpr const char* names[choosers] = {"decay", "delta", "gated",    "gated_delta",
                                           "dplr",  "oja",   "momentum", "stabilised"};
  return names[static_cast<int>(family)];
}

// Of the widest vectors that are not wider, or the narrowest; of the smallest state that is not smaller, or the
// largest.
Choice choice(Chooser family, int vector_bytes, int key_dim, int value_dim, bool backward) noexcept {
  int width = 0;
  for (const Row& row : rows)
    if (row.family == family && (row.vector_bytes <= vector_bytes ? row.vector_bytes > width : width == 0))
      width = row.vector_bytes;
  const Row* found = nullptr;
  const auto holds = [&](const Row& row) { return row.up_to * row.up_to >= key_dim * value_dim; };
  for (const Row& row : rows) {  // small states first
    if (row.family != family || row.vector_bytes != width) continue;
    if (!found || !holds(*found)) found = &row;
  }
  return backward ? found->backward : found->forward;
}

}  // namespace ttr::families
