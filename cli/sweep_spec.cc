#include "sweep_spec.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "ttr/status.h"

namespace ttr::cli {
namespace {

std::string trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

// Pieces of the text between marks that stand in no bracket.
std::vector<std::string> split(std::string_view text, char mark) {
  std::vector<std::string> pieces(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '(' || c == '{' ? 1 : c == ')' || c == '}' ? -1 : 0;
    if (c == mark && depth == 0) pieces.emplace_back();
    else pieces.back() += c;
  }
  for (std::string& piece : pieces) piece = trimmed(piece);
  return pieces;
}

std::vector<std::string> names_of(const std::string& text) {
  std::vector<std::string> names;
  for (const std::string& one : split(text, ','))
    if (!one.empty()) names.push_back(one);
  return names;
}

bool is_name(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

std::pair<std::string, std::string> setting(const std::string& text, const std::string& where) {
  const std::size_t equals = text.find('=');
  const std::string name = trimmed(std::string_view(text).substr(0, equals));
  if (equals == std::string::npos || !is_name(name))
    throw Error(fmt::format("{}: '{}' is no setting; write name = value", where, text), where);
  return {name, trimmed(std::string_view(text).substr(equals + 1))};
}

struct Line {
  std::string where, name, value;
};

Choice choice_of(const std::string& text, const Line& line) {
  Choice choice;
  const std::vector<std::string> parts = split(text, '&');
  const std::vector<std::string> named = split(parts[0], ':');
  choice.value = named.back(), choice.label = named.front();
  if (named.size() > 2)
    throw Error(fmt::format("{}: '{}' has two colons; write label: value", line.where, parts[0]), line.where);
  if (choice.value.empty() || choice.label.empty())
    throw Error(fmt::format("{}: a value of '{}' is empty", line.where, line.name), line.where);
  for (std::size_t i = 1; i < parts.size(); ++i) choice.with.push_back(setting(parts[i], line.where));
  return choice;
}

// Words that speak of the table and the plot and not of a run.
bool take_word(SweepSpec& spec, const Line& line) {
  const std::string& value = line.value;
  const auto flag = [&] {
    if (value != "yes" && value != "no")
      throw Error(fmt::format("{}: {} is '{}'; it is yes or no", line.where, line.name, value), line.where);
    return value == "yes";
  };
  if (line.name == "title") spec.title = value;
  else if (line.name == "best") spec.best = names_of(value);
  else if (line.name == "mean") spec.mean = names_of(value);
  else if (line.name == "columns") spec.columns = value;
  else if (line.name == "show") spec.show = names_of(value);
  else if (line.name == "x") spec.x = value;
  else if (line.name == "y") spec.y = value;
  else if (line.name == "lines") spec.lines = value;
  else if (line.name == "x-label") spec.x_label = value;
  else if (line.name == "y-label") spec.y_label = value;
  else if (line.name == "log-x") spec.log_x = flag();
  else if (line.name == "log-y") spec.log_y = flag();
  else if (line.name == "eval") spec.eval = value;
  else if (line.name == "expect") spec.expect = split(value, ';');
  else if (line.name == "score") {
    const std::size_t blank = value.find(' ');
    const std::string first = value.substr(0, blank);
    spec.score = value;
    for (const char* word : {"loss", "bits", "error", "seconds"})
      if (value.find(word) != std::string::npos) spec.lowest = true;
    if (first == "lowest" || first == "highest")
      spec.lowest = first == "lowest", spec.score = trimmed(value.substr(std::min(blank, value.size())));
    std::string letters = spec.score;
    std::erase(letters, '.');  // eval.accuracy
    if (!is_name(letters))
      throw Error(fmt::format("{}: score is '{}'; it is a number of the result, such as accuracy or lowest test_loss",
                              line.where, value),
                  line.where);
  } else return false;
  return true;
}

std::vector<Line> lines_of(std::string_view text, const std::string& variant, std::vector<std::string>* variants) {
  std::vector<Line> lines;
  bool taken = true;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string line(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    for (std::size_t i = 0; i < line.size(); ++i)
      if (line[i] == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) line.resize(i);
    line = trimmed(line);
    if (line.empty()) continue;
    const std::string where = fmt::format("line {}", number);
    if (line.front() == '[') {
      const std::string name = trimmed(std::string_view(line).substr(1, line.size() - 2));
      if (line.back() != ']' || !is_name(name))
        throw Error(fmt::format("{}: '{}' begins no variant; write [name]", where, line), where);
      if (variants) variants->push_back(name);
      taken = name == variant;
    } else if (taken) {
      const auto [name, value] = setting(line, where);
      lines.push_back({where, name, value});
    }
  }
  return lines;
}

// 16 digits; the settings stand in the file too, so that two that share them are told apart.
std::string key_of(const Settings& settings) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const auto& [name, value] : settings)
    for (const char c : name + "=" + value + "\n") hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

}  // namespace

const SweepAxis* SweepSpec::axis(std::string_view name) const {
  for (const SweepAxis& one : axes)
    if (one.name == name) return &one;
  return nullptr;
}

std::vector<std::string> sweep_variants(std::string_view text) {
  std::vector<std::string> names;
  lines_of(text, "", &names);
  return names;
}

SweepSpec parse_sweep(std::string_view text, const std::string& variant, const std::vector<std::string>& overrides) {
  std::vector<std::string> variants;
  std::vector<Line> lines = lines_of(text, variant, &variants);
  if (!variant.empty() && std::find(variants.begin(), variants.end(), variant) == variants.end())
    throw Error(fmt::format("there is no variant '{}'; the text has {}", variant,
                            variants.empty() ? "none" : fmt::format("{}", fmt::join(variants, ", "))),
                "--variant");
  for (const std::string& one : overrides) {
    const std::string where = fmt::format("'{}'", one);
    const auto [name, value] = setting(one, where);
    lines.push_back({where, name, value});
  }
  SweepSpec spec;
  for (const Line& line : lines) {
    if (line.value.empty()) throw Error(fmt::format("{}: '{}' has no value", line.where, line.name), line.where);
    if (take_word(spec, line)) continue;
    SweepAxis axis{line.name, {}};
    for (const std::string& one : split(line.value, '|')) axis.choices.push_back(choice_of(one, line));
    const auto same = [&](const SweepAxis& other) { return other.name == line.name; };
    const auto found = std::find_if(spec.axes.begin(), spec.axes.end(), same);
    if (found == spec.axes.end()) spec.axes.push_back(std::move(axis));
    else *found = std::move(axis);
  }
  if (!spec.axis("task")) throw Error("the sweep names no task; write task = NAME(setting=value, ..)", "task");
  const auto needs_axis = [&](const char* word, const std::string& name) {
    if (spec.axis(name)) return;
    std::vector<std::string> names;
    for (const SweepAxis& one : spec.axes) names.push_back(one.name);
    throw Error(
        fmt::format("{} is '{}', which the sweep does not set; it sets {}", word, name, fmt::join(names, ", ")),
        word);
  };
  for (const std::string& name : spec.best) needs_axis("best", name);
  for (const std::string& name : spec.mean) needs_axis("mean", name);
  if (!spec.columns.empty()) needs_axis("columns", spec.columns);
  if (!spec.lines.empty()) needs_axis("lines", spec.lines);
  return spec;
}

std::vector<SweepRun> expand(const SweepSpec& spec) {
  std::vector<SweepRun> runs;
  std::vector<std::size_t> at(spec.axes.size());
  while (true) {
    SweepRun run;
    run.choices = at;
    for (std::size_t a = 0; a < at.size(); ++a) run.settings[spec.axes[a].name] = spec.axes[a].choices[at[a]].value;
    for (std::size_t a = 0; a < at.size(); ++a)
      for (const auto& [name, value] : spec.axes[a].choices[at[a]].with) run.settings[name] = value;
    run.eval = spec.eval;
    const auto own = run.settings.find("eval");
    if (own != run.settings.end()) run.eval = own->second, run.settings.erase(own);
    Settings counted = run.settings;
    counted.erase("threads");  // the same bits
    if (!run.eval.empty()) counted["eval"] = run.eval;
    run.key = key_of(counted);
    const auto same = [&](const SweepRun& other) { return other.key == run.key; };
    if (std::none_of(runs.begin(), runs.end(), same)) runs.push_back(std::move(run));
    std::size_t a = at.size();
    while (a > 0 && ++at[a - 1] == spec.axes[a - 1].choices.size()) at[--a] = 0;
    if (a == 0) return runs;
  }
}

std::vector<std::string> train_words(const Settings& settings) {
  std::vector<std::string> words{"train", settings.at("task")};
  for (const auto& [name, value] : settings) {
    if (name == "task" || value == "no") continue;
    words.push_back("--" + name);
    if (value != "yes") words.push_back(value);
  }
  if (!settings.contains("threads")) words.insert(words.end(), {"--threads", "1"});
  words.push_back("--json");
  return words;
}

}  // namespace ttr::cli
