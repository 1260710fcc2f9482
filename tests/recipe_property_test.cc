// Random recipes made from the table of words: every one that means something prints, parses and derives; damaged
// text is refused with an Error and nothing else.
//
// A recipe grows from a valid skeleton (words with their required options only) by options, weights and extras drawn
// from the table, each kept only if the recipe still means something: nothing is ever discarded.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "recipe/derive.h"
#include "recipe/design.h"
#include "recipe/words.h"
#include "ttr/recipe.h"
#include "ttr/status.h"

namespace ttr {
namespace {

int below(int n) { return *rc::gen::inRange(0, n); }

bool valid(const Recipe& recipe) {
  try {
    interpret(recipe);
    return true;
  } catch (const Error&) {
    return false;
  }
}

double number_in(const OptionInfo& option) {
  const double high = std::min(option.high, option.low + 9);
  if (option.integer) return option.low + below(static_cast<int>(high - option.low) + 1);
  // Doubles with all their digits, so that printing has something to lose; now and then very small.
  const double share =
      static_cast<double>(*rc::gen::inRange<std::int64_t>(1, std::int64_t{1} << 53)) / 9007199254740992.0;
  return option.low + (high - option.low) * (below(4) == 0 ? share * 1e-9 : share);
}

std::vector<std::string> choices(std::string_view words) {
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

unsigned first_way(const OptionInfo& option) { return option.written & (~option.written + 1); }

/// The word with its required options: one term for every choice of a required group.
std::vector<Term> minimal_terms(const WordInfo& info) {
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

std::vector<Term> minimal_terms(Axis axis) {
  std::vector<Term> out;
  for (const WordInfo& info : words())
    if (info.axis == axis)
      for (const Term& term : minimal_terms(info)) out.push_back(term);
  return out;
}

const std::vector<Recipe>& skeletons() {
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

void add_option(Axis axis, Term& term) {
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

Recipe random_recipe() {
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

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

TEST(RecipeProperty, SkeletonsCoverEveryWord) {
  std::set<std::string> seen;
  for (const Recipe& recipe : skeletons()) {
    seen.insert("weights " + recipe.weights[0].word);
    seen.insert("memory " + recipe.memory.word);
    seen.insert("solver " + recipe.solver.word);
  }
  for (const WordInfo& info : words())
    EXPECT_TRUE(info.axis == Axis::extra ||
                seen.count(std::string(to_string(info.axis)) + " " + std::string(info.word)) == 1)
        << info.word;
}

TEST(RecipeProperty, EveryOptionBelongsToSomeRecipe) {
  // Each option, added to each skeleton with its word, must be possible somewhere.
  const auto middle = [](const OptionInfo& option) {
    const double high = std::min(option.high, option.low + 2);
    return option.integer ? high : (option.low + high) / 2;
  };
  for (const WordInfo& info : words())
    for (const OptionInfo& option : info.options)
      for (const unsigned way : {as_flag, as_value, as_number, as_word, as_call}) {
        if (!(option.written & way)) continue;
        const Argument argument = written(option, way, middle);
        bool possible = false;
        for (Recipe recipe : skeletons()) {
          if (info.axis == Axis::extra) {
            std::vector<Term> terms = minimal_terms(info);
            for (const Term& term : recipe.extras)
              if (term.word == info.word) terms.push_back(term);
            recipe.extras.clear();
            for (Term term : terms) {
              if (!term.has(argument.key)) term.arguments.push_back(argument);
              else
                *std::find_if(term.arguments.begin(), term.arguments.end(),
                              [&](const Argument& a) { return a.key == argument.key; }) = argument;
              recipe.extras = {term};
              possible = possible || valid(recipe);
            }
          } else {
            Term& term = info.axis == Axis::weights  ? recipe.weights[0]
                         : info.axis == Axis::memory ? recipe.memory
                                                     : recipe.solver;
            if (term.word != info.word) continue;
            std::erase_if(term.arguments, [&](const Argument& a) { return a.key == argument.key; });
            term.arguments.push_back(argument);
            possible = possible || valid(recipe);
          }
        }
        EXPECT_TRUE(possible) << info.word << "(" << option.name << ") written as " << way;
      }
}

RC_GTEST_PROP(RecipeProperty, TextRoundTrip, ()) {
  const Recipe recipe = random_recipe();
  const std::string text = to_string(recipe);
  const Recipe again = parse_recipe(text);
  RC_LOG() << text << "\n";
  RC_ASSERT(again == recipe);
  RC_ASSERT(to_string(again) == text);
  RC_ASSERT(interpret(again) == interpret(recipe));
  std::string spaced;  // blanks are free around every mark
  for (const char c : text)
    if (std::string_view("/*|,()=").find(c) != std::string_view::npos) spaced += std::string(" ") + c + "\t";
    else if (c != ' ') spaced += c;
  RC_ASSERT(parse_recipe(spaced) == recipe);
}

RC_GTEST_PROP(RecipeProperty, DerivationIsComplete, ()) {
  const Recipe recipe = random_recipe();
  const std::string text = to_string(recipe);
  RC_LOG() << text << "\n";
  const std::vector<std::pair<std::string, std::string>> named = {{"self", text},
                                                                  {"linear-attention", "equal / linear / gd(1)"}};
  for (const Notation notation : {Notation::plain, Notation::latex}) {
    const Derivation d = derive(recipe, notation, named);
    for (const std::string* field :
         {&d.recipe, &d.objective, &d.gradient, &d.recurrence, &d.readout, &d.state_size, &d.cost_per_token}) {
      RC_ASSERT(!field->empty());
      RC_ASSERT(std::count(field->begin(), field->end(), '$') % 2 == 0);
      RC_ASSERT(std::count(field->begin(), field->end(), '(') == std::count(field->begin(), field->end(), ')'));
      if (notation == Notation::plain) RC_ASSERT(field->find_first_of("$\\") == std::string::npos);
      int depth = 0;
      for (std::size_t i = 0; i < field->size(); ++i) {
        if ((*field)[i] == '\\' && notation == Notation::latex) ++i;
        else if ((*field)[i] == '{') ++depth;
        else if ((*field)[i] == '}') --depth;
        RC_ASSERT(depth >= 0);
      }
      RC_ASSERT(depth == 0);
    }
    RC_ASSERT(contains(d.equals, "self"));
    RC_ASSERT(contains(d.forms, "step"));
    for (const std::string form : {"chunk", "parallel", "scan"}) {
      const bool refused = std::any_of(d.forms.begin(), d.forms.end(),
                                       [&](const std::string& f) { return f.rfind("no " + form + ": ", 0) == 0; });
      RC_ASSERT(contains(d.forms, form) != refused);
    }
  }
}

RC_GTEST_PROP(RecipeProperty, InputsAreWellFormed, ()) {
  const Recipe recipe = random_recipe();
  RC_LOG() << to_string(recipe) << "\n";
  const auto design = interpret(recipe);
  const std::vector<InputInfo> inputs = canonical_inputs(design);
  const char* const letters = design.solver.pairs > 1 ? "BTPHGKVML " : "BTHGKVML ";
  RC_ASSERT(inputs.size() >= 3u);
  RC_ASSERT(inputs[0].name == "q" && inputs[1].name == "k" && inputs[2].name == "v");
  std::set<std::string> names;
  for (const InputInfo& input : inputs) {
    RC_ASSERT(names.insert(input.name).second);
    RC_ASSERT(!input.meaning.empty());
    RC_ASSERT(input.shape.find_first_not_of(letters) == std::string::npos);
  }
}

RC_GTEST_PROP(RecipeProperty, DamagedTextIsRefusedPolitely, ()) {
  std::string text = to_string(random_recipe());
  const int damages = 1 + below(4);
  for (int i = 0; i < damages; ++i) {
    const auto at = static_cast<std::size_t>(below(static_cast<int>(text.size()) + 1));
    const char byte = below(3) == 0 ? static_cast<char>(below(256)) : "/*|,()=.-+e0x "[below(14)];
    switch (below(3)) {
      case 0:
        text.insert(at, 1, byte);
        break;
      case 1:
        if (at < text.size()) text.erase(at, static_cast<std::size_t>(1 + below(3)));
        break;
      default:
        if (at < text.size()) text[at] = byte;
    }
  }
  RC_LOG() << text << "\n";
  try {
    const Recipe recipe = parse_recipe(text);
    RC_ASSERT(parse_recipe(to_string(recipe)) == recipe);
  } catch (const Error& e) {
    RC_ASSERT(std::string(e.what()).size() > 10u);
    RC_ASSERT(e.where().rfind("column ", 0) == 0);
    const int column = std::stoi(e.where().substr(7));
    RC_ASSERT(column >= 1 && column <= static_cast<int>(text.size()) + 1);
  }
}

}  // namespace
}  // namespace ttr
