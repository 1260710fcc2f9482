// Kimi delta attention: every key channel of the state decays by its own gate, then one gradient step.
//
//   S~ = diag(e^{g_t}) S_{t-1} ;   S_t = S~ + beta_t k_t (v_t - S~' k_t)' ;   o_t = S_t' (c q_t) ,  c = 1/sqrt(K)
//
// g [B,T,H,K], beta [B,T,H]; q, k may have fewer heads than v. Source: arXiv 2510.26692.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration kda() {
  Declaration d;
  d.info.name = "kda";
  d.info.recipe = "equal / linear / sgd(beta, decay(key))";
  d.info.title = "Kimi delta attention";
  d.info.paper = "Kimi Team 2025, arXiv 2510.26692";
  d.info.equation = "S~ = diag(exp(gk_t)) S_{t-1} ;  S_t = S~ + beta_t k_t (v_t - S~' k_t)' ;  o_t = S_t' (c q_t)";
  d.info.scale = "c = 1/sqrt(K) on q";
  d.info.traps = {"Gated DeltaNet with a gate per key channel.",
                  "Keys of length one; unnormalised keys with beta |k|^2 above 2 diverge."};
  d.info.inputs = {query(Range::unit),
                   key(Range::unit),
                   value(),
                   {"g", "B T H K", "log of the decay of each row of the state", Range::log_gate},
                   {"beta", "B T H", "step size", Range::sigmoid}};
  d.info.outputs = {output()};
  d.info.settings = {{"beta", "a constant step size", "0.5"},
                     {"decay", "a constant weight decay", "0.01"},
                     {"keys", "raw, unit or rms: norm of q and k", "unit"}};
  d.info.golden = {{"kda", {{"h0", "state.S"}, {"ht", "state.S"}}, {}}};
  d.scale_by_root_key = true;
  d.feeds = {{"gk", "g"}};
  return d;
}

}  // namespace ttr::zoo
