// Configuration as text, and the text of a stack.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "model/text.h"
#include "ttr/model.h"
#include "ttr/status.h"

namespace ttr::model {

std::string trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

int whole_number(std::string_view key, const std::string& text, int low, int high) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < low || number > high)
    throw Error(std::string(key) + " is '" + text + "'; it is a whole number from " + std::to_string(low) + " to " +
                    std::to_string(high),
                std::string(key));
  return number;
}

double real_number(std::string_view key, const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number))
    throw Error(std::string(key) + " is '" + text + "'; it is a number", std::string(key));
  return number;
}

std::string number_text(double number) {
  char buffer[40];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr};
}

bool yes_or_no(std::string_view key, const std::string& text) {
  if (text == "yes" || text == "true" || text == "1") return true;
  if (text == "no" || text == "false" || text == "0") return false;
  throw Error(std::string(key) + " is '" + text + "'; it is yes or no", std::string(key));
}

namespace {

// One past the quote that closes the one at `begin`; \" and \\ stand for themselves.
std::size_t after_quotes(std::string_view text, std::size_t begin) {
  for (std::size_t i = begin + 1; i < text.size(); ++i) {
    if (text[i] == '\\') ++i;
    else if (text[i] == '"') return i + 1;
  }
  throw Error("'" + std::string(text) + "' has a quote that is not closed", "settings");
}

std::string without_quotes(const std::string& value) {
  if (value.size() < 2 || value[0] != '"' || after_quotes(value, 0) != value.size()) return value;
  std::string result;
  for (std::size_t i = 1; i + 1 < value.size(); ++i) result += value[i] == '\\' ? value[++i] : value[i];
  return result;
}

}  // namespace

std::map<std::string, std::string> parse_settings(std::string_view text, std::string_view where) {
  std::map<std::string, std::string> settings;
  int depth = 0;
  std::string piece;
  const auto add = [&] {
    const std::string one = trimmed(piece);
    piece.clear();
    if (one.empty()) return;
    const std::size_t equals = one.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Error("'" + one + "' in " + std::string(where) + " is no setting; write name=value", std::string(where));
    const std::string key = trimmed(one.substr(0, equals));
    if (!settings.emplace(key, without_quotes(trimmed(one.substr(equals + 1)))).second)
      throw Error("the setting '" + key + "' is given twice in " + std::string(where), std::string(where));
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      const std::size_t end = after_quotes(text, i);
      piece += text.substr(i, end - i);
      i = end - 1;
      continue;
    }
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == ',' && depth == 0) add();
    else piece += c;
  }
  add();
  return settings;
}

namespace {

// The piece from `begin` to the bracket that closes the one before it.
std::size_t closing(std::string_view text, std::size_t begin, char open, char close) {
  int depth = 1;
  for (std::size_t i = begin; i < text.size(); ++i) {
    while (i < text.size() && text[i] == '"') i = after_quotes(text, i);
    if (i == text.size()) break;
    depth += text[i] == open ? 1 : text[i] == close ? -1 : 0;
    if (depth == 0) return i;
  }
  throw Error("the stack '" + std::string(text) + "' has a '" + open + "' without '" + close + "'", "stack");
}

}  // namespace

std::vector<BlockText> parse_stack(std::string_view text) {
  std::vector<BlockText> blocks;
  std::size_t at = 0;
  const auto skip = [&] {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n')) ++at;
  };
  const std::string all(text);
  for (skip(); at < text.size(); skip()) {
    BlockText block;
    if (text[at] == '{') {
      const std::size_t end = closing(text, at + 1, '{', '}');
      block.mixer = trimmed(text.substr(at + 1, end - at - 1));
      at = end + 1;
    } else {
      const std::size_t begin = at;
      while (at < text.size() && text[at] != '(' && text[at] != ',' && text[at] != '*') {
        if (text[at] == '/')
          throw Error("the stack '" + all + "' has a recipe without braces; write {weights / memory / solver}",
                      "stack");
        ++at;
      }
      block.mixer = trimmed(text.substr(begin, at - begin));
    }
    if (block.mixer.empty()) throw Error("the stack '" + all + "' has an empty block", "stack");
    skip();
    if (at < text.size() && text[at] == '(') {
      const std::size_t end = closing(text, at + 1, '(', ')');
      block.settings = parse_settings(text.substr(at + 1, end - at - 1), "the stack");
      at = end + 1;
      skip();
    }
    int times = 1;
    if (at < text.size() && text[at] == '*') {
      const std::size_t begin = ++at;
      while (at < text.size() && text[at] != ',') ++at;
      times = whole_number("the factor in the stack", trimmed(text.substr(begin, at - begin)), 1, 1000);
    }
    if (at < text.size() && text[at] != ',')
      throw Error("the stack '" + all + "' goes on with '" + std::string(text.substr(at)) +
                      "'; blocks are separated by commas",
                  "stack");
    if (at < text.size()) {
      ++at;
      skip();
      if (at == text.size()) throw Error("the stack '" + all + "' ends with a comma", "stack");
    }
    blocks.insert(blocks.end(), static_cast<std::size_t>(times), block);
  }
  if (blocks.empty()) throw Error("the stack is empty; name a layer, for example gated-deltanet*2", "stack");
  return blocks;
}

std::string to_string(const BlockText& block) {
  const bool recipe = block.mixer.find('/') != std::string::npos;
  std::string text = recipe ? "{" + block.mixer + "}" : block.mixer, list;
  for (const auto& [key, value] : block.settings) {
    list += (list.empty() ? "" : ", ") + key + "=";
    if (!value.empty() && trimmed(value) == value && value.find_first_of(",()\"\\") == std::string::npos) {
      list += value;
      continue;
    }
    list += '"';
    for (const char c : value) (list += c == '"' || c == '\\' ? "\\" : "") += c;
    list += '"';
  }
  return list.empty() ? text : text + "(" + list + ")";
}

namespace {

// Every field once: what writes and what reads cannot disagree.
template <class Visit>
void fields(Visit&& visit, auto& c) {
  visit("stack", c.stack);
  visit("vocabulary", c.vocabulary);
  visit("input_dim", c.input_dim);
  visit("output_dim", c.output_dim);
  visit("loss", c.loss);
  visit("width", c.width);
  visit("heads", c.heads);
  visit("key_dim", c.key_dim);
  visit("value_dim", c.value_dim);
  visit("mlp", c.mlp);
  visit("mlp_width", c.mlp_width);
  visit("tied", c.tied);
  visit("read_out", c.read_out);
  visit("time", c.time);
  visit("embedding_scale", c.embedding_scale);
  visit("norm_eps", c.norm_eps);
}

}  // namespace

std::string to_string(const Config& config) {
  FieldWriter write;
  fields(write, config);
  return write.text;
}

Config parse_config(std::string_view text) {
  Config config;
  read_fields(text, "the configuration", [&](auto&& visit) { fields(visit, config); });
  return config;
}

}  // namespace ttr::model
