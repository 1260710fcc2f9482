// The vocabulary of recipes: every word of every axis with its options, their types and ranges, the formula and
// one line of meaning. Validation, the suggestions in error messages, docs/recipes.md and the generator of random
// recipes in the tests all read this one table.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ttr/recipe.h"

namespace ttr {

enum class Axis { weights, memory, solver, extra };
std::string_view to_string(Axis);

/// How an option may be written.
enum Written : unsigned {
  as_flag = 1,    // `name`
  as_value = 2,   // `name=0.5`
  as_number = 4,  // `0.5`, without its name
  as_word = 8,    // `name=word`
  as_call = 16,   // `name(word)`
  as_list = 32,   // `name(0.5, 0.2)`
};

struct OptionInfo {
  std::string_view name;  // of a bare number: the letter that stands for it in the documentation
  unsigned written = as_flag;
  std::string_view formula = {};  // LaTeX-free, as in docs/recipes.md
  std::string_view meaning = {};
  std::string_view group = {};  // at most one option of a group may be given
  std::string_view words = {};  // the words of as_word and as_call, separated by blanks
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;  // the range is (low, high] instead of [low, high]
  bool integer = false;
  bool required = false;  // with a group: one option of the group is required
  int list_size = 0;      // as_list: how many numbers; 0: as many as the word's count
};

struct WordInfo {
  Axis axis;
  std::string_view word;
  std::string_view formula;
  std::string_view meaning;
  std::span<const OptionInfo> options;
};

/// Every word, weights first, then memories, solvers and extras.
std::span<const WordInfo> words();

/// The word of that axis, or nullptr.
const WordInfo* find_word(Axis, std::string_view word);

/// A row of the table of sources (recipe/sources.cc).
struct SourceRow {
  Axis axis;
  std::string_view word;    // empty: all words of the axis that have no row of their own
  std::string_view option;  // or a way to write one, "decay(key)", "mirror=exp"; empty: the word itself
  std::string_view source;
};
std::span<const SourceRow> source_rows();

/// The paper or textbook that a word is from, or an option of it, or a way to write one ("decay(key)", "mirror=exp");
/// empty for what is only a number of its word. Nothing if the table of sources has no such row.
std::optional<std::string_view> source_of(Axis, std::string_view word, std::string_view option = {});
/// The source of an option and of its words, for docs/recipes.md.
std::string source_cell(const WordInfo&, const OptionInfo&);

/// The ways to write an option, for documentation and messages: {"beta", "beta=x"}, {"n"}, {"decay(key|value)"}.
std::vector<std::string> spellings(const OptionInfo&);
/// The range of its number in words: "a whole number from 1 to 4096"; empty if it takes none.
std::string range_in_words(const OptionInfo&);

/// Throws Error at the first word, option or number of `term` that the table does not allow.
void check_against_table(Axis, const Term&);

/// An error at a column of the recipe (0: the recipe was not parsed from text).
[[noreturn]] void fail_at(int column, const std::string& message);

/// `word` in backquotes, shortened if long, with bytes that are not printable ASCII as \xNN.
std::string quoted(std::string_view word);

/// The words of a list separated by blanks.
std::vector<std::string> split_words(std::string_view text);

/// The shortest decimal that reads back as `value`.
std::string shortest(double value);

}  // namespace ttr
