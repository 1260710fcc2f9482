// A text as JSON has it. Files and descriptions are written by hand: the library that reads JSON is slow to compile.
#pragma once

#include <string>

namespace ttr {

inline std::string json_text(const std::string& text) {
  static const char digits[] = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') result += '\\', result += c;
    else if (c == '\n') result += "\\n";
    else if (byte < 0x20) result += std::string("\\u00") + digits[byte >> 4] + digits[byte & 15];
    else result += c;
  }
  return result + "\"";
}

}  // namespace ttr
