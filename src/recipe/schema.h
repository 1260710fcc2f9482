// The canonical inputs of a design: one table of names, axes, conditions, meanings and random data. canonical_inputs
// (recipe/design.h), the arrays the oracle reads, which inputs belong to pairs, and the section "Inputs" of
// docs/recipes.md all come from it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/design.h"
#include "ttr/axes.h"

namespace ttr {

/// One row of the table. A name may have several; the first whose condition holds counts.
struct InputRow {
  std::string_view name;
  Axes axes;                  // of one sequence: T.. belongs to a token (its query), P.. to a pair; else to a head
  std::string_view asked_by;  // the condition in words of a recipe, for docs/recipes.md
  std::string_view meaning;
  Range range;
  bool (*asked)(const Design&);
};
std::span<const InputRow> input_rows();

/// An input that a design reads.
struct DesignInput {
  std::string name;
  Axes axes;  // as in InputRow
  std::string meaning;
  Range range = Range::normal;
  bool optional = false;  // the memory does not read it, and it may be absent

  /// One row per pair, of which a token may bring several, and of which there is another number without causality.
  bool per_pair() const { return axes.front() == 'P'; }
  bool timed() const { return axes.front() == 'T' || per_pair(); }
};
std::vector<DesignInput> inputs_of(const Design&);

/// Whether an input belongs to pairs, not to queries; false if the design has no input of that name.
bool is_of_pairs(const Design&, std::string_view input);

}  // namespace ttr
