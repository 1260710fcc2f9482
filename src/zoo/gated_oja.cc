// The gated Oja rule: the regression runs the other way, from values to keys.
//
//   S~ = S_{t-1} diag(e^{gv_t}) ;  S_t = S~ + beta_t (k_t - S~ v_t) v_t' ;  o_t = S_t' (c q_t) ,  c = 1/sqrt(K)
//
// q, k [B,T,G,K], v, gv [B,T,H,V], beta [B,T,H]. Source: the oja operator of flash-linear-attention.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration gated_oja() {
  Declaration d;
  d.info.name = "gated-oja";
  d.info.recipe = "equal / linear(reverse) / sgd(beta, decay(value))";
  d.info.title = "Gated Oja rule";
  d.info.paper = "flash-linear-attention 2026; Oja 1982";
  d.info.equation = "S~ = S_{t-1} diag(exp(gv_t)) ;  S_t = S~ + beta_t (k_t - S~ v_t) v_t' ;  o_t = S_t' (c q_t)";
  d.info.scale = "c = 1/sqrt(K) on q";
  d.info.traps = {"Values should have length one: beta |v|^2 beyond 2 diverges.",
                  "It is KDA on the transposed state with keys and values exchanged, but read from the other side."};
  d.info.inputs = {query(),
                   key(),
                   {"v", "B T H V", "value", Range::unit},
                   {"gv", "B T H V", "log of the factor on each column of the state", Range::log_gate},
                   {"beta", "B T H", "step size", Range::sigmoid}};
  d.info.outputs = {output()};
  d.info.settings = {{"beta", "a constant step size", "0.1"},
                     {"decay", "a constant weight decay", "0.01"},
                     {"normalise", "none, unit or rms: what divides the output", ""}};
  d.info.golden = {{"gated_oja_rule", {{"h0", "state.S"}, {"ht", "state.S"}}, {}}};
  d.scale_by_root_key = true;
  return d;
}

}  // namespace ttr::zoo
