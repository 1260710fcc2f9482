// What Form::best is, and how many tokens a chunk has unless the caller says so: a table fitted to measurements.
//
// `ttr bench forms` measures the token loop and chunks of several sizes, forwards and backwards, for states of several
// sizes and for every instruction set of the machine, and writes the table (choice_table.inc). A state is looked up by
// the root of its size: K = 128, V = 64 counts as 91, in the row "up to 128".
#pragma once

#include <cstddef>
#include <iterator>
#include <string_view>

#include "ttr/plan.h"

namespace ttr::families {

/// Shorter sequences are recurrent.
inline constexpr std::ptrdiff_t shortest_chunked = 8;

struct Choice {
  Form form;                               // recurrent or chunk
  int chunk;                               // tokens of a chunk, also where Form::chunk is asked for
  std::ptrdiff_t from = shortest_chunked;  // tokens from which on `form` is taken
};

namespace detail {
struct ChoiceRow {
  std::string_view family;
  int vector_bytes;
  int up_to;  // root of K V
  Choice forward, backward;
};
inline constexpr Form chunk = Form::chunk, recurrent = Form::recurrent;
inline constexpr ChoiceRow choice_rows[] = {
#include "families/common/choice_table.inc"
};
}  // namespace detail

/// The rows of a family in the table, by its name there: `constexpr Tuned rows("delta")`. A name that the table does not
/// have does not compile.
struct Tuned {
  int first = 0, end = 0;
  consteval explicit Tuned(std::string_view family) {
    constexpr int count = static_cast<int>(std::size(detail::choice_rows));
    while (first < count && detail::choice_rows[first].family != family) ++first;
    for (end = first; end < count && detail::choice_rows[end].family == family;) ++end;
    if (first == end) throw "no rows of this family in choice_table.inc";
  }
};

/// `vector_bytes` of the instruction set in use: one of these, or less.
inline constexpr int vector_sizes[] = {16, 32, 64};
Choice choice(const Tuned&, int vector_bytes, int key_dim, int value_dim, bool backward) noexcept;

/// Whether the table decides about a call of `time` tokens: not about a few, nor what the caller has decided.
constexpr bool chooses(Form form, int chunk, std::ptrdiff_t time) {
  if (form == Form::best) return time >= shortest_chunked;
  return (form == Form::chunk && chunk == 0) || form == Form::scan;
}

/// Tokens that are whole chunks of any choice for a forward pass.
inline constexpr int whole_chunks = 64;

}  // namespace ttr::families
