#include "json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "ttr/status.h"

namespace ttr::cli {

struct Json::Value {
  nlohmann::ordered_json json;
};

Json::Json() : value_(std::make_unique<Value>()) {}
Json::Json(double number) : Json() {
  if (std::isfinite(number)) value_->json = number;
}
Json::Json(std::int64_t number) : Json() { value_->json = number; }
Json::Json(bool flag) : Json() { value_->json = flag; }
Json::Json(std::string_view text) : Json() { value_->json = std::string(text); }
Json::Json(const Json& other) : value_(std::make_unique<Value>(*other.value_)) {}
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(Json other) noexcept {
  std::swap(value_, other.value_);
  return *this;
}
Json::~Json() = default;

Json Json::object() {
  Json j;
  j.value_->json = nlohmann::ordered_json::object();
  return j;
}
Json Json::array() {
  Json j;
  j.value_->json = nlohmann::ordered_json::array();
  return j;
}
Json& Json::set(std::string_view key, const Json& value) {
  value_->json[std::string(key)] = value.value_->json;
  return *this;
}
Json& Json::push(const Json& value) {
  value_->json.push_back(value.value_->json);
  return *this;
}
Json& Json::remove(std::string_view key) {
  value_->json.erase(std::string(key));
  return *this;
}
std::string Json::dump(int indent) const {
  return value_->json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Json Json::parse(std::string_view text, const std::string& where) {
  Json j;
  j.value_->json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (j.value_->json.is_discarded()) throw Error(where + " is not JSON", where);
  return j;
}
Json Json::at(std::string_view key) const {
  Json j;
  if (!value_->json.is_object()) return j;
  const auto found = value_->json.find(std::string(key));
  if (found != value_->json.end()) j.value_->json = *found;
  return j;
}
Json Json::at(std::size_t index) const {
  Json j;
  if (value_->json.is_array() && index < value_->json.size()) j.value_->json = value_->json[index];
  return j;
}
std::size_t Json::size() const { return value_->json.is_structured() ? value_->json.size() : 0; }
bool Json::is_null() const { return value_->json.is_null(); }
double Json::number() const { return value_->json.is_number() ? value_->json.get<double>() : std::nan(""); }
std::string Json::text() const { return value_->json.is_string() ? value_->json.get<std::string>() : ""; }

}  // namespace ttr::cli
