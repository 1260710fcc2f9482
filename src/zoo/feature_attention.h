// What linear attention through a feature map has in common: features of q and k, a sum of pairs, the key-sum
// normaliser. The map is an operation before the regression, so its width is that of the state.
//
//   S_t = S_{t-1} + phi(k_t) v_t' ;  z_t = z_{t-1} + phi(k_t) ;  o_t = S_t' phi(q_t) / (z_t' phi(q_t) + eps)
#pragma once

#include "zoo/zoo.h"

namespace ttr::zoo {

/// `parameters` are the operands of `map` after q or k; shape is that of the features.
inline Declaration feature_attention(prepare::Op map, const std::vector<InputInfo>& parameters,
                                     const std::string& shape) {
  Declaration d;
  d.info.recipe = "equal / linear / gd(1) | normalise(keysum, eps=1e-6)";
  d.info.equation =
      "S_t = S_{t-1} + phi(k_t) v_t' ;  z_t = z_{t-1} + phi(k_t) ;  o_t = S_t' phi(q_t) / (z_t' phi(q_t) + eps)";
  d.info.scale = "none";
  d.info.departure = "the output is divided by the sum of the features seen by the query";
  d.info.inputs = {query(), key(), value()};
  Stage q{map, {"q"}, "q", 0, shape}, k{map, {"k"}, "k", 0, shape};
  for (const InputInfo& parameter : parameters) {
    d.info.inputs.push_back(parameter);
    q.from.push_back(parameter.name), k.from.push_back(parameter.name);
  }
  d.prepare = {q, k};
  d.info.outputs = {output()};
  d.info.settings = {{"normalise_eps", "added to the denominator", ""},
                     {"decay", "a factor on older pairs, in (0, 1]", ""}};
  for (const InputInfo& parameter : parameters)
    if (parameter.shape.find('M') != std::string::npos) {
      d.info.settings.push_back({"features", "rows of the matrix; K unless given", "", true});
      break;
    }
  d.adapt = set_features;
  return d;
}

}  // namespace ttr::zoo
