// Diagonal plus low rank: the general delta step with independent read, erase and write keys.
//
//   S_t = diag(e^{gk_t}) S_{t-1} + b_t (a_t' S_{t-1}) + k_t v_t' ;   o_t = S_t' (c q_t) ,  c = 1/sqrt(K)
//
// a, b, gk [B,T,H,K]; a reads the undecayed state. Source: flash-linear-attention dplr.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration dplr() {
  Declaration d;
  d.info.name = "dplr";
  d.info.recipe = "equal / linear / sgd(dplr, decay(key))";
  d.info.title = "Diagonal plus low rank";
  d.info.paper = "flash-linear-attention dplr; Peng et al. 2025, arXiv 2503.14456";
  d.info.equation = "S_t = diag(exp(gk_t)) S_{t-1} + b_t (a_t' S_{t-1}) + k_t v_t' ;  o_t = S_t' (c q_t)";
  d.info.scale = "c = 1/sqrt(K) on q";
  d.info.departure = "the erase key is not the write key, so this is not literally SGD on the squared loss";
  d.info.traps = {
      "a reads the undecayed state.",
      "Read, erase and write keys are independent: not literally a gradient step, and the state may grow."};
  d.info.inputs = {query(),
                   key(),
                   value(),
                   {"a", "B T H K", "read key", Range::unit},
                   {"b", "B T H K", "erase key", Range::small},
                   {"gk", "B T H K", "log of the decay of each row of the state", Range::log_gate}};
  d.info.outputs = {output()};
  d.info.settings = {{"keys", "raw, unit or rms: norm of q and k", "unit"}};
  d.info.golden = {{"dplr", {{"h0", "state.S"}, {"ht", "state.S"}}, {}}};
  d.scale_by_root_key = true;
  return d;
}

}  // namespace ttr::zoo
