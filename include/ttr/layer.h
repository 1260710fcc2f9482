// What ttr knows about a named layer and about the inputs of any plan: the table from which checks, golden
// data, random test data, documentation and other languages' signatures are made.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ttr/export.h"

namespace ttr {

/// How random data for an input is drawn in checks and benchmarks.
enum class Range {
  normal,    // N(0, 1)
  unit,      // N(0, 1), normalised to length 1 over the last axis
  sigmoid,   // (0, 1)
  log_gate,  // log of a factor in (0, 1), mostly near 1
  factor,    // (-1, 1), now and then 0: a factor of either sign
  positive,  // softplus of N(0, 1)
  negative,  // minus softplus of N(0, 1)
  small,     // N(0, 1) / 10
  rate,      // (0, 0.1): a step of gradient descent on a network, a share forgotten
  weights,   // N(0, 1) / sqrt(extent of the last axis but one): a matrix [in, out]
  fresh,     // for states: only what reset or a call leaves in them; checks do not draw them
};

struct InputInfo {
  std::string name;     // "q"
  std::string shape;    // letters: "B T G K"
  std::string meaning;  // "query"
  Range range = Range::normal;
  bool differentiable = true;
  bool optional = false;
};

struct StateInfo {
  std::string name;   // "S"
  std::string shape;  // "B H K V"
  std::string meaning;
  Range range = Range::normal;  // what a state that tokens could have left looks like, for checks
  bool differentiable = true;   // false: how a number is split between this part and others has no gradient
};

/// A setting is a change to the recipe by name: `rls:ridge=1e-3`. Values are numbers or words of the recipe.
struct SettingInfo {
  std::string name;
  std::string meaning;
  std::string stream_default;  // the value `ttr regress` uses if none is given; empty: leave the recipe alone
  bool of_layer = false;  // a number the layer's own tables need (its place in the model), not part of the recipe
};

/// Settings that the checks run besides the plain layer.
struct VariantInfo {
  std::string settings;    // "ridge=input"
  int max_key_dim = 1000;  // cases with more are left out: the cost explodes (monomials of a local polynomial)
  bool literal = true;     // as LayerInfo::literal
};

/// One operation of a folder of golden vectors that this layer must reproduce.
struct GoldenInfo {
  std::string op;  // folder name: "delta_rule"
  // golden name -> ours: {"h0", "state.S"}. Marks at the end: "^" the last two axes are swapped, "~" the gradient is
  // symmetrised, "=" only the order of the numbers is the same, "-" the other sign, "%" a row for several tokens,
  // "[B HV T]" the axes in the file (joined letters are one axis). "answer" is the regression map, read with unit
  // queries; "before.k" are tokens before the first.
  std::vector<std::pair<std::string, std::string>> tensors;
  // "@name" = metadata `name`, "?x" = input if in.x exists ("?x:1": else 1), "!x" = none if not, "#x.1" = extent of
  // axis 1 of in.x
  std::vector<std::pair<std::string, std::string>> settings;
};

struct LayerInfo {
  std::string name;       // "gated-deltanet"
  std::string recipe;     // canonical text; empty for an operation (a norm, a feature map): no regression
  std::string title;      // "Gated DeltaNet"
  std::string paper;      // "Yang, Kautz, Hatamizadeh 2024, arXiv 2412.06464"
  std::string equation;   // in the orientation S [K, V], o = S' q
  std::string scale;      // "1/sqrt(K) on q"
  std::string departure;  // where the published layer differs from its recipe; empty if nowhere
  std::vector<std::string> traps;
  std::vector<InputInfo> inputs;
  std::vector<InputInfo> outputs;
  std::vector<StateInfo> states;
  std::vector<SettingInfo> settings;
  std::vector<VariantInfo> variants;
  bool grouped = true;  // whether key_heads may be fewer than heads
  bool square = false;  // key_dim and value_dim must be equal: the memory adds its input to its answer
  bool literal = true;  // whether the oracle computes the same from the recipe; if not, `departure` says why
  std::vector<std::string> forms;
  std::vector<std::string> absent_forms;  // "chunk: why there is none"
  std::vector<GoldenInfo> golden;
  double tolerance_f64 = 1e-10, tolerance_f32 = 1e-4;
  std::string tolerance_reason;
  double conditioning = 1;  // how much more than a sum the layer magnifies rounding, between forms and split calls
};

/// All named layers, in the order of the documentation.
TTR_API std::span<const LayerInfo> layers();

/// The layer of that name; throws Error that suggests near names.
TTR_API const LayerInfo& find_layer(std::string_view name);

}  // namespace ttr
