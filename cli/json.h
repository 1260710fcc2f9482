// A thin front for nlohmann-json, so that its heavy header is included in one file only (json.cc).
// Numbers that are not finite become null: JSON has no word for them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ttr::cli {

class Json {
 public:
  static Json object();
  static Json array();
  Json();  // null
  Json(double);
  Json(std::int64_t);
  Json(int number) : Json(static_cast<std::int64_t>(number)) {}
  Json(std::size_t number) : Json(static_cast<std::int64_t>(number)) {}
  Json(bool);
  Json(std::string_view);
  Json(const char* text) : Json(std::string_view(text)) {}
  Json(const std::string& text) : Json(std::string_view(text)) {}
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(Json) noexcept;
  ~Json();

  Json& set(std::string_view key, const Json& value);  // returns *this, to chain
  Json& push(const Json& value);
  Json& remove(std::string_view key);
  std::string dump(int indent = 2) const;

  /// Reads text; throws ttr::Error that names `where`.
  static Json parse(std::string_view text, const std::string& where);
  Json at(std::string_view key) const;  // of an object; null if there is none
  Json at(std::size_t index) const;     // of an array
  std::size_t size() const;             // of an object or array, else 0
  bool is_null() const;
  void for_each_name(const std::function<void(const std::string& name)>& call) const;  // of an object
  bool is_object() const;
  bool is_array() const;
  bool is_text() const;
  bool is_bool() const;
  /// Names and values of an object, in their order; `call(name, null, number, text)`: number is NaN and text empty if the
  /// value is of another kind. Returns false at a list or an object within.
  bool for_each(const std::function<void(const std::string& name, bool null, double number, const std::string& text)>&
                    call) const;
  double number() const;     // NaN if it is none
  std::string text() const;  // empty if it is none

 private:
  struct Value;
  std::unique_ptr<Value> value_;
};

/// The fields of one JSON object in their order, without a tree: those of inner objects with their path as a name. Keeps its
/// memory from one object to the next.
struct FlatJson {
  enum class Kind { number, text, null, list };  // true and false are numbers
  struct Field {
    std::string name, text;
    Kind kind = Kind::null;
    double number = 0;
  };
  std::vector<Field> fields;  // the first `count` of them
  std::size_t count = 0;

  /// Empty, or why the text is no object.
  std::string read(std::string_view text);
};

}  // namespace ttr::cli
