// The zoo: every named layer is a declaration (one file each), never a program.
//
// A declaration says: the paper, the recipe, the inputs, how the inputs become the canonical inputs of the recipe
// (recipe/design.h), and what happens to the regression's answer. No loops over time here.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "prepare/operations.h"
#include "ttr/layer.h"

namespace ttr::zoo {

/// to = op(from...). Names are inputs of the layer, results of earlier stages, or "o", the regression's answer.
struct Stage {
  prepare::Op op;
  std::vector<std::string> from;
  std::string to;
  double eps = 0;
};

struct Declaration {
  LayerInfo info;                  // recipe, inputs, words; `forms` and `states` are filled in by the planner
  bool scale_by_root_key = false;  // q is scaled by 1/sqrt(K) unless the caller says otherwise
  std::vector<std::pair<std::string, std::string>> feeds;  // canonical input <- input of another name
  std::vector<Stage> prepare;                              // results are canonical inputs
  // Canonical `g` as a fixed table; the settings are those marked of_layer.
  std::vector<double> (*log_decay_of_head)(int heads, const std::map<std::string, std::string>& settings) = nullptr;
  std::vector<Stage> finish;
};

/// All declarations, in the order of the documentation.
std::span<const Declaration> declarations();

// Inputs that many layers share.
inline InputInfo query(Range range = Range::normal) { return {"q", "B T G K", "query", range}; }
inline InputInfo key(Range range = Range::normal) { return {"k", "B T G K", "key", range}; }
inline InputInfo value() { return {"v", "B T H V", "value", Range::normal}; }
inline InputInfo output(std::string name = "o") { return {std::move(name), "B T H V", "output", Range::normal}; }

// One function per file in this folder.
Declaration linear_attention();
Declaration normalised_linear_attention();
Declaration retnet();
Declaration lightning_attention();
Declaration simple_gla();
Declaration mamba_2();
Declaration gla();
Declaration hgrn_2();
Declaration rwkv_6();
Declaration deltanet();
Declaration gated_deltanet();
Declaration nlms();
Declaration longhorn();
Declaration leaky_lms();
Declaration decoupled_lms();
Declaration efla();
Declaration kaczmarz();
Declaration kda();
Declaration gdn_2();
Declaration comba();
Declaration delta_product();
Declaration gated_delta_product();
Declaration dplr();
Declaration iplr();
Declaration rwkv_7();
Declaration affine_projection();
Declaration rls();
Declaration softmax_attention();
Declaration local_linear_attention();
Declaration kernel_regression();

}  // namespace ttr::zoo
