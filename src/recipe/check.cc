// A term against the table of words: unknown words and options, wrong types, numbers out of range, options given
// twice or that exclude one another. Every message quotes the word, stands at its column and says what would do.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "recipe/text_tools.h"
#include "recipe/words.h"
#include "ttr/status.h"

namespace ttr {
namespace {

std::string list(const std::vector<std::string>& items) {
  std::string out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += i + 1 == items.size() ? " or " : ", ";
    out += "`" + items[i] + "`";
  }
  return out;
}

std::string axis_phrase(Axis axis) {
  switch (axis) {
    case Axis::weights:
      return "the weights (before the first `/`)";
    case Axis::memory:
      return "the memory (between the slashes)";
    case Axis::solver:
      return "the solver (after the second `/`)";
    case Axis::extra:
      return "the extras (after `|`)";
  }
  return "";
}

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = nearest_word(word, candidates);
  return near.empty() ? "" : "; did you mean `" + near + "`?";
}

[[noreturn]] void unknown_word(Axis axis, const Term& term) {
  std::vector<std::string> valid;
  for (const WordInfo& info : words())
    if (info.axis == axis) valid.emplace_back(info.word);
  std::string message = quoted(term.word) + " is not a word for " + axis_phrase(axis);
  std::string elsewhere;
  for (const WordInfo& info : words())
    if (info.axis != axis && info.word == term.word) elsewhere = axis_phrase(info.axis);
  if (!elsewhere.empty()) message += "; it belongs to " + elsewhere;
  else message += suggestion(term.word, valid);
  fail_at(term.column, message + (message.back() == '?' ? " Valid here: " : "; valid here: ") + list(valid));
}

std::string options_of(const WordInfo& info) {
  if (info.options.empty()) return "`" + std::string(info.word) + "` takes no options";
  std::string out = "`" + std::string(info.word) + "` takes ";
  for (std::size_t i = 0; i < info.options.size(); ++i) {
    if (i > 0) out += i + 1 == info.options.size() ? " and " : ", ";
    out += list(spellings(info.options[i]));
  }
  return out;
}

const OptionInfo* option_named(const WordInfo& info, std::string_view name) {
  for (const OptionInfo& option : info.options)
    if (option.name == name && (option.written & ~as_number) != 0) return &option;
  return nullptr;
}

const OptionInfo* bare_number(const WordInfo& info) {
  for (const OptionInfo& option : info.options)
    if (option.written & as_number) return &option;
  return nullptr;
}

void check_number(const WordInfo& info, const OptionInfo& option, double x, int column) {
  const bool inside = std::isfinite(x) && (option.above_low ? x > option.low : x >= option.low) && x <= option.high &&
                      (!option.integer || x == std::floor(x));
  if (inside) return;
  const std::string written = option.written & as_number
                                  ? std::string(info.word) + "(" + shortest(x) + ")"
                                  : std::string(info.word) + "(" + std::string(option.name) + "=" + shortest(x) + ")";
  fail_at(column, "`" + written + "`: " + shortest(x) + " should be " + range_in_words(option));
}

/// The numbers of `name(0.5, 0.2)`. How many a word's count asks for is said by recipe/interpret.cc.
void check_list(const WordInfo& info, const OptionInfo& option, const std::string& key, const Term& list_term) {
  for (const Argument& each : list_term.arguments) {
    if (!each.key.empty() || !each.is_number())
      fail_at(each.column, quoted(key) + " of " + quoted(info.word) + " takes numbers in its parentheses; write " +
                               list(spellings(option)));
    check_number(info, option, each.number(), each.column);
  }
  const auto given = static_cast<int>(list_term.arguments.size());
  if (option.list_size > 0 && given != option.list_size)
    fail_at(list_term.column, quoted(key) + " of " + quoted(info.word) + " takes " +
                                  std::to_string(option.list_size) + " numbers, not " + std::to_string(given));
}

const OptionInfo& check_argument(const WordInfo& info, const Argument& a) {
  if (a.key.empty()) {
    if (!a.is_number()) fail_at(a.column, "an option of " + quoted(info.word) + " has neither a name nor a number");
    const OptionInfo* option = bare_number(info);
    if (option == nullptr)
      fail_at(a.column, "the number " + shortest(a.number()) + " means nothing to " + quoted(info.word) + "; " +
                            options_of(info));
    check_number(info, *option, a.number(), a.column);
    return *option;
  }
  const OptionInfo* option = option_named(info, a.key);
  if (option == nullptr) {
    const OptionInfo* number = bare_number(info);
    std::vector<std::string> valid;
    for (const OptionInfo& o : info.options)
      if (o.written & ~as_number) valid.emplace_back(o.name);
    std::string hint = suggestion(a.key, valid);
    if (number != nullptr && hint.empty() && number->required)
      fail_at(a.column, quoted(a.key) + " is not an option of " + quoted(info.word) + ", which wants " +
                            range_in_words(*number) + "; " + options_of(info));
    if (!hint.empty())
      fail_at(a.column, quoted(a.key) + " is not an option of " + quoted(info.word) + hint + " " + options_of(info));
    fail_at(a.column, quoted(a.key) + " is not an option of " + quoted(info.word) + "; " + options_of(info));
  }
  const std::string right = "; write " + list(spellings(*option));
  if (a.is_number()) {
    if (!(option->written & as_value))
      fail_at(a.column, quoted(a.key) + " of " + quoted(info.word) + " takes no number" + right);
    check_number(info, *option, a.number(), a.column);
  } else if (const Term* inner = std::get_if<Term>(&a.value)) {
    const bool call = inner->word == a.key && !inner->arguments.empty();
    if (!call && !(option->written & as_word)) {
      const bool infinite = inner->word == "inf" || inner->word == "nan" || inner->word == "infinity";
      if (infinite && (option->written & as_value))
        fail_at(inner->column, quoted(inner->word) + " is not a finite number; " + quoted(a.key) + " should be " +
                                   range_in_words(*option));
      fail_at(inner->column, quoted(a.key + "=" + inner->word) + " is not a way to write this option of " +
                                 quoted(info.word) + right);
    }
    if (call && !(option->written & (as_call | as_list)))
      fail_at(inner->column, quoted(a.key) + " of " + quoted(info.word) + " takes no parentheses" + right);
    const std::vector<std::string> valid = split_words(option->words);
    const auto check_choice = [&](std::string_view word, int column) {
      if (std::find(valid.begin(), valid.end(), word) == valid.end())
        fail_at(column, quoted(word) + " is not a choice of " + quoted(a.key) + "; valid: " + list(valid));
    };
    if (!call) {
      check_choice(inner->word, inner->column);
    } else if ((option->written & as_list) && inner->arguments.front().key.empty()) {
      check_list(info, *option, a.key, *inner);
    } else {
      const Argument& choice = inner->arguments.front();
      if (valid.empty())
        fail_at(choice.column,
                quoted(a.key) + " of " + quoted(info.word) + " takes numbers in its parentheses" + right);
      if (inner->arguments.size() > 1)
        fail_at(inner->arguments[1].column,
                quoted(a.key) + " takes a single word in its parentheses: " + list(valid));
      if (choice.key.empty() || !std::holds_alternative<std::monostate>(choice.value))
        fail_at(choice.column, quoted(a.key) + " takes one of the words " + list(valid) + " in its parentheses" +
                                   (option->written & as_value ? "; a number is written `" + a.key + "=x`" : ""));
      check_choice(choice.key, choice.column);
    }
  } else if (!(option->written & as_flag)) {
    fail_at(a.column, quoted(a.key) + " of " + quoted(info.word) + " needs a value" + right);
  }
  return *option;
}

}  // namespace

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (end > 0) out.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

void check_against_table(Axis axis, const Term& term) {
  const WordInfo* info = find_word(axis, term.word);
  if (info == nullptr) unknown_word(axis, term);
  std::vector<std::pair<const OptionInfo*, const Argument*>> seen;
  for (const Argument& a : term.arguments) {
    const OptionInfo& option = check_argument(*info, a);
    for (const auto& [other, where] : seen) {
      if (other == &option)
        fail_at(a.column,
                (a.key.empty() ? "a second number, " + shortest(a.number()) + "," : quoted(a.key) + " again") +
                    " in the options of " + quoted(term.word) + "; give it once");
      if (!option.group.empty() && other->group == option.group) {
        const std::string first = where->key.empty() ? shortest(where->number()) : where->key;
        const std::string second = a.key.empty() ? shortest(a.number()) : a.key;
        fail_at(a.column, quoted(second) + " and " + quoted(first) + " exclude one another in the options of " +
                              quoted(term.word) + "; keep one of them");
      }
    }
    seen.emplace_back(&option, &a);
  }
  for (const OptionInfo& option : info->options) {
    if (!option.required) continue;
    const bool given = std::any_of(seen.begin(), seen.end(), [&](const auto& s) {
      return s.first == &option || (!option.group.empty() && s.first->group == option.group);
    });
    if (given) continue;
    std::vector<std::string> choices;
    for (const OptionInfo& other : info->options)
      if (&other == &option || (!option.group.empty() && other.group == option.group))
        for (const std::string& way : spellings(other)) choices.push_back(term.word + "(" + way + ")");
    fail_at(term.column, quoted(term.word) + " needs an option: " + list(choices) +
                             (option.written & as_number ? ", " + range_in_words(option) : ""));
  }
}

std::vector<std::string> spellings(const OptionInfo& option) {
  const std::string name(option.name);
  std::vector<std::string> out;
  if (option.written & (as_number | as_flag)) out.push_back(name);
  if (option.written & as_value) out.push_back(name + "=" + (option.integer ? "n" : "x"));
  std::string choices;
  for (const std::string& word : split_words(option.words)) choices += (choices.empty() ? "" : "|") + word;
  if (option.written & as_word) out.push_back(name + "=" + choices);
  if (option.written & as_call) out.push_back(name + "(" + choices + ")");
  if (option.written & as_list) {
    std::string numbers;
    for (int i = 0; i < option.list_size; ++i) numbers += i == 0 ? "x" : ", x";
    out.push_back(name + "(" + (numbers.empty() ? "x, ..." : numbers) + ")");
  }
  return out;
}

std::string range_in_words(const OptionInfo& option) {
  if (!(option.written & (as_value | as_number | as_list))) return "";
  const std::string kind = option.integer ? "a whole number" : "a number";
  const bool low = std::isfinite(option.low), high = std::isfinite(option.high);
  if (low && high && option.above_low)
    return kind + " above " + shortest(option.low) + " and at most " + shortest(option.high);
  if (low && high) return kind + " from " + shortest(option.low) + " to " + shortest(option.high);
  if (low && option.above_low) return kind + " above " + shortest(option.low);
  if (low) return kind + " of at least " + shortest(option.low);
  return kind;
}

void fail_at(int column, const std::string& message) {
  throw Error(message, column > 0 ? "column " + std::to_string(column) + " of the recipe" : "the recipe");
}

std::string quoted(std::string_view word) {
  constexpr std::size_t longest = 40;
  const bool cut = word.size() > longest;
  std::string out = "`";
  for (const char c : word.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      constexpr std::string_view hex = "0123456789abcdef";
      out += {'\\', 'x', hex[byte >> 4], hex[byte & 15]};
    }
  }
  return out + (cut ? "...`" : "`");
}

std::string shortest(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  if (error != std::errc()) return "nan";
  std::string text(buffer, end);
  // 1e-06 and 1e+20 become 1e-6 and 1e20, as people write them.
  const std::size_t e = text.find('e');
  if (e == std::string::npos || e + 1 >= text.size()) return text;
  std::string exponent = text.substr(e + 1);
  const bool minus = exponent.front() == '-';
  exponent.erase(0, exponent.find_first_not_of("+-0"));
  return text.substr(0, e + 1) + (minus ? "-" : "") + (exponent.empty() ? "0" : exponent);
}

}  // namespace ttr
