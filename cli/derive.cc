// `ttr derive RECIPE`: the recipe worked out on paper.
#include <fmt/core.h>

#include <optional>
#include <string_view>

#include "commands.h"
#include "json.h"
#include "ttr/origins.h"

namespace ttr::cli {
namespace {

// A label, then the text with its further lines under the first.
void section(std::string_view label, std::string_view text) {
  constexpr int indent = 12;
  bool first = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    fmt::print("{:<{}}{}\n", first ? label : "", indent, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    first = false;
  }
}

std::string lines(const std::vector<std::string>& list, std::string_view nothing) {
  std::string text;
  for (const std::string& line : list) text += (text.empty() ? "" : "\n") + line;
  return text.empty() ? std::string(nothing) : text;
}

Json strings(const std::vector<std::string>& list) {
  Json j = Json::array();
  for (const std::string& line : list) j.push(line);
  return j;
}

}  // namespace

int run_derive(const DeriveOptions& options) {
  const bool is_recipe = options.recipe.find('/') != std::string::npos;
  const LayerInfo* const layer =
      is_recipe ? nullptr : &find_layer(options.recipe.substr(0, options.recipe.find(':')));
  if (layer && layer->recipe.empty())
    throw Error(
        options.recipe + " is an operation on one tensor: it solves no regression, so there is nothing to derive",
        options.recipe);
  const Notation notation = options.latex ? Notation::latex : Notation::plain;
  std::optional<Plan> named;
  if (layer) named = plan(options.recipe, {.heads = 1, .key_dim = 4, .value_dim = 4});
  const Recipe recipe = named ? named->recipe() : parse_recipe(options.recipe);
  const Derivation d = named ? derive(*named, notation) : derive(recipe, notation);
  const std::vector<std::string> papers = sources(recipe, notation);
  const std::string differs = layer ? departure(*layer, notation) : "";
  if (options.json) {
    Json j = Json::object();
    j.set("recipe", d.recipe)
        .set("objective", d.objective)
        .set("gradient", d.gradient)
        .set("recurrence", d.recurrence);
    j.set("readout", d.readout).set("state_size", d.state_size).set("cost_per_token", d.cost_per_token);
    j.set("departure", differs).set("sources", strings(papers));
    j.set("forms", strings(d.forms)).set("simplest", d.simplest).set("equals", strings(d.equals));
    j.set("equals_with", strings(d.equals_with)).set("because", strings(d.because));
    j.set("neighbours", strings(d.neighbours)).set("remarks", strings(d.remarks));
    fmt::print("{}\n", j.dump());
    return 0;
  }
  std::vector<std::string> equals = d.equals;
  equals.insert(equals.end(), d.equals_with.begin(), d.equals_with.end());
  if (options.latex) {
    fmt::print("% {}\n\\begin{{description}}\n", options.recipe);
    const auto item = [](std::string_view label, const std::vector<std::string>& lines) {
      std::string_view between;
      if (!lines.empty()) fmt::print("\\item[{}] ", label);
      for (const std::string& line : lines) fmt::print("{}{}", between, line), between = " \\\\\n";
      if (!lines.empty()) fmt::print("\n");
    };
    item("Recipe", {d.recipe});
    item("Objective", {d.objective});
    item("Gradient", {d.gradient});
    item("Recurrence", {d.recurrence});
    item("Read-out", {d.readout});
    if (!differs.empty()) item("Departure", {differs});
    item("State", {d.state_size});
    item("Cost", {d.cost_per_token});
    item("Forms", d.forms);
    item("Equals", equals);
    item("Because", d.because);
    item("One choice away", d.neighbours);
    item("Remarks", d.remarks);
    item("Sources", papers);
    fmt::print("\\end{{description}}\n");
    return 0;
  }
  section("recipe", d.recipe);
  section("objective", d.objective);
  section("gradient", d.gradient);
  section("recurrence", d.recurrence);
  section("read-out", d.readout);
  if (!differs.empty()) section("departure", differs + " (the derivation is of the recipe alone)");
  section("state", d.state_size);
  section("cost", d.cost_per_token);
  section("forms", lines(d.forms, "none"));
  section("equals", lines(equals, "no named layer"));
  if (!d.because.empty()) section("because", lines(d.because, ""));
  section("near", lines(d.neighbours, "no named layer differs by one choice"));
  if (!d.remarks.empty()) section("remarks", lines(d.remarks, ""));
  section("sources", lines(papers, ""));
  return 0;
}

}  // namespace ttr::cli
