// Gated linear attention: every key channel of the state has its own gate.
//
//   S_t = diag(e^{gk_t}) S_{t-1} + k_t v_t' ;   o_t = S_t' (c q_t) ,  c = 1/sqrt(K)
//
// gk [B,T,H,K], natural logs. Source: Yang et al. 2023; flash-linear-attention gla.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration gla() {
  Declaration d;
  d.info.name = "gla";
  d.info.recipe = "gate(key) / linear / gd(1)";
  d.info.title = "Gated linear attention";
  d.info.paper = "Yang, Wang, Shen, Panda, Kim 2023, arXiv 2312.06635";
  d.info.equation = "S_t = diag(exp(gk_t)) S_{t-1} + k_t v_t' ;  o_t = S_t' (c q_t)";
  d.info.scale = "c = 1/sqrt(K) on q";
  d.info.traps = {
      "A gate per key channel is no longer a weight on pairs but a forgetting of the rows of S.",
      "Strong gates overflow in forms that divide by cumulative gates; here no exponent is ever above 12."};
  d.info.inputs = {
      query(), key(), value(), {"gk", "B T H K", "log of the factor on each key channel", Range::log_gate}};
  d.info.outputs = {output()};
  d.info.variants = {{"value_gate=input"}};
  d.info.settings = {{"value_gate", "input: a gate gv [B T H V] on the columns of the state as well", ""},
                     {"decay", "one constant factor on older pairs, in (0, 1]", "0.98"},
                     {"normalise", "none, unit or rms: what divides the output", ""},
                     {"step", "length of the gradient step; auto = 1 / sum w |k|^2", "auto"}};
  d.info.golden = {{"gla", {{"h0", "state.S"}, {"ht", "state.S"}}, {{"value_gate", "?gv"}}}};
  d.scale_by_root_key = true;
  return d;
}

}  // namespace ttr::zoo
