// The zoo: every named layer is a declaration (one file each), never a program.
//
// A declaration says: the paper, the recipe, the inputs, how the inputs become the canonical inputs of the recipe
// (recipe/design.h), and what happens to the regression's answer. No loops over time here.
#pragma once

#include <any>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "families/families.h"
#include "prepare/operations.h"
#include "ttr/layer.h"
#include "ttr/plan.h"

namespace ttr::zoo {

/// to = op(from...). Names are inputs of the layer, results of earlier stages, "o", the regression's answer, or
/// numbers.
struct Stage {
  prepare::Op op{};
  std::vector<std::string> from = {};
  std::string to = {};
  double number = 0;               // the operation's constant
  std::string shape = {};          // letters of the result; empty: of the canonical input, output or first operand
  const Family* family = nullptr;  // not an operation but a running quantity with a state of its own, which this
  int option = 0;                  // family computes (carry, convolution, whole); which one, by the family's own enum
  StateInfo state = {};
};

struct Declaration {
  LayerInfo info;                  // recipe, inputs, words; `forms` and `states` are filled in by the planner
  bool scale_by_root_key = false;  // q is scaled by 1/sqrt(K) unless the caller says otherwise
  std::vector<std::pair<std::string, std::string>> feeds;  // canonical input <- input of another name
  std::vector<Stage> prepare;                              // results are canonical inputs
  // Canonical `g` as a fixed table; the settings are those marked of_layer.
  std::vector<double> (*log_decay_of_head)(int heads, const std::map<std::string, std::string>& settings) = nullptr;
  std::vector<Stage> finish;
  const Family* family = nullptr;  // a kernel that is more than the recipe's own family
  std::any family_options = {};  // what it, or the recipe's family, does beyond the recipe; of the family's own type
  bool whole = false;  // not causal: every query sees all pairs of its call, of which there may be another number
  double kernel_number = 0;     // a constant the kernel takes and the recipe does not know (mLSTM's eps)
  std::map<char, int> letters;  // extents of letters of this layer's own: M features, F their number after a map ...
  // Changes the declaration as the settings marked of_layer say; also the place that sets `letters`.
  void (*adapt)(Declaration&, const std::map<std::string, std::string>& settings, const Shape&) = nullptr;

  // Why the layer, with these settings, cannot run on a stream of keys and values; empty: it can. Null: it always can.
  std::string (*refuses_stream)(const std::map<std::string, std::string>& settings) = nullptr;

  template <class Options>
  Options& options_of() {
    if (!family_options.has_value()) family_options = Options{};
    return std::any_cast<Options&>(family_options);
  }
  template <class Options>
  Options options_or_default() const {
    const Options* const own = std::any_cast<Options>(&family_options);
    return own ? *own : Options{};
  }

  bool is_operation() const { return info.recipe.empty(); }  // no regression: a step of preparation with a name
};

/// A whole number of the settings, at least `least`; throws Error with the layer's name.
int whole_setting(const Declaration&, const std::map<std::string, std::string>& settings, const char* name,
                  int otherwise, int least = 1);
/// A number of the settings.
double number_setting(const Declaration&, const std::map<std::string, std::string>& settings, const char* name,
                      double otherwise);
/// Sets the letters M (rows of a matrix of features, setting `features`) and F (width of the first map of `prepare`,
/// or of `finish` for an operation).
void set_features(Declaration&, const std::map<std::string, std::string>& settings, const Shape&);
/// One of a few words; the first is the default.
std::string word_setting(const Declaration&, const std::map<std::string, std::string>& settings, const char* name,
                         const std::vector<std::string>& words);

/// refuses_stream of layers whose every entry of the state has a gate of its own.
std::string every_entry_has_a_gate(const std::map<std::string, std::string>& settings);

/// The setting `causal` of layers that have a meaning without it, and what it does: no = whole.
SettingInfo causal_setting();
void apply_causal_setting(Declaration&, const std::map<std::string, std::string>& settings);

/// All declarations, in the order of the documentation.
std::span<const Declaration> declarations();
/// Names of layers that were left out of the build (TTR_LAYERS, cmake/slim.cmake); empty in a whole one.
std::span<const std::string_view> left_out();

// Inputs that many layers share.
inline InputInfo query(Range range = Range::normal) { return {"q", "B T G K", "query", range}; }
inline InputInfo key(Range range = Range::normal) { return {"k", "B T G K", "key", range}; }
inline InputInfo value() { return {"v", "B T H V", "value", Range::normal}; }
inline InputInfo output(std::string name = "o") { return {std::move(name), "B T H V", "output", Range::normal}; }
/// What layers that solve know of their answers.
inline InputInfo variance() {
  return {"variance", "B T H", "variance of a value at the query, in units of the noise", Range::positive};
}
inline InputInfo known() {
  return {"known", "B T H", "part of the variance that pairs account for; 0: nothing is known", Range::sigmoid,
          false};
}

/// The operations of operations.cc.
std::vector<Declaration> operations();

// The layers of layers.def, each in a file of this folder.
#define TTR_LAYER(name) Declaration name();
#include "zoo/layers.def"
#undef TTR_LAYER

}  // namespace ttr::zoo
