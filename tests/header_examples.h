// What tests of the examples in public headers share: the statements of a header's example, and whether a test has them.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace ttr::examples {

inline std::string read(const std::string& name) {
  std::ifstream file(TTR_SOURCE_DIR "/" + name);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << name << " cannot be read";
  return text.str();
}

inline std::string without_blanks(const std::string& text) {
  std::string result;
  for (char c : text)
    if (!std::isspace(static_cast<unsigned char>(c))) result += c;
  return result;
}

// The statements of a line of C++, without blanks and its comment; those that say `...` are left out.
inline std::vector<std::string> statements(std::string line) {
  if (const std::size_t comment = line.find("//"); comment != std::string::npos) line.resize(comment);
  std::vector<std::string> result;
  std::stringstream parts(line);
  for (std::string part; std::getline(parts, part, ';');)
    if (part.find("...") == std::string::npos && !without_blanks(part).empty())
      result.push_back(without_blanks(part));
  return result;
}

// Lines `//   code` of the comment at the top of a header, to the first that is none: what follows are formulas.
inline std::vector<std::string> header_example(const std::string& name) {
  std::vector<std::string> found;
  std::stringstream text(read(name));
  for (std::string line; std::getline(text, line) && line.starts_with("//");) {
    if (!line.starts_with("//   ") && !found.empty()) break;
    if (line.starts_with("//   ") && line.find(';') != std::string::npos)
      for (const std::string& statement : statements(line.substr(2))) found.push_back(statement);
  }
  return found;
}

// The code of a test before its line "// What the headers say", without comments, has these statements.
inline void expect_in(const std::string& test, const std::vector<std::string>& examples, std::size_t at_least) {
  std::stringstream text(read(test));
  std::string code;
  for (std::string line; std::getline(text, line) && !line.starts_with("// What the headers say");)
    code += without_blanks(line.substr(0, line.find("//")));
  EXPECT_GE(examples.size(), at_least);
  for (const std::string& statement : examples)
    EXPECT_NE(code.find(statement), std::string::npos) << "not compiled by this test: " << statement;
}

}  // namespace ttr::examples
