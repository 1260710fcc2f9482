// Comba: a delta rule whose residual is read with another key, from the undecayed state.
//
//   u_t = beta_t (v_t - S_{t-1}' p_t) ;   S_t = e^{g_t} S_{t-1} + k_t u_t' ;   o_t = S_t' (c q_t) ,  c = 1/sqrt(K)
//
// p [B,T,G,K], beta, g [B,T,H]. Source: arXiv 2506.02475.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration comba() {
  Declaration d;
  d.info.name = "comba";
  d.info.recipe = "equal / linear / sgd(beta, decay, feedback)";
  d.info.title = "Comba";
  d.info.paper = "Hu et al. 2025, arXiv 2506.02475";
  d.info.equation = "u_t = beta_t (v_t - S_{t-1}' p_t) ;  S_t = exp(g_t) S_{t-1} + k_t u_t' ;  o_t = S_t' (c q_t)";
  d.info.scale = "c = 1/sqrt(K) on q";
  d.info.traps = {
      "The residual is read with p from the undecayed state; a published recurrent reference decays first and "
      "differs by 14-20 %."};
  d.info.inputs = {query(Range::unit),
                   key(Range::unit),
                   value(),
                   {"p", "B T G K", "key the residual is read with", Range::unit},
                   {"beta", "B T H", "step size", Range::sigmoid},
                   {"g", "B T H", "log of the decay of the state", Range::log_gate}};
  d.info.outputs = {output()};
  d.info.settings = {{"keys", "raw, unit or rms: norm of q and k", "unit"}};
  d.info.golden = {{"comba", {{"h0", "state.S"}, {"ht", "state.S"}}, {}}};
  d.scale_by_root_key = true;
  return d;
}

}  // namespace ttr::zoo
