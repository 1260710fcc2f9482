// Gated DeltaNet 2: KDA with separate gates for erasing and for writing.
//
//   S~ = diag(e^{g_t}) S_{t-1} ;   S_t = S~ + k_t (w_t*v_t - S~' (b_t*k_t))' ;   o_t = S_t' (c q_t) ,  c = 1/sqrt(K)
//
// g, b [B,T,H,K], w [B,T,H,V]. Source: arXiv 2605.22791.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration gdn_2() {
  Declaration d;
  d.info.name = "gdn-2";
  d.info.recipe = "equal / linear / sgd(split, decay(key))";
  d.info.title = "Gated DeltaNet 2";
  d.info.paper = "Hatamizadeh, Choi, Kautz 2026, arXiv 2605.22791";
  d.info.equation = "S~ = diag(exp(g_t)) S_{t-1} ;  S_t = S~ + k_t (w_t*v_t - S~' (b_t*k_t))' ;  o_t = S_t' (c q_t)";
  d.info.scale = "c = 1/sqrt(K) on q";
  d.info.traps = {"b = w = beta gives KDA.",
                  "Erase key b*k and write key k differ: there is no bound on the growth of the state."};
  d.info.inputs = {query(Range::unit),
                   key(Range::unit),
                   value(),
                   {"g", "B T H K", "log of the decay of each row of the state", Range::log_gate},
                   {"b", "B T H K", "erase gate on the key", Range::sigmoid},
                   {"w", "B T H V", "write gate on the value", Range::sigmoid}};
  d.info.outputs = {output()};
  d.info.settings = {{"keys", "raw, unit or rms: norm of q and k", "unit"}};
  d.info.golden = {{"gdn2", {{"h0", "state.S"}, {"ht", "state.S"}}, {}}};
  d.scale_by_root_key = true;
  d.feeds = {{"gk", "g"}, {"erase", "b"}, {"write", "w"}};
  return d;
}

}  // namespace ttr::zoo
