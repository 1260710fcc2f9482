// Random recipes made from the table of words, for property tests (RapidCheck draws the numbers).
//
// A recipe grows from a valid skeleton (words with their required options only) by options, weights and extras drawn
// from the table, each kept only if the recipe still means something: nothing is ever discarded.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "recipe/design.h"
#include "recipe/words.h"
#include "ttr/recipe.h"
#include "ttr/status.h"

namespace ttr::random_recipes {

inline int below(int n) { return *rc::gen::inRange(0, n); }

inline bool valid(const Recipe& recipe) {
  try {
    interpret(recipe);
    return true;
  } catch (const Error&) {
    return false;
  }
}

inline double number_in(const OptionInfo& option) {
  const double high = std::min(option.high, option.low + 9);
  if (option.integer) return option.low + below(static_cast<int>(high - option.low) + 1);
  // Doubles with all their digits, so that printing has something to lose; now and then very small.
  const double share =
      static_cast<double>(*rc::gen::inRange<std::int64_t>(1, std::int64_t{1} << 53)) / 9007199254740992.0;
  return option.low + (high - option.low) * (below(4) == 0 ? share * 1e-9 : share);
}

inline std::vector<std::string> choices(std::string_view words) {
  std::vector<std::string> out(1);
  for (const char c : words) {
    if (c == ' ') out.emplace_back();
    else out.back() += c;
  }
  return out;
}

/// `way` picks one of the ways the option may be written; number(option) supplies numbers.
template <class Number>
Argument written(const OptionInfo& option, unsigned way, Number number) {
  const std::string name(option.name);
  if (way == as_number) return {"", number(option), 0};
  if (way == as_value) return {name, number(option), 0};
  if (way == as_flag) return {name, {}, 0};
  const std::vector<std::string> words = choices(option.words);
  const std::string word = words[static_cast<std::size_t>(
      number({.name = "", .low = 0, .high = static_cast<double>(words.size() - 1), .integer = true}))];
  if (way == as_word) return {name, Term{word, {}, 0}, 0};
  return {name, Term{name, {Argument{word, {}, 0}}, 0}, 0};
}

inline unsigned first_way(const OptionInfo& option) { return option.written & (~option.written + 1); }

/// The word with its required options: one term for every choice of a required group.
inline std::vector<Term> minimal_terms(const WordInfo& info) {
  std::vector<Term> out = {Term{std::string(info.word), {}, 0}};
  const auto smallest = [](const OptionInfo& option) { return option.above_low ? option.low + 1 : option.low; };
  std::set<std::string_view> groups;
  for (const OptionInfo& option : info.options) {
    if (!option.required || (!option.group.empty() && !groups.insert(option.group).second)) continue;
    std::vector<Term> grown;
    for (const OptionInfo& other : info.options) {
      if (&other != &option && (option.group.empty() || other.group != option.group)) continue;
      for (Term term : out) {
        term.arguments.push_back(written(other, first_way(other), smallest));
        grown.push_back(term);
      }
    }
    out = grown;
  }
  return out;
}

inline std::vector<Term> minimal_terms(Axis axis) {
  std::vector<Term> out;
  for (const WordInfo& info : words())
    if (info.axis == axis)
      for (const Term& term : minimal_terms(info)) out.push_back(term);
  return out;
}

inline const std::vector<Recipe>& skeletons() {
  static const std::vector<Recipe> list = [] {
    std::vector<Recipe> out;
    for (const Term& weights : minimal_terms(Axis::weights))
      for (const Term& memory : minimal_terms(Axis::memory))
        for (const Term& solver : minimal_terms(Axis::solver)) {
          const Recipe recipe{{weights}, memory, solver, {}};
          if (valid(recipe)) out.push_back(recipe);
        }
    // Words and options that need company.
    for (const char* text :
         {"equal / linear / chebyshev(3, ridge)", "near(exp) / local(1) / given", "gate(key) / linear / gd(1)",
          "gate(value) / vector / gd(1)", "equal / linear / exact(ridge)", "decay(g) / linear / cg(3, ridge)",
          "equal / linear(polynomial) / gd(1)", "equal / linear / sgd(nlms)", "equal / linear / sgd(momentum)",
          "equal / mlp / minibatch(4, momentum)", "equal / mlp / descend(1, momentum)",
          "near(gauss) / constant / exact", "decay(g) / linear / gd(1)", "equal / linear / gd(1) | read(before)",
          "equal / linear / gd(1) | huber(c)", "equal / linear / gd(1) | normalise(rms)", "equal / linear / exact"})
      out.push_back(parse_recipe(text));
    return out;
  }();
  return list;
}

inline void add_option(Axis axis, Term& term) {
  const WordInfo* info = find_word(axis, term.word);
  if (info->options.empty()) return;
  const OptionInfo& option = info->options[static_cast<std::size_t>(below(static_cast<int>(info->options.size())))];
  std::vector<unsigned> ways;
  for (const unsigned way : {as_flag, as_value, as_number, as_word, as_call})
    if (option.written & way) ways.push_back(way);
  const Argument argument =
      written(option, ways[static_cast<std::size_t>(below(static_cast<int>(ways.size())))], number_in);
  const auto place = term.arguments.begin() + below(static_cast<int>(term.arguments.size()) + 1);
  // A required option is not added but replaced.
  for (Argument& have : term.arguments)
    if (have.key == argument.key) {
      have = argument;
      return;
    }
  term.arguments.insert(place, argument);
}

inline Recipe random_recipe() {
  Recipe recipe = skeletons()[static_cast<std::size_t>(below(static_cast<int>(skeletons().size())))];
  const int attempts = below(24);
  for (int i = 0; i < attempts; ++i) {
    Recipe grown = recipe;
    switch (below(6)) {
      case 0: {
        const std::vector<Term> terms = minimal_terms(Axis::weights);
        grown.weights.push_back(terms[static_cast<std::size_t>(below(static_cast<int>(terms.size())))]);
        break;
      }
      case 1: {
        const std::vector<Term> terms = minimal_terms(Axis::extra);
        grown.extras.push_back(terms[static_cast<std::size_t>(below(static_cast<int>(terms.size())))]);
        break;
      }
      case 2:
        add_option(Axis::weights,
                   grown.weights[static_cast<std::size_t>(below(static_cast<int>(grown.weights.size())))]);
        break;
      case 3:
        add_option(Axis::memory, grown.memory);
        break;
      case 4:
        add_option(Axis::solver, grown.solver);
        break;
      default:
        if (!grown.extras.empty())
          add_option(Axis::extra,
                     grown.extras[static_cast<std::size_t>(below(static_cast<int>(grown.extras.size())))]);
    }
    if (valid(grown)) recipe = grown;
  }
  return recipe;
}

}  // namespace ttr::random_recipes
