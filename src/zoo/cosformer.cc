// cosFormer: linear attention whose weights fade with the cosine of the distance.
//
//   w_ts = relu(q_t).relu(k_s) cos(pi (t - s) / (2 L)) ;   o_t = sum_s w_ts v_s / (sum_s w_ts + eps)
//
// By cos(a - b) = cos a cos b + sin a sin b this is a feature map of twice the width that knows the position, which
// is part of the state. It is a word of recipes too, linear(cosformer), for any solver. Source: Qin et al. 2022.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration cosformer() {
  Declaration d;
  d.info.name = "cosformer";
  d.info.recipe = "equal / linear(cosformer) / gd(1) | normalise(keysum, eps=1e-6)";
  d.info.title = "cosFormer";
  d.info.paper = "Qin et al. 2022, arXiv 2202.08791";
  d.info.equation = "w_ts = relu(q_t).relu(k_s) cos(pi (t - s)/(2 L)) ;  o_t = sum_s w_ts v_s / (sum_s w_ts + eps)";
  d.info.scale = "none";
  d.info.departure = "the output is divided by the sum of the features seen by the query";
  d.info.traps = {"L is fixed: beyond L tokens the cosine turns negative and the weights are no weights any more.",
                  "ReLU leaves queries that see nothing; their output is 0."};
  d.info.inputs = {query(Range::positive), key(Range::positive), value()};
  d.info.outputs = {output()};
  d.info.settings = {{"normalise_eps", "added to the denominator", ""},
                     {"decay", "a factor on older pairs, in (0, 1]", ""},
                     {"length", "L, the longest sequence", ""}};
  return d;
}

}  // namespace ttr::zoo
