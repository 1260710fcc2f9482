// What Form::best is, and how many tokens a chunk has unless the caller says so: a table fitted to measurements.
//
// `ttr bench forms` measures the token loop and chunks of several sizes, forwards and backwards, for states of several
// sizes and for every instruction set of the machine, and writes the table (choice_table.inc). A state is looked up by
// the root of its size: K = 128, V = 64 counts as 91, in the row "up to 128".
#pragma once

#include <cstddef>

#include "ttr/plan.h"

namespace ttr::families {

/// The families that choose: what `ttr bench forms` calls them.
enum class Chooser { decay, delta, gated, gated_delta, dplr, oja, momentum, stabilised };
inline constexpr int choosers = 8;
const char* to_string(Chooser) noexcept;

/// Shorter sequences are recurrent.
inline constexpr std::ptrdiff_t shortest_chunked = 8;

struct Choice {
  Form form;                               // recurrent or chunk
  int chunk;                               // tokens of a chunk, also where Form::chunk is asked for
  std::ptrdiff_t from = shortest_chunked;  // tokens from which on `form` is taken
};

/// `vector_bytes` of the instruction set in use: one of these, or less.
inline constexpr int vector_sizes[] = {16, 32, 64};
Choice choice(Chooser, int vector_bytes, int key_dim, int value_dim, bool backward) noexcept;

/// Whether the table decides about a call of `time` tokens: not about a few, nor what the caller has decided.
constexpr bool chooses(Form form, int chunk, std::ptrdiff_t time) {
  if (form == Form::best) return time >= shortest_chunked;
  return (form == Form::chunk && chunk == 0) || form == Form::scan;
}

/// Tokens that are whole chunks of any choice for a forward pass.
inline constexpr int whole_chunks = 64;

}  // namespace ttr::families
