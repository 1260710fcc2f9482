// Values of the settings that belong to a layer and not to its recipe.
#include "recipe/text_tools.h"
#include "ttr/status.h"
#include "zoo/features.h"
#include "zoo/zoo.h"

namespace ttr::zoo {
namespace {

using Settings = std::map<std::string, std::string>;

template <class N>
N number_of(const Declaration& d, const Settings& settings, const char* name, N otherwise, const char* kind) {
  const auto found = settings.find(name);
  if (found == settings.end()) return otherwise;
  const std::string& text = found->second;
  const std::optional<N> number = read_number<N>(text);
  if (!number)
    throw Error(d.info.name + " takes " + kind + " for " + name + ", not '" + text + "'",
                "setting " + std::string(name));
  return *number;
}

}  // namespace

int whole_setting(const Declaration& d, const Settings& settings, const char* name, int otherwise, int least) {
  const int number = number_of(d, settings, name, otherwise, "a whole number");
  if (number < least)
    throw Error(
        d.info.name + " takes at least " + std::to_string(least) + " for " + name + ", not " + std::to_string(number),
        "setting " + std::string(name));
  return number;
}

double number_setting(const Declaration& d, const Settings& settings, const char* name, double otherwise) {
  return number_of(d, settings, name, otherwise, "a number");
}

SettingInfo causal_setting() {
  return {"causal", "no: every query sees all pairs of the call, of which there may be another number; no state", "",
          true};
}

void apply_causal_setting(Declaration& d, const Settings& settings) {
  d.whole = word_setting(d, settings, "causal", {"yes", "no"}) == "no";
}

void set_features(Declaration& d, const Settings& settings, const Shape& shape) {
  const Stage& map = d.prepare.empty() ? d.finish.back() : d.prepare.front();
  d.letters['M'] = whole_setting(d, settings, "features", shape.key_dim);
  d.letters['F'] = features_that_fit(prepare::feature_width(map.op, shape.key_dim, d.letters['M'], map.number));
}

std::string word_setting(const Declaration& d, const Settings& settings, const char* name,
                         const std::vector<std::string>& words) {
  const auto found = settings.find(name);
  if (found == settings.end()) return words.front();
  std::string list;
  for (const std::string& word : words) {
    if (word == found->second) return word;
    list += (list.empty() ? "" : ", ") + word;
  }
  throw Error(d.info.name + " takes one of " + list + " for " + name + ", not '" + found->second + "'",
              "setting " + std::string(name));
}

std::string every_entry_has_a_gate(const std::map<std::string, std::string>&) {
  return " makes a gate for every entry of its state from other inputs; a stream has none";
}

}  // namespace ttr::zoo
