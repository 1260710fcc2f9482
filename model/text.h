// Small pieces of text shared by the files of model/ (config.cc).
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "ttr/status.h"

namespace ttr::model {

std::string trimmed(std::string_view);
/// Throw Error that names the key and what it can be.
int whole_number(std::string_view key, const std::string& text, int low, int high);
double real_number(std::string_view key, const std::string& text);
bool yes_or_no(std::string_view key, const std::string& text);
std::string number_text(double);
/// "a=1, b=f(x, y)": separated by commas outside parentheses.
std::map<std::string, std::string> parse_settings(std::string_view text, std::string_view where);

/// Structs as `key = value` lines: a function calls visit(key, field) for every field, and both of these visit.
struct FieldWriter {
  std::string text;
  void line(std::string_view key, std::string_view value) { ((text += key) += " = ") += value, text += '\n'; }
  void operator()(std::string_view key, const std::string& value) { line(key, value); }
  void operator()(std::string_view key, int value) { line(key, std::to_string(value)); }
  void operator()(std::string_view key, bool value) { line(key, value ? "yes" : "no"); }
  void operator()(std::string_view key, double value) { line(key, number_text(value)); }
};
struct FieldReader {
  const std::string &wanted, &value;
  std::string known = {};
  bool found = false;
  bool is(std::string_view key) {
    (known += known.empty() ? "" : ", ") += key;
    return key == wanted && (found = true);
  }
  void operator()(std::string_view key, std::string& to) {
    if (is(key)) to = value;
  }
  void operator()(std::string_view key, int& to) {
    if (is(key)) to = whole_number(key, value, 0, 1 << 30);
  }
  void operator()(std::string_view key, bool& to) {
    if (is(key)) to = yes_or_no(key, value);
  }
  void operator()(std::string_view key, double& to) {
    if (is(key)) to = real_number(key, value);
  }
};
/// Lines into fields; empty lines and those that begin with # are left out. Throws Error for unknown keys.
template <class Fields>
void read_fields(std::string_view text, const std::string& what, Fields&& fields) {
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line[0] == '#') continue;
    const std::string where = "line " + std::to_string(number) + " of " + what;
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) throw Error("'" + line + "' is no setting; write key = value", where);
    const std::string key = trimmed(line.substr(0, equals)), value = trimmed(line.substr(equals + 1));
    FieldReader read{key, value};
    fields(read);
    if (!read.found) throw Error(what + " has no '" + key + "'; it has " + read.known, where);
  }
}

}  // namespace ttr::model
