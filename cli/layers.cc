// `ttr layers [NAME|RECIPE]`: the zoo as a table, or one layer explained.
#include <fmt/core.h>

#include <algorithm>

#include "atomic_file.h"
#include "commands.h"
#include "json.h"
#include "layer_map.h"
#include "shell.h"
#include "text_table.h"
#include "ttr/origins.h"
#include "ttr/stream.h"

namespace ttr::cli {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string family_of(const Plan& p) {
  const std::string kernel = p.kernel();
  return kernel.substr(0, kernel.find('/'));
}

Plan plan_of(const LayerInfo& info, const LayersOptions& o) {
  return plan(o.name.empty() ? info.name : o.name,
              {.heads = o.heads, .key_dim = o.key_dim, .value_dim = o.value_dim});
}

// With the settings the user gave; operations have none.
std::string recipe_of(const LayerInfo& info, const Plan& p) {
  return info.recipe.empty() ? "" : to_string(p.recipe());
}

// Those of the plan, not of the table of layers: settings may add forms or take them away.
std::vector<std::string> forms_of(const Plan& p) {
  std::vector<std::string> words;
  for (const Form form : p.forms()) words.emplace_back(to_string(form));
  return words;
}

std::vector<std::string> absent_forms_of(const Plan& p) {
  std::vector<std::string> sentences;
  const auto present = p.forms();
  for (const Form form : {Form::chunk, Form::parallel, Form::scan})
    if (std::find(present.begin(), present.end(), form) == present.end())
      sentences.push_back(fmt::format("{}: {}", to_string(form), p.why_absent(form)));
  return sentences;
}

// Of tokens or pairs: all states have them, and a layer's page need not say so.
bool is_count(const StateInfo& s) { return s.shape == "B"; }

bool grows(const Plan& p) { return p.tokens_kept({}) >= 0; }

// Bytes of state per sequence; of one token for states that grow.
std::size_t state_bytes(const Plan& p) {
  return grows(p) ? p.footprint(2).state - p.footprint(1).state : p.footprint(1).state;
}

Json tables(std::span<const InputInfo> infos) {
  Json list = Json::array();
  for (const InputInfo& info : infos) {
    Json j = Json::object();
    j.set("name", info.name).set("shape", info.shape).set("meaning", info.meaning);
    j.set("differentiable", info.differentiable).set("optional", info.optional);
    list.push(j);
  }
  return list;
}

Json strings(const std::vector<std::string>& words) {
  Json list = Json::array();
  for (const std::string& word : words) list.push(word);
  return list;
}

Json as_json(const LayerInfo& info, const LayersOptions& o, bool whole) {
  const Plan p = plan_of(info, o);
  Json j = Json::object();
  j.set("name", info.name).set("recipe", recipe_of(info, p)).set("paper", info.paper).set("family", family_of(p));
  j.set("inputs", tables(p.inputs()))
      .set("forms", strings(forms_of(p)))
      .set("absent_forms", strings(absent_forms_of(p)))
      .set("state_bytes", state_bytes(p));
  j.set("state_grows", grows(p));
  const std::string refused = why_not_on_a_stream(o.name.empty() ? info.name : o.name);
  j.set("stream", refused.empty()).set("no_stream_because", refused.empty() ? Json() : Json(refused));
  Json tolerance = Json::object();
  tolerance.set("f64", info.tolerance_f64).set("f32", info.tolerance_f32);
  j.set("tolerance", tolerance);
  if (!whole) return j;
  j.set("title", info.title).set("equation", info.equation).set("scale", info.scale).set("departure", info.departure);
  j.set("traps", strings(info.traps)).set("outputs", tables(p.outputs()));
  Json states = Json::array();
  for (const StateInfo& s : p.states())
    states.push(Json::object().set("name", s.name).set("shape", s.shape).set("meaning", s.meaning));
  Json settings = Json::array();
  for (const SettingInfo& s : info.settings)
    settings.push(
        Json::object().set("name", s.name).set("meaning", s.meaning).set("stream_default", s.stream_default));
  Json golden = Json::array();
  for (const GoldenInfo& g : info.golden) golden.push(g.op);
  j.set("states", states).set("settings", settings).set("golden", golden);
  return j;
}

// A recipe as a layer without a name: what can be said of it follows from the recipe.
LayerInfo info_of_recipe(const std::string& text) {
  LayerInfo info;
  const Derivation d = derive(parse_recipe(text));
  std::string equals;
  for (const std::string& layer : d.equals) equals += (equals.empty() ? "a recipe, the same as " : ", ") + layer;
  info.name = info.recipe = d.recipe;
  info.title = equals.empty() ? "a recipe without a name" : equals;
  info.equation = d.recurrence + " " + d.readout;
  info.scale = "1, or Options::scale";
  return info;
}

// What the letters of the shapes mean, apart from those that stand in every legend.
std::string other_letters(const Plan& p) {
  std::string shapes, text, own;
  for (const auto& infos : {p.inputs(), p.outputs()})
    for (const InputInfo& i : infos) shapes += i.shape;
  for (const StateInfo& s : p.states()) shapes += s.shape;
  const auto occurs = [&](char letter) { return shapes.find(letter) != std::string::npos; };
  if (occurs('P')) text += ", P time of pairs";
  if (occurs('N')) text += ", N pairs kept";
  for (char letter = 'A'; letter <= 'Z'; ++letter)
    if (occurs(letter) && std::string_view("BTPHGKVN").find(letter) == std::string_view::npos) {
      const std::string name(1, letter);
      const auto of = [&](std::int64_t time) { return p.extents(name, time).at(0); };
      const bool grows = of(1) != of(1024);  // levels without a number
      own += fmt::format("{}{} = {}", own.empty() ? "" : ", ", name,
                         grows ? "ceil(log2 T) + 1 or more" : std::to_string(of(1)));
    }
  return own.empty() ? text + ")"
                     : text + ";\n            the other letters come from the layer and its settings: " + own + ")";
}

void explain(const LayerInfo& info, const LayersOptions& o) {
  const Plan p = plan_of(info, o);
  fmt::print("{}  ({})\n\n", info.name, info.title);
  fmt::print("recipe     {}\n", info.recipe.empty() ? "none: an operation, no regression" : recipe_of(info, p));
  fmt::print("equation   {}\n", info.equation);
  fmt::print("scale      {}\n", info.scale);
  if (!info.paper.empty()) fmt::print("paper      {}\n", info.paper);
  fmt::print("kernel     {}\n", p.kernel());
  fmt::print("forms      {}\n", joined(forms_of(p)));
  for (const std::string& absent : absent_forms_of(p)) fmt::print("           no {}\n", absent);
  if (!info.departure.empty()) fmt::print("departure  {}\n", info.departure);
  fmt::print("tolerance  double {:.0e}, float {:.0e}{}\n", info.tolerance_f64, info.tolerance_f32,
             info.tolerance_reason.empty() ? "" : " (" + info.tolerance_reason + ")");
  fmt::print("state      {} bytes{} at H={} K={} V={}\n", state_bytes(p), grows(p) ? " per token (it grows)" : "",
             o.heads, o.key_dim, o.value_dim);
  const std::string refused = info.recipe.empty() ? "an operation" : why_not_on_a_stream(o.name);
  const std::string text = refused.empty() ? stream_proposal(o.name) : "";
  fmt::print("stream     {}\n",
             refused.empty() ? shell_command({"regress", "data.csv", "--layer", text}) : "no: " + refused);
  const auto table = [](const std::string& title, std::span<const InputInfo> infos) {
    fmt::print("\n{}\n", title);
    for (const InputInfo& i : infos) fmt::print("  {:<10} [{}]  {}\n", i.name, i.shape, i.meaning);
  };
  table("inputs     (B batch, T time, H heads, G key heads, K key_dim, V value_dim" + other_letters(p), p.inputs());
  table("outputs", p.outputs());
  if (!p.states().empty()) fmt::print("\nstates\n");
  for (const StateInfo& s : p.states())
    if (!is_count(s)) fmt::print("  {:<10} [{}]  {}\n", s.name, s.shape, s.meaning);
  if (!info.settings.empty()) fmt::print("\nsettings   (as in {}:{}=...)\n", info.name, info.settings.front().name);
  for (const SettingInfo& s : info.settings)
    fmt::print("  {:<10} {}{}\n", s.name, s.meaning,
               s.stream_default.empty() ? "" : "; on a stream " + s.stream_default);
  if (!info.traps.empty()) fmt::print("\ntraps\n");
  for (const std::string& trap : info.traps) fmt::print("  - {}\n", trap);
}

// Text in a cell of a table: a bar would end it.
std::string cell(std::string_view text) {
  std::string escaped;
  for (char c : text) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return escaped;
}

void print_traps(const LayerInfo& info) {
  if (info.traps.empty()) return;
  fmt::print("\n## Traps\n\n");
  for (const std::string& trap : info.traps) fmt::print("* {}\n", trap);
}

// The page of docs/layers: what is declared, and what the recipe gives on paper.
void print_page(const LayerInfo& info, const LayersOptions& o) {
  const Plan p = plan_of(info, o);
  const bool operation = info.recipe.empty();
  fmt::print("# {}: {}\n\n", info.name, info.title);
  if (operation)
    fmt::print("An operation before or after a regression.{}\n\n", info.paper.empty() ? "" : " " + info.paper + ".");
  else fmt::print("    {}\n\n{}", info.recipe, info.paper.empty() ? "" : info.paper + ".\n\n");
  fmt::print("## Equation\n\n    {}\n\nScale: {}.", info.equation, info.scale);
  if (!info.departure.empty()) fmt::print(" Departure from the recipe: {}.", info.departure);
  fmt::print(
      "\n\n## Inputs, outputs, state\n\nB batch, T time, P time of pairs, H heads, G key heads, K key_dim, V "
      "value_dim, N pairs kept; other letters are set by the layer's settings.\n\n");
  fmt::print("| | shape | meaning |\n|---|---|---|\n");
  for (const InputInfo& i : p.inputs()) fmt::print("| `{}` | [{}] | {} |\n", i.name, i.shape, cell(i.meaning));
  for (const InputInfo& i : p.outputs()) fmt::print("| -> `{}` | [{}] | {} |\n", i.name, i.shape, cell(i.meaning));
  for (const StateInfo& s : p.states())
    if (!is_count(s)) fmt::print("| state `{}` | [{}] | {} |\n", s.name, s.shape, cell(s.meaning));
  if (!info.settings.empty()) {
    fmt::print("\n## Settings\n\n| | meaning | on a stream |\n|---|---|---|\n");
    for (const SettingInfo& s : info.settings)
      fmt::print("| `{}` | {} | {} |\n", s.name, cell(s.meaning),
                 s.stream_default.empty() ? "" : "`" + s.stream_default + "`");
  }
  if (operation) {
    fmt::print("\n## Runs as\n\nToken by token. Tolerance: double {:.0e}, float {:.0e}.\n", info.tolerance_f64,
               info.tolerance_f32);
    print_traps(info);
    return;
  }
  const Derivation d = derive(p);
  fmt::print("\n## Derivation\n\n");
  for (const auto& [label, text] : {std::pair{"objective", d.objective},
                                    {"gradient", d.gradient},
                                    {"recurrence", d.recurrence},
                                    {"read-out", d.readout},
                                    {"state", d.state_size},
                                    {"cost", d.cost_per_token}})
    fmt::print("    {:<12}{}\n", label, text);
  fmt::print("\n## Sources of its words\n\n");
  for (const std::string& source : sources(p.recipe())) fmt::print("* {}\n", source);
  fmt::print("\n## Runs as\n\nForms: {}. Family: `{}`. Tolerance against the oracle: double {:.0e}, float {:.0e}.\n",
             joined(forms_of(p)), family_of(p), info.tolerance_f64, info.tolerance_f32);
  const std::vector<std::string> absent_forms = absent_forms_of(p);
  for (const std::string& absent : absent_forms) fmt::print("\n* no {}", absent);
  if (!absent_forms.empty()) fmt::print("\n");
  print_traps(info);
}

}  // namespace

int run_layers(const LayersOptions& options) {
  if (options.footprint) {
    if (options.map || options.markdown)
      throw Error("--footprint prints a table of bytes; leave out --map and --markdown", "--footprint");
    return run_footprint(options);
  }
  if (options.map) {
    if (!options.name.empty() || options.json || options.markdown)
      throw Error("--map draws all layers and prints nothing; leave out the name, --json and --markdown", "--map");
    write_file(*options.map, "--map", map_svg(layer_map(layers())));
    return 0;
  }
  if (options.name == "slstm")
    throw Error(
        "'slstm' is no regression and so no layer here; as a baseline it is a block of a model: "
        "ttr train TASK --stack slstm (docs/model.md)",
        "slstm");
  if (!options.name.empty()) {
    const bool is_recipe = options.name.find('/') != std::string::npos;
    const LayerInfo info = is_recipe ? info_of_recipe(options.name)
                                     : find_layer(options.name.substr(0, options.name.find(':')));  // then settings
    if (options.json) fmt::print("{}\n", as_json(info, options, true).dump());
    else if (options.markdown) print_page(info, options);
    else explain(info, options);
    return 0;
  }
  if (options.markdown) throw Error("--markdown prints one page; name a layer", "--markdown");
  if (options.json) {
    Json list = Json::array();
    for (const LayerInfo& info : layers()) list.push(as_json(info, options, false));
    fmt::print("{}\n", list.dump());
    return 0;
  }
  std::size_t name = 4, recipe = 6, forms = 5;
  std::vector<Plan> plans;
  for (const LayerInfo& info : layers()) {
    name = std::max(name, info.name.size()), recipe = std::max(recipe, info.recipe.size());
    plans.push_back(plan_of(info, options));
    forms = std::max(forms, joined(forms_of(plans.back())).size());
  }
  bool operations = false;
  fmt::print("{:<{}}  {:<{}}  {:<{}}  {:>12}  {:<11}  {}\n", "name", name, "recipe", recipe, "forms", forms,
             "state bytes", "tolerance", "paper");
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const LayerInfo& info = layers()[i];
    const Plan& p = plans[i];
    if (info.recipe.empty() && !operations) {
      operations = true;
      fmt::print("\noperations before and after a regression\n");
    }
    const std::string bytes = p.states().empty() ? "-" : std::to_string(state_bytes(p)) + (grows(p) ? " x T" : "");
    fmt::print("{:<{}}  {:<{}}  {:<{}}  {:>12}  {:<11}  {}\n", info.name, name, info.recipe, recipe,
               joined(forms_of(p)), forms, bytes,
               fmt::format("{:.0e} {:.0e}", info.tolerance_f64, info.tolerance_f32), info.paper);
  }
  fmt::print(
      "\nstate bytes of a float plan at H={} K={} V={} (x T: per token, it grows; the oracle keeps its pairs in "
      "double).\ntolerance: relative, of double and of float plans, forwards and backwards.\n"
      "`ttr layers NAME` explains one.\n",
      options.heads, options.key_dim, options.value_dim);
  std::vector<std::string> refused;
  std::size_t regressions = 0;
  for (const LayerInfo& info : layers()) {
    if (info.recipe.empty()) continue;
    ++regressions;
    if (!why_not_on_a_stream(info.name).empty()) refused.push_back(info.name);
  }
  fmt::print("`ttr regress data.csv --layer NAME` takes {} of the {} layers; not {}.\n", regressions - refused.size(),
             regressions, joined(refused));
  return 0;
}

}  // namespace ttr::cli
