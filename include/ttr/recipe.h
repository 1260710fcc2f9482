// A recipe: which regression problem a layer solves.
//
//   weights / memory / solver  [ | loss or read-out, ... ]
//
//   ttr::Recipe r = ttr::parse_recipe("equal / linear / sgd(beta, decay)");   // Gated DeltaNet
//   std::string s = ttr::to_string(r);                                       // the same text
//   ttr::Recipe any = ttr::random_recipe(7);                                 // one of very many
//
// Every word, its options and its formula: docs/recipes.md. A quantity written as a bare name (`beta`) is an
// input the caller supplies; written with a value (`beta=0.5`) it is a constant.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ttr/export.h"

namespace ttr {

struct Argument;

/// `word` or `word(argument, argument, ...)`.
struct TTR_API Term {
  std::string word;
  std::vector<Argument> arguments;
  int column = 0;  // where it stood in the text, from 1; 0 if it was not parsed. Not part of equality.

  const Argument* find(std::string_view key) const;  // the argument named `key`, or nullptr
  bool has(std::string_view key) const { return find(key) != nullptr; }
};

/// One argument: `name`, `name(...)`, `0.5`, `name=0.5` or `name=word`.
struct Argument {
  std::string key;                                        // empty for a bare number
  std::variant<std::monostate, double, Term> value = {};  // nothing, a number, or a term: `key(...)` and `key=word`
  int column = 0;                                         // as in Term

  bool is_number() const { return std::holds_alternative<double>(value); }
  double number() const { return std::get<double>(value); }
};

struct Recipe {
  std::vector<Term> weights;  // a product: `near(exp) * gate`
  Term memory;
  Term solver;
  std::vector<Term> extras;  // after the bar: loss, read-out, key norm
};

TTR_API bool operator==(const Term&, const Term&);
TTR_API bool operator==(const Argument&, const Argument&);
TTR_API bool operator==(const Recipe&, const Recipe&);

/// Parses and validates. Throws Error that quotes the word and says what would be right; `where()` is
/// "column N of the recipe".
TTR_API Recipe parse_recipe(std::string_view text);

/// The canonical text; `parse_recipe(to_string(r)) == r` for every valid recipe.
TTR_API std::string to_string(const Recipe&);

/// Throws Error unless every word, option and combination means something. Returns remarks that are not
/// errors ("per-pair SGD sees only the newest pair, so `gate` changes nothing; did you mean ...").
TTR_API std::vector<std::string> validate(const Recipe&);

/// A valid recipe drawn at random; the same seed gives the same recipe. Every word and every way to write an option is
/// reached by some seed (`ttr check --recipes` compares kernels with the literal solver on such recipes).
TTR_API Recipe random_recipe(std::uint64_t seed);

/// A recipe worked out on paper.
struct Derivation {
  std::string recipe;                    // canonical text
  std::string objective;                 // what is minimised
  std::string gradient;                  // the gradient or the normal equations
  std::string recurrence;                // how the state changes with one token
  std::string readout;                   // the output
  std::string state_size;                // numbers of state per head, in K and V
  std::string cost_per_token;            // multiplications per token and head, in K and V
  std::vector<std::string> forms;        // those a plan of it has (all exact), and "no chunk: why there is none"
  std::string simplest;                  // the simplest recipe that is the same function of the same inputs
  std::vector<std::string> equals;       // named layers that are this function
  std::vector<std::string> equals_with;  // those that are once their inputs are set: "deltanet with beta_t <- ..."
  std::vector<std::string> because;      // why: "equal / linear / sgd(beta): on one pair every step ..."
  std::vector<std::string> neighbours;   // named layers that differ by one choice: "retnet (weights: decay(g))"
  std::vector<std::string> remarks;      // from validate()
};
enum class Notation { plain, latex };
/// Of a causal plan of the recipe; ttr/plan.h has the same for any plan.
TTR_API Derivation derive(const Recipe&, Notation = Notation::plain);

}  // namespace ttr
