// Based: linear attention through the second-order Taylor map of the exponential.
//
//   w_ts = 1 + s + s^2/2 ,  s = q_t.k_s / sqrt(K) ;   o_t = sum_s w_ts v_s / (sum_s w_ts + eps)
//
// The features have 1 + K + K(K+1)/2 entries, so the state does. Source: Arora et al. 2024.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration based() {
  Declaration d;
  d.info.name = "based";
  d.info.recipe = "equal / linear(taylor2) / gd(1) | normalise(keysum, eps=1e-6)";
  d.info.title = "Based (Taylor features)";
  d.info.paper = "Arora et al. 2024, arXiv 2402.18668";
  d.info.equation = "w_ts = 1 + s + s^2/2, s = q_t.k_s/sqrt(K) ;  o_t = sum_s w_ts v_s / (sum_s w_ts + eps)";
  d.info.scale = "1/sqrt(K) inside the map";
  d.info.departure = "the output is divided by the sum of the weights";
  d.info.traps = {"K = 16 is usual: the state has 1 + K + K(K+1)/2 rows.", "w is never below 1/2."};
  d.info.inputs = {query(), key(), value()};
  d.info.outputs = {output()};
  d.info.settings = {{"normalise_eps", "added to the denominator", ""},
                     {"decay", "a factor on older pairs, in (0, 1]", ""}};
  d.info.golden = {{"based", {}, {}}};
  return d;
}

}  // namespace ttr::zoo
