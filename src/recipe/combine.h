// Which weights, memories, solvers and extras mean something together (recipe/combine.cc).
#pragma once

#include <string>
#include <vector>

#include "recipe/design.h"

namespace ttr {

/// Throws Error at the word that does not fit the others. Expects terms that passed the table.
void check_combination(const Recipe&, const Design&);

/// The part of it on weights by age: power, given, mask (recipe/combine_ages.cc).
void check_ages(const Recipe&, const Design&);

/// What is legal but probably not what was meant, or equal to something simpler.
std::vector<std::string> remarks_on(const Recipe&, const Design&);

/// True for solvers that look at the newest pair (or block) only, so that older weights do not matter.
bool sees_newest_only(const Design&);

/// True if a window changes anything: for solvers that see older pairs, and for memories that are a list of pairs.
bool forgets_by_window(const Design&);

/// near(..) / constant / sgd(beta): the delta rule among weighted means.
bool is_deltaformer(const Design&);

/// mlp, swiglu and layernorm(linear): no closed form, gradient steps only.
bool is_network(const Memory&);

}  // namespace ttr
