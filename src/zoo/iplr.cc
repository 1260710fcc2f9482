// Identity plus low rank: the general delta step without decay.
//
//   S_t = (I + b_t a_t') S_{t-1} + k_t v_t' ;   o_t = S_t' (c q_t) ,  c = 1/sqrt(K)
//
// a, b [B,T,H,K]. Source: flash-linear-attention iplr.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration iplr() {
  Declaration d;
  d.info.name = "iplr";
  d.info.recipe = "equal / linear / sgd(dplr)";
  d.info.title = "Identity plus low rank";
  d.info.paper = "flash-linear-attention iplr";
  d.info.equation = "S_t = (I + b_t a_t') S_{t-1} + k_t v_t' ;  o_t = S_t' (c q_t)";
  d.info.scale = "c = 1/sqrt(K) on q";
  d.info.departure = "the erase key is not the write key, so this is not literally SGD on the squared loss";
  d.info.traps = {"DPLR without decay: nothing is ever forgotten but what b a' erases."};
  d.info.inputs = {query(),
                   key(),
                   value(),
                   {"a", "B T H K", "read key", Range::unit},
                   {"b", "B T H K", "erase key", Range::small}};
  d.info.outputs = {output()};
  d.info.settings = {{"keys", "raw, unit or rms: norm of q and k", "unit"}};
  d.info.golden = {{"iplr", {{"h0", "state.S"}, {"ht", "state.S"}}, {}}};
  d.scale_by_root_key = true;
  return d;
}

}  // namespace ttr::zoo
