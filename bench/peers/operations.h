// What both sides have: operations of ggml and the layer of ttr that computes the same.
//
// Where ggml wants its numbers in another way they are made before the clock starts, which is in its favour: factors instead of
// their logs (GLA, RWKV), steps before their softplus (Mamba), channels with time innermost (the convolution), keys and values
// in half precision. ttr gets logs, and its exponentials count.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ours.h"
#include "theirs.h"

namespace ttr::peers {

/// Outputs of ttr by name, and the nodes that hold the same numbers.
using Answers = std::vector<std::pair<std::string, ggml_tensor*>>;
/// Adds the nodes for tokens [first, first + tokens) of ours; `state` is what the tokens before have left (null: zeros), and
/// becomes what these leave.
using Build =
    std::function<Answers(Theirs&, const Ours&, std::int64_t first, std::int64_t tokens, ggml_tensor*& state)>;

struct Operation {
  std::string name, layer, theirs;  // of the table; with settings; the function of ggml
  std::function<Shape(int heads, int dim)> shape;
  Build build;
  bool gated = true;                 // has gates to choose
  bool pairs = false;                // decodes with the pairs of a prompt
  bool half_pairs = false;           // both keep them in half precision
  std::optional<double> scale = {};  // of ttr
  double tolerance = 1e-4;           // max |ours - theirs| / max |theirs|
};

const std::vector<Operation>& operations();

}  // namespace ttr::peers
