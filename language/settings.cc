#include "language/settings.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "ttr/status.h"

namespace ttr::model {
namespace {

using Tree = nlohmann::json;

// Arrays of one kind are values; others are flattened by their index.
void flatten(const Tree& node, const std::string& key, int depth, Settings& to) {
  if (depth > 32) throw Error(to.source() + ": it is nested too deeply at '" + key + "'", to.source());
  const std::string inside = key.empty() ? "" : key + ".";
  if (node.is_boolean()) to.set(key, node.get<bool>());
  else if (node.is_number()) to.set(key, node.get<double>());
  else if (node.is_string()) to.set(key, node.get<std::string>());
  else if (node.is_object())
    for (const auto& [name, child] : node.items()) flatten(child, inside + name, depth + 1, to);
  else if (node.is_array()) {
    bool numbers = true, texts = true;
    for (const Tree& one : node) numbers = numbers && one.is_number(), texts = texts && one.is_string();
    if (numbers) to.set(key, node.get<std::vector<double>>());
    else if (texts) to.set(key, node.get<std::vector<std::string>>());
    else
      for (std::size_t i = 0; i < node.size(); ++i) flatten(node[i], inside + std::to_string(i), depth + 1, to);
  }
}

// Python writes Infinity and NaN, which are no JSON: a number beyond all others, and null.
std::string without_infinity(std::string_view text) {
  std::string result;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\' && i + 1 < text.size()) {
      (result += text[i]) += text[i + 1], ++i;
      continue;
    }
    if (text[i] == '"') quoted = !quoted;
    if (!quoted && text.compare(i, 8, "Infinity") == 0) result += "1e308", i += 7;
    else if (!quoted && text.compare(i, 3, "NaN") == 0) result += "null", i += 2;
    else result += text[i];
  }
  return result;
}

}  // namespace

Settings Settings::from_json(std::string_view text, const std::string& source) {
  Settings result(source);
  const Tree tree = Tree::parse(without_infinity(text), nullptr, false);
  if (tree.is_discarded()) throw Error(source + ": it is not JSON", source);
  if (!tree.is_object()) throw Error(source + ": it is JSON but no object", source);
  flatten(tree, "", 0, result);
  return result;
}

const Settings::Value* Settings::find(const std::string& key) const {
  asked_.insert(key);
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}
void Settings::wrong(const std::string& key, const char* wanted) const {
  throw Error(source_ + ": '" + key + "' " + (has(key) ? "is not " : "is missing; it is ") + wanted, key);
}

double Settings::number(const std::string& key, std::optional<double> otherwise) const {
  const Value* const value = find(key);
  if (!value && otherwise) return *otherwise;
  if (!value || !std::holds_alternative<double>(*value)) wrong(key, "a number");
  return std::get<double>(*value);
}
int Settings::whole(const std::string& key, std::optional<int> otherwise, int least) const {
  const Value* const value = find(key);
  if (!value && otherwise) return *otherwise;
  const double number = this->number(key);
  if (number != std::floor(number) || number < least || number > 1e9)
    throw Error(source_ + ": '" + key + "' is " + std::to_string(number) + "; it is a whole number from " +
                    std::to_string(least) + " on",
                key);
  return static_cast<int>(number);
}
bool Settings::flag(const std::string& key, std::optional<bool> otherwise) const {
  const Value* const value = find(key);
  if (!value && otherwise) return *otherwise;
  if (!value || !std::holds_alternative<bool>(*value)) wrong(key, "true or false");
  return std::get<bool>(*value);
}
std::string Settings::text(const std::string& key, const std::optional<std::string>& otherwise) const {
  const Value* const value = find(key);
  if (!value && otherwise) return *otherwise;
  if (!value || !std::holds_alternative<std::string>(*value)) wrong(key, "a text");
  return std::get<std::string>(*value);
}
std::vector<double> Settings::numbers(const std::string& key) const {
  const Value* const value = find(key);
  if (!value) return {};
  if (!std::holds_alternative<std::vector<double>>(*value)) wrong(key, "a list of numbers");
  return std::get<std::vector<double>>(*value);
}
std::vector<std::string> Settings::texts(const std::string& key) const {
  const Value* const value = find(key);
  if (!value) return {};
  if (const auto* list = std::get_if<std::vector<double>>(value); list && list->empty()) return {};
  if (!std::holds_alternative<std::vector<std::string>>(*value)) wrong(key, "a list of texts");
  return std::get<std::vector<std::string>>(*value);
}

}  // namespace ttr::model
