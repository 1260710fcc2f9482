// What random recipes are made of (recipe/random.cc); ttr/recipe.h has the recipes themselves.
#pragma once

#include <vector>

#include "recipe/words.h"
#include "ttr/recipe.h"

namespace ttr {

/// An option written in one of its ways; `number(option)` supplies its number, and the index of its word. `count`: how
/// many numbers a list has that is as long as the count of its word.
template <class Number>
Argument written(const OptionInfo& option, unsigned way, Number&& number, int count = 1) {
  const std::string name(option.name);
  if (way == as_list) {
    Term list{name, {}, 0};
    for (int i = 0; i < (option.list_size > 0 ? option.list_size : count); ++i)
      list.arguments.push_back({"", number(option), 0});
    return {name, list, 0};
  }
  if (way == as_number) return {"", number(option), 0};
  if (way == as_value) return {name, number(option), 0};
  if (way == as_flag) return {name, {}, 0};
  std::vector<std::string> words(1);
  for (const char c : option.words)
    if (c == ' ') words.emplace_back();
    else words.back() += c;
  const OptionInfo index{
      .name = "", .low = 0, .high = static_cast<double>(words.size() - 1), .above_low = false, .integer = true};
  const std::string word = words[static_cast<std::size_t>(number(index))];
  if (way == as_word) return {name, Term{word, {}, 0}, 0};
  return {name, Term{name, {Argument{word, {}, 0}}, 0}, 0};
}

/// The word with its required options: one term for every choice of a required group.
std::vector<Term> minimal_terms(const WordInfo&);

/// Valid recipes of minimal terms, and those that bring words and options together that need company.
const std::vector<Recipe>& skeletons();

/// Whether a recipe means something.
bool is_valid(const Recipe&);

}  // namespace ttr
