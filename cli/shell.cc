#include "shell.h"

#include <algorithm>

namespace ttr::cli {

std::string shell_quoted(std::string_view word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string shell_word(std::string_view word) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-+=:,./@%").find(c) != std::string_view::npos;
  };
  // zsh looks a word that begins with = up among the programs.
  const bool bare = !word.empty() && word.front() != '=' && std::all_of(word.begin(), word.end(), plain);
  return bare ? std::string(word) : shell_quoted(word);
}

std::string shell_command(const std::vector<std::string>& words) {
  std::string text = "ttr";
  for (const std::string& word : words) text += " " + shell_word(word);
  return text;
}

}  // namespace ttr::cli
