// How a token writes into the state; the one thing in which the scalar-decay families differ.
#pragma once

namespace ttr::families {

enum class Rule {
  add,              // u = beta v
  delta,            // u = beta (v - e^g S' k)
  delta_undecayed,  // u = beta (v - S' k)
};

constexpr bool reads(Rule rule) { return rule != Rule::add; }

}  // namespace ttr::families
