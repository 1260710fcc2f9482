#include "manual.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "shell.h"

namespace ttr::cli {
namespace {

// Text for roff: a line must not begin with a dot or a quote, and a dash is a minus sign, so that it can be copied.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else out += c;
  }
  return out;
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

void man_options(std::string& text, const CommandPage& command) {
  for (const OptionPage& option : command.options) {
    text += fmt::format(".TP\n.B {}{}\n{}{}\n", roff(option.name),
                        option.value.empty() || option.positional ? "" : " \\fI" + roff(option.value) + "\\fR",
                        roff(option.meaning),
                        option.choices.empty() ? "" : roff(fmt::format(" ({})", fmt::join(option.choices, ", "))));
  }
}

std::string synopsis(const CommandPage& command) {
  std::string words;
  for (const OptionPage& option : command.options)
    if (option.positional) words += " [" + option.name + "]";
  return command.name + words + " [options]";
}

void man_command(std::string& text, const CommandPage& command, const std::string& before) {
  text += fmt::format(".SS {}\n{}.\n.P\n.B {}\n", roff(upper(before + command.name)), roff(command.meaning),
                      roff("ttr " + before + synopsis(command)));
  man_options(text, command);
  for (const CommandPage& inner : command.commands) man_command(text, inner, before + command.name + " ");
}

// In the specifications of zsh brackets and colons have a meaning.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// A function name: bench rls-stability -> bench_rls_stability
std::string identifier(std::string text) {
  for (char& c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return text;
}

bool wants_layer(const OptionPage& option) {
  return option.name == "--layer" || option.name == "layer" || option.name == "layers";
}

std::string words_of(const CommandPage& command) {
  std::string words;
  for (const OptionPage& option : command.options)
    if (!option.positional) words += (words.empty() ? "" : " ") + option.name;
  for (const CommandPage& inner : command.commands) words += (words.empty() ? "" : " ") + inner.name;
  return words;
}

void bash_command(std::string& text, const CommandPage& command, const std::string& path) {
  const std::string indent = "        ";
  for (const OptionPage& option : command.options) {
    if (option.positional || option.value.empty()) continue;
    const std::string pattern = fmt::format("{}\"{} {}\")", indent, path, option.name);
    if (!option.choices.empty())
      text += fmt::format("{} COMPREPLY=($(compgen -W {} -- \"$word\")); return ;;\n", pattern,
                          shell_quoted(fmt::format("{}", fmt::join(option.choices, " "))));
    else if (wants_layer(option))
      text += fmt::format("{} COMPREPLY=($(compgen -W \"$(_ttr_layers)\" -- \"$word\")); return ;;\n", pattern);
  }
  for (const CommandPage& inner : command.commands) bash_command(text, inner, path + " " + inner.name);
}

void bash_words(std::string& text, const CommandPage& command, const std::string& path) {
  text += fmt::format("        \"{}\") words={} ;;\n", path, shell_quoted(words_of(command)));
  for (const CommandPage& inner : command.commands) bash_words(text, inner, path + " " + inner.name);
}

void bash_paths(std::string& text, const CommandPage& command, const std::string& path) {
  for (const CommandPage& inner : command.commands) {
    text += fmt::format("            \"{} {}\") path=\"$path $w\" ;;\n", path, inner.name);
    bash_paths(text, inner, path + " " + inner.name);
  }
}

void zsh_command(std::string& text, const CommandPage& command, const std::string& path) {
  text += fmt::format("_{}() {{\n", identifier(path));
  std::string arguments;
  for (const OptionPage& option : command.options) {
    const std::string action = !option.choices.empty() ? fmt::format("({})", fmt::join(option.choices, " "))
                               : wants_layer(option)   ? std::string("->layers")
                                                       : std::string("_files");
    std::string spec;
    if (option.positional) spec = fmt::format("*:{}:{}", zsh_text(option.name), action);
    else
      spec = fmt::format("*{}[{}]{}", option.name, zsh_text(option.meaning),
                         option.value.empty() ? "" : fmt::format(":{}:{}", zsh_text(option.value), action));
    arguments += " \\\n    " + shell_quoted(spec);
  }
  if (!command.commands.empty()) {
    text += "  local -a commands=(\n";
    for (const CommandPage& inner : command.commands)
      text += "    " + shell_quoted(inner.name + ":" + zsh_text(inner.meaning)) + "\n";
    text += "  )\n";
    arguments += " \\\n    '1: :{_describe command commands}' \\\n    '*:: :->rest'";
  }
  text += "  local state line\n  local -a context\n  _arguments -C" + arguments + "\n  case $state in\n";
  text += "    layers) compadd -- ${(f)\"$(_ttr_layers)\"} ;;\n";
  if (!command.commands.empty()) {
    text += "    rest)\n      case $words[1] in\n";
    for (const CommandPage& inner : command.commands)
      text += fmt::format("        {}) _{} ;;\n", inner.name, identifier(path + " " + inner.name));
    text += "        *) _files ;;\n      esac ;;\n";
  }
  text += "  esac\n}\n\n";
  for (const CommandPage& inner : command.commands) zsh_command(text, inner, path + " " + inner.name);
}

// The first column of `ttr layers` below its header; nothing if ttr cannot be run.
constexpr const char* layers_function =
    "_ttr_layers() {\n"
    "  ttr layers --json 2>/dev/null | sed -n 's/^    \"name\": \"\\([a-z0-9-]*\\)\",*$/\\1/p'\n"
    "}\n";

}  // namespace

std::string man_page(const CommandPage& program, const std::string& version, const std::string& examples) {
  std::string text = fmt::format(
      ".TH TTR 1 \"\" \"ttr {}\" \"User Commands\"\n.SH NAME\nttr \\- test\\-time regression: sequence layers as "
      "regression "
      "problems\n.SH SYNOPSIS\n.B ttr\n\\fIverb\\fR [\\fIarguments\\fR] [\\fIoptions\\fR]\n.SH DESCRIPTION\n{}\n.SH "
      "OPTIONS\n",
      version, roff(program.meaning));
  man_options(text, program);
  text += ".SH VERBS\n";
  for (const CommandPage& command : program.commands) man_command(text, command, "");
  text +=
      ".SH EXIT STATUS\n0: success. 1: a check failed. 2: bad input, with a sentence on standard error. 130: "
      "interrupted "
      "by Ctrl\\-C. 143: by SIGTERM.\n.SH EXAMPLES\n.nf\n";
  text += roff(examples) + ".fi\n";
  return text;
}

std::string bash_completion(const CommandPage& program) {
  std::string text =
      fmt::format("# Completion of bash for ttr, made by `ttr completion bash`.\n{}\n_ttr() {{\n", layers_function);
  text +=
      "    local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\" path=ttr words='' w\n"
      "    for w in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n        case \"$path $w\" in\n";
  bash_paths(text, program, "ttr");
  text += "        esac\n    done\n    case \"$path $before\" in\n";
  bash_command(text, program, "ttr");
  text += "    esac\n    case \"$path\" in\n";
  bash_words(text, program, "ttr");
  text +=
      "    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
      "    case \"$word\" in -*) ;; *) [ \"$path\" = ttr ] || COMPREPLY+=($(compgen -f -- \"$word\")) ;; esac\n}\n"
      "complete -o filenames -F _ttr ttr\n";
  return text;
}

std::string zsh_completion(const CommandPage& program) {
  std::string text =
      fmt::format("#compdef ttr\n# Completion of zsh for ttr, made by `ttr completion zsh`.\n{}\n", layers_function);
  zsh_command(text, program, "ttr");
  return text + "_ttr \"$@\"\n";
}

}  // namespace ttr::cli
