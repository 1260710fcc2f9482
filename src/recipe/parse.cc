// Text -> Recipe, and back.
//
//   recipe    weights / memory / solver [ | extra, extra ... ]
//   weights   term * term ...
//   term      word | word(argument, ...)
//   argument  number | word | word=number | word=word | word(argument, ...)
//
// Blanks are free. A number is anything std::from_chars reads that is finite; `4x` (digits and an x) is a word.
// `word()` is `word`. Columns count bytes from 1.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "recipe/design.h"
#include "recipe/words.h"
#include "ttr/recipe.h"
#include "ttr/status.h"

namespace ttr {
namespace {

constexpr std::size_t max_length = 4096;
constexpr int max_depth = 8;
constexpr std::string_view shape_of_recipe = "a recipe is `weights / memory / solver`, e.g. `equal / linear / gd(1)`";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

struct Token {
  enum class Kind { end, word, number, punctuation } kind = Kind::end;
  std::string_view text;
  double number = 0;
  int column = 1;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) { advance(); }

  Recipe recipe() {
    if (token_.kind == Token::Kind::end) fail_at(1, "the recipe is empty; " + std::string(shape_of_recipe));
    Recipe result;
    result.weights.push_back(term("a word for the weights", 0));
    while (take("*")) result.weights.push_back(term("a word for the weights after `*`", 0));
    slash("weights", "memory");
    result.memory = term("a word for the memory", 0);
    if (is("*")) fail_at(token_.column, "`*` joins weights only; the memory is a single term");
    slash("memory", "solver");
    result.solver = term("a word for the solver", 0);
    if (is("*")) fail_at(token_.column, "`*` joins weights only; the solver is a single term");
    if (is("/"))
      fail_at(token_.column, "a third `/`: " + std::string(shape_of_recipe) + "; a loss or read-out follows a `|`");
    if (take("|")) {
      do result.extras.push_back(term("a loss or read-out after `|`", 0));
      while (take(","));
    }
    if (token_.kind != Token::Kind::end) {
      std::string message = quoted(token_.text) + " is left over at the end of the recipe";
      if (is(")")) message += "; no parenthesis is open there";
      else if (is(",")) message += "; extras such as `dot` follow a `|`";
      else if (is("|")) message += "; a single `|` starts the extras, commas separate them";
      else
        message += result.extras.empty() ? "; a loss or read-out follows a `|`" : "; extras are separated by commas";
      fail_at(token_.column, message);
    }
    return result;
  }

 private:
  bool is(std::string_view mark) const { return token_.kind == Token::Kind::punctuation && token_.text == mark; }

  bool take(std::string_view mark) {
    if (!is(mark)) return false;
    advance();
    return true;
  }

  std::string found() const {
    return token_.kind == Token::Kind::end ? "the end of the recipe" : quoted(token_.text);
  }

  void slash(std::string_view before, std::string_view after) {
    if (take("/")) return;
    if (is(")")) fail_at(token_.column, "`)` closes a parenthesis that was never opened");
    fail_at(token_.column, "a `/` between the " + std::string(before) + " and the " + std::string(after) +
                               " is missing before " + found() + "; " + std::string(shape_of_recipe));
  }

  Term term(const std::string& wanted, int depth) {
    if (token_.kind != Token::Kind::word)
      fail_at(token_.column, "expected " + wanted + " but found " + found() + "; " + std::string(shape_of_recipe));
    Term result;
    result.word = token_.text;
    result.column = token_.column;
    advance();
    result.arguments = arguments(result.word, depth);
    return result;
  }

  std::vector<Argument> arguments(const std::string& word, int depth) {
    std::vector<Argument> result;
    const int opened = token_.column;
    if (!take("(")) return result;
    if (depth >= max_depth)
      fail_at(opened, "the parenthesis after " + quoted(word) + " is nested more than " + std::to_string(max_depth) +
                          " deep; no word of a recipe needs that");
    if (take(")")) return result;
    do result.push_back(argument(word, depth + 1));
    while (take(","));
    if (take(")")) return result;
    if (token_.kind == Token::Kind::end)
      fail_at(opened, "the parenthesis after " + quoted(word) + " is never closed; add a `)`");
    fail_at(token_.column, "expected `,` or `)` in the options of " + quoted(word) + " but found " + found());
  }

  Argument argument(const std::string& owner, int depth) {
    Argument result;
    result.column = token_.column;
    if (token_.kind == Token::Kind::number) {
      result.value = token_.number;
      advance();
      return result;
    }
    if (token_.kind != Token::Kind::word) {
      if (token_.kind == Token::Kind::end)
        fail_at(token_.column, "the recipe ends inside the parenthesis after " + quoted(owner) + "; add a `)`");
      fail_at(token_.column, "expected an option of " + quoted(owner) + " but found " + found());
    }
    result.key = token_.text;
    advance();
    if (take("=")) {
      if (token_.kind == Token::Kind::number) {
        result.value = token_.number;
      } else if (token_.kind == Token::Kind::word) {
        result.value = Term{std::string(token_.text), {}, token_.column};
      } else {
        fail_at(token_.column,
                "expected a number or a word after " + quoted(result.key + "=") + " but found " + found());
      }
      advance();
      if (is("(")) fail_at(token_.column, quoted(result.key + "=") + " takes a number or a single word, not `(`");
    } else if (is("(")) {
      const int column = result.column;
      std::vector<Argument> inner = arguments(result.key, depth);
      if (!inner.empty()) result.value = Term{result.key, std::move(inner), column};
    }
    return result;
  }

  void advance() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
    token_ = {};
    token_.column = static_cast<int>(at_) + 1;
    if (at_ == text_.size()) return;
    const char c = text_[at_];
    const std::size_t begin = at_;
    if (is_letter(c)) {
      while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
      token_.kind = Token::Kind::word;
      token_.text = text_.substr(begin, at_ - begin);
      return;
    }
    if (is_digit(c) || c == '.' || c == '+' || c == '-') {
      number(begin);
      return;
    }
    if (std::string_view("/*|,()=").find(c) != std::string_view::npos) {
      ++at_;
      token_.kind = Token::Kind::punctuation;
      token_.text = text_.substr(begin, 1);
      return;
    }
    // A run of bytes above 127 is one character or word of another script: quote it whole.
    std::size_t end = begin + 1;
    while (static_cast<unsigned char>(c) >= 0x80 && end < text_.size() &&
           static_cast<unsigned char>(text_[end]) >= 0x80)
      ++end;
    fail_at(token_.column, quoted(text_.substr(begin, end - begin)) +
                               " has no meaning in a recipe, which is plain ASCII: words, numbers and / * | , ( ) =");
  }

  void number(std::size_t begin) {
    std::size_t end = begin + 1;
    const auto part = [](char c) { return is_digit(c) || is_letter(c) || c == '.'; };
    while (end < text_.size()) {
      const char c = text_[end], before = text_[end - 1];
      const bool exponent_sign = (c == '-' || c == '+') && (before == 'e' || before == 'E');
      if (!part(c) && !exponent_sign) break;
      ++end;
    }
    at_ = end;
    token_.text = text_.substr(begin, end - begin);
    const bool multiple = token_.text.size() > 1 && token_.text.back() == 'x' &&
                          std::all_of(token_.text.begin(), token_.text.end() - 1, is_digit);
    if (multiple) {
      token_.kind = Token::Kind::word;
      return;
    }
    token_.kind = Token::Kind::number;
    std::string_view digits = token_.text;
    if (digits.front() == '+') digits.remove_prefix(1);
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), token_.number);
    if (stop != digits.data() + digits.size() || error == std::errc::invalid_argument)
      fail_at(token_.column, quoted(token_.text) + " is not a number; write it like 3, 0.5 or 1e-3");
    if (error == std::errc::result_out_of_range || !std::isfinite(token_.number))
      fail_at(token_.column, quoted(token_.text) + " is not a finite number that a double can hold");
  }

  std::string_view text_;
  std::size_t at_ = 0;
  Token token_;
};

void print(const Term&, std::string&);

void print_arguments(const std::vector<Argument>& arguments, std::string& out) {
  if (arguments.empty()) return;
  out += '(';
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Argument& a = arguments[i];
    if (i > 0) out += ", ";
    out += a.key;
    if (a.is_number()) {
      if (!a.key.empty()) out += '=';
      out += shortest(a.number());
    } else if (const Term* inner = std::get_if<Term>(&a.value)) {
      if (inner->word == a.key && !inner->arguments.empty()) {
        print_arguments(inner->arguments, out);
      } else {
        out += '=';
        print(*inner, out);
      }
    }
  }
  out += ')';
}

void print(const Term& term, std::string& out) {
  out += term.word;
  print_arguments(term.arguments, out);
}

}  // namespace

Recipe parse_recipe(std::string_view text) {
  if (text.size() > max_length)
    fail_at(static_cast<int>(max_length) + 1, "the recipe has " + std::to_string(text.size()) +
                                                  " characters; at most " + std::to_string(max_length) + " are read");
  Recipe recipe = Parser(text).recipe();
  interpret(recipe);
  return recipe;
}

std::string to_string(const Recipe& recipe) {
  std::string out;
  for (std::size_t i = 0; i < recipe.weights.size(); ++i) {
    if (i > 0) out += " * ";
    print(recipe.weights[i], out);
  }
  out += " / ";
  print(recipe.memory, out);
  out += " / ";
  print(recipe.solver, out);
  for (std::size_t i = 0; i < recipe.extras.size(); ++i) {
    out += i == 0 ? " | " : ", ";
    print(recipe.extras[i], out);
  }
  return out;
}

const Argument* Term::find(std::string_view key) const {
  for (const Argument& a : arguments)
    if (a.key == key) return &a;
  return nullptr;
}

bool operator==(const Term& a, const Term& b) { return a.word == b.word && a.arguments == b.arguments; }
bool operator==(const Argument& a, const Argument& b) { return a.key == b.key && a.value == b.value; }
bool operator==(const Recipe& a, const Recipe& b) {
  return a.weights == b.weights && a.memory == b.memory && a.solver == b.solver && a.extras == b.extras;
}

}  // namespace ttr
