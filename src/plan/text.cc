// What each setting does to a recipe, what a stream does with quantities that a model would learn, and which layers
// cannot run on a stream. A setting that is an option of the layer's solver needs no code here.
#include "plan/text.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "plan/equal_design.h"
#include "plan/pipeline.h"
#include "recipe/text_tools.h"
#include "recipe/words.h"
#include "ttr/stream.h"

namespace ttr {
namespace {

std::string trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

Argument word_argument(const std::string& key) { return {key, {}, 0}; }

Argument* find(Term& term, std::string_view key) {
  for (Argument& argument : term.arguments)
    if (argument.key == key) return &argument;
  return nullptr;
}
void remove(Term& term, std::string_view key) {
  std::erase_if(term.arguments, [&](const Argument& argument) { return argument.key == key; });
}
// key=value, or the bare key for the value "input".
void set(Term& term, const std::string& key, const std::string& value) {
  Argument argument = word_argument(key);
  if (const auto number = read_number<double>(value)) argument.value = *number;
  else if (value != "input") argument.value = Term{value, {}, 0};
  if (Argument* old = find(term, key)) *old = argument;
  else term.arguments.push_back(argument);
}

bool is_fade(const Term& term) { return term.word == "equal" || term.word == "decay" || term.word == "gate"; }

// The term of the weights that says how pairs fade; `equal` if only others (near, window) stand there.
Term* fade(Recipe& recipe) {
  for (Term& term : recipe.weights)
    if (is_fade(term)) return &term;
  return nullptr;
}

void set_fade(Recipe& recipe, const std::string& value) {
  Term changed;
  if (const auto number = read_number<double>(value)) {
    changed.word = "decay";
    changed.arguments.push_back({"", *number, 0});
  } else if (value == "input") {
    changed.word = "gate";
  } else {
    throw Error("decay takes a number in (0, 1] or the word input, not '" + value + "'", "setting decay");
  }
  Term* term = fade(recipe);
  for (const char* importance : {"beta", "exponential"})
    if (term && term->has(importance)) changed.arguments.push_back(*term->find(importance));
  if (term) *term = changed;
  else recipe.weights.push_back(changed);
}

void set_window(Recipe& recipe, const std::string& value) {
  std::erase_if(recipe.weights, [](const Term& term) { return term.word == "window"; });
  const auto number = read_number<double>(value);
  if (!number) throw Error("window takes a number of pairs, not '" + value + "'", "setting window");
  if (*number == 0) {
    if (recipe.weights.empty()) recipe.weights.push_back({"equal", {}, 0});
    return;
  }
  Term term{"window", {{"", *number, 0}}, 0};
  if (recipe.weights.size() == 1 && recipe.weights.front() == Term{"equal", {}, 0}) recipe.weights.clear();
  recipe.weights.insert(recipe.weights.begin(), term);
}

// A solve by n steps instead of exactly: Chebyshev where the ridge is relative to |H|, else conjugate gradients.
void set_steps(Recipe& recipe, const std::string& value) {
  const auto number = read_number<double>(value);
  Term& solver = recipe.solver;
  if (!number || (solver.word != "exact" && solver.word != "cg" && solver.word != "chebyshev"))
    throw Error("steps takes a whole number, for a recipe that solves; not '" + value + "'", "setting steps");
  solver.word = solver.has("frobenius") ? "chebyshev" : "cg";
  std::erase_if(solver.arguments, [](const Argument& argument) { return argument.key.empty(); });
  solver.arguments.insert(solver.arguments.begin(), {"", *number, 0});
}

// The bare number of a term, as in slots(64).
void set_count(Term& term, const std::string& word, const std::string& setting, const std::string& value) {
  const auto number = read_number<double>(value);
  if (!number || term.word != word)
    throw Error(setting + " takes a whole number, not '" + value + "'", "setting " + setting);
  std::erase_if(term.arguments, [](const Argument& argument) { return argument.key.empty(); });
  term.arguments.insert(term.arguments.begin(), {"", *number, 0});
}

// A memory of so many matrices: one is linear, more are a perceptron; a norm, biases and a residual stay.
void set_depth(Recipe& recipe, const std::string& value) {
  const auto number = read_number<double>(value);
  if (!number || (*number != std::floor(*number)) || *number < 1 || *number > 16)
    throw Error("depth takes a whole number from 1 to 16, not '" + value + "'", "setting depth");
  Term memory;
  const Term& old = recipe.memory;
  const bool norm = old.word == "layernorm" || old.has("layernorm");
  const auto keep = [&](const char* flag) {
    if (old.has(flag)) memory.arguments.push_back(word_argument(flag));
  };
  if (*number == 1) {
    memory.word = norm ? "layernorm" : "linear";
    if (norm) memory.arguments.push_back(word_argument("linear")), keep("bias"), keep("residual");
  } else {
    memory.word = "mlp";
    memory.arguments.push_back({"", *number, 0});
    for (const char* flag : {"gelu_tanh", "relu", "silu", "tanh", "bias", "residual"}) keep(flag);
    if (norm) memory.arguments.push_back(word_argument("layernorm"));
    if (const Argument* width = old.find("width")) memory.arguments.push_back(*width);
  }
  recipe.memory = memory;
}

// huber, coordinate (Huber of every channel) or squared.
void set_loss(Recipe& recipe, const std::string& value) {
  std::erase_if(recipe.extras, [](const Term& term) { return term.word == "huber" || term.word == "lp"; });
  if (value == "squared") return;
  Term term{"huber", {word_argument("c")}, 0};
  if (value == "coordinate") term.arguments.push_back(word_argument("coordinate"));
  else if (value != "huber" && value != "sign")
    throw Error("loss takes huber, coordinate, sign or squared, not '" + value + "'", "setting loss");
  recipe.extras.push_back(term);
}

void set_extra(Recipe& recipe, const std::string& word, const std::string& value, std::string_view nothing) {
  std::erase_if(recipe.extras, [&](const Term& term) { return term.word == word; });
  if (value != nothing) recipe.extras.push_back({word, {word_argument(value)}, 0});
}

// The term that holds the kernel: near(...) of the weights or kernel(...) of the memory.
Term& kernel_term(Recipe& recipe, const std::string& setting) {
  for (Term& term : recipe.weights)
    if (term.word == "near") return term;
  if (recipe.memory.word == "kernel") return recipe.memory;
  throw Error("the recipe " + to_string(recipe) + " has no kernel to set", "setting " + setting);
}

void set_ridge(Recipe& recipe, const std::string& value) {
  const auto number = read_number<double>(value);
  if (number && *number == 0) {
    for (const char* key : {"ridge", "relative", "frobenius", "fading"}) remove(recipe.solver, key);
  } else if (value == "token" || value == "key") {
    Argument argument = word_argument("ridge");
    argument.value = Term{"ridge", {word_argument(value)}, 0};
    if (Argument* old = find(recipe.solver, "ridge")) *old = argument;
    else recipe.solver.arguments.insert(recipe.solver.arguments.begin(), argument);
  } else {
    set(recipe.solver, "ridge", value);
  }
}

bool steps_per_pair(const Recipe& recipe) {
  const std::string& word = recipe.solver.word;
  return word == "sgd" || word == "minibatch" || word == "descend";
}

// What a stream uses for a quantity of the solver that a model would learn.
struct StreamDefault {
  const char* key;
  const char* value;
};
constexpr StreamDefault stream_defaults[] = {
    {"beta", "0.5"},      {"nlms", "0.5"},    {"longhorn", "1"},   {"flow", "1"},      {"decay", "0.01"},
    {"leak", "0.01"},     {"shrink", "0.01"}, {"momentum", "0.5"}, {"ridge", "0.001"}, {"mu", "0.5"},
    {"process", "0.001"}, {"noise", "1"},     {"step", "auto"},    {"rate", "0.1"}};

// On a stream keys and values are different things, and a single target has no variance to normalise: a network
// answers without a layer norm and without a residual.
void bare_network(Term& memory) {
  const bool norm = memory.word == "layernorm";
  if (memory.word != "mlp" && memory.word != "swiglu" && !norm) return;
  for (const char* flag : {"residual", "layernorm", "linear"}) remove(memory, flag);
  if (!norm) return;
  memory.word = memory.has("bias") ? "mlp" : "linear";
  if (memory.has("bias")) memory.arguments.insert(memory.arguments.begin(), {"", 1.0, 0});
}

void fill_stream_defaults(Recipe& recipe) {
  const auto is_decay = [](const Term& term) { return term.word == "decay"; };
  if (std::any_of(recipe.weights.begin(), recipe.weights.end(), is_decay))  // a gate beside it has no input here
    std::erase_if(recipe.weights, [](const Term& term) { return term.word == "gate"; });
  for (Term& term : recipe.weights) {
    // An importance that is a number stays; one that is an input is 1 for every row.
    const Argument* const beta = term.find("beta");
    const std::vector<Argument> importance = beta && beta->is_number() ? std::vector{*beta} : std::vector<Argument>{};
    if (term.word == "power" && (term.arguments.empty() || !term.arguments.front().is_number()))
      term = {"power", {{"", 0.5, 0}}, 0};
    if (term.word == "gate" ||
        (term.word == "decay" && (term.arguments.empty() || !term.arguments.front().is_number())))
      term = {"decay", {{"", 0.98, 0}}, 0};
    if (is_fade(term)) {
      remove(term, "beta");
      term.arguments.insert(term.arguments.end(), importance.begin(), importance.end());
    }
    if (term.word == "near")
      for (const char* key : {"bandwidth", "sink"})
        if (const Argument* argument = term.find(key); argument && !argument->is_number()) remove(term, key);
  }
  for (Term& extra : recipe.extras) {
    if (extra.word == "huber")
      if (Argument* c = find(extra, "c"); c && !c->is_number()) set(extra, "c", "1");
    if ((extra.word == "l1" || extra.word == "l2") && extra.arguments.empty()) extra.arguments = {{"", 0.01, 0}};
  }
  for (Argument& argument : recipe.solver.arguments) {
    if (argument.is_number() || argument.key.empty()) continue;
    if (std::holds_alternative<Term>(argument.value) && (argument.key == "step" || argument.key == "momentum"))
      continue;  // step=auto, step(0.5, 0.2), momentum=auto
    for (const StreamDefault& d : stream_defaults)
      if (argument.key == d.key) {
        const std::string key = argument.key;
        set(recipe.solver, key, d.value);
        break;
      }
  }
}

bool is_valid(const Recipe& recipe) {
  try {
    validate(recipe);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// A model learns steps that fit its keys; a constant must fit keys of any length, or the answers grow without bound. So
// steps of single pairs are divided by |k|^2 where the recipe allows it, and keys have length one where it does not. Of
// steps that are absent, which are 1, the same is true (`absent_too`). Numbers that were written stay.
void fill_steps(Recipe& recipe, bool absent_too) {
  Recipe filled = recipe;
  Term& solver = filled.solver;
  const auto has_extra = [&](std::string_view word) {
    return std::any_of(recipe.extras.begin(), recipe.extras.end(), [&](const Term& t) { return t.word == word; });
  };
  const auto open = [&](const char* step) {
    const Argument* const given = solver.find(step);
    return given ? std::holds_alternative<std::monostate>(given->value) : absent_too;
  };
  const std::string memory = recipe.memory.word;
  const bool network = memory == "mlp" || memory == "swiglu" || memory == "layernorm";
  const auto unit_keys = [&] {
    if (!has_extra("keys")) filled.extras.push_back({"keys", {word_argument("unit")}, 0});
  };
  const bool own_scale = std::any_of(solver.arguments.begin(), solver.arguments.end(), [](const Argument& a) {
    return a.key == "adagrad" || a.key == "rmsprop" || a.key == "adam" || a.key == "shampoo";
  });
  if (solver.word == "sgd") {
    if (solver.has("nlms") || solver.has("longhorn") || solver.has("flow") || !open("beta") || has_extra("dot"))
      return;
    if (own_scale || network) {
      set(solver, "beta", own_scale ? "0.05" : "0.5");
      if (!own_scale) unit_keys();
    } else {
      const Argument relative{"nlms", 0.5, 0};
      if (Argument* beta = find(solver, "beta")) *beta = relative;
      else solver.arguments.push_back(relative);
      if (!is_valid(filled)) filled = recipe, set(solver, "beta", "0.5"), unit_keys();
    }
  } else if (solver.word == "minibatch" && open("rate")) {
    const double batch = solver.arguments.front().number();
    set(solver, "rate", shortest(network ? 0.02 : std::min(0.1, 1 / batch)));
    unit_keys();
  } else if ((solver.word == "gd" || solver.word == "descend") && open("step") && !has_extra("normalise")) {
    set(solver, "step", "auto");
  }
  if (is_valid(filled)) recipe = filled;
}

}  // namespace

const zoo::Declaration& find_declaration(std::string_view name) {
  const auto all = zoo::declarations();
  for (const zoo::Declaration& d : all)
    if (d.info.name == name) return d;
  std::vector<std::string> names;
  for (const zoo::Declaration& d : all) names.push_back(d.info.name);
  for (const std::string_view left : zoo::left_out())
    if (left == name) {
      std::string have;
      for (const std::string& built : names) have += (have.empty() ? "" : ";") + built;
      throw Error("the layer '" + std::string(name) + "' was left out of this build of ttr, which has " + have +
                      "; add it to -DTTR_LAYERS, or configure without that to have all layers",
                  "layer " + std::string(name));
    }
  const auto lower = [](std::string_view text) {
    std::string out(text);
    for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return out;
  };
  const std::string nearest = nearest_word(lower(name), names);
  throw Error(
      "there is no layer '" + std::string(name) + "'" + (nearest.empty() ? "" : "; did you mean '" + nearest + "'?") +
          (nearest.empty() ? "; `ttr layers` lists them, and a recipe such as 'equal / linear / gd(1)' works too"
                           : " `ttr layers` lists them all"),
      "layer " + std::string(name));
}

LayerText read_layer_text(std::string_view text) {
  const std::string whole = trimmed(text);
  LayerText result;
  if (whole.find('/') != std::string::npos) {
    result.recipe = parse_recipe(whole);
    return result;
  }
  const std::size_t colon = whole.find(':');
  result.layer = &find_declaration(trimmed(whole.substr(0, colon)));
  if (!result.layer->is_operation()) result.recipe = parse_recipe(result.layer->info.recipe);
  if (colon == std::string::npos) return result;
  std::string_view rest = std::string_view(whole).substr(colon + 1);
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string setting = trimmed(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Error("'" + setting + "' is not a setting; write name=value, as in rls:ridge=1e-3", "layer " + whole);
    const std::string name = trimmed(setting.substr(0, equals));
    if (!result.settings.emplace(name, trimmed(setting.substr(equals + 1))).second)
      throw Error("the setting " + name + " is given twice", "layer " + whole);
  }
  return result;
}

void apply_setting(Recipe& recipe, const std::string& name, const std::string& value) {
  if (value.empty()) throw Error("the setting " + name + " has no value", "setting " + name);
  if (name == "keys") return set_extra(recipe, "keys", value, "raw");
  if (name == "normalise") return set_extra(recipe, "normalise", value, "none");
  if (name == "normalise_eps") {
    for (Term& term : recipe.extras)
      if (term.word == "normalise") return set(term, "eps", value);
    throw Error("there is no normaliser to add an eps to; give normalise as well", "setting normalise_eps");
  }
  if (name == "feature") {
    if (!recipe.memory.arguments.empty()) recipe.memory.arguments.erase(recipe.memory.arguments.begin());
    if (value != "identity") recipe.memory.arguments.insert(recipe.memory.arguments.begin(), word_argument(value));
    return;
  }
  if (name == "window") return set_window(recipe, value);
  if (name == "value_gate") {
    Term* term = fade(recipe);
    if (!term || term->word != "gate") throw Error("only a gate can be on the values as well", "setting value_gate");
    remove(*term, "value");
    if (value == "input") term->arguments.push_back(word_argument("value"));
    else if (value != "none")
      throw Error("value_gate takes input or none, not '" + value + "'", "setting value_gate");
    return;
  }
  if (name == "steps") return set_steps(recipe, value);
  if (name == "batch") return set_count(recipe.solver, "minibatch", name, value);
  if (name == "depth") return set_depth(recipe, value);
  if (name == "width") return set(recipe.memory, "width", value);
  if (name == "loss") return set_loss(recipe, value);
  if (name == "power") {
    for (Term& term : recipe.extras)
      if (term.word == "lp") return set_count(term, "lp", name, value);
    throw Error("the recipe " + to_string(recipe) + " has no loss with a power", "setting power");
  }
  if (name == "muon") {
    remove(recipe.solver, "muon");
    if (value == "yes") recipe.solver.arguments.push_back(word_argument("muon"));
    else if (value != "no") throw Error("muon takes yes or no, not '" + value + "'", "setting muon");
    return;
  }
  if (name == "slots") return set_count(recipe.memory, "slots", name, value);
  if (name == "levels") {
    for (Term& term : recipe.weights)
      if (term.word == "levels") return set_count(term, "levels", name, value);
    throw Error("the recipe " + to_string(recipe) + " has no levels", "setting levels");
  }
  if (name == "degree" || name == "length") return set(recipe.memory, name, value);
  if (name == "ridge") return set_ridge(recipe, value);
  if (name == "ridge_kind") {
    for (const char* key : {"relative", "frobenius", "fading"}) remove(recipe.solver, key);
    if (value != "absolute") recipe.solver.arguments.push_back(word_argument(value));
    return;
  }
  if (name == "decay" && !steps_per_pair(recipe)) return set_fade(recipe, value);
  if (name == "importance") {
    Term* term = fade(recipe);
    if (!term) throw Error("these weights take no importance", "setting importance");
    remove(*term, "beta");
    if (value != "one") set(*term, "beta", value);
    return;
  }
  if (name == "order") {
    recipe.memory = {"local", {}, 0};
    const auto number = read_number<double>(value);
    if (!number) throw Error("order takes a number, not '" + value + "'", "setting order");
    recipe.memory.arguments.push_back({"", *number, 0});
    return;
  }
  if (name == "kernel") {
    Term& term = kernel_term(recipe, name);
    if (term.arguments.empty()) term.arguments.push_back(word_argument(value));
    else term.arguments.front() = word_argument(value);
    return;
  }
  if (name == "scale" || name == "bandwidth" || name == "sink") return set(kernel_term(recipe, name), name, value);
  if (name == "p") {  // apa(p, ...)
    const auto number = read_number<double>(value);
    if (!number) throw Error("p takes a number of pairs, not '" + value + "'", "setting p");
    std::erase_if(recipe.solver.arguments, [](const Argument& argument) { return argument.key.empty(); });
    recipe.solver.arguments.insert(recipe.solver.arguments.begin(), {"", *number, 0});
    return;
  }
  if (name == "n") return set(recipe.solver, "pairs", value);
  const std::string key = name == "mu" && recipe.solver.word == "sgd" ? "nlms" : name == "delta" ? "longhorn" : name;
  set(recipe.solver, key, value);
}

void apply_settings(Recipe& recipe, const zoo::Declaration* layer, const Settings& settings) {
  for (const auto& setting : settings) {
    const std::string &name = setting.first, &value = setting.second;
    if (layer) {
      const auto& known = layer->info.settings;
      const auto found =
          std::find_if(known.begin(), known.end(), [&](const SettingInfo& info) { return info.name == name; });
      if (found == known.end()) {
        std::string list;
        for (const SettingInfo& info : known) list += (list.empty() ? "" : ", ") + info.name;
        throw Error(layer->info.name + " has no setting '" + name + "'" +
                        (list.empty() ? "; it has none" : "; it has " + list),
                    "layer " + layer->info.name);
      }
      if (found->of_layer) continue;
    }
    apply_setting(recipe, name, value);
  }
  if (settings.empty() || (layer && layer->is_operation())) return;
  try {
    validate(recipe);
  } catch (const Error& error) {
    throw Error(std::string(error.what()) + " (the settings make the recipe '" + to_string(recipe) + "')",
                layer ? "layer " + layer->info.name : error.where());
  }
}

// A stream runs the recipe of a layer, so a layer whose recipe is not all of it would be another one there.
void refuse_on_stream(const zoo::Declaration& layer, const Settings& settings, std::string_view text) {
  const std::string where = "layer " + std::string(text);
  if (layer.is_operation())
    throw Error(layer.info.name + " is an operation on one tensor; a stream is a regression of values on keys",
                where);
  if (layer.whole)
    throw Error(layer.info.name +
                    " sees all pairs at once, the later ones too; on a stream there are only earlier "
                    "ones",
                where);
  if (const std::string why = layer.refuses_stream ? layer.refuses_stream(settings) : ""; !why.empty())
    throw Error(layer.info.name + why, where);
  for (const zoo::Stage& stage : layer.prepare)
    if (stage.to == "q" || stage.to == "k")
      throw Error(layer.info.name +
                      " makes its queries and keys from other inputs before the regression; on a stream write the "
                      "recipe itself, as in 'equal / linear(elu1) / gd(1) | normalise(keysum)'",
                  where);
  const Design design = interpret(parse_recipe(layer.info.recipe));
  const Memory::Class memory = design.memory.kind;
  if (memory == Memory::Class::slots)
    throw Error(layer.info.name + " needs the write strength of every slot for every row; a stream has none", where);
  if (memory == Memory::Class::vector || memory == Memory::Class::constant)
    if (design.weights.near == Kernel::none)
      throw Error(layer.info.name + " reads no keys, so on a stream there is nothing to predict from", where);
}

std::string stream_proposal(std::string_view text) {
  LayerText read = read_layer_text(text);
  if (!read.layer) fill_steps(read.recipe, true);
  return read.layer ? std::string(text) : to_string(read.recipe);
}

std::string stream_recipe(std::string_view text, std::vector<std::string>* changes) {
  return stream_recipe(text, changes, [](const Term&, std::string_view) { return false; });
}

std::string stream_recipe(std::string_view text, std::vector<std::string>* changes,
                          bool (*has)(const Term& memory, std::string_view input)) {
  const auto changed = [&](const std::string& sentence) {
    if (changes) changes->push_back(sentence);
  };
  LayerText read = read_layer_text(text);
  if (read.layer) refuse_on_stream(*read.layer, read.settings, text);
  Settings settings = read.settings;
  if (read.layer)
    for (const SettingInfo& info : read.layer->info.settings)
      if (info.of_layer && settings.contains(info.name))
        throw Error("the setting " + info.name + " belongs to the layer " + read.layer->info.name +
                        " and not to its recipe, which is what a stream runs: leave it out",
                    "layer " + std::string(text));
  if (read.layer)
    for (const SettingInfo& info : read.layer->info.settings)
      if (!info.stream_default.empty()) settings.emplace(info.name, info.stream_default);
  apply_settings(read.recipe, read.layer, settings);
  for (const Term& term : read.recipe.weights)
    for (const char* word : {"complex", "signed", "trapezoid", "exponential", "full"})
      if (term.has(word))
        throw Error("on a stream '" + to_string(read.recipe) + "' would need the inputs of " + term.word + "(" +
                        word + ") for every row; choose a recipe without it",
                    "layer " + std::string(text));
  if (const Term before = read.recipe.memory; read.layer) {
    bare_network(read.recipe.memory);
    if (!(before == read.recipe.memory))
      changed("without its layer norm and residual: keys and values of a stream are different things");
  }
  if (!read.layer && read.recipe.memory.has("cosformer") && !read.recipe.memory.has("length"))
    throw Error(
        "on a stream '" + to_string(read.recipe) +
            "' would weigh pairs by their distance as a part of a length that is known beforehand; say how long "
            "the stream is, as in linear(cosformer, length=10000)",
        "layer " + std::string(text));
  const Recipe inputs = read.recipe;
  if (!read.layer) fill_steps(read.recipe, false);
  if (!(inputs.solver == read.recipe.solver) && read.recipe.solver.has("nlms"))
    changed("steps divided by |k|^2, because no constant fits keys of every length");
  fill_stream_defaults(read.recipe);
  validate(read.recipe);
  if (!(inputs == read.recipe)) changed("constants for what a model would compute for every token");

  for (const InputInfo& info : canonical_inputs(interpret(read.recipe)))
    if (info.shape.find('P') != std::string::npos)
      throw Error("'" + to_string(read.recipe) + "' takes several pairs per token, and a row of a stream is one pair",
                  "layer " + std::string(text));
    else if (info.name != "q" && info.name != "k" && info.name != "v" && !has(read.recipe.memory, info.name))
      throw Error("on a stream '" + to_string(read.recipe) + "' would need the input " + info.name + " (" +
                      info.meaning + ") for every row; give it as a number, or choose a recipe without it",
                  "layer " + std::string(text));
  const Design design = design_to_run(read.recipe, interpret(read.recipe), Options{});
  const bool keeps_pairs = lower(design, nullptr, Shape{}, Options{}, 1).history;
  const bool windowed = std::any_of(read.recipe.weights.begin(), read.recipe.weights.end(),
                                    [](const Term& term) { return term.word == "window"; });
  if (keeps_pairs && !windowed && read.recipe.solver.word != "apa") {
    const std::string whole = to_string(read.recipe);
    set_window(read.recipe, std::to_string(stream_window));
    changed("window(" + std::to_string(stream_window) + ") added, because it keeps its pairs");
    try {
      validate(read.recipe);
    } catch (const Error& error) {
      // What this error advises is for a recipe that nobody has written.
      const std::string_view why = error.what();
      throw Error(
          "on a stream '" + whole +
              "' would keep every row, and it takes no window: " + std::string(why.substr(0, why.find("; "))) +
              "; on a stream write a recipe that forgets, as in 'near(exp) / constant / exact', which keeps the "
              "newest " +
              std::to_string(stream_window),
          "layer " + std::string(text));
    }
  }
  return to_string(read.recipe);
}

}  // namespace ttr
