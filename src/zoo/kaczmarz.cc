// Kaczmarz linear attention: the state decays, then is projected towards the newest pair (NLMS with a gate).
//
//   S~ = e^{g_t} S_{t-1} ;   S_t = S~ + mu_t/(eps + |k_t|^2) k_t (v_t - S~' k_t)'
//   o_t = S_t' (c q_t) ,  c = 1/sqrt(K)
//
// mu, g [B,T,H]. Source: arXiv 2605.08587.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration kaczmarz() {
  Declaration d;
  d.info.name = "kaczmarz-attention";
  d.info.recipe = "equal / linear / sgd(nlms, decay)";
  d.info.title = "Kaczmarz linear attention";
  d.info.paper = "Zou, Ren, Liu 2026, arXiv 2605.08587";
  d.info.equation =
      "S~ = exp(g_t) S_{t-1} ;  S_t = S~ + mu_t/(eps + |k_t|^2) k_t (v_t - S~' k_t)' ;  o_t = S_t' (c q_t)";
  d.info.scale = "c = 1/sqrt(K) on q";
  d.info.traps = {"NLMS on top of the gate of Gated DeltaNet; with keys of length one it is Gated DeltaNet."};
  d.info.inputs = {query(),
                   key(),
                   value(),
                   {"mu", "B T H", "relative step size, in (0, 2)", Range::sigmoid},
                   {"g", "B T H", "log of the decay of the state", Range::log_gate}};
  d.info.outputs = {output()};
  d.info.settings = {{"mu", "a constant relative step size", "0.5"},
                     {"eps", "added to |k|^2", ""},
                     {"decay", "a constant weight decay", "0.01"}};
  d.scale_by_root_key = true;
  return d;
}

}  // namespace ttr::zoo
