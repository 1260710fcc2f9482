// Random recipes made from the table of words: every one that means something prints, parses and derives; damaged
// text is refused with an Error and nothing else.
//
// The recipes come from recipe/random.cc, with a seed that rapidcheck draws.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "recipe/derive.h"
#include "recipe/design.h"
#include "recipe/random.h"
#include "recipe/words.h"
#include "ttr/recipe.h"
#include "ttr/status.h"

namespace ttr {
namespace {

int below(int n) { return *rc::gen::inRange(0, n); }

Recipe any_recipe() { return random_recipe(*rc::gen::arbitrary<std::uint64_t>()); }

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
      for (const unsigned way : {as_flag, as_value, as_number, as_word, as_call, as_list}) {
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
              possible = possible || is_valid(recipe);
            }
          } else {
            Term& term = info.axis == Axis::weights  ? recipe.weights[0]
                         : info.axis == Axis::memory ? recipe.memory
                                                     : recipe.solver;
            if (term.word != info.word) continue;
            std::erase_if(term.arguments, [&](const Argument& a) { return a.key == argument.key; });
            term.arguments.push_back(argument);
            possible = possible || is_valid(recipe);
          }
        }
        EXPECT_TRUE(possible) << info.word << "(" << option.name << ") written as " << way;
      }
}

// What the table allows, random recipes have, in every way it is written.
TEST(RecipeProperty, RandomRecipesReachEverything) {
  std::set<std::string> seen;
  const auto add = [&](Axis axis, const Term& term) {
    const std::string word = std::string(to_string(axis)) + " " + term.word;
    seen.insert(word);
    for (const Argument& a : term.arguments) {
      const Term* inner = std::get_if<Term>(&a.value);
      const unsigned way = a.key.empty()                          ? as_number
                           : a.is_number()                        ? as_value
                           : inner == nullptr                     ? as_flag
                           : inner->word != a.key                 ? as_word
                           : inner->arguments.front().key.empty() ? as_list
                                                                  : as_call;
      const std::string& choice = way == as_call ? inner->arguments.front().key : way == as_word ? inner->word : "";
      seen.insert(word + "(" + a.key + " " + choice + ") " + std::to_string(way));
    }
  };
  for (std::uint64_t seed = 0; seed < 200'000; ++seed) {
    const Recipe recipe = random_recipe(seed);
    for (const Term& term : recipe.weights) add(Axis::weights, term);
    add(Axis::memory, recipe.memory), add(Axis::solver, recipe.solver);
    for (const Term& term : recipe.extras) add(Axis::extra, term);
  }
  for (const WordInfo& info : words()) {
    const std::string word = std::string(to_string(info.axis)) + " " + std::string(info.word);
    EXPECT_TRUE(seen.count(word)) << word;
    for (const OptionInfo& option : info.options)
      for (const unsigned way : {as_flag, as_value, as_number, as_word, as_call, as_list}) {
        if (!(option.written & way)) continue;
        std::vector<std::string> choices(1);
        for (const char c : way == as_word || way == as_call ? option.words : std::string_view())
          if (c == ' ') choices.emplace_back();
          else choices.back() += c;
        for (const std::string& choice : choices) {
          const std::string key = way == as_number ? "" : std::string(option.name);
          EXPECT_TRUE(seen.count(word + "(" + key + " " + choice + ") " + std::to_string(way)))
              << word << "(" << option.name << " " << choice << ") written as " << way;
        }
      }
  }
}

TEST(RecipeProperty, SameSeedSameRecipe) {
  std::set<std::string> texts;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Recipe recipe = random_recipe(seed);
    EXPECT_TRUE(is_valid(recipe));
    EXPECT_TRUE(recipe == random_recipe(seed));
    texts.insert(to_string(recipe));
  }
  EXPECT_GT(texts.size(), 600u);
}

RC_GTEST_PROP(RecipeProperty, TextRoundTrip, ()) {
  const Recipe recipe = any_recipe();
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
  const Recipe recipe = any_recipe();
  const std::string text = to_string(recipe);
  RC_LOG() << text << "\n";
  const bool causal = below(2) == 0;
  const std::vector<NamedRecipe> named = {{"self", text, causal}, {"linear-attention", "equal / linear / gd(1)"}};
  for (const Notation notation : {Notation::plain, Notation::latex}) {
    const Derivation d = derive(recipe, notation, {.causal = causal, .forms = {"step"}, .absent_forms = {}}, named);
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
    RC_ASSERT(d.forms == std::vector<std::string>{"step"});
  }
}

RC_GTEST_PROP(RecipeProperty, InputsAreWellFormed, ()) {
  const Recipe recipe = any_recipe();
  RC_LOG() << to_string(recipe) << "\n";
  const auto design = interpret(recipe);
  const std::vector<InputInfo> inputs = canonical_inputs(design);
  const char* const letters = design.solver.pairs > 1 ? "BTPHGKVMLWI " : "BTHGKVMLWI ";
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
  std::string text = to_string(any_recipe());
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
