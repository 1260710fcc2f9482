// Mistakes in recipes: every message quotes the word, stands at its column and says what would be right.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "recipe/random.h"
#include "recipe/words.h"
#include "ttr/plan.h"
#include "ttr/recipe.h"
#include "ttr/status.h"
#include "ttr/stream.h"

namespace ttr {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Mistake {
  std::string text;
  int column;
  std::vector<std::string> says;
};

void expect_mistakes(const std::vector<Mistake>& mistakes) {
  for (const Mistake& m : mistakes) {
    SCOPED_TRACE(m.text.substr(0, 120));
    try {
      const Recipe recipe = parse_recipe(m.text);
      ADD_FAILURE() << "accepted as " << to_string(recipe);
    } catch (const Error& e) {
      EXPECT_EQ(e.where(), "column " + std::to_string(m.column) + " of the recipe") << e.what();
      for (const std::string& part : m.says) EXPECT_TRUE(contains(e.what(), part)) << part << " | " << e.what();
    }
  }
}

TEST(RecipeErrors, Grammar) {
  expect_mistakes({
      {"", 1, {"empty", "weights / memory / solver"}},
      {"   \t ", 1, {"empty"}},
      {"equal", 6, {"`/`", "weights", "memory"}},
      {"equal linear / gd(1)", 7, {"`/`", "`linear`"}},
      {"equal / linear", 15, {"`/`", "solver"}},
      {"equal / linear gd(1)", 16, {"`/`", "`gd`"}},
      {"/ linear / gd(1)", 1, {"weights", "`/`"}},
      {"equal / / gd(1)", 9, {"memory", "`/`"}},
      {"equal / linear /", 17, {"solver", "end of the recipe"}},
      {"equal / linear / gd(1) / gd(1)", 24, {"third `/`"}},
      {"equal * / linear / gd(1)", 9, {"after `*`"}},
      {"equal / linear * linear / gd(1)", 16, {"`*`", "memory"}},
      {"equal / linear / gd(1) * gd(1)", 24, {"`*`", "solver"}},
      {"equal / linear / gd(1", 20, {"never closed", "`gd`"}},
      {"equal / linear / gd(1,", 23, {"ends inside", "`gd`"}},
      {"equal / linear / gd(", 21, {"ends inside", "`gd`"}},
      {"equal / linear / gd(1))", 23, {"`)`", "no parenthesis is open"}},
      {"equal) / linear / gd(1)", 6, {"never opened"}},
      {"equal / linear / gd(1 2)", 23, {"`,` or `)`", "`2`"}},
      {"equal / linear / gd(,)", 21, {"option", "`,`"}},
      {"equal / linear / gd(1) rubbish", 24, {"`rubbish`", "left over"}},
      {"equal / linear / gd(1), dot", 23, {"`,`", "left over", "`|`"}},
      {"equal / linear / gd(1) |", 25, {"loss or read-out"}},
      {"equal / linear / gd(1) | dot dot", 30, {"left over", "commas"}},
      {"equal / linear / gd(1) | dot | dot", 30, {"left over", "commas"}},
      {"equal / linear / sgd(beta=)", 27, {"`beta=`", "number or a word"}},
      {"equal / linear / sgd(beta=f(x))", 28, {"`beta=`", "single word"}},
      {"equal / linear / gd(1e999)", 21, {"`1e999`", "finite"}},
      {"equal / linear / gd(-inf)", 21, {"`-inf`", "finite"}},
      {"equal / linear / exact(ridge=inf)", 30, {"`inf`", "finite"}},
      {"equal / linear / exact(ridge=nan)", 30, {"`nan`", "finite"}},
      {"equal / linear / gd(1.2.3)", 21, {"`1.2.3`", "not a number"}},
      {"equal / linear / gd(3y)", 21, {"`3y`", "not a number"}},
      {"equal / linear / gd(--1)", 21, {"not a number"}},
      {"\xc3\xa9qual / linear / gd(1)", 1, {"`\\xc3\\xa9`", "ASCII"}},
      {"equal / linear / gd(1) # note", 24, {"`#`"}},
      {std::string("equal / linear / gd(1)\0", 23), 23, {"`\\x00`"}},
      {"equal / linear / gd" + std::string(200, '('), 21, {"option", "`(`"}},
      {"equal / linear / gd(a(b(c(d(e(f(g(h(i(1))))))))))", 36, {"nested"}},
      {std::string(5000, ' '), 4097, {"5000", "4096"}},
      {std::string(4000, 'a') + " / linear / gd(1)", 1, {"aaa...`", "valid here"}},
  });
}

TEST(RecipeErrors, WordsAndOptions) {
  expect_mistakes({
      {"eqaul / linear / gd(1)", 1, {"`eqaul`", "did you mean `equal`", "`decay`"}},
      {"equal / linar / gd(1)", 9, {"`linar`", "did you mean `linear`", "`swiglu`"}},
      {"equal / linear / sdg(beta)", 18, {"`sdg`", "did you mean", "`exact`"}},
      {"equal / linear / gd(1) | hubert(c=1)", 26, {"`hubert`", "did you mean `huber`", "`blend`"}},
      {"equal / gate / gd(1)", 9, {"`gate`", "weights (before the first `/`)"}},
      {"gd(1) / linear / equal", 1, {"`gd`", "solver"}},
      {"zzz / linear / gd(1)", 1, {"`zzz`", "valid here: `equal`"}},
      {"gate(kye) / linear / gd(1)", 6, {"`kye`", "did you mean `key`", "`gate` takes"}},
      {"equal / linear / sgd(beta, momentun)", 28, {"`momentun`", "did you mean `momentum`"}},
      {"equal / vector(3) / gd(1)", 16, {"3", "`vector` takes no options"}},
      {"equal / linear(7) / gd(1)", 16, {"7", "`linear`"}},
      {"window(x) / linear / gd(1)", 8, {"`x`", "whole number"}},
      {"window(0) / linear / gd(1)", 8, {"`window(0)`", "from 1"}},
      {"window(2.5) / linear / gd(1)", 8, {"2.5", "whole number"}},
      {"window(-3) / linear / gd(1)", 8, {"-3", "from 1"}},
      {"window / linear / gd(1)", 1, {"`window` needs an option", "`window(n)`"}},
      {"decay(1.5) / linear / gd(1)", 7, {"1.5", "at most 1"}},
      {"decay(0) / linear / gd(1)", 7, {"above 0"}},
      {"decay(g, 0.9) / linear / gd(1)", 10, {"`0.9`", "`g`", "exclude"}},
      {"decay(0.9, 0.8) / linear / gd(1)", 12, {"second number", "0.8"}},
      {"equal / linear / exact(ridge=-1)", 24, {"-1", "at least 0"}},
      {"equal / linear / sgd(beta, beta)", 28, {"`beta` again"}},
      {"equal / linear / sgd(beta, nlms)", 28, {"`nlms`", "`beta`", "exclude"}},
      {"equal / linear / sgd(beta, decay, leak)", 35, {"`leak`", "`decay`", "exclude"}},
      {"equal / linear / sgd(beta, muon=3)", 28, {"`muon`", "no number"}},
      {"equal / linear / sgd(beta=fast)", 27, {"`beta=fast`", "`beta=x`"}},
      {"equal / linear / sgd(eps)", 22, {"`eps`", "needs a value", "`eps=x`"}},
      {"equal / linear / sgd(beta(key))", 22, {"`beta`", "no parentheses"}},
      {"equal / linear / sgd(beta, decay(slot))", 34, {"`slot`", "`key` or `value`"}},
      {"equal / linear / sgd(beta, decay(0.5))", 34, {"`decay`", "`decay=x`"}},
      {"equal / linear / sgd(beta, decay(key, value))", 39, {"single word"}},
      {"equal / linear / gd(1, step=fast)", 29, {"`fast`", "`auto`"}},
      {"near / constant / exact", 1, {"`near` needs an option", "`near(exp)`", "`near(gauss)`"}},
      {"near(exp, gauss) / constant / exact", 11, {"`gauss`", "`exp`", "exclude"}},
      {"near(exp, bandwidth=2) / constant / exact", 11, {"`bandwidth`", "`gauss`"}},
      {"equal / linear(degree=3) / gd(1)", 16, {"`degree`", "`polynomial`"}},
      {"equal / linear / exact(relative)", 24, {"`relative`", "`ridge`"}},
      {"equal / linear / sgd(beta, nesterov)", 28, {"`nesterov`", "`momentum`"}},
      {"equal / linear / sgd(beta, eps=1)", 28, {"`eps`", "`nlms`"}},
      {"gate(key, value, complex) / linear / gd(1)", 18, {"`complex`", "`key`", "`full`"}},
      {"gate(complex, signed) / linear / gd(1)", 15, {"`complex`", "`signed`", "pi"}},
      {"equal / linear(length=9) / gd(1)", 16, {"`length`", "`cosformer`"}},
      {"gate(full, key) / linear / gd(1)", 12, {"`full`", "`key`"}},
      {"gate * decay(g) / linear / gd(1)", 8, {"`decay`", "`gate`", "fade"}},
      {"gate * gate / linear / gd(1)", 8, {"twice"}},
      {"equal / linear / gd(1) | dot, squared", 31, {"both losses"}},
      {"equal / linear / gd(1) | keys(unit), keys(rms)", 38, {"twice"}},
      {"equal / linear / chebyshev(30)", 18, {"needs a ridge"}},
  });
}

TEST(RecipeErrors, Combinations) {
  expect_mistakes({
      {"gate(beta) / linear / sgd(beta)", 6, {"`beta`", "newest", "twice", "keep it in the solver"}},
      {"equal(beta) / linear / sgd", 7, {"`beta`", "`sgd(beta)`"}},
      {"equal(beta) / linear / gd(1, step)", 30, {"`beta`", "`step=0.1`"}},
      {"gate(exponential) / linear / kalman", 6, {"`exponential`", "`kalman(noise)`"}},
      {"near(exp) / linear / sgd(beta)", 22, {"`sgd`", "`near(exp) / constant / sgd(beta)`"}},
      {"near(exp) / linear / minibatch(4)", 22, {"`minibatch`", "`exact`"}},
      {"near(exp) * gate / constant / sgd(beta)", 31, {"`sgd`", "`near(exp) / constant / sgd(beta)`"}},
      {"near(exp) / mlp / sgd(beta)", 19, {"`sgd`", "one per query"}},
      {"near(exp) / mlp / minibatch(4)", 19, {"`minibatch`", "`gd(n)`"}},
      {"near(exp) / kernel(gauss) / descend(2)", 29, {"`descend`", "`gd(n)`"}},
      {"near(exp) / vector / gd(1)", 13, {"`vector`", "`near`"}},
      {"near(exp) / slots(4) / gd(1)", 13, {"`slots`", "`near`"}},
      {"near(exp, sink) / local(1) / exact", 11, {"`sink`"}},
      {"equal / local(1) / exact", 9, {"`local`", "`near(exp)`"}},
      {"near(exp) / local(1) / sgd(beta)", 24, {"`sgd`", "`exact`"}},
      {"near(exp) / local(1) / descend(2)", 24, {"`descend`", "centred at each query", "`gd(n)`"}},
      {"equal / kernel(box) / exact(ridge)", 16, {"`box`", "not positive definite", "`near(box)`"}},
      {"equal / kernel(tricube) / exact(ridge)", 16, {"`tricube`", "not positive definite"}},
      {"equal / kernel(nearest=3) / exact(ridge)", 16, {"`nearest`", "not symmetric"}},
      {"near(nearest=3, bandwidth=1) / constant / exact", 17, {"`bandwidth`", "`gauss`"}},
      {"given(4) / linear / sgd(beta)", 1, {"`given`", "newest"}},
      {"mask(4) / linear / kalman", 1, {"`mask`", "newest"}},
      {"given(4) * mask(4) / linear / gd(1)", 12, {"`given`", "`mask`"}},
      {"given(4) * levels(3) / linear / gd(1)", 1, {"`given`", "`levels`"}},
      {"gate * decay(0.9, beta) / linear / gd(1)", 19, {"importance", "`gate(beta)`"}},
      {"gate(full) * decay(0.9) / linear / gd(1)", 14, {"`full`"}},
      {"equal * decay(0.9) / linear / gd(1)", 9, {"`equal`", "`decay`"}},
      {"power(0.5) / linear / exact(ridge, fading)", 36, {"`fading`", "`power`"}},
      {"power(0.5) / slots(4) / gd(1)", 1, {"`slots`"}},
      {"near(exp) / local(2) / given", 24, {"`given`", "order 2"}},
      {"equal / linear / given", 18, {"`given`", "local(1)"}},
      {"decay(g) / slots(4) / gd(1)", 1, {"`slots`", "`gate` or `equal`"}},
      {"gate / slots(4) / exact", 19, {"`exact`", "`gd(1)`"}},
      {"gate * levels / linear / sgd(beta)", 8, {"`levels`", "newest"}},
      {"gate(full) / linear / exact", 6, {"`gate(full)`"}},
      {"gate(key, complex) / vector / gd(1)", 11, {"`complex`"}},
      {"gate(complex) / linear / gd(2)", 6, {"`complex`", "sum"}},
      {"gate(signed) / linear / exact", 6, {"`signed`", "minimum"}},
      {"gate(signed) / linear / sgd(beta)", 6, {"`signed`", "beta up to 2"}},
      {"near(exp) * gate(signed) / constant / exact", 18, {"`signed`", "negative"}},
      {"gate(signed) / slots(4) / gd(1)", 6, {"`signed`"}},
      {"gate(signed) / linear / gd(1, step=auto)", 31, {"`step=auto`", "`signed`", "zero"}},
      {"gate(signed) / linear / gd(1) | normalise(keysum)", 43, {"keysum", "`signed`", "zero"}},
      {"gate(key, signed) / vector / gd(1)", 11, {"`signed`"}},
      {"gate(key, signed) / linear(cosformer) / gd(1)", 6, {"features"}},
      {"equal / linear(cosformer) / sgd(dplr)", 33, {"`dplr`", "feature map"}},
      {"gate(trapezoid) / linear / gd(2)", 6, {"trapezoid"}},
      {"gate(key) / linear / exact", 6, {"channel", "`exact`"}},
      {"gate(key) / linear(taylor2) / gd(1)", 6, {"features"}},
      {"gate(key) / linear(hedgehog) / gd(1)", 6, {"features"}},
      {"equal / linear(elu1, features=4) / gd(1)", 22, {"`features`", "`hedgehog`"}},
      {"equal / linear(rebased) / exact(ridge(key))", 33, {"`ridge(key)`"}},
      {"gate(value) / constant / exact", 6, {"`constant(channel)`"}},
      {"gate(key) / vector / gd(1)", 6, {"`gate(value)`"}},
      {"equal / kernel(exp) / minibatch(4)", 23, {"`minibatch`", "`kernel`"}},
      {"equal / kernel(exp) / sgd(beta, muon)", 33, {"`muon`", "`kernel`"}},
      {"equal / kernel(exp) / sgd(beta, adam)", 33, {"`adam`", "`kernel`", "`momentum`"}},
      {"equal / kernel(gauss) / irls(3) | lp(1)", 25, {"ridge"}},
      {"equal / linear / gd(3, step(0.5, 0.2))", 24, {"2 steps", "takes 3"}},
      {"equal / linear / gd(3, step(0.5, x))", 34, {"numbers"}},
      {"equal / linear / gd(1, step=each)", 24, {"several iterations"}},
      {"equal / linear / gd(1, momentum=0.5)", 24, {"several steps"}},
      {"equal / linear / descend(1, momentum=auto)", 29, {"several steps"}},
      {"equal / linear / descend(1, lbfgs=3)", 29, {"`lbfgs`", "several"}},
      {"equal / linear / gd(3, lbfgs=3, momentum=0.5)", 33, {"drop `momentum`"}},
      {"equal / linear / sgd(beta, adam, momentum)", 34, {"`adam`", "drop `momentum`"}},
      {"equal / linear / sgd(beta, adam(0.9))", 28, {"2 numbers"}},
      {"equal / linear / sgd(beta, adam, rmsprop=0.9)", 34, {"exclude"}},
      {"equal / kernel(exp) / sgd(beta, shampoo)", 33, {"`shampoo`", "`kernel`", "`momentum`"}},
      {"equal / mlp / sgd(beta, shampoo, mirror=exp)", 25, {"`shampoo`", "mirror map"}},
      {"equal / linear / sgd(beta, shampoo, eps=0)", 37, {"above 0"}},
      {"equal / linear / sgd(beta, newton=1) | lp(1)", 28, {"squared loss"}},
      {"equal / linear / sgd(beta, leak, mirror=exp)", 28, {"`mirror`", "`shrink`"}},
      {"equal / linear / exact | l1(0.1)", 26, {"`l1`", "proximal"}},
      {"equal / linear / exact | l2(0.1)", 26, {"ridge"}},
      {"equal / kernel(exp) / sgd(beta) | l1(0.1)", 35, {"`kernel`"}},
      {"equal / linear / sgd(beta, muon) | l1(0.1)", 36, {"`muon`"}},
      {"equal / linear / gd(3, lbfgs=2) | l1(0.1)", 35, {"`lbfgs`"}},
      {"gate(key) / linear / gd(1) | l1(0.1)", 6, {"`gd`"}},
      {"equal / linear / irls(3) | insensitive(0.1)", 28, {"`gd(n)`"}},
      {"equal / linear / irls(3) | cross_entropy", 28, {"`gd(n)`"}},
      {"equal / linear / irls(3) | lp(4)", 28, {"below 3"}},
      {"equal / linear / irls(3) | dot", 28, {"no minimum"}},
      {"equal / mlp / exact", 15, {"`exact`", "gradient steps"}},
      {"equal / mlp / sgd(nlms)", 19, {"`nlms`"}},
      {"equal / mlp / sgd(split)", 19, {"`split`", "`linear`"}},
      {"equal / vector / sgd(beta)", 18, {"`vector`", "`gd(1)`"}},
      {"equal / linear(reverse) / gd(1)", 16, {"`reverse`", "`sgd(beta)`"}},
      {"equal / constant / cg(3)", 20, {"`cg`", "`constant`"}},
      {"equal / linear / exact | dot", 26, {"`dot`", "no minimum"}},
      {"equal / linear / cg(3) | huber(c=1)", 26, {"`huber`", "closed-form"}},
      {"equal / linear / sgd(longhorn) | huber(c)", 34, {"longhorn"}},
      {"equal / linear / sgd(split, beta)", 29, {"`beta`", "`split`"}},
      {"equal / linear / sgd(3, beta, momentum)", 31, {"`momentum`", "one step"}},
      {"equal / linear / exact | normalise(keysum)", 36, {"keysum"}},
      {"equal / kernel(exp) / gd(1) | read(before)", 31, {"`read(before)`"}},
      {"equal / linear / sgd(beta) | read(before, bonus)", 43, {"`bonus`"}},
      {"equal / linear / gd(1) | blend", 26, {"`blend`"}},
      {"equal / vector / gd(1) | keys(unit)", 26, {"`keys`"}},
      {"equal / kernel(exp) / exact(ridge=1, frobenius)", 38, {"`frobenius`"}},
      {"window(4) / linear / exact(ridge, fading)", 35, {"`fading`"}},
      {"equal / linear / sgd(beta, rownorm)", 28, {"`rownorm`", "zero"}},
  });
}

// --- what messages advise ---

// Recipes that a message writes between backticks or quotes, but for the shape of all of them.
std::vector<std::string> recipes_in(const std::string& message) {
  std::vector<std::string> found;
  for (const char quote : {'`', '\''})
    for (std::size_t from = message.find(quote); from != std::string::npos;) {
      const std::size_t to = message.find(quote, from + 1);
      if (to == std::string::npos) break;
      std::string text = message.substr(from + 1, to - from - 1);
      if (const std::size_t any = text.find("near(..)"); any != std::string::npos) text.replace(any, 8, "near(exp)");
      const std::size_t slash = text.find(" / ");
      const bool two = slash != std::string::npos && text.find(" / ", slash + 3) != std::string::npos;
      // An apostrophe begins nothing, so what follows it may begin at its partner.
      if (two && text != "weights / memory / solver") found.push_back(text);
      from = two ? message.find(quote, to + 1) : to;
    }
  return found;
}

void expect_plan(const std::string& recipe, const std::string& where) {
  Shape shape;
  shape.key_dim = 4, shape.value_dim = 4;
  Options options;
  options.type = Type::f64;
  try {
    EXPECT_FALSE(plan(parse_recipe(recipe), shape, options).kernel().empty());
  } catch (const Error& error) {
    ADD_FAILURE() << where << ": '" << recipe << "': " << error.what();
  }
}

// The texts between double quotes in a source file, those that stand one after another as one; comments left out.
std::vector<std::string> literals_of(const std::string& source) {
  std::vector<std::string> out;
  bool follows = false;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const char c = source[i];
    if (c == '/' && source.compare(i, 2, "//") == 0) {
      i = std::min(source.find('\n', i), source.size());
    } else if (c == '\'') {
      i += source[i + 1] == '\\' ? 3 : 2;
    } else if (c == '"') {
      std::string text;
      if (i > 0 && source[i - 1] == 'R') {
        const std::size_t open = source.find('(', i),
                          close = source.find(")" + source.substr(i + 1, open - i - 1) + "\"", i);
        text = source.substr(open + 1, close - open - 1);
        i = source.find('"', close);
      } else {
        for (++i; i < source.size() && source[i] != '"'; ++i)
          if (source[i] != '\\') text += source[i];
          else text += source[++i] == 'n' ? '\n' : source[i];
      }
      if (follows) out.back() += text;
      else out.push_back(text);
      follows = true;
    } else if (c != ' ' && c != '\n' && c != '\t') {
      follows = false;
    }
  }
  return out;
}

TEST(RecipeErrors, EveryRecipeInASourceOfMessagesRuns) {
  namespace fs = std::filesystem;
  std::map<std::string, std::string> recipes;  // and where they stand
  for (const char* folder :
       {"src/recipe", "src/plan", "src/run", "src/families", "src/zoo", "cli", "tasks", "model", "python/ttr"})
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(fs::path(TTR_SOURCE_DIR) / folder)) {
      const std::string name = entry.path().filename().string();
      const bool python = name.ends_with(".py");
      if (!entry.is_regular_file() || name.ends_with("_test.cc") ||
          !(name.ends_with(".cc") || name.ends_with(".h") || python))
        continue;
      std::ostringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      for (const std::string& literal : python ? std::vector{text.str()} : literals_of(text.str()))
        for (std::string recipe : recipes_in(literal)) {
          if (recipe.find_first_of("{}\n\"") != std::string::npos) continue;  // filled in where it is said
          if (recipe.starts_with("... / ")) recipe = "equal" + recipe.substr(3);
          recipes.emplace(recipe, entry.path().string());
        }
    }
  EXPECT_GE(recipes.size(), 9u);
  for (const auto& [recipe, where] : recipes) expect_plan(recipe, where);
}

// Mistakes of every kind: all words beside one another, and every option of every word where it may not be.
TEST(RecipeErrors, EveryRecipeThatAMistakeIsToldOfRuns) {
  std::map<Axis, std::vector<Term>> plain, grown;
  for (const WordInfo& info : words())
    for (const Term& term : minimal_terms(info)) {
      plain[info.axis].push_back(term);
      for (const OptionInfo& option : info.options)
        for (const unsigned way : {as_flag, as_value, as_number, as_word, as_call, as_list})
          if (option.written & way) {
            Term longer = term;
            longer.arguments.push_back(
                written(option, way, [](const OptionInfo& o) { return o.above_low ? o.low + 1 : o.low; }));
            grown[info.axis].push_back(longer);
          }
    }
  std::map<std::string, std::string> advised, on_stream;  // recipes, and what they were advised in place of
  std::size_t mistakes = 0;
  const auto note = [&](const Recipe& recipe, const std::string& message, auto& list) {
    ++mistakes;
    const std::string refused = to_string(recipe);
    for (const std::string& text : recipes_in(message)) {
      const std::size_t at = std::min(message.find(text), message.size());
      const bool subject = message.substr(0, at - std::min<std::size_t>(at, 1)).ends_with("on a stream ") ||
                           message.find("'" + text + "' takes several") != std::string::npos;
      if (subject) continue;
      list.emplace(text, refused);
      EXPECT_NE(text, refused) << message;
    }
  };
  const auto try_one = [&](const Recipe& recipe) {
    try {
      validate(recipe);
    } catch (const Error& error) {
      return note(recipe, error.what(), advised);
    }
    try {
      stream_recipe(to_string(recipe));
    } catch (const Error& error) {
      note(recipe, error.what(), on_stream);
    }
  };
  const Term equal = {"equal", {}, 0}, near = parse_recipe("near(exp) / constant / exact").weights[0];
  for (const Term& weights : plain[Axis::weights])
    for (const Term& memory : plain[Axis::memory])
      for (const Term& solver : plain[Axis::solver]) {
        try_one({{weights}, memory, solver, {}});
        try_one({{near, weights}, memory, solver, {}});
        if (weights == equal || weights == near)
          for (const Term& extra : plain[Axis::extra]) try_one({{weights}, memory, solver, {extra}});
      }
  for (const Term& weights : {equal, near})
    for (const Term& memory : plain[Axis::memory])
      for (const Term& solver : grown[Axis::solver]) try_one({{weights}, memory, solver, {}});
  for (const Term& weights : grown[Axis::weights])
    for (const Term& solver : plain[Axis::solver]) try_one({{weights}, {"linear", {}, 0}, solver, {}});
  EXPECT_GE(mistakes, 5000u);
  EXPECT_GE(advised.size(), 2u);
  EXPECT_GE(on_stream.size(), 1u);
  for (const auto& [recipe, refused] : advised) expect_plan(recipe, "in place of " + refused);
  for (const auto& [recipe, refused] : on_stream) {
    expect_plan(recipe, "in place of " + refused);
    EXPECT_NO_THROW(stream_recipe(recipe)) << recipe << " in place of " << refused;
  }
}

}  // namespace
}  // namespace ttr
