// What main.cc knows of a verb. The verbs with their options are in verbs_*.h, for main.cc alone: CLI11 is slow to compile.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

namespace ttr::cli {

/// A verb, or a few that share something.
struct Verb {
  virtual ~Verb() = default;
  /// Tells CLI11 of it and of its options.
  virtual void declare(CLI::App& program) = 0;
  /// The exit code; nothing if the command line has another verb. `text` is that line, for reports.
  virtual std::optional<int> run(const std::string& text) = 0;
};

}  // namespace ttr::cli
