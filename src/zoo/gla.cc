// Gated linear attention: every key channel of the state has its own gate.
//
//   S_t = diag(e^{gk_t}) S_{t-1} + k_t v_t' ;   o_t = S_t' (c q_t) ,  c = 1/sqrt(K)
//
// gk [B,T,H,K], natural logs. Source: Yang et al. 2023; flash-linear-attention gla.
//
// With eigenvalues in [-1, 1] the factors are 2 e^{gk} - 1. Source: Grazzi et al. 2024.
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
  d.info.traps = {"A gate per key channel is no longer a weight on pairs but a forgetting of the rows of S.",
                  "Strong gates overflow in forms that divide by cumulative gates; here gates are followed in "
                  "frames, so that no factor ever leaves the numbers."};
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

Declaration signed_gla() {
  Declaration d = gla();
  d.info.name = "signed-gla";
  d.info.recipe = "gate(key, signed) / linear / gd(1)";
  d.info.title = "Gated linear attention with eigenvalues in [-1, 1]";
  d.info.paper =
      "Grazzi, Siems, Franke, Zela, Hutter, Pontil 2024, arXiv 2411.12537; Yang, Wang, Shen, Panda, Kim 2023, arXiv "
      "2312.06635";
  d.info.equation = "S_t = diag(2 exp(gk_t) - 1) S_{t-1} + k_t v_t' ;  o_t = S_t' (c q_t)";
  d.info.traps = {
      "gk from 0 to -inf takes a factor from 1 to -1, through 0 at -log 2: strong gates flip, they do not forget.",
      "The state in memory is S with rows times the products of their signs so far, whose parities are its other "
      "part, "
      "flip_k: a fresh or a given S has flip_k 0.",
      "The recipe gate(key, signed) takes the factors themselves, as tanh or 2 sigmoid - 1 make them."};
  d.info.variants.clear();
  d.info.settings = {{"normalise", "none, unit or rms: what divides the output", ""}};
  d.info.golden = {{"gla_signed", {{"h0", "state.S"}}, {}}};
  d.prepare = {{prepare::Op::twice_less_one, {"gk"}, "ak"}};
  return d;
}

}  // namespace ttr::zoo
