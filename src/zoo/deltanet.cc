// DeltaNet = least mean squares (LMS): one gradient step on the newest pair.
//
//   u_t = beta_t (v_t - S_{t-1}' k_t) ;   S_t = S_{t-1} + k_t u_t' ;   o_t = S_t' (c q_t) ,  c = 1/sqrt(K)
//
// beta [B,T,H] in (0,1), or (0,2) for negative eigenvalues. Source: Schlag et al. 2021; Yang et al. 2024;
// Widrow-Hoff.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration deltanet() {
  Declaration d;
  d.info.name = "deltanet";
  d.info.recipe = "equal / linear / sgd(beta)";
  d.info.title = "DeltaNet (LMS)";
  d.info.paper =
      "Yang, Wang, Zhang, Shen, Kim 2024, arXiv 2406.06484; Schlag, Irie, Schmidhuber 2021, arXiv 2102.11174";
  d.info.equation = "u_t = beta_t (v_t - S_{t-1}' k_t) ;  S_t = S_{t-1} + k_t u_t' ;  o_t = S_t' (c q_t)";
  d.info.scale = "c = 1/sqrt(K) on q";
  d.info.traps = {
      "Along k the state is multiplied by 1 - beta |k|^2: beta |k|^2 above 2 diverges. The published layer "
      "normalises "
      "q and k to length one first; here that is the setting keys=unit.",
      "beta |k|^2 = 1 overwrites what was stored under k, 2 reflects it: with beta = 2 sigmoid the eigenvalue along "
      "k is "
      "in [-1, 1], which state tracking needs (Grazzi et al. 2024, arXiv 2411.12537)."};
  d.info.inputs = {query(Range::unit), key(Range::unit), value(), {"beta", "B T H", "step size", Range::sigmoid}};
  d.info.outputs = {output()};
  d.info.variants = {{"keys=unit,beta=1.5"}};
  d.info.settings = {{"beta", "a constant step size", "0.5"}, {"keys", "raw, unit or rms: norm of q and k", "unit"}};
  d.info.golden = {{"delta_rule", {{"h0", "state.S"}, {"ht", "state.S"}}, {}}};
  d.scale_by_root_key = true;
  return d;
}

}  // namespace ttr::zoo
