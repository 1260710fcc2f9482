// The manual page and the completions of shells, from the same table as --help: what main.cc has told CLI11.
#pragma once

#include <string>
#include <vector>

namespace ttr::cli {

struct OptionPage {
  std::string name;   // "--layer", or that of a word without dashes: "file"
  std::string value;  // what follows it: "TEXT"; empty for a flag
  std::string meaning;
  std::vector<std::string> choices;  // if only these are allowed
  bool positional = false;
};

struct CommandPage {
  std::string name, meaning;
  std::vector<OptionPage> options;
  std::vector<CommandPage> commands;
};

/// In the language of man(7).
std::string man_page(const CommandPage& program, const std::string& version, const std::string& examples);
std::string bash_completion(const CommandPage& program);
std::string zsh_completion(const CommandPage& program);

}  // namespace ttr::cli
