// Which weights by age go together with what: `power(a)`, `given(n)` and `mask(n)` weigh the pairs of the past, so they
// need a solver that sees them, and a memory whose state is not written once for all ages.
#include "recipe/combine.h"
#include "recipe/words.h"

namespace ttr {

void check_ages(const Recipe& recipe, const Design& d) {
  const Weights& w = d.weights;
  for (const Term& term : recipe.weights) {
    const bool given = term.word == "given" || term.word == "mask";
    if (!given && term.word != "power") continue;
    const std::string name = quoted(term.word);
    if (d.memory.kind == Memory::Class::slots) fail_at(term.column, name + " does not go with `slots`");
    if (given && sees_newest_only(d))
      fail_at(term.column, name + " weighs the pairs of the past, but " + quoted(recipe.solver.word) +
                               " sees only the newest pair, whose weight is its step; use `gd(n)`, `descend(n)`, "
                               "`exact`, `cg(n)` or `chebyshev(n)`");
    if (given && w.levels)
      fail_at(term.column, name +
                               " ends at an age, and the levels of `levels` are counted from the first pair; the "
                               "input of " +
                               name + " may hold the levels");
    if (w.importance == Weights::Importance::trapezoid)
      fail_at(term.column, name + " weighs pairs, and a `trapezoid` shares each write between two of them; drop one");
    if (w.transport)
      fail_at(term.column,
              name + " weighs pairs by age beside `transport`, which ages the keys themselves; drop one");
  }
}

}  // namespace ttr
