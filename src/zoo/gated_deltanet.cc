// Gated DeltaNet: the state decays, then takes one gradient step on the newest pair.
//
//   S~ = e^{g_t} S_{t-1} ;   u_t = beta_t (v_t - S~' k_t) ;   S_t = S~ + k_t u_t'
//   o_t = S_t' (c q_t) ,  c = 1/sqrt(K)
//
// g, beta [B,T,H]; q, k may have fewer heads than v. Source: Yang, Kautz, Hatamizadeh 2024.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration gated_deltanet() {
  Declaration d;
  d.info.name = "gated-deltanet";
  d.info.recipe = "equal / linear / sgd(beta, decay)";
  d.info.title = "Gated DeltaNet";
  d.info.paper = "Yang, Kautz, Hatamizadeh 2024, arXiv 2412.06464";
  d.info.equation =
      "S~ = exp(g_t) S_{t-1} ;  u_t = beta_t (v_t - S~' k_t) ;  S_t = S~ + k_t u_t' ;  o_t = S_t' (c q_t)";
  d.info.scale = "c = 1/sqrt(K) on q";
  d.info.traps = {"The residual reads the decayed state; read from the undecayed state it is leaky LMS.",
                  "g is a natural logarithm, at most 0.", "Unnormalised keys with beta |k|^2 above 2 diverge."};
  d.info.inputs = {query(Range::unit),
                   key(Range::unit),
                   value(),
                   {"beta", "B T H", "step size", Range::sigmoid},
                   {"g", "B T H", "log of the decay of the state", Range::log_gate}};
  d.info.outputs = {output()};
  d.info.variants = {{"keys=rms,beta=0.1"}, {"decay=0.05"}};
  d.info.settings = {{"beta", "a constant step size", "0.5"},
                     {"decay", "a constant weight decay: the state is multiplied by 1 - decay", "0.01"},
                     {"keys", "raw, unit or rms: norm of q and k", "unit"}};
  d.info.golden = {{"gated_delta_rule", {{"h0", "state.S"}, {"ht", "state.S"}}, {}}};
  d.scale_by_root_key = true;
  return d;
}

}  // namespace ttr::zoo
