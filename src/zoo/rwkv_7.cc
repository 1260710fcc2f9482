// RWKV-7: a delta rule with a gate per key channel and independent read, erase and write keys.
//
//   kk = k_raw*k_k / max(|k_raw*k_k|, 1e-12) ;   k = k_raw*(1 + (a-1)*k_a)
//   S_t = diag(e^{w_t}) S_{t-1} - (a_t*kk_t)(kk_t' S_{t-1}) + k_t v_t'
//   o_t = S_t' r_t ;   o_bonus = (sum r*k*r_k) v_t
//
// r, w, k_raw, a [B,T,H,K], v [B,T,H,V], k_k, k_a, r_k [H,K]. The layer adds o_bonus after its group norm, so it is
// an output of its own. Source: Peng et al. 2025; flash-linear-attention rwkv7.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration rwkv_7() {
  Declaration d;
  d.info.name = "rwkv-7";
  d.info.recipe = "equal / linear / sgd(dplr, decay(key))";
  d.info.title = "RWKV-7 (Goose)";
  d.info.paper = "Peng et al. 2025, arXiv 2503.14456";
  d.info.equation =
      "kk = normalize(k_raw*k_k) ;  k = k_raw*(1+(a-1)*k_a) ;  S_t = diag(exp(w_t)) S_{t-1} - (a_t*kk_t)(kk_t' "
      "S_{t-1}) + "
      "k_t v_t' ;  o_t = S_t' r_t";
  d.info.scale = "none";
  d.info.departure = "the erase key is not the write key, so this is not literally SGD on the squared loss";
  d.info.traps = {"w is a natural logarithm: the layer computes -exp(-1/2) sigmoid(.).",
                  "kk reads the undecayed state.", "o_bonus is added after the group norm of the layer."};
  d.info.inputs = {{"r", "B T H K", "query (receptance)", Range::normal},
                   {"w", "B T H K", "log of the decay of each row of the state", Range::log_gate},
                   {"k_raw", "B T H K", "key before its two uses", Range::normal},
                   value(),
                   {"a", "B T H K", "in-context learning rate", Range::sigmoid},
                   {"k_k", "H K", "scale of the removal key", Range::positive},
                   {"k_a", "H K", "how much a changes the write key", Range::sigmoid},
                   {"r_k", "H K", "weight of the bonus", Range::small}};
  d.info.outputs = {output(), {"o_bonus", "B T H V", "bonus of the newest token", Range::normal}};
  d.info.golden = {{"rwkv7", {{"h0", "state.S"}, {"ht", "state.S"}}, {}}};
  d.info.grouped = false;
  d.feeds = {{"q", "r"}, {"gk", "w"}, {"a", "kk"}};
  d.prepare = {{prepare::Op::multiply, {"k_raw", "k_k"}, "kk_raw"},
               {prepare::Op::unit_norm_clamp, {"kk_raw"}, "kk", 1e-12},
               {prepare::Op::blend_product, {"k_raw", "a", "k_a"}, "k"},
               {prepare::Op::negative_product, {"kk", "a"}, "b"}};
  d.finish = {{prepare::Op::bonus_value, {"r", "k", "r_k", "v"}, "o_bonus"}};
  return d;
}

}  // namespace ttr::zoo
