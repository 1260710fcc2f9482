// How a token writes into the state; the one thing in which the scalar-decay families differ.
#pragma once

#include <cstddef>

namespace ttr::families {

enum class Rule {
  add,              // u = beta v
  delta,            // u = beta (v - e^g S' k)
  delta_undecayed,  // u = beta (v - S' k)
};

constexpr bool reads(Rule rule) { return rule != Rule::add; }

/// Whether a decayed sum S [K,V] is made to go backwards by sweeps (swept_gradient.h), which read no states: registers hold
/// groups of four tokens, and a state is small. Measured a fifth faster than products at K = V = 64, not at all at 128.
constexpr bool has_swept_gradient(std::ptrdiff_t key_dim, std::ptrdiff_t value_dim, std::ptrdiff_t vector_bytes,
                                  std::ptrdiff_t number_bytes) {
  constexpr std::ptrdiff_t least_vector = 64, largest_state = 32 * 1024;  // bytes
  return vector_bytes >= least_vector && key_dim * value_dim * number_bytes <= largest_state;
}

}  // namespace ttr::families
