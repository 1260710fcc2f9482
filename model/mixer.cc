// From the table of inputs of a plan to the slots of a block (mixer.h).
#include "model/mixer.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "model/text.h"

namespace ttr::model {
namespace {

using Settings = std::map<std::string, std::string>;

bool says(const InputInfo& input, std::string_view word) { return input.meaning.find(word) != std::string::npos; }

// Settings of the block: those the layer was published with, then those of the stack. Asking for one takes it.
class BlockSettings {
 public:
  explicit BlockSettings(Settings all) : all_(std::move(all)) {}
  bool has(const std::string& key) const { return all_.count(key) > 0; }
  std::string take(const std::string& key, const std::string& otherwise) {
    const auto found = all_.find(key);
    known_.insert(key);
    return found == all_.end() ? otherwise : found->second;
  }
  int number(const std::string& key, int otherwise, int low = 1) {
    return whole_number(key, take(key, std::to_string(otherwise)), low, 1 << 24);
  }
  bool flag(const std::string& key, bool otherwise = false) {
    return yes_or_no(key, take(key, otherwise ? "yes" : "no"));
  }
  std::string word(const std::string& key, const std::string& otherwise, const std::vector<std::string>& words) {
    const std::string value = take(key, otherwise);
    if (std::find(words.begin(), words.end(), value) != words.end()) return value;
    std::string list;
    for (const std::string& one : words) (list += list.empty() ? "" : ", ") += one;
    throw Error(key + " is '" + value + "'; it is one of " + list, key);
  }
  /// What nobody took.
  Settings rest() const {
    Settings result;
    for (const auto& [key, value] : all_)
      if (!known_.count(key)) result.emplace(key, value);
    return result;
  }

 private:
  Settings all_;
  std::set<std::string> known_;
};

// Words of the block itself and marks of settings for one input; everything else belongs to the layer.
constexpr const char* block_words[] = {"heads",    "key_heads", "key_dim",    "value_dim", "conv",    "conv_bias",
                                       "conv_on",  "conv_act",  "act",        "rotary",    "shift",   "out_norm",
                                       "out_gate", "out_rank",  "gate_first", "start",     "residual"};
constexpr const char* input_words[] = {"map.", "rank.", "inner.", "bias.", "from.", "range."};
bool of_block(const std::string& key) {
  for (const char* word : block_words)
    if (key == word) return true;
  for (const char* word : input_words)
    if (key.rfind(word, 0) == 0) return true;
  return false;
}

// "logsigmoid/16", "negsigmoid*0.6", "unit"
Step parse_map(const std::string& key, const std::string& text) {
  struct Name {
    const char* word;
    Map map;
  };
  constexpr Name names[] = {{"none", Map::none},         {"silu", Map::silu},
                            {"relu", Map::relu},         {"tanh", Map::tanh},
                            {"sigmoid", Map::sigmoid},   {"logsigmoid", Map::log_sigmoid},
                            {"softplus", Map::softplus}, {"negsoftplus", Map::neg_softplus},
                            {"negexp", Map::neg_exp},    {"negsigmoid", Map::neg_sigmoid},
                            {"decay", Map::decay}};
  Step step;
  const std::size_t mark = text.find_first_of("*/");
  const std::string word = trimmed(text.substr(0, mark));
  if (mark != std::string::npos) {
    const double number = real_number(key, trimmed(text.substr(mark + 1)));
    if (number == 0) throw Error(key + " is '" + text + "', with a factor of zero", key);
    step.factor = text[mark] == '*' ? number : 1 / number;
  }
  if (word == "unit" || word == "rms") {
    step.kind = word == "unit" ? Step::Kind::unit : Step::Kind::rms;
    return step;
  }
  std::string list = "unit, rms";
  for (const Name& name : names) {
    if (word == name.word) return step.map = name.map, step;
    (list += ", ") += name.word;
  }
  throw Error(key + " is '" + text + "'; it is one of " + list + ", with *number or /number after it", key);
}

// What the range of an input asks for.
Step map_of_range(const InputInfo& input) {
  Step step;
  switch (input.range) {
    case Range::unit:
      step.kind = Step::Kind::unit;
      break;
    case Range::sigmoid:
      step.map = Map::sigmoid;
      if (says(input, "in (0, 2)")) step.factor = 2;
      break;
    case Range::rate:
      step.map = Map::sigmoid, step.factor = 0.1;
      break;
    case Range::log_gate:
      step.map = Map::decay;
      break;
    case Range::factor:
      step.map = Map::tanh;
      break;
    case Range::positive:
      step.map = Map::softplus;
      break;
    case Range::negative:
      step.map = Map::neg_softplus;
      break;
    case Range::normal:
    case Range::small:
    case Range::weights:
    case Range::fresh:
      break;
  }
  return step;
}

// Queries, keys and values: what a short convolution, an activation and a rotation are for.
bool is_content(const InputInfo& input) {
  if (input.range != Range::normal && input.range != Range::unit && input.range != Range::positive) return false;
  for (const char* word : {"before", "gate", "log ", "phase", "slope", "threshold", "step", "scale", "strength"})
    if (says(input, word)) return false;
  return Axes(input.shape).size() == 4;
}
bool is_query_or_key(const InputInfo& input) {
  return is_content(input) && (says(input, "query") || says(input, "key"));
}

// An input without a time axis. Ranges give the map; words of the meaning give where it starts.
Constant make_constant(const InputInfo& input, int index, const std::vector<std::ptrdiff_t>& extent,
                       const std::string& prefix, Registry& registry) {
  Constant constant;
  constant.input = index;
  Start start{Start::Kind::normal, 1 / std::sqrt(static_cast<double>(extent.back())), 0};
  const bool vector = extent.size() < 2 || (extent.size() == 2 && input.range != Range::weights);
  bool trained = true;
  switch (input.range) {
    case Range::sigmoid:
      constant.step.map = Map::sigmoid, start = {Start::Kind::share, 0.05, 0.5};
      break;
    case Range::rate:
      constant.step.map = Map::sigmoid, constant.step.factor = 0.1, start = {Start::Kind::constant, 0, 0};
      break;
    case Range::factor:
      constant.step.map = Map::tanh, start = {Start::Kind::constant, 2, 0};
      break;
    case Range::positive:
      constant.step.map = Map::softplus, start = {Start::Kind::constant, std::log(std::expm1(1.0)), 0};
      break;
    case Range::negative:
      constant.step.map = Map::neg_exp;
      start = extent.size() > 2 ? Start{Start::Kind::log_count, 0, 0} : Start{Start::Kind::log_spread, 1, 16};
      break;
    case Range::log_gate:
      constant.step.map = Map::log_sigmoid, start = {Start::Kind::constant, 3, 0};
      break;
    case Range::small:
      start = {Start::Kind::normal, 0.1, 0};
      break;
    case Range::weights:
      start = {Start::Kind::normal,
               1 / std::sqrt(static_cast<double>(extent.size() > 1 ? extent[extent.size() - 2] : 1)), 0};
      break;
    case Range::normal:
    case Range::unit:
    case Range::fresh:
      if (says(input, "skip")) start = {Start::Kind::constant, 1, 0};
      else if (says(input, "weight of the norm") || says(input, "in the gate")) start = {Start::Kind::constant, 1, 0};
      else if (says(input, "delta")) start = {Start::Kind::step, 1e-3, 0.1};
      else if (says(input, "log of minus the log")) start = {Start::Kind::ramp, -5, -2};
      else if (says(input, "log of the phase")) start = {Start::Kind::ramp, -3, 0.5};
      else if (says(input, "rate of decay")) start = {Start::Kind::ramp, -5, 1};
      else if (says(input, "decay rate")) start = {Start::Kind::ramp, 2.2, 6.9};  // sigmoid 0.9 .. 0.999
      else if (vector) start = {Start::Kind::constant, 0, 0};
      break;
  }
  if (input.optional && says(input, "place in the mini-batch"))
    constant.step.map = Map::none, start = {Start::Kind::harmonic, 0, 0};
  if (says(input, "random matrix") || says(input, "fixed matrix"))
    trained = false, start.a = input.range == Range::small ? 0.1 : 1;
  constant.parameter = registry.add(prefix + input.name, extent, start, false, {}, trained);
  return constant;
}

std::string resolve_name(const std::string& mixer) {
  if (mixer.find('/') != std::string::npos) return mixer;
  for (const LayerInfo& layer : layers())
    if (layer.name == mixer) return mixer;
  for (const LayerInfo& layer : layers())
    if (layer.name == mixer + "-attention") return layer.name;
  return find_layer(mixer).name;  // throws, with names that are near
}

// Builds the slots of one mixer.
class Builder {
 public:
  Builder(const BlockText& block, const Config& config, int index, int count, Registry& registry)
      : config_(config), registry_(registry), prefix_("blocks." + std::to_string(index) + ".mixer.") {
    mixer_.text = resolve_name(block.mixer);
    const bool recipe = mixer_.text.find('/') != std::string::npos;
    const LayerInfo* const layer = recipe ? nullptr : &find_layer(mixer_.text);
    if (layer && layer->recipe.empty())
      throw Error("'" + mixer_.text + "' is an operation on one tensor, not a layer that mixes tokens", "stack");
    Settings settings = parse_settings(published_settings(recipe ? "" : mixer_.text), "published.cc");
    for (const auto& [key, value] : block.settings) {
      if (of_block(key)) settings[key] = value;
      else mixer_.options.settings[key] = value;
    }
    const auto place = [&](const char* key, int number) {  // a layer whose tables depend on its place in the model
      if (layer && !mixer_.options.settings.count(key))
        for (const SettingInfo& one : layer->settings)
          if (one.name == key && one.of_layer) mixer_.options.settings[key] = std::to_string(number);
    };
    place("layer", index), place("layers", count), place("length", config.time);
    settings_ = std::make_unique<BlockSettings>(std::move(settings));
    Shape& shape = mixer_.shape;
    shape.heads = settings_->number("heads", config.heads);
    shape.key_heads = settings_->number("key_heads", 0, 0);
    const int head = std::max(1, config.width / shape.heads);
    shape.key_dim = settings_->number("key_dim", config.key_dim ? config.key_dim : head);
    shape.value_dim = settings_->number("value_dim", config.value_dim ? config.value_dim : head);
    if (layer && layer->square && !settings_->has("value_dim")) shape.value_dim = shape.key_dim;
  }

  Mixer build() {
    const Plan made = plan(mixer_.text, mixer_.shape, mixer_.options);
    mixer_.norm = registry_.add(prefix_ + "norm", {config_.width}, {Start::Kind::constant, 1, 0});
    mixer_.residual = settings_->flag("residual", true);
    constructed_ = settings_->word("start", "random", {"random", "shift"}) == "shift";
    read_output(made);
    const std::span<const InputInfo> inputs = made.inputs();
    const int taps = settings_->number("conv", 0, 0);
    const std::string convolved = settings_->take("conv_on", ""), activation = settings_->take("act", "none");
    mixer_.activation = settings_->word("conv_act", "silu", {"silu", "none"});
    const bool rotary = settings_->flag("rotary"), conv_bias = settings_->flag("conv_bias");
    // Convolved slots first, then other slots of n, then those that read slots.
    std::vector<Slot> late;
    for (int pass = 0; pass < 2; ++pass)
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const InputInfo& input = inputs[i];
        const std::vector<std::ptrdiff_t> extent = made.extents(input.shape, config_.time);
        if (!Axes(input.shape).has_any("TP")) {
          if (pass == 0)
            mixer_.constants.push_back(make_constant(input, static_cast<int>(i), extent, prefix_, registry_));
          continue;
        }
        const bool named = (" " + convolved + " ").find(" " + input.name + " ") != std::string::npos;
        const bool content = is_content(input);
        const bool conv = taps > 0 && (convolved.empty() ? content : named);
        if (conv != (pass == 0)) continue;
        Slot slot = slot_of(input, static_cast<int>(i), extent);
        if (conv) slot.steps.push_back({Step::Kind::convolution, Map::none, 1, -1, -1, -1});
        else if (content && activation != "none") slot.steps.push_back(parse_map("act", activation));
        add_map(slot, input);
        if (rotary && is_query_or_key(input)) slot.steps.push_back({Step::Kind::rotary, Map::none, 1, -1, -1, -1});
        if (slot.pairs > 1) slot.steps.push_back({Step::Kind::copy, Map::none, 1, -1, -1, -1});
        place(std::move(slot), input.name, conv ? "" : settings_->take("from." + input.name, ""), late);
      }
    add_gate(late);
    finish(late, taps, conv_bias);
    for (const auto& [key, value] : settings_->rest())
      if (published_settings(mixer_.text).find(key + "=" + value) == std::string::npos)
        throw Error("'" + mixer_.text + "' has no input for the setting '" + key + "=" + value + "'", "stack");
    return std::move(mixer_);
  }

 private:
  Slot slot_of(const InputInfo& input, int index, const std::vector<std::ptrdiff_t>& extent) const {
    Slot slot;
    slot.name = input.name, slot.input = index, slot.width = 1;
    slot.pairs = static_cast<int>(extent[1] / config_.time);
    slot.width = slot.pairs;
    for (std::size_t d = 2; d < extent.size(); ++d) slot.width *= static_cast<int>(extent[d]);
    slot.dim = extent.size() > 3 ? static_cast<int>(extent.back()) : 1;
    slot.heads = slot.width / slot.dim;
    return slot;
  }

  // The map of an input, with its bias and rates.
  void add_map(Slot& slot, const InputInfo& input) {
    const std::string key = "map." + input.name;
    Step step = settings_->has(key) ? parse_map(key, settings_->take(key, "")) : map_of_range(input);
    settings_->take(key, "");
    if (settings_->has("range." + input.name))
      step.factor = real_number("range." + input.name, settings_->take("range." + input.name, ""));
    if (step.kind == Step::Kind::rms)
      step.weight = registry_.add(prefix_ + input.name + "_norm", {slot.dim}, {Start::Kind::constant, 1, 0});
    if (step.kind == Step::Kind::map) {
      const bool gate = !is_content(input) && input.range != Range::small;
      const std::string text = settings_->take(
          "bias." + input.name, gate && step.map != Map::sigmoid && step.map != Map::relu ? "yes" : "no");
      Start start{Start::Kind::constant, 0, 0};
      if (step.map == Map::decay) {
        step.rate =
            registry_.add(prefix_ + input.name + "_rate", {mixer_.shape.heads}, {Start::Kind::log_spread, 1, 16});
        start = {Start::Kind::step, 1e-3, 0.1};
      } else if (input.name == "dt") {
        start = {Start::Kind::step, 1e-3, 0.1};
      }
      if (text != "no") {
        const std::size_t colon = text.find(':');
        if (colon != std::string::npos)
          start = {Start::Kind::ramp, real_number("bias", text.substr(0, colon)),
                   real_number("bias", text.substr(colon + 1))};
        else if (text != "yes") start = {Start::Kind::constant, real_number("bias", text), 0};
        step.bias = registry_.add(prefix_ + input.name + "_bias", {slot.width}, start);
      }
      if (step.map == Map::none && step.bias < 0 && step.factor == 1) return;
    }
    slot.steps.push_back(step);
  }

  // A slot of n, of another slot, or behind a slot of few columns.
  void place(Slot slot, const std::string& name, const std::string& from, std::vector<Slot>& late) {
    const std::string rank_key = "rank." + name;
    const int rank = settings_->number(rank_key, 0, 0);
    const std::string inner = settings_->take("inner." + name, "none");
    if (rank > 0) {
      Slot low;
      low.name = name + ".low", low.width = low.dim = rank;
      if (inner != "none") low.steps.push_back(parse_map("inner." + name, inner));
      slot.steps.shrink_to_fit();
      sources_.push_back({name, low.name});
      if (from.empty()) mixer_.slots.push_back(std::move(low));
      else sources_.push_back({low.name, from}), late.push_back(std::move(low));
      late.push_back(std::move(slot));
    } else if (!from.empty()) {
      sources_.push_back({name, from});
      late.push_back(std::move(slot));
    } else {
      mixer_.slots.push_back(std::move(slot));
    }
  }

  void read_output(const Plan& made) {
    const std::span<const InputInfo> outputs = made.outputs();
    const std::vector<std::ptrdiff_t> extent = made.extents(outputs[0].shape, config_.time);
    mixer_.out_width = 1;
    for (std::size_t d = 2; d < extent.size(); ++d) mixer_.out_width *= static_cast<int>(extent[d]);
    mixer_.out_dim = static_cast<int>(extent.back());
    for (std::size_t i = 1; i < outputs.size(); ++i)
      if (outputs[i].shape == outputs[0].shape) mixer_.added.push_back(static_cast<int>(i));
    const std::string norm = settings_->word("out_norm", "none", {"none", "head", "whole"});
    if (norm == "whole") mixer_.out_dim = mixer_.out_width;
    mixer_.out_heads = mixer_.out_width / mixer_.out_dim;
    if (norm != "none")
      mixer_.out_norm = registry_.add(prefix_ + "out_norm", {mixer_.out_dim}, {Start::Kind::constant, 1, 0});
    const std::string gate = settings_->word("out_gate", "none", {"none", "silu", "sigmoid"});
    mixer_.gate = gate == "silu" ? Mixer::Gate::silu : gate == "sigmoid" ? Mixer::Gate::sigmoid : Mixer::Gate::none;
    mixer_.gate_first = settings_->flag("gate_first");
    if (mixer_.gate_first && (norm == "none" || gate == "none"))
      throw Error("gate_first=yes needs out_norm and out_gate", "stack");
    if (mixer_.gate_first && !mixer_.added.empty())
      throw Error("gate_first=yes does not go with '" + mixer_.text + "', which adds an output after the norm",
                  "stack");
  }

  void add_gate(std::vector<Slot>& late) {
    if (mixer_.gate == Mixer::Gate::none) return;
    Slot slot;
    slot.name = "out.gate", slot.width = mixer_.out_width, slot.dim = mixer_.out_dim, slot.heads = mixer_.out_heads;
    const int rank = settings_->number("out_rank", 0, 0);
    if (rank > 0) {
      Slot low;
      low.name = "out.gate.low", low.width = low.dim = rank;
      sources_.push_back({slot.name, low.name});
      mixer_.slots.push_back(std::move(low));
      late.push_back(std::move(slot));
    } else {
      mixer_.slots.push_back(std::move(slot));
    }
  }

  // Columns, sources and the matrices.
  void finish(std::vector<Slot>& late, int taps, bool conv_bias) {
    std::vector<int> columns;
    for (Slot& slot : mixer_.slots) {
      slot.column = mixer_.in_width;
      mixer_.in_width += slot.width;
      columns.push_back(slot.width);
      if (!slot.steps.empty() && slot.steps[0].kind == Step::Kind::convolution) mixer_.convolved = mixer_.in_width;
    }
    mixer_.all_width = mixer_.in_width;
    const double deep = 1 / std::sqrt(static_cast<double>(config_.width));
    mixer_.in = registry_.add(
        prefix_ + "in", {config_.width, mixer_.in_width},
        constructed_ ? Start{Start::Kind::identities, 1, deep} : Start{Start::Kind::normal, deep, 0}, true, columns);
    if (settings_->flag("shift"))
      mixer_.shift =
          registry_.add(prefix_ + "shift", {static_cast<std::ptrdiff_t>(mixer_.slots.size()), config_.width},
                        {Start::Kind::ramp, 1, 0});
    for (Slot& slot : late) {
      slot.column = mixer_.all_width;
      mixer_.all_width += slot.width;
      mixer_.slots.push_back(std::move(slot));
    }
    mixer_.all_width = (mixer_.all_width + 15) / 16 * 16;  // rows of the buffers begin on cache lines
    for (std::size_t i = columns.size(); i < mixer_.slots.size(); ++i) {
      Slot& slot = mixer_.slots[i];
      std::string from;
      for (const auto& [name, source] : sources_)
        if (name == slot.name) from = source;
      for (std::size_t j = 0; j < i; ++j)
        if (mixer_.slots[j].name == from) slot.source = static_cast<int>(j);
      if (slot.source < 0)
        throw Error(
            "the setting from." + slot.name + "=" + from + " names no input of '" + mixer_.text + "' before it",
            "stack");
      const int in = mixer_.slots[static_cast<std::size_t>(slot.source)].width;
      slot.weight = registry_.add(prefix_ + slot.name + ".weight", {in, slot.width},
                                  {Start::Kind::normal, 1 / std::sqrt(static_cast<double>(in)), 0}, true);
    }
    for (std::size_t i = 0; i < mixer_.slots.size(); ++i) {
      mixer_.levels = std::max(mixer_.levels, 1 + static_cast<int>(mixer_.slots[i].steps.size()));
      if (mixer_.slots[i].name == "out.gate") mixer_.gate_slot = static_cast<int>(i);
    }
    if (mixer_.convolved > 0) {
      mixer_.taps = taps;
      if (constructed_ && taps < 2)
        throw Error("start=shift needs conv=2 or more, to reach the token before", "stack");
      mixer_.taps_weight = registry_.add(prefix_ + "taps", {mixer_.convolved, taps},
                                         constructed_ ? Start{Start::Kind::previous, 1, 0}
                                                      : Start{Start::Kind::normal, 1 / std::sqrt(double(taps)), 0});
      if (conv_bias)
        mixer_.taps_bias = registry_.add(prefix_ + "taps_bias", {mixer_.convolved}, {Start::Kind::constant, 0, 0});
    }
    const double out = out_scale(mixer_.out_width);
    mixer_.out = registry_.add(
        prefix_ + "out", {mixer_.out_width, config_.width},
        constructed_ ? Start{Start::Kind::identities, 1, out} : Start{Start::Kind::normal, out, 0}, true);
  }
  double out_scale(int fan) const {
    const double blocks = static_cast<double>(parse_stack(config_.stack).size());
    return 1 / std::sqrt(2 * blocks * fan);
  }

  const Config& config_;
  Registry& registry_;
  std::string prefix_;
  Mixer mixer_;
  std::unique_ptr<BlockSettings> settings_;
  bool constructed_ = false;  // projections begin as the identity, taps as a shift by one token
  std::vector<std::pair<std::string, std::string>> sources_;  // a slot and the one it reads
};

}  // namespace

std::string with_convolution(const Config& config, int taps) {
  std::vector<BlockText> blocks = parse_stack(config.stack);
  const auto count = static_cast<int>(blocks.size());
  const auto made = [&](const BlockText& block, int index) {
    Registry unused;
    return make_mixer(block, config, index, count, unused);
  };
  bool changed = false;
  for (int i = 0; i < count; ++i) {
    BlockText& block = blocks[static_cast<std::size_t>(i)];
    if (block.settings.contains("conv")) continue;
    const Mixer own = made(block, i);
    if (own.slstm || own.convolved > 0 || own.shift >= 0) continue;
    BlockText more = block;
    more.settings["conv"] = std::to_string(taps);
    if (made(more, i).convolved == 0) continue;  // a layer without queries, keys and values
    block = std::move(more), changed = true;
  }
  if (!changed) return config.stack;
  std::string text;
  for (std::size_t i = 0, next = 0; i < blocks.size(); i = next) {
    const std::string one = to_string(blocks[i]);
    while (next < blocks.size() && to_string(blocks[next]) == one) ++next;
    text += (text.empty() ? "" : ", ") + one + (next - i > 1 ? "*" + std::to_string(next - i) : "");
  }
  return text;
}

Mixer make_mixer(const BlockText& block, const Config& config, int index, int count, Registry& registry) {
  if (block.mixer == "slstm") {
    Mixer mixer;
    mixer.text = block.mixer, mixer.slstm = make_slstm(block, config, index, count, registry);
    return mixer;
  }
  return Builder(block, config, index, count, registry).build();
}

}  // namespace ttr::model
