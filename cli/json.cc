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

void Json::for_each_name(const std::function<void(const std::string&)>& call) const {
  for (const auto& [name, value] : value_->json.items()) call(name);
}

bool Json::is_object() const { return value_->json.is_object(); }
bool Json::is_array() const { return value_->json.is_array(); }
bool Json::is_text() const { return value_->json.is_string(); }
bool Json::is_bool() const { return value_->json.is_boolean(); }

bool Json::for_each(const std::function<void(const std::string&, bool, double, const std::string&)>& call) const {
  static const std::string none;
  if (!value_->json.is_object()) return false;
  for (const auto& [name, value] : value_->json.items()) {
    if (value.is_structured()) return false;
    const double number = value.is_number()    ? value.get<double>()
                          : value.is_boolean() ? (value.get<bool>() ? 1 : 0)
                                               : std::nan("");
    call(name, value.is_null(), number, value.is_string() ? value.get_ref<const std::string&>() : none);
  }
  return true;
}

namespace {

class FlatHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit FlatHandler(FlatJson& out) : out_(out) {}
  std::string why;

  bool null() override { return put(FlatJson::Kind::null, 0, {}); }
  bool boolean(bool flag) override { return put(FlatJson::Kind::number, flag ? 1 : 0, {}); }
  bool number_integer(number_integer_t n) override { return put(FlatJson::Kind::number, static_cast<double>(n), {}); }
  bool number_unsigned(number_unsigned_t n) override {
    return put(FlatJson::Kind::number, static_cast<double>(n), {});
  }
  bool number_float(number_float_t n, const string_t&) override { return put(FlatJson::Kind::number, n, {}); }
  bool string(string_t& text) override { return put(FlatJson::Kind::text, 0, text); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override {
    if (lists_ > 0) return true;
    if (!prefixes_.empty()) path_ += '.';
    prefixes_.push_back(path_.size());
    return true;
  }
  bool end_object() override {
    if (lists_ > 0) return true;
    prefixes_.pop_back();
    return true;
  }
  bool key(string_t& name) override {
    if (lists_ > 0) return true;
    path_.resize(prefixes_.back()), path_ += name;
    return true;
  }
  bool start_array(std::size_t) override {
    if (prefixes_.empty()) return fail("it is a list");
    if (lists_++ == 0) {
      --lists_;
      put(FlatJson::Kind::list, 0, {});
      ++lists_;
    }
    return true;
  }
  bool end_array() override {
    --lists_;
    return true;
  }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::detail::exception&) override {
    return fail("it is wrong at byte " + std::to_string(at));
  }

 private:
  bool fail(std::string text) {
    why = std::move(text);
    return false;
  }
  bool put(FlatJson::Kind kind, double number, std::string_view text) {
    if (prefixes_.empty()) return fail("it is a single value");
    if (lists_ > 0) return true;
    if (out_.count == out_.fields.size()) out_.fields.emplace_back();
    FlatJson::Field& field = out_.fields[out_.count++];
    field.name = path_, field.text = text, field.kind = kind, field.number = number;
    return true;
  }

  FlatJson& out_;
  std::string path_;
  std::vector<std::size_t> prefixes_;  // of the objects around: lengths of their paths
  int lists_ = 0;
};

}  // namespace

std::string FlatJson::read(std::string_view text) {
  count = 0;
  FlatHandler handler(*this);
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &handler)) return "";
  return handler.why.empty() ? "it is no JSON" : handler.why;
}

}  // namespace ttr::cli
