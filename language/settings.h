// What a checkpoint says about itself: config.json, or the pairs of keys and values of a GGUF file. Nested objects are
// flattened ("text_config.hidden_size", "attn.layers"); null is absent.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ttr::model {

class Settings {
 public:
  using Value = std::variant<bool, double, std::string, std::vector<double>, std::vector<std::string>>;

  /// `source` stands for the file in errors.
  explicit Settings(std::string source = "config") : source_(std::move(source)) {}
  void set(const std::string& key, Value value) { values_[key] = std::move(value); }
  bool has(const std::string& key) const { return find(key) != nullptr; }
  /// Keys that were asked for so far.
  const std::set<std::string>& asked() const { return asked_; }
  const std::map<std::string, Value>& all() const { return values_; }
  const std::string& source() const { return source_; }

  // Each throws Error that names the key if the value is of another kind or, without `otherwise`, absent.
  double number(const std::string& key, std::optional<double> otherwise = {}) const;
  /// A whole number from `least` on.
  int whole(const std::string& key, std::optional<int> otherwise = {}, int least = 0) const;
  bool flag(const std::string& key, std::optional<bool> otherwise = {}) const;
  std::string text(const std::string& key, const std::optional<std::string>& otherwise = {}) const;
  /// Empty if absent.
  std::vector<double> numbers(const std::string& key) const;
  std::vector<std::string> texts(const std::string& key) const;

  /// Of a JSON text. Throws Error.
  static Settings from_json(std::string_view text, const std::string& source);

 private:
  const Value* find(const std::string& key) const;
  [[noreturn]] void wrong(const std::string& key, const char* wanted) const;

  std::map<std::string, Value> values_;
  std::string source_;
  mutable std::set<std::string> asked_;
};

}  // namespace ttr::model
