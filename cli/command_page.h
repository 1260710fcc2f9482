// From the command line as CLI11 knows it to the table that manual.h prints. For main.cc alone: CLI11 is slow to compile.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>

#include "manual.h"

namespace ttr::cli {

struct ManualWanted {};  // thrown by --man

// What the parser knows, for the manual page and the completions.
inline CommandPage page_of(const CLI::App& command) {
  CommandPage page{command.get_name(), command.get_description(), {}, {}};
  for (const CLI::Option* option : command.get_options()) {
    const bool positional = option->get_lnames().empty() && option->get_snames().empty();
    OptionPage one{option->get_name(positional, !positional), "", option->get_description(), {}, positional};
    one.name = one.name.substr(0, one.name.find(','));
    if (!option->get_lnames().empty()) one.name = "--" + option->get_lnames().front();
    if (option->get_items_expected_max() > 0) {  // "TEXT:{error,skip}"
      const std::string type = option->get_type_name();
      const std::size_t open = type.find('{'), close = type.find('}');
      one.value = type.substr(0, type.find(':'));
      for (std::size_t from = open + 1; open != type.npos && close != type.npos && from <= close;) {
        const std::size_t to = std::min(type.find(',', from), close);
        one.choices.push_back(type.substr(from, to - from));
        from = to + 1;
      }
    }
    page.options.push_back(std::move(one));
  }
  for (const CLI::App* inner : command.get_subcommands([](const CLI::App*) { return true; }))
    page.commands.push_back(page_of(*inner));
  return page;
}

}  // namespace ttr::cli
